"""What the augmentation costs: converged bounds and held-out NLL over lengthscales."""

import itertools
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
from .config import AugmentationGap, KernelConfig
from .datasets import Dataset, load_datasets
from .methods import Start, make_model
from .metrics import Measured, evaluator, metric_names
from .report import Report, band, one_legend, style, subplots

_TOLERANCE = 1e-9  # closed-form steps end when one gains fewer nats per datum than this
_MOST_STEPS = 2_000
# The markers are hollow and of two sizes, so that both are visible where they coincide.
_SIZES = {"augmented": 7, "standard": 4}


def run(config: AugmentationGap, folder: Path, quiet: bool = False) -> pd.DataFrame:
    """
    Measure two rows per lengthscale, seed and problem, one for each of the two bounds.

    Only q is optimised: the lengthscale, one for all dimensions, and the likelihood's parameters
    are fixed. Closed-form steps maximise the augmented bound; ``polish`` then maximises the
    standard ELBO, starting there. In ``output/tensorboard``, step k is the k-th lengthscale.
    """
    runs = []
    splits = itertools.product(load_datasets(config.problem, folder, quiet), config.seeds)
    for dataset, seed in progress_bar(not quiet, iterable=list(splits), unit="split"):
        name, key = f"{dataset.problem.title}-{seed}", {**dataset.key, "seed": seed}
        train = partial(_over_lengthscales, config, dataset, seed)
        table = finished(config, name, key, train, partial(_curves, name))
        runs.append(table.assign(sha256=dataset.sha256))
    return pd.concat(runs, ignore_index=True)


def report(metrics: pd.DataFrame) -> Report:
    """A table of medians over the seeds, and a figure that shows the ranges too."""
    keys = ["problem", "lengthscale"]
    table = gaps(metrics).drop(columns="seed").groupby(keys, sort=False).median().reset_index()
    for column in table.columns[1:]:
        digits = ".2f" if "ELBO" in column else ".4f" if "NLL" in column else ".3g"
        table[column] = table[column].map(f"{{:{digits}}}".format)
    caption = "Both bounds converged in q, all else fixed; medians over seeds."
    return Report({caption: table}, {"augmentation_gap": _figure(metrics)})


def gaps(metrics: pd.DataFrame) -> pd.DataFrame:
    """A row per problem, lengthscale and seed, with both bounds, their gap and both NLLs."""
    keys = ["problem", "lengthscale", "seed"]
    wide = metrics.pivot(index=keys, columns="bound", values=["elbo", "nll"])
    elbo, nll = wide["elbo"], wide["nll"]
    columns = {
        "augmented ELBO": elbo.augmented,
        "standard ELBO": elbo.standard,
        "gap": elbo.standard - elbo.augmented,
        "NLL, augmented": nll.augmented,
        "NLL, standard": nll.standard,
    }
    return pd.DataFrame(columns).reset_index()


def _curves(name: str, table: pd.DataFrame) -> dict[str, pd.DataFrame]:
    columns = ["lengthscale", *Measured._fields]
    of_bound = table.groupby("bound")
    return {f"{name}-{b}": rows[columns].reset_index(drop=True) for b, rows in of_bound}


def _over_lengthscales(config: AugmentationGap, dataset: Dataset, seed: int) -> pd.DataFrame:
    split = dataset.split(config.test_fraction, seed)
    kernel = KernelConfig(variance=config.kernel_variance, ard=False)
    model = make_model(Start(kernel, dataset.problem, split, None), is_augmented=True)
    gpflow.set_trainable(model.kernel, False)
    gpflow.set_trainable(model.likelihood, False)
    optimizer = gpflow_aaci.AugmentedNaturalGradient(1.0)

    @tf.function(autograph=False)
    def step() -> tf.Tensor:
        optimizer.minimize(model)
        return model.augmented_elbo()

    evaluate = evaluator(model, split)
    begin = model.q_mu.numpy(), model.q_sqrt.numpy()
    label = {"problem": dataset.problem.title, "seed": seed, **metric_names(dataset.problem)}
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
    """Negative bounds, gap and NLL against the lengthscale, with median and range over seeds."""
    problems, table = metrics.problem.unique(), gaps(metrics)
    figure, axes = subplots(len(problems), 3, 3.6, 2.9)

    def draw(ax: Any, rows: pd.DataFrame, column: str, sign: float = 1.0, **options: Any) -> None:
        wide = sign * rows.pivot(index="lengthscale", columns="seed", values=column)
        values = [wide.median(axis=1), wide.min(axis=1), wide.max(axis=1)]
        band(ax, wide.index, values, markerfacecolor="none", **options)

    for (bounds, gap, nll), problem in zip(axes, problems, strict=True):
        rows = table[table.problem == problem]
        for bound, size in _SIZES.items():
            options = style(bound) | {"markersize": size}
            draw(bounds, rows, f"{bound} ELBO", -1.0, **options, label=f"{bound} bound")
            draw(nll, rows, f"NLL, {bound}", **options)
        draw(gap, rows, "gap", color="black", marker="d", markersize=4)
        bounds.set(ylabel="negative ELBO [nats]")
        gap.set(ylabel="gap of the ELBOs [nats]", ylim=(0.0, None))
        nll.set(ylabel="test NLL [nats per datum]")
        bounds.set_title(problem.replace("_", " "), loc="left")
    for ax in axes.flat:
        ax.set(xlabel="lengthscale [standard deviations]", xscale="log")
    one_legend(figure, axes, metrics.seed.nunique())
    return figure
