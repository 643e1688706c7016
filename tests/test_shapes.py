"""Constraints on the shape of f."""

from typing import Any

import gpflow
import numpy as np
import pytest
import scipy.integrate
import scipy.special
import scipy.stats
import tensorflow as tf
from gpflow.kernels import Matern52, SquaredExponential

from gpflow_aaci import (
    AugmentedSVGP,
    AugmentedVGP,
    check_likelihood,
    fit,
    likelihoods,
    polish,
    sample_posterior,
    shapes,
)
from gpflow_aaci.kernels import WithDerivatives
from gpflow_aaci.predictions import predict_f_samples, predict_y_quantile, predict_y_samples

RNG = np.random.default_rng(0)
X = np.linspace(-2.0, 2.0, 16)[:, None]
FALLING = -np.tanh(3.0 * X) + 0.15 * RNG.standard_t(3, size=X.shape)
FALLING[3] += 1.5
AT, NEW = np.linspace(-2.0, 2.0, 14)[:, None], np.linspace(-2.0, 2.0, 81)[:, None]


def model_of(data: Any, likelihood: Any, order: int = 1, lengthscale: float = 0.6) -> AugmentedVGP:
    kernel = WithDerivatives(SquaredExponential(lengthscales=lengthscale), 1, order)
    return AugmentedVGP(data, kernel, likelihood)


def steps_of(model: gpflow.models.GPModel, number: int = 1) -> np.ndarray:
    mean = model.predict_f(shapes.of_f(NEW))[0].numpy()[:, 0]
    return np.diff(mean, number)


@pytest.mark.slow
def test_the_posterior_mean_falls_where_that_of_exact_regression_rises() -> None:
    kernel = WithDerivatives(SquaredExponential(lengthscales=0.6), 1)
    exact = gpflow.models.GPR((shapes.of_f(X), FALLING), kernel, noise_variance=0.1)
    data, likelihood = shapes.constrained((X, FALLING), likelihoods.Gaussian(0.1), AT, decreasing=0)
    model = AugmentedVGP(data, kernel, likelihood)
    polish(model, progress=False)
    assert np.mean(steps_of(exact) > 1e-3) > 0.1
    assert np.all(steps_of(model) < 1e-6)


@pytest.mark.by_default("convex")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("shape", "number", "sign"), [("decreasing", 1, -1.0), ("convex", 2, 1.0), ("concave", 2, -1.0)]
)
def test_the_posterior_mean_has_the_shape_and_is_nearer_to_the_truth(
    shape: str, number: int, sign: float
) -> None:
    """Without the constraint many of its steps, or changes of steps, have the wrong sign."""
    errors: dict[bool, float] = {False: 0.0, True: 0.0}
    noise, rng = likelihoods.StudentT(0.2), np.random.default_rng(0)
    for _ in range(3):
        Y = sign * np.exp(X) / 3.0 + 0.3 * rng.standard_t(3, size=X.shape)
        for is_free in errors:
            data, likelihood = shapes.constrained((X, Y), noise, AT, **{shape: 0})
            if is_free:
                data, likelihood = (shapes.of_f(X), Y), noise
            model = model_of(data, likelihood, number, lengthscale=0.8 * number)
            polish(model, progress=False)
            wrong = sign * steps_of(model, number) < -1e-6
            assert np.mean(wrong) > 0.1 if is_free else not np.any(wrong)
            errors[is_free] += np.mean((model.predict_f(NEW)[0] - sign * np.exp(NEW) / 3.0) ** 2)
    assert errors[False] < errors[True]


@pytest.mark.replicate
def test_draws_of_the_slope_have_its_sign_up_to_nu() -> None:
    """A draw of −ν t has a density of e^{−t}: none of 5,600 is below −20 ν. Without it, many."""
    data, likelihood = shapes.constrained((X, FALLING), likelihoods.StudentT(0.2), AT, decreasing=0)
    model, options = model_of(data, likelihood), {"num_chains": 2, "progress": False}
    draws = sample_posterior(model, num_samples=200, **options)
    slopes = draws.posterior["f"].values[..., len(X) :, 0]
    nu = likelihood.likelihoods[1].nu.numpy()
    assert slopes.max() < 20.0 * nu < 0.6
    f = predict_f_samples(model, shapes.of_f(AT), samples=draws, progress=False)[..., 0]
    assert np.diff(f).max() < 20.0 * nu * (AT[1, 0] - AT[0, 0])
    free = model_of((shapes.of_f(X), FALLING), likelihoods.StudentT(0.2))
    draws = sample_posterior(free, num_samples=100, **options)
    f = predict_f_samples(free, shapes.of_f(AT), samples=draws, progress=False)[..., 0]
    assert np.mean(np.diff(f).max(-1) > 20.0 * nu * (AT[1, 0] - AT[0, 0])) > 0.5


