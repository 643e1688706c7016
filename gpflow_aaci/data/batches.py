"""Minibatches: of arrays, shuffled anew in every pass; of a dataset, in its own order."""

import abc
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray, RegressionData

from ..identity import digest
from ..workers import num_workers, of_each_worker, together
from .datasets import check_batches, check_not_empty, is_endless, untuned
from .rows import Arrays, Model, known_num_data, refuse_where_kept
from .shards import Shard, refuse_where_workers_keep

WATCHED_ROWS = 2_000
_FIRST = "first_batches.npz"

StepData: TypeAlias = RegressionData | Iterator[RegressionData] | None
"""A batch (X, Y), an iterator of batches, or None for a model that keeps its data."""


def check_step_data(model: Model, data: StepData, num_data: int | None = None) -> None:
    """
    :raises ValueError: unless it is what an optimizer's ``minimize`` takes.
    """
    refuse_where_kept(model, data)
    if not model.keeps_data and not isinstance(data, tuple | list | Iterator):
        raise ValueError(
            "data must be a tuple (X, Y) or an iterator of such batches, as iter(dataset). "
            f"Found: {type(data).__name__}."
        )
    if isinstance(data, Iterator) and model.num_data is None and num_data is None:
        # Each batch would be taken for all data, and a step of size 1 forgets all but the last.
        raise ValueError(
            "num_data of the model must be the number of rows of all batches together where data "
            "is an iterator of them: AugmentedSVGP(..., num_data=N). Found: None."
        )


def next_batch(data: StepData) -> RegressionData | None:
    """The batch itself, or the next one of an iterator."""
    return next(data) if isinstance(data, Iterator) else data


class Batches(abc.ABC):
    """The minibatches of a training run. ``next`` gives None for a model that keeps its data."""

    watched: RegressionData | None = None  # some rows, on which the bound is watched
    num_data: int | None = None  # rows in all, for a model that has been told none
    iterator: Any = None  # that ``tf.train.Checkpoint`` keeps, where it can
    identity: dict[str, Any]  # of the run, for checkpoints; what JSON keeps

    def write(self, folder: Path) -> None:  # noqa: B027, as most have nothing to store
        """Store what of the batches a new process could not find again, for a checkpoint."""

    def read(self, folder: Path) -> None:  # noqa: B027
        """Take up what :meth:`write` has stored there, if anything."""

    @abc.abstractmethod
    def go_to(self, step: int) -> None:
        """The batch of that step, from 0, is the next one."""

    @abc.abstractmethod
    def __next__(self) -> RegressionData | None:
        """
        :raises StopIteration: where the data end.
        """


def as_batches(
    model: Model,
    data: RegressionData | tf.data.Dataset | None,
    batch_size: int,
    seed: int,
    strategy: tf.distribute.Strategy | None = None,
    resumable: bool = False,
) -> Batches:
    """
    What ``train`` steps on.

    :param data: X [N, D], Y [N, P]; a dataset of batches; none for ``AugmentedVGP``.
    :param batch_size, seed: of the minibatches of arrays.
    :param strategy: on whose workers are rows, those of each being given to it. Batches of arrays
        are then those of one process with all rows, of which this worker has some or none.
    :param resumable: whether checkpoints are to say which batch is the next one.
    :raises ValueError: for bad data, and a dataset of unknown length for a model that has been
        told none.
    """
    refuse_where_kept(model, data)
    strategy = strategy or tf.distribute.get_strategy()
    refuse_where_workers_keep(model, strategy)
    if model.keeps_data:
        return _AllRows(model)
    if isinstance(data, tf.data.Dataset):
        batches = together(
            strategy, lambda: _OfDataset(model, data, num_workers(strategy), resumable)
        )
        if batches.num_data is not None:
            batches.num_data = int(of_each_worker(strategy, [batches.num_data]).sum())
        return batches
    check_step_data(model, data)
    X, Y, _ = together(strategy, lambda: [v.numpy() for v in model.checked_batch(data)])
    return _OfArrays(X, Y, batch_size, seed, strategy)


class _AllRows(Batches):
    """Of a model that keeps its data."""

    def __init__(self, model: Model) -> None:
        self.identity = {"data": digest([part.numpy() for part in model.checked_batch()[:2]])}

    def go_to(self, step: int) -> None:
        pass

    def __next__(self) -> None:
        return None


