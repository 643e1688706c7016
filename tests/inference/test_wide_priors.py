"""Where a search for q begins if the prior is wide at the data; and what is said of a start."""

from collections.abc import Callable

import gpflow
import numpy as np
import pytest
import scipy.optimize
import scipy.special
import tensorflow as tf
from gpflow.base import AnyNDArray

import gpflow_aaci
from gpflow_aaci import AugmentedSVGP, AugmentedVGP, likelihoods
from gpflow_aaci.contrib.likelihoods import NoiseMixture
from gpflow_aaci.data import as_data
from gpflow_aaci.inference.starting import narrow_q, q_at_start
from gpflow_aaci.models import as_augmented
from gpflow_aaci.validation import unless_cholesky_fails

RNG = np.random.default_rng(0)
X = np.linspace(0.0, 145.0, 60)[:, None]
SHARE = scipy.special.expit(1.0 - 0.02 * X)
COUNTS = RNG.poisson(100.0 * SHARE).astype(float)
WAITS = RNG.exponential(0.5 / SHARE)
NODES = np.stack([np.arange(60) % 2, np.where(np.arange(60) % 2, 0.0, 2.0)], -1)  # of a process
OUTLIERS = 0.01 * X + 0.1 * RNG.standard_t(3, X.shape)

Make = Callable[[], gpflow.likelihoods.Likelihood]
CASES: dict[str, tuple[Make, AnyNDArray]] = {
    "Poisson": (lambda: likelihoods.Poisson(100.0), COUNTS),
    "ZeroInflated": (
        lambda: likelihoods.ZeroInflated(likelihoods.Poisson(100.0)),
        np.where(np.arange(60)[:, None] % 7, COUNTS, 0.0),
    ),
    "Exponential": (lambda: likelihoods.Exponential(2.0), WAITS),
    "Weibull": (lambda: likelihoods.Weibull(2.0), WAITS**0.7),
    "Gamma": (lambda: likelihoods.Gamma(2.0), WAITS + 0.1),
    "CoxProcess": (lambda: likelihoods.CoxProcess(2.0), NODES),
    "NoiseMixture": (
        lambda: NoiseMixture([likelihoods.StudentT(0.1), likelihoods.Laplace(1.0)]),
        OUTLIERS,
    ),
    "GPflow's Poisson": (gpflow.likelihoods.Poisson, COUNTS),
    "GPflow's Exponential": (gpflow.likelihoods.Exponential, WAITS),
    "GPflow's Gamma": (gpflow.likelihoods.Gamma, WAITS + 0.1),
}
KINDS = {
    "AugmentedVGP": AugmentedVGP,
    "AugmentedSVGP": AugmentedSVGP,
    "VGP": gpflow.models.VGP,
    "SVGP": gpflow.models.SVGP,
}


def model_of(
    kind: str, likelihood: gpflow.likelihoods.Likelihood, X: AnyNDArray, Y: AnyNDArray
) -> tuple[gpflow.models.GPModel, tuple[AnyNDArray, AnyNDArray] | None]:
    """A model whose f is a line w x with w ~ N(0, 1), and its data if it does not store them."""
    kernel = gpflow.kernels.Linear()
    if kind.endswith("SVGP"):
        Z = X[[10, 30, 55]].copy()
        model = KINDS[kind](kernel, likelihood, Z, num_latent_gps=1, num_data=len(X))
        gpflow.set_trainable(model.inducing_variable, False)
        return model, (X, Y)
    return KINDS[kind]((X, Y), kernel, likelihood, num_latent_gps=1), None


