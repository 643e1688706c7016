"""Classes by the largest of noisy latent GPs; ``test_zoo`` has its bound, sites and draws."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.base import AnyNDArray

from gpflow_aaci import AugmentedSVGP, fit_collapsed, likelihoods
from gpflow_aaci.contrib.likelihoods import MultinomialProbit, largest

X = np.zeros([6, 1])


def marginals(K: int, sd: float) -> tuple[AnyNDArray, AnyNDArray]:
    rng = np.random.default_rng(K)
    return rng.normal(size=(6, K)), (sd * rng.uniform(0.5, 1.5, size=(6, K))) ** 2


def test_two_classes_are_a_probit_of_their_difference() -> None:
    """f_1 − f_0 in units of √2; but the bound of two latent GPs is lower by ¼ (v_0 + v_1)."""
    (Fmu, Fvar), Y = marginals(2, 1.5), np.arange(6.0)[:, None] % 2
    ours, probit = MultinomialProbit(2), likelihoods.Probit()
    difference = (Fmu[:, 1:] - Fmu[:, :1]) / np.sqrt(2.0)
    variance = np.sum(Fvar, -1, keepdims=True) / 2.0
    for name in ("variational_expectations", "predict_log_density"):
        found = getattr(ours, name)(X, Fmu, Fvar, Y)
        expected = getattr(probit, name)(X, difference, variance, Y)
        np.testing.assert_allclose(found, expected, atol=1e-5)  # a rule of 20 nodes
    found, expected = (
        likelihood.bound(*map(tf.constant, (X, *args, Y)))
        for likelihood, args in ((ours, (Fmu, Fvar)), (probit, (difference, variance)))
    )
    np.testing.assert_allclose(found, expected - 0.25 * np.sum(Fvar, -1), rtol=1e-9)


@pytest.mark.briefly("4.0-0.002")
@pytest.mark.parametrize(("sd", "tolerance"), [(0.3, 1e-6), (1.5, 1e-4), (4.0, 2e-3)])
def test_expectations_of_three_classes_are_the_integrals(sd: float, tolerance: float) -> None:
    """E log p(y|f) and E p(y|f) by a product rule in all three f."""
    (Fmu, Fvar), Y, likelihood = marginals(3, sd), np.arange(6.0)[:, None] % 3, MultinomialProbit(3)
    z, w = np.polynomial.hermite_e.hermegauss(28)
    nodes = np.stack(np.meshgrid(z, z, z), -1).reshape(-1, 1, 3)
    weights = np.einsum("i,j,k->jik", w, w, w).ravel() / w.sum() ** 3
    log_p = likelihood.log_prob(X, Fmu + np.sqrt(Fvar) * nodes, Y).numpy()
    found = likelihood.variational_expectations(X, Fmu, Fvar, Y)
    np.testing.assert_allclose(found, weights @ log_p, rtol=tolerance, atol=tolerance)
    if sd < 4.0:  # the product rule itself is not good enough for steep steps of p
        density = likelihood.predict_log_density(X, Fmu, Fvar, Y)
        np.testing.assert_allclose(density, np.log(weights @ np.exp(log_p)), atol=tolerance)
    assert np.all(likelihood.bound(*map(tf.constant, (X, Fmu, Fvar, Y))) < found)


def test_expectations_of_six_classes_against_random_draws() -> None:
    """The relative error, at standard deviations from 1.5 to 4.5."""
    (Fmu, Fvar), Y, likelihood = marginals(6, 3.0), np.arange(6.0)[:, None], MultinomialProbit(6)
    half = np.random.default_rng(0).normal(size=(1_000, 1, 6))
    z = np.concatenate([half, -half])
    z /= np.std(z, 0)
    log_p = np.mean(likelihood.log_prob(X, Fmu + np.sqrt(Fvar) * z, Y), 0)
    found = likelihood.variational_expectations(X, Fmu, Fvar, Y)
    np.testing.assert_allclose(found, log_p, rtol=0.05)
    assert np.all(likelihood.bound(*map(tf.constant, (X, Fmu, Fvar, Y))) < found)


def test_many_rows_are_predicted_in_chunks_as_few_are() -> None:
    (Fmu, Fvar), likelihood, many = marginals(6, 1.0), MultinomialProbit(6), 200
    few = likelihood.predict_mean_and_var(X, Fmu, Fvar)[0]
    rows = (np.repeat(part, many, 0) for part in (X, Fmu, Fvar))
    found = likelihood.predict_mean_and_var(*rows)[0]
    np.testing.assert_allclose(found, np.repeat(few, many, 0), rtol=1e-9)


def test_points_for_many_classes_integrate_quadratic_functions() -> None:
    z, w = largest._nodes(300)
    np.testing.assert_allclose(z.T @ (w[:, None] * z), np.eye(300), atol=1e-9)


def test_a_number_added_to_all_f_changes_nothing() -> None:
    (Fmu, Fvar), Y, likelihood = (
        marginals(4, 1.0),
        np.arange(6.0)[:, None] % 4,
        MultinomialProbit(4),
    )
    for name in ("variational_expectations", "predict_log_density"):
        values = [getattr(likelihood, name)(X, Fmu + c, Fvar, Y) for c in (0.0, 7.0)]
        np.testing.assert_allclose(values[1], values[0], rtol=1e-9)


def test_the_coupling_is_the_second_derivative() -> None:
    """Of E log p(y|f), by differences; it sums to 0 over a row with the diagonal."""
    (Fmu, Fvar), Y, likelihood = (
        marginals(3, 1.0),
        np.arange(6.0)[:, None] % 3,
        MultinomialProbit(3),
    )
    found = likelihood.coupling(*map(tf.constant, (X, Fmu, Fvar, Y))).numpy()
    step = 1e-3
    for j, k in ((0, 1), (1, 2), (0, 2)):
        values = []
        for a, b in ((1, 1), (1, -1), (-1, 1), (-1, -1)):
            moved = Fmu + step * (a * np.eye(3)[j] + b * np.eye(3)[k])
            values.append(a * b * likelihood.variational_expectations(X, moved, Fvar, Y).numpy())
        np.testing.assert_allclose(found[:, j, k], sum(values) / (2.0 * step) ** 2, atol=1e-6)


@pytest.mark.replicate
def test_a_fit_finds_the_classes(rng: np.random.Generator) -> None:
    inputs = rng.uniform(-2.0, 2.0, size=(40, 1))
    Y = np.digitize(inputs, [-0.7, 0.8]).astype(float)
    model = AugmentedSVGP(
        gpflow.kernels.SquaredExponential(),
        MultinomialProbit(3),
        inputs[:8].copy(),
        num_latent_gps=3,
    )
    gpflow.set_trainable(model.inducing_variable, False)
    result = fit_collapsed(model, (inputs, Y), progress=False)
    assert result.converged
    p, _ = model.predict_y(np.array([[-1.5], [0.0], [1.5]]))
    np.testing.assert_array_equal(np.argmax(p, -1), [0, 1, 2])
