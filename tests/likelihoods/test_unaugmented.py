"""Likelihoods without augmentation: every one of GPflow's, and a user's own, in both models."""

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass

import gpflow
import numpy as np
import pytest
import scipy.special
import scipy.stats
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import AnyNDArray
from gpflow.inducing_variables import InducingPoints, SharedIndependentInducingVariables
from gpflow.quadrature import NDiagGHQuadrature

from gpflow_aaci import (
    AlternatingOptimizer,
    AugmentedNaturalGradient,
    AugmentedSVGP,
    AugmentedVGP,
    augmentation,
    check_likelihood,
    fit,
    likelihoods,
    predictions,
    sample_posterior,
)
from gpflow_aaci.criticism.calibration import pit
from gpflow_aaci.data.datasets import untuned
from gpflow_aaci.likelihoods import augmented
from gpflow_aaci.likelihoods.unaugmented import StockLikelihood

Stock = gpflow.likelihoods.Likelihood


def cloglog(f: tf.Tensor) -> tf.Tensor:
    return 1e-6 + (1.0 - 2e-6) * (1.0 - tf.exp(-tf.exp(f)))


class Cubic(gpflow.likelihoods.ScalarLikelihood):
    """A user's own: y ~ N(f³ + f, 0.3²), which is not log-concave in f."""

    def _scalar_log_prob(self, X: tf.Tensor, F: tf.Tensor, Y: tf.Tensor) -> tf.Tensor:
        return gpflow.logdensities.gaussian(Y, F**3 + F, tf.constant(0.09, F.dtype))

    def _conditional_mean(self, X: tf.Tensor, F: tf.Tensor) -> tf.Tensor:
        return F**3 + F

    def _conditional_variance(self, X: tf.Tensor, F: tf.Tensor) -> tf.Tensor:
        return 0.09 * tf.ones_like(F)


class Product(gpflow.likelihoods.QuadratureLikelihood):
    """A user's own of two latent GPs: y ~ N(f, e^{2g}), which is not log-concave in (f, g)."""

    def __init__(self) -> None:
        super().__init__(input_dim=None, latent_dim=2, observation_dim=1)

    def _log_prob(self, X: tf.Tensor, F: tf.Tensor, Y: tf.Tensor) -> tf.Tensor:
        law = tfp.distributions.Normal(F[..., 0], tf.exp(F[..., 1]))
        return law.log_prob(Y[..., 0])

    def _conditional_mean(self, X: tf.Tensor, F: tf.Tensor) -> tf.Tensor:
        return F[..., :1]

    def _conditional_variance(self, X: tf.Tensor, F: tf.Tensor) -> tf.Tensor:
        return tf.exp(2.0 * F[..., 1:])


@dataclass(frozen=True)
class Case:
    """A likelihood, and draws of y given a smooth f [N, 1]."""

    name: str
    make: Callable[[], Stock]
    observe: Callable[[np.random.Generator, AnyNDArray], AnyNDArray]
    num_latents: int = 1
    is_concave: bool = True  # at all y that ``observe`` draws


def _switched(rng: np.random.Generator, f: AnyNDArray) -> AnyNDArray:
    part = np.arange(len(f))[:, None] % 3
    noisy = f + 0.3 * rng.standard_t(3.0, size=f.shape)
    return np.hstack([np.where(part == 0, rng.poisson(np.exp(f)), noisy), part]).astype(float)


