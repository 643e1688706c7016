"""
Gibbs sampling of ``AugmentedSVGP``'s hyperparameters and inducing points.

It is compared with Geweke's test, the full GP and GPflow's FITC.
"""

from typing import Any

import arviz
import gpflow
import numpy as np
import pytest
import scipy.linalg
import scipy.stats
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import AnyNDArray

from gpflow_aaci import AugmentedSVGP, AugmentedVGP, likelihoods, predictions, sample_posterior
from gpflow_aaci.contrib import HyperparameterGibbs
from gpflow_aaci.contrib.hyperparameter_gibbs import HyperparameterSweep
from gpflow_aaci.sampling.conditionals import (
    Observed,
    log_sparse_evidence_given_omega,
    sparse_prior_at_data,
)

tfd = tfp.distributions
double = np.float64


def add_priors(kernel: Any, likelihood: Any) -> None:
    kernel.variance.prior = tfd.Gamma(double(4.0), double(3.0))
    kernel.lengthscales.prior = tfd.LogNormal(double(-0.3), double(0.4))
    likelihood.scale.prior = tfd.LogNormal(double(-0.7), double(0.3))
    gpflow.set_trainable(likelihood.df, False)


def make_model(Z: AnyNDArray, mean: float = 0.2) -> AugmentedSVGP:
    """A model with priors on all parameters; the constant mean is fixed."""
    kernel = gpflow.kernels.Matern32(variance=1.5, lengthscales=0.7)
    likelihood = likelihoods.StudentT(scale=0.5, df=4.0)
    add_priors(kernel, likelihood)
    mean_function = gpflow.functions.Constant(mean)
    gpflow.set_trainable(mean_function, False)
    model = AugmentedSVGP(kernel, likelihood, Z, mean_function=mean_function)
    model.inducing_variable.Z.prior = tfd.Normal(double(0.0), double(1.0))
    return model


def data_of(N: int) -> tuple[AnyNDArray, AnyNDArray]:
    rng = np.random.default_rng(3)
    X = np.linspace(-2.0, 2.0, N)[:, None]
    return X, np.sin(2.0 * X) + 0.3 * rng.standard_t(4, size=X.shape)


def assert_same_means(a: AnyNDArray, b: AnyNDArray) -> None:
    """
    Means and mean squares of draws [chain, draw] of two samplers agree within standard errors.
    """
    for x, y in ((a, b), ((a - a.mean()) ** 2, (b - a.mean()) ** 2)):
        error = np.hypot(x.std() / arviz.ess(x) ** 0.5, y.std() / arviz.ess(y) ** 0.5)
        assert abs(x.mean() - y.mean()) < 4.0 * error


@pytest.mark.parametrize("separate", [False, True])
def test_the_evidence_is_the_dense_normal_s(separate: bool, rng: np.random.Generator) -> None:
    """There are two latent GPs with one kernel or two, a mean function and three chains."""
    X, Z = rng.normal(size=(7, 2)), rng.normal(size=(3, 2))
    kernels = [gpflow.kernels.Matern32(1.5, 0.7), gpflow.kernels.RBF(0.4, [1.0, 2.0])]
    shared = gpflow.inducing_variables.InducingPoints(Z)
    model = AugmentedSVGP(
        gpflow.kernels.SeparateIndependent(kernels) if separate else kernels[0],
        likelihoods.StudentT(),
        gpflow.inducing_variables.SharedIndependentInducingVariables(shared) if separate else Z,
        mean_function=gpflow.functions.Linear([[0.3, -0.5], [1.0, 0.1]], [0.2, 0.4]),
        num_latent_gps=2,
    )
    values, variance = rng.normal(size=(3, 2, 7)), rng.gamma(1.0, size=(3, 2, 7))
    prior = sparse_prior_at_data(model, tf.constant(X))
    actual = log_sparse_evidence_given_omega(prior, Observed(*map(tf.constant, (values, variance))))
    mean = model.mean_function(X).numpy()
    for chain in range(3):
        expected = 0.0
        for latent in range(2):
            kernel = kernels[latent if separate else 0]
            K_ZZ = kernel(Z).numpy() + gpflow.default_jitter() * np.eye(3)
            K_ZX = kernel(Z, X).numpy()
            Q = K_ZX.T @ np.linalg.solve(K_ZZ, K_ZX)
            rest = kernel(X, full_cov=False).numpy() - np.diag(Q) + variance[chain, latent]
            law = scipy.stats.multivariate_normal(mean[:, latent], Q + np.diag(rest))
            expected += law.logpdf(values[chain, latent])
        np.testing.assert_allclose(actual[chain], expected, rtol=1e-10)


