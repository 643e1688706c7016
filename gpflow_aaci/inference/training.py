"""``train``: minibatches, progress, callbacks, early stopping, checkpoints that resume."""

import inspect
import json
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import tensorflow as tf
from check_shapes.exceptions import ShapeMismatchError
from gpflow.base import RegressionData
from gpflow.config import default_float
from gpflow.keras import tf_keras
from gpflow.monitor import Monitor, MonitorTaskGroup
from typing_extensions import TypedDict, Unpack

from ..algebra.terms import augmented_bound, predictive, standard
from ..data import Batches, Call, Data, Expected, Rows, as_data, check_pair, checked_rows
from ..models import (
    AugmentedModel,
    GivenU,
    Model,
    as_augmented,
    of_objective,
)
from ..models.variables import undone_on_failure
from ..progress import progress_bar
from ..runtime.agreement import describe
from ..runtime.checkpoints import Checkpoints, check_objective, checkpoint_step
from ..runtime.graphs import compiled
from ..runtime.structure import facts
from ..validation import as_default_float, check_count, check_one_of, message_of
from .alternating import AlternatingOptimizer
from .joint_adam import JointAscent
from .stepper import Stepper
from .stopping import EarlyStopping, Record, interrupts, should_stop

if TYPE_CHECKING:
    import pandas as pd

_VARIABLES, _HISTORY, _OBJECTIVE = "variables", "history.json", "objective.json"

ObjectiveName = Literal["augmented", "standard", "predictive", GivenU]
_BY_GRADIENTS = {"standard": standard, "predictive": predictive}
_LABELS = {"augmented": "augmented ELBO", "standard": "ELBO"}


class NothingToDo(UserWarning):
    """All steps had been taken when the checkpoint was written from which a run resumes."""


class TrainOptions(TypedDict, total=False):
    """
    Keyword arguments of :func:`~gpflow_aaci.train` about everything but the steps themselves.

    :param test_data: X [N*, D], Y [N*, P]. Their mean negative log predictive density in nats is
        the history's ``nll``, which is NaN without them.
    :param evaluate_every: the number of steps between two rows of the history. Default: 100. The
        last step always has a row. The objective in all rows is evaluated on the same random
        training data, at most 2,000 rows.
    :param early_stopping: when to end before ``num_steps``. Default: never.
    :param monitor: a monitor of :mod:`gpflow.monitor`, which is called after each step with the
        number of steps so far.
    :param checkpoint_dir: the folder for checkpoints. The same call resumes from the latest one.
    :param checkpoint_every: the number of steps between two checkpoints. Default: 1,000.
    :param progress: whether to show a progress bar. Default: True.
    """

    test_data: RegressionData | None
    evaluate_every: int
    early_stopping: EarlyStopping | None
    monitor: Monitor | MonitorTaskGroup | None
    checkpoint_dir: str | Path | None
    checkpoint_every: int
    progress: bool


_DEFAULTS = TrainOptions(
    test_data=None,
    evaluate_every=100,
    early_stopping=None,
    monitor=None,
    checkpoint_dir=None,
    checkpoint_every=1_000,
    progress=True,
)


