"""Where two laws of noise are one, they must agree to rounding; and what constructors refuse."""

from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from cases import column

from gpflow_aaci import likelihoods
from gpflow_aaci.likelihoods import ResidualLikelihood

# residual and standard deviation of f, in the unit of y
RESIDUALS = np.array([0.0, 1e-3, 0.4, -1.7, 6.0, -80.0])
DEVIATIONS = np.array([1e-3, 0.2, 1.0, 30.0])


def everything(likelihood: ResidualLikelihood) -> dict[str, np.ndarray]:
    """What a model or a prediction asks of it."""
    residual, sd = (a.ravel()[:, None] for a in np.meshgrid(RESIDUALS, DEVIATIONS))
    Fmu, Y = column(*(0.3 - residual[:, 0])), tf.fill(residual.shape, tf.constant(0.3, tf.float64))
    Fvar = tf.constant(sd**2)
    r = tf.constant(np.logspace(-12, 6, 37))
    mean, variance = likelihood.predict_mean_and_var(Y, Fmu, Fvar)
    return {
        "log_prob": likelihood.log_prob(Y, Fmu, Y),
        "bound": likelihood.expected_log_prob_bound(Fmu, Fvar, Y),
        "variational_expectations": likelihood.variational_expectations(Y, Fmu, Fvar, Y),
        "log_density": likelihood.scalar_log_density(Fmu, Fvar, Y),
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
    "Matern32": (lambda: likelihoods.Matern(1.5, 0.7), lambda: likelihoods.Matern32(0.7)),
    "Matern52": (lambda: likelihoods.Matern(2.5, 0.7), lambda: likelihoods.Matern52(0.7)),
}


@pytest.mark.parametrize("name", PAIRS)
def test_a_special_case_is_the_other_likelihood(name: str) -> None:
    ours, theirs = (everything(make()) for make in PAIRS[name])
    for key, value in theirs.items():
        np.testing.assert_allclose(ours[key], value, rtol=1e-12, atol=1e-12, err_msg=key)


def test_matern_of_order_one_half_is_laplace() -> None:
    """Of expectations, which Laplace has in closed form, to the accuracy of quadrature."""
    ours, theirs = everything(likelihoods.Matern(0.5, 0.7)), everything(likelihoods.Laplace(0.7))
    for key, value in theirs.items():
        tolerance = 1e-6 if key in ("variational_expectations", "log_density") else 1e-12
        np.testing.assert_allclose(ours[key], value, rtol=tolerance, atol=tolerance, err_msg=key)
    c, omega = np.array([0.0, 0.3, 2.0]), np.array([[0.1], [1.0], [7.0]])
    law, exact = (m(scale=0.7).tilted(c) for m in (MaternHalf, likelihoods.Laplace))
    np.testing.assert_allclose(law.log_prob(omega), exact.log_prob(omega), rtol=1e-10)


class MaternHalf(likelihoods.Matern):
    """By its scale alone; here, so that the package has no such class."""

    def __init__(self, scale: float) -> None:
        super().__init__(0.5, scale)


@pytest.mark.parametrize("order", [20, 60])
def test_matern_tends_to_the_normal_law(order: int) -> None:
    """log φ(r) → −r/2ρ², at a rate of 1/ν."""
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


# ---- quantiles ----


@pytest.mark.parametrize("quantile", [0.05, 0.3, 0.5, 0.9])
def test_the_location_is_the_quantile(quantile: float) -> None:
    """∫ p(y|f) dy over y < f is τ, to rounding: either side is an exponential law."""
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
    """The straight line of the check function is that of y − f, however large both are."""
    likelihood, F, Y = likelihoods.AsymmetricLaplace(0.6, 0.2), column(1.0), column(1.75)
    near, far = (likelihood.log_prob(F, F + a, Y + a) for a in (0.0, 2.0**40))
    np.testing.assert_allclose(near, far, rtol=1e-12)
