"""One suite for likelihoods with any number of latent GPs, auxiliary variables and columns of Y."""

from collections.abc import Iterable, Iterator

import arviz
import gpflow
import numpy as np
import pytest
import scipy.stats
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import AnyNDArray
from gpflow.optimizers import NaturalGradient
from scipy.special import logsumexp
from zoo import ZOO, Member

import gpflow_aaci
from gpflow_aaci import (
    AugmentedNaturalGradient,
    AugmentedSVGP,
    AugmentedVGP,
    augmentation,
    check_likelihood,
    likelihoods,
    sample_posterior,
)
from gpflow_aaci.augmentation import aug_loglik, aux_full_conditional, aux_posterior, aux_sample
from gpflow_aaci.data import as_arrays
from gpflow_aaci.likelihoods import (
    AugmentedLikelihood,
    Gaussian,
    Laplace,
    LogisticSoftmax,
    NegativeBinomial,
    StudentT,
    Warped,
    warps,
)
from gpflow_aaci.likelihoods.classes.labels import LabelLikelihood
from gpflow_aaci.likelihoods.integrals import sums_of_sigmoids
from gpflow_aaci.likelihoods.observations import COLUMNS
from gpflow_aaci.sampling import GibbsKernel

N = 12


@pytest.fixture(params=ZOO, ids=[member.name for member in ZOO])
def member(request: pytest.FixtureRequest) -> Member:
    return request.param


has_y_to_draw = pytest.mark.applies_to("member", lambda member: member.name != "CoxProcess")


def data_of(member: Member, num_data: int = N) -> tuple[AnyNDArray, AnyNDArray]:
    rng = np.random.default_rng(num_data)
    return np.linspace(-1.0, 1.0, num_data)[:, None], member.observe(rng, num_data)


def marginals_of(member: Member, sd: float) -> tuple[AnyNDArray, AnyNDArray]:
    """Means and variances [N, L]; variances are near ``sd``²."""
    rng = np.random.default_rng(3)
    shape = (N, member.num_latents)
    return rng.normal(size=shape), (sd * rng.uniform(0.7, 1.3, size=shape)) ** 2


def make_model(member: Member, num_data: int = N, **options: object) -> AugmentedSVGP:
    return AugmentedSVGP(
        gpflow.kernels.SquaredExponential(lengthscales=0.5),
        member.make(),
        np.linspace(-1.0, 1.0, 4)[:, None],
        num_latent_gps=member.num_latents,
        num_data=num_data,
        **options,
    )


def grid(mean: AnyNDArray, variance: AnyNDArray) -> tuple[AnyNDArray, AnyNDArray]:
    """Nodes [K, N, L] and log weights [K] of a product rule for f ~ N(mean, variance)."""
    num_latents = mean.shape[-1]
    x = np.linspace(-9.0, 9.0, 301)  # the trapezoidal rule, as log p may be kinked or have poles
    w = np.exp(-0.5 * np.square(x))
    if num_latents != 2:
        x, w = np.polynomial.hermite_e.hermegauss({1: 200, 3: 40}[num_latents])
    axes = np.meshgrid(*[x] * num_latents, indexing="ij")
    z = np.stack([axis.ravel() for axis in axes], -1)
    weights = np.meshgrid(*[np.log(w / w.sum())] * num_latents, indexing="ij")
    log_w = sum(axis.ravel() for axis in weights)
    keep = log_w > -60.0
    return mean + np.sqrt(variance) * z[keep, None, :], log_w[keep]


def test_log_prob_is_the_textbooks(member: Member) -> None:
    X, Y = data_of(member)
    F, _ = marginals_of(member, 1.0)
    found = member.make().log_prob(X, 3.0 * F, Y)
    np.testing.assert_allclose(found, member.log_density(X, 3.0 * F, Y), rtol=1e-10, atol=1e-10)


@pytest.mark.briefly("LogisticTree-0.3", "Interval, logit-0.3", "Poisson-0.3", "Ordinal-0.3")
@pytest.mark.by_default(
    "Heteroscedastic Gaussian",
    "Switched",
    "Hurdle NegativeBinomial",
    "Poisson",
    "Ordinal",
    "LogisticTree",
    "MultivariateStudentT",
    "Warped StudentT",
    "Interval, logit",
)
@pytest.mark.by_default("0.3")
@pytest.mark.parametrize("sd", [0.3, 1.5])
def test_bound_and_expectations_against_a_product_rule(member: Member, sd: float) -> None:
    """bound ≤ E log p(y|f); this and log E p(y|f) agree with the textbook density."""
    likelihood, (X, Y) = member.make(), data_of(member)
    Fmu, Fvar = marginals_of(member, sd)
    nodes, log_w = grid(Fmu, Fvar)
    log_p = member.log_density(X, nodes, Y)
    expected = np.sum(np.exp(log_w)[:, None] * log_p, 0)
    tolerance = 1e-6 if sd < 1.0 else 2e-4  # the product rule's error
    if "Laplace" in member.name:
        tolerance = 2e-3  # its error at a kink; ``test_heteroscedastic`` has a finer rule
    found = likelihood.variational_expectations(X, Fmu, Fvar, Y).numpy()
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)
    log_density = logsumexp(log_p + log_w[:, None], axis=0)
    found_density = likelihood.predict_log_density(X, Fmu, Fvar, Y)
    np.testing.assert_allclose(found_density, log_density, rtol=tolerance, atol=tolerance)
    bound = likelihood.bound(*map(tf.constant, (X, Fmu, Fvar, Y)))
    assert np.all(bound <= found + 1e-9)


def test_the_bound_is_log_prob_at_a_point(member: Member) -> None:
    X, Y = map(tf.constant, data_of(member))
    F = tf.constant(marginals_of(member, 1.0)[0])
    bound = member.make().bound(X, F, tf.zeros_like(F), Y)
    np.testing.assert_allclose(bound, member.make().log_prob(X, F, Y), rtol=1e-8, atol=1e-8)


