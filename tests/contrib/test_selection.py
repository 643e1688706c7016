"""
Which inputs matter, by a spike and a slab on the inverse lengthscales.

The updates are compared with closed forms, with the probabilities of all models by quadrature, and
by Geweke's test.
"""

import itertools
from typing import Any

import arviz
import gpflow
import numpy as np
import pytest
import scipy.linalg
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import AnyNDArray

from gpflow_aaci import AugmentedSVGP, AugmentedVGP, likelihoods, predictions, sample_posterior
from gpflow_aaci.contrib import HyperparameterGibbs
from gpflow_aaci.contrib.hyperparameter_gibbs import HyperparameterSweep
from gpflow_aaci.contrib.selection import InputSelection

tfd = tfp.distributions
double = np.float64


def ard_kernel(D: int, mean: float, scale: float) -> gpflow.kernels.Stationary:
    """A kernel with log-normal lengthscales; its variance is fixed."""
    kernel = gpflow.kernels.SquaredExponential(lengthscales=np.ones(D))
    kernel.lengthscales.prior = tfd.LogNormal(double(mean), double(scale))
    gpflow.set_trainable(kernel.variance, False)
    return kernel


def assert_mean(draws: AnyNDArray, expected: float) -> None:
    """The mean of draws [chain, draw] is as expected, within four of its standard errors."""
    error = draws.std() / np.sqrt(arviz.ess(draws))
    assert abs(draws.mean() - expected) < 4.0 * error + 1e-12


@pytest.mark.slow
@pytest.mark.by_default("unconstrained")
@pytest.mark.parametrize("prior_on", ["unconstrained", "on the value"])
def test_draws_follow_a_density_whose_models_are_known_in_closed_form(prior_on: str) -> None:
    """
    The log-density is b − c (t − a)²/2 of each included column, plus a term of both columns.

    t is the logarithm of the lengthscale, which is normal a priori. Of the third column the density
    says nothing, so that γ and the lengthscale keep their prior.
    """
    m, s, pi = 0.2, 0.8, np.array([0.5, 0.3, 0.7])
    a, b, c = np.array([1.0, -0.5, 0.0]), np.array([0.4, 1.0, 0.0]), np.array([4.0, 1.0, 0.0])
    of_both = 0.8
    kernel = ard_kernel(3, m, s)
    if prior_on == "unconstrained":
        kernel.lengthscales = gpflow.Parameter(
            np.ones(3),
            transform=tfp.bijectors.Exp(),
            prior=tfd.Normal(double(m), double(s)),
            prior_on=prior_on,
        )
    X = tf.constant([[0.0, -3.0, 1.0], [1.0, 5.0, 1.0]], tf.float64)  # one column is constant
    selection = InputSelection(kernel, X, list(pi))

    def log_density() -> tf.Tensor:
        t = tf.math.log(kernel.lengthscales)
        on = tf.cast(t < 20.0, tf.float64)
        return tf.reduce_sum(on * (b - 0.5 * c * (t - a) ** 2)) + of_both * on[0] * on[1]

    @tf.function(autograph=False)
    def draws(seeds: tf.Tensor) -> Any:
        def state() -> tuple[tf.Tensor, ...]:
            t, of_slab = tf.math.log(kernel.lengthscales), tf.math.log(selection._slab)
            return selection.included, t, of_slab

        def one(_: Any, seed: tf.Tensor) -> tuple[tf.Tensor, ...]:
            selection.move(log_density, [kernel.lengthscales], seed)
            return state()

        return tf.scan(one, seeds, initializer=state())

    included, t, of_slab = (
        x.numpy() for x in draws(tf.stack(tfp.random.split_seed([0, 1], n=700)))
    )
    np.testing.assert_array_equal(included == 0, t > 20.0)
    shrunk = 1.0 + c * s**2
    evidence = np.exp(b - 0.5 * c * (m - a) ** 2 / shrunk) / np.sqrt(shrunk)
    weights = {
        model: np.prod(np.where(model, pi * evidence, 1.0 - pi))
        * np.exp(of_both * model[0] * model[1])
        for model in itertools.product([0, 1], repeat=3)
    }
    for model, weight in weights.items():
        is_model = np.all(included == model, axis=1)[None].astype(float)
        assert_mean(is_model, weight / sum(weights.values()))
    mean, variance = (m + c * s**2 * a) / shrunk, s**2 / shrunk
    for d in range(3):
        # z is standard normal where the column is included.
        z = np.where(included[:, d], (t[:, d] - mean[d]) / np.sqrt(variance[d]), 0.0)
        assert_mean(z[None], 0.0)
        assert_mean((z**2 - included[:, d])[None], 0.0)
        hidden = np.where(included[:, d], 0.0, (of_slab[:, d] - m) / s)  # as a priori
        assert_mean(hidden[None], 0.0)
        assert_mean((hidden**2 - (1 - included[:, d]))[None], 0.0)


