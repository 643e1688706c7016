"""TiltedDistribution, which knows only log φ, against closed forms."""

import mpmath as mp
import numpy as np
import pytest
import scipy.integrate
import scipy.stats
import tensorflow as tf
import tensorflow_probability as tfp
from oracles import CENTRAL, TILTS, P, Tilts, ks_pvalue, tilts_id

from gpflow_aaci import likelihoods
from gpflow_aaci.distributions import TiltedDistribution

tfd = tfp.distributions
every_phi = pytest.mark.parametrize("tilts", TILTS, ids=tilts_id)
C = np.array([0.0, 1e-3, 0.03, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 1e3])
NUM_DRAWS = 100_000


def log_phi_laplace(r: tf.Tensor) -> tf.Tensor:
    return -tf.sqrt(r)


@pytest.mark.briefly("BayesianSVM")
@every_phi
def test_against_the_closed_form(tilts: Tilts) -> None:
    """
    c is 0 or between 1e-3 and 1e3, and p between 1e-6 and 1 − 1e-6.

    The oracle's cdf is evaluated at the distribution's own quantiles q, which tests these as well:
    F(q) = p up to the error of F, and a relative error of q becomes one of F over q f(q).
    """
    ours = TiltedDistribution(tilts.likelihood.log_phi, C[:, None])
    q = ours.quantile(P).numpy()
    laws = [tilts.law(c) for c in C]
    exact = np.stack([law.cdf(x) for law, x in zip(laws, q, strict=True)])
    np.testing.assert_allclose(ours.cdf(q), exact, rtol=0, atol=1e-7)
    np.testing.assert_allclose(ours.survival_function(q), 1.0 - exact, rtol=0, atol=1e-7)
    np.testing.assert_allclose(ours.cdf(q), P + 0.0 * q, rtol=0, atol=2e-7)
    log_density = np.stack([law.logpdf(x) for law, x in zip(laws, q, strict=True)])
    relative = (exact - P) / (q * np.exp(log_density))
    assert np.abs(relative[:, CENTRAL]).max() < 1e-6
    # log_prob, whose right tail has absolute accuracy only
    error = np.abs(ours.log_prob(q).numpy() - log_density)
    assert error[:, CENTRAL].max() < 1e-6
    assert error.max() < 2e-4


@pytest.mark.briefly("BayesianSVM")
@every_phi
def test_left_tail_of_the_density_is_relatively_exact(tilts: Tilts) -> None:
    """The density is 1e-30 of its peak, where an inversion at c itself would give noise."""
    ours = TiltedDistribution(tilts.likelihood.log_phi, 1.0)
    x = ours.quantile(1e-6).numpy() * np.array([0.5, 0.25, 0.1])
    np.testing.assert_allclose(ours.log_prob(x), tilts.law(1.0).logpdf(x), rtol=0, atol=1e-6)


@pytest.mark.briefly("BayesianSVM")
@every_phi
def test_cumulants_against_mpmath(tilts: Tilts) -> None:
    c = np.logspace(-3, 3, 7)
    ours = TiltedDistribution(tilts.likelihood.log_phi, c)
    for order in (1, 2, 3, 4):
        with mp.workdps(60):
            exact = [
                float(
                    (-1) ** order * mp.diff(tilts.log_phi, mp.mpf(value) ** 2, order, relative=True)
                )
                for value in c
            ]
        np.testing.assert_allclose(ours.cumulant(order), exact, rtol=1e-8)
    np.testing.assert_array_equal(ours.mean(), ours.cumulant(1))
    np.testing.assert_array_equal(ours.variance(), ours.cumulant(2))


def test_moments_at_no_tilt() -> None:
    """
    Laplace and SVM have no moments, Matérn-3/2 only a mean, b/2/(ν − 1) of an inverse gamma law.
    """
    for likelihood in (likelihoods.Laplace(0.7), likelihoods.BayesianSVM()):
        tilted = TiltedDistribution(likelihood.log_phi, 0.0)
        assert [float(tilted.cumulant(k)) for k in (1, 2, 3, 4)] == [np.inf] * 4
    tilted = TiltedDistribution(likelihoods.Matern32(1.6).log_phi, 0.0)
    np.testing.assert_allclose(tilted.mean(), 1.5 / 1.6**2, rtol=1e-12)
    assert float(tilted.variance()) == np.inf
    # PG(1, 0)/2 has mean 1/8 and variance 1/96.
    tilted = TiltedDistribution(likelihoods.Logistic().log_phi, 0.0)
    np.testing.assert_allclose([tilted.mean(), tilted.variance()], [1 / 8, 1 / 96], rtol=1e-12)


