r"""
Inducing variables that are effects of groups: most of their covariances with f are zero.

A row of the data has one level of each of K grouping factors. So a column of K_ZX = [K_FX; K_GX]
has, below the F dense rows, only K entries that are not zero, and K_ZZ = blockdiag(K_FF, diag). The
same holds for A = chol⁻¹K_ZX. Sums over N rows then cost O(N F² + N K F + N K²), in the place of
O(N M²) with M = F + G. They are the entries of an :class:`~gpflow_aaci.algebra.arrow.Arrow`, as a
datum has one level of the last factor.
"""

import itertools
from typing import NamedTuple

import tensorflow as tf

from .arrow import Arrow, BlockDiagonal, dense
from .gaussian import product


class OneHot(NamedTuple):
    """The entries below the dense rows of a K_ZX or an A [broadcast L, M, N] that are not zero."""

    rows: tf.Tensor  # [K, N], where they are, F ≤ rows < M
    values: tf.Tensor  # [broadcast L, K, N]
    num_before: int  # how many of the M rows are before those of the last factor

    @property
    def factors(self) -> list[tuple[tf.Tensor, tf.Tensor]]:
        """The rows [N] and values [broadcast L, N] of each factor."""
        pairs = zip(tf.unstack(self.rows), tf.unstack(self.values, axis=1), strict=True)
        return list(pairs)


def densely(A: tf.Tensor, entries: OneHot, M: tf.Tensor) -> tf.Tensor:
    """All rows [broadcast L, M, N] of the matrix with the first rows A and these entries."""
    F = tf.shape(A)[-2]
    below = [
        tf.one_hot(rows - F, M - F, axis=0, dtype=A.dtype) * values[:, None, :]
        for rows, values in entries.factors
    ]
    return tf.concat([A, tf.add_n(below)], -2)


def transposed_times(A: tf.Tensor, entries: OneHot, m: tf.Tensor) -> tf.Tensor:
    """Aᵀ m for m [M, L], [N, L]."""
    m = tf.transpose(m)
    found = tf.linalg.matvec(A, m[:, : A.shape[-2]], transpose_a=True)
    for rows, values in entries.factors:
        found += values * tf.gather(m, rows, axis=1)
    return tf.transpose(found)


def times(S: Arrow, A: tf.Tensor, entries: OneHot) -> tuple[tf.Tensor, tf.Tensor]:
    """S A in its first rows, as A has them [L, F, N], and in those of the entries [L, K, N]."""
    F, values = A.shape[-2], entries.values
    before = tf.concat([S.first[:, :, :F], S.below[:, :, :F]], 1)  # [L, M, F]
    of_entries = tf.gather(before, entries.rows, axis=1)  # [L, K, N, F]
    of_levels = tf.linalg.matrix_transpose(tf.reduce_sum(values[..., None] * of_entries, 1))
    A_transposed = tf.cast(tf.linalg.matrix_transpose(A), values.dtype)
    at_entries = tf.reduce_sum(of_entries * A_transposed[:, None], -1)
    num = entries.rows.shape[0]
    pairs = [[_at(S, entries, *sorted((j, k))) for k in range(num)] for j in range(num)]
    squares = tf.stack([tf.stack(of_row, 1) for of_row in pairs], 1)  # [L, K, K, N]
    at_entries += tf.reduce_sum(squares * values[:, None], 2)
    return product(S.first[:, :F, :F], A) + of_levels, at_entries


def _at(S: Arrow, entries: OneHot, j: int, k: int) -> tf.Tensor:
    """The entry of S at the rows of the factors j and k ≥ j, for every datum, [L, N]."""
    num_before = S.first.shape[-1]
    rows, others = entries.rows[k], entries.rows[j]
    is_last = k == entries.rows.shape[0] - 1
    block = S.below if is_last else S.first
    rows -= num_before if is_last else 0
    if j == k:
        return tf.gather(S.diagonal if is_last else tf.linalg.diag_part(block), rows, axis=1)
    flat = tf.reshape(block, [-1, tf.size(block[0])])
    return tf.gather(flat, rows * num_before + others, axis=1)


def explained(S: Arrow, A: tf.Tensor, entries: OneHot) -> tf.Tensor:
    """A_iᵀ S A_i at every row, [L, N]."""
    first, at_entries = times(S, A, entries)
    of_first = tf.reduce_sum(tf.cast(A, first.dtype) * first, -2)
    return of_first + tf.reduce_sum(entries.values * at_entries, 1)


def of_levels(entries: OneHot, F: int, M: tf.Tensor) -> tf.Tensor:
    """The sum of the entries of each row from F on, [L, M - F]."""
    return tf.add_n([_by_level(values, rows - F, M - F) for rows, values in entries.factors])


def weighted_square(A: tf.Tensor, entries: OneHot, weights: tf.Tensor, M: tf.Tensor) -> Arrow:
    """A diag(weights) Aᵀ for weights [L, N]."""
    F, num_before = A.shape[-2], entries.num_before
    factors = [(rows, values, values * weights) for rows, values in entries.factors]
    A_transposed = tf.cast(tf.linalg.matrix_transpose(A), weights.dtype)
    levels = tf.add_n(
        [_by_level(w[..., None] * A_transposed, rows - F, M - F) for rows, _, w in factors]
    )  # [L, M - F, F], the covariances of the levels and the first F
    squares = OneHot(entries.rows, tf.square(entries.values) * weights[:, None, :], num_before)
    of_each = of_levels(squares, F, M)
    others, G = num_before - F, M - num_before
    first = tf.pad(levels[:, :others], [[0, 0], [F, 0], [0, others]])
    below = tf.pad(levels[:, others:], [[0, 0], [0, 0], [0, others]])
    for j, k in itertools.combinations(range(len(factors)), 2):
        (rows, _, weight), (others_rows, values, _) = factors[j], factors[k]
        is_last = k == len(factors) - 1
        start, size = (num_before, G) if is_last else (0, num_before)
        places = (others_rows - start) * num_before + rows
        sums = _by_level(weight * values, places, size * num_before)
        pairs = tf.reshape(sums, [-1, size, num_before])
        first, below = (first, below + pairs) if is_last else (first + pairs, below)
    own = product(A * tf.cast(weights, A.dtype)[:, None, :], A, transpose_b=True)
    own = dense(BlockDiagonal(own, of_each[:, :others]))
    return Arrow(first + tf.linalg.matrix_transpose(first) + own, below, of_each[:, others:])


def _by_level(values: tf.Tensor, level: tf.Tensor, num_levels: tf.Tensor) -> tf.Tensor:
    """The sums of values [L, N, ...] over the rows of each level, [L, num_levels, ...]."""
    order = [1, 0, *range(2, len(values.shape))]
    sums = tf.math.unsorted_segment_sum(tf.transpose(values, order), level, num_levels)
    return tf.transpose(sums, order)
