"""P(y' ≤ y|f) and P(y' > y|f) of a likelihood that defines only log p(y|f)."""

from collections.abc import Callable

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray

from .nodes import before_axes_of, half_line

LogDensity = Callable[[tf.Tensor], tf.Tensor]
"""log p(y|f) as a function of y."""

# No further than 5e44 widths: where the width is 1e80, the square of the distance is still finite.
_NODES, _WEIGHTS = half_line(step=1.0 / 8.0, lowest=-4.0, highest=5.0)
_GROUPS = 6  # in which the 72 nodes are summed, as y may be given for every draw of f


def cdf_from_density(
    log_density: LogDensity, outcomes: AnyNDArray | None, Y: tf.Tensor, is_density: bool
) -> tf.Tensor:
    """
    P(y' ≤ y), [...]: a sum over outcomes, or an integral.

    :param log_density: maps y [K, ...] to [K, ...] for any K, and [...] to [...].
    :param outcomes: all values of y [K, 1], or None if y is real.
    :param Y: [...].
    :param is_density: whether p(y|f) is normalised; not needed if there are ``outcomes``.
    :raises NotImplementedError: for a real y whose density is not normalised.
    """
    if outcomes is not None:
        values = before_axes_of(Y, outcomes[:, 0])
        p = tf.exp(log_density(values + tf.zeros_like(Y)))
        total = tf.reduce_sum(tf.where(values <= Y, p, tf.zeros_like(p)), 0)
        return total if is_density else total / tf.reduce_sum(p, 0)
    if not is_density:
        raise NotImplementedError(
            "A likelihood of a real y that is no density must define _cdf(X, F, Y)."
        )
    return _by_quadrature(log_density, Y)


def log_survival_from_density(
    log_density: LogDensity,
    cdf: Callable[[tf.Tensor], tf.Tensor],
    outcomes: AnyNDArray | None,
    Y: tf.Tensor,
    is_density: bool,
) -> tf.Tensor:
    """
    log P(y' > y), [...]: a sum over outcomes, or the integral of the right tail.

    The error of the probability is relative, as only a small P(y' ≤ y) is subtracted from 1.

    :param cdf: P(y' ≤ y) as a function of a real y.
    """
    if outcomes is not None:
        values = before_axes_of(Y, outcomes[:, 0])
        log_p = log_density(values + tf.zeros_like(Y))
        never = tf.constant(-np.inf, log_p.dtype)
        above = tf.reduce_logsumexp(tf.where(values > Y, log_p, never), 0)
        return above if is_density else above - tf.reduce_logsumexp(log_p, 0)
    rises, log_tail = _log_outer_tail(log_density, Y)
    below = cdf(Y)
    return tf.where(rises | (below < 0.5), tf.math.log1p(-below), log_tail)


def _by_quadrature(log_density: LogDensity, Y: tf.Tensor) -> tf.Tensor:
    rises, log_tail = _log_outer_tail(log_density, Y)
    tail = tf.exp(log_tail)
    return tf.where(rises, tail, 1.0 - tail)


def _log_outer_tail(log_density: LogDensity, Y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """
    For a density with one mode: the log of its integral from y outwards, away from the mode.

    There the density is smooth. The doubly exponential rule is accurate for power-law tails and for
    exponential tails. The error is 1e-9, relative to the probability if it is small.

    :return: whether the density rises at y, so that the integral is over smaller y; the integral.
    """
    with tf.GradientTape() as tape:
        tape.watch(Y)
        log_p = log_density(Y)
    slope = tape.gradient(log_p, Y)
    slope = tf.where(tf.math.is_finite(slope), slope, tf.zeros_like(slope))
    rises = slope > 0.0
    outwards = tf.where(rises, -tf.ones_like(Y), tf.ones_like(Y))
    # The length on which the tail falls, or at the mode the width of the density.
    tiny = tf.constant(np.finfo(Y.dtype.as_numpy_dtype).tiny, Y.dtype)
    width = 1.0 / (tf.abs(slope) + tf.exp(log_p) + tiny)
    total, highest = tf.zeros_like(Y), tf.maximum(log_p, log_p.dtype.min)  # −∞ beyond its range
    for some in zip(np.split(_NODES, _GROUPS), np.split(_WEIGHTS, _GROUPS), strict=True):
        nodes, weights = (before_axes_of(Y, values) for values in some)
        share = tf.exp(log_density(Y + outwards * width * nodes) - highest)  # at most 1
        total += tf.reduce_sum(weights * share, 0)
    return rises, highest + tf.math.log(width * total)
