r"""
Functions drawn from the posterior of f, which can be evaluated and differentiated anywhere.

By Matheron's rule a draw of f from the prior becomes one from the posterior when the prior's
regression on u moves it, so that it goes through a draw of u from the posterior (*Efficiently
Sampling Functions from Gaussian Process Posteriors*, Wilson, Borovitskiy, Terenin, Mostowsky and
Deisenroth, ICML 2020)::

    f(·) = μ₀(·) + φ(·)ᵀw + k(·, Z) K_ZZ⁻¹ (u − μ₀(Z) − Φ_Z w),   w ~ N(0, I).

``features`` has φ. With u = μ₀(Z) + chol v, the last two factors are chol⁻ᵀ (v − chol⁻¹Φ_Z w).

Shapes: [S] functions, [N] new data, [L] latent GPs, [P] columns of f, [M] inducing variables, [R]
features.
"""

from collections.abc import Callable, Generator
from contextlib import closing
from typing import TYPE_CHECKING, TypeAlias

import gpflow
import numpy as np
import tensorflow as tf
from gpflow import covariances
from gpflow.base import TensorType
from gpflow.config import default_jitter
from gpflow.inducing_variables import InducingPoints, InducingVariables
from gpflow.utilities import freeze

from ..kernels import columns_of_f, columns_of_x, levels_of
from ..models import AugmentedModel, AugmentedVGP, Model, as_augmented
from ..validation import as_default_float, check_count, check_finite, require
from .f import in_blocks, num_draws
from .features import feature_map

if TYPE_CHECKING:
    import arviz

Functions: TypeAlias = Callable[[TensorType], tf.Tensor]
"""X [N, D], the same points for all functions, or [S, N, D], each function's own → [S, N, P]."""

Draws: TypeAlias = Generator[tuple[tf.Tensor, tf.Tensor], None, None]
"""chol(K_ZZ) [broadcast L, M, M] and draws v [L, M, S], while the model has their parameters."""


