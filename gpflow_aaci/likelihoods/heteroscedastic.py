"""Gaussian noise whose precision is a second latent GP."""

from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow import Parameter
from gpflow.base import MeanAndVariance, TensorType

from ..special import ndtr
from .base import AugmentedLikelihood, Site
from .integrals.quadrature import expectation, log_expectation, mean_over_panels
from .parameters import positive_parameter
from .sigmoid_powers import half_polya_gamma, log_cosh_and_one_minus_s, log_powers_of_sigmoid


class HeteroscedasticGaussian(AugmentedLikelihood):
    r"""
    N(y | f, 1/(λσ(g))) of two latent GPs, f and g in this order; Y is [N, 1].

    e^{−λσ(g)R} = e^{−λR} e^{λσ(−g)R}, R = (y − f)²/2, is a mixture over n ~ Poisson(λR) of σ(−g)^n,
    so that given n and ω ~ PG(½ + n, ·)/2 it is Gaussian in g; given g it is Gaussian in f. The two
    are stepped in turn. λ, the largest precision, is learnable. For given marginals of f and g the
    bound is largest at the λ that :meth:`optimal_max_precision` returns::

        model = AugmentedSVGP(
            kernel, HeteroscedasticGaussian(max_precision=100.0), Z, num_latent_gps=2, num_data=N
        )
    """

    in_turn = True
    couples = True

    def __init__(self, max_precision: Any = 1.0, **kwargs: Any) -> None:
        """
        :param max_precision: λ, positive, in units of 1/y².
        :raises ValueError: for a value that is not positive and finite.
        """
        super().__init__(input_dim=None, latent_dim=2, observation_dim=1, **kwargs)
        self.max_precision: Parameter = positive_parameter(
            "HeteroscedasticGaussian", "max_precision", max_precision
        )

    def bound(self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType) -> tf.Tensor:
        """½ log(λ/2π) + ½ (m_g/2 − lc_g) − ½ λ E(y − f)² (1 − s_g)."""
        mean = Fmu[..., 1]
        lc, one_minus_s = log_cosh_and_one_minus_s(mean, Fvar[..., 1])
        expected = self._half_residual(Fmu, Fvar, Y) * one_minus_s
        return self._log_C() + 0.5 * (mean / 2.0 - lc) - expected

    def coupling(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        """λ (y − m_f) E σ'(g)."""
        slope = expectation(lambda g: tf.sigmoid(g) * tf.sigmoid(-g), Fmu[..., 1], Fvar[..., 1])
        between = self.max_precision * (Y[..., 0] - Fmu[..., 0]) * slope
        none = tf.zeros_like(between)
        return tf.stack([tf.stack([none, between], -1), tf.stack([between, none], -1)], -1)

    def optimal_max_precision(self, Fmu: TensorType, Fvar: TensorType, Y: TensorType) -> tf.Tensor:
        """The λ [] at which Σ bound is largest: N / Σ E(y − f)² (1 − s_g)."""
        _, one_minus_s = log_cosh_and_one_minus_s(Fmu[..., 1], Fvar[..., 1])
        expected = 2.0 * self._half_residual(Fmu, Fvar, Y) / self.max_precision
        return 1.0 / tf.reduce_mean(expected * one_minus_s)

    def full_conditional(
        self, X: TensorType | None, F: TensorType, Y: TensorType
    ) -> tfp.distributions.Distribution:
        """
        n ~ Poisson(λσ(−g)(y − f)²/2) and given it omega ~ PG(½ + n, g)/2, both [..., N, 1].

        ``precision`` is λσ(g), on which alone the site of f depends; n and ω are for g.
        """
        f, g = F[..., :1], F[..., 1:]
        half_residual = 0.5 * self.max_precision * tf.square(Y - f)
        return tfp.distributions.JointDistributionNamed(
            {
                "precision": tfp.distributions.Deterministic(self.max_precision * tf.sigmoid(g)),
                "n": tfp.distributions.Poisson(tf.sigmoid(-g) * half_residual),
                "omega": lambda n: half_polya_gamma(0.5 + n, g),
            }
        )

    def log_joint(
        self, X: TensorType | None, auxiliary: Any, F: TensorType, Y: TensorType
    ) -> tf.Tensor:
        """log p(y, n, omega|f, g), [..., N, 1]."""
        f, g = F[..., :1], F[..., 1:]
        n = auxiliary["n"]
        log_n = tfp.distributions.Poisson(0.5 * self.max_precision * tf.square(Y - f)).log_prob(n)
        plus = 0.5 + tf.zeros_like(n)
        return self._log_C() + log_n + log_powers_of_sigmoid(plus, n, auxiliary["omega"], g)

    def site(self, X: TensorType | None, auxiliary: Any, Y: TensorType) -> Site:
        """Potential and precision: λσ(g) y and λσ(g) for f, (½ − n)/2 and 2ω for g."""
        precision, n = auxiliary["precision"], auxiliary["n"]
        potential = tf.concat([precision * Y, (0.5 - n) / 2.0], -1)
        return potential, tf.concat([precision, 2.0 * auxiliary["omega"]], -1)

    def pointwise_log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        log_share, share = tf.math.log_sigmoid(F[..., 1]), tf.sigmoid(F[..., 1])
        residual = self._half_residual(F, tf.zeros_like(F), Y)
        return (self._log_C() + 0.5 * log_share - residual * share)[..., None]

    def expected_log_prob(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        mean, variance = Fmu[..., 1], Fvar[..., 1]
        log_share = expectation(tf.math.log_sigmoid, mean, variance)
        share = expectation(tf.sigmoid, mean, variance)
        log_p = self._log_C() + 0.5 * log_share - self._half_residual(Fmu, Fvar, Y) * share
        return log_p[..., None]

    def predictive_log_density(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        """N(y | m_f, v_f + (1 + e^{−g})/λ), averaged over g."""
        residual = tf.square(Y[..., 0] - Fmu[..., 0])

        def log_normal(g: tf.Tensor) -> tf.Tensor:
            variance = Fvar[..., 0] + self.noise_variance(g)
            return -0.5 * (tf.math.log(2.0 * np.pi * variance) + residual / variance)

        log_p = log_expectation(log_normal, Fmu[..., 1], Fvar[..., 1], [self._peak(residual)])
        return log_p[..., None]

    def _peak(self, squared_residual: tf.Tensor) -> tf.Tensor:
        """The g at which the noise variance equals the squared residual."""
        return -tf.math.log(tf.maximum(self.max_precision * squared_residual - 1.0, 1e-6))

    def _cdf(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        return ndtr((Y - F[..., :1]) / tf.sqrt(self.noise_variance(F[..., 1:])))

    def _predict_cdf(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        """Φ((y − m_f)/√(v_f + (1 + e^{−g})/λ)), averaged over g."""
        residual = Y - Fmu[..., :1]

        def of_normal(g: tf.Tensor) -> tf.Tensor:
            return ndtr(residual / tf.sqrt(Fvar[..., :1] + self.noise_variance(g)))

        mean, variance = (part[..., 1:] + tf.zeros_like(residual) for part in (Fmu, Fvar))
        return mean_over_panels(of_normal, mean, variance, [self._peak(tf.square(residual))])

    def _conditional_mean(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return tf.identity(F[..., :1])

    def _conditional_variance(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return self.noise_variance(F[..., 1:])

    def _predict_mean_and_var(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType
    ) -> MeanAndVariance:
        expected_noise = self.noise_variance(Fmu[..., 1:] - Fvar[..., 1:] / 2.0)
        return tf.identity(Fmu[..., :1]), Fvar[..., :1] + expected_noise

    def noise_variance(self, g: TensorType) -> tf.Tensor:
        """1/(λσ(g)) = (1 + e^{−g})/λ; its expectation is its value at E g − ½ Var g."""
        return (1.0 + tf.exp(-g)) / self.max_precision

    def draw_y(self, F: TensorType, seed: Any) -> tf.Tensor:
        noise = tfp.distributions.Normal(F[..., :1], tf.sqrt(self.noise_variance(F[..., 1:])))
        return noise.sample(seed=seed)

    def _log_C(self) -> tf.Tensor:
        return 0.5 * tf.math.log(self.max_precision / (2.0 * np.pi))

    def _half_residual(self, Fmu: TensorType, Fvar: TensorType, Y: TensorType) -> tf.Tensor:
        """½ λ E(y − f)², [..., N]."""
        expected = tf.square(Y[..., 0] - Fmu[..., 0]) + Fvar[..., 0]
        return 0.5 * self.max_precision * expected
