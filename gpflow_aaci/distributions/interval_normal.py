"""A normal variable, given that it lies in an interval."""

from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from ..special import log_ndtr, log_normal_between
from .moments import WithCumulants
from .parameters import NumberDistribution, flat

_NEWTON_STEPS = 4  # from the asymptotic inverse of log Φ to its last digits
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(64)  # on each side of the mode
_REACH = 80.0  # twice −log of a density that is negligible beside the mode's


class IntervalNormal(WithCumulants, NumberDistribution):
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

    def _mean(self) -> tf.Tensor:
        return self.cumulant(1)

    def _variance(self) -> tf.Tensor:
        return self.cumulant(2)

    def _cumulants(self, order: int) -> list[tf.Tensor]:
        """
        By Gauss-Legendre quadrature on either side of the mode, as far as the density counts.

        In units of ``scale``, at a distance t from a mode m away from ``loc`` it is
        exp(−|m| t − t²/2) of the mode's. Distances are from the mode, so that no digits are lost
        however far the interval is from ``loc``.
        """
        at_mode = tf.minimum(tf.maximum(self.loc, self.low), self.high)
        mode = (at_mode - self.loc) / self.scale
        reach = _REACH / (tf.abs(mode) + tf.sqrt(tf.square(mode) + _REACH))

        def side(distance: tf.Tensor) -> tf.Tensor:
            is_finite = tf.math.is_finite(distance)
            finite = tf.where(is_finite, distance, tf.zeros_like(distance)) / self.scale
            return tf.where(is_finite, tf.minimum(finite, reach), reach)

        sides = [-side(at_mode - self.low), side(self.high - at_mode)]
        half = tf.cast(0.5 * (_NODES + 1.0), mode.dtype)
        t = tf.concat([side[..., None] * half for side in sides], -1)
        width = tf.concat([tf.abs(side)[..., None] + tf.zeros_like(half) for side in sides], -1)
        weight = width * tf.cast(np.tile(_WEIGHTS, 2), mode.dtype)
        weight *= tf.exp(-t * (mode[..., None] + 0.5 * t))
        total = tf.reduce_sum(weight, -1, keepdims=True)
        # Of equal ends all weights are 0, and so are all t.
        weight /= tf.where(total > 0.0, total, tf.ones_like(total))
        mean = tf.reduce_sum(weight * t, -1, keepdims=True)
        central = [tf.reduce_sum(weight * (t - mean) ** n, -1) for n in (2, 3, 4)]
        found = [mean[..., 0], *central[:2], central[2] - 3.0 * tf.square(central[0])]
        scaled = [self.scale**n * value for n, value in enumerate(found, 1)]
        return [at_mode + scaled[0], *scaled[1:]][:order]

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
