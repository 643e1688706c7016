"""The summands of f are what conditioning a joint Gaussian of all of them gives."""

from collections.abc import Callable

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.inducing_variables import InducingPoints, SharedIndependentInducingVariables
from gpflow.kernels import (
    Kernel,
    LinearCoregionalization,
    Matern32,
    SeparateIndependent,
    SharedIndependent,
    SquaredExponential,
    Sum,
    White,
)

from gpflow_aaci import (
    AugmentedNaturalGradient,
    AugmentedNNGP,
    AugmentedSVGP,
    AugmentedVGP,
    fit,
    likelihoods,
)
from gpflow_aaci.kernels import OrthogonalAdditive
from gpflow_aaci.predictions import predict_component
from gpflow_aaci.predictions.parts import summand, summands

N, M, NOISE = 20, 6, 0.09
RNG = np.random.default_rng(5)
X, Z, X_NEW = (RNG.uniform(-2.0, 2.0, size=(size, 2)) for size in (N, M, 7))
Y = np.sin(2.0 * X[:, :1]) + X[:, 1:] + 0.3 * RNG.normal(size=(N, 1))
MEAN = gpflow.functions.Linear(np.array([[0.5], [-0.3]]), 0.7)


def plain() -> Sum:
    first, second = SquaredExponential(1.5, active_dims=[0]), Matern32(0.5, active_dims=[1])
    return first + (second + first * second)  # flattened


def orthogonal() -> OrthogonalAdditive:
    return OrthogonalAdditive(SquaredExponential(), X)


def randomised(model: AugmentedSVGP) -> AugmentedSVGP:
    model.q_mu.assign(RNG.normal(size=model.q_mu.shape))
    scale = 0.3 * RNG.normal(size=model.q_sqrt.shape)
    is_matrix = scale.ndim == 3
    model.q_sqrt.assign(np.tril(scale) + 0.5 * np.eye(M) if is_matrix else np.abs(scale) + 0.1)
    return model


def q_of_u(model: AugmentedSVGP) -> tuple[AnyNDArray, AnyNDArray, AnyNDArray]:
    """Mean [M] and covariance [M, M] of u under q, and its prior covariance."""
    K = model.kernel(Z).numpy() + 1e-6 * np.eye(M)
    m, R = model.q_mu.numpy()[:, 0], model.q_sqrt.numpy()
    R = R[0] if R.ndim == 3 else np.diag(R[:, 0])
    T = np.linalg.cholesky(K) if model.whiten else np.eye(M)
    return T @ m, T @ R @ R.T @ T.T, K


@pytest.mark.briefly("plain")
@pytest.mark.parametrize("make", [plain, orthogonal])
def test_under_gaussian_noise_parts_are_gaussian_process_regression(
    make: Callable[[], Kernel],
) -> None:
    """E f_S = K_S (K + σ²I)⁻¹ (y − μ), Var f_S = k_S − K_S (K + σ²I)⁻¹ K_Sᵀ."""
    kernel = make()
    model = AugmentedVGP((X, Y), kernel, likelihoods.Gaussian(NOISE), mean_function=MEAN)
    AugmentedNaturalGradient().minimize(model)
    inverse = np.linalg.inv(kernel(X).numpy() + (1e-6 + NOISE) * np.eye(N))
    for part in summands(kernel):
        of_part = summand(kernel, part)
        K = of_part(X_NEW, X).numpy()
        mean, variance = predict_component(model, X_NEW, part)
        np.testing.assert_allclose(mean, K @ inverse @ (Y - MEAN(X)), atol=1e-4)
        expected = of_part(X_NEW, full_cov=False) - np.diag(K @ inverse @ K.T)
        np.testing.assert_allclose(variance[:, 0], expected, atol=1e-5)


