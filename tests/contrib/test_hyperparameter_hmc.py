"""HMC of v and hyperparameters: GPflow's densities, quadrature over a hyperparameter, errors."""

from typing import Any

import arviz
import gpflow
import numpy as np
import pytest
import scipy.stats
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import AnyNDArray
from gpflow.optimizers import SamplingHelper

from gpflow_aaci import AugmentedSVGP, likelihoods, predictions, sample_posterior
from gpflow_aaci.contrib import HyperparameterHMC
from gpflow_aaci.contrib.hyperparameter_hmc import _has_cholesky
from gpflow_aaci.contrib.joint import JointChains
from gpflow_aaci.contrib.starts import sampled_parameters

tfd, double = tfp.distributions, np.float64


def data_of(N: int) -> tuple[AnyNDArray, AnyNDArray]:
    rng = np.random.default_rng(3)
    X = np.linspace(-2.0, 2.0, N)[:, None]
    return X, rng.poisson(np.exp(np.sin(2.0 * X))).astype(float)


def make_kernel() -> gpflow.kernels.Kernel:
    """One prior is on a constrained value, the other on an unconstrained one."""
    kernel = gpflow.kernels.Matern32(variance=1.2, lengthscales=0.8)
    kernel.variance.prior = tfd.LogNormal(double(0.1), double(0.7))
    kernel.lengthscales.prior = tfd.Normal(double(0.3), double(0.6))
    kernel.lengthscales.prior_on = gpflow.base.PriorOn.UNCONSTRAINED
    return kernel


def assert_moments(draws: AnyNDArray, mean: float, variance: float) -> None:
    """Moments of draws [chain, draw] agree within four standard errors, computed from the ESS."""
    for values, expected in ((draws, mean), ((draws - mean) ** 2, variance)):
        assert abs(values.mean() - expected) < 4.0 * values.std() / np.sqrt(arviz.ess(values))


@pytest.mark.briefly("False")
@pytest.mark.parametrize("is_sparse", [False, True])
def test_the_density_and_its_gradient_are_those_of_gpflow_s_gpmc_and_sgpmc(
    is_sparse: bool, rng: np.random.Generator
) -> None:
    """Z is among the hyperparameters of the sparse model."""
    X, Y = data_of(6)
    poisson, mean_function = gpflow.likelihoods.Poisson(), gpflow.functions.Constant(0.3)
    mean_function.c.prior = tfd.Normal(double(0.0), double(2.0))
    kernel, Z = make_kernel(), X[1:6:2].copy()
    if is_sparse:
        model: Any = gpflow.models.SVGP(kernel, poisson, Z, mean_function=mean_function)
        model.inducing_variable.Z.prior = tfd.Normal(double(0.0), double(1.0))
        theirs: Any = gpflow.models.SGPMC(
            (X, Y), kernel, poisson, mean_function, inducing_variable=model.inducing_variable
        )
    else:
        model = gpflow.models.VGP((X, Y), kernel, poisson, mean_function=mean_function)
        theirs = gpflow.models.GPMC((X, Y), kernel, poisson, mean_function=mean_function)
    rows = tf.constant(X), tf.constant(Y)
    joint = JointChains(model, rows, sampled_parameters(model), "variational")
    _, *hyperparameters = joint.moved
    assert len(hyperparameters) == 3 + is_sparse
    ours = joint.log_density(lambda: joint.log_likelihood(*rows))
    helper = SamplingHelper(theirs.log_posterior_density, [theirs.V, *hyperparameters])
    start = [p.unconstrained_variable.numpy() for p in (theirs.V, *hyperparameters)]
    at = [[tf.constant(x + 0.4 * rng.normal(size=x.shape)) for x in start] for _ in range(3)]
    ours_at = [tfp.math.value_and_gradient(ours, state) for state in at]
    theirs_at = [tfp.math.value_and_gradient(helper.target_log_prob_fn, state) for state in at]
    constant = ours_at[0][0] - theirs_at[0][0]
    for (value, slopes), (expected, expected_slopes) in zip(ours_at, theirs_at, strict=True):
        np.testing.assert_allclose(value - constant, expected, rtol=1e-8)
        for slope, expected_slope in zip(slopes, expected_slopes, strict=True):
            np.testing.assert_allclose(slope, expected_slope, rtol=1e-6, atol=1e-8)


@pytest.mark.slow
def test_f_and_a_variance_have_the_quadrature_s_moments() -> None:
    """One datum, y|f ~ Poisson(exp f), f ~ N(0, variance), and the logarithm of variance normal."""
    kernel = make_kernel()
    gpflow.set_trainable(kernel.lengthscales, False)
    data = np.array([[0.0]]), np.array([[6.0]])
    model = gpflow.models.GPMC(data, kernel, gpflow.likelihoods.Poisson())
    samples = sample_posterior(
        model,
        sampler=HyperparameterHMC(),
        num_samples=700,
        num_chains=2,
        num_burnin=200,
        seed=3,
        progress=False,
    )
    f, log_variance = np.meshgrid(np.linspace(-6, 6, 1_201), np.linspace(-4, 4, 801), indexing="ij")
    weights = (
        scipy.stats.poisson(np.exp(f)).pmf(6)
        * scipy.stats.norm(0.0, np.exp(0.5 * log_variance)).pdf(f)
        * scipy.stats.norm(0.1, 0.7).pdf(log_variance)
    )
    weights /= weights.sum()
    for name, values, draws in (
        ("f", f, samples.posterior["f"].values[..., 0, 0]),
        ("kernel.variance", log_variance, np.log(samples.posterior["kernel.variance"].values)),
    ):
        mean = np.sum(weights * values)
        assert arviz.ess(draws) > 150, name
        assert_moments(draws, mean, np.sum(weights * (values - mean) ** 2))
    np.testing.assert_allclose(
        samples.log_likelihood["y"].values[..., 0],
        scipy.stats.poisson(np.exp(samples.posterior["f"].values[..., 0, 0])).logpmf(6),
    )


