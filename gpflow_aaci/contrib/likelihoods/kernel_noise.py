"""Noise whose density has the shape of a kernel (AACI Sec. 3.4)."""

import inspect
import types
from functools import partial
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow import Parameter
from gpflow.base import TensorType
from gpflow.kernels import IsotropicStationary, Kernel, Product, Sum
from gpflow.utilities import set_trainable

from ...distributions import GeneralizedInverseGaussian, TiltedDistribution
from ...likelihoods.integrals.even_densities import log_integral, width_of
from ...likelihoods.monotone import first_wrong_sign
from ...likelihoods.noise.residual import Deterministic
from ...likelihoods.noise.student_t import GammaLaw
from ...special import log_matern, log_mixture
from .mixtures import law_of_sum
from .numerical_noise import NumericalNoise
from .tilted_mixtures import TiltedMixture


class KernelNoise(NumericalNoise):
    """
    p(y|f) = k(y − f)/∫k, where k is a stationary kernel on the real line: φ(r) = k(√r)/k(0).

    A kernel that depends on |x − x'| alone and is positive definite in every dimension of x is a
    mixture of squared exponentials of all lengthscales (Schoenberg 1938), so that φ is completely
    monotone. The lengthscales and other parameters of the kernel are learnt. Variances that cancel
    are held fixed; in a sum, the variances of the second and further terms do not cancel::

        KernelNoise(gpflow.kernels.RationalQuadratic(alpha=2.0, lengthscales=0.3))  # Student's t
    """

    def __init__(self, kernel: Kernel, **kwargs: Any) -> None:
        """
        :param kernel: an ``IsotropicStationary`` of GPflow or your own (``K_r`` or ``K_r2``), or
            sums and products of them, with one input dimension. It is shared, with its Parameters.
        :raises ValueError: for another kernel, for a kernel that is positive definite only in few
            dimensions, and for a kernel whose integral over the real line does not exist.
        """
        super().__init__(**kwargs)
        _check_kind(kernel)
        self.kernel = kernel
        _check_positive_definite(kernel)
        if not np.isfinite(log_integral(self.log_phi, 0)):
            raise ValueError(
                "KernelNoise: kernel must have a finite integral over the line (RationalQuadratic: "
                f"alpha > 1/2). Found: {type(kernel).__name__}."
            )
        _hold_fixed(kernel, keep=False)

    def log_phi(self, r: TensorType, Y: TensorType | None = None) -> tf.Tensor:
        return _log_phi(self.kernel, tf.convert_to_tensor(r))

    def _tilted(self, c: tf.Tensor, Y: TensorType | None = None) -> tfp.distributions.Distribution:
        """For a sum of kernels a mixture, for a product the distribution of a sum of ω."""
        return _law(self.kernel, c)


def _log_phi(kernel: Kernel, r: tf.Tensor) -> tf.Tensor:
    """log k(√r)/k(0)."""
    if isinstance(kernel, Product):
        return tf.add_n([_log_phi(part, r) for part in kernel.kernels])
    if isinstance(kernel, Sum):
        log_heights = tf.stack([_log_height(part) for part in kernel.kernels])
        log_p = tf.nn.log_softmax(tf.cast(log_heights, tf.math.real(r).dtype))
        return log_mixture(tf.unstack(log_p), [_log_phi(part, r) for part in kernel.kernels])
    x = r / tf.cast(tf.square(tf.reshape(kernel.lengthscales, [])), r.dtype)
    kind = type(kernel)  # a subclass may have overridden anything
    if kind is gpflow.kernels.SquaredExponential:
        return -0.5 * x
    if kind is gpflow.kernels.RationalQuadratic:
        alpha = tf.cast(kernel.alpha, x.dtype)
        return -alpha * tf.math.log1p(0.5 * x / alpha)
    if kind in _MATERN_ORDERS:
        order, stretch = _MATERN_ORDERS[kind]
        return log_matern((2 * order + 1) / stretch**2 * x, order)
    return _log_phi_of_own(kernel, x)


def _log_height(kernel: Kernel) -> tf.Tensor:
    if isinstance(kernel, Product):
        return tf.add_n([_log_height(part) for part in kernel.kernels])
    if isinstance(kernel, Sum):
        return tf.reduce_logsumexp(tf.stack([_log_height(part) for part in kernel.kernels]))
    if type(kernel) in _KNOWN:
        return tf.math.log(kernel.variance)
    return tf.math.log(_value(kernel, tf.zeros([], gpflow.config.default_float())))


