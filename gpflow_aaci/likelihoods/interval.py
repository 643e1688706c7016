"""Likelihoods of an interval that contains f plus noise: censored and ordered y."""

import abc
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow import Parameter
from gpflow.base import AnyNDArray, TensorType

from ..distributions import IntervalNormal
from ..special import (
    log_2cosh_half_sqrt,
    log_difference,
    log_ndtr,
    log_normal_between,
    ndtr,
    standardised,
)
from ..validation import Check, check_one_of, check_rows
from .base import Site
from .declared import Argument, positive
from .integrals.quadrature import expectation, mean_over_panels
from .noise.residual import AdditiveNoise
from .outputwise import OutputwiseLikelihood
from .sigmoid_powers import Powers

# log p of a wider interval, in units of s, is log Φ(a) + log Φ(b) to Φ(−3.5)² = 5e-8. The nodes
# about the middle of an interval err by 7e-8 at this width, and by 2e-6 at 10.
_WIDE = 7.0


def _take_link(likelihood: Any, name: str, value: Any) -> None:
    check_one_of(f"{type(likelihood).__name__}: {name}", value, ("probit", "logit"))
    setattr(likelihood, name, value)


class IntervalLikelihood(OutputwiseLikelihood, abc.ABC):
    r"""
    P(low < z < high|f), z = f + s e. If low = high, it is the density of z there.

    With the link ``"probit"`` e is standard normal. Given z, which is N(f, s²) truncated to the
    interval, f is Gaussian (Albert and Chib 1993). With ``"logit"`` e is standard logistic. With
    a = (f − low)/s and b = (high − f)/s, the probability is σ(a) σ(b) (1 − e^{−(high − low)/s}):
    two logistic likelihoods, each with its own ω ~ PG(1, ·)/2 (Polson, Scott and Windle 2013). The
    factor of an infinite end is 1. As high → low the last factor tends to (high − low)/s, so that
    the density is σ(a) σ(b)/s.
    """

    may_be_exact = True
    """Whether an interval may be a single number."""

    link: Any = Argument(
        "probit", '``"probit"`` for normal or ``"logit"`` for logistic noise.', _take_link
    )

    @property
    def _is_probit(self) -> bool:
        return bool(self.link == "probit")

    @property
    @abc.abstractmethod
    def noise_scale(self) -> Parameter:
        """The scale s of z − f."""

    @abc.abstractmethod
    def ends(self, Y: TensorType) -> tuple[tf.Tensor, tf.Tensor]:
        """The lower and the upper end of the interval, [..., N, P]; one of them may be infinite."""

    # ---- the augmentation ----

    def pointwise_bound(
        self, X: TensorType | None, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        """
        Probit: log p(y|Fmu) − ½ Fvar/s², as log p(y|f) + ½ f²/s² is convex in f.

        Logit: x/2 − log 2cosh(c/2) replaces log σ(x), at the means of a and b; c² = E x².
        """
        variance = Fvar / tf.square(self._scale(Fmu))
        if self._is_probit:
            return self.pointwise_log_prob(X, Fmu, Y) - 0.5 * variance
        x, _ = self._distances(Fmu, Y)
        c_squared = tf.square(x) + variance[..., None]
        return self._sum(x / 2.0 - log_2cosh_half_sqrt(c_squared), Y)

    def pointwise_log_prob(self, X: TensorType | None, F: TensorType, Y: TensorType) -> tf.Tensor:
        if self._is_probit:
            return self._log_normal(F, self._scale(F), Y)
        return self._sum(tf.math.log_sigmoid(self._distances(F, Y)[0]), Y)

    def auxiliary_law(
        self, X: TensorType | None, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tfp.distributions.Distribution:
        """
        Probit: z ~ N(f, s²) between the ends, of batch shape [..., N, P].

        Logit: ω ~ PG(1, a)/2 and PG(1, b)/2, a draw [..., N, P, 2]; 0 for an infinite end.
        """
        if self._is_probit:
            return IntervalNormal(Fmu, self.noise_scale, *self.ends(Y))
        x, is_finite = self._distances(Fmu, Y)
        variance = (Fvar / tf.square(self._scale(Fvar)))[..., None]
        return tfp.distributions.Independent(Powers(is_finite).law_of_omega(x, variance), 1)

    def log_joint(
        self, X: TensorType | None, auxiliary: TensorType, F: TensorType, Y: TensorType
    ) -> tf.Tensor:
        """Probit: log N(z | f, s²) between the ends; logit: log p(y, ω|f)."""
        if self._is_probit:
            low, high = self.ends(Y)
            log_p = self._law(F).log_prob(auxiliary)
            is_inside = (auxiliary >= low) & (auxiliary <= high)
            return tf.where(is_inside, log_p, tf.constant(-np.inf, log_p.dtype))
        x, is_finite = self._distances(F, Y)
        return self._sum(Powers(is_finite).log_joint_of_omega(auxiliary, x), Y)

    def site(self, X: TensorType | None, auxiliary: TensorType, Y: TensorType) -> Site:
        """
        Probit: potential z/s², precision 1/s².

        Logit: potential Σ (2ω end/s² ± 1/2s) over the finite ends, with + at the lower end;
        precision Σ 2ω/s².
        """
        precision = 1.0 / tf.square(self._scale(auxiliary))
        if self._is_probit:
            return auxiliary * precision, precision * tf.ones_like(auxiliary)
        x, is_finite = self._distances(tf.zeros_like(auxiliary[..., 0]), Y)
        slopes = (0.5 * is_finite - 2.0 * auxiliary * x) / self._scale(auxiliary)
        return slopes[..., 0] - slopes[..., 1], 2.0 * precision * tf.reduce_sum(auxiliary, -1)

    # ---- expectations ----

    def expected_log_prob(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        """
        By quadrature.

        Logit: E log σ(a) and E log σ(b), each centred at its end. Probit: E log Φ(a) and E log Φ(b)
        in the same way where an end is infinite or the interval is many s wide; otherwise E log p,
        centred at the middle. For an exact y it is the bound.
        """
        x, is_finite = self._distances(Fmu, Y)
        variance = (Fvar / tf.square(self._scale(Fvar)))[..., None]
        if not self._is_probit:
            return self._sum(expectation(tf.math.log_sigmoid, x, variance), Y)
        low, high = self.ends(Y)
        s, width = self._scale(low), high - low
        is_exact, is_wide = tf.equal(low, high), width > _WIDE * s
        width = tf.where(is_exact | is_wide, s * tf.ones_like(width), width) / s
        is_wide = is_wide[..., None]
        # A column for each end. Where both are centred at the middle, an interval above f is
        # mirrored, and each column has half of log p.
        to_ends = width[..., None] * tf.constant([-0.5, 0.5], width.dtype)
        to_ends = tf.where(is_wide, tf.zeros_like(to_ends), to_ends)
        centred = tf.where(is_wide, x, 0.5 * (x[..., :1] - x[..., 1:]))

        def log_p(x: tf.Tensor) -> tf.Tensor:
            of_ends = log_ndtr(tf.where(is_wide, x, -tf.abs(x)) + to_ends)
            log_a, log_b = tf.unstack(of_ends, axis=-1)
            of_both = log_difference(log_a, log_b, x[..., 0], width)[..., None]
            return tf.where(is_wide, is_finite * of_ends, 0.5 * of_both)

        expected = tf.reduce_sum(expectation(log_p, centred, variance), -1)
        if not self.may_be_exact:
            return expected
        return tf.where(is_exact, self.pointwise_bound(X, Fmu, Fvar, Y), expected)

    def predictive_log_density(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        """Probit: the formula for known f, with s² + Fvar replacing s². Logit: by quadrature."""
        if self._is_probit:
            return self._log_normal(Fmu, self._spread(Fvar), Y)
        return super().predictive_log_density(X, Fmu, Fvar, Y)

    def peaks(self, Y: TensorType) -> Sequence[tf.Tensor]:
        """Both ends; an infinite end is replaced by the other end."""
        low, high = self.ends(Y)
        return [tf.where(tf.math.is_finite(e), e, o) for e, o in ((low, high), (high, low))]

    def upper(self, Y: TensorType) -> tf.Tensor:
        """The end that z is below where y' ≤ y."""
        return self.ends(Y)[1]

    def _cdf(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        return self._predict_cdf(X, F, tf.zeros_like(F), Y)

    def _predict_cdf(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        return self.below(self.upper(Y), Fmu, Fvar)

    def _log_survival(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        beyond = -standardised(self.upper(Y), F, self._scale(F))
        return log_ndtr(beyond) if self._is_probit else tf.math.log_sigmoid(beyond)

    def below(self, end: TensorType, Fmu: TensorType, Fvar: TensorType) -> tf.Tensor:
        """P(z ≤ end) under f ~ N(Fmu, Fvar), [...]; the end may be infinite."""
        is_finite = tf.math.is_finite(end + tf.zeros_like(Fmu))
        at = tf.where(is_finite, end, tf.zeros_like(end))
        if self._is_probit:
            p = ndtr((at - Fmu) / self._spread(Fvar))
        else:
            s, Fmu, Fvar = self._scale(Fmu), Fmu + tf.zeros_like(at), Fvar + tf.zeros_like(at)
            p = mean_over_panels(lambda F: tf.sigmoid((at - F) / s), Fmu, Fvar, [at])
        return tf.where(is_finite, p, tf.cast(end > 0.0, p.dtype))

    def draw_z(self, F: TensorType, seed: Any) -> tf.Tensor:
        """A draw of z for every f."""
        return self._law(F).sample(seed=seed)

    def _law(self, F: TensorType) -> tfp.distributions.Distribution:
        kind = tfp.distributions.Normal if self._is_probit else tfp.distributions.Logistic
        return kind(F, self._scale(F))

    def _scale(self, like: tf.Tensor) -> tf.Tensor:
        return tf.cast(self.noise_scale, like.dtype)

    # ---- probit ----

    def _spread(self, Fvar: TensorType) -> tf.Tensor:
        return tf.sqrt(tf.square(self._scale(Fvar)) + Fvar)

    def _log_normal(self, F: TensorType, spread: TensorType, Y: TensorType) -> tf.Tensor:
        """The log-probability of the interval, or the log-density, under N(F, spread²)."""
        low, high = self.ends(Y)
        is_exact = tf.equal(low, high)
        y = tf.where(is_exact, low, tf.zeros_like(low))
        log_density = tfp.distributions.Normal(F, spread).log_prob(y)
        log_p = log_normal_between(low, tf.where(is_exact, low + 1.0, high), F, spread)
        return tf.where(is_exact, log_density, log_p)

    # ---- logit ----

    def _distances(self, F: TensorType, Y: TensorType) -> tuple[tf.Tensor, tf.Tensor]:
        """
        The pairs (a, b) [..., N, P, 2], with 0 for an infinite end.

        :return: the pairs, and a mask that is 1 where the end is finite, 0 elsewhere.
        """
        low, high = self.ends(Y)
        outwards = tf.stack([-low, high], -1)
        is_finite = tf.math.is_finite(outwards)
        x = tf.stack([F, -F], -1) + tf.where(is_finite, outwards, tf.zeros_like(outwards))
        x = tf.where(is_finite, x, tf.zeros_like(x)) / self._scale(x)
        return x, tf.cast(is_finite, x.dtype)

    def _sum(self, of_ends: tf.Tensor, Y: TensorType) -> tf.Tensor:
        """The sum of the finite ends' terms [..., N, P, 2], plus the log factor without f."""
        low, high = self.ends(Y)
        is_finite = tf.math.is_finite(tf.stack([low, high], -1))
        s, width = self._scale(of_ends), high - low
        is_between = (width > 0.0) & tf.math.is_finite(width)
        log_factor = tfp.math.log1mexp(tf.where(is_between, width, tf.ones_like(width)) / s)
        of_others = tf.where(width > 0.0, tf.zeros_like(width), -tf.math.log(s))
        terms = tf.where(is_finite, of_ends, tf.zeros_like(of_ends))
        return tf.reduce_sum(terms, -1) + tf.where(is_between, log_factor, of_others)


class Interval(AdditiveNoise, IntervalLikelihood):
    r"""
    A real y that is exact or right-, left- or interval-censored.

    y = f + s e, e standard normal (``"probit"``) or standard logistic (``"logit"``). The columns of
    Y [N, 2] are the lower and the upper end of the interval that y lies in; f has one column. An
    end may be infinite, and equal ends are an exact y: (y, y) is an exact observation, (c, ∞) is
    right-censored at c, and (−∞, c) is left-censored at c. For exact rows the likelihood equals
    ``Gaussian`` or ``LogisticNoise``; for one-sided rows of ``"logit"`` it equals ``Logistic``. The
    auxiliary variable is y itself for ``"probit"`` (Albert and Chib 1993). For ``"logit"`` there is
    a Pólya-Gamma ω for each finite end (Polson, Scott and Windle 2013).

    Survival times are positive: ``Warped(Interval(...), warps.Log())`` is a log-normal or
    log-logistic accelerated failure time model. Its ends are in units of time, and the lower end
    may be 0::

        Y = np.stack([time, np.where(died, time, np.inf)], axis=1)
        likelihood = Warped(Interval("logit"), warps.Log())
        survives = 1.0 - predictions.predict_y_cdf(model, Xnew, np.tile(t, (len(Xnew), 2)))

    Predictions are for the exact y. P(y' ≤ y) is evaluated at the upper end of a row of Y.
    """

    given = ("upper",)
    is_interval = True

    scale = positive(1.0, "s, in units of y")

    @property
    def noise_scale(self) -> Parameter:
        return self.scale

    def noise_variance(self) -> tf.Tensor:
        """s², or π²s²/3."""
        return self._law(tf.zeros([], self.scale.dtype)).variance()

    def ends(self, Y: TensorType) -> tuple[tf.Tensor, tf.Tensor]:
        return Y[..., :1], Y[..., 1:]

    def next_below(self, Y: AnyNDArray) -> AnyNDArray:
        """Both ends become the lower end."""
        return np.repeat(Y[..., :1], 2, -1)

    def draw_y(self, F: TensorType, seed: Any) -> tf.Tensor:
        return self.draw_z(F, seed)

    def as_observed(self, y: TensorType) -> tf.Tensor:
        """Equal ends."""
        return tf.concat([y, y], -1)

    def must_be_finite(self, Y: tf.Tensor) -> tf.Tensor:
        """Infinite ends are valid, NaN is not."""
        return tf.where(tf.math.is_inf(Y), tf.zeros_like(Y), Y)

    def check_observations(self, Y: tf.Tensor) -> Sequence[Check]:
        lower, upper = self.ends(Y)
        has_end = ~(tf.math.is_inf(lower) & tf.math.is_inf(upper))
        must = "Y, of columns lower and upper, must have"
        finite_end = f"{must} a finite end in every row: a row without one says nothing."
        return [
            check_rows(Y, lower <= upper, f"{must} lower ≤ upper in every row."),
            check_rows(Y, has_end, finite_end),
        ]
