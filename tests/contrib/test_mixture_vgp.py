"""Mixtures of Gaussians for q(f): their bounds, black-box gradients, modes and predictions."""

from typing import Any

import gpflow
import numpy as np
import pytest
import scipy.stats
import tensorflow as tf
from check_shapes.exceptions import ShapeMismatchError
from gpflow.base import AnyNDArray
from gpflow.keras import tf_keras
from scipy.special import logsumexp

import gpflow_aaci
from gpflow_aaci import AugmentedVGP, likelihoods, sample_posterior
from gpflow_aaci.contrib import MixtureVGP
from gpflow_aaci.contrib.mixture_entropy import entropy_by_jensen, entropy_by_pairs
from gpflow_aaci.contrib.score_function import score_expectations

pytestmark = pytest.mark.slow

RNG = np.random.default_rng(0)
N = 9
X = np.sort(RNG.uniform(-2.0, 2.0, (N, 1)), 0)
Y = np.sin(2.0 * X) + 0.3 * RNG.normal(size=X.shape)
X_NEW = np.array([[-1.7], [0.1], [0.4], [3.0]])
LOSS = 0.5 * (1.0 - np.log(2.0))  # the nats per dimension that Jensen's bound loses


def kernel() -> gpflow.kernels.Kernel:
    return gpflow.kernels.Matern52(1.5, lengthscales=0.8)


def student_t(scale: float = 0.3, df: float = 3.0) -> likelihoods.StudentT:
    return likelihoods.StudentT(scale, df=df)


def climb(model: gpflow.models.GPModel, ftol: float = 1e-9, everything: bool = False) -> float:
    """Maximise the bound by L-BFGS, over q alone or over all trainable variables, and return it."""
    of_q = (model.q_mu, model.q_lambda if hasattr(model, "q_lambda") else model.q_sqrt)
    variables = [v for parameter in of_q for v in parameter.trainable_variables]
    variables = model.trainable_variables if everything else variables
    options = {"maxiter": 2_000, "ftol": ftol, "gtol": 1e-9}
    loss = model.training_loss_closure()
    gpflow.optimizers.Scipy().minimize(loss, variables, options=options)
    return float(model.elbo())


def randomised(K: int, entropy: Any = MixtureVGP.entropy, **options: Any) -> MixtureVGP:
    """A model whose q has K random diagonal components."""
    data = options.pop("data", (X, Y))
    model = MixtureVGP(
        data,
        kernel(),
        options.pop("likelihood", student_t()),
        num_components=K,
        mean_function=gpflow.functions.Constant(0.2),
        **options,
    )
    model.entropy = entropy
    rng = np.random.default_rng(K)
    model.q_mu.assign(rng.normal(size=model.q_mu.shape))
    model.q_sqrt.assign(rng.uniform(0.2, 1.2, size=model.q_sqrt.shape))
    return model


def parts(model: MixtureVGP, **options: Any) -> list[MixtureVGP]:
    """A model for each component."""
    models = []
    for mu, sqrt in zip(model.q_mu.numpy(), model.q_sqrt.numpy(), strict=True):
        part = randomised(1, likelihood=model.likelihood, data=model.data, **options)
        part.q_mu.assign(mu[None])
        part.q_sqrt.assign(sqrt[None])
        models.append(part)
    return models


# ---- one component ----


def test_a_full_gaussian_under_gaussian_noise_is_gpr() -> None:
    gpflow.config.set_default_jitter(1e-11)
    exact = gpflow.models.GPR((X, Y), kernel(), noise_variance=0.2)
    likelihood = gpflow.likelihoods.Gaussian(0.2)
    model = MixtureVGP((X, Y), kernel(), likelihood, num_components=1, covariance="full")
    bound = climb(model, ftol=1e-14)
    np.testing.assert_allclose(bound, exact.log_marginal_likelihood(), atol=1e-6)
    for full_cov in (False, True):
        found, expected = (m.predict_f(X_NEW, full_cov=full_cov) for m in (model, exact))
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(a, b, atol=1e-6)
    Y_NEW = np.sin(X_NEW)
    for a, b in (
        (model.predict_y(X_NEW)[1], exact.predict_y(X_NEW)[1]),
        (model.predict_log_density((X_NEW, Y_NEW)), exact.predict_log_density((X_NEW, Y_NEW))),
    ):
        np.testing.assert_allclose(a, b, atol=1e-6)
    diagonal = MixtureVGP((X, Y), kernel(), likelihood, num_components=1)
    assert climb(diagonal) < bound - 0.01


