r"""
The conditionals of the augmented model: f or v given ω, and the evidence given ω.

Given ω, y is equivalent to Gaussian observations ỹ = potential/precision of f, with variance
R = 1/precision. (Super-Gaussian likelihoods have potential g + βω and precision 2γω, AACI
Theorem 2.) So f given ω is a Gaussian process regressed on ỹ. No K⁻¹ is formed: K + R is well
conditioned where K is not.

Shapes: [C...] chains, [N] data, [M] inducing variables, [L] latent GPs, [P] columns of Y.
"""

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from check_shapes import check_shapes
from gpflow.base import TensorType
from gpflow.utilities import to_default_float

from ..algebra.projection import Projection, dense
from ..data import as_arrays
from ..likelihoods import AugmentedLikelihood
from ..models import AugmentedSVGP, AugmentedVGP


class PriorAtData(NamedTuple):
    """The latent GPs ~ N(mean, K) at the data."""

    mean: tf.Tensor  # [N, broadcast L]; 0, where a kernel mixes the latent GPs
    K: tf.Tensor  # [broadcast L, N, N], with GPflow's jitter
    chol: tf.Tensor  # [broadcast L, N, N], of K


def prior_at_data(model: AugmentedVGP) -> PriorAtData:
    """The prior of the latent GPs at the model's current hyperparameters."""
    X, _ = as_arrays(model.expected_data).rows
    K = model.prior_covariance()
    return PriorAtData(model.latent_mean(X), K, tf.linalg.cholesky(K))


class Observed(NamedTuple):
    """ỹ and its variance R: given ω the likelihood is N(ỹ | f, R) up to a factor free of f."""

    value: tf.Tensor  # [C..., L, N]
    variance: tf.Tensor  # [C..., L, N]


@check_shapes("Y: [broadcast C..., N, P]", "return[0]: [C..., L, N]", "return[1]: [C..., L, N]")
def pseudo_observations(
    likelihood: AugmentedLikelihood, X: TensorType, auxiliary: Any, Y: TensorType
) -> Observed:
    """The observations ỹ that stand for y, given the auxiliary variables."""
    return observed_of_site(*likelihood.site(X, auxiliary, Y))


def observed_of_site(potential: tf.Tensor, precision: tf.Tensor) -> Observed:
    """
    ỹ and R of e^{potential f − ½ precision f²}, both [C..., N, L].

    A precision so small that R would overflow says nothing about f, and is raised to a floor.
    """
    floor = np.finfo(precision.dtype.as_numpy_dtype).tiny ** 0.75
    precision = tf.linalg.matrix_transpose(tf.maximum(precision, tf.cast(floor, precision.dtype)))
    return Observed(tf.linalg.matrix_transpose(potential) / precision, 1.0 / precision)


@check_shapes("K: [broadcast L, N, N]", "variance: [C..., L, N]", "return: [C..., L, N, N]")
def cholesky_of_observations(K: TensorType, variance: TensorType) -> tf.Tensor:
    """chol(K + R)."""
    shape = tf.concat([tf.shape(variance), tf.shape(K)[-1:]], 0)
    diagonal = tf.linalg.diag_part(K) + variance
    return tf.linalg.cholesky(tf.linalg.set_diag(tf.broadcast_to(K, shape), diagonal))


