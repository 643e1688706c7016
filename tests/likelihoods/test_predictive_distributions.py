"""Probabilities, quantiles and draws of y, against integrals of textbook densities."""

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import arviz
import gpflow
import mpmath
import numpy as np
import pytest
import scipy.integrate
import scipy.optimize
import scipy.stats
import tensorflow as tf
from cases import AUGMENTED, Case
from gpflow.base import AnyNDArray
from zoo import ZOO, Member

from gpflow_aaci import AugmentedSVGP, AugmentedVGP, likelihoods, sample_posterior
from gpflow_aaci.likelihoods import AugmentedLikelihood, SuperGaussianLikelihood
from gpflow_aaci.predictions import (
    predict_f_samples,
    predict_y_cdf,
    predict_y_quantile,
    predict_y_samples,
)
from gpflow_aaci.predictions import (
    y as predictions_of_y,
)

AnyCase = Case | Member
# test_coverage checks that these are all
ALL: list[AnyCase] = [*AUGMENTED, *(member for member in ZOO if member.has_law)]
X = np.array([[-0.7], [0.1], [0.8]])


@pytest.fixture(params=ALL, ids=[case.name for case in ALL])
def case(request: pytest.FixtureRequest) -> AnyCase:
    return request.param


def num_latents(case: AnyCase) -> int:
    return getattr(case, "num_latents", 1)


def observations(case: AnyCase, N: int) -> AnyNDArray:
    if isinstance(case, Member) and case.coarsened:  # exact y, of equal ends
        y = np.random.default_rng(N).normal(size=(N, 1))
        return case.make().as_observed(np.exp(y) if "Log" in case.name else y).numpy()
    if isinstance(case, Member):
        return case.observe(np.random.default_rng(N), N)
    y = np.random.default_rng(N).normal(size=(N, 1)) * 3.0
    return np.sign(y) if case.is_binary else y


def log_density_of(case: AnyCase, x: AnyNDArray, f: AnyNDArray, y: AnyNDArray) -> float:
    """The log-density of one datum, with x, f and y as vectors."""
    if isinstance(case, Member):
        with np.errstate(all="ignore"):
            return float(np.nan_to_num(case.log_density(x, f, y), nan=-np.inf))
    return case.log_density(float(y[0]), float(f[0]))


def textbook_cdf(case: AnyCase, x: AnyNDArray, f: AnyNDArray, y: AnyNDArray) -> float:
    """The sum over smaller y, or the integral over the less probable side."""

    def density(first: float) -> float:
        if case.name == "MultivariateStudentT":  # the marginal law of one column
            return float(scipy.stats.t.pdf(first, 9.0, f[0], 0.6))
        if case.name == "Missing StudentT":
            return float(scipy.stats.t.pdf(first, 4.0, f[0], 0.9))
        rest = [first] if getattr(case, "coarsened", None) else y[1:]
        return float(np.exp(log_density_of(case, x, f, np.r_[first, rest])))

    def is_part(name: str) -> bool:
        return case.name == "Switched" and name == ("noise", "label", "noise")[int(y[1])]

    is_binary = is_part("label") or getattr(case, "is_binary", False)
    if is_binary:
        below, above = density(-1.0), density(1.0)
        return 1.0 if y[0] > 0.0 else below / (below + above)
    if case.make().outcomes() is not None:
        return sum(density(float(k)) for k in range(int(y[0]) + 1))

    def tail(sign: float) -> float:
        parts = [
            scipy.integrate.quad(
                lambda u: density(y[0] + sign * np.exp(u)) * np.exp(u), a, a + 4.0, epsabs=0.0,
                epsrel=1e-10, limit=200,
            )[0]
            for a in range(-36, 36, 4)
        ]  # fmt: skip
        return sum(parts)

    lower, upper = tail(-1.0), tail(1.0)
    return lower if lower < upper else 1.0 - upper


def random_model(case: AnyCase, likelihood: AugmentedLikelihood | None = None) -> AugmentedSVGP:
    """A model whose q is not the prior."""
    model = AugmentedSVGP(
        gpflow.kernels.SquaredExponential(lengthscales=0.5),
        likelihood or case.make(),
        np.linspace(-1.0, 1.0, 4)[:, None],
        num_latent_gps=num_latents(case),
    )
    model.q_mu.assign(np.random.default_rng(2).normal(size=model.q_mu.shape))
    return model


# ---- given f ----


@pytest.mark.briefly("Ordinal")
@pytest.mark.by_default(
    "Interval, logit",
    "Switched",
    "Exponential",
    "Ordinal",
    "StudentT",
    "Laplace",
    "Gaussian",
    "AsymmetricLaplace",
    "Hurdle NegativeBinomial",
)
@pytest.mark.filterwarnings("ignore::scipy.integrate.IntegrationWarning")
def test_the_cdf_given_f_is_the_integral_of_the_textbooks_density(case: AnyCase) -> None:
    N = 3
    Y, x = observations(case, N), np.linspace(-1.0, 1.0, N)[:, None]
    F = np.random.default_rng(1).normal(size=(N, num_latents(case)))
    found = case.make().cdf(x, F, Y).numpy()[:, 0]
    expected = [textbook_cdf(case, *each) for each in zip(x, F, Y, strict=True)]
    np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-10)


