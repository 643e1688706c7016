"""Steps in a plain loop compile themselves, and do what steps operation by operation do."""

import copy
import gc
import pickle
import weakref
from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from check_shapes.exceptions import ShapeMismatchError
from gpflow.keras import tf_keras

from gpflow_aaci import (
    AlternatingOptimizer,
    AugmentedNaturalGradient,
    AugmentedSVGP,
    AugmentedVGP,
    likelihoods,
)
from gpflow_aaci.algebra.gaussian import Gaussian
from gpflow_aaci.data import as_data
from gpflow_aaci.data.datasets import untuned
from gpflow_aaci.inference import compiled_steps
from gpflow_aaci.inference.profile import Profile
from gpflow_aaci.models import hyperparameters

RNG = np.random.default_rng(0)
X = RNG.uniform(-2.0, 2.0, (40, 2))
Y = np.sin(X[:, :1]) + 0.1 * RNG.standard_normal((40, 1))
BATCHES = [(X[rows], Y[rows]) for rows in (slice(15), slice(15, 30), slice(30, 37))]
OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "AugmentedNaturalGradient": lambda: AugmentedNaturalGradient(0.5),
    "AlternatingOptimizer": AlternatingOptimizer,
}


def svgp(likelihood: Any = None, kernel: Any = None) -> AugmentedSVGP:
    kernel = kernel or gpflow.kernels.Matern32()
    return AugmentedSVGP(kernel, likelihood or likelihoods.Logistic(), X[:6].copy(), num_data=40)


def labels(batch: Any) -> Any:
    return batch[0], (batch[1] > 0.0) * 1.0


