"""Likelihoods for a binary y, coded as {0, 1} or {−1, +1}."""

import abc
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import MeanAndVariance, TensorType
from gpflow.config import default_float

from ...distributions import InverseGaussian, PositiveNormal
from ...special import (
    log_half_normal_transform,
    log_ndtr,
    ndtr,
    positive_normal_mean,
)
from ..base import Site
from ..integrals.quadrature import expectation, log_expectation, log_expected_sigmoid, safe_sqrt
from ..law import as_float
from ..observations import SIGNS
from ..outputwise import OutputwiseLikelihood, checked_c
from ..sigmoid_powers import PowerOfCosh, Powers
from ..super_gaussian import SuperGaussianLikelihood


def signs(Y: TensorType) -> tf.Tensor:
    """The labels as ±1, whichever coding they have."""
    return tf.where(Y > 0, tf.ones_like(Y), -tf.ones_like(Y))


def drawn_label(p: tf.Tensor, seed: Any) -> tf.Tensor:
    """1 with probability p, else 0."""
    return tf.cast(tf.random.stateless_uniform(tf.shape(p), seed, dtype=p.dtype) < p, p.dtype)


class BinaryLikelihood(OutputwiseLikelihood, abc.ABC):
    """y = ±1; predictions are P(y = +1) and its variance p(1 − p)."""

    kind_of_y = SIGNS

    kinks: Sequence[float] = ()
    """Values of f near which the quadrature of P(y|f) needs dense nodes, for every y."""

    @abc.abstractmethod
    def log_probability(self, yF: TensorType) -> tf.Tensor:
        """log P(y|f), normalised over y = ±1, as a function of the product y f, [...]."""

    def invlink(self, F: TensorType) -> tf.Tensor:
        """P(y = +1|f), [...], like the ``invlink`` of GPflow's ``Bernoulli``."""
        return tf.exp(self.log_probability(as_float(F)))

    def draw_y(self, F: TensorType, seed: Any) -> tf.Tensor:
        return drawn_label(self.invlink(F), seed)

    def predictive_log_density(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        sign = signs(Y)
        return log_expectation(lambda F: self.log_probability(sign * F), Fmu, Fvar, self.peaks(Y))

    def peaks(self, Y: TensorType) -> Sequence[tf.Tensor]:
        return [tf.constant(kink, Y.dtype) + tf.zeros_like(Y) for kink in self.kinks]

    def _cdf(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        """P(y = −1|f), and 1 at y = +1."""
        below = tf.exp(self.log_probability(-F))
        return tf.where(Y >= 1.0, tf.ones_like(below), below)

    def _predict_cdf(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        Fmu, Fvar = (part + tf.zeros_like(Y) for part in (Fmu, Fvar))
        below = tf.exp(self.predictive_log_density(X, Fmu, Fvar, -tf.ones_like(Fmu)))
        return tf.where(Y >= 1.0, tf.ones_like(below), below)

    def _conditional_mean(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return self.invlink(F)

    def _conditional_variance(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return tf.exp(self.log_probability(F) + self.log_probability(-F))

    def _predict_mean_and_var(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType
    ) -> MeanAndVariance:
        p = tf.exp(self.predictive_log_density(X, Fmu, Fvar, tf.ones_like(Fmu)))
        return p, p * (1.0 - p)


class Logistic(BinaryLikelihood, PowerOfCosh):
    """σ(y f) = ½ e^{yf/2} / cosh(f/2); h² = f², φ(r) = 1/cosh(√r/2), ω ~ PG(1, c)/2."""

    kinks = (0.0,)

    def powers(self, Y: TensorType) -> Powers:
        is_one = tf.cast(Y > 0, Y.dtype)
        return Powers(is_one, 1.0 - is_one)

    def log_coefficient(self, Y: TensorType) -> tf.Tensor:
        return tf.zeros_like(Y)

    def _given_exponent(self, Y: TensorType | None) -> tf.Tensor:
        return tf.ones([], default_float())

    def log_probability(self, yF: TensorType) -> tf.Tensor:
        return tf.math.log_sigmoid(yF)

    def expected_log_prob(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        """E log σ(y f) by quadrature of TensorFlow's log-sigmoid, which is cheaper than log φ."""
        return expectation(tf.math.log_sigmoid, signs(Y) * Fmu, Fvar)

    def predictive_log_density(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        """By a fifth of the nodes that are needed where nothing but log P(y|f) is known."""
        return log_expected_sigmoid(signs(Y) * Fmu, Fvar)


class BayesianSVM(BinaryLikelihood, SuperGaussianLikelihood):
    """
    The hinge pseudo-likelihood e^{−2 max(0, 1 − yf)} = e^{−1} e^{yf} e^{−|1 − yf|}.

    It does not sum to 1 over y = ±1, so neither of the two ELBOs is a lower bound on log p(y).
    Predictions are normalised over y, inside the expectation over f.
    """

    is_density = False
    kinks = (-1.0, 1.0)

    def log_C(self, Y: TensorType) -> tf.Tensor:
        return -tf.ones_like(Y)

    def g(self, Y: TensorType) -> tf.Tensor:
        return signs(Y)

    def alpha(self, Y: TensorType) -> tf.Tensor:
        return tf.ones_like(Y)

    def beta(self, Y: TensorType) -> tf.Tensor:
        return 2.0 * signs(Y)

    def gamma(self, Y: TensorType) -> tf.Tensor:
        return tf.ones_like(Y)

    def log_phi(self, r: TensorType, Y: TensorType | None = None) -> tf.Tensor:
        return -tf.sqrt(r)

    def _tilted(self, c: tf.Tensor, Y: TensorType | None = None) -> tfp.distributions.Distribution:
        """InverseGaussian(mean 1/2c, shape ½); at c = 0 a Lévy distribution, with infinite mean."""
        return InverseGaussian(0.5 / c, tf.constant(0.5, c.dtype))

    def log_probability(self, yF: TensorType) -> tf.Tensor:
        """log σ(2 max(0, 1 + yf) − 2 max(0, 1 − yf))."""
        return tf.math.log_sigmoid(2.0 * tf.nn.relu(1.0 + yF) - 2.0 * tf.nn.relu(1.0 - yF))

    def expected_log_prob(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        """−2 E max(0, 1 − yf) = −2 [d Φ(d/s) + s N(d/s)], d = 1 − y Fmu, s² = Fvar."""
        d = 1.0 - signs(Y) * Fmu
        sd = safe_sqrt(Fvar)
        z = d / sd
        pdf = tf.exp(-0.5 * tf.square(z)) / np.sqrt(2.0 * np.pi)
        return -2.0 * (d * ndtr(z) + sd * pdf)


class Probit(BinaryLikelihood):
    """
    Φ(y f), by the augmentation of Albert and Chib (1993): ω = y z > 0, where z ~ N(f, 1).

    p(y, ω|f) = N(ω | y f, 1) [ω > 0], which is Gaussian in f with precision 1. It is not
    super-Gaussian: every q(ω) is N(η, 1) truncated to ω > 0, and η may have either sign. As for
    other likelihoods, q(ω) is described by a positive number, here c = e^η; an optimizer should
    work with log c. To avoid overflow |η| is limited to 695 (86 in float32); the bound is valid for
    any η, and so also at this limit.
    """

    prior_c = 1.0

    def pointwise_bound(
        self, X: TensorType | None, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        """log Φ(y Fmu) − ½ Fvar."""
        return log_ndtr(signs(Y) * Fmu) - 0.5 * Fvar

    def auxiliary_law(
        self, X: TensorType | None, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tfp.distributions.Distribution:
        """N(y Fmu, 1) truncated to ω > 0, of batch shape [..., N, P]."""
        return self.tilted(self.aux_posterior_c(Fmu, Fvar, Y))

    def log_joint(
        self, X: TensorType | None, auxiliary: TensorType, F: TensorType, Y: TensorType
    ) -> tf.Tensor:
        """log N(ω | y f, 1), [..., N, P]."""
        return -0.5 * (np.log(2.0 * np.pi) + tf.square(auxiliary - signs(Y) * F))

    def site(self, X: TensorType | None, auxiliary: TensorType, Y: TensorType) -> Site:
        """Potential y ω and precision 1."""
        potential = signs(Y) * auxiliary
        return potential, tf.ones_like(potential)

    # ---- q(ω) is N(log c, 1) truncated to ω > 0 ----

    def tilted(self, c: TensorType, Y: TensorType | None = None) -> PositiveNormal:
        """
        N(log c, 1) truncated to ω > 0, of batch shape c.shape.

        :param c: [...], finite and positive.
        :raises ValueError: for any other c.
        """
        return PositiveNormal(tf.math.log(checked_c(c, zero_too=False)))

    def aux_full_conditional_c(self, F: TensorType, Y: TensorType) -> tf.Tensor:
        """e^{y f}."""
        return self.aux_posterior_c(F, tf.zeros_like(F), Y)

    def aux_posterior_c(self, Fmu: TensorType, Fvar: TensorType, Y: TensorType) -> tf.Tensor:
        """e^{y Fmu}, limited so that it does not overflow."""
        tilt = signs(Y) * Fmu + tf.zeros_like(Fvar)
        largest = 0.98 * np.log(np.finfo(tilt.dtype.as_numpy_dtype).max)
        return tf.exp(tf.clip_by_value(tilt, -largest, largest))

    def aux_posterior_mean(self, c: TensorType, Y: TensorType | None = None) -> tf.Tensor:
        """η + N(η)/Φ(η), η = log c."""
        return positive_normal_mean(tf.math.log(c))

    def aux_kldivergence(self, c: TensorType, Y: TensorType | None = None) -> tf.Tensor:
        """KL[q(ω) ‖ π(ω)] = η E ω − log E_π e^{ηω}, η = log c and π half-normal."""
        tilt = tf.math.log(c)
        return tilt * positive_normal_mean(tilt) - log_half_normal_transform(tilt)

    def expected_logtilt(
        self, omega: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        """E log p(y|ω, f) = −log 2 − ½ E f² + y Fmu ω, where π(ω) is half-normal."""
        return signs(Y) * Fmu * omega - 0.5 * (tf.square(Fmu) + Fvar) - np.log(2.0)

    # ---- predictions ----

    def log_probability(self, yF: TensorType) -> tf.Tensor:
        return log_ndtr(yF)

    def predictive_log_density(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        """log Φ(y Fmu/√(1 + Fvar))."""
        return log_ndtr(signs(Y) * Fmu / tf.sqrt(1.0 + Fvar))
