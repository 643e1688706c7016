"""Counts, waiting times and points of a bounded rate λσ(f)."""

import itertools
from collections.abc import Callable

import gpflow
import numpy as np
import pytest
import scipy.integrate
import scipy.special
import scipy.stats
import tensorflow as tf
from gpflow.base import AnyNDArray

import gpflow_aaci
from gpflow_aaci import AugmentedSVGP, likelihoods
from gpflow_aaci.criticism.calibration import pit
from gpflow_aaci.likelihoods import CoxProcess, Exponential, Gamma, Poisson, Rate, Weibull

N = 8
RNG = np.random.default_rng(4)
X = np.linspace(-1.0, 1.0, N)[:, None]
FMU, FVAR = RNG.normal(size=(N, 1)), RNG.uniform(0.1, 2.0, size=(N, 1))
TIME = RNG.exponential(size=(N, 1))
IS_OBSERVED = (np.arange(N) % 3 > 0).astype(float)[:, None]
CENSORED = np.hstack([TIME, IS_OBSERVED])
COUNT = RNG.poisson(4.0, size=(N, 1)).astype(float)


def values_of(likelihood: Rate, Y: AnyNDArray) -> list[AnyNDArray]:
    """log p, the bound, and the two expectations of every datum."""
    bound = likelihood.bound(*map(tf.constant, (X, FMU, FVAR, Y)))
    args = X, FMU, FVAR, Y
    expected = likelihood.variational_expectations(*args), likelihood.predict_log_density(*args)
    return [np.asarray(v) for v in (likelihood.log_prob(X, FMU, Y), bound, *expected)]


def test_an_exposure_multiplies_the_rate() -> None:
    with_exposure = values_of(Poisson(6.0, with_exposure=True), np.insert(COUNT, 1, 2.5, axis=1))
    np.testing.assert_allclose(with_exposure, values_of(Poisson(15.0), COUNT), rtol=1e-12)


def test_counts_in_parts_of_an_exposure_tell_as_much_as_their_sum() -> None:
    """Rows (1, 0.5) and (3, 2) at one f differ from (4, 2.5) by a binomial probability only."""
    likelihood = Poisson(6.0, with_exposure=True)
    first, second, both = (
        np.array(values_of(likelihood, np.tile(row, (N, 1))))[:3]  # what is linear in log p
        for row in ([1.0, 0.5], [3.0, 2.0], [4.0, 2.5])
    )
    log_share = scipy.stats.binom.logpmf(1, 4, 0.2)
    np.testing.assert_allclose(first + second, both + log_share, rtol=1e-12, atol=1e-12)


def test_an_exponential_law_is_weibulls_of_shape_1() -> None:
    pair = Exponential(3.0, with_censoring=True), Weibull(3.0, 1.0, with_censoring=True)
    found, expected = (values_of(each, CENSORED) for each in pair)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    found, expected = (each.predict_mean_and_var(X, FMU, FVAR) for each in pair)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    np.testing.assert_allclose(values_of(Exponential(3.0), TIME), values_of(Gamma(3.0), TIME))


