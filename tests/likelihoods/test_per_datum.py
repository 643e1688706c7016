"""What a datum brings along: weights, missing outputs, known variances of its noise."""

from collections.abc import Callable
from typing import Any

import arviz
import gpflow
import numpy as np
import pytest
import scipy.stats
import tensorflow as tf
from gpflow.base import AnyNDArray

from gpflow_aaci import (
    AugmentedNaturalGradient,
    AugmentedSVGP,
    AugmentedVGP,
    fit,
    likelihoods,
    loo,
    sample_posterior,
)
from gpflow_aaci.inference.rescues import noise_and_signal
from gpflow_aaci.likelihoods import Missing, Weighted, augmented
from gpflow_aaci.predictions import predict_y_quantile

N = 12
RNG = np.random.default_rng(11)
X = np.linspace(-1.0, 1.0, N)[:, None]
F = np.sin(3.0 * X)
WEIGHTS = np.array([1.0, 2.0, 0.0, 3.0] * 3)[:, None]
TIMES = WEIGHTS[:, 0].astype(int)
BASES: dict[str, tuple[Callable, AnyNDArray, int]] = {
    "StudentT": (lambda: likelihoods.StudentT(0.4, 4.0), F + 0.3 * RNG.normal(size=F.shape), 1),
    "Poisson": (lambda: likelihoods.Poisson(6.0), RNG.poisson(2.0 + F).astype(float), 1),
    "LogisticTree": (lambda: likelihoods.LogisticTree(3), (np.arange(N) % 3.0)[:, None], 2),
    "Binomial": (
        likelihoods.Binomial,
        np.stack([np.arange(N) % 4, np.full(N, 5)], 1).astype(float),
        1,
    ),
    "GPflow's Poisson": (
        lambda: augmented(gpflow.likelihoods.Poisson()),
        RNG.poisson(np.exp(F)).astype(float),
        1,
    ),
}
every_base = pytest.mark.parametrize("name", BASES)


def svgp(likelihood: gpflow.likelihoods.Likelihood, latents: int, rows: int) -> AugmentedSVGP:
    kernel = gpflow.kernels.Matern52(lengthscales=0.7)
    Z = np.linspace(-1.0, 1.0, 5)[:, None]
    return AugmentedSVGP(kernel, likelihood, Z, num_latent_gps=latents, num_data=rows)