CASES = [
    Case("Poisson", gpflow.likelihoods.Poisson, lambda rng, f: rng.poisson(np.exp(f))),
    Case(
        "Poisson-softplus",
        lambda: gpflow.likelihoods.Poisson(tf.nn.softplus, binsize=2.0),
        lambda rng, f: rng.poisson(2.0 * np.logaddexp(0.0, f)),
    ),
    Case("Exponential", gpflow.likelihoods.Exponential, lambda rng, f: rng.exponential(np.exp(f))),
    Case(
        "Gamma",
        lambda: gpflow.likelihoods.Gamma(shape=2.0),
        lambda rng, f: rng.gamma(2.0, np.exp(f)),
    ),
    Case(
        "Beta",
        lambda: gpflow.likelihoods.Beta(scale=6.0),
        lambda rng, f: np.clip(
            rng.beta(6.0 * scipy.special.ndtr(f), 6.0 * scipy.special.ndtr(-f)), 0.01, 0.99
        ),
        is_concave=False,
    ),
    Case(
        "Bernoulli-cloglog",
        lambda: gpflow.likelihoods.Bernoulli(invlink=cloglog),
        lambda rng, f: rng.uniform(size=f.shape) < 1.0 - np.exp(-np.exp(f)),
        is_concave=False,
    ),
    Case(
        "MultiClass",
        lambda: gpflow.likelihoods.MultiClass(3),
        lambda rng, f: np.digitize(f, [-0.5, 0.6]),
        num_latents=3,
        is_concave=False,
    ),
    Case(
        "HeteroskedasticTFPConditional",
        gpflow.likelihoods.HeteroskedasticTFPConditional,
        lambda rng, f: f + np.exp(0.5 * np.roll(f, 7) - 1.0) * rng.normal(size=f.shape),
        num_latents=2,
        is_concave=False,
    ),
    Case(
        "SwitchedLikelihood",
        lambda: gpflow.likelihoods.SwitchedLikelihood(
            [
                gpflow.likelihoods.Poisson(),
                gpflow.likelihoods.StudentT(0.3),
                gpflow.likelihoods.Gaussian(0.2),
            ]
        ),
        _switched,
        is_concave=False,
    ),
    Case(
        "Cubic",
        Cubic,
        lambda rng, f: f**3 + f + 0.3 * rng.normal(size=f.shape),
        is_concave=False,
    ),
    Case(
        "Product",
        Product,
        lambda rng, f: f + 0.4 * rng.normal(size=f.shape),
        num_latents=2,
        is_concave=False,
    ),
]
N = 60


@pytest.fixture(params=CASES, ids=[case.name for case in CASES])
def case(request: pytest.FixtureRequest) -> Case:
    return request.param


def data_of(case: Case, num_data: int = N) -> tuple[AnyNDArray, AnyNDArray]:
    rng = np.random.default_rng(5)
    X = np.linspace(0.0, 6.0, num_data)[:, None]
    return X, np.asarray(case.observe(rng, np.sin(1.5 * X)), dtype=float)


def make_svgp(case: Case, kind: type[gpflow.models.SVGP], **options: object) -> gpflow.models.SVGP:
    Z = InducingPoints(np.linspace(0.0, 6.0, 9)[:, None])
    kernel = gpflow.kernels.SquaredExponential()
    if case.num_latents == 1:
        model = kind(kernel, case.make(), Z, **options)
    else:
        model = kind(
            gpflow.kernels.SharedIndependent(kernel, case.num_latents),
            case.make(),
            SharedIndependentInducingVariables(Z),
            num_latent_gps=case.num_latents,
            **options,
        )
    gpflow.set_trainable(model.inducing_variable, False)
    return model


def at_random_q(model: gpflow.models.GPModel, spread: float = 0.3) -> gpflow.models.GPModel:
    rng = np.random.default_rng(8)
    M, L = model.q_mu.shape
    model.q_mu.assign(spread * rng.normal(size=(M, L)))
    model.q_sqrt.assign(0.5 * np.eye(M) + 0.1 * np.tril(rng.normal(size=(L, M, M))))
    return model


@pytest.mark.briefly("Exponential-True")
@pytest.mark.parametrize("whiten", [True, False])
@pytest.mark.by_default("True")
def test_the_elbo_of_svgp_is_gpflows(case: Case, whiten: bool) -> None:
    data = data_of(case)
    ours, theirs = (
        at_random_q(make_svgp(case, kind, whiten=whiten, num_data=200))
        for kind in (AugmentedSVGP, gpflow.models.SVGP)
    )
    expected = theirs.elbo(data)
    np.testing.assert_allclose(ours.elbo(data), expected, rtol=1e-10)
    np.testing.assert_allclose(ours.augmented_elbo(data), expected, rtol=1e-10)
    np.testing.assert_allclose(-ours.training_loss(data), expected, rtol=1e-10)


