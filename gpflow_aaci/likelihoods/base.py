"""The super-Gaussian likelihood: six statements from which everything else is derived once."""

import abc
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from check_shapes import check_shapes, inherit_check_shapes
from gpflow import Parameter
from gpflow.base import MeanAndVariance, TensorType
from gpflow.config import default_likelihood_positive_minimum
from gpflow.functions import Function
from gpflow.likelihoods import ScalarLikelihood
from gpflow.utilities import positive, to_default_float

from ..distributions import TiltedDistribution
from ..distributions.parameters import check_parameter, parameters_of_one_dtype
from ..validation import Check, require
from .quadrature import lifted, log_expectation


def c_squared_floor(dtype: tf.DType) -> tf.Tensor:
    """
    The one floor on c²: the machine epsilon of ``dtype``.

    As c → 0, ω̄ may tend to infinity (Laplace, SVM) and the site to a hard constraint f = y. Any
    c is a valid choice of q(ω), so a floor keeps the bound a bound; this one keeps the precision
    of a site where a Cholesky factorisation still succeeds.
    """
    return tf.constant(np.finfo(dtype.as_numpy_dtype).eps, dtype)


class SuperGaussianLikelihood(ScalarLikelihood, abc.ABC):
    r"""
    p(y|f) = C(y) exp(g(y) f) φ(h²), h² = α(y) − β(y) f + γ(y) f² ≥ 0 (AACI Eq. 4-5).

    φ is completely monotone on (0, ∞) and continuous at 0 with φ(0) = 1, hence the Laplace
    transform φ(r) = ∫ e^{−rω} π_φ(ω|0) dω of an auxiliary variable ω. A subclass states
    ``log_C``, ``g`` (0 unless given), ``alpha``, ``beta``, ``gamma`` and ``log_phi``; the
    augmentation, its bound, its updates and its checks follow. It is an ordinary
    ``gpflow.likelihoods.ScalarLikelihood`` too. To predict y, define ``_conditional_mean`` and
    ``_conditional_variance`` as for any GPflow likelihood.

    ``Y`` is [..., P] throughout, and so is what the methods return unless they say otherwise.
    """

    is_density: bool = True
    """Whether ∫ p(y|f) dy = 1; False for a pseudo-likelihood."""

    labels: Sequence[float] | None = None
    """The values that y takes, or None where y is real."""

    # ---- what a member states (Eq. 4-5) ----

    @abc.abstractmethod
    def log_C(self, Y: TensorType) -> tf.Tensor:
        """log C(y)."""

    def g(self, Y: TensorType) -> tf.Tensor:
        """g(y), the coefficient of the linear term exp(g f)."""
        return tf.zeros_like(Y)

    @abc.abstractmethod
    def alpha(self, Y: TensorType) -> tf.Tensor:
        """α(y) in h² = α − β f + γ f²."""

    @abc.abstractmethod
    def beta(self, Y: TensorType) -> tf.Tensor:
        """β(y), with β² ≤ 4αγ."""

    @abc.abstractmethod
    def gamma(self, Y: TensorType) -> tf.Tensor:
        """γ(y) ≥ 0."""

    @abc.abstractmethod
    def log_phi(self, r: TensorType) -> tf.Tensor:
        """
        log φ(r), elementwise, at real r ≥ 0 and at complex r with positive real part.

        TensorFlow does not mix dtypes: write ``tf.cast(self.scale, r.dtype)``. ``log1p``,
        ``sqrt``, ``log`` and ``expm1`` take complex arguments, ``tf.math.softplus`` does not.
        """

    # ---- GPflow's own entry points: arrays and integer labels, as its likelihoods take them ----

    @inherit_check_shapes
    def log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        return super().log_prob(X, to_default_float(F), to_default_float(Y))

    @inherit_check_shapes
    def predict_mean_and_var(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType
    ) -> MeanAndVariance:
        return super().predict_mean_and_var(X, to_default_float(Fmu), to_default_float(Fvar))

    @inherit_check_shapes
    def predict_log_density(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        return super().predict_log_density(X, *map(to_default_float, (Fmu, Fvar, Y)))

    @inherit_check_shapes
    def variational_expectations(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        return super().variational_expectations(X, *map(to_default_float, (Fmu, Fvar, Y)))

    # ---- what follows ----

    @check_shapes("Y: [broadcast batch...]", "return[0]: [batch...]", "return[1]: [batch...]")
    def complete_square(self, Y: TensorType) -> tuple[tf.Tensor, tf.Tensor]:
        """
        The centre β/2γ and the remainder α − β²/4γ of h² = γ (f − centre)² + remainder.

        α − β m + γ m² loses every digit where α is large against h²; the square does not. Where
        β² = 4αγ up to rounding the remainder is 0. (γ = 0 implies β = 0: centre 0, remainder α.)
        """
        alpha, beta, gamma = self.alpha(Y), self.beta(Y), self.gamma(Y)
        curved = gamma > 0
        safe_gamma = tf.where(curved, gamma, tf.ones_like(gamma))
        centre = tf.where(curved, beta / (2.0 * safe_gamma), tf.zeros_like(beta))
        remainder = alpha - centre * beta / 2.0
        rounding = 8.0 * np.finfo(alpha.dtype.as_numpy_dtype).eps * tf.abs(alpha)
        return centre, tf.where(remainder <= rounding, tf.zeros_like(remainder), remainder)

    @check_shapes(
        "Fmu: [broadcast batch...]",
        "Fvar: [broadcast batch...]",
        "Y: [broadcast batch...]",
        "return: [batch...]",
    )
    def expected_h_squared(self, Fmu: TensorType, Fvar: TensorType, Y: TensorType) -> tf.Tensor:
        """E h² = α − β Fmu + γ (Fmu² + Fvar) under f ~ N(Fmu, Fvar) (AACI Eq. 12)."""
        centre, remainder = self.complete_square(Y)
        return self.gamma(Y) * (tf.square(Fmu - centre) + Fvar) + remainder

    @check_shapes("r: [batch...]", "return: [batch...]")
    def omega_mean(self, r: TensorType) -> tf.Tensor:
        """E[ω] = −d log φ/dr under π_φ(ω|c), at r = c² (AACI Eq. 9)."""
        r = tf.convert_to_tensor(r)
        with tf.GradientTape() as tape:
            tape.watch(r)
            log_phi = self.log_phi(r)
        return -tape.gradient(log_phi, r)

    @check_shapes("r: [batch...]", "return: [batch...]")
    def floored_log_phi(self, r: TensorType) -> tf.Tensor:
        """
        log φ(r), continued below the floor on c² by its tangent there.

        log φ is convex, so the tangent lies below it: a bound built on this stays a bound, and
        its derivative is −E[ω] at the floored c² everywhere, finite even at r = 0.
        """
        floor = c_squared_floor(r.dtype)
        below = tf.minimum(r - floor, tf.zeros_like(r))
        return self.log_phi(tf.maximum(r, floor)) - self.omega_mean(floor) * below

    def tilted(self, c: TensorType) -> tfp.distributions.Distribution:
        """
        π_φ(ω|c) = e^{−c²ω} π_φ(ω|0) / φ(c²) (AACI Eq. 8-9), a distribution of batch shape c.shape.

        In closed form where the likelihood has one; ``TiltedDistribution(likelihood.log_phi, c)``
        is the same from ``log_phi`` alone, and the default.

        :param c: [...], finite and non-negative.
        :raises ValueError: for c outside of that.
        """
        c = parameters_of_one_dtype(c=c)["c"]
        accepted = tf.math.is_finite(c) & (c >= 0.0)
        check = check_parameter("tilted", "c", c, accepted, "finite and non-negative")
        with tf.control_dependencies([require([check])]):
            return self._tilted(tf.identity(c))

    def _tilted(self, c: tf.Tensor) -> tfp.distributions.Distribution:
        """``tilted`` for c that has been checked; override it where there is a closed form."""
        return TiltedDistribution(self.log_phi, c)

    @check_shapes(
        "Fmu: [broadcast batch..., P]",
        "Fvar: [broadcast batch..., P]",
        "Y: [broadcast batch..., P]",
        "return: [batch..., P]",
    )
    def scalar_log_density(self, Fmu: TensorType, Fvar: TensorType, Y: TensorType) -> tf.Tensor:
        """log ∫ p(y|f) N(f | Fmu, Fvar) df, one value for every output."""
        centre, _ = self.complete_square(Y)
        return log_expectation(lambda F: self._scalar_log_prob(Fmu, F, Y), Fmu, Fvar, [centre])

    @inherit_check_shapes
    def _scalar_log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        h_squared = self.expected_h_squared(F, tf.zeros_like(F), Y)
        return self.log_C(Y) + self.g(Y) * F + self.floored_log_phi(h_squared)

    @inherit_check_shapes
    def _predict_log_density(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        return tf.reduce_sum(self.scalar_log_density(Fmu, Fvar, Y), axis=-1)

    @inherit_check_shapes
    def _variational_expectations(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        # GPflow's quadrature differentiates √Fvar: below eps its rounding takes over.
        eps = float(np.finfo(Fvar.dtype.as_numpy_dtype).eps)
        return super()._variational_expectations(X, Fmu, lifted(Fvar, eps), Y)

    @inherit_check_shapes
    def _conditional_mean(self, X: TensorType, F: TensorType) -> tf.Tensor:
        raise NotImplementedError(f"{type(self).__name__} must define _conditional_mean(X, F).")

    @inherit_check_shapes
    def _conditional_variance(self, X: TensorType, F: TensorType) -> tf.Tensor:
        raise NotImplementedError(f"{type(self).__name__} must define _conditional_variance(X, F).")

    def check_observations(self, Y: tf.Tensor) -> Sequence[Check]:
        """What Y must satisfy beyond being finite."""
        return ()


def positive_parameter(owner: str, name: str, value: Any) -> Parameter:
    """
    ``value`` as a positive ``Parameter``; a ``Parameter`` is shared, not copied.

    :raises ValueError: where it is a ``Function`` of X, an array, or not positive and finite.
    """
    if isinstance(value, Parameter):
        if value.shape.rank != 0:
            raise ValueError(
                f"{owner}: {name} must be one number for all data. Found: shape {value.shape}."
            )
        return value
    if isinstance(value, Function):
        raise ValueError(
            f"{owner}: {name} must be one positive number for all data. Found: {value!r}, "
            "a Function of X."
        )
    lower = default_likelihood_positive_minimum()
    array = np.asarray(value, dtype=float)
    if array.ndim > 0 or not (np.isfinite(array) and array > lower):
        raise ValueError(
            f"{owner}: {name} must be finite and above {lower}, one number. Found: {value}."
        )
    return Parameter(value, transform=positive(lower))
