"""
All methods of the package get their data from :func:`as_data`.

``door`` turns the user's argument into :class:`Data`. ``rows`` defines the sum over all rows, and
holds rows in memory; ``streams`` reads datasets of batches; ``shards`` splits rows among workers;
``batches`` yields the minibatches of a training run. ``expected`` says what data a model accepts,
and checks it; ``summand`` describes a compiled function to be summed; ``passes`` stores the
results of sums; ``parquet`` reads files into datasets.
"""

from ..runtime.agreement import Call
from ..runtime.workers import over_devices
from .batches import Batches
from .datasets import CHUNK, check_batches, check_inputs, is_endless, over_batches, untuned
from .door import StepData, as_arrays, as_data, check_step_data, next_batch
from .expected import (
    Expected,
    Rows,
    check_pair,
    checked_rows,
    refuse_if_distributed,
)
from .parquet import from_parquet
from .passes import PassLog
from .rows import Arrays, Data
from .summand import Summand

__all__ = [
    "CHUNK",
    "Arrays",
    "Batches",
    "Call",
    "Data",
    "Expected",
    "PassLog",
    "Rows",
    "StepData",
    "Summand",
    "as_arrays",
    "as_data",
    "check_batches",
    "check_inputs",
    "check_pair",
    "check_step_data",
    "checked_rows",
    "from_parquet",
    "is_endless",
    "next_batch",
    "over_batches",
    "over_devices",
    "refuse_if_distributed",
    "untuned",
]
