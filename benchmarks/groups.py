"""Effects of crossed groups: grades of lecturers by students, beside GPBoost."""

import time
from functools import partial
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pandas as pd

import gpflow_aaci
from gpflow_aaci import effects, likelihoods
from gpflow_aaci.progress import progress_bar

from .cache import finished
from .config import Groups
from .datasets import read_grades
from .elsewhere import PEERS, of_own_process, of_peer
from .report import Report, fixed
from .scripts.scores import peak_megabytes

_GROUPS, _COVARIATES = ["s", "d", "dept"], ["studage", "lectage", "service"]


def run(config: Groups, folder: Path, quiet: bool = False) -> pd.DataFrame:
    """One row for every split and method."""
    frame = read_grades(config.data)
    if config.students is not None:
        frame = frame[frame.s.isin(np.unique(frame.s)[: config.students])]
    runs = [(seed, name) for seed in config.seeds for name in config.method]
    tables = []
    for seed, name in progress_bar(not quiet, iterable=runs, unit="run"):
        key = {"seed": seed, "method": name}
        tables.append(
            finished(config, f"{name}-{seed}", key, partial(_of, config, frame, name, seed))
        )
    return pd.concat(tables, ignore_index=True)


def report(metrics: pd.DataFrame) -> Report:
    """The scores, and the standard deviations of the effects and the noise."""
    table = metrics.drop(columns="installed").copy()
    for column in table.columns[table.columns.str.match("nll|error|sd_")]:
        table[column] = fixed(table[column], 4)
    for column, digits in (("cpu_seconds", 1), ("cpu_seconds_predicting", 1), ("megabytes", 0)):
        table[column] = fixed(table[column], digits)
    caption = (
        "Grades of 1 to 5 by students (sd_0) of lecturers (sd_1) in departments (sd_2), Gaussian "
        "noise; beside the effects fit has a GP of the ages of both and of service, and GPBoost is "
        "linear in these. Test NLL in nats a grade; error is the RMSE. CPU seconds from making the "
        "model to the return of its fit. Blank: not within the seconds that a process was given."
    )
    return Report({caption: table}, {})


def _of(config: Groups, frame: pd.DataFrame, name: str, seed: int) -> pd.DataFrame:
    """The row of one run, without scores if it took too long."""
    order = np.random.default_rng(seed).permutation(len(frame))
    num_test = round(config.test_fraction * len(frame))
    test, train = frame.iloc[order[:num_test]], frame.iloc[order[num_test:]]
    row: dict[str, Any] = {"seed": seed, "method": name, "rows": len(train)}
    row |= {f"levels of {column}": train[column].nunique() for column in _GROUPS}
    row |= {"installed": " ".join(PEERS[name][1]) if name in PEERS else ""}
    means, sds = train[_COVARIATES].mean(), train[_COVARIATES].std()
    arrays = {
        f"{what}{part}": value
        for part, rows in (("", train), ("_test", test))
        for what, value in (
            ("groups", rows[_GROUPS].to_numpy(float)),
            ("X", ((rows[_COVARIATES] - means) / sds).to_numpy(float)),
            ("y", rows.y.to_numpy(float)),
        )
    }
    if name in PEERS:
        scores = of_peer(name, config.output / "environments", config.most_seconds, arrays)
    elif config.own_process:
        scores = of_own_process(config.most_seconds, partial(_run, config, arrays, seed))
    else:
        scores = _run(config, arrays, seed)
    scores = scores or {"nll": np.nan, "error": np.nan, "cpu_seconds": np.nan}
    return pd.DataFrame([row | scores])


def _run(config: Groups, arrays: dict[str, np.ndarray], seed: int) -> dict[str, float]:
    (X, X_test), Y = (
        (np.column_stack([arrays[f"X{part}"], arrays[f"groups{part}"]]) for part in ("", "_test")),
        arrays["y"][:, None],
    )
    num_columns = len(_COVARIATES)
    began = time.process_time()
    columns = list(range(num_columns))
    kernel = gpflow.kernels.Matern52(lengthscales=[np.sqrt(num_columns)] * num_columns)
    kernel.active_dims = np.array(columns)
    distinct = np.unique(X[:, columns], axis=0)
    Z = distinct
    if len(Z) > config.num_inducing:
        Z = gpflow_aaci.kmeans_plusplus(X[:, columns], config.num_inducing, seed)
    Z = np.column_stack([Z, np.tile(X[:1, num_columns:], (len(Z), 1))])  # the kernel has no others
    of_groups = [
        effects.Grouped(column, levels=X[:, column]) for column in range(num_columns, X.shape[1])
    ]
    model = gpflow_aaci.AugmentedSVGP(
        kernel,
        likelihoods.Gaussian(),
        Z,
        effects=of_groups,
        mean_function=gpflow.functions.Constant(Y.mean()),
        num_data=len(X),
    )
    gpflow.set_trainable(model.inducing_variable, False)
    gpflow_aaci.fit(model, (X, Y), seed=seed, progress=False)
    fitted = time.process_time()
    Y_test = arrays["y_test"][:, None]
    log_p = model.predict_log_density((X_test, Y_test)).numpy()
    mean = model.predict_y(X_test)[0].numpy()
    predicted = time.process_time()
    return {
        "nll": -float(log_p.mean()),
        "error": float(np.sqrt(np.mean(np.square(mean - Y_test)))),
        **{f"sd_{i}": float(np.sqrt(one.variance)) for i, one in enumerate(of_groups)},
        "sd_noise": float(np.sqrt(model.likelihood.variance)),
        "cpu_seconds": fitted - began,
        "cpu_seconds_predicting": predicted - fitted,
        "megabytes": peak_megabytes(),
    }
