"""What a run is watched by: its objective on some rows, the NLL on others; of all workers."""

from collections.abc import Callable

import numpy as np
import tensorflow as tf
from gpflow.base import RegressionData
from gpflow.utilities import to_default_float

from ..data import Batches
from ..graphs import compiled
from ..models import AugmentedModel
from ..models.bounds import TermOf
from ..workers import num_workers, sum_over_workers


def evaluators(
    model: AugmentedModel, of: TermOf, batches: Batches, test_data: RegressionData | None
) -> tuple[Callable[[], tf.Tensor], Callable[[], tf.Tensor]]:
    """The objective of a term on ``batches.watched``, and the NLL on ``test_data``."""

    def on_watched_rows() -> tf.Tensor:
        rows = model.checked_batch(batches.watched, batches.num_data)
        return model.scaled_objective(of, *rows)

    def test_loss() -> tf.Tensor:
        return -tf.reduce_sum(model.predict_log_density(test_data))

    watched = compiled(on_watched_rows)
    loss = compiled(test_loss)
    rows_here = 0 if test_data is None else len(test_data[0])
    strategy = model.strategy
    if num_workers(strategy) > 1:
        objective = model.scaled_objective

        def watched() -> tf.Tensor:
            X, Y = model.checked_rows(batches.watched)
            one, none = to_default_float(1.0), to_default_float(0.0)
            worth = objective(of, X, Y, one) - objective(of, X[:0], Y[:0], one)
            total, rows = sum_over_workers(strategy, [worth, tf.shape(X)[0]])
            scale = model.scale_of(rows, batches.num_data)
            return scale * total + objective(of, X[:0], Y[:0], none)

    def nll() -> tf.Tensor:
        total, rows = sum_over_workers(strategy, [loss(), to_default_float(rows_here)])
        return total / rows

    return watched, (lambda: tf.constant(np.nan)) if test_data is None else nll
