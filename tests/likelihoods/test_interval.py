"""Censored and ordered y, against SciPy, other likelihoods, and maximum likelihood."""

from typing import Any

import gpflow
import numpy as np
import pytest
import scipy.optimize
import scipy.special
import scipy.stats
import tensorflow as tf
from gpflow.base import AnyNDArray
from zoo import COARSENED, log_between

from gpflow_aaci import AugmentedNaturalGradient, AugmentedSVGP, AugmentedVGP, polish, predictions
from gpflow_aaci.likelihoods import (
    Gaussian,
    Interval,
    Logistic,
    LogisticNoise,
    Ordinal,
    Warped,
    warps,
)
from gpflow_aaci.likelihoods.outputwise import OutputwiseLikelihood

LAWS = {"probit": scipy.stats.norm, "logit": scipy.stats.logistic}
ROWS = np.array([[0.3, 0.3], [-np.inf, 0.2], [0.1, np.inf], [-1.0, 2.0], [0.5, 0.5 + 1e-3]])

each_link = pytest.mark.parametrize("link", LAWS)


def arguments(Y: AnyNDArray, seed: int = 0) -> list[tf.Tensor]:
    """X, Fmu, Fvar and Y."""
    rng = np.random.default_rng(seed)
    shape = (len(Y), 1)
    parts = np.zeros(shape), rng.normal(size=shape), rng.uniform(0.1, 2.0, size=shape), Y
    return [tf.constant(part, tf.float64) for part in parts]


def quantities(likelihood: OutputwiseLikelihood, args: list[tf.Tensor]) -> dict[str, AnyNDArray]:
    X, Fmu, _, Y = args
    mean_slope, variance_slope = likelihood.bound_slopes(*args)
    return {
        "log p": likelihood.log_prob(X, Fmu, Y).numpy(),
        "bound": likelihood.bound(*args).numpy(),
        "slope in the mean": mean_slope.numpy()[:, 0],
        "slope in the variance": variance_slope.numpy()[:, 0],
        "E log p": likelihood.variational_expectations(*args).numpy(),
        "log E p": likelihood.predict_log_density(*args).numpy(),
    }


@each_link
@pytest.mark.parametrize("distance", [-30.0, 0.0, 30.0])
def test_log_p_keeps_its_digits_far_out_and_has_finite_slopes(link: str, distance: float) -> None:
    likelihood = Interval(link, 0.4)
    X, _, Fvar, Y = arguments(ROWS)
    F = tf.constant(np.full((len(ROWS), 1), 0.3 + 0.4 * distance))
    expected = log_between(LAWS[link], F.numpy(), 0.4, ROWS)
    np.testing.assert_allclose(likelihood.log_prob(X, F, Y), expected, rtol=1e-10, atol=1e-13)
    scale = likelihood.scale.unconstrained_variable
    for of in (likelihood.bound, likelihood.variational_expectations):
        with tf.GradientTape() as tape:
            tape.watch([F, Fvar, scale])
            value = of(X, F, Fvar, Y)
        for slope in tape.gradient(value, [F, Fvar, scale]):
            assert np.all(np.isfinite(slope))


@each_link
def test_exact_rows_are_those_of_additive_noise(link: str) -> None:
    y = np.array([[0.3], [-2.0], [40.0]])
    noise = Gaussian(scale=0.7) if link == "probit" else LogisticNoise(0.7)
    likelihood, args = Interval(link, 0.7), arguments(y)
    of_rows = [*args[:3], likelihood.as_observed(args[3])]
    found, expected = quantities(likelihood, of_rows), quantities(noise, args)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-10, err_msg=name)
    X, Fmu, Fvar, _ = args
    of_cdf = [
        (each.cdf(X, Fmu, Y), each.predict_cdf(X, Fmu, Fvar, Y))
        for each, Y in ((likelihood, of_rows[3]), (noise, y))
    ]
    for found_cdf, expected_cdf in zip(*of_cdf, strict=True):
        np.testing.assert_allclose(found_cdf, expected_cdf, rtol=1e-9)
    for one, other in zip(
        likelihood.predict_mean_and_var(X, Fmu, Fvar),
        noise.predict_mean_and_var(X, Fmu, Fvar),
        strict=True,
    ):
        np.testing.assert_allclose(one, other, rtol=1e-12)


