"""PolyaGamma against mpmath and known identities."""

from functools import partial

import numpy as np
import pytest
import scipy.stats
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import AnyNDArray
from oracles import CENTRAL, P, PolyaGammaLaw, ks_pvalue

from gpflow_aaci.distributions import PolyaGamma, TiltedDistribution
from gpflow_aaci.distributions import polya_gamma_density as density
from gpflow_aaci.distributions.polya_gamma_draws import envelope
from gpflow_aaci.special import log_sech_sqrt

tfd = tfp.distributions
SHAPES = [(1.0, 0.0), (1.0, 9.0), (3.0, 1.0), (0.3, 0.5), (12.0, 3.0)]


@pytest.mark.briefly("1.0-9.0")
@pytest.mark.by_default("9.0", "0.3")
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


def cdf_by_the_characteristic_function(b: float, c: float, x: AnyNDArray) -> AnyNDArray:
    """
    P(ω ≤ x) for b ≥ 1 by the formula of Gil-Pelaez (1951) and the trapezoidal rule.

    It is ½ − Σ_k Im[e^{−i t_k x} E e^{i t_k ω}]/(π (k + ½)) at t_k = (k + ½) h, up to where |E
    e^{itω}| = cosh^b(c/2)/|cosh^b √(c²/4 − it/2)| is far below 1e-14. The period 2π/h is 40
    standard deviations plus 20 means of PG(1, c), so that the tails vanish within it.
    """
    mean = np.tanh(c / 2) / (2 * c) if c else 0.25
    variance = (np.sinh(c) - c) / (4 * c**3 * np.cosh(c / 2) ** 2) if c else 1 / 24
    step = 2 * np.pi / (40 * np.sqrt(b * variance) + 20 * mean)
    t = (np.arange(20_000) + 0.5) * step
    root = np.sqrt(c**2 / 4 - 0.5j * t)
    log_cosh = root + np.log1p(np.exp(-2 * root))
    log_transform = b * (c / 2 + np.log1p(np.exp(-c)) - log_cosh)
    t, log_transform = (v[log_transform.real > -35] for v in (t, log_transform))
    assert log_transform.size < 20_000
    terms = np.exp(log_transform - 1j * t * np.ravel(x)[:, None]).imag
    return 0.5 - terms @ (step / (np.pi * t))


@pytest.mark.briefly("9999.5-0.0")
@pytest.mark.by_default("0.3", "3.5", "9999.5-0.0")
@pytest.mark.parametrize(
    ("b", "c"),
    [
        *[(0.01, 1.0), (0.3, 0.5), (0.8, 8.0), (1.7, 0.0), (3.0, 1.0), (3.5, 3.0), (4.0, 0.0)],
        *[(12.0, 30.0), (64.0, 0.5), (65.0, 1.0), (300.5, 2.0), (9999.5, 0.0), (9999.5, 30.0)],
    ],
)
def test_draws_follow_the_law(b: float, c: float) -> None:
    """b may be an integer or not, small or large. The cdf is mpmath's or the function above."""
    draws = PolyaGamma(b, c).sample(100_000, seed=[2, 9]).numpy()
    law, transform = PolyaGammaLaw(b, c).cdf, partial(cdf_by_the_characteristic_function, b, c)
    assert ks_pvalue(draws, law if b < 1.0 else transform) > 1e-3


@pytest.mark.by_default("0.3", "2.5")
@pytest.mark.parametrize("b", [0.01, 0.3, 0.9, 2.5, 12.0, 40.0])
def test_what_decides_on_acceptance(b: float) -> None:
    """
    A(x) = π(x|b, c)/((1 + e^{−c})^b × the inverse Gaussian density of mean b/2c, shape b²/4).

    It lies between its bounds. It is computed with an error of 1e-8, which limits how exact draws
    are.
    """
    T = np.array([0.05, 0.2, 0.4, 0.7, 0.999, 1.001, 1.4, 2.0, 3.0, 10.0 / b])
    c, x = 1.0, b * T / 4.0
    inverse_gaussian = np.log(b) - 0.5 * np.log(8 * np.pi * x**3) - (b - 2 * c * x) ** 2 / (8 * x)
    exact = PolyaGammaLaw(b, c).logpdf(x) - b * np.log1p(np.exp(-c)) - inverse_gaussian
    repeated, saddle = tf.constant(b + 0.0 * T), density.saddle_at(tf.constant(T))
    below, above = density.bounds_of_log_A(repeated, saddle)
    assert np.all((below < exact + 1e-12) & (exact < above + 1e-12))
    log_A = density.log_A_by_inversion(repeated, tf.constant(T), *saddle)
    np.testing.assert_allclose(log_A, exact, rtol=0, atol=1e-8)


