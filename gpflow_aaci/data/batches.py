"""Minibatches: arrays are shuffled anew in every pass, a dataset has its own order."""

import abc
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray, RegressionData

from ..runtime.identity import digest
from ..runtime.workers import (
    ONE_PROCESS,
    any_worker,
    is_chief,
    naming_the_lost,
    num_workers,
    of_each_worker,
    together,
)
from .datasets import check_batches, check_not_empty, is_empty, is_endless, untuned
from .expected import Expected, Rows

T = TypeVar("T")

WATCHED_ROWS = 2_000  # rows on which the objective is evaluated during training
_FIRST = "first_batches.npz"


class Batches(abc.ABC):
    """The minibatches of a training run. ``next`` returns None for a model that keeps its data."""

    watched: RegressionData | None = None  # some rows, on which the objective is evaluated
    num_data: int | None = None  # the number of all rows, for a model that was not given one
    iterator: Any = None  # for ``tf.train.Checkpoint`` to store, or None where it cannot
    identity: dict[str, Any]  # identifies the data in checkpoints; values that JSON can hold
    strategy: tf.distribute.Strategy = ONE_PROCESS

    def write(self, folder: Path) -> None:  # noqa: B027, as most have nothing to store
        """Store in a checkpoint the batches that a new process could not reproduce."""

    def read(self, folder: Path) -> None:  # noqa: B027
        """Load what :meth:`write` has stored in ``folder``, if anything."""

    @abc.abstractmethod
    def go_to(self, step: int) -> None:
        """Make the batch of ``step``, which counts from 0, the next one."""

    @abc.abstractmethod
    def __next__(self) -> RegressionData | None:
        """
        Return the next batch, or None for a model that keeps its data.

        :raises StopIteration: if the data have ended.
        """

    def next_of_all(self) -> RegressionData | None:
        """
        Return the next batch of this worker, once every worker has read one.

        :raises StopIteration: on every worker, if the data of one worker have ended.
        """
        batch = together(self.strategy, lambda: next(self, _ENDED))
        if self.any_worker(batch is _ENDED):
            raise StopIteration
        return batch

    @property
    def is_chief(self) -> bool:
        """Whether this worker is the one that shows progress and writes files."""
        return is_chief(self.strategy)

    @property
    def is_shared(self) -> bool:
        """Whether each batch is split among several workers."""
        return num_workers(self.strategy) > 1

    def together(self, action: Callable[[], T]) -> T:
        """Return what ``action`` returns here, once it has succeeded on every worker."""
        return together(self.strategy, action)

    def any_worker(self, here: bool) -> bool:
        """Whether ``here`` is true on at least one worker."""
        return any_worker(self.strategy, here)

    def naming_the_lost(self) -> AbstractContextManager[None]:
        """A context in which the loss of a worker raises an error that names the worker."""
        return naming_the_lost(self.strategy)

    def on_workers(self, strategy: tf.distribute.Strategy) -> "Batches":
        """Treat each batch as this worker's part of a batch that all workers share."""
        self.strategy = strategy
        self.identity = {**self.identity, "workers": num_workers(strategy)}
        if self.num_data is not None:
            self.num_data = int(of_each_worker(strategy, [self.num_data]).sum())
        return self


_ENDED: Any = object()  # stands for a batch, where this worker's data have ended


class AllRows(Batches):
    """The batches of a model that keeps its data: every step uses all rows."""

    def __init__(self, X: tf.Tensor, Y: tf.Tensor) -> None:
        self.identity = {"data": digest([np.asarray(X), np.asarray(Y)])}

    def go_to(self, step: int) -> None:
        pass

    def __next__(self) -> None:
        return None


