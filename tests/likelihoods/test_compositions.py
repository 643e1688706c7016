"""
Every likelihood that is made of others, with every base that has further columns of Y.

A base and its textbook definition come from ``zoo.ZOO``; the further columns mean something else
to each. A composition either has the values of its own definition, in terms of the base's, or its
constructor refuses the base and says why.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass

import gpflow
import numpy as np
import pytest
import scipy.special
import scipy.stats
import tensorflow as tf
import test_zoo
from cases import public_classes
from gpflow.base import AnyNDArray
from zoo import ZOO, Member, ScaleOfX

import gpflow_aaci
from gpflow_aaci import likelihoods, predictions
from gpflow_aaci.contrib.likelihoods import NoiseMixture, NoiseProduct
from gpflow_aaci.likelihoods import AugmentedLikelihood, warps
from gpflow_aaci.validation import require

Rows = AnyNDArray
BASES = [member for member in ZOO if member.make().given]


@dataclass(frozen=True)
class Composition:
    """A likelihood that is made of a base, and its definition in terms of that base."""

    kind: type
    make: Callable[[AugmentedLikelihood], AugmentedLikelihood]
    lifted: Callable[[Member, Rows], Rows] | None = None  # its rows of Y, from the base's
    log_density: Callable[[Member, Rows, Rows, Rows], Rows] | None = None  # of base, x, f, y
    cdf: Callable[[Member, Rows, Rows, Rows], Rows] | None = None  # P(y' ≤ y|f), [N]
    num_gates: int = 0

    def of(self, base: Member) -> Member:
        def observe(rng: np.random.Generator, N: int) -> Rows:
            return self.lifted(base, base.observe(rng, N))

        return Member(
            f"{self.kind.__name__} {base.name}",
            lambda: self.make(base.make()),
            base.num_latents + self.num_gates,
            observe,
            lambda x, f, y: self.log_density(base, x, f, y),
            has_law=base.has_law,
        )


# ---- definitions ----


def _is_own(y: Rows) -> Rows:
    return np.arange(len(y)) % 3 > 0


def _weighted_rows(base: Member, y: Rows) -> Rows:
    """A third have the weight 0, the others 1."""
    return np.hstack([y, _is_own(y)[:, None]])


def _switched_rows(base: Member, y: Rows) -> Rows:
    """A third belong to Student's t, whose unused columns hold what no base accepts."""
    other = np.full_like(y, -7.5)
    other[:, 0] = np.sin(np.arange(len(y)))
    own = _is_own(y)[:, None]
    return np.hstack([np.where(own, y, other), ~own])


def _own_rows(base: Member, y: Rows) -> tuple[Rows, Rows]:
    """Which rows are the base's, and the base's rows, with one of them in place of the others."""
    one = base.observe(np.random.default_rng(0), 1)[0]
    is_own = y[..., -1] == 0
    return is_own, np.where(is_own[..., None], y[..., :-1], one)


def _switched(base: Member, x: Rows, f: Rows, y: Rows) -> Rows:
    is_own, own = _own_rows(base, y)
    other = scipy.stats.t.logpdf(y[..., 0], 3.0, f[..., 0], 0.4)
    return np.where(is_own, base.log_density(x, f, own), other)


def _base_cdf(base: Member, x: Rows, f: Rows, y: Rows) -> Rows:
    """By the base itself, of which other tests are about."""
    return base.make().cdf(x, f, y).numpy()[:, 0]


def _switched_cdf(base: Member, x: Rows, f: Rows, y: Rows) -> Rows:
    is_own, own = _own_rows(base, y)
    other = scipy.stats.t.cdf(y[:, 0], 3.0, f[:, 0], 0.4)
    return np.where(is_own, _base_cdf(base, x, f, own), other)


def _columns_of_y(base: Member) -> int:
    return 1 if base.coarsened is None else 2


def _exponential(base: Member, y: Rows) -> Rows:
    number = _columns_of_y(base)
    return np.concatenate([np.exp(y[..., :number]), y[..., number:]], -1)


