"""Noise of any law, whose precision is a GP: the oracles are product rules over f and g."""

from collections.abc import Callable

import gpflow
import numpy as np
import pytest
import scipy.integrate
import scipy.stats
import tensorflow as tf
from gpflow.base import AnyNDArray
from scipy.special import expit, log_expit

import gpflow_aaci
from gpflow_aaci import AugmentedSVGP, likelihoods
from gpflow_aaci.contrib.likelihoods import KernelNoise, NoiseMixture, NoiseProduct
from gpflow_aaci.likelihoods import Gaussian, Heteroscedastic, Laplace, LogisticNoise, StudentT

MAX_PRECISION = 5.0
LogDensity = Callable[[AnyNDArray], AnyNDArray]

_TOTAL = 2.0 * np.sqrt(2.0 * np.pi) * np.exp(0.5) * scipy.stats.norm.sf(1.0)  # of a product

# A base, and the log density of its noise by SciPy or by its formula.
BASES: dict[str, tuple[Callable[[], likelihoods.SuperGaussianLikelihood], LogDensity]] = {
    "Gaussian": (lambda: Gaussian(scale=0.7), scipy.stats.norm(scale=0.7).logpdf),
    "StudentT": (lambda: StudentT(0.8, 4.0), scipy.stats.t(4.0, scale=0.8).logpdf),
    "Laplace": (lambda: Laplace(0.6), scipy.stats.laplace(scale=0.6).logpdf),
    "LogisticNoise": (lambda: LogisticNoise(0.5), scipy.stats.logistic(scale=0.5).logpdf),
    "Matern52": (
        lambda: likelihoods.Matern52(0.9),
        lambda e: (
            np.log(3.0 * np.sqrt(5.0) / (16.0 * 0.9))
            + np.log(np.polyval([1.0 / 3.0, 1.0, 1.0], np.sqrt(5.0) * np.abs(e) / 0.9))
            - np.sqrt(5.0) * np.abs(e) / 0.9
        ),
    ),
    "GeneralizedGaussian": (
        lambda: likelihoods.GeneralizedGaussian(0.9, 1.5),
        scipy.stats.gennorm(1.5, scale=0.9).logpdf,
    ),
    "NoiseMixture": (
        lambda: NoiseMixture([Gaussian(scale=0.5), Gaussian(scale=2.0)], [0.8, 0.2]),
        lambda e: np.logaddexp(
            np.log(0.8) + scipy.stats.norm.logpdf(e, scale=0.5),
            np.log(0.2) + scipy.stats.norm.logpdf(e, scale=2.0),
        ),
    ),
    "KernelNoise": (
        lambda: KernelNoise(gpflow.kernels.RationalQuadratic(alpha=2.5)),
        scipy.stats.t(4.0, scale=np.sqrt(5.0 / 4.0)).logpdf,  # ∝ (1 + e²/5)^{−5/2}
    ),
    "NoiseProduct": (
        lambda: NoiseProduct([Gaussian(scale=1.0), Laplace(1.0)]),
        lambda e: -0.5 * np.square(e) - np.abs(e) - np.log(_TOTAL),
    ),
}

every_base = pytest.mark.parametrize("name", BASES)
five_by_default = pytest.mark.by_default(
    "Gaussian", "StudentT", "Laplace", "Matern52", "NoiseMixture"
)


def made(name: str) -> tuple[Heteroscedastic, LogDensity]:
    make, of_noise = BASES[name]
    return Heteroscedastic(make(), MAX_PRECISION), of_noise


def log_p(of_noise: LogDensity, f: AnyNDArray, g: AnyNDArray, y: AnyNDArray) -> AnyNDArray:
    """log p(y|f, g) by its definition."""
    half_log_precision = 0.5 * (np.log(MAX_PRECISION) + log_expit(g))
    return half_log_precision + of_noise(np.exp(half_log_precision) * (y - f))


def moments(rows: int = 6) -> tuple[AnyNDArray, AnyNDArray, AnyNDArray]:
    """Fmu, Fvar and Y, the last row with an outlier."""
    rng = np.random.default_rng(0)
    Fmu, Y = rng.normal(size=(rows, 2)), rng.normal(size=(rows, 1))
    Y[-1] = 9.0
    return Fmu, rng.uniform(0.05, 1.5, size=(rows, 2)), Y


