"""
Many rows of many classes: hyperparameters on minibatches, then q on all rows.

For a likelihood of several classes an evaluation of the profile is half a dozen Newton steps, each
with an integral over all latent GPs for every row. The augmented bound has a closed form, and a
minibatch's costs milliseconds.
"""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpflow.base import RegressionData

from ..likelihoods import LogisticSoftmax
from ..models import AugmentedModel
from .fitting import FitResult
from .optimizers import AugmentedNaturalGradient
from .stopping import EarlyStopping, Record, should_stop
from .training import train

if TYPE_CHECKING:
    import pandas as pd

MANY = 30_000  # rows times classes: up to there ``fit_collapsed`` takes a minute or so
_MOST_STEPS, _BATCH = 2_000, 256
_EVERY, _PATIENCE, _LEAST_GAIN = 100, 5, 1e-3  # steps; evaluations; nats per datum
_STEPS_ON_ALL = 3  # of size 1, each the best q for its ω


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
    ``train`` until its bound has not risen by 1e-3 nats a datum in 500 steps; q on all rows.

    At most 2,000 steps of 256 rows, and three closed-form ones on all. Arguments and errors are
    those of ``train``.

    :return: what has been done to GPflow's ELBO, the log prior included, in as many steps; and the
        history of ``train``.
    """
    began = time.perf_counter()
    rows = model.checked_rows(data)

    def objective() -> float:
        return float(model.standard_elbo(rows, progress=progress) + model.log_prior_density())

    start = objective()
    rule = EarlyStopping("elbo", _PATIENCE, _LEAST_GAIN * len(rows[0]))
    history = train(
        model,
        rows,
        num_steps=_MOST_STEPS,
        batch_size=_BATCH,
        seed=seed,
        evaluate_every=_EVERY,
        early_stopping=rule,
        checkpoint_dir=checkpoint_dir,
        progress=progress,
    )
    converged = should_stop([Record(*row) for row in history.itertuples(index=False)], rule)
    step = AugmentedNaturalGradient(step_size=1.0)
    for _ in range(_STEPS_ON_ALL):
        step.minimize(model, rows)
    reason = f"the objective has not risen in {_EVERY * _PATIENCE} steps"
    found = FitResult(
        objective=objective(),
        start=start,
        evaluations=int(history.step.iloc[-1]) + _STEPS_ON_ALL,
        converged=converged,
        reason=reason if converged else "the most steps were made",
        fitting_seconds=time.perf_counter() - began,
    )
    return found, history
