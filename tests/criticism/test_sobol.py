"""Shares in the variance of the posterior mean, against known ones and their definition."""

import itertools
from typing import Any

import gpflow
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.kernels import SquaredExponential

from gpflow_aaci import AugmentedSVGP, AugmentedVGP, effects, likelihoods
from gpflow_aaci.criticism import shares, shares_of_parts
from gpflow_aaci.kernels import OrthogonalAdditive

RNG = np.random.default_rng(2)


class Function(gpflow.functions.MeanFunction):
    """A mean function: under the prior, the posterior mean of f is this."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def __call__(self, X: tf.Tensor) -> tf.Tensor:
        return self.function(X)


def of_function(function: Any, D: int) -> AugmentedSVGP:
    Z = np.zeros((1, D))
    return AugmentedSVGP(
        SquaredExponential(), likelihoods.StudentT(), Z, mean_function=Function(function)
    )


def additive(kernel: gpflow.kernels.Kernel, X: AnyNDArray) -> AugmentedSVGP:
    model = AugmentedSVGP(kernel, likelihoods.Logistic(), X[:8].copy())
    model.q_mu.assign(RNG.normal(size=model.q_mu.shape))
    return model


def test_of_ishigamis_function_they_are_the_known_ones() -> None:
    """sin x_0 + 7 sin² x_1 + 0.1 x_2⁴ sin x_0 for uniform inputs (Ishigami and Homma 1990)."""
    grid = np.pi * (2.0 * (np.arange(1_000) + 0.5) / 1_000 - 1.0)
    X = np.stack([RNG.permutation(grid) for _ in range(3)], 1)

    def ishigami(x: tf.Tensor) -> tf.Tensor:
        sines = tf.sin(x)
        return sines[:, :1] * (1.0 + 0.1 * x[:, 2:] ** 4) + 7.0 * sines[:, 1:2] ** 2

    first, interaction = 0.5 * (1.0 + np.pi**4 / 50.0) ** 2, 8.0 * np.pi**8 / 225.0 / 100.0
    parts = np.array([first, 49.0 / 8.0, interaction])
    total = parts.sum()
    found = shares(of_function(ishigami, 3), pd.DataFrame(X, columns=["a", "b", "c"]))
    assert list(found.index) == ["a", "b", "c"]
    np.testing.assert_allclose(found["first"], [first / total, parts[1] / total, 0.0], atol=0.01)
    expected = [(first + interaction) / total, parts[1] / total, interaction / total]
    np.testing.assert_allclose(found["total"], expected, atol=0.01)


def test_of_a_linear_function_they_are_squared_standardised_slopes() -> None:
    """Columns are taken as independent, although these are not."""
    common, slopes = RNG.normal(size=(500, 1)), np.array([[1.0], [-2.0], [0.0]])
    X = np.hstack([common, common + 0.1 * RNG.normal(size=(500, 1)), RNG.normal(size=(500, 1))])
    expected = (slopes[:, 0] * X.std(0)) ** 2
    found = shares(of_function(lambda x: 3.0 + x @ slopes, 3), X, seed=1)
    np.testing.assert_allclose(found["first"], expected / expected.sum(), atol=0.01)
    np.testing.assert_allclose(found["total"], expected / expected.sum(), atol=0.01)


def test_orthogonal_parts_are_the_analysis_of_variance_over_a_full_grid() -> None:
    """Var E[F|x_d] and E Var[F|others] by enumeration; parts do not share any variance there."""
    values = [np.array([-1.2, -0.3, 0.4, 1.5]), np.array([0.0, 1.0, 1.0]), np.array([-1.0, 0.2])]
    X = np.array(list(itertools.product(*values)))
    X = X[RNG.permutation(len(X))]
    model = additive(OrthogonalAdditive(SquaredExponential(), X, 3), X)
    ordered = np.array(list(itertools.product(*values)))
    F = model.predict_f(ordered)[0].numpy().reshape(4, 3, 2)
    first = [np.var(F.mean(tuple({0, 1, 2} - {d}))) / np.var(F) for d in range(3)]
    total = [np.mean(np.var(F, d)) / np.var(F) for d in range(3)]
    of_parts = shares_of_parts(model, X)
    np.testing.assert_allclose(of_parts["covariance"], of_parts["variance"], atol=1e-8)
    assert list(of_parts.index) == model.kernel.subsets
    for d in range(3):
        of_column = [share for S, share in of_parts["variance"].items() if d in S]
        assert of_parts["variance"].iloc[1 + d] == pytest.approx(first[d], abs=1e-8)
        assert sum(of_column) == pytest.approx(total[d], abs=1e-8)
    found = shares(model, X)
    np.testing.assert_allclose(found["first"], first, atol=1e-7)
    np.testing.assert_allclose(found["total"], total, atol=1e-7)


def of_all_combinations(model: gpflow.models.GPModel, X: AnyNDArray, output: int) -> AnyNDArray:
    """Var E[F|x_d]/Var F and E Var[F|others]/Var F of every column, by their definition, [D, 2]."""
    D = X.shape[1]
    inputs = np.array(list(itertools.product(*X.T)))
    F = model.posterior().predict_f(inputs)[0].numpy()[:, output].reshape([len(X)] * D)
    others = [tuple(set(range(D)) - {d}) for d in range(D)]
    pairs = [(np.var(F.mean(rest)), np.mean(np.var(F, d))) for d, rest in enumerate(others)]
    return np.array(pairs) / np.var(F)


# Equal values in a column, a column of groups, and rows that are far from a full grid.
FEW = np.column_stack([RNG.normal(size=6), [0.0, 1.0, 1.0, 2.0, 0.0, 1.0], RNG.normal(size=6)])


def kernel_of(name: str) -> gpflow.kernels.Kernel:
    kernels = gpflow.kernels
    if name == "ARD":
        return SquaredExponential(1.3, [0.8, 1.5, 2.0])
    if name == "orthogonal":
        return OrthogonalAdditive([SquaredExponential(), *[kernels.Matern32()] * 2], FEW, 2)
    wave = kernels.Periodic(SquaredExponential(active_dims=[2]), period=1.7)
    step = kernels.Matern32(active_dims=[0]) + kernels.Linear([0.3, 0.5], active_dims=[0, 2])
    groups = kernels.Coregion(3, 1, active_dims=[1])
    return step * groups + kernels.Constant(0.4) * wave * kernels.Cosine(active_dims=[2])


@pytest.mark.briefly("ARD")
@pytest.mark.parametrize("name", ["ARD", "orthogonal", "sums of products"])
def test_where_the_kernel_factorises_they_are_exact(name: str) -> None:
    """However few samples are allowed."""
    model = additive(kernel_of(name), FEW)
    found = shares(model, FEW, num_samples=2)
    np.testing.assert_allclose(found, of_all_combinations(model, FEW, 0), 1e-6)


def test_they_are_exact_for_effects_in_a_full_model_with_a_linear_mean() -> None:
    groups, slope = effects.Grouped(column=1), effects.Linear([0, 2])
    model = AugmentedVGP(
        (FEW, RNG.normal(size=(6, 1))),
        SquaredExponential(active_dims=[0, 2]),
        likelihoods.Laplace(),
        gpflow.functions.Linear(RNG.normal(size=(3, 1)), 10.0),
        effects=[groups, slope],
    )
    model.q_mu.assign(RNG.normal(size=(6, 1)))
    found = shares(model, FEW, num_samples=2)
    np.testing.assert_allclose(found, of_all_combinations(model, FEW, 0), 1e-6)


@pytest.mark.parametrize("mixes", [True, False])
def test_they_are_exact_for_every_output_of_several_latent_gps(mixes: bool) -> None:
    parts = [kernel_of("ARD"), gpflow.kernels.Matern12(active_dims=[1])]
    W = np.array([[1.0, 0.5], [-2.0, 0.0]])
    kernel = (
        gpflow.kernels.LinearCoregionalization(parts, W)
        if mixes
        else gpflow.kernels.SeparateIndependent(parts)
    )
    points = gpflow.inducing_variables.InducingPoints(FEW[[0, 1, 3]])
    Z = gpflow.inducing_variables.SharedIndependentInducingVariables(points)
    model = AugmentedSVGP(kernel, likelihoods.Laplace(), Z, num_latent_gps=2, whiten=False)
    model.q_mu.assign(RNG.normal(size=(3, 2)))
    for output in range(2):
        found = shares(model, FEW, num_samples=2, output=output)
        np.testing.assert_allclose(found, of_all_combinations(model, FEW, output), 1e-6, 1e-9)


def test_elsewhere_they_are_estimates() -> None:
    """A kernel of several columns that does not factorise."""
    model = additive(gpflow.kernels.Matern32(lengthscales=[1.0, 2.0, 2.0]), FEW)
    found = [shares(model, FEW, seed=seed) for seed in (0, 1)]
    assert np.all(found[0] != found[1])
    for each in found:
        np.testing.assert_allclose(each, of_all_combinations(model, FEW, 0), atol=0.02)


def test_shares_of_summands_add_up_by_their_covariances() -> None:
    """Two summands of the same column cancel, and have more variance than f."""
    X = RNG.normal(size=(50, 2))
    kernel = SquaredExponential(active_dims=[0]) + SquaredExponential(active_dims=[1])
    model = additive(kernel, X)
    found = shares_of_parts(model, X)
    K, Kz = model.kernel(X[:8]).numpy() + 1e-6 * np.eye(8), np.linalg.cholesky
    weights = np.linalg.solve(K, Kz(K) @ model.q_mu.numpy()[:, 0])
    F = np.stack([part(X, X[:8]).numpy() @ weights for part in kernel.kernels])
    C = np.cov(F, bias=True)
    np.testing.assert_allclose(found["variance"], np.diag(C) / C.sum(), rtol=1e-5)
    np.testing.assert_allclose(found["covariance"], C.sum(1) / C.sum(), rtol=1e-5)


@pytest.mark.parametrize("function", [shares, shares_of_parts])
def test_bad_arguments_and_a_flat_mean_are_refused(function: Any) -> None:
    X = RNG.normal(size=(20, 2))
    kernel = SquaredExponential() + SquaredExponential()
    model = AugmentedSVGP(kernel, likelihoods.StudentT(), X[:3].copy())
    with pytest.raises(ValueError, match="posterior mean of f that depends on X; fit it first"):
        function(model, X)
    model.q_mu.assign(RNG.normal(size=(3, 1)))
    with pytest.raises(ValueError, match=r"must be \[N, 2\]"):
        function(model, X[:, :1])
    with pytest.raises(ValueError, match="must be finite"):
        function(model, X * np.nan)
    with pytest.raises(ValueError, match=r"output must be an integer from 0 to 0\. Found: 1"):
        function(model, X, output=1)
    with pytest.raises(ValueError, match=r"X must be \[N, D\], of at least one row"):
        function(model, X[:0])


def test_gaussian_process_regression_has_shares_too() -> None:
    X = RNG.normal(size=(40, 2))
    model = gpflow.models.GPR(
        (X, np.sin(2.0 * X[:, :1])), SquaredExponential(lengthscales=[1.0, 50.0])
    )
    found = shares(model, X)
    assert found["total"][0] > 0.95
    assert found["total"][1] < 0.01
    with pytest.raises(ValueError, match="num_samples must be an integer of at least 2"):
        shares(model, X, num_samples=1)
