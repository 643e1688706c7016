"""
Errors that published code for these augmentations has had, each with an oracle.

Every test shows that the package agrees with the oracle and that the wrong formula does not. The
oracles are finite differences of SciPy's densities, sums over all n, and quadrature.

Two identities help. The score of p(y|f) is the mean of its augmented counterpart (Fisher): ∂ log
p(y|f)/∂f = E_{aux|f,y} [potential − precision f]. And given only the counts n, log p(y, n|f) has a
potential that does not depend on f, namely its score at f = 0, so that precision = (score at 0 −
score at f)/f.
"""

import itertools
import math
from collections.abc import Callable
from typing import NamedTuple

import gpflow
import numpy as np
import pytest
import scipy.integrate
import scipy.stats
import tensorflow as tf
from cases import laplace_log_density, mean_of
from gpflow.base import AnyNDArray
from scipy.special import expit, gammaln

from gpflow_aaci import AugmentedSVGP
from gpflow_aaci.augmentation import (
    aux_kldivergence,
    aux_posterior_c,
    expected_aug_loglik,
    expected_auglik_precision,
    expected_logtilt,
)
from gpflow_aaci.likelihoods import (
    AugmentedLikelihood,
    Gaussian,
    Heteroscedastic,
    Laplace,
    LogisticSoftmax,
    NegativeBinomial,
    Poisson,
    StudentT,
)

DRAWS = 20_000
STANDARD_ERRORS = 5.0


class Estimate(NamedTuple):
    """Means of draws and their standard errors, of the same shape."""

    mean: AnyNDArray
    error: AnyNDArray

    def agrees_with(self, expected: AnyNDArray) -> bool:
        return bool(np.all(np.abs(self.mean - expected) < STANDARD_ERRORS * self.error))

    def rejects(self, expected: AnyNDArray) -> bool:
        """Whether every error is ten times as large as ``agrees_with`` tolerates."""
        return bool(np.all(np.abs(self.mean - expected) > 10.0 * STANDARD_ERRORS * self.error))


def rejects(found: AnyNDArray, wrong: AnyNDArray) -> bool:
    """Whether all values differ by far more than the tests' tolerances."""
    return bool(np.all(np.abs(np.subtract(found, wrong)) > 0.05))


def estimate(draws: tf.Tensor) -> Estimate:
    """Means and standard errors over the first axis."""
    return Estimate(np.mean(draws, 0), np.std(draws, 0) / np.sqrt(len(draws)))


def gibbs_site(
    likelihood: AugmentedLikelihood, F: AnyNDArray, Y: AnyNDArray
) -> tuple[Estimate, Estimate]:
    """Mean potential and precision [N, L] of the sites that Gibbs sampling draws at f."""
    F, Y = tf.constant(F), tf.constant(Y)
    auxiliary = likelihood.full_conditional(None, F, Y).sample(DRAWS, seed=[1, 2])
    potential, precision = likelihood.site(None, auxiliary, Y)
    return estimate(tf.broadcast_to(potential, [DRAWS, *F.shape])), estimate(precision)


def closed_form_site(
    likelihood: AugmentedLikelihood, Fmu: AnyNDArray, Fvar: AnyNDArray, Y: AnyNDArray
) -> tuple[AnyNDArray, AnyNDArray]:
    """Potential and precision [N, L] of the site that a closed-form step moves to."""
    Fmu, Fvar, Y = map(tf.constant, (Fmu, Fvar, Y))
    in_mean, in_variance = likelihood.bound_slopes(Y, Fmu, Fvar, Y)
    precision = -2.0 * in_variance
    return (in_mean + precision * Fmu).numpy(), precision.numpy()


def slope(
    function: Callable[[AnyNDArray], AnyNDArray], f: AnyNDArray, along: AnyNDArray | float = 1.0
) -> AnyNDArray:
    """
    The derivative of an elementwise function, or along a direction, by fourth-order differences.
    """
    h = 1e-3
    near, far = (function(f + k * h * along) - function(f - k * h * along) for k in (1, 2))
    return (8.0 * near - far) / (12.0 * h)