@pytest.mark.applies_to("member", lambda member: member.outcomes is not None)
@pytest.mark.by_default(
    "Poisson", "Binomial", "Ordinal, logit", "ZeroInflated Poisson, gate GP", "LogisticSoftmax"
)
def test_predicted_moments_are_those_of_the_predicted_density(member: Member) -> None:
    """For a discrete y they are sums over all its values."""
    likelihood = member.make()
    Fmu, Fvar = (part[:3] for part in marginals_of(member, 0.8))
    X = np.zeros((len(member.outcomes), 1))
    for row in range(len(Fmu)):
        shape = [len(X), member.num_latents]
        marginals = [np.broadcast_to(part[row], shape) for part in (Fmu, Fvar)]
        p = np.exp(likelihood.predict_log_density(X, *marginals, member.outcomes))
        assert p.sum() == pytest.approx(1.0, abs=1e-6)
        mean, variance = (
            part.numpy()[0] for part in likelihood.predict_mean_and_var(X, *marginals)
        )
        if isinstance(likelihood, LabelLikelihood):  # the probability of each
            np.testing.assert_allclose(mean, p, rtol=1e-8)
            continue
        y = member.outcomes[:, 0]
        np.testing.assert_allclose(mean, np.sum(p * y), rtol=1e-4)
        np.testing.assert_allclose(variance, np.sum(p * (y - mean) ** 2), rtol=1e-3)


@pytest.mark.briefly("Ordinal, logit")
@pytest.mark.by_default(
    "Warped Gaussian, Log",
    "Missing StudentT",
    "Heteroscedastic StudentT",
    "Hurdle NegativeBinomial",
    "LogisticTree",
    "Gamma",
    "Poisson",
    "LogisticSoftmax",
    "Ordinal, logit",
)
@has_y_to_draw
@pytest.mark.applies_to("member", lambda member: member.name != "Switched")  # its parts are tested
def test_draws_have_the_conditional_moments(member: Member) -> None:
    likelihood, (X, Y) = member.make(), data_of(member)
    F = tf.constant(marginals_of(member, 0.5)[0])
    many = 20_000
    drawn = likelihood.draw_y_like(
        *(tf.repeat(tf.constant(part)[None], many, 0) for part in (X, F, Y)), seed=[1, 2]
    )
    if isinstance(likelihood, LabelLikelihood):
        drawn = tf.one_hot(
            tf.cast(drawn[..., 0], tf.int32), likelihood.num_classes, dtype=tf.float64
        )
    if any(name in COLUMNS and COLUMNS[name].may_be_asked for name in likelihood.given):
        likelihood = likelihood.with_given(Y[:, 1:])  # such as the trials of each row
    mean, variance = likelihood.conditional_mean(X, F), likelihood.conditional_variance(X, F)
    error = (np.mean(drawn, 0) - mean) / np.sqrt(variance / many)
    assert np.max(np.abs(error)) < 5.0
    fourth = np.mean((drawn - mean) ** 4, 0)
    error = (np.var(drawn, 0) - variance) / np.sqrt(fourth / many)
    assert np.max(np.abs(error)) < 6.0


@pytest.mark.briefly("MultivariateStudentT")
@pytest.mark.by_default(
    "Poisson", "Heteroscedastic Gaussian", "Interval, logit", "MultivariateStudentT"
)
def test_bayes_rule_for_the_auxiliary_variables(member: Member) -> None:
    """log p(y, aux|f) − log p(aux|f, y) is log p(y|f) for any auxiliary variables."""
    likelihood, (X, Y) = member.make(), map(tf.constant, data_of(member))
    F = tf.constant(marginals_of(member, 1.0)[0])
    law = aux_full_conditional(likelihood, F, Y, X)
    draws = law.sample(7, seed=[3, 4])
    difference = aug_loglik(likelihood, draws, F, Y, X) - law.log_prob(draws)
    if difference.shape.rank == 3:
        difference = tf.reduce_sum(difference, -1)
    expected = member.log_density(X.numpy(), F.numpy(), Y.numpy())
    np.testing.assert_allclose(difference, np.tile(expected, (7, 1)), rtol=1e-8, atol=1e-7)


@pytest.mark.briefly("Interval, logit")
@pytest.mark.by_default(
    "Poisson", "LogisticSoftmax", "Interval, logit", "MultivariateStudentT", "ZeroTruncated Poisson"
)
def test_the_expected_site_at_the_optimal_q_is_the_bounds(member: Member) -> None:
    """E potential = ∂b/∂m + precision m and E precision = −2 ∂b/∂v, from many draws."""
    likelihood, (X, Y) = member.make(), map(tf.constant, data_of(member))
    Fmu, Fvar = map(tf.constant, marginals_of(member, 0.8))
    in_mean, in_variance = likelihood.bound_slopes(X, Fmu, Fvar, Y)
    expected = in_mean - 2.0 * in_variance * Fmu, -2.0 * in_variance
    number = 60_000 if member.name.startswith("ZeroInflated") else 4_000  # rare counts
    drawn = aux_posterior(likelihood, Fmu, Fvar, Y, X).sample(number, seed=[3, 4])
    sites = likelihood.site(X, drawn, Y)
    for found, value in zip(sites, expected, strict=True):
        found = np.broadcast_to(found, [number, *value.shape])
        error = np.std(found, 0) / np.sqrt(number) + 1e-9 * (1.0 + np.abs(value))
        assert np.max(np.abs(np.mean(found, 0) - value) / error) < 5.5


