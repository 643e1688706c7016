"""Zero-inflated, hurdle and zero-truncated counts: bounds, expectations, limits and fits."""

from collections.abc import Callable

import gpflow
import numpy as np
import pytest
import scipy.special
import scipy.stats
import tensorflow as tf
from gpflow.base import AnyNDArray

import gpflow_aaci
from gpflow_aaci import AugmentedNaturalGradient, AugmentedSVGP
from gpflow_aaci.likelihoods import (
    AugmentedLikelihood,
    Binomial,
    Gamma,
    Hurdle,
    Laplace,
    NegativeBinomial,
    Poisson,
    ZeroInflated,
    ZeroTruncated,
)

Rows = AnyNDArray


def log_nbinom(f: Rows, y: Rows) -> Rows:
    """Of r = 1.7."""
    f = f + 0.0 * y
    of_y = scipy.special.gammaln(y + 1.7) - scipy.special.gammaln(1.7)
    powers = y * scipy.special.log_expit(f) + 1.7 * scipy.special.log_expit(-f)
    return of_y - scipy.special.gammaln(y + 1.0) + powers


def log_poisson(f: Rows, y: Rows) -> Rows:
    """Of λ = 8."""
    return scipy.stats.poisson.logpmf(y, 8.0 * scipy.special.expit(f))


def inflated(log_p: Rows, log_pi: Rows, log_rest: Rows, y: Rows) -> Rows:
    return np.where(y == 0, np.logaddexp(log_pi, log_rest + log_p), log_rest + log_p)


def truncated(log_count: Callable[[Rows, Rows], Rows], f: Rows, y: Rows) -> Rows:
    return log_count(f, y) - np.log(-np.expm1(log_count(f, 0.0 * y)))


def gates(g: Rows) -> tuple[Rows, Rows]:
    return scipy.special.log_expit(g), scipy.special.log_expit(-g)


CONSTANT = np.log(0.15), np.log(0.85)

# A likelihood, log p(y|f, g), whether there is a g, and the least y.
CASES = {
    "inflated": (
        lambda: ZeroInflated(NegativeBinomial(1.7), 0.15),
        lambda f, g, y: inflated(log_nbinom(f, y), *CONSTANT, y),
        False,
        0,
    ),
    "inflated Poisson": (
        lambda: ZeroInflated(Poisson(8.0), 0.15),
        lambda f, g, y: inflated(log_poisson(f, y), *CONSTANT, y),
        False,
        0,
    ),
    "inflated, GP": (
        lambda: ZeroInflated(NegativeBinomial(1.7), "gp"),
        lambda f, g, y: inflated(log_nbinom(f, y), *gates(g), y),
        True,
        0,
    ),
    "truncated": (
        lambda: ZeroTruncated(NegativeBinomial(1.7)),
        lambda f, g, y: truncated(log_nbinom, f, y),
        False,
        1,
    ),
    "truncated Poisson": (
        lambda: ZeroTruncated(Poisson(8.0)),
        lambda f, g, y: truncated(log_poisson, f, y),
        False,
        1,
    ),
    "hurdle, GP": (
        lambda: Hurdle(NegativeBinomial(1.7), "gp"),
        lambda f, g, y: np.where(
            y == 0, gates(g)[0], gates(g)[1] + truncated(log_nbinom, f, np.maximum(y, 1.0))
        ),
        True,
        0,
    ),
}


