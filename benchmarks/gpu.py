"""The same calls on a GPU and on the CPU beside it, in float64 and in float32."""

import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pandas as pd
import tensorflow as tf

import gpflow_aaci
from gpflow_aaci.progress import progress_bar

from .cache import finished
from .config import GPU, Problem
from .datasets import Array, Split, load_dataset
from .elsewhere import new_process
from .methods import make_model, make_start, synthetic_start
from .report import Report, fixed

_AT_ONCE = 2_000  # test rows that are predicted at once
_JITTER_OF_FLOAT32 = 1e-4
_MOST_WORDS = 200  # characters of an error


def run(config: GPU, folder: Path, quiet: bool = False) -> pd.DataFrame:
    """A row for every device, dtype and call; each device and dtype has a process of its own."""
    tables = []
    pairs = [(device, dtype) for dtype in config.dtype for device in config.device]
    for device, dtype in progress_bar(not quiet, iterable=pairs, unit="device"):
        with new_process() as pool:
            tables.append(pool.submit(_on_device, config, folder, device, dtype).result())
    return pd.concat(tables, ignore_index=True)


def report(metrics: pd.DataFrame) -> Report:
    """Seconds and scores, one column for every device and dtype."""
    order = {name: number for number, name in enumerate(metrics.call.unique())}
    tables = {}
    for what, digits in (("seconds", 2), ("nll", 4)):
        table = metrics.pivot(index="call", columns=["device", "dtype"], values=what)
        table = table.sort_index(key=lambda names: names.map(order))
        table.columns = [", ".join(names) for names in table.columns]
        tables[what] = table.apply(lambda column, d=digits: fixed(column, d)).reset_index()
    seconds = (
        "Seconds of wall clock from a call to its return, tracing counted. "
        f"Devices: {'; '.join(metrics.hardware.unique())}. Blank: it failed."
    )
    scores = "Test NLL in nats a datum of the standardised y, for the calls that fit."
    return Report({seconds: tables["seconds"], scores: tables["nll"]}, {})


def _on_device(config: GPU, folder: Path, device: str, dtype: str) -> pd.DataFrame:
    if device == "CPU":
        tf.config.set_visible_devices([], "GPU")
    elif not tf.config.list_physical_devices("GPU"):
        raise RuntimeError("device: TensorFlow finds no GPU here.")
    # Importing gpflow_aaci has switched it off.
    tf.config.experimental.enable_tensor_float_32_execution("TF32" in device)
    gpflow.config.set_default_float(getattr(np, dtype))
    if dtype == "float32":
        gpflow.config.set_default_jitter(_JITTER_OF_FLOAT32)
    tf.linalg.cholesky(tf.eye(2, dtype=gpflow.default_float()))  # the device starts
    tables = []
    for name, call in _calls(config, folder).items():
        key = {"device": device, "dtype": dtype, "call": name, "hardware": _hardware(device)}
        row = partial(_row, key, call)
        tables.append(finished(config, f"{device}-{dtype}-{name}", key, row))
    return pd.concat(tables, ignore_index=True)


def _hardware(device: str) -> str:
    if device == "CPU":
        return "CPU"
    (first, *_) = tf.config.list_physical_devices("GPU")
    return str(tf.config.experimental.get_device_details(first).get("device_name", "GPU"))


def _row(key: Mapping[str, str], call: Callable[[], dict[str, float]]) -> pd.DataFrame:
    row: dict[str, Any] = {**key, "seconds": np.nan, "nll": np.nan, "failed": ""}
    try:
        row |= call()
    except Exception as error:
        row["failed"] = f"{type(error).__name__}: {error}"[:_MOST_WORDS]
    return pd.DataFrame([row])


def _calls(config: GPU, folder: Path) -> dict[str, Callable[[], dict[str, float]]]:
    """What is timed: a function for every name."""
    calls: dict[str, Callable[[], dict[str, float]]] = {
        f"{config.steps} closed-form steps, batch {config.batch_size}": partial(_steps, config)
    }
    for problem in config.problem:
        for name, timed in (("nearest", _nearest), ("fit", _fit)):
            calls[f"{name}, {problem.title}"] = partial(timed, config, problem, folder)
    for problem in config.sampled:
        calls[f"Gibbs, {problem.title}"] = partial(_gibbs, config, problem, folder)
    return calls


def _steps(config: GPU) -> dict[str, float]:
    start = synthetic_start(10 * config.batch_size, 9, config.num_inducing)
    model = make_model(start, is_augmented=True)
    optimizer = gpflow_aaci.AugmentedNaturalGradient(0.1)
    rows = slice(config.batch_size)
    batch = tuple(map(tf.constant, _data(start.split.X[rows], start.split.Y[rows])))
    began = time.perf_counter()
    for _ in range(config.steps):
        optimizer.minimize(model, batch)
    model.q_mu.numpy()  # waits for the device
    return {"seconds": time.perf_counter() - began}


def _fit(config: GPU, problem: Problem, folder: Path) -> dict[str, float]:
    split = _split(problem, folder)
    start = make_start(split, problem, config.num_inducing, seed=0)
    model = make_model(start, is_augmented=True)
    gpflow.set_trainable(model.inducing_variable, False)
    data = _data(split.X, split.Y)
    began = time.perf_counter()
    gpflow_aaci.fit(model, data, progress=False)
    seconds = time.perf_counter() - began
    return {"seconds": seconds, "nll": _nll(model, split)}


def _nearest(config: GPU, problem: Problem, folder: Path) -> dict[str, float]:
    split = _split(problem, folder)
    columns = split.X.shape[1]
    kernel = gpflow.kernels.Matern52(lengthscales=[np.sqrt(columns)] * columns)
    model = gpflow_aaci.AugmentedNNGP(_data(split.X, split.Y), kernel, problem.likelihood.make())
    began = time.perf_counter()
    gpflow_aaci.fit(model, progress=False)
    seconds = time.perf_counter() - began
    return {"seconds": seconds, "nll": _nll(model, split)}


def _gibbs(config: GPU, problem: Problem, folder: Path) -> dict[str, float]:
    split = _split(problem, folder)
    kernel = gpflow.kernels.Matern52(lengthscales=np.sqrt(split.X.shape[1]))
    model = gpflow_aaci.AugmentedVGP(_data(split.X, split.Y), kernel, problem.likelihood.make())
    began = time.perf_counter()
    gpflow_aaci.sample_posterior(model, num_samples=config.draws, num_chains=4, progress=False)
    return {"seconds": time.perf_counter() - began}


def _split(problem: Problem, folder: Path) -> Split:
    return load_dataset(problem, folder, quiet=True).split(0.1, seed=0)


def _data(X: Array, Y: Array) -> tuple[Array, Array]:
    dtype = gpflow.default_float()
    return X.astype(dtype), Y.astype(dtype)


def _nll(model: Any, split: Split) -> float:
    log_p = []
    for start in range(0, len(split.X_test), _AT_ONCE):
        rows = slice(start, start + _AT_ONCE)
        log_p.append(model.predict_log_density(_data(split.X_test[rows], split.Y_test[rows])))
    return -float(np.concatenate(log_p).mean())