@pytest.mark.parametrize(
    ("make", "k", "Y"),
    [
        (lambda rate: Exponential(rate), 1.0, TIME),
        (lambda rate: Weibull(rate, 1.7, with_censoring=True), 1.7, CENSORED),
        (lambda rate: Gamma(rate, 2.5), 1.0, TIME),
    ],
    ids=["Exponential", "Weibull", "Gamma"],
)
def test_the_unit_of_time_adds_its_logarithm_only(
    make: Callable[[float], Rate], k: float, Y: AnyNDArray
) -> None:
    """For y 60 times as large, and λ/60^k, densities are 60 times smaller, unless censored."""
    in_other = Y * np.array([60.0, 1.0])[: Y.shape[1]]
    found = np.array(values_of(make(3.0 / 60.0**k), in_other))
    is_observed = Y[:, 1] if Y.shape[1] == 2 else np.ones(N)
    expected = np.array(values_of(make(3.0), Y)) - is_observed * np.log(60.0)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def test_probabilities_of_waiting_times_are_scipys() -> None:
    likelihood = Weibull(3.0, 1.7, with_censoring=True)
    law = scipy.stats.weibull_min(1.7, scale=(3.0 * scipy.special.expit(FMU)) ** (-1.0 / 1.7))
    for y in (1e-6 * TIME, TIME):  # a censored event may come at any later time
        Y = np.hstack([y, IS_OBSERVED])
        expected = np.where(IS_OBSERVED == 1.0, law.cdf(y), 1.0)
        np.testing.assert_allclose(likelihood.cdf(X, FMU, Y), expected, rtol=1e-11)
    moments = likelihood.conditional_mean(X, FMU), likelihood.conditional_variance(X, FMU)
    np.testing.assert_allclose(moments, [law.mean(), law.var()], rtol=1e-9)


@pytest.mark.briefly(
    "Weibull, 0.6-2.0", "Exponential-2.0", "Weibull, 0.6-0.3", "Gamma-2.0", "Exponential-6.0"
)
@pytest.mark.parametrize("sd", [0.3, 2.0, 6.0])
@pytest.mark.parametrize(
    ("likelihood", "alpha", "k"),
    [
        (Exponential(3.0), 1.0, 1.0),
        (Weibull(3.0, 2.2), 1.0, 2.2),
        (Weibull(3.0, 0.6), 1.0, 0.6),
        (Gamma(3.0, 2.5), 2.5, 1.0),
    ],
    ids=["Exponential", "Weibull", "Weibull, 0.6", "Gamma"],
)
def test_predicted_moments_of_heavy_tails(
    likelihood: Rate, alpha: float, k: float, sd: float
) -> None:
    """Against an integral over f about where each moment's integrand lies, in f's far tail."""
    mean = 0.4

    def moment(j: int) -> float:
        def integrand(f: float) -> float:
            log_rate = np.log(3.0) + scipy.special.log_expit(f)
            return float(np.exp(scipy.stats.norm.logpdf(f, mean, sd) - j / k * log_rate))

        edges = mean + sd * np.arange(-12, 11, 2) - (j / k * sd**2) * np.arange(2)[:, None]
        edges = np.unique(edges)
        parts = [scipy.integrate.quad(integrand, *pair)[0] for pair in itertools.pairwise(edges)]
        return sum(parts) * scipy.special.poch(alpha, j / k)

    args = (np.array([[v]]) for v in (0.0, mean, sd**2))
    found_mean, found_variance = likelihood.predict_mean_and_var(*args)
    np.testing.assert_allclose(found_mean, moment(1), rtol=1e-6)
    np.testing.assert_allclose(found_variance, moment(2) - moment(1) ** 2, rtol=1e-6)


def test_moments_that_overflow_are_infinite() -> None:
    one = np.ones((1, 1))
    mean, variance = Gamma(3.0, 2.0).predict_mean_and_var(one, one, 3000.0 * one)
    assert np.isposinf(mean)
    assert np.isposinf(variance)


# ---- point processes ----


def intensity_model(likelihood: Rate, num_data: int) -> AugmentedSVGP:
    """A model of fixed q, smooth on [0, 4]."""
    model = AugmentedSVGP(
        gpflow.kernels.SquaredExponential(lengthscales=0.8),
        likelihood,
        np.linspace(0.0, 4.0, 7)[:, None],
        num_data=num_data,
    )
    model.q_mu.assign(np.random.default_rng(2).normal(size=(7, 1)))
    model.q_sqrt.assign(0.4 * np.eye(7)[None])
    return model


