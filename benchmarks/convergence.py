"""Test NLL and error against training time, for every problem, method, grid point and seed."""

import contextlib
import functools
import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import tensorflow as tf
from matplotlib.figure import Figure

import gpflow_aaci
from gpflow_aaci.progress import progress_bar

from .cache import finished
from .config import Convergence
from .data import Dataset, load_datasets
from .methods import (
    GPFLOWS,
    LABELS,
    CountingScipy,
    Model,
    Setting,
    Start,
    Step,
    all_rows,
    clustered,
    make_method,
    make_model,
    make_start,
    minibatches,
    settings,
)
from .metrics import Measured, evaluator, metric_names
from .report import Report, band, in_order, one_legend, style, subplots

_FIRST_EVALUATION, _EVALUATION_RATIO = 0.01, 1.1  # training seconds, and from one to the next
_WINDOW = 200  # steps that must gain together
TOLERANCES = (0.05, 0.005)  # nats: the first seconds, and the end
_OURS = LABELS["collapsed"]


def run(config: Convergence, folder: Path, quiet: bool = False) -> pd.DataFrame:
    """
    One row per evaluation of a run; the last one's status says how it ended.

    The whole grid at the first seed; at the others only the paper's settings and those of each
    method that ended lowest or were fastest at the first.
    """
    grid = list(dict.fromkeys(s for method in config.method for s in settings(method)))
    # All data first: a wrong path, or too few rows, is said before anything has run.
    datasets = load_datasets(config.problem, folder, quiet)
    for dataset in datasets:
        if not dataset.problem.full:
            split = dataset.split(config.test_fraction, config.seeds[0], config.max_test)
            clustered(split, config.num_inducing)
    runs: list[pd.DataFrame] = []
    total = len(grid) * len(datasets) * config.repeats
    with progress_bar(not quiet, total=total, unit="run") as progress:
        for dataset in datasets:
            chosen = grid
            for seed in config.seeds:
                for repeat, setting in itertools.product(range(config.repeats), chosen):
                    progress.set_description(f"{dataset.name}: {LABELS[setting.kind]}, {setting}")
                    runs.append(_finished(config, dataset, setting, seed, repeat))
                    progress.update()
                if seed == config.seeds[0] and len(config.seeds) > 1:
                    first = pd.concat(run for run in runs if (run.problem == dataset.name).all())
                    names = best_and_fastest(first[first.repeat == 0])
                    chosen = [s for s in grid if s.is_papers or (LABELS[s.kind], str(s)) in names]
                    progress.total += len(chosen) * (len(config.seeds) - 1) * config.repeats
    return pd.concat(runs, ignore_index=True)


def report(metrics: pd.DataFrame) -> Report:
    """Each method at its best, how soon it was near the end, and when it returned."""
    tolerances = " and ".join(map(str, TOLERANCES))
    tables = {
        "Each method at the grid point that ends lowest, chosen by the test NLL for every method "
        "alike: from the whole grid at the first seed, from its best and soonest there at the "
        "others; medians over seeds.": summary_table(metrics),
        f"Seconds until the test NLL stays within {tolerances} nats of the best final NLL of all "
        "methods, each at its soonest of these grid points; medians over seeds. The speed-up is "
        "over the best of GPflow's methods.": speed_up_table(metrics),
        "When each method ended, at the grid point of the highest ELBO, and that ELBO (GPflow's, "
        "by the same quadrature for all); medians. Ratios and differences are to fit_collapsed in "
        "the same repeat.": returns_table(metrics),
    }
    pictures = {
        "convergence": convergence_figure(best_runs(metrics)),
        "returns": returns_figure(metrics),
    }
    if _OURS in set(metrics.method) and not set(GPFLOWS).isdisjoint(metrics.method):
        caption = (
            f"fit_collapsed's return beside the best tuned GPflow method's seconds to within "
            f"{TOLERANCES[-1]} nats of the NLL that it returned with, and of the best final NLL "
            "of all methods; medians over seeds. Tracing is left out unless said."
        )
        tables[caption] = beside_gpflow_table(metrics)
    failed = _ends(metrics)[lambda ends: ends.status.str.startswith("failed")]
    if len(failed):
        columns = ["problem", "method", "setting", "seed", "step", "status"]
        tables["Runs that failed, and the step after which they did."] = failed[columns]
    papers = metrics[metrics.is_papers]
    if papers.method.nunique() > 1:
        caption = (
            "The same at the settings of the paper's scripts alone (learning rate 0.001, "
            "Robbins-Monro steps, the ramp), to the best final NLL among them."
        )
        tables[caption] = speed_up_table(papers)
        pictures["convergence_papers_settings"] = convergence_figure(papers)
    return Report(tables, pictures)