def test_one_sided_rows_of_logit_are_those_of_logistic() -> None:
    """With f in units of the scale, from the end."""
    ends, s = np.array([[0.3], [-2.0]]), 0.7
    X, Fmu, Fvar, _ = arguments(ends)
    infinite = np.full_like(ends, np.inf)
    for label, Y in ((1.0, np.hstack([ends, infinite])), (0.0, np.hstack([-infinite, ends]))):
        found = quantities(Interval("logit", s), [X, Fmu, Fvar, tf.constant(Y)])
        of_unit = [X, (Fmu - ends) / s, Fvar / s**2, label * tf.ones_like(X)]
        expected = quantities(Logistic(), of_unit)
        expected["slope in the mean"] /= s
        expected["slope in the variance"] /= s**2
        for name, value in expected.items():
            np.testing.assert_allclose(found[name], value, rtol=1e-10, err_msg=name)


def test_sites_of_logit_are_the_sums_of_two_logistic_ones() -> None:
    """Precision T(c_u) + T(c_l), potential u T(c_u) + l T(c_l), where T(c) = tanh(c/2)/2c."""
    lower, upper = np.array([[-1.0], [0.2]]), np.array([[2.0], [0.9]])
    args = arguments(np.hstack([lower, upper]))
    _, m, v, _ = (part.numpy() for part in args)
    mean_slope, variance_slope = Interval("logit", 1.0).bound_slopes(*args)
    c_u, c_l = (np.sqrt((end - m) ** 2 + v) for end in (upper, lower))
    T_u, T_l = np.tanh(c_u / 2) / (2 * c_u), np.tanh(c_l / 2) / (2 * c_l)
    np.testing.assert_allclose(-2.0 * variance_slope, T_u + T_l, rtol=1e-10)
    potential = mean_slope + (T_u + T_l) * m
    np.testing.assert_allclose(potential, upper * T_u + lower * T_l, rtol=1e-10)


def test_sites_of_probit_have_the_mean_of_a_truncated_normal() -> None:
    Y = ROWS[1:4]
    args = arguments(Y)
    mean_slope, variance_slope = Interval("probit", 0.7).bound_slopes(*args)
    m = args[1].numpy()
    ends = (Y - m) / 0.7
    z = scipy.stats.truncnorm.mean(ends[:, 0], ends[:, 1], m[:, 0], 0.7)
    np.testing.assert_allclose(-2.0 * variance_slope, 1.0 / 0.49, rtol=1e-12)
    np.testing.assert_allclose(mean_slope[:, 0] + m[:, 0] / 0.49, z / 0.49, rtol=1e-9)


@pytest.mark.briefly("0.0001-logit")
@each_link
@pytest.mark.parametrize("half", [1e-4, 1e-7])
def test_a_narrow_interval_is_its_width_times_the_density(link: str, half: float) -> None:
    """So are its bound and sites."""
    y = np.array([[0.3], [-2.0], [7.0]])
    args = arguments(y)
    likelihood = Interval(link, 0.7)
    exact = quantities(likelihood, [*args[:3], tf.constant(np.hstack([y, y]))])
    narrow = quantities(likelihood, [*args[:3], tf.constant(np.hstack([y - half, y + half]))])
    for name, value in exact.items():
        shift = 0.0 if "slope" in name else np.log(2.0 * half)
        np.testing.assert_allclose(narrow[name] - shift, value, rtol=1e-6, err_msg=name)


