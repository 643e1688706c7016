"""Functions drawn from the posterior, against predict_f and Gaussian process regression."""

from collections.abc import Callable
from typing import Any

import arviz
import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.inducing_variables import (
    InducingPatches,
    SeparateIndependentInducingVariables,
)
from gpflow.kernels import (
    Constant,
    LinearCoregionalization,
    Matern12,
    Matern32,
    Matern52,
    SeparateIndependent,
    SharedIndependent,
    SquaredExponential,
)

from gpflow_aaci import (
    AugmentedNNGP,
    AugmentedSVGP,
    AugmentedVGP,
    likelihoods,
    sample_posterior,
)
from gpflow_aaci.contrib import DeepGP
from gpflow_aaci.kernels import Difference
from gpflow_aaci.predictions import sample_functions

RandomiseQ = Callable[[gpflow.models.GPModel], None]
Make = Callable[[], gpflow.models.GPModel]

X = np.linspace(-1.5, 1.5, 9)[:, None]
Y = np.sin(2.0 * X) + 0.3
Z = np.array([[-1.2], [-0.4], [0.3], [1.1]])
X_NEW = np.array([[-2.0], [-0.1], [0.4], [4.0]])
MEAN = gpflow.functions.Linear([[0.3]], [0.1])


def full(kernel: Any = None, Y: AnyNDArray = Y) -> AugmentedVGP:
    return AugmentedVGP((X, Y), kernel or Matern52(1.2, 0.8), Student(), MEAN)


def sparse(kernel: Any = None, inducing: Any = Z, **kwargs: Any) -> AugmentedSVGP:
    return AugmentedSVGP(kernel or Matern32(1.2, 0.8), Student(), inducing, **kwargs)


def Student() -> likelihoods.StudentT:
    return likelihoods.StudentT(0.2, 4.0)


def kernels() -> list[gpflow.kernels.Kernel]:
    return [Matern32(1.2, 0.8), SquaredExponential(0.5, 1.1) + Constant(0.3)]


MODELS: dict[str, Make] = {
    "full": full,
    "sparse": lambda: sparse(whiten=False, mean_function=MEAN),
    "diagonal": lambda: sparse(q_diag=True, num_latent_gps=2),
    "stock": lambda: gpflow.models.SVGP(kernels()[1], Student(), Z, num_latent_gps=2),
    "shared": lambda: sparse(SharedIndependent(Matern12(), 2), num_latent_gps=2),
    "separate": lambda: sparse(
        SeparateIndependent(kernels()),
        SeparateIndependentInducingVariables(
            [gpflow.inducing_variables.InducingPoints(Z + shift) for shift in (0.0, 0.2)]
        ),
        num_latent_gps=2,
    ),
    "mixed": lambda: sparse(
        LinearCoregionalization(kernels(), W=[[1.0, 0.5], [-0.3, 0.8], [0.2, 0.1]]),
        num_latent_gps=2,
        mean_function=gpflow.functions.Constant([0.1, 2.0, -1.0]),
    ),
}


def randomise_any(model: gpflow.models.GPModel, randomise_q: RandomiseQ) -> None:
    if len(model.q_sqrt.shape) == 3:
        randomise_q(model)
    else:
        rng = np.random.default_rng(7)
        model.q_mu.assign(rng.normal(size=model.q_mu.shape))
        model.q_sqrt.assign(rng.uniform(0.2, 1.0, size=model.q_sqrt.shape))


def joint(model: gpflow.models.GPModel) -> tuple[tf.Tensor, AnyNDArray]:
    """Mean [N, P] and covariance [N P, N P] of all outputs, by GPflow; most are independent."""
    size = len(X_NEW) * (model.num_outputs if hasattr(model, "num_outputs") else 2)
    if isinstance(model.kernel, LinearCoregionalization):
        predict = gpflow.models.SVGP.predict_f  # not compiled, which would take longer
        mean, covariance = predict(model, X_NEW, full_cov=True, full_output_cov=True)
        return mean, tf.reshape(covariance, [size, size]).numpy()
    mean, covariance = model.predict_f(X_NEW, full_cov=True)
    return mean, np.einsum("lmn,lk->mlnk", covariance, np.eye(len(covariance))).reshape(size, size)


