"""The base classes of additive noise; Gaussian and logistic noise."""

import abc
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow import Parameter
from gpflow.base import MeanAndVariance, TensorType
from gpflow.config import default_float

from ...distributions import PolyaGamma
from ...distributions.parameters import CheckedSampling
from ...special import log_ndtr, log_sech_sqrt, ndtr
from ..declared import positive
from ..integrals.quadrature import expectation
from ..law import Law, draw_as_observed
from ..parameters import positive_parameter
from ..super_gaussian import SuperGaussianLikelihood


class Deterministic(CheckedSampling, tfp.distributions.Deterministic):
    """TFP's distribution, which also checks its arguments before it draws."""


class AdditiveNoise(Law, abc.ABC):
    """y = f + noise of constant variance, whose mean (median, if it has no mean) is 0."""

    @abc.abstractmethod
    def noise_variance(self) -> tf.Tensor:
        """Var[y|f], []."""

    def _conditional_mean(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return tf.identity(F)

    def _conditional_variance(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return tf.cast(self.noise_variance(), F.dtype) + tf.zeros_like(F)

    def _predict_mean_and_var(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType
    ) -> MeanAndVariance:
        return self._conditional_mean(X, Fmu), Fvar + self._conditional_variance(X, Fmu)


class ResidualLikelihood(AdditiveNoise, SuperGaussianLikelihood, abc.ABC):
    """p(y|f) = C φ((y − f)²): additive noise, independent for each output."""

    def alpha(self, Y: TensorType) -> tf.Tensor:
        return tf.square(self.response(Y))

    def beta(self, Y: TensorType) -> tf.Tensor:
        return 2.0 * self.response(Y)

    def gamma(self, Y: TensorType) -> tf.Tensor:
        return tf.ones_like(self.response(Y))


class Gaussian(ResidualLikelihood):
    """
    N(y | f, variance); φ(r) = exp(−r/2σ²).

    ω is the constant 1/2σ²: the model is conjugate, and one step of size 1 is exact inference. Each
    datum may have additional noise of known variance, as in measurements with error bars.
    """

    def __init__(
        self,
        variance: Any = None,
        *,
        scale: Any = None,
        with_noise_variance: bool = False,
        **kwargs: Any,
    ) -> None:
        """
        :param variance: σ², positive. Default: 1. Exclusive with ``scale``.
        :param scale: σ, positive. Exclusive with ``variance``.
        :param with_noise_variance: whether the last column of Y [N, 2] is a known variance s² ≥ 0
            of every datum, in units of y². Then σ² + s² replaces σ², and s² is 0 for a predicted
            y unless another is asked for.
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
        if with_noise_variance:
            self.latent_dim, self.given = 1, ("noise_variance",)

    def noise_variance(self) -> tf.Tensor:
        if self.variance is None:
            return tf.square(self.scale)
        return tf.convert_to_tensor(self.variance, dtype_hint=default_float())

    def _variance(self, dtype: tf.DType, Y: TensorType | None) -> tf.Tensor:
        # The variance is a plain number if this is the base of a ``Scaled``.
        variance = tf.cast(self.noise_variance(), dtype)
        if not self.given:
            return variance
        if Y is None:
            raise ValueError("Y must be given, as a column of it is a noise variance. Found: None.")
        return variance + tf.cast(Y[..., 1:], dtype)

    def _conditional_variance(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return self._variance(F.dtype, self.as_observed(F)) + tf.zeros_like(F)

    draw_y = draw_as_observed

    def draw_y_like(
        self, X: TensorType | None, F: TensorType, Y: TensorType, seed: Any
    ) -> tf.Tensor:
        scale = tf.sqrt(self._variance(F.dtype, Y))
        return tfp.distributions.Normal(F, scale).sample(seed=seed)

    def log_C(self, Y: TensorType) -> tf.Tensor:
        log_variance = tf.math.log(2.0 * np.pi * self._variance(Y.dtype, Y))
        return -0.5 * log_variance + tf.zeros_like(self.response(Y))

    def log_phi(self, r: TensorType, Y: TensorType | None = None) -> tf.Tensor:
        return -r / (2.0 * self._variance(r.dtype, Y))

    def _tilted(self, c: tf.Tensor, Y: TensorType | None = None) -> tfp.distributions.Distribution:
        """The constant 1/2σ²."""
        return Deterministic(0.5 / self._variance(c.dtype, Y) + tf.zeros_like(c))

    def predictive_log_density(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        variance = Fvar + self._variance(Fvar.dtype, Y)
        residual = self.response(Y) - Fmu
        return -0.5 * (tf.math.log(2.0 * np.pi * variance) + tf.square(residual) / variance)

    def _cdf(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        return self._predict_cdf(X, F, tf.zeros_like(F), Y)

    def _predict_cdf(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        return ndtr((self.response(Y) - Fmu) / tf.sqrt(Fvar + self._variance(Fvar.dtype, Y)))

    def _log_survival(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        return log_ndtr((F - self.response(Y)) / tf.sqrt(self._variance(F.dtype, Y)))

    def expected_log_prob(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        """log p with E(y − f)² for (y − f)², as log p is quadratic in f."""
        return self.log_C(Y) + self.log_phi(self.expected_h_squared(Fmu, Fvar, Y), Y)


class LogisticNoise(ResidualLikelihood):
    """
    1/(4s cosh²((y − f)/2s)): heavier tails than Gaussian noise, but smooth at y = f.

    φ(r) = 1/cosh²(√r/2s). (``Logistic`` is another likelihood, for classes.)
    """

    scale = positive(1.0, "s")

    def log_C(self, Y: TensorType) -> tf.Tensor:
        return -tf.math.log(4.0 * self.scale) + tf.zeros_like(Y)

    def log_phi(self, r: TensorType, Y: TensorType | None = None) -> tf.Tensor:
        return 2.0 * log_sech_sqrt(r / tf.cast(4.0 * tf.square(self.scale), r.dtype))

    def _tilted(self, c: tf.Tensor, Y: TensorType | None = None) -> tfp.distributions.Distribution:
        """PG(2, c/s)/2s²."""
        scale = tf.cast(self.scale, c.dtype)
        return PolyaGamma(2.0 * tf.ones([], c.dtype), c / scale, 0.5 / tf.square(scale))

    def noise_variance(self) -> tf.Tensor:
        """π²s²/3."""
        return np.pi**2 / 3.0 * tf.square(self.scale)

    def draw_y(self, F: TensorType, seed: Any) -> tf.Tensor:
        return tfp.distributions.Logistic(F, self.scale).sample(seed=seed)

    def _cdf(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        return tf.sigmoid((Y - F) / self.scale)

    def _log_survival(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        return tf.math.log_sigmoid((F - Y) / self.scale)

    def expected_log_prob(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        """E[log σ(u) + log σ(−u)] − log s, u = (y − f)/s."""
        log_p = expectation(
            lambda u: 2.0 * tf.math.log_sigmoid(u) - u,
            (Y - Fmu) / self.scale,
            Fvar / tf.square(self.scale),
        )
        return log_p - tf.math.log(self.scale)
