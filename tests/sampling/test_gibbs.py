"""The Gibbs sampler against quadrature, calibration and Gaussian conjugacy."""

from collections.abc import Callable
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

from gpflow_aaci import AugmentedSVGP, AugmentedVGP, likelihoods, sample_posterior
from gpflow_aaci.contrib import HyperparameterGibbs
from gpflow_aaci.data import as_arrays
from gpflow_aaci.likelihoods.integrals.quadrature import log_expectation
from gpflow_aaci.sampling import Gibbs, GibbsKernel, SparseGibbsKernel
from gpflow_aaci.sampling.conditionals import f_given_omega, prior_at_data, pseudo_observations

MakeLikelihood = Callable[[], likelihoods.AugmentedLikelihood]


def make(Y: AnyNDArray, likelihood: Any, **kwargs: Any) -> AugmentedVGP:
    X = np.linspace(-1.0, 1.0, len(Y))[:, None]
    kernel = gpflow.kernels.Matern32(variance=1.5, lengthscales=0.7)
    return AugmentedVGP((X, Y), kernel, likelihood, **kwargs)


def quadrature_moments(model: AugmentedVGP) -> tuple[AnyNDArray, AnyNDArray]:
    """Mean and variance of f under p(f|y) at one or two data, by summation over a fine grid."""
    X, Y = as_arrays(model.expected_data).rows
    N = len(Y)
    K = model.prior_covariance()[0].numpy()
    grid = np.linspace(-8.0, 8.0, 801)
    F = np.stack(np.meshgrid(*[grid] * N, indexing="ij"), -1).reshape(-1, N)
    mean = np.broadcast_to(model.mean_function(X).numpy().ravel(), [N])
    log_p = scipy.stats.multivariate_normal(mean, K).logpdf(F)
    for i in range(N):
        log_p += model.likelihood.log_prob(X[:1], F[:, [i]], Y[i] + 0.0 * F[:, [i]]).numpy()
    weights = np.exp(log_p - log_p.max())
    weights /= weights.sum()
    mean = weights @ F
    return mean, weights @ (F - mean) ** 2


def observe(
    likelihood: likelihoods.AugmentedLikelihood, F: AnyNDArray, rng: np.random.Generator
) -> AnyNDArray:
    """Draws of y ~ p(y|f) for likelihoods of scale 1."""
    size, sign = F.shape, rng.choice([-1.0, 1.0], size=F.shape)
    match type(likelihood).__name__:
        case "Gaussian":
            return F + rng.normal(size=size)
        case "StudentT":
            scale, df = likelihood.scale.numpy(), likelihood.df.numpy()
            return F + scale * rng.standard_t(df, size=size)
        case "Laplace":
            return F + rng.laplace(size=size)
        case "Matern32":  # (1 + √3 x) e^{−√3 x} mixes Gamma(1) and Gamma(2)
            return F + sign * rng.gamma(rng.integers(1, 3, size=size), 3**-0.5)
        case "Matern52":
            shape = rng.choice([1, 2, 3], p=[3 / 8, 3 / 8, 1 / 4], size=size)
            return F + sign * rng.gamma(shape, 5**-0.5)
        case "Logistic":
            return np.where(rng.random(size) < 1.0 / (1.0 + np.exp(-F)), 1.0, -1.0)
        case "Probit":
            return np.where(rng.normal(size=size) < F, 1.0, -1.0)
    raise NotImplementedError(likelihood)


def of_many_data_sets(kernel: GibbsKernel, Y: AnyNDArray) -> GibbsKernel:
    """
    The kernel with data Y [C, N, P], a data set for every chain, as its conditionals broadcast.
    """
    kernel.rows = kernel.rows[0], tf.convert_to_tensor(Y)
    return kernel


