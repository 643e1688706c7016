"""AlternatingOptimizer against its two halves, and the step sizes that it accepts."""

import copy
import itertools
from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import AnyNDArray
from gpflow.inducing_variables import (
    InducingPoints,
    SeparateIndependentInducingVariables,
    SharedIndependentInducingVariables,
)
from gpflow.keras import tf_keras
from gpflow.kernels import (
    LinearCoregionalization,
    Matern32,
    SeparateIndependent,
    SharedIndependent,
)

from gpflow_aaci import (
    AlternatingOptimizer,
    AugmentedNaturalGradient,
    AugmentedSVGP,
    AugmentedVGP,
    likelihoods,
)
from gpflow_aaci.algebra.projection import marginals
from gpflow_aaci.augmentation import aux_posterior_c, expected_auglik_potential_and_precision
from gpflow_aaci.data import as_data
from gpflow_aaci.data.datasets import untuned
from gpflow_aaci.inference import AdaptiveStepSize, RobbinsMonro
from gpflow_aaci.inference.alternating import _noise
from gpflow_aaci.inference.schedules import NaturalGradient
from gpflow_aaci.models import AugmentedModel

Batch = tuple[AnyNDArray, AnyNDArray]
N, M = 30, 7


@pytest.fixture
def data(rng: np.random.Generator) -> Batch:
    X = rng.uniform(-2.0, 2.0, size=(N, 2))
    return X, np.sin(2.0 * X @ np.ones((2, 2)) + [0.0, 1.0]) + 0.3 * rng.normal(size=(N, 2))


def ard() -> gpflow.kernels.Kernel:
    return gpflow.kernels.SquaredExponential(lengthscales=[0.8, 1.2])


def svgp(data: Batch, likelihood: Any = None, **kwargs: Any) -> AugmentedSVGP:
    kernel = ard()
    kernel.variance.prior = tfp.distributions.Gamma(np.float64(2.0), np.float64(3.0))
    model = AugmentedSVGP(
        kwargs.pop("kernel", kernel),
        likelihood or likelihoods.StudentT(scale=0.5, df=4.0),
        kwargs.pop("Z", data[0][:M].copy()),
        num_latent_gps=data[1].shape[1],
        num_data=4 * N,
        **kwargs,
    )
    model.q_mu.assign(np.random.default_rng(3).normal(size=model.q_mu.shape))
    return model


def vgp(data: Batch) -> AugmentedVGP:
    return AugmentedVGP(data, ard(), likelihoods.Laplace(scale=0.4))


def separate(data: Batch) -> AugmentedSVGP:
    kernel = gpflow.kernels.SeparateIndependent([ard(), gpflow.kernels.Matern32()])
    points = gpflow.inducing_variables.InducingPoints(data[0][:M].copy())
    shared = gpflow.inducing_variables.SharedIndependentInducingVariables(points)
    return svgp(data, kernel=kernel, Z=shared)


MODELS: dict[str, Callable[[Batch], AugmentedModel]] = {
    "Student-t": svgp,
    "Laplace": lambda data: svgp(data, likelihoods.Laplace(scale=0.4)),
    "Matern32": lambda data: svgp(data, likelihoods.Matern32(scale=0.5)),
    "unwhitened": lambda data: svgp(data, whiten=False),
    "mean function": lambda data: svgp(
        data, mean_function=gpflow.functions.Linear(np.ones((2, 2)), np.ones(2))
    ),
    "separate kernels": separate,
    "VGP": vgp,
}


def arguments(model: AugmentedModel, data: Batch) -> tuple[Any, ...]:
    return () if isinstance(model, AugmentedVGP) else (data,)


