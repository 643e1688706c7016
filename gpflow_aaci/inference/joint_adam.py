"""``JointAscent``: a tf_keras optimizer on q(u) and the hyperparameters together."""

from typing import Any

import tensorflow as tf
from gpflow.keras import tf_keras

from ..data import Data
from ..mirrored import local
from ..models import AugmentedModel, hyperparameters
from ..models.bounds import TermOf
from .stepper import Stepper


class JointAscent(Stepper):
    """
    Gradient ascent on objectives that closed-form steps do not raise: standard and predictive.

    ``train`` steps with it; ``q_mu`` and ``q_sqrt`` move whether they are trainable or not, as with
    ``AlternatingOptimizer``.
    """

    argument = "optimizer"

    def __init__(
        self, name: str, of: TermOf, optimizer: tf_keras.optimizers.Optimizer | None = None
    ) -> None:
        """
        :param name: the name of the objective.
        :param of: the objective's term, as a function of the likelihood.
        :param optimizer: the optimizer of all variables, ``Adam(0.01)`` unless given.
        :raises ValueError: for anything but an optimizer of ``tf_keras.optimizers``, and for one
            of ``tf_keras.optimizers.legacy``.
        """
        super().__init__(tf_keras.optimizers.Adam(0.01) if optimizer is None else optimizer)
        self._objective, self._of = name, of

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that must be the same for a run to be resumed."""
        optimizer = self.hyperparameter_optimizer
        return {"objective": self._objective, type(optimizer).__name__: optimizer.get_config()}

    def learnt(self, model: AugmentedModel) -> list[tf.Variable]:
        """q(u) and the trainable hyperparameters."""
        of_q = [parameter.unconstrained_variable for parameter in (model.q_mu, model.q_sqrt)]
        return [*of_q, *hyperparameters(model)]

    def _step(self, model: AugmentedModel, data: Data, variables: list[tf.Variable]) -> None:
        sources = local(variables)
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(sources)
            value = tf.reduce_sum(model.term_values(*data.rows, self._of)[0])
        of_rows = data.total(tape.gradient(value, sources, unconnected_gradients="zero"))
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(sources)
            value = model.log_prior_density() - model.prior_kl()
        of_rest = tape.gradient(value, sources, unconnected_gradients="zero")
        gradients = [a + b for a, b in zip(of_rows, of_rest, strict=True)]
        self._take(model, variables, gradients)
