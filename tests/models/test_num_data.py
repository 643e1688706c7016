"""The number of rows: what ``num_data`` means, and what happens without it."""

from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.base import AnyNDArray

from gpflow_aaci import (
    AlternatingOptimizer,
    AugmentedNaturalGradient,
    AugmentedSVGP,
    fit_collapsed,
    likelihoods,
    train,
)
from gpflow_aaci.data.datasets import untuned
from gpflow_aaci.models import hyperparameters

Batch = tuple[AnyNDArray, AnyNDArray]
N, BATCH = 60, 20


@pytest.fixture
def data(rng: np.random.Generator) -> Batch:
    X = rng.uniform(-3.0, 3.0, size=(N, 1))
    return X, np.sin(2.0 * X) + 0.2 * rng.standard_t(3.0, size=X.shape)


def make(data: Batch, num_data: Any = None) -> AugmentedSVGP:
    likelihood = likelihoods.StudentT(scale=0.3)
    return AugmentedSVGP(
        gpflow.kernels.Matern32(), likelihood, data[0][::6].copy(), num_data=num_data
    )


def values(model: AugmentedSVGP) -> list[AnyNDArray]:
    return [np.asarray(p.numpy()) for p in model.parameters]


def as_batches(data: Batch) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices(data).repeat(3).batch(BATCH)


