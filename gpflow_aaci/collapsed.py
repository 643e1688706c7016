r"""
The augmented bound with q(u) maximised out, and the cheap gradients of the sparse projection.

With c fixed the model is a heteroscedastic Gaussian one, so the best q(u) is known and the bound
becomes a function F(θ, c) of the hyperparameters alone, valid for every c > 0 (the trick of SGPR,
Titsias 2009, with a precision for every datum). Everything here is whitened: with K_ZZ⁻¹ written
out, the gradients lose four to six digits.

Shapes: [N] data, [M] inducing variables, [P] latent GPs, [L] in {1, P} as in ``sites``.
"""

from collections.abc import Callable

import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import TensorType
from gpflow.config import default_float

from .augmentation import (
    auglik_potential_and_precision,
    aux_kldivergence,
    aux_posterior_mean,
    logtilt,
)
from .likelihoods import AugmentedLikelihood

Gradients = tuple[tf.Tensor, ...]


@check_shapes(
    "K_ZZ: [L, M, M]",
    "K_ZX: [L, M, N]",
    "k_diag: [L, N]",
    "potential: [P, N]",
    "precision: [P, N]",
    "return: []",
)
def gaussian_evidence(
    K_ZZ: TensorType,
    K_ZX: TensorType,
    k_diag: TensorType,
    potential: TensorType,
    precision: TensorType,
) -> tf.Tensor:
    r"""
    max_q Σ_i E_q[potential_i f_i − ½ precision_i f_i²] − KL[q(u) ‖ p(u)], prior mean zero.

    With A = L⁻¹K_ZX, B = A diag(precision) Aᵀ, b = A·potential, m = (I + B)⁻¹ b:
    ½ bᵀm − ½ log|I + B| − ½ Σ precision_i (k_ii − ‖A_i‖²).

    Its gradient is written out: two products of size N·M² instead of backpropagation through two
    Cholesky factorisations.
    """
    return _gaussian_evidence(K_ZZ, K_ZX, k_diag, potential, precision)


@tf.custom_gradient
def _gaussian_evidence(
    K_ZZ: tf.Tensor,
    K_ZX: tf.Tensor,
    k_diag: tf.Tensor,
    potential: tf.Tensor,
    precision: tf.Tensor,
) -> tuple[tf.Tensor, Callable[[tf.Tensor], Gradients]]:
    L = tf.linalg.cholesky(K_ZZ)
    A = tf.linalg.triangular_solve(L, K_ZX)  # [L, M, N]
    column = potential[:, :, None]  # [P, N, 1]
    eye = tf.eye(tf.shape(K_ZZ)[-1], dtype=K_ZZ.dtype)
    B = tf.matmul(A * precision[:, None, :], A, transpose_b=True)  # [P, M, M]
    b = tf.matmul(A, column)  # [P, M, 1]
    C = tf.linalg.cholesky(eye + B)
    m = tf.linalg.cholesky_solve(C, b)
    unexplained = k_diag - tf.reduce_sum(tf.square(A), -2)  # [L, N], k_ii − ‖A_i‖²
    log_det = 2.0 * tf.reduce_sum(tf.math.log(tf.linalg.diag_part(C)))
    value = 0.5 * (tf.reduce_sum(b * m) - log_det - tf.reduce_sum(precision * unexplained))

    def grad(upstream: tf.Tensor) -> Gradients:
        S = tf.linalg.cholesky_solve(C, tf.broadcast_to(eye, tf.shape(B)))
        W = S - eye
        L_ = tf.broadcast_to(L, tf.shape(B))
        LtWA = tf.matmul(tf.linalg.triangular_solve(L_, W, adjoint=True), A)  # [P, M, N]
        Ltm = tf.linalg.triangular_solve(L_, m, adjoint=True)
        mu = tf.matmul(A, m, transpose_a=True)[:, :, 0]  # [P, N]
        r = potential - precision * mu
        K_ZX_bar = Ltm * r[:, None, :] - LtWA * precision[:, None, :]
        Ar = b - tf.matmul(B, m)
        K_ZZ_bar = through_prior(L, tf.transpose(m[:, :, 0]), W, Ar, -0.5 * B)
        second_moment = tf.square(mu) + k_diag + tf.reduce_sum(K_ZX * LtWA, -2)  # E f_i²
        gradients = (
            sum_to(K_ZZ_bar, K_ZZ),
            sum_to(K_ZX_bar, K_ZX),
            sum_to(-0.5 * precision, k_diag),
            mu,
            -0.5 * second_moment,
        )
        return tuple(upstream * gradient for gradient in gradients)

    return value, grad


