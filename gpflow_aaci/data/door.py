"""``as_data``: data from arrays, frames, datasets of batches, or the model itself."""

from collections.abc import Iterator
from typing import Any, TypeAlias

import tensorflow as tf
from gpflow.base import RegressionData

from ..runtime.agreement import Call
from ..runtime.workers import ONE_PROCESS, is_chief, is_single, together
from .batches import AllRows, Batches
from .datasets import check_rows_of_batches
from .expected import Expected, checked_rows, refuse_where_kept, refuse_where_workers_keep
from .rows import Arrays, Data
from .shards import Shard
from .streams import Stream

StepData: TypeAlias = RegressionData | Iterator[RegressionData] | None
"""A batch (X, Y), an iterator of batches, or None for a model that keeps its data."""


class _Own(Arrays):
    """The rows that a model keeps itself."""

    def batches(self, size: int, seed: int, resumable: bool = False) -> Batches:
        return AllRows(self.X, self.Y)


def as_data(
    expected: Expected,
    data: RegressionData | tf.data.Dataset | None = None,
    progress: bool = False,
    num_data: Any = None,
    unscaled: bool = False,
    call: Call | None = None,
) -> Data:
    """
    Return the rows that a method sums over, checked.

    :param data: X [N, D], Y [N, P], as arrays or frames; a dataset of batches; None for a model
        that keeps its own data.
    :param progress: whether to show a progress bar for each pass over the rows.
    :param num_data: the number of rows that sums are scaled up to, if the model has none.
    :param unscaled: whether to leave sums unscaled, for any ``num_data``. A model that keeps its
        own data then accepts other data, too.
    :param call: the public call, where all workers must make the same one; compared before data are
        read.
    :raises ValueError: for bad data, and if the workers' calls differ.
    """
    is_alone = expected.strategy is ONE_PROCESS and is_single(ONE_PROCESS)
    if call is not None and not is_alone:  # alone there is nothing to compare
        expected.agree(call)
    progress = progress and is_chief(expected.strategy)
    known = num_data if expected.num_data is None else expected.num_data
    known = None if unscaled else known
    if not unscaled:
        refuse_where_kept(expected, data)

    def own() -> Data:
        return _of_this_process(expected, data, progress, known)

    strategy = expected.strategy
    if is_single(strategy):
        return own()
    refuse_where_workers_keep(expected)
    return Shard(together(strategy, own) if tf.executing_eagerly() else own(), strategy, known)


def as_arrays(expected: Expected, data: RegressionData | None = None) -> Arrays:
    """
    Return all rows as arrays, for methods that store a value for every row.

    :param data: X [N, D], Y [N, P]; None for a model that keeps its own data.
    :raises ValueError: for bad data, and for a dataset.
    """
    if isinstance(data, tf.data.Dataset):
        raise ValueError(
            "data must be arrays (X, Y) here, as values are stored for every row. "
            "Found: a tf.data.Dataset."
        )
    refuse_where_kept(expected, data)
    rows = _of_this_process(expected, data, False, expected.num_data)
    assert isinstance(rows, Arrays)
    return rows


def _of_this_process(expected: Expected, data: Any, progress: bool, num_data: Any) -> Data:
    """Return the rows of this worker, as if there were no others."""
    if isinstance(data, tf.data.Dataset):
        if not tf.executing_eagerly():
            raise ValueError(
                "data must not be a tf.data.Dataset inside a tf.function. Found: a dataset."
            )
        return Stream(expected, data, num_data, progress)
    if data is None:
        if expected.own is None:
            raise ValueError(
                f"data must be given: {expected.model} does not store its data. Found: None."
            )
        own = _Own(*map(tf.convert_to_tensor, expected.own))
        rows = expected.known_num_data if tf.executing_eagerly() else None
        if rows is not None and own.num_rows != rows:
            raise ValueError(
                f"the data of {expected.model} must have as many rows as its q_mu, {rows}. Put the "
                "old data back: gpflow.models.vgp.update_vgp_data(model, (X, Y)) exchanges data "
                f"and q together. Found: {own.num_rows} rows."
            )
        return own
    X, Y = checked_rows(expected, data)
    return Arrays(X, Y, num_data, progress=progress)


def next_batch(data: StepData) -> RegressionData | None:
    """Return the batch itself, or the next batch of an iterator."""
    return next(data) if isinstance(data, Iterator) else data


def check_step_data(expected: Expected, data: Any, num_data: int | None = None) -> None:
    """
    Check the data of an optimizer's ``minimize``, which must be ``StepData``.

    :param num_data: the number of all rows, if the model has none.
    :raises ValueError: for anything else, and for an iterator if the number is not known.
    """
    refuse_where_kept(expected, data)
    if expected.own is None and not isinstance(data, tuple | list | Iterator):
        raise ValueError(
            "data must be a tuple (X, Y) or an iterator of such batches, as iter(dataset). "
            f"Found: {type(data).__name__}."
        )
    check_rows_of_batches(getattr(data, "element_spec", None))
    if isinstance(data, Iterator) and expected.num_data is None and num_data is None:
        # Otherwise each batch would count as all data, and a step of size 1 would fit q to the
        # last batch only.
        raise ValueError(
            "num_data of the model must be the number of rows of all batches together if data is "
            "an iterator of batches: AugmentedSVGP(..., num_data=N). Found: None."
        )
