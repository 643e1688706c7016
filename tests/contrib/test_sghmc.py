"""SGHMC, against a Gaussian target with noisy gradients, GPflow's FITC, and priors on Z."""

from typing import Any

import arviz
import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import AnyNDArray

from gpflow_aaci import AugmentedSVGP, likelihoods, predictions, sample_posterior
from gpflow_aaci.contrib import SGHMC, SGHMCKernel

double, uniform = np.float64, tfp.distributions.Uniform


def data_of(N: int) -> tuple[AnyNDArray, AnyNDArray]:
    rng = np.random.default_rng(3)
    X = np.linspace(-2.0, 2.0, N)[:, None]
    return X, np.sin(2.0 * X) + 0.3 * rng.normal(size=X.shape)


def assert_moments(draws: AnyNDArray, mean: float, variance: float) -> None:
    """Moments of draws [chain, draw] agree within four standard errors, computed from the ESS."""
    for values, expected in ((draws, mean), ((draws - mean) ** 2, variance)):
        assert abs(values.mean() - expected) < 4.0 * values.std() / np.sqrt(arviz.ess(values))


@pytest.mark.filterwarnings("ignore:.*not calibrated")
def test_a_gaussian_target_s_moments_by_noisy_gradients() -> None:
    """Two scales differ by an unknown factor of ten; there are 500 chains."""
    mean, sd = np.array([0.5, -2.0]), np.array([1.0, 0.1])

    def target(x: tf.Tensor, seed: Any) -> tf.Tensor:
        noise = tf.random.stateless_normal(tf.shape(x), seed, dtype=x.dtype) / sd
        log_p = -0.5 * tf.square((x - mean) / sd) + noise * x
        return tf.reduce_sum(log_p, -1)

    kernel = SGHMCKernel(target, step_size=0.02, num_adaptation_steps=1_000)
    start = tf.constant(mean + 2.0 * np.random.default_rng(0).normal(size=(500, 2)))

    @tf.function(autograph=False)
    def run() -> tf.Tensor:
        return tfp.mcmc.sample_chain(
            10,
            start,
            kernel=kernel,
            num_burnin_steps=2_500,
            num_steps_between_results=199,
            trace_fn=None,
            seed=[1, 2],
        )

    draws = run().numpy().swapaxes(0, 1)
    for i in (0, 1):
        assert_moments(draws[:, :, i], mean[i], sd[i] ** 2)


def make_model(N: int = 30) -> tuple[AugmentedSVGP, tuple[AnyNDArray, AnyNDArray]]:
    """A model with fixed hyperparameters."""
    kernel = gpflow.kernels.Matern32(variance=1.2, lengthscales=0.8)
    Z = np.linspace(-1.7, 1.6, 4)[:, None]
    model = AugmentedSVGP(kernel, likelihoods.Gaussian(variance=0.5), Z)
    gpflow.set_trainable(model, False)
    return model, data_of(N)


@pytest.mark.slow
@pytest.mark.parametrize("batch_size", [1_000, 10])
def test_it_predicts_as_fitc(batch_size: int) -> None:
    """Every step uses all 30 rows, or ten of them."""
    model, data = make_model()
    Z = model.inducing_variable.Z.numpy()
    fitc = gpflow.models.GPRFITC(data, model.kernel, Z, noise_variance=0.5)
    samples = sample_posterior(
        model,
        data,
        SGHMC(batch_size=batch_size),
        num_samples=400,
        num_chains=2,
        num_burnin=60,
        seed=1,
        progress=False,
    )
    X_new = np.array([[-2.5], [0.3]])
    mean, variance = (moment.numpy() for moment in fitc.predict_f(X_new))
    f = predictions.predict_f_samples(model, X_new, samples=samples, progress=False)
    for i in (0, 1):
        assert_moments(f[:, :, i, 0], mean[i, 0], variance[i, 0])


@pytest.mark.replicate
@pytest.mark.parametrize("batch_size", [1_000, 10])
def test_its_variational_draws_of_u_are_sgpr_s(batch_size: int) -> None:
    """With a Gaussian likelihood, the best q(u) is Gaussian (Titsias 2009)."""
    model, data = make_model()
    Z = model.inducing_variable.Z.numpy()
    sgpr = gpflow.models.SGPR(data, model.kernel, Z, noise_variance=0.5)
    samples = sample_posterior(
        model,
        data,
        SGHMC(batch_size=batch_size, objective="variational"),
        num_samples=400,
        num_chains=2,
        num_burnin=60,
        seed=1,
        progress=False,
    )
    mean, covariance = (moment.numpy() for moment in sgpr.compute_qu())
    for i in range(4):
        assert_moments(samples.posterior["u"].values[..., i, 0], mean[i, 0], covariance[i, i])