@pytest.mark.briefly("StudentT-2--0.8")
@pytest.mark.by_default("StudentT")
@pytest.mark.parametrize(("N", "over_relaxation"), [(1, 0.0), (2, 0.0), (2, -0.8)])
def test_moments_are_the_quadrature_s(
    likelihood: likelihoods.AugmentedLikelihood, N: int, over_relaxation: float
) -> None:
    """They agree within four standard errors, computed from the effective sample size."""
    Y = np.array([[1.0], [-1.0]] if likelihood.labels is not None else [[0.9], [-1.6]])[:N]
    model = make(Y, likelihood, mean_function=gpflow.functions.Constant(0.3))
    samples = sample_posterior(
        model,
        sampler=Gibbs(over_relaxation),
        num_samples=2500,
        num_chains=4,
        num_burnin=50,
        progress=False,
    ).posterior["f"]
    mean, variance = quadrature_moments(model)
    for i in range(N):
        f = samples.values[:, :, i, 0]
        for draws, expected in ((f, mean[i]), ((f - mean[i]) ** 2, variance[i])):
            error = draws.std() / np.sqrt(arviz.ess(draws))
            assert abs(draws.mean() - expected) < 4.0 * error + 1e-12


def test_f_given_omega_is_the_conjugate_posterior(rng: np.random.Generator) -> None:
    """With a Gaussian likelihood, mean and covariance are those of GPflow's GPR."""
    Y = rng.normal(size=(5, 1))
    model = make(Y, likelihoods.Gaussian(variance=0.4))
    gpr = gpflow.models.GPR(model.data, model.kernel, noise_variance=0.4)
    X = model.data[0]
    expected, covariance = gpr.predict_f(X, full_cov=True)
    omega = tf.fill([20_000, 5, 1], tf.constant(1.0 / 0.8, tf.float64))
    observed = pseudo_observations(model.likelihood, X, omega, model.data[1])
    mean, deviation = f_given_omega(prior_at_data(model), observed, seed=[0, 1])
    np.testing.assert_allclose(mean[0], expected, atol=1e-5)  # because of the jitter
    empirical = np.cov(deviation[:, :, 0].numpy().T)
    np.testing.assert_allclose(empirical, covariance[0], atol=0.02)


NORMALISED = ["Gaussian", "StudentT", "Laplace", "Matern32", "Matern52", "Logistic", "Probit"]


