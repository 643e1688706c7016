"""Which variables of a model are learnt beside q, and where they live."""

from collections.abc import Sequence

import tensorflow as tf

from ..workers import replica_here, strategy_of
from .shared import Augmented


def hyperparameters(model: Augmented) -> list[tf.Variable]:
    """The trainable variables of ``model`` but for q's, and for a ``num_data`` that is one."""
    heed_trainable(model)
    not_hyper = {id(p.unconstrained_variable) for p in (model.q_mu, model.q_sqrt)}
    not_hyper.add(id(getattr(model.num_data, "unconstrained_variable", model.num_data)))
    return [variable for variable in model.trainable_variables if id(variable) not in not_hyper]


def heed_trainable(model: Augmented) -> None:
    """
    Make ``gpflow.set_trainable`` hold for mirrored variables.

    It sets an attribute of the variable, and a mirrored one goes by that of its parts.
    """
    if isinstance(model.q_mu.unconstrained_variable, tf.distribute.DistributedValues):
        for variable in model.variables:
            flag = vars(variable).get("_trainable")
            if isinstance(variable, tf.distribute.DistributedValues) and flag is not None:
                for part in variable.distribute_strategy.experimental_local_results(variable):
                    part._trainable = flag


def local(variables: Sequence[tf.Variable]) -> list[tf.Variable]:
    """What tapes watch: the variables, or what they are on the device that runs this code."""
    at = replica_here(strategy_of(variables))
    return [
        v.distribute_strategy.experimental_local_results(v)[at]
        if isinstance(v, tf.distribute.DistributedValues)
        else v
        for v in variables
    ]
