"""A projection that keeps the entries of K_ZX alone, against the one with all of K_ZX."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from gpflow.kernels import Matern32

from gpflow_aaci import AugmentedSVGP, effects, likelihoods
from gpflow_aaci.algebra import arrow
from gpflow_aaci.algebra.projection import dense, marginals, project, to_q
from gpflow_aaci.algebra.terms import augmented_bound
from gpflow_aaci.inference.bound_gradient import bound_gradient, recorded

N, L = 40, 2
RNG = np.random.default_rng(0)
X = np.column_stack(
    [RNG.normal(size=N), RNG.integers(0, 6, size=N), RNG.integers(0, 4, size=N), RNG.normal(size=N)]
)
X[3, 1] = 9.0  # a group that the model does not know
Y = RNG.normal(size=(N, L))
Z = np.linspace(-2.0, 2.0, 5)[:, None] * np.eye(1, 4)


def model(*columns: int) -> AugmentedSVGP:
    """With the effects of the groups in these columns before a linear one, and q(v) of any kind."""
    groups = [effects.Grouped(column, 0.5 + column, levels=np.arange(6.0)) for column in columns]
    made = AugmentedSVGP(
        Matern32(1.3, 0.8, active_dims=[0]),
        likelihoods.Laplace(),
        Z,
        num_latent_gps=L,
        num_data=N,
        effects=[*groups, effects.Linear([3], variance=0.4)],
    )
    M = made.q_mu.shape[0]
    made.q_mu.assign(RNG.normal(size=(M, L)))
    made.q_sqrt.assign(np.tril(np.eye(M) + 0.1 * RNG.normal(size=(L, M, M))))
    return made


@pytest.mark.briefly("columns1")
@pytest.mark.parametrize("columns", [(1,), (1, 2)])
def test_the_entries_alone_give_the_marginals_the_sums_and_the_gradient(columns: Any) -> None:
    of = model(*columns)
    term, q = of.term(augmented_bound), of.whitened_q(None)
    compact = of.project(tf.constant(X))
    prior = of.prior(tf.constant(X))._replace(entries=None, K_ZZ=of.prior_covariance())
    whole = project(prior._replace(K_ZX=of.cross_covariance(X)[0]))

    np.testing.assert_allclose(dense(compact).A, whole.A, atol=1e-12)
    np.testing.assert_allclose(compact.explained, whole.explained, atol=1e-12)
    np.testing.assert_allclose(compact.unexplained, whole.unexplained, atol=1e-12)
    for found, expected in zip(marginals(compact, *q), marginals(whole, *q), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-12)
    slopes = RNG.normal(size=(N, L)), RNG.normal(size=(N, L))
    for found, expected in zip(to_q(compact, *slopes), to_q(whole, *slopes), strict=True):
        np.testing.assert_allclose(arrow.dense(found), expected, atol=1e-11)

    variables = of.kernel.trainable_variables
    found = bound_gradient(term, variables, recorded(of.prior, tf.constant(X)), q, X, Y)
    with tf.GradientTape() as tape:
        K_ZZ = of.prior_covariance()
        K_ZX, k_diag = of.cross_covariance(X)
        A = tf.linalg.triangular_solve(tf.linalg.cholesky(K_ZZ), K_ZX)
        Fvar = k_diag - tf.reduce_sum(tf.square(A), 1)
        Fvar += tf.reduce_sum(tf.square(tf.matmul(q.sqrt, A, transpose_a=True)), 1)
        Fmu = tf.transpose(tf.squeeze(tf.matmul(A, tf.transpose(q.mu)[..., None], True), -1))
        value = tf.reduce_sum(term.of_each(X, Fmu, tf.transpose(Fvar), Y))
    expected = tape.gradient(value, variables)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-8)
