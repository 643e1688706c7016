"""
Every public prediction and criticism of every likelihood: at the ends of y, and in both tails.

The oracles are the textbook densities, summed or integrated by brute force. A new member of the zoo
is in these tests without a line here. What cannot be predicted is refused in words.
"""

from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
import pytest
import scipy.special
import scipy.stats
import tensorflow as tf
import tensorflow_probability as tfp
from cases import AUGMENTED
from gpflow.base import AnyNDArray
from laws import AnyCase, F, Law
from matplotlib.figure import Figure
from zoo import ZOO, Member

from gpflow_aaci import AugmentedSVGP, fit, loo, predictions
from gpflow_aaci.criticism.calibration import pit
from gpflow_aaci.data import as_arrays
from gpflow_aaci.likelihoods import (
    AugmentedLikelihood,
    BayesianSVM,
    Binomial,
    Exponential,
    Gamma,
    GeneralizedGaussian,
    Interval,
    LogisticNoise,
    Matern32,
    NegativeBinomial,
    Ordinal,
    Poisson,
    Softmax,
    Warped,
    Weibull,
    ZeroTruncated,
    augmented,
    warps,
)
from gpflow_aaci.plots import plot_calibration
from gpflow_aaci.predictions import (
    hazard_at,
    predict_of_f,
    predict_y_cdf,
    predict_y_quantile,
    predict_y_samples,
    probabilities,
    survival_at,
)

X = np.array([[0.3]])
LEVELS = [1e-3, 0.05, 0.5, 0.999, 1.0 - 1e-12]


def cloglog(f: tf.Tensor) -> tf.Tensor:
    return 1.0 - tf.exp(-tf.exp(f))


def of_gpflow(
    likelihood: Callable[[], gpflow.likelihoods.Likelihood],
    log_density: Callable[[AnyNDArray, AnyNDArray], AnyNDArray],
    observe: Callable[[np.random.Generator, tuple[int, int]], AnyNDArray],
    num_latents: int = 1,
) -> Member:
    """A likelihood of GPflow as a member; f has all columns, y has one."""
    return Member(
        f"GPflow {likelihood().__class__.__name__}",
        lambda: augmented(likelihood()),
        num_latents,
        lambda rng, N: observe(rng, (N, 1)).astype(float),
        lambda x, f, y: log_density(f, y[..., 0]),
    )


OF_GPFLOW = [
    of_gpflow(
        gpflow.likelihoods.Poisson,
        lambda f, y: scipy.stats.poisson.logpmf(y, np.exp(f[..., 0])),
        lambda rng, shape: rng.poisson(1.0, shape),
    ),
    of_gpflow(
        gpflow.likelihoods.Exponential,
        lambda f, y: scipy.stats.expon.logpdf(y, scale=np.exp(f[..., 0])),
        lambda rng, shape: rng.exponential(1.0, shape),
    ),
    of_gpflow(
        lambda: gpflow.likelihoods.Gamma(shape=2.0),
        lambda f, y: scipy.stats.gamma.logpdf(y, 2.0, scale=np.exp(f[..., 0])),
        lambda rng, shape: rng.gamma(2.0, 1.0, shape),
    ),
    of_gpflow(
        lambda: gpflow.likelihoods.Beta(invlink=tf.sigmoid, scale=6.0),
        lambda f, y: scipy.stats.beta.logpdf(
            y, 6.0 * scipy.special.expit(f[..., 0]), 6.0 * scipy.special.expit(-f[..., 0])
        ),
        lambda rng, shape: rng.beta(3.0, 3.0, shape),
    ),
    of_gpflow(
        lambda: gpflow.likelihoods.Bernoulli(invlink=cloglog),
        lambda f, y: np.log(
            np.where(y > 0, -np.expm1(-np.exp(f[..., 0])), np.exp(-np.exp(f[..., 0])))
        ),
        lambda rng, shape: rng.integers(2, size=shape),
    ),
    of_gpflow(
        lambda: gpflow.likelihoods.MultiClass(3, invlink=gpflow.likelihoods.RobustMax(3, 0.3)),
        lambda f, y: np.log(np.where(y == np.argmax(f, -1), 0.7, 0.15)),
        lambda rng, shape: rng.integers(3, size=shape),
        3,
    ),
    of_gpflow(
        lambda: gpflow.likelihoods.Softmax(3),
        lambda f, y: (
            np.sum(f * (y[..., None] == np.arange(3)), -1) - scipy.special.logsumexp(f, -1)
        ),
        lambda rng, shape: rng.integers(3, size=shape),
        3,
    ),
    of_gpflow(
        lambda: gpflow.likelihoods.HeteroskedasticTFPConditional(tfp.distributions.Normal, tf.exp),
        lambda f, y: scipy.stats.norm.logpdf(y, f[..., 0], np.exp(f[..., 1])),
        lambda rng, shape: rng.normal(size=shape),
        2,
    ),
]
ALL: list[AnyCase] = [*AUGMENTED, *ZOO, *OF_GPFLOW]

