"""The cost of one exact pass against the numbers of rows, inputs, inducing points and workers."""

import itertools
import os
import timeit
from pathlib import Path

import gpflow
import numpy as np
import pandas as pd
import tensorflow as tf

import gpflow_aaci
from gpflow_aaci.progress import progress_bar

from .cache import read_metrics
from .config import Scaling
from .report import Report
from .streaming import rows_made

_CAPTION = (
    "A pass of AugmentedNaturalGradient over all rows, made in chunks as they are asked for. "
    "Medians over repeats. Flops and all-reduced numbers are counted, of one worker and one pass: "
    "M² + MD multiply-adds of A and K_ZX and M² each of the variances of f and of B, a row; M² + M "
    "+ 2 numbers."
)


def run(config: Scaling, folder: Path, quiet: bool = False) -> pd.DataFrame:
    """A row per size and repeat, besides earlier rows for other numbers of workers."""
    several = "TF_CONFIG" in os.environ
    cluster = tf.distribute.MultiWorkerMirroredStrategy if several else tf.distribute.get_strategy
    strategy = cluster()
    workers = strategy.num_replicas_in_sync
    index = strategy.cluster_resolver.task_id if several else 0
    sizes = list(itertools.product(config.rows, config.input_dim, config.num_inducing))
    rows = []
    for N, D, M in progress_bar(not quiet and not index, iterable=sizes, unit="size"):
        own = N * (index + 1) // workers - N * index // workers
        for repeat, seconds in enumerate(measure(strategy, own, N, D, M, config.repeats)):
            size = {"rows": N, "input_dim": D, "num_inducing": M, "workers": workers}
            rows.append(size | {"repeat": repeat, "seconds": seconds})
    measured = pd.DataFrame(rows)
    path = config.output / "metrics.csv"
    if not path.is_file():
        return measured
    before = read_metrics(path)
    return pd.concat([before[before.workers != workers], measured], ignore_index=True)


def report(metrics: pd.DataFrame) -> Report:
    """Medians over the repeats, with the numbers of operations and of all-reduced bytes."""
    keys = ["rows", "input_dim", "num_inducing", "workers"]
    medians = metrics.groupby(keys).seconds.median().reset_index()
    M, own = medians.num_inducing, medians.rows / medians.workers
    table = medians[keys].assign(
        **{
            "pass [s]": medians.seconds,
            "Gflop": 2e-9 * own * M * (3 * M + medians.input_dim),
            "all-reduce [MB]": 8e-6 * (M**2 + M + 2),
        }
    )
    return Report({_CAPTION: table}, {})


def measure(
    strategy: tf.distribute.Strategy, own: int, N: int, D: int, M: int, repeats: int
) -> list[float]:
    """Seconds of every pass over this worker's ``own`` rows of N, after a short first one."""
    with strategy.scope():
        model = gpflow_aaci.AugmentedSVGP(
            gpflow.kernels.SquaredExponential(lengthscales=[np.sqrt(2.0 * D)] * D),
            gpflow_aaci.likelihoods.Logistic(),
            np.random.default_rng(0).normal(size=(M, D)),
            num_data=N,
        )
    optimizer = gpflow_aaci.AugmentedNaturalGradient()
    data = rows_made(own, D)
    return timeit.repeat(
        lambda: optimizer.minimize(model, data, progress=False),
        setup=lambda: optimizer.minimize(model, rows_made(min(1_000, own), D), progress=False),
        number=1,
        repeat=repeats,
    )
