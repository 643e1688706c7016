"""
GPflow's notebooks as scripts of ours after their content: the class swapped, then ``fit``.

A script makes a model of a given class and trains it as its notebook does, with fewer steps. With
the class swapped every line still runs, and it ends where GPflow's class ends, or by little lower,
where the augmented bound is climbed; ``fit`` in place of its loop ends no lower. (Heteroskedastic
noise and mixed outputs are in ``test_notebook_scripts``.)
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.base import RegressionData
from gpflow.inducing_variables import InducingPoints, SharedIndependentInducingVariables
from gpflow.keras import tf_keras
from gpflow.monitor import ModelToTensorBoard, Monitor, MonitorTaskGroup, ScalarToTensorBoard

from gpflow_aaci import AugmentedSVGP, AugmentedVGP, fit
from gpflow_aaci.data.datasets import untuned

Loop = Callable[[Any], None]


class Script(NamedTuple):
    """A notebook's model, its data (none where the model keeps them), and its training loop."""

    make: Callable[[type[Any]], Any]
    data: RegressionData | None
    loop: Loop
    slack: float  # nats by which the swapped class may end lower, as it climbs another bound


def scipy_loop(data: RegressionData | None = None, maxiter: int = 300) -> Loop:
    def loop(model: Any) -> None:
        loss = model.training_loss if data is None else model.training_loss_closure(data)
        options = {"maxiter": maxiter}
        gpflow.optimizers.Scipy().minimize(loss, model.trainable_variables, options=options)

    return loop


def classification() -> Script:
    """Basic classification: VGP, a Bernoulli of one input, L-BFGS."""
    rng = np.random.default_rng(0)
    X = rng.uniform(0.0, 6.0, size=(60, 1))
    Y = (np.sin(1.5 * X) + 0.3 * rng.normal(size=X.shape) > 0.0).astype(float)
    data = X, Y

    def make(kind: type[Any]) -> Any:
        return kind(data, gpflow.kernels.Matern52(), gpflow.likelihoods.Bernoulli())

    return Script(make, None, scipy_loop(), slack=3.0)


def counts() -> Script:
    """Counts in bins: VGP, Poisson of rate e^f with a bin size, a constant mean, L-BFGS."""
    rng = np.random.default_rng(1)
    X = np.linspace(0.0, 10.0, 50)[:, None]
    data = X, rng.poisson(0.2 * np.exp(2.0 + np.sin(X))).astype(float)

    def make(kind: type[Any]) -> Any:
        likelihood = gpflow.likelihoods.Poisson(binsize=0.2)
        mean = gpflow.mean_functions.Constant(0.0)
        return kind(data, gpflow.kernels.Matern52(), likelihood, mean_function=mean)

    return Script(make, None, scipy_loop(), slack=0.05)


def multiclass() -> Script:
    """Multiclass: SVGP, Matérn and white noise, the robust maximum, whitened q of each class."""
    rng = np.random.default_rng(2)
    X = rng.uniform(size=(80, 1))
    f = np.hstack([np.sin(6.0 * X), np.cos(6.0 * X), np.sin(12.0 * X)])
    data = X, np.argmax(f, 1)[:, None].astype(float)

    def make(kind: type[Any]) -> Any:
        kernel = gpflow.kernels.Matern32() + gpflow.kernels.White(variance=0.01)
        likelihood = gpflow.likelihoods.MultiClass(3, invlink=gpflow.likelihoods.RobustMax(3))
        model = kind(kernel, likelihood, X[::5].copy(), num_latent_gps=3, whiten=True, q_diag=True)
        gpflow.set_trainable(model.kernel.kernels[1].variance, False)
        gpflow.set_trainable(model.inducing_variable, False)
        return model

    return Script(make, data, scipy_loop(data), slack=0.5)


