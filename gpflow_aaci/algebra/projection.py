r"""
The marginals of f at some inputs under q(v), and their gradients in q(v) and in the prior.

u = chol v with v ~ N(0, I), A = chol⁻¹K_ZX: f_i | v has mean μ₀(x_i) + A_iᵀ v and variance
k_ii − ‖A_i‖². Everything is whitened: with K_ZZ⁻¹ written out, gradients lose four to six digits.
"""

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import TensorType

from . import arrow, one_hot
from .arrow import Arrow, BlockDiagonal, Matrix
from .gaussian import columns, product
from .one_hot import OneHot


class Prior(NamedTuple):
    """u ~ N(0, K_ZZ), less the mean function, and f at some inputs; or gradients in them."""

    K_ZZ: Matrix  # [broadcast L, M, M], jitter included; block diagonal where K_ZX has entries
    K_ZX: tf.Tensor  # [broadcast L, M, N], or its F dense rows [broadcast L, F, N]
    k_diag: tf.Tensor  # [broadcast L, N], k(x_i, x_i)
    mean: tf.Tensor  # [N, broadcast L], μ₀
    entries: OneHot | None = None  # of K_ZX, below its dense rows

    @property
    def differentiable(self) -> list[Matrix]:
        """All parts but the places of the entries."""
        return [*self[:4]] if self.entries is None else [*self[:4], self.entries.values]


class Projection(NamedTuple):
    """The map from q(v) to f at some inputs; the latent GPs may share it."""

    chol: Any  # [broadcast L, M, M], of K_ZZ; block diagonal as K_ZZ is
    A: tf.Tensor  # [broadcast L, M, N], chol⁻¹K_ZX, or its F dense rows
    unexplained: tf.Tensor  # [broadcast L, N], k_ii − ‖A_i‖² ≥ 0
    mean: tf.Tensor  # [N, broadcast L], μ₀
    rounded: tf.Tensor | None = None  # A in the dtype of the products of size N·M², if it is lower
    entries: OneHot | None = None  # of A, below its dense rows

    @property
    def explained(self) -> tf.Tensor:
        """‖A_i‖² [broadcast L, N], the variance of f that v explains."""
        return _squares(self.A, self.entries)

    @property
    def factor(self) -> tf.Tensor:
        """A as a factor of the products of size N·M²."""
        return self.A if self.rounded is None else self.rounded


def project(prior: Prior, product_dtype: tf.DType | None = None) -> Projection:
    """
    The projection of v on f, A = chol⁻¹K_ZX, and the variance of f that v leaves unexplained.

    :param product_dtype: the dtype of the products of size N·M². Default: ``default_float()``.
        I + A diag(precision) Aᵀ may be summed in float32, in a quarter of the time. The triangular
        solve for A may not, nor may the mean Aᵀ q_mu: a relative error of 6e-8 in it would be 1e-5
        nats in the ELBO of a few thousand rows, more than a line search near a maximum can bear.
    """
    entries = prior.entries
    chol = of_dense = arrow.cholesky(prior.K_ZZ)
    if entries is not None:
        of_dense = chol.dense
        roots = tf.gather(chol.diagonal, entries.rows - prior.K_ZX.shape[-2], axis=-1)
        entries = entries._replace(values=entries.values / roots)
    A = tf.linalg.triangular_solve(of_dense, prior.K_ZX)
    unexplained = prior.k_diag - _squares(A, entries)
    # This is a variance. If rounding takes it below zero, it is zero; if it is further below, K_ZX
    # is not the kernel's (in ‖x/ℓ − x'/ℓ‖² all digits cancel at lengthscales of 1e-7), and what is
    # computed from it would not be a bound. Rounding is relative to the largest variance: if f is
    # a difference at two inputs that are close together, its variance is nothing but rounding.
    tolerance = np.finfo(unexplained.dtype.as_numpy_dtype).eps ** 0.25
    unexplained = tf.where(
        unexplained < -tolerance * tf.reduce_max(prior.k_diag, -1, keepdims=True),
        tf.constant(np.nan, unexplained.dtype),
        tf.maximum(unexplained, tf.zeros_like(unexplained)),
    )
    rounded = None if product_dtype is None else tf.cast(A, product_dtype)
    return Projection(chol, A, unexplained, prior.mean, rounded, entries)


