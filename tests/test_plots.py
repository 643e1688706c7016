"""Plots show what the models predict; PIT values are uniform only if the model is right."""

from typing import Any

import gpflow
import matplotlib.colors
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import scipy.special
import scipy.stats
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.kernels import Matern32
from matplotlib.figure import Figure
from sklearn.preprocessing import StandardScaler

from gpflow_aaci import AugmentedNaturalGradient, AugmentedSVGP, AugmentedVGP, likelihoods
from gpflow_aaci.criticism.calibration import binomial_band, pit
from gpflow_aaci.kernels import OrthogonalAdditive
from gpflow_aaci.plots import plot_calibration, plot_fit, plot_parts
from gpflow_aaci.predictions import (
    mean_of_y,
    predict_component,
    predict_y_cdf,
    predict_y_quantile,
    predict_y_samples,
    survival_at,
)

pytestmark = pytest.mark.slow

N = 40


@pytest.fixture
def ax() -> Any:
    """Axes of a figure that does not belong to pyplot."""
    return Figure().subplots()


def made(likelihood: Any, num: int = N, D: int = 1, **kwargs: Any) -> tuple[Any, AnyNDArray]:
    """A model whose q differs from the prior, and X."""
    rng = np.random.default_rng(0)
    X, Z = rng.uniform(-2.0, 2.0, size=(num, D)), rng.uniform(-2.0, 2.0, size=(7, D))
    L = likelihood.latent_dim or kwargs.pop("num_latent_gps", 1)
    model = AugmentedSVGP(Matern32(1.5), likelihood, Z, num_latent_gps=L, **kwargs)
    model.q_mu.assign(rng.normal(size=model.q_mu.shape))
    model.q_sqrt.assign(0.5 * model.q_sqrt)
    return model, X


# ---- the parts ----


def test_panels_are_the_parts_of_one_column_with_their_bands() -> None:
    """All on one scale, along the range of their column, with a tick for every row."""
    _, X = made(likelihoods.StudentT(), D=3)
    model, _ = made(likelihoods.StudentT(), D=3)
    model.kernel = OrthogonalAdditive(Matern32(1.5), X)
    panels = plot_parts(model, pd.DataFrame(X, columns=["a", "b", "c"]))
    assert [ax.get_xlabel() for ax in panels] == ["a", "b", "c"]
    assert [ax.get_ylabel() for ax in panels] == ["part (0,)", "part (1,)", "part (2,)"]
    assert len({ax.get_ylim() for ax in panels}) == 1
    for d, ax in enumerate(panels):
        x, y = ax.lines[0].get_data()
        at = np.zeros((len(x), 3))
        at[:, d] = x
        mean, variance = (part.numpy()[:, 0] for part in predict_component(model, at, (d,)))
        np.testing.assert_allclose(y, mean, atol=1e-9)
        half = scipy.stats.norm.ppf(0.975) * np.sqrt(variance)
        band = ax.collections[0].get_paths()[0].vertices
        assert band[:, 1].min() == pytest.approx(np.min(mean - half), abs=1e-4)
        assert band[:, 1].max() == pytest.approx(np.max(mean + half), abs=1e-4)
        np.testing.assert_array_equal(ax.collections[1].get_offsets()[:, 0], X[:, d])
        assert x[0] < X[:, d].min()
        assert x[-1] > X[:, d].max()
    plt.close("all")


def test_parts_of_several_columns_and_constants_have_no_panel(ax: Any) -> None:
    first, second = Matern32(active_dims=[0]), Matern32(active_dims=[1])
    model, X = made(likelihoods.StudentT(), D=2)
    model.kernel = first * second + gpflow.kernels.Constant() + second
    assert plot_parts(model, X, axes=[ax]) == [ax]
    assert ax.get_ylabel() == "part 2"
    with pytest.raises(ValueError, match=r"axes must be 1\. Found: 2"):
        plot_parts(model, X, axes=[ax, ax])
    with pytest.raises(ValueError, match=r"output must be an integer from 0 to 0\. Found: 1"):
        plot_parts(model, X, output=1)
    model.kernel = Matern32() + first * second
    with pytest.raises(ValueError, match="model must have a part of one column of X"):
        plot_parts(model, X)


# ---- the fit ----


