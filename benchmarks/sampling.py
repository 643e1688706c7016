"""What a sampler of p(f|y) costs, and what its draws are worth (Tables 2-5 and Fig. 4)."""

import itertools
from dataclasses import asdict
from pathlib import Path

import gpflow
import numpy as np
import pandas as pd
import tensorflow as tf
from tqdm import tqdm

from gpflow_aaci import AugmentedVGP, GibbsKernel, augmentation

from .chains import LAGS, diagnostics, draw
from .config import GibbsMethod, HMCMethod, Problem, Sampling, SamplingMethod
from .curves import write_curves
from .data import Dataset, load_datasets
from .kept import kept
from .methods import make_likelihood, root_mean_squared_distance
from .samplers import Kind, Setting, make_sampler
from .step_time import interleaved

_TURNS = 30  # of a draw and a Cholesky factorisation


def run(config: Sampling, folder: Path, quiet: bool = False) -> pd.DataFrame:
    """
    One row per problem and setting; also writes autocorrelation.csv, with a row for every lag.

    A finished run is kept in ``output/runs`` and not run again; its autocorrelations against the
    lag are in ``output/tensorboard``.
    """
    grid = list(dict.fromkeys(s for method in config.method for s in settings(method)))
    datasets = load_datasets(config.problem, folder, quiet)
    runs = []
    # tqdm's disable=None: silent where the output is not a terminal.
    with tqdm(total=len(datasets) * len(grid), unit="run", disable=True if quiet else None) as bar:
        for problem, dataset in zip(config.problem, datasets, strict=True):
            cost = _kept_cost(config, problem, dataset)
            for setting in grid:
                bar.set_description(f"{dataset.name}: {setting.method}, {setting}")
                result = _kept_run(config, problem, dataset, setting)
                runs.append(result.join(cost).assign(sha256=dataset.sha256))
                bar.update()
    metrics = pd.concat(runs, ignore_index=True)
    autocorrelation(metrics).to_csv(config.output / "autocorrelation.csv", index=False)
    return metrics


def settings(method: SamplingMethod) -> list[Setting]:
    """Every point of a method's grid."""
    match method:
        case GibbsMethod():
            kind: Kind = "gibbs" if method.omega == "closed form" else "generic_gibbs"
            return [Setting(kind, over_relaxation=a) for a in method.over_relaxation]
        case HMCMethod():
            steps = [None if step == "tuned" else step for step in method.step_size]
            points = itertools.product(steps, method.leapfrog_steps)
            return [Setting("hmc", step_size=step, leapfrog_steps=n) for step, n in points]
        case _:
            return [Setting(method.kind)]


def autocorrelation(metrics: pd.DataFrame) -> pd.DataFrame:
    """Means over the data of |ρ| and ρ, a row for every problem, method, setting and lag."""
    keys = ["problem", "method", "setting"]
    parts = []
    for k in range(1, LAGS + 1):
        columns = {f"lag_{k}": "autocorrelation", f"signed_lag_{k}": "signed"}
        part = metrics[[*keys, *columns]].rename(columns=columns)
        part.insert(len(keys), "lag", k)
        parts.append(part)
    return pd.concat(parts, ignore_index=True)


def make_model(problem: Problem, dataset: Dataset) -> AugmentedVGP:
    """The full GP of all rows: SE kernel, its lengthscale the root mean square distance."""
    data = dataset.whole()
    kernel = gpflow.kernels.SquaredExponential(lengthscales=root_mean_squared_distance(data.X))
    return AugmentedVGP((data.X, data.Y), kernel, make_likelihood(problem.likelihood))


def _kept_run(
    config: Sampling, problem: Problem, dataset: Dataset, setting: Setting
) -> pd.DataFrame:
    """One row."""
    depends_on: dict[str, object] = {
        "problem": problem.model_dump(),
        "data": dataset.sha256,
        "setting": asdict(setting),
        "config": config.model_dump(exclude={"output", "minutes", "problem", "method"}),
    }

    def run() -> pd.DataFrame:
        num_burnin = config.num_tuning if setting.is_tuned else config.num_burnin
        model = make_model(problem, dataset)
        sampler = make_sampler(setting, model, config.num_chains, num_burnin, config.seed)
        draws = draw(sampler, num_burnin, config.num_samples, config.seconds, config.seed)
        row = {
            "problem": dataset.name,
            "likelihood": problem.likelihood.name,
            "method": setting.method,
            "setting": str(setting),
            "seed": config.seed,
            "num_data": len(dataset.table.X),
            "num_chains": config.num_chains,
            "num_samples": draws.f.shape[1],
            "num_burnin": num_burnin,
            "seconds_per_draw": draws.seconds / draws.f.shape[1],
            "seconds": draws.seconds,
            "warmup_seconds": draws.warmup_seconds,
            "tracing_seconds": draws.tracing_seconds,
            "acceptance": draws.acceptance,
        }
        table = pd.DataFrame([row | diagnostics(draws)])
        curves = autocorrelation(table)[["lag", "autocorrelation", "signed"]]
        write_curves(curves, "lag", config.output, name)
        return table

    name = f"{dataset.name}-{setting.method}-{setting}"
    return kept(config.output / "runs", name, depends_on, run)


def _kept_cost(config: Sampling, problem: Problem, dataset: Dataset) -> pd.DataFrame:
    """A Gibbs draw beside the Cholesky factorisation that it cannot do without; one row."""
    depends_on: dict[str, object] = {
        "problem": problem.model_dump(),
        "data": dataset.sha256,
        "num_chains": config.num_chains,
    }

    def run() -> pd.DataFrame:
        return pd.DataFrame([_cost(make_model(problem, dataset), config.num_chains)])

    return kept(config.output / "runs", f"{dataset.name}-cholesky", depends_on, run)


def _cost(model: AugmentedVGP, num_chains: int) -> dict[str, float]:
    """Median milliseconds of both, all chains in a batch, taking turns."""
    kernel = GibbsKernel(model, over_relaxation=0.0)
    f = kernel.initial_state(num_chains, seed=[0, 0])
    f, results = kernel.one_step(f, kernel.bootstrap_results(f), seed=[0, 1])
    _, Y, _ = model.checked_batch()
    precision = augmentation.auglik_precision(model.likelihood, results.omega, Y)
    root = tf.sqrt(tf.linalg.matrix_transpose(precision))[..., None]
    K = model.prior_covariance()[0]
    # B = I + Λ^½ K Λ^½, [C, P, N, N], formed beforehand.
    B = root * K * tf.linalg.matrix_transpose(root) + tf.eye(len(K), dtype=K.dtype)
    seed = tf.Variable([0, 2])  # what is drawn from a constant could be folded into one
    steps = {
        "draw": lambda: kernel.one_step(f, results, seed=seed.read_value())[0],
        "cholesky": lambda: tf.linalg.cholesky(B),
    }
    times = interleaved(steps, _TURNS, 1, quiet=True)
    draw, cholesky = (float(np.median(times[name])) for name in steps)
    return {"gibbs_ms": draw, "cholesky_ms": cholesky, "gibbs_over_cholesky": draw / cholesky}