def best_elbo(likelihood: gpflow.likelihoods.Likelihood, X: AnyNDArray, Y: AnyNDArray) -> float:
    """The highest Σ E log p(y|w x) − KL[q(w) ‖ N(0, 1)] of all q(w) = N(m, s²), by brute force."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(32)
    weights, largest = weights / weights.sum(), np.max(np.abs(X))

    @tf.function(autograph=False)
    def log_p(w: tf.Tensor) -> tf.Tensor:
        f = w[:, None, None] * X
        args = (tf.broadcast_to(part, [len(nodes), *part.shape]) for part in (X, Y))
        return tf.reduce_sum(likelihood.log_prob(next(args), f, next(args)), -1)

    def loss(at: AnyNDArray) -> float:
        m, s = at[0] / largest, np.exp(at[1]) / largest
        KL = 0.5 * (s**2 + m**2 - 1.0) - np.log(s)
        with np.errstate(over="ignore", invalid="ignore"):
            return float(np.nan_to_num(KL - weights @ log_p(m + s * nodes).numpy(), nan=np.inf))

    options = {"maxiter": 300, "xatol": 1e-6, "fatol": 1e-5}
    starts = ((f, -3.0) for f in (-2.0, 1.0, 50.0))  # of f where x is largest
    ends = [scipy.optimize.minimize(loss, f, method="Nelder-Mead", options=options) for f in starts]
    return -min(end.fun for end in ends)


@pytest.mark.slow
@pytest.mark.by_default("NoiseMixture")
@pytest.mark.parametrize("case", CASES)
def test_where_the_prior_is_wide_the_best_q_is_found(case: str) -> None:
    """By ``fit_collapsed`` with all else fixed, and by ``polish``; from the prior and elsewhere."""
    make, Y = CASES[case]
    best = best_elbo(gpflow_aaci.likelihoods.augmented(make()), X, Y)
    for width in (1.0, 1e-4):
        model, _ = model_of("AugmentedVGP", make(), X, Y)
        gpflow.set_trainable(model, False)
        model.q_sqrt.assign(width * model.q_sqrt.numpy())
        before = model.q_sqrt.numpy()
        np.testing.assert_allclose(gpflow_aaci.polish(model, progress=False).elbo, best, atol=2e-3)
        model.q_mu.assign(tf.zeros_like(model.q_mu))
        model.q_sqrt.assign(before)
        result = gpflow_aaci.fit_collapsed(model, progress=False)
        np.testing.assert_allclose(result.objective, best, atol=2e-3)
        np.testing.assert_allclose(model.elbo(), best, atol=2e-3)
        assert result.converged


@pytest.mark.slow
@pytest.mark.by_default("SVGP")
@pytest.mark.parametrize("kind", ["AugmentedSVGP", "VGP", "SVGP"])
def test_it_is_found_in_every_model(kind: str) -> None:
    for make, Y in (CASES["Poisson"], CASES["GPflow's Poisson"]):
        best = best_elbo(gpflow_aaci.likelihoods.augmented(make()), X, Y)
        model, data = model_of(kind, make(), X, Y)
        gpflow.set_trainable(model, False)
        np.testing.assert_allclose(
            gpflow_aaci.fit(model, data, progress=False).elbo, best, atol=0.01
        )
        model, data = model_of(kind, make(), X, Y)
        polished = gpflow_aaci.polish(model, data, progress=False).elbo
        np.testing.assert_allclose(polished, best, atol=0.01)
        if kind == "AugmentedSVGP":
            model, data = model_of(kind, make(), X, Y)
            updated = gpflow_aaci.update(model, data, progress=False)
            np.testing.assert_allclose(updated.bound, best, atol=0.01)


@pytest.mark.slow
@pytest.mark.by_default("Poisson", "Gamma")
@pytest.mark.parametrize("case", CASES)
def test_a_fit_of_all_parameters_ends_above_the_best_q_of_the_first_ones(case: str) -> None:
    make, Y = CASES[case]
    best = best_elbo(gpflow_aaci.likelihoods.augmented(make()), X, Y)
    ends = []
    for width in (1.0, 1e-4):
        model, _ = model_of("AugmentedVGP", make(), X, Y)
        model.q_sqrt.assign(width * model.q_sqrt.numpy())
        result = gpflow_aaci.fit(model, progress=False)
        assert result.converged
        ends.append(result.elbo)
    assert min(ends) > best - 2e-3
    np.testing.assert_allclose(*ends, atol=2e-3)


@pytest.mark.slow
def test_a_rate_that_falls_over_a_raw_column_is_not_taken_for_a_constant() -> None:
    rng = np.random.default_rng(0)
    X = np.arange(146.0)[:, None]
    Y = rng.poisson(110.0 - 0.27 * X).astype(float)
    model = AugmentedVGP((X, Y), gpflow.kernels.Linear(), likelihoods.Poisson(max_rate=200.0))
    result = gpflow_aaci.fit(model, progress=False)
    np.testing.assert_allclose(result.elbo, -539.517, atol=0.01)
    rate = model.predict_y(X)[0].numpy()
    np.testing.assert_allclose(rate, 110.0 - 0.27 * X, rtol=0.06)
    # A fit of the fitted model stays where it is.
    again = gpflow_aaci.fit(model, progress=False)
    np.testing.assert_allclose(again.elbo, result.elbo, atol=2e-3)


@pytest.mark.slow
@pytest.mark.by_default("2000.0-Poisson")
@pytest.mark.parametrize("name", ["Poisson", "Exponential", "Gamma"])
@pytest.mark.parametrize("variance", [1000.0, 2000.0])
def test_an_exponential_rate_that_overflows_at_the_prior_is_fitted(
    variance: float, name: str
) -> None:
    """At variance 1000, E exp(f) is 1e217, and at 2000 it is infinite."""
    rng = np.random.default_rng(0)
    Z = np.linspace(0.0, 1.0, 50)[:, None]
    Y = rng.poisson(5.0 * np.exp(np.sin(6.0 * Z))).astype(float)
    Y = Y if name == "Poisson" else Y + 1.0
    ends = []
    for start in (1.0, variance):
        kernel = gpflow.kernels.SquaredExponential(variance=start, lengthscales=0.3)
        likelihood = getattr(gpflow.likelihoods, name)()
        model = AugmentedVGP((Z, Y), kernel, likelihood)
        result = gpflow_aaci.fit(model, progress=False)
        assert result.converged
        ends.append(result.elbo)
    np.testing.assert_allclose(*ends, atol=2e-3)
    if name == "Poisson":
        np.testing.assert_allclose(ends, -120.161, atol=2e-3)


def test_a_column_in_millions_does_not_keep_a_fit_from_beginning() -> None:
    """The prior's standard deviation of f is up to a million."""
    raw = 1e6 * X / 145.0
    rng = np.random.default_rng(1)
    Y = rng.poisson(np.exp(2e-6 * raw)).astype(float)
    best = best_elbo(gpflow.likelihoods.Poisson(), raw, Y)
    # One inducing point determines a line.
    args = gpflow.kernels.Linear(), gpflow.likelihoods.Poisson(), raw[-1:].copy()
    polished = gpflow_aaci.polish(AugmentedSVGP(*args), (raw, Y), progress=False)
    np.testing.assert_allclose(polished.elbo, best, atol=0.02)  # rounding of 1e12 − 1e12


