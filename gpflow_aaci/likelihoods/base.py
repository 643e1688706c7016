"""What an augmentation is, and all that follows from it whichever it is."""

import abc
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from check_shapes import inherit_check_shapes
from gpflow import Parameter
from gpflow.base import MeanAndVariance, TensorType
from gpflow.config import default_likelihood_positive_minimum
from gpflow.functions import Function
from gpflow.likelihoods import ScalarLikelihood
from gpflow.likelihoods.base import DEFAULT_NUM_GAUSS_HERMITE_POINTS
from gpflow.quadrature import NDiagGHQuadrature
from gpflow.utilities import positive

from ..distributions.parameters import check_parameter, parameters_of_one_dtype
from ..validation import Check, as_default_float, require
from .quadrature import expectation, lifted


class AugmentedLikelihood(ScalarLikelihood, abc.ABC):
    r"""
    p(y|f) = ∫ p(y|ω, f) π(ω) dω with an ω > 0 given which the likelihood is Gaussian in f:

        log p(y|ω, f) = offset(f, y) + tilt(f, y) ω,  both at most quadratic in f.

    So all laws of ω are exponential tilts of one, π(ω|η) = e^{ηω} π(ω) / Z(η): the full
    conditional is that of η = tilt(f, y), the optimal q(ω) that of η = E_q tilt, and
    p(y|f) = e^offset Z(tilt). A law is called by its c > 0 (c ≥ 0, if that is η = 0), of which η
    is a monotone function.

    Own likelihoods rather derive from :class:`SuperGaussianLikelihood`, which states all this
    from φ. ``Y`` is [..., P] throughout, and so is what the methods return unless they say
    otherwise.
    """

    is_density: bool = True
    """Whether ∫ p(y|f) dy = 1; False for a pseudo-likelihood."""

    labels: Sequence[float] | None = None
    """The values that y takes, or None where y is real."""

    prior_c: float
    """c of π itself, η = 0."""

    # ---- what an augmentation states ----

    @abc.abstractmethod
    def tilt_at(self, c: TensorType) -> tf.Tensor:
        """η(c)."""

    @abc.abstractmethod
    def c_at(self, tilt: TensorType) -> tf.Tensor:
        """c(η), the inverse."""

    @abc.abstractmethod
    def log_partition(self, tilt: TensorType) -> tf.Tensor:
        """log Z(η) = log ∫ e^{ηω} π(ω) dω."""

    @abc.abstractmethod
    def tilted_mean(self, tilt: TensorType) -> tf.Tensor:
        """E[ω] = d log Z/dη."""

    @abc.abstractmethod
    def expected_offset(self, Fmu: TensorType, Fvar: TensorType, Y: TensorType) -> tf.Tensor:
        """E offset(f, y) under f ~ N(Fmu, Fvar)."""

    @abc.abstractmethod
    def expected_tilt(self, Fmu: TensorType, Fvar: TensorType, Y: TensorType) -> tf.Tensor:
        """E tilt(f, y) under f ~ N(Fmu, Fvar)."""

    @abc.abstractmethod
    def site_potential(self, omega: TensorType, Y: TensorType) -> tf.Tensor:
        """The coefficient of f in log p(y|ω, f), affine in ω."""

    @abc.abstractmethod
    def site_precision(self, omega: TensorType, Y: TensorType) -> tf.Tensor:
        """That of −½ f², affine in ω and not negative."""

    @abc.abstractmethod
    def _tilted(self, c: tf.Tensor) -> tfp.distributions.Distribution:
        """``tilted`` for c that has been checked."""

    @abc.abstractmethod
    def scalar_log_density(self, Fmu: TensorType, Fvar: TensorType, Y: TensorType) -> tf.Tensor:
        """log ∫ p(y|f) N(f | Fmu, Fvar) df, one value for every output."""

    # ---- what follows ----

    def scalar_variational_expectations(
        self, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        """
        E log p(y|f) under f ~ N(Fmu, Fvar), one value for every output.

        What ``variational_expectations`` sums, unless the user gave the likelihood a
        ``quadrature`` other than GPflow's default of 20 Gauss-Hermite nodes, which then is used
        as in GPflow. Here by a rule that is fine about f = 0.
        """
        return expectation(
            lambda F: self.expected_log_prob_bound(F, tf.zeros_like(F), Y),
            Fmu + tf.zeros_like(Y),
            Fvar,
        )

    def conditional_c(self, F: TensorType, Y: TensorType) -> tf.Tensor:
        """c of the full conditional p(ω|f, y)."""
        return self.c_at(self.expected_tilt(F, tf.zeros_like(F), Y))

    def expected_log_prob_bound(
        self, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        """
        max over q(ω) of E log p(y, ω|f) − E log q(ω): E offset + log Z(E tilt) ≤ E log p(y|f).

        At Fvar = 0 it is log p(y|f) itself.
        """
        tilt = self.expected_tilt(Fmu, Fvar, Y)
        return self.expected_offset(Fmu, Fvar, Y) + self.log_partition(tilt)

    def tilted(self, c: TensorType) -> tfp.distributions.Distribution:
        """
        π(ω|c), a distribution of batch shape c.shape.

        :param c: [...], finite and positive; or zero, where that is the prior (super-Gaussian
            likelihoods, π_φ(ω|c) = e^{−c²ω} π_φ(ω|0) / φ(c²), AACI Eq. 7).
        :raises ValueError: for c outside of that.
        """
        c = parameters_of_one_dtype(c=c)["c"]
        zero_too = self.prior_c == 0.0
        accepted = tf.math.is_finite(c) & ((c >= 0.0) if zero_too else (c > 0.0))
        wording = f"finite and {'non-negative' if zero_too else 'positive'}"
        check = check_parameter("tilted", "c", c, accepted, wording)
        with tf.control_dependencies([require([check])]):
            return self._tilted(tf.identity(c))

    def draw_y(self, F: TensorType, seed: Any) -> tf.Tensor:
        """
        A draw of p(y|f) for every f, [...].

        :param seed: as of ``tf.random.stateless_uniform``.
        :raises NotImplementedError: where the likelihood does not say how.
        """
        raise NotImplementedError(f"{type(self).__name__} must define draw_y(F, seed).")

    def scalar_log_prob(self, F: TensorType, Y: TensorType) -> tf.Tensor:
        """log p(y|f), one value for every output."""
        return self.expected_log_prob_bound(F, tf.zeros_like(F), Y)

    @inherit_check_shapes
    def _scalar_log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        return self.scalar_log_prob(F, Y)

    @inherit_check_shapes
    def _predict_log_density(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        return tf.reduce_sum(self.scalar_log_density(Fmu, Fvar, Y), axis=-1)

    @inherit_check_shapes
    def _variational_expectations(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        # Quadrature differentiates √Fvar: below eps its rounding takes over.
        eps = float(np.finfo(Fvar.dtype.as_numpy_dtype).eps)
        Fvar = lifted(Fvar, eps)
        if not self._has_default_quadrature():
            return super()._variational_expectations(X, Fmu, Fvar, Y)
        return tf.reduce_sum(self.scalar_variational_expectations(Fmu, Fvar, Y), axis=-1)

    def _has_default_quadrature(self) -> bool:
        """Whether ``quadrature`` is what GPflow sets where a user gives none."""
        return (
            type(self.quadrature) is NDiagGHQuadrature
            and self.quadrature.n_gh == DEFAULT_NUM_GAUSS_HERMITE_POINTS
        )

    @inherit_check_shapes
    def _conditional_mean(self, X: TensorType, F: TensorType) -> tf.Tensor:
        raise NotImplementedError(f"{type(self).__name__} must define _conditional_mean(X, F).")

    @inherit_check_shapes
    def _conditional_variance(self, X: TensorType, F: TensorType) -> tf.Tensor:
        raise NotImplementedError(f"{type(self).__name__} must define _conditional_variance(X, F).")

    def check_observations(self, Y: tf.Tensor) -> Sequence[Check]:
        """What Y must satisfy beyond being finite."""
        return ()

    # ---- GPflow's own entry points: arrays and integer labels, as its likelihoods take them ----

    @inherit_check_shapes
    def log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        return super().log_prob(X, *_of_one_float(F, Y))

    @inherit_check_shapes
    def predict_mean_and_var(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType
    ) -> MeanAndVariance:
        return super().predict_mean_and_var(X, *_of_one_float(Fmu, Fvar))

    @inherit_check_shapes
    def predict_log_density(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        return super().predict_log_density(X, *_of_one_float(Fmu, Fvar, Y))

    @inherit_check_shapes
    def variational_expectations(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        return super().variational_expectations(X, *_of_one_float(Fmu, Fvar, Y))


def as_float(F: TensorType) -> tf.Tensor:
    """A tensor of ``default_float()``, but a float tensor as it is: that of a frozen model."""
    is_float = tf.is_tensor(F) and F.dtype.is_floating
    return tf.convert_to_tensor(F) if is_float else as_default_float(F)


def _of_one_float(F: TensorType, *others: TensorType) -> list[tf.Tensor]:
    """
    F by :func:`as_float`, and the others as it is.

    A model frozen as float32 (``gpflow.utilities.freeze_as_float32``) makes float32 tensors of f
    whatever ``default_float()`` is, and has Parameters of that kind.
    """
    F = as_float(F)
    return [F, *(tf.cast(as_default_float(other), F.dtype) for other in others)]


def positive_parameter(owner: str, name: str, value: Any, above: float = 0.0) -> Parameter:
    """
    ``value`` as a positive ``Parameter``; a ``Parameter`` is shared, not copied.

    :param above: keeps a value that is larger from falling to it; one that is not is the user's
        choice, and only kept positive.
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
    return Parameter(value, transform=positive(lower + above if array > lower + above else lower))
