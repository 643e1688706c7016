"""Newton steps that move all coupled latent GPs at once, coupled by likelihood or kernel."""

import gpflow
import numpy as np
import pytest
import sklearn.datasets
import tensorflow as tf

import gpflow_aaci
from gpflow_aaci import likelihoods
from gpflow_aaci.algebra.projection import marginals
from gpflow_aaci.algebra.terms import Term, mixed, standard
from gpflow_aaci.data import Arrays
from gpflow_aaci.inference.profile import Profile
from gpflow_aaci.models.shared import prior_q

Data = tuple[np.ndarray, np.ndarray]
_W = np.array([[1.0, 0.5, 0.1], [-0.5, 1.0, -0.3], [0.8, 0.2, 0.7]])


def classes() -> Term:
    return standard(likelihoods.LogisticSoftmax(3))


def noise() -> Term:
    return standard(likelihoods.Heteroscedastic(likelihoods.Gaussian(), 3.0))


def zeros() -> Term:
    return standard(likelihoods.ZeroInflated(likelihoods.NegativeBinomial(2.0), "gp"))


def mix(term: Term, size: int) -> Term:
    return mixed(term, tf.constant(_W[:size, :size]), lambda X: tf.zeros_like(X[:, :1]))


TERMS = {
    "classes": (classes, 3),
    "noise": (noise, 2),
    "zeros": (zeros, 2),
    "mixed": (lambda: mix(standard(likelihoods.StudentT(0.5, 4.0)), 2), 2),
    "mixed classes": (lambda: mix(classes(), 3), 3),
    "mixed noise": (lambda: mix(noise(), 2), 2),
}


@pytest.mark.briefly("mixed noise")
@pytest.mark.by_default("mixed noise", "zeros")
@pytest.mark.parametrize("name", TERMS)
def test_coupling_is_the_finite_difference_of_the_slopes(name: str) -> None:
    """It holds ∂²e/∂m_j∂m_k for j ≠ k, and the diagonal is 2 ∂e/∂v."""
    make, L = TERMS[name]
    term, rng = make(), np.random.default_rng(1)
    X, Y = tf.zeros([6, 1], tf.float64), tf.constant(rng.integers(0, L, [6, 1]).astype(float))
    if name == "mixed":
        Y = tf.constant(rng.normal(size=[6, 2]))
    Fmu = rng.normal(-1.0, 2.0, [6, L])
    Fvar = tf.constant(rng.gamma(1.0, 2.0, [6, L]) + 0.01)

    def slopes(mean: np.ndarray) -> np.ndarray:
        return term.slopes(X, tf.constant(mean), Fvar, Y).in_mean.numpy()

    assert term.coupling is not None
    found = term.coupling(X, tf.constant(Fmu), Fvar, Y).numpy()
    in_variance = term.slopes(X, tf.constant(Fmu), Fvar, Y).in_variance.numpy()
    found += 2.0 * in_variance[:, :, None] * np.eye(L)
    for k, along in enumerate(1e-4 * np.eye(L)):
        difference = (slopes(Fmu + along) - slopes(Fmu - along)) / 2e-4
        np.testing.assert_allclose(found[:, :, k], difference, atol=1e-5)
    assert np.abs(found[:, 0, 1]).max() > 0.01


def iris() -> Data:
    X, y = sklearn.datasets.load_iris(return_X_y=True)
    return (X - X.mean(0)) / X.std(0), y[:, None].astype(float)


def make_iris(separate: bool = False) -> gpflow_aaci.AugmentedSVGP:
    X, _ = iris()
    kernels = [gpflow.kernels.SquaredExponential(20.0, 2.0 + k) for k in range(3)]
    Z = gpflow.inducing_variables.InducingPoints(gpflow_aaci.kmeans_plusplus(X, 20, seed=0))
    return gpflow_aaci.AugmentedSVGP(
        gpflow.kernels.SeparateIndependent(kernels) if separate else kernels[0],
        likelihoods.LogisticSoftmax(3),
        gpflow.inducing_variables.SharedIndependentInducingVariables(Z) if separate else Z,
        num_latent_gps=3,
        num_data=len(X),
        mean_function=gpflow.functions.Constant(-np.log(3.0)),
    )


