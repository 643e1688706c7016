"""A compiled function of some rows that is summed over all of them many times."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray


class Traceable(Protocol):
    """A compiled function, which is traced once."""

    def trace(self) -> Any:
        """What the function returns, as specifications of tensors."""

    def __call__(self, *args: Any) -> Any: ...


class Summand(NamedTuple):
    """
    A compiled ``function(X, Y, *args)`` of some rows.

    Data are summed by it chunk by chunk (:meth:`~gpflow_aaci.data.Data.sum`). What it returns
    depends on the rows, on the arguments and on the variables that it reads, so that a log can tell
    one pass from another.
    """

    function: Traceable  # gives any structure of tensors that are sums over the rows
    name: str  # tells this function from others that read the same variables
    reads: Sequence[tf.Variable] = ()

    def packed(self, flat: Sequence[tf.Tensor]) -> Any:
        """Tensors in the structure that the function returns."""
        return tf.nest.pack_sequence_as(self.function.trace(), flat)

    def identity(self, args: Sequence[Any]) -> list[AnyNDArray]:
        """All that a sum depends on besides the rows."""
        values = [value.numpy() for value in self.reads]
        return [np.asarray(part) for part in (self.name, *values, *tf.nest.flatten(args))]
