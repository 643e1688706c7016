"""The search for q of a full GP in the sites of its rows, against the same search in q itself."""

import functools
from collections.abc import Callable

import gpflow
import mpmath
import numpy as np
import pytest
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.config import default_jitter
from gpflow.kullback_leiblers import gauss_kl

from gpflow_aaci import AugmentedVGP, likelihoods
from gpflow_aaci.algebra.gaussian import Gaussian, naturals_to_q
from gpflow_aaci.algebra.projection import Projection, marginals, project
from gpflow_aaci.algebra.terms import standard
from gpflow_aaci.data.rows import Arrays
from gpflow_aaci.inference.newton import Maximum, maximise, sums_of_rows
from gpflow_aaci.inference.profile import Optimum, Profile
from gpflow_aaci.inference.site_search import (
    Sites,
    q_of_sites,
    sums_of_sites,
    to_prior_of_sites,
)
from gpflow_aaci.models.shared import prior_q

N = 25
RNG = np.random.default_rng(3)
X = RNG.normal(size=(N, 2))
F = np.sin(2.0 * X)
OUTLIERS = F + 0.2 * RNG.standard_t(2, F.shape)
OUTLIERS[::6] += 4.0

Case = tuple[Callable[[], gpflow.likelihoods.Likelihood], AnyNDArray]
CASES: dict[str, Case] = {
    "outliers": (lambda: likelihoods.StudentT(0.2, 3.0), OUTLIERS[:, :1]),
    "outliers of two": (lambda: likelihoods.StudentT(0.2, 3.0), OUTLIERS),
    "counts": (likelihoods.Poisson, RNG.poisson(np.exp(1.5 * F[:, :1])).astype(float)),
    "two counts": (likelihoods.Poisson, RNG.poisson(np.exp(F)).astype(float)),
}
each_case = pytest.mark.parametrize("name", CASES)


def make(name: str) -> AugmentedVGP:
    likelihood, Y = CASES[name]
    kernel = gpflow.kernels.Matern32(variance=1.5, lengthscales=[0.8, 1.3])
    return AugmentedVGP((X, Y), kernel, likelihood(), gpflow.functions.Constant(0.3))


def random_sites(model: AugmentedVGP) -> Sites:
    """Some of negative precision, which leave a proper q."""
    shape = N, model.num_latent_gps
    return Sites(*map(tf.constant, (RNG.normal(size=shape), RNG.uniform(-0.2, 3.0, shape))))


def no_sites(model: AugmentedVGP) -> Sites:
    zeros = tf.zeros([N, model.num_latent_gps], tf.float64)
    return Sites(zeros, zeros)


def q_by_its_naturals(projection: Projection, sites: Sites) -> Gaussian:
    """The same q(v) by the definition, N(v | 0, I) Π_i exp(λ_i h_i − ½ p_i h_i²)."""
    A = projection.A
    weighted = A * tf.transpose(sites.precision)[:, None, :]
    precision = tf.eye(N, dtype=A.dtype) + tf.matmul(weighted, A, transpose_b=True)
    return naturals_to_q(tf.transpose(tf.linalg.matvec(A, tf.transpose(sites.natural))), precision)


@pytest.mark.briefly("two counts")
@each_case
def test_the_elbo_of_sites_is_that_of_their_q(name: str) -> None:
    model = make(name)
    projection, rows = project(model.prior_of_data()), model.data
    for sites in (random_sites(model), no_sites(model)):
        found, kept = sums_of_sites(model, projection, *rows).newton(sites)
        q = q_by_its_naturals(projection, sites)
        for a, b in zip(q_of_sites(projection, sites), q, strict=True):
            np.testing.assert_allclose(a, b, atol=1e-10)
        sums, expected = sums_of_rows(model, projection, *rows).newton(q)
        np.testing.assert_allclose(found.value, sums.value - gauss_kl(*q), rtol=1e-10)
        np.testing.assert_allclose(kept.Fmu, expected.Fmu, atol=1e-10)
        np.testing.assert_allclose(kept.Fvar, expected.Fvar, rtol=1e-9)


@pytest.mark.briefly("counts")
@each_case
def test_the_gradient_is_exact_at_any_sites(name: str) -> None:
    """Against automatic differentiation through q and the Cholesky factor of K_ZZ."""
    model, sites = make(name), random_sites(make(name))
    of_rows, variables = model.term(standard).of_each, model.kernel.trainable_variables
    mean = model.mean_function.trainable_variables
    X, Y = model.data
    with tf.GradientTape() as tape:
        projection = project(model.prior(X))
        q = q_by_its_naturals(projection, sites)
        elbo = tf.reduce_sum(of_rows(X, *marginals(projection, *q), Y)) - gauss_kl(*q)
    expected = tape.gradient(elbo, [*variables, *mean])
    with tf.GradientTape() as tape:
        prior = model.prior_of_data()
    projection = project(prior)
    _, kept = sums_of_sites(model, projection, X, Y).newton(sites)
    gradients = to_prior_of_sites(prior, projection, sites, kept.slopes)
    found = tape.gradient(
        prior.differentiable, [*variables, *mean], output_gradients=gradients.differentiable
    )
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-8)


