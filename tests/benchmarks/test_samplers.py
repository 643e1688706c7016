"""Every sampler of the benchmarks draws from p(f|y), by quadrature and by comparison."""

import gpflow
import numpy as np
import pytest
import scipy.stats
import sklearn.datasets

from benchmarks.samplers import (
    Draws,
    Setting,
    bulk_ess,
    diagnostics,
    draw,
    make_sampler,
    without_closed_form,
)
from gpflow_aaci import AugmentedVGP, likelihoods
from gpflow_aaci.data import as_arrays

SETTINGS = [
    Setting("gibbs"),
    Setting("gibbs", over_relaxation=-0.8),
    Setting("generic_gibbs"),
    Setting("hmc", leapfrog_steps=5),
    Setting("hmc", step_size=0.3, leapfrog_steps=5),
    Setting("nuts"),
    Setting("random_walk"),
    Setting("random_walk", step_size=1.5),
    Setting("prior_proposals"),
    Setting("elliptical_slice"),
]


def two_data() -> AugmentedVGP:
    X = np.array([[-1.0], [1.0]])
    kernel = gpflow.kernels.Matern32(variance=1.5, lengthscales=0.7)
    mean_function = gpflow.functions.Constant(0.3)
    return AugmentedVGP(
        (X, np.array([[0.9], [-1.6]])), kernel, likelihoods.Laplace(0.6), mean_function
    )


