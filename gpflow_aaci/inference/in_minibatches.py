"""
Many rows of many classes: minibatches, on the augmented bound and then on GPflow's ELBO.

For a likelihood of several classes an evaluation of the profile is half a dozen Newton steps on all
rows, each with an integral over all latent GPs for every row. Closed-form steps on minibatches need
no integral and bring q near its best at once. But their bound is so far below GPflow's ELBO there
that hyperparameters which are best for it predict worse: so Adam climbs that one in the end.
"""

import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from gpflow.base import RegressionData
from gpflow.keras import tf_keras

from ..algebra.terms import standard
from ..data import as_data
from ..likelihoods import LogisticSoftmax
from ..models import AugmentedModel
from .fitting import FitResult
from .starting import not_finite_at_start, value_at_start
from .stopping import INTERRUPTED
from .training import train

if TYPE_CHECKING:
    import pandas as pd

MANY = 30_000  # rows times classes: up to there ``fit_collapsed`` takes a minute or so
_BATCH = 256
_CLOSED_FORM_STEPS, _STEPS = 1_000, 500
_LEARNING_RATE = 0.03  # of the latter at first; along a cosine to 0
_REASON = "all steps were made, the last ones the smallest"


def is_for_minibatches(model: AugmentedModel, data: Any) -> bool:
    """
    Whether rows times classes are more than ``MANY``: of arrays or frames, no dataset; of those of
    all processes.
    """
    if not isinstance(model.likelihood, LogisticSoftmax) or model.own_data is not None:
        return False
    is_pair = isinstance(data, tuple | list) and len(data) == 2
    if not is_pair:
        return False
    return int(as_data(model.expected_data, data).num_rows) * model.num_latent_gps > MANY


def fit_in_minibatches(
    model: AugmentedModel,
    data: RegressionData,
    *,
    seed: int = 0,
    checkpoint_dir: str | Path | None = None,
    progress: bool = True,
) -> tuple[FitResult, "pd.DataFrame"]:
    """
    ``train`` for 1,000 steps of 256 rows, then for 500 with ``objective="standard"``.

    That many whatever the data, as the sizes of the latter end at 0: ``converged`` says that all
    steps of both parts were made. Ctrl-C ends the whole fit, whichever part it is at: the second
    part begins only where the first is complete. Arguments and errors are those of ``train``.

    :param checkpoint_dir: with a folder for each part.
    :return: what has been done to GPflow's ELBO, the log prior included, in as many steps; and the
        history of the second part, without rows where the first was interrupted.
    """
    began = time.perf_counter()
    rows = as_data(model.expected_data, data, progress)

    def objective() -> float:
        return float(model.objectives(rows, standard)[0] + model.log_prior_density())

    start = value_at_start(objective)
    if not np.isfinite(start):
        raise not_finite_at_start(model, next(rows.chunks())[0], start)
    folders: list[Path | None] = [None, None]
    if checkpoint_dir is not None:
        folders = [Path(checkpoint_dir) / name for name in ("closed-form", "standard-elbo")]
    size = tf_keras.optimizers.schedules.CosineDecay(_LEARNING_RATE, _STEPS)
    how: dict[str, Any] = {"batch_size": _BATCH, "seed": seed, "progress": progress}
    with warnings.catch_warnings():  # of a first part that was made before
        warnings.filterwarnings("ignore", "there is nothing to do")
        first = train(model, data, num_steps=_CLOSED_FORM_STEPS, checkpoint_dir=folders[0], **how)
    done = _steps_of(first)
    history = first[:0].rename(columns={"augmented": "standard"})
    if done == _CLOSED_FORM_STEPS:
        # Never from an interrupted first part: that start would stay in the second part's folder.
        history = train(
            model,
            data,
            objective="standard",
            optimizer=tf_keras.optimizers.Adam(size),
            num_steps=_STEPS,
            checkpoint_dir=folders[1],
            **how,
        )
        done += _steps_of(history)
    is_complete = done == _CLOSED_FORM_STEPS + _STEPS
    found = FitResult(
        objective=objective(),
        start=start,
        evaluations=done,
        converged=is_complete,
        reason=_REASON if is_complete else INTERRUPTED,
        fitting_seconds=time.perf_counter() - began,
    )
    return found, history


def _steps_of(history: "pd.DataFrame") -> int:
    """How many steps ``train`` had made when it ended; 0 where Ctrl-C came before the first."""
    return int(history.step.iloc[-1]) if len(history) else 0
