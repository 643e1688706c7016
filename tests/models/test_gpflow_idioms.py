"""Whatever one does with a GPflow model works with an augmented model, with the same result."""

import contextlib
import copy
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import gpflow
import keras
import numpy as np
import pytest
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.keras import tf_keras
from gpflow.kernels import Matern32, SharedIndependent, SquaredExponential
from gpflow.quadrature import NDiagGHQuadrature
from gpflow.utilities import (
    multiple_assign,
    parameter_dict,
    print_summary,
    read_values,
    tabulate_module_summary,
)

import gpflow_aaci
from gpflow_aaci import AugmentedNaturalGradient, AugmentedSVGP, AugmentedVGP, likelihoods

N, M = 20, 6
X_NEW = np.array([[0.3, -0.2], [1.4, 1.0], [-5.0, 0.0]])


class Pair(NamedTuple):
    """An augmented model and GPflow's, made in the same way from the same stock likelihood."""

    ours: Any
    stock: Any
    args: tuple[Any, ...]  # arguments of elbo, training_loss and minimize
    remake: Callable[[], Any]  # makes a new augmented model


def step(pair: Pair, step_size: float = 1.0) -> None:
    AugmentedNaturalGradient(step_size).minimize(pair.ours, *pair.args)


@pytest.fixture
def data(rng: np.random.Generator) -> tuple[AnyNDArray, AnyNDArray]:
    X = rng.uniform(-2.0, 2.0, size=(N, 2))
    return X, np.sin(2.0 * X[:, :1]) + 0.3 * rng.normal(size=(N, 1))


@pytest.fixture(params=["AugmentedSVGP", "AugmentedVGP"])
def pair(request: pytest.FixtureRequest, data: tuple[AnyNDArray, AnyNDArray]) -> Pair:
    """A pair with neither its initial q nor default hyperparameters."""

    def make(model_class: type[Any]) -> Any:
        kernel = Matern32(1.3, lengthscales=[0.8, 1.7])
        likelihood = gpflow.likelihoods.StudentT(scale=0.45, df=4.0)
        if issubclass(model_class, gpflow.models.VGP):
            return model_class(data, kernel, likelihood)
        return model_class(kernel, likelihood, data[0][:M].copy(), num_data=N)

    if request.param == "AugmentedVGP":
        ours_class, stock_class, args = AugmentedVGP, gpflow.models.VGP, ()
    else:
        ours_class, stock_class, args = AugmentedSVGP, gpflow.models.SVGP, (data,)
    pair = Pair(make(ours_class), make(stock_class), args, lambda: make(ours_class))
    step(pair)
    pair.stock.q_mu.assign(pair.ours.q_mu)
    pair.stock.q_sqrt.assign(pair.ours.q_sqrt)
    return pair


def assert_same_predictions(one: Any, other: Any, **tolerance: float) -> None:
    tolerance = tolerance or {"rtol": 1e-12}
    for a, b in zip(one.predict_f(X_NEW), other.predict_f(X_NEW), strict=True):
        np.testing.assert_allclose(a, b, **tolerance)


def assert_differ(one: Any, other: Any) -> None:
    assert np.max(np.abs(one.predict_f(X_NEW)[0] - other.predict_f(X_NEW)[0])) > 1e-3


# ---- prediction ----

Y_NEW = np.array([[0.5], [-1.0], [4.0]])

PREDICTIONS: dict[str, Callable[[Any], Any]] = {
    "predict_f": lambda model: model.predict_f(X_NEW),
    "full_cov": lambda model: model.predict_f(X_NEW, full_cov=True),
    "predict_y": lambda model: model.predict_y(X_NEW),
    "predict_log_density": lambda model: [model.predict_log_density((X_NEW, Y_NEW))],
    "posterior": lambda model: model.posterior().predict_f(X_NEW),
    "fused": lambda model: model.posterior().fused_predict_f(X_NEW),
}


@pytest.mark.briefly("AugmentedSVGP-posterior")
@pytest.mark.parametrize("name", PREDICTIONS)
def test_predictions_are_gpflows(pair: Pair, name: str) -> None:
    """The q are the same. GPflow's densities use 20 quadrature nodes and agree to 5e-3."""
    rtol = 5e-3 if name == "predict_log_density" else 1e-9
    ours, stock = PREDICTIONS[name](pair.ours), PREDICTIONS[name](pair.stock)
    for a, b in zip(ours, stock, strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-12)


