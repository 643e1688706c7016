"""How far to trust a fitted q(f): importance sampling of the exact posterior from it."""

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import AnyNDArray
from gpflow.config import default_float

from .data import as_arrays
from .models import AugmentedVGP
from .validation import check_count

__all__ = ["importance_weights", "psis_khat"]

_FEWEST_SAMPLES = 25  # the tail is a fifth of the samples, and ArviZ needs five of them to fit it


def psis_khat(model: AugmentedVGP, num_samples: int = 2000, seed: int = 0) -> float:
    """
    Pareto k̂ of importance sampling the exact posterior p(f|y) from q(f).

    A larger k̂ means a heavier tail of p(f|y)/q(f) (Yao et al. 2018, "Yes, but did it work?").
    Below 0.5 q is good, from 0.5 to 0.7 usable, and above 0.7 unreliable. The hyperparameters are
    fixed at their values. k̂ is −inf if all weights are equal up to rounding, as q is then exact,
    and +inf if all weights except a few underflow.

    k̂ judges the joint q(f) at all data, and so becomes stricter with more data: q may have a k̂
    above 0.7 and still have good marginals, which are all that predictions need. It also judges
    the shape of the tail, not its weight: where all weights (:func:`importance_weights`) agree
    within a few per cent, q is good for any k̂.

    :param num_samples: at least 25; a k̂ that is accurate to 0.1 needs several hundred.
    :param seed: the same seed gives the same k̂.
    :raises ValueError: as :func:`importance_weights`.
    :raises ImportError: without ArviZ, which computes k̂.
    """
    import arviz  # here, as it is slow to import

    _, log_weights = importance_weights(model, num_samples, seed)
    # If the weights agree in half the digits, the tail is rounding error. (ArviZ returns +inf.)
    if np.ptp(log_weights) <= np.sqrt(np.finfo(default_float()).eps):
        return -np.inf
    return float(arviz.psislw(log_weights)[1])


@check_shapes("return[0]: [S, N, L]", "return[1]: [S]")
def importance_weights(
    model: AugmentedVGP, num_samples: int = 2000, seed: int = 0
) -> tuple[AnyNDArray, AnyNDArray]:
    """
    Draw S samples f ~ q(f) at the data, and compute log p(y|f) + log p(f) − log q(f) of each.

    As f = L v + mean function with v ~ N(q_mu, q_sqrt q_sqrtᵀ) and L = chol(K + jitter I), the
    ratio of p and q is the same for v. The model's marginals differ from this f's marginals by
    about the jitter: they use Aᵀ = (L − jitter L⁻ᵀ) and add k_ii − ‖A_i‖². The mean of the
    weights is an unbiased estimate of p(y) for every q.

    :param num_samples: S ≥ 25.
    :param seed: the same seed gives the same draws.
    :return: the draws and their log weights.
    :raises ValueError: for a model of another class, bad arguments, or a weight that is not finite.
    """
    if not isinstance(model, AugmentedVGP):
        raise ValueError(
            "model must be an AugmentedVGP, whose q is over f at every datum. "
            f"Found: {type(model).__name__}."
        )
    check_count("num_samples", num_samples, _FEWEST_SAMPLES)
    check_count("seed", seed, 0)

    X, Y = as_arrays(model.expected_data).rows
    q_mu, q_sqrt = tf.convert_to_tensor(model.q_mu), tf.convert_to_tensor(model.q_sqrt)
    N, P = q_mu.shape
    noise = tf.random.stateless_normal([P, N, num_samples], [seed, 0], dtype=q_mu.dtype)
    v = tf.transpose(q_mu)[:, :, None] + tf.matmul(q_sqrt, noise)  # [L, N, S]
    f = tf.matmul(tf.linalg.cholesky(model.prior_covariance()), v)
    F = tf.transpose(f, [2, 1, 0])  # [S, N, L], of the latent GPs
    if model.mixing is not None:
        F = tf.tensordot(F, tf.convert_to_tensor(model.mixing), [[-1], [1]])
    F += model.mean_function(X)

    def total(value: tf.Tensor) -> tf.Tensor:
        """Sum over all axes except the draws, in float64, as float32 would lose digits."""
        return tf.reduce_sum(tf.cast(value, tf.float64), [0, 1])

    log_likelihood = model.likelihood.log_prob(X, F, Y)  # [S, N]
    log_det = tf.reduce_sum(tf.math.log(tf.abs(tf.cast(tf.linalg.diag_part(q_sqrt), tf.float64))))
    log_ratio = 0.5 * (total(tf.square(noise)) - total(tf.square(v))) + log_det  # log p(v)/q(v)
    log_weights = total(tf.transpose(log_likelihood)[None]) + log_ratio
    if not np.all(np.isfinite(log_weights)):
        raise ValueError(
            "model must have a q of full rank, and a likelihood that is positive under it: "
            f"log weights must be finite. Found: {np.sum(~np.isfinite(log_weights))} that are not."
        )
    return F.numpy(), log_weights.numpy()
