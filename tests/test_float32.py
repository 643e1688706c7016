"""Training and prediction work in float32, with results close to float64."""

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import arviz
import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import AnyNDArray
from gpflow.kernels import Matern32

from gpflow_aaci import (
    AugmentedNaturalGradient,
    AugmentedSVGP,
    AugmentedVGP,
    likelihoods,
    sample_posterior,
)
from gpflow_aaci.contrib import (
    HMC,
    SGHMC,
    EllipticalSlices,
    HyperparameterGibbs,
    HyperparameterHMC,
)

MakeLikelihood = Callable[[], likelihoods.AugmentedLikelihood]
Observe = Callable[[gpflow.likelihoods.Likelihood, AnyNDArray, int], AnyNDArray]
Batch = tuple[AnyNDArray, AnyNDArray]

N, M = 30, 8
X_NEW = np.array([[0.3, -0.2], [1.4, 1.0], [-5.0, 0.0]])

either_model = pytest.mark.parametrize("kind", ["AugmentedSVGP", "AugmentedVGP"])


@pytest.fixture
def X(rng: np.random.Generator) -> AnyNDArray:
    return rng.uniform(-2.0, 2.0, size=(N, 2))


def use(dtype: type) -> None:
    """
    Set the dtype, and one jitter, so that both dtypes have the same model. A fixture resets them.
    """
    gpflow.config.set_default_float(dtype)
    gpflow.config.set_default_jitter(1e-4)


def make(kind: str, likelihood: Any, data: Batch, **kwargs: Any) -> tuple[Any, tuple[Any, ...]]:
    kernel = Matern32(1.3, lengthscales=[0.9, 1.4])
    mean_function = gpflow.functions.Constant(0.1)
    if kind == "AugmentedVGP":
        return AugmentedVGP(data, kernel, likelihood, mean_function=mean_function), ()
    model = AugmentedSVGP(
        kernel, likelihood, data[0][:M].copy(), mean_function=mean_function, **kwargs
    )
    return model, (data,)


def train_and_predict(
    kind: str, likelihood: Any, data: Batch, **kwargs: Any
) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
    """The bounds before and after each of six full steps, and all kinds of predictions."""
    model, args = make(kind, likelihood, data, **kwargs)
    optimizer, elbos = AugmentedNaturalGradient(), [model.augmented_elbo(*args)]
    for _ in range(6):
        optimizer.minimize(model, *args)
        elbos.append(model.augmented_elbo(*args))
    Y_new = data[1][:3].astype(gpflow.config.default_float())
    X_new = X_NEW.astype(gpflow.config.default_float())
    log_density = model.predict_log_density((X_new, Y_new))
    return elbos, [*model.predict_f(X_new), *model.predict_y(X_new), log_density]


@pytest.mark.briefly("StudentT-AugmentedVGP")
@pytest.mark.by_default("StudentT")
@either_model
def test_float32_is_close_to_float64(
    kind: str, make_likelihood: MakeLikelihood, observe: Observe, X: AnyNDArray
) -> None:
    """The bound rises equally, predictions agree to 1e-2, and everything has the right dtype."""
    results = {}
    Y = observe(make_likelihood(), X, 1)
    for dtype in (np.float64, np.float32):
        use(dtype)
        data = X.astype(dtype), Y.astype(dtype)
        results[dtype] = train_and_predict(kind, make_likelihood(), data)
        for value in (*results[dtype][0], *results[dtype][1]):
            assert value.dtype == tf.as_dtype(dtype)
    elbos = {dtype: np.array(result[0]) for dtype, result in results.items()}
    assert elbos[np.float32][-1] > elbos[np.float32][0] + 1.0
    assert np.all(np.diff(elbos[np.float32]) > -1e-4 * np.abs(elbos[np.float32][1:]))
    np.testing.assert_allclose(elbos[np.float32], elbos[np.float64], rtol=1e-2)
    for low, high in zip(results[np.float32][1], results[np.float64][1], strict=True):
        np.testing.assert_allclose(low, high, rtol=1e-2, atol=1e-2)


@pytest.mark.slow
@pytest.mark.by_default("Laplace", "Probit")
def test_float32_without_whitening(
    make_likelihood: MakeLikelihood, observe: Observe, X: AnyNDArray
) -> None:
    """The model is the same in other coordinates."""
    use(np.float32)
    Y = observe(make_likelihood(), X, 1)
    data = X.astype(np.float32), Y.astype(np.float32)
    _, white = train_and_predict("AugmentedSVGP", make_likelihood(), data)
    _, plain = train_and_predict("AugmentedSVGP", make_likelihood(), data, whiten=False)
    for a, b in zip(white, plain, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-2, atol=1e-2)


