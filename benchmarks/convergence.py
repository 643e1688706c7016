"""Test NLL and error against training time, for every problem, method, grid point and seed."""

import contextlib
import hashlib
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

import gpflow
import numpy as np
import pandas as pd
import tensorflow as tf
from tqdm import tqdm

import gpflow_aaci

from .config import Convergence, Problem
from .data import BINARY_LIKELIHOODS, Split, load_split
from .methods import (
    LABELS,
    Setting,
    Start,
    make_method,
    make_model,
    make_start,
    minibatches,
    settings,
)
from .time_to import best_and_fastest

_FIRST_EVALUATION, _EVALUATION_RATIO = 0.01, 1.1  # training seconds, and from one to the next


def run(config: Convergence, folder: Path, quiet: bool = False) -> pd.DataFrame:
    """
    One row per evaluation of a run.

    The whole grid at the first seed; at the others only each method's settings that ended lowest
    or were fastest at the first. A finished run is kept in ``output/runs`` and not run again.
    """
    grid = [setting for method in config.method for setting in settings(method)]
    # All data first: a wrong path is said before anything has run.
    splits = {
        (problem, seed): load_split(config.problem[problem], folder, config.test_fraction, seed)
        for problem in range(len(config.problem))
        for seed in config.seeds
    }
    runs: list[pd.DataFrame] = []
    # tqdm's disable=None: silent where the output is not a terminal.
    with tqdm(unit="run", disable=True if quiet else None) as progress:
        progress.total = len(grid) * len(config.problem)
        for number, problem in enumerate(config.problem):
            chosen = grid
            for seed in config.seeds:
                split = splits[number, seed]
                for setting in chosen:
                    progress.set_description(f"{split.name}: {LABELS[setting.kind]}, {setting}")
                    runs.append(_kept_run(config, problem, split, setting, seed))
                    progress.update()
                if seed == config.seeds[0] and len(config.seeds) > 1:
                    first = pd.concat(run for run in runs if (run.problem == split.name).all())
                    names = best_and_fastest(first)
                    chosen = [s for s in grid if (LABELS[s.kind], str(s)) in names]
                    progress.total += len(chosen) * (len(config.seeds) - 1)
    return pd.concat(runs, ignore_index=True)


Row = dict[str, object]


def _kept_run(
    config: Convergence, problem: Problem, split: Split, setting: Setting, seed: int
) -> pd.DataFrame:
    """The run, read from where it was kept if it was finished before."""
    parts = {
        "problem": problem.model_dump(),
        "setting": asdict(setting),
        "seed": seed,
        "data": [len(split.X), len(split.X_test), float(np.sum(split.X)), float(np.sum(split.Y))],
        "config": config.model_dump(exclude={"output", "problem", "method", "seeds"}),
    }
    key = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]
    path = config.output / "runs" / f"{split.name}-{setting.kind}-{seed}-{key}.csv".replace(" ", "")
    if path.is_file():
        return pd.read_csv(path)
    rows = pd.DataFrame(_run_one(config, problem, split, setting, seed))
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".part")
    rows.to_csv(unfinished, index=False)
    unfinished.replace(path)
    return rows


def _run_one(
    config: Convergence, problem: Problem, split: Split, setting: Setting, seed: int
) -> list[dict[str, object]]:
    start = make_start(split, problem.likelihood, config.num_inducing, seed)
    label = {
        "problem": split.name,
        "method": LABELS[setting.kind],
        "setting": str(setting),
        "seed": seed,
        "metric": "error" if _is_binary(start) else "RMSE",
    }
    method_run = _collapsed_run if setting.kind == "collapsed" else _minibatch_run
    return [label | row for row in method_run(config, setting, start, split, seed)]


def _minibatch_run(
    config: Convergence, setting: Setting, start: Start, split: Split, seed: int
) -> Iterator[Row]:
    batches = minibatches(split, config.batch_size, seed)
    model, step, kept = make_method(setting, start, batches)
    evaluate = _evaluator(model, split, _is_binary(start))
    tracing = time.perf_counter()
    _trace(step, [*model.variables, *kept])
    nll, error = evaluate()
    tracing = time.perf_counter() - tracing

    def row(step: int, seconds: float, status: str = "ok") -> Row:
        measured = {"nll": nll, "error": error, "status": status}
        return {"step": step, "seconds": seconds, "tracing_seconds": tracing, **measured}

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
            nll, error = evaluate()
        except tf.errors.InvalidArgumentError:
            yield row(done, seconds, "failed: Cholesky")
            return
        if not np.isfinite(nll):
            yield row(done, seconds, "failed: not finite")
            return
        yield row(done, seconds)


def _is_binary(start: Start) -> bool:
    return start.likelihood.name in BINARY_LIKELIHOODS


class _TimeIsUpError(Exception):
    pass


def _collapsed_run(
    config: Convergence, setting: Setting, start: Start, split: Split, seed: int
) -> list[Row]:
    """``fit_collapsed``, evaluated off the clock whenever it reports. Compiling is tracing."""
    model = make_model(start, gpflow_aaci.AugmentedSVGP)
    evaluate = _evaluator(model, split, _is_binary(start))
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
        if seconds > last * _EVALUATION_RATIO or seconds >= config.seconds:
            nll, error = evaluate()
            measured = {"nll": nll, "error": error, "status": "ok"}
            step = {"step": progress.evaluations, "seconds": seconds, "tracing_seconds": tracing}
            rows.append(step | measured)
            last = seconds
        off_clock += time.perf_counter() - now
        if seconds >= config.seconds:
            raise _TimeIsUpError

    with contextlib.suppress(_TimeIsUpError):
        data = (split.X, split.Y)
        gpflow_aaci.fit_collapsed(model, data, objective=setting.objective, callback=record)
    return rows


def _trace(step: Callable[[], None], variables: list[tf.Variable]) -> None:
    """Take the first step, which compiles, and undo it: tracing is not on the clock."""
    before = {id(variable): tf.identity(variable) for variable in variables}
    with contextlib.suppress(tf.errors.InvalidArgumentError):  # it will fail on the clock, too
        step()
    for variable in variables:
        variable.assign(before[id(variable)])


def _evaluator(
    model: gpflow.models.SVGP, split: Split, binary: bool
) -> Callable[[], tuple[float, float]]:
    X, Y = tf.constant(split.X_test), tf.constant(split.Y_test)

    @tf.function
    def predict() -> tuple[tf.Tensor, tf.Tensor]:
        mean, _ = model.predict_y(X)
        return -tf.reduce_mean(model.predict_log_density((X, Y))), mean

    def evaluate() -> tuple[float, float]:
        nll, mean = predict()
        wrong = (mean.numpy() > 0.5) != (split.Y_test > 0.5)
        rmse = np.sqrt(np.mean((mean.numpy() - split.Y_test) ** 2))
        return float(nll), float(np.mean(wrong) if binary else rmse)

    return evaluate
