"""Traces of inducing points Z under SGHMC, in their first input, and their posterior."""

import itertools
from functools import partial
from pathlib import Path

import arviz
import numpy as np
import pandas as pd

import gpflow_aaci
from gpflow_aaci import contrib
from gpflow_aaci.progress import progress_bar

from .bsgp import fitted, give_Z_prior
from .cache import finished
from .config import BSGPTraces, PriorOfZ
from .datasets import Dataset, load_datasets
from .report import Report, fixed, subplots

_MOST_DRAWS = 200  # of a chain, that are written


def run(config: BSGPTraces, folder: Path, quiet: bool = False) -> pd.DataFrame:
    """A row per problem, prior, chain, draw and inducing point, of which it has the first input."""
    datasets = load_datasets(config.problem, folder, quiet)
    grid = list(itertools.product(datasets, config.priors))
    rows = []
    for dataset, prior in progress_bar(not quiet, iterable=grid, unit="run"):
        name, key = dataset.problem.title, {**dataset.key, "prior": prior}
        rows.append(finished(config, name, key, partial(_one, config, dataset, prior)))
    return pd.concat(rows, ignore_index=True)


def report(metrics: pd.DataFrame) -> Report:
    """How far Z moved, whether its chains agree, and the traces."""
    problems = list(metrics.problem.unique())
    priors = list(metrics["prior on Z"].unique())
    rows, figures = [], {}
    for problem in problems:
        figure, axes = subplots(len(priors), 2, 4.5, 2.2)
        for prior, (left, right) in zip(priors, axes, strict=True):
            part = metrics[(metrics.problem == problem) & (metrics["prior on Z"] == prior)]
            shape = part.chain.nunique(), part.draw.nunique(), part.point.nunique()
            Z, start = part.Z.to_numpy().reshape(shape), part.start.to_numpy()[: shape[-1]]
            ordered = np.sort(Z, axis=-1)  # points may swap places
            rows.append(
                {
                    "problem": problem,
                    "prior on Z": prior,
                    "distance from the start": np.sqrt(np.mean((Z[0] - start) ** 2)),
                    "sd of a point": np.mean(Z.std(axis=(0, 1))),
                    "R-hat": max(arviz.rhat(ordered[..., m]) for m in range(shape[-1])),
                    "least ESS": min(arviz.ess(ordered[..., m]) for m in range(shape[-1])),
                }
            )
            left.plot(Z[0], linewidth=0.8)
            left.set(xlabel="draw of the first chain", ylabel=f"Z, {prior} prior")
            for chain, values in enumerate(Z):
                bins = np.linspace(Z.min(), Z.max(), 60)
                right.hist(values.ravel(), bins, density=True, histtype="step", label=f"{chain}")
            right.plot(start, np.zeros_like(start), "k|", markersize=12, label="start of 0")
            right.set(xlabel="Z, of every chain", ylabel="density")
        axes[0, 1].legend()
        figures["traces" if len(problems) == 1 else f"traces_{problem}"] = figure
    table = pd.DataFrame(rows)
    table["R-hat"] = fixed(table["R-hat"], 2)
    caption = (
        "In standard deviations of the input; the distance is the first chain's, which begins at "
        "k-means++, as the others begin at draws from the prior where it can be drawn from. R-hat "
        "and the effective number of draws are the worst point's; points of a draw are ordered."
    )
    return Report({caption: table.round(3)}, figures)


def _one(config: BSGPTraces, dataset: Dataset, prior: PriorOfZ) -> pd.DataFrame:
    split = dataset.whole()
    model = fitted(split, dataset, config.num_inducing, config.seed, Z_is_learnt=False)
    start = model.inducing_variable.Z.numpy()[:, 0]
    give_Z_prior(model, prior, split.X)
    options, number = config.sghmc.parts()
    samples = gpflow_aaci.sample_posterior(
        model,
        (split.X, split.Y),
        contrib.SGHMC(hyperparameters=True, **options),
        num_chains=config.num_chains,
        seed=config.seed,
        progress=False,
        **number,
    )
    Z = samples.posterior["inducing_variable.Z"].values[..., 0]
    Z = Z[:, :: -(-Z.shape[1] // _MOST_DRAWS)]
    chain, draw, point = (index.ravel() for index in np.indices(Z.shape))
    of_draws = {"chain": chain, "draw": draw, "point": point, "Z": np.round(Z.ravel(), 5)}
    table = pd.DataFrame({**of_draws, "start": np.round(start[point], 5)})
    table.insert(0, "prior on Z", prior)
    table.insert(0, "problem", dataset.problem.title)
    return table.assign(sha256=dataset.sha256)