# The others, and so all new ones, are slow tests.
BY_DEFAULT = (
    "Laplace",
    "Logistic",
    "Poisson with exposure",
    "Exponential",
    "ZeroTruncated Poisson",
    "Hurdle Poisson, gate GP",
    "Ordinal, logit",
    "Warped Interval, Log",
    "Weighted StudentT",
)

# What has no law of y at a new x, and the words for it.
REFUSED = {
    "CoxProcess": "a row is a point or a node, and has no",
    "Switched": "must be one part of Switched .*, as a column of Y chooses the part",
}


def marks_of(case: AnyCase) -> list[pytest.MarkDecorator]:
    is_dear = bool(getattr(case, "mark", ""))  # numerical noise: minutes for all that is below
    return [pytest.mark.slow] + [pytest.mark.replicate] * is_dear


@pytest.fixture(
    params=[
        pytest.param(case, id=case.name, marks=[] if case.name in BY_DEFAULT else marks_of(case))
        for case in ALL
    ]
)
def case(request: pytest.FixtureRequest) -> AnyCase:
    return request.param


# Survival and densities of one column are not those of the row.
TWO_COLUMNS = ("MultivariateStudentT", "Missing StudentT")
one_column = pytest.mark.applies_to("case", lambda case: case.name not in TWO_COLUMNS)

has_law = pytest.mark.applies_to("case", lambda case: case.name not in REFUSED)


def model_of(case: AnyCase, sd: float = 0.0) -> AugmentedSVGP:
    """A model whose q is the prior: f is ``F``, or has the standard deviation ``sd``."""
    L = getattr(case, "num_latents", 1)
    return AugmentedSVGP(
        gpflow.kernels.SquaredExponential(variance=sd**2 or 1e-20),
        case.make(),
        np.array([[0.0], [1.0]]),
        num_latent_gps=L,
        num_data=len(X),
        mean_function=gpflow.functions.Constant(F[:L]),
    )


@pytest.mark.briefly("Switched")
@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_law_of_a_new_y_says_so(name: str) -> None:
    model = model_of(next(case for case in ALL if case.name == name))
    for function in (
        lambda: predict_y_quantile(model, X, 0.5),
        lambda: predict_y_samples(model, X, 2),
        lambda: predict_of_f(model, X, survival_at([1.0])),
        lambda: predict_of_f(model, X, hazard_at([1.0])),
    ):
        with pytest.raises((ValueError, NotImplementedError), match=REFUSED[name]):
            function()


def quantiles(model: AugmentedSVGP) -> AnyNDArray:
    """The first column of y [Q]; the smaller of two labels is −1, as in ``labels``."""
    y = predict_y_quantile(model, X, LEVELS).numpy()[:, 0, 0]
    labels = model.likelihood.labels
    return np.where(y == 0.0, -1.0, y) if labels is not None and -1.0 in labels else y


def check_quantiles(law: Law, found: AnyNDArray, tolerance: float) -> None:
    for level, y in zip(LEVELS, found, strict=True):
        below, above = law.tails(y)
        if law.values is None and level < 0.5:
            assert below == pytest.approx(level, rel=tolerance)
        elif law.values is None:  # the cdf is rounded
            rounding = 5e-16 / (1.0 - level)
            assert above == pytest.approx(1.0 - level, rel=tolerance + rounding)
        else:
            assert y in law.values
            assert above <= (1.0 - level) * (1.0 + 1e-3)
            smaller = law.values[law.values < y]
            if len(smaller):
                assert law.tails(smaller[-1])[1] > (1.0 - level) * (1.0 - 1e-3)


