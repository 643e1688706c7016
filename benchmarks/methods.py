"""
The contestants: same likelihood object, kernel, inducing points and batches for each.

A method is a model and one compiled training step on the next minibatch.
"""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.keras import tf_keras

import gpflow_aaci

from .config import (
    Adam,
    Alternating,
    Collapsed,
    ConfigError,
    KernelConfig,
    LikelihoodConfig,
    Method,
    NatGrad,
)
from .data import Split
from .datasets import Array

LABELS = {
    "collapsed": "AACI, collapsed",
    "alternating": "AACI",
    "natgrad": "NatGrad + Adam",
    "adam": "Adam",
}
GPFLOWS = (LABELS["natgrad"], LABELS["adam"])


@dataclass(frozen=True)
class Setting:
    """One point of a method's tuning grid; None where a method has no such thing."""

    kind: str
    learning_rate: float | None = None
    gamma: float | Literal["adaptive", "robbins-monro"] | None = None  # the step size of q(u)
    ramp: bool = False

    @property
    def is_papers(self) -> bool:
        """Whether the paper's scripts ran it."""
        return self in PAPERS

    def __str__(self) -> str:
        parts = [
            f"step {self.gamma}" if self.gamma else "",
            "ramp" if self.ramp else "",
            f"lr {self.learning_rate:g}" if self.learning_rate else "",
        ]
        return ", ".join(part for part in parts if part) or "nothing to tune"


PAPERS = (
    Setting("alternating", 1e-3, "robbins-monro"),
    Setting("natgrad", 1e-3, 0.1, ramp=True),
    Setting("adam", 1e-3),
)


def settings(method: Method) -> list[Setting]:
    """Every point of a method's grid."""
    match method:
        case Alternating():
            steps = itertools.product(method.learning_rate, method.step_size)
            return [Setting(method.kind, *point) for point in steps]
        case NatGrad():
            gammas = itertools.product(method.learning_rate, method.gamma, [method.ramp])
            return [Setting(method.kind, *point) for point in gammas]
        case Adam():
            return [Setting(method.kind, rate) for rate in method.learning_rate]
        case Collapsed():
            return [Setting(method.kind)]


@dataclass(frozen=True)
class Start:
    """Where every method starts."""

    kernel: KernelConfig
    likelihood: LikelihoodConfig
    Z: Array  # [M, D]
    lengthscale: float
    num_data: int


_CLUSTERED = 100_000


def clustered(split: Split, num_inducing: int) -> Array:
    """
    The training inputs that inducing points are chosen from.

    :raises ConfigError: where fewer than ``num_inducing`` of them are distinct.
    """
    some = split.X[:_CLUSTERED]  # in random order; of millions, a part has the same centres
    distinct = len(np.unique(some, axis=0))
    if num_inducing > distinct:
        raise ConfigError(
            f"num_inducing must be at most the number of distinct training inputs, {distinct} of "
            f"{split.name}. Found: {num_inducing}."
        )
    return some


def make_start(
    split: Split,
    likelihood: LikelihoodConfig,
    num_inducing: int,
    seed: int,
    kernel: KernelConfig | None = None,
) -> Start:
    """
    k-means++ centres for Z, the root mean squared distance for a lengthscale not given.

    :raises ConfigError: for more inducing points than distinct training inputs.
    """
    Z = gpflow_aaci.kmeans_plusplus(clustered(split, num_inducing), num_inducing, seed)
    kernel = kernel or KernelConfig()
    lengthscale = kernel.lengthscale or root_mean_squared_distance(split.X)
    return Start(kernel, likelihood, Z, lengthscale, len(split.X))


def root_mean_squared_distance(X: Array) -> float:
    """Of two rows: E‖x − x'‖² = 2 Σ_d Var x_d."""
    return float(np.sqrt(2.0 * X.var(axis=0).sum()))


def make_likelihood(config: LikelihoodConfig) -> gpflow_aaci.likelihoods.SuperGaussianLikelihood:
    """The likelihood of that name."""
    return getattr(gpflow_aaci.likelihoods, config.name)(**config.parameters)


