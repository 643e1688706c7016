"""An additive kernel whose parts, main effects and interactions of columns, are orthogonal."""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray, TensorType
from gpflow.config import default_float
from gpflow.kernels import Constant, Kernel, Product
from gpflow.utilities import deepcopy, set_trainable

from ..validation import as_default_float, check_count, check_finite, require, shown
from .basic import basic_kernels

_MOST_POINTS = 300  # a column of more distinct values is represented by so many quantiles


class OrthogonalAdditive(Kernel):
    r"""
    f = Σ_S f_S over sets S of at most R columns, where all f_S are orthogonal.

    Every f_S has mean 0 along each of its columns, for any values of its other columns. So, unlike
    the summands of a sum of two ``SquaredExponential``, the parts have no constant or main effect
    in common, and the data can tell them apart (Lu, Boukouvalas and Hensman, *Additive Gaussian
    processes revisited*, ICML 2022)::

        kernel = OrthogonalAdditive(SquaredExponential(), X, max_interaction=2)
        model = AugmentedSVGP(kernel, StudentT(), Z, num_data=len(X))
        fit(model, (X, Y))
        mean, variance = predictions.predict_component(model, Xnew, (0, 2))  # f_S, S = {0, 2}

    The mean is over the values of the column in the given X, as in the smooths of mgcv. The part of
    a set S of r columns has the kernel σ_r² Π_{d ∈ S} k̃_d, with
    k̃(x, x′) = k(x, x′) − m(x) m(x′)/c for the mean m(x) of k(x, s) over the values s, and the mean
    c of m(s): the law of a GP with kernel k, given that its mean is 0.
    ``orders[r].variance`` is σ_r², of the interactions of r columns;
    ``columns[d].kernel`` is the k of column d.
    """

    def __init__(
        self,
        kernel: Kernel | Sequence[Kernel],
        X: TensorType,
        max_interaction: int = 2,
        name: str | None = None,
    ) -> None:
        """
        :param kernel: a kernel of one column, such as ``SquaredExponential()``, or one for each
            column of X. Every column has a copy of its own. Its variance is not trainable, since
            ``orders`` scale the parts.
        :param X: [N, D], usually the training data: the rows over which parts have mean 0. A column
            of more than 300 distinct values is represented by 300 quantiles.
        :param max_interaction: R, the largest number of columns in a part; 1 for main effects only.
        :raises ValueError: for bad X or ``max_interaction``, another number of kernels than
            columns, kernels of other columns, and a column in which no function of its kernel
            varies with mean 0: the column is constant, the kernel is ``Constant``, or it is
            ``Linear`` and the mean of the column is not 0.
        """
        check_count("max_interaction", max_interaction, 1)
        X = as_default_float(X, "X")
        if X.shape.rank != 2 or 0 in X.shape:
            raise ValueError(
                f"X must be [N, D], of at least one row. Found: shape {list(X.shape)}."
            )
        require([check_finite("X", X)])
        D = X.shape[1]
        kernels = [kernel] * D if isinstance(kernel, Kernel) else list(kernel)
        if len(kernels) != D:
            raise ValueError(
                f"kernel must be one kernel, or one for each of the {D} columns of X. "
                f"Found: {len(kernels)}."
            )
        super().__init__(name=name)
        self.columns = [
            _ZeroMean(deepcopy(each), d, x)
            for d, (each, x) in enumerate(zip(kernels, X.numpy().T, strict=True))
        ]
        self.orders = [Constant() for _ in range(min(max_interaction, D) + 1)]

    @property
    def kernels(self) -> list[Kernel]:
        """All kernels that it combines, as ``Sum`` and ``Product`` name them."""
        return [*self.orders, *self.columns]

    @property
    def subsets(self) -> list[tuple[int, ...]]:
        """The sets S of all parts, in order of size; () is the constant."""
        columns = range(len(self.columns))
        return [S for r in range(len(self.orders)) for S in itertools.combinations(columns, r)]

    def part(self, columns: Any) -> Kernel:
        """
        The kernel of f_S.

        :param columns: S, a tuple in any order.
        :raises ValueError: for anything else than a tuple of at most R different columns.
        """
        D, R = len(self.columns), len(self.orders) - 1
        is_set = isinstance(columns, tuple) and len(set(columns)) == len(columns) <= R
        if not (is_set and set(columns) <= set(range(D))):
            raise ValueError(
                f"part must be a tuple of at most {R} different columns from 0 to {D - 1}, such as "
                f"(0,), or () for the constant. Found: {shown(columns)}."
            )
        return Product([self.orders[len(columns)], *(self.columns[d] for d in columns)])

    def K(self, X: TensorType, X2: TensorType | None = None) -> tf.Tensor:
        """Σ_r σ²_r e_r, where e_r sums Π_{d ∈ S} k̃_d over the sets S of r columns."""
        return self._sum([kernel(X, X2) for kernel in self.columns])

    def K_diag(self, X: TensorType) -> tf.Tensor:
        """[N], as in :meth:`K`."""
        return self._sum([kernel(X, full_cov=False) for kernel in self.columns])

    def _sum(self, values: list[tf.Tensor]) -> tf.Tensor:
        # e_r of d columns is e_r of d − 1, plus k̃_d times their e_{r−1}. The formula of Newton and
        # Girard in the paper takes as many products, but cancels.
        sums = [tf.ones_like(values[0]), *[tf.zeros_like(values[0])] * (len(self.orders) - 1)]
        for value in values:
            sums[1:] = [e + value * lower for lower, e in itertools.pairwise(sums)]
        return tf.add_n([order.variance * e for order, e in zip(self.orders, sums, strict=True)])


