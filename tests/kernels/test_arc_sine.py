"""ArcSine: the covariance of a wide network of erf units, by quadrature over its weights."""

import gpflow
import numpy as np
import pytest
import scipy.special
import tensorflow as tf

from gpflow_aaci import AugmentedVGP, fit, likelihoods
from gpflow_aaci.kernels import ArcSine

RNG = np.random.default_rng(1)
X, X_NEW = RNG.normal(size=(5, 2)), RNG.normal(size=(2, 3, 2))
WEIGHTS, BIAS = np.array([0.5, 3.0]), 0.8


def of_network(x: np.ndarray, other: np.ndarray) -> float:
    """E erf(a) erf(b) over the units' inputs (a, b) at the two x, by 80 x 80 Hermite nodes."""
    rows = np.array([[np.sqrt(BIAS), *np.sqrt(WEIGHTS) * each] for each in (x, other)])
    root = np.linalg.cholesky(rows @ rows.T + 1e-15 * np.eye(2))
    z, w = np.polynomial.hermite_e.hermegauss(80)
    w = w / w.sum()
    a = root[0, 0] * z[:, None] + 0.0 * z
    b = root[1, 0] * z[:, None] + root[1, 1] * z
    return float(w @ (scipy.special.erf(a) * scipy.special.erf(b)) @ w)


def test_it_is_the_covariance_of_a_network_of_infinitely_many_units() -> None:
    kernel = ArcSine(1.7, WEIGHTS, BIAS)
    found = kernel(X, X_NEW)
    assert found.shape == (5, 2, 3)
    for i in range(5):
        for place in np.ndindex(2, 3):
            expected = 1.7 * of_network(X[i], X_NEW[place])
            np.testing.assert_allclose(found[i][place], expected, atol=1e-6)
    np.testing.assert_allclose(kernel(X), kernel(X, X), rtol=1e-12)
    np.testing.assert_allclose(kernel(X, full_cov=False), tf.linalg.diag_part(kernel(X)), rtol=1e-6)
    np.testing.assert_allclose(kernel(X_NEW)[1], kernel(X_NEW[1]), rtol=1e-12)


def test_huge_weights_leave_it_finite_with_finite_gradients() -> None:
    kernel = ArcSine(1.0, 1e20, 1.0)
    with tf.GradientTape() as tape:
        value = tf.reduce_sum(kernel(X))
    assert np.isfinite(value)
    assert all(np.isfinite(g) for g in tape.gradient(value, kernel.trainable_variables))


@pytest.mark.slow
def test_a_step_is_fitted_better_than_by_a_stationary_kernel() -> None:
    x = np.linspace(-2.0, 2.0, 60)[:, None]
    y = np.where(x > 0.0, 1.0, -1.0) + 0.1 * np.random.default_rng(2).normal(size=x.shape)
    elbos = []
    for kernel in (ArcSine(weight_variances=10.0), gpflow.kernels.Matern52()):
        model = AugmentedVGP((x, y), kernel, likelihoods.Gaussian())
        elbos.append(fit(model, progress=False).elbo)
    assert elbos[0] > elbos[1] + 5.0
