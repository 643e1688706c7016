"""Cholesky factors, or NaN where there is none, without a word from TensorFlow."""

import os
import subprocess
import sys

import gpflow
import numpy as np
import pytest
import tensorflow as tf

from gpflow_aaci.algebra.cholesky import cholesky_or_nan

INDEFINITE = np.array([[1.0, 2.0], [2.0, 1.0]])


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_definite_matrix_has_its_factor_however_its_rows_are_scaled(dtype):
    rng = np.random.default_rng(0)
    A = rng.normal(size=(3, 6, 9))
    scales = np.logspace(-12, 12, 6)
    matrices = scales[:, None] * (A @ A.swapaxes(-1, -2)) * scales
    factor = cholesky_or_nan(tf.constant(matrices, dtype)).numpy()
    expected = np.linalg.cholesky(matrices)
    np.testing.assert_allclose(factor, expected, rtol=1e3 * np.finfo(dtype).eps)


@pytest.mark.parametrize(
    "matrix",
    [
        INDEFINITE,
        np.diag([1.0, 0.0]),
        np.diag([1.0, -1.0]),
        np.ones([2, 2]) * np.nan,
        np.array([[1e-300, 1e200], [1e200, 1.0]]),  # it overflows when it is scaled
        np.diag([1.0, np.inf]),
        np.stack([np.eye(2), INDEFINITE]),
    ],
)
def test_where_there_is_no_factor_it_is_nan(matrix):
    factor = tf.function(cholesky_or_nan)(tf.constant(matrix))
    assert np.isnan(factor).all()


def test_no_rows_have_an_empty_factor():
    assert cholesky_or_nan(tf.zeros([2, 0, 0], gpflow.default_float())).shape == (2, 0, 0)


FIT = """
import gpflow, sklearn.datasets, gpflow_aaci
X, y = sklearn.datasets.load_diabetes(return_X_y=True, scaled=False)
Z = gpflow_aaci.kmeans_plusplus(X, 50)
likelihood, kernel = gpflow.likelihoods.StudentT(), gpflow.kernels.SquaredExponential()
model = gpflow_aaci.AugmentedSVGP(kernel, likelihood, Z, num_data=len(X))
gpflow.set_trainable(model.inducing_variable, False)
print(gpflow_aaci.fit(model, (X, y[:, None] - y.mean()), progress=False))
"""


@pytest.mark.slow
def test_a_fit_on_raw_columns_converges_without_a_line_of_tensorflows():
    environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "0"}
    run = subprocess.run(
        [sys.executable, "-c", FIT], env=environment, capture_output=True, text=True, check=True
    )
    assert "converged after" in run.stdout
    assert "Cholesky" not in run.stderr
    assert "NaN" not in run.stderr
