r"""
Variances of a sum of products of functions of one column, F(x) = Σ_r c_r ∏_d g_rd(x_d).

If the columns of x are independent, the average of a product over d is the product of averages.
With S_d = E g_rd g_sd and O_d = E g_rd E g_sd, both [R, R], and Hadamard products ∏::

    Var F = cᵀ (∏_d S_d − ∏_d O_d) c
    Var E[F|x_d] = cᵀ ((S_d − O_d) ∏_{e≠d} O_e) c
    E Var[F| all other columns] = cᵀ ((S_d − O_d) ∏_{e≠d} S_e) c

The posterior mean of f is such a sum, Σ_m α_m k(x, z_m), where k is a sum of products of kernels of
one column each. Then R is M times the number of products.
"""

import itertools
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.inducing_variables import InducingPoints
from gpflow.kernels import Kernel, Linear, SquaredExponential, Static

from .. import effects
from ..algebra.gaussian import columns
from ..kernels import OrthogonalAdditive, sum_of_products
from ..models import AugmentedModel, AugmentedVGP, as_augmented
from ..validation import check_index

_MOST = 100_000_000  # numbers in all S_d: a second or two, and less than a gigabyte
_VALUES_AT_ONCE = 1_000_000


class Variances(NamedTuple):
    """Of F."""

    of_all: float  # Var F
    of_each_alone: AnyNDArray  # Var E[F|x_d], [D]
    given_others: AnyNDArray  # E Var[F| all other columns], [D]


class _Term(NamedTuple):
    """Σ_m weights_m ∏_factors k(x, z_m)."""

    factors: list[Kernel]
    Z: tf.Tensor  # [M, D]
    weights: AnyNDArray  # [M]


class _Column(NamedTuple):
    """Averages over one column; g_rd is the same function for all r with the same ``index``."""

    mean: AnyNDArray  # [K]
    second: AnyNDArray  # [K, K], S_d
    index: AnyNDArray  # [R]


