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
from ..data import Batches, Rows, as_data, check_pair, checked_rows
from ..graphs import compiled
from ..models import AugmentedModel, check_model
from ..progress import progress_bar
from ..structure import facts
from ..validation import as_default_float, check_count, check_one_of, message_of
from .alternating import AlternatingOptimizer
from .evaluation import evaluators
from .joint_adam import JointAscent
from .stepper import Stepper
from .stopping import EarlyStopping, Record, interrupts, should_stop

if TYPE_CHECKING:
    import pandas as pd

_VARIABLES, _HISTORY, _OBJECTIVE = "variables", "history.json", "objective.json"

Objective = Literal["augmented", "standard", "predictive"]
_TERMS = {"augmented": augmented, "standard": standard, "predictive": predictive}
_OBJECTIVE_LABELS = {"augmented": "augmented ELBO", "standard": "ELBO", "predictive": "predictive"}


def train(
    model: AugmentedModel,
    data: RegressionData | tf.data.Dataset | None = None,
    *,
    objective: Objective = "augmented",
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
    :param objective: ``"augmented"``, the model's ``augmented_elbo``; or one that closed-form steps
        do not climb: ``"standard"``, GPflow's ``elbo``, and ``"predictive"``, the model's
        ``predictive_objective``, which is not a bound.
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
    options: dict[str, Any] = {"num_steps": num_steps, "batch_size": batch_size, "seed": seed}
    options |= {"evaluate_every": evaluate_every, "checkpoint_every": checkpoint_every}
    options |= {"early_stopping": early_stopping, "checkpoint_dir": checkpoint_dir is not None}
    options |= {"objective": objective, "test_data": test_data is not None}
    optimizer = _as_optimizer(objective, optimizer)
    settings = facts(optimizer.settings)
    options |= {f"{path} of the optimizer": fact for path, fact in settings.items()}
    check_same_program(model, "train", **options)
    batches = as_data(model.expected_data, data).batches(
        batch_size, seed, resumable=checkpoint_dir is not None
    )
    test = None
    if test_data is not None:
        test = batches.together(lambda: _checked_test_data(model, test_data))
    optimizer.build(model)
    watched, nll = evaluators(model, _TERMS[objective], batches, test)
    run = _Run(
        model, batches, _compiled_step(model, optimizer, batches), lambda: (watched(), nll())
    )
    checkpoints = _Checkpoints(model, optimizer, batches, watched, checkpoint_dir)
    run.done, run.history = checkpoints.restore()
    if run.done >= num_steps:
        warnings.warn(
            f"there is nothing to do: num_steps is {num_steps}, and the checkpoint in "
            f"{checkpoint_dir} is of step {run.done}.",
            stacklevel=2,
        )
    run.seconds = run.history[-1].seconds if run.history else 0.0
    with (
        interrupts() as interrupted,
        progress_bar(
            progress and batches.is_chief, total=num_steps, initial=run.done, unit="step"
        ) as bar,
    ):
        while run.done < num_steps and not batches.any_worker(
            interrupted() or should_stop(run.history, early_stopping)
        ):
            if not run.step(num_steps):
                break
            if monitor is not None and batches.is_chief:
                monitor(run.done)
            if run.done % evaluate_every == 0:
                run.evaluate()
                bar.set_postfix(run.shown(_OBJECTIVE_LABELS[objective], test is not None))
            if run.done % checkpoint_every == 0:
                checkpoints.save(run.done, run.history)
            bar.update()
        checkpoints.save(run.done, run.history)
    if run.done and (not run.history or run.history[-1].step != run.done):
        # After the checkpoint: a run that goes on has rows at the regular steps alone.
        run.evaluate()
    import pandas as pd  # here, as training does without it

    return pd.DataFrame(run.history, columns=["step", "seconds", objective, "nll"])


class _Run:
    """The steps of a run, and its history."""

    def __init__(
        self,
        model: AugmentedModel,
        batches: Batches,
        step: Callable[[RegressionData | None], object],
        evaluate: Callable[[], tuple[tf.Tensor, tf.Tensor]],
    ) -> None:
        """
        :param evaluate: gives the objective and the NLL.
        """
        self._model, self._batches, self._step, self._evaluate = model, batches, step, evaluate
        self.done, self.seconds = 0, 0.0
        self.history: list[Record] = []

    def step(self, num_steps: int) -> bool:
        """
        Take one step; False, with a warning, where the data have ended.

        :raises RuntimeError: where the step fails. The model is as it was before.
        """
        began = time.perf_counter()
        try:
            batch = self._batches.next_of_all()
            with self._batches.naming_the_lost():
                self._step(batch)
        except StopIteration:
            warnings.warn(
                f"data ended after {self.done} of {num_steps} steps: a dataset goes on where it is "
                "repeated, dataset.repeat().batch(...).",
                stacklevel=3,
            )
            return False
        except (tf.errors.InvalidArgumentError, ValueError) as error:
            raise RuntimeError(
                f"step {self.done + 1} failed, and the model is as it was before it: "
                f"{message_of(error)}"
            ) from error
        self.seconds += time.perf_counter() - began
        self.done += 1
        return True

    def evaluate(self) -> None:
        """Add a row to the history."""
        self.history.append(Record(self.done, self.seconds, *map(float, self._evaluate())))

    def shown(self, name: str, with_nll: bool) -> dict[str, str]:
        """The entries of the history's last row that a progress bar shows."""
        shown = {name: f"{self.history[-1].objective:.5g}"}
        return shown | ({"NLL": f"{self.history[-1].nll:.4f}"} if with_nll else {})


def _compiled_step(
    model: AugmentedModel, optimizer: Stepper, batches: Batches
) -> Callable[[RegressionData | None], object]:
    if not batches.is_shared:
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


def _checked_test_data(model: AugmentedModel, test_data: RegressionData) -> Rows:
    check_pair("test_data", test_data)
    try:
        return checked_rows(model.expected_data, test_data)
    except (ValueError, ShapeMismatchError) as error:
        raise ValueError(f"test_data: {error}") from error


def _as_optimizer(objective: Objective, optimizer: Any) -> Stepper:
    is_ours, is_made_here = (
        isinstance(optimizer, each) for each in (AlternatingOptimizer, JointAscent)
    )
    if optimizer is not None and (is_made_here or is_ours != (objective == "augmented")):
        accepted = (
            "AlternatingOptimizer" if objective == "augmented" else "one of tf_keras.optimizers"
        )
        raise ValueError(
            f'optimizer must be {accepted} where objective is "{objective}". '
            f"Found: {type(optimizer).__name__}."
        )
    if objective == "augmented":
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


class _Checkpoints:
    """What a checkpoint stores: model, optimizer and its slots, where the data are, history."""

    def __init__(
        self,
        model: AugmentedModel,
        optimizer: Stepper,
        batches: Batches,
        objective: Callable[[], tf.Tensor],
        directory: str | Path | None,
    ) -> None:
        self.batches, self.objective = batches, objective
        self.directory = None if directory is None else Path(directory)
        slots = optimizer.hyperparameter_optimizer
        self.variables = [*model.variables, *optimizer.variables, *slots.variables]
        objects = {"model": model, "optimizer": optimizer}
        self.strategy = batches.strategy
        if batches.iterator is not None:
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
            self.batches.write(folder)

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
        self.batches.read(path)
        try:
            check_objective(path, "objective", stored, float(self.objective()))
        except ValueError:
            for variable, value in zip(self.variables, before, strict=True):
                variable.assign(value)
            raise
        step = checkpoint_step(path)
        self.batches.go_to(step)
        return step, [Record(*record) for record in json.loads((path / _HISTORY).read_text())]