def sample_functions(
    model: gpflow.models.GPModel,
    num_functions: int,
    *,
    samples: "arviz.InferenceData | None" = None,
    num_features: int = 1_000,
    seed: int = 0,
) -> Functions:
    """
    S functions from the posterior of f, as one callable: X → f(X) [S, N, P].

    X is [N, D], the same points for all functions, or [S, N, D], each function's own points. The
    functions are fixed: in every call they have the same values at the same x, whatever becomes of
    the model. Their cost is linear in N, and TensorFlow differentiates them in X. So each function
    can be minimised by gradients, as Thompson sampling wants it::

        functions = predictions.sample_functions(model, 10)
        box = tfp.bijectors.Sigmoid(low, high)
        x = gpflow.Parameter(rng.uniform(low, high, [10, 1, D]), transform=box)  # a point for each
        total = lambda: tf.reduce_sum(functions(x))
        gpflow.optimizers.Scipy().minimize(total, x.trainable_variables)

    Trajectories of trieste take X [N, S, D] and return [N, S, L], which is
    ``tf.transpose(functions(tf.transpose(X, [1, 0, 2])), [1, 0, 2])``.

    Their expectation is exactly the mean of ``predict_f``. Their covariance differs by the error of
    the features: about 1/√num_features of the prior variance, or several times less where X has a
    few columns and the kernel is smooth. Where f is known well, its variance may be of that size;
    more features help. The functions of one call share this error; another seed has another one,
    with expectation 0. Kernels of finite rank (``Constant``, ``Linear``, ``Polynomial``,
    ``Cosine``, ``Coregion``) have none.

    :param model: an ``AugmentedVGP``, an ``AugmentedSVGP`` whose inducing variables are points, or
        GPflow's own ``VGP`` or ``SVGP``. Its kernel is made of those of finite rank,
        ``SquaredExponential``, ``Matern12``, ``Matern32``, ``Matern52``, ``Exponential`` and
        ``RationalQuadratic`` by sums and products; it may be a multi-output kernel of such, or the
        :class:`~gpflow_aaci.kernels.Difference` of one.
    :param num_functions: S.
    :param samples: draws by :func:`~gpflow_aaci.sample_posterior`, used instead of q. A function
        goes through a draw of f at the data, or of u, and has its hyperparameters. Every draw is
        used once before any is used again; as many functions as draws are in the order of the
        draws.
    :param num_features: how many random Fourier features approximate each product of the kernel
        with a stationary factor.
    :param seed: the same seed gives the same functions.
    :raises ValueError: for bad arguments, other models and kernels, and samples of another kind of
        model. The functions raise it for X of another shape, or not finite.
    """
    check_count("num_functions", num_functions, 1)
    check_count("num_features", num_features, 2)
    check_count("seed", seed, 0)
    gp = as_augmented(model)
    rng = np.random.default_rng(seed)
    if samples is None:
        draws = _of_q(gp, num_functions, rng)
    else:
        draws = _of_samples(model, gp, samples, num_functions, rng)
    with closing(draws):
        parts = [_through(gp, chol, v, -(-num_features // 2), rng) for chol, v in draws]
    sizes, drawn = zip(*parts, strict=True)
    widths, dtype, levels = _widths(gp), gp.q_mu.dtype, levels_of(gp.kernel)

    def functions(X: TensorType) -> tf.Tensor:
        X = as_default_float(X, "X", levels)
        lead = {2: [], 3: [num_functions]}.get(X.shape.rank)
        if lead is None or list(X.shape[:-2]) != lead or X.shape[-1] not in widths:
            columns = " or ".join(map(str, widths))
            raise ValueError(
                f"X must be [N, {columns}], the same points for all functions, or "
                f"[{num_functions}, N, {columns}], each function's own. "
                f"Found: shape {list(X.shape)}."
            )
        with tf.control_dependencies([require([check_finite("X", X)])]):
            X = tf.cast(tf.identity(X), dtype)
        points = tf.split(X, sizes) if lead else [X] * len(sizes)
        return tf.concat([part(x) for part, x in zip(drawn, points, strict=True)], 0)

    return functions


def _of_q(gp: AugmentedModel, num_functions: int, rng: np.random.Generator) -> Draws:
    """All draws of v from q(v)."""
    chol = tf.linalg.cholesky(gp.prior_covariance())
    q = gp.whitened_q(chol)
    M, L = q.mu.shape
    noise = tf.constant(rng.standard_normal([L, M, num_functions]), chol.dtype)
    yield chol, tf.transpose(q.mu)[..., None] + tf.matmul(q.sqrt, noise)


def _of_samples(
    model: Model,
    gp: AugmentedModel,
    samples: "arviz.InferenceData",
    num_functions: int,
    rng: np.random.Generator,
) -> Draws:
    """The draws of :func:`in_blocks` as v, while the model has their hyperparameters."""
    order = rng.permutation(num_draws(samples))
    chosen = np.sort(np.resize(order, num_functions))
    with closing(in_blocks(model, samples, chosen, num_functions)) as blocks:
        for values in blocks:
            chol = tf.linalg.cholesky(gp.prior_covariance())
            u = tf.constant(values, chol.dtype)
            if isinstance(gp, AugmentedVGP):
                u -= gp.mean_function(gp.data[0])
            yield chol, tf.linalg.triangular_solve(chol, tf.transpose(u, [2, 1, 0]))


def _through(
    gp: AugmentedModel,
    chol: tf.Tensor,
    v: tf.Tensor,
    num_frequencies: int,
    rng: np.random.Generator,
) -> tuple[int, Callable[[tf.Tensor], tf.Tensor]]:
    """How many functions go through the draws v, and these; they do not change with the model."""
    kernel, mean_function = freeze(gp.kernel), freeze(gp.mean_function)
    mixing = None if gp.mixing is None else tf.convert_to_tensor(gp.mixing)
    inducing_variable, points = _inducing(gp)
    L, _, S = v.shape
    # Latent GPs that share the kernel and Z are one group, with one φ and weights [S, R, L].
    of_latents = getattr(kernel, "latent_kernels", (kernel,))
    groups, at_Z = [], []
    num_groups = max(len(of_latents), len(points))
    for at in range(num_groups):
        kernel_of_f, Z = of_latents[at % len(of_latents)], points[at % len(points)]
        phi = feature_map(kernel_of_f, _widths(gp)[0], num_frequencies, rng)
        features = phi(Z)
        shape = [S, features.shape[-1], L // num_groups]
        weights = tf.constant(rng.standard_normal(shape), v.dtype)
        groups.append((phi, weights))
        at_Z.append(tf.einsum("mr,srl->lms", features, weights))
    # u has GPflow's jitter, as K_ZZ has; f has none.
    noise = tf.constant(np.sqrt(default_jitter()) * rng.standard_normal(v.shape), v.dtype)
    white = v - tf.linalg.triangular_solve(chol, tf.concat(at_Z, 0) + noise)
    update = tf.linalg.triangular_solve(chol, white, adjoint=True)  # [L, M, S]

    def functions(X: tf.Tensor) -> tf.Tensor:
        flat, shape = tf.reshape(X, [-1, X.shape[-1]]), tf.shape(X)[:-1]
        K = covariances.Kuf(inducing_variable, kernel, flat)  # [L, M, N] or, if shared, [M, N]
        K = tf.reshape(K, tf.concat([tf.shape(K)[:-1], shape], 0))
        rows = "sn" if X.shape.rank == 3 else "n"
        latents = "lm" if K.shape.rank - len(rows) == 2 else "m"
        f = tf.einsum(f"{latents}{rows},lms->snl", K, update)
        priors = [tf.einsum(f"{rows}r,srl->snl", phi(X), weights) for phi, weights in groups]
        f += tf.concat(priors, -1)
        if mixing is not None:
            f = tf.einsum("snl,pl->snp", f, mixing)
        mean = mean_function(flat)
        return f + tf.reshape(mean, tf.concat([shape, tf.shape(mean)[1:]], 0))

    return S, functions


def _inducing(gp: AugmentedModel) -> tuple[InducingVariables, list[tf.Tensor]]:
    """
    The inducing variable and its points Z, one or one for each latent GP; f at X for a VGP.

    :raises ValueError: for inducing variables that are not values of f at points.
    """
    if isinstance(gp, AugmentedVGP):
        inducing_variable = gp.data_as_points()
    else:
        inducing_variable = freeze(gp.inducing_variable)
    parts = getattr(inducing_variable, "inducing_variables", (inducing_variable,))
    for part in parts:
        if type(part) is not InducingPoints:
            raise ValueError(
                f"inducing_variable must be points for sample_functions. "
                f"Found: {type(part).__name__}."
            )
    return inducing_variable, [tf.convert_to_tensor(part.Z) for part in parts]


def _widths(gp: AugmentedModel) -> list[int]:
    """How many columns an input of f has and, where f is a difference, a pair of inputs."""
    D = columns_of_f(gp.kernel, gp.input_dim)
    widths = [D, columns_of_x(gp.kernel, D)]
    return sorted({width for width in widths if width is not None})