def _logarithm(base: Member, y: Rows) -> Rows:
    number = _columns_of_y(base)
    with np.errstate(divide="ignore"):  # an end of an interval may be 0
        return np.concatenate([np.log(y[..., :number]), y[..., number:]], -1)


def _warped(base: Member, x: Rows, f: Rows, y: Rows) -> Rows:
    """p(log y)/y; no slope where only an interval is known."""
    has_slope = (base.coarsened is None) | (y[..., 0] == y[..., 1])
    slope = -np.log(np.where(has_slope, y[..., 0], 1.0))
    return base.log_density(x, f, _logarithm(base, y)) + slope


def _zero(y: Rows) -> Rows:
    return np.concatenate([0.0 * y[..., :1], y[..., 1:]], -1)


def _with_zeros(base: Member, y: Rows) -> Rows:
    return np.where(_is_own(y)[:, None], y, _zero(y))


def _without_zeros(base: Member, y: Rows) -> Rows:
    return np.concatenate([np.maximum(y[:, :1], 1.0), y[:, 1:]], -1)


def _gates(f: Rows) -> tuple[Rows, Rows]:
    """The logarithms of π and 1 − π, of the number 0.3 or of the second latent GP."""
    if f.shape[-1] == 1:
        return np.log(0.3), np.log(0.7)
    return scipy.special.log_expit(f[..., 1]), scipy.special.log_expit(-f[..., 1])


def _inflated(base: Member, x: Rows, f: Rows, y: Rows) -> Rows:
    log_pi, log_rest = _gates(f)
    counted = log_rest + base.log_density(x, f[..., :1], y)
    return np.where(y[..., 0] == 0, np.logaddexp(log_pi, counted), counted)


def _truncated(base: Member, x: Rows, f: Rows, y: Rows) -> Rows:
    log_zero = base.log_density(x, f[..., :1], _zero(y))
    log_p = base.log_density(x, f[..., :1], y) - np.log(-np.expm1(log_zero))
    return np.where(y[..., 0] > 0, log_p, -np.inf)


def _hurdle(base: Member, x: Rows, f: Rows, y: Rows) -> Rows:
    log_pi, log_rest = _gates(f)
    return np.where(y[..., 0] == 0, log_pi, log_rest + _truncated(base, x, f, y))


def _sum_up_to(log_density: Callable) -> Callable[[Member, Rows, Rows, Rows], Rows]:
    """P(y' ≤ y|f) as a sum over counts."""

    def cdf(base: Member, x: Rows, f: Rows, y: Rows) -> Rows:
        total = np.zeros(len(y))
        for count in range(int(y[:, 0].max()) + 1):
            rows = np.concatenate([np.full_like(y[:, :1], count), y[:, 1:]], -1)
            total += np.where(count <= y[:, 0], np.exp(log_density(base, x, f, rows)), 0.0)
        return total

    return cdf


def _of_counts(
    kind: type, rows: Callable, log_density: Callable, *gate: float | str
) -> Composition:
    return Composition(
        kind,
        lambda base: kind(base, *gate),
        rows,
        log_density,
        _sum_up_to(log_density),
        num_gates=int("gp" in gate),
    )


_SCALE_OF_X = gpflow.likelihoods.Gaussian(scale=ScaleOfX())

