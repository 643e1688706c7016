"""Super-Gaussian likelihoods: six methods define one, and everything else is derived from them."""

import abc
import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from check_shapes import check_shapes
from gpflow.base import TensorType

from ..distributions import TiltedDistribution
from .base import Site
from .integrals.quadrature import expectation, safe_sqrt
from .outputwise import OutputwiseLikelihood, checked_c


def c_squared_floor(dtype: tf.DType) -> tf.Tensor:
    """
    The only floor on c²: the machine epsilon of ``dtype``.

    As c → 0, ω̄ may tend to infinity (Laplace, SVM) and the site to a hard constraint f = y. Any
    c is a valid choice of q(ω), so a floor keeps the bound a bound; this floor keeps the
    precision of a site small enough for a Cholesky factorisation to succeed.
    """
    return tf.constant(np.finfo(dtype.as_numpy_dtype).eps, dtype)


class SuperGaussianLikelihood(OutputwiseLikelihood, abc.ABC):
    r"""
    p(y|f) = C(y) exp(g(y) f) φ(h²), h² = α(y) − β(y) f + γ(y) f² ≥ 0 (AACI Eq. 4-5).

    φ is completely monotone on (0, ∞) and continuous at 0 with φ(0) = 1, hence the Laplace
    transform φ(r) = ∫ e^{−rω} π_φ(ω|0) dω of an auxiliary variable ω. A subclass defines
    ``log_C``, ``g`` (default: 0), ``alpha``, ``beta``, ``gamma`` and ``log_phi``; the
    augmentation, its bound, its updates and its checks follow. It is an ordinary
    ``gpflow.likelihoods.ScalarLikelihood`` too. To predict y, define ``_conditional_mean`` and
    ``_conditional_variance`` as for any GPflow likelihood.

    φ may depend on y. Every function that evaluates φ therefore takes Y as an optional last
    argument, which only such likelihoods need.

    ``Y`` is [..., P] throughout, and so is what the methods return unless they say otherwise.
    """

    prior_c = 0.0

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Let ``log_phi(r)`` and ``_tilted(c)`` of a subclass that needs no Y be called with it."""
        super().__init_subclass__(**kwargs)
        for name in ("log_phi", "_tilted"):
            if name in vars(cls):
                setattr(cls, name, _with_optional_Y(vars(cls)[name]))

    # ---- what a subclass defines (Eq. 4-5) ----

    @abc.abstractmethod
    def log_C(self, Y: TensorType) -> tf.Tensor:
        """log C(y)."""

    def g(self, Y: TensorType) -> tf.Tensor:
        """g(y), the coefficient of the linear term exp(g f)."""
        return tf.zeros_like(self.response(Y))

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
    def log_phi(self, r: TensorType, Y: TensorType | None = None) -> tf.Tensor:
        """
        log φ(r), elementwise, for real r ≥ 0 and for complex r with positive real part.

        A subclass whose φ does not depend on y may define ``log_phi(self, r)``.

        TensorFlow does not mix dtypes: write ``tf.cast(self.scale, r.dtype)``. ``log1p``,
        ``sqrt``, ``log`` and ``expm1`` take complex arguments, ``tf.math.softplus`` does not.

        :param Y: rows that broadcast to r [..., 1]; needed only if φ depends on y or on a column
            after it. An example is a binomial y with n trials, for which φ is cosh^{−n}(√r/2).
        """

    # ---- what follows ----

    @check_shapes("Y: [batch..., P]", "return[0]: [batch..., L]", "return[1]: [batch..., L]")
    def complete_square(self, Y: TensorType) -> tuple[tf.Tensor, tf.Tensor]:
        """
        The centre β/2γ and the remainder α − β²/4γ of h² = γ (f − centre)² + remainder.

        The sum α − β m + γ m² loses all digits if α is large compared with h²; the square does not.
        If β² = 4αγ up to rounding, the remainder is 0. If γ = 0, β is 0 too, so the centre is 0 and
        the remainder is α.
        """
        alpha, beta, gamma = self.alpha(Y), self.beta(Y), self.gamma(Y)
        curved = gamma > 0
        safe_gamma = tf.where(curved, gamma, tf.ones_like(gamma))
        centre = tf.where(curved, beta / (2.0 * safe_gamma), tf.zeros_like(beta))
        remainder = alpha - centre * beta / 2.0
        rounding = 8.0 * np.finfo(alpha.dtype.as_numpy_dtype).eps * tf.abs(alpha)
        return centre, tf.where(remainder <= rounding, tf.zeros_like(remainder), remainder)

    @check_shapes(
        "Fmu: [broadcast batch..., L]",
        "Fvar: [broadcast batch..., L]",
        "Y: [broadcast batch..., P]",
        "return: [batch..., L]",
    )
    def expected_h_squared(self, Fmu: TensorType, Fvar: TensorType, Y: TensorType) -> tf.Tensor:
        """E h² = α − β Fmu + γ (Fmu² + Fvar) under f ~ N(Fmu, Fvar) (AACI Alg. 1)."""
        centre, remainder = self.complete_square(Y)
        return self.gamma(Y) * (tf.square(Fmu - centre) + Fvar) + remainder

    def expected_offset(self, Fmu: TensorType, Y: TensorType) -> tf.Tensor:
        """log C + g Fmu, which is E[log C + g f]."""
        return self.log_C(Y) + self.g(Y) * Fmu

    @check_shapes("r: [batch...]", "return: [batch...]")
    def omega_mean(self, r: TensorType, Y: TensorType | None = None) -> tf.Tensor:
        """E[ω] = −d log φ/dr under π_φ(ω|c), at r = c² (AACI Sec. 3.3.1)."""
        r = tf.convert_to_tensor(r)
        with tf.GradientTape() as tape:
            tape.watch(r)
            log_phi = self.log_phi(r, Y)
        return -tape.gradient(log_phi, r)

    @check_shapes("r: [batch...]", "return: [batch...]")
    def floored_log_phi(self, r: TensorType, Y: TensorType | None = None) -> tf.Tensor:
        """
        log φ(r), continued below the floor on c² by its tangent there.

        log φ is convex, so the tangent lies below it. Hence the augmented bound remains valid, and
        its derivative is −E[ω] at the floored c² everywhere, finite even at r = 0.
        """
        floor = c_squared_floor(r.dtype)
        below = -tf.nn.relu(floor - r)  # slope 0 at the floor, where log φ has a slope
        at_floor = floor if Y is None else floor + tf.zeros_like(r)
        return self.log_phi(tf.maximum(r, floor), Y) - self.omega_mean(at_floor, Y) * below

    # ---- the bound, and what Gibbs sampling needs ----

    def pointwise_bound(
        self, X: TensorType | None, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        """log C + g Fmu + log φ(E h²)."""
        log_phi = self.floored_log_phi(self.expected_h_squared(Fmu, Fvar, Y), Y)
        return self.expected_offset(Fmu, Y) + log_phi

    def bound_slopes(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tuple[tf.Tensor, tf.Tensor]:
        omega_mean = self.omega_mean(_floored(self.expected_h_squared(Fmu, Fvar, Y)), Y)
        potential, precision = self.site(X, omega_mean, Y)
        return potential - precision * Fmu, -0.5 * precision

    def auxiliary_law(
        self, X: TensorType | None, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tfp.distributions.Distribution:
        """π_φ(ω|c) at c² = E h², of batch shape [..., N, P] (AACI Thm 2, Alg. 1)."""
        return self.tilted(tf.sqrt(self.expected_h_squared(Fmu, Fvar, Y)), Y)

    def log_joint(
        self, X: TensorType | None, auxiliary: TensorType, F: TensorType, Y: TensorType
    ) -> tf.Tensor:
        """log p(y, ω|f) = log C + g f − h² ω + log π_φ(ω|0), [..., N, P]."""
        prior = self.tilted(tf.zeros_like(self.aux_full_conditional_c(F, Y)), Y)
        logtilt = self.expected_logtilt(auxiliary, F, tf.zeros_like(F), Y)
        return logtilt + prior.log_prob(auxiliary)

    def site(self, X: TensorType | None, auxiliary: TensorType, Y: TensorType) -> Site:
        """Potential g + β ω, precision 2γω."""
        omega = auxiliary
        return self.g(Y) + self.beta(Y) * omega, 2.0 * self.gamma(Y) * omega

    # ---- q(ω) = π_φ(ω|c), described by its c ----

    def tilted(self, c: TensorType, Y: TensorType | None = None) -> tfp.distributions.Distribution:
        """
        π_φ(ω|c) = e^{−c²ω} π_φ(ω|0) / φ(c²) (AACI Eq. 7), of batch shape c.shape.

        :param c: [...], finite and not negative.
        :param Y: needed if φ depends on y.
        :raises ValueError: for any other c.
        """
        return self._tilted(checked_c(c, zero_too=True), Y)

    def _tilted(self, c: tf.Tensor, Y: TensorType | None = None) -> tfp.distributions.Distribution:
        """The distribution derived from log φ alone; override it if a closed form is known."""
        if Y is None:
            return TiltedDistribution(self.log_phi, c)
        return TiltedDistribution(self.log_phi, c, phi_parameters=[Y])

    def aux_full_conditional_c(self, F: TensorType, Y: TensorType) -> tf.Tensor:
        """|h|, without a floor, as π_φ(ω|0) is a valid distribution too."""
        return tf.sqrt(self.expected_h_squared(F, tf.zeros_like(F), Y))

    def aux_posterior_c(self, Fmu: TensorType, Fvar: TensorType, Y: TensorType) -> tf.Tensor:
        """√(E h²), raised to the floor: the c of the optimal q(ω) (AACI Alg. 1)."""
        return tf.sqrt(_floored(self.expected_h_squared(Fmu, Fvar, Y)))

    def aux_posterior_mean(self, c: TensorType, Y: TensorType | None = None) -> tf.Tensor:
        """E[ω], with c raised to the floor, as E[ω] may be infinite at 0."""
        return self.omega_mean(_floored(tf.square(c)), Y)

    def aux_kldivergence(self, c: TensorType, Y: TensorType | None = None) -> tf.Tensor:
        """KL[π_φ(ω|c) ‖ π_φ(ω|0)] = −c² E[ω] − log φ(c²), with c raised to the floor."""
        r = _floored(tf.square(c))
        return -r * self.omega_mean(r, Y) - self.floored_log_phi(r, Y)

    def expected_logtilt(
        self, omega: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        """E log p(y|ω, f) = log C + g Fmu − ω E h² under f ~ N(Fmu, Fvar)."""
        return self.expected_offset(Fmu, Y) - omega * self.expected_h_squared(Fmu, Fvar, Y)

    # ---- predictions ----

    def peaks(self, Y: TensorType) -> Sequence[tf.Tensor]:
        return [self.complete_square(Y)[0]]

    def expected_log_prob(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        """log C + g Fmu + E log φ(h²), by quadrature with dense nodes near the centre of h²."""
        centre, remainder = self.complete_square(Y)
        # √r of a user's log φ has no derivative at 0.
        remainder = tf.maximum(remainder, np.sqrt(np.finfo(remainder.dtype.as_numpy_dtype).tiny))
        gamma = self.gamma(Y)
        log_phi = expectation(
            lambda h: self.log_phi(tf.square(h) + remainder, Y),
            safe_sqrt(gamma) * (Fmu - centre),
            gamma * Fvar,
        )
        return self.expected_offset(Fmu, Y) + log_phi


def _floored(r: tf.Tensor) -> tf.Tensor:
    return tf.maximum(r, c_squared_floor(r.dtype))


def _with_optional_Y(function: Callable[..., Any]) -> Callable[..., Any]:
    """
    Wrap a subclass's method as ``function(self, value, Y=None)``.

    A method without an argument ``Y`` is called without it; a method that requires ``Y`` raises an
    error if it is None.
    """
    argument = inspect.signature(function).parameters.get("Y")
    if argument is not None and argument.default is not inspect.Parameter.empty:
        return function

    @functools.wraps(function)
    def method(self: Any, value: TensorType, Y: TensorType | None = None, **options: Any) -> Any:
        if argument is None:
            return function(self, value, **options)
        if Y is None:
            raise ValueError(f"Y must be given, as {function.__qualname__} needs it. Found: None.")
        return function(self, value, Y, **options)

    return method
