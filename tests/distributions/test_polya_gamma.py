"""PolyaGamma against mpmath and the known identities."""

import numpy as np
import pytest
import scipy.stats
import tensorflow as tf
import tensorflow_probability as tfp
from oracles import CENTRAL, P, PolyaGammaLaw, ks_pvalue

from gpflow_aaci import PolyaGamma, TiltedDistribution
from gpflow_aaci.special import log_sech_sqrt

tfd = tfp.distributions
SHAPES = [(1.0, 0.0), (1.0, 9.0), (3.0, 1.0), (0.3, 0.5), (12.0, 3.0)]


@pytest.mark.by_default("9.0", "0.3", "40.0")
@pytest.mark.parametrize(("b", "c"), [*SHAPES, (0.05, 1.0), (40.0, 0.0), (1.0, 300.0)])
def test_cdf_quantile_and_density_against_mpmath(b: float, c: float) -> None:
    ours, law = PolyaGamma(b, c), PolyaGammaLaw(b, c)
    q = ours.quantile(P).numpy()
    exact = law.cdf(q)
    np.testing.assert_allclose(ours.cdf(q), exact, rtol=0, atol=1e-7)
    np.testing.assert_allclose(exact, P, rtol=0, atol=2e-7)
    log_density = law.logpdf(q)
    relative = (exact - P) / (q * np.exp(log_density))
    assert np.abs(relative[CENTRAL]).max() < 1e-6
    error = np.abs(ours.log_prob(q).numpy() - log_density)
    assert error[CENTRAL].max() < 1e-6
    assert error.max() < 2e-4


@pytest.mark.by_default("9.0", "12.0", "65.0")
@pytest.mark.parametrize(("b", "c"), [*SHAPES, (64.0, 1.0), (65.0, 1.0), (300.5, 2.0)])
def test_draws_follow_the_cdf(b: float, c: float) -> None:
    """By Devroye's method for integer b up to 64, else by inversion; either is held to one cdf."""
    distribution = PolyaGamma(b, c)
    draws = distribution.sample(100_000 if b in (1.0, 3.0) else 20_000, seed=[2, 9]).numpy()
    assert ks_pvalue(draws, distribution.cdf) > 1e-3


@pytest.mark.parametrize("c", [0.0, 1.5, 3.1, 3.2, 40.0, 1e4])
def test_exact_draws_on_both_sides_of_the_change_of_proposal(c: float) -> None:
    """The proposal below t = 0.64 changes at |c| = 3.1; exactness does not."""
    draws = PolyaGamma(1.0, c).sample(100_000, seed=[4, 4]).numpy()
    inverted = PolyaGamma(1.0, c).quantile(
        tf.random.stateless_uniform([20_000], [1, 1], dtype="float64")
    )
    assert scipy.stats.ks_2samp(draws, inverted.numpy()).pvalue > 1e-3


@pytest.mark.slow
def test_sums_and_reflection() -> None:
    """PG(b₁, c) + PG(b₂, c) = PG(b₁ + b₂, c), and c counts by its size alone."""
    summed = PolyaGamma([1.0, 0.4], 2.0).sample(10_000, seed=[1, 1]).numpy().sum(axis=1)
    assert ks_pvalue(summed, PolyaGamma(1.4, -2.0).cdf) > 1e-3
    x = np.array([0.05, 0.2, 1.0])
    np.testing.assert_array_equal(
        PolyaGamma(1.0, 2.0).log_prob(x), PolyaGamma(1.0, -2.0).log_prob(x)
    )


def test_moments() -> None:
    """b tanh(c/2)/2c and b (sinh c − c)/(4c³ cosh²(c/2)), with their limits b/4, b/24 at c = 0."""
    b, c = 2.5, np.array([0.3, -2.0, 11.0])
    distribution = PolyaGamma(b, c)
    np.testing.assert_allclose(distribution.mean(), b * np.tanh(c / 2) / (2 * c), rtol=1e-12)
    variance = b * (np.sinh(c) - c) / (4 * c**3 * np.cosh(c / 2) ** 2)
    np.testing.assert_allclose(distribution.variance(), variance, rtol=1e-11)
    at_zero = PolyaGamma(b, 0.0)
    np.testing.assert_allclose([at_zero.mean(), at_zero.variance()], [b / 4, b / 24], rtol=1e-12)