# ---- one run ----


def _finished(
    config: Convergence, dataset: Dataset, setting: Setting, seed: int, repeat: int
) -> pd.DataFrame:
    name = f"{dataset.name}-{setting.kind}-{seed}" + (f"-{repeat}" if repeat else "")
    of_run = {"method": LABELS[setting.kind], "setting": str(setting), "seed": seed}
    of_run |= {"repeat": repeat, "is_papers": setting.is_papers}

    def run() -> pd.DataFrame:
        split = dataset.split(config.test_fraction, seed, config.max_test)
        start = make_start(split, dataset.problem, config.num_inducing, seed, config.kernel)
        label = {"problem": dataset.name, **of_run, **metric_names(dataset.is_binary)}
        return pd.DataFrame(label | row for row in _run_one(config, setting, start, seed))

    def curves(rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
        return {f"{name}-{setting}": rows.set_index("step")[["seconds", *Measured._fields]]}

    key = {**dataset.key, "setting": asdict(setting), "seed": seed, "repeat": repeat}
    return finished(config, name, key, run, curves).assign(sha256=dataset.sha256)


class _EndOfRunError(Exception):
    """Its message is the status that the run ends with."""


class _Run:
    """The rows of a run, and its clock, which stands still while the model is evaluated."""

    def __init__(self, config: Convergence, start: Start, model: Model) -> None:
        self.config, self.start, self.model = config, start, model
        self.rows: list[dict[str, Any]] = []
        self.paused = 0.0  # seconds
        self._evaluate = evaluator(model, start.split)
        self._evaluate()  # compiles
        self._step, self._seconds, self._due = 0, 0.0, _FIRST_EVALUATION

    def begin(self, tracing_seconds: float) -> None:
        """What was compiled before is not on the clock."""
        stopped = time.perf_counter()
        self.tracing_seconds = tracing_seconds
        self._record()
        self._began = time.perf_counter()
        self.paused += self._began - stopped

    def watch(
        self, step: int, is_due: bool = False, prepare: Callable[[], None] = lambda: None
    ) -> None:
        """
        Called after every step: evaluates the model from time to time.

        :param is_due: whether that is now.
        :param prepare: called before an evaluation, off the clock, too.
        :raises _EndOfRunError: where the run has had its time.
        """
        stopped = time.perf_counter()
        self._step, self._seconds = step, stopped - self._began
        is_over = self._seconds >= self.config.seconds
        if is_due or is_over or self._seconds >= self._due:
            prepare()
            self._record()
            self._due = self._seconds * _EVALUATION_RATIO
        if is_over:
            raise _EndOfRunError("limit: time")
        pause = time.perf_counter() - stopped
        self._began, self.paused = self._began + pause, self.paused + pause

    def returned(self, step: int, seconds: float | None = None) -> None:
        """The method has ended by itself, after so many seconds if it says so."""
        now = time.perf_counter() - self._began if seconds is None else seconds
        self._step, self._seconds = step, max(now, self._seconds)
        self._record()

    def end(self, status: str) -> list[dict[str, Any]]:
        """All rows."""
        if status.startswith("failed"):
            self.rows.append(self.rows[-1] | self._times())
        self.rows[-1]["status"] = status
        return self.rows

    def _record(self) -> None:
        measured = self._evaluate()
        if not np.isfinite(measured.nll):
            raise _EndOfRunError("failed: not finite")
        self.rows.append(self._times() | measured._asdict() | {"status": "running"})

    def _times(self) -> dict[str, Any]:
        times = {"step": self._step, "seconds": self._seconds}
        return times | {"tracing_seconds": self.tracing_seconds}


def _run_one(
    config: Convergence, setting: Setting, start: Start, seed: int
) -> list[dict[str, Any]]:
    if setting.kind in ("collapsed", "scipy"):
        is_ours = setting.kind == "collapsed"
        run = _Run(config, start, make_model(start, is_augmented=is_ours))
        train = functools.partial(_fit_collapsed if is_ours else _minimize, run)
    else:
        batches = minibatches(start, config.batch_size, seed)
        model, step, variables = make_method(setting, start, batches)
        run = _Run(config, start, model)
        train = functools.partial(_take_steps, run, step, variables)
    try:
        return run.end(train())
    except _EndOfRunError as end:
        return run.end(str(end))
    except tf.errors.InvalidArgumentError:
        return run.end("failed: Cholesky")


def _take_steps(run: _Run, step: Step, variables: Sequence[tf.Variable]) -> str:
    """Adam and its like."""
    config, best = run.config, -np.inf
    run.begin(_trace(step, variables))
    for done in range(1, config.steps + 1):
        step()
        is_judged = config.tolerance is not None and done % _WINDOW == 0
        run.watch(done, is_due=is_judged or done == config.steps)
        if is_judged:
            before, best = best, max(best, run.rows[-1]["elbo"])
            if best - before < config.tolerance * len(run.start.split.X):
                return "converged"
    return "limit: steps"


def _trace(step: Step, variables: Sequence[tf.Variable]) -> float:
    """Seconds of the first step, which compiles, and is undone: it is not on the clock."""
    before = [tf.identity(variable) for variable in variables]
    began = time.perf_counter()
    with contextlib.suppress(tf.errors.InvalidArgumentError):  # it will fail on the clock, too
        step()
    seconds = time.perf_counter() - began
    for variable, value in zip(variables, before, strict=True):
        variable.assign(value)
    return seconds


def _minimize(run: _Run) -> str:
    """``gpflow.optimizers.Scipy()`` as notebooks call it, on all rows."""
    data = all_rows(run.start)
    arguments = () if data is None else (data,)
    closure = run.model.training_loss_closure(*arguments)
    optimizer, variables = CountingScipy(), run.model.trainable_variables
    x = optimizer.initial_parameters(variables).numpy()
    # Autograph parses the sources once in a process, for seconds that are not this model's.
    tf.function(run.model.training_loss_closure(*arguments, compile=False))()
    # What is compiled here is found again by ``minimize``: it looks for closure and variables.
    evaluate = optimizer.eval_func(closure, variables, tf_fun_args={})
    times = []
    for _ in range(2):
        began = time.perf_counter()
        evaluate(x)
        times.append(time.perf_counter() - began)
    optimizer.evaluations = 0
    run.begin(max(0.0, times[0] - times[1]))

    def callback(x: np.ndarray) -> None:  # SciPy's: GPflow's unpacks x at every iteration
        def move() -> None:
            optimizer.assign_tensors(variables, optimizer.unpack_tensors(variables, x))

        run.watch(optimizer.evaluations, prepare=move)

    options = {"maxiter": run.config.steps}
    found = optimizer.minimize(closure, variables, callback=callback, options=options)
    run.returned(optimizer.evaluations)
    return "converged" if found.success else f"returned: {found.message}"


def _fit_collapsed(run: _Run) -> str:
    """Compiling is tracing; at the end what the package itself says was tracing."""
    began = time.perf_counter()

    def callback(progress: gpflow_aaci.FitProgress) -> None:
        if progress.rows == 0:
            run.begin(time.perf_counter() - began)
        else:
            run.watch(progress.evaluations)

    data = all_rows(run.start)
    found = gpflow_aaci.fit_collapsed(run.model, data, callback=callback, progress=False)
    run.tracing_seconds = found.tracing_seconds
    run.returned(found.evaluations, found.fitting_seconds - run.paused)
    return "converged" if found.converged else f"returned: {found.reason}"


# ---- how soon a run is as good as it or another will ever be ----


def smooth_nll(run: pd.DataFrame) -> np.ndarray:
    """The median of three consecutive evaluations of one run, in its order."""
    return run.nll.rolling(3, center=True, min_periods=2).median().to_numpy()


def time_to(run: pd.DataFrame, nll: float) -> float:
    """Training seconds from which on the smoothed test NLL stays at or below ``nll``; or inf."""
    if len(run) < 3 or _failed(run):
        return np.inf
    above = np.flatnonzero(smooth_nll(run) > nll)
    if len(above) == 0:
        return float(run.seconds.iloc[0])
    return np.inf if above[-1] + 1 == len(run) else float(run.seconds.iloc[above[-1] + 1])


def _failed(run: pd.DataFrame) -> bool:
    return run.status.iloc[-1].startswith("failed")


def best_and_fastest(metrics: pd.DataFrame) -> set[tuple[str, str]]:
    """(method, setting) of each method that end lowest, or are soonest near the best of all."""
    runs = dict(iter(metrics.groupby(["method", "setting"], sort=False)))
    final = {name: smooth_nll(r)[-1] for name, r in runs.items() if not _failed(r)}
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


def _turns(metrics: pd.DataFrame) -> Any:
    """For every problem, seed and repeat: its name, its finished runs, and their lowest NLL."""
    for (problem, *_), turn in metrics.groupby(["problem", "seed", "repeat"], sort=False):
        runs = [run for _, run in turn.groupby(["method", "setting"], sort=False)]
        runs = [run for run in runs if not _failed(run)]
        yield problem, runs, min((smooth_nll(run)[-1] for run in runs), default=np.nan)


def _soonest(runs: list[pd.DataFrame], methods: Sequence[str], nll: float) -> float:
    return min((time_to(run, nll) for run in runs if run.method.iloc[0] in methods), default=np.inf)


def speed_up_table(metrics: pd.DataFrame) -> pd.DataFrame:
    """
    Seconds to within ``TOLERANCES`` of the best final NLL of all methods, for every problem.

    Medians over the seeds, each method at whatever setting is soonest (and, for the final NLL,
    lowest) in that seed; and how many times sooner than the best of GPflow's methods, where that
    never got there: than its time limit, at least.
    """
    rows = []
    for problem, runs, lowest in _turns(metrics):
        for method in metrics[metrics.problem == problem].method.unique():
            ends = [smooth_nll(run)[-1] for run in runs if run.method.iloc[0] == method]
            row = {"problem": problem, "method": method, "final NLL": min(ends, default=np.inf)}
            rows.append(row | {t: _soonest(runs, [method], lowest + t) for t in TOLERANCES})
    keys = ["problem", "method"]
    medians = pd.DataFrame(rows).groupby(keys, sort=False).median().reset_index()
    is_gpflows = medians.method.isin(GPFLOWS)
    limits = _limits(metrics)
    table = medians[keys].copy()
    for tolerance in TOLERANCES:
        best = medians[is_gpflows].groupby("problem")[tolerance].min()
        table[f"to {tolerance} [s]"] = medians[tolerance].map(_reached)
        table[f"speed-up to {tolerance}"] = [
            "" if gpflows or p not in best else _ratio(best[p], own, limits[p])
            for gpflows, p, own in zip(is_gpflows, medians.problem, medians[tolerance], strict=True)
        ]
    table["final NLL"] = medians["final NLL"].map("{:.4f}".format)
    return table


def beside_gpflow_table(metrics: pd.DataFrame) -> pd.DataFrame:
    """When fit_collapsed returned and was near its end, beside the soonest of GPflow's methods."""
    rows = []
    for problem, runs, lowest in _turns(metrics):
        ours = next((run for run in runs if run.method.iloc[0] == _OURS), None)
        if ours is not None:
            end = ours.iloc[-1]
            own, best = end.nll + TOLERANCES[-1], lowest + TOLERANCES[-1]
            times = [end.seconds, end.seconds + end.tracing_seconds, time_to(ours, own)]
            gpflows = [_soonest(runs, GPFLOWS, own), _soonest(runs, GPFLOWS, best)]
            rows.append([problem, end.nll, end.nll - lowest, *times, *gpflows])
    columns = ["problem", "nll", "excess", "returned", "with_tracing", "near", "own", "best"]
    each = pd.DataFrame(rows, columns=columns).groupby("problem", sort=False).median().reset_index()
    limits = _limits(metrics)
    return pd.DataFrame(
        {
            "problem": row.problem,
            "returned [s]": f"{row.returned:.2f}",
            "with tracing [s]": f"{row.with_tracing:.2f}",
            "its NLL": f"{row.nll:.4f}",
            "above the best": f"{row.excess:.4f}",
            "GPflow near its NLL [s]": _reached(row.own),
            "GPflow near the best [s]": _reached(row.best),
            "returned sooner": _ratio(row.own, row.returned, limits[row.problem]),
            "itself near its NLL [s]": _reached(row.near),
            "near sooner": _ratio(row.own, row.near, limits[row.problem]),
        }
        for row in each.itertuples()
    )


def _limits(metrics: pd.DataFrame) -> "pd.Series[float]":
    """Of every problem: the longest that one of GPflow's methods had."""
    return metrics[metrics.method.isin(GPFLOWS)].groupby("problem").seconds.max()


def _reached(seconds: float) -> str:
    return f"{seconds:.2f}" if np.isfinite(seconds) else "not reached"


def _ratio(gpflows: float, own: float, limit: float) -> str:
    if not np.isfinite(own) or own == 0.0:  # there before the first step
        return ""
    if np.isfinite(gpflows):
        return f"{gpflows / own:.1f}"
    return f"> {limit / own:.1f}" if limit > own else ""


# ---- ends ----

_RUN = ["problem", "method", "setting"]  # and seed and repeat


def _ends(metrics: pd.DataFrame) -> pd.DataFrame:
    """The last evaluation of every run."""
    return metrics.groupby([*_RUN, "seed", "repeat"], sort=False).tail(1)


def best_runs(metrics: pd.DataFrame, by: str = "nll", sign: float = 1.0) -> pd.DataFrame:
    """The rows of each problem and method's grid point that ends with the lowest sign · ``by``."""
    ends = _ends(metrics)
    ends = ends.assign(failed=ends.status.str.startswith("failed"), value=sign * ends[by])
    each = ends.groupby(_RUN, sort=False)
    ranked = each.agg(failed=("failed", "sum"), seeds=("seed", "size"), value=("value", "mean"))
    # A failed run is last in line even where its NLL had been low; one of all seeds comes first.
    order = ranked.sort_values(
        ["seeds", "failed", "value"], ascending=[False, True, True], kind="stable"
    )
    best = order.reset_index().groupby(["problem", "method"], sort=False).head(1)[_RUN]
    return metrics.merge(best, on=_RUN)


def summary_table(metrics: pd.DataFrame) -> pd.DataFrame:
    """The end of each method's best grid point, medians over seeds; how many runs failed."""
    keys = ["problem", "method"]
    ends = _ends(metrics)
    failed = ends.status.str.startswith("failed").groupby([ends.problem, ends.method])
    failed = failed.agg(["sum", "size"])
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


def returns_table(metrics: pd.DataFrame) -> pd.DataFrame:
    """When each method ended and why, with and without tracing; beside fit_collapsed's end."""
    rows = []
    ends = _ends(best_runs(metrics, "elbo", -1.0))
    ends = ends.assign(total=ends.seconds + ends.tracing_seconds)
    for problem, of_problem in ends.groupby("problem", sort=False):
        each = {m: r.set_index(["seed", "repeat"]) for m, r in of_problem.groupby("method")}
        for method in in_order(each):
            own, ours = each[method], each.get(_OURS, each[method])
            rows.append(
                {
                    "problem": problem,
                    "method": method,
                    "setting": own.setting.iloc[0],
                    "with tracing [s]": f"{own.total.median():.2f}",
                    "tracing [s]": f"{own.tracing_seconds.median():.2f}",
                    "without [s]": f"{own.seconds.median():.2f}",
                    "evaluations": int(own.step.median()),
                    "ELBO": f"{own.elbo.median():.2f}",
                    "test NLL": f"{own.nll.median():.4f}",
                    "end": ", ".join(own.status.unique()),
                    "times, with tracing": f"{(own.total / ours.total).median():.2f}",
                    "times, without": f"{(own.seconds / ours.seconds).median():.2f}",
                    "ELBO above": f"{(own.elbo - ours.elbo).median():.2f}",
                }
            )
    return pd.DataFrame(rows)


# ---- figures ----


def convergence_figure(runs: pd.DataFrame) -> Figure:
    """Test NLL and error against training seconds: median and range over seeds."""
    problems = list(dict.fromkeys(runs.problem))
    # A run that failed at once has no curve.
    of_run = ["problem", "method", "setting", "seed", "repeat"]
    runs = runs[runs.groupby(of_run).seconds.transform("max") > 0]
    figure, axes = subplots(2, len(problems), 4.4, 2.9)
    for column, problem in zip(axes.T, problems, strict=True):
        of_problem = runs[runs.problem == problem]
        column[0].set_title(problem.replace("_", " "))
        column[0].set_ylabel("test NLL [nats per datum]")
        is_error = of_problem.error_metric.iloc[0] == "error"
        column[1].set_ylabel("test error rate" if is_error else "test RMSE [standard deviations]")
        column[1].set_xlabel("training time [s]")
        for ax, metric in zip(column, ("nll", "error"), strict=True):
            for method in in_order(of_problem.method):
                seconds, *values = _over_seeds(of_problem[of_problem.method == method], metric)
                options = style(method) | {"marker": ""}
                band(ax, seconds, values, **options, label=method)
            ax.set_xscale("log")
            shown = of_problem[of_problem.step > 0][metric]
            low, high = shown.min(), shown.quantile(0.9)
            ax.set_ylim(low - 0.05 * (high - low), high + 0.1 * (high - low))
    seeds = runs.seed.nunique()
    one_legend(figure, axes, f"median and range over {seeds} seeds" if seeds > 1 else None)
    return figure


def returns_figure(metrics: pd.DataFrame) -> Figure:
    """Seconds until each method ended, at the grid point of the highest ELBO; medians."""
    ends = _ends(best_runs(metrics, "elbo", -1.0))
    ends = ends[ends.seconds > 0].assign(total=ends.seconds + ends.tracing_seconds)
    problems = list(dict.fromkeys(metrics.problem))[::-1]
    figure, axes = subplots(1, 1, 6.4, 1.4 + 0.4 * len(problems))
    ax = axes[0, 0]
    for method in in_order(ends.method):
        medians = ends[ends.method == method].groupby("problem")[["seconds", "total"]].median()
        height = [problems.index(problem) for problem in medians.index]
        points = style(method) | {"linestyle": ""}
        ax.plot(medians.total, height, **points, label=method)
        ax.plot(medians.seconds, height, **points, markerfacecolor="none")
    ax.set_yticks(range(len(problems)), [problem.replace("_", " ") for problem in problems])
    ax.set_ylim(-0.5, len(problems) - 0.5)
    ax.set(xscale="log", xlabel="seconds until the end (hollow: without tracing)")
    one_legend(figure, axes)
    return figure


def _over_seeds(runs: pd.DataFrame, metric: str) -> tuple[np.ndarray, ...]:
    """Seconds, and median, least and largest of ``metric`` over the seeds then."""
    runs = runs[runs.seconds > 0.0]
    each = [run for _, run in runs.groupby(["seed", "repeat"])]
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
