"""Gibbs sampling of the hyperparameters: Geweke's joint-distribution test, and bad input."""

import arviz
import gpflow
import numpy as np
import pytest
import scipy.linalg
import tensorflow as tf
import tensorflow_probability as tfp

from gpflow_aaci import AugmentedVGP, likelihoods, sample_posterior
from gpflow_aaci.contrib import HyperparameterGibbs
from gpflow_aaci.contrib.hyperparameter_gibbs import HyperparameterSweep
from gpflow_aaci.contrib.starts import sampled_parameters

tfd = tfp.distributions


def make_model(N: int = 4) -> AugmentedVGP:
    """A model with priors on all parameters, one of them on the unconstrained value."""
    kernel = gpflow.kernels.Matern32(variance=1.5, lengthscales=[0.7])
    likelihood = likelihoods.StudentT(scale=0.5, df=4.0)
    mean_function = gpflow.functions.Constant(0.2)
    X = np.linspace(-1.0, 1.0, N)[:, None]
    model = AugmentedVGP((X, np.sin(3.0 * X)), kernel, likelihood, mean_function)
    double = np.float64
    kernel.variance.prior = tfd.Gamma(double(4.0), double(3.0))
    kernel.lengthscales.prior = tfd.LogNormal(double(-0.3), double(0.4))
    likelihood.scale.prior = tfd.Normal(double(-0.5), double(0.5))
    likelihood.scale.prior_on = "unconstrained"
    mean_function.c.prior = tfd.Normal(double(0.0), double(1.0))
    gpflow.set_trainable(likelihood.df, False)
    return model


@pytest.mark.replicate
def test_alternating_with_the_model_s_data_leaves_prior_and_hyperprior() -> None:
    """
    Alternating y

    f, θ by simulation and (θ, f)

    y by a sweep must keep the prior (Geweke 2004).

    Quantities that are standard normal under the prior are compared in mean and mean square.
    """
    model = make_model()
    kernel, likelihood = model.kernel, model.likelihood
    sweep = HyperparameterSweep(model)
    rng = np.random.default_rng(2)
    f = np.zeros((1, 4, 1)) + 0.3
    standard = []
    for round_ in range(1_200):
        noise = likelihood.scale.numpy() * rng.standard_t(4.0, size=(4, 1))
        drawn = sweep(tf.constant(f), tf.constant(f[0] + noise), tf.constant([7, round_]))
        f = drawn["f"].numpy()
        L = np.linalg.cholesky(model.prior_covariance()[0].numpy())
        c = model.mean_function.c.numpy().item()
        white = scipy.linalg.solve_triangular(L, f[0] - c, lower=True).ravel()
        variance_rank = kernel.variance.prior.cdf(kernel.variance.numpy())
        standard.append(
            [
                float(tf.math.ndtri(variance_rank)),
                (np.log(kernel.lengthscales.numpy().item()) + 0.3) / 0.4,
                (likelihood.scale.unconstrained_variable.numpy() + 0.5) / 0.5,
                c,
                *white,
                np.sum(white) / 2.0,
            ]
        )
    for draws in np.array(standard[100:]).T[:, None, :]:
        for values, expected in ((draws, 0.0), (draws**2, 1.0)):
            error = values.std() / np.sqrt(arviz.ess(values))
            assert abs(values.mean() - expected) < 4.0 * error


@pytest.mark.slow
def test_draws_have_names_and_the_model_keeps_its_values() -> None:
    model = make_model()
    before = {name: p.numpy() for name, p in sampled_parameters(model).items()}
    runs = [
        sample_posterior(
            model,
            sampler=HyperparameterGibbs(),
            num_samples=20,
            num_chains=2,
            num_burnin=5,
            seed=3,
            progress=False,
        )
        for _ in "ab"
    ]
    names = {"kernel.variance", "kernel.lengthscales", "likelihood.scale", "mean_function.c"}
    assert set(runs[0].posterior) == {"f", *names}
    assert runs[0].posterior["kernel.lengthscales"].shape == (2, 20, 1)
    for name in names:
        draws = runs[0].posterior[name].values
        assert len(np.unique(draws)) > 30
        np.testing.assert_array_equal(draws, runs[1].posterior[name])
    for name, parameter in sampled_parameters(model).items():
        np.testing.assert_array_equal(parameter.numpy(), before[name])


def test_a_parameter_without_prior_is_named() -> None:
    model = make_model()
    model.kernel.variance.prior = None
    with pytest.raises(
        ValueError, match=r"every trainable hyperparameter must have a prior.*: kernel.variance\."
    ):
        sample_posterior(model, sampler=HyperparameterGibbs())
    gpflow.set_trainable(model, False)
    with pytest.raises(ValueError, match="must have trainable hyperparameters"):
        sample_posterior(model, sampler=HyperparameterGibbs())


def test_a_shared_parameter_is_one() -> None:
    """A variance with two names has one prior and one coordinate."""
    model = make_model()
    model.kernel = gpflow.kernels.Sum([model.kernel, gpflow.kernels.Matern32(lengthscales=3.0)])
    first, second = model.kernel.kernels
    second.variance = first.variance
    gpflow.set_trainable(second.lengthscales, False)
    found = sampled_parameters(model)
    assert [name for name in found if name.endswith("variance")] == ["kernel.kernels[0].variance"]


def test_a_parameter_of_both_blocks_is_refused() -> None:
    model = make_model()
    model.kernel.variance = model.likelihood.scale
    with pytest.raises(ValueError, match="not to both"):
        sample_posterior(model, sampler=HyperparameterGibbs())


def test_a_value_outside_its_prior_is_refused() -> None:
    """A slice would search for its level for ever."""
    model = make_model()
    model.kernel.lengthscales.prior = tfd.Uniform(np.float64(100.0), np.float64(101.0))
    with pytest.raises(ValueError, match=r"kernel.lengthscales must have a value.*-inf"):
        sample_posterior(model, sampler=HyperparameterGibbs())


@pytest.mark.slow
def test_what_goes_wrong_midway_leaves_the_model_as_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It does so even while the exception is still referenced."""
    model = make_model()
    before = {name: p.numpy() for name, p in sampled_parameters(model).items()}
    moved = []

    def fail(block: object) -> None:
        moved.append(model.kernel.variance.numpy() != before["kernel.variance"])
        raise FloatingPointError

    monkeypatch.setattr("gpflow_aaci.sampling.posterior.check_draws", fail)
    with pytest.raises(FloatingPointError) as held:
        sample_posterior(
            model,
            sampler=HyperparameterGibbs(),
            num_samples=5,
            num_chains=1,
            num_burnin=0,
            progress=False,
        )
    assert moved == [True]
    for name, parameter in sampled_parameters(model).items():
        np.testing.assert_array_equal(parameter.numpy(), before[name])
    del held
