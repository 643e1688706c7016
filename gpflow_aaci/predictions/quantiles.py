"""Quantiles from a distribution function, without its derivative."""

from collections.abc import Callable

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from ..runtime.graphs import compiled

Cdf = Callable[[tf.Tensor], tf.Tensor]
"""P(y' ≤ y) of y, elementwise."""

_STEPS = 200  # many more than Chandrupatla's method needs


def quantile_of_reals(cdf: Cdf, levels: tf.Tensor, start: tf.Tensor, unit: tf.Tensor) -> tf.Tensor:
    """
    The z [...] with cdf(z) = levels [...].

    The search is over u, where z = start + unit · sinh u. As a function of u the normal quantile of
    cdf is nearly straight, whether the tails are exponential or powers, and one fixed bracket holds
    every z that a float can hold.

    :param start: where the search is centred; any value will do.
    :param unit: positive; a rough length scale, which may be wrong by many orders of magnitude.
    """
    limits = np.finfo(levels.dtype.as_numpy_dtype)
    tiny, almost_one = (tf.cast(v, levels.dtype) for v in (limits.tiny, 1.0 - limits.epsneg))
    farthest = tf.fill(tf.shape(levels), tf.cast(0.35 * np.log(limits.max), levels.dtype))
    wanted = tf.math.ndtri(levels)

    def excess(u: tf.Tensor) -> tf.Tensor:
        return tf.math.ndtri(tf.clip_by_value(cdf(start + unit * tf.sinh(u)), tiny, almost_one))

    if not tf.executing_eagerly():
        excess = compiled(excess)  # it is in the graph once, in place of five times

    eps = float(limits.eps)
    root = tfp.math.find_root_chandrupatla(
        lambda u: excess(u) - wanted,
        -farthest,
        farthest,
        position_tolerance=512.0 * eps,
        value_tolerance=64.0 * eps,
        max_iterations=_STEPS,
    ).estimated_root
    # No u has the level if y is at the end of its support with positive probability.
    u = tf.where(excess(-farthest) >= wanted, -farthest, root)
    u = tf.where(excess(farthest) <= wanted, farthest, u)
    return start + unit * tf.sinh(u)


def quantile_of_counts(cdf: Cdf, levels: tf.Tensor, may_be_negative: bool = False) -> tf.Tensor:
    """The smallest whole number [...] with cdf ≥ levels [...], by bisection."""
    largest = tf.cast(2.0 / np.finfo(levels.dtype.as_numpy_dtype).eps, levels.dtype)

    def is_below(high: tf.Tensor, reached: tf.Tensor) -> tf.Tensor:
        return tf.reduce_any(~reached)

    def double(high: tf.Tensor, reached: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        high = tf.where(reached, high, 2.0 * high + 1.0)
        return high, reached | (cdf(high) >= levels) | (high > largest)

    def is_open(low: tf.Tensor, high: tf.Tensor) -> tf.Tensor:
        return tf.reduce_any(high - low > 1.0)

    def halve(low: tf.Tensor, high: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        middle = tf.math.floor((low + high) / 2.0)
        if not may_be_negative:  # where the search is over, between −1 and 0
            middle = tf.maximum(middle, 0.0)
        reached = cdf(middle) >= levels
        return tf.where(reached, low, middle), tf.where(reached, middle, high)

    zero = tf.zeros_like(levels)
    high, _ = tf.while_loop(is_below, double, (zero, cdf(zero) >= levels))
    # ``low`` does not reach the level: it is the ``high`` before the last doubling, or −1.
    low = tf.where(high > 0.0, (high - 1.0) / 2.0, -tf.ones_like(high))
    if may_be_negative:

        def is_above(low: tf.Tensor, high: tf.Tensor, reached: tf.Tensor) -> tf.Tensor:
            return tf.reduce_any(reached)

        def lower(low: tf.Tensor, high: tf.Tensor, reached: tf.Tensor) -> tuple[tf.Tensor, ...]:
            low, high = tf.where(reached, 2.0 * low, low), tf.where(reached, low, high)
            return low, high, reached & (cdf(low) >= levels) & (low > -largest)

        low, high, _ = tf.while_loop(is_above, lower, (low, high, cdf(low) >= levels))
    return tf.while_loop(is_open, halve, (low, high))[1]
