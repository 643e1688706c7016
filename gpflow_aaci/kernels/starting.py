"""A kernel of all columns of X, with values from which a fit can begin."""

from collections.abc import Callable

import gpflow
import numpy as np
from gpflow.base import AnyNDArray, TensorType
from gpflow.kernels import Kernel

from ..levels import Levels, levels_in
from ..validation import as_default_float, check_finite, check_positive, check_rank, require
from .categorical import Categorical


def start(
    X: TensorType,
    kernel: Callable[..., Kernel] = gpflow.kernels.SquaredExponential,
    *,
    variance: float = 1.0,
) -> Kernel:
    """
    A kernel of all columns of X, with a lengthscale of √D standard deviations for each.

    Two random rows of D independent columns are then √2 lengthscales apart, whatever D and the
    units of X, so that f begins neither constant nor different at every row. (GPflow's kernels
    begin with lengthscales of 1.) A fit learns all of them::

        kernel = kernels.start(X, gpflow.kernels.Matern52)
        model = AugmentedSVGP(kernel, StudentT(), kmeans_plusplus(X, 100), num_data=len(X))

    Each column of a frame that holds text or pandas categories becomes a factor
    :class:`~gpflow_aaci.kernels.Categorical`, with its levels in X; D counts the other columns.

    :param X: [N, D], an array or a frame: the inputs that the model is to be fitted to.
    :param kernel: makes a kernel of ``variance``, ``lengthscales`` [D] and ``active_dims``, as
        stationary kernels of GPflow do, such as ``gpflow.kernels.Matern52``.
    :param variance: of f. If Y is f plus noise, the variance of Y is about right.
    :raises ValueError: if X is not a finite matrix, for a variance that is not positive, and for a
        kernel object in place of a class.
    """
    if isinstance(kernel, Kernel):
        found = type(kernel).__name__
        raise ValueError(f"kernel must be a class, such as {found}. Found: a {found} object.")
    check_positive("variance", variance)
    levels = levels_in(X)
    X = as_default_float(X, "X", levels)
    check_rank("X", X.shape.rank)
    require([check_finite("X", X)])
    return of_columns(X.numpy(), levels, kernel, variance)


def of_columns(
    X: AnyNDArray,
    levels: Levels,
    kernel: Callable[..., Kernel],
    variance: float,
    weight: AnyNDArray | None = None,
) -> Kernel:
    """
    As :func:`start`, for X [N, D] that holds codes in the columns of ``levels``.

    :param weight: [N], how many times each row counts. Default: once.
    """
    columns = [column for column in range(X.shape[1]) if column not in levels]
    smooth: Kernel = gpflow.kernels.Constant(variance)
    if columns:
        numbers = X[:, columns]
        from_mean = numbers - np.average(numbers, 0, weight)
        sd = np.sqrt(np.average(np.square(from_mean), 0, weight))
        sd[np.ptp(numbers, 0) == 0.0] = 1.0
        lengthscales = np.sqrt(len(columns)) * sd
        active_dims = columns if levels else None
        smooth = kernel(variance=variance, lengthscales=lengthscales, active_dims=active_dims)
    factors = [Categorical(column, known) for column, known in levels.items()]
    return gpflow.kernels.Product([smooth, *factors]) if factors else smooth