class CauchyLaw(NamedTuple):
    """Cauchy's law; SciPy 1.13 loses digits in its lower tail."""

    loc: float
    scale: float

    def ppf(self, probability: AnyNDArray) -> AnyNDArray:
        return self.loc - self.scale / np.tan(np.pi * np.asarray(probability))

    def cdf(self, y: AnyNDArray) -> AnyNDArray:
        return np.arctan2(self.scale, self.loc - y) / np.pi


@pytest.mark.parametrize(
    ("likelihood", "law"),
    [
        (likelihoods.Gaussian(scale=0.7), scipy.stats.norm(0.3, 0.7)),
        (likelihoods.StudentT(0.6, 4.3), scipy.stats.t(4.3, 0.3, 0.6)),
        (likelihoods.StudentT(0.6, 0.4), scipy.stats.t(0.4, 0.3, 0.6)),
        (likelihoods.Cauchy(0.6), CauchyLaw(0.3, 0.6)),
        (likelihoods.Laplace(0.7), scipy.stats.laplace(0.3, 0.7)),
        (likelihoods.Matern(0.5, 0.7), scipy.stats.laplace(0.3, 0.7)),
        (likelihoods.LogisticNoise(0.4), scipy.stats.logistic(0.3, 0.4)),
        (likelihoods.GeneralizedGaussian(0.8, 1.3), scipy.stats.gennorm(1.3, 0.3, 0.8)),
    ],
    ids=lambda each: type(each).__name__,
)
def test_cdfs_keep_the_digits_of_their_lower_tails(
    likelihood: AugmentedLikelihood, law: scipy.stats.rv_continuous | CauchyLaw
) -> None:
    y = np.r_[law.ppf(np.logspace(-12, -1, 12)), 0.3 - 1e-9, 0.3, 0.3 + 1e-9, 1.0, 5.0][:, None]
    F = np.full_like(y, 0.3)
    np.testing.assert_allclose(likelihood.cdf(F, F, y), law.cdf(y), rtol=1e-9)


class OwnCauchy(SuperGaussianLikelihood):
    """The README's likelihood, with its noise about ``factor`` · f."""

    def __init__(self, scale: float, factor: float = 1.0) -> None:
        super().__init__()
        self.scale, self.factor = gpflow.Parameter(scale), factor

    def log_C(self, Y: tf.Tensor) -> tf.Tensor:
        return -tf.math.log(np.pi * self.scale) + tf.zeros_like(Y)

    def alpha(self, Y: tf.Tensor) -> tf.Tensor:
        return tf.square(Y / self.scale)

    def beta(self, Y: tf.Tensor) -> tf.Tensor:
        return 2.0 * self.factor * Y / tf.square(self.scale)

    def gamma(self, Y: tf.Tensor) -> tf.Tensor:
        return tf.square(self.factor / self.scale) + tf.zeros_like(Y)

    def log_phi(self, r: tf.Tensor) -> tf.Tensor:
        return -tf.math.log1p(r)


@pytest.mark.parametrize("unit", [1e-5, 1.0, 1e5])
@pytest.mark.parametrize("factor", [1.0, 3.0])
def test_a_likelihood_that_states_no_cdf_has_one(unit: float, factor: float) -> None:
    """It comes from quadrature of the density, in any unit of y and for any mode."""
    likelihood = OwnCauchy(0.6 * unit, factor)
    law = CauchyLaw(0.3 * unit * factor, 0.6 * unit)
    y = law.ppf([1e-9, 1e-6, 1e-3, 0.1, 0.49, 0.5, 0.51, 0.9, 1.0 - 1e-6])[:, None]
    F = np.full_like(y, 0.3 * unit)
    np.testing.assert_allclose(likelihood.cdf(F, F, y), law.cdf(y), rtol=1e-8)


def test_predictions_of_a_likelihood_that_states_no_cdf() -> None:
    found, expected = (
        predict_y_quantile(random_model(AUGMENTED[0], each), X, [1e-3, 0.7])
        for each in (OwnCauchy(0.6), likelihoods.Cauchy(0.6))
    )
    np.testing.assert_allclose(found, expected, rtol=1e-8)


class OwnLabels(OwnCauchy):
    """A discrete likelihood that is not normalised."""

    is_density = False

    def outcomes(self) -> AnyNDArray:
        return np.array([[0.0], [1.0], [2.0]])


