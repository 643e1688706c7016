"""OrthogonalAdditive: its values are the sum over all sets, and its parts have mean 0 over X."""

import itertools
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.kernels import (
    Constant,
    Coregion,
    Kernel,
    Linear,
    Matern32,
    Periodic,
    SquaredExponential,
)

from gpflow_aaci import AugmentedNNGP, likelihoods
from gpflow_aaci.kernels import OrthogonalAdditive, columns_of

RNG = np.random.default_rng(3)
X = np.round(RNG.normal(size=(30, 4)), 1)  # with repeated values
X_NEW = RNG.normal(size=(5, 4))
LENGTHS = np.array([0.5, 1.0, 2.0, 4.0])
VARIANCES = np.array([0.7, 1.3, 0.4, 2.0])


def made(max_interaction: int = 3) -> OrthogonalAdditive:
    kernels = [SquaredExponential(lengthscales=length) for length in LENGTHS]
    kernel = OrthogonalAdditive(kernels, X, max_interaction)
    for order, variance in zip(kernel.orders, VARIANCES, strict=False):
        order.variance.assign(variance)
    return kernel


def given_mean_0(x: AnyNDArray, x2: AnyNDArray, d: int) -> AnyNDArray:
    """The covariance of f(x) and f(x2) for column d, given that f has mean 0 over X: by blocks."""
    every = np.concatenate([x, x2, X[:, d]])
    K = np.exp(-0.5 * np.square((every[:, None] - every) / LENGTHS[d]))
    T = np.vstack([np.eye(len(every)), np.repeat([0.0, 1.0 / len(X)], [len(x) + len(x2), len(X)])])
    joint = T @ K @ T.T  # of f at all these, and of the mean of f
    joint = joint[:-1, :-1] - np.outer(joint[:-1, -1], joint[-1, :-1]) / joint[-1, -1]
    return joint[: len(x), len(x) : len(x) + len(x2)]


@pytest.mark.by_default("3")
@pytest.mark.parametrize("R", [1, 2, 3, 4])
def test_it_is_the_sum_over_all_sets_of_products_of_conditioned_kernels(R: int) -> None:
    kernel = made(R)
    if R == 4:
        kernel.orders[4].variance.assign(0.9)
    variances = [*VARIANCES, 0.9]
    columns = [given_mean_0(X[:, d], X_NEW[:, d], d) for d in range(4)]
    expected = np.zeros((len(X), len(X_NEW)))
    for r in range(R + 1):
        for S in itertools.combinations(range(4), r):
            of_set = variances[r] * np.prod([columns[d] for d in S], axis=0)
            expected += of_set
            of_set = np.broadcast_to(of_set, expected.shape)  # a scalar for the empty set
            np.testing.assert_allclose(kernel.part(S)(X, X_NEW), of_set, atol=1e-9)
    np.testing.assert_allclose(kernel(X, X_NEW), expected, atol=1e-9)
    own = kernel(X_NEW).numpy()
    np.testing.assert_allclose(own, kernel(X_NEW, X_NEW), atol=1e-12)
    np.testing.assert_allclose(np.diag(own), kernel(X_NEW, full_cov=False), atol=1e-12)
    assert len(kernel.subsets) == sum(
        len(list(itertools.combinations(range(4), r))) for r in range(R + 1)
    )


@pytest.mark.briefly("Matern32")
@pytest.mark.parametrize(
    "base",
    [
        Matern32(lengthscales=0.7),
        Periodic(SquaredExponential(), period=2.3),
        SquaredExponential(2.0) + Linear(0.3),
        gpflow.kernels.RationalQuadratic() * Matern32(),
    ],
    ids=["Matern32", "Periodic", "Sum", "Product"],
)
def test_every_part_has_mean_0_along_each_of_its_columns(base: Kernel) -> None:
    """The mean of f_S over a column has variance 0, at any values of the other columns."""
    kernel = OrthogonalAdditive(base, X)
    for S in [(1,), (0, 2)]:
        for d in S:
            along = np.tile(X_NEW[:1], (len(X), 1))
            along[:, d] = X[:, d]
            part = kernel.part(S)
            assert part(along, full_cov=False).numpy().min() > 1e-4
            np.testing.assert_allclose(np.mean(part(along, X_NEW), 0), 0.0, atol=1e-9)
            np.testing.assert_allclose(np.mean(part(along), (0, 1)), 0.0, atol=1e-9)


def test_labels_in_a_column_have_effects_that_sum_to_0() -> None:
    labels = np.array([[0.0], [1.0], [2.0], [2.0]])
    kernel = OrthogonalAdditive(Coregion(3, rank=1), labels, 1)
    K = kernel.part((0,))(labels).numpy()
    assert np.all(np.diag(K) > 0.1)
    np.testing.assert_allclose(K.mean(0), 0.0, atol=1e-12)