@pytest.mark.replicate
@pytest.mark.parametrize("kind", [AugmentedVGP, AugmentedSVGP])
def test_with_gaussian_noise_models_have_the_probabilities_of_their_evidence(kind: Any) -> None:
    """
    All 2³ models of 30 rows, lengthscales integrated by quadrature.

    Two columns are correlated. The sparse model has Z = X, two latent GPs, and a further column
    that its kernel does not use.
    """
    rng = np.random.default_rng(4)
    P = 1 if kind is AugmentedVGP else 2
    X = rng.normal(size=(30, 3))
    X[:, 1] = 0.8 * X[:, 0] + 0.6 * X[:, 1]
    Y = 0.35 / P * np.sin(X[:, :1]) + 0.6 * rng.normal(size=(30, P))
    kernel = ard_kernel(3, 0.5, 0.6)
    kernel.variance.assign(0.5)
    likelihood = likelihoods.Gaussian(variance=0.36)
    gpflow.set_trainable(likelihood, False)
    pi = [0.5, 0.4, 0.3]
    sampler = HyperparameterGibbs(selection=pi)
    data = None
    if kind is AugmentedVGP:
        model = AugmentedVGP((X, Y), kernel, likelihood)
    else:
        kernel.active_dims = [1, 2, 3]
        data = np.hstack([rng.normal(size=(30, 1)), X]), Y
        model = AugmentedSVGP(kernel, likelihood, data[0].copy(), num_latent_gps=P)
        gpflow.set_trainable(model.inducing_variable, False)
    posterior = sample_posterior(
        model, data, sampler, num_samples=800, num_chains=2, num_burnin=20, progress=False
    ).posterior

    nodes, node_weights = np.polynomial.hermite_e.hermegauss(9)
    node_weights /= node_weights.sum()
    squares = (X.T[:, :, None] - X.T[:, None, :]) ** 2 * np.exp(-1.0)
    models, weights = list(itertools.product([0, 1], repeat=3)), []
    for gamma in models:
        on = [d for d in range(3) if gamma[d]]
        weight = np.prod(np.where(gamma, pi, 1.0 - np.array(pi)))
        total = 0.0
        for at in itertools.product(range(9), repeat=len(on)):
            r2 = sum(squares[d] * np.exp(-1.2 * nodes[i]) for d, i in zip(on, at, strict=True))
            K = 0.5 * np.exp(-0.5 * r2 * np.ones((30, 30))) + 0.36 * np.eye(30)
            L = np.linalg.cholesky(K)
            white = scipy.linalg.solve_triangular(L, Y, lower=True)
            log_p = -0.5 * np.sum(white**2) - P * np.log(np.diag(L)).sum()
            total += np.prod(node_weights[list(at)]) * np.exp(log_p)
        weights.append(weight * total)
    probabilities = np.array(weights) / np.sum(weights)
    assert np.sum(probabilities > 0.05) >= 4  # there is something to tell apart
    for gamma, probability in zip(models, probabilities, strict=True):
        is_model = np.all(posterior["included"].values == gamma, axis=-1).astype(float)
        if probability > 0.02:
            assert_mean(is_model, probability)


