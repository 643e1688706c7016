"""
E log P(z_0 is the largest|f) of z ~ N(f, I) and independent f_k ~ N(m_k, v_k). Shapes: [..., K].

It depends on differences of f only, so that f − Σ (f_k/v_k)/Σ (1/v_k) may take the place of f. This
has the covariance √V (I − s sᵀ) √V, s ∝ 1/√v of length 1, and is integrated over in K − 1
dimensions: I − s sᵀ = Q Qᵀ, where Q is the Householder reflection that maps the first axis to −s,
without its first column.
"""

import functools
from collections.abc import Callable

import numpy as np
import scipy.stats
import tensorflow as tf
from gpflow.base import AnyNDArray

from ...likelihoods.integrals.quadrature import safe_sqrt
from ...likelihoods.integrals.sums_of_sigmoids import compiled_once, in_chunks_of_rows
from .argmax_normal import (
    log_first_is_largest,
    log_largest_of_unit_scale,
    own_first,
    ratios_given_largest,
)

_NODES_OF_AXIS = {1: 20, 2: 12, 3: 9}  # of product rules, in up to three dimensions
_POINTS = 512  # in more dimensions, at least
_NUMBERS_OF_NODE = 150  # floats for one f and one node


@compiled_once
def expected_log_largest(Fmu: tf.Tensor, Fvar: tf.Tensor) -> tf.Tensor:
    """E log P(z_0 is the largest|f), [...]."""
    return _in_chunks(_expected, Fmu, Fvar)


@compiled_once
def log_shares_of_largest(Fmu: tf.Tensor, Fvar: tf.Tensor) -> tf.Tensor:
    """log P(z_k is the largest) of z ~ N(Fmu, 1 + Fvar), [..., K]."""
    K = Fmu.shape[-1]
    return in_chunks_of_rows(_log_shares, Fmu, Fvar, int(70.0 * K**1.5), rank=1)


@compiled_once
def coupling_of_log_largest(Fmu: tf.Tensor, Fvar: tf.Tensor) -> tf.Tensor:
    """∂²E log P/∂m_j∂m_k for j ≠ k, and 0 for j = k, [..., K, K]."""
    return _in_chunks(_coupling, Fmu, Fvar, rank=2)


def _in_chunks(
    function: Callable[[tf.Tensor, tf.Tensor], tf.Tensor],
    Fmu: tf.Tensor,
    Fvar: tf.Tensor,
    rank: int = 0,
) -> tf.Tensor:
    numbers = len(_nodes(Fmu.shape[-1] - 1)[0]) * _NUMBERS_OF_NODE
    return in_chunks_of_rows(function, Fmu, Fvar, numbers, rank)


def _expected(mean: tf.Tensor, variance: tf.Tensor) -> tf.Tensor:
    f, weight = _at_nodes(mean, variance)
    return tf.tensordot(weight, log_largest_of_unit_scale(f), 1)


def _log_shares(mean: tf.Tensor, variance: tf.Tensor) -> tf.Tensor:
    labels, scale = tf.range(mean.shape[-1]), tf.sqrt(1.0 + variance)
    ordered = (own_first(part[..., None, :], labels) for part in (mean, scale))
    return log_first_is_largest(*ordered)


def _coupling(mean: tf.Tensor, variance: tf.Tensor) -> tf.Tensor:
    """
    Between two labels k > 0, the covariance of N(x_k)/Φ(x_k) given that label 0 is the largest.

    The row and the column of label 0 follow, as every row sums to 0 with its diagonal.
    """
    f, weight = _at_nodes(mean, variance)
    of_largest, ratio, x = ratios_given_largest(f)
    first = tf.reduce_sum(of_largest * ratio, 0)
    weight = weight[:, None, None]
    others = tf.einsum("tnrj,tnrk->rjk", weight * of_largest * ratio, ratio)
    others -= tf.einsum("nrj,nrk->rjk", weight * first, first)
    bend = tf.reduce_sum(weight * tf.reduce_sum(of_largest * ratio * (ratio + x), 0), 0)
    own = bend - tf.reduce_sum(others, -1)
    found = tf.concat([own[:, None], others], 1)
    found = tf.concat([tf.pad(own, [[0, 0], [1, 0]])[..., None], found], 2)
    return tf.linalg.set_diag(found, tf.zeros_like(mean))


def _at_nodes(mean: tf.Tensor, variance: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """f [J, R, K] of mean and variance [R, K], and weights [J]."""
    points, weight = (tf.constant(part, mean.dtype) for part in _nodes(mean.shape[-1] - 1))
    sd = safe_sqrt(variance)
    s = tf.math.l2_normalize(tf.reduce_min(sd, -1, keepdims=True) / sd, -1)
    x = tf.pad(points, [[0, 0], [1, 0]])[:, None]
    reflected = tf.reduce_sum(x * s, -1, keepdims=True) / (1.0 + s[:, :1])
    x -= reflected * (s + tf.one_hot(0, mean.shape[-1], dtype=s.dtype))
    return mean + sd * x, weight


@functools.cache
def _nodes(dimension: int) -> tuple[AnyNDArray, AnyNDArray]:
    """Points [J, dimension] and weights [J] of N(0, I), exact for quadratic functions."""
    if dimension in _NODES_OF_AXIS:
        z, w = np.polynomial.hermite_e.hermegauss(_NODES_OF_AXIS[dimension])
        z = np.stack(np.meshgrid(*[z] * dimension), -1).reshape(-1, dimension)
        w = np.prod(np.stack(np.meshgrid(*[w / w.sum()] * dimension), -1), -1)
        return z, w.ravel()
    number = max(_POINTS, 8 << dimension.bit_length())  # a power of 2, far above the rank
    uniform = scipy.stats.qmc.Sobol(dimension, seed=0).random(number // 2)
    z = scipy.stats.norm.ppf(uniform)
    z = np.concatenate([z, -z])
    z = np.linalg.solve(np.linalg.cholesky(z.T @ z / number), z.T).T
    return z, np.full(number, 1.0 / number)
