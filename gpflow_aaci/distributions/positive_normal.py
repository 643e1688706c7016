"""A normal variable of unit variance, given that it is positive."""

from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from ..special import (
    log_half_normal_transform,
    log_ndtr,
    positive_normal_mean,
    positive_normal_variance,
)
from .law import derivatives
from .moments import WithCumulants
from .parameters import PositiveDistribution, flat
from .rejection import rejection_sample, uniforms


class PositiveNormal(WithCumulants, PositiveDistribution):
    r"""
    ω ~ N(loc, 1) given ω > 0, for every loc: e^{loc ω} times the half-normal density, normalised.

    For loc far below 0, ``tfd.TruncatedNormal`` adds loc to what is nearly −loc. At loc = −1000 its
    mean is wrong in the fifth digit (in float32 it is −1.5, and draws are 0), and its variance is
    NaN. Here moments, density, tails and draws keep their digits. Draws are exact, by rejection
    (Robert 1995).
    """

    def __init__(
        self,
        loc: Any,
        validate_args: bool = False,
        allow_nan_stats: bool = True,
        name: str = "PositiveNormal",
    ) -> None:
        """
        :param loc: [batch...], finite: the mean before the cut.
        :raises ValueError: if loc is not finite.
        """
        super().__init__(locals(), loc=loc)

    def _accepted(self) -> dict[str, tuple[tf.Tensor, str]]:
        return {"loc": (tf.math.is_finite(self.loc), "finite")}

    @classmethod
    def _parameter_properties(cls, dtype: tf.DType, num_classes: int | None = None) -> dict:
        return {"loc": tfp.util.ParameterProperties()}

    def _cumulants(self, order: int) -> list[tf.Tensor]:
        """
        The derivatives of the mean m in loc: v, κ₃ = h (m² − v), κ₄ = h (3 m v − m³ − κ₃).

        Here h = m − loc = N(loc)/Φ(loc). Below 0 all of these cancel, and tapes keep the digits.
        """
        loc, mean, variance = self.loc, self._mean(), self._variance()
        h = mean - loc
        third = h * (tf.square(mean) - variance)
        fourth = h * (3.0 * mean * variance - mean**3 - third)
        below = derivatives(positive_normal_mean, tf.minimum(loc, -1.0), order - 1)
        above = [mean, variance, third, fourth]
        return [tf.where(loc < -1.0, *pair) for pair in zip(below, above[:order], strict=True)]

    def log_transform(self) -> tf.Tensor:
        """log E e^{loc ω} of a half-normal ω, [batch...]."""
        return tf.identity(log_half_normal_transform(self.loc))

    def _mean(self) -> tf.Tensor:
        return tf.identity(positive_normal_mean(self.loc))

    def _variance(self) -> tf.Tensor:
        return positive_normal_variance(self.loc)

    def _log_prob(self, value: tf.Tensor) -> tf.Tensor:
        """Where loc < 0, the loc² of −½(ω − loc)² and of log Φ(loc) are cancelled by hand."""
        loc = self.loc
        left = loc * value - 0.5 * tf.square(value) - log_half_normal_transform(loc)
        right = -0.5 * tf.square(value - loc) - log_ndtr(loc)
        log_prob = tf.where(
            loc < 0.0, left + 0.5 * np.log(2.0 / np.pi), right - 0.5 * np.log(2.0 * np.pi)
        )
        return tf.where(value > 0.0, log_prob, tf.constant(-np.inf, log_prob.dtype))

    def _log_survival_function(self, value: tf.Tensor) -> tf.Tensor:
        """log Φ(loc − ω)/Φ(loc); where loc < 0, the loc² of both are cancelled by hand."""
        loc, value = self.loc, tf.nn.relu(value)
        transforms = log_half_normal_transform(loc - value) - log_half_normal_transform(loc)
        left = loc * value - 0.5 * tf.square(value) + transforms
        return tf.where(loc < 0.0, left, log_ndtr(loc - value) - log_ndtr(loc))

    def _tails(self, value: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        log_survival = self._log_survival_function(value)
        return -tf.math.expm1(log_survival), tf.exp(log_survival)

    def _sample_n(self, n: tf.Tensor, seed: Any = None) -> tf.Tensor:
        seed = tfp.random.sanitize_seed(seed, salt="PositiveNormal")
        shape = tf.concat([[n], self.batch_shape_tensor()], axis=0)
        draws = rejection_sample(_propose, flat([self.loc], shape), seed)
        return tf.cast(tf.reshape(draws, shape), self.dtype)


def _propose(seed: tf.Tensor, loc: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """
    For loc ≥ 0, a draw of N(loc, 1), accepted if it is positive; at least half of them are.

    For loc < 0 an exponential variable x of rate λ = (−loc + √(loc² + 4))/2, accepted with
    probability e^{−(x − 1/λ)²/2}; at least 0.76 are (Robert 1995, Prop. 2.3).
    """
    u = uniforms(2, loc, seed)
    normal = loc + tf.math.ndtri(u[0])
    a = tf.nn.relu(-loc)
    rate = (a + tf.sqrt(tf.square(a) + 4.0)) / 2.0
    exponential = -tf.math.log(u[0]) / rate
    accepted = u[1] <= tf.exp(-0.5 * tf.square(exponential - 1.0 / rate))
    right = loc >= 0.0
    return tf.where(right, normal, exponential), tf.where(right, normal > 0.0, accepted)
