"""Integrals against N(mean, variance) of |x| and of exponentials that fall on either side of 0."""

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import TensorType

from ...special import ndtr
from .quadrature import safe_sqrt


def expected_absolute(mean: TensorType, variance: TensorType) -> tf.Tensor:
    """E|x| = d erf(d/√(2v)) + √(2v/π) e^{−d²/2v} under x ~ N(d, v), [...]."""
    sd = safe_sqrt(variance)
    z = mean / sd
    density = np.sqrt(2.0 / np.pi) * sd * tf.exp(-0.5 * tf.square(z))
    return mean * tf.math.erf(z / np.sqrt(2.0)) + density


def log_exponential_side(mean: TensorType, variance: TensorType, scale: TensorType) -> tf.Tensor:
    """
    log E e^{x/scale} [x < 0] under x ~ N(mean, variance), [...].

    It is ½ e^{−z²/2} erfcx((s/scale + z)/√2), s² = variance, z = mean/s. Written with erfcx, the
    exponents of the textbook form e^{s²/2scale² + mean/scale} Φ(−s/scale − z) cancel exactly.
    """
    sd = safe_sqrt(variance)
    z, ratio = mean / sd, sd / scale
    x = (ratio + z) / np.sqrt(2.0)
    right = x > 0
    # Where x ≤ 0, erfcx(x) e^{−z²/2} = e^{ratio²/2 + mean/scale} erfc(x), and z² has cancelled.
    far = tfp.math.logerfcx(tf.where(right, x, tf.zeros_like(x))) - 0.5 * tf.square(
        tf.where(right, z, tf.zeros_like(x))
    )
    near = (
        0.5 * tf.square(ratio)
        + mean / scale
        + tf.math.log(tf.math.erfc(tf.where(right, tf.zeros_like(x), x)))
    )
    return tf.where(right, far, near) - np.log(2.0)


def two_sided_cdf(d: TensorType, above: TensorType, below: TensorType) -> tf.Tensor:
    """P(x ≤ d) of the density e^{−x/above} for x > 0 and e^{x/below} for x < 0, normalised."""
    right = d > 0.0
    share = below / (above + below)
    tail = tf.exp(-tf.abs(d) / tf.where(right, above, below))
    return tf.where(right, 1.0 - (1.0 - share) * tail, share * tail)


def log_two_sided_survival(d: TensorType, above: TensorType, below: TensorType) -> tf.Tensor:
    """log P(x > d) of the density of :func:`two_sided_cdf`."""
    share = below / (above + below)
    left = tf.math.log1p(-share * tf.exp(-tf.nn.relu(-d) / below))
    return left - tf.nn.relu(d) / above


def expected_two_sided_cdf(
    mean: TensorType, variance: TensorType, above: TensorType, below: TensorType
) -> tf.Tensor:
    """E :func:`two_sided_cdf` under d ~ N(mean, variance): the sum over both sides of 0."""
    share = below / (above + below)
    right = tf.exp(log_exponential_side(-mean, variance, above))  # at most P(d > 0)
    left = tf.exp(log_exponential_side(mean, variance, below))
    return ndtr(mean / safe_sqrt(variance)) - (1.0 - share) * right + share * left