class _OfArrays(Batches):
    """A pass has an order of its own, so that any step's batch can be had at once."""

    def __init__(
        self,
        X: AnyNDArray,
        Y: AnyNDArray,
        batch_size: int,
        seed: int,
        strategy: tf.distribute.Strategy,
    ) -> None:
        self._X, self._Y, self._seed = X, Y, seed
        rows = Shard(Arrays(X, Y, len(X)), strategy, None)
        self.num_data = self._num_rows = rows.num_rows
        self._start = rows.first
        self._size = min(batch_size, self.num_data)
        self._step, self._pass, self._order = 0, -1, np.arange(self.num_data)
        order = np.random.default_rng(seed).permutation(self.num_data)
        self.watched = self._rows(np.sort(order[:WATCHED_ROWS]))
        self.identity = {"data": rows.identity, "batch_size": batch_size, "seed": seed}

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
        at = at - self._start
        at = at[(at >= 0) & (at < len(self._X))]
        return tf.constant(self._X[at]), tf.constant(self._Y[at])


class _OfDataset(Batches):
    """
    The batches of one iterator, the first of which are watched, too.

    Of one only: iterators of a dataset that shuffles share its random numbers, and read ahead, so
    that two of them would make the order a matter of chance. A dataset that shuffles without a seed
    begins with other batches in every process: its first ones are stored in checkpoints.
    """

    def __init__(
        self, model: Model, dataset: tf.data.Dataset, num_workers: int, resumable: bool
    ) -> None:
        """
        :raises ValueError: for what is no dataset of batches, and an empty one.
        """
        check_batches(dataset)
        known = known_num_data(model)
        rows = _num_rows(dataset) if known is None else known
        self.num_data = rows if known is None else None
        # Each worker has a part of every batch, and of what is watched.
        self.identity = {"data": str(dataset.element_spec), "workers": num_workers}
        self._iterator = iter(untuned(dataset))
        self._step = 0
        self._stores_first = num_workers == 1 and _shuffles_without_a_seed(dataset)
        # Of several workers a checkpoint has the chief's iterator alone, and TensorFlow cannot
        # store where a Python generator is: there a run goes on by skipping batches.
        self._skips = num_workers > 1
        if resumable and num_workers == 1 and not _can_be_stored(self._iterator):
            self._skips = True
            self.identity["way to go on"] = "skipping batches"
        self.iterator = None if self._skips else self._iterator
        most = min(WATCHED_ROWS, rows)
        self._first: list[RegressionData] = []
        while sum(len(X) for X, _ in self._first) < most:
            batch = next(self._iterator, None)
            if batch is None:
                break
            self._first.append(batch)
        check_not_empty("data", len(self._first))
        self._watch(most)

    def _watch(self, most: int) -> None:
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
        """The iterator is where a checkpoint has put it; this is about the first batches."""
        self._step = step
        for _ in range(step - len(self._first) if self._skips else 0):
            next(self._iterator, None)

    def __next__(self) -> RegressionData:
        step = self._step
        self._step += 1
        return self._first[step] if step < len(self._first) else next(self._iterator)


def _can_be_stored(iterator: Any) -> bool:
    """Whether ``tf.train.Checkpoint`` can write where it is, which only an attempt can tell."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            tf.train.Checkpoint(iterator=iterator).write(str(Path(folder) / "iterator"))
        except (tf.errors.FailedPreconditionError, tf.errors.UnimplementedError):
            return False
    return True


def _num_rows(data: tf.data.Dataset) -> int:
    """
    Rows of a dataset of batches that is one pass over its data.

    :raises ValueError: where TensorFlow does not know its length, or it repeats its data.
    """
    found = None
    if is_endless(data):
        found = "without end"
    elif data.cardinality() == tf.data.UNKNOWN_CARDINALITY:
        found = "of unknown length"
    elif _repeats(data):
        found = "that repeats its data"
    if found is not None:
        raise ValueError(
            "num_data of the model must be given with a dataset that is not one pass over data of "
            f"known length: AugmentedSVGP(..., num_data=N). Found: None, and a dataset {found}."
        )
    zero = tf.constant(0, tf.int64)
    return int(untuned(data).reduce(zero, lambda n, batch: n + tf.shape(batch[0], tf.int64)[0]))


def _repeats(data: tf.data.Dataset) -> bool:
    """Whether ``repeat`` is anywhere in the pipeline."""
    return any("Repeat" in type(part).__name__ for part in _pipeline(data))


def _shuffles_without_a_seed(data: tf.data.Dataset) -> bool:
    """Whether a ``shuffle`` anywhere in the pipeline draws another order in every process."""
    seeds = [(getattr(p, "_seed", 1), getattr(p, "_seed2", 1)) for p in _pipeline(data)]
    return any(int(seed) == int(seed2) == 0 for seed, seed2 in seeds)


def _pipeline(data: tf.data.Dataset) -> Iterator[tf.data.Dataset]:
    """The dataset and all that it is made of."""
    yield data
    for source in data._inputs():
        yield from _pipeline(source)
