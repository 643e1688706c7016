"""When a training run ends before its last step: early stopping, and Ctrl-C."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple

import numpy as np

INTERRUPTED = "it was interrupted"


class EarlyStopping(NamedTuple):
    """Stop once ``patience`` evaluations in a row have not been better by ``min_delta``."""

    #: The objective that ``train`` climbs, by its name, or ``"nll"`` of ``test_data``.
    metric: Literal["augmented", "standard", "predictive", "fitc", "heteroscedastic", "nll"] = "nll"
    #: The number of evaluations without a gain after which the run ends.
    patience: int = 10
    #: The smallest gain that counts, in nats of the objective or in nats a datum of the NLL.
    min_delta: float = 0.0


class Record(NamedTuple):
    """A row of the history."""

    step: int
    seconds: float
    objective: float  # the one that is climbed
    nll: float


def should_stop(history: list[Record], rule: EarlyStopping | None) -> bool:
    if rule is None:
        return False
    of_test_data = rule.metric == "nll"
    values = [record.nll if of_test_data else -record.objective for record in history]
    best, since = np.nan, 0
    for value in values:
        if np.isnan(best):  # nothing has been measured before, as in a run without test data
            best = value
        else:
            is_better = value < best - rule.min_delta
            best, since = (value, 0) if is_better else (best, since + 1)
    return since >= rule.patience


@contextmanager
def interrupts() -> Iterator[Callable[[], bool]]:
    """Tells whether Ctrl-C has been pressed; a second press raises KeyboardInterrupt as usual."""
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
