"""
The augmentation of powers of σ(f), which several likelihoods share.

e^{−λσ(f)} = e^{−λ} e^{λσ(−f)} is a mixture over n ~ Poisson(λ) of σ(−f)^n, and a power of σ is a
Pólya-Gamma mixture of Gaussians. Counts, classes and precisions that are functions of σ(f) are
augmented in this way.
"""

import abc
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import TensorType

from ..distributions import PolyaGamma
from ..special import log_2cosh_half_sqrt, log_sech_sqrt
from .base import Site
from .integrals.quadrature import expectation
from .outputwise import OutputwiseLikelihood
from .super_gaussian import SuperGaussianLikelihood


class PowerOfCosh(SuperGaussianLikelihood, abc.ABC):
    """
    p(y|f) = C(y) σ(f)^plus σ(−f)^minus (Polson, Scott and Windle 2013).

    With b = plus + minus, this is C 2^{−b} e^{(plus − minus) f/2} φ(f²), φ(r) = cosh^{−b}(√r/2):
    ω ~ PG(b, c)/2.
    """

    @abc.abstractmethod
    def powers(self, Y: TensorType) -> "Powers":
        """The exponents, [..., L]; there is no rate, or it is 0."""

    @abc.abstractmethod
    def log_coefficient(self, Y: TensorType) -> tf.Tensor:
        """The logarithm of the factor C(y) of the powers."""

    def exponent(self, Y: TensorType) -> tf.Tensor:
        """b(y), [..., L]."""
        powers = self.powers(Y)
        return powers.plus + powers.minus

    def log_C(self, Y: TensorType) -> tf.Tensor:
        return self.log_coefficient(Y) - np.log(2.0) * self.exponent(Y)

    def g(self, Y: TensorType) -> tf.Tensor:
        powers = self.powers(Y)
        return (powers.plus - powers.minus) / 2.0

    def alpha(self, Y: TensorType) -> tf.Tensor:
        return tf.zeros_like(self.response(Y))

    def beta(self, Y: TensorType) -> tf.Tensor:
        return tf.zeros_like(self.response(Y))

    def gamma(self, Y: TensorType) -> tf.Tensor:
        return tf.ones_like(self.response(Y))

    def log_phi(self, r: TensorType, Y: TensorType | None = None) -> tf.Tensor:
        return tf.cast(self._given_exponent(Y), r.dtype) * log_sech_sqrt(r / 4.0)

    def _tilted(self, c: tf.Tensor, Y: TensorType | None = None) -> tfp.distributions.Distribution:
        """PG(b(y), c)/2."""
        return half_polya_gamma(tf.cast(self._given_exponent(Y), c.dtype), c)

    def _given_exponent(self, Y: TensorType | None) -> tf.Tensor:
        if Y is None:
            name = type(self).__name__
            raise ValueError(f"Y must be given, as φ and ω of {name} depend on it. Found: None.")
        return self.exponent(Y)


def log_s(Fmu: TensorType, Fvar: TensorType) -> tf.Tensor:
    """log s = −Fmu/2 − log 2cosh(c/2) ≤ E log σ(−f), c² = E f²; accurate also near 0."""
    far = Fmu < -1.0  # where the terms cancel, −(Fmu + c)/2 = −Fvar/2(c − Fmu)
    near_mean = tf.where(far, tf.zeros_like(Fmu), Fmu)
    near = -near_mean / 2.0 - log_2cosh_half_sqrt(tf.square(near_mean) + Fvar)
    far_mean = tf.where(far, Fmu, -tf.ones_like(Fmu))
    c = tf.sqrt(tf.square(far_mean) + Fvar)
    return tf.where(far, -0.5 * Fvar / (c - far_mean) - tf.math.log1p(tf.exp(-c)), near)


def half_polya_gamma(b: TensorType, c: TensorType) -> PolyaGamma:
    """The distribution of ω ~ PG(b, c)/2."""
    return PolyaGamma(b, c, tf.constant(0.5, c.dtype))