@pytest.mark.replicate
@pytest.mark.parametrize("is_uniform", [False, True])
def test_of_data_that_say_nothing_it_draws_the_priors(is_uniform: bool) -> None:
    """
    Z has a normal prior, or a uniform one with a transform onto its support; ℓ has a prior, too.
    """
    model, data = make_model(5)
    model.likelihood.variance.assign(1e6)
    inducing, lengthscales = model.inducing_variable, model.kernel.lengthscales
    if is_uniform:
        low, high = double(-2.0), double(3.0)
        inducing.Z = gpflow.Parameter(
            inducing.Z.numpy(), transform=tfp.bijectors.Sigmoid(low, high), prior=uniform(low, high)
        )
    else:
        inducing.Z.prior = tfp.distributions.Normal(double(0.5), double(0.3))
    for parameter in (inducing.Z, lengthscales):
        gpflow.set_trainable(parameter, True)
    lengthscales.prior = tfp.distributions.LogNormal(double(0.0), double(0.2))
    samples = sample_posterior(
        model,
        data,
        SGHMC(hyperparameters=True),
        num_samples=400,
        num_chains=2,
        num_burnin=60,
        seed=1,
        progress=False,
    ).posterior
    variance = 25.0 / 12.0 if is_uniform else 0.09
    assert_moments(samples["inducing_variable.Z"].values[..., 1, 0], 0.5, variance)
    assert_moments(np.log(samples["kernel.lengthscales"].values), 0.0, 0.04)


@pytest.mark.slow
def test_leaving_the_support_of_a_prior_is_an_error() -> None:
    """There, no gradient leads back."""
    model, data = make_model(5)
    gpflow.set_trainable(model.inducing_variable.Z, True)
    model.inducing_variable.Z.prior = uniform(double(-1.71), double(1.61))
    with pytest.raises(FloatingPointError, match=r"inducing_variable.Z has left the support"):
        sample_posterior(
            model,
            data,
            SGHMC(hyperparameters=True),
            num_samples=50,
            num_chains=1,
            num_burnin=1,
            seed=1,
            progress=False,
        )


@pytest.mark.slow
def test_draws_predict_and_the_model_keeps_its_values() -> None:
    model, data = make_model()
    Z = model.inducing_variable.Z
    gpflow.set_trainable(Z, True)
    Z.prior = tfp.distributions.Normal(double(0.0), double(1.0))
    before = Z.numpy()
    sampler = SGHMC(hyperparameters=True, batch_size=7, steps_per_draw=3)
    arguments: dict[str, Any] = {"num_samples": 4, "num_chains": 2, "num_burnin": 2, "seed": 5}
    runs = [sample_posterior(model, data, sampler, progress=False, **arguments) for _ in "ab"]
    np.testing.assert_array_equal(Z.numpy(), before)
    assert set(runs[0].posterior) == {"u", "inducing_variable.Z"}
    assert runs[0].posterior["u"].shape == (2, 4, 4, 1)
    assert set(runs[0].groups()) == {"posterior", "constant_data"}
    np.testing.assert_array_equal(runs[0].posterior["u"], runs[1].posterior["u"])
    assert predictions.predict_y(model, data[0][:3], samples=runs[0], progress=False)[0].shape == (
        3,
        1,
    )


def test_bad_input_is_named() -> None:
    model, data = make_model()
    full = gpflow.models.VGP(data, gpflow.kernels.RBF(), gpflow.likelihoods.Gaussian())
    with pytest.raises(ValueError, match=r"inducing variables if sampler is SGHMC\. Found: VGP"):
        sample_posterior(full, sampler=SGHMC())
    with pytest.raises(ValueError, match="num_burnin must be an integer of at least 1"):
        sample_posterior(model, data, SGHMC(), num_burnin=0)
    with pytest.raises(ValueError, match="step_size must be above 0"):
        SGHMC(step_size=0.0)
    with pytest.raises(ValueError, match="steps_per_draw must be an integer of at least 1"):
        SGHMC(steps_per_draw=0)
    with pytest.raises(ValueError, match="batch_size must be an integer of at least 1"):
        SGHMC(batch_size=0)
    with pytest.raises(ValueError, match='objective must be one of "predictive", "variational"'):
        SGHMC(objective="elbo")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="must have trainable hyperparameters"):
        sample_posterior(model, data, SGHMC(hyperparameters=True))
    for arguments, message in (
        ({"step_size": 0.0}, "step_size must be above 0"),
        ({"friction": 1.0}, r"friction must be in \(0, 1\)"),
        ({"num_adaptation_steps": -1}, "num_adaptation_steps must be an integer of at least 0"),
    ):
        with pytest.raises(ValueError, match=message):
            SGHMCKernel(lambda x, seed: x, **arguments)
