"""Test NLL and error against training time, for every problem, method, grid point and seed."""

import contextlib
import functools
import itertools
import time
import timeit
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
from gpflow_aaci.runtime.compiled import forget_compiled

from . import methods
from .cache import finished
from .config import Convergence
from .datasets import Dataset, load_datasets
from .methods import GPFLOWS, LABELS, Model, Setting, Start, Step
from .metrics import Measured, evaluator, metric_names
from .report import Report, band, fixed, in_order, one_legend, style, subplots

_FIRST_EVALUATION, _EVALUATION_RATIO = 0.01, 1.1  # training seconds, and from one to the next
_WINDOW = 200  # steps that must gain together
TOLERANCES = (0.05, 0.005)  # nats: the first seconds, and the end
_NEAR_ELBO = 0.1  # nats that do not count on small data
_MANY_SEEDS = 4  # from which means have standard errors
_OURS = LABELS["collapsed"]
_TURN = ["problem", "seed", "repeat"]
_RUN = [*_TURN, "method", "setting"]
_KEYS = ["problem", "method"]


def run(config: Convergence, folder: Path, quiet: bool = False) -> pd.DataFrame:
    """
    One row per evaluation of a run; the last one's status says how it ended.

    The whole grid in the first turn, a turn being a seed and a repeat; in the others only the
    paper's settings and those of each method that ended lowest or were fastest in the first.
    """
    grid = list(dict.fromkeys(s for method in config.method for s in methods.settings(method)))
    # All data first: a wrong path, or too few rows, is said before anything has run.
    datasets = load_datasets(config.problem, folder, quiet)
    for dataset in datasets:
        if not dataset.problem.full:
            split = dataset.split(config.test_fraction, config.seeds[0], config.max_test)
            methods.clustered(split, config.num_inducing)
    turns = list(itertools.product(config.seeds, range(config.repeats)))
    tables: list[pd.DataFrame] = []
    with progress_bar(not quiet, total=len(grid) * len(datasets), unit="run") as progress:
        for dataset in datasets:
            settings = grid
            for turn in turns:
                for setting in settings:
                    label = f"{dataset.problem.title}: {setting.method}, {setting}"
                    progress.set_description(label)
                    tables.append(_finished(config, dataset, setting, *turn))
                    progress.update()
                if turn == turns[0] and len(turns) > 1:
                    names = best_and_fastest(pd.concat(tables[-len(grid) :]))
                    settings = [s for s in grid if s.is_papers or (s.method, str(s)) in names]
                    progress.total += len(settings) * (len(turns) - 1)
    return pd.concat(tables, ignore_index=True)


