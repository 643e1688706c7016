"""
Checkpoints that are whole or not there.

One is a folder ``step-00001000``, written beside its place and renamed into it, so that a process
killed at any moment leaves the one before. ``checkpoint.json`` in it says what run it belongs to
and holds the SHA-256 of every other file.
"""

import hashlib
import json
import shutil
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.config import default_float, default_jitter

from .data.passes import flush
from .identity import shown_value
from .mirrored import heed_trainable
from .models import AugmentedModel
from .structure import facts
from .workers import check_agreement, is_chief, num_workers, together

_MANIFEST, _UNFINISHED = "checkpoint.json", ".unfinished"

_AGREED: "weakref.WeakKeyDictionary[AugmentedModel, set[str]]" = weakref.WeakKeyDictionary()

Run = Mapping[str, Any]
"""What must be the same for a run to go on; values that JSON keeps."""


def save_checkpoint(
    directory: Path,
    step: int,
    run: Run,
    write: Callable[[Path], None],
    strategy: tf.distribute.Strategy,
    keep: int = 2,
) -> None:
    """
    Have ``write`` fill a folder for ``step``, and drop all but the latest ``keep``.

    :param strategy: of whose workers the chief alone does so.
    :raises OSError: where the disk is full or read-only; older checkpoints are as they were.
    """

    def save() -> None:
        if is_chief(strategy):
            _save(directory, step, run, write, keep)

    together(strategy, save)


def _save(directory: Path, step: int, run: Run, write: Callable[[Path], None], keep: int) -> None:
    final = directory / f"step-{step:010d}"
    unfinished = final.with_suffix(_UNFINISHED)
    if final.exists():  # this very step has been kept
        return
    try:
        directory.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir()
        write(unfinished)
        files = {path.name: _sha256(path) for path in sorted(unfinished.iterdir())}
        manifest = json.dumps({"run": dict(run), "files": files}, indent=1)
        (unfinished / _MANIFEST).write_text(manifest)
        for path in [*unfinished.iterdir(), unfinished]:
            flush(path)
        unfinished.rename(final)
        flush(directory)
        for old in _checkpoints(directory)[:-keep]:
            shutil.rmtree(old)
    except OSError as error:
        shutil.rmtree(unfinished, ignore_errors=True)
        reason = error.strerror or error
        message = f"checkpoint of step {step} was not written: {reason}"
        raise OSError(error.errno, message, str(final)) from error


def latest_checkpoint(directory: Path, run: Run, strategy: tf.distribute.Strategy) -> Path | None:
    """
    The folder of the latest checkpoint in ``directory``, or None where there is none.

    :param strategy: whose workers must all see it.
    :raises ValueError: where it is damaged, or of another run; the message says what differs.
    """
    path = together(strategy, lambda: _latest(directory, run))
    found = "no checkpoint" if path is None else path.name
    check_agreement(strategy, {"what is in checkpoint_dir, on storage that all share,": found})
    return path


def _latest(directory: Path, run: Run) -> Path | None:
    found = _checkpoints(directory) if directory.is_dir() else []
    if not found:
        return None
    path = found[-1]
    try:
        manifest = json.loads((path / _MANIFEST).read_text())
        files, theirs = dict(manifest["files"]), dict(manifest["run"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is not a checkpoint: {_MANIFEST} cannot be read.") from error
    for name, sha256 in files.items():
        if not (path / name).is_file() or _sha256(path / name) != sha256:
            raise ValueError(
                f"{path} is damaged: {name} is not what was written. Remove the folder to go on "
                "from the checkpoint before it."
            )
    ours = json.loads(json.dumps(dict(run)))
    for key in sorted({*ours, *theirs}):
        if ours.get(key) != theirs.get(key):
            raise ValueError(
                f"{path} is of another run: {_difference(key, ours.get(key), theirs.get(key))} "
                "Give checkpoint_dir an empty folder."
            )
    return path


def _difference(key: str, ours: Any, theirs: Any) -> str:
    """The first one, in words."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        parts = sorted(part for part in {*ours, *theirs} if ours.get(part) != theirs.get(part))
        part = parts[0]
        return f"{key} is another, for {_difference(part, ours.get(part), theirs.get(part))}"
    return f"{key} is {ours!r} here. Found: {theirs!r}."


def checkpoint_step(path: Path) -> int:
    """The step that a checkpoint's folder is of."""
    return int(path.name.removeprefix("step-"))


def check_objective(path: Path, name: str, stored: float, found: float) -> None:
    """
    :raises ValueError: unless an objective at what was stored in ``path`` is what it was then.
    """
    rounding = float(np.finfo(default_float()).eps) ** 0.4
    if not np.isclose(stored, found, rtol=rounding, atol=rounding, equal_nan=True):
        raise ValueError(
            f"{path} is of another run: the {name} at what it holds was {stored:.10g}, and is "
            f"{found:.10g} here. Give checkpoint_dir an empty folder."
        )


def describe(model: AugmentedModel) -> dict[str, str]:
    """All that ``model`` is but for what is learnt of it and its data, for a ``Run``."""
    return {
        **facts(model, state=("q_mu", "q_sqrt", "data", "num_data")),
        "num_data": repr(model.expected_data.known_num_data),
        "default_jitter": repr(default_jitter()),
    }


def check_same_program(
    model: AugmentedModel,
    call: str,
    settings: Mapping[str, Any] = MappingProxyType({}),
    **options: Any,
) -> None:
    """
    Compare the call, the model and its values with those of the other workers.

    :param settings: the settings of the optimizer, if the call has one.
    :raises ValueError: on every worker, unless all are the same.
    """
    heed_trainable(model.variables)
    if num_workers(model.strategy) > 1:
        of_optimizer = {f"{path} of the optimizer": f for path, f in facts(settings).items()}
        of_model = {f"{path} of the model": fact for path, fact in describe(model).items()}
        values = {
            f"the value of {path}": shown_value(parameter.numpy())
            for path, parameter in gpflow.utilities.parameter_dict(model).items()
        }
        whole = {"the call": call, **options, **of_optimizer, **of_model, **values}
        check_agreement(model.strategy, whole)


def check_same_program_once(
    model: AugmentedModel, call: str, settings: Callable[[], Mapping[str, Any]]
) -> None:
    """
    As :func:`check_same_program`, but only before a model's first step of a kind.

    :param settings: gives the settings of the optimizer.
    """
    if num_workers(model.strategy) == 1:
        return
    agreed = _AGREED.setdefault(model, set())
    with tf.init_scope():
        of_optimizer = settings()
        kind = json.dumps([call, facts(of_optimizer)])
        if kind not in agreed:
            check_same_program(model, call, of_optimizer)
    agreed.add(kind)


def _checkpoints(directory: Path) -> list[Path]:
    return sorted(p for p in directory.glob("step-*") if p.suffix != _UNFINISHED)


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
