"""``fit_collapsed`` and ``polish``: fits on all rows, without minibatches."""

import functools
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np
import tensorflow as tf
from gpflow.base import RegressionData

from ..algebra.gaussian import Gaussian
from ..data import Call, Data, PassLog, as_data
from ..models import (
    AugmentedModel,
    converted_from,
    is_finite_in_gpflow,
    of_any_model,
    refresh_posteriors,
)
from ..progress import progress_bar
from ..runtime.agreement import describe
from ..runtime.checkpoints import Checkpoints
from ..validation import check_one_of
from .advice import of_jitter
from .hyperparameter_search import CONVERGED, HyperparameterSearch, State
from .objective import Objective, RowsUsed, Stretch
from .outcome import Outcome
from .profile import Profile
from .settings import SETTINGS
from .starting import narrow_q, not_finite_at_start, q_at_start

_clock = time.monotonic

_LATEST = 10  # states, none of which is given up
_CHECKPOINT_SECONDS = 10.0  # of work that a stopped fit loses at most, and one iteration more
_POLISH_TOLERANCE = 1e-9  # nats a datum that a step of ``polish`` must gain: next to rounding
_INSTEAD = "model.likelihood = gpflow_aaci.likelihoods.augmented(model.likelihood)"
_NO_VALUE_LATER = (
    "GPflow's own {name} evaluates the ELBO to NaN or infinity at all later iterations, so that "
    f"the model is left at this one. After {_INSTEAD} the fit can end at the maximum"
)


class FitProgress(NamedTuple):
    """How far ``fit_collapsed`` is; passed to its callback."""

    #: The number of rows in use; 0 at the first call, which is before the first iteration.
    rows: int
    #: The objective [nats] on these rows, scaled to all of them.
    objective: float
    #: The number of evaluations of the objective so far.
    evaluations: int


_Callback = Callable[[FitProgress], None]


@dataclass(frozen=True, kw_only=True)
class FitResult(Outcome):
    """The result of ``fit_collapsed``."""

    #: GPflow's ELBO plus the log prior [nats], on all rows, after the fit.
    objective: float
    #: GPflow's ELBO plus the log prior [nats], on all rows, before the fit.
    start: float
    #: The number of evaluations of the objective.
    evaluations: int


class PolishResult(NamedTuple):
    """The result of ``polish``."""

    #: GPflow's ELBO [nats] after the steps.
    elbo: float
    #: GPflow's ELBO [nats] before them.
    start: float
    #: The number of Newton steps.
    steps: int

    @property
    def gain(self) -> float:
        """By how much GPflow's ELBO has risen [nats], never negative."""
        return self.elbo - self.start


