"""Closed-form natural gradients on the augmented bound."""

from typing import Any

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import RegressionData, TensorType
from gpflow.utilities import to_default_float

from ..algebra.gaussian import Gaussian, damped, optimal_naturals
from ..algebra.projection import marginals, to_q
from ..algebra.terms import site_slopes
from ..data import StepData, check_step_data, next_batch, refuse_where_kept
from ..models import AugmentedModel, check_model, refresh_posteriors
from ..validation import Check, check_finite, require

_STEP_SIZE_RANGE = "step_size must be in (0, 1]."


class AugmentedNaturalGradient:
    """
    Closed-form natural-gradient ascent on the augmented bound, used as GPflow's optimizers are.

    A step of size s replaces the natural parameters of q(u) by (1 − s)·themselves + s·optimum
    (AACI Algorithm 3). It equals ``gpflow.optimizers.NaturalGradient(gamma=s)`` on the same bound,
    without differentiating through it, and stays positive definite for every s in (0, 1]::

        natural_gradient = AugmentedNaturalGradient(step_size=0.5)
        natural_gradient.minimize(model, (X, Y))
    """

    def __init__(self, step_size: TensorType = 1.0) -> None:
        """
        :param step_size: in (0, 1]; a ``tf.Variable`` may change between steps.
        :raises ValueError: for a number outside (0, 1].
        """
        if not tf.is_tensor(step_size) and not 0.0 < np.asarray(step_size) <= 1.0:
            raise ValueError(f"{_STEP_SIZE_RANGE} Found: {step_size}.")
        self.step_size = step_size

    def minimize(
        self,
        model: AugmentedModel,
        data: StepData | tf.data.Dataset = None,
        *,
        progress: bool = True,
    ) -> None:
        """
        One step on q(u); hyperparameters stay as they are. Works inside ``tf.function``.

        :param data: (X [N, D], Y [N, P]) or, for a model with ``num_data``, an iterator of such
            batches for ``AugmentedSVGP``; or a ``tf.data.Dataset`` of batches, one pass over the
            rows, for one step on all of them; none for ``AugmentedVGP``.
        :param progress: whether a bar shows a pass over a dataset that takes long.
        :raises ValueError, tf.errors.InvalidArgumentError: for bad data, or where the updated q
            is not finite; ``q_mu`` and ``q_sqrt`` are then as they were.
        """
        check_model(model)
        refuse_where_kept(model, data)
        if isinstance(data, tf.data.Dataset):
            if not tf.executing_eagerly():
                raise ValueError("data must not be a tf.data.Dataset in a tf.function. Found: one.")
            batch: RegressionData | tf.data.Dataset | None = data
        else:
            check_step_data(model, data)
            batch = next_batch(data)
        q_mu, q_sqrt = natural_gradient_step(model, batch, self.step_size, progress)
        assigned = [model.q_mu.assign(q_mu), model.q_sqrt.assign(q_sqrt)]
        with tf.control_dependencies(assigned):
            refresh_posteriors(model)


@check_shapes("step_size: []", "return[0]: [M, L]", "return[1]: [L, M, M]")
def natural_gradient_step(
    model: AugmentedModel,
    data: RegressionData | tf.data.Dataset | None,
    step_size: TensorType,
    progress: bool = False,
) -> Gaussian:
    """
    The (q_mu, q_sqrt) that a step of size ``step_size`` leads to; both finite, or an error.
    """
    step_size = to_default_float(step_size)
    with tf.control_dependencies([require([check_step_size(step_size)])]):
        step_size = tf.identity(step_size)
    chol, q, sums = _sums_at_q(model, data, progress)
    target = optimal_naturals(q.mu, *sums)
    q = model.as_kept(damped(*q, *target, step_size), chol)
    with tf.control_dependencies([require(finite_q(*q))]):
        return Gaussian(tf.identity(q.mu), tf.identity(q.sqrt))


def _sums_at_q(
    model: AugmentedModel, data: RegressionData | tf.data.Dataset | None, progress: bool
) -> tuple[tf.Tensor, Gaussian, tuple[tf.Tensor, tf.Tensor]]:
    """chol(K_ZZ), q(v), and the bound's gradients in its mean and covariance, over all rows."""
    rows, scale = model.rows_and_scale(data, progress)
    a: Any = 0.0
    B: Any = 0.0
    for X, Y in rows:
        projection = model.project(X)
        q = model.whitened_q(projection.chol)
        Fmu, Fvar = marginals(projection, *q)
        new = to_q(projection, *site_slopes(model.likelihood, Fmu, Fvar, Y))
        a, B = a + new[0], B + new[1]
    return projection.chol, q, (scale() * a, scale() * B)


def check_step_size(step_size: tf.Tensor) -> Check:
    in_range = (step_size > 0.0) & (step_size <= 1.0)
    return Check(in_range, _STEP_SIZE_RANGE, lambda: step_size)


def finite_q(q_mu: tf.Tensor, q_sqrt: tf.Tensor) -> list[Check]:
    message = (
        "{} must be finite after a closed-form step; q was left as it was. (A kernel matrix that "
        "is not positive definite? Raise gpflow.config.default_jitter().)"
    )
    return [
        check_finite(name, value)._replace(message=message.format(name))
        for name, value in (("q_mu", q_mu), ("q_sqrt", q_sqrt))
    ]
