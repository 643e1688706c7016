"""The functions of ``augmentation``, against closed-form laws of ω and the ordinary likelihood."""

import itertools
import math
from collections.abc import Callable

import mpmath as mp
import numpy as np
import pytest
import scipy.integrate
import scipy.stats
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import AnyNDArray, TensorType
from likelihoods.cases import AUGMENTED, CASES, CONTINUOUS, Case, case_id, column, mean_of

from gpflow_aaci import augmentation, likelihoods
from gpflow_aaci.likelihoods import SuperGaussianLikelihood

every_case = pytest.mark.parametrize("case", AUGMENTED, ids=case_id)
every_super_gaussian_case = pytest.mark.parametrize("case", CASES, ids=case_id)
EPS = np.finfo(np.float64).eps

# ---- π_φ(ω|c) in closed form, from SciPy ----


def generalized_inverse_gaussian(p: float, a: float, b: float) -> scipy.stats.rv_continuous:
    """The law of density ∝ ω^(p−1) exp(−(a ω + b/ω)/2); a = 0 needs p < 0."""
    if a == 0.0:
        return scipy.stats.invgamma(-p, scale=b / 2.0)
    return scipy.stats.geninvgauss(p, math.sqrt(a * b), scale=math.sqrt(b / a))


def inverse_gaussian(c: float, scale: float) -> scipy.stats.rv_continuous:
    """The law of mean 1/(2·scale·c) and shape 1/(2·scale²), or the Lévy law if c = 0."""
    shape = 0.5 / scale**2
    if c == 0.0:
        return scipy.stats.levy(scale=shape)
    return scipy.stats.invgauss(0.5 / (scale * c) / shape, scale=shape)


def positive_normal(loc: float) -> scipy.stats.rv_continuous:
    """N(loc, 1) truncated to positive numbers."""
    return scipy.stats.truncnorm(-loc, np.inf, loc=loc)


class HalfPolyaGamma:
    """PG(1, c)/2 by the alternating series of its density."""

    def __init__(self, c: float) -> None:
        self.c = c

    def pdf(self, omega: float) -> float:
        x = 2.0 * omega  # PG(1, 0)
        if x > 1.0:  # two terms are exact in the tail
            density = 2.0 * math.pi * math.exp(-(math.pi**2) * x / 2.0)
            density *= 1.0 - 3.0 * math.exp(-4.0 * math.pi**2 * x)
        else:
            n = np.arange(60)
            odd = 2 * n + 1
            terms = (-1.0) ** n * odd * np.exp(-(odd**2) / (8.0 * x))
            density = float(np.sum(terms)) / math.sqrt(2.0 * math.pi * x**3)
        return 2.0 * density * math.cosh(self.c / 2.0) * math.exp(-(self.c**2) * omega)


TILTED: dict[str, Callable[[float], scipy.stats.rv_continuous]] = {
    "StudentT": lambda c: scipy.stats.gamma((4.3 + 1) / 2, scale=1 / (4.3 + c**2)),
    "StudentT-heavy": lambda c: scipy.stats.gamma((0.8 + 1) / 2, scale=1 / (0.8 + c**2)),
    "Laplace": lambda c: inverse_gaussian(c, 0.7),
    "Matern32": lambda c: generalized_inverse_gaussian(-1.5, 2 * c**2, 1.5 / 1.6**2),
    "Matern52": lambda c: generalized_inverse_gaussian(-2.5, 2 * c**2, 2.5 / 0.45**2),
    "Logistic": HalfPolyaGamma,
    "BayesianSVM": lambda c: inverse_gaussian(c, 1.0),
    "Probit": lambda c: positive_normal(math.log(c)),
}
# For the Gaussian likelihood, ω is the constant 1/2σ².
POINT_MASS = {"Gaussian": 0.5 / 0.49, "Gaussian-scale": 0.5 / 1.7**2}

with_density = pytest.mark.parametrize(
    "case", [c for c in AUGMENTED if c.name in TILTED], ids=case_id
)


def prior_of(case: Case) -> scipy.stats.rv_continuous:
    """
    π(ω), which is the tilted law at c = 1 for the half-normal law and at c = 0 for all others.
    """
    return TILTED[case.name](1.0 if case.name == "Probit" else 0.0)


