"""AugmentedNaturalGradient: data, compilation, step sizes, failing steps and cached posteriors."""

from collections.abc import Callable, Iterator
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.kernels import Matern32, SquaredExponential
from gpflow.posteriors import PrecomputeCacheType

from gpflow_aaci import (
    AlternatingOptimizer,
    AugmentedNaturalGradient,
    AugmentedSVGP,
    AugmentedVGP,
    likelihoods,
)
from gpflow_aaci.algebra.gaussian import Gaussian
from gpflow_aaci.data.datasets import untuned

AugmentedModel = AugmentedSVGP | AugmentedVGP
Batch = tuple[AnyNDArray, AnyNDArray]

N, M, B = 24, 6, 8

# Eagerly, a failing step raises the package's error, or TensorFlow's for a failed Cholesky.
FAILURES = (ValueError, tf.errors.InvalidArgumentError)


@pytest.fixture
def data(rng: np.random.Generator) -> Batch:
    X = rng.uniform(-2.0, 2.0, size=(N, 2))
    return X, np.sin(2.0 * X[:, :1]) + 0.3 * rng.normal(size=(N, 1))


def sparse(data: Batch, **kwargs: Any) -> AugmentedSVGP:
    model = AugmentedSVGP(
        Matern32(), likelihoods.StudentT(scale=0.5), data[0][:M].copy(), num_data=N, **kwargs
    )
    model.q_mu.assign(np.linspace(-1.0, 1.0, M)[:, None])
    return model


def q_of(model: AugmentedModel) -> tuple[AnyNDArray, AnyNDArray]:
    return model.q_mu.numpy().copy(), model.q_sqrt.numpy().copy()


def assert_same_q(model: AugmentedModel, q: tuple[AnyNDArray, AnyNDArray]) -> None:
    """The bits are the same, and NaN equals NaN."""
    for after, before in zip(q_of(model), q, strict=True):
        np.testing.assert_array_equal(after, before)


# ---- data and compilation ----


def minibatches(data: Batch) -> Any:
    """A tf.data iterator over batches, always the same."""
    return iter(untuned(tf.data.Dataset.from_tensor_slices(data).repeat().batch(B)))


STEP_SIZES = [1.0, 0.5, 0.25] * 5


def eager_path(data: Batch) -> AugmentedSVGP:
    """q after many steps on tuples of arrays, with a new optimizer for each step size."""
    model = sparse(data)
    for i, step_size in enumerate(STEP_SIZES):
        rows = np.arange(i * B, (i + 1) * B) % N
        AugmentedNaturalGradient(step_size).minimize(model, (data[0][rows], data[1][rows]))
    return model


@pytest.mark.by_default("iterator as argument-compiled")
@pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "eager"])
@pytest.mark.parametrize("source", ["tuple", "iterator in a closure", "iterator as argument"])
def test_minibatch_steps_are_the_same_from_tuples_and_iterators(
    data: Batch, source: str, compiled: bool
) -> None:
    """A compiled step is traced once, although its step size, a variable, changes."""
    model, batches, step_size = sparse(data), minibatches(data), tf.Variable(1.0, dtype=tf.float64)
    optimizer = AugmentedNaturalGradient(step_size)
    traces = 0

    def step(argument: Any) -> None:
        nonlocal traces
        traces += 1
        optimizer.minimize(model, batches if source == "iterator in a closure" else argument)

    run = tf.function(step) if compiled else step
    for size in STEP_SIZES:
        step_size.assign(size)
        argument = {"tuple": next(batches) if source == "tuple" else None}.get(source, batches)
        run(tf.constant(0.0) if source == "iterator in a closure" else argument)
    assert traces == (1 if compiled else len(STEP_SIZES))
    for ours, expected in zip(q_of(model), q_of(eager_path(data)), strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-10, atol=1e-12)


def test_a_python_generator_is_an_iterator_of_batches(data: Batch) -> None:
    def batches() -> Iterator[Batch]:
        for i in range(2):
            yield data[0][i::2], data[1][i::2]

    drawn, given = sparse(data), sparse(data)
    source = batches()
    for i in range(2):
        AugmentedNaturalGradient(0.5).minimize(drawn, source)
        AugmentedNaturalGradient(0.5).minimize(given, (data[0][i::2], data[1][i::2]))
    assert_same_q(drawn, q_of(given))
    with pytest.raises(StopIteration):
        AugmentedNaturalGradient(0.5).minimize(drawn, source)


