"""The joint kernel of f, its slopes and its curvatures."""

from collections.abc import Callable

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.kernels import (
    Constant,
    Kernel,
    Linear,
    Matern12,
    Matern32,
    Matern52,
    RationalQuadratic,
    SquaredExponential,
    White,
)

from gpflow_aaci import AugmentedNaturalGradient, AugmentedSVGP, AugmentedVGP, likelihoods, shapes
from gpflow_aaci.kernels import WithDerivatives

D = 2
RNG = np.random.default_rng(4)
X, Z = RNG.normal(size=(4, D)), RNG.normal(size=(3, D))

KERNELS: dict[str, tuple[Callable[[], Kernel], int]] = {
    "SquaredExponential": (lambda: SquaredExponential(1.3, [0.9, 1.2]), 2),
    "RationalQuadratic": (lambda: RationalQuadratic(1.3, [0.9, 1.2], alpha=0.8), 2),
    "Matern52": (lambda: Matern52(1.3, 1.1), 2),
    "Matern32": (lambda: Matern32(1.3, [0.9, 1.2]), 1),
    "Linear": (lambda: Linear([0.5, 0.3]), 2),
    "sum": (lambda: Constant(0.4) + Linear(0.2) + SquaredExponential(active_dims=[1]), 2),
    "product": (lambda: Linear(0.2) * (SquaredExponential() + Matern52(active_dims=[0])), 2),
}
every_kernel = pytest.mark.parametrize("name", KERNELS)


def coded(x: np.ndarray, order: int) -> np.ndarray:
    """Rows of f, its D slopes and, if the order is 2, its D curvatures at every x."""
    rows = [shapes.of_f(x), *(shapes.of_slope(x, d) for d in range(D))]
    return np.vstack(rows + [shapes.of_curvature(x, d) for d in range(D)] * (order == 2))


def differences(x: np.ndarray, order: int, h: float) -> tuple[np.ndarray, np.ndarray]:
    """Inputs of f, and the matrix that takes f there to what ``coded`` describes, up to O(h²)."""
    steps = [h * sign * np.eye(D)[d] for d in range(D) for sign in (1.0, -1.0)]
    inputs, N = np.vstack([x, *(x + step for step in steps)]), len(x)
    rows = [np.eye(1 + 2 * D)[0]]
    for power in range(1, order + 1):
        for d in range(D):
            row = np.zeros(1 + 2 * D)
            row[2 * d + 1], row[2 * d + 2] = 1.0, (-1.0) ** power
            row[0] = -2.0 * (power == 2)
            rows.append(row / (2.0 * h if power == 1 else h**2))
    return inputs, np.kron(np.array(rows), np.eye(N))


@pytest.mark.briefly("Linear", "Matern32")
@every_kernel
def test_covariances_are_those_of_finite_differences_of_f(name: str) -> None:
    """T k Tᵀ, where T takes f at neighbouring inputs to differences; for every pair of kinds."""
    make, order = KERNELS[name]
    (near_x, T), (near_z, S) = (differences(x, order, 3e-3) for x in (X, Z))
    expected = T @ make()(near_x, near_z).numpy() @ S.T
    K = WithDerivatives(make(), D, order)(coded(X, order), coded(Z, order))
    np.testing.assert_allclose(K, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("name", "of_slope", "of_curvature"),
    [
        ("SquaredExponential", 1.0, 3.0),
        ("RationalQuadratic", 1.0, 3.0 * (1.0 + 1.0 / 0.8)),
        ("Matern52", 5.0 / 3.0, 25.0),
        ("Matern32", 3.0, None),
    ],
)
def test_slopes_and_curvatures_have_the_variances_of_textbooks(
    name: str, of_slope: float, of_curvature: float | None
) -> None:
    """k(r)/σ² = 1 − a r²/2 + b r⁴/24 + …: Var f′ = a σ²/ℓ² and Var f″ = b σ²/ℓ⁴."""
    make, order = KERNELS[name]
    base = make()
    lengths = np.broadcast_to(base.lengthscales.numpy(), D)
    parts = [np.ones(1), of_slope / lengths**2]
    if of_curvature is not None:
        parts.append(of_curvature / lengths**4)
    expected = np.repeat(np.concatenate(parts), len(X)) * base.variance.numpy()
    kernel = WithDerivatives(base, D, order)
    np.testing.assert_allclose(kernel(coded(X, order), full_cov=False), expected, rtol=1e-10)
    np.testing.assert_allclose(np.diag(kernel(coded(X, order))), expected, rtol=1e-6)