def integrate_omega(integrand: Callable[[float], float]) -> float:
    """The integral over ω in (0, ∞), by quadrature in log ω."""
    edges = np.linspace(-25.0, 25.0, 26)
    return sum(
        scipy.integrate.quad(
            lambda t: integrand(math.exp(t)) * math.exp(t), a, b, epsabs=1e-14, epsrel=1e-11
        )[0]
        for a, b in itertools.pairwise(edges)
    )


def times_density(exponent: float, density: float) -> float:
    """e^exponent · density, or 0 if the density has underflowed, however large the exponent is."""
    return math.exp(exponent + math.log(density)) if density > 0.0 else 0.0


# ---- q(ω) ----


@pytest.mark.briefly("0.3-Logistic")
@pytest.mark.by_default("0.3")
@with_density
@pytest.mark.parametrize("c", [0.3, 1.0, 4.0])
def test_mean_and_kl_are_those_of_the_closed_form_law(case: Case, c: float) -> None:
    """ω̄ = E ω and KL[π(·|c) ‖ π(·|0)] are computed by integrating the densities."""
    law, prior = TILTED[case.name](c), prior_of(case)

    def relative_entropy(omega: float) -> float:
        q, p = law.pdf(omega), prior.pdf(omega)
        return q * math.log(q / p) if q > 1e-250 and p > 1e-250 else 0.0

    mean = float(augmentation.aux_posterior_mean(case.make(), column(c))[0, 0])
    assert mean == pytest.approx(integrate_omega(lambda w: w * law.pdf(w)), rel=1e-8)
    kl = float(augmentation.aux_kldivergence(case.make(), column(c))[0, 0])
    assert kl == pytest.approx(integrate_omega(relative_entropy), rel=1e-7, abs=1e-9)


@pytest.mark.parametrize(
    ("name", "mean"),
    [
        ("Gaussian", lambda c: 0.5 / 0.49 + 0 * c),
        ("Gaussian-scale", lambda c: 0.5 / 1.7**2 + 0 * c),
        ("StudentT", lambda c: (4.3 + 1) / 2 / (4.3 + c**2)),
        ("StudentT-heavy", lambda c: (0.8 + 1) / 2 / (0.8 + c**2)),
        ("Laplace", lambda c: 1 / (2 * 0.7 * c)),
        ("Logistic", lambda c: np.tanh(c / 2) / (4 * c)),
        ("BayesianSVM", lambda c: 1 / (2 * c)),
    ],
)
def test_mean_of_omega_in_closed_form(name: str, mean: Callable[[AnyNDArray], AnyNDArray]) -> None:
    """Gamma, InverseGaussian, PG(1, c)/2 and a point mass, for c over twelve decades."""
    (case,) = [case for case in CASES if case.name == name]
    c = np.logspace(-6, 6, 49)[:, None]
    np.testing.assert_allclose(augmentation.aux_posterior_mean(case.make(), c), mean(c), rtol=1e-11)


@pytest.mark.parametrize(("name", "df"), [("StudentT", 4.3), ("StudentT-heavy", 0.8)])
def test_student_t_kl_is_the_gamma_kl(name: str, df: float) -> None:
    """The KL divergence of Gamma((ν+1)/2, ν + c²) from Gamma((ν+1)/2, ν) is TFP's."""
    (case,) = [case for case in CASES if case.name == name]
    c = np.logspace(-2, 5, 29)[:, None]
    gamma = tfp.distributions.Gamma
    shape = np.float64((df + 1) / 2)
    expected = gamma(shape, df + c**2).kl_divergence(gamma(shape, np.float64(df)))
    actual = augmentation.aux_kldivergence(case.make(), c)
    np.testing.assert_allclose(actual, expected, rtol=1e-10, atol=1e-13)


@every_super_gaussian_case
def test_kl_is_not_negative_and_grows_with_c(case: Case) -> None:
    """A point mass is not changed by the tilt; any other π is tilted further the larger c is."""
    c = np.logspace(-4, 4, 33)
    kl = augmentation.aux_kldivergence(case.make(), c[:, None])[:, 0]
    if case.name in POINT_MASS:
        assert np.all(np.abs(kl) <= 4 * EPS * c**2)
    else:
        assert np.all(kl >= -1e-15)
        assert np.all(np.diff(kl) > -1e-15)
        assert kl[-1] > 1.0


