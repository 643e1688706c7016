"""Mirrored variables: those made in the scope of a ``tf.distribute`` strategy, one per device."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from .workers import ONE_PROCESS, replica_here


def strategy_of(variables: Sequence[tf.Variable]) -> tf.distribute.Strategy:
    """The strategy in whose scope the variables were made; the current one if there are none."""
    for variable in variables:
        if isinstance(variable, tf.distribute.DistributedValues):
            return variable.distribute_strategy
    return ONE_PROCESS if variables else tf.distribute.get_strategy()


def local(variables: Sequence[tf.Variable]) -> list[tf.Variable]:
    """Return what a tape watches: for a mirrored variable, its part on the device of this code."""
    at = replica_here(strategy_of(variables))
    return [
        v.distribute_strategy.experimental_local_results(v)[at]
        if isinstance(v, tf.distribute.DistributedValues)
        else v
        for v in variables
    ]


def heed_trainable(variables: Sequence[tf.Variable]) -> None:
    """
    Make ``gpflow.set_trainable`` take effect on mirrored variables.

    GPflow sets an attribute of the mirrored variable itself, but TensorFlow reads the attribute of
    its parts, which this function sets.
    """
    for variable in variables:
        if isinstance(variable, tf.distribute.DistributedValues):
            flag = vars(variable).get("_trainable")
            parts = variable.distribute_strategy.experimental_local_results(variable)
            for part in parts if flag is not None else ():
                part._trainable = flag


def build(optimizer: Any, variables: Sequence[tf.Variable]) -> None:
    """Make the slots of a tf_keras optimizer on the devices of its variables."""
    with tf.init_scope(), strategy_of(variables).scope():
        optimizer.build(variables)


def apply_upwards(
    optimizer: Any, gradients: Sequence[tf.Tensor], variables: Sequence[tf.Variable]
) -> None:
    """
    Make a step of a tf_keras optimizer that increases the objective.

    :param gradients: the gradients over all rows, which are the same on every device.
    """
    strategy = strategy_of(variables)
    devices = float(strategy.num_replicas_in_sync)  # the optimizer adds up their gradients
    pairs = list(zip(gradients, variables, strict=True))
    # Each device negates its gradients: computed here, the results would be on the first device.
    strategy.run(lambda: optimizer.apply_gradients([(-g / devices, v) for g, v in pairs]))