@pytest.mark.by_default("full", "sparse", "mixed")
@pytest.mark.briefly("full", "separate")
@pytest.mark.parametrize("name", MODELS)
def test_their_mean_and_covariance_are_those_of_predict_f(
    name: str, randomise_q: RandomiseQ
) -> None:
    """
    Of all outputs jointly. Seeds are independent, so their variance gives the standard errors.
    """
    model = MODELS[name]()
    randomise_any(model, randomise_q)
    mean, covariance = joint(model)
    size = len(covariance)
    firsts, seconds = [], []
    for seed in range(12):
        functions = sample_functions(model, 250, num_features=100, seed=seed)
        deviation = (functions(X_NEW) - mean).numpy().reshape(-1, size)
        firsts.append(deviation.mean(0))
        seconds.append(deviation.T @ deviation / 250)
    for values, truth in ((firsts, np.zeros(size)), (seconds, covariance)):
        standard_error = np.std(values, axis=0, ddof=1) / np.sqrt(12)
        assert np.all(np.abs(np.mean(values, 0) - truth) < 6.0 * standard_error + 1e-9)
        assert np.all(standard_error < 0.06)


@pytest.mark.by_default("full", "mixed")
@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_the_functions_of_one_call_have_the_covariance_of_predict_f(
    name: str, randomise_q: RandomiseQ
) -> None:
    """The standard errors are those of normal f; many features leave a small error of their own."""
    model, S = MODELS[name](), 4_000
    randomise_any(model, randomise_q)
    mean, covariance = joint(model)
    size = len(covariance)
    functions = sample_functions(model, S, num_features=8_000)
    deviation = (functions(X_NEW) - mean).numpy().reshape(S, size)
    variance = np.diag(covariance)
    assert np.all(np.abs(deviation.mean(0)) < 4.5 * np.sqrt(variance / S))
    standard_error = np.sqrt((variance[:, None] * variance + covariance**2) / S)
    error = np.abs(deviation.T @ deviation / S - covariance)
    assert np.all(error < 4.5 * standard_error + 0.01)


def posterior(**draws: Any) -> arviz.InferenceData:
    """Draws [C, S, ...], as ``sample_posterior`` returns them."""
    return arviz.from_dict({name.replace("__", "."): np.array(v) for name, v in draws.items()})


@pytest.mark.briefly("2")
@pytest.mark.parametrize("num_latents", [1, 2])
def test_they_go_through_the_drawn_f_at_the_data(num_latents: int) -> None:
    """As many functions as draws are in the order of the draws; the rest is GPflow's jitter."""
    gpflow.config.set_default_jitter(1e-10)
    model = full(Y=np.hstack([Y, -2.0 * Y])[:, :num_latents])
    samples = sample_posterior(model, num_samples=15, num_chains=2, num_burnin=5, progress=False)
    drawn = samples["posterior"]["f"].values.reshape(30, 9, num_latents)
    functions = sample_functions(model, 30, samples=samples)
    np.testing.assert_allclose(functions(X), drawn, atol=1e-4)
    some = sample_functions(model, 7, samples=samples)(X).numpy()
    distance = np.abs(some[:, None] - drawn).max((2, 3))
    assert np.all(distance.min(1) < 1e-4)
    assert len(set(distance.argmin(1))) == 7


@pytest.mark.parametrize("model", [full(), sparse(mean_function=MEAN)], ids=["full", "sparse"])
def test_through_one_draw_they_are_gaussian_process_regression(
    model: gpflow.models.GPModel,
) -> None:
    """Given f at the data, or u, y says nothing more: GPflow's GPR with the jitter as its noise."""
    points, name = (X, "f") if isinstance(model, AugmentedVGP) else (Z, "u")
    drawn = np.cos(3.0 * points)
    of_mean = 0.0 if name == "f" else MEAN(points)  # draws of u are without the mean function
    gpr = gpflow.models.GPR((points, drawn + of_mean), model.kernel, MEAN, 1.1e-6)
    gpr.likelihood.variance.assign(1.1e-6)
    mean, covariance = gpr.predict_f(X_NEW, full_cov=True)
    samples = posterior(**{name: drawn[None, None]})
    deviation = [
        (sample_functions(model, 400, samples=samples, seed=seed)(X_NEW) - mean).numpy()[..., 0]
        for seed in range(5)
    ]
    flat, variance = np.concatenate(deviation), np.diag(covariance[0])
    assert np.all(np.abs(flat.mean(0)) < 4.5 * np.sqrt(variance / 2_000) + 1e-4)
    np.testing.assert_allclose(flat.T @ flat / 2_000, covariance[0], atol=0.12)


