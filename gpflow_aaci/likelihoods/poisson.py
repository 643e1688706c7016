"""Poisson counts of a bounded rate."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from check_shapes import inherit_check_shapes
from gpflow import Parameter
from gpflow.base import AnyNDArray, MeanAndVariance, TensorType

from ..distributions import PolyaGamma
from ..special import log_2cosh_half_sqrt
from ..validation import Check
from .base import OutputwiseLikelihood, Site, positive_parameter
from .quadrature import expectation, log_expectation
from .sigmoid_powers import are_counts, log_powers_of_sigmoid, one_minus_s


class Poisson(OutputwiseLikelihood):
    r"""
    Poisson counts of rate λσ(f), λ the largest possible (Donner and Opper 2018).

    e^{−λσ(f)} = e^{−λ} e^{λσ(−f)} is a mixture over n ~ Poisson(λ) of σ(−f)^n, and the powers of σ
    are Pólya-Gamma mixtures in turn: given n and ω ~ PG(y + n, ·)/2 the likelihood is Gaussian.
    λ is learnable; at given marginals of f the bound is largest at :meth:`optimal_max_rate`.
    """

    def __init__(self, max_rate: Any = 1.0, **kwargs: Any) -> None:
        """
        :param max_rate: λ, positive.
        :raises ValueError: for a value that is not positive and finite.
        """
        super().__init__(**kwargs)
        self.max_rate: Parameter = positive_parameter("Poisson", "max_rate", max_rate)

    def bound(self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType) -> tf.Tensor:
        """y log λ − log y! + y (m/2 − log 2cosh(c/2)) − λ (1 − s), c² = m² + v, for every y."""
        lc = log_2cosh_half_sqrt(tf.square(Fmu) + Fvar)
        shared = Y * tf.math.log(self.max_rate) - tf.math.lgamma(Y + 1.0)
        bound = shared + Y * (Fmu / 2.0 - lc) - self.max_rate * one_minus_s(Fmu, lc)
        return tf.reduce_sum(bound, -1)

    def optimal_max_rate(self, Fmu: TensorType, Fvar: TensorType, Y: TensorType) -> tf.Tensor:
        """The λ [] at which Σ bound is largest: Σ y / Σ (1 − s)."""
        lc = log_2cosh_half_sqrt(tf.square(Fmu) + Fvar)
        return tf.reduce_sum(Y) / tf.reduce_sum(one_minus_s(Fmu, lc))

    def full_conditional(
        self, X: TensorType | None, F: TensorType, Y: TensorType
    ) -> tfp.distributions.Distribution:
        """n ~ Poisson(λσ(−f)), and given it omega ~ PG(y + n, f)/2; both [..., N, P]."""
        F, half = tf.convert_to_tensor(F), tf.constant(0.5, F.dtype)
        return tfp.distributions.JointDistributionNamed(
            {
                "n": tfp.distributions.Poisson(self.max_rate * tf.sigmoid(-F)),
                "omega": lambda n: PolyaGamma(Y + n, F, half),
            }
        )

    def log_joint(
        self, X: TensorType | None, auxiliary: Any, F: TensorType, Y: TensorType
    ) -> tf.Tensor:
        n, omega = auxiliary["n"], auxiliary["omega"]
        log_n = tfp.distributions.Poisson(self.max_rate).log_prob(n)
        of_y = Y * tf.math.log(self.max_rate) - tf.math.lgamma(Y + 1.0)
        return of_y + log_n + log_powers_of_sigmoid(Y, n, omega, F)

    def site(self, X: TensorType | None, auxiliary: Any, Y: TensorType) -> Site:
        """Potential (y − n)/2, precision 2ω."""
        return (Y - auxiliary["n"]) / 2.0, 2.0 * auxiliary["omega"]

    @inherit_check_shapes
    def _scalar_log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        log_rate = tf.math.log(self.max_rate) + tf.math.log_sigmoid(F)
        return Y * log_rate - self.max_rate * tf.sigmoid(F) - tf.math.lgamma(Y + 1.0)

    @inherit_check_shapes
    def _variational_expectations(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        log_rate = tf.math.log(self.max_rate) + expectation(tf.math.log_sigmoid, Fmu, Fvar)
        rate = self.max_rate * expectation(tf.sigmoid, Fmu, Fvar)
        return tf.reduce_sum(Y * log_rate - rate - tf.math.lgamma(Y + 1.0), -1)

    @inherit_check_shapes
    def _predict_log_density(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        peaks = self.peaks(Y)
        log_p = log_expectation(lambda F: self._scalar_log_prob(F, F, Y), Fmu, Fvar, peaks)
        return tf.reduce_sum(log_p, -1)

    def peaks(self, Y: TensorType) -> Sequence[tf.Tensor]:
        """λσ(f) = y, or thereabouts where y is 0 or beyond λ."""
        share = tf.clip_by_value((Y + 0.5) / self.max_rate, 1e-6, 1.0 - 1e-6)
        return [tf.math.log(share) - tf.math.log1p(-share)]

    def _cdf(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        """Γ(y + 1, λσ(f))/y!."""
        return tf.math.igammac(Y + 1.0, self.max_rate * tf.sigmoid(F))

    @inherit_check_shapes
    def _conditional_mean(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return self.max_rate * tf.sigmoid(F)

    @inherit_check_shapes
    def _conditional_variance(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return self.max_rate * tf.sigmoid(F)

    @inherit_check_shapes
    def _predict_mean_and_var(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType
    ) -> MeanAndVariance:
        share = expectation(tf.sigmoid, Fmu, Fvar)
        spread = expectation(lambda F: tf.square(tf.sigmoid(F) - share), Fmu, Fvar)
        mean = self.max_rate * share
        return mean, mean + tf.square(self.max_rate) * spread

    def outcomes(self) -> AnyNDArray:
        rate = float(tf.convert_to_tensor(self.max_rate))
        return np.arange(np.ceil(rate + 12.0 * np.sqrt(rate) + 60.0))[:, None]

    def check_observations(self, Y: tf.Tensor) -> Sequence[Check]:
        return [are_counts(Y, type(self).__name__)]

    def draw_y(self, F: TensorType, seed: Any) -> tf.Tensor:
        rate = self.max_rate * tf.sigmoid(F)
        return tf.random.stateless_poisson(tf.shape(F), seed, rate, F.dtype)
