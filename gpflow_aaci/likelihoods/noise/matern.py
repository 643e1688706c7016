"""Noise whose density has the shape of a Matérn kernel."""

import math
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import TensorType

from ...distributions import GeneralizedInverseGaussian
from ...special import log_matern
from ..declared import Argument, positive
from ..parameters import as_number
from .residual import ResidualLikelihood


def _take_nu(likelihood: Any, name: str, value: Any) -> None:
    order = as_number(value) - 0.5
    if not (order >= 0.0 and order.is_integer()):
        owner = type(likelihood).__name__
        raise ValueError(f"{owner}: {name} must be one of 1/2, 3/2, 5/2, … Found: {value!r}.")
    setattr(likelihood, name, float(value))


class Matern(ResidualLikelihood):
    r"""
    C · 2^{1−ν}/Γ(ν) s^ν K_ν(s), s = √(2ν) |y − f|/ρ, for half-integer ν = ½, 3/2, 5/2, …

    C = √(2ν) Γ(ν) / (2√π Γ(ν + ½) ρ). ν = ½ is ``Laplace(ρ)``; ν → ∞ is Gaussian with variance ρ².
    φ(r) is e^{−s} times a polynomial of degree ν − ½ in s = √(2νr)/ρ: the Matérn kernel, which is a
    mixture of squared exponentials (AACI App. A.6).
    """

    nu: Any = Argument(1.5, "ν, a positive half-integer, which is held fixed.", _take_nu)
    scale = positive(1.0, "ρ")

    @property
    def order(self) -> int:
        """The degree of the polynomial."""
        return int(self.nu - 0.5)

    def log_C(self, Y: TensorType) -> tf.Tensor:
        total = 2.0 * math.sqrt(math.pi / (2.0 * self.nu))  # ∫ k(x) dx at ρ = 1
        total *= math.exp(math.lgamma(self.nu + 0.5) - math.lgamma(self.nu))
        return -tf.math.log(total * self.scale) + tf.zeros_like(Y)

    def log_phi(self, r: TensorType, Y: TensorType | None = None) -> tf.Tensor:
        unit = tf.cast(2.0 * self.nu / tf.square(self.scale), r.dtype)
        return log_matern(r * unit, self.order)

    def _tilted(self, c: tf.Tensor, Y: TensorType | None = None) -> tfp.distributions.Distribution:
        """GIG(p = −ν, a = 2c², b = ν/ρ²); at c = 0 inverse gamma."""
        nu = tf.constant(self.nu, c.dtype)
        scale = tf.cast(self.scale, c.dtype)
        return GeneralizedInverseGaussian(-nu, 2.0 * tf.square(c), nu / tf.square(scale))

    def noise_variance(self) -> tf.Tensor:
        """ρ² (2ν + 1)/2ν."""
        return (1.0 + 0.5 / self.nu) * tf.square(self.scale)

    def draw_y(self, F: TensorType, seed: Any) -> tf.Tensor:
        """f ± ρ s/√2ν: a term sⁱe⁻ˢ of φ is a Gamma(i + 1, 1) density, up to its weight."""
        seeds = tfp.random.split_seed(seed, n=3, salt="matern_noise")
        shape, dtype = tf.shape(F), F.dtype
        u = tf.random.stateless_uniform(shape, seeds[0], dtype=dtype)
        cumulated = np.cumsum(_gamma_weights(self.order))[:-1]
        order = tf.ones_like(F)
        for weight in cumulated:
            order += tf.cast(u > tf.cast(weight, dtype), dtype)
        s = tf.random.stateless_gamma(shape, seeds[1], order, dtype=dtype)
        sign = tf.sign(tf.random.stateless_uniform(shape, seeds[2], -1.0, 1.0, dtype))
        return F + sign * s * self.scale / tf.cast(np.sqrt(2.0 * self.nu), dtype)

    def _cdf(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        return tf.exp(self._log_survival(X, Y, F))  # the density is even in y − f

    def _log_survival(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        """The log of a sum of P(x > s) = e^{−s} Σ_{j ≤ i} sʲ/j! for x ~ Gamma(i + 1, 1)."""
        d = Y - F
        s = np.sqrt(2.0 * self.nu) * tf.abs(d) / self.scale
        s = tf.minimum(s, float(s.dtype.max) ** (1.0 / (self.order + 1)))  # so that sʲ is finite
        weights = np.cumsum(_gamma_weights(self.order)[::-1])[::-1]  # the sum of weights for i ≥ j
        coefficients = [w / math.factorial(j) for j, w in enumerate(weights)]
        polynomial = tf.math.polyval([tf.cast(c, s.dtype) for c in coefficients[::-1]], s)
        log_tail = tf.math.log(0.5 * polynomial) - s
        return tf.where(d > 0.0, log_tail, tf.math.log1p(-tf.exp(log_tail)))


class Matern32(Matern):
    """√3/(4ρ) (1 + s) e^{−s}, s = √3 |y − f|/ρ."""

    nu = 1.5


class Matern52(Matern):
    """3√5/(16ρ) (1 + s + s²/3) e^{−s}, s = √5 |y − f|/ρ."""

    nu = 2.5


def _gamma_weights(order: int) -> np.ndarray:
    """The weights of Gamma(1, 1), …, Gamma(order + 1, 1) in the mixture distribution of s."""
    log_weights = [
        math.lgamma(2 * order - i + 1) - math.lgamma(order - i + 1) + i * math.log(2.0)
        for i in range(order + 1)  # the coefficient of sⁱ/i!, up to a factor
    ]
    weights = np.exp(np.array(log_weights) - max(log_weights))
    return weights / weights.sum()
