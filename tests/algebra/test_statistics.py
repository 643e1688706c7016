"""The statistics (E, a, B) are gradients of the bound in q(v), and add up over rows."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.base import AnyNDArray

from gpflow_aaci import AugmentedSVGP, likelihoods
from gpflow_aaci.algebra.gaussian import Gaussian
from gpflow_aaci.algebra.projection import marginals
from gpflow_aaci.algebra.statistics import Statistics, statistics
from gpflow_aaci.algebra.terms import Term, augmented_bound, standard
from gpflow_aaci.augmentation import (
    aux_posterior_c,
    expected_auglik_potential_and_precision,
)

N, M, L = 30, 7, 2
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 2))
Y = np.sin(2.0 * X) + 0.3 * RNG.normal(size=X.shape)
C = RNG.uniform(0.2, 2.0, size=(N, L))

TERMS = {
    "standard": standard,
    "augmented": augmented_bound,
}


def make(likelihood: likelihoods.AugmentedLikelihood, separate: bool = False) -> AugmentedSVGP:
    kernel, Z = gpflow.kernels.Matern32(), X[:M].copy()
    if separate:
        kernel = gpflow.kernels.SeparateIndependent([kernel, gpflow.kernels.Matern52()])
        Z = gpflow.inducing_variables.SharedIndependentInducingVariables(
            gpflow.inducing_variables.InducingPoints(Z)
        )
    mean = gpflow.functions.Linear(A=[[0.3], [-0.2]], b=[0.1])
    return AugmentedSVGP(kernel, likelihood, Z, num_latent_gps=L, mean_function=mean)


def some_q() -> Gaussian:
    rng = np.random.default_rng(3)
    root = 0.3 * np.tril(rng.normal(size=(L, M, M)), -1) + 0.7 * np.eye(M)
    return Gaussian(tf.constant(rng.normal(size=(M, L))), tf.constant(root))


def observed(likelihood: likelihoods.AugmentedLikelihood) -> AnyNDArray:
    return np.sign(Y) if likelihood.labels is not None else Y


@pytest.mark.by_default("StudentT", "Probit")
@pytest.mark.parametrize("term", TERMS)
def test_they_are_the_gradients_of_the_sum_in_q(
    likelihood: likelihoods.AugmentedLikelihood, term: str
) -> None:
    """Autodiff gives the gradients in the mean and in the covariance S."""
    model, labels, q = make(likelihood), observed(likelihood), some_q()
    projection, of = model.project(X), TERMS[term](likelihood)
    S = tf.matmul(q.sqrt, q.sqrt, transpose_b=True)
    with tf.GradientTape() as tape:
        tape.watch([q.mu, S])
        Fmu, Fvar = marginals(projection, q.mu, tf.linalg.cholesky(S))
        value = tf.reduce_sum(of.of_each(X, Fmu, Fvar, labels))
    in_mean, in_covariance = tape.gradient(value, [q.mu, S])
    found = statistics(projection, of, q, X, tf.constant(labels))
    scale = np.abs(in_covariance).max()
    np.testing.assert_allclose(found.value, value, rtol=1e-12)
    np.testing.assert_allclose(found.in_mean, in_mean, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(found.in_covariance, in_covariance, rtol=1e-9, atol=1e-10 * scale)


@pytest.mark.briefly("Probit-shared")
@pytest.mark.parametrize("separate", [False, True], ids=["shared", "separate"])
def test_those_of_the_augmented_bound_are_the_sites(
    likelihood: likelihoods.AugmentedLikelihood, separate: bool
) -> None:
    """a − 2 B m = Σ A_i (potential − precision μ₀)_i and −2 B = A diag(precision) Aᵀ."""
    model, labels, q = make(likelihood, separate), observed(likelihood), some_q()
    projection = model.project(X)
    Fmu, Fvar = marginals(projection, *q)
    c = aux_posterior_c(likelihood, Fmu, Fvar, labels)
    potential, precision = expected_auglik_potential_and_precision(likelihood, c, labels)
    _, a, B = statistics(projection, augmented_bound(likelihood), q, X, tf.constant(labels))
    centred = (potential - precision * projection.mean).numpy()
    for latent in range(L):
        A = projection.A[latent % len(projection.A)].numpy()
        expected = (A * precision.numpy()[:, latent]) @ A.T
        scale = np.abs(expected).max()
        np.testing.assert_allclose(-2.0 * B[latent], expected, rtol=1e-12, atol=1e-12 * scale)
        shifted = a[:, latent] - 2.0 * B[latent].numpy() @ q.mu[:, latent].numpy()
        np.testing.assert_allclose(
            shifted, A @ centred[:, latent], rtol=1e-12, atol=1e-12 * (1.0 + scale)
        )


@pytest.mark.briefly("augmented")
@pytest.mark.parametrize("make_term", [standard, augmented_bound], ids=["standard", "augmented"])
def test_they_add_up_whatever_the_chunks_and_the_order(make_term: object) -> None:
    likelihood, q = likelihoods.StudentT(0.4, 3.5), some_q()
    model, term = make(likelihood), make_term(likelihood)  # type: ignore[operator]
    whole = of_rows(model, term, q, np.arange(N))
    order = np.random.default_rng(1).permutation(N)
    parts = [of_rows(model, term, q, rows) for rows in np.split(order, [4, 5, 19])]
    total = parts[0]
    for part in parts[1:]:
        total = tf.nest.map_structure(tf.add, total, part)
    for ours, theirs in zip(total, whole, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-12)


def of_rows(model: AugmentedSVGP, term: Term, q: Gaussian, rows: AnyNDArray) -> Statistics:
    return statistics(model.project(X[rows]), term, q, X[rows], tf.constant(Y[rows]))