@pytest.mark.briefly("probit")
@each_link
def test_gibbs_draws_of_one_f_have_the_moments_of_quadrature(link: str) -> None:
    """Prior N(0.5, 1), 4,000 chains, for every kind of row."""
    likelihood, chains = Interval(link, 0.6), 4_000
    Y = tf.constant(ROWS)
    F = tf.random.stateless_normal([chains, len(ROWS), 1], [0, 1], dtype=tf.float64)

    @tf.function(autograph=False)
    def sweep(F: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        auxiliary = likelihood.full_conditional(None, F, Y).sample(seed=seed)
        potential, precision = likelihood.site(None, auxiliary, Y)
        noise = tf.random.stateless_normal(tf.shape(F), seed + 1, dtype=F.dtype)
        return (0.5 + potential) / (1.0 + precision) + noise / tf.sqrt(1.0 + precision)

    for turn in range(25):
        F = sweep(F, tf.constant([3, 2 * turn]))
    f = np.linspace(-7.5, 8.5, 4_001)[:, None, None]
    log_p = log_between(LAWS[link], f, 0.6, ROWS) - 0.5 * (f[..., 0] - 0.5) ** 2
    weight = np.exp(log_p - log_p.max(0))
    weight /= weight.sum(0)
    for power in (1, 2):
        moment, square = ((weight * f[..., 0] ** k).sum(0) for k in (power, 2 * power))
        error = (np.mean(F[..., 0] ** power, 0) - moment) / np.sqrt((square - moment**2) / chains)
        assert np.max(np.abs(error)) < 4.5


@each_link
def test_the_unit_of_y_is_of_no_account(link: str) -> None:
    """Ends, f and scale 1,000 times as large: only densities of exact y are 1,000 times less."""
    X, Fmu, Fvar, Y = arguments(ROWS)
    in_unit = quantities(Interval(link, 0.7), [X, Fmu, Fvar, Y])
    scaled = quantities(Interval(link, 700.0), [X, 1e3 * Fmu, 1e6 * Fvar, 1e3 * Y])
    for name in ("log p", "bound", "E log p", "log E p"):
        shift = np.where(ROWS[:, 0] == ROWS[:, 1], np.log(1e3), 0.0)
        np.testing.assert_allclose(scaled[name] + shift, in_unit[name], rtol=1e-9, err_msg=name)


@each_link
def test_a_label_is_the_interval_between_its_edges(link: str) -> None:
    edges = np.array([-0.7, 0.4, 1.1])
    ends = np.concatenate([[-np.inf], edges, [np.inf]])
    rows = np.stack([ends[:-1], ends[1:]], -1)
    args = arguments(rows)
    ordinal = Ordinal(edges, 0.6, link)
    found = quantities(ordinal, [*args[:3], tf.constant(np.arange(4.0)[:, None])])
    for name, value in quantities(Interval(link, 0.6), args).items():
        np.testing.assert_allclose(found[name], value, rtol=1e-12, err_msg=name)
    with tf.GradientTape() as tape:
        bound = tf.reduce_sum(ordinal.bound(*args[:3], tf.constant(np.arange(4.0)[:, None])))
    assert np.all(np.isfinite(tape.gradient(bound, ordinal.bin_edges.unconstrained_variable)))


@pytest.mark.parametrize("make", [Interval, lambda link: Ordinal([0.0, 1.0], link=link)])
def test_an_unknown_link_is_refused(make: type) -> None:
    with pytest.raises(ValueError, match=r"link must be one of .* Found: 'cauchit'"):
        make("cauchit")


# ---- survival ----


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ([np.nan, 1.0], "Y must be finite"),
        ([1.0, np.nan], "Y must be finite"),
        ([2.0, 1.0], "must have lower ≤ upper in every row"),
        ([-np.inf, np.inf], "must have a finite end in every row"),
        ([np.inf, np.inf], "must have a finite end in every row"),
        ([-1.0, 2.0], "must be from 0 to inf for the warp Log"),
        ([0.0, 0.0], "Y must be positive for the warp Log"),
    ],
)
@pytest.mark.parametrize("is_warped", [False, True])
def test_bad_rows_are_refused(row: list[float], message: str, is_warped: bool) -> None:
    likelihood = Warped(Interval(), warps.Log()) if is_warped else Interval()
    data = np.zeros((2, 1)), np.array([[1.0, 2.0], row])
    if "warp" in message and not is_warped:
        AugmentedVGP(data, gpflow.kernels.Matern32(), likelihood)
        return
    with pytest.raises(ValueError, match=message):
        AugmentedVGP(data, gpflow.kernels.Matern32(), likelihood)