@pytest.mark.briefly("Hurdle Poisson, gate GP")
@pytest.mark.by_default("Laplace", "Exponential", "Ordinal, logit", "Hurdle Poisson, gate GP")
@has_law
def test_quantiles_have_their_levels_in_both_tails(case: AnyCase) -> None:
    model = model_of(case)
    check_quantiles(Law(case, model.likelihood, X[0, 0], 0.0), quantiles(model), 1e-6)


@pytest.mark.by_default("StudentT", "Weibull with censoring", "NegativeBinomial")
@pytest.mark.slow
@pytest.mark.applies_to("case", lambda case: getattr(case, "num_latents", 1) == 1)
@has_law
def test_quantiles_have_their_levels_in_both_tails_if_f_is_uncertain(case: AnyCase) -> None:
    """The oracle's sum over f is rough where a density has a kink."""
    model = model_of(case, 0.8)
    check_quantiles(Law(case, model.likelihood, X[0, 0], 0.8), quantiles(model), 2e-3)


# ---- survival and hazard ----


def exact_rows(case: AnyCase, model: AugmentedSVGP, y: AnyNDArray) -> AnyNDArray:
    """Rows of Y with these y [Q], and 0.2 in a second column of y."""
    num_y = model.num_observed - model.likelihood.num_given
    columns = [y, np.full_like(y, 0.2)][:num_y]
    return model.likelihood.as_observed(tf.constant(np.stack(columns, -1))).numpy()


@pytest.mark.briefly("Laplace")
@pytest.mark.by_default("Laplace", "Exponential", "ZeroTruncated Poisson", "Warped Interval, Log")
@has_law
@one_column
def test_survival_and_hazard_have_their_digits_in_the_tail(case: AnyCase) -> None:
    """Also three times as far from the median as the quantile of 1 − 1e-12."""
    model = model_of(case)
    law = Law(case, model.likelihood, X[0, 0], 0.0)
    y = quantiles(model)
    if law.values is None and np.isinf(law.ends[1]):
        y = np.append(y, 4.0 * y[-1] - 3.0 * y[2])
    expected = np.array([law.tails(t)[1] for t in y])
    survival = predict_of_f(model, X, survival_at(y), [0.5], num_samples=1)[0, 0]
    np.testing.assert_allclose(survival, expected, rtol=1e-6, atol=1e-250)
    if model.likelihood.is_density:
        y, expected = y[expected > 0.0], expected[expected > 0.0]  # not the last label
        hazard = predict_of_f(model, X, hazard_at(y), [0.5], num_samples=1)[0, 0]
        p = np.exp([law.log_density(t) for t in y])
        np.testing.assert_allclose(hazard, p / expected, rtol=1e-5)  # a floor blunts a cusp
    if law.ends[0] >= 0.0:
        before = predict_of_f(model, X, survival_at([-1.0, -0.5]), [0.5], num_samples=1)[0, 0]
        np.testing.assert_array_equal(before, 1.0)
        before = predict_of_f(model, X, hazard_at([-1.0, -0.5]), [0.5], num_samples=1)[0, 0]
        np.testing.assert_array_equal(before, 0.0)


# ---- what y may be ----

CANDIDATES = (np.nan, -1.0, 0.0, 0.5, 1.0, 1.5, 7.0, 8.0)
CALLS: dict[str, Callable[[AugmentedSVGP, AnyNDArray, AnyNDArray], Any]] = {
    "model.predict_log_density": lambda model, X, Y: model.predict_log_density((X, Y)),
    "predict_log_density": lambda model, X, Y: predictions.predict_log_density(model, (X, Y)),
    "predict_y_cdf": lambda model, X, Y: predict_y_cdf(model, X, Y),
    "pit": lambda model, X, Y: pit(model, (X, Y)),
    "loo": lambda model, X, Y: loo(model, (X, Y)),
    "fit": lambda model, X, Y: fit(model, (X, Y), progress=False),
}


