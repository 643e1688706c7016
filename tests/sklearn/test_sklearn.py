"""The estimators keep scikit-learn's contract, and predict what their models predict."""

import dataclasses
import pickle
import re
import textwrap
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import gpflow
import numpy as np
import pandas as pd
import pytest
import scipy.special
import sklearn.datasets
import sklearn.preprocessing
from gpflow.base import AnyNDArray
from gpflow.utilities import parameter_dict
from sklearn.base import clone
from sklearn.calibration import CalibrationDisplay
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from gpflow_aaci import (
    AugmentedNaturalGradient,
    AugmentedSVGP,
    effects,
    fit,
    kernels,
    likelihoods,
)
from gpflow_aaci.predictions import calibrated_levels
from gpflow_aaci.sklearn import AugmentedGPClassifier, AugmentedGPRegressor, shared
from gpflow_aaci.sklearn import regressor as regressor_module

N = 150


class Fitted(NamedTuple):
    estimator: Any
    X: AnyNDArray
    y: AnyNDArray


def noisy_wave(n: int, seed: int, df: float = 2.0) -> tuple[AnyNDArray, AnyNDArray]:
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3.0, 3.0, size=(n, 1))
    return X, np.sin(2.0 * X[:, 0]) + 0.1 * rng.standard_t(df, size=n)


@pytest.fixture(scope="module")
def regression() -> Fitted:
    X, y = noisy_wave(N, seed=0)
    return Fitted(AugmentedGPRegressor(num_inducing=20, random_state=0).fit(X, y), X, y)


@pytest.fixture(scope="module")
def binary() -> Fitted:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 2))
    y = np.where(X[:, 0] + 0.5 * rng.normal(size=N) > 0.4, "yes", "no")
    return Fitted(AugmentedGPClassifier(num_inducing=20, random_state=0).fit(X, y), X, y)


@pytest.fixture(scope="module", params=["tree", pytest.param("softmax", marks=pytest.mark.slow)])
def three_classes(request: pytest.FixtureRequest) -> Fitted:
    X, labels = sklearn.datasets.load_iris(return_X_y=True)
    y = np.array(["setosa", "versicolor", "virginica"])[labels]
    estimator = AugmentedGPClassifier(num_inducing=20, multiclass=request.param, random_state=0)
    return Fitted(estimator.fit(X, y), X, y)


# ---- scikit-learn's own checks ----


