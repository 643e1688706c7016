"""Classification into K classes by normalised sigmoids or exponentials."""

import abc
from typing import Any

import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import TensorType

from ..base import Site
from ..integrals.quadrature import expectation
from ..integrals.sums_of_exponentials import (
    coupling_of_log_sum_exp,
    expected_log_sum_exp,
    expected_softmax,
)
from ..integrals.sums_of_sigmoids import coupling_of_log_sum, expected_log_sum, expected_shares
from ..sigmoid_powers import Powers, log_s
from ..unaugmented import Unaugmented
from .labels import LabelLikelihood

tfd = tfp.distributions


class _Normalised(LabelLikelihood, abc.ABC):
    """K classes with one latent GP each, whose transformed values are normalised to sum to 1."""

    couples = True

    cost_of_class = 1.0


class LogisticSoftmax(_Normalised):
    r"""
    p(y = k|f) = σ(f_k) / Σ_j σ(f_j), labels 0 … K − 1 in Y [N, 1] (Galy-Fajou et al., UAI 2019).

    1/Σσ = ∫ e^{−rate Σσ} d rate, and every e^{−rate σ(f_j)} is a mixture over
    n_j ~ Poisson(rate) of σ(−f_j)^{n_j}: given rate, n and ω ~ PG([j = k] + n_j, ·)/2 the K latent
    GPs are independent and Gaussian. Predicted probabilities are deterministic integrals.

    Under a prior with mean 0 every σ(f_j) is near ½, and p(k) cannot exceed 2/(K + 1) unless all
    other f_j are far below 0. Therefore start from a constant mean function of −log K, or from a
    large kernel variance.
    """

    def bound(self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType) -> tf.Tensor:
        """m_k + log s_k − log Σ_j (1 − s_j)."""
        log_share = log_s(Fmu, Fvar)
        total = tf.reduce_sum(-tf.math.expm1(log_share), -1)
        return tf.reduce_sum(self._one_hot(Y) * (Fmu + log_share), -1) - tf.math.log(total)

    def coupling(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        """∂²(−E log Σσ(f_i))/∂Fmu_j∂Fmu_k, accurate to about 1e-4."""
        return coupling_of_log_sum(Fmu, Fvar)

    def auxiliary_law(
        self, X: TensorType | None, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tfp.distributions.Distribution:
        """
        rate [..., N, 1] ~ Exponential(Σ(1 − s_j)), n [..., N, K] ~ Poisson(rate s), and omega.

        omega ~ PG([j = k] + n_j, c_j)/2, [..., N, K]; of batch shape [..., N].
        """
        label = Powers(self._one_hot(Y))
        total = tf.reduce_sum(-tf.math.expm1(log_s(Fmu, Fvar)), -1, keepdims=True)
        return tfd.JointDistributionNamed(
            {
                "rate": tfd.Independent(tfd.Exponential(total), 1),
                "n": lambda rate: tfd.Independent(label._replace(rate=rate).law_of_n(Fmu, Fvar), 1),
                "omega": lambda n: tfd.Independent(label.law_of_omega(Fmu, Fvar, n), 1),
            }
        )

    def log_joint(
        self, X: TensorType | None, auxiliary: Any, F: TensorType, Y: TensorType
    ) -> tf.Tensor:
        powers = Powers(self._one_hot(Y), 0.0, auxiliary["rate"])
        return tf.reduce_sum(powers.log_joint(auxiliary, F), -1)

    def site(self, X: TensorType | None, auxiliary: Any, Y: TensorType) -> Site:
        """Potential ([j = k] − n_j)/2, precision 2ω_j."""
        return Powers(self._one_hot(Y)).site(auxiliary["omega"], auxiliary["n"])

    def log_shares(self, F: TensorType) -> tf.Tensor:
        log_sigmoid = tf.math.log_sigmoid(F)
        return log_sigmoid - tf.reduce_logsumexp(log_sigmoid, -1, keepdims=True)

    def log_expected_shares(self, Fmu: TensorType, Fvar: TensorType) -> tf.Tensor:
        return tf.math.log(expected_shares(Fmu, Fvar))

    def expected_log_prob(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        log_share = expectation(tf.math.log_sigmoid, Fmu, Fvar)
        return self._of_label(log_share, Y) - expected_log_sum(Fmu, Fvar)[..., None]


class Softmax(Unaugmented, _Normalised):
    r"""
    p(y = k|f) = e^{f_k} / Σ_j e^{f_j}, labels 0 … K − 1 in Y [N, 1].

    GPflow's ``Softmax`` estimates E log p(y|f) by random draws. Here E log Σ e^{f_j} is an integral
    of products of one-dimensional expectations, so that the result is deterministic. There are no
    auxiliary variables, hence no Gibbs sampler. log p(y|f) is concave in f.
    """

    def log_shares(self, F: TensorType) -> tf.Tensor:
        return tf.nn.log_softmax(F)

    def log_expected_shares(self, Fmu: TensorType, Fvar: TensorType) -> tf.Tensor:
        return tf.math.log(expected_softmax(Fmu, Fvar))

    def expected_log_prob(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        return self._of_label(Fmu, Y) - expected_log_sum_exp(Fmu, Fvar)[..., None]

    def coupling(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        return coupling_of_log_sum_exp(Fmu, Fvar)