@pytest.mark.briefly("Cubic")
def test_the_elbo_of_vgp_is_gpflows(case: Case) -> None:
    """But for GPflow's VGP adding jitter to the variances of f."""
    X, Y = data_of(case, 20)
    models = [
        at_random_q(
            kind(
                (X, Y),
                gpflow.kernels.SquaredExponential(),
                case.make(),
                num_latent_gps=case.num_latents,
            )
        )
        for kind in (AugmentedVGP, gpflow.models.VGP)
    ]
    with gpflow.config.as_context(gpflow.config.Config(jitter=1e-10)):
        ours, theirs = (model.elbo() for model in models)
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)


@pytest.mark.briefly("Poisson-softplus")
def test_predictions_are_gpflows(case: Case) -> None:
    X, Y = data_of(case)
    ours, theirs = (
        at_random_q(make_svgp(case, kind)) for kind in (AugmentedSVGP, gpflow.models.SVGP)
    )
    for found, expected in zip(ours.predict_y(X), theirs.predict_y(X), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-10)
    found, expected = (model.predict_log_density((X, Y)) for model in (ours, theirs))
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.briefly("Exponential-0.3")
@pytest.mark.by_default("0.3")
# Elsewhere GPflow's step need not exist; steps that ascend are tested below.
@pytest.mark.applies_to("case", lambda case: case.is_concave)
@pytest.mark.parametrize("gamma", [1.0, 0.3])
def test_a_step_is_gpflows_natural_gradient(case: Case, gamma: float) -> None:
    data = data_of(case)
    ours, theirs = (
        at_random_q(make_svgp(case, kind)) for kind in (AugmentedSVGP, gpflow.models.SVGP)
    )
    for _ in range(2):  # to where a step of size 1 does not go too far
        AugmentedNaturalGradient(0.5).minimize(ours, data)
    theirs.q_mu.assign(ours.q_mu)
    theirs.q_sqrt.assign(ours.q_sqrt)
    AugmentedNaturalGradient(gamma).minimize(ours, data)
    gpflow.optimizers.NaturalGradient(gamma).minimize(
        theirs.training_loss_closure(data, compile=False), [(theirs.q_mu, theirs.q_sqrt)]
    )
    np.testing.assert_allclose(ours.q_mu, theirs.q_mu, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(ours.q_sqrt, theirs.q_sqrt, rtol=1e-8, atol=1e-9)


@pytest.mark.by_default("Cubic")
def test_steps_of_size_1_ascend_from_the_prior(case: Case) -> None:
    """Also where log p(y|f) is not concave, and GPflow's step of that size would leave no q."""
    X, Y = data_of(case)
    model = make_svgp(case, AugmentedSVGP, num_data=N)
    values = [float(model.elbo((X, Y)))]
    for _ in range(8):
        AugmentedNaturalGradient(1.0).minimize(model, (X, Y))
        values.append(float(model.elbo((X, Y))))
    assert np.all(np.diff(values) >= -1e-7)
    assert values[1] > values[0] + 1.0
    rng = np.random.default_rng(2)
    model = make_svgp(case, AugmentedSVGP, num_data=N)
    for _ in range(8):
        rows = rng.choice(N, 40, replace=False)
        AugmentedNaturalGradient(1.0).minimize(model, (X[rows], Y[rows]))
        assert float(model.elbo((X, Y))) > values[0]


@pytest.mark.replicate
def test_steps_with_adam_ascend_from_the_prior(case: Case) -> None:
    """Minibatches at step 1 and GPflow's default start, in one compiled step."""
    X, Y = data_of(case)
    model = make_svgp(case, AugmentedSVGP, num_data=N)
    start = float(model.elbo((X, Y)))
    optimizer = AlternatingOptimizer(step_size=1.0)
    rows = tf.data.Dataset.from_tensor_slices((X, Y)).shuffle(N, seed=0).repeat().batch(40)
    batches = iter(untuned(rows))
    step = tf.function(lambda: optimizer.minimize(model, batches), autograph=False)
    for _ in range(20):
        step()
    assert float(model.elbo((X, Y))) > start + 5.0


@pytest.mark.slow
@pytest.mark.by_default("Cubic")
def test_fit_ends_no_lower_than_l_bfgs(case: Case) -> None:
    data = data_of(case)
    ours = make_svgp(case, AugmentedSVGP)
    result = fit(ours, data, progress=False)
    theirs = make_svgp(case, gpflow.models.SVGP)
    gpflow.optimizers.Scipy().minimize(
        theirs.training_loss_closure(data), theirs.trainable_variables, options={"maxiter": 3_000}
    )
    assert result.converged, result.reason
    assert result.elbo > float(theirs.elbo(data)) - 0.05
    assert result.gap == 0.0
    assert "augmented" not in str(result)


@pytest.mark.slow
@pytest.mark.by_default("AugmentedSVGP")
@pytest.mark.parametrize("kind", [AugmentedSVGP, AugmentedVGP])
def test_a_rate_of_f_squared_does_not_remain_at_its_saddle(kind: type) -> None:
    """By symmetry the gradient in the mean of f is 0 at 0, where L-BFGS remains."""
    rng = np.random.default_rng(0)
    X = np.linspace(0.0, 6.0, N)[:, None]
    Y = rng.poisson((2.0 + np.sin(X)) ** 2).astype(float)
    likelihood, kernel = gpflow.likelihoods.Poisson(tf.square), gpflow.kernels.SquaredExponential()
    if kind is AugmentedVGP:
        model, data = AugmentedVGP((X, Y), kernel, likelihood), None
    else:
        model, data = AugmentedSVGP(kernel, likelihood, X[::6].copy()), (X, Y)
    result = fit(model, data, progress=False)
    assert result.converged, result.reason
    mean = model.predict_y(X)[0].numpy()
    assert np.mean((mean - (2.0 + np.sin(X)) ** 2) ** 2) < 1.5  # at f = 0 it is 9
    sure = scipy.stats.poisson.logpmf(Y, (2.0 + np.sin(X)) ** 2).sum()
    assert result.elbo > sure - 15.0


def test_the_users_class_and_parameters_remain(case: Case) -> None:
    stock = case.make()
    found = augmented(stock)
    assert isinstance(found, type(stock))
    assert type(found).__name__ == type(stock).__name__
    paths = gpflow.utilities.parameter_dict(stock)
    assert {k: id(v) for k, v in gpflow.utilities.parameter_dict(found).items()} == {
        k: id(v) for k, v in paths.items()
    }
    assert augmented(found) is found


def test_there_is_no_gibbs_sampler_and_the_message_names_others(case: Case) -> None:
    X, Y = data_of(case)
    likelihood = augmented(case.make())
    F = np.zeros((N, case.num_latents))
    with pytest.raises(NotImplementedError, match=r"contrib\.HMC.*contrib\.EllipticalSlices"):
        augmentation.aux_full_conditional(likelihood, F, Y)
    with pytest.raises(ValueError, match="that make log p"):
        augmentation.aux_posterior_c(likelihood, F, F, Y)
    model = AugmentedVGP(
        (X, Y),
        gpflow.kernels.SquaredExponential(),
        likelihood,
        num_latent_gps=case.num_latents,
    )
    with pytest.raises(ValueError, match=r"contrib\.HMC.* no Gibbs sampler"):
        sample_posterior(model, num_samples=2, progress=False)


def test_log_prob_takes_batches_of_f(case: Case) -> None:
    """As samplers need it: GPflow's own take [N, L] only for some of these."""
    X, Y = data_of(case)
    stock = case.make()
    F = np.random.default_rng(1).normal(size=(2, 3, N, case.num_latents))
    found = augmented(stock).log_prob(X, F, Y)
    for i, j in np.ndindex(2, 3):
        np.testing.assert_allclose(found[i, j], stock.log_prob(X, F[i, j], Y), rtol=1e-12)


def test_check_likelihood_says_which_kind_it_is() -> None:
    Y = np.array([[0.0], [2.0], [1.0]])
    poisson = gpflow.likelihoods.Poisson()
    assert check_likelihood(poisson, Y, progress=False) == "without augmentation"
    assert check_likelihood(gpflow.likelihoods.Ordinal(np.array([0.0, 1.0])), Y) == "augmented"
    assert check_likelihood(gpflow.likelihoods.StudentT(), Y) == "super-Gaussian"


def test_every_such_likelihood_of_the_package_is_a_case() -> None:
    made = {type(augmented(case.make())) for case in CASES} | {likelihoods.Softmax}

    def subclasses(kind: type) -> set[type]:
        return {kind, *(found for each in kind.__subclasses__() for found in subclasses(each))}

    ours = {
        kind
        for kind in subclasses(likelihoods.Unaugmented)
        if kind.__module__.startswith(likelihoods.__name__) and not inspect.isabstract(kind)
    }
    assert ours - {likelihoods.Unaugmented, StockLikelihood} <= made


# ---- distributions of y ----

LAWS = {
    "Poisson": lambda f: scipy.stats.poisson(np.exp(f)),
    "Exponential": lambda f: scipy.stats.expon(scale=np.exp(f)),
    "Gamma": lambda f: scipy.stats.gamma(2.0, scale=np.exp(f)),
    "Beta": lambda f: scipy.stats.beta(6.0 * _squeezed(f), 6.0 * (1.0 - _squeezed(f))),
}


def _squeezed(f: AnyNDArray) -> AnyNDArray:
    return 0.001 + 0.998 * scipy.special.ndtr(f)


@pytest.mark.briefly("Poisson")
@pytest.mark.parametrize("name", LAWS)
def test_cdf_and_quantiles_are_those_of_the_law(name: str) -> None:
    case = next(case for case in CASES if case.name == name)
    likelihood, law = augmented(case.make()), LAWS[name]
    _, Y = data_of(case)
    F = np.random.default_rng(0).normal(size=(N, 1))
    X = np.zeros((N, 1))
    np.testing.assert_allclose(likelihood.cdf(X, F, Y), law(F).cdf(Y), rtol=1e-8)
    x, w = np.polynomial.hermite_e.hermegauss(60)
    expected = sum(
        weight * law(F + 0.5 * node).cdf(Y) for node, weight in zip(x, w / w.sum(), strict=True)
    )
    found = likelihood.predict_cdf(X, F, 0.25 * np.ones_like(F), Y)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9)
    model = at_random_q(make_svgp(case, AugmentedSVGP))
    median = predictions.predict_y_quantile(model, model.inducing_variable.Z, [0.5])[0]
    above = predictions.predict_y_cdf(model, model.inducing_variable.Z, median)
    if name == "Poisson":
        assert np.all(above >= 0.5)
    else:
        np.testing.assert_allclose(above, 0.5, atol=1e-8)
    draws = predictions.predict_y_samples(model, model.inducing_variable.Z, 4_000, seed=1)
    share = np.mean(draws.numpy() <= median, 0)
    np.testing.assert_allclose(share, above, atol=0.04)


