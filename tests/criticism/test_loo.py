"""Leave-one-out in closed form: exact for Gaussian noise, otherwise close to refits."""

import warnings
from collections.abc import Callable
from typing import Any

import arviz
import gpflow
import numpy as np
import pandas as pd
import pytest
import scipy.special
import scipy.stats
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.kernels import LinearCoregionalization, Matern32

import gpflow_aaci
from gpflow_aaci import (
    AugmentedNaturalGradient,
    AugmentedSVGP,
    AugmentedVGP,
    likelihoods,
    loo,
    polish,
    sample_posterior,
)
from gpflow_aaci.data import as_data
from gpflow_aaci.inference.profile import Profile

Randomise = Callable[[gpflow.models.GPModel], None]

N, NOISE = 24, 0.09


def inputs(num: int = N) -> AnyNDArray:
    return np.sort(np.random.default_rng(0).uniform(-3.0, 3.0, size=(num, 1)), 0)


X = inputs()
Y = np.sin(2.0 * X) + 0.3 * np.random.default_rng(1).normal(size=X.shape)


def kernel() -> Matern32:
    return Matern32(1.3, 0.8)


def rasmussen_and_williams(X: AnyNDArray, y: AnyNDArray, variance: float = 1.3) -> AnyNDArray:
    """Eqs. 5.10 to 5.12, for a zero mean function and one column of Y."""
    K = Matern32(variance, 0.8)(X).numpy() + NOISE * np.eye(len(X))
    inverse = np.linalg.inv(K)
    variances = 1.0 / np.diag(inverse)
    return scipy.stats.norm.logpdf(y, y - inverse @ y * variances, np.sqrt(variances))


def stepped(model: Any, data: Any, steps: int = 40) -> Any:
    """The model after natural-gradient steps on the augmented bound."""
    minimize = tf.function(AugmentedNaturalGradient().minimize, autograph=False)
    data = None if data is None else tuple(map(tf.constant, data))
    for _ in range(steps):
        minimize(model, data)
    return model


def refitted(model: AugmentedSVGP, X: AnyNDArray, Y: AnyNDArray) -> AnyNDArray:
    """
    log p(y_i

    all other y), where each q is fitted anew to the others by GPflow's ELBO.
    """
    fit = Profile(model, [])  # as in ``polish``, but compiled once for all refits
    q = model.whitened_q(tf.linalg.cholesky(model.prior_covariance()))
    other, log_density = gpflow.utilities.deepcopy(model), []
    for i in range(len(X)):
        rows = np.delete(X, i, 0), np.delete(Y, i, 0)
        other.assign_whitened_q(fit.maximise(as_data(model.expected_data, rows), q, 1e-9, 100).q)
        log_density.append(other.predict_log_density((X[i : i + 1], Y[i : i + 1])).numpy()[0])
    return np.array(log_density)


def observed(name: str, num: int) -> tuple[Any, AnyNDArray, AnyNDArray]:
    """A likelihood and data of equal density for any number of rows."""
    rng, X = np.random.default_rng(2), num / 60.0 * inputs(num)
    f = np.sin(2.0 * X)
    if name == "logistic":
        p = scipy.special.expit(3.0 * f)
        return likelihoods.Logistic(), X, rng.binomial(1, p).astype(float)
    return likelihoods.StudentT(0.3, 3.0), X, f + 0.3 * rng.standard_t(3, size=f.shape)


# ---- exact ----


@pytest.mark.briefly("True")
@pytest.mark.parametrize("sparse", [False, True])
def test_of_gaussian_noise_it_is_rasmussen_and_williams(sparse: bool) -> None:
    """The model has a mean function, and may be sparse with Z = X."""
    gpflow.config.set_default_jitter(1e-11)
    mean_function, likelihood = gpflow.functions.Constant(0.4), likelihoods.Gaussian(NOISE)
    model: Any
    if sparse:
        model = AugmentedSVGP(kernel(), likelihood, X.copy(), mean_function=mean_function)
    else:
        model = AugmentedVGP((X, Y), kernel(), likelihood, mean_function)
    data = (X, Y) if sparse else None
    AugmentedNaturalGradient(1.0).minimize(model, data)
    result = loo(model, data)
    expected = rasmussen_and_williams(X, Y[:, 0] - 0.4)
    np.testing.assert_allclose(result.loo_i, expected, atol=1e-8)
    np.testing.assert_allclose(result.elpd_loo, expected.sum(), atol=1e-7)
    np.testing.assert_allclose(result.se, np.sqrt(N) * expected.std(), rtol=1e-7)
    of_q = model.predict_log_density((X, Y)).numpy().sum()
    np.testing.assert_allclose(result.p_loo, of_q - expected.sum(), atol=1e-7)
    assert not result.warning


