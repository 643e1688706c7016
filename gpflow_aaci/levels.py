"""
Levels: the words that a column of X may hold, or the numbers, and the codes that stand for them.

X is a matrix of numbers. In it the code of a word is its place among the levels, 0 … G − 1; a level
that is a number is its own code. Kernels know the levels of their columns, so that a model can turn
the words of a frame into codes.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.config import default_float

Levels: TypeAlias = Mapping[int, AnyNDArray]
"""The levels [G], words or numbers, of columns of X, by the number of the column."""

UNSEEN = "(unseen)"
"""A level for words that a fit has not seen, in the columns of words of an estimator."""

_MOST_SHOWN = 20  # levels in a message


def as_levels(values: Any, owner: str) -> AnyNDArray:
    """
    The distinct values [G], of text or of float.

    Words are in the order in which they appear first, or as pandas orders its categories, all of
    which are levels. Numbers are sorted.

    :param values: [N], a column of a frame, a list or an array.
    :param owner: the name of what has the levels, for the error.
    :raises ValueError: for other values than words or finite numbers, for none, and for numbers
        that the float type cannot tell apart.
    """
    categories = getattr(getattr(values, "dtype", None), "categories", None)
    found = np.asarray(values if categories is None else categories)
    is_text = found.dtype.kind == "O" and all(isinstance(value, str) for value in found.flat)
    if is_text or (categories is not None and found.dtype.kind not in "biuf"):
        found = found.astype(str)
    try:
        found = found if found.dtype.kind == "U" else found.astype(float)
        num_bad = 0 if are_words(found) else int(np.sum(~np.isfinite(found)))
    except (TypeError, ValueError):
        num_bad = sum(not isinstance(value, str) for value in found.flat)
    if found.ndim != 1 or len(found) == 0 or num_bad or found.dtype.kind not in "Uf":
        raise ValueError(
            f"levels of {owner} must be finite numbers, [G], or words. "
            f"Found: shape {list(found.shape)}, {num_bad} not finite or no words."
        )
    if are_words(found):
        return np.array(list(dict.fromkeys(found.tolist())))
    distinct = np.unique(found)
    if len(np.unique(distinct.astype(default_float()))) < len(distinct):
        raise ValueError(
            f"levels of {owner} must be distinct in {np.dtype(default_float())}: number them from "
            f"0 up. Found: {distinct[-1]:.0f}, for example."
        )
    return distinct


def are_words(levels: AnyNDArray) -> bool:
    """Whether the levels are words, and not numbers."""
    return levels.dtype.kind == "U"


def codes_of(levels: AnyNDArray) -> AnyNDArray:
    """What X holds for each level [G], ascending."""
    return np.arange(float(len(levels))) if are_words(levels) else levels


def index_of(values: tf.Tensor, levels: AnyNDArray) -> tf.Tensor:
    """The number of the level whose code is nearest to each value, in the shape of ``values``."""
    codes = codes_of(levels)
    edges = tf.constant((codes[1:] + codes[:-1]) / 2.0, values.dtype)
    return tf.reshape(tf.searchsorted(edges, tf.reshape(values, [-1])), tf.shape(values))


def are_codes(values: tf.Tensor, levels: AnyNDArray) -> tf.Tensor:
    """Whether each value is the code of a level, in the shape of ``values``."""
    codes = tf.constant(codes_of(levels), values.dtype)
    return tf.gather(codes, index_of(values, levels)) == values


def indicators(X: AnyNDArray, levels: Levels) -> AnyNDArray:
    """X [N, D] with a column for each level, which is 1 where a row has it, in place of codes."""
    columns = [column for column in levels if column < X.shape[1]]
    others = np.delete(X, columns, axis=1)
    of_levels = [X[:, [column]] == codes_of(levels[column]) for column in columns]
    return np.hstack([others, *of_levels])


def holds_words(column: Any) -> bool:
    """Whether a column of a frame holds text, or categories that are no numbers."""
    categories = getattr(column.dtype, "categories", None)
    if categories is not None:
        return np.asarray(categories).dtype.kind not in "biuf"
    values = np.asarray(column)
    return values.dtype.kind in "OU" and any(isinstance(value, str) for value in values)


def levels_in(X: Any) -> Levels:
    """
    The levels of the columns of a frame that hold text, sorted, or categories; none of an array.

    :raises ValueError: for a column of categories without any.
    """
    if not hasattr(X, "iloc") or X.ndim != 2:
        return {}
    columns = ((at, X.iloc[:, at]) for at in range(X.shape[1]))
    return {
        at: as_levels(column.astype("category"), f"column {X.columns[at]!r} of X")
        for at, column in columns
        if hasattr(column.dtype, "categories") or holds_words(column)
    }


def as_codes(column: Any, at: int, levels: Levels, name: str) -> AnyNDArray:
    """
    The codes [N] of the words in a column of a frame.

    :param at: the number of the column.
    :param name: the name of the column, for errors.
    :raises ValueError: for words that are no levels, and if the levels are not known.
    """
    if at not in levels:
        found = column.iloc[0]
        raise ValueError(
            f"{name} must be real numbers, or words that the kernel knows, by "
            f"kernels.Categorical(column={at}, levels=...) or effects.Grouped(column={at}, "
            f"levels=...). Found: {found!r:.40} of type {type(found).__name__}."
        )
    known = levels[at]
    codes = column.astype(str).map(dict(zip(known.tolist(), codes_of(known), strict=True)))
    unseen = column[codes.isna()].unique()
    if len(unseen):
        raise ValueError(
            f"{name} must hold the levels that the kernel knows: {listed(known)}. "
            f"Found: {listed(np.asarray(unseen))}."
        )
    return np.asarray(codes, float)


def listed(values: AnyNDArray) -> str:
    """The first values of an array [G], for a message."""
    left = len(values) - _MOST_SHOWN
    shown = ", ".join(map(repr, values[:_MOST_SHOWN].tolist()))
    return f"{shown} and {left} more" if left > 0 else shown


def meanings(levels: AnyNDArray) -> str:
    """The codes of levels and what they stand for, for a message."""
    if not are_words(levels):
        return listed(levels)
    first = ", ".join(f"{at} for {word!r}" for at, word in enumerate(levels[:_MOST_SHOWN].tolist()))
    left = len(levels) - _MOST_SHOWN
    return f"{first} and so on to {len(levels) - 1}" if left > 0 else first