def test_a_pseudo_likelihood_is_normalised_over_its_labels_or_refused() -> None:
    F, y = np.full((3, 1), 0.4), np.array([[0.0], [1.0], [2.0]])
    p = 1.0 / (1.0 + (np.arange(3.0) - 0.4) ** 2)
    found = OwnLabels(1.0).cdf(F, F, y)[:, 0]
    np.testing.assert_allclose(found, np.cumsum(p) / p.sum(), rtol=1e-12)
    of_real = OwnCauchy(1.0)
    of_real.is_density = False
    with pytest.raises(NotImplementedError, match=r"no density must define _cdf\(X, F, Y\)"):
        of_real.cdf(F, F, y)


# ---- f integrated out ----


@pytest.mark.briefly("BayesianSVM-40.0", "Laplace-40.0", "Binomial with trials-40.0")
@pytest.mark.applies_to("case", lambda case: num_latents(case) == 1)  # the others are below
@pytest.mark.parametrize("sd", [pytest.param(0.3, marks=pytest.mark.replicate), 40.0])
@pytest.mark.by_default(
    "StudentT",
    "Binomial with trials",
    "Interval, probit",
    "Warped Gaussian, Log",
    "Missing StudentT",
    "Gamma",
    "BayesianSVM",
    "Scaled StudentT",
    "ZeroTruncated Poisson",
    "Laplace",
    "Poisson",
    "Weighted StudentT",
)
def test_the_predictive_cdf_is_the_mean_over_f(case: AnyCase, sd: float) -> None:
    """Noise may be narrow compared with q(f), and y may be in the tail."""
    likelihood, Y = case.make(), observations(case, 3)
    x, mean = X[:3], np.array([[0.4], [-1.0], [3.0]])
    is_real = case.name != "Switched" and not case.name.startswith("Warped Gaussian")
    if case.make().outcomes() is None and is_real:
        Y[0, 0] = mean[0, 0] - 4.0 * sd
    found = likelihood.predict_cdf(x, mean, np.full_like(mean, sd**2), Y).numpy()
    z = np.linspace(-9.0, 9.0, 60_001)  # the trapezoidal rule
    weight = np.exp(-0.5 * z**2)
    for row in range(3):
        f = (mean[row] + sd * z)[:, None]
        rows = (np.tile(part[row], (len(z), 1)) for part in (x, Y))
        given_f = np.concatenate(
            [
                likelihood.cdf(*parts)
                for parts in zip(*(np.array_split(p, 6) for p in (*rows, f)), strict=True)
                for parts in [(parts[0], parts[2], parts[1])]
            ]
        )[:, 0]
        expected = weight @ given_f / weight.sum()
        np.testing.assert_allclose(found[row], expected, rtol=2e-6, atol=1e-12)


def test_the_predictive_cdf_of_two_gps_is_the_mean_over_both() -> None:
    likelihood = likelihoods.Heteroscedastic(likelihoods.Gaussian(), 5.0)
    z, w = np.polynomial.hermite_e.hermegauss(120)
    f, g = np.meshgrid(0.3 + 0.8 * z, -0.5 + 1.1 * z, indexing="ij")
    F, weight = np.stack([f.ravel(), g.ravel()], -1), np.outer(w, w).ravel() / w.sum() ** 2
    for y in (-3.0, 0.2, 4.0):
        given = likelihood.cdf(F[:, :1], F, np.full_like(F[:, :1], y)).numpy()[:, 0]
        moments = (np.array([v]) for v in ([0.0], [0.3, -0.5], [0.64, 1.21], [y]))
        found = likelihood.predict_cdf(*moments)
        np.testing.assert_allclose(found, [[weight @ given]], rtol=1e-6)


def test_the_predictive_cdf_of_classes_is_that_of_their_probabilities() -> None:
    model = random_model(next(case for case in ZOO if case.name == "LogisticSoftmax"))
    p = model.predict_y(X)[0].numpy()
    for k in range(3):
        found = predict_y_cdf(model, X, np.full_like(X, k))
        np.testing.assert_allclose(found[:, 0], p[:, : k + 1].sum(1), rtol=1e-10)


