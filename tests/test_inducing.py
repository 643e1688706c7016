"""``kmeans_plusplus``: rows of X that are far from each other, the same for the same seed."""

import numpy as np
import pytest

from gpflow_aaci import kmeans_plusplus


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
