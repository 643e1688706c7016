"""PIT values, which are uniform if the model is right, and the coverage of intervals."""

from functools import partial
from typing import TypeAlias

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray, RegressionData

from ..data import as_data
from ..models import WithData, of_any_gp
from ..predictions.y import cdf_of_q, randomised_pit

AnyData: TypeAlias = RegressionData | tf.data.Dataset | None


@of_any_gp
def pit(model: WithData, data: AnyData = None, *, seed: int = 0) -> AnyNDArray:
    """
    The probability integral transform P(y' ≤ y) of every y, [N, columns of y].

    If the model is right, these values are uniform on [0, 1]. For a discrete y the value is
    drawn uniformly between P(y' < y) and P(y' ≤ y), so that this holds, too (randomised PIT:
    Czado, Gneiting and Held 2009, Biometrics 65, Sec. 2.1). For a censored y, which is known only
    up to an interval, it is drawn uniformly between the probabilities of the interval's ends.

    :param data: X [N, D], Y [N, P], training data or others, as arrays, frames or a
        ``tf.data.Dataset`` of such batches; None for the data that an
        ``AugmentedVGP`` or ``AugmentedNNGP`` stores.
    :param seed: the seed for the draws of a discrete or censored y.
    :raises ValueError: for bad data.
    """
    rng = np.random.default_rng([seed, 3])  # not the stream that X may have been drawn from

    def of_rows(X: tf.Tensor, Y: tf.Tensor) -> AnyNDArray:
        return randomised_pit(model.likelihood, Y, partial(cdf_of_q, model, X), rng)

    rows = as_data(model.expected_data, data, unscaled=data is not None)
    return rows.map(of_rows).numpy()


def coverage(pit_values: AnyNDArray, probabilities: AnyNDArray) -> AnyNDArray:
    """The share of y inside their central intervals, for each of the given probabilities."""
    distance = np.sort(2.0 * np.abs(np.ravel(pit_values) - 0.5))
    return np.searchsorted(distance, probabilities, side="right") / len(distance)


def binomial_band(num_data: int, probability: float | AnyNDArray) -> AnyNDArray:
    """
    The central 95 % interval [2, ...] of a binomial share.

    It is the share of ``num_data`` independent events that occur, each with this probability.
    """
    import scipy.stats  # here, as it is slow to import

    tails = np.array([0.025, 0.975]).reshape([2] + [1] * np.ndim(probability))
    return scipy.stats.binom.ppf(tails, num_data, probability) / num_data
