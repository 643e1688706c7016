"""One suite for likelihoods of any number of latent GPs, auxiliary variables and columns of Y."""

from collections.abc import Iterator

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.optimizers import NaturalGradient
from scipy.special import logsumexp
from zoo import ZOO, Member

import gpflow_aaci
from gpflow_aaci import AugmentedNaturalGradient, AugmentedSVGP, AugmentedVGP, check_likelihood
from gpflow_aaci.augmentation import aug_loglik, aux_full_conditional, aux_sample

N = 12


@pytest.fixture(params=ZOO, ids=[member.name for member in ZOO])
def member(request: pytest.FixtureRequest) -> Member:
    return request.param


def data_of(member: Member, num_data: int = N) -> tuple[AnyNDArray, AnyNDArray]:
    rng = np.random.default_rng(num_data)
    return np.linspace(-1.0, 1.0, num_data)[:, None], member.observe(rng, num_data)


def marginals_of(member: Member, sd: float) -> tuple[AnyNDArray, AnyNDArray]:
    """Means and variances [N, L], near ``sd``²."""
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
    x, w = np.polynomial.hermite_e.hermegauss({1: 200, 2: 90, 3: 40}[num_latents])
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


@pytest.mark.parametrize("sd", [0.3, 1.5])
def test_bound_and_expectations_against_a_product_rule(member: Member, sd: float) -> None:
    """bound ≤ E log p(y|f), which like log E p(y|f) is that of the textbook's density."""
    likelihood, (X, Y) = member.make(), data_of(member)
    Fmu, Fvar = marginals_of(member, sd)
    nodes, log_w = grid(Fmu, Fvar)
    log_p = member.log_density(X, nodes, Y)
    expected = np.sum(np.exp(log_w)[:, None] * log_p, 0)
    tolerance = 1e-6 if sd < 1.0 else 2e-4  # of the product rule
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


def test_predicted_moments_are_those_of_the_predicted_density(member: Member) -> None:
    """Where y is discrete: sums over all of its values."""
    if member.outcomes is None:
        pytest.skip("y is real, or not predicted alone")
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
        if member.num_latents > 1:  # classes: the probability of each
            np.testing.assert_allclose(mean, p, rtol=1e-8)
            continue
        y = member.outcomes[:, 0]
        np.testing.assert_allclose(mean, np.sum(p * y), rtol=1e-4)
        np.testing.assert_allclose(variance, np.sum(p * (y - mean) ** 2), rtol=1e-3)


def test_draws_have_the_conditional_moments(member: Member) -> None:
    likelihood, (X, Y) = member.make(), data_of(member)
    F = tf.constant(marginals_of(member, 0.5)[0])
    many = 20_000
    drawn = likelihood.draw_y_like(
        *(tf.repeat(tf.constant(part)[None], many, 0) for part in (X, F, Y)), seed=[1, 2]
    )
    if member.name == "Switched":
        pytest.skip("its parts' draws are tested")
    if member.num_latents == 3:
        drawn = tf.one_hot(tf.cast(drawn[..., 0], tf.int32), 3, dtype=tf.float64)
    mean, variance = likelihood.conditional_mean(X, F), likelihood.conditional_variance(X, F)
    if member.name == "Binomial with trials":  # moments are of one trial
        mean, variance = Y[:, 1:] * mean, Y[:, 1:] * variance
    error = (np.mean(drawn, 0) - mean) / np.sqrt(variance / many)
    assert np.max(np.abs(error)) < 5.0
    fourth = np.mean((drawn - mean) ** 4, 0)
    error = (np.var(drawn, 0) - variance) / np.sqrt(fourth / many)
    assert np.max(np.abs(error)) < 6.0


def test_bayes_rule_for_the_auxiliary_variables(member: Member) -> None:
    """log p(y, aux|f) − log p(aux|f, y) is log p(y|f) whatever the auxiliary variables are."""
    likelihood, (X, Y) = member.make(), map(tf.constant, data_of(member))
    F = tf.constant(marginals_of(member, 1.0)[0])
    law = aux_full_conditional(likelihood, F, Y, X)
    draws = law.sample(7, seed=[3, 4])
    difference = aug_loglik(likelihood, draws, F, Y, X) - law.log_prob(draws)
    if difference.shape.rank == 3:
        difference = tf.reduce_sum(difference, -1)
    expected = member.log_density(X.numpy(), F.numpy(), Y.numpy())
    np.testing.assert_allclose(difference, np.tile(expected, (7, 1)), rtol=1e-8, atol=1e-7)


