r"""
f of every row given all other rows, from the sites of an optimal q.

At the optimum q(v) = N(0, I) Π_i site_i, where site_i is a Gaussian factor in h_i = A_iᵀ v with
precision −2 ∂e/∂v_i. Dividing q by site_i gives the cavity, which is the posterior of h_i given the
other data if their sites stay the same. With a Gaussian likelihood they do, so the cavity is exact.
"""

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.base import RegressionData

from ..algebra.gaussian import Gaussian, columns
from ..algebra.projection import marginals
from ..algebra.statistics import Statistics, statistics
from ..algebra.terms import Term, augmented_bound, standard
from ..data import Data, as_data
from ..likelihoods import AugmentedLikelihood
from ..models import AugmentedModel
from ..runtime.compiled import applied

Bound = Callable[[AugmentedLikelihood], Term]
OfRows = Callable[[tf.Tensor, tf.Tensor], Any]

BOUNDS: dict[str, Bound] = {"standard": standard, "augmented": augmented_bound}
_TOLERANCE = 1e-4  # the largest move of q by a step of size 1, in nats per datum


class LeftOut(NamedTuple):
    """f of some rows under q, and without their own y."""

    mean: tf.Tensor  # [N, L], given all rows
    variance: tf.Tensor  # [N, L]
    mean_without: tf.Tensor  # [N, L], given all other rows
    variance_without: tf.Tensor  # [N, L]
    leverage: tf.Tensor  # [N, L]


def all_rows(
    model: AugmentedModel,
    data: RegressionData | tf.data.Dataset | None,
    progress: bool,
    caller: str,
) -> Data:
    """
    The rows that q was fitted to.

    :param caller: the name of the function that needs cavities, for messages.
    :raises ValueError: for bad data, other than ``num_data`` rows, and a diagonal covariance of q.
    """
    if model.is_diagonal:
        raise ValueError(
            f"q_diag must be False for {caller}, as a cavity needs the full covariance of q. "
            "Found: True."
        )
    rows = as_data(model.expected_data, data, progress)
    if float(rows.num_data) != rows.num_rows:
        raise ValueError(
            f"data must be all num_data = {float(rows.num_data):.0f} rows that q was fitted to. "
            f"Found: {rows.num_rows}."
        )
    return rows


def stationary_bound(model: AugmentedModel, rows: Data) -> tuple[str, bool]:
    """
    The bound whose optimum is nearer to q, and whether q is far from it, of which a warning tells.
    """
    q = model.whitened_q(model.whitening())
    totals = rows.sum(lambda X, Y: applied(model, _of_each_bound, (X, Y)))
    moved = {name: float(_moved(q, sums)) for name, sums in totals.items()}
    bound = min(moved, key=lambda name: moved[name])
    nats = moved[bound]
    is_far = not np.isfinite(nats) or nats > _TOLERANCE * rows.num_rows
    if is_far:
        warnings.warn(
            "q is not at its optimum, neither of GPflow's ELBO nor of the augmented bound: a step "
            f"would move it by {nats:.2g} nats. Its sites are not the data's, and leaving one out "
            "is a rough guess. Call polish(model, data) first.",
            stacklevel=3,
        )
    return bound, is_far


def _moved(q: Gaussian, sums: Statistics) -> tf.Tensor:
    """
    The KL divergence [] between q and the q after a step of size 1, to second order.

    It is ½ ‖Rᵀ(a − m)‖² + ¼ ‖Rᵀ(I − 2B)R − I‖², S = RRᵀ, in any coordinates of v.
    """
    in_mean = columns(tf.matmul, q.sqrt, sums.in_mean - q.mu, transpose_a=True)
    eye = tf.eye(tf.shape(q.sqrt)[-1], dtype=q.sqrt.dtype)
    target = tf.matmul(q.sqrt, tf.matmul(eye - 2.0 * sums.in_covariance, q.sqrt), transpose_a=True)
    squares = tf.reduce_sum(tf.square(in_mean)) / 2.0
    return squares + tf.reduce_sum(tf.square(target - eye)) / 4.0


def _of_each_bound(model: AugmentedModel, variables: Any) -> OfRows:
    """The sums over rows of a closed-form step on each bound."""

    def of_rows(X: tf.Tensor, Y: tf.Tensor) -> dict[str, Statistics]:
        projection = model.project(X)
        q = model.whitened_q(projection.chol)
        return {
            name: statistics(projection, model.term(of), q, X, Y) for name, of in BOUNDS.items()
        }

    return of_rows


def left_out(model: AugmentedModel, bound: str, X: tf.Tensor, Y: tf.Tensor) -> LeftOut:
    """f at X [N, D] with and without the row's own y; :func:`loo` has the formulas."""
    projection = model.project(X)
    mean, variance = marginals(projection, *model.whitened_q(projection.chol))
    _, in_mean, in_variance = model.term(BOUNDS[bound]).slopes(X, mean, variance, Y)
    unexplained = tf.transpose(projection.unexplained)
    explained = tf.maximum(variance - unexplained, 0.0)
    leverage = -2.0 * in_variance * explained
    is_proper = leverage < 1.0
    rest = tf.where(is_proper, 1.0 - leverage, tf.ones_like(leverage))
    of_prior = tf.transpose(projection.explained)
    cavity = tf.where(is_proper, explained / rest, of_prior)
    cavity_mean = tf.where(is_proper, mean - cavity * in_mean, projection.mean)
    return LeftOut(mean, variance, cavity_mean, unexplained + cavity, leverage)
