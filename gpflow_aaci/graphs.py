"""
Compiled functions whose graphs are freed with them.

TensorFlow Probability's bijectors remember what they were given, and TensorFlow lists every custom
gradient by a name. Both hold tensors of the graph that they were met in, so that each graph in
which a GPflow parameter was read would stay in memory until the process ends: about 20 MB a fit.
"""

import contextlib
import functools
import weakref
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

import tensorflow as tf
import tensorflow_probability as tfp

_COLLECTION = "gradients that gpflow_aaci keeps"  # in graphs


def compiled(function: Callable[..., Any], **options: Any) -> Any:
    """
    ``tf.function(function, autograph=False)`` whose graphs are freed when it is dropped.

    :param options: other options of ``tf.function``.
    """

    @functools.wraps(function)
    def traced(*args: Any, **kwargs: Any) -> Any:
        if not tf.inside_function():  # where functions are told to run eagerly
            return function(*args, **kwargs)
        listed = set(_listed_gradients())
        try:
            return function(*args, **kwargs)
        finally:
            _forget_what_bijectors_met_in(tf.compat.v1.get_default_graph())
            for name in set(_listed_gradients()) - listed:
                _free_with_its_graphs(name)

    return tf.function(traced, autograph=False, **options)


def _forget_what_bijectors_met_in(graph: tf.Graph) -> None:
    """Nothing, where a later TensorFlow Probability remembers in another way."""
    remembered = getattr(getattr(tfp.bijectors.Bijector, "_cache", None), "storage", None)
    if not isinstance(remembered, dict):
        return
    for key in list(remembered):
        tensors = tf.nest.flatten(key()) if key.alive else []
        if any(_is_within(tensor, graph) for tensor in tensors):
            key.cancel()  # or it would delete itself once more
            remembered.pop(key, None)


def _is_within(tensor: Any, graph: tf.Graph) -> bool:
    """Whether a tensor is of ``graph``, or of a loop or a branch within it."""
    own = tensor.graph if tf.is_symbolic_tensor(tensor) else None
    while own is not None and own is not graph:
        own = getattr(own, "outer_graph", None)
    return own is graph


def _listed_gradients() -> dict[str, Any]:
    """TensorFlow's list of gradients by name; empty where a later version has another."""
    try:
        from tensorflow.python.framework.ops import gradient_registry
    except ImportError:
        return {}
    listed = getattr(gradient_registry, "_registry", None)
    return listed if isinstance(listed, dict) else {}


def _free_with_its_graphs(name: str) -> None:
    """
    Let a listed gradient be held by the graphs whose tensors it holds, and no longer by the list.

    TensorFlow asks for it only where it differentiates through one of these graphs.
    """
    listed = _listed_gradients()
    entry = listed.get(name)
    gradient = entry.get("type") if isinstance(entry, dict) else None
    graphs = _graphs_of(gradient)
    if entry is None or gradient is None or not graphs:
        return
    for graph in graphs:
        graph.add_to_collection(_COLLECTION, gradient)
    held: Callable[[], Any] = weakref.ref(gradient, lambda _: listed.pop(name, None))
    entry["type"] = lambda op, *upstream: held()(op, *upstream)


def _graphs_of(gradient: Any) -> list[tf.Graph]:
    """The graphs of all tensors that a function holds, and the functions within it."""
    graphs: dict[int, tf.Graph] = {}
    seen: set[int] = set()
    pending = [gradient]
    while pending:
        held = pending.pop()
        if id(held) in seen:  # a function may hold itself
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
    for cell in function.__closure__ or ():
        with contextlib.suppress(ValueError):  # an empty cell
            yield cell.cell_contents
