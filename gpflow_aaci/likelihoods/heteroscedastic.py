"""Noise of any distribution of the package, whose precision depends on a second latent GP."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import MeanAndVariance, TensorType

from .base import AugmentedLikelihood, Site
from .declared import REQUIRED, Argument, positive
from .integrals.quadrature import expectation, log_expectation, mean_over_panels
from .integrals.sums_of_sigmoids import in_chunks_of_rows
from .noise.even import why_no_even_noise
from .noise.laplace import Laplace
from .noise.residual import Gaussian
from .sigmoid_powers import Powers, log_s

# Floats for one row: the nodes of g, times the nodes of f if the base needs any.
_NUMBERS_OF_MEAN, _NUMBERS_OF_PANELS = 56 * 56, 400 * 500
_HALVINGS = 3  # p(y|g), as a function of g, varies on a length of at least 1


def _take_base(likelihood: Any, name: str, value: Any) -> None:
    if reason := why_no_even_noise(value):
        raise ValueError(
            f"Heteroscedastic: {name} must be a likelihood of y − f, with h² ∝ (y − f)² and g = 0, "
            f"such as Gaussian or StudentT. Found: {type(value).__name__}, {reason}."
        )
    setattr(likelihood, name, value)
    # An integral over f and g costs as much as an integral over ten latent GPs.
    likelihood.row_cost = 0.0 if isinstance(value, Gaussian | Laplace) else 10.0


class Heteroscedastic(AugmentedLikelihood):
    r"""
    y = f + ε/√(λσ(g)), ε ~ ``base``, with two latent GPs f and g, in this order; Y is [N, 1].

    The precision of the noise is at most λ times the precision of the base. λ and the scale of the
    base are redundant, so give the base the scale 1 and hold it fixed::

        noise = StudentT(scale=1.0, df=4.0)
        gpflow.set_trainable(noise.scale, False)
        likelihood = Heteroscedastic(noise, max_precision=100.0)
        model = AugmentedSVGP(kernel, likelihood, Z, num_latent_gps=2, num_data=N)

    p(y|f, g) = √(λσ(g)) C φ(λσ(g) h²), h² ∝ (y − f)². Given the ω of ε, e^{−ωλσ(g)h²} is Gaussian
    in f, and it is a mixture over n ~ Poisson(ωλh²) of σ(−g)^n, so that given n and ω_g ~
    PG(½ + n, ·)/2 it is Gaussian in g. f and g are updated in turn. The bound replaces E σ(g) by
    1 − s ≥ E σ(g) within the convex and decreasing log φ. E log p(y|f, g) is an integral over g if
    the base is ``Gaussian`` or ``Laplace``, and otherwise over both f and g.
    """

    in_turn = True
    couples = True

    latent_dim, observation_dim = 2, 1

    base: Any = Argument(
        REQUIRED,
        "a density of y − f that is symmetric about 0, of this package (``Gaussian``, "
        "``StudentT``, ``Laplace``, ``LogisticNoise``, ``Matern``, ``GeneralizedGaussian``, "
        "``contrib.likelihoods.NoiseMixture``, …) or your own; it is shared, with its Parameters.",
        _take_base,
    )
    max_precision = positive(1.0, "λ, in units of 1/y² if the base has the scale 1")

    # ---- the augmentation ----

    def bound(self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType) -> tf.Tensor:
        """½ log λ + log C + ½ (m_g + log s_g) + log φ(λ E h² (1 − s_g))."""
        log_share = log_s(Fmu[..., 1:], Fvar[..., 1:])
        at_most = Fmu[..., 1:] + log_share  # E log σ(g)
        r = self._largest_r(Fmu[..., :1], Fvar[..., :1], Y) * -tf.math.expm1(log_share)
        log_height = 0.5 * (tf.math.log(self.max_precision) + at_most) + self.base.log_C(Y)
        return (log_height + self.base.floored_log_phi(r))[..., 0]

    def auxiliary_law(
        self, X: TensorType | None, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tfp.distributions.Distribution:
        """
        The joint distribution of four variables, all [..., N, 1].

        ``noise`` is the ω of ε. ``precision`` is the precision of y given ω, which is 2ωλσ(g) if
        h² = (y − f)²; the site of f depends on it alone. For g there are ``n`` ~ Poisson(ωλs E h²)
        and ``omega`` ~ PG(½ + n, c)/2, given n. Under an uncertain g, 1 − s replaces σ(g).
        """
        marginals = Fmu[..., 1:], Fvar[..., 1:]
        share = -tf.math.expm1(log_s(*marginals))
        largest = self._largest_r(Fmu[..., :1], Fvar[..., :1], Y)
        precision = 2.0 * self.base.gamma(Y) * self.max_precision * share
        return tfp.distributions.JointDistributionNamed(
            {
                "noise": self.base.tilted(tf.sqrt(largest * share)),
                # It is a function of g and no further variable, so that its factor is always 1.
                "precision": lambda noise: tfp.distributions.Deterministic(
                    precision * noise, atol=np.inf
                ),
                "n": lambda noise: Powers(0.5, 0.0, noise * largest).law_of_n(*marginals),
                "omega": lambda n: Powers(0.5).law_of_omega(*marginals, n),
            }
        )

    def log_joint(
        self, X: TensorType | None, auxiliary: Any, F: TensorType, Y: TensorType
    ) -> tf.Tensor:
        f, g, noise = F[..., :1], F[..., 1:], auxiliary["noise"]
        at_centre = self.base.log_joint(X, noise, Y, Y)  # log C and the distribution of ω at c = 0
        largest = self._largest_r(f, tf.zeros_like(f), Y)
        of_g = Powers(0.5, 0.0, noise * largest).log_joint(auxiliary, g)
        return 0.5 * tf.math.log(self.max_precision) + at_centre + of_g

    def site(self, X: TensorType | None, auxiliary: Any, Y: TensorType) -> Site:
        """Potential and precision: ``precision`` y and ``precision`` for f, (½ − n)/2 and 2ω_g."""
        of_f = auxiliary["precision"] * Y, auxiliary["precision"]
        of_g = Powers(0.5).site(auxiliary["omega"], auxiliary["n"])
        return tuple(tf.concat(parts, -1) for parts in zip(of_f, of_g, strict=True))

    def reference_f(self, Y: TensorType) -> tf.Tensor:
        """The f [..., N, 2] with λh² near 1 and g = 0; at f = y no n but 0 would be possible."""
        away = tf.math.rsqrt(self.max_precision * self.base.gamma(Y))
        return tf.concat([Y - away, tf.zeros_like(Y)], -1)

    def log_tilt(
        self, auxiliary: Any, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        """
        log p(y, Ω|f, g) − log p(Ω|y, f₀, g₀) at :meth:`reference_f`, [..., N, 1], in expectation.

        Where f is uncertain, E h² takes the place of h²: the expectation of −ωλσ(g)h² over f is
        known, and n is introduced for e to this power. With an n introduced before, there would be
        E log h², which is less than log E h².
        """
        f, g = Fmu[..., :1], Fmu[..., 1:]
        n, omega = auxiliary["n"], auxiliary["omega"]
        reference = self.reference_f(Y)
        first = self._largest_r(reference[..., :1], tf.zeros_like(Y), Y)
        largest = self._largest_r(f, Fvar[..., :1], Y)
        of_f = tf.math.xlogy(n, largest / first) - auxiliary["noise"] * (largest - first)
        potential, precision = Powers(0.5).site(omega, n)
        of_g = potential * g - 0.5 * precision * (tf.square(g) + Fvar[..., 1:])
        return self.pointwise_log_prob(None, reference, Y) + of_f + of_g

    def expected_auxiliary(
        self, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> dict[str, tf.Tensor]:
        """The means of ``noise``, ``n`` and ``omega`` under the optimal q(Ω), all [N, 1]."""
        marginals = Fmu[..., 1:], Fvar[..., 1:]
        s = tf.exp(log_s(*marginals))
        largest = self._largest_r(Fmu[..., :1], Fvar[..., :1], Y)
        noise = self.base.aux_posterior_mean(tf.sqrt(largest * (1.0 - s)), Y)
        n = noise * largest * s
        return {"noise": noise, "n": n, "omega": Powers(0.5).law_of_omega(*marginals, n).mean()}

    def _largest_r(self, f: TensorType, variance: TensorType, Y: TensorType) -> tf.Tensor:
        """λ E h², [..., N, 1]."""
        return self.max_precision * self.base.expected_h_squared(f, variance, Y)

    # ---- expectations: by the base given g, in units of 1/√(λσ(g)), integrated over g ----

    def pointwise_log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        return self._log_scaled("pointwise_log_prob", F[..., 1:], Y - F[..., :1])

    def expected_log_prob(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        return self._over_rows(self._expected, Fmu, Fvar, Y, _NUMBERS_OF_MEAN)

    def coupling(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:

        def of_rows(d: tf.Tensor, v: tf.Tensor, m_g: tf.Tensor, v_g: tf.Tensor) -> tf.Tensor:
            with tf.GradientTape() as in_g:
                in_g.watch(m_g)
                with tf.GradientTape() as in_d:
                    in_d.watch(d)
                    expected = self._expected(d, v, m_g, v_g)
                slope = in_d.gradient(expected, d)
            return -in_g.gradient(slope, m_g)

        between = self._over_rows(of_rows, Fmu, Fvar, Y, _NUMBERS_OF_MEAN)[..., None]
        is_other = tf.constant([[0.0, 1.0], [1.0, 0.0]], between.dtype)
        return between * is_other

    def predictive_log_density(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        def of_rows(d: tf.Tensor, v: tf.Tensor, m_g: tf.Tensor, v_g: tf.Tensor) -> tf.Tensor:
            def log_p(g: tf.Tensor) -> tf.Tensor:
                return self._log_scaled("predictive_log_density", g, d, v)

            return log_expectation(log_p, m_g, v_g, [self._peak(d)], _HALVINGS)

        return self._over_rows(of_rows, Fmu, Fvar, Y, _NUMBERS_OF_PANELS)

    def _cdf(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        return self._scaled("_cdf", F[..., 1:], Y - F[..., :1])

    def _log_survival(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        return self._scaled("_log_survival", F[..., 1:], Y - F[..., :1])

    def _predict_cdf(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        def of_rows(d: tf.Tensor, v: tf.Tensor, m_g: tf.Tensor, v_g: tf.Tensor) -> tf.Tensor:
            return mean_over_panels(
                lambda g: self._scaled("_predict_cdf", g, d, v), m_g, v_g, [self._peak(d)]
            )

        return self._over_rows(of_rows, Fmu, Fvar, Y, _NUMBERS_OF_PANELS)

    def _expected(self, d: tf.Tensor, v: tf.Tensor, m_g: tf.Tensor, v_g: tf.Tensor) -> tf.Tensor:
        return expectation(lambda g: self._log_scaled("expected_log_prob", g, d, v), m_g, v_g)

    def _scaled(self, name: str, g: tf.Tensor, d: tf.Tensor, *variance: tf.Tensor) -> tf.Tensor:
        """The base's method ``name`` for f with mean 0 and y = d, in units of the noise."""
        root = tf.exp(0.5 * self._log_precision(g))
        y = root * d
        return getattr(self.base, name)(
            None, tf.zeros_like(y), *(tf.square(root) * v for v in variance), y
        )

    def _log_scaled(self, name: str, g: tf.Tensor, *moments: tf.Tensor) -> tf.Tensor:
        return 0.5 * self._log_precision(g) + self._scaled(name, g, *moments)

    def _over_rows(
        self,
        function: Callable[..., tf.Tensor],
        Fmu: TensorType,
        Fvar: TensorType,
        Y: TensorType,
        numbers: int,
    ) -> tf.Tensor:
        """``function(y − m_f, v_f, m_g, v_g)`` of every row, [..., N, 1]."""

        def of_rows(mean: tf.Tensor, variance: tf.Tensor) -> tf.Tensor:
            (d, m_g), (v, v_g) = (tf.unstack(part, axis=-1) for part in (mean, variance))
            return function(d, v, m_g, v_g)

        mean = tf.concat([Y - Fmu[..., :1], Fmu[..., 1:] + tf.zeros_like(Y)], -1)
        variance = Fvar + tf.zeros_like(mean)
        mean += tf.zeros_like(variance)
        if not self.row_cost:
            return of_rows(mean, variance)[..., None]
        return in_chunks_of_rows(of_rows, mean, variance, numbers, recompute=False)[..., None]

    def _peak(self, d: tf.Tensor) -> tf.Tensor:
        """The g at which λσ(g) d² = 1."""
        return -tf.math.log(tf.maximum(self.max_precision * tf.square(d) - 1.0, 1e-6))

    def _log_precision(self, g: TensorType) -> tf.Tensor:
        return tf.math.log(self.max_precision) + tf.math.log_sigmoid(g)

    # ---- moments and draws ----

    def noise_variance(self, g: TensorType) -> tf.Tensor:
        """Var[y|f, g] = Var[ε] (1 + e^{−g})/λ; its expectation is its value at E g − ½ Var g."""
        return self.base.noise_variance() * (1.0 + tf.exp(-g)) / self.max_precision

    def _conditional_mean(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return self.base._conditional_mean(X, F[..., :1])

    def _conditional_variance(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return self.noise_variance(F[..., 1:])

    def _predict_mean_and_var(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType
    ) -> MeanAndVariance:
        expected_noise = self.noise_variance(Fmu[..., 1:] - Fvar[..., 1:] / 2.0)
        return self._conditional_mean(X, Fmu), Fvar[..., :1] + expected_noise

    def draw_y(self, F: TensorType, seed: Any) -> tf.Tensor:
        f = F[..., :1]
        root = tf.exp(0.5 * self._log_precision(F[..., 1:]))
        return f + self.base.draw_y(tf.zeros_like(f), seed) / root