@pytest.mark.slow
@pytest.mark.parametrize("source", ["arrays", "dataset"])
def test_train_knows_the_rows_that_the_model_does_not(data: Batch, source: str) -> None:
    """Models with and without ``num_data`` end at the same values, and keep their ``num_data``."""
    told, untold = make(data, N), make(data)
    seen: list[Any] = []
    monitor = gpflow.monitor.Monitor(
        gpflow.monitor.MonitorTaskGroup(
            gpflow.monitor.ExecuteCallback(lambda: seen.append(untold.num_data))
        )
    )
    batches = tf.data.Dataset.from_tensor_slices(data).batch(BATCH)
    given = {"arrays": lambda: data, "dataset": lambda: batches}[source]
    steps = 3 if source == "dataset" else 9  # one pass
    kwargs: Any = {"num_steps": steps, "evaluate_every": 3, "batch_size": BATCH, "progress": False}
    histories = [train(told, given(), **kwargs), train(untold, given(), monitor=monitor, **kwargs)]
    for a, b in zip(values(told), values(untold), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(histories[0].augmented, histories[1].augmented, rtol=1e-9)
    assert {untold.num_data, *seen} == {None}


def test_the_first_example_of_a_new_user_is_right() -> None:
    """2,000 rows in minibatches of 100 without ``num_data`` give the right mean and spread of f."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-3.0, 3.0, size=(2000, 1))
    Y = np.sin(2.0 * X) + 0.3 * rng.standard_t(4.0, size=X.shape)
    grid = np.linspace(-2.8, 2.8, 50)[:, None]
    ends = []
    for num_data in (None, 2000):
        model = AugmentedSVGP(
            gpflow.kernels.SquaredExponential(),
            likelihoods.StudentT(0.5),
            np.linspace(-3.0, 3.0, 20)[:, None],
            num_data=num_data,
        )
        train(model, (X, Y), num_steps=300, progress=False)
        ends.append([value.numpy() for value in model.predict_f(grid)])
    np.testing.assert_allclose(ends[0], ends[1], rtol=1e-6, atol=1e-9)
    assert np.sqrt(np.mean((ends[0][0] - np.sin(2.0 * grid)) ** 2)) < 0.05


@pytest.mark.by_default("repeated")
@pytest.mark.parametrize(
    "dataset",
    [
        lambda data: tf.data.Dataset.from_tensor_slices(data).repeat().batch(BATCH),
        lambda data: tf.data.Dataset.from_tensor_slices(data).batch(5).filter(lambda X, Y: True),
        lambda data: as_batches(data).prefetch(1),
    ],
    ids=["without end", "unknown", "repeated"],
)
def test_train_says_where_it_cannot_know(data: Batch, dataset: Any) -> None:
    model, fresh = make(data), make(data)
    with pytest.raises(ValueError, match="num_data of the model must be given unless the dataset"):
        train(model, dataset(data), num_steps=3, progress=False)
    for a, b in zip(values(model), values(fresh), strict=True):
        np.testing.assert_array_equal(a, b)
    train(make(data, N), dataset(data), num_steps=3, progress=False)


@pytest.mark.briefly("AugmentedNaturalGradient-eager")
@pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "eager"])
@pytest.mark.parametrize("optimizer", [AlternatingOptimizer, AugmentedNaturalGradient])
def test_an_iterator_needs_num_data(data: Batch, optimizer: Any, compiled: bool) -> None:
    model, batches = make(data), iter(untuned(as_batches(data)))
    before = values(model)
    step = optimizer().minimize
    step = tf.function(step) if compiled else step
    with pytest.raises(ValueError, match="num_data of the model must be the number of rows"):
        step(model, batches)
    for a, b in zip(values(model), before, strict=True):
        np.testing.assert_array_equal(a, b)
    optimizer().minimize(model, data)  # a pair is all data, as in GPflow


def test_an_iterator_and_num_data_given_to_the_step(data: Batch) -> None:
    told, untold = make(data, N), make(data)
    AlternatingOptimizer(0.5).minimize(told, iter(untuned(as_batches(data))))
    AlternatingOptimizer(0.5).minimize(untold, iter(untuned(as_batches(data))), num_data=N)
    for a, b in zip(values(told), values(untold), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


@pytest.mark.by_default("eager")
@pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "eager"])
def test_fewer_than_the_rows_of_a_batch_scale_it_down_as_in_gpflow(
    data: Batch, compiled: bool
) -> None:
    """ELBO and natural-gradient step agree under Gaussian noise, where both bounds are the same."""
    make = lambda model: model(  # noqa: E731
        gpflow.kernels.Matern32(), gpflow.likelihoods.Gaussian(0.1), data[0][::6].copy(), num_data=7
    )
    ours, stock = make(AugmentedSVGP), make(gpflow.models.SVGP)
    step = AugmentedNaturalGradient(0.6).minimize
    (tf.function(step, autograph=False) if compiled else step)(ours, data)
    gpflow.optimizers.NaturalGradient(0.6).minimize(
        stock.training_loss_closure(data, compile=compiled), [(stock.q_mu, stock.q_sqrt)]
    )
    np.testing.assert_allclose(ours.q_mu, stock.q_mu, atol=1e-9)
    np.testing.assert_allclose(ours.q_sqrt, stock.q_sqrt, atol=1e-9)
    one_pass = tf.data.Dataset.from_tensor_slices(data).batch(BATCH)
    for rows in (data, one_pass):
        elbo = ours.elbo(rows, progress=False)
        np.testing.assert_allclose(elbo, stock.elbo(data), rtol=1e-9)


def test_adaptive_steps_are_full_where_a_batch_is_of_more_rows_than_num_data(data: Batch) -> None:
    """Such a batch counts as all data, so its natural gradient has no noise."""
    model, optimizer = make(data, 7), AlternatingOptimizer()
    optimizer.minimize(model, data)
    assert float(optimizer.step_size) == 1.0


@pytest.mark.slow
def test_fits_take_more_rows_than_num_data(data: Batch) -> None:
    model = make(data, 7)
    train(model, data, num_steps=2, batch_size=BATCH, progress=False)
    found = fit_collapsed(model, data, tolerance=0.1, progress=False)
    np.testing.assert_allclose(found.objective, model.elbo(data), rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [tf.int32, tf.float64])
def test_a_variable_is_no_hyperparameter(data: Batch, dtype: tf.DType) -> None:
    """``num_data=tf.Variable(N)`` is trainable, as variables are by default, but is not trained."""
    model, number = make(data, tf.Variable(N, dtype=dtype)), make(data, N)
    assert [v.shape for v in hyperparameters(model)] == [v.shape for v in hyperparameters(number)]
    for fit in (
        lambda model: train(model, data, num_steps=2, batch_size=BATCH, progress=False),
        lambda model: fit_collapsed(model, data, tolerance=0.1, progress=False),
    ):
        for either in (model, number):
            fit(either)
        assert float(model.num_data) == N
        np.testing.assert_allclose(
            model.augmented_elbo(data), number.augmented_elbo(data), rtol=1e-8
        )
