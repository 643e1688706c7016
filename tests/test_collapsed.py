"""The collapsed bound and its gradient, which is taken at a q that stands still."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf

import gpflow_aaci
from gpflow_aaci import likelihoods

rng = np.random.default_rng(0)
N, M = 40, 9
X = rng.normal(size=(N, 2))
Y = np.concatenate([np.sin(2 * X[:, :1]), np.cos(X[:, 1:])], axis=1) + 0.2 * rng.normal(size=(N, 2))
C = rng.uniform(0.2, 2.0, size=(N, 2))

LIKELIHOODS = [
    likelihoods.Gaussian(0.3),
    likelihoods.StudentT(0.4, 3.5),
    likelihoods.Laplace(0.5),
    likelihoods.Matern32(0.6),
    likelihoods.Matern52(0.7),
    likelihoods.Logistic(),
    likelihoods.Probit(),
    likelihoods.BayesianSVM(),
]
KERNELS = {
    "ARD": lambda: gpflow.kernels.SquaredExponential(lengthscales=[0.8, 1.3]),
    "sum": lambda: gpflow.kernels.Matern52() + gpflow.kernels.Linear(variance=[0.5, 0.2]),
    "product": lambda: (
        gpflow.kernels.Matern32()
        * gpflow.kernels.Periodic(gpflow.kernels.SquaredExponential(), period=2.0)
    ),
    "separate": lambda: gpflow.kernels.SeparateIndependent(
        [gpflow.kernels.Matern32(), gpflow.kernels.SquaredExponential(lengthscales=0.7)]
    ),
}


def make_model(
    likelihood: gpflow.likelihoods.Likelihood, kernel: str = "ARD", whiten: bool = True
) -> gpflow_aaci.AugmentedSVGP:
    Z: object = X[:M].copy()
    if kernel == "separate":
        Z = gpflow.inducing_variables.SharedIndependentInducingVariables(
            gpflow.inducing_variables.InducingPoints(Z)
        )
    return gpflow_aaci.AugmentedSVGP(
        KERNELS[kernel](),
        likelihood,
        Z,
        num_latent_gps=2,
        whiten=whiten,
        num_data=3 * N,
        mean_function=gpflow.functions.Linear(A=[[0.3], [-0.2]], b=[0.1]),
    )


def observations(likelihood: gpflow.likelihoods.Likelihood) -> np.ndarray:
    return np.sign(Y) if isinstance(likelihood, likelihoods.BinaryLikelihood) else Y


def gradients(model: gpflow_aaci.AugmentedSVGP, Y: np.ndarray) -> list[np.ndarray]:
    c = tf.constant(C)
    with tf.GradientTape() as tape:
        tape.watch(c)
        bound = model.collapsed_elbo((X, Y), c)
    sources = [*model.trainable_variables[:], c]
    return [g.numpy() for g in tape.gradient(bound, sources, unconnected_gradients="zero")]


@pytest.mark.parametrize("likelihood", LIKELIHOODS, ids=lambda value: type(value).__name__)
def test_the_gradient_at_fixed_q_is_that_through_the_best_q(
    likelihood: gpflow.likelihoods.Likelihood, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The envelope theorem, in hyperparameters and c."""
    model, labels = make_model(likelihood), observations(likelihood)
    at_fixed_q = gradients(model, labels)
    monkeypatch.setattr(tf, "stop_gradient", tf.identity)
    for ours, autodiff in zip(at_fixed_q, gradients(model, labels), strict=True):
        np.testing.assert_allclose(ours, autodiff, rtol=1e-6, atol=1e-9 * np.abs(autodiff).max())


@pytest.mark.by_default("True-ARD")
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("whiten", [True, False])
def test_the_gradient_is_the_finite_difference(kernel: str, whiten: bool) -> None:
    assert_gradient_is_the_finite_difference(
        make_model(likelihoods.StudentT(0.4, 3.5), kernel, whiten), Y
    )


def test_gradient_of_probit_is_the_finite_difference() -> None:
    """Its sites are not those of a super-Gaussian likelihood; in c as well."""
    model = make_model(likelihoods.Probit())
    assert_gradient_is_the_finite_difference(model, np.sign(Y))
    c_bar, step = gradients(model, np.sign(Y))[-1], 1e-5
    ends = [float(model.collapsed_elbo((X, np.sign(Y)), C + s * step)) for s in (1.0, -1.0)]
    np.testing.assert_allclose(c_bar.sum(), (ends[0] - ends[1]) / (2 * step), rtol=1e-6)


def assert_gradient_is_the_finite_difference(
    model: gpflow_aaci.AugmentedSVGP, Y: np.ndarray
) -> None:
    variables = [v for v in model.trainable_variables if v.shape.rank < 2]
    assert len(variables) >= 3
    c = tf.constant(C)
    with tf.GradientTape() as tape:
        bound = model.collapsed_elbo((X, Y), c)
    for variable, gradient in zip(variables, tape.gradient(bound, variables), strict=True):
        value, direction = variable.numpy(), np.ones(variable.shape)
        step, ends = 1e-5, []
        for sign in (1.0, -1.0):
            variable.assign(value + sign * step * direction)
            ends.append(float(model.collapsed_elbo((X, Y), c)))
        variable.assign(value)
        difference = (ends[0] - ends[1]) / (2 * step)
        # Central differences of a value of 1e2 to 1e3 are good to about 1e-7.
        np.testing.assert_allclose(np.sum(gradient), difference, rtol=1e-6, atol=2e-6)


def test_gaussian_collapsed_bound_is_sgpr_s_at_any_c() -> None:
    kernel = gpflow.kernels.Matern52()
    model = gpflow_aaci.AugmentedSVGP(kernel, likelihoods.Gaussian(0.3), X[:M].copy())
    sgpr = gpflow.models.SGPR((X, Y[:, :1]), kernel, X[:M].copy(), noise_variance=0.3)
    for c in (0.1, 1.0, 7.0):
        bound = model.collapsed_elbo((X, Y[:, :1]), np.full((N, 1), c))
        np.testing.assert_allclose(bound, sgpr.elbo(), rtol=1e-8)


@pytest.mark.by_default("StudentT", "Probit")
@pytest.mark.parametrize("likelihood", LIKELIHOODS, ids=lambda value: type(value).__name__)
def test_collapsed_bound_is_the_elbo_after_one_step(
    likelihood: gpflow.likelihoods.Likelihood,
) -> None:
    """At the c of the present q it lies between elbo now and elbo after a full step; then equal."""
    model, data = make_model(likelihood), (X, observations(likelihood))
    step = gpflow_aaci.AugmentedNaturalGradient(1.0)
    before, collapsed_now = float(model.elbo(data)), float(model.collapsed_elbo(data))
    again = tf.function(lambda: step.minimize(model, data), autograph=False)
    again()
    assert before <= collapsed_now <= float(model.elbo(data)) + 1e-9
    for _ in range(200):
        again()
    np.testing.assert_allclose(model.collapsed_elbo(data), model.elbo(data), rtol=1e-9)


def test_vgp_and_svgp_at_its_data_agree() -> None:
    likelihood = likelihoods.Laplace(0.5)
    kernel = gpflow.kernels.Matern32()
    vgp = gpflow_aaci.AugmentedVGP((X, Y), kernel, likelihood)
    svgp = gpflow_aaci.AugmentedSVGP(kernel, likelihood, X.copy(), num_latent_gps=2)
    np.testing.assert_allclose(vgp.collapsed_elbo(C), svgp.collapsed_elbo((X, Y), C), rtol=1e-8)
