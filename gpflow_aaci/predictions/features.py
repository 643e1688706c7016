r"""
Features φ of a kernel, φ(x)ᵀφ(x′) ≈ k(x, x′): with w ~ N(0, I), φ(x)ᵀw is a draw from the prior.

A stationary kernel with variance σ² is σ² E cos ωᵀ(x − x′), where ω has the kernel's spectral
density (Bochner). So its features are √(σ²/F) (cos ω_jᵀx, sin ω_jᵀx) at F frequencies (*Random
Features for Large-Scale Kernel Machines*, Rahimi and Recht, NIPS 2007). The frequencies are
quasi-random: in a few dimensions they bring φ(x)ᵀφ(x′) several times nearer to the kernel than
independent ones do (Avron, Sindhwani, Yang and Mahoney, JMLR 2016), and its expectation is exact.
Kernels of finite rank have exact features.

Shapes: [D] columns of X, [F] frequencies, [R] features.
"""

import functools
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import tensorflow as tf
from gpflow import kernels
from gpflow.base import AnyNDArray
from gpflow.kernels import Kernel
from scipy.special import gammaincinv, ndtri
from scipy.stats import qmc

from ..kernels import Categorical, Difference, sum_of_products

FeatureMap: TypeAlias = Callable[[tf.Tensor], tf.Tensor]
"""X [..., D] → φ(X) [..., R]."""

# ν of the Matérn kernels. GPflow's Exponential is Matern12 with lengthscales 2ℓ.
_MATERN = {
    kernels.Exponential: 0.5,
    kernels.Matern12: 0.5,
    kernels.Matern32: 1.5,
    kernels.Matern52: 2.5,
}
_STATIONARY = (kernels.SquaredExponential, kernels.RationalQuadratic, *_MATERN)


def feature_map(
    kernel: Kernel, input_dim: int, num_frequencies: int, rng: np.random.Generator
) -> FeatureMap:
    """
    φ of a kernel with one output, whose hyperparameters must not change afterwards.

    :param input_dim: D; the number of columns of an input of f where the kernel is a
        :class:`~gpflow_aaci.kernels.Difference`, whose features are φ(x) − φ(x′).
    :param num_frequencies: F, of each product in the kernel that has a stationary factor.
    :raises ValueError: for a kernel without such features.
    """
    if type(kernel) is Difference:
        of_f = feature_map(kernel.kernel, input_dim, num_frequencies, rng)
        return lambda X: (
            of_f(X)
            if X.shape[-1] == input_dim
            else of_f(X[..., :input_dim]) - of_f(X[..., input_dim:])
        )
    products = [_of_product(k, input_dim, num_frequencies, rng) for k in sum_of_products(kernel)]
    return lambda X: tf.concat([features(X) for features in products], -1)


def _of_product(
    factors: list[Kernel], input_dim: int, num_frequencies: int, rng: np.random.Generator
) -> FeatureMap:
    """φ of a product: all products of its factors' features, since ⊗φ has ∏ k as inner product."""
    stationary = [kernel for kernel in factors if type(kernel) in _STATIONARY]
    others = [kernel for kernel in factors if type(kernel) not in _STATIONARY]
    for kernel in others:
        if type(kernel) not in _FINITE_RANK:
            accepted = ", ".join(kind.__name__ for kind in (*_STATIONARY, *_FINITE_RANK))
            raise ValueError(
                f"kernel must be made of {accepted}, by sums and products. "
                f"Found: {type(kernel).__name__}."
            )
    maps: list[FeatureMap] = [
        functools.partial(_FINITE_RANK[type(kernel)], kernel) for kernel in others
    ]
    if stationary:
        maps.append(_of_stationary(stationary, input_dim, num_frequencies, rng))
    return lambda X: functools.reduce(_outer, [features(X) for features in maps])


