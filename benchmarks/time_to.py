"""How soon a run is as good as it or another will ever be."""

import numpy as np
import pandas as pd

from .methods import GPFLOWS

TOLERANCES = (0.05, 0.005)  # nats: the first seconds, and the end


def smooth_nll(run: pd.DataFrame) -> np.ndarray:
    """The median of three consecutive evaluations of one run, in its order."""
    return run.nll.rolling(3, center=True, min_periods=2).median().to_numpy()


def time_to(run: pd.DataFrame, nll: float) -> float:
    """Training seconds from which on the smoothed test NLL stays at or below ``nll``; or inf."""
    if len(run) < 3 or run.status.iloc[-1] != "ok":
        return np.inf
    above = np.flatnonzero(smooth_nll(run) > nll)
    if len(above) == 0:
        return float(run.seconds.iloc[0])
    return np.inf if above[-1] + 1 == len(run) else float(run.seconds.iloc[above[-1] + 1])


def best_and_fastest(metrics: pd.DataFrame) -> set[tuple[str, str]]:
    """(method, setting) of each method that end lowest, or are soonest near the best of all."""
    runs = dict(iter(metrics.groupby(["method", "setting"], sort=False)))
    final = {name: smooth_nll(r)[-1] for name, r in runs.items() if r.status.iloc[-1] == "ok"}
    lowest = min(final.values(), default=np.nan)
    chosen: set[tuple[str, str]] = set()
    for method in metrics.method.unique():
        names = [name for name in final if name[0] == method]
        if not names:  # all failed: say so at every seed
            chosen.update(name for name in runs if name[0] == method)
            continue
        chosen.add(min(names, key=final.__getitem__))
        for tolerance in TOLERANCES:
            times = {name: time_to(runs[name], lowest + tolerance) for name in names}
            fastest = min(names, key=times.__getitem__)
            if np.isfinite(times[fastest]):
                chosen.add(fastest)
    return chosen


def speed_up_table(metrics: pd.DataFrame) -> pd.DataFrame:
    """
    Seconds to within ``TOLERANCES`` of the best final NLL of all methods, for every problem.

    Medians over the seeds, each method at whatever setting is soonest (and, for the final NLL,
    lowest) in that seed; and how many times sooner than the better of GPflow's methods, where that
    never got there: than its time limit, at least.
    """
    rows = []
    for (problem, _), of_seed in metrics.groupby(["problem", "seed"], sort=False):
        runs = [run for _, run in of_seed.groupby(["method", "setting"], sort=False)]
        finished = [run for run in runs if run.status.iloc[-1] == "ok"]
        lowest = min((smooth_nll(run)[-1] for run in finished), default=np.nan)
        for method in of_seed.method.unique():
            own = [run for run in finished if run.method.iloc[0] == method]
            seconds = {
                tolerance: min((time_to(run, lowest + tolerance) for run in own), default=np.inf)
                for tolerance in TOLERANCES
            }
            final = min((smooth_nll(run)[-1] for run in own), default=np.inf)
            rows.append({"problem": problem, "method": method, "final NLL": final} | seconds)
    each = pd.DataFrame(rows)
    keys = ["problem", "method"]
    medians = each.groupby(keys, sort=False).median().reset_index()
    table = medians[keys].copy()
    for tolerance in TOLERANCES:
        seconds = medians[tolerance]
        table[f"to {tolerance} [s]"] = [
            f"{s:.2f}" if np.isfinite(s) else "not reached" for s in seconds
        ]
        table[f"speed-up to {tolerance}"] = _speed_ups(
            medians[keys].assign(seconds=seconds), metrics
        )
    table["final NLL"] = medians["final NLL"].map("{:.4f}".format)
    return table


def _speed_ups(table: pd.DataFrame, metrics: pd.DataFrame) -> list[str]:
    is_gpflows = table.method.isin(GPFLOWS)
    best = table[is_gpflows].groupby("problem").seconds.min()
    limits = metrics[metrics.method.isin(GPFLOWS)].groupby("problem").seconds.max()
    cells = []
    for own, gpflows in zip(table.itertuples(), is_gpflows, strict=True):
        is_ratio = np.isfinite(own.seconds) and own.seconds > 0.0  # 0: there before the first step
        if gpflows or own.problem not in best or not is_ratio:
            cells.append("")
        elif np.isfinite(best[own.problem]):
            cells.append(f"{best[own.problem] / own.seconds:.1f}")
        else:
            least = limits[own.problem] / own.seconds
            cells.append(f"> {least:.1f}" if least > 1.0 else "")
    return cells
