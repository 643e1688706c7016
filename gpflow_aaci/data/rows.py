"""
Rows that are passed over: arrays, what pandas gives, datasets of batches, what a model keeps.

A pass gives them in chunks, so that what is summed over them needs memory for one chunk only.
"""

import abc
from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
import tensorflow as tf
from check_shapes.exceptions import ShapeMismatchError
from gpflow.base import AnyNDArray, RegressionData

from ..identity import rows_digest
from ..progress import progress_bar
from . import datasets
from .datasets import as_rows, check_batches, check_ends, check_not_empty, in_chunks, is_empty, read

Rows = tuple[tf.Tensor, tf.Tensor]
"""X [N, D] and Y [N, P]."""


class Model(Protocol):
    """What is asked of one."""

    num_data: Any
    keeps_data: bool

    def checked_rows(self, data: RegressionData) -> Rows: ...

    def checked_batch(
        self, data: RegressionData | None = None, num_data: int | None = None
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]: ...


class Data(abc.ABC):
    """All rows of a fit, in as many passes as it wants."""

    num_rows: int
    num_data: float  # that sums over the rows are scaled to
    digest: AnyNDArray  # [2], of the rows, see ``identity.rows_digest``
    progress: bool = False  # whether a bar shows each pass

    @property
    def scale(self) -> float:
        """num_data / rows."""
        return self.num_data / self.num_rows

    @property
    def identity(self) -> list[Any]:
        """For checkpoints; what JSON keeps."""
        return [self.num_rows, *map(hex, self.digest.tolist())]

    @property
    def only_chunk(self) -> Rows | None:
        """All rows, where they are in memory and fit into one chunk."""
        return None

    def chunks(self) -> Iterator[Rows]:
        """
        One pass, at most ``CHUNK`` rows at a time.

        :raises ValueError: where this pass has other rows than the first, at its end.
        """
        shown = {"total": self.num_rows, "unit": "row", "desc": "pass", "leave": False}
        with progress_bar(self.progress, **shown) as bar:
            for X, Y in self._chunks():
                yield X, Y
                bar.update(len(X))

    @abc.abstractmethod
    def _chunks(self) -> Iterator[Rows]: ...

    def subset(self, num_rows: int, seed: int) -> "Data":
        """Random rows, in memory; those of fewer rows are among them."""
        return self.taken(np.random.default_rng(seed).permutation(self.num_rows)[:num_rows])

    @abc.abstractmethod
    def taken(self, numbers: AnyNDArray) -> "Data":
        """The rows of these numbers, in that order and in memory."""


class Arrays(Data):
    """Rows in memory."""

    def __init__(
        self, X: AnyNDArray, Y: AnyNDArray, num_data: float, progress: bool = False
    ) -> None:
        self.X, self.Y, self.num_rows, self.num_data = X, Y, len(X), num_data
        self.progress = progress
        self._only = (tf.constant(X), tf.constant(Y)) if len(X) <= datasets.CHUNK else None

    @property
    def digest(self) -> AnyNDArray:
        return rows_digest(self.X, self.Y)

    @property
    def only_chunk(self) -> Rows | None:
        return self._only

    def _chunks(self) -> Iterator[Rows]:
        for start in range(0, max(1, self.num_rows), datasets.CHUNK):  # none are a chunk, too
            rows = slice(start, start + datasets.CHUNK)
            yield tf.constant(self.X[rows]), tf.constant(self.Y[rows])

    def taken(self, numbers: AnyNDArray) -> Data:
        return Arrays(self.X[numbers], self.Y[numbers], self.num_data, self.progress)


class OnePass:
    """The rows of a dataset, once, in chunks; they are checked and counted on the way."""

    def __init__(
        self,
        model: Model,
        dataset: tf.data.Dataset,
        progress: bool = False,
        unscaled: bool = False,
    ) -> None:
        """
        :param unscaled: as of :func:`~gpflow_aaci.data.as_data`.
        :raises ValueError: for what is no pass over batches (X, Y).
        """
        check_batches(dataset)
        check_ends("data", dataset)
        self._model, self._dataset, self._progress = model, dataset, progress
        self._unscaled = unscaled
        self.num_rows = 0

    def __iter__(self) -> Iterator[Rows]:
        """
        :raises ValueError: for a batch that is bad; at the end, where there was no row.
        """
        with progress_bar(self._progress, unit="row", desc="pass", leave=False) as bar:
            for chunk in in_chunks(self._checked()):
                yield chunk
                bar.update(len(chunk[0]))
        check_not_empty("data", self.num_rows)

    @property
    def num_data(self) -> float:
        known = None if self._unscaled else known_num_data(self._model)
        return float(self.num_rows if known is None else known)

    def _checked(self) -> Iterator[Rows]:
        self.num_rows = 0
        for number, batch in enumerate(read("data", self._dataset)):
            if is_empty(batch):
                continue
            try:
                X, Y = self._model.checked_rows(batch)
            except (ValueError, ShapeMismatchError) as error:
                raise ValueError(f"batch {number} of data: {error}") from error
            self.num_rows += len(X)
            yield X, Y


class Stream(Data):
    """The batches of a ``tf.data.Dataset``, which is one pass over the rows."""

    def __init__(
        self, model: Model, dataset: tf.data.Dataset, progress: bool, unscaled: bool = False
    ) -> None:
        """
        Passes over it once, to count and check the rows.

        :param unscaled: as of :func:`~gpflow_aaci.data.as_data`.
        :raises ValueError: as :class:`OnePass`.
        """
        self._dataset, self.progress = dataset, progress
        first = OnePass(model, dataset, progress, unscaled)
        self.digest, rows = np.zeros(2, np.uint64), 0
        for X, Y in first:
            self.digest += rows_digest(X.numpy(), Y.numpy(), rows)  # whatever the batches
            rows += len(X)
        self.num_rows, self.num_data = first.num_rows, first.num_data

    def _chunks(self) -> Iterator[Rows]:
        rows = 0
        for chunk in in_chunks(map(as_rows, read("data", self._dataset))):
            rows += len(chunk[0])
            yield chunk
        if rows != self.num_rows:
            raise ValueError(
                "data must have the same rows in every pass. "
                f"Found: {self.num_rows} in the first, {rows} in a later one."
            )

    def taken(self, numbers: AnyNDArray) -> Data:
        wanted = np.sort(numbers)
        parts, start = [], 0
        for X, Y in self.chunks():
            here = wanted[np.searchsorted(wanted, start) : np.searchsorted(wanted, start + len(X))]
            parts.append((X.numpy()[here - start], Y.numpy()[here - start]))
            start += len(X)
        X, Y = (np.concatenate(part) for part in zip(*parts, strict=True))
        as_drawn = np.argsort(np.argsort(numbers))  # the order that arrays would have them in
        return Arrays(X[as_drawn], Y[as_drawn], self.num_data, self.progress)


def refuse_where_kept(model: Model, data: Any) -> None:
    """
    :raises ValueError: where data are given to a model that keeps its own.
    """
    if model.keeps_data and data is not None:
        raise ValueError(
            f"data must not be given: {type(model).__name__} keeps its own. "
            f"Found: {type(data).__name__}."
        )


def check_pair(name: str, data: Any) -> None:
    """
    :raises ValueError: unless it is (X, Y).
    """
    if not isinstance(data, tuple | list) or len(data) != 2:
        raise ValueError(f"{name} must be a pair (X, Y). Found: {type(data).__name__}.")


def known_num_data(model: Model) -> int | None:
    """``model.num_data``, which may be a number, a variable or None."""
    return None if model.num_data is None else int(tf.convert_to_tensor(model.num_data))