@pytest.mark.briefly("MultinomialProbit")
@pytest.mark.by_default("MultinomialProbit", "Heteroscedastic Gaussian", "Weighted StudentT")
def test_verbs_of_an_augmentation_of_several_variables(member: Member) -> None:
    """p(y, ω|f) = p(y|ω, f) π(ω); KL[q ‖ π] by 4,000 draws; no other q has a larger bound."""
    likelihood, (X, Y) = member.make(), map(tf.constant, data_of(member))
    Fmu, Fvar = map(tf.constant, marginals_of(member, 0.8))
    if likelihood.in_turn and not isinstance(likelihood, likelihoods.Heteroscedastic):
        with pytest.raises(ValueError, match="quadratic in all f jointly"):
            augmentation.aux_posterior_c(likelihood, Fmu, Fvar, Y)
        return
    c = augmentation.aux_posterior_c(likelihood, Fmu, Fvar, Y)
    if c.shape.rank == 3:
        chains = tf.stack([Fmu, Fmu + 1.0])
        at_f = augmentation.aux_full_conditional_c(likelihood, chains, Y)
        np.testing.assert_array_equal(at_f, tf.stack([chains, tf.zeros_like(chains)]))
    q, prior = aux_posterior(likelihood, Fmu, Fvar, Y, X), augmentation.aux_prior(likelihood, Y, X)
    drawn = q.sample(4_000, seed=[3, 4])
    few = tf.nest.map_structure(lambda value: value[:5], drawn)
    of_prior = _row_sums(prior.log_prob(few), 2)
    tilt = _row_sums(augmentation.logtilt(likelihood, few, Fmu, Y, X), 2)
    joint = _row_sums(aug_loglik(likelihood, few, Fmu, Y, X), 2)
    np.testing.assert_allclose(tilt + of_prior, joint, rtol=1e-8, atol=1e-7)

    log_ratio = _row_sums(q.log_prob(drawn) - prior.log_prob(drawn), 2)
    kl = _row_sums(augmentation.aux_kldivergence(likelihood, c, Y, X), 1)
    error = np.std(log_ratio, 0) / np.sqrt(4_000) + 1e-3  # draws lack the rarest gates
    assert np.max(np.abs(np.mean(log_ratio, 0) - kl) / error) < 5.5

    def bound(*marginals: tf.Tensor) -> tf.Tensor:
        c = augmentation.aux_posterior_c(likelihood, *marginals, Y)
        value = augmentation.expected_aug_loglik(likelihood, c, Fmu, Fvar, Y, X)
        return _row_sums(value, 1)

    best = bound(Fmu, Fvar)
    np.testing.assert_allclose(best, likelihood.bound(X, Fmu, Fvar, Y), rtol=1e-9, atol=1e-9)
    for other in ([Fmu + 0.6, Fvar], [Fmu, 0.3 * Fvar], [-Fmu, 2.0 * Fvar]):
        assert np.all(bound(*other) <= best + 1e-9)


def _row_sums(value: tf.Tensor, rank: int) -> tf.Tensor:
    """The sum over outputs, where there is a value for each."""
    return value if value.shape.rank == rank else tf.reduce_sum(value, -1)


@pytest.mark.briefly("MultivariateStudentT")
@pytest.mark.by_default(
    "LogisticSoftmax", "Interval, logit", "Missing StudentT", "MultivariateStudentT", "Poisson"
)
def test_given_the_auxiliary_variables_the_likelihood_is_gaussian(member: Member) -> None:
    """log p(y, aux|f) is potential f − ½ precision f² + a constant in each f."""
    likelihood, (X, Y) = member.make(), map(tf.constant, data_of(member))
    F = tf.constant(marginals_of(member, 1.0)[0])
    auxiliary = aux_sample(likelihood, F, Y, [5, 6], X)
    potential, precision = likelihood.site(X, auxiliary, Y)
    steps = tf.one_hot(tf.range(member.num_latents), member.num_latents, dtype=F.dtype)
    first = 1 if member.name.startswith("Heteroscedastic") else 0  # f's site is without n
    for step in steps[first:]:
        values = []
        for distance in (0.0, 0.7, -1.1):
            moved = F + distance * step
            joint = aug_loglik(likelihood, auxiliary, moved, Y, X)
            joint = tf.reduce_sum(joint, -1) if joint.shape.rank == 2 else joint
            site = potential * moved - 0.5 * precision * tf.square(moved)
            values.append((joint - tf.reduce_sum(site * step, -1)).numpy())
        np.testing.assert_allclose(values[1], values[0], rtol=1e-7, atol=1e-6)
        np.testing.assert_allclose(values[2], values[0], rtol=1e-7, atol=1e-6)


@pytest.mark.briefly("MultivariateStudentT")
@pytest.mark.by_default(
    "Poisson", "Heteroscedastic Gaussian", "MultivariateStudentT", "Warped Gaussian, Log"
)
def test_it_passes_its_own_checks(member: Member) -> None:
    check_likelihood(member.make(), data_of(member)[1], progress=False)


def step_as_gpflow(
    model: AugmentedSVGP,
    data: tuple[AnyNDArray, AnyNDArray],
    step_size: float,
    turns: Iterable[int | slice],
) -> None:
    """GPflow's own steps, on some latent GPs after others."""
    loss, q = model.training_loss_closure(data, compile=False), (model.q_mu, model.q_sqrt)
    for latents in turns:
        before = [part.numpy() for part in q]
        NaturalGradient(step_size).minimize(loss, [q])
        before[0][:, latents] = model.q_mu.numpy()[:, latents]
        before[1][latents] = model.q_sqrt.numpy()[latents]
        for part, value in zip(q, before, strict=True):
            part.assign(value)