@pytest.mark.parametrize("L", [1, 3])
def test_a_full_gaussian_is_that_of_augmented_vgp(L: int, randomise_q: Any) -> None:
    """At the same q, both bounds and the predictions are the same."""
    likelihood = student_t() if L == 1 else likelihoods.LogisticSoftmax(3)
    data = (X, Y if L == 1 else np.arange(N)[:, None] % 3)
    vgp = AugmentedVGP(data, kernel(), likelihood)
    randomise_q(vgp)
    for expectations, bound in (("augmented", vgp.augmented_elbo()), ("quadrature", vgp.elbo())):
        model = MixtureVGP(
            data,
            kernel(),
            likelihood,
            num_components=1,
            covariance="full",
            expectations=expectations,  # type: ignore[arg-type]
        )
        model.q_mu.assign(vgp.q_mu[None])
        model.q_sqrt.assign(vgp.q_sqrt)
        np.testing.assert_allclose(model.elbo(), bound, rtol=1e-10)
    for full_cov in (False, True):
        found, expected = (m.predict_f(X_NEW, full_cov=full_cov) for m in (model, vgp))
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


def test_n_numbers_of_a_covariance_reach_the_bound_of_all_n_squared() -> None:
    """Opper and Archambeau (2009): the best S of a log-concave likelihood is (K⁻¹ + diag λ)⁻¹."""
    gpflow.config.set_default_jitter(1e-10)
    rate = 2.0 * np.exp(np.sin(2.0 * X + np.arange(2)))
    counts = np.random.default_rng(1).poisson(rate).astype(float)
    models = [
        MixtureVGP(
            (X, counts),
            kernel(),
            gpflow.likelihoods.Poisson(),
            num_components=1,
            covariance=covariance,  # type: ignore[arg-type]
        )
        for covariance in ("full", "opper_archambeau")
    ]
    full, few = (climb(model, ftol=1e-15) for model in models)
    np.testing.assert_allclose(few, full, atol=1e-6)
    assert models[1].q_lambda.shape == (N, 2)
    for full_cov in (False, True):
        expected, found = (model.predict_f(X_NEW, full_cov=full_cov) for model in models)
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(a, b, atol=1e-3)
    # λ is what the likelihood's curvature makes it: −2 ∂E log p(y|f)/∂variance = E exp(f).
    mean, variance = models[1].predict_f(X)
    np.testing.assert_allclose(models[1].q_lambda, np.exp(mean + 0.5 * variance), rtol=1e-2)
    models[1].restart(0)
    np.testing.assert_allclose(models[1].q_lambda, 1.0, rtol=1e-12)


# ---- a kernel for every latent GP ----


@pytest.mark.parametrize("covariance", ["diagonal", "full", "opper_archambeau"])
def test_latent_gps_with_kernels_of_their_own_are_models_of_their_own(covariance: Any) -> None:
    """Columns of Y that share nothing: bounds add up, and predictions are those of each."""
    kernels = [kernel(), gpflow.kernels.Matern32(0.7, lengthscales=0.4)]
    data = (X, np.hstack([Y, Y**2]))
    options: dict[str, Any] = {"num_components": 1, "covariance": covariance}
    both = MixtureVGP(data, gpflow.kernels.SeparateIndependent(kernels), student_t(), **options)
    name = "q_lambda" if covariance == "opper_archambeau" else "q_sqrt"
    spread, rng = getattr(both, name), np.random.default_rng(0)
    both.q_mu.assign(rng.normal(size=both.q_mu.shape))
    values = rng.uniform(0.2, 1.2, size=spread.shape)
    spread.assign(np.tril(values) if covariance == "full" else values)
    each = []
    for at, own in enumerate(kernels):
        part = MixtureVGP((X, data[1][:, at : at + 1]), own, student_t(), **options)
        part.q_mu.assign(both.q_mu[..., at : at + 1])
        this = slice(at, at + 1)
        getattr(part, name).assign(spread[this] if covariance == "full" else spread[..., this])
        each.append(part)
    np.testing.assert_allclose(both.elbo(), sum(part.elbo() for part in each), rtol=1e-10)
    for full_cov in (False, True):
        axis = 0 if full_cov else 1
        mean, variance = both.predict_f(X_NEW, full_cov=full_cov)
        means, variances = zip(*(part.predict_f(X_NEW, full_cov) for part in each), strict=True)
        np.testing.assert_allclose(mean, np.concatenate(means, 1), rtol=1e-10)
        np.testing.assert_allclose(variance, np.concatenate(variances, axis), rtol=1e-9)


