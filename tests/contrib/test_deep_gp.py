"""Deep GPs against the sparse GP, NumPy, gpflow.conditionals and importance sampling."""

from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import AnyNDArray
from scipy.stats import norm

from gpflow_aaci import likelihoods, predictions, sample_posterior
from gpflow_aaci.contrib import HMC, SGHMC, DeepGP, HyperparameterGibbs, HyperparameterHMC
from gpflow_aaci.contrib.joint import JointChains
from gpflow_aaci.contrib.sghmc import minibatch_target

X = np.random.default_rng(0).normal(size=(12, 2))
Y = np.sin(2.0 * X[:, :1]) + 0.2 * np.random.default_rng(1).normal(size=(12, 1))
TINY: dict[str, Any] = {"num_samples": 6, "num_chains": 1, "num_burnin": 2, "seed": 5}
LOG_NORMAL = tfp.distributions.LogNormal(np.float64(0.0), np.float64(1.0))
STANDARD = tfp.distributions.Normal(np.float64(0.0), np.float64(1.0))


def kernel(variance: float = 1.2, lengthscale: float = 0.8) -> gpflow.kernels.Kernel:
    return gpflow.kernels.Matern32(variance=variance, lengthscales=lengthscale)


def make_deep(num_layers: int, num_inducing: int = 4) -> DeepGP:
    """Every layer has another variance, other inducing points, and values v of its own."""
    rng = np.random.default_rng(2)
    kernels = [kernel(0.3 + 0.4 * i) for i in range(num_layers)]
    Zs = [rng.normal(size=(num_inducing, 2)) for _ in kernels]
    model = DeepGP(kernels, likelihoods.Gaussian(variance=0.3), Zs)
    for v in model.hidden_v.values():
        v.assign(rng.normal(size=v.shape))
    return model


def with_priors(model: DeepGP | gpflow.models.SVGP) -> None:
    for parameter in model.trainable_parameters:
        if parameter.prior is None:
            is_positive = parameter.shape.rank == 0
            parameter.prior = LOG_NORMAL if is_positive else STANDARD


def joint_of(model: DeepGP | gpflow.models.SVGP, objective: Any = "predictive") -> JointChains:
    """Of v and all parameters of the model."""
    sampled = {
        name: parameter
        for name, parameter in gpflow.utilities.parameter_dict(model).items()
        if name not in (".q_mu", ".q_sqrt")
    }
    return JointChains(model, (tf.constant(X), tf.constant(Y)), sampled, objective)


def value_and_gradients(joint: JointChains, batch_size: int = 1_000) -> list[AnyNDArray]:
    target = minibatch_target(joint, batch_size)
    parts = [tf.identity(each.unconstrained_variable) for each in joint.moved]
    with tf.GradientTape() as tape:
        tape.watch(parts)
        value = target(*parts, seed=tf.constant([3, 4]))
    return [value.numpy(), *(slope.numpy() for slope in tape.gradient(value, parts))]


def one_layer_and_svgp() -> tuple[DeepGP, gpflow.models.SVGP]:
    deep = make_deep(1)
    flat = gpflow.models.SVGP(
        kernel(0.3), likelihoods.Gaussian(variance=0.3), deep.inducing_variable.Z.numpy()
    )
    gpflow.set_trainable([flat.q_mu, flat.q_sqrt], False)
    for model in (deep, flat):
        with_priors(model)
    return deep, flat


@pytest.mark.parametrize("batch_size", [1_000, 5])
def test_of_one_layer_its_target_is_the_sparse_gp_s(batch_size: int) -> None:
    """The gradients in u, hyperparameters and Z are the same, too."""
    values = []
    for model in one_layer_and_svgp():
        joint = joint_of(model)
        joint.v.assign(np.random.default_rng(4).normal(size=(4, 1)))
        values.append(value_and_gradients(joint, batch_size))
    assert len(values[0]) == 1 + 5  # v, variance and lengthscale, noise and Z
    for ours, theirs in zip(*values, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-10)


