"""Elliptical slices and HMC, also with GPflow's own models and likelihoods."""

from typing import Any

import arviz
import gpflow
import numpy as np
import pytest
import scipy.special
import scipy.stats
import tensorflow as tf
from gpflow.base import AnyNDArray

from gpflow_aaci import AugmentedSVGP, AugmentedVGP, likelihoods, predictions, sample_posterior
from gpflow_aaci.contrib import (
    HMC,
    SGHMC,
    EllipticalSliceKernel,
    EllipticalSlices,
    HamiltonianKernel,
)

SAMPLERS = {"elliptical": EllipticalSlices(), "hmc": HMC()}


def data_of(N: int) -> tuple[AnyNDArray, AnyNDArray]:
    rng = np.random.default_rng(3)
    X = np.linspace(-2.0, 2.0, N)[:, None]
    return X, np.sin(2.0 * X) + 0.3 * rng.standard_t(4, size=X.shape)


def assert_moments(draws: AnyNDArray, mean: float, variance: float) -> None:
    """Moments of draws [chain, draw] agree within four standard errors, computed from the ESS."""
    for values, expected in ((draws, mean), ((draws - mean) ** 2, variance)):
        assert abs(values.mean() - expected) < 4.0 * values.std() / np.sqrt(arviz.ess(values))


@pytest.mark.slow
@pytest.mark.by_default("VGP-hmc", "SVGP-elliptical")
@pytest.mark.parametrize("method", SAMPLERS)
@pytest.mark.parametrize("kind", ["VGP", "GPMC", "SVGP"])
def test_gaussian_noise_has_its_closed_form(kind: str, method: str) -> None:
    """f at new inputs agrees with GPflow's GPR or, with inducing variables, GPRFITC."""
    X, Y = data_of(8)
    Z = X[1:7:2].copy()
    kernel = gpflow.kernels.Matern32(variance=1.2, lengthscales=0.8)
    mean_function, likelihood = gpflow.functions.Constant(0.4), gpflow.likelihoods.Gaussian(0.5)
    data = None
    if kind == "SVGP":
        data = X, Y
        model: Any = gpflow.models.SVGP(kernel, likelihood, Z, mean_function=mean_function)
        exact: Any = gpflow.models.GPRFITC(
            (X, Y), kernel, Z, mean_function=mean_function, noise_variance=0.5
        )
    else:
        model = getattr(gpflow.models, kind)((X, Y), kernel, likelihood, mean_function)
        exact = gpflow.models.GPR((X, Y), kernel, mean_function, noise_variance=0.5)
    number = 1_000 if method == "hmc" else 4_000
    samples = sample_posterior(
        model,
        data,
        SAMPLERS[method],
        num_samples=number,
        num_chains=4,
        num_burnin=300,
        seed=1,
        progress=False,
    )
    X_new = np.array([[-2.5], [0.3]])
    mean, variance = (moment.numpy() for moment in exact.predict_f(X_new))
    f = predictions.predict_f_samples(model, X_new, samples=samples, progress=False)
    for i in (0, 1):
        assert_moments(f[:, :, i, 0], mean[i, 0], variance[i, 0])