@pytest.fixture
def _few_steps_for_many_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Replace the fit for three or more classes by a few steps.

    Two dozen checks fit several classes, and none of them tests how well the data are fitted.
    """

    def few_steps(model: AugmentedSVGP, data: Any, **kwargs: Any) -> Any:
        likelihood = getattr(model.likelihood, "base", model.likelihood)
        if isinstance(likelihood, likelihoods.Logistic | likelihoods.StudentT):
            return fit(model, data, **kwargs)
        for _ in range(5):
            AugmentedNaturalGradient(1.0).minimize(model, data)
        return SimpleNamespace(converged=True)

    monkeypatch.setattr(shared, "fit", few_steps)


def _up_to_the_tolerance(estimator: Any) -> dict[str, str]:
    """Checks of predictions to 1e-7; ours is ``test_a_weight_is_how_often_a_row_is_given``."""
    if isinstance(estimator, AugmentedGPClassifier):
        return {}
    return {"check_sample_weight_equivalence_on_dense_data": "a fit ends within its tolerance"}


@pytest.mark.by_default(
    "check_estimator_cloneable",
    "check_no_attributes_set_in_init",
    "check_parameters_default_constructible",
    "check_estimators_unfitted",
    "check_estimator_sparse_array",
    "check_complex_data",
    "check_supervised_y_no_nan",
    "check_classifiers_one_label",
    "check_classifiers_regression_target",
    "check_n_features_in_after_fitting",
    "check_fit2d_1sample",
    "check_fit1d",
)
@pytest.mark.usefixtures("_few_steps_for_many_classes")
@parametrize_with_checks(
    [AugmentedGPRegressor(num_inducing=20), AugmentedGPClassifier(num_inducing=20)],
    expected_failed_checks=_up_to_the_tolerance,
)
def test_scikit_learn_s_checks(estimator: Any, check: Callable[[Any], None]) -> None:
    """All checks must pass, but for predictions to 1e-7, where a fit ends within its tolerance."""
    check(estimator)


@pytest.mark.slow
@pytest.mark.parametrize("make", [AugmentedGPRegressor, AugmentedGPClassifier])
@pytest.mark.by_default("AugmentedGPClassifier")
def test_a_weight_is_how_often_a_row_is_given(make: Callable) -> None:
    """To what a fit leaves open; rows of weight 0 might as well not be there."""
    rng = np.random.default_rng(3)
    X = rng.uniform(-3.0, 3.0, size=(60, 1))
    y = np.sin(X[:, 0]) + 0.1 * rng.standard_t(3, size=60)
    weight = rng.integers(0, 4, size=60)
    if make is AugmentedGPClassifier:
        y = np.digitize(y, [-0.5, 0.5])
    estimators = [make(num_inducing=20, random_state=0) for _ in range(2)]
    estimators[0].fit(X, y, sample_weight=weight)
    estimators[1].fit(np.repeat(X, weight, 0), np.repeat(y, weight))
    elbos = [estimator.fit_result_.elbo for estimator in estimators]
    assert elbos[0] == pytest.approx(elbos[1], abs=0.3)
    new = np.linspace(-2.5, 2.5, 40)[:, None]
    found, expected = (
        getattr(estimator, "predict_proba", estimator.predict)(new) for estimator in estimators
    )
    np.testing.assert_allclose(found, expected, atol=0.03)


# ---- predictions are the model's ----


def test_probabilities_of_two_classes_are_the_model_s(binary: Fitted) -> None:
    p = binary.estimator.predict_proba(binary.X)
    assert binary.estimator.classes_.tolist() == ["no", "yes"]
    of_yes = binary.estimator.model_.predict_y(binary.X)[0].numpy()[:, 0]
    np.testing.assert_array_equal(p[:, 1], of_yes)
    np.testing.assert_allclose(p.sum(1), 1.0, rtol=1e-15)
    assert np.mean(of_yes[binary.y == "yes"]) > 0.5 > np.mean(of_yes[binary.y == "no"])


@pytest.mark.slow
def test_probabilities_of_three_classes_are_the_model_s(three_classes: Fitted) -> None:
    estimator, X, y = three_classes
    p = estimator.predict_proba(X)
    np.testing.assert_array_equal(p, estimator.model_.predict_y(X)[0])
    np.testing.assert_allclose(p.sum(1), 1.0, rtol=1e-12)
    assert estimator.score(X, y) > 0.95  # the labels are names
    assert set(estimator.predict(X)) == set(y)


@pytest.mark.slow
def test_the_tree_parts_similar_classes_last() -> None:
    """In iris, versicolor and virginica."""
    X, y = sklearn.datasets.load_iris(return_X_y=True)
    classifier = AugmentedGPClassifier(num_inducing=10, random_state=0).fit(X[::3], y[::3])
    likelihood = classifier.model_.likelihood
    assert isinstance(likelihood, likelihoods.LogisticTree)
    np.testing.assert_array_equal(likelihood.left[:, 0] + likelihood.right[:, 0], 1.0)
    assert likelihood.left[1, 0] == likelihood.left[2, 0] != likelihood.left[0, 0]
    with pytest.raises(ValueError, match=r'multiclass must be one of "tree", "softmax"'):
        AugmentedGPClassifier(multiclass="oak").fit(X, y)


def test_calibration_display_takes_the_classifier(binary: Fitted) -> None:
    display = CalibrationDisplay.from_estimator(
        binary.estimator, binary.X, binary.y, n_bins=4, pos_label="yes"
    )
    assert np.max(np.abs(display.prob_true - display.prob_pred)) < 0.2


@pytest.mark.slow
def test_intervals_by_quantiles_cover_what_those_by_sd_do_not(regression: Fitted) -> None:
    """With two degrees of freedom, the variance of Student-t noise, if finite, says little."""
    X, y = noisy_wave(5_000, seed=1)
    mean, sd = regression.estimator.predict(X, return_std=True)
    lower, upper = regression.estimator.predict_quantiles(X, [0.05, 0.95]).T
    covered = np.mean((lower <= y) & (y <= upper))
    covered_by_sd = np.mean(np.abs(y - mean) <= 1.645 * sd)
    assert abs(covered - 0.9) < 0.03
    assert abs(covered - 0.9) < abs(covered_by_sd - 0.9) - 0.01


@pytest.mark.slow
def test_a_calibrated_interval_lies_between_the_quantiles_of_left_out_rows() -> None:
    """Noise that is fixed far too small: the intervals are as wide as the data want them."""
    X, y = noisy_wave(100, seed=3, df=30.0)
    noise = likelihoods.Gaussian(scale=0.02)
    gpflow.set_trainable(noise, False)
    options = {"likelihood": noise, "num_inducing": 10, "normalize_y": False, "random_state": 0}
    plain = AugmentedGPRegressor(**options).fit(X, y)
    calibrated = clone(plain).set_params(calibrated=True).fit(X, y)
    np.testing.assert_array_equal(
        plain.predict_interval(X), plain.predict_quantiles(X, [0.05, 0.95])
    )
    levels = calibrated_levels(calibrated.model_, (X, y[:, None]))[:, 0]
    interval = calibrated.predict_interval(X)
    np.testing.assert_allclose(interval, calibrated.predict_quantiles(X, levels))
    Xnew, ynew = noisy_wave(1_000, seed=4, df=30.0)
    shares = []
    for regressor in (plain, calibrated):
        lower, upper = regressor.predict_interval(Xnew).T
        shares.append(np.mean((lower <= ynew) & (ynew <= upper)))
    assert shares[0] < 0.5
    assert 0.8 < shares[1] < 0.97


def test_predictions_are_in_the_units_of_y(regression: Fitted) -> None:
    """The model's own predictions are of (y − median) / interquartile range."""
    estimator, X, y = regression
    quartiles = np.quantile(y, [0.25, 0.5, 0.75])
    assert estimator.y_center_ == quartiles[1]
    unit = (quartiles[2] - quartiles[0]) / (2.0 * 0.6744897501960817)
    Fmu, Fvar = estimator.model_.predict_f(X)
    likelihood = estimator.model_.likelihood
    variance = Fvar + likelihood.noise_variance()
    mean, sd = estimator.predict(X, return_std=True)
    np.testing.assert_allclose(mean, quartiles[1] + unit * Fmu.numpy()[:, 0], rtol=1e-6)
    np.testing.assert_allclose(sd, unit * np.sqrt(variance.numpy()[:, 0]), rtol=1e-6)
    np.testing.assert_allclose(estimator.predict_quantiles(X, 0.5), mean, atol=1e-8)


