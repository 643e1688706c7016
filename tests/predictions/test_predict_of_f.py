"""Functions of f at new inputs, and how well they are known."""

import gpflow
import numpy as np
import pytest
import scipy.special
import scipy.stats
import tensorflow as tf

from gpflow_aaci import AugmentedNaturalGradient, AugmentedSVGP, likelihoods
from gpflow_aaci.likelihoods import warps
from gpflow_aaci.predictions import (
    hazard_at,
    mean_of_y,
    predict_of_f,
    predict_y_cdf,
    probabilities,
    survival_at,
)

X = np.linspace(-2.0, 2.0, 30)[:, None]
F = np.sin(2.0 * X)
NEW = np.array([[-1.3], [0.2], [3.0]])
LEVELS = [0.05, 0.5, 0.95]


def fitted(likelihood: gpflow.likelihoods.Likelihood, Y: np.ndarray) -> AugmentedSVGP:
    model = AugmentedSVGP(gpflow.kernels.Matern52(), likelihood, X[::4], num_data=len(X))
    AugmentedNaturalGradient(1.0).minimize(model, (X, Y))
    return model


def quantiles_of_f(model: AugmentedSVGP) -> np.ndarray:
    mean, variance = (part.numpy()[:, 0] for part in model.predict_f(NEW))
    return mean + np.sqrt(variance) * scipy.stats.norm.ppf(LEVELS)[:, None]


def test_survival_and_hazard_of_a_log_normal_time() -> None:
    """Survival increases in f, so that its quantiles are those of f; the hazard is −d log S/dt."""
    model = fitted(likelihoods.Warped(likelihoods.Gaussian(0.3), warps.Log()), np.exp(F))
    times, spread = [0.5, 2.0], np.sqrt(0.3)
    f = quantiles_of_f(model)
    expected = scipy.stats.norm.sf((np.log(times) - f[..., None]) / spread)
    found = predict_of_f(model, NEW, survival_at(times), LEVELS)
    np.testing.assert_allclose(found, expected, rtol=1e-8)
    median = predict_of_f(model, NEW, hazard_at(times), [0.5])[0]
    z = (np.log(times) - f[1][:, None]) / spread
    expected = scipy.stats.norm.pdf(z) / (np.array(times) * spread * scipy.stats.norm.sf(z))
    np.testing.assert_allclose(median, expected, rtol=1e-8)  # it decreases in f


def test_probabilities_of_grades_sum_to_one_and_the_last_is_monotone() -> None:
    model = fitted(likelihoods.Ordinal([-0.5, 0.5]), np.digitize(F, [-0.5, 0.5]).astype(float))
    found = predict_of_f(model, NEW, probabilities, LEVELS)
    expected = scipy.stats.norm.cdf(quantiles_of_f(model) - 0.5)
    np.testing.assert_allclose(found[..., 2], expected, rtol=1e-8)
    draws = probabilities(model.likelihood, X, F[None])
    np.testing.assert_allclose(np.sum(draws, -1), 1.0, atol=1e-12)


def test_the_mean_of_survival_over_draws_is_the_predicted_one() -> None:
    """The average over all levels, which no quantile of f is."""
    model = fitted(likelihoods.LogisticNoise(0.4), F)
    levels = (np.arange(400) + 0.5) / 400
    found = predict_of_f(model, NEW, survival_at([0.3]), levels)
    expected = 1.0 - predict_y_cdf(model, NEW, np.full((3, 1), 0.3)).numpy()
    np.testing.assert_allclose(np.mean(found, 0), expected, atol=0.01)


def test_expected_counts_and_bad_input() -> None:
    model = fitted(likelihoods.NegativeBinomial(3.0), np.round(np.exp(F + 1.0)))
    found = predict_of_f(model, NEW, mean_of_y, LEVELS, num_samples=9)  # which are not draws
    np.testing.assert_allclose(found[..., 0], 3.0 * np.exp(quantiles_of_f(model)), rtol=1e-8)
    with pytest.raises(
        ValueError, match=r"of labels to give their probabilities.*NegativeBinomial"
    ):
        predict_of_f(model, NEW, probabilities)
    with pytest.raises(ValueError, match="levels must be between 0 and 1"):
        predict_of_f(model, NEW, mean_of_y, [0.0])


def test_a_function_that_is_not_monotone_has_the_quantiles_of_its_law() -> None:
    """(f − m)²/v is chi-squared, and (f − m)/v decreases where it is multiplied by −1."""
    model = fitted(likelihoods.Laplace(0.3), F)
    mean, variance = model.predict_f(NEW)

    def function(likelihood: object, X: object, F: tf.Tensor) -> tf.Tensor:
        z = (F - mean) / tf.sqrt(variance)
        return tf.concat([z**2, -z], -1)

    levels = np.array([0.1, 0.5, 0.999])
    found = predict_of_f(model, NEW, function, levels, num_samples=4_000).numpy()[:, 0]
    np.testing.assert_allclose(found[:2, 0], scipy.stats.chi2.ppf(levels[:2], 1), rtol=1e-2)
    np.testing.assert_allclose(found[:, 1], scipy.stats.norm.ppf(levels), rtol=1e-9, atol=1e-12)


def test_of_several_f_it_is_of_draws() -> None:
    model = AugmentedSVGP(
        gpflow.kernels.Matern52(), likelihoods.Laplace(), X[::4], num_latent_gps=2
    )

    def difference(likelihood: object, X: object, F: tf.Tensor) -> tf.Tensor:
        return F[..., :1] - F[..., 1:]

    found, again, other = (
        predict_of_f(model, NEW, difference, [0.84], num_samples=20_000, seed=seed)
        for seed in (0, 0, 1)
    )
    np.testing.assert_allclose(found, np.sqrt(2.0) * scipy.stats.norm.ppf(0.84), rtol=0.05)
    np.testing.assert_array_equal(found, again)
    assert np.any(found != other)


def test_of_two_outputs_it_is_said_that_there_must_be_one() -> None:
    """No Y was given, so that the message must not be about Y."""
    for likelihood in (likelihoods.Laplace(), likelihoods.Logistic()):
        model = AugmentedSVGP(gpflow.kernels.Matern52(), likelihood, X[::4], num_latent_gps=2)
        for function in (survival_at([1.0]), hazard_at([1.0]), probabilities):
            if function is probabilities and likelihood.labels is None:
                continue
            with pytest.raises(ValueError, match=r"model must have one y in each.*Found: 2"):
                predict_of_f(model, NEW, function)