@pytest.mark.slow
@pytest.mark.replicate
def test_alternating_with_the_model_s_data_leaves_prior_and_hyperprior() -> None:
    """
    Alternating y

    f by simulation and (θ, Z, u, f)

    y by a sweep must keep the prior (Geweke 2004).

    Quantities that are standard normal under the prior are compared in mean and mean square.
    """
    Z = np.array([[-0.6], [0.5]])
    model = make_model(Z)
    X = np.linspace(-1.0, 1.0, 4)[:, None]
    kernel, likelihood = model.kernel, model.likelihood
    sweep = HyperparameterSweep(model, (X, X), num_tuned=0)
    sweep._move_Z._log_step.assign(np.log(0.25))
    rng = np.random.default_rng(2)
    f = np.zeros((1, 4, 1)) + 0.3
    standard = []
    for round_ in range(2_500):
        noise = likelihood.scale.numpy() * rng.standard_t(4.0, size=(4, 1))
        drawn = sweep(tf.constant(f), tf.constant(f[0] + noise), tf.constant([7, round_]))
        f, u = drawn["f"].numpy(), drawn["u"].numpy()
        Z = model.inducing_variable.Z.numpy()
        L = np.linalg.cholesky(kernel(Z).numpy() + gpflow.default_jitter() * np.eye(2))
        v = scipy.linalg.solve_triangular(L, u[0], lower=True)
        A = scipy.linalg.solve_triangular(L, kernel(Z, X).numpy(), lower=True)
        rest = kernel(X, full_cov=False).numpy() - (A**2).sum(0)
        e = (f[0] - 0.2 - A.T @ v)[:, 0] / np.sqrt(rest)
        variance_rank = kernel.variance.prior.cdf(kernel.variance.numpy())
        standard.append(
            [
                float(tf.math.ndtri(variance_rank)),
                (np.log(kernel.lengthscales.numpy()) + 0.3) / 0.4,
                (np.log(likelihood.scale.numpy()) + 0.7) / 0.3,
                *Z.ravel(),
                *v.ravel(),
                *e,
                (Z[0, 0] + u[0, 0, 0] / np.sqrt(kernel.variance.numpy())) / np.sqrt(2.0),
            ]
        )
    values = np.array(standard[100:])
    assert len(np.unique(values[:, 3])) > 500  # Z moves
    for draws in values.T[:, None, :]:
        for value, expected in ((draws, 0.0), (draws**2, 1.0)):
            error = value.std() / np.sqrt(arviz.ess(value))
            assert abs(value.mean() - expected) < 4.0 * error


@pytest.mark.slow
@pytest.mark.replicate
def test_at_z_equal_to_x_it_is_the_full_gp_s_sampler() -> None:
    """f and the parameters of kernel and likelihood have the same law."""
    X, Y = data_of(8)
    sparse = make_model(X, mean=0.0)
    gpflow.set_trainable(sparse.inducing_variable, False)
    full = AugmentedVGP((X, Y), sparse.kernel, sparse.likelihood)
    of_sparse = sample_posterior(
        sparse,
        (X, Y),
        HyperparameterGibbs(),
        num_samples=800,
        num_chains=2,
        num_burnin=200,
        seed=1,
        progress=False,
    ).posterior
    of_full = sample_posterior(
        full,
        sampler=HyperparameterGibbs(),
        num_samples=800,
        num_chains=2,
        num_burnin=200,
        seed=2,
        progress=False,
    ).posterior
    for name in ("kernel.variance", "kernel.lengthscales", "likelihood.scale"):
        assert_same_means(np.log(of_sparse[name].values), np.log(of_full[name].values))
    for i in range(8):
        assert_same_means(of_sparse["u"].values[:, :, i, 0], of_full["f"].values[:, :, i, 0])


@pytest.mark.replicate
def test_with_gaussian_noise_it_predicts_as_fitc() -> None:
    """Narrow priors hold the parameters in place, as GPflow's GPRFITC has them."""
    X, Y = data_of(30)
    Z = np.linspace(-2.2, 1.7, 5)[:, None]
    kernel = gpflow.kernels.Matern32(variance=1.2, lengthscales=0.8)
    model = AugmentedSVGP(kernel, likelihoods.Gaussian(variance=0.2), Z.copy())
    gpflow.set_trainable(model, False)
    for parameter in (kernel.lengthscales, model.likelihood.variance, model.inducing_variable.Z):
        gpflow.set_trainable(parameter, True)
        parameter.prior = tfd.Normal(parameter.numpy(), double(1e-5))
    fitc = gpflow.models.GPRFITC((X, Y), kernel, Z.copy(), noise_variance=0.2)
    samples = sample_posterior(
        model,
        (X, Y),
        HyperparameterGibbs(),
        num_samples=800,
        num_chains=2,
        num_burnin=50,
        seed=0,
        progress=False,
    )
    X_new = np.array([[-3.0], [-0.4], [0.9], [2.5]])
    mean, covariance = (moment.numpy() for moment in fitc.predict_f(X_new, full_cov=True))
    f = predictions.predict_f_samples(model, X_new, samples=samples, progress=False)[..., 0]
    for i in range(4):
        draws, m = f[..., i], mean[i, 0]
        for values, expected in ((draws, m), ((draws - m) ** 2, covariance[0, i, i])):
            assert abs(values.mean() - expected) < 4.0 * values.std() / np.sqrt(arviz.ess(values))
    np.testing.assert_allclose(np.cov(f.reshape(-1, 4).T), covariance[0], atol=0.12)


