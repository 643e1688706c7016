r"""
A q(v) whose last variables are independent given the first: its precision has an arrow's shape.

So it is with the effects of one grouping factor: a datum has one level of it. With the precision
[[P, Bᵀ], [B, D]], D diagonal, the covariance of the first F variables is (P − Bᵀ D⁻¹ B)⁻¹, the
inverse of the Schur complement. For G last variables this costs O(G F² + F³), not O((F + G)³).
"""

import tensorflow as tf

from .cholesky import cholesky_or_nan
from .gaussian import Gaussian, lower_triangular_inverse
from .gaussian import naturals_to_q as densely


def naturals_to_q(lambda_1: tf.Tensor, Lambda_2: tf.Tensor, F: int) -> Gaussian:
    """
    As :func:`~gpflow_aaci.algebra.gaussian.naturals_to_q`, for the precision of an arrow.

    q_sqrt = [[R, 0], [−D⁻¹ B R, D^(−½)]], where R is the factor of the first F.
    """
    return _from_blocks(
        lambda_1,
        Lambda_2[:, :F, :F],
        Lambda_2[:, F:, :F],
        tf.linalg.diag_part(Lambda_2)[:, F:],
    )


def _from_blocks(lambda_1: tf.Tensor, P: tf.Tensor, B: tf.Tensor, D: tf.Tensor) -> Gaussian:
    """Of lambda_1 [M, L], P [L, F, F], B [L, G, F] and the diagonal D [L, G]."""
    F = tf.shape(P)[-1]
    scaled = B / D[..., None]
    zeros = tf.zeros_like(lambda_1[:F])
    R = densely(zeros, P - tf.matmul(B, scaled, transpose_a=True), cholesky_or_nan).sqrt
    roots = tf.linalg.diag(tf.math.rsqrt(D))
    above = tf.concat([R, tf.zeros_like(tf.linalg.matrix_transpose(B))], -1)
    sqrt = tf.concat([above, tf.concat([-tf.matmul(scaled, R), roots], -1)], -2)
    naturals = tf.transpose(lambda_1)
    mu = tf.linalg.matvec(sqrt, tf.linalg.matvec(sqrt, naturals, transpose_a=True))
    return Gaussian(tf.transpose(mu), sqrt)


def is_arrow(q: Gaussian, F: int) -> tf.Tensor:
    """Whether the last variables of q are independent given the first F, []."""
    rest = q.sqrt[:, F:, F:]
    others = tf.linalg.set_diag(rest, tf.zeros_like(tf.linalg.diag_part(rest)))
    return tf.reduce_all(others == 0.0)


def carried(q: Gaussian, C: tf.Tensor, F: int) -> Gaussian:
    """
    As :func:`~gpflow_aaci.algebra.gaussian.carried`, for an arrow and a block diagonal C.

    :param C: [broadcast L, M, M], diagonal but for its first F.
    """
    R, below, roots = q.sqrt[:, :F, :F], q.sqrt[:, F:, :F], tf.linalg.diag_part(q.sqrt)[:, F:]
    R_inv = lower_triangular_inverse(R)
    C_F, c = C[:, :F, :F], tf.linalg.diag_part(C)[:, F:]
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
    P = tf.eye(tf.shape(R)[-1], dtype=R.dtype) + 0.5 * (twice + tf.linalg.matrix_transpose(twice))
    P += tf.matmul(G_below, G_below, transpose_a=True)
    D = 1.0 + (G_rest - c) * (G_rest + c)
    return _from_blocks(lambda_1, P, G_rest[..., None] * G_below, D)