@pytest.mark.briefly("Logistic-AugmentedVGP")
@pytest.mark.by_default("StudentT", "Logistic")
@either_model
def test_gradients_are_float32_and_close(
    kind: str, make_likelihood: MakeLikelihood, observe: Observe, X: AnyNDArray
) -> None:
    """All hyperparameters have such gradients, so that any optimizer can train them."""
    gradients = {}
    Y = observe(make_likelihood(), X, 1)
    for dtype in (np.float64, np.float32):
        use(dtype)
        model, args = make(kind, make_likelihood(), (X.astype(dtype), Y.astype(dtype)))
        AugmentedNaturalGradient().minimize(model, *args)
        variables = [*model.kernel.trainable_variables, *model.likelihood.trainable_variables]
        with tf.GradientTape() as tape:
            loss = model.training_loss(*args)
        gradients[dtype] = tape.gradient(loss, variables)
        assert all(value.dtype == tf.as_dtype(dtype) for value in gradients[dtype])
    for low, high in zip(gradients[np.float32], gradients[np.float64], strict=True):
        np.testing.assert_allclose(low, high, rtol=2e-2, atol=2e-2)


@pytest.mark.slow
def test_float64_data_are_taken_in_a_float32_session(X: AnyNDArray) -> None:
    """Data are cast to GPflow's default dtype, in compiled minibatch steps, too."""
    use(np.float32)
    Y = np.sin(2.0 * X[:, :1])
    model, (batch,) = make("AugmentedSVGP", likelihoods.Laplace(), (X, Y))
    optimizer = AugmentedNaturalGradient(step_size=tf.Variable(0.5, dtype=tf.float64))
    tf.function(lambda: optimizer.minimize(model, batch))()
    in_float32, _ = make("AugmentedSVGP", likelihoods.Laplace(), (X, Y))
    AugmentedNaturalGradient(0.5).minimize(in_float32, (X.astype(np.float32), Y.astype(np.float32)))
    np.testing.assert_allclose(model.q_mu, in_float32.q_mu, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.by_default("Laplace")
@either_model
@pytest.mark.parametrize("name", ["Laplace", "Matern32", "Logistic"])
def test_sampling_in_float32_is_close(
    kind: str, name: str, observe: Observe, X: AnyNDArray
) -> None:
    """Draws have that dtype; their means are within four standard errors of float64's."""
    likelihood = getattr(likelihoods, name)
    Y, means, errors = observe(likelihood(), X, 1), {}, {}
    for dtype in (np.float64, np.float32):
        use(dtype)
        data = X.astype(dtype), Y.astype(dtype)
        model, args = make(kind, likelihood(), data)
        draws = sample_posterior(
            model,
            args[0] if args else None,
            num_samples=600,
            num_chains=4,
            num_burnin=20,
            progress=False,
        )
        values = draws.posterior["f" if kind == "AugmentedVGP" else "u"].values[..., 0]
        assert values.dtype == dtype
        means[dtype] = values.mean((0, 1), dtype=np.float64)
        ess = [arviz.ess(values[..., i].astype(np.float64)) for i in range(values.shape[-1])]
        errors[dtype] = values.std((0, 1)) / np.sqrt(ess)
    scale = np.hypot(errors[np.float64], errors[np.float32])
    assert np.all(np.abs(means[np.float64] - means[np.float32]) < 4.5 * scale + 1e-3)


@pytest.mark.by_default("HyperparameterGibbs", "EllipticalSlices")
@pytest.mark.slow
@pytest.mark.parametrize(
    "sampler",
    [
        HyperparameterGibbs(),
        HyperparameterHMC(),
        EllipticalSlices(),
        HMC(),
        SGHMC(hyperparameters=True),
    ],
    ids=lambda sampler: type(sampler).__name__,
)
def test_every_sampler_draws_in_float32(sampler: Any, X: AnyNDArray) -> None:
    """Samplers that draw hyperparameters and Z draw them in float32, too."""
    use(np.float32)
    model = AugmentedSVGP(Matern32(), likelihoods.StudentT(), X[:5].astype(np.float32))
    gpflow.set_trainable(model.likelihood, False)
    for parameter in (*model.kernel.parameters, model.inducing_variable.Z):
        parameter.prior = tfp.distributions.LogNormal(np.float32(0.0), np.float32(1.0))
    model.inducing_variable.Z.prior = tfp.distributions.Normal(np.float32(0.0), np.float32(1.0))
    draws = sample_posterior(
        model,
        (X, np.sin(X[:, :1])),
        sampler,
        num_samples=4,
        num_chains=2,
        num_burnin=3,
        progress=False,
    ).posterior
    for values in draws.values():
        assert values.dtype == np.float32
        assert np.isfinite(values).all()


def test_the_default_dtype_is_float64_again() -> None:
    """The settings of the tests above have been reset."""
    assert gpflow.config.default_float() is np.float64
    assert gpflow.config.default_jitter() == 1e-6


@pytest.mark.slow
def test_float32_is_not_multiplied_with_ten_bits() -> None:
    """On a GPU with TF32, Gibbs sampling in float32 failed and fits ended elsewhere."""
    program = (
        "import tensorflow as tf, gpflow_aaci\n"
        "print(tf.config.experimental.tensor_float_32_execution_enabled())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.split() == ["False"], done.stderr
