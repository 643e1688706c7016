"""Counts with excess or missing zeros: zero-inflated, hurdle and zero-truncated models."""

import abc
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal, TypeAlias

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow import Parameter
from gpflow.base import AnyNDArray, MeanAndVariance, TensorType

from ...validation import Check, check_all
from ..base import AugmentedLikelihood, Site, delegated, of_base
from ..counts import Binomial, NegativeBinomial
from ..integrals.quadrature import expectation, log_expectation
from ..integrals.sums_of_sigmoids import in_chunks_of_rows
from ..outputwise import OutputwiseLikelihood
from ..parameters import open_interval_parameter
from ..rates import Poisson
from ..sigmoid_powers import (
    half_polya_gamma,
    log_powers_of_sigmoid,
    log_s,
    rate_site,
    root_mean_square,
)

_NUMBERS = 56 * 56  # floats for one f: the nodes of f times the nodes of g

Gate: TypeAlias = float | Parameter | Literal["gp"]


class ZeroTruncated(OutputwiseLikelihood):
    r"""
    p(y|f)/(1 − p(0|f)) of counts y = 1, 2, …, where a zero cannot be observed.

    1/(1 − p(0|f)) = Σ p(0|f)^k is a mixture over k ≥ 0 unobserved zeros. If the base is a
    ``NegativeBinomial``, p(0|f)^k = σ(−f)^{rk}, so that p(y|f) is Gaussian in f given k and
    ω ~ PG(y + r(1 + k), ·)/2. If it is a ``Poisson``, p(0|f)^k = e^{−λkσ(f)}, so that given k the
    augmentation is the one of a ``Poisson`` with the maximum rate λ(1 + k).
    """

    lowest = 1.0

    def __init__(self, base: NegativeBinomial | Poisson, **kwargs: Any) -> None:
        """
        :param base: the distribution of counts including zeros; shared, with its Parameters.
        :raises ValueError: for any other likelihood.
        """
        super().__init__(**kwargs)
        _check_base("ZeroTruncated", base, NegativeBinomial, Poisson)
        if base.given:
            raise ValueError(
                "ZeroTruncated: base must take one column of Y. "
                f"Found: {type(base).__name__} with {', '.join(base.given)}."
            )
        self.base = base

    def _log_zero(self, Fmu: TensorType, Fvar: TensorType | None = None) -> tf.Tensor:
        """The bound on E log p(0|f), r log s or −λ(1 − s); log p(0|f) if Fvar is None."""
        log_share = log_s(Fmu, tf.zeros_like(Fmu) if Fvar is None else Fvar)
        if isinstance(self.base, Poisson):
            return tf.cast(self.base.max_rate, log_share.dtype) * tf.math.expm1(log_share)
        return tf.cast(self.base.total_count, log_share.dtype) * log_share

    def pointwise_bound(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        """b(y) − log(1 − e^{b(0)}), where b is the bound of the base."""
        positive = _one_minus_exp(self._log_zero(Fmu, Fvar))
        return self.base.pointwise_bound(X, Fmu, Fvar, Y) - tf.math.log(positive)

    def auxiliary_law(
        self, X: TensorType | None, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tfp.distributions.Distribution:
        """k, then n given k, then omega ~ PG(y + n, c)/2 given n; all [..., N, P]."""

        def law_of_n(k: tf.Tensor) -> tfp.distributions.Distribution:
            if isinstance(self.base, Poisson):
                share = tf.exp(log_s(Fmu, Fvar))
                return tfp.distributions.Poisson(self.base.max_rate * (1.0 + k) * share)
            return tfp.distributions.Deterministic(self.base.total_count * (1.0 + k))

        return tfp.distributions.JointDistributionNamed(
            {
                "k": tfp.distributions.Geometric(probs=_one_minus_exp(self._log_zero(Fmu, Fvar))),
                "n": law_of_n,
                "omega": lambda n: half_polya_gamma(Y + n, root_mean_square(Fmu, Fvar)),
            }
        )

    def log_joint(
        self, X: TensorType | None, auxiliary: Any, F: TensorType, Y: TensorType
    ) -> tf.Tensor:
        k, n = auxiliary["k"], auxiliary["n"]
        if isinstance(self.base, Poisson):
            of_n = tfp.distributions.Poisson(self.base.max_rate * (1.0 + k)).log_prob(n)
            of_y = Y * tf.math.log(self.base.max_rate) - tf.math.lgamma(Y + 1.0) + of_n
        else:
            of_y = self.base.log_C(Y) + np.log(2.0) * self.base.exponent(Y)
        return of_y + log_powers_of_sigmoid(Y, n, auxiliary["omega"], F)

    def site(self, X: TensorType | None, auxiliary: Any, Y: TensorType) -> Site:
        """Potential (y − n)/2, precision 2ω."""
        return rate_site(Y, auxiliary)

    def pointwise_log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        positive = _one_minus_exp(self._log_zero(F))
        return self.base.pointwise_log_prob(X, F, Y) - tf.math.log(positive)

    def expected_log_prob(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        """The base's minus E log(1 − p(0|f)), by quadrature centred where this levels off."""
        centre = self.base.peaks(tf.zeros_like(Y))[0]
        log_positive = expectation(
            lambda x: tf.math.log(_one_minus_exp(self._log_zero(x + centre))), Fmu - centre, Fvar
        )
        return self.base.expected_log_prob(X, Fmu, Fvar, Y) - log_positive

    def peaks(self, Y: TensorType) -> Sequence[tf.Tensor]:
        return self.base.peaks(Y)

    def _cdf(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        return -tf.math.expm1(self._log_survival(X, F, Y))

    def _log_survival(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        """log P(y' > y)/(1 − p(0|f)) of the base."""
        log_positive = tf.math.log(_one_minus_exp(self._log_zero(F)))
        return self.base._log_survival(X, F, Y) - log_positive

    def _conditional_mean(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return self.base._conditional_mean(X, F) / _one_minus_exp(self._log_zero(F))

    def _conditional_variance(self, X: TensorType, F: TensorType) -> tf.Tensor:
        square = self._square_of_base(X, F) / _one_minus_exp(self._log_zero(F))
        return tf.nn.relu(square - tf.square(self._conditional_mean(X, F)))

    def _square_of_base(self, X: TensorType, F: TensorType) -> tf.Tensor:
        """E[y²|f] of the base."""
        mean = self.base._conditional_mean(X, F)
        return self.base._conditional_variance(X, F) + tf.square(mean)

    def _predict_mean_and_var(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType
    ) -> MeanAndVariance:
        """The base's E y^j plus E[E[y^j|f] p(0|f)/(1 − p(0|f))], for j = 1 and 2."""
        mean, variance = self.base._predict_mean_and_var(X, Fmu, Fvar)

        def odds(F: tf.Tensor) -> tf.Tensor:
            return tf.exp(self._log_zero(F)) / _one_minus_exp(self._log_zero(F))

        square = variance + tf.square(mean)
        square += expectation(lambda F: odds(F) * self._square_of_base(X, F), Fmu, Fvar)
        mean += expectation(lambda F: odds(F) * self.base._conditional_mean(X, F), Fmu, Fvar)
        return mean, tf.nn.relu(square - tf.square(mean))

    def draw_y(self, F: TensorType, seed: Any) -> tf.Tensor:
        """
        1 + the number of events after the first event, which is in (0, 1).

        A count is the number of events in (0, 1) of a Poisson process with rate λσ(f), or e^f times
        a Gamma(r) draw. The probability of no event until t is e^{−λσ(f)t}, or (1 + t e^f)^{−r}.
        """
        seeds = tfp.random.split_seed(seed, n=3, salt="zero_truncated")
        shape = tf.shape(F)
        u = tf.random.stateless_uniform(shape, seeds[0], dtype=F.dtype)
        until = -tf.math.log1p(u * tf.math.expm1(self._log_zero(F)))  # −log P(none until t)
        if isinstance(self.base, Poisson):
            rate = self.base.max_rate * tf.sigmoid(F) - until
        else:
            r = tf.cast(self.base.total_count, F.dtype)
            gamma = tf.random.stateless_gamma(shape, seeds[1], r + 1.0, dtype=F.dtype)
            rate = gamma * (tf.exp(F) - tf.math.expm1(until / r)) * tf.exp(-until / r)
        return 1.0 + tf.random.stateless_poisson(shape, seeds[2], tf.nn.relu(rate), F.dtype)

    def outcomes(self) -> AnyNDArray:
        return self.base.outcomes()[1:]

    def check_observations(self, Y: tf.Tensor) -> Sequence[Check]:
        message = f"Y must be at least 1 for {type(self).__name__}."
        return [*self.base.check_observations(Y), check_all(Y, Y != 0.0, message)]


def _log_expected_sigmoid(mean: tf.Tensor, variance: tf.Tensor) -> tf.Tensor:
    return log_expectation(tf.math.log_sigmoid, mean, variance, [tf.zeros_like(mean)])


# What log σ(g) is replaced by in each method, as a function of the marginals of g.
_OF_SIGMOID: dict[str, Callable[..., tf.Tensor]] = {
    "pointwise_bound": lambda mean, variance: log_s(-mean, variance),
    "pointwise_log_prob": tf.math.log_sigmoid,
    "expected_log_prob": partial(expectation, tf.math.log_sigmoid),
    "predictive_log_density": _log_expected_sigmoid,
    "_cdf": tf.math.log_sigmoid,
    "_predict_cdf": _log_expected_sigmoid,
}


class _Gated(AugmentedLikelihood, abc.ABC):
    """
    A zero with probability π, and otherwise a count with the distribution ``count``.

    π = σ(g) with a second latent GP g, or one number for all data. Sums over the two origins of y
    are bounded term by term; given the origin, f and g are independent.
    """

    lowest = 0.0

    def __init__(self, count: OutputwiseLikelihood, gate: Gate, **kwargs: Any) -> None:
        name = type(self).__name__
        self._has_gp = isinstance(gate, str)
        if self._has_gp and gate != "gp":
            raise ValueError(
                f'{name}: gate must be "gp", or one number in (0, 1). Found: {gate!r}.'
            )
        dims = (2, 1) if self._has_gp else (count.latent_dim, count.observation_dim)
        super().__init__(input_dim=None, latent_dim=dims[0], observation_dim=dims[1], **kwargs)
        self.count = count
        self.gate = None if self._has_gp else open_interval_parameter(name, "gate", gate, 1.0)
        self.given = count.given

    def _f(self, F: TensorType) -> tf.Tensor:
        """The columns of f, without the column of g."""
        return F[..., :1] if self._has_gp else F

    def _log_gates(self, name: str, *marginals: TensorType) -> tuple[tf.Tensor, tf.Tensor]:
        """log π and log(1 − π), or what the method ``name`` replaces them by."""
        if self._has_gp:
            of_sigmoid = _OF_SIGMOID[name]
            mean, *variance = (part[..., 1:] for part in marginals)
            return of_sigmoid(mean, *variance), of_sigmoid(-mean, *variance)
        pi = tf.cast(self.gate, marginals[0].dtype)
        return tf.math.log(pi), tf.math.log1p(-pi)

    def _is_zero(self, Y: TensorType) -> tf.Tensor:
        return tf.equal(self.response(Y), 0.0)

    @property
    @abc.abstractmethod
    def base(self) -> OutputwiseLikelihood:
        """The user's distribution of counts."""

    @abc.abstractmethod
    def _of_zero(self, log_pi: tf.Tensor, log_counted: tf.Tensor) -> tf.Tensor:
        """log p(0), given log π and the log-probability that a zero is a count."""

    # ---- log p(y|f), a bound on it, its expectations, and P(y' ≤ y) ----

    def _log_mixture(self, name: str, X: TensorType, marginals: Any, Y: TensorType) -> tf.Tensor:
        """log p(y) or a bound, from the values of the method ``name`` for gate and count."""
        log_pi, log_rest = self._log_gates(name, *marginals)
        value = log_rest + getattr(self.count, name)(X, *map(self._f, marginals), Y)
        return tf.where(self._is_zero(Y), self._of_zero(log_pi, value), value)

    def _mixture(self, name: str, X: TensorType, marginals: Any, Y: TensorType) -> tf.Tensor:
        pi, rest = map(tf.exp, self._log_gates(name, *marginals))
        of_count = getattr(self.count, name.removeprefix("_"))  # 0 at y = 0 of a truncated count
        return pi + rest * of_count(X, *map(self._f, marginals), Y)

    pointwise_bound = delegated("pointwise_bound", _log_mixture)
    pointwise_log_prob = delegated("pointwise_log_prob", _log_mixture)
    expected_log_prob = delegated("expected_log_prob", _log_mixture)
    predictive_log_density = delegated("predictive_log_density", _log_mixture)
    _cdf = delegated("_cdf", _mixture)
    _predict_cdf = delegated("_predict_cdf", _mixture)

    def _log_survival(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        """A y above 0 is no zero of the gate."""
        _, log_rest = self._log_gates("_cdf", F)
        return log_rest + self.count.log_survival(X, self._f(F), Y)

    def _conditional_mean(self, X: TensorType, F: TensorType) -> tf.Tensor:
        _, log_rest = self._log_gates("pointwise_log_prob", F)
        return tf.exp(log_rest) * self.count._conditional_mean(X, self._f(F))

    def _conditional_variance(self, X: TensorType, F: TensorType) -> tf.Tensor:
        f = self._f(F)
        moments = self.count._conditional_mean(X, f), self.count._conditional_variance(X, f)
        return self._moments("pointwise_log_prob", [F], moments)[1]

    def _predict_mean_and_var(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType
    ) -> MeanAndVariance:
        moments = self.count._predict_mean_and_var(X, self._f(Fmu), self._f(Fvar))
        return self._moments("_predict_cdf", [Fmu, Fvar], moments)

    def _moments(self, name: str, marginals: Any, of_count: MeanAndVariance) -> MeanAndVariance:
        """The law of total variance: within origins, plus of the mean between origins."""
        pi, rest = map(tf.exp, self._log_gates(name, *marginals))
        mean, variance = of_count
        return rest * mean, rest * (variance + pi * tf.square(mean))

    # ---- the augmentation ----

    def bound(self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType) -> tf.Tensor:
        return tf.reduce_sum(self.pointwise_bound(X, Fmu, Fvar, Y), -1)

    def auxiliary_law(
        self, X: TensorType | None, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tfp.distributions.Distribution:
        """
        ``gated`` ~ Bernoulli: whether the zero comes from π; ``count``: the count's auxiliary
        variables, without effect if gated; and for a gate GP ``omega`` ~ PG(1, g)/2.
        """
        log_pi, _ = self._log_gates("pointwise_bound", Fmu, Fvar)
        p = tf.exp(tf.minimum(log_pi - self.pointwise_bound(X, Fmu, Fvar, Y), 0.0))
        p = tf.where(self._is_zero(Y), p, tf.zeros_like(p))
        laws = {
            "gated": tfp.distributions.Bernoulli(probs=p, dtype=Fmu.dtype),
            "count": lambda gated: self.count.auxiliary_law(
                X, (1.0 - gated) * self._f(Fmu), (1.0 - gated) * self._f(Fvar), Y
            ),
        }
        if self._has_gp:
            c = root_mean_square(Fmu[..., 1:], Fvar[..., 1:])
            laws["omega"] = half_polya_gamma(tf.ones_like(c), c)
        return tfp.distributions.JointDistributionNamed(laws)

    def log_joint(
        self, X: TensorType | None, auxiliary: Any, F: TensorType, Y: TensorType
    ) -> tf.Tensor:
        gated, of_count = auxiliary["gated"], auxiliary["count"]
        f = self._f(F)
        if self._has_gp:
            of_gate = log_powers_of_sigmoid(gated, 1.0 - gated, auxiliary["omega"], F[..., 1:])
        else:
            log_pi, log_rest = self._log_gates("pointwise_log_prob", F)
            of_gate = gated * log_pi + (1.0 - gated) * log_rest
        none = tf.zeros_like(f)
        law = self.count.auxiliary_law(X, none, none, Y)  # without effect on y
        joint = self.count.log_joint(X, of_count, f, Y)
        impossible = tf.constant(-np.inf, joint.dtype)
        of_gated = tf.where(self._is_zero(Y), law.log_prob(of_count), impossible)
        return of_gate + tf.where(gated > 0.0, of_gated, joint)

    def site(self, X: TensorType | None, auxiliary: Any, Y: TensorType) -> Site:
        """The count's site times 1 − gated; for g potential gated − ½ and precision 2ω."""
        gated = auxiliary["gated"]
        of_count = self.count.site(X, auxiliary["count"], Y)
        sites = tuple((1.0 - gated) * part for part in of_count)
        if not self._has_gp:
            return sites
        of_gate = gated - 0.5, 2.0 * auxiliary["omega"]
        return tuple(tf.concat(parts, -1) for parts in zip(sites, of_gate, strict=True))

    # ---- what y may be, and draws of it ----

    outcomes = of_base("outcomes")
    as_observed = of_base("as_observed")
    check_observations = of_base("check_observations")

    def draw_y(self, F: TensorType, seed: Any) -> tf.Tensor:
        return self.draw_y_like(None, F, self.as_observed(self._f(F)), seed)

    def draw_y_like(self, X: TensorType, F: TensorType, Y: TensorType, seed: Any) -> tf.Tensor:
        seeds = tfp.random.split_seed(seed, n=2, salt="gated")
        counts = self.count.draw_y_like(X, self._f(F), Y, seeds[0])
        u = tf.random.stateless_uniform(tf.shape(counts), seeds[1], dtype=F.dtype)
        pi = tf.exp(self._log_gates("pointwise_log_prob", F)[0])
        return tf.where(u < pi, tf.zeros_like(counts), counts)


class ZeroInflated(_Gated):
    r"""
    A count that is replaced by 0 with probability π: P(0|f) = π + (1 − π) p(0|f) (Lambert 1992).

    π = σ(g) with a second latent GP g, or one learnable number. Whether a zero comes from π or from
    the count is an auxiliary variable; given it, the count is augmented as usual::

        AugmentedSVGP(
            kernel, ZeroInflated(NegativeBinomial(), gate="gp"), Z, num_latent_gps=2, num_data=N
        )
    """

    count: Any

    def __init__(
        self, base: NegativeBinomial | Binomial | Poisson, gate: Gate = 0.5, **kwargs: Any
    ) -> None:
        """
        :param base: the distribution of the count; shared, with its Parameters. If its Y has a
            column of trials, Y still has it.
        :param gate: the initial π in (0, 1), or a ``Parameter`` to share. With ``"gp"`` there are
            two latent GPs, f of the count and g, and Y has one column of counts.
        :raises ValueError: for another likelihood or gate.
        """
        _check_base("ZeroInflated", base, NegativeBinomial, Binomial, Poisson)
        super().__init__(base, gate, **kwargs)
        self.couples = self._has_gp
        self.row_cost = 5.0 if self._has_gp else 0.0  # E log p(0) is a double integral

    @property
    def base(self) -> OutputwiseLikelihood:
        return self.count

    def _of_zero(self, log_pi: tf.Tensor, log_counted: tf.Tensor) -> tf.Tensor:
        return tfp.math.log_add_exp(log_pi, log_counted)

    def expected_log_prob(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        """log(a + b) = log a + softplus(log b − log a), where a is not negligible."""
        log_pi, log_rest = self._log_gates("expected_log_prob", Fmu, Fvar)
        counted = log_rest + self.count.expected_log_prob(X, self._f(Fmu), self._f(Fvar), Y)

        def of_rest(x: tf.Tensor, logit: tf.Tensor) -> tf.Tensor:
            return tf.math.softplus(tf.where(logit > 0.0, x, -x))

        rest = self._expected_of_log_odds(of_rest, Fmu, Fvar, Y)
        of_zero = tf.where(self._logit(Fmu) > 0.0, log_pi, counted) + rest
        return tf.where(self._is_zero(Y), of_zero, counted)

    def _logit(self, Fmu: TensorType) -> tf.Tensor:
        """logit π, or the mean of g for a gate GP."""
        if self._has_gp:
            return Fmu[..., 1:]
        return tf.subtract(*self._log_gates("pointwise_log_prob", Fmu))

    def _expected_of_log_odds(
        self,
        function: Callable[[tf.Tensor, tf.Tensor], tf.Tensor],
        Fmu: TensorType,
        Fvar: TensorType,
        Y: TensorType,
    ) -> tf.Tensor:
        """
        E function(log p(0|f) − logit π, E logit π), [..., N, P], for rows with y = 0.

        The function bends where its first argument is 0 at the mean of g; the nodes of f are dense
        there. With a gate GP the double sum is computed for a few rows at a time.
        """
        if not self._has_gp:
            return self._of_log_odds(function, Fmu, Fvar, Y)

        def of_rows(mean: tf.Tensor, variance: tf.Tensor) -> tf.Tensor:
            zero = tf.zeros_like(mean[..., :1])
            return self._of_log_odds(function, mean, variance, zero)[..., 0]

        Fmu, Fvar = Fmu + tf.zeros_like(Fvar), Fvar + tf.zeros_like(Fmu)
        return in_chunks_of_rows(of_rows, Fmu, Fvar, _NUMBERS, recompute=False)[..., None]

    def _of_log_odds(
        self,
        function: Callable[[tf.Tensor, tf.Tensor], tf.Tensor],
        Fmu: tf.Tensor,
        Fvar: tf.Tensor,
        Y: tf.Tensor,
    ) -> tf.Tensor:
        logit = self._logit(Fmu)
        level = tf.stop_gradient(tf.maximum(-logit, tf.cast(0.5, Fmu.dtype)))  # −log p(0|f)
        if isinstance(self.count, Poisson):
            share = tf.clip_by_value(level / self.count.max_rate, 1e-6, 0.9)
            centre = tf.math.log(share) - tf.math.log1p(-share)
        else:
            centre = tfp.math.softplus_inverse(level / self.count.exponent(Y))

        def of_f(x: tf.Tensor) -> tf.Tensor:
            log_zero = self.count.pointwise_log_prob(None, x + centre, Y)
            if not self._has_gp:
                return function(log_zero - logit, logit)
            of_g = logit - log_zero
            return expectation(lambda d: function(-d, logit), of_g, Fvar[..., 1:])

        return expectation(of_f, self._f(Fmu) - centre, self._f(Fvar))

    def coupling(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        """−∂E σ(log p(0|f) − g)/∂m_f if y = 0, otherwise 0."""
        with tf.GradientTape() as tape:
            tape.watch(Fmu)
            counted = self._expected_of_log_odds(lambda x, _: tf.sigmoid(x), Fmu, Fvar, Y)
        slope = -tape.gradient(counted, Fmu)[..., :1]
        between = tf.where(self._is_zero(Y), slope, tf.zeros_like(slope))
        return between[..., None] * tf.constant([[0.0, 1.0], [1.0, 0.0]], slope.dtype)


class Hurdle(_Gated):
    r"""
    A zero with probability π, otherwise a count of at least 1, as ``ZeroTruncated`` (Cragg 1971).

    π = σ(g) with a second latent GP g, or one learnable number. Unlike :class:`ZeroInflated`, this
    also allows fewer zeros than the distribution of the count has. g decides whether y is 0, and f
    how large a positive y is; the two are independent given y.
    """

    count: Any

    def __init__(self, base: NegativeBinomial | Poisson, gate: Gate = 0.5, **kwargs: Any) -> None:
        """
        :param base: the distribution that is truncated to positive counts; shared, with its
            Parameters.
        :param gate: as in :class:`ZeroInflated`.
        :raises ValueError: for another likelihood or gate.
        """
        _check_base("Hurdle", base, NegativeBinomial, Poisson)
        super().__init__(ZeroTruncated(base), gate, **kwargs)

    @property
    def base(self) -> OutputwiseLikelihood:
        return self.count.base

    def _of_zero(self, log_pi: tf.Tensor, log_counted: tf.Tensor) -> tf.Tensor:
        return log_pi + tf.zeros_like(log_counted)


def _one_minus_exp(log_zero: tf.Tensor) -> tf.Tensor:
    """1 − p(0|f), at least the smallest positive number."""
    tiny = tf.constant(np.finfo(log_zero.dtype.as_numpy_dtype).tiny, log_zero.dtype)
    return tf.maximum(-tf.math.expm1(log_zero), tiny)


def _check_base(owner: str, base: Any, *accepted: type) -> None:
    if not isinstance(base, accepted):
        names = ", ".join(kind.__name__ for kind in accepted)
        raise ValueError(f"{owner}: base must be one of {names}. Found: {base!r}.")
