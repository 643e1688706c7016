"""
Random rows: the same for arrays, streams and workers, in any order and in either float type.

Every row has a key, a hash of its values, of how many equal rows came before it, and of the seed.
The rows with the smallest keys are chosen. So a fit does not depend on the order of the rows, no
pass needs to know how many rows will follow, only the chosen rows are in memory, and with the same
seed a smaller choice is the beginning of a larger one.
"""

import numpy as np
from gpflow.base import AnyNDArray

from ..runtime.identity import values_hashes

_KEY_BITS = 53  # workers exchange keys as float64
_RECENT = 65_536  # hashes that are merged into the others at a time
_MOST_COUNTED = 2**25  # rows whose copies are counted, 8 bytes each


class RandomRows:
    """The rows with the smallest keys among all rows added so far."""

    def __init__(self, size: int, seed: int) -> None:
        """
        :param size: the largest number of rows to choose.
        """
        self.size, self.seed = size, seed
        self.keys = np.zeros(0, np.uint64)  # ascending
        self.parts: tuple[AnyNDArray, ...] = ()  # of the rows, in the order of their keys
        self._copies = _Copies()

    def add(self, X: AnyNDArray, Y: AnyNDArray, *parts: AnyNDArray) -> None:
        """
        :param X, Y: the next rows, by whose values they are chosen.
        :param parts: arrays whose first axis is over these rows, of which the chosen are kept.
            Default: X and Y.
        """
        parts = parts or (X, Y)
        hashes = values_hashes(X, Y)
        keys = _keys(hashes, self._copies.before(hashes), self.seed)
        if len(self.keys) == self.size:  # most rows are no longer chosen
            chosen = keys < self.keys[-1]
            keys, parts = keys[chosen], tuple(part[chosen] for part in parts)
        keys = np.concatenate([self.keys, keys])
        order = np.arange(len(keys))
        if len(keys) > self.size:  # of many rows few are chosen, and only those are sorted
            order = np.sort(np.argpartition(keys, self.size - 1)[: self.size])
        order = order[np.argsort(keys[order], kind="stable")]
        self.keys = keys[order]
        kept = self.parts or tuple(part[:0] for part in parts)
        self.parts = tuple(
            np.concatenate([old, new])[order] for old, new in zip(kept, parts, strict=True)
        )


class _Copies:
    """How often each hash has occurred so far."""

    def __init__(self) -> None:
        # Both sorted. Most searches and merges are in the few recent ones.
        self._seen, self._recent = np.zeros(0, np.uint64), np.zeros(0, np.uint64)

    def before(self, hashes: AnyNDArray) -> AnyNDArray:
        """For each of the next hashes [N], how often it has occurred before, [N] uint64."""
        ordered = np.sort(hashes)
        before = _number_of(self._seen, ordered) + _number_of(self._recent, ordered)
        counts = np.zeros(len(hashes), np.uint64)
        if np.any(before) or np.any(ordered[1:] == ordered[:-1]):  # else no order is needed
            among_these = np.arange(len(hashes)) - np.searchsorted(ordered, ordered)
            counts[np.argsort(hashes, kind="stable")] = before + among_these
        if len(self._seen) < _MOST_COUNTED:
            self._recent = _merged(self._recent, ordered)
            if len(self._recent) > max(_RECENT, len(self._seen) // 4):
                self._seen, self._recent = _merged(self._seen, self._recent), self._recent[:0]
        return counts


def _number_of(among: AnyNDArray, hashes: AnyNDArray) -> AnyNDArray:
    """How often each of the hashes [N] occurs in a sorted array."""
    return np.searchsorted(among, hashes, "right") - np.searchsorted(among, hashes, "left")


def _merged(one: AnyNDArray, other: AnyNDArray) -> AnyNDArray:
    return np.sort(np.concatenate([one, other]), kind="stable")


def _keys(hashes: AnyNDArray, copies: AnyNDArray, seed: int) -> AnyNDArray:
    """A key [N] uint64 of ``_KEY_BITS`` bits of each row, by the finaliser of splitmix64."""
    start = np.random.SeedSequence(seed).generate_state(1, np.uint64)
    keys = (hashes + start + copies * np.uint64(0xA0761D6478BD642F)) * np.uint64(0x9E3779B97F4A7C15)
    keys = (keys ^ (keys >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    keys = (keys ^ (keys >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (keys ^ (keys >> np.uint64(31))) >> np.uint64(64 - _KEY_BITS)