def over_both(
    value: Callable[[AnyNDArray, AnyNDArray], AnyNDArray], Fmu: AnyNDArray, Fvar: AnyNDArray
) -> AnyNDArray:
    """E value(f, g), a value for every row, by a fine trapezoidal rule in both."""
    z = np.linspace(-9.0, 9.0, 601)
    w = np.exp(-0.5 * z**2)
    w /= w.sum()
    f, g = (Fmu[:, i, None] + np.sqrt(Fvar[:, i, None]) * z for i in range(2))
    return np.stack([w @ value(a[:, None], b[None, :]) @ w for a, b in zip(f, g, strict=True)])


@pytest.mark.briefly("Matern52")
@five_by_default
@every_base
def test_the_bound_is_below_the_mean_of_log_p_which_is_that_of_a_product_rule(name: str) -> None:
    likelihood, of_noise = made(name)
    Fmu, Fvar, Y = moments()
    expected = np.array(
        [
            over_both(lambda f, g, y=y: log_p(of_noise, f, g, y), Fmu[i : i + 1], Fvar[i : i + 1])
            for i, y in enumerate(Y[:, 0])
        ]
    )
    found = likelihood.variational_expectations(Y, Fmu, Fvar, Y)
    # The oracle errs at a kink. Log p of the mixture bends at a distance from y = f, where
    # its own integral over f has this error.
    tolerance = {"Laplace": 5e-5, "NoiseProduct": 5e-5, "NoiseMixture": 1e-4}.get(name, 1e-6)
    np.testing.assert_allclose(found, expected[:, 0], rtol=tolerance, atol=tolerance)
    bound = likelihood.bound(*map(tf.constant, (Y, Fmu, Fvar, Y))).numpy()
    assert np.all(bound < expected[:, 0])