def test_draws_of_y_have_its_quantiles(regression: Fitted) -> None:
    X = regression.X[:10]
    levels = [0.1, 0.5, 0.9]
    draws = regression.estimator.sample_y(X, n_samples=4_000, random_state=3)
    assert draws.shape == (10, 4_000)
    quantiles = regression.estimator.predict_quantiles(X, levels)
    below = np.mean(draws[:, :, None] <= quantiles[:, None, :], axis=1)
    # The tolerance is five standard errors of a share of 4,000 draws.
    np.testing.assert_allclose(below, np.tile(levels, (10, 1)), atol=0.04)
    again = regression.estimator.sample_y(X, n_samples=4_000, random_state=3)
    np.testing.assert_array_equal(again, draws)


def test_many_rows_are_predicted_in_parts(
    regression: Fitted, monkeypatch: pytest.MonkeyPatch
) -> None:
    estimator, X = regression.estimator, regression.X[:10]
    whole = *estimator.predict(X, return_std=True), estimator.predict_quantiles(X, 0.9)
    monkeypatch.setattr(shared, "_ROWS_AT_ONCE", 7)
    parts = *estimator.predict(X, return_std=True), estimator.predict_quantiles(X, 0.9)
    for one, other in zip(whole, parts, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9)


@pytest.mark.slow
def test_where_y_has_no_mean_its_median_is_predicted() -> None:
    X, y = noisy_wave(60, seed=2, df=1.0)
    regressor = AugmentedGPRegressor(likelihood="cauchy", num_inducing=15, random_state=0)
    mean, sd = regressor.fit(X, y).predict(X, return_std=True)
    assert np.all(np.isinf(sd))
    np.testing.assert_allclose(mean, regressor.predict_quantiles(X, [0.5])[:, 0])
    assert np.median(np.abs(mean - np.sin(2.0 * X[:, 0]))) < 0.2


@pytest.mark.slow
def test_where_y_has_an_infinite_mean_predictions_are_medians() -> None:
    """The mean of exp(t) is infinite for every Student-t t."""
    X = np.linspace(-2.0, 2.0, 60)[:, None]
    y = np.exp(np.sin(2.0 * X[:, 0]) + 0.1 * np.random.default_rng(0).standard_t(3, 60))
    likelihood = likelihoods.Warped(likelihoods.StudentT(0.2, df=3.0), likelihoods.warps.Log())
    regressor = AugmentedGPRegressor(likelihood=likelihood, num_inducing=15, random_state=0)
    mean = regressor.fit(X, y).predict(X)
    np.testing.assert_allclose(mean, regressor.predict_quantiles(X, 0.5))
    assert regressor.score(X, y) > 0.5


# ---- what a fit depends on ----


def assert_same_to_the_bit(one: Fitted, other: Any) -> None:
    names = {"predict", "predict_proba", "predict_quantiles"}
    for name in names & set(dir(one.estimator)):
        levels = ([0.1, 0.9],) if name == "predict_quantiles" else ()
        predicted = [getattr(each, name)(one.X, *levels) for each in (one.estimator, other)]
        np.testing.assert_array_equal(*predicted)


@pytest.mark.parametrize("which", ["regression", "binary"])
def test_a_pickled_estimator_predicts_the_same_to_the_bit(
    which: str, request: pytest.FixtureRequest
) -> None:
    fitted = request.getfixturevalue(which)
    copied = pickle.loads(pickle.dumps(fitted.estimator))
    assert_same_to_the_bit(fitted, copied)
    assert str(copied.fit_result_) == str(fitted.estimator.fit_result_)
    is_trainable = copied.model_.inducing_variable.Z.trainable
    assert not is_trainable
    assert copied.model_.kernel.variance.trainable


@pytest.mark.briefly("binary")
@pytest.mark.parametrize("which", ["regression", "binary"])
def test_the_same_seed_makes_the_same_fit_to_the_bit(
    which: str, request: pytest.FixtureRequest
) -> None:
    fitted = request.getfixturevalue(which)
    assert_same_to_the_bit(fitted, clone(fitted.estimator).fit(fitted.X, fitted.y))


def test_inducing_points_are_the_seed_s_or_all_rows(regression: Fitted) -> None:
    def points(M: int, seed: int) -> AnyNDArray:
        X = np.vstack([regression.X, regression.X])  # each row occurs twice
        scaler = sklearn.preprocessing.StandardScaler().fit(X)
        return shared._inducing_points(X, M, scaler, seed)

    assert not np.array_equal(points(20, 0), points(20, 1))
    np.testing.assert_array_equal(points(N, 0), np.sort(regression.X, axis=0))