@pytest.mark.briefly("AugmentedVGP-False")
@pytest.mark.parametrize("full_cov", [True, False])
def test_samples_are_gpflows_for_the_same_seed(pair: Pair, full_cov: bool) -> None:
    draws = []
    for model in (pair.ours, pair.stock):
        tf.random.set_seed(4)
        draws.append(model.predict_f_samples(X_NEW, 5, full_cov=full_cov).numpy())
    assert draws[0].shape == (5, len(X_NEW), 1)
    np.testing.assert_allclose(draws[0], draws[1], rtol=1e-6, atol=1e-9)


@pytest.mark.briefly("False")
@pytest.mark.parametrize("full_cov", [True, False])
def test_full_output_covariance_is_gpflows(
    data: tuple[AnyNDArray, AnyNDArray], full_cov: bool
) -> None:
    """The model has several outputs."""
    X, Y = data
    models = []
    for model_class in (AugmentedSVGP, gpflow.models.SVGP):
        inducing = gpflow.inducing_variables.SharedIndependentInducingVariables(
            gpflow.inducing_variables.InducingPoints(X[:M].copy())
        )
        kernel, likelihood = SharedIndependent(Matern32(), 2), gpflow.likelihoods.StudentT()
        models.append(model_class(kernel, likelihood, inducing, num_latent_gps=2))
    ours, stock = models
    AugmentedNaturalGradient().minimize(ours, (X, np.hstack([Y, -Y])))
    multiple_assign(stock, parameter_dict(ours))
    kwargs = {"full_cov": full_cov, "full_output_cov": True}
    for a, b in zip(ours.predict_f(X_NEW, **kwargs), stock.predict_f(X_NEW, **kwargs), strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-14)


def test_vgp_refuses_full_output_cov_as_gpflows_does(
    data: tuple[AnyNDArray, AnyNDArray],
) -> None:
    for model_class in (AugmentedVGP, gpflow.models.VGP):
        model = model_class(data, Matern32(), gpflow.likelihoods.StudentT())
        with pytest.raises(NotImplementedError):
            model.predict_f(X_NEW, full_output_cov=True)


# ---- parameters ----


def rows(model: Any) -> list[list[str]]:
    """The table of print_summary without the model's class name."""
    table = tabulate_module_summary(model, tablefmt="tsv").replace("Augmented", "")
    return [[cell.strip() for cell in row.split("\t")] for row in table.splitlines()]


def test_summary_has_gpflows_rows(pair: Pair) -> None:
    """They show class, transform, prior, trainable, shape, dtype and value of every parameter."""
    assert rows(pair.ours) == rows(pair.stock)
    assert len(rows(pair.ours)) > 5
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        print_summary(pair.ours, fmt="simple")
    assert "likelihood.scale" in printed.getvalue()


def test_summary_shows_the_likelihoods_own_parameters() -> None:
    model = AugmentedSVGP(Matern32(), likelihoods.StudentT(0.5, 7.0), np.zeros((1, 1)))
    table = {row[0]: row for row in rows(model)}
    assert float(table["SVGP.likelihood.df"][-1]) == pytest.approx(7.0)
    assert float(table["SVGP.likelihood.scale"][-1]) == pytest.approx(0.5)


def test_q_sqrt_says_how_many_latent_gps_there_are(data: tuple[AnyNDArray, AnyNDArray]) -> None:
    """Neither class then needs num_latent_gps."""
    X, Y = data
    q_mu, q_sqrt = np.zeros((M, 2)), np.repeat(np.eye(M)[None], 2, axis=0)
    ours, stock = (
        model_class(Matern32(), gpflow.likelihoods.StudentT(), X[:M], q_mu=q_mu, q_sqrt=q_sqrt)
        for model_class in (AugmentedSVGP, gpflow.models.SVGP)
    )
    assert ours.num_latent_gps == stock.num_latent_gps == 2
    AugmentedNaturalGradient(1.0).minimize(ours, (X, np.hstack([Y, -Y])))


@pytest.mark.briefly("AugmentedVGP")
def test_parameters_round_trip(pair: Pair) -> None:
    saved = read_values(pair.ours)
    fresh = pair.remake()
    assert_differ(fresh, pair.ours)
    multiple_assign(fresh, saved)
    assert_same_predictions(fresh, pair.ours)
    np.testing.assert_allclose(
        fresh.augmented_elbo(*pair.args), pair.ours.augmented_elbo(*pair.args), rtol=1e-12
    )


