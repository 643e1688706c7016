"""log φ and its derivatives, against mpmath."""

from collections.abc import Iterator

import gpflow
import mpmath as mp
import numpy as np
import pytest
import tensorflow as tf
from cases import CASES, Case, case_id
from gpflow.base import AnyNDArray

every_case = pytest.mark.parametrize("case", CASES, ids=case_id)

# r at every third decade, and densely where formulas change.
EXTREME = np.concatenate([np.logspace(-300, 12, 105), np.logspace(-3, 3, 121)])


@pytest.fixture
def float32() -> Iterator[None]:
    with gpflow.config.as_context(gpflow.config.Config(float=np.float32)):
        yield


def exact_derivatives(case: Case, r: AnyNDArray, order: int, dps: int) -> list[mp.mpf]:
    """The derivatives of log φ of the given order, by mpmath."""
    with mp.workdps(dps):
        return [
            mp.diff(lambda x: mp.log(case.phi(x)), mp.mpf(float(x)), order, relative=True)
            for x in r
        ]


def worst_relative_error(actual: AnyNDArray, exact: list[mp.mpf]) -> float:
    assert np.all(np.isfinite(actual))
    return max(float(abs((mp.mpf(float(a)) - e) / e)) for a, e in zip(actual, exact, strict=True))


def log_phi_derivative(case: Case, r: AnyNDArray, order: int) -> AnyNDArray:
    """A derivative by nested tapes; TensorFlow's None for a constant becomes 0."""
    likelihood, x = case.make(), tf.constant(r)

    def derivative(k: int) -> tf.Tensor:
        if k == 0:
            return likelihood.log_phi(x)
        with tf.GradientTape() as tape:
            tape.watch(x)
            lower = derivative(k - 1)
        gradient = tape.gradient(lower, x)
        return tf.zeros_like(x) if gradient is None else gradient

    return derivative(order).numpy()


@pytest.mark.briefly("BayesianSVM")
@every_case
def test_log_phi_is_exact_over_three_hundred_decades(case: Case) -> None:
    actual = case.make().log_phi(tf.constant(EXTREME)).numpy()
    # 1 − φ is as small as 1e-300, so more digits than that are needed.
    assert worst_relative_error(actual, exact_derivatives(case, EXTREME, 0, dps=700)) < 1e-12


@pytest.mark.briefly("Logistic")
@pytest.mark.by_default("Laplace", "Matern52", "Logistic")
@every_case
def test_omega_mean_is_exact_over_three_hundred_decades(case: Case) -> None:
    """ω̄ = −d log φ/dr is computed by automatic differentiation."""
    actual = -case.make().omega_mean(tf.constant(EXTREME)).numpy()
    assert worst_relative_error(actual, exact_derivatives(case, EXTREME, 1, dps=700)) < 1e-12


@every_case
@pytest.mark.parametrize("order", [2, 3, 4])
def test_higher_derivatives_are_exact(case: Case, order: int) -> None:
    """The cumulants of ω are computed by nested tapes."""
    r = np.concatenate([np.logspace(-6, 6, 25), np.logspace(-1.5, 1.5, 31)])
    actual = log_phi_derivative(case, r, order)
    if case.name.startswith("Gaussian"):  # log φ is linear
        np.testing.assert_array_equal(actual, 0.0)
    else:
        assert worst_relative_error(actual, exact_derivatives(case, r, order, dps=60)) < 1e-8


@every_case
def test_the_same_in_float32(case: Case, float32: None) -> None:
    """log φ and ω̄ are right to 1e-5 for r from 1e-30 to 1e12, and have that dtype."""
    r = np.concatenate([np.logspace(-30, 12, 43), np.logspace(-2, 2, 41)]).astype(np.float32)
    likelihood = case.make()
    log_phi, omega_mean = likelihood.log_phi(tf.constant(r)), likelihood.omega_mean(r)
    assert log_phi.dtype == omega_mean.dtype == tf.float32
    assert worst_relative_error(log_phi.numpy(), exact_derivatives(case, r, 0, dps=100)) < 1e-5
    assert worst_relative_error(-omega_mean.numpy(), exact_derivatives(case, r, 1, dps=100)) < 1e-5


@every_case
def test_complex_argument_with_positive_real_part(case: Case) -> None:
    """exp(log φ(z)) is compared, which does not depend on the branch of the logarithm."""
    z = [0.3 + 2j, 1e-3 + 1e-3j, 5 - 30j, 1e-8 + 10j, 40 + 300j, 2.0 + 0.9j, 1 + 1e-9j, 70 - 0.2j]
    log_phi = case.make().log_phi(tf.constant(z, tf.complex128)).numpy()
    for point, value in zip(z, log_phi, strict=True):
        exact = case.phi(mp.mpc(point))
        assert abs(mp.exp(mp.mpc(complex(value))) / exact - 1) < 1e-10


@every_case
def test_real_and_complex_agree_on_the_real_axis(case: Case) -> None:
    r = np.logspace(-8, 6, 43)
    likelihood = case.make()
    on_the_axis = likelihood.log_phi(tf.complex(tf.constant(r), tf.zeros_like(r))).numpy()
    np.testing.assert_allclose(on_the_axis.real, likelihood.log_phi(tf.constant(r)), rtol=1e-12)
    np.testing.assert_array_equal(on_the_axis.imag, 0.0)


@every_case
def test_phi_is_one_at_zero(case: Case) -> None:
    assert float(case.make().log_phi(tf.constant(0.0, tf.float64))) == 0.0


@every_case
def test_autodiff_in_the_complex_plane(case: Case) -> None:
    """TensorFlow's gradient of an analytic function is the conjugate of its derivative."""
    z = tf.constant([0.3 + 2j, 5 - 3j, 40 + 300j, 1e-3 + 1e-3j], tf.complex128)
    with tf.GradientTape() as tape:
        tape.watch(z)
        log_phi = case.make().log_phi(z)
    exact = [
        complex(mp.diff(lambda x: mp.log(case.phi(x)), mp.mpc(complex(point)))).conjugate()
        for point in z.numpy()
    ]
    np.testing.assert_allclose(tape.gradient(log_phi, z), exact, rtol=1e-9)
