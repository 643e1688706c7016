"""The search for q at fixed hyperparameters: which steps it takes, and when it ends."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.base import AnyNDArray

from gpflow_aaci import AugmentedSVGP, likelihoods, polish
from gpflow_aaci.algebra.gaussian import Gaussian
from gpflow_aaci.algebra.statistics import Statistics
from gpflow_aaci.data.rows import Arrays
from gpflow_aaci.inference.newton import Kept, Sums, maximise, sums_of_rows
from gpflow_aaci.inference.profile import Evaluation, Profile
from gpflow_aaci.models.shared import prior_q
from gpflow_aaci.runtime.compiled import forget_compiled


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


def waits() -> tuple[AnyNDArray, AnyNDArray]:
    """Waiting times whose rate is up to 20."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    rate = 20.0 / (1.0 + np.exp(5.0 - X @ [0.8, -0.5]))
    return X, rng.exponential(1.0 / rate)[:, None]


def of_rate(max_rate: float) -> AugmentedSVGP:
    """A model of their rate, with a wide prior of a line."""
    return AugmentedSVGP(
        gpflow.kernels.Linear(variance=[100.0, 100.0]) + gpflow.kernels.Constant(100.0),
        likelihoods.Exponential(max_rate),
        np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]),
        num_data=300,
    )


def test_it_leaves_a_wide_prior_where_a_rate_is_not_log_concave() -> None:
    """
    At the prior of a line of variance 100 the Newton matrix of a rate 20σ(f) is indefinite.

    The maximum that it finds from there is the one that it finds from a narrow q.
    """
    X, Y = waits()
    found = []
    for width in (1.0, 0.01):
        model = of_rate(20.0)
        model.q_sqrt.assign(width * model.q_sqrt)
        found.append(polish(model, (X, Y), progress=False).elbo)
    np.testing.assert_allclose(found[0], found[1], atol=1e-3)


@pytest.mark.slow
def test_safer_steps_are_traced_where_a_search_needs_one_and_change_no_other_search() -> None:
    """Where the rate is at most 1, Newton steps alone find the maximum."""
    forget_compiled()
    rows, q = Arrays(*map(tf.constant, waits())), prior_q(3, 1)

    def search(max_rate: float) -> tuple[Evaluation, bool]:
        model = of_rate(max_rate)
        profile = Profile(model, model.kernel.trainable_variables)
        return profile.evaluate(rows, q, 1e-6, 100), profile._evaluate._wary.is_traced()

    low, is_traced = search(1.0)
    assert not is_traced
    high, is_traced = search(20.0)
    assert is_traced
    model = of_rate(20.0)
    sums = sums_of_rows(model, model.project(rows.rows[0]), *rows.rows)
    by_hand = maximise(sums, q, 1e-6, 100, False)
    np.testing.assert_allclose(high.objective, by_hand.elbo, rtol=1e-9)
    assert high.steps == int(by_hand.steps)
    again, _ = search(1.0)
    assert again.objective == low.objective
    np.testing.assert_array_equal(again.gradient, low.gradient)
