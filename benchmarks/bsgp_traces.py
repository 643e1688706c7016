"""Traces of f at test points under SGHMC of u, Z and hyperparameters, and whether chains agree."""

from functools import partial
from pathlib import Path

import arviz
import numpy as np
import pandas as pd

from gpflow_aaci import contrib
from gpflow_aaci.progress import progress_bar

from .bsgp import TRACED, fit, give_Z_prior, of_draws, sampled, unfitted
from .cache import finished
from .config import BSGPTraces
from .datasets import Array, Dataset, Split, load_datasets, standard_split
from .report import Report, fixed, subplots

_SHOWN = 3  # test points in the figure, as in the paper


def run(config: BSGPTraces, folder: Path, quiet: bool = False) -> pd.DataFrame:
    """A row per problem, chain, draw and test point."""
    rows = []
    datasets = load_datasets(config.problem, folder, quiet)
    for dataset in progress_bar(not quiet, iterable=datasets, unit="run"):
        of_split = config.seed, folder, config.test_fraction, config.max_test
        split, name = standard_split(dataset, *of_split), dataset.problem.title
        rows.append(finished(config, name, dataset.key, partial(_one, config, dataset, split)))
    return pd.concat(rows, ignore_index=True)


def report(metrics: pd.DataFrame) -> Report:
    """R-hat and the effective number of draws at the test points, and the traces of three."""
    rows, figures = [], {}
    for problem, part in metrics.groupby("problem", sort=False):
        f, start = _of_points(part, "f"), _of_points(part, "at the fit")[0, 0]
        r_hat, ess = (
            getattr(arviz, name)(arviz.convert_to_dataset(f)).x.values for name in ("rhat", "ess")
        )
        between = f.mean(1).std(0, ddof=1) / f.std(1).mean(0)
        rows.append(
            {
                "problem": problem,
                "chains": len(f),
                "draws of each": f.shape[1],
                "points": f.shape[2],
                "median R-hat": fixed(pd.Series([np.median(r_hat)]), 3)[0],
                "largest R-hat": fixed(pd.Series([r_hat.max()]), 3)[0],
                "share below 1.05": np.mean(r_hat < 1.05),
                "median ESS": np.median(ess),
                "sd between chains / within": np.median(between),
            }
        )
        figure, axes = subplots(1, _SHOWN, 3.6, 2.6)
        for point, ax in enumerate(axes[0]):
            for chain in range(len(f)):
                ax.plot(f[chain, :, point], linewidth=0.7, label=f"{chain + 1}")
            ax.axhline(start[point], color="black", linewidth=0.8, linestyle=":", label="fit")
            ax.set(xlabel="draw", title=f"R-hat {r_hat[point]:.2f}")
        axes[0, 0].set_ylabel("E f(x) given the draw")
        axes[0, -1].legend(title="chain", fontsize=7)
        figures["traces" if metrics.problem.nunique() == 1 else f"traces_{problem}"] = figure
    caption = (
        "Of E f given u and the hyperparameters of a draw, at test rows. The last column is the "
        "standard deviation of the chains' means over the mean one within a chain, the median over "
        "the points."
    )
    return Report({caption: pd.DataFrame(rows).round(2)}, figures)


def _of_points(metrics: pd.DataFrame, column: str) -> Array:
    """The values [C, S, N]."""
    shape = metrics.chain.nunique(), metrics.draw.nunique(), metrics.point.nunique()
    return metrics[column].to_numpy().reshape(shape)


def _one(config: BSGPTraces, dataset: Dataset, split: Split) -> pd.DataFrame:
    model = unfitted(split, dataset, config.num_inducing, config.seed, Z_is_learnt=False)
    fit(model, split)
    at_fit = model.predict_f(split.X_test[:TRACED])[0].numpy()[:, 0]
    give_Z_prior(model, "normal", split.X)
    options, number = config.sghmc.parts()
    sampler = contrib.SGHMC(hyperparameters=True, **options)
    samples = sampled(config, model, split, sampler, number, config.seed)
    f, _ = of_draws(model, samples, split, TRACED)
    chain, draw, point = (index.ravel() for index in np.indices(f.shape))
    table = pd.DataFrame({"chain": chain, "draw": draw, "point": point, "f": f.ravel().round(4)})
    table["at the fit"] = at_fit[point].round(4)
    table.insert(0, "problem", dataset.problem.title)
    return table.assign(sha256=dataset.sha256)
