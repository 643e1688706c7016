"""Cost and quality of samplers of p(f|y), as in the paper's Tables 2-5 and Fig. 4."""

import itertools
from dataclasses import asdict
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import tensorflow as tf
from matplotlib.figure import Figure

from gpflow_aaci import AugmentedVGP, augmentation
from gpflow_aaci.data import as_arrays
from gpflow_aaci.progress import progress_bar
from gpflow_aaci.sampling import GibbsKernel

from . import methods
from .cache import finished
from .config import KernelConfig, Sampling, SamplingMethod
from .datasets import Dataset, load_datasets
from .methods import Start
from .report import Report, fixed, in_order, one_legend, style, subplots
from .samplers import LAGS, Kind, Setting, diagnostics, draw, make_sampler
from .step_time import interleaved

_TURNS = 30  # how often a draw and a Cholesky factorisation are timed, in turns

# The number of rows in the paper's data, by which they are recognised.
_PAPERS_ROWS = {"Logistic": 270, "StudentT": 506, "Laplace": 506, "Matern32": 506}
# The paper's Table 2: seconds per draw of one chain, lag-1 autocorrelation, Gelman's statistic.
_PAPER = {
    ("Logistic", "MH, prior proposals"): (0.001, 0.996, 1.38),
    ("Logistic", "HMC"): (0.041, 0.53, 1.00),
    ("Logistic", "Gibbs"): (0.010, 0.11, 1.00),
    ("StudentT", "MH, prior proposals"): (0.003, 1.0, 1.51),
    ("StudentT", "HMC"): (0.573, 0.857, 1.00),
    ("StudentT", "Gibbs"): (0.028, 0.04, 1.00),
    ("Laplace", "MH, prior proposals"): (0.002, 0.995, 1.44),
    ("Laplace", "HMC"): (0.082, 0.931, 1.01),
    ("Laplace", "Gibbs"): (0.028, 0.26, 1.00),
    ("Matern32", "MH, prior proposals"): (0.005, 0.997, 1.59),
    ("Matern32", "HMC"): (0.150, 0.995, 1.10),
    ("Matern32", "Gibbs"): (0.029, 0.05, 1.00),
}
# Its Tables 3-5: the same numbers for HMC, by step size and number of leapfrog steps. Their
# neighbours suggest that .675 and .41 are misprints.
_PAPERS_LEAPFROGS = [1, 2, 5, 10]
_PAPERS_GRID = {
    ("Laplace", 0.01): ".037/.999/3.14 .045/.993/1.02 .077/.978/1.00 .133/.963/2.05",
    ("Laplace", 0.05): ".036/.999/1.72 .046/.998/1.18 .080/.931/1.01 .12/.948/3.25",
    ("Laplace", 0.1): ".033/.997/1.11 .042/.996/1.04 .073/.998/1.27 .13/.994/2.71",
    ("StudentT", 0.01): ".675/.999/3.14 .110/.999/1.74 .177/.997/1.11 .251/.993/1.02",
    ("StudentT", 0.05): ".148/.997/1.10 .192/.993/1.02 .336/.962/1.00 .573/.857/1.00",
    ("StudentT", 0.1): ".142/.993/1.03 .193/.976/1.02 .337/.864/1.00 NA",
    ("Logistic", 0.01): ".009/.999/3.19 .013/.999/1.68 .021/.998/1.12 .041/.994/1.02",
    ("Logistic", 0.05): ".011/.998/1.11 .014/.994/1.02 .025/.968/1.00 .41/.871/1.00",
    ("Logistic", 0.1): ".011/.994/1.02 .014/.979/1.01 .024/.875/1.00 .048/.532/1.00",
}


