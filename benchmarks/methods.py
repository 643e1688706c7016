"""
The contestants: same kernel, inducing points and batches for each, and the same likelihood object.

``LABELS`` has a name for every kind, ``settings`` the points of its grid. GPflow's methods may have
one of its own likelihoods instead, and have it in their name.
"""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.keras import tf_keras

import gpflow_aaci

from .config import ConfigError, GPFlowsName, KernelConfig, LikelihoodConfig, Method, Problem
from .datasets import Array, Split

LABELS = {
    "collapsed": "AACI, collapsed",
    "alternating": "AACI",
    "natgrad": "NatGrad + Adam",
    "adam": "Adam",
    "scipy": "Scipy L-BFGS",
}


def label(kind: str, likelihood: str | None = None) -> str:
    """The method's name, in parentheses the likelihood where it is not the problem's."""
    return LABELS[kind] + (f" ({likelihood})" if likelihood else "")


GPFLOWS = tuple(
    label(kind, likelihood)
    for kind in ("natgrad", "adam", "scipy")
    for likelihood in (None, *get_args(GPFlowsName))
)


@dataclass(frozen=True)
class Setting:
    """One point of a method's tuning grid; None where a method has no such thing."""

    kind: str
    learning_rate: float | None = None
    gamma: float | Literal["adaptive", "robbins-monro"] | None = None  # the step size of q(u)
    ramp: bool = False
    likelihood: GPFlowsName | None = None  # in the place of the problem's

    @property
    def method(self) -> str:
        """Its name, whatever the point of its grid."""
        return label(self.kind, self.likelihood)

    @property
    def is_papers(self) -> bool:
        """Whether the paper's scripts ran it."""
        return self in _PAPERS

    def __str__(self) -> str:
        parts = [
            f"step {self.gamma}" if self.gamma else "",
            "ramp" if self.ramp else "",
            f"lr {self.learning_rate:g}" if self.learning_rate else "",
        ]
        return ", ".join(part for part in parts if part) or "nothing to tune"


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


@dataclass(frozen=True)
class Start:
    """Where every method starts."""

    kernel: KernelConfig
    problem: Problem
    split: Split
    Z: Array | None  # [M, D]; none for a full GP
    lengthscale: float


_CLUSTERED = 100_000
_KERNEL = KernelConfig()


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
    split: Split, problem: Problem, num_inducing: int, seed: int, kernel: KernelConfig = _KERNEL
) -> Start:
    """
    k-means++ centres for Z, the root mean squared distance for a lengthscale not given.

    :raises ConfigError: for more inducing points than distinct training inputs.
    """
    Z = None
    if not problem.full:
        Z = gpflow_aaci.kmeans_plusplus(clustered(split, num_inducing), num_inducing, seed)
    lengthscale = kernel.lengthscale or root_mean_squared_distance(split.X)
    return Start(kernel, problem, split, Z, lengthscale)


def synthetic_start(num_data: int, input_dim: int, num_inducing: int) -> Start:
    """Of a wave in many dimensions with Student-t noise."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(num_data, input_dim))
    Y = np.sin(X.sum(axis=1, keepdims=True)) + 0.3 * rng.standard_t(3, size=(num_data, 1))
    problem = Problem(data="wave", likelihood=LikelihoodConfig(name="StudentT"))
    return make_start(Split("wave", X, Y, X[:100], Y[:100]), problem, num_inducing, seed=0)


def root_mean_squared_distance(X: Array) -> float:
    """Of two rows: E‖x − x'‖² = 2 Σ_d Var x_d."""
    return float(np.sqrt(2.0 * X.var(axis=0).sum()))


def make_likelihood(
    config: LikelihoodConfig, num_classes: int | None = None
) -> gpflow_aaci.likelihoods.AugmentedLikelihood:
    """The likelihood of that name."""
    own = {"num_classes": num_classes} if config.kind == "classes" else config.parameters
    likelihood = getattr(gpflow_aaci.likelihoods, config.name)(**own)
    if config.warp is not None:
        warp = getattr(gpflow_aaci.likelihoods.warps, config.warp)()
        likelihood = gpflow_aaci.likelihoods.Warped(likelihood, warp)
    if not config.trainable:  # else what is fixed by its nature (a quantile's level) stays so
        gpflow.set_trainable(likelihood, False)
    return likelihood


