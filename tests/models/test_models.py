"""
AugmentedSVGP and AugmentedVGP: their bound, their likelihood, and what they inherit from GPflow.
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
from gpflow.base import AnyNDArray
from gpflow.kernels import Matern32, SquaredExponential
from gpflow.quadrature import NDiagGHQuadrature

from gpflow_aaci import AugmentedNaturalGradient, AugmentedSVGP, AugmentedVGP, likelihoods
from gpflow_aaci.algebra.terms import augmented_bound, standard
from gpflow_aaci.data import as_data

Randomise = Callable[[gpflow.models.GPModel], None]
AugmentedModel = AugmentedSVGP | AugmentedVGP
Build = Callable[..., tuple[AugmentedModel, tuple[Any, ...]]]

N, M = 18, 5


@pytest.fixture
def X(rng: np.random.Generator) -> AnyNDArray:
    return rng.uniform(-2.0, 2.0, size=(N, 2))


@pytest.fixture
def Y(rng: np.random.Generator) -> AnyNDArray:
    return rng.normal(size=(N, 1))


@pytest.fixture(params=["AugmentedSVGP", "AugmentedVGP"])
def build(request: pytest.FixtureRequest, X: AnyNDArray, Y: AnyNDArray) -> Build:
    """A function that makes a model of either kind and the arguments of its elbo."""

    def build(likelihood: Any, Y: AnyNDArray = Y, **kwargs: Any) -> Any:
        if request.param == "AugmentedVGP":
            return AugmentedVGP((X, Y), Matern32(), likelihood, **kwargs), ()
        return AugmentedSVGP(Matern32(), likelihood, X[:M].copy(), **kwargs), ((X, Y),)

    return build


# ---- the bound ----


def student_t_term(
    y: AnyNDArray, m: AnyNDArray, v: AnyNDArray, scale: float, df: float
) -> AnyNDArray:
    r = ((y - m) ** 2 + v) / scale**2
    log_C = scipy.stats.t.logpdf(0.0, df, scale=scale)
    return log_C - (df + 1) / 2 * np.log1p(r / df)


def logistic_term(y: AnyNDArray, m: AnyNDArray, v: AnyNDArray) -> AnyNDArray:
    """The Jaakkola-Jordan bound, log σ(c) + (±m − c)/2 at c = √(m² + v)."""
    c = np.sqrt(m**2 + v)
    return scipy.special.log_expit(c) + ((2 * y - 1) * m - c) / 2


@pytest.mark.parametrize("whiten", [True, False])
def test_elbo_is_the_published_bound(
    X: AnyNDArray, Y: AnyNDArray, whiten: bool, randomise_q: Randomise
) -> None:
    """
    It is num_data/|B| times the sum over data minus the KL; NumPy computes it for two likelihoods.
    """
    Z, K_u = X[:M], lambda a, b: Matern32()(a, b).numpy()
    K_ZZ = K_u(Z, Z) + gpflow.config.default_jitter() * np.eye(M)
    K_ZX = K_u(Z, X)
    for likelihood, y, term in (
        (likelihoods.StudentT(0.6, 4.0), Y, lambda *args: student_t_term(*args, 0.6, 4.0)),
        (likelihoods.Logistic(), (Y > 0).astype(float), logistic_term),
    ):
        model = AugmentedSVGP(Matern32(), likelihood, Z.copy(), num_data=3 * N, whiten=whiten)
        randomise_q(model)
        mean, R = model.q_mu.numpy()[:, 0], model.q_sqrt.numpy()[0]
        S, prior = R @ R.T, np.eye(M) if whiten else K_ZZ
        B = np.linalg.solve(np.linalg.cholesky(K_ZZ), K_ZX) if whiten else K_ZX
        W = np.linalg.solve(prior, B)  # f = Wᵀ u + noise
        m = W.T @ mean
        v = 1.0 - np.sum(B * W, axis=0) + np.sum(W * (S @ W), axis=0)
        logdet_ratio = np.linalg.slogdet(prior)[1] - np.linalg.slogdet(S)[1]
        trace = np.trace(np.linalg.solve(prior, S))
        KL = 0.5 * (trace + mean @ np.linalg.solve(prior, mean) - M + logdet_ratio)
        expected = 3.0 * np.sum(term(y[:, 0], m, v)) - KL
        np.testing.assert_allclose(model.augmented_elbo((X, y)), expected, rtol=1e-9)


def test_a_step_too_far_ends_in_the_bound_as_in_gpflows(X: AnyNDArray, Y: AnyNDArray) -> None:
    """If a Cholesky factorisation fails, both bounds are NaN, or both raise the same error."""

    def outcome(model: gpflow.models.VGP) -> str:
        try:
            return str(float(model.training_loss()))
        except tf.errors.OpError as error:  # some versions of TensorFlow raise it
            return type(error).__name__

    data = np.concatenate([X, X]), np.concatenate([Y, -Y])
    kernel = SquaredExponential(lengthscales=1e4)
    with gpflow.config.as_context(gpflow.config.Config(jitter=0.0)):
        expected = outcome(gpflow.models.VGP(data, kernel, gpflow.likelihoods.StudentT()))
        assert expected in ("nan", "InvalidArgumentError")
        assert outcome(AugmentedVGP(data, kernel, gpflow.likelihoods.StudentT())) == expected


def test_objectives_of_one_pass_are_the_two(build: Build) -> None:
    model, args = build(likelihoods.StudentT(0.5))
    rows = as_data(model.expected_data, *args)
    both = model.objectives(rows, augmented_bound, standard)
    np.testing.assert_allclose(both, [model.augmented_elbo(*args), model.elbo(*args)], rtol=1e-13)


def test_minibatch_elbos_average_to_the_full_one(
    X: AnyNDArray, Y: AnyNDArray, randomise_q: Randomise
) -> None:
    """Over a partition into equal parts, the mean of either bound is the bound of all data."""
    model = AugmentedSVGP(Matern32(), likelihoods.Laplace(), X[:M].copy(), num_data=N)
    randomise_q(model)
    for bound in (model.augmented_elbo, model.elbo):
        parts = [bound((X[i::3], Y[i::3])).numpy() for i in range(3)]
        np.testing.assert_allclose(np.mean(parts), bound((X, Y)), rtol=1e-12)
        assert np.ptp(parts) > 0.1


def test_num_data_of_none_means_the_batch_is_everything(X: AnyNDArray, Y: AnyNDArray) -> None:
    bounds = [
        AugmentedSVGP(Matern32(), likelihoods.Laplace(), X[:M].copy(), num_data=n).elbo((X, Y))
        for n in (None, N, tf.constant(N), float(N))
    ]
    np.testing.assert_allclose(bounds, bounds[0], rtol=1e-15)


def test_training_loss_is_minus_elbo_minus_log_prior(build: Build) -> None:
    """Priors, on the likelihood's parameters too, count once."""
    likelihood = likelihoods.StudentT()
    likelihood.scale.prior = tfp.distributions.Gamma(np.float64(2.0), np.float64(3.0))
    model, args = build(likelihood)
    model.kernel.lengthscales.prior = tfp.distributions.LogNormal(np.float64(0.0), np.float64(1.0))
    log_prior = float(model.log_prior_density())
    assert abs(log_prior) > 0.1
    np.testing.assert_allclose(
        model.training_loss(*args), -(float(model.augmented_elbo(*args)) + log_prior), rtol=1e-12
    )
    np.testing.assert_allclose(
        model.maximum_log_likelihood_objective(*args), model.augmented_elbo(*args), rtol=1e-12
    )