def test_lines_are_the_quantiles_of_gaussian_process_regression(ax: Any) -> None:
    """The dots are the data, and the ticks the inducing inputs."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, size=(N, 1))
    Y = np.sin(2.0 * X) + 0.3 * rng.normal(size=X.shape)
    model = AugmentedSVGP(Matern32(), likelihoods.Gaussian(0.09), X.copy())
    AugmentedNaturalGradient().minimize(model, (X, Y))
    assert plot_fit(model, (X, Y), ax=ax, levels=[0.9, 0.2, 0.5]) is ax
    gpr = gpflow.models.GPR((X, Y), Matern32(), noise_variance=0.09)
    assert len(ax.lines) == 3
    for line, level in zip(ax.lines, (0.2, 0.5, 0.9), strict=True):
        x, y = line.get_data()
        mean, variance = (v.numpy()[:, 0] for v in gpr.predict_y(x[:, None]))
        np.testing.assert_allclose(y, scipy.stats.norm.ppf(level, mean, variance**0.5), atol=1e-4)
        assert x[0] < X.min()
        assert x[-1] > X.max()
    dots, ticks = (c.get_offsets() for c in ax.collections[1:])
    np.testing.assert_array_equal(np.sort(dots, 0), np.sort(np.hstack([X, Y]), 0))
    np.testing.assert_array_equal(ticks[:, 0], X[:, 0])


def test_of_a_slice_the_other_columns_are_at_their_medians(ax: Any) -> None:
    """Quantiles are right for skewed noise, and labels are the frames' column names."""
    model, X = made(likelihoods.AsymmetricLaplace(0.4, 0.8), D=3)
    Y = X.sum(1)
    frames = pd.DataFrame(X, columns=["a", "b", "c"]), pd.Series(Y, name="d")
    plot_fit(model, frames, ax=ax, input_dim=1, levels=(0.1, 0.6))
    x = ax.lines[0].get_xdata()
    a, _, c = np.median(X, 0)
    at = np.stack([np.full_like(x, a), x, np.full_like(x, c)], -1)
    expected = predict_y_quantile(model, at, [0.1, 0.6])[..., 0]
    np.testing.assert_allclose([line.get_ydata() for line in ax.lines], expected, rtol=1e-6)
    assert ax.get_xlabel().startswith("b ")
    assert ax.get_ylabel() == "d"
    np.testing.assert_array_equal(
        ax.collections[-1].get_offsets()[:, 0], model.inducing_variable.Z.numpy()[:, 1]
    )


def test_given_X_needs_no_data_and_is_where_it_is_drawn(ax: Any) -> None:
    model, X = made(likelihoods.Poisson(6.0), D=2)
    plot_fit(model, X=X, ax=ax, input_dim=1, levels=[0.7])
    at = X[np.argsort(X[:, 1])]
    np.testing.assert_array_equal(ax.lines[0].get_xdata(), at[:, 1])
    expected = predict_y_quantile(model, at, 0.7)[0, :, 0]
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), expected)
    assert not [c for c in ax.collections if c.get_label() == "data"]


@pytest.mark.parametrize("coding", [0.0, -1.0])
def test_of_two_labels_it_is_the_probability_of_the_upper(ax: Any, coding: float) -> None:
    """This holds in either coding, for the second column of Y."""
    model, X = made(likelihoods.Logistic(), num_latent_gps=2)
    Y = np.where(np.hstack([X, -X]) > 0.3, 1.0, coding)
    plot_fit(model, (X, Y), ax=ax, output=1)
    (line,) = ax.lines
    expected = model.predict_y(line.get_xdata()[:, None])[0][:, 1]
    np.testing.assert_allclose(line.get_ydata(), expected, rtol=1e-8)
    dots = ax.collections[0].get_offsets()
    np.testing.assert_array_equal(dots[:, 1] == 1.0, dots[:, 0] < -0.3)
    assert set(dots[:, 1]) == {0.0, 1.0}


def test_of_classes_lines_are_their_probabilities_and_dots_have_their_colours(ax: Any) -> None:
    model, X = made(likelihoods.LogisticSoftmax(3))
    Y = np.digitize(X, [-0.5, 0.5]).astype(float)
    plot_fit(model, (X, Y), ax=ax)
    p = model.predict_y(ax.lines[0].get_xdata()[:, None])[0]
    for k, line in enumerate(ax.lines):
        np.testing.assert_allclose(line.get_ydata(), p[:, k], atol=1e-7)
        assert line.get_label() == f"P(y = {k})"
    dots = ax.collections[0]
    of_dots = np.digitize(dots.get_offsets()[:, 0], [-0.5, 0.5])
    colours = [matplotlib.colors.to_rgb(line.get_color()) for line in ax.lines]
    np.testing.assert_allclose(dots.get_facecolors()[:, :3], np.array(colours)[of_dots])