def test_a_row_of_two_columns_has_the_sum_of_their_densities() -> None:
    """If the kernel's W is diagonal, each output has its own W² times the variance."""
    gpflow.config.set_default_jitter(1e-11)
    two = np.hstack([Y, np.cos(X)])
    model: Any = AugmentedVGP((X, two), kernel(), likelihoods.Gaussian(NOISE))
    AugmentedNaturalGradient().minimize(model)
    columns = [rasmussen_and_williams(X, y) for y in two.T]
    np.testing.assert_allclose(loo(model).loo_i, np.sum(columns, 0), atol=1e-8)

    W = np.diag([1.0, 2.0])
    Z = gpflow.inducing_variables.SharedIndependentInducingVariables(
        gpflow.inducing_variables.InducingPoints(X.copy())
    )
    mixing = LinearCoregionalization([kernel(), kernel()], W)
    model = AugmentedSVGP(mixing, likelihoods.Gaussian(NOISE), Z, num_latent_gps=2)
    AugmentedNaturalGradient().minimize(model, (X, two))
    columns = [rasmussen_and_williams(X, two[:, p], 1.3 * W[p, p] ** 2) for p in (0, 1)]
    np.testing.assert_allclose(loo(model, (X, two)).loo_i, np.sum(columns, 0), atol=1e-8)


def test_few_inducing_points_leave_what_a_refit_leaves() -> None:
    """With Gaussian noise, M < N and no whitening, it equals a refit of q(u) to all other data."""
    Z = np.linspace(-3.0, 3.0, 6)[:, None]
    model = AugmentedSVGP(kernel(), likelihoods.Gaussian(NOISE), Z, whiten=False)
    AugmentedNaturalGradient().minimize(model, (X, Y))
    left_out = loo(model, (X, Y)).loo_i.values
    for i in (0, 7, 23):
        AugmentedNaturalGradient().minimize(model, (np.delete(X, i, 0), np.delete(Y, i, 0)))
        refit = model.predict_log_density((X[i : i + 1], Y[i : i + 1]))[0]
        np.testing.assert_allclose(left_out[i], refit, rtol=1e-8)


# ---- close to refits ----


@pytest.mark.by_default("student_t-24")
@pytest.mark.parametrize("num", [N, 60])
@pytest.mark.parametrize("name", ["student_t", "logistic"])
@pytest.mark.slow
def test_it_is_close_to_refits_without_each_datum(name: str, num: int) -> None:
    """
    It is much closer than the densities of q itself, which has been fitted to y_i.

    Measured errors at N = 60: 0.011 and 0.0013 nats per datum, for q's densities 0.22 and 0.047.
    """
    likelihood, X, Y = observed(name, num)
    model = AugmentedSVGP(kernel(), likelihood, X.copy())
    polish(model, (X, Y), progress=False)
    result, expected = loo(model, (X, Y)), refitted(model, X, Y)
    assert result.bound == "standard"
    error = np.abs(result.loo_i.values - expected).mean()
    assert error < 0.05
    own = model.predict_log_density((X, Y)).numpy()
    assert error < 0.2 * np.abs(own - expected).mean()


@pytest.mark.slow
def test_it_leaves_out_the_sites_of_the_bound_that_q_is_stationary_in() -> None:
    """Neither bound gives a warning; after ``polish`` the result is more accurate."""
    likelihood, X, Y = observed("student_t", N)
    model = stepped(AugmentedSVGP(kernel(), likelihood, X.copy()), (X, Y))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        left_out = loo(model, (X, Y))
        polish(model, (X, Y), progress=False)
        polished = loo(model, (X, Y))
    assert (left_out.bound, polished.bound) == ("augmented", "standard")
    expected = refitted(model, X, Y)
    errors = [np.abs(result.loo_i.values - expected).mean() for result in (left_out, polished)]
    assert errors[1] < 0.5 * errors[0]


@pytest.mark.replicate
def test_of_two_coupled_latent_gps_it_is_close_to_refits() -> None:
    rng = np.random.default_rng(3)
    Y = np.sin(2.0 * X) + np.exp(0.5 * X - 1.5) * rng.normal(size=X.shape)
    likelihood = likelihoods.Heteroscedastic(likelihoods.Gaussian(), max_precision=20.0)
    model = AugmentedSVGP(kernel(), likelihood, X.copy(), num_latent_gps=2)
    polish(model, (X, Y), progress=False)
    error = np.abs(loo(model, (X, Y)).loo_i.values - refitted(model, X, Y))
    assert error.mean() < 0.1