def test_of_normal_inputs_it_is_the_kernel_of_the_paper() -> None:
    """Lu, Boukouvalas and Hensman 2022 have it in closed form for N(μ, δ²); 300 quantiles do."""
    mu, delta, length = 0.4, 1.5, 0.8
    x = np.random.default_rng(0).normal(mu, delta, size=(200_000, 1))
    kernel = OrthogonalAdditive(SquaredExponential(lengthscales=length), x).part((0,))
    at = np.linspace(-3.0, 4.0, 15)[:, None]
    far = np.square(at - mu) + np.square(at.T - mu)
    total = length**2 + delta**2
    factor = length * np.sqrt(length**2 + 2.0 * delta**2) / total
    expected = np.exp(-np.square((at - at.T) / length) / 2.0) - factor * np.exp(-far / total / 2.0)
    np.testing.assert_allclose(kernel(at), expected, atol=5e-3)


@pytest.mark.slow
def test_batches_of_inputs_have_the_covariances_of_each() -> None:
    """Nearest neighbours are such batches."""
    kernel, batch = made(2), np.stack([X[:6], X[6:12]])
    np.testing.assert_allclose(kernel(batch), [kernel(part) for part in batch], atol=1e-12)
    cross = kernel(batch, X_NEW)
    np.testing.assert_allclose(cross, [kernel(part, X_NEW) for part in batch], atol=1e-12)


@pytest.mark.slow
def test_with_all_rows_as_neighbours_predictions_are_gaussian_process_regression() -> None:
    kernel, Y = made(2), X[:, :1]
    model = AugmentedNNGP((X, Y), kernel, likelihoods.Gaussian(0.1), num_neighbors=len(X))
    exact = gpflow.models.GPR((X, Y), kernel, noise_variance=0.1).predict_f(X_NEW)
    np.testing.assert_allclose(model.predict_f(X_NEW), exact, atol=1e-3)


def test_the_kernel_that_is_given_stays_as_it_is() -> None:
    """Every column has a copy, whose variance the orders scale."""
    base = SquaredExponential()
    kernel = OrthogonalAdditive(base, X)
    assert base.variance.trainable
    assert isinstance(base.active_dims, slice)
    kernel.columns[0].kernel.lengthscales.assign(7.0)
    assert base.lengthscales.numpy() == kernel.columns[1].kernel.lengthscales.numpy() == 1.0
    assert len(kernel.trainable_variables) == 4 + 3  # lengthscales and orders
    assert [columns_of(kernel.part(S), 4) for S in [(), (2,), (1, 3)]] == [[], [2], [1, 3]]
    assert columns_of(kernel, 4) == [0, 1, 2, 3]
    np.testing.assert_allclose(kernel.part((2, 0))(X), kernel.part((0, 2))(X), atol=1e-12)


def test_it_computes_in_float32() -> None:
    double = made(2)(X, X_NEW).numpy()
    with gpflow.config.as_context(gpflow.config.Config(float=np.float32)):
        single = made(2)(tf.constant(X, tf.float32), tf.constant(X_NEW, tf.float32))
    assert single.dtype == tf.float32
    np.testing.assert_allclose(single, double, atol=1e-4)


@pytest.mark.parametrize(
    ("base", "x"),
    [
        (Linear(0.3), (X - X.mean(0))[:, :1]),
        (gpflow.kernels.Cosine(lengthscales=24.0), np.arange(24.0)[:, None]),
    ],
    ids=["Linear", "Cosine"],
)
def test_functions_whose_mean_is_0_already_stay_as_they_are(base: Kernel, x: AnyNDArray) -> None:
    kernel = OrthogonalAdditive(base, x, max_interaction=1)
    np.testing.assert_allclose(kernel.part((0,))(x), base(x), atol=1e-9)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((SquaredExponential(), X[:, 0]), r"X must be \[N, D\].*Found: shape \[30\]"),
        ((SquaredExponential(), np.full((3, 1), np.nan)), "X must be finite"),
        ((SquaredExponential(), X[:0]), "at least one row"),
        ((SquaredExponential(), X, 0), "max_interaction must be an integer of at least 1"),
        (([SquaredExponential()] * 3, X), "one for each of the 4 columns of X. Found: 3"),
        (([SquaredExponential(active_dims=[1])] * 4, X), r"or \[0\] for column 0.*Found: \[1\]"),
        ((SquaredExponential(), np.ones((5, 2))), "Found: column 0 with 1 distinct values"),
        ((Linear(), X - 1.0), "Found: column 0 .* Linear kernel"),
        ((Constant(), X), "Found: column 0 .* Constant kernel"),
    ],
)
def test_what_cannot_have_such_parts_is_refused(arguments: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        OrthogonalAdditive(*arguments)


@pytest.mark.briefly("0")
@pytest.mark.parametrize("part", [0, (4,), (-1,), (1, 1), (0, 1, 2), [0], "a", ("a",)])
def test_a_part_is_a_tuple_of_so_many_different_columns(part: Any) -> None:
    with pytest.raises(ValueError, match=r"part must be a tuple of at most 2 .* from 0 to 3"):
        made(2).part(part)
