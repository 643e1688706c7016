"""A log of the results of passes over the data, so that a killed run loses only one pass."""

import hashlib
import json
import shutil
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray

from ..runtime.checkpoints import flush
from ..runtime.identity import digest
from ..runtime.workers import ONE_PROCESS, is_chief, num_workers, sum_over_workers, together


class PassLog:
    """
    The results of all passes over the data since the latest checkpoint.

    A run that resumes from the checkpoint needs the same sums again, and reads them from the log
    instead of passing over the data. Each result is a file, which is first written under another
    name and then renamed.
    """

    def __init__(
        self,
        directory: Path | None = None,
        run: Mapping[str, Any] = MappingProxyType({}),
        strategy: tf.distribute.Strategy | None = None,
    ) -> None:
        """
        :param directory: None for a log that stores nothing.
        :param run: settings that must not change for a run to resume; values that JSON can hold.
        :param strategy: the model's strategy. Only its chief writes; all workers read.
        """
        self._strategy = strategy or ONE_PROCESS
        key = hashlib.sha256(json.dumps(dict(run), sort_keys=True).encode()).hexdigest()[:16]
        self._folder = None if directory is None else directory / f"passes-{key}"

    @property
    def stores(self) -> bool:
        """Whether results are stored."""
        return self._folder is not None

    def clear(self) -> None:
        """Remove all results, when a new checkpoint has made them superfluous."""
        if self._folder is not None and is_chief(self._strategy):
            shutil.rmtree(self._folder, ignore_errors=True)

    def __call__(
        self, identity: Sequence[AnyNDArray], a_pass: Callable[[], Sequence[tf.Tensor]]
    ) -> list[tf.Tensor]:
        """
        Return the result of a pass, and make the pass only if the log has no result.

        :param identity: everything except the run on which the result depends.
        :param a_pass: a function that makes the pass and returns its sums.
        :raises OSError: if the result cannot be written.
        """
        if self._folder is None:
            return list(a_pass())
        path = self._folder / f"{digest(identity)}.npz"
        stored = _stored(path)
        if _all_have(self._strategy, stored is not None):
            assert stored is not None
            return stored
        result = list(a_pass())

        def store() -> None:
            if is_chief(self._strategy):
                path.parent.mkdir(parents=True, exist_ok=True)
                unfinished = path.with_suffix(".unfinished.npz")
                np.savez(unfinished, **{str(i): np.asarray(part) for i, part in enumerate(result)})
                flush(unfinished)
                unfinished.rename(path)

        together(self._strategy, store)
        return result


def _stored(path: Path) -> list[tf.Tensor] | None:
    """Return the stored result of a pass, or None if there is none."""
    try:
        with np.load(path) as arrays:
            return [tf.constant(arrays[str(i)]) for i in range(len(arrays))]
    except (OSError, EOFError, ValueError, zipfile.BadZipFile):  # missing, empty, damaged
        return None


def _all_have(strategy: tf.distribute.Strategy, has: bool) -> bool:
    """Whether every worker has read the result; otherwise all of them must repeat the pass."""
    (count,) = sum_over_workers(strategy, [tf.constant(float(has))])
    return int(count) == num_workers(strategy)