def through_projection(
    L: tf.Tensor,
    A: tf.Tensor,
    q_mu: tf.Tensor,
    W: tf.Tensor,
    mu_bar: tf.Tensor,
    var_bar: tf.Tensor,
) -> tf.Tensor:
    """
    The gradient [P, M, N] in K_ZX at fixed q(v), of what depends on it through marginals of f.

    (L⁻ᵀm) mu_barᵀ + 2 L⁻ᵀW A diag(var_bar); that in k_ii is var_bar.

    :param W: S − I [P, M, M], S being the covariance of q(v).
    :param mu_bar, var_bar: the gradients [P, N] in the marginals' means and variances.
    """
    L = tf.broadcast_to(L, tf.shape(W))
    Ltm = tf.linalg.triangular_solve(L, tf.transpose(q_mu)[:, :, None], adjoint=True)
    LtW = tf.linalg.triangular_solve(L, W, adjoint=True)
    LtWA = product(LtW, A)
    return Ltm * mu_bar[:, None, :] + 2.0 * LtWA * var_bar[:, None, :]


def through_prior(
    L: tf.Tensor, q_mu: tf.Tensor, W: tf.Tensor, a: tf.Tensor, B: tf.Tensor
) -> tf.Tensor:
    """
    The gradient [P, M, M] in K_ZZ that goes with :func:`through_projection`.

    :param a: A·mu_bar [P, M, 1].
    :param B: A diag(var_bar) Aᵀ [P, M, M].
    """
    G = tf.matmul(tf.transpose(q_mu)[:, :, None], a, transpose_b=True) + 2.0 * tf.matmul(W, B)
    return through_cholesky(tf.broadcast_to(L, tf.shape(W)), G)


def covariance_minus_eye(q_sqrt: tf.Tensor) -> tf.Tensor:
    """W = S − I of the two functions above."""
    eye = tf.eye(tf.shape(q_sqrt)[-1], dtype=q_sqrt.dtype)
    return tf.matmul(q_sqrt, q_sqrt, transpose_b=True) - eye


def product(a: tf.Tensor, b: tf.Tensor, **transpose: bool) -> tf.Tensor:
    """a b in the lower precision of the two, as ``default_float()``."""
    low = a.dtype if a.dtype.size <= b.dtype.size else b.dtype
    return tf.cast(tf.matmul(tf.cast(a, low), tf.cast(b, low), **transpose), default_float())


def through_cholesky(L: tf.Tensor, G: tf.Tensor) -> tf.Tensor:
    """
    The gradient in K_ZZ = LLᵀ where A = L⁻¹K_ZX has the gradient A_bar; G = A_bar Aᵀ.

    −½ L⁻ᵀ [tril(G) + tril(G)ᵀ − diag(G)] L⁻¹.
    """
    tril = tf.linalg.band_part(G, -1, 0)
    symmetric = tril + tf.linalg.matrix_transpose(tril) - tf.linalg.diag(tf.linalg.diag_part(G))
    half = tf.linalg.triangular_solve(L, symmetric, adjoint=True)
    return -0.5 * tf.linalg.triangular_solve(L, tf.linalg.matrix_transpose(half), adjoint=True)


def sum_to(gradient: tf.Tensor, like: tf.Tensor) -> tf.Tensor:
    """Sum over the latent GPs that share ``like``."""
    if like.shape[0] == 1 and gradient.shape[0] != 1:
        return tf.reduce_sum(gradient, axis=0, keepdims=True)
    return gradient


@check_shapes(
    "K_ZZ: [L, M, M]",
    "K_ZX: [L, M, N]",
    "k_diag: [L, N]",
    "prior_mean: [N, broadcast P]",
    "Y: [N, P]",
    "c: [N, P]",
    "scale: []",
    "return: []",
)
def collapsed_bound(
    likelihood: AugmentedLikelihood,
    K_ZZ: TensorType,
    K_ZX: TensorType,
    k_diag: TensorType,
    prior_mean: TensorType,
    Y: TensorType,
    c: TensorType,
    scale: TensorType,
) -> tf.Tensor:
    """
    F(θ, c) = max_q of the augmented bound at q(ω) = π(·|c).

    c is held, not ω̄: q(ω) stays a distribution when the likelihood's parameters move, ω̄(c; θ) is
    differentiated through, and F stays below log p(y).

    :param prior_mean: μ₀(X).
    :param scale: num_data / N, multiplies all that is a sum over data.
    """
    omega = aux_posterior_mean(likelihood, c)
    potential, precision = auglik_potential_and_precision(likelihood, omega, Y)
    # f = μ₀ + f₀: the sites of f₀, and what they leave behind.
    centred = potential - precision * prior_mean
    left = potential * prior_mean - 0.5 * precision * tf.square(prior_mean)
    constant = logtilt(likelihood, omega, tf.zeros_like(Y), Y) - aux_kldivergence(likelihood, c)
    gaussian = gaussian_evidence(
        K_ZZ, K_ZX, k_diag, scale * tf.transpose(centred), scale * tf.transpose(precision)
    )
    return gaussian + scale * tf.reduce_sum(constant + left)
