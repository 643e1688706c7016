"""
The structure of an object: one walk through its parts, for two uses.

:func:`facts` describes an object in words, so that another model does not resume from a checkpoint
and workers can compare their models. :func:`structure_of` decides which models share compiled
functions. These read variables whenever they are called, and everything else is a constant to them:
classes, shapes, what is trainable, transforms, priors, plain settings. Two models that agree in all
of these differ in values alone, so that either can use the compiled functions of the other.
"""

import enum
import functools
import hashlib
import sys
import types
from collections.abc import Collection, Hashable, Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow import Parameter
from gpflow.base import TensorType
from gpflow.models import InternalDataTrainingLossMixin

from .identity import shown_value

# Packages whose classes and functions have no state beyond the attributes of their objects.
_TRUSTED = ("builtins", "numpy", "tensorflow", "tensorflow_probability", "gpflow", "gpflow_aaci")
_PLAIN = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis))
_NAMED = (tf.DType, tf.TensorShape, np.dtype)

# Attributes that Python, TensorFlow and TensorFlow Probability use for their own records, and names
# for messages.
_NO_SETTINGS = ("_name", "_name_scope", "_scope_name", "column_names")
_TENSORFLOWS = "_self_"
_NO_ARGUMENTS = ("name", "parameters")


class Structure(NamedTuple):
    """The constants of a model, and the values that may differ between models of one structure."""

    constants: tuple[Hashable, ...]  # equal for models that may share compiled functions
    values: list[TensorType]  # variables and stored data, in an order that the constants determine


def facts(thing: Any, state: Collection[str] = ()) -> dict[str, str]:
    """
    Describe every part of ``thing``, by path: kind, shape, fixed value, prior, transform, setting.

    Values of trainable parameters and of bare variables are left out, as training changes them.
    Large values are given by their SHA-256. If an object is not a ``tf.Module``, only its
    plain attributes are described.

    :param state: paths of further parts whose values are left out.
    """
    walk = _Walk(state, strict=False)
    walk.visit("", thing)  # the path of the object itself is empty
    return {path or "kind": _in_words(constant) for path, constant in walk.constants}


def structure_of(model: tf.Module) -> Structure | None:
    """
    The structure of ``model``, or None if a part may hold a state that cannot be seen.

    Such a part is an object of a user's class, a user's function, a variable that several devices
    share, or a tensor of a graph. The value of ``num_data`` does not count if it is a number,
    because it only multiplies the results of compiled functions.
    """
    keeps_data = isinstance(model, InternalDataTrainingLossMixin)
    walk = _Walk(("num_data", "data") if keeps_data else ("num_data",), strict=True)
    try:
        walk.visit("", model)
    except _UnknownStateError:
        return None
    return Structure(tuple(walk.constants), walk.values)


class _UnknownStateError(Exception):
    """The behaviour of an object may depend on something that is not among its parts."""


