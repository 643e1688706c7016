"""Point processes as priors on Z, against NumPy's determinants, counted pairs and draws."""

from typing import Any

import arviz
import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import AnyNDArray

from gpflow_aaci import AugmentedSVGP, likelihoods, sample_posterior
from gpflow_aaci.contrib import SGHMC, HyperparameterGibbs, priors

double = np.float64
BOX = double(-1.0), double(1.0)


def test_the_determinantal_density_is_numpy_s_determinant(rng: np.random.Generator) -> None:
    """It uses the kernel's current variance and lengthscales."""
    kernel = gpflow.kernels.RBF(variance=1.3, lengthscales=[0.5, 0.8])
    prior = priors.Determinantal(kernel)
    Z = rng.normal(size=(5, 2))
    for variance in (1.3, 0.4):
        kernel.variance.assign(variance)
        distances = (((Z[:, None] - Z[None]) / np.array([0.5, 0.8])) ** 2).sum(-1)
        K = variance * np.exp(-0.5 * distances) + gpflow.default_jitter() * np.eye(5)
        np.testing.assert_allclose(prior.log_prob(Z), np.linalg.slogdet(K)[1], rtol=1e-12)


def pairs_within(Z: AnyNDArray, radius: float) -> int:
    return sum(np.linalg.norm(a - b) < radius for i, a in enumerate(Z) for b in Z[:i])


@pytest.mark.parametrize("radius", [0.4, 1.1])
def test_strauss_counts_pairs_where_it_is_hard(radius: float, rng: np.random.Generator) -> None:
    Z = rng.normal(size=(12, 2))
    expected = pairs_within(Z, radius) * np.log(0.2)
    hard = priors.Strauss(radius, 0.2, softness=1e-9)
    np.testing.assert_allclose(hard.log_prob(Z), expected, rtol=1e-12)
    # A soft prior counts half a pair at distance R, and 99 % of one at distance 0.
    at = np.array([[0.0, 0.0], [0.0, radius]])
    np.testing.assert_allclose(priors.Strauss(radius, 0.2).log_prob(at), 0.5 * np.log(0.2))
    np.testing.assert_allclose(priors.Strauss(radius, 0.2).log_prob(0.0 * at), np.log(0.2), 0.01)


@pytest.mark.parametrize(
    "prior", [priors.Determinantal(gpflow.kernels.Matern52()), priors.Strauss(0.8, 0.1)]
)
def test_gradients_are_finite_differences(prior: Any, rng: np.random.Generator) -> None:
    Z = tf.constant(rng.normal(size=(4, 2)))
    with tf.GradientTape() as tape:
        tape.watch(Z)
        log_p = prior.log_prob(Z)
    step = 1e-6 * np.eye(8).reshape(8, 4, 2)
    differences = [(prior.log_prob(Z + d) - prior.log_prob(Z - d)) / 2e-6 for d in step]
    np.testing.assert_allclose(np.ravel(tape.gradient(log_p, Z)), differences, rtol=1e-5, atol=1e-7)


def test_points_at_one_place_have_a_finite_gradient() -> None:
    Z = tf.zeros([3, 2], tf.float64)
    for prior in (priors.Determinantal(gpflow.kernels.RBF()), priors.Strauss(0.8, 0.1)):
        with tf.GradientTape() as tape:
            tape.watch(Z)
            log_p = prior.log_prob(Z)
        assert np.isfinite(tape.gradient(log_p, Z)).all()


def test_they_are_of_gpflow_s_float() -> None:
    gpflow.config.set_default_float(np.float32)
    Z = np.array([[0.0, 0.1], [0.3, 0.2]], np.float32)
    for prior in (priors.Determinantal(gpflow.kernels.RBF()), priors.Strauss(0.8, 0.1)):
        assert prior.log_prob(Z).dtype == tf.float32


def make_model(
    prior_of: Any, kernel: gpflow.kernels.Kernel | None = None
) -> tuple[AugmentedSVGP, tuple[AnyNDArray, AnyNDArray]]:
    """
    A model with two points in a box and uninformative data; the kernel's lengthscale is LogNormal.
    """
    kernel = gpflow.kernels.RBF(lengthscales=0.8) if kernel is None else kernel
    model = AugmentedSVGP(kernel, likelihoods.Gaussian(variance=1e8), np.array([[-0.4], [0.5]]))
    gpflow.set_trainable(model.likelihood, False)
    gpflow.set_trainable(kernel.variance, False)
    kernel.lengthscales.prior = tfp.distributions.LogNormal(double(0.0), double(0.5))
    box = tfp.bijectors.Sigmoid(*BOX)
    model.inducing_variable.Z = gpflow.Parameter(
        model.inducing_variable.Z.numpy(), transform=box, prior=prior_of(kernel)
    )
    X = np.linspace(-1.0, 1.0, 4)[:, None]
    return model, (X, X)


