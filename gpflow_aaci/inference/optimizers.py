"""Closed-form natural gradients on the augmented bound."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import TensorType
from gpflow.kullback_leiblers import gauss_kl
from gpflow.utilities import to_default_float

from ..algebra.gaussian import Gaussian, damped, optimal_naturals, safeguarded, with_latent
from ..algebra.projection import marginals
from ..algebra.statistics import Statistics, statistics, stepped_in_turn
from ..algebra.terms import augmented_bound
from ..data import Call, Data, StepData, Summand, as_data, check_step_data, next_batch, over_devices
from ..models import AugmentedModel, as_augmented, refresh_posteriors
from ..runtime.compiled import Compiled
from ..validation import Check, check_finite, require
from .compiled_steps import CompiledSteps, Settings

_STEP_SIZE_RANGE = "step_size must be in (0, 1]."


class AugmentedNaturalGradient:
    """
    Closed-form natural-gradient ascent on the augmented bound, used like GPflow's optimizers.

    A step of size s replaces the natural parameters λ of q(u) by (1 − s)·λ + s·λ_optimal (AACI
    Algorithm 3). It equals ``gpflow.optimizers.NaturalGradient(gamma=s)`` on the same bound,
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
        self._steps = CompiledSteps()

    def minimize(
        self,
        model: AugmentedModel,
        data: StepData | tf.data.Dataset = None,
        *,
        progress: bool = True,
        compile: bool | None = None,
    ) -> None:
        """
        One step on q(u); hyperparameters stay as they are. Works inside ``tf.function``.

        :param data: for ``AugmentedSVGP`` a batch (X [N, D], Y [N, P]); an iterator of batches, if
            the model has ``num_data``; or a ``tf.data.Dataset`` of batches that is one pass over
            the rows, for one step on all rows. None for ``AugmentedVGP``.
        :param progress: whether to show a progress bar for a long pass over a dataset.
        :param compile: by default a step in a plain loop is compiled when it is taken for the
            second time, and anew where model, step size or the columns of the data have changed, if
            all parts of the model are of known classes and the model is none of GPflow's own. True
            compiles at the first step, and models with parts of your own classes, too, whose
            attributes are then constants. False never compiles.
        :raises ValueError, tf.errors.InvalidArgumentError: for bad data, or if the updated q
            is not finite; ``q_mu`` and ``q_sqrt`` are then unchanged.
        """
        augmented = as_augmented(model)
        name = "AugmentedNaturalGradient.minimize"
        call = Call(name, settings=self._settings, is_step=True)
        is_pass = isinstance(data, tf.data.Dataset)

        def rows_of(model: AugmentedModel, batch: Any) -> Data:
            expected = as_augmented(model).expected_data
            return as_data(expected, batch, progress and is_pass, call=call)

        if is_pass:
            self._step(model, rows_of(model, data))
            return
        check_step_data(augmented.expected_data, data)
        batch = next_batch(data)
        self._steps.take(self._step, rows_of, model, batch, self._depends_on, compile)

    def _step(self, model: AugmentedModel, rows: Data) -> None:
        model = as_augmented(model)
        q_mu, q_sqrt = natural_gradient_step(model, rows, self.step_size)
        assigned = [model.q_mu.assign(q_mu), model.q_sqrt.assign(q_sqrt)]
        with tf.control_dependencies(assigned):
            refresh_posteriors(model)

    def _depends_on(self) -> Settings:
        is_number = not tf.is_tensor(self.step_size)
        return (
            Settings((float(self.step_size),), []) if is_number else Settings((), [self.step_size])
        )

    def _settings(self) -> dict[str, Any]:
        is_number = not tf.is_tensor(self.step_size)
        return {"step_size": float(self.step_size) if is_number else "a tensor"}