class BatchesOfArrays(Batches):
    """
    Random minibatches of arrays, without replacement within a pass.

    The order of a pass depends only on the seed and the pass's number, so ``go_to`` does not need
    to read the earlier batches.
    """

    def __init__(
        self,
        own: Rows,
        first: int,
        rows: list[Any],
        size: int,
        seed: int,
        strategy: tf.distribute.Strategy = ONE_PROCESS,
    ) -> None:
        """
        :param own: this worker's rows.
        :param first: the number of this worker's first row, counted over all workers.
        :param rows: the identity of all workers' rows; it begins with the number of rows.
        :param size: the number of rows in a batch, summed over all workers.
        """
        self._X, self._Y, self._seed = *map(np.asarray, own), seed
        self.strategy, self._start = strategy, first
        self.num_data = self._num_rows = int(rows[0])
        self._size = min(size, self._num_rows)
        self._step, self._pass, self._order = 0, -1, np.arange(self._num_rows)
        order = np.random.default_rng(seed).permutation(self._num_rows)
        self.watched = self._rows(np.sort(order[:WATCHED_ROWS]))
        self.identity = {"data": rows, "batch_size": size, "seed": seed}

    def go_to(self, step: int) -> None:
        self._step = step

    def __next__(self) -> RegressionData:
        number, within = divmod(self._step, self._num_rows // self._size)
        if number != self._pass:
            rng = np.random.default_rng([self._seed, number])
            self._pass, self._order = number, rng.permutation(self._num_rows)
        self._step += 1
        return self._rows(self._order[within * self._size : (within + 1) * self._size])

    def _rows(self, at: AnyNDArray) -> RegressionData:
        """Return those rows with the numbers ``at`` that this worker has."""
        at = at - self._start
        at = at[(at >= 0) & (at < len(self._X))]
        return tf.constant(self._X[at]), tf.constant(self._Y[at])


class BatchesOfDataset(Batches):
    """
    The batches of a dataset. The rows of the first batches are also the watched rows.

    Both come from one iterator. Two iterators of a dataset that shuffles share its random numbers
    and read ahead, so that the order of the batches would depend on which of them is faster. A
    dataset that shuffles without a seed begins with different batches in every process; checkpoints
    therefore store the first batches.
    """

    def __init__(self, expected: Expected, dataset: tf.data.Dataset, resumable: bool) -> None:
        """
        :param resumable: whether checkpoints are to store which batch is the next one.
        :raises ValueError: if the dataset is empty or does not yield batches (X, Y), or if the
            number of rows is neither given nor known to TensorFlow.
        """
        check_batches(dataset)
        known = expected.known_num_data
        rows = _num_rows(dataset) if known is None else known
        self.num_data = rows if known is None else None
        # Each worker has a part of every batch, and of the watched rows.
        workers = num_workers(expected.strategy)
        self.identity = {"data": str(dataset.element_spec), "workers": workers}
        self._iterator = iter(untuned(dataset))
        self._step = 0
        self._stores_first = workers == 1 and _shuffles_without_a_seed(dataset)
        # A checkpoint holds the iterator of the chief only, and TensorFlow cannot store the
        # position of a Python generator. In both cases a resumed run skips batches instead.
        self._is_shared = self._skips = workers > 1
        if resumable and workers == 1 and not _can_be_stored(self._iterator):
            self._skips = True
            self.identity["way to resume"] = "skipping batches"
        self.iterator = None if self._skips else self._iterator
        most = min(WATCHED_ROWS, rows)
        self._first: list[RegressionData] = []
        while sum(len(X) for X, _ in self._first) < most:
            batch = self._next()
            if batch is None:
                break
            self._first.append(batch)
        check_not_empty("data", len(self._first))
        self._watch(most)

    def _watch(self, most: int) -> None:
        """Use at most ``most`` rows from the first batches as the watched rows."""
        parts = zip(*self._first, strict=True)
        self.watched = tuple(tf.concat(part, axis=0)[:most] for part in parts)

    def write(self, folder: Path) -> None:
        if self._stores_first:
            np.savez(folder / _FIRST, *(part.numpy() for batch in self._first for part in batch))

    def read(self, folder: Path) -> None:
        if not (folder / _FIRST).is_file():
            return
        with np.load(folder / _FIRST) as arrays:
            parts = [tf.constant(arrays[f"arr_{number}"]) for number in range(len(arrays))]
        assert self.watched is not None
        self._first = list(zip(parts[::2], parts[1::2], strict=True))
        self._watch(len(self.watched[0]))
        self._stores_first = True

    def go_to(self, step: int) -> None:
        """Skip the batches before ``step``, unless a checkpoint has restored the iterator."""
        self._step = step
        for _ in range(step - len(self._first) if self._skips else 0):
            self._next()

    def __next__(self) -> RegressionData:
        step = self._step
        self._step += 1
        if step < len(self._first):
            return self._first[step]
        batch = self._next()
        if batch is None:
            raise StopIteration
        return batch

    def _next(self) -> RegressionData | None:
        """Return the next batch that has rows, or None if the data have ended."""
        # An empty batch of one worker may have rows on the others, so that no worker skips it.
        batch = next(self._iterator, None)
        while batch is not None and not self._is_shared and is_empty(batch):
            batch = next(self._iterator, None)
        return batch


def _can_be_stored(iterator: Any) -> bool:
    """Try whether ``tf.train.Checkpoint`` can store the iterator."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            tf.train.Checkpoint(iterator=iterator).write(str(Path(folder) / "iterator"))
        except (tf.errors.FailedPreconditionError, tf.errors.UnimplementedError):
            return False
    return True


def _num_rows(data: tf.data.Dataset) -> int:
    """
    Count the rows of a dataset of batches that is one pass over its data.

    :raises ValueError: if TensorFlow does not know the length, or the dataset repeats its data.
    """
    fault = None
    if is_endless(data):
        fault = "without end"
    elif data.cardinality() == tf.data.UNKNOWN_CARDINALITY:
        fault = "of unknown length"
    elif _repeats(data):
        fault = "that repeats its data"
    if fault is not None:
        raise ValueError(
            "num_data of the model must be given unless the dataset is one pass over data of "
            f"known length: AugmentedSVGP(..., num_data=N). Found: None, and a dataset {fault}."
        )
    zero = tf.constant(0, tf.int64)
    return int(untuned(data).reduce(zero, lambda n, batch: n + tf.shape(batch[0], tf.int64)[0]))


def _repeats(data: tf.data.Dataset) -> bool:
    """Whether the pipeline has a ``repeat`` anywhere."""
    return any("Repeat" in type(part).__name__ for part in _pipeline(data))


def _shuffles_without_a_seed(data: tf.data.Dataset) -> bool:
    """Whether the pipeline has a ``shuffle`` whose order differs between processes."""
    # TensorFlow writes 0 for both seeds where none is given; other parts have no seeds.
    seeds = [(getattr(p, "_seed", 1), getattr(p, "_seed2", 1)) for p in _pipeline(data)]
    return any(int(seed) == int(seed2) == 0 for seed, seed2 in seeds)


def _pipeline(data: tf.data.Dataset) -> Iterator[tf.data.Dataset]:
    """Yield the dataset and all datasets from which it is made."""
    yield data
    for source in data._inputs():
        yield from _pipeline(source)
