"""
Two likelihoods that describe the same noise must agree to rounding; bad arguments are refused.
"""

from collections.abc import Callable
from typing import Any

import gpflow
import mpmath as mp
import numpy as np
import pytest
import scipy.stats
import tensorflow as tf
from cases import column

from gpflow_aaci import likelihoods
from gpflow_aaci.likelihoods import ResidualLikelihood
from gpflow_aaci.likelihoods.integrals.powers import expected_power

# residuals and standard deviations of f, in units of y
RESIDUALS = np.array([0.0, 1e-3, 0.4, -1.7, 6.0, -80.0])
DEVIATIONS = np.array([1e-3, 0.2, 1.0, 30.0])


def everything(likelihood: ResidualLikelihood) -> dict[str, np.ndarray]:
    """All quantities that a model or a prediction needs from the likelihood."""
    residual, sd = (a.ravel()[:, None] for a in np.meshgrid(RESIDUALS, DEVIATIONS))
    Fmu, Y = column(*(0.3 - residual[:, 0])), tf.fill(residual.shape, tf.constant(0.3, tf.float64))
    Fvar = tf.constant(sd**2)
    r = tf.constant(np.logspace(-12, 6, 37))
    mean, variance = likelihood.predict_mean_and_var(Y, Fmu, Fvar)
    return {
        "log_prob": likelihood.log_prob(Y, Fmu, Y),
        "bound": likelihood.pointwise_bound(None, Fmu, Fvar, Y),
        "variational_expectations": likelihood.variational_expectations(Y, Fmu, Fvar, Y),
        "log_density": likelihood.predictive_log_density(None, Fmu, Fvar, Y),
        "mean": mean,
        "variance": variance,
        "log_phi": likelihood.log_phi(r),
        "omega_mean": likelihood.omega_mean(r),
    }


PAIRS: dict[str, tuple[Callable[[], ResidualLikelihood], Callable[[], ResidualLikelihood]]] = {
    "AsymmetricLaplace": (
        lambda: likelihoods.AsymmetricLaplace(0.35, 0.5),
        lambda: likelihoods.Laplace(0.7),
    ),
    "Cauchy": (lambda: likelihoods.Cauchy(0.7), lambda: likelihoods.StudentT(0.7, 1.0)),
    "GeneralizedGaussian-1": (
        lambda: likelihoods.GeneralizedGaussian(0.7, 1.0),
        lambda: likelihoods.Laplace(0.7),
    ),
    "GeneralizedGaussian-2": (
        lambda: likelihoods.GeneralizedGaussian(0.7, 2.0),
        lambda: likelihoods.Gaussian(scale=0.7 / np.sqrt(2.0)),
    ),
    "Matern32": (lambda: likelihoods.Matern(1.5, 0.7), lambda: likelihoods.Matern32(0.7)),
    "Matern52": (lambda: likelihoods.Matern(2.5, 0.7), lambda: likelihoods.Matern52(0.7)),
}


@pytest.mark.briefly("Matern52")
@pytest.mark.parametrize("name", PAIRS)
def test_a_special_case_is_the_other_likelihood(name: str) -> None:
    """They agree to 1e-12, or to 1e-10 if only one of them predicts by quadrature."""
    ours, theirs = (everything(make()) for make in PAIRS[name])
    for key, value in theirs.items():
        tolerance = 1e-10 if key == "log_density" and name.startswith("Generalized") else 1e-12
        np.testing.assert_allclose(ours[key], value, rtol=tolerance, atol=tolerance, err_msg=key)


@pytest.mark.slow
@pytest.mark.by_default("AsymmetricLaplace")
@pytest.mark.parametrize("name", ["AsymmetricLaplace", "GeneralizedGaussian-1", "Matern52"])
def test_compiled_it_is_the_same(name: str) -> None:
    likelihood = PAIRS[name][0]()
    compiled = tf.function(lambda: everything(likelihood))()
    for key, value in everything(likelihood).items():
        np.testing.assert_allclose(compiled[key], value, rtol=1e-10, atol=1e-12, err_msg=key)


