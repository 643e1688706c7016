"""Each setting of ``fit`` halved and doubled: where do fits end then, and how soon?"""

import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import tensorflow as tf

import gpflow_aaci
from gpflow_aaci.inference.settings import SETTINGS
from gpflow_aaci.progress import progress_bar
from gpflow_aaci.runtime.compiled import forget_compiled

from .cache import finished
from .config import SettingProblems, Settings, StartSize
from .datasets import Array
from .report import Report
from .starts import MOST_SHORT, allowed_nats, make_data, make_model, title_of

_AS_THEY_ARE = "as it is"
_TEST_ROWS = 2_000
_KEYS = ["kind", "problem"]


def run(config: Settings, folder: Path, quiet: bool = False) -> pd.DataFrame:
    """One row for every problem with all settings as they are, and for every value tried on it."""
    tables, tasks = [], list(_tasks(config))
    with progress_bar(not quiet, total=len(tasks), unit="fit") as progress:
        for problems, problem, setting, value in tasks:
            progress.set_description(f"{setting} {value:g}")
            title = title_of(*problem)
            of_run = {"setting": setting, "value": value, "problem": title, "kind": problems.kind}
            run_it = partial(_run_one, problems, *problem, setting, value)
            table = finished(config, f"{setting}-{value:g}-{title}", of_run, run_it)
            tables.append(table.assign(**of_run))
            progress.update()
    return pd.concat(tables, ignore_index=True)


def report(metrics: pd.DataFrame) -> Report:
    """For every value tried: ends lower and higher than with the setting as it is, and seconds."""
    as_they_are = metrics[metrics.setting == _AS_THEY_ARE].set_index(_KEYS)
    rows = []
    for (setting, value), tried in metrics.groupby(["setting", "value"], sort=False):
        if setting == _AS_THEY_ARE:
            continue
        tried = tried.set_index(_KEYS)
        default = as_they_are.loc[tried.index]
        gain = (tried.reached - default.reached).fillna(-np.inf)
        allowed = allowed_nats(default.rows) / default.rows
        rows.append(
            {
                "setting": setting,
                "as it is": getattr(SETTINGS, setting),
                "tried": value,
                "fits": len(tried),
                "lower": int((gain < -allowed).sum()),
                "higher": int((gain > allowed).sum()),
                "the lowest, nats a datum": gain.min(),
                "seconds over those as it is": tried.seconds.sum() / default.seconds.sum(),
                "converged": int(tried.converged.sum()),
                "converged as it is": int(default.converged.sum()),
            }
        )
    caption = (
        f"Lower and higher: by more than {MOST_SHORT[0]} nats and {MOST_SHORT[1]} nats a datum, "
        "of the ELBO or, where not all rows are used, of the density of test rows."
    )
    return Report({caption: pd.DataFrame(rows)}, {})


_Problem = tuple[StartSize, str, str]  # size, columns, likelihood


def _tasks(config: Settings) -> Iterator[tuple[SettingProblems, _Problem, str, float]]:
    """The problems, which of them, and the setting with its value; as they are comes first."""
    for problems in config.problems:
        values = [(_AS_THEY_ARE, 1.0)]
        for setting in problems.settings:
            default = getattr(SETTINGS, setting)
            for factor in config.factors:
                changed = default * factor
                values.append((setting, max(1, int(changed)) if type(default) is int else changed))
        for setting, value in values:
            for problem in product(problems.size, problems.columns, problems.likelihoods):
                yield problems, problem, setting, value


def _run_one(
    problems: SettingProblems,
    size: StartSize,
    columns: str,
    likelihood: str,
    setting: str,
    value: float,
) -> pd.DataFrame:
    """Fit the one problem, and see what it reached in nats a datum."""
    with_test = size.model_copy(update={"rows": size.rows + _TEST_ROWS})
    X, Y = make_data(with_test, columns, likelihood, problems.first_number)
    data, test = (X[: size.rows], Y[: size.rows]), (X[size.rows :], Y[size.rows :])
    model = make_model(size, data[0], likelihood, is_augmented=True)
    given, named = _given(problems.kind, data)
    forget_compiled()
    with _changed(setting, value), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        began = time.process_time()
        result = gpflow_aaci.fit(model, given, **named, progress=False)
        seconds = time.process_time() - began
    reached = float(model.elbo(data)) / size.rows
    if problems.kind != "all rows":
        reached = float(tf.reduce_mean(model.predict_log_density(test)))
    row = {"rows": size.rows, "seconds": seconds, "reached": reached}
    return pd.DataFrame([row | {"converged": result.converged, "end": result.reason}])


def _given(kind: str, data: tuple[Array, Array]) -> tuple[Any, dict[str, Any]]:
    """The data and the options with which ``fit`` is called."""
    if kind != "endless":
        return data, {"objective": "predictive"} if kind == "predictive" else {}
    rows = tf.data.Dataset.from_tensor_slices(data).repeat().shuffle(len(data[0]), seed=0)
    return rows.batch(100), {}


@contextmanager
def _changed(setting: str, value: float) -> Iterator[None]:
    """The package with one setting changed in every module that reads it."""
    if setting == _AS_THEY_ARE:
        yield
        return
    changed = SETTINGS._replace(**{setting: value})
    modules = [m for name, m in sys.modules.items() if name.startswith("gpflow_aaci.")]
    readers = [module for module in modules if getattr(module, "SETTINGS", None) is SETTINGS]
    for module in readers:
        module.SETTINGS = changed  # type: ignore[attr-defined]
    try:
        yield
    finally:
        for module in readers:
            module.SETTINGS = SETTINGS  # type: ignore[attr-defined]
