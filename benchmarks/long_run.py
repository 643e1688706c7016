"""Resident memory and traces over very many steps of ``train``'s kind."""

import os
import time
from pathlib import Path

import pandas as pd
import tensorflow as tf
from tqdm import tqdm

import gpflow_aaci

from .config import LikelihoodConfig, LongRun
from .data import synthetic
from .methods import make_model, make_start, minibatches

_SAMPLES = 100


def run(config: LongRun, folder: Path, quiet: bool = False) -> pd.DataFrame:
    """A row for every hundredth of the steps: megabytes resident, traces, milliseconds a step."""
    split = synthetic(config.num_data, config.input_dim)
    start = make_start(split, LikelihoodConfig(name="StudentT"), config.num_inducing, seed=0)
    model = make_model(start, gpflow_aaci.AugmentedSVGP)
    optimizer = gpflow_aaci.AlternatingOptimizer()
    batches = minibatches(split, config.batch_size, seed=0)
    step = tf.function(lambda: optimizer.minimize(model, batches), autograph=False)
    rows = []
    each = max(1, config.steps // _SAMPLES)
    for done in tqdm(range(each, config.steps + 1, each), disable=True if quiet else None):
        began = time.perf_counter()
        for _ in range(each):
            step()
        milliseconds = 1e3 * (time.perf_counter() - began) / each
        traces = step.experimental_get_tracing_count()
        rows.append(
            {"step": done, "MB": _resident(), "traces": traces, "ms per step": milliseconds}
        )
    return pd.DataFrame(rows)


def summary(metrics: pd.DataFrame) -> pd.DataFrame:
    """Growth of memory from a tenth of the steps (warm-up) to the end."""
    warm = metrics[metrics.step >= metrics.step.iloc[-1] / 10].MB
    return pd.DataFrame(
        [
            {
                "steps": metrics.step.iloc[-1],
                "MB after warm-up": round(warm.iloc[0], 1),
                "MB at the end": round(warm.iloc[-1], 1),
                "growth in %": round(100 * (warm.iloc[-1] / warm.iloc[0] - 1), 2),
                "traces after the first part": metrics.traces.iloc[-1] - metrics.traces.iloc[0],
            }
        ]
    )


def _resident() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
