"""Events with a bounded rate λσ(f): counts, waiting times, gamma noise and point processes."""

import abc
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import AnyNDArray, MeanAndVariance, TensorType

from ..special import log_igammac
from ..validation import Check, check_all
from .base import Site
from .declared import further_column, positive
from .integrals.quadrature import expectation
from .law import PredictedMoments, draw_as_observed
from .observations import COUNTS, POSITIVE, are_flags
from .outputwise import OutputwiseLikelihood
from .sigmoid_powers import CountLikelihood, Powers, log_s


class Rate(OutputwiseLikelihood, abc.ABC):
    r"""
    C(y) (λσ(f))^a(y) e^{−λσ(f) e(y)}, a and e ≥ 0: a events during an exposure e at rate λσ(f).

    λ is the largest possible rate (Donner and Opper 2018). e^{−λeσ(f)} = e^{−λe} e^{λeσ(−f)} is a
    mixture over n ~ Poisson(λe) of σ(−f)^n, and powers of σ are Pólya-Gamma mixtures in turn: given
    n and ω ~ PG(a + n, ·)/2 the likelihood is Gaussian in f. λ is learnable; at given marginals of
    f, :meth:`optimal_max_rate` maximises the bound. A subclass defines log C; it overrides a if
    that is not y, e if that is not the column of Y after y or 1, and the predictions.
    """

    max_rate = positive(1.0, "λ")

    @abc.abstractmethod
    def log_C(self, Y: TensorType) -> tf.Tensor:
        """log C(y), [..., N, L]."""

    def power(self, Y: TensorType) -> tf.Tensor:
        """a(y), [..., N, L]. Default: y."""
        return self.response(Y)

    def exposure(self, Y: TensorType) -> tf.Tensor:
        """e(y), [..., N, L], in units of 1/λ. Default: the column of Y after y, or 1."""
        return self.given_column(Y)

    def rate(self, F: TensorType) -> tf.Tensor:
        """λσ(f)."""
        return self.max_rate * tf.sigmoid(F)

    def powers(self, Y: TensorType) -> Powers:
        """σ(f)^a e^{−λeσ(f)}."""
        return Powers(self.power(Y), 0.0, self.max_rate * self.exposure(Y))

    def _parts(self, Y: TensorType) -> tuple[tf.Tensor, Powers]:
        """log C + a log λ, and the powers."""
        powers = self.powers(Y)
        return self.log_C(Y) + powers.plus * tf.math.log(self.max_rate), powers

    def pointwise_bound(
        self, X: TensorType | None, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        """log C + a log λ + a (m/2 − log 2cosh(c/2)) − λe (1 − s), c² = m² + v."""
        log_C, powers = self._parts(Y)
        return log_C + powers.bound(Fmu, Fvar)

    def optimal_max_rate(self, Fmu: TensorType, Fvar: TensorType, Y: TensorType) -> tf.Tensor:
        """The λ [] that maximises Σ bound: Σ a / Σ e (1 − s)."""
        one_minus_s = -tf.math.expm1(log_s(Fmu, Fvar))
        return tf.reduce_sum(self.power(Y)) / tf.reduce_sum(self.exposure(Y) * one_minus_s)

    def auxiliary_law(
        self, X: TensorType | None, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tfp.distributions.Distribution:
        """n ~ Poisson(λes) and, given n, omega ~ PG(a + n, c)/2; both [..., N, L]."""
        return self.powers(Y).law(Fmu, Fvar)

    def log_joint(
        self, X: TensorType | None, auxiliary: Any, F: TensorType, Y: TensorType
    ) -> tf.Tensor:
        log_C, powers = self._parts(Y)
        return log_C + powers.log_joint(auxiliary, F)

    def site(self, X: TensorType | None, auxiliary: Any, Y: TensorType) -> Site:
        """Potential (a − n)/2, precision 2ω."""
        return Powers(self.power(Y)).site(auxiliary["omega"], auxiliary["n"])

    def pointwise_log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        log_C, powers = self._parts(Y)
        return log_C + powers.log_prob(F)

    def expected_log_prob(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        log_C, powers = self._parts(Y)
        return log_C + powers.expected_log_prob(Fmu, Fvar)

    def peaks(self, Y: TensorType) -> Sequence[tf.Tensor]:
        """The f with λeσ(f) = a, approximately if a is 0 or exceeds λe."""
        a, _, rate = self.powers(Y)
        share = tf.minimum((a + 0.5) / tf.maximum(rate, a + 0.5), 1.0 - 1e-6)
        return [tf.math.log(share) - tf.math.log1p(-share)]

    def _conditional_mean(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return self.rate(F)

    def _predict_mean_and_var(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType
    ) -> MeanAndVariance:
        mean = expectation(lambda F: self._conditional_mean(X, F), Fmu, Fvar)
        spread = expectation(lambda F: tf.square(self._conditional_mean(X, F) - mean), Fmu, Fvar)
        return mean, spread + expectation(lambda F: self._conditional_variance(X, F), Fmu, Fvar)


class Poisson(Rate, CountLikelihood):
    """
    Counts with rate λσ(f), or λσ(f) E. GPflow's ``Poisson`` has the unbounded rate e^f.

    E is the exposure of a datum, such as the time or the population in which events were counted;
    λ is then a rate per unit of exposure. a = y, e = E.
    """

    kind_of_y = COUNTS

    max_rate = positive(1.0, "λ, in counts per unit of exposure")
    with_exposure = further_column(
        "exposure",
        "whether the columns of Y [N, 2] are counts and exposures; f then has one column, and a "
        "predicted y has the exposure 1 unless another is asked for.",
    )

    def log_C(self, Y: TensorType) -> tf.Tensor:
        y = self.response(Y)
        return y * tf.math.log(self.given_column(Y)) - tf.math.lgamma(y + 1.0)

    def outcomes(self) -> AnyNDArray:
        """Enough counts for all f at exposure 1."""
        rate = float(tf.convert_to_tensor(self.max_rate))
        y = np.arange(np.ceil(rate + 12.0 * np.sqrt(rate) + 60.0))[:, None]
        return np.hstack([y, np.ones([len(y), self.num_given])])

    draw_y = draw_as_observed

    def draw_y_like(self, X: TensorType, F: TensorType, Y: TensorType, seed: Any) -> tf.Tensor:
        rate = self.rate(F) * self.exposure(Y)
        return tf.random.stateless_poisson(tf.shape(F), seed, rate, F.dtype)

    def draw_rest(self, F: TensorType, Y: TensorType, until: tf.Tensor, seed: Any) -> tf.Tensor:
        """P(no event before t) = e^{−λσ(f)t} in a Poisson process from 0 to the exposure."""
        rate = tf.nn.relu(self.rate(F) * self.exposure(Y) - until)
        return tf.random.stateless_poisson(tf.shape(F), seed, rate, F.dtype)

    def _cdf(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        """Γ(y + 1, λeσ(f))/y!."""
        y = tf.math.floor(self.response(Y))
        return tf.math.igammac(y + 1.0, self.rate(F) * self.exposure(Y))

    def _log_survival(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        y = tf.math.floor(self.response(Y))
        return tf.math.log(tf.math.igamma(y + 1.0, self.rate(F) * self.exposure(Y)))

    def _conditional_mean(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return self.rate(F) * self.exposure(self.as_observed(F))

    _conditional_variance = _conditional_mean


class CoxProcess(Rate):
    """
    Points of a Poisson process with intensity λσ(f), not binned (Adams, Murray and MacKay 2009).

    log p is Σ log λσ(f) over the points minus ∫ λσ(f), which is a weighted sum over a grid. Each
    row is a point or a node of the grid. The columns of Y [N, 2] are 1 and 0 for a point, 0 and the
    weight for a node. The weights sum to the length, area or volume that was observed::

        X = np.vstack([points, nodes])
        is_point = np.arange(len(X)) < len(points)
        weight = np.where(is_point, 0.0, volume / len(nodes))
        Y = np.stack([is_point, weight], -1).astype(float)
        model = AugmentedSVGP(kernel, CoxProcess(max_rate=3.0 * len(points) / volume), Z)

    Predictions are the mean and variance of the intensity λσ(f); there is no y to draw. The
    distance between nodes must be smaller than a lengthscale, or the intensity may have peaks at
    points between nodes.
    """

    is_density = False
    given = ("weight",)

    max_rate = positive(1.0, "λ, in points per unit of weight")

    def log_C(self, Y: TensorType) -> tf.Tensor:
        return tf.zeros_like(self.response(Y))

    def as_observed(self, y: TensorType) -> tf.Tensor:
        """Points, which have the weight 0."""
        return tf.concat([y, tf.zeros_like(y)], -1)

    def check_observations(self, Y: tf.Tensor) -> Sequence[Check]:
        is_point, weight = self.response(Y), self.given_column(Y)
        right = (weight >= 0.0) & ((weight == 0.0) | (is_point == 0.0))
        message = "The weight, column 2 of Y, must be 0 for a point and at least 0 for a node."
        of_point = "Whether a row is a point, column 1 of Y, must be 0 or 1."
        are_points = check_all(is_point, are_flags(is_point), of_point)
        return [are_points, check_all(weight, right, message)]

    def draw_y(self, F: TensorType, seed: Any) -> tf.Tensor:
        """
        :raises NotImplementedError: always.
        """
        raise NotImplementedError("CoxProcess: a row is a point or a node, and has no y to draw.")

    def _cdf(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        raise NotImplementedError("CoxProcess: a row is a point or a node, and has no cdf.")

    def _conditional_variance(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return tf.zeros_like(F)


class PositiveRate(PredictedMoments, Rate):
    """
    y = (G/λσ(f))^{1/k}, G ~ Gamma(α, 1): waiting times, and other y > 0.

    The density is k y^{kα−1} (λσ(f))^α e^{−λσ(f) y^k}/Γ(α): a = α, e = y^k. The
    predictive distribution has a heavy tail if f is uncertain, as λσ(f) may be near 0: its moments
    grow as e^{Var f}.
    """

    kind_of_y = POSITIVE

    @abc.abstractmethod
    def alpha_and_k(self) -> tuple[TensorType, TensorType]:
        """α and k, each a ``Parameter`` or a number; α is 1 if y may be censored."""

    def _shapes(self, dtype: tf.DType) -> tuple[tf.Tensor, tf.Tensor]:
        alpha, k = self.alpha_and_k()
        return tf.cast(alpha, dtype), tf.cast(k, dtype)

    def log_C(self, Y: TensorType) -> tf.Tensor:
        """log C of the density; 0 for a survival probability e^{−λσ(f) y^k}."""
        alpha, k = self._shapes(Y.dtype)
        of_y = tf.math.xlogy(k * alpha - 1.0, self.response(Y))  # y = 0 has a hazard if kα = 1
        return self.given_column(Y) * (tf.math.log(k) + of_y - tf.math.lgamma(alpha))

    def power(self, Y: TensorType) -> tf.Tensor:
        return self._shapes(Y.dtype)[0] * self.given_column(Y)

    def exposure(self, Y: TensorType) -> tf.Tensor:
        return self.response(Y) ** self._shapes(Y.dtype)[1]

    def draw_y(self, F: TensorType, seed: Any) -> tf.Tensor:
        """A y that is not censored."""
        alpha, k = self._shapes(F.dtype)
        G = tf.random.stateless_gamma(tf.shape(F), seed, alpha, dtype=F.dtype)
        return tf.exp((tf.math.log(G) - tf.math.log(self.max_rate) - tf.math.log_sigmoid(F)) / k)

    def _cdf(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        """P(G ≤ λσ(f) y^k); 1 for a right-censored y, as it may have any value above its time."""
        alpha, _ = self._shapes(F.dtype)
        p = tf.math.igamma(alpha, self.rate(F) * self.exposure(Y))
        return tf.where(self.given_column(Y) > 0.0, p, tf.ones_like(p))

    def next_below(self, Y: AnyNDArray) -> AnyNDArray:
        """Y itself: a censored y is above its time, and an observed y is real."""
        return np.asarray(self.as_observed(self.response(Y)))

    def _predict_mean_and_var(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType
    ) -> MeanAndVariance:
        """E y^j = Γ(α + j/k)/Γ(α) E (λσ(f))^{−j/k}; infinite if it overflows."""
        alpha, k = self._shapes(Fmu.dtype)

        def moment(j: float) -> tf.Tensor:
            log_unit = tf.math.lgamma(alpha + j / k) - tf.math.lgamma(alpha)
            log_unit -= tf.math.log(self.max_rate) * j / k
            return tf.exp(log_unit) * _expected_inverse_power(j / k, Fmu, Fvar)

        mean = moment(1.0)
        return mean, moment(2.0) - tf.minimum(tf.square(mean), mean.dtype.max)


_CENSORING = further_column(
    "is_observed",
    "whether the columns of Y [N, 2] are times, and 1 where the event was observed, 0 where it had "
    "not come by that time; f then has one column. A predicted y is the time of the event, and so "
    "is a draw, whether or not the datum was censored.",
)


class _WaitingTime(PositiveRate, abc.ABC):
    """α = 1: P(y' > y|f) = e^{−λσ(f) y^k}, the likelihood of an event that came after y."""

    def _log_survival(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        """−λσ(f) y^k; log 0 for a right-censored y, as it may have any value above its time."""
        log_p = -self.rate(F) * self.exposure(Y)
        never = tf.constant(-np.inf, log_p.dtype)
        return tf.where(self.given_column(Y) > 0.0, log_p, never)


class Weibull(_WaitingTime):
    """
    Waiting times with hazard k y^{k−1} λσ(f), observed or right-censored.

    If k > 1, the hazard grows with the waiting time; if k < 1, it falls. Right-censored means that
    the event came after y. a = 1, or 0 if censored; e = y^k. λσ(f) is in units of 1/y^k, so choose
    a unit in which y is about 1::

        likelihood = Weibull(max_rate=5.0, with_censoring=True)
        Y = np.stack([time, is_observed], -1)  # is_observed: 1, or 0 where censored
    """

    shape = positive(1.0, "k")
    with_censoring = _CENSORING

    def alpha_and_k(self) -> tuple[TensorType, TensorType]:
        return 1.0, self.shape


class Exponential(_WaitingTime):
    """
    Waiting times with hazard λσ(f), observed or right-censored: ``Weibull`` with shape 1.

    GPflow's ``Exponential`` has the mean e^f, and so the unbounded hazard e^{−f}.
    """

    max_rate = positive(1.0, "λ, in units of 1/y")
    with_censoring = _CENSORING

    def alpha_and_k(self) -> tuple[TensorType, TensorType]:
        return 1.0, 1.0


class Gamma(PositiveRate):
    """
    y ~ Gamma(shape α, rate λσ(f)), with mean α/λσ(f); a = α, e = y.

    GPflow's ``Gamma`` has the unbounded rate e^{−f}.
    """

    max_rate = positive(1.0, "λ, in units of 1/y")
    shape = positive(1.0, "α")

    def _log_survival(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        return log_igammac(tf.cast(self.shape, F.dtype), self.rate(F) * Y)

    def alpha_and_k(self) -> tuple[TensorType, TensorType]:
        return self.shape, 1.0


def _expected_inverse_power(p: tf.Tensor, Fmu: TensorType, Fvar: TensorType) -> tf.Tensor:
    """
    E σ(f)^{−p} under f ~ N(Fmu, Fvar), p > 0.

    σ(f)^{−p} = h(f) + e^{−pf} h(−f) with the bounded h(f) = σ(pf) σ(f)^{−p}, which is 1 for p = 1,
    and e^{−pf} turns N(m, v) into e^{−pm + p²v/2} N(m − pv, v): quadrature is exact in the tails.
    """

    def h(f: tf.Tensor) -> tf.Tensor:
        return tf.exp(tf.math.log_sigmoid(p * f) - p * tf.math.log_sigmoid(f))

    tilted = tf.exp(-p * Fmu + tf.square(p) * Fvar / 2.0)
    return expectation(h, Fmu, Fvar) + tilted * expectation(h, p * Fvar - Fmu, Fvar)