def dense(projection: Projection) -> Projection:
    """The same projection with all rows of A and of chol."""
    if projection.entries is None:
        return projection
    chol = arrow.dense(projection.chol)
    A = one_hot.densely(projection.A, projection.entries, tf.shape(chol)[-1])
    rounded = None if projection.rounded is None else tf.cast(A, projection.rounded.dtype)
    return projection._replace(chol=chol, A=A, rounded=rounded, entries=None)


def conditioned(projection: Projection, q_mu: TensorType, q_sqrt: TensorType) -> Projection:
    """
    The projection with q(v) as the prior: v = q_mu + q_sqrt w, w ~ N(0, I).

    A becomes q_sqrtᵀ A and μ₀ becomes μ₀ + Aᵀ q_mu; the unexplained variance stays the same.

    :param q_mu, q_sqrt: [M, L], [L, M, M].
    """
    projection = dense(projection)
    A = projection.A
    return Projection(
        tf.matmul(projection.chol, q_sqrt),
        tf.matmul(q_sqrt, A, transpose_a=True),
        projection.unexplained,
        projection.mean + columns(tf.matmul, A, q_mu, transpose_a=True),
    )


@check_shapes(
    "q_mu: [M, L]",
    "return[0]: [N, L]",
    "return[1]: [N, L]",
)
def marginals(
    projection: Projection, q_mu: TensorType, q_sqrt: TensorType | Arrow
) -> tuple[tf.Tensor, tf.Tensor]:
    """
    Mean and variance of every f_i under q(v) = N(q_mu, q_sqrt q_sqrtᵀ).

    Fmu = μ₀ + Aᵀ q_mu, Fvar = k_ii − ‖A_i‖² + ‖q_sqrtᵀ A_i‖².

    :param q_sqrt: [L, M, M]; it may be an arrow where A has entries.
    """
    A, entries = projection.factor, projection.entries
    if entries is None:
        Fmu = projection.mean + columns(tf.matmul, projection.A, q_mu, transpose_a=True)
        R = tf.cast(q_sqrt, A.dtype)
        explained = tf.reduce_sum(tf.square(tf.matmul(R, A, transpose_a=True)), -2)
    else:
        Fmu = projection.mean + one_hot.transposed_times(projection.A, entries, q_mu)
        explained = one_hot.explained(_covariance(projection, q_sqrt), A, entries)
    return Fmu, tf.transpose(projection.unexplained + tf.cast(explained, Fmu.dtype))


def at_latent(projection: Projection, latent: int) -> Projection:
    """The projection of one latent GP alone, L = 1."""
    mean = projection.mean
    mean = mean if mean.shape[1] == 1 else mean[:, latent : latent + 1]
    if projection.entries is not None:  # which all latent GPs share
        return projection._replace(mean=mean)
    chol, A, unexplained, rounded = (
        part if part is None or part.shape[0] == 1 else part[latent : latent + 1]
        for part in (*projection[:3], projection.rounded)
    )
    return Projection(chol, A, unexplained, mean, rounded)


@check_shapes(
    "in_mean: [N, L]",
    "in_variance: [N, L]",
    "return[0]: [M, L]",
)
def to_q(
    projection: Projection, in_mean: TensorType, in_variance: TensorType
) -> tuple[tf.Tensor, Any]:
    """
    The adjoint of :func:`marginals`: a = Σ A_i ∂e/∂m_i and B = Σ A_i (∂e/∂v_i) A_iᵀ, [L, M, M].

    They are the gradients in the mean and the covariance of q(v). B is an arrow where A has
    entries.
    """
    A, entries = projection.factor, projection.entries
    weights = tf.transpose(in_variance)  # [L, N]
    a = columns(tf.matmul, projection.A, in_mean)
    if entries is None:
        weights = tf.cast(weights, A.dtype)
        return a, product(A * weights[:, None, :], A, transpose_b=True)
    F, M = A.shape[-2], _size(projection.chol)
    slopes = entries._replace(values=entries.values * tf.transpose(in_mean)[:, None, :])
    a = tf.concat([a, tf.transpose(one_hot.of_levels(slopes, F, M))], 0)
    return a, one_hot.weighted_square(A, entries, weights, M)