COMPOSITIONS = {
    "Weighted": Composition(
        likelihoods.Weighted,
        likelihoods.Weighted,
        _weighted_rows,
        lambda base, x, f, y: y[..., -1] * base.log_density(x, f, y[..., :-1]),
        lambda base, x, f, y: _base_cdf(base, x, f, y[:, :-1]),
    ),
    "Switched": Composition(
        likelihoods.Switched,
        lambda base: likelihoods.Switched([base, likelihoods.StudentT(0.4, 3.0)]),
        _switched_rows,
        _switched,
        _switched_cdf,
    ),
    "Warped": Composition(
        likelihoods.Warped,
        lambda base: likelihoods.Warped(base, warps.Log()),
        _exponential,
        _warped,
        lambda base, x, f, y: _base_cdf(base, x, f, _logarithm(base, y)),
    ),
    "ZeroInflated": _of_counts(likelihoods.ZeroInflated, _with_zeros, _inflated, 0.3),
    "ZeroInflated, GP": _of_counts(likelihoods.ZeroInflated, _with_zeros, _inflated, "gp"),
    "Hurdle": _of_counts(likelihoods.Hurdle, _with_zeros, _hurdle, 0.3),
    "Hurdle, GP": _of_counts(likelihoods.Hurdle, _with_zeros, _hurdle, "gp"),
    "ZeroTruncated": _of_counts(likelihoods.ZeroTruncated, _without_zeros, _truncated),
    # These refuse all further columns, and so have no definition here.
    "Missing": Composition(likelihoods.Missing, likelihoods.Missing),
    "Heteroscedastic": Composition(likelihoods.Heteroscedastic, likelihoods.Heteroscedastic),
    "NoiseMixture": Composition(
        NoiseMixture,
        lambda base: NoiseMixture([likelihoods.Gaussian(), base]),
    ),
    "NoiseProduct": Composition(
        NoiseProduct,
        lambda base: NoiseProduct([likelihoods.Gaussian(), base]),
    ),
    "Scaled": Composition(likelihoods.Scaled, lambda base: likelihoods.Scaled(base, _SCALE_OF_X)),
}


def cell(composition: Composition, base: Member) -> Member | None:
    """The composition of the base; None if its constructor refuses the base."""
    try:
        composition.make(base.make())
    except ValueError:
        return None
    return composition.of(base)


CELLS = {
    f"{name}: {base.name}": (composition, base, made)
    for name, composition in COMPOSITIONS.items()
    for base in BASES
    if (made := cell(composition, base)) is not None
}
every_cell = pytest.mark.parametrize("name", CELLS)

# Representatives of what each composition does with the columns of its base.
BY_DEFAULT = (
    "Weighted: Interval, probit",
    "Switched: Poisson with exposure",
    "Switched: Weibull with censoring",
    "Warped: Gaussian of known variances",
    "ZeroInflated, GP: Binomial with trials",
    "Hurdle, GP: Poisson with exposure",
    "ZeroTruncated: Binomial with trials",
)


# ---- the table ----


def test_every_composition_of_the_package_is_in_the_table() -> None:
    """They are the likelihoods whose constructor takes other likelihoods."""
    takes_others = {
        kind
        for kind in public_classes()
        if issubclass(kind, AugmentedLikelihood)
        and not inspect.isabstract(kind)
        and {"base", "components", "likelihoods"} & set(inspect.signature(kind).parameters)
    }
    assert takes_others == {composition.kind for composition in COMPOSITIONS.values()}


@pytest.mark.parametrize("base", BASES, ids=lambda base: base.name)
@pytest.mark.parametrize("name", COMPOSITIONS)
def test_a_base_is_accepted_or_refused_with_a_reason(name: str, base: Member) -> None:
    composition = COMPOSITIONS[name]
    if f"{name}: {base.name}" in CELLS:
        assert composition.lifted is not None, "a base is accepted for which nothing is defined"
        return
    kind, found = composition.kind.__name__, type(base.make()).__name__
    with pytest.raises(ValueError, match=rf"^{kind}: .* must .* Found: .*{found}"):
        composition.make(base.make())


@pytest.mark.parametrize(
    ("name", "base"),
    [
        *[("Weighted", base.name) for base in BASES],
        *[("Switched", base.name) for base in BASES if not base.name.startswith("Weighted")],
        ("Warped", "Gaussian of known variances"),
        ("Warped", "Interval, probit"),
        *[
            (name, base)
            for name in (
                "ZeroInflated",
                "ZeroInflated, GP",
                "Hurdle",
                "Hurdle, GP",
                "ZeroTruncated",
            )
            for base in (
                "Binomial with trials",
                "NegativeBinomial with exposure",
                "Poisson with exposure",
            )
        ],
    ],
)
def test_what_the_mathematics_allows_is_accepted(name: str, base: str) -> None:
    assert f"{name}: {base}" in CELLS


