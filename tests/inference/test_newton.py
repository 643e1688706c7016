"""The search for q at fixed hyperparameters: which steps it takes, and when it ends."""

import gpflow
import numpy as np
import tensorflow as tf

from gpflow_aaci import AugmentedSVGP, likelihoods, polish
from gpflow_aaci.algebra.gaussian import Gaussian
from gpflow_aaci.algebra.statistics import Statistics
from gpflow_aaci.inference.newton import Kept, Sums, maximise, sums_of_rows


def test_at_the_maximum_a_loss_by_rounding_costs_one_evaluation_and_no_safer_step() -> None:
    """Each evaluation is 1e-4 nats lower than the one before, as by float32, at least gain 0.01."""
    rng = np.random.default_rng(0)
    X = tf.constant(rng.normal(size=(60, 1)))
    Y = tf.sin(2.0 * X) + 0.3 * rng.standard_t(4, X.shape)
    model = AugmentedSVGP(gpflow.kernels.Matern32(), likelihoods.StudentT(), X[:10].numpy())
    exact = sums_of_rows(model, model.project(X), X, Y)
    q = Gaussian(tf.zeros([10, 1], X.dtype), tf.eye(10, batch_shape=[1], dtype=X.dtype))
    best = maximise(exact, q, 1e-10, 50, False)
    calls: list[str] = []

    def newton(q: Gaussian) -> tuple[Statistics, tuple[()]]:
        calls.append("newton")
        sums, _ = exact.newton(q)
        return sums._replace(value=sums.value - 1e-4 * len(calls)), ()

    def safer(q: Gaussian, kind: tf.Tensor, kept: Kept) -> Statistics:
        calls.append("safer")
        return exact.safer(q, kind, kept)

    end = maximise(Sums(newton, safer, None), best.q, 1e-2, 20, False)
    assert calls == ["newton", "newton"]
    np.testing.assert_array_equal(end.q.mu, best.q.mu)
    # From elsewhere it climbs to the same maximum.
    end = maximise(Sums(newton, safer, None), q, 1e-2, 20, False)
    np.testing.assert_allclose(float(end.elbo), float(best.elbo), atol=2e-2)


def test_a_search_that_cannot_reach_what_is_wanted_ends_early_and_nearly_right() -> None:
    rng = np.random.default_rng(1)
    X = tf.constant(rng.normal(size=(200, 2)))
    Y = tf.sin(2.0 * X[:, :1]) + 0.3 * rng.standard_t(4, (200, 1))
    model = AugmentedSVGP(gpflow.kernels.Matern32(), likelihoods.StudentT(), X[:20].numpy())
    sums = sums_of_rows(model, model.project(X), X, Y)
    q = Gaussian(tf.zeros([20, 1], X.dtype), tf.eye(20, batch_shape=[1], dtype=X.dtype))
    best = maximise(sums, q, 1e-6, 50, False)
    in_reach = maximise(sums, q, 1e-6, 50, False, wanted=best.elbo - 0.1)
    assert int(in_reach.steps) == int(best.steps)
    np.testing.assert_array_equal(in_reach.elbo, best.elbo)
    for missing in (3.0, 30.0, 300.0):
        end = maximise(sums, q, 1e-6, 50, False, wanted=best.elbo + missing)
        assert int(end.steps) < int(best.steps)
        assert 0.0 <= float(best.elbo - end.elbo) < 0.1 * missing


def test_it_leaves_a_wide_prior_where_a_rate_is_not_log_concave() -> None:
    """
    At the prior of a line of variance 100 the Newton matrix of a rate 20σ(f) is indefinite.

    The maximum that it finds from there is the one that it finds from a narrow q.
    """
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    rate = 20.0 / (1.0 + np.exp(5.0 - X @ [0.8, -0.5]))
    Y = rng.exponential(1.0 / rate)[:, None]
    found = []
    for width in (1.0, 0.01):
        model = AugmentedSVGP(
            gpflow.kernels.Linear(variance=[100.0, 100.0]) + gpflow.kernels.Constant(100.0),
            likelihoods.Exponential(max_rate=20.0),
            np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]),
            num_data=len(X),
        )
        model.q_sqrt.assign(width * model.q_sqrt)
        found.append(polish(model, (X, Y), progress=False).elbo)
    np.testing.assert_allclose(found[0], found[1], atol=1e-3)