@check_shapes("curvature: [N, L, L]", "return: [K, K]")
def coupled(projection: Projection, curvature: TensorType) -> tf.Tensor:
    """
    The curvature in the means of v that follows from a curvature c in the means of f: [LM, LM].

    Its block for the latent GPs j and k is Σ_i A_ji c_ijk A_kiᵀ, [M, M].

    :param curvature: c, symmetric in the latent GPs j and k.
    """
    A, L = dense(projection).factor, curvature.shape[-1]
    # By symmetry only blocks above the diagonal, and half of each block on it, are multiplied out;
    # adding the transpose gives the rest.
    curvature = tf.linalg.set_diag(curvature, 0.5 * tf.linalg.diag_part(curvature))
    upper = []
    for latent in range(L):
        left, right = (A, A) if A.shape[0] == 1 else (A[latent : latent + 1], A[latent:])
        weights = tf.cast(tf.transpose(curvature[:, latent, latent:]), A.dtype)[:, None, :]
        blocks = product(left * weights, right, transpose_b=True)  # [L − latent, M, M]
        upper.append(tf.pad(blocks, [[latent, 0], [0, 0], [0, 0]]))
    size = L * tf.shape(A)[-2]
    half = tf.reshape(tf.transpose(tf.stack(upper), [0, 2, 1, 3]), [size, size])
    return half + tf.transpose(half)


@check_shapes(
    "q_mu: [M, L]",
    "in_mean: [N, L]",
    "in_variance: [N, L]",
    "a: [M, L]",
)
def to_prior(
    prior: Prior,
    projection: Projection,
    q_mu: TensorType,
    q_sqrt: Any,
    in_mean: TensorType,
    in_variance: TensorType,
    a: TensorType,
    B: Any,
) -> Prior:
    """
    The gradients in the prior, at fixed q(v), of a sum that depends on it through the marginals.

    The latent GPs may share any parts of the prior. The gradient in a part has the same shape.

    :param projection: the projection of ``prior``.
    :param a, B: :func:`to_q` of ``in_mean`` and ``in_variance``, summed over these rows; or over
        all rows, for the gradient in K_ZZ of all rows at once.
    """
    in_entries = None
    if projection.entries is None:
        eye = tf.eye(tf.shape(q_sqrt)[-1], dtype=q_sqrt.dtype)
        W = tf.matmul(q_sqrt, q_sqrt, transpose_b=True) - eye
        m, slope = (tf.transpose(value)[:, :, None] for value in (q_mu, a))
        G = tf.matmul(m, slope, transpose_b=True) + 2.0 * tf.matmul(W, B)
        in_K_ZZ = _to_K_ZZ(projection.chol, G)
        in_K_ZX = _to_K_ZX(projection, q_mu, W, in_mean, in_variance)
    else:
        in_K_ZZ, in_K_ZX, in_entries = _to_blocks(projection, q_mu, q_sqrt, in_mean, in_variance)
        in_values = summed_to(in_entries.values, projection.entries.values)
        in_entries = in_entries._replace(values=in_values)
    return Prior(
        tf.nest.map_structure(summed_to, in_K_ZZ, prior.K_ZZ),
        summed_to(in_K_ZX, prior.K_ZX),
        summed_to(tf.transpose(in_variance), prior.k_diag),
        summed_to(in_mean, prior.mean, axis=1),
        in_entries,
    )


def _to_K_ZX(
    projection: Projection,
    q_mu: tf.Tensor,
    W: tf.Tensor,
    in_mean: tf.Tensor,
    in_variance: tf.Tensor,
) -> tf.Tensor:
    """The gradient (chol⁻ᵀ m) in_meanᵀ + 2 chol⁻ᵀ W A diag(in_variance), with W = S − I."""
    chol = tf.broadcast_to(projection.chol, tf.shape(W))
    solve = tf.linalg.triangular_solve
    chol_m = tf.transpose(columns(solve, chol, q_mu, adjoint=True))[:, :, None]  # [L, M, 1]
    chol_W_A = product(solve(chol, W, adjoint=True), projection.factor)
    in_mean, in_variance = (tf.transpose(value)[:, None, :] for value in (in_mean, in_variance))
    return chol_m * in_mean + 2.0 * chol_W_A * in_variance