@pytest.mark.briefly("ZeroInflated, GP: Binomial with trials")
@pytest.mark.by_default(*BY_DEFAULT)
@every_cell
def test_log_prob_and_the_bound_at_a_point_are_those_of_the_definition(name: str) -> None:
    _, _, made = CELLS[name]
    test_zoo.test_log_prob_is_the_textbooks(made)
    test_zoo.test_the_bound_is_log_prob_at_a_point(made)


@pytest.mark.by_default("Switched: Weibull with censoring", "Hurdle, GP: Poisson with exposure")
@pytest.mark.slow
@every_cell
def test_bounds_and_expectations_are_those_of_the_definition(name: str) -> None:
    test_zoo.test_bound_and_expectations_against_a_product_rule(CELLS[name][2], 0.3)


@pytest.mark.slow
@pytest.mark.by_default("Switched: Poisson with exposure", "ZeroTruncated: Binomial with trials")
@every_cell
def test_auxiliary_variables_and_a_step_are_those_of_the_definition(name: str) -> None:
    """Bayes' rule, sites, ``check_likelihood``, and a natural-gradient step by GPflow."""
    _, _, made = CELLS[name]
    test_zoo.test_bayes_rule_for_the_auxiliary_variables(made)
    test_zoo.test_given_the_auxiliary_variables_the_likelihood_is_gaussian(made)
    test_zoo.test_it_passes_its_own_checks(made)
    test_zoo.test_a_closed_form_step_is_a_natural_gradient_step(made, 0.3)


@pytest.mark.briefly(
    "ZeroTruncated: Binomial with trials",
    "ZeroInflated, GP: Binomial with trials",
    "Hurdle, GP: Poisson with exposure",
    "Warped: Gaussian of known variances",
)
@pytest.mark.by_default(*BY_DEFAULT)
@every_cell
def test_the_cdf_and_the_draws_are_those_of_the_definition(name: str) -> None:
    """Of 4,000 draws for every row, the share that is at most y is P(y' ≤ y|f)."""
    composition, base, made = CELLS[name]
    likelihood, (X, Y) = made.make(), test_zoo.data_of(made)
    Y = _of_events(likelihood, Y)
    F, _ = test_zoo.marginals_of(made, 1.0)
    parts = [tf.repeat(tf.constant(part)[None], 4_000, 0) for part in (X, F, Y)]
    if base.name == "CoxProcess":
        for call in (
            lambda: likelihood.cdf(X, F, Y),
            lambda: likelihood.draw_y_like(*parts, [1, 2]),
        ):
            with pytest.raises(NotImplementedError, match="CoxProcess: a row is a point or a node"):
                call()
        return
    expected = composition.cdf(base, X, F, Y)
    np.testing.assert_allclose(likelihood.cdf(X, F, Y)[:, 0], expected, rtol=1e-9, atol=1e-12)
    is_interval = base.coarsened is not None and Y[:, 1] >= Y[:, 0]
    y = np.where(is_interval, Y[:, 1], Y[:, 0])[:, None]
    drawn = likelihood.draw_y_like(*parts, seed=[1, 2])
    share, rest = np.mean(drawn <= y, 0)[:, 0], np.maximum(1.0 - expected, 0.0)
    error = np.sqrt(expected * rest / 4_000)
    assert np.all(np.abs(share - expected) <= 5.0 * error + 1e-9)


def _of_events(likelihood: AugmentedLikelihood, Y: Rows) -> Rows:
    """Y with every event observed: a draw is the time of the event, censored or not."""
    Y = Y.copy()
    first = likelihood.response(Y).shape[-1]
    for column, given in enumerate(likelihood.given, first):
        if given == "is_observed":
            Y[:, column] = 1.0
    return Y


