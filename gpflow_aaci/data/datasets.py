"""Datasets of batches: checks of their elements, and iteration over their rows in chunks."""

from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf
from gpflow.base import TensorType

from ..validation import as_default_float, check_rank

CHUNK = 128_000  # rows that are in memory at a time

Parts = tuple[tf.Tensor, ...]
"""(X,) or (X, Y), with the same number of rows."""


def check_batches(dataset: tf.data.Dataset) -> None:
    """
    :raises ValueError: unless the elements of ``dataset`` are pairs of batches (X, Y).
    """
    spec = dataset.element_spec
    if not (isinstance(spec, tuple) and len(spec) == 2):
        raise ValueError(
            "data must be a dataset of batches (X [B, D], Y [B, P]). Found: elements of "
            f"{spec}. Dataset.map makes pairs of them."
        )
    check_rows_of_batches(spec)


def check_rows_of_batches(spec: Any) -> None:
    """
    :param spec: the ``element_spec`` of a dataset or of an iterator.
    :raises ValueError: if X or Y is known not to be a matrix.
    """
    # These are the ranks of single rows, the elements of a dataset that was never batched.
    ranks = [getattr(getattr(part, "shape", None), "rank", None) for part in tf.nest.flatten(spec)]
    if ranks in ([1, 0], [1, 1]):
        raise ValueError(
            "data must be a dataset of batches (X [B, D], Y [B, P]), as dataset.batch(100) makes. "
            f"Found: elements of {spec}."
        )
    for name, rank in zip("XY", ranks, strict=False):
        check_rank(name, rank)


def check_inputs(dataset: tf.data.Dataset) -> None:
    """
    :raises ValueError: unless the elements of ``dataset`` are batches X [B, D].
    """
    if not isinstance(dataset.element_spec, tf.TensorSpec):
        raise ValueError(
            "Xnew must be a dataset of batches X [B, D]. Found: elements of "
            f"{dataset.element_spec}. Dataset.map makes X of them."
        )


def is_endless(dataset: tf.data.Dataset) -> bool:
    """Whether the dataset repeats its data endlessly."""
    return bool(dataset.cardinality() == tf.data.INFINITE_CARDINALITY)


def check_ends(name: str, dataset: tf.data.Dataset) -> None:
    """
    :param name: the name of the argument, for the message.
    :raises ValueError: if the dataset is endless.
    """
    if is_endless(dataset):
        raise ValueError(
            f"{name} must be one pass over the rows. Found: a dataset without end, such as "
            "dataset.repeat() makes."
        )


def check_not_empty(name: str, num_batches_or_rows: int) -> None:
    """
    :raises ValueError: if the number is 0.
    """
    if not num_batches_or_rows:
        raise ValueError(f"{name} must hold at least one batch. Found: an empty dataset.")


def is_empty(batch: Parts) -> bool:
    """Whether a batch has no rows, for example after a filter."""
    return batch[0].shape[0] == 0 if batch[0].shape.rank else False


def untuned(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """
    Return a dataset of the same batches, whose buffers tf.data does not tune.

    The thread that tunes them sleeps for 10 ms, 20 ms, 40 ms and so on up to a minute, and a pass
    ends only when this thread wakes up: a pass may take twice as long as it needs.
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.with_options(options)


def read(name: str, dataset: tf.data.Dataset) -> Iterator[Any]:
    """
    Yield the batches of ``dataset``.

    :param name: the name of the argument, for the message.
    :raises RuntimeError: if a batch cannot be read.
    """
    number = 0
    try:
        for batch in untuned(dataset):
            yield batch
            number += 1
    except tf.errors.OpError as error:
        raise RuntimeError(f"batch {number} of {name} cannot be read: {error.message}") from error


def in_chunks(batches: Iterator[Parts]) -> Iterator[Parts]:
    """Yield the rows of the batches in chunks of ``CHUNK``; the last chunk may be smaller."""
    pending: list[Parts] = []  # batches that are not yet part of a chunk
    num_pending = 0  # their rows
    for batch in batches:
        pending.append(batch)
        num_pending += len(batch[0])
        while num_pending >= CHUNK:
            joined = _joined(pending)
            yield tuple(part[:CHUNK] for part in joined)
            pending, num_pending = [tuple(part[CHUNK:] for part in joined)], num_pending - CHUNK
    if num_pending:
        yield _joined(pending)


def as_rows(batch: TensorType | tuple[TensorType, ...]) -> Parts:
    """Return a batch X or (X, Y) as a tuple of tensors of ``default_float()``."""
    parts = batch if isinstance(batch, tuple) else (batch,)
    return tuple(as_default_float(part, name) for part, name in zip(parts, "XY", strict=False))


def _joined(rows: list[Parts]) -> Parts:
    return rows[0] if len(rows) == 1 else tuple(tf.concat(p, 0) for p in zip(*rows, strict=True))


def over_batches(name: str, function: Callable[..., Any], dataset: tf.data.Dataset) -> Any:
    """
    Apply ``function`` to X or (X, Y), a chunk at a time, and join the results along axis 0.

    :param name: the name of the argument, for the message.
    :param function: returns any structure of tensors that have one entry per row.
    :raises ValueError: if the dataset has no batches, or is endless.
    :raises RuntimeError: if a batch cannot be read.
    """
    check_ends(name, dataset)
    parts = [function(*chunk) for chunk in in_chunks(map(as_rows, read(name, dataset)))]
    check_not_empty(name, len(parts))
    return tf.nest.map_structure(lambda *values: tf.concat(values, 0), *parts)
