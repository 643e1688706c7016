"""What a full-batch method passes over: the rows of this process, or of all workers."""

from collections.abc import Iterator

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray, RegressionData

from ..identity import shifted
from ..workers import is_single, num_workers, of_each_worker, together, worker_index
from .datasets import check_not_empty
from .rows import Arrays, Data, Model, Rows, Stream, known_num_data, refuse_where_kept


class Shard(Data):
    """
    The rows of all workers, of which this one has some: in its passes, and of every subset.

    They are numbered in the order of the workers, so that subsets are those of one process. Several
    devices share the rows of a process.
    """

    def __init__(self, own: Data, strategy: tf.distribute.Strategy, num_data: float | None) -> None:
        """
        :param num_data: the number of rows of all, unless given.
        :raises ValueError: where there are no rows.
        """
        self._own, self._strategy, self.progress = own, strategy, own.progress
        counts = of_each_worker(strategy, [own.num_rows])[:, 0]
        self.num_rows = int(counts.sum())
        self.first = int(counts[: worker_index(strategy)].sum())
        self.num_data = float(self.num_rows) if num_data is None else num_data
        check_not_empty("data", self.num_rows)

    @property
    def digest(self) -> AnyNDArray:
        halves = shifted(self._own.digest, self.first).view(np.uint32)
        of_each = of_each_worker(self._strategy, halves).astype(np.uint32)
        return of_each.view(np.uint64).sum(0, dtype=np.uint64)

    def _chunks(self) -> Iterator[Rows]:
        return self._own.chunks()

    chunks = _chunks  # with the bar of its own rows

    def taken(self, numbers: AnyNDArray) -> Data:
        numbers = numbers - self.first
        here = numbers[(numbers >= 0) & (numbers < self._own.num_rows)]
        own = together(self._strategy, lambda: self._own.taken(here))
        return Shard(own, self._strategy, self.num_data)


def as_data(
    model: Model,
    data: RegressionData | tf.data.Dataset | None,
    progress: bool = False,
    unscaled: bool = False,
    strategy: tf.distribute.Strategy | None = None,
) -> Data:
    """
    What a full-batch method passes over.

    :param data: X [N, D], Y [N, P], as arrays or frames; a dataset of such batches, one pass over
        the rows; none for ``AugmentedVGP``.
    :param unscaled: whether the rows stand for themselves alone, whatever ``num_data`` and
        whatever the model keeps.
    :param strategy: on whose workers are rows, those of each being given to it; or devices.
    :raises ValueError: for bad data.
    """
    if strategy is not None and not is_single(strategy):
        refuse_where_workers_keep(model, strategy)
        mine = together(strategy, lambda: as_data(model, data, progress, unscaled))
        known = None if unscaled else known_num_data(model)
        return Shard(mine, strategy, None if known is None else float(known))
    if not unscaled:
        refuse_where_kept(model, data)
    if isinstance(data, tf.data.Dataset):
        return Stream(model, data, progress, unscaled)
    if unscaled:
        X, Y = (value.numpy() for value in model.checked_rows(data))
        return Arrays(X, Y, len(X), progress)
    X, Y, scale = (value.numpy() for value in model.checked_batch(data))
    return Arrays(X, Y, float(scale) * len(X), progress)


def refuse_where_workers_keep(model: Model, strategy: tf.distribute.Strategy) -> None:
    """
    :raises ValueError: for a model that keeps its data, where each worker has its own.
    """
    if model.keeps_data and num_workers(strategy) > 1:
        raise ValueError(
            f"model must be an AugmentedSVGP on several workers: {type(model).__name__} has an "
            f"inducing point at every row. Found: {num_workers(strategy)} workers."
        )
