"""
Functions of a model, compiled once for all models of its structure.

A compiled function reads the variables of the model that it was traced with. For other models to
use it, it is traced with a *twin*: a copy of the model that no user holds. Every call first copies
the values of the caller's model to the twin. Threads that call at the same time use several twins.
"""

import copy
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import tensorflow as tf
from gpflow.base import TensorType
from gpflow.config import config

from .graphs import compiled, may_be_recorded, reading_once
from .structure import Structure, structure_of

_MOST_TWINS = 8  # twins not in use that are kept; each has some 25 MB of graphs
_MOST_NUMBERS = 2_000_000  # in a model with a twin; a larger one takes longer to fit than to trace
_MOST_MET = 100  # structures of which the process knows that it has met them
_NOT_COMPILED = 2  # calls of what is asked of a structure for which nothing is compiled

Maker = Callable[..., Callable[..., Any]]
"""(model, variables, *settings) → the function that is to be compiled."""


class _Twin(NamedTuple):
    model: tf.Module
    variables: list[tf.Variable]  # the functions are differentiated in these
    values: list[TensorType]  # all that may differ between models of one structure
    functions: dict[Any, Any]  # compiled functions by maker, settings and signature


class _Key(NamedTuple):
    config: Hashable
    constants: Hashable
    at: tuple[int, ...]  # the values in which functions are differentiated


class Compiled:
    """Compiled functions of a model, shared by all models of its structure if that is known."""

    def __init__(self, model: tf.Module, variables: Sequence[tf.Variable] = ()) -> None:
        """
        :param variables: the variables of the model in which its functions are differentiated.
        """
        self._unshared = _Twin(model, list(variables), [], {})
        self._structure = _shared(structure_of(model), self._unshared.variables)
        self.tracing_seconds = 0.0  # by all calls of these functions

    @property
    def is_shared(self) -> bool:
        """Whether other models of the same structure use the same functions."""
        return self._structure is not None

    def function(
        self, maker: Maker, *settings: Hashable, signature: Sequence[Any] = ()
    ) -> "CompiledFunction":
        """
        ``maker(model, variables, *settings)``, compiled.

        :param maker: a module-level function, so that it holds no model.
        :param signature: the ``input_signature`` of ``tf.function``.
        """
        return CompiledFunction(self, maker, settings, signature)

    def is_worth_tracing(self, maker: Maker, *settings: Hashable) -> bool:
        """Whether the function was asked for twice, or others of this structure are compiled."""
        return self._structure is not None and _POOL.knows(
            self._structure.constants, (maker, settings)
        )

    @contextmanager
    def twin(self) -> Iterator[_Twin]:
        """A twin with the model's values, used by this caller alone; or the model itself."""
        if self._structure is None:
            yield self._unshared
            return
        constants, values = self._structure
        at = tuple(_position(variable, values) for variable in self._unshared.variables)
        # A graph also holds GPflow's configuration, such as the jitter, as constants.
        key = _Key(config(), constants, at)
        twin = _POOL.take(key) or _copied(self._unshared.model, constants, at)
        _POOL.note(constants, twin is not None)
        if twin is None:
            self._structure = None
            yield self._unshared
            return
        try:
            for variable, value in zip(twin.values, values, strict=True):
                _assign(variable, value)
            yield twin
        finally:
            _POOL.give_back(key, twin)


class CompiledFunction:
    """A function of a model that is traced when it is first called."""

    def __init__(
        self, owner: Compiled, maker: Maker, settings: Sequence[Hashable], signature: Sequence[Any]
    ) -> None:
        self._owner, self._name = owner, (maker, tuple(settings), tuple(signature))

    def trace(self) -> Any:
        """Trace the function unless it has been traced; return its results as specifications."""
        with self._owner.twin() as twin:
            return self._of(twin).get_concrete_function().structured_outputs

    def is_traced(self) -> bool:
        """Whether it is traced, for this model or another one of its structure."""
        with self._owner.twin() as twin:
            return self._name in twin.functions

    def __call__(self, *args: Any) -> Any:
        with self._owner.twin() as twin:
            return self._of(twin)(*args)

    def _of(self, twin: _Twin) -> Any:
        """The function of a twin, traced if necessary."""
        if self._name not in twin.functions:
            began = time.perf_counter()
            maker, settings, signature = self._name
            made = maker(twin.model, twin.variables, *settings)
            function = compiled(made, input_signature=signature)
            function.get_concrete_function()
            twin.functions[self._name] = function
            self._owner.tracing_seconds += time.perf_counter() - began
        return twin.functions[self._name]