@pytest.mark.by_default("fit")
@pytest.mark.parametrize("how", [gpflow_aaci.fit, gpflow_aaci.polish])
def test_where_no_start_helps_the_row_and_the_prior_there_are_named(how: Callable) -> None:
    """One inducing point at 0 leaves the whole prior variance of f elsewhere, whatever q is."""
    Y = np.ones_like(X)
    kernel = gpflow.kernels.SquaredExponential(variance=22_500.0, lengthscales=0.5)
    model = AugmentedSVGP(kernel, gpflow.likelihoods.Poisson(), X[:1].copy(), num_data=60)
    model.q_sqrt.assign([[[1e-3]]])  # at row 0 all is well
    before = [variable.numpy() for variable in model.variables]
    message = (
        r"not finite at row 1, where the prior's standard deviation of f is 150: scale the col"
    )
    with pytest.raises(ValueError, match=message):
        how(model, (X, Y), progress=False)
    for variable, value in zip(model.variables, before, strict=True):
        np.testing.assert_array_equal(variable, value)


@pytest.mark.by_default("StudentT")
@pytest.mark.parametrize("case", ["Gaussian", "Logistic", "NegativeBinomial", "StudentT"])
def test_where_data_make_q_narrow_there_is_no_second_search(case: str) -> None:
    """The prior is wide: only what the data leave of it decides."""
    rng = np.random.default_rng(2)
    likelihood, Y = {
        "Gaussian": (likelihoods.Gaussian(), OUTLIERS),
        "Logistic": (likelihoods.Logistic(), (rng.uniform(size=X.shape) < SHARE).astype(float)),
        "NegativeBinomial": (likelihoods.NegativeBinomial(), COUNTS),
        "StudentT": (likelihoods.StudentT(), OUTLIERS),
    }[case]
    model, _ = model_of("AugmentedVGP", likelihood, X, Y)
    rows = as_data(model.expected_data)
    assert narrow_q(model, rows, q_at_start(model, rows), 0.0) is not None
    polished = gpflow_aaci.polish(model, progress=False)
    assert narrow_q(model, rows, q_at_start(model, rows), polished.elbo) is None


