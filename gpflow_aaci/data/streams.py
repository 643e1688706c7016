"""``Stream``: the batches of a ``tf.data.Dataset``, of any length."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf
from check_shapes.exceptions import ShapeMismatchError
from gpflow.base import AnyNDArray

from ..runtime.identity import rows_digest, unordered_digest
from .batches import Batches, BatchesOfDataset
from .datasets import as_rows, check_batches, check_ends, check_not_empty, in_chunks, is_empty, read
from .expected import Expected, Rows, checked_rows
from .random_rows import RandomRows
from .rows import Data


class Stream(Data):
    """
    The rows of a ``tf.data.Dataset`` of batches, which must pass over the rows once.

    The first pass checks and counts the rows. Later passes must have the same rows, in any order.
    """

    def __init__(
        self, expected: Expected, dataset: tf.data.Dataset, num_data: Any, progress: bool
    ) -> None:
        """
        :param num_data: the number of rows that sums are scaled up to; None for no scaling.
        :raises ValueError: if the dataset does not yield batches (X, Y).
        """
        check_batches(dataset)
        self._expected, self._dataset, self._num_data = expected, dataset, num_data
        self.progress = progress
        self._rows: int | None = None  # until a pass has counted them
        self._digest = self._unordered = np.zeros(2, np.uint64)
        self._drawn = RandomRows(0, 0)  # in the first pass

    @property
    def num_rows(self) -> int:
        if self._rows is None:  # only a pass can count them
            for _ in self.chunks():
                pass
        assert self._rows is not None
        return self._rows

    @property
    def digest(self) -> AnyNDArray:
        assert self.num_rows  # makes the first pass, which computes the digest
        return self._digest

    def _chunks(self) -> Iterator[Rows]:
        check_ends("data", self._dataset)
        return self._first_pass() if self._rows is None else self._later_pass()

    def _first_pass(self) -> Iterator[Rows]:
        rows, ordered, unordered = 0, np.zeros(2, np.uint64), np.zeros(2, np.uint64)
        self._drawn = RandomRows(self._drawn.size, self._drawn.seed)
        for X, Y in in_chunks(self._checked()):
            ordered += rows_digest(X.numpy(), Y.numpy(), rows)  # does not depend on the batch size
            unordered += unordered_digest(X.numpy(), Y.numpy())
            if self._drawn.size:
                self._drawn.add(X.numpy(), Y.numpy())
            rows += len(X)
            yield X, Y
        check_not_empty("data", rows)
        self._rows, self._digest, self._unordered = rows, ordered, unordered

    def _later_pass(self) -> Iterator[Rows]:
        rows, unordered = 0, np.zeros(2, np.uint64)
        for X, Y in in_chunks(map(as_rows, read("data", self._dataset))):
            unordered += unordered_digest(X.numpy(), Y.numpy())
            rows += len(X)
            yield X, Y
        if rows != self._rows or np.any(unordered != self._unordered):
            others = "" if rows != self._rows else " with other values"
            raise ValueError(
                "data must have the same rows in every pass, in any order. "
                f"Found: {self._rows} in the first, {rows}{others} in a later one."
            )

    def _checked(self) -> Iterator[Rows]:
        """Yield the batches that have rows, each of them checked."""
        for number, batch in enumerate(read("data", self._dataset)):
            if is_empty(batch):
                continue
            try:
                yield checked_rows(self._expected, batch)
            except (ValueError, ShapeMismatchError) as error:
                raise ValueError(f"batch {number} of data: {error}") from error

    def draw_ahead(self, num_rows: int, seed: int) -> None:
        if self._rows is None:
            self._drawn = RandomRows(num_rows, seed)

    def drawn(self, num_rows: int, seed: int) -> RandomRows:
        if min(num_rows, self.num_rows) <= self._drawn.size and seed == self._drawn.seed:
            return self._drawn
        rows = RandomRows(num_rows, seed)
        for X, Y in self.chunks():
            rows.add(X.numpy(), Y.numpy())
        return rows

    def batch(self, X: tf.Tensor, Y: tf.Tensor, num_data: int | None) -> Data:
        return super().batch(*checked_rows(self._expected, (X, Y)), num_data)

    def batches(self, size: int, seed: int, resumable: bool = False) -> Batches:
        return BatchesOfDataset(self._expected, self._dataset, resumable)