def precision_by_scores(
    log_density: Callable[[AnyNDArray], AnyNDArray], f: AnyNDArray
) -> AnyNDArray:
    """(score at 0 − score at f)/f, which is right if the potential does not depend on f."""
    return (slope(log_density, 0.0 * f) - slope(log_density, f)) / f


# ---- counts: a precision off by 2 ----

F = np.array([[-1.7], [0.6], [2.4]])
COUNTS = np.array([[2.0], [7.0], [4.0]])


def test_the_precision_of_a_negative_binomial_is_not_off_by_2() -> None:
    """
    ω ~ PG(y + r, f)/2 enters as e^{−f²ω}: the precision is 2ω, on average (y + r) tanh(f/2)/2f.
    """
    r, zero = 3.3, np.zeros_like(F)
    expected = precision_by_scores(lambda f: scipy.stats.nbinom.logpmf(COUNTS, r, expit(-f)), F)
    likelihood = NegativeBinomial(r)
    _, of_gibbs = gibbs_site(likelihood, F, COUNTS)
    _, of_step = closed_form_site(likelihood, F, zero, COUNTS)
    c = aux_posterior_c(likelihood, *map(tf.constant, (F, zero, COUNTS)))
    of_verb = expected_auglik_precision(likelihood, c, tf.constant(COUNTS)).numpy()
    assert of_gibbs.agrees_with(expected)
    np.testing.assert_allclose(of_step, expected, rtol=1e-7)
    np.testing.assert_allclose(of_verb, expected, rtol=1e-7)
    for factor in (0.5, 2.0):
        assert of_gibbs.rejects(factor * expected)
        assert rejects(of_step, factor * expected)


def test_the_precision_of_a_poisson_count_is_not_off_by_2() -> None:
    """The precision of σ(f)^y σ(−f)^n given n is averaged over p(n|f, y) by summation."""
    rate, n = 9.0, np.arange(80.0)[:, None, None]

    def log_joint(f: AnyNDArray) -> AnyNDArray:
        """log p(y, n|f), [n, N, 1]."""
        log_sigmoids = COUNTS * np.log(expit(f)) + n * np.log(expit(-f))
        of_counts = (COUNTS + n) * np.log(rate) - gammaln(COUNTS + 1) - gammaln(n + 1) - rate
        return of_counts + log_sigmoids

    weights = np.exp(log_joint(F))  # summed over n this is p(y|f), as it must be
    textbook = scipy.stats.poisson.pmf(COUNTS, rate * expit(F))
    np.testing.assert_allclose(weights.sum(0), textbook, rtol=1e-10)
    expected = np.sum(weights * precision_by_scores(log_joint, F), 0) / weights.sum(0)

    likelihood = Poisson(rate)
    _, of_gibbs = gibbs_site(likelihood, F, COUNTS)
    _, of_step = closed_form_site(likelihood, F, np.zeros_like(F), COUNTS)
    assert of_gibbs.agrees_with(expected)
    np.testing.assert_allclose(of_step, expected, rtol=1e-7)
    for factor in (0.5, 2.0):
        assert of_gibbs.rejects(factor * expected)
        assert rejects(of_step, factor * expected)


# ---- the heteroscedastic Gaussian: a halved potential, and σ(+g) ----

MAX_PRECISION = 5.0
FG = np.array([[0.3, 1.3], [-0.8, -1.1], [1.4, 0.9]])
REAL = np.array([[2.5], [1.0], [-0.9]])


def log_normal(f: AnyNDArray, g: AnyNDArray) -> AnyNDArray:
    return scipy.stats.norm.logpdf(REAL, f, (MAX_PRECISION * expit(g)) ** -0.5)


def test_the_potential_of_f_under_a_precision_of_its_own_is_not_halved() -> None:
    """
    log N(y

    f, 1/λσ(g)) is a parabola in f, with the potential as its slope at f = 0.
    """
    f, g = FG[:, :1], FG[:, 1:]
    potential = slope(lambda f: log_normal(f, g), 0.0 * f)
    precision = precision_by_scores(lambda f: log_normal(f, g), f)
    likelihood = Heteroscedastic(Gaussian(), MAX_PRECISION)
    of_gibbs = [part.mean for part in gibbs_site(likelihood, FG, REAL)]  # f given g needs no draws
    of_step = closed_form_site(likelihood, FG, np.zeros_like(FG), REAL)
    for found_potential, found_precision in (of_gibbs, of_step):
        np.testing.assert_allclose(found_potential[:, :1], potential, rtol=1e-7)
        np.testing.assert_allclose(found_precision[:, :1], precision, rtol=1e-7)
        assert rejects(found_potential[:, :1], potential / 2.0)
        assert rejects(found_precision[:, :1], MAX_PRECISION * expit(-g))  # the wrong sign in σ