def test_a_kernel_of_the_prior_s_own_is_not_trained_and_a_copy_has_its_own() -> None:
    own = gpflow.kernels.RBF(lengthscales=0.3)
    of_own, data = make_model(lambda _: priors.Determinantal(own))
    of_model, _ = make_model(priors.Determinantal)
    for model in (of_own, of_model):
        variables = {id(v) for v in model.trainable_variables}
        assert variables.isdisjoint(id(p.unconstrained_variable) for p in own.parameters)
        assert len(variables) == 4  # the lengthscale, Z, q_mu and q_sqrt
    copied = gpflow.utilities.deepcopy(of_model)
    copied.kernel.lengthscales.assign(0.1)
    K = copied.kernel(copied.inducing_variable.Z).numpy()
    actual = copied.inducing_variable.Z.log_prior_density()
    np.testing.assert_allclose(actual, np.linalg.slogdet(K)[1], atol=1e-5)
    assert np.isfinite(of_own.training_loss(data))


def determinant(d: AnyNDArray, lengthscale: AnyNDArray) -> AnyNDArray:
    return 1.0 - np.exp(-((d / lengthscale) ** 2))


def strauss(d: AnyNDArray, lengthscale: AnyNDArray) -> AnyNDArray:
    return 0.05 ** (1.0 / (1.0 + np.exp(-(0.64 - d**2) / (2.0 * 0.8 * 0.16))))


@pytest.mark.replicate
@pytest.mark.parametrize("method", ["gibbs", "sghmc"])
@pytest.mark.parametrize(
    ("prior_of", "density"),
    [
        (priors.Determinantal, determinant),
        (lambda _: priors.Strauss(0.8, 0.05, softness=0.2), strauss),
    ],
    ids=["determinantal", "Strauss"],
)
def test_of_data_that_say_nothing_samplers_draw_the_prior(
    method: Any, prior_of: Any, density: Any
) -> None:
    """The joint law of the points' distance and the lengthscale is computed on a grid."""
    model, data = make_model(prior_of)
    number = {"num_samples": 1_500, "num_burnin": 200}
    if method == "sghmc":
        number = {"num_samples": 400, "num_burnin": 60}
    sampler = SGHMC(hyperparameters=True) if method == "sghmc" else HyperparameterGibbs()
    drawn = sample_posterior(model, data, sampler, num_chains=2, progress=False, **number).posterior
    d = np.linspace(-2.0, 2.0, 2_001)[:, None]
    log_l = np.linspace(-2.0, 2.0, 401)
    weights = density(d, np.exp(log_l)) * (2.0 - abs(d)) * np.exp(-0.5 * (log_l / 0.5) ** 2)
    weights /= weights.sum()
    Z, lengthscale = drawn["inducing_variable.Z"].values, drawn["kernel.lengthscales"].values
    squares, logs = (Z[..., 0, 0] - Z[..., 1, 0]) ** 2, np.log(lengthscale)
    for values, expected in (
        (squares, (weights * d**2).sum()),
        (logs, (weights * log_l).sum()),
        (squares * logs, (weights * d**2 * log_l).sum()),
    ):
        error = values.std() / np.sqrt(arviz.ess(values))
        assert abs(values.mean() - expected) < 4.0 * error
    repelled = (2.0 / 3.0) / squares.mean()  # uniform points are this much closer
    assert repelled < 0.9


def test_bad_input_is_named() -> None:
    kernel = gpflow.kernels.RBF()
    separate = gpflow.kernels.SeparateIndependent([kernel])
    with pytest.raises(ValueError, match=r"single-output kernel\. Found: SeparateIndependent"):
        priors.Determinantal(separate)
    for arguments, message in (
        ({"radius": 0.0, "gamma": 0.5}, "radius must be above 0. Found: 0.0"),
        ({"radius": 1.0, "gamma": 0.5, "softness": np.inf}, "softness must be above 0. Found: inf"),
        ({"radius": 1.0, "gamma": 1.0}, r"gamma must be in \(0, 1\). Found: 1.0"),
    ):
        with pytest.raises(ValueError, match=message):
            priors.Strauss(**arguments)
