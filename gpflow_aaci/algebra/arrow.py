r"""
A q(v) whose last variables are independent given the first: its precision has an arrow's shape.

So it is with the effects of one grouping factor: a datum has one level of it. With the precision
[[P, Bᵀ], [B, D]], D diagonal, the covariance of the first F variables is (P − Bᵀ D⁻¹ B)⁻¹, the
inverse of the Schur complement. For G last variables this costs O(G F² + F³), not O((F + G)³).

Nothing of size (F + G)² is formed: where a matrix is an :class:`Arrow`, so is all that a step on q
makes of it.
"""

from typing import Any, NamedTuple, TypeAlias

import tensorflow as tf
from gpflow.kullback_leiblers import gauss_kl

from .cholesky import cholesky_or_nan
from .gaussian import Gaussian, lower_triangular_inverse
from .gaussian import naturals_to_q as densely


class Arrow(NamedTuple):
    """
    A matrix [L, F + G, F + G] whose last block is diagonal.

    It is symmetric, or lower triangular where it is a root. Of a covariance only these entries are
    at hand: the data ask for no other ones.
    """

    first: tf.Tensor  # [L, F, F]
    below: tf.Tensor  # [L, G, F]
    diagonal: tf.Tensor  # [L, G]


class BlockDiagonal(NamedTuple):
    """A matrix [L, M, M] that is diagonal but for its first rows and columns."""

    dense: tf.Tensor  # [L, F, F]
    diagonal: tf.Tensor  # [L, M - F]


Matrix: TypeAlias = tf.Tensor | Arrow | BlockDiagonal


def dense(matrix: Matrix) -> tf.Tensor:
    """All entries [L, M, M] of a symmetric or block diagonal matrix, or of a tensor."""
    if isinstance(matrix, BlockDiagonal):
        F, G = tf.shape(matrix.dense)[-1], tf.shape(matrix.diagonal)[-1]
        diagonal = tf.linalg.diag(tf.pad(matrix.diagonal, [[0, 0], [F, 0]]))
        return diagonal + tf.pad(matrix.dense, [[0, 0], [0, G], [0, G]])
    return _joined(matrix, matrix.below) if isinstance(matrix, Arrow) else matrix


def cholesky(matrix: tf.Tensor | BlockDiagonal) -> Any:
    """The Cholesky factor, block diagonal as the matrix is."""
    if not isinstance(matrix, BlockDiagonal):
        return tf.linalg.cholesky(matrix)
    return BlockDiagonal(tf.linalg.cholesky(matrix.dense), tf.sqrt(matrix.diagonal))


def ratio(old: Any, new: Any) -> Any:
    """old⁻¹ new of two Cholesky factors, block diagonal as they are."""
    if not isinstance(new, BlockDiagonal):
        return tf.linalg.triangular_solve(old, new)
    first = tf.linalg.triangular_solve(old.dense, new.dense)
    return BlockDiagonal(first, new.diagonal / old.diagonal)


def dense_q(q: Gaussian) -> Gaussian:
    """q with all entries of its root."""
    if not isinstance(q.sqrt, Arrow):
        return q
    return q._replace(sqrt=_joined(q.sqrt, tf.zeros_like(q.sqrt.below)))


def _joined(matrix: Arrow, beside: tf.Tensor) -> tf.Tensor:
    """The matrix, with ``beside`` [L, G, F] transposed on the right of its first block."""
    above = tf.concat([matrix.first, tf.linalg.matrix_transpose(beside)], -1)
    last = tf.concat([matrix.below, tf.linalg.diag(matrix.diagonal)], -1)
    return tf.concat([above, last], -2)


def nearest_root(sqrt: tf.Tensor | Arrow, F: int) -> Arrow:
    """
    The root of the arrow that has the entries of the covariance of ``sqrt`` [L, M, M].

    The data give the same E log p(y|f) under both. Given these entries, the arrow has the largest
    entropy, so that its ELBO is not lower; it is the same q if that was an arrow.
    """
    if isinstance(sqrt, Arrow):
        return sqrt
    diagonal = tf.sqrt(tf.reduce_sum(tf.square(sqrt[:, F:, F:]), -1))
    return Arrow(sqrt[:, :F, :F], sqrt[:, F:, :F], diagonal)


def covariance(root: Arrow) -> Arrow:
    """S = R Rᵀ where it is asked for."""
    return Arrow(
        tf.matmul(root.first, root.first, transpose_b=True),
        tf.matmul(root.below, root.first, transpose_b=True),
        tf.reduce_sum(tf.square(root.below), -1) + tf.square(root.diagonal),
    )


def kl(q: Gaussian) -> tf.Tensor:
    """KL[q(v) ‖ N(0, I)], [], with all entries of q's root or without."""
    if not isinstance(q.sqrt, Arrow):
        return gauss_kl(*q)
    first, below, diagonal = q.sqrt
    F = tf.shape(first)[-1]
    of_last = gauss_kl(q.mu[F:], tf.transpose(diagonal)) + 0.5 * tf.reduce_sum(tf.square(below))
    return gauss_kl(q.mu[:F], first) + of_last


def optimal_naturals(
    q_mu: tf.Tensor, in_mean: tf.Tensor, in_covariance: Arrow
) -> tuple[tf.Tensor, Arrow]:
    """As :func:`~gpflow_aaci.algebra.gaussian.optimal_naturals`, of the gradient in an arrow."""
    first, below, diagonal = in_covariance
    eye = tf.eye(tf.shape(first)[-1], dtype=first.dtype)
    target = Arrow(eye - 2.0 * first, -2.0 * below, 1.0 - 2.0 * diagonal)
    return in_mean - 2.0 * _times(in_covariance, q_mu), target


