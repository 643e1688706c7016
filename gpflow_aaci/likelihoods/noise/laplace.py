"""Laplace noise, and its skewed form for quantile regression."""

from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from check_shapes import inherit_check_shapes
from gpflow.base import TensorType
from gpflow.utilities import set_trainable

from ...distributions import InverseGaussian
from ..integrals.two_sided import (
    expected_absolute,
    expected_two_sided_cdf,
    log_exponential_side,
    two_sided_cdf,
)
from ..parameters import open_interval_parameter, positive_parameter
from .residual import ResidualLikelihood


class Laplace(ResidualLikelihood):
    """exp(−|y − f|/β) / 2β; φ(r) = exp(−√r/β)."""

    def __init__(self, scale: Any = 1.0, **kwargs: Any) -> None:
        """
        :param scale: β, positive.
        :raises ValueError: for a value that is not positive and finite.
        """
        super().__init__(**kwargs)
        self.scale = positive_parameter("Laplace", "scale", scale)

    def log_C(self, Y: TensorType) -> tf.Tensor:
        return -tf.math.log(2.0 * self.scale) + tf.zeros_like(Y)

    def log_phi(self, r: TensorType, Y: TensorType | None = None) -> tf.Tensor:
        return -tf.sqrt(r) / tf.cast(self.scale, r.dtype)

    def _tilted(self, c: tf.Tensor, Y: TensorType | None = None) -> tfp.distributions.Distribution:
        """InverseGaussian(mean 1/2βc, shape 1/2β²); at c = 0 a Lévy law, of infinite mean."""
        scale = tf.cast(self.scale, c.dtype)
        return InverseGaussian(0.5 / (scale * c), 0.5 / tf.square(scale))

    def noise_variance(self) -> tf.Tensor:
        return 2.0 * tf.square(self.scale)

    def draw_y(self, F: TensorType, seed: Any) -> tf.Tensor:
        return tfp.distributions.Laplace(F, self.scale).sample(seed=seed)

    def expected_log_prob(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        """log C − E|y − f|/β."""
        return self.log_C(Y) - expected_absolute(Y - Fmu, Fvar) / self.scale

    def predictive_log_density(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        """(1/2β) E e^{−|y − f|/β}, one side of the kink after the other."""
        d = Y - Fmu
        above, below = (log_exponential_side(each, Fvar, self.scale) for each in (-d, d))
        return tfp.math.log_add_exp(above, below) - tf.math.log(2.0 * self.scale)

    def _cdf(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        return two_sided_cdf(Y - F, self.scale, self.scale)

    def _predict_cdf(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        return expected_two_sided_cdf(Y - Fmu, Fvar, self.scale, self.scale)


class AsymmetricLaplace(ResidualLikelihood):
    """
    The law whose τ-quantile is f: τ(1−τ)/s · e^{−ρ((y−f)/s)}, ρ(u) = u(τ − [u < 0]).

    For quantile regression (Yu and Moyeed 2001). ρ(u) = |u|/2 + (τ − ½) u, of which the straight
    line goes into C(y) = τ(1−τ)/s · e^{−(τ−½) y/s} and g = (τ−½)/s; h² = (y − f)² and
    φ(r) = e^{−√r/2s} are those of ``Laplace(2s)``, which it is at τ = ½.
    """

    def __init__(self, scale: Any = 1.0, quantile: Any = 0.5, **kwargs: Any) -> None:
        """
        :param scale: s, positive.
        :param quantile: τ in (0, 1), held fixed; a ``Parameter`` is shared, and trained if it is
            trainable.
        :raises ValueError: for values outside of that.
        """
        super().__init__(**kwargs)
        self.scale = positive_parameter("AsymmetricLaplace", "scale", scale)
        self.quantile = open_interval_parameter("AsymmetricLaplace", "quantile", quantile, 1.0)
        if self.quantile is not quantile:
            set_trainable(self.quantile, False)
        if self.quantile is not quantile:
            set_trainable(self.quantile, False)

    def _skew(self) -> tf.Tensor:
        """(τ − ½)/s, the slope of the straight line."""
        return (self.quantile - 0.5) / self.scale

    def _log_height(self) -> tf.Tensor:
        """log p(f|f)."""
        tau = tf.convert_to_tensor(self.quantile)
        return tf.math.log(tau * (1.0 - tau) / self.scale)

    def log_C(self, Y: TensorType) -> tf.Tensor:
        return self._log_height() - self._skew() * Y

    def g(self, Y: TensorType) -> tf.Tensor:
        return self._skew() + tf.zeros_like(Y)

    def log_phi(self, r: TensorType, Y: TensorType | None = None) -> tf.Tensor:
        return -tf.sqrt(r) / tf.cast(2.0 * self.scale, r.dtype)

    def expected_offset(self, Fmu: TensorType, Y: TensorType) -> tf.Tensor:
        """log C + g Fmu, of the difference y − Fmu alone."""
        return self._log_height() - self._skew() * (Y - Fmu)

    def _tilted(self, c: tf.Tensor, Y: TensorType | None = None) -> tfp.distributions.Distribution:
        """InverseGaussian(mean 1/4sc, shape 1/8s²); at c = 0 a Lévy law, of infinite mean."""
        scale = tf.cast(2.0 * self.scale, c.dtype)
        return InverseGaussian(0.5 / (scale * c), 0.5 / tf.square(scale))

    def noise_mean(self) -> tf.Tensor:
        """E[y|f] − f = s(1−2τ)/τ(1−τ), []."""
        tau = tf.convert_to_tensor(self.quantile)
        return self.scale * (1.0 - 2.0 * tau) / (tau * (1.0 - tau))

    def noise_variance(self) -> tf.Tensor:
        """s²(τ² + (1−τ)²)/(τ(1−τ))²."""
        tau = tf.convert_to_tensor(self.quantile)
        sides = tf.square(tau) + tf.square(1.0 - tau)
        return sides * tf.square(self.scale / (tau * (1.0 - tau)))

    @inherit_check_shapes
    def _conditional_mean(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return F + self.noise_mean()

    def draw_y(self, F: TensorType, seed: Any) -> tf.Tensor:
        """f + s (E/τ − E'/(1−τ)), E and E' standard exponential."""
        u = tf.random.stateless_uniform(
            tf.concat([[2], tf.shape(F)], axis=0), seed, np.finfo(np.float32).tiny, 1.0, F.dtype
        )
        above, below = tf.unstack(-tf.math.log(u))
        return F + self.scale * (above / self.quantile - below / (1.0 - self.quantile))

    def expected_log_prob(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        """log τ(1−τ)/s − (τ−½)(y − Fmu)/s − E|y − f|/2s."""
        size = expected_absolute(Y - Fmu, Fvar) / (2.0 * self.scale)
        return self.expected_offset(Fmu, Y) - size

    def predictive_log_density(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        """log C + log E e^{−ρ}, one side of the kink after the other."""
        d, (of_above, of_below) = Y - Fmu, self._sides()
        above = log_exponential_side(-d, Fvar, of_above)
        below = log_exponential_side(d, Fvar, of_below)
        return tfp.math.log_add_exp(above, below) + self._log_height()

    def _sides(self) -> tuple[tf.Tensor, tf.Tensor]:
        """On what length p(y|f) falls above f, and below."""
        return self.scale / self.quantile, self.scale / (1.0 - self.quantile)

    def _cdf(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        return two_sided_cdf(Y - F, *self._sides())

    def _predict_cdf(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        return expected_two_sided_cdf(Y - Fmu, Fvar, *self._sides())
