"""Inducing points, nearest neighbours and the full GP: held-out density against CPU seconds."""

import time
from functools import partial
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

import gpflow_aaci
from gpflow_aaci.predictions import predict_y_quantile
from gpflow_aaci.progress import progress_bar

from .cache import finished
from .config import Nearest
from .datasets import Array, Split, load_datasets, standard_split
from .elsewhere import PEERS, of_own_process, of_peer
from .report import Report, fixed, one_legend, subplots
from .scripts.scores import peak_megabytes

_NEAREST, _FULL = "nearest", "full"
_AT_ONCE = 2_000  # test rows that are predicted at once
_LEVEL = 0.9
_SCORES = (
    "nll",
    "error",
    "coverage",
    "cpu_seconds",
    "cpu_seconds_predicting",
    "megabytes",
    "converged",
    "neighbors",
)


def run(config: Nearest, folder: Path, quiet: bool = False) -> pd.DataFrame:
    """One row for every problem, split and method, each run in a process of its own."""
    datasets = load_datasets(config.problem, folder, quiet)
    runs = [
        (data, seed, name)
        for seed in config.seeds
        for name in config.method
        for data in datasets
        if name not in config.dear
        or (seed == config.seeds[0] and data.problem.title in config.dear[name])
    ]
    tables = []
    for data, seed, name in progress_bar(not quiet, iterable=runs, unit="run"):
        split = standard_split(data, seed, folder, config.test_fraction, config.max_test)
        if name == _FULL and len(split.X) > config.most_rows_of_full:
            continue
        key = {**data.key, "seed": seed, "method": name}
        title = f"{split.name}-{name}-{seed}"
        table = finished(config, title, key, partial(_of, config, split, name, seed))
        tables.append(table.assign(sha256=data.sha256))
    return pd.concat(tables, ignore_index=True)


def report(metrics: pd.DataFrame) -> Report:
    """Means over the splits, with standard errors."""
    order = {name: number for number, name in enumerate(metrics.problem.unique())}
    metrics = metrics.sort_values("problem", key=lambda names: names.map(order), kind="stable")
    groups = metrics.groupby(["problem", "method"], sort=False)  # splits may differ by a row
    first = {"rows": ("rows", "first"), "columns": ("columns", "first"), "splits": ("seed", "size")}
    table = groups.agg(**first).reset_index()
    for column in ("nll", "error", "coverage"):
        table[column] = [_with_error(group[column]) for _, group in groups]
    for column, digits in (("cpu_seconds", 1), ("cpu_seconds_predicting", 1), ("megabytes", 0)):
        table[column] = fixed(groups[column].mean().reset_index(drop=True), digits)
    table["neighbors"] = fixed(groups.neighbors.median().reset_index(drop=True), 0)
    table["converged"] = [
        f"{int(group.converged.sum())} of {len(group)}" if group.converged.notna().all() else ""
        for _, group in groups
    ]
    caption = (
        "Test NLL in nats a datum of the standardised y; error is the RMSE, or the share of wrong "
        "labels; coverage of central 90 % intervals of y. CPU seconds of one core from the call of "
        "the fit to its return, tracing counted, and of all predictions; megabytes are the peak of "
        "the process. Blank: not within the CPU seconds that a process was given."
    )
    return Report({caption: table}, {"nearest": _figure(metrics)})


def _with_error(values: pd.Series) -> str:
    """The mean and its standard error."""
    if values.isna().any():
        return ""
    error = f" ± {values.std() / np.sqrt(len(values)):.3f}" if len(values) > 1 else ""
    return f"{values.mean():.3f}{error}"


def _of(config: Nearest, split: Split, name: str, seed: int) -> pd.DataFrame:
    """The row of one run, without scores if it took too long."""
    rows, columns = split.X.shape
    row: dict[str, Any] = {
        "problem": split.name,
        "rows": rows,
        "columns": columns,
        "seed": seed,
        "method": name,
    }
    if name in PEERS:
        arrays = {
            "X": split.X,
            "y": split.Y[:, 0],
            "X_test": split.X_test,
            "y_test": split.Y_test[:, 0],
            "is_binary": split.kind == "binary",
            "noise": "logit" if split.kind == "binary" else "Gaussian",
            "smoothness": 1.5 if config.kernel == "Matern32" else 2.5,
            "seed": seed,
        }
        scores = of_peer(name, config.output / "environments", config.most_seconds, arrays)
    elif config.own_process:
        scores = of_own_process(config.most_seconds, partial(_run, config, split, name, seed))
    else:
        scores = _run(config, split, name, seed)
    return pd.DataFrame([row | dict.fromkeys(_SCORES, np.nan) | (scores or {})])


