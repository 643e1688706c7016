"""Other packages, each in an environment of its own: held-out density against CPU seconds."""

import re
import time
from functools import partial
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pandas as pd

import gpflow_aaci
from gpflow_aaci.progress import progress_bar

from .cache import finished
from .config import KindOfY, Peers
from .datasets import Split, load_datasets, standard_split
from .elsewhere import PEERS, of_own_process, of_peer
from .metrics import of_predictions
from .report import Report, fixed
from .scripts.scores import peak_megabytes

_SCORES = ("nll", "error", "cpu_seconds", "cpu_seconds_predicting", "megabytes")

_OWN_NOISE: dict[KindOfY, str] = {
    "real": "Student-t",
    "binary": "logit",
    "counts": "negative binomial",
}
_BY_QUADRATURE: dict[KindOfY, str] = {"real": "Student-t", "binary": "probit", "counts": "Poisson"}
# The noise of each method by what y is: Student-t where a package has it, and of counts the
# negative binomial. A method without an entry has no noise for such a y.
NOISE: dict[str, dict[KindOfY, str]] = {
    "choose": _OWN_NOISE,
    "fit": _OWN_NOISE,
    "GPBoost, Vecchia": _OWN_NOISE,
    "GPBoost, Vecchia, Gaussian": {"real": "Gaussian"},
    "GPflow, SVGP": _BY_QUADRATURE,
    "GPflow, GPR": {"real": "Gaussian"},
    "GPJax, SVGP": _BY_QUADRATURE,
    "GPJax, exact": {"real": "Gaussian"},
    "GPyTorch, SVGP": {"real": "Student-t", "binary": "probit"},
    "scikit-learn": {"real": "Gaussian", "binary": "logit"},
}


def run(config: Peers, folder: Path, quiet: bool = False) -> pd.DataFrame:
    """One row for every problem, split and method, data set by data set."""
    runs = [
        (data, seed, name)
        for data in load_datasets(config.problem, folder, quiet)
        for seed in config.seeds
        for name in config.method
        if data.problem.likelihood.kind in _noise(name)
        and data.problem.title in config.only.get(name, [data.problem.title])
    ]
    tables = []
    for data, seed, name in progress_bar(not quiet, iterable=runs, unit="run"):
        split = standard_split(data, seed, folder, config.test_fraction, config.max_test)
        key = {**data.key, "seed": seed, "method": name}
        title = f"{split.name}-{name}-{seed}"
        table = finished(config, title, key, partial(_of, config, split, name, seed))
        tables.append(table.assign(sha256=data.sha256))
    return pd.concat(tables, ignore_index=True)


def report(metrics: pd.DataFrame) -> Report:
    """The scores, NLL and seconds of all methods side by side, and what was installed for each."""
    table = metrics.drop(columns=["installed", "sha256"], errors="ignore").copy()
    for column, digits in (("nll", 3), ("error", 3), ("cpu_seconds", 1)):
        table[column] = fixed(table[column], digits)
    table["cpu_seconds_predicting"] = fixed(table.cpu_seconds_predicting, 1)
    table["megabytes"] = fixed(table.megabytes, 0)
    caption = (
        "Test NLL in nats a datum of the standardised y (of counts and labels, of y itself); error "
        "is the RMSE, or the share of wrong labels. CPU seconds from making the model to the "
        "return of its fit, compiling and tracing counted, imports not; and of the predictions. "
        "Blank: not within the CPU seconds that a process was given."
    )
    made = {caption: table}
    for title, column, digits in (
        ("Test NLL; blank where there is none, or the method was not run", "nll", 3),
        ("CPU seconds of the fit [s]", "cpu_seconds", 1),
    ):
        wide = metrics.pivot_table(
            index="problem", columns="method", values=column, sort=False, dropna=False
        )
        made[title] = wide.apply(fixed, digits=digits).reset_index()
    made["What pip was told to install"] = (
        metrics[["method", "installed"]].drop_duplicates().dropna().reset_index(drop=True)
    )
    return Report(made, {})


def _of(config: Peers, split: Split, name: str, seed: int) -> pd.DataFrame:
    """The row of one run, without scores if it took too long."""
    rows, columns = split.X.shape
    noise = _noise(name)[split.kind]
    row: dict[str, Any] = {
        "problem": split.name,
        "rows": rows,
        "columns": columns,
        "seed": seed,
        "method": name,
        "noise": noise,
        "installed": "",
    }
    if name in PEERS:
        row["installed"] = " ".join(PEERS[name][1])
        arrays = {
            "X": split.X,
            "y": split.Y[:, 0],
            "X_test": split.X_test,
            "y_test": split.Y_test[:, 0],
            "Z": _first_distinct(split.X, config.num_inducing),
            "noise": noise,
            "smoothness": 2.5,
            "steps": config.steps,
            "seed": seed,
        }
        if name.startswith("GPyTorch"):
            arrays["learning_rate"] = float(name.rpartition(" ")[2])
        scores = of_peer(name, config.output / "environments", config.most_seconds, arrays)
    elif config.own_process:
        scores = of_own_process(config.most_seconds, partial(_run, config, split, name, seed))
    else:
        scores = _run(config, split, name, seed)
    return pd.DataFrame([row | dict.fromkeys(_SCORES, np.nan) | (scores or {})])


def _noise(name: str) -> dict[KindOfY, str]:
    """Of a method; its learning rate may stand in its name."""
    return NOISE[re.sub(r", [\d.]+$", "", name)]


def _first_distinct(X: np.ndarray, most: int) -> np.ndarray:
    """As the documentation of the peers starts Z; rows are in random order."""
    return X[np.sort(np.unique(X, axis=0, return_index=True)[1])[:most]]


def _run(config: Peers, split: Split, name: str, seed: int) -> dict[str, float]:
    (of_y,) = (p.likelihood for p in config.problem if p.title == split.name)
    columns = split.X.shape[1]
    data = split.X, split.Y
    began = time.process_time()
    kernel = gpflow.kernels.Matern52(lengthscales=[np.sqrt(columns)] * columns)
    mean = gpflow.functions.Constant() if split.kind == "counts" else None
    options = {"mean_function": mean, "seed": seed, "progress": False}
    if name == "choose":
        M = config.num_inducing
        choice = gpflow_aaci.choose(data, kernel, of_y.make(), num_inducing=M, **options)
        model = choice.model
    else:
        num_inducing = min(config.num_inducing, len(np.unique(split.X, axis=0)))
        Z = gpflow_aaci.kmeans_plusplus(split.X, num_inducing, seed)
        model = gpflow_aaci.AugmentedSVGP(
            kernel, of_y.make(), Z, mean_function=mean, num_data=len(split.X)
        )
        gpflow.set_trainable(model.inducing_variable, False)
        gpflow_aaci.fit(model, data, seed=seed, progress=False)
    fitted = time.process_time()
    log_p = model.predict_log_density((split.X_test, split.Y_test)).numpy()
    y_mean = model.predict_y(split.X_test)[0].numpy()
    predicted = time.process_time()
    return {
        **of_predictions(split, log_p, y_mean),
        "cpu_seconds": fitted - began,
        "cpu_seconds_predicting": predicted - fitted,
        "megabytes": peak_megabytes(),
    }
