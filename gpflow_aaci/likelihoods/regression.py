"""Likelihoods of a real y = f + noise: h² is a squared residual."""

import abc
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from check_shapes import inherit_check_shapes
from gpflow import Parameter
from gpflow.base import MeanAndVariance, TensorType
from gpflow.utilities import to_default_float

from ..distributions import GeneralizedInverseGaussian, InverseGaussian
from ..distributions.parameters import CheckedSampling
from ..special import log_matern32, log_matern52
from .base import positive_parameter
from .quadrature import expectation, safe_sqrt
from .super_gaussian import SuperGaussianLikelihood


class _Gamma(CheckedSampling, tfp.distributions.Gamma):
    """TFP's."""


class _Deterministic(CheckedSampling, tfp.distributions.Deterministic):
    """TFP's."""


class ResidualLikelihood(SuperGaussianLikelihood, abc.ABC):
    """p(y|f) = C φ((y − f)²): noise of zero mean (median, where it has none), added to f."""

    def alpha(self, Y: TensorType) -> tf.Tensor:
        return tf.square(Y)

    def beta(self, Y: TensorType) -> tf.Tensor:
        return 2.0 * Y

    def gamma(self, Y: TensorType) -> tf.Tensor:
        return tf.ones_like(Y)

    @abc.abstractmethod
    def noise_variance(self) -> tf.Tensor:
        """Var[y|f], []."""

    @inherit_check_shapes
    def _conditional_mean(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return tf.identity(F)

    @inherit_check_shapes
    def _conditional_variance(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return self.noise_variance() + tf.zeros_like(F)

    @inherit_check_shapes
    def _predict_mean_and_var(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType
    ) -> MeanAndVariance:
        return self._conditional_mean(X, Fmu), Fvar + self._conditional_variance(X, Fmu)


class Gaussian(ResidualLikelihood):
    """
    N(y | f, variance); φ(r) = exp(−r/2σ²).

    ω is the constant 1/2σ²: exact conjugacy, so one step of size 1 is exact inference.
    """

    def __init__(self, variance: Any = None, *, scale: Any = None, **kwargs: Any) -> None:
        """
        :param variance: σ², positive; 1 unless given. Exclusive with ``scale``.
        :param scale: σ, positive. Exclusive with ``variance``.
        :raises ValueError: for values that are not positive and finite, or both given.
        """
        super().__init__(**kwargs)
        if variance is not None and scale is not None:
            raise ValueError("Gaussian: variance and scale must not both be given.")
        self.variance: Parameter | None = None
        self.scale: Parameter | None = None
        if scale is None:
            self.variance = positive_parameter(
                "Gaussian", "variance", 1.0 if variance is None else variance
            )
        else:
            self.scale = positive_parameter("Gaussian", "scale", scale)

    def noise_variance(self) -> tf.Tensor:
        if self.variance is None:
            return tf.square(self.scale)
        return tf.convert_to_tensor(self.variance)

    def draw_y(self, F: TensorType, seed: Any) -> tf.Tensor:
        return tfp.distributions.Normal(F, tf.sqrt(self.noise_variance())).sample(seed=seed)

    def log_C(self, Y: TensorType) -> tf.Tensor:
        return -0.5 * tf.math.log(2.0 * np.pi * self.noise_variance()) + tf.zeros_like(Y)

    def log_phi(self, r: TensorType) -> tf.Tensor:
        return -r / tf.cast(2.0 * self.noise_variance(), r.dtype)

    def _tilted(self, c: tf.Tensor) -> tfp.distributions.Distribution:
        """The constant 1/2σ²."""
        return _Deterministic(0.5 / tf.cast(self.noise_variance(), c.dtype) + tf.zeros_like(c))

    def scalar_log_density(self, Fmu: TensorType, Fvar: TensorType, Y: TensorType) -> tf.Tensor:
        variance = Fvar + self.noise_variance()
        return -0.5 * (tf.math.log(2.0 * np.pi * variance) + tf.square(Y - Fmu) / variance)

    @inherit_check_shapes
    def _variational_expectations(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        # log p is quadratic in f, so its expectation is itself at E(y − f)².
        expected_residual = self.expected_h_squared(Fmu, Fvar, Y)
        return tf.reduce_sum(self.log_C(Y) + self.log_phi(expected_residual), axis=-1)


class StudentT(ResidualLikelihood):
    """
    Student's t with location f; h² = ((y − f)/σ)², φ(r) = (1 + r/ν)^{−(ν+1)/2}.

    C = Γ((ν+1)/2) / (Γ(ν/2) √(νπ) σ). (The paper's A.6 writes Γ(ν) for Γ(ν/2).)
    """

    def __init__(self, scale: Any = 1.0, df: Any = 3.0, **kwargs: Any) -> None:
        """
        :param scale: σ, positive.
        :param df: ν, degrees of freedom, positive; learnable, and kept above 1 where it begins
            there, so that y has a mean. A ``Parameter`` is shared, with its own transform.
        :raises ValueError: for values that are not positive and finite.
        """
        super().__init__(**kwargs)
        self.scale = positive_parameter("StudentT", "scale", scale)
        self.df: Parameter | float = positive_parameter("StudentT", "df", df, above=1.0)

    def _df(self, dtype: tf.DType) -> tf.Tensor:
        # A plain number where it was converted from GPflow's StudentT.
        return tf.cast(to_default_float(self.df), dtype)

    def log_C(self, Y: TensorType) -> tf.Tensor:
        df = self._df(Y.dtype)
        log_C = (
            tf.math.lgamma((df + 1.0) / 2.0)
            - tf.math.lgamma(df / 2.0)
            - 0.5 * tf.math.log(df * np.pi)
            - tf.math.log(self.scale)
        )
        return log_C + tf.zeros_like(Y)

    def alpha(self, Y: TensorType) -> tf.Tensor:
        return tf.square(Y / self.scale)

    def beta(self, Y: TensorType) -> tf.Tensor:
        return 2.0 * Y / tf.square(self.scale)

    def gamma(self, Y: TensorType) -> tf.Tensor:
        return 1.0 / tf.square(self.scale) + tf.zeros_like(Y)

    def log_phi(self, r: TensorType) -> tf.Tensor:
        df = self._df(r.dtype)
        return -(df + 1.0) / 2.0 * tf.math.log1p(r / df)

    def _tilted(self, c: tf.Tensor) -> tfp.distributions.Distribution:
        """Gamma((ν+1)/2, rate ν + c²)."""
        df = self._df(c.dtype)
        return _Gamma((df + 1.0) / 2.0, df + tf.square(c))

    def noise_variance(self) -> tf.Tensor:
        """σ²ν/(ν−2), infinite for ν ≤ 2."""
        scale = tf.convert_to_tensor(self.scale)
        df = self._df(scale.dtype)
        finite = df > 2.0
        excess = tf.where(finite, df - 2.0, tf.ones_like(df))
        infinity = tf.constant(np.inf, scale.dtype)
        return tf.where(finite, tf.square(scale) * df / excess, infinity)

    def draw_y(self, F: TensorType, seed: Any) -> tf.Tensor:
        return tfp.distributions.StudentT(self._df(F.dtype), F, self.scale).sample(seed=seed)

    @inherit_check_shapes
    def _conditional_mean(self, X: TensorType, F: TensorType) -> tf.Tensor:
        """f, or NaN where it does not exist, ν ≤ 1."""
        return tf.where(self._df(F.dtype) > 1.0, F, tf.constant(np.nan, F.dtype))


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

    def log_phi(self, r: TensorType) -> tf.Tensor:
        return -tf.sqrt(r) / tf.cast(self.scale, r.dtype)

    def _tilted(self, c: tf.Tensor) -> tfp.distributions.Distribution:
        """InverseGaussian(mean 1/2βc, shape 1/2β²); at c = 0 a Lévy law, of infinite mean."""
        scale = tf.cast(self.scale, c.dtype)
        return InverseGaussian(0.5 / (scale * c), 0.5 / tf.square(scale))

    def noise_variance(self) -> tf.Tensor:
        return 2.0 * tf.square(self.scale)

    def draw_y(self, F: TensorType, seed: Any) -> tf.Tensor:
        return tfp.distributions.Laplace(F, self.scale).sample(seed=seed)

    @inherit_check_shapes
    def _variational_expectations(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        """E|y − f| = d erf(d/√(2v)) + √(2v/π) e^{−d²/2v}, d = y − Fmu."""
        d, sd = Y - Fmu, safe_sqrt(Fvar)
        z = d / sd
        expected_abs = d * tf.math.erf(z / np.sqrt(2.0)) + np.sqrt(2.0 / np.pi) * sd * tf.exp(
            -0.5 * tf.square(z)
        )
        return tf.reduce_sum(self.log_C(Y) - expected_abs / self.scale, axis=-1)

    def scalar_log_density(self, Fmu: TensorType, Fvar: TensorType, Y: TensorType) -> tf.Tensor:
        """
        (1/4β) e^{−z²/2} [erfcx((s/β + z)/√2) + erfcx((s/β − z)/√2)], s² = Fvar, z = (y − Fmu)/s.

        Written with erfcx, the exponents e^{s²/2β² ± sz/β} of the textbook form cancel exactly.
        """
        d, sd = Y - Fmu, safe_sqrt(Fvar)

        def log_tail(d: tf.Tensor) -> tf.Tensor:
            z, ratio = d / sd, sd / self.scale
            x = (ratio + z) / np.sqrt(2.0)
            right = x > 0
            # Where x ≤ 0, erfcx(x) e^{−z²/2} = e^{ratio²/2 + d/β} erfc(x), and z² has cancelled.
            far = tfp.math.logerfcx(tf.where(right, x, tf.zeros_like(x))) - 0.5 * tf.square(
                tf.where(right, z, tf.zeros_like(x))
            )
            near = (
                0.5 * tf.square(ratio)
                + d / self.scale
                + tf.math.log(tf.math.erfc(tf.where(right, tf.zeros_like(x), x)))
            )
            return tf.where(right, far, near)

        return tfp.math.log_add_exp(log_tail(d), log_tail(-d)) - tf.math.log(4.0 * self.scale)


class _Matern(ResidualLikelihood, abc.ABC):
    """A density of the shape of a Matérn kernel: h² = (2ν/ρ²)(y − f)²."""

    two_nu: float
    gamma_weights: Sequence[float]  # of Gamma(1, 1), Gamma(2, 1), ... in the law of s

    def __init__(self, scale: Any = 1.0, **kwargs: Any) -> None:
        """
        :param scale: ρ, positive.
        :raises ValueError: for a value that is not positive and finite.
        """
        super().__init__(**kwargs)
        self.scale = positive_parameter(type(self).__name__, "scale", scale)

    @abc.abstractmethod
    def _log_phi_of(self, s: TensorType) -> tf.Tensor:
        """log φ as a function of s = √(2ν) |y − f|/ρ; ``log_phi`` holds more digits at s = 0."""

    def scalar_variational_expectations(
        self, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        """log C + E log φ, the latter by quadrature over s."""
        unit = np.sqrt(self.two_nu) / self.scale
        return self.log_C(Y) + expectation(
            lambda x: self._log_phi_of(tf.abs(x)), unit * (Fmu - Y), tf.square(unit) * Fvar
        )

    def _scaled(self, r: TensorType) -> tf.Tensor:
        return r * tf.cast(self.two_nu / tf.square(self.scale), r.dtype)

    def _tilted(self, c: tf.Tensor) -> tfp.distributions.Distribution:
        """GIG(p = −ν, a = 2c², b = ν/ρ²); at c = 0 an inverse gamma law."""
        nu = tf.constant(self.two_nu / 2.0, c.dtype)
        scale = tf.cast(self.scale, c.dtype)
        return GeneralizedInverseGaussian(-nu, 2.0 * tf.square(c), nu / tf.square(scale))

    def draw_y(self, F: TensorType, seed: Any) -> tf.Tensor:
        """f ± ρ s/√2ν: a term sᵏe⁻ˢ of φ is a Gamma(k + 1, 1) density, up to its weight."""
        seeds = tfp.random.split_seed(seed, n=3, salt="matern_noise")
        shape, dtype = tf.shape(F), F.dtype
        u = tf.random.stateless_uniform(shape, seeds[0], dtype=dtype)
        cumulated = np.cumsum(self.gamma_weights)[:-1]
        order = 1.0 + tf.add_n([tf.cast(u > tf.cast(w, dtype), dtype) for w in cumulated])
        s = tf.random.stateless_gamma(shape, seeds[1], order, dtype=dtype)
        sign = tf.sign(tf.random.stateless_uniform(shape, seeds[2], -1.0, 1.0, dtype))
        return F + sign * s * self.scale / tf.cast(np.sqrt(self.two_nu), dtype)


class Matern32(_Matern):
    """√3/(4ρ) (1 + s) e^{−s}, s = √3 |y − f|/ρ. (The paper's A.6 inverts the constant.)"""

    two_nu = 3.0
    gamma_weights = (1 / 2, 1 / 2)

    def log_C(self, Y: TensorType) -> tf.Tensor:
        return tf.math.log(np.sqrt(3.0) / (4.0 * self.scale)) + tf.zeros_like(Y)

    def log_phi(self, r: TensorType) -> tf.Tensor:
        return log_matern32(self._scaled(r))

    def _log_phi_of(self, s: TensorType) -> tf.Tensor:
        return tf.math.log1p(s) - s

    def noise_variance(self) -> tf.Tensor:
        return 4.0 / 3.0 * tf.square(self.scale)


class Matern52(_Matern):
    """3√5/(16ρ) (1 + s + s²/3) e^{−s}, s = √5 |y − f|/ρ."""

    two_nu = 5.0
    gamma_weights = (3 / 8, 3 / 8, 2 / 8)

    def log_C(self, Y: TensorType) -> tf.Tensor:
        return tf.math.log(3.0 * np.sqrt(5.0) / (16.0 * self.scale)) + tf.zeros_like(Y)

    def log_phi(self, r: TensorType) -> tf.Tensor:
        return log_matern52(self._scaled(r))

    def _log_phi_of(self, s: TensorType) -> tf.Tensor:
        return tf.math.log1p(s + tf.square(s) / 3.0) - s

    def noise_variance(self) -> tf.Tensor:
        return 6.0 / 5.0 * tf.square(self.scale)
