"""Rows of X as inducing points: far from each other, or where f is least known from the others."""

import gpflow
import numpy as np
import pytest
from gpflow.base import AnyNDArray

from gpflow_aaci import kmeans_plusplus
from gpflow_aaci.inducing import greedy_variance, kmeans
from gpflow_aaci.kernels import Categorical


def test_every_cluster_gets_a_point() -> None:
    rng = np.random.default_rng(0)
    centres = 100.0 * rng.normal(size=(12, 3))
    X = (centres[:, None] + rng.normal(size=(12, 40, 3))).reshape(-1, 3)
    Z = kmeans_plusplus(X, 12, seed=3)
    nearest = np.argmin(((Z[:, None] - centres) ** 2).sum(-1), axis=1)
    assert sorted(nearest) == list(range(12))
    assert {tuple(z) for z in Z} <= {tuple(x) for x in X}
    np.testing.assert_array_equal(Z, kmeans_plusplus(X, 12, seed=3))


def test_duplicated_rows_are_taken_once() -> None:
    X = np.repeat(np.arange(5.0)[:, None], 20, axis=0)
    assert sorted(kmeans_plusplus(X, 5).ravel()) == [0.0, 1.0, 2.0, 3.0, 4.0]


@pytest.mark.parametrize("num_inducing", [0, 6])
def test_too_many_or_too_few_are_refused(num_inducing: int) -> None:
    X = np.repeat(np.arange(5.0)[:, None], 20, axis=0)
    with pytest.raises(ValueError, match=rf"from 1 to the 5 distinct rows.*{num_inducing}"):
        kmeans_plusplus(X, num_inducing)


@pytest.mark.parametrize("X", [np.array([[np.nan], [1.0]]), np.ones(4)])
def test_what_is_not_a_finite_matrix_is_refused(X: np.ndarray) -> None:
    with pytest.raises(ValueError, match="X must be a finite matrix"):
        kmeans_plusplus(X, 1)


def unexplained(kernel: gpflow.kernels.Kernel, X: AnyNDArray, Z: AnyNDArray) -> AnyNDArray:
    """The variance of f at each row of X given f at Z, [N]."""
    K_ZX = kernel(Z, X).numpy()
    return np.diag(kernel(X) - K_ZX.T @ np.linalg.solve(kernel(Z).numpy(), K_ZX))


def test_each_point_is_where_f_is_least_known() -> None:
    X = np.random.default_rng(0).normal(size=(200, 2))
    kernel = gpflow.kernels.Matern32(1.7, [0.5, 1.0]) + gpflow.kernels.Linear()
    Z = greedy_variance(X, 25, kernel)
    for m in range(25):
        left = unexplained(kernel, X, Z[:m]) if m else kernel(X, full_cov=False).numpy()
        (new,) = np.flatnonzero((Z[m] == X).all(1))
        assert left[new] > left.max() * (1.0 - 1e-8)


def test_of_a_smooth_f_they_explain_more_than_rows_that_are_far_apart() -> None:
    X = np.random.default_rng(0).normal(size=(500, 2))
    kernel = gpflow.kernels.SquaredExponential()
    far_apart = unexplained(kernel, X, kmeans_plusplus(X, 60)).sum()
    assert unexplained(kernel, X, greedy_variance(X, 60, kernel)).sum() < 0.5 * far_apart


def test_points_end_where_they_explain_enough() -> None:
    X = np.random.default_rng(0).uniform(-2.0, 2.0, (300, 1))
    kernel = gpflow.kernels.SquaredExponential(3.0)
    Z = greedy_variance(X, 100, kernel, unexplained=1e-3)
    for points, is_enough in ((Z, True), (Z[:-1], False)):
        share = unexplained(kernel, X, points).sum() / kernel(X, full_cov=False).numpy().sum()
        assert (share <= 1e-3) == is_enough
    # f has some 20 directions above rounding, so that more points would make K_ZZ singular.
    Z = greedy_variance(X, 100, kernel)
    assert 15 < len(Z) < 40
    assert np.linalg.eigvalsh(kernel(Z)).min() > 0.0


def test_with_the_points_that_are_enough_the_bound_is_the_evidence() -> None:
    rng = np.random.default_rng(1)
    X = rng.uniform(-2.0, 2.0, (300, 1))
    data = X, np.sin(3.0 * X) + 0.3 * rng.normal(size=X.shape)
    kernel = gpflow.kernels.SquaredExponential(1.0, 0.5)
    evidence = gpflow.models.GPR(data, kernel, noise_variance=0.09).log_marginal_likelihood()
    Z = greedy_variance(X, 100, kernel, unexplained=1e-6)
    assert len(Z) < 30
    bound = gpflow.models.SGPR(data, kernel, Z, noise_variance=0.09).elbo()
    assert evidence - 0.01 < bound <= evidence


@pytest.mark.parametrize("share", [-0.1, 1.0, np.nan])
def test_a_share_out_of_range_is_refused(share: float) -> None:
    with pytest.raises(ValueError, match="unexplained must be at least 0 and below 1"):
        greedy_variance(np.eye(3), 2, gpflow.kernels.Matern32(), share)


def test_a_kernel_of_several_outputs_is_refused() -> None:
    kernel = gpflow.kernels.SharedIndependent(gpflow.kernels.Matern32(), output_dim=2)
    with pytest.raises(ValueError, match=r"single-output kernel.*SharedIndependent"):
        greedy_variance(np.eye(3), 2, kernel)


def test_means_of_clusters_are_nearer_to_the_rows_than_rows_far_apart() -> None:
    X = np.random.default_rng(5).normal(size=(400, 2))
    Z = kmeans(X, 12)
    of_means, of_rows = (
        np.square(X[:, None] - points).sum(-1).min(1).mean()
        for points in (Z, kmeans_plusplus(X, 12))
    )
    assert of_means < 0.9 * of_rows
    cluster = np.square(X[:, None] - Z).sum(-1).argmin(1)
    means = np.array([X[cluster == number].mean(0) for number in range(12)])
    np.testing.assert_allclose(Z, means, atol=0.05)  # where 30 of Lloyd's steps have led
    np.testing.assert_array_equal(Z, kmeans(X, 12))


def test_with_levels_points_are_rows_of_their_own() -> None:
    rng = np.random.default_rng(6)
    X = np.column_stack([rng.normal(size=60), rng.integers(0, 3, size=60)]).astype(float)
    kernel = gpflow.kernels.Matern52(active_dims=[0]) * Categorical(1, [5.0, 6.0, 7.0])
    X[:, 1] += 5.0
    Z = kmeans(X, 9, kernel=kernel)
    assert len(np.unique(Z, axis=0)) == 9
    assert all((row == X).all(1).any() for row in Z)
    assert set(Z[:, 1]) == {5.0, 6.0, 7.0}