@pytest.mark.briefly("plain-{'q_diag': True}")
@pytest.mark.parametrize("settings", [{}, {"whiten": False}, {"q_diag": True}], ids=str)
@pytest.mark.parametrize("make", [plain, orthogonal])
def test_parts_add_up_to_f(make: Callable[[], Kernel], settings: dict[str, bool]) -> None:
    """
    Their means do, and all covariances between them do, with those of the conditional by hand.

    Cov(f_S, f_T) = δ_ST k_S − K_S K⁻¹ K_Tᵀ + K_S K⁻¹ S K⁻¹ K_Tᵀ, with K_S = k_S(x, Z).
    """
    kernel = make()
    model = randomised(
        AugmentedSVGP(kernel, likelihoods.StudentT(), Z, mean_function=MEAN, **settings)
    )
    m, S, K = q_of_u(model)
    weights = {p: np.linalg.solve(K, summand(kernel, p)(Z, X_NEW)).T for p in summands(kernel)}
    total_mean, total_variance = MEAN(X_NEW).numpy(), 0.0
    for part, A in weights.items():
        mean, variance = predict_component(model, X_NEW, part)
        np.testing.assert_allclose(mean[:, 0], A @ m, atol=1e-6)
        own = summand(kernel, part)(X_NEW, full_cov=False).numpy()
        between = {other: np.sum(A @ (S - K) * B, 1) for other, B in weights.items()}
        np.testing.assert_allclose(variance[:, 0], own + between[part], atol=1e-6)
        total_mean = total_mean + mean
        total_variance = total_variance + own + sum(between.values())
    np.testing.assert_allclose(total_mean, model.predict_f(X_NEW)[0], atol=1e-6)
    np.testing.assert_allclose(total_variance, model.predict_f(X_NEW)[1][:, 0], atol=1e-6)


def test_a_part_is_named_by_its_index_or_is_the_kernel_itself() -> None:
    """Also in GPflow's own classes, and in a frozen model."""
    kernel = plain()
    model = randomised(AugmentedSVGP(kernel, likelihoods.StudentT(), Z))
    expected = predict_component(model, X_NEW, 1)
    np.testing.assert_array_equal(predict_component(model, X_NEW, kernel.kernels[1]), expected)
    stock = gpflow.models.SVGP(kernel, gpflow.likelihoods.StudentT(), Z)
    stock.q_mu.assign(model.q_mu)
    stock.q_sqrt.assign(model.q_sqrt)
    np.testing.assert_array_equal(predict_component(stock, X_NEW, np.int64(1)), expected)
    frozen = gpflow.utilities.freeze(model)
    np.testing.assert_allclose(predict_component(frozen, X_NEW, 1), expected, rtol=1e-12)


def test_latent_gps_have_the_parts_of_their_own_kernels() -> None:
    first, second = plain(), SquaredExponential() + Matern32(2.0)
    kernel = SeparateIndependent([first, second])
    points = SharedIndependentInducingVariables(InducingPoints(Z))
    both = AugmentedSVGP(kernel, likelihoods.StudentT(), points, num_latent_gps=2)
    assert summands(kernel) == [0, 1]
    both = randomised(both)
    for latent, of_latent in enumerate((first, second)):
        alone = AugmentedSVGP(of_latent, likelihoods.StudentT(), Z)
        alone.q_mu.assign(both.q_mu[:, latent : latent + 1])
        alone.q_sqrt.assign(both.q_sqrt[latent : latent + 1])
        expected = predict_component(alone, X_NEW, 1)
        found = [part[:, latent : latent + 1] for part in predict_component(both, X_NEW, 1)]
        np.testing.assert_allclose(found, expected, atol=1e-9)
    models = [
        AugmentedSVGP(kernel, likelihoods.StudentT(), inducing, num_latent_gps=2)
        for kernel, inducing in [(first, Z), (SharedIndependent(first, 2), points)]
    ]
    for model in models:
        model.q_mu.assign(both.q_mu)
        model.q_sqrt.assign(both.q_sqrt)
    shared, wrapped = (predict_component(model, X_NEW, first.kernels[2]) for model in models)
    np.testing.assert_allclose(wrapped, shared, atol=1e-9)
    assert shared[0].shape == (7, 2)


def test_white_noise_at_new_inputs_is_not_known_from_the_data() -> None:
    model = randomised(AugmentedSVGP(plain() + White(0.4), likelihoods.StudentT(), Z))
    mean, variance = predict_component(model, X_NEW, 3)
    np.testing.assert_array_equal(mean, 0.0)
    np.testing.assert_allclose(variance, 0.4)