@pytest.mark.slow
def test_gibbs_draws_of_a_constrained_slope_have_the_moments_of_its_density() -> None:
    """Under this kernel f and f′ at one x are independent: p(f′) ∝ N(f′ | 0, σ²/ℓ²) σ(f′/ν)."""
    x = np.array([[0.0], [0.0]])
    data, likelihood = shapes.constrained(
        (x, x), likelihoods.Gaussian(1.0), x[:1], increasing=0, softness=0.3
    )
    nu, sd = likelihood.likelihoods[1].nu.numpy(), 1.0 / 0.6
    assert nu == pytest.approx(0.3)
    draws = (
        sample_posterior(
            model_of(data, likelihood), num_samples=5_000, num_chains=2, progress=False
        )
        .posterior["f"]
        .values[..., 2, 0]
    )

    def moment(power: int) -> float:
        return scipy.integrate.quad(
            lambda t: t**power * scipy.stats.norm.pdf(t, 0.0, sd) * scipy.special.expit(t / nu),
            -8.0 * sd,
            8.0 * sd,
            points=[0.0],
        )[0]

    for power in (1, 2):
        expected = moment(power) / moment(0)
        assert np.mean(draws**power) == pytest.approx(expected, rel=0.05)


def test_rows_and_labels_say_which_derivative_has_which_sign() -> None:
    """log p of a row is log p(y|f), or log σ(±f/ν) of a constraint."""
    x = RNG.normal(size=(5, 3)) * [1.0, 10.0, 0.1]
    y, at = 100.0 * RNG.normal(size=(5, 1)), x[:2]
    noise = likelihoods.StudentT(0.5, 4.0)
    (rows, Y), likelihood = shapes.constrained(
        (x, y), noise, at, increasing=[0, 2], decreasing=1, concave=[2], softness=0.1
    )
    np.testing.assert_array_equal(rows[:, -1], [0] * 5 + [1, 1, 3, 3, 2, 2, 6, 6])
    np.testing.assert_allclose(rows[:, :3], np.vstack([x, at, at, at, at]))
    f = RNG.normal(size=(13, 1))
    powers = np.repeat([1, 1, 1, 2], 2)[:, None]
    columns = np.repeat(x.std(0)[[0, 2, 1, 2]], 2)[:, None]
    signs = np.repeat([1.0, 1.0, -1.0, -1.0], 2)[:, None]
    nu = 0.1 * y.std() / columns**powers
    expected = scipy.stats.t.logpdf(y, 4.0, f[:5], 0.5), scipy.special.log_expit(signs * f[5:] / nu)
    np.testing.assert_allclose(likelihood.log_prob(rows, f, Y), np.vstack(expected)[:, 0])


def test_nu_is_in_the_unit_of_f() -> None:
    """That of y, for noise; of a logarithm or the like for others. One row has no spread."""
    counts, exposures = RNG.poisson(50.0, size=(16, 1)).astype(float), np.full((16, 1), 2.0)
    labels = (FALLING > 0.0).astype(float)
    for likelihood, Y, spread in [
        (likelihoods.StudentT(), 1e4 * FALLING, 1e4 * FALLING.std()),
        (gpflow.likelihoods.StudentT(), 1e4 * FALLING, 1e4 * FALLING.std()),
        (likelihoods.NegativeBinomial(), counts, 1.0),
        (likelihoods.Poisson(90.0, with_exposure=True), np.hstack([counts, exposures]), 1.0),
        (likelihoods.Logistic(), labels, 1.0),
        (likelihoods.Warped(likelihoods.Gaussian(), likelihoods.warps.Log()), counts + 1.0, 1.0),
    ]:
        (rows, Y_of_all), shaped = shapes.constrained((X, Y), likelihood, AT, increasing=0)
        assert shaped.likelihoods[1].nu.numpy() == pytest.approx(0.02 * spread / X.std())
        assert Y_of_all.shape == (30, Y.shape[1] + 1)
        assert np.isfinite(model_of((rows, Y_of_all), shaped).elbo())
    _, shaped = shapes.constrained((X[:1], FALLING[:1]), likelihoods.StudentT(), AT, increasing=0)
    assert shaped.likelihoods[1].nu.numpy() == pytest.approx(0.02)


@pytest.mark.slow
def test_a_constraint_is_a_likelihood_whose_augmentation_is_right() -> None:
    labels = np.array([[1.0], [-1.0], [1.0]])
    assert check_likelihood(shapes.Sign(0.2), labels, progress=False) == "super-Gaussian"


@pytest.mark.slow
def test_predictions_of_y_are_those_of_its_own_likelihood() -> None:
    noise = likelihoods.StudentT(0.2, 5.0)
    model = model_of(*shapes.constrained((X, FALLING), noise, AT, decreasing=0))
    rows = shapes.of_f(NEW[::20])
    f = model.predict_f(rows)
    for found, expected in zip(
        model.predict_y(rows), noise.predict_mean_and_var(rows, *f), strict=True
    ):
        np.testing.assert_allclose(found, expected)
    Y = np.hstack([f[0], np.zeros_like(f[0])])
    density = noise.predict_log_density(rows, *f, f[0])
    np.testing.assert_allclose(model.predict_log_density((rows, Y)), density)


