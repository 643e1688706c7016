"""
GeneralizedInverseGaussian and InverseGaussian against SciPy and mpmath, with extreme parameters.
"""

import itertools

import mpmath as mp
import numpy as np
import pytest
import scipy.stats
import tensorflow as tf
from oracles import P, ks_pvalue

from gpflow_aaci.distributions import GeneralizedInverseGaussian, InverseGaussian

# (p, a, b) for which SciPy's own cdf is accurate
MODERATE = [
    (-1.5, 2.0, 0.6),
    (-2.5, 1e-2, 3.0),
    (-1.5, 2e6, 0.6),
    (0.0, 1.0, 1.0),
    (0.5, 1e2, 1e2),
    (3.0, 1.0, 1e-3),
    (40.0, 2.0, 3.0),
    (-40.0, 2.0, 3.0),
]
CORNERS = [(-1.5, 0.0, 0.6), (-0.2, 0.0, 3.0), (2.0, 3.0, 0.0), (0.05, 3.0, 0.0), (200.0, 1.0, 0.0)]
# For these, SciPy's cdf misses the peak or overflows
EXTREME = [(0.05, 3.0, 1e-8), (0.0, 1e-12, 1e-12), (-0.05, 1e-9, 1.0), (200.0, 1.0, 1.0)]


def law(p: float, a: float, b: float) -> scipy.stats.rv_continuous:
    if a == 0.0:
        return scipy.stats.invgamma(-p, scale=b / 2.0)
    if b == 0.0:
        return scipy.stats.gamma(p, scale=2.0 / a)
    return scipy.stats.geninvgauss(p, np.sqrt(a * b), scale=np.sqrt(b / a))


@pytest.mark.briefly("-1.5-0.0-0.6")
@pytest.mark.parametrize(("p", "a", "b"), [*MODERATE, *CORNERS])
def test_against_scipy(p: float, a: float, b: float) -> None:
    ours, exact = GeneralizedInverseGaussian(p, a, b), law(p, a, b)
    x = exact.ppf(P)
    np.testing.assert_allclose(ours.cdf(x), exact.cdf(x), rtol=0, atol=1e-9)
    np.testing.assert_allclose(ours.survival_function(x), exact.sf(x), rtol=0, atol=1e-9)
    np.testing.assert_allclose(ours.log_prob(x), exact.logpdf(x), rtol=1e-11, atol=1e-11)


@pytest.mark.briefly("200.0-1.0-1.0")
@pytest.mark.parametrize(("p", "a", "b"), EXTREME)
def test_against_mpmath(p: float, a: float, b: float) -> None:
    """The oracle of the cdf is quadrature of the density in log x, in panels about its mode."""
    ours = GeneralizedInverseGaussian(p, a, b)
    x = np.quantile(ours.sample(2000, seed=[1, 2]).numpy(), [0.001, 0.1, 0.5, 0.9, 0.999])
    with mp.workdps(30):
        omega = mp.sqrt(mp.mpf(a) * mp.mpf(b))
        log_z = mp.log(2 * mp.besselk(p, omega)) + mp.mpf(p) / 2 * mp.log(mp.mpf(b) / mp.mpf(a))

        def density(u: mp.mpf) -> mp.mpf:  # the density of log x
            return mp.exp(p * u - (a * mp.exp(u) + b * mp.exp(-u)) / 2 - log_z)

        below = np.log(x[0]) - np.arange(0.0, 60.0, 0.5)[::-1]
        edges = np.concatenate([below, np.log(x[1:])])
        total, exact = mp.mpf(0), []
        for left, right in itertools.pairwise(edges):
            panels = np.linspace(left, right, 2 + int((right - left) / 0.5))
            total += mp.quad(density, [mp.mpf(float(edge)) for edge in panels], maxdegree=5)
            exact.append(float(total))
    np.testing.assert_allclose(ours.cdf(x)[1:], exact[-4:], rtol=0, atol=1e-10)
    expected = [float(mp.log(density(mp.log(mp.mpf(float(v)))))) - np.log(v) for v in x]
    np.testing.assert_allclose(ours.log_prob(x), expected, rtol=1e-10)


@pytest.mark.briefly("0.0-1e-12-1e-12")
@pytest.mark.by_default("0.5", "40.0", "200.0", "1e-12")
@pytest.mark.parametrize(("p", "a", "b"), [*MODERATE, *EXTREME])
def test_moments_against_bessel_functions(p: float, a: float, b: float) -> None:
    ours = GeneralizedInverseGaussian(p, a, b)
    with mp.workdps(40):
        omega = mp.sqrt(mp.mpf(a) * mp.mpf(b))
        scale, k = mp.sqrt(mp.mpf(b) / mp.mpf(a)), [mp.besselk(p + j, omega) for j in range(3)]
        mean = scale * k[1] / k[0]
        variance = scale**2 * k[2] / k[0] - mean**2
    np.testing.assert_allclose(ours.mean(), float(mean), rtol=1e-12)
    np.testing.assert_allclose(ours.variance(), float(variance), rtol=1e-9)


@pytest.mark.slow
def test_moments_at_the_corners() -> None:
    """Gamma and inverse gamma laws; moments that do not exist are infinite."""
    for p, a, b in CORNERS:
        ours, exact = GeneralizedInverseGaussian(p, a, b), law(p, a, b)
        np.testing.assert_allclose(ours.mean(), exact.mean() if p > 0 or p < -1 else np.inf)
        np.testing.assert_allclose(ours.variance(), exact.var() if p > 0 or p < -2 else np.inf)