def test_a_fit_leaves_the_objects_it_was_given_as_they_are() -> None:
    X, y = noisy_wave(40, seed=3)
    kernel, likelihood = gpflow.kernels.Matern52(), likelihoods.Laplace(scale=0.7)
    regressor = AugmentedGPRegressor(likelihood=likelihood, kernel=kernel, num_inducing=10)
    before = [
        {name: value.numpy().item() for name, value in parameter_dict(each).items()}
        for each in (kernel, likelihood)
    ]
    model = regressor.fit(X, y).model_
    after = [
        {name: value.numpy().item() for name, value in parameter_dict(each).items()}
        for each in (kernel, likelihood)
    ]
    assert after == before
    assert regressor.get_params()["kernel"] is kernel
    assert model.kernel is not kernel
    assert model.likelihood is not likelihood
    assert model.likelihood.scale.numpy() < 0.6
    assert type(clone(regressor).kernel) is gpflow.kernels.Matern52


def test_the_units_of_X_and_y_do_not_matter(regression: Fitted) -> None:
    """When units change by powers of two, hardly a digit changes."""
    estimator, X, y = regression
    other = clone(estimator).fit(1024.0 * X, 4096.0 * y)
    predicted = other.predict(1024.0 * X)
    np.testing.assert_allclose(predicted, 4096.0 * estimator.predict(X), rtol=1e-4, atol=1.0)


@pytest.mark.slow
def test_without_normalisation_the_fit_begins_in_the_units_of_y(regression: Fitted) -> None:
    estimator, X, y = regression
    raw = clone(estimator).set_params(normalize_y=False).fit(X, 100.0 * (y - np.median(y)))
    assert raw.y_scale_ == 1.0
    predicted = np.median(y) + raw.predict(X) / 100.0
    np.testing.assert_allclose(predicted, estimator.predict(X), atol=0.01)


@pytest.mark.replicate
def test_counts_by_an_object() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, size=(N, 1))
    rate = np.exp(1.0 + np.sin(2.0 * X[:, 0]))
    regressor = AugmentedGPRegressor(
        likelihood=likelihoods.NegativeBinomial(10.0), num_inducing=15
    ).fit(X, rng.poisson(rate))
    assert np.corrcoef(regressor.predict(X), rate)[0, 1] > 0.95
    medians = regressor.predict_quantiles(X, 0.5)
    np.testing.assert_array_equal(medians, np.round(medians))


@pytest.mark.replicate
def test_noise_that_is_another_gp() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, size=(300, 1))
    sd = np.where(X[:, 0] > 0.0, 0.5, 0.05)
    noise = likelihoods.Heteroscedastic(likelihoods.Gaussian(), 1_000.0)
    regressor = AugmentedGPRegressor(likelihood=noise, num_inducing=15, random_state=0).fit(
        X, np.sin(2.0 * X[:, 0]) + sd * rng.normal(size=300)
    )
    _, found = regressor.predict(np.array([[-1.0], [1.0]]), return_std=True)
    np.testing.assert_allclose(found, [0.05, 0.5], rtol=0.5)


def test_in_float32() -> None:
    X, y = noisy_wave(60, seed=4, df=100.0)
    regressor = AugmentedGPRegressor(likelihood="gaussian", num_inducing=15, random_state=0)
    with gpflow.config.as_context(gpflow.config.Config(float=np.float32, jitter=1e-4)):
        predicted = regressor.fit(X, y).predict(X)
    assert predicted.dtype == np.float32
    np.testing.assert_allclose(predicted, np.sin(2.0 * X[:, 0]), atol=0.2)


# ---- among scikit-learn's tools ----


@pytest.mark.replicate
def test_a_grid_search_finds_the_likelihood_for_outliers() -> None:
    X, y = noisy_wave(100, seed=5)
    y[::10] += 20.0
    search = GridSearchCV(
        AugmentedGPRegressor(num_inducing=15, random_state=0),
        {"likelihood": ["gaussian", "student-t"]},
        scoring="neg_median_absolute_error",
        cv=3,
    )
    assert search.fit(X, y).best_params_ == {"likelihood": "student-t"}


@pytest.mark.replicate
def test_two_processes_find_what_one_does(binary: Fitted) -> None:
    estimator = clone(binary.estimator).set_params(kernel=gpflow.kernels.Matern52())
    of_one, of_two = (
        cross_val_score(estimator, binary.X, binary.y, cv=2, n_jobs=n) for n in (1, 2)
    )
    np.testing.assert_array_equal(of_one, of_two)
    assert np.min(of_one) > 0.7


def test_columns_have_names() -> None:
    X, y = noisy_wave(30, seed=6)
    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 0] ** 2})
    regressor = AugmentedGPRegressor(likelihood="gaussian", num_inducing=10).fit(frame, y)
    assert regressor.feature_names_in_.tolist() == ["a", "b"]
    with pytest.raises(ValueError, match="feature names"):
        regressor.predict(frame[["b", "a"]])


# ---- what each row brings along ----