# ---- laws of ω ----

PAIRS = [(1.0, 0.2), (1.0, -2.0), (-1.0, 1.6)]  # y, f


@pytest.mark.briefly("BayesianSVM", "Probit", "Laplace", "StudentT-heavy", "StudentT")
@with_density
def test_the_full_conditional_is_bayes_rule(case: Case) -> None:
    """p(ω|f, y) = p(y|ω, f) π(ω) / p(y|f) for batches of f, with π and p(y|f) from SciPy."""
    likelihood, prior = case.make(), prior_of(case)
    Y, F = (np.array(values)[:, None] for values in zip(*PAIRS, strict=True))
    chains = np.broadcast_to(F, [7, 3, 1])
    conditional = augmentation.aux_full_conditional(likelihood, chains, Y)
    omega = conditional.mean() * np.logspace(-0.8, 0.6, 7)[:, None, None]
    log_prior = np.log(np.vectorize(prior.pdf)(omega))
    log_p = np.array([case.log_density(y, f) for y, f in PAIRS])[:, None]
    expected = augmentation.logtilt(likelihood, omega, chains, Y) + log_prior - log_p
    np.testing.assert_allclose(conditional.log_prob(omega), expected, rtol=1e-6, atol=1e-7)


@pytest.mark.briefly("Probit", "BayesianSVM", "Laplace", "StudentT-heavy", "StudentT")
@with_density
def test_integrating_omega_out_of_the_joint_gives_the_likelihood_back(case: Case) -> None:
    """∫ e^{aug_loglik} dω = p(y|f), by the trapezoidal rule in log ω."""
    t = np.linspace(-25.0, 25.0, 2001)
    omega = np.exp(t)[:, None, None] * np.ones([1, 3, 1])
    Y, F = (np.array(values)[:, None] for values in zip(*PAIRS, strict=True))
    log_joint = augmentation.aug_loglik(case.make(), omega, F, Y).numpy()[..., 0]
    total = np.exp(log_joint + t[:, None]).sum(axis=0) * (t[1] - t[0])
    expected = [case.log_density(y, f) for y, f in PAIRS]
    np.testing.assert_allclose(np.log(total), expected, atol=1e-7)


@every_case
def test_joint_over_full_conditional_is_the_likelihood_whatever_omega_is(case: Case) -> None:
    """log p(y, ω|f) − log p(ω|f, y) = log p(y|f)."""
    likelihood = case.make()
    Y, F = (np.array(values)[:, None] for values in zip(*PAIRS, strict=True))
    chains = np.broadcast_to(F, [20, 3, 1])
    omega = augmentation.aux_sample(likelihood, chains, Y, seed=[3, 4])
    joint = augmentation.aug_loglik(likelihood, omega, chains, Y)
    difference = joint - augmentation.aux_full_conditional(likelihood, F, Y).log_prob(omega)
    expected = np.array([case.log_density(y, f) for y, f in PAIRS])[:, None] + np.zeros([20, 1, 1])
    np.testing.assert_allclose(difference, expected, rtol=1e-9, atol=1e-10)


@pytest.mark.briefly("Logistic")
@with_density
def test_draws_have_the_mean_of_the_full_conditional(case: Case) -> None:
    """The mean over 4,000 chains is within five standard errors of the quadrature."""
    likelihood, prior = case.make(), prior_of(case)
    Y, F = (np.array(values)[:, None] for values in zip(*PAIRS, strict=True))
    omega = augmentation.aux_sample(likelihood, np.broadcast_to(F, [4000, 3, 1]), Y, seed=[1, 2])
    assert omega.shape == (4000, 3, 1)
    for (y, f), draws in zip(PAIRS, omega.numpy()[:, :, 0].T, strict=True):
        at_zero, at_one = augmentation.logtilt(
            likelihood, column(0.0, 1.0), column(f, f), column(y, y)
        ).numpy()[:, 0]

        def weighted(w: float, a: float = at_zero, b: float = at_one - at_zero) -> float:
            return w * times_density(a + b * w, prior.pdf(w))

        expected = integrate_omega(weighted) / math.exp(case.log_density(y, f))
        error = np.std(draws) / math.sqrt(len(draws))
        assert abs(np.mean(draws) - expected) < 5.0 * error


