"""Checks that all processes make the same call, with the same model and parameter values."""

import json
import weakref
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import gpflow
import tensorflow as tf
from gpflow.config import default_jitter

from .identity import shown_value
from .mirrored import heed_trainable
from .structure import facts
from .workers import check_agreement, num_workers

# The steps that all workers have agreed on, by model: see ``Call.is_step``.
_AGREED: "weakref.WeakKeyDictionary[Any, set[str]]" = weakref.WeakKeyDictionary()


def describe(model: Any) -> dict[str, str]:
    """All facts about ``model`` except its data and its learnt values, for a ``Run``."""
    return {
        **facts(model, state=("q_mu", "q_sqrt", "data", "num_data")),
        "num_data": repr(model.expected_data.known_num_data),
        "default_jitter": repr(default_jitter()),
    }


class Call(NamedTuple):
    """A public call that all workers must make alike."""

    name: str
    options: Mapping[str, Any] = MappingProxyType({})
    settings: Callable[[], Mapping[str, Any]] = dict
    """Returns the settings of the optimizer, if the call has one."""

    is_step: bool = False
    """Whether it is compared only before the model's first step with these settings."""


def check_same_program(model: Any, call: Call) -> None:
    """
    Check that all workers make the same call, with the same model and parameter values.

    :raises ValueError: on every worker, if anything differs; the message says what and where.
    """
    if num_workers(model.strategy) == 1:
        if not call.is_step:
            heed_trainable(model.variables)
        return
    with tf.init_scope():
        of_optimizer = facts(call.settings())
        agreed, kind = _AGREED.setdefault(model, set()), json.dumps([call.name, of_optimizer])
        if call.is_step and kind in agreed:
            return
        heed_trainable(model.variables)
        check_agreement(model.strategy, _whole(model, call, of_optimizer))
        agreed.add(kind)


def _whole(model: Any, call: Call, of_optimizer: Mapping[str, str]) -> dict[str, Any]:
    """Everything that must be the same, by what an error calls it."""
    of_model = {f"{path} of the model": fact for path, fact in describe(model).items()}
    values = {
        f"the value of {path}": shown_value(parameter.numpy())
        for path, parameter in gpflow.utilities.parameter_dict(model).items()
    }
    of_optimizer = {f"{path} of the optimizer": fact for path, fact in of_optimizer.items()}
    return {"the call": call.name, **call.options, **of_optimizer, **of_model, **values}
