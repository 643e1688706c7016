"""A store of finished runs, so that an interrupted experiment can be resumed."""

import functools
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd
import tensorflow as tf

import gpflow_aaci

from .config import Experiment

_PACKAGES = ("gpflow_aaci", "gpflow", "tensorflow", "tensorflow-probability", "numpy")
# Fields that do not affect a single run: they say which runs there are and where results go.
_NOT_OF_A_RUN = {
    "output",
    "minutes",
    "problem",
    "method",
    "dear",
    "seeds",
    "repeats",
    "rows",
    "layers",
}


def finished(
    config: Experiment,
    name: str,
    key: Mapping[str, object],
    run: Callable[[], pd.DataFrame],
    curves: Callable[[pd.DataFrame], Mapping[str, pd.DataFrame]] = lambda table: {},
) -> pd.DataFrame:
    """
    The table that ``run`` returns, or its stored copy if this run has finished before.

    Tables are stored in ``output/runs``. A stored copy is used only if config, key, code, package
    versions and machine are the same.

    :param name: the beginning of the file's name.
    :param key: everything, besides the config's own fields, that tells this run from others.
    :param curves: maps a new table to curves for TensorBoard by their names; each column of a
        curve is drawn against the index.
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
    """Results from a CSV file, without a rounding error in any number."""
    return pd.read_csv(path, float_precision="round_trip")


@functools.cache
def environment() -> dict[str, Any]:
    """What results depend on besides config and data, without names of hosts or folders."""
    digest = hashlib.sha256()
    for folder in (Path(gpflow_aaci.__file__).parent, Path(__file__).parent):
        for path in sorted(folder.rglob("*.py")):
            digest.update(path.relative_to(folder).as_posix().encode() + b"\0")
            digest.update(path.read_bytes())
    return {
        "python": platform.python_version(),
        "packages": {name: version(name) for name in _PACKAGES},
        "machine": {"architecture": platform.machine(), "cpus": os.cpu_count()},
        "code SHA-256": digest.hexdigest(),  # the package and the benchmarks
    }


def commit(folder: Path = Path(__file__).parent) -> str | None:
    """
    The hash of the Git commit that the folder is at, followed by "-dirty" if a file has changed.

    It is None if the folder is not in a Git repository, or Git is not installed.
    """
    describe = ["git", "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty"]
    try:
        done = subprocess.run(describe, cwd=folder, capture_output=True, text=True)
    except FileNotFoundError:
        return None
    return done.stdout.strip() or None


def _write_curve(folder: Path, values: pd.DataFrame) -> None:
    shutil.rmtree(folder, ignore_errors=True)  # TensorBoard would join it with an earlier run
    with tf.summary.create_file_writer(str(folder)).as_default():
        for step, row in zip(values.index, values.to_dict("records"), strict=True):
            for name, value in row.items():
                # TensorBoard stores float32, in which numbers of a diverged run overflow.
                in_float32 = tf.cast(tf.constant(value, tf.float64), tf.float32)
                tf.summary.scalar(str(name), in_float32, step=int(step))


def _slug(name: str) -> str:
    """``name`` as a part of a file's name."""
    return re.sub(r"[^\w.-]+", "_", name)