def train(
    model: Model,
    data: RegressionData | tf.data.Dataset | None = None,
    *,
    objective: ObjectiveName = "augmented",
    optimizer: AlternatingOptimizer | tf_keras.optimizers.Optimizer | None = None,
    num_steps: int = 5_000,
    batch_size: int = 100,
    seed: int = 0,
    **options: Unpack[TrainOptions],
) -> "pd.DataFrame":
    """
    Train q(u) and the hyperparameters of ``model`` on minibatches.

    Ctrl-C ends the run after the current step, writes a checkpoint and returns normally. The same
    call with the same ``checkpoint_dir`` resumes from the latest checkpoint, and ends with exactly
    the numbers of a run that was never stopped::

        history = train(model, (X, Y), test_data=(X_test, Y_test), checkpoint_dir="run")

    :param model: an ``AugmentedSVGP``, an ``AugmentedVGP``, or GPflow's own ``SVGP`` or ``VGP``.
    :param data: arrays X [N, D] and Y [N, P], which are shuffled anew in every pass; or a dataset
        of batches, such as ``dataset.shuffle(N, seed=0).repeat().batch(100)``; None for
        ``AugmentedVGP``. If the model has no ``num_data``, this run uses the number of rows of the
        arrays, or of a dataset of known length that ends.
    :param objective: ``"augmented"``, the model's ``augmented_elbo``, by closed-form steps, or, for
        Gaussian noise, ``"fitc"`` or ``"heteroscedastic"``, the model's ``fitc_objective`` and
        ``heteroscedastic_objective``; or, by gradients, ``"standard"``, GPflow's ``elbo``, or
        ``"predictive"``, the model's ``predictive_objective``, which is not a bound.
    :param optimizer: for closed-form steps an ``AlternatingOptimizer``, by default
        ``AlternatingOptimizer()``. For the other objectives an optimizer of tf_keras.optimizers,
        which moves q(u) and the hyperparameters together, by default ``Adam(0.01)``. An optimizer
        that has made steps continues with the same model, and is refused with another one.
    :param num_steps: the number of steps of this call, including those before a resume.
    :param batch_size: the number of rows in a minibatch of arrays.
    :param seed: the seed for the order of the rows of arrays.
    :param options: see :class:`~gpflow_aaci.inference.TrainOptions`.
    :return: the history, with the columns step, seconds (of training, without evaluations), the
        name of the objective, and nll.
    :raises TypeError: for an option that ``TrainOptions`` does not have.
    :raises ValueError: for bad arguments or data, for a dataset of unknown length if the model has
        no ``num_data``, and for a checkpoint that is damaged or belongs to another run. Nothing has
        been changed then.
    :raises OSError: if a checkpoint cannot be written. The model keeps what it has learnt.
    :raises RuntimeError: if a step fails. The model is as it was before that step.
    """
    augmented = as_augmented(model)
    chosen = _checked(objective, options, num_steps=num_steps, batch_size=batch_size)
    early_stopping, monitor = chosen["early_stopping"], chosen["monitor"]
    test_data, checkpoint_dir = chosen["test_data"], chosen["checkpoint_dir"]
    stepper = _as_stepper(objective, optimizer)
    given = {
        "objective": objective,
        "num_steps": num_steps,
        "batch_size": batch_size,
        "seed": seed,
        "evaluate_every": chosen["evaluate_every"],
        "checkpoint_every": chosen["checkpoint_every"],
        "early_stopping": early_stopping,
        "checkpoint_dir": checkpoint_dir is not None,
        "test_data": test_data is not None,
    }
    expected, call = augmented.expected_data, Call("train", given, lambda: stepper.settings)
    rows = as_data(expected, data, call=call)
    batches = rows.batches(batch_size, seed, checkpoint_dir is not None)
    test = batches.together(lambda: _checked_test_data(expected, test_data))
    fitted = of_objective(augmented, objective)
    run = _Run(fitted, stepper, rows, batches, objective, test, checkpoint_dir)
    run.restore(num_steps)
    with (
        interrupts() as interrupted,
        progress_bar(
            chosen["progress"] and batches.is_chief,
            total=num_steps,
            initial=run.done,
            unit="step",
        ) as bar,
    ):
        while run.done < num_steps and not batches.any_worker(
            interrupted() or should_stop(run.history, early_stopping)
        ):
            if not run.step(num_steps):
                break
            if monitor is not None and batches.is_chief:
                monitor(run.done)
            if run.done % chosen["evaluate_every"] == 0:
                bar.set_postfix(run.evaluate())
            if run.done % chosen["checkpoint_every"] == 0:
                run.save()
            bar.update()
        run.save()
    return run.table(objective)


