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
    "AACI, collapsed": ("#D55E00", "-", "o"),
    "AACI": ("#CC79A7", "-", "D"),
    "NatGrad + Adam": ("#0072B2", "--", "s"),
    "Adam": ("#009E73", "-.", "^"),
}
_RUN = ["problem", "method", "setting"]  # and seed


def _ends(metrics: pd.DataFrame) -> pd.DataFrame:
    """The last evaluation of every run."""
    return metrics.groupby([*_RUN, "seed"], sort=False).tail(1)


def best_runs(metrics: pd.DataFrame) -> pd.DataFrame:
    """The rows of each problem and method's grid point that ends with the lowest test NLL."""
    ends = _ends(metrics)
    ends = ends.assign(failed=ends.status != "ok")
    each = ends.groupby(_RUN, sort=False)
    ranked = each.agg(failed=("failed", "sum"), seeds=("seed", "size"), nll=("nll", "mean"))
    # A failed run is last in line even where its NLL had been low; one of all seeds comes first.
    order = ranked.sort_values(
        ["seeds", "failed", "nll"], ascending=[False, True, True], kind="stable"
    )
    best = order.reset_index().groupby(["problem", "method"], sort=False).head(1)[_RUN]
    return metrics.merge(best, on=_RUN)


def summary_table(metrics: pd.DataFrame) -> pd.DataFrame:
    """The end of each method's best grid point, medians over seeds; how many runs failed."""
    keys = ["problem", "method"]
    ends = _ends(metrics)
    failed = (ends.status != "ok").groupby([ends.problem, ends.method]).agg(["sum", "size"])
    rows = []
    for (problem, method), best in _ends(best_runs(metrics)).groupby(keys, sort=False):
        bad = failed.loc[(problem, method)]
        rows.append(
            {
                "problem": problem,
                "method": method,
                "test NLL": f"{best.nll.median():.4f}",
                "error or RMSE": f"{best.error.median():.3f} ({best.metric.iloc[0]})",
                "seconds": f"{best.seconds.median():.1f}",
                "steps": int(best.step.median()),
                "best setting": best.setting.iloc[0],
                "runs failed": f"{bad['sum']} of {bad['size']}",
            }
        )
    return pd.DataFrame(rows)


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
    """Test NLL and error against training seconds: median and range over seeds."""
    runs = best_runs(metrics)
    problems = list(dict.fromkeys(runs.problem))
    figure, axes = plt.subplots(
        2, len(problems), figsize=(4.2 * len(problems), 5.4), sharex="col", squeeze=False
    )
    for column, problem in zip(axes.T, problems, strict=True):
        of_problem = runs[runs.problem == problem]
        for method in [name for name in _STYLE if name in set(of_problem.method)]:
            of_method = of_problem[of_problem.method == method]
            colour, line, _ = _STYLE[method]
            for ax, metric in zip(column, ("nll", "error"), strict=True):
                seconds, median, low, high = _over_seeds(of_method, metric)
                ax.plot(seconds, median, color=colour, linestyle=line, label=method)
                ax.fill_between(seconds, low, high, color=colour, alpha=0.15, lw=0)
        column[0].set_title(problem.replace("_", " "))
        column[0].set_ylabel("test NLL [nats]")
        column[1].set_ylabel(f"test {of_problem.metric.iloc[0]}")
        column[1].set_xlabel("training time [s]")
        column[1].set_xscale("log")
        for ax, metric in zip(column, ("nll", "error"), strict=True):
            values = of_problem[of_problem.step > 0][metric]
            low, high = values.min(), values.quantile(0.9)
            ax.set_ylim(low - 0.05 * (high - low), high + 0.1 * (high - low))
            ax.grid(alpha=0.3)
    axes[0, 0].legend(frameon=False)
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    plt.close(figure)


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


def memory_figure(metrics: pd.DataFrame, path: Path) -> None:
    """Resident memory against steps."""
    figure, ax = plt.subplots(figsize=(5, 3))
    ax.plot(metrics.step, metrics.MB, color="#0072B2")
    ax.set(xlabel="step", ylabel="resident memory [MB]", ylim=(0, 1.2 * metrics.MB.max()))
    ax.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    plt.close(figure)


def write_summary(
    tables: dict[str, pd.DataFrame], title: str, path: Path, figure: str | None = None
) -> None:
    """The tables in Markdown under their captions, with what they were made with."""
    packages = ("gpflow_aaci", "gpflow", "tensorflow", "tensorflow-probability", "numpy")
    versions = ", ".join(f"{name} {version(name)}" for name in packages)
    lines = [f"# {title}", ""]
    for caption, table in tables.items():
        lines += [caption, "", _markdown(table), ""] if caption else [_markdown(table), ""]
    if figure is not None:
        lines += [f"![{title}]({figure})", ""]
    lines.append(f"Python {platform.python_version()}, {versions}; {platform.machine()}.")
    path.write_text("\n".join(lines) + "\n")


def _markdown(table: pd.DataFrame) -> str:
    def line(cells: object) -> str:
        return "| " + " | ".join(str(cell) for cell in np.atleast_1d(cells)) + " |"

    shown = table.map(lambda v: f"{v:.3g}" if isinstance(v, float) else v)
    rows = [line(row) for row in shown.to_numpy()]
    return "\n".join([line(table.columns), line(["---"] * table.shape[1]), *rows])
