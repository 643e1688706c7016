r"""
q(v) = N(q_mu, q_sqrt q_sqrtᵀ), whitened: u = chol v, so that the prior is v ~ N(0, I).

A natural-gradient step of size s on Σ e_i − KL[q ‖ p], for any contribution e_i of a datum, is
naturals ← (1 − s)·naturals + s·(a − 2 B q_mu, I − 2 B), with a = ∂Σe/∂q_mu and B = ∂Σe/∂S.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import TensorType
from gpflow.config import default_float

from .cholesky import cholesky_or_nan

_LEAST_SHARE = 1e-6  # the smallest part to which a step is shortened

Naturals = tuple[tf.Tensor, tf.Tensor]
"""lambda_1 = S⁻¹m [M, L] and Lambda_2 = S⁻¹ [L, M, M]."""

Factor = Callable[[tf.Tensor], tf.Tensor]
"""A Cholesky factor: TensorFlow's, or ``cholesky_or_nan`` where a step may be too long."""


class Gaussian(NamedTuple):
    """q(v)."""

    mu: tf.Tensor  # [M, L]
    sqrt: tf.Tensor  # [L, M, M], lower triangular


@check_shapes("q_mu: [M, L]", "q_sqrt: [L, M, M]", "return[0]: [M, L]", "return[1]: [L, M, M]")
def q_to_naturals(q_mu: TensorType, q_sqrt: TensorType) -> tuple[tf.Tensor, tf.Tensor]:
    """(q_mu, q_sqrt) -> (lambda_1, Lambda_2) = (S⁻¹m, S⁻¹), with S = q_sqrt q_sqrtᵀ."""
    R_inv = lower_triangular_inverse(q_sqrt)
    Lambda_2 = tf.matmul(R_inv, R_inv, transpose_a=True)
    return columns(tf.matmul, Lambda_2, q_mu), Lambda_2


@check_shapes(
    "lambda_1: [M, L]", "Lambda_2: [L, M, M]", "return[0]: [M, L]", "return[1]: [L, M, M]"
)
def naturals_to_q(
    lambda_1: TensorType, Lambda_2: TensorType, cholesky: Factor = tf.linalg.cholesky
) -> Gaussian:
    """
    (lambda_1, Lambda_2) = (S⁻¹m, S⁻¹) -> (q_mu, q_sqrt), without forming S.

    Reversing rows and columns turns the Cholesky factor C of a matrix into an upper triangular
    one: Lambda_2 = U Uᵀ with U = rev(C). So S = U⁻ᵀU⁻¹, and q_sqrt = U⁻ᵀ = rev(C⁻¹)ᵀ is lower
    triangular: one Cholesky, one triangular inverse.
    """
    C = cholesky(tf.reverse(Lambda_2, [-2, -1]))
    q_sqrt = tf.linalg.matrix_transpose(tf.reverse(lower_triangular_inverse(C), [-2, -1]))
    Rt_lambda = columns(tf.matmul, q_sqrt, lambda_1, transpose_a=True)
    return Gaussian(columns(tf.matmul, q_sqrt, Rt_lambda), q_sqrt)


@check_shapes(
    "q_mu: [M, L]",
    "in_mean: [M, L]",
    "in_covariance: [L, M, M]",
    "return[0]: [M, L]",
    "return[1]: [L, M, M]",
)
def optimal_naturals(
    q_mu: TensorType, in_mean: TensorType, in_covariance: TensorType
) -> tuple[tf.Tensor, tf.Tensor]:
    """
    The naturals after a step of size 1: (a − 2 B q_mu, I − 2 B).

    For the augmented bound they are Σ A_i (potential − precision μ₀)_i and
    I + A diag(precision) Aᵀ (AACI Thm 2 and Alg. 3, whitened).
    """
    eye = tf.eye(tf.shape(in_covariance)[-1], dtype=in_covariance.dtype)
    return in_mean - 2.0 * columns(tf.matmul, in_covariance, q_mu), eye - 2.0 * in_covariance


@check_shapes(
    "q_mu: [M, L]",
    "q_sqrt: [L, M, M]",
    "target_1: [M, L]",
    "Target_2: [L, M, M]",
    "step_size: []",
    "return[0]: [M, L]",
    "return[1]: [L, M, M]",
)
def damped(
    q_mu: TensorType,
    q_sqrt: TensorType,
    target_1: TensorType,
    Target_2: TensorType,
    step_size: TensorType,
    cholesky: Factor = tf.linalg.cholesky,
) -> Gaussian:
    """
    naturals ← (1 − step_size)·naturals + step_size·target, AACI Alg. 3 as ERRATA.md mends it.

    Natural parameters are averaged, not moments.
    """
    return averaged(q_to_naturals(q_mu, q_sqrt), (target_1, Target_2), step_size, cholesky)


