"""Noise with density ∝ e^{−|y − f|^p}: Laplace (p = 1), Gaussian (p = 2) and other p ≤ 2."""

from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import TensorType

from ...distributions import InverseGaussian, TiltedDistribution
from ...special import log_igammac
from ..declared import positive, within
from ..integrals.even_densities import log_density_by_quadrature
from ..integrals.powers import expected_power
from .residual import ResidualLikelihood


class GeneralizedGaussian(ResidualLikelihood):
    """
    p/(2 s Γ(1/p)) · e^{−(|y − f|/s)^p}, 0 < p ≤ 2 (Subbotin 1923; West 1987).

    φ(r) = e^{−(r/s²)^{p/2}}, so that ω is positive stable with index p/2 at c = 0, and an
    exponentially tilted one for c > 0. p = 1 is ``Laplace(s)`` and p = 2 is
    ``Gaussian(scale=s/√2)``. The smaller p is, the sharper is the peak and the heavier are the
    tails; all moments exist.
    """

    scale = positive(1.0, "s")
    power = within(1.5, "p", 2.0, with_upper=True)

    def log_C(self, Y: TensorType) -> tf.Tensor:
        inverse = 1.0 / self.power
        log_C = -tf.math.log(2.0 * self.scale) - tf.math.lgamma(1.0 + inverse)
        return log_C + tf.zeros_like(Y)

    def log_phi(self, r: TensorType, Y: TensorType | None = None) -> tf.Tensor:
        unit = tf.cast(tf.square(self.scale), r.dtype)
        return -_real_power(r / unit, tf.cast(self.power, r.dtype) / 2.0)

    def _tilted(self, c: tf.Tensor, Y: TensorType | None = None) -> tfp.distributions.Distribution:
        return _TiltedStable(self, c)

    def noise_variance(self) -> tf.Tensor:
        """s² Γ(3/p)/Γ(1/p)."""
        inverse = 1.0 / self.power
        log_ratio = tf.math.lgamma(3.0 * inverse) - tf.math.lgamma(inverse)
        return tf.square(self.scale) * tf.exp(log_ratio)

    def draw_y(self, F: TensorType, seed: Any) -> tf.Tensor:
        """f ± s G^{1/p}, G ~ Gamma(1/p, 1)."""
        seeds = tfp.random.split_seed(seed, n=2, salt="generalized_gaussian")
        power = tf.cast(self.power, F.dtype)
        gamma = tf.random.stateless_gamma(tf.shape(F), seeds[0], 1.0 / power, dtype=F.dtype)
        uniform = tf.random.stateless_uniform(tf.shape(F), seeds[1], -1.0, 1.0, F.dtype)
        return F + tf.sign(uniform) * tf.cast(self.scale, F.dtype) * gamma ** (1.0 / power)

    def expected_log_prob(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        """log C − E|y − f|^p/s^p."""
        moment = expected_power(
            (Y - Fmu) / self.scale, Fvar / tf.square(self.scale), tf.convert_to_tensor(self.power)
        )
        return self.log_C(Y) - moment

    def predictive_log_density(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        """By quadrature with more nodes than usual, as a small p has a cusp at y = f."""
        return log_density_by_quadrature(
            self.pointwise_log_prob, self.omega_mean, Fmu, Fvar, Y, halvings=22
        )

    def _cdf(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        return tf.exp(self._log_survival(X, Y, F))  # the density is even in y − f

    def _log_survival(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        """log ½ Γ(1/p, (|y − f|/s)^p)/Γ(1/p) for y > f."""
        d, power = Y - F, tf.cast(self.power, F.dtype)
        log_tail = log_igammac(1.0 / power, tf.pow(tf.abs(d) / self.scale, power)) - np.log(2.0)
        return tf.where(d > 0.0, log_tail, tf.math.log1p(-tf.exp(log_tail)))


def _real_power(x: TensorType, a: tf.Tensor) -> tf.Tensor:
    """x^a for real x ≥ 0 or complex x of positive real part; exact, with its slope, for a = 1."""
    if not x.dtype.is_complex:
        linear = tf.equal(a, 1.0)
        power = tf.pow(tf.where(linear, tf.ones_like(x), x), a)
        return tf.where(linear, x, power)
    return tf.exp(a * tf.math.log(x))


class _TiltedStable(TiltedDistribution):
    """The distribution by log φ alone, except that draws at p = 1 are inverse Gaussian."""

    def __init__(
        self,
        likelihood: GeneralizedGaussian,
        c: tf.Tensor,
        validate_args: bool = False,
        allow_nan_stats: bool = True,
        name: str = "TiltedStable",
    ) -> None:
        parameters = dict(locals())
        self._likelihood = likelihood
        super().__init__(likelihood.log_phi, c, validate_args, allow_nan_stats, name)
        self._parameters = parameters

    @classmethod
    def _parameter_properties(cls, dtype: tf.DType, num_classes: int | None = None) -> dict:
        return super()._parameter_properties(dtype, num_classes)

    def _sample_n(self, n: tf.Tensor, seed: Any = None) -> tf.Tensor:
        seed = tfp.random.sanitize_seed(seed, salt="TiltedStable")
        scale = tf.cast(self._likelihood.scale, self.dtype)
        closed = InverseGaussian(0.5 / (scale * self.c), 0.5 / tf.square(scale))
        by_inversion = super()._sample_n
        return tf.cond(
            tf.equal(tf.convert_to_tensor(self._likelihood.power), 1.0),
            lambda: closed.sample(n, seed=seed),
            lambda: by_inversion(n, seed),
        )
