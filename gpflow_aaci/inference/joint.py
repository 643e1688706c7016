"""``JointAscent``: a tf_keras optimizer on q(u) and the hyperparameters together."""

from typing import Any

import tensorflow as tf
from gpflow.keras import tf_keras

from ..data import StepData, check_step_data, next_batch
from ..models import (
    AugmentedModel,
    check_model,
    hyperparameters,
    local,
    refresh_posteriors,
)
from ..models.bounds import TermOf
from ..validation import check_finite, require
from ..workers import num_workers, sum_over_workers
from .alternating import ascend, build_slots, check_has_slots
from .optimizers import agree_once, rows_of_all

_OPTIMIZER = "optimizer"


class JointAscent(tf.Module):
    """
    Ascent on what closed-form steps do not climb.

    What ``train`` steps with where the objective is not ``"elbo"``; ``q_mu`` and ``q_sqrt`` move
    whether they are trainable or not, as with ``AlternatingOptimizer``.
    """

    def __init__(
        self, name: str, of: TermOf, optimizer: tf_keras.optimizers.Optimizer | None = None
    ) -> None:
        """
        :param name: of the objective.
        :param of: what a datum is worth to it.
        :param optimizer: of all variables, ``Adam(0.01)`` unless given.
        :raises ValueError: for what is none of tf_keras.optimizers, and for one of
            ``tf_keras.optimizers.legacy``.
        """
        super().__init__()
        self._objective, self._of = name, of
        if optimizer is not None:
            check_has_slots(_OPTIMIZER, optimizer)
        # Of the hyperparameters, and here of q too.
        self.hyperparameter_optimizer = optimizer or tf_keras.optimizers.Adam(0.01)
        self.step = tf.Variable(0, dtype=tf.int64, trainable=False)  # how many have been taken

    @property
    def settings(self) -> dict[str, Any]:
        """What must be the same for a run to go on."""
        optimizer = self.hyperparameter_optimizer
        return {"objective": self._objective, type(optimizer).__name__: optimizer.get_config()}

    def build(self, model: AugmentedModel) -> None:
        """
        :raises ValueError: where the optimizer has been used for another model.
        """
        build_slots(_OPTIMIZER, self.hyperparameter_optimizer, _learnt(model))

    def minimize(
        self, model: AugmentedModel, data: StepData = None, num_data: int | None = None
    ) -> None:
        """One step, of arguments and with errors as those of ``AlternatingOptimizer``."""
        check_model(model)
        check_step_data(model, data, num_data)
        agree_once(model, "JointAscent.minimize", lambda: self.settings)
        variables = _learnt(model)
        self.build(model)
        X, Y, scale = rows_of_all(model, next_batch(data), num_data)
        workers = float(num_workers(model.strategy))  # of each an equal part of KL and log prior
        sources = local(variables)
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(sources)
            value = model.scaled_objective(self._of, X, Y, workers * scale)
            value = (value + model.log_prior_density()) / workers
        gradients = tape.gradient(value, sources, unconnected_gradients="zero")
        gradients = sum_over_workers(model.strategy, gradients)
        checks = [
            check_finite(f"the gradient in {variable.name}", gradient)
            for variable, gradient in zip(variables, gradients, strict=True)
        ]
        with tf.control_dependencies([require(checks)]):
            ascend(self.hyperparameter_optimizer, gradients, variables)
            done = self.step.assign_add(1)
        with tf.control_dependencies([done]):
            refresh_posteriors(model)


def _learnt(model: AugmentedModel) -> list[tf.Variable]:
    of_q = [parameter.unconstrained_variable for parameter in (model.q_mu, model.q_sqrt)]
    return [*of_q, *hyperparameters(model)]
