"""Predictions from draws, against exact Gaussian process regression."""

import arviz
import gpflow
import numpy as np
import pytest
import scipy.special
import scipy.stats
import tensorflow as tf

from gpflow_aaci import AugmentedSVGP, AugmentedVGP, likelihoods, predictions, sample_posterior
from gpflow_aaci.sampling import Gibbs

X = np.linspace(-1.5, 1.5, 9)[:, None]
Y = np.sin(2.0 * X) + 0.3
X_NEW = np.array([[-2.0], [-0.1], [0.05], [1.4], [4.0]])


def gaussian_models() -> tuple[AugmentedVGP, AugmentedSVGP, gpflow.models.GPR]:
    kernel = gpflow.kernels.Matern32(variance=1.2, lengthscales=0.8)
    mean_function = gpflow.functions.Linear([[0.3]], [0.1])
    likelihood = likelihoods.Gaussian(variance=0.2)
    return (
        AugmentedVGP((X, Y), kernel, likelihood, mean_function),
        AugmentedSVGP(kernel, likelihood, X, mean_function=mean_function, num_data=9),
        gpflow.models.GPR((X, Y), kernel, mean_function, noise_variance=0.2),
    )


@pytest.mark.slow
@pytest.mark.by_default("False")
@pytest.mark.parametrize("sparse", [False, True])
def test_they_are_those_of_gaussian_process_regression(sparse: bool) -> None:
    """Joint draws of f, mean and variance of y, and the predictive density are compared."""
    full, inducing, gpr = gaussian_models()
    model = inducing if sparse else full
    data = (X, Y) if sparse else None
    samples = sample_posterior(
        model, data, num_samples=4_000, num_chains=2, num_burnin=20, progress=False
    )
    mean, covariance = gpr.predict_f(X_NEW, full_cov=True)
    f = predictions.predict_f_samples(model, X_NEW, samples=samples)
    assert f.shape == (2, 4_000, 5, 1)
    flat = f.reshape(-1, 5)
    np.testing.assert_allclose(flat.mean(0), mean[:, 0], atol=0.05)
    np.testing.assert_allclose(np.cov(flat.T), covariance[0], atol=0.06)

    independent = predictions.predict_f_samples(model, X_NEW, samples=samples, full_cov=False)
    np.testing.assert_allclose(
        independent.std((0, 1))[:, 0] ** 2, np.diag(covariance[0]), atol=0.06
    )

    y_mean, y_variance = predictions.predict_y(model, X_NEW, samples=samples)
    np.testing.assert_allclose(y_mean, mean, atol=0.05)
    np.testing.assert_allclose(y_variance, gpr.predict_y(X_NEW)[1], atol=0.06)

    new = (X_NEW, np.array([[0.0], [0.4], [1.0], [-1.0], [2.0]]))
    log_density = predictions.predict_log_density(model, new, samples=samples)
    np.testing.assert_allclose(log_density, gpr.predict_log_density(new), atol=0.06)


@pytest.mark.by_default("True")
@pytest.mark.parametrize("sparse", [False, True])
def test_two_outputs_are_those_of_gaussian_process_regression(sparse: bool) -> None:
    """Each output has its own mean function and data."""
    kernel = gpflow.kernels.Matern32(variance=1.2, lengthscales=0.8)
    mean_function = gpflow.functions.Linear([[0.3, -2.0]], [0.1, 4.0])
    likelihood, Y_two = likelihoods.Gaussian(variance=0.2), np.hstack([Y, 4.0 - X**2])
    if sparse:
        model = AugmentedSVGP(
            kernel, likelihood, X, mean_function=mean_function, num_latent_gps=2, num_data=9
        )
    else:
        model = AugmentedVGP((X, Y_two), kernel, likelihood, mean_function)
    data = (X, Y_two) if sparse else None
    samples = sample_posterior(
        model, data, num_samples=4_000, num_chains=1, num_burnin=20, progress=False
    )
    f = predictions.predict_f_samples(model, X_NEW, samples=samples)[0]
    gpr = gpflow.models.GPR((X, Y_two), kernel, mean_function, noise_variance=0.2)
    mean, covariance = gpr.predict_f(X_NEW, full_cov=True)
    np.testing.assert_allclose(f.mean(0), mean, atol=0.08)
    for p in (0, 1):
        np.testing.assert_allclose(np.cov(f[..., p].T), covariance[p], atol=0.09)


