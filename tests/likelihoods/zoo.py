"""
Likelihoods of several latent GPs, auxiliary variables or columns of Y, with densities by SciPy.

Those with one ω per output and one y per f are in ``cases``.
"""

from collections.abc import Callable
from dataclasses import dataclass

import gpflow
import numpy as np
import scipy.special
import scipy.stats
import tensorflow as tf
from gpflow.base import AnyNDArray

from gpflow_aaci import likelihoods
from gpflow_aaci.contrib.likelihoods import MultinomialProbit
from gpflow_aaci.likelihoods import AugmentedLikelihood, augmented, warps

Rows = AnyNDArray
Observe = Callable[[np.random.Generator, int], Rows]


@dataclass(frozen=True)
class Member:
    """A likelihood and its textbook definition."""

    name: str
    make: Callable[[], AugmentedLikelihood]
    num_latents: int
    observe: Observe  # N rows of Y [N, P]
    log_density: Callable[[Rows, Rows, Rows], Rows]  # (x, f [..., L], y [..., P]) → [...]
    outcomes: Rows | None = None  # for a discrete y, all that matter
    has_law: bool = True  # whether it is a law of y, given x, f and the other columns of Y
    coarsened: Callable[[Rows], Rows] | None = None  # the rows of Y that are observed of y


def sigmoid(f: Rows) -> Rows:
    return scipy.special.expit(f)


def _softmax(x: Rows, f: Rows, y: Rows) -> Rows:
    own = np.sum(f * (y == np.arange(f.shape[-1])), -1)
    return scipy.special.log_expit(own) - np.log(np.sum(sigmoid(f), -1))


def _tree(x: Rows, f: Rows, y: Rows) -> Rows:
    """Labels 0 and 2 against 1 and 3 by the first f, 0 against 2 and 1 against 3 by the others."""
    label = y[..., 0].astype(int)
    first = scipy.special.log_expit(np.where(label % 2 == 0, f[..., 0], -f[..., 0]))
    second = np.where(label % 2 == 0, f[..., 1], f[..., 2])
    return first + scipy.special.log_expit(np.where(label < 2, second, -second))


def _probit(x: Rows, f: Rows, y: Rows) -> Rows:
    """log P(z_y is the largest), z ~ N(f, I), by 41 values of z_y about its mode."""
    own = np.sum(f * (y == np.arange(3)), -1)
    label = y[..., 0].astype(int)
    others = [np.sum(f * ((label[..., None] + k) % 3 == np.arange(3)), -1) for k in (1, 2)]
    middle = np.clip(np.max(others, 0) - own, 0.0, None) / 2.0
    total = np.full(own.shape, -np.inf)
    for node in np.linspace(-8.0, 8.0, 41):
        u = node + middle
        log_p = sum(scipy.special.log_ndtr(own + u - other) for other in others)
        total = np.logaddexp(total, log_p + scipy.stats.norm.logpdf(u))
    return total + np.log(0.4)


def coarsened(low: float, middle: float, high: float, least: float) -> Callable[[Rows], Rows]:
    """Left-censored below ``low``, exact up to ``middle``, an interval, then right-censored."""

    def rows(y: Rows) -> Rows:
        kinds = [y < low, y < middle, y < high]
        lower = np.select(kinds, [least, y, middle], high)
        return np.concatenate([lower, np.select(kinds, [low, y, high], np.inf)], -1)

    return rows


def log_between(law: scipy.stats.rv_continuous, f: Rows, scale: float, y: Rows) -> Rows:
    """log P(lower < f + scale e < upper), or the log density where both ends are equal."""
    low, high = ((y[..., k] - f[..., 0]) / scale for k in (0, 1))
    exact = law.logpdf(low) - np.log(scale)
    is_exact = y[..., 0] == y[..., 1]
    low, high = np.where(low > 0, -high, low), np.where(low > 0, -low, high)  # the lower tail
    high = np.where(is_exact, low + 1.0, high)
    ratio = law.logcdf(low) - law.logcdf(high)
    return np.where(is_exact, exact, law.logcdf(high) + np.log1p(-np.exp(ratio)))


def _edges(label: Rows) -> Rows:
    edges = np.array([-np.inf, -0.7, 0.4, 1.1, np.inf])
    return np.stack([edges[label.astype(int)], edges[label.astype(int) + 1]], -1)


def _warped_interval(x: Rows, f: Rows, y: Rows) -> Rows:
    log_y = np.log(np.maximum(y, 1e-300))
    log_y = np.where(y > 0, log_y, -np.inf)
    is_exact = y[..., 0] == y[..., 1]
    return log_between(scipy.stats.norm, f, 0.5, log_y) - np.where(is_exact, log_y[..., 0], 0.0)


