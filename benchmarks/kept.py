"""Finished runs are kept, so that an interrupted experiment goes on where it was."""

import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path

import pandas as pd

from .environment import environment


def kept(
    folder: Path, name: str, depends_on: dict[str, object], run: Callable[[], pd.DataFrame]
) -> pd.DataFrame:
    """
    What ``run`` returns, or did when it was last run on the same, by the same code, here.

    :param name: begins the name of the file that keeps it.
    :param depends_on: all else that could make the run another one.
    """
    depends_on = depends_on | environment()
    key = hashlib.sha256(json.dumps(depends_on, sort_keys=True).encode()).hexdigest()[:16]
    path = folder / f"{slug(name)}-{key}.csv"
    if not path.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(".part")
        run().to_csv(unfinished, index=False)
        unfinished.replace(path)
    return read_metrics(path)


def slug(name: str) -> str:
    """``name`` fit for a file."""
    return re.sub(r"[^\w.-]+", "_", name)


def read_metrics(path: Path) -> pd.DataFrame:
    """A CSV of results with every number as it was written."""
    return pd.read_csv(path, float_precision="round_trip")