def of_points(points: AnyNDArray, num_nodes: int) -> tuple[AnyNDArray, AnyNDArray]:
    """Points in [0, 4] and nodes in the middle of as many bins."""
    nodes = (np.arange(num_nodes)[:, None] + 0.5) * 4.0 / num_nodes
    is_point = np.arange(len(points) + num_nodes) < len(points)
    weight = np.where(is_point, 0.0, 4.0 / num_nodes)
    return np.vstack([points, nodes]), np.stack([is_point, weight], -1).astype(float)


@pytest.mark.parametrize("name", ["elbo", "augmented_elbo"])
@pytest.mark.replicate
def test_counts_in_ever_smaller_bins_are_a_cox_process(name: str) -> None:
    """
    At the same q, the error of their ELBO, in the mean square over points, falls with the width.

    A count has y! times the probability of its points in their order, and the unit of a density.
    """
    rng, widths, errors = np.random.default_rng(1), (0.5, 0.125, 0.03125), []
    for _ in range(8):
        points = rng.uniform(0.0, 4.0, size=(60, 1))
        data = of_points(points, 1_000)
        expected = getattr(intensity_model(CoxProcess(40.0), len(data[0])), name)(data)
        for width in widths:
            count, edges = np.histogram(points, round(4.0 / width), (0.0, 4.0))
            Y = np.stack([count, np.full(len(count), width)], -1).astype(float)
            binned = intensity_model(Poisson(40.0, with_exposure=True), len(count))
            found = getattr(binned, name)((edges[:-1, None] + width / 2.0, Y))
            of_order = np.sum(scipy.special.gammaln(count + 1.0)) - 60.0 * np.log(width)
            errors.append(found + of_order - expected)
    rms = np.sqrt(np.mean(np.reshape(errors, [8, 3]) ** 2, 0))
    assert rms[0] > 0.1
    assert np.all(rms[1:] < rms[:-1] / 2.0)


def test_what_a_cox_process_predicts_is_its_intensity() -> None:
    z, w = np.polynomial.hermite_e.hermegauss(100)
    rate = 9.0 * scipy.special.expit(FMU + np.sqrt(FVAR) * z)
    mean = rate @ w / w.sum()
    variance = (rate - mean[:, None]) ** 2 @ w / w.sum()
    found = CoxProcess(9.0).predict_mean_and_var(X, FMU, FVAR)
    np.testing.assert_allclose(np.hstack(found), np.stack([mean, variance], -1), rtol=1e-6)


def test_a_cox_process_has_no_y() -> None:
    X, Y = of_points(np.array([[0.3], [1.1]]), 20)
    model = intensity_model(CoxProcess(9.0), len(X))
    for predict in (
        lambda: gpflow_aaci.predictions.predict_y_samples(model, X, 3, progress=False),
        lambda: gpflow_aaci.predictions.predict_y_cdf(model, X, Y, progress=False),
        lambda: gpflow_aaci.predictions.predict_y_quantile(model, X, 0.5, progress=False),
    ):
        with pytest.raises(NotImplementedError, match="CoxProcess: a row is a point or a node"):
            predict()


@pytest.mark.slow
def test_a_cox_process_finds_the_intensity_of_its_points() -> None:
    """Of 1,200 simulated points (thinned): within 15 % of the truth on average."""
    rng = np.random.default_rng(3)
    candidates = rng.uniform(0.0, 4.0, size=(2_400, 1))

    def truth(x: AnyNDArray) -> AnyNDArray:
        return 300.0 * (1.0 + 0.8 * np.sin(2.5 * x))

    points = candidates[rng.uniform(0.0, 600.0, size=candidates.shape) < truth(candidates)]
    data = of_points(points[:, None], 200)
    model = AugmentedSVGP(
        gpflow.kernels.SquaredExponential(),
        CoxProcess(1000.0),
        np.linspace(0.0, 4.0, 15)[:, None],
        num_data=len(data[0]),
    )
    gpflow_aaci.fit(model, data, progress=False)
    x = np.linspace(0.2, 3.8, 50)[:, None]
    found = model.predict_y(x)[0].numpy()
    assert np.mean(np.abs(found - truth(x))) < 0.15 * 300.0
    integral = 4.0 * np.mean(model.predict_y(np.linspace(0.0, 4.0, 400)[:, None])[0])
    assert integral == pytest.approx(len(points), rel=0.03)