@pytest.mark.slow
def test_of_one_layer_its_draws_are_the_sparse_gp_s() -> None:
    models = one_layer_and_svgp()
    sampler = SGHMC(hyperparameters=True, batch_size=5, steps_per_draw=3)
    draws = [sample_posterior(model, (X, Y), sampler, progress=False, **TINY) for model in models]
    assert set(draws[0].posterior) == set(draws[1].posterior)
    for name, of_deep in draws[0].posterior.items():
        np.testing.assert_allclose(of_deep, draws[1].posterior[name], rtol=1e-10)
    new = X[:3] + 0.1, Y[:3]
    log_p = [
        predictions.predict_log_density(model, new, samples=samples, progress=False)
        for model, samples in zip(models, draws, strict=True)
    ]
    np.testing.assert_allclose(*log_p, rtol=1e-10)


def moments_by_gpflow(layer: Any, v: AnyNDArray, x: AnyNDArray) -> tuple[AnyNDArray, AnyNDArray]:
    mean, variance = gpflow.conditionals.conditional(
        x, layer.inducing_variable, layer.kernel, tf.constant(v), white=True
    )
    return (mean + layer.mean_function(x)).numpy(), variance.numpy()


def test_a_hidden_layer_is_drawn_from_gpflow_s_conditional() -> None:
    """Rows that repeat have draws of their own, unless rows are drawn jointly."""
    deep, copies = make_deep(2), 20_000
    layer = deep.hidden_layers[0]
    mean, variance = moments_by_gpflow(layer, layer.v.numpy(), X[:3])
    h = deep.draw_hidden(np.repeat(X[:3], copies, 0), [1, 2]).numpy().reshape(3, copies, 2)
    error = 4.5 * np.sqrt(variance / copies)
    assert (abs(h.mean(1) - mean) < error).all()
    np.testing.assert_allclose(h.var(1), variance, rtol=4.5 * np.sqrt(2.0 / copies))
    # Two copies of a row have one h, but for GPflow's jitter.
    jointly = deep.draw_hidden(np.repeat(X[:3], 2, 0), [1, 2], full_cov=True).numpy()
    np.testing.assert_allclose(jointly[::2], jointly[1::2], atol=0.01)


@pytest.mark.parametrize("objective", ["predictive", "variational"])
def test_of_two_layers_the_log_joint_is_numpy_s(objective: str) -> None:
    """Gaussian noise; log-normal priors of positive parameters, normal ones of the others."""
    deep = make_deep(2)
    with_priors(deep)
    joint = joint_of(deep, objective)
    joint.v.assign(np.random.default_rng(4).normal(size=(4, 1)))
    drawn = []
    draw = deep.draw_hidden
    deep.draw_hidden = lambda *args: drawn.append(draw(*args)) or drawn[-1]  # type: ignore
    value, *slopes = value_and_gradients(joint)
    (h,) = drawn  # [N, 2]
    mean, variance = (part[:, 0] for part in moments_by_gpflow(deep, joint.v.numpy(), h.numpy()))
    noise = deep.likelihood.variance.numpy()
    if objective == "predictive":
        expected = norm.logpdf(Y[:, 0], mean, np.sqrt(variance + noise)).sum()
    else:
        log_p = norm.logpdf(Y[:, 0], mean, np.sqrt(noise))
        expected = (log_p - 0.5 * variance / noise).sum()
    for parameter in joint.moved:
        x = parameter.numpy()
        if parameter.shape.rank > 0:
            expected += norm.logpdf(x).sum()
        else:  # log-normal, with the Jacobian of the transform by a difference
            raw = parameter.unconstrained_variable.numpy()
            low, high = (parameter.transform.forward(raw + d).numpy() for d in (-1e-5, 1e-5))
            expected += norm.logpdf(np.log(x)) - np.log(x) + np.log((high - low) / 2e-5)
    np.testing.assert_allclose(value, expected, rtol=1e-8)
    assert len(slopes) == len(joint.moved) == 1 + 1 + 2 * 3 + 1
    assert all(np.isfinite(slope).all() and np.any(slope) for slope in slopes)


