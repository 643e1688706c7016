"""The joint kernel of f and its derivatives: the last column of X says what a row is of."""

from collections.abc import Callable
from math import factorial
from typing import TypeAlias

import numpy as np
import tensorflow as tf
from gpflow import kernels
from gpflow.base import TensorType
from gpflow.kernels import Kernel

from ..validation import Check, require
from .linear_in_f import LinearInF

Lines: TypeAlias = tuple[tf.Tensor, tf.Tensor]
"""Points x and directions a of lines x + s a, each [..., N, D]."""

Series: TypeAlias = dict[tuple[int, int], tf.Tensor]
"""The coefficients [..., N, N2] of s^p t^q in k(x + s a, z + t b); what is missing is 0."""


class WithDerivatives(LinearInF):
    r"""
    The joint kernel of f, its slopes and, with ``order=2``, its curvatures.

    X is [N, D + 1]. Its last column says what a row is of: 0 is f(x), d is ∂f/∂x_d, and D + d is
    ∂²f/∂x_d², for d from 1 to D; the functions of :mod:`~gpflow_aaci.shapes` append it. The
    covariance of two rows is k(x, z), differentiated in x and z as the rows say (Rasmussen and
    Williams 2006, Sec. 9.4). So slopes may be observed, predicted and constrained as f is::

        X = np.vstack([shapes.of_f(x), shapes.of_slope(z, column=0)])
        Y = np.vstack([f_at_x, slope_at_z])
        kernel = WithDerivatives(Matern52(), input_dim=1)
        model = AugmentedVGP((X, Y), kernel, StudentT())
        slope, variance = model.predict_f(shapes.of_slope(Xnew, column=0))

    Inducing points Z [M, D] are inputs of f itself, and so may Xnew be for ``predict_f``. A mean
    function is evaluated at all rows of X, and must be a slope where a row is one: for a constant
    mean, write ``WithDerivatives(Constant() + kernel, input_dim)`` instead.
    """

    def __init__(
        self, kernel: Kernel, input_dim: int, order: int = 1, name: str | None = None
    ) -> None:
        """
        :param kernel: the kernel of f: ``SquaredExponential``, ``RationalQuadratic``, ``Matern52``,
            ``Matern32`` (no curvatures), ``Linear``, ``Constant``, or sums and products of them.
        :param input_dim: D, the number of columns of x.
        :param order: the highest derivative: 1 for slopes, 2 for curvatures as well.
        :raises ValueError: for another ``order`` or kernel, and if ``input_dim`` is not a positive
            integer.
        """
        if order not in (1, 2):
            raise ValueError(f"WithDerivatives: order must be 1 or 2. Found: {order!r}.")
        _check_smooth(kernel, order)
        super().__init__(kernel, input_dim, name)
        self.order = int(order)

    @property
    def num_columns(self) -> int:
        return self.input_dim + 1

    def K(self, X: TensorType, X2: TensorType | None = None) -> tf.Tensor:
        X = tf.convert_to_tensor(X)
        if X2 is None:
            rows = self._rows(X)
            return self._covariance(*rows, *rows)
        X2 = tf.convert_to_tensor(X2)
        flat, flat_2 = (tf.reshape(each, [-1, each.shape[-1]]) for each in (X, X2))
        K = self._covariance(*self._rows(flat), *self._rows(flat_2))
        return tf.reshape(K, tf.concat([tf.shape(X)[:-1], tf.shape(X2)[:-1]], 0))

    def K_diag(self, X: TensorType) -> tf.Tensor:
        return self.K(tf.convert_to_tensor(X)[..., None, :])[..., 0, 0]

    def _rows(self, X: tf.Tensor) -> tuple[Lines, tf.Tensor]:
        """x, the direction in which f is differentiated there, and how many times, [..., N]."""
        D = self.input_dim
        if X.shape[-1] not in (D, D + 1):
            raise ValueError(
                f"X must have {D + 1} columns, x and what the row is of, or {D}, x alone, for the "
                f"kernel WithDerivatives. Found: {X.shape[-1]}."
            )
        x = X[..., :D]
        code = X[..., D] if X.shape[-1] > D else tf.zeros_like(x[..., 0])
        is_code = tf.equal(code, tf.round(code)) & (code >= 0.0) & (code <= self.order * D)
        curvature = f", {D} + d for its curvature" * (self.order - 1)
        message = (
            "X must end in a column that says what the rows are of: 0 for f, d for its slope in "
            f"column d{curvature}, where d is from 1 to {D}."
        )
        check = Check(tf.reduce_all(is_code), message, lambda: tf.boolean_mask(code, ~is_code)[:10])
        with tf.control_dependencies([require([check])]):
            number = tf.cast(code, tf.int32)
        column = tf.where(number > 0, (number - 1) % D, -1)  # tf.one_hot makes zeros of −1
        return (x, tf.one_hot(column, D, dtype=X.dtype)), (number + D - 1) // D

    def _covariance(
        self, lines: Lines, number: tf.Tensor, others: Lines, other_number: tf.Tensor
    ) -> tf.Tensor:
        """From Taylor's series: a derivative is a coefficient times p! q!."""
        total: tf.Tensor = 0.0
        for (p, q), coefficient in _series(self.kernel, lines, others, self.order).items():
            of_row = tf.where(tf.equal(number, p), factorial(p), 0)[..., :, None]
            of_other = tf.where(tf.equal(other_number, q), factorial(q), 0)[..., None, :]
            total += tf.cast(of_row * of_other, coefficient.dtype) * coefficient
        return total


