"""Variables that live on several devices: ``tf.distribute`` makes such of what its scopes hold."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from .workers import ONE_PROCESS, replica_here


def strategy_of(variables: Sequence[tf.Variable]) -> tf.distribute.Strategy:
    """The strategy in whose scope they were made; without variables, that of the present scope."""
    for variable in variables:
        if isinstance(variable, tf.distribute.DistributedValues):
            return variable.distribute_strategy
    return ONE_PROCESS if variables else tf.distribute.get_strategy()


def local(variables: Sequence[tf.Variable]) -> list[tf.Variable]:
    """What tapes watch: the variables, or what they are on the device that runs this code."""
    at = replica_here(strategy_of(variables))
    return [
        v.distribute_strategy.experimental_local_results(v)[at]
        if isinstance(v, tf.distribute.DistributedValues)
        else v
        for v in variables
    ]


def heed_trainable(variables: Sequence[tf.Variable]) -> None:
    """
    Make ``gpflow.set_trainable`` hold for mirrored variables.

    It sets an attribute of the variable, and a mirrored one goes by that of its parts.
    """
    for variable in variables:
        if isinstance(variable, tf.distribute.DistributedValues):
            flag = vars(variable).get("_trainable")
            parts = variable.distribute_strategy.experimental_local_results(variable)
            for part in parts if flag is not None else ():
                part._trainable = flag


def build(optimizer: Any, variables: Sequence[tf.Variable]) -> None:
    """Make the slots of a tf_keras optimizer where its variables are."""
    with tf.init_scope(), strategy_of(variables).scope():
        optimizer.build(variables)


def ascend(
    optimizer: Any, gradients: Sequence[tf.Tensor], variables: Sequence[tf.Variable]
) -> None:
    """A step of a tf_keras optimizer along gradients that every device has whole."""
    strategy = strategy_of(variables)
    of_each = float(strategy.num_replicas_in_sync)  # the optimizer adds up the gradients of all
    pairs = list(zip(gradients, variables, strict=True))
    # Negated on each device, or they would be tensors of the first alone.
    strategy.run(lambda: optimizer.apply_gradients([(-g / of_each, v) for g, v in pairs]))