# ---- the entropy ----


@pytest.mark.parametrize("K", [1, 2, 5])
@pytest.mark.parametrize("spread", [0.0, 0.5, 2.0, 30.0])
def test_bounds_on_the_entropy_are_bounds(K: int, spread: float) -> None:
    """The oracle is Monte Carlo; the losses are known for equal and for distant components."""
    rng, D, S = np.random.default_rng(K), 3, 20_000
    mean, variance = spread * rng.normal(size=[K, D]), rng.uniform(0.2, 2.0, size=[K, D])
    if spread == 0.0:
        variance[:] = variance[0]
    means, root = mean[..., None], np.sqrt(variance)[..., None]
    jensen, pairs = float(entropy_by_jensen(means, root)), float(entropy_by_pairs(means, root))
    # Full covariances whose only entries are on the diagonal.
    full = np.einsum("kd,de->kde", np.sqrt(variance), np.eye(D))[:, None]
    np.testing.assert_allclose(entropy_by_jensen(means, full), jensen, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(entropy_by_pairs(means, full), pairs, rtol=1e-10, atol=1e-10)
    k = rng.integers(K, size=S)
    v = mean[k] + np.sqrt(variance[k]) * rng.normal(size=[S, D])
    log_q = scipy.stats.norm.logpdf(v[:, None], mean, np.sqrt(variance)).sum(-1)
    minus_log_q = np.log(K) - logsumexp(log_q, axis=1)
    entropy, error = minus_log_q.mean(), minus_log_q.std() / np.sqrt(S)
    assert jensen < pairs < entropy + 4.0 * error
    if K == 1 or spread in (0.0, 30.0):
        far_apart = np.log(K) if spread == 30.0 else 0.0
        exact = far_apart + 0.5 * np.log(2.0 * np.pi * np.e * variance).sum(1).mean()
        np.testing.assert_allclose(pairs, exact, rtol=1e-6)
        np.testing.assert_allclose(jensen, exact - LOSS * D, rtol=1e-6)


def test_bounds_on_the_entropy_of_correlated_components() -> None:
    """The oracle is Monte Carlo, of two latent GPs with a full covariance each."""
    rng, K, L, D, S = np.random.default_rng(3), 3, 2, 3, 40_000
    mean = 0.8 * rng.normal(size=[K, D, L])
    root = np.tril(rng.normal(size=[K, L, D, D])) + 0.5 * np.eye(D)
    jensen, pairs = float(entropy_by_jensen(mean, root)), float(entropy_by_pairs(mean, root))
    k = rng.integers(K, size=S)
    v = mean[k] + np.einsum("slde,sel->sdl", root[k], rng.normal(size=[S, D, L]))
    S_k = root @ np.swapaxes(root, -1, -2)
    log_q = sum(
        np.stack(
            [
                scipy.stats.multivariate_normal(mean[j, :, of], S_k[j, of]).logpdf(v[..., of])
                for j in range(K)
            ],
            -1,
        )
        for of in range(L)
    )
    minus_log_q = np.log(K) - logsumexp(log_q, axis=1)
    entropy, error = minus_log_q.mean(), minus_log_q.std() / np.sqrt(S)
    assert jensen < pairs < entropy + 4.0 * error
    assert pairs > entropy - np.log(K)


def test_narrow_full_components_keep_their_entropy_in_float32() -> None:
    """Roots from 1e-4 to 1, whose squares float32 cannot add up."""
    rng = np.random.default_rng(0)
    basis, _ = np.linalg.qr(rng.normal(size=(30, 30)))
    root = np.linalg.qr((basis * np.geomspace(1e-4, 1.0, 30)).T)[1].T
    roots, mean = np.stack(2 * [root[None]]), np.zeros((2, 30, 1))
    exact = entropy_by_pairs(mean, roots)
    found = entropy_by_pairs(mean.astype(np.float32), roots.astype(np.float32))
    np.testing.assert_allclose(found, exact, atol=2e-3)


@pytest.mark.parametrize("covariance", ["full", "opper_archambeau"])
def test_equal_full_components_are_worth_one(covariance: Any) -> None:
    rng, name = np.random.default_rng(5), "q_sqrt" if covariance == "full" else "q_lambda"
    data = X, np.hstack([Y, -Y])
    one, two = (
        MixtureVGP(data, kernel(), student_t(), num_components=K, covariance=covariance)
        for K in (1, 2)
    )
    spread = getattr(one, name)
    values = rng.uniform(0.2, 1.2, size=spread.shape)
    spread.assign(np.tril(values) if covariance == "full" else values)
    one.q_mu.assign(rng.normal(size=one.q_mu.shape))
    two.q_mu.assign(np.concatenate(2 * [one.q_mu.numpy()]))
    getattr(two, name).assign(np.stack(2 * [spread.numpy()]))
    np.testing.assert_allclose(two.elbo(), one.elbo(), rtol=1e-9)
    for full_cov in (False, True):
        pairs = zip(two.predict_f(X_NEW, full_cov), one.predict_f(X_NEW, full_cov), strict=True)
        for found, expected in pairs:
            np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-10)


