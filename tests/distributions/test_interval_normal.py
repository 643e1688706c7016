"""Normal variables in an interval, and log(Φ(b) − Φ(a)), against SciPy and mpmath."""

import mpmath as mp
import numpy as np
import pytest
import scipy.stats
import tensorflow as tf

from gpflow_aaci.distributions import IntervalNormal
from gpflow_aaci.special import log_ndtr_between

INTERVALS = [
    (-np.inf, 0.3),
    (0.4, np.inf),
    (-1.2, 0.5),
    (3.0, 3.1),
    (-9.0, -8.0),
    (25.0, 26.0),
    (60.0, np.inf),
    (-np.inf, -200.0),
    (1.0, 1.0 + 1e-6),
]


def exact(low: float, high: float) -> mp.mpf:
    if low > 0:  # mirrored, for the digits of the tail
        low, high = -high, -low
    return mp.log(mp.ncdf(mp.mpf(high)) - mp.ncdf(mp.mpf(low)))


@pytest.mark.parametrize(("low", "high"), INTERVALS)
def test_log_probability_and_its_slopes(low: float, high: float) -> None:
    ends = [tf.constant(end, tf.float64) for end in (low, high)]
    with tf.GradientTape() as tape:
        tape.watch(ends)
        found = log_ndtr_between(*ends)
    with mp.workdps(60):
        log_p = exact(low, high)
        slopes = [
            sign * mp.exp(-(mp.mpf(end) ** 2) / 2 - log_p) / mp.sqrt(2 * mp.pi)
            if np.isfinite(end)
            else 0
            for sign, end in ((-1, low), (1, high))
        ]
    np.testing.assert_allclose(found, float(log_p), rtol=1e-9)
    for slope, expected in zip(tape.gradient(found, ends), slopes, strict=True):
        np.testing.assert_allclose(slope, float(expected), rtol=1e-6, atol=1e-300)


@pytest.mark.parametrize(("low", "high"), INTERVALS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_draws_have_the_law(low: float, high: float, dtype: type) -> None:
    """The distribution function of the draws, in the tail that they are in, is uniform."""
    loc, scale = 0.7, 1.9
    law = IntervalNormal(*(dtype(v) for v in (loc, scale, loc + scale * low, loc + scale * high)))
    z = (law.sample(4_000, seed=[1, 2]).numpy().astype(float) - loc) / scale
    assert z.dtype == np.float64
    assert np.all((z >= low - 1e-5 * abs(low)) & (z <= high + 1e-5 * abs(high)))
    if dtype is np.float32 and high - low < 1e-3:
        return  # float32 has few numbers in there
    if low > 0:
        z, low, high = -z, -high, -low
    log_total = float(exact(low, high))
    log_below = scipy.stats.norm.logcdf(low)
    u = np.exp(scipy.stats.norm.logcdf(z) - log_total) - np.exp(log_below - log_total)
    assert scipy.stats.kstest(u, "uniform").pvalue > 1e-4


def test_density_integrates_to_one_and_is_zero_outside() -> None:
    law = IntervalNormal(0.2, 0.5, np.float64(-0.3), np.float64(0.9))
    z = np.linspace(-0.3, 0.9, 20_001)[1:-1]
    assert np.sum(law.prob(z)) * (z[1] - z[0]) == pytest.approx(1.0, rel=1e-3)
    np.testing.assert_array_equal(law.prob([-0.31, 0.95]), 0.0)


def test_an_interval_of_equal_ends_is_a_point() -> None:
    """Draws are that number to the last bit, and have mass 1 there."""
    ends = tf.constant([0.1, -37.3, 1e5 + 0.1], tf.float64)
    law = IntervalNormal(tf.constant([0.3, 60.0, -2.0], tf.float64), 0.7, ends, ends)
    draws = law.sample(3, seed=[1, 2])
    np.testing.assert_array_equal(draws, np.tile(ends, (3, 1)))
    np.testing.assert_array_equal(law.log_prob(draws), 0.0)
    np.testing.assert_array_equal(law.log_prob(ends + 0.5), -np.inf)


@pytest.mark.parametrize("width", [1e-15, 1e-9, 1e-3])
def test_the_density_in_a_narrow_interval_is_one_over_its_width(width: float) -> None:
    law = IntervalNormal(np.float64(0.3), 1.0, np.float64(0.0), np.float64(width))
    assert float(law.log_prob(width / 2.0)) == pytest.approx(-np.log(width), rel=1e-8)
