r"""
The optimal q of a full GP by its sites: one factor of N rows a step, and no matrix of q.

With h = Aᵀv, q(v) ∝ N(v | 0, I) Π_i exp(λ_i h_i − ½ p_i h_i²). A natural-gradient step of size 1
sets p_i = −2 ∂e/∂v_i and λ_i = ∂e/∂m_i + p_i E h_i, and a smaller one is a mean of sites. So a q
is two numbers a datum, and with Q = AᵀA and P = diag(p)

    Cov h = Σ = (Q⁻¹ + P)⁻¹,  E h = Σλ,  KL[q ‖ p] = ½ (log|I + QP| − Σ_i p_i Σ_ii + αᵀ E h),

where α = λ − P E h. If p ≥ 0 this needs the Cholesky factor of I + √P Q √P and one triangular
solve: a third of the seconds of the same step on ``q_sqrt``, where there are as many v as rows.
Rows of negative precision, as outliers of Student-t noise, are taken out of P and put back by a
factor of their own (Woodbury's identity).
"""

from typing import NamedTuple

import tensorflow as tf

from ..algebra.cholesky import cholesky_or_nan
from ..algebra.gaussian import Gaussian, naturals_to_q
from ..algebra.projection import Prior, Projection, summed_to, to_q
from ..algebra.terms import AtRows, Slopes, augmented_steps, concave, standard
from ..models import AugmentedModel
from .newton import CLOSED_FORM, LEAST_PRECISION, Kept, Sums


class Sites(NamedTuple):
    """q(v), as the Gaussian factor of every row."""

    natural: tf.Tensor  # [N, L], λ
    precision: tf.Tensor  # [N, L], p; it may be negative


class _Moments(NamedTuple):
    h: tf.Tensor  # [N, L], E h
    variance: tf.Tensor  # [N, L]
    kl: tf.Tensor  # []
    V: tf.Tensor  # [L, N, N], Σ = Q − VᵀV + WᵀW
    W: tf.Tensor  # [L, n, N], of the n rows of negative precision


class _Slopes(NamedTuple):
    """The slopes at some sites, with what a step needs besides."""

    value: tf.Tensor  # [], the ELBO
    in_mean: tf.Tensor  # [N, L]
    in_variance: tf.Tensor  # [N, L]
    h: tf.Tensor  # [N, L]


def gram(projection: Projection) -> tf.Tensor:
    """Q = AᵀA, [broadcast L, N, N]: the prior covariance of h."""
    return tf.matmul(projection.A, projection.A, transpose_a=True)


def _moments(Q: tf.Tensor, sites: Sites) -> _Moments:
    """The posterior of h; NaN, or TensorFlow's error, where it is none."""
    natural, precision = tf.transpose(sites.natural), tf.transpose(sites.precision)  # [L, N]
    root = tf.sqrt(tf.maximum(precision, 0.0))
    scaled = root[:, :, None] * Q
    eye = tf.eye(tf.shape(Q)[-1], dtype=Q.dtype)
    chol = tf.linalg.cholesky(eye + scaled * root[:, None, :])
    V = tf.linalg.triangular_solve(chol, scaled)
    of_root = tf.linalg.triangular_solve(chol, _times(V, natural)[..., None], adjoint=True)
    h = _times(Q, natural - root * of_root[..., 0])
    variance = tf.linalg.diag_part(Q) - _squares(V)
    # Σ = Σ₊ + Σ₊ D^½ (I − D^½ Σ₊ D^½)⁻¹ D^½ Σ₊, D of the rows with negative precision.
    rows = tf.where(tf.reduce_any(precision < 0.0, 0))[:, 0]
    d = tf.sqrt(tf.maximum(-tf.gather(precision, rows, axis=1), 0.0))[:, :, None]  # [L, n, 1]
    of_rows = tf.gather(Q, rows, axis=1) - tf.matmul(
        tf.gather(V, rows, axis=2), V, transpose_a=True
    )
    of_rows = d * of_rows  # D^½ Σ₊ [L, n, N]
    inner = tf.gather(of_rows, rows, axis=2) * tf.linalg.matrix_transpose(d)
    inner_chol = cholesky_or_nan(tf.eye(tf.size(rows), dtype=Q.dtype) - inner)
    W = tf.linalg.triangular_solve(inner_chol, of_rows)
    h += _times(tf.linalg.matrix_transpose(W), _times(W, natural))
    variance += _squares(W)
    log_det = 2.0 * sum(
        tf.reduce_sum(tf.math.log(tf.linalg.diag_part(each))) for each in (chol, inner_chol)
    )
    of_rows_kl = (natural - precision * h) * h - precision * variance
    kl = 0.5 * (log_det + tf.reduce_sum(of_rows_kl))
    return _Moments(tf.transpose(h), tf.transpose(variance), kl, V, W)


