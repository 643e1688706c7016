"""``Probit``, and functions of Φ that it needs, far into both tails, against mpmath."""

from collections.abc import Callable

import mpmath as mp
import numpy as np
import pytest
import tensorflow as tf
from cases import column
from gpflow.base import AnyNDArray

from gpflow_aaci import augmentation, likelihoods, special

Z = np.concatenate([-np.logspace(8, -8, 97), [0.0], np.logspace(-8, 2, 61), [-6.001, -6.0, -5.99]])


def mills(z: mp.mpf) -> mp.mpf:
    """N(z)/Φ(z), by Laplace's continued fraction where mpmath would need a million digits."""
    if z > -100:
        return mp.npdf(z) / mp.ncdf(z)
    t = mp.mpf(0)
    for k in range(60, 1, -1):
        t = k / (-z + t)
    return -z + 1 / (-z + t)


def log_ndtr(z: mp.mpf) -> mp.mpf:
    if z > 1:
        return mp.log1p(-mp.ncdf(-z))
    return -z * z / 2 - mp.log(2 * mp.pi) / 2 - mp.log(mills(z))


def mean(z: mp.mpf) -> mp.mpf:
    return z + mills(z)


def variance(z: mp.mpf) -> mp.mpf:
    return 1 - mean(z) * mills(z)


def log_transform(z: mp.mpf) -> mp.mpf:
    return z * z / 2 + mp.log(2) + log_ndtr(z)


def exactly(function: Callable[[mp.mpf], mp.mpf], z: AnyNDArray) -> AnyNDArray:
    with mp.workdps(60):
        return np.array([float(function(mp.mpf(float(value)))) for value in z])


FUNCTIONS = {
    "log_ndtr": (special.log_ndtr, log_ndtr, mills),
    "log_half_normal_transform": (special.log_half_normal_transform, log_transform, mean),
    "positive_normal_mean": (special.positive_normal_mean, mean, variance),
}