def coregionalisation() -> Script:
    """Coregionalisation: VGP, a Coregion kernel times Matérn, noise of each output by a switch."""
    rng = np.random.default_rng(3)
    X = np.vstack([np.hstack([rng.uniform(size=(25, 1)), np.full((25, 1), k)]) for k in (0.0, 1.0)])
    y = np.sin(6.0 * X[:, :1]) * (1.0 - 0.4 * X[:, 1:]) + 0.1 * rng.standard_t(3.0, size=(50, 1))
    data = X, np.hstack([y, X[:, 1:]])

    def make(kind: type[Any]) -> Any:
        kernel = gpflow.kernels.Matern32(active_dims=[0])
        kernel *= gpflow.kernels.Coregion(output_dim=2, rank=1, active_dims=[1])
        kernel.kernels[1].W.assign([[0.8], [0.5]])
        parts = [gpflow.likelihoods.StudentT(0.2), gpflow.likelihoods.StudentT(0.2)]
        likelihood = gpflow.likelihoods.SwitchedLikelihood(parts)
        return kind(data, kernel, likelihood, num_latent_gps=1)

    return Script(make, None, scipy_loop(), slack=4.0)


def noise_of_groups() -> Script:
    """Varying noise, by groups: a switch between two Gaussians of known and of learnt variance."""
    rng = np.random.default_rng(4)
    X = rng.uniform(size=(60, 1))
    group = np.arange(60)[:, None] % 2
    y = np.sin(6.0 * X) + np.where(group == 0, 0.05, 0.6) * rng.normal(size=X.shape)
    data = X, np.hstack([y, group]).astype(float)

    def make(kind: type[Any]) -> Any:
        parts = [gpflow.likelihoods.Gaussian(variance=v) for v in (0.1, 0.5)]
        kernel = gpflow.kernels.Matern52(lengthscales=0.5)
        likelihood = gpflow.likelihoods.SwitchedLikelihood(parts)
        return kind(data, kernel, likelihood, num_latent_gps=1)

    return Script(make, None, scipy_loop(), slack=0.05)


def noise_of_x() -> Script:
    """Varying noise, as a function of x: Gaussian with a linear scale, SVGP."""
    rng = np.random.default_rng(5)
    X = rng.uniform(size=(80, 1))
    data = X, np.sin(6.0 * X) + (0.05 + 0.5 * X) * rng.normal(size=X.shape)

    def make(kind: type[Any]) -> Any:
        scale = gpflow.functions.Linear(A=[[0.1]], b=[0.2])
        likelihood = gpflow.likelihoods.Gaussian(scale=scale)
        model = kind(gpflow.kernels.RBF(lengthscales=0.3), likelihood, X[::8].copy())
        gpflow.set_trainable(model.inducing_variable, False)
        return model

    return Script(make, data, scipy_loop(data), slack=0.05)


def noise_by_a_gp() -> Script:
    """Varying noise, by a second GP: HeteroskedasticTFPConditional, natural gradients and Adam."""
    rng = np.random.default_rng(6)
    X = np.linspace(0.0, 6.0, 100)[:, None]
    data = X, np.sin(X) + np.exp(np.cos(X) - 1.5) * rng.normal(size=X.shape)

    def make(kind: type[Any]) -> Any:
        kernels = [gpflow.kernels.SquaredExponential(), gpflow.kernels.SquaredExponential()]
        return kind(
            kernel=gpflow.kernels.SeparateIndependent(kernels),
            likelihood=gpflow.likelihoods.HeteroskedasticTFPConditional(),
            inducing_variable=SharedIndependentInducingVariables(InducingPoints(X[::10].copy())),
            num_latent_gps=2,
        )

    return Script(make, data, natural_gradient_loop(data, gamma=0.1), slack=0.5)


def natural_gradient_loop(data: RegressionData, gamma: float, steps: int = 60) -> Loop:
    def loop(model: Any) -> None:
        loss = model.training_loss_closure(data)
        gpflow.set_trainable(model.q_mu, False)
        gpflow.set_trainable(model.q_sqrt, False)
        natural_gradient = gpflow.optimizers.NaturalGradient(gamma)
        adam = tf_keras.optimizers.Adam(0.02)
        for _ in range(steps):
            adam.minimize(loss, model.trainable_variables)
            natural_gradient.minimize(loss, [(model.q_mu, model.q_sqrt)])

    return loop