@pytest.mark.briefly("inflated Poisson")
@pytest.mark.parametrize("name", CASES)
def test_bound_and_expectation_in_random_cases(name: str) -> None:
    """The bound is log p(y|f) at v = 0 and else below E log p(y|f), a sum over many nodes."""
    make, log_p, has_gate, least = CASES[name]
    likelihood, rng = make(), np.random.default_rng(5)
    shape = 100, 1 + has_gate
    Fmu, Fvar = rng.normal(0.0, 2.5, shape), rng.gamma(1.0, 2.0, shape) + 1e-3
    Y = np.maximum(rng.poisson(0.8, (100, 1)), least).astype(float)
    z = np.linspace(-8.5, 8.5, 251)
    weight = scipy.stats.norm.pdf(z) / np.sum(scipy.stats.norm.pdf(z))
    f, *g = (mean + np.sqrt(v) * z[:, None] for mean, v in zip(Fmu.T, Fvar.T, strict=True))
    if has_gate:
        values = log_p(f[:, None], g[0][None], Y[:, 0])
        expected = np.einsum("i,j,ijn->n", weight, weight, values)
    else:
        expected = weight @ log_p(f, None, Y[:, 0])
    X = np.zeros([100, 1])
    found = likelihood.variational_expectations(X, Fmu, Fvar, Y)
    np.testing.assert_allclose(found, expected, atol=1e-6, rtol=1e-6)
    X, Fmu, Fvar, Y = map(tf.constant, (X, Fmu, Fvar, Y))
    assert np.all(likelihood.bound(X, Fmu, Fvar, Y) <= expected + 1e-9)
    at_point = log_p(Fmu[:, 0].numpy(), Fmu[:, -1].numpy(), Y[:, 0].numpy())
    bound = likelihood.bound(X, Fmu, tf.zeros_like(Fvar), Y)
    np.testing.assert_allclose(bound, at_point, atol=1e-12, rtol=1e-12)
    np.testing.assert_allclose(likelihood.log_prob(X, Fmu, Y), at_point, atol=1e-12, rtol=1e-12)


