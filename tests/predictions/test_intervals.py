"""Intervals of y: calibrated ones cover what they say, whatever the noise."""

from typing import Any

import gpflow
import numpy as np
import pytest
import scipy.stats
from gpflow.base import AnyNDArray
from gpflow.kernels import LinearCoregionalization, Matern32

from gpflow_aaci import AugmentedNNGP, AugmentedSVGP, AugmentedVGP, likelihoods, polish
from gpflow_aaci.predictions import calibrated_levels, predict_y_interval, predict_y_quantile
from gpflow_aaci.predictions.intervals import pit_of_left_out

N, NOISE = 39, 0.09


def kernel() -> Matern32:
    return Matern32(1.3, 0.8)


def inputs(num: int, seed: int) -> AnyNDArray:
    return np.random.default_rng(seed).uniform(-3.0, 3.0, size=(num, 1))


def noisy(X: AnyNDArray, seed: int) -> AnyNDArray:
    """A wave with skewed noise of mean 0, [N, 1]."""
    noise = np.random.default_rng([seed, 1]).exponential(size=X.shape) - 1.0
    return np.sin(2.0 * X) + 0.5 * noise


X = inputs(N, 0)
Y = noisy(X, 0)


def gaussian(Y: AnyNDArray = Y, X: AnyNDArray = X) -> AugmentedVGP:
    """Gaussian noise that is too narrow, at the exact posterior."""
    model = AugmentedVGP((X, Y), kernel(), likelihoods.Gaussian(variance=NOISE))
    polish(model, progress=False)
    return model


def left_out_pit(X: AnyNDArray, Y: AnyNDArray) -> AnyNDArray:
    """Of GP regression without each row, by the formulas of Rasmussen and Williams 5.10 to 5.12."""
    inverse = np.linalg.inv(kernel()(X).numpy() + NOISE * np.eye(len(X)))
    variance = 1.0 / np.diag(inverse)[:, None]
    return scipy.stats.norm.cdf(inverse @ Y * np.sqrt(variance))


@pytest.mark.slow
def test_the_levels_are_those_of_the_rows_that_were_left_out() -> None:
    """The ranks are 2 and 38 of 39 for 90 %."""
    columns = np.hstack([Y, 0.3 * Y])
    expected = np.sort(left_out_pit(X, columns), axis=0)[[1, 37]]
    model = AugmentedVGP(
        (X, columns), kernel(), likelihoods.Gaussian(variance=NOISE), num_latent_gps=2
    )
    polish(model, progress=False)
    np.testing.assert_allclose(calibrated_levels(model), expected, atol=1e-5)
    lower, upper = predict_y_interval(model, X, calibrated=True)
    mean, variance = model.predict_y(X)
    for end, levels in ((lower, expected[0]), (upper, expected[1])):
        standard = scipy.stats.norm.ppf(levels)
        np.testing.assert_allclose(end, mean + np.sqrt(variance) * standard, rtol=1e-3, atol=1e-3)


@pytest.mark.replicate
def test_intervals_cover_what_they_say_under_wrong_noise() -> None:
    """Over 40 data sets; a share of one has a standard deviation of about 0.05."""
    covered: dict[bool, list[float]] = {False: [], True: []}
    for seed in range(40):
        X = inputs(N, seed)
        model, Xnew = gaussian(noisy(X, seed), X), inputs(400, seed + 100)
        Ynew = noisy(Xnew, seed + 100)
        for calibrated, shares in covered.items():
            lower, upper = predict_y_interval(model, Xnew, 0.9, calibrated=calibrated)
            shares.append(float(np.mean((lower <= Ynew) & (Ynew <= upper))))
    assert np.mean(covered[False]) < 0.84
    assert abs(np.mean(covered[True]) - 0.9) < 0.025


@pytest.mark.replicate
def test_intervals_of_counts_end_at_counts_and_cover_at_least_the_share() -> None:
    covered = []
    for seed in range(10):
        X, Xnew = inputs(60, seed), inputs(400, seed + 100)
        counts, new = (
            np.random.default_rng([seed, k]).poisson(np.exp(1.0 + np.sin(2.0 * x))).astype(float)
            for k, x in enumerate((X, Xnew))
        )
        model = AugmentedVGP((X, counts), kernel(), likelihoods.NegativeBinomial(2.0))
        polish(model, progress=False)
        lower, upper = predict_y_interval(model, Xnew, 0.8, calibrated=True, seed=seed)
        assert np.all(np.mod(lower, 1.0) == 0.0)
        covered.append(float(np.mean((lower <= new) & (new <= upper))))
    assert 0.79 < np.mean(covered) < 0.93


