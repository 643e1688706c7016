"""Steps in a plain Python loop compile themselves when they are taken again."""

import contextlib
import weakref
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.config import config

from ..graphs import compiled
from ..models.shared import Augmented
from ..structure import Structure, structure_of

Batch = tuple[Any, ...]  # (X, Y), or () for a model that keeps its data
Step = Callable[[Any, Batch], object]
"""(model, batch) → one step, in operations that work eagerly and inside ``tf.function``."""

_PLAIN = (bool, int, float, str, type(None))


class Settings(NamedTuple):
    """What a step depends on besides model and batch: it is compiled anew if this changes."""

    constants: tuple[Hashable, ...]
    objects: Sequence[Any]  # variables, or what holds some, compared by identity


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
    key: _Key
    function: Any = None  # None until the step is taken again


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

    def __deepcopy__(self, memo: Any) -> "CompiledSteps":
        return CompiledSteps()

    def __reduce__(self) -> Any:
        return CompiledSteps, ()

    def take(
        self,
        step: Step,
        model: Any,
        batch: Any,
        settings: Callable[[], Settings | None],
        compile: bool | None,
    ) -> None:
        """
        Take one step, compiled where that is possible and worth it.

        :param batch: (X, Y), or None for a model that keeps its data.
        :param settings: returns None where a setting may hold a state that cannot be seen.
        :param compile: False for never; True from the first step on, and for models and settings
            with parts that cannot be seen into, too; None as above.
        :raises ValueError: where a check fails, in the words of a step that is not compiled.
        """
        given = () if batch is None else tuple(batch)
        is_array = all(isinstance(part, np.ndarray | tf.Tensor) for part in given)
        if (
            compile is False
            or not (is_array and tf.executing_eagerly())
            or tf.config.functions_run_eagerly()
            or not isinstance(model, Augmented)
        ):
            step(model, given)
            return
        rows = [tf.convert_to_tensor(part) for part in given]
        key = _key(model, rows, settings(), bool(compile))
        if key is None:
            step(model, given)
            return
        known = self._known.get(model)
        is_new = known is None or not known.key.is_like(key)
        if is_new and not compile:
            step(model, given)
            after = _key(model, rows, settings(), False)  # slots have been made, if it is the first
            self._known[model] = _Known(after or key)
            return
        function = None if is_new or known is None else known.function
        if function is None:
            function = _compiled(step, model, rows)
            self._known[model] = _Known(key, function)
        with contextlib.suppress(tf.errors.InvalidArgumentError):
            function(*rows)
            return
        step(model, given)  # nothing has changed: this raises the error, in its own words


def of_optimizer(optimizer: Any) -> Settings:
    """What a step of a tf_keras optimizer depends on, its variables and plain attributes."""
    found = sorted(vars(optimizer).items())
    plain = [(name, value) for name, value in found if isinstance(value, _PLAIN)]
    parts = [(name, repr(v.get_config())) for name, v in found if hasattr(v, "get_config")]
    return Settings((*plain, *parts), [optimizer, *optimizer.variables])


def _key(
    model: Any, rows: Sequence[tf.Tensor], settings: Settings | None, is_wanted: bool
) -> _Key | None:
    """What a compiled step of this model and batch depends on; None if it cannot be told."""
    structure = structure_of(model)
    if is_wanted:  # the user answers for what cannot be seen
        settings = settings or Settings((), [])
        variables = model.variables
        kinds = tuple((v.dtype, tuple(v.shape), v.trainable) for v in variables)
        structure = structure or Structure(kinds, list(variables))
    if structure is None or settings is None:
        return None
    number = getattr(model, "num_data", None)
    of_number = number if isinstance(number, (*_PLAIN, np.number)) else id(number)
    of_rows = tuple((part.dtype, tuple(part.shape[1:])) for part in rows)
    constants = (config(), structure.constants, of_number, of_rows, settings.constants)
    return _Key(constants, [*structure.values, *settings.objects])


def _compiled(step: Step, model: Any, rows: Sequence[tf.Tensor]) -> Any:
    alive = weakref.ref(model)
    signature = [tf.TensorSpec([None, *part.shape[1:]], part.dtype) for part in rows]
    function = compiled(lambda *batch: step(alive(), batch), input_signature=signature)
    return function.get_concrete_function()