@pytest.mark.briefly("0.9-0.001")
@pytest.mark.parametrize("sd", [1e-3, 1.0, 8.0, 40.0])
@pytest.mark.parametrize("pi", [1e-6, 0.1, 0.9])
def test_expectations_of_narrow_and_wide_f(pi: float, sd: float) -> None:
    Fmu = np.array([-30.0, -6.0, -1.0, 1.0, 3.0, 8.0, 25.0])[:, None]
    z = np.linspace(-8.5, 8.5, 20_001)[:, None]
    weight = scipy.stats.norm.pdf(z[:, 0]) / np.sum(scipy.stats.norm.pdf(z))
    f, zero = Fmu[:, 0] + sd * z, np.zeros_like(Fmu)
    for likelihood, log_p in (
        (ZeroInflated(NegativeBinomial(1.7), pi), log_nbinom),
        (ZeroInflated(Poisson(8.0), pi), log_poisson),
    ):
        expected = weight @ inflated(log_p(f, 0.0), np.log(pi), np.log1p(-pi), 0.0)
        found = likelihood.variational_expectations(zero, Fmu, sd**2 + zero, zero)
        np.testing.assert_allclose(found, expected, atol=1e-6)
    for likelihood, log_p in (
        (ZeroTruncated(NegativeBinomial(1.7)), log_nbinom),
        (ZeroTruncated(Poisson(8.0)), log_poisson),
    ):
        expected = weight @ truncated(log_p, f, 1.0)
        found = likelihood.variational_expectations(zero, Fmu, sd**2 + zero, zero + 1.0)
        np.testing.assert_allclose(found, expected, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("rate", [1e-3, 0.1, 30.0])
def test_expectations_of_a_truncated_count_that_is_nearly_always_0(rate: float) -> None:
    """log p(1) levels off at f = 0 then, as the sigmoid does, for wide q(f) far from it too."""
    Fmu, Fvar = np.array([[6.0, -20.0, -5.0, 0.0]]).T, np.array([[30.0, 100.0, 400.0, 1e4]]).T
    z = np.linspace(-8.5, 8.5, 200_001)[:, None]
    weight = scipy.stats.norm.pdf(z[:, 0]) / np.sum(scipy.stats.norm.pdf(z))
    count = rate * scipy.special.expit(Fmu[:, 0] + np.sqrt(Fvar[:, 0]) * z)
    log_p = -count - np.log(scipy.special.exprel(-count))  # (1 − e^{−x})/x
    ones = np.ones_like(Fmu)
    for likelihood, log_gate in (
        (ZeroTruncated(Poisson(rate)), 0.0),
        (Hurdle(Poisson(rate), 0.3), np.log(0.7)),
    ):
        found = likelihood.variational_expectations(ones, Fmu, Fvar, ones)
        np.testing.assert_allclose(found, weight @ log_p + log_gate, atol=1e-6, rtol=1e-6)


@pytest.mark.briefly("base3")
@pytest.mark.parametrize("base", [NegativeBinomial(1.7), Poisson(8.0), Binomial(6), Binomial()])
def test_without_inflation_it_is_the_base(base: AugmentedLikelihood) -> None:
    """To the error of quadrature, whose nodes differ."""
    rng = np.random.default_rng(2)
    X, F = np.zeros([20, 1]), rng.normal(size=[20, 1])
    Fvar, Y = rng.uniform(0.0, 0.3, [20, 1]), rng.integers(0, 4, [20, 1]).astype(float)
    if base.given:
        Y = np.hstack([Y, Y + rng.integers(1, 4, [20, 1])])
    own = ZeroInflated(base, 1e-17)
    for of in (
        lambda likelihood: likelihood.log_prob(X, F, Y),
        lambda likelihood: likelihood.bound(*map(tf.constant, (X, F, Fvar, Y))),
        lambda likelihood: likelihood.variational_expectations(X, F, Fvar, Y),
        lambda likelihood: likelihood.predict_log_density(X, F, Fvar, Y),
        lambda likelihood: likelihood.predict_cdf(X, F, Fvar, Y),
        lambda likelihood: likelihood.predict_mean_and_var(X, F, Fvar),
    ):
        np.testing.assert_allclose(of(own), of(base), rtol=1e-8, atol=1e-8)


def test_zeros_of_every_number_of_trials_are_inflated() -> None:
    """A column of trials is the same as a number of trials for all data."""
    y = np.arange(7.0)[:, None]
    X, F = np.zeros_like(y), np.linspace(-2.0, 2.0, 7)[:, None]
    own = ZeroInflated(Binomial(), 0.2).log_prob(X, F, np.hstack([y, 6.0 + 0.0 * y]))
    np.testing.assert_allclose(own, ZeroInflated(Binomial(6), 0.2).log_prob(X, F, y), rtol=1e-13)
    expected = inflated(
        scipy.stats.binom.logpmf(y, 6, scipy.special.expit(F)), np.log(0.2), np.log(0.8), y
    )
    np.testing.assert_allclose(own, expected[:, 0], rtol=1e-12)


@pytest.mark.briefly("Poisson-float32")
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("base", [NegativeBinomial, Poisson])
def test_a_truncated_count_of_f_far_below_zero_is_one(base: type, dtype: type) -> None:
    """All values and slopes are finite, even where 1 − p(0|f) underflows."""
    with gpflow.config.as_context(gpflow.config.Config(float=dtype)):
        likelihood = ZeroTruncated(base(3.0))
        F = tf.constant([[-15.0], [-30.0], [-80.0]], dtype)
        X, one, below = tf.zeros_like(F), tf.ones_like(F), -5e3 * tf.ones_like(F)
        np.testing.assert_allclose(likelihood.log_prob(X, F, one), 0.0, atol=2e-5)
        np.testing.assert_allclose(likelihood.cdf(X, F, one), 1.0, atol=2e-5)
        np.testing.assert_array_equal(likelihood.cdf(X, F, 0.0 * one), 0.0)
        np.testing.assert_allclose(likelihood.conditional_mean(X, F), 1.0, atol=2e-5)
        np.testing.assert_array_equal(likelihood.draw_y(F, [1, 2]), 1.0)
        for mean in (F, below, -below / 100.0):
            for variance in (0.0 * one, 1.0 * one, 1e4 * one):
                slopes = likelihood.bound_slopes(X, mean, variance, one)
                assert np.all(np.isfinite([*slopes, likelihood.log_prob(X, mean, one)[:, None]]))
                assert np.all(slopes[1] <= 0.0)


# ---- steps and fits ----


def counts(num_data: int) -> tuple[Rows, Rows]:
    """Counts of which a third are set to 0, more on the right."""
    rng = np.random.default_rng(7)
    X = rng.uniform(-2.0, 2.0, (num_data, 1))
    Y = rng.negative_binomial(2.0, 1.0 / (1.0 + np.exp(1.0 + np.sin(2.0 * X))))
    return X, np.where(rng.uniform(size=X.shape) < scipy.special.expit(X - 0.8), 0.0, Y)


def model_of(likelihood: AugmentedLikelihood, num_data: int) -> AugmentedSVGP:
    return AugmentedSVGP(
        gpflow.kernels.SquaredExponential(),
        likelihood,
        np.linspace(-2.0, 2.0, 8)[:, None],
        num_latent_gps=likelihood.latent_dim or 1,
        num_data=num_data,
    )


@pytest.mark.slow
def test_simultaneous_steps_of_f_and_its_gate_never_lower_the_bound() -> None:
    """They start from random q; the bound holds the responsibilities of both origins fixed."""
    data = counts(40)
    model = model_of(ZeroInflated(NegativeBinomial(2.0), "gp"), 40)
    optimizer, rng = AugmentedNaturalGradient(1.0), np.random.default_rng(3)
    bound = tf.function(lambda: model.augmented_elbo(data), autograph=False)
    step = tf.function(lambda: optimizer.minimize(model, data), autograph=False)
    for scale in (0.3, 1.0, 3.0, 6.0):
        model.q_mu.assign(scale * rng.normal(size=model.q_mu.shape))
        model.q_sqrt.assign(np.stack(2 * [0.5 * scale * np.eye(8)]))
        bounds = [bound()]
        for _ in range(12):
            step()
            bounds.append(bound())
        assert np.all(np.diff(bounds) >= -1e-9 * np.abs(bounds[1:]))


@pytest.mark.by_default("inflated")
@pytest.mark.slow
@pytest.mark.parametrize(
    "make",
    [
        lambda: ZeroInflated(NegativeBinomial(1.0), 0.5),
        lambda: ZeroInflated(NegativeBinomial(1.0), "gp"),
        lambda: ZeroInflated(Poisson(20.0), 0.5),
        lambda: Hurdle(NegativeBinomial(1.0), 0.5),
        lambda: Hurdle(NegativeBinomial(1.0), "gp"),
    ],
    ids=["inflated", "inflated, GP", "inflated Poisson", "hurdle", "hurdle, GP"],
)
def test_a_fit_ends_as_high_as_gpflows(make: Callable[[], AugmentedLikelihood]) -> None:
    """It is no more than 0.05 nats below L-BFGS on GPflow's SVGP of the same likelihood."""
    data, model = counts(300), model_of(make(), 300)
    gpflow_aaci.fit(model, data, progress=False)
    stock = gpflow.models.SVGP(
        gpflow.kernels.SquaredExponential(),
        make(),
        np.linspace(-2.0, 2.0, 8)[:, None],
        num_latent_gps=model.num_latent_gps,
        num_data=300,
    )
    gpflow.optimizers.Scipy().minimize(
        stock.training_loss_closure(data), stock.trainable_variables, options={"maxiter": 3000}
    )
    assert float(model.elbo(data)) > float(stock.elbo(data)) - 0.05


@pytest.mark.slow
def test_the_fit_finds_how_many_zeros_are_no_counts() -> None:
    rng = np.random.default_rng(1)
    X = rng.uniform(-2.0, 2.0, (1500, 1))
    Y = rng.negative_binomial(3.0, 1.0 / (1.0 + np.exp(1.0 + np.sin(2.0 * X))))
    Y = np.where(rng.uniform(size=X.shape) < 0.25, 0.0, Y)
    model = model_of(ZeroInflated(NegativeBinomial(), 0.5), len(X))
    gpflow_aaci.fit(model, (X, Y), progress=False)
    assert model.likelihood.gate.numpy() == pytest.approx(0.25, abs=0.05)
    assert model.likelihood.count.total_count.numpy() == pytest.approx(3.0, abs=0.8)


# ---- input ----


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: ZeroInflated(Laplace()),
            "base must be one of NegativeBinomial, Binomial, Poisson",
        ),
        (
            lambda: Hurdle(Laplace()),
            "Hurdle: base must be one of NegativeBinomial, Binomial, Poisson",
        ),
        (lambda: ZeroTruncated("Poisson"), "base must be one of .* Found: 'Poisson'"),
        (
            lambda: Hurdle(gpflow.likelihoods.Poisson()),
            r"of gpflow_aaci.likelihoods, such as Poisson\(max_rate=10.0\). "
            r"Found: gpflow.likelihoods.scalar_discrete.Poisson\.$",
        ),
        (lambda: Hurdle(Gamma()), r"Found: gpflow_aaci.likelihoods.rates.Gamma\.$"),
        (lambda: ZeroInflated(Poisson(), 1.0), r"gate must be one number in \(0, 1\). Found: 1.0"),
        (lambda: Hurdle(Poisson(), -0.1), r"Hurdle: gate must be one number in \(0, 1\)"),
        (lambda: Hurdle(Poisson(), np.nan), r"gate must be one number in \(0, 1\)"),
        (lambda: Hurdle(Poisson(), [0.1, 0.2]), r"gate must be one number in \(0, 1\)"),
        (lambda: ZeroInflated(Poisson(), "GP"), "gate must be \"gp\", or .* Found: 'GP'"),
    ],
)
def test_bad_arguments_are_named(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    ("likelihood", "y", "message"),
    [
        (ZeroInflated(Poisson()), -1.0, "Y must hold whole numbers from 0 up for Poisson"),
        (ZeroInflated(Binomial(2), "gp"), 3.0, "Y must be from 0 to total_count = 2"),
        (Hurdle(NegativeBinomial()), 0.5, "Y must hold whole numbers from 0 up"),
        (ZeroTruncated(NegativeBinomial()), 0.0, "Y must be at least 1 for ZeroTruncated"),
    ],
)
def test_bad_counts_are_refused(likelihood: AugmentedLikelihood, y: float, message: str) -> None:
    model, Y = model_of(likelihood, 3), np.array([[1.0], [1.0], [y]])
    with pytest.raises(ValueError, match=message):
        gpflow_aaci.fit(model, (np.zeros([3, 1]), Y), progress=False)


