"""Resident memory and the number of traces over very many minibatch steps."""

import os
import timeit
from pathlib import Path
from typing import Any

import pandas as pd

from gpflow_aaci.progress import progress_bar

from .config import LongRun
from .methods import Setting, make_method, minibatches, synthetic_start
from .report import Report, style, subplots


def run(config: LongRun, folder: Path, quiet: bool = False) -> pd.DataFrame:
    """A row per hundredth of the steps: resident megabytes, traces, milliseconds per step."""
    start = synthetic_start(config.num_data, config.input_dim, config.num_inducing)
    batches = minibatches(start, config.batch_size, seed=0)
    step: Any
    _, step, _ = make_method(Setting("alternating", 0.03, "adaptive"), start, batches)
    rows = []
    each = max(1, config.steps // 100)
    for done in progress_bar(not quiet, iterable=range(each, config.steps + 1, each)):
        ms = 1e3 * timeit.timeit(step, number=each) / each
        traces = step.experimental_get_tracing_count()
        rows.append({"step": done, "MB": _resident(), "traces": traces, "ms per step": ms})
    return pd.DataFrame(rows)


def report(metrics: pd.DataFrame) -> Report:
    """The growth of memory after the warm-up, which is the first tenth of the steps."""
    warm = metrics[metrics.step >= metrics.step.iloc[-1] / 10].MB
    row = {
        "steps": metrics.step.iloc[-1],
        "MB after warm-up": f"{warm.iloc[0]:.1f}",
        "MB at the end": f"{warm.iloc[-1]:.1f}",
        "growth in %": f"{100 * (warm.iloc[-1] / warm.iloc[0] - 1):.2f}",
        "traces after the first part": metrics.traces.iloc[-1] - metrics.traces.iloc[0],
    }
    figure, axes = subplots(1, 1, 5.0, 3.0)
    axes[0, 0].plot(metrics.step, metrics.MB, **style("AlternatingOptimizer") | {"marker": ""})
    limits = (0, 1.2 * metrics.MB.max())
    axes[0, 0].set(xlabel="step", ylabel="resident memory [MB]", ylim=limits)
    return Report({"": pd.DataFrame([row])}, {"memory": figure})


def _resident() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