def test_training_loss_is_pure(build: Build, randomise_q: Randomise) -> None:
    """Two calls give the same number, and no variable changes."""
    model, args = build(likelihoods.Laplace())
    randomise_q(model)
    before = [variable.numpy().copy() for variable in model.variables]
    first, second = model.training_loss(*args), model.training_loss(*args)
    assert float(first) == float(second)
    for value, variable in zip(before, model.variables, strict=True):
        np.testing.assert_array_equal(value, variable.numpy())


@pytest.mark.briefly("Logistic-AugmentedVGP")
@pytest.mark.by_default("StudentT", "Logistic")
def test_gradients_of_the_bound_are_those_of_finite_differences(
    build: Build, randomise_q: Randomise, make_likelihood: Callable[[], Any], observe: Any, X: Any
) -> None:
    """All trainable variables are tested, with Z and the likelihood's parameters."""
    likelihood = make_likelihood()
    model, args = build(likelihood, Y=observe(likelihood, X, 1))
    if args:
        args = ((X, observe(likelihood, X, 1)),)
    randomise_q(model)
    rng = np.random.default_rng(3)
    with tf.GradientTape() as tape:
        loss = model.training_loss(*args)
    gradients = tape.gradient(loss, model.trainable_variables)
    for variable, gradient in zip(model.trainable_variables, gradients, strict=True):
        value, step = variable.numpy(), 1e-5
        direction = rng.normal(size=value.shape)
        ends = []
        for sign in (1.0, -1.0):
            variable.assign(value + sign * step * direction)
            ends.append(float(model.training_loss(*args)))
        variable.assign(value)
        difference = (ends[0] - ends[1]) / (2.0 * step)
        along = float(np.sum(tf.convert_to_tensor(gradient) * direction))
        assert abs(difference - along) <= 1e-5 * max(1.0, abs(along)), variable.name


