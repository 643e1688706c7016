"""``train``: minibatches, progress, callbacks, early stopping, checkpoints that resume."""

import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import tensorflow as tf
from check_shapes.exceptions import ShapeMismatchError
from gpflow.base import RegressionData
from gpflow.config import default_float
from gpflow.keras import tf_keras
from gpflow.monitor import Monitor, MonitorTaskGroup

from ..algebra.terms import augmented, predictive, standard
from ..checkpoints import (
    check_objective,
    check_same_program,
    checkpoint_step,
    describe,
    latest_checkpoint,
    save_checkpoint,
)
from ..data import Batches, as_batches, check_pair
from ..graphs import compiled
from ..identity import facts
from ..models import AugmentedModel, check_model
from ..progress import progress_bar
from ..validation import as_default_float, check_count, check_one_of
from ..workers import any_worker, is_chief, naming_the_lost, num_workers, together
from .alternating import AlternatingOptimizer
from .joint import JointAscent
from .stopping import EarlyStopping, Record, interrupts, should_stop
from .watching import evaluators

if TYPE_CHECKING:
    import pandas as pd

_ENDED = object()
_VARIABLES, _HISTORY, _OBJECTIVE = "variables", "history.json", "objective.json"

Objective = Literal["elbo", "standard_elbo", "predictive"]
_TERMS = {"elbo": augmented, "standard_elbo": standard, "predictive": predictive}
_SHOWN = {"elbo": "ELBO", "standard_elbo": "standard ELBO", "predictive": "predictive"}
_Optimizer = AlternatingOptimizer | JointAscent


