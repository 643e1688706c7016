r"""
The closed-form algebra of Gaussian sites.

A site is the factor that the augmentation puts in the place of a likelihood term,
exp(potential·f − ½ precision·f²). Everything here is whitened, u = L v with v ~ N(0, I) and
A = L⁻¹K_ZX, so that f_i | v has mean A_iᵀ v and variance k_ii − ‖A_i‖².

Shapes: [N] data, [M] inducing variables, [P] latent GPs. A is [L, M, N], with L = 1 where the
latent GPs share kernel and inducing variables and L = P where they do not.
"""

from typing import NamedTuple

import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import TensorType


class Projection(NamedTuple):
    """What q(v) needs in order to speak about f at some inputs."""

    L: tf.Tensor  # [L, M, M], chol(K_ZZ + jitter I)
    A: tf.Tensor  # [L, M, N], L⁻¹ K_ZX
    k_diag: tf.Tensor  # [L, N], k(x_i, x_i)


@check_shapes(
    "q_mu: [M, P]",
    "q_sqrt: [P, M, M]",
    "return[0]: [N, P]",
    "return[1]: [N, P]",
)
def marginals(
    projection: Projection, q_mu: TensorType, q_sqrt: TensorType
) -> tuple[tf.Tensor, tf.Tensor]:
    """
    Mean and variance of every f_i under q(v) = N(q_mu, q_sqrt q_sqrtᵀ), without mean function.

    Fmu = Aᵀ q_mu, Fvar = k_ii − ‖A_i‖² + ‖q_sqrtᵀ A_i‖².
    """
    A = projection.A
    Fmu = tf.matmul(A, tf.transpose(q_mu)[:, :, None], transpose_a=True)[:, :, 0]  # [P, N]
    conditional_variance = projection.k_diag - tf.reduce_sum(tf.square(A), -2)  # [L, N]
    RtA = tf.matmul(q_sqrt, A, transpose_a=True)  # [P, M, N]
    Fvar = conditional_variance + tf.reduce_sum(tf.square(RtA), -2)
    return tf.transpose(Fmu), tf.transpose(Fvar)


@check_shapes(
    "A: [broadcast P, M, N]",
    "potential: [N, P]",
    "precision: [N, P]",
    "return[0]: [M, P]",
    "return[1]: [P, M, M]",
)
def sites_to_naturals(
    A: TensorType, potential: TensorType, precision: TensorType
) -> tuple[tf.Tensor, tf.Tensor]:
    """
    Natural parameters of the optimal q(v) given the sites (AACI Thm 2 and Alg. 3, whitened).

    lambda_1 = S⁻¹m = A·potential, Lambda_2 = S⁻¹ = I + A diag(precision) Aᵀ.
    """
    lambda_1 = tf.matmul(A, tf.transpose(potential)[:, :, None])[:, :, 0]  # [P, M]
    A_precision = A * tf.transpose(precision)[:, None, :]  # [P, M, N]
    eye = tf.eye(tf.shape(A)[-2], dtype=A_precision.dtype)
    return tf.transpose(lambda_1), eye + tf.matmul(A_precision, A, transpose_b=True)


@check_shapes(
    "q_mu: [M, P]",
    "q_sqrt: [P, M, M]",
    "return[0]: [M, P]",
    "return[1]: [P, M, M]",
)
def q_to_naturals(q_mu: TensorType, q_sqrt: TensorType) -> tuple[tf.Tensor, tf.Tensor]:
    """(q_mu, q_sqrt) -> (lambda_1, Lambda_2) = (S⁻¹m, S⁻¹), with S = q_sqrt q_sqrtᵀ."""
    R_inv = lower_triangular_inverse(q_sqrt)
    Lambda_2 = tf.matmul(R_inv, R_inv, transpose_a=True)
    lambda_1 = tf.matmul(Lambda_2, tf.transpose(q_mu)[:, :, None])[:, :, 0]
    return tf.transpose(lambda_1), Lambda_2