@pytest.mark.slow
def test_draws_predict_with_their_own_parameters_whatever_the_model_s_are_by_now() -> None:
    """Chains begin apart; Z, θ and fixed values are stored; the model gets its own values back."""
    X, Y = data_of(12)
    model = make_model(X[::4].copy())
    before = {name: p.numpy() for name, p in gpflow.utilities.parameter_dict(model).items()}
    samples = sample_posterior(
        model,
        (X, Y),
        HyperparameterGibbs(),
        num_samples=6,
        num_chains=2,
        num_burnin=4,
        seed=5,
        progress=False,
    )
    for name, parameter in gpflow.utilities.parameter_dict(model).items():
        np.testing.assert_array_equal(parameter.numpy(), before[name])
    posterior = samples.posterior
    assert set(posterior) == {
        "u",
        "kernel.variance",
        "kernel.lengthscales",
        "likelihood.scale",
        "inducing_variable.Z",
    }
    assert set(samples.constant_data) == {"likelihood.df", "mean_function.c"}
    assert posterior["inducing_variable.Z"].shape == (2, 6, 3, 1)
    assert len(np.unique(posterior["inducing_variable.Z"].values[:, 0, 0, 0])) == 2

    X_new = np.array([[0.3], [1.1]])
    expected = predictions.predict_y(model, X_new, samples=samples, progress=False)
    model.inducing_variable.Z.assign(X[:3])
    model.mean_function.c.assign(9.0)
    model.likelihood.df.assign(30.0)
    actual = predictions.predict_y(model, X_new, samples=samples, progress=False)
    np.testing.assert_allclose(actual, expected, rtol=1e-12)
    assert model.mean_function.c.numpy() == 9.0
    # The expected values come from GPflow's conditional at each draw.
    model.mean_function.c.assign(0.2)
    means = []
    for s in range(12):
        chain, draw = divmod(s, 6)
        kernel = gpflow.kernels.Matern32(
            posterior["kernel.variance"].values[chain, draw],
            posterior["kernel.lengthscales"].values[chain, draw],
        )
        Z, u = (posterior[n].values[chain, draw] for n in ("inducing_variable.Z", "u"))
        K = kernel(Z) + gpflow.default_jitter() * np.eye(3)
        means.append(0.2 + kernel(X_new, Z) @ np.linalg.solve(K, u))
    np.testing.assert_allclose(actual[0], np.mean(means, 0), rtol=1e-8)


def test_bad_input_is_named() -> None:
    X, Y = data_of(6)
    model = make_model(X[:3].copy())
    model.inducing_variable.Z.prior = None
    with pytest.raises(ValueError, match=r"Found none on: inducing_variable\.Z\. Set its \.prior"):
        sample_posterior(model, (X, Y), HyperparameterGibbs())
    model.inducing_variable.Z.prior = tfd.Normal(double(0.0), double(1.0))
    plain = gpflow.models.SVGP(model.kernel, gpflow.likelihoods.Poisson(), X[:3])
    with pytest.raises(ValueError, match=r"no Gibbs sampler.*Found: Gibbs sampling, Poisson"):
        sample_posterior(plain, (X, np.ones_like(Y)), HyperparameterGibbs())
    with pytest.raises(ValueError, match="data must be given"):
        sample_posterior(model, sampler=HyperparameterGibbs())
    model.num_data = 9
    with pytest.raises(ValueError, match=r"all num_data = 9 rows. Found: 6"):
        sample_posterior(model, (X, Y), HyperparameterGibbs())
    samples = arviz.from_dict(
        posterior={"u": np.zeros((1, 1, 3, 1)), "kernel.lengthscales": np.ones((1, 1, 2))}
    )
    with pytest.raises(ValueError, match=r"kernel.lengthscales of the model's shape, \[\]. Found"):
        predictions.predict_y(model, X, samples=samples)
