"""Which variables of a model are learnt besides q."""

import tensorflow as tf

from ..mirrored import heed_trainable
from .shared import Augmented


def hyperparameters(model: Augmented) -> list[tf.Variable]:
    """The trainable variables of ``model`` but for q's, and for a ``num_data`` that is one."""
    heed_trainable(model.variables)
    not_hyper = {id(p.unconstrained_variable) for p in (model.q_mu, model.q_sqrt)}
    not_hyper.add(id(getattr(model.num_data, "unconstrained_variable", model.num_data)))
    return [variable for variable in model.trainable_variables if id(variable) not in not_hyper]
