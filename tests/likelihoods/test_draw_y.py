"""Draws of y from every likelihood follow its law, and probabilities are GPflow's."""

import gpflow
import numpy as np
import pytest
import scipy.integrate
import scipy.stats
import tensorflow as tf
from cases import AUGMENTED, BINARY, Case, case_id

from gpflow_aaci import likelihoods

DRAWS = 4_000


@pytest.mark.parametrize("case", [c for c in AUGMENTED if not c.is_binary], ids=case_id)
def test_draws_of_a_real_y_have_its_law(case: Case) -> None:
    """The Kolmogorov-Smirnov test uses the integrated textbook density."""
    F = tf.fill([DRAWS, 1], tf.constant(0.7, tf.float64))
    y = np.sort(case.make().draw_y(F, seed=[1, 2]).numpy().ravel())
    # The grid y = f + sinh t is fine at the centre and wide in the tails.
    t = np.linspace(-12.0, 12.0, 20_001)
    grid, jacobian = 0.7 + np.sinh(t), np.cosh(t)
    density = np.exp([case.log_density(value, 0.7) for value in grid]) * jacobian
    cdf = scipy.integrate.cumulative_trapezoid(density, t, initial=0.0)
    assert abs(cdf[-1] - 1.0) < 1e-2  # the heaviest tail extends beyond the grid
    assert scipy.stats.kstest(y, lambda v: np.interp(v, grid, cdf)).pvalue > 1e-3


@pytest.mark.parametrize("case", BINARY, ids=case_id)
def test_draws_of_labels_have_their_probability(case: Case) -> None:
    likelihood = case.make()
    F = tf.fill([DRAWS, 1], tf.constant(0.4, tf.float64))
    y = likelihood.draw_y(F, seed=[1, 2]).numpy()
    p = float(likelihood.invlink(0.4))
    odds = np.exp(case.log_density(1.0, 0.4) - case.log_density(-1.0, 0.4))
    np.testing.assert_allclose(p, odds / (1.0 + odds), rtol=1e-12)
    assert set(np.unique(y)) == {0.0, 1.0}
    assert abs(y.mean() - p) < 4.0 * np.sqrt(p * (1.0 - p) / DRAWS)


def test_invlink_is_that_of_gpflows_bernoulli() -> None:
    """It takes lists and arrays, too; GPflow's probit is limited to [0.001, 0.999]."""
    f = [-2.0, 0.0, 1.5]
    logistic = gpflow.likelihoods.Bernoulli(invlink=tf.sigmoid)
    theirs = logistic.invlink(tf.constant(f, tf.float64))
    np.testing.assert_allclose(likelihoods.Logistic().invlink(f), theirs, rtol=1e-12)
    probit = gpflow.likelihoods.Bernoulli().invlink(tf.constant(f, tf.float64))
    np.testing.assert_allclose(likelihoods.Probit().invlink(np.array(f)), probit, atol=2e-3)
    np.testing.assert_allclose(likelihoods.Probit().invlink(f), scipy.stats.norm.cdf(f), rtol=1e-12)


def test_df_that_is_learnt_leaves_y_a_mean() -> None:
    """df stays above 1 if it begins there. A smaller df is the user's choice, as is a transform."""
    ours = likelihoods.StudentT(df=3.0).df
    ours.unconstrained_variable.assign(-1e3)
    assert ours.numpy() > 1.0
    below = likelihoods.StudentT(df=0.8).df
    np.testing.assert_allclose(below, 0.8)
    own = gpflow.Parameter(3.0, transform=gpflow.utilities.positive())
    shared = likelihoods.StudentT(df=own).df
    shared.unconstrained_variable.assign(-5.0)
    assert shared is own
    assert shared.numpy() < 0.01