@pytest.mark.parametrize(("actual", "exact", "derivative"), FUNCTIONS.values(), ids=FUNCTIONS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_value_and_derivative_far_into_both_tails(
    actual: Callable, exact: Callable, derivative: Callable, dtype: type
) -> None:
    """Relative errors are 1e-12 and 1e-5; near 0, log E e^{zω} is of the order of z."""
    z = Z.astype(dtype)
    x = tf.constant(z)
    with tf.GradientTape() as tape:
        tape.watch(x)
        value = actual(x)
    gradient = tape.gradient(value, x)
    assert value.dtype == gradient.dtype == x.dtype
    tolerance, tiny = (1e-12, 1e-15) if dtype is np.float64 else (1e-5, 1e-6)
    np.testing.assert_allclose(value, exactly(exact, z), rtol=tolerance, atol=tiny)
    scale = 1.0 if dtype is np.float64 else 50.0  # 1 − mean · N/Φ cancels down to 0.02
    np.testing.assert_allclose(gradient, exactly(derivative, z), rtol=scale * tolerance, atol=1e-30)


def test_log_ndtr_at_infinity() -> None:
    for dtype in (np.float64, np.float32):
        np.testing.assert_array_equal(
            special.log_ndtr(tf.constant([-np.inf, np.inf], dtype)), [-np.inf, 0.0]
        )


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_the_second_derivative_of_log_ndtr(dtype: type) -> None:
    """−λ (z + λ) with λ = N(z)/Φ(z), also at 0 and where the tail begins."""
    z = np.array([-25.0, -20.1, -19.9, -8.1, -7.9, -3.0, 0.0, 0.5, 4.0, 9.0]).astype(dtype)
    x = tf.constant(z)
    with tf.GradientTape() as outer:
        outer.watch(x)
        with tf.GradientTape() as tape:
            tape.watch(x)
            value = special.log_ndtr(x)
        slope = tape.gradient(value, x)
    expected = exactly(lambda at: -mills(at) * (at + mills(at)), z)
    tolerance = 1e-10 if dtype is np.float64 else 1e-4
    np.testing.assert_allclose(outer.gradient(slope, x), expected, rtol=tolerance)


def test_log_ndtr_keeps_its_digits_where_the_probability_is_almost_one() -> None:
    z = np.array([1.0, 5.0, 9.0, 20.0, 37.0])
    np.testing.assert_allclose(special.log_ndtr(tf.constant(z)), exactly(log_ndtr, z), rtol=1e-12)


@pytest.mark.parametrize("function", [f for f, _, _ in FUNCTIONS.values()], ids=FUNCTIONS)
def test_nan_stays_nan(function: Callable[[tf.Tensor], tf.Tensor]) -> None:
    assert np.isnan(function(tf.constant(np.nan, tf.float64)))


# ---- the likelihood ----


@pytest.mark.parametrize(("dtype", "largest"), [(np.float64, 695.0), (np.float32, 86.0)])
def test_c_is_positive_finite_and_back(dtype: type, largest: float) -> None:
    """
    This holds for any f, with c = 1 at the prior; the tilt is limited where e^η would overflow.
    """
    probit, tilt = likelihoods.Probit(), np.linspace(-largest, largest, 101).astype(dtype)
    certain = tf.constant([1.0], dtype)
    c = probit.aux_full_conditional_c(tf.constant(tilt), certain).numpy()
    assert c.dtype == dtype
    assert np.all(np.diff(c) > 0.0)
    eps = np.finfo(dtype).eps
    np.testing.assert_allclose(np.log(c), tilt, rtol=8 * eps, atol=8 * eps)
    np.testing.assert_allclose(probit.tilted(c).loc, tilt, rtol=8 * eps, atol=8 * eps)
    assert c[50] == probit.prior_c
    beyond = probit.aux_full_conditional_c(tf.constant([-1e6, 1e6], dtype), certain).numpy()
    assert np.all(np.isfinite(beyond) & (beyond > 0.0))


def test_beyond_the_largest_tilt_the_bound_stays_a_bound() -> None:
    """At the limited c, the mean of ω is no longer optimal, but the bound is still valid."""
    Fmu, Fvar, Y = column(-1e4, 1e4), column(0.5, 0.5), column(1.0, 1.0)
    c = augmentation.aux_posterior_c(likelihoods.Probit(), Fmu, Fvar, Y)
    bound = augmentation.expected_aug_loglik(likelihoods.Probit(), c, Fmu, Fvar, Y)
    assert np.all(np.isfinite(bound))
    assert np.all(
        bound <= augmentation.optimal_expected_aug_loglik(likelihoods.Probit(), Fmu, Fvar, Y)
    )


def test_mean_and_kl_of_omega_far_into_both_tails() -> None:
    """KL = η ω̄ − log Z for E f y from −600 to 600."""
    tilt = np.concatenate([-np.geomspace(600, 1e-2, 25), np.geomspace(1e-2, 600, 25)])
    c = tf.exp(tf.constant(tilt))[:, None]
    eta = tf.math.log(c).numpy()[:, 0]
    omega = augmentation.aux_posterior_mean(likelihoods.Probit(), c)[:, 0]
    np.testing.assert_allclose(omega, exactly(mean, eta), rtol=1e-12)
    kl = augmentation.aux_kldivergence(likelihoods.Probit(), c)[:, 0]
    exact = exactly(lambda z: z * mean(z) - log_transform(z), eta)
    np.testing.assert_allclose(kl, exact, rtol=1e-12, atol=1e-15)
    assert np.all(kl > 0.0)


@pytest.mark.parametrize("label", [1.0, 0.0, -1.0])
def test_bound_and_step_at_a_certain_mistake(label: float) -> None:
    """f is −500 y: the site pulls it back, everything is finite, and the bound is exact."""
    y = 1.0 if label > 0 else -1.0
    Fmu, Fvar, Y = column(-500.0 * y), column(0.5), column(label)
    with tf.GradientTape() as tape:
        tape.watch(Fmu)
        bound = augmentation.optimal_expected_aug_loglik(likelihoods.Probit(), Fmu, Fvar, Y)
    exact = exactly(log_ndtr, np.array([-500.0]))[0] - 0.25
    np.testing.assert_allclose(bound, [[exact]], rtol=1e-14)
    np.testing.assert_allclose(
        tape.gradient(bound, Fmu), [[y * exactly(mills, np.array([-500.0]))[0]]], rtol=1e-14
    )
    c = augmentation.aux_posterior_c(likelihoods.Probit(), Fmu, Fvar, Y)
    potential, precision = augmentation.expected_auglik_potential_and_precision(
        likelihoods.Probit(), c, Y
    )
    expected = y * exactly(mean, np.array([-500.0]))[0]
    np.testing.assert_allclose(potential, [[expected]], rtol=1e-12)
    np.testing.assert_array_equal(precision, [[1.0]])


def test_the_prediction_is_in_closed_form() -> None:
    """It is Φ(m/√(1 + v)), even where 20 nodes would be inaccurate."""
    Fmu, Fvar = column(0.3, -2.0, 50.0), column(0.7, 1e4, 1e3)
    p, variance_of_y = likelihoods.Probit().predict_mean_and_var(Fmu, Fmu, Fvar)
    expected = exactly(lambda z: mp.ncdf(z), (Fmu / np.sqrt(1.0 + Fvar)).numpy()[:, 0])[:, None]
    np.testing.assert_allclose(p, expected, rtol=1e-14)
    np.testing.assert_allclose(variance_of_y, expected * (1 - expected), rtol=1e-12)


@pytest.mark.parametrize("c", [0.0, -1.0, np.nan, np.inf])
def test_bad_c(c: float) -> None:
    """0 is bad, too, since ω would be 0."""
    with pytest.raises(ValueError, match=r"c must be finite and positive\. Found: \["):
        likelihoods.Probit().tilted([1.0, c])
