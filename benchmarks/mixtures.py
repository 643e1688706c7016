"""``MixtureVGP``: bound, test NLL and seconds for each number of components and expectations."""

import itertools
from functools import partial
from pathlib import Path
from time import perf_counter

import gpflow
import pandas as pd
import tensorflow as tf
from gpflow.keras import tf_keras

import gpflow_aaci
from gpflow_aaci.progress import progress_bar

from .cache import finished
from .config import Mixtures
from .datasets import Dataset, load_datasets
from .methods import make_model, make_start
from .report import Report


def run(config: Mixtures, folder: Path, quiet: bool = False) -> pd.DataFrame:
    """A row per problem, seed, expectations and number of components (0: one full Gaussian)."""
    datasets = load_datasets(config.problem, folder, quiet)
    grid = list(itertools.product(datasets, config.seeds, config.components, config.expectations))
    rows = []
    for dataset, seed, *setting in progress_bar(not quiet, iterable=grid, unit="run"):
        name, key = dataset.problem.title, {**dataset.key, "seed": seed, "setting": setting}
        rows.append(finished(config, name, key, partial(_one, config, dataset, seed, *setting)))
    return pd.concat(rows, ignore_index=True)


def report(metrics: pd.DataFrame) -> Report:
    """A table of medians over the seeds."""
    keys = ["problem", "components", "expectations"]
    table = metrics.drop(columns="seed").groupby(keys, sort=False).median().reset_index()
    return Report({"Medians over seeds; 0 components: one full Gaussian.": table.round(4)}, {})


def _one(config: Mixtures, dataset: Dataset, seed: int, K: int, by: str) -> pd.DataFrame:
    split = dataset.split(config.test_fraction, seed)
    like = make_model(make_start(split, dataset.problem, 1, seed), is_augmented=True)
    parts = (split.X, split.Y), like.kernel, like.likelihood, like.mean_function
    options = {"covariance": "diagonal" if K else "full", "expectations": by}
    options |= {"num_components": max(K, 1)}
    model = gpflow_aaci.contrib.MixtureVGP(*parts, like.num_latent_gps, **options)
    model.entropy = config.entropy
    model.restart(seed)
    loss, variables = model.training_loss_closure(), model.trainable_variables
    began = perf_counter()
    if by == "score":
        adam = tf_keras.optimizers.Adam(0.02)
        step = tf.function(partial(adam.minimize, loss, variables), autograph=False)
        for _ in range(config.steps):
            step()
    else:
        gpflow.optimizers.Scipy().minimize(loss, variables, options={"maxiter": config.steps})
    row = {"problem": dataset.problem.title, "seed": seed, "components": K, "expectations": by}
    row["seconds"], model.expectations = perf_counter() - began, "quadrature"
    row["bound"] = float(model.elbo())
    row["nll"] = -float(tf.reduce_mean(model.predict_log_density((split.X_test, split.Y_test))))
    return pd.DataFrame([row])