@pytest.mark.replicate
@pytest.mark.parametrize("kind", ["AugmentedVGP", "AugmentedSVGP"])
@pytest.mark.parametrize("method", SAMPLERS)
def test_moments_are_those_of_gibbs_sampling(kind: str, method: str) -> None:
    """The noise is Student-t; f at the data or u is compared."""
    X, Y = data_of(10)
    kernel, likelihood = gpflow.kernels.Matern32(), likelihoods.StudentT(scale=0.3, df=3.0)
    data = None
    if kind == "AugmentedVGP":
        model: Any = AugmentedVGP((X, Y), kernel, likelihood)
    else:
        data = X, Y
        model = AugmentedSVGP(kernel, likelihood, X[::2].copy())
    gibbs = sample_posterior(
        model, data, num_samples=4_000, num_chains=4, num_burnin=100, seed=1, progress=False
    )
    number = 1_500 if method == "hmc" else 10_000
    other = sample_posterior(
        model,
        data,
        SAMPLERS[method],
        num_samples=number,
        num_chains=4,
        num_burnin=1_000,
        seed=2,
        progress=False,
    )
    name = "f" if data is None else "u"
    a, b = (samples.posterior[name].values[..., 0] for samples in (gibbs, other))
    for x, y in zip(np.moveaxis(a, -1, 0), np.moveaxis(b, -1, 0), strict=True):
        for p, q in ((x, y), ((x - x.mean()) ** 2, (y - x.mean()) ** 2)):
            error = np.hypot(p.std() / arviz.ess(p) ** 0.5, q.std() / arviz.ess(q) ** 0.5)
            assert abs(p.mean() - q.mean()) < 4.5 * error


@pytest.mark.slow
def test_counts_with_gpflow_s_poisson_are_the_quadrature_s() -> None:
    """
    There is one datum, y

    f ~ Poisson(exp f); E y at a new input is tested, too.
    """
    kernel = gpflow.kernels.Matern32(variance=0.8)
    data = np.array([[0.0]]), np.array([[3.0]])
    model = gpflow.models.VGP(data, kernel, gpflow.likelihoods.Poisson())
    samples = sample_posterior(
        model,
        sampler=EllipticalSlices(),
        num_samples=4_000,
        num_chains=4,
        num_burnin=100,
        seed=3,
        progress=False,
    )
    grid = np.linspace(-6.0, 6.0, 4_001)
    weights = scipy.stats.norm(0.0, np.sqrt(0.8)).pdf(grid) * scipy.stats.poisson(np.exp(grid)).pmf(
        3
    )
    weights /= weights.sum()
    mean = weights @ grid
    f = samples.posterior["f"].values[..., 0, 0]
    assert_moments(f, mean, weights @ (grid - mean) ** 2)
    np.testing.assert_allclose(
        samples.log_likelihood["y"].values[..., 0], scipy.stats.poisson(np.exp(f)).logpmf(3)
    )
    X_new = np.array([[0.7]])
    rho = kernel(X_new, data[0]).numpy().item() / 0.8
    rate = np.exp(rho * grid + 0.4 * (1.0 - rho**2))
    expected = weights @ rate
    of_draw = np.exp(rho * f + 0.4 * (1.0 - rho**2))
    error = of_draw.std() / np.sqrt(arviz.ess(of_draw))
    actual, _ = predictions.predict_y(model, X_new, samples=samples, progress=False)
    np.testing.assert_allclose(actual[0, 0], of_draw.mean(), rtol=1e-4)
    assert abs(actual[0, 0] - expected) < 4.0 * error


@pytest.mark.slow
def test_softmax_of_several_latent_gps() -> None:
    """GPflow's softmax takes no batches of chains, yet log p(y|f) of every draw is right."""
    X = np.linspace(-1.0, 1.0, 5)[:, None]
    Y = np.array([[0], [2], [1], [1], [0]])
    likelihood = gpflow.likelihoods.Softmax(3)
    model = gpflow.models.SVGP(gpflow.kernels.RBF(), likelihood, X[::2].copy(), num_latent_gps=3)
    samples = sample_posterior(
        model, (X, Y), HMC(), num_samples=30, num_chains=2, num_burnin=20, seed=0, progress=False
    )
    assert samples.posterior["u"].shape == (2, 30, 3, 3)
    kernel = HamiltonianKernel(model, (X, Y))
    state = kernel.initial_state(4, seed=[0, 1])
    log_p = scipy.special.log_softmax(kernel.f(state).numpy(), -1)
    chosen = np.take_along_axis(log_p, Y[None], -1)
    np.testing.assert_allclose(kernel.log_likelihood(*state), chosen.sum((1, 2)), rtol=1e-10)
    mean, _ = predictions.predict_y(model, X, samples=samples, progress=False)
    np.testing.assert_allclose(np.sum(mean, -1), 1.0, rtol=1e-6)
    # Both use GPflow's Monte Carlo.
    log_density = predictions.predict_log_density(model, (X, Y), samples=samples, progress=False)
    chances = np.take_along_axis(mean.numpy(), Y, -1)[:, 0]
    np.testing.assert_allclose(np.exp(log_density), chances, atol=0.15)
    batches = tf.data.Dataset.from_tensor_slices((X, Y)).batch(3)  # the labels are floats
    of_batches = predictions.predict_log_density(model, batches, samples=samples, progress=False)
    np.testing.assert_allclose(np.exp(of_batches), chances, atol=0.15)