def test_parameters_of_a_stock_model_fit(pair: Pair) -> None:
    """A trained GPflow model's parameters can be assigned to the augmented one, and back."""
    pair.stock.kernel.lengthscales.assign([0.5, 0.6])
    pair.stock.likelihood.scale.assign(0.9)
    pair.stock.q_mu.assign(pair.stock.q_mu + 0.5)
    assert_differ(pair.ours, pair.stock)
    multiple_assign(pair.ours, parameter_dict(pair.stock))
    assert_same_predictions(pair.ours, pair.stock)
    np.testing.assert_allclose(pair.ours.likelihood.scale, 0.9)
    step(pair, 0.5)
    multiple_assign(pair.stock, parameter_dict(pair.ours))
    assert_same_predictions(pair.ours, pair.stock)


@pytest.mark.briefly("AugmentedVGP-deepcopy1")
@pytest.mark.parametrize("deepcopy", [copy.deepcopy, gpflow.utilities.deepcopy])
def test_a_copy_is_equal_and_independent(pair: Pair, deepcopy: Callable[[Any], Any]) -> None:
    """It is so even after the original has returned posteriors, which follow the original."""
    posterior = pair.ours.posterior()
    twin = deepcopy(pair.ours)
    assert_same_predictions(twin, pair.ours)
    step(pair, 0.5)
    assert_differ(twin, pair.ours)
    assert_same_predictions(posterior, pair.ours, rtol=1e-6)
    AugmentedNaturalGradient(0.5).minimize(twin, *pair.args)
    assert_same_predictions(twin, pair.ours)


def test_frozen_copy_predicts_the_same(pair: Pair) -> None:
    assert_same_predictions(gpflow.utilities.freeze(pair.ours), pair.ours)


# ---- files ----


@pytest.mark.briefly("BayesianSVM-False-float64")
@pytest.mark.by_default("StudentT", "BayesianSVM")
@pytest.mark.by_default("float64")
@pytest.mark.parametrize("name", ["float64", "float32"])
@pytest.mark.parametrize("whiten", [True, False])
def test_a_model_frozen_as_float32_predicts(
    make_likelihood: Callable[[], likelihoods.AugmentedLikelihood], whiten: bool, name: str
) -> None:
    """It predicts in a float64 session and in one of float32, as GPflow's SVGP does."""
    X = np.linspace(-2.0, 2.0, 12)[:, None]
    model = AugmentedSVGP(
        gpflow.kernels.Matern52(), make_likelihood(), X[::3].copy(), whiten=whiten
    )
    model.q_mu.assign(np.linspace(-1.0, 1.0, 4)[:, None])
    Y = (X > 0.3).astype(float)
    expected = [*model.predict_f(X), *model.predict_y(X), model.predict_log_density((X, Y))]
    frozen = gpflow.utilities.freeze_as_float32(model)
    if name == "float32":
        gpflow.config.set_default_float(np.float32)
    X, Y = X.astype(np.float32), Y.astype(np.float32)
    found = [*frozen.predict_f(X), *frozen.predict_y(X), frozen.predict_log_density((X, Y))]
    for ours, value in zip(found, expected, strict=True):
        assert ours.dtype == tf.float32
        np.testing.assert_allclose(ours, value, rtol=2e-3, atol=2e-3)


@pytest.mark.slow
def test_under_a_mirrored_strategy_of_one_device_all_is_as_without(tmp_path: Path) -> None:
    """Every way of training gives the same, called inside the strategy's scope or outside."""
    X = np.linspace(-2.0, 2.0, 24)[:, None]
    data = X, np.sin(X)

    def make() -> AugmentedSVGP:
        likelihood = likelihoods.StudentT(0.3)
        return AugmentedSVGP(gpflow.kernels.Matern32(), likelihood, X[::4].copy(), num_data=24)

    def fit(model: AugmentedSVGP) -> None:
        gpflow_aaci.train(model, data, num_steps=4, batch_size=12, progress=False)
        gpflow_aaci.fit_collapsed(model, data, tolerance=0.1, progress=False)

    plain = make()
    fit(plain)
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    with strategy.scope():
        mirrored = make()
        fit(mirrored)
    np.testing.assert_allclose(mirrored.augmented_elbo(data), plain.augmented_elbo(data), rtol=1e-6)
    with strategy.scope():
        mirrored = make()
    gpflow_aaci.AlternatingOptimizer().minimize(mirrored, data)
    once = make()
    gpflow_aaci.AlternatingOptimizer().minimize(once, data)
    np.testing.assert_allclose(mirrored.augmented_elbo(data), once.augmented_elbo(data), rtol=1e-8)


