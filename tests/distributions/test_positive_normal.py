"""PositiveNormal against mpmath and SciPy, for loc from far below 0 to far above."""

import mpmath as mp
import numpy as np
import pytest
import tensorflow as tf
from oracles import ks_pvalue

from gpflow_aaci.distributions import PositiveNormal

LOC = [-1e3, -40.0, -6.0, -1.0, -1e-9, 0.0, 0.7, 5.0, 60.0]
# Distances in standard deviations from 0 or from the mean, whichever is closer
STEPS = np.array([0.01, 0.3, 1.0, 2.5, 6.0])


def points(loc: float) -> np.ndarray:
    return loc + STEPS - 3.0 if loc > 5.0 else STEPS / max(1.0, -loc)


@pytest.mark.briefly("0.7")
@pytest.mark.parametrize("loc", LOC)
def test_against_mpmath(loc: float) -> None:
    """The density, both tails and the moments agree."""
    ours, x = PositiveNormal(np.float64(loc)), points(loc)
    with mp.workdps(30 + int(abs(loc))):  # Φ(−1000) is 1e-217150, and 1 − mean · N/Φ cancels
        a = mp.mpf(loc)
        mass = mp.erfc(-a / mp.sqrt(2)) / 2
        ratio = mp.npdf(a) / mass
        log_prob = [float(mp.log(mp.npdf(mp.mpf(float(v)) - a) / mass)) for v in x]
        upper = [float(mp.erfc((mp.mpf(float(v)) - a) / mp.sqrt(2)) / 2 / mass) for v in x]
        mean, variance = float(a + ratio), float(1 - (a + ratio) * ratio)
    np.testing.assert_allclose(ours.log_prob(x), log_prob, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(ours.survival_function(x), upper, rtol=1e-11)
    np.testing.assert_allclose(ours.cdf(x), 1.0 - np.array(upper), rtol=0, atol=1e-13)
    np.testing.assert_allclose(ours.mean(), mean, rtol=1e-13)
    np.testing.assert_allclose(ours.variance(), variance, rtol=1e-12)
    for value in (-1.0, 0.0):
        assert ours.log_prob(value) == -np.inf
        assert ours.cdf(value) == 0.0


@pytest.mark.briefly("60.0", "5.0")
@pytest.mark.parametrize("loc", LOC)
def test_draws_follow_the_cdf(loc: float) -> None:
    distribution = PositiveNormal(np.float64(loc))
    draws = distribution.sample(100_000, seed=[8, 1]).numpy()
    assert np.all(draws > 0.0)
    assert ks_pvalue(draws, distribution.cdf) > 1e-3


def test_float32_far_below_zero() -> None:
    """Adding loc to a draw would lose all digits: TFP's TruncatedNormal has mean −1.5 there."""
    single, double = (PositiveNormal(dtype(-1e3)) for dtype in (np.float32, np.float64))
    np.testing.assert_allclose(single.mean(), double.mean(), rtol=1e-6)
    np.testing.assert_allclose(single.variance(), double.variance(), rtol=1e-5)
    draws = single.sample(100_000, seed=[8, 1]).numpy()
    assert np.all(draws > 0.0)
    assert ks_pvalue(draws.astype(np.float64), double.cdf) > 1e-3


def test_batches_seeds_graphs_and_float32() -> None:
    loc = np.array([[-50.0, 0.0, 3.0]], np.float32)
    distribution = PositiveNormal(loc)
    draws = distribution.sample(2000, seed=[5, 5])
    assert draws.dtype == tf.float32
    assert draws.shape == (2000, 1, 3)
    np.testing.assert_array_equal(draws, distribution.sample(2000, seed=[5, 5]))
    compiled = tf.function(lambda loc: PositiveNormal(loc).sample(2000, seed=[5, 5]))
    np.testing.assert_allclose(compiled(loc), draws, rtol=1e-6)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_bad_loc(value: float) -> None:
    with pytest.raises(ValueError, match=r"PositiveNormal: loc must be finite\. Found: \["):
        PositiveNormal([0.0, value])