# ---- edges ----


@pytest.mark.briefly("Gamma-float32")
@pytest.mark.by_default("CoxProcess", "Gamma")
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(
    ("make", "Y"),
    [
        (lambda: CoxProcess(9.0), [[1.0, 0.0], [0.0, 0.0], [0.0, 0.3]]),
        (lambda: Poisson(9.0, with_exposure=True), [[0.0, 1e-8], [3.0, 1e-8], [0.0, 1e4]]),
        (
            lambda: Weibull(9.0, 1.7, with_censoring=True),
            [[1e-6, 0.0], [1e-6, 1.0], [1e3, 0.0]],
        ),
        (lambda: Gamma(9.0, 0.3), [[1e-6], [1.0], [1e4]]),
    ],
    ids=["CoxProcess", "Poisson", "Weibull", "Gamma"],
)
@pytest.mark.by_default("float32")
def test_values_and_slopes_are_finite(
    make: Callable[[], Rate], Y: list[list[float]], dtype: type
) -> None:
    """Also where a or e is 0, f is certain or far away, and for hyperparameters given n and ω."""
    with gpflow.config.as_context(gpflow.config.Config(float=dtype)):
        likelihood, y = make(), tf.tile(tf.constant(Y, dtype)[None], [3, 1, 1])
        Fmu, Fvar = (
            tf.constant(each, dtype)[:, None, None] + tf.zeros_like(y[..., :1])
            for each in ([0.3, -30.0, 30.0], [0.0, 1.0, 25.0])
        )
        auxiliary = likelihood.full_conditional(None, Fmu[:1], y[:1]).sample(seed=[1, 2])
        with tf.GradientTape(persistent=True) as tape:
            tape.watch([Fmu, Fvar])
            values = [
                likelihood.bound(Fmu, Fmu, Fvar, y),
                likelihood.variational_expectations(Fmu, Fmu, Fvar, y),
                likelihood.predict_log_density(Fmu, Fmu, Fvar, y),
                likelihood.log_joint(None, auxiliary, Fmu[:1], y[:1]),
            ]
        for value in values:
            assert np.all(np.isfinite(value))
            assert value.dtype == dtype
            sources = [Fmu, Fvar, *likelihood.trainable_variables]
            slopes = tape.gradient(value, sources, unconnected_gradients="zero")
            assert all(np.all(np.isfinite(slope)) for slope in slopes)


def test_the_median_of_a_censored_model_is_that_of_the_event() -> None:
    model = intensity_model(Weibull(3.0, 1.7, with_censoring=True), N)
    model.q_sqrt.assign(1e-6 * np.eye(7)[None])
    x = model.inducing_variable.Z.numpy()  # where f is all but certain
    rate = 3.0 * scipy.special.expit(model.predict_f(x)[0])
    median = gpflow_aaci.predictions.predict_y_quantile(model, x, 0.5, progress=False)
    np.testing.assert_allclose(median[0], (np.log(2.0) / rate) ** (1.0 / 1.7), rtol=1e-4)


@pytest.mark.parametrize(
    "stock",
    [gpflow.likelihoods.Exponential, gpflow.likelihoods.Gamma, gpflow.likelihoods.Poisson],
)
def test_gpflows_likelihoods_of_the_same_names_stay_its_own(stock: type) -> None:
    found = likelihoods.augmented(stock())
    assert isinstance(found, stock)
    assert not found.is_augmented


