"""Which variables of a model are learnt beside q, and where they live."""

from collections.abc import Sequence

import tensorflow as tf

from .shared import Augmented


def hyperparameters(model: Augmented) -> list[tf.Variable]:
    """The trainable variables of ``model`` but for q's, and for a ``num_data`` that is one."""
    not_hyper = {id(p.unconstrained_variable) for p in (model.q_mu, model.q_sqrt)}
    not_hyper.add(id(getattr(model.num_data, "unconstrained_variable", model.num_data)))
    return [variable for variable in model.trainable_variables if id(variable) not in not_hyper]


def strategy_of(variables: Sequence[tf.Variable]) -> tf.distribute.Strategy:
    """
    That whose scope they were made in.

    :raises ValueError: where it has several devices, which nothing here keeps in step.
    """
    mirrored = [v for v in variables if isinstance(v, tf.distribute.DistributedValues)]
    strategy = mirrored[0].distribute_strategy if mirrored else tf.distribute.get_strategy()
    if strategy.num_replicas_in_sync > 1:
        raise ValueError(
            "model must be on one device. Found: variables of a "
            f"{type(strategy).__name__} with {strategy.num_replicas_in_sync}."
        )
    return strategy


def local(variables: Sequence[tf.Variable]) -> list[tf.Variable]:
    """What tapes watch: the variables, or those on the one device that they are mirrored to."""
    strategy_of(variables)
    return [
        v.distribute_strategy.experimental_local_results(v)[0]
        if isinstance(v, tf.distribute.DistributedValues)
        else v
        for v in variables
    ]
