"""The Gibbs sampler against quadrature, calibration and Gaussian conjugacy."""

from collections.abc import Callable
from typing import Any

import arviz
import gpflow
import numpy as np
import pytest
import scipy.stats
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import AnyNDArray

from gpflow_aaci import AugmentedVGP, GibbsKernel, likelihoods, sample_posterior
from gpflow_aaci.gibbs import f_given_omega

MakeLikelihood = Callable[[], likelihoods.AugmentedLikelihood]


def make(Y: AnyNDArray, likelihood: Any, **kwargs: Any) -> AugmentedVGP:
    X = np.linspace(-1.0, 1.0, len(Y))[:, None]
    kernel = gpflow.kernels.Matern32(variance=1.5, lengthscales=0.7)
    return AugmentedVGP((X, Y), kernel, likelihood, **kwargs)


def quadrature_moments(model: AugmentedVGP) -> tuple[AnyNDArray, AnyNDArray]:
    """Mean and variance of f at two data under p(f|y), on a fine grid."""
    X, Y, _ = model.checked_batch()
    K = model.prior_covariance()[0].numpy()
    grid = np.linspace(-8.0, 8.0, 801)
    F = np.stack(np.meshgrid(grid, grid, indexing="ij"), -1).reshape(-1, 2)
    mean = model.mean_function(X).numpy().ravel()
    log_p = scipy.stats.multivariate_normal(mean, K).logpdf(F)
    log_p += sum(
        model.likelihood.log_prob(X[:1], F[:, [i]], Y[i] + 0.0 * F[:, [i]]).numpy() for i in (0, 1)
    )
    weights = np.exp(log_p - log_p.max())
    weights /= weights.sum()
    mean = weights @ F
    return mean, weights @ (F - mean) ** 2


@pytest.mark.parametrize("over_relaxation", [0.0, -0.8])
def test_moments_are_the_quadrature_s(
    likelihood: likelihoods.AugmentedLikelihood, over_relaxation: float
) -> None:
    """Within four standard errors, by the effective sample size."""
    Y = np.array([[1.0], [-1.0]] if likelihood.labels is not None else [[0.9], [-1.6]])
    model = make(Y, likelihood, mean_function=gpflow.functions.Constant(0.3))
    samples = sample_posterior(
        model, 2500, 4, 50, progress=False, over_relaxation=over_relaxation
    ).posterior["f"]
    mean, variance = quadrature_moments(model)
    for i in (0, 1):
        f = samples.values[:, :, i, 0]
        for draws, expected in ((f, mean[i]), ((f - mean[i]) ** 2, variance[i])):
            error = draws.std() / np.sqrt(arviz.ess(draws))
            assert abs(draws.mean() - expected) < 4.0 * error + 1e-12


def test_f_given_omega_is_the_conjugate_posterior(rng: np.random.Generator) -> None:
    """With a Gaussian likelihood: GPflow's GPR, mean and covariance."""
    Y = rng.normal(size=(5, 1))
    model = make(Y, likelihoods.Gaussian(variance=0.4))
    gpr = gpflow.models.GPR(model.data, model.kernel, noise_variance=0.4)
    X = model.data[0]
    expected, covariance = gpr.predict_f(X, full_cov=True)
    omega = tf.fill([20_000, 5, 1], tf.constant(1.0 / 0.8, tf.float64))
    mean, deviation = f_given_omega(model, omega, seed=tfp.random.sanitize_seed(1))
    np.testing.assert_allclose(mean[0], expected, atol=1e-5)  # the jitter's
    empirical = np.cov(deviation[:, :, 0].numpy().T)
    np.testing.assert_allclose(empirical, covariance[0], atol=0.02)