@check_shapes("return[0]: [C..., N, L]", "return[1]: [C..., N, L]")
def f_given_omega(prior: PriorAtData, of_omega: Observed, seed: Any) -> tuple[tf.Tensor, tf.Tensor]:
    """
    The mean of p(f|ω, y), and a draw of f minus it.

    The mean is μ₀ + K (K + R)⁻¹ (ỹ − μ₀). The draw is by Matheron's rule: f₀ ~ N(0, K) minus its
    prediction from a noisy copy of itself, f₀ − K (K + R)⁻¹ (f₀ + R^½ε).
    """
    observed, variance = of_omega
    prior_mean = tf.transpose(prior.mean)
    seeds = tfp.random.split_seed(seed, n=2, salt="f_given_omega")
    f_0 = draw_of_prior(prior, tf.shape(observed), seeds[0])
    noise = tf.sqrt(variance) * normal(tf.shape(observed), seeds[1])
    residuals = tf.stack([observed - prior_mean, f_0 + noise], axis=-1)  # [C..., L, N, 2]
    solved = tf.linalg.cholesky_solve(cholesky_of_observations(prior.K, variance), residuals)
    explained = _times_shared(tf.linalg.matrix_transpose(solved), prior.K)  # [C..., L, 2, N]
    return (
        tf.linalg.matrix_transpose(prior_mean + explained[..., 0, :]),
        tf.linalg.matrix_transpose(f_0 - explained[..., 1, :]),
    )


def draw_of_prior(prior: PriorAtData, shape: TensorType, seed: Any) -> tf.Tensor:
    """A draw of f − mean, of the shape [C..., L, N]."""
    rows = normal(shape, seed)[..., None, :]
    return _times_shared(rows, tf.linalg.matrix_transpose(prior.chol))[..., 0, :]


@check_shapes("mean: [broadcast N, broadcast L]", "K: [broadcast L, N, N]", "return: [C...]")
def log_evidence_given_omega(mean: TensorType, K: TensorType, of_omega: Observed) -> tf.Tensor:
    """log N(ỹ | mean, K + R), which is log p(y|ω) up to terms free of the prior's parameters."""
    observed, variance = of_omega
    chol = cholesky_of_observations(K, variance)
    residual = (observed - tf.transpose(mean))[..., None]
    white = tf.linalg.triangular_solve(chol, residual)[..., 0]
    terms = 0.5 * tf.square(white) + tf.math.log(tf.linalg.diag_part(chol))
    return -tf.reduce_sum(terms, axis=[-2, -1])


def sparse_prior_at_data(model: AugmentedSVGP, X: tf.Tensor) -> Projection:
    """How f at X depends on v, at the model's current hyperparameters."""
    return of_each_latent(dense(model.project(X)), model.num_latent_gps)


def of_each_latent(prior: Projection, num_latent_gps: int) -> Projection:
    """The same projection with an A for every latent GP, [L, M, N]."""
    A = prior.A
    return prior._replace(A=tf.broadcast_to(A, tf.concat([[num_latent_gps], tf.shape(A)[1:]], 0)))


@check_shapes("return: [C...]")
def log_sparse_evidence_given_omega(prior: Projection, of_omega: Observed) -> tf.Tensor:
    """
    log N(ỹ | mean, AᵀA + D), D = diag(unexplained + R): p(ỹ) with v and f integrated out.

    With S⁻¹ = I + A D⁻¹Aᵀ and λ = A D⁻¹ r, Woodbury's identity gives the quadratic form as
    ‖D^−½ r‖² − λᵀSλ, and the determinant is |D| |S⁻¹|. It takes O(N·M²).
    """
    observed, variance = of_omega
    D = variance + prior.unexplained  # [C..., L, N]
    chol, lambda_1 = _posterior_of_v(prior, of_omega)
    white = (observed - tf.transpose(prior.mean)) / tf.sqrt(D)
    explained = tf.linalg.triangular_solve(chol, lambda_1)[..., 0]
    data = tf.square(white) + tf.math.log(D) + to_default_float(np.log(2.0 * np.pi))
    log_determinant = 2.0 * tf.reduce_sum(tf.math.log(tf.linalg.diag_part(chol)), -1)
    of_latents = tf.reduce_sum(data, -1) - tf.reduce_sum(tf.square(explained), -1) + log_determinant
    return -0.5 * tf.reduce_sum(of_latents, -1)


