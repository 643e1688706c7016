"""What a training run is watched by: the bound on some rows, the NLL on others; of all workers."""

from collections.abc import Callable

import numpy as np
import tensorflow as tf
from gpflow.base import RegressionData
from gpflow.utilities import to_default_float

from ..data import Batches
from ..models import AugmentedModel
from ..workers import num_workers, sum_over_workers


def evaluators(
    model: AugmentedModel, batches: Batches, test_data: RegressionData | None
) -> tuple[Callable[[], tf.Tensor], Callable[[], tf.Tensor]]:
    def watched_elbo() -> tf.Tensor:
        return model.scaled_elbo(*model.checked_batch(batches.watched, batches.num_data))

    def test_nll() -> tf.Tensor:
        return -tf.reduce_mean(model.predict_log_density(test_data))

    elbo = tf.function(watched_elbo, autograph=False)
    nll = tf.function(test_nll, autograph=False)
    strategy = model.strategy
    if num_workers(strategy) > 1:
        of_own, nll_of_own = model.scaled_elbo, nll

        def elbo() -> tf.Tensor:
            X, Y = model.checked_rows(batches.watched)
            one, none = to_default_float(1.0), to_default_float(0.0)
            worth = of_own(X, Y, one) - of_own(X[:0], Y[:0], one)
            total, rows = sum_over_workers(strategy, [worth, tf.shape(X)[0]])
            scale = model.scale_of(rows, batches.num_data)
            return scale * total + of_own(X[:0], Y[:0], none)

        def nll() -> tf.Tensor:
            assert test_data is not None
            rows = len(test_data[0])
            total, rows = sum_over_workers(strategy, [rows * nll_of_own(), to_default_float(rows)])
            return total / rows

    return elbo, (lambda: tf.constant(np.nan)) if test_data is None else nll