def test_gradients_of_two_layers_are_differences() -> None:
    deep = make_deep(2)
    with_priors(deep)
    joint = joint_of(deep)
    joint.v.assign(np.random.default_rng(4).normal(size=(4, 1)))
    slopes = value_and_gradients(joint)[1:]
    rng = np.random.default_rng(5)
    parts = [each.unconstrained_variable.numpy() for each in joint.moved]
    along = [rng.normal(size=part.shape) for part in parts]
    low, high = (
        minibatch_target(joint, 1_000)(
            *(tf.constant(p + d * a) for p, a in zip(parts, along, strict=True)),
            seed=tf.constant([3, 4]),
        ).numpy()
        for d in (-1e-5, 1e-5)
    )
    expected = sum(float(np.sum(a * s)) for a, s in zip(along, slopes, strict=True))
    np.testing.assert_allclose((high - low) / 2e-5, expected, rtol=1e-5)


@pytest.mark.slow
def test_predictions_are_densities_with_the_moments_of_predict_y() -> None:
    deep = make_deep(2)
    gpflow.set_trainable(deep, False)
    before = deep.hidden_layers[0].v.numpy()
    samples = sample_posterior(deep, (X, Y), SGHMC(steps_per_draw=3), progress=False, **TINY)
    np.testing.assert_array_equal(deep.hidden_layers[0].v.numpy(), before)
    assert set(samples.posterior) == {"u", "hidden_layers[0].v"}
    new, y, copies = X[:1] + 0.1, np.linspace(-8.0, 8.0, 41), 100
    # Every row has hidden draws of its own, so p(y) is averaged over rows that repeat.
    Y_new = np.repeat(y, copies)[:, None]
    X_new = np.repeat(new, len(Y_new), 0)
    log_p = predictions.predict_log_density(deep, (X_new, Y_new), samples=samples, progress=False)
    p = np.exp(log_p).reshape(len(y), copies).mean(1) * (y[1] - y[0])
    assert abs(p.sum() - 1.0) < 0.02
    mean, variance = predictions.predict_y(deep, X_new, samples=samples, progress=False)
    second = np.mean(variance.numpy() + mean.numpy() ** 2)
    assert abs(np.sum(y * p) - np.mean(mean)) < 0.04
    assert abs(np.sum(y**2 * p) - second) < 0.05 * second
    del samples.posterior["hidden_layers[0].v"]  # as if they were draws of one layer
    with pytest.raises(ValueError, match=r"must hold hidden_layers\[0\]\.v .* Found: none"):
        predictions.predict_y(deep, new, samples=samples, progress=False)


@pytest.mark.slow
def test_every_kind_of_prediction_takes_its_draws() -> None:
    deep = make_deep(2)
    gpflow.set_trainable(deep, False)
    options: dict[str, Any] = {"progress": False}
    samples = sample_posterior(deep, (X, Y), SGHMC(steps_per_draw=3), **options, **TINY)
    options["samples"] = samples
    median = predictions.predict_y_quantile(deep, X[:2], 0.5, **options)[0]
    np.testing.assert_allclose(predictions.predict_y_cdf(deep, X[:2], median, **options), 0.5)
    assert predictions.predict_y_samples(deep, X[:2], 4, full_cov=True, **options).shape == (
        4,
        2,
        1,
    )
    assert predictions.predict_f_samples(deep, X[:2], **options).shape == (1, 6, 2, 1)


