"""The nearest rows of a query, by exact searches; of a few ties the lower row numbers win."""

import importlib.util
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from scipy.spatial import KDTree

from ..runtime.workers import ONE_PROCESS, gathered, num_workers

_MOST_DIRECTIONS_OF_TREES = 13.0  # beyond which a tree of many rows visits nearly all of them
_FEWEST_ROWS_OF_TREES, _MANY_ROWS = 5_000, 100_000
_SOME_ROWS = 10_000  # that tell in how many directions rows differ
_LEAF = 32
_MANY_QUERIES = 5_000  # for which it is worth to order the rows
_DISTANCES_AT_ONCE = 4_000_000
_MORE = 8  # candidates beyond k, among which exact distances decide


class Neighbors:
    """A search for the nearest rows by Euclidean distance, among the rows of all workers."""

    def __init__(
        self,
        features: AnyNDArray,
        strategy: tf.distribute.Strategy = ONE_PROCESS,
        first: int = 0,
        num_rows: int | None = None,
    ) -> None:
        """
        :param features: [n, F], this worker's rows in the coordinates in which "near" is Euclidean.
        :param first: the number of its first row.
        :param num_rows: N, the number of rows of all workers. Default: n.
        """
        self._features = np.ascontiguousarray(features)
        self._candidates = _search_of(self._features)
        self._strategy, self._first = strategy, first
        self._num_rows = len(features) if num_rows is None else num_rows

    def of(
        self,
        queries: AnyNDArray,
        k: int,
        left_out: tuple[AnyNDArray, AnyNDArray] | None = None,
        most_left_out: int = 0,
    ) -> AnyNDArray:
        """
        The k nearest rows of every query, the nearest first: their numbers [q, k].

        :param queries: [q, F], the same on every worker.
        :param left_out: a label of each query [q] and of each row of this worker [n]: rows with
            the label of a query are not its neighbours.
        :param most_left_out: the largest number of rows that a query leaves out.
        """
        k = min(k, self._num_rows - most_left_out)
        most = k + most_left_out + _MORE
        rows = max(1, _DISTANCES_AT_ONCE // (most * max(1, queries.shape[1])))
        parts = [np.zeros((0, k), int)]
        for start in range(0, len(queries), rows):
            piece = slice(start, start + rows)
            labels = None if left_out is None else (left_out[0][piece], left_out[1])
            found = self._nearest_here(queries[piece], min(most, len(self._features)), labels)
            parts.append(_nearest(*self._of_all_workers(*found, k), k)[0])
        return np.concatenate(parts)

    def _nearest_here(
        self, queries: AnyNDArray, number: int, labels: tuple[AnyNDArray, AnyNDArray] | None
    ) -> tuple[AnyNDArray, AnyNDArray]:
        """The numbers [q, number] of this worker's candidates, and their squared distances."""
        if number == len(self._features):
            at = np.broadcast_to(np.arange(number), (len(queries), number))
        else:
            at = self._candidates(queries, number)
        squares = np.square(self._features[at] - queries[:, None]).sum(-1)
        if labels is not None:
            squares[labels[1][at] == labels[0][:, None]] = np.inf
        return at + self._first, squares

    def _of_all_workers(
        self, numbers: AnyNDArray, squares: AnyNDArray, k: int
    ) -> tuple[AnyNDArray, AnyNDArray]:
        """The candidates of all workers: the k nearest are among the k nearest of each."""
        if num_workers(self._strategy) == 1:
            return numbers, squares
        own = np.zeros((2, len(numbers), k))
        own[1] = np.inf
        here = _nearest(numbers, squares, k)
        own[..., : here[0].shape[1]] = here
        joined = np.concatenate(gathered(self._strategy, own), -1)
        return joined[0].astype(int), joined[1]


def _nearest(numbers: AnyNDArray, squares: AnyNDArray, k: int) -> tuple[AnyNDArray, AnyNDArray]:
    order = np.lexsort((numbers, squares), axis=-1)[:, :k]
    return np.take_along_axis(numbers, order, 1), np.take_along_axis(squares, order, 1)


def _search_of(features: AnyNDArray) -> Any:
    """A function (queries [n, F], number) → candidates [n, number]."""
    num_rows = len(features)
    if num_rows < _FEWEST_ROWS_OF_TREES:
        return _by_blocks(features)
    if num_rows < _MANY_ROWS or num_directions(features) <= _MOST_DIRECTIONS_OF_TREES:
        return _Tree(features)
    if importlib.util.find_spec("faiss") is not None:
        return _by_faiss(features)
    return _by_blocks(features)


def num_directions(features: AnyNDArray) -> float:
    """In how many directions rows differ: (Σλ)²/Σλ² for the eigenvalues λ of their covariance."""
    covariance = np.atleast_2d(np.cov(features[:: max(1, len(features) // _SOME_ROWS)].T))
    return float(np.trace(covariance) ** 2 / max(np.square(covariance).sum(), 1e-300))


class _Tree:
    """A tree; once it was asked much, over rows in its own order, so that near ones are near."""

    def __init__(self, features: AnyNDArray) -> None:
        self._features, self._asked = features, 0
        self._order = np.arange(len(features))
        self._tree = KDTree(features, _LEAF, balanced_tree=False)

    def __call__(self, queries: AnyNDArray, number: int) -> AnyNDArray:
        was_few = self._asked < _MANY_QUERIES
        self._asked += len(queries)
        if was_few and self._asked >= _MANY_QUERIES:
            self._order = self._tree.indices
            self._tree = KDTree(self._features[self._order], _LEAF, balanced_tree=False)
        found = np.empty((len(queries), number), int)
        by_place = KDTree(queries, 4).indices
        nearest = self._tree.query(queries[by_place], np.arange(1, number + 1))[1]
        found[by_place] = self._order[nearest]
        return found


def _by_blocks(features: AnyNDArray) -> Any:
    """Brute force: ‖x‖² − 2 qᵀx of blocks of queries."""
    centre = features.mean(0)
    rows = features - centre
    norms = np.square(rows).sum(1)

    def search(queries: AnyNDArray, number: int) -> AnyNDArray:
        found = np.empty((len(queries), number), int)
        step = max(1, _DISTANCES_AT_ONCE // len(rows))
        for start in range(0, len(queries), step):
            piece = slice(start, start + step)
            distances = norms - 2.0 * (queries[piece] - centre) @ rows.T
            found[piece] = np.argpartition(distances, number - 1, 1)[:, :number]
        return found

    return search


def _by_faiss(features: AnyNDArray) -> Any:
    """An exact search by faiss, which computes distances in float32 in all cores' registers."""
    import faiss

    centre = features.mean(0)
    index = faiss.IndexFlatL2(features.shape[1])
    index.add(np.ascontiguousarray(features - centre, np.float32))

    def search(queries: AnyNDArray, number: int) -> AnyNDArray:
        return index.search(np.ascontiguousarray(queries - centre, np.float32), number)[1]

    return search