@each_link
def test_warped_rows_are_probabilities_of_log_normal_and_log_logistic_times(link: str) -> None:
    s = 0.7
    Y = np.array([[0.0, 0.4], [0.5, 3.0], [2.0, np.inf], [1.7, 1.7]])
    X, F, _, _ = arguments(Y)
    f = F.numpy()[:, 0]
    if link == "probit":
        law = scipy.stats.lognorm(s, scale=np.exp(f))
    else:
        law = scipy.stats.fisk(1.0 / s, scale=np.exp(f))
    p = np.where(Y[:, 0] == Y[:, 1], law.pdf(Y[:, 0]), law.cdf(Y[:, 1]) - law.cdf(Y[:, 0]))
    likelihood = Warped(Interval(link, s), warps.Log())
    np.testing.assert_allclose(likelihood.log_prob(X, F, Y), np.log(p), rtol=1e-10)
    times = np.array([[0.0], [0.3], [2.0], [9.0]])
    survives = 1.0 - likelihood.cdf(X, F, likelihood.as_observed(times)).numpy()[:, 0]
    np.testing.assert_allclose(survives, law.sf(times[:, 0]), rtol=1e-9)


SHARES = np.array([[0, 0.4], [-np.inf, 0.4], [0.2, 0.6], [0.3, 1], [0.3, np.inf], [0.3, 0.3]])


@each_link
@pytest.mark.parametrize(("dtype", "rtol"), [(np.float64, 1e-6), (np.float32, 1e-3)])
def test_shares_of_which_an_end_is_0_or_1_have_finite_values_and_slopes(
    link: str, dtype: Any, rtol: float
) -> None:
    """
    The bound at a certain f is SciPy's log p, and its slopes in f and the scale are differences.

    An exact y has the Jacobian 1/y(1 − y). E log p has finite slopes, too.
    """
    _, F, Fvar, _ = arguments(SHARES)
    with np.errstate(divide="ignore"):
        ends = scipy.special.logit(np.clip(SHARES, 0.0, 1.0))
    is_exact = SHARES[:, 0] == SHARES[:, 1]
    jacobian = np.where(is_exact, -np.log(SHARES[:, 0].clip(0.1) * (1.0 - SHARES[:, 0])), 0.0)

    def log_p(f: AnyNDArray, scale: float) -> AnyNDArray:
        return log_between(LAWS[link], f, scale, ends) + jacobian

    f, h = F.numpy(), 1e-5
    with gpflow.config.as_context(gpflow.config.Config(float=dtype)):
        likelihood = Warped(Interval(link, 0.7), warps.Logit())
        X, F, Fvar, Y = (tf.cast(part, dtype) for part in (0.0 * F, F, Fvar, SHARES))
        scale = likelihood.base.scale
        of = [F, scale.unconstrained_variable]
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(F)
            bound = likelihood.bound(X, F, 0.0 * Fvar, Y)
            expected = likelihood.variational_expectations(X, F, Fvar, Y)
        np.testing.assert_allclose(bound, log_p(f, 0.7), rtol=rtol)
        in_f, in_scale = tape.gradient(bound, of)
        in_scale /= tf.math.sigmoid(scale.unconstrained_variable)  # softplus
        np.testing.assert_allclose(
            in_f[:, 0], (log_p(f + h, 0.7) - log_p(f - h, 0.7)) / (2.0 * h), rtol=rtol
        )
        difference = np.sum(log_p(f, 0.7 + h) - log_p(f, 0.7 - h)) / (2.0 * h)
        np.testing.assert_allclose(in_scale, difference, rtol=rtol)
        for slope in (*tape.gradient(expected, of), expected):
            assert np.all(np.isfinite(slope))


