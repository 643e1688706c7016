"""The figures, in colours and lines that colour-blind readers tell apart."""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from .augmentation_gap import gaps

# Okabe and Ito's colours.
_STYLE = {
    "AACI, collapsed": ("#D55E00", "-"),
    "AACI": ("#CC79A7", (0, (5, 1))),
    "NatGrad + Adam": ("#0072B2", "--"),
    "Adam": ("#009E73", "-."),
}
_BOUNDS = {  # colour, line, marker and its size: hollow, so that one shows around the other
    "augmented": ("#D55E00", "-", "o", 7),
    "standard": ("#0072B2", "--", "x", 4),
}
# Marker and line differ too, so that they are told apart without colour.
_SAMPLERS = {
    "Gibbs": ("#D55E00", "-", "o"),
    "Gibbs, over-relaxed": ("#CC79A7", "-", "D"),
    "Gibbs, ω from log φ": ("#E69F00", (0, (2, 3)), "s"),
    "HMC": ("#0072B2", "--", "^"),
    "NUTS": ("#56B4E9", "--", "v"),
    "elliptical slice": ("#009E73", "-.", "P"),
    "random walk": ("#666666", ":", "X"),
    "MH, prior proposals": ("#000000", ":", "*"),
}


def convergence(runs: pd.DataFrame) -> Figure:
    """Test NLL and error against training seconds: median and range over seeds."""
    problems = list(dict.fromkeys(runs.problem))
    # A run that failed at once has no curve.
    runs = runs[runs.groupby(["problem", "method", "setting", "seed"]).seconds.transform("max") > 0]
    figure, axes = _subplots(2, len(problems), 4.4, 2.9)
    for column, problem in zip(axes.T, problems, strict=True):
        of_problem = runs[runs.problem == problem]
        for method in [name for name in _STYLE if name in set(of_problem.method)]:
            colour, line = _STYLE[method]
            for ax, metric in zip(column, ("nll", "error"), strict=True):
                seconds, *values = _over_seeds(of_problem[of_problem.method == method], metric)
                _band(ax, seconds, values, color=colour, linestyle=line, label=method)
        column[0].set_title(problem.replace("_", " "))
        column[0].set_ylabel("test NLL [nats per datum]")
        is_error = of_problem.error_metric.iloc[0] == "error"
        column[1].set_ylabel("test error rate" if is_error else "test RMSE [standard deviations]")
        column[1].set_xlabel("training time [s]")
        for ax, metric in zip(column, ("nll", "error"), strict=True):
            ax.set_xscale("log")
            values = of_problem[of_problem.step > 0][metric]
            low, high = values.min(), values.quantile(0.9)
            ax.set_ylim(low - 0.05 * (high - low), high + 0.1 * (high - low))
    _one_legend(figure, axes, runs)
    return figure


def augmentation_gap(metrics: pd.DataFrame) -> Figure:
    """Negative bounds, gap and test NLL against the lengthscale: median and range over seeds."""
    problems = list(dict.fromkeys(metrics.problem))
    figure, axes = _subplots(len(problems), 3, 3.6, 2.9)
    table = gaps(metrics)
    for row, problem in zip(axes, problems, strict=True):
        of_problem = table[table.problem == problem]
        for bound, (colour, line, marker, size) in _BOUNDS.items():
            style: dict[str, Any] = {
                "color": colour,
                "linestyle": line,
                "marker": marker,
                "markersize": size,
            }
            _over_lengthscales(
                row[0], of_problem, f"{bound} ELBO", -1.0, **style, label=f"{bound} bound"
            )
            _over_lengthscales(row[2], of_problem, f"NLL, {bound}", **style)
        _over_lengthscales(row[1], of_problem, "gap", color="black", marker="d", markersize=4)
        row[0].set_ylabel("negative ELBO [nats]")
        row[1].set_ylabel("gap of the ELBOs [nats]")
        row[1].set_ylim(bottom=0.0)
        row[2].set_ylabel("test NLL [nats per datum]")
        row[0].set_title(problem.replace("_", " "), loc="left")
        for ax in row:
            ax.set(xlabel="lengthscale [standard deviations]", xscale="log")
    _one_legend(figure, axes, metrics)
    return figure


