"""
All communication between workers, by TensorFlow's own ``tf.distribute``.

A worker is a process of ``MultiWorkerMirroredStrategy``. Each may have several devices, as the one
process of ``MirroredStrategy`` may. All workers run the same program, each on rows of its own. The
functions of this module must be called on all workers in the same order; with a single worker they
communicate nothing.
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
    return max(1, len(_addresses(strategy)))


def worker_index(strategy: tf.distribute.Strategy) -> int:
    """The number of this worker; the chief is 0."""
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
    The sum of each tensor over the workers, with the same bits on all: one all-reduce in float64.

    It works inside ``tf.function``, if all workers trace that equally often.

    :param tensors: tensors that have the same shapes on every worker.
    :raises RuntimeError: where a worker is lost; the message names it if that can be known.
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
    Turn TensorFlow's errors for a lost worker into one that names it.

    :raises RuntimeError: where a worker is lost.
    """
    try:
        yield
    except _LOST as error:
        if num_workers(strategy) == 1:
            raise
        own = worker_index(strategy)
        # Other tasks in the message are those that report it.
        _, _, unhealthy = error.message.partition("unhealthy")
        lost = sorted(set(map(int, re.findall(r"task:(\d+)", unhealthy)))) or _silent(strategy)
        who = f"worker {', '.join(map(str, lost))}" if lost else "a worker"
        raise RuntimeError(
            f"{who} of {num_workers(strategy)} was lost, and worker {own} ends with it. The same "
            "call with the same checkpoint_dir resumes from the latest checkpoint, with any number "
            "of workers."
        ) from error


def together(strategy: tf.distribute.Strategy, action: Callable[[], T], mark: int = 1) -> T:
    """
    What ``action`` returns on this worker, once it has succeeded on every worker.

    :param mark: a positive number below 2^52 that must be the same on every worker.
    :raises RuntimeError: where the action failed on another worker, or the marks differ.
    """
    if num_workers(strategy) == 1:
        return action()
    failure: Exception | None = None
    try:
        result = action()
    except Exception as error:
        failure = error
    try:
        marks = of_each_worker(strategy, [0 if failure else mark])[:, 0]
    except RuntimeError as lost:
        raise (failure or lost) from lost
    if failure is None and marks.min() == marks.max():
        return result
    if marks.min():
        other = int(np.flatnonzero(marks != marks[0])[0])
        raise RuntimeError(
            f"worker {other} has come to other numbers than worker 0 at the same point. All must "
            "run the same program with the same TensorFlow on the same kind of machine."
        )
    said = _texts(strategy, "" if failure is None else f"{type(failure).__name__}: {failure}")
    if failure is not None:
        raise failure
    first = int(np.flatnonzero(marks == 0)[0])
    raise RuntimeError(f"worker {first} failed: {said[first]}")


def any_worker(strategy: tf.distribute.Strategy, here: bool) -> bool:
    """Whether ``here`` is true on at least one worker."""
    return here if num_workers(strategy) == 1 else bool(of_each_worker(strategy, [here]).any())


def check_agreement(strategy: tf.distribute.Strategy, facts: Mapping[str, Any]) -> None:
    """
    Check that all workers have the same facts.

    :param facts: values that JSON can hold.
    :raises ValueError: on every worker, where one differs; the message says which, and where.
    """
    if num_workers(strategy) == 1:
        return
    said = [json.loads(text) for text in _texts(strategy, json.dumps(facts, default=repr))]
    for number, other in enumerate(said):
        for key in sorted({*said[0], *other}):
            ours, theirs = said[0].get(key), other.get(key)
            if ours != theirs:
                raise ValueError(
                    f"{key} must be the same on every worker. Found: {ours!r} on worker 0, "
                    f"{theirs!r} on worker {number}."
                )


def of_each_worker(strategy: tf.distribute.Strategy, numbers: Sequence[int]) -> AnyNDArray:
    """The numbers of each worker, [workers, n] int64; below 2^53, so that float64 holds them."""
    own = np.zeros([num_workers(strategy), len(numbers)])
    own[worker_index(strategy)] = numbers
    (found,) = sum_over_workers(strategy, [tf.constant(own)])
    return found.numpy().astype(np.int64)


def over_devices(
    strategy: tf.distribute.Strategy, of_rows: Callable[[tf.Tensor, tf.Tensor], Any]
) -> Callable[[tf.Tensor, tf.Tensor], Any]:
    """
    ``of_rows``, computed by all devices of this worker together.

    :param of_rows: a function of X [N, D], Y [N, P] that returns any structure of tensors, each a
        sum over the rows.
    """
    devices = strategy.num_replicas_in_sync // num_workers(strategy)
    if devices == 1:
        return of_rows

    def of_part(X: tf.Tensor, Y: tf.Tensor) -> Any:
        at = replica_here(strategy)
        N = tf.shape(X)[0]
        rows = slice(N * at // devices, N * (at + 1) // devices)
        return tf.nest.map_structure(tf.identity, of_rows(X[rows], Y[rows]))

    def shared(X: tf.Tensor, Y: tf.Tensor) -> Any:
        return tf.nest.map_structure(
            lambda part: tf.add_n(strategy.experimental_local_results(part)),
            strategy.run(of_part, (X, Y)),
        )

    return shared


def replica_here(strategy: tf.distribute.Strategy) -> int:
    """Which of this worker's devices runs this code; the first, outside ``strategy.run``."""
    context = tf.distribute.get_replica_context()
    if context is None or is_single(strategy):
        return 0
    devices = strategy.num_replicas_in_sync // num_workers(strategy)
    number = tf.get_static_value(tf.convert_to_tensor(context.replica_id_in_sync_group))
    return int(number) % devices


def _addresses(strategy: tf.distribute.Strategy) -> list[str]:
    """The addresses of the workers, in their order; none where there is no cluster."""
    resolver = getattr(strategy, "cluster_resolver", None)
    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy) or resolver is None:
        return []
    jobs = resolver.cluster_spec().as_dict()
    return [address for job in ("chief", "worker") for address in jobs.get(job, [])]


def _silent(strategy: tf.distribute.Strategy) -> list[int]:
    """Workers that accept no connection, as a killed process does after a moment."""
    deadline = time.monotonic() + _DYING
    while True:
        silent = [n for n, address in enumerate(_addresses(strategy)) if not _answers(address)]
        if silent or time.monotonic() > deadline:
            return silent
        time.sleep(0.1)


def _answers(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), _CONNECT).close()
    except OSError:
        return False
    return True


def _all_reduce(strategy: tf.distribute.Strategy, flat: tf.Tensor) -> tf.Tensor:
    def of_device() -> tf.Tensor:
        own = flat if replica_here(strategy) == 0 else tf.zeros_like(flat)
        return tf.distribute.get_replica_context().all_reduce("SUM", tf.identity(own))

    return strategy.experimental_local_results(strategy.run(of_device))[0]


@functools.lru_cache(maxsize=1_000)
def _compiled_all_reduce(strategy: tf.distribute.Strategy, size: int) -> Any:
    # A collective of a graph has one key for good, an eager one another at every call.
    total = tf.function(functools.partial(_all_reduce, strategy), autograph=False)
    return total.get_concrete_function(tf.TensorSpec([size], tf.float64))


def _texts(strategy: tf.distribute.Strategy, text: str) -> list[str]:
    """The texts of all workers."""
    codes = list(text.encode())
    longest = int(of_each_worker(strategy, [len(codes)]).max())
    found = of_each_worker(strategy, codes + [0] * (longest - len(codes))).astype(np.uint8)
    return [row.tobytes().rstrip(b"\0").decode() for row in found]
