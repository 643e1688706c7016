"""
Compiled functions whose graphs are freed with them.

The bijectors of TensorFlow Probability cache their arguments and results, and TensorFlow registers
every custom gradient by a name. Both hold tensors of the graph that is being traced. Every
graph that reads a GPflow parameter would thus remain in memory until the process ends, about 20 MB
for each fit.
"""

import contextlib
import functools
import weakref
from collections.abc import Callable, Iterator, Sequence
from types import FunctionType
from typing import Any

import gpflow
import tensorflow as tf
import tensorflow_probability as tfp

_COLLECTION = "gradients that gpflow_aaci keeps"  # the name of a collection of each graph


def compiled(function: Callable[..., Any], **options: Any) -> Any:
    """
    Return ``tf.function(function, autograph=False)``, whose graphs are freed together with it.

    :param options: other options of ``tf.function``.
    """

    @functools.wraps(function)
    def traced(*args: Any, **kwargs: Any) -> Any:
        if not tf.inside_function():  # after ``tf.config.run_functions_eagerly(True)``
            return function(*args, **kwargs)
        registered = set(_registered_gradients())
        try:
            return function(*args, **kwargs)
        finally:
            _clear_bijector_caches_of(tf.compat.v1.get_default_graph())
            for name in set(_registered_gradients()) - registered:
                _free_with_its_graphs(name)

    return tf.function(traced, autograph=False, **options)


@contextlib.contextmanager
def read_as(values: Sequence[tuple[gpflow.Parameter, tf.Tensor]]) -> Iterator[None]:
    """
    Within, a graph that is traced reads each parameter as the tensor beside it.

    A parameter is transformed wherever it is read. In a graph that reads it thirty times the
    transforms, and their gradients, are a third of all nodes.
    """

    def reader(parameter: gpflow.Parameter, value: tf.Tensor) -> Callable[..., tf.Tensor]:
        transformed = parameter._value

        def read(*args: Any, **kwargs: Any) -> tf.Tensor:
            # Other threads, and other graphs, must not see this graph's tensor.
            is_here = _is_part(tf.compat.v1.get_default_graph(), value.graph)
            return value if is_here else transformed(*args, **kwargs)

        return read

    readers = [(parameter, reader(parameter, value)) for parameter, value in values]
    try:
        for parameter, read in readers:
            object.__setattr__(parameter, "_value", read)  # which hides its class's method
        yield
    finally:
        for parameter, _ in readers:
            parameter.__dict__.pop("_value", None)


@contextlib.contextmanager
def reading_once(model: tf.Module) -> Iterator[None]:
    """Within, or in a function so decorated, a graph transforms each parameter of a model once."""
    parts = [] if tf.executing_eagerly() else model.submodules
    parameters = [part for part in parts if isinstance(part, gpflow.Parameter)]
    with read_as([(each, tf.convert_to_tensor(each)) for each in parameters]):
        yield


def may_be_recorded() -> bool:
    """Whether a gradient tape, or forward-mode differentiation, is open in this thread."""
    try:
        from tensorflow.python.eager import record
    except ImportError:  # another version of TensorFlow: who knows
        return True
    return bool(record.could_possibly_record())


def _clear_bijector_caches_of(graph: tf.Graph) -> None:
    """Remove the tensors of ``graph`` from the cache that all bijectors share."""
    cache = getattr(getattr(tfp.bijectors.Bijector, "_cache", None), "storage", None)
    if not isinstance(cache, dict):  # another version of TensorFlow Probability
        return
    for key in list(cache):  # a weak reference to an argument or a result
        tensors = tf.nest.flatten(key()) if key.alive else []
        if any(_is_within(tensor, graph) for tensor in tensors):
            key.cancel()  # otherwise it would delete itself again when the tensor dies
            cache.pop(key, None)


def _is_within(tensor: Any, graph: tf.Graph) -> bool:
    """Whether a tensor belongs to ``graph``, or to a loop or a branch within it."""
    return tf.is_symbolic_tensor(tensor) and _is_part(tensor.graph, graph)


def _is_part(inner: tf.Graph | None, graph: tf.Graph) -> bool:
    """Whether ``inner`` is ``graph``, or a loop or a branch within it."""
    while inner is not None and inner is not graph:
        inner = getattr(inner, "outer_graph", None)
    return inner is graph


def _registered_gradients() -> dict[str, Any]:
    """TensorFlow's registry of gradients by name; empty in versions that store it elsewhere."""
    try:
        from tensorflow.python.framework.ops import gradient_registry
    except ImportError:
        return {}
    registry = getattr(gradient_registry, "_registry", None)
    return registry if isinstance(registry, dict) else {}


def _free_with_its_graphs(name: str) -> None:
    """
    Move a gradient from TensorFlow's registry to the graphs whose tensors it holds.

    The gradient is then freed with these graphs. TensorFlow needs it only to differentiate through
    one of them.
    """
    registry = _registered_gradients()
    entry = registry.get(name)
    gradient = entry.get("type") if isinstance(entry, dict) else None
    graphs = _graphs_of(gradient)
    if entry is None or gradient is None or not graphs:
        return
    for graph in graphs:
        graph.add_to_collection(_COLLECTION, gradient)
    held: Callable[[], Any] = weakref.ref(gradient, lambda _: registry.pop(name, None))
    entry["type"] = lambda op, *upstream: held()(op, *upstream)


def _graphs_of(gradient: Any) -> list[tf.Graph]:
    """The graphs of all tensors that a function holds, itself or through functions in it."""
    graphs: dict[int, tf.Graph] = {}
    seen: set[int] = set()
    pending = [gradient]
    while pending:
        held = pending.pop()
        if id(held) in seen:  # such as a function that refers to itself
            continue
        seen.add(id(held))
        if tf.is_symbolic_tensor(held):
            graphs[id(held.graph)] = held.graph
        elif isinstance(held, FunctionType):
            pending.extend(_closure(held))
        elif isinstance(held, list | tuple):
            pending.extend(held)
        elif isinstance(held, dict):
            pending.extend(held.values())
    return list(graphs.values())


def _closure(function: FunctionType) -> Iterator[Any]:
    """Yield the values that a function refers to outside its body."""
    for cell in function.__closure__ or ():
        with contextlib.suppress(ValueError):  # an empty cell
            yield cell.cell_contents
