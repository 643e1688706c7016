"""What lies between a public call and its first sum over rows."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import gpflow
import numpy as np
import pytest

import gpflow_aaci
from gpflow_aaci import AugmentedNaturalGradient, AugmentedSVGP, fit_collapsed, train
from gpflow_aaci.likelihoods import StudentT

PACKAGE = Path(gpflow_aaci.__file__).parent
RNG = np.random.default_rng(0)
X = RNG.uniform(0.0, 10.0, (60, 1))
DATA = X, np.sin(X) + 0.1 * RNG.standard_t(3.0, X.shape)
# The names of the methods of ``Data`` that sum over rows.
SUMS = {"sum", "total", "map"}


class FirstSumError(Exception):
    """The first sum over rows has been reached."""


def way(call: Callable[[AugmentedSVGP], Any]) -> tuple[list[str], set[tuple[str, str]]]:
    """
    What is entered before the first sum.

    :return: the functions that receive the model, and the modules that enter one of ``runtime/``,
        each with the module that it enters.
    """
    model = AugmentedSVGP(gpflow.kernels.Matern52(), StudentT(), X[:10].copy(), num_data=len(X))
    receivers: list[str] = []
    entered: set[tuple[str, str]] = set()

    def module(frame: FrameType | None) -> str:
        path = Path(frame.f_code.co_filename) if frame is not None else Path()
        return str(path.relative_to(PACKAGE)) if path.is_relative_to(PACKAGE) else ""

    def note(frame: FrameType, event: str, argument: Any) -> None:
        here = module(frame)
        if event != "call" or not here:
            return
        code, before = frame.f_code, module(frame.f_back)
        if here == "data/rows.py" and code.co_name in SUMS:
            sys.setprofile(None)
            raise FirstSumError
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        given = [name for name in names if frame.f_locals.get(name) is model and name != "self"]
        if given and (where := f"{here} {code.co_name}") not in receivers:
            receivers.append(where)
        if here.startswith("runtime/") and before and not before.startswith("runtime/"):
            entered.add((before, here))

    sys.setprofile(note)
    try:
        with pytest.raises(FirstSumError):
            call(model)
    finally:
        sys.setprofile(None)
    return receivers, entered


def test_a_natural_gradient_step_enters_the_runtime_by_the_door_of_the_data_alone() -> None:
    receivers, entered = way(lambda model: AugmentedNaturalGradient().minimize(model, DATA))
    assert len(receivers) <= 8, receivers
    at_the_door = {("models/shared.py", "runtime/mirrored.py")}  # the strategy, for the door
    assert {pair for pair in entered if not pair[0].startswith("data/")} == at_the_door


@pytest.mark.parametrize(
    ("call", "most"),
    [
        (lambda model: train(model, DATA, num_steps=1, progress=False), 8),
        (lambda model: fit_collapsed(model, DATA, progress=False), 18),
    ],
    ids=["train", "fit_collapsed"],
)
def test_few_functions_receive_the_model_before_the_first_sum(
    call: Callable[[AugmentedSVGP], Any], most: int
) -> None:
    receivers, entered = way(call)
    assert len(receivers) <= most, receivers
    # Without a folder for checkpoints nothing is described for them.
    assert not any(here == "runtime/agreement.py" for _, here in entered)
