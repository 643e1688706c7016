"""
Two more stock GPflow scripts, with several latent GPs, run with either model class.

They make the calls of GPflow's notebooks on heteroskedastic regression and on multi-output GPs,
with fewer steps. A script is given a model class and, where GPflow's likelihood has no
augmentation, a likelihood.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import AnyNDArray
from gpflow.inducing_variables import (
    InducingPoints,
    InducingVariables,
    SeparateIndependentInducingVariables,
    SharedIndependentInducingVariables,
)
from gpflow.keras import tf_keras
from gpflow.kernels import Linear, LinearCoregionalization, SeparateIndependent, SquaredExponential
from gpflow.likelihoods import Likelihood

from gpflow_aaci import AugmentedNaturalGradient, AugmentedSVGP, fit_collapsed
from gpflow_aaci.likelihoods import Gaussian, Heteroscedastic

Batch = tuple[AnyNDArray, AnyNDArray]

# How much higher the test NLL per value of y may be under the augmented bound, in nats.
SLACK = 0.02


def test_nll(model: Any, test: Batch) -> float:
    """The NLL per value of y."""
    return -float(np.mean(model.predict_log_density(test))) / test[1].shape[1]


test_nll.__test__ = False  # type: ignore[attr-defined]


# ---- noise that is a second latent GP ----


@cache
def uneven_noise() -> tuple[Batch, Batch]:
    """Draws of y ~ N(sin x, e^{2 cos x}); every fourth row is in the test part."""
    rng = np.random.default_rng(0)
    X = np.linspace(0.0, 4.0 * np.pi, 1001)[:, None]
    Y = rng.normal(np.sin(X), np.exp(np.cos(X)))
    is_test = np.arange(len(X)) % 4 == 3
    return (X[~is_test], Y[~is_test]), (X[is_test], Y[is_test])


def stock_noise() -> Likelihood:
    return gpflow.likelihoods.HeteroskedasticTFPConditional(
        distribution_class=tfp.distributions.Normal, scale_transform=tfp.bijectors.Exp()
    )


def our_noise() -> Likelihood:
    """The likelihood, with max_precision as the data suggest: where noise is least, e² = 7."""
    return Heteroscedastic(Gaussian(), max_precision=10.0)


def separate(Z: AnyNDArray) -> InducingVariables:
    return SeparateIndependentInducingVariables([InducingPoints(Z), InducingPoints(Z)])


def shared(Z: AnyNDArray) -> InducingVariables:
    return SharedIndependentInducingVariables(InducingPoints(Z))


def of_two_latents(
    model_class: type[Any],
    likelihood: Likelihood,
    inducing: Callable[[AnyNDArray], InducingVariables],
) -> Any:
    (X, _), _ = uneven_noise()
    return model_class(
        kernel=SeparateIndependent([SquaredExponential(), SquaredExponential()]),
        likelihood=likelihood,
        inducing_variable=inducing(np.linspace(X.min(), X.max(), 20)[:, None]),
        num_latent_gps=likelihood.latent_dim,
    )


def heteroskedastic_script(model_class: type[Any], likelihood: Likelihood) -> float:
    """Alternate NaturalGradient on q and Adam on the rest, with all rows in every step."""
    train, test = uneven_noise()
    model = of_two_latents(model_class, likelihood, separate)
    loss = model.training_loss_closure(train)
    gpflow.set_trainable(model.q_mu, False)
    gpflow.set_trainable(model.q_sqrt, False)
    natural_gradient = gpflow.optimizers.NaturalGradient(gamma=0.1)
    adam = tf_keras.optimizers.Adam(0.01)

    @tf.function
    def step() -> None:
        natural_gradient.minimize(loss, [(model.q_mu, model.q_sqrt)])
        adam.minimize(loss, model.trainable_variables)

    for _ in range(100):
        step()
    return test_nll(model, test)


@cache
def stock_heteroskedastic() -> float:
    return heteroskedastic_script(gpflow.models.SVGP, stock_noise())


@pytest.mark.slow
def test_heteroskedastic_script() -> None:
    ours = heteroskedastic_script(AugmentedSVGP, our_noise())
    assert ours <= stock_heteroskedastic() + SLACK


@pytest.mark.slow
def test_own_steps_and_fit_take_the_model_of_the_heteroskedastic_script() -> None:
    """
    Both latent GPs share the inducing points.

    A hundred closed-form steps never lower the bound, and the fit ends at a test NLL that is no
    worse.
    """
    train, test = uneven_noise()
    model = of_two_latents(AugmentedSVGP, our_noise(), shared)
    optimizer = AugmentedNaturalGradient(0.5)

    @tf.function(autograph=False)
    def step() -> tf.Tensor:
        optimizer.minimize(model, train)
        return model.augmented_elbo(train)

    bounds = np.array([step() for _ in range(100)])
    assert np.all(np.diff(bounds) >= -1e-9 * np.abs(bounds[1:]))
    assert fit_collapsed(model, train, progress=False).converged
    assert test_nll(model, test) <= stock_heteroskedastic() + SLACK


# ---- outputs that a kernel mixes ----


@cache
def mixed_outputs(name: str) -> tuple[Batch, Batch]:
    """
    Three outputs that mix two functions, with noise of scale 0.2: 100 training and 100 test rows.
    """
    rng = np.random.default_rng(0)
    X = rng.uniform(-5.0, 5.0, size=(200, 1))
    G = np.hstack([0.5 * np.sin(3.0 * X) + X, 3.0 * np.cos(X) - X])
    noise = rng.normal(size=(200, 3)) if name == "Gaussian" else rng.standard_t(3, size=(200, 3))
    Y = G @ np.array([[0.5, -0.3, 1.5], [-0.4, 0.43, 0.0]]) + 0.2 * noise
    return (X[:100], Y[:100]), (X[100:], Y[100:])


def mixing_script(model_class: type[Any], name: str, max_iterations: int) -> Any:
    """L-BFGS on all parameters, W and inducing points included, starting with q(u) at its prior."""
    train, _ = mixed_outputs(name)
    M, L, P = 15, 2, 3
    W = np.random.default_rng(1).normal(size=(P, L))
    model = model_class(
        LinearCoregionalization([SquaredExponential() + Linear() for _ in range(L)], W=W),
        getattr(gpflow.likelihoods, name)(),
        inducing_variable=shared(np.linspace(-5.0, 5.0, M)[:, None]),
        q_mu=np.zeros((M, L)),
        q_sqrt=np.repeat(np.eye(M)[None], L, axis=0),
    )
    gpflow.optimizers.Scipy().minimize(
        model.training_loss_closure(train),
        variables=model.trainable_variables,
        method="l-bfgs-b",
        options={"maxiter": max_iterations},
    )
    return model


@pytest.mark.slow
def test_the_mixing_script_with_gaussian_noise_is_gpflows_step_by_step() -> None:
    """
    The bound is exact, so the first 30 iterations of L-BFGS are equal; later, rounding differs.
    """
    train, (X, _) = mixed_outputs("Gaussian")
    ours, stock = (
        mixing_script(model_class, "Gaussian", 30)
        for model_class in (AugmentedSVGP, gpflow.models.SVGP)
    )
    assert float(ours.elbo(train)) == pytest.approx(float(stock.elbo(train)), rel=1e-8)
    for found, expected in zip(ours.predict_y(X), stock.predict_y(X), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-8)


@pytest.mark.slow
def test_the_mixing_script_with_student_t_noise() -> None:
    _, test = mixed_outputs("StudentT")
    ours, stock = (
        test_nll(mixing_script(model_class, "StudentT", 2000), test)
        for model_class in (AugmentedSVGP, gpflow.models.SVGP)
    )
    assert ours <= stock + SLACK
