"""One ω per output, of a law that is tilted exponentially; and all that follows from it."""

import abc
import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from check_shapes import inherit_check_shapes
from gpflow.base import TensorType
from gpflow.likelihoods.base import DEFAULT_NUM_GAUSS_HERMITE_POINTS
from gpflow.quadrature import NDiagGHQuadrature

from ..distributions.parameters import check_parameter, parameters_of_one_dtype
from ..validation import require
from .base import OutputwiseLikelihood, Site
from .quadrature import expectation, lifted


class TiltedLikelihood(OutputwiseLikelihood, abc.ABC):
    r"""
    p(y|f) = ∫ p(y|ω, f) π(ω) dω with an ω > 0 given which the likelihood is Gaussian in f:

        log p(y|ω, f) = offset(f, y) + tilt(f, y) ω,  both at most quadratic in f.

    So all laws of ω are exponential tilts of one, π(ω|η) = e^{ηω} π(ω) / Z(η): the full
    conditional is that of η = tilt(f, y), the optimal q(ω) that of η = E_q tilt, and
    p(y|f) = e^offset Z(tilt). A law is called by its c > 0 (c ≥ 0, if that is η = 0), of which η
    is a monotone function.

    π may depend on y: then ``log_partition``, ``tilted_mean`` and ``_tilted`` (and ``log_phi``,
    from which super-Gaussian ones derive these) take Y as a second argument. A class whose law
    does not need not name it. :func:`of_y` calls either: it goes by the argument's name, ``Y``.

    Own likelihoods rather derive from :class:`SuperGaussianLikelihood`, which states all this
    from φ. One f goes with one y: ``Y`` is [..., P] and f is, throughout, and so is what the
    methods return unless they say otherwise.
    """

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
    def log_partition(self, *args: Any, **kwargs: Any) -> tf.Tensor:
        """``(tilt)`` or ``(tilt, Y)``: log Z(η) = log ∫ e^{ηω} π(ω) dω."""

    @abc.abstractmethod
    def tilted_mean(self, *args: Any, **kwargs: Any) -> tf.Tensor:
        """``(tilt)`` or ``(tilt, Y)``: E[ω] = d log Z/dη."""

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
    def _tilted(self, *args: Any, **kwargs: Any) -> tfp.distributions.Distribution:
        """``(c)`` or ``(c, Y)``: ``tilted`` for c that has been checked."""

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
            Fmu + tf.zeros_like(Y[..., :1]),
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
        return self.expected_offset(Fmu, Fvar, Y) + of_y(self.log_partition, tilt, Y)

    def bound(self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType) -> tf.Tensor:
        return tf.reduce_sum(self.expected_log_prob_bound(Fmu, Fvar, Y), -1)

    def sites_at(self, c: TensorType, Y: TensorType) -> Site:
        """Potential and precision at the q(ω) of c: those at its mean, as both are affine in ω."""
        omega_mean = of_y(self.tilted_mean, self.tilt_at(c), Y)
        return self.site_potential(omega_mean, Y), self.site_precision(omega_mean, Y)

    def bound_slopes(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Those of the sites at the optimal q(ω)."""
        c = self.c_at(self.expected_tilt(Fmu, Fvar, Y))
        potential, precision = self.sites_at(c, Y)
        return potential - precision * Fmu, -0.5 * precision

    def full_conditional(
        self, X: TensorType | None, F: TensorType, Y: TensorType
    ) -> tfp.distributions.Distribution:
        """That of ω, of batch shape [..., N, P]."""
        return self.tilted(self.conditional_c(F, Y), Y)

    def log_joint(
        self, X: TensorType | None, auxiliary: TensorType, F: TensorType, Y: TensorType
    ) -> tf.Tensor:
        """log p(y, ω|f) = offset + tilt ω + log π(ω), [..., N, P]."""
        zero = tf.zeros_like(F)
        tilt = self.expected_tilt(F, zero, Y)
        log_tilt = self.expected_offset(F, zero, Y) + auxiliary * tilt
        prior = self.tilted(self.prior_c * tf.ones_like(tilt), Y)
        return log_tilt + prior.log_prob(auxiliary)

    def site(self, X: TensorType | None, auxiliary: TensorType, Y: TensorType) -> Site:
        return self.site_potential(auxiliary, Y), self.site_precision(auxiliary, Y)

    def tilted(self, c: TensorType, Y: TensorType | None = None) -> tfp.distributions.Distribution:
        """
        π(ω|c), a distribution of batch shape c.shape.

        :param Y: where the law depends on y.
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
            return of_y(self._tilted, tf.identity(c), Y)

    def pointwise_log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        return self.scalar_log_prob(F, Y)

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


def of_y(method: Callable[..., Any], value: TensorType, Y: TensorType | None) -> Any:
    """
    ``method(value, Y)``, or ``method(value)`` where it takes no Y.

    :raises ValueError: where it needs Y, and that is not given.
    """
    if not takes_y(method):
        return method(value)
    if Y is None and _needs_y(method):
        raise ValueError(f"Y must be given: on it depends {method.__qualname__}. Found: None.")
    return method(value, Y)


def takes_y(method: Callable[..., Any]) -> bool:
    """Whether it has an argument of the name ``Y``."""
    return _argument_y(getattr(method, "__func__", method)) is not None


def _needs_y(method: Callable[..., Any]) -> bool:
    argument = _argument_y(getattr(method, "__func__", method))
    return argument is not None and argument.default is inspect.Parameter.empty


_OPTIONAL_Y = inspect.Parameter("Y", inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None)
_NAMED: set[Callable[..., Any]] = set()


def named_y(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function(*args)``, which an override may narrow to one argument, takes Y as the second."""
    _NAMED.add(function)
    return function


@functools.cache  # of the function, not of the method: that would keep its likelihood alive
def _argument_y(function: Callable[..., Any]) -> inspect.Parameter | None:
    if function in _NAMED:
        return _OPTIONAL_Y
    return inspect.signature(function).parameters.get("Y")