@pytest.mark.briefly("LogisticTree")
@every_base
def test_a_weight_is_how_often_a_row_is_given(name: str) -> None:
    """Objectives, a step of any size and the other calls are those of the repeated rows."""
    make, Y, latents = BASES[name]
    weighted = svgp(Weighted(make()), latents, N)
    repeated = svgp(make(), latents, TIMES.sum())
    pairs = [
        (weighted, (X, np.hstack([Y, WEIGHTS]))),
        (repeated, (np.repeat(X, TIMES, 0), np.repeat(Y, TIMES, 0))),
    ]
    for step_size in (1.0, 0.4):
        for model, data in pairs:
            AugmentedNaturalGradient(step_size).minimize(model, data)
        np.testing.assert_allclose(weighted.q_mu, repeated.q_mu, rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(weighted.q_sqrt, repeated.q_sqrt, rtol=1e-8, atol=1e-10)
    for objective in ("elbo", "augmented_elbo", "predictive_objective"):
        values = [float(getattr(model, objective)(data)) for model, data in pairs]
        assert values[0] == pytest.approx(values[1], rel=1e-10)


@pytest.mark.slow
@pytest.mark.by_default("StudentT")
@pytest.mark.parametrize("name", ["StudentT", "LogisticTree"])
def test_a_fit_of_weighted_rows_is_the_fit_of_repeated_ones(name: str) -> None:
    make, Y, latents = BASES[name]
    weighted = svgp(Weighted(make()), latents, N)
    repeated = svgp(make(), latents, TIMES.sum())
    found = fit(weighted, (X, np.hstack([Y, WEIGHTS])), progress=False)
    expected = fit(repeated, (np.repeat(X, TIMES, 0), np.repeat(Y, TIMES, 0)), progress=False)
    assert found.elbo == pytest.approx(expected.elbo, abs=0.02)


@pytest.mark.parametrize(
    ("make", "y", "log_density"),
    [
        (
            lambda: likelihoods.StudentT(0.4, 4.0),
            1.1,
            lambda f: scipy.stats.t.logpdf(1.1, 4.0, f, 0.4),
        ),
        pytest.param(
            lambda: likelihoods.Poisson(6.0),
            1.0,
            lambda f: scipy.stats.poisson.logpmf(1.0, 6.0 / (1.0 + np.exp(-f))),
            marks=pytest.mark.slow,
        ),
    ],
    ids=["StudentT", "Poisson"],
)
def test_gibbs_draws_are_of_the_weighted_posterior(
    make: Callable, y: float, log_density: Callable
) -> None:
    """Of one datum of weight 3, and of one of weight 0 far from it, by quadrature over f."""
    data = np.array([[0.0], [50.0]]), np.array([[y, 3.0], [y, 0.0]])
    model = AugmentedVGP(data, gpflow.kernels.SquaredExponential(), Weighted(make()))
    draws = sample_posterior(model, num_samples=1_000, num_chains=4, num_burnin=50, progress=False)
    f = np.linspace(-8.0, 8.0, 4001)
    weights = [3.0, 0.0]
    for row, weight in enumerate(weights):
        log_p = weight * log_density(f) - 0.5 * f**2
        p = np.exp(log_p - log_p.max())
        values = draws.posterior["f"].values[:, :, row, 0]
        for power in (1, 2):
            expected = np.sum(p * f**power) / p.sum()
            error = np.std(values**power) / np.sqrt(arviz.ess(values**power))
            assert abs(np.mean(values**power) - expected) < 4.5 * error


def test_log_joint_and_site_of_weighted_rows_agree() -> None:
    """log p(y, ω|f) is quadratic in f, with the site's potential and precision; one ω is unused."""
    likelihood = Weighted(likelihoods.StudentT(0.4, 4.0))
    Y = tf.constant(np.hstack([BASES["StudentT"][1], WEIGHTS]))
    omega = likelihood.full_conditional(X, tf.constant(F), Y).sample(seed=[1, 2])
    assert omega.shape == (N, 1, 3)
    potential, precision = likelihood.site(X, omega, Y)
    at = [likelihood.log_joint(X, omega, tf.constant(F + x), Y) for x in (0.0, 0.7)]
    expected = potential * 0.7 - 0.5 * precision * ((F + 0.7) ** 2 - F**2)
    np.testing.assert_allclose(at[1] - at[0], expected, rtol=1e-9, atol=1e-9)


ENDS = np.hstack([F - 0.2, np.where(np.arange(N)[:, None] % 3 == 0, np.inf, F + 0.3)])
COPIED = BASES | {
    "Interval": (lambda: likelihoods.Interval("logit", 0.4), ENDS, 1),
    "Weighted StudentT": (
        lambda: Weighted(likelihoods.StudentT(0.4, 4.0)),
        np.hstack([F + 0.1, (np.arange(N) % 3.0)[:, None]]),
        1,
    ),
}


@pytest.mark.by_default("Interval", "Weighted StudentT")
@pytest.mark.parametrize(
    "name", ["Poisson", "LogisticTree", "Binomial", "Interval", "Weighted StudentT"]
)
@pytest.mark.slow
def test_bayes_rule_for_the_copies(name: str) -> None:
    """log p(y, ω|f) − log p(ω|f, y) is w log p(y|f) for any ω of all copies."""
    make, Y, latents = COPIED[name]
    likelihood, Y = Weighted(make()), tf.constant(np.hstack([Y, WEIGHTS]))
    f = tf.constant(np.random.default_rng(7).normal(size=(N, latents)))
    law = likelihood.full_conditional(X, f, Y)
    draws = law.sample(5, seed=[1, 2])
    copies = tf.nest.flatten(draws)[0].shape[-1]
    assert copies == 3
    expected = likelihood.log_prob(X, f, Y)
    one = tf.nest.map_structure(lambda part: part[2], draws)
    for some, rows in ((draws, [5, N, -1]), (one, [N, -1])):
        difference = likelihood.log_joint(X, some, f, Y) - law.log_prob(some)
        found = tf.reduce_sum(tf.reshape(difference, rows), -1)
        np.testing.assert_allclose(
            found, tf.broadcast_to(expected, found.shape), rtol=1e-8, atol=1e-8
        )


def test_gibbs_refuses_fractions() -> None:
    data = X, np.hstack([F, np.full((N, 1), 1.5)])
    model = AugmentedVGP(data, gpflow.kernels.Matern52(), Weighted(likelihoods.StudentT()))
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError), match="whole numbers for G"):
        sample_posterior(model, num_samples=2, num_chains=1, num_burnin=0, progress=False)


@pytest.mark.slow
def test_a_predicted_y_has_weight_one() -> None:
    """Quantiles, and leaving out a row of weight 1, are those of the unweighted model."""
    make, Y, _ = BASES["StudentT"]
    plain, weighted = svgp(make(), 1, N), svgp(Weighted(make()), 1, N)
    data = X, np.hstack([Y, np.ones_like(Y)])
    AugmentedNaturalGradient(1.0).minimize(plain, (X, Y))
    AugmentedNaturalGradient(1.0).minimize(weighted, data)
    levels = [0.1, 0.5, 0.9]
    expected = predict_y_quantile(plain, X, levels)
    np.testing.assert_allclose(predict_y_quantile(weighted, X, levels), expected, rtol=1e-8)
    np.testing.assert_allclose(
        loo(weighted, data).loo_i, loo(plain, (X, Y)).loo_i, rtol=1e-8, atol=1e-10
    )


