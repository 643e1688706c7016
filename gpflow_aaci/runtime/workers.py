"""
All communication between workers, by TensorFlow's ``tf.distribute``.

A worker is a process of ``MultiWorkerMirroredStrategy``. Each worker may have several devices, as
may the single process of ``MirroredStrategy``. All workers run the same program, each on its own
rows. They must call the functions of this module in the same order. A single worker does not
communicate.
"""

import functools
import json
import re
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray

T = TypeVar("T")

# What TensorFlow raises on the other workers when one is lost.
_LOST = (
    tf.errors.UnavailableError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
    tf.errors.InternalError,
)
ONE_PROCESS = tf.distribute.get_strategy()  # the strategy outside all scopes
_CONNECT = 3.0  # seconds in which a running worker accepts a connection
_DYING = 10.0  # seconds after which a killed worker accepts none


def is_single(strategy: tf.distribute.Strategy) -> bool:
    """Whether the strategy is for one process with one device."""
    return bool(strategy.num_replicas_in_sync == 1)


def num_workers(strategy: tf.distribute.Strategy) -> int:
    """The number of workers, 1 for a strategy of one process."""
    return max(1, len(_addresses(strategy)))


def worker_index(strategy: tf.distribute.Strategy) -> int:
    """The number of this worker, from 0, which is the chief's."""
    if num_workers(strategy) == 1:
        return 0
    resolver = strategy.cluster_resolver
    has_chief = "chief" in resolver.cluster_spec().jobs
    return int(resolver.task_id) + (has_chief and resolver.task_type == "worker")


def is_chief(strategy: tf.distribute.Strategy) -> bool:
    """Whether this worker is the one that writes files and shows progress."""
    return worker_index(strategy) == 0


def sum_over_workers(
    strategy: tf.distribute.Strategy, tensors: Sequence[tf.Tensor]
) -> list[tf.Tensor]:
    """
    Sum each tensor over the workers, by one all-reduce in float64 with the same bits on all.

    It can be called inside a ``tf.function`` that all workers trace equally often.

    :param tensors: tensors that have the same shapes on every worker.
    :raises RuntimeError: if a worker is lost; the message names the worker if it is known.
    """
    if num_workers(strategy) == 1:
        return list(tensors)
    tensors = [tf.convert_to_tensor(tensor) for tensor in tensors]
    flat = tf.concat([tf.reshape(tf.cast(t, tf.float64), [-1]) for t in tensors], 0)
    if tf.inside_function():
        total = _all_reduce(strategy, flat)
    else:
        with naming_the_lost(strategy):
            total = _compiled_all_reduce(strategy, len(flat))(flat)
    parts = tf.split(total, [tf.size(t) for t in tensors])
    return [
        tf.ensure_shape(tf.cast(tf.reshape(part, tf.shape(t)), t.dtype), t.shape)
        for part, t in zip(parts, tensors, strict=True)
    ]


@contextmanager
def naming_the_lost(strategy: tf.distribute.Strategy) -> Iterator[None]:
    """
    Turn TensorFlow's errors for a lost worker into one that names the worker.

    :raises RuntimeError: if a worker is lost.
    """
    try:
        yield
    except _LOST as error:
        if num_workers(strategy) == 1:
            raise
        this = worker_index(strategy)
        # Before this word the message names the tasks that report the loss.
        _, _, unhealthy = error.message.partition("unhealthy")
        lost = sorted(set(map(int, re.findall(r"task:(\d+)", unhealthy)))) or _silent(strategy)
        who = f"worker {', '.join(map(str, lost))}" if lost else "a worker"
        raise RuntimeError(
            f"{who} of {num_workers(strategy)} was lost, and worker {this} ends with it. The same "
            "call with the same checkpoint_dir resumes from the latest checkpoint, with any number "
            "of workers."
        ) from error


def together(strategy: tf.distribute.Strategy, action: Callable[[], T], mark: int = 1) -> T:
    """
    Call ``action``, and return its result once it has succeeded on every worker.

    :param mark: a positive integer below 2^52 that must be the same on every worker.
    :raises Exception: what ``action`` raises, if it fails on this worker.
    :raises RuntimeError: if it fails on another worker, a worker is lost, or the marks differ.
    """
    if num_workers(strategy) == 1:
        return action()
    failure: Exception | None = None
    try:
        result = action()
    except Exception as error:
        failure = error
    try:
        marks = of_each_worker(strategy, [0 if failure else mark])[:, 0]  # 0 stands for a failure
    except RuntimeError as lost:
        raise (failure or lost) from lost
    if failure is None and marks.min() == marks.max():
        return result
    if marks.min():
        other = int(np.flatnonzero(marks != marks[0])[0])
        raise RuntimeError(
            f"worker {other} has computed other numbers than worker 0 at the same step. All must "
            "run the same program with the same TensorFlow on the same kind of machine."
        )
    failures = _texts(strategy, "" if failure is None else f"{type(failure).__name__}: {failure}")
    if failure is not None:
        raise failure
    first = int(np.flatnonzero(marks == 0)[0])
    raise RuntimeError(f"worker {first} failed: {failures[first]}")


def any_worker(strategy: tf.distribute.Strategy, here: bool) -> bool:
    """Whether ``here`` is true on at least one worker."""
    return here if num_workers(strategy) == 1 else bool(of_each_worker(strategy, [here]).any())


