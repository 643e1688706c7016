"""Densities, predictions and expectations, against SciPy and adaptive quadrature."""

import math
from collections.abc import Callable

import mpmath as mp
import numpy as np
import pytest
import scipy.special
import scipy.stats
import tensorflow as tf
from cases import (
    AUGMENTED,
    BINARY,
    CASES,
    CONTINUOUS,
    Case,
    LogDensity,
    asymmetric_laplace_log_density,
    case_id,
    column,
    generalized_gaussian_log_density,
    laplace_log_density,
    log_mean_exp,
    logistic_log_density,
    logistic_noise_log_density,
    matern_log_density,
    mean_of,
    normal_log_density,
    student_t_log_density,
)
from gpflow.likelihoods.base import QuadratureLikelihood

from gpflow_aaci import likelihoods
from gpflow_aaci.likelihoods import SuperGaussianLikelihood

every_case = pytest.mark.parametrize("case", AUGMENTED, ids=case_id)
every_binary_case = pytest.mark.parametrize("case", BINARY, ids=case_id)

# By name, functions of the scale: the likelihood, and log p(y|f).
OF_SCALE: dict[
    str,
    tuple[Callable[[float], SuperGaussianLikelihood], Callable[[float], LogDensity]],
] = {
    "Gaussian": (lambda s: likelihoods.Gaussian(scale=s), normal_log_density),
    "StudentT": (
        lambda s: likelihoods.StudentT(s, 4.3),
        lambda s: student_t_log_density(s, 4.3),
    ),
    "StudentT-heavy": (
        lambda s: likelihoods.StudentT(s, 0.8),
        lambda s: student_t_log_density(s, 0.8),
    ),
    "Laplace": (likelihoods.Laplace, laplace_log_density),
    "AsymmetricLaplace": (
        lambda s: likelihoods.AsymmetricLaplace(s, 0.2),
        lambda s: asymmetric_laplace_log_density(s, 0.2),
    ),
    **{
        f"GeneralizedGaussian-{p}": (
            lambda s, p=p: likelihoods.GeneralizedGaussian(s, p),
            lambda s, p=p: generalized_gaussian_log_density(s, p),
        )
        for p in (0.3, 0.6, 1.3, 1.9)
    },
    "LogisticNoise": (likelihoods.LogisticNoise, logistic_noise_log_density),
    "Matern72": (
        lambda s: likelihoods.Matern(3.5, s),
        lambda s: matern_log_density(s, 3.5),
    ),
    "Matern32": (likelihoods.Matern32, lambda s: matern_log_density(s, 1.5)),
    "Matern52": (likelihoods.Matern52, lambda s: matern_log_density(s, 2.5)),
}
every_scaled = pytest.mark.parametrize("name", OF_SCALE)

HEAVY = {"StudentT-heavy", "Cauchy"}  # y has no mean


def inputs(Y: tf.Tensor) -> tf.Tensor:
    """X, which no likelihood in these tests uses."""
    return tf.zeros([tf.shape(Y)[0], 1], tf.float64)


def p_of_plus_one(case: Case, f: float) -> float:
    """P(y = 1|f), normalised over both labels."""
    log_odds = case.log_density(1.0, f) - case.log_density(-1.0, f)
    return float(scipy.special.expit(log_odds))


# ---- densities ----