def train(
    model: AugmentedModel,
    data: RegressionData | tf.data.Dataset | None = None,
    *,
    objective: Objective = "elbo",
    optimizer: AlternatingOptimizer | tf_keras.optimizers.Optimizer | None = None,
    num_steps: int = 5_000,
    batch_size: int = 100,
    seed: int = 0,
    test_data: RegressionData | None = None,
    evaluate_every: int = 100,
    early_stopping: EarlyStopping | None = None,
    monitor: Monitor | MonitorTaskGroup | None = None,
    checkpoint_dir: str | Path | None = None,
    checkpoint_every: int = 1_000,
    progress: bool = True,
) -> "pd.DataFrame":
    """
    Train q(u) and the hyperparameters of ``model`` on minibatches.

    Ctrl-C ends the run after the step that it is at, with a checkpoint, and returns what has been
    learnt. The same call with the same ``checkpoint_dir`` goes on from the latest checkpoint, and
    ends with the very numbers of a run that was never stopped::

        history = train(model, (X, Y), test_data=(X_test, Y_test), checkpoint_dir="run")

    :param data: arrays X [N, D], Y [N, P], shuffled anew in every pass; or a dataset of batches,
        such as ``dataset.shuffle(N, seed=0).repeat().batch(100)``; none for ``AugmentedVGP``. A
        model without ``num_data`` is told the rows of arrays and of a dataset that is one pass
        over data of known length, for this run.
    :param objective: ``"elbo"``, the augmented bound; or what closed-form steps do not climb:
        ``"standard_elbo"``, GPflow's, and ``"predictive"``, ``predictive_objective`` of the model,
        which is no bound.
    :param optimizer: ``AlternatingOptimizer()`` unless given; for the other two one of
        tf_keras.optimizers, for q(u) and the hyperparameters together, ``Adam(0.01)`` unless given.
        One that has stepped before goes on with this model, and is refused with another.
    :param num_steps: of this call, those before a resume from ``checkpoint_dir`` included.
    :param batch_size, seed: of the minibatches of arrays.
    :param test_data: X [N*, D], Y [N*, P] whose mean negative log predictive density, in nats, is
        the history's ``nll``.
    :param evaluate_every: steps between two rows of the history; the last step has one, too. Its
        objective is on the same random rows every time, at most 2,000.
    :param monitor: of :mod:`gpflow.monitor`, called with the number of steps after each of them.
    :return: step, seconds (of training, without evaluations), the objective by its name, nll.
    :raises ValueError: for bad arguments or data, a dataset of unknown length with a model without
        ``num_data``, and for a checkpoint that is damaged or of another run, before anything is
        changed.
    :raises OSError: where a checkpoint cannot be written. The model keeps what it has learnt.
    :raises RuntimeError: where a step fails. The model is as it was before that step.
    """
    counts = num_steps, batch_size, evaluate_every, checkpoint_every
    _check(objective, *counts, early_stopping, test_data)
    check_model(model)
    strategy = model.strategy
    options: dict[str, Any] = {"num_steps": num_steps, "batch_size": batch_size, "seed": seed}
    options |= {"evaluate_every": evaluate_every, "checkpoint_every": checkpoint_every}
    options |= {"early_stopping": early_stopping, "checkpoint_dir": checkpoint_dir is not None}
    options |= {"objective": objective, "test_data": test_data is not None}
    optimizer = _as_optimizer(objective, optimizer)
    settings = facts(optimizer.settings)
    options |= {f"{path} of the optimizer": fact for path, fact in settings.items()}
    check_same_program(model, "train", **options)
    progress = progress and is_chief(strategy)
    batches = as_batches(model, data, batch_size, seed, strategy)
    test = None
    if test_data is not None:
        test = together(strategy, lambda: _checked_test_data(model, test_data))
    optimizer.build(model)
    watched, nll = evaluators(model, _TERMS[objective], batches, test)
    kept = _Kept(model, optimizer, batches, watched, checkpoint_dir)
    done, history = kept.restore()
    if done >= num_steps:
        warnings.warn(
            f"there is nothing to do: num_steps is {num_steps}, and the checkpoint in "
            f"{checkpoint_dir} is of step {done}.",
            stacklevel=2,
        )
    step = _compiled_step(model, optimizer, batches)
    seconds = history[-1].seconds if history else 0.0

    def record() -> Record:
        return Record(done, seconds, float(watched()), float(nll()))

    with (
        interrupts() as interrupted,
        progress_bar(progress, total=num_steps, initial=done, unit="step") as bar,
    ):
        while done < num_steps and not (
            any_worker(strategy, interrupted() or should_stop(history, early_stopping))
        ):
            began = time.perf_counter()
            try:
                batch = together(strategy, lambda: next(batches, _ENDED))
                if any_worker(strategy, batch is _ENDED):
                    raise StopIteration
                with naming_the_lost(strategy):
                    step(batch)
            except StopIteration:
                warnings.warn(
                    f"data ended after {done} of {num_steps} steps: a dataset goes on where it is "
                    "repeated, dataset.repeat().batch(...).",
                    stacklevel=2,
                )
                break
            except (tf.errors.InvalidArgumentError, ValueError) as error:
                raise RuntimeError(
                    f"step {done + 1} failed, and the model is as it was before it: {error}"
                ) from error
            seconds += time.perf_counter() - began
            done += 1
            if monitor is not None and is_chief(strategy):
                monitor(done)
            if done % evaluate_every == 0:
                history.append(record())
                shown = {_SHOWN[objective]: f"{history[-1].objective:.5g}"}
                if test is not None:
                    shown["NLL"] = f"{history[-1].nll:.4f}"
                bar.set_postfix(shown)
            if done % checkpoint_every == 0:
                kept.save(done, history)
            bar.update()
        kept.save(done, history)
    if done and (not history or history[-1].step != done):
        # After the checkpoint: a run that goes on has rows at the regular steps alone.
        history.append(record())
    import pandas as pd  # here, as training does without it

    return pd.DataFrame(history, columns=["step", "seconds", objective, "nll"])


def _compiled_step(
    model: AugmentedModel, optimizer: _Optimizer, batches: Batches
) -> Callable[[RegressionData | None], object]:
    if num_workers(model.strategy) == 1:
        step = compiled(optimizer.minimize, reduce_retracing=True)
        return lambda batch: step(model, batch, num_data=batches.num_data)
    # Traced once, whatever the batches: collectives of one tracing belong together.
    columns = model.input_dim, model.num_observed
    specs = [tf.TensorSpec([None, number], default_float()) for number in columns]
    of_rows = compiled(
        lambda X, Y: optimizer.minimize(model, (X, Y), num_data=batches.num_data),
        input_signature=specs,
    )

    def of_batch(batch: RegressionData | None) -> object:
        assert batch is not None  # there is data: no model here keeps its own
        return of_rows(*map(as_default_float, batch))

    return of_batch