@pytest.mark.parametrize(
    ("likelihood", "row", "message"),
    [
        (
            Poisson(with_exposure=True),
            [1.5, 1.0],
            r"Column 1 of Y must hold whole numbers.*Poisson.*1\.5",
        ),
        (Poisson(with_exposure=True), [1.0, 0.0], "The exposure, column 2 .* positive.*0"),
        (Exponential(), [0.0], "Y must be positive for Exponential.*0"),
        (Gamma(), [-1.0], "Y must be positive for Gamma.*-1"),
        (Weibull(with_censoring=True), [0.0, 1.0], "Column 1 of Y must be positive for Weibull"),
        (Weibull(with_censoring=True), [1.0, 0.5], r"observed, column 2 of Y,.* 0 or 1.*0\.5"),
        (CoxProcess(), [2.0, 0.0], "is a point, column 1 of Y, must be 0 or 1.*2"),
        (CoxProcess(), [0.0, -1.0], "The weight, column 2 .* at least 0 for a node.*-1"),
        (CoxProcess(), [1.0, 0.5], r"The weight, column 2 .* 0 for a point.*0\.5"),
    ],
)
def test_rows_that_are_refused(likelihood: Rate, row: list[float], message: str) -> None:
    good = [0.0, 1.0] if isinstance(likelihood, CoxProcess) else [1.0] * len(row)
    Y = np.array([good, row])
    model = AugmentedSVGP(gpflow.kernels.Matern32(), likelihood, X[:2], num_data=2)
    with pytest.raises(ValueError, match=message):
        model.augmented_elbo((X[:2], Y))


@pytest.mark.parametrize(
    "make",
    [
        lambda: Exponential(0.0),
        lambda: Weibull(1.0, -1.0),
        lambda: Gamma(np.inf),
        lambda: CoxProcess(np.nan),
        lambda: Poisson([1.0, 2.0]),
    ],
)
def test_parameters_that_are_refused(make: Callable[[], Rate]) -> None:
    with pytest.raises(ValueError, match=r"(max_rate|shape) must be finite and above"):
        make()


@pytest.mark.replicate
def test_fit_of_censored_times_ends_no_lower_than_gpflow_with_the_same_likelihood() -> None:
    """300 waiting times of shape 1.6, a third of them censored; k is found, too."""
    rng = np.random.default_rng(6)
    X = rng.uniform(-2.0, 2.0, size=(300, 1))
    rate = 4.0 * scipy.special.expit(2.0 * np.sin(2.0 * X))
    time = (rng.exponential(size=X.shape) / rate) ** (1.0 / 1.6)
    end = rng.exponential(1.5, size=X.shape)
    Y = np.hstack([np.minimum(time, end), time < end]).astype(float)
    ours, theirs = (
        make(
            gpflow.kernels.SquaredExponential(),
            Weibull(3.0, with_censoring=True),
            np.linspace(-2.0, 2.0, 12)[:, None],
            num_data=300,
        )
        for make in (AugmentedSVGP, gpflow.models.SVGP)
    )
    gpflow_aaci.fit(ours, (X, Y), progress=False)
    gpflow.optimizers.Scipy().minimize(
        theirs.training_loss_closure((X, Y)),
        theirs.trainable_variables,
        options={"maxiter": 2_000},
    )
    assert float(ours.elbo((X, Y))) > float(theirs.elbo((X, Y))) - 0.05
    assert ours.likelihood.shape.numpy() == pytest.approx(1.6, abs=0.3)


@pytest.mark.parametrize("likelihood", [Exponential(), Weibull(2.0, 1.7), Gamma(2.0, 3.0)])
def test_below_a_time_that_is_real_is_that_time(likelihood: Rate) -> None:
    """P(y' < y) = P(y' ≤ y); a row of a likelihood without further columns is that y alone."""
    Y: AnyNDArray = np.array([[0.3], [2.0]])
    np.testing.assert_array_equal(likelihood.next_below(Y), Y)
    model = gpflow_aaci.AugmentedVGP((Y, Y), gpflow.kernels.Matern52(), likelihood)
    found = pit(model)
    assert np.all((found > 0.0) & (found < 1.0))