def safeguarded(
    step: Callable[[tf.Tensor], Gaussian],
    value: Callable[[Gaussian], tf.Tensor],
    before: tf.Tensor,
    step_size: tf.Tensor,
) -> tuple[Gaussian, tf.Tensor]:
    """
    ``step(step_size)``; the size is halved while the step lowers the value.

    A step on an augmented bound cannot lower it. A step on another objective may go too far.

    :param before: the value before the step.
    :return: q after the step, and its size.
    """

    rounding = np.finfo(before.dtype.as_numpy_dtype).eps ** 0.6 * (1.0 + tf.abs(before))
    least = before - rounding

    def is_worse(size: tf.Tensor, q: Gaussian, after: tf.Tensor) -> tf.Tensor:
        is_unknown = tf.math.is_nan(after) | tf.math.is_nan(least)
        return ((after < least) | is_unknown) & (size > _LEAST_SHARE * step_size)

    def halved(size: tf.Tensor, *_: Any) -> tuple[tf.Tensor, Gaussian, tf.Tensor]:
        q = step(0.5 * size)
        return 0.5 * size, q, value(q)

    q = step(step_size)
    size, q, _ = tf.while_loop(is_worse, halved, (step_size, q, value(q)))
    return q, size


def averaged(
    naturals: Naturals,
    target: Naturals,
    step_size: TensorType,
    cholesky: Factor = tf.linalg.cholesky,
) -> Gaussian:
    """The q(v) whose naturals are (1 − step_size)·naturals + step_size·target."""
    lambda_1, Lambda_2 = (
        (1.0 - step_size) * old + step_size * new for old, new in zip(naturals, target, strict=True)
    )
    return naturals_to_q(lambda_1, Lambda_2, cholesky)


@check_shapes(
    "q_mu: [M, L]",
    "in_mean: [M, L]",
    "in_covariance: [L, M, M]",
    "coupling: [K, K]",
    "return: [M, L]",
)
def coupled_step(
    q_mu: TensorType, in_mean: TensorType, in_covariance: TensorType, coupling: TensorType
) -> tf.Tensor:
    """
    What a Newton step adds to the mean: P⁻¹(a − q_mu) with P = blockdiag(I − 2B) − ``coupling``.

    Without coupling it leads to the mean of :func:`optimal_naturals`. The step is NaN if P is not
    positive definite.

    :param coupling: from :func:`~gpflow_aaci.algebra.projection.coupled`, [K, K] with K = LM.
    """
    L, M = q_mu.shape[1], tf.shape(q_mu)[0]
    uncoupled = tf.eye(M, dtype=in_covariance.dtype) - 2.0 * in_covariance  # [L, M, M]
    is_diagonal = tf.eye(L, dtype=uncoupled.dtype)[:, None, :, None]  # [L, 1, L, 1]
    blocks = tf.reshape(is_diagonal * uncoupled[:, :, None, :], tf.shape(coupling))
    slope = tf.reshape(tf.transpose(in_mean - q_mu), [-1, 1])
    step = tf.linalg.cholesky_solve(cholesky_or_nan(blocks - coupling), slope)
    return tf.transpose(tf.reshape(step, [L, M]))


@check_shapes("q_mu: [M, L]", "q_sqrt: [L, M, M]", "return[0]: [M, L]", "return[1]: [L, M, M]")
def diagonal(q_mu: TensorType, q_sqrt: TensorType) -> Gaussian:
    """
    The q(v) with diagonal covariance that is nearest to q: it has the same mean and 1/diag(S⁻¹).

    If q is optimal for some a and B, the result is the optimal diagonal q: given a and B, the bound
    is the sum of a term in the mean and a term in S.
    """
    precision = tf.reduce_sum(tf.square(lower_triangular_inverse(q_sqrt)), -2)
    return Gaussian(tf.identity(q_mu), tf.linalg.diag(1.0 / tf.sqrt(precision)))


def with_latent(q: Gaussian, latent: TensorType, moved: Gaussian) -> Gaussian:
    """``q``, in which one latent GP is replaced by ``moved``."""
    is_moved = tf.equal(tf.range(tf.shape(q.mu)[1]), latent)

    def replaced(new: tf.Tensor, old: tf.Tensor) -> tf.Tensor:
        return tf.where(tf.reshape(is_moved, [-1, *[1] * (len(old.shape) - 1)]), new, old)

    sqrt = tf.nest.map_structure(replaced, moved.sqrt, q.sqrt)
    return Gaussian(tf.where(is_moved[None, :], moved.mu, q.mu), sqrt)


