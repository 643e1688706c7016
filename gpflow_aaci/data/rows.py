"""
``Data``: rows that are summed over. The only home of chunks, devices, workers and scale.

A pass gives the rows in chunks, so that a sum over them needs memory for one chunk only. A
minibatch is ``Data``, too: one chunk, with a scale of its own.
"""

import abc
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray, TensorType
from gpflow.utilities import to_default_float

from ..identity import digest, rows_digest
from ..progress import progress_bar
from ..workers import (
    ONE_PROCESS,
    any_worker,
    is_chief,
    num_workers,
    over_devices,
    sum_over_workers,
    together,
)
from . import datasets
from .batches import Batches, BatchesOfArrays
from .expected import Rows
from .passes import PassLog
from .random_rows import random_numbers
from .summand import Summand


class Data(abc.ABC):
    """Rows X [N, D], Y [N, P], in as many passes as a method wants."""

    strategy: tf.distribute.Strategy = ONE_PROCESS  # whose workers have the rows
    progress: bool = False  # whether a bar shows each pass
    log: PassLog = PassLog()  # of sums of a Summand
    _num_data: Any = None  # where it has been told

    @property
    @abc.abstractmethod
    def num_rows(self) -> Any:
        """The number of rows of all workers: an integer, or a tensor inside ``tf.function``."""

    @property
    def num_data(self) -> Any:
        """The number of rows that a sum stands for, which is ``num_rows`` unless told."""
        return self.num_rows if self._num_data is None else self._num_data

    @property
    def is_chief(self) -> bool:
        """Whether this worker shows and writes what is shown and written once."""
        return is_chief(self.strategy)

    def any_worker(self, here: bool) -> bool:
        """Whether it is so on one of the workers."""
        return any_worker(self.strategy, here)

    @property
    def scale(self) -> tf.Tensor:
        """num_data / rows []: what multiplies a sum over the rows."""
        return to_default_float(self.num_data) / to_default_float(self.num_rows)

    def sum(self, function: Callable[..., Any] | Summand, *args: Any) -> Any:
        """
        num_data/rows · Σ function(X, Y, *args), over all rows of all workers.

        The result has the same bits on every worker. With one chunk it works inside
        ``tf.function`` and under a gradient tape.

        :param function: gives any structure of tensors that are sums over the rows X [n, D],
            Y [n, P] of a chunk: a :class:`Summand`, or a Python function.
        :raises ValueError: for bad rows, and where a pass has other rows than the first one.
        :raises RuntimeError: where data cannot be read, or a worker is lost.
        """
        if not isinstance(function, Summand):
            total = self._pass(over_devices(self.strategy, lambda X, Y: function(X, Y, *args)))
        elif self.log.stores or num_workers(self.strategy) > 1:
            total = self._logged(function, args)
        else:
            total = self._pass(lambda X, Y: function.function(X, Y, *args))
        scale = self.scale  # which a first pass over a stream finds out
        return tf.nest.map_structure(lambda part: scale * part, total)

    def total(self, sums: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """num_data/rows · the sum over all workers of what are sums over the rows of this one."""
        scale = self.scale
        return [scale * part for part in sum_over_workers(self.strategy, sums)]

    def mean(self, function: Callable[..., Any] | Summand, *args: Any) -> Any:
        """The mean over all rows of what ``function`` sums."""
        num_data = to_default_float(self.num_data)
        return tf.nest.map_structure(lambda part: part / num_data, self.sum(function, *args))

    def map(self, function: Callable[[tf.Tensor, tf.Tensor], Any]) -> Any:
        """What ``function(X, Y)`` gives for each row of this worker, chunks joined along axis 0."""
        parts = [function(X, Y) for X, Y in self.chunks()]
        return tf.nest.map_structure(lambda *values: tf.concat(values, 0), *parts)

    def _logged(self, summand: Summand, args: Sequence[Any]) -> Any:
        identity = [np.asarray(self.num_rows), *summand.identity(args)]
        # Decisions follow from these numbers, so that all workers must have the same.
        mark = 1 + int(digest(identity)[:12], 16)

        def a_pass() -> list[tf.Tensor]:
            return tf.nest.flatten(self._pass(lambda X, Y: summand.function(X, Y, *args), mark))

        return summand.packed(self.log(identity, a_pass))

    def _pass(self, of_chunk: Callable[[tf.Tensor, tf.Tensor], Any], mark: int = 1) -> Any:
        """The sum over all rows, before it is scaled."""

        def own() -> Any:
            return functools.reduce(_added, (of_chunk(X, Y) for X, Y in self.chunks()))

        total = together(self.strategy, own, mark) if tf.executing_eagerly() else own()
        flat = sum_over_workers(self.strategy, tf.nest.flatten(total))
        return tf.nest.pack_sequence_as(total, flat)

    @property
    def identity(self) -> list[Any]:
        """What the rows are, for checkpoints; values that JSON can hold."""
        return [int(self.num_rows), *map(hex, self.digest.tolist())]

    @property
    @abc.abstractmethod
    def digest(self) -> AnyNDArray:
        """[2] uint64, of the rows: see :func:`~gpflow_aaci.identity.rows_digest`."""

    @property
    def only_chunk(self) -> Rows | None:
        """All rows, where they are in the memory of this process and fit into one chunk."""
        return None

    @property
    def rows(self) -> Rows:
        """The rows of this worker at once, where they are in memory."""
        raise NotImplementedError

    def chunks(self) -> Iterator[Rows]:
        """
        One pass over the rows of this worker, at most ``CHUNK`` of them at a time.

        :raises ValueError: for bad rows; at the end, where the pass has other rows than the first.
        """
        with progress_bar(self.progress, unit="row", desc="pass", leave=False) as bar:
            for X, Y in self._chunks():
                yield X, Y
                bar.update(len(X) if tf.executing_eagerly() else 0)

    @abc.abstractmethod
    def _chunks(self) -> Iterator[Rows]: ...

    def draw_ahead(self, num_rows: int, seed: int) -> None:  # noqa: B027, most need no pass
        """Let the first pass put aside what :meth:`subset` will ask for, up to so many rows."""

    def subset(self, num_rows: int, seed: int, skip: int = 0) -> "Data":
        """
        Random rows, in memory; a smaller subset of the same seed is the beginning of a larger one.

        :param skip: how many of the first rows of the subset are left out.
        """
        return self.taken(random_numbers(self.num_rows, num_rows, seed)[skip:])

    @abc.abstractmethod
    def taken(self, numbers: AnyNDArray) -> "Data":
        """The rows of these numbers, in that order and in memory."""

    @abc.abstractmethod
    def batches(self, size: int, seed: int, resumable: bool = False) -> Batches:
        """
        Minibatches, for steps.

        :param size, seed: rows in a batch and the seed of their order, where the data are arrays.
        :param resumable: whether checkpoints are to say which batch is the next one.
        """


class Arrays(Data):
    """Rows in memory: all of them, or a minibatch."""

    def __init__(
        self,
        X: TensorType,
        Y: TensorType,
        num_data: TensorType | None = None,
        progress: bool = False,
    ) -> None:
        """
        :param num_data: the number of rows that a sum stands for, or None for these.
        """
        self.X, self.Y = X, Y
        self._num_data, self.progress = num_data, progress

    @property
    def num_rows(self) -> Any:
        return tf.shape(self.X)[0] if tf.is_symbolic_tensor(self.X) else len(self.X)

    @property
    def digest(self) -> AnyNDArray:
        return rows_digest(np.asarray(self.X), np.asarray(self.Y))

    @property
    def rows(self) -> Rows:
        return tf.convert_to_tensor(self.X), tf.convert_to_tensor(self.Y)

    @property
    def only_chunk(self) -> Rows | None:
        is_one = tf.is_symbolic_tensor(self.X) or len(self.X) <= datasets.CHUNK
        return self.rows if is_one else None

    def _chunks(self) -> Iterator[Rows]:
        if self.only_chunk is not None:
            yield self.only_chunk
            return
        for start in range(0, len(self.X), datasets.CHUNK):
            rows = slice(start, start + datasets.CHUNK)
            yield tf.convert_to_tensor(self.X[rows]), tf.convert_to_tensor(self.Y[rows])

    def taken(self, numbers: AnyNDArray) -> Data:
        X, Y = (tf.constant(np.asarray(part)[numbers]) for part in (self.X, self.Y))
        found = Arrays(X, Y, self.num_data, self.progress)
        found.log = self.log
        return found

    def batches(self, size: int, seed: int, resumable: bool = False) -> Batches:
        return BatchesOfArrays(self.rows, 0, self.identity, size, seed)


def _added(one: Any, other: Any) -> Any:
    return tf.nest.map_structure(tf.add, one, other)
