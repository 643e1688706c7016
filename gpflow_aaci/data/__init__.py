"""
The only door for data.

``rows``: all of them, in as many passes as a full-batch method wants; ``batches``: one after the
other, for steps. Both take arrays, what pandas gives, a ``tf.data.Dataset`` of batches, or None
for a model that keeps its own. ``shards`` has those of several workers; ``datasets`` reads the last
kind but one; ``parquet`` makes it of files.
"""

from .batches import Batches, StepData, as_batches, check_step_data, next_batch
from .datasets import CHUNK, check_batches, check_inputs, is_endless, over_batches, untuned
from .parquet import from_parquet
from .rows import (
    Arrays,
    Data,
    OnePass,
    Rows,
    Stream,
    check_pair,
    known_num_data,
    refuse_where_kept,
)
from .shards import as_data, refuse_where_workers_keep

__all__ = [
    "CHUNK",
    "Arrays",
    "Batches",
    "Data",
    "OnePass",
    "Rows",
    "StepData",
    "Stream",
    "as_batches",
    "as_data",
    "check_batches",
    "check_inputs",
    "check_pair",
    "check_step_data",
    "from_parquet",
    "is_endless",
    "known_num_data",
    "next_batch",
    "over_batches",
    "refuse_where_kept",
    "refuse_where_workers_keep",
    "untuned",
]