def state(model: Any) -> list[Any]:
    return [variable.numpy() for variable in model.variables]


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Grows by one for each step that is compiled."""
    made: list[Any] = []
    original = compiled_steps._compiled

    def counted(*args: Any) -> Any:
        made.append(args)
        return original(*args)

    monkeypatch.setattr(compiled_steps, "_compiled", counted)
    return made


@pytest.mark.briefly("AugmentedNaturalGradient")
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_second_step_is_compiled_once_and_the_steps_are_the_same(
    name: str, compilations: list[Any]
) -> None:
    """A smaller last batch is no reason to compile again."""
    model, by_operations = svgp(), svgp()
    optimizer, other = OPTIMIZERS[name](), OPTIMIZERS[name]()
    for number, batch in enumerate(map(labels, BATCHES)):
        optimizer.minimize(model, batch)
        other.minimize(by_operations, batch, compile=False)
        assert len(compilations) == min(number, 1)
    for found, expected in zip(state(model), state(by_operations), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.briefly("AugmentedNaturalGradient")
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_model_with_data_and_iterators_compile_too(name: str, compilations: list[Any]) -> None:
    optimizer = OPTIMIZERS[name]()
    full = AugmentedVGP(labels((X, Y)), gpflow.kernels.Matern32(), likelihoods.Logistic())
    for _ in range(3):
        optimizer.minimize(full)
    assert len(compilations) == 1
    rows = tf.data.Dataset.from_tensor_slices(labels((X, Y)))
    dataset = untuned(rows.repeat().batch(10))
    model, optimizer = svgp(), OPTIMIZERS[name]()
    batches = iter(dataset)
    for _ in range(3):
        optimizer.minimize(model, batches)
    assert len(compilations) == 2
    other, again = svgp(), OPTIMIZERS[name]()
    batches = iter(dataset)
    for _ in range(3):
        again.minimize(other, batches, compile=False)
    np.testing.assert_allclose(model.q_mu, other.q_mu, rtol=1e-9, atol=1e-12)


def fix_lengthscale(model: Any, optimizer: Any) -> None:
    gpflow.set_trainable(model.kernel.lengthscales, False)


def replace_variance(model: Any, optimizer: Any) -> None:
    model.kernel.variance = gpflow.Parameter(3.0, transform=gpflow.utilities.positive())
    gpflow.set_trainable(model.kernel.variance, False)


def assign_variance(model: Any, optimizer: Any) -> None:
    model.kernel.variance.assign(3.0)


def new_mean(model: Any, optimizer: Any) -> None:
    model.mean_function = gpflow.functions.Constant(1.0)
    gpflow.set_trainable(model.mean_function, False)


def more_rows(model: Any, optimizer: Any) -> None:
    model.num_data = 400


def longer_steps(model: Any, optimizer: Any) -> None:
    if isinstance(optimizer, AugmentedNaturalGradient):
        optimizer.step_size = 0.9
    else:
        optimizer.every = 2


def slower_adam(model: Any, optimizer: Any) -> None:
    if not isinstance(optimizer, AugmentedNaturalGradient):
        optimizer.hyperparameter_optimizer.learning_rate = 1e-3
        optimizer.hyperparameter_optimizer.beta_1 = 0.1


def more_jitter(model: Any, optimizer: Any) -> None:
    gpflow.config.set_default_jitter(1e-2)


@pytest.mark.briefly("fix_lengthscale-AugmentedNaturalGradient")
@pytest.mark.by_default("slower_adam", "fix_lengthscale")
@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize(
    "change",
    [
        fix_lengthscale,
        replace_variance,
        assign_variance,
        new_mean,
        more_rows,
        longer_steps,
        slower_adam,
        more_jitter,
    ],
)
def test_what_changes_between_steps_is_seen(
    name: str, change: Callable[[Any, Any], None], compilations: list[Any]
) -> None:
    """As by steps that are not compiled, after the change and twice more."""
    jitter = gpflow.config.default_jitter()
    ends = []
    for how in (None, False):
        gpflow.config.set_default_jitter(jitter)
        model, optimizer = svgp(), OPTIMIZERS[name]()
        for number in range(5):
            if number == 2:
                change(model, optimizer)
            optimizer.minimize(model, labels(BATCHES[0]), compile=how)
        ends.append(state(model))
    assert compilations
    for found, expected in zip(*ends, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-11)


def test_a_step_size_in_a_variable_is_read_at_every_step(compilations: list[Any]) -> None:
    size = tf.Variable(0.5, dtype=tf.float64)
    model, optimizer = svgp(), AugmentedNaturalGradient(size)
    for _ in range(3):
        optimizer.minimize(model, labels(BATCHES[0]))
    size.assign(1.0)
    optimizer.minimize(model, labels(BATCHES[0]))
    assert len(compilations) == 1
    q = model.q_mu.numpy()
    AugmentedNaturalGradient(1.0).minimize(model, labels(BATCHES[0]))
    other = svgp()
    for step in (0.5, 0.5, 0.5, 1.0):
        AugmentedNaturalGradient(step).minimize(other, labels(BATCHES[0]))
    np.testing.assert_allclose(q, other.q_mu, rtol=1e-9)


BAD: dict[str, Any] = {
    "NaN in X": (np.where(np.arange(30).reshape(15, 2) == 3, np.nan, X[:15]), Y[:15] > 0.0),
    "NaN in Y": (X[:15], np.full((15, 1), np.nan)),
    "a wrong label": (X[:15], np.full((15, 1), 0.5)),
    "columns of X": (X[:15, :1], Y[:15] > 0.0),
    "columns of Y": (X[:15], np.zeros((15, 2))),
    "rows": (X[:15], np.zeros((14, 1))),
    "ranks": (X[:15, 0], np.zeros((15, 1))),
}


@pytest.mark.briefly("rows-AugmentedNaturalGradient")
@pytest.mark.by_default(
    "a wrong label-AugmentedNaturalGradient",
    "rows-AugmentedNaturalGradient",
    "NaN in Y-AlternatingOptimizer",
)
@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("bad", BAD)
def test_errors_are_those_of_a_step_that_is_not_compiled(name: str, bad: str) -> None:
    model, optimizer = svgp(), OPTIMIZERS[name]()
    for _ in range(3):
        optimizer.minimize(model, labels(BATCHES[0]))
    rows = BAD[bad][0], BAD[bad][1] * 1.0
    before = [*state(model), *(v.numpy() for v in getattr(optimizer, "variables", ()))]
    said = []
    for how in (None, False):
        with pytest.raises((ValueError, ShapeMismatchError)) as error:
            optimizer.minimize(model, rows, compile=how)
        said.append(str(error.value))
    assert said[0] == said[1]
    after = [*state(model), *(v.numpy() for v in getattr(optimizer, "variables", ()))]
    for found, expected in zip(after, before, strict=True):
        np.testing.assert_array_equal(found, expected)


class Own(gpflow.kernels.Matern32):
    """A class of a user's own, whose attributes may change unseen."""


