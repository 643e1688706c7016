"""A function of some rows that is compiled once and summed over all of them many times."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray

from ..workers import over_devices


class Compiled:
    """A compiled function that is traced at its first call, and tells how long that took."""

    def __init__(
        self,
        function: Callable[..., Any],
        signature: Sequence[Any],
        add_seconds: Callable[[float], None] = lambda seconds: None,
    ) -> None:
        """
        :param signature: ``tf.TensorSpec`` of each argument.
        :param add_seconds: is told how long tracing took.
        """
        self._function = tf.function(function, input_signature=signature, autograph=False)
        self._add_seconds = add_seconds
        self._concrete: Any = None

    def trace(self) -> Any:
        """Compile now, unless that has been done; what the function returns, as specs."""
        if self._concrete is None:
            began = time.perf_counter()
            self._concrete = self._function.get_concrete_function()
            self._add_seconds(time.perf_counter() - began)
        return self._concrete.structured_outputs

    def __call__(self, *args: Any) -> Any:
        self.trace()
        return self._function(*args)


class Summand(Compiled):
    """
    A compiled ``function(X, Y, *args)`` of some rows.

    Data are summed by it chunk by chunk (:meth:`~gpflow_aaci.data.Data.sum`), and the devices of a
    worker share each chunk. What it returns depends on the rows, on the arguments and on the
    variables that it reads, so that a log can tell one pass from another.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        signature: Sequence[Any],
        name: str,
        strategy: tf.distribute.Strategy,
        reads: Sequence[tf.Variable],
        add_seconds: Callable[[float], None],
    ) -> None:
        """
        :param function: (X [N, D], Y [N, P], *args) → any structure of tensors that are sums over
            the rows.
        :param name: tells this function from others that read the same variables.
        :param strategy: its devices share the rows of a chunk.
        :param reads: the variables that the function reads.
        """

        def shared(X: tf.Tensor, Y: tf.Tensor, *args: Any) -> Any:
            return over_devices(strategy, lambda X, Y: function(X, Y, *args))(X, Y)

        super().__init__(shared, signature, add_seconds)
        self.name, self._reads = name, reads

    def packed(self, flat: Sequence[tf.Tensor]) -> Any:
        """Tensors in the structure that the function returns."""
        return tf.nest.pack_sequence_as(self.trace(), flat)

    def identity(self, args: Sequence[Any]) -> list[AnyNDArray]:
        """All that a sum depends on besides the rows."""
        values = [value.numpy() for value in self._reads]
        return [np.asarray(part) for part in (self.name, *values, *tf.nest.flatten(args))]