@pytest.mark.briefly("Warped: Gaussian of known variances")
@pytest.mark.by_default(*BY_DEFAULT)
@every_cell
def test_what_the_base_checks_is_checked(name: str) -> None:
    """Rows of Y are refused if, and only if, the base refuses its own part of them."""
    composition, base, made = CELLS[name]
    likelihood, of_base = made.make(), base.make()
    lifted = composition.lifted
    good = base.observe(np.random.default_rng(4), 6)
    assert _accepts(likelihood, made.observe(np.random.default_rng(4), 6))
    if lifted in (_with_zeros, _without_zeros):
        good[:, 0] = np.maximum(good[:, 0], 1.0)  # some of these compositions need a positive y
        lifted = lambda base, y: y  # noqa: E731
    for row, column in ((1, k) for k in range(good.shape[1])):
        for value in (-1.0, 0.37, 2.0, 30.0, np.nan, np.inf, -np.inf):
            bad = good.copy()
            bad[row, column] = value
            assert _accepts(likelihood, lifted(base, bad)) == _accepts(of_base, bad), bad[row]


def _accepts(likelihood: AugmentedLikelihood, Y: Rows) -> bool:
    try:
        require(likelihood.checks(tf.constant(Y)))
    except ValueError:
        return False
    return True


@pytest.mark.by_default("Switched: Weibull with censoring", "Hurdle, GP: Poisson with exposure")
@pytest.mark.slow
@every_cell
def test_a_fit_ends_at_the_elbo_of_the_definition(name: str) -> None:
    """After a few steps, ``elbo`` is Σ E log p(y|f) − KL[q ‖ p] of the textbook density."""
    _, _, made = CELLS[name]
    (X, Y), model = test_zoo.data_of(made), test_zoo.make_model(made)
    before = float(model.elbo((X, Y)))
    for part in (model.likelihood, model.inducing_variable):
        gpflow.set_trainable(part, False)
    gpflow_aaci.fit(model, (X, Y), tolerance=3.0, progress=False)
    nodes, log_w = test_zoo.grid(*(part.numpy() for part in model.predict_f(X)))
    expected = np.exp(log_w) @ made.log_density(X, nodes, Y)
    elbo = float(model.elbo((X, Y)))
    assert elbo == pytest.approx(np.sum(expected) - float(model.prior_kl()), abs=1e-3)
    assert elbo > before
    assert float(model.augmented_elbo((X, Y))) <= elbo + 1e-9


# ---- stand-ins for what was not observed ----


def _takes_y_alone(member: Member) -> bool:
    likelihood = member.make()
    return likelihood.is_product and not likelihood.given and member.num_latents == 1


ONE_COLUMN = [member for member in ZOO if _takes_y_alone(member)]


@pytest.mark.briefly("Poisson")
@pytest.mark.by_default("Warped StudentT", "Hurdle NegativeBinomial", "Ordinal", "Poisson")
@pytest.mark.parametrize("member", ONE_COLUMN, ids=lambda member: member.name)
def test_a_missing_output_has_a_stand_in_that_its_likelihood_accepts(member: Member) -> None:
    """The rest of the row has the values that it has without it."""
    base, missing = member.make(), likelihoods.Missing(member.make())
    X, Y = test_zoo.data_of(member)
    Y = np.hstack([Y, np.full_like(Y, np.nan)])
    Y[1::2] = Y[1::2, ::-1]
    F, v = np.linspace(-1.0, 1.0, Y.size).reshape(Y.shape), np.full(Y.shape, 0.3)
    is_observed = ~np.isnan(Y)
    of = [part[is_observed][:, None] for part in (F, v, Y)]
    require(missing.checks(tf.constant(Y)))
    for call, expected in (
        (missing.log_prob(X, F, Y), base.log_prob(X, of[0], of[2])),
        (missing.bound(*map(tf.constant, (X, F, v, Y))), base.bound(X, *map(tf.constant, of))),
        (
            missing.predict_log_density(X, F, v, Y),
            base.predict_log_density(X, *of),
        ),
    ):
        np.testing.assert_allclose(call, expected, rtol=1e-9, atol=1e-9)
    in_switch = likelihoods.Switched([base, likelihoods.Gaussian(0.3)])
    rows = np.hstack([of[2], np.arange(len(X))[:, None] % 2.0])
    rows[1::2, 0] = -3.7  # of Gaussian, and impossible for many others
    require(in_switch.checks(tf.constant(rows)))
    expected = np.where(
        rows[:, 1] == 0,
        base.log_prob(X, of[0], of[2]),
        scipy.stats.norm.logpdf(-3.7, of[0][:, 0], np.sqrt(0.3)),
    )
    np.testing.assert_allclose(in_switch.log_prob(X, of[0], rows), expected, rtol=1e-9)


