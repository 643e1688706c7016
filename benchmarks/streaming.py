"""Time and peak memory of one exact pass over rows that are never in memory together."""

import timeit
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import gpflow
import numpy as np
import pandas as pd
import tensorflow as tf
from matplotlib.figure import Figure

import gpflow_aaci
from gpflow_aaci.data import CHUNK, untuned
from gpflow_aaci.progress import progress_bar

from .cache import finished
from .config import Streaming
from .elsewhere import new_process
from .report import Report, band, fixed, one_legend, style, subplots

_WAYS = {"exact": "exact pass", "products": "products alone"}


def run(config: Streaming, folder: Path, quiet: bool = False) -> pd.DataFrame:
    """A row per number of rows and repeat; each number of rows has a process of its own."""
    parts = []
    for rows in progress_bar(not quiet, iterable=config.rows, unit="size"):
        key = {"rows": rows, "repeats": config.repeats}
        parts.append(finished(config, f"{rows}", key, partial(_apart, config, rows)))
    return pd.concat(parts, ignore_index=True)


def report(metrics: pd.DataFrame) -> Report:
    """A table of medians over the repeats, and a figure."""
    caption = (
        "A pass of AugmentedNaturalGradient over all rows, chunk by chunk, beside what it cannot "
        "do without on the same chunks: making the rows, K_ZX, A = L⁻¹K_ZX, RᵀA for the variances "
        "of f, A diag(w) Aᵀ and A w, compiled. Memory: the peak of a process, after the first pass "
        "and before it. Medians over repeats in turns."
    )
    medians = metrics.groupby("rows").median().reset_index()
    columns = {
        "rows": medians.rows.astype(int),
        "exact pass [s]": medians.exact,
        **{f"{label} [µs/row]": 1e6 * medians[way] / medians.rows for way, label in _WAYS.items()},
        "ratio": medians.exact / medians.products,
        "peak [MB]": fixed(medians.peak_mb, 0),
        "before [MB]": fixed(medians.before_mb, 0),
    }
    return Report({caption: pd.DataFrame(columns)}, {"streaming": _figure(metrics)})


def rows_made(num_rows: int, input_dim: int) -> tf.data.Dataset:
    """Binary data, with odds exp(4 f) for a wave f, in batches generated on demand."""

    def batches() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        rng = np.random.default_rng(0)
        for start in range(0, num_rows, CHUNK):
            X = rng.normal(size=(min(CHUNK, num_rows - start), input_dim))
            odds = np.exp(4.0 * np.sin(X.sum(axis=1, keepdims=True)))
            yield X, (rng.uniform(size=odds.shape) * (1.0 + odds) < odds).astype(float)

    spec = tuple(tf.TensorSpec([None, columns], tf.float64) for columns in (input_dim, 1))
    return untuned(tf.data.Dataset.from_generator(batches, output_signature=spec))


def measure(config: Streaming, num_rows: int) -> list[dict[str, float]]:
    """Seconds of the exact pass and of its products alone, in turns, and peak memory."""
    D, dataset = config.input_dim, rows_made(num_rows, config.input_dim)
    Z = np.random.default_rng(0).normal(size=(config.num_inducing, D))
    kernel = gpflow.kernels.SquaredExponential(lengthscales=[np.sqrt(2.0 * D)] * D)
    likelihood = gpflow_aaci.likelihoods.Logistic()
    model = gpflow_aaci.AugmentedSVGP(kernel, likelihood, Z, num_data=num_rows)
    optimizer = gpflow_aaci.AugmentedNaturalGradient()
    L, R = tf.linalg.cholesky(model.prior_covariance()[0]), tf.eye(len(Z), dtype=tf.float64)

    @tf.function(autograph=False, input_signature=dataset.element_spec)
    def products(X: tf.Tensor, Y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        A = tf.linalg.triangular_solve(L, kernel(Z, X))
        w = tf.reduce_sum(tf.square(tf.matmul(R, A, transpose_a=True)), 0) * Y[:, 0]
        return tf.matmul(A * w, A, transpose_b=True), tf.linalg.matvec(A, w)

    def pass_of_products() -> None:
        a, B = 0.0, 0.0
        for X, Y in dataset:
            new = products(X, Y)
            B, a = B + new[0], a + new[1]

    few = rows_made(min(1_000, num_rows), D)  # for a first call, which compiles
    optimizer.minimize(model, few, progress=False)
    products(*next(iter(few)))
    before = _peak_mb()
    rows, peak = [], 0.0
    for repeat in range(config.repeats):
        exact = timeit.timeit(lambda: optimizer.minimize(model, dataset), number=1)
        peak = peak or _peak_mb()
        times = {"exact": exact, "products": timeit.timeit(pass_of_products, number=1)}
        rows.append({"rows": num_rows, "repeat": repeat, "before_mb": before, **times})
    return [row | {"peak_mb": peak} for row in rows]


def _apart(config: Streaming, num_rows: int) -> pd.DataFrame:
    with new_process() as process:  # a fork would inherit this process's memory
        return pd.DataFrame(process.submit(measure, config, num_rows).result())


def _peak_mb() -> float:
    # VmHWM is used because getrusage may report the peak of the parent process.
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1e3


def _figure(metrics: pd.DataFrame) -> Figure:
    figure, axes = subplots(1, 2, 3.8, 3.0)
    times, memory = axes[0]
    for way, label in _WAYS.items():
        each = (1e6 * metrics[way] / metrics.rows).groupby(metrics.rows)
        values = [each.median(), each.min(), each.max()]
        band(times, values[0].index, values, **style(label), label=label)
    peak = metrics.groupby("rows").peak_mb.median()
    memory.plot(peak.index, peak, **style("exact pass"))
    times.set(ylabel="time [µs per row]", ylim=(0, None))
    memory.set(ylabel="peak resident memory [MB]", ylim=(0, 1.2 * peak.max()))
    for ax in axes[0]:
        ax.set(xscale="log", xlabel="rows")
    one_legend(figure, axes)
    return figure
