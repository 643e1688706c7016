"""Test NLL and error against training time, for every problem, method, grid point and seed."""

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pandas as pd
import tensorflow as tf

import gpflow_aaci
from gpflow_aaci.progress import progress_bar

from .config import Convergence, Problem
from .curves import write_curves
from .data import Dataset, Split, load_datasets
from .kept import kept
from .methods import (
    LABELS,
    Setting,
    Start,
    clustered,
    make_method,
    make_model,
    make_start,
    minibatches,
    settings,
)
from .metrics import Measured, evaluator, metric_names
from .time_to import best_and_fastest

_FIRST_EVALUATION, _EVALUATION_RATIO = 0.01, 1.1  # training seconds, and from one to the next


def run(config: Convergence, folder: Path, quiet: bool = False) -> pd.DataFrame:
    """
    One row per evaluation of a run.

    The whole grid at the first seed; at the others only the paper's settings and those of each
    method that ended lowest or were fastest at the first. A finished run is kept in
    ``output/runs`` and not run again; its curves are in ``output/tensorboard``.
    """
    grid = list(dict.fromkeys(s for method in config.method for s in settings(method)))
    # All data first: a wrong path, or too few rows, is said before anything has run.
    datasets = load_datasets(config.problem, folder, quiet)
    for dataset in datasets:
        first_split = dataset.split(config.test_fraction, config.seeds[0], config.max_test)
        clustered(first_split, config.num_inducing)
    runs: list[pd.DataFrame] = []
    with progress_bar(not quiet, total=len(grid) * len(datasets), unit="run") as progress:
        for problem, dataset in zip(config.problem, datasets, strict=True):
            chosen = grid
            for seed in config.seeds:
                split = dataset.split(config.test_fraction, seed, config.max_test)
                for setting in chosen:
                    progress.set_description(f"{split.name}: {LABELS[setting.kind]}, {setting}")
                    runs.append(_kept_run(config, problem, dataset, split, setting, seed))
                    progress.update()
                if seed == config.seeds[0] and len(config.seeds) > 1:
                    first = pd.concat(run for run in runs if (run.problem == split.name).all())
                    names = best_and_fastest(first)
                    chosen = [s for s in grid if s.is_papers or (LABELS[s.kind], str(s)) in names]
                    progress.total += len(chosen) * (len(config.seeds) - 1)
    return pd.concat(runs, ignore_index=True)


Row = dict[str, object]


def _kept_run(
    config: Convergence,
    problem: Problem,
    dataset: Dataset,
    split: Split,
    setting: Setting,
    seed: int,
) -> pd.DataFrame:
    """The run, read from where it was kept if it was finished before."""
    depends_on = {
        "problem": problem.model_dump(),
        "setting": asdict(setting),
        "seed": seed,
        "data": dataset.sha256,
        "config": config.model_dump(exclude={"output", "minutes", "problem", "method", "seeds"}),
    }
    name = f"{split.name}-{setting.kind}-{seed}"

    def run() -> pd.DataFrame:
        rows = pd.DataFrame(_run_one(config, problem, split, setting, seed))
        curves = rows[["step", "seconds", *Measured._fields]]
        write_curves(curves, "step", config.output, f"{name}-{setting}")
        return rows

    return kept(config.output / "runs", name, depends_on, run).assign(sha256=dataset.sha256)


def _run_one(
    config: Convergence, problem: Problem, split: Split, setting: Setting, seed: int
) -> list[dict[str, object]]:
    start = make_start(split, problem.likelihood, config.num_inducing, seed, config.kernel)
    label = {
        "problem": split.name,
        "method": LABELS[setting.kind],
        "setting": str(setting),
        "seed": seed,
        **metric_names(split.is_binary),
    }
    method_run = _collapsed_run if setting.kind == "collapsed" else _minibatch_run
    return [label | row for row in method_run(config, setting, start, split, seed)]


def _minibatch_run(
    config: Convergence, setting: Setting, start: Start, split: Split, seed: int
) -> Iterator[Row]:
    batches = minibatches(split, config.batch_size, seed)
    model, step, kept_variables = make_method(setting, start, batches)
    evaluate = evaluator(model, split)
    measured = evaluate()
    tracing = time.perf_counter()
    _trace(step, [*model.variables, *kept_variables])
    tracing = time.perf_counter() - tracing

    def row(step: int, seconds: float, status: str = "ok") -> Row:
        times = {"step": step, "seconds": seconds, "tracing_seconds": tracing}
        return times | measured._asdict() | {"status": status}

    yield row(0, 0.0)
    seconds, done, until = 0.0, 0, _FIRST_EVALUATION
    while seconds < config.seconds and done < config.steps:
        began = time.perf_counter()
        try:
            step()
        except tf.errors.InvalidArgumentError:
            yield row(done, seconds, "failed: Cholesky")
            return
        seconds += time.perf_counter() - began
        done += 1
        if seconds < min(until, config.seconds) and done < config.steps:
            continue
        until = seconds * _EVALUATION_RATIO
        try:
            measured = evaluate()
        except tf.errors.InvalidArgumentError:
            yield row(done, seconds, "failed: Cholesky")
            return
        if not np.isfinite(measured.nll):
            yield row(done, seconds, "failed: not finite")
            return
        yield row(done, seconds)


class _EndOfRunError(Exception):
    pass


def _collapsed_run(
    config: Convergence, setting: Setting, start: Start, split: Split, seed: int
) -> list[Row]:
    """``fit_collapsed``, evaluated off the clock whenever it reports. Compiling is tracing."""
    model = make_model(start, gpflow_aaci.AugmentedSVGP)
    evaluate = evaluator(model, split)
    evaluate()
    rows: list[Row] = []
    began = time.perf_counter()
    tracing, off_clock, last = 0.0, 0.0, -1.0

    def record(progress: gpflow_aaci.FitProgress) -> None:
        nonlocal tracing, off_clock, began, last
        now = time.perf_counter()
        if progress.rows == 0:
            tracing, began = now - began, now
        seconds = now - began - off_clock
        if seconds >= config.seconds:  # what is reached after the limit does not count
            raise _EndOfRunError
        if seconds > last * _EVALUATION_RATIO:
            times = {"step": progress.evaluations, "seconds": seconds, "tracing_seconds": tracing}
            measured = evaluate()
            is_finite = np.isfinite(measured.nll)
            status = "ok" if is_finite else "failed: not finite"
            rows.append(times | measured._asdict() | {"status": status})
            last = seconds
            if not is_finite:
                raise _EndOfRunError
        off_clock += time.perf_counter() - now

    with contextlib.suppress(_EndOfRunError):
        data = split.X, split.Y
        gpflow_aaci.fit_collapsed(model, data, callback=record, progress=False)
    return rows


def _trace(step: Callable[[], None], variables: list[tf.Variable]) -> None:
    """Take the first step, which compiles, and undo it: tracing is not on the clock."""
    before = {id(variable): tf.identity(variable) for variable in variables}
    with contextlib.suppress(tf.errors.InvalidArgumentError):  # it will fail on the clock, too
        step()
    for variable in variables:
        variable.assign(before[id(variable)])