def test_of_trials_it_is_the_probability_of_one_and_dots_are_shares(ax: Any) -> None:
    model, X = made(likelihoods.Binomial())
    Y = np.tile([3.0, 4.0], (N, 1))
    plot_fit(model, (X, Y), ax=ax)
    (line,) = ax.lines
    expected = model.predict_y(line.get_xdata()[:, None])[0][:, 0]
    np.testing.assert_allclose(line.get_ydata(), expected, rtol=1e-8)
    assert np.all(ax.collections[0].get_offsets()[:, 1] == 0.75)


def test_counts_are_drawn_per_unit_of_exposure_beside_quantiles_at_exposure_one(ax: Any) -> None:
    model, X = made(likelihoods.Weighted(likelihoods.Poisson(6.0, with_exposure=True)))
    Y = np.tile([12.0, 4.0, 2.0], (N, 1))
    plot_fit(model, (X, Y), ax=ax, levels=[0.5])
    (line,) = ax.lines
    expected = predict_y_quantile(model, line.get_xdata()[:, None], 0.5)[0, :, 0]
    np.testing.assert_array_equal(line.get_ydata(), expected)
    (dots,) = (drawn for drawn in ax.collections if drawn.get_label() == "data")
    np.testing.assert_array_equal(dots.get_offsets()[:, 1], 3.0)


def test_a_function_of_f_is_drawn_beside_the_rates_of_groups_of_rows(ax: Any) -> None:
    """Of 20 groups of neighbours it is the events over their exposure; the line is E[y|f]."""
    model, _ = made(likelihoods.NegativeBinomial(2.0, with_exposure=True))
    rng = np.random.default_rng(1)
    X = rng.permutation(200)[:, None] / 200.0
    Y = np.hstack([rng.integers(4, size=X.shape), rng.uniform(0.5, 2.0, X.shape)])
    frame = pd.DataFrame({"age": X[:, 0]}), pd.DataFrame(Y, columns=["claims", "years"])
    plot_fit(model, frame, ax=ax, function=mean_of_y, levels=[0.05, 0.5, 0.95])
    assert ax.get_ylabel() == "mean of claims"
    x, y = ax.lines[1].get_data()
    mean, variance = model.predict_f(x[:, None])
    np.testing.assert_allclose(y, 2.0 * np.exp(mean[:, 0]), rtol=1e-8)
    f = mean[:, 0] + scipy.stats.norm.ppf(0.95) * np.sqrt(variance[:, 0])
    np.testing.assert_allclose(ax.lines[2].get_ydata(), 2.0 * np.exp(f), rtol=1e-8)
    (dots,) = (drawn for drawn in ax.collections if drawn.get_label() == "means of data")
    groups = Y[np.argsort(X[:, 0])].reshape(20, 10, 2).sum(1)
    np.testing.assert_allclose(dots.get_offsets()[:, 1], groups[:, 0] / groups[:, 1])


def test_groups_are_the_rows_of_one_x_where_there_are_few(ax: Any) -> None:
    """A weight counts, and the labels −1 and 1 are drawn as 0 and 1."""
    model, _ = made(likelihoods.Weighted(likelihoods.Logistic()))
    X, Y = np.array([[0.0], [0.0], [1.0]]), np.array([[1.0, 3.0], [-1.0, 1.0], [-1.0, 1.0]])
    plot_fit(model, (X, Y), ax=ax, function=mean_of_y)
    (dots,) = (drawn for drawn in ax.collections if drawn.get_label() == "means of data")
    np.testing.assert_allclose(dots.get_offsets(), [[0.0, 0.75], [1.0, 0.0]])


def test_real_data_are_dots_beside_their_mean_and_not_beside_another_function(ax: Any) -> None:
    model, X = made(likelihoods.StudentT())
    plot_fit(model, (X, X), ax=ax, function=mean_of_y)
    (dots,) = (drawn for drawn in ax.collections if drawn.get_label() == "data")
    np.testing.assert_array_equal(np.sort(dots.get_offsets(), 0), np.sort(np.hstack([X, X]), 0))
    ax.clear()
    plot_fit(model, (X, X), ax=ax, function=survival_at([0.0, 1.0]), output=1)
    assert ax.get_ylabel() == "function of f"
    assert not [drawn for drawn in ax.collections if "data" in str(drawn.get_label())]
    with pytest.raises(ValueError, match="output must be an integer from 0 to 1"):
        plot_fit(model, (X, X), function=survival_at([0.0, 1.0]), output=2)


