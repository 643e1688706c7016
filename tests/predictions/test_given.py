"""Predictions at further columns of Y that are asked for: exposures, trials, noise variances."""

from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
import pandas as pd
import pytest
import scipy.special
import scipy.stats
from gpflow.base import AnyNDArray

from gpflow_aaci import AugmentedNNGP, AugmentedSVGP, AugmentedVGP, likelihoods, sample_posterior
from gpflow_aaci.contrib import MixtureVGP
from gpflow_aaci.likelihoods import AugmentedLikelihood
from gpflow_aaci.predictions import (
    mean_of_y,
    predict_log_density,
    predict_of_f,
    predict_y,
    predict_y_interval,
    predict_y_quantile,
    predict_y_samples,
    survival_at,
)

X = np.array([[-0.5], [0.4], [1.0]])
E = np.array([0.3, 1.0, 7.0])
TRIALS = np.array([2.0, 5.0, 40.0])
LEVELS = [0.05, 0.5, 0.95]
NEGATIVE_BINOMIAL, POISSON, SIGMOID = scipy.stats.nbinom, scipy.stats.poisson, scipy.special.expit


def nbinom(f: AnyNDArray, row: int) -> Any:
    return NEGATIVE_BINOMIAL(2.0 * E[row], SIGMOID(-f))


CASES: dict[str, tuple[Callable[[], AugmentedLikelihood], dict[str, AnyNDArray], Any]] = {
    "NegativeBinomial": (
        lambda: likelihoods.NegativeBinomial(2.0, with_exposure=True),
        {"exposure": E},
        nbinom,
    ),
    "Poisson": (
        lambda: likelihoods.Poisson(6.0, with_exposure=True),
        {"exposure": E},
        lambda f, row: POISSON(6.0 * SIGMOID(f) * E[row]),
    ),
    "Binomial": (
        likelihoods.Binomial,
        {"trials": TRIALS},
        lambda f, row: scipy.stats.binom(TRIALS[row], SIGMOID(f)),
    ),
}
COMPOSED: dict[str, tuple[Callable[[AugmentedLikelihood], AugmentedLikelihood], Any]] = {
    "alone": (lambda base: base, lambda p: p),
    "weighted": (likelihoods.Weighted, lambda p: p),
    "zero-inflated": (
        lambda base: likelihoods.ZeroInflated(base, 0.3),
        lambda p: 0.7 * p + 0.3 * (np.arange(len(p)) == 0)[:, None],
    ),
    "hurdle": (
        lambda base: likelihoods.Hurdle(base, 0.3),
        lambda p: np.vstack([np.full_like(p[:1], 0.3), 0.7 * p[1:] / (1.0 - p[:1])]),
    ),
    "truncated": (
        likelihoods.ZeroTruncated,
        lambda p: np.vstack([np.zeros_like(p[:1]), p[1:] / (1.0 - p[:1])]),
    ),
}


def model_of(likelihood: gpflow.likelihoods.Likelihood) -> AugmentedSVGP:
    """Its q is the prior, N(−0.4, 0.5)."""
    mean = gpflow.functions.Constant(-0.4)
    kernel = gpflow.kernels.SquaredExponential(0.5)
    return AugmentedSVGP(kernel, likelihood, X, num_data=3, mean_function=mean)


def mass(name: str, composed: str, row: int) -> AnyNDArray:
    """P(y = k) of a row, [K], by 60 Gauss-Hermite nodes of f."""
    z, weights = np.polynomial.hermite_e.hermegauss(60)
    law = CASES[name][2](-0.4 + np.sqrt(0.5) * z, row)
    p = COMPOSED[composed][1](law.pmf(np.arange(4_000.0)[:, None]))
    return p @ weights / weights.sum()


@pytest.mark.briefly("Binomial-alone")
@pytest.mark.by_default("Binomial-alone", "Poisson-weighted", "NegativeBinomial-hurdle")
@pytest.mark.parametrize("composed", COMPOSED)
@pytest.mark.parametrize("name", CASES)
def test_moments_and_quantiles_are_those_of_the_law_at_what_is_given(
    name: str, composed: str
) -> None:
    make, given, _ = CASES[name]
    model = model_of(COMPOSED[composed][0](make()))
    mean, variance = (part.numpy()[:, 0] for part in predict_y(model, X, given=given))
    quantiles = predict_y_quantile(model, X, LEVELS, given=given).numpy()[..., 0]
    y = np.arange(4_000.0)
    for row in range(3):
        p = mass(name, composed, row)
        np.testing.assert_allclose(mean[row], p @ y, rtol=1e-6)
        np.testing.assert_allclose(variance[row], p @ (y - p @ y) ** 2, rtol=1e-5)
        np.testing.assert_array_equal(quantiles[:, row], np.searchsorted(np.cumsum(p), LEVELS))


@pytest.mark.parametrize("composed", ["alone", "hurdle"])
def test_draws_have_the_moments_of_the_law_at_what_is_given(composed: str) -> None:
    model = model_of(COMPOSED[composed][0](CASES["NegativeBinomial"][0]()))
    drawn = predict_y_samples(model, X, 20_000, given={"exposure": E}).numpy()[..., 0]
    mean, variance = predict_y(model, X, given={"exposure": E})
    error = (drawn.mean(0) - mean[:, 0]) / np.sqrt(variance[:, 0] / 20_000)
    assert np.max(np.abs(error)) < 5.0


