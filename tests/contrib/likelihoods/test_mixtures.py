"""Mixtures and products of noise: their laws of ω, and components that are refused."""

from typing import Any

import gpflow
import numpy as np
import pytest
import scipy.integrate
import scipy.stats
import tensorflow as tf
import tensorflow_probability as tfp
from cases import column
from gpflow.base import TensorType

from gpflow_aaci import check_likelihood, likelihoods
from gpflow_aaci.contrib.likelihoods import NoiseMixture, NoiseProduct
from gpflow_aaci.distributions import TiltedDistribution
from gpflow_aaci.likelihoods import (
    AsymmetricLaplace,
    Cauchy,
    Gaussian,
    GeneralizedGaussian,
    Laplace,
    LogisticNoise,
    Matern52,
    StudentT,
)
from gpflow_aaci.likelihoods.integrals.even_densities import log_integral, width_of

REAL = np.linspace(-3.0, 3.0, 7)[:, None]


def contaminated() -> NoiseMixture:
    """The contaminated normal of Tukey (1960)."""
    return NoiseMixture([Gaussian(scale=0.2), Gaussian(scale=2.0)], [0.9, 0.1])


# ---- mixtures ----


def test_a_contaminated_normal_is_the_density_it_says() -> None:
    Y = column(0.0, 0.3, -1.0, 9.0, 60.0)
    zero = tf.zeros_like(Y)
    pdf = 0.9 * scipy.stats.norm.pdf(Y, scale=0.2) + 0.1 * scipy.stats.norm.pdf(Y, scale=2.0)
    np.testing.assert_allclose(contaminated().log_prob(Y, zero, Y), np.log(pdf)[:, 0], rtol=1e-12)
    sds = np.sqrt(np.array([0.2, 2.0]) ** 2 + 0.49)
    pdf = sum(w * scipy.stats.norm.pdf(Y, scale=s) for w, s in zip((0.9, 0.1), sds, strict=True))
    density = contaminated().predict_log_density(Y, zero, zero + 0.49, Y)
    np.testing.assert_allclose(density, np.log(pdf)[:, 0], rtol=1e-12)
    assert float(contaminated().noise_variance()) == pytest.approx(0.9 * 0.04 + 0.1 * 4.0)


