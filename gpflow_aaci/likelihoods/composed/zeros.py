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

from ...validation import Check, check_all, shown
from ..base import AugmentedLikelihood, Site
from ..derived import delegated, of_base
from ..integrals.quadrature import expectation, log_expectation, log_expected_sigmoid
from ..integrals.sums_of_sigmoids import in_chunks_of_rows
from ..law import draw_as_observed
from ..outputwise import OutputwiseLikelihood
from ..parameters import open_interval_parameter
from ..sigmoid_powers import CountLikelihood, Powers, f_of_log_zero, log_s

_NUMBERS = 56 * 56  # floats for one f: the nodes of f times the nodes of g

Gate: TypeAlias = float | Parameter | Literal["gp"]


class ZeroTruncated(OutputwiseLikelihood):
    r"""
    p(y|f)/(1 − p(0|f)) of counts y = 1, 2, …, where a zero cannot be observed.

    1/(1 − p(0|f)) = Σ p(0|f)^k is a mixture over k ≥ 0 unobserved zeros. With
    p(y|f) = C(y) σ(f)^y σ(−f)^b e^{−λσ(f)}, the product p(y|f) p(0|f)^k again consists of such
    powers, whose augmentation is Gaussian in f given n ~ Poisson and ω ~ PG(y + b + n, ·)/2:
    p(0|f) is σ(−f)^r for a ``NegativeBinomial``, σ(−f)^n for a ``Binomial`` with n trials, and
    e^{−λEσ(f)} for a ``Poisson`` with exposure E. (If a column of Y holds the trials, a predicted y
    is the outcome of one trial, and so 1.)
    """

    base: Any
    lowest = 1.0

    def __init__(self, base: AugmentedLikelihood, **kwargs: Any) -> None:
        """
        :param base: ``NegativeBinomial``, ``Binomial`` or ``Poisson``: the distribution of counts
            including zeros; shared, with its Parameters. If its Y has a further column, of trials
            or exposures, Y still has it.
        :raises ValueError: for any other likelihood.
        """
        super().__init__(**kwargs)
        _check_base("ZeroTruncated", base)
        self.base, self.given, self.latent_dim = base, base.given, base.latent_dim

    def _log_zero(self, F: TensorType, Y: TensorType) -> tf.Tensor:
        """log p(0|f) of the base."""
        return self.base.powers_of_zero(Y).log_prob(F)

    def _positive(self, F: TensorType, Y: TensorType) -> tf.Tensor:
        """1 − p(0|f)."""
        return _one_minus_exp(self._log_zero(F, Y))

    def _bound_of_positive(self, Fmu: TensorType, Fvar: TensorType, Y: TensorType) -> tf.Tensor:
        """1 − e^{b(0)}, where b is the bound of the base."""
        return _one_minus_exp(self.base.powers_of_zero(Y).bound(Fmu, Fvar))

    def pointwise_bound(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        """b(y) − log(1 − e^{b(0)}), where b is the bound of the base."""
        positive = self._bound_of_positive(Fmu, Fvar, Y)
        return self.base.pointwise_bound(X, Fmu, Fvar, Y) - tf.math.log(positive)

    def auxiliary_law(
        self, X: TensorType | None, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tfp.distributions.Distribution:
        """k, then n given k, then omega ~ PG(y + b + n, c)/2 given both; all [..., N, P]."""
        return tfp.distributions.JointDistributionNamed(
            {
                "k": tfp.distributions.Geometric(probs=self._bound_of_positive(Fmu, Fvar, Y)),
                "n": lambda k: self._given_k(k, Y).law_of_n(Fmu, Fvar),
                "omega": lambda k, n: self._given_k(k, Y).law_of_omega(Fmu, Fvar, n),
            }
        )

    def _given_k(self, k: tf.Tensor, Y: TensorType) -> Powers:
        """The powers in p(y|f) p(0|f)^k."""
        return self.base.powers(Y).times(self.base.powers_of_zero(Y), k)

    def log_joint(
        self, X: TensorType | None, auxiliary: Any, F: TensorType, Y: TensorType
    ) -> tf.Tensor:
        zero = tf.zeros_like(self.response(Y))  # C(y) is p(y|f = 0) over its powers
        log_C = self.base.pointwise_log_prob(X, zero, Y) - self.base.powers(Y).log_prob(zero)
        return log_C + self._given_k(auxiliary["k"], Y).log_joint(auxiliary, F)

    def site(self, X: TensorType | None, auxiliary: Any, Y: TensorType) -> Site:
        """Potential (y − b − n)/2, precision 2ω."""
        return self._given_k(auxiliary["k"], Y).site(auxiliary["omega"], auxiliary["n"])

    def pointwise_log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        return self._unless_zero(self._log_prob_of_positive(X, F, Y), Y)

    def predictive_log_density(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        log_p = partial(self._log_prob_of_positive, X, Y=Y)
        return self._unless_zero(log_expectation(log_p, Fmu, Fvar, self.peaks(Y)), Y)

    def _log_prob_of_positive(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        """log p(y|f) if y > 0, and finite if y = 0."""
        return self.base.pointwise_log_prob(X, F, Y) - tf.math.log(self._positive(F, Y))

    def _unless_zero(self, log_p: tf.Tensor, Y: TensorType) -> tf.Tensor:
        return tf.where(self.response(Y) > 0.0, log_p, tf.constant(-np.inf, log_p.dtype))

    def expected_log_prob(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        """
        The base's minus E log(1 − p(0|f)), by quadrature centred where this levels off.

        If the count is nearly always 0, it levels off where σ(f) does, which is at 0.
        """
        zero = self.with_response(tf.zeros_like(self.response(Y)), Y)
        centre = tf.minimum(self.base.peaks(zero)[0], tf.zeros([], Y.dtype))
        log_positive = expectation(
            lambda x: tf.math.log(self._positive(x + centre, zero)), Fmu - centre, Fvar
        )
        return self.base.expected_log_prob(X, Fmu, Fvar, Y) - log_positive

    def peaks(self, Y: TensorType) -> Sequence[tf.Tensor]:
        return self.base.peaks(Y)

    def _cdf(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        return -tf.math.expm1(self._log_survival(X, F, Y))

    def _log_survival(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        """log P(y' > y)/(1 − p(0|f)) of the base."""
        return self.base._log_survival(X, F, Y) - tf.math.log(self._positive(F, Y))

    def _conditional_mean(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return self.base._conditional_mean(X, F) / self._positive(F, self.as_observed(F))

    def _conditional_variance(self, X: TensorType, F: TensorType) -> tf.Tensor:
        square = self._square_of_base(X, F) / self._positive(F, self.as_observed(F))
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
            log_zero = self._log_zero(F, self.as_observed(F))
            return tf.exp(log_zero) / _one_minus_exp(log_zero)

        square = variance + tf.square(mean)
        square += expectation(lambda F: odds(F) * self._square_of_base(X, F), Fmu, Fvar)
        mean += expectation(lambda F: odds(F) * self.base._conditional_mean(X, F), Fmu, Fvar)
        return mean, tf.nn.relu(square - tf.square(mean))

    as_observed = of_base()
    draw_y = draw_as_observed

    def draw_y_like(self, X: TensorType, F: TensorType, Y: TensorType, seed: Any) -> tf.Tensor:
        """1 + the number of events after the first one, whose time is drawn first."""
        seeds = tfp.random.split_seed(seed, n=2, salt="zero_truncated")
        u = tf.random.stateless_uniform(tf.shape(F), seeds[0], dtype=F.dtype)
        # P(none until then) = 1 − u (1 − p(0|f))
        until = -tf.math.log1p(u * tf.math.expm1(self._log_zero(F, Y)))
        return 1.0 + self.base.draw_rest(F, Y, until, seeds[1])

    def outcomes(self) -> AnyNDArray:
        return self.base.outcomes()[1:]

    def check_observations(self, Y: tf.Tensor) -> Sequence[Check]:
        y, message = self.response(Y), f"Y must be at least 1 for {type(self).__name__}."
        return [*self.base.check_observations(Y), check_all(Y, y != 0.0, message)]


# What log σ(g) is replaced by in each method, as a function of the marginals of g.
_OF_SIGMOID: dict[str, Callable[..., tf.Tensor]] = {
    "pointwise_bound": lambda mean, variance: log_s(-mean, variance),
    "pointwise_log_prob": tf.math.log_sigmoid,
    "expected_log_prob": partial(expectation, tf.math.log_sigmoid),
    "predictive_log_density": log_expected_sigmoid,
    "_cdf": tf.math.log_sigmoid,
    "_predict_cdf": log_expected_sigmoid,
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
                f'{name}: gate must be "gp", or one number in (0, 1). Found: {shown(gate)}.'
            )
        dims = (2, 1) if self._has_gp else (count.latent_dim, count.observation_dim)
        super().__init__(latent_dim=dims[0], observation_dim=dims[1], **kwargs)
        self.count = count
        self.gate = None if self._has_gp else open_interval_parameter(name, "gate", gate, 1.0)
        self.given = count.given
        self.is_product = not self._has_gp

    def _f(self, F: TensorType) -> tf.Tensor:
        """The columns of f, without the column of g."""
        return F[..., :1] if self._has_gp else F

    def _log_gates(self, name: str, *marginals: TensorType) -> tuple[tf.Tensor, tf.Tensor]:
        """
        log π and log(1 − π), as the method ``name`` needs them.

        With a gate GP these are its bound, expectation or value of log σ, at these marginals of g.
        """
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

    pointwise_bound = pointwise_log_prob = delegated(_log_mixture)
    expected_log_prob = predictive_log_density = delegated(_log_mixture)
    _cdf = _predict_cdf = delegated(_mixture)

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
            laws["omega"] = Powers(1.0).law_of_omega(Fmu[..., 1:], Fvar[..., 1:])
        return tfp.distributions.JointDistributionNamed(laws)

    def log_joint(
        self, X: TensorType | None, auxiliary: Any, F: TensorType, Y: TensorType
    ) -> tf.Tensor:
        gated, of_count = auxiliary["gated"], auxiliary["count"]
        f = self._f(F)
        if self._has_gp:
            of_gate = Powers(gated, 1.0 - gated).log_joint_of_omega(auxiliary["omega"], F[..., 1:])
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
        of_gate = Powers(gated, 1.0 - gated).site(auxiliary["omega"])
        return tuple(tf.concat(parts, -1) for parts in zip(sites, of_gate, strict=True))

    # ---- what y may be, and draws of it ----

    outcomes = as_observed = check_observations = of_base()

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

    def __init__(self, base: AugmentedLikelihood, gate: Gate = 0.5, **kwargs: Any) -> None:
        """
        :param base: ``NegativeBinomial``, ``Binomial`` or ``Poisson``, the distribution of the
            count; shared, with its Parameters. If its Y has a further column, of trials or
            exposures, Y still has it.
        :param gate: the initial π in (0, 1), or a ``Parameter`` to share. With ``"gp"`` there are
            two latent GPs, f of the count and g, and Y has one column of counts.
        :raises ValueError: for another likelihood or gate.
        """
        _check_base("ZeroInflated", base)
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

        At the mean of g, the function of f has a bend where log p(0|f) = logit π. The quadrature
        has its nodes of f close together there. With a gate GP the sum over the nodes of f and g
        is computed for a few rows at a time.
        """
        if not self._has_gp:
            return self._of_log_odds(function, Fmu, Fvar, Y)

        def of_rows(mean: tf.Tensor, variance: tf.Tensor) -> tf.Tensor:
            parts = mean[..., :2], variance[..., :2], mean[..., 2:]
            return self._of_log_odds(function, *parts)[..., 0]

        Fvar += tf.zeros_like(Fmu)
        none = tf.zeros_like(Fvar[..., :1])
        Y = Y + none
        mean = tf.concat([Fmu + none, Y], -1)
        variance = tf.concat([Fvar, tf.zeros_like(Y)], -1)
        return in_chunks_of_rows(of_rows, mean, variance, _NUMBERS, recompute=False)[..., None]

    def _of_log_odds(
        self,
        function: Callable[[tf.Tensor, tf.Tensor], tf.Tensor],
        Fmu: tf.Tensor,
        Fvar: tf.Tensor,
        Y: tf.Tensor,
    ) -> tf.Tensor:
        logit = self._logit(Fmu)
        level = tf.stop_gradient(tf.maximum(-logit, tf.cast(0.5, Fmu.dtype)))  # −log p(0|f)
        zero = self.count.powers_of_zero(Y)
        centre = f_of_log_zero(zero, level)

        def of_f(x: tf.Tensor) -> tf.Tensor:
            log_zero = zero.log_prob(x + centre)
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

    def __init__(self, base: AugmentedLikelihood, gate: Gate = 0.5, **kwargs: Any) -> None:
        """
        :param base: the distribution that is truncated to positive counts, as in
            :class:`ZeroTruncated`.
        :param gate: as in :class:`ZeroInflated`.
        :raises ValueError: for another likelihood or gate.
        """
        _check_base("Hurdle", base)
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


def _check_base(owner: str, base: Any) -> None:
    if not isinstance(base, CountLikelihood):
        raise ValueError(
            f"{owner}: base must be one of NegativeBinomial, Binomial, Poisson of "
            f"gpflow_aaci.likelihoods, such as Poisson(max_rate=10.0). Found: {shown(base)}."
        )
