"""
The only door for data: :func:`as_data`.

``door`` makes :class:`Data` of what a user gives. ``rows`` has the one sum over all rows, and rows
in memory; ``streams`` datasets of batches; ``shards`` the rows of several workers; ``batches`` the
minibatches of a training run. ``expected`` is what a model states of its data, and the check of
them; ``summand`` a compiled function to be summed; ``passes`` a log of sums; ``parquet`` makes
datasets of files.
"""

from ..workers import over_devices
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
