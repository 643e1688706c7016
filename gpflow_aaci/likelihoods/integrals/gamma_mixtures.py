"""Integrals over λ, given which Student-t noise is Gaussian with variance σ²/λ."""

import tensorflow as tf
from gpflow.base import TensorType

from ...special import ndtr
from .nodes import before_axes_of


def student_t_predictive_cdf(
    residual: tf.Tensor, variance: tf.Tensor, scale: TensorType, df: tf.Tensor
) -> tf.Tensor:
    """E Φ(residual/√(variance + σ²/λ)), λ ~ Gamma(ν/2, rate ν/2), by the sum over u = log λ."""
    # The distribution of u is as wide as 1/√(ν/2), and falls as e^{νu/2} for u < 0. The error of
    # the sum falls exponentially as its step shrinks.
    width = 9.5 * tf.sqrt(2.0 / df)
    step = tf.minimum(0.05 * width, 0.25)
    u = tf.range(-width - 80.0 / df, tf.math.log1p(width + 90.0 / df), step)
    u = before_axes_of(residual + variance, u)
    weight = tf.exp(-df / 2.0 * (tf.math.expm1(u) - u))
    of_y = variance + tf.square(scale) * tf.exp(-u)
    total = tf.reduce_sum(weight * ndtr(residual / tf.sqrt(of_y)), 0)
    return total / tf.reduce_sum(weight)


_NODES = 96  # nodes of u = log t
_LOWEST, _HIGHEST = -12.0, 36.0  # the range of u; below, the integrand is of order e^{2u}
_VANISHED = 3.6  # log t above which e^{−t} counts as 0


def jensen_gap(d: TensorType, v: TensorType) -> tf.Tensor:
    """
    log E(1 + S) − E log(1 + S) ≥ 0 of S = Σ_p x_p², x_p ~ N(d_p, v_p): [...] of [..., P].

    With A = E(1 + S) it is ∫ (E e^{−t(1+S)/A} − e^{−t}) dt/t (Frullani), and at τ = t/A
    E e^{−τS} = Π_p e^{−τd_p²/(1+2τv_p)} / √(1 + 2τv_p). The trapezoidal rule is used in u = log t,
    where the integrand is analytic in a strip of half-width π/2; the error is 1e-8 of E log(1 + S).
    """
    squared = tf.square(d)
    A = 1.0 + tf.reduce_sum(squared + v, -1)
    end = tf.stop_gradient(tf.minimum(tf.math.log(A) + _VANISHED, _HIGHEST))
    step = (end - _LOWEST) / (_NODES - 1.0)
    t = tf.exp(_LOWEST + step * before_axes_of(step, tf.range(_NODES)))  # [K, ...]
    tau = (t / A)[..., None]
    spread = 1.0 + 2.0 * tau * v
    exponent = tau[..., 0] + tf.reduce_sum(0.5 * tf.math.log(spread) + tau * squared / spread, -1)
    return step * tf.reduce_sum(tf.exp(-exponent) - tf.exp(-t), 0)