def test_full_components_are_diagonal_ones_where_their_roots_are() -> None:
    diagonal = randomised(3)
    full = MixtureVGP(
        (X, Y),
        kernel(),
        student_t(),
        num_components=3,
        mean_function=gpflow.functions.Constant(0.2),
        covariance="full",
    )
    full.q_mu.assign(diagonal.q_mu)
    full.q_sqrt.assign(np.einsum("knl,nm->klnm", diagonal.q_sqrt.numpy(), np.eye(N)))
    np.testing.assert_allclose(full.elbo(), diagonal.elbo(), rtol=1e-10)
    found, expected = (model.predict_f_components(X_NEW, True) for model in (full, diagonal))
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)
    # From there the bound has only more to gain.
    assert climb(full) > climb(diagonal) - 1e-6


def test_equal_components_are_worth_what_one_is_less_what_the_bound_loses() -> None:
    """
    Jensen's bound loses ½(1 − log 2) nats per datum, and the pairwise bound, the default, none.

    For one component, both are exact.
    """
    bounds: list[tuple[dict[str, Any], float]] = [
        ({"entropy": "jensen"}, LOSS * N),
        ({"entropy": "pairwise"}, 0.0),
        ({}, 0.0),
    ]
    for options, loss in bounds:
        two = randomised(2, **options)
        two.q_mu.assign(np.stack(2 * [two.q_mu[0]]))
        two.q_sqrt.assign(np.stack(2 * [two.q_sqrt[0]]))
        one, _ = parts(two, **options)
        np.testing.assert_allclose(two.elbo(), one.elbo() - loss, rtol=1e-10)
        kl = gpflow.kullback_leiblers.gauss_kl(one.q_mu[0], one.q_sqrt[0])
        np.testing.assert_allclose(one.prior_kl(), kl, rtol=1e-12)


# ---- gradients from values of log p alone ----

CASES = {
    "Poisson": (gpflow.likelihoods.Poisson(), 1, [[3.0], [0.0]]),
    "StudentT": (student_t(), 1, [[0.4], [-3.0]]),
    "Heteroscedastic": (
        likelihoods.Heteroscedastic(likelihoods.Gaussian(), 5.0),
        2,
        [[0.4], [-1.0]],
    ),
}