@pytest.mark.replicate
def test_alternating_with_the_model_s_data_leaves_the_prior() -> None:
    """
    Alternating y | f, θ by simulation and (γ, θ, f) | y by a sweep must keep the prior
    (Geweke 2004).
    """
    kernel = gpflow.kernels.Matern32(variance=1.5, lengthscales=[0.7, 0.7])
    likelihood = likelihoods.StudentT(scale=0.5, df=4.0)
    gpflow.set_trainable(likelihood, False)
    kernel.variance.prior = tfd.Gamma(double(4.0), double(3.0))
    kernel.lengthscales.prior = tfd.LogNormal(double(-0.3), double(0.4))
    rng = np.random.default_rng(2)
    X = rng.uniform(-1.0, 1.0, size=(4, 2))
    model = AugmentedVGP((X, X[:, :1]), kernel, likelihood)
    pi = np.array([0.5, 0.3])
    sweep = HyperparameterSweep(model, selection=list(pi))
    f, rows = np.zeros((1, 4, 1)), []
    for round_ in range(1_500):
        y = f[0] + 0.5 * rng.standard_t(4.0, size=(4, 1))
        f = sweep(tf.constant(f), tf.constant(y), tf.constant([7, round_]))["f"].numpy()
        chol = np.linalg.cholesky(model.prior_covariance()[0].numpy())
        white = scipy.linalg.solve_triangular(chol, f[0], lower=True).ravel()
        gamma = sweep.selection.included.numpy()
        z = gamma * (np.log(kernel.lengthscales.numpy()) + 0.3) / 0.4
        of_variance = tfd.Normal(double(0.0), double(1.0)).quantile(
            kernel.variance.prior.cdf(kernel.variance)
        )
        standard = np.array([*white, of_variance])
        rows.append([*standard, *(standard**2 - 1.0), *(gamma - pi), *z, *(z**2 - gamma)])
    for values in np.array(rows[100:]).T:
        assert_mean(values[None], 0.0)


@pytest.fixture(scope="module")
def of_classes() -> tuple[AugmentedVGP, "arviz.InferenceData"]:
    """Draws for labels that depend on two of six inputs."""
    rng = np.random.default_rng(2)
    X = rng.normal(size=(120, 6))
    f = 4.0 * np.sin(1.5 * X[:, :1]) + 2.5 * X[:, 3:4]
    Y = (rng.uniform(size=f.shape) < 1.0 / (1.0 + np.exp(-f))).astype(float)
    kernel = gpflow.kernels.Matern52(variance=4.0, lengthscales=np.ones(6))
    kernel.lengthscales.prior = tfd.LogNormal(double(0.5), double(0.7))
    kernel.variance.prior = tfd.LogNormal(double(1.0), double(1.0))
    model = AugmentedVGP((X, Y), kernel, likelihoods.Logistic())
    samples = sample_posterior(
        model,
        sampler=HyperparameterGibbs(selection=0.5),
        num_samples=100,
        num_chains=2,
        num_burnin=40,
        progress=False,
    )
    return model, samples


@pytest.mark.slow
def test_the_inputs_that_labels_depend_on_are_found(of_classes: Any) -> None:
    model, samples = of_classes
    probability = samples.posterior["included"].mean(("chain", "draw")).values
    assert np.all(probability[[0, 3]] > 0.95)
    assert np.all(probability[[1, 2, 4, 5]] < 0.4)
    np.testing.assert_allclose(model.kernel.lengthscales, np.ones(6), rtol=1e-12)


@pytest.mark.slow
def test_predictions_do_not_depend_on_columns_that_are_excluded(of_classes: Any) -> None:
    model, samples = of_classes
    included = samples.posterior["included"].values[0]
    (without,) = np.nonzero(included[:, [1, 2, 4, 5]].sum(1) == 0)
    assert len(without) > 5
    some = samples.isel(chain=[0], draw=without)
    X = np.random.default_rng(5).normal(size=(4, 6))
    moved = X.copy()
    moved[:, [1, 2, 4, 5]] += 50.0
    first, second = (
        predictions.predict_y(model, x, samples=some, progress=False)[0] for x in (X, moved)
    )
    np.testing.assert_allclose(first, second, rtol=1e-6)
    assert np.ptp(first) > 0.1


@pytest.mark.slow
def test_lengthscales_of_included_columns_are_those_that_the_mask_keeps(of_classes: Any) -> None:
    _, samples = of_classes
    posterior = samples.posterior
    kept = posterior["kernel.lengthscales"].where(posterior["included"])
    assert kept.shape == (2, 100, 6)
    assert float(kept.max()) < 1e6
    summary = arviz.summary(samples, var_names=["included"], kind="stats")
    np.testing.assert_allclose(
        summary["mean"], posterior["included"].mean(("chain", "draw")), atol=1e-3
    )


