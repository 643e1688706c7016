"""Steps on a q(v) whose precision has an arrow's shape, against those that take no note of it."""

import numpy as np
import pytest
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.kullback_leiblers import gauss_kl

from gpflow_aaci.algebra import arrow, gaussian
from gpflow_aaci.algebra.arrow import Arrow, BlockDiagonal
from gpflow_aaci.algebra.gaussian import Gaussian

F, G, L = 3, 5, 2


def precision(rng: np.random.Generator) -> AnyNDArray:
    """[L, F + G, F + G], whose last G variables are independent given the first F."""
    root = rng.normal(size=(L, F + G, F))
    Lambda = root @ root.swapaxes(-1, -2) + 2.0 * np.eye(F + G)
    diagonal = 9.0 + rng.random(size=(L, G))
    Lambda[:, F:, F:] = np.stack([np.diag(each) for each in diagonal])
    Lambda[:, :F, :F] += 9.0 * np.eye(F)
    return Lambda


def blocks(matrix: AnyNDArray) -> Arrow:
    diagonal = tf.linalg.diag_part(matrix[:, F:, F:])
    return Arrow(tf.constant(matrix[:, :F, :F]), tf.constant(matrix[:, F:, :F]), diagonal)


def some_q(rng: np.random.Generator) -> tuple[Gaussian, Gaussian]:
    """A q(v) in blocks, and with all entries."""
    naturals = rng.normal(size=(F + G, L)), precision(rng)
    return arrow.naturals_to_q(naturals[0], blocks(naturals[1])), gaussian.naturals_to_q(*naturals)


def assert_equal(found: Gaussian, expected: Gaussian) -> None:
    for one, other in zip(arrow.dense_q(found), expected, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-12)


def test_the_schur_complement_gives_the_q_of_these_natural_parameters() -> None:
    assert_equal(*some_q(np.random.default_rng(0)))


def test_its_naturals_its_divergence_and_its_covariance_are_those_of_all_entries() -> None:
    q, whole = some_q(np.random.default_rng(1))
    (lambda_1, Lambda_2), expected = arrow.q_to_naturals(q), gaussian.q_to_naturals(*whole)
    np.testing.assert_allclose(lambda_1, expected[0], atol=1e-12)
    np.testing.assert_allclose(arrow.dense(Lambda_2), expected[1], atol=1e-12)
    np.testing.assert_allclose(arrow.kl(q), gauss_kl(*whole), rtol=1e-12)
    S = blocks((whole.sqrt @ tf.linalg.matrix_transpose(whole.sqrt)).numpy())
    for one, other in zip(arrow.covariance(q.sqrt), S, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-12)


@pytest.mark.parametrize("part", [0.3, 1.0])
def test_a_step_leads_to_the_q_of_all_entries(part: float) -> None:
    rng = np.random.default_rng(2)
    q, whole = some_q(rng)
    a, B = rng.normal(size=(F + G, L)), -0.5 * precision(rng)
    target = arrow.optimal_naturals(q.mu, a, blocks(B))
    expected = gaussian.damped(*whole, *gaussian.optimal_naturals(whole.mu, a, B), part)
    assert_equal(arrow.averaged(arrow.q_to_naturals(q), target, part), expected)


def test_the_nearest_diagonal_q_is_that_of_all_entries() -> None:
    q, whole = some_q(np.random.default_rng(3))
    assert_equal(arrow.diagonal(q), gaussian.diagonal(*whole))


def test_a_factor_is_carried_over_to_another_prior_as_without_the_arrow() -> None:
    rng = np.random.default_rng(4)
    q, whole = some_q(rng)
    for size in (F, F - 1):
        dense = np.diag(rng.uniform(0.5, 1.5, size)) + np.tril(rng.normal(size=(size, size)))
        C = BlockDiagonal(dense[None], rng.uniform(0.5, 1.5, size=(1, F + G - size)))
        assert_equal(arrow.carried(q, C), gaussian.carried(*whole, arrow.dense(C)))


def test_the_arrow_with_the_same_covariances_has_the_lower_divergence_from_the_prior() -> None:
    rng = np.random.default_rng(5)
    sqrt = np.tril(np.eye(F + G) + 0.3 * rng.normal(size=(L, F + G, F + G)))
    q = Gaussian(tf.constant(rng.normal(size=(F + G, L))), tf.constant(sqrt))
    nearest = q._replace(sqrt=arrow.nearest_root(q.sqrt, F))
    S = blocks(sqrt @ sqrt.swapaxes(-1, -2))
    for one, other in zip(arrow.covariance(nearest.sqrt), S, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-12)
    assert float(arrow.kl(nearest)) < float(gauss_kl(*q)) - 0.1
    again = arrow.nearest_root(arrow.dense_q(nearest).sqrt, F)
    for one, other in zip(again, nearest.sqrt, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-12)