def test_of_a_switched_likelihood_each_row_has_the_distribution_of_its_part() -> None:
    """One part has no augmentation. A quantile at a new input would need the part."""
    parts = [
        gpflow.likelihoods.Poisson(),
        gpflow.likelihoods.Gaussian(0.2),
        likelihoods.StudentT(0.3),
        gpflow.likelihoods.Gamma(shape=2.0),
        gpflow.likelihoods.Bernoulli(),
    ]
    rng = np.random.default_rng(0)
    X, part = rng.normal(size=(40, 1)), np.arange(40)[:, None] % 5.0
    y = np.where(
        part == 4, part % 3 > X, np.where(part == 0, rng.poisson(2.0, X.shape), 0.5 + X**2)
    )
    switched = gpflow.likelihoods.SwitchedLikelihood(parts)
    model = AugmentedSVGP(gpflow.kernels.Matern52(), switched, X[:7].copy(), num_data=40)
    model.q_mu.assign(rng.normal(size=(7, 1)))
    cdf = predictions.predict_y_cdf(model, X, np.hstack([y, part]))
    for k, one in enumerate(parts):
        own = part[:, 0] == k
        model.likelihood = one
        expected = predictions.predict_y_cdf(model, X[own], y[own])
        # GPflow squeezes the probabilities of its Bernoulli into [0.001, 0.999].
        np.testing.assert_allclose(cdf[own], expected, atol=1.1e-3 if k == 4 else 1e-6)
    model.likelihood = augmented(switched)
    values = pit(model, (X, np.hstack([y, part])))
    np.testing.assert_allclose(values[part % 4 != 0], cdf[part % 4 != 0], rtol=1e-12)
    is_count = part == 0
    below = np.where(is_count, np.maximum(y - 1.0, 0.0), y)
    lower = np.where(
        is_count & (y > 0.0),
        predictions.predict_y_cdf(model, X, np.hstack([below, part])),
        0.0,
    )
    assert np.all((values >= lower)[is_count])
    assert np.all((values <= cdf)[is_count])
    for call in (
        lambda: predictions.predict_y_quantile(model, X, [0.5]),
        lambda: predictions.predict_y_samples(model, X, 3),
    ):
        with pytest.raises(ValueError, match="must be one part of SwitchedLikelihood"):
            call()


