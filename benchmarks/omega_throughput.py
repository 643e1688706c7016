"""Draws of ω per second, in closed form and by inversion from log φ alone."""

import importlib
import importlib.util
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import tensorflow as tf
import tensorflow_probability as tfp

from gpflow_aaci import likelihoods
from gpflow_aaci.distributions import TiltedDistribution

from .config import OmegaThroughput
from .report import Report
from .step_time import interleaved

_PACKAGE = "polyagamma"  # an optional package, whose sampler is written in C


def run(config: OmegaThroughput, folder: Path, quiet: bool = False) -> pd.DataFrame:
    """A row for every likelihood: thousands of draws per second, as medians over rounds."""
    rng = np.random.default_rng(0)
    c = rng.permutation(np.geomspace(config.smallest_c, config.largest_c, config.size))
    samplers = {
        (name, way): sample
        for name in config.likelihoods
        for way, sample in _samplers(getattr(likelihoods, name)(), c).items()
    }
    times = interleaved(samplers, config.rounds, 1, quiet)
    rates: dict[str, dict[str, float]] = {name: {} for name in config.likelihoods}
    for (name, way), ms in times.items():
        rates[name][way] = config.size / float(np.median(ms))
    table = pd.DataFrame.from_dict(rates, orient="index")
    return table.rename_axis("likelihood").reset_index()


def report(metrics: pd.DataFrame) -> Report:
    """A table of thousands of draws per second, with the polyagamma package if installed."""
    note = "" if _PACKAGE in metrics else f" The {_PACKAGE} package was not installed."
    caption = f"Thousands of draws of ω a second; medians over rounds in turns.{note}"
    rates = metrics.set_index("likelihood").map("{:,.0f}".format).replace("nan", "")
    return Report({caption: rates.reset_index()}, {})


def _samplers(
    likelihood: likelihoods.AugmentedLikelihood, c: np.ndarray
) -> dict[str, Callable[[], object]]:
    seed = tf.Variable([0, 0])  # from a constant seed, TensorFlow could compute the draws once
    tilts = tf.constant(c)

    def sampler(make: Callable[[], tfp.distributions.Distribution]) -> Callable[[], object]:
        return tf.function(lambda: make().sample(seed=seed.assign_add([0, 1])), autograph=False)

    samplers = {"closed form": sampler(lambda: likelihood.tilted(tilts))}
    if isinstance(likelihood, likelihoods.SuperGaussianLikelihood):
        log_phi = likelihood.log_phi
        samplers["from log φ"] = sampler(lambda: TiltedDistribution(log_phi, tilts))
    if isinstance(likelihood, likelihoods.Logistic) and importlib.util.find_spec(_PACKAGE):
        draw = importlib.import_module(_PACKAGE).random_polyagamma
        samplers[_PACKAGE] = lambda: draw(1.0, c)
    return samplers
