"""Gradients by the score function, against quadrature and the estimator of any Gaussian q."""

import numpy as np
import tensorflow as tf

from gpflow_aaci import likelihoods
from gpflow_aaci.contrib.score_function import score_expectations

N, REPEATS, DRAWS = 12, 400, 10
RNG = np.random.default_rng(0)
X = np.zeros((N, 1))
Y, FMU, FVAR = RNG.normal(size=(N, 1)), RNG.normal(size=(N, 1)), RNG.uniform(0.2, 2.0, size=(N, 1))


def test_draws_of_each_f_alone_give_gradients_that_vary_less_than_those_of_all_f() -> None:
    """
    Theorem 3 of Nguyen and Bonilla (2014), for a q of diagonal covariance.

    The estimator for any Gaussian q multiplies the score of a datum's mean or variance by the log
    densities of all data; both have the same expectation.
    """
    likelihood = likelihoods.StudentT(scale=0.5, df=4.0)
    at = [tf.constant(FMU), tf.constant(FVAR)]

    @tf.function(autograph=False)
    def of_each() -> tf.Tensor:
        with tf.GradientTape() as tape:
            tape.watch(at)
            value = tf.reduce_sum(score_expectations(likelihood, X, *at, Y, DRAWS, False))
        return tf.concat(tape.gradient(value, at), -1)

    tf.random.set_seed(1)
    own = np.array([of_each() for _ in range(REPEATS)])  # [REPEATS, N, 2]
    z = RNG.normal(size=(REPEATS, DRAWS, N, 1))
    f = FMU + np.sqrt(FVAR) * z
    log_p = likelihood.log_prob(*(np.broadcast_to(part, f.shape) for part in (X, f, Y))).numpy()
    of_all = log_p.sum(-1)[..., None, None]
    scores = np.concatenate([z / np.sqrt(FVAR), (z**2 - 1.0) / (2.0 * FVAR)], -1)
    general = (of_all * scores).mean(1)

    with tf.GradientTape() as tape:
        tape.watch(at)
        value = tf.reduce_sum(likelihood.variational_expectations(X, *at, Y))
    exact = tf.concat(tape.gradient(value, at), -1).numpy()
    for estimates in (own, general):
        error = estimates.std(0) / np.sqrt(REPEATS)
        assert np.all(np.abs(estimates.mean(0) - exact) < 5.0 * error)
    assert np.all(own.var(0) < general.var(0))
    assert np.mean(own.var(0) / general.var(0)) < 0.5
