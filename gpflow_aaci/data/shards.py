"""``Shard``: the rows of all workers, some of which this one has."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray

from ..identity import shifted
from ..workers import of_each_worker, sum_over_workers, together, worker_index
from .batches import Batches, BatchesOfArrays
from .datasets import check_not_empty
from .expected import Rows
from .rows import Arrays, Data


class Shard(Data):
    """
    The rows of all workers, some of which this one has: in its passes, and of every subset.

    They are numbered in the order of the workers, so that subsets are those of one process. Several
    devices share the rows of a process.
    """

    def __init__(self, own: Data, strategy: tf.distribute.Strategy, num_data: Any) -> None:
        """
        :param num_data: the number of rows that a sum stands for, or None for those of all.
        """
        self._own, self.strategy, self.progress = own, strategy, own.progress
        self._num_data, self._counts = num_data, np.zeros(0, np.int64)

    @property
    def counts(self) -> AnyNDArray:
        """
        The number of rows of each worker.

        :raises ValueError: where there are none.
        """
        if not len(self._counts):
            self._counts = of_each_worker(self.strategy, [self._own.num_rows])[:, 0]
            check_not_empty("data", int(self._counts.sum()))
        return self._counts

    @property
    def first(self) -> int:
        """The number of this worker's first row."""
        return int(self.counts[: worker_index(self.strategy)].sum())

    @property
    def num_rows(self) -> Any:
        if tf.executing_eagerly():
            return int(self.counts.sum())
        return sum_over_workers(self.strategy, [tf.convert_to_tensor(self._own.num_rows)])[0]

    @property
    def digest(self) -> AnyNDArray:
        halves = shifted(self._own.digest, self.first).view(np.uint32)
        of_each = of_each_worker(self.strategy, halves).astype(np.uint32)
        return of_each.view(np.uint64).sum(0, dtype=np.uint64)

    @property
    def rows(self) -> Rows:
        return self._own.rows

    def _chunks(self) -> Iterator[Rows]:
        return self._own.chunks()

    chunks = _chunks  # with the bar of its own rows

    def taken(self, numbers: AnyNDArray) -> Data:
        numbers = numbers - self.first
        here = numbers[(numbers >= 0) & (numbers < self._own.num_rows)]
        own = together(self.strategy, lambda: self._own.taken(here))
        found = Shard(own, self.strategy, self.num_data)
        found.log = self.log
        return found

    def batches(self, size: int, seed: int, resumable: bool = False) -> Batches:
        if isinstance(self._own, Arrays):
            of_all = self.first, self.identity, size, seed
            return BatchesOfArrays(self._own.rows, *of_all, self.strategy)
        batches = together(self.strategy, lambda: self._own.batches(size, seed, resumable))
        return batches.on_workers(self.strategy)