def test_vgps_compiled_step_is_its_eager_step_traced_once(data: Batch) -> None:
    compiled, eager = (AugmentedVGP(data, Matern32(), likelihoods.Laplace()) for _ in range(2))
    optimizer, traces = AugmentedNaturalGradient(0.7), 0

    @tf.function
    def step() -> None:
        nonlocal traces
        traces += 1
        optimizer.minimize(compiled)

    for _ in range(5):
        step()
        optimizer.minimize(eager)
    assert traces == 1
    for ours, expected in zip(q_of(compiled), q_of(eager), strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-9, atol=1e-12)


def test_a_step_moves_q_and_nothing_else(data: Batch) -> None:
    """Hyperparameters stay, so that a second optimizer may train them."""
    model = sparse(data)
    own = {id(p.unconstrained_variable) for p in (model.q_mu, model.q_sqrt)}
    before = {id(v): v.numpy().copy() for v in model.variables}
    AugmentedNaturalGradient(0.5).minimize(model, data)
    for variable in model.variables:
        moved = not np.array_equal(variable.numpy(), before[id(variable)])
        assert moved == (id(variable) in own), variable.name


# ---- step sizes ----


@pytest.mark.parametrize("step_size", [0.0, -0.1, 1.0001, 7, np.nan, np.inf])
def test_a_number_outside_the_unit_interval_is_refused(step_size: float) -> None:
    with pytest.raises(ValueError, match=r"step_size.*\(0, 1\].*" + str(step_size)):
        AugmentedNaturalGradient(step_size)


@pytest.mark.briefly("nan-constant-eager", "nan-Variable-eager")
@pytest.mark.by_default("nan")
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("kind", [tf.constant, tf.Variable])
@pytest.mark.parametrize("step_size", [0.0, 1.5, np.nan])
def test_a_tensor_outside_the_unit_interval_is_refused(
    data: Batch, kind: Callable[..., Any], step_size: float, compiled: bool
) -> None:
    """It is refused at the step at the latest, and q does not change."""
    model = sparse(data)
    before = q_of(model)

    def step() -> None:
        AugmentedNaturalGradient(value).minimize(model, data)

    value = kind(step_size, dtype=tf.float64)
    with pytest.raises(FAILURES, match="step_size"):
        (tf.function(step, autograph=False) if compiled else step)()
    assert_same_q(model, before)


@pytest.mark.briefly("step_size3")
@pytest.mark.parametrize(
    "step_size", [1, np.float32(0.5), tf.constant(0.5), tf.Variable(0.5, dtype=tf.float32)]
)
def test_step_sizes_of_any_numeric_type_are_taken(data: Batch, step_size: Any) -> None:
    ours, expected = sparse(data), sparse(data)
    AugmentedNaturalGradient(step_size).minimize(ours, data)
    AugmentedNaturalGradient(float(step_size)).minimize(expected, data)
    assert_same_q(ours, q_of(expected))


# ---- failure ----


class NegativeDefinite(Matern32):
    """A function that is not positive definite, in the place of a kernel."""

    def K(self, X: Any, X2: Any = None) -> tf.Tensor:
        return -super().K(X, X2)


class NanMean(gpflow.functions.MeanFunction):
    def __call__(self, X: Any) -> tf.Tensor:
        return tf.fill([tf.shape(X)[0], 1], tf.constant(np.nan, tf.float64))


def twins(data: Batch) -> AnyNDArray:
    """Inducing points, two of which are equal."""
    return np.concatenate([data[0][:1], data[0][: M - 1]])


def singular_K(data: Batch) -> AugmentedModel:
    gpflow.config.set_default_jitter(0.0)
    return AugmentedSVGP(SquaredExponential(), likelihoods.Laplace(), twins(data), num_data=N)


def singular_K_vgp(data: Batch) -> AugmentedModel:
    gpflow.config.set_default_jitter(0.0)
    X = np.concatenate([data[0][:1], data[0][:-1]])
    return AugmentedVGP((X, data[1]), SquaredExponential(), likelihoods.Laplace())


def negative_K(data: Batch) -> AugmentedModel:
    return AugmentedSVGP(NegativeDefinite(), likelihoods.StudentT(), data[0][:M], num_data=N)


def nan_lengthscale(data: Batch) -> AugmentedModel:
    model = sparse(data)
    model.kernel.lengthscales.unconstrained_variable.assign(np.nan)
    return model


def nan_scale(data: Batch) -> AugmentedModel:
    model = sparse(data)
    model.likelihood.scale.unconstrained_variable.assign(np.nan)
    return model