def quadrature_moments(model: AugmentedVGP) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of f under p(f|y) at two data, by summation over a fine grid."""
    X, Y = as_arrays(model.expected_data).rows
    grid = np.linspace(-8.0, 8.0, 801)
    F = np.stack(np.meshgrid(grid, grid, indexing="ij"), -1).reshape(-1, 2)
    prior = scipy.stats.multivariate_normal(
        model.mean_function(X).numpy().ravel(), model.prior_covariance()[0].numpy()
    )
    log_likelihood = model.likelihood.log_prob(X, F[..., None], Y).numpy().sum(-1)
    log_p = prior.logpdf(F) + log_likelihood
    weights = np.exp(log_p - log_p.max())
    weights /= weights.sum()
    mean = weights @ F
    return mean, weights @ (F - mean) ** 2


def z_scores(f: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """
    (estimate − expected) / standard error, with the ESS, for all means and then all variances.
    """
    squares = (f - mean) ** 2
    return np.concatenate(
        [
            (x.mean((0, 1)) - expected) / (x.std((0, 1)) / np.sqrt(bulk_ess(x)))
            for x, expected in ((f, mean), (squares, variance))
        ]
    )


@pytest.mark.by_default("gibbs, a 0", "random_walk, step 1.5")
@pytest.mark.slow
@pytest.mark.parametrize("setting", SETTINGS, ids=lambda s: f"{s.kind}, {s}")
def test_moments_are_the_quadrature_s(setting: Setting) -> None:
    model = two_data()
    sampler = make_sampler(setting, model, num_chains=4, num_burnin=200, seed=0)
    num_samples = 800 if setting.kind == "generic_gibbs" else 2500
    draws = draw(sampler, 200, num_samples, np.inf, seed=1)
    assert draws.traces == 1
    assert draws.f.shape == (4, num_samples, 2)
    assert bulk_ess(draws.f).min() > 300
    assert np.abs(z_scores(draws.f, *quadrature_moments(model))).max() < 4.0


@pytest.mark.by_default("nuts")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "leapfrog_steps", "lowest", "highest"),
    [("hmc", 5, 0.6, 0.9), ("nuts", None, 0.6, 0.95), ("random_walk", None, 0.15, 0.4)],
)
def test_a_tuned_step_has_the_acceptance_that_was_aimed_at(
    kind: str, leapfrog_steps: int | None, lowest: float, highest: float
) -> None:
    setting = Setting(kind, leapfrog_steps=leapfrog_steps)
    sampler = make_sampler(setting, diabetes(30), num_chains=4, num_burnin=400, seed=0)
    draws = draw(sampler, 400, 400, np.inf, seed=1)
    assert lowest < draws.acceptance < highest


def test_without_closed_form_leaves_the_model_as_it_was() -> None:
    model = two_data()
    generic = without_closed_form(model)
    c = np.array([0.5, 2.0])
    assert type(model.likelihood.tilted(c)).__name__ == "InverseGaussian"
    assert type(generic.likelihood.tilted(c)).__name__ == "TiltedDistribution"
    assert generic.kernel is model.kernel


def test_the_time_limit_holds_and_the_warm_up_is_whole() -> None:
    sampler = make_sampler(Setting("gibbs"), two_data(), num_chains=2, num_burnin=0, seed=0)
    draws = draw(sampler, 60, 10_000_000, 0.2, seed=1)
    assert 0 < draws.f.shape[1] < 10_000_000
    assert 0.2 < draws.seconds < 5.0
    assert draws.warmup_seconds > 0.0


def test_diagnostics_of_known_chains() -> None:
    """
    For AR(1) with ρ = 0.6, ρ_k = 0.6^k and ESS = S (1 − ρ)/(1 + ρ); for squares, ρ becomes ρ².
    """
    rng = np.random.default_rng(0)
    C, S, N, rho = 4, 20_000, 5, 0.6
    f = np.zeros((C, S, N))
    f[:, 0] = rng.normal(size=(C, N))
    for s in range(1, S):
        f[:, s] = rho * f[:, s - 1] + np.sqrt(1.0 - rho**2) * rng.normal(size=(C, N))
    found = diagnostics(Draws(f, np.nan, 3.0, 1.0, 99.0, 1))
    for k in (1, 2, 4):
        np.testing.assert_allclose(found[f"lag_{k}"], rho**k, atol=0.01)
        np.testing.assert_allclose(found[f"signed_lag_{k}"], rho**k, atol=0.01)
    np.testing.assert_allclose(found["median_ess"], C * S * (1 - rho) / (1 + rho), rtol=0.05)
    expected = C * S * (1 - rho**2) / (1 + rho**2)
    np.testing.assert_allclose(found["median_ess_squared"], expected, rtol=0.2)
    np.testing.assert_allclose(found["min_ess_per_second"], found["min_ess"] / 4.0)
    assert 1.0 <= found["rhat"] < 1.002


def test_chains_apart_from_each_other_are_seen() -> None:
    rng = np.random.default_rng(0)
    f = rng.normal(size=(3, 500, 2)) + np.arange(3.0)[:, None, None] * 4.0
    found = diagnostics(Draws(f, np.nan, 1.0, 0.0, 0.0, 1))
    assert found["rhat"] > 2.0
    assert found["lag_10"] > 0.8
    assert found["min_ess"] < 10.0


def diabetes(rows: int) -> AugmentedVGP:
    """Standardised data, the kernel of the sampling experiment and Student-t noise."""
    X, y = sklearn.datasets.load_diabetes(return_X_y=True)
    X, y = X[:rows], y[:rows]
    X, y = (X - X.mean(0)) / X.std(0), (y - y.mean()) / y.std()
    lengthscale = np.sqrt(2.0 * X.var(axis=0).sum())
    kernel = gpflow.kernels.SquaredExponential(lengthscales=lengthscale)
    return AugmentedVGP((X, y[:, None]), kernel, likelihoods.StudentT(scale=1.0, df=3.0))


@pytest.fixture(scope="module")
def nuts_draws() -> np.ndarray:
    sampler = make_sampler(Setting("nuts"), diabetes(200), num_chains=4, num_burnin=200, seed=0)
    return draw(sampler, 200, 1_500, np.inf, seed=1).f


@pytest.mark.replicate
@pytest.mark.slow
@pytest.mark.parametrize("over_relaxation", [0.0, -0.8])
def test_gibbs_agrees_with_nuts(nuts_draws: np.ndarray, over_relaxation: float) -> None:
    """
    Means and variances of all f_i agree within the standard errors of both.

    The largest of 400 differences is below its 1e-4 quantile by chance (Bonferroni), and their mean
    square is near 1, since chains that agreed too well would be wrong, too.
    """
    setting = Setting("gibbs", over_relaxation)
    sampler = make_sampler(setting, diabetes(200), num_chains=4, num_burnin=100, seed=2)
    gibbs_draws = draw(sampler, 100, 3_000, np.inf, seed=3).f
    centre = nuts_draws.mean((0, 1))
    differences = []
    for power in (1, 2):
        a, b = ((f - centre) ** power for f in (gibbs_draws, nuts_draws))
        error = np.sqrt(sum(x.var((0, 1)) / bulk_ess(x) for x in (a, b)))
        differences.append((a.mean((0, 1)) - b.mean((0, 1))) / error)
    z = np.concatenate(differences)
    assert bulk_ess(gibbs_draws).min() > 1_000
    assert bulk_ess(nuts_draws).min() > 3_000
    assert np.abs(z).max() < scipy.stats.norm.isf(0.5e-4 / len(z))
    assert 0.1 < np.mean(z**2) < 3.0
