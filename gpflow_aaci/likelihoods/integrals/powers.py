"""E|x|^p for Gaussian x."""

import math

import numpy as np
import tensorflow as tf
from gpflow.base import TensorType

from .quadrature import expectation, safe_sqrt

_TERMS = 48  # terms of the series below; the rest is 1e-17 of it
_SERIES_BELOW = 4.0  # standard deviations


def expected_power(mean: TensorType, variance: TensorType, power: TensorType) -> tf.Tensor:
    """
    E|x|^p under x ~ N(mean, variance), [...], p a scalar. The error is 1e-9.

    With z = mean/sd it is sd^p 2^{p/2} Γ((p+1)/2)/√π · ₁F₁(−p/2; ½; −z²/2) (Winkelbauer 2012). For
    small z, ₁F₁ is computed as e^{−z²/2} ₁F₁((p+1)/2; ½; z²/2), a series of positive terms. For
    large z, where the cusp at 0 has no weight, the expectation is taken by quadrature.
    """
    sd = safe_sqrt(variance)
    mean = mean + tf.zeros_like(sd)
    near = tf.abs(mean) < _SERIES_BELOW * sd

    x = 0.5 * tf.square(tf.where(near, mean / sd, tf.zeros_like(mean)))
    k = np.arange(_TERMS)
    # Γ((p+1)/2 + k) / (Γ(½ + k) k!)
    log_gamma = tf.math.lgamma((power + 1.0) / 2.0 + tf.cast(k, power.dtype))
    below = [math.lgamma(0.5 + j) + math.lgamma(1.0 + j) for j in k]
    coefficients = tf.exp(log_gamma - tf.cast(np.array(below), power.dtype))
    series = tf.math.polyval(tf.unstack(coefficients)[::-1], x)
    # 2^{p/2} sd^p: in logarithms neither factor underflows alone.
    scale = tf.exp(power * (0.5 * np.log(2.0) + tf.math.log(sd)))
    inner = scale * tf.exp(-x) * series

    outer = expectation(
        lambda x: tf.pow(tf.abs(x), power), tf.where(near, _SERIES_BELOW * sd, mean), variance
    )
    return tf.where(near, inner, outer)