def nan_mean_function(data: Batch) -> AugmentedModel:
    """
    A mean function that returns NaN, which makes only q_mu NaN.

    The precision of Gaussian sites does not depend on f, so q_sqrt stays finite.
    """
    return AugmentedSVGP(Matern32(), likelihoods.Gaussian(), data[0][:M], mean_function=NanMean())


def nan_q(data: Batch) -> AugmentedModel:
    model = sparse(data)
    model.q_mu.unconstrained_variable.assign(np.full((M, 1), np.nan))
    return model


BROKEN = [
    singular_K,
    singular_K_vgp,
    negative_K,
    nan_lengthscale,
    nan_scale,
    nan_mean_function,
    nan_q,
]


def run_step(model: AugmentedModel, data: Batch, step_size: float, compiled: bool) -> None:
    args = () if isinstance(model, AugmentedVGP) else (data,)

    def step() -> None:
        AugmentedNaturalGradient(step_size).minimize(model, *args)

    # Without AutoGraph, tracing takes half the time.
    (tf.function(step, autograph=False) if compiled else step)()


@pytest.mark.briefly("singular_K-whitened-eager")
@pytest.mark.by_default("singular_K", "nan_scale")
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("whiten", [True, False], ids=["whitened", "unwhitened"])
@pytest.mark.parametrize("make", BROKEN)
def test_a_failing_step_raises_and_leaves_q(
    data: Batch, make: Callable[[Batch], AugmentedModel], whiten: bool, compiled: bool
) -> None:
    """The bits of q_mu and q_sqrt do not change, and the message says what failed."""
    model = make(data)
    if isinstance(model, AugmentedSVGP):
        model.whiten = whiten
    before = q_of(model)
    with pytest.raises(FAILURES, match=r"Cholesky|must be finite"):
        run_step(model, data, 0.5, compiled)
    assert_same_q(model, before)