def test_given_the_auxiliary_variables_the_likelihood_is_gaussian(member: Member) -> None:
    """log p(y, aux|f) as a function of each f is potential f − ½ precision f² + a constant."""
    likelihood, (X, Y) = member.make(), map(tf.constant, data_of(member))
    F = tf.constant(marginals_of(member, 1.0)[0])
    auxiliary = aux_sample(likelihood, F, Y, [5, 6], X)
    potential, precision = likelihood.site(X, auxiliary, Y)
    steps = tf.one_hot(tf.range(member.num_latents), member.num_latents, dtype=F.dtype)
    first = 1 if member.name == "HeteroscedasticGaussian" else 0  # its f is not given n, but g
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


def test_it_passes_its_own_checks(member: Member) -> None:
    check_likelihood(member.make(), data_of(member)[1], progress=False)


@pytest.mark.parametrize("step_size", [1.0, 0.3])
def test_a_closed_form_step_is_a_natural_gradient_step(member: Member, step_size: float) -> None:
    """GPflow's, on the same bound; of one latent GP after the other where they are coupled."""
    data = data_of(member)
    ours, theirs = make_model(member), make_model(member)
    AugmentedNaturalGradient(step_size).minimize(ours, data)
    loss = theirs.training_loss_closure(data, compile=False)
    q = theirs.q_mu, theirs.q_sqrt
    turns = range(member.num_latents) if ours.in_turn else [slice(None)]
    for latent in turns:
        before = [part.numpy() for part in q]
        NaturalGradient(step_size).minimize(loss, [q])
        before[0][:, latent] = theirs.q_mu.numpy()[:, latent]
        before[1][latent] = theirs.q_sqrt.numpy()[latent]
        for part, value in zip(q, before, strict=True):
            part.assign(value)
    np.testing.assert_allclose(ours.q_mu, theirs.q_mu, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(ours.q_sqrt, theirs.q_sqrt, rtol=1e-8, atol=1e-8)


def test_full_batch_steps_never_lower_the_bound(member: Member) -> None:
    data, model = data_of(member, 30), make_model(member, 30)
    optimizer = AugmentedNaturalGradient(1.0)

    @tf.function(autograph=False)
    def step() -> tf.Tensor:
        optimizer.minimize(model, data)
        return model.elbo(data)

    bounds = np.array([step() for _ in range(50)])
    assert np.all(np.diff(bounds) >= -1e-9 * np.abs(bounds[1:]))
    assert bounds[-1] - bounds[-2] < 1e-3  # and they converge


def batches_of(
    data: tuple[AnyNDArray, AnyNDArray], size: int
) -> Iterator[tuple[tf.Tensor, tf.Tensor]]:
    return tf.data.Dataset.from_tensor_slices(data).batch(size)


def test_a_stream_is_the_whole(member: Member) -> None:
    data = data_of(member)
    whole, streamed = make_model(member), make_model(member)
    AugmentedNaturalGradient(1.0).minimize(whole, data)
    AugmentedNaturalGradient(1.0).minimize(streamed, batches_of(data, 5), progress=False)
    np.testing.assert_allclose(streamed.q_mu, whole.q_mu, rtol=1e-9, atol=1e-10)
    assert streamed.elbo(batches_of(data, 5)) == pytest.approx(float(whole.elbo(data)), rel=1e-10)


def test_fit_collapsed_ends_where_nothing_is_to_be_gained(member: Member) -> None:
    """Its ELBO, of fixed kernels, is that to which GPflow's own L-BFGS climbs in q."""
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
    ended = float(model.standard_elbo(data))
    assert float(stock.elbo(data)) == pytest.approx(ended, abs=1e-6)
    closure = stock.training_loss_closure(data)
    gpflow.optimizers.Scipy().minimize(closure, stock.trainable_variables)
    assert float(stock.elbo(data)) - ended < 2e-2


def test_vgp_is_svgp_at_all_inputs(member: Member) -> None:
    X, Y = data_of(member)
    kernel = gpflow.kernels.SquaredExponential(lengthscales=0.5)
    L = member.num_latents
    full = AugmentedVGP((X, Y), kernel, member.make(), num_latent_gps=L)
    sparse = AugmentedSVGP(kernel, member.make(), X.copy(), num_latent_gps=L, num_data=N)
    AugmentedNaturalGradient(0.8).minimize(full)
    AugmentedNaturalGradient(0.8).minimize(sparse, (X, Y))
    np.testing.assert_allclose(full.q_mu, sparse.q_mu, rtol=1e-6, atol=1e-8)
    assert float(full.elbo()) == pytest.approx(float(sparse.elbo((X, Y))), rel=1e-8)
