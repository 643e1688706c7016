"""Why a fit cannot begin: what makes the objective NaN or infinite at the model's parameters."""

from collections.abc import Callable

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray, TensorType
from gpflow.utilities import parameter_dict

from ..algebra.gaussian import Gaussian
from ..data import Data
from ..models import AugmentedModel

_FAR = 100.0  # standard deviations of a column between its mean and 0
_ROWS = 1_000  # that are looked at


def q_at_start(model: AugmentedModel, data: Data) -> Gaussian:
    """
    The q(v) of the model before a fit.

    :raises ValueError: where K_ZZ has no Cholesky factor.
    """
    try:
        return model.whitened_q(tf.linalg.cholesky(model.prior_covariance()))
    except tf.errors.InvalidArgumentError as error:
        raise not_finite_at_start(model, data, np.nan) from error


def value_at_start(model: AugmentedModel, data: Data, objective: Callable[[], TensorType]) -> float:
    """
    The objective before a fit.

    :raises ValueError: where it is not finite, or K_ZZ has no Cholesky factor.
    """
    try:
        value = float(objective())
    except tf.errors.InvalidArgumentError:
        value = np.nan
    if not np.isfinite(value):
        raise not_finite_at_start(model, data, value)
    return value


def not_finite_at_start(model: AugmentedModel, data: Data, value: float) -> ValueError:
    """
    The error to raise where the objective is not finite before anything has been changed.

    :param value: the value of the objective.
    """
    X, _ = next(data.chunks())
    why = _why(model, np.asarray(X)[:_ROWS])
    return ValueError(f"the objective must be finite at the start.{why} Found: {value}.")


def _why(model: AugmentedModel, X: AnyNDArray) -> str:
    """The likely cause, as sentences that begin with a space; empty where none is known."""
    bad = [
        path.removeprefix(".")
        for path, parameter in parameter_dict(model).items()
        if not np.all(np.isfinite(parameter.numpy()))
    ]
    if bad:
        return f" Parameters that are not finite: {', '.join(bad)}."
    try:
        is_definite = bool(np.all(np.isfinite(tf.linalg.cholesky(model.prior_covariance()))))
    except tf.errors.InvalidArgumentError:
        is_definite = False
    is_explained = is_definite and np.all(np.isfinite(model.project(X).unexplained))
    if not is_explained and (far := _far_from_zero(X)):
        return far
    if not is_definite:
        return (
            " The kernel's matrix of the inducing variables is not positive definite: raise "
            "gpflow.config.default_jitter(), or let fewer of them lie together."
        )
    if not is_explained:
        return (
            " Distances between rows lose precision: columns of X are too far from 0 for their "
            "lengthscales. Begin with larger lengthscales, or subtract the means of the columns."
        )
    return ""


def _far_from_zero(X: AnyNDArray) -> str:
    """The column whose mean is, in units of its spread, farthest from 0; empty if none is far."""
    if not len(X):
        return ""
    mean, spread = X.mean(0), X.std(0)
    far = np.abs(mean) / np.maximum(spread, np.finfo(X.dtype).tiny)
    far = np.where(spread > 0.0, far, 0.0)  # a constant column has no lengthscale to lose
    column = int(np.argmax(far))
    if far[column] < _FAR:
        return ""
    return (
        f" Column {column} of X has mean {mean[column]:.6g} and standard deviation "
        f"{spread[column]:.3g}: so far from 0 that distances lose precision. Subtract the means of "
        "the columns from X, and from the inducing points."
    )
