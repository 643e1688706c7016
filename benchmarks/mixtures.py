"""``MixtureVGP``: bound, test NLL and error, and seconds, by components and expectations."""

import itertools
from functools import partial
from pathlib import Path
from time import process_time

import gpflow
import numpy as np
import pandas as pd
import tensorflow as tf
from gpflow.keras import tf_keras

import gpflow_aaci
from gpflow_aaci.contrib import MixtureVGP
from gpflow_aaci.progress import progress_bar

from .cache import finished
from .config import Mixtures
from .datasets import Array, Dataset, Split, load_datasets
from .methods import make_model, make_start
from .metrics import error_of_mean
from .report import Report, boxes

_STEPS, _RATE = 400, 0.05  # of Adam, where the augmented bound is maximised
_DRAWS = 2_000  # of Softmax, where a model is measured
_OF_LABELS = ("binary", "classes")


def run(config: Mixtures, folder: Path, quiet: bool = False) -> pd.DataFrame:
    """A row per problem, seed, expectations and number of components (0: one full Gaussian)."""
    datasets = load_datasets(config.problem, folder, quiet)
    components = [*config.components, *(f"{K} full" for K in config.full_components)]
    mixtures = itertools.product(components, config.expectations)
    settings = [*mixtures, *((name, "") for name in config.others)]
    grid = [
        (dataset, seed, *setting)
        for dataset, seed, setting in itertools.product(datasets, config.seeds, settings)
        if setting[0] != "GPR" or _is_gaussian(dataset)
    ]
    rows = []
    for dataset, seed, *setting in progress_bar(not quiet, iterable=grid, unit="run"):
        name, key = dataset.problem.title, {**dataset.key, "seed": seed, "setting": setting}
        of_one = _other if setting[0] in config.others else _one
        rows.append(finished(config, name, key, partial(of_one, config, dataset, seed, *setting)))
    return pd.concat(rows, ignore_index=True)


def report(metrics: pd.DataFrame) -> Report:
    """A table of medians over the seeds; boxes of them where there are several."""
    keys = ["problem", "components", "expectations"]
    metrics = metrics.fillna({"expectations": ""})
    table = metrics.groupby([*keys, "error metric"], sort=False).median(numeric_only=True)
    table = table.reset_index()[[*keys, "seconds", "bound", "nll", "error", "error metric"]]
    tables = {"Medians over seeds; 0 components: one full Gaussian. CPU seconds.": table.round(4)}
    if metrics.seed.nunique() == 1:
        return Report(tables, {})
    components = metrics.components.astype(str)
    are_mixtures = components.str.isdigit()
    names = components.where(~are_mixtures, components + " diagonal").replace("0 diagonal", "full")
    by = metrics.expectations
    if by[by != ""].nunique() > 1:
        names = names.where(by == "", names + ", " + by)
    return Report(tables, {"boxes": boxes(metrics.assign(method=names), ["nll", "error"])})


def _one(config: Mixtures, dataset: Dataset, seed: int, K: int | str, by: str) -> pd.DataFrame:
    """
    :param K: the number of diagonal components, 0 for one full Gaussian, "2 full" for two.
    """
    number, is_full = int(str(K).partition(" ")[0]), K == 0 or str(K).endswith("full")
    split = dataset.split(config.test_fraction, seed)
    start = make_start(split, dataset.problem, 1, seed)
    like = make_model(start, config.likelihood is None, config.likelihood)
    parts = (split.X, split.Y), like.kernel, like.likelihood, like.mean_function
    options = {"covariance": config.full if is_full else "diagonal", "expectations": by}
    options |= {"num_components": max(number, 1)}
    model = MixtureVGP(*parts, like.num_latent_gps, **options)
    model.entropy = config.entropy
    model.restart(seed)
    loss, variables = model.training_loss_closure(), model.trainable_variables
    began = process_time()
    if by == "score":
        adam = tf_keras.optimizers.Adam(config.learning_rate)
        step = tf.function(partial(adam.minimize, loss, variables), autograph=False)
        for _ in range(config.steps):
            step()
    else:
        gpflow.optimizers.Scipy().minimize(loss, variables, options={"maxiter": config.steps})
    seconds = process_time() - began
    model.expectations = "quadrature"
    if isinstance(model.likelihood, gpflow.likelihoods.Softmax):
        model.likelihood.num_monte_carlo_points = _DRAWS
    row = {"components": K, "expectations": by, "seconds": seconds, "bound": float(model.elbo())}
    return _measured(dataset, split, seed, model, row)


def _is_gaussian(dataset: Dataset) -> bool:
    of_y = dataset.problem.likelihood
    return of_y.name == "Gaussian" and of_y.warp is None


def _other(config: Mixtures, dataset: Dataset, seed: int, name: str, _: str) -> pd.DataFrame:
    """The row of a model that is no mixture."""
    split = dataset.split(config.test_fraction, seed)
    start = make_start(split, dataset.problem, 1, seed)
    model, data = make_model(start, is_augmented=True), (split.X, split.Y)
    began = process_time()
    if name == "GPR":
        noise = model.likelihood.variance
        model = gpflow.models.GPR(data, model.kernel, model.mean_function, noise)
        gpflow.optimizers.Scipy().minimize(model.training_loss, model.trainable_variables)
        bound = model.log_marginal_likelihood()
    else:
        optimizer = gpflow_aaci.AlternatingOptimizer(1.0, tf_keras.optimizers.Adam(_RATE))
        gpflow_aaci.train(model, optimizer=optimizer, num_steps=_STEPS, progress=False)
        bound = model.augmented_elbo(progress=False)
    row = {"components": name, "expectations": "", "seconds": process_time() - began}
    return _measured(dataset, split, seed, model, {**row, "bound": float(bound)})


def _measured(
    dataset: Dataset, split: Split, seed: int, model: gpflow.models.GPModel, row: dict[str, object]
) -> pd.DataFrame:
    """The row with the scores on the test rows."""
    row = {"problem": dataset.problem.title, "sha256": dataset.sha256, "seed": seed, **row}
    row["nll"] = -float(tf.reduce_mean(model.predict_log_density((split.X_test, split.Y_test))))
    row["error"] = _error(split, model.predict_y(split.X_test)[0].numpy())
    is_rate = split.kind in _OF_LABELS
    row["error metric"] = "error rate" if is_rate else "squared error / variance of y"
    return pd.DataFrame([row])


def _error(split: Split, mean: Array) -> float:
    """The paper's standardised squared error, or the share of wrong classes."""
    if split.kind in _OF_LABELS:
        return error_of_mean(split, mean)
    return float(np.mean((mean - split.Y_test) ** 2) / split.Y_test.var())