def _outer(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    """All products of features [..., R] and [..., Q], [..., RQ]."""
    products = a[..., :, None] * b[..., None, :]
    width = a.shape[-1] * b.shape[-1]
    return tf.reshape(products, tf.concat([tf.shape(a)[:-1], [width]], 0))


def _of_stationary(
    factors: list[Kernel], input_dim: int, num_frequencies: int, rng: np.random.Generator
) -> FeatureMap:
    """φ of a product of stationary kernels, whose frequencies are sums of those of its factors."""
    columns = [np.arange(input_dim)[kernel.active_dims] for kernel in factors]
    sizes = [len(dims) + 1 for dims in columns]
    u = qmc.Halton(sum(sizes), seed=rng).random(num_frequencies)
    u = 0.5 + (1.0 - 1e-10) * (u - 0.5)  # in [0, 1): quantiles at 0 would be infinite
    of_factors = np.split(u, np.cumsum(sizes)[:-1], axis=1)
    frequencies = sum(  # a column that a factor does not use has frequency 0 there
        _frequencies(kernel, own) @ np.eye(input_dim)[dims]
        for kernel, own, dims in zip(factors, of_factors, columns, strict=True)
    )
    scale = np.sqrt(np.prod([_value(kernel.variance) for kernel in factors]) / num_frequencies)

    def features(X: tf.Tensor) -> tf.Tensor:
        angles = tf.tensordot(X, tf.constant(frequencies.T, X.dtype), 1)
        return tf.cast(scale, X.dtype) * tf.concat([tf.cos(angles), tf.sin(angles)], -1)

    return features


def _frequencies(kernel: Kernel, u: AnyNDArray) -> AnyNDArray:
    """
    Frequencies [F, d] of a kernel of d columns, from uniform numbers u [F, d + 1].

    They are √τ z/ℓ, z ~ N(0, I). The squared exponential kernel has τ = 1, the rational quadratic
    kernel τ ~ Gamma(α, α), and a Matérn kernel 1/τ ~ Gamma(ν, ν): Student's t with 2ν degrees of
    freedom.
    """
    z, last = ndtri(u[:, :-1]) / _value(kernel.lengthscales), u[:, -1:]
    if type(kernel) is kernels.RationalQuadratic:
        alpha = _value(kernel.alpha)
        return z * np.sqrt(gammaincinv(alpha, last) / alpha)
    if type(kernel) in _MATERN:
        nu = _MATERN[type(kernel)]
        z = 0.5 * z if type(kernel) is kernels.Exponential else z
        return z / np.sqrt(gammaincinv(nu, last) / nu)
    return z


def _value(parameter: tf.Tensor) -> AnyNDArray:
    return np.asarray(tf.convert_to_tensor(parameter), np.float64)


def _of_constant(kernel: kernels.Constant, X: tf.Tensor) -> tf.Tensor:
    return tf.sqrt(kernel.variance) * tf.ones_like(X[..., :1])


def _of_linear(kernel: kernels.Linear, X: tf.Tensor) -> tf.Tensor:
    return tf.sqrt(kernel.variance) * kernel.slice(X)[0]


def _of_polynomial(kernel: kernels.Polynomial, X: tf.Tensor) -> tf.Tensor:
    """
    The power ⊗ of (σ x, √γ): (d + 1)^degree features.

    :raises ValueError: for a degree that is no positive integer.
    """
    degree = float(kernel.degree)
    if not (degree >= 1.0 and degree.is_integer()):
        raise ValueError(f"degree of Polynomial must be a positive integer. Found: {degree}.")
    offset = tf.sqrt(kernel.offset) * tf.ones_like(X[..., :1])
    affine = tf.concat([_of_linear(kernel, X), offset], -1)
    return functools.reduce(_outer, [affine] * int(degree))


def _of_cosine(kernel: kernels.Cosine, X: tf.Tensor) -> tf.Tensor:
    scaled = kernel.scale(kernel.slice(X)[0])
    angle = 2.0 * np.pi * tf.reduce_sum(scaled, -1, keepdims=True)
    return tf.sqrt(kernel.variance) * tf.concat([tf.cos(angle), tf.sin(angle)], -1)


def _of_coregion(kernel: kernels.Coregion, X: tf.Tensor) -> tf.Tensor:
    root = tf.linalg.cholesky(kernel.output_covariance())
    return tf.gather(root, tf.cast(kernel.slice(X)[0][..., 0], tf.int32))


_FINITE_RANK: dict[type[Kernel], Callable[[Kernel, tf.Tensor], tf.Tensor]] = {
    kernels.Constant: _of_constant,
    kernels.Linear: _of_linear,
    kernels.Polynomial: _of_polynomial,
    kernels.Cosine: _of_cosine,
    kernels.Coregion: _of_coregion,
    Categorical: Categorical.features,
}
