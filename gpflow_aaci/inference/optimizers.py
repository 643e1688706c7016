"""Closed-form natural gradients on the augmented bound."""

import json
import weakref
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import RegressionData, TensorType
from gpflow.utilities import to_default_float

from ..algebra.gaussian import Gaussian, damped, optimal_naturals, with_latent
from ..algebra.statistics import Statistics, statistics, stepped_in_turn
from ..algebra.terms import augmented
from ..checkpoints import check_same_program
from ..data import (
    StepData,
    check_step_data,
    next_batch,
    refuse_where_kept,
    refuse_where_workers_keep,
)
from ..identity import facts
from ..models import AugmentedModel, check_model, refresh_posteriors
from ..models.shared import Batch
from ..validation import Check, check_finite, require
from ..workers import is_single, num_workers, over_devices, sum_over_workers, together

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
        agree_once(model, "AugmentedNaturalGradient.minimize", self._settings)
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

    def _settings(self) -> dict[str, Any]:
        is_number = not tf.is_tensor(self.step_size)
        return {"step_size": float(self.step_size) if is_number else "a tensor"}


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
    chol, q = _step(model, data, step_size, progress)
    q = model.as_kept(q, chol)
    with tf.control_dependencies([require(finite_q(*q))]):
        return Gaussian(tf.identity(q.mu), tf.identity(q.sqrt))


def _step(
    model: AugmentedModel,
    data: RegressionData | tf.data.Dataset | None,
    step_size: tf.Tensor,
    progress: bool,
) -> tuple[tf.Tensor, Gaussian]:
    """chol(K_ZZ), and the q(v) that a step leads to."""
    if model.in_turn and not isinstance(data, tf.data.Dataset) and is_single(model.strategy):
        X, Y, scale = model.checked_batch(data)
        projection, term = model.project(X), model.term(augmented)
        q = model.whitened_q(projection.chol)
        moved = stepped_in_turn(projection, term, q, X, Y, scale, step_size)
        return projection.chol, moved
    chol, q, sums = _sums_at_q(model, data, progress)
    if not model.in_turn:
        return chol, damped(*q, *optimal_naturals(q.mu, *sums[1:]), step_size)
    for latent in range(model.num_latent_gps):
        if latent:
            _, _, sums = _sums_at_q(model, data, progress, q)
        moved = damped(*q, *optimal_naturals(q.mu, *sums[1:]), step_size)
        q = with_latent(q, latent, moved)
    return chol, q


def _sums_at_q(
    model: AugmentedModel,
    data: RegressionData | tf.data.Dataset | None,
    progress: bool,
    q: Gaussian | None = None,
) -> tuple[tf.Tensor, Gaussian, Statistics]:
    """chol(K_ZZ), q(v), the model's unless given, and the bound's statistics over all rows."""
    if not is_single(model.strategy):
        return _sums_of_all(model, data, progress, q)
    rows, scale = model.rows_and_scale(data, progress)
    term = model.term(augmented)
    total: Statistics | None = None
    for X, Y in rows:
        projection = model.project(X)
        q = model.whitened_q(projection.chol) if q is None else q
        new = statistics(projection, term, q, X, Y)
        total = new if total is None else total.plus(new)
    assert q is not None  # there is a row
    assert total is not None
    return projection.chol, q, total.times(scale())


def _sums_of_all(
    model: AugmentedModel,
    data: RegressionData | tf.data.Dataset | None,
    progress: bool,
    q: Gaussian | None,
) -> tuple[tf.Tensor, Gaussian, Statistics]:
    """As :func:`_sums_at_q`, on every device of all workers."""
    strategy = model.strategy
    refuse_where_workers_keep(model, strategy)
    chol = tf.linalg.cholesky(model.prior_covariance())
    q_v = model.whitened_q(chol) if q is None else q

    def of_rows(X: tf.Tensor, Y: tf.Tensor) -> list[tf.Tensor]:
        found = statistics(model.project(X), model.term(augmented), q_v, X, Y)
        return [*found, tf.shape(X, tf.int64)[0]]

    def own() -> list[tf.Tensor]:
        rows, _ = model.rows_and_scale(data, progress)
        parts = [over_devices(strategy, of_rows)(*chunk) for chunk in rows]
        return [tf.add_n(of_part) for of_part in zip(*parts, strict=True)]

    sums = together(strategy, own) if tf.executing_eagerly() else own()
    *total, num_rows = sum_over_workers(strategy, sums)
    return chol, q_v, Statistics(*total).times(model.scale_of(num_rows))


def rows_of_all(model: AugmentedModel, batch: Any, num_data: int | None) -> Batch:
    """``checked_batch``, scaled by the rows that all workers have."""
    X, Y, scale = model.checked_batch(batch, num_data)
    if num_workers(model.strategy) > 1:
        (num_rows,) = sum_over_workers(model.strategy, [tf.shape(X)[0]])
        scale = model.scale_of(num_rows, num_data)
    return X, Y, scale


_AGREED: "weakref.WeakKeyDictionary[AugmentedModel, set[str]]" = weakref.WeakKeyDictionary()


def agree_once(model: AugmentedModel, call: str, settings: Callable[[], Mapping[str, Any]]) -> None:
    """As ``check_same_program``, at a model's first step of a kind on several workers."""
    if num_workers(model.strategy) == 1:
        return
    agreed = _AGREED.setdefault(model, set())
    with tf.init_scope():
        options = {f"{path} of the optimizer": fact for path, fact in facts(settings()).items()}
        kind = json.dumps([call, options])
        if kind not in agreed:
            check_same_program(model, call, **options)
    agreed.add(kind)


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