def test_a_gate_is_shared_as_a_parameter_and_learnt() -> None:
    gate = gpflow.Parameter(0.4, transform=gpflow.utilities.positive())
    likelihood = ZeroInflated(NegativeBinomial(2.0), gate)
    assert likelihood.gate is gate
    assert ZeroInflated(NegativeBinomial(2.0), 0.4).gate.trainable


@pytest.mark.parametrize(
    ("likelihood", "count_variance"),
    [
        (ZeroInflated(Poisson(9.0), gate="gp"), lambda m: m),
        (ZeroInflated(NegativeBinomial(2.0), gate="gp"), lambda m: m + m**2 / 2.0),
    ],
    ids=["Poisson", "NegativeBinomial"],
)
def test_the_gate_s_slope_of_the_variance_is_finite_at_its_prior_mean(
    likelihood: AugmentedLikelihood, count_variance: Callable[[float], float]
) -> None:
    """Var y = (1 − π)(v + π m²) and π = σ(g), so its slope at g = 0 is ¼(0·m² − v) = −v/4."""
    F = tf.constant([[0.0, 0.0]], tf.float64)
    X = tf.zeros([1, 1], tf.float64)
    with tf.GradientTape() as tape:
        tape.watch(F)
        variance = likelihood.conditional_variance(X, F)
    mean = likelihood.count.conditional_mean(X, F[:, :1]).numpy().item()
    v = count_variance(mean)
    np.testing.assert_allclose(variance, [[0.5 * (v + 0.5 * mean**2)]], rtol=1e-12)
    np.testing.assert_allclose(tape.gradient(variance, F)[0, 1], -v / 4.0, rtol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_variance_of_a_negative_binomial_is_no_nan_for_any_f(dtype: type) -> None:
    """Of f and no uncertainty it is r(e^f + e^{2f}), even where (r e^f)² overflows."""
    largest = 0.5 * np.log(np.finfo(dtype).max)
    F = tf.constant(largest - np.array([[0.4], [0.6], [5.0]]), dtype)
    with gpflow.config.as_context(gpflow.config.Config(float=dtype)):
        found = NegativeBinomial(2.0).conditional_variance(tf.zeros_like(F), F)
    f = F.numpy().astype(float)
    np.testing.assert_allclose(found, 2.0 * np.exp(f) * (1.0 + np.exp(f)), rtol=3e-5)