def test_proposals_lie_above_the_law_and_two_thirds_are_accepted() -> None:
    """The envelope h + gT is above log A for every b and c."""
    b, c = np.meshgrid(np.geomspace(1e-3, 1e5, 17), [0.0, 0.1, 1.0, 3.0, 10.0, 1e3])
    z, height, slope = (v.numpy() for v in envelope(tf.constant(b), tf.constant(c)))
    T = np.geomspace(1e-3, 1e6, 200)[:, None, None] * np.ones_like(b)
    _, above = density.bounds_of_log_A(tf.constant(b), density.saddle_at(tf.constant(T)))
    assert np.all(height + slope * T - above.numpy() > -1e-12 * b)
    rejected = b * np.log1p(np.exp(-c)) + height
    rejected += np.where(slope, 4 * slope / np.where(slope, c + 2 * z / b, 1.0), 0.0)
    assert np.exp(-rejected).min() > 0.65


@pytest.mark.briefly("40.0")
@pytest.mark.by_default("0.0", "3.1", "40.0")
@pytest.mark.parametrize("c", [0.0, 1.5, 3.1, 3.2, 40.0, 1e4])
def test_exact_draws_on_both_sides_of_the_change_of_proposal(c: float) -> None:
    """Below t = 0.64 the proposal changes at |c| = 3.1; draws are exact on both sides."""
    draws = PolyaGamma(1.0, c).sample(100_000, seed=[4, 4]).numpy()
    inverted = PolyaGamma(1.0, c).quantile(
        tf.random.stateless_uniform([20_000], [1, 1], dtype="float64")
    )
    assert scipy.stats.ks_2samp(draws, inverted.numpy()).pvalue > 1e-3


@pytest.mark.slow
def test_sums_and_reflection() -> None:
    """PG(b₁, c) + PG(b₂, c) = PG(b₁ + b₂, c), and the sign of c has no effect."""
    summed = PolyaGamma([1.0, 0.4], 2.0).sample(10_000, seed=[1, 1]).numpy().sum(axis=1)
    assert ks_pvalue(summed, PolyaGamma(1.4, -2.0).cdf) > 1e-3
    x = np.array([0.05, 0.2, 1.0])
    np.testing.assert_array_equal(
        PolyaGamma(1.0, 2.0).log_prob(x), PolyaGamma(1.0, -2.0).log_prob(x)
    )


def test_moments() -> None:
    """
    They are b tanh(c/2)/2c and b (sinh c − c)/(4c³ cosh²(c/2)), with limits b/4 and b/24 at c = 0.
    """
    b, c = 2.5, np.array([0.3, -2.0, 11.0])
    distribution = PolyaGamma(b, c)
    np.testing.assert_allclose(distribution.mean(), b * np.tanh(c / 2) / (2 * c), rtol=1e-12)
    variance = b * (np.sinh(c) - c) / (4 * c**3 * np.cosh(c / 2) ** 2)
    np.testing.assert_allclose(distribution.variance(), variance, rtol=1e-11)
    at_zero = PolyaGamma(b, 0.0)
    np.testing.assert_allclose([at_zero.mean(), at_zero.variance()], [b / 4, b / 24], rtol=1e-12)


def test_it_is_the_tilted_distribution_of_sech() -> None:
    """With scale 2 it belongs to φ(r) = 1/cosh √r, with scale ½ to 1/cosh(√r/2)."""
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


def test_no_count_no_variable() -> None:
    """PG(0, c) is the point 0, also when a batch holds other laws too."""
    distribution = PolyaGamma([0.0, 2.5, 0.0], [1.0, 0.3, 0.0])
    draws = distribution.sample(4, seed=[1, 1]).numpy()
    assert np.all(draws[:, [0, 2]] == 0.0)
    assert np.all(draws[:, 1] > 0.0)
    regular, x = PolyaGamma(2.5, 0.3), np.array([[-1.0], [0.0], [0.7]])
    for ours, at_point, elsewhere in (
        (distribution.mean(), 0.0, regular.mean()),
        (distribution.variance(), 0.0, regular.variance()),
        (distribution.quantile(0.4), 0.0, regular.quantile(0.4)),
        (distribution.cdf(x), x >= 0.0, regular.cdf(x)),
        (distribution.log_prob(x), np.where(x == 0.0, 0.0, -np.inf), regular.log_prob(x)),
    ):
        expected = np.stack(np.broadcast_arrays(at_point, elsewhere, at_point), axis=-1)
        np.testing.assert_allclose(ours, np.reshape(expected, ours.shape), rtol=1e-12)
    np.testing.assert_array_equal(PolyaGamma(0.0, 1.0).sample(3), np.zeros(3))
    np.testing.assert_array_equal(tfd.kl_divergence(PolyaGamma(0.0, 1.0), PolyaGamma(0.0, 2.0)), 0)


