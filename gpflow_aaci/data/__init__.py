"""
The only door for data.

``rows``: all of them, in as many passes as a full-batch method wants; ``batches``: one after the
other, for steps. Both take arrays, what pandas gives, a ``tf.data.Dataset`` of batches, or None
for a model that keeps its own.
"""

from .batches import Batches, StepData, as_batches, check_step_data, next_batch
from .rows import CHUNK, Arrays, Data, Rows, Stream, as_data, check_pair, keeps_data, known_num_data

__all__ = [
    "CHUNK",
    "Arrays",
    "Batches",
    "Data",
    "Rows",
    "StepData",
    "Stream",
    "as_batches",
    "as_data",
    "check_pair",
    "check_step_data",
    "keeps_data",
    "known_num_data",
    "next_batch",
]
