"""Fitted SVGPs against draws of u, hyperparameters and Z: test NLL, test error and seconds."""

import itertools
from functools import partial
from pathlib import Path
from time import process_time

import gpflow
import numpy as np
import pandas as pd
import tensorflow_probability as tfp

import gpflow_aaci
from gpflow_aaci import contrib, predictions
from gpflow_aaci.progress import progress_bar

from .cache import finished
from .config import BSGP
from .datasets import Dataset, Split, load_datasets
from .methods import Model, make_model, make_start
from .metrics import evaluator, metric_names
from .report import Report, fixed


def run(config: BSGP, folder: Path, quiet: bool = False) -> pd.DataFrame:
    """A row per problem, seed and method; Gibbs runs only on data sets that are small enough."""
    datasets = load_datasets(config.problem, folder, quiet)
    grid = list(itertools.product(datasets, config.seeds, config.methods))
    rows = []
    for dataset, seed, method in progress_bar(not quiet, iterable=grid, unit="run"):
        if method == "Gibbs" and len(dataset.X) > config.most_rows_of_gibbs:
            continue
        name = f"{dataset.problem.title} {method}"
        key = {**dataset.key, "seed": seed, "of": method}
        rows.append(finished(config, name, key, partial(_one, config, dataset, seed, method)))
    return pd.concat(rows, ignore_index=True)


def report(metrics: pd.DataFrame) -> Report:
    """A table of means over the seeds."""
    keys, values = ["problem", "method"], ["nll", "error", "seconds", "seconds a draw"]
    metrics = metrics.reindex(columns=[*keys, "error metric", *values])  # fits have no draws
    table = metrics.groupby([*keys, "error metric"], sort=False)[values].mean().reset_index()
    table = table[[*keys, "nll", "error", "error metric", "seconds", "seconds a draw"]]
    table["nll"] = fixed(table["nll"], 3)
    caption = "Means over seeds. CPU seconds on one core, of a draw or sweep in the last column."
    return Report({caption: table}, {})


def _one(config: BSGP, dataset: Dataset, seed: int, method: str) -> pd.DataFrame:
    problem, split = dataset.problem, dataset.split(config.test_fraction, seed)
    model = make_model(make_start(split, problem, config.num_inducing, seed), is_augmented=True)
    _add_priors(model)
    gpflow.set_trainable(model.inducing_variable, method == "SVGP, Z learnt")
    data = split.X, split.Y
    row = {"problem": problem.title, "sha256": dataset.sha256, "seed": seed, "method": method}
    row["error metric"] = metric_names(problem)["error_metric"]
    began = process_time()  # CPU time, since other processes may run at the same time
    gpflow_aaci.fit_collapsed(model, data, progress=False)
    if method in ("BSGP", "Gibbs"):  # the chain begins at the fit
        began_draws = process_time()
        gpflow.set_trainable(model.inducing_variable, True)
        options = (config.sghmc if method == "BSGP" else config.gibbs).model_dump()
        number = {name: options.pop(name) for name in ("num_samples", "num_burnin")}
        sampler = (
            contrib.SGHMC(hyperparameters=True, **options)
            if method == "BSGP"
            else contrib.HyperparameterGibbs()
        )
        samples = gpflow_aaci.sample_posterior(
            model, data, sampler, num_chains=1, seed=seed, progress=False, **number
        )
        total = sum(number.values())
        row["seconds"] = process_time() - began
        row["seconds a draw"] = (process_time() - began_draws) / total
        row["nll"], row["error"] = _of_draws(model, samples, split)
    else:
        row["seconds"] = process_time() - began
        measured = evaluator(model, split)()
        row["nll"], row["error"] = measured.nll, measured.error
    return pd.DataFrame([row])


def _add_priors(model: Model) -> None:
    """Give Z a standard normal prior, and each other parameter log-normal(log its value, 1)."""
    for parameter in (*model.kernel.trainable_parameters, *model.likelihood.trainable_parameters):
        parameter.prior = tfp.distributions.LogNormal(np.log(parameter.numpy()), np.float64(1.0))
    zero, one = np.float64(0.0), np.float64(1.0)
    model.inducing_variable.Z.prior = tfp.distributions.Normal(zero, one)


def _of_draws(model: Model, samples: object, split: Split) -> tuple[float, float]:
    """NLL and error averaged over the draws, with the definitions of ``metrics.py``."""
    test = split.X_test, split.Y_test
    log_p = predictions.predict_log_density(model, test, samples=samples, progress=False)
    mean, _ = predictions.predict_y(model, split.X_test, samples=samples, progress=False)
    if split.kind == "binary":
        error = np.mean((np.asarray(mean) > 0.5) != split.Y_test)
    else:
        error = split.y_scale * np.sqrt(np.mean((mean - split.Y_test) ** 2))
    return float(np.log(split.y_scale) - np.mean(log_p)), float(error)
