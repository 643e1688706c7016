"""The search of ``fit_collapsed``: its state, and the steps on a growing number of rows."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray

from ..algebra.gaussian import Gaussian
from ..models.variables import undone_on_failure
from ..runtime.checkpoints import check_objective
from .objective import Objective, RowsUsed, Stretch
from .quasi_newton import Curvature, Point, ascend, inwards
from .rescues import (
    at_other_lengthscales,
    explains_little,
    from_a_narrow_q,
    has_long_lengthscales,
    highest_at_first,
    highest_variances,
    in_other_units,
    lowest_coordinates,
    off_a_saddle,
    with_a_shorter_lengthscale,
    with_more_signal,
)
from .settings import SETTINGS
from .starting import not_finite_at_start, q_at_start

_LITTLE_TO_GAIN = "the expected further gain is below the tolerance"
_NO_STEP_GAINS = "no step improves the objective, though a gain was expected"
_NOTHING_ELSE = "nothing but q is trainable"
_ITERATIONS_USED = "the limit of iterations was reached"
_NOT_FINITE = "the objective is not finite"
_ENOUGH = "four times more rows would gain too little"
_LITTLE_GAINED = "the last iteration gained less than the tolerance"
_LEVEL = "the density of rows not used no longer rises"
CONVERGED = (_LITTLE_TO_GAIN, _LITTLE_GAINED, _NOTHING_ELSE, _ENOUGH)

_ASKED_EVERY = 5  # iterations is asked whether the search is on a plateau
_FILE = "state.npz"


class At(NamedTuple):
    """A point at which the objective has been evaluated, and the optimal q there."""

    point: Point
    q: Gaussian


_NOWHERE = At(Point(np.zeros(0), np.nan, np.zeros(0)), Gaussian(np.zeros(0), np.zeros(0)))


class Ahead(NamedTuple):
    """Where the density of rows that a stretch does not use is highest so far."""

    density: float = -np.inf  # [nats a datum]
    since: int = 0  # iterations since then; on the first subset, of those where it is far lower
    has_risen: bool = False  # since the stretch began
    at: At = _NOWHERE


class State(NamedTuple):
    """The state of a fit, which a checkpoint stores."""

    point: Point  # on the rows of the stretch
    q: Gaussian  # the optimal q at ``point``
    curvature: Curvature
    recent: AnyNDArray  # gains of the last iterations
    begin: At  # where the fit began, with the objective on all rows
    first: At  # where the search from the model's lengthscales ended; NaN if no others were tried
    densities: AnyNDArray = np.zeros(0)  # log p(y) of unseen rows when the subset last grew
    gained: float = np.nan  # on unseen rows when the subset last grew [nats a datum]
    worth: float = np.nan  # expected gain when the subset grows again [nats a datum]
    worth_error: float = np.nan  # the standard error of ``worth``
    expected: float = np.inf  # nats that further steps gain, as the curvature predicts
    is_trusted: bool = False  # whether the measured curvature has predicted the gains since
    measured: int = -1  # the iteration after which the curvature was measured; -1 if it never was
    stretch: int = 0
    iteration: int = 0  # of the stretch
    evaluations: int = 0
    reason: str = ""  # why the stretch has ended
    restart_gain: float = np.nan  # nats gained by starting from other lengthscales
    ahead: Ahead = Ahead()
    is_level: bool = False  # whether other rows gained nothing by iterations on enough rows
    is_loosened: bool = False  # whether variances may rise to where rounding shows

    def write(self, folder: Path) -> None:
        flat = tf.nest.flatten(self)
        np.savez(folder / _FILE, **{str(i): np.asarray(part) for i, part in enumerate(flat)})

    @classmethod
    def read(cls, folder: Path) -> "State":
        with np.load(folder / _FILE) as arrays:
            parts = [arrays[str(i)] for i in range(len(arrays))]
        blank = cls.before(_NOWHERE)
        kinds = tf.nest.flatten(blank)
        flat = [
            part.item() if not isinstance(kind, np.ndarray) else part
            for kind, part in zip(kinds, parts, strict=True)
        ]
        state: State = tf.nest.pack_sequence_as(blank, flat)
        ahead = state.ahead
        return state._replace(
            q=_as_tensors(state.q),
            begin=state.begin._replace(q=_as_tensors(state.begin.q)),
            first=state.first._replace(q=_as_tensors(state.first.q)),
            ahead=ahead._replace(at=ahead.at._replace(q=_as_tensors(ahead.at.q))),
        )

    @classmethod
    def before(cls, begin: At) -> "State":
        """The state before the first iteration."""
        unknown = Curvature.unknown(len(begin.point.x))
        return cls(*begin, unknown, np.zeros(0), begin, _NOWHERE)

    @property
    def foretold(self) -> float:
        """What the curvature predicts that further iterations gain [nats]."""
        return self.curvature.step(self.point.gradient)[1]

    @property
    def is_behind(self) -> bool:
        """Whether the search from other lengthscales is expected to end below the first one."""
        # On the first subset it costs little, and a curvature tells little of what it may gain.
        is_dear = self.tried_others and np.isnan(self.restart_gain) and self.stretch > 0
        missing = self.first.point.value - self.point.value
        return bool(is_dear and self.is_trusted and SETTINGS.margin * self.expected < missing)

    @property
    def tried_others(self) -> bool:
        """Whether the search has been restarted from other lengthscales."""
        return bool(np.isfinite(self.first.point.value))


def _as_tensors(q: Gaussian) -> Gaussian:
    return Gaussian(*map(tf.constant, q))


class HyperparameterSearch:
    """The steps of a fit. Each step maps a state to the next state."""

    def __init__(self, objective: Objective, rows: RowsUsed) -> None:
        self.objective = objective
        self._size = objective.coordinates.size
        self.uses_all = rows == "all"

    def begin(self, first: Stretch) -> State:
        """
        The state of the model before the first iteration.

        :raises ValueError: if the objective is finite neither at the model's q nor where a search
            for q ends on the rows of ``first``. The model is then unchanged.
        """
        objective = self.objective
        objective.lowest = lowest_coordinates(objective, first)
        objective.highest = highest_at_first(objective)
        q, x = q_at_start(objective.model, objective.data), objective.coordinates.pack()
        value = objective.value(q, None if self.uses_all else first.rows)
        if not np.isfinite(value):
            with undone_on_failure(objective.variables):
                best, _ = from_a_narrow_q(objective, first, *objective.evaluate(first.rows, x, q))
                if not np.isfinite(best.value):
                    raise not_finite_at_start(objective.model, objective.data, value)
        return State.before(At(Point(x, value, np.zeros_like(x)), Gaussian(*q)))

    def skip_subsets(self, stretches: Sequence[Stretch], state: State) -> State:
        """
        The state before the last stretch, if the model starts at or near an optimum on all rows.

        A subset has a different optimum, and a search from there may end at a worse one.
        """
        objective, last = self.objective, stretches[-1]
        if len(stretches) == 1 or not self.uses_all or not objective.is_measurable(last.rows):
            return state
        if not self._size or not np.any(state.q.mu):  # q is as the constructor sets it
            return state
        point, q = objective.evaluate(last.rows, state.point.x, state.q, max_steps=1)
        if not abs(point.value - state.begin.point.value) < last.tolerance:
            return state
        curvature = objective.curvature(last.rows, point, q, state.curvature)
        if curvature is None:
            return state
        expected = curvature.step(point.gradient)[1]
        if expected >= SETTINGS.margin * last.tolerance:  # else a few steps on all rows suffice
            return state
        objective.coordinates.unpack(state.point.x)
        if explains_little(objective.model, objective.rows_of(stretches[0].rows), q):
            return state
        return state._replace(curvature=curvature, is_trusted=True, stretch=len(stretches) - 1)

    def resume(self, path: Path, stretches: Sequence[Stretch]) -> State:
        """
        The state that a checkpoint stores.

        :raises ValueError: if the objective at this state differs from the stored one.
        """
        stored, objective = State.read(path), self.objective
        with undone_on_failure(objective.variables):
            objective.coordinates.unpack(stored.begin.point.x)
            objective.lowest = lowest_coordinates(objective, stretches[0])
            objective.highest = np.maximum(highest_at_first(objective), stored.point.x)
            at = stretches[stored.stretch - (not stored.iteration and not stored.reason)]
            if stored.reason:  # the fit had ended
                objective.coordinates.unpack(stored.point.x)
                value = objective.value(stored.q, None if self.uses_all else at.rows)
            else:  # in a stretch, or between two
                point, q = objective.evaluate(at.rows, stored.point.x, stored.q, 1.0, 0)
                value, stored = point.value, stored._replace(q=q)  # with its chol(K_ZZ)
            check_objective(path, stored.point.value, value)
        objective.evaluations = stored.evaluations
        return stored

    def move_to(self, state: State) -> None:
        """Assign the hyperparameters and q of ``state`` to the model."""
        self.objective.coordinates.unpack(state.point.x)
        self.objective.model.assign_whitened_q(state.q)

    def onto(self, stretch: Stretch, state: State) -> State:
        """The state evaluated on the rows of ``stretch``; unchanged if the stretch has begun."""
        if state.iteration or state.reason:
            return state
        point, q = self.objective.evaluate(stretch.rows, state.point.x, state.q)
        if not state.stretch:
            for other_start in (from_a_narrow_q, off_a_saddle, in_other_units):
                point, q = other_start(self.objective, stretch, point, q)
        elif state.stretch == 1 and self._looks_ahead(stretch):
            # Where the first subset predicted other rows best, unless its own optimum is better.
            ahead = state.ahead.at.point.x, state.ahead.at.q
            there = self.objective.evaluate(stretch.rows, *ahead)
            if there[0].value > point.value:
                densities = self.objective.log_densities(*ahead).numpy()
                (point, q), state = there, state._replace(is_trusted=False, densities=densities)
        is_finite = np.isfinite(point.value) and np.all(np.isfinite(point.gradient))
        reason = "" if self._size else _NOTHING_ELSE
        state = state._replace(
            point=point,
            q=q,
            recent=np.zeros(0),
            measured=-1,
            evaluations=self.objective.evaluations,
            expected=state.expected if self._size else 0.0,
            reason=reason if is_finite else _NOT_FINITE,
        )
        return state if state.reason or self.uses_all else self._begun(stretch, state)

    def _begun(self, stretch: Stretch, state: State) -> State:
        """The state with what a stretch needs to be left early; left at once if it gains little."""
        objective = self.objective
        if state.is_level:
            reason = _LITTLE_GAINED if stretch.is_last else _LEVEL
            return state._replace(reason=reason, expected=np.inf)
        if not stretch.is_last:
            state = self._with_ahead(stretch, state)
        # A line search on many rows that fails costs more than all before it.
        if state.stretch > 1 and not state.is_trusted and objective.is_measurable(stretch.rows):
            state = self._measured(stretch, state)
        expected = state.foretold
        if not (state.stretch and state.is_trusted and expected < objective.tolerance):
            return state
        reason = _LITTLE_TO_GAIN if stretch.is_last else _LEVEL
        return state._replace(reason=reason, expected=expected)

    def step(self, stretch: Stretch, state: State) -> State:
        """The state after one iteration."""
        optimal_q = {}  # the optimal q at every point tried

        def evaluate(x: AnyNDArray) -> Point:
            least = state.point.value  # a step must gain
            point, q = self.objective.evaluate(stretch.rows, x, state.q, wanted=least)
            optimal_q[id(point)] = point, q
            return point

        state = self._bounded(state)
        bounds = self.objective.lowest, self.objective.highest
        ascent = ascend(evaluate, state.point, state.curvature, *bounds)
        is_stuck = ascent.point is state.point
        gain = ascent.point.value - state.point.value
        # Too large a predicted gain costs iterations; too small a one would end the fit too early.
        most = 1.5 * ascent.expected + 0.1 * stretch.tolerance
        is_foretold = gain <= most and not is_stuck
        moved = state._replace(
            point=ascent.point,
            q=state.q if is_stuck else optimal_q[id(ascent.point)][1],
            curvature=ascent.curvature,
            recent=np.append(state.recent, gain)[-SETTINGS.last_iterations :],
            is_trusted=state.is_trusted and is_foretold,
            iteration=state.iteration + 1,
        )
        if self._looks_ahead(stretch):
            moved = self._left_early(stretch, moved)
        elif not self.uses_all and state.stretch > 1 and gain < self.objective.tolerance:
            expected = moved.foretold
            is_little = moved.is_trusted and expected < self.objective.tolerance
            if is_little:
                moved = moved._replace(expected=expected, reason=_LITTLE_TO_GAIN)
            else:  # the steps alone do not tell what is left
                moved = moved._replace(expected=np.inf, reason=_LITTLE_GAINED)
        if is_stuck and state.is_loosened:  # by rounding
            moved = moved._replace(expected=np.inf, reason=_NO_STEP_GAINS)
        if not moved.reason:
            moved = self._judged(stretch, moved, is_stuck and not state.curvature.is_known)
        if not (moved.reason or stretch.is_last) and moved.is_behind:
            moved = self._better_of_two(stretch, moved)._replace(reason=_LITTLE_TO_GAIN)
            return self._released(stretch, moved)
        # On a plateau rounding would decide when the search leaves it, and where to.
        is_level = SETTINGS.margin * moved.expected < stretch.tolerance and not moved.tried_others
        is_level &= moved.iteration % _ASKED_EVERY == 0
        if moved.reason or (is_level and self._may_be_elsewhere(stretch, moved)):
            moved = self._off_plateau(stretch, moved)
        moved = moved._replace(evaluations=self.objective.evaluations)
        return self._released(stretch, moved) if moved.reason else moved

    def _bounded(self, state: State) -> State:
        """The state, after the bounds of the variances have been set for the steps from there."""
        objective, point = self.objective, state.point
        of_variances = highest_variances(objective, point.x, state.is_loosened)
        are_variances = np.isfinite(of_variances)
        objective.highest = np.where(are_variances, of_variances, objective.highest)
        gradient = inwards(point.x, point.gradient, objective.lowest, objective.highest)
        return state._replace(point=point._replace(gradient=gradient))

    def _released(self, stretch: Stretch, state: State) -> State:
        """
        The state at its end; or a state without the bounds that hold at first only.

        Rounding may show at the end of a fit to few rows: there a search that it stops costs
        little, and a larger variance may fit better.
        """
        objective, x, highest = self.objective, state.point.x, self.objective.highest
        are_variances = np.isfinite(highest_variances(objective, x))
        is_cheap = stretch.is_last and stretch.rows <= SETTINGS.curvature_rows
        if is_cheap and not state.is_loosened and np.any(are_variances & (x > highest - 0.1)):
            state = self._bounded(state._replace(is_loosened=True))
            point, q = objective.evaluate(stretch.rows, x, state.q)
            state = state._replace(
                point=point, q=q, recent=np.zeros(0), is_trusted=False, expected=np.inf, reason=""
            )
        elif np.any(~are_variances & (x >= highest)):
            objective.highest = np.where(are_variances, highest, np.inf)
            state = _restarted(state, *objective.evaluate(stretch.rows, x, state.q))
        return state._replace(evaluations=objective.evaluations)

    def _judged(self, stretch: Stretch, state: State, is_at_end: bool) -> State:
        """
        The state with its expected gain, and the reason to end the stretch if there is one.

        :param is_at_end: whether no step gains, not even a step along the gradient.
        """
        expected = state.foretold
        if self._should_measure(stretch, state, expected, is_at_end):
            state = self._measured(stretch, state)
            expected = state.foretold
        is_little, is_sure = SETTINGS.margin * expected < stretch.tolerance, state.is_trusted
        if not self.objective.is_measurable(stretch.rows):
            waited = len(state.recent) == SETTINGS.last_iterations
            is_sure = waited and bool(SETTINGS.margin * state.recent.sum() < stretch.tolerance)
            # At the last digits no step gains, so that waiting would not end.
            is_sure |= state.is_trusted and SETTINGS.far_margin * expected < stretch.tolerance
        reason = ""
        if is_little and is_sure:
            reason = _LITTLE_TO_GAIN
        elif is_at_end and state.measured != state.iteration:
            reason = _NO_STEP_GAINS
        elif state.iteration >= SETTINGS.most_iterations:
            reason = _ITERATIONS_USED
        return state._replace(expected=expected, reason=reason)

    def _measured(self, stretch: Stretch, state: State) -> State:
        """The state with the curvature measured, unless that is not possible."""
        curvature = self.objective.curvature(stretch.rows, state.point, state.q, state.curvature)
        if curvature is None:
            return state
        return state._replace(curvature=curvature, is_trusted=True, measured=state.iteration)

    def _should_measure(
        self, stretch: Stretch, state: State, expected: float, is_at_end: bool
    ) -> bool:
        """Whether measuring the curvature is worth the evaluations that it takes."""
        if not self.objective.is_measurable(stretch.rows, state.iteration):
            return False
        since = state.iteration - max(state.measured, 0)
        is_first, is_little = state.measured < 0, SETTINGS.margin * expected < stretch.tolerance
        if state.is_trusted and stretch.is_last and is_first and is_little:
            return True  # a curvature from a subset does not decide the end on all rows
        if state.is_trusted:
            return since >= 2 * max(self._size, SETTINGS.least_between)
        if is_at_end and not is_first and not np.any(state.recent[-since:] > 0.0):
            return False  # it was measured at this very point
        few = state.recent[-SETTINGS.slow_iterations :]
        slow = SETTINGS.slow_gain * float(self.objective.data.num_data)
        is_slow = len(few) == SETTINGS.slow_iterations and bool(few.sum() < slow)
        return (
            is_at_end
            or is_little
            or (is_slow and (is_first or since >= SETTINGS.slow_iterations))
            or since >= max(self._size, SETTINGS.least_between)
        )

    def _looks_ahead(self, stretch: Stretch) -> bool:
        """Whether other rows say how far the search on the rows of ``stretch`` should go."""
        return not self.uses_all and not stretch.is_last

    @property
    def _least_a_datum(self) -> float:
        """The tolerance of the fit [nats a datum]."""
        return self.objective.tolerance / float(self.objective.data.num_data)

    def _with_ahead(self, stretch: Stretch, state: State) -> State:
        """The state after a look at the density of other rows."""
        objective, best, least = self.objective, state.ahead, self._least_a_datum
        density = objective.density_ahead(stretch.rows, state.point.x, state.q)
        is_first = not state.iteration or not np.isfinite(best.density)
        if is_first or density > best.density + least:
            at = At(state.point, state.q)
            return state._replace(ahead=Ahead(density, 0, not is_first, at))
        # On the first subset it must fall far: on a plateau it is level, and later noisy.
        counts = state.stretch or density < best.density - SETTINGS.far_below * least
        return state._replace(ahead=best._replace(since=best.since + 1 if counts else 0))

    def _left_early(self, stretch: Stretch, state: State) -> State:
        """
        The state after an iteration; back where other rows had the highest density, if it is over.

        The optimum of few rows is not the optimum of all. From some iteration on, the search for it
        gains nothing for the other rows, and later it loses. The first subset, where iterations
        cost little, is left only where it loses much, so that no plateau ends the fit.
        """
        objective = self.objective
        state = self._with_ahead(stretch, state)
        if not state.ahead.since:
            return state
        # An iteration on many rows costs more than all before it.
        patience = max(1, SETTINGS.level_iterations - state.stretch)
        is_level, expected = state.ahead.since >= patience, state.foretold
        if not (is_level or expected < objective.tolerance):
            return state
        # The steps so far may have told too small a curvature to reach what is left.
        is_due = not state.is_trusted and state.measured < 0
        if is_due and objective.is_measurable(stretch.rows):
            measured = self._measured(stretch, state)
            if measured.is_trusted:
                return measured._replace(ahead=state.ahead._replace(since=0))
        if is_level:  # what the rows of the subset still gain says nothing
            expected = np.inf
        point, q = state.ahead.at
        return state._replace(point=point, q=q, expected=expected, reason=_LEVEL)

    def _off_plateau(self, stretch: Stretch, state: State) -> State:
        """
        The state from which to continue if the search may have ended on a plateau.

        A larger signal is tried first, then a shorter value for one long lengthscale. Both lead
        away from a plateau, but not from another optimum. A search that other rows have ended
        continues there only if their density is higher there. If another optimum may be better, the
        search is restarted once from other lengthscales, and the better end is kept.
        """
        objective = self.objective
        better = with_more_signal(objective, stretch, state.point, state.q, stretch.tolerance)
        is_cheap = objective.is_measurable(stretch.rows)
        if better is None and is_cheap and stretch.rows <= 2 * SETTINGS.curvature_rows:
            better = with_a_shorter_lengthscale(
                objective, stretch, state.point, state.q, stretch.tolerance
            )
        if better is not None:
            elsewhere = _restarted(state, *better)
            if state.reason == _LEVEL:  # else the search might be left for this point for ever
                elsewhere = self._with_ahead(stretch, elsewhere)
            if state.reason != _LEVEL or elsewhere.ahead.at.point is elsewhere.point:
                return elsewhere
        if not state.tried_others:
            if not self._may_be_elsewhere(stretch, state):
                return state
            begin = state.begin
            better = at_other_lengthscales(objective, stretch, begin.point.x, begin.q)
            if better is None:
                return state
            return _restarted(state._replace(first=At(state.point, state.q)), *better)
        if state.reason == _LEVEL:  # other rows have chosen between the two searches
            gain = state.point.value - state.first.point.value
            return state._replace(restart_gain=max(gain, 0.0))
        if not np.isnan(state.restart_gain):  # in this stretch or an earlier one
            return state
        return self._better_of_two(stretch, state)

    def _better_of_two(self, stretch: Stretch, state: State) -> State:
        """The end of the search from the model's lengthscales, or of the one from others."""
        first, gain = state.first, state.point.value - state.first.point.value
        if gain < 0.0:
            point, q = self.objective.evaluate(stretch.rows, first.point.x, first.q)
            state = state._replace(point=point, q=q, curvature=Curvature.unknown(self._size))
        return state._replace(restart_gain=max(gain, 0.0))

    def _may_be_elsewhere(self, stretch: Stretch, state: State) -> bool:
        """Whether a restart may end at a better optimum; asked after the first two stretches."""
        objective = self.objective
        rows = objective.rows_of(stretch.rows)
        objective.coordinates.unpack(state.point.x)
        if not state.stretch:
            return explains_little(objective.model, rows, state.q)
        return state.stretch == 1 and has_long_lengthscales(objective.model, rows)

    def end(self, stretch: Stretch, state: State) -> State:
        """The state with which the next stretch begins, or with which the fit ends."""
        if stretch.is_last:
            return self._ended(stretch, state)
        if not self.uses_all:
            state = self._with_worth(state)
            if state.worth < self._least_a_datum:
                return self._ended(stretch, state._replace(reason=_ENOUGH))
        # The first two subsets have too few rows to say what the hyperparameters are worth, and
        # the unseen rows cannot tell a gain below the default tolerance (compared up to rounding).
        can_tell = not self.uses_all and self._least_a_datum > 0.999 * SETTINGS.worth
        is_level = can_tell and state.stretch > 1 and not state.ahead.has_risen
        return state._replace(stretch=state.stretch + 1, iteration=0, reason="", is_level=is_level)

    def _with_worth(self, state: State) -> State:
        """
        The state with the expected gain from four times as many rows.

        It is the mean gain of log p(y) when the subset last grew, at rows that no subset has, times
        the ratio of this gain to the previous one. The ratio is a quarter if the gains still to
        come are proportional to 1/rows; it counts as 1 if it is larger or unknown.
        """
        unseen, before = self.objective.unseen(), state.densities
        densities = self.objective.log_densities(state.point.x, state.q)
        state = state._replace(densities=densities.numpy())
        if not state.stretch:
            return state
        gains = densities - before
        total, squares = unseen.total([tf.reduce_sum(gains), tf.reduce_sum(tf.square(gains))])
        mean, square = float(total / unseen.num_data), float(squares / unseen.num_data)
        error = float(np.sqrt(max(square - mean**2, 0.0) / float(unseen.num_rows)))
        falls = state.gained > mean  # False if ``gained`` is NaN
        ratio = max(mean, 0.0) / state.gained if falls else 1.0
        # If the ratio is used, the mean is a factor twice.
        error *= 2.0 * ratio if falls else 1.0
        return state._replace(gained=mean, worth=ratio * mean, worth_error=error)

    def _ended(self, stretch: Stretch, state: State) -> State:
        """The state at the end of the fit, no worse than its start on the rows in use."""
        rows, (begun, q) = (None if self.uses_all else stretch.rows), state.begin
        if rows is not None:
            self.objective.coordinates.unpack(begun.x)
            begun = begun._replace(value=self.objective.value(q, rows))
        self.objective.coordinates.unpack(state.point.x)
        value = self.objective.value(state.q, rows)
        state = state._replace(begin=At(begun, q))
        if np.isfinite(value) and (value > begun.value or np.isnan(begun.value)):
            return state._replace(point=state.point._replace(value=value))
        return state._replace(point=begun, q=q)


def _restarted(state: State, point: Point, q: Gaussian) -> State:
    """The state at another point, without an estimate of the curvature."""
    return state._replace(
        point=point,
        q=q,
        curvature=Curvature.unknown(len(point.x)),
        recent=np.zeros(0),
        is_trusted=False,
        measured=-1,
        expected=np.inf,
        reason="",
        ahead=state.ahead._replace(since=0),
    )