def test_with_hardly_any_noise_value_and_gradient_have_their_digits() -> None:
    """
    Where λ, P and PΣP are a million times their differences: against mpmath.

    They made ELBOs of a converged fit that were hundreds of nats above the evidence.
    """
    noise, lengthscale = 2e-6, 4.0
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (N, 2))
    Y = np.sin(X[:, :1] + X[:, 1:])
    kernel = gpflow.kernels.SquaredExponential(1.0, lengthscale)
    model = AugmentedVGP((X, Y), kernel, gpflow.likelihoods.Gaussian(noise))
    profile = Profile(model, [kernel.variance.unconstrained_variable])

    def expected(log_variance: mpmath.mpf) -> mpmath.mpf:
        """log N(y | 0, Q + σ²I) − tr(K − Q) / (2 σ²), Q = K (K + jI)⁻¹ K."""
        points = [[mpmath.mpf(float(x)) for x in row] for row in X]
        K = mpmath.matrix(N, N)
        for i, a in enumerate(points):
            for j, b in enumerate(points):
                distance = sum((u - v) ** 2 for u, v in zip(a, b, strict=True)) / lengthscale**2
                K[i, j] = mpmath.exp(log_variance - distance / 2)
        eye, y = mpmath.eye(N), mpmath.matrix([float(each) for each in Y[:, 0]])
        Q = K * (K + default_jitter() * eye) ** -1 * K
        covariance = Q + mpmath.mpf(noise) * eye
        log_det = mpmath.log(mpmath.det(covariance))
        fit = (y.T * covariance**-1 * y)[0] + log_det + N * mpmath.log(2 * mpmath.pi)
        return -(fit + sum(K[i, i] - Q[i, i] for i in range(N)) / noise) / 2

    with mpmath.workdps(50):
        for variance in (1e2, 1e4):
            kernel.variance.assign(variance)
            found = profile.evaluate(Arrays(X, Y), prior_q(N, 1), 1e-6, 20)
            at = mpmath.log(variance)
            np.testing.assert_allclose(found.objective, float(expected(at)), atol=0.01)
            slope = float(mpmath.diff(expected, at)) / variance
            slope *= float(tf.sigmoid(kernel.variance.unconstrained_variable))
            np.testing.assert_allclose(found.gradient, slope, rtol=0.01)
            model.assign_whitened_q(found.q)
            np.testing.assert_allclose(model.elbo(), found.objective, atol=0.01)


@pytest.mark.by_default("outliers of two")
@each_case
def test_it_ends_where_the_search_in_q_ends_step_by_step(name: str) -> None:
    model = make(name)
    projection, rows = project(model.prior_of_data()), model.data
    q = prior_q(N, model.num_latent_gps)

    @functools.partial(tf.function, autograph=False)
    def ends() -> tuple[Maximum, Maximum]:
        of_q, of_sites = (how(model, projection, *rows) for how in (sums_of_rows, sums_of_sites))
        limits = 1e-9, 60, False
        return maximise(of_q, q, *limits), maximise(of_sites, no_sites(model), *limits)

    expected, found = ends()
    assert abs(int(found.steps) - int(expected.steps)) <= 1
    np.testing.assert_allclose(found.elbo, expected.elbo, rtol=1e-10)
    of_sites = q_of_sites(projection, found.q)
    np.testing.assert_allclose(of_sites.mu, expected.q.mu, atol=1e-4)
    np.testing.assert_allclose(of_sites.sqrt, expected.q.sqrt, atol=1e-4)
    if name == "outliers":  # or the case would not test what it is for
        assert np.any(found.q.precision < -1e-3)


@pytest.mark.briefly("counts")
@pytest.mark.by_default("counts", "outliers of two")
@each_case
def test_the_profile_of_sites_is_the_profile(name: str) -> None:
    model = make(name)
    profile = Profile(model, list(model.kernel.trainable_variables))
    rows, q = Arrays(*model.data), prior_q(N, model.num_latent_gps)
    found = profile.evaluate(rows, q, 1e-10, 60)
    assert found.q.sites is not None
    # Half of the rows, twice as heavy, have fewer sites than there are v: this is the other search.
    twice = Arrays(*(tf.repeat(part, 2, 0) for part in model.data), num_data=N)
    expected = profile.evaluate(twice, q, 1e-10, 60)
    assert expected.q.sites is None
    np.testing.assert_allclose(found.objective, expected.objective, rtol=1e-9)
    np.testing.assert_allclose(found.gradient, expected.gradient, rtol=1e-4, atol=1e-4)
    # From there no step is left but the one that says so; at other hyperparameters few are.
    assert profile.evaluate(rows, found.q, 1e-6, 60).steps <= 1
    model.kernel.variance.assign(1.7)
    again = profile.evaluate(rows, found.q, 1e-6, 60)
    assert again.steps < profile.evaluate(rows, q, 1e-6, 60).steps


def test_no_step_means_the_elbo_of_the_very_q() -> None:
    model = make("counts")
    profile = Profile(model, list(model.kernel.trainable_variables))
    q = Gaussian(
        tf.constant(0.3 * RNG.normal(size=(N, 1))),
        0.5 * tf.eye(N, batch_shape=[1], dtype=tf.float64),
    )
    model.assign_whitened_q(q)
    found = profile.evaluate(Arrays(*model.data), q, 0.0, 0)
    np.testing.assert_allclose(found.objective, model.elbo(), rtol=1e-10)
    np.testing.assert_array_equal(found.q.mu, q.mu)


@pytest.mark.briefly("12.0")
@pytest.mark.parametrize("far", [-6.0, 12.0])
def test_a_q_from_which_a_step_goes_too_far_is_searched_itself(far: float) -> None:
    """At rates near exp(−6) the first step from q leads to rates beyond floats."""
    model = make("counts")
    profile = Profile(model, [])
    rows = Arrays(*model.data)
    best = profile.evaluate(rows, prior_q(N, 1), 1e-8, 60)
    shifted = prior_q(N, 1)._replace(mu=tf.fill([N, 1], tf.constant(far, tf.float64)))
    end = profile.evaluate(rows, shifted, 1e-8, 100)
    assert isinstance(end.q, Optimum)
    np.testing.assert_allclose(end.objective, best.objective, rtol=1e-7)
