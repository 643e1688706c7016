"""Both rules of inversion, against laws with known cdf, each where it is used."""

import numpy as np
import pytest
import scipy.stats
import tensorflow as tf

from gpflow_aaci.inverse_laplace import invert

P = np.array([1e-6, 1e-4, 1e-3, 0.01, 0.1, 0.5, 0.9, 0.99, 0.999, 1 - 1e-4, 1 - 1e-6])


@pytest.mark.parametrize("cv", [0.01, 0.1, 0.199, 0.201, 0.25, 0.5, 1.0, 3.0, 30.0])
def test_inverse_gaussian_of_every_width(cv: float) -> None:
    """Mean 1, coefficient of variation cv: log E e^{−sω} = (1 − √(1 + 2cv²s))/cv²."""
    law = scipy.stats.invgauss(cv**2, scale=1.0 / cv**2)
    x = tf.constant(law.ppf(P))
    inverse = invert(
        lambda s: (1.0 - tf.sqrt(1.0 + 2.0 * cv**2 * s)) / cv**2,
        x,
        tf.ones_like(x),
        cv * tf.ones_like(x),
    )
    np.testing.assert_allclose(inverse.cdf, law.cdf(x), rtol=0, atol=2e-8)
    np.testing.assert_allclose(inverse.survival, law.sf(x), rtol=0, atol=2e-8)
    np.testing.assert_allclose(x * inverse.density, x * law.pdf(x), rtol=0, atol=1e-5)
    # The error estimate must not be too small, nor so large that the result is refused.
    assert np.all(inverse.error < 1e-6)
    # d log f/dx = −3/2x − (1 − 1/x²)/2cv²
    log_slope = -1.5 / x - (1.0 - 1.0 / x**2) / (2.0 * cv**2)
    middle = slice(3, 8)
    np.testing.assert_allclose(
        (inverse.slope / inverse.density)[middle], log_slope[middle], rtol=1e-3, atol=1e-3 / cv
    )


def test_far_outside_a_narrow_law() -> None:
    x = tf.constant([1e-6, 0.3, 3.0, 1e6], tf.float64)
    inverse = invert(lambda s: -400.0 * tf.math.log1p(s / 400.0), x, tf.ones_like(x), 0.05 + 0 * x)
    np.testing.assert_array_equal(inverse.cdf, [0, 0, 1, 1])
    np.testing.assert_array_equal(inverse.survival, [1, 1, 0, 0])
    np.testing.assert_array_equal(inverse.density, [0, 0, 0, 0])


def test_the_error_of_a_law_without_a_density_is_seen() -> None:
    """For atoms at 1 and 3, neither rule works at any x near them."""
    x = tf.constant([0.9, 1.0, 1.1, 2.9, 3.1], tf.float64)

    def log_transform(s: tf.Tensor) -> tf.Tensor:
        return tf.math.log(0.5 * tf.exp(-s) + 0.5 * tf.exp(-3.0 * s))

    inverse = invert(log_transform, x, 2.0 + 0.0 * x, 1.0 + 0.0 * x)
    assert np.all(inverse.error > 1e-6)
