"""Parameters of likelihoods, made from a user's argument: a number, or a ``Parameter`` to share."""

from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow import Parameter
from gpflow.base import AnyNDArray
from gpflow.config import default_float, default_likelihood_positive_minimum
from gpflow.functions import Function
from gpflow.utilities import positive

from ..validation import shown


def positive_parameter(owner: str, name: str, value: Any, above: float = 0.0) -> Parameter:
    """
    ``value`` as a positive ``Parameter``; a ``Parameter`` is shared, not copied.

    :param above: an initial value above this bound is kept above it. A smaller initial value is
        the user's choice, and is only kept positive.
    :raises ValueError: if it is a ``Function`` of X, an array, or not positive and finite.
    """
    if isinstance(value, Parameter):
        if value.shape.rank != 0:
            raise ValueError(
                f"{owner}: {name} must be one number for all data. Found: shape {value.shape}."
            )
        return value
    _refuse_function(owner, name, "one positive number", value)
    lower = default_likelihood_positive_minimum()
    number = as_number(value)
    if not (np.isfinite(number) and number > lower):
        raise ValueError(
            f"{owner}: {name} must be finite and above {lower}, one number. Found: {value!r}."
        )
    return Parameter(value, transform=positive(lower + above if number > lower + above else lower))


def open_interval_parameter(
    owner: str, name: str, value: Any, upper: float, *, with_upper: bool = False
) -> Parameter:
    """
    ``value`` as a ``Parameter`` in (0, upper); a ``Parameter`` is shared, not copied.

    :param with_upper: whether ``upper`` itself is accepted; it is then held fixed.
    :raises ValueError: if it is a ``Function`` of X, an array, or outside the interval.
    """
    accepted = f"one number in (0, {upper:g}{']' if with_upper else ')'}"
    _refuse_function(owner, name, accepted, value)
    number = as_number(value)
    is_end = with_upper and number == upper
    if not (0.0 < number < upper or is_end):
        raise ValueError(f"{owner}: {name} must be {accepted}. Found: {value!r}.")
    if isinstance(value, Parameter):
        return value
    if is_end:
        return Parameter(value, trainable=False)
    low, high = (tf.cast(bound, default_float()) for bound in (0.0, upper))
    return Parameter(value, transform=tfp.bijectors.Sigmoid(low, high))


def as_numbers(value: Any) -> AnyNDArray:
    """One number or several as an array; NaN for anything else."""
    try:
        return np.asarray(np.nan if isinstance(value, str) else value, dtype=float)
    except (OverflowError, TypeError, ValueError):
        return np.asarray(np.nan)


def as_number(value: Any) -> float:
    """NaN for what is not one number."""
    array = as_numbers(value)
    return float(array) if array.ndim == 0 else np.nan


def _refuse_function(owner: str, name: str, accepted: str, value: Any) -> None:
    if isinstance(value, Function):
        raise ValueError(
            f"{owner}: {name} must be {accepted} for all data. Found: {shown(value)}, a "
            "Function of X."
        )