# ---- what went wrong once, in numbers ----


def test_a_known_variance_is_not_warped() -> None:
    """log N(log 2 | 0, ¼ + s²) − log 2, and its draws have this variance."""
    likelihood = likelihoods.Warped(
        likelihoods.Gaussian(0.25, with_noise_variance=True), warps.Log()
    )
    s2 = np.array([1.5, 0.01, 2.0])
    Y, zero = np.stack([np.full(3, 2.0), s2], -1), np.zeros((3, 1))
    np.testing.assert_allclose(
        likelihood.log_prob(zero, zero, Y),
        scipy.stats.lognorm.logpdf(2.0, np.sqrt(0.25 + s2)),
        rtol=1e-12,
    )
    many = [tf.zeros((20_000, 3, 1), tf.float64)] * 2
    drawn = likelihood.draw_y_like(*many, tf.constant(Y), seed=[1, 2])
    variance = np.var(np.log(drawn), 0)[:, 0]
    np.testing.assert_allclose(variance, 0.25 + s2, rtol=0.05)


@pytest.mark.parametrize(
    ("part", "row", "log_p"),
    [
        (
            likelihoods.Poisson(3.0, with_exposure=True),
            [2.0, 0.7],
            scipy.stats.poisson.logpmf(2.0, 3.0 * 0.5 * 0.7),
        ),
        (likelihoods.Weibull(3.0, 1.3, with_censoring=True), [2.0, 0.0], -1.5 * 2.0**1.3),
        (
            likelihoods.Exponential(3.0, with_censoring=True),
            [2.0, 1.0],
            scipy.stats.expon.logpdf(2.0, scale=1.0 / 1.5),
        ),
    ],
    ids=["exposure", "censored", "observed"],
)
def test_the_rows_of_a_part_with_a_further_column_count(
    part: AugmentedLikelihood, row: list[float], log_p: float
) -> None:
    """A row of another part may hold anything in the column that it does not have."""
    likelihood = likelihoods.Switched([part, likelihoods.Poisson(3.0)])
    Y, zero = tf.constant([[*row, 0.0], [2.0, -9.0, 1.0]], tf.float64), np.zeros((2, 1))
    expected = [log_p, scipy.stats.poisson.logpmf(2.0, 1.5)]
    np.testing.assert_allclose(likelihood.log_prob(zero, zero, Y), expected, rtol=1e-10)
    assert likelihood.num_observed(1) == 3
    require(likelihood.checks(Y))