@pytest.mark.parametrize(
    ("name", "y", "message"),
    [
        ("Poisson", 0.5, "Y must hold whole numbers from 0 up for Poisson"),
        ("Exponential", -1.0, "Y must be positive for Exponential"),
        ("Gamma", 0.0, "Y must be positive for Gamma"),
        ("Beta", 1.0, "Y must be above 0 and below 1 for Beta"),
        ("Bernoulli-cloglog", 2.0, "Y must hold labels of Bernoulli"),
        ("MultiClass", 3.0, "Y must hold labels from 0 to num_classes - 1 = 2"),
        ("SwitchedLikelihood", 3.0, "Y must end in a column of the parts' indices"),
        ("Cubic", np.nan, "Y must be finite"),
    ],
)
def test_bad_y_is_named(name: str, y: float, message: str) -> None:
    case = next(case for case in CASES if case.name == name)
    X, Y = data_of(case)
    Y[3] = y
    with pytest.raises(ValueError, match=message):
        make_svgp(case, AugmentedSVGP).elbo((X, Y))


def test_random_expectations_are_refused() -> None:
    class Own(gpflow.likelihoods.Softmax):
        """Draws samples, and may have overridden anything."""

    with pytest.raises(ValueError, match=r"not a Monte Carlo estimate.*Found: Own"):
        augmented(Own(3))
    with pytest.raises(ValueError, match=r"gpflow\.likelihoods\.Likelihood.*Found: str"):
        augmented("Poisson")  # type: ignore[arg-type]


