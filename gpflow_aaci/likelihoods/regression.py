"""Likelihoods of a real y = f + noise: h² is a squared residual."""

import abc
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from check_shapes import inherit_check_shapes
from gpflow import Parameter
from gpflow.base import MeanAndVariance, TensorType
from gpflow.config import default_float
from gpflow.utilities import to_default_float

from ..distributions import InverseGaussian
from ..distributions.parameters import CheckedSampling
from ..special import ndtr, student_t_cdf
from .base import positive_parameter
from .super_gaussian import SuperGaussianLikelihood
from .two_sided import (
    expected_absolute,
    expected_two_sided_cdf,
    log_exponential_side,
    two_sided_cdf,
)


class Gamma(CheckedSampling, tfp.distributions.Gamma):
    """TFP's."""


class Deterministic(CheckedSampling, tfp.distributions.Deterministic):
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
        return tf.cast(self.noise_variance(), F.dtype) + tf.zeros_like(F)

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
        return tf.convert_to_tensor(self.variance, dtype_hint=default_float())

    def _variance(self, dtype: tf.DType) -> tf.Tensor:
        # A plain number where ``Scaled`` has this for its base.
        return tf.cast(self.noise_variance(), dtype)

    def draw_y(self, F: TensorType, seed: Any) -> tf.Tensor:
        return tfp.distributions.Normal(F, tf.sqrt(self._variance(F.dtype))).sample(seed=seed)

    def log_C(self, Y: TensorType) -> tf.Tensor:
        return -0.5 * tf.math.log(2.0 * np.pi * self._variance(Y.dtype)) + tf.zeros_like(Y)

    def log_phi(self, r: TensorType) -> tf.Tensor:
        return -r / (2.0 * self._variance(r.dtype))

    def _tilted(self, c: tf.Tensor) -> tfp.distributions.Distribution:
        """The constant 1/2σ²."""
        return Deterministic(0.5 / self._variance(c.dtype) + tf.zeros_like(c))

    def scalar_log_density(self, Fmu: TensorType, Fvar: TensorType, Y: TensorType) -> tf.Tensor:
        variance = Fvar + self._variance(Fvar.dtype)
        return -0.5 * (tf.math.log(2.0 * np.pi * variance) + tf.square(Y - Fmu) / variance)

    def _cdf(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        return ndtr((Y - F) / tf.sqrt(self._variance(F.dtype)))

    def _predict_cdf(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        return ndtr((Y - Fmu) / tf.sqrt(Fvar + self._variance(Fvar.dtype)))

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
        self.scale: Parameter | float = positive_parameter("StudentT", "scale", scale)
        self.df: Parameter | float = positive_parameter("StudentT", "df", df, above=1.0)

    # Plain numbers where it was converted from GPflow's StudentT.

    def _scale(self, dtype: tf.DType) -> tf.Tensor:
        return tf.cast(to_default_float(self.scale), dtype)

    def _df(self, dtype: tf.DType) -> tf.Tensor:
        return tf.cast(to_default_float(self.df), dtype)

    def log_C(self, Y: TensorType) -> tf.Tensor:
        df = self._df(Y.dtype)
        log_C = (
            tf.math.lgamma((df + 1.0) / 2.0)
            - tf.math.lgamma(df / 2.0)
            - 0.5 * tf.math.log(df * np.pi)
            - tf.math.log(self._scale(Y.dtype))
        )
        return log_C + tf.zeros_like(Y)

    def alpha(self, Y: TensorType) -> tf.Tensor:
        return tf.square(Y / self._scale(Y.dtype))

    def beta(self, Y: TensorType) -> tf.Tensor:
        return 2.0 * Y / tf.square(self._scale(Y.dtype))

    def gamma(self, Y: TensorType) -> tf.Tensor:
        return 1.0 / tf.square(self._scale(Y.dtype)) + tf.zeros_like(Y)

    def log_phi(self, r: TensorType) -> tf.Tensor:
        df = self._df(r.dtype)
        return -(df + 1.0) / 2.0 * tf.math.log1p(r / df)

    def _tilted(self, c: tf.Tensor) -> tfp.distributions.Distribution:
        """Gamma((ν+1)/2, rate ν + c²)."""
        df = self._df(c.dtype)
        return Gamma((df + 1.0) / 2.0, df + tf.square(c))

    def noise_variance(self) -> tf.Tensor:
        """σ²ν/(ν−2), infinite for ν ≤ 2."""
        scale = tf.convert_to_tensor(self.scale, dtype_hint=default_float())
        return student_t_variance(scale, self._df(scale.dtype))

    def draw_y(self, F: TensorType, seed: Any) -> tf.Tensor:
        return tfp.distributions.StudentT(self._df(F.dtype), F, self._scale(F.dtype)).sample(
            seed=seed
        )

    def _cdf(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        return student_t_cdf((Y - F) / self._scale(F.dtype), self._df(F.dtype))

    def _predict_cdf(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        scale, df = self._scale(Fmu.dtype), self._df(Fmu.dtype)
        return student_t_predictive_cdf(Y - Fmu, Fvar, scale, df)

    @inherit_check_shapes
    def _conditional_mean(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return student_t_mean(F, self._df(F.dtype))


def student_t_predictive_cdf(
    residual: tf.Tensor, variance: tf.Tensor, scale: TensorType, df: tf.Tensor
) -> tf.Tensor:
    """E Φ(residual/√(variance + σ²/λ)), λ ~ Gamma(ν/2, rate ν/2), by the sum over u = log λ."""
    # λ's law in u is as wide as 1/√(ν/2), and left of 0 falls as e^{νu/2}; the sum converges
    # exponentially in its step.
    width = 9.5 * tf.sqrt(2.0 / df)
    step = tf.minimum(0.05 * width, 0.25)
    u = tf.range(-width - 80.0 / df, tf.math.log1p(width + 90.0 / df), step)
    u = tf.reshape(u, [-1] + [1] * len((residual + variance).shape))
    weight = tf.exp(-df / 2.0 * (tf.math.expm1(u) - u))
    of_y = variance + tf.square(scale) * tf.exp(-u)
    total = tf.reduce_sum(weight * ndtr(residual / tf.sqrt(of_y)), 0)
    return total / tf.reduce_sum(weight)


def student_t_mean(F: TensorType, df: tf.Tensor) -> tf.Tensor:
    """f, or NaN where it does not exist, ν ≤ 1."""
    return tf.where(df > 1.0, F, tf.constant(np.nan, F.dtype))


def student_t_variance(scale: tf.Tensor, df: tf.Tensor) -> tf.Tensor:
    """σ²ν/(ν−2), infinite for ν ≤ 2."""
    finite = df > 2.0
    excess = tf.where(finite, df - 2.0, tf.ones_like(df))
    infinity = tf.constant(np.inf, scale.dtype)
    return tf.where(finite, tf.square(scale) * df / excess, infinity)


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
        d = Y - Fmu
        return tf.reduce_sum(self.log_C(Y) - expected_absolute(d, Fvar) / self.scale, axis=-1)

    def scalar_log_density(self, Fmu: TensorType, Fvar: TensorType, Y: TensorType) -> tf.Tensor:
        """(1/2β) E e^{−|y − f|/β}, one side of the kink after the other."""
        d = Y - Fmu
        above, below = (log_exponential_side(each, Fvar, self.scale) for each in (-d, d))
        return tfp.math.log_add_exp(above, below) - tf.math.log(2.0 * self.scale)

    def _cdf(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        return two_sided_cdf(Y - F, self.scale, self.scale)

    def _predict_cdf(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        return expected_two_sided_cdf(Y - Fmu, Fvar, self.scale, self.scale)
