"""
``Data``: rows to sum over. It hides chunks, devices and workers from the other modules.

A pass yields the rows in chunks, so a sum over the rows needs memory for one chunk only. A
minibatch is ``Data``, too: it has one chunk, and its sums are scaled up to all rows.
"""

import abc
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray, TensorType
from gpflow.utilities import to_default_float

from ..progress import progress_bar
from ..runtime.identity import digest, rows_digest
from ..runtime.workers import (
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
from .random_rows import RandomRows
from .summand import Summand


class Data(abc.ABC):
    """Rows X [N, D], Y [N, P]; a method may pass over them any number of times."""

    strategy: tf.distribute.Strategy = ONE_PROCESS  # whose workers have the rows
    progress: bool = False  # whether a bar shows each pass
    log: PassLog = PassLog()  # stores the sums of each Summand
    _num_data: Any = None  # ``num_data``, or None where it is ``num_rows``

    @property
    @abc.abstractmethod
    def num_rows(self) -> Any:
        """The number of all workers' rows: an integer, or a tensor inside ``tf.function``."""

    @property
    def num_data(self) -> Any:
        """The number of rows that sums are scaled up to. Default: ``num_rows``."""
        return self.num_rows if self._num_data is None else self._num_data

    @property
    def is_chief(self) -> bool:
        """Whether this worker is the one that shows progress and writes files."""
        return is_chief(self.strategy)

    def any_worker(self, here: bool) -> bool:
        """Whether ``here`` is true on at least one worker."""
        return any_worker(self.strategy, here)

    @property
    def scale(self) -> tf.Tensor:
        """num_data/rows [], the factor of a sum over the rows."""
        return to_default_float(self.num_data) / to_default_float(self.num_rows)

    def sum(self, function: Callable[..., Any] | Summand, *args: Any) -> Any:
        """
        Return num_data/rows · Σ function(X, Y, *args), summed over all chunks of all workers.

        The result has the same bits on every worker. If there is one chunk, ``sum`` can be called
        inside ``tf.function`` and under a gradient tape.

        :param function: a :class:`Summand` or a Python function. It returns any structure of
            tensors that are sums over the rows X [n, D], Y [n, P] of a chunk.
        :raises ValueError: for bad rows, and if a pass has different rows from the first pass.
        :raises RuntimeError: if data cannot be read, or a worker is lost.
        """
        if not isinstance(function, Summand):
            total = self._pass(over_devices(self.strategy, function), args)
        elif self.log.stores or num_workers(self.strategy) > 1:
            total = self._logged(function, args)
        else:
            total = self._pass(function.function, args)
        scale = self.scale  # known only now, if this was the first pass over a stream
        return tf.nest.map_structure(lambda part: scale * part, total)

    def total(self, sums: Any) -> Any:
        """Add up sums over the rows of each worker, and scale the results by num_data/rows."""
        scale = self.scale
        flat = sum_over_workers(self.strategy, tf.nest.flatten(sums))
        return tf.nest.pack_sequence_as(sums, [scale * part for part in flat])

    def mean(self, function: Callable[..., Any] | Summand, *args: Any) -> Any:
        """Return the mean over all rows; ``function`` and errors are as for :meth:`sum`."""
        num_data = to_default_float(self.num_data)
        return tf.nest.map_structure(lambda part: part / num_data, self.sum(function, *args))

    def map(self, function: Callable[[tf.Tensor, tf.Tensor], Any]) -> Any:
        """Apply ``function(X, Y)`` to each chunk of this worker, and join the results on axis 0."""
        parts = [function(X, Y) for X, Y in self.chunks()]
        return tf.nest.map_structure(lambda *values: tf.concat(values, 0), *parts)

    def _logged(self, summand: Summand, args: Sequence[Any]) -> Any:
        identity = [np.asarray(self.num_rows), *summand.identity(args)]
        # The workers make decisions from these sums, so all must have summed the same function of
        # the same arguments: ``together`` compares the mark.
        mark = 1 + int(digest(identity)[:12], 16)

        def a_pass() -> list[tf.Tensor]:
            return tf.nest.flatten(self._pass(summand.function, args, mark))

        return summand.packed(self.log(identity, a_pass))

    def _pass(self, of_chunk: Callable[..., Any], args: Sequence[Any], mark: int = 1) -> Any:
        """Return the unscaled sum over all workers' rows."""

        def over_own_rows() -> Any:
            return functools.reduce(_added, (of_chunk(*rows, *args) for rows in self.chunks()))

        eager = tf.executing_eagerly()
        total = together(self.strategy, over_own_rows, mark) if eager else over_own_rows()
        flat = sum_over_workers(self.strategy, tf.nest.flatten(total))
        return tf.nest.pack_sequence_as(total, flat)

    @property
    def identity(self) -> list[Any]:
        """The number of rows and their digest, for checkpoints; values that JSON can hold."""
        return [int(self.num_rows), *map(hex, self.digest.tolist())]

    @property
    @abc.abstractmethod
    def digest(self) -> AnyNDArray:
        """The digest [2] uint64 of the rows, as ``runtime.identity.rows_digest`` has it."""

    @property
    def only_chunk(self) -> Rows | None:
        """All rows, if this process has them in memory and they fit into one chunk, else None."""
        return None

    @property
    def rows(self) -> Rows:
        """All rows of this worker, if they are in memory."""
        raise NotImplementedError

    def chunks(self) -> Iterator[Rows]:
        """
        Pass over the rows of this worker, and yield at most ``CHUNK`` of them at a time.

        :raises ValueError: for bad rows; at the end, if the rows differ from the first pass.
        """
        shown = self.progress and self.only_chunk is None
        with progress_bar(shown, unit="row", desc="pass", leave=False) as bar:
            for X, Y in self._chunks():
                yield X, Y
                bar.update(len(X) if tf.executing_eagerly() else 0)

    @abc.abstractmethod
    def _chunks(self) -> Iterator[Rows]: ...

    def draw_ahead(self, num_rows: int, seed: int) -> None:  # noqa: B027, most need no pass
        """Let the first pass keep the rows that :meth:`subset` will need, up to this number."""

    def subset(self, num_rows: int, seed: int, skip: int = 0) -> "Data":
        """
        Random rows, in memory. With the same seed, a smaller subset is the start of a larger one.

        The rows do not depend on their order, on the float type, or on how the data were given.

        :param skip: the number of first rows of the subset to leave out.
        """
        X, Y = (part[skip:num_rows] for part in self.drawn(num_rows, seed).parts)
        return self.in_memory(X, Y)

    @abc.abstractmethod
    def drawn(self, num_rows: int, seed: int) -> RandomRows:
        """X and Y of at least this number of this worker's random rows, or of all its rows."""

    def batch(self, X: tf.Tensor, Y: tf.Tensor, num_data: int | None) -> "Data":
        """
        A batch of these rows, as data whose sums are scaled up to all of them.

        :param X, Y: what :meth:`batches` has returned; works inside ``tf.function``.
        :param num_data: the number of all rows, where the model has none.
        :raises ValueError: for bad rows of a dataset, which no pass has checked.
        """
        return Arrays(X, Y, num_data if self._num_data is None else self._num_data)

    def in_memory(self, X: AnyNDArray, Y: AnyNDArray) -> "Data":
        """Some of these rows, as data of the same number of data and with the same log."""
        rows = Arrays(tf.constant(X), tf.constant(Y), self.num_data, self.progress)
        rows.log = self.log
        return rows

    @property
    def is_divided(self) -> bool:
        """Whether this process has some of the rows only."""
        return False

    @abc.abstractmethod
    def batches(self, size: int, seed: int, resumable: bool = False) -> Batches:
        """
        Return minibatches of the rows, for the steps of a training run.

        :param size, seed: the number of rows in a batch and the seed of their order. A dataset
            already has batches and an order, and ignores both.
        :param resumable: whether checkpoints are to store which batch is the next one.
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
        :param num_data: the number of rows that sums are scaled up to; None for no scaling.
        """
        self.X, self.Y = X, Y
        self._num_data, self.progress = num_data, progress
        self._most = 0
        self._drawn: RandomRows | None = None  # the numbers of the rows drawn so far

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

    def draw_ahead(self, num_rows: int, seed: int) -> None:
        self._most = max(self._most, num_rows)

    def drawn(self, num_rows: int, seed: int) -> RandomRows:
        X, Y = np.asarray(self.X), np.asarray(self.Y)
        numbers, wanted = self._drawn, min(num_rows, len(X))
        if numbers is None or seed != numbers.seed or wanted > len(numbers.keys):
            # All rows are hashed once, for all subsets of a fit.
            numbers = self._drawn = RandomRows(max(num_rows, self._most), seed)
            numbers.add(X, Y, np.arange(len(X)))
        rows, chosen = RandomRows(num_rows, seed), numbers.parts[0][:num_rows]
        rows.keys, rows.parts = numbers.keys[:num_rows], (X[chosen], Y[chosen])
        return rows

    def batches(self, size: int, seed: int, resumable: bool = False) -> Batches:
        return BatchesOfArrays(self.rows, 0, self.identity, size, seed)


def _added(one: Any, other: Any) -> Any:
    return tf.nest.map_structure(tf.add, one, other)
