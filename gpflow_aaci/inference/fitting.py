"""``fit_collapsed`` and ``polish``: full-batch routes that leave minibatches behind."""

import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.base import RegressionData
from gpflow.config import default_jitter

from ..checkpoints import (
    PassLog,
    check_same_program,
    describe,
    latest_checkpoint,
    save_checkpoint,
)
from ..data import as_data
from ..models import AugmentedModel, refresh_posteriors
from ..progress import progress_bar
from ..workers import any_worker, is_chief
from .climb import CONVERGED, INNER_TOLERANCE, MOST_ITERATIONS, Climb, schedule
from .profile import Profile

_CHECKPOINT_EVERY = 10  # iterations
_CHECKPOINT_SECONDS = 10.0  # after which a checkpoint is due at the end of the next iteration
_clock = time.monotonic
_MANY = 100.0


class FitProgress(NamedTuple):
    """Where ``fit_collapsed`` is: passed to its callback."""

    rows: int  # in use; 0 at the first call, before the first iteration
    objective: float  # on these rows, scaled to all of them
    evaluations: int


class FitResult(NamedTuple):
    """What ``fit_collapsed`` has done."""

    objective: float  # on all rows, log prior included
    start: float  # the same before
    evaluations: int
    converged: bool
    reason: str = ""  # why it ended
    tracing_seconds: float = 0.0
    fitting_seconds: float = 0.0  # all the others


class PolishResult(NamedTuple):
    """What ``polish`` has done to the standard ELBO."""

    elbo: float
    start: float
    steps: int

    @property
    def gain(self) -> float:
        """Nats of standard ELBO gained; never negative."""
        return self.elbo - self.start


def fit_collapsed(
    model: AugmentedModel,
    data: RegressionData | tf.data.Dataset | None = None,
    *,
    tolerance: float = 1e-4,
    seed: int = 0,
    callback: Callable[[FitProgress], None] = lambda progress: None,
    checkpoint_dir: str | Path | None = None,
    progress: bool = True,
) -> FitResult:
    """
    Fit q(u) and every trainable hyperparameter of ``model``: the profile of GPflow's ELBO.

    q is maximised out (:mod:`~gpflow_aaci.inference.profile`), and the hyperparameters climb by a
    quasi-Newton method in the logarithms of those that are positive: a stretch on a random subset
    that grows fourfold from 1,000 rows (or a hundred for every hyperparameter, where these are
    more), then one on all rows, each until its last three iterations
    together gain too little. What curvature one has found, the next begins with. Kernel, mean
    function, likelihood and, where they are trainable, inducing points are fitted; priors count.
    ``q_mu`` and ``q_sqrt`` are managed here, trainable or not; where nothing else is trainable they
    alone are fitted. An evaluation that fails counts as a step too far, and the model never ends
    below where it began. Where y is in another unit than the first guess of noise and signal, one
    is looked for along which both fit it::

        gpflow.set_trainable(model.inducing_variable, False)
        fit_collapsed(model, (X, Y))

    :param data: X [N, D], Y [N, P], as arrays or frames; or a ``tf.data.Dataset`` of such batches,
        one pass over the rows, of any length; none for ``AugmentedVGP``.
    :param tolerance: nats per datum that the last three iterations on all rows must gain.
    :param callback: called when all is compiled and, with the model up to date, after every
        iteration. What it raises ends the fit with what has been learnt, as Ctrl-C does.
    :param checkpoint_dir: a checkpoint is kept there after every stretch, every ten iterations and
        the first iteration that ends ten seconds after the last one, and the same call goes on from
        it. Of rows that are passed over in chunks, every pass since then is kept, too: a process
        killed at any moment loses the pass that it was at.
    :param progress: whether a bar shows rows, objective and evaluations.
    :raises ValueError: for bad data, and a checkpoint that is damaged or of another run, before
        anything is changed.
    :raises OSError: where a checkpoint cannot be written. The model keeps what it has learnt.
    :raises RuntimeError: where data cannot be read. The model keeps what it has learnt.
    """
    began = time.perf_counter()
    strategy = model.strategy
    options = {"tolerance": tolerance, "seed": seed}
    check_same_program(model, "fit_collapsed", **options, keeps=checkpoint_dir is not None)
    progress = progress and is_chief(strategy)
    rows = as_data(model, data, progress, strategy=strategy)
    directory = None if checkpoint_dir is None else Path(checkpoint_dir)
    run = {
        "model": describe(model),
        "data": rows.identity,
        **options,
    }
    resumed = None if directory is None else latest_checkpoint(directory, run, strategy)
    with progress_bar(progress, unit="evaluation", desc="compiling") as bar:
        log = PassLog(directory, run, strategy)
        climb = Climb(model, rows, seed, log)
        stretches = schedule(model, rows.num_rows, climb.size, tolerance)
        objective = climb.objective
        objective.trace()
        state = climb.begin() if resumed is None else climb.resume(resumed, stretches)
        is_finished = bool(state.reason)

        def say(rows: int) -> None:
            bar.set_description(f"{rows or 'no'} rows", refresh=False)
            bar.set_postfix(objective=f"{state.point.value:.6g}", refresh=False)
            bar.update(objective.evaluations - bar.n)
            callback(FitProgress(rows, state.point.value, objective.evaluations))

        def keep() -> None:
            if directory is not None:
                number = state.stretch * MOST_ITERATIONS + state.iteration
                save_checkpoint(directory, number, run, state.write, strategy)
                log.clear()

        try:
            climb.move_to(state)
            say(0)
            for stretch in () if is_finished else stretches[state.stretch :]:
                kept_at = _clock()  # a stretch begins just after a checkpoint, or the first one
                state = climb.onto(stretch, state)
                while not state.reason:
                    state = climb.step(stretch, state)
                    climb.move_to(state)
                    say(stretch.rows)
                    is_due = state.iteration % _CHECKPOINT_EVERY == 0
                    is_due = is_due or _clock() - kept_at >= _CHECKPOINT_SECONDS
                    if not state.reason and any_worker(strategy, is_due):
                        keep()
                        kept_at = _clock()
                state = climb.end(stretch, state)
                keep()
        finally:  # also where the user interrupts: never in the middle of a line search
            climb.move_to(state)
            refresh_posteriors(model)
        _check_jitter(model)
        tracing = objective.tracing_seconds
        return FitResult(
            state.point.value,
            state.start,
            objective.evaluations,
            state.reason in CONVERGED,
            state.reason,
            tracing,
            time.perf_counter() - began - tracing,
        )


