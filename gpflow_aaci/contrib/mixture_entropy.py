r"""
Lower bounds on the entropy of q = 1/K Σ_k N(m_k, S_k), which has no closed form.

Both compare all pairs of components. Jensen's bound loses ½ (1 − log 2) per dimension, even at
K = 1 and where components are far apart. The other bound is exact at K = 1, where all components
are equal, and in the limit where they are far apart.

Means are [K, N, L]. S_k is block diagonal over L, and given by its root R, S = R Rᵀ: [K, N, L]
where it is diagonal, else [K, L, N, N], lower triangular.
"""

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import TensorType


@check_shapes("mean: [K, N, L]", "root: [K, ...]", "return: []")
def entropy_by_jensen(mean: TensorType, root: TensorType) -> tf.Tensor:
    """
    H[q] ≥ −1/K Σ_k log 1/K Σ_l N(m_k | m_l, S_k + S_l).

    The bound uses E_k log q ≤ log E_k q (Nguyen and Bonilla, NIPS 2014).
    """
    quadratic, log_det = _of_pairs(mean, root)
    log_2pi = _for_all(mean, np.log(2.0 * np.pi))
    return -_mean_log_mean_exp(-0.5 * (log_2pi + log_det + quadratic))


@check_shapes("mean: [K, N, L]", "root: [K, ...]", "return: []")
def entropy_by_pairs(mean: TensorType, root: TensorType) -> tf.Tensor:
    """
    H[q] ≥ 1/K Σ_k H_k − 1/K Σ_k log 1/K Σ_l exp(−B_kl), B_kl the Bhattacharyya distance.

    Kolchinsky and Tracey, *Estimating Mixture Entropy with Pairwise Distances* (Entropy, 2017),
    with the Chernoff divergence of α = ½.
    """
    quadratic, log_det = _of_pairs(mean, root)
    is_diagonal = _is_diagonal(root)
    log_S = _log_det(tf.linalg.diag(root) if is_diagonal else root)  # [K]
    log_2, log_2pi_e = (_for_all(mean, np.log(value)) for value in (2.0, 2.0 * np.pi * np.e))
    distance = 0.25 * quadratic + 0.5 * (log_det - log_2) - 0.25 * (log_S[:, None] + log_S)
    return 0.5 * (log_2pi_e + tf.reduce_mean(log_S)) - _mean_log_mean_exp(-distance)


@check_shapes("mean: [K, N, L]", "root: [K, ...]", "return: []")
def mean_log_normal(mean: TensorType, root: TensorType) -> tf.Tensor:
    """E log N(v | 0, I) under q."""
    squares = tf.reduce_sum(tf.square(mean)) + tf.reduce_sum(tf.square(root))
    of_each = squares / tf.cast(tf.shape(mean)[0], mean.dtype)
    return -0.5 * (of_each + _for_all(mean, np.log(2.0 * np.pi)))


def _is_diagonal(root: TensorType) -> bool:
    return len(root.shape) == 3


def _for_all(mean: TensorType, constant: float) -> tf.Tensor:
    """A constant for every dimension of v."""
    return tf.cast(mean.shape[1] * mean.shape[2] * constant, mean.dtype)


def _of_pairs(mean: TensorType, root: TensorType) -> tuple[tf.Tensor, tf.Tensor]:
    """(m_k − m_l)ᵀ T⁻¹ (m_k − m_l) and log |T|, T = S_k + S_l; both [K, K]."""
    apart = mean[:, None] - mean  # [K, K, N, L]
    if _is_diagonal(root):
        S = tf.square(root)
        T = S[:, None] + S
        return tf.reduce_sum(tf.square(apart) / T, [2, 3]), tf.reduce_sum(tf.math.log(T), [2, 3])
    # T = UᵀU with the roots one above the other, [R_kᵀ; R_lᵀ] = QU: S itself has lost digits.
    K, adjoint = mean.shape[0], tf.linalg.matrix_transpose(root)
    first, second = np.triu_indices(K, 1)
    stacked = [tf.gather(adjoint, first), tf.gather(adjoint, second)]
    U = tf.linalg.qr(tf.concat(stacked, -2)).r  # [pairs, L, N, N]
    apart = tf.linalg.matrix_transpose(tf.gather_nd(apart, np.stack([first, second], 1)))
    white = tf.linalg.triangular_solve(U, apart[..., None], lower=False, adjoint=True)
    of_pairs = tf.reduce_sum(tf.square(white), [1, 2, 3]), _log_det(U)
    places = np.concatenate([np.stack([first, second], 1), np.stack([second, first], 1)])
    quadratic, log_det = (
        tf.scatter_nd(places, tf.concat([each, each], 0), [K, K]) for each in of_pairs
    )
    of_each = _log_det(root) + _for_all(mean, np.log(2.0))
    return quadratic, log_det + tf.linalg.diag(of_each)


def _log_det(root: tf.Tensor) -> tf.Tensor:
    """log |R Rᵀ| [B] of triangular roots [B, L, N, N]."""
    return 2.0 * tf.reduce_sum(tf.math.log(tf.abs(tf.linalg.diag_part(root))), [1, 2])


def _mean_log_mean_exp(values: tf.Tensor) -> tf.Tensor:
    """1/K Σ_k log 1/K Σ_l exp(values_kl), []."""
    K = tf.cast(tf.shape(values)[1], values.dtype)
    return tf.reduce_mean(tf.reduce_logsumexp(values, 1)) - tf.math.log(K)
