"""``AlternatingOptimizer``: a closed-form step on q(u) and a step of Adam from one forward pass."""

from typing import Any, NamedTuple

import tensorflow as tf
from gpflow.keras import tf_keras
from gpflow.kullback_leiblers import gauss_kl

from ..algebra.arrow import dense
from ..algebra.gaussian import (
    Gaussian,
    averaged,
    lower_triangular_inverse,
    optimal_naturals,
    q_to_naturals,
    safeguarded,
    whiten,
)
from ..algebra.projection import Projection, marginals, to_q
from ..algebra.statistics import stepped_in_turn
from ..algebra.terms import Term, augmented_bound, by_tape
from ..data import Data
from ..models import AugmentedModel
from ..runtime.mirrored import local
from ..runtime.structure import structure_of
from ..validation import check_finite, require
from .bound_gradient import Recorded, bound_gradient, recorded, value_and_gradient
from .compiled_steps import Settings
from .optimizers import check_step_size, finite_q
from .schedules import AdaptiveStepSize, NaturalGradient, Schedule, as_schedule
from .stepper import Move, Stepper


class _Direction(NamedTuple):
    """A natural gradient of the bound over a batch."""

    value: tf.Tensor  # [], of the sum over the batch
    naturals: tuple[tf.Tensor, tf.Tensor]  # of q
    target: tuple[tf.Tensor, tf.Tensor]  # of the q that a step of size 1 leads to
    step_size: tf.Tensor