@pytest.mark.briefly("0.3-unwhitened")
@pytest.mark.by_default("0.3")
@pytest.mark.by_default("Student-t", "Laplace", "unwhitened", "mean function", "VGP")
@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize("step_size", [1.0, 0.3])
def test_a_step_is_the_closed_form_step_and_then_the_gradient_by_autodiff(
    data: Batch, make: Callable[[Batch], AugmentedModel], step_size: float
) -> None:
    """One step of SGD, divided by the learning rate, shows the gradient that SGD was given."""
    model, halves = make(data), make(data)
    args = arguments(model, data)
    rate = 1e-5
    sgd = tf_keras.optimizers.SGD(rate)
    before = {name: p.unconstrained_variable.numpy() for name, p in parameters(model).items()}
    AlternatingOptimizer(step_size, sgd).minimize(model, *args)

    AugmentedNaturalGradient(step_size).minimize(halves, *args)
    for name in ("q_mu", "q_sqrt"):
        ours, theirs = getattr(model, name).numpy(), getattr(halves, name).numpy()
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-11)
    with tf.GradientTape() as tape:
        objective = halves.augmented_elbo(*args) + halves.log_prior_density()
    theirs = parameters(halves)
    expected = tape.gradient(objective, [p.unconstrained_variable for p in theirs.values()])
    for (name, parameter), gradient in zip(parameters(model).items(), expected, strict=True):
        moved = (parameter.unconstrained_variable.numpy() - before[name]) / rate
        np.testing.assert_allclose(moved, gradient, rtol=1e-6, atol=1e-6, err_msg=name)


POINTS: dict[str, Callable[[AnyNDArray], Any]] = {
    "shared points": lambda X: SharedIndependentInducingVariables(InducingPoints(X[:M].copy())),
    "separate points": lambda X: SeparateIndependentInducingVariables(
        [InducingPoints(X[:M].copy()), InducingPoints(X[-M:].copy())]
    ),
}
KERNELS: dict[str, Callable[[], Any]] = {
    "SharedIndependent": lambda: SharedIndependent(ard(), 2),
    "SeparateIndependent": lambda: SeparateIndependent([ard(), Matern32()]),
    "LinearCoregionalization": lambda: LinearCoregionalization(
        [ard(), Matern32()], W=[[1.0, 0.4], [-0.3, 0.8]]
    ),
}


@pytest.mark.briefly("SharedIndependent-separate points")
@pytest.mark.by_default("SharedIndependent", "LinearCoregionalization")
@pytest.mark.parametrize("points", POINTS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_the_gradient_is_autodiffs_whatever_the_latent_gps_share(
    data: Batch, kernel: str, points: str
) -> None:
    """K_ZZ, K_ZX, k(x, x) and the mean function may each be shared by all latent GPs or not."""
    constants = [1.0] if kernel == "SharedIndependent" else [0.3, -0.2]
    mean = gpflow.functions.Constant(constants)
    model, halves = (
        svgp(data, kernel=KERNELS[kernel](), Z=POINTS[points](data[0]), mean_function=mean)
        for mean in (mean, copy.deepcopy(mean))
    )
    before = {name: p.unconstrained_variable.numpy() for name, p in parameters(model).items()}
    AlternatingOptimizer(0.5, tf_keras.optimizers.SGD(1.0)).minimize(model, data)
    AugmentedNaturalGradient(0.5).minimize(halves, data)
    theirs = parameters(halves)
    with tf.GradientTape() as tape:
        loss = halves.training_loss(data)
    expected = tape.gradient(loss, [p.unconstrained_variable for p in theirs.values()])
    for (name, parameter), gradient in zip(parameters(model).items(), expected, strict=True):
        moved = before[name] - parameter.unconstrained_variable.numpy()
        scale = 1.0 + np.abs(tf.convert_to_tensor(gradient)).max()
        np.testing.assert_allclose(moved, gradient, atol=1e-8 * scale, err_msg=name)


def parameters(model: AugmentedModel) -> dict[str, gpflow.Parameter]:
    """All parameters except q's, with inducing points and the likelihood's parameters."""
    everything = gpflow.utilities.parameter_dict(model)
    others = {name: p for name, p in everything.items() if name not in (".q_mu", ".q_sqrt")}
    return {name: p for name, p in others.items() if p.trainable}


@pytest.mark.slow
def test_only_what_is_trainable_moves_whether_q_is_or_not(data: Batch) -> None:
    ends = []
    for q_trainable in (True, False):
        model = svgp(data)
        gpflow.set_trainable(model.inducing_variable, False)
        gpflow.set_trainable(model.likelihood.df, False)
        gpflow.set_trainable(model.q_mu, q_trainable)
        gpflow.set_trainable(model.q_sqrt, q_trainable)
        optimizer = AlternatingOptimizer(0.5)
        for _ in range(3):
            optimizer.minimize(model, data)
        assert model.likelihood.df.numpy() == 4.0
        np.testing.assert_array_equal(model.inducing_variable.Z.numpy(), data[0][:M])
        assert model.likelihood.scale.numpy() != 0.5
        ends.append([v.numpy() for v in model.variables])
    for a, b in zip(*ends, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.slow
@pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "eager"])
def test_every_third_step_moves_the_hyperparameters(data: Batch, compiled: bool) -> None:
    model, optimizer = svgp(data), AlternatingOptimizer(0.5, every=3)
    step: Callable[[], None] = lambda: optimizer.minimize(model, data)  # noqa: E731
    if compiled:
        step = tf.function(step, autograph=False)
    variances, q = [model.kernel.variance.numpy()], [model.q_mu.numpy()]
    for _ in range(7):
        step()
        variances.append(model.kernel.variance.numpy())
        q.append(model.q_mu.numpy())
    assert [bool(a != b) for a, b in itertools.pairwise(variances)] == [
        *[True, False, False] * 2,
        True,
    ]
    assert all(np.any(a != b) for a, b in itertools.pairwise(q))