def test_a_scaler_puts_the_axis_in_its_own_unit(ax: Any) -> None:
    model, X = made(likelihoods.StudentT(), D=2)
    scaler = StandardScaler().fit(10.0 + 5.0 * np.random.default_rng(0).normal(size=(50, 2)))
    plot_fit(model, (X, X[:, :1]), ax=ax, scaler=scaler, input_dim=1)
    (dots,) = (drawn for drawn in ax.collections if drawn.get_label() == "data")
    own = scaler.inverse_transform(X)[:, 1]
    np.testing.assert_allclose(np.sort(dots.get_offsets()[:, 0]), np.sort(own), rtol=1e-12)
    (ticks,) = (drawn for drawn in ax.collections if drawn.get_label() == "inducing inputs")
    z = model.inducing_variable.Z.numpy()
    np.testing.assert_allclose(ticks.get_offsets()[:, 0], scaler.inverse_transform(z)[:, 1])
    line = ax.lines[0].get_xdata()
    assert line[0] < own.min()
    assert line[-1] > own.max()
    with pytest.raises(ValueError, match=r"scaler must have an inverse_transform.*Found: 2\.0"):
        plot_fit(model, (X, X[:, :1]), scaler=2.0)


def test_of_an_interval_the_middle_is_drawn_or_its_finite_end(ax: Any) -> None:
    model, X = made(likelihoods.Interval("probit", 0.3))
    Y = np.resize([[0.5, 0.5], [-np.inf, 0.2], [0.3, np.inf], [0.2, 0.6]], (N, 2))
    plot_fit(model, (X, Y), ax=ax)
    (dots,) = (drawn for drawn in ax.collections if drawn.get_label() == "data")
    at = np.argsort(X[:, 0])
    drawn = dots.get_offsets()[np.argsort(dots.get_offsets()[:, 0])]
    np.testing.assert_allclose(drawn[:, 1], np.resize([0.5, 0.2, 0.3, 0.4], N)[at], rtol=1e-12)


def test_given_axes_pyplot_is_left_alone(ax: Any) -> None:
    plt.close("all")
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(2, N, 1))
    model = AugmentedVGP((X, Y), Matern32(), likelihoods.Gaussian())
    plot_fit(model, ax=ax)
    two = plot_calibration(model, axes=Figure().subplots(1, 2))
    assert len(two) == 2
    assert not plt.get_fignums()
    plot_fit(model)
    plot_calibration(model)
    assert len(plt.get_fignums()) == 2
    plt.close("all")


def test_a_model_that_keeps_its_data_may_be_shown_with_others(ax: Any) -> None:
    """They may be more than it was given, with names of columns."""
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(2, N, 1))
    model = AugmentedVGP((X, Y), Matern32(), likelihoods.Gaussian())
    X_new, Y_new = rng.normal(size=(2, 2 * N, 1))
    frames = pd.DataFrame(X_new, columns=["age"]), pd.DataFrame(Y_new, columns=["dose"])
    plot_fit(model, frames, ax=ax)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("age", "dose")
    dots = next(drawn for drawn in ax.collections if drawn.get_label() == "data")
    drawn = sorted(map(tuple, np.asarray(dots.get_offsets())))
    np.testing.assert_array_equal(drawn, sorted(map(tuple, np.hstack([X_new, Y_new]))))


def test_bad_arguments_are_named(ax: Any) -> None:
    model, X = made(likelihoods.Gaussian())
    data = X, X
    for kwargs, message in [
        ({"input_dim": 1}, "input_dim must be .* 0 to 0. Found: 1"),
        ({"output": 1}, "output must be .* 0 to 0. Found: 1"),
        ({"levels": [0.5, 1.0]}, "levels must be in"),
    ]:
        with pytest.raises(ValueError, match=message):
            plot_fit(model, data, ax=ax, **kwargs)
    with pytest.raises(ValueError, match="data must be given"):
        plot_fit(model, ax=ax)
    with pytest.raises(ValueError, match="Y must be finite"):
        plot_calibration(model, (X, np.inf * X))
    with pytest.raises(ValueError, match=r"num_bins.*Found: 1"):
        plot_calibration(model, data, num_bins=1)
    with pytest.raises(ValueError, match=r"axes must be two. Found: 1"):
        plot_calibration(model, data, axes=[ax])
    assert not ax.has_data()