@pytest.mark.replicate
@pytest.mark.parametrize("over_relaxation", [0.0, -0.8])
@pytest.mark.parametrize("name", NORMALISED)
def test_ranks_of_the_truth_among_draws_are_uniform(name: str, over_relaxation: float) -> None:
    """
    Simulation-based calibration (Talts et al. 2018), with 500 replicates as chains of one model.

    f and y are drawn from the model; the rank of f_10 among thinned draws from p(f|y) is uniform.
    """
    replicates, N, thinned = 500, 20, 19
    likelihood = getattr(likelihoods, name)()
    model = make(np.ones((N, 1)), likelihood)
    rng = np.random.default_rng(5)
    L = np.linalg.cholesky(model.prior_covariance()[0].numpy())
    F = (L @ rng.normal(size=(N, replicates))).T[..., None]
    Y = observe(likelihood, F, rng)
    kernel = of_many_data_sets(GibbsKernel(model, over_relaxation), Y)

    @tf.function(autograph=False)
    def run() -> tf.Tensor:
        return tfp.mcmc.sample_chain(
            thinned,
            tf.constant(F),  # the truth is a draw from p(f|y), so no burn-in is needed
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


@pytest.mark.briefly("Matern32--0.8")
@pytest.mark.by_default("Matern32")
@pytest.mark.parametrize("over_relaxation", [0.0, -0.8])
@pytest.mark.parametrize("name", NORMALISED)
def test_alternating_with_the_model_s_data_leaves_the_prior(
    name: str, over_relaxation: float
) -> None:
    """
    Alternating y

    f by simulation and f

    y by a sweep must keep f ~ N(0, K) (Geweke 2004).

    With two thousand chains and thirty rounds, errors of a sweep accumulate.
    """
    chains, N = 2_000, 6
    likelihood = getattr(likelihoods, name)()
    model = make(np.ones((N, 1)), likelihood)
    kernel = GibbsKernel(model, over_relaxation)
    rng = np.random.default_rng(11)
    f = kernel.initial_state(chains, seed=[3, 0])
    step = tf.function(
        lambda f, Y, seed: of_many_data_sets(kernel, Y).one_step(f, None, seed=seed)[0],
        autograph=False,
    )
    for round_ in range(30):
        f = step(f, tf.constant(observe(likelihood, f.numpy(), rng)), tf.constant([4, round_]))
    L = np.linalg.cholesky(model.prior_covariance()[0].numpy())
    white = scipy.linalg.solve_triangular(L, f.numpy()[..., 0].T, lower=True)
    for row in white:
        assert scipy.stats.kstest(row, "norm").pvalue > 1e-4
    np.testing.assert_allclose(white @ white.T / chains, np.eye(N), atol=4.5 * 2**0.5 / chains**0.5)


def quadrature_moments_of_v(model: AugmentedSVGP, data: Any) -> tuple[float, float]:
    """Mean and variance of a scalar v under p(v) Π ∫ p(y_i|f_i) p(f_i|v) df_i."""
    X, Y = as_arrays(model.expected_data, data).rows
    A, unexplained = model.project(X)[1:3]
    v = np.linspace(-9.0, 9.0, 4001)
    Fmu = model.mean_function(X).numpy() + A[0].numpy().T * v  # [N, V]
    Fvar = unexplained[0].numpy()[:, None] + 0.0 * Fmu
    Fmu, Fvar, Y = (tf.constant(a) for a in (Fmu, Fvar, Y.numpy() + 0.0 * Fmu))
    log_p = log_expectation(  # nodes are dense about y, where kinks are
        lambda F: model.likelihood._scalar_log_prob(F, F, tf.broadcast_to(Y, F.shape)),
        Fmu,
        Fvar,
        [Y],
    )
    log_p = tf.reduce_sum(log_p, 0).numpy() - 0.5 * v**2
    weights = np.exp(log_p - log_p.max())
    weights /= weights.sum()
    mean = weights @ v
    return mean, weights @ (v - mean) ** 2


@pytest.mark.by_default("Laplace-0.8", "Probit-0.0")
@pytest.mark.slow
@pytest.mark.parametrize("over_relaxation", [0.0, -0.8])
def test_sparse_moments_are_the_quadrature_s(
    likelihood: likelihoods.AugmentedLikelihood, over_relaxation: float
) -> None:
    """There are one inducing variable and three data, and u is a multiple of v."""
    Y = [[1.0], [-1.0], [1.0]] if likelihood.labels is not None else [[0.9], [-1.6], [2.5]]
    data = (np.array([[-1.0], [0.2], [0.9]]), np.array(Y))
    model = AugmentedSVGP(
        gpflow.kernels.Matern32(variance=1.5, lengthscales=0.7),
        likelihood,
        np.array([[0.4]]),
        mean_function=gpflow.functions.Constant(0.3),
        num_data=3,
    )
    u = sample_posterior(
        model,
        data,
        Gibbs(over_relaxation),
        num_samples=2500,
        num_chains=4,
        num_burnin=50,
        progress=False,
    ).posterior["u"]
    v = u.values[..., 0, 0] / model.project(data[0]).chol.numpy()[0, 0, 0]
    mean, variance = quadrature_moments_of_v(model, data)
    for draws, expected in ((v, mean), ((v - mean) ** 2, variance)):
        error = draws.std() / np.sqrt(arviz.ess(draws))
        assert abs(draws.mean() - expected) < 4.0 * error


@pytest.mark.slow
def test_the_sparse_sampler_at_z_equal_to_x_is_the_full_one() -> None:
    """Means and standard deviations at all data agree with those of the full GP's kernel."""
    rng = np.random.default_rng(3)
    X = np.linspace(-2.0, 2.0, 12)[:, None]
    Y = np.sin(2.0 * X) + 0.3 * rng.standard_t(3, size=X.shape)
    kernel, likelihood = gpflow.kernels.Matern32(), likelihoods.StudentT(scale=0.3)
    full = AugmentedVGP((X, Y), kernel, likelihood)
    sparse = AugmentedSVGP(kernel, likelihood, X, num_data=12)
    f = (
        sample_posterior(full, num_samples=2_000, num_chains=4, num_burnin=100, progress=False)
        .posterior["f"]
        .values
    )
    u = (
        sample_posterior(
            sparse, (X, Y), num_samples=2_000, num_chains=4, num_burnin=100, seed=7, progress=False
        )
        .posterior["u"]
        .values
    )
    for i in range(12):
        a, b = f[:, :, i, 0], u[:, :, i, 0]
        for x, y in ((a, b), ((a - a.mean()) ** 2, (b - a.mean()) ** 2)):
            error = np.hypot(x.std() / arviz.ess(x) ** 0.5, y.std() / arviz.ess(y) ** 0.5)
            assert abs(x.mean() - y.mean()) < 4.5 * error


@pytest.mark.slow
def test_the_same_seed_gives_the_same_draws_and_dims_have_names() -> None:
    model = make(np.array([[0.1], [2.0], [-1.0]]), likelihoods.Laplace())
    runs = [
        sample_posterior(
            model,
            num_samples=150,
            num_chains=3,
            num_burnin=7,
            seed=seed,
            progress=False,
        )
        for seed in (4, 4, 5)
    ]
    assert runs[0].posterior.f.dims == ("chain", "draw", "data", "output")
    assert runs[0].posterior.f.shape == (3, 150, 3, 1)
    np.testing.assert_array_equal(runs[0].posterior.f, runs[1].posterior.f)
    assert not np.any(runs[0].posterior.f.values == runs[2].posterior.f.values)


@pytest.mark.parametrize(
    ("kwargs", "names"),
    [
        ({"num_samples": 0}, "num_samples"),
        ({"num_chains": -1}, "num_chains"),
        ({"num_burnin": 2.5}, "num_burnin"),
        ({"num_chains": True}, "num_chains"),
        ({"seed": 2**31}, r"seed must be an integer from 0 to 2\*\*31 - 1"),
        ({"data": (np.ones((2, 1)), np.ones((2, 1)))}, "data must be given for models with"),
        ({"sampler": HyperparameterGibbs()}, "kernel.lengthscales"),
        ({"sampler": "gibbs"}, "sampler must be a sampler object .* Found: 'gibbs'"),
        ({"sampler": Gibbs}, "sampler must be a sampler object .* Found: <class .*Gibbs'>"),
    ],
)
def test_bad_arguments_are_named(kwargs: Any, names: str) -> None:
    with pytest.raises(ValueError, match=names):
        sample_posterior(make(np.ones((2, 1)), likelihoods.Laplace()), **kwargs)


@pytest.mark.parametrize("over_relaxation", [-1.0, 1.0, np.nan])
def test_gibbs_checks_its_over_relaxation_when_it_is_made(over_relaxation: float) -> None:
    with pytest.raises(ValueError, match=r"over_relaxation must be in \(-1, 1\). Found: "):
        Gibbs(over_relaxation)


def test_a_sampler_of_one_s_own_needs_one_method() -> None:
    """Draws of any name join the posterior after the burn-in, and each chain gets a seed."""

    class Counting:
        def chains(
            self, model: Any, data: Any, seeds: Any, num_burnin: int, num_samples: int
        ) -> Any:
            draws = np.arange(num_burnin + num_samples)[:, None]
            halves = draws[:4], draws[4:]
            starts = [10.0 * number for number, _ in enumerate(seeds)]

            def chain(start: float) -> Any:
                for half in halves:
                    yield {"theta": start + half}

            return [chain(start) for start in starts]

    model = make(np.array([[0.1], [2.0]]), likelihoods.Laplace())
    samples = sample_posterior(
        model, sampler=Counting(), num_samples=3, num_chains=2, num_burnin=2, progress=False
    )
    np.testing.assert_array_equal(samples.posterior["theta"], [[2.0, 3.0, 4.0], [12.0, 13.0, 14.0]])


def test_the_sparse_sampler_wants_all_data_and_its_own_model() -> None:
    X = np.ones((4, 1))
    model = AugmentedSVGP(gpflow.kernels.Matern32(), likelihoods.Laplace(), X[:1], num_data=8)
    with pytest.raises(ValueError, match=r"all num_data = 8 rows. Found: 4"):
        sample_posterior(model, (X, X))
    with pytest.raises(ValueError, match="data must be given"):
        sample_posterior(model)
    with pytest.raises(ValueError, match=r"must be an AugmentedVGP\. Found: AugmentedSVGP"):
        GibbsKernel(model)
    with pytest.raises(ValueError, match=r"must be an AugmentedSVGP\. Found: AugmentedVGP"):
        SparseGibbsKernel(make(np.ones((2, 1)), likelihoods.Laplace()), (X, X))


@pytest.mark.briefly("AugmentedSVGP-1")
@pytest.mark.by_default("AugmentedVGP-2", "AugmentedSVGP-1")
@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("kind", ["AugmentedVGP", "AugmentedSVGP"])
def test_statistics_are_of_the_draws(kind: str, outputs: int) -> None:
    """log p(y|f) of every draw and their sum are reported. If Z = X, u is f."""
    X, likelihood = np.array([[0.1], [2.0], [-1.0]]), likelihoods.StudentT()
    Y = np.sin(X + np.arange(outputs))
    if kind == "AugmentedVGP":
        model: Any = AugmentedVGP((X, Y), gpflow.kernels.Matern32(), likelihood)
        samples = sample_posterior(
            model, num_samples=120, num_chains=2, num_burnin=5, progress=False
        )
        f = samples.posterior.f.values
    else:
        model = AugmentedSVGP(gpflow.kernels.Matern32(), likelihood, X, num_latent_gps=outputs)
        samples = sample_posterior(
            model, (X, Y), num_samples=120, num_chains=2, num_burnin=5, progress=False
        )
        f = samples.posterior.u.values
    law = scipy.stats.t(df=likelihood.df.numpy())
    expected = law.logpdf(Y - f)
    tolerance = 1e-10 if kind == "AugmentedVGP" else 1e-2  # u is f up to the jitter
    np.testing.assert_allclose(
        samples.log_likelihood.y, expected[..., 0] if outputs == 1 else expected, rtol=tolerance
    )
    np.testing.assert_allclose(
        samples.sample_stats.total_log_likelihood, expected.sum((-2, -1)), rtol=tolerance
    )
    assert "log_likelihood" not in samples.sample_stats  # ArviZ would read it there
    # y − f has Student's t distribution, whatever f is.
    y = samples.posterior_predictive.y.values.reshape(f.shape)
    assert scipy.stats.kstest((y - f).ravel(), law.cdf).pvalue > 1e-3
    np.testing.assert_array_equal(samples.observed_data.y.values.reshape(Y.shape), Y)


@pytest.mark.slow
@pytest.mark.by_default("AugmentedVGP")
@pytest.mark.parametrize("kind", ["AugmentedVGP", "AugmentedSVGP"])
def test_arviz_criticises_the_draws_of_either_model(kind: str) -> None:
    """LOO, WAIC, predictive checks and LOO-PIT have one value for every datum."""
    rng = np.random.default_rng(0)
    X = np.linspace(-3.0, 3.0, 40)[:, None]
    data = X, np.sin(X) + 0.3 * rng.standard_t(4, size=X.shape)
    draws = {}
    for name, likelihood in (
        ("right", likelihoods.StudentT(scale=0.3, df=4.0)),
        ("wrong", likelihoods.StudentT(scale=30.0, df=4.0)),
    ):
        if kind == "AugmentedVGP":
            model: Any = AugmentedVGP(data, gpflow.kernels.Matern32(), likelihood)
            draws[name] = sample_posterior(
                model, num_samples=300, num_chains=4, num_burnin=50, progress=False
            )
        else:
            model = AugmentedSVGP(gpflow.kernels.Matern32(), likelihood, X[::4].copy())
            draws[name] = sample_posterior(
                model, data, num_samples=300, num_chains=4, num_burnin=50, progress=False
            )
    loo = arviz.loo(draws["right"], pointwise=True)
    assert loo.n_data_points == 40
    np.testing.assert_allclose(loo.elpd_loo, arviz.waic(draws["right"]).elpd_waic, rtol=0.05)
    # It is below the fitted data's log likelihood, and above the elpd under a wrong scale.
    mean = float(draws["right"].sample_stats.total_log_likelihood.mean())
    assert float(arviz.loo(draws["wrong"]).elpd_loo) < loo.elpd_loo < mean
    assert arviz.compare(draws).index[0] == "right"
    pit = arviz.loo_pit(idata=draws["right"], y="y")
    assert pit.shape == (40,)
    assert scipy.stats.kstest(pit, "uniform").pvalue > 1e-3
    (axes,) = np.ravel(arviz.plot_ppc(draws["right"], num_pp_samples=20))
    assert len(axes.lines) > 0
