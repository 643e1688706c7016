"""Preferences: the kernel of f(x) − f(x′)."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf

from gpflow_aaci import (
    AugmentedNaturalGradient,
    AugmentedSVGP,
    AugmentedVGP,
    fit,
    likelihoods,
    loo,
    sample_posterior,
)
from gpflow_aaci.kernels import Difference

N, D = 40, 2
RNG = np.random.default_rng(8)
PAIRS = RNG.uniform(-1.0, 1.0, size=(N, 2 * D))
FIRST, SECOND = PAIRS[:, :D], PAIRS[:, D:]


def utility(x: np.ndarray) -> np.ndarray:
    return np.sin(3.0 * x[:, :1]) - x[:, 1:2] ** 2


GAIN = utility(FIRST) - utility(SECOND)
PREFERRED = (GAIN + 0.3 * RNG.logistic(size=GAIN.shape) > 0.0).astype(float)


def base() -> gpflow.kernels.Kernel:
    return gpflow.kernels.Matern52(variance=2.0, lengthscales=[0.7, 1.2])


def test_its_values_are_covariances_of_differences() -> None:
    """K = T k Tᵀ, where T takes f at all ends to their differences."""
    ends = np.vstack([FIRST, SECOND])
    T = np.hstack([np.eye(N), -np.eye(N)])
    expected = T @ base()(ends).numpy() @ T.T
    kernel = Difference(base(), D)
    np.testing.assert_allclose(kernel(PAIRS), expected, atol=1e-12)
    np.testing.assert_allclose(kernel(PAIRS, full_cov=False), np.diag(expected), atol=1e-12)
    np.testing.assert_allclose(kernel(FIRST), base()(FIRST), atol=1e-12)
    cross = kernel(PAIRS[:3], FIRST)
    expected = base()(FIRST[:3], FIRST) - base()(SECOND[:3], FIRST)
    np.testing.assert_allclose(cross, expected, atol=1e-12)


@pytest.mark.briefly("product")
@pytest.mark.parametrize(
    "kernel",
    [
        base() + gpflow.kernels.White(0.5),
        base() * gpflow.kernels.White(0.5),
        gpflow.kernels.White(0.5) + base() * (gpflow.kernels.White(0.2) + base()),
    ],
    ids=["sum", "product", "both"],
)
def test_white_noise_is_on_the_diagonal_of_every_covariance(kernel: gpflow.kernels.Kernel) -> None:
    """Var[f(x) − f(x′)] = k(x, x) − 2 cov + k(x′, x′), with the noise of both ends."""
    difference = Difference(kernel, D)
    of_ends = (kernel(end, full_cov=False) for end in (FIRST, SECOND))
    expected = sum(of_ends) - 2.0 * np.diag(kernel(FIRST, SECOND))
    np.testing.assert_allclose(np.diag(difference(PAIRS)), expected, rtol=1e-12)
    np.testing.assert_allclose(difference(PAIRS, full_cov=False), expected, rtol=1e-12)
    np.testing.assert_allclose(difference(FIRST), kernel(FIRST), rtol=1e-12)
    other = difference(PAIRS, PAIRS.copy())  # noise is new at other inputs
    off = ~np.eye(N, dtype=bool)
    np.testing.assert_allclose(difference(PAIRS).numpy()[off], other.numpy()[off], atol=1e-12)


def test_exchanging_a_pair_exchanges_its_label() -> None:
    """The bound and q(f) are unchanged, and P(x preferred) + P(x′ preferred) = 1."""
    swapped = np.hstack([SECOND, FIRST])
    flip = np.arange(N) % 2 == 0
    X = np.where(flip[:, None], swapped, PAIRS)
    y = np.where(flip[:, None], 1.0 - PREFERRED, PREFERRED)
    models = []
    for data in [(PAIRS, PREFERRED), (X, y)]:
        model = AugmentedSVGP(Difference(base(), D), likelihoods.Logistic(), FIRST[:9], num_data=N)
        AugmentedNaturalGradient(1.0).minimize(model, data)
        models.append((model, float(model.elbo(data))))
    np.testing.assert_allclose(models[0][0].q_mu, models[1][0].q_mu, rtol=1e-8, atol=1e-10)
    assert models[0][1] == pytest.approx(models[1][1], rel=1e-10)
    p, q = (models[0][0].predict_y(x)[0] for x in (PAIRS, swapped))
    np.testing.assert_allclose(p + q, 1.0, atol=1e-10)


def test_inducing_points_at_all_ends_make_the_sparse_model_the_full_one() -> None:
    """Differences have Gaussian noise here, so that one step is exact."""
    noise = likelihoods.Gaussian(0.1)
    sparse = AugmentedSVGP(Difference(base(), D), noise, np.vstack([FIRST, SECOND]), num_data=N)
    full = AugmentedVGP((PAIRS, GAIN), Difference(base(), D), likelihoods.Gaussian(0.1))
    AugmentedNaturalGradient(1.0).minimize(sparse, (PAIRS, GAIN))
    AugmentedNaturalGradient(1.0).minimize(full)
    exact = gpflow.models.GPR((PAIRS, GAIN), Difference(base(), D), noise_variance=0.1)
    evidence = float(exact.log_marginal_likelihood())
    assert float(full.elbo()) == pytest.approx(evidence, abs=2e-3)
    assert float(sparse.elbo((PAIRS, GAIN))) == pytest.approx(evidence, abs=2e-3)
    new = RNG.uniform(-1.0, 1.0, size=(5, D))  # of f itself, up to a constant that both share
    for model in (sparse, full):
        mean, variance = model.predict_f(new)
        expected, spread = exact.predict_f(new)
        np.testing.assert_allclose(mean, expected, atol=1e-3)
        np.testing.assert_allclose(variance, spread, atol=1e-3)


@pytest.mark.slow
def test_a_fit_finds_the_better_of_two_inputs() -> None:
    rng = np.random.default_rng(1)
    X = rng.uniform(-1.0, 1.0, size=(400, 2 * D))
    gain = utility(X[:, :D]) - utility(X[:, D:])
    y = (gain + 0.2 * rng.logistic(size=gain.shape) > 0.0).astype(float)
    model = AugmentedSVGP(
        Difference(base(), D), likelihoods.Logistic(), X[:30, :D].copy(), num_data=400
    )
    gpflow.set_trainable(model.inducing_variable, False)
    start = float(model.elbo((X, y)))
    found = fit(model, (X, y), progress=False)
    assert found.converged
    assert found.elbo > start + 50.0
    new = rng.uniform(-1.0, 1.0, size=(300, D))
    mean, _ = model.predict_f(new)
    assert np.corrcoef(mean[:, 0], utility(new)[:, 0])[0, 1] > 0.97
    assert loo(model, (X, y)).elpd_loo > 400 * np.log(0.5)


@pytest.mark.slow
def test_gibbs_draws_have_the_mean_of_weighted_draws_from_the_prior() -> None:
    few = 4  # labels, so that importance sampling from the prior is exact enough
    model = AugmentedVGP(
        (PAIRS[:few], PREFERRED[:few]), Difference(base(), D), likelihoods.Probit()
    )
    draws = sample_posterior(model, num_samples=4_000, num_chains=4, num_burnin=100, progress=False)
    f = draws.posterior["f"].values[..., 0]
    chol = np.linalg.cholesky(model.prior_covariance()[0].numpy())
    prior = np.random.default_rng(3).normal(size=(400_000, few)) @ chol.T
    log_p = likelihoods.Probit().log_prob(None, tf.constant(prior[..., None]), PREFERRED[:few])
    weight = np.exp(np.sum(log_p.numpy(), -1))
    expected = weight @ prior / weight.sum()
    np.testing.assert_allclose(f.mean((0, 1)), expected, atol=0.06)


def test_bad_input_is_named() -> None:
    with pytest.raises(ValueError, match=r"Difference: input_dim must be .* Found: 0"):
        Difference(base(), 0)
    with pytest.raises(ValueError, match=r"X must have 4 columns.*or 2.*Found: 3"):
        Difference(base(), D)(PAIRS[:, :3])
    model = AugmentedSVGP(Difference(base(), D), likelihoods.Probit(), FIRST[:5], num_data=N)
    with pytest.raises(ValueError, match="X must have as many columns"):
        model.elbo((FIRST, PREFERRED))


def test_a_pair_of_equal_inputs_says_nothing() -> None:
    """Its difference is 0: a constant is added to the ELBO, and q stays."""
    X = np.vstack([PAIRS, np.hstack([FIRST[:1], FIRST[:1]])])
    y = np.vstack([PREFERRED, [[1.0]]])
    elbos, means = [], []
    for data in [(PAIRS, PREFERRED), (X, y)]:
        model = AugmentedSVGP(
            Difference(base(), D), likelihoods.Logistic(), FIRST[:9], num_data=len(data[0])
        )
        AugmentedNaturalGradient(1.0).minimize(model, data)
        elbos.append(float(model.elbo(data)))
        means.append(model.q_mu.numpy())
    np.testing.assert_allclose(means[0], means[1], atol=1e-8)
    assert elbos[1] - elbos[0] == pytest.approx(np.log(0.5), abs=1e-6)