# ---- the likelihood ----


def test_gpflows_likelihood_is_converted_and_its_parameters_shared(build: Build) -> None:
    stock = gpflow.likelihoods.StudentT(scale=0.7, df=5.0)
    model, args = build(stock)
    assert isinstance(model.likelihood, likelihoods.StudentT)
    assert model.likelihood.scale is stock.scale
    before = float(model.augmented_elbo(*args))
    stock.scale.assign(1.4)
    assert float(model.augmented_elbo(*args)) != before


def test_super_gaussian_likelihood_is_used_as_it_is(build: Build) -> None:
    mine = likelihoods.Laplace()
    assert build(mine)[0].likelihood is mine


def test_converted_student_t_keeps_its_df_fixed(build: Build) -> None:
    """GPflow's does so, too; df of our own StudentT is learnt."""

    def trainable_scalars(likelihood: Any) -> int:
        return len(build(likelihood)[0].likelihood.trainable_variables)

    assert trainable_scalars(gpflow.likelihoods.StudentT(df=4.0)) == 1
    assert trainable_scalars(likelihoods.StudentT(df=4.0)) == 2


# ---- GPflow's contract ----


def test_isinstance_and_constructor_defaults(X: AnyNDArray, Y: AnyNDArray) -> None:
    """q has GPflow's initial values, and is trainable."""
    pairs = [
        (
            AugmentedSVGP(Matern32(), likelihoods.Laplace(), X[:M].copy(), num_latent_gps=2),
            gpflow.models.SVGP(Matern32(), likelihoods.Laplace(), X[:M].copy(), num_latent_gps=2),
        ),
        (
            AugmentedVGP((X, Y), Matern32(), likelihoods.Laplace()),
            gpflow.models.VGP((X, Y), Matern32(), likelihoods.Laplace()),
        ),
    ]
    for ours, stock in pairs:
        assert isinstance(ours, type(stock))
        np.testing.assert_array_equal(ours.q_mu, stock.q_mu)
        np.testing.assert_array_equal(ours.q_sqrt, stock.q_sqrt)
        assert ours.q_mu.trainable
        assert ours.q_sqrt.trainable
        assert len(ours.trainable_variables) == len(stock.trainable_variables)


def test_q_given_to_the_constructor_is_kept(X: AnyNDArray, Y: AnyNDArray) -> None:
    """It also determines the number of latent GPs, as in GPflow."""
    q_mu, q_sqrt = np.full((M, 2), 0.3), np.stack([np.eye(M), 2.0 * np.eye(M)])
    model = AugmentedSVGP(Matern32(), likelihoods.Laplace(), X[:M].copy(), q_mu=q_mu, q_sqrt=q_sqrt)
    np.testing.assert_array_equal(model.q_mu, q_mu)
    np.testing.assert_array_equal(model.q_sqrt, q_sqrt)
    assert np.isfinite(model.augmented_elbo((X, np.hstack([Y, -Y]))))


