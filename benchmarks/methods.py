"""
The contestants: same likelihood object, kernel, inducing points and batches for each.

A method is a model and one compiled training step on the next minibatch.
"""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import gpflow
import numpy as np
import sklearn.cluster
import tensorflow as tf
from gpflow.keras import tf_keras

import gpflow_aaci

from .config import Adam, Augmented, LikelihoodConfig, Method, NatGrad
from .data import Array, Split

LABELS = {"augmented": "AACI", "natgrad": "NatGrad + Adam", "adam": "Adam"}


@dataclass(frozen=True)
class Setting:
    """One point of a method's tuning grid."""

    kind: str
    learning_rate: float
    gamma: float | None  # the natural-gradient step size, where there is one

    def __str__(self) -> str:
        step = "" if self.gamma is None else f"step {self.gamma:g}, "
        return f"{step}lr {self.learning_rate:g}"


def settings(method: Method) -> list[Setting]:
    """Every point of a method's grid."""
    match method:
        case Augmented():
            gammas: list[float | None] = [*method.step_size]
        case NatGrad():
            gammas = [*method.gamma]
        case Adam():
            gammas = [None]
    grid = itertools.product(gammas, method.learning_rate)
    return [Setting(method.kind, rate, gamma) for gamma, rate in grid]


@dataclass(frozen=True)
class Start:
    """Where every method starts."""

    likelihood: LikelihoodConfig
    Z: Array  # [M, D]
    lengthscale: float
    num_data: int


def make_start(split: Split, likelihood: LikelihoodConfig, num_inducing: int, seed: int) -> Start:
    """k-means++ centres for Z, the root mean squared pairwise distance for the lengthscales."""
    num_inducing = min(num_inducing, len(split.X))
    Z, _ = sklearn.cluster.kmeans_plusplus(split.X, num_inducing, random_state=seed)
    # E‖x − x'‖² = 2 Σ_d Var x_d.
    lengthscale = float(np.sqrt(2.0 * split.X.var(axis=0).sum()))
    return Start(likelihood, Z, lengthscale, len(split.X))


def make_model(start: Start, model_class: type[gpflow.models.SVGP]) -> gpflow.models.SVGP:
    """An SVGP at the start; Z is fixed, as in the paper."""
    dim = start.Z.shape[1]
    kernel = gpflow.kernels.SquaredExponential(lengthscales=[start.lengthscale] * dim)
    likelihood_class = getattr(gpflow_aaci.likelihoods, start.likelihood.name)
    likelihood = likelihood_class(**start.likelihood.parameters)
    gpflow.set_trainable(likelihood, start.likelihood.trainable)
    model = model_class(kernel, likelihood, start.Z.copy(), num_data=start.num_data)
    gpflow.set_trainable(model.inducing_variable, False)
    return model


Step = Callable[[], None]


def make_method(
    setting: Setting, start: Start, batches: Iterator[tuple[tf.Tensor, tf.Tensor]]
) -> tuple[gpflow.models.SVGP, Step, tf_keras.optimizers.Optimizer]:
    """A fresh model, one compiled step of training on the next batch, and Adam with its slots."""
    adam = tf_keras.optimizers.Adam(setting.learning_rate)
    augmented = setting.kind == "augmented"
    model = make_model(start, gpflow_aaci.AugmentedSVGP if augmented else gpflow.models.SVGP)
    update_q = _q_update(setting, model)

    @tf.function(autograph=False)
    def step() -> None:
        batch = next(batches)
        update_q(batch)
        adam.minimize(lambda: model.training_loss(batch), model.trainable_variables)

    return model, step, adam


def _q_update(
    setting: Setting, model: gpflow.models.SVGP
) -> Callable[[tuple[tf.Tensor, tf.Tensor]], None]:
    """The step on q(u) that precedes Adam's; Adam alone has q among its variables."""
    if setting.kind == "adam":
        return lambda batch: None
    for parameter in (model.q_mu, model.q_sqrt):
        gpflow.set_trainable(parameter, False)
    if setting.kind == "augmented":
        closed_form = gpflow_aaci.AugmentedNaturalGradient(setting.gamma)
        return lambda batch: closed_form.minimize(model, batch)
    natural = gpflow.optimizers.NaturalGradient(setting.gamma)
    q = [(model.q_mu, model.q_sqrt)]
    return lambda batch: natural.minimize(lambda: model.training_loss(batch), q)


def minibatches(split: Split, batch_size: int, seed: int) -> Iterator[tuple[tf.Tensor, tf.Tensor]]:
    """Shuffled batches without end, the same for every method."""
    dataset = tf.data.Dataset.from_tensor_slices((split.X, split.Y))
    dataset = dataset.shuffle(len(split.X), seed=seed).repeat()
    return iter(dataset.batch(min(batch_size, len(split.X))).prefetch(1))
