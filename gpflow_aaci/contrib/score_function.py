r"""
E log p(y|f) for f ~ N(m, v) by draws, and its gradients in m and v from values of log p alone.

∂E/∂m = E[log p(y|f) s], s = ∂ log N(f|m, v)/∂m, and likewise for v: the score function, or
REINFORCE.
"""

import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import TensorType
from gpflow.likelihoods import Likelihood

from ..likelihoods.integrals.quadrature import safe_sqrt


@check_shapes("X: [N, D]", "Fmu: [N, L]", "Fvar: [N, L]", "Y: [N, P]", "return: [N]")
def score_expectations(
    likelihood: Likelihood,
    X: TensorType,
    Fmu: TensorType,
    Fvar: TensorType,
    Y: TensorType,
    num_samples: int,
    control_variates: bool = True,
) -> tf.Tensor:
    r"""
    The mean of log p(y|f) over ``num_samples`` draws; differentiable in Fmu, Fvar and parameters.

    Values and gradients are unbiased and change from call to call. The likelihood needs
    only ``log_prob``, without its derivative in f. Draws are from ``tf.random.normal``.

    With control variates each draw's term is (log p − a) s. The scalar a = E[log p s²]/E[s²]
    minimises the term's variance (Nguyen and Bonilla, NIPS 2014; Ranganath et al. 2014); mean and
    variance of every datum and latent GP each have their own a. For each draw, a is estimated from
    all other draws, so it is independent of this draw; since E s = 0, the gradient stays unbiased.
    (With an a estimated from all draws it would be biased.)
    """
    S, N = num_samples, tf.shape(Fmu)[0]
    sd = tf.stop_gradient(safe_sqrt(Fvar))
    z = tf.random.normal(tf.concat([[S], tf.shape(Fmu)], 0), dtype=sd.dtype)
    f = tf.stop_gradient(Fmu) + sd * z  # [S, N, L]
    # As the rows of a matrix, since some likelihoods of GPflow take nothing else.
    rows = (tf.tile(X, [S, 1]), tf.reshape(f, [-1, Fmu.shape[1]]), tf.tile(Y, [S, 1]))
    log_p = tf.reshape(likelihood.log_prob(*rows), [S, N])

    def slope(score: tf.Tensor) -> tf.Tensor:
        centred, weight = tf.stop_gradient(log_p)[:, :, None], tf.square(score)
        if control_variates:
            others = tf.reduce_sum(weight, 0) - weight
            centred -= (tf.reduce_sum(weight * centred, 0) - weight * centred) / others
        return tf.reduce_mean(centred * score, 0)

    in_mean = slope(z) / sd
    in_variance = slope(tf.square(z) - 1.0) / (2.0 * tf.square(sd))
    # The carrier is zero, and has these gradients.
    carrier = in_mean * (Fmu - tf.stop_gradient(Fmu))
    carrier += in_variance * (Fvar - tf.stop_gradient(Fvar))
    return tf.reduce_mean(log_p, 0) + tf.reduce_sum(carrier, -1)
