"""Milliseconds of one training step of several methods, which take turns in one run."""

import timeit
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pandas as pd
import tensorflow as tf
from gpflow.keras import tf_keras

import gpflow_aaci
from gpflow_aaci.progress import progress_bar

from .config import StepTime
from .methods import make_model, synthetic_start
from .report import Report


def run(config: StepTime, folder: Path, quiet: bool = False) -> pd.DataFrame:
    """A row per method: median milliseconds of a step, and the ratio to the closed form."""
    start = synthetic_start(config.num_data, config.input_dim, config.num_inducing)
    rows = slice(config.batch_size)
    batch = tf.constant(start.split.X[rows]), tf.constant(start.split.Y[rows])
    augmented = make_model(start, is_augmented=True)
    natgrad, adam_all, adam_hyper = (make_model(start, is_augmented=False) for _ in range(3))
    for q in (adam_hyper.q_mu, adam_hyper.q_sqrt):
        gpflow.set_trainable(q, False)
    alone, alternated, alternated_alone = (make_model(start, is_augmented=True) for _ in range(3))
    closed_form, of_loop = (gpflow_aaci.AugmentedNaturalGradient(0.1) for _ in range(2))
    alternating, alternating_of_loop = (gpflow_aaci.AlternatingOptimizer() for _ in range(2))
    natural = gpflow.optimizers.NaturalGradient(0.001)  # small, so that no step fails

    def adam_step(model: gpflow.models.SVGP) -> Callable[[], None]:
        adam = tf_keras.optimizers.Adam(1e-3)
        return lambda: adam.minimize(lambda: model.training_loss(batch), model.trainable_variables)

    steps: dict[str, Callable[[], object]] = {
        "closed-form step": lambda: closed_form.minimize(augmented, batch),
        "closed-form and Adam step": lambda: alternating.minimize(alternated, batch),
        "GPflow NatGrad step": lambda: natural.minimize(
            lambda: natgrad.training_loss(batch), [(natgrad.q_mu, natgrad.q_sqrt)]
        ),
        "GPflow Adam step, hyperparameters": adam_step(adam_hyper),
        "GPflow Adam step, everything": adam_step(adam_all),
    }
    steps = {name: tf.function(step, autograph=False) for name, step in steps.items()}
    steps["closed-form step, in a plain loop"] = lambda: of_loop.minimize(alone, batch)
    steps["closed-form and Adam step, in a plain loop"] = lambda: alternating_of_loop.minimize(
        alternated_alone, batch
    )
    times = interleaved(steps, config.rounds, config.steps_per_round, quiet)
    table = pd.DataFrame({"step": list(times), "milliseconds": map(np.median, times.values())})
    return table.assign(**{"ratio to closed form": table.milliseconds / table.milliseconds[0]})


def report(metrics: pd.DataFrame) -> Report:
    """The metrics as one table."""
    return Report({"": metrics}, {})


def interleaved(
    steps: Mapping[Any, Callable[[], object]], rounds: int, steps_per_round: int, quiet: bool
) -> dict[Any, list[float]]:
    """Milliseconds of every call; the steps take turns, after two calls that are not timed."""
    for step in steps.values():
        step()  # this traces the step,
        step()  # or this, in a plain loop
    times: dict[Any, list[float]] = {name: [] for name in steps}
    for _ in progress_bar(not quiet, iterable=range(rounds), unit="round"):
        for name, step in steps.items():
            seconds = timeit.repeat(step, number=1, repeat=steps_per_round)
            times[name] += [1e3 * each for each in seconds]
    return times
