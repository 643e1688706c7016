"""Datasets of batches: what one may be, and its rows a chunk at a time."""

from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf
from gpflow.base import TensorType

from ..validation import as_default_float, check_rank

CHUNK = 64_000  # rows

Parts = tuple[tf.Tensor, ...]
"""X, or X and Y."""


def check_batches(dataset: tf.data.Dataset) -> None:
    """
    :raises ValueError: unless its elements are pairs.
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
    :param spec: of the elements of a dataset or of an iterator.
    :raises ValueError: for batches (X, Y) of which one is known to be a vector.
    """
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
    :raises ValueError: unless its elements are batches X [B, D].
    """
    if not isinstance(dataset.element_spec, tf.TensorSpec):
        raise ValueError(
            "Xnew must be a dataset of batches X [B, D]. Found: elements of "
            f"{dataset.element_spec}. Dataset.map makes X of them."
        )


def is_endless(dataset: tf.data.Dataset) -> bool:
    return bool(dataset.cardinality() == tf.data.INFINITE_CARDINALITY)


def check_ends(name: str, dataset: tf.data.Dataset) -> None:
    if is_endless(dataset):
        raise ValueError(
            f"{name} must be one pass over the rows. Found: a dataset without end, such as "
            "dataset.repeat() makes."
        )


def check_not_empty(name: str, num_batches_or_rows: int) -> None:
    """
    :raises ValueError: where there is none.
    """
    if not num_batches_or_rows:
        raise ValueError(f"{name} must hold at least one batch. Found: an empty dataset.")


def is_empty(batch: Parts) -> bool:
    """Whether a batch has no rows, as a filter after batching may leave it."""
    return batch[0].shape[0] == 0 if batch[0].shape.rank else False


def untuned(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """
    The same batches, without the thread by which tf.data tunes its buffers.

    That one sleeps 10 ms, 20, 40, ..., up to a minute, and the end of a pass waits until it wakes:
    up to as long again as the pass itself took.
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.with_options(options)


def read(name: str, dataset: tf.data.Dataset) -> Iterator[Any]:
    """
    Its batches.

    :raises RuntimeError: where one cannot be read.
    """
    number = 0
    try:
        for batch in untuned(dataset):
            yield batch
            number += 1
    except tf.errors.OpError as error:
        raise RuntimeError(f"batch {number} of {name} cannot be read: {error.message}") from error


def in_chunks(batches: Iterator[Parts]) -> Iterator[Parts]:
    """The same rows, ``CHUNK`` at a time."""
    held: list[Parts] = []
    waiting = 0
    for batch in batches:
        held.append(batch)
        waiting += len(batch[0])
        while waiting >= CHUNK:
            joined = _joined(held)
            yield tuple(part[:CHUNK] for part in joined)
            held, waiting = [tuple(part[CHUNK:] for part in joined)], waiting - CHUNK
    if waiting:
        yield _joined(held)


def as_rows(batch: TensorType | tuple[TensorType, ...]) -> Parts:
    parts = batch if isinstance(batch, tuple) else (batch,)
    return tuple(as_default_float(part, name) for part, name in zip(parts, "XY", strict=False))


def _joined(rows: list[Parts]) -> Parts:
    return rows[0] if len(rows) == 1 else tuple(tf.concat(p, 0) for p in zip(*rows, strict=True))


def over_batches(name: str, function: Callable[..., Any], dataset: tf.data.Dataset) -> Any:
    """
    What ``function`` gives for X or (X, Y), a chunk at a time, joined along the first axis.

    :raises ValueError: for a dataset without batches, or without end.
    """
    check_ends(name, dataset)
    parts = [function(*chunk) for chunk in in_chunks(map(as_rows, read(name, dataset)))]
    check_not_empty(name, len(parts))
    return tf.nest.map_structure(lambda *values: tf.concat(values, 0), *parts)