def q_to_naturals(q: Gaussian) -> tuple[tf.Tensor, Arrow]:
    """As :func:`~gpflow_aaci.algebra.gaussian.q_to_naturals`."""
    first, below, diagonal = q.sqrt
    R_inv = lower_triangular_inverse(first)
    scaled = -tf.matmul(below, R_inv)  # D⁻¹B
    D = 1.0 / tf.square(diagonal)
    B = D[..., None] * scaled
    P = tf.matmul(R_inv, R_inv, transpose_a=True) + tf.matmul(B, scaled, transpose_a=True)
    Lambda_2 = Arrow(P, B, D)
    return _times(Lambda_2, q.mu), Lambda_2


def naturals_to_q(lambda_1: tf.Tensor, Lambda_2: Arrow) -> Gaussian:
    """
    As :func:`~gpflow_aaci.algebra.gaussian.naturals_to_q`; NaN if Lambda_2 is no precision.

    q_sqrt = [[R, 0], [−D⁻¹ B R, D^(−½)]], where R is the factor of the first F.
    """
    P, B, D = Lambda_2
    scaled = B / D[..., None]
    complement = P - tf.matmul(B, scaled, transpose_a=True)
    return _of_complement(lambda_1, complement, scaled, D)


def _of_complement(
    lambda_1: tf.Tensor, complement: tf.Tensor, scaled: tf.Tensor, D: tf.Tensor
) -> Gaussian:
    """The q of the Schur complement [L, F, F], and of D⁻¹B [L, G, F] and D [L, G]."""
    F = tf.shape(complement)[-1]
    R = densely(tf.zeros_like(lambda_1[:F]), complement, cholesky_or_nan).sqrt
    root = Arrow(R, -tf.matmul(scaled, R), tf.math.rsqrt(D))
    naturals = tf.transpose(lambda_1)
    matvec = tf.linalg.matvec
    of_last = root.diagonal * naturals[:, F:]  # Rᵀλ
    of_first = matvec(R, naturals[:, :F], transpose_a=True)
    of_first += matvec(root.below, naturals[:, F:], transpose_a=True)
    last = matvec(root.below, of_first) + root.diagonal * of_last
    return Gaussian(tf.transpose(tf.concat([matvec(R, of_first), last], -1)), root)


def averaged(
    naturals: tuple[tf.Tensor, Arrow], target: tuple[tf.Tensor, Arrow], step_size: tf.Tensor
) -> Gaussian:
    """As :func:`~gpflow_aaci.algebra.gaussian.averaged`."""
    return naturals_to_q(
        *tf.nest.map_structure(
            lambda old, new: (1.0 - step_size) * old + step_size * new, naturals, target
        )
    )


def diagonal(q: Gaussian) -> Gaussian:
    """As :func:`~gpflow_aaci.algebra.gaussian.diagonal`."""
    _, (P, B, D) = q_to_naturals(q)
    first = tf.linalg.diag(tf.math.rsqrt(tf.linalg.diag_part(P)))
    return q._replace(sqrt=Arrow(first, tf.zeros_like(B), tf.math.rsqrt(D)))


def carried(q: Gaussian, C: BlockDiagonal) -> Gaussian:
    """
    As :func:`~gpflow_aaci.algebra.gaussian.carried`, for a block diagonal C.

    :param C: [broadcast L, M, M], whose dense block is not larger than q's first one.
    """
    R, below, roots = q.sqrt
    F = tf.shape(R)[-1]
    others = F - tf.shape(C.dense)[-1]
    C_F, c = dense(C._replace(diagonal=C.diagonal[:, :others])), C.diagonal[:, others:]
    R_inv = lower_triangular_inverse(R)
    G_F = tf.matmul(R_inv, C_F)  # G = q_sqrt⁻¹ C
    G_below = -tf.matmul(below, G_F) / roots[..., None]
    G_rest = c / roots
    mu = tf.transpose(q.mu)
    first = tf.linalg.matvec(R_inv, mu[:, :F])  # q_sqrt⁻¹ q_mu
    rest = (mu[:, F:] - tf.linalg.matvec(below, first)) / roots
    of_first = tf.linalg.matvec(G_F, first, transpose_a=True)
    of_first += tf.linalg.matvec(G_below, rest, transpose_a=True)
    lambda_1 = tf.transpose(tf.concat([of_first, G_rest * rest], -1))
    # GᵀG − CᵀC of the first block is the symmetric part of (G − C)ᵀ(G + C).
    twice = tf.matmul(G_F - C_F, G_F + C_F, transpose_a=True)
    P = tf.eye(F, dtype=R.dtype) + 0.5 * (twice + tf.linalg.matrix_transpose(twice))
    D = 1.0 + (G_rest - c) * (G_rest + c)
    # Of the precision's first block, P + G_belowᵀ G_below, and its Schur complement in one product.
    shares = (1.0 - tf.square(c)) / D  # 1 − G_rest²/D
    complement = P + tf.matmul(G_below, shares[..., None] * G_below, transpose_a=True)
    return _of_complement(lambda_1, complement, G_rest[..., None] * G_below / D[..., None], D)


def _times(matrix: Arrow, vectors: tf.Tensor) -> tf.Tensor:
    """A symmetric matrix times vectors [M, L]."""
    first, below, diagonal = matrix
    F, v = tf.shape(first)[-1], tf.transpose(vectors)
    above = tf.linalg.matvec(first, v[:, :F]) + tf.linalg.matvec(below, v[:, F:], transpose_a=True)
    last = tf.linalg.matvec(below, v[:, :F]) + diagonal * v[:, F:]
    return tf.transpose(tf.concat([above, last], -1))