def test_a_narrow_start_has_a_narrow_f_at_every_row() -> None:
    for scale in (1e-3, 1.0, 1e3):
        rows = scale * X, COUNTS
        model = AugmentedSVGP(gpflow.kernels.Linear(), likelihoods.Poisson(), scale * X[-1:])
        data = as_data(model.expected_data, rows)
        narrow = narrow_q(model, data, q_at_start(model, data), -np.inf)
        assert narrow is not None
        model.assign_whitened_q(narrow)
        mean, variance = model.predict_f(rows[0])
        np.testing.assert_array_equal(mean, 0.0)
        assert np.max(variance) < 0.1**2


# ---- what TensorFlow's errors say ----


@pytest.mark.parametrize(
    "words",
    [
        "Cholesky decomposition was not successful. The input might not be valid.",
        "Cholesky decomposition was not successful. Eigen::LLT failed with error code 1. Filling",
        "Cholesky decomposition was not successful for batch 0. The input might not be valid.",
    ],
)
def test_tensorflows_words_about_cholesky_are_known(words: str) -> None:
    def fail() -> float:
        raise tf.errors.InvalidArgumentError(None, None, words)

    assert unless_cholesky_fails(fail, 3.0) == 3.0
    assert unless_cholesky_fails(lambda: 4.0, 3.0) == 4.0


@pytest.mark.by_default("fit")
@pytest.mark.parametrize("how", [gpflow_aaci.fit, gpflow_aaci.polish])
@pytest.mark.skipif(bool(tf.config.list_physical_devices("GPU")), reason="a GPU reads 0 there")
def test_an_output_out_of_range_is_named_by_its_index(how: Callable) -> None:
    rng = np.random.default_rng(0)
    rows = np.hstack([rng.uniform(size=(30, 1)), np.repeat([0.0, 1.0, 2.0], 10)[:, None]])
    kernel = gpflow.kernels.Matern32(active_dims=[0]) * gpflow.kernels.Coregion(
        output_dim=2, rank=1, active_dims=[1]
    )
    model = AugmentedVGP((rows, rows[:, :1]), kernel, likelihoods.Laplace())
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"= 2 is not in \[0, 2\)"):
        how(model, progress=False)


@pytest.mark.by_default("VGP")
@pytest.mark.parametrize("kind", [AugmentedVGP, gpflow.models.VGP])
def test_data_that_were_exchanged_without_q_are_compared_with_it(kind: type) -> None:
    rows = [tf.Variable(part[:20], shape=[None, 1], trainable=False) for part in (X, OUTLIERS)]
    model = kind(tuple(rows), gpflow.kernels.Matern32(), gpflow.likelihoods.StudentT())
    for variable, part in zip(rows, (X, OUTLIERS), strict=True):
        variable.assign(part)
    message = r"q_mu, 20\..*update_vgp_data.*Found: 60 rows"
    for how in (gpflow_aaci.fit, gpflow_aaci.polish):
        with pytest.raises(ValueError, match=message):
            how(model, progress=False)
    with pytest.raises(ValueError, match=message):
        as_augmented(model).elbo()
    for variable, part in zip(rows, (X, OUTLIERS), strict=True):
        variable.assign(part[:20])
    gpflow.models.vgp.update_vgp_data(model, (X, OUTLIERS))
    assert np.isfinite(gpflow_aaci.polish(model, progress=False).elbo)