@pytest.mark.briefly("Linear")
@every_kernel
def test_all_ways_to_ask_for_a_covariance_agree(name: str) -> None:
    """Of f alone it is the kernel's own."""
    make, order = KERNELS[name]
    kernel, rows = WithDerivatives(make(), D, order), coded(X, order)
    K = kernel(rows).numpy()
    np.testing.assert_allclose(kernel(rows, rows), K, atol=1e-9)
    np.testing.assert_allclose(kernel(rows, full_cov=False), np.diag(K), atol=1e-9)
    np.testing.assert_allclose(kernel(np.stack([rows, rows]))[1], K, atol=1e-9)
    np.testing.assert_allclose(kernel(rows[None], rows)[0], K, atol=1e-9)
    for of_f in (X, shapes.of_f(X)):
        np.testing.assert_allclose(kernel(of_f), make()(X), atol=1e-7)
        np.testing.assert_allclose(kernel(rows, of_f)[:4], make()(X), atol=1e-7)
    assert np.linalg.eigvalsh(K)[0] > -1e-9


@pytest.mark.parametrize(
    "name",
    [n if n == "Matern32" else pytest.param(n, marks=pytest.mark.replicate) for n in KERNELS],
)
def test_gradients_in_hyperparameters_are_finite_differences(name: str) -> None:
    """Also at equal inputs, where derivatives of a Matérn's g(r²) are infinite; compiled."""
    make, order = KERNELS[name]
    kernel = WithDerivatives(make(), D, order)
    rows = coded(np.vstack([X, X[:1]]), order)
    weights = RNG.normal(size=(len(rows), len(rows)))
    variables = kernel.trainable_variables

    @tf.function
    def value_and_slopes() -> tuple[tf.Tensor, list[tf.Tensor]]:
        value = tf.reduce_sum(kernel(rows) * weights)
        return value, tf.gradients(value, list(variables))

    for variable, slope in zip(variables, value_and_slopes()[1], strict=True):
        at, direction = variable.numpy(), RNG.normal(size=variable.shape)
        ends = []
        for h in (1e-3, -1e-3):
            variable.assign(at + h * direction)
            ends.append(float(value_and_slopes()[0]))
        variable.assign(at)
        expected = (ends[0] - ends[1]) / 2e-3
        assert float(np.sum(slope * direction)) == pytest.approx(expected, rel=1e-4, abs=1e-3)


def test_regression_on_slopes_is_that_of_the_formulas() -> None:
    """k = σ²e^{−d²/2ℓ²}, ∂k/∂z = k d/ℓ², ∂²k/∂x∂z = k (1 − d²/ℓ²)/ℓ², with d = x − z."""
    x, z, new = RNG.normal(size=5), RNG.normal(size=4), np.linspace(-2.0, 2.0, 7)
    y, slope, ell, variance, noise = np.sin(x), np.cos(z), 0.8, 1.4, 0.01

    def block(p: np.ndarray, q: np.ndarray, of_p: bool, of_q: bool) -> np.ndarray:
        d = p[:, None] - q
        k = variance * np.exp(-0.5 * d**2 / ell**2)
        if of_p and of_q:
            return k * (1.0 - d**2 / ell**2) / ell**2
        return k if of_p == of_q else k * d / ell**2 * (1.0 if of_q else -1.0)

    def joint(p: list[tuple[np.ndarray, bool]], q: list[tuple[np.ndarray, bool]]) -> np.ndarray:
        return np.block([[block(a, b, s, t) for b, t in q] for a, s in p])

    known, asked = [(x, False), (z, True)], [(new, False), (new, True)]
    solved = np.linalg.solve(joint(known, known) + noise * np.eye(9), joint(known, asked))
    mean = solved.T @ np.concatenate([y, slope])
    covariance = joint(asked, asked) - joint(asked, known) @ solved
    kernel = WithDerivatives(SquaredExponential(variance, ell), 1)
    rows = np.vstack([shapes.of_f(x[:, None]), shapes.of_slope(z[:, None], 0)])
    data = rows, np.concatenate([y, slope])[:, None]
    model = gpflow.models.GPR(data, kernel, noise_variance=noise)
    at = np.vstack([shapes.of_f(new[:, None]), shapes.of_slope(new[:, None], 0)])
    found, variances = model.predict_f(at, full_cov=True)
    np.testing.assert_allclose(found[:, 0], mean, atol=1e-8)
    np.testing.assert_allclose(variances[0], covariance, atol=1e-8)
    # Exact in one step, up to the jitter.
    ours = AugmentedVGP(data, kernel, likelihoods.Gaussian(noise))
    AugmentedNaturalGradient(1.0).minimize(ours)
    np.testing.assert_allclose(ours.predict_f(at)[0][:, 0], mean, atol=1e-3)