def test_projection_is_that_of_predict_f(build: Build, X: AnyNDArray) -> None:
    """L Lᵀ = K_ZZ + jitter and A = L⁻¹K_ZX, for the training inputs and for others."""
    model, _ = build(likelihoods.Laplace())
    Z = X if isinstance(model, AugmentedVGP) else X[:M]
    for X_any in (X, X[:3] + 0.1):
        projection = model.project(X_any)
        K_ZZ = Matern32()(Z).numpy() + gpflow.config.default_jitter() * np.eye(len(Z))
        L, A = projection.chol[0].numpy(), projection.A[0].numpy()
        np.testing.assert_allclose(L @ L.T, K_ZZ, rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(L @ A, Matern32()(Z, X_any), atol=1e-12)
        np.testing.assert_allclose(projection.unexplained[0], 1.0 - np.sum(A**2, 0), atol=1e-12)


def test_prediction_is_gpflows_at_the_same_q(X: AnyNDArray, Y: AnyNDArray) -> None:
    """Only the bound differs, and q comes from a closed-form step."""
    likelihood = gpflow.likelihoods.StudentT()
    ours = AugmentedSVGP(SquaredExponential(), likelihood, X[:M].copy())
    AugmentedNaturalGradient().minimize(ours, (X, Y))
    stock = gpflow.models.SVGP(SquaredExponential(), likelihood, X[:M].copy())
    stock.q_mu.assign(ours.q_mu)
    stock.q_sqrt.assign(ours.q_sqrt)
    X_new = X[:4] + 0.3
    for method in ("predict_f", "predict_y"):
        for a, b in zip(getattr(ours, method)(X_new), getattr(stock, method)(X_new), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12)


def test_fixed_q_is_left_to_the_closed_form_step(build: Build) -> None:
    """set_trainable(q, False) hides q from other optimizers but not from the closed-form step."""
    model, args = build(likelihoods.Laplace())
    gpflow.set_trainable(model.q_mu, False)
    gpflow.set_trainable(model.q_sqrt, False)
    names = {id(v) for v in model.trainable_variables}
    assert id(model.q_mu.unconstrained_variable) not in names
    before = float(model.augmented_elbo(*args))
    AugmentedNaturalGradient().minimize(model, *args)
    assert float(model.augmented_elbo(*args)) > before + 0.1


def test_convolutional_model_works_as_in_gpflow(rng: np.random.Generator) -> None:
    """Inducing patches have fewer columns than the images."""
    images, patches = rng.normal(size=(N, 16)), rng.normal(size=(M, 4))
    labels = (images[:, :1] > 0).astype(float)

    def kernel() -> gpflow.kernels.Convolutional:
        return gpflow.kernels.Convolutional(SquaredExponential(), [4, 4], [2, 2])

    models = [
        model_class(
            kernel(),
            # Both use this quadrature. Ours would replace GPflow's default by a finer rule.
            gpflow.likelihoods.Bernoulli(invlink=tf.sigmoid, quadrature=NDiagGHQuadrature(1, 19)),
            gpflow.inducing_variables.InducingPatches(patches),
        )
        for model_class in (AugmentedSVGP, gpflow.models.SVGP)
    ]
    standard = models[0].elbo((images, labels))
    np.testing.assert_allclose(standard, models[1].elbo((images, labels)), rtol=1e-10)
    before = float(models[0].augmented_elbo((images, labels)))
    AugmentedNaturalGradient().minimize(models[0], (images, labels))
    assert float(models[0].augmented_elbo((images, labels))) > before


def test_kernel_on_some_columns_only(X: AnyNDArray, Y: AnyNDArray) -> None:
    """active_dims select columns of both X and Z, and the other columns have no effect."""
    bounds = []
    for other in (0.0, 5.0):
        X_ = X * [1.0, 0.0] + [0.0, other]
        kernel = SquaredExponential(active_dims=[0])
        model = AugmentedSVGP(kernel, likelihoods.StudentT(), X_[:M].copy())
        AugmentedNaturalGradient().minimize(model, (X_, Y))
        bounds.append(float(model.augmented_elbo((X_, Y))))
    np.testing.assert_allclose(bounds[0], bounds[1], rtol=1e-12)