@pytest.mark.briefly("BayesianSVM", "Gaussian", "Gaussian-scale", "Probit", "StudentT")
@every_case
def test_aux_posterior_is_the_law_of_its_c(case: Case) -> None:
    """Its mean and its KL from the prior are those that the other functions return for c."""
    likelihood = case.make()
    Fmu, Fvar, Y = random_marginals()
    c = augmentation.aux_posterior_c(likelihood, Fmu, Fvar, Y)
    q = augmentation.aux_posterior(likelihood, Fmu, Fvar, Y)
    assert q.batch_shape == Y.shape
    np.testing.assert_allclose(q.mean(), augmentation.aux_posterior_mean(likelihood, c), rtol=1e-10)
    # log q − log π = η ω − log Z is affine in ω, so its value at ω̄ is the KL divergence.
    omega = q.mean()
    ratio = q.log_prob(omega) - augmentation.aux_prior(likelihood, Y).log_prob(omega)
    kl = augmentation.aux_kldivergence(likelihood, c)
    np.testing.assert_allclose(ratio, kl, rtol=1e-8, atol=1e-10)


@pytest.mark.briefly(
    "Gaussian", "BayesianSVM", "Gaussian-scale", "StudentT-heavy", "Laplace", "AsymmetricLaplace"
)
@every_case
def test_somewhere_to_start(case: Case) -> None:
    """The initial law is the one at c = 1, and the initial ω are draws from it."""
    likelihood = case.make()
    q = augmentation.init_aux_posterior(likelihood, (3, 2))
    one = tf.ones([3, 2], tf.float64)
    np.testing.assert_allclose(
        q.mean(), augmentation.aux_posterior_mean(likelihood, one), rtol=1e-12
    )
    omega = augmentation.init_aux_variables(likelihood, (3, 2), seed=[1, 1])
    assert np.all(omega > 0.0)
    np.testing.assert_array_equal(omega, q.sample(seed=[1, 1]))


def test_a_first_q_of_several_variables_is_at_a_standard_normal_f() -> None:
    """n ~ Poisson(λs), where s = 1/2cosh(½) at Fmu = 0 and Fvar = 1; without Y there is no PG."""
    likelihood = likelihoods.Poisson(max_rate=5.0)
    q = augmentation.init_aux_posterior(likelihood, (2, 1), column(3.0, 0.0))
    n = np.arange(40.0)[:, None, None]
    expected = scipy.stats.poisson.pmf(n, 5.0 / (2.0 * math.cosh(0.5)))
    counts = q.model["n"].prob(n)
    np.testing.assert_allclose(counts, np.broadcast_to(expected, counts.shape), rtol=1e-12)
    with pytest.raises(ValueError, match=r"q\(ω\) of Poisson depends on it"):
        augmentation.init_aux_posterior(likelihood, (2, 1))


# ---- the augmented likelihood ----


@pytest.mark.briefly("Logistic")
@with_density
def test_integrating_omega_out_gives_the_likelihood_back(case: Case) -> None:
    """∫ p(y|ω, f) π(ω|0) dω = p(y|f) (AACI Thm 1)."""
    prior = prior_of(case)
    for y, f in [(1.0, 0.2), (1.0, -2.0), (-1.0, 1.6)]:
        # log p(y|ω, f) is linear in ω, so two values determine it.
        at_zero, at_one = augmentation.logtilt(
            case.make(), column(0.0, 1.0), column(f, f), column(y, y)
        ).numpy()[:, 0]
        total = integrate_omega(
            lambda w, a=at_zero, b=at_one - at_zero: times_density(a + b * w, prior.pdf(w))
        )
        assert math.log(total) == pytest.approx(case.log_density(y, f), abs=1e-8)


