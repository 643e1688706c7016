"""
The coordinates in which hyperparameters are searched: the logarithm of each that is positive.

GPflow stores softplus⁻¹ of a positive parameter. In that variable the value 1,000 is far away from
1, and 10⁸ is out of reach; in logarithms all scales of data and parameters are alike. The model
keeps its transforms: this is a change of variables within a fit. The elements of a matrix, such as
Z, are in units of the spread of their column when the fit begins.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow import Parameter
from gpflow.base import AnyNDArray


class Coordinates:
    """One vector x for some of a model's variables, in their order."""

    def __init__(
        self,
        parameters: Sequence[Parameter],
        variables: Sequence[tf.Variable],
        held: Sequence[tuple[tf.Variable, Sequence[int]]] = (),
    ) -> None:
        """
        :param variables: some of the unconstrained variables of ``parameters``, or of others.
        :param held: some of the variables, and the numbers of columns that keep their values. The
            gradient there is 0, but a step that is cut short along the axes of a curvature may move
            them.
        """
        softplus = {id(p.unconstrained_variable) for p in parameters if _is_softplus(p.transform)}
        self.variables = list(variables)
        self._sizes = [int(np.prod(variable.shape)) for variable in variables]
        flags = [np.full(n, id(v) in softplus) for n, v in zip(self._sizes, variables, strict=True)]
        self.in_logarithms = np.concatenate([np.zeros(0, bool), *flags])
        self.size = len(self.in_logarithms)
        spread = np.concatenate([np.ones(0), *map(_spread, variables)])
        self._unit = np.where(self.in_logarithms, 1.0, spread)
        self._held = np.zeros(self.size, bool)
        self._first = self._values()
        starts = {id(v): start for v, start in zip(variables, self._starts, strict=False)}
        for variable, columns in held:
            numbers = np.arange(np.prod(variable.shape)).reshape(variable.shape)[:, columns]
            self._held[starts[id(variable)] + numbers] = True

    def pack(self) -> AnyNDArray:
        """The coordinates x of the variables' present values."""
        u = self._values()
        # log softplus(u), which is u where e^u is small
        small = u < -30.0
        log = np.where(small, u, np.log(np.logaddexp(0.0, np.where(small, 0.0, u))))
        return np.where(self.in_logarithms, log, u / self._unit)

    def unpack(self, x: AnyNDArray) -> None:
        """Set the variables to x."""
        excess, small = self._excess(x)
        inverse = excess + np.log(-np.expm1(-excess))  # softplus⁻¹
        u = np.where(self.in_logarithms, np.where(small, x, inverse), x * self._unit)
        u = np.where(self._held, self._first, u)
        at = 0
        for variable, size in zip(self.variables, self._sizes, strict=True):
            value = u[at : at + size].reshape(variable.shape)
            variable.assign(value.astype(variable.dtype.as_numpy_dtype))
            at += size

    def gradient(self, x: AnyNDArray, in_variables: AnyNDArray) -> AnyNDArray:
        """The gradient in x, given that in the variables: du/dx = y/(1 − e^−y) at y = e^x."""
        excess, small = self._excess(x)
        return in_variables * np.where(small, self._unit, excess / -np.expm1(-excess))

    def of_logarithms(self, values: Sequence[tuple[Parameter, Any]]) -> AnyNDArray | None:
        """
        A vector with the given values at the coordinates of each parameter, and 0 elsewhere.

        :param values: for each parameter a number, or one for each of its coordinates.

        :return: None where a parameter is not searched, or not as a logarithm.
        """
        x, starts = np.zeros(self.size), self._starts
        at = {id(v): slice(*starts[i : i + 2]) for i, v in enumerate(self.variables)}
        for parameter, value in values:
            where = at.get(id(parameter.unconstrained_variable))
            if where is None or not self.in_logarithms[where].all():
                return None
            x[where] = value
        return x

    def where(self, parameter: Parameter) -> AnyNDArray:
        """Which coordinates are logarithms of the parameter, [n]; none unless it is searched so."""
        found = self.of_logarithms([(parameter, 1.0)])
        return np.zeros(self.size, bool) if found is None else found > 0.0

    def value(self, parameter: Parameter, x: AnyNDArray) -> AnyNDArray:
        """
        The parameter's value at x, to rounding of the transform; its present one if x lacks it.

        To read a parameter takes TensorFlow Probability some milliseconds.
        """
        found = self.where(parameter)
        return np.exp(x[found]) if np.any(found) else parameter.numpy()

    @property
    def _starts(self) -> AnyNDArray:
        """The first coordinate of each variable, and the number of all."""
        return np.cumsum([0, *self._sizes])

    def _values(self) -> AnyNDArray:
        """The present values of the variables, [n]."""
        values = [np.ravel(variable.numpy()) for variable in self.variables]
        return np.concatenate([np.zeros(0), *values]).astype(np.float64)

    def _excess(self, x: AnyNDArray) -> tuple[AnyNDArray, AnyNDArray]:
        """e^x where x is a logarithm, 1 elsewhere and where it is too small to matter."""
        small = ~self.in_logarithms | (x < -30.0)
        with np.errstate(over="ignore"):  # a value that overflows is refused by what it is for
            return np.exp(np.where(small, 0.0, x)), small


def _spread(variable: tf.Variable) -> AnyNDArray:
    """The standard deviation of each column of a matrix, for its elements; 1 if it is 0."""
    value = variable.numpy()
    if value.ndim != 2:
        return np.ones(value.size)
    spread = value.std(0)
    return np.tile(np.where(spread > 0.0, spread, 1.0), len(value))


def _is_softplus(transform: tfp.bijectors.Bijector | None) -> bool:
    """Whether it is softplus, or softplus and a shift as in GPflow's ``positive``."""
    if isinstance(transform, tfp.bijectors.Chain) and len(transform.bijectors) == 2:
        shift, transform = transform.bijectors
        if not isinstance(shift, tfp.bijectors.Shift):
            return False
    if transform is None or not isinstance(transform, tfp.bijectors.Softplus):
        return False
    return transform.hinge_softness is None and transform.low is None