# ---- calibration ----


RIGHT: dict[str, Any] = {
    "StudentT": lambda: likelihoods.StudentT(0.3, 3.0),
    "Logistic": lambda: likelihoods.Logistic(),
    "Poisson": lambda: likelihoods.Poisson(4.0),
    "LogisticSoftmax": lambda: likelihoods.LogisticSoftmax(3),
}


@pytest.mark.by_default("StudentT", "Poisson", "Logistic")
@pytest.mark.parametrize("name", RIGHT)
def test_pit_of_data_from_the_model_is_uniform_and_of_others_is_not(name: str) -> None:
    """The test is Kolmogorov and Smirnov's, and y may be discrete."""
    model, X = made(RIGHT[name](), num=3_000)
    Y = predict_y_samples(model, X, 1, seed=1)[0].numpy()
    values = pit(model, (X, Y))
    assert values.shape == (3_000, 1)
    assert scipy.stats.kstest(values[:, 0], "uniform").pvalue > 0.01
    model.q_mu.assign(-model.q_mu)
    assert scipy.stats.kstest(pit(model, (X, Y))[:, 0], "uniform").pvalue < 1e-6


def test_pit_of_trials_and_of_switched_parts_is_uniform() -> None:
    """PIT values are random where y is discrete, and only there."""
    model, X = made(likelihoods.Binomial(), num=2_000)
    rng = np.random.default_rng(1)
    mean, variance = (part.numpy() for part in model.predict_f(X))
    trials = rng.integers(1, 6, size=X.shape).astype(float)
    F = mean + np.sqrt(variance) * rng.normal(size=X.shape)
    Y = np.hstack([rng.binomial(trials.astype(int), scipy.special.expit(F)), trials])
    assert scipy.stats.kstest(pit(model, (X, Y))[:, 0], "uniform").pvalue > 0.01

    parts = [likelihoods.Gaussian(0.3), likelihoods.Logistic()]
    model, X = made(likelihoods.Switched(parts), num=2_000)
    mean, variance = (part.numpy() for part in model.predict_f(X))
    F = mean + np.sqrt(variance) * rng.normal(size=X.shape)
    real = F + np.sqrt(0.3) * rng.normal(size=X.shape)
    label = rng.binomial(1, scipy.special.expit(F))
    of = rng.integers(0, 2, size=X.shape)
    Y = np.hstack([np.where(of == 0, real, label), of])
    first, second = (pit(model, (X, Y), seed=seed)[:, 0] for seed in (0, 1))
    assert scipy.stats.kstest(first, "uniform").pvalue > 0.01
    np.testing.assert_array_equal(np.isclose(first, second, rtol=1e-10), of[:, 0] == 0)


def censored(y: AnyNDArray, seed: int = 2) -> AnyNDArray:
    """Rows (lower, upper) of y > 0: a quarter each exact, and censored right, left and on both."""
    rng = np.random.default_rng(seed)
    one, other = np.sort(np.exp(rng.normal(size=(2, *y.shape))), axis=0)
    is_below, is_above = y < one, y > other
    lower = np.select([is_below, is_above], [0.0 * y, other], one)
    upper = np.select([is_below, is_above], [one, np.inf * y], other)
    is_exact = rng.uniform(size=y.shape) < 0.25
    return np.hstack([np.where(is_exact, y, end) for end in (lower, upper)])


SURVIVAL: dict[str, Any] = {
    "Interval": lambda: likelihoods.Warped(
        likelihoods.Interval("logit", 0.6), likelihoods.warps.Log()
    ),
    "Weighted": lambda: likelihoods.Weighted(
        likelihoods.Warped(likelihoods.Interval("probit", 0.6), likelihoods.warps.Log())
    ),
    "Weibull": lambda: likelihoods.Weibull(3.0, 1.7, with_censoring=True),
}


