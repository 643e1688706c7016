"""A compiled function of some rows that is summed over all of them many times."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray


class Traceable(Protocol):
    """A compiled function that is traced once."""

    def trace(self) -> Any:
        """Return the structure of the function's result, with a specification of each tensor."""

    def __call__(self, *args: Any) -> Any: ...


class Summand(NamedTuple):
    """
    A compiled ``function(X, Y, *args)`` of some rows.

    :meth:`~gpflow_aaci.data.Data.sum` calls it for each chunk of rows and adds up the results. The
    results depend only on the rows, the arguments and the variables in ``reads``, which identify a
    stored sum in a log.
    """

    function: Traceable  # returns any structure of tensors that are sums over the rows
    name: str  # tells this function from others that read the same variables
    reads: Sequence[tf.Variable] = ()  # the variables that the function reads

    def packed(self, flat: Sequence[tf.Tensor]) -> Any:
        """Pack a flat list of tensors into the structure that the function returns."""
        return tf.nest.pack_sequence_as(self.function.trace(), flat)

    def identity(self, args: Sequence[Any]) -> list[AnyNDArray]:
        """Return arrays with everything except the rows on which a sum depends."""
        values = [value.numpy() for value in self.reads]
        return [np.asarray(part) for part in (self.name, *values, *tf.nest.flatten(args))]