class _ZeroMean(Kernel):
    """The law of a GP of one column, given that its mean over some values of the column is 0."""

    def __init__(self, kernel: Kernel, column: int, x: AnyNDArray) -> None:
        super().__init__(active_dims=[column])
        parts = list(basic_kernels(kernel))
        for part in parts:
            dims = part.active_dims
            if not isinstance(dims, slice) and list(dims) != [column]:
                raise ValueError(
                    f"kernel must have no active_dims, or [{column}] for column {column} of X. "
                    f"Found: {list(dims)}."
                )
            part.active_dims = [column]  # for those who ask which columns its lengthscales are of
        if len(parts) == 1 and hasattr(parts[0], "variance"):
            set_trainable(parts[0].variance, False)
        self.kernel = kernel
        points, counts = np.unique(x, return_counts=True)
        if len(points) > _MOST_POINTS:
            points = np.quantile(x, (np.arange(_MOST_POINTS) + 0.5) / _MOST_POINTS)
            counts = np.ones(_MOST_POINTS)
        self.points, self.weights = points[:, None], counts / np.sum(counts)
        own, left = (np.dot(self.weights, k.K_diag(self.points)) for k in (kernel, self))
        if not left > 100.0 * np.finfo(default_float()).eps * own:
            raise ValueError(
                "X must have columns along which a function of the kernel varies with mean 0. "
                f"Found: column {column} with {len(points)} distinct values, and a "
                f"{type(kernel).__name__} kernel."
            )

    def _mean(self, X: TensorType) -> tf.Tensor:
        """m(x)/√c of every row of X [..., N, 1], [..., N]."""
        X = tf.convert_to_tensor(X)
        points, weights = (tf.constant(part, X.dtype) for part in (self.points, self.weights))
        of_points = tf.linalg.matvec(self.kernel.K(points), weights)
        c = tf.tensordot(of_points, weights, 1)
        # A kernel whose functions have mean 0 already has c = 0, up to rounding.
        own = tf.reduce_mean(self.kernel.K_diag(points))
        is_some = c > 100.0 * np.finfo(X.dtype.as_numpy_dtype).eps * own
        root = tf.sqrt(tf.where(is_some, c, tf.ones_like(c)))
        mean = tf.tensordot(self.kernel.K(X, points), weights, 1) / root
        return tf.where(is_some, mean, tf.zeros_like(mean))

    def K(self, X: TensorType, X2: TensorType | None = None) -> tf.Tensor:
        """k(x, x′) − m(x) m(x′)/c, [..., N, N] or, for other rows X2, [..., N, ..., N2]."""
        mean = self._mean(X)
        if X2 is None:
            return self.kernel.K(X) - mean[..., :, None] * mean[..., None, :]
        return self.kernel.K(X, X2) - tf.tensordot(mean, self._mean(X2), 0)

    def K_diag(self, X: TensorType) -> tf.Tensor:
        """k(x, x) − m(x)²/c, [..., N]."""
        return self.kernel.K_diag(X) - tf.square(self._mean(X))