def natural_gradients() -> Script:
    """Natural gradients: SVGP of a logistic likelihood, both optimizers in turn."""
    rng = np.random.default_rng(7)
    X = rng.uniform(0.0, 6.0, size=(100, 1))
    data = X, (np.sin(X) + 0.3 * rng.normal(size=X.shape) > 0.0).astype(float)

    def make(kind: type[Any]) -> Any:
        likelihood = gpflow.likelihoods.Bernoulli(invlink=tf.sigmoid)
        return kind(gpflow.kernels.Matern52(), likelihood, X[::10].copy())

    return Script(make, data, natural_gradient_loop(data, gamma=0.5), slack=2.0)


def big_data() -> Script:
    """Stochastic variational inference: minibatches from a dataset, Adam, a compiled step."""
    rng = np.random.default_rng(8)
    X = rng.uniform(-1.0, 1.0, size=(1_000, 1))
    data = X, np.sin(9.0 * X) + 0.3 * rng.standard_t(3.0, size=X.shape)

    def make(kind: type[Any]) -> Any:
        Z = np.linspace(-1.0, 1.0, 20)[:, None]
        model = kind(gpflow.kernels.RBF(), gpflow.likelihoods.StudentT(), Z, num_data=1_000)
        gpflow.set_trainable(model.inducing_variable, False)
        return model

    def loop(model: Any) -> None:
        rows = tf.data.Dataset.from_tensor_slices(data).repeat().shuffle(1_000, seed=0)
        batches: Iterator[Any] = iter(untuned(rows.batch(100)))
        loss = model.training_loss_closure(batches, compile=True)
        optimizer = tf_keras.optimizers.Adam(0.05)

        @tf.function
        def step() -> None:
            optimizer.minimize(loss, model.trainable_variables)

        for _ in range(400):
            step()

    return Script(make, data, loop, slack=60.0)


SVGPS = {
    "multiclass": multiclass,
    "noise of x": noise_of_x,
    "noise by a GP": noise_by_a_gp,
    "natural gradients": natural_gradients,
    "big data": big_data,
}
VGPS = {
    "classification": classification,
    "counts": counts,
    "coregionalisation": coregionalisation,
    "noise of groups": noise_of_groups,
}


@pytest.mark.slow
@pytest.mark.by_default("multiclass", "coregionalisation", "natural gradients")
@pytest.mark.parametrize("name", [*SVGPS, *VGPS])
def test_the_class_swapped_and_fit_for_the_loop(name: str) -> None:
    script = (SVGPS | VGPS)[name]()
    stock_kind, own_kind = (
        (gpflow.models.SVGP, AugmentedSVGP) if name in SVGPS else (gpflow.models.VGP, AugmentedVGP)
    )
    rows = () if script.data is None else (script.data,)

    def elbo(model: Any) -> float:
        """Of one quadrature for all: that of the swapped class, at the model's parameters."""
        judge = script.make(own_kind)
        gpflow.utilities.multiple_assign(judge, gpflow.utilities.read_values(model))
        return float(judge.elbo(*rows))

    stock, swapped = script.make(stock_kind), script.make(own_kind)
    script.loop(stock)
    script.loop(swapped)
    assert elbo(swapped) > elbo(stock) - script.slack
    fitted, as_it_is = script.make(own_kind), script.make(stock_kind)
    result = fit(fitted, script.data, progress=False)
    assert result.converged, result.reason
    assert result.elbo > elbo(stock) - 0.05
    assert fit(as_it_is, script.data, progress=False).elbo == pytest.approx(result.elbo, abs=1e-4)


@pytest.mark.slow
def test_the_monitoring_notebook(tmp_path: Path) -> None:
    """GPflow's own tasks, on the swapped class, in a loop of Scipy's with ``step_callback``."""
    script = natural_gradients()
    model = script.make(AugmentedSVGP)
    loss = model.training_loss_closure(script.data)
    tasks = MonitorTaskGroup(
        [
            ModelToTensorBoard(str(tmp_path), model),
            ScalarToTensorBoard(str(tmp_path), lambda: float(loss()), "loss"),
        ],
        period=2,
    )
    gpflow.optimizers.Scipy().minimize(
        loss,
        model.trainable_variables,
        step_callback=Monitor(tasks),
        options={"maxiter": 5},
    )
    (events,) = tmp_path.glob("events*")
    tags = {
        value.tag
        for event in tf.compat.v1.train.summary_iterator(str(events))
        for value in event.summary.value
    }
    assert {"loss", "kernel.lengthscales", "kernel.variance"} <= tags