COARSENED, COARSENED_POSITIVE = coarsened(-0.6, 0.5, 1.0, -np.inf), coarsened(0.6, 1.6, 2.7, 0.0)


def _scale_at(x: Rows) -> Rows:
    return 0.5 + 0.2 * x[..., 0]


def _scale_by_gp(f: Rows) -> Rows:
    return (5.0 * sigmoid(f[..., 1])) ** -0.5


class ScaleOfX(gpflow.functions.Function):
    """The function 0.5 + 0.2 x, whose first number is a Parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.at_zero = gpflow.Parameter(0.5)

    def __call__(self, X: tf.Tensor) -> tf.Tensor:
        return self.at_zero + 0.2 * X[..., :1]


def _tanh_warp(y: Rows) -> tuple[Rows, Rows]:
    a, b, c = (np.array(v) for v in _TANH)
    inner = b * (y[..., None] + c)
    slope = 1.0 + np.sum(a * b / np.cosh(inner) ** 2, -1)
    return y + np.sum(a * np.tanh(inner), -1), slope


_TANH = ([0.5, 0.3], [1.5, 0.7], [-0.4, 0.8])


def _warped_student_t(x: Rows, f: Rows, y: Rows) -> Rows:
    z, slope = _tanh_warp(y[..., 0])
    return scipy.stats.t.logpdf(z, 4.0, f[..., 0], 0.5) + np.log(slope)


def _switched(x: Rows, f: Rows, y: Rows) -> Rows:
    f, label, value = f[..., 0], y[..., 1], y[..., 0]
    parts = [
        scipy.stats.norm.logpdf(value, f, 0.5),
        scipy.special.log_expit(np.where(value > 0, f, -f)),
        scipy.stats.t.logpdf(value, 3.0, f, 0.4),
    ]
    return np.choose(label.astype(int), parts)


def _observe_switched(rng: np.random.Generator, N: int) -> Rows:
    label = np.arange(N) % 3
    value = rng.normal(size=N)
    return np.stack([np.where(label == 1, value > 0, value), label], -1)


def _make_switched() -> AugmentedLikelihood:
    return augmented(
        gpflow.likelihoods.SwitchedLikelihood(
            [
                gpflow.likelihoods.Gaussian(0.25),
                gpflow.likelihoods.Bernoulli(invlink=tf.sigmoid),
                gpflow.likelihoods.StudentT(0.4, df=3.0),
            ]
        )
    )


def _multivariate_student_t(x: Rows, f: Rows, y: Rows) -> Rows:
    law = scipy.stats.multivariate_t(np.zeros(2), 0.6**2 * np.eye(2), df=9.0)
    return law.logpdf(y - f)


def _counts(mean: float) -> Callable[[np.random.Generator, int], Rows]:
    return lambda rng, N: rng.poisson(mean * rng.gamma(2.0, 0.5, size=(N, 1))).astype(float)


def _with_trials(rng: np.random.Generator, N: int) -> Rows:
    trials = rng.integers(1, 9, size=(N, 1))
    return np.hstack([rng.binomial(trials, 0.6), trials]).astype(float)


def _with_missing(rng: np.random.Generator, N: int) -> Rows:
    """Of many rows, five in twelve have one output only."""
    Y = rng.normal(size=(N, 2))
    Y[3::4, 0] = Y[5::6, 1] = np.nan
    Y[11::12, 1] = 0.3
    return Y


def _poisson_with_exposure(x: Rows, f: Rows, y: Rows) -> Rows:
    return scipy.stats.poisson.logpmf(y[..., 0], 9.0 * sigmoid(f[..., 0]) * y[..., 1])


def _observe_with_exposure(rng: np.random.Generator, N: int) -> Rows:
    exposure = rng.uniform(0.2, 3.0, size=(N, 1))
    return np.hstack([rng.poisson(4.0 * exposure), exposure])


def _weibull(x: Rows, f: Rows, y: Rows) -> Rows:
    law = scipy.stats.weibull_min(1.7, scale=(3.0 * sigmoid(f[..., 0])) ** (-1.0 / 1.7))
    return np.where(y[..., 1] == 1.0, law.logpdf(y[..., 0]), law.logsf(y[..., 0]))


def _observe_with_censoring(rng: np.random.Generator, N: int) -> Rows:
    time, end = rng.exponential(size=(N, 1)), rng.uniform(0.5, 2.0, size=(N, 1))
    return np.hstack([np.minimum(time, end), time < end]).astype(float)


def _cox(x: Rows, f: Rows, y: Rows) -> Rows:
    rate = 9.0 * sigmoid(f[..., 0])
    return np.where(y[..., 0] == 1.0, np.log(rate), -rate * y[..., 1])


def _observe_points(rng: np.random.Generator, N: int) -> Rows:
    is_point = np.arange(N) % 3 == 0
    return np.stack([is_point, np.where(is_point, 0.0, 0.3)], -1).astype(float)


def _nbinom(f: Rows, y: Rows) -> Rows:
    return scipy.stats.nbinom.logpmf(y, 2.5, sigmoid(-f))


def _inflated(log_p: Rows, log_pi: Rows, log_rest: Rows, y: Rows) -> Rows:
    return np.where(y == 0, np.logaddexp(log_pi, log_rest + log_p), log_rest + log_p)


def _inflated_poisson(x: Rows, f: Rows, y: Rows) -> Rows:
    log_p = scipy.stats.poisson.logpmf(y[..., 0], 9.0 * sigmoid(f[..., 0]))
    gates = (scipy.special.log_expit(sign * f[..., 1]) for sign in (1, -1))
    return _inflated(log_p, *gates, y[..., 0])


def _truncated(log_p: Rows, log_zero: Rows) -> Rows:
    return log_p - np.log(-np.expm1(log_zero))


def _hurdle(x: Rows, f: Rows, y: Rows) -> Rows:
    positive = np.log(0.7) + _truncated(_nbinom(f, y), _nbinom(f, 0.0))
    return np.where(y == 0, np.log(0.3), positive)[..., 0]


def _truncated_poisson(x: Rows, f: Rows, y: Rows) -> Rows:
    rate = 9.0 * sigmoid(f[..., 0])
    log_p = _truncated(scipy.stats.poisson.logpmf(y[..., 0], rate), -rate)
    return np.where(y[..., 0] > 0, log_p, -np.inf)


def _hurdle_poisson(x: Rows, f: Rows, y: Rows) -> Rows:
    log_pi, log_rest = (scipy.special.log_expit(sign * f[..., 1]) for sign in (1, -1))
    return np.where(y[..., 0] == 0, log_pi, log_rest + _truncated_poisson(x, f, y))


def _with_zeros(observe: Observe) -> Observe:
    """Every third count is set to 0."""

    def observe_with_zeros(rng: np.random.Generator, N: int) -> Rows:
        Y = observe(rng, N)
        Y[::3, 0] = 0.0
        return Y

    return observe_with_zeros


def _real(rng: np.random.Generator, N: int) -> Rows:
    return rng.normal(size=(N, 1))


ZOO = [
    Member(
        "NegativeBinomial",
        lambda: likelihoods.NegativeBinomial(3.3),
        1,
        _counts(4.0),
        lambda x, f, y: scipy.stats.nbinom.logpmf(y, 3.3, sigmoid(-f))[..., 0],
        np.arange(3000.0)[:, None],
    ),
    Member(
        "NegativeBinomial with exposure",
        lambda: likelihoods.NegativeBinomial(3.3, with_exposure=True),
        1,
        _observe_with_exposure,
        lambda x, f, y: scipy.stats.nbinom.logpmf(y[..., 0], 3.3 * y[..., 1], sigmoid(-f[..., 0])),
    ),
    Member(
        "Binomial",
        lambda: likelihoods.Binomial(7),
        1,
        lambda rng, N: rng.binomial(7, 0.6, size=(N, 1)).astype(float),
        lambda x, f, y: scipy.stats.binom.logpmf(y, 7, sigmoid(f))[..., 0],
        np.arange(8.0)[:, None],
    ),
    Member(
        "Binomial with trials",
        likelihoods.Binomial,
        1,
        _with_trials,
        lambda x, f, y: scipy.stats.binom.logpmf(y[..., 0], y[..., 1], sigmoid(f[..., 0])),
    ),
    Member(
        "Poisson",
        lambda: likelihoods.Poisson(9.0),
        1,
        _counts(4.0),
        lambda x, f, y: scipy.stats.poisson.logpmf(y, 9.0 * sigmoid(f))[..., 0],
        np.arange(200.0)[:, None],
    ),
    Member(
        "Poisson with exposure",
        lambda: likelihoods.Poisson(9.0, with_exposure=True),
        1,
        _observe_with_exposure,
        _poisson_with_exposure,
    ),
    Member(
        "CoxProcess",
        lambda: likelihoods.CoxProcess(9.0),
        1,
        _observe_points,
        _cox,
        has_law=False,
    ),
    Member(
        "Exponential",
        lambda: likelihoods.Exponential(3.0),
        1,
        lambda rng, N: rng.exponential(size=(N, 1)),
        lambda x, f, y: scipy.stats.expon.logpdf(y, scale=1.0 / (3.0 * sigmoid(f)))[..., 0],
    ),
    Member(
        "Weibull with censoring",
        lambda: likelihoods.Weibull(3.0, 1.7, with_censoring=True),
        1,
        _observe_with_censoring,
        _weibull,
        has_law=False,
    ),
    Member(
        "Gamma",
        lambda: likelihoods.Gamma(4.0, 2.5),
        1,
        lambda rng, N: rng.gamma(2.0, size=(N, 1)),
        lambda x, f, y: scipy.stats.gamma.logpdf(y, 2.5, scale=1.0 / (4.0 * sigmoid(f)))[..., 0],
    ),
    Member(
        "ZeroInflated NegativeBinomial",
        lambda: likelihoods.ZeroInflated(likelihoods.NegativeBinomial(2.5), 0.3),
        1,
        _with_zeros(_counts(4.0)),
        lambda x, f, y: _inflated(_nbinom(f, y), np.log(0.3), np.log(0.7), y)[..., 0],
        np.arange(3000.0)[:, None],
    ),
    Member(
        "ZeroInflated Poisson, gate GP",
        lambda: likelihoods.ZeroInflated(likelihoods.Poisson(9.0), "gp"),
        2,
        _with_zeros(_counts(4.0)),
        _inflated_poisson,
        np.arange(200.0)[:, None],
    ),
    Member(
        "Hurdle NegativeBinomial",
        lambda: likelihoods.Hurdle(likelihoods.NegativeBinomial(2.5), 0.3),
        1,
        _with_zeros(_counts(4.0)),
        _hurdle,
        np.arange(3000.0)[:, None],
    ),
    Member(
        "Hurdle Poisson, gate GP",
        lambda: likelihoods.Hurdle(likelihoods.Poisson(9.0), "gp"),
        2,
        _with_zeros(_counts(4.0)),
        _hurdle_poisson,
        np.arange(200.0)[:, None],
    ),
    Member(
        "ZeroTruncated Poisson",
        lambda: likelihoods.ZeroTruncated(likelihoods.Poisson(9.0)),
        1,
        lambda rng, N: 1.0 + rng.poisson(2.0, size=(N, 1)),
        _truncated_poisson,
        np.arange(1.0, 200.0)[:, None],
    ),
    Member(
        "LogisticSoftmax",
        lambda: likelihoods.LogisticSoftmax(3),
        3,
        lambda rng, N: rng.integers(3, size=(N, 1)).astype(float),
        _softmax,
        np.arange(3.0)[:, None],
    ),
    Member(
        "LogisticTree",
        lambda: likelihoods.LogisticTree(4, ((0, 2), (1, 3))),
        3,
        lambda rng, N: rng.integers(4, size=(N, 1)).astype(float),
        _tree,
        np.arange(4.0)[:, None],
    ),
    Member(
        "MultinomialProbit",
        lambda: MultinomialProbit(3),
        3,
        lambda rng, N: rng.integers(3, size=(N, 1)).astype(float),
        _probit,
        np.arange(3.0)[:, None],
    ),
    Member(
        "Ordinal",
        lambda: likelihoods.Ordinal([-0.7, 0.4, 1.1], 0.6),
        1,
        lambda rng, N: rng.integers(4, size=(N, 1)).astype(float),
        lambda x, f, y: log_between(scipy.stats.norm, f, 0.6, _edges(y[..., 0])),
        np.arange(4.0)[:, None],
    ),
    Member(
        "Ordinal, logit",
        lambda: likelihoods.Ordinal([-0.7, 0.4, 1.1], 0.4, "logit"),
        1,
        lambda rng, N: rng.integers(4, size=(N, 1)).astype(float),
        lambda x, f, y: log_between(scipy.stats.logistic, f, 0.4, _edges(y[..., 0])),
        np.arange(4.0)[:, None],
    ),
    Member(
        "Interval, probit",
        lambda: likelihoods.Interval("probit", 0.6),
        1,
        lambda rng, N: COARSENED(rng.normal(size=(N, 1))),
        lambda x, f, y: log_between(scipy.stats.norm, f, 0.6, y),
        coarsened=COARSENED,
    ),
    Member(
        "Interval, logit",
        lambda: likelihoods.Interval("logit", 0.4),
        1,
        lambda rng, N: COARSENED(rng.normal(size=(N, 1))),
        lambda x, f, y: log_between(scipy.stats.logistic, f, 0.4, y),
        coarsened=COARSENED,
    ),
    Member(
        "Warped Interval, Log",
        lambda: likelihoods.Warped(likelihoods.Interval("probit", 0.5), warps.Log()),
        1,
        lambda rng, N: COARSENED_POSITIVE(np.exp(rng.normal(size=(N, 1)))),
        _warped_interval,
        coarsened=COARSENED_POSITIVE,
    ),
    Member(
        "Heteroscedastic Gaussian",
        lambda: likelihoods.Heteroscedastic(likelihoods.Gaussian(), 5.0),
        2,
        _real,
        lambda x, f, y: scipy.stats.norm.logpdf(y[..., 0], f[..., 0], _scale_by_gp(f)),
    ),
    Member(
        "Heteroscedastic StudentT",
        lambda: likelihoods.Heteroscedastic(likelihoods.StudentT(0.8, 4.0), 5.0),
        2,
        _real,
        lambda x, f, y: scipy.stats.t.logpdf(y[..., 0], 4.0, f[..., 0], 0.8 * _scale_by_gp(f)),
    ),
    Member(
        "Heteroscedastic Laplace",
        lambda: likelihoods.Heteroscedastic(likelihoods.Laplace(), 5.0),
        2,
        _real,
        lambda x, f, y: scipy.stats.laplace.logpdf(y[..., 0], f[..., 0], _scale_by_gp(f)),
    ),
    Member(
        "MultivariateStudentT",
        lambda: likelihoods.MultivariateStudentT(0.6, 9.0, 2),
        2,
        lambda rng, N: rng.normal(size=(N, 2)),
        _multivariate_student_t,
    ),
    Member(
        "Scaled Gaussian",
        lambda: augmented(gpflow.likelihoods.Gaussian(scale=ScaleOfX())),
        1,
        _real,
        lambda x, f, y: scipy.stats.norm.logpdf(y[..., 0], f[..., 0], _scale_at(x)),
    ),
    Member(
        "Scaled StudentT",
        lambda: augmented(gpflow.likelihoods.StudentT(scale=ScaleOfX(), df=4.0)),
        1,
        _real,
        lambda x, f, y: scipy.stats.t.logpdf(y[..., 0], 4.0, f[..., 0], _scale_at(x)),
    ),
    Member(
        "Warped StudentT",
        lambda: likelihoods.Warped(likelihoods.StudentT(0.5, df=4.0), warps.Tanh(2, *_TANH)),
        1,
        _real,
        _warped_student_t,
    ),
    Member(
        "Warped Gaussian, Log",
        lambda: likelihoods.Warped(likelihoods.Gaussian(scale=0.5), warps.Log()),
        1,
        lambda rng, N: np.exp(rng.normal(size=(N, 1))),
        lambda x, f, y: scipy.stats.lognorm.logpdf(y, 0.5, scale=np.exp(f))[..., 0],
    ),
    Member(
        "Warped Gaussian, Logit",
        lambda: likelihoods.Warped(likelihoods.Gaussian(scale=0.7), warps.Logit()),
        1,
        lambda rng, N: rng.beta(2.0, 3.0, size=(N, 1)),
        lambda x, f, y: (
            scipy.stats.norm.logpdf(scipy.special.logit(y), f, 0.7) - np.log(y * (1.0 - y))
        )[..., 0],
    ),
    Member(
        "Gaussian of known variances",
        lambda: likelihoods.Gaussian(0.3, with_noise_variance=True),
        1,
        lambda rng, N: np.hstack([rng.normal(size=(N, 1)), rng.uniform(0.0, 1.0, size=(N, 1))]),
        lambda x, f, y: scipy.stats.norm.logpdf(y[..., 0], f[..., 0], np.sqrt(0.3 + y[..., 1])),
    ),
    Member(
        "Weighted StudentT",  # weights of 0 and 1: E p(y|f)^w is then (E p(y|f))^w
        lambda: likelihoods.Weighted(likelihoods.StudentT(0.5, df=4.0)),
        1,
        lambda rng, N: np.stack([rng.normal(size=N), np.arange(N) % 5 < 4], -1).astype(float),
        lambda x, f, y: y[..., 1] * scipy.stats.t.logpdf(y[..., 0], 4.0, f[..., 0], 0.5),
    ),
    Member(
        "Missing StudentT",
        lambda: likelihoods.Missing(likelihoods.StudentT(0.9, df=4.0)),
        2,
        _with_missing,
        lambda x, f, y: np.nansum(scipy.stats.t.logpdf(y, 4.0, f, 0.9), -1),
    ),
    Member("Switched", _make_switched, 1, _observe_switched, _switched),
]
