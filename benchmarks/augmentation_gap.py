"""What the augmentation costs: converged bounds and held-out NLL over lengthscales."""

from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pandas as pd
import tensorflow as tf

import gpflow_aaci
from gpflow_aaci.progress import progress_bar

from .config import AugmentationGap, Problem
from .curves import write_curves
from .data import Dataset, Split, load_datasets
from .kept import kept
from .methods import make_likelihood
from .metrics import Measured, evaluator, metric_names

_TOLERANCE = 1e-9  # nats per datum that one more closed-form step gains
_MOST_STEPS = 2_000


def run(config: AugmentationGap, folder: Path, quiet: bool = False) -> pd.DataFrame:
    """
    Two rows, the augmented and the standard bound's, per lengthscale, seed and problem.

    One lengthscale for all dimensions and the likelihood's parameters stay as they are: q alone
    is optimised. The augmented bound by closed-form steps; then the standard ELBO from there on, by
    Newton steps that never lose. In ``output/tensorboard`` the steps are the lengthscales, from 0.
    """
    datasets = load_datasets(config.problem, folder, quiet)
    lengthscales = np.geomspace(
        config.smallest_lengthscale, config.largest_lengthscale, config.num_lengthscales
    )
    runs = []
    total = len(datasets) * len(config.seeds) * len(lengthscales)
    with progress_bar(not quiet, total=total, unit="fit") as progress:
        for problem, dataset in zip(config.problem, datasets, strict=True):
            for seed in config.seeds:
                runs.append(_kept_run(config, problem, dataset, seed, lengthscales, progress))
    return pd.concat(runs, ignore_index=True)


def _kept_run(
    config: AugmentationGap,
    problem: Problem,
    dataset: Dataset,
    seed: int,
    lengthscales: np.ndarray,
    progress: Any,
) -> pd.DataFrame:
    done = progress.n
    sha256 = dataset.sha256
    depends_on = {
        "problem": problem.model_dump(),
        "seed": seed,
        "data": sha256,
        "lengthscales": lengthscales.tolist(),
        "config": config.model_dump(include={"kernel_variance", "test_fraction"}),
    }

    def run() -> pd.DataFrame:
        split = dataset.split(config.test_fraction, seed)
        label = {"problem": split.name, "seed": seed}
        label |= metric_names(split.is_binary)
        rows = []
        model = _make_model(split, problem, config.kernel_variance)
        step = tf.function(lambda: _step(model), autograph=False)
        evaluate = evaluator(model, split)
        start = model.q_mu.numpy(), model.q_sqrt.numpy()
        for lengthscale in lengthscales:
            progress.set_description(f"{split.name}: lengthscale {lengthscale:.2g}")
            model.kernel.lengthscales.assign(lengthscale)
            model.q_mu.assign(start[0])
            model.q_sqrt.assign(start[1])
            elbo = _converge(step, len(split.X))
            here = label | {"lengthscale": lengthscale}
            rows.append(here | {"bound": "augmented"} | evaluate()._asdict() | {"elbo": elbo})
            standard = gpflow_aaci.polish(model, progress=False).elbo
            rows.append(here | {"bound": "standard"} | evaluate()._asdict() | {"elbo": standard})
            progress.update()
        table = pd.DataFrame(rows)
        for bound, of_bound in table.groupby("bound"):
            curves = of_bound[["lengthscale", *Measured._fields]].reset_index(drop=True)
            write_curves(curves.reset_index(), "index", config.output, f"{name}-{bound}")
        return table

    name = f"{dataset.name}-{seed}"
    result = kept(config.output / "runs", name, depends_on, run)
    progress.update(done + len(lengthscales) - progress.n)
    return result.assign(sha256=sha256)


def _make_model(split: Split, problem: Problem, variance: float) -> gpflow_aaci.AugmentedVGP:
    kernel = gpflow.kernels.SquaredExponential(variance=variance)
    likelihood = make_likelihood(problem.likelihood)
    model = gpflow_aaci.AugmentedVGP((split.X, split.Y), kernel, likelihood)
    gpflow.set_trainable(model.kernel, False)
    gpflow.set_trainable(model.likelihood, False)
    return model


def _step(model: gpflow_aaci.AugmentedVGP) -> tf.Tensor:
    gpflow_aaci.AugmentedNaturalGradient(1.0).minimize(model)
    return model.elbo()


def _converge(step: tf.types.experimental.PolymorphicFunction, num_data: int) -> float:
    """The augmented bound once a step gains nothing."""
    elbo = float(step())
    for _ in range(_MOST_STEPS):
        before, elbo = elbo, float(step())
        if elbo - before < _TOLERANCE * num_data:
            break
    return elbo


def gaps(metrics: pd.DataFrame) -> pd.DataFrame:
    """Per problem, lengthscale and seed: both bounds, their gap and both NLLs, side by side."""
    keys = ["problem", "lengthscale", "seed"]
    wide = metrics.pivot(index=keys, columns="bound", values=["elbo", "nll", "plugin_nll"])
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


def summary(metrics: pd.DataFrame) -> pd.DataFrame:
    """Medians over the seeds."""
    keys = ["problem", "lengthscale"]
    table = gaps(metrics).drop(columns="seed").groupby(keys, sort=False).median().reset_index()
    table["lengthscale"] = table.lengthscale.map("{:.3g}".format)
    table["gap"] = table.gap.map("{:.3g}".format)
    for column in ("augmented ELBO", "standard ELBO"):
        table[column] = table[column].map("{:.2f}".format)
    for column in ("NLL, augmented", "NLL, standard"):
        table[column] = table[column].map("{:.4f}".format)
    return table
