"""The super-Gaussian likelihood: six statements from which everything else is derived once."""

import abc
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from check_shapes import check_shapes
from gpflow.base import TensorType
from gpflow.kernels import Kernel

from ..distributions import TiltedDistribution
from .quadrature import expectation, log_expectation, safe_sqrt
from .tilted import TiltedLikelihood, named_y, of_y, takes_y


def c_squared_floor(dtype: tf.DType) -> tf.Tensor:
    """
    The one floor on c²: the machine epsilon of ``dtype``.

    As c → 0, ω̄ may tend to infinity (Laplace, SVM) and the site to a hard constraint f = y. Any
    c is a valid choice of q(ω), so a floor keeps the bound a bound; this one keeps the precision
    of a site where a Cholesky factorisation still succeeds.
    """
    return tf.constant(np.finfo(dtype.as_numpy_dtype).eps, dtype)


class SuperGaussianLikelihood(TiltedLikelihood, abc.ABC):
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

    prior_c = 0.0

    @staticmethod
    def from_kernel(kernel: Kernel) -> "SuperGaussianLikelihood":
        """
        Noise of the shape of a kernel: p(y|f) ∝ k(y, f) (AACI Sec. 3.1).

        :param kernel: an isotropic stationary one of GPflow or your own, positive definite in
            every dimension, whose lengthscales are learnt; sums and products of such.
        :raises ValueError: for any other.
        """
        from .from_kernel import KernelNoise  # which derives from this class

        return KernelNoise(kernel)

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
    def log_phi(self, *args: Any, **kwargs: Any) -> tf.Tensor:
        """
        ``(r)``: log φ(r), elementwise, at real r ≥ 0 and at complex r with positive real part.

        ``(r, Y)`` where φ depends on y, which is cosh^{−n}(√r/2) of a binomial y of n trials, say.

        TensorFlow does not mix dtypes: write ``tf.cast(self.scale, r.dtype)``. ``log1p``,
        ``sqrt``, ``log`` and ``expm1`` take complex arguments, ``tf.math.softplus`` does not.
        """

    # ---- what follows ----

    @check_shapes("Y: [batch..., P]", "return[0]: [batch..., L]", "return[1]: [batch..., L]")
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
        "Fmu: [broadcast batch..., L]",
        "Fvar: [broadcast batch..., L]",
        "Y: [broadcast batch..., P]",
        "return: [batch..., L]",
    )
    def expected_h_squared(self, Fmu: TensorType, Fvar: TensorType, Y: TensorType) -> tf.Tensor:
        """E h² = α − β Fmu + γ (Fmu² + Fvar) under f ~ N(Fmu, Fvar) (AACI Alg. 1)."""
        centre, remainder = self.complete_square(Y)
        return self.gamma(Y) * (tf.square(Fmu - centre) + Fvar) + remainder

    @check_shapes("r: [batch...]", "return: [batch...]")
    def omega_mean(self, r: TensorType, Y: TensorType | None = None) -> tf.Tensor:
        """E[ω] = −d log φ/dr under π_φ(ω|c), at r = c² (AACI Sec. 3.3.1)."""
        r = tf.convert_to_tensor(r)
        with tf.GradientTape() as tape:
            tape.watch(r)
            log_phi = of_y(self.log_phi, r, Y)
        return -tape.gradient(log_phi, r)

    @check_shapes("r: [batch...]", "return: [batch...]")
    def floored_log_phi(self, r: TensorType, Y: TensorType | None = None) -> tf.Tensor:
        """
        log φ(r), continued below the floor on c² by its tangent there.

        log φ is convex, so the tangent lies below it: a bound built on this stays a bound, and
        its derivative is −E[ω] at the floored c² everywhere, finite even at r = 0.
        """
        floor = c_squared_floor(r.dtype)
        below = -tf.nn.relu(floor - r)  # without slope at the floor, where log φ has its own
        at_floor = floor if Y is None else floor + tf.zeros_like(r)
        log_phi = of_y(self.log_phi, tf.maximum(r, floor), Y)
        return log_phi - of_y(self.omega_mean, at_floor, Y) * below

    # ---- the augmentation: offset log C + g f, tilt −h², Z(η) = φ(−η), c² = −η ----

    def tilt_at(self, c: TensorType) -> tf.Tensor:
        """−c², floored: E[ω] may be infinite at 0."""
        r = tf.square(c)
        return -tf.maximum(r, c_squared_floor(r.dtype))

    def c_at(self, tilt: TensorType) -> tf.Tensor:
        """√−η, floored."""
        return tf.sqrt(tf.maximum(-tilt, c_squared_floor(tilt.dtype)))

    def conditional_c(self, F: TensorType, Y: TensorType) -> tf.Tensor:
        """|h|, not floored: π_φ(ω|0) is a law like any other."""
        return tf.sqrt(self.expected_h_squared(F, tf.zeros_like(F), Y))

    def log_partition(self, tilt: TensorType, Y: TensorType | None = None) -> tf.Tensor:
        return of_y(self.floored_log_phi, -tilt, Y)

    def tilted_mean(self, tilt: TensorType, Y: TensorType | None = None) -> tf.Tensor:
        return of_y(self.omega_mean, -tilt, Y)

    def expected_offset(self, Fmu: TensorType, Fvar: TensorType, Y: TensorType) -> tf.Tensor:
        return self.log_C(Y) + self.g(Y) * Fmu

    def expected_tilt(self, Fmu: TensorType, Fvar: TensorType, Y: TensorType) -> tf.Tensor:
        return -self.expected_h_squared(Fmu, Fvar, Y)

    def site_potential(self, omega: TensorType, Y: TensorType) -> tf.Tensor:
        """g + β ω."""
        return self.g(Y) + self.beta(Y) * omega

    def site_precision(self, omega: TensorType, Y: TensorType) -> tf.Tensor:
        """2γω."""
        return 2.0 * self.gamma(Y) * omega

    @named_y
    def _tilted(self, *args: Any, **kwargs: Any) -> tfp.distributions.Distribution:
        """From log φ alone; override it where there is a closed form."""
        c, *rest = args
        Y = rest[0] if rest else None
        if takes_y(self.log_phi):
            of_y(self.log_phi, tf.ones_like(c), Y)  # or it says that Y must be given
            return TiltedDistribution(self.log_phi, c, phi_parameters=[Y])
        return TiltedDistribution(self.log_phi, c)

    def peaks(self, Y: TensorType) -> Sequence[tf.Tensor]:
        """The f [..., L] about which p(y|f) may be kinked or narrow, for quadrature over f."""
        return [self.complete_square(Y)[0]]

    @check_shapes(
        "Fmu: [broadcast batch..., L]",
        "Fvar: [broadcast batch..., L]",
        "Y: [broadcast batch..., P]",
        "return: [batch..., L]",
    )
    def scalar_log_density(self, Fmu: TensorType, Fvar: TensorType, Y: TensorType) -> tf.Tensor:
        """log ∫ p(y|f) N(f | Fmu, Fvar) df, one value for every output."""
        return log_expectation(lambda F: self._scalar_log_prob(Fmu, F, Y), Fmu, Fvar, self.peaks(Y))

    @check_shapes(
        "Fmu: [broadcast batch..., L]",
        "Fvar: [broadcast batch..., L]",
        "Y: [broadcast batch..., P]",
        "return: [batch..., L]",
    )
    def scalar_variational_expectations(
        self, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        """log C + g Fmu + E log φ(h²), the last by quadrature, fine about the centre of h²."""
        centre, remainder = self.complete_square(Y)
        # √r of a user's log φ has no derivative at 0.
        remainder = tf.maximum(remainder, np.sqrt(np.finfo(remainder.dtype.as_numpy_dtype).tiny))
        gamma = self.gamma(Y)
        log_phi = expectation(
            lambda h: of_y(self.log_phi, tf.square(h) + remainder, Y),
            safe_sqrt(gamma) * (Fmu - centre),
            gamma * Fvar,
        )
        return self.expected_offset(Fmu, Fvar, Y) + log_phi
