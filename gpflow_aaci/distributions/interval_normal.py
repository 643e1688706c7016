"""A normal variable, given that it lies in an interval."""

from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from ..special import log_ndtr, log_normal_between
from .parameters import NumberDistribution, flat

_NEWTON_STEPS = 4  # from the asymptotic inverse of log Φ to its last digits


class IntervalNormal(NumberDistribution):
    """
    z ~ N(loc, scale²) given low < z < high, or the point z = low if the ends are equal.

    Both ends may be infinite.

    ``tfd.TruncatedNormal`` loses all digits if the interval is many standard deviations from loc.
    Here the logarithm of the distribution function is inverted, in the tail that contains the
    interval, so that draws keep their digits.
    """

    def __init__(
        self,
        loc: Any,
        scale: Any,
        low: Any,
        high: Any,
        validate_args: bool = False,
        allow_nan_stats: bool = True,
        name: str = "IntervalNormal",
    ) -> None:
        """
        :param loc: the mean of the normal distribution, [batch...] or broadcast to it.
        :param scale: its standard deviation, positive.
        :param low: the lower end of the interval.
        :param high: the upper end, at least ``low``.
        """
        super().__init__(locals(), loc=loc, scale=scale, low=low, high=high)

    @classmethod
    def _parameter_properties(cls, dtype: tf.DType, num_classes: int | None = None) -> dict:
        names = ("loc", "scale", "low", "high")
        return {name: tfp.util.ParameterProperties() for name in names}

    def _log_prob(self, value: tf.Tensor) -> tf.Tensor:
        """The log density; where low = high, the log probability, 0 at this point."""
        is_point = tf.equal(self.low, self.high)
        high = tf.where(is_point, self.low + self.scale, self.high)
        log_normal = -0.5 * tf.square((value - self.loc) / self.scale) - tf.math.log(self.scale)
        log_p = log_normal - 0.5 * np.log(2.0 * np.pi)
        log_p -= log_normal_between(self.low, high, self.loc, self.scale)
        log_p = tf.where(is_point, tf.zeros_like(log_p), log_p)
        inside = (value >= self.low) & (value <= self.high)
        return tf.where(inside, log_p, tf.constant(-np.inf, log_p.dtype))

    def _sample_n(self, n: tf.Tensor, seed: Any = None) -> tf.Tensor:
        seed = tfp.random.sanitize_seed(seed, salt="IntervalNormal")
        shape = tf.concat([[n], self.batch_shape_tensor()], axis=0)
        loc, scale, lowest, highest = flat([self.loc, self.scale, self.low, self.high], shape)
        low, high = (lowest - loc) / scale, (highest - loc) / scale
        uniform = tf.random.stateless_uniform(tf.shape(low), seed, dtype=low.dtype)
        # An interval above 0 is mirrored, as the lower tail is the one with all digits.
        is_above = low > 0.0
        low, high = tf.where(is_above, -high, low), tf.where(is_above, -low, high)
        log_high = log_ndtr(high)
        # Φ(z) = Φ(low) + u (Φ(high) − Φ(low)), as a multiple of Φ(high).
        ratio = tf.math.expm1(log_ndtr(low) - log_high)
        z = _inverse_log_ndtr(log_high + tf.math.log1p((1.0 - uniform) * ratio))
        z = loc + scale * tf.where(is_above, -z, z)
        return tf.cast(tf.reshape(tf.clip_by_value(z, lowest, highest), shape), self.dtype)


def _inverse_log_ndtr(log_p: tf.Tensor) -> tf.Tensor:
    """The z with log Φ(z) = log_p, float64; also where Φ(z) underflows."""
    is_far = log_p < -100.0
    near = tf.math.ndtri(tf.exp(tf.where(is_far, -1.0 * tf.ones_like(log_p), log_p)))
    square = -2.0 * tf.where(is_far, log_p, -100.0 * tf.ones_like(log_p))
    z = -tf.sqrt(square - tf.math.log(2.0 * np.pi * square))
    for _ in range(_NEWTON_STEPS):
        error = log_ndtr(z) - log_p
        slope = tf.exp(-0.5 * tf.square(z) - 0.5 * np.log(2.0 * np.pi) - log_ndtr(z))
        z = tf.where(is_far, z - error / slope, z)
    return tf.where(is_far, z, near)