def test_the_probability_of_a_label_has_its_digits_however_small_it_is() -> None:
    """log E σ(f) and its derivatives, against 20 digits."""
    grid = [(m, sd) for m in (-1_000.0, -50.0, -5.0, 0.3, 50.0) for sd in (0.01, 1.0, 10.0, 100.0)]
    mean, sd = tf.constant(grid, tf.float64)[:, :1], tf.constant(grid, tf.float64)[:, 1:]
    variance, ones = tf.square(sd), tf.ones_like(mean)
    with tf.GradientTape() as tape:
        tape.watch([mean, variance])
        found = likelihoods.Logistic().predict_log_density(ones, mean, variance, ones)
    found, *slopes = (t.numpy() for t in (found, *tape.gradient(found, [mean, variance])))

    def exact(m: float, v: float, size: float) -> mpmath.mpf:
        """An integrand of ordinary size, since the error of mpmath's rule is absolute."""
        width, sd = 40.0 * mpmath.sqrt(v), mpmath.sqrt(v)
        low, high = m - width, m + v + width
        ends = sorted({low, m, m + v, min(max(low, 0.0), high), high})
        pieces = [a + (b - a) * k / 4 for a, b in pairwise(ends) for k in range(4)] + ends[-1:]
        unit = mpmath.exp(size)
        of_unit = mpmath.quad(lambda x: mpmath.npdf(x, m, sd) * sigma(x) / unit, pieces)
        return size + mpmath.log(of_unit)

    def sigma(x: mpmath.mpf) -> mpmath.mpf:
        return 1 / (1 + mpmath.exp(-x))

    with mpmath.workdps(20):
        for k, (m, s) in enumerate(grid):
            v, step = mpmath.mpf(s) ** 2, mpmath.mpf("1e-6")
            of = partial(exact, size=found[k])
            assert abs(found[k] - of(m, v)) < 3e-8
            if k % 3:  # for the sake of time
                continue
            of_mean = (of(m + step, v) - of(m - step, v)) / (2 * step)
            of_variance = (of(m, v * (1 + step)) - of(m, v * (1 - step))) / (2 * step * v)
            assert abs(slopes[0][k, 0] - of_mean) < 1e-7
            assert abs(slopes[1][k, 0] - of_variance) < 1e-6


def test_student_t_noise_against_a_normal_f_of_any_width() -> None:
    """The predictive cdf is a one-dimensional sum; the oracle is a convolution."""
    for df, scale, sd in [(0.4, 1.0, 1.0), (2.5, 1e-3, 1.0), (30.0, 0.5, 0.1), (1e5, 1.0, 2.0)]:
        likelihood = likelihoods.StudentT(scale, df)
        for y in (-6.0, 0.5):
            centres = sorted({0.0, y, *(y + scale * s for s in (-9.0, -1.0, 1.0, 9.0))})
            expected = sum(
                scipy.integrate.quad(
                    lambda f, y=y, df=df, scale=scale, sd=sd: (
                        scipy.stats.norm.pdf(f / sd) / sd * scipy.special.stdtr(df, (y - f) / scale)
                    ),
                    a,
                    b,
                    epsabs=0.0,
                    epsrel=1e-10,
                    limit=400,
                )[0]
                for a, b in zip([-38.0 * sd, *centres], [*centres, 38.0 * sd], strict=True)
                if a < b
            )
            one = np.ones((1, 1))
            found = likelihood.predict_cdf(one, 0.0 * one, sd**2 * one, y * one)
            np.testing.assert_allclose(found, [[expected]], rtol=1e-8)


# ---- quantiles ----

LEVELS = [1e-6, 0.05, 0.5, 1.0 - 1e-6]


@pytest.mark.briefly("StudentT")
@pytest.mark.by_default(
    "StudentT",
    "Binomial with trials",
    "Interval, probit",
    "Warped Gaussian, Log",
    "LogisticTree",
    "Missing StudentT",
    "ZeroTruncated Poisson",
    "Hurdle Poisson, gate GP",
    "Laplace",
)
def test_quantiles_are_where_the_cdf_has_their_levels(case: AnyCase) -> None:
    """
    Both tails are right to 1e-8; a discrete quantile is the smallest y that reaches the level.
    """
    model = random_model(case)
    if case.name == "Switched":
        with pytest.raises(ValueError, match=r"a column of Y chooses the part\. Found: Switched"):
            predict_y_quantile(model, X, 0.5)
        return
    likelihood = model.likelihood
    quantiles = predict_y_quantile(model, X, LEVELS)
    columns = 2 if case.name in ("MultivariateStudentT", "Missing StudentT") else 1
    assert quantiles.shape == (len(LEVELS), 3, columns)
    for level, y in zip(LEVELS, quantiles, strict=True):
        p = predict_y_cdf(model, X, likelihood.as_observed(y)).numpy()
        if likelihood.outcomes() is None:
            np.testing.assert_allclose(p, level, rtol=1e-8)
            np.testing.assert_allclose(1.0 - p, 1.0 - level, rtol=1e-8)
        else:
            assert np.all(p >= level)
            least = max(0.0, likelihood.outcomes()[0, 0])
            before = likelihood.as_observed(tf.maximum(y - 1.0, least))
            p_before = predict_y_cdf(model, X, before).numpy()
            assert np.all((p_before < level) | (y == least))
            assert np.all(y == np.round(y))


