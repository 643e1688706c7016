"""How ``fit_collapsed`` climbs: stretches on ever more rows, and what goes from one to the next."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.config import default_float

from ..algebra.gaussian import Gaussian
from ..checkpoints import PassLog, check_objective
from ..data import Data
from ..models import AugmentedModel, AugmentedVGP, hyperparameters
from .coordinates import Coordinates
from .profile import Profile
from .quasi_newton import Curvature, Point, ascend
from .starting import not_finite_at_start, q_at_start
from .units import NO_SIGNAL, STEP, along_units, noise_and_signal

INNER_TOLERANCE = 1e-6  # nats per datum that one more step on q must gain
MOST_ITERATIONS = 1_000
_FIRST_SUBSET, _GROWTH = 1_000, 4  # rows, and how much larger each further subset is
_ROWS_PER_COORDINATE = 100  # of the first subset, at least
_SUBSET_TOLERANCE = 3e-4  # nats per datum that the last iterations on a subset must gain
_LAST = 3  # iterations that must gain together
_MOST_IN_MEMORY = 100_000  # rows of a subset
_FARTHEST = 50.0  # logarithm of a unit that is tried
_FLOAT32_ROWS = 4_000  # from which on products of size N·M² are in float32

_GAINED_LITTLE = f"the last {_LAST} iterations gained too little"
_NO_STEP_GAINS = "no step gains"
_NOTHING_ELSE = "nothing but q is trainable"
_ITERATIONS_USED = "the most iterations were reached"
_NOT_FINITE = "the objective is not finite"
CONVERGED = (_GAINED_LITTLE, _NO_STEP_GAINS, _NOTHING_ELSE)

_FILE = "state.npz"


class Stretch(NamedTuple):
    """Iterations on the same rows."""

    rows: int
    is_last: bool
    tolerance: float  # nats per datum that the last ones must gain


def schedule(
    model: AugmentedModel, num_rows: int, num_coordinates: int, tolerance: float
) -> list[Stretch]:
    """
    The last is on all rows. AugmentedVGP has its Z at its data, so there it is the only one.

    Where hyperparameters are many for some rows these are soon fitted too well, and what fits them
    does not fit the others: no subset is of so few.
    """
    stretches = []
    rows = max(_FIRST_SUBSET, _ROWS_PER_COORDINATE * num_coordinates)
    while 2 * rows < num_rows and rows < _MOST_IN_MEMORY and not isinstance(model, AugmentedVGP):
        stretches.append(Stretch(rows, False, max(tolerance, _SUBSET_TOLERANCE)))
        rows *= _GROWTH
    return [*stretches, Stretch(num_rows, True, tolerance)]


class State(NamedTuple):
    """All that a fit has found out: what a checkpoint keeps."""

    point: Point  # on the rows of the stretch
    q: Gaussian  # there
    curvature: Curvature
    recent: AnyNDArray  # gains of the last iterations
    x_begin: AnyNDArray
    q_begin: Gaussian
    start: float  # the objective there, on all rows
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


class _Objective:
    """The profile on some of the rows, as a function of the coordinates of the hyperparameters."""

    def __init__(self, model: AugmentedModel, data: Data, seed: int, log: PassLog) -> None:
        self._model, self._data, self._seed = model, data, seed
        self.variables = hyperparameters(model)
        self.coordinates = Coordinates(model.parameters, self.variables)
        self.evaluations = 0
        self._exact = Profile(model, self.variables, log=log)
        is_fast = data.num_rows >= _FLOAT32_ROWS and default_float() == tf.float64
        self._fast = Profile(model, self.variables, tf.float32, log) if is_fast else self._exact
        self._in_use: tuple[int, Data] = data.num_rows, data

    @property
    def tracing_seconds(self) -> float:
        return sum(profile.tracing_seconds for profile in {self._exact, self._fast})

    def trace(self) -> None:
        """Compile all that will be needed at once."""
        self._fast.trace(self._data)

    def evaluate(
        self,
        stretch: Stretch,
        x: AnyNDArray,
        q: Gaussian,
        precision: float = 1.0,
        max_steps: int = 20,
    ) -> tuple[Point, Gaussian]:
        """At x, on the rows of the stretch; and the best q there, sought from ``q`` on."""
        self.evaluations += 1
        self.coordinates.unpack(x)
        if self._in_use[0] != stretch.rows:
            is_all = stretch.is_last
            rows = self._data if is_all else self._data.subset(stretch.rows, self._seed)
            self._in_use = stretch.rows, rows
        try:
            tolerance = precision * INNER_TOLERANCE * self._data.num_data
            found = self._fast.evaluate(self._in_use[1], q, tolerance, max_steps)
        except tf.errors.InvalidArgumentError:  # such as a Cholesky, on some devices
            return Point(x, np.nan, np.full_like(x, np.nan)), q
        gradient = self.coordinates.gradient(x, found.gradient)
        return Point(x, found.objective, gradient), found.q

    def value(self, q: Gaussian) -> float:
        """At the model's hyperparameters and q: on all rows, in full precision."""
        try:
            if self._fast is self._exact:  # which has been compiled, or will be
                return self._exact.evaluate(self._data, q, 0.0, 0).objective
            elbo = self._exact.elbo(self._data, q)
        except tf.errors.InvalidArgumentError:
            return -np.inf
        return elbo + float(self._model.log_prior_density())