@check_shapes(
    "lambda_1: [M, P]",
    "Lambda_2: [P, M, M]",
    "return[0]: [M, P]",
    "return[1]: [P, M, M]",
)
def naturals_to_q(lambda_1: TensorType, Lambda_2: TensorType) -> tuple[tf.Tensor, tf.Tensor]:
    """
    (lambda_1, Lambda_2) = (S⁻¹m, S⁻¹) -> (q_mu, q_sqrt), without forming S.

    Reversing rows and columns turns the Cholesky factor C of a matrix into an upper triangular
    one: Lambda_2 = U Uᵀ with U = rev(C). So S = U⁻ᵀU⁻¹, and q_sqrt = U⁻ᵀ = rev(C⁻¹)ᵀ is lower
    triangular: one Cholesky, one triangular inverse.
    """
    C = tf.linalg.cholesky(tf.reverse(Lambda_2, [-2, -1]))
    q_sqrt = tf.linalg.matrix_transpose(tf.reverse(lower_triangular_inverse(C), [-2, -1]))
    Rt_lambda = tf.matmul(q_sqrt, tf.transpose(lambda_1)[:, :, None], transpose_a=True)
    return tf.transpose(tf.matmul(q_sqrt, Rt_lambda)[:, :, 0]), q_sqrt


@check_shapes(
    "q_mu: [M, P]",
    "q_sqrt: [P, M, M]",
    "A: [broadcast P, M, N]",
    "potential: [N, P]",
    "precision: [N, P]",
    "step_size: []",
    "return[0]: [M, P]",
    "return[1]: [P, M, M]",
)
def damped_update(
    q_mu: TensorType,
    q_sqrt: TensorType,
    A: TensorType,
    potential: TensorType,
    precision: TensorType,
    step_size: TensorType,
) -> tuple[tf.Tensor, tf.Tensor]:
    """
    naturals ← (1 − step_size)·naturals + step_size·optimum, AACI Alg. 3 as ERRATA.md mends it.

    This is the natural-gradient step of that size on the augmented bound. Naturals are averaged,
    never moments; data terms come in already scaled by num_data/|B|.
    """
    lambda_1, Lambda_2 = q_to_naturals(q_mu, q_sqrt)
    target_1, Target_2 = sites_to_naturals(A, potential, precision)
    return naturals_to_q(
        (1.0 - step_size) * lambda_1 + step_size * target_1,
        (1.0 - step_size) * Lambda_2 + step_size * Target_2,
    )


@check_shapes("C: [batch..., M, M]", "return: [batch..., M, M]")
def lower_triangular_inverse(C: TensorType) -> tf.Tensor:
    """C⁻¹ of a lower triangular C."""
    eye = tf.eye(tf.shape(C)[-1], batch_shape=tf.shape(C)[:-2], dtype=C.dtype)
    return tf.linalg.triangular_solve(C, eye)


@check_shapes(
    "q_mu: [M, P]",
    "q_sqrt: [P, M, M]",
    "L: [broadcast P, M, M]",
    "return[0]: [M, P]",
    "return[1]: [P, M, M]",
)
def whiten(q_mu: TensorType, q_sqrt: TensorType, L: TensorType) -> tuple[tf.Tensor, tf.Tensor]:
    """q(u) -> q(v) for u = L v; both square roots are lower triangular, so one solve does it."""
    L = tf.broadcast_to(L, tf.shape(q_sqrt))
    q_mu = tf.linalg.triangular_solve(L, tf.transpose(q_mu)[:, :, None])[:, :, 0]
    return tf.transpose(q_mu), tf.linalg.triangular_solve(L, q_sqrt)


@check_shapes(
    "q_mu: [M, P]",
    "q_sqrt: [P, M, M]",
    "L: [broadcast P, M, M]",
    "return[0]: [M, P]",
    "return[1]: [P, M, M]",
)
def unwhiten(q_mu: TensorType, q_sqrt: TensorType, L: TensorType) -> tuple[tf.Tensor, tf.Tensor]:
    """q(v) -> q(u), u = L v; the inverse of :func:`whiten`."""
    q_mu = tf.matmul(L, tf.transpose(q_mu)[:, :, None])[:, :, 0]
    return tf.transpose(q_mu), tf.matmul(L, q_sqrt)