def run(config: Sampling, folder: Path, quiet: bool = False) -> pd.DataFrame:
    """
    Measure one row per problem and setting.

    It also writes autocorrelation.csv, with a row for every lag, and curves of the
    autocorrelation against the lag to ``output/tensorboard``.
    """
    grid = list(dict.fromkeys(s for method in config.method for s in settings(method)))
    datasets = load_datasets(config.problem, folder, quiet)
    runs = []
    with progress_bar(not quiet, total=len(datasets) * len(grid), unit="run") as bar:
        for dataset in datasets:
            name = f"{dataset.problem.title}-cholesky"
            cost = finished(config, name, dataset.key, partial(_cost, config, dataset))
            for setting in grid:
                bar.set_description(f"{dataset.problem.title}: {setting.method}, {setting}")
                result = _finished(config, dataset, setting)
                runs.append(result.join(cost).assign(sha256=dataset.sha256))
                bar.update()
    metrics = pd.concat(runs, ignore_index=True)
    autocorrelation(metrics).to_csv(config.output / "autocorrelation.csv", index=False)
    return metrics


def settings(method: SamplingMethod) -> list[Setting]:
    """Every point of a method's grid."""
    from_log_phi = getattr(method, "omega", None) == "from log phi"
    kind: Kind = "generic_gibbs" if from_log_phi else method.kind
    steps = [None if step == "tuned" else step for step in getattr(method, "step_size", ["tuned"])]
    leapfrogs = getattr(method, "leapfrog_steps", [None])
    grid = itertools.product(getattr(method, "over_relaxation", [0.0]), steps, leapfrogs)
    return [Setting(kind, *point) for point in grid]


def autocorrelation(metrics: pd.DataFrame) -> pd.DataFrame:
    """The means of |ρ| and ρ over the data, a row per problem, method, setting and lag."""
    keys = ["problem", "method", "setting"]
    columns = [*keys, "lag", "autocorrelation", "signed"]
    lags = [
        metrics.assign(lag=k)[[*keys, "lag", f"lag_{k}", f"signed_lag_{k}"]].set_axis(
            columns, axis=1
        )
        for k in range(1, LAGS + 1)
    ]
    return pd.concat(lags, ignore_index=True)


def make_model(dataset: Dataset) -> AugmentedVGP:
    """A full GP on all rows; the lengthscale is the root mean square distance of inputs."""
    kernel = KernelConfig(ard=False)
    return methods.make_model(Start(kernel, dataset.problem, dataset.whole(), None), True)


def _finished(config: Sampling, dataset: Dataset, setting: Setting) -> pd.DataFrame:
    name = f"{dataset.problem.title}-{setting.method}-{setting}"

    def run() -> pd.DataFrame:
        num_burnin = config.num_tuning if setting.is_tuned else config.num_burnin
        model = make_model(dataset)
        sampler = make_sampler(setting, model, config.num_chains, num_burnin, config.seed)
        draws = draw(sampler, num_burnin, config.num_samples, config.seconds, config.seed)
        row = {
            "problem": dataset.problem.title,
            "likelihood": dataset.problem.likelihood.name,
            "method": setting.method,
            "setting": str(setting),
            "step_size": setting.step_size,
            "leapfrog_steps": setting.leapfrog_steps,
            "seed": config.seed,
            "num_data": len(dataset.X),
            "num_chains": config.num_chains,
            "num_samples": draws.f.shape[1],
            "num_burnin": num_burnin,
            "seconds_per_draw": draws.seconds / draws.f.shape[1],
            "seconds": draws.seconds,
            "warmup_seconds": draws.warmup_seconds,
            "tracing_seconds": draws.tracing_seconds,
            "acceptance": draws.acceptance,
        }
        return pd.DataFrame([row | diagnostics(draws)])

    def curves(table: pd.DataFrame) -> dict[str, pd.DataFrame]:
        return {name: autocorrelation(table).set_index("lag")[["autocorrelation", "signed"]]}

    return finished(config, name, {**dataset.key, "setting": asdict(setting)}, run, curves)