@pytest.mark.briefly("5.0-Laplace")
@pytest.mark.by_default("Laplace")
@every_phi
@pytest.mark.parametrize("c", [0.0, 5.0])
def test_draws_follow_the_closed_form(tilts: Tilts, c: float) -> None:
    """Kolmogorov-Smirnov tests use the oracle's cdf, its own, and the likelihood's sampler."""
    ours = TiltedDistribution(tilts.likelihood.log_phi, c)
    draws = ours.sample(NUM_DRAWS, seed=[11, 7]).numpy()
    closed = tilts.likelihood.tilted(c).sample(NUM_DRAWS, seed=[3, 5]).numpy()
    assert scipy.stats.ks_2samp(draws, closed).pvalue > 1e-3
    for cdf in (tilts.law(c).cdf, ours.cdf):
        assert ks_pvalue(draws, cdf) > 1e-3
        assert ks_pvalue(closed, cdf) > 1e-3


def test_a_batch_is_its_members() -> None:
    """Narrow and wide laws in one batch give the same as each alone."""
    c = np.array([[0.0, 1e-3, 0.3], [2.0, 40.0, 1e3]])
    tilted = TiltedDistribution(log_phi_laplace, c)
    assert tilted.batch_shape == (2, 3)
    p = np.array([0.02, 0.5, 0.97])[:, None, None]
    q = tilted.quantile(p)
    assert q.shape == (3, 2, 3)
    alone = [
        [TiltedDistribution(log_phi_laplace, v).quantile(p[:, 0, 0]) for v in row] for row in c
    ]
    np.testing.assert_allclose(q, np.moveaxis(alone, -1, 0), rtol=1e-7)
    np.testing.assert_allclose(tilted.cdf(q), p + np.zeros_like(c), atol=1e-8)
    np.testing.assert_allclose(tilted[1].mean(), 0.5 / c[1], rtol=1e-12)


def test_blocks_of_rows_are_put_together_again() -> None:
    c = np.linspace(0.1, 3.0, 70_000)
    tilted = TiltedDistribution(log_phi_laplace, c)
    some = np.array([0, 32_767, 32_768, 65_535, 65_536, 69_999])
    q = tilted.quantile(0.3).numpy()
    alone = TiltedDistribution(log_phi_laplace, c[some]).quantile(0.3)
    np.testing.assert_allclose(q[some], alone, rtol=1e-12)
    np.testing.assert_allclose(tilted.cdf(q), 0.3, rtol=1e-7)


