"""Expectations under N(Fmu, Fvar) of functions that may be kinked or narrow against it."""

from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf
from gpflow.base import TensorType

# In units of sd(f). About the mean: panels on which N(0, 1) is smooth. About a centre of the
# integrand: panels that halve towards it, so that a kink there or a peak of any width down to
# 1e-3 sd is resolved, whatever its shape.
_ABOUT_MEAN = np.array([0, 1, 2, 3, 4, 5, 6, 7, 8, 9.5, 12, 15, 19, 25, 38])
_ABOUT_MEAN = np.concatenate([-_ABOUT_MEAN[:0:-1], _ABOUT_MEAN])
_ABOUT_CENTRE = 2.0 ** np.arange(-13, 6)
_ABOUT_CENTRE = np.concatenate([-_ABOUT_CENTRE[::-1], [0.0], _ABOUT_CENTRE])
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(8)


def log_expectation(
    log_integrand: Callable[[tf.Tensor], tf.Tensor],
    Fmu: TensorType,
    Fvar: TensorType,
    centres: Sequence[TensorType],
) -> tf.Tensor:
    """
    log ∫ exp(log_integrand(f)) N(f | Fmu, Fvar) df by composite Gauss-Legendre quadrature.

    :param log_integrand: maps f [K, ...] to [K, ...].
    :param Fmu: [...], mean of f.
    :param Fvar: [...], variance of f; rounding below zero is taken as zero.
    :param centres: where the integrand may be kinked or peaked, each broadcastable to [...].
    :return: [...].
    """
    sd = safe_sqrt(Fvar)

    def column(values: np.ndarray) -> tf.Tensor:  # [K, 1...]
        return tf.reshape(tf.cast(values, sd.dtype), [-1] + [1] * len(sd.shape))

    edges = [column(_ABOUT_MEAN) + tf.zeros_like(sd)]
    for centre in centres:
        edges.append((centre - Fmu) / sd + column(_ABOUT_CENTRE))
    z_edges = _sort_first_axis(tf.concat(edges, axis=0))
    mid, half = (z_edges[1:] + z_edges[:-1]) / 2.0, (z_edges[1:] - z_edges[:-1]) / 2.0
    z = tf.concat([mid + half * x for x in _NODES], axis=0)
    weight = tf.concat([half * w for w in _WEIGHTS], axis=0)
    exponent = log_integrand(Fmu + sd * z) - tf.square(z) / 2.0
    largest = tf.stop_gradient(tf.reduce_max(exponent, axis=0))
    total = tf.reduce_sum(weight * tf.exp(exponent - largest), axis=0)
    return largest + tf.math.log(total) - tf.cast(np.log(2.0 * np.pi) / 2.0, sd.dtype)


def lifted(Fvar: TensorType, floor: float) -> tf.Tensor:
    """Fvar, at least ``floor``, with the gradient that is right there instead of 0."""
    shortfall = tf.nn.relu(tf.cast(floor, Fvar.dtype) - Fvar)
    return Fvar + tf.stop_gradient(shortfall)


def safe_sqrt(Fvar: TensorType) -> tf.Tensor:
    """√Fvar where rounding may have left it at or below 0, far from over- and underflow."""
    return tf.sqrt(lifted(Fvar, np.sqrt(np.finfo(Fvar.dtype.as_numpy_dtype).tiny)))


def _sort_first_axis(values: tf.Tensor) -> tf.Tensor:
    last = tf.concat([tf.range(1, tf.rank(values)), [0]], axis=0)
    first = tf.concat([[tf.rank(values) - 1], tf.range(tf.rank(values) - 1)], axis=0)
    return tf.transpose(tf.sort(tf.transpose(values, last), axis=-1), first)
