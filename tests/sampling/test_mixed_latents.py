"""Samples of latent GPs that have a kernel each, or that a LinearCoregionalization mixes."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.kernels import LinearCoregionalization, Matern32, SquaredExponential

from gpflow_aaci import (
    AugmentedSVGP,
    AugmentedVGP,
    contrib,
    likelihoods,
    predictions,
    sample_posterior,
)
from gpflow_aaci.sampling import Gibbs, Sampler
from gpflow_aaci.sampling.conditionals import Observed, log_evidence_given_omega

W = np.array([[1.0, 0.4], [-0.6, 1.1], [0.3, 0.0]])
MEAN = gpflow.functions.Linear([[0.5, 0.0, -0.3]], [0.2, -1.0, 0.0])


def kernels() -> list[gpflow.kernels.Kernel]:
    return [SquaredExponential(variance=1.3, lengthscales=0.8), Matern32(lengthscales=0.5)]


def made(X: np.ndarray, likelihood: likelihoods.AugmentedLikelihood) -> AugmentedSVGP:
    """Z = X, so that the sampled model is the full one."""
    kernel = LinearCoregionalization(kernels(), W)
    return AugmentedSVGP(kernel, likelihood, X.copy(), mean_function=MEAN, num_latent_gps=2)


def full(
    data: tuple[np.ndarray, np.ndarray], likelihood: likelihoods.AugmentedLikelihood
) -> AugmentedVGP:
    kernel = LinearCoregionalization(kernels(), W)
    return AugmentedVGP(data, kernel, likelihood, mean_function=MEAN)


def covariance(X: np.ndarray, X2: np.ndarray) -> np.ndarray:
    """Of the outputs, [P N, P N2]."""
    parts = zip(W.T, kernels(), strict=True)
    return sum(np.kron(np.outer(w, w), kernel(X, X2).numpy()) for w, kernel in parts)


@pytest.mark.slow
@pytest.mark.briefly("True")
@pytest.mark.parametrize("is_full", [False, True])
def test_with_gaussian_noise_predictions_are_of_the_dense_gp(is_full: bool) -> None:
    rng = np.random.default_rng(1)
    X, new = np.linspace(-1.5, 1.5, 12)[:, None], np.array([[-0.7], [0.4], [2.0]])
    Y = np.sin(3.0 * X + [0.0, 1.0, 2.0]) + 0.3 * rng.normal(size=(12, 3))
    likelihood = likelihoods.Gaussian(variance=0.1)
    model = full((X, Y), likelihood) if is_full else made(X, likelihood)
    kept = None if is_full else (X, Y)
    samples = sample_posterior(model, kept, num_samples=3_000, num_burnin=300, progress=False)
    K = covariance(X, X) + 0.1 * np.eye(36)
    across = covariance(new, X)
    residual = (Y - MEAN(X).numpy()).T.reshape(-1)
    mean = MEAN(new).numpy() + (across @ np.linalg.solve(K, residual)).reshape(3, 3).T
    posterior = covariance(new, new) - across @ np.linalg.solve(K, across.T)
    variance = np.diag(posterior).reshape(3, 3).T
    found, of_y = predictions.predict_y(model, new, samples=samples, progress=False)
    np.testing.assert_allclose(found, mean, atol=0.04)
    np.testing.assert_allclose(of_y, variance + 0.1, rtol=0.1)
    draws = predictions.predict_f_samples(model, new, samples=samples, progress=False)
    draws = draws.reshape(-1, 3, 3)
    np.testing.assert_allclose(draws.mean(0), mean, atol=0.05)
    for output in range(3):  # jointly at the new inputs
        own = posterior[3 * output : 3 * output + 3, 3 * output : 3 * output + 3]
        np.testing.assert_allclose(np.cov(draws[:, :, output].T), own, atol=0.06)


SAMPLERS = [Gibbs(), contrib.HMC(), contrib.EllipticalSlices()]


@pytest.mark.by_default("Gibbs")
@pytest.mark.parametrize("sampler", SAMPLERS, ids=lambda sampler: type(sampler).__name__)
def test_draws_of_a_full_gp_with_a_kernel_for_each_output_are_of_its_posterior(
    sampler: Sampler,
) -> None:
    """Under Gaussian noise each output has the posterior of a GPR of its own."""
    rng = np.random.default_rng(1)
    X = np.linspace(-1.5, 1.5, 10)[:, None]
    Y = np.sin(3.0 * X + [0.0, 1.0]) + 0.3 * rng.normal(size=(10, 2))
    kernel = gpflow.kernels.SeparateIndependent(kernels())
    model = AugmentedVGP((X, Y), kernel, likelihoods.Gaussian(variance=0.1))
    samples = sample_posterior(
        model, sampler=sampler, num_samples=3_000, num_burnin=500, progress=False
    )
    f = samples.posterior["f"].values.reshape(-1, 10, 2)
    for output, own in enumerate(kernels()):
        gpr = gpflow.models.GPR((X, Y[:, output : output + 1]), own, noise_variance=0.1)
        mean, variance = gpr.predict_f(X)
        np.testing.assert_allclose(f[..., output].mean(0), mean[:, 0], atol=0.04)
        np.testing.assert_allclose(f[..., output].var(0), variance[:, 0], rtol=0.2)


def test_the_evidence_given_omega_is_the_sum_over_kernels() -> None:
    """Sampling of hyperparameters asks for it; under Gaussian noise it is the evidence."""
    rng = np.random.default_rng(3)
    X, Y = rng.normal(size=(8, 1)), rng.normal(size=(8, 2))
    kernel = gpflow.kernels.SeparateIndependent(kernels())
    model = AugmentedVGP((X, Y), kernel, likelihoods.Gaussian(variance=0.3))
    observed = Observed(tf.constant(Y.T), tf.fill([2, 8], tf.constant(0.3, tf.float64)))
    found = log_evidence_given_omega(
        tf.zeros([8, 1], tf.float64), model.prior_covariance(), observed
    )
    expected = sum(
        gpflow.models.GPR((X, Y[:, i : i + 1]), own, noise_variance=0.3).log_marginal_likelihood()
        for i, own in enumerate(kernels())
    )
    # Of the factor (2π)^{−N/2} for each output the function knows nothing.
    np.testing.assert_allclose(found - 8.0 * np.log(2.0 * np.pi), expected, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.by_default("Laplace")
@pytest.mark.parametrize("is_full", [False, True])
@pytest.mark.parametrize("name", ["Logistic", "Laplace"])
def test_given_few_data_draws_have_the_moments_of_weighted_draws_of_the_prior(
    name: str, is_full: bool
) -> None:
    X = np.array([[-0.4], [0.5]])
    binary = name == "Logistic"
    Y = np.array([[1.0, 0.0, 1.0], [1.0, 1.0, 0.0]]) if binary else np.array([[1.5, -2, 0]] * 2)
    likelihood = likelihoods.Logistic() if binary else likelihoods.Laplace(0.7)
    model = full((X, Y), likelihood) if is_full else made(X, likelihood)
    kept = None if is_full else (X, Y)
    samples = sample_posterior(model, kept, num_samples=4_000, num_burnin=200, progress=False)
    rng = np.random.default_rng(2)
    g = np.stack(
        [
            rng.normal(size=(300_000, 2)) @ np.linalg.cholesky(k(X) + 1e-6 * np.eye(2)).T
            for k in kernels()
        ],
        -1,
    )
    F = tf.constant(MEAN(X).numpy() + g @ W.T)
    log_p = likelihood.log_prob(X, F, Y).numpy().sum(-1)
    weight = np.exp(log_p - log_p.max())
    weight /= weight.sum()
    u = samples.posterior["u"].values.reshape(-1, 2, 2)
    for power in (1, 2):
        exact = np.tensordot(weight, g**power, 1)
        np.testing.assert_allclose((u**power).mean(0), exact, atol=0.05)
    assert samples.posterior_predictive["y"].shape[2:] == (2, 3)


@pytest.mark.briefly("False")
@pytest.mark.parametrize("full_cov", [False, True])
def test_outputs_that_are_one_latent_gp_are_drawn_alike(full_cov: bool) -> None:
    """Away from the inducing points, too, where u leaves much of g unexplained."""
    X, new = np.array([[-0.5], [0.5]]), np.array([[0.1], [5.0], [6.0]])
    kernel = LinearCoregionalization([kernels()[0]], [[1.0], [1.0]])
    model = AugmentedSVGP(kernel, likelihoods.Laplace(0.3), X.copy())
    data = X, np.hstack([X, X])
    samples = sample_posterior(model, data, num_samples=50, num_chains=1, progress=False)
    f = predictions.predict_f_samples(
        model, new, samples=samples, full_cov=full_cov, progress=False
    )
    np.testing.assert_allclose(f[..., 0], f[..., 1], atol=1e-10)
    assert f[..., 1, 0].std() > 0.8
    y = predictions.predict_y_samples(
        model, new, 400, samples=samples, full_cov=full_cov, progress=False
    ).numpy()
    # sd of the difference of two draws of the noise, √2 √2 0.3
    assert np.abs((y[..., 0] - y[..., 1]).std(0) - 0.6).max() < 0.15


@pytest.mark.slow
def test_one_latent_gp_of_weight_one_is_the_plain_model() -> None:
    """The same seed draws the same ω and v."""
    rng = np.random.default_rng(4)
    X, Z = rng.uniform(-1, 1, (20, 1)), np.linspace(-1, 1, 5)[:, None]
    Y = X + 0.3 * rng.standard_t(3.0, X.shape)
    kernel = kernels()[0]
    mixed = AugmentedSVGP(
        LinearCoregionalization([kernel], [[1.0]]), likelihoods.StudentT(), Z.copy()
    )
    plain = AugmentedSVGP(kernel, likelihoods.StudentT(), Z.copy())
    drawn = [
        sample_posterior(model, (X, Y), num_samples=20, progress=False).posterior["u"].values
        for model in (mixed, plain)
    ]
    np.testing.assert_allclose(*drawn, rtol=1e-8)