def _checked(objective: ObjectiveName, options: TrainOptions, **counts: int) -> TrainOptions:
    """
    All options, those which are not given with their defaults.

    :param counts: arguments that must be positive integers, besides those in ``options``.
    """
    unknown = [name for name in options if name not in _DEFAULTS]
    if unknown:
        named = inspect.signature(train).parameters.values()
        own = [each.name for each in named if each.kind is each.KEYWORD_ONLY]
        accepted = ", ".join([*own, *_DEFAULTS])
        raise TypeError(f"train has no option {', '.join(unknown)}. Accepted: {accepted}.")
    chosen: TrainOptions = {**_DEFAULTS, **options}
    check_one_of("objective", objective, get_args(ObjectiveName))
    counts["evaluate_every"] = chosen["evaluate_every"]
    counts["checkpoint_every"] = chosen["checkpoint_every"]
    early_stopping = chosen["early_stopping"]
    if early_stopping is not None:
        counts["early_stopping.patience"] = early_stopping.patience
        if early_stopping.metric not in (objective, "nll"):
            raise ValueError(
                f'early_stopping.metric must be "{objective}" or "nll". '
                f"Found: {early_stopping.metric!r}."
            )
        if early_stopping.metric == "nll" and chosen["test_data"] is None:
            raise ValueError("test_data must be given to stop early on its NLL. Found: None.")
    for name, count in counts.items():
        check_count(name, count, 1)
    return chosen


def _as_stepper(objective: ObjectiveName, optimizer: Any) -> Stepper:
    is_by_gradients = objective in _BY_GRADIENTS
    is_ours, is_made_here = (
        isinstance(optimizer, each) for each in (AlternatingOptimizer, JointAscent)
    )
    if optimizer is not None and (is_made_here or is_ours == is_by_gradients):
        accepted = "one of tf_keras.optimizers" if is_by_gradients else "AlternatingOptimizer"
        raise ValueError(
            f'optimizer must be {accepted} where objective is "{objective}". '
            f"Found: {type(optimizer).__name__}."
        )
    if is_by_gradients:
        return JointAscent(objective, _BY_GRADIENTS[objective], optimizer)
    return optimizer or AlternatingOptimizer()


def _checked_test_data(expected: Expected, test_data: RegressionData | None) -> Rows | None:
    if test_data is None:
        return None
    check_pair("test_data", test_data)
    try:
        return checked_rows(expected, test_data)
    except (ValueError, ShapeMismatchError) as error:
        raise ValueError(f"test_data: {error}") from error


