"""
The contestants: same kernel, inducing points and batches for each, and the same likelihood object.

``LABELS`` has a name for every kind, ``settings`` the points of its grid. GPflow's methods may have
one of its own likelihoods instead, and have it in their name.
"""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.keras import tf_keras

import gpflow_aaci
from gpflow_aaci.data import untuned

from .config import (
    ConfigError,
    GPFlowsName,
    KernelConfig,
    LikelihoodConfig,
    Method,
    OtherName,
    OwnName,
    Problem,
)
from .datasets import Array, Dataset, Split, made_up

LABELS = {
    "collapsed": "fit_collapsed",
    "fit": "fit",
    "alternating": "AlternatingOptimizer",
    "natgrad": "NatGrad + Adam",
    "adam": "Adam",
    "scipy": "Scipy",
}


@dataclass(frozen=True)
class Setting:
    """One point of a method's tuning grid; None where a method has no such thing."""

    kind: str
    learning_rate: float | None = None
    gamma: float | Literal["adaptive", "robbins-monro"] | None = None  # the step size of q(u)
    ramp: bool = False
    likelihood: OtherName | None = None  # in the place of the problem's

    @property
    def method(self) -> str:
        """Its name, whatever the point of its grid; the likelihood where not the problem's."""
        return LABELS[self.kind] + (f" ({self.likelihood})" if self.likelihood else "")

    @property
    def is_papers(self) -> bool:
        """Whether the paper's scripts ran it."""
        return self in _PAPERS

    def __str__(self) -> str:
        parts = [f"step {self.gamma}"] if self.gamma else []
        parts += ["ramp"] if self.ramp else []
        parts += [f"lr {self.learning_rate:g}"] if self.learning_rate else []
        return ", ".join(parts) or "nothing to tune"


GPFLOWS = tuple(
    Setting(kind, likelihood=likelihood).method
    for kind in ("natgrad", "adam", "scipy")
    for likelihood in (None, *get_args(GPFlowsName))
)
_PAPERS = (
    Setting("alternating", 1e-3, "robbins-monro"),
    Setting("natgrad", 1e-3, 0.1, ramp=True),
    Setting("adam", 1e-3),
)


def settings(method: Method) -> list[Setting]:
    """Every point of a method's grid."""
    rates = getattr(method, "learning_rate", [None])
    gammas = getattr(method, "gamma", getattr(method, "step_size", [None]))
    others = getattr(method, "ramp", False), getattr(method, "likelihood", None)
    return [Setting(method.kind, *point, *others) for point in itertools.product(rates, gammas)]


class Start(NamedTuple):
    """Where every method starts."""

    kernel: KernelConfig
    problem: Problem
    split: Split
    Z: Array | None  # [M, D]; none for a full GP


_KERNEL = KernelConfig()


def clustered(split: Split, num_inducing: int) -> Array:
    """
    The training inputs that inducing points are chosen from.

    :raises ConfigError: where fewer than ``num_inducing`` of them are distinct.
    """
    some = split.X[:100_000]  # in random order; of millions, a part has the same centres
    distinct = len(np.unique(some, axis=0))
    if num_inducing > distinct:
        raise ConfigError(
            f"num_inducing must be at most the number of distinct training inputs, {distinct} of "
            f"{split.name}. Found: {num_inducing}."
        )
    return some


def make_start(
    split: Split, problem: Problem, num_inducing: int, seed: int, kernel: KernelConfig = _KERNEL
) -> Start:
    """
    The centres of k-means++ for Z.

    :raises ConfigError: for more inducing points than distinct training inputs.
    """
    Z = None
    if not problem.full:
        Z = gpflow_aaci.kmeans_plusplus(clustered(split, num_inducing), num_inducing, seed)
    return Start(kernel, problem, split, Z)


def synthetic_start(num_data: int, input_dim: int, num_inducing: int) -> Start:
    """The start of a model of made-up data of this shape with Student-t noise."""
    problem = Problem(data="synthetic", likelihood=LikelihoodConfig(name="StudentT"))
    dataset = Dataset(problem, *made_up((num_data, input_dim), problem))
    return make_start(dataset.whole(), problem, num_inducing, seed=0)


Model: TypeAlias = gpflow.models.SVGP | gpflow.models.VGP


