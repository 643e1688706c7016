"""The rows that a model of nearest neighbours stores; of several workers each stores some."""

from functools import cached_property

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray, RegressionData, TensorType

from ..runtime.identity import values_hashes
from ..runtime.workers import is_chief, num_workers, of_each_worker, sum_over_workers, worker_index

_SOME = 100_000  # rows that tell the scales of the columns


class StoredRows:
    """
    X [N, D], Y [N, P] of all workers, whose rows are numbered in the order of the workers.

    Its methods have the same results on every worker, and all workers must call them alike.
    """

    def __init__(self, data: RegressionData, strategy: tf.distribute.Strategy) -> None:
        """
        :param data: the rows of this worker, at least one.
        """
        self._own, self._strategy = data, strategy
        counts = of_each_worker(strategy, [len(data[0])])[:, 0]
        self.number = int(counts.sum())
        self.first = int(counts[: worker_index(strategy)].sum())  # of this worker's rows

    @property
    def is_chief(self) -> bool:
        """Whether this worker is the one that shows progress."""
        return is_chief(self._strategy)

    def of(self, numbers: TensorType) -> tuple[tf.Tensor, tf.Tensor]:
        """X [..., D] and Y [..., P] of the rows with these numbers [...]."""
        if num_workers(self._strategy) == 1:
            return tuple(tf.gather(part, numbers) for part in self._own)
        at = tf.convert_to_tensor(numbers) - self.first
        here = tf.clip_by_value(at, 0, len(self._own[0]) - 1)
        is_own = tf.equal(at, here)[..., None]
        parts = [tf.gather(part, here) for part in self._own]
        parts = [tf.where(is_own, part, tf.zeros_like(part)) for part in parts]
        return tuple(sum_over_workers(self._strategy, parts))

    @cached_property
    def some(self) -> tuple[AnyNDArray, AnyNDArray]:
        """X and Y of at most 100,000 rows, evenly spaced among all."""
        numbers = np.linspace(0, self.number - 1, min(self.number, _SOME)).astype(int)
        return tuple(part.numpy() for part in self.of(numbers))

    @cached_property
    def own_locations(self) -> AnyNDArray:
        """A hash [n] uint64 of the x of every row of this worker."""
        return location(self._own[0].numpy())

    def copies(self, locations: AnyNDArray) -> AnyNDArray:
        """How many rows of all workers have each of these :func:`location`, [n]."""
        ordered = self._ordered_locations
        of_own = [np.searchsorted(ordered, locations, side) for side in ("left", "right")]
        counts = of_own[1] - of_own[0]
        return of_each_worker(self._strategy, counts).sum(0)

    @cached_property
    def _ordered_locations(self) -> AnyNDArray:
        return np.sort(self.own_locations)


def location(X: AnyNDArray) -> AnyNDArray:
    """A hash [N] uint64 of every row of X [N, D]: the same for rows with the same x."""
    return values_hashes(X, X[:, :0], np.float64)