def estimates(case: str, repeats: int, control_variates: bool) -> tuple[Any, Any]:
    """Values and slopes per datum: ``repeats`` estimates, and the exact ones."""
    likelihood, L, y = CASES[case]
    rng = np.random.default_rng(1)
    Fmu, Fvar = rng.normal(size=[2, L]), rng.uniform(0.1, 0.6, size=[2, L])

    def slopes(worth: Any, times: int) -> list[AnyNDArray]:
        m, v = tf.constant(np.tile(Fmu, [times, 1])), tf.constant(np.tile(Fvar, [times, 1]))
        with tf.GradientTape() as tape:
            tape.watch([m, v])
            value = worth(np.zeros([2 * times, 1]), m, v, np.tile(y, [times, 1]))
        of_f = tape.gradient(value, [m, v])
        return [part.numpy().reshape([times, 2, -1]) for part in (value, *of_f)]

    found = slopes(
        lambda *rows: score_expectations(
            likelihood, *rows, num_samples=5, control_variates=control_variates
        ),
        repeats,
    )
    return found, slopes(likelihood.variational_expectations, 1)


@pytest.mark.by_default("StudentT")
@pytest.mark.parametrize("case", CASES)
def test_score_function_gradients_are_unbiased_and_vary_less_with_control_variates(
    case: str,
) -> None:
    """
    Each uses five draws, where a control variate that depends on its own draw would bias them.
    """
    repeats = 20_000
    found, exact = estimates(case, repeats, control_variates=True)
    plain, _ = estimates(case, repeats, control_variates=False)
    for estimate, without, truth in zip(found, plain, exact, strict=True):
        for sample in (estimate, without):
            error = sample.std(0) / np.sqrt(repeats)
            assert np.all(np.abs(sample.mean(0) - truth[0]) < 4.0 * error)
    for estimate, without in zip(found[1:], plain[1:], strict=True):
        assert np.all(estimate.var(0) < without.var(0))


def test_the_gradient_of_a_parameter_is_unbiased_too() -> None:
    likelihood = student_t()
    model = randomised(2, likelihood=likelihood, expectations="score")
    model.num_samples = 50
    variable = likelihood.scale.unconstrained_variable

    @tf.function
    def gradient() -> tuple[tf.Tensor, tf.Tensor]:
        with tf.GradientTape() as tape:
            elbo = model.elbo()
        return elbo, tape.gradient(elbo, variable)

    draws = np.array([gradient() for _ in range(300)])
    model.expectations = "quadrature"
    with tf.GradientTape() as tape:
        elbo = model.elbo()
    exact = np.array([elbo, tape.gradient(elbo, variable)])
    assert np.all(np.abs(draws.mean(0) - exact) < 4.0 * draws.std(0) / np.sqrt(len(draws)))


# ---- two modes ----


def contradicting(rows: int) -> tuple[AnyNDArray, AnyNDArray]:
    """Observations alternate between 3 and −3, and f hardly varies."""
    return 0.1 * np.arange(rows)[:, None], 3.0 * (-1.0) ** np.arange(rows)[:, None]


def bimodal(rows: int, K: int, entropy: Any = MixtureVGP.entropy) -> MixtureVGP:
    smooth = gpflow.kernels.SquaredExponential(9.0, lengthscales=1.0)
    model = MixtureVGP(contradicting(rows), smooth, student_t(), num_components=K)
    model.entropy = entropy
    return model


def best_single(rows: int) -> float:
    """The better bound of one component that starts between the modes or in one of them."""
    found = []
    for start in (0.0, 1.0):
        model = bimodal(rows, 1)
        model.q_mu.assign(start * np.eye(rows, 1)[None])
        model.q_sqrt.assign(np.full([1, rows, 1], 0.2))
        found.append(climb(model))
    return max(found)