def _check_jitter(model: AugmentedModel) -> None:
    """Warn where the jitter, which has a unit, is no small part of the kernel's variance."""
    jitter = default_jitter()
    variance = float(tf.reduce_max(model.prior_variance()))
    if variance < _MANY * jitter:
        warnings.warn(
            f"the kernel's variance is {variance:.2g} after the fit, no more than {_MANY:g} times "
            f"default_jitter, {jitter:.2g}. Either f is nearly constant, or Y has too large a unit "
            "for that jitter: give it another, or lower gpflow.config.default_jitter().",
            stacklevel=3,
        )


def polish(
    model: AugmentedModel,
    data: RegressionData | tf.data.Dataset | None = None,
    *,
    max_steps: int = 100,
    progress: bool = True,
) -> PolishResult:
    """
    Close the augmentation gap of q(u) at fixed hyperparameters.

    Safeguarded Newton steps on the standard ELBO, each kept only if it gains; see
    :mod:`~gpflow_aaci.inference.profile`. Hyperparameters stay as they are.

    :param data: X [N, D], Y [N, P], as arrays or frames; or a ``tf.data.Dataset`` of such batches,
        one pass over the rows, of any length; none for ``AugmentedVGP``.
    :param progress: whether a bar shows steps and ELBO.
    :raises ValueError: for bad data, before anything is changed.
    """
    strategy = model.strategy
    check_same_program(model, "polish", max_steps=max_steps)
    progress = progress and is_chief(strategy)
    rows = as_data(model, data, progress, strategy=strategy)
    least_gain = 1e-3 * INNER_TOLERANCE * rows.num_data
    with progress_bar(progress, unit="step", total=max_steps) as bar:
        profile = Profile(model, [])
        q = model.whitened_q(tf.linalg.cholesky(model.prior_covariance()))
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
    if elbo > start:
        model.assign_whitened_q(q)
        refresh_posteriors(model)
    return PolishResult(max(elbo, start), start, steps)
