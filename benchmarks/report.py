"""The report of an experiment: tables, figures, and a summary that contains them."""

import json
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from .cache import commit, environment
from .config import ConfigError

_ENVIRONMENT = "environment.json"

# Colour (Okabe and Ito's), line and marker of every method, which differ without colour, too.
STYLES: dict[str, tuple[str, Any, str]] = {
    "fit_collapsed": ("#D55E00", "-", "o"),
    "fit": ("#117733", (0, (2, 3)), ">"),
    "fit (LogisticTree)": ("#D55E00", (0, (4, 2)), "<"),
    "fit (MultinomialProbit)": ("#009E73", (0, (6, 1)), "*"),
    "fit (MultiClass)": ("#882255", (0, (1, 1)), "8"),
    "fit (Softmax)": ("#E69F00", (0, (1, 2)), "H"),
    "fit (Poisson)": ("#0072B2", (0, (1, 2)), "H"),
    "AlternatingOptimizer": ("#CC79A7", (0, (5, 1)), "D"),
    "NatGrad + Adam": ("#0072B2", "--", "^"),
    "Adam": ("#009E73", "-.", "v"),
    "Scipy": ("#000000", ":", "s"),
    "NatGrad + Adam (MultiClass)": ("#332288", "--", "h"),
    "Adam (MultiClass)": ("#882255", "-.", "p"),
    "Scipy (MultiClass)": ("#999999", ":", "d"),
    "NatGrad + Adam (Softmax)": ("#56B4E9", "--", "P"),
    "Adam (Softmax)": ("#E69F00", "-.", "X"),
    "Scipy (Softmax)": ("#666666", ":", "*"),
    "NatGrad + Adam (Poisson)": ("#56B4E9", "--", "P"),
    "Adam (Poisson)": ("#E69F00", "-.", "X"),
    "Scipy (Poisson)": ("#666666", ":", "*"),
    "augmented": ("#D55E00", "-", "o"),
    "standard": ("#0072B2", "--", "x"),
    "Gibbs": ("#D55E00", "-", "o"),
    "Gibbs, over-relaxed": ("#CC79A7", "-", "D"),
    "Gibbs, ω from log φ": ("#E69F00", (0, (2, 3)), "s"),
    "HMC": ("#0072B2", "--", "^"),
    "NUTS": ("#56B4E9", "--", "v"),
    "elliptical slice": ("#009E73", "-.", "P"),
    "random walk": ("#666666", ":", "X"),
    "MH, prior proposals": ("#000000", ":", "*"),
    "polish": ("#D55E00", "-", "o"),
    "MixtureVGP, full": ("#E69F00", "--", "s"),
    "MixtureVGP, opper_archambeau": ("#CC79A7", (0, (4, 2)), "D"),
    "MixtureVGP, 1 diagonal": ("#009E73", "-.", "P"),
    "MixtureVGP, 2 diagonal": ("#117733", ":", "v"),
    "EllipticalSlices": ("#56B4E9", "--", "v"),
    "exact pass": ("#D55E00", "-", "o"),
    "products alone": ("#0072B2", "--", "^"),
}


def style(method: str) -> dict[str, Any]:
    """
    Keyword arguments of ``plot`` for the line of a method.

    :raises KeyError: if the method is not in ``STYLES``.
    """
    if method not in STYLES:
        raise KeyError(f"STYLES must have every method. Found none for {method!r}.")
    return dict(zip(("color", "linestyle", "marker"), STYLES[method], strict=True))


def in_order(methods: Iterable[str]) -> list[str]:
    """The methods in the order of ``STYLES``, which is the same in every figure."""
    return sorted(set(methods), key=list(STYLES).index)


class Report(NamedTuple):
    tables: dict[str, pd.DataFrame]  # by caption
    figures: dict[str, Figure]  # by the name of the file


