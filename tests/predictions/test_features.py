"""Random features, against GPflow's kernels and the variance of independent frequencies."""

from collections.abc import Callable

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow import kernels
from gpflow.base import AnyNDArray
from gpflow.kernels import Kernel

from gpflow_aaci.kernels import Difference
from gpflow_aaci.predictions.features import feature_map

D = 3
X = np.random.default_rng(1).normal(size=(6, D))
X2 = np.random.default_rng(2).normal(size=(5, D))


def product(kernel: Kernel, num_frequencies: int, seed: int, input_dim: int = D) -> AnyNDArray:
    """φ(X)ᵀφ(X2), [6, 5]."""
    rng = np.random.default_rng(seed)
    phi = feature_map(kernel, input_dim, num_frequencies, rng)
    return (phi(tf.constant(X)) @ tf.transpose(phi(tf.constant(X2)))).numpy()


LENGTHS = [0.7, 1.5, 3.0]
STATIONARY: dict[str, Callable[[], Kernel]] = {
    "SquaredExponential": lambda: kernels.SquaredExponential(2.0, LENGTHS),
    "Exponential": lambda: kernels.Exponential(2.0, LENGTHS),
    "Matern12": lambda: kernels.Matern12(2.0, LENGTHS),
    "Matern32": lambda: kernels.Matern32(2.0, LENGTHS),
    "Matern52": lambda: kernels.Matern52(2.0, LENGTHS),
    "RationalQuadratic": lambda: kernels.RationalQuadratic(2.0, LENGTHS, alpha=0.7),
    "product of columns": lambda: (
        kernels.Matern32(lengthscales=[0.7, 2.0], active_dims=[2, 0])
        * kernels.SquaredExponential(1.7, active_dims=[1])
    ),
    "sum times Linear": lambda: (
        (kernels.Matern52(active_dims=slice(0, 2)) + kernels.Constant(0.3))
        * kernels.Linear(0.5, active_dims=[2])
    ),
}


@pytest.mark.briefly("Matern12")
@pytest.mark.parametrize("name", STATIONARY)
def test_the_expectation_of_their_product_is_the_kernel(name: str) -> None:
    kernel = STATIONARY[name]()
    products = np.array([product(kernel, 32, seed) for seed in range(40)])
    error = products.mean(0) - kernel(X, X2).numpy()
    standard_error = products.std(0, ddof=1) / np.sqrt(40)
    assert np.all(np.abs(error) < 4.5 * standard_error + 1e-10)
    assert np.all(standard_error < 0.06)


@pytest.mark.parametrize("kind", [kernels.SquaredExponential, kernels.Matern52])
@pytest.mark.parametrize("num_columns", [1, 2])
def test_the_frequencies_are_better_than_independent_ones(
    kind: type[Kernel], num_columns: int
) -> None:
    """The mean of F independent cos(ωr) has the variance [(1 + k(2r))/2 − k(r)²]/F."""
    kernel = kind(active_dims=range(num_columns))
    products = np.array([product(kernel, 250, seed) for seed in range(10)])
    k, k_twice = kernel(X, X2).numpy(), kernel(2.0 * X, 2.0 * X2).numpy()
    independent = (0.5 * (1.0 + k_twice) - k**2) / 250
    assert np.mean((products - k) ** 2) < 0.25 * independent.mean()


FINITE_RANK: dict[str, Callable[[], Kernel]] = {
    "Constant": lambda: kernels.Constant(0.7),
    "Linear": lambda: kernels.Linear([0.7, 2.0], active_dims=[2, 0]),
    "Polynomial": lambda: kernels.Polynomial(3.0, 0.7, 0.4),
    "Cosine": lambda: kernels.Cosine(0.7, lengthscales=LENGTHS),
    "sum": lambda: kernels.Constant(0.7) + kernels.Linear(active_dims=[1]),
    "product": lambda: kernels.Linear(0.6) * kernels.Cosine() * kernels.Polynomial(2.0),
}


@pytest.mark.parametrize("name", FINITE_RANK)
def test_their_product_is_the_kernel_where_its_rank_is_finite(name: str) -> None:
    kernel = FINITE_RANK[name]()
    np.testing.assert_allclose(product(kernel, 1, 0), kernel(X, X2), rtol=1e-10, atol=1e-12)


def test_the_product_is_the_covariance_of_outputs_that_a_column_numbers() -> None:
    kernel = kernels.Coregion(3, 2, active_dims=[1])
    kernel.W.assign([[1.0, 0.2], [-0.5, 0.4], [0.1, 2.0]])
    rows = np.array([[0.3, number, 0.0] for number in (0.0, 2.0, 1.0, 2.0)])
    phi = feature_map(kernel, D, 1, np.random.default_rng(0))(tf.constant(rows))
    np.testing.assert_allclose(phi @ tf.transpose(phi), kernel(rows), rtol=1e-12)


def test_differences_have_the_features_of_both_inputs() -> None:
    kernel = Difference(kernels.Linear([0.7]), input_dim=1)
    phi = feature_map(kernel, 1, 1, np.random.default_rng(0))
    pairs, x = tf.constant(X[:, :2]), tf.constant(X2[:, :1])
    np.testing.assert_allclose(phi(pairs) @ tf.transpose(phi(x)), kernel(pairs, x), rtol=1e-12)


@pytest.mark.parametrize(
    ("kernel", "found"),
    [
        (kernels.White(), "White"),
        (kernels.ArcCosine(), "ArcCosine"),
        (kernels.Linear() * kernels.Periodic(kernels.SquaredExponential()), "Periodic"),
        (kernels.ChangePoints([kernels.Matern12(), kernels.Matern12()], [0.0]), "ChangePoints"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_other_kernels_are_refused(kernel: Kernel, found: str) -> None:
    message = f"kernel must be made of SquaredExponential, .*, by sums and .* Found: {found}"
    with pytest.raises(ValueError, match=message):
        product(kernel, 4, 0)


def test_a_power_must_be_a_whole_number() -> None:
    with pytest.raises(ValueError, match=r"degree of Polynomial must be .* Found: 1\.5"):
        product(gpflow.kernels.Polynomial(1.5), 4, 0)