@pytest.mark.slow
def test_of_latent_gps_that_are_mixed_it_is_close_to_the_exact() -> None:
    """
    It is not exact even for Gaussian noise, since the latent GPs are independent under q.

    Measured errors per row of two columns: 0.046 nats, for the densities of q itself 0.61.
    """
    rng, X = np.random.default_rng(3), inputs() * N / 60.0
    f = np.sin(2.0 * X)
    Y = np.hstack([f, f - np.cos(X)]) + 0.3 * rng.normal(size=(N, 2))
    W = np.array([[1.0, 0.3], [0.6, -1.0]])
    Z = gpflow.inducing_variables.SharedIndependentInducingVariables(
        gpflow.inducing_variables.InducingPoints(X.copy())
    )
    mixing = LinearCoregionalization([kernel(), kernel()], W)
    model = AugmentedSVGP(mixing, likelihoods.Gaussian(NOISE), Z, num_latent_gps=2)
    result = loo(stepped(model, (X, Y), 100), (X, Y))
    y = Y.T.ravel()
    inverse = np.linalg.inv(np.kron(W @ W.T, kernel()(X)) + NOISE * np.eye(2 * N))
    expected = []
    for i in range(N):
        row = [i, i + N]
        covariance = np.linalg.inv(inverse[np.ix_(row, row)])
        mean, sd = y[row] - covariance @ (inverse @ y)[row], np.sqrt(np.diag(covariance))
        expected.append(scipy.stats.norm.logpdf(y[row], mean, sd).sum())
    error = np.abs(result.loo_i.values - expected).mean()
    own = model.predict_log_density((X, Y)).numpy()
    assert error < 0.1
    assert error < 0.2 * np.abs(own - expected).mean()


@pytest.mark.replicate
def test_of_mixed_latent_gps_and_student_t_noise_it_is_close_to_refits() -> None:
    """The measured error is 0.034 nats per number, and a row has three."""
    rng = np.random.default_rng(3)
    W = np.array([[1.0, 0.5], [0.3, -1.0], [0.8, 0.2]])
    f = np.hstack([np.sin(2.0 * X), np.cos(X)]) @ W.T
    Z = gpflow.inducing_variables.SharedIndependentInducingVariables(
        gpflow.inducing_variables.InducingPoints(X[::2].copy())
    )
    model = AugmentedSVGP(
        LinearCoregionalization([kernel(), kernel()], W),
        likelihoods.StudentT(0.3, 4.0),
        Z,
        num_latent_gps=2,
    )
    data = X, f + 0.3 * rng.standard_t(4, size=f.shape)
    polish(model, data, progress=False)
    expected = refitted(model, *data)
    error = np.abs(loo(model, data).loo_i.values - expected).mean()
    own = model.predict_log_density(data).numpy()
    assert error / 3.0 < 0.05
    assert error < 0.2 * np.abs(own - expected).mean()


@pytest.mark.replicate
def test_of_classes_it_is_close_to_refits() -> None:
    rng = np.random.default_rng(3)
    Y = np.digitize(np.sin(2.0 * X) + 0.3 * rng.normal(size=X.shape), [-0.5, 0.5]).astype(float)
    model = AugmentedSVGP(
        Matern32(4.0, 0.8),
        likelihoods.LogisticSoftmax(3),
        X.copy(),
        num_latent_gps=3,
        mean_function=gpflow.functions.Constant(-np.log(3.0)),
    )
    polish(model, (X, Y), progress=False)
    error = np.abs(loo(model, (X, Y)).loo_i.values - refitted(model, X, Y))
    assert error.mean() < 0.1


@pytest.mark.slow
@pytest.mark.parametrize("name", ["student_t", pytest.param("logistic", marks=pytest.mark.slow)])
def test_it_is_arviz_loo_of_draws_of_the_posterior(name: str) -> None:
    """The sums agree within two standard errors, and data within 0.1 nats on average."""
    likelihood, X, Y = observed(name, N)
    model = AugmentedVGP((X, Y), kernel(), likelihood)
    polish(model, progress=False)
    result = loo(model)
    draws = arviz.loo(
        sample_posterior(model, num_samples=1_000, num_chains=2, progress=False), pointwise=True
    )
    assert abs(result.elpd_loo - draws.elpd_loo) < 2.0 * draws.se
    assert np.abs(result.loo_i.values - draws.loo_i.values).mean() < 0.1


# ---- its printout and warnings ----


@pytest.fixture
def student_t() -> AugmentedVGP:
    likelihood, X, Y = observed("student_t", N)
    return stepped(AugmentedVGP((X, Y), kernel(), likelihood), None)