@pytest.mark.parametrize("case", [c for c in CASES if c.name in POINT_MASS], ids=case_id)
def test_the_gaussian_is_its_own_augmentation(case: Case) -> None:
    F, Y = column(0.2, -2.0, 1.6), column(1.0, 1.0, -1.0)
    omega = tf.fill(tf.shape(F), tf.constant(POINT_MASS[case.name], tf.float64))
    expected = [[case.log_density(float(y), float(f))] for y, f in zip(Y, F, strict=True)]
    np.testing.assert_allclose(augmentation.logtilt(case.make(), omega, F, Y), expected, rtol=1e-12)


@every_case
@pytest.mark.parametrize("y", [1.0, -1.0])
def test_logtilt_is_the_site(case: Case, y: float) -> None:
    """log p(y|ω, f) = potential f − ½ precision f² + const, given ω."""
    likelihood = case.make()
    F = tf.constant(np.linspace(-4.0, 4.0, 17)[:, None])
    Y = y * tf.ones_like(F)
    for omega_value in (1e-3, 0.4, 30.0):
        omega = omega_value * tf.ones_like(F)
        logtilt = augmentation.logtilt(likelihood, omega, F, Y)
        potential, precision = augmentation.auglik_potential_and_precision(likelihood, omega, Y)
        rest = (logtilt - potential * F + 0.5 * precision * F**2).numpy()
        scale = 1.0 + np.max(np.abs(logtilt))
        np.testing.assert_allclose(rest, rest[0, 0], atol=1e-13 * scale)


@every_case
def test_expected_logtilt_is_the_expectation_of_logtilt(case: Case) -> None:
    """
    logtilt is quadratic in f, so three Gauss-Hermite nodes are exact, and linear in ω.

    Since it is linear in ω, its expectation is its value at the mean of ω.
    """
    likelihood = case.make()
    Fmu, Fvar, Y, c = column(0.3, -2.0), column(0.7, 4.0), column(1.0, -1.0), column(0.2, 3.0)
    omega = augmentation.aux_posterior_mean(likelihood, c)
    nodes, weights = np.polynomial.hermite_e.hermegauss(3)
    expected = sum(
        w * augmentation.logtilt(likelihood, omega, Fmu + z * tf.sqrt(Fvar), Y)
        for z, w in zip(nodes, weights / np.sum(weights), strict=True)
    )
    np.testing.assert_allclose(
        augmentation.expected_logtilt(likelihood, c, Fmu, Fvar, Y), expected, rtol=1e-12
    )


@every_case
def test_expected_site_is_the_site_at_the_mean_of_omega(case: Case) -> None:
    likelihood = case.make()
    c, Y = column(0.2, 3.0), column(1.0, -1.0)
    omega = augmentation.aux_posterior_mean(likelihood, c)
    both = augmentation.expected_auglik_potential_and_precision(likelihood, c, Y)
    each = [
        augmentation.expected_auglik_potential(likelihood, c, Y),
        augmentation.expected_auglik_precision(likelihood, c, Y),
    ]
    at_mean = augmentation.auglik_potential_and_precision(likelihood, omega, Y)
    for actual, alone, expected in zip(both, each, at_mean, strict=True):
        np.testing.assert_array_equal(actual, expected)
        np.testing.assert_array_equal(alone, expected)


# ---- the bound ----

Marginals = tuple[tf.Tensor, tf.Tensor, tf.Tensor]


def random_marginals() -> Marginals:
    """Fmu, Fvar and Y, all [24, 1], with Fvar from 1e-3 to 10."""
    rng = np.random.default_rng(0)
    Fmu, Y = rng.normal(size=[24, 1]) * 2.0, np.sign(rng.normal(size=[24, 1]))
    return tf.constant(Fmu), tf.constant(10.0 ** rng.uniform(-3, 1, size=[24, 1])), tf.constant(Y)