def _series(kernel: Kernel, lines: Lines, others: Lines, order: int) -> Series:
    """Up to p = q = order; a coefficient may broadcast to [..., N, N2]."""
    if isinstance(kernel, kernels.Combination):
        total, *parts = (_series(part, lines, others, order) for part in kernel.kernels)
        for part in parts:
            is_sum = isinstance(kernel, kernels.Sum)
            total = _sum(total, part) if is_sum else _product(total, part, order)
        return total
    lines, others = kernel.slice(*lines), kernel.slice(*others)
    if isinstance(kernel, kernels.Constant):
        return {(0, 0): tf.convert_to_tensor(kernel.variance)}
    if isinstance(kernel, kernels.Linear):
        return {
            (p, q): tf.matmul(lines[p] * kernel.variance, others[q], transpose_b=True)
            for p in (0, 1)
            for q in (0, 1)
        }
    return _of_distance(kernel, lines, others, order)


def _sum(one: Series, other: Series) -> Series:
    return {at: one.get(at, 0.0) + other.get(at, 0.0) for at in one | other}


def _product(one: Series, other: Series, order: int) -> Series:
    total: Series = {}
    for (p, q), a in one.items():
        for (i, j), b in other.items():
            if max(p + i, q + j) <= order:
                total = _sum(total, {(p + i, q + j): a * b})
    return total


# ---- stationary kernels g(r²). GPflow's Matérn kernels have the wrong slopes in r² at x = z ----


def _of_distance(kernel: Kernel, lines: Lines, others: Lines, order: int) -> Series:
    """Taylor's series of g in the change of r² along the lines, which is quadratic in s and t."""
    (x, a), (z, b) = ([kernel.scale(each) for each in both] for both in (lines, others))

    def of_rows(one: tf.Tensor, other: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(one * other, -1, keepdims=True)

    def of_pairs(one: tf.Tensor, other: tf.Tensor) -> tf.Tensor:
        return tf.matmul(one, other, transpose_b=True)

    transposed = tf.linalg.matrix_transpose
    along_a = of_rows(x, a) - of_pairs(a, z)  # a·(x − z)
    along_b = of_pairs(x, b) - transposed(of_rows(z, b))  # b·(x − z)
    aa, bb = of_rows(a, a), transposed(of_rows(b, b))
    r2 = of_rows(x, x) - 2.0 * of_pairs(x, z) + transposed(of_rows(z, z))
    # By rounding r² may be less than its components along a and b. A Matérn kernel would multiply
    # these by a derivative of g that is too large.
    for along, squared_length in ((along_a, aa), (along_b, bb)):
        r2 = tf.maximum(r2, tf.math.divide_no_nan(tf.square(along), squared_length))
    change = {
        (1, 0): 2.0 * along_a,
        (0, 1): -2.0 * along_b,
        (1, 1): -2.0 * of_pairs(a, b),
        (2, 0): aa,
        (0, 2): bb,
    }
    total: Series = {}
    for n, slope in reversed([*enumerate(_RADIAL[type(kernel)](kernel, r2, 2 * order))]):
        total = _sum(_product(total, change, order), {(0, 0): slope / factorial(n)})  # Horner
    return total


def _squared_exponential(kernel: Kernel, r2: tf.Tensor, most: int) -> list[tf.Tensor]:
    """g and its first ``most`` derivatives in r²; so are the results of the next two."""
    return [(-0.5) ** n * kernel.K_r2(r2) for n in range(most + 1)]


def _rational_quadratic(kernel: Kernel, r2: tf.Tensor, most: int) -> list[tf.Tensor]:
    slopes, alpha = [kernel.K_r2(r2)], kernel.alpha
    for n in range(most):
        slopes.append(-0.5 * slopes[-1] * (1.0 + n / alpha) / (1.0 + 0.5 * r2 / alpha))
    return slopes


def _matern(kernel: Kernel, r2: tf.Tensor, most: int) -> list[tf.Tensor]:
    """
    g ∝ z^ν K_ν(z), z² = 2ν r², whose derivative in r² is −ν z^{ν−1} K_{ν−1}(z) (DLMF 10.29.4).

    At r = 0 the last ones are infinite, in products with r that vanish.
    """
    nu, first, scale = (2.5, 0, 3.0) if isinstance(kernel, kernels.Matern52) else (1.5, 1, 1.0)
    z = tf.sqrt(2.0 * nu * tf.maximum(r2, np.finfo(r2.dtype.as_numpy_dtype).eps ** 2))
    # √(2/π) e^z z^κ K_κ(z) for κ = 5/2, 3/2, 1/2, −1/2, −3/2
    bessel = [3.0 + 3.0 * z + z**2, 1.0 + z, tf.ones_like(z), 1.0 / z, (1.0 + z) / z**3]
    decay = kernel.variance / scale * tf.exp(-z)
    return [(-nu) ** n * decay * bessel[first + n] for n in range(most + 1)]


_RADIAL: dict[type[Kernel], Callable[[Kernel, tf.Tensor, int], list[tf.Tensor]]] = {
    kernels.SquaredExponential: _squared_exponential,
    kernels.RationalQuadratic: _rational_quadratic,
    kernels.Matern52: _matern,
    kernels.Matern32: _matern,
}


def _check_smooth(kernel: Kernel, order: int) -> None:
    """
    :raises ValueError: unless the kernel is known here, and f has derivatives of this order.
    """
    if isinstance(kernel, kernels.Sum | kernels.Product):
        for part in kernel.kernels:
            _check_smooth(part, order)
        return
    known = [*_RADIAL, kernels.Linear, kernels.Constant]
    if order == 2:
        known.remove(kernels.Matern32)
    if type(kernel) not in known:
        raise ValueError(
            f"WithDerivatives: kernel must be {', '.join(each.__name__ for each in known)}, or a "
            f"sum or product of these, for order {order}: under others f has no such derivative, "
            f"or its covariance is not available. Found: {type(kernel).__name__}."
        )