@pytest.mark.replicate
@pytest.mark.parametrize("objective", ["predictive", "variational", "heteroscedastic"])
def test_with_gaussian_noise_it_is_fitc_s_or_the_collapsed_bound_s_quadrature(
    objective: Any,
) -> None:
    """The lengthscale's and u's moments: weights are FITC's evidence or exp of SGPR's bound."""
    X, Y = data_of(20)
    Z, kernel = np.linspace(-1.7, 1.6, 4)[:, None], make_kernel()
    gpflow.set_trainable(kernel.variance, False)
    model = AugmentedSVGP(kernel, likelihoods.Gaussian(variance=0.5), Z.copy())
    for fixed in (model.inducing_variable, model.likelihood):
        gpflow.set_trainable(fixed, False)
    samples = sample_posterior(
        model,
        (X, Y),
        HyperparameterHMC(objective=objective),
        num_samples=1_500,
        num_chains=2,
        num_burnin=300,
        seed=1,
        progress=False,
    )
    make = gpflow.models.SGPR if objective == "variational" else gpflow.models.GPRFITC
    exact = make((X, Y), kernel, Z.copy(), noise_variance=0.5)
    grid = np.linspace(-2.5, 3.0, 151)
    logs, means, variances = [], [], []
    for x in grid:
        kernel.lengthscales.unconstrained_variable.assign(x)
        logs.append(exact.maximum_log_likelihood_objective().numpy())
        if objective == "heteroscedastic":  # it lacks half the share of f|u in the noise
            K_ZX, K_ZZ = kernel(Z, X).numpy(), kernel(Z).numpy() + 1e-6 * np.eye(len(Z))
            explained = np.sum(K_ZX * np.linalg.solve(K_ZZ, K_ZX), 0)
            rest = kernel(X, full_cov=False).numpy() - explained
            logs[-1] -= 0.5 * np.sum(rest / (rest + 0.5))
        mean, variance = exact.predict_f(Z[2:3])
        means.append(mean.numpy().item())
        variances.append(variance.numpy().item())
    logs += scipy.stats.norm(0.3, 0.6).logpdf(grid)
    weights = np.exp(logs - np.max(logs))
    weights /= weights.sum()
    unconstrained = kernel.lengthscales.transform.inverse(
        samples.posterior["kernel.lengthscales"].values
    ).numpy()
    mean = weights @ grid
    assert_moments(unconstrained, mean, weights @ (grid - mean) ** 2)
    mean = weights @ means
    moment = weights @ (np.array(variances) + (np.array(means) - mean) ** 2)
    assert_moments(samples.posterior["u"].values[..., 2, 0], mean, moment)


@pytest.mark.slow
def test_draws_predict_and_the_model_keeps_its_values() -> None:
    """Steps that are far too long are rejected, though they reach singular covariances."""
    X, Y = data_of(9)
    model = gpflow.models.SVGP(make_kernel(), gpflow.likelihoods.Poisson(), X[::3].copy())
    model.inducing_variable.Z.prior = tfd.Normal(double(0.0), double(1.0))
    before = {name: p.numpy() for name, p in gpflow.utilities.parameter_dict(model).items()}
    samples = sample_posterior(
        model,
        (X, Y),
        HyperparameterHMC(step_size=30.0, num_leapfrog_steps=3),
        num_samples=4,
        num_chains=2,
        num_burnin=60,
        seed=5,
        progress=False,
    )
    for name, parameter in gpflow.utilities.parameter_dict(model).items():
        np.testing.assert_array_equal(parameter.numpy(), before[name])
    assert set(samples.posterior) == {
        "u",
        "kernel.variance",
        "kernel.lengthscales",
        "inducing_variable.Z",
    }
    assert len(np.unique(samples.posterior["u"].values[..., 0, 0])) > 2  # steps are shorter by now
    assert set(samples.groups()) == {"posterior"}
    mean, _ = predictions.predict_y(model, X[:2], samples=samples, progress=False)
    assert mean.shape == (2, 1)


def test_which_covariances_have_a_cholesky_factor() -> None:
    good, singular = np.eye(3), np.ones((3, 3))
    for K, expected in (
        ([good], True),
        ([singular], False),
        ([singular + 1e-6 * good], True),
        ([good, singular], False),
        ([good * np.nan], False),
        ([good * 1e300, good], True),
    ):
        assert bool(_has_cholesky(tf.constant(np.array(K)))) == expected


def test_bad_input_is_named() -> None:
    X, Y = data_of(5)
    model = gpflow.models.GPMC((X, Y), gpflow.kernels.RBF(), gpflow.likelihoods.Poisson())
    without = r"must have a prior .* Found none on: kernel.variance, kernel.lengthscales\. Set its"
    with pytest.raises(ValueError, match=without):
        sample_posterior(model, sampler=HyperparameterHMC())
    gpflow.set_trainable(model.kernel, False)
    with pytest.raises(ValueError, match="must have trainable hyperparameters"):
        sample_posterior(model, sampler=HyperparameterHMC())
    for arguments, message in (
        ({"step_size": 0.0}, "step_size must be above 0"),
        ({"num_leapfrog_steps": 0}, "num_leapfrog_steps must be an integer of at least 1"),
        ({"objective": "elbo"}, 'objective must be one of "predictive", "variational"'),
    ):
        with pytest.raises(ValueError, match=message):
            HyperparameterHMC(**arguments)
