"""The nearest rows of a query, by exact searches; of a few ties the lower row numbers win."""

import importlib.util
from typing import Any

import numpy as np
from gpflow.base import AnyNDArray

_MOST_COLUMNS_OF_TREES = 15  # beyond which a tree visits nearly all rows
_FEWEST_ROWS_OF_TREES = 5_000
_LEAF = 40
_DISTANCES_AT_ONCE = 4_000_000
_MORE = 8  # candidates beyond k, among which exact distances decide


class Neighbors:
    """A search for the nearest of some rows by Euclidean distance."""

    def __init__(self, features: AnyNDArray) -> None:
        """
        :param features: [N, F], the rows in the coordinates in which "near" is Euclidean.
        """
        self._features = np.ascontiguousarray(features)
        self._candidates = _search_of(self._features)

    def of(
        self,
        queries: AnyNDArray,
        k: int,
        left_out: tuple[AnyNDArray, AnyNDArray] | None = None,
        most_left_out: int = 0,
    ) -> AnyNDArray:
        """
        The k nearest rows of every query, the nearest first: their numbers [n, k].

        :param queries: [n, F].
        :param left_out: a label of each query [n] and of each row [N]: rows with the label of a
            query are not its neighbours.
        :param most_left_out: the largest number of rows that a query leaves out.
        """
        num_rows = len(self._features)
        if not len(queries):
            return np.zeros((0, min(k, num_rows)), int)
        k = min(k, num_rows - most_left_out)
        num = min(num_rows, k + most_left_out + _MORE)
        if num == num_rows:
            found = np.broadcast_to(np.arange(num_rows), (len(queries), num_rows))
        else:
            found = self._candidates(queries, num)
        rows = max(1, _DISTANCES_AT_ONCE // (num * max(1, queries.shape[1])))
        parts = []
        for start in range(0, len(queries), rows):
            piece = slice(start, start + rows)
            at = found[piece]
            squares = np.square(self._features[at] - queries[piece, None]).sum(-1)
            if left_out is not None:
                of_query, of_row = left_out
                squares[of_row[at] == of_query[piece, None]] = np.inf
            order = np.lexsort((at, squares), axis=-1)[:, :k]
            parts.append(np.take_along_axis(at, order, 1))
        return np.concatenate(parts)


def locations(X: AnyNDArray) -> tuple[AnyNDArray, AnyNDArray]:
    """
    A number for every distinct row of X [N, D], and how many rows have it: [N], [number].

    Rows are told apart by a random projection first, as sorting rows takes many times longer.
    """
    weights = np.random.default_rng(0).standard_normal(X.shape[1])
    projected = (X * weights).sum(1)
    _, first, label, counts = np.unique(
        projected, return_index=True, return_inverse=True, return_counts=True
    )
    if not np.array_equal(X[first[label]], X):  # two different rows have the same projection
        _, label, counts = np.unique(X, axis=0, return_inverse=True, return_counts=True)
    return label.reshape(-1), counts


def _search_of(features: AnyNDArray) -> Any:
    """A function (queries [n, F], number) → candidates [n, number]."""
    num_rows, num_columns = features.shape
    if num_rows < _FEWEST_ROWS_OF_TREES:
        return _by_blocks(features)
    if num_columns <= _MOST_COLUMNS_OF_TREES:
        from sklearn.neighbors import KDTree  # here, as scikit-learn is slow to import

        tree = KDTree(features, leaf_size=_LEAF)
        return lambda queries, number: tree.query(queries, number, return_distance=False)
    if importlib.util.find_spec("faiss") is not None:
        return _by_faiss(features)
    return _by_blocks(features)


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
