"""Noise with exponential tails: Laplace, and asymmetric Laplace for quantile regression."""

import abc
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import TensorType

from ...distributions import InverseGaussian
from ..declared import positive, within
from ..integrals.two_sided import (
    expected_absolute,
    expected_two_sided_cdf,
    log_exponential_side,
    log_two_sided_survival,
    two_sided_cdf,
)
from .residual import ResidualLikelihood


class _TwoSidedExponential(ResidualLikelihood, abc.ABC):
    """
    e^{−(y−f)/a}/(a + b) for y > f and e^{(y−f)/b}/(a + b) for y < f.

    The exponent is −ρ|y − f| − κ(y − f), ρ and κ half the sum and half the difference of 1/a and
    1/b: the linear term goes into C(y) = e^{−κy}/(a + b) and g = κ, and φ(r) = e^{−ρ√r}.
    """

    @abc.abstractmethod
    def _sides(self) -> tuple[tf.Tensor, tf.Tensor]:
        """a and b, both []: the lengths on which p(y|f) falls by 1/e above and below f."""

    def _rate_and_skew(self) -> tuple[tf.Tensor, tf.Tensor]:
        """ρ and κ."""
        above, below = self._sides()
        return 0.5 * (1.0 / above + 1.0 / below), 0.5 * (1.0 / above - 1.0 / below)

    def log_C(self, Y: TensorType) -> tf.Tensor:
        return self.expected_offset(tf.zeros_like(Y), Y)

    def g(self, Y: TensorType) -> tf.Tensor:
        return self._rate_and_skew()[1] + tf.zeros_like(Y)

    def log_phi(self, r: TensorType, Y: TensorType | None = None) -> tf.Tensor:
        return -tf.cast(self._rate_and_skew()[0], r.dtype) * tf.sqrt(r)

    def expected_offset(self, Fmu: TensorType, Y: TensorType) -> tf.Tensor:
        """log C + g Fmu, written as a function of the difference y − Fmu."""
        return -self._rate_and_skew()[1] * (Y - Fmu) - tf.math.log(sum(self._sides()))

    def _tilted(self, c: tf.Tensor, Y: TensorType | None = None) -> tfp.distributions.Distribution:
        """InverseGaussian(mean ρ/2c, shape ½ρ²); Lévy, with infinite mean, at c = 0."""
        rate = tf.cast(self._rate_and_skew()[0], c.dtype)
        return InverseGaussian(0.5 * rate / c, 0.5 * tf.square(rate))

    def noise_variance(self) -> tf.Tensor:
        """a² + b²."""
        above, below = self._sides()
        return tf.square(above) + tf.square(below)

    def _conditional_mean(self, X: TensorType, F: TensorType) -> tf.Tensor:
        """f + a − b."""
        above, below = self._sides()
        return F + (above - below)

    def draw_y(self, F: TensorType, seed: Any) -> tf.Tensor:
        """f + a E − b E', E and E' standard exponential."""
        u = tf.random.stateless_uniform(
            tf.concat([[2], tf.shape(F)], axis=0), seed, np.finfo(np.float32).tiny, 1.0, F.dtype
        )
        up, down = tf.unstack(-tf.math.log(u))
        above, below = self._sides()
        return F + above * up - below * down

    def expected_log_prob(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        """log C + g Fmu − ρ E|y − f|."""
        rate, _ = self._rate_and_skew()
        return self.expected_offset(Fmu, Y) - rate * expected_absolute(Y - Fmu, Fvar)

    def predictive_log_density(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        """log E p(y|f): the sum of the integrals over the two sides of the kink."""
        d, (above, below) = Y - Fmu, self._sides()
        right, left = log_exponential_side(-d, Fvar, above), log_exponential_side(d, Fvar, below)
        return tfp.math.log_add_exp(right, left) - tf.math.log(above + below)

    def _cdf(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        return two_sided_cdf(Y - F, *self._sides())

    def _log_survival(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        return log_two_sided_survival(Y - F, *self._sides())

    def _predict_cdf(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        return expected_two_sided_cdf(Y - Fmu, Fvar, *self._sides())


class Laplace(_TwoSidedExponential):
    """exp(−|y − f|/β) / 2β; φ(r) = exp(−√r/β)."""

    scale = positive(1.0, "β")

    def _sides(self) -> tuple[tf.Tensor, tf.Tensor]:
        scale = tf.convert_to_tensor(self.scale)
        return scale, scale

    # There is no skew, and none is computed: of a product with 0 in a branch of a loop,
    # TensorFlow's constant folding may make all results of the loop empty.

    def g(self, Y: TensorType) -> tf.Tensor:
        return tf.zeros_like(Y)

    def expected_offset(self, Fmu: TensorType, Y: TensorType) -> tf.Tensor:
        return tf.zeros_like(Y - Fmu) - tf.math.log(2.0 * self.scale)


class AsymmetricLaplace(_TwoSidedExponential):
    """
    Noise whose τ-quantile is f: τ(1−τ)/s · e^{−ρ((y−f)/s)}, ρ(u) = u(τ − [u < 0]).

    Use it for quantile regression (Yu and Moyeed 2001). In ρ(u) = |u|/2 + (τ − ½) u the linear
    term goes into C(y) = τ(1−τ)/s · e^{−(τ−½) y/s} and g = (τ−½)/s. The rest, h² = (y − f)² and
    φ(r) = e^{−√r/2s}, is the same as for ``Laplace(2s)``, to which it reduces at τ = ½.
    """

    scale = positive(1.0, "s")
    quantile = within(0.5, "τ", 1.0, learnt=False)

    def _sides(self) -> tuple[tf.Tensor, tf.Tensor]:
        """s/τ and s/(1−τ)."""
        return self.scale / self.quantile, self.scale / (1.0 - self.quantile)
