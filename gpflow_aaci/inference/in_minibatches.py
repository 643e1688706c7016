"""
Many rows of many classes: GPflow's ELBO on minibatches, by Adam.

For a likelihood of several classes an evaluation of the profile is half a dozen Newton steps on all
rows, each with an integral over all latent GPs for every row. A minibatch's takes some hundredths
of a second. (The augmented bound is cheaper still, but so far below GPflow's ELBO there that
hyperparameters which are best for it predict worse.)
"""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpflow.base import RegressionData
from gpflow.keras import tf_keras

from ..likelihoods import LogisticSoftmax
from ..models import AugmentedModel
from .fitting import FitResult
from .training import train

if TYPE_CHECKING:
    import pandas as pd

MANY = 30_000  # rows times classes: up to there ``fit_collapsed`` takes a minute or so
_STEPS, _BATCH = 1_300, 256
_LEARNING_RATE = 0.05  # at first; along a cosine to 0
_REASON = f"all of {_STEPS:,} steps were made, the last ones the smallest"


def is_for_minibatches(model: AugmentedModel, data: Any) -> bool:
    """Whether rows times classes are more than ``MANY``: of arrays or frames, no dataset."""
    is_pair = isinstance(data, tuple | list) and len(data) == 2
    if not isinstance(model.likelihood, LogisticSoftmax) or model.keeps_data or not is_pair:
        return False
    return len(data[0]) * model.num_latent_gps > MANY


def fit_in_minibatches(
    model: AugmentedModel,
    data: RegressionData,
    *,
    seed: int = 0,
    checkpoint_dir: str | Path | None = None,
    progress: bool = True,
) -> tuple[FitResult, "pd.DataFrame"]:
    """
    ``train`` with ``objective="standard_elbo"``: 1,300 steps of 256 rows, ever smaller.

    That many whatever the data, as the sizes of the steps end at 0: ``converged`` says that they
    were all made, not Ctrl-C pressed. Arguments and errors are those of ``train``.

    :return: what has been done to GPflow's ELBO, the log prior included, in as many steps; and the
        history of ``train``.
    """
    began = time.perf_counter()
    rows = model.checked_rows(data)

    def objective() -> float:
        return float(model.standard_elbo(rows, progress=progress) + model.log_prior_density())

    start = objective()
    size = tf_keras.optimizers.schedules.CosineDecay(_LEARNING_RATE, _STEPS)
    history = train(
        model,
        rows,
        objective="standard_elbo",
        optimizer=tf_keras.optimizers.Adam(size),
        num_steps=_STEPS,
        batch_size=_BATCH,
        seed=seed,
        checkpoint_dir=checkpoint_dir,
        progress=progress,
    )
    done = int(history.step.iloc[-1])
    found = FitResult(
        objective=objective(),
        start=start,
        evaluations=done,
        converged=done == _STEPS,
        reason=_REASON if done == _STEPS else "it was interrupted",
        fitting_seconds=time.perf_counter() - began,
    )
    return found, history
