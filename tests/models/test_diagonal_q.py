"""``q_diag=True``: a q(v) of diagonal covariance, in every route."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf

from gpflow_aaci import (
    AlternatingOptimizer,
    AugmentedNaturalGradient,
    AugmentedSVGP,
    fit,
    likelihoods,
    loo,
    polish,
    train,
    update,
)

N, M = 60, 7
RNG = np.random.default_rng(4)
X = RNG.uniform(0.0, 6.0, size=(N, 1))
Y = np.sin(1.3 * X) + 0.2 * RNG.standard_t(3.0, size=X.shape)
Z = np.linspace(0.0, 6.0, M)[:, None]
LIKELIHOODS = {
    "StudentT": (lambda: likelihoods.StudentT(0.3, 4.0), Y),
    "logistic": (likelihoods.Logistic, (Y > 0.2).astype(float)),
    "Poisson": (gpflow.likelihoods.Poisson, np.floor(3.0 * np.exp(np.clip(Y, -1.0, 1.0)))),
}


@pytest.fixture(params=LIKELIHOODS)
def name(request: pytest.FixtureRequest) -> str:
    return request.param


def make(name: str, kind: type[gpflow.models.SVGP] = AugmentedSVGP, q_diag: bool = True):
    kernel = gpflow.kernels.Matern52(lengthscales=1.2)
    model = kind(kernel, LIKELIHOODS[name][0](), Z.copy(), q_diag=q_diag, num_data=N)
    gpflow.set_trainable(model.inducing_variable, False)
    return model


def data_of(name: str) -> tuple[np.ndarray, np.ndarray]:
    return X, LIKELIHOODS[name][1]


@pytest.mark.briefly("logistic-0.4")
@pytest.mark.parametrize("step_size", [1.0, 0.4])
def test_a_step_has_the_mean_of_a_full_one_and_its_precisions(name: str, step_size: float) -> None:
    """S = 1/diag of the inverse of the S that the same step has where it may be full."""
    diagonal, full = make(name), make(name, q_diag=False)
    mean, sd = 0.2 * RNG.normal(size=(M, 1)), RNG.uniform(0.4, 0.9, size=(M, 1))
    diagonal.q_mu.assign(mean)
    diagonal.q_sqrt.assign(sd)
    full.q_mu.assign(mean)
    full.q_sqrt.assign(np.diag(sd[:, 0])[None])
    for model in (diagonal, full):
        AugmentedNaturalGradient(step_size).minimize(model, data_of(name))
    S = full.q_sqrt.numpy()[0] @ full.q_sqrt.numpy()[0].T
    np.testing.assert_allclose(diagonal.q_mu, full.q_mu, rtol=1e-9)
    expected = np.diag(np.linalg.inv(S)) ** -0.5
    np.testing.assert_allclose(diagonal.q_sqrt[:, 0], expected, rtol=1e-9)


@pytest.mark.briefly("logistic")
def test_polish_ends_where_gpflows_gradient_vanishes(name: str) -> None:
    model, theirs = make(name), make(name, gpflow.models.SVGP)
    polish(model, data_of(name), progress=False)
    theirs.q_mu.assign(model.q_mu)
    theirs.q_sqrt.assign(model.q_sqrt)
    with tf.GradientTape() as tape:
        loss = theirs.training_loss(data_of(name))
    sources = [theirs.q_mu.unconstrained_variable, theirs.q_sqrt.unconstrained_variable]
    for gradient in tape.gradient(loss, sources):
        assert np.max(np.abs(gradient)) < 2e-2  # GPflow's quadrature differs


@pytest.mark.by_default("StudentT")
@pytest.mark.slow
def test_fit_ends_no_lower_than_l_bfgs_and_below_the_full_q(name: str) -> None:
    data = data_of(name)
    ours, theirs, full = make(name), make(name, gpflow.models.SVGP), make(name, q_diag=False)
    result = fit(ours, data, progress=False)
    assert result.converged, result.reason
    gpflow.optimizers.Scipy().minimize(
        theirs.training_loss_closure(data), theirs.trainable_variables, options={"maxiter": 3_000}
    )
    best = make(name)  # at L-BFGS's parameters, for one quadrature
    gpflow.utilities.multiple_assign(best, gpflow.utilities.read_values(theirs))
    assert result.elbo > float(best.elbo(data)) - 0.05
    assert result.elbo < fit(full, data, progress=False).elbo
    second = fit(ours, data, progress=False)
    assert second.elbo - result.elbo < second.tolerance


@pytest.mark.by_default("Poisson")
def test_gpflows_own_ends_there_too(name: str) -> None:
    ours, stock = make(name), make(name, gpflow.models.SVGP)
    results = [fit(model, data_of(name), progress=False) for model in (ours, stock)]
    assert results[0].elbo == pytest.approx(results[1].elbo, abs=1e-6)
    np.testing.assert_allclose(stock.q_mu, ours.q_mu, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(stock.q_sqrt, ours.q_sqrt, rtol=1e-6, atol=1e-8)


@pytest.mark.slow
@pytest.mark.by_default("logistic")
def test_both_optimizers_make_the_same_step_and_train_ascends(name: str) -> None:
    data = data_of(name)
    ours, alternating = make(name), make(name)
    gpflow.set_trainable(alternating.kernel, False)
    gpflow.set_trainable(alternating.likelihood, False)
    for _ in range(2):
        AugmentedNaturalGradient(1.0).minimize(ours, data)
        AlternatingOptimizer(1.0).minimize(alternating, data)
    np.testing.assert_allclose(alternating.q_mu, ours.q_mu, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(alternating.q_sqrt, ours.q_sqrt, rtol=1e-9)
    trained = make(name)
    start = float(trained.augmented_elbo(data))
    train(trained, data, num_steps=60, batch_size=20, evaluate_every=60, progress=False)
    assert float(trained.augmented_elbo(data)) > start + 10.0


def test_the_gradient_in_the_hyperparameters_is_that_of_autodiff() -> None:
    """AlternatingOptimizer's, by an SGD step of size 1 on the kernel's parameters."""
    from gpflow.keras import tf_keras

    data = data_of("StudentT")
    model = make("StudentT")
    AugmentedNaturalGradient(1.0).minimize(model, data)
    optimizer = AlternatingOptimizer(1.0, tf_keras.optimizers.SGD(1.0))
    variable = model.kernel.lengthscales.unconstrained_variable
    before = float(variable)
    optimizer.minimize(model, data)
    moved = float(variable) - before
    variable.assign(before)
    for other in model.trainable_variables:
        if other is model.kernel.variance.unconstrained_variable:
            other.assign(gpflow.utilities.positive().inverse(np.float64(1.0)))
    model.likelihood.scale.assign(0.3)
    model.likelihood.df.assign(4.0)
    with tf.GradientTape() as tape:
        bound = model.augmented_elbo(data)
    np.testing.assert_allclose(moved, tape.gradient(bound, variable), rtol=1e-7)


def test_update_keeps_it_diagonal() -> None:
    """Under Gaussian noise, halves one after the other come near to both at once."""
    model = AugmentedSVGP(
        gpflow.kernels.Matern52(), likelihoods.Gaussian(0.1), Z.copy(), q_diag=True
    )
    update(model, (X[:30], Y[:30]), progress=False)
    update(model, (X[30:], Y[30:]), progress=False)
    assert model.q_sqrt.shape == (M, 1)
    at_once = AugmentedSVGP(
        gpflow.kernels.Matern52(), likelihoods.Gaussian(0.1), Z.copy(), q_diag=True
    )
    update(at_once, (X, Y), progress=False)
    # The first half's S forgets correlations, so that the two need not be equal.
    np.testing.assert_allclose(model.q_sqrt, at_once.q_sqrt, rtol=1e-6)


def test_loo_is_refused() -> None:
    with pytest.raises(ValueError, match="q_diag must be False for loo"):
        loo(make("logistic"), data_of("logistic"))