class _Pool:
    """Twins that are not in use, the least recently used one first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._twins: list[tuple[_Key, _Twin]] = []
        # Whether models of a structure have twins, or how often something was asked of it.
        self._met: dict[Hashable, int] = {}

    def take(self, key: _Key) -> _Twin | None:
        with self._lock:
            for number in reversed(range(len(self._twins))):
                if self._twins[number][0] == key:
                    return self._twins.pop(number)[1]
        return None

    def give_back(self, key: _Key, twin: _Twin) -> None:
        with self._lock:
            self._twins.append((key, twin))
            freed = [each.constants for each, _ in self._twins[:-_MOST_TWINS]]
            del self._twins[:-_MOST_TWINS]
            kept = {each.constants for each, _ in self._twins}
        for constants in freed:  # more structures in turns than there are twins
            if constants not in kept:
                self.note(constants, False)

    def note(self, constants: Hashable, value: int) -> None:
        """Note whether models of a structure have twins, or how often something was asked."""
        with self._lock:
            self._met.pop(constants, None)
            self._met[constants] = value
            while len(self._met) > _MOST_MET:
                del self._met[next(iter(self._met))]

    def knows(self, constants: Hashable, name: Hashable) -> bool:
        """Whether models of a structure have twins, or this was asked often enough."""
        if constants in self._met:
            return bool(self._met[constants])
        asked = self._met.get((constants, name), 0)
        self.note((constants, name), asked + 1)
        return asked >= _NOT_COMPILED

    def clear(self) -> None:
        with self._lock:
            self._twins.clear()
            self._met.clear()


_POOL = _Pool()


def applied(
    model: tf.Module, maker: Maker, arrays: Sequence[tf.Tensor], *settings: Hashable
) -> Any:
    """
    ``maker(model, (), *settings)(*arrays)``, compiled if something of this structure was before.

    A prediction of a few rows takes some 30 ms, compiled one, and to compile it takes 200: too long
    for what is asked once or twice of a model that nothing has fitted, so that there only the third
    call compiles it. The graph reads a twin's variables, which no gradient tape of the caller's
    would watch: under a tape nothing is compiled.

    :param arrays: the numbers of their rows may differ from call to call.
    """
    if tf.executing_eagerly() and not tf.config.functions_run_eagerly() and not may_be_recorded():
        known = Compiled(model)
        if known.is_worth_tracing(maker, *settings):
            specs = [tf.TensorSpec([None, *part.shape[1:]], part.dtype) for part in arrays]
            return known.function(_reading_once, maker, *settings, signature=specs)(*arrays)
    return maker(model, (), *settings)(*arrays)


def _reading_once(
    model: tf.Module, variables: Sequence[tf.Variable], maker: Maker, *settings: Hashable
) -> Callable[..., Any]:
    """What ``maker`` makes, in whose graph each Parameter is transformed once."""
    return reading_once(model)(maker(model, variables, *settings))


def forget_compiled() -> None:
    """Free all shared compiled functions; the next fit compiles them again."""
    _POOL.clear()


def _shared(structure: Structure | None, variables: Sequence[tf.Variable]) -> Structure | None:
    """The structure, or None if its model does not share functions."""
    if structure is None:
        return None
    known = {id(value) for value in structure.values}
    numbers = sum(value.shape.num_elements() or 0 for value in structure.values)
    is_known = all(id(variable) in known for variable in variables)
    return structure if is_known and numbers <= _MOST_NUMBERS else None


def _copied(model: tf.Module, constants: Sequence[Hashable], at: Sequence[int]) -> _Twin | None:
    """
    A twin of ``model``, or None if a part of the model cannot be copied faithfully.

    :param constants: the constants of the model's structure.
    :param at: the indices of the values in which its functions are differentiated.
    """
    twin = copy.deepcopy(model)
    if isinstance(getattr(twin, "data", None), tuple):  # its data are among its values
        twin.data = tuple(
            part if isinstance(part, tf.Variable) else tf.Variable(part, trainable=False)
            for part in twin.data
        )
    structure = structure_of(twin)
    if structure is None or structure.constants != constants:
        return None
    values = structure.values
    return _Twin(twin, [values[number] for number in at], values, {})


def _assign(variable: tf.Variable, value: TensorType) -> None:
    """``variable.assign(value)`` in a third of the time; open tapes do not record it."""
    if isinstance(value, tf.Variable):
        value = tf.raw_ops.ReadVariableOp(resource=value.handle, dtype=value.dtype)
    tf.raw_ops.AssignVariableOp(resource=variable.handle, value=value)


def _position(variable: tf.Variable, values: Sequence[TensorType]) -> int:
    return next(number for number, value in enumerate(values) if value is variable)