def test_counts_may_be_integers() -> None:
    """GPflow's Poisson itself does not accept integers."""
    X, counts = np.linspace(-1.0, 1.0, 5)[:, None], np.array([[0], [2], [1], [4], [3]])
    model = gpflow.models.SVGP(gpflow.kernels.RBF(), gpflow.likelihoods.Poisson(), X[::2].copy())
    draws, densities = [], []
    for Y in (counts, counts.astype(float)):
        samples = sample_posterior(
            model,
            (X, Y),
            EllipticalSlices(),
            num_samples=10,
            num_chains=2,
            num_burnin=5,
            seed=0,
            progress=False,
        )
        draws.append(samples.posterior["u"])
        densities.append(
            predictions.predict_log_density(model, (X, Y), samples=samples, progress=False)
        )
    np.testing.assert_array_equal(*draws)
    np.testing.assert_array_equal(*densities)


def test_bad_input_is_named() -> None:
    X, Y = data_of(5)
    kernel = gpflow.kernels.Matern32()
    vgp = gpflow.models.VGP((X, np.exp(Y)), kernel, gpflow.likelihoods.Exponential())
    svgp = gpflow.models.SVGP(kernel, gpflow.likelihoods.Gaussian(), X, num_data=9)
    ours = AugmentedVGP((X, Y), kernel, likelihoods.StudentT())
    wrong: list[tuple[Any, dict[str, Any], str]] = [
        (vgp, {}, r"sampler must be contrib.EllipticalSlices\(\).*Found: Gibbs sampling, Expon"),
        (vgp, {"sampler": HMC(), "data": (X, Y)}, "data must be given for models with inducing"),
        (svgp, {"sampler": HMC()}, "Found: SVGP, data not given"),
        (svgp, {"sampler": SGHMC()}, "Found: SVGP, data not given"),
        (svgp, {"sampler": HMC(), "seed": 0.5}, "seed must be an integer from 0.*Found: 0.5"),
        (svgp, {"sampler": HMC(), "data": (X, Y)}, "all num_data = 9 rows. Found: 5"),
        (svgp, {"sampler": HMC(), "data": (X, Y * np.nan)}, "Y must be finite"),
        (
            gpflow.models.GPR((X, Y), kernel),
            {"sampler": HMC()},
            "model must be an AugmentedVGP.*Found: GPR",
        ),
    ]
    for model, arguments, message in wrong:
        with pytest.raises(ValueError, match=message):
            sample_posterior(model, **arguments)
    for make in (HMC, lambda **options: HamiltonianKernel(ours, **options)):
        with pytest.raises(ValueError, match="step_size must be above 0"):
            make(step_size=0.0)
        with pytest.raises(ValueError, match="num_leapfrog_steps must be an integer of"):
            make(num_leapfrog_steps=0)
    with pytest.raises(ValueError, match="num_adaptation_steps must be an integer of at least 0"):
        HamiltonianKernel(ours, num_adaptation_steps=-1)
    mixing = gpflow.kernels.LinearCoregionalization([kernel], np.ones((1, 1)))
    with pytest.raises(ValueError, match="must not mix the latent GPs"):
        EllipticalSliceKernel(gpflow.models.SVGP(mixing, gpflow.likelihoods.Gaussian(), X), (X, Y))
