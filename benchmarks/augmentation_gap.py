"""What the augmentation costs: converged bounds and held-out NLL over lengthscales."""

from functools import partial
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pandas as pd
import tensorflow as tf
from matplotlib.figure import Figure

import gpflow_aaci
from gpflow_aaci.progress import progress_bar

from .cache import finished
from .config import AugmentationGap
from .datasets import Dataset, load_datasets
from .methods import make_likelihood
from .metrics import Measured, evaluator, metric_names
from .report import Report, band, one_legend, over_seeds, style, subplots

_TOLERANCE = 1e-9  # nats per datum that one more closed-form step gains
_MOST_STEPS = 2_000
# Hollow and of two sizes, so that one shows around the other.
_SIZES = {"augmented": 7, "standard": 4}


def run(config: AugmentationGap, folder: Path, quiet: bool = False) -> pd.DataFrame:
    """
    Two rows, the augmented and the standard bound's, per lengthscale, seed and problem.

    One lengthscale for all dimensions and the likelihood's parameters stay as they are: q alone
    is optimised. The augmented bound by closed-form steps; then the standard ELBO from there on, by
    Newton steps that never lose. In ``output/tensorboard`` the steps are the lengthscales, from 0.
    """
    datasets = load_datasets(config.problem, folder, quiet)
    turns = [(dataset, seed) for dataset in datasets for seed in config.seeds]
    runs = []
    for dataset, seed in progress_bar(not quiet, iterable=turns, unit="split"):
        name = f"{dataset.name}-{seed}"

        def curves(table: pd.DataFrame, name: str = name) -> dict[str, pd.DataFrame]:
            columns = ["lengthscale", *Measured._fields]
            of_bound = table.groupby("bound")
            return {f"{name}-{b}": rows[columns].reset_index(drop=True) for b, rows in of_bound}

        key = {**dataset.key, "seed": seed}
        table = finished(
            config, name, key, partial(_over_lengthscales, config, dataset, seed), curves
        )
        runs.append(table.assign(sha256=dataset.sha256))
    return pd.concat(runs, ignore_index=True)


def report(metrics: pd.DataFrame) -> Report:
    """Medians over the seeds, and the range in the figure."""
    keys = ["problem", "lengthscale"]
    table = gaps(metrics).drop(columns="seed").groupby(keys, sort=False).median().reset_index()
    for column in table.columns[1:]:
        digits = ".2f" if "ELBO" in column else ".4f" if "NLL" in column else ".3g"
        table[column] = table[column].map(f"{{:{digits}}}".format)
    caption = "Both bounds converged in q, all else fixed; medians over seeds."
    return Report({caption: table}, {"augmentation_gap": _figure(metrics)})


def gaps(metrics: pd.DataFrame) -> pd.DataFrame:
    """Per problem, lengthscale and seed: both bounds, their gap and both NLLs, side by side."""
    keys = ["problem", "lengthscale", "seed"]
    wide = metrics.pivot(index=keys, columns="bound", values=["elbo", "nll"])
    table = pd.DataFrame(
        {
            "augmented ELBO": wide["elbo", "augmented"],
            "standard ELBO": wide["elbo", "standard"],
            "gap": wide["elbo", "standard"] - wide["elbo", "augmented"],
            "NLL, augmented": wide["nll", "augmented"],
            "NLL, standard": wide["nll", "standard"],
        }
    )
    return table.reset_index()


def _over_lengthscales(config: AugmentationGap, dataset: Dataset, seed: int) -> pd.DataFrame:
    split = dataset.split(config.test_fraction, seed)
    likelihood = make_likelihood(dataset.problem.likelihood)
    kernel = gpflow.kernels.SquaredExponential(variance=config.kernel_variance)
    model = gpflow_aaci.AugmentedVGP((split.X, split.Y), kernel, likelihood)
    gpflow.set_trainable(model.kernel, False)
    gpflow.set_trainable(model.likelihood, False)
    optimizer = gpflow_aaci.AugmentedNaturalGradient(1.0)

    @tf.function(autograph=False)
    def step() -> tf.Tensor:
        optimizer.minimize(model)
        return model.elbo()

    evaluate = evaluator(model, split)
    begin = model.q_mu.numpy(), model.q_sqrt.numpy()
    label = {"problem": dataset.name, "seed": seed, **metric_names(dataset.problem)}
    rows = []
    lengthscales = config.smallest_lengthscale, config.largest_lengthscale
    for lengthscale in np.geomspace(*lengthscales, config.num_lengthscales):
        model.kernel.lengthscales.assign(lengthscale)
        model.q_mu.assign(begin[0])
        model.q_sqrt.assign(begin[1])
        elbo = float(step())
        for _ in range(_MOST_STEPS):
            before, elbo = elbo, float(step())
            if elbo - before < _TOLERANCE * len(split.X):
                break
        for bound in _SIZES:
            if bound == "standard":
                elbo = gpflow_aaci.polish(model, progress=False).elbo
            row = {"lengthscale": lengthscale, "bound": bound}
            rows.append(label | row | evaluate()._asdict() | {"elbo": elbo})
    return pd.DataFrame(rows)


def _figure(metrics: pd.DataFrame) -> Figure:
    """Negative bounds, gap and test NLL against the lengthscale: median and range over seeds."""
    problems = list(dict.fromkeys(metrics.problem))
    figure, axes = subplots(len(problems), 3, 3.6, 2.9)
    table = gaps(metrics)

    def draw(ax: Any, rows: pd.DataFrame, column: str, sign: float = 1.0, **options: Any) -> None:
        wide = sign * rows.pivot(index="lengthscale", columns="seed", values=column)
        values = [wide.median(axis=1), wide.min(axis=1), wide.max(axis=1)]
        band(ax, wide.index, values, markerfacecolor="none", **options)

    for row, problem in zip(axes, problems, strict=True):
        rows = table[table.problem == problem]
        for bound, size in _SIZES.items():
            options = style(bound) | {"markersize": size}
            draw(row[0], rows, f"{bound} ELBO", -1.0, **options, label=f"{bound} bound")
            draw(row[2], rows, f"NLL, {bound}", **options)
        draw(row[1], rows, "gap", color="black", marker="d", markersize=4)
        row[0].set_ylabel("negative ELBO [nats]")
        row[1].set_ylabel("gap of the ELBOs [nats]")
        row[1].set_ylim(bottom=0.0)
        row[2].set_ylabel("test NLL [nats per datum]")
        row[0].set_title(problem.replace("_", " "), loc="left")
        for ax in row:
            ax.set(xlabel="lengthscale [standard deviations]", xscale="log")
    one_legend(figure, axes, over_seeds(metrics))
    return figure