def test_matern_of_order_one_half_is_laplace() -> None:
    """Expectations, which Laplace has in closed form, agree to the accuracy of quadrature."""
    ours, theirs = everything(likelihoods.Matern(0.5, 0.7)), everything(likelihoods.Laplace(0.7))
    for key, value in theirs.items():
        tolerance = 1e-6 if key in ("variational_expectations", "log_density") else 1e-12
        np.testing.assert_allclose(ours[key], value, rtol=tolerance, atol=tolerance, err_msg=key)
    c, omega = np.array([0.0, 0.3, 2.0]), np.array([[0.1], [1.0], [7.0]])
    law, exact = (m(scale=0.7).tilted(c) for m in (MaternHalf, likelihoods.Laplace))
    np.testing.assert_allclose(law.log_prob(omega), exact.log_prob(omega), rtol=1e-10)


class MaternHalf(likelihoods.Matern):
    """Matern of order ½ by its scale alone, which the package does not define."""

    def __init__(self, scale: float) -> None:
        super().__init__(0.5, scale)


@pytest.mark.parametrize("order", [20, 60])
def test_matern_tends_to_the_normal_law(order: int) -> None:
    """log φ(r) → −r/2ρ² with an error of order 1/ν."""
    r = tf.constant(np.array([1e-6, 0.1, 1.0, 3.0]))
    matern = likelihoods.Matern(order + 0.5, 0.7)
    gaussian = likelihoods.Gaussian(scale=0.7)
    np.testing.assert_allclose(matern.log_phi(r), gaussian.log_phi(r), rtol=4.0 / order)
    zero = tf.zeros([], tf.float64)
    np.testing.assert_allclose(matern.log_C(zero), gaussian.log_C(zero), rtol=1.0 / order)


@pytest.mark.parametrize("nu", [0.0, 1.0, 1.2, -0.5, np.nan, np.inf, [1.5, 2.5]])
def test_orders_that_are_not_half_integers_are_refused(nu: Any) -> None:
    with pytest.raises(ValueError, match=r"Matern: nu must be one of 1/2, 3/2, 5/2, … Found: "):
        likelihoods.Matern(nu)


# ---- the generalised Gaussian ----


@pytest.mark.parametrize("value", [0.0, -1.0, 2.1, np.nan, [1.0, 1.5]])
def test_powers_beyond_2_are_refused(value: Any) -> None:
    """e^{−|u|³} is not a mixture of normal laws."""
    with pytest.raises(ValueError, match=r"power must be one number in \(0, 2\]\. Found: "):
        likelihoods.GeneralizedGaussian(power=value)
    linear = gpflow.functions.Linear()
    with pytest.raises(ValueError, match=r"power must be .* Function of X"):
        likelihoods.GeneralizedGaussian(power=linear)


def test_the_power_is_learnt_within_0_and_2_and_held_fixed_at_2() -> None:
    power = likelihoods.GeneralizedGaussian(power=1.7).power
    for u in (-30.0, 30.0):
        power.unconstrained_variable.assign(u)
        assert 0.0 < power.numpy() <= 2.0
    assert not likelihoods.GeneralizedGaussian(power=2.0).power.trainable
    own = gpflow.Parameter(1.2)
    assert likelihoods.GeneralizedGaussian(power=own).power is own


@pytest.mark.slow
def test_omega_of_power_1_is_inverse_gaussian() -> None:
    """Draws are exactly that law's, eagerly and in a graph; all else agrees to 1e-7."""
    ours, laplace = likelihoods.GeneralizedGaussian(0.7, 1.0), likelihoods.Laplace(0.7)
    c = tf.constant([0.0, 0.3, 5.0], tf.float64)
    draws = laplace.tilted(c).sample(4, seed=[1, 2])
    assert np.all(draws > 0.0)
    eager = ours.tilted(c).sample(2000, seed=[1, 2])
    in_graph = tf.function(lambda c: ours.tilted(c).sample(2000, seed=[1, 2]))(c)
    np.testing.assert_allclose(in_graph, eager, rtol=1e-12)
    p = laplace.tilted(c).cdf(eager).numpy()
    for column_of_p in p.T:
        assert scipy.stats.kstest(column_of_p, "uniform").pvalue > 1e-3
    x = np.array([[0.1], [1.0], [9.0]])
    np.testing.assert_allclose(ours.tilted(c).cdf(x), laplace.tilted(c).cdf(x), atol=1e-7)


