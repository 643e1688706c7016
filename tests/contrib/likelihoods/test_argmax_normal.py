"""Normal variables of which one is the largest, against sums over a fine grid and plain draws."""

import numpy as np
import pytest
import scipy.stats
import tensorflow as tf
from gpflow.base import AnyNDArray
from scipy.special import log_ndtr, logsumexp

from gpflow_aaci.contrib.likelihoods import ArgmaxNormal
from gpflow_aaci.contrib.likelihoods.argmax_normal import log_first_is_largest


def on_a_grid(loc: AnyNDArray, scale: AnyNDArray) -> float:
    u = np.linspace(-200.0, 200.0, 100_001)
    log_p = scipy.stats.norm.logpdf(u)
    for other, width in zip(loc[1:], scale[1:], strict=True):
        log_p = log_p + log_ndtr((loc[0] + scale[0] * u - other) / width)
    return logsumexp(log_p) + np.log(u[1] - u[0])


@pytest.mark.parametrize("K", [2, 3, 10])
@pytest.mark.parametrize("spread", [0.5, 8.0])
@pytest.mark.parametrize("uneven", [0.0, 1.0])
def test_log_probability_of_the_largest(K: int, spread: float, uneven: float) -> None:
    rng = np.random.default_rng(K)
    for _ in range(3):
        loc, scale = spread * rng.normal(size=K), np.exp(uneven * rng.normal(size=K))
        found = log_first_is_largest(tf.constant(loc), tf.constant(scale))
        np.testing.assert_allclose(found, on_a_grid(loc, scale), rtol=1e-9, atol=1e-10)


def test_of_two_it_is_a_normal_distribution_function() -> None:
    loc = tf.constant([[0.3, -0.5], [-70.0, 20.0], [90.0, 0.0]], tf.float64)
    scale = tf.constant([0.4, 1.7], tf.float64) + tf.zeros_like(loc)
    expected = log_ndtr((loc[:, 0] - loc[:, 1]) / np.hypot(0.4, 1.7))
    found = log_first_is_largest(loc, scale)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-11)


def test_probabilities_of_all_classes_sum_to_one() -> None:
    loc = np.random.default_rng(0).normal(size=(5, 4)) * [[0.1], [1.0], [5.0], [30.0], [90.0]]
    each = [ArgmaxNormal(loc, np.full(5, float(k))) for k in range(4)]
    log_p = [log_first_is_largest(law._first(), tf.ones_like(law.loc)) for law in each]
    np.testing.assert_allclose(np.sum(np.exp(log_p), 0), 1.0, rtol=1e-9)


def test_draws_have_the_moments_and_the_law() -> None:
    """The moments are those of plain draws in which the label is the largest, too."""
    loc, label = np.array([0.4, -0.8, 0.9]), 1
    law = ArgmaxNormal(loc, float(label))
    z = law.sample(20_000, seed=[1, 2]).numpy()
    assert np.all(np.argmax(z, -1) == label)
    plain = loc + np.random.default_rng(0).normal(size=(400_000, 3))
    plain = plain[np.argmax(plain, -1) == label]
    for draws in (z, plain):
        error = np.std(draws, 0) / np.sqrt(len(draws))
        assert np.max(np.abs(np.mean(draws, 0) - law.mean()) / error) < 4.5
        fourth = np.std(np.square(draws - np.mean(draws, 0)), 0) / np.sqrt(len(draws))
        assert np.max(np.abs(np.var(draws, 0) - law.variance()) / fourth) < 4.5
    for k in range(3):
        assert scipy.stats.ks_2samp(z[:, k], plain[:, k]).pvalue > 1e-3


def test_an_improbable_label_keeps_its_digits() -> None:
    """z_0 is then near (f_0 + f_1)/2, and both conditions meet in a variance of one half."""
    law = ArgmaxNormal(np.array([-300.0, 300.0]), np.float64(0.0))
    z = law.sample(2_000, seed=[1, 2])
    assert np.all(z[:, 0] >= z[:, 1])
    np.testing.assert_allclose(law.mean(), [0.0, 0.0], atol=0.01)
    np.testing.assert_allclose(np.mean(z, 0), law.mean(), atol=0.08)
    np.testing.assert_allclose(law.variance(), [0.5, 0.5], rtol=0.01)
    log_p = np.sum(scipy.stats.norm.logpdf([0.1, -0.1], [-300.0, 300.0]))
    log_p -= log_ndtr(-600.0 / np.sqrt(2.0))
    np.testing.assert_allclose(law.log_prob(np.array([0.1, -0.1])), log_p, rtol=1e-6)
    assert law.log_prob(np.array([-0.1, 0.1])) == -np.inf


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_batch_of_locations_and_labels_is_broadcast(dtype: type) -> None:
    law = ArgmaxNormal(np.zeros([5, 1, 3], dtype), np.array([0, 2], dtype))
    assert law.batch_shape == (5, 2)
    z = law.sample(4, seed=[1, 2])
    assert z.shape == (4, 5, 2, 3)
    assert z.dtype == dtype
    np.testing.assert_array_equal(np.argmax(z, -1), np.broadcast_to([0, 2], [4, 5, 2]))
    assert law.log_prob(z).shape == (4, 5, 2)
    assert law.mean().shape == (5, 2, 3)


def test_no_rows_have_no_moments_and_no_error() -> None:
    """A worker's share of a last batch can be empty."""
    law = ArgmaxNormal(np.zeros([0, 3]), np.zeros([0]))
    assert law.mean().shape == law.variance().shape == (0, 3)
    assert law.log_prob(np.zeros([0, 3])).shape == (0,)
    assert law.sample(2, seed=0).shape == (2, 0, 3)