@pytest.mark.parametrize(
    ("warp", "row", "message"),
    [
        (warps.Logit(), [-0.1, 0.5], "must be from 0 to 1 for the warp Logit"),
        (warps.Logit(), [0.5, 1.1], "must be from 0 to 1 for the warp Logit"),
        (warps.Logit(), [0.0, 1.0], "must have a finite end in every row"),
        (warps.Logit(), [1.0, 1.0], "must be between 0 and 1, and neither of them"),
        (warps.Log(), [0.0, np.inf], "must have a finite end in every row"),
    ],
)
def test_rows_beyond_the_range_of_y_or_that_are_all_of_it_are_refused(
    warp: warps.Warp, row: list[float], message: str
) -> None:
    likelihood = Warped(Interval(), warp)
    AugmentedVGP((np.zeros((6, 1)), SHARES), gpflow.kernels.Matern32(), likelihood)
    with pytest.raises(ValueError, match=message):
        AugmentedVGP(
            (np.zeros((7, 1)), np.vstack([SHARES, row])), gpflow.kernels.Matern32(), likelihood
        )


@each_link
def test_the_slopes_of_a_learnt_warp_are_finite_at_infinite_ends(link: str) -> None:
    """At the identity rows are those of the base; parameters of ``Tanh`` have slopes."""
    likelihood = Warped(Interval(link, 0.6), warps.Tanh(2))
    args = arguments(ROWS)
    with tf.GradientTape() as tape:
        bound = tf.reduce_sum(likelihood.bound(*args))
    for slope in tape.gradient(bound, likelihood.trainable_variables):
        assert np.all(np.isfinite(slope))
        assert np.any(slope != 0.0)
    plain = Warped(Interval(link, 0.6), warps.Identity())
    np.testing.assert_array_equal(plain.bound(*args), Interval(link, 0.6).bound(*args))


def survival_data(link: str) -> tuple[AnyNDArray, AnyNDArray]:
    """200 times, log-linear in x, of which some 30 % are right-censored."""
    rng, N = np.random.default_rng(1), 200
    X = rng.uniform(-1.0, 1.0, size=(N, 1))
    time = np.exp(0.5 + 1.2 * X[:, 0] + 0.6 * LAWS[link].rvs(size=N, random_state=rng))
    end = np.exp(rng.normal(1.2, 1.0, size=N))
    assert 0.2 < np.mean(time > end) < 0.4
    return X, np.stack([np.minimum(time, end), np.where(time > end, np.inf, time)], -1)


AT = np.array([[1.0, -1.0], [1.0, 0.0], [1.0, 1.0]])  # 1 and x


def linear_model(link: str) -> tuple[AugmentedSVGP, AnyNDArray, AnyNDArray]:
    """
    A GP of straight lines with a flat prior.

    :return: it, the maximum-likelihood line at AT, and its standard deviations, by the information.
    """
    X, Y = survival_data(link)
    design = np.hstack([np.ones_like(X), X])

    def log_p(f: AnyNDArray) -> AnyNDArray:
        return log_between(LAWS[link], f[:, None], 0.6, np.log(Y))

    line = scipy.optimize.minimize(lambda w: -np.sum(log_p(design @ w)), [0.0, 0.0], tol=1e-9).x
    f, h = design @ line, 1e-3
    curvature = (2.0 * log_p(f) - log_p(f + h) - log_p(f - h)) / h**2
    covariance = np.linalg.inv(design.T @ (curvature[:, None] * design))
    model = AugmentedSVGP(
        gpflow.kernels.Linear(variance=1e4) + gpflow.kernels.Constant(1e4),
        Warped(Interval(link, 0.6), warps.Log()),
        np.array([[-1.0], [1.0]]),
        num_data=len(X),
    )
    return model, AT @ line, np.sqrt(np.einsum("ni,ij,nj->n", AT, covariance, AT))