# ---- missing outputs ----


def two_outputs() -> AnyNDArray:
    Y = np.hstack([F, -F]) + 0.2 * np.random.default_rng(2).normal(size=(N, 2))
    Y[[0, 3, 4, 9], 0] = Y[[1, 5, 7], 1] = np.nan
    return Y


@pytest.mark.briefly("Gaussian")
@pytest.mark.parametrize("base", [likelihoods.StudentT, likelihoods.Gaussian, likelihoods.Laplace])
def test_a_missing_output_is_one_that_was_never_given(base: Callable) -> None:
    """The two outputs, apart: each the model of its own rows."""
    Y = two_outputs()
    both = svgp(Missing(base()), 2, N)
    AugmentedNaturalGradient(1.0).minimize(both, (X, Y))
    elbos = []
    for output in range(2):
        rows = ~np.isnan(Y[:, output])
        alone = svgp(base(), 1, rows.sum())
        data = X[rows], Y[rows, output, None]
        AugmentedNaturalGradient(1.0).minimize(alone, data)
        np.testing.assert_allclose(both.q_mu[:, output], alone.q_mu[:, 0], rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(both.q_sqrt[output], alone.q_sqrt[0], rtol=1e-8, atol=1e-10)
        elbos.append(float(alone.elbo(data)))
    assert float(both.elbo((X, Y))) == pytest.approx(sum(elbos), rel=1e-10)


@pytest.mark.replicate
def test_a_coregionalised_model_predicts_what_is_missing() -> None:
    """Fitted to Gaussian noise: the exact posterior of a GP at the observed outputs."""
    Y, W = two_outputs(), np.array([[1.0, 0.3], [-0.8, 0.6]])
    kernels = [gpflow.kernels.Matern52(lengthscales=s) for s in (0.7, 1.3)]
    mixed = gpflow.kernels.LinearCoregionalization(kernels, W=W)
    model = AugmentedSVGP(
        mixed, Missing(likelihoods.Gaussian(0.04)), X.copy(), num_latent_gps=2, num_data=N
    )
    for _ in range(200):
        AugmentedNaturalGradient(1.0).minimize(model, (X, Y))
    K = sum(np.kron(np.outer(w, w), k(X)) for w, k in zip(W.T, kernels, strict=True))
    y = Y.T.ravel()
    seen = ~np.isnan(y)
    noisy = K[np.ix_(seen, seen)] + 0.04 * np.eye(seen.sum())
    expected = K[:, seen] @ np.linalg.solve(noisy, y[seen])
    mean, _ = model.predict_f(X)
    np.testing.assert_allclose(mean, expected.reshape(2, N).T, atol=2e-4)


def test_an_empty_row_is_refused_unless_asked_for() -> None:
    Y = two_outputs()
    Y[5] = np.nan  # its second output was missing already
    with pytest.raises(ValueError, match=r"an observed output in every row.*\[5\]"):
        svgp(Missing(likelihoods.StudentT()), 2, N).elbo((X, Y))
    allowed = svgp(Missing(likelihoods.StudentT(), empty_rows=True), 2, N)
    rest = svgp(Missing(likelihoods.StudentT()), 2, N - 1)
    others = np.arange(N) != 5
    assert float(allowed.elbo((X, Y))) == pytest.approx(float(rest.elbo((X[others], Y[others]))))


# ---- known variances ----


def test_one_step_is_exact_regression_with_a_diagonal_of_noise() -> None:
    s2 = np.random.default_rng(5).uniform(0.01, 0.5, size=(N, 1))
    Y = F + np.sqrt(s2 + 0.05) * np.random.default_rng(6).normal(size=F.shape)
    kernel = gpflow.kernels.Matern52(lengthscales=0.7)
    likelihood = likelihoods.Gaussian(0.05, with_noise_variance=True)
    model = AugmentedVGP((X, np.hstack([Y, s2])), kernel, likelihood)
    AugmentedNaturalGradient(1.0).minimize(model)
    noisy = kernel(X) + np.diag(s2[:, 0] + 0.05)
    X_new = np.array([[-0.83], [0.31], [1.4]])
    K = kernel(X_new, X).numpy()
    mean, variance = model.predict_f(X_new)
    np.testing.assert_allclose(mean, K @ np.linalg.solve(noisy, Y), atol=1e-5)
    expected = 1.0 - np.diag(K @ np.linalg.solve(noisy, K.T))
    np.testing.assert_allclose(variance[:, 0], expected, atol=1e-5)
    evidence = scipy.stats.multivariate_normal(np.zeros(N), noisy).logpdf(Y[:, 0])
    assert float(model.elbo()) == pytest.approx(evidence, abs=1e-4)
    _, of_y = model.predict_y(X_new)
    np.testing.assert_allclose(of_y, variance + 0.05, rtol=1e-12)


def collapsed_elbo(kernel: gpflow.kernels.Kernel, Z: Any, noise: Any, Y: Any, s2: Any) -> float:
    """The ELBO [] at the best q(u) of a sparse model with known noise variances s2 [N, 1]."""
    model = AugmentedSVGP(kernel, likelihoods.Gaussian(noise, with_noise_variance=True), Z)
    data = X, np.hstack([Y, s2])
    AugmentedNaturalGradient(1.0).minimize(model, data)
    return float(model.elbo(data))


def test_the_collapsed_elbo_is_titsias_bound_with_a_diagonal_of_noise() -> None:
    """
    log N(y | 0, Q + Λ) − ½ Σ (k_ii − q_ii)/Λ_ii, the heteroscedastic variational free energy (VFE)
    of BSGP's Eq. 14-15, in dense algebra; with Λ_ii + k_ii − q_ii in the place of Λ_ii it lacks no
    more than its second term to the evidence of GPflow's FITC.
    """
    rng = np.random.default_rng(5)
    s2 = rng.uniform(0.01, 0.5, size=(N, 1))
    Y = F + np.sqrt(s2 + 0.05) * rng.normal(size=F.shape)
    kernel, Z = gpflow.kernels.Matern52(lengthscales=0.7), np.array([[-0.9], [0.1], [0.8]])
    K_ZX = kernel(Z, X).numpy()
    Q = K_ZX.T @ np.linalg.solve(kernel(Z) + gpflow.default_jitter() * np.eye(3), K_ZX)
    rest = (1.0 - np.diag(Q))[:, None]
    assert rest.max() > 0.05  # few inducing points: the second term counts

    total = s2 + 0.05
    evidence = scipy.stats.multivariate_normal(np.zeros(N), Q + np.diag(total[:, 0]))
    expected = evidence.logpdf(Y[:, 0]) - 0.5 * np.sum(rest / total)
    assert collapsed_elbo(kernel, Z, 0.05, Y, s2) == pytest.approx(expected, rel=1e-9)

    fitc = gpflow.models.GPRFITC((X, Y), kernel, Z, noise_variance=0.05)
    evidence_of_fitc = collapsed_elbo(kernel, Z, 0.05, Y, rest) + 0.5 * np.sum(rest / (rest + 0.05))
    assert float(fitc.fitc_log_marginal_likelihood()) == pytest.approx(evidence_of_fitc, rel=1e-8)


@pytest.mark.parametrize(
    ("make", "Y", "message"),
    [
        (lambda: Weighted(likelihoods.StudentT()), [[1.0, -1.0]], r"not negative. Found: \[-1"),
        (
            lambda: Weighted(likelihoods.StudentT()),
            [[1.0, np.nan]],
            "The weight, .* must be finite",
        ),
        (lambda: Weighted(likelihoods.StudentT()), [[np.nan, 1.0]], "Y must be finite"),
        (lambda: Weighted(likelihoods.StudentT()), [[1.0]], r"2 \(y, weight\)"),
        (lambda: Weighted(likelihoods.Logistic()), [[0.5, 1.0]], "labels of Logistic"),
        (
            lambda: likelihoods.Gaussian(with_noise_variance=True),
            [[1.0, -0.1]],
            r"The noise variance, column 2 of Y, must not be negative. Found: \[-0.1",
        ),
        (lambda: Weighted(gpflow.likelihoods.Poisson()), [[1.0, 1.0]], "base must be a likelihood"),
        (
            lambda: likelihoods.Heteroscedastic(likelihoods.Gaussian(with_noise_variance=True)),
            [[1.0]],
            r"further columns of Y \(noise_variance\)",
        ),
        (lambda: Missing(likelihoods.LogisticTree(3)), [[1.0]], "base must be a product"),
        (lambda: Missing(likelihoods.Binomial()), [[1.0]], "base must be a product"),
    ],
)
def test_bad_input_is_named(make: Callable, Y: list, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        svgp(make(), 1, 1).elbo((X[:1], np.array(Y)))


@pytest.mark.parametrize("wrap", [Weighted, Missing])
def test_the_search_knows_the_scale_of_the_noise(wrap: Callable) -> None:
    """By it a fit sees that f explains nothing, and finds the unit of y."""
    noise, _ = noise_and_signal(svgp(wrap(likelihoods.StudentT(0.37)), 1, N))
    assert noise == pytest.approx(0.37)