@check_shapes("return[0]: [C..., M, L]", "return[1]: [C..., M, L]")
def v_given_omega(prior: Projection, of_omega: Observed, seed: Any) -> tuple[tf.Tensor, tf.Tensor]:
    """The mean of p(v|ω, y), f integrated out, and a draw of v minus it."""
    chol, lambda_1 = _posterior_of_v(prior, of_omega)
    deviation = tf.linalg.triangular_solve(chol, normal(tf.shape(lambda_1), seed), adjoint=True)
    mean = tf.linalg.cholesky_solve(chol, lambda_1)
    return (
        tf.linalg.matrix_transpose(mean[..., 0]),
        tf.linalg.matrix_transpose(deviation[..., 0]),
    )


def _posterior_of_v(prior: Projection, of_omega: Observed) -> tuple[tf.Tensor, tf.Tensor]:
    """
    chol(S⁻¹) [C..., L, M, M] and S⁻¹ E[v] [C..., L, M, 1] of p(v|ω, y).

    ỹ_i | v ~ N(mean_i + A_iᵀ v, R_i + unexplained_i): S⁻¹ = I + A diag(precision) Aᵀ.
    """
    observed, variance = of_omega
    precision = 1.0 / (variance + prior.unexplained)  # [C..., L, N]
    A = prior.A
    weighted = precision * (observed - tf.transpose(prior.mean))
    rows = tf.concat([A * precision[..., None, :], weighted[..., None, :]], -2)
    products = _times_shared(rows, tf.transpose(A, [0, 2, 1]))  # [C..., L, M + 1, M]
    B, lambda_1 = products[..., :-1, :], products[..., -1, :, None]
    return tf.linalg.cholesky(B + tf.eye(tf.shape(A)[-2], dtype=B.dtype)), lambda_1


@check_shapes("v: [C..., M, L]", "return: [C..., N, L]")
def f_given_v_omega(prior: Projection, v: TensorType, of_omega: Observed, seed: Any) -> tf.Tensor:
    """A draw, in which f_i is regressed on its own ỹ_i: weight unexplained/(unexplained + R)."""
    observed, variance = map(tf.linalg.matrix_transpose, of_omega)
    unexplained = tf.transpose(prior.unexplained)
    weight = unexplained / (unexplained + variance)
    mean = f_mean(prior, v)
    return (
        mean
        + weight * (observed - mean)
        + tf.sqrt(weight * variance) * normal(tf.shape(mean), seed)
    )


def latent_column(values: tf.Tensor, latent: int) -> tf.Tensor:
    """The column [..., 1] of one latent GP, of ``values`` [..., broadcast L]."""
    return values if values.shape[-1] == 1 else values[..., latent : latent + 1]


def f_mean(prior: Projection, v: tf.Tensor) -> tf.Tensor:
    """mean + Aᵀ v, [C..., N, L]."""
    rows = tf.linalg.matrix_transpose(v)[..., None, :]  # [C..., L, 1, M]
    return prior.mean + tf.linalg.matrix_transpose(_times_shared(rows, prior.A)[..., 0, :])


def _times_shared(rows: tf.Tensor, shared: tf.Tensor) -> tf.Tensor:
    """
    [C..., L, R, N] times [broadcast L, N, K], by one product for each matrix and all chains.

    (TensorFlow's own broadcasting makes many small products; in float32 it can crash in oneDNN.)
    """
    if shared.shape[0] == 1:
        return tf.tensordot(rows, shared[0], 1)
    shape = tf.shape(rows)
    P, N, K = shared.shape
    flat = tf.transpose(tf.reshape(rows, [-1, P, shape[-2], N]), [1, 0, 2, 3])
    product = tf.matmul(tf.reshape(flat, [P, -1, N]), shared)
    product = tf.transpose(tf.reshape(product, [P, -1, shape[-2], K]), [1, 0, 2, 3])
    return tf.reshape(product, tf.concat([shape[:-1], [K]], 0))


def normal(shape: Any, seed: Any) -> tf.Tensor:
    """Standard normal variables of ``default_float()``."""
    seed = tfp.random.sanitize_seed(seed, salt="gibbs_normal")
    zero = to_default_float(0.0)
    return tf.random.stateless_normal(shape, seed, dtype=zero.dtype)