@of_any_model
def fit_collapsed(
    model: AugmentedModel,
    data: RegressionData | tf.data.Dataset | None = None,
    *,
    tolerance: float | None = None,
    rows: RowsUsed = "all",
    seed: int = 0,
    callback: Callable[[FitProgress], None] | None = None,
    checkpoint_dir: str | Path | None = None,
    progress: bool = True,
) -> FitResult:
    """
    Fit q(u) and every trainable hyperparameter of ``model`` by maximising GPflow's ELBO.

    For every setting of the hyperparameters the best q(u) is computed; the ELBO at this q(u) is a
    function of the hyperparameters alone (:mod:`~gpflow_aaci.inference.profile`). A Newton method
    maximises this function, in the logarithms of positive parameters. It begins as a quasi-Newton
    method. If that is slow or about to end, the curvature is measured by differences of the
    gradient along every hyperparameter, on at most 4,000 rows, so that a plateau is not mistaken
    for a maximum. With more than 64 hyperparameters the curvature is estimated from the steps
    alone.

    The fit runs in stages. The first stage uses a random subset of 1,000 rows (or a hundred rows
    per hyperparameter, if that is more), each further one four times as many, and the last one all
    rows. A stage ends when the gain that is still to be expected is below its tolerance, and passes
    its curvature to the next. The search begins a second time, from lengthscales of √D·sd(X), if f
    explains little of the data at the end of the first stage, or if f is nearly a polynomial at the
    end of the second (every lengthscale exceeds twice √D·sd(X)); the better result is kept. At the
    end of a stage with few rows every long lengthscale is tried at √D·sd(X), in case its column
    matters after all. If the model starts at an optimum on all rows, there are no subsets.

    All trainable parameters of the kernel, the mean function, the likelihood and the inducing
    points are fitted, and log priors are added to the ELBO. ``q_mu`` and ``q_sqrt`` are fitted
    whether they are trainable or not. If an evaluation fails, the step is shortened. The model
    never ends below the objective that it started with. If f is still wide at some rows after the
    first search for q, a second search begins at the prior mean with a narrow q. If the first guess
    of noise and signal does not suit the unit of y, the fit first searches for a scale that does.
    GPflow's own ``SVGP`` or ``VGP`` never ends where its own likelihood evaluates the ELBO to NaN
    or infinity, unless it began there: the fit goes back to the latest iteration with a finite
    value and has then not converged::

        gpflow.set_trainable(model.inducing_variable, False)
        fit_collapsed(model, (X, Y))

    :param model: an ``AugmentedSVGP``, an ``AugmentedVGP``, or GPflow's own ``SVGP`` or ``VGP``.
    :param data: X [N, D] and Y [N, P] as arrays or frames; or a ``tf.data.Dataset`` of such
        batches, which is one pass over any number of rows; None for ``AugmentedVGP``.
    :param tolerance: the fit has converged when further iterations are expected to gain less than
        this, in nats. Default: 1e-3 nats or 1e-5 nats a datum, whichever is larger; with
        ``rows="enough"`` 1e-3 nats a datum.
    :param rows: ``"all"`` uses all rows in the end. ``"enough"`` judges rows and iterations by
        log p(y) of unused rows: a subset is left when further iterations on it no longer raise it
        by the tolerance, and the fit ends when four times more rows are expected to raise it by
        less than the tolerance, judged by what the last increases of the subset gained.
    :param seed: the seed for random subsets.
    :param callback: a function that is called once after compiling, and after every iteration (or
        at the end of a stage without one) with the model up to date. If it raises an exception, the
        fit ends, as with Ctrl-C, and the model keeps what it has learnt.
    :param checkpoint_dir: the folder for checkpoints. The same call resumes from the latest one. A
        checkpoint is written after every stage, after every ten iterations, and after the first
        iteration that ends ten seconds after the last checkpoint. If rows are read in chunks, the
        result of every pass since the checkpoint is stored as well, so that a process that is
        killed loses at most the pass in progress.
    :param progress: whether to show a bar with rows, objective and evaluations.
    :raises ValueError: for bad data, if the objective is not finite at the start, or if a
        checkpoint is damaged or belongs to another run. Nothing has been changed then.
    :raises OSError: if a checkpoint cannot be written. The model keeps what it has learnt.
    :raises RuntimeError: if data cannot be read. The model keeps what it has learnt.
    :return: the objective before and after, whether the fit has converged, and why it ended.
    """
    given = {"tolerance": tolerance, "rows": rows, "seed": seed}
    call = Call("fit_collapsed", {**given, "checkpoint_dir": checkpoint_dir is not None})
    checked = as_data(model.expected_data, data, progress, call=call)
    found = fit_rows(model, checked, tolerance, rows, seed, callback, checkpoint_dir, progress)
    for said in of_jitter(model):  # ``fit`` returns it with its other advice
        warnings.warn(said, stacklevel=3)
    return found


def fit_rows(
    model: AugmentedModel,
    data: Data,
    tolerance: float | None = None,
    rows: RowsUsed = "all",
    seed: int = 0,
    callback: _Callback | None = None,
    checkpoint_dir: str | Path | None = None,
    progress: bool = True,
    record: _Callback = lambda progress: None,
) -> FitResult:
    """
    As :func:`fit_collapsed`, for rows that are already checked.

    :param record: is called as the callback is, but does not see the model.
    """
    began = time.perf_counter()
    check_one_of("rows", rows, get_args(RowsUsed))
    check_tolerance(tolerance)
    options: dict[str, Any] = {"tolerance": tolerance, "rows": rows, "seed": seed}
    data.draw_ahead(SETTINGS.drawn_rows, seed)
    run: dict[str, Any] = {}
    if checkpoint_dir is not None:
        run = {"model": describe(model), "data": data.identity, **options}
    checkpoints = Checkpoints(checkpoint_dir, run, data.strategy)
    resumed = checkpoints.latest()
    with progress_bar(progress and data.is_chief, unit="evaluation", desc="compiling") as bar:
        data.log = PassLog(checkpoints.directory, run, data.strategy)
        objective = Objective(model, data, seed)
        search = HyperparameterSearch(objective, rows)
        stretches = objective.stretches(tolerance, rows)
        objective.trace(stretches[0])
        state = search.begin(stretches[0]) if resumed is None else search.resume(resumed, stretches)
        in_gpflow = _InGPflow(search, stretches, state)
        climb = _Climb(search, state, checkpoints, bar, (record, callback), in_gpflow)
        try:
            climb.report(0)
            climb.skip_subsets(stretches)
            climb.over(stretches)
            climb.back_to_a_value_in_gpflow()
        finally:  # also on Ctrl-C: the model never stays in the middle of a line search
            search.move_to(climb.state)
            refresh_posteriors(model)
        tracing = objective.tracing_seconds
        end = climb.state
        return FitResult(
            objective=end.point.value,
            start=end.begin.point.value,
            evaluations=objective.evaluations,
            converged=end.reason in CONVERGED,
            reason=end.reason,
            tracing_seconds=tracing,
            fitting_seconds=time.perf_counter() - began - tracing,
            tolerance=stretches[-1].tolerance,
            expected_gain=_if_known(end.expected),
            rows=stretches[min(end.stretch, len(stretches) - 1)].rows,
            worth=_if_known(end.worth),
            worth_error=_if_known(end.worth_error),
            restart_gain=_if_known(end.restart_gain),
        )