def test_it_is_the_tilted_distribution_of_sech() -> None:
    """Of scale 2 with φ(r) = 1/cosh √r, and of scale ½ with 1/cosh(√r/2) (DESIGN's warning)."""
    c, p = np.array([0.0, 0.7, 30.0]), np.array([0.01, 0.5, 0.99])[:, None]
    for scale, factor, tilt in ((2.0, 1.0, 2.0), (0.5, 0.25, 1.0)):
        generic = TiltedDistribution(lambda r, factor=factor: log_sech_sqrt(factor * r), c)
        np.testing.assert_allclose(
            PolyaGamma(1.0, tilt * c, scale).quantile(p), generic.quantile(p), rtol=1e-8
        )


def test_kl_divergence() -> None:
    b, c1, c2 = 1.7, np.array([0.0, 0.4, 3.0]), 1.2
    first, second = PolyaGamma(b, c1), PolyaGamma(b, c2)
    x = first.quantile((np.arange(4000) + 0.5)[:, None] / 4000)
    estimate = np.mean(first.log_prob(x) - second.log_prob(x), axis=0)
    np.testing.assert_allclose(tfd.kl_divergence(first, second), estimate, rtol=2e-3)
    twice = tfd.kl_divergence(PolyaGamma([b, 2 * b], 0.4), PolyaGamma([b, 2 * b], c2))
    np.testing.assert_allclose(twice, estimate[1] * np.array([1.0, 2.0]), rtol=2e-3)
    with pytest.raises(ValueError, match="b must be the same for both"):
        tfd.kl_divergence(first, PolyaGamma(1.0, c2))


@pytest.mark.slow
def test_batches_mix_methods_and_seeds_repeat() -> None:
    b = np.array([1.0, 0.5, 5.0, 100.0])[:, None]
    distribution = PolyaGamma(b, np.array([0.0, 1.0, 8.0]), 0.5)
    assert distribution.batch_shape == (4, 3)
    draws = distribution.sample(1000, seed=[6, 6])
    np.testing.assert_array_equal(draws, distribution.sample(1000, seed=[6, 6]))
    error = (np.mean(draws, axis=0) - distribution.mean()) / distribution.stddev() * np.sqrt(1000)
    assert np.abs(error).max() < 4.5
    compiled = tf.function(lambda b: PolyaGamma(b, 1.0).sample(3, seed=[1, 1]))
    eager = PolyaGamma(b, 1.0).sample(3, seed=[1, 1])
    np.testing.assert_allclose(compiled(tf.constant(b)), eager, rtol=1e-9)


def test_float32() -> None:
    distribution = PolyaGamma(tf.constant(1.0), tf.constant([0.0, 5.0]))
    assert distribution.sample(5, seed=[1, 1]).dtype == distribution.mean().dtype == tf.float32
    np.testing.assert_allclose(distribution.mean(), [0.25, np.tanh(2.5) / 10], rtol=1e-6)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0.0, 1.0), r"b must be finite and positive\. Found: \[0"),
        ((np.nan, 1.0), r"b must be finite and positive\. Found: \[nan"),
        ((1.0, [0.0, np.nan]), r"c must be finite\. Found: \[nan"),
        ((1.0, 1.0, -1.0), r"scale must be finite and positive\. Found: \[-1"),
    ],
)
def test_bad_parameters(arguments: tuple, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PolyaGamma(*arguments)


def test_bad_sample_shape() -> None:
    with pytest.raises(ValueError, match="sample_shape must not have negative entries"):
        PolyaGamma(1.0, 1.0).sample([2, -3])
    with pytest.raises(TypeError, match="must be of one dtype"):
        PolyaGamma(tf.constant(1.0), tf.constant(1.0, tf.float64))