@pytest.mark.slow
def test_it_draws_in_float32_with_inducing_points() -> None:
    """Even if all columns are excluded, and the prior of u is singular but for jitter."""
    with gpflow.config.as_context(gpflow.config.Config(float=np.float32)):
        X = np.random.default_rng(0).normal(size=(40, 2)).astype(np.float32)
        kernel = gpflow.kernels.Matern32(lengthscales=[1.0, 1.0])
        kernel.lengthscales.prior = tfd.LogNormal(np.float32(0.0), np.float32(1.0))
        model = AugmentedSVGP(kernel, likelihoods.StudentT(), X[:10])
        for fixed in (kernel.variance, model.likelihood, model.inducing_variable):
            gpflow.set_trainable(fixed, False)
        draws = sample_posterior(
            model,
            (X, np.zeros((40, 1), np.float32)),
            HyperparameterGibbs(selection=0.1),
            num_samples=20,
            num_chains=2,
            num_burnin=2,
            progress=False,
        ).posterior
        assert draws["kernel.lengthscales"].dtype == np.float32
        assert np.any(draws["included"].values.sum(-1) == 0)


@pytest.mark.parametrize("selection", [0.0, 1.0, True, np.nan, [0.5, -0.1], [[0.5, 0.5]]], ids=str)
def test_probabilities_out_of_range_are_refused(selection: Any) -> None:
    with pytest.raises(ValueError, match="selection must be the prior probability"):
        HyperparameterGibbs(selection=selection)


def refused(kernel: gpflow.kernels.Kernel, selection: Any, message: str) -> None:
    X = np.random.default_rng(0).normal(size=(5, 2))
    model = AugmentedVGP((X, X[:, :1]), kernel, likelihoods.Laplace())
    gpflow.set_trainable(model.likelihood, False)
    with pytest.raises(ValueError, match=message):
        sample_posterior(model, sampler=HyperparameterGibbs(selection=selection))


def test_other_numbers_of_probabilities_than_of_columns_are_refused() -> None:
    refused(ard_kernel(2, 0.0, 1.0), [0.5, 0.5, 0.5], r"each of the 2 columns.*Found: 3\.")


@pytest.mark.parametrize(
    ("kernel", "found"),
    [
        (gpflow.kernels.Matern32(), "Matern32 with one lengthscale"),
        (gpflow.kernels.Linear(variance=[1.0, 1.0]), "Linear"),
        (gpflow.kernels.Matern32(lengthscales=[1.0, 1.0]) + gpflow.kernels.Constant(), "Sum"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_kernels_without_a_lengthscale_for_each_column_are_refused(
    kernel: gpflow.kernels.Kernel, found: str
) -> None:
    for parameter in kernel.parameters:
        parameter.prior = tfd.LogNormal(double(0.0), double(1.0))
    refused(kernel, 0.5, rf"a lengthscale for each column.*Found: {found}\.")


def test_lengthscales_that_cannot_be_excluded_are_refused() -> None:
    """They have no prior, are fixed, are bounded, or have a joint prior."""
    kernel = ard_kernel(2, 0.0, 1.0)
    prior, kernel.lengthscales.prior = kernel.lengthscales.prior, None
    refused(kernel, 0.5, r"must have a prior.*kernel\.lengthscales")
    gpflow.set_trainable(kernel.lengthscales, False)
    gpflow.set_trainable(kernel.variance, True)
    kernel.variance.prior = prior
    refused(kernel, 0.5, r"must be trainable.*Found: trainable=False\.")
    gpflow.set_trainable(kernel.lengthscales, True)
    kernel.lengthscales.prior = tfd.MultivariateNormalDiag(np.zeros(2), np.ones(2))
    refused(kernel, 0.5, r"a prior of each by itself.*Found: a joint prior\.")
    bounded = tfp.bijectors.Sigmoid(double(0.1), double(10.0))
    kernel.lengthscales = gpflow.Parameter(np.ones(2), transform=bounded, prior=prior)
    refused(kernel, 0.5, r"transform that allows large values.*Found: sigmoid\.")