def test_gaussian_mc_is_gaussian() -> None:
    stock = gpflow.likelihoods.GaussianMC(0.3)
    found = augmented(stock)
    assert type(found) is likelihoods.Gaussian
    assert found.variance is stock.variance


# ---- Softmax ----


def test_softmax_is_gpflows_integrated_exactly() -> None:
    """E log p(y|f), predictions and the coupling against a product rule."""
    likelihood = augmented(gpflow.likelihoods.Softmax(3))
    assert type(likelihood) is likelihoods.Softmax
    rng = np.random.default_rng(0)
    X, Fmu = np.zeros((6, 1)), 2.0 * rng.normal(size=(6, 3))
    Fvar, Y = rng.uniform(0.01, 1.5, size=(6, 3)), np.arange(6.0)[:, None] % 3
    rule = NDiagGHQuadrature(3, 25)

    def log_share(F: tf.Tensor) -> tf.Tensor:
        return tf.nn.log_softmax(F)

    def product_of_shares(j: int, k: int, F: tf.Tensor) -> tf.Tensor:
        share = tf.nn.softmax(F)
        return share[..., j : j + 1] * share[..., k : k + 1]

    label = Y[:, 0].astype(int)[:, None]
    expected = np.take_along_axis(rule(log_share, Fmu, Fvar).numpy(), label, 1)[:, 0]
    found = likelihood.variational_expectations(X, Fmu, Fvar, Y)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    p = rule(lambda F: tf.nn.softmax(F), Fmu, Fvar).numpy()
    np.testing.assert_allclose(likelihood.predict_mean_and_var(X, Fmu, Fvar)[0], p, rtol=1e-6)
    found = likelihood.predict_log_density(X, Fmu, Fvar, Y)
    np.testing.assert_allclose(found, np.log(np.take_along_axis(p, label, 1)[:, 0]), rtol=1e-6)
    found = likelihood.coupling(*map(tf.constant, (X, Fmu, Fvar, Y)))
    for j, k in ((0, 1), (0, 2), (1, 2)):
        pair = functools.partial(tf.gather, indices=[j, k], axis=-1)
        of_two = rule(
            lambda F, pair=pair: tf.reduce_prod(pair(tf.nn.softmax(F)), -1, True), Fmu, Fvar
        )
        np.testing.assert_allclose(found[:, j, k], of_two[:, 0], atol=1e-6)
        np.testing.assert_array_equal(found[:, k, k], 0.0)


