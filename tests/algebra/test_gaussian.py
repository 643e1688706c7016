"""q(v), the optimum given the sites and the projection, against dense linear algebra in NumPy."""

from typing import NamedTuple

import numpy as np
import pytest
import tensorflow as tf
from gpflow.base import AnyNDArray

from gpflow_aaci.algebra.gaussian import (
    Gaussian,
    carried,
    damped,
    lower_triangular_inverse,
    naturals_to_q,
    optimal_naturals,
    q_to_naturals,
    unwhiten,
    whiten,
)
from gpflow_aaci.algebra.projection import Prior, Projection, marginals, project, to_q

N, M = 11, 6


class Sites(NamedTuple):
    """A q(v), a projection and sites for P latent GPs, which share A or have one each."""

    q_mu: AnyNDArray
    q_sqrt: AnyNDArray
    A: AnyNDArray
    L: AnyNDArray
    potential: AnyNDArray
    precision: AnyNDArray

    def covariance(self) -> AnyNDArray:
        return self.q_sqrt @ self.q_sqrt.swapaxes(-1, -2)

    def projection(self) -> Projection:
        nothing = np.zeros([len(self.A), N])
        return Projection(*map(tf.constant, (self.L, self.A, nothing, np.zeros([N, 1]))))

    def optimum(self) -> tuple[AnyNDArray, AnyNDArray]:
        """
        The optimum given sites, whose slopes at q are those of Σ potential·f − ½ precision·f².
        """
        Fmu, _ = marginals(self.projection(), self.q_mu, self.q_sqrt)
        sums = to_q(self.projection(), self.potential - self.precision * Fmu, -0.5 * self.precision)
        return optimal_naturals(self.q_mu, *sums)

    def damped(self, step_size: float) -> Gaussian:
        return damped(self.q_mu, self.q_sqrt, *self.optimum(), step_size)

    def A_of(self, p: int) -> AnyNDArray:
        return self.A[p % len(self.A)]


def lower_triangular(rng: np.random.Generator, count: int) -> AnyNDArray:
    """A well-conditioned lower triangular matrix with a positive diagonal."""
    R = 0.4 * np.tril(rng.normal(size=(count, M, M)), -1)
    R[:, range(M), range(M)] = rng.uniform(0.3, 1.5, size=(count, M))
    return R


@pytest.fixture(params=[(1, 1), (3, 1), (3, 3)], ids=["P=1", "P=3 shared A", "P=3 separate A"])
def sites(request: pytest.FixtureRequest, rng: np.random.Generator) -> Sites:
    P, L = request.param
    return Sites(
        q_mu=rng.normal(size=(M, P)),
        q_sqrt=lower_triangular(rng, P),
        A=rng.normal(size=(L, M, N)) / M,
        L=lower_triangular(rng, L),
        potential=rng.normal(size=(N, P)),
        precision=rng.uniform(0.0, 30.0, size=(N, P)),
    )


