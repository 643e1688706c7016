"""Classification into K classes by sigmoids that are normalised."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import MeanAndVariance, TensorType

from ...validation import Check, check_count, some
from ..base import AugmentedLikelihood, Site
from ..integrals.quadrature import expectation
from ..integrals.sums_of_sigmoids import coupling_of_log_sum, expected_log_sum, expected_shares
from ..sigmoid_powers import half_polya_gamma, log_cosh_and_one_minus_s, log_powers_of_sigmoid

tfd = tfp.distributions


class LogisticSoftmax(AugmentedLikelihood):
    r"""
    p(y = k|f) = σ(f_k) / Σ_j σ(f_j), labels 0 … K − 1 in Y [N, 1] (Galy-Fajou et al., UAI 2019).

    1/Σσ = ∫ e^{−rate Σσ} d rate, and every e^{−rate σ(f_j)} is a mixture over
    n_j ~ Poisson(rate) of σ(−f_j)^{n_j}: given rate, n and ω ~ PG([j = k] + n_j, ·)/2 the K latent
    GPs are independent and Gaussian. Predicted probabilities are deterministic integrals.

    Under a prior of mean 0 every σ(f_j) is near ½, and p(k) cannot exceed 2/(K + 1) unless all
    other f_j fall far below 0. Begin therefore from a constant mean of −log K, or from a large
    kernel variance.
    """

    couples = True

    def __init__(self, num_classes: int, **kwargs: Any) -> None:
        """
        :param num_classes: K ≥ 2; ``num_latent_gps`` of the model.
        :raises ValueError: for anything else.
        """
        check_count("LogisticSoftmax: num_classes", num_classes, 2)
        super().__init__(
            input_dim=None, latent_dim=int(num_classes), observation_dim=None, **kwargs
        )
        self.num_classes = int(num_classes)
        self.labels = np.arange(float(num_classes))
        self.row_cost = float(num_classes)  # an integral over all latent GPs for every row

    def num_observed(self, num_outputs: int) -> int:
        return 1

    def bound(self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType) -> tf.Tensor:
        """m_k/2 − lc_k − log Σ_j (1 − s_j)."""
        lc, one_minus_s = log_cosh_and_one_minus_s(Fmu, Fvar)
        total = tf.reduce_sum(one_minus_s, -1)
        return tf.reduce_sum(self._one_hot(Y) * (Fmu / 2.0 - lc), -1) - tf.math.log(total)

    def coupling(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        """∂²(−E log Σσ(f_i))/∂Fmu_j∂Fmu_k, accurate to about 1e-4."""
        return coupling_of_log_sum(Fmu, Fvar)

    def full_conditional(
        self, X: TensorType | None, F: TensorType, Y: TensorType
    ) -> tfp.distributions.Distribution:
        """
        rate [..., N, 1] ~ Exponential(Σσ(f_j)), n [..., N, K] ~ Poisson(rate σ(−f)), and omega.

        omega ~ PG([j = k] + n_j, f_j)/2, [..., N, K]; of batch shape [..., N].
        """
        F = tf.convert_to_tensor(F)
        label = self._one_hot(Y)
        total = tf.reduce_sum(tf.sigmoid(F), -1, keepdims=True)
        return tfd.JointDistributionNamed(
            {
                "rate": tfd.Independent(tfd.Exponential(total), 1),
                "n": lambda rate: tfd.Independent(tfd.Poisson(rate * tf.sigmoid(-F)), 1),
                "omega": lambda n: tfd.Independent(half_polya_gamma(label + n, F), 1),
            }
        )

    def log_joint(
        self, X: TensorType | None, auxiliary: Any, F: TensorType, Y: TensorType
    ) -> tf.Tensor:
        """log p(y, rate, n, omega|f), [..., N]."""
        rate, n, omega = (auxiliary[name] for name in ("rate", "n", "omega"))
        log_n = tfd.Poisson(rate).log_prob(n)
        return tf.reduce_sum(log_n + log_powers_of_sigmoid(self._one_hot(Y), n, omega, F), -1)

    def site(self, X: TensorType | None, auxiliary: Any, Y: TensorType) -> Site:
        """Potential ([j = k] − n_j)/2, precision 2ω_j."""
        return (self._one_hot(Y) - auxiliary["n"]) / 2.0, 2.0 * auxiliary["omega"]

    def pointwise_log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        log_share = tf.math.log_sigmoid(F)
        own = tf.reduce_sum(self._one_hot(Y) * log_share, -1, keepdims=True)
        return own - tf.reduce_logsumexp(log_share, -1, keepdims=True)

    def expected_log_prob(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        log_share = expectation(tf.math.log_sigmoid, Fmu, Fvar)
        own = tf.reduce_sum(self._one_hot(Y) * log_share, -1, keepdims=True)
        return own - expected_log_sum(Fmu, Fvar)[..., None]

    def predictive_log_density(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        log_p = tf.math.log(expected_shares(Fmu, Fvar))
        return tf.reduce_sum(self._one_hot(Y) * log_p, -1, keepdims=True)

    def _conditional_mean(self, X: TensorType, F: TensorType) -> tf.Tensor:
        share = tf.sigmoid(F)
        return share / tf.reduce_sum(share, -1, keepdims=True)

    def _conditional_variance(self, X: TensorType, F: TensorType) -> tf.Tensor:
        p = self.conditional_mean(X, F)
        return p - tf.square(p)

    def _predict_mean_and_var(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType
    ) -> MeanAndVariance:
        """P(y = k) of every class, and p − p²."""
        p = expected_shares(Fmu, Fvar)
        return p, p - tf.square(p)

    def _cdf(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        return self._up_to(self._conditional_mean(X, F), Y)

    def _predict_cdf(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        return self._up_to(expected_shares(Fmu, Fvar), Y)

    def _up_to(self, p: tf.Tensor, Y: TensorType) -> tf.Tensor:
        """P(y' ≤ y) in the order of the labels' numbers, [..., N, 1]."""
        is_below = tf.range(self.num_classes, dtype=p.dtype) <= Y
        return tf.reduce_sum(tf.where(is_below, p, tf.zeros_like(p)), -1, keepdims=True)

    def draw_y(self, F: TensorType, seed: Any) -> tf.Tensor:
        """A label, [..., N, 1]."""
        uniform = tf.random.stateless_uniform(tf.shape(F), seed, dtype=F.dtype)
        gumbel = -tf.math.log(-tf.math.log(uniform + np.finfo(F.dtype.as_numpy_dtype).tiny))
        drawn = tf.argmax(tf.math.log_sigmoid(F) + gumbel, -1)
        return tf.cast(drawn, F.dtype)[..., None]

    def check_observations(self, Y: tf.Tensor) -> Sequence[Check]:
        highest = float(self.num_classes - 1)
        wrong = ~((Y >= 0.0) & tf.less_equal(Y, highest) & tf.equal(Y, tf.round(Y)))
        message = f"Y must hold labels from 0 to num_classes - 1 = {self.num_classes - 1}."
        return [Check(~tf.reduce_any(wrong), message, lambda: some(Y, wrong))]

    def _one_hot(self, Y: TensorType) -> tf.Tensor:
        """[..., N, K]."""
        Y = tf.convert_to_tensor(Y)
        return tf.one_hot(tf.cast(Y[..., 0], tf.int32), self.num_classes, dtype=Y.dtype)