class _Run:
    """The steps of a run, its history, and the checkpoints of both."""

    def __init__(
        self,
        model: AugmentedModel,
        stepper: Stepper,
        rows: Data,
        batches: Batches,
        objective: ObjectiveName,
        test_data: Rows | None,
        checkpoint_dir: str | Path | None,
    ) -> None:
        expected, num_data, self._batches = model.expected_data, batches.num_data, batches
        self._label, self._has_nll = _LABELS.get(objective, objective), test_data is not None
        self.done, self.seconds = 0, 0.0
        self.history: list[Record] = []

        # Functions without ``self``: they and their graphs are freed with this object at once.
        def part(*batch: tf.Tensor) -> Data:
            if not batch:
                return rows
            X, Y = batch
            return rows.batch(X, Y, num_data)

        def step(*batch: tf.Tensor) -> None:
            stepper.take(model, part(*batch))

        def watched() -> tf.Tensor:
            term = _BY_GRADIENTS.get(objective, augmented_bound)
            return model.objectives(part(*(batches.watched or ())), term)[0]

        def of_rows(X: tf.Tensor, Y: tf.Tensor) -> tf.Tensor:
            return -tf.reduce_sum(model.predict_log_density((X, Y)))

        def nll() -> tf.Tensor:
            if test_data is None:
                return tf.constant(np.nan)
            return as_data(expected, test_data, unscaled=True).mean(of_rows)

        evaluations = watched, nll
        if batches.is_shared:
            # Traced once, whatever the batches: collectives of one tracing belong together.
            columns = expected.input_dim, expected.num_observed
            specs = [tf.TensorSpec([None, number], default_float()) for number in columns]
            self._step = compiled(step, input_signature=specs)
        else:
            self._step = compiled(step, reduce_retracing=True)
            evaluations = compiled(watched), compiled(nll)
        self._objective, self._nll = evaluations

        # ---- what a checkpoint stores ----
        stepper.build(model)
        slots = stepper.hyperparameter_optimizer.variables
        self._variables = [*model.variables, *stepper.variables, *slots]
        objects = {"model": model, "optimizer": stepper}
        if batches.iterator is not None:
            objects["iterator"] = batches.iterator
        self._checkpoint = tf.train.Checkpoint(**objects)
        identity: dict[str, Any] = {}
        if checkpoint_dir is not None:
            identity = {"model": describe(model), "optimizer": facts(stepper.settings)}
            identity |= {"num_data": num_data, **batches.identity}
        self._checkpoints = Checkpoints(checkpoint_dir, identity, batches.strategy)

    def step(self, num_steps: int) -> bool:
        """
        Take one step; False, with a warning, where the data have ended.

        :raises RuntimeError: where the step fails. The model is as it was before.
        """
        began = time.perf_counter()
        try:
            batch = self._batches.next_of_all() or ()
            if self._batches.is_shared:
                batch = tuple(map(as_default_float, batch))
            with self._batches.naming_the_lost():
                self._step(*batch)
        except StopIteration:
            warnings.warn(
                f"data ended after {self.done} of {num_steps} steps: for more steps repeat the "
                "dataset, dataset.repeat().batch(...).",
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

    def evaluate(self) -> dict[str, str]:
        """Add a row to the history; what a progress bar shows of it."""
        record = Record(self.done, self.seconds, float(self._objective()), float(self._nll()))
        self.history.append(record)
        shown = {self._label: f"{record.objective:.5g}"}
        return shown | ({"NLL": f"{record.nll:.4f}"} if self._has_nll else {})

    def table(self, objective: str) -> "pd.DataFrame":
        """The history, with a row of the last step."""
        if self.done and (not self.history or self.history[-1].step != self.done):
            # This is not in the checkpoint: a run that resumes has rows at the regular steps alone.
            self.evaluate()
        import pandas as pd  # imported late, as training does without it

        return pd.DataFrame(self.history, columns=["step", "seconds", objective, "nll"])

    def save(self) -> None:
        """Write a checkpoint, if there is a folder for them."""
        if self._checkpoints.directory is None:
            return
        objective = float(self._objective())

        def write(folder: Path) -> None:
            try:
                self._checkpoint.write(str(folder / _VARIABLES))
            except tf.errors.OpError as error:  # a full disk, as TensorFlow says it
                raise OSError(None, error.message) from error
            (folder / _HISTORY).write_text(json.dumps(self.history))
            (folder / _OBJECTIVE).write_text(json.dumps(objective))
            self._batches.write(folder)

        self._checkpoints.save(self.done, write)

    def restore(self, num_steps: int) -> None:
        """
        Set everything to the latest checkpoint, if there is one; warn where no step is left.

        :raises ValueError: if that belongs to another run; everything is then as it was.
        """
        path = self._checkpoints.latest()
        if path is not None:
            with undone_on_failure(self._variables):
                self._checkpoint.read(str(path / _VARIABLES)).assert_consumed()
                self._batches.read(path)
                stored = json.loads((path / _OBJECTIVE).read_text())
                check_objective(path, stored, float(self._objective()))
            self.done = checkpoint_step(path)
            self.history = [Record(*row) for row in json.loads((path / _HISTORY).read_text())]
            self.seconds = self.history[-1].seconds if self.history else 0.0
        self._batches.go_to(self.done)
        if self.done >= num_steps:
            warnings.warn(
                f"there is nothing to do: num_steps is {num_steps}, and the checkpoint in "
                f"{self._checkpoints.directory} was written at step {self.done}.",
                NothingToDo,
                stacklevel=3,
            )