def test_omega_of_power_2_is_a_constant() -> None:
    draws = likelihoods.GeneralizedGaussian(0.7, 2.0).tilted([0.0, 1.0]).sample(3, seed=[1, 2])
    np.testing.assert_allclose(draws, np.full([3, 2], 1.0 / 0.49), rtol=1e-12)


@pytest.mark.parametrize("power", [0.3, 1.0, 1.6])
def test_absolute_moments_are_kummers_function(power: float) -> None:
    """E|x|^p and its derivatives are right on both sides of the change of method."""
    means = np.array([0.0, 1e-4, 0.3, 1.0, 2.5, 3.99, 4.01, 6.0, 30.0])

    def exact(mean: mp.mpf, variance: mp.mpf) -> mp.mpf:
        x = mp.mpf(mean) ** 2 / (2 * variance)
        moment = (2 * variance) ** (mp.mpf(power) / 2) * mp.gamma((mp.mpf(power) + 1) / 2)
        return moment / mp.sqrt(mp.pi) * mp.hyp1f1(-mp.mpf(power) / 2, 0.5, -x)

    mean, variance = tf.constant(means), tf.fill(means.shape, tf.constant(0.49, tf.float64))
    with tf.GradientTape() as tape:
        tape.watch([mean, variance])
        value = expected_power(0.7 * mean, variance, tf.constant(power, tf.float64))
    by_mean, by_variance = tape.gradient(value, [mean, variance])
    with mp.workdps(30):
        v = mp.mpf(0.49)
        np.testing.assert_allclose(value, [float(exact(0.7 * m, v)) for m in means], rtol=1e-8)
        slopes = [float(mp.diff(lambda t: exact(0.7 * t, v), m)) for m in means]
        np.testing.assert_allclose(by_mean, slopes, rtol=1e-7, atol=1e-12)
        slopes = [float(mp.diff(lambda t, m=m: exact(0.7 * m, t), v)) for m in means]
        np.testing.assert_allclose(by_variance, slopes, rtol=1e-6, atol=1e-9)


# ---- quantiles ----


@pytest.mark.parametrize("quantile", [0.05, 0.3, 0.5, 0.9])
def test_the_location_is_the_quantile(quantile: float) -> None:
    """∫ p(y|f) dy over y < f is τ up to rounding, since either side is exponential."""
    likelihood = likelihoods.AsymmetricLaplace(0.6, quantile)
    nodes, weights = np.polynomial.laguerre.laggauss(20)
    scale = 0.6 / (1.0 - quantile)
    Y = column(*(1.3 - scale * nodes))
    log_prob = likelihood.log_prob(Y, tf.fill(Y.shape, tf.constant(1.3, tf.float64)), Y).numpy()
    below = scale * np.sum(weights * np.exp(log_prob + nodes))
    assert below == pytest.approx(quantile, rel=1e-10)


@pytest.mark.parametrize("value", [0.0, 1.0, -0.2, 1.5, np.nan, [0.1, 0.9]])
def test_quantiles_must_be_between_0_and_1(value: Any) -> None:
    with pytest.raises(ValueError, match=r"AsymmetricLaplace: quantile must be one number in"):
        likelihoods.AsymmetricLaplace(quantile=value)
    linear = gpflow.functions.Linear()
    with pytest.raises(ValueError, match=r"quantile must be one number in .* Function of X"):
        likelihoods.AsymmetricLaplace(quantile=linear)


def test_the_quantile_is_held_fixed_unless_the_user_brings_a_parameter() -> None:
    likelihood = likelihoods.AsymmetricLaplace(quantile=0.1)
    assert [p is likelihood.scale for p in likelihood.trainable_parameters] == [True]
    np.testing.assert_allclose(likelihood.quantile, 0.1, rtol=1e-15)
    own = gpflow.Parameter(0.3)
    assert likelihoods.AsymmetricLaplace(quantile=own).quantile is own


def test_digits_are_kept_far_from_zero() -> None:
    """The straight line of the check function is taken of y − f, however large both are."""
    likelihood, F, Y = likelihoods.AsymmetricLaplace(0.6, 0.2), column(1.0), column(1.75)
    near, far = (likelihood.log_prob(F, F + a, Y + a) for a in (0.0, 2.0**40))
    np.testing.assert_allclose(near, far, rtol=1e-12)