def test_each_has_the_hyperparameters_of_its_draw() -> None:
    """Every second draw has short lengthscales; the model keeps those that it has."""
    model, drawn = full(SquaredExponential(1.0, 0.9)), np.cos(3.0 * X)
    lengths, x = np.array([0.15, 0.9] * 12), np.array([[-0.6], [0.55]])
    samples = posterior(f=[[drawn] * 24], kernel__lengthscales=[lengths])
    functions = sample_functions(model, 24, samples=samples)
    assert model.kernel.lengthscales.numpy() == pytest.approx(0.9)
    f = functions(x).numpy()[..., 0]
    np.testing.assert_allclose(functions(np.tile(x, [24, 1, 1]))[..., 0], f, atol=1e-9)
    for first, length in enumerate(lengths[:2]):
        kernel = SquaredExponential(1.0, length)
        gpr = gpflow.models.GPR((X, drawn), kernel, MEAN, 1.1e-6)
        mean, variance = (part.numpy()[:, 0] for part in gpr.predict_f(x))
        z = (f[first::2] - mean) / np.sqrt(variance)
        assert np.abs(z).max() < 4.5
        assert 0.4 < np.mean(z**2) < 2.0


def test_parameters_that_were_not_sampled_are_those_of_the_sampling() -> None:
    constant = {"kernel.lengthscales": np.array(0.8), "kernel.variance": np.array(1.2)}
    samples = arviz.from_dict({"f": np.cos(3.0 * X)[None, None]}, constant_data=constant)
    model = full()
    before = sample_functions(model, 3, samples=samples)(X_NEW)
    model.kernel.lengthscales.assign(0.2)
    np.testing.assert_allclose(sample_functions(model, 3, samples=samples)(X_NEW), before)


def test_those_of_a_linear_kernel_are_linear() -> None:
    """Far away, too, and with a single feature."""
    kernel = gpflow.kernels.Linear(0.7) + Constant(0.4)
    model = sparse(kernel, Z[:2])
    functions = sample_functions(model, 5, num_features=2)
    f = functions(np.linspace(-100.0, 100.0, 11)[:, None]).numpy()[..., 0]
    np.testing.assert_allclose(np.diff(f, 2), 0.0, atol=1e-8)
    assert np.abs(np.diff(f)).min() > 1e-3


def two_columns() -> AugmentedSVGP:
    kernel = Matern52(lengthscales=[0.7, 1.5]) * gpflow.kernels.Linear(active_dims=[1])
    return sparse(kernel, np.random.default_rng(3).normal(size=(5, 2)), mean_function=MEAN_2)


MEAN_2 = gpflow.functions.Linear([[0.3], [0.2]], [0.1])


def test_their_gradients_are_those_of_finite_differences(randomise_q: RandomiseQ) -> None:
    """Each at its own points, compiled, and also of a Parameter."""
    model = two_columns()
    randomise_q(model)
    functions = sample_functions(model, 3)
    at = np.random.default_rng(0).normal(size=(3, 2, 2))
    x = gpflow.Parameter(at)

    @tf.function(autograph=False)
    def gradient() -> tf.Tensor:
        with tf.GradientTape() as tape:
            total = tf.reduce_sum(functions(x))
        return tape.gradient(total, x.unconstrained_variable)

    step = 1e-5
    steps = step * np.eye(2)[:, None, None]
    differences = [(functions(at + h) - functions(at - h))[..., 0] / (2.0 * step) for h in steps]
    np.testing.assert_allclose(gradient(), np.stack(differences, -1), atol=1e-7)


def test_each_may_have_points_of_its_own() -> None:
    functions = sample_functions(two_columns(), 3)
    points = np.random.default_rng(0).normal(size=(3, 4, 2))
    own = functions(points)
    assert own.shape == (3, 4, 1)
    for number in range(3):
        np.testing.assert_allclose(own[number], functions(points[number])[number], atol=1e-10)


def test_the_seed_alone_determines_them(randomise_q: RandomiseQ) -> None:
    """What happens to the model, or to other random numbers, changes no function."""
    model = two_columns()
    x = np.random.default_rng(0).normal(size=(4, 2))
    functions = sample_functions(model, 3, seed=5)
    first = functions(x)
    tf.random.set_seed(1)
    np.testing.assert_array_equal(sample_functions(model, 3, seed=5)(x), first)
    frozen = gpflow.utilities.freeze(model)
    np.testing.assert_allclose(sample_functions(frozen, 3, seed=5)(x), first, atol=1e-10)
    assert np.abs(sample_functions(model, 3, seed=6)(x) - first).min() > 1e-4
    randomise_q(model)
    for parameter in (*model.kernel.parameters, *model.inducing_variable.parameters):
        parameter.assign(0.5 * parameter)
    np.testing.assert_array_equal(functions(x), first)


