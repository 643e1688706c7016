"""Checks that all processes make the same call, with the same model and parameter values."""

import json
import weakref
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import gpflow
import tensorflow as tf
from gpflow.config import default_jitter

from .identity import shown_value
from .mirrored import heed_trainable
from .structure import facts
from .workers import check_agreement, num_workers

# The steps that all workers have agreed on, by model: see ``check_same_program_once``.
_AGREED: "weakref.WeakKeyDictionary[Any, set[str]]" = weakref.WeakKeyDictionary()


def describe(model: Any) -> dict[str, str]:
    """All facts about ``model`` except its data and its learnt values, for a ``Run``."""
    return {
        **facts(model, state=("q_mu", "q_sqrt", "data", "num_data")),
        "num_data": repr(model.expected_data.known_num_data),
        "default_jitter": repr(default_jitter()),
    }


def check_same_program(
    model: Any,
    call: str,
    settings: Mapping[str, Any] = MappingProxyType({}),
    **options: Any,
) -> None:
    """
    Check that all workers make the same call, with the same model and parameter values.

    :param call: the name of the function that was called.
    :param settings: the settings of the optimizer, if the call has one.
    :param options: the options of the call.
    :raises ValueError: on every worker, if anything differs; the message says what and where.
    """
    heed_trainable(model.variables)
    if num_workers(model.strategy) > 1:
        of_optimizer = {f"{path} of the optimizer": f for path, f in facts(settings).items()}
        of_model = {f"{path} of the model": fact for path, fact in describe(model).items()}
        values = {
            f"the value of {path}": shown_value(parameter.numpy())
            for path, parameter in gpflow.utilities.parameter_dict(model).items()
        }
        whole = {"the call": call, **options, **of_optimizer, **of_model, **values}
        check_agreement(model.strategy, whole)


def check_same_program_once(
    model: Any, call: str, settings: Callable[[], Mapping[str, Any]]
) -> None:
    """
    Call :func:`check_same_program`, but only before the model's first step with these settings.

    :param settings: returns the settings of the optimizer.
    """
    if num_workers(model.strategy) == 1:
        return
    agreed = _AGREED.setdefault(model, set())
    with tf.init_scope():
        of_optimizer = settings()
        kind = json.dumps([call, facts(of_optimizer)])
        if kind not in agreed:
            check_same_program(model, call, of_optimizer)
    agreed.add(kind)
