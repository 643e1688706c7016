"""
Every likelihood that is made of others, with every base that has further columns of Y.

A base and its textbook definition come from ``zoo.ZOO``; the further columns mean something else
to each. A composition either has the values of its own definition, in terms of the base's, or its
constructor refuses the base and says why.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace

import gpflow
import numpy as np
import pytest
import scipy.special
import scipy.stats
import tensorflow as tf
import test_zoo
from gpflow.base import AnyNDArray
from zoo import ZOO, Member, ScaleOfX

import gpflow_aaci
from gpflow_aaci import likelihoods, predictions
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
        likelihoods.NoiseMixture,
        lambda base: likelihoods.NoiseMixture([likelihoods.Gaussian(), base]),
    ),
    "NoiseProduct": Composition(
        likelihoods.NoiseProduct,
        lambda base: likelihoods.NoiseProduct([likelihoods.Gaussian(), base]),
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
    classes = (getattr(likelihoods, name) for name in likelihoods.__all__)
    takes_others = {
        kind
        for kind in classes
        if inspect.isclass(kind)
        and issubclass(kind, AugmentedLikelihood)
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
            for base in ("Binomial with trials", "Poisson with exposure")
        ],
    ],
)
def test_what_the_mathematics_allows_is_accepted(name: str, base: str) -> None:
    assert f"{name}: {base}" in CELLS


@every_cell
def test_log_prob_bound_and_density_are_those_of_the_definition(name: str) -> None:
    """At a point, where the bound is log p(y|f), and in the limit of a narrow q(f)."""
    _, _, made = CELLS[name]
    test_zoo.test_log_prob_is_the_textbooks(made)
    test_zoo.test_the_bound_is_log_prob_at_a_point(made)


@pytest.mark.slow
@pytest.mark.by_default(*BY_DEFAULT)
@every_cell
def test_bounds_and_expectations_are_those_of_the_definition(name: str) -> None:
    test_zoo.test_bound_and_expectations_against_a_product_rule(CELLS[name][2], 0.3)
