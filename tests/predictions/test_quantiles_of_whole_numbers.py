"""Quantiles of whole numbers, also of negative ones."""

import numpy as np
import pytest
import scipy.stats
import tensorflow as tf
from gpflow.base import AnyNDArray

from gpflow_aaci.predictions.quantiles import quantile_of_counts

LEVELS: AnyNDArray = np.array([1e-12, 0.01, 0.3, 0.5, 0.9, 1.0 - 1e-9])


@pytest.mark.parametrize("mean", [-4000.3, -37.2, -1.0, -0.2, 0.0, 0.4, 55.0])
@pytest.mark.parametrize("scale", [0.01, 0.7, 30.0])
def test_a_quantile_is_the_first_number_with_its_level(mean: float, scale: float) -> None:
    """Of a normal number that is rounded."""

    def cdf(y: tf.Tensor) -> tf.Tensor:
        return tf.constant(scipy.stats.norm.cdf((y.numpy() + 0.5 - mean) / scale))

    found = quantile_of_counts(cdf, tf.constant(LEVELS), may_be_negative=True).numpy()
    np.testing.assert_array_equal(found, np.round(found))
    assert np.all(cdf(tf.constant(found)).numpy() >= LEVELS)
    assert np.all(cdf(tf.constant(found - 1.0)).numpy() < LEVELS)


def test_counts_are_searched_from_zero_up() -> None:
    asked: list[float] = []

    def cdf(y: tf.Tensor) -> tf.Tensor:
        asked.extend(y.numpy())
        return tf.constant(scipy.stats.poisson.cdf(y.numpy(), 3.7))

    found = quantile_of_counts(cdf, tf.constant(LEVELS)).numpy()
    np.testing.assert_array_equal(found, scipy.stats.poisson.ppf(LEVELS, 3.7))
    assert min(asked) == 0.0