def _to_K_ZZ(chol: tf.Tensor, G: tf.Tensor) -> tf.Tensor:
    """
    The gradient −½ chol⁻ᵀ [tril(G) + tril(G)ᵀ − diag(G)] chol⁻¹, which reaches K_ZZ through chol.

    :param G: Ā Aᵀ = m aᵀ + 2 W B, where Ā is the gradient in A = chol⁻¹K_ZX.
    """
    tril = tf.linalg.band_part(G, -1, 0)
    symmetric = tril + tf.linalg.matrix_transpose(tril) - tf.linalg.diag(tf.linalg.diag_part(G))
    solve, factor = tf.linalg.triangular_solve, tf.broadcast_to(chol, tf.shape(G))
    half = tf.linalg.matrix_transpose(solve(factor, symmetric, adjoint=True))
    return -0.5 * solve(factor, half, adjoint=True)


def _to_blocks(
    projection: Projection,
    q_mu: tf.Tensor,
    q_sqrt: tf.Tensor | Arrow,
    in_mean: tf.Tensor,
    in_variance: tf.Tensor,
) -> tuple[BlockDiagonal, tf.Tensor, OneHot]:
    """
    The gradients in K_ZZ, in the dense rows of K_ZX and in its entries, where A has entries.

    They are those of the other case, from Ā = m in_meanᵀ + 2 (S A − A) diag(in_variance), in the
    blocks that are not zero. In its diagonal block K_ZZ has the gradient −½ Ā Aᵀ over chol².
    """
    A, entries, chol = projection.A, projection.entries, projection.chol
    assert entries is not None
    assert isinstance(chol, BlockDiagonal)
    F, M = A.shape[-2], _size(chol)
    S = _covariance(projection, q_sqrt)
    of_dense, of_entries = one_hot.times(S, projection.factor, entries)
    m, of_mean, of_variance = map(tf.transpose, (q_mu, in_mean, in_variance))
    of_mean, of_variance = of_mean[:, None, :], of_variance[:, None, :]
    in_A = m[:, :F, None] * of_mean + 2.0 * (of_dense - A) * of_variance
    in_values = 2.0 * (of_entries - entries.values) * of_variance
    in_values += tf.gather(m, entries.rows, axis=1) * of_mean
    block = tf.broadcast_to(chol.dense, [tf.shape(m)[0], F, F])
    squares = entries._replace(values=in_values * entries.values)
    in_K_ZZ = BlockDiagonal(
        _to_K_ZZ(block, tf.matmul(in_A, A, transpose_b=True)),
        -0.5 * one_hot.of_levels(squares, F, M) / tf.square(chol.diagonal),
    )
    in_K_ZX = tf.linalg.triangular_solve(block, in_A, adjoint=True)
    roots = tf.gather(chol.diagonal, entries.rows - F, axis=1)
    return in_K_ZZ, in_K_ZX, entries._replace(values=in_values / roots)


def _covariance(projection: Projection, q_sqrt: tf.Tensor | Arrow) -> Arrow:
    """S = q_sqrt q_sqrtᵀ where the entries of A ask for it."""
    assert projection.entries is not None
    return arrow.covariance(arrow.nearest_root(q_sqrt, projection.entries.num_before))


def _size(chol: Matrix) -> tf.Tensor:
    """M."""
    return sum(tf.shape(part)[-1] for part in tf.nest.flatten(chol))


def _squares(A: tf.Tensor, entries: OneHot | None) -> tf.Tensor:
    """‖A_i‖², [broadcast L, N]."""
    squares = tf.reduce_sum(tf.square(A), -2)
    return squares if entries is None else squares + tf.reduce_sum(tf.square(entries.values), 1)


def summed_to(gradient: tf.Tensor, like: tf.Tensor, axis: int = 0) -> tf.Tensor:
    """The gradient in ``like``, summed over the latent GPs, an axis of it, if they share it."""
    if like.shape[axis] == 1 and gradient.shape[axis] != 1:
        return tf.reduce_sum(gradient, axis=axis, keepdims=True)
    return gradient