@pytest.mark.parametrize(
    ("base", "log_zero"),
    [
        (likelihoods.Binomial(), lambda f, n: n * scipy.special.log_expit(-f)),
        (
            likelihoods.Poisson(3.0, with_exposure=True),
            lambda f, n: -3.0 * n * scipy.special.expit(f),
        ),
    ],
    ids=["trials", "exposure"],
)
def test_a_zero_of_a_gated_count_has_its_own_trials_or_exposure(
    base: AugmentedLikelihood, log_zero: Callable[[Rows, Rows], Rows]
) -> None:
    """E log(σ(g) + σ(−g) p(0|f)) of rows that differ in nothing else, by a sum over f and g."""
    n = np.array([1.0, 4.0, 9.0])
    Y, Fmu, Fvar = np.stack([0.0 * n, n], -1), np.full((3, 2), [0.4, -0.3]), np.full((3, 2), 0.5)
    nodes, log_w = test_zoo.grid(Fmu, Fvar)
    f, g = nodes[..., 0], nodes[..., 1]
    counted = scipy.special.log_expit(-g) + log_zero(f, n)
    expected = np.exp(log_w) @ np.logaddexp(scipy.special.log_expit(g), counted)
    found = likelihoods.ZeroInflated(base, "gp").variational_expectations(Y[:, :1], Fmu, Fvar, Y)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize(
    "base",
    [likelihoods.Binomial(), likelihoods.Poisson(3.0, with_exposure=True)],
    ids=["trials", "exposure"],
)
def test_moments_of_a_truncated_count_are_sums_over_its_values(base: AugmentedLikelihood) -> None:
    """At one trial, or an exposure of 1; and a Hurdle's are (1 − π) of these."""
    F, v = np.array([[-2.0], [0.5]]), np.array([[0.7], [0.2]])
    x, weight = np.polynomial.hermite_e.hermegauss(60)
    f = F + np.sqrt(v) * x  # [2, K]
    y = np.arange(1.0, 60.0)[:, None, None]
    if "trials" in base.given:
        log_p = scipy.stats.binom.logpmf(y, 1, scipy.special.expit(f))
        log_zero = scipy.special.log_expit(-f)
    else:
        log_p = scipy.stats.poisson.logpmf(y, 3.0 * scipy.special.expit(f))
        log_zero = -3.0 * scipy.special.expit(f)
    p = np.exp(log_p - np.log(-np.expm1(log_zero))) @ (weight / weight.sum())
    mean = np.sum(y[..., 0] * p, 0)
    variance = np.sum(y[..., 0] ** 2 * p, 0) - mean**2
    found = likelihoods.ZeroTruncated(base).predict_mean_and_var(F, F, v)
    np.testing.assert_allclose(np.hstack(found).T, [mean, variance], rtol=1e-6, atol=1e-6)
    found, _ = likelihoods.Hurdle(base, 0.3).predict_mean_and_var(F, F, v)
    np.testing.assert_allclose(found[:, 0], 0.7 * mean, rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("f", [-5000.0, -80.0, -20.0, 0.3, 30.0])
def test_draws_of_a_truncated_binomial_have_its_law(f: float, dtype: type) -> None:
    """From 1 to n, whatever f is; the shares of 20,000 draws, and 1 alone where σ(f) is tiny."""
    with gpflow.config.as_context(gpflow.config.Config(float=dtype)):
        likelihood = likelihoods.ZeroTruncated(likelihoods.Binomial(4))
        drawn = likelihood.draw_y(tf.fill([20_000, 1], tf.constant(f, dtype)), seed=[3, 4])
        counts = np.bincount(drawn.numpy()[:, 0].astype(int), minlength=5)
    p = scipy.stats.binom.pmf(np.arange(5), 4, scipy.special.expit(f))
    p = np.array([0.0, 1.0, 0.0, 0.0, 0.0]) if f < -10.0 else p / (1.0 - p[0])
    p[0] = 0.0
    np.testing.assert_allclose(counts / 20_000, p, atol=5.0 * np.sqrt(0.25 / 20_000))
    assert counts[0] == 0


def test_a_zero_that_cannot_be_observed_has_no_density() -> None:
    """p(0) of a truncated count is 0; a model refuses such a row before."""
    likelihood, F = likelihoods.ZeroTruncated(likelihoods.NegativeBinomial(0.05)), np.zeros((1, 1))
    assert likelihood.log_prob(F, F, F) == -np.inf
    assert likelihood.predict_log_density(F, F, F + 1.0, F) == -np.inf


def test_counts_of_a_part_are_predicted_as_alone() -> None:
    """A part of Switched, set as the likelihood, has its quantiles."""
    base = likelihoods.Poisson(9.0, with_exposure=True)
    model = gpflow_aaci.AugmentedSVGP(
        gpflow.kernels.SquaredExponential(),
        likelihoods.Switched([base, likelihoods.StudentT()]),
        np.array([[0.0], [1.0]]),
        num_data=2,
    )
    with pytest.raises(ValueError, match="a column of Y chooses the part"):
        predictions.predict_y_quantile(model, np.zeros((1, 1)), [0.5])
    model.likelihood = model.likelihood.likelihoods[0]
    assert predictions.predict_y_quantile(model, np.zeros((1, 1)), [0.5]).shape == (1, 1, 1)
