"""``Shard``: rows that are divided among several workers."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray

from ..runtime.identity import shifted
from ..runtime.workers import of_each_worker, sum_over_workers, together, worker_index
from .batches import Batches, BatchesOfArrays
from .datasets import check_not_empty
from .expected import Rows
from .random_rows import RandomRows
from .rows import Arrays, Data


class Shard(Data):
    """
    Rows divided among all workers. Passes and subsets yield the rows that this worker holds.

    Rows are numbered in the order of the workers. A subset has the same rows as it would have in
    one process. The devices of a worker share its rows.
    """

    def __init__(self, own: Data, strategy: tf.distribute.Strategy, num_data: Any) -> None:
        """
        :param own: this worker's rows.
        :param num_data: the number of rows that sums are scaled up to; None for no scaling.
        """
        self._own, self.strategy, self.progress = own, strategy, own.progress
        self._num_data, self._counts = num_data, np.zeros(0, np.int64)

    @property
    def counts(self) -> AnyNDArray:
        """
        The number of rows of each worker.

        :raises ValueError: if no worker has any rows.
        """
        if not len(self._counts):
            self._counts = of_each_worker(self.strategy, [self._own.num_rows])[:, 0]
            check_not_empty("data", int(self._counts.sum()))
        return self._counts

    @property
    def first(self) -> int:
        """The number of this worker's first row, counted over all workers."""
        return int(self.counts[: worker_index(self.strategy)].sum())

    @property
    def num_rows(self) -> Any:
        if tf.executing_eagerly():
            return int(self.counts.sum())
        return sum_over_workers(self.strategy, [tf.convert_to_tensor(self._own.num_rows)])[0]

    @property
    def digest(self) -> AnyNDArray:
        # Workers exchange numbers below 2^53 only, so each word of 64 bits is sent as two halves.
        halves = shifted(self._own.digest, self.first).view(np.uint32)
        of_each = of_each_worker(self.strategy, halves).astype(np.uint32)
        return of_each.view(np.uint64).sum(0, dtype=np.uint64)

    @property
    def is_divided(self) -> bool:
        return True

    @property
    def rows(self) -> Rows:
        return self._own.rows

    def _chunks(self) -> Iterator[Rows]:
        return self._own.chunks()

    chunks = _chunks  # without a bar, as the rows of this worker show one

    def draw_ahead(self, num_rows: int, seed: int) -> None:
        self._own.draw_ahead(num_rows, seed)

    def drawn(self, num_rows: int, seed: int) -> RandomRows:
        return together(self.strategy, lambda: self._own.drawn(num_rows, seed))

    def subset(self, num_rows: int, seed: int, skip: int = 0) -> Data:
        """This worker's rows among those that one process would choose."""
        own, most = self.drawn(num_rows, seed), min(num_rows, self.num_rows)
        keys = np.full(most, 2**53 - 1, np.uint64)  # at least as large as any key
        keys[: len(own.keys)] = own.keys[:most]
        of_all = np.sort(of_each_worker(self.strategy, keys).ravel()).astype(np.uint64)
        # A row that several workers hold has one key, so numbers of rows would be ambiguous.
        first = np.searchsorted(own.keys, of_all[skip - 1], "right") if skip else 0
        last = np.searchsorted(own.keys, of_all[most - 1], "right")
        X, Y = (part[first:last] for part in own.parts)
        shard = Shard(self._own.in_memory(X, Y), self.strategy, self.num_data)
        shard.log = self.log
        return shard

    def batch(self, X: tf.Tensor, Y: tf.Tensor, num_data: int | None) -> Data:
        own = self._own.batch(X, Y, num_data)
        return Shard(own, self.strategy, own.num_data)

    def batches(self, size: int, seed: int, resumable: bool = False) -> Batches:
        if isinstance(self._own, Arrays):
            of_all = self.first, self.identity, size, seed
            return BatchesOfArrays(self._own.rows, *of_all, self.strategy)
        batches = together(self.strategy, lambda: self._own.batches(size, seed, resumable))
        return batches.on_workers(self.strategy)
