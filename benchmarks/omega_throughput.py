"""Draws of ω a second: in closed form, and from log φ alone."""

import importlib
import importlib.util
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import tensorflow as tf
import tensorflow_probability as tfp

from gpflow_aaci import TiltedDistribution, likelihoods
from gpflow_aaci.progress import progress_bar

from .config import OmegaThroughput
from .report import Report

_PACKAGE = "polyagamma"  # optional: a sampler in C to compare with


def run(config: OmegaThroughput, folder: Path, quiet: bool = False) -> pd.DataFrame:
    """A row for every likelihood: thousands of draws a second, medians over rounds in turns."""
    rng = np.random.default_rng(0)
    c = rng.permutation(np.geomspace(config.smallest_c, config.largest_c, config.size))
    samplers = {
        (name, way): sample
        for name in config.likelihoods
        for way, sample in _samplers(getattr(likelihoods, name)(), c).items()
    }
    times: dict[tuple[str, str], list[float]] = {key: [] for key in samplers}
    total = (config.rounds + 1) * len(samplers)
    with progress_bar(not quiet, total=total, unit="draw") as bar:
        for turn in range(config.rounds + 1):
            for key, sample in samplers.items():
                began = time.perf_counter()
                sample()
                if turn > 0:  # the first traces
                    times[key].append(time.perf_counter() - began)
                bar.update()
    rates = pd.Series({key: 1e-3 * config.size / np.median(t) for key, t in times.items()})
    return rates.unstack(sort=False).rename_axis("likelihood").reset_index()


def report(metrics: pd.DataFrame) -> Report:
    """In thousands a second, with what the polyagamma package does where it is installed."""
    note = "" if _PACKAGE in metrics else f" The {_PACKAGE} package was not installed."
    caption = f"Thousands of draws of ω a second; medians over rounds in turns.{note}"
    rates = metrics.set_index("likelihood").map("{:,.0f}".format).replace("nan", "")
    return Report({caption: rates.reset_index()}, {})


def _samplers(
    likelihood: likelihoods.AugmentedLikelihood, c: np.ndarray
) -> dict[str, Callable[[], object]]:
    seed = tf.Variable([0, 0])  # what is drawn from a constant could be folded into one
    tilts = tf.constant(c)

    def compiled(make: Callable[[], tfp.distributions.Distribution]) -> Callable[[], object]:
        return tf.function(lambda: make().sample(seed=seed.assign_add([0, 1])), autograph=False)

    samplers: dict[str, Callable[[], object]] = {
        "closed form": compiled(lambda: likelihood.tilted(tilts))
    }
    if isinstance(likelihood, likelihoods.SuperGaussianLikelihood):
        log_phi = likelihood.log_phi
        samplers["from log φ"] = compiled(lambda: TiltedDistribution(log_phi, tilts))
    if isinstance(likelihood, likelihoods.Logistic) and importlib.util.find_spec(_PACKAGE):
        draw = importlib.import_module(_PACKAGE).random_polyagamma
        samplers[_PACKAGE] = lambda: draw(1.0, c)
    return samplers
