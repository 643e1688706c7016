"""
The density of PG(b, c): A(x) (1 + e^{−c})^b times an inverse Gaussian density (``sample_pg``).

The saddlepoint method gives bounds of log A, and inversion gives it to 1e-8.
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from ..inverse_laplace import invert
from ..special import log_sech_sqrt
from .law import TiltedLaw, in_blocks


def log_phi(r: tf.Tensor, b: tf.Tensor, scale: tf.Tensor) -> tf.Tensor:
    """log E e^{−rω} for ω ~ scale·PG(b, 0): −b log cosh √(scale r/2)."""
    b, scale = tf.cast(b, r.dtype), tf.cast(scale, r.dtype)
    return b * log_sech_sqrt(scale * r / 2.0)


class Saddle(NamedTuple):
    """
    The terms of the density of PG(b, c) at x = bT/4 that do not depend on b and c; each [n].

    The tilt 2v at which x is the mean has tanh(v)/v = T. v is imaginary for T > 1.
    """

    y: tf.Tensor  # v²
    sech2: tf.Tensor  # sech² v
    log_cosh: tf.Tensor  # log cosh v
    variance: tf.Tensor  # the variance of PG(1, 2v)
    a: tf.Tensor  # v coth 2v − log(2 cosh v), a concave function of T
    a1: tf.Tensor  # −½ log(16 variance/T³), between 0 and ½ log(1 + T)


def _moments(y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """T = tanh(v)/v, sech² v and 16 Var PG(1, 2v) = (T − sech² v)/y at y = v² > −π²/4."""
    v, real = tf.maximum(tf.sqrt(tf.abs(y)), 1e-30), y > 0.0
    T = tf.where(real, tf.tanh(v), tf.tan(tf.minimum(v, np.pi / 2.0))) / v
    e = tf.exp(-2.0 * v)
    sech2 = tf.where(real, 4.0 * e / tf.square(1.0 + e), 1.0 - y * tf.square(T))
    small = tf.abs(y) < 1e-3
    series = 2.0 / 3.0 - y * (8.0 / 15.0 - y * (34.0 / 105.0 - y * (496.0 / 2835.0)))
    return T, sech2, tf.where(small, series, (T - sech2) / tf.where(small, tf.ones_like(y), y))


def saddle_at(T: tf.Tensor) -> Saddle:
    """
    The saddle by two Newton steps in y = v² for 1/T = v coth v, from an error of 5e-4 to 1e-11.
    """
    inverse = 1.0 / T
    near = -(np.pi**2) / 4.0 + inverse * (2.0 + inverse * (0.4 + inverse / 15.0))
    far = tf.square(inverse * tf.tanh(inverse * tf.tanh(inverse)))
    y = tf.where(inverse < 2.2, near, far)
    for _ in range(2):
        ratio, _, variance = _moments(y)
        y += 2.0 * ratio * (inverse * ratio - 1.0) / variance
    _, sech2, variance = _moments(y)

    v, real = tf.sqrt(tf.abs(y)), y > 0.0
    log1p = tf.math.log1p(tf.exp(-2.0 * v))
    log_cosh = tf.where(real, v + log1p - np.log(2.0), -0.5 * tf.math.log(sech2))
    # v coth 2v − v and v − log(2 cosh v), so that large v cancel.
    a_real = 2.0 * v / tf.math.expm1(4.0 * tf.maximum(v, 1e-30)) - log1p
    a = tf.where(real, a_real, 0.5 * (inverse + y * T) - np.log(2.0) - log_cosh)
    a1 = -0.5 * tf.math.log(variance * inverse**3)
    return Saddle(y, sech2, log_cosh, variance / 16.0, a, a1)


def bounds_of_log_A(b: tf.Tensor, saddle: Saddle) -> tuple[tf.Tensor, tf.Tensor]:
    """
    Bounds below and above log A(x) at x = bT/4.

    By the saddlepoint method (Daniels 1954), log A = b a + a₁ + log R. At T = 0, where ω is
    inverse Gaussian, R is 1. As T → ∞ ω tends to a gamma variable, and R falls to the error of
    Stirling's formula for Γ(b), which is above e^{−1/12b}. Also, b a ≤ log A ≤ 0, which is tight
    for small b. (Checked against mpmath.)
    """
    approximation = b * saddle.a + saddle.a1
    below = tf.maximum(approximation - 1.0 / (12.0 * b), b * saddle.a)
    return below, tf.minimum(approximation, 0.0)


def log_A_by_inversion(b: tf.Tensor, T: tf.Tensor, *saddle: tf.Tensor) -> tf.Tensor:
    """log A(x) at x = bT/4, to 1e-8, by inversion at the tilt whose mean is x."""
    at = Saddle(*saddle)
    x, stddev = b * T / 4.0, tf.sqrt(b * at.variance)
    law = TiltedLaw(log_phi, 2.0 * at.y, (b, tf.ones_like(b)), -b * at.log_cosh, x, stddev)
    (density,) = in_blocks(
        lambda law, x: [invert(law.log_transform, x, law.mean, law.stddev).density], law, x, 1
    )
    return b * at.a + tf.math.log(density * tf.sqrt(8.0 * np.pi * x**3) / b)