def test_a_legacy_optimizer_is_refused_by_name() -> None:
    legacy = gpflow.keras.tf_keras.optimizers.legacy.Adam(0.01)
    with pytest.raises(ValueError, match=r"not of tf_keras.optimizers.legacy.*legacy\.adam"):
        gpflow_aaci.AlternatingOptimizer(hyperparameter_optimizer=legacy)


def test_lists_keep_their_digits() -> None:
    """TensorFlow would convert a list to float32, where 20,000 + 0.01 i loses a tenth of a step."""
    X = [[20_000.0 + 0.01 * i] for i in range(20)]
    Y = [[float(np.sin(0.3 * i))] for i in range(20)]
    arrays = np.array(X), np.array(Y)
    model = AugmentedSVGP(
        gpflow.kernels.Matern32(lengthscales=0.05), likelihoods.Laplace(), arrays[0][::3].copy()
    )
    gpflow_aaci.AugmentedNaturalGradient().minimize(model, (X, Y))
    assert float(model.augmented_elbo((X, Y))) == float(model.augmented_elbo(arrays))


def test_checkpoint_round_trip(pair: Pair, tmp_path: Path) -> None:
    path = tf.train.Checkpoint(model=pair.ours).save(str(tmp_path / "checkpoint"))
    fresh = pair.remake()
    fresh.kernel.lengthscales.assign([9.0, 9.0])
    assert_differ(fresh, pair.ours)
    tf.train.Checkpoint(model=fresh).restore(path).assert_existing_objects_matched()
    assert_same_predictions(fresh, pair.ours)


def test_checkpoint_of_a_stock_model_can_be_restored(pair: Pair, tmp_path: Path) -> None:
    """The likelihood's parameters are included."""
    pair.stock.kernel.lengthscales.assign([0.5, 0.6])
    pair.stock.likelihood.scale.assign(0.9)
    path = tf.train.Checkpoint(model=pair.stock).save(str(tmp_path / "checkpoint"))
    fresh = pair.remake()
    status = tf.train.Checkpoint(model=fresh).restore(path)
    status.assert_existing_objects_matched()
    assert_same_predictions(fresh, pair.stock)
    np.testing.assert_allclose(fresh.likelihood.scale, 0.9)


@pytest.mark.briefly("AugmentedVGP")
def test_saved_model_predicts_the_same(pair: Pair, tmp_path: Path) -> None:
    """A compiled predict_f is saved and loaded as in GPflow's notebook."""
    pair.ours.compiled_predict_f = tf.function(
        lambda X: pair.ours.predict_f(X),
        input_signature=[tf.TensorSpec([None, 2], tf.float64)],
    )
    tf.saved_model.save(pair.ours, str(tmp_path))
    loaded = tf.saved_model.load(str(tmp_path))
    saved, expected = loaded.compiled_predict_f(X_NEW), pair.ours.predict_f(X_NEW)
    for a, b in zip(saved, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9)


# ---- optimizers ----


@pytest.mark.slow
@pytest.mark.by_default("AugmentedVGP")
def test_scipy_raises_the_elbo(pair: Pair) -> None:
    """It uses training_loss_closure, and ends no lower than closed-form steps of q alone."""
    model = pair.remake()
    before = float(model.augmented_elbo(*pair.args))
    closure = model.training_loss_closure(*pair.args)
    gpflow.optimizers.Scipy().minimize(closure, model.trainable_variables, options={"maxiter": 200})
    for _ in range(3):
        step(pair)
    assert float(model.augmented_elbo(*pair.args)) > before + 1.0
    assert float(model.augmented_elbo(*pair.args)) > float(pair.ours.augmented_elbo(*pair.args))


def adam_losses(model: Any, args: tuple[Any, ...], optimizer: Any) -> list[float]:
    losses = []
    for _ in range(6):
        with tf.GradientTape() as tape:
            loss = model.training_loss(*args)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        losses.append(float(loss))
    return losses


@pytest.mark.slow
def test_keras_2_and_keras_3_optimizers_descend_alike(pair: Pair) -> None:
    """Both work by apply_gradients, and tf_keras by minimize as well."""
    by_tf_keras = adam_losses(pair.remake(), pair.args, tf_keras.optimizers.Adam(0.05))
    by_keras = adam_losses(pair.remake(), pair.args, keras.optimizers.Adam(0.05))
    model, optimizer, by_minimize = pair.remake(), tf_keras.optimizers.Adam(0.05), []
    for _ in range(6):
        by_minimize.append(float(model.training_loss(*pair.args)))
        optimizer.minimize(lambda: model.training_loss(*pair.args), model.trainable_variables)
    assert by_keras[-1] < by_keras[0] - 1.0
    np.testing.assert_allclose(by_keras, by_tf_keras, rtol=1e-6)
    np.testing.assert_allclose(by_minimize, by_tf_keras, rtol=1e-6)


