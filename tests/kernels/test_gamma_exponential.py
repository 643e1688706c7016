"""GammaExponential: the kernels between which it lies, and its gradients where inputs coincide."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.kernels import Kernel, Matern12, SquaredExponential

from gpflow_aaci.kernels import GammaExponential

RNG = np.random.default_rng(0)
X, X_NEW = RNG.normal(size=(6, 2)), RNG.normal(size=(4, 2))
LENGTHSCALES = np.array([0.7, 1.9])


@pytest.mark.parametrize(
    ("gamma", "same"),
    [
        (1.0, Matern12(1.3, LENGTHSCALES)),
        (2.0, SquaredExponential(1.3, LENGTHSCALES / np.sqrt(2.0))),
    ],
)
def test_at_the_ends_it_is_a_kernel_of_gpflow(gamma: float, same: Kernel) -> None:
    kernel = GammaExponential(1.3, LENGTHSCALES, gamma)
    np.testing.assert_allclose(kernel(X, X_NEW), same(X, X_NEW), atol=1e-6)
    np.testing.assert_allclose(kernel(X), same(X), atol=1e-6)
    np.testing.assert_allclose(kernel(X, full_cov=False), same(X, full_cov=False))


def test_gradients_are_differences_of_values_with_a_row_beside_itself() -> None:
    weights = RNG.normal(size=(len(X), len(X)))
    kernel = GammaExponential(1.3, LENGTHSCALES, 0.8)

    def value() -> tf.Tensor:
        return tf.reduce_sum(weights * kernel(X))

    for parameter in kernel.trainable_parameters:
        variable = parameter.unconstrained_variable
        with tf.GradientTape() as tape:
            of_value = value()
        gradient, step = tape.gradient(of_value, variable).numpy(), 1e-6
        start = np.array(variable.numpy())
        for place in np.ndindex(start.shape):
            ends = []
            for sign in (1.0, -1.0):
                moved = start.copy()
                moved[place] += sign * step
                variable.assign(moved)
                ends.append(float(value()))
            variable.assign(start)
            np.testing.assert_allclose(
                gradient[place], (ends[0] - ends[1]) / (2.0 * step), rtol=1e-5
            )


def test_gamma_stays_in_its_range_and_bad_ones_are_refused() -> None:
    kernel = GammaExponential(gamma=2.0)
    gpflow.optimizers.Scipy().minimize(
        lambda: -kernel.gamma, [kernel.gamma.unconstrained_variable], options={"maxiter": 5}
    )
    assert 0.0 < kernel.gamma.numpy() <= 2.0
    for gamma in (0.0, 2.1, np.nan):
        with pytest.raises(ValueError, match=r"gamma .* above 0 and at most 2. Found: "):
            GammaExponential(gamma=gamma)