@pytest.mark.briefly("AugmentedNaturalGradient")
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_model_of_the_user_s_own_parts_is_compiled_on_demand(
    name: str, compilations: list[Any]
) -> None:
    model, optimizer = svgp(kernel=Own()), OPTIMIZERS[name]()
    for _ in range(3):
        optimizer.minimize(model, labels(BATCHES[0]))
    assert not compilations
    for _ in range(3):
        optimizer.minimize(model, labels(BATCHES[0]), compile=True)
    assert len(compilations) == 1


def test_a_schedule_of_the_user_s_own_is_asked_at_every_step(compilations: list[Any]) -> None:
    sizes = iter([1.0, 0.5, 0.25])
    optimizer = AlternatingOptimizer(lambda step, gradient: tf.constant(next(sizes), tf.float64))
    model = svgp()
    for expected in (1.0, 0.5, 0.25):
        optimizer.minimize(model, labels(BATCHES[0]))
        np.testing.assert_allclose(optimizer.step_size, expected)
    assert not compilations


def test_compiled_steps_are_freed_with_their_model() -> None:
    optimizer, model = AugmentedNaturalGradient(), svgp()
    for _ in range(3):
        optimizer.minimize(model, labels(BATCHES[0]))
    alive = weakref.ref(model)
    del model
    gc.collect()
    assert alive() is None


def test_an_optimizer_that_has_compiled_is_copied() -> None:
    optimizer, model = AugmentedNaturalGradient(0.5), svgp()
    for _ in range(2):
        optimizer.minimize(model, labels(BATCHES[0]))
    expected = svgp()
    AugmentedNaturalGradient(0.5).minimize(expected, labels(BATCHES[0]))
    for other in (copy.deepcopy(optimizer), pickle.loads(pickle.dumps(optimizer))):
        found = svgp()
        other.minimize(found, labels(BATCHES[0]))
        np.testing.assert_array_equal(found.q_mu, expected.q_mu)


@pytest.mark.slow
def test_posteriors_follow_steps_of_both_optimizers() -> None:
    """Their caches are computed after q and hyperparameters have moved."""
    model, optimizer = svgp(), AlternatingOptimizer(0.5, tf_keras.optimizers.Adam(0.3))
    posterior = model.posterior()
    for _ in range(8):
        optimizer.minimize(model, labels(BATCHES[0]))
        np.testing.assert_allclose(posterior.predict_f(X)[0], model.predict_f(X)[0], atol=1e-10)


def test_a_parameter_that_a_likelihood_reaches_by_a_function_keeps_its_gradient() -> None:
    kernel = gpflow.kernels.Matern32(variance=0.7)
    rate = gpflow.likelihoods.Poisson(invlink=lambda f: kernel.variance * tf.exp(f))
    model = svgp(rate, kernel)
    gpflow.set_trainable(model.inducing_variable, False)
    counts = tf.constant(RNG.poisson(1.0, (40, 1)) * 1.0, tf.float64)
    variables = hyperparameters(model)
    profile = Profile(model, variables)
    rows = as_data(model.expected_data, (X, counts))
    q = Gaussian(tf.zeros([6, 1], tf.float64), tf.eye(6, batch_shape=[1], dtype=tf.float64))
    found = profile.evaluate(rows, q, 1e-10, 100).gradient
    for number, variable in enumerate(variables):
        ends = []
        for step in (1e-4, -2e-4):
            variable.assign_add(step)
            ends.append(profile.evaluate(rows, q, 1e-10, 100).objective)
        variable.assign_add(1e-4)
        np.testing.assert_allclose(found[number], (ends[0] - ends[1]) / 2e-4, rtol=1e-4)