@pytest.mark.by_default("jensen")
@pytest.mark.parametrize(("rows", "entropy"), [(2, "jensen"), (4, "pairwise")])
@pytest.mark.slow
def test_two_components_find_the_modes_that_gibbs_finds_and_a_higher_bound(
    rows: int, entropy: Any
) -> None:
    """Jensen's bound shows this only for few data, since its loss grows beyond log 2."""
    model = bimodal(rows, 2, entropy=entropy)
    gain = climb(model) - best_single(rows)
    assert 0.2 < gain < np.log(2.0)

    exact = AugmentedVGP(model.data, model.kernel, model.likelihood)
    samples = sample_posterior(exact, num_samples=100, num_chains=60, num_burnin=30, progress=False)
    f = samples.posterior["f"].values.reshape([-1, rows])
    upper = f.mean(1) > 0.0
    assert 0.2 < upper.mean() < 0.8  # chains hardly change modes
    means, variances = (part.numpy()[..., 0] for part in model.predict_f_components(model.data[0]))
    order = np.argsort(means.mean(1))
    for component, draws in zip(order, (f[~upper], f[upper]), strict=True):
        np.testing.assert_allclose(means[component], draws.mean(0), atol=0.3)
        of_sds = np.sqrt(variances[component]) / draws.std(0)
        assert np.all((of_sds > 0.4) & (of_sds < 1.5))


def test_components_start_apart_everywhere_or_they_would_stay_one() -> None:
    for K in (2, 3, 4):
        start = np.sort(MixtureVGP((X, Y), kernel(), student_t(), num_components=K).q_mu, axis=0)
        assert np.all(np.diff(start, axis=0) > 0.3)
        np.testing.assert_allclose(start, np.broadcast_to(start[:, :1], start.shape))
    model = bimodal(4, 2)
    first = [part.numpy() for part in (model.q_mu, model.q_sqrt)]
    model.q_sqrt.assign(2.0 * model.q_sqrt)
    model.restart(1)
    assert np.any(model.q_mu != first[0])
    model.restart(0)
    np.testing.assert_array_equal(model.q_mu, first[0])
    np.testing.assert_array_equal(model.q_sqrt, first[1])
    model.q_mu.assign(np.full(model.q_mu.shape, 0.1))
    with tf.GradientTape() as tape:
        elbo = model.elbo()
    (of_one, of_two) = tape.gradient(elbo, model.q_mu.unconstrained_variable)
    np.testing.assert_allclose(of_one, of_two, rtol=1e-12)


# ---- likelihoods of GPflow, as they are ----


@pytest.mark.slow
def test_a_log_gaussian_cox_process_is_gpflows_at_one_component_and_better_at_more() -> None:
    counts = RNG.poisson(2.0 * np.exp(np.sin(2.0 * X)))
    likelihood = gpflow.likelihoods.Poisson(binsize=0.5)
    theirs = gpflow.models.VGP((X, counts.astype(float)), kernel(), likelihood)
    best = climb(theirs, 1e-13, everything=True)
    model = MixtureVGP((X, counts), kernel(), likelihood, num_components=1, covariance="full")
    found = climb(model, 1e-13, everything=True)
    np.testing.assert_allclose(found, best, atol=1e-4)  # up to the jitter
    for a, b in zip(model.kernel.parameters, theirs.kernel.parameters, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-2)
    for a, b in zip(model.predict_y(X_NEW), theirs.predict_y(X_NEW), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4)
    many = MixtureVGP((X, counts), model.kernel, likelihood, num_components=2)
    assert climb(many, ftol=1e-6) < best + 0.1  # log p(Y) is hardly higher
    mean, variance = many.predict_y(X_NEW)
    np.testing.assert_allclose(mean, model.predict_y(X_NEW)[0], rtol=0.1)
    assert np.all(variance > mean)  # overdispersed, as f is unknown


def test_softmax_learns_from_values_of_log_prob_alone() -> None:
    """For three classes, its bound agrees with GPflow's Monte Carlo estimate at the same q."""
    x = np.linspace(-3.0, 3.0, 24)[:, None]
    y = np.digitize(x, [-1.0, 1.0])
    likelihood = gpflow.likelihoods.Softmax(3)
    likelihood.num_monte_carlo_points = 2_000
    model = MixtureVGP((x, y), kernel(), likelihood, expectations="score")
    model.num_samples = 30
    assert model.num_latent_gps == 3
    gpflow.set_trainable(model.kernel, False)
    start = float(model.elbo())
    adam, loss = tf_keras.optimizers.Adam(0.05), model.training_loss_closure()
    step = tf.function(lambda: adam.minimize(loss, model.trainable_variables))
    for _ in range(400):
        step()
    by_scores = np.mean([model.elbo() for _ in range(20)])
    assert by_scores > start + 5.0
    model.expectations = "quadrature"
    np.testing.assert_allclose(model.elbo(), by_scores, atol=0.5)
    mean, _ = model.predict_y(x)
    np.testing.assert_allclose(tf.reduce_sum(mean, 1), 1.0, atol=1e-6)
    assert np.mean(np.argmax(mean, 1) == y[:, 0]) > 0.9
    log_density = model.predict_log_density((x, y))
    taken = np.take_along_axis(mean.numpy(), y, 1)[:, 0]
    np.testing.assert_allclose(np.exp(log_density), taken, atol=0.03)  # both are Monte Carlo


