r"""
Lower bounds on the entropy of q = 1/K Σ_k N(m_k, diag S_k), which has no closed form.

Both compare all pairs of components. Jensen's bound loses ½ (1 − log 2) per dimension, even at
K = 1 and where components are far apart. The other bound is exact at K = 1, where all components
are equal, and in the limit where they are far apart.
"""

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import TensorType


@check_shapes("mean: [K, D]", "variance: [K, D]", "return: []")
def entropy_by_jensen(mean: TensorType, variance: TensorType) -> tf.Tensor:
    """
    H[q] ≥ −1/K Σ_k log 1/K Σ_l N(m_k | m_l, S_k + S_l).

    The bound uses E_k log q ≤ log E_k q (Nguyen and Bonilla, NIPS 2014).
    """
    quadratic, log_det = _of_pairs(mean, variance)
    log_2pi = tf.cast(mean.shape[1] * np.log(2.0 * np.pi), quadratic.dtype)
    return -_mean_log_mean_exp(-0.5 * (log_2pi + log_det + quadratic))


@check_shapes("mean: [K, D]", "variance: [K, D]", "return: []")
def entropy_by_pairs(mean: TensorType, variance: TensorType) -> tf.Tensor:
    """
    H[q] ≥ 1/K Σ_k H_k − 1/K Σ_k log 1/K Σ_l exp(−B_kl), B_kl the Bhattacharyya distance.

    Kolchinsky and Tracey, *Estimating Mixture Entropy with Pairwise Distances* (Entropy, 2017),
    with the Chernoff divergence of α = ½.
    """
    quadratic, log_det = _of_pairs(mean, variance)
    log_S = tf.reduce_sum(tf.math.log(variance), 1)  # [K]
    log_2, log_2pi_e = (
        tf.cast(mean.shape[1] * constant, quadratic.dtype)
        for constant in (np.log(2.0), np.log(2.0 * np.pi * np.e))
    )
    distance = 0.25 * quadratic + 0.5 * (log_det - log_2) - 0.25 * (log_S[:, None] + log_S)
    return 0.5 * (log_2pi_e + tf.reduce_mean(log_S)) - _mean_log_mean_exp(-distance)


@check_shapes("mean: [K, D]", "variance: [K, D]", "return: []")
def mean_log_normal(mean: TensorType, variance: TensorType) -> tf.Tensor:
    """E log N(v | 0, I) under q."""
    log_2pi = tf.cast(np.log(2.0 * np.pi), variance.dtype)
    return -0.5 * tf.reduce_mean(tf.reduce_sum(tf.square(mean) + variance + log_2pi, 1))


def _of_pairs(mean: TensorType, variance: TensorType) -> tuple[tf.Tensor, tf.Tensor]:
    """(m_k − m_l)ᵀ T⁻¹ (m_k − m_l) and log |T|, T = S_k + S_l; both [K, K]."""
    T = variance[:, None] + variance
    quadratic = tf.reduce_sum(tf.square(mean[:, None] - mean) / T, -1)
    return quadratic, tf.reduce_sum(tf.math.log(T), -1)


def _mean_log_mean_exp(values: tf.Tensor) -> tf.Tensor:
    """1/K Σ_k log 1/K Σ_l exp(values_kl), []."""
    K = tf.cast(tf.shape(values)[1], values.dtype)
    return tf.reduce_mean(tf.reduce_logsumexp(values, 1)) - tf.math.log(K)