def test_arviz_compares_and_plots_it(student_t: AugmentedVGP) -> None:
    result = loo(student_t)
    assert isinstance(result, arviz.ELPDData)
    X, Y = (part.numpy() for part in student_t.data)
    gaussian = AugmentedVGP((X, Y), kernel(), likelihoods.Gaussian(0.5))
    AugmentedNaturalGradient().minimize(gaussian)
    both = {"t": result, "normal": loo(gaussian)}
    table = arviz.compare(both)
    assert table.loc["t", "elpd_loo"] == result.elpd_loo
    differences = both["t"].loo_i.values - both["normal"].loo_i.values
    largest = table["dse"].max()
    np.testing.assert_allclose(largest, np.sqrt(N) * differences.std(), rtol=1e-10)
    (axes,) = np.ravel(arviz.plot_elpd(both))
    drawn = axes.collections[0].get_offsets()[:, 1]
    assert np.allclose(drawn, differences) or np.allclose(drawn, -differences)
    with pytest.warns(FutureWarning, match="DataArrays"):
        arviz.plot_khat(result.leverage)


def test_its_print_says_what_it_is(student_t: AugmentedVGP) -> None:
    """It mentions no draws and no Pareto k̂; a copy prints the same."""
    result = loo(student_t)
    for printed in (str(result), repr(result.copy())):
        assert f"{result.elpd_loo:.2f}" in printed
        assert "closed form" in printed
        assert "augmented bound" in printed
        assert "Pareto" not in printed
        assert "samples" not in printed


def test_q_that_is_not_at_its_optimum_is_told(student_t: AugmentedVGP) -> None:
    student_t.q_mu.assign(1.1 * student_t.q_mu)
    with pytest.warns(UserWarning, match=r"neither of.*polish\(model, data\)"):
        assert loo(student_t).warning


def test_an_improper_cavity_is_told_and_is_the_prior() -> None:
    """With a Gaussian site, this needs a q that is wider than the optimum."""
    model = AugmentedVGP(
        (X, Y), kernel(), likelihoods.Gaussian(NOISE), gpflow.functions.Constant(1.0)
    )
    with pytest.warns(UserWarning, match=f"{N} of {N} data have an improper cavity"):
        result = loo(model)  # q is the prior
    assert result.warning
    assert np.all(result.leverage >= 1.0)
    expected = scipy.stats.norm.logpdf(Y[:, 0], 1.0, np.sqrt(1.3 + NOISE))
    np.testing.assert_allclose(result.loo_i, expected, atol=1e-5)


@pytest.mark.slow
def test_float32_is_close_to_float64() -> None:
    _, X, Y = observed("student_t", N)
    results = []
    for dtype in (np.float64, np.float32):
        gpflow.config.set_default_float(dtype)
        gpflow.config.set_default_jitter(1e-4)
        model = AugmentedVGP(
            (X.astype(dtype), Y.astype(dtype)), kernel(), likelihoods.StudentT(0.3, 3.0)
        )
        results.append(loo(stepped(model, None)))
    wide, narrow = results
    assert narrow.bound == wide.bound == "augmented"
    assert not narrow.warning
    np.testing.assert_allclose(narrow.loo_i, wide.loo_i, atol=1e-3)


# ---- data ----


@pytest.mark.slow
def test_frames_and_batches_are_as_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    """The batches form several chunks."""
    likelihood, X, Y = observed("student_t", N)
    model = AugmentedSVGP(kernel(), likelihood, X[::3].copy(), num_data=N)
    expected = loo(stepped(model, (X, Y)), (X, Y))
    frames = loo(model, (pd.DataFrame(X), pd.Series(Y[:, 0])))
    np.testing.assert_allclose(frames.loo_i, expected.loo_i, rtol=1e-10)
    monkeypatch.setattr(gpflow_aaci.data.datasets, "CHUNK", 10)
    batches = loo(model, tf.data.Dataset.from_tensor_slices((X, Y)).batch(7))
    np.testing.assert_allclose(batches.loo_i, expected.loo_i, rtol=1e-10)
    np.testing.assert_allclose(batches.leverage, expected.leverage, rtol=1e-10)


def test_bad_data_are_named(student_t: AugmentedVGP) -> None:
    sparse = AugmentedSVGP(kernel(), likelihoods.Gaussian(), X[:3].copy(), num_data=N)
    with pytest.raises(ValueError, match="data must not be given"):
        loo(student_t, (X, Y))
    with pytest.raises(ValueError, match="data must be given"):
        loo(sparse)
    with pytest.raises(ValueError, match=r"all num_data = 24 rows.*Found: 20"):
        loo(sparse, (X[:20], Y[:20]))
    with pytest.raises(ValueError, match="Y must be finite"):
        loo(sparse, (X, np.full_like(Y, np.nan)))
    other: Any = gpflow.models.SGPR((X, Y), kernel(), X[:3].copy())
    with pytest.raises(ValueError, match=r"AugmentedSVGP or AugmentedVGP.*Found: SGPR"):
        loo(other, (X, Y))