def _checked_test_data(model: AugmentedModel, test_data: RegressionData) -> RegressionData:
    check_pair("test_data", test_data)
    try:
        return model.checked_rows(test_data)
    except (ValueError, ShapeMismatchError) as error:
        raise ValueError(f"test_data: {error}") from error


def _as_optimizer(objective: Objective, optimizer: Any) -> _Optimizer:
    is_ours, is_made_here = (isinstance(optimizer, each) for each in get_args(_Optimizer))
    if optimizer is not None and (is_made_here or is_ours != (objective == "elbo")):
        accepted = "AlternatingOptimizer" if objective == "elbo" else "one of tf_keras.optimizers"
        raise ValueError(
            f'optimizer must be {accepted} where objective is "{objective}". '
            f"Found: {type(optimizer).__name__}."
        )
    if objective == "elbo":
        return optimizer or AlternatingOptimizer()
    return JointAscent(objective, _TERMS[objective], optimizer)


def _check(
    objective: Objective,
    num_steps: int,
    batch_size: int,
    evaluate_every: int,
    checkpoint_every: int,
    early_stopping: EarlyStopping | None,
    test_data: RegressionData | None,
) -> None:
    check_one_of("objective", objective, get_args(Objective))
    counts = {
        "num_steps": num_steps,
        "batch_size": batch_size,
        "evaluate_every": evaluate_every,
        "checkpoint_every": checkpoint_every,
    }
    if early_stopping is not None:
        counts["early_stopping.patience"] = early_stopping.patience
        if early_stopping.metric not in (objective, "nll"):
            raise ValueError(
                f'early_stopping.metric must be "{objective}" or "nll". '
                f"Found: {early_stopping.metric!r}."
            )
        if early_stopping.metric == "nll" and test_data is None:
            raise ValueError("test_data must be given to stop early on its NLL. Found: None.")
    for name, count in counts.items():
        check_count(name, count, 1)


# ---- checkpoints ----


class _Kept:
    """What a checkpoint keeps: model, optimizer and its slots, where the data are, history."""

    def __init__(
        self,
        model: AugmentedModel,
        optimizer: _Optimizer,
        batches: Batches,
        objective: Callable[[], tf.Tensor],
        directory: str | Path | None,
    ) -> None:
        self.batches, self.objective = batches, objective
        self.directory = None if directory is None else Path(directory)
        slots = optimizer.hyperparameter_optimizer
        self.variables = [*model.variables, *optimizer.variables, *slots.variables]
        objects = {"model": model, "optimizer": optimizer}
        self.strategy = model.strategy
        if batches.iterator is not None and num_workers(self.strategy) == 1:
            objects["iterator"] = batches.iterator
        self.checkpoint = tf.train.Checkpoint(**objects)
        self.run: dict[str, Any] = {}
        if self.directory is not None:
            self.run = {
                "model": describe(model),
                "optimizer": facts(optimizer.settings),
                "num_data": batches.num_data,
                **batches.identity,
            }

    def save(self, step: int, history: list[Record]) -> None:
        if self.directory is None:
            return

        objective = float(self.objective())

        def write(folder: Path) -> None:
            try:
                self.checkpoint.write(str(folder / _VARIABLES))
            except tf.errors.OpError as error:  # a full disk, as TensorFlow says it
                raise OSError(None, error.message) from error
            (folder / _HISTORY).write_text(json.dumps(history))
            (folder / _OBJECTIVE).write_text(json.dumps(objective))

        save_checkpoint(self.directory, step, self.run, write, self.strategy)

    def restore(self) -> tuple[int, list[Record]]:
        """
        Set everything to the latest checkpoint, if there is one.

        :return: its step and its history.
        :raises ValueError: where that is of another run; everything is then as it was.
        """
        path = None
        if self.directory is not None:
            path = latest_checkpoint(self.directory, self.run, self.strategy)
        if path is None:
            self.batches.go_to(0)
            return 0, []
        before = [variable.numpy() for variable in self.variables]
        self.checkpoint.read(str(path / _VARIABLES)).assert_consumed()
        stored = json.loads((path / _OBJECTIVE).read_text())
        try:
            check_objective(path, "objective", stored, float(self.objective()))
        except ValueError:
            for variable, value in zip(self.variables, before, strict=True):
                variable.assign(value)
            raise
        step = checkpoint_step(path)
        self.batches.go_to(step)
        return step, [Record(*record) for record in json.loads((path / _HISTORY).read_text())]
