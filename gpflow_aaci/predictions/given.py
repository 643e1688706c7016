"""The further columns of Y that new rows are to have, such as their exposures."""

from collections.abc import Mapping
from typing import Any, TypeAlias

import tensorflow as tf
from gpflow.base import TensorType

from ..likelihoods.observations import COLUMNS
from ..validation import as_default_float, check_all, check_finite, require

Given: TypeAlias = Mapping[str, TensorType]
"""Values, [N] or one number, by names of ``likelihood.given``; a frame with such columns too."""


def checked_given(likelihood: Any, given: Given | None, X: tf.Tensor) -> tuple[tf.Tensor, ...]:
    """
    The further columns of Y at every row of X, one tensor [N, G]; none if ``given`` is None.

    :raises ValueError: for columns that the likelihood does not have or that a predicted y cannot
        have, and for values that are not accepted in training data.
    """
    if given is None or not list(given):
        return ()
    names = getattr(likelihood, "given", ())
    are_known = all(name in COLUMNS for name in names)
    accepted = [name for name in names if are_known and COLUMNS[name].may_be_asked]
    if unknown := [name for name in given if name not in accepted]:
        must = f"hold only {', '.join(accepted)}" if accepted else "be None"
        raise ValueError(
            f"given must {must} for {type(likelihood).__name__}. Found: {', '.join(unknown)}."
        )
    N, values, checks = tf.shape(X)[:1], [], []
    for name in names:
        called, column = f'given["{name}"]', COLUMNS[name]
        value = as_default_float(given.get(name, column.of_predicted), called)
        value = value[:, 0] if value.shape[1:] == [1] else value  # a column of a frame
        if not (value.shape.rank == 0 or X.shape[:1].is_compatible_with(value.shape)):
            raise ValueError(
                f"{called} must be [{X.shape[0]}] or a number. Found: shape {list(value.shape)}."
            )
        right = column.is_accepted(value)
        checks += [check_finite(called, value), check_all(value, right, f"{called} {column.rule}.")]
        values.append(tf.broadcast_to(value, N))
    with tf.control_dependencies([require(checks)]):
        return (tf.cast(tf.stack(values, -1), X.dtype),)