@pytest.mark.briefly("mean1-sd0", "mean3-sd3", "mean1-sd4")
@pytest.mark.by_default("mean1-sd0", "mean1-sd4", "mean0-sd3", "mean3-sd3")
@pytest.mark.parametrize("sd", [(1e-6, 1e-6), (0.3, 2.9), (11.0, 0.1), (30.0, 20.0), (80.0, 1.0)])
@pytest.mark.parametrize("mean", [(0.0, 0.0), (3.0, -4.0), (100.0, 101.5), (-5.0, 40.0)])
def test_two_classes_are_one_logistic(sd: tuple[float, float], mean: tuple[float, float]) -> None:
    """log(e^a + e^b) = a + log(1 + e^{b − a}), whose expectation is one-dimensional."""
    likelihood, one = likelihoods.Softmax(2), np.ones((1, 1))
    Fmu, Fvar = np.array([mean]), np.array([sd]) ** 2
    z = np.linspace(-12.0, 12.0, 400_001)
    difference = mean[1] - mean[0] + np.hypot(*sd) * z
    weight = scipy.stats.norm.pdf(z) * (z[1] - z[0])
    expected = -np.sum(weight * np.logaddexp(0.0, -difference))
    found = likelihood.variational_expectations(one, Fmu, Fvar, one)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    p = np.sum(weight * scipy.special.expit(difference))
    found = likelihood.predict_mean_and_var(one, Fmu, Fvar)[0]
    np.testing.assert_allclose(found[0, 1], p, rtol=3e-4)


@pytest.mark.replicate
def test_steps_with_softmax_are_gpflows_natural_gradients_and_fit_ends_above_l_bfgs() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(0.0, 6.0, size=(80, 1))
    Y = np.argmax(np.hstack([np.sin(X), np.cos(X), 0.0 * X]) + rng.gumbel(size=(80, 3)), 1)
    data = X, Y[:, None].astype(float)

    def make(kind: type[gpflow.models.SVGP]) -> gpflow.models.SVGP:
        Z = np.linspace(0.0, 6.0, 8)[:, None]
        model = kind(
            gpflow.kernels.SquaredExponential(), likelihoods.Softmax(3), Z, num_latent_gps=3
        )
        gpflow.set_trainable(model.inducing_variable, False)
        return model

    ours, theirs = (at_random_q(make(kind)) for kind in (AugmentedSVGP, gpflow.models.SVGP))
    AugmentedNaturalGradient(0.7).minimize(ours, data)
    gpflow.optimizers.NaturalGradient(0.7).minimize(
        theirs.training_loss_closure(data, compile=False), [(theirs.q_mu, theirs.q_sqrt)]
    )
    np.testing.assert_allclose(ours.q_mu, theirs.q_mu, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(ours.q_sqrt, theirs.q_sqrt, rtol=1e-8, atol=1e-9)
    ours, theirs = make(AugmentedSVGP), make(gpflow.models.SVGP)
    result = fit(ours, data, progress=False)
    gpflow.optimizers.Scipy().minimize(
        theirs.training_loss_closure(data), theirs.trainable_variables
    )
    assert result.converged
    assert result.elbo > float(theirs.elbo(data)) - 0.05