@pytest.mark.briefly("Laplace")
@every_base
def test_the_bound_is_log_p_where_f_and_g_are_certain(name: str) -> None:
    likelihood, of_noise = made(name)
    F, _, Y = moments(200)
    bound = likelihood.bound(*map(tf.constant, (Y, F, np.zeros_like(F), Y)))
    expected = log_p(of_noise, F[:, 0], F[:, 1], Y[:, 0])
    np.testing.assert_allclose(bound, expected, rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(likelihood.log_prob(Y, F, Y), expected, rtol=1e-11, atol=1e-11)


def test_of_gaussian_noise_it_is_the_textbooks_bound() -> None:
    """½ log(λ/2πσ²) + ½ (m_g/2 − log 2cosh(c/2)) − λ/2σ² E(y − f)² (1 − s_g), c² = m_g² + v_g."""
    likelihood, _ = made("Gaussian")
    Fmu, Fvar, Y = moments()
    (m_f, m_g), (v_f, v_g) = Fmu.T, Fvar.T
    log_cosh = np.log(2.0 * np.cosh(np.sqrt(m_g**2 + v_g) / 2.0))
    precision = MAX_PRECISION / 0.7**2
    expected = 0.5 * np.log(precision / (2.0 * np.pi)) + 0.5 * (m_g / 2.0 - log_cosh)
    one_minus_s = 1.0 - np.exp(-m_g / 2.0 - log_cosh)
    expected -= 0.5 * precision * ((Y[:, 0] - m_f) ** 2 + v_f) * one_minus_s
    found = likelihood.bound(*map(tf.constant, (Y, Fmu, Fvar, Y)))
    np.testing.assert_allclose(found, expected, rtol=1e-13)


@pytest.mark.briefly("Gaussian")
@five_by_default
@every_base
def test_predicted_density_and_probability_are_those_of_a_product_rule(name: str) -> None:
    likelihood, of_noise = made(name)
    Fmu, Fvar, Y = (part[[0, 1, -1]] for part in moments())
    found = likelihood.predict_log_density(Y, Fmu, Fvar, Y).numpy()
    below = likelihood.predict_cdf(Y, Fmu, Fvar, Y)
    upper = likelihood.predict_cdf(Y, Fmu, Fvar, Y + 0.01)
    for i, y in enumerate(Y[:, 0]):
        rows = Fmu[i : i + 1], Fvar[i : i + 1]
        (expected,) = over_both(lambda f, g, y=y: np.exp(log_p(of_noise, f, g, y)), *rows)
        assert found[i] == pytest.approx(np.log(expected), abs=2e-5)
        # Simpson's rule over p(y').
        (middle,), (last,) = (
            over_both(lambda f, g, z=y + d: np.exp(log_p(of_noise, f, g, z)), *rows)
            for d in (0.005, 0.01)
        )
        between = 0.01 * (expected + 4.0 * middle + last) / 6.0
        assert float(upper[i, 0] - below[i, 0]) == pytest.approx(between, rel=1e-4, abs=1e-11)


@pytest.mark.briefly("Gaussian")
@every_base
def test_predicted_moments_and_probabilities_given_f_and_g(name: str) -> None:
    likelihood, of_noise = made(name)
    Fmu, Fvar, _ = moments()
    noise = 2.0 * scipy.integrate.quad(lambda e: e**2 * np.exp(of_noise(e)), 0.0, np.inf)[0]
    mean, variance = likelihood.predict_mean_and_var(Fmu[:, :1], Fmu, Fvar)
    expected = Fvar[:, 0] + noise * over_both(
        lambda f, g: np.exp(-log_expit(g + 0.0 * f)) / MAX_PRECISION, Fmu, Fvar
    )
    np.testing.assert_allclose(mean, Fmu[:, :1])
    np.testing.assert_allclose(variance[:, 0], expected, rtol=1e-7)

    F = Fmu[:1]
    y = F[0, 0] + 0.7
    distance = 0.7 * np.sqrt(MAX_PRECISION * expit(F[0, 1]))
    below = 0.5 + scipy.integrate.quad(lambda e: np.exp(of_noise(e)), 0.0, distance)[0]
    found = likelihood.cdf(F[:, :1], F, np.array([[y]]))
    np.testing.assert_allclose(found, [[below]], rtol=1e-7)


@pytest.mark.briefly("Gaussian")
@pytest.mark.parametrize("name", ["Gaussian", "StudentT", "Laplace"])
def test_in_another_unit_of_y_densities_have_the_jacobian_and_nothing_else(name: str) -> None:
    """y → cy, f → cf, λ → λ/c²."""
    c = 37.0
    plain, scaled = (Heteroscedastic(BASES[name][0](), 5.0 / unit**2) for unit in (1.0, c))
    Fmu, Fvar, Y = moments()
    of_c = Fmu * [c, 1.0], Fvar * [c**2, 1.0]
    for method in ("variational_expectations", "predict_log_density", "bound"):
        expected = getattr(plain, method)(*map(tf.constant, (Y, Fmu, Fvar, Y))) - np.log(c)
        found = getattr(scaled, method)(*map(tf.constant, (Y, *of_c, c * Y)))
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.briefly("Gaussian")
@pytest.mark.by_default("Gaussian", "StudentT")
@every_base
def test_the_slopes_of_the_mean_are_coupled_as_differences_say(name: str) -> None:
    likelihood, of_noise = made(name)
    Fmu, Fvar, Y = (part[:3] for part in moments())
    found = likelihood.coupling(*map(tf.constant, (Y, Fmu, Fvar, Y))).numpy()
    assert np.all(found[:, [0, 1], [0, 1]] == 0.0)
    np.testing.assert_array_equal(found[:, 0, 1], found[:, 1, 0])
    for i, y in enumerate(Y[:, 0]):
        h, corners = 1e-2, []
        for signs in ((1, 1), (1, -1), (-1, 1), (-1, -1)):
            shifted = Fmu[i : i + 1] + h * np.array(signs)
            rows = shifted, Fvar[i : i + 1]
            corners.append(over_both(lambda f, g, y=y: log_p(of_noise, f, g, y), *rows)[0])
        expected = (corners[0] - corners[1] - corners[2] + corners[3]) / (4.0 * h**2)
        assert found[i, 0, 1] == pytest.approx(expected, rel=2e-3, abs=2e-3)


@pytest.mark.by_default("StudentT-float32")
@pytest.mark.parametrize("dtype", [np.float64, np.float32], ids=["float64", "float32"])
@pytest.mark.parametrize("name", ["Gaussian", "StudentT", "Laplace", "Matern52"])
def test_all_is_finite_at_a_residual_of_zero_and_at_extremes(name: str, dtype: type) -> None:
    """y = f exactly, v = 0, and g of ±200; values and slopes, in leading dimensions of batches."""
    with gpflow.config.as_context(gpflow.config.Config(float=dtype)):
        likelihood, _ = made(name)
        g = np.array([-200.0, 0.0, 200.0])
        Fmu = tf.constant(np.stack([np.zeros(3), g], -1)[None] + np.zeros((2, 1, 1)), dtype)
        for variance in (0.0, 4.0):
            Fvar = variance * tf.ones_like(Fmu)
            for Y in (0.0 * Fmu[..., :1], 3.0 + 0.0 * Fmu[..., :1]):
                for method in (likelihood.bound, likelihood.expected_log_prob):
                    with tf.GradientTape() as tape:
                        tape.watch([Fmu, Fvar])
                        value = method(Y, Fmu, Fvar, Y)
                    slopes = tape.gradient(value, [Fmu, Fvar, *likelihood.trainable_variables])
                    assert value.shape[:2] == (2, 3)
                    assert value.dtype == dtype
                    for part in (value, *slopes):
                        assert np.all(np.isfinite(part))
        auxiliary = likelihood.full_conditional(None, Fmu, Y).sample(seed=[1, 2])
        for part in likelihood.site(None, auxiliary, Y):
            assert part.shape == (2, 3, 2)
            assert np.all(np.isfinite(part))


@pytest.mark.parametrize(
    ("make", "found"),
    [
        (lambda: likelihoods.AsymmetricLaplace(1.0, 0.3), "AsymmetricLaplace, whose g is not 0"),
        (likelihoods.Logistic, "Logistic, which is no density of a real y"),
        (likelihoods.Binomial, "Binomial"),
        (lambda: gpflow.likelihoods.Gaussian(), "Gaussian, which is no SuperGaussianLikelihood"),
        (lambda: Heteroscedastic(Gaussian()), "Heteroscedastic, which is no SuperGaussian"),
        (lambda: 1.0, "float, which is no SuperGaussianLikelihood"),
    ],
)
def test_another_base_is_refused(make: Callable[[], object], found: str) -> None:
    with pytest.raises(ValueError, match=rf"Heteroscedastic: base must be.*Found: {found}"):
        Heteroscedastic(make())  # type: ignore[arg-type]


def test_only_integrals_over_both_are_dear() -> None:
    assert Heteroscedastic(Gaussian()).row_cost == Heteroscedastic(Laplace()).row_cost == 0.0
    assert Heteroscedastic(StudentT()).row_cost > 0.0


@pytest.mark.replicate
@pytest.mark.slow
def test_fit_ends_no_lower_than_gpflows_optimizer_on_the_same_likelihood() -> None:
    rng = np.random.default_rng(2)
    X = np.sort(rng.uniform(0.0, 3.0, size=(120, 1)), 0)
    Y = np.sin(2.0 * X) + 0.08 * np.exp(0.8 * X) * rng.standard_t(4, size=X.shape)

    def parts() -> tuple:
        noise = StudentT(1.0, 4.0)
        gpflow.set_trainable(noise, False)
        likelihood = Heteroscedastic(noise, 50.0)
        return gpflow.kernels.SquaredExponential(), likelihood, np.linspace(0.0, 3.0, 8)[:, None]

    options = {"num_latent_gps": 2, "num_data": len(X)}
    ours, stock = AugmentedSVGP(*parts(), **options), gpflow.models.SVGP(*parts(), **options)
    for model in (ours, stock):
        gpflow.set_trainable(model.inducing_variable, False)
    gpflow_aaci.fit(ours, (X, Y), progress=False)
    gpflow.optimizers.Scipy().minimize(
        stock.training_loss_closure((X, Y)), stock.trainable_variables, options={"maxiter": 2_000}
    )
    assert float(ours.elbo((X, Y))) > float(stock.elbo((X, Y))) - 0.05


@pytest.mark.briefly("Laplace")
@pytest.mark.parametrize("name", ["Gaussian", "Laplace", "LogisticNoise", "NoiseMixture"])
def test_a_fit_ends_at_a_finite_value(name: str) -> None:
    """A skew of 0, multiplied in a branch of a loop, once made the whole search empty."""
    rng = np.random.default_rng(0)
    X = np.sort(rng.uniform(0.0, 10.0, (20, 1)), 0)
    Y = np.sin(X) + 0.2 * rng.laplace(size=X.shape)
    base = BASES[name][0]()
    gpflow.set_trainable(base, False)
    model = AugmentedSVGP(
        gpflow.kernels.Matern52(),
        Heteroscedastic(base, 20.0),
        X[::5],
        num_latent_gps=2,
        num_data=20,
    )
    found = gpflow_aaci.fit_collapsed(model, (X, Y), progress=False)
    assert found.converged
    assert found.objective == pytest.approx(float(model.elbo((X, Y))), abs=1e-5)