@pytest.mark.briefly("StudentT")
@pytest.mark.by_default("Probit", "StudentT", "Laplace")
@every_case
def test_the_bound_is_below_the_expected_log_likelihood(case: Case) -> None:
    """This holds for every c. The Gaussian likelihood has equality. The oracle is quadrature."""
    likelihood = case.make()
    Fmu, Fvar, Y = random_marginals()
    exact = np.array(
        [
            mean_of(lambda f, y=float(y): case.log_density(y, f), float(m), float(v) ** 0.5, [y])
            for m, v, y in zip(Fmu[:, 0], Fvar[:, 0], Y[:, 0], strict=True)
        ]
    )[:, None]
    best = augmentation.optimal_expected_aug_loglik(likelihood, Fmu, Fvar, Y)
    if case.name in POINT_MASS:
        np.testing.assert_allclose(best, exact, rtol=1e-10)
    else:
        assert np.all(best < exact)
    for c in (0.01, 0.5, 2.0, 30.0):
        bound = augmentation.expected_aug_loglik(likelihood, c * tf.ones_like(Y), Fmu, Fvar, Y)
        assert np.all(bound <= exact + 1e-9 * np.abs(exact))


@every_case
def test_the_bound_is_tight_without_uncertainty(case: Case) -> None:
    """If Var f = 0, q(ω) is the full conditional, and the bound is log p(y|f)."""
    F, _, Y = random_marginals()
    bound = augmentation.optimal_expected_aug_loglik(case.make(), F, tf.zeros_like(F), Y)
    expected = [[case.log_density(float(y), float(f))] for y, f in zip(Y, F, strict=True)]
    np.testing.assert_allclose(bound, expected, rtol=1e-10)


@pytest.mark.briefly("BayesianSVM")
@every_case
def test_the_bound_is_largest_at_aux_posterior_c(case: Case) -> None:
    """No c is better than c² = E h² (AACI Alg. 1), where the bound has its closed form."""
    likelihood = case.make()
    Fmu, Fvar, Y = random_marginals()
    c = augmentation.aux_posterior_c(likelihood, Fmu, Fvar, Y)
    best = augmentation.expected_aug_loglik(likelihood, c, Fmu, Fvar, Y)
    optimal = augmentation.optimal_expected_aug_loglik(likelihood, Fmu, Fvar, Y)
    np.testing.assert_allclose(best, optimal, rtol=1e-12, atol=1e-12)
    for factor in (1e-2, 0.5, 0.99, 1.01, 2.0, 100.0):
        other = augmentation.expected_aug_loglik(likelihood, factor * c, Fmu, Fvar, Y)
        if case.name in POINT_MASS:
            np.testing.assert_allclose(other, best, rtol=1e-10)
        else:
            assert np.all(other < best)