@check_shapes("step_size: []", "return[0]: [M, L]", "return[1]: [...]")
def natural_gradient_step(model: AugmentedModel, data: Data, step_size: TensorType) -> Gaussian:
    """
    The (q_mu, q_sqrt) that a step of size ``step_size`` leads to. It is an error if not finite.
    """
    step_size = to_default_float(step_size)
    with tf.control_dependencies([require([check_step_size(step_size)])]):
        step_size = tf.identity(step_size)
    chol = model.whitening()
    q = _stepped(model, data, model.whitened_q(chol), step_size)
    q = model.stored_q(q, chol)
    with tf.control_dependencies([require(finite_q(*q))]):
        return Gaussian(tf.identity(q.mu), tf.identity(q.sqrt))


def _stepped(model: AugmentedModel, data: Data, q: Gaussian, step_size: tf.Tensor) -> Gaussian:
    """q(v) after a step, which is shortened where it would lower a bound that is not augmented."""
    sums = None
    if not model.in_turn:
        sums = data.sum(_of_chunk(model, q) if _is_in_chunks(data) else _of_rows(model), q)

    def step(size: tf.Tensor) -> Gaussian:
        if sums is None:
            return _stepped_in_turn(model, data, q, size)
        return model.within(damped(*q, *optimal_naturals(q.mu, *sums[1:]), size))

    if model.likelihood.is_augmented:
        return step(step_size)
    term = model.term(augmented_bound)

    def of_rows(X: tf.Tensor, Y: tf.Tensor, q: Gaussian) -> tf.Tensor:
        return tf.reduce_sum(term.of_each(X, *marginals(model.project(X), *q), Y))

    def value(q: Gaussian) -> tf.Tensor:
        return data.sum(of_rows, q) - gauss_kl(*q)

    before = value(q) if sums is None else sums.value - gauss_kl(*q)
    return safeguarded(step, value, before, step_size)[0]


def _stepped_in_turn(
    model: AugmentedModel, data: Data, q: Gaussian, step_size: tf.Tensor
) -> Gaussian:
    """q(v) after a step on one latent GP after the other."""
    if data.only_chunk is not None:  # projected once
        X, Y = data.only_chunk
        term, projection = model.term(augmented_bound), model.project(X)
        return stepped_in_turn(
            projection, term, q, X, Y, data.total, step_size, within=model.within
        )
    of_rows = _of_chunk(model, q) if _is_in_chunks(data) else _of_rows(model)
    for latent in range(model.num_latent_gps):
        sums = data.sum(of_rows, q)
        moved = model.within(damped(*q, *optimal_naturals(q.mu, *sums[1:]), step_size))
        q = with_latent(q, latent, moved)
    return q


def _is_in_chunks(data: Data) -> bool:
    """Whether several chunks are summed outside of a larger function."""
    return data.only_chunk is None and tf.executing_eagerly()


def _of_rows(model: AugmentedModel) -> Callable[[tf.Tensor, tf.Tensor, Gaussian], Statistics]:
    """The statistics of the augmented bound, a sum over rows."""
    term = model.term(augmented_bound)

    def of_rows(X: tf.Tensor, Y: tf.Tensor, q: Gaussian) -> Statistics:
        return statistics(model.project(X), term, q, X, Y)

    return of_rows


def _of_chunk(model: AugmentedModel, q: Gaussian) -> Summand:
    """The same, compiled: operation by operation, a chunk takes a quarter longer."""
    expected = model.expected_data
    rows = [
        tf.TensorSpec([None, n], q.mu.dtype) for n in (expected.input_dim, expected.num_observed)
    ]
    of_q = tf.nest.map_structure(tf.TensorSpec.from_tensor, q)
    function = Compiled(model).function(_over_devices, signature=(*rows, of_q))
    return Summand(function, "augmented statistics", model.variables)


def _over_devices(model: AugmentedModel, variables: Sequence[tf.Variable]) -> Callable[..., Any]:
    return over_devices(model.strategy, _of_rows(model))


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
