"""
Where a search for q begins; and why a fit cannot begin, which is what makes the objective NaN or
infinite at the model's parameters.
"""

from collections.abc import Callable

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray, TensorType
from gpflow.utilities import parameter_dict

from ..algebra.gaussian import Gaussian
from ..algebra.projection import marginals
from ..algebra.terms import standard
from ..data import Data
from ..models import AugmentedModel
from ..models.shared import prior_q
from ..validation import unless_cholesky_fails

_WIDE = 3.0  # a standard deviation of f, over which σ(f) goes from 0.05 to 0.95
_NARROW = 0.01  # the standard deviation of f (root mean square) where a second search begins
_FAR = 100.0  # standard deviations of a column between its mean and 0
_ROWS = 1_000  # that are looked at


def q_at_start(model: AugmentedModel, data: Data) -> Gaussian:
    """
    The q(v) of the model before a fit.

    :raises ValueError: where K_ZZ has no Cholesky factor.
    """
    q = unless_cholesky_fails(
        lambda: model.whitened_q(tf.linalg.cholesky(model.prior_covariance())), None
    )
    if q is None:
        raise not_finite_at_start(model, data, np.nan)
    return q


def narrow_q(model: AugmentedModel, data: Data, q: Gaussian, value: float) -> Gaussian | None:
    r"""
    A second start for a search that has ended at ``q``; None where it can have missed nothing.

    A rate max_rate·σ(f) is level where f is large. If the prior is wide at the data, a search that
    begins there may step to where the rate is level; nothing pulls f back from there, and its
    variance stays as large as under the prior. If the rate is exp(f), the objective at the prior
    overflows, or is so low that no step leads away. The second search begins at the prior mean, and
    q is so narrow that the first step is the one of Laplace's approximation. Where log p(y|f) is
    concave, the data make q narrow, and no second search is needed.

    :param value: the objective at ``q``.
    """

    def of_rows(X: tf.Tensor, Y: tf.Tensor) -> list[tf.Tensor]:
        projection = model.project(X)
        Fvar = marginals(projection, *q)[1]
        prior = tf.reduce_sum(projection.explained) / projection.A.shape[0]
        return [tf.reduce_sum(tf.cast(Fvar > _WIDE**2, Fvar.dtype)), prior]

    wide, variance = map(float, data.mean(of_rows))
    if np.isfinite(value) and not wide:
        return None
    prior = prior_q(*q.mu.shape)
    return prior._replace(sqrt=_NARROW / max(variance, 1.0) ** 0.5 * prior.sqrt)


def value_at_start(model: AugmentedModel, data: Data, objective: Callable[[], TensorType]) -> float:
    """
    The objective before a fit.

    :raises ValueError: where it is not finite, or K_ZZ has no Cholesky factor.
    """
    value = unless_cholesky_fails(lambda: float(objective()), np.nan)
    if not np.isfinite(value):
        raise not_finite_at_start(model, data, value)
    return value


def not_finite_at_start(model: AugmentedModel, data: Data, value: float) -> ValueError:
    """
    The error to raise where the objective is not finite before anything has been changed.

    :param value: the value of the objective.
    """
    return ValueError(
        f"the objective must be finite at the start.{why_not_finite(model, data)} Found: {value}."
    )


def why_not_finite(model: AugmentedModel, data: Data) -> str:
    """The likely cause, as sentences that begin with a space; empty where none is known."""
    bad = [
        path.removeprefix(".")
        for path, parameter in parameter_dict(model).items()
        if not np.all(np.isfinite(parameter.numpy()))
    ]
    if bad:
        return f" Parameters that are not finite: {', '.join(bad)}."
    X = np.asarray(next(data.chunks())[0])[:_ROWS]
    chol = unless_cholesky_fails(lambda: tf.linalg.cholesky(model.prior_covariance()), np.nan)
    is_definite = bool(np.all(np.isfinite(chol)))
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
    return _first_row(model, data)


def _first_row(model: AugmentedModel, data: Data) -> str:
    """The first row at which E log p(y|f) is not finite; empty if there is none."""
    before = 0
    for X, Y in data.chunks():
        bad = np.flatnonzero(~np.isfinite(model.term_values(X, Y, standard)[0]))
        if len(bad):
            sd = float(np.sqrt(np.max(model.cross_covariance(X)[1].numpy()[:, bad[0]])))
            cure = ": scale the columns of X, lower the kernel's variance, or narrow q_sqrt"
            return (
                f" E log p(y|f) is not finite at row {before + bad[0]}, where the prior's standard "
                f"deviation of f is {sd:.3g}{cure if sd > _WIDE else ''}."
            )
        before += len(X)
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