def wave() -> Data:
    rng = np.random.default_rng(4)
    X = np.linspace(-2.0, 2.0, 80)[:, None]
    return X, np.sin(3.0 * X) + np.exp(X - 1.0) * rng.normal(size=X.shape)


def make_noise() -> gpflow_aaci.AugmentedSVGP:
    X, _ = wave()
    return gpflow_aaci.AugmentedSVGP(
        gpflow.kernels.SquaredExponential(4.0),
        likelihoods.Heteroscedastic(likelihoods.Gaussian(), 50.0),
        X[::6].copy(),
        num_latent_gps=2,
        num_data=len(X),
    )


def mixture() -> Data:
    X, _ = wave()
    rng = np.random.default_rng(5)
    latents = np.hstack([np.sin(3.0 * X), np.cos(2.0 * X), X])
    return X, latents @ _W.T + 0.2 * rng.standard_t(3, size=(80, 3))


def make_mixture() -> gpflow_aaci.AugmentedSVGP:
    X, _ = wave()
    kernels = [gpflow.kernels.SquaredExponential(1.0, 0.5 + k) for k in range(3)]
    Z = gpflow.inducing_variables.InducingPoints(X[::6].copy())
    return gpflow_aaci.AugmentedSVGP(
        gpflow.kernels.LinearCoregionalization(kernels, W=_W),
        likelihoods.StudentT(0.3, 4.0),
        gpflow.inducing_variables.SharedIndependentInducingVariables(Z),
        num_latent_gps=3,
        num_data=len(X),
    )


PROBLEMS = {
    "iris": (iris, make_iris),
    "iris, separate kernels": (iris, lambda: make_iris(separate=True)),
    "noise": (wave, make_noise),
    "mixture": (mixture, make_mixture),
}


@pytest.mark.slow
@pytest.mark.by_default("mixture")
@pytest.mark.parametrize("problem", PROBLEMS)
def test_a_few_steps_find_the_best_q(problem: str) -> None:
    """
    Every step raises the ELBO, and at the end its gradient in the mean of q vanishes.

    Steps that move one latent GP at a time are still 0.03 nats away after as many steps (Iris).
    """
    make_data, make = PROBLEMS[problem]
    data, model = make_data(), make()
    X, Y = map(tf.constant, data)
    rows = Arrays(*data, num_data=len(data[0]))
    profile, start = Profile(model, []), prior_q(*model.q_mu.shape)
    elbos = [profile.elbo(rows, start)]
    for steps in (1, 2, 4, 20):
        found = profile.maximise(rows, start, 0.0, steps)
        elbos.append(float(found.elbo))
    assert np.all(np.diff(elbos) >= -1e-8)
    projection, q = model.project(X), found.q
    with tf.GradientTape() as tape:
        tape.watch(q.mu)
        of_each = model.term(standard).of_each(X, *marginals(projection, *q), Y)
        elbo = tf.reduce_sum(of_each) - 0.5 * tf.reduce_sum(tf.square(q.mu))
    assert np.abs(tape.gradient(elbo, q.mu)).max() < 5e-3


@pytest.mark.replicate
def test_coupled_steps_are_the_same_in_chunks() -> None:
    data, model = iris(), make_iris()
    profile, start = Profile(model, []), prior_q(*model.q_mu.shape)
    whole = profile.maximise(Arrays(*data, num_data=150), start, 0.0, 4)

    class Halves(Arrays):
        @property
        def only_chunk(self) -> None:
            return None

        def chunks(self):  # type: ignore[no-untyped-def]
            yield from ((tf.constant(X), tf.constant(Y)) for X, Y in zip(*HALVES, strict=True))

    HALVES = [np.split(part, [70]) for part in data]
    parts = profile.maximise(Halves(*data, num_data=150), start, 0.0, 4)
    np.testing.assert_allclose(parts.elbo, whole.elbo, rtol=1e-9)
    np.testing.assert_allclose(parts.q.mu, whole.q.mu, atol=1e-6)
