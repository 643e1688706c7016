"""The trainable variables of a model besides those of q."""

import tensorflow as tf

from ..mirrored import heed_trainable
from .shared import Augmented


def hyperparameters(model: Augmented) -> list[tf.Variable]:
    """The trainable variables of ``model`` without those of q and of ``num_data``."""
    heed_trainable(model.variables)
    not_hyper = {id(p.unconstrained_variable) for p in (model.q_mu, model.q_sqrt)}
    not_hyper.add(id(getattr(model.num_data, "unconstrained_variable", model.num_data)))
    return [variable for variable in model.trainable_variables if id(variable) not in not_hyper]
