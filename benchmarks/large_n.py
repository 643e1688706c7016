"""Return and NLL of ``fit`` as rows grow in number, beside Adam until it has the same NLL."""

import time
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import tensorflow as tf
from gpflow.keras import tf_keras
from matplotlib.figure import Figure

import gpflow_aaci
from gpflow_aaci.progress import progress_bar
from gpflow_aaci.runtime.compiled import forget_compiled

from . import methods
from .cache import finished
from .config import LargeN, Problem
from .datasets import Dataset, Split, made_up
from .report import Report, fixed, one_legend, style, subplots

_ENOUGH, _ALL, _ADAM = "fit", "fit, all rows", "Adam"
_NEAR = 0.005  # nats of NLL that do not count
_BATCH = 100


def run(config: LargeN, folder: Path, quiet: bool = False) -> pd.DataFrame:
    """One row for every number of rows and method."""
    tables = []
    with progress_bar(not quiet, iterable=config.rows, unit="size") as sizes:
        for rows in sizes:
            key = {"rows": rows}
            tables.append(finished(config, f"{rows}", key, partial(_of_size, config, rows)))
    return pd.concat(tables, ignore_index=True)


def report(metrics: pd.DataFrame) -> Report:
    """Seconds with tracing until each returned, or until Adam had the NLL that fit ended at."""
    table = pd.DataFrame(
        {
            "rows": metrics.rows,
            "method": metrics.method,
            "returned [s]": fixed(metrics.seconds, 1),
            "reading [s]": fixed(metrics.reading, 1),
            "test NLL": fixed(metrics.nll, 4),
            f"NLL within {_NEAR} of fit's [s]": fixed(metrics.near, 1),
            "rows used": metrics.used.fillna(0).astype(int),
            "four times more were worth": fixed(metrics.worth, 4),
            "end": metrics.status,
        }
    )
    caption = (
        "Simulated rows, Student-t noise with scale and df learnt, Z fixed. Seconds include "
        "tracing; reading is one pass over the rows as the check of them makes it. Adam is at the "
        "learning rate that is there first; a blank is never within its time."
    )
    return Report({caption: table}, {"large_n": _figure(metrics)})


def _of_size(config: LargeN, rows: int) -> pd.DataFrame:
    problem = Problem(data="made up", likelihood=config.likelihood)
    X, y = made_up((rows + config.test_rows, config.input_dim), problem)
    split = Dataset(problem, X, y).split(config.test_rows / len(X), seed=0)
    start = methods.make_start(split, problem, config.num_inducing, seed=0)
    began = time.perf_counter()
    assert np.isfinite(split.X).all()
    assert np.isfinite(split.Y).all()
    reading = time.perf_counter() - began
    ways = {_ENOUGH: "enough"} | ({_ALL: "all"} if rows <= config.all_up_to else {})
    table = [_fit(start, split, name, used) for name, used in ways.items()]
    goal = table[0]["nll"] + _NEAR
    runs = [_adam(config, start, split, rate, goal) for rate in config.learning_rate]
    table.append(min(runs, key=lambda run: (np.nan_to_num(run["near"], nan=np.inf), run["nll"])))
    return pd.DataFrame(table).assign(rows=rows, reading=reading)


def _fit(start: methods.Start, split: Split, name: str, rows: str) -> dict[str, object]:
    forget_compiled()
    model = methods.make_model(start, is_augmented=True)
    began = time.perf_counter()
    result = gpflow_aaci.fit(model, (split.X, split.Y), rows=rows, progress=False)  # type: ignore[arg-type]
    seconds = time.perf_counter() - began
    nll = _nll(model, split)
    of_run = {"method": name, "seconds": seconds, "nll": nll, "near": seconds, "used": result.rows}
    status = "converged" if result.converged else result.reason
    return of_run | {"worth": result.worth, "status": status}


def _adam(
    config: LargeN, start: methods.Start, split: Split, rate: float, goal: float
) -> dict[str, object]:
    """GPflow's SVGP on minibatches of 100 until its NLL is at the goal in two evaluations."""
    model = methods.make_model(start, is_augmented=False)
    batches = methods.minibatches(start, _BATCH, seed=0)
    adam = tf_keras.optimizers.Adam(rate)

    @tf.function(autograph=False)
    def step() -> None:
        batch = next(batches)
        adam.minimize(lambda: model.training_loss(batch), model.trainable_variables)

    clock, paused, near, nll = time.perf_counter(), 0.0, np.nan, np.inf
    while time.perf_counter() - clock - paused < config.seconds:
        for _ in range(200):
            step()
        stopped = time.perf_counter()
        nll = _nll(model, split)
        if nll <= goal:
            near = stopped - clock - paused
            break
        paused += time.perf_counter() - stopped
    seconds = time.perf_counter() - clock - paused
    status = f"lr {rate:g}, " + ("at fit's NLL" if np.isfinite(near) else "limit: time")
    return {"method": _ADAM, "seconds": seconds, "nll": nll, "near": near, "status": status}


def _nll(model: methods.Model, split: Split) -> float:
    """The test NLL, evaluated in parts."""
    total, size = 0.0, 5_000
    for first in range(0, len(split.X_test), size):
        rows = slice(first, first + size)
        total -= float(tf.reduce_sum(_log_density(model, split.X_test[rows], split.Y_test[rows])))
    return total / len(split.X_test)


def _log_density(model: methods.Model, X: np.ndarray, Y: np.ndarray) -> tf.Tensor:
    return model.predict_log_density((tf.constant(X), tf.constant(Y)))


def _figure(metrics: pd.DataFrame) -> Figure:
    figure, axes = subplots(1, 1, 5.0, 3.0)
    ax = axes[0, 0]
    for method, label in ((_ENOUGH, "fit"), (_ALL, "AlternatingOptimizer"), (_ADAM, "Adam")):
        own = metrics[metrics.method == method]
        ax.plot(own.rows, own.near, **style(label), label=method)
    ax.set(xscale="log", yscale="log", xlabel="rows")
    ax.set(ylabel=f"seconds until the return,\nor within {_NEAR} of fit's NLL")
    one_legend(figure, axes)
    return figure