def make_model(start: Start, is_augmented: bool, other: OtherName | None = None) -> Model:
    """
    Ours or GPflow's at the start: a full GP or an SVGP, its Z fixed as in the paper.

    Classes have a latent GP each, of a mean that is learnt; so have counts, whose unit is unknown.

    :param other: a likelihood in the place of the problem's.
    """
    X, Y = start.split.X, start.split.Y
    # Unless given, the root mean square of the distance of two inputs: E‖x − x'‖² = 2 Σ_d Var x_d.
    lengthscales = start.kernel.lengthscale or np.sqrt(2.0 * X.var(axis=0).sum())
    lengthscales = [lengthscales] * X.shape[1] if start.kernel.ard else lengthscales
    make_kernel = getattr(gpflow.kernels, start.kernel.name)
    kernel = make_kernel(variance=start.kernel.variance, lengthscales=lengthscales)
    K = start.split.num_classes
    name = other or start.problem.likelihood.name
    is_tree = name == "LogisticTree"
    tree = gpflow_aaci.likelihoods.ward_tree(X, Y) if is_tree else None
    if other is None:
        likelihood = start.problem.likelihood.make(K, tree)
    elif other in get_args(OwnName):
        likelihood = LikelihoodConfig(name=other).make(K, tree)
    else:
        likelihood = getattr(gpflow.likelihoods, other)(*([K] if K else []))
    options: dict[str, Any] = {"num_latent_gps": max(K - is_tree, 1)}
    if start.split.kind in ("classes", "counts") and name not in get_args(OwnName):
        # Where every σ(f) is ½ no class has more than 2/(K + 1).
        options["mean_function"] = gpflow.functions.Constant(-np.log(max(K, 1)))
    if start.Z is None:
        full = gpflow_aaci.AugmentedVGP if is_augmented else gpflow.models.VGP
        return full((X, Y), kernel, likelihood, **options)
    sparse = gpflow_aaci.AugmentedSVGP if is_augmented else gpflow.models.SVGP
    model = sparse(kernel, likelihood, start.Z.copy(), num_data=len(X), **options)
    gpflow.set_trainable(model.inducing_variable, False)
    return model


Batch: TypeAlias = tuple[tf.Tensor, tf.Tensor] | None
"""X and Y; None for a model that keeps its data."""


def all_rows(start: Start) -> Batch:
    """All training rows as one batch."""
    return None if start.Z is None else (tf.constant(start.split.X), tf.constant(start.split.Y))


_SCHEDULES: dict[Any, Any] = {
    "adaptive": gpflow_aaci.inference.AdaptiveStepSize,
    "robbins-monro": gpflow_aaci.inference.RobbinsMonro,
}
Step = Callable[[], None]
"""One step of training; raises ``tf.errors.InvalidArgumentError`` where it cannot be taken."""


def make_method(
    setting: Setting, start: Start, batches: Iterator[Batch]
) -> tuple[Model, Step, list[tf.Variable]]:
    """
    Of a method that steps: a fresh model, one step on the next batch, all variables of both.

    The first step compiles.
    """
    model = make_model(start, setting.kind == "alternating", setting.likelihood)
    adam = tf_keras.optimizers.Adam(setting.learning_rate)
    if setting.kind == "alternating":
        size: Any = _SCHEDULES[setting.gamma]() if setting.gamma in _SCHEDULES else setting.gamma
        optimizer = gpflow_aaci.AlternatingOptimizer(size, adam)
        optimizer.build(model)
        data = None if start.Z is None else batches
        alternate = tf.function(lambda: optimizer.minimize(model, data), autograph=False)
        return model, alternate, [*model.variables, *optimizer.variables, *adam.variables]

    gamma = tf.Variable(1e-5 if setting.ramp else setting.gamma or 0.0, dtype=tf.float64)
    natural = gpflow.optimizers.NaturalGradient(gamma)
    has_natural, q = setting.kind == "natgrad", (model.q_mu, model.q_sqrt)
    if has_natural:  # else q is among the variables of Adam
        for parameter in q:
            gpflow.set_trainable(parameter, False)
    adam.build(model.trainable_variables)

    @tf.function(autograph=False)
    def step() -> None:
        batch = next(batches)

        def loss() -> tf.Tensor:
            return model.training_loss() if batch is None else model.training_loss(batch)

        if has_natural:
            natural.minimize(loss, [q])
        adam.minimize(loss, model.trainable_variables)

    variables = [*model.variables, *adam.variables, gamma]
    return model, _ramp(step, gamma, setting.gamma) if setting.ramp else step, variables


def _ramp(step: Step, gamma: tf.Variable, largest: Any) -> Step:
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


def minibatches(start: Start, batch_size: int, seed: int) -> Iterator[Batch]:
    """Shuffled batches without end, the same for every method; or all rows again and again."""
    X, Y = start.split.X, start.split.Y
    if start.Z is None or batch_size >= len(X):
        return itertools.repeat(all_rows(start))
    dataset = tf.data.Dataset.from_tensor_slices((X, Y))
    # The rows are in random order as they are: a buffer of millions would only cost memory.
    dataset = dataset.shuffle(min(len(X), 100_000), seed=seed).repeat()
    return iter(untuned(dataset.batch(batch_size).prefetch(1)))


class CountingScipy(gpflow.optimizers.Scipy):
    """GPflow's own, which also counts its evaluations."""

    evaluations = 0

    def eval_func(self, *args: Any, **kwargs: Any) -> Callable[[Array], tuple[Array, Array]]:
        evaluate = super().eval_func(*args, **kwargs)

        def counted(x: Array) -> tuple[Array, Array]:
            self.evaluations += 1
            return evaluate(x)

        return counted
