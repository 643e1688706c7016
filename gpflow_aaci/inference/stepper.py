"""The base class of ``train``'s optimizers: checks, slots, and a step on the hyperparameters."""

import abc
import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf
from gpflow.keras import tf_keras

from ..data import Call, Data, StepData, as_data, check_step_data, next_batch
from ..models import AugmentedModel, as_augmented, hyperparameters, refresh_posteriors
from ..runtime.mirrored import apply_upwards, build
from ..validation import Check, check_finite, require
from .compiled_steps import CompiledSteps, Settings, of_optimizer

# The variables that an optimizer has slots for: tf_keras' own ``build`` ignores all but the first.
_BUILT_FOR: "weakref.WeakKeyDictionary[Any, list[weakref.ref[tf.Variable]]]" = (
    weakref.WeakKeyDictionary()
)


class Move(NamedTuple):
    """What a step changes, if all its checks hold."""

    gradients: list[tf.Tensor]  # of the objective, in the variables of the tf_keras optimizer
    assigned: Sequence[tuple[Any, tf.Tensor]] = ()  # variables or parameters, and their new values
    checks: Sequence[Check] = ()


class Stepper(tf.Module, abc.ABC):
    """A step on q(u) and the hyperparameters: in closed form on q, or by gradients on both."""

    argument: str  # the name of the constructor's argument that is a tf_keras optimizer
    moves_q: bool  # whether the tf_keras optimizer moves q, too
    every = 1  # the tf_keras optimizer moves its variables at every ``every``-th step only

    def __init__(self, optimizer: tf_keras.optimizers.Optimizer) -> None:
        """
        :raises ValueError: for an optimizer whose slots cannot be created before a step.
        """
        super().__init__()
        if isinstance(optimizer, type):
            raise ValueError(
                f"{self.argument} must be an optimizer object, such as Adam(0.01), not a class. "
                f"Found: the class {optimizer.__name__}."
            )
        if not hasattr(optimizer, "build") or not hasattr(optimizer, "apply_gradients"):
            found = type(optimizer)
            raise ValueError(
                f"{self.argument} must be one of tf_keras.optimizers or keras.optimizers, "
                "not of tf_keras.optimizers.legacy, whose slots cannot be created before a step. "
                f"Found: {found.__module__}.{found.__name__}."
            )
        self.hyperparameter_optimizer = optimizer
        self.step = tf.Variable(0, dtype=tf.int64, trainable=False)  # how many have been taken
        self._steps = CompiledSteps()

    @property
    @abc.abstractmethod
    def settings(self) -> dict[str, Any]:
        """The settings that must be the same for a run to be resumed."""

    @abc.abstractmethod
    def _move(self, model: AugmentedModel, data: Data, variables: list[tf.Variable]) -> Move:
        """
        The changes of one step.

        :param variables: the variables in which it computes gradients.
        """

    def build(self, model: AugmentedModel) -> list[tf.Variable]:
        """
        Make the slots of the tf_keras optimizer; ``minimize`` does so, too.

        :return: the variables that the tf_keras optimizer moves.
        :raises ValueError: where it has slots already, and not for the variables of ``model``.
        """
        q = [model.q_mu, model.q_sqrt] if self.moves_q else []
        variables = [*(part.unconstrained_variable for part in q), *hyperparameters(model)]
        optimizer = self.hyperparameter_optimizer
        if optimizer not in _BUILT_FOR:
            elsewhere = getattr(optimizer, "built", getattr(optimizer, "_built", False))
            if not elsewhere:
                build(optimizer, variables)
            _BUILT_FOR[optimizer] = [] if elsewhere else [weakref.ref(v) for v in variables]
        known = [reference() for reference in _BUILT_FOR[optimizer]]
        foreign = [v.name for v in variables if not any(v is other for other in known)]
        if foreign:
            raise ValueError(
                f"{self.argument} must be a new one for each model: this one has been used with "
                "another model, or with other trainable parameters. Found variables that it does "
                f"not know: {foreign}."
            )
        return variables

    def minimize(
        self,
        model: AugmentedModel,
        data: StepData = None,
        num_data: int | None = None,
        *,
        compile: bool | None = None,
    ) -> None:
        """
        One step on q(u) and on the trainable hyperparameters. Works inside ``tf.function``.

        :param data: (X [N, D], Y [N, P]) or an iterator of such batches for ``AugmentedSVGP``;
            None for ``AugmentedVGP``.
        :param num_data: the number of rows that the batches are drawn from, for a model without
            ``num_data``. If the number is not known, a pair (X, Y) counts as all data, and an
            iterator is refused.
        :param compile: as :meth:`AugmentedNaturalGradient.minimize
            <gpflow_aaci.AugmentedNaturalGradient.minimize>` has it.
        :raises ValueError, tf.errors.InvalidArgumentError: for bad data, or if the updated q or a
            gradient is not finite; the model and the optimizer are then unchanged.
        """
        augmented = as_augmented(model)
        check_step_data(augmented.expected_data, data, num_data)
        if model not in self._steps:
            self.build(augmented)  # raises before a batch is taken from an iterator

        name = f"{type(self).__name__}.minimize"
        call = Call(name, settings=lambda: self.settings, is_step=True)

        def rows_of(model: AugmentedModel, batch: Any) -> Data:
            expected = as_augmented(model).expected_data
            return as_data(expected, batch, num_data=num_data, call=call)

        def depends_on() -> Settings:
            own = self._depends_on()
            return own._replace(constants=(*own.constants, num_data))

        batch = next_batch(data)
        self._steps.take(self.take, rows_of, model, batch, depends_on, compile)

    def _depends_on(self) -> Settings:
        """What a step depends on besides model and batch."""
        found = of_optimizer(self.hyperparameter_optimizer)
        return found._replace(
            constants=(*found.constants, self.every), objects=[*found.objects, self.step]
        )

    def take(self, model: AugmentedModel, rows: Data) -> None:
        """The step of :meth:`minimize` on rows that have been checked."""
        model = as_augmented(model)
        variables = self.build(model)

        def take(variables: list[tf.Variable]) -> tf.Tensor:
            return self._taken(self._move(model, rows, variables), variables)

        if self.every == 1:
            done = take(variables)
        else:
            is_due = tf.equal(self.step % self.every, 0)
            done = tf.cond(is_due, lambda: take(variables), lambda: take([]))
        with tf.control_dependencies([done]):
            refresh_posteriors(model)

    def _taken(self, move: Move, variables: list[tf.Variable]) -> tf.Tensor:
        """
        The number of steps taken, after this one.

        Nothing changes unless all checks hold and all gradients are finite.
        """
        pairs = zip(variables, move.gradients, strict=True)
        are_finite = [check_finite(f"the gradient in {v.name}", g) for v, g in pairs]
        with tf.control_dependencies([require([*move.checks, *are_finite])]):
            assigned = [variable.assign(value) for variable, value in move.assigned]
            if variables:
                apply_upwards(self.hyperparameter_optimizer, move.gradients, variables)
        # What follows, such as new caches of posteriors, reads what this step has assigned.
        with tf.control_dependencies([*assigned, *map(tf.convert_to_tensor, variables)]):
            return tf.identity(self.step.assign_add(1))