def test_gradients_beside_a_point() -> None:
    b, c = tf.constant([0.0, 2.5], tf.float64), tf.constant([1.0, 0.3], tf.float64)
    with tf.GradientTape() as tape:
        tape.watch([b, c])
        log_prob = PolyaGamma(b, c).log_prob([0.0, 0.4])
    of_b, of_c = (gradient.numpy() for gradient in tape.gradient(log_prob, [b, c]))
    assert of_b[0] == of_c[0] == 0.0
    # d/dc log π = c (E ω − ω)
    np.testing.assert_allclose(of_c[1], 0.3 * (PolyaGamma(2.5, 0.3).mean() - 0.4), rtol=1e-6)
    assert np.isfinite(of_b[1])


def test_each_its_own_shape() -> None:
    """
    One call takes b = 0, small and large, integer or not, as counts need; a seed repeats draws.
    """
    b = np.array([0.0, 0.01, 0.5, 1.0, 3.0, 3.5, 5.0, 64.0, 100.0, 2000.7])[:, None]
    distribution = PolyaGamma(b, np.array([0.0, 1.0, -8.0]), 0.5)
    assert distribution.batch_shape == (10, 3)
    draws = distribution.sample(5_000, seed=[6, 6]).numpy()
    np.testing.assert_array_equal(draws, distribution.sample(5_000, seed=[6, 6]))
    assert not np.any(draws == distribution.sample(5_000, seed=[6, 7]), where=b > 0.0)
    centred = draws[:, 1:] - distribution.mean()[1:]
    for moment, exact in ((centred, 0.0), (centred**2, distribution.variance()[1:])):
        error = (np.mean(moment, axis=0) - exact) / np.std(moment, axis=0) * np.sqrt(len(draws))
        assert np.abs(error).max() < 4.5
    # Members of the batch use different random numbers.
    correlations = np.corrcoef(np.log(draws[:, 1:].reshape(len(draws), -1)), rowvar=False)
    assert np.abs(correlations - np.eye(len(correlations))).max() < 5.0 / np.sqrt(len(draws))


def test_draws_within_a_compiled_loop() -> None:
    """A sampler traces such a loop with unknown shapes."""

    @tf.function(input_signature=[tf.TensorSpec(None, tf.float64)] * 2)
    def chain(b: tf.Tensor, c: tf.Tensor) -> tf.Tensor:
        def step(c: tf.Tensor, i: tf.Tensor) -> tf.Tensor:
            return PolyaGamma(b, c).sample(seed=tf.stack([7, i]))

        return tf.scan(step, tf.range(3), initializer=c)

    b = tf.constant([[0.0, 0.7, 1.0], [4.0, 30.0, 3000.5]], tf.float64)
    c = tf.ones_like(b)
    for i, compiled in enumerate(chain(b, c)):
        c = PolyaGamma(b, c).sample(seed=[7, i])
        np.testing.assert_allclose(compiled, c, rtol=1e-9)
    assert chain(b[0, 1], c[0, 1]).shape == (3,)


def test_float32() -> None:
    distribution = PolyaGamma(tf.constant(1.0), tf.constant([0.0, 5.0]))
    assert distribution.sample(5, seed=[1, 1]).dtype == distribution.mean().dtype == tf.float32
    np.testing.assert_allclose(distribution.mean(), [0.25, np.tanh(2.5) / 10], rtol=1e-6)
    b = np.array([0.0, 0.5, 2.0, 700.5])
    single, double = (PolyaGamma(b.astype(dtype), dtype(1)) for dtype in (np.float32, np.float64))
    assert single.log_prob(1.0).dtype == tf.float32
    draws = single.sample(5, seed=[1, 1])
    np.testing.assert_allclose(draws, double.sample(5, seed=[1, 1]), rtol=1e-6)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((-0.5, 1.0), r"b must be finite and non-negative\. Found: \[-0\.5"),
        ((np.nan, 1.0), r"b must be finite and non-negative\. Found: \[nan"),
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
