"""The share of new y in 90 % intervals under wrong noise, plain and calibrated."""

from collections.abc import Callable, Iterator
from pathlib import Path

import gpflow
import numpy as np
import pandas as pd

import gpflow_aaci
from gpflow_aaci import likelihoods
from gpflow_aaci.predictions import predict_y_interval
from gpflow_aaci.progress import progress_bar

from .config import Coverage
from .report import Report

Noise = Callable[[np.random.Generator, np.ndarray], np.ndarray]


def _fixed(variance: float) -> likelihoods.AugmentedLikelihood:
    likelihood = likelihoods.Gaussian(variance=variance)
    gpflow.set_trainable(likelihood, False)
    return likelihood


def _skewed(rng: np.random.Generator, X: np.ndarray) -> np.ndarray:
    return 0.4 * (rng.exponential(size=X.shape) - 1.0)


# Each is what the noise is, and what the model takes it for.
CASES: dict[str, tuple[Noise, Callable[[], likelihoods.AugmentedLikelihood]]] = {
    "skewed, taken for Gaussian of half its size": (_skewed, lambda: _fixed(0.04)),
    "skewed, taken for Gaussian": (_skewed, likelihoods.Gaussian),
    "skewed, taken for Laplace": (_skewed, likelihoods.Laplace),
    "Student-t of df 2, taken for Gaussian": (
        lambda rng, X: 0.2 * rng.standard_t(2, size=X.shape),
        likelihoods.Gaussian,
    ),
    "growing with x, taken for Student-t": (
        lambda rng, X: 0.1 * np.exp(0.5 * X) * rng.normal(size=X.shape),
        likelihoods.StudentT,
    ),
}


def run(config: Coverage, folder: Path, quiet: bool = False) -> pd.DataFrame:
    """
    A row for every data set, kind of noise and way to make intervals.

    The full GP with a squared-exponential kernel is fitted by ``fit``, and so are the parameters
    of the noise, but for the case in which they are fixed. ``width`` is the mean of the widths.
    """
    bar = progress_bar(not quiet, iterable=range(config.sets), unit="set")
    return pd.DataFrame([row for number in bar for row in _of_set(config, number)])


def _of_set(config: Coverage, number: int) -> Iterator[dict[str, object]]:
    for case, (noise, likelihood) in CASES.items():
        rng = np.random.default_rng([number, 7])
        X, Xnew = (rng.uniform(-3.0, 3.0, size=(n, 1)) for n in (config.rows, config.new_rows))
        Y, Ynew = (np.sin(2.0 * x) + noise(rng, x) for x in (X, Xnew))
        kernel = gpflow.kernels.SquaredExponential()
        model = gpflow_aaci.AugmentedVGP((X, Y), kernel, likelihood())
        gpflow_aaci.fit(model, progress=False)
        for calibrated in (False, True):
            ends = predict_y_interval(model, Xnew, config.level, calibrated=calibrated)
            lower, upper = (end.numpy() for end in ends)
            yield {
                "noise": case,
                "set": number,
                "intervals": "calibrated" if calibrated else "plain",
                "covered": np.mean((lower <= Ynew) & (Ynew <= upper)),
                "width": np.mean(upper - lower),
            }


def report(metrics: pd.DataFrame) -> Report:
    """The mean share, its standard deviation over data sets, and the mean width."""
    table = metrics.groupby(["noise", "intervals"], sort=False)[["covered", "width"]]
    found = table.mean().join(table.std()[["covered"]].rename(columns={"covered": "sd of sets"}))
    text = found.map("{:.3f}".format)[["covered", "sd of sets", "width"]].reset_index()
    sets = metrics["set"].nunique()
    return Report({f"Shares of new y in the intervals; means over {sets} data sets.": text}, {})
