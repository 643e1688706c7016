"""
The structure of a model: all that a compiled function of it holds, but for its variables' values.

Compiled functions read variables whenever they are called. All else is a constant to them: classes,
shapes, what is trainable, transforms, priors, plain settings. Two models that agree in all of these
differ in nothing but values, so that either's compiled functions compute the other's, given those.
"""

import enum
import functools
import hashlib
import sys
import types
from collections.abc import Hashable, Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import TensorType

from .models import AugmentedModel, AugmentedVGP

# Whose classes and functions keep no state but what their objects hold.
_TRUSTED = ("builtins", "numpy", "tensorflow", "tensorflow_probability", "gpflow", "gpflow_aaci")
_PLAIN = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis))
_NAMED = (tf.DType, tf.TensorShape, np.dtype)

# Python's and TensorFlow's book-keeping, and TensorFlow Probability's.
_NO_SETTINGS = ("_name", "_name_scope", "_scope_name")
_TENSORFLOWS = "_self_"
_NO_ARGUMENTS = ("name", "parameters")


class Structure(NamedTuple):
    """What a model is, and the values that it has."""

    constants: tuple[Hashable, ...]  # equal where two models may share compiled functions
    values: list[TensorType]  # variables, and the data that a model keeps: of equal shapes then


def structure_of(model: AugmentedModel) -> Structure | None:
    """
    None where some part of ``model`` may hold a state that cannot be seen from outside.

    Such a part is an object of a class, or a function, of the user's own, a variable that devices
    share, and a tensor of a graph. ``num_data`` does not count where it is a plain number: it
    multiplies what compiled functions find.
    """
    walk = _Walk()
    try:
        walk.visit_model(model)
    except _UnknownStateError:
        return None
    return Structure(tuple(walk.constants), walk.values)


class _UnknownStateError(Exception):
    """What an object does may depend on something that is not among its parts."""


class _Walk:
    """Through all parts of an object, in an order that depends on nothing but its structure."""

    def __init__(self) -> None:
        self.constants: list[Hashable] = []
        self.values: list[TensorType] = []
        self._met: dict[int, tuple[int, Any]] = {}  # by id, which is of this object while it lives

    def visit_model(self, model: AugmentedModel) -> None:
        self._note(_known_type(model))
        self._is_met(model)
        parts = _settings(model)
        if isinstance(parts.get("num_data"), int | float | np.number):
            del parts["num_data"]
        if isinstance(model, AugmentedVGP):
            for part in parts.pop("data"):
                is_trainable = isinstance(part, tf.Variable) and part.trainable
                self._note("data", part.dtype, tuple(part.shape), is_trainable)
                self.values.append(part)
        self.visit(parts)

    def visit(self, thing: Any) -> None:
        kind = type(thing)
        if kind in _PLAIN:
            self._note(kind, repr(thing))
        elif isinstance(thing, _NAMED):
            self._note(repr(thing))
        elif isinstance(thing, enum.Enum):
            self._note(_known_type(thing), thing.name)
        elif isinstance(thing, type):
            self._note(_checked(thing))
        elif self._is_met(thing):
            pass
        elif kind is slice:
            self._note(slice)
            self.visit((thing.start, thing.stop, thing.step))
        elif isinstance(thing, tf.Variable):
            self._visit_variable(thing)
        elif isinstance(thing, np.ndarray | np.generic | tf.Tensor):
            self._visit_array(thing)
        else:
            self._visit_parts(thing)

    def _visit_variable(self, variable: tf.Variable) -> None:
        if isinstance(variable, tf.distribute.DistributedValues):
            raise _UnknownStateError
        shape = None if variable.shape.rank is None else tuple(variable.shape)
        self._note(_known_type(variable), variable.dtype, shape, variable.trainable)
        self.values.append(variable)

    def _visit_array(self, array: Any) -> None:
        if tf.is_symbolic_tensor(array):
            raise _UnknownStateError
        value = np.ascontiguousarray(array)
        if value.dtype.hasobject:
            raise _UnknownStateError
        sha256 = hashlib.sha256(value.tobytes()).digest()
        self._note(_known_type(array), value.dtype.str, np.shape(array), sha256)

    def _visit_parts(self, thing: Any) -> None:
        if isinstance(thing, types.FunctionType | types.BuiltinFunctionType | np.ufunc):
            self._note(_checked(thing))
            return
        kind = _known_type(thing)
        self._note(kind)
        if isinstance(thing, types.MethodType):
            self.visit([thing.__func__, thing.__self__])
        elif isinstance(thing, functools.partial):
            self.visit([thing.func, thing.args, thing.keywords])
        elif isinstance(thing, Mapping):
            self._note(len(thing))
            for key, value in thing.items():
                self.visit(key)
                self.visit(value)
        elif isinstance(thing, list | tuple):
            self._note(len(thing))
            for part in thing:
                self.visit(part)
        elif isinstance(thing, tfp.bijectors.Bijector | tfp.distributions.Distribution):
            arguments = thing.parameters
            self.visit({k: v for k, v in arguments.items() if k not in _NO_ARGUMENTS})
        else:
            self.visit(_settings(thing))

    def _is_met(self, thing: Any) -> bool:
        """Whether the object has been visited; a part that two others share is met twice."""
        if id(thing) in self._met:
            self._note("as", self._met[id(thing)][0])
            return True
        self._met[id(thing)] = len(self._met), thing
        return False

    def _note(self, *constants: Any) -> None:
        self.constants.extend(constants)


def _settings(thing: Any) -> dict[str, Any]:
    """All attributes of an object, in the order of their names."""
    slots = [name for base in type(thing).__mro__ for name in vars(base).get("__slots__", ())]
    if not isinstance(getattr(thing, "__dict__", None), dict) or set(slots) - {"__weakref__"}:
        raise _UnknownStateError
    return {
        name: value
        for name, value in sorted(vars(thing).items())
        if name not in _NO_SETTINGS and not name.startswith(_TENSORFLOWS)
    }


def _known_type(thing: Any) -> type:
    return _checked(type(thing))


def _checked(thing: Any) -> Any:
    """A class or function of a trusted module that is found there, and so is not made in a call."""
    module = getattr(thing, "__module__", None) or "numpy"  # a ufunc's is not told
    found = sys.modules.get(module) if module.partition(".")[0] in _TRUSTED else None
    for name in (
        thing.__qualname__.split(".") if hasattr(thing, "__qualname__") else [thing.__name__]
    ):
        found = getattr(found, name, None)
    if found is not thing:
        raise _UnknownStateError
    return thing