# ν − ½, and a length in units of the kernel's lengthscale.
_MATERN_ORDERS: dict[type, tuple[int, float]] = {
    gpflow.kernels.Exponential: (0, 2.0),
    gpflow.kernels.Matern12: (0, 1.0),
    gpflow.kernels.Matern32: (1, 1.0),
    gpflow.kernels.Matern52: (2, 1.0),
}
# For these log φ is accurate near 0, and also where k itself underflows.
_KNOWN = (
    gpflow.kernels.SquaredExponential,
    gpflow.kernels.RationalQuadratic,
    *_MATERN_ORDERS,
)


def _law(kernel: Kernel, c: tf.Tensor) -> tfp.distributions.Distribution:
    """π_φ(ω|c), in closed form if it is known."""
    if isinstance(kernel, Sum | Product):
        laws = [_law(part, c) for part in kernel.kernels]
        ones = [tf.ones([], c.dtype)] * len(laws)
        if isinstance(kernel, Product):
            log_phis = [partial(_log_phi, part) for part in kernel.kernels]
            return law_of_sum(c, log_phis, laws, ones)
        r = tf.square(c)
        log_heights = [
            tf.cast(_log_height(part), c.dtype) + _log_phi(part, r) for part in kernel.kernels
        ]
        log_p = tf.unstack(tf.nn.log_softmax(tf.stack(log_heights), axis=0))
        return TiltedMixture(partial(_log_phi, kernel), c, log_p, laws, ones)
    scale = tf.cast(tf.reshape(kernel.lengthscales, []), c.dtype)
    kind = type(kernel)
    if kind is gpflow.kernels.SquaredExponential:
        return Deterministic(0.5 / tf.square(scale) + tf.zeros_like(c))
    if kind is gpflow.kernels.RationalQuadratic:
        alpha = tf.cast(kernel.alpha, c.dtype)
        return GammaLaw(alpha, 2.0 * alpha * tf.square(scale) + tf.square(c))
    if kind in _MATERN_ORDERS:
        order, stretch = _MATERN_ORDERS[kind]
        nu = tf.constant(order + 0.5, c.dtype)
        b = nu / tf.square(stretch * scale)
        return GeneralizedInverseGaussian(-nu, 2.0 * tf.square(c), b)
    nearest = 4.0 * _NEAREST * tf.square(tf.cast(scale, tf.float64))

    def log_phi_from_there(r: tf.Tensor) -> tf.Tensor:
        """log φ of a slightly tilted distribution: the chord near 0 would have no variance."""
        start = tf.cast(nearest, r.dtype)
        return _log_phi(kernel, r + start) - _log_phi(kernel, start)

    return TiltedDistribution(log_phi_from_there, c)


_GRID = np.concatenate([np.logspace(-20, 30, 1001), np.logspace(31, 290, 260)])
_SMALLEST = 1e-100
_NEAREST = 1e-8


def _log_phi_of_own(kernel: Kernel, x: tf.Tensor) -> tf.Tensor:
    """
    log φ of a user's kernel, by the kernel's own function where it is accurate.

    Where φ < 1e-100, which might underflow, log φ is continued by its tangent. Below x = 1e-8,
    where 1 − φ and its slope are small differences, log φ is the chord from 0. It remains convex.
    """
    grid = tf.constant(_GRID)
    height = _value(kernel, tf.zeros([], grid.dtype))
    high = tf.stop_gradient(_value(kernel, grid)) > _SMALLEST * height
    last = tf.reduce_sum(tf.math.cumprod(tf.cast(high, tf.int32))) - 1
    far, near = tf.gather(grid, tf.maximum(last, 0)), tf.constant(_NEAREST, grid.dtype)
    with tf.GradientTape() as tape:
        tape.watch(far)
        log_far = tf.math.log(_value(kernel, far) / height)
    slope = tape.gradient(log_far, far)
    chord = tf.math.log(_value(kernel, near) / height) / near
    far, log_far, slope, chord, height = (
        tf.cast(v, x.dtype) for v in (far, log_far, slope, chord, height)
    )
    real = tf.math.real(x)
    beyond, inside = real > tf.math.real(far), tf.abs(x) >= _NEAREST
    value = _value(kernel, tf.where(inside & ~beyond, x, tf.ones_like(x) * _NEAREST)) / height
    log_phi = tf.where(inside, tf.math.log(value), chord * x)
    return tf.where(beyond, log_far + slope * (x - far), log_phi)


