"""``AlternatingOptimizer``: closed-form steps on q(u), Adam's on the rest, one forward pass."""

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from gpflow.base import RegressionData
from gpflow.keras import tf_keras

from ..algebra.gaussian import (
    Gaussian,
    averaged,
    lower_triangular_inverse,
    optimal_naturals,
    q_to_naturals,
    whiten,
)
from ..algebra.projection import Prior, Projection, marginals, project, to_q
from ..algebra.statistics import stepped_in_turn
from ..algebra.terms import augmented
from ..data import StepData, check_step_data, next_batch
from ..models import (
    AugmentedModel,
    check_model,
    hyperparameters,
    local,
    refresh_posteriors,
)
from ..validation import check_finite, require
from ..workers import num_workers, strategy_of, sum_over_workers
from .bound_gradient import bound_gradient, log_prior_gradient
from .optimizers import agree_once, check_step_size, finite_q, rows_of_all
from .schedules import AdaptiveStepSize, NaturalGradient, Schedule, as_schedule

_OPTIMIZER = "hyperparameter_optimizer"

# Which variables an optimizer has slots for; tf_keras' own ``build`` is silent the second time.
_BUILT_FOR: "weakref.WeakKeyDictionary[Any, list[weakref.ref[tf.Variable]]]" = (
    weakref.WeakKeyDictionary()
)


class AlternatingOptimizer(tf.Module):
    """
    Natural-gradient steps on q(u) in closed form, a tf_keras optimizer for the hyperparameters.

    AACI Algorithm 3 with both steps from one batch and one forward pass: the kernel matrices, their
    Cholesky factor and projection are computed once, q(u) moves, and the gradient of the bound at
    the new q(u) is written out (:mod:`~gpflow_aaci.inference.bound_gradient`). It manages q itself,
    so ``q_mu`` and ``q_sqrt`` may be trainable or not::

        optimizer = AlternatingOptimizer()
        batches = iter(tf.data.Dataset.from_tensor_slices((X, Y)).shuffle(N).repeat().batch(100))
        step = tf.function(lambda: optimizer.minimize(model, batches), autograph=False)
        for _ in range(2000):
            step()

    A ``tf.Module``: ``tf.train.Checkpoint(model=model, optimizer=optimizer)`` keeps its state.
    """

    def __init__(
        self,
        step_size: float | Schedule | None = None,
        hyperparameter_optimizer: tf_keras.optimizers.Optimizer | None = None,
        every: int = 1,
    ) -> None:
        """
        :param step_size: of q(u), in (0, 1], or a schedule: ``RobbinsMonro()``, or (the default)
            ``AdaptiveStepSize()``, which is 1 on full batches.
        :param hyperparameter_optimizer: ``Adam(0.03)`` unless given.
        :param every: the hyperparameters move at every ``every``-th step only, the first one
            included.
        :raises ValueError: for a step size outside (0, 1], ``every`` below 1, or an optimizer of
            ``tf_keras.optimizers.legacy``.
        """
        super().__init__()
        if not (isinstance(every, int) and every >= 1):
            raise ValueError(f"every must be an integer of at least 1. Found: {every!r}.")
        if hyperparameter_optimizer is not None:
            check_has_slots(_OPTIMIZER, hyperparameter_optimizer)
        self.schedule = as_schedule(AdaptiveStepSize() if step_size is None else step_size)
        self.hyperparameter_optimizer = hyperparameter_optimizer or tf_keras.optimizers.Adam(0.03)
        self.every = every
        self.step = tf.Variable(0, dtype=tf.int64, trainable=False)  # how many have been taken
        # The last step's size, for monitors.
        self.step_size = tf.Variable(0.0, dtype=tf.float64, trainable=False)

    @property
    def settings(self) -> dict[str, Any]:
        """What must be the same for a run to go on."""
        of_hyperparameters = self.hyperparameter_optimizer.get_config()
        return {
            "every": self.every,
            "schedule": self.schedule,
            type(self.hyperparameter_optimizer).__name__: of_hyperparameters,
        }

    def build(self, model: AugmentedModel) -> None:
        """
        Make the slots of the hyperparameter optimizer; ``minimize`` does so, too.

        :raises ValueError: where it has slots already, and not for the variables of ``model``.
        """
        build_slots(_OPTIMIZER, self.hyperparameter_optimizer, hyperparameters(model))

    def minimize(
        self, model: AugmentedModel, data: StepData = None, num_data: int | None = None
    ) -> None:
        """
        One step on q(u), then one on the trainable hyperparameters. Works inside ``tf.function``.

        :param data: (X [N, D], Y [N, P]) or an iterator of such batches for ``AugmentedSVGP``;
            none for ``AugmentedVGP``.
        :param num_data: how many rows the batches are of, for a model that has been told none. A
            pair (X, Y) is all data without it; with an iterator one of the two must be given.
        :raises ValueError, tf.errors.InvalidArgumentError: for bad data, or where the updated q or
            a gradient is not finite; the model and the optimizer are then as they were.
        """
        check_model(model)
        check_step_data(model, data, num_data)
        agree_once(model, "AlternatingOptimizer.minimize", lambda: self.settings)
        variables = hyperparameters(model)
        build_slots(_OPTIMIZER, self.hyperparameter_optimizer, variables)
        batch = next_batch(data)
        if self.every == 1:
            self._alternate(model, batch, num_data, variables)
            return
        tf.cond(
            tf.equal(self.step % self.every, 0),
            lambda: self._alternate(model, batch, num_data, variables),
            lambda: self._alternate(model, batch, num_data, []),
        )

    def _alternate(
        self,
        model: AugmentedModel,
        batch: RegressionData | None,
        num_data: int | None,
        variables: list[tf.Variable],
    ) -> tf.Tensor:
        rows = rows_of_all(model, batch, num_data)
        with tf.GradientTape() as tape:
            prior = model.prior(rows[0])
        projection = project(prior)
        q, step_size = _moved_q(
            model, projection, *rows, lambda gradient: self.schedule(self.step, gradient)
        )
        kept = model.as_kept(q, projection.chol)
        gradients = _gradients(model, variables, tape, prior, projection, q, kept, *rows)
        checks = [check_step_size(step_size), *finite_q(*kept)]
        for variable, gradient in zip(variables, gradients, strict=True):
            checks.append(check_finite(f"the gradient in {variable.name}", gradient))
        with tf.control_dependencies([require(checks)]):
            model.q_mu.assign(kept.mu)
            model.q_sqrt.assign(kept.sqrt)
            if variables:
                ascend(self.hyperparameter_optimizer, gradients, variables)
            self.step_size.assign(tf.cast(step_size, tf.float64))
            done = self.step.assign_add(1)
        with tf.control_dependencies([done]):
            refresh_posteriors(model)
            return tf.identity(done)


