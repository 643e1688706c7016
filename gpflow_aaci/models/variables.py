"""The variables of a model: the hyperparameters among them, and their values before a failure."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import tensorflow as tf

from ..runtime.mirrored import heed_trainable
from .shared import Augmented


def hyperparameters(model: Augmented) -> list[tf.Variable]:
    """The trainable variables of ``model``, without ``q_mu``, ``q_sqrt`` and ``num_data``."""
    heed_trainable(model.variables)
    not_hyper = {id(p.unconstrained_variable) for p in (model.q_mu, model.q_sqrt)}
    not_hyper.add(id(getattr(model.num_data, "unconstrained_variable", model.num_data)))
    return [variable for variable in model.trainable_variables if id(variable) not in not_hyper]


@contextmanager
def undone_on_failure(variables: Sequence[tf.Variable]) -> Iterator[None]:
    """Set the variables to their values of before, to the last bit, where the block raises."""
    before = [variable.numpy() for variable in variables]
    try:
        yield
    except BaseException:
        for variable, value in zip(variables, before, strict=True):
            variable.assign(value)
        raise
