"""k̂ and the importance weights: exact where the truth is known, large if q is too narrow."""

from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
import pytest
import scipy.stats
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.kernels import Matern32

from gpflow_aaci import AugmentedNaturalGradient, AugmentedSVGP, AugmentedVGP, likelihoods
from gpflow_aaci.diagnostics import importance_weights, psis_khat

Randomise = Callable[[gpflow.models.GPModel], None]
MakeLikelihood = Callable[[], likelihoods.AugmentedLikelihood]
Observe = Callable[[gpflow.likelihoods.Likelihood, AnyNDArray, int], AnyNDArray]

N, NOISE = 20, 0.1


@pytest.fixture(scope="module")
def X() -> AnyNDArray:
    return np.random.default_rng(0).uniform(-2.0, 2.0, size=(N, 1))


@pytest.fixture(scope="module")
def Y(X: AnyNDArray) -> AnyNDArray:
    return np.sin(2.0 * X) + 0.2 * np.random.default_rng(1).standard_t(4, size=X.shape)


def prior_covariance(X: AnyNDArray) -> AnyNDArray:
    return Matern32()(X).numpy() + gpflow.config.default_jitter() * np.eye(len(X))


@pytest.fixture
def exact(X: AnyNDArray, Y: AnyNDArray) -> AugmentedVGP:
    """A model with Gaussian noise and the exact posterior as q: precision I + LᵀL/σ² in v."""
    model = AugmentedVGP((X, Y), Matern32(), likelihoods.Gaussian(variance=NOISE))
    L = np.linalg.cholesky(prior_covariance(X))
    S = np.linalg.inv(np.eye(N) + L.T @ L / NOISE)
    model.q_mu.assign(S @ L.T @ Y / NOISE)
    model.q_sqrt.assign(np.linalg.cholesky(S)[None])
    return model


@pytest.fixture(scope="module")
def fitted(X: AnyNDArray, Y: AnyNDArray) -> AugmentedVGP:
    model = AugmentedVGP((X, Y), Matern32(), likelihoods.StudentT(scale=0.3, df=4.0))
    step = tf.function(lambda: AugmentedNaturalGradient().minimize(model), autograph=False)
    for _ in range(20):
        step()
    return model


@pytest.fixture
def student_t(fitted: AugmentedVGP) -> AugmentedVGP:
    """A copy that a test may change."""
    return gpflow.utilities.deepcopy(fitted)


# ---- the weights ----


def test_every_weight_of_the_exact_posterior_is_the_evidence(
    exact: AugmentedVGP, X: AnyNDArray, Y: AnyNDArray
) -> None:
    """p(y|f) p(f) / p(f|y) = p(y) for every f."""
    marginal = prior_covariance(X) + NOISE * np.eye(N)
    evidence = scipy.stats.multivariate_normal.logpdf(Y[:, 0], np.zeros(N), marginal)
    np.testing.assert_allclose(importance_weights(exact, 100)[1], evidence, rtol=1e-10)


@pytest.mark.briefly("Logistic-2")
@pytest.mark.by_default("StudentT", "Logistic")
@pytest.mark.parametrize("P", [1, 2])
def test_weights_are_those_of_scipys_densities_of_f(
    X: AnyNDArray, P: int, randomise_q: Randomise, make_likelihood: MakeLikelihood, observe: Observe
) -> None:
    """The densities p(f) and q(f) of every latent GP are SciPy's, and include the mean function."""
    likelihood = make_likelihood()
    X, Y = X[:4], observe(likelihood, X[:4], P)
    mean_function = gpflow.functions.Constant(0.4)
    model = AugmentedVGP((X, Y), Matern32(), likelihood, mean_function)
    randomise_q(model)
    F, log_weights = importance_weights(model, 50, seed=3)
    assert F.shape == (50, 4, P)
    K = prior_covariance(X)
    L = np.linalg.cholesky(K)
    log_likelihood = np.stack([likelihood.log_prob(X, f, Y).numpy().sum() for f in F])
    expected = log_likelihood
    for p in range(P):
        mean, R = L @ model.q_mu.numpy()[:, p], L @ model.q_sqrt.numpy()[p]
        log_p = scipy.stats.multivariate_normal.logpdf(F[:, :, p], np.full(4, 0.4), K)
        log_q = scipy.stats.multivariate_normal.logpdf(F[:, :, p], mean + 0.4, R @ R.T)
        expected = expected + log_p - log_q
    np.testing.assert_allclose(log_weights, expected, rtol=1e-8, atol=1e-8)


def test_draws_are_those_of_q(student_t: AugmentedVGP, X: AnyNDArray) -> None:
    """Their mean and covariance are those of predict_f, within five standard errors."""
    S = 20_000
    F = importance_weights(student_t, S)[0][:, :, 0]
    mean, cov = student_t.predict_f(X, full_cov=True)
    mean, cov = mean.numpy()[:, 0], cov.numpy()[0]
    variance = np.diag(cov)
    assert np.all(np.abs(F.mean(0) - mean) < 5.0 * np.sqrt(variance / S))
    error = np.sqrt((np.outer(variance, variance) + cov**2) / S)
    assert np.all(np.abs(np.cov(F.T) - cov) < 5.0 * error)