def test_the_counts_of_a_precision_have_the_rate_of_minus_g() -> None:
    """
    p(n|f, g, y) by Bayes' rule from n ~ Poisson(λR) and σ(−g)^n, R = (y − f)²/2, with a sum over n.
    """
    f, g = FG[:, :1], FG[:, 1:]
    largest = 0.5 * MAX_PRECISION * np.square(REAL - f)
    n = np.arange(120.0)[:, None, None]
    weights = scipy.stats.poisson.pmf(n, largest) * expit(-g) ** n
    mean_n = np.sum(n * weights, 0) / weights.sum(0)
    # The rest of the normal density is √(λσ(g)/2π), so this augmentation is right.
    normal = np.sqrt(MAX_PRECISION * expit(g) / (2.0 * np.pi)) * weights.sum(0)
    np.testing.assert_allclose(normal, np.exp(log_normal(f, g)), rtol=1e-10)

    likelihood = Heteroscedastic(Gaussian(), MAX_PRECISION)
    of_gibbs, precision = (
        Estimate(part.mean[:, 1:], part.error[:, 1:]) for part in gibbs_site(likelihood, FG, REAL)
    )
    of_step, step_precision = (
        part[:, 1:] for part in closed_form_site(likelihood, FG, np.zeros_like(FG), REAL)
    )
    potential = (0.5 - mean_n) / 2.0
    assert of_gibbs.agrees_with(potential)
    np.testing.assert_allclose(of_step, potential, rtol=1e-7)
    # Differences of the score give the precision.
    score = slope(lambda g: log_normal(f, g), g)
    assert precision.agrees_with((potential - score) / g)
    np.testing.assert_allclose(step_precision, (potential - score) / g, rtol=1e-7)

    of_plus_g = (0.5 - largest * expit(g)) / 2.0
    for wrong in (of_plus_g, potential / 2.0):
        assert of_gibbs.rejects(wrong)
        assert rejects(of_step, wrong)


# ---- classes: σ(+f) in the counts' law ----


def test_the_counts_of_classes_have_the_rates_of_minus_f() -> None:
    """
    p(n|f, k) with the rate integrated out, summed over n in ℕ³.

    ∫ Π_j Poisson(n_j

    t) dt = (Σn)!/Π n_j! K^{−Σn−1}, multiplied by σ(f_k) Π_j σ(−f_j)^{n_j}.
    """
    K, f, label = 3, np.array([1.2, 0.7, 2.0]), 1
    n = np.array(list(itertools.product(range(40), repeat=K)), float)
    total = n.sum(-1)
    log_weights = gammaln(total + 1) - gammaln(n + 1).sum(-1) - (total + 1) * np.log(K)
    weights = np.exp(log_weights + n @ np.log(expit(-f))) * expit(f[label])
    textbook = expit(f[label]) / expit(f).sum()
    assert weights.sum() == pytest.approx(textbook, rel=1e-8)
    mean_n = weights @ n / weights.sum()

    likelihood, Y = LogisticSoftmax(K), np.array([[float(label)]])
    own = np.eye(K)[label]
    of_gibbs, precision = gibbs_site(likelihood, f[None], Y)
    of_step, step_precision = closed_form_site(likelihood, f[None], np.zeros((1, K)), Y)
    potential = (own - mean_n) / 2.0
    assert of_gibbs.agrees_with(potential)
    np.testing.assert_allclose(of_step[0], potential, rtol=1e-7)
    score = [
        slope(lambda moved: np.log(expit(moved[label]) / expit(moved).sum()), f, along)
        for along in np.eye(K)
    ]
    assert precision.agrees_with((potential - score) / f)
    np.testing.assert_allclose(step_precision[0], (potential - score) / f, rtol=1e-7)

    of_plus_f = (own - expit(f) / expit(f).sum()) / 2.0
    assert of_gibbs.rejects(of_plus_f)
    assert rejects(of_step[0], of_plus_f)