# ---- predictions ----


@pytest.mark.parametrize("full_cov", [False, True])
def test_moments_and_draws_of_f_are_those_of_the_mixture(full_cov: bool) -> None:
    model = randomised(3)
    means, covariances = zip(
        *(part.predict_f(X_NEW, full_cov) for part in parts(model)), strict=True
    )
    means, covariances = np.stack(means), np.stack(covariances)
    mean = means.mean(0)
    second = np.einsum("knl,kml->lnm", means, means) / 3 - np.einsum("nl,ml->lnm", mean, mean)
    between = second if full_cov else np.einsum("lnn->nl", second)
    found = model.predict_f(X_NEW, full_cov=full_cov)
    np.testing.assert_allclose(found[0], mean, rtol=1e-10)
    np.testing.assert_allclose(found[1], covariances.mean(0) + between, rtol=1e-9, atol=1e-12)
    S = 20_000
    f = model.predict_f_samples(X_NEW, S, full_cov=full_cov).numpy()
    assert f.shape == (S, 4, 1)
    assert model.predict_f_samples(X_NEW, full_cov=full_cov).shape == (4, 1)
    assert model.predict_f_samples(X_NEW, 0, full_cov=full_cov).shape == (0, 4, 1)
    variance = np.einsum("lnn->nl", found[1]) if full_cov else found[1].numpy()
    np.testing.assert_array_less(np.abs(f.mean(0) - mean), 4.5 * np.sqrt(variance / S))
    np.testing.assert_allclose(f.var(0), variance, rtol=0.06)
    if full_cov:
        np.testing.assert_allclose(np.cov(f[..., 0].T), found[1][0], atol=0.05)
    # The share below the mean is the mixture's, not that of a Gaussian with its moments.
    sds = np.sqrt(np.einsum("klnn->knl", covariances) if full_cov else covariances)
    below = scipy.stats.norm.cdf((mean - means) / sds).mean(0)
    np.testing.assert_allclose((f < mean).mean(0), below, atol=0.02)


def test_predictions_of_y_are_those_of_the_mixture() -> None:
    model = randomised(3)
    each, Y_NEW = parts(model), np.array([[0.3], [-2.0], [1.0], [0.0]])
    log_densities = [part.predict_log_density((X_NEW, Y_NEW)) for part in each]
    found = model.predict_log_density((X_NEW, Y_NEW))
    np.testing.assert_allclose(found, np.log(np.mean(np.exp(log_densities), 0)), rtol=1e-10)
    means, variances = np.swapaxes([part.predict_y(X_NEW) for part in each], 0, 1)
    mean, variance = model.predict_y(X_NEW)
    np.testing.assert_allclose(mean, means.mean(0), rtol=1e-10)
    second = (variances + means**2).mean(0) - means.mean(0) ** 2
    np.testing.assert_allclose(variance, second, rtol=1e-9)

    predictions = gpflow_aaci.predictions
    cdf = predictions.predict_y_cdf(model, X_NEW, Y_NEW)
    of_each = [predictions.predict_y_cdf(part, X_NEW, Y_NEW) for part in each]
    np.testing.assert_allclose(cdf, np.mean(of_each, 0), rtol=1e-8)
    (median,) = predictions.predict_y_quantile(model, X_NEW, 0.5)
    np.testing.assert_allclose(predictions.predict_y_cdf(model, X_NEW, median), 0.5, atol=1e-5)
    for full_cov in (False, True):
        y = predictions.predict_y_samples(model, X_NEW, 9_000, full_cov=full_cov)
        np.testing.assert_allclose((y.numpy() < Y_NEW).mean(0), cdf, atol=0.03)