@pytest.mark.slow
def test_draws_of_two_layers_have_the_moments_of_importance_sampling() -> None:
    """
    One input, two inducing points a layer, and data there, where v determines h but for the jitter.
    """
    Z = np.array([[-1.0], [1.0]])
    x, y = Z, np.array([[1.0], [-1.0]])
    kernels = [kernel(1.0), kernel(1.0, 2.0)]
    deep = DeepGP(kernels, likelihoods.Gaussian(variance=0.1), [Z, Z])
    gpflow.set_trainable(deep, False)
    rng = np.random.default_rng(0)
    v = rng.normal(size=(100_000, 4))
    chol = [np.linalg.cholesky(k(Z).numpy() + 1e-6 * np.eye(2)) for k in kernels]
    h = x[:, 0] + v[:, :2] @ chol[0].T  # [S, 2]
    K_hZ = kernels[1](h.reshape(-1, 1), Z).numpy()
    A = np.linalg.solve(chol[1], K_hZ.T).T.reshape(-1, 2, 2)  # [S, row, M]
    mean = np.einsum("sim,sm->si", A, v[:, 2:])
    variance = 1.0 - np.square(A).sum(-1) + 0.1
    weight = np.exp(norm.logpdf(y[:, 0], mean, np.sqrt(variance)).sum(1))
    weight /= weight.sum()
    sampler = SGHMC(step_size=0.05, steps_per_draw=30)
    samples = sample_posterior(
        deep, (x, y), sampler, num_samples=1_000, num_chains=1, num_burnin=50, seed=1
    ).posterior
    v_1 = samples["hidden_layers[0].v"].values[..., 0]  # [chain, draw, M]
    u = samples["u"].values[..., 0]
    drawn = np.concatenate([v_1, np.linalg.solve(chol[1], u[..., None])[..., 0]], -1)
    drawn = drawn.reshape(-1, 4)
    assert abs(weight @ v[:, :2]).min() > 0.3  # or the prior would pass
    np.testing.assert_allclose(drawn.mean(0), weight @ v, atol=0.15)
    np.testing.assert_allclose(drawn.T @ drawn / len(drawn), (weight * v.T) @ v, atol=0.25)


def test_bad_input_is_named() -> None:
    Z = X[:3]
    gaussian = likelihoods.Gaussian()
    with pytest.raises(ValueError, match=r"one entry for each layer\. Found: 1, 2 and 2"):
        DeepGP([kernel()], gaussian, [Z, Z])
    with pytest.raises(ValueError, match=r"numbers of inputs\. Found: inputs \[2, 1\]"):
        DeepGP([kernel(), kernel()], gaussian, [Z, Z[:, :1]])
    shared = gpflow.kernels.SharedIndependent(kernel(), 2)
    with pytest.raises(ValueError, match=r"single-output kernels\. Found: SharedIndependent"):
        DeepGP([shared, kernel()], gaussian, [Z, Z])
    points = gpflow.inducing_variables.SharedIndependentInducingVariables(
        gpflow.inducing_variables.InducingPoints(Z)
    )
    with pytest.raises(ValueError, match=r"must be points Z \[M, D\]\. Found: SharedIndependent"):
        DeepGP([kernel(), kernel()], gaussian, [Z, points])
    narrow = gpflow.functions.Linear(np.ones([2, 1]))
    zero = gpflow.functions.Zero()
    DeepGP([kernel(), kernel()], gaussian, [Z, Z[:, :1]], mean_functions=[narrow, zero])
    deep = make_deep(2)
    with pytest.raises(ValueError, match="samples must be given for a DeepGP"):
        predictions.predict_y(deep, X)
    with pytest.raises(ValueError, match=r"Found none on: .*hidden_layers\[0\]\.kernel"):
        sample_posterior(deep, (X, Y), SGHMC(hyperparameters=True))
    for sampler in (None, HMC(), HyperparameterGibbs(), HyperparameterHMC()):
        with pytest.raises(ValueError, match="Found: DeepGP"):
            sample_posterior(deep, (X, Y), sampler)