class AlternatingOptimizer(Stepper):
    """
    Closed-form natural-gradient steps on q(u), and a tf_keras optimizer for the hyperparameters.

    AACI Algorithm 3 with both steps from one batch and one forward pass: the kernel matrices, their
    Cholesky factor and projection are computed once, q(u) moves, and the gradient of the bound at
    the new q(u) is written out (:mod:`~gpflow_aaci.inference.bound_gradient`). ``q_mu`` and
    ``q_sqrt`` move whether they are trainable or not::

        optimizer = AlternatingOptimizer()
        rows = tf.data.Dataset.from_tensor_slices((X, Y))
        batches = iter(rows.shuffle(N, seed=0).repeat().batch(100))
        for _ in range(2000):
            optimizer.minimize(model, batches)

    As it is a ``tf.Module``, ``tf.train.Checkpoint(model=model, optimizer=optimizer)`` stores its
    state.
    """

    argument, moves_q = "hyperparameter_optimizer", False

    def __init__(
        self,
        step_size: float | Schedule | None = None,
        hyperparameter_optimizer: tf_keras.optimizers.Optimizer | None = None,
        every: int = 1,
    ) -> None:
        """
        :param step_size: the step size of q(u), in (0, 1], or a schedule: ``RobbinsMonro()``, or
            (the default) ``AdaptiveStepSize()``, which is 1 on full batches.
        :param hyperparameter_optimizer: a tf_keras optimizer. Default: ``Adam(0.03)``.
        :param every: only each ``every``-th step, beginning with the first, moves the
            hyperparameters.
        :raises ValueError: for a step size outside (0, 1], ``every`` below 1, or an optimizer of
            ``tf_keras.optimizers.legacy``.
        """
        if not (isinstance(every, int) and every >= 1):
            raise ValueError(f"every must be an integer of at least 1. Found: {every!r}.")
        is_default = hyperparameter_optimizer is None
        super().__init__(tf_keras.optimizers.Adam(0.03) if is_default else hyperparameter_optimizer)
        self.schedule = as_schedule(AdaptiveStepSize() if step_size is None else step_size)
        self.every = every
        # The last step's size, for monitors.
        self.step_size = tf.Variable(0.0, dtype=tf.float64, trainable=False)

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that must be the same for a run to be resumed."""
        of_hyperparameters = self.hyperparameter_optimizer.get_config()
        return {
            "every": self.every,
            "schedule": self.schedule,
            type(self.hyperparameter_optimizer).__name__: of_hyperparameters,
        }

    def _depends_on(self) -> Settings:
        own, of_schedule = super()._depends_on(), structure_of(self.schedule)
        constants, values = of_schedule or ((), [])
        return Settings(
            (*own.constants, constants),
            [*own.objects, *values, self.schedule, self.step_size],
            own.are_known and of_schedule is not None,
        )

    def _move(self, model: AugmentedModel, data: Data, variables: list[tf.Variable]) -> Move:
        X, Y = data.rows
        at = recorded(model.prior, X, persistent=not model.whiten)
        term, q_before = model.term(augmented_bound), model.whitened_q(at.projection.chol)
        direction = self._direction(term, at.projection, q_before, data)
        step_size = direction.step_size

        def step(size: tf.Tensor) -> Gaussian:
            if model.in_turn:
                return stepped_in_turn(
                    at.projection, term, q_before, X, Y, data.total, size, within=model.within
                )
            return model.within(averaged(direction.naturals, direction.target, size))

        def bound(value: tf.Tensor, q: Gaussian) -> tf.Tensor:
            return data.total([value])[0] - gauss_kl(*q)

        def value(q: Gaussian) -> tf.Tensor:
            return bound(tf.reduce_sum(term.of_each(X, *marginals(at.projection, *q), Y)), q)

        if model.likelihood.is_augmented:
            q = step(step_size)
        else:
            before = bound(direction.value, q_before)
            q, step_size = safeguarded(step, value, before, step_size)
        stored = model.stored_q(q, at.projection.chol)
        gradients = []
        if variables:
            sources = local(variables)
            parts = [data.total(bound_gradient(term, sources, at, q, X, Y))]
            parts.append(value_and_gradient(model.log_prior_density, sources)[1])
            if not model.whiten:
                parts.append(_through_whitening(term, sources, at, q, stored, data))
            gradients = [tf.add_n(of_one) for of_one in zip(*parts, strict=True)]
        return Move(
            gradients,
            [
                (model.q_mu, stored.mu),
                (model.q_sqrt, stored.sqrt),
                (self.step_size, tf.cast(step_size, tf.float64)),
            ],
            [check_step_size(step_size), *finite_q(*stored)],
        )

    def _direction(self, term: Term, projection: Projection, q: Gaussian, data: Data) -> _Direction:
        """Where the natural gradient of the bound at ``q`` leads to, and how far to go there."""
        X, Y = data.rows
        Fmu, Fvar = marginals(projection, *q)
        value, in_mean, in_variance = term.slopes(X, Fmu, Fvar, Y)
        potential = in_mean - 2.0 * in_variance * (Fmu - projection.mean)
        squares = tf.square(tf.transpose(potential)) * projection.explained
        a, B, of_squares = data.total(
            [*to_q(projection, in_mean, in_variance), tf.reduce_sum(squares)]
        )
        naturals, target = q_to_naturals(*q), optimal_naturals(q.mu, a, dense(B))
        gradient = NaturalGradient(
            tf.reduce_sum(tf.square(target[0] - naturals[0])), _noise(of_squares, target[0], data)
        )
        checks = [check_finite("the natural gradient", part) for part in gradient]
        with tf.control_dependencies([require(checks)]):
            return _Direction(value, naturals, target, self.schedule(self.step, gradient))


def _noise(squares: tf.Tensor, target_1: tf.Tensor, data: Data) -> tf.Tensor:
    """
    tr Var of λ̂₁ = scale · Σ_i A_i potential_i over batches drawn without replacement.

    :param squares: scale · Σ_i ‖A_i potential_i‖² [].
    """
    size = tf.cast(data.num_rows, squares.dtype)
    about_mean = data.scale * squares - tf.reduce_sum(tf.square(target_1)) / size
    return about_mean * size / tf.maximum(size - 1.0, 1.0) * tf.maximum(1.0 - 1.0 / data.scale, 0.0)


def _through_whitening(
    term: Term,
    variables: list[tf.Variable],
    at: Recorded,
    q_v: Gaussian,
    q_u: Gaussian,
    data: Data,
) -> list[tf.Tensor]:
    """The gradient of the objective through q(v), which moves with K_ZZ while q(u) stays."""
    X, Y = data.rows
    slopes = by_tape(term.of_each).slopes(X, *marginals(at.projection, *q_v), Y)
    a, B = data.total(to_q(at.projection, *slopes[1:]))
    R_inverse = lower_triangular_inverse(q_v.sqrt)
    of_kl = q_v.sqrt - tf.linalg.matrix_transpose(R_inverse)
    in_sqrt = 2.0 * tf.matmul(dense(B), q_v.sqrt) - of_kl
    K_ZZ = at.prior.K_ZZ
    with tf.GradientTape() as tape:
        tape.watch(K_ZZ)
        moving = whiten(*q_u, tf.linalg.cholesky(dense(K_ZZ)))
    bars = Gaussian(a - q_v.mu, tf.linalg.band_part(in_sqrt, -1, 0))
    in_K_ZZ = tape.gradient(moving, K_ZZ, output_gradients=bars)
    return at.tape.gradient(K_ZZ, variables, output_gradients=in_K_ZZ, unconnected_gradients="zero")