def test_same_seed_same_draws_in_and_out_of_a_graph() -> None:
    c = tf.constant(np.abs(np.random.default_rng(0).normal(size=500)))

    def draw(c: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        return TiltedDistribution(log_phi_laplace, c).sample(2, seed=seed)

    eager = draw(c, tf.constant([1, 2]))
    compiled = tf.function(draw)
    np.testing.assert_allclose(compiled(c, tf.constant([1, 2])), eager, rtol=1e-9)
    np.testing.assert_array_equal(draw(c, tf.constant([1, 2])), eager)
    assert np.all(draw(c, tf.constant([1, 3])).numpy() != eager.numpy())
    assert compiled.experimental_get_tracing_count() == 1
    assert compiled(c, tf.constant([4, 4])).shape == (2, 500)


def test_float32_is_computed_in_float64() -> None:
    c = np.array([0.0, 0.1, 3.0, 300.0])
    wide, narrow = (
        TiltedDistribution(log_phi_laplace, c.astype(t)) for t in (np.float64, np.float32)
    )
    for name, argument in (("quantile", 0.3), ("cdf", 0.1), ("survival_function", 0.1)):
        actual = getattr(narrow, name)(argument)
        assert actual.dtype == tf.float32
        np.testing.assert_allclose(actual, getattr(wide, name)(argument), rtol=2e-6, atol=1e-6)
    assert narrow.sample(3, seed=[1, 1]).dtype == narrow.mean().dtype == tf.float32
    np.testing.assert_allclose(narrow.variance()[1:], wide.variance()[1:], rtol=1e-6)


def test_outside_the_support() -> None:
    tilted = TiltedDistribution(log_phi_laplace, [0.5, 2.0])
    for x, cdf in ((-1.0, 0.0), (0.0, 0.0), (np.inf, 1.0)):
        np.testing.assert_array_equal(tilted.cdf(x), [cdf] * 2)
        np.testing.assert_array_equal(tilted.survival_function(x), [1.0 - cdf] * 2)
        np.testing.assert_array_equal(tilted.log_prob(x), [-np.inf] * 2)
    np.testing.assert_array_equal(tilted.quantile([0.0, 1.0]), [0.0, np.inf])


def test_a_point_mass() -> None:
    """For the Gaussian's φ, ω is the constant 1/2σ²."""
    tilted = TiltedDistribution(likelihoods.Gaussian(0.25).log_phi, [0.0, 1.0, 50.0])
    np.testing.assert_array_equal(tilted.sample(4, seed=1), np.full((4, 3), 2.0))
    np.testing.assert_array_equal(tilted.cdf([[1.9], [2.1]]), [[0.0] * 3, [1.0] * 3])
    np.testing.assert_array_equal(tilted.variance(), [0.0] * 3)
    np.testing.assert_array_equal(tilted.log_prob([[1.9], [2.0]]), [[-np.inf] * 3, [np.inf] * 3])


@pytest.mark.briefly("Laplace")
@pytest.mark.by_default("Laplace", "Logistic")
@every_phi
def test_kl_divergence_against_quadrature(tilts: Tilts) -> None:
    """∫ π(ω|c₁) log π(ω|c₁)/π(ω|c₂) dω is computed as a mean over quantiles."""
    nodes, weights = np.polynomial.legendre.leggauss(40)
    z = 9.0 * nodes
    p, dp = scipy.stats.norm.cdf(z), 9.0 * weights * scipy.stats.norm.pdf(z)
    keep = (p > 1e-9) & (p < 1 - 1e-9)
    c1, c2 = 0.8, 2.3
    a, b = (TiltedDistribution(tilts.likelihood.log_phi, c) for c in (c1, c2))
    q = a.quantile(p[keep])
    integral = np.sum(dp[keep] * (a.log_prob(q) - b.log_prob(q)).numpy())
    np.testing.assert_allclose(tfd.kl_divergence(a, b), integral, rtol=1e-5)
    np.testing.assert_array_equal(tfd.kl_divergence(a, a), 0.0)


def test_kl_divergence_of_gamma_laws_is_that_of_tfp() -> None:
    likelihood = likelihoods.StudentT(1.0, 5.0)
    c = np.array([0.0, 0.3, 4.0])
    a, b = TiltedDistribution(likelihood.log_phi, c), TiltedDistribution(likelihood.log_phi, 1.0)
    exact = tfd.kl_divergence(likelihood.tilted(c), likelihood.tilted(1.0))
    np.testing.assert_allclose(tfd.kl_divergence(a, b), exact, rtol=1e-9)


def test_gradients_of_log_prob() -> None:
    """Gradients in the value, in c and in the likelihood's parameter equal central differences."""
    likelihood = likelihoods.Laplace(0.7)
    x, c = tf.constant([0.2, 0.9, 4.0], tf.float64), tf.constant([0.1, 1.0, 30.0], tf.float64)

    def log_prob(x: tf.Tensor, c: tf.Tensor, scale: tf.Tensor) -> tf.Tensor:
        return TiltedDistribution(lambda r: -tf.sqrt(r) / tf.cast(scale, r.dtype), c).log_prob(x)

    arguments = [x, c, tf.constant(0.7, tf.float64)]
    with tf.GradientTape() as tape:
        tape.watch(arguments)
        total = tf.reduce_sum(log_prob(*arguments))
    gradients = tape.gradient(total, arguments)
    exact = tf.Variable(arguments[0]), tf.Variable(arguments[1]), tf.Variable(arguments[2])
    with tf.GradientTape() as tape:
        shape = 0.5 / exact[2] ** 2
        law = tfd.InverseGaussian(0.5 / (exact[2] * exact[1]), shape)
        total = tf.reduce_sum(law.log_prob(exact[0]))
    for ours, theirs in zip(gradients, tape.gradient(total, exact), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-7)
    with tf.GradientTape() as tape:
        value = TiltedDistribution(likelihood.log_phi, c).log_prob(x)
    assert tape.gradient(value, likelihood.trainable_variables)[0] is not None


def test_copy_and_slices_keep_phi() -> None:
    tilted = TiltedDistribution(log_phi_laplace, [1.0, 2.0])
    np.testing.assert_allclose(tilted.copy(c=4.0).mean(), 1 / 8, rtol=1e-12)
    assert tilted.log_phi is tilted[0].log_phi


# ---- bad input ----


@pytest.mark.parametrize("c", [np.nan, -1.0, np.inf, [1.0, np.nan]])
def test_bad_c(c: object) -> None:
    with pytest.raises(ValueError, match=r"c must be finite and non-negative\. Found"):
        TiltedDistribution(log_phi_laplace, c)
    with pytest.raises(ValueError, match=r"c must be finite and non-negative\. Found"):
        likelihoods.StudentT().tilted(c)


def test_bad_c_in_a_graph() -> None:
    draw = tf.function(lambda c: TiltedDistribution(log_phi_laplace, c).sample(seed=[1, 2]))
    with pytest.raises(tf.errors.InvalidArgumentError, match="c must be finite and non-negative"):
        draw(tf.constant([1.0, np.nan], tf.float64))


@pytest.mark.parametrize(
    "log_phi",
    [
        lambda r: r,
        lambda r: -(r**2),
        lambda r: 5.0 - tf.sqrt(r),
        lambda r: r * np.nan,
        lambda r: -tf.math.softplus(r),
    ],
    ids=["increasing", "concave", "above one", "nan", "softplus"],
)
def test_not_completely_monotone(log_phi: object) -> None:
    with pytest.raises(ValueError, match="log_phi must be the logarithm of a completely monotone"):
        TiltedDistribution(log_phi, 1.0)


@pytest.mark.parametrize(
    "log_phi",
    [
        lambda r: -tf.sqrt(tf.abs(r)),
        lambda r: -tf.sqrt(r) * tf.constant(2.0, tf.float64),
        lambda r: tf.math.softplus(-tf.sqrt(r)) - tf.sqrt(r) - np.log(2.0),
    ],
    ids=["abs", "real parameter", "softplus"],
)
def test_no_complex_support(log_phi: object) -> None:
    """Moments do not need complex arguments; for all else, the error says what to change."""
    tilted = TiltedDistribution(log_phi, 1.0)
    assert float(tilted.mean()) > 0.0
    with pytest.raises(ValueError, match=r"must take complex128 .* tf.cast\(parameter, r.dtype\)"):
        tilted.sample(3, seed=1)


def test_a_failed_inversion_says_so() -> None:
    """A law of two atoms has no density: instead of wrong draws, there is an error with c²."""

    def log_phi(r: tf.Tensor) -> tf.Tensor:
        return tf.math.log(0.5 * tf.exp(-r) + 0.5 * tf.exp(-3.0 * r))

    with pytest.raises(ValueError, match=r"could not be computed from log_phi.* Found: \[2.25"):
        TiltedDistribution(log_phi, 1.5).sample(10, seed=1)


def test_a_negative_density_is_refused() -> None:
    """1/(1 + (r + ½)^{3/2}) is not completely monotone, though it decreases and is convex at c."""

    def log_phi(r: tf.Tensor) -> tf.Tensor:
        return -tf.math.log1p((r + 0.05) ** 1.5) + np.log1p(0.05**1.5)

    with pytest.raises(ValueError, match="completely monotone"):
        TiltedDistribution(log_phi, 0.3).cdf(np.linspace(0.1, 30.0, 100))


def test_bad_arguments() -> None:
    tilted = TiltedDistribution(log_phi_laplace, 1.0)
    with pytest.raises(ValueError, match=r"sample_shape must not have negative entries\. Found"):
        tilted.sample(-3)
    with pytest.raises(ValueError, match=r"order must be from 1 to 4. Found: 5"):
        tilted.cumulant(5)
    with pytest.raises(ValueError, match=r"value must be in \[0, 1\]. Found: \[1.5\]"):
        tilted.quantile(1.5)
    with pytest.raises(ValueError, match=r"log_phi must be a function of r\. Found: 3"):
        TiltedDistribution(3, 1.0)
    other = TiltedDistribution(lambda r: -tf.sqrt(r), 1.0)
    with pytest.raises(ValueError, match="log_phi must be the same function"):
        tfd.kl_divergence(tilted, other)
