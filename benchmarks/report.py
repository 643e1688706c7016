"""Tables, figures and the summary of a run."""

import platform
from importlib.metadata import version
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table

matplotlib.use("Agg")
import matplotlib.pyplot as plt

# Okabe and Ito's colours, told apart by colour-blind readers too.
_STYLE = {
    "AACI": ("#D55E00", "-", "o"),
    "NatGrad + Adam": ("#0072B2", "--", "s"),
    "Adam": ("#009E73", "-.", "^"),
}


def best_runs(metrics: pd.DataFrame) -> pd.DataFrame:
    """The rows of each problem and method's grid point that ends with the lowest test NLL."""
    keys = ["problem", "method", "setting"]
    last = metrics.groupby(keys, sort=False).tail(1)
    # A failed run is last in line, even where its NLL had been low.
    ranked = last.assign(failed=last.status != "ok").sort_values(["failed", "nll"], kind="stable")
    best = ranked.groupby(["problem", "method"], sort=False).head(1)[keys]
    return metrics.merge(best, on=keys)


def summary_table(metrics: pd.DataFrame) -> pd.DataFrame:
    """The end of each method's best run, and how many of its grid points failed."""
    keys = ["problem", "method"]
    last = best_runs(metrics).groupby(keys, sort=False).tail(1)
    ends = metrics.groupby([*keys, "setting"], sort=False).tail(1)
    failed = ends.assign(bad=ends.status != "ok").groupby(keys, sort=False).bad.agg(["sum", "size"])
    counts = [failed.loc[tuple(row)] for row in last[keys].to_numpy()]
    return pd.DataFrame(
        {
            "problem": last.problem,
            "method": last.method,
            "test NLL": last.nll.map("{:.3f}".format),
            "error or RMSE": last.error.map("{:.3f}".format) + " (" + last.metric + ")",
            "seconds": last.seconds.map("{:.1f}".format),
            "steps": last.step,
            "best setting": last.setting,
            "runs failed": [f"{count['sum']} of {count['size']}" for count in counts],
        }
    )


def print_table(table: pd.DataFrame, title: str) -> None:
    """The table in the terminal."""
    shown = Table(title=title)
    for column in table:
        number = pd.api.types.is_numeric_dtype(table[column])
        shown.add_column(str(column), justify="right" if number else "left", no_wrap=True)
    for row in table.itertuples(index=False):
        shown.add_row(*(f"{v:.3g}" if isinstance(v, float) else str(v) for v in row))
    console = Console()
    console.width = max(console.width, 120)
    console.print(shown)


def convergence_figure(metrics: pd.DataFrame, path: Path) -> None:
    """Test NLL and error against training seconds, each method at its best setting."""
    runs = best_runs(metrics)
    problems = list(dict.fromkeys(runs.problem))
    figure, axes = plt.subplots(
        2, len(problems), figsize=(4.2 * len(problems), 5.4), sharex="col", squeeze=False
    )
    for column, problem in zip(axes.T, problems, strict=True):
        of_problem = runs[runs.problem == problem]
        for method, run in of_problem.groupby("method", sort=False):
            colour, line, marker = _STYLE[method]
            moved = run[run.step > 0]
            style = {"color": colour, "linestyle": line, "marker": marker, "markersize": 3}
            column[0].plot(moved.seconds, moved.nll, label=method, **style)
            column[1].plot(moved.seconds, moved.error, **style)
        column[0].set_title(problem.replace("_", " "))
        column[0].set_ylabel("test NLL [nats]")
        column[1].set_ylabel(f"test {of_problem.metric.iloc[0]}")
        column[1].set_xlabel("training time [s]")
        column[1].set_xscale("log")
        start = of_problem[of_problem.step == 0].nll.max()
        low, high = of_problem.nll.min(), min(of_problem.nll.max(), max(start, 0.0) + 0.1)
        margin = 0.05 * (high - low)
        column[0].set_ylim(low - margin, high + margin)
        for ax in column:
            ax.grid(alpha=0.3)
    axes[0, 0].legend(frameon=False)
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    plt.close(figure)


def write_summary(table: pd.DataFrame, title: str, path: Path, figure: str | None = None) -> None:
    """The table in Markdown, with what it was made with."""
    packages = ("gpflow_aaci", "gpflow", "tensorflow", "tensorflow-probability", "numpy")
    versions = ", ".join(f"{name} {version(name)}" for name in packages)
    lines = [f"# {title}", "", _markdown(table), ""]
    if figure is not None:
        lines += [f"![Convergence]({figure})", ""]
    lines.append(f"Python {platform.python_version()}, {versions}; {platform.machine()}.")
    path.write_text("\n".join(lines) + "\n")


def _markdown(table: pd.DataFrame) -> str:
    def line(cells: object) -> str:
        return "| " + " | ".join(str(cell) for cell in np.atleast_1d(cells)) + " |"

    shown = table.map(lambda v: f"{v:.3g}" if isinstance(v, float) else v)
    rows = [line(row) for row in shown.to_numpy()]
    return "\n".join([line(table.columns), line(["---"] * table.shape[1]), *rows])