@pytest.mark.by_default("Weighted", "Weibull")
@pytest.mark.parametrize("name", SURVIVAL)
def test_pit_of_censored_data_is_uniform_if_the_model_is_right(name: str) -> None:
    """Of exact rows it is P(y' ≤ y), of censored ones a draw between the ends' probabilities."""
    model, X = made(SURVIVAL[name](), num=600)
    y = predict_y_samples(model, X, 1, seed=1)[0].numpy()
    if name == "Weibull":
        end = np.random.default_rng(2).exponential(size=y.shape)
        Y = np.hstack([np.minimum(y, end), y <= end]).astype(float)
        is_exact = Y[:, 1] == 1.0
    else:
        Y = censored(y)
        is_exact = Y[:, 0] == Y[:, 1]
        Y = np.insert(Y, 2, 1.0, axis=1) if name == "Weighted" else Y
    assert 0.2 < np.mean(is_exact) < 0.8
    first = pit(model, (X, Y))[:, 0]
    assert scipy.stats.kstest(first, "uniform").pvalue > 0.01
    second = pit(model, (X, Y), seed=1)[:, 0]
    np.testing.assert_array_equal(np.isclose(first, second, rtol=1e-10), is_exact)
    exact = model.likelihood.as_observed(y[is_exact])
    np.testing.assert_allclose(first[is_exact], predict_y_cdf(model, X[is_exact], exact)[:, 0])
    model.q_mu.assign(-model.q_mu)
    assert scipy.stats.kstest(pit(model, (X, Y))[:, 0], "uniform").pvalue < 1e-6


def test_pit_of_counts_is_between_the_probabilities_below_and_up_to() -> None:
    """The oracle is SciPy's Poisson, since f is practically known."""
    model, X = made(likelihoods.Poisson(4.0))
    model.q_sqrt.assign(1e-6 * model.q_sqrt)
    model.inducing_variable.Z.assign(X[:7])
    X, Y = X[:7], np.arange(7.0)[:, None]
    rate = 4.0 * scipy.special.expit(model.predict_f(X)[0].numpy())
    values = np.stack([pit(model, (X, Y), seed=seed) for seed in range(12)])
    law = scipy.stats.poisson(rate)
    low, high = law.cdf(Y - 1.0), law.cdf(Y)
    assert np.all((values > low - 1e-4) & (values < high + 1e-4))
    assert np.all(np.ptp(values, 0) > 0.4 * (high - low))


def test_pit_of_counts_that_are_all_0_is_random_too() -> None:
    """No count is below 0, so the lower end is 0."""
    model, X = made(likelihoods.Poisson(1.0))
    upper = predict_y_cdf(model, X, 0.0 * X).numpy()
    share = pit(model, (X, 0.0 * X)) / upper
    assert scipy.stats.kstest(share[:, 0], "uniform").pvalue > 0.01


def test_a_dataset_of_batches_has_the_pit_of_its_rows() -> None:
    model, X = made(likelihoods.Poisson(4.0))
    Y = np.round(np.abs(X))
    batches = tf.data.Dataset.from_tensor_slices((X, Y)).batch(7)
    np.testing.assert_allclose(pit(model, batches), pit(model, (X, Y)), rtol=1e-12)


def test_drawn_coverage_and_histogram_are_their_closed_forms() -> None:
    """A Gaussian y is covered if |y − mean| ≤ z sd."""
    model, X = made(likelihoods.Gaussian(0.2), num=400)
    Y = np.random.default_rng(1).normal(size=X.shape)
    histogram, curve = plot_calibration(model, (X, Y), axes=Figure().subplots(1, 2), num_bins=8)
    mean, variance = (part.numpy() for part in model.predict_y(X))
    z = (Y - mean) / np.sqrt(variance)
    nominal, drawn = curve.lines[-1].get_data()
    inside = np.abs(z) <= scipy.stats.norm.ppf(0.5 + nominal / 2.0)
    np.testing.assert_allclose(drawn, inside.mean(0), atol=1.0 / 400)
    counts, _ = np.histogram(scipy.stats.norm.cdf(z), np.linspace(0.0, 1.0, 9))
    np.testing.assert_allclose([p.get_height() for p in histogram.patches[-8:]], counts / 50.0)


@pytest.mark.replicate
def test_the_band_holds_95_per_cent_of_right_models() -> None:
    """It holds hardly more, as far as a discrete law allows."""
    probability = np.array([0.1, 0.5, 0.9])
    low, high = binomial_band(200, probability) * 200
    law = scipy.stats.binom(200, probability)
    inside = law.cdf(high) - law.cdf(low - 1.0)
    assert np.all((inside >= 0.95) & (inside < 0.98))