@pytest.mark.briefly("BayesianSVM", "Probit")
@every_case
def test_the_gradient_of_the_bound_is_the_site(case: Case) -> None:
    """∂/∂m = potential − precision·m and ∂/∂v = −½ precision, at the optimal c and for fixed c."""
    likelihood = case.make()
    Fmu, Fvar, Y = random_marginals()
    c = augmentation.aux_posterior_c(likelihood, Fmu, Fvar, Y)
    potential, precision = augmentation.expected_auglik_potential_and_precision(likelihood, c, Y)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch([Fmu, Fvar])
        optimal = augmentation.optimal_expected_aug_loglik(likelihood, Fmu, Fvar, Y)
        fixed = augmentation.expected_aug_loglik(likelihood, c, Fmu, Fvar, Y)
    for bound in (optimal, fixed):
        by_mean, by_variance = tape.gradient(bound, [Fmu, Fvar])
        np.testing.assert_allclose(by_mean, potential - precision * Fmu, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(by_variance, -precision / 2.0, rtol=1e-9)


@every_super_gaussian_case
def test_full_conditional_c_is_h(case: Case) -> None:
    """c = |h(f, y)| for each likelihood's own h."""
    h_of: dict[str, Callable[[float, float], float]] = {
        "StudentT": lambda y, f: (y - f) / 0.6,
        "StudentT-heavy": lambda y, f: (y - f) / 2.0,
        "Cauchy": lambda y, f: (y - f) / 0.6,
        "Logistic": lambda y, f: f,
        "BayesianSVM": lambda y, f: 1.0 - y * f,
    }
    h = h_of.get(case.name, lambda y, f: y - f)
    F, Y = column(0.2, -2.0, 1.6), column(1.0, 1.0, -1.0)
    expected = [[abs(h(float(y), float(f)))] for y, f in zip(Y, F, strict=True)]
    actual = augmentation.aux_full_conditional_c(case.make(), F, Y)
    np.testing.assert_allclose(actual, expected, rtol=1e-12)


@every_case
def test_outputs_do_not_mix(case: Case) -> None:
    """
    Marginals [N, P] give a bound [N, P], each entry of which depends on its own marginal only.
    """
    likelihood = case.make()
    Fmu, Fvar, Y = (tf.reshape(value, [8, 3]) for value in random_marginals())
    bound = augmentation.optimal_expected_aug_loglik(likelihood, Fmu, Fvar, Y)
    alone = augmentation.optimal_expected_aug_loglik(likelihood, *random_marginals())
    np.testing.assert_array_equal(tf.reshape(alone, [8, 3]), bound)


# ---- extremes ----


def zero_residual(case: Case) -> tuple[tf.Tensor, tf.Tensor]:
    """F and Y with h = 0."""
    return (column(0.0) if case.name == "Logistic" else column(1.0)), column(1.0)


@pytest.mark.briefly("BayesianSVM")
@every_super_gaussian_case
def test_everything_is_finite_at_zero_residual(case: Case) -> None:
    """The floor ε of c² keeps bound, site and gradients finite, even if ω̄ = ∞ at c = 0."""
    likelihood = case.make()
    F, Y = zero_residual(case)
    Fvar = tf.zeros_like(F)
    c = augmentation.aux_posterior_c(likelihood, F, Fvar, Y)
    assert float(c[0, 0]) == math.sqrt(EPS)
    with tf.GradientTape() as tape:
        tape.watch([F, Fvar])
        bound = augmentation.optimal_expected_aug_loglik(likelihood, F, Fvar, Y)
    finite = [
        bound,
        *tape.gradient(bound, [F, Fvar]),
        *augmentation.expected_auglik_potential_and_precision(likelihood, c, Y),
        augmentation.aux_kldivergence(likelihood, c),
        augmentation.expected_aug_loglik(likelihood, c, F, Fvar, Y),
    ]
    assert np.all(np.isfinite(finite))


@pytest.mark.briefly("BayesianSVM", "Logistic", "Gaussian", "Laplace", "Gaussian-scale")
@every_super_gaussian_case
def test_the_bound_and_its_site_agree_at_the_floor(case: Case) -> None:
    """At the floored c, ``expected_aug_loglik`` is still ``optimal_expected_aug_loglik``."""
    likelihood = case.make()
    F, Y = zero_residual(case)
    Fvar = tf.constant([[0.3 * EPS]], tf.float64)
    c = augmentation.aux_posterior_c(likelihood, F, Fvar, Y)
    optimal = augmentation.optimal_expected_aug_loglik(likelihood, F, Fvar, Y)
    at_c = augmentation.expected_aug_loglik(likelihood, c, F, Fvar, Y)
    np.testing.assert_allclose(at_c, optimal, rtol=1e-14)


@every_super_gaussian_case
def test_floored_log_phi_is_a_continuous_lower_bound(case: Case) -> None:
    """Above the floor it is log φ itself, and below the floor the tangent of log φ."""
    likelihood = case.make()
    r = tf.constant(EPS * np.array([0.0, 1e-3, 0.5, 1 - 1e-9, 1.0, 1 + 1e-9, 2.0, 1e3]))
    floored, exact = likelihood.floored_log_phi(r).numpy(), likelihood.log_phi(r).numpy()
    below = np.arange(8) < 4
    assert np.all(floored[below] <= exact[below] + 1e-24)
    np.testing.assert_array_equal(floored[~below], exact[~below])
    np.testing.assert_allclose(floored[[3, 5]], floored[4], rtol=1e-8)
    assert np.all(np.diff(floored) < 0)


@pytest.mark.parametrize("case", CONTINUOUS, ids=case_id)
def test_an_absurd_outlier_is_finite(case: Case) -> None:
    """At y = 1e12, the bound, its gradients and the site are finite."""
    likelihood = case.make()
    Fmu, Fvar, Y = column(0.3), column(0.5), column(1e12)
    with tf.GradientTape() as tape:
        tape.watch([Fmu, Fvar])
        bound = augmentation.optimal_expected_aug_loglik(likelihood, Fmu, Fvar, Y)
    c = augmentation.aux_posterior_c(likelihood, Fmu, Fvar, Y)
    site = augmentation.expected_auglik_potential_and_precision(likelihood, c, Y)
    assert np.all(np.isfinite([bound, *tape.gradient(bound, [Fmu, Fvar]), *site]))
    if case.name.startswith("StudentT"):  # the outlier is ignored
        assert abs(float(site[0][0, 0])) < 1e-10


@pytest.mark.parametrize("case", CONTINUOUS, ids=case_id)
def test_a_large_offset_costs_no_more_than_its_own_rounding(case: Case) -> None:
    """
    For y ≈ m ≈ 1e6, the error of E h² is at most that of moving y by two units in the last place.
    """
    rng = np.random.default_rng(1)
    Y = 1e6 + rng.normal(size=[50, 1])
    Fmu = Y - 10.0 ** rng.uniform(-3, 1, size=[50, 1])
    Fvar = 10.0 ** rng.uniform(-7, 0, size=[50, 1])
    scale = {"StudentT": 0.6, "StudentT-heavy": 2.0, "Cauchy": 0.6}.get(case.name, 1.0)
    actual = case.make().expected_h_squared(Fmu, Fvar, Y).numpy()
    for got, m, v, y in zip(actual[:, 0], Fmu[:, 0], Fvar[:, 0], Y[:, 0], strict=True):
        residual = mp.mpf(y) - mp.mpf(m)
        exact = (residual**2 + mp.mpf(v)) / mp.mpf(scale) ** 2
        allowed = 4 * np.spacing(y) * abs(residual) / exact / scale**2 + 1e-14
        assert abs(got / exact - 1) < allowed


class Hyperbolic(likelihoods.ResidualLikelihood):
    """h² = ((y − f)² + 0.25)/2, whose minimum over f is not 0, and whose γ is not 1."""

    def log_C(self, Y: TensorType) -> tf.Tensor:
        return tf.zeros_like(Y)

    def alpha(self, Y: TensorType) -> tf.Tensor:
        return (tf.square(Y) + 0.25) / 2.0

    def beta(self, Y: TensorType) -> tf.Tensor:
        return tf.convert_to_tensor(Y)

    def gamma(self, Y: TensorType) -> tf.Tensor:
        return 0.5 * tf.ones_like(Y)

    def log_phi(self, r: TensorType) -> tf.Tensor:
        return -tf.sqrt(r)

    def noise_variance(self) -> tf.Tensor:
        return tf.constant(1.0, tf.float64)


class Constant(Hyperbolic):
    """h² = 2, which does not depend on f: γ = β = 0."""

    def alpha(self, Y: TensorType) -> tf.Tensor:
        return 2.0 * tf.ones_like(Y)

    def beta(self, Y: TensorType) -> tf.Tensor:
        return tf.zeros_like(Y)

    def gamma(self, Y: TensorType) -> tf.Tensor:
        return tf.zeros_like(Y)


@pytest.mark.parametrize(
    ("likelihood", "expected"),
    [
        (Hyperbolic(), lambda m, v, y: ((y - m) ** 2 + v + 0.25) / 2),
        (Constant(), lambda m, v, y: 2.0 + 0 * m),
    ],
    ids=["remainder", "flat"],
)
def test_expected_h_squared_of_any_quadratic(
    likelihood: SuperGaussianLikelihood, expected: Callable[..., tf.Tensor]
) -> None:
    """It is right even if h² has no root, or does not depend on f."""
    Fmu, Fvar, Y = random_marginals()
    actual = likelihood.expected_h_squared(Fmu, Fvar, Y)
    np.testing.assert_allclose(actual, expected(Fmu, Fvar, Y), rtol=1e-14)


def test_kl_at_c_0_is_0() -> None:
    """This holds even for likelihoods whose mean of ω is infinite at c = 0."""
    for likelihood in (likelihoods.Laplace(), likelihoods.BayesianSVM(), likelihoods.StudentT()):
        kl = augmentation.aux_kldivergence(likelihood, tf.zeros([1, 1], tf.float64))
        np.testing.assert_allclose(kl, 0.0, atol=1e-7)