@pytest.mark.slow
def test_a_regressor_of_counts_with_exposure_begins_from_the_data() -> None:
    """The rate a unit of exposure is learnt, whatever the unit."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, size=(N, 1))
    exposure = rng.uniform(100.0, 2_000.0, size=N)
    rate = 0.004 * np.exp(np.sin(2.0 * X[:, 0]))
    y = rng.poisson(rate * exposure)
    regressor = AugmentedGPRegressor(likelihood="poisson", num_inducing=15, random_state=0)
    found = regressor.fit(X, y, exposure=exposure).predict(X)
    assert regressor.y_scale_ == 1.0
    np.testing.assert_allclose(found, rate, rtol=0.5)
    assert np.corrcoef(found, rate)[0, 1] > 0.97
    weighted = clone(regressor).fit(X, y, sample_weight=np.full(N, 2.0), exposure=exposure)
    assert weighted.fit_result_.elbo < 1.8 * regressor.fit_result_.elbo
    pipeline = make_pipeline(sklearn.preprocessing.StandardScaler(), clone(regressor))
    pipeline.fit(X, y, augmentedgpregressor__exposure=exposure)
    np.testing.assert_allclose(pipeline.predict(X), found, rtol=0.02)


@pytest.mark.slow
def test_censored_y_are_between_y_and_upper() -> None:
    """A ceiling hides the top of a wave; the fit knows that it is there."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-3.0, 3.0, size=(N, 1))
    y = 50.0 + 10.0 * np.sin(2.0 * X[:, 0]) + rng.normal(size=N)
    is_seen = (y < 55.0) & (y > 42.0)
    lower = np.where(is_seen, y, np.where(y < 50.0, -np.inf, 55.0))
    upper = np.where(is_seen, y, np.where(y < 50.0, 42.0, np.inf))
    likelihood = likelihoods.Interval("probit", scale=0.3)
    regressor = AugmentedGPRegressor(likelihood=likelihood, num_inducing=15, random_state=0)
    found = regressor.fit(X, lower, upper=upper).predict(X)
    np.testing.assert_allclose(found, 50.0 + 10.0 * np.sin(2.0 * X[:, 0]), atol=4.0)
    assert found.max() > 57.0
    assert found.min() < 41.0


@pytest.mark.slow
def test_known_noise_is_in_units_of_y() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-3.0, 3.0, size=(N, 1))
    variance = np.where(X[:, 0] > 0.0, 400.0, 1.0)
    y = 100.0 * np.sin(X[:, 0]) + np.sqrt(variance) * rng.normal(size=N)
    likelihood = likelihoods.Gaussian(variance=1e-3, with_noise_variance=True)
    regressor = AugmentedGPRegressor(likelihood=likelihood, num_inducing=15, random_state=0)
    regressor.fit(X, y, noise_variance=variance)
    noise = regressor.model_.likelihood.variance.numpy() * regressor.y_scale_**2
    assert noise < 25.0  # it would be about 200, were the known part of it not known
    np.testing.assert_allclose(regressor.predict(X), 100.0 * np.sin(X[:, 0]), atol=15.0)


def test_columns_that_a_likelihood_does_not_have_are_refused() -> None:
    X, y = noisy_wave(20, seed=0)
    counts = AugmentedGPRegressor(likelihood="poisson")
    with pytest.raises(ValueError, match=r"that StudentT has, none. Found: exposure"):
        AugmentedGPRegressor().fit(X, y, exposure=np.ones(20))
    with pytest.raises(ValueError, match=r"that Interval has, upper. Found: none"):
        AugmentedGPRegressor(likelihood=likelihoods.Interval()).fit(X, y)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        counts.fit(X, np.ones(20), exposure=np.ones(19))
    with pytest.raises(ValueError, match=r"The exposure.* must be positive"):
        counts.fit(X, np.ones(20), exposure=np.zeros(20) - 1.0)
    with pytest.raises(ValueError, match=r'normalize_y must be "auto" or False for Poisson'):
        clone(counts).set_params(normalize_y=True).fit(X, np.ones(20))
    with pytest.raises(ValueError, match=r'normalize_y must be one of "auto"'):
        AugmentedGPRegressor(normalize_y="no").fit(X, y)


def test_predictions_pass_through_a_pipeline(regression: Fitted, binary: Fitted) -> None:
    estimator, X, _ = regression
    pipeline = Pipeline([("gp", estimator)])
    levels = [0.05, 0.5, 0.95]
    quantiles = estimator.predict_quantiles(X, levels)
    np.testing.assert_array_equal(pipeline.predict(X, quantiles=levels), quantiles)
    mean, interval = pipeline.predict(X, return_interval=0.9)
    np.testing.assert_array_equal(mean, estimator.predict(X))
    np.testing.assert_allclose(interval, quantiles[:, [0, 2]])
    with pytest.raises(ValueError, match="one of return_std, return_interval and quantiles"):
        pipeline.predict(X, return_std=True, quantiles=0.5)


def test_intervals_of_two_probabilities_are_those_of_f(binary: Fitted) -> None:
    """P(y = 1|f) = σ(f), so that its quantiles are σ of those of f."""
    estimator, X, _ = binary
    p, interval = Pipeline([("gp", estimator)]).predict_proba(X, return_interval=0.8)
    np.testing.assert_array_equal(p, estimator.predict_proba(X))
    Fmu, Fvar = (part.numpy()[:, 0] for part in estimator.model_.predict_f(X))
    for end, sign in enumerate((-1.0, 1.0)):
        expected = scipy.special.expit(Fmu + sign * 1.2815515655446004 * np.sqrt(Fvar))
        np.testing.assert_allclose(interval[:, 1, end], expected, atol=0.03)
        np.testing.assert_allclose(interval[:, 0, 1 - end], 1.0 - expected, atol=0.03)


