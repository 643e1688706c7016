"""Networks of GPs: expectations against product rules and draws, and a GP as a special case."""

from typing import Any

import gpflow
import numpy as np
import pytest
import scipy.stats
from gpflow.base import AnyNDArray
from gpflow.quadrature.gauss_hermite import ndgh_points_and_weights

from gpflow_aaci.contrib import GaussianProcessRegressionNetwork, MixtureVGP

P = 2


def moments(seed: int, spread: float, P: int, Q: int) -> tuple[AnyNDArray, AnyNDArray, AnyNDArray]:
    """Fmu and Fvar [4, L], and Y [4, P] near to what they predict."""
    rng, L = np.random.default_rng(seed), Q * (1 + P)
    Fmu, Fvar = rng.normal(size=[4, L]), spread * rng.uniform(0.5, 1.5, size=[4, L])
    F = Fmu + np.sqrt(Fvar) * rng.normal(size=[4, L])
    return Fmu, Fvar, by_hand(F, P, Q) + 0.3 * rng.normal(size=[4, P])


def by_hand(F: AnyNDArray, P: int, Q: int) -> AnyNDArray:
    """W f, one sum at a time."""
    sums = [sum(F[..., Q + p * Q + j] * F[..., j] for j in range(Q)) for p in range(P)]
    return np.stack(sums, -1)


def test_log_prob_and_moments_given_the_latent_gps_are_the_definition() -> None:
    likelihood = GaussianProcessRegressionNetwork(3, 2)
    likelihood.variance.assign([0.1, 0.2, 0.3])
    F, _, Y = moments(0, 1.0, 3, 2)
    sds = np.sqrt([0.1, 0.2, 0.3])
    expected = scipy.stats.norm.logpdf(Y, by_hand(F, 3, 2), sds).sum(-1)
    np.testing.assert_allclose(likelihood.log_prob(F, F, Y), expected, rtol=1e-12)
    np.testing.assert_allclose(likelihood.conditional_mean(F, F), by_hand(F, 3, 2), rtol=1e-12)
    variance = likelihood.conditional_variance(F, F)
    np.testing.assert_allclose(variance, np.broadcast_to(sds**2, [4, 3]), rtol=1e-12)


def test_expectations_are_those_of_a_product_rule() -> None:
    """Gauss-Hermite rules of 5 nodes are exact: log p(y|f, W) is of degree 4 in (f, W)."""
    likelihood = GaussianProcessRegressionNetwork(P, 2, variance=0.2)
    Fmu, Fvar, Y = moments(1, 1.0, P, 2)
    z, dz = (part.numpy() for part in ndgh_points_and_weights(Fmu.shape[1], 5))
    F = Fmu + np.sqrt(Fvar) * z[:, None]  # [S, 4, L]
    y = by_hand(F, P, 2)
    log_p = scipy.stats.norm.logpdf(Y, y, np.sqrt(0.2)).sum(-1)
    found = likelihood.variational_expectations(Fmu, Fmu, Fvar, Y)
    np.testing.assert_allclose(found, np.sum(dz * log_p, 0), rtol=1e-10)
    mean, variance = likelihood.predict_mean_and_var(Fmu, Fmu, Fvar)
    expected = np.sum(dz[..., None] * y, 0)
    np.testing.assert_allclose(mean, expected, rtol=1e-10)
    second = np.sum(dz[..., None] * (y - expected) ** 2, 0) + 0.2
    np.testing.assert_allclose(variance, second, rtol=1e-10)


@pytest.mark.briefly("1.0-2-2")
@pytest.mark.parametrize(("spread", "P", "Q"), [(0.05, 2, 2), (0.3, 3, 1), (1.0, 2, 2)])
def test_the_predictive_density_is_that_of_draws(spread: float, P: int, Q: int) -> None:
    likelihood = GaussianProcessRegressionNetwork(P, Q, variance=0.1)
    Fmu, Fvar, Y = moments(2, spread, P, Q)
    S, rng = 200_000, np.random.default_rng(3)
    F = Fmu + np.sqrt(Fvar) * rng.normal(size=[S, *Fmu.shape])
    p = np.exp(scipy.stats.norm.logpdf(Y, by_hand(F, P, Q), np.sqrt(0.1)).sum(-1))  # [S, 4]
    found = np.exp(likelihood.predict_log_density(Fmu, Fmu, Fvar, Y))
    assert np.all(np.abs(found - p.mean(0)) < 4.0 * p.std(0) / np.sqrt(S) + 2e-3 * found)


def test_the_predictive_density_of_certain_weights_is_a_gaussian_however_narrow_the_noise() -> None:
    likelihood = GaussianProcessRegressionNetwork(2, 2, variance=1e-6, num_gauss_hermite_points=1)
    Fmu, Fvar, Y = moments(4, 1.0, 2, 2)
    Fvar[:, 2:] = 0.0
    W = Fmu[:, 2:].reshape([4, 2, 2])
    covariance = np.einsum("npj,nj,nqj->npq", W, Fvar[:, :2], W) + 1e-6 * np.eye(2)
    expected = [
        scipy.stats.multivariate_normal.logpdf(*row)
        for row in zip(Y, by_hand(Fmu, 2, 2), covariance, strict=True)
    ]
    found = likelihood.predict_log_density(Fmu, Fmu, Fvar, Y)
    np.testing.assert_allclose(found, expected, rtol=1e-7)