@pytest.mark.by_default("score")
@pytest.mark.parametrize("expectations", ["augmented", "quadrature", "score"])
def test_all_is_right_in_float32(expectations: Any) -> None:
    gpflow.config.set_default_jitter(1e-4)
    bounds, log_densities = [], []
    for dtype in (np.float64, np.float32):
        gpflow.config.set_default_float(dtype)
        model = MixtureVGP(
            (X.astype(dtype), Y.astype(dtype)), kernel(), student_t(), expectations=expectations
        )
        adam = tf_keras.optimizers.SGD(0.01)
        for _ in range(2):
            adam.minimize(model.training_loss, model.trainable_variables)
        log_density = model.predict_log_density((X_NEW.astype(dtype), X_NEW.astype(dtype)))
        assert log_density.dtype == model.elbo().dtype == tf.as_dtype(dtype)
        assert model.predict_f_samples(X_NEW.astype(dtype), 3).dtype == tf.as_dtype(dtype)
        bounds.append(float(model.elbo()))
        log_densities.append(log_density.numpy())
    if expectations != "score":
        np.testing.assert_allclose(*bounds, rtol=1e-4)
        np.testing.assert_allclose(*log_densities, rtol=1e-2)


# ---- bad input ----


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"num_components": 0}, r"num_components must be an integer of at least 1\. Found: 0"),
        ({"num_components": 2.5}, "num_components must be an integer"),
        ({"covariance": "block"}, r"covariance must be one of .*Found: 'block'"),
        ({"expectations": "laplace"}, r'one of "augmented", "quadrature", "score"\. Found: \'lap'),
        ({"data": (X, Y[:4])}, r"Argument: Y\s*Expected: \[N, P\]"),
        ({"data": (X, np.hstack([Y, Y])), "num_latent_gps": 1}, "Y must have .* 1"),
        ({"data": (X, np.where(Y > 0.5, np.nan, Y))}, "Y must be finite"),
        ({"data": (X[:, 0], Y)}, r"X must be a matrix.*Found: rank 1"),
        (
            {"likelihood": gpflow.likelihoods.Softmax(3), "num_latent_gps": 2},
            r"num_latent_gps must be 3 for Softmax\. Found: 2",
        ),
        (
            {"likelihood": gpflow.likelihoods.Poisson(), "expectations": "augmented"},
            'expectations must be "quadrature" or "score" .* Found: "augmented", Poisson',
        ),
        (
            {"kernel": gpflow.kernels.SharedIndependent(kernel(), 2)},
            r"kernel must have 1 latent GPs, as the likelihood has\. Found: 2",
        ),
        (
            {"kernel": gpflow.kernels.LinearCoregionalization([kernel()], W=[[1.0], [2.0]])},
            "a SharedIndependent or a SeparateIndependent .* Found: LinearCoregionalization",
        ),
        ({"likelihood": likelihoods.Logistic()}, "labels"),
    ],
)
def test_bad_input_is_named(changed: dict[str, Any], message: str) -> None:
    arguments = {"data": (X, Y), "kernel": kernel(), "likelihood": student_t(), **changed}
    with pytest.raises((ValueError, ShapeMismatchError), match=message):
        MixtureVGP(**arguments)


def test_a_bad_setting_of_the_bound_is_named() -> None:
    model = randomised(2, expectations="score", entropy="exact")
    with pytest.raises(ValueError, match=r'entropy must be one of "pairwise", "jensen"'):
        model.elbo()
    model.num_samples = 1
    with pytest.raises(ValueError, match="num_samples must be an integer of at least 2"):
        model.elbo()


def test_what_is_of_one_gaussian_refuses_it() -> None:
    model = randomised(2)
    with pytest.raises(ValueError, match="Found: MixtureVGP"):
        gpflow_aaci.fit(model, progress=False)  # type: ignore[arg-type]
    with pytest.raises(NotImplementedError, match="full_output_cov"):
        model.predict_f(X_NEW, full_output_cov=True)