def test_a_known_noise_variance_is_that_of_the_prediction() -> None:
    model = model_of(likelihoods.Gaussian(0.2, with_noise_variance=True))
    s = np.array([0.0, 0.5, 2.0])
    _, variance = predict_y(model, X, given={"noise_variance": s**2})
    np.testing.assert_allclose(variance[:, 0], 0.7 + s**2, rtol=1e-6)
    lower, upper = predict_y_interval(model, X, 0.9, given={"noise_variance": s**2})
    half = scipy.stats.norm.ppf(0.95) * np.sqrt(0.7 + s**2)
    np.testing.assert_allclose(np.hstack([lower, upper]) + 0.4, np.stack([-half, half], 1))


def test_functions_of_f_are_at_what_is_given() -> None:
    """E[y|f] of a zero-inflated count, and P(y > t|f), which both rise in f."""
    model = model_of(likelihoods.ZeroInflated(CASES["NegativeBinomial"][0](), 0.3))
    f = -0.4 + np.sqrt(0.5) * scipy.stats.norm.ppf(LEVELS)[:, None]
    found = predict_of_f(model, X, mean_of_y, LEVELS, given={"exposure": E})
    np.testing.assert_allclose(found[..., 0], 0.7 * 2.0 * E * np.exp(f), rtol=1e-6)
    found = predict_of_f(model, X, survival_at([4.0]), LEVELS, given={"exposure": E})
    expected = 0.7 * NEGATIVE_BINOMIAL.sf(4.0, 2.0 * E, SIGMOID(-f))
    np.testing.assert_allclose(found[..., 0], expected, rtol=1e-6)


def test_numbers_frames_and_defaults() -> None:
    model = model_of(CASES["NegativeBinomial"][0]())
    of_ones = predict_y(model, X, given={"exposure": np.ones(3)})
    for given in ({"exposure": 1}, pd.DataFrame({"exposure": np.ones(3)}), {}, None):
        np.testing.assert_allclose(predict_y(model, X, given=given), of_ones, rtol=1e-12)
    other = predict_y_quantile(model, X, LEVELS, given={"exposure": 3})
    np.testing.assert_array_equal(
        predict_y_quantile(model, X, LEVELS, given={"exposure": np.full(3, 3.0)}), other
    )


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["full", "draws", "of GPflow", "nearest", "mixture"])
def test_every_model_and_draws_of_the_posterior_predict_at_what_is_given(kind: str) -> None:
    """The mean of a count is proportional to the exposure, whatever f is."""
    rng = np.random.default_rng(0)
    x, exposure = rng.uniform(-1.0, 1.0, [20, 1]), rng.uniform(0.5, 2.0, [20, 1])
    data = x, np.hstack([rng.poisson(3.0 * exposure), exposure])
    likelihood, kernel = CASES["NegativeBinomial"][0](), gpflow.kernels.Matern52()
    known: Any = {"progress": False}
    if kind == "of GPflow":
        model = gpflow.models.SVGP(kernel, likelihood, X, num_data=20)
    elif kind == "nearest":
        model = AugmentedNNGP(data, kernel, likelihood, 8)
    elif kind == "mixture":
        model = MixtureVGP(data, kernel, likelihood)
        model.q_mu.assign(rng.normal(size=model.q_mu.shape))  # of components that are apart
    else:
        model = AugmentedVGP(data, kernel, likelihood)
    if kind == "draws":
        known["samples"] = sample_posterior(model, num_samples=5, num_burnin=1, progress=False)
    at_one, at_given = (
        predict_y(model, X, given=given, **known)[0] for given in (None, {"exposure": E})
    )
    np.testing.assert_allclose(at_given[:, 0], E * at_one[:, 0], rtol=1e-10)
    drawn = predict_y_samples(model, X, 400, given={"exposure": E}, **known).numpy()[..., 0]
    assert np.median(drawn[:, 2]) > np.median(drawn[:, 0])


@pytest.mark.parametrize(
    ("likelihood", "given", "words"),
    [
        (likelihoods.NegativeBinomial(), {"exposure": E}, "must be None for NegativeB.*exposure"),
        (likelihoods.Poisson(1.0, with_exposure=True), {"trials": 3}, "only exposure.*trials"),
        (likelihoods.Weibull(with_censoring=True), {"is_observed": 0}, "must be None.*is_observed"),
        (likelihoods.Binomial(), {"trials": 2.5}, r"trials.*whole number from 0 up.*2\.5"),
        (likelihoods.Binomial(), {"trials": [2, 3]}, r"must be \[3\] or a number.*\[2\]"),
        (likelihoods.Poisson(with_exposure=True), {"exposure": np.nan}, "must be finite.*nan"),
        (likelihoods.Poisson(with_exposure=True), {"exposure": 0.0}, r"must be positive.*0\."),
        (gpflow.likelihoods.StudentT(), {"exposure": E}, "must be None for StudentT"),
    ],
)
def test_bad_input(likelihood: Any, given: Any, words: str) -> None:
    model = model_of(likelihood)
    with pytest.raises(ValueError, match=words):
        predict_y(model, X, given=given)
    with pytest.raises(ValueError, match=words):
        predict_y_quantile(model, X, 0.5, given=given)


def test_a_log_density_of_the_nearest_rows_takes_the_further_columns() -> None:
    """As the model's own method does."""
    Y = np.stack([[1.0, 0.0, 2.0], E], 1)
    likelihood = likelihoods.Poisson(2.0, with_exposure=True)
    model = AugmentedNNGP((X, Y), gpflow.kernels.Matern52(), likelihood, 2)
    found = predict_log_density(model, (X, Y))
    np.testing.assert_array_equal(found, model.predict_log_density((X, Y)))