def _run(config: Nearest, split: Split, name: str, seed: int) -> dict[str, Any]:
    (likelihood,) = (p.likelihood for p in config.problem if p.title == split.name)
    columns = split.X.shape[1]
    kernel = getattr(gpflow.kernels, config.kernel)(lengthscales=[np.sqrt(columns)] * columns)
    began = time.process_time()
    model, result = _fitted(name, kernel, likelihood.make(), split, seed)
    fitted = time.process_time()
    return {
        **_scores(model, split),
        "cpu_seconds": fitted - began,
        "cpu_seconds_predicting": time.process_time() - fitted,
        "megabytes": peak_megabytes(),
        "converged": float(result.converged),
        "neighbors": getattr(result, "num_neighbors", np.nan),
    }


def _fitted(name: str, kernel: Any, likelihood: Any, split: Split, seed: int) -> tuple[Any, Any]:
    data = split.X, split.Y
    if name in (_NEAREST, _FULL):
        kind = gpflow_aaci.AugmentedNNGP if name == _NEAREST else gpflow_aaci.AugmentedVGP
        model = kind(data, kernel, likelihood)
        return model, gpflow_aaci.fit(model, seed=seed, progress=False)
    num_inducing = int(name.rpartition(" ")[2].replace(",", ""))
    distinct = len(np.unique(split.X, axis=0))
    Z = gpflow_aaci.kmeans_plusplus(split.X, min(num_inducing, distinct), seed)
    model = gpflow_aaci.AugmentedSVGP(kernel, likelihood, Z, num_data=len(split.X))
    gpflow.set_trainable(model.inducing_variable, False)
    return model, gpflow_aaci.fit(model, data, seed=seed, progress=False)


def _scores(model: Any, split: Split) -> dict[str, float]:
    """NLL, error and coverage on the test rows."""
    log_p, errors, inside = [], [], []
    for start in range(0, len(split.X_test), _AT_ONCE):
        X, Y = (part[start : start + _AT_ONCE] for part in (split.X_test, split.Y_test))
        log_p.append(model.predict_log_density((X, Y)).numpy())
        mean = model.predict_y(X)[0].numpy()
        if split.kind == "binary":
            errors.append((mean > 0.5) != (Y > 0.5))
            continue
        errors.append(np.square(mean - Y))
        tails = [0.5 - _LEVEL / 2.0, 0.5 + _LEVEL / 2.0]
        low, high = predict_y_quantile(model, X, tails, progress=False).numpy()
        inside.append((low <= Y) & (high >= Y))
    error = float(np.mean(np.concatenate(errors)))
    return {
        "nll": -float(np.concatenate(log_p).mean()),
        "error": error if split.kind == "binary" else float(np.sqrt(error)),
        "coverage": float(np.concatenate(inside).mean()) if inside else np.nan,
    }


def _figure(metrics: pd.DataFrame) -> Figure:
    problems: Array = metrics.problem.unique()
    methods = list(metrics.method.unique())
    columns = min(4, len(problems))
    figure, axes = subplots(-(-len(problems) // columns), columns, 2.6, 2.3)
    for ax in axes.flat[len(problems) :]:
        ax.axis("off")
    for ax, problem in zip(axes.flat, problems, strict=False):
        for number, method in enumerate(methods):
            own = metrics[(metrics.problem == problem) & (metrics.method == method)]
            marker = {"marker": "osD^vP"[number % 6], "linestyle": "none", "markersize": 5}
            ax.plot(own.cpu_seconds, own.nll, **marker, color=f"C{number}", label=method)
        ax.set(xscale="log", xlim=(1.0, 1_000.0), title=problem, ylabel="test NLL")
        ax.set_xlabel("CPU seconds of the fit")
    one_legend(figure, axes)
    return figure