def check_agreement(strategy: tf.distribute.Strategy, facts: Mapping[str, Any]) -> None:
    """
    Check that all workers have the same values.

    :param facts: values that JSON can hold, under the names that the message uses.
    :raises ValueError: on every worker, if a value differs; the message says which, and where.
    """
    if num_workers(strategy) == 1:
        return
    of_all = [json.loads(text) for text in _texts(strategy, json.dumps(facts, default=repr))]
    for number, of_one in enumerate(of_all):
        for key in sorted({*of_all[0], *of_one}):
            first, other = of_all[0].get(key), of_one.get(key)
            if first != other:
                raise ValueError(
                    f"{key} must be the same on every worker. Found: {first!r} on worker 0, "
                    f"{other!r} on worker {number}."
                )


def of_each_worker(
    strategy: tf.distribute.Strategy, numbers: Sequence[int] | AnyNDArray
) -> AnyNDArray:
    """
    Return the numbers of each worker, [workers, n] int64.

    :param numbers: n integers below 2^53, which float64 represents exactly.
    """
    return gathered(strategy, np.asarray(numbers, np.float64)).astype(np.int64)


def gathered(strategy: tf.distribute.Strategy, values: AnyNDArray) -> AnyNDArray:
    """Return the float64 values of each worker, [workers, ...]; all give the same shape."""
    table = np.zeros([num_workers(strategy), *values.shape])
    table[worker_index(strategy)] = values  # the others are filled by the sum
    (filled,) = sum_over_workers(strategy, [tf.constant(table)])
    return filled.numpy()


def over_devices(
    strategy: tf.distribute.Strategy, of_rows: Callable[..., Any]
) -> Callable[..., Any]:
    """
    Return a function that computes ``of_rows`` on all devices of this worker, each on some rows.

    :param of_rows: a function of X [N, D], Y [N, P] and further arguments, which every device gets
        whole. It returns any structure of tensors, each a sum over the rows.
    """
    devices = strategy.num_replicas_in_sync // num_workers(strategy)
    if devices == 1:
        return of_rows

    def of_part(X: tf.Tensor, Y: tf.Tensor, *args: Any) -> Any:
        at = replica_here(strategy)
        N = tf.shape(X)[0]
        rows = slice(N * at // devices, N * (at + 1) // devices)
        # Copies, as ``strategy.run`` returns an object that all devices share only once.
        return tf.nest.map_structure(tf.identity, of_rows(X[rows], Y[rows], *args))

    def shared(X: tf.Tensor, Y: tf.Tensor, *args: Any) -> Any:
        return tf.nest.map_structure(
            lambda part: tf.add_n(strategy.experimental_local_results(part)),
            strategy.run(of_part, (X, Y, *args)),
        )

    return shared


def replica_here(strategy: tf.distribute.Strategy) -> int:
    """The number of the device of this worker that runs this code; 0 outside ``strategy.run``."""
    context = tf.distribute.get_replica_context()
    if context is None or is_single(strategy):
        return 0
    devices = strategy.num_replicas_in_sync // num_workers(strategy)
    number = tf.get_static_value(tf.convert_to_tensor(context.replica_id_in_sync_group))
    return int(number) % devices


def _addresses(strategy: tf.distribute.Strategy) -> list[str]:
    """The addresses of the workers in order; empty if there is no cluster."""
    resolver = getattr(strategy, "cluster_resolver", None)
    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy) or resolver is None:
        return []
    jobs = resolver.cluster_spec().as_dict()
    return [address for job in ("chief", "worker") for address in jobs.get(job, [])]


def _silent(strategy: tf.distribute.Strategy) -> list[int]:
    """The numbers of workers that accept no connection, after waiting a moment for any to die."""
    deadline = time.monotonic() + _DYING
    while True:
        silent = [n for n, address in enumerate(_addresses(strategy)) if not _answers(address)]
        if silent or time.monotonic() > deadline:
            return silent
        time.sleep(0.1)


def _answers(address: str) -> bool:
    """Whether a process accepts connections at this address."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), _CONNECT).close()
    except OSError:
        return False
    return True


def _all_reduce(strategy: tf.distribute.Strategy, flat: tf.Tensor) -> tf.Tensor:
    def of_device() -> tf.Tensor:
        # The sum is over all devices, of which only the first one of each worker may count.
        summand = flat if replica_here(strategy) == 0 else tf.zeros_like(flat)
        return tf.distribute.get_replica_context().all_reduce("SUM", tf.identity(summand))

    return strategy.experimental_local_results(strategy.run(of_device))[0]


@functools.lru_cache(maxsize=1_000)
def _compiled_all_reduce(strategy: tf.distribute.Strategy, size: int) -> Any:
    # TensorFlow gives a collective operation of a graph one key, and an eager one a new key at
    # every call.
    total = tf.function(functools.partial(_all_reduce, strategy), autograph=False)
    return total.get_concrete_function(tf.TensorSpec([size], tf.float64))


def _texts(strategy: tf.distribute.Strategy, text: str) -> list[str]:
    """Return the texts of all workers, which are sent as numbers padded to the longest text."""
    codes = list(text.encode())
    longest = int(of_each_worker(strategy, [len(codes)]).max())
    padded = of_each_worker(strategy, codes + [0] * (longest - len(codes))).astype(np.uint8)
    return [row.tobytes().rstrip(b"\0").decode() for row in padded]
