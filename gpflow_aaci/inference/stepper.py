"""The base of the optimizers of ``train``: checks, slots, and a step on the hyperparameters."""

import abc
import weakref
from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from gpflow.keras import tf_keras

from ..algebra.gaussian import Gaussian
from ..checkpoints import check_same_program_once
from ..data import Data, StepData, as_data, check_step_data, next_batch
from ..mirrored import ascend, build
from ..models import AugmentedModel, check_model, refresh_posteriors
from ..validation import Check, check_finite, require

# Which variables an optimizer has slots for; tf_keras' own ``build`` is silent the second time.
_BUILT_FOR: "weakref.WeakKeyDictionary[Any, list[weakref.ref[tf.Variable]]]" = (
    weakref.WeakKeyDictionary()
)


class Stepper(tf.Module, abc.ABC):
    """A step on q(u) and the hyperparameters: in closed form on q, or by gradients on both."""

    argument: str  # the name of the constructor's argument that is a tf_keras optimizer

    def __init__(self, optimizer: tf_keras.optimizers.Optimizer) -> None:
        """
        :raises ValueError: for an optimizer whose slots cannot be made before a step.
        """
        super().__init__()
        check_has_slots(self.argument, optimizer)
        self.hyperparameter_optimizer = optimizer
        self.step = tf.Variable(0, dtype=tf.int64, trainable=False)  # how many have been taken

    @property
    @abc.abstractmethod
    def settings(self) -> dict[str, Any]:
        """The settings that must be the same for a run to be resumed."""

    @abc.abstractmethod
    def learnt(self, model: AugmentedModel) -> list[tf.Variable]:
        """The variables that the tf_keras optimizer moves."""

    @abc.abstractmethod
    def _step(self, model: AugmentedModel, data: Data, variables: list[tf.Variable]) -> None: ...

    def build(self, model: AugmentedModel) -> None:
        """
        Make the slots of the tf_keras optimizer; ``minimize`` does so, too.

        :raises ValueError: where it has slots already, and not for the variables of ``model``.
        """
        build_slots(self.argument, self.hyperparameter_optimizer, self.learnt(model))

    def minimize(
        self, model: AugmentedModel, data: StepData = None, num_data: int | None = None
    ) -> None:
        """
        One step on q(u) and on the trainable hyperparameters. Works inside ``tf.function``.

        :param data: (X [N, D], Y [N, P]) or an iterator of such batches for ``AugmentedSVGP``;
            none for ``AugmentedVGP``.
        :param num_data: how many rows the batches are of, for a model that has been told none. A
            pair (X, Y) is all data without it; with an iterator one of the two must be given.
        :raises ValueError, tf.errors.InvalidArgumentError: for bad data, or where the updated q or
            a gradient is not finite; the model and the optimizer are then as they were.
        """
        check_model(model)
        check_step_data(model.expected_data, data, num_data)
        call = f"{type(self).__name__}.minimize"
        check_same_program_once(model, call, lambda: self.settings)
        variables = self.learnt(model)
        build_slots(self.argument, self.hyperparameter_optimizer, variables)
        rows = as_data(model.expected_data, next_batch(data), num_data=num_data)
        self._step(model, rows, variables)

    def _take(
        self,
        model: AugmentedModel,
        variables: Sequence[tf.Variable],
        gradients: Sequence[tf.Tensor],
        q: Gaussian | None = None,
        checks: Sequence[Check] = (),
    ) -> tf.Tensor:
        """
        The number of steps taken, after one along ``gradients`` and to ``q``.

        Nothing changes unless all checks hold and all gradients are finite.
        """
        checks = list(checks)
        for variable, gradient in zip(variables, gradients, strict=True):
            checks.append(check_finite(f"the gradient in {variable.name}", gradient))
        with tf.control_dependencies([require(checks)]):
            if q is not None:
                model.q_mu.assign(q.mu)
                model.q_sqrt.assign(q.sqrt)
            if variables:
                ascend(self.hyperparameter_optimizer, gradients, variables)
            done = self.step.assign_add(1)
        with tf.control_dependencies([done]):
            refresh_posteriors(model)
            return tf.identity(done)


def check_has_slots(name: str, optimizer: tf_keras.optimizers.Optimizer) -> None:
    """
    :raises ValueError: unless they can be made before a step.
    """
    if isinstance(optimizer, type):
        raise ValueError(
            f"{name} must be an optimizer, not a class of them: Adam(0.01). "
            f"Found: the class {optimizer.__name__}."
        )
    if not hasattr(optimizer, "build") or not hasattr(optimizer, "apply_gradients"):
        found = type(optimizer)
        raise ValueError(
            f"{name} must be one of tf_keras.optimizers or keras.optimizers, "
            "not of tf_keras.optimizers.legacy, whose slots cannot be made before a step. "
            f"Found: {found.__module__}.{found.__name__}."
        )


def build_slots(
    name: str, optimizer: tf_keras.optimizers.Optimizer, variables: list[tf.Variable]
) -> None:
    """
    :param name: of the argument that ``optimizer`` is.
    :raises ValueError: where it has been built for others.
    """
    if optimizer not in _BUILT_FOR:
        elsewhere = getattr(optimizer, "built", getattr(optimizer, "_built", False))
        if not elsewhere:
            build(optimizer, variables)
        _BUILT_FOR[optimizer] = [] if elsewhere else [weakref.ref(v) for v in variables]
    known = [reference() for reference in _BUILT_FOR[optimizer]]
    foreign = [v.name for v in variables if not any(v is other for other in known)]
    if foreign:
        raise ValueError(
            f"{name} must be a new one for each model: this one has been used for another, or for "
            "other trainable parameters of this one. Found variables that it does not know: "
            f"{foreign}."
        )
