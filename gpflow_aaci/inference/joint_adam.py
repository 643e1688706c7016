"""``JointAscent``: a tf_keras optimizer on q(u) and the hyperparameters together."""

from typing import Any

import tensorflow as tf
from gpflow.keras import tf_keras

from ..data import Data
from ..models import AugmentedModel
from ..models.bounds import TermOf
from ..runtime.mirrored import local
from .bound_gradient import value_and_gradient
from .stepper import Move, Stepper


class JointAscent(Stepper):
    """
    Gradient ascent on objectives that closed-form steps do not raise: standard and predictive.

    ``train`` uses it. ``q_mu`` and ``q_sqrt`` move whether they are trainable or not, as with
    ``AlternatingOptimizer``.
    """

    argument, moves_q = "optimizer", True

    def __init__(
        self, name: str, of: TermOf, optimizer: tf_keras.optimizers.Optimizer | None = None
    ) -> None:
        """
        :param name: the name of the objective.
        :param of: the objective's term, as a function of the likelihood.
        :param optimizer: the optimizer of all variables. Default: ``Adam(0.01)``.
        :raises ValueError: for anything but an optimizer of ``tf_keras.optimizers`` or
            ``keras.optimizers``.
        """
        super().__init__(tf_keras.optimizers.Adam(0.01) if optimizer is None else optimizer)
        self._objective, self._of = name, of

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that must be the same for a run to be resumed."""
        optimizer = self.hyperparameter_optimizer
        return {"objective": self._objective, type(optimizer).__name__: optimizer.get_config()}

    def _move(self, model: AugmentedModel, data: Data, variables: list[tf.Variable]) -> Move:
        sources = local(variables)
        _, of_rows = value_and_gradient(
            lambda: tf.reduce_sum(model.term_values(*data.rows, self._of)[0]), sources
        )
        _, of_rest = value_and_gradient(
            lambda: model.log_prior_density() - model.prior_kl(), sources
        )
        return Move([a + b for a, b in zip(data.total(of_rows), of_rest, strict=True)])