def test_intervals_of_three_probabilities_hold_as_many_draws_as_they_say(
    three_classes: Fitted,
) -> None:
    estimator, X, _ = three_classes
    _, interval = estimator.predict_proba(X[::5], return_interval=0.8)
    assert interval.shape == (30, 3, 2)
    Fmu, Fvar = (part.numpy() for part in estimator.model_.predict_f(X[::5]))
    f = Fmu + np.sqrt(Fvar) * np.random.default_rng(0).normal(size=(2_000, *Fmu.shape))
    p = estimator.model_.likelihood.conditional_mean(X[::5], f).numpy()
    held = np.mean((interval[..., 0] <= p) & (p <= interval[..., 1]), 0)
    np.testing.assert_allclose(held, 0.8, atol=0.1)


@pytest.mark.slow
def test_a_fit_that_has_not_converged_warns(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = noisy_wave(40, seed=0)

    def cut_off(*args: Any, **kwargs: Any) -> Any:
        return dataclasses.replace(fit(*args, **kwargs), converged=False)

    monkeypatch.setattr(shared, "fit", cut_off)
    with pytest.warns(ConvergenceWarning, match="fit_collapsed has not converged after"):
        AugmentedGPRegressor(num_inducing=10, random_state=0).fit(X, y)


class _RandomOne(gpflow.likelihoods.Softmax):
    """A subclass, which may have overridden anything, of one that draws samples."""


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"likelihood": "studentt"}, r"likelihood must be .*'student-t', .*Found: 'studentt'"),
        ({"likelihood": 3.0}, r"likelihood must be a gpflow Likelihood .*Found: 3.0"),
        ({"kernel": "rbf"}, r"kernel must be .*'squared-exponential', .*Found: 'rbf'"),
        ({"kernel": gpflow.kernels.Matern52}, r"kernel must be a gpflow Kernel or .*Found: <class"),
        ({"num_inducing": 0}, r"num_inducing must be a positive integer. Found: 0"),
        ({"num_inducing": 2.5}, r"num_inducing must be a positive integer. Found: 2.5"),
        ({"likelihood": _RandomOne(2)}, r"not a Monte Carlo estimate.*Found: _RandomOne"),
    ],
)
def test_parameters_that_are_none(parameters: dict[str, Any], message: str) -> None:
    X, y = noisy_wave(10, seed=0)
    regressor = AugmentedGPRegressor(**parameters)
    with pytest.raises(ValueError, match=message):
        regressor.fit(X, y)
    assert not hasattr(regressor, "model_")


@pytest.mark.slow
@pytest.mark.parametrize("estimator", [AugmentedGPRegressor, AugmentedGPClassifier])
def test_the_examples_in_the_docstrings_run(estimator: type) -> None:
    (example,) = re.findall(r"::\n\n((?:        .*\n|\n)+)", estimator.__doc__ or "")
    names: dict[str, Any] = {}
    exec(textwrap.dedent(example), names)
    if estimator is AugmentedGPRegressor:
        assert np.mean((names["lower"] < names["y"]) & (names["y"] < names["upper"])) > 0.8
        assert names["scores"].shape == (3,)
    else:
        assert names["accuracy"] > 0.9


# ---- words ----