def test_every_draw_predicts_with_its_own_hyperparameters() -> None:
    """
    For two given draws of lengthscale and scale, the result is the mean of two known densities.
    """
    model, _, _ = gaussian_models()
    before = model.kernel.lengthscales.numpy()
    f = np.stack([np.cos(X), X**2])[None]
    lengthscales, variances = np.array([[0.3, 2.0]]), np.array([[0.1, 0.7]])
    samples = arviz.from_dict(
        posterior={
            "f": f,
            "kernel.lengthscales": lengthscales,
            "likelihood.variance": variances,
        }
    )
    x, y = np.array([[0.15]]), np.array([[0.7]])
    log_p = []
    for s in (0, 1):
        kernel = gpflow.kernels.Matern32(variance=1.2, lengthscales=lengthscales[0, s])
        noiseless = gpflow.models.GPR(
            (X, f[0, s]), kernel, model.mean_function, noise_variance=1.001e-6
        )
        mean, variance = noiseless.predict_f(x)
        sd = np.sqrt(variance + variances[0, s])
        log_p.append(scipy.stats.norm(mean, sd).logpdf(y).item())
    actual = predictions.predict_log_density(model, (x, y), samples=samples)
    expected = scipy.special.logsumexp(log_p) - np.log(2.0)
    np.testing.assert_allclose(actual, [expected], rtol=1e-5)
    assert model.kernel.lengthscales.numpy() == before


@pytest.mark.slow
def test_the_variance_of_y_does_not_cancel() -> None:
    """A shift of f does not change the variance, whether Xnew is processed at once or in pieces."""
    results = []
    for level in (0.0, 1e7):
        model = AugmentedVGP(
            (X, Y + level),
            gpflow.kernels.Matern32(),
            likelihoods.StudentT(0.1, 5.0),
            gpflow.functions.Constant(level),
        )
        samples = sample_posterior(
            model, sampler=Gibbs(0.0), num_samples=300, num_chains=1, num_burnin=10, progress=False
        )
        X_many = np.repeat(X_NEW, 60, axis=0)
        results.append(predictions.predict_y(model, X_many, samples=samples)[1].numpy())
    np.testing.assert_allclose(results[1], results[0], rtol=1e-3)
    np.testing.assert_allclose(results[0][::60], results[0][59::60], rtol=1e-10)


def test_data_kept_as_variables() -> None:
    """gpflow.models.vgp.update_vgp_data needs data in variables."""
    data = tuple(tf.Variable(d, shape=[None, 1]) for d in (X, Y))
    model = AugmentedVGP(data, gpflow.kernels.Matern32(), likelihoods.Gaussian(variance=0.2))
    samples = sample_posterior(model, num_samples=50, num_chains=1, num_burnin=0, progress=False)
    assert predictions.predict_y(model, X_NEW, samples=samples)[0].shape == (5, 1)


def test_constant_data_of_the_users_own_are_no_hyperparameters() -> None:
    model = gaussian_models()[0]
    samples = sample_posterior(model, num_samples=20, num_chains=1, num_burnin=0, progress=False)
    expected = predictions.predict_y(model, X_NEW, samples=samples)[0]
    own = arviz.from_dict(
        posterior={"f": samples.posterior["f"].values}, constant_data={"x": X[:, 0]}
    )
    np.testing.assert_array_equal(predictions.predict_y(model, X_NEW, samples=own)[0], expected)


def test_without_draws_they_are_those_of_q() -> None:
    model, sparse, _ = gaussian_models()
    new = (X_NEW, np.cos(X_NEW))
    for each in (model, sparse):
        for found, expected in zip(
            (*predictions.predict_y(each, X_NEW), predictions.predict_log_density(each, new)),
            (*each.predict_y(X_NEW), each.predict_log_density(new)),
            strict=True,
        ):
            np.testing.assert_array_equal(found, expected)


def test_bad_input_is_named() -> None:
    model, sparse, _ = gaussian_models()
    samples = sample_posterior(model, num_samples=5, num_chains=1, num_burnin=0, progress=False)
    alien = samples.copy()
    alien.posterior["kernel.period"] = ("chain", "draw"), np.ones((1, 5))
    with pytest.raises(ValueError, match=r"parameters that the model has. Found: kernel.period"):
        predictions.predict_y(model, X_NEW, samples=alien)
    with pytest.raises(ValueError, match=r"Xnew must be \[N, 1\]. Found: shape \[5, 2\]"):
        predictions.predict_y(model, np.ones((5, 2)), samples=samples)
    with pytest.raises(ValueError, match="Xnew must be finite"):
        predictions.predict_f_samples(model, np.full((1, 1), np.nan), samples=samples)
    with pytest.raises(ValueError, match=r'samples must hold "u" of 9 values'):
        predictions.predict_y(sparse, X_NEW, samples=samples)
    with pytest.raises(ValueError, match="Y must be finite"):
        predictions.predict_log_density(
            model, (X_NEW, X_NEW * tf.constant(np.inf)), samples=samples
        )