def test_nearest_neighbours_that_are_all_rows_have_the_levels_of_the_full_gp() -> None:
    nearest = AugmentedNNGP((X, Y), kernel(), likelihoods.Gaussian(variance=NOISE), N - 1)
    nearest.prediction_neighbors = N - 1
    np.testing.assert_allclose(calibrated_levels(nearest), calibrated_levels(gaussian()), atol=1e-4)


@pytest.mark.slow
def test_models_with_inducing_points_and_gpflows_take_the_data() -> None:
    for kind in (AugmentedSVGP, gpflow.models.SVGP):
        model = kind(kernel(), likelihoods.Gaussian(variance=NOISE), X.copy(), num_data=N)
        polish(model, (X, Y), progress=False)
        levels = calibrated_levels(model, (X, Y), 0.8)
        np.testing.assert_allclose(levels, calibrated_levels(gaussian(), None, 0.8), atol=1e-4)


@pytest.mark.slow
def test_under_a_kernel_that_mixes_latent_gps_each_output_is_left_out_of_its_mixture() -> None:
    """Both outputs of a row are left out; y is W g + noise, with one Z at every x."""
    W = np.array([[1.0, 0.5], [-2.0, 1.0]])
    latents = [Matern32(1.0, 0.8), Matern32(1.0, 0.7)]
    model = AugmentedSVGP(
        LinearCoregionalization(latents, W=W),
        likelihoods.Gaussian(variance=NOISE),
        gpflow.inducing_variables.SharedIndependentInducingVariables(
            gpflow.inducing_variables.InducingPoints(X.copy())
        ),
        num_data=N,
        num_latent_gps=2,
    )
    columns = np.hstack([Y, 0.3 * Y])
    polish(model, (X, columns), progress=False)
    K = sum(
        np.kron(np.outer(w, w), kernel(X).numpy()) for w, kernel in zip(W.T, latents, strict=True)
    )
    y = columns.T.ravel()
    expected = np.empty((N, 2))
    for i in range(N):
        rest = np.delete(np.arange(2 * N), [i, N + i])
        for p in range(2):
            at = p * N + i
            gain = np.linalg.solve(K[np.ix_(rest, rest)] + NOISE * np.eye(len(rest)), K[rest, at])
            variance = K[at, at] - gain @ K[rest, at] + NOISE
            expected[i, p] = scipy.stats.norm.cdf((y[at] - gain @ y[rest]) / np.sqrt(variance))
    # q is independent between the latent GPs, and the posterior is not.
    found = pit_of_left_out(model, (X, columns))
    assert np.max(np.abs(found - expected)) < 0.2
    assert np.mean(np.abs(found - expected)) < 0.03


def test_outputs_that_were_not_observed_do_not_count() -> None:
    gaps = np.hstack([Y, Y])
    gaps[::4, 0] = np.nan
    noise = likelihoods.Missing(likelihoods.Gaussian(variance=NOISE))
    model = AugmentedVGP((X, gaps), kernel(), noise, num_latent_gps=2)
    polish(model, progress=False)
    seen = ~np.isnan(gaps[:, 0])
    u = np.sort(left_out_pit(X[seen], Y[seen]), axis=0)
    assert len(u) == 29
    expected = np.column_stack([u[[2, 26], 0], np.sort(left_out_pit(X, Y), axis=0)[[3, 35], 0]])
    np.testing.assert_allclose(calibrated_levels(model, None, 0.8), expected, atol=1e-5)


def test_without_calibration_it_is_two_quantiles() -> None:
    model = gaussian()
    found = predict_y_interval(model, X, 0.5)
    np.testing.assert_array_equal(found, predict_y_quantile(model, X, [0.25, 0.75]))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"level": 1.0}, r"level must be in \(0, 1\). Found: 1.0"),
        ({"level": np.nan}, r"level must be in \(0, 1\). Found: nan"),
        ({"level": [0.5, 0.8]}, r"level must be in \(0, 1\). Found: \[0.5, 0.8\]"),
        ({"data": (X, Y)}, "data must be None unless calibrated=True"),
        (
            {"level": 0.96, "calibrated": True},
            r"level must be at most 1 - 2/\(N \+ 1\) = 0.95 for N = 39 data. Found: 0.96",
        ),
        ({"data": (X, Y), "calibrated": True}, "data must not be given"),
    ],
)
def test_bad_arguments_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        predict_y_interval(gaussian(), X, **arguments)


def test_all_rows_and_a_full_covariance_are_needed() -> None:
    model = AugmentedSVGP(kernel(), likelihoods.Laplace(), X[:5], num_data=N)
    with pytest.raises(ValueError, match="data must be all num_data = 39 rows"):
        calibrated_levels(model, (X[:8], Y[:8]))
    diagonal = AugmentedSVGP(kernel(), likelihoods.Laplace(), X[:5], num_data=N, q_diag=True)
    with pytest.raises(ValueError, match="q_diag must be False for calibrated intervals"):
        calibrated_levels(diagonal, (X, Y))