def test_omega_of_a_contaminated_normal_is_one_of_two_precisions() -> None:
    """P(narrow) is the responsibility of the narrow component at the residual c, by Bayes' rule."""
    c = np.array([0.0, 0.5, 1.0, 5.0])
    likelihood = contaminated()
    law = likelihood.tilted(c)
    narrow = 0.9 * scipy.stats.norm.pdf(c, scale=0.2)
    p = narrow / (narrow + 0.1 * scipy.stats.norm.pdf(c, scale=2.0))
    precisions = np.array([0.5 / float(part.noise_variance()) for part in likelihood.components])
    np.testing.assert_allclose(law.mean(), p * precisions[0] + (1 - p) * precisions[1], rtol=1e-12)
    log_prob = law.log_prob(precisions[:, None])
    np.testing.assert_allclose(log_prob[0], np.log(p), rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(tf.reduce_logsumexp(log_prob, axis=0), 0.0, atol=1e-12)
    draws = law.sample(4000, seed=[1, 2]).numpy()
    assert set(np.unique(draws)) == set(precisions)
    share = np.mean(draws == precisions[0], axis=0)
    assert np.all(np.abs(share - p) <= 4.0 * np.sqrt(p * (1 - p) / 4000) + 1e-12)


@pytest.mark.by_default("contaminated", "edged")
@pytest.mark.parametrize(
    "likelihood",
    [
        contaminated(),
        NoiseMixture([Gaussian(0.1), StudentT(2.0, 3.0), Cauchy(0.4)]),
        NoiseMixture([contaminated(), Laplace(1e-3)], [0.5, 0.5]),
        NoiseProduct([Gaussian(0.3), Laplace(0.7)]),
        NoiseProduct([Gaussian(0.3), NoiseProduct([Gaussian(1.0), StudentT(0.7, 2.0)])]),
        NoiseProduct([LogisticNoise(0.3), Matern52(2.0), GeneralizedGaussian(1.0, 1.2)]),
        NoiseMixture([Laplace(2.0), NoiseProduct([Gaussian(0.3), Laplace(0.7)])]),
    ],
    ids=["contaminated", "three", "nested", "edged", "nested-product", "product", "both"],
)
@pytest.mark.slow
def test_they_are_closed(likelihood: likelihoods.SuperGaussianLikelihood) -> None:
    check_likelihood(likelihood, REAL)


def test_a_contaminated_normal_passes_every_check() -> None:
    check_likelihood(contaminated(), REAL)


def test_the_weights_stay_on_the_simplex_and_learn() -> None:
    """Data from the wide component alone raise its weight, with any optimizer."""
    likelihood, Y = contaminated(), column(*np.linspace(1.5, 4.0, 9))
    for part in likelihood.components:
        gpflow.set_trainable(part, False)
    assert [p is likelihood.weights for p in likelihood.trainable_parameters] == [True]
    gpflow.optimizers.Scipy().minimize(
        lambda: -tf.reduce_sum(likelihood.log_prob(Y, tf.zeros_like(Y), Y)),
        likelihood.trainable_variables,
        options={"maxiter": 20},
    )
    assert likelihood.weights.numpy()[1] > 0.99
    assert np.sum(likelihood.weights) == pytest.approx(1.0, abs=1e-12)


def test_parameters_of_components_are_shared() -> None:
    part = StudentT(0.7, 3.0)
    for whole in (NoiseMixture([part, Laplace()]), NoiseProduct([part, Laplace()])):
        assert any(p is part.df for p in whole.trainable_parameters)
        assert whole.components[0] is part
    own = gpflow.Parameter([0.2, 0.8], transform=tfp.bijectors.SoftmaxCentered())
    assert NoiseMixture([part, Laplace()], own).weights is own


# ---- products ----


def test_a_product_of_normal_laws_is_normal() -> None:
    """Precisions add up; ω is half their sum."""
    product = NoiseProduct([Gaussian(0.5), Gaussian(scale=2.0)])
    normal = Gaussian(1.0 / (2.0 + 0.25))
    Y, F = column(0.0, 0.3, -4.0, 30.0), column(0.0, 0.0, 1.0, 0.0)
    np.testing.assert_allclose(product.log_prob(Y, F, Y), normal.log_prob(Y, F, Y), rtol=1e-12)
    variance = tf.fill(Y.shape, tf.constant(0.7, tf.float64))
    found, exact = (m.predictive_log_density(None, F, variance, Y) for m in (product, normal))
    np.testing.assert_allclose(found, exact, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(product.noise_variance(), normal.noise_variance(), rtol=1e-12)
    np.testing.assert_allclose(product.tilted(1.0).sample(2, seed=[1, 2]), 1.125, rtol=1e-12)


def test_omega_of_a_product_begins_where_its_normal_factors_leave_it() -> None:
    """The law of ω is that of 1/2σ² + the ω of the other factor."""
    law = NoiseProduct([Gaussian(0.5), Laplace(0.7)]).tilted([0.3, 2.0])
    other = Laplace(0.7).tilted([0.3, 2.0])
    x = np.array([[0.2], [1.0], [4.0]])
    np.testing.assert_allclose(law.mean(), 1.0 + other.mean(), rtol=1e-10)
    np.testing.assert_allclose(law.variance(), other.variance(), rtol=1e-8)
    np.testing.assert_allclose(law.cdf(1.0 + x), other.cdf(x), atol=1e-7)
    np.testing.assert_allclose(law.log_prob(1.0 + x), other.log_prob(x), atol=1e-6)
    np.testing.assert_array_equal(law.cdf(0.9), 0.0)
    np.testing.assert_allclose(other.cdf(law.quantile(0.3) - 1.0), 0.3, atol=1e-6)
    draws = law.sample(2000, seed=[1, 2]).numpy()
    for p in np.transpose(other.cdf(draws - 1.0)):
        assert scipy.stats.kstest(p, "uniform").pvalue > 1e-3


def test_draws_of_a_product_sum_draws_of_its_factors() -> None:
    """For Laplace and Student-t, the oracle is the law of the sum from log φ alone."""
    product, c = NoiseProduct([Laplace(0.7), StudentT(0.5, 3.0)]), np.array([0.0, 0.4, 3.0])
    draws = product.tilted(c).sample(2000, seed=[1, 2])
    for p in np.transpose(TiltedDistribution(product.log_phi, c).cdf(draws)):
        assert scipy.stats.kstest(p, "uniform").pvalue > 1e-3


def test_heavy_tails_multiply_to_lighter_ones() -> None:
    """
    Two Cauchy laws have density ∝ (1 + r)⁻², a Student-t with df = 3, which has mean and variance.
    """
    product, student = NoiseProduct([Cauchy(1.0), Cauchy(1.0)]), StudentT(1.0 / np.sqrt(3.0), 3.0)
    Y, zero = column(0.0, 2.0, -50.0), column(0.0, 0.0, 0.0)
    np.testing.assert_allclose(
        product.log_prob(Y, zero, Y), student.log_prob(Y, zero, Y), rtol=1e-11
    )
    np.testing.assert_allclose(product.noise_variance(), student.noise_variance(), rtol=1e-11)
    mixed = NoiseProduct([StudentT(1.0, 0.3), StudentT(1.0, 0.6)])
    assert np.isinf(mixed.noise_variance())


# ---- the quadrature of a normaliser ----

OF_KNOWN_C: list[Any] = [
    Gaussian(scale=0.37),
    StudentT(0.37, 0.8),
    StudentT(2.0, 40.0),
    Laplace(1e-4),
    likelihoods.Matern(3.5, 1e4),
    GeneralizedGaussian(1.0, 0.3),
    GeneralizedGaussian(1.0, 1.9),
    LogisticNoise(30.0),
]


@pytest.mark.parametrize("known", OF_KNOWN_C, ids=lambda likelihood: type(likelihood).__name__)
def test_normaliser_and_variance_by_quadrature(known: Any) -> None:
    """They are right to 1e-12 for any scale, and differentiable in it."""
    zero = tf.zeros([], tf.float64)

    def log_phi(r: tf.Tensor) -> tf.Tensor:
        return known.log_phi(known.gamma(zero) * r)

    with tf.GradientTape(persistent=True) as tape:
        found, exact = -log_integral(log_phi, 0), known.log_C(zero)
    np.testing.assert_allclose(found, exact, rtol=1e-12, atol=1e-12)
    for variable in known.trainable_variables:
        slopes = [float(tape.gradient(value, variable)) for value in (found, exact)]
        assert slopes[0] == pytest.approx(slopes[1], rel=1e-9)
    variance = np.exp(log_integral(log_phi, 2) - log_integral(log_phi, 0))
    np.testing.assert_allclose(variance, known.noise_variance(), rtol=1e-11)
    # ``width_of`` is where φ has fallen to 1/e, up to a factor of 2
    r = width_of(log_phi) ** 2
    assert float(log_phi(r)) <= -1.0 < float(log_phi(r / 4.0))


# ---- components that are refused ----


class Skewed(Laplace):
    def g(self, Y: TensorType) -> tf.Tensor:
        return 0.1 * tf.ones_like(Y)


class Shifted(Laplace):
    def beta(self, Y: TensorType) -> tf.Tensor:
        return 2.0 * (Y - 1.0)

    def alpha(self, Y: TensorType) -> tf.Tensor:
        return tf.square(Y - 1.0)


class Heteroscedastic(Laplace):
    def log_C(self, Y: TensorType) -> tf.Tensor:
        return 0.1 * Y


@pytest.mark.parametrize("make", [NoiseMixture, NoiseProduct])
@pytest.mark.parametrize(
    ("component", "reason"),
    [
        (gpflow.likelihoods.Gaussian(), "Gaussian, which is no SuperGaussianLikelihood"),
        (likelihoods.Logistic(), "Logistic, which is no density of a real y"),
        (likelihoods.BayesianSVM(), "BayesianSVM, which is no density"),
        (likelihoods.Probit(), "Probit, which is no SuperGaussianLikelihood"),
        (AsymmetricLaplace(1.0, 0.3), "AsymmetricLaplace, whose g is not 0"),
        (Skewed(), "Skewed, whose g is not 0"),
        (Shifted(), "Shifted, whose h² is not proportional"),
        (Heteroscedastic(), "Heteroscedastic, whose scale depends on y"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_no_noise_is_refused(make: Any, component: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=rf"{make.__name__}: components must be two .* {reason}"):
        make([Laplace(), component])


@pytest.mark.parametrize("make", [NoiseMixture, NoiseProduct])
@pytest.mark.parametrize("components", [[], [Laplace()], Laplace(), None])
def test_one_component_is_too_few(make: Any, components: Any) -> None:
    with pytest.raises(ValueError, match="components must be two or more likelihoods"):
        make(components)


@pytest.mark.parametrize(
    "weights", [[0.5, 0.6], [1.0, 0.0], [1.2, -0.2], [1.0], [0.2, 0.3, 0.5], 0.5, [np.nan, 1.0]]
)
def test_weights_must_be_on_the_simplex(weights: Any) -> None:
    with pytest.raises(ValueError, match="weights must be 2 positive numbers that sum to 1"):
        NoiseMixture([Laplace(), Gaussian()], weights)