@pytest.mark.slow
def test_a_compiled_step_is_not_traced_again_and_walks_the_iterator(data: Batch) -> None:
    batches = iter(untuned(tf.data.Dataset.from_tensor_slices(data).repeat().batch(10)))
    model, optimizer = svgp(data), AlternatingOptimizer()
    by_hand, other, traces = svgp(data), AlternatingOptimizer(), 0
    step = tf.function(lambda: optimizer.minimize(model, batches), autograph=False)
    for i in range(9):
        step()
        traces = traces or step.experimental_get_tracing_count()
        rows = np.arange(10 * i, 10 * i + 10) % N
        other.minimize(by_hand, (data[0][rows], data[1][rows]))
    assert step.experimental_get_tracing_count() == traces
    assert int(optimizer.step) == 9
    np.testing.assert_allclose(model.q_mu, by_hand.q_mu, rtol=1e-9)
    np.testing.assert_allclose(model.kernel.variance, by_hand.kernel.variance, rtol=1e-9)


def test_a_failed_step_leaves_model_and_optimizer_as_they_were(data: Batch) -> None:
    model, optimizer = svgp(data), AlternatingOptimizer()
    optimizer.minimize(model, data)
    variables = [*model.variables, *optimizer.variables]
    variables += optimizer.hyperparameter_optimizer.variables
    before = [v.numpy() for v in variables]
    poisoned = data[0].copy(), data[1].copy()
    poisoned[1][4, 1] = np.nan
    with pytest.raises(ValueError, match="Y"):
        optimizer.minimize(model, poisoned)
    good = model.kernel.variance.numpy()
    model.kernel.variance.unconstrained_variable.assign(np.nan)
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError)):
        optimizer.minimize(model, data)
    model.kernel.variance.assign(good)
    for variable, value in zip(variables, before, strict=True):
        np.testing.assert_allclose(variable.numpy(), value, rtol=1e-15)


@pytest.mark.replicate
def test_its_fixed_point_is_the_optimum(data: Batch) -> None:
    """Alternating steps and L-BFGS on all parameters converge to the same bound."""
    first = (data[0], data[1][:, :1])
    rate = tf_keras.optimizers.schedules.ExponentialDecay(0.1, 100, 0.7)
    models = [vgp(first), vgp(first)]
    optimizer = AlternatingOptimizer(hyperparameter_optimizer=tf_keras.optimizers.Adam(rate))
    step = tf.function(lambda: optimizer.minimize(models[0]), autograph=False)
    for _ in range(1000):
        step()
    gpflow.optimizers.Scipy().minimize(
        models[1].training_loss, models[1].trainable_variables, options={"maxiter": 3_000}
    )
    assert float(optimizer.step_size) == 1.0
    np.testing.assert_allclose(models[0].augmented_elbo(), models[1].augmented_elbo(), atol=1e-3)


# ---- step sizes ----


def gradient(square: float, noise: float) -> NaturalGradient:
    return NaturalGradient(*(tf.constant(v, tf.float64) for v in (square, noise)))


def test_robbins_monro_is_the_papers() -> None:
    schedule = RobbinsMonro()
    steps = [float(schedule(tf.constant(t, tf.int64), gradient(1.0, 1.0))) for t in (0, 156, 9900)]
    np.testing.assert_allclose(steps, [100**-0.51, 256**-0.51, 10_000**-0.51], rtol=1e-12)