@pytest.mark.briefly("AugmentedVGP")
def test_gpflows_training_loss_utilities_take_either_model(
    pair: Pair, data: tuple[AnyNDArray, AnyNDArray]
) -> None:
    """gpflow.models.training_loss asks the class whether the model keeps its data."""
    expected = pair.ours.training_loss(*pair.args)
    assert float(gpflow.models.training_loss(pair.ours, data)) == float(expected)
    closure = gpflow.models.training_loss_closure(pair.ours, data)
    np.testing.assert_allclose(closure(), expected, rtol=1e-12)


def test_a_likelihood_shared_with_a_stock_model_is_one(
    data: tuple[AnyNDArray, AnyNDArray],
) -> None:
    """
    GPflow's own SVGP takes an augmented likelihood, and uses the likelihood's quadrature.

    Here it has 19 nodes, because GPflow's default of 20 would be replaced by a finer rule.
    """
    likelihood = likelihoods.StudentT(0.5, df=4.0, quadrature=NDiagGHQuadrature(1, 19))
    theirs = gpflow.likelihoods.StudentT(0.5, df=4.0, quadrature=NDiagGHQuadrature(1, 19))
    kernel, Z = SquaredExponential(), data[0][:M].copy()
    with_ours = gpflow.models.SVGP(kernel, likelihood, Z)
    with_theirs = gpflow.models.SVGP(kernel, theirs, Z)
    np.testing.assert_allclose(with_ours.elbo(data), with_theirs.elbo(data), rtol=1e-10)


@pytest.mark.slow
def test_update_vgp_data_does_to_both_the_same(rng: np.random.Generator) -> None:
    """
    For new data of another length, q is carried over as by GPflow, and compiled steps still work.
    """
    X, Y = rng.uniform(-2.0, 2.0, size=(8, 2)), rng.normal(size=(8, 1))
    models = []
    for model_class in (AugmentedVGP, gpflow.models.VGP):
        variables = tf.Variable(X, shape=[None, 2]), tf.Variable(Y, shape=[None, 1])
        models.append(model_class(variables, Matern32(), gpflow.likelihoods.StudentT()))
    ours, stock = models
    optimizer = AugmentedNaturalGradient()
    compiled_step = tf.function(lambda: optimizer.minimize(ours))
    compiled_step()
    stock.q_mu.assign(ours.q_mu)
    stock.q_sqrt.assign(ours.q_sqrt)
    X_more = np.concatenate([X[2:], rng.uniform(-2.0, 2.0, size=(6, 2))])
    Y_more = np.concatenate([Y[2:], rng.normal(size=(6, 1))])
    for model in models:
        gpflow.models.vgp.update_vgp_data(model, (X_more, Y_more))
    assert_same_predictions(ours, stock, rtol=1e-9)
    before = float(ours.augmented_elbo())
    compiled_step()
    assert float(ours.augmented_elbo()) > before
    # Full steps on the new data converge to the same q as a new model.
    fresh = AugmentedVGP((X_more, Y_more), Matern32(), gpflow.likelihoods.StudentT())
    for _ in range(40):
        compiled_step()
        optimizer.minimize(fresh)
    assert_same_predictions(ours, fresh, atol=1e-6)


@pytest.mark.slow
def test_a_model_of_growing_data_is_fitted_as_one_of_fixed_data(
    data: tuple[AnyNDArray, AnyNDArray],
) -> None:
    """A loop of Bayesian optimisation keeps data and q in variables of unknown length."""
    variables = [tf.Variable(d, shape=[None, d.shape[1]], trainable=False) for d in data]
    growing = AugmentedVGP((variables[0], variables[1]), Matern32(), gpflow.likelihoods.StudentT())
    gpflow.models.vgp.update_vgp_data(growing, data)
    fixed = AugmentedVGP(data, Matern32(), gpflow.likelihoods.StudentT())
    results = [gpflow_aaci.fit_collapsed(model, progress=False) for model in (growing, fixed)]
    assert results[0].converged
    np.testing.assert_allclose(results[0].objective, results[1].objective, atol=2e-3)