def _moved_q(
    model: AugmentedModel,
    projection: Projection,
    X: tf.Tensor,
    Y: tf.Tensor,
    scale: tf.Tensor,
    choose: Callable[[NaturalGradient], tf.Tensor],
) -> tuple[Gaussian, tf.Tensor]:
    """q(v) after a step, and the size of that step."""
    q = model.whitened_q(projection.chol)
    Fmu, Fvar = marginals(projection, *q)
    term = model.term(augmented)
    _, in_mean, in_variance = term.slopes(X, Fmu, Fvar, Y)
    potential = in_mean - 2.0 * in_variance * (Fmu - projection.mean)

    def over_all(sums: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        return sum_over_workers(model.strategy, sums)

    a, B, squares, size = over_all(
        [*to_q(projection, in_mean, in_variance), *_squares(projection.A, potential)]
    )
    naturals, target = q_to_naturals(*q), optimal_naturals(q.mu, scale * a, scale * B)
    gradient = NaturalGradient(
        tf.reduce_sum(tf.square(target[0] - naturals[0])),
        _noise(squares, size, target[0], scale),
    )
    checks = [check_finite("the natural gradient", part) for part in gradient]
    with tf.control_dependencies([require(checks)]):
        step_size = choose(gradient)
    if model.in_turn:
        moved = stepped_in_turn(projection, term, q, X, Y, scale, step_size, over_all)
        return moved, step_size
    return averaged(naturals, target, step_size), step_size


def check_has_slots(name: str, optimizer: tf_keras.optimizers.Optimizer) -> None:
    """
    :raises ValueError: unless they can be made before a step.
    """
    if isinstance(optimizer, type):
        raise ValueError(
            f"{name} must be an optimizer, not a class of them: Adam(0.01). "
            f"Found: the class {optimizer.__name__}."
        )
    if not hasattr(optimizer, "build") or not hasattr(optimizer, "apply_gradients"):
        found = type(optimizer)
        raise ValueError(
            f"{name} must be one of tf_keras.optimizers or keras.optimizers, "
            "not of tf_keras.optimizers.legacy, whose slots cannot be made before a step. "
            f"Found: {found.__module__}.{found.__name__}."
        )


def build_slots(
    name: str, optimizer: tf_keras.optimizers.Optimizer, variables: list[tf.Variable]
) -> None:
    """
    :param name: of the argument that ``optimizer`` is.
    :raises ValueError: where it has been built for others.
    """
    if optimizer not in _BUILT_FOR:
        elsewhere = getattr(optimizer, "built", getattr(optimizer, "_built", False))
        if not elsewhere:
            with tf.init_scope(), strategy_of(variables).scope():
                optimizer.build(variables)
        _BUILT_FOR[optimizer] = [] if elsewhere else [weakref.ref(v) for v in variables]
    known = [reference() for reference in _BUILT_FOR[optimizer]]
    foreign = [v.name for v in variables if not any(v is other for other in known)]
    if foreign:
        raise ValueError(
            f"{name} must be a new one for each model: this one has been used for another, or for "
            "other trainable parameters of this one. Found variables that it does not know: "
            f"{foreign}."
        )


def ascend(
    optimizer: tf_keras.optimizers.Optimizer,
    gradients: Sequence[tf.Tensor],
    variables: Sequence[tf.Variable],
) -> None:
    """A step along gradients that every device of all workers has whole."""
    strategy = strategy_of(variables)
    of_each = float(strategy.num_replicas_in_sync)  # whose gradients it adds up
    pairs = list(zip(gradients, variables, strict=True))
    # Negated on each device, or they would be tensors of the first alone.
    strategy.run(lambda: optimizer.apply_gradients([(-g / of_each, v) for g, v in pairs]))


def _gradients(
    model: AugmentedModel,
    variables: list[tf.Variable],
    tape: tf.GradientTape,
    prior: Prior,
    projection: Projection,
    q: Gaussian,
    kept: Gaussian,
    X: tf.Tensor,
    Y: tf.Tensor,
    scale: tf.Tensor,
) -> list[tf.Tensor]:
    """Of the objective, in the variables, at q(v); where u is not whitened, at q(u) as kept."""
    if not variables:
        return []
    sources = local(variables)

    def through_q(a: tf.Tensor, B: tf.Tensor) -> tf.Tensor:
        share = 1.0 / num_workers(model.strategy)  # of the KL; B and a are of the rows here
        return _through_whitening(prior.K_ZZ, kept, q, a, B, share)

    of_bound = bound_gradient(
        model.term(augmented),
        sources,
        tape,
        prior,
        projection,
        q,
        X,
        Y,
        scale,
        through_q=None if model.whiten else through_q,
    )
    of_bound = sum_over_workers(model.strategy, of_bound)
    _, of_prior = log_prior_gradient(model, sources)
    return [x + y for x, y in zip(of_bound, of_prior, strict=True)]


def _squares(A: tf.Tensor, potential: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Σ_i ‖A_i potential_i‖² [], and how many rows i there are."""
    squares = tf.square(tf.transpose(potential)) * tf.reduce_sum(tf.square(A), -2)  # [L, N]
    return tf.reduce_sum(squares), tf.cast(tf.shape(A)[-1], A.dtype)


def _noise(squares: tf.Tensor, size: tf.Tensor, target_1: tf.Tensor, scale: tf.Tensor) -> tf.Tensor:
    """tr Var of λ̂₁ = scale · Σ_i A_i potential_i over batches drawn without replacement."""
    total = tf.square(scale) * squares
    about_mean = total - tf.reduce_sum(tf.square(target_1)) / size
    return about_mean * size / tf.maximum(size - 1.0, 1.0) * tf.maximum(1.0 - 1.0 / scale, 0.0)


def _through_whitening(
    K_ZZ: tf.Tensor, q_u: Gaussian, q_v: Gaussian, a: tf.Tensor, B: tf.Tensor, share: float = 1.0
) -> tf.Tensor:
    """The gradient in K_ZZ through q(v), which moves with it where q(u) stands still."""
    R_inverse = lower_triangular_inverse(q_v.sqrt)
    of_kl = q_v.sqrt - tf.linalg.matrix_transpose(R_inverse)
    in_sqrt = 2.0 * tf.matmul(B, q_v.sqrt) - share * of_kl
    with tf.GradientTape() as tape:
        tape.watch(K_ZZ)
        moving = whiten(*q_u, tf.linalg.cholesky(K_ZZ))
    bars = Gaussian(a - share * q_v.mu, tf.linalg.band_part(in_sqrt, -1, 0))
    return tape.gradient(moving, K_ZZ, output_gradients=bars)