def subplots(rows: int, columns: int, width: float, height: float) -> tuple[Figure, np.ndarray]:
    """A figure and its panels, each of the given size in inches."""
    # pyplot would keep a reference to the figure, and might need a display.
    figure = Figure(figsize=(columns * width, rows * height), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    for ax in axes.flat:
        ax.grid(alpha=0.3)
    return figure, axes


def fixed(values: pd.Series, digits: int) -> pd.Series:
    """The values with that many digits after the point; NaN becomes an empty string."""
    return values.map(lambda value: "" if np.isnan(value) else f"{value:.{digits}f}")


def band(ax: Any, x: Any, values: Any, **options: Any) -> None:
    """Draw a line in a band; ``values`` are the medians, minima and maxima."""
    median, low, high = values
    ax.plot(x, median, **options)
    ax.fill_between(x, low, high, color=options["color"], alpha=0.15, lw=0)


def one_legend(figure: Figure, axes: np.ndarray, num_seeds: int = 1) -> None:
    """Put one legend for all panels below them; it explains the bands if there are any."""
    entries: dict[str, Any] = {}
    for ax in axes.flat:
        handles, labels = ax.get_legend_handles_labels()
        entries |= dict(zip(labels, handles, strict=True))
    title = f"median and range over {num_seeds} seeds" if num_seeds > 1 else None
    options = {"loc": "outside lower center", "frameon": False, "title": title}
    for ncols in range(min(len(entries) or 1, 2 * axes.shape[1]), 0, -1):
        legend = figure.legend(entries.values(), entries.keys(), ncols=ncols, **options)
        if ncols == 1 or legend.get_window_extent().width <= figure.bbox.width:
            return
        legend.remove()  # long names would be cut off at both sides


def boxes(metrics: pd.DataFrame, measures: list[str]) -> Figure:
    """
    A box over the seeds for every method: a row of panels a measure, a panel a problem.

    A panel is over the problem's values alone, which differ in unit.
    """
    problems = list(dict.fromkeys(metrics.problem))
    figure, axes = subplots(len(measures), len(problems), 3.2, 2.4)
    for column, problem in zip(axes.T, problems, strict=True):
        of_problem = metrics[metrics.problem == problem]
        methods = list(dict.fromkeys(of_problem.method))
        for ax, measure in zip(column, measures, strict=True):
            values = [of_problem.loc[of_problem.method == method, measure] for method in methods]
            ax.boxplot(values, widths=0.6, medianprops={"color": "#D55E00"})
            ax.set_xticks(ax.get_xticks(), methods, rotation=30, ha="right", fontsize="small")
            has_names = measure == "error" and "error metric" in of_problem
            ax.set_ylabel(of_problem["error metric"].iloc[0] if has_names else measure)
        column[0].set_title(problem, fontsize="medium")
    figure.suptitle(f"over {metrics.seed.nunique()} seeds", fontsize="medium")
    return figure


def print_table(table: pd.DataFrame, title: str) -> None:
    """Print the table to the terminal."""
    rows = _cells(table)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    print(f"\n{textwrap.fill(title, 100)}\n")
    for row in rows:
        print("  ".join(map(str.ljust, row, widths)).rstrip())


def write_environment(metrics: pd.DataFrame, folder: Path) -> None:
    """Write ``environment.json``, with the commit, the seeds and the digests of the data."""
    data = {}
    if "sha256" in metrics:
        data = dict(metrics[["problem", "sha256"]].drop_duplicates().to_numpy().tolist())
    seeds = sorted(set(metrics.seed.tolist())) if "seed" in metrics else []
    values = environment() | {"commit": commit(), "seeds": seeds, "data SHA-256": data}
    (folder / _ENVIRONMENT).write_text(json.dumps(values, indent=2, ensure_ascii=False) + "\n")


def write_report(report: Report, title: str, folder: Path) -> None:
    """
    Write ``summary.md``, and every figure as PNG and PDF.

    :raises ConfigError: if :func:`write_environment` has not written to the folder.
    """
    path = folder / _ENVIRONMENT
    if not path.is_file():
        raise ConfigError(f"{path} does not exist: `python -m benchmarks run` makes it.")
    made_with = json.loads(path.read_text())
    lines = [f"# {title}", ""]
    for caption, table in report.tables.items():
        header, *rows = ["| " + " | ".join(row) + " |" for row in _cells(table)]
        lines += [caption, ""] if caption else []
        lines += [header, "| --- " * table.shape[1] + "|", *rows, ""]
    for name, figure in report.figures.items():
        figure.savefig(folder / f"{name}.png", dpi=150)
        # Without the date, equal figures give equal files.
        figure.savefig(folder / f"{name}.pdf", metadata={"CreationDate": None})
        lines += [f"![{name.replace('_', ' ')}]({name}.png)", ""]
    packages = ", ".join(f"{name} {number}" for name, number in made_with["packages"].items())
    machine = "{architecture}, {cpus} CPUs".format(**made_with["machine"])
    lines.append(f"Python {made_with['python']}, {packages}; {machine}.")
    if made_with["seeds"]:
        lines += ["", f"Seeds: {', '.join(map(str, made_with['seeds']))}."]
    for name, digest in made_with["data SHA-256"].items():
        lines += ["", f"SHA-256 of {name}: `{digest}`."]
    (folder / "summary.md").write_text("\n".join(lines) + "\n")


def _cells(table: pd.DataFrame) -> list[list[str]]:
    """The header and the rows as text."""

    def cell(value: object) -> str:
        if isinstance(value, float):
            return "" if np.isnan(value) else f"{value:.3g}"
        return str(value)

    rows = [table.columns, *table.itertuples(index=False)]
    return [[cell(value) for value in row] for row in rows]