@pytest.mark.parametrize("over_relaxation", [0.0, -0.8])
@pytest.mark.parametrize(
    "name", ["Gaussian", "StudentT", "Laplace", "Matern32", "Matern52", "Logistic", "Probit"]
)
def test_ranks_of_the_truth_among_draws_are_uniform(name: str, over_relaxation: float) -> None:
    """
    Simulation-based calibration (Talts et al. 2018), 500 replicates at once as one model's chains.

    f and y from the model; the rank of f_10 among thinned draws from p(f|y) is uniform.
    """
    replicates, N, thinned = 500, 20, 19
    likelihood = getattr(likelihoods, name)()
    model = make(np.ones((N, 1)), likelihood)
    kernel = GibbsKernel(model, over_relaxation)
    rng = np.random.default_rng(5)
    L = np.linalg.cholesky(model.prior_covariance()[0].numpy())
    F = (L @ rng.normal(size=(N, replicates))).T[..., None]
    noise: dict[str, Callable[[], AnyNDArray]] = {
        "StudentT": lambda: F + rng.standard_t(likelihood.df.numpy(), size=F.shape),
        "Laplace": lambda: F + rng.laplace(size=F.shape),
        "Matern32": lambda: (
            F
            + rng.choice([-1.0, 1.0], size=F.shape)
            * rng.gamma(rng.integers(1, 3, size=F.shape), 1.0 / np.sqrt(3.0))
        ),
        "Matern52": lambda: (
            F
            + rng.choice([-1.0, 1.0], size=F.shape)
            * rng.gamma(rng.choice([1, 2, 3], p=[3 / 8, 3 / 8, 1 / 4], size=F.shape), 5**-0.5)
        ),
        "Gaussian": lambda: F + rng.normal(size=F.shape),
        "Logistic": lambda: np.where(rng.random(F.shape) < 1.0 / (1.0 + np.exp(-F)), 1.0, -1.0),
        "Probit": lambda: np.where(rng.normal(size=F.shape) < F, 1.0, -1.0),
    }
    Y = noise[name]()
    # Every replicate has data of its own: the verbs broadcast over chains.
    model.checked_batch = lambda data=None: (  # type: ignore[method-assign]
        tf.constant(model.data[0]),
        tf.constant(Y),
        tf.ones([], tf.float64),
    )

    @tf.function(autograph=False)
    def run() -> tf.Tensor:
        return tfp.mcmc.sample_chain(
            thinned,
            tf.constant(F),  # the truth is a draw from p(f|y): in equilibrium from the start
            kernel=kernel,
            num_burnin_steps=10,
            num_steps_between_results=9,
            trace_fn=None,
            seed=[1, 2],
        )

    draws = run().numpy()
    for i in (0, 10):
        ranks = (draws[:, :, i, 0] < F[:, i, 0]).sum(0)
        counts = np.bincount(ranks, minlength=thinned + 1)
        assert scipy.stats.chisquare(counts).pvalue > 1e-3


def test_the_same_seed_gives_the_same_draws_and_dims_have_names() -> None:
    model = make(np.array([[0.1], [2.0], [-1.0]]), likelihoods.Laplace())
    runs = [
        sample_posterior(model, 150, 3, 7, seed, progress=False, keep_omega=True)
        for seed in (4, 4, 5)
    ]
    assert runs[0].posterior.f.dims == ("chain", "draw", "data", "output")
    assert runs[0].posterior.f.shape == runs[0].posterior.omega.shape == (3, 150, 3, 1)
    np.testing.assert_array_equal(runs[0].posterior.f, runs[1].posterior.f)
    assert not np.any(runs[0].posterior.f.values == runs[2].posterior.f.values)
    assert (runs[0].posterior.omega > 0.0).all()


@pytest.mark.parametrize(
    ("kwargs", "names"),
    [
        ({"num_samples": 0}, "num_samples"),
        ({"num_chains": -1}, "num_chains"),
        ({"num_burnin": 2.5}, "num_burnin"),
        ({"over_relaxation": -1.0}, "over_relaxation"),
    ],
)
def test_bad_arguments_are_named(kwargs: Any, names: str) -> None:
    with pytest.raises(ValueError, match=names):
        sample_posterior(make(np.ones((2, 1)), likelihoods.Laplace()), **kwargs)