def autocorrelation(runs: pd.DataFrame) -> Figure:
    """
    Mean |ρ| over the data against the lag, a panel for every problem and a line for every method.

    Markers are hollow where the mean of ρ is negative: draws that undo each other's errors.
    """
    problems = list(dict.fromkeys(runs.problem))
    columns = min(len(problems), 2)
    figure, axes = _subplots(-(-len(problems) // columns), columns, 4.4, 3.1)
    for ax in axes.flat[len(problems) :]:
        ax.set_axis_off()
    lags = [name for name in runs if name.startswith("lag_")]
    signed = [f"signed_{name}" for name in lags]
    for ax, problem in zip(axes.flat, problems, strict=False):
        of_problem = runs[runs.problem == problem].set_index("method")
        for method in [name for name in _SAMPLERS if name in of_problem.index]:
            colour, line, marker = _SAMPLERS[method]
            rho = np.concatenate([[1.0], of_problem.loc[method, lags].to_numpy(float)])
            ax.plot(rho, color=colour, linestyle=line, marker=marker, markersize=4, label=method)
            negative = np.flatnonzero(of_problem.loc[method, signed].to_numpy(float) < 0.0) + 1
            points: dict[str, Any] = {"color": colour, "linestyle": "", "marker": marker}
            ax.plot(negative, rho[negative], **points, markersize=4, markerfacecolor="white")
        ax.set(title=problem, xlabel="lag [draws]", ylim=(0, 1.03))
        ax.set_ylabel("mean |autocorrelation| of f")
        ax.set_xticks(range(0, len(lags) + 1, 2))
    _one_legend(figure, axes, runs)
    figure.suptitle("Hollow markers: the mean autocorrelation is negative", fontsize="medium")
    return figure


def memory(metrics: pd.DataFrame) -> Figure:
    """Resident memory against steps."""
    figure, axes = _subplots(1, 1, 5.0, 3.0)
    ax = axes[0, 0]
    ax.plot(metrics.step, metrics.MB, color="#0072B2")
    ax.set(xlabel="step", ylabel="resident memory [MB]", ylim=(0, 1.2 * metrics.MB.max()))
    return figure


def _subplots(rows: int, columns: int, width: float, height: float) -> tuple[Figure, np.ndarray]:
    # Not pyplot's, which would keep it and need a display or a backend.
    figure = Figure(figsize=(columns * width, rows * height), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    for ax in axes.flat:
        ax.grid(alpha=0.3)
    return figure, axes


def _band(ax: Any, x: Any, values: Any, **style: Any) -> None:
    median, low, high = values
    ax.plot(x, median, **style)
    ax.fill_between(x, low, high, color=style["color"], alpha=0.15, lw=0)


def _over_lengthscales(
    ax: Any, table: pd.DataFrame, column: str, sign: float = 1.0, **style: Any
) -> None:
    wide = sign * table.pivot(index="lengthscale", columns="seed", values=column)
    values = [wide.median(axis=1), wide.min(axis=1), wide.max(axis=1)]
    _band(ax, wide.index, values, markerfacecolor="none", **style)


def _one_legend(figure: Figure, axes: np.ndarray, metrics: pd.DataFrame) -> None:
    handles, labels = axes[0, 0].get_legend_handles_labels()
    seeds = metrics.seed.nunique()
    figure.legend(
        handles,
        labels,
        loc="outside lower center",
        ncols=2 * axes.shape[1],
        frameon=False,
        title=f"median and range over {seeds} seeds" if seeds > 1 else None,
    )


def _over_seeds(runs: pd.DataFrame, metric: str) -> tuple[np.ndarray, ...]:
    """Seconds, and median, least and largest of ``metric`` over the seeds then."""
    runs = runs[runs.seconds > 0.0]
    each = [run for _, run in runs.groupby("seed")]
    first = max(run.seconds.iloc[0] for run in each)
    last = max(run.seconds.iloc[-1] for run in each)
    seconds = np.geomspace(first, max(last, 1.01 * first), 120)
    # What a run had reached by then: the last evaluation before it.
    values = np.stack(
        [
            run[metric].to_numpy()[np.searchsorted(run.seconds, seconds * (1 + 1e-9)) - 1]
            for run in each
        ]
    )
    return seconds, np.median(values, 0), values.min(0), values.max(0)