class Climb:
    """From state to state."""

    def __init__(self, model: AugmentedModel, data: Data, seed: int, log: PassLog) -> None:
        self._model, self._data, self._num_data = model, data, data.num_data
        self.objective = _Objective(model, data, seed, log)
        self.size = len(self.objective.coordinates.pack())

    def begin(self, first: Stretch) -> State:
        """
        The model as it is.

        :raises ValueError: where the objective is not finite, neither at its q nor at the best one
            on the rows of ``first``. The model is then as it was.
        """
        q, x = q_at_start(self._model, self._data), self.objective.coordinates.pack()
        value = self.objective.value(q)
        if not np.isfinite(value):
            self._check_begin(first, x, q, value)
        point = Point(x, value, np.zeros(self.size))
        return State(point, q, Curvature.unknown(self.size), np.zeros(0), x, q, value)

    def _check_begin(self, first: Stretch, x: AnyNDArray, q: Gaussian, value: float) -> None:
        before = [variable.numpy() for variable in self.objective.variables]
        try:
            best, _ = self.objective.evaluate(first, x, q)
        finally:
            for variable, value_before in zip(self.objective.variables, before, strict=True):
                variable.assign(value_before)
        if not np.isfinite(best.value):
            X, _ = next(self._data.chunks())
            raise not_finite_at_start(self._model, X, value)

    def resume(self, path: Path, stretches: Sequence[Stretch]) -> State:
        """
        What has been stored.

        :raises ValueError: unless the objective there is what it was.
        """
        stored, objective = State.read(path), self.objective
        before = [variable.numpy() for variable in objective.variables]
        try:
            if stored.reason:  # the end, on all rows
                objective.coordinates.unpack(stored.point.x)
                value = objective.value(stored.q)
            else:  # in a stretch, or between two
                at = stretches[stored.stretch - (not stored.iteration)]
                value = objective.evaluate(at, stored.point.x, stored.q, 1.0, 0)[0].value
        finally:
            for variable, value_before in zip(objective.variables, before, strict=True):
                variable.assign(value_before)  # to the last bit, which unpack(pack()) is not
        check_objective(path, "objective", stored.point.value, value)
        objective.evaluations = stored.evaluations
        return stored

    def move_to(self, state: State) -> None:
        """Make it the model's."""
        self.objective.coordinates.unpack(state.point.x)
        self._model.assign_whitened_q(state.q)

    def onto(self, stretch: Stretch, state: State) -> State:
        """The state at the rows of ``stretch``; as it is, where it is in the middle of it."""
        if state.iteration or state.reason:
            return state
        if not self.size:
            best = self.objective.evaluate(stretch, state.point.x, state.q, 1e-3)
            return state._replace(point=best[0], q=best[1], reason=_NOTHING_ELSE)
        point, q = self.objective.evaluate(stretch, state.point.x, state.q)
        if not state.stretch:
            point, q = self._in_other_units(stretch, point, q)
        is_finite = np.isfinite(point.value) and np.all(np.isfinite(point.gradient))
        return state._replace(
            point=point,
            q=q,
            recent=np.zeros(0),
            evaluations=self.objective.evaluations,
            reason="" if is_finite else _NOT_FINITE,
        )

    def _in_other_units(
        self, stretch: Stretch, point: Point, q: Gaussian
    ) -> tuple[Point, Gaussian]:
        """From where to climb, if y is in another unit than was guessed."""
        lines = along_units(self._model, self.objective.coordinates)
        if lines is None:
            return point, q
        best, q_best, far = point, q, 0.0
        for step in (STEP, -STEP):
            while abs(far) < _FARTHEST:
                x = point.x + (far + step) * lines.both
                there, q_there = self.objective.evaluate(stretch, x, q_best)
                if not (there.value > best.value and np.all(np.isfinite(there.gradient))):
                    break
                best, q_best, far = there, q_there, far + step
            if far:
                break
        if far:  # unless it was the noise alone that was guessed wrong
            noise, _ = self.objective.evaluate(stretch, point.x + far * lines.noise, q)
            if noise.value >= best.value:
                return point, q
        return best, q_best

    def _with_more_signal(
        self, stretch: Stretch, point: Point, q: Gaussian
    ) -> tuple[Point, Gaussian] | None:
        """Off the plateau where noise explains all, if signal of the noise's size is better."""
        lines = along_units(self._model, self.objective.coordinates)
        if lines is None:
            return None
        self.objective.coordinates.unpack(point.x)
        noise, signal = noise_and_signal(self._model)
        if not noise > NO_SIGNAL * signal > 0.0:
            return None
        x = point.x + np.log(noise / signal) * lines.signal
        there = self.objective.evaluate(stretch, x, q)
        is_better = there[0].value > point.value + stretch.tolerance * self._num_data
        return there if is_better and np.all(np.isfinite(there[0].gradient)) else None

    def step(self, stretch: Stretch, state: State) -> State:
        """One iteration."""
        found = {}  # the best q at every point that is tried

        def evaluate(x: AnyNDArray) -> Point:
            point, q = self.objective.evaluate(stretch, x, state.q)
            found[id(point)] = point, q
            return point

        point, curvature = ascend(evaluate, state.point, state.curvature)
        recent = np.append(state.recent, point.value - state.point.value)[-_LAST:]
        reason = ""
        if point is state.point:
            was_unknown = not (len(state.curvature.matrix) or len(state.curvature.steps))
            reason = _NO_STEP_GAINS if was_unknown else ""
        elif len(recent) == _LAST and recent.sum() < stretch.tolerance * self._num_data:
            reason = _GAINED_LITTLE
        elif state.iteration + 1 >= MOST_ITERATIONS:
            reason = _ITERATIONS_USED
        q = state.q if point is state.point else found[id(point)][1]
        if reason in CONVERGED and (better := self._with_more_signal(stretch, point, q)):
            (point, q), reason = better, ""
            curvature, recent = Curvature.unknown(self.size), np.zeros(0)
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
        """Ready for the next stretch or, after the last, no worse than where it all began."""
        if not stretch.is_last:
            return state._replace(stretch=state.stretch + 1, iteration=0, reason="")
        self.objective.coordinates.unpack(state.point.x)
        value = self.objective.value(state.q)
        if np.isfinite(value) and not value <= state.start:
            return state._replace(point=state.point._replace(value=value))
        point = Point(state.x_begin, state.start, state.point.gradient)
        return state._replace(point=point, q=state.q_begin)
