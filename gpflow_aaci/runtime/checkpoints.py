"""
Checkpoints that are complete or absent, never half written.

A checkpoint is a folder such as ``step-0000001000``. It is written under another name and then
renamed, so that a process killed at any moment leaves the checkpoint before it. Its file
``checkpoint.json`` says which run it belongs to and holds the SHA-256 of every other file.
"""

import functools
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.config import default_float

from .workers import check_agreement, is_chief, together

_NAME = re.compile(r"step-\d{10}")
_MANIFEST, _UNFINISHED = "checkpoint.json", ".unfinished"
_STORED = 2  # checkpoints; the older one serves where the latest is damaged

Run = Mapping[str, Any]
"""What must be the same for a run to resume; values that JSON can hold."""


class Checkpoints:
    """The checkpoints of a run, in a folder; without a folder nothing is stored."""

    def __init__(
        self, directory: str | Path | None, run: Run, strategy: tf.distribute.Strategy
    ) -> None:
        """
        :param directory: the folder of the checkpoints, or None.
        :param run: what must be the same for a run to resume.
        :param strategy: the strategy of the model. Only its chief writes, and all workers read.
        """
        self.directory = None if directory is None else Path(directory)
        self._run, self._strategy = run, strategy

    def save(self, step: int, write: Callable[[Path], None]) -> None:
        """
        Have ``write`` fill a folder for ``step``, and remove all checkpoints but the latest two.

        :raises OSError: where the disk is full or read-only; older checkpoints remain.
        """
        if self.directory is not None:
            together(self._strategy, functools.partial(self._save, self.directory, step, write))

    def _save(self, directory: Path, step: int, write: Callable[[Path], None]) -> None:
        if not is_chief(self._strategy):
            return
        final = directory / f"step-{step:010d}"
        unfinished = final.with_suffix(_UNFINISHED)
        if final.exists():  # this very step has been stored before
            return
        try:
            directory.mkdir(parents=True, exist_ok=True)
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir()
            write(unfinished)
            files = {path.name: _sha256(path) for path in sorted(unfinished.iterdir())}
            manifest = json.dumps({"run": dict(self._run), "files": files}, indent=1)
            (unfinished / _MANIFEST).write_text(manifest)
            for path in [*unfinished.iterdir(), unfinished]:
                flush(path)
            unfinished.rename(final)
            flush(directory)
            for old in _checkpoints(directory)[:-_STORED]:
                shutil.rmtree(old)
        except OSError as error:
            shutil.rmtree(unfinished, ignore_errors=True)
            reason = error.strerror or error
            message = f"checkpoint of step {step} was not written: {reason}"
            raise OSError(error.errno, message, str(final)) from error

    def latest(self) -> Path | None:
        """
        The folder of the latest checkpoint, or None where there is none.

        :raises ValueError: where it is damaged, belongs to another run, or is not the same on every
            worker; the message says what differs.
        """
        directory = self.directory
        if directory is None:
            return None
        path = together(self._strategy, lambda: self._latest(directory))
        name = "no checkpoint" if path is None else path.name
        facts = {"the content of checkpoint_dir, on storage that all workers share,": name}
        check_agreement(self._strategy, facts)
        return path

    def _latest(self, directory: Path) -> Path | None:
        paths = _checkpoints(directory) if directory.is_dir() else []
        if not paths:
            return None
        path = paths[-1]
        try:
            manifest = json.loads((path / _MANIFEST).read_text())
            files, theirs = dict(manifest["files"]), dict(manifest["run"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path} is not a checkpoint: {_MANIFEST} cannot be read.") from error
        for name, sha256 in files.items():
            if not (path / name).is_file() or _sha256(path / name) != sha256:
                raise ValueError(
                    f"{path} is damaged: {name} is not what was written. Remove the folder to "
                    "resume from the checkpoint before it."
                )
        ours = json.loads(json.dumps(dict(self._run)))  # tuples become lists, as in the file
        for key in sorted({*ours, *theirs}):
            if ours.get(key) != theirs.get(key):
                difference = _difference(key, ours.get(key), theirs.get(key))
                raise ValueError(
                    f"{path} belongs to another run: {difference} "
                    "Give checkpoint_dir an empty folder."
                )
        return path


def _difference(key: str, ours: Any, theirs: Any) -> str:
    """The first difference between two runs, in words."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        part = min(part for part in {*ours, *theirs} if ours.get(part) != theirs.get(part))
        return f"{key} differs: {_difference(part, ours.get(part), theirs.get(part))}"
    return f"{key} is {ours!r} here. Found: {theirs!r}."


def checkpoint_step(path: Path) -> int:
    """The number of steps in the name of a checkpoint's folder."""
    return int(path.name.removeprefix("step-"))


def check_objective(path: Path, stored: float, found: float) -> None:
    """
    Check that the objective has the same value as when the checkpoint was written.

    :param path: the folder of the checkpoint.
    :param stored: the value in the checkpoint.
    :param found: the value at the parameters that were loaded from it.
    :raises ValueError: where the two differ by more than rounding errors.
    """
    rounding = float(np.finfo(default_float()).eps) ** 0.4
    if not np.isclose(stored, found, rtol=rounding, atol=rounding, equal_nan=True):
        raise ValueError(
            f"{path} belongs to another run: the objective at its parameters was {stored:.10g}, "
            f"and is {found:.10g} here. Give checkpoint_dir an empty folder."
        )


def _checkpoints(directory: Path) -> list[Path]:
    """The complete checkpoints, the latest one last; other files and folders are the user's."""
    return sorted(p for p in directory.iterdir() if _NAME.fullmatch(p.name) and p.is_dir())


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def flush(path: Path) -> None:
    """Wait until a file or folder is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
