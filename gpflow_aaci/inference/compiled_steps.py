"""Steps in a plain Python loop compile themselves when they are taken again."""

import weakref
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.config import config

from ..data import CHUNK, Data
from ..models.shared import Augmented
from ..runtime.graphs import compiled
from ..runtime.structure import facts, structure_of
from ..validation import message_of

RowsOf = Callable[[Any, Any], Data]
"""(model, batch) → its rows, checked; the batch is None for a model that keeps its data."""
Step = Callable[[Any, Data], object]
"""(model, rows) → one step, in operations that work eagerly and inside ``tf.function``."""

_NUMBERS = (bool, int, float, np.generic)
_KERAS = ("tf_keras", "keras")  # packages whose optimizers' ``get_config`` says all that they are
_LEARNING_RATE = "learning_rate"


class Settings(NamedTuple):
    """What a step depends on besides model and batch: it is compiled anew if this changes."""

    constants: tuple[Hashable, ...]
    objects: Sequence[Any]  # variables, or what holds some, compared by identity
    are_known: bool = True  # whether nothing else of them may change unseen


class _Key(NamedTuple):
    constants: tuple[Hashable, ...]
    objects: list[Any]

    def is_like(self, other: "_Key") -> bool:
        return (
            len(self.objects) == len(other.objects)
            and all(a is b for a, b in zip(self.objects, other.objects, strict=True))
            and self.constants == other.constants
        )


class _Known(NamedTuple):
    key: _Key | None = None  # None until the step is taken again
    function: Any = None


class CompiledSteps:
    """
    The steps of one optimizer, each compiled when it is taken for the second time.

    A compiled step reads variables whenever it runs; everything else is a constant of its graph:
    classes, shapes, what is trainable, transforms, priors, numbers, GPflow's configuration. All of
    these are compared before every step, and a step in which one has changed is compiled anew. A
    model with a part that may hold a state which cannot be seen, such as an object of a class of
    the user's own, is stepped operation by operation, unless the user asks for more.
    """

    def __init__(self) -> None:
        # The graphs of a model are freed with it: they hold its variables, and not the model.
        self._known: weakref.WeakKeyDictionary[Any, _Known] = weakref.WeakKeyDictionary()

    def __contains__(self, model: Any) -> bool:
        """Whether a step of the model has been taken that may be compiled."""
        return model in self._known

    def __deepcopy__(self, memo: Any) -> "CompiledSteps":
        return CompiledSteps()

    def __reduce__(self) -> Any:
        return CompiledSteps, ()

    def take(
        self,
        step: Step,
        rows_of: RowsOf,
        model: Any,
        batch: Any,
        settings: Callable[[], Settings],
        compile: bool | None,
    ) -> None:
        """
        Take one step, compiled where that is possible and worth it.

        :param batch: (X, Y), or None for a model that keeps its data.
        :param compile: False for never; True from the first step on, and for models and settings
            with parts that cannot be seen into, too; None as above.
        :raises ValueError: where a check fails, in the words of a step that is not compiled.
        """
        is_loop = tf.executing_eagerly() and not tf.config.functions_run_eagerly()
        may_compile = is_loop and compile is not False and isinstance(model, Augmented)
        arrays = _arrays(batch) if may_compile else None
        if arrays is None:
            step(model, rows_of(model, batch))
            return
        known = self._known.get(model)
        if known is None and not compile:  # what it depends on is asked when it is taken again
            step(model, rows_of(model, batch))
            self._known[model] = _Known()
            return
        key, before = _key(model, arrays, settings(), bool(compile)), known and known.key
        is_other = key is not None and before is not None and not before.is_like(key)
        if key is None or (is_other and not compile):
            step(model, rows_of(model, batch))
            if key is not None:
                self._known[model] = _Known(_key(model, arrays, settings(), False))
            return
        function = None if is_other or known is None else known.function
        if function is None:
            rows_of(model, batch)  # raises in its own words, instead of those of a tracing graph
            function = _compiled(step, rows_of, model, arrays)
            key = _key(model, arrays, settings(), bool(compile))  # slots may have been made
            self._known[model] = _Known(key, function)
        failed = None
        try:
            function(*arrays)
        except tf.errors.InvalidArgumentError as error:
            failed = error
        if failed is not None:
            rows_of(model, batch)  # raises in its own words, if it is the data that are bad
            raise ValueError(message_of(failed)) if "assertion failed" in str(failed) else failed


def of_optimizer(optimizer: Any) -> Settings:
    """What a step of a Keras optimizer depends on: its variables, and what its config says."""
    rate: Any = getattr(optimizer, f"_{_LEARNING_RATE}", None)
    is_schedule = hasattr(rate, "get_config")
    is_seen = _is_of_keras(rate) if is_schedule else hasattr(rate, "assign") or not callable(rate)
    are_known = _is_of_keras(optimizer) and is_seen
    try:
        own = {k: v for k, v in optimizer.get_config().items() if k != _LEARNING_RATE}
        constants = (repr(sorted(own.items())), repr(rate.get_config()) if is_schedule else "")
    except (AttributeError, NotImplementedError, TypeError, ValueError):
        constants, are_known = ("", ""), False
    return Settings(constants, [optimizer, rate, *optimizer.variables], are_known)


def _is_of_keras(thing: Any) -> bool:
    return type(thing).__module__.partition(".")[0] in _KERAS


def _arrays(batch: Any) -> list[tf.Tensor] | None:
    """The parts of a batch as tensors; None if they are not two arrays of numbers, few enough."""
    if batch is None:
        return []
    if not isinstance(batch, tuple | list) or len(batch) != 2:
        return None
    for part in batch:
        is_plain = tf.is_tensor(part) and not isinstance(part, tf.Variable)
        if not is_plain and not (type(part) is np.ndarray and part.dtype.kind in "biuf"):
            return None
        if len(np.shape(part)) != 2 or len(part) > CHUNK:  # more are summed by chunks
            return None
    return [tf.convert_to_tensor(part) for part in batch]


def _key(model: Any, rows: Sequence[tf.Tensor], settings: Settings, is_wanted: bool) -> _Key | None:
    """What a compiled step of this model and batch depends on; None if it cannot be told."""
    structure = structure_of(model)
    if not is_wanted and (structure is None or not settings.are_known):
        return None
    if structure is not None:
        of_model, objects = structure.constants, structure.values
    else:  # the user answers for what cannot be seen
        of_model, objects = tuple(sorted(facts(model).items())), list(model.variables)
    number = getattr(model, "num_data", None)
    of_number = number if number is None or isinstance(number, _NUMBERS) else id(number)
    of_rows = tuple((part.dtype, tuple(part.shape[1:])) for part in rows)
    constants = (config(), of_model, of_number, of_rows, settings.constants)
    return _Key(constants, [*objects, *settings.objects])


def _compiled(step: Step, rows_of: RowsOf, model: Any, rows: Sequence[tf.Tensor]) -> Any:
    alive = weakref.ref(model)

    def taken(*batch: tf.Tensor) -> None:
        step(alive(), rows_of(alive(), batch or None))

    signature = [tf.TensorSpec([None, *part.shape[1:]], part.dtype) for part in rows]
    return compiled(taken, input_signature=signature).get_concrete_function()