def _cost(config: Sampling, dataset: Dataset) -> pd.DataFrame:
    """Median milliseconds of a Gibbs draw of all chains, and of the factorisations it needs."""
    model = make_model(dataset)
    kernel = GibbsKernel(model, over_relaxation=0.0)
    f = kernel.initial_state(config.num_chains, seed=[0, 0])
    f, results = kernel.one_step(f, kernel.bootstrap_results(f), seed=[0, 1])
    _, Y = as_arrays(model.expected_data).rows
    precision = augmentation.auglik_precision(model.likelihood, results.omega, Y)
    root = tf.sqrt(tf.linalg.matrix_transpose(precision))[..., None]
    K = model.prior_covariance()[0]
    # B = I + Λ^½ K Λ^½, [C, P, N, N]. Forming it is not timed.
    B = root * K * tf.linalg.matrix_transpose(root) + tf.eye(len(K), dtype=K.dtype)
    seed = tf.Variable([0, 2])  # from a constant seed, TensorFlow could compute the draws once
    steps = {
        "gibbs_ms": lambda: kernel.one_step(f, results, seed=seed.read_value())[0],
        "cholesky_ms": lambda: tf.linalg.cholesky(B),
    }
    steps = {name: tf.function(step, autograph=False) for name, step in steps.items()}
    row = pd.DataFrame(interleaved(steps, _TURNS, 1, quiet=True)).median().to_frame().T
    return row.assign(gibbs_over_cholesky=row.gibbs_ms / row.cholesky_ms)


# ---- the report ----


def report(metrics: pd.DataFrame) -> Report:
    """Tables of the best settings, the cost of a draw, the paper's numbers and HMC's grid."""
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
        "I + Λ^½KΛ^½ alone, in turns; median milliseconds.": _cost_table(metrics),
    }
    if len(beside):
        tables[
            "Ours beside Table 2 of the paper: seconds per draw (the paper's is of one chain, on "
            "another machine), lag 1 and R-hat. The paper's MH and HMC have them of the whitened f."
        ] = beside
    if len(best) < len(metrics):
        tables["Every setting."] = _summary(metrics)
    grid = metrics[(metrics.method == "HMC") & metrics.step_size.notna()]
    if len(grid) > 1:
        tables[
            "HMC with a fixed step: seconds per draw of all chains / lag 1 / R-hat. Beside them, "
            "where the data are the paper's, its Tables 3-5 as printed: of one chain, on another "
            "machine, and of the whitened f."
        ] = _hmc_grid(grid)
    return Report(tables, {"autocorrelation": _figure(best)})


def best_settings(metrics: pd.DataFrame) -> pd.DataFrame:
    """
    For each problem and method, the row with the most effective draws per second.

    The smaller ESS of f and f² counts, since chains that alternate are good for means alone.
    """
    fewer = metrics[["min_ess_per_second", "min_ess_squared_per_second"]].min(axis=1)
    return metrics.loc[fewer.groupby([metrics.problem, metrics.method], sort=False).idxmax()]


def _summary(rows: pd.DataFrame) -> pd.DataFrame:
    columns = {
        "problem": rows.problem,
        "method": rows.method,
        "setting": rows.setting,
        "ms/draw": 1e3 * rows.seconds_per_draw,
        "lag 1": fixed(rows.lag_1, 3),
        "R-hat": fixed(rows.rhat, 3),
        "ESS/s, f": rows.min_ess_per_second,
        "ESS/s, f²": rows.min_ess_squared_per_second,
        "median ESS, f": rows.median_ess.round().astype(int),
        "median ESS, f²": rows.median_ess_squared.round().astype(int),
        "draws": rows.num_samples,
        "acceptance": fixed(rows.acceptance, 3),
        "warm-up [s]": rows.warmup_seconds,
        "tracing [s]": rows.tracing_seconds,
    }
    return pd.DataFrame(columns)


def _is_papers(runs: pd.DataFrame) -> pd.Series:
    is_synthetic = runs.problem.str.contains("(synthetic)", regex=False)
    return (runs.num_data == runs.likelihood.map(_PAPERS_ROWS)) & ~is_synthetic


