"""How a run is evaluated: its objective on some training rows, and the NLL of test rows."""

from collections.abc import Callable

import numpy as np
import tensorflow as tf
from gpflow.base import RegressionData

from ..data import Batches, as_data
from ..graphs import compiled
from ..models import AugmentedModel
from ..models.bounds import TermOf


def evaluators(
    model: AugmentedModel, of: TermOf, batches: Batches, test_data: RegressionData | None
) -> tuple[Callable[[], tf.Tensor], Callable[[], tf.Tensor]]:
    """
    The objective of a term on ``batches.watched``, and the mean NLL of ``test_data`` in nats.

    :param test_data: X [N, D], Y [N, P], or None, whose NLL is NaN.
    """
    expected = model.expected_data

    def objective() -> tf.Tensor:
        watched = as_data(expected, batches.watched, num_data=batches.num_data)
        return model.objectives(watched, of)[0]

    def of_rows(X: tf.Tensor, Y: tf.Tensor) -> tf.Tensor:
        return -tf.reduce_sum(model.predict_log_density((X, Y)))

    def nll() -> tf.Tensor:
        if test_data is None:
            return tf.constant(np.nan)
        return as_data(expected, test_data, unscaled=True).mean(of_rows)

    if batches.is_shared:
        return objective, nll
    return compiled(objective), compiled(nll)
