"""The search of ``fit_collapsed``: stretches on more and more rows, and the state between them."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray

from ..algebra.gaussian import Gaussian
from ..checkpoints import check_objective
from ..models.variables import undone_on_failure
from .objective import Objective, Stretch
from .quasi_newton import Curvature, Point, ascend
from .rescues import in_other_units, with_more_signal
from .settings import SETTINGS
from .starting import not_finite_at_start, q_at_start

_GAINED_LITTLE = f"the last {SETTINGS.last_iterations} iterations gained too little"
_NO_STEP_GAINS = "no step gains"
_NOTHING_ELSE = "nothing but q is trainable"
_ITERATIONS_USED = "the most iterations were reached"
_NOT_FINITE = "the objective is not finite"
CONVERGED = (_GAINED_LITTLE, _NO_STEP_GAINS, _NOTHING_ELSE)

_FILE = "state.npz"


class State(NamedTuple):
    """The state of a fit, which a checkpoint stores."""

    point: Point  # on the rows of the stretch
    q: Gaussian  # the optimal q at ``point``
    curvature: Curvature
    recent: AnyNDArray  # gains of the last iterations
    x_begin: AnyNDArray
    q_begin: Gaussian
    start: float  # the objective at the beginning, on all rows
    stretch: int = 0
    iteration: int = 0  # of the stretch
    evaluations: int = 0
    reason: str = ""  # why the stretch has ended

    def write(self, folder: Path) -> None:
        flat = tf.nest.flatten(self)
        np.savez(folder / _FILE, **{str(i): np.asarray(part) for i, part in enumerate(flat)})

    @classmethod
    def read(cls, folder: Path) -> "State":
        with np.load(folder / _FILE) as arrays:
            x, value, gradient, mu, sqrt, *rest = (arrays[str(i)] for i in range(len(arrays)))
        matrix, steps, changes, recent, x_begin, mu_begin, sqrt_begin, *counts = rest
        return cls(
            Point(x, value.item(), gradient),
            Gaussian(tf.constant(mu), tf.constant(sqrt)),
            Curvature(matrix, steps, changes),
            recent,
            x_begin,
            Gaussian(tf.constant(mu_begin), tf.constant(sqrt_begin)),
            *(count.item() for count in counts),
        )


class HyperparameterSearch:
    """The steps of a fit, each of which turns a state into the next."""

    def __init__(self, objective: Objective) -> None:
        self.objective = objective
        self._size = objective.coordinates.size

    def begin(self, first: Stretch) -> State:
        """
        The state of the model before the first iteration.

        :raises ValueError: where the objective is finite neither at the model's q nor at the
            optimal q for the rows of ``first``. The model is then unchanged.
        """
        objective = self.objective
        q, x = q_at_start(objective.model, objective.data), objective.coordinates.pack()
        value = objective.value(q)
        if not np.isfinite(value):
            with undone_on_failure(objective.variables):
                best, _ = objective.evaluate(first, x, q)
                if not np.isfinite(best.value):
                    raise not_finite_at_start(objective.model, objective.data, value)
        point = Point(x, value, np.zeros(self._size))
        return State(point, q, Curvature.unknown(self._size), np.zeros(0), x, q, value)

    def resume(self, path: Path, stretches: Sequence[Stretch]) -> State:
        """
        The state that a checkpoint stores.

        :raises ValueError: where the objective at this state is not the stored one.
        """
        stored, objective = State.read(path), self.objective
        with undone_on_failure(objective.variables):
            if stored.reason:  # the end, on all rows
                objective.coordinates.unpack(stored.point.x)
                value = objective.value(stored.q)
            else:  # in a stretch, or between two
                at = stretches[stored.stretch - (not stored.iteration)]
                value = objective.evaluate(at, stored.point.x, stored.q, 1.0, 0)[0].value
            check_objective(path, stored.point.value, value)
        objective.evaluations = stored.evaluations
        return stored

    def move_to(self, state: State) -> None:
        """Assign the hyperparameters and q of ``state`` to the model."""
        self.objective.coordinates.unpack(state.point.x)
        self.objective.model.assign_whitened_q(state.q)

    def onto(self, stretch: Stretch, state: State) -> State:
        """The state evaluated on the rows of ``stretch``; unchanged in the middle of it."""
        if state.iteration or state.reason:
            return state
        if not self._size:
            best = self.objective.evaluate(stretch, state.point.x, state.q, 1e-3)
            return state._replace(point=best[0], q=best[1], reason=_NOTHING_ELSE)
        point, q = self.objective.evaluate(stretch, state.point.x, state.q)
        if not state.stretch:
            point, q = in_other_units(self.objective, stretch, point, q)
        is_finite = np.isfinite(point.value) and np.all(np.isfinite(point.gradient))
        return state._replace(
            point=point,
            q=q,
            recent=np.zeros(0),
            evaluations=self.objective.evaluations,
            reason="" if is_finite else _NOT_FINITE,
        )

    def step(self, stretch: Stretch, state: State) -> State:
        """The state after one iteration."""
        tolerance = stretch.tolerance * float(self.objective.data.num_data)
        optimal_q = {}  # the optimal q at every point that is tried

        def evaluate(x: AnyNDArray) -> Point:
            point, q = self.objective.evaluate(stretch, x, state.q)
            optimal_q[id(point)] = point, q
            return point

        point, curvature = ascend(evaluate, state.point, state.curvature)
        recent = np.append(state.recent, point.value - state.point.value)[
            -SETTINGS.last_iterations :
        ]
        reason = ""
        if point is state.point:
            was_unknown = not (len(state.curvature.matrix) or len(state.curvature.steps))
            reason = _NO_STEP_GAINS if was_unknown else ""
        elif len(recent) == SETTINGS.last_iterations and recent.sum() < tolerance:
            reason = _GAINED_LITTLE
        elif state.iteration + 1 >= SETTINGS.most_iterations:
            reason = _ITERATIONS_USED
        q = state.q if point is state.point else optimal_q[id(point)][1]
        if reason in CONVERGED:
            better = with_more_signal(self.objective, stretch, point, q, tolerance)
            if better is not None:
                (point, q), reason = better, ""
                curvature, recent = Curvature.unknown(self._size), np.zeros(0)
        return state._replace(
            point=point,
            q=q,
            curvature=curvature,
            recent=recent,
            iteration=state.iteration + 1,
            evaluations=self.objective.evaluations,
            reason=reason,
        )

    def end(self, stretch: Stretch, state: State) -> State:
        """The state for the next stretch; after the last, one no worse than the fit's start."""
        if not stretch.is_last:
            return state._replace(stretch=state.stretch + 1, iteration=0, reason="")
        self.objective.coordinates.unpack(state.point.x)
        value = self.objective.value(state.q)
        if np.isfinite(value) and not value <= state.start:
            return state._replace(point=state.point._replace(value=value))
        point = Point(state.x_begin, state.start, state.point.gradient)
        return state._replace(point=point, q=state.q_begin)
