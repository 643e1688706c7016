"""The tables of the sampling experiment."""

import pandas as pd

from . import figures
from .report import Report

# The rows of its data, by which they are known.
_PAPERS_ROWS = {"Logistic": 270, "StudentT": 506, "Laplace": 506, "Matern32": 506}

# The paper's Table 2: seconds per draw of one chain, lag-1 autocorrelation, Gelman's statistic.
_PAPER = {
    "Logistic": {
        "MH, prior proposals": (0.001, 0.996, 1.38),
        "HMC": (0.041, 0.53, 1.00),
        "Gibbs": (0.010, 0.11, 1.00),
    },
    "StudentT": {
        "MH, prior proposals": (0.003, 1.0, 1.51),
        "HMC": (0.573, 0.857, 1.00),
        "Gibbs": (0.028, 0.04, 1.00),
    },
    "Laplace": {
        "MH, prior proposals": (0.002, 0.995, 1.44),
        "HMC": (0.082, 0.931, 1.01),
        "Gibbs": (0.028, 0.26, 1.00),
    },
    "Matern32": {
        "MH, prior proposals": (0.005, 0.997, 1.59),
        "HMC": (0.150, 0.995, 1.10),
        "Gibbs": (0.029, 0.05, 1.00),
    },
}


def report(metrics: pd.DataFrame) -> Report:
    """Every method at its best; beside the paper's; what a draw costs at least; HMC's grid."""
    best = best_settings(metrics)
    chains = metrics.num_chains.iloc[0]
    beside = _beside_the_paper(best)
    tables = {
        f"A draw is one of all {chains} chains, which are one batch. Lag 1: mean over the data of "
        "|ρ_1| of f. R-hat: split, the largest of all f_i. ESS/s: the smallest bulk ESS of all f_i "
        "(and all f_i²), of all chains together, per second of warm-up and sampling; tracing is "
        "apart. Each method at its setting of most ESS/s, the smaller of f's and f²'s.": _summary(
            best
        ),
        "A plain Gibbs draw of all chains beside the Cholesky factorisations of "
        "I + Λ^½KΛ^½ alone, in turns; median milliseconds.": _cost(metrics),
    }
    if len(beside):
        tables[
            "Ours beside Table 2 of the paper: seconds per draw (the paper's is of one chain, on "
            "another machine), lag 1 and R-hat. The paper's MH and HMC have them of the whitened f."
        ] = beside
    if len(best) < len(metrics):
        tables["Every setting."] = _summary(metrics)
    grid = metrics[(metrics.method == "HMC") & metrics.setting.str.startswith("step")]
    if len(grid) > 1:
        tables[
            "HMC with a fixed step (Tables 3-5): seconds per draw of all chains / lag 1 / R-hat."
        ] = _hmc_grid(grid)
    return Report(tables, {"autocorrelation": figures.autocorrelation(best)})


def best_settings(metrics: pd.DataFrame) -> pd.DataFrame:
    """
    The row of each problem and method that has most effective draws a second.

    Of f or f², whichever has fewer: draws that alternate are good for means alone.
    """
    fewer = metrics[["min_ess_per_second", "min_ess_squared_per_second"]].min(axis=1)
    return metrics.loc[fewer.groupby([metrics.problem, metrics.method], sort=False).idxmax()]


def _summary(rows: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "problem": rows.problem,
            "method": rows.method,
            "setting": rows.setting,
            "ms/draw": 1e3 * rows.seconds_per_draw,
            "lag 1": rows.lag_1.map("{:.3f}".format),
            "R-hat": rows.rhat.map("{:.3f}".format),
            "ESS/s, f": rows.min_ess_per_second,
            "ESS/s, f²": rows.min_ess_squared_per_second,
            "median ESS, f": rows.median_ess.round().astype(int),
            "median ESS, f²": rows.median_ess_squared.round().astype(int),
            "draws": rows.num_samples,
            "acceptance": rows.acceptance.map("{:.3f}".format).replace("nan", ""),
            "warm-up [s]": rows.warmup_seconds,
            "tracing [s]": rows.tracing_seconds,
        }
    )


def _beside_the_paper(best: pd.DataFrame) -> pd.DataFrame:
    rows = []
    for row in best.itertuples():
        paper = _PAPER.get(row.likelihood, {}).get(row.method)
        is_papers_data = row.num_data == _PAPERS_ROWS.get(row.likelihood)
        if paper is not None and is_papers_data and "(synthetic)" not in row.problem:
            rows.append(
                {
                    "problem": row.problem,
                    "method": row.method,
                    "s/draw": row.seconds_per_draw,
                    "s/draw, paper": paper[0],
                    "lag 1": f"{row.lag_1:.3f}",
                    "lag 1, paper": f"{paper[1]:.3f}",
                    "R-hat": f"{row.rhat:.2f}",
                    "R-hat, paper": f"{paper[2]:.2f}",
                }
            )
    return pd.DataFrame(rows)


def _cost(metrics: pd.DataFrame) -> pd.DataFrame:
    each = metrics.groupby("problem", sort=False).first().reset_index()
    columns = {
        "problem": "problem",
        "num_data": "N",
        "num_chains": "chains",
        "gibbs_ms": "Gibbs draw",
        "cholesky_ms": "Cholesky",
        "gibbs_over_cholesky": "ratio",
    }
    return each[list(columns)].rename(columns=columns)


def _hmc_grid(grid: pd.DataFrame) -> pd.DataFrame:
    """As the paper prints it: a row for every step, a column for every number of leapfrogs."""
    parts = grid.setting.str.extract(r"step (?P<step>\S+), (?P<leapfrogs>\d+) leapfrog")
    cells = [
        f"{row.seconds_per_draw:.3g} / {row.lag_1:.3f} / {row.rhat:.2f}"
        for row in grid.itertuples()
    ]
    table = pd.DataFrame(
        {
            "problem": grid.problem,
            "step": parts.step.astype(float),
            "leapfrogs": parts.leapfrogs.astype(int),
            "cell": cells,
        }
    )
    wide = table.pivot(index=["problem", "step"], columns="leapfrogs", values="cell")
    wide.columns = [f"{n} leapfrogs" for n in wide.columns]
    return wide.fillna("").reset_index()