@pytest.mark.briefly("hidden learning rate")
@pytest.mark.parametrize("kind", ["variable", "masked", "objects", "hidden learning rate"])
def test_what_a_graph_could_not_see_is_left_to_steps_that_are_not_compiled(
    kind: str, compilations: list[Any]
) -> None:
    model, rate = svgp(), {"now": 0.3}
    if kind == "hidden learning rate":
        adam = tf_keras.optimizers.Adam(_Hidden(rate))
        optimizer = AlternatingOptimizer(0.5, adam)
    else:
        optimizer = AlternatingOptimizer(tf.Variable(0.5, dtype=tf.float64))
    for _ in range(3):
        optimizer.minimize(model, labels(BATCHES[0]))
    assert bool(compilations) == (kind != "hidden learning rate")
    rows = labels(BATCHES[0])
    if kind == "variable":
        optimizer.schedule.step_size.assign(0.125)
        optimizer.minimize(model, rows)
        np.testing.assert_allclose(optimizer.step_size, 0.125)
    elif kind == "masked":
        with pytest.raises(ValueError, match="no masked values"):
            optimizer.minimize(model, (np.ma.masked_array(rows[0], rows[0] > 1.0), rows[1]))
    elif kind == "objects":
        optimizer.minimize(model, (rows[0].astype(object), rows[1]))
    else:
        rate["now"] = 0.0
        before = model.kernel.variance.numpy()
        for _ in range(2):
            adam.beta_1 = 0.0
            optimizer.minimize(model, rows)
        np.testing.assert_array_equal(model.kernel.variance, before)


class _Hidden(tf_keras.optimizers.schedules.LearningRateSchedule):
    """A schedule whose state no graph can follow."""

    def __init__(self, rate: dict[str, float]) -> None:
        self.rate = rate

    def __call__(self, step: Any) -> Any:
        return tf.constant(self.rate["now"])

    def get_config(self) -> dict[str, Any]:
        return {}


@pytest.mark.slow
@pytest.mark.by_default("more_rows")
@pytest.mark.parametrize("change", [more_rows, longer_steps, new_mean])
def test_even_on_demand_what_can_be_seen_is_seen(change: Callable[[Any, Any], None]) -> None:
    ends = []
    for how in (True, False):
        model = svgp(kernel=Own())
        optimizer = AlternatingOptimizer(lambda step, gradient: tf.constant(0.5, tf.float64))
        for number in range(4):
            if number == 2:
                change(model, optimizer)
            optimizer.minimize(model, labels(BATCHES[0]), compile=how)
        ends.append(state(model))
    for found, expected in zip(*ends, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-11)


def test_what_changes_before_the_second_step_is_in_the_compiled_one(
    compilations: list[Any],
) -> None:
    model, by_operations = svgp(), svgp()
    optimizer, other = AugmentedNaturalGradient(0.5), AugmentedNaturalGradient(0.5)
    for step, size in enumerate((0.5, 0.1, 0.1)):
        optimizer.step_size = other.step_size = size
        batch = labels(BATCHES[step])
        optimizer.minimize(model, batch)
        other.minimize(by_operations, batch, compile=False)
    assert len(compilations) == 1
    for one, two in zip(state(model), state(by_operations), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-9, atol=1e-12)


def test_a_step_that_may_not_be_compiled_leaves_the_compiled_one(compilations: list[Any]) -> None:
    """The kernel's class is the user's own, so that only ``compile=True`` compiles."""
    model, optimizer = svgp(kernel=Own()), AugmentedNaturalGradient(0.5)
    for wanted in (True, None, True, None, True):
        optimizer.minimize(model, labels(BATCHES[0]), compile=wanted)
    assert len(compilations) == 1