def _if_known(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def by_number(data: Data, seed: int) -> RowsUsed:
    """The default of ``rows``: ``"all"``, or ``"enough"`` if there are many rows."""
    data.draw_ahead(SETTINGS.drawn_rows, seed)  # counting may take a pass
    return "all" if data.num_rows <= SETTINGS.most_of_all else "enough"


def check_tolerance(tolerance: float | None) -> None:
    """
    :raises ValueError: unless it is None or a positive number.
    """
    if tolerance is not None and not (np.isfinite(tolerance) and tolerance > 0.0):
        raise ValueError(f"tolerance must be a positive number of nats. Found: {tolerance!r}.")


class _InGPflow:
    """Whether a model whose likelihood was converted has an ELBO by GPflow's own likelihood."""

    def __init__(
        self, search: HyperparameterSearch, stretches: Sequence[Stretch], state: State
    ) -> None:
        """
        :param state: the first state of this run. The model is moved to where the fit began.
        """
        self._objective, self._stretches = search.objective, stretches
        self._uses_all = search.uses_all
        model = self._objective.model
        likelihood = converted_from(model)
        self.name = type(likelihood).__name__
        self.states: list[State] = []
        """The states to which the fit can return; none if there is no such finite value."""
        if likelihood is None:
            return
        point, q = state.begin
        begin = state._replace(point=point, q=q, stretch=0)
        search.move_to(begin)
        if self.is_finite(begin):
            self.states = [begin]
            return
        warnings.warn(
            f"GPflow's own {self.name} evaluates the ELBO of the model to NaN or infinity before "
            "the fit, and so perhaps after it. The fit does not need that value: it uses "
            f"gpflow_aaci.likelihoods.{type(model.likelihood).__name__}. To have its values in "
            f"model.elbo and model.predict_y, set {_INSTEAD}.",
            stacklevel=5,
        )

    def add(self, state: State) -> None:
        """Store a state. Of many, every other one of the earlier ones is given up."""
        self.states.append(state)
        if len(self.states) > 4 * _LATEST:
            self.states[1:-_LATEST] = self.states[1:-_LATEST:2]

    def is_finite(self, state: State) -> bool:
        """Whether the value is finite for the model, which is at ``state``."""
        return is_finite_in_gpflow(self._objective.model, self._rows(state.stretch))

    def value(self, state: State) -> float:
        """The objective of the fit at ``state``, on its rows."""
        return self._objective.value(state.q, self._rows(state.stretch).num_rows)

    def _rows(self, stretch: int) -> Data:
        if self._uses_all:
            return self._objective.data
        return self._objective.rows_of(self._stretches[min(stretch, len(self._stretches) - 1)].rows)


class _Climb:
    """The state of a fit; after every iteration it is shown and, if someone looks, the model's."""

    def __init__(
        self,
        search: HyperparameterSearch,
        state: State,
        checkpoints: Checkpoints,
        bar: Any,
        callbacks: tuple[_Callback, _Callback | None],
        in_gpflow: _InGPflow,
    ) -> None:
        """
        :param callbacks: one that does not see the model, and one that does.
        """
        self.state = state
        self._search, self._checkpoints, self._bar = search, checkpoints, bar
        self._record, self._callback = callbacks
        self._in_gpflow = in_gpflow

    def skip_subsets(self, stretches: Sequence[Stretch]) -> None:
        """Begin with all rows if the model is at their optimum."""
        if not self.state.stretch and not self.state.iteration and not self.state.reason:
            self.state = self._search.skip_subsets(stretches, self.state)

    def over(self, stretches: Sequence[Stretch]) -> None:
        """Iterate on one stretch after the other until the fit ends."""
        for stretch in stretches[self.state.stretch :]:
            if self.state.reason:
                return
            self._over(stretch)

    def _over(self, stretch: Stretch) -> None:
        """Iterate on one stretch until it ends."""
        search, stored_at = self._search, _clock()  # a stretch begins just after a checkpoint
        self.state = search.onto(stretch, self.state)
        if self.state.reason:  # it ends without an iteration
            self.report(stretch.rows)
        while not self.state.reason:
            self.state = search.step(stretch, self.state)
            self.report(stretch.rows)
            is_due = self.state.iteration % SETTINGS.checkpoint_iterations == 0
            is_due = is_due or _clock() - stored_at >= _CHECKPOINT_SECONDS
            if not self.state.reason and search.objective.data.any_worker(is_due):
                self._store()
                stored_at = _clock()
        self.state = search.end(stretch, self.state)
        self._store()

    def report(self, rows: int) -> None:
        """Show the state, and pass it to the callback."""
        if self._in_gpflow.states:
            self._in_gpflow.add(self.state)
        value, evaluations = self.state.point.value, self._search.objective.evaluations
        self._bar.set_description(f"{rows or 'no'} rows", refresh=False)
        self._bar.set_postfix(objective=f"{value:.6g}", refresh=False)
        self._bar.update(evaluations - self._bar.n)
        at = FitProgress(rows, value, evaluations)
        self._record(at)
        if self._callback is not None:
            self._search.move_to(self.state)
            self._callback(at)

    def back_to_a_value_in_gpflow(self) -> None:
        """Return to the latest iteration at which GPflow's own likelihood has a finite ELBO."""
        last, states = self.state, self._in_gpflow.states
        self._search.move_to(last)
        while states and not self._in_gpflow.is_finite(self.state):
            self.state = states.pop()
            self._search.move_to(self.state)
        if self.state is not last:
            value = self._in_gpflow.value(self.state)
            reason = _NO_VALUE_LATER.format(name=self._in_gpflow.name)
            point = self.state.point._replace(value=value)
            self.state = self.state._replace(point=point, reason=reason)
            self._checkpoints.save(_number(last) + 1, self.state.write)

    def _store(self) -> None:
        self._checkpoints.save(_number(self.state), self.state.write)
        self._search.objective.data.log.clear()


def _search(
    profile: Profile, rows: Data, least_gain: float, max_steps: int, bar: Any, q: Gaussian
) -> tuple[Gaussian, PolishResult]:
    """The q where Newton's method ends that begins at ``q``, and its result."""
    start = elbo = float(profile.maximise(rows, q, least_gain, 0).elbo)
    steps, gain = 0, np.inf
    while steps < max_steps and gain >= least_gain:
        better = profile.maximise(rows, q, least_gain, 1)
        gain = float(better.elbo) - elbo
        if gain > 0.0 or not np.isfinite(elbo):
            q, elbo = better.q, float(better.elbo)
        steps += 1
        bar.set_postfix(ELBO=f"{elbo:.6g}", refresh=False)
        bar.update()
    return q, PolishResult(elbo, start, steps)


def _number(state: State) -> int:
    """The number of a checkpoint; a later state has a larger one."""
    # A stretch may end where it begins.
    return state.stretch * (SETTINGS.most_iterations + 2) + state.iteration + bool(state.reason)


@of_any_model
def polish(
    model: AugmentedModel,
    data: RegressionData | tf.data.Dataset | None = None,
    *,
    max_steps: int = 100,
    progress: bool = True,
) -> PolishResult:
    """
    Maximise GPflow's ELBO in q(u) at fixed hyperparameters.

    The method is Newton's, safeguarded: a step is kept only if it raises the ELBO. See
    :mod:`~gpflow_aaci.inference.profile`. If f is still wide at some rows at the end, a second
    search begins at the prior mean with a narrow q, and the better end is kept.

    :param model: an ``AugmentedSVGP``, an ``AugmentedVGP``, or GPflow's own ``SVGP`` or ``VGP``.
    :param data: X [N, D] and Y [N, P] as arrays or frames; or a ``tf.data.Dataset`` of such
        batches, which is one pass over any number of rows; None for ``AugmentedVGP``.
    :param max_steps: the largest number of Newton steps of a search.
    :param progress: whether to show a bar with steps and ELBO.
    :raises ValueError: for bad data, or if the ELBO is not finite and no step makes it finite.
        Nothing has been changed then.
    :return: the ELBO before and after, and the number of steps.
    """
    call = Call("polish", {"max_steps": max_steps})
    rows = as_data(model.expected_data, data, progress, call=call)
    progress = progress and rows.is_chief
    least_gain = _POLISH_TOLERANCE * float(rows.num_data)
    with progress_bar(progress, unit="step", total=max_steps) as bar:
        profile = Profile(model, [])
        search = functools.partial(_search, profile, rows, least_gain, max_steps, bar)
        q, (elbo, start, steps) = search(q_at_start(model, rows))
        narrow = narrow_q(model, rows, q, elbo)
        if narrow is not None:
            q_there, there = search(narrow)
            steps += there.steps
            if there.elbo > elbo or not np.isfinite(elbo):
                q, elbo = q_there, there.elbo
    if not np.isfinite(elbo):
        raise not_finite_at_start(model, rows, start)
    if elbo > start or not np.isfinite(start):
        model.assign_whitened_q(q)
        refresh_posteriors(model)
    return PolishResult(max(elbo, start), start, steps)