def _beside_the_paper(best: pd.DataFrame) -> pd.DataFrame:
    pairs = pd.Series(zip(best.likelihood, best.method, strict=True), best.index)
    rows = best[_is_papers(best) & pairs.isin(_PAPER)]
    papers = [_PAPER[pair] for pair in pairs[rows.index]]
    seconds, lag, rhat = np.reshape(papers, (-1, 3)).T
    columns = {
        "problem": rows.problem,
        "method": rows.method,
        "s/draw": rows.seconds_per_draw,
        "s/draw, paper": seconds,
        "lag 1": fixed(rows.lag_1, 3),
        "lag 1, paper": [f"{value:.3f}" for value in lag],
        "R-hat": fixed(rows.rhat, 2),
        "R-hat, paper": [f"{value:.2f}" for value in rhat],
    }
    return pd.DataFrame(columns)


def _cost_table(metrics: pd.DataFrame) -> pd.DataFrame:
    old = ["problem", "num_data", "num_chains", "gibbs_ms", "cholesky_ms", "gibbs_over_cholesky"]
    new = ["problem", "N", "chains", "Gibbs draw", "Cholesky", "ratio"]
    return metrics.drop_duplicates("problem")[old].set_axis(new, axis=1)


def _hmc_grid(grid: pd.DataFrame) -> pd.DataFrame:
    """The paper's layout: a row per step size, a column per number of leapfrog steps."""
    cells = [f"{r.seconds_per_draw:.3g} / {r.lag_1:.3f} / {r.rhat:.2f}" for r in grid.itertuples()]
    ours = grid.assign(whose="here", cell=cells)
    printed = ours[_is_papers(ours)].drop_duplicates(["problem", "step_size"])
    papers = [
        {**row._asdict(), "whose": "paper", "leapfrog_steps": steps, "cell": cell}
        for row in printed.itertuples()
        for steps, cell in zip(
            _PAPERS_LEAPFROGS,
            _PAPERS_GRID.get((row.likelihood, row.step_size), "").split(),
            strict=False,
        )
    ]
    table = pd.concat([ours, pd.DataFrame(papers)]).rename(columns={"step_size": "step"})
    wide = table.pivot(index=["problem", "step", "whose"], columns="leapfrog_steps", values="cell")
    return wide.rename(columns="{:.0f} leapfrogs".format).fillna("").reset_index()


def _figure(runs: pd.DataFrame) -> Figure:
    """
    Mean |ρ| over the data against the lag, a panel for every problem and a line for every method.

    Markers are hollow where the mean of ρ is negative, so that errors of the draws cancel.
    """
    problems = runs.problem.unique()
    columns = min(len(problems), 2)
    figure, axes = subplots(-(-len(problems) // columns), columns, 4.4, 3.1)
    for ax in axes.flat[len(problems) :]:
        ax.set_visible(False)
    names = [[f"{kind}lag_{k}" for k in range(1, LAGS + 1)] for kind in ("", "signed_")]
    for ax, problem in zip(axes.flat, problems, strict=False):
        of_problem = runs[runs.problem == problem].set_index("method")
        for method in in_order(of_problem.index):
            lags, signed = (of_problem.loc[method, each].to_numpy(float) for each in names)
            rho = np.concatenate([[1.0], lags])
            ax.plot(rho, **style(method), markersize=4, label=method)
            negative = np.flatnonzero(signed < 0.0) + 1
            points = style(method) | {"linestyle": "", "markerfacecolor": "white"}
            ax.plot(negative, rho[negative], **points, markersize=4)
        labels = {"xlabel": "lag [draws]", "ylabel": "mean |autocorrelation| of f"}
        ax.set(title=problem, ylim=(0, 1.03), xticks=range(0, LAGS + 1, 2), **labels)
    one_legend(figure, axes)
    figure.suptitle("Hollow markers: the mean autocorrelation is negative", fontsize="medium")
    return figure
