"""
Random rows: the same for arrays, streams and workers, with only the chosen rows in memory.

Every row has a key, a hash of its number and the seed, and the rows with the smallest keys are
chosen. So no pass needs to know how many rows will follow, and with the same seed a smaller choice
is the beginning of a larger one.
"""

import numpy as np
from gpflow.base import AnyNDArray

_BLOCK = 1_000_000  # row numbers that are hashed at a time


class RandomRows:
    """The rows with the smallest keys among all rows added so far."""

    def __init__(self, size: int, seed: int) -> None:
        """
        :param size: the largest number of rows to choose.
        """
        self.size, self.seed = size, seed
        self._keys = np.zeros(0, np.uint64)
        self.parts: tuple[AnyNDArray, ...] = ()  # of the rows, in the order of their keys

    def add(self, first: int, *parts: AnyNDArray) -> None:
        """
        :param first: the number of the first of these rows, which follow the rows added before.
        :param parts: arrays whose first axis is over these rows.
        """
        keys = _keys(np.arange(first, first + len(parts[0]), dtype=np.uint64), self.seed)
        if len(self._keys) == self.size:  # most rows are no longer chosen
            chosen = keys < self._keys[-1]
            keys, parts = keys[chosen], tuple(part[chosen] for part in parts)
        keys = np.concatenate([self._keys, keys])
        order = np.argsort(keys, kind="stable")[: self.size]
        self._keys = keys[order]
        before = self.parts or tuple(part[:0] for part in parts)
        self.parts = tuple(
            np.concatenate([old, new])[order] for old, new in zip(before, parts, strict=True)
        )


def random_numbers(num_rows: int, size: int, seed: int) -> AnyNDArray:
    """The numbers [size] of random rows, in the order of their keys."""
    rows = RandomRows(size, seed)
    for first in range(0, num_rows, _BLOCK):
        rows.add(first, np.arange(first, min(first + _BLOCK, num_rows)))
    return rows.parts[0]


def _keys(numbers: AnyNDArray, seed: int) -> AnyNDArray:
    """A hash [N] uint64 of each row number, by the finaliser of splitmix64."""
    start = np.random.SeedSequence(seed).generate_state(1, np.uint64)
    keys = (numbers + start) * np.uint64(0x9E3779B97F4A7C15)
    keys = (keys ^ (keys >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    keys = (keys ^ (keys >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return keys ^ (keys >> np.uint64(31))