def test_adaptive_steps_are_long_without_noise_and_the_papers_where_it_is_all() -> None:
    quiet, loud = AdaptiveStepSize(), AdaptiveStepSize()
    for t in range(50):
        step = tf.constant(t, tf.int64)
        assert float(quiet(step, gradient(1.0 / (t + 1), 0.0))) == 1.0
        np.testing.assert_allclose(
            float(loud(step, gradient(1.0, 0.8))), (t + 100.0) ** -0.51, rtol=1e-12
        )


def test_adaptive_steps_forget_the_beginning() -> None:
    schedule = AdaptiveStepSize()
    sizes = [
        float(schedule(tf.constant(t, tf.int64), gradient(100.0 if t < 3 else 1.0, 1.0)))
        for t in range(200)
    ]
    assert sizes[0] == pytest.approx(0.97)
    assert sizes[-1] == pytest.approx(299.0**-0.51)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_gradient_that_is_not_finite_leaves_the_averages_as_they_were(bad: float) -> None:
    disturbed, undisturbed = AdaptiveStepSize(), AdaptiveStepSize()
    for t in range(5):
        step = tf.constant(t, tf.int64)
        disturbed(step, gradient(bad, 1.0))
        disturbed(step, gradient(1.0, bad))
        sizes = [float(each(step, gradient(1.0, 0.1))) for each in (disturbed, undisturbed)]
        assert sizes[0] == sizes[1] > 0.5


@pytest.mark.slow
def test_the_noise_is_the_variance_of_the_optimum_over_batches(data: Batch) -> None:
    """The mean of the noise estimate is tr Var λ̂₁ over batches drawn without replacement."""
    model, rng, size = svgp(data), np.random.default_rng(1), 10
    model.num_data = N

    @tf.function(autograph=False)
    def estimate(X: tf.Tensor, Y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        rows = as_data(model.expected_data, (X, Y))
        X, Y = rows.rows
        projection = model.project(X)
        Fmu, Fvar = marginals(projection, *model.whitened_q(projection.chol))
        c = aux_posterior_c(model.likelihood, Fmu, Fvar, Y)
        potential, _ = expected_auglik_potential_and_precision(model.likelihood, c, Y)
        target = rows.scale * tf.einsum("lmn,np->mp", projection.A, potential)
        squares = tf.square(tf.transpose(potential)) * tf.reduce_sum(tf.square(projection.A), -2)
        return target, _noise(*rows.total([tf.reduce_sum(squares)]), target, rows)

    draws = [rng.permutation(N)[:size] for _ in range(3000)]
    results = [estimate(*(tf.constant(d[rows]) for d in data)) for rows in draws]
    targets, noises = zip(*results, strict=True)
    variance = np.var(targets, axis=0, ddof=1).sum()
    assert np.mean(noises) == pytest.approx(variance, rel=0.05)


@pytest.mark.parametrize("step_size", [0.0, 1.5, -0.1, np.nan, "fast", [0.1, 0.2]])
def test_a_step_size_out_of_range_is_refused(step_size: Any) -> None:
    with pytest.raises(ValueError, match=r"step_size must be a number in \(0, 1\]"):
        AlternatingOptimizer(step_size)


def test_a_schedule_out_of_range_is_refused_when_it_says_so(data: Batch) -> None:
    model = svgp(data)
    q_mu = model.q_mu.numpy()
    too_long = AlternatingOptimizer(lambda step, gradient: tf.constant(1.2, tf.float64))
    with pytest.raises(ValueError, match=r"step_size must be in \(0, 1\].*1\.2"):
        too_long.minimize(model, data)
    np.testing.assert_array_equal(model.q_mu, q_mu)


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (lambda: RobbinsMonro(exponent=0.5), "exponent"),
        (lambda: RobbinsMonro(exponent=1.1), "exponent"),
        (lambda: RobbinsMonro(offset=0.0), "offset"),
        (lambda: AlternatingOptimizer(every=0), "every"),
        (lambda: AlternatingOptimizer(every=1.5), "every"),
    ],
)
def test_bad_arguments_are_named(make: Callable[[], Any], names: str) -> None:
    with pytest.raises(ValueError, match=names):
        make()