def _value(kernel: Kernel, x: tf.Tensor) -> tf.Tensor:
    """k at x = (distance/lengthscale)², real or complex, by ``K_r2`` or ``K_r``."""
    flat = tf.reshape(x, [-1])
    kind = type(kernel)
    if kind.K_r2 is not IsotropicStationary.K_r2:
        value = kind.K_r2(_OfOneDtype(kernel, x.dtype), flat)
    else:
        value = kind.K_r(_OfOneDtype(kernel, x.dtype), tf.sqrt(flat))
    return tf.reshape(value, tf.shape(x))


class _OfOneDtype:
    """A kernel whose Parameters are read as tensors of ``dtype``, which GPflow does not allow."""

    def __init__(self, kernel: Kernel, dtype: tf.DType) -> None:
        self._kernel, self._dtype = kernel, dtype

    def __getattr__(self, name: str) -> Any:
        found = inspect.getattr_static(type(self._kernel), name, None)
        if isinstance(found, types.FunctionType):
            return types.MethodType(found, self)
        if isinstance(found, property) and found.fget is not None:
            return found.fget(self)
        value = getattr(self._kernel, name)
        is_number = isinstance(value, Parameter) or tf.is_tensor(value)  # if frozen
        return tf.cast(value, self._dtype) if is_number else value


# ---- which kernels ----

_ACCEPTED = (
    "KernelNoise: kernel must be an IsotropicStationary of GPflow or your own, or a sum or product "
    "of them, of one lengthscale each"
)


def _check_kind(kernel: Any) -> None:
    if isinstance(kernel, Sum | Product):
        for part in kernel.kernels:
            _check_kind(part)
        return
    if not isinstance(kernel, IsotropicStationary):
        raise ValueError(f"{_ACCEPTED}. Found: {type(kernel).__name__}.")
    has_function = type(kernel).K_r2 is not IsotropicStationary.K_r2 or hasattr(kernel, "K_r")
    if not has_function:
        raise ValueError(f"{_ACCEPTED}. Found: {type(kernel).__name__}, without K_r or K_r2.")
    if int(np.prod(kernel.lengthscales.shape)) != 1:
        raise ValueError(f"{_ACCEPTED}. Found: lengthscales of shape {kernel.lengthscales.shape}.")


_DISTANCES = np.logspace(-4, 4, 161)  # in widths of the kernel


def _check_positive_definite(kernel: Kernel) -> None:
    """
    Check that φ(2r) ≥ φ(r)² and (−1)ᵏ φ⁽ᵏ⁾ ≥ 0 (Bernstein) for every user-defined kernel.

    :raises ValueError: if one of these conditions fails.
    """
    if isinstance(kernel, Sum | Product):
        for part in kernel.kernels:
            _check_positive_definite(part)
    if isinstance(kernel, Sum | Product) or type(kernel) in _KNOWN:
        return
    log_phi = partial(_log_phi, kernel)
    name = "KernelNoise: kernel must be positive definite in every dimension, a mixture of squared "
    name += f"exponentials. Found: {type(kernel).__name__}"
    values = _value(kernel, tf.constant(np.r_[0.0, _DISTANCES])).numpy()
    if not (np.all(np.isfinite(values)) and values[0] > 0.0):
        raise ValueError(f"{name}, which is not finite, or not positive at 0.")
    x = width_of(log_phi) * tf.constant(_DISTANCES)
    # Use the kernel's own function, as log φ is continued where that function underflows.
    scaled = tf.square(x / tf.cast(tf.reshape(kernel.lengthscales, []), x.dtype))
    near, far = (_value(kernel, a * scaled).numpy() / values[0] for a in (1.0, 2.0))
    wrong = ~(far >= near**2 * (1.0 - 1e-6)) & (near > 1e-45)
    if wrong.any():
        at = float(x[int(np.argmax(wrong))])
        raise ValueError(f"{name}, which falls too fast at a distance of {at:.3g}.")
    wrong_sign = first_wrong_sign(log_phi, tf.square(x))
    if wrong_sign is not None:
        raise ValueError(
            f"{name}, whose derivative of order {wrong_sign.order} in the squared distance has the "
            f"wrong sign at a distance of {np.sqrt(wrong_sign.r):.3g}."
        )


def _hold_fixed(kernel: Kernel, keep: bool) -> None:
    """Fix the variances that cancel: all, except for one in each further term of a sum."""
    if isinstance(kernel, Sum | Product):
        for k, part in enumerate(kernel.kernels):
            later = k > 0
            _hold_fixed(part, (keep or later) if isinstance(kernel, Sum) else keep and not later)
    elif not keep:
        set_trainable(kernel.variance, False)