class _Walk:
    """A walk through all parts of an object, in an order that its structure alone determines."""

    def __init__(self, state: Collection[str], strict: bool) -> None:
        """
        :param state: paths of parts; only their types and shapes are constants.
        :param strict: whether to raise :class:`_UnknownStateError` for a part that cannot be seen
            into; otherwise the walk records what it can see of the part.
        """
        self.constants: list[tuple[str, Hashable]] = []
        self.values: list[TensorType] = []
        self._state, self._strict = state, strict
        # Paths by id. The object is stored, too, as an id is unique only while the object lives.
        self._met: dict[int, tuple[str, Any]] = {}

    def visit(self, path: str, thing: Any) -> None:
        """Record the constants and values of ``thing``, and of its parts if it is a new object."""
        kind = type(thing)
        if isinstance(thing, enum.Enum):
            self._note(path, self._named(kind), thing.name)
        elif kind in _PLAIN or (not self._strict and isinstance(thing, _PLAIN)):
            is_number = isinstance(thing, int | float)
            self._note(path, "number" if is_number and self._is_state(path) else repr(thing))
        elif isinstance(thing, np.number) and self._is_state(path):
            self._note(path, "number")
        elif isinstance(thing, _NAMED):
            self._note(path, repr(thing))
        elif isinstance(thing, type):
            self._note(path, self._named(thing))
        elif isinstance(thing, np.ndarray | np.generic | tf.Tensor):
            self._visit_array(path, thing)
        elif id(thing) in self._met:  # shared by two parts, or a cycle
            self._note(path, f"as {self._met[id(thing)][0]}")
        else:
            self._met[id(thing)] = path, thing
            self._visit_new(path, thing)

    def _visit_new(self, path: str, thing: Any) -> None:
        """Visit an object that may have parts, for the first time."""
        if isinstance(thing, tf.Variable):
            self._visit_variable(path, thing)
        elif isinstance(thing, Parameter):
            self._visit_parameter(path, thing)
        elif isinstance(thing, types.FunctionType | types.BuiltinFunctionType | np.ufunc):
            self._note(path, self._named(thing))
            self._visit_all(path, {} if self._strict else _code(thing))
        elif isinstance(thing, Mapping):
            if self._strict and not all(type(key) in _PLAIN for key in thing):
                raise _UnknownStateError
            self._note(path, self._named(type(thing)), *map(repr, thing))
            self._visit_all(path, {str(key): part for key, part in thing.items()})
        elif isinstance(thing, list | tuple):
            # The class of stored data is left out: a copy of the model may have another tuple.
            kind = self._named(type(thing))
            self._note(path, "data" if self._is_state(path) else kind, len(thing))
            self._visit_all(path, {str(number): part for number, part in enumerate(thing)})
        else:
            self._note(path, self._named(type(thing)))
            self._visit_all(path, self._parts(thing))

    def _visit_all(self, path: str, parts: Mapping[str, Any]) -> None:
        for name, part in parts.items():
            self.visit(f"{path}.{name}" if path else name, part)

    def _visit_variable(self, path: str, variable: tf.Variable) -> None:
        if self._strict and isinstance(variable, tf.distribute.DistributedValues):
            raise _UnknownStateError
        self._named(type(variable))  # raises if strict and the class is not trusted
        self._note(path, *_kind_of_values(variable))
        self.values.append(variable)

    def _visit_parameter(self, path: str, parameter: Parameter) -> None:
        is_fixed = not (self._strict or parameter.trainable or self._is_state(path))
        value = shown_value(parameter.numpy()) if is_fixed else "a variable"
        kind = self._named(type(parameter))
        self._note(path, kind, parameter.dtype.name, tuple(parameter.shape), value)
        parts = {name: getattr(parameter, name) for name in ("transform", "prior", "prior_on")}
        self._visit_all(path, {**parts, "unconstrained": parameter.unconstrained_variable})

    def _visit_array(self, path: str, array: Any) -> None:
        if self._strict and tf.is_symbolic_tensor(array):
            raise _UnknownStateError
        if isinstance(array, tf.Tensor) and path.rpartition(".")[0] in self._state:
            self._note(path, *_kind_of_values(array))
            self.values.append(array)
            return
        value = np.asarray(array)
        if self._strict and value.dtype.hasobject:
            raise _UnknownStateError
        kind = self._named(type(array))
        self._note(path, kind, value.dtype.str, value.shape, shown_value(value))

    def _parts(self, thing: Any) -> dict[str, Any]:
        """The parts of an object that is neither a container nor a function."""
        if isinstance(thing, slice):
            return {"start": thing.start, "stop": thing.stop, "step": thing.step}
        if isinstance(thing, types.MethodType):
            return {"function": thing.__func__, "object": thing.__self__}
        if isinstance(thing, functools.partial):
            return {"function": thing.func, "args": thing.args, "keywords": thing.keywords}
        if isinstance(thing, tfp.bijectors.Bijector | tfp.distributions.Distribution):
            return {k: part for k, part in thing.parameters.items() if k not in _NO_ARGUMENTS}
        slots = {name for base in type(thing).__mro__ for name in vars(base).get("__slots__", ())}
        has_attributes = isinstance(getattr(thing, "__dict__", None), dict)
        if self._strict and (not has_attributes or slots - {"__weakref__"}):
            raise _UnknownStateError
        attributes = sorted(vars(thing).items()) if has_attributes else []
        # Objects other than modules may refer to anything, such as a file or a whole program.
        takes_all = self._strict or isinstance(thing, tf.Module)
        plain = (*_PLAIN, np.ndarray, np.generic)
        return {
            name: part
            for name, part in attributes
            if name not in _NO_SETTINGS
            and not name.startswith(_TENSORFLOWS)
            and (takes_all or isinstance(part, plain) or tf.is_tensor(part))
        }

    def _named(self, thing: Any) -> Hashable:
        """
        Return the class or function itself if strict, else its name.

        :raises _UnknownStateError: if strict, unless a trusted module defines it by this name. No
            module defines a function that another function has made.
        """
        module = getattr(thing, "__module__", None) or "numpy"  # a ufunc has no module
        name = getattr(thing, "__qualname__", None) or thing.__name__
        if not self._strict:
            return f"{module}.{name}"
        listed = sys.modules.get(module) if module.partition(".")[0] in _TRUSTED else None
        for part in name.split("."):
            listed = getattr(listed, part, None)
        if listed is not thing:
            raise _UnknownStateError
        return thing

    def _is_state(self, path: str) -> bool:
        """Whether the values at ``path`` are left out of the constants."""
        return path in self._state or path.rpartition(".")[0] in self._state

    def _note(self, path: str, *constants: Hashable) -> None:
        self.constants.append((path, constants))


def _kind_of_values(array: Any) -> tuple[Hashable, ...]:
    """What must be the same for two variables or stored arrays: all but their values."""
    shape = None if array.shape.rank is None else tuple(array.shape)
    is_trainable = isinstance(array, tf.Variable) and array.trainable
    return tf.as_dtype(array.dtype).name, shape, "trainable" if is_trainable else "fixed"


def _code(function: Any) -> dict[str, Any]:
    """The byte code of a Python function, its constants, and the objects that it refers to."""
    code = getattr(function, "__code__", None)
    if code is None:
        return {}
    return {
        "code": hashlib.sha256(code.co_code).hexdigest(),
        "constants": repr([part for part in code.co_consts if not hasattr(part, "co_code")]),
        "closure": [cell.cell_contents for cell in function.__closure__ or ()],
    }


def _in_words(constants: Any) -> str:
    return " ".join(map(str, constants))