@pytest.mark.briefly("q_mu-nan-eager")
@pytest.mark.by_default("nan")
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("which", ["q_mu", "q_sqrt"])
def test_one_non_finite_part_of_q_stops_the_other_too(
    data: Batch, which: str, value: float, compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bad entry of q_sqrt is made up, as arithmetic seldom makes q_sqrt alone non-finite."""

    def spoilt(q_mu: tf.Tensor, q_sqrt: tf.Tensor, *_: Any) -> Gaussian:
        bad_mu, bad_sqrt = np.zeros((M, 1)), np.zeros((1, M, M))
        bad_mu[2, 0] = value if which == "q_mu" else 0.0
        bad_sqrt[0, 3, 1] = value if which == "q_sqrt" else 0.0
        return Gaussian(2.0 * q_mu + bad_mu, 2.0 * q_sqrt + bad_sqrt)

    monkeypatch.setattr("gpflow_aaci.inference.optimizers.damped", spoilt)
    model = sparse(data)
    before = q_of(model)
    with pytest.raises(FAILURES, match=rf"{which} must be finite.*left as it was.*default_jitter"):
        run_step(model, data, 0.5, compiled)
    assert_same_q(model, before)


def test_training_goes_on_after_a_failed_step(data: Batch) -> None:
    """Once its cause is repaired, the model steps as if the failure had not happened."""
    model, untouched = sparse(data), sparse(data)
    lengthscale = model.kernel.lengthscales.unconstrained_variable
    value = lengthscale.numpy()
    lengthscale.assign(np.nan)
    with pytest.raises(FAILURES):
        AugmentedNaturalGradient().minimize(model, data)
    lengthscale.assign(value)
    AugmentedNaturalGradient().minimize(model, data)
    AugmentedNaturalGradient().minimize(untouched, data)
    assert_same_q(model, q_of(untouched))


# ---- cached posteriors ----


def assert_agrees(posterior: Any, model: AugmentedModel) -> None:
    X_new = np.array([[0.3, -0.2], [1.4, 1.0]])
    for cached, fresh in zip(posterior.predict_f(X_new), model.predict_f(X_new), strict=True):
        np.testing.assert_allclose(cached, fresh, rtol=1e-6, atol=1e-8)


def any_model(kind: str, data: Batch) -> tuple[AugmentedModel, tuple[Batch, ...]]:
    if kind == "AugmentedVGP":
        return AugmentedVGP(data, Matern32(), likelihoods.StudentT(0.5)), ()
    return sparse(data), (data,)


either_model = pytest.mark.parametrize("kind", ["AugmentedSVGP", "AugmentedVGP"])


@pytest.mark.briefly("PrecomputeCacheType.TENSOR-AugmentedVGP")
@either_model
@pytest.mark.parametrize("cache", [PrecomputeCacheType.TENSOR, PrecomputeCacheType.VARIABLE])
def test_cached_posteriors_follow_an_eager_step(
    data: Batch, kind: str, cache: PrecomputeCacheType
) -> None:
    """Both posteriors follow, and the step is large enough to notice."""
    model, args = any_model(kind, data)
    posteriors = [model.posterior(cache) for _ in range(2)]
    stale = posteriors[0].predict_f(data[0])[0].numpy()
    AugmentedNaturalGradient().minimize(model, *args)
    for posterior in posteriors:
        assert_agrees(posterior, model)
    assert np.max(np.abs(posteriors[0].predict_f(data[0])[0] - stale)) > 0.1


@pytest.mark.briefly("PrecomputeCacheType.TENSOR-AugmentedVGP")
@pytest.mark.by_default(
    "PrecomputeCacheType.VARIABLE-AugmentedSVGP", "PrecomputeCacheType.TENSOR-AugmentedVGP"
)
@either_model
@pytest.mark.parametrize("cache", [PrecomputeCacheType.TENSOR, PrecomputeCacheType.VARIABLE])
def test_cached_posteriors_follow_compiled_steps(
    data: Batch, kind: str, cache: PrecomputeCacheType
) -> None:
    """The function is traced after the posteriors were made."""
    model, args = any_model(kind, data)
    posterior = model.posterior(cache)
    step = tf.function(lambda: AugmentedNaturalGradient(0.5).minimize(model, *args))
    for _ in range(2):
        step()
        assert_agrees(posterior, model)


def test_a_posterior_without_cache_does_not_disturb_a_step(data: Batch) -> None:
    """It may never have had a cache, or its user may have cleared it."""
    model = sparse(data)
    never = model.posterior(PrecomputeCacheType.NOCACHE)
    cleared = model.posterior(PrecomputeCacheType.TENSOR)
    cleared.update_cache(PrecomputeCacheType.NOCACHE)
    AugmentedNaturalGradient().minimize(model, data)
    assert never.cache is None
    assert cleared.cache is None


def test_a_failed_step_leaves_cached_posteriors(data: Batch) -> None:
    model = sparse(data)
    posterior = model.posterior()
    before = posterior.predict_f(data[0])[0].numpy()
    bad = data[0], np.full_like(data[1], np.nan)
    with pytest.raises(FAILURES):
        AugmentedNaturalGradient().minimize(model, bad)
    np.testing.assert_array_equal(posterior.predict_f(data[0])[0], before)


def test_posteriors_of_another_model_stay_as_they_are(data: Batch) -> None:
    """This includes copies: caches belong to one model."""
    model = sparse(data)
    copy = gpflow.utilities.deepcopy(model)
    posterior = copy.posterior()
    before = posterior.predict_f(data[0])[0].numpy()
    AugmentedNaturalGradient().minimize(model, data)
    np.testing.assert_array_equal(posterior.predict_f(data[0])[0], before)


@pytest.mark.slow
def test_dropped_posteriors_are_let_go(data: Batch) -> None:
    """The model does not keep a cache alive that its user has dropped."""
    import gc
    import weakref

    model = sparse(data)
    reference = weakref.ref(model.posterior())
    AugmentedNaturalGradient().minimize(model, data)
    gc.collect()
    assert reference() is None


@pytest.mark.slow
def test_posteriors_made_after_tracing_follow_too(data: Batch) -> None:
    model = sparse(data)
    step = tf.function(lambda: AugmentedNaturalGradient(0.5).minimize(model, data))
    step()
    posterior = model.posterior()
    step()
    assert_agrees(posterior, model)


def test_wrong_kinds_of_arguments_are_named(data: Batch) -> None:
    model, step = sparse(data), AugmentedNaturalGradient()
    dataset = tf.data.Dataset.from_tensor_slices(data).batch(4)
    for optimizer, wrong in ((step, None), (step, "rows"), (AlternatingOptimizer(), dataset)):
        with pytest.raises(ValueError, match="data must be a tuple"):
            optimizer.minimize(model, wrong)
    vgp = AugmentedVGP(data, Matern32(), model.likelihood)
    with pytest.raises(ValueError, match="data must not be given"):
        step.minimize(vgp, data)
    with pytest.raises(ValueError, match="model must be an AugmentedSVGP"):
        step.minimize(model.training_loss_closure(data), data)