def sums_of_sites(
    model: AugmentedModel, projection: Projection, X: tf.Tensor, Y: tf.Tensor
) -> Sums:
    """What :func:`~gpflow_aaci.inference.newton.maximise` needs to search in the sites."""
    term, Q = model.term(standard), gram(projection)
    unexplained = tf.transpose(projection.unexplained)

    def newton(sites: Sites) -> tuple[_Slopes, AtRows]:
        found = _moments(Q, sites)
        Fmu, Fvar = projection.mean + found.h, unexplained + found.variance
        slopes = term.slopes(X, Fmu, Fvar, Y)
        own = _Slopes(slopes.value - found.kl, slopes.in_mean, slopes.in_variance, found.h)
        return own, AtRows(Fmu, Fvar, slopes)

    def safer(sites: Sites, kind: tf.Tensor, kept: Kept) -> _Slopes:
        assert kept
        Fmu, Fvar, slopes = kept
        # Both cost N and not N³. A branch for each, in a branch, in a loop, is what TensorFlow's
        # constant folding breaks for NoiseMixture: all results of the loop are then empty.
        closed = model.term(augmented_steps).slopes(X, Fmu, Fvar, Y)
        _, in_mean, in_variance = (
            tf.where(kind >= CLOSED_FORM, *pair)
            for pair in zip(closed, concave(slopes, LEAST_PRECISION), strict=True)
        )
        return _Slopes(slopes.value, in_mean, in_variance, Fmu - projection.mean)

    def moved(sites: Sites, slopes: _Slopes, part: tf.Tensor) -> Sites:
        target = step(slopes, slopes.h)
        return Sites(*((1.0 - part) * a + part * b for a, b in zip(sites, target, strict=True)))

    def of_one(sites: Sites, latent: tf.Tensor, other: Sites) -> Sites:
        is_moved = tf.equal(tf.range(tf.shape(sites.natural)[1]), latent)
        return Sites(*(tf.where(is_moved, b, a) for a, b in zip(sites, other, strict=True)))

    zeros = tf.zeros([tf.shape(X)[0], model.num_latent_gps], X.dtype)
    nothing = AtRows(zeros, zeros, Slopes(tf.zeros([], X.dtype), zeros, zeros))
    return Sums(
        newton,
        safer,
        None,
        nothing,
        empty=lambda zero, _: _Slopes(zero, zeros, zeros, zeros),
        elbo=lambda slopes, _: slopes.value,
        moved=moved,
        of_one=of_one,
    )


def step(slopes: "Slopes | _Slopes", h: tf.Tensor) -> Sites:
    """The sites after a natural-gradient step of size 1 from a q with mean h of Aᵀv."""
    precision = -2.0 * slopes.in_variance
    return Sites(slopes.in_mean + precision * h, precision)


def q_of_sites(projection: Projection, sites: Sites) -> Gaussian:
    """The q(v) of some sites."""
    natural, half = to_q(projection, sites.natural, 0.5 * sites.precision)
    eye = tf.eye(tf.shape(half)[-1], dtype=half.dtype)
    return naturals_to_q(natural, eye + 2.0 * half)


def to_prior_of_sites(prior: Prior, projection: Projection, sites: Sites, slopes: Slopes) -> Prior:
    """
    The gradients in the prior of the ELBO of fixed sites.

    They are exact for any sites. At the optimal ones the ELBO does not change with the sites, so
    that they are those of the profile; and nearer to them, from sites nearby, than at fixed q(v):
    Adam, Chang, Khan and Solin (2021). With R = I − ΣP, dE h = R dQ α and dΣ = R dQ Rᵀ. So

        dELBO = Σ_i ∂e_i/∂m_i dE h_i + Σ_i ∂e_i/∂v_i (dΣ_ii + dk_ii − dQ_ii) − dKL,
        dKL = ½ [tr(PR dQ) − Σ_i p_i dΣ_ii + (α − P E h)ᵀ dE h],  Q = K_XZ K_ZZ⁻¹ K_ZX.

    :param slopes: at these sites.
    """
    Q = gram(projection)
    found = _moments(Q, sites)
    covariance = Q - tf.matmul(found.V, found.V, transpose_a=True)
    covariance += tf.matmul(found.W, found.W, transpose_a=True)
    p, h, natural = (tf.transpose(part) for part in (sites.precision, found.h, sites.natural))
    in_mean, in_variance = tf.transpose(slopes.in_mean), tf.transpose(slopes.in_variance)  # [L, N]
    alpha = natural - p * h
    in_h = in_mean - 0.5 * alpha + 0.5 * p * h
    in_h = in_h - p * _times(covariance, in_h)  # Rᵀ times it
    outer = 0.5 * in_h[:, :, None] * alpha[:, None, :]
    R = tf.eye(tf.shape(Q)[-1], dtype=Q.dtype) - covariance * p[:, None, :]
    of_variance = tf.matmul(R, (in_variance + 0.5 * p)[:, :, None] * R, transpose_a=True)
    in_Q = of_variance + outer + tf.linalg.matrix_transpose(outer)
    in_Q += 0.5 * p[:, :, None] * covariance * p[:, None, :]
    in_Q -= tf.linalg.diag(in_variance + 0.5 * p)
    in_Q = tf.reduce_sum(in_Q, 0, keepdims=True)  # the latent GPs share the kernel
    weights = tf.linalg.triangular_solve(projection.chol, projection.A, adjoint=True)  # K_ZZ⁻¹K_ZX
    in_K_ZX = 2.0 * tf.matmul(weights, in_Q)
    return Prior(
        -0.5 * tf.matmul(in_K_ZX, weights, transpose_b=True),
        in_K_ZX,
        tf.reduce_sum(in_variance, 0, keepdims=True),
        summed_to(slopes.in_mean, prior.mean, axis=1),
    )


def _times(matrix: tf.Tensor, vectors: tf.Tensor) -> tf.Tensor:
    """matrix [broadcast L, R, N] times vectors [L, N]: [L, R]."""
    return tf.matmul(matrix, vectors[..., None])[..., 0]


def _squares(matrix: tf.Tensor) -> tf.Tensor:
    return tf.reduce_sum(tf.square(matrix), -2)
