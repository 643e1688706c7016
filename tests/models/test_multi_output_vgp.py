"""AugmentedVGP with several kernels, or a kernel that mixes latent GPs."""

from collections.abc import Callable

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.kernels import (
    LinearCoregionalization,
    Matern32,
    Matern52,
    SeparateIndependent,
    SharedIndependent,
    SquaredExponential,
)

import gpflow_aaci
from gpflow_aaci import (
    AugmentedNaturalGradient,
    AugmentedSVGP,
    AugmentedVGP,
    contrib,
    likelihoods,
)
from gpflow_aaci.diagnostics import psis_khat
from gpflow_aaci.predictions import sample_functions

W = np.array([[1.0, 0.2], [-0.5, 0.9], [0.4, 0.0]])
NEW = np.array([[-1.0], [0.3], [2.5]])
MEAN = gpflow.functions.Linear([[0.3, -0.1, 0.2]], [0.1, 0.0, 1.0])


def shared() -> gpflow.kernels.MultioutputKernel:
    return SharedIndependent(Matern32(lengthscales=0.7), 3)


def separate() -> gpflow.kernels.MultioutputKernel:
    return SeparateIndependent([Matern32(lengthscales=0.7), SquaredExponential(), Matern52()])


def mixed() -> gpflow.kernels.MultioutputKernel:
    return LinearCoregionalization([Matern32(lengthscales=0.7), SquaredExponential()], W)


def data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = np.linspace(-2.0, 2.0, 25)[:, None]
    Y = np.hstack([np.sin(2.0 * X), np.cos(3.0 * X), 0.3 * X])
    return X, Y + 0.2 * rng.standard_t(4, size=Y.shape)


def pair(make: Callable) -> tuple[AugmentedVGP, AugmentedSVGP]:
    """The full model, and the sparse one with Z = X, at the same values."""
    noise = likelihoods.StudentT(scale=0.3)
    full = AugmentedVGP(data(), make(), noise, mean_function=MEAN)
    sparse = AugmentedSVGP(
        make(),
        likelihoods.StudentT(scale=0.3),
        data()[0].copy(),
        mean_function=MEAN,
        num_latent_gps=full.num_latent_gps,
    )
    gpflow.set_trainable(sparse.inducing_variable, False)
    return full, sparse


@pytest.mark.slow
@pytest.mark.briefly("mixed")
@pytest.mark.parametrize("make", [shared, separate, mixed])
def test_it_is_the_sparse_model_with_inducing_points_at_the_data(make: Callable) -> None:
    full, sparse = pair(make)
    cached = full.posterior()
    for _ in range(2):
        AugmentedNaturalGradient(step_size=0.7).minimize(full)
        AugmentedNaturalGradient(step_size=0.7).minimize(sparse, data())
    assert float(full.elbo()) == pytest.approx(float(sparse.elbo(data())), rel=1e-9)
    bounds = full.augmented_elbo(), sparse.augmented_elbo(data())
    assert float(bounds[0]) == pytest.approx(float(bounds[1]), rel=1e-9)
    for flags in ({}, {"full_cov": True}, {"full_output_cov": True}):
        for ours, theirs in zip(
            full.predict_f(NEW, **flags), sparse.predict_f(NEW, **flags), strict=True
        ):
            np.testing.assert_allclose(ours, theirs, atol=1e-7)
    np.testing.assert_allclose(cached.predict_f(NEW)[0], full.predict_f(NEW)[0], atol=1e-7)
    log_p = full.predict_log_density(data()), sparse.predict_log_density(data())
    np.testing.assert_allclose(*log_p, atol=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("make", [shared, separate, mixed])
def test_fits_of_both_end_at_the_same_elbo(make: Callable) -> None:
    full, sparse = pair(make)
    found = gpflow_aaci.fit(full, progress=False)
    other = gpflow_aaci.fit(sparse, data(), progress=False)
    assert found.converged
    assert found.elbo == pytest.approx(other.elbo, abs=5e-3)


def test_functions_of_mixed_latent_gps_are_of_the_outputs() -> None:
    full, _ = pair(mixed)
    AugmentedNaturalGradient(step_size=1.0).minimize(full)
    functions = sample_functions(full, 2_000)(NEW)
    assert functions.shape == (2_000, 3, 3)
    np.testing.assert_allclose(tf.reduce_mean(functions, 0), full.predict_f(NEW)[0], atol=0.12)


def test_mixed_by_the_unit_matrix_they_are_separate() -> None:
    X, Y = data()
    kernels, noise = [Matern32(lengthscales=0.7), SquaredExponential()], likelihoods.Laplace(0.3)
    models = [
        AugmentedVGP((X, Y[:, :2]), kernel, noise)
        for kernel in (SeparateIndependent(kernels), LinearCoregionalization(kernels, np.eye(2)))
    ]
    for model in models:
        AugmentedNaturalGradient(step_size=1.0).minimize(model)
    assert float(models[0].elbo()) == pytest.approx(float(models[1].elbo()), rel=1e-9)
    assert psis_khat(models[0]) == pytest.approx(psis_khat(models[1]), abs=1e-6)


def test_what_it_does_not_take_is_said() -> None:
    X, Y = data()

    class Other(SharedIndependent.__mro__[1]):  # GPflow's base class of multi-output kernels
        def K(self, *args: object, **kwargs: object) -> None: ...
        def K_diag(self, *args: object, **kwargs: object) -> None: ...

        num_latent_gps, latent_kernels = 3, ()

    with pytest.raises(ValueError, match=r"or LinearCoregionalization\. Found: Other"):
        AugmentedVGP((X, Y), Other(), likelihoods.StudentT())
    two = SeparateIndependent([Matern32(), Matern52()])
    with pytest.raises(ValueError, match=r"num_latent_gps must be 2, as for the kernel\. Found: 3"):
        AugmentedVGP((X, Y), two, likelihoods.StudentT())
    mixing = pair(mixed)[0]
    with pytest.raises(ValueError, match=r"must not mix the latent GPs, which .* with Gibbs\(\)"):
        gpflow_aaci.sample_posterior(mixing, sampler=contrib.HMC(), progress=False)
    kernel = LinearCoregionalization([Matern32(), Matern52()], W[:2])
    uneven = likelihoods.Heteroscedastic(likelihoods.Gaussian())
    X_and_y = X, Y[:, :1]
    for model, kept in (
        (AugmentedVGP(X_and_y, kernel, uneven), None),
        (AugmentedSVGP(kernel, uneven, X[:4].copy(), num_latent_gps=2), X_and_y),
    ):
        with pytest.raises(ValueError, match=r"not mix .* jointly, given ω\. Found: Linear.*, Het"):
            gpflow_aaci.sample_posterior(model, kept, progress=False)
    stock = gpflow.models.VGP((X, Y), separate(), likelihoods.StudentT(), num_latent_gps=3)
    with pytest.raises(ValueError, match=r"single-output kernel .* of GPflow's VGP; an Augmented"):
        gpflow_aaci.sample_posterior(stock, sampler=contrib.HMC(), progress=False)
