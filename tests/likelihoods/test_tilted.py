"""``likelihood.tilted(c)``: its law, dtype and shape, compared with the law from log φ alone."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from cases import CASES, Case, case_id

from gpflow_aaci import likelihoods
from gpflow_aaci.contrib.likelihoods import KernelNoise, NoiseMixture, NoiseProduct
from gpflow_aaci.contrib.likelihoods.tilted_mixtures import TiltedMixture, TiltedSum
from gpflow_aaci.distributions import GeneralizedInverseGaussian, PolyaGamma, TiltedDistribution

tfd = tfp.distributions
CLOSED_FORMS = {
    likelihoods.Gaussian: tfd.Deterministic,
    likelihoods.StudentT: tfd.Gamma,
    likelihoods.Cauchy: tfd.Gamma,
    likelihoods.AsymmetricLaplace: tfd.InverseGaussian,
    KernelNoise: TiltedMixture,
    NoiseMixture: TiltedMixture,
    NoiseProduct: TiltedSum,
    likelihoods.LogisticNoise: PolyaGamma,
    likelihoods.Matern: GeneralizedInverseGaussian,
    likelihoods.Laplace: tfd.InverseGaussian,
    likelihoods.Matern32: GeneralizedInverseGaussian,
    likelihoods.Matern52: GeneralizedInverseGaussian,
    likelihoods.Logistic: PolyaGamma,
    likelihoods.BayesianSVM: tfd.InverseGaussian,
}
every_case = pytest.mark.parametrize("case", CASES, ids=case_id)


@pytest.mark.briefly("Laplace")
@pytest.mark.by_default("StudentT", "Laplace")
@every_case
def test_the_closed_form_is_that_of_log_phi(case: Case) -> None:
    likelihood, c = case.make(), np.array([[0.0, 1e-3, 0.2], [1.7, 20.0, 1e3]])
    closed, generic = likelihood.tilted(c), TiltedDistribution(likelihood.log_phi, c)
    assert isinstance(closed, CLOSED_FORMS.get(type(likelihood), TiltedDistribution))
    assert closed.batch_shape == c.shape
    some = c > 0
    np.testing.assert_allclose(closed.mean()[some], generic.mean()[some], rtol=1e-11)
    np.testing.assert_allclose(closed.variance()[some], generic.variance()[some], rtol=1e-8)
    np.testing.assert_allclose(closed.mean()[some], likelihood.omega_mean(c[some] ** 2), rtol=1e-11)
    p = np.array([0.001, 0.1, 0.5, 0.9, 0.999])[:, None, None]
    q = generic.quantile(p)
    if not isinstance(closed, tfd.Deterministic):
        np.testing.assert_allclose(closed.cdf(q), p + 0 * c, rtol=0, atol=1e-7)
        np.testing.assert_allclose(closed.log_prob(q), generic.log_prob(q), rtol=0, atol=1e-6)


@pytest.mark.briefly("BayesianSVM", "Laplace", "StudentT", "StudentT-heavy")
@pytest.mark.applies_to(  # a point mass has no density
    "case", lambda case: not isinstance(case.make(), likelihoods.Gaussian)
)
@every_case
def test_tilting_by_c(case: Case) -> None:
    """π(ω|c) ∝ e^{−c²ω} π(ω|0), with the constant 1/φ(c²) (AACI Eq. 7)."""
    likelihood = case.make()
    c, omega = 1.3, np.array([0.05, 0.3, 1.0, 2.0])
    ratio = likelihood.tilted(c).log_prob(omega) - likelihood.tilted(0.0).log_prob(omega)
    exact = -(c**2) * omega - likelihood.log_phi(tf.constant(c**2, tf.float64))
    np.testing.assert_allclose(ratio, exact, rtol=0, atol=1e-6)


@pytest.mark.briefly("StudentT-heavy")
@pytest.mark.by_default("StudentT")
@every_case
def test_draws_in_a_graph_and_their_seed(case: Case) -> None:
    likelihood, c = case.make(), tf.constant([0.1, 1.0, 10.0], tf.float64)
    draw = tf.function(lambda c: likelihood.tilted(c).sample(100, seed=[1, 2]))
    np.testing.assert_allclose(draw(c), likelihood.tilted(c).sample(100, seed=[1, 2]), rtol=1e-9)
    assert draw(c).shape == (100, 3)


@pytest.mark.parametrize("c", [np.nan, -0.5, [1.0, np.inf]])
@every_case
def test_bad_c(case: Case, c: object) -> None:
    with pytest.raises(ValueError, match=r"c must be finite and non-negative\. Found: \["):
        case.make().tilted(c)


def test_a_users_likelihood_has_one_too() -> None:
    """φ(r) = (1 + r)^{−2}, stated by log φ alone, has ω ~ Gamma(2, 1 + c²)."""

    class Mine(likelihoods.Laplace):
        def log_phi(self, r: tf.Tensor) -> tf.Tensor:
            return -2.0 * tf.math.log1p(r)

        _tilted = likelihoods.SuperGaussianLikelihood._tilted

    tilted, gamma = Mine().tilted(0.5), tfd.Gamma(np.float64(2.0), 1.25)
    assert isinstance(tilted, TiltedDistribution)
    x = np.array([0.1, 1.0, 5.0])
    np.testing.assert_allclose(tilted.cdf(x), gamma.cdf(x), rtol=0, atol=1e-8)


@every_case
def test_a_negative_number_of_draws_is_refused(case: Case) -> None:
    with pytest.raises(ValueError, match=r"sample_shape must not have negative entries.*-3"):
        case.make().tilted(1.0).sample(-3)