def test_the_predictive_density_of_certain_latent_gps_is_the_density() -> None:
    likelihood = GaussianProcessRegressionNetwork(2, 2, variance=0.3)
    Fmu, _, Y = moments(4, 1.0, 2, 2)
    found = likelihood.predict_log_density(Fmu, Fmu, np.zeros_like(Fmu), Y)
    np.testing.assert_allclose(found, likelihood.log_prob(Fmu, Fmu, Y), rtol=1e-9)


def network(X: AnyNDArray, Y: AnyNDArray, kernels: list[Any], mean: list[float], **options: Any):
    likelihood = GaussianProcessRegressionNetwork(Y.shape[1], 1, variance=0.2)
    kernel = gpflow.kernels.SeparateIndependent(kernels)
    return MixtureVGP((X, Y), kernel, likelihood, gpflow.functions.Constant(mean), **options)


@pytest.mark.slow
def test_one_node_with_fixed_weights_is_a_gp() -> None:
    """Both outputs are the node plus noise, so that the bound is GPR's evidence of all 2N data."""
    gpflow.config.set_default_jitter(1e-10)
    rng = np.random.default_rng(5)
    X = rng.uniform(-2.0, 2.0, [8, 1])
    Y = np.sin(2.0 * X) + 0.4 * rng.normal(size=[8, 2])
    of_node, certain = gpflow.kernels.Matern52(1.5), gpflow.kernels.Constant(1e-14)
    data = np.vstack([X, X]), Y.T.reshape([-1, 1])
    exact = gpflow.models.GPR(data, of_node, noise_variance=0.2)
    options: dict[str, Any] = {"num_components": 1, "covariance": "opper_archambeau"}
    model = network(X, Y, [of_node, certain, certain], [0.0, 1.0, 1.0], **options)
    variables = model.q_mu.trainable_variables + model.q_lambda.trainable_variables
    loss, limits = model.training_loss_closure(), {"ftol": 1e-15, "gtol": 1e-9}
    gpflow.optimizers.Scipy().minimize(loss, variables, options=limits)
    np.testing.assert_allclose(model.elbo(), exact.log_marginal_likelihood(), atol=1e-5)
    X_NEW, Y_NEW = np.array([[-1.0], [0.3], [5.0]]), np.array([[0.2], [-1.0], [0.1]])
    for found, expected in zip(model.predict_y(X_NEW), exact.predict_y(X_NEW), strict=True):
        np.testing.assert_allclose(found, np.hstack([expected, expected]), atol=1e-4)
    one = network(X, Y[:, :1], [of_node, certain], [0.0, 1.0], **options)
    one.q_mu.assign(model.q_mu[..., :2])
    one.q_lambda.assign(model.q_lambda[..., :2])
    found = one.predict_log_density((X_NEW, Y_NEW))
    np.testing.assert_allclose(found, exact.predict_log_density((X_NEW, Y_NEW)), atol=1e-4)


@pytest.mark.slow
def test_components_may_take_modes_of_opposite_signs() -> None:
    """(f, W) and (−f, −W) are one y, so that two components gain up to log 2 over one."""
    X = np.linspace(-2.0, 2.0, 8)[:, None]
    Y = np.sin(X) * [1.0, -1.0] + 0.1 * np.cos(9.0 * X)
    kernels = [gpflow.kernels.SquaredExponential(), *2 * [gpflow.kernels.SquaredExponential()]]
    bounds = []
    for K in (1, 2):
        model = network(X, Y, kernels, [0.0, 0.0, 0.0], num_components=K)
        sign, spread = 1.0 - 2.0 * np.arange(K)[:, None, None], np.full([K, 8, 3], 0.3)
        model.q_mu.assign(sign * 0.3 * np.eye(8, 3))
        model.q_sqrt.assign(spread)
        variables = model.q_mu.trainable_variables + model.q_sqrt.trainable_variables
        gpflow.optimizers.Scipy().minimize(model.training_loss_closure(), variables)
        bounds.append(float(model.elbo()))
    np.testing.assert_allclose(bounds[1] - bounds[0], np.log(2.0), atol=0.02)
    means, _ = model.predict_f_components(X)
    assert np.corrcoef(means[0, :, 0], means[1, :, 0])[0, 1] < -0.9
    fitted, _ = model.predict_y(X)
    assert np.sqrt(np.mean((fitted - Y) ** 2)) < 0.3


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"num_outputs": 0}, r"num_outputs must be an integer of at least 1\. Found: 0"),
        ({"num_nodes": 1.5}, "num_nodes must be an integer"),
        ({"variance": -1.0}, r"variance must be above 0\. Found: -1\.0"),
        ({"num_gauss_hermite_points": 0}, "num_gauss_hermite_points must be an integer"),
    ],
)
def test_bad_arguments_are_named(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GaussianProcessRegressionNetwork(**{"num_outputs": 2, "num_nodes": 1, **changed})


def test_kernels_for_another_number_of_latent_gps_are_refused() -> None:
    X = np.zeros([2, 1])
    with pytest.raises(ValueError, match=r"kernel must have 3 latent GPs.*Found: 2"):
        network(X, np.zeros([2, 2]), 2 * [gpflow.kernels.Constant()], [0.0, 1.0, 1.0])
