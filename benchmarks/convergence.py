"""Test NLL and error against training time, for every problem, method and grid point."""

import contextlib
import time
from collections.abc import Callable

import gpflow
import numpy as np
import pandas as pd
import tensorflow as tf
from gpflow.keras import tf_keras
from tqdm import tqdm

from .config import Convergence, Problem
from .data import BINARY_LIKELIHOODS, Split, load_split
from .methods import LABELS, Setting, make_method, make_start, minibatches, settings


def run(config: Convergence, quiet: bool = False) -> pd.DataFrame:
    """One row per evaluation of a run, of every problem, method and grid point."""
    grid = [setting for method in config.method for setting in settings(method)]
    # All data first: a wrong path is said before anything has run.
    splits = [load_split(p, config.test_fraction, config.seed) for p in config.problem]
    rows: list[dict[str, object]] = []
    total = len(splits) * len(grid)
    # tqdm's disable=None: silent where the output is not a terminal.
    with tqdm(total=total, unit="run", disable=True if quiet else None) as progress:
        for problem, split in zip(config.problem, splits, strict=True):
            for setting in grid:
                progress.set_description(f"{split.name}: {LABELS[setting.kind]}, {setting}")
                rows += _run_one(config, problem, split, setting)
                progress.update()
    return pd.DataFrame(rows)


def _run_one(
    config: Convergence, problem: Problem, split: Split, setting: Setting
) -> list[dict[str, object]]:
    start = make_start(split, problem.likelihood, config.num_inducing, config.seed)
    batches = minibatches(split, config.batch_size, config.seed)
    model, step, adam = make_method(setting, start, batches)
    evaluate = _evaluator(model, split, problem.likelihood.name in BINARY_LIKELIHOODS)

    tracing = time.perf_counter()
    _trace(step, model.variables, adam)
    nll, error = evaluate()
    tracing = time.perf_counter() - tracing

    label = {"problem": split.name, "method": LABELS[setting.kind], "setting": str(setting)}
    label["metric"] = "error" if problem.likelihood.name in BINARY_LIKELIHOODS else "RMSE"
    rows: list[dict[str, object]] = []

    def record(steps: int, seconds: float, status: str) -> None:
        rows.append(
            label
            | {"step": steps, "seconds": seconds, "tracing_seconds": tracing}
            | {"nll": nll, "error": error, "status": status}
        )

    record(0, 0.0, "ok")
    seconds, done = 0.0, 0
    for until in _evaluation_steps(config.steps):
        try:
            while done < until and seconds < config.seconds:
                began = time.perf_counter()
                step()
                seconds += time.perf_counter() - began
                done += 1
            nll, error = evaluate()
        except tf.errors.InvalidArgumentError:
            record(done, seconds, "failed: Cholesky")
            break
        if not np.isfinite(nll):
            record(done, seconds, "failed: not finite")
            break
        record(done, seconds, "ok")
        if seconds >= config.seconds:
            break
    return rows


def _trace(
    step: Callable[[], None], variables: list[tf.Variable], adam: tf_keras.optimizers.Optimizer
) -> None:
    """Take the first step, which compiles, and undo it: tracing is not on the clock."""
    untrained = [tf.identity(variable) for variable in variables]
    with contextlib.suppress(tf.errors.InvalidArgumentError):  # it will fail on the clock, too
        step()
    for variable, value in zip(variables, untrained, strict=True):
        variable.assign(value)
    for variable in adam.variables:
        if variable is not adam.learning_rate:
            variable.assign(tf.zeros_like(variable))


def _evaluation_steps(steps: int) -> list[int]:
    """About twelve evaluations per factor of ten, the last step among them."""
    spaced = np.unique(np.round(np.logspace(0.0, np.log10(steps), int(12 * np.log10(steps)) + 2)))
    return [int(step) for step in spaced]


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