def test_parts_are_computed_in_float32() -> None:
    model = randomised(AugmentedSVGP(orthogonal(), likelihoods.StudentT(), Z))
    expected = predict_component(model, X_NEW, (0, 1))
    with gpflow.config.as_context(gpflow.config.Config(float=np.float32, jitter=1e-5)):
        single = AugmentedSVGP(orthogonal(), likelihoods.StudentT(), Z.astype(np.float32))
        single.q_mu.assign(model.q_mu.numpy())
        single.q_sqrt.assign(model.q_sqrt.numpy())
        found = predict_component(single, X_NEW, (0, 1))
    assert found[0].dtype == found[1].dtype == tf.float32
    np.testing.assert_allclose(found, expected, atol=1e-2)


@pytest.mark.parametrize("part", [3, -1, "trend", SquaredExponential(), (0,), None])
def test_another_part_is_refused(part: object) -> None:
    model = AugmentedSVGP(plain(), likelihoods.StudentT(), Z)
    with pytest.raises(ValueError, match=r"part must be an index from 0 to 2, or one of .* Found:"):
        predict_component(model, X_NEW, part)


def test_models_and_inputs_that_have_no_parts_are_refused() -> None:
    points = SharedIndependentInducingVariables(InducingPoints(Z))
    mixed = LinearCoregionalization([plain(), plain()], W=np.eye(2))
    kernels: list[Kernel] = [SquaredExponential(), plain() * Matern32(), mixed]
    for kernel in kernels:
        inducing = points if kernel is mixed else Z
        L = 2 if kernel is mixed else 1
        model = AugmentedSVGP(kernel, likelihoods.StudentT(), inducing, num_latent_gps=L)
        with pytest.raises(ValueError, match=f"kernel must be a Sum.*{type(kernel).__name__}"):
            predict_component(model, X_NEW, 0)
    model = AugmentedSVGP(plain(), likelihoods.StudentT(), Z)
    with pytest.raises(ValueError, match=r"Xnew must be \[N, 2\]"):
        predict_component(model, X_NEW[:, :1], 0)
    with pytest.raises(ValueError, match="Xnew must be finite"):
        predict_component(model, X_NEW * np.nan, 0)
    nearest = AugmentedNNGP((X, Y), plain(), likelihoods.StudentT(), num_neighbors=5)
    for other in (nearest, gpflow.models.GPR((X, Y), plain())):
        with pytest.raises(ValueError, match="model must be an AugmentedSVGP"):
            predict_component(other, X_NEW, 0)


@pytest.mark.replicate
def test_bands_of_the_parts_cover_the_functions_that_made_the_counts() -> None:
    """Main effects of mean 0, seen through negative binomial counts; 95 % bands, 3 x 100 inputs."""
    rng = np.random.default_rng(1)
    inputs = rng.uniform(-2.0, 2.0, size=(400, 3))
    effects = np.stack([np.sin(2.0 * inputs[:, 0]), inputs[:, 1] ** 2 / 2.0, 0.0 * inputs[:, 2]])
    effects -= effects.mean(1, keepdims=True)
    rate = np.exp(1.0 + effects.sum(0)) * rng.gamma(5.0, 1.0 / 5.0, size=400)
    counts = rng.poisson(rate)[:, None].astype(float)
    kernel = OrthogonalAdditive(SquaredExponential(), inputs)
    model = AugmentedSVGP(kernel, likelihoods.NegativeBinomial(5.0), inputs[:50], num_data=400)
    gpflow.set_trainable(model.inducing_variable, False)
    assert fit(model, (inputs, counts), progress=False).converged
    inside = []
    for d in range(3):
        mean, variance = (part.numpy()[:, 0] for part in predict_component(model, inputs, (d,)))
        assert np.sqrt(np.mean(np.square(mean - effects[d]))) < 0.12
        inside.append(np.abs(mean - effects[d]) < 1.96 * np.sqrt(variance))
    assert np.mean(inside) > 0.85