# ---- the sign of the KL ----


@pytest.mark.parametrize("name", ["StudentT", "Laplace"])
def test_the_kl_of_omega_is_subtracted(name: str) -> None:
    """
    ∫ q log q/p dω is computed by quadrature; the bound is E log p(y|ω, f) minus it, not plus it.
    """
    mean, variance, y = (tf.constant([[v]], tf.float64) for v in (0.4, 0.5, 1.9))
    c = tf.constant([[1.3]], tf.float64)
    likelihood, prior, posterior = {
        "StudentT": (
            StudentT(0.6, df=4.3),
            scipy.stats.gamma(2.65, scale=1 / 4.3),
            scipy.stats.gamma(2.65, scale=1 / (4.3 + 1.3**2)),
        ),
        "Laplace": (
            Laplace(0.7),
            scipy.stats.invgamma(0.5, scale=1 / (4 * 0.7**2)),
            # mean 1/(2βc) and shape 1/(2β²); SciPy's μ is mean/shape
            scipy.stats.invgauss(0.7 / 1.3, scale=1 / (2 * 0.7**2)),
        ),
    }[name]

    def integrand(omega: float) -> float:
        log_q = posterior.logpdf(omega)
        return float(np.exp(log_q) * (log_q - prior.logpdf(omega)))

    edges = posterior.ppf([1e-14, 1e-4, 0.5, 0.9999, 1 - 1e-13])
    kl = sum(
        scipy.integrate.quad(integrand, low, high, epsabs=1e-12)[0]
        for low, high in itertools.pairwise(edges)
    )
    found = float(aux_kldivergence(likelihood, c)[0, 0])
    assert found == pytest.approx(kl, abs=1e-8)
    assert kl > 0.05  # so that the wrong sign gives another number
    expected_log = expected_logtilt(likelihood, c, mean, variance, y)
    bound = float(expected_aug_loglik(likelihood, c, mean, variance, y)[0, 0])
    assert bound == pytest.approx(float(expected_log[0, 0]) - kl, abs=1e-8)
    assert abs(bound - (float(expected_log[0, 0]) + kl)) > 0.1


def test_the_laplace_bound_with_the_kl_of_the_other_sign_is_no_bound() -> None:
    """At the best c, ours lies below E log p(y|f), and the wrong one above it."""
    likelihood = Laplace(0.7)
    mean, variance, y = (tf.constant([[v]], tf.float64) for v in (0.4, 0.5, 1.9))
    log_density = laplace_log_density(0.7)
    most = mean_of(lambda f: log_density(1.9, f), 0.4, math.sqrt(0.5), [1.9])
    c = aux_posterior_c(likelihood, mean, variance, y)
    bound = float(expected_aug_loglik(likelihood, c, mean, variance, y)[0, 0])
    assert bound < most
    assert bound + 2.0 * float(aux_kldivergence(likelihood, c)[0, 0]) > most + 0.1


def test_the_kl_of_q_of_u_is_subtracted() -> None:
    """With Gaussian noise and Z = X, the ELBO of the exact posterior is SciPy's log p(y)."""
    rng = np.random.default_rng(0)
    X, Y = np.linspace(0.0, 3.0, 6)[:, None], rng.normal(size=(6, 1))
    kernel = gpflow.kernels.Matern32()
    model = AugmentedSVGP(kernel, Gaussian(0.3), X.copy(), whiten=False, num_data=6)
    K = kernel(X).numpy()
    gain = K @ np.linalg.inv(K + 0.3 * np.eye(6))
    model.q_mu.assign(gain @ Y)
    model.q_sqrt.assign(np.linalg.cholesky(K - gain @ K)[None])
    evidence = scipy.stats.multivariate_normal.logpdf(Y[:, 0], np.zeros(6), K + 0.3 * np.eye(6))
    elbo, kl = float(model.augmented_elbo((X, Y))), float(model.prior_kl())
    assert elbo == pytest.approx(evidence, abs=1e-4)  # because of GPflow's jitter
    assert kl > 0.5
    assert elbo + 2.0 * kl > evidence + 1.0