def error_of(call: Callable[..., Any], *args: Any) -> str:
    """The words of the ``ValueError`` that the call raises, in lower case; "" if it raises none."""
    try:
        call(*args)
    except ValueError as error:
        return str(error).lower()
    return ""


@pytest.mark.slow
@pytest.mark.by_default("Laplace")
@has_law
@one_column
@pytest.mark.filterwarnings("ignore:q is not at its optimum")
def test_what_fit_refuses_all_refuse_and_what_it_accepts_has_its_probability(case: AnyCase) -> None:
    """As f is known, leaving a datum out changes nothing."""
    model = model_of(case)
    law = Law(case, model.likelihood, X[0, 0], 0.0)
    accepted, log_p, cdf = [], [], []
    for y in CANDIDATES:
        Y = exact_rows(case, model, np.array([y]))
        words = error_of(lambda Y=Y: as_arrays(model.expected_data, (X, Y)))
        if words:
            assert {name: error_of(call, model, X, Y) for name, call in CALLS.items()} == (
                dict.fromkeys(CALLS, words)
            )
            continue
        textbook = -1.0 if y == 0.0 and law.ends == (-1.0, 1.0) else y  # the other coding
        if textbook not in accepted:
            accepted.append(textbook)
            log_p.append(law.log_density(textbook))
            cdf.append(law.tails(textbook)[0])
    assert np.all(np.isfinite(log_p)), f"some of {accepted} are impossible"
    Y, inputs = exact_rows(case, model, np.array(accepted)), np.repeat(X, len(accepted), 0)
    model.num_data = len(accepted)
    found = {name: call(model, inputs, Y) for name, call in CALLS.items() if name != "fit"}
    for name in ("model.predict_log_density", "predict_log_density"):
        np.testing.assert_allclose(found[name], log_p, rtol=1e-7, atol=1e-5)
    np.testing.assert_allclose(found["loo"].loo_i, log_p, rtol=1e-5, atol=1e-5)
    cdf = np.array(cdf)
    # GPflow's MultiClass squeezes the probabilities by 1e-6.
    np.testing.assert_allclose(found["predict_y_cdf"][:, 0], cdf, rtol=1e-5, atol=1e-12)
    least = cdf - np.exp(log_p) if law.values is not None else cdf
    assert np.all((least - 1e-6 <= found["pit"][:, 0]) & (found["pit"][:, 0] <= cdf + 1e-6))


@pytest.mark.parametrize(
    ("likelihood", "y"),
    [
        (gpflow.likelihoods.Poisson(), 1.5),
        (gpflow.likelihoods.Exponential(), -1.0),
        (gpflow.likelihoods.Bernoulli(), 0.5),
        (gpflow.likelihoods.Ordinal(np.array([-0.5, 0.5])), 3.0),
        (gpflow.likelihoods.Softmax(3), 3.0),
    ],
    ids=lambda value: type(value).__name__,
)
def test_gpflows_own_models_are_given_what_fit_accepts(
    likelihood: gpflow.likelihoods.Likelihood, y: float
) -> None:
    model = gpflow.models.SVGP(
        gpflow.kernels.SquaredExponential(),
        likelihood,
        X,
        num_latent_gps=likelihood.latent_dim or 1,
    )
    rows = X, np.full_like(X, y)
    for data in (rows, tf.data.Dataset.from_tensors(rows)):
        with pytest.raises(ValueError, match=f"Y must .* Found: .*{y:g}"):
            predictions.predict_log_density(model, data)
    with pytest.raises(ValueError, match=f"[yY] must .* Found: .*{y:g}"):
        predict_y_cdf(model, X, np.full_like(X, y))


# ---- one by one ----


@pytest.mark.briefly("9")
@pytest.mark.parametrize("num_grades", [2, 3, 5, 6, 7, 9])
def test_ordinal_quantiles_of_any_number_of_grades(num_grades: int) -> None:
    """The oracle: the number of edges below the normal quantile of z = f + e."""
    edges = np.linspace(-1.5, 2.0, num_grades - 1)
    levels = [1e-3, 0.05, 0.3, 0.5, 0.9, 0.999, 1.0 - 1e-12]
    model = model_of(AUGMENTED[0])
    model.likelihood = Ordinal(edges, 0.7)
    expected = np.searchsorted(edges, F[0] + 0.7 * scipy.stats.norm.ppf(levels))
    found = predict_y_quantile(model, X, levels).numpy()[:, 0, 0]
    np.testing.assert_array_equal(found, expected)