class Powers(NamedTuple):
    """
    σ(f)^plus σ(−f)^minus e^{−rate σ(f)}, with exponents of the shape of f or broadcast to it.

    Its auxiliary variables are ``n`` ~ Poisson(rate s) and, given n, ``omega`` ~
    PG(plus + minus + n, c)/2, which is 0 if this exponent is 0. If the rate is None, there is no n.
    """

    plus: TensorType
    minus: TensorType = 0.0
    rate: TensorType | None = None

    def times(self, other: "Powers", k: TensorType) -> "Powers":
        """Its product with the k-th power of ``other``."""
        return Powers(*(own + k * more for own, more in zip(self, other, strict=True)))

    def log_prob(self, F: TensorType) -> tf.Tensor:
        """Its logarithm, accurate also near 0."""
        of_powers = self.plus * tf.math.log_sigmoid(F) + self.minus * tf.math.log_sigmoid(-F)
        return of_powers if self.rate is None else of_powers - self.rate * tf.sigmoid(F)

    def expected_log_prob(self, Fmu: TensorType, Fvar: TensorType) -> tf.Tensor:
        """E log, where log σ(−f) = log σ(f) − f."""
        log_share = expectation(tf.math.log_sigmoid, Fmu, Fvar)
        of_powers = (self.plus + self.minus) * log_share - self.minus * Fmu
        if self.rate is None:
            return of_powers
        return of_powers - self.rate * expectation(tf.sigmoid, Fmu, Fvar)

    def bound(self, Fmu: TensorType, Fvar: TensorType) -> tf.Tensor:
        """plus (m + log s) + minus log s − rate (1 − s) ≤ E log, equal where Fvar = 0."""
        log_share = log_s(Fmu, Fvar)
        of_powers = self.plus * (Fmu + log_share) + self.minus * log_share
        if self.rate is None:
            return of_powers
        return of_powers + self.rate * tf.math.expm1(log_share)

    def law(self, Fmu: TensorType, Fvar: TensorType) -> tfp.distributions.JointDistributionNamed:
        """The joint distribution of n and omega."""
        return tfp.distributions.JointDistributionNamed(
            {"n": self.law_of_n(Fmu, Fvar), "omega": lambda n: self.law_of_omega(Fmu, Fvar, n)}
        )

    def law_of_n(self, Fmu: TensorType, Fvar: TensorType) -> tfp.distributions.Poisson:
        return tfp.distributions.Poisson(self.rate * tf.exp(log_s(Fmu, Fvar)))

    def law_of_omega(self, Fmu: TensorType, Fvar: TensorType, n: TensorType = 0.0) -> PolyaGamma:
        """The distribution of omega given n."""
        c = tf.sqrt(tf.square(Fmu) + Fvar)  # its gradient at 0 is not defined
        return half_polya_gamma(self.plus + self.minus + n + tf.zeros_like(c), c)

    def log_joint(self, auxiliary: Any, F: TensorType) -> tf.Tensor:
        """The logarithm of the integrand in σ(f)^plus σ(−f)^minus e^{−rate σ(f)} = Σ_n ∫ … dω."""
        n, omega = auxiliary["n"], auxiliary["omega"]
        log_n = tf.math.xlogy(n, self.rate) - self.rate - tf.math.lgamma(n + 1.0)
        return log_n + self.log_joint_of_omega(omega, F, n)  # the slope at n = rate = 0 is finite

    def log_joint_of_omega(
        self, omega: TensorType, F: TensorType, n: TensorType = 0.0
    ) -> tf.Tensor:
        """
        The logarithm of the integrand in σ(f)^plus σ(−f)^{minus + n} = ∫ … dω.

        The integrand is 2^{−b} e^{(plus − minus − n) f/2 − f²ω} p(ω), where b = plus + minus + n
        and p is the density of PG(b, 0)/2.
        """
        minus = self.minus + n
        b = self.plus + minus
        log_law = half_polya_gamma(b, tf.zeros_like(b)).log_prob(omega)
        return (self.plus - minus) * F / 2.0 - b * np.log(2.0) - tf.square(F) * omega + log_law

    def site(self, omega: TensorType, n: TensorType = 0.0) -> Site:
        """Potential (plus − minus − n)/2, precision 2ω."""
        return (self.plus - self.minus - n) / 2.0 + tf.zeros_like(omega), 2.0 * omega


# ---- counts ----


class CountLikelihood(OutputwiseLikelihood, abc.ABC):
    """Counts y with p(y|f) = C(y) σ(f)^y σ(−f)^b e^{−λσ(f)} and C(0) = 1."""

    @abc.abstractmethod
    def powers(self, Y: TensorType) -> Powers:
        """The exponents y, b and λ."""

    @abc.abstractmethod
    def draw_rest(self, F: TensorType, Y: TensorType, until: tf.Tensor, seed: Any) -> tf.Tensor:
        """
        A draw of the number of events after the first one.

        :param until: −log P(no event until the time of the first one), from 0 to −log p(0|f).
        """

    def powers_of_zero(self, Y: TensorType) -> Powers:
        """The powers of p(0|f), at the further columns of Y."""
        return self.powers(self.with_response(tf.zeros_like(self.response(Y)), Y))


def f_of_log_zero(zero: Powers, level: tf.Tensor) -> tf.Tensor:
    """The f with −log p(0|f) = b softplus(f) + λσ(f) = ``level``, if b or λ is 0."""
    minus, rate = zero.minus + tf.zeros_like(level), zero.rate + tf.zeros_like(level)
    has_rate = rate > 0.0
    share = level / tf.where(has_rate, rate, tf.ones_like(rate))
    share = tf.clip_by_value(share, 1e-6, 0.9)
    of_power = level / tf.where(has_rate, tf.ones_like(minus), minus)
    of_rate = tf.math.log(share) - tf.math.log1p(-share)
    return tf.where(has_rate, of_rate, tfp.math.softplus_inverse(of_power))