def separable_variances(
    model: gpflow.models.GPModel, X: AnyNDArray, output: int
) -> Variances | None:
    """
    Of the posterior mean of f, where each column of x has its values in X [N, D] independently.

    None for a model of another kind, a mean of f that is no such sum or has too many terms, and
    where rounding would show: in float32, and where the terms cancel nearly all of each other.

    :raises ValueError: for an ``output`` that the model does not have.
    """
    try:
        gp = as_augmented(model)
    except ValueError:
        return None
    check_index("output", output, gp.num_outputs)
    D = X.shape[1]
    terms = _terms(gp, D, output) if X.dtype == np.float64 else []
    owners = [_owner(factor, D) for term in terms for factor in term.factors]
    R = sum(len(term.weights) for term in terms)
    if R == 0 or None in owners or D * R**2 > _MOST:
        return None
    averages = [_averages(terms, d, x) for d, x in enumerate(X.T)]
    c = np.concatenate([term.weights for term in terms])
    means = [mean[index] for mean, _, index in averages]
    alone = [*_without_each(means, c)]  # [D] of [R]
    first, total, square = np.zeros(D), np.zeros(D), 0.0
    for rows in np.array_split(np.arange(R), -(-D * R**2 // _VALUES_AT_ONCE)):
        seconds = [second[index[rows]][:, index] for _, second, index in averages]
        for d, others in enumerate(_without_each(seconds, c[rows, None] * c)):
            covariance = seconds[d] - means[d][rows, None] * means[d]
            first[d] += alone[d][rows] @ covariance @ alone[d]
            total[d] += np.sum(others * covariance)
        square += np.sum(others * seconds[-1])
    variance = square - np.square(np.sum(alone[-1] * means[-1]))
    sizes = [np.sqrt(np.diag(second))[index] for _, second, index in averages]
    size = np.sum(np.abs(c) * np.prod(sizes, 0))
    return Variances(variance, first, total) if variance > 1e-10 * size**2 else None


def _terms(gp: AugmentedModel, D: int, output: int) -> list[_Term]:
    """The posterior mean of a column of f, but for a constant; empty where it is no such sum."""
    mean_function = gp.mean_function
    if isinstance(gp, AugmentedVGP):
        points = [tf.convert_to_tensor(gp.data[0])]
    else:
        variable = gp.inducing_variable
        variables = getattr(variable, "inducing_variables", (variable,))
        if not all(type(each) is InducingPoints for each in variables):
            return []
        points = [tf.convert_to_tensor(each.Z) for each in variables]
    chol = tf.linalg.cholesky(gp.prior_covariance())
    q_mu = gp.whitened_q(chol).mu
    L = q_mu.shape[1]
    chol = tf.broadcast_to(chol, [L, *chol.shape[1:]])
    alpha = columns(tf.linalg.triangular_solve, chol, q_mu, adjoint=True).numpy()
    W = np.eye(L) if gp.mixing is None else gp.mixing.numpy()
    kernels = getattr(gp.kernel, "latent_kernels", (gp.kernel,))
    sums = [
        (kernels[latent % len(kernels)], points[latent % len(points)], share * alpha[:, latent])
        for latent, share in enumerate(W[output])
        if share != 0.0
    ]
    if isinstance(mean_function, gpflow.functions.Linear):  # Σ_d A_d x_d
        A = np.broadcast_to(mean_function.A, [D, len(W)])[:, output]
        sums.append((Linear(), tf.eye(D, dtype=q_mu.dtype), A))
    elif not isinstance(mean_function, gpflow.functions.Constant):
        return []
    return [
        _Term(factors, Z, weights)
        for kernel, Z, weights in sums
        for factors in sum_of_products(kernel, partial(_of_columns, D=D))
    ]


def _of_columns(kernel: Kernel, D: int) -> list[list[Kernel]]:
    """A kernel as a sum of products of kernels of one column, or as it is."""
    if isinstance(kernel, OrthogonalAdditive):
        return [sum_of_products(kernel.part(S))[0] for S in kernel.subsets]
    dims = np.arange(D)[kernel.active_dims]
    if len(dims) == 1 or type(kernel) not in (SquaredExponential, Linear, effects.Linear):
        return [[kernel]]
    variances = np.broadcast_to(kernel.variance, dims.shape)
    if type(kernel) is not SquaredExponential:
        return [[Linear(v, active_dims=[d])] for v, d in zip(variances, dims, strict=True)]
    variances = variances ** (1.0 / len(dims))
    lengthscales = np.broadcast_to(kernel.lengthscales, dims.shape)
    each = zip(variances, lengthscales, dims, strict=True)
    return [[SquaredExponential(v, length, active_dims=[d]) for v, length, d in each]]


def _owner(kernel: Kernel, D: int) -> int | None:
    """The one column that a kernel depends on, if it is one; the first, if it is a constant."""
    dims = [0] if isinstance(kernel, Static) else np.arange(D)[kernel.active_dims]
    return int(dims[0]) if len(dims) == 1 else None


def _averages(terms: Iterable[_Term], d: int, x: AnyNDArray) -> _Column:
    """Over the values x [N] of column d; each function is averaged once."""
    found: dict[Any, tuple[int, list[Kernel], tf.Tensor]] = {}
    index, size, D = [], 0, 0
    for factors, Z, _ in terms:
        M, D = Z.shape
        own = [factor for factor in factors if _owner(factor, D) == d]
        first, _, _ = found.setdefault((id(Z), *map(id, own)), (size, own, Z))
        size = max(size, first + M)
        index.append(first + np.arange(M))
    values, counts = np.unique(x, return_counts=True)
    mean, second = np.zeros(size), np.zeros([size, size])
    for part in np.array_split(np.arange(len(values)), -(-len(values) * size // _VALUES_AT_ONCE)):
        at = np.zeros([len(part), D])
        at[:, d] = values[part]
        weights = counts[part] / len(x)
        ones = [np.ones([len(part), Z.shape[0]]) for _, _, Z in found.values()]
        g = np.hstack(
            [
                np.prod([one, *(factor(at, Z).numpy() for factor in own)], 0)
                for one, (_, own, Z) in zip(ones, found.values(), strict=True)
            ]
        )
        mean += weights @ g
        second += g.T @ (weights[:, None] * g)
    return _Column(mean, second, np.concatenate(index))


def _without_each(factors: list[AnyNDArray], start: AnyNDArray) -> Iterator[AnyNDArray]:
    """``start`` times the product of all factors but the d-th, for each d."""
    after = [*itertools.accumulate(factors[:0:-1], np.multiply, initial=1.0)]
    before = itertools.accumulate(factors[:-1], np.multiply, initial=start)
    return (left * right for left, right in zip(before, reversed(after), strict=True))