def table(n: int) -> tuple[pd.DataFrame, AnyNDArray]:
    """A wave that a city shifts, with a column of categories that does not matter."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "size": rng.uniform(-3.0, 3.0, n),
            "city": rng.choice(["Ulm", "Bonn", "Kiel"], n),
            "grade": pd.Categorical(rng.choice(["low", "high"], n), ["low", "middle", "high"]),
        }
    )
    shift = frame["city"].map({"Ulm": 0.0, "Bonn": 2.0, "Kiel": -2.0})
    y = np.sin(2.0 * frame["size"]) + shift + 0.1 * rng.standard_t(3, size=n)
    return frame, y.to_numpy()


@pytest.mark.slow
def test_text_and_categories_are_encoded_by_the_levels_of_the_fit() -> None:
    frame, y = table(120)
    regressor = AugmentedGPRegressor(num_inducing=40, random_state=0).fit(frame, y)
    assert regressor.score(frame, y) > 0.95
    assert regressor.feature_names_in_.tolist() == ["size", "city", "grade"]
    assert regressor.levels_[1].tolist() == ["Bonn", "Kiel", "Ulm", "(unseen)"]
    assert regressor.levels_[2].tolist() == ["low", "middle", "high", "(unseen)"]
    Z = regressor.model_.inducing_variable.Z.numpy()
    assert set(Z[:, 1]) == {0.0, 1.0, 2.0}
    assert set(Z[:, 2]) == {0.0, 2.0}
    shuffled = frame.iloc[::-1].assign(grade="middle")  # text of a category without rows
    assert np.all(np.isfinite(regressor.predict(shuffled)))
    copied = pickle.loads(pickle.dumps(regressor))
    np.testing.assert_allclose(copied.predict(frame), regressor.predict(frame))
    before = regressor.predict(frame[:3])
    with pytest.raises(ValueError, match="feature names should match"):
        regressor.predict(frame[["city", "size", "grade"]])
    np.testing.assert_array_equal(regressor.predict(frame[:3]), before)


@pytest.mark.slow
def test_a_word_that_the_fit_has_not_seen_is_as_alike_to_others_as_these_are() -> None:
    """It has the prediction of a GP whose kernel knew one more level without rows."""
    frame, y = table(60)
    frame = frame[["size", "city"]]
    regressor = AugmentedGPRegressor(method="full", random_state=0).fit(frame, y)
    new = frame[:5].assign(city=["Rom", "Oslo", "Ulm", "Rom", "Bonn"])
    with pytest.warns(UserWarning, match=r"column 'city' of X .* not seen, 'Rom', 'Oslo': "):
        mean, sd = regressor.predict(new, return_std=True)
    kernel = gpflow.utilities.deepcopy(regressor.model_.kernel)
    kernel.kernels[1] = kernels.Categorical(1, ["Bonn", "Kiel", "Ulm", "Rom", "Oslo"])
    kernel.kernels[1].correlation.assign(regressor.model_.kernel.kernels[1].correlation)
    other = AugmentedGPRegressor(method="full", kernel=kernel, random_state=0)
    gpflow.set_trainable(kernel, False)
    other.fit(frame, y)
    known = other.predict(new, return_std=True)
    np.testing.assert_allclose(mean, known[0], atol=0.05)
    np.testing.assert_allclose(sd, known[1], rtol=0.05)
    assert np.ptp(sd[[2, 4]]) < 0.2 < np.min(sd[[0, 1, 3]]) - np.max(sd[[2, 4]])


@pytest.mark.slow
def test_gaps_of_a_frame_are_encoded_in_the_fit_and_in_predictions() -> None:
    """Where a gap says something itself, its own column does; a pickle has the encoder."""
    frame, y = table(120)
    is_gap = np.arange(120) % 3 == 0
    frame = frame.assign(
        weight=np.where(is_gap, np.nan, 1.0), city=frame["city"].where(frame["city"] != "Ulm")
    )
    regressor = AugmentedGPRegressor(num_inducing=60, random_state=0).fit(frame, y + 3.0 * is_gap)
    assert regressor.score(frame, y + 3.0 * is_gap) > 0.95
    assert regressor.n_features_in_ == 4
    copied = pickle.loads(pickle.dumps(regressor))
    shuffled = frame.iloc[::-1]
    np.testing.assert_allclose(copied.predict(shuffled)[::-1], regressor.predict(frame))
    with pytest.raises(ValueError, match=r"X must be a frame, as in the fit.*Found: ndarray"):
        regressor.predict(frame.to_numpy())
    with pytest.raises(ValueError, match="feature names should match"):
        regressor.predict(frame[["city", "size", "grade", "weight"]])
    new_gap = frame.assign(size=frame["size"].where(np.arange(120) > 1))
    with pytest.raises(ValueError, match=r"column 'size' of X must have no missing.*Found: 2 mis"):
        regressor.predict(new_gap)


@pytest.mark.slow
def test_advice_has_the_names_of_columns() -> None:
    frame, y = table(60)
    frame = frame[["size"]].assign(useless=np.random.default_rng(1).normal(size=60))
    for method in ("sparse", "full"):
        regressor = AugmentedGPRegressor(method=method, num_inducing=20, random_state=0)
        result = regressor.fit(frame, y).fit_result_
        assert "(column 'useless')" in str(result), result


@pytest.mark.slow
def test_a_classifier_takes_words() -> None:
    frame, y = table(120)
    classes = np.where(y > 0.6, "high", np.where(y > -0.6, "middle", "low"))
    classifier = AugmentedGPClassifier(num_inducing=100, random_state=0).fit(frame, classes)
    assert classifier.score(frame, classes) > 0.9


@pytest.mark.slow
def test_a_kernel_object_must_know_the_words_itself() -> None:
    frame, y = table(60)
    kernel = gpflow.kernels.SquaredExponential(active_dims=[0])
    with pytest.raises(ValueError, match=r"column 'city' of X .*kernels.Categorical\(column=1"):
        AugmentedGPRegressor(kernel=kernel).fit(frame, y)
    knowing = kernel * kernels.Categorical(1, ["Ulm", "Bonn", "Kiel"])
    regressor = AugmentedGPRegressor(kernel=knowing, num_inducing=30, random_state=0)
    regressor.fit(frame[["size", "city"]], y)
    assert regressor.levels_[1].tolist() == ["Ulm", "Bonn", "Kiel"]
    assert regressor.score(frame[["size", "city"]], y) > 0.95


@pytest.fixture(scope="module")
def counted() -> tuple[AugmentedGPRegressor, AnyNDArray, AnyNDArray, AnyNDArray]:
    rng = np.random.default_rng(3)
    X = rng.uniform(-2.0, 2.0, size=(60, 1))
    exposure = rng.uniform(1.0, 30.0, size=60)
    y = rng.poisson(np.exp(0.5 * X[:, 0]) * exposure)
    regressor = AugmentedGPRegressor(likelihood="poisson", num_inducing=8, random_state=0)
    return regressor.fit(X, y, exposure=exposure), X, y, exposure


@pytest.mark.briefly("full")
@pytest.mark.parametrize("method", ["full", "sparse"])
def test_effects_of_groups_are_parts_of_a_kernel(method: str) -> None:
    """Ten schools, whose effects are far larger than what x explains."""
    rng = np.random.default_rng(4)
    names = np.array(list("abcdefghij"))
    frame = pd.DataFrame({"x": rng.normal(size=150), "school": rng.choice(names, size=150)})
    b = dict(zip(names, rng.normal(scale=2.0, size=10), strict=True))
    y = 0.3 * np.sin(frame.x) + frame.school.map(b) + 0.1 * rng.normal(size=150)
    schools = effects.Grouped(1, levels=frame.school)
    kernel = gpflow.kernels.Matern52(active_dims=[0]) + schools
    regressor = AugmentedGPRegressor(kernel=kernel, method=method, likelihood="gaussian")
    regressor.fit(frame, y)
    found = regressor.predict(pd.DataFrame({"x": 0.0, "school": names}))
    expected = np.array([b[name] for name in names])
    np.testing.assert_allclose(found, expected, atol=0.2)
    variances = [part.variance.numpy() for part in regressor.model_.kernel.kernels]
    assert np.sqrt(variances[1]) * y.std() > 1.0


@pytest.mark.slow
def test_counts_are_predicted_at_the_exposures_that_are_given(counted: Any) -> None:
    """Their mean is proportional to exposure, and R² is of the counts themselves."""
    regressor, X, y, exposure = counted
    mean = regressor.predict(X, exposure=exposure)
    np.testing.assert_allclose(mean, exposure * regressor.predict(X), rtol=1e-8)
    pipeline = Pipeline([("gp", regressor)])
    np.testing.assert_array_equal(pipeline.predict(X, exposure=exposure), mean)
    score = regressor.score(X, y, exposure=exposure)
    assert score == pytest.approx(1.0 - np.sum((y - mean) ** 2) / np.sum((y - y.mean()) ** 2))
    lower, upper = regressor.predict(X, quantiles=[0.05, 0.95], exposure=exposure).T
    assert np.mean((lower <= y) & (y <= upper)) > 0.8
    _, interval = regressor.predict(X[:3], return_interval=0.9, exposure=exposure[:3])
    np.testing.assert_array_equal(interval, np.stack([lower, upper], 1)[:3])
    np.testing.assert_allclose(
        regressor.predict(X[:2], exposure=2.0), 2.0 * regressor.predict(X[:2])
    )
    with pytest.raises(ValueError, match=r"exposure must be \[2\] or a number. Found: shape \[3\]"):
        regressor.predict(X[:2], exposure=np.ones(3))
    with pytest.raises(ValueError, match=r"hold only exposure.*Found: trials"):
        regressor.predict(X[:2], trials=3)


@pytest.mark.slow
def test_exposures_are_routed_to_fit_and_score(counted: Any) -> None:
    """As scikit-learn routes metadata: each fold has the exposures of its rows."""
    regressor, X, y, exposure = counted
    with sklearn.config_context(enable_metadata_routing=True):
        routed = clone(regressor).set_fit_request(exposure=True).set_score_request(exposure=True)
        scores = cross_val_score(routed, X, y, cv=2, params={"exposure": exposure})
    halves = np.arange(30), np.arange(30, 60)
    for score, test, train in zip(scores, halves, halves[::-1], strict=True):
        fold = clone(regressor).fit(X[train], y[train], exposure=exposure[train])
        expected = fold.score(X[test], y[test], exposure=exposure[test])
        assert score == pytest.approx(expected, rel=1e-4)


@pytest.mark.slow
def test_grades_by_name() -> None:
    """Each quantile is a grade, edges are learnt, and a grade nobody gave is no error."""
    rng = np.random.default_rng(4)
    X = rng.uniform(-3.0, 3.0, size=(60, 1))
    y = np.digitize(np.sin(X[:, 0]) + 0.1 * rng.normal(size=60), [-0.6, 0.0, 0.6])
    y = np.where(y == 3, 4, y)
    regressor = AugmentedGPRegressor(likelihood="ordinal", num_inducing=10, random_state=0)
    regressor.fit(X, y)
    assert regressor.model_.likelihood.num_bins == 5
    assert np.mean(regressor.predict_quantiles(X, 0.5) == y) > 0.8
    assert regressor.score(X, y) > 0.8
    with pytest.raises(ValueError, match=r"grades 0, 1, 2, … .*Found: \[0.5"):
        regressor.fit(X, y + 0.5)
    with pytest.raises(ValueError, match=r"y must hold numbers. Words that are grades.*'good'"):
        regressor.fit(X, np.where(y > 1, "good", "poor"))


def test_the_first_edges_give_each_grade_its_share() -> None:
    """Of z = f + e, which is N(0, 2) before the fit; weights are counts."""
    edges = regressor_module._edges(np.array([0.0, 1.0, 2.0]), np.array([200.0, 500.0, 300.0]))
    shares = np.diff(scipy.special.ndtr(edges / np.sqrt(2.0)), prepend=0.0, append=1.0)
    np.testing.assert_allclose(shares, [0.2, 0.5, 0.3], atol=1e-3)
