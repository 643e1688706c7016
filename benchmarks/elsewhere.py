"""Runs in processes of their own on one core, and of peers in environments of their own."""

import concurrent.futures
import multiprocessing
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

_SCRIPTS = Path(__file__).parent / "peers"
PEERS: Mapping[str, tuple[str, tuple[str, ...]]] = {  # the script, and what pip installs for it
    "GPBoost, Vecchia": ("gpboost_vecchia.py", ("gpboost==1.8.0", "pandas", "scipy")),
    "GPyTorch, VNNGP": ("gpytorch_vnngp.py", ("gpytorch==1.15.2", "torch")),
}


def new_process() -> concurrent.futures.ProcessPoolExecutor:
    """A pool of one process that inherits nothing of this one."""
    return concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))


def of_own_process(seconds: int, run: Callable[[], dict[str, Any]]) -> dict[str, Any] | None:
    """What ``run`` returns in a new process, or None if that takes more CPU seconds than these."""
    try:
        with new_process() as pool:
            pool.submit(_on_one_core, seconds).result()
            return pool.submit(run).result()
    except BrokenProcessPool:
        return None


def _on_one_core(seconds: int) -> None:
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    _at_most(seconds)


def _at_most(seconds: int) -> None:
    """End this process after so many CPU seconds."""
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))


def of_peer(
    name: str, folder: Path, seconds: int, arrays: Mapping[str, Any]
) -> dict[str, float] | None:
    """
    The scores of one of ``PEERS``, or None if it takes more CPU seconds than these.

    :param folder: where environments are kept.
    :raises RuntimeError: if its script fails.
    """
    script, packages = PEERS[name]
    python = _environment(folder / script.removesuffix(".py"), packages)
    with tempfile.TemporaryDirectory() as place:
        data, result = Path(place) / "data.npz", Path(place) / "scores.csv"
        np.savez(data, **arrays)
        done = subprocess.run(
            [python, _SCRIPTS / script, data, result],
            env={"OMP_NUM_THREADS": "1", "PATH": "/usr/bin:/bin"},
            preexec_fn=lambda: _at_most(seconds),
            capture_output=True,
            text=True,
        )
        if result.is_file():
            lines = (line.split(",") for line in result.read_text().splitlines())
            return {name: float(value) for name, value in lines}
    if done.returncode < 0:  # ended by a signal, as a process is that has used up its seconds
        return None
    raise RuntimeError(f"{name} failed: {done.stderr.strip()[-1_000:]}")


def _environment(folder: Path, packages: tuple[str, ...]) -> Path:
    """The interpreter of a virtual environment with these packages, made if it is not there."""
    python = folder / "bin" / "python"
    if not (folder / "complete").is_file():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=True)
        (folder / "complete").touch()
    return python