@every_case
def test_log_prob_is_the_textbook_density(case: Case) -> None:
    y = [1.0, -1.0] if case.is_binary else [0.3, -2.1]
    Y, F = np.meshgrid(y, [-30.0, -1.5, -1e-3, 0.0, 0.2, 0.9, 1.1, 4.0, 700.0, 1e5])
    expected = [case.log_density(*pair) for pair in zip(Y.ravel(), F.ravel(), strict=True)]
    Y, F = column(*Y.ravel()), column(*F.ravel())
    actual = case.make().log_prob(inputs(Y), F, Y)
    np.testing.assert_allclose(actual, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("likelihood", "density"),
    [
        (likelihoods.Gaussian(0.49), scipy.stats.norm(0.4, 0.7)),
        (likelihoods.Gaussian(scale=1.7), scipy.stats.norm(0.4, 1.7)),
        (likelihoods.StudentT(0.6, 4.3), scipy.stats.t(4.3, 0.4, 0.6)),
        (likelihoods.StudentT(2.0, 0.8), scipy.stats.t(0.8, 0.4, 2.0)),
        (likelihoods.Laplace(0.7), scipy.stats.laplace(0.4, 0.7)),
        (likelihoods.Cauchy(0.7), scipy.stats.cauchy(0.4, 0.7)),
        (likelihoods.LogisticNoise(0.7), scipy.stats.logistic(0.4, 0.7)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_log_prob_is_the_density_of_scipy(
    likelihood: SuperGaussianLikelihood, density: scipy.stats.rv_continuous
) -> None:
    Y = column(*np.linspace(-9.0, 9.0, 37))
    actual = likelihood.log_prob(inputs(Y), tf.fill(tf.shape(Y), tf.constant(0.4, tf.float64)), Y)
    np.testing.assert_allclose(actual, density.logpdf(Y[:, 0]), rtol=1e-12)


@every_case
def test_log_prob_at_zero_residual(case: Case) -> None:
    """The floor on c² changes the density by at most √eps over the scale, and never raises it."""
    Y = column(1.0)
    actual = float(case.make().log_prob(inputs(Y), Y, Y)[0])
    expected = case.log_density(1.0, 1.0)
    cost = 1e-5 if case.name == "GeneralizedGaussian-cusp" else 1e-7  # (√eps/s)^p
    assert expected - cost < actual < expected + 1e-13


@every_case
def test_log_prob_sums_over_outputs(case: Case) -> None:
    Y = tf.constant([[1.0, -1.0, 1.0]], tf.float64)
    F = tf.constant([[0.3, 2.0, -4.0]], tf.float64)
    expected = sum(case.log_density(y, f) for y, f in [(1, 0.3), (-1, 2.0), (1, -4.0)])
    np.testing.assert_allclose(case.make().log_prob(inputs(Y), F, Y), [expected], rtol=1e-12)


# ---- predictive densities ----


@every_scaled
@pytest.mark.parametrize("ratio", [1e-3, 1e-2, 0.1, 1.0, 10.0, 1e3])
@pytest.mark.by_default("0.001", "1000.0")
def test_predict_log_density_at_every_scale_against_sd(name: str, ratio: float) -> None:
    """
    log ∫ p(y|f) q(f) df is right to 1e-6 for scale/sd(f) from 1e-3 to 1e3, with outliers, too.
    """
    make, log_density_of = OF_SCALE[name]
    mean, sd = 0.37, 0.6
    scale = ratio * sd
    log_density = log_density_of(scale)
    ys = [mean + k * max(scale, sd) for k in (0.0, 0.5, 3.0, -8.0)]
    expected = [
        log_mean_exp(lambda f, y=y: log_density(y, f), mean, sd, centres=[y], width=scale)
        for y in ys
    ]
    Y = column(*ys)
    Fmu = tf.fill(tf.shape(Y), tf.constant(mean, tf.float64))
    Fvar = tf.fill(tf.shape(Y), tf.constant(sd**2, tf.float64))
    actual = make(scale).predict_log_density(inputs(Y), Fmu, Fvar, Y)
    np.testing.assert_allclose(actual, expected, rtol=0.0, atol=1e-6)


@pytest.mark.by_default("Logistic", "BayesianSVM")
@every_binary_case
@pytest.mark.parametrize("sd", [1e-3, 0.1, 1.0, 10.0, 1e3])
def test_predict_log_density_of_a_class(case: Case, sd: float) -> None:
    """It is log E P(y|f), where P is normalised over the labels inside the expectation."""
    means = [0.0, 0.5, -0.5, 1.0, 3.0 * sd, -3.0 * sd, 1.0 - 0.3 * sd, -2.0 - sd]
    pairs = [(y, mean) for y in (1.0, -1.0) for mean in means]

    def log_p(y: float, f: float) -> float:
        return logistic_log_density(1.0, case.log_density(y, f) - case.log_density(-y, f))

    expected = [
        log_mean_exp(lambda f, y=y: log_p(y, f), mean, sd, centres=[-1.0, 0.0, 1.0])
        for y, mean in pairs
    ]
    Y, Fmu = column(*[y for y, _ in pairs]), column(*[mean for _, mean in pairs])
    Fvar = tf.fill(tf.shape(Y), tf.constant(sd**2, tf.float64))
    actual = case.make().predict_log_density(inputs(Y), Fmu, Fvar, Y)
    np.testing.assert_allclose(actual, expected, rtol=0.0, atol=1e-6)


@pytest.mark.parametrize("ratio", [1e-3, 0.1, 1.0, 30.0])
def test_cauchy_predictive_is_the_voigt_profile(ratio: float) -> None:
    """StudentT with one degree of freedom has this closed form."""
    Y = column(0.0, 0.7, 5.0, 200.0)
    actual = likelihoods.Cauchy(ratio).predict_log_density(
        inputs(Y), tf.zeros_like(Y), tf.ones_like(Y), Y
    )
    expected = np.log(scipy.special.voigt_profile(Y[:, 0].numpy(), 1.0, ratio))
    np.testing.assert_allclose(actual, expected, atol=1e-6)


def test_where_gauss_hermite_is_wrong() -> None:
    """For Laplace with scale/sd = 0.1, 20 nodes give −0.64 one sd out, where −1.42 is right."""
    likelihood = likelihoods.Laplace(0.1)
    Y = column(0.0, 1.0, -2.7)
    Fmu, Fvar = tf.zeros_like(Y), tf.ones_like(Y)
    log_density = laplace_log_density(0.1)
    exact = [
        log_mean_exp(lambda f, y=y: log_density(y, f), 0.0, 1.0, centres=[y], width=0.1)
        for y in Y[:, 0].numpy()
    ]
    assert exact[1] == pytest.approx(-1.42, abs=0.005)
    stock = QuadratureLikelihood._predict_log_density(likelihood, inputs(Y), Fmu, Fvar, Y)
    assert float(stock[1]) == pytest.approx(-0.64, abs=0.005)
    assert np.min(np.abs(stock - exact)) > 0.5
    ours = likelihood.predict_log_density(inputs(Y), Fmu, Fvar, Y)
    np.testing.assert_allclose(ours, exact, rtol=0.0, atol=1e-9)


@every_case
@pytest.mark.parametrize("variance", [0.0, 1e-12])
def test_predict_log_density_without_uncertainty_is_log_prob(case: Case, variance: float) -> None:
    """For a class it is the normalised log P(y|f)."""
    Y, F = column(1.0, -1.0, 1.0), column(0.2, 0.4, -7.0)
    Fvar = tf.fill(tf.shape(F), tf.constant(variance, tf.float64))
    actual = case.make().predict_log_density(inputs(Y), F, Fvar, Y)
    pairs = [(1.0, 0.2), (-1.0, 0.4), (1.0, -7.0)]
    if case.is_binary:
        expected = [math.log(p_of_plus_one(case, y * f)) for y, f in pairs]
    else:
        expected = [case.log_density(y, f) for y, f in pairs]
    np.testing.assert_allclose(actual, expected, rtol=1e-9)


# ---- moments ----


@pytest.mark.parametrize(
    ("df", "noise_variance"), [(4.3, 0.36 * 4.3 / 2.3), (2.0, np.inf), (1.4, np.inf)]
)
def test_student_t_variance(df: float, noise_variance: float) -> None:
    """It exceeds Var f by σ²ν/(ν − 2), and is infinite for ν ≤ 2."""
    Fmu, Fvar = column(0.3, -4.0), column(0.5, 2.0)
    mean, variance = likelihoods.StudentT(0.6, df).predict_mean_and_var(inputs(Fmu), Fmu, Fvar)
    np.testing.assert_allclose(mean, Fmu)
    np.testing.assert_allclose(variance, Fvar + noise_variance, rtol=1e-12)


@pytest.mark.parametrize("df", [1.0, 0.8])
def test_student_t_has_no_mean_below_one_degree_of_freedom(df: float) -> None:
    Fmu, Fvar = column(0.3, -4.0), column(0.5, 2.0)
    mean, variance = likelihoods.StudentT(0.6, df).predict_mean_and_var(inputs(Fmu), Fmu, Fvar)
    assert np.all(np.isnan(mean))
    assert np.all(np.isinf(variance))


@pytest.mark.parametrize("case", [c for c in CONTINUOUS if c.name not in HEAVY], ids=case_id)
def test_moments_of_y_are_those_of_the_density(case: Case) -> None:
    """E[y|f] and Var[y|f] are integrals of p(y|f), and the predictive variance adds Var f."""
    edges = [0, 0.3, 1, 3, 10, 30, 100, 1e3, 1e4, 1e6, 1e9]

    def side(power: int, sign: float) -> mp.mpf:
        def integrand(y: mp.mpf) -> mp.mpf:
            return y**power * mp.exp(case.log_density(sign * float(y), 0.0))

        with mp.workdps(20):
            return mp.quad(integrand, edges)

    shift = float(side(1, 1.0) - side(1, -1.0))
    noise_variance = float(side(2, 1.0) + side(2, -1.0)) - shift**2
    F, Fvar = column(0.3, -4.0), column(0.5, 2.0)
    likelihood = case.make()
    if case.name != "AsymmetricLaplace":
        np.testing.assert_array_equal(likelihood.conditional_mean(inputs(F), F), F)
    np.testing.assert_allclose(likelihood.conditional_mean(inputs(F), F), F + shift, rtol=1e-7)
    variance = likelihood.conditional_variance(inputs(F), F)
    np.testing.assert_allclose(variance, noise_variance * np.ones([2, 1]), rtol=1e-7)
    mean, variance = likelihood.predict_mean_and_var(inputs(F), F, Fvar)
    np.testing.assert_array_equal(mean, likelihood.conditional_mean(inputs(F), F))
    np.testing.assert_allclose(variance, Fvar + noise_variance, rtol=1e-7)


@pytest.mark.briefly("0.1-Logistic", "1.0-Logistic", "30.0-Logistic", "30.0-BayesianSVM")
@pytest.mark.by_default("30.0", "Logistic")
@every_binary_case
@pytest.mark.parametrize("sd", [0.1, 1.0, 30.0])
def test_binary_prediction_is_the_probability_of_plus_one(case: Case, sd: float) -> None:
    """It is E P(y = 1|f), with P normalised inside the expectation; the variance is p(1 − p)."""
    means = [0.0, 0.5, -0.5, 3.0 * sd, -2.0]
    p = np.array(
        [
            mean_of(lambda f: p_of_plus_one(case, f), mean, sd, centres=[-1.0, 0.0, 1.0])
            for mean in means
        ]
    )[:, None]
    Fmu = column(*means)
    Fvar = tf.fill(tf.shape(Fmu), tf.constant(sd**2, tf.float64))
    mean, variance = case.make().predict_mean_and_var(inputs(Fmu), Fmu, Fvar)
    np.testing.assert_allclose(mean, p, atol=1e-9)
    np.testing.assert_allclose(variance, p * (1 - p), atol=1e-9)


@every_binary_case
def test_conditional_moments_of_a_class(case: Case) -> None:
    """They are P(y = 1|f) and p(1 − p), which is not 0 where p rounds to 1."""
    F = column(-45.0, -1.0, 0.0, 0.3, 2.0, 45.0)
    likelihood = case.make()
    p = np.array([[p_of_plus_one(case, float(f))] for f in F[:, 0]])
    q = np.array([[p_of_plus_one(case, -float(f))] for f in F[:, 0]])
    np.testing.assert_allclose(likelihood.conditional_mean(inputs(F), F), p, rtol=1e-12)
    np.testing.assert_allclose(likelihood.conditional_variance(inputs(F), F), p * q, rtol=1e-12)


@every_binary_case
@pytest.mark.parametrize("method", ["log_prob", "predict_log_density", "variational_expectations"])
def test_zero_and_minus_one_are_the_same_label(case: Case, method: str) -> None:
    likelihood = case.make()
    F = column(0.4, -1.3, 5.0)
    moments = [F] if method == "log_prob" else [F, tf.ones_like(F)]

    def of_label(label: float) -> tf.Tensor:
        Y = tf.fill(tf.shape(F), tf.constant(label, tf.float64))
        return getattr(likelihood, method)(inputs(F), *moments, Y)

    np.testing.assert_array_equal(of_label(0.0), of_label(-1.0))
    assert np.all(of_label(0.0) != of_label(1.0))


@every_binary_case
def test_class_probabilities_sum_to_one(case: Case) -> None:
    Fmu = column(0.0, 0.4, -1.3, 5.0, 200.0)
    Fvar = column(1.0, 1e-4, 30.0, 4.0, 1e4)
    total = sum(
        np.exp(case.make().predict_log_density(inputs(Fmu), Fmu, Fvar, label * tf.ones_like(Fmu)))
        for label in (0.0, 1.0)
    )
    np.testing.assert_allclose(total, 1.0, rtol=1e-9)


# ---- expectations of log p ----

CLOSED = ("Gaussian", "Gaussian-scale", "Laplace", "AsymmetricLaplace", "BayesianSVM")


@pytest.mark.parametrize(
    "case",
    [c for c in CASES if c.name in CLOSED],
    ids=case_id,
)
@pytest.mark.parametrize("sd", [1e-3, 0.1, 1.0, 50.0])
def test_closed_form_variational_expectations(case: Case, sd: float) -> None:
    """E log p(y|f) is right to 1e-10, on the kink and far from it."""
    y = 1.0
    means = [y, y + 0.5 * sd, y - 3.0 * sd, y + 9.0 * sd, -2.0, 40.0]
    expected = [mean_of(lambda f: case.log_density(y, f), m, sd, centres=[y]) for m in means]
    Fmu = column(*means)
    Fvar = tf.fill(tf.shape(Fmu), tf.constant(sd**2, tf.float64))
    actual = case.make().variational_expectations(inputs(Fmu), Fmu, Fvar, y * tf.ones_like(Fmu))
    np.testing.assert_allclose(actual, expected, rtol=1e-10, atol=1e-10)


@every_case
def test_variational_expectations_where_log_p_is_smooth_against_q(case: Case) -> None:
    """If q(f) is well inside one side of the likelihood, 20 nodes are enough."""
    y, sd = 1.0, 0.05
    means = [-0.4, 0.2, 2.5]
    expected = [mean_of(lambda f: case.log_density(y, f), m, sd, centres=[y]) for m in means]
    Fmu = column(*means)
    Fvar = tf.fill(tf.shape(Fmu), tf.constant(sd**2, tf.float64))
    actual = case.make().variational_expectations(inputs(Fmu), Fmu, Fvar, y * tf.ones_like(Fmu))
    np.testing.assert_allclose(actual, expected, rtol=1e-9)


@pytest.mark.by_default("StudentT", "Laplace", "Logistic")
@every_case
@pytest.mark.parametrize("method", ["variational_expectations", "predict_log_density"])
def test_no_nan_without_uncertainty_or_residual(case: Case, method: str) -> None:
    """Values and gradients in Fmu and Fvar are finite at y = f and at Fvar = 0."""
    residuals, variances = np.repeat([0.0, 1.5, -150.0], 3), np.tile([0.0, 1e-12, 1.0], 3)
    Fmu, Fvar = column(*(1.0 - residuals)), column(*variances)
    Y = tf.ones_like(Fmu)
    with tf.GradientTape() as tape:
        tape.watch([Fmu, Fvar])
        value = getattr(case.make(), method)(inputs(Y), Fmu, Fvar, Y)
    gradients = tape.gradient(value, [Fmu, Fvar])
    assert np.all(np.isfinite(value))
    assert np.all(np.isfinite(gradients)), f"gradients {[g.numpy() for g in gradients]}"


@every_case
def test_log_prob_has_a_finite_gradient_at_zero_residual(case: Case) -> None:
    F = column(1.0, -1.0)
    with tf.GradientTape() as tape:
        tape.watch(F)
        log_prob = case.make().log_prob(inputs(F), F, column(1.0, -1.0))
    assert np.all(np.isfinite(tape.gradient(log_prob, F)))


@every_case
@pytest.mark.parametrize("method", ["variational_expectations", "predict_log_density"])
def test_gradients_are_those_of_the_value(case: Case, method: str) -> None:
    """
    Newton steps on GPflow's ELBO need those in Fmu and Fvar; the oracle is central differences.
    """
    likelihood, Y = case.make(), column(1.0, 1.0, -1.0)
    # A mixture's quadrature jumps by 1e-8 when its nodes change.
    rtol = 1e-3 if case.name in ("NoiseMixture", "KernelNoise") else 1e-6

    def value(Fmu: tf.Tensor, Fvar: tf.Tensor) -> tf.Tensor:
        return getattr(likelihood, method)(inputs(Y), Fmu, Fvar, Y)

    Fmu, Fvar, step = column(0.4, -3.0, 0.9), column(0.3, 0.8, 1.5), 1e-5
    with tf.GradientTape() as tape:
        tape.watch([Fmu, Fvar])
        total = value(Fmu, Fvar)
    by_mean, by_variance = tape.gradient(total, [Fmu, Fvar])
    differences = (value(Fmu + step, Fvar) - value(Fmu - step, Fvar)) / (2 * step)
    np.testing.assert_allclose(by_mean[:, 0], differences, rtol=rtol, atol=rtol / 10.0)
    differences = (value(Fmu, Fvar + step) - value(Fmu, Fvar - step)) / (2 * step)
    np.testing.assert_allclose(by_variance[:, 0], differences, rtol=rtol, atol=rtol / 10.0)


@pytest.mark.briefly("Gaussian-scale", "Gaussian", "Laplace", "Matern32", "Matern52")
@pytest.mark.parametrize("case", CONTINUOUS, ids=case_id)
def test_the_parameters_of_a_likelihood_learn(case: Case) -> None:
    """Each parameter has a gradient through log p, which is right."""
    likelihood, Y = case.make(), column(1.0, -2.0)
    parameters = likelihood.trainable_parameters
    assert len(parameters) == case.trained
    for parameter in parameters:
        variable = parameter.unconstrained_variable

        def value() -> tf.Tensor:
            return tf.reduce_sum(likelihood.log_prob(inputs(Y), tf.zeros_like(Y), Y))

        with tf.GradientTape() as tape:
            total = value()
        gradient = float(tf.reduce_sum(tape.gradient(total, variable)))
        start, step = variable.numpy(), 1e-5
        variable.assign(start + step)
        above = float(value())
        variable.assign(start - step)
        below = float(value())
        assert gradient == pytest.approx((above - below) / (2 * step), rel=1e-6, abs=1e-8)


@pytest.mark.parametrize("name", ["Logistic", "Probit", "StudentT"])
def test_arrays_and_integer_labels_are_taken_as_gpflow_takes_them(name: str) -> None:
    likelihood = getattr(likelihoods, name)()
    weighted = likelihoods.Weighted(likelihood)
    X, Fmu, Fvar = np.zeros((3, 1)), np.array([[0.1], [-2.0], [1.0]]), np.ones((3, 1))
    for labels in (np.array([[0], [1], [1]]), np.array([[False], [True], [True]])):
        real = labels.astype(float)
        for method in (likelihood.predict_log_density, likelihood.variational_expectations):
            np.testing.assert_array_equal(
                method(X, Fmu, Fvar, labels), method(X, Fmu, Fvar, tf.constant(real))
            )
        np.testing.assert_array_equal(
            likelihood.log_prob(X, Fmu, labels), likelihood.log_prob(X, Fmu, real)
        )
        once = np.concatenate([labels, np.ones_like(labels)], 1)  # weights of 1
        for method in ("predict_log_density", "variational_expectations"):
            np.testing.assert_array_equal(
                getattr(weighted, method)(X, Fmu, Fvar, once),
                getattr(likelihood, method)(X, Fmu, Fvar, labels),
            )
    mean, _ = likelihood.predict_mean_and_var(X, Fmu, Fvar)
    assert mean.shape == (3, 1)