def test_a_difference_is_one_of_a_function(randomise_q: RandomiseQ) -> None:
    """The functions take pairs (x, x′), and x alone."""
    model = AugmentedSVGP(Difference(Matern32(), 1), likelihoods.Logistic(), Z)
    randomise_q(model)
    functions = sample_functions(model, 3)
    pairs = np.random.default_rng(0).normal(size=(4, 2))
    f, f_other = functions(pairs[:, :1]), functions(pairs[:, 1:])
    np.testing.assert_allclose(functions(pairs), f - f_other, atol=1e-10)


@pytest.mark.parametrize("name", ["full", "sparse", "separate"])
def test_float32_gives_the_same_functions(name: str, randomise_q: RandomiseQ) -> None:
    found = {}
    for dtype in (np.float64, np.float32):
        gpflow.config.set_default_float(dtype)
        gpflow.config.set_default_jitter(1e-4)
        model = MODELS["separate"]() if name == "separate" else _with_own_mean(name)
        randomise_any(model, randomise_q)
        functions = sample_functions(model, 50)
        found[dtype] = functions(X_NEW.astype(dtype))
        assert found[dtype].dtype == dtype
    np.testing.assert_allclose(found[np.float32], found[np.float64], atol=5e-3)


def _with_own_mean(name: str) -> gpflow.models.GPModel:
    mean_function = gpflow.functions.Linear([[0.3]], [0.1])
    dtype = gpflow.config.default_float()
    if name == "sparse":
        return sparse(inducing=Z.astype(dtype), mean_function=mean_function)
    return AugmentedVGP(
        (X.astype(dtype), Y.astype(dtype)), Matern52(1.2, 0.8), Student(), mean_function
    )


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (X[:, 0], r"X must be \[N, 1\], .* or \[3, N, 1\], .* Found: shape \[9\]"),
        (np.hstack([X, X]), r"Found: shape \[9, 2\]"),
        (np.zeros([2, 4, 1]), r"Found: shape \[2, 4, 1\]"),
        (np.array([[0.0], [np.nan]]), r"X must be finite"),
    ],
)
def test_bad_points_are_refused(bad: AnyNDArray, message: str) -> None:
    functions = sample_functions(sparse(), 3, num_features=4)
    with pytest.raises(ValueError, match=message):
        functions(bad)


@pytest.mark.parametrize(
    ("argument", "value"), [("num_functions", 0), ("num_features", 1.5), ("seed", -1)]
)
def test_bad_numbers_are_refused(argument: str, value: float) -> None:
    arguments = {"num_functions": 3, argument: value}
    with pytest.raises(ValueError, match=f"{argument} must be an integer of at least"):
        sample_functions(sparse(), **arguments)


@pytest.mark.parametrize(
    "make",
    [
        lambda: AugmentedNNGP((X, Y), Matern32(), Student()),
        lambda: gpflow.models.GPMC((X, Y), Matern32(), Student()),
        lambda: DeepGP([Matern32()], Student(), [Z]),
    ],
    ids=["AugmentedNNGP", "GPMC", "DeepGP"],
)
def test_models_of_another_kind_are_refused(make: Make) -> None:
    with pytest.raises(ValueError, match=r"model must be an AugmentedSVGP .* Found: \w+GP|GPMC"):
        sample_functions(make(), 3)


def test_inducing_variables_and_kernels_of_another_kind_are_refused() -> None:
    kernel = gpflow.kernels.Convolutional(SquaredExponential(), [3, 3], [2, 2])
    model = AugmentedSVGP(kernel, Student(), InducingPatches(np.eye(4)[:3]))
    with pytest.raises(ValueError, match=r"must be points .* Found: InducingPatches"):
        sample_functions(model, 3)
    with pytest.raises(ValueError, match=r"kernel must be made of .* Found: White"):
        sample_functions(sparse(Matern32() + gpflow.kernels.White()), 3)


def test_samples_of_another_model_are_refused() -> None:
    model = full()
    for draws in ({"u": np.zeros([1, 2, 4, 1])}, {"f": np.zeros([1, 2, 8, 1])}):
        with pytest.raises(ValueError, match='samples must hold "f" of 9 values and 1 outputs'):
            sample_functions(model, 3, samples=posterior(**draws))
    unknown = posterior(f=np.zeros([1, 2, 9, 1]), kernel__period=np.ones([1, 2]))
    with pytest.raises(ValueError, match=r"samples must hold parameters that the model has"):
        sample_functions(model, 3, samples=unknown)
