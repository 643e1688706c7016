"""``train``: minibatches, progress, callbacks, early stopping, checkpoints that resume."""

import json
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray, RegressionData
from gpflow.monitor import Monitor, MonitorTaskGroup
from tqdm import tqdm

from .alternating import AlternatingOptimizer
from .checkpoints import describe, digest, latest_checkpoint, save_checkpoint
from .models import AugmentedModel, AugmentedVGP
from .optimizers import check_arguments

if TYPE_CHECKING:
    import pandas as pd

_ELBO_ROWS = 2_000  # on which the ELBO is watched
_VARIABLES, _STATE = "variables", "history.json"


class EarlyStopping(NamedTuple):
    """Stop once ``patience`` evaluations in a row have not been better by ``min_delta``."""

    metric: Literal["elbo", "nll"] = "nll"
    patience: int = 10
    min_delta: float = 0.0  # nats; of the whole ELBO, or of the NLL per datum


class _Record(NamedTuple):
    """A row of the history."""

    step: int
    seconds: float
    elbo: float
    nll: float


def train(
    model: AugmentedModel,
    data: RegressionData | tf.data.Dataset | None = None,
    *,
    optimizer: AlternatingOptimizer | None = None,
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
        such as ``dataset.shuffle(N, seed=0).repeat().batch(100)``; none for ``AugmentedVGP``.
    :param optimizer: ``AlternatingOptimizer()`` unless given.
    :param num_steps: in all, those before a resume included.
    :param batch_size, seed: of the minibatches of arrays.
    :param test_data: X [N*, D], Y [N*, P] whose mean negative log predictive density, in nats, is
        the history's ``nll``.
    :param evaluate_every: steps between two rows of the history. Its ``elbo`` is on the same
        random rows every time, at most 2,000.
    :param monitor: of :mod:`gpflow.monitor`, called with the number of steps after each of them.
    :return: step, seconds (of training, without evaluations), elbo, nll.
    :raises ValueError: for bad arguments, and for a checkpoint that is damaged or of another run,
        before anything is changed.
    :raises OSError: where a checkpoint cannot be written. The model keeps what it has learnt.
    :raises RuntimeError: where a step fails. The model is as it was before that step.
    """
    _check(num_steps, batch_size, evaluate_every, checkpoint_every, early_stopping, test_data)
    optimizer = optimizer or AlternatingOptimizer()
    source = _make_source(model, data, batch_size, seed)
    optimizer.build(model)
    kept = _Kept(model, optimizer, source, checkpoint_dir)
    history = kept.restore()

    elbo, nll = _evaluators(model, source.watched, test_data)
    step = tf.function(optimizer.minimize, autograph=False, reduce_retracing=True)
    seconds = history[-1].seconds if history else 0.0

    with (
        _interrupts() as interrupted,
        tqdm(total=num_steps, unit="step", disable=None if progress else True) as bar,
    ):
        bar.update(int(optimizer.step))
        for done in range(int(optimizer.step) + 1, num_steps + 1):
            if interrupted() or _should_stop(history, early_stopping):
                break
            began = time.perf_counter()
            try:
                batch = source.next_batch()
                if batch is None:
                    break
                step(model, *batch)
            except (tf.errors.InvalidArgumentError, ValueError) as error:
                raise RuntimeError(
                    f"step {done} failed, and the model is as it was before it: {error}"
                ) from error
            seconds += time.perf_counter() - began
            if monitor is not None:
                monitor(done)
            if done % evaluate_every == 0 or done == num_steps:
                history.append(_Record(done, seconds, float(elbo()), float(nll())))
                shown = {"ELBO": f"{history[-1].elbo:.5g}", "NLL": f"{history[-1].nll:.4f}"}
                bar.set_postfix(shown if test_data is not None else {"ELBO": shown["ELBO"]})
            if done % checkpoint_every == 0:
                kept.save(history)
            bar.update()
        kept.save(history)
    import pandas as pd  # here, as training does without it

    return pd.DataFrame(history, columns=list(_Record._fields))


def _check(
    num_steps: int,
    batch_size: int,
    evaluate_every: int,
    checkpoint_every: int,
    early_stopping: EarlyStopping | None,
    test_data: RegressionData | None,
) -> None:
    counts = {
        "num_steps": num_steps,
        "batch_size": batch_size,
        "evaluate_every": evaluate_every,
        "checkpoint_every": checkpoint_every,
    }
    if early_stopping is not None:
        counts["early_stopping.patience"] = early_stopping.patience
        if early_stopping.metric not in ("elbo", "nll"):
            raise ValueError(
                f'early_stopping.metric must be "elbo" or "nll". Found: {early_stopping.metric!r}.'
            )
        if early_stopping.metric == "nll" and test_data is None:
            raise ValueError("test_data must be given to stop early on its NLL. Found: None.")
    for name, count in counts.items():
        if not isinstance(count, int) or count < 1:
            raise ValueError(f"{name} must be an integer of at least 1. Found: {count!r}.")


# ---- where batches come from ----


class _Source(NamedTuple):
    """What the loop needs to know of the data."""

    next_batch: Callable[[], tuple[Any, ...] | None]  # what ``minimize`` takes; None at the end
    go_to: Callable[[int], None]  # the batch of step number, from 0
    watched: tuple[Any, ...]  # what ``elbo`` takes
    iterator: Any  # a checkpointable one, or None
    run: dict[str, Any]  # what identifies it


def _make_source(
    model: AugmentedModel, data: RegressionData | tf.data.Dataset | None, batch_size: int, seed: int
) -> _Source:
    if isinstance(data, tf.data.Dataset):
        iterator = iter(data)
        check_arguments(model, iterator)
        return _from_dataset(iterator, str(data.element_spec), model.num_data)
    check_arguments(model, data)
    if isinstance(model, AugmentedVGP):
        run = {"data": digest([np.asarray(d) for d in model.data])}
        return _Source(lambda: (), lambda step: None, (), None, run)
    X, Y, _ = (np.asarray(value) for value in model.checked_batch(data))
    return _from_arrays(X, Y, batch_size, seed)


def _from_arrays(X: AnyNDArray, Y: AnyNDArray, batch_size: int, seed: int) -> _Source:
    batch_size = min(batch_size, len(X))
    position = 0

    def go_to(step: int) -> None:
        nonlocal position
        position = step

    def batches() -> Iterator[tuple[Any, ...]]:
        nonlocal position
        a_pass, order = -1, np.arange(len(X))
        while True:
            number, within = divmod(position, len(X) // batch_size)
            if number != a_pass:
                # A pass has an order of its own, so that any step's batch can be had at once.
                a_pass, order = number, np.random.default_rng([seed, number]).permutation(len(X))
            rows = order[within * batch_size : (within + 1) * batch_size]
            position += 1
            yield ((tf.constant(X[rows]), tf.constant(Y[rows])),)

    iterator = batches()
    watched = np.sort(np.random.default_rng(seed).permutation(len(X))[:_ELBO_ROWS])
    pair = (tf.constant(X[watched]), tf.constant(Y[watched]))
    run = {"data": digest([X, Y]), "batch_size": batch_size, "seed": seed}
    return _Source(lambda: next(iterator), go_to, (pair,), None, run)


def _from_dataset(iterator: Iterator[Any], spec: str, num_data: Any) -> _Source:
    """
    The batches of one iterator, the first of which are watched, too.

    Of one only: iterators of a dataset that shuffles share its random numbers, and read ahead, so
    that two of them would make the order a matter of chance.
    """
    most = _ELBO_ROWS if num_data is None else min(_ELBO_ROWS, int(num_data))
    first: list[tuple[Any, Any]] = []
    while sum(len(X) for X, _ in first) < most:
        batch = next(iterator, None)
        if batch is None:
            break
        first.append(batch)
    if not first:
        raise ValueError("data must hold at least one batch. Found: an empty dataset.")
    watched = tuple(tf.concat(part, axis=0)[:most] for part in zip(*first, strict=True))
    position = 0

    def go_to(step: int) -> None:
        nonlocal position
        position = step

    def next_batch() -> tuple[Any, ...] | None:
        nonlocal position
        batch = first[position] if position < len(first) else next(iterator, None)
        position += 1
        return None if batch is None else (batch,)

    return _Source(next_batch, go_to, (watched,), iterator, {"data": spec})


# ---- evaluation ----


def _evaluators(
    model: AugmentedModel, watched: tuple[Any, ...], test_data: RegressionData | None
) -> tuple[Callable[[], tf.Tensor], Callable[[], tf.Tensor]]:
    elbo = tf.function(lambda: model.elbo(*watched), autograph=False)
    if test_data is None:
        return elbo, lambda: tf.constant(np.nan)
    pair = tuple(tf.convert_to_tensor(part, model.q_mu.dtype) for part in test_data)
    nll = tf.function(lambda: -tf.reduce_mean(model.predict_log_density(pair)), autograph=False)
    return elbo, nll


def _should_stop(history: list[_Record], rule: EarlyStopping | None) -> bool:
    if rule is None or not history:
        return False
    sign = -1.0 if rule.metric == "elbo" else 1.0
    values = [sign * getattr(record, rule.metric) for record in history]
    best, since = values[0], 0
    for value in values[1:]:
        since = 0 if value < best - rule.min_delta else since + 1
        best = value if since == 0 else best
    return since >= rule.patience


# ---- interruption and checkpoints ----


@contextmanager
def _interrupts() -> Iterator[Callable[[], bool]]:
    """Whether Ctrl-C has been pressed; pressed again, it is KeyboardInterrupt as usual."""
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False  # signals go to the main thread
        return
    pressed = False

    def press(number: int, frame: Any) -> None:
        nonlocal pressed
        pressed = True
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, press)
    try:
        yield lambda: pressed
    finally:
        signal.signal(signal.SIGINT, before)


class _Kept:
    """What a checkpoint keeps: model, optimizer and its slots, where the data are, history."""

    def __init__(
        self,
        model: AugmentedModel,
        optimizer: AlternatingOptimizer,
        source: _Source,
        directory: str | Path | None,
    ) -> None:
        self.optimizer, self.source = optimizer, source
        self.directory = None if directory is None else Path(directory)
        objects = {"model": model, "optimizer": optimizer}
        if source.iterator is not None:
            objects["iterator"] = source.iterator
        self.checkpoint = tf.train.Checkpoint(**objects)
        slots = optimizer.hyperparameter_optimizer
        self.run = {
            "model": describe(model),
            "optimizer": [type(slots).__name__, type(optimizer.schedule).__name__],
            **source.run,
        }

    def save(self, history: list[_Record]) -> None:
        if self.directory is None:
            return

        def write(folder: Path) -> None:
            try:
                self.checkpoint.write(str(folder / _VARIABLES))
            except tf.errors.OpError as error:  # a full disk, as TensorFlow says it
                raise OSError(None, error.message) from error
            (folder / _STATE).write_text(json.dumps(history))

        save_checkpoint(self.directory, int(self.optimizer.step), self.run, write)

    def restore(self) -> list[_Record]:
        """
        Set everything to the latest checkpoint, if there is one.

        :return: its history.
        """
        path = None
        if self.directory is not None:
            path = latest_checkpoint(self.directory, self.run)
        if path is not None:
            self.checkpoint.read(str(path / _VARIABLES)).assert_consumed()
        self.source.go_to(int(self.optimizer.step))
        if path is None:
            return []
        return [_Record(*record) for record in json.loads((path / _STATE).read_text())]