@pytest.mark.briefly("LogisticSoftmax-0.3")
@pytest.mark.by_default(
    "Heteroscedastic StudentT",
    "Switched",
    "NegativeBinomial",
    "MultivariateStudentT",
    "Ordinal",
    "LogisticSoftmax",
    "CoxProcess",
)
@pytest.mark.by_default("0.3")
@pytest.mark.parametrize("step_size", [1.0, 0.3])
def test_a_closed_form_step_is_a_natural_gradient_step(member: Member, step_size: float) -> None:
    """GPflow's step is on the same bound; coupled latent GPs are stepped one after another."""
    data = data_of(member)
    ours, theirs = make_model(member), make_model(member)
    AugmentedNaturalGradient(step_size).minimize(ours, data)
    turns = range(member.num_latents) if ours.in_turn else [slice(None)]
    step_as_gpflow(theirs, data, step_size, turns)
    np.testing.assert_allclose(ours.q_mu, theirs.q_mu, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(ours.q_sqrt, theirs.q_sqrt, rtol=1e-8, atol=1e-8)


@pytest.mark.briefly("MultivariateStudentT")
@pytest.mark.by_default(
    "LogisticSoftmax", "Heteroscedastic Gaussian", "MultivariateStudentT", "Poisson"
)
def test_full_batch_steps_never_lower_the_bound(member: Member) -> None:
    data, model = data_of(member, 30), make_model(member, 30)
    optimizer = AugmentedNaturalGradient(1.0)

    @tf.function(autograph=False)
    def step() -> tf.Tensor:
        optimizer.minimize(model, data)
        return model.augmented_elbo(data)

    bounds = np.array([step() for _ in range(50)])
    assert np.all(np.diff(bounds) >= -1e-9 * np.abs(bounds[1:]))
    assert bounds[-1] - bounds[-2] < 1e-3  # the bounds converge


def batches_of(
    data: tuple[AnyNDArray, AnyNDArray], size: int
) -> Iterator[tuple[tf.Tensor, tf.Tensor]]:
    return tf.data.Dataset.from_tensor_slices(data).batch(size)


@pytest.mark.briefly("LogisticSoftmax")
@pytest.mark.by_default(
    "Poisson", "Heteroscedastic Gaussian", "LogisticSoftmax", "Missing StudentT"
)
def test_a_stream_is_the_whole(member: Member) -> None:
    data = data_of(member)
    whole, streamed = make_model(member), make_model(member)
    AugmentedNaturalGradient(1.0).minimize(whole, data)
    AugmentedNaturalGradient(1.0).minimize(streamed, batches_of(data, 5), progress=False)
    np.testing.assert_allclose(streamed.q_mu, whole.q_mu, rtol=1e-9, atol=1e-10)
    bound = float(streamed.augmented_elbo(batches_of(data, 5)))
    assert bound == pytest.approx(float(whole.augmented_elbo(data)), rel=1e-10)


@pytest.mark.slow
@pytest.mark.by_default("MultivariateStudentT", "Heteroscedastic Laplace")
def test_fit_collapsed_ends_where_nothing_is_to_be_gained(member: Member) -> None:
    """With fixed kernels, its ELBO is as high as GPflow's L-BFGS reaches in q."""
    data, model = data_of(member, 20), make_model(member, 20)
    gpflow.set_trainable(model.kernel, False)
    gpflow.set_trainable(model.inducing_variable, False)
    gpflow.set_trainable(model.likelihood, False)
    gpflow_aaci.fit_collapsed(model, data, progress=False)
    stock = gpflow.models.SVGP(
        model.kernel,
        model.likelihood,
        model.inducing_variable,
        num_latent_gps=member.num_latents,
        num_data=20,
    )
    stock.q_mu.assign(model.q_mu)
    stock.q_sqrt.assign(model.q_sqrt)
    ended = float(model.elbo(data))
    assert float(stock.elbo(data)) == pytest.approx(ended, abs=1e-6)
    closure = stock.training_loss_closure(data)
    gpflow.optimizers.Scipy().minimize(closure, stock.trainable_variables)
    assert float(stock.elbo(data)) - ended < 2e-2


@pytest.mark.briefly("LogisticTree")
@pytest.mark.by_default("Poisson", "Heteroscedastic Gaussian", "LogisticTree", "Missing StudentT")
def test_vgp_is_svgp_at_all_inputs(member: Member) -> None:
    X, Y = data_of(member)
    kernel = gpflow.kernels.SquaredExponential(lengthscales=0.5)
    L = member.num_latents
    full = AugmentedVGP((X, Y), kernel, member.make(), num_latent_gps=L)
    sparse = AugmentedSVGP(kernel, member.make(), X.copy(), num_latent_gps=L, num_data=N)
    AugmentedNaturalGradient(0.8).minimize(full)
    AugmentedNaturalGradient(0.8).minimize(sparse, (X, Y))
    np.testing.assert_allclose(full.q_mu, sparse.q_mu, rtol=1e-6, atol=1e-8)
    assert float(full.augmented_elbo()) == pytest.approx(
        float(sparse.augmented_elbo((X, Y))), rel=1e-8
    )


@pytest.mark.parametrize("name", ["Poisson", "Weibull with censoring"])
def test_the_closed_form_parameter_is_the_bounds_best(name: str) -> None:
    (member,) = [member for member in ZOO if member.name == name]
    likelihood, data = member.make(), data_of(member)
    X, Fmu, Fvar, Y = map(tf.constant, (data[0], *marginals_of(member, 0.8), data[1]))
    parameter = likelihood.max_rate
    parameter.assign(likelihood.optimal_max_rate(Fmu, Fvar, Y))
    with tf.GradientTape() as tape:
        bound = tf.reduce_sum(likelihood.bound(X, Fmu, Fvar, Y))
    slope = tape.gradient(bound, parameter.unconstrained_variable)
    assert abs(float(slope)) < 1e-9 * N
    at_best = float(bound)
    parameter.assign(1.05 * parameter)
    assert float(tf.reduce_sum(likelihood.bound(X, Fmu, Fvar, Y))) < at_best


@pytest.mark.slow
def test_negative_binomial_recovers_its_total_count() -> None:
    """2,000 counts give r = 3 ± 0.5."""
    rng = np.random.default_rng(1)
    X = rng.uniform(-3.0, 3.0, size=(2000, 1))
    odds = np.exp(1.0 + np.sin(2.0 * X))
    Y = rng.negative_binomial(3.0, 1.0 / (1.0 + odds)).astype(float)
    model = AugmentedSVGP(
        gpflow.kernels.SquaredExponential(),
        NegativeBinomial(1.0),
        gpflow_aaci.kmeans_plusplus(X, 20),
        num_data=len(X),
    )
    gpflow_aaci.fit_collapsed(model, (X, Y), progress=False)
    assert model.likelihood.total_count.numpy() == pytest.approx(3.0, abs=0.5)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.by_default("float32")
def test_class_probabilities_of_wide_f_are_finite(dtype: type) -> None:
    """They sum to 1, and the slopes to 0, even for f of order 1,000."""
    likelihood, Fmu = LogisticSoftmax(3), tf.constant([[-900.0, -950.0, -800.0]], dtype)
    X, Y = tf.zeros([1, 1], dtype), tf.zeros([1, 1], dtype)
    for variance in (1e-2, 2e4):
        Fvar = variance * tf.ones_like(Fmu)
        with tf.GradientTape() as tape:
            tape.watch(Fmu)
            expected = likelihood.variational_expectations(X, Fmu, Fvar, Y)
        assert np.all(np.isfinite([*expected, *np.ravel(tape.gradient(expected, Fmu))]))
        p, _ = likelihood.predict_mean_and_var(X, Fmu, Fvar)
        assert np.sum(p) == pytest.approx(1.0, abs=1e-5)


@pytest.mark.briefly("-20.0-10.0-5e-05", "-40.0-10.0-5e-05", "-60.0-1.0-2e-06")
@pytest.mark.parametrize(
    ("mean", "sd", "tolerance"),
    [
        (0.0, 1e-3, 2e-6),
        (0.0, 3.0, 2e-6),
        (0.0, 20.0, 5e-5),
        (0.0, 100.0, 5e-5),
        (-20.0, 10.0, 5e-5),
        (-40.0, 10.0, 5e-5),
        (-60.0, 1.0, 2e-6),
        (-300.0, 0.1, 2e-6),
    ],
)
def test_expectations_of_classes_whose_f_is_wide_or_far_below_zero(
    mean: float, sd: float, tolerance: float
) -> None:
    """Two classes are compared with a sum over both f, as are the slopes in the means."""
    z = np.linspace(-8.5, 8.5, 2_001)
    weight = scipy.stats.norm.pdf(z) / np.sum(scipy.stats.norm.pdf(z))
    log_share = scipy.special.log_expit(mean + sd * z)
    both = weight[:, None] * weight
    own = both * (log_share[:, None] - np.logaddexp(log_share[:, None], log_share))
    x = tf.constant([[mean, mean]], tf.float64)
    found = likelihoods.LogisticSoftmax(2).variational_expectations(
        x, x, sd**2 + 0.0 * x, tf.zeros([1, 1], tf.float64)
    )
    np.testing.assert_allclose(found, [np.sum(own)], atol=tolerance)


def test_few_rows_are_not_padded_to_many() -> None:
    """This holds even if the number of rows is unknown while tracing."""
    spec = tf.TensorSpec([None, 4], tf.float64)

    @tf.function(input_signature=[spec], autograph=False)
    def rows_at_once(F: tf.Tensor) -> tf.Tensor:
        def rows(m: tf.Tensor, v: tf.Tensor) -> tf.Tensor:
            return tf.cast(tf.shape(m)[0], m.dtype) + 0.0 * m[:, 0] * v[:, 0]

        return sums_of_sigmoids.in_chunks_of_rows(rows, F, F, 3_840)

    for number, expected in ((0, []), (1, [1.0]), (18, [18.0] * 18), (300, [150.0] * 300)):
        np.testing.assert_array_equal(rows_at_once(tf.ones([number, 4], tf.float64)), expected)


class OptionalArgument(likelihoods.Laplace):
    """A likelihood whose log_phi has a second argument that is not Y."""

    def log_phi(self, r: tf.Tensor, power: float = 0.5) -> tf.Tensor:
        return -(r**power) / tf.cast(self.scale, r.dtype)


def test_an_argument_of_another_name_is_not_y() -> None:
    r = tf.constant([[0.3], [2.0]], tf.float64)
    ours, plain = OptionalArgument(0.7), likelihoods.Laplace(0.7)
    np.testing.assert_allclose(ours.bound(r, r, r, r), plain.bound(r, r, r, r), rtol=1e-12)


class OfCounts(likelihoods.SuperGaussianLikelihood):
    """A user's own binomial with 4 trials, whose log_phi has an argument Y without a default."""

    def log_C(self, Y: tf.Tensor) -> tf.Tensor:
        return likelihoods.Binomial(4).log_C(Y)

    def g(self, Y: tf.Tensor) -> tf.Tensor:
        return Y - 2.0

    def alpha(self, Y: tf.Tensor) -> tf.Tensor:
        return tf.zeros_like(Y)

    def beta(self, Y: tf.Tensor) -> tf.Tensor:
        return tf.zeros_like(Y)

    def gamma(self, Y: tf.Tensor) -> tf.Tensor:
        return tf.ones_like(Y)

    def log_phi(self, r: tf.Tensor, Y: tf.Tensor) -> tf.Tensor:
        return likelihoods.Binomial(4).log_phi(r, Y)


def test_a_users_phi_of_two_arguments_has_bound_slopes_law_and_draws() -> None:
    own, built_in = OfCounts(), likelihoods.Binomial(4)
    F = tf.constant([[0.3], [-1.0], [2.0]], tf.float64)
    Y = tf.constant([[0.0], [3.0], [4.0]], tf.float64)
    args = F, F, 0.5 * tf.ones_like(F), Y
    np.testing.assert_allclose(own.bound(*args), built_in.bound(*args), rtol=1e-12)
    for found, expected in zip(own.bound_slopes(*args), built_in.bound_slopes(*args), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12)
    laws = [each.full_conditional(None, F, Y) for each in (own, built_in)]
    np.testing.assert_allclose(laws[0].mean(), laws[1].mean(), rtol=1e-10)
    assert np.all(laws[0].sample(3, seed=[1, 2]) > 0.0)
    with pytest.raises(ValueError, match=r"Y must be given, as .*OfCounts.log_phi needs it"):
        own.tilted(tf.ones([1, 1], tf.float64))


def test_a_law_that_depends_on_y_asks_for_it() -> None:
    with pytest.raises(ValueError, match="Y must be given"):
        NegativeBinomial(2.0).tilted(tf.ones([1, 1], tf.float64))


# ---- latent GPs that a kernel mixes ----


def make_mixed(model_class: type, likelihood: AugmentedLikelihood) -> gpflow.models.SVGP:
    kernel = gpflow.kernels.LinearCoregionalization(
        [gpflow.kernels.Matern32(), gpflow.kernels.SquaredExponential()],
        W=np.array([[1.0, 0.5], [-0.5, 1.0], [0.8, 0.8]]),
    )
    Z = gpflow.inducing_variables.InducingPoints(np.linspace(-2.0, 2.0, 6)[:, None])
    return model_class(
        kernel,
        likelihood,
        gpflow.inducing_variables.SharedIndependentInducingVariables(Z),
        num_latent_gps=2,
        mean_function=gpflow.functions.Constant(np.array([0.1, -0.2, 0.3])),
        num_data=30,
    )


def mixed_data() -> tuple[AnyNDArray, AnyNDArray]:
    rng = np.random.default_rng(2)
    X = np.linspace(-2.0, 2.0, 30)[:, None]
    latents = np.hstack([np.sin(3.0 * X), np.cos(2.0 * X)])
    W = np.array([[1.0, 0.3], [-0.5, 1.0], [0.8, 0.5]])
    return X, latents @ W.T + 0.2 * rng.standard_t(3, size=(30, 3))


@pytest.mark.slow
def test_mixed_latents_have_gpflows_elbo_and_predictions() -> None:
    data = mixed_data()
    ours = make_mixed(AugmentedSVGP, StudentT(0.3))
    AugmentedNaturalGradient(0.7).minimize(ours, data)
    theirs = make_mixed(gpflow.models.SVGP, ours.likelihood)
    theirs.q_mu.assign(ours.q_mu)
    theirs.q_sqrt.assign(ours.q_sqrt)
    assert float(ours.elbo(data)) == pytest.approx(float(theirs.elbo(data)), rel=1e-9)
    for found, expected in zip(ours.predict_y(data[0]), theirs.predict_y(data[0]), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_steps_on_mixed_latents_never_lower_the_bound() -> None:
    data, model = mixed_data(), make_mixed(AugmentedSVGP, Laplace(0.3))
    optimizer = AugmentedNaturalGradient(1.0)

    @tf.function(autograph=False)
    def step() -> tf.Tensor:
        optimizer.minimize(model, data)
        return model.augmented_elbo(data)

    bounds = np.array([step() for _ in range(50)])
    assert np.all(np.diff(bounds) >= -1e-9 * np.abs(bounds[1:]))


def test_a_step_on_mixed_latents_is_a_natural_gradient_step_of_each() -> None:
    data = mixed_data()
    ours, theirs = (make_mixed(AugmentedSVGP, StudentT(0.3)) for _ in range(2))
    AugmentedNaturalGradient(0.6).minimize(ours, data)
    step_as_gpflow(theirs, data, 0.6, range(2))
    np.testing.assert_allclose(ours.q_mu, theirs.q_mu, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(ours.q_sqrt, theirs.q_sqrt, rtol=1e-8, atol=1e-8)


@pytest.mark.slow
def test_fit_collapsed_learns_what_the_latents_are_mixed_by() -> None:
    """GPflow's L-BFGS, started at its end, gains next to nothing."""
    data, model = mixed_data(), make_mixed(AugmentedSVGP, StudentT(0.3))
    gpflow.set_trainable(model.inducing_variable, False)
    gpflow_aaci.fit_collapsed(model, data, progress=False)
    ended = float(model.elbo(data))
    stock = make_mixed(gpflow.models.SVGP, model.likelihood)
    gpflow.utilities.multiple_assign(stock, gpflow.utilities.read_values(model))
    gpflow.set_trainable(stock.inducing_variable, False)
    assert float(stock.elbo(data)) == pytest.approx(ended, rel=1e-6)
    gpflow.optimizers.Scipy().minimize(
        stock.training_loss_closure(data), stock.trainable_variables, options={"maxiter": 200}
    )
    assert float(stock.elbo(data)) - ended < 0.5


# ---- sampling ----


def make_full_model(member: Member, num_data: int) -> AugmentedVGP:
    kernel = gpflow.kernels.Matern32(variance=1.5, lengthscales=0.7)
    data, L = data_of(member, num_data), member.num_latents
    return AugmentedVGP(data, kernel, member.make(), num_latent_gps=L)


@pytest.mark.by_default(
    "Exponential",
    "Interval, logit",
    "Binomial with trials",
    "MultivariateStudentT",
    "Ordinal",
    "Warped StudentT",
    "MultinomialProbit",
)
@pytest.mark.slow
# Where the other columns of Y do not say how y is drawn, there is no law to draw from.
@pytest.mark.by_default("Ordinal", "Binomial with trials")
@pytest.mark.applies_to("member", lambda member: member.has_law)
def test_ranks_of_the_truth_among_gibbs_draws_are_uniform(member: Member) -> None:
    """
    Simulation-based calibration (Talts et al. 2018), with 500 replicates as chains of one model.

    f and y are drawn from the model; the rank of f_i among thinned draws from p(f|y) is uniform.
    """
    replicates, num_data, thinned = 500, 15, 19
    model = make_full_model(member, num_data)
    rng = np.random.default_rng(5)
    chol = np.linalg.cholesky(model.prior_covariance()[0].numpy())
    F = np.einsum("nm,rml->rnl", chol, rng.normal(size=(replicates, num_data, member.num_latents)))
    X, Y = as_arrays(model.expected_data).rows
    X, Y = (tf.repeat(part[None], replicates, 0) for part in (X, Y))
    drawn = model.likelihood.draw_y_like(X, tf.constant(F), Y, seed=[8, 9])
    kernel = GibbsKernel(model, over_relaxation=0.0)
    if member.coarsened is None:
        kernel.rows = X, tf.concat([drawn, Y[..., drawn.shape[-1] :]], -1)
    else:
        kernel.rows = X, tf.constant(member.coarsened(drawn.numpy()))

    @tf.function(autograph=False)
    def run() -> tf.Tensor:
        return tfp.mcmc.sample_chain(
            thinned,
            tf.constant(F),  # the truth is a draw from p(f|y), so no burn-in is needed
            kernel=kernel,
            num_burnin_steps=15,
            num_steps_between_results=14,
            trace_fn=None,
            seed=[1, 2],
        )

    draws = run().numpy()
    for latent in range(member.num_latents):
        for i in (0, 7):
            ranks = (draws[:, :, i, latent] < F[:, i, latent]).sum(0)
            counts = np.bincount(ranks, minlength=thinned + 1)
            assert scipy.stats.chisquare(counts).pvalue > 1e-3


@pytest.mark.by_default("LogisticTree", "NegativeBinomial")
@pytest.mark.slow
def test_gibbs_has_the_moments_of_nuts(member: Member) -> None:
    """They agree within four standard errors, computed from the effective sample sizes."""
    model = make_full_model(member, 6)
    gibbs = (
        sample_posterior(model, num_samples=2000, num_chains=4, num_burnin=100, progress=False)
        .posterior["f"]
        .values
    )
    X, Y = as_arrays(model.expected_data).rows
    chol = tf.linalg.cholesky(model.prior_covariance()[0])

    def log_p(v: tf.Tensor) -> tf.Tensor:
        log_likelihood = model.likelihood.log_prob(X, tf.einsum("nm,cml->cnl", chol, v), Y)
        return tf.reduce_sum(log_likelihood, -1) - 0.5 * tf.reduce_sum(tf.square(v), [-2, -1])

    @tf.function(autograph=False)
    def run() -> tf.Tensor:
        kernel = tfp.mcmc.DualAveragingStepSizeAdaptation(
            tfp.mcmc.NoUTurnSampler(log_p, step_size=0.3), num_adaptation_steps=150
        )
        start = tf.zeros([4, 6, member.num_latents], tf.float64)
        return tfp.mcmc.sample_chain(
            500, start, kernel=kernel, num_burnin_steps=200, trace_fn=None, seed=[2, 3]
        )

    nuts = np.einsum("nm,scml->csnl", chol, run())
    for i in range(6):
        for latent in range(member.num_latents):
            for power in (1, 2):
                means, errors = [], []
                for draws in (gibbs, nuts):
                    values = draws[:, :, i, latent] ** power
                    means.append(values.mean())
                    errors.append(values.std() / np.sqrt(arviz.ess(values)))
                assert abs(means[0] - means[1]) < 4.5 * np.hypot(*errors)


@pytest.mark.by_default("MultivariateStudentT")
@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["Heteroscedastic Gaussian", "LogisticSoftmax", "MultivariateStudentT"]
)
def test_the_sparse_sampler_at_all_inputs_is_the_full_one(name: str) -> None:
    """The means of f and f² agree within their errors."""
    (member,) = [member for member in ZOO if member.name == name]
    full = make_full_model(member, 6)
    X, Y = (part.numpy() for part in full.data)
    L = member.num_latents
    sparse = AugmentedSVGP(full.kernel, member.make(), X.copy(), num_latent_gps=L, num_data=6)
    of_full = (
        sample_posterior(full, num_samples=2000, num_chains=4, num_burnin=100, progress=False)
        .posterior["f"]
        .values
    )
    # With Z = X, u is f at X minus the mean function, which is 0.
    of_sparse = sample_posterior(
        sparse, (X, Y), num_samples=2000, num_chains=4, num_burnin=100, progress=False
    )
    for power in (1, 2):
        for i in range(6):
            for latent in range(L):
                one, other = (
                    values[:, :, i, latent] ** power
                    for values in (of_full, of_sparse.posterior["u"].values)
                )
                errors = [v.std() / np.sqrt(arviz.ess(v)) for v in (one, other)]
                assert abs(one.mean() - other.mean()) < 4.5 * np.hypot(*errors) + 1e-3


@pytest.mark.briefly("MultivariateStudentT")
@pytest.mark.by_default("Binomial with trials", "MultivariateStudentT")
@has_y_to_draw
def test_draws_have_the_names_and_shapes_of_what_is_drawn(member: Member) -> None:
    model = make_full_model(member, 5)
    samples = sample_posterior(
        model,
        num_samples=3,
        num_chains=2,
        num_burnin=1,
        progress=False,
    )
    L, several = member.num_latents, ("Poisson", "LogisticSoftmax")
    assert samples.posterior["f"].shape == (2, 3, 5, L)
    kernel = GibbsKernel(model)
    state = kernel.initial_state(2, seed=[0, 1])
    _, results = kernel.one_step(state, kernel.bootstrap_results(state), seed=[0, 2])
    auxiliary = results.omega if isinstance(results.omega, dict) else {"omega": results.omega}
    named = {"n", "omega"} if member.name in several else set()
    named |= {"noise", "n", "omega"} if "Heteroscedastic" in member.name else set()
    assert named <= set(auxiliary)
    if "Interval" in member.name or "Ordinal" in member.name:  # z of any sign, or two ω
        assert auxiliary["omega"].shape == ((2, 5, 1, 2) if "logit" in member.name else (2, 5, 1))
    elif member.name == "Weighted StudentT":  # the largest weight is 1
        assert auxiliary["omega"].shape == (2, 5, 1, 1)
    elif "omega" in auxiliary and "count" not in auxiliary:
        one = ("Heteroscedastic", "MultivariateStudentT")  # they have one ω for a row
        width = 1 if member.name.startswith(one) else L
        assert auxiliary["omega"].shape == (2, 5, width)
        if member.name != "MultinomialProbit":  # its z may have any sign
            assert np.all(auxiliary["omega"] >= 0.0)
    log_likelihood, drawn = samples.log_likelihood["y"], samples.posterior_predictive["y"]
    if member.name == "MultivariateStudentT":
        assert log_likelihood.shape == (2, 3, 5, 1)
        assert drawn.shape == (2, 3, 5, 2)
        np.testing.assert_array_equal(samples.observed_data["y"], model.data[1])
        log_likelihood = log_likelihood[..., 0]
    elif member.name == "Missing StudentT":  # a product over two columns
        assert log_likelihood.shape == drawn.shape == (2, 3, 5, 2)
        np.testing.assert_array_equal(samples.observed_data["y"], model.data[1])
        log_likelihood = log_likelihood.sum(log_likelihood.dims[-1])
    else:
        assert log_likelihood.shape == drawn.shape == (2, 3, 5)
        np.testing.assert_array_equal(samples.observed_data["y"], model.data[1][:, 0])
    X, Y = as_arrays(model.expected_data).rows
    expected = member.log_density(X.numpy(), samples.posterior["f"].values, Y.numpy())
    np.testing.assert_allclose(log_likelihood, expected, rtol=1e-8, atol=1e-10)
    # the auxiliary variables are drawn, too
    mean, variance = gpflow_aaci.predictions.predict_y(model, X, samples=samples, progress=False)
    assert np.all(np.isfinite(mean))
    assert np.all(variance >= 0.0)
    density = gpflow_aaci.predictions.predict_log_density(
        model, (X, Y), samples=samples, progress=False
    )
    assert density.shape == (5,)


@pytest.mark.briefly("NegativeBinomial")
@pytest.mark.by_default("NegativeBinomial", "LogisticSoftmax")
def test_float32_is_close_to_float64(member: Member) -> None:
    values = []
    for dtype in (np.float64, np.float32):
        with gpflow.config.as_context(gpflow.config.Config(float=dtype, jitter=1e-4)):
            data, model = data_of(member), make_model(member)
            AugmentedNaturalGradient(1.0).minimize(model, data)
            mean, _ = model.predict_y(data[0].astype(dtype))
            assert mean.dtype == dtype
            bounds = [model.augmented_elbo(data), model.elbo(data)]
            values.append([*bounds, *np.ravel(mean)])
    np.testing.assert_allclose(values[1], values[0], rtol=5e-3, atol=5e-3)


# ---- warps ----


@pytest.mark.parametrize(
    "warp",
    [
        warps.Identity(),
        warps.Log(),
        warps.BoxCox(0.3),
        warps.BoxCox(-1.5),
        warps.Logit(),
        warps.Tanh(3, [2.0, 0.5, 8.0], [3.0, 0.2, 9.0], [-1.0, 0.3, -2.0]),
    ],
    ids=["Identity", "Log", "BoxCox", "BoxCox, inverse", "Logit", "Tanh"],
)
def test_a_warp_is_inverted_and_has_its_slope(warp: warps.Warp) -> None:
    highest = 0.97 if isinstance(warp, warps.Logit) else 4.0
    y = tf.constant(np.linspace(0.05, highest, 200)[:, None])
    np.testing.assert_allclose(warp.inverse(warp.forward(y)), y, rtol=1e-10)
    with tf.GradientTape() as tape:
        tape.watch(y)
        z = warp.forward(y)
    slope = tape.gradient(z, y)
    np.testing.assert_allclose(warp.log_slope(y), np.log(slope), rtol=1e-10, atol=1e-12)


def test_a_tanh_warp_is_inverted_at_every_last_bit_of_z() -> None:
    """Where y is exact up to rounding, it is an end of its bracket, and must stay there."""
    warp = warps.Tanh(3, [2.0, 0.5, 8.0], [3.0, 0.2, 9.0], [-1.0, 0.3, -2.0])
    y = np.linspace(-6.0, 6.0, 20_000)[:, None]
    z = warp.forward(y).numpy()
    for near in (z, np.nextafter(z, -np.inf), np.nextafter(z, np.inf)):
        np.testing.assert_allclose(warp.inverse(near), y, rtol=1e-10, atol=1e-13)


def test_gaussian_noise_warped_by_the_identity_is_gaussian() -> None:
    plain, warped = Gaussian(0.3), Warped(Gaussian(0.3), warps.Identity())
    rng = np.random.default_rng(0)
    X, Fmu, Y = rng.normal(size=(3, N, 1))
    Fvar = rng.uniform(0.1, 2.0, size=(N, 1))
    for of in (
        lambda likelihood: likelihood.log_prob(X, Fmu, Y),
        lambda likelihood: likelihood.variational_expectations(X, Fmu, Fvar, Y),
        lambda likelihood: likelihood.predict_log_density(X, Fmu, Fvar, Y),
        lambda likelihood: likelihood.bound(*map(tf.constant, (X, Fmu, Fvar, Y))),
    ):
        np.testing.assert_allclose(of(warped), of(plain), rtol=1e-12)
    for found, expected in zip(
        warped.predict_mean_and_var(X, Fmu, Fvar),
        plain.predict_mean_and_var(X, Fmu, Fvar),
        strict=True,
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_moments_of_a_log_normal_law() -> None:
    """E y = e^{m + s²/2} and Var y = (e^{s²} − 1) (E y)², where s² = v + σ²."""
    Fmu, Fvar = np.array([[0.3], [-1.0]]), np.array([[0.2], [0.5]])
    likelihood = Warped(Gaussian(0.3), warps.Log())
    mean, variance = likelihood.predict_mean_and_var(Fmu, Fmu, Fvar)
    expected = np.exp(Fmu + (Fvar + 0.3) / 2.0)
    np.testing.assert_allclose(mean, expected, rtol=1e-6)
    np.testing.assert_allclose(variance, expected**2 * np.expm1(Fvar + 0.3), rtol=1e-6)