def test_mean_weight_is_the_evidence_by_quadrature(Y: AnyNDArray) -> None:
    """
    For Student-t noise and two data, q is not the posterior. The error is five standard errors.
    """
    X, Y = np.array([[0.0], [0.7]]), Y[:2]
    model = AugmentedVGP((X, Y), Matern32(), likelihoods.StudentT(scale=0.5, df=4.0))
    AugmentedNaturalGradient().minimize(model)
    prior = scipy.stats.multivariate_normal([0.0, 0.0], prior_covariance(X))

    f = np.linspace(-6.0, 6.0, 1_001)  # trapezoidal rule, exact for such smooth f
    F = np.stack(np.meshgrid(f, f, indexing="ij"), -1)
    joint = np.prod(scipy.stats.t.pdf(Y[:, 0], 4.0, loc=F, scale=0.5), -1) * prior.pdf(F)
    evidence = joint.sum() * (f[1] - f[0]) ** 2
    weights = np.exp(importance_weights(model, 20_000)[1])
    error = weights.std() / np.sqrt(len(weights))
    assert error < 0.02 * evidence
    assert abs(weights.mean() - evidence) < 5.0 * error


# ---- k̂ ----


def test_exact_posterior_has_no_tail(exact: AugmentedVGP) -> None:
    """All weights are equal up to rounding, where ArviZ would return +inf."""
    assert psis_khat(exact) == -np.inf


def test_q_within_the_posterior_is_unreliable(exact: AugmentedVGP, student_t: AugmentedVGP) -> None:
    for model in (exact, student_t):
        model.q_sqrt.assign(0.3 * model.q_sqrt)
        assert psis_khat(model) > 0.7


def test_khat_of_wide_and_narrow_gaussians_is_the_known_tail_index() -> None:
    """
    For p = N(0, 1) and q = N(0, s²), P(w > t) ~ t^(−1/k) with k = 1 − s².

    If q is wider than p, the weights are bounded and k̂ is negative.
    """
    model = AugmentedVGP((np.zeros((1, 1)), np.zeros((1, 1))), Matern32(), likelihoods.Gaussian())
    L = np.sqrt(prior_covariance(np.zeros((1, 1))))
    sd = 1.0 / np.sqrt(1.0 + L**2)
    khats = {}
    for s in (0.3, 0.6, 1.5):
        model.q_sqrt.assign(s * sd[None])
        khats[s] = psis_khat(model, 200_000)
    assert khats[1.5] < 0.0
    for s in (0.3, 0.6):  # the estimate converges slowly
        assert abs(khats[s] - (1.0 - s**2)) < 0.15


def test_adequate_fit_is_usable(student_t: AugmentedVGP) -> None:
    assert max(psis_khat(student_t, seed=seed) for seed in range(3)) < 0.7


def test_seed_decides(student_t: AugmentedVGP) -> None:
    """Only the argument decides; TensorFlow's global seed has no effect."""
    first = psis_khat(student_t, 500, seed=1)
    tf.random.set_seed(5)
    assert psis_khat(student_t, 500, seed=1) == first
    a, b = (importance_weights(student_t, 500, seed=seed)[0] for seed in (1, 2))
    assert np.all(a != b)


@pytest.mark.slow
def test_float32_is_close_to_float64(X: AnyNDArray, Y: AnyNDArray) -> None:
    """Averages over seeds agree; draws of one seed differ between dtypes."""
    khats = []
    for dtype in (np.float64, np.float32):
        gpflow.config.set_default_float(dtype)
        gpflow.config.set_default_jitter(1e-4)
        data = X.astype(dtype), Y.astype(dtype)
        model = AugmentedVGP(data, Matern32(), likelihoods.StudentT(scale=0.3, df=4.0))
        for _ in range(20):
            AugmentedNaturalGradient().minimize(model)
        assert importance_weights(model, 100)[0].dtype == dtype
        khats.append(np.mean([psis_khat(model, seed=seed) for seed in range(5)]))
    assert abs(khats[0] - khats[1]) < 0.2


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"num_samples": 24}, "num_samples.*25.*24"),
        ({"num_samples": 100.0}, "num_samples.*integer.*100.0"),
        ({"seed": -1}, "seed.*-1"),
        ({"seed": None}, "seed.*None"),
    ],
)
def test_bad_arguments_are_named(
    student_t: AugmentedVGP, kwargs: dict[str, Any], message: str
) -> None:
    for function in (psis_khat, importance_weights):
        with pytest.raises(ValueError, match=message):
            function(student_t, **kwargs)


def test_sparse_model_is_refused(X: AnyNDArray) -> None:
    model: Any = AugmentedSVGP(Matern32(), likelihoods.Laplace(), X[:3].copy())
    with pytest.raises(ValueError, match=r"model must be an AugmentedVGP.*AugmentedSVGP"):
        psis_khat(model)


def test_q_without_full_rank_is_refused(student_t: AugmentedVGP) -> None:
    student_t.q_sqrt.assign(np.zeros((1, N, N)))
    with pytest.raises(ValueError, match="full rank"):
        psis_khat(student_t)
