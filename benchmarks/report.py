"""Tables and the summary of a run."""

import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from .config import ConfigError
from .environment import environment
from .methods import LABELS, PAPERS

_RUN = ["problem", "method", "setting"]  # and seed
_WIDE = 400  # characters, more than any table has
_ENVIRONMENT = "environment.json"


class Report(NamedTuple):
    """What is shown of an experiment."""

    tables: dict[str, pd.DataFrame]  # under their captions
    figures: dict[str, Figure]  # under the names of their files


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


def papers_runs(metrics: pd.DataFrame) -> pd.DataFrame:
    """The rows of the settings that the paper's scripts ran."""
    papers = pd.DataFrame(
        [(LABELS[setting.kind], str(setting)) for setting in PAPERS], columns=["method", "setting"]
    )
    return metrics.merge(papers)


def summary_table(metrics: pd.DataFrame) -> pd.DataFrame:
    """The end of each method's best grid point, medians over seeds; how many runs failed."""
    keys = ["problem", "method"]
    ends = _ends(metrics)
    failed = (ends.status != "ok").groupby([ends.problem, ends.method]).agg(["sum", "size"])
    rows = []
    for (problem, method), best in _ends(best_runs(metrics)).groupby(keys, sort=False):
        bad = failed.loc[(problem, method)]
        error, calibration = best.error_metric.iloc[0], best.calibration_metric.iloc[0]
        rows.append(
            {
                "problem": problem,
                "method": method,
                "test NLL": f"{best.nll.median():.4f}",
                "plug-in NLL": f"{best.plugin_nll.median():.4f}",
                "error or RMSE": f"{best.error.median():.3f} ({error})",
                "calibration": f"{best.calibration.median():.3f} ({calibration})",
                "seconds": f"{best.seconds.median():.1f}",
                "tracing [s]": f"{best.tracing_seconds.median():.1f}",
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
        shown.add_column(str(column), justify="right" if number else "left")
    for row in table.itertuples(index=False):
        shown.add_row(*(f"{v:.3g}" if isinstance(v, float) else str(v) for v in row))
    # A terminal has a width to keep to; a file does not.
    Console(width=None if sys.stdout.isatty() else _WIDE).print(shown)


def write_environment(metrics: pd.DataFrame, folder: Path) -> None:
    """As ``environment.json``, with seeds and the digests of the data."""
    data = {}
    if "sha256" in metrics:
        data = dict(metrics[["problem", "sha256"]].drop_duplicates().to_numpy().tolist())
    seeds = sorted(set(metrics.seed.tolist())) if "seed" in metrics else []
    values = environment() | {"seeds": seeds, "data SHA-256": data}
    (folder / _ENVIRONMENT).write_text(json.dumps(values, indent=2, ensure_ascii=False) + "\n")


def read_environment(folder: Path) -> dict[str, Any]:
    """
    What :func:`write_environment` wrote.

    :raises ConfigError: where there is no such file.
    """
    path = folder / _ENVIRONMENT
    if not path.is_file():
        raise ConfigError(f"{path} does not exist: `python -m benchmarks run` makes it.")
    return json.loads(path.read_text())


def write_report(report: Report, title: str, folder: Path, made_with: dict[str, Any]) -> None:
    """``summary.md``, and every figure as PNG and PDF."""
    lines = [f"# {title}", ""]
    for caption, table in report.tables.items():
        lines += [caption, "", _markdown(table), ""] if caption else [_markdown(table), ""]
    for name, figure in report.figures.items():
        figure.savefig(folder / f"{name}.png", dpi=150)
        # Without the date the same figure is the same file.
        figure.savefig(folder / f"{name}.pdf", metadata={"CreationDate": None})
        lines += [f"![{name.replace('_', ' ')}]({name}.png)", ""]
    packages = ", ".join(f"{name} {number}" for name, number in made_with["packages"].items())
    machine = made_with["machine"]
    lines.append(
        f"Python {made_with['python']}, {packages}; {machine['architecture']}, "
        f"{machine['cpus']} CPUs."
    )
    if made_with["seeds"]:
        lines += ["", f"Seeds: {', '.join(map(str, made_with['seeds']))}."]
    for name, digest in made_with["data SHA-256"].items():
        lines += ["", f"SHA-256 of {name}: `{digest}`."]
    (folder / "summary.md").write_text("\n".join(lines) + "\n")


def _markdown(table: pd.DataFrame) -> str:
    def line(cells: Any) -> str:
        return "| " + " | ".join(str(cell) for cell in np.atleast_1d(cells)) + " |"

    shown = table.map(lambda v: f"{v:.3g}" if isinstance(v, float) else v)
    rows = [line(row) for row in shown.to_numpy()]
    return "\n".join([line(table.columns), line(["---"] * table.shape[1]), *rows])