def test_naturals_to_q_inverts_q_to_naturals(sites: Sites) -> None:
    q_mu, q_sqrt = naturals_to_q(*q_to_naturals(sites.q_mu, sites.q_sqrt))
    np.testing.assert_allclose(q_mu, sites.q_mu, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(q_sqrt, sites.q_sqrt, rtol=1e-10, atol=1e-10)


def test_q_to_naturals_inverts_naturals_to_q(sites: Sites) -> None:
    lambda_1, Lambda_2 = sites.optimum()
    again_1, again_2 = q_to_naturals(*naturals_to_q(lambda_1, Lambda_2))
    np.testing.assert_allclose(again_1, lambda_1, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(again_2, Lambda_2, rtol=1e-10, atol=1e-10)


def test_q_to_naturals_are_precision_and_precision_times_mean(sites: Sites) -> None:
    lambda_1, Lambda_2 = q_to_naturals(sites.q_mu, sites.q_sqrt)
    precision = np.linalg.inv(sites.covariance())
    np.testing.assert_allclose(Lambda_2, precision, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(
        lambda_1, np.einsum("pij,jp->ip", precision, sites.q_mu), rtol=1e-9, atol=1e-10
    )


def test_naturals_to_q_inverts_the_precision(sites: Sites) -> None:
    """q_sqrt q_sqrtᵀ = Lambda_2⁻¹, where q_sqrt is lower triangular with a positive diagonal."""
    lambda_1, Lambda_2 = sites.optimum()
    q_mu, q_sqrt = (value.numpy() for value in naturals_to_q(lambda_1, Lambda_2))
    S = np.linalg.inv(Lambda_2)
    np.testing.assert_allclose(q_sqrt @ q_sqrt.swapaxes(-1, -2), S, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(q_mu, np.einsum("pij,jp->ip", S, lambda_1), rtol=1e-10, atol=1e-12)
    np.testing.assert_array_equal(q_sqrt, np.tril(q_sqrt))
    assert np.all(np.diagonal(q_sqrt, axis1=-2, axis2=-1) > 0)


def test_lower_triangular_inverse(sites: Sites) -> None:
    inverse = lower_triangular_inverse(sites.q_sqrt).numpy()
    np.testing.assert_allclose(inverse, np.linalg.inv(sites.q_sqrt), rtol=1e-10, atol=1e-12)


def test_optimum_of_the_sites_is_bayes_rule(sites: Sites) -> None:
    """
    The posterior of v ~ N(0, I) given the sites is that of a linear Gaussian model.

    Its pseudo-observations potential/precision have noise 1/precision. The oracle is the formula of
    Gaussian conditioning in data space, where the package works in the space of v.
    """
    sites = sites._replace(precision=sites.precision + 0.1)
    q_mu, q_sqrt = naturals_to_q(*sites.optimum())
    for p in range(sites.q_mu.shape[1]):
        A, noise = sites.A_of(p), 1.0 / sites.precision[:, p]
        gain = np.linalg.solve(A.T @ A + np.diag(noise), A.T).T  # [M, N]
        np.testing.assert_allclose(
            q_mu[:, p], gain @ (sites.potential[:, p] * noise), rtol=1e-9, atol=1e-10
        )
        S = q_sqrt[p].numpy() @ q_sqrt[p].numpy().T
        np.testing.assert_allclose(S, np.eye(M) - gain @ A.T, rtol=1e-9, atol=1e-10)


def test_marginals_are_the_diagonal_of_the_dense_law(sites: Sites) -> None:
    sharers, P = len(sites.A), sites.q_mu.shape[1]
    k_diag = 5.0 + np.arange(sharers * N, dtype=float).reshape(sharers, N)
    K_ZZ, mean = sites.L @ sites.L.swapaxes(-1, -2), np.linspace(-1.0, 1.0, N)[:, None]
    projection = project(Prior(*map(tf.constant, (K_ZZ, sites.L @ sites.A, k_diag, mean))))
    Fmu, Fvar = marginals(projection, sites.q_mu, sites.q_sqrt)
    S = sites.covariance()
    for p in range(P):
        A = sites.A_of(p)
        np.testing.assert_allclose(Fmu[:, p], mean[:, 0] + A.T @ sites.q_mu[:, p], rtol=1e-9)
        dense = np.diag(k_diag[p % sharers]) - A.T @ A + A.T @ S[p] @ A
        np.testing.assert_allclose(Fvar[:, p], np.diag(dense), rtol=1e-9)


def test_unwhiten_is_multiplication_by_L(sites: Sites) -> None:
    q_mu, q_sqrt = (value.numpy() for value in unwhiten(sites.q_mu, sites.q_sqrt, sites.L))
    for p, S in enumerate(sites.covariance()):
        L = sites.L[p % len(sites.L)]
        np.testing.assert_allclose(q_mu[:, p], L @ sites.q_mu[:, p], rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(q_sqrt[p] @ q_sqrt[p].T, L @ S @ L.T, rtol=1e-12, atol=1e-12)


def test_whiten_inverts_unwhiten(sites: Sites) -> None:
    q_mu, q_sqrt = whiten(*unwhiten(sites.q_mu, sites.q_sqrt, sites.L), sites.L)
    np.testing.assert_allclose(q_mu, sites.q_mu, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(q_sqrt, sites.q_sqrt, rtol=1e-10, atol=1e-12)


def test_the_same_factor_under_another_prior(sites: Sites, rng: np.random.Generator) -> None:
    """q(u)/p(u) has the precision Σ⁻¹ − K⁻¹ and the potential Σ⁻¹m, of q(u) = N(m, Σ)."""
    q = naturals_to_q(*sites.optimum())
    L = sites.L[0], lower_triangular(rng, 1)[0]
    moved = carried(*q, np.linalg.solve(L[0], L[1])[None])
    for p in range(sites.q_mu.shape[1]):
        factors = []
        for root, (q_mu, q_sqrt) in zip(L, (q, moved), strict=True):
            of_u = root @ q_sqrt[p].numpy()
            precision = np.linalg.inv(of_u @ of_u.T)
            potential = precision @ root @ q_mu.numpy()[:, p]
            factors.append([precision - np.linalg.inv(root @ root.T), potential])
        for old, new in zip(*factors, strict=True):
            np.testing.assert_allclose(new, old, rtol=1e-7, atol=1e-7 * np.abs(old).max())


@pytest.mark.parametrize("step_size", [0.25, 1.0])
def test_a_damped_step_averages_naturals(sites: Sites, step_size: float) -> None:
    """The precision is an average of precisions, and the precision times the mean is one, too."""
    q_mu, q_sqrt = sites.damped(step_size)
    for p, S in enumerate(sites.covariance()):
        A, old = sites.A_of(p), np.linalg.inv(S)
        target = np.eye(M) + A @ np.diag(sites.precision[:, p]) @ A.T
        Lambda = (1.0 - step_size) * old + step_size * target
        lambda_ = (1.0 - step_size) * old @ sites.q_mu[:, p]
        lambda_ += step_size * A @ sites.potential[:, p]
        new_S = q_sqrt[p].numpy() @ q_sqrt[p].numpy().T
        np.testing.assert_allclose(new_S, np.linalg.inv(Lambda), rtol=1e-9, atol=1e-11)
        np.testing.assert_allclose(
            q_mu[:, p], np.linalg.solve(Lambda, lambda_), rtol=1e-9, atol=1e-11
        )


def test_a_damped_step_does_not_average_moments(sites: Sites) -> None:
    """The paper's Algorithm 3 as printed would; harmonic and arithmetic means differ clearly."""
    half, full = sites.damped(0.5).sqrt, sites.damped(1.0).sqrt
    S_half, S_full = (R.numpy() @ R.numpy().swapaxes(-1, -2) for R in (half, full))
    variance_of = {
        "half step": np.trace(S_half, axis1=-2, axis2=-1),
        "moment average": np.trace((sites.covariance() + S_full) / 2.0, axis1=-2, axis2=-1),
    }
    assert np.all(variance_of["half step"] < 0.9 * variance_of["moment average"])


def test_full_step_forgets_where_it_started(sites: Sites) -> None:
    elsewhere = sites._replace(q_mu=sites.q_mu + 3.0, q_sqrt=2.0 * sites.q_sqrt)
    for a, b in zip(sites.damped(1.0), elsewhere.damped(1.0), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)
