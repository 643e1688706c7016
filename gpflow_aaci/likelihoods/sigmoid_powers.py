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
from ..validation import Check, check_all
from .base import Site
from .integrals.quadrature import expectation
from .outputwise import OutputwiseLikelihood
from .super_gaussian import SuperGaussianLikelihood


class PowerOfCosh(SuperGaussianLikelihood, abc.ABC):
    """φ(r) = cosh^{−b(y)}(√r/2), h² = f²: ω ~ PG(b, c)/2 (Polson, Scott and Windle 2013)."""

    @abc.abstractmethod
    def exponent(self, Y: TensorType) -> tf.Tensor:
        """b(y), [..., L]."""

    def alpha(self, Y: TensorType) -> tf.Tensor:
        return tf.zeros_like(self.exponent(Y))

    def beta(self, Y: TensorType) -> tf.Tensor:
        return tf.zeros_like(self.exponent(Y))

    def gamma(self, Y: TensorType) -> tf.Tensor:
        return tf.ones_like(self.exponent(Y))

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


def log_cosh_and_one_minus_s(Fmu: TensorType, Fvar: TensorType) -> tuple[tf.Tensor, tf.Tensor]:
    """lc = log 2cosh(c/2), where c² = E f², and 1 − s, where s = e^{−Fmu/2 − lc} ≤ E σ(−f)."""
    log_share = log_s(Fmu, Fvar)
    return -Fmu / 2.0 - log_share, -tf.math.expm1(log_share)


def root_mean_square(Fmu: TensorType, Fvar: TensorType) -> tf.Tensor:
    """c = √E f², as the parameter of a distribution; its gradient at 0 is not defined."""
    return tf.sqrt(tf.square(Fmu) + Fvar)


def half_polya_gamma(b: TensorType, c: TensorType) -> PolyaGamma:
    """The distribution of ω ~ PG(b, c)/2."""
    return PolyaGamma(b, c, tf.constant(0.5, c.dtype))


def log_powers_of_sigmoid(
    plus: TensorType, minus: TensorType, omega: TensorType, F: TensorType
) -> tf.Tensor:
    """
    The logarithm of the integrand in σ(f)^plus σ(−f)^minus = ∫ … dω.

    The integrand is 2^{−b} e^{(plus − minus) f/2 − f²ω} p(ω), where b = plus + minus and p is the
    density of PG(b, 0)/2.
    """
    b = plus + minus
    log_law = half_polya_gamma(b, tf.zeros_like(b)).log_prob(omega)
    return (plus - minus) * F / 2.0 - b * np.log(2.0) - tf.square(F) * omega + log_law


# ---- the rate core a log σ(f) − b σ(f), a, b ≥ 0 with the shape of f or broadcast to it ----


def rate_bound(a: TensorType, b: TensorType, Fmu: TensorType, Fvar: TensorType) -> tf.Tensor:
    """a (m/2 − lc) − b (1 − s) ≤ E [a log σ(f) − b σ(f)], equal where Fvar = 0."""
    lc, one_minus_s = log_cosh_and_one_minus_s(Fmu, Fvar)
    return a * (Fmu / 2.0 - lc) - b * one_minus_s


def rate_expectation(a: TensorType, b: TensorType, Fmu: TensorType, Fvar: TensorType) -> tf.Tensor:
    """E [a log σ(f) − b σ(f)]."""
    log_share = expectation(tf.math.log_sigmoid, Fmu, Fvar)
    return a * log_share - b * expectation(tf.sigmoid, Fmu, Fvar)


def rate_law(
    a: TensorType, b: TensorType, Fmu: TensorType, Fvar: TensorType
) -> tfp.distributions.JointDistributionNamed:
    """n ~ Poisson(b s) and, given n, omega ~ PG(a + n, c)/2, which is 0 if a = n = 0."""
    c = root_mean_square(Fmu, Fvar)
    return tfp.distributions.JointDistributionNamed(
        {
            "n": tfp.distributions.Poisson(b * tf.exp(log_s(Fmu, Fvar))),
            "omega": lambda n: half_polya_gamma(a + n, c),
        }
    )


def rate_log_joint(
    a: TensorType, b: TensorType, auxiliary: Any, F: TensorType, minus: TensorType = 0.0
) -> tf.Tensor:
    """The logarithm of the integrand in σ(f)^a σ(−f)^minus e^{−b σ(f)} = Σ_n ∫ … dω."""
    n, omega = auxiliary["n"], auxiliary["omega"]
    log_n = tf.math.xlogy(n, b) - b - tf.math.lgamma(n + 1.0)  # its slope at n = b = 0 is finite
    return log_n + log_powers_of_sigmoid(a, minus + n, omega, F)


def rate_site(a: TensorType, auxiliary: Any, minus: TensorType = 0.0) -> Site:
    """Potential (a − minus − n)/2, precision 2ω."""
    return (a - minus - auxiliary["n"]) / 2.0, 2.0 * auxiliary["omega"]


# ---- counts ----


class Powers(NamedTuple):
    """σ(f)^plus σ(−f)^minus e^{−rate σ(f)}, with exponents [..., N, L]."""

    plus: tf.Tensor
    minus: tf.Tensor
    rate: tf.Tensor

    def log_at_origin(self) -> tf.Tensor:
        """Its logarithm at f = 0."""
        return -np.log(2.0) * (self.plus + self.minus) - 0.5 * self.rate

    def times(self, other: "Powers", k: TensorType) -> "Powers":
        """Its product with the k-th power of ``other``."""
        return Powers(*(own + k * more for own, more in zip(self, other, strict=True)))


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


def log_zero_prob(zero: Powers, F: TensorType) -> tf.Tensor:
    """log p(0|f) = b log σ(−f) − λσ(f), accurate also near 0."""
    return zero.minus * tf.math.log_sigmoid(-F) - zero.rate * tf.sigmoid(F)


def log_zero_bound(zero: Powers, Fmu: TensorType, Fvar: TensorType) -> tf.Tensor:
    """b log s − λ(1 − s) ≤ E log p(0|f), equal where Fvar = 0."""
    log_share = log_s(Fmu, Fvar)
    return zero.minus * log_share + zero.rate * tf.math.expm1(log_share)


def f_of_log_zero(zero: Powers, level: tf.Tensor) -> tf.Tensor:
    """The f with −log p(0|f) = b softplus(f) + λσ(f) = ``level``, if b or λ is 0."""
    has_rate = zero.rate > 0.0
    share = level / tf.where(has_rate, zero.rate, tf.ones_like(zero.rate))
    share = tf.clip_by_value(share, 1e-6, 0.9)
    of_power = level / tf.where(has_rate, tf.ones_like(zero.minus), zero.minus)
    of_rate = tf.math.log(share) - tf.math.log1p(-share)
    return tf.where(has_rate, of_rate, tfp.math.softplus_inverse(of_power))


def are_counts(Y: tf.Tensor, owner: str) -> Check:
    """Check that Y holds whole numbers from 0 up."""
    is_count = (Y >= 0.0) & tf.equal(Y, tf.round(Y))
    return check_all(Y, is_count, f"Y must hold whole numbers from 0 up for {owner}.")
