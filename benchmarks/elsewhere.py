"""Runs in processes of their own on one core, and of peers in environments of their own."""

import concurrent.futures
import multiprocessing
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

_SCRIPTS = Path(__file__).parent / "scripts"
_GPBOOST = ("gpboost==1.8.0", "pandas==3.1.1", "scipy==1.17.1")
_GPFLOW = ("gpflow==2.11.2", "tensorflow==2.21.0")
_GPJAX = ("gpjax==1.0.0", "jax==0.10.2")
_GPYTORCH = ("gpytorch==1.15.2", "torch==2.14.1")
PEERS: Mapping[str, tuple[str, tuple[str, ...]]] = {  # the script, and what pip installs for it
    "GPBoost, Vecchia": ("gpboost_vecchia.py", _GPBOOST),
    "GPBoost, Vecchia, Gaussian": ("gpboost_vecchia.py", _GPBOOST),
    "GPBoost, groups": ("gpboost_groups.py", _GPBOOST),
    "GPyTorch, VNNGP": ("gpytorch_vnngp.py", _GPYTORCH),
    "GPyTorch, SVGP, 0.01": ("gpytorch_svgp.py", _GPYTORCH),
    "GPyTorch, SVGP, 0.03": ("gpytorch_svgp.py", _GPYTORCH),
    "GPyTorch, SVGP, 0.1": ("gpytorch_svgp.py", _GPYTORCH),
    "GPJax, exact": ("gpjax_models.py", _GPJAX),
    "GPJax, SVGP": ("gpjax_models.py", _GPJAX),
    "GPflow, GPR": ("gpflow_models.py", _GPFLOW),
    "GPflow, SVGP": ("gpflow_models.py", _GPFLOW),
    "scikit-learn": ("sklearn_exact.py", ("scikit-learn==1.9.1",)),
}
_ONE_CORE = {
    **dict.fromkeys(("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"), "1"),
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "PATH": "/usr/bin:/bin",
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

    :param folder: where environments are kept, each by the name of its first package.
    :raises RuntimeError: if its script fails.
    """
    script, packages = PEERS[name]
    python = _environment(folder / packages[0], packages)
    with tempfile.TemporaryDirectory() as place:
        data, result = Path(place) / "data.npz", Path(place) / "scores.csv"
        np.savez(data, **arrays)
        done = subprocess.run(
            [python, _SCRIPTS / script, data, result],
            env=_ONE_CORE,
            preexec_fn=lambda: _at_most(seconds),
            capture_output=True,
            text=True,
        )
        if result.is_file():
            lines = (line.split(",") for line in result.read_text().splitlines())
            return {name: float(value) for name, value in lines}
    if done.returncode in (-signal.SIGXCPU, -signal.SIGKILL):  # it has used up its seconds
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