@pytest.mark.briefly("False")
@pytest.mark.parametrize("is_sparse", [False, True])
def test_the_mean_of_a_slope_is_the_slope_of_the_mean(is_sparse: bool) -> None:
    """And of a curvature; here under Student-t noise, with slopes among the data."""
    rows = np.vstack([shapes.of_f(X), shapes.of_slope(Z, 1)])
    Y, kernel = RNG.normal(size=(7, 1)), WithDerivatives(SquaredExponential(), D, order=2)
    if is_sparse:
        model = AugmentedSVGP(kernel, likelihoods.StudentT(0.3), X.copy(), num_data=7)
        AugmentedNaturalGradient(1.0).minimize(model, (rows, Y))
    else:
        model = AugmentedVGP((rows, Y), kernel, likelihoods.StudentT(0.3))
        AugmentedNaturalGradient(1.0).minimize(model)
    inputs, T = differences(Z, 2, 1e-3)
    expected = T @ model.predict_f(inputs)[0].numpy()
    assert np.ptp(expected) > 0.5
    np.testing.assert_allclose(model.predict_f(coded(Z, 2))[0], expected, atol=1e-4)


@pytest.mark.briefly("Linear")
@every_kernel
def test_covariances_in_float32_are_those_in_float64(name: str) -> None:
    make, order = KERNELS[name]
    x = np.vstack([X, X + 1e-6, X + 1e-3]).astype(np.float32)
    K = WithDerivatives(make(), D, order)(coded(x, order)).numpy()
    gpflow.config.set_default_float(np.float32)
    found = WithDerivatives(make(), D, order)(coded(x, order)).numpy()
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, K, atol=3e-3 * np.abs(K).max())


@pytest.mark.parametrize(
    ("kernel", "order", "found"),
    [
        (Matern12(), 1, "Matern12"),
        (Matern32(), 2, "Matern32"),
        (SquaredExponential() + White(), 1, "White"),
        (SquaredExponential() * (Linear() + Matern32()), 2, "Matern32"),
        (gpflow.kernels.Periodic(Matern32()), 1, "Periodic"),
    ],
    ids=["Matern12", "curvature of Matern32", "White", "in a product", "Periodic"],
)
def test_a_kernel_of_too_rough_an_f_is_refused(kernel: Kernel, order: int, found: str) -> None:
    with pytest.raises(ValueError, match=rf"kernel must be .* order {order}.*Found: {found}"):
        WithDerivatives(kernel, 1, order)


@pytest.mark.briefly("nan")
@pytest.mark.parametrize("code", [0.5, -1.0, 3.0, np.nan])
def test_a_last_column_that_says_nothing_is_refused(code: float) -> None:
    """In a compiled function too."""
    kernel, rows = WithDerivatives(SquaredExponential(), D), np.hstack([X, np.full((4, 1), code)])
    with pytest.raises(ValueError, match=r"X must end in a column .* 1 to 2.*Found"):
        kernel(rows)
    with pytest.raises(tf.errors.InvalidArgumentError, match="X must end in a column"):
        tf.function(kernel)(rows)


def test_bad_arguments_are_named() -> None:
    with pytest.raises(ValueError, match=r"order must be 1 or 2\. Found: 3"):
        WithDerivatives(SquaredExponential(), 1, 3)
    with pytest.raises(ValueError, match=r"WithDerivatives: input_dim must be .* Found: 0"):
        WithDerivatives(SquaredExponential(), 0)
    with pytest.raises(ValueError, match=r"X must have 3 columns.*or 2.*Found: 4"):
        WithDerivatives(SquaredExponential(), 2)(np.zeros((3, 4)))
    model = AugmentedSVGP(
        WithDerivatives(SquaredExponential(), D), likelihoods.StudentT(), coded(X, 1), num_data=4
    )
    with pytest.raises(ValueError, match="inducing_variable must be inputs of f with 2 columns"):
        model.elbo((shapes.of_f(X), X[:, :1]))
