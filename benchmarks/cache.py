"""Finished runs are kept, so that an interrupted experiment goes on where it was."""

import functools
import hashlib
import json
import os
import platform
import re
import shutil
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd
import tensorflow as tf

import gpflow_aaci

from .config import Experiment

_PACKAGES = ("gpflow_aaci", "gpflow", "tensorflow", "tensorflow-probability", "numpy")
# What may change and leave a run as it was: which others there are, and where results go.
_NOT_OF_A_RUN = {"output", "minutes", "problem", "method", "seeds", "repeats", "rows"}


def finished(
    config: Experiment,
    name: str,
    key: Mapping[str, object],
    run: Callable[[], pd.DataFrame],
    curves: Callable[[pd.DataFrame], Mapping[str, pd.DataFrame]] = lambda table: {},
) -> pd.DataFrame:
    """
    What ``run`` returns, or did when it was last run on the same, by the same code, here.

    It is kept in ``output/runs``.

    :param name: begins the name of the file.
    :param key: all that could make it another run, beside the config's own fields.
    :param curves: of a new result, what ``tensorboard --logdir`` shows: every column against the
        index, under the name of the run.
    """
    of_config = config.model_dump(mode="json", exclude=_NOT_OF_A_RUN)
    depends_on = json.dumps({"config": of_config, **key, **environment()}, sort_keys=True)
    digest = hashlib.sha256(depends_on.encode()).hexdigest()[:16]
    path = config.output / "runs" / f"{_slug(name)}-{digest}.csv"
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        table = run()
        for curve, values in curves(table).items():
            _write_curve(config.output / "tensorboard" / _slug(curve), values)
        unfinished = path.with_suffix(".part")
        table.to_csv(unfinished, index=False)
        unfinished.replace(path)
    return read_metrics(path)


def read_metrics(path: Path) -> pd.DataFrame:
    """A CSV of results with every number as it was written."""
    return pd.read_csv(path, float_precision="round_trip")


@functools.cache
def environment() -> dict[str, Any]:
    """What results depend on besides config and data; no names of hosts or folders."""
    digest = hashlib.sha256()
    for folder in (Path(gpflow_aaci.__file__).parent, Path(__file__).parent):
        for path in sorted(folder.rglob("*.py")):
            digest.update(path.relative_to(folder).as_posix().encode() + b"\0")
            digest.update(path.read_bytes())
    return {
        "python": platform.python_version(),
        "packages": {name: version(name) for name in _PACKAGES},
        "machine": {"architecture": platform.machine(), "cpus": os.cpu_count()},
        "code SHA-256": digest.hexdigest(),  # of the package and of the benchmarks
    }


def _write_curve(folder: Path, values: pd.DataFrame) -> None:
    shutil.rmtree(folder, ignore_errors=True)  # TensorBoard would join it with an earlier run
    with tf.summary.create_file_writer(str(folder)).as_default():
        for step, row in zip(values.index, values.to_dict("records"), strict=True):
            for name, value in row.items():
                # Of what diverges some numbers are beyond float32, which TensorBoard keeps.
                in_float32 = tf.cast(tf.constant(value, tf.float64), tf.float32)
                tf.summary.scalar(str(name), in_float32, step=int(step))


def _slug(name: str) -> str:
    """``name`` fit for a file."""
    return re.sub(r"[^\w.-]+", "_", name)
