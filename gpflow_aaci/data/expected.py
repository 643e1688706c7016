"""Which data a model accepts, and checks of such data."""

from collections.abc import Callable, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import tensorflow as tf
from gpflow.base import RegressionData

from ..levels import Levels
from ..runtime.agreement import Call
from ..runtime.workers import num_workers
from ..validation import Check, as_pair, checked_data

Rows = tuple[tf.Tensor, tf.Tensor]
"""X [N, D] and Y [N, P]."""


class Expected(NamedTuple):
    """Which data a model accepts. The modules of this folder know nothing else about the model."""

    model: str  # the name of the model's class, for messages
    input_dim: int | None  # columns of X, or None where any number is accepted
    num_observed: int  # columns of Y
    num_outputs: int  # columns of f
    given: Sequence[str]  # the names of the columns of Y that follow y
    checks_of_Y: Callable[[tf.Tensor], Sequence[Check]]  # the likelihood's
    num_data: Any  # the number of all rows: an integer, a variable, or None where it is not known
    own: RegressionData | None  # the data that the model keeps, or None
    strategy: tf.distribute.Strategy  # the model was made in its scope
    agree: Callable[[Call], None]  # checks that all workers make a call alike
    labels: Any = None  # the values that y takes, or None where it is a real number or a count
    levels: Levels = MappingProxyType({})  # of the columns of X that may be words in a frame

    @property
    def known_num_data(self) -> int | None:
        """``num_data`` as an integer, or None."""
        return None if self.num_data is None else int(tf.convert_to_tensor(self.num_data))


def check_pair(name: str, data: Any) -> None:
    """
    :raises ValueError: unless ``data`` is a pair (X, Y).
    """
    if not isinstance(data, tuple | list) or len(data) != 2:
        raise ValueError(f"{name} must be a pair (X, Y). Found: {type(data).__name__}.")


def checked_rows(expected: Expected, data: RegressionData) -> Rows:
    """
    Return X [N, D] and Y [N, P], training data or others, as tensors of ``default_float()``.

    :raises ValueError: for data that are not a pair, and as
        :func:`~gpflow_aaci.validation.checked_data`.
    """
    check_pair("data", data)
    return checked_data(
        *as_pair(data, expected.levels),
        num_observed=expected.num_observed,
        num_outputs=expected.num_outputs,
        input_dim=expected.input_dim,
        given=expected.given,
        labels=expected.labels,
        levels=expected.levels,
        checks_of_Y=expected.checks_of_Y,
        may_be_empty=num_workers(expected.strategy) > 1,  # the other workers have rows
    )


def refuse_where_kept(expected: Expected, data: Any) -> None:
    """
    :raises ValueError: if data are given to a model that keeps its own.
    """
    if expected.own is not None and data is not None:
        raise ValueError(
            f"data must not be given: {expected.model} stores its own. "
            f"Found: {type(data).__name__}."
        )


def refuse_where_workers_keep(expected: Expected) -> None:
    """
    :raises ValueError: if the model keeps its data and there are several workers.
    """
    workers = num_workers(expected.strategy)
    if expected.own is not None and workers > 1:
        raise ValueError(
            f"model must be an AugmentedSVGP here on several workers, as {expected.model} stores "
            f"its data. Found: {workers} workers."
        )


def refuse_if_distributed(expected: Expected, call: str) -> None:
    """
    :raises ValueError: if there are several workers, as ``call`` does not sum over their rows.
    """
    workers = num_workers(expected.strategy)
    if workers > 1:
        raise ValueError(
            f"model must be trained in one process, as {call} does not sum over workers. "
            f"Found: {workers} of them."
        )