@pytest.mark.briefly("200.0-1.0-0.0")
@pytest.mark.by_default(
    "-1.5-0.0-0.6", "3.0-1.0-0.001", "200.0-1.0-1.0", "-1000.0", "0.7", "0.0-1.0-1.0"
)
@pytest.mark.parametrize(("p", "a", "b"), [*MODERATE, *CORNERS, *EXTREME])
def test_draws_follow_the_cdf(p: float, a: float, b: float) -> None:
    distribution = GeneralizedInverseGaussian(p, a, b)
    draws = distribution.sample(100_000, seed=[8, 1]).numpy()
    assert np.all(draws > 0.0)
    assert np.all(np.isfinite(draws))
    assert ks_pvalue(draws, distribution.cdf) > 1e-3


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_log_survival_function_keeps_its_digits_on_both_sides(dtype: type) -> None:
    p, a, b = -2.0, 0.5, 3.0
    x = np.array([0.05, 0.3, 1.0, 5.0, 20.0, 60.0], dtype)

    def between(low: float, *cuts: float) -> mp.mpf:
        return mp.quad(lambda t: t ** (p - 1) * mp.exp(-(a * t + b / t) / 2), [low, *cuts])

    with mp.workdps(30):
        whole = between(0, 1, 5, mp.inf)
        small = [mp.log1p(-between(0, each) / whole) for each in map(mp.mpf, map(float, x[:3]))]
        large = [
            mp.log(between(each, each + 1, each + 5, each + 20, mp.inf) / whole)
            for each in map(mp.mpf, map(float, x[3:]))
        ]
    ours = GeneralizedInverseGaussian(*map(dtype, (p, a, b))).log_survival_function(x)
    expected = np.array([float(value) for value in small + large])
    np.testing.assert_allclose(ours, expected, rtol=1e3 * np.finfo(dtype).eps)


def test_half_of_it_is_inverse_gaussian() -> None:
    """GIG(−½, a, b) is InverseGaussian(√(b/a), b)."""
    x = np.logspace(-2, 1, 20)
    special = InverseGaussian(np.sqrt(0.7 / 2.0), 0.7)
    general = GeneralizedInverseGaussian(-0.5, 2.0, 0.7)
    np.testing.assert_allclose(general.log_prob(x), special.log_prob(x), rtol=1e-12)
    np.testing.assert_allclose(general.cdf(x), special.cdf(x), rtol=1e-11)


@pytest.mark.slow
def test_batches_seeds_graphs_and_float32() -> None:
    a = np.array([0.0, 1.0, 1e4], np.float32)
    distribution = GeneralizedInverseGaussian(np.float32(-1.5), a, np.float32(2.0))
    draws = distribution.sample(2000, seed=[5, 5])
    assert draws.dtype == tf.float32
    assert draws.shape == (2000, 3)
    np.testing.assert_array_equal(draws, distribution.sample(2000, seed=[5, 5]))
    compiled = tf.function(
        lambda a: GeneralizedInverseGaussian(np.float32(-1.5), a, np.float32(2.0)).sample(
            2000, seed=[5, 5]
        )
    )
    np.testing.assert_allclose(compiled(a), draws, rtol=1e-6)
    for value in (-1.0, 0.0, np.inf):
        np.testing.assert_array_equal(distribution.log_prob(value), [-np.inf] * 3)
        np.testing.assert_array_equal(distribution.cdf(value), [float(value > 0)] * 3)


@pytest.mark.parametrize("ratio", [0.0, 1e-3, 1.0, 50.0, 1e3, 1e5])
def test_inverse_gaussian_against_scipy(ratio: float) -> None:
    """Shape over mean runs from 0 (Lévy) to where e^{2 shape/mean} overflows."""
    shape = 1.3
    mean = np.inf if ratio == 0.0 else shape / ratio
    ours = InverseGaussian(mean, tf.constant(shape, tf.float64))
    exact = (
        scipy.stats.levy(scale=shape)
        if ratio == 0.0
        else scipy.stats.invgauss(mean / shape, scale=shape)
    )
    x = exact.ppf(P)
    np.testing.assert_allclose(ours.cdf(x), exact.cdf(x), rtol=0, atol=1e-10)
    np.testing.assert_allclose(ours.survival_function(x), exact.sf(x), rtol=0, atol=1e-10)
    np.testing.assert_allclose(ours.log_prob(x), exact.logpdf(x), rtol=1e-9, atol=1e-9)
    assert ks_pvalue(ours.sample(100_000, seed=[3, 3]).numpy(), exact.cdf) > 1e-3
    np.testing.assert_array_equal(ours.cdf([-1.0, 0.0]), [0.0, 0.0])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((np.nan, 1.0, 1.0), r"p must be finite\. Found: \[nan"),
        ((1.0, 0.0, 1.0), r"a must be finite and positive \(or 0 where p < 0\)\. Found: \[0"),
        ((-1.0, 1.0, [2.0, 0.0]), r"b must be finite and positive \(or 0 where p > 0\)"),
        ((0.0, 1.0, -1.0), r"b must be finite and positive .* Found: \[-1"),
    ],
)
def test_bad_parameters(arguments: tuple, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GeneralizedInverseGaussian(*arguments)


def test_bad_parameters_of_inverse_gaussian() -> None:
    with pytest.raises(ValueError, match=r"loc must be positive\. Found: \[nan"):
        InverseGaussian([1.0, np.nan], 1.0)
    with pytest.raises(ValueError, match=r"concentration must be finite and positive\. Found"):
        InverseGaussian(1.0, 0.0)
    with pytest.raises(ValueError, match="sample_shape must not have negative entries"):
        InverseGaussian(1.0, 1.0).sample(-1)