def report(metrics: pd.DataFrame) -> Report:
    """Each method at its best, how soon it was near the end, and when it returned."""
    best = best_runs(metrics)
    tolerances = " and ".join(map(str, TOLERANCES))
    tables = {
        "Each method at the grid point that ends lowest, chosen by the test NLL for every method "
        "alike: from the whole grid at the first seed, from its best and soonest there at the "
        "others; medians over seeds.": summary_table(metrics),
        "When it ended there, and at which ELBO (GPflow's, by one formula for all; with a "
        "likelihood in parentheses it is another model's); medians. "
        "How many times fit_collapsed's seconds, and how much above its ELBO, in the same repeat. "
        "Tracing: until a first step or evaluation, which is undone.": returns_table(metrics),
        f"Seconds until the test NLL stays within {tolerances} nats of the best final NLL of all "
        "methods (here alone the NLL is the median of three evaluations), each at its soonest of "
        "these grid points; medians over seeds. The speed-up is over the best of GPflow's "
        "methods.": speed_up_table(metrics),
    }
    pictures = {"convergence": convergence_figure(best), "returns": returns_figure(best)}
    if _OURS in set(metrics.method) and not set(GPFLOWS).isdisjoint(metrics.method):
        caption = (
            "One yardstick: seconds, tracing counted, until fit_collapsed returns, and until the "
            f"soonest of GPflow's tuned methods first is within {TOLERANCES[-1]} nats of its NLL, "
            f"or within {_NEAR_ELBO} nats of its ELBO; medians. No ratio where GPflow's best end "
            "is better by more."
        )
        tables = {caption: yardstick_table(metrics)} | tables
    if metrics.seed.nunique() >= _MANY_SEEDS:
        caption = "The same, means over splits and their standard errors; medians of seconds."
        tables[caption] = means_table(metrics)
    failed = _ends(metrics)[_have_failed]
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
    problem = dataset.problem
    parts = [problem.title, setting.kind, setting.likelihood, seed, repeat or None]
    name = "-".join(str(part) for part in parts if part is not None)
    of_run = {"problem": problem.title, "method": setting.method, "setting": str(setting)}
    of_run |= {"seed": seed, "repeat": repeat, "is_papers": setting.is_papers}

    def run() -> pd.DataFrame:
        split = dataset.split(config.test_fraction, seed, config.max_test)
        start = methods.make_start(split, problem, config.num_inducing, seed, config.kernel)
        label = of_run | metric_names(problem)
        return pd.DataFrame(label | row for row in _run_one(config, setting, start, seed))

    def curves(rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
        return {f"{name}-{setting}": rows.set_index("step")[["seconds", *Measured._fields]]}

    key = {**dataset.key, "setting": asdict(setting), "seed": seed, "repeat": repeat}
    return finished(config, name, key, run, curves).assign(
        sha256=dataset.sha256, yardstick=config.yardstick
    )


class _EndOfRunError(Exception):
    """Its message is the status that the run ends with."""


class _Run:
    """The rows of a run, and its clock, which stands still while the model is evaluated."""

    def __init__(self, config: Convergence, start: Start, model: Model) -> None:
        self.config, self.start, self.model = config, start, model
        self.rows: list[dict[str, Any]] = []
        self._evaluate = evaluator(model, start.split)
        self._evaluate()  # compiles
        self._step, self._seconds, self._due = 0, 0.0, _FIRST_EVALUATION

    def begin(self, tracing_seconds: float) -> None:
        """What was compiled before is not on the clock."""
        self._tracing = tracing_seconds
        self._record()
        self._began = time.perf_counter()

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
        self._began += time.perf_counter() - stopped

    def returned(self, step: int) -> None:
        """The method has ended by itself."""
        self._step, self._seconds = step, time.perf_counter() - self._began
        self._record()

    def end(self, status: str) -> list[dict[str, Any]]:
        """All rows; of a failure, one more of what was last measured."""
        if status.startswith("failed"):
            self.rows.append(self.rows[-1] | {"step": self._step, "seconds": self._seconds})
        self.rows[-1]["status"] = status
        return self.rows

    def _record(self) -> None:
        measured = self._evaluate()
        if not np.isfinite(measured.nll):
            raise _EndOfRunError("failed: not finite")
        times = {"step": self._step, "seconds": self._seconds, "tracing_seconds": self._tracing}
        self.rows.append(times | measured._asdict() | {"status": "running"})


def _run_one(
    config: Convergence, setting: Setting, start: Start, seed: int
) -> list[dict[str, Any]]:
    forget_compiled()  # every run traces its own, so that all are measured alike
    if setting.kind in _WHOLE:
        is_ours = setting.kind != "scipy"
        run = _Run(config, start, methods.make_model(start, is_ours, setting.likelihood))
        train = functools.partial(_WHOLE[setting.kind], run)
    else:
        batches = methods.minibatches(start, config.batch_size, seed)
        model, step, variables = methods.make_method(setting, start, batches)
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
    least_gain = (config.tolerance or 0.0) * len(run.start.split.X)
    run.begin(_trace(step, variables))
    for done in range(1, config.steps + 1):
        step()
        is_judged = config.tolerance is not None and done % _WINDOW == 0
        run.watch(done, is_due=is_judged or done == config.steps)
        if is_judged:
            before, best = best, max(best, run.rows[-1]["elbo"])
            if best - before < least_gain:
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
    data = methods.all_rows(run.start)
    arguments = () if data is None else (data,)
    closure = run.model.training_loss_closure(*arguments)
    optimizer, variables = methods.CountingScipy(), run.model.trainable_variables
    x = optimizer.initial_parameters(variables).numpy()
    # Autograph parses the sources once in a process, for seconds that are not this model's.
    tf.function(run.model.training_loss_closure(*arguments, compile=False))()
    # What is compiled here is found again by ``minimize``: it looks for closure and variables.
    evaluate = optimizer.eval_func(closure, variables, tf_fun_args={})
    times = timeit.repeat(lambda: evaluate(x), number=1, repeat=2)
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
    """Tracing: until a first evaluation, as for ``Scipy()``; what is compiled later is not."""
    began = time.perf_counter()

    def callback(progress: gpflow_aaci.inference.FitProgress) -> None:
        if progress.rows == 0:
            run.begin(time.perf_counter() - began)
        else:
            run.watch(progress.evaluations)

    data = methods.all_rows(run.start)
    found = gpflow_aaci.fit_collapsed(run.model, data, callback=callback, progress=False)
    run.returned(found.evaluations)
    return "converged" if found.converged else f"returned: {found.reason}"


def _fit(run: _Run) -> str:
    """The front door, at its start and its return: what it compiles is on the clock."""
    run.begin(0.0)
    found = gpflow_aaci.fit(run.model, methods.all_rows(run.start), progress=False)
    run.returned(int(found.history.step.iloc[-1]))
    return "converged" if found.converged else f"returned: {found.reason}"


_WHOLE = {"scipy": _minimize, "collapsed": _fit_collapsed, "fit": _fit}
"""Methods that are one call."""


# ---- how soon a run is as good as it or another will ever be ----


def smooth_nll(run: pd.DataFrame) -> np.ndarray:
    """The median of three consecutive evaluations of one run, in its order; of two, themselves."""
    if len(run) < 3:  # its start and its return
        return run.nll.to_numpy()
    return run.nll.rolling(3, center=True, min_periods=2).median().to_numpy()


def time_to(run: pd.DataFrame, nll: float) -> float:
    """Training seconds from which on the smoothed test NLL stays at or below ``nll``; or inf."""
    if len(run) < 2 or _have_failed(run).iloc[-1]:
        return np.inf
    above = np.flatnonzero(smooth_nll(run) > nll)
    first = above[-1] + 1 if len(above) else 0
    return float(run.seconds.iloc[first]) if first < len(run) else np.inf


def _judged(metrics: pd.DataFrame) -> pd.DataFrame:
    """A row for every run: its smoothed final NLL, and seconds to near the lowest of its turn."""
    rows = []
    for _, run in metrics.groupby(_RUN, sort=False):
        final = np.inf if _have_failed(run).iloc[-1] else smooth_nll(run)[-1]
        rows.append({**run.iloc[-1], "final": final, "run": run})
    each = pd.DataFrame(rows)
    each["lowest"] = each.groupby(_TURN).final.transform("min")
    for tolerance in TOLERANCES:
        goals = zip(each.run, each.lowest + tolerance, strict=True)
        each[tolerance] = [time_to(run, nll) for run, nll in goals]
    return each


def best_and_fastest(metrics: pd.DataFrame) -> set[tuple[str, str]]:
    """(method, setting) of each method that end lowest, or are soonest near the best of all."""
    each, chosen = _judged(metrics), set()
    for column in ("final", *TOLERANCES):
        first = each.loc[each.groupby("method")[column].idxmin()]
        if column != "final":  # of a method that has failed always, say so at every seed
            first = first[np.isfinite(first[column])]
        chosen |= set(zip(first.method, first.setting, strict=True))
    if "elbo" in set(metrics.get("yardstick", [])):
        highest = each.loc[each.groupby("method").elbo.idxmax()]
        chosen |= set(zip(highest.method, highest.setting, strict=True))
    return chosen


def speed_up_table(metrics: pd.DataFrame) -> pd.DataFrame:
    """
    Seconds to within ``TOLERANCES`` of the best final NLL of all methods, for every problem.

    Medians over the seeds, each method at whatever setting is soonest in that seed; and how many
    times sooner than the best of GPflow's methods, where that never got there: than its time limit,
    at least.
    """
    columns = [*TOLERANCES]
    soonest = _judged(metrics).groupby([*_TURN, "method"], sort=False)[columns].min()
    medians = soonest.groupby(_KEYS, sort=False).median().reset_index()
    is_gpflows = medians.method.isin(GPFLOWS)
    best = medians[is_gpflows].groupby("problem")[columns].min().reindex(medians.problem)
    limits = _limits(metrics).reindex(medians.problem)
    table = medians[_KEYS].copy()
    for tolerance in TOLERANCES:
        ratios = map(_ratio, best[tolerance], medians[tolerance], limits)
        table[f"to {tolerance} [s]"] = medians[tolerance].map(_reached)
        table[f"speed-up to {tolerance}"] = np.where(is_gpflows, "", list(ratios))
    return table


def yardstick_table(metrics: pd.DataFrame) -> pd.DataFrame:
    """
    Seconds, tracing counted, until fit_collapsed returns and until a method of GPflow is as good.

    As good is a test NLL within 0.005 nats of the returned one, or an ELBO within 0.1 nats of it,
    for the first time, as the config says. A ratio stands only where GPflow's best end is no
    better.
    """
    turns = [_beside(turn) for _, turn in metrics.groupby(_TURN, sort=False)]
    each = pd.DataFrame([turn for turn in turns if turn])
    numbers = each.groupby("problem", sort=False)
    m = numbers.median(numeric_only=True)
    ratios = [
        "" if row.better > 0.0 else _ratio(row.peer, row.returned, row.limit)
        for row in m.itertuples()
    ]
    table = {
        "returned [s]": fixed(m.returned, 2),
        "its end": numbers.measure.first() + " " + fixed(m.end, 4),
        "GPflow's best end": fixed(m.peers_end, 4),
        "GPflow as good [s]": m.peer.map(_reached),
        "by": numbers.by.agg(lambda names: ", ".join(names[names != ""].unique())),
        "returned sooner, times": ratios,
    }
    return pd.DataFrame(table).reset_index()


def _beside(turn: pd.DataFrame) -> dict[str, Any]:
    """Of one problem, seed and repeat; empty where fit_collapsed or GPflow's methods are absent."""
    ours = turn[turn.method == _OURS]
    peers = [run for _, run in turn[turn.method.isin(GPFLOWS)].groupby(_RUN, sort=False)]
    if ours.empty or not peers:
        return {}
    end = ours.iloc[-1]
    by_elbo = end.get("yardstick", "nll") == "elbo"
    ends = [run.iloc[-1] for run in peers if not _have_failed(run).iloc[-1]]
    if by_elbo:
        times = [_first(run, run.elbo >= end.elbo - _NEAR_ELBO) for run in peers]
        peers_end = max((each.elbo for each in ends), default=-np.inf)
        better = peers_end - end.elbo - _NEAR_ELBO
    else:
        times = [_first(run, run.nll <= end.nll + TOLERANCES[-1]) for run in peers]
        peers_end = min((each.nll for each in ends), default=np.inf)
        better = end.nll - peers_end - TOLERANCES[-1]
    totals = [t + run.tracing_seconds.iloc[-1] for t, run in zip(times, peers, strict=True)]
    soonest = int(np.argmin(totals))
    return {
        "problem": end.problem,
        "measure": "ELBO" if by_elbo else "NLL",
        "returned": end.seconds + end.tracing_seconds,
        "end": end.elbo if by_elbo else end.nll,
        "peers_end": peers_end,
        "better": better,
        "limit": max(run.seconds.iloc[-1] + run.tracing_seconds.iloc[-1] for run in peers),
        "peer": totals[soonest],
        "by": peers[soonest].method.iloc[0] if np.isfinite(totals[soonest]) else "",
    }


def _first(run: pd.DataFrame, is_there: "pd.Series[bool]") -> float:
    """Training seconds until the first evaluation that is there; or inf."""
    reached = run.seconds[is_there]
    return float(reached.iloc[0]) if len(reached) else np.inf


def _limits(metrics: pd.DataFrame) -> "pd.Series[float]":
    """Of every problem: the longest that one of GPflow's methods had."""
    return metrics[metrics.method.isin(GPFLOWS)].groupby("problem").seconds.max()


def _reached(seconds: float) -> str:
    return f"{seconds:.2f}" if np.isfinite(seconds) else "not reached"


def _ratio(gpflows: float, own: float, limit: float) -> str:
    if not np.isfinite(own) or own == 0.0 or np.isnan(gpflows):  # 0: there before the first step
        return ""
    if np.isfinite(gpflows):
        return f"{gpflows / own:.1f}"
    return f"> {limit / own:.1f}" if limit > own else ""


# ---- ends ----


def _ends(metrics: pd.DataFrame) -> pd.DataFrame:
    """The last evaluation of every run, and its seconds in total."""
    ends = _last(metrics)
    return ends.assign(total=ends.seconds + ends.tracing_seconds)


def _last(metrics: pd.DataFrame) -> pd.DataFrame:
    return metrics.groupby(_RUN, sort=False).tail(1)


def _have_failed(runs: pd.DataFrame) -> "pd.Series[bool]":
    return runs.status.str.startswith("failed")


def best_runs(metrics: pd.DataFrame) -> pd.DataFrame:
    """The rows of each problem and method's grid point that ends with the lowest test NLL."""
    ends = _ends(metrics)
    # A failed run is last in line even where its NLL had been low; one of all seeds comes first.
    ends = ends.assign(lost=-1, value=ends.nll.where(~_have_failed(ends), np.inf))
    order = ends.groupby([*_KEYS, "setting"], sort=False).agg({"lost": "sum", "value": "mean"})
    first = order.sort_values(["lost", "value"], kind="stable").reset_index()
    return metrics.merge(first.drop_duplicates(_KEYS)[[*_KEYS, "setting"]])


def summary_table(metrics: pd.DataFrame) -> pd.DataFrame:
    """The end of each method's best grid point, medians over seeds; how many runs failed."""
    best = _ends(best_runs(metrics)).groupby(_KEYS, sort=False)
    median, first = best.median(numeric_only=True), best.first()
    ends = _ends(metrics)
    failed = ends.assign(failed=_have_failed(ends)).groupby(_KEYS).failed
    table = {
        "test NLL": fixed(median.nll, 4),
        "plug-in NLL": fixed(median.plugin_nll, 4),
        "error or RMSE": fixed(median.error, 3) + " (" + first.error_metric + ")",
        "calibration": fixed(median.calibration, 3) + " (" + first.calibration_metric + ")",
        "best setting": first.setting,
        "runs failed": failed.agg(lambda runs: f"{runs.sum()} of {len(runs)}"),
    }
    return pd.DataFrame(table, index=median.index).reset_index()


def means_table(metrics: pd.DataFrame) -> pd.DataFrame:
    """The end of each method's best grid point: means over seeds, with their standard errors."""
    groups = _ends(best_runs(metrics)).groupby(_KEYS, sort=False)
    mean, error = groups.mean(numeric_only=True), groups.sem(numeric_only=True)
    table = {
        "test NLL": fixed(mean.nll, 4) + " ± " + fixed(error.nll, 4),
        "error or RMSE": fixed(mean.error, 3) + " ± " + fixed(error.error, 3),
        "with tracing [s]": fixed(groups.median(numeric_only=True).total, 1),
        "splits": groups.seed.nunique(),
    }
    return pd.DataFrame(table).reset_index()


def returns_table(metrics: pd.DataFrame) -> pd.DataFrame:
    """When each method ended and why, with and without tracing; beside fit_collapsed's end."""
    ends = _ends(best_runs(metrics)).set_index(_TURN)
    ours = ends[ends.method == _OURS].reindex(ends.index)
    ratios = {"times": ends.total / ours.total, "bare_times": ends.seconds / ours.seconds}
    groups = ends.assign(**ratios, above=ends.elbo - ours.elbo).groupby(_KEYS, sort=False)
    median = groups.median(numeric_only=True)
    table = {
        "with tracing [s]": fixed(median.total, 2),
        "tracing [s]": fixed(median.tracing_seconds, 2),
        "without [s]": fixed(median.seconds, 2),
        "times": fixed(median.times, 2),
        "times, without": fixed(median.bare_times, 2),
        "evaluations": median.step.astype(int),
        "test NLL": fixed(median.nll, 4),
        "ELBO": fixed(median.elbo, 2),
        "above": fixed(median.above, 2),
        "end": groups.status.agg(lambda status: ", ".join(status.unique())),
    }
    return pd.DataFrame(table).reset_index()


# ---- figures ----


def convergence_figure(runs: pd.DataFrame) -> Figure:
    """Test NLL and error against training seconds: median and range over seeds."""
    problems = list(runs.problem.unique())
    # A run that failed at once has no curve.
    runs = runs[runs.groupby(_RUN).seconds.transform("max") > 0]
    figure, axes = subplots(2, len(problems), 4.4, 2.9)
    for column, problem in zip(axes.T, problems, strict=True):
        rows = runs[runs.problem == problem]
        column[0].set(title=problem.replace("_", " "), ylabel="test NLL [nats per datum]")
        column[1].set(xlabel="training time [s]", ylabel=f"test {rows.error_metric.iloc[0]}")
        for ax, metric in zip(column, ("nll", "error"), strict=True):
            for method in in_order(rows.method):
                own = rows[rows.method == method]
                seconds, *values = _over_seeds(own, metric)
                is_point = own[own.seconds > 0.0].groupby(_RUN).size().max() == 1  # the return
                shape = {"markevery": [-1]} if is_point else {"marker": ""}
                band(ax, seconds, values, **style(method) | shape, label=method)
            shown = rows[rows.step > 0][metric]
            low, high = shown.min(), shown.quantile(0.9)
            room = max(high - low, 1e-3)
            ax.set(xscale="log", ylim=(low - 0.05 * room, high + 0.1 * room))
            for method, ends in _last(rows)[_have_failed].groupby("method"):  # off the top
                mark = {"color": style(method)["color"], "transform": ax.get_xaxis_transform()}
                ax.plot(
                    ends.seconds, np.ones(len(ends)), "X", **mark, clip_on=False, label="failed"
                )
    one_legend(figure, axes, runs.seed.nunique())
    return figure


def returns_figure(runs: pd.DataFrame) -> Figure:
    """Seconds until each method returned; > where a run was cut off, nothing where one failed."""
    ends = _ends(runs)
    of_method = ["problem", "method"]
    ends = ends[~_have_failed(ends).groupby([ends.problem, ends.method]).transform("max")]
    ends = ends.assign(cut=ends.status.str.startswith("limit"))
    ends["cut"] = ends.groupby(of_method).cut.transform("max")
    problems = list(runs.problem.unique()[::-1])
    figure, axes = subplots(1, 1, 6.4, 1.4 + 0.4 * len(problems))
    ax = axes[0, 0]
    for method in in_order(ends.method):
        points = style(method) | {"linestyle": ""}
        own, cut = (
            ends[(ends.method == method) & (ends.cut == is_cut)].groupby("problem").median(True)
            for is_cut in (False, True)
        )
        height = [problems.index(problem) for problem in cut.index]
        longer = points | {"marker": ">", "markerfacecolor": "none"}
        ax.plot(cut.total, height, **longer, label=f"{method}, cut off" if len(cut) else None)
        if own.empty:
            continue
        medians, height = own, [problems.index(problem) for problem in own.index]
        ax.plot(medians.total, height, **points, label=method)
        ax.plot(medians.seconds, height, **points, markerfacecolor="none")
    ax.set_yticks(range(len(problems)), [problem.replace("_", " ") for problem in problems])
    ax.set(xscale="log", xlabel="seconds until it returned (hollow: without tracing)")
    ax.set(ylim=(-0.5, len(problems) - 0.5))
    one_legend(figure, axes)
    return figure


def _over_seeds(runs: pd.DataFrame, metric: str) -> tuple[np.ndarray, ...]:
    """Seconds, and median, least and largest of ``metric`` over the seeds then."""
    each = [run for _, run in runs[runs.seconds > 0.0].groupby(["seed", "repeat"])]
    first = max(run.seconds.iloc[0] for run in each)
    last = max(run.seconds.iloc[-1] for run in each)
    seconds = np.geomspace(first, max(last, 1.01 * first), 120)
    # What it had reached by then: the last evaluation before it.
    reached = [np.searchsorted(run.seconds, seconds * (1 + 1e-9)) - 1 for run in each]
    values = [run[metric].to_numpy()[at] for run, at in zip(each, reached, strict=True)]
    return seconds, *(reduce(values, axis=0) for reduce in (np.median, np.min, np.max))