def make_model(start: Start, model_class: type[gpflow.models.SVGP]) -> gpflow.models.SVGP:
    """An SVGP at the start; Z is fixed, as in the paper."""
    lengthscales = [start.lengthscale] * start.Z.shape[1] if start.kernel.ard else start.lengthscale
    make_kernel = getattr(gpflow.kernels, start.kernel.name)
    kernel = make_kernel(variance=start.kernel.variance, lengthscales=lengthscales)
    likelihood = make_likelihood(start.likelihood)
    gpflow.set_trainable(likelihood, start.likelihood.trainable)
    model = model_class(kernel, likelihood, start.Z.copy(), num_data=start.num_data)
    gpflow.set_trainable(model.inducing_variable, False)
    return model


Step = Callable[[], None]
"""One step of training; raises ``tf.errors.InvalidArgumentError`` where it cannot be taken."""


def make_method(
    setting: Setting, start: Start, batches: Iterator[tuple[tf.Tensor, tf.Tensor]]
) -> tuple[gpflow.models.SVGP, Step, list[tf.Variable]]:
    """
    A fresh model, one step of training on the next batch, and the variables it keeps.

    The first step compiles.
    """
    adam = tf_keras.optimizers.Adam(setting.learning_rate)
    if setting.kind == "alternating":
        model = make_model(start, gpflow_aaci.AugmentedSVGP)
        optimizer = gpflow_aaci.AlternatingOptimizer(_step_size(setting), adam)
        optimizer.build(model)
        alternate = tf.function(lambda: optimizer.minimize(model, batches), autograph=False)
        return model, alternate, [*optimizer.variables, *adam.variables]

    model = make_model(start, gpflow.models.SVGP)
    gamma = tf.Variable(_FIRST_GAMMA if setting.ramp else setting.gamma or 0.0, dtype=tf.float64)
    update_q = _q_update(setting, model, gamma)
    adam.build(model.trainable_variables)

    @tf.function(autograph=False)
    def step() -> None:
        batch = next(batches)
        update_q(batch)
        adam.minimize(lambda: model.training_loss(batch), model.trainable_variables)

    if not setting.ramp:
        return model, step, adam.variables
    return model, _ramp(step, gamma, setting.gamma), [*adam.variables, gamma]


def _step_size(setting: Setting) -> float | gpflow_aaci.inference.schedules.Schedule:
    match setting.gamma:
        case "adaptive":
            return gpflow_aaci.AdaptiveStepSize()
        case "robbins-monro":
            return gpflow_aaci.RobbinsMonro()
        case _:
            return setting.gamma


_FIRST_GAMMA = 1e-5


def _ramp(step: Step, gamma: tf.Variable, largest: float) -> Step:
    """gamma from 1e-5 by 10^0.1 a step up to ``largest``; times 1e-3 where a step fails."""

    def ramped() -> None:
        while True:
            try:
                step()
            except tf.errors.InvalidArgumentError:
                if gamma < 1e-12:
                    raise
                gamma.assign(1e-3 * gamma)
            else:
                gamma.assign(tf.minimum(gamma * 10**0.1, largest))
                return

    return ramped


def _q_update(
    setting: Setting, model: gpflow.models.SVGP, gamma: tf.Variable
) -> Callable[[tuple[tf.Tensor, tf.Tensor]], None]:
    """The step on q(u) that precedes Adam's; Adam alone has q among its variables."""
    if setting.kind == "adam":
        return lambda batch: None
    for parameter in (model.q_mu, model.q_sqrt):
        gpflow.set_trainable(parameter, False)
    natural = gpflow.optimizers.NaturalGradient(gamma)
    q = [(model.q_mu, model.q_sqrt)]
    return lambda batch: natural.minimize(lambda: model.training_loss(batch), q)


_SHUFFLED = 100_000


def minibatches(split: Split, batch_size: int, seed: int) -> Iterator[tuple[tf.Tensor, tf.Tensor]]:
    """Shuffled batches without end, the same for every method."""
    dataset = tf.data.Dataset.from_tensor_slices((split.X, split.Y))
    # The rows are in random order as they are: a buffer of millions would only cost memory.
    dataset = dataset.shuffle(min(len(split.X), _SHUFFLED), seed=seed).repeat()
    return iter(dataset.batch(min(batch_size, len(split.X))).prefetch(1))