Model: TypeAlias = gpflow.models.SVGP | gpflow.models.VGP


def make_model(start: Start, is_augmented: bool, gpflows: GPFlowsName | None = None) -> Model:
    """
    Ours or GPflow's at the start: a full GP or an SVGP, its Z fixed as in the paper.

    Classes have a latent GP each, of a mean that is learnt; so have counts, whose unit is unknown.

    :param gpflows: a likelihood of GPflow's own in the place of the problem's.
    """
    X, Y = start.split.X, start.split.Y
    lengthscales = [start.lengthscale] * X.shape[1] if start.kernel.ard else start.lengthscale
    make_kernel = getattr(gpflow.kernels, start.kernel.name)
    kernel = make_kernel(variance=start.kernel.variance, lengthscales=lengthscales)
    kind, K = start.split.kind, start.split.num_classes
    if gpflows is not None:
        likelihood = getattr(gpflow.likelihoods, gpflows)(*([K] if kind == "classes" else []))
    else:
        likelihood = make_likelihood(start.problem.likelihood, K)
    options: dict[str, Any] = {"num_latent_gps": K if kind == "classes" else 1}
    if kind in ("classes", "counts"):
        # Where every σ(f) is ½ no class has more than 2/(K + 1).
        of_all = -np.log(K) if kind == "classes" else 0.0
        options["mean_function"] = gpflow.functions.Constant(of_all)
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
    """In one batch."""
    is_full = start.Z is None
    return None if is_full else (tf.constant(start.split.X), tf.constant(start.split.Y))


_SCHEDULES: dict[Any, Any] = {
    "adaptive": gpflow_aaci.AdaptiveStepSize,
    "robbins-monro": gpflow_aaci.RobbinsMonro,
}
_FIRST_GAMMA = 1e-5

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

    natural = None
    gamma = tf.Variable(_FIRST_GAMMA if setting.ramp else setting.gamma or 0.0, dtype=tf.float64)
    q = [(model.q_mu, model.q_sqrt)]
    if setting.kind == "natgrad":
        gpflow.set_trainable(model.q_mu, False)
        gpflow.set_trainable(model.q_sqrt, False)
        natural = gpflow.optimizers.NaturalGradient(gamma)
    adam.build(model.trainable_variables)

    @tf.function(autograph=False)
    def step() -> None:
        batch = next(batches)

        def loss() -> tf.Tensor:
            return model.training_loss() if batch is None else model.training_loss(batch)

        if natural is not None:  # else q is among the variables of Adam
            natural.minimize(loss, q)
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


_SHUFFLED = 100_000


def minibatches(start: Start, batch_size: int, seed: int) -> Iterator[Batch]:
    """Shuffled batches without end, the same for every method; or all rows again and again."""
    X, Y = start.split.X, start.split.Y
    if start.Z is None or batch_size >= len(X):
        return itertools.repeat(all_rows(start))
    dataset = tf.data.Dataset.from_tensor_slices((X, Y))
    # The rows are in random order as they are: a buffer of millions would only cost memory.
    dataset = dataset.shuffle(min(len(X), _SHUFFLED), seed=seed).repeat()
    return iter(dataset.batch(batch_size).prefetch(1))


class CountingScipy(gpflow.optimizers.Scipy):
    """GPflow's own, which also counts its evaluations."""

    evaluations = 0

    def eval_func(self, *args: Any, **kwargs: Any) -> Callable[[Array], tuple[Array, Array]]:
        evaluate = super().eval_func(*args, **kwargs)

        def counted(x: Array) -> tuple[Array, Array]:
            self.evaluations += 1
            return evaluate(x)

        return counted