@pytest.mark.slow
def test_quantiles_and_draws_of_y_are_those_of_its_own_likelihood() -> None:
    noise = likelihoods.StudentT(0.2, 5.0)
    model = model_of(*shapes.constrained((X, FALLING), noise, AT, decreasing=0))
    polish(model, progress=False)
    rows = shapes.of_f(NEW[::20])
    f = model.predict_f(rows)
    levels = predict_y_quantile(model, rows, [0.1, 0.5, 0.9])
    for level, y in zip([0.1, 0.5, 0.9], levels, strict=True):
        np.testing.assert_allclose(noise.predict_cdf(rows, *f, y), level, atol=1e-6)
    y = predict_y_samples(model, rows, num_samples=2_000).numpy()
    np.testing.assert_allclose(np.quantile(y, 0.5, axis=0), levels[1], atol=0.03)


@pytest.mark.replicate
@pytest.mark.parametrize("likelihood", ["Logistic", "NegativeBinomial"])
def test_a_sparse_fit_of_classes_or_counts_has_the_shape(likelihood: str) -> None:
    """f rises in the first of two inputs, and rises and falls in the second."""
    rng = np.random.default_rng(3)
    x = rng.uniform(-2.0, 2.0, size=(150, 2))
    f = np.tanh(2.0 * x[:, :1]) + np.sin(2.0 * x[:, 1:])
    counts = rng.poisson(np.exp(f + 1.0)).astype(float)
    labels = (3.0 * f + rng.logistic(size=f.shape) > 0.0).astype(float)
    Y = counts if likelihood == "NegativeBinomial" else labels
    at = rng.uniform(-2.0, 2.0, size=(60, 2))
    data, shaped = shapes.constrained((x, Y), getattr(likelihoods, likelihood)(), at, increasing=0)
    kernel = WithDerivatives(Matern52(lengthscales=[1.0, 1.0]), 2)
    model = AugmentedSVGP(kernel, shaped, x[:40].copy(), num_data=len(data[0]))
    gpflow.set_trainable(model.inducing_variable, False)
    assert fit(model, data, progress=False).converged
    new = rng.uniform(-1.8, 1.8, size=(200, 2))
    slope = model.predict_f(shapes.of_slope(new, 0))[0].numpy()
    assert np.mean(slope > -0.02) > 0.98
    other = model.predict_f(shapes.of_slope(new, 1))[0].numpy()
    assert 0.1 < np.mean(other < 0.0) < 0.9


@pytest.mark.slow
def test_the_shape_holds_in_float32() -> None:
    gpflow.config.set_default_float(np.float32)
    data, likelihood = shapes.constrained((X, FALLING), likelihoods.StudentT(0.2), AT, decreasing=0)
    assert data[0].dtype == data[1].dtype == tf.float32
    model = model_of(data, likelihood)
    polish(model, progress=False)
    assert np.all(steps_of(model) < 1e-4)


def test_bad_input_is_named() -> None:
    data, noise = (X, FALLING), likelihoods.StudentT()
    with pytest.raises(ValueError, match=r"at least one column.*Found: increasing=\(\)"):
        shapes.constrained(data, noise, AT)
    with pytest.raises(ValueError, match=r"none twice.*increasing=0, decreasing=\[0\]"):
        shapes.constrained(data, noise, AT, increasing=0, decreasing=[0])
    with pytest.raises(ValueError, match=r"concave must be an integer from 0 to 0\. Found: 1"):
        shapes.constrained(data, noise, AT, concave=[1])
    with pytest.raises(ValueError, match=r"at must have 1 columns, as X\. Found: 2"):
        shapes.constrained(data, noise, np.hstack([AT, AT]), increasing=0)
    with pytest.raises(ValueError, match="at must be a matrix"):
        shapes.constrained(data, noise, AT[:, 0], increasing=0)
    with pytest.raises(ValueError, match="at must be finite"):
        shapes.constrained(data, noise, AT * np.nan, increasing=0)
    with pytest.raises(ValueError, match=r"softness must be above 0\. Found: 0"):
        shapes.constrained(data, noise, AT, increasing=0, softness=0.0)
    with pytest.raises(ValueError, match=r"products over outputs.*Found: Softmax"):
        shapes.constrained(data, likelihoods.Softmax(3), AT, increasing=0)
    with pytest.raises(ValueError, match=r"column must be an integer from 0 to 0\. Found: 0\.5"):
        shapes.of_slope(X, 0.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="column must be an integer from 0 to 0"):
        shapes.of_curvature(X, -1)
    with pytest.raises(ValueError, match="X must be finite"):
        shapes.of_f(X * np.inf)
