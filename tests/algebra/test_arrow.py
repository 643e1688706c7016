"""Steps on a q(v) whose precision has an arrow's shape, against those that take no note of it."""

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray

from gpflow_aaci.algebra import arrow, gaussian

F, G, L = 3, 5, 2


def precision(rng: np.random.Generator) -> AnyNDArray:
    """[L, F + G, F + G], whose last G variables are independent given the first F."""
    root = rng.normal(size=(L, F + G, F))
    Lambda = root @ root.swapaxes(-1, -2) + 2.0 * np.eye(F + G)
    diagonal = 9.0 + rng.random(size=(L, G))
    Lambda[:, F:, F:] = np.stack([np.diag(each) for each in diagonal])
    Lambda[:, :F, :F] += 9.0 * np.eye(F)
    return Lambda


def test_the_schur_complement_gives_the_q_of_these_natural_parameters() -> None:
    rng = np.random.default_rng(0)
    naturals = rng.normal(size=(F + G, L)), precision(rng)
    q, expected = arrow.naturals_to_q(*naturals, F), gaussian.naturals_to_q(*naturals)
    np.testing.assert_allclose(q.mu, expected.mu, atol=1e-12)
    np.testing.assert_allclose(q.sqrt, expected.sqrt, atol=1e-12)


def test_a_factor_is_carried_over_to_another_prior_as_without_the_arrow() -> None:
    rng = np.random.default_rng(1)
    q = gaussian.naturals_to_q(rng.normal(size=(F + G, L)), precision(rng))
    C = np.diag(rng.uniform(0.5, 1.5, size=F + G))
    C[:F, :F] += np.tril(rng.normal(size=(F, F)))
    found, expected = arrow.carried(q, C[None], F), gaussian.carried(*q, C[None])
    np.testing.assert_allclose(found.mu, expected.mu, atol=1e-12)
    np.testing.assert_allclose(found.sqrt, expected.sqrt, atol=1e-12)


def test_a_q_without_that_shape_is_told_from_one_that_has_it() -> None:
    rng = np.random.default_rng(2)
    q = gaussian.naturals_to_q(rng.normal(size=(F + G, L)), precision(rng))
    exact = arrow.naturals_to_q(rng.normal(size=(F + G, L)), precision(rng), F)
    sqrt = exact.sqrt.numpy()
    sqrt[1, -1, -2] = 0.1
    assert arrow.is_arrow(exact, F)
    assert not arrow.is_arrow(q._replace(sqrt=tf.constant(sqrt)), F)