def test_quantiles_where_y_is_at_the_end_of_its_support_with_some_probability() -> None:
    """2(√y − 1) has mean −2, below which there is no y, so half of all y are 0."""
    likelihood = likelihoods.Warped(likelihoods.Gaussian(scale=1e-3), likelihoods.warps.BoxCox(0.5))
    model = random_model(AUGMENTED[0], likelihood)
    model.mean_function = gpflow.functions.Constant(-2.0)
    far = np.array([[40.0]])  # f ~ N(−2, 1)
    found = predict_y_quantile(model, far, [1e-10, 0.3, 0.95]).numpy()[:, 0, 0]
    above = (1.0 + (scipy.stats.norm.ppf(0.95) - 2.0) / 2.0) ** 2
    np.testing.assert_allclose(found, [0.0, 0.0, above], rtol=1e-5, atol=1e-12)


def test_without_rows_there_is_nothing() -> None:
    model = random_model(AUGMENTED[0])
    none = np.zeros((0, 1))
    assert predict_y_quantile(model, none, LEVELS).shape == (len(LEVELS), 0, 1)
    assert predict_y_cdf(model, none, none).shape == (0, 1)


def test_a_level_that_float32_rounds_to_1_is_refused() -> None:
    with gpflow.config.as_context(gpflow.config.Config(float=np.float32, jitter=1e-4)):
        model = random_model(AUGMENTED[0])
        with pytest.raises(ValueError, match=r"levels must be in \(0, 1\)\. Found: \[1"):
            predict_y_quantile(model, X.astype(np.float32), np.float64(1.0 - 1e-9))


@pytest.mark.parametrize("columns", [1, 3])
def test_a_cdf_of_other_columns_than_observed_is_refused(columns: int) -> None:
    F, Y = np.zeros((4, 2)), np.zeros((4, columns))
    with pytest.raises(ValueError, match=f"Y must have 2 columns, f having 2. Found: {columns}"):
        likelihoods.MultivariateStudentT(0.5, 3.0, 2).cdf(F, F, Y)


def test_quantiles_of_large_counts() -> None:
    """They lie beyond the largest of the ``outcomes``."""
    likelihood = likelihoods.NegativeBinomial(2.0)
    model = random_model(AUGMENTED[0], likelihood)
    model.mean_function = gpflow.functions.Constant(9.0)
    model.q_sqrt.assign(1e-6 * model.q_sqrt)
    inputs = model.inducing_variable.Z.numpy()
    f = 9.0 + model.predict_f(inputs)[0].numpy() - 9.0
    found = predict_y_quantile(model, inputs, [0.01, 0.99])
    expected = [scipy.stats.nbinom.ppf(p, 2.0, 1.0 / (1.0 + np.exp(f))) for p in (0.01, 0.99)]
    np.testing.assert_allclose(found, expected, rtol=1e-4)


@pytest.mark.briefly("0.0001")
@pytest.mark.parametrize("unit", [1e-4, 1e8])
def test_quantiles_follow_the_unit_of_y(unit: float) -> None:
    found = []
    for scale in (1.0, unit):
        model = random_model(AUGMENTED[0], likelihoods.StudentT(0.3 * scale, 2.5))
        model.kernel.variance.assign(scale**2)
        with gpflow.config.as_context(gpflow.config.Config(jitter=1e-6 * scale**2)):
            found.append(predict_y_quantile(model, X, LEVELS).numpy() / scale)
    np.testing.assert_allclose(found[1], found[0], rtol=1e-6)


def test_without_uncertainty_of_f_they_are_those_of_the_noise() -> None:
    model = random_model(AUGMENTED[0], likelihoods.StudentT(0.3, 4.0))
    model.q_sqrt.assign(1e-30 * model.q_sqrt)
    model.kernel.variance.assign(1e-20)
    with gpflow.config.as_context(gpflow.config.Config(jitter=1e-30)):
        found = predict_y_quantile(model, X, LEVELS).numpy()
    expected = scipy.stats.t(4.0, 0.0, 0.3).ppf(LEVELS)
    np.testing.assert_allclose(found[:, 1, 0], expected, rtol=1e-6, atol=1e-8)


# ---- models ----


def test_gpflows_own_models_predict_as_ours() -> None:
    ours = random_model(AUGMENTED[0], likelihoods.Matern32(0.4))
    theirs = gpflow.models.SVGP(
        ours.kernel, ours.likelihood, ours.inducing_variable, q_mu=ours.q_mu, q_sqrt=ours.q_sqrt
    )
    vgp = gpflow.models.VGP((X, np.sin(X)), gpflow.kernels.Matern32(), likelihoods.Matern32(0.4))
    y = np.array([[-0.4], [0.2], [3.0]])
    np.testing.assert_array_equal(predict_y_cdf(theirs, X, y), predict_y_cdf(ours, X, y))
    for model in (theirs, vgp):
        y = predict_y_quantile(model, X, [0.2])[0]
        np.testing.assert_allclose(predict_y_cdf(model, X, y), 0.2, rtol=1e-10)
        assert predict_y_samples(model, X, 4).shape == (4, 3, 1)


