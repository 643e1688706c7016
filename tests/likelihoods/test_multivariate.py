"""MultivariateStudentT: its integrals, and its equality with StudentT for one output."""

import gpflow
import numpy as np
import pytest
import scipy.stats
import tensorflow as tf
from gpflow.base import AnyNDArray
from scipy.special import logsumexp

from gpflow_aaci.likelihoods import MultivariateStudentT, StudentT


def fine_rule(mean: float, sd: float, centre: float) -> tuple[AnyNDArray, AnyNDArray]:
    """
    Nodes and weights for N(mean, sd²): Gauss-Legendre on panels that halve towards ``centre``.
    """
    halving = 2.0 ** np.arange(-20.0, 40.0) * 1e-3 * sd
    edges = np.concatenate([mean + sd * np.arange(-9, 10), centre - halving, centre + halving])
    edges = np.unique(np.clip(edges, mean - 9.0 * sd, mean + 9.0 * sd))
    x, w = np.polynomial.legendre.leggauss(12)
    middle, half = (edges[1:] + edges[:-1]) / 2.0, np.diff(edges) / 2.0
    f = (middle[:, None] + half[:, None] * x).ravel()
    weight = (half[:, None] * w).ravel() * scipy.stats.norm.pdf(f, mean, sd)
    return f, weight / weight.sum()


@pytest.mark.parametrize("df", [1.5, 4.0, 60.0])
@pytest.mark.parametrize("distance", [0.1, 30.0])
@pytest.mark.parametrize("sds", [(1e-3, 1e-3), (1.0, 0.3), (1e3, 1e3), (1e-2, 1e2)])
def test_integrals_against_nested_quadrature(
    df: float, distance: float, sds: tuple[float, float]
) -> None:
    """E log p(y|f) and log E p(y|f) for two outputs; q(f) may be narrow or wide."""
    scale, mean = 0.3, np.array([0.7, -0.2])
    y, sd = mean + scale * distance * np.array([1.0, -0.6]), scale * np.array(sds)
    (f_0, w_0), (f_1, w_1) = (fine_rule(*of_one) for of_one in zip(mean, sd, y, strict=True))
    squared = np.square(f_0 - y[0])[:, None] + np.square(f_1 - y[1])
    at_centre = scipy.stats.multivariate_t.logpdf([0.0, 0.0], shape=scale**2 * np.eye(2), df=df)
    log_p = at_centre - (df + 2.0) / 2.0 * np.log1p(squared / (df * scale**2))
    weights = w_0[:, None] * w_1
    X, Fmu, Fvar, Y = (tf.constant(part[None]) for part in (mean, mean, sd**2, y))
    likelihood = MultivariateStudentT(scale, df, 2)
    found = likelihood.variational_expectations(X, Fmu, Fvar, Y)
    np.testing.assert_allclose(found, [np.sum(weights * log_p)], rtol=1e-9, atol=1e-9)
    found = likelihood.predict_log_density(X, Fmu, Fvar, Y)
    np.testing.assert_allclose(found, [logsumexp(log_p, b=weights)], rtol=1e-9, atol=1e-9)


def test_one_output_is_student_t() -> None:
    """StudentT's own E log p(y|f) comes from a rule with an error of 1e-7."""
    rng = np.random.default_rng(0)
    ours, plain = MultivariateStudentT(0.6, 4.3, 1), StudentT(0.6, 4.3)
    shape = (200, 1)
    X, Fmu = (tf.constant(rng.normal(size=shape)) for _ in range(2))
    Fvar = tf.constant(10.0 ** rng.uniform(-6.0, 6.0, size=shape))
    Y = tf.constant(10.0 ** rng.uniform(-2.0, 3.0, size=shape))
    at = (X, Fmu, Fvar, Y)
    for name in ("bound", "predict_log_density"):
        found, expected = (getattr(each, name)(*at) for each in (ours, plain))
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)
    for found, expected in zip(ours.bound_slopes(*at), plain.bound_slopes(*at), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12)
    np.testing.assert_allclose(ours.log_prob(X, Fmu, Y), plain.log_prob(X, Fmu, Y), rtol=1e-12)
    found, expected = (each.variational_expectations(*at) for each in (ours, plain))
    np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-7)
    for name in ("full_conditional", "predict_mean_and_var"):
        at = (X, Fmu, Y) if name == "full_conditional" else (X, Fmu, Fvar)
        found, expected = (getattr(each, name)(*at) for each in (ours, plain))
        if name == "full_conditional":
            found, expected = ([law.concentration, law.rate] for law in (found, expected))
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_where_f_is_known_nothing_is_lost(dtype: type) -> None:
    """At Fvar = 0, E log p(y|f) equals the bound, with its slopes, even for a distant y."""
    Fmu, zero = tf.zeros([3, 2], dtype), tf.zeros([3, 2], dtype)
    Y = tf.constant([[0.0, 0.0], [0.3, -2.0], [1e6, 1e3]], dtype)
    with gpflow.config.as_context(gpflow.config.Config(float=dtype)):
        likelihood = MultivariateStudentT(0.5, 3.0, 2)
        with tf.GradientTape() as tape:
            tape.watch([Fmu, zero])
            found = likelihood.variational_expectations(Fmu, Fmu, zero, Y)
        tolerance = 1e-12 if dtype is np.float64 else 1e-4
        bound = likelihood.bound(Fmu, Fmu, zero, Y)
        np.testing.assert_allclose(found, bound, rtol=tolerance)
        in_mean, in_variance = tape.gradient(found, [Fmu, zero])
        expected, _ = likelihood.bound_slopes(Fmu, Fmu, zero, Y)
        np.testing.assert_allclose(in_mean, expected, rtol=tolerance, atol=tolerance)
        assert np.all(np.isfinite(in_variance))


def test_one_outlier_among_the_columns_frees_the_whole_row() -> None:
    """Its site is weak in every column; with independent columns it is weak only in its own."""
    Fmu, Y = np.zeros((1, 2)), np.array([[0.1, 30.0]])
    at = [tf.constant(part) for part in (Fmu, Fmu, np.ones((1, 2)), Y)]
    _, elliptical = MultivariateStudentT(0.5, 3.0, 2).bound_slopes(*at)
    _, independent = StudentT(0.5, 3.0).bound_slopes(*at)
    assert elliptical[0, 0] == elliptical[0, 1]
    assert abs(elliptical[0, 0]) < 0.01 * abs(independent[0, 0])


def test_moments_that_do_not_exist() -> None:
    """For ν ≤ 1 there is no mean, for ν ≤ 2 the variance is infinite; df > 1 stays above 1."""
    F, Fvar = np.zeros((1, 2)), np.ones((1, 2))
    mean, variance = MultivariateStudentT(0.5, 0.8, 2).predict_mean_and_var(F, F, Fvar)
    assert np.all(np.isnan(mean))
    mean, variance = MultivariateStudentT(0.5, 1.5, 2).predict_mean_and_var(F, F, Fvar)
    np.testing.assert_array_equal(mean, F)
    assert np.all(np.isinf(variance))
    _, variance = MultivariateStudentT(0.5, 4.0, 2).predict_mean_and_var(F, F, Fvar)
    np.testing.assert_allclose(variance, 1.0 + 0.25 * 4.0 / 2.0)
    df = MultivariateStudentT(0.5, 3.0, 2).df
    df.unconstrained_variable.assign(-1e3)
    assert df.numpy() > 1.0
