"""
Fits on minibatches: for endless data, for expensive rows, and for the predictive objective.

Rows are expensive for a likelihood of several classes: an evaluation of the profile is half a dozen
Newton steps on all rows, each with an integral over all latent GPs for every row. Closed-form steps
on minibatches need no integral and bring q near its optimum at once. But for these likelihoods
their bound is so far below GPflow's ELBO that hyperparameters which are best for it predict worse.
So Adam climbs the ELBO afterwards.
"""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import tensorflow as tf
from gpflow.base import RegressionData
from gpflow.keras import tf_keras

from ..data import as_data
from ..models import AugmentedModel
from .settings import SETTINGS
from .stopping import INTERRUPTED, EarlyStopping, Record, should_stop
from .training import NothingToDo, ObjectiveName, train

if TYPE_CHECKING:
    import pandas as pd

_ALL_STEPS = "all steps were made; the gain of further steps is not known"
_MOST_STEPS = "the limit of steps was reached"


class Part(NamedTuple):
    """One call of ``train`` in a fit."""

    objective: ObjectiveName
    num_steps: int  # at most
    waits: bool = False  # whether it ends early where the objective no longer rises
    learning_rate: float | None = None  # Adam's first one, which falls to 0 as a cosine does
    batch_size: int = 100  # rows, of arrays


class Trained(NamedTuple):
    """The result of :func:`in_parts`."""

    converged: bool
    reason: str  # why it ended
    steps: int  # of all parts together
    history: "pd.DataFrame"  # of the part in which it ended


def is_for_minibatches(model: AugmentedModel, data: Any) -> bool:
    """Whether data are arrays or frames whose passes cost too much for ``fit_collapsed``."""
    is_pair = isinstance(data, tuple | list) and len(data) == 2
    if not is_pair or not model.likelihood.row_cost or model.own_data is not None:
        return False
    num_rows = int(as_data(model.expected_data, data).num_rows)
    return num_rows * model.likelihood.row_cost > SETTINGS.most_cost


def for_dear_rows() -> list[Part]:
    """Closed-form steps and then Adam, each a fixed number of steps."""
    rate, size = SETTINGS.standard_learning_rate, SETTINGS.dear_batch
    return [
        Part("augmented", SETTINGS.dear_closed_form_steps, batch_size=size),
        Part("standard", SETTINGS.dear_standard_steps, learning_rate=rate, batch_size=size),
    ]


def for_endless_data() -> list[Part]:
    """Closed-form steps until the bound no longer rises, and then Adam on GPflow's ELBO."""
    rate = SETTINGS.standard_learning_rate
    return [
        Part("augmented", SETTINGS.most_steps, waits=True),
        Part("standard", SETTINGS.endless_standard_steps, learning_rate=rate),
    ]


def for_predictions() -> list[Part]:
    """Adam on the predictive objective until that no longer rises."""
    return [Part("predictive", SETTINGS.most_steps, waits=True)]


def in_parts(
    model: AugmentedModel,
    data: RegressionData | tf.data.Dataset | None,
    parts: Sequence[Part],
    num_data: int,
    seed: int,
    checkpoint_dir: str | Path | None,
    progress: bool,
) -> Trained:
    """
    Call ``train`` for one part after the other; Ctrl-C in any part ends all of them.

    A part begins only where the part before it is complete. Otherwise a checkpoint of the next part
    would remain that began at an interrupted one.

    :param num_data: the number of rows that the objective stands for.
    :param checkpoint_dir: a folder that gets a folder for each part, if there are several parts.
    """
    steps, is_complete, reason = 0, True, ""
    for part in parts:
        folder = None if checkpoint_dir is None else Path(checkpoint_dir)
        if folder is not None and len(parts) > 1:
            folder /= part.objective
        rule = _rule(part, num_data)
        with warnings.catch_warnings():  # of a part that an earlier call has completed
            if part is not parts[-1]:
                warnings.simplefilter("ignore", NothingToDo)
            history = train(
                model,
                data,
                objective=part.objective,
                optimizer=_optimizer(part),
                num_steps=part.num_steps,
                batch_size=part.batch_size,
                seed=seed,
                evaluate_every=SETTINGS.evaluate_every,
                early_stopping=rule,
                checkpoint_dir=folder,
                progress=progress,
            )
        records = [Record(*row) for row in history.itertuples(index=False)]
        # An interrupted run ends with an extra row, which early stopping must not count.
        regular = [record for record in records if record.step % SETTINGS.evaluate_every == 0]
        done = records[-1].step if records else 0
        has_waited = should_stop(regular, rule)
        has_all = done == part.num_steps
        steps += done
        if not has_waited and not has_all:
            return Trained(False, INTERRUPTED, steps, _renamed(history, part.objective))
        is_complete = is_complete and (has_waited or not part.waits)
        if part.waits:
            reason = _no_longer_rises() if has_waited else _MOST_STEPS
        else:
            reason = _ALL_STEPS if is_complete else reason
    # Steps of a fixed number end somewhere, whether or not more would gain.
    converged = is_complete and any(part.waits for part in parts)
    return Trained(converged, reason, steps, _renamed(history, parts[-1].objective))


def _no_longer_rises() -> str:
    steps = SETTINGS.evaluate_every * SETTINGS.patience
    return f"the objective has not risen in {steps} steps"


def _renamed(history: "pd.DataFrame", objective: str) -> "pd.DataFrame":
    return history.rename(columns={objective: "objective"})


def _optimizer(part: Part) -> tf_keras.optimizers.Optimizer | None:
    if part.learning_rate is None:
        return None
    schedule = tf_keras.optimizers.schedules.CosineDecay(part.learning_rate, part.num_steps)
    return tf_keras.optimizers.Adam(schedule)


def _rule(part: Part, num_data: int) -> EarlyStopping | None:
    if not part.waits:
        return None
    return EarlyStopping(part.objective, SETTINGS.patience, SETTINGS.patience_gain * num_data)