@pytest.mark.slow
@pytest.mark.by_default("logit")
@each_link
def test_a_linear_gp_has_the_line_of_the_accelerated_failure_time_model(link: str) -> None:
    """
    Under a flat prior the posterior is the likelihood of the regression line.

    For probit the augmented bound is log p(y|m) less a term without m, so that the mean of f is the
    maximum-likelihood line itself. For logit it is within O(1/N) of it, here some hundredths of a
    standard deviation.
    """
    model, line, sd = linear_model(link)
    data = survival_data(link)
    step = tf.function(lambda: AugmentedNaturalGradient(1.0).minimize(model, data))
    for _ in range(60):
        step()
    mean = model.predict_f(AT[:, 1:])[0].numpy()[:, 0]
    assert np.all(np.abs(mean - line) < (1e-4 if link == "probit" else 0.05) * sd)


@pytest.mark.replicate
@each_link
def test_at_the_best_elbo_a_linear_gp_has_the_lines_standard_deviation(link: str) -> None:
    """Mean and mode, and variance and inverse information, of 200 rows differ by O(1/N)."""
    model, line, sd = linear_model(link)
    polish(model, survival_data(link), progress=False)
    mean, variance = (part.numpy()[:, 0] for part in model.predict_f(AT[:, 1:]))
    assert np.all(np.abs(mean - line) < 0.05 * sd)
    np.testing.assert_allclose(np.sqrt(variance), sd, rtol=0.03)


@pytest.mark.slow
@each_link
def test_predictions_are_in_units_of_time(link: str) -> None:
    """Quantiles invert the distribution function, and are those of many draws."""
    X, Y = survival_data(link)
    model = AugmentedVGP(
        (X[:40], Y[:40]), gpflow.kernels.Matern52(), Warped(Interval(link, 0.6), warps.Log())
    )
    AugmentedNaturalGradient(1.0).minimize(model)
    Xnew = np.array([[-0.5], [0.7]])
    levels = np.array([0.1, 0.5, 0.9])
    times = predictions.predict_y_quantile(model, Xnew, levels, progress=False).numpy()
    assert np.all(times > 0.0)
    for level, time in zip(levels, times, strict=True):
        p = predictions.predict_y_cdf(model, Xnew, np.hstack([time, time]), progress=False)
        np.testing.assert_allclose(p, level, rtol=1e-9)
    draws = predictions.predict_y_samples(model, Xnew, 20_000, progress=False).numpy()
    share = np.mean(draws < times[:, None], axis=1)
    assert np.max(np.abs(share - levels[:, None, None])) < 5.0 * np.sqrt(0.25 / 20_000)
    if link == "probit":
        mean, variance = (part.numpy() for part in model.predict_f(Xnew))
        law = scipy.stats.lognorm(np.sqrt(0.36 + variance), scale=np.exp(mean))
        np.testing.assert_allclose(times, law.ppf(levels[:, None, None]), rtol=1e-8)
        found, spread = model.predict_y(Xnew)
        np.testing.assert_allclose(found, law.mean(), rtol=1e-6)
        np.testing.assert_allclose(spread, law.var(), rtol=1e-5)


@each_link
def test_float32_is_close_to_float64(link: str) -> None:
    args = arguments(COARSENED(np.linspace(-1.5, 1.5, 7)[:, None]))
    expected = quantities(Interval(link, 0.7), args)
    with gpflow.config.as_context(gpflow.config.Config(float=np.float32)):
        found = quantities(Interval(link, 0.7), [tf.cast(part, tf.float32) for part in args])
    for name, value in expected.items():
        assert found[name].dtype == np.float32
        np.testing.assert_allclose(found[name], value, rtol=2e-4, atol=2e-5, err_msg=name)