@pytest.mark.parametrize(
    "likelihood",
    [
        pytest.param(likelihoods.NegativeBinomial(3.0), marks=pytest.mark.slow),
        pytest.param(OwnCauchy(0.4), marks=pytest.mark.replicate),
        likelihoods.StudentT(0.4, 3.0),
        pytest.param(likelihoods.Poisson(9.0), marks=pytest.mark.replicate),
    ],
    ids=lambda each: type(each).__name__,
)
def test_inside_a_compiled_function_they_are_the_same(likelihood: AugmentedLikelihood) -> None:
    """The function is traced for any number of rows."""
    model = random_model(AUGMENTED[0], likelihood)
    has_draws = not isinstance(likelihood, OwnCauchy)

    def all_of(inputs: tf.Tensor) -> list[tf.Tensor]:
        y = predict_y_quantile(model, inputs, [0.1, 0.8])
        draws = [predict_y_samples(model, inputs, 3)] if has_draws else []
        return [y, predict_y_cdf(model, inputs, y[0]), *draws]

    signature = [tf.TensorSpec([None, 1], tf.float64)]
    compiled = tf.function(all_of, autograph=False, input_signature=signature)
    for found, expected in zip(compiled(tf.constant(X)), all_of(X), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-9)


@pytest.mark.parametrize(
    "likelihood",
    [
        likelihoods.StudentT(0.4, 3.0),
        pytest.param(likelihoods.NegativeBinomial(3.0), marks=pytest.mark.slow),
        pytest.param(OwnCauchy(0.5), marks=pytest.mark.replicate),
    ],
    ids=lambda likelihood: type(likelihood).__name__,
)
def test_an_exported_model_has_quantiles_and_probabilities(
    likelihood: AugmentedLikelihood, tmp_path: Path
) -> None:
    """It takes any number of rows, in a process without this package."""
    model = random_model(AUGMENTED[0], likelihood)
    signature = [tf.TensorSpec([None, 1], tf.float64)]

    def served(inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        y = predict_y_quantile(model, inputs, [0.1, 0.8])
        return {"quantiles": y, "probabilities": predict_y_cdf(model, inputs, y[1])}

    model.served = tf.function(served, autograph=False, input_signature=signature)
    tf.saved_model.save(model, str(tmp_path))
    loaded = tf.saved_model.load(str(tmp_path))
    for inputs in (X, X[:3]):
        found, expected = loaded.served(tf.constant(inputs)), served(tf.constant(inputs))
        for name, value in expected.items():
            np.testing.assert_allclose(found[name], value, rtol=1e-9)


@pytest.mark.parametrize(
    "likelihood",
    [
        lambda: likelihoods.StudentT(0.4, 3.0),
        pytest.param(lambda: likelihoods.Matern32(0.4), marks=pytest.mark.replicate),
        pytest.param(
            lambda: likelihoods.GeneralizedGaussian(0.4, 1.3), marks=pytest.mark.replicate
        ),
        pytest.param(lambda: likelihoods.Laplace(0.4), marks=pytest.mark.replicate),
    ],
)
def test_float32(likelihood: Callable[[], AugmentedLikelihood]) -> None:
    found = []
    for dtype in (np.float64, np.float32):
        with gpflow.config.as_context(gpflow.config.Config(float=dtype, jitter=1e-4)):
            model = random_model(AUGMENTED[0], likelihood())
            y = predict_y_quantile(model, X, [0.01, 0.5, 0.99])
            p = predict_y_cdf(model, X, y[0])
            assert y.dtype == p.dtype == dtype
            assert predict_y_samples(model, X, 2).dtype == dtype
            found.append(np.r_[y.numpy().ravel(), p.numpy().ravel()])
    np.testing.assert_allclose(found[1], found[0], rtol=2e-3, atol=2e-3)


def test_a_model_frozen_as_float32() -> None:
    model = random_model(AUGMENTED[0], likelihoods.StudentT(0.4, 3.0))
    expected = predict_y_quantile(model, X, [0.1, 0.9])
    frozen = gpflow.utilities.freeze_as_float32(model)
    found = predict_y_quantile(frozen, X.astype(np.float32), [0.1, 0.9])
    assert found.dtype == tf.float32
    np.testing.assert_allclose(found, expected, atol=2e-3)


def test_quantiles_follow_the_parameters_though_they_are_compiled_once() -> None:
    """Models alike share the graph: it must not keep the values of the first one."""
    for scale, seed in ((0.4, 0), (0.7, 1)):
        model = random_model(AUGMENTED[0], likelihoods.StudentT(scale, 3.0))
        levels = tf.constant([0.1, 0.9], tf.float64)
        for factor in (1.0, 2.0):
            model.likelihood.scale.assign(scale * factor)
            model.kernel.variance.assign(1.0 + seed)
            found = predict_y_quantile(model, X, levels)
            step_by_step = predictions_of_y.Predicted(model, X, None, progress=False)
            expected = step_by_step.quantile(slice(None), levels[:, None, None])
            np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_two_columns_of_y() -> None:
    kernel = gpflow.kernels.Matern32()
    model = AugmentedVGP((X, np.hstack([X, X**2])), kernel, likelihoods.Matern32(0.3))
    y = predict_y_quantile(model, X, LEVELS)
    assert y.shape == (4, 3, 2)
    np.testing.assert_allclose(predict_y_cdf(model, X, y[1]), 0.05, rtol=1e-10)
    assert predict_y_samples(model, X, 7).shape == (7, 3, 2)


def test_data_in_pieces_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    model = random_model(AUGMENTED[0], likelihoods.Gaussian(0.4))
    many = np.linspace(-1.0, 1.0, 7)[:, None]
    whole = predict_y_quantile(model, many, [0.1, 0.9])
    monkeypatch.setattr(predictions_of_y, "VALUES_AT_ONCE", 6)  # three rows at a time
    np.testing.assert_allclose(predict_y_quantile(model, many, [0.1, 0.9]), whole, rtol=1e-10)
    y = whole[0]
    np.testing.assert_allclose(predict_y_cdf(model, many, y), 0.1, rtol=1e-10)


# ---- use of predictions ----


@pytest.mark.briefly("StudentT")
@pytest.mark.parametrize("name", ["StudentT", "NegativeBinomial"])
def test_a_million_draws_have_the_predicted_probabilities(name: str) -> None:
    model = random_model(next(case for case in ALL if case.name == name))
    draws = predict_y_samples(model, X[:2], 500_000, seed=3).numpy()
    y = predict_y_quantile(model, X[:2], [0.01, 0.3, 0.9])
    for each in y:
        p = predict_y_cdf(model, X[:2], each).numpy()
        error = (np.mean(draws <= each.numpy(), 0) - p) / np.sqrt(p * (1.0 - p) / len(draws))
        assert np.max(np.abs(error)) < 4.0


def test_intervals_cover_what_two_standard_deviations_do_not() -> None:
    """For Student-t noise with df = 2.5, quantiles cover 90 %, 1.645 standard deviations more."""
    rng = np.random.default_rng(4)
    many = np.linspace(-1.0, 1.0, 10_000)[:, None]
    model = random_model(AUGMENTED[0], likelihoods.StudentT(0.5, 2.5))
    mean, variance = (part.numpy() for part in model.predict_f(many))
    y = rng.normal(mean, np.sqrt(variance)) + 0.5 * rng.standard_t(2.5, size=mean.shape)
    lower, upper = predict_y_quantile(model, many, [0.05, 0.95]).numpy()
    assert np.mean((lower < y) & (y < upper)) == pytest.approx(0.9, abs=0.01)
    y_mean, y_variance = model.predict_y(many)
    naive = np.mean(np.abs(y - y_mean) < 1.645 * np.sqrt(y_variance))
    assert naive > 0.92
    probability = predict_y_cdf(model, many, y).numpy()
    assert scipy.stats.kstest(probability.ravel(), "uniform").pvalue > 1e-3


def test_joint_draws_are_of_one_function() -> None:
    """At two close inputs, joint draws of f are nearly the same, independent ones are not."""
    model = random_model(AUGMENTED[0], likelihoods.Gaussian(scale=1e-3))
    near = np.array([[3.0], [3.01]])  # far from the data, where f has variance 1
    for full_cov in (True, False):
        draws = predict_y_samples(model, near, 2_000, full_cov=full_cov).numpy()[..., 0]
        assert np.var(draws) == pytest.approx(1.0, abs=0.15)
        assert (np.corrcoef(draws.T)[0, 1] > 0.99) == full_cov


# ---- from draws of the posterior ----


def two_draws() -> tuple[AugmentedVGP, arviz.InferenceData, list[scipy.stats.rv_continuous]]:
    """Two draws of noise variance and lengthscale, and the law of y at x = 0.15 for each."""
    inputs = np.linspace(-1.5, 1.5, 9)[:, None]
    kernel = gpflow.kernels.Matern32(variance=1.2)
    model = AugmentedVGP((inputs, np.sin(inputs)), kernel, likelihoods.Gaussian(0.2))
    f = np.stack([np.cos(inputs), inputs**2])[None]
    lengthscales, variances = np.array([[0.3, 2.0]]), np.array([[0.1, 0.7]])
    posterior = {"f": f, "kernel.lengthscales": lengthscales, "likelihood.variance": variances}
    laws = []
    for s in (0, 1):
        of_draw = gpflow.kernels.Matern32(variance=1.2, lengthscales=lengthscales[0, s])
        noiseless = gpflow.models.GPR((inputs, f[0, s]), of_draw, noise_variance=1.001e-6)
        mean, variance = (float(part) for part in noiseless.predict_f(np.array([[0.15]])))
        laws.append(scipy.stats.norm(mean, np.sqrt(variance + variances[0, s])))
    return model, arviz.from_dict(posterior=posterior), laws


def test_probabilities_are_averaged_over_draws_each_with_its_own_parameters() -> None:
    model, samples, laws = two_draws()
    before = gpflow.utilities.read_values(model)
    x, y = np.array([[0.15]]), np.array([[0.7]])
    found = predict_y_cdf(model, x, y, samples=samples, progress=False)
    np.testing.assert_allclose(found, np.mean([law.cdf(y) for law in laws], 0), rtol=1e-5)
    for level in (0.05, 0.5, 0.999):
        (quantile,) = predict_y_quantile(model, x, level, samples=samples, progress=False)
        expected = scipy.optimize.brentq(
            lambda y, level=level: np.mean([law.cdf(y) for law in laws]) - level, -9.0, 9.0
        )
        np.testing.assert_allclose(quantile, [[expected]], rtol=1e-5)
    draws = predict_y_samples(model, x, 100_000, samples=samples, progress=False).numpy().ravel()
    below = np.mean([law.cdf(0.7) for law in laws])
    assert abs(np.mean(draws < 0.7) - below) < 4.0 * np.sqrt(0.25 / 100_000)
    for name, value in gpflow.utilities.read_values(model).items():
        np.testing.assert_array_equal(value, before[name])


def test_draws_of_gibbs_are_those_of_q_where_q_is_exact() -> None:
    """The noise is Gaussian, so one natural-gradient step gives the posterior."""
    rng = np.random.default_rng(1)
    inputs = np.linspace(-1.0, 1.0, 8)[:, None]
    data = inputs, np.sin(3.0 * inputs) + 0.3 * rng.normal(size=inputs.shape)
    model = AugmentedVGP(data, gpflow.kernels.Matern32(), likelihoods.Gaussian(0.1))
    gpflow.optimizers.NaturalGradient(1.0).minimize(
        model.training_loss, [(model.q_mu, model.q_sqrt)]
    )
    samples = sample_posterior(
        model, num_samples=1_000, num_chains=2, num_burnin=20, progress=False
    )
    exact = predict_y_quantile(model, X, [0.1, 0.5, 0.9])
    averaged = predict_y_quantile(model, X, [0.1, 0.5, 0.9], samples=samples, progress=False)
    np.testing.assert_allclose(averaged, exact, atol=0.03)
    y = exact[2]
    found = predict_y_cdf(model, X, y, samples=samples, progress=False)
    np.testing.assert_allclose(found, 0.9, atol=0.02)
    for full_cov in (True, False):
        drawn = predict_y_samples(
            model, X, 2_000, full_cov=full_cov, samples=samples, progress=False
        )
        np.testing.assert_allclose(np.mean(drawn <= y, 0), 0.9, atol=0.03)
    assert predict_f_samples(model, X, samples=samples, progress=False).shape == (2, 1_000, 3, 1)


# ---- bad input ----


def test_bad_input_is_named() -> None:
    model = random_model(AUGMENTED[0])
    for levels in (0.0, 1.0, [0.5, np.nan], [-0.1]):
        with pytest.raises(ValueError, match=r"levels must be in \(0, 1\). Found: \["):
            predict_y_quantile(model, X, levels)
    for shape in ((2, 2), (0,)):
        with pytest.raises(ValueError, match=r"levels must be \[Q\] or a number. Found: shape \["):
            predict_y_quantile(model, X, np.full(shape, 0.5))
    stock = gpflow.models.SVGP(model.kernel, model.likelihood, model.inducing_variable)
    for each in (model, stock):
        with pytest.raises(ValueError, match=r"Xnew must be \[N, 1\]. Found: shape \[3, 2\]"):
            predict_y_quantile(each, np.ones((3, 2)), 0.5)
        with pytest.raises(ValueError, match="Xnew must be finite"):
            predict_y_samples(each, np.full((3, 1), np.nan), 2)
        with pytest.raises(ValueError, match=r"y must be \[3, 1\]. Found: shape \[2, 1\]"):
            predict_y_cdf(each, X, X[:2])
        with pytest.raises(ValueError, match="y must be finite"):
            predict_y_cdf(each, X, np.full_like(X, np.nan))
    for num_samples in (0, 2.5, True):
        with pytest.raises(ValueError, match="num_samples must be an integer of at least 1"):
            predict_y_samples(model, X, num_samples)
    with pytest.raises(ValueError, match="seed must be from 0"):
        predict_y_samples(model, X, 2, seed=-1)
    counts = random_model(AUGMENTED[0], likelihoods.Poisson(9.0))
    with pytest.raises(ValueError, match="Y must hold whole numbers from 0 up for Poisson"):
        predict_y_cdf(counts, X, X)
    _, samples, _ = two_draws()
    other = gpflow.models.SGPR((X, X), model.kernel, model.inducing_variable)
    with pytest.raises(ValueError, match="model must be an AugmentedSVGP or AugmentedVGP"):
        predict_y_cdf(other, X, X, samples=samples)