@check_shapes(
    "q_mu: [M, L]",
    "q_sqrt: [L, M, M]",
    "C: [broadcast L, M, K]",
    "return.mu: [K, L]",
    "return.sqrt: [L, K, K]",
)
def carried(q_mu: TensorType, q_sqrt: TensorType, C: TensorType) -> Gaussian:
    """
    The q(v_b) with the same factor q/p as q(v_a), where v_a is C v_b on average.

    Its natural parameters are (CᵀΛm, I − CᵀC + CᵀΛC), with Λ = S⁻¹.

    :return: NaN if that is no precision, which I − CᵀC ≥ 0 or Λ ≥ I excludes.
    """
    solve, eye = tf.linalg.triangular_solve, tf.eye(tf.shape(C)[-1], dtype=q_sqrt.dtype)
    C = tf.broadcast_to(C, tf.concat([tf.shape(q_sqrt)[:1], tf.shape(C)[1:]], 0))
    G = solve(q_sqrt, C)  # q_sqrt⁻¹C
    lambda_1 = columns(tf.matmul, G, columns(solve, q_sqrt, q_mu), transpose_a=True)
    # GᵀG − CᵀC is the symmetric part of (G − C)ᵀ(G + C).
    twice = tf.matmul(G - C, G + C, transpose_a=True)
    Lambda_2 = eye + 0.5 * (twice + tf.linalg.matrix_transpose(twice))
    return naturals_to_q(lambda_1, Lambda_2, cholesky_or_nan)


@check_shapes(
    "chol_a: [broadcast L, M, M]",
    "K_ba: [broadcast L, K, M]",
    "chol_b: [broadcast L, K, K]",
    "return: [., M, K]",
)
def regression(chol_a: TensorType, K_ba: TensorType, chol_b: TensorType) -> tf.Tensor:
    """C = chol_a⁻¹ K_ab chol_b⁻ᵀ: E[v_a | v_b] = C v_b, with u_a = chol_a v_a, u_b = chol_b v_b."""
    solve = tf.linalg.triangular_solve
    return solve(chol_a, tf.linalg.matrix_transpose(solve(chol_b, K_ba)))


@check_shapes("C: [batch..., M, M]", "return: [batch..., M, M]")
def lower_triangular_inverse(C: TensorType) -> tf.Tensor:
    """The inverse of a lower triangular C."""
    C = tf.convert_to_tensor(C)
    known, found = C.shape.as_list(), tf.shape(C)
    sizes = [found[axis] if size is None else size for axis, size in enumerate(known)]
    return tf.linalg.triangular_solve(C, tf.eye(sizes[-1], batch_shape=sizes[:-2], dtype=C.dtype))


@check_shapes(
    "q_mu: [M, L]",
    "q_sqrt: [L, M, M]",
    "chol: [broadcast L, M, M]",
    "return[0]: [M, L]",
    "return[1]: [L, M, M]",
)
def whiten(q_mu: TensorType, q_sqrt: TensorType, chol: TensorType) -> Gaussian:
    """q(u) -> q(v) for u = chol v; both roots are lower triangular, so one solve is enough."""
    chol = tf.broadcast_to(chol, tf.shape(q_sqrt))
    solve = tf.linalg.triangular_solve
    return Gaussian(columns(solve, chol, q_mu), solve(chol, q_sqrt))


@check_shapes(
    "q_mu: [M, L]",
    "q_sqrt: [L, M, M]",
    "chol: [broadcast L, M, M]",
    "return[0]: [M, L]",
    "return[1]: [L, M, M]",
)
def unwhiten(q_mu: TensorType, q_sqrt: TensorType, chol: TensorType) -> Gaussian:
    """q(v) -> q(u), u = chol v; the inverse of :func:`whiten`."""
    return Gaussian(columns(tf.matmul, chol, q_mu), tf.matmul(chol, q_sqrt))


def columns(
    operation: Callable[..., tf.Tensor], matrix: TensorType, vectors: TensorType, **options: Any
) -> tf.Tensor:
    """Apply ``operation(matrix [L, R, M], ·)`` to each column of ``vectors`` [M, L]: [R, L]."""
    stacked = tf.expand_dims(tf.transpose(vectors), -1)  # in a third of the nodes that slices take
    return tf.transpose(tf.squeeze(operation(matrix, stacked, **options), -1))


def product(a: tf.Tensor, b: tf.Tensor, **transpose: bool) -> tf.Tensor:
    """The product a b, computed in the lower precision and returned as ``default_float()``."""
    low = a.dtype if a.dtype.size <= b.dtype.size else b.dtype
    return tf.cast(tf.matmul(tf.cast(a, low), tf.cast(b, low), **transpose), default_float())