def test_a_label_beyond_the_last_has_the_cdf_1_and_below_the_first_0() -> None:
    for likelihood in (Ordinal([-0.5, 0.5]), Softmax(3)):
        f = np.zeros((4, 1 if isinstance(likelihood, Ordinal) else 3))
        y = np.array([[-1.0], [-0.5], [2.5], [30.0]])
        np.testing.assert_array_equal(likelihood.cdf(f, f, y)[:, 0], [0.0, 0.0, 1.0, 1.0])


@pytest.mark.parametrize(
    ("likelihood", "law"),
    [
        (NegativeBinomial(3.0), scipy.stats.nbinom(3.0, scipy.special.expit(-0.4))),
        (Poisson(9.0), scipy.stats.poisson(9.0 * scipy.special.expit(0.4))),
        (Binomial(5), scipy.stats.binom(5, scipy.special.expit(0.4))),
        (Exponential(2.0), scipy.stats.expon(scale=0.5 / scipy.special.expit(0.4))),
        (Gamma(2.0, 1.3), scipy.stats.gamma(1.3, scale=0.5 / scipy.special.expit(0.4))),
        (augmented(gpflow.likelihoods.Poisson()), scipy.stats.poisson(np.exp(0.4))),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_cdf_is_a_cdf_at_every_number(likelihood: AugmentedLikelihood, law: Any) -> None:
    """0 below the support, right-continuous between counts; P(y' > y) is the rest."""
    y = np.array([-3.0, -1.0, -0.5, 0.0, 0.9, 1.0, 1.5, 4.0, 5.0, 7.3, 60.0])[:, None]
    f = np.full_like(y, 0.4)
    if "stock" not in type(likelihood).__module__:  # TFP interpolates between counts
        np.testing.assert_allclose(likelihood.cdf(f, f, y), law.cdf(y), rtol=1e-12)
    of_f = likelihood.predict_cdf(f, f, np.full_like(f, 1e-20), np.floor(y))
    np.testing.assert_allclose(of_f, law.cdf(np.floor(y)), rtol=1e-10)
    above = np.exp(likelihood.log_survival(f, f, np.floor(y)))
    np.testing.assert_allclose(above, law.sf(np.floor(y)), rtol=1e-10)


def test_pit_of_zero_truncated_counts_is_below_the_probability_of_1_where_y_is_1() -> None:
    Y = np.array([1.0, 2.0, 3.0, 1.0, 4.0, 2.0])[:, None]
    rate = 5.0 * scipy.special.expit(F[0])
    law = scipy.stats.poisson(rate)
    low, high = ((law.cdf(Y - k) - law.cdf(0)) / law.sf(0) for k in (1.0, 0.0))
    model = model_of(AUGMENTED[0])
    model.likelihood = ZeroTruncated(Poisson(5.0))
    values = np.stack([pit(model, (np.repeat(X, 6, 0), Y), seed=seed) for seed in range(20)])
    assert np.all((low - 1e-9 <= values) & (values <= high + 1e-9))
    assert np.all(np.ptp(values, 0) > 0.5 * (high - low))
    histogram, _ = plot_calibration(
        model, (np.repeat(X, 6, 0), Y), axes=Figure().subplots(1, 2), num_bins=3
    )
    assert sum(patch.get_height() for patch in histogram.patches[-3:]) == pytest.approx(3.0)


def test_a_constant_hazard_is_constant_at_any_time() -> None:
    f = tf.constant([[[3.0]]], tf.float64)
    times = [0.0, 1.0, 30.0, 36.0, 38.0, 60.0, 1e6]
    for likelihood in (Exponential(1.0, with_censoring=True), Weibull(1.0, 1.0), Gamma(1.0, 1.0)):
        found = hazard_at(times)(likelihood, X, f)[0, 0]
        np.testing.assert_allclose(found, scipy.special.expit(3.0), rtol=1e-9)
        survival = survival_at(times)(likelihood, X, f)[0, 0]
        expected = np.exp(-scipy.special.expit(3.0) * np.array(times))
        np.testing.assert_allclose(survival, expected, rtol=1e-9)


@pytest.mark.parametrize(("shape", "at_0"), [(0.5, np.inf), (2.0, 0.0)])
def test_the_hazard_at_time_0_is_its_limit(shape: float, at_0: float) -> None:
    f = tf.constant([[[3.0]]], tf.float64)
    for likelihood in (Weibull(1.0, shape), Gamma(1.0, shape)):
        found = hazard_at([-1.0, 0.0])(likelihood, X, f)[0, 0]
        np.testing.assert_array_equal(found, [0.0, at_0])


@pytest.mark.parametrize(
    ("link", "law"), [("probit", scipy.stats.norm), ("logit", scipy.stats.logistic)]
)
def test_the_hazard_of_a_time_whose_logarithm_is_censored(link: str, law: Any) -> None:
    """p(t)/S(t) by SciPy's logarithms, where S(t) is 1e-14, 1e-40 and less than a float."""
    times = np.array([0.5, 10.0, 12.0, 20.0, 1e9])
    z = np.log(times) / 0.3
    expected = np.exp(law.logpdf(z) - law.logsf(z)) / (0.3 * times)
    likelihood = Warped(Interval(link, 0.3), warps.Log())
    found = hazard_at(times)(likelihood, X, tf.zeros([1, 1, 1], tf.float64))[0, 0]
    np.testing.assert_allclose(found, expected, rtol=1e-9)


@pytest.mark.by_default("Matern32")
@pytest.mark.parametrize(
    "base", [LogisticNoise(0.3), Matern32(0.3), GeneralizedGaussian(0.3, 1.3)], ids=type
)
def test_quantiles_of_warped_noise_are_warped_quantiles(base: AugmentedLikelihood) -> None:
    model = model_of(AUGMENTED[0], 0.8)
    model.likelihood = base
    expected = np.exp(predict_y_quantile(model, X, LEVELS))
    model.likelihood = Warped(base, warps.Log())
    np.testing.assert_allclose(predict_y_quantile(model, X, LEVELS), expected, rtol=1e-6)


def test_a_compiled_prediction_is_not_checked_and_remains_what_it_was() -> None:
    model = model_of(AUGMENTED[0])
    model.likelihood = NegativeBinomial(2.0)
    compiled = tf.function(model.predict_log_density, autograph=False)
    data = tf.constant(X), tf.constant([[3.0]], tf.float64)
    np.testing.assert_allclose(compiled(data), model.predict_log_density(data), rtol=1e-12)
    graph = compiled.get_concrete_function(data).graph
    assert not any("Assert" in operation.type for operation in graph.get_operations())


def test_probabilities_of_a_pseudo_likelihood_sum_to_one() -> None:
    p = probabilities(BayesianSVM(), X, tf.constant(F[:, None, None]))
    odds = np.exp(2.0 * (np.maximum(0.0, 1.0 + F) - np.maximum(0.0, 1.0 - F)))  # of y = 1
    np.testing.assert_allclose(p[:, 0, 1], odds / (1.0 + odds), rtol=1e-12)


def test_a_smallest_y_has_a_tail_in_float32() -> None:
    with gpflow.config.as_context(gpflow.config.Config(float=np.float32)):
        y = np.array([[-1.0], [0.0], [3.0], [90.0]], np.float32)
        f = np.full_like(y, 0.4)
        for make, law in (
            (lambda: Poisson(9.0), scipy.stats.poisson(9.0 * scipy.special.expit(0.4))),
            (lambda: Gamma(2.0, 1.3), scipy.stats.gamma(1.3, scale=0.5 / scipy.special.expit(0.4))),
            (lambda: Matern32(0.5), None),
        ):
            likelihood = make()
            log_survival, cdf = likelihood.log_survival(f, f, y), likelihood.cdf(f, f, y)
            assert log_survival.dtype == cdf.dtype == tf.float32
            np.testing.assert_allclose(cdf, -np.expm1(log_survival), atol=1e-6)
            if law is not None:
                np.testing.assert_allclose(log_survival[:3], law.logsf(y[:3]), rtol=1e-4, atol=1e-6)
