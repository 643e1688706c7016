r"""
Inducing variables that are effects of groups: most of their covariances with f are zero.

A row of the data has one level of each of K grouping factors. So a column of K_ZX = [K_FX; K_GX]
has, below the F dense rows, only K entries that are not zero, and K_ZZ = blockdiag(K_FF, diag). The
same holds for A = chol⁻¹K_ZX. Products for N rows then cost O(N F² + N K F), and with several
factors O(N K² G) besides, in the place of O(N M²) with M = F + G.
"""

import itertools
from typing import NamedTuple

import tensorflow as tf


class OneHot(NamedTuple):
    """The entries below the dense rows of a K_ZX or an A [broadcast L, M, N] that are not zero."""

    rows: tf.Tensor  # [K, N], where they are, F ≤ rows < M
    values: tf.Tensor  # [broadcast L, K, N]

    @property
    def factors(self) -> list[tuple[tf.Tensor, tf.Tensor]]:
        """The rows [N] and values [broadcast L, N] of each factor."""
        pairs = zip(tf.unstack(self.rows), tf.unstack(self.values, axis=1), strict=True)
        return list(pairs)


def block_cholesky(K_ZZ: tf.Tensor, F: int) -> tf.Tensor:
    """The Cholesky factor of K_ZZ [broadcast L, M, M], which is diagonal but for its first F."""
    dense = tf.linalg.cholesky(K_ZZ[..., :F, :F])
    roots = tf.sqrt(tf.linalg.diag_part(K_ZZ)[..., F:])
    return block_diagonal(dense, roots)


def block_diagonal(dense: tf.Tensor, diagonal: tf.Tensor) -> tf.Tensor:
    """The matrix [L, M, M] of a dense block [L, F, F] and a diagonal [L, M - F]."""
    F, G = tf.shape(dense)[-1], tf.shape(diagonal)[-1]
    below = tf.linalg.diag(tf.pad(diagonal, [[0, 0], [F, 0]]))
    return below + tf.pad(dense, [[0, 0], [0, G], [0, G]])


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


class Spread(NamedTuple):
    """A_iᵀ S A_i at every row i, and what else the gradients need of R = q_sqrt, S = R Rᵀ."""

    of_dense: tf.Tensor  # [L, N, F], (Rᵀ A_i) of the first F columns of R
    squares: tf.Tensor  # [L, K, K, N], (S_G)_{jk} of the rows j and k, S_G of the other columns


def spread(A: tf.Tensor, entries: OneHot, R: tf.Tensor) -> Spread:
    """The spread under R [L, M, M], which is lower triangular."""
    F, factors = A.shape[-2], entries.factors
    of_dense = tf.matmul(A, R[:, :F, :F], transpose_a=True)
    for rows, values in factors:
        of_dense += values[..., None] * tf.gather(R[:, :, :F], rows, axis=1)
    norms = tf.reduce_sum(tf.square(R[:, :, F:]), -1)  # [L, M]
    num = len(factors)
    squares = [[tf.gather(norms, rows, axis=1)] * num for rows, _ in factors]
    for j, k in itertools.combinations(range(num), 2):
        end = tf.reduce_max(factors[j][0]) + 1  # R has zeros to the right of its diagonal
        of_j, of_k = (tf.gather(R[:, :, F:end], factors[i][0], axis=1) for i in (j, k))
        squares[j][k] = squares[k][j] = tf.reduce_sum(of_j * of_k, -1)
    return Spread(of_dense, tf.stack([tf.stack(of_row, 1) for of_row in squares], 1))


def explained(entries: OneHot, spread: Spread) -> tf.Tensor:
    """A_iᵀ S A_i at every row, [L, N]."""
    of_levels = entries.values[:, :, None, :] * entries.values[:, None, :, :] * spread.squares
    return tf.reduce_sum(tf.square(spread.of_dense), -1) + tf.reduce_sum(of_levels, [1, 2])


def times_covariance(
    A: tf.Tensor, entries: OneHot, R: tf.Tensor, spread: Spread
) -> tuple[tf.Tensor, OneHot]:
    """S A in its first F rows, [L, F, N], and at the places of the entries."""
    F = A.shape[-2]
    dense = tf.matmul(R[:, :F, :F], spread.of_dense, transpose_b=True)
    of_dense = [
        tf.reduce_sum(tf.gather(R[:, :, :F], rows, axis=1) * spread.of_dense, -1)
        for rows, _ in entries.factors
    ]
    of_levels = tf.reduce_sum(spread.squares * entries.values[:, None, :, :], 2)
    return dense, entries._replace(values=tf.stack(of_dense, 1) + of_levels)


def of_levels(entries: OneHot, F: int, M: tf.Tensor) -> tf.Tensor:
    """The sum of the entries of each row from F on, [L, M - F]."""
    return tf.add_n([_by_level(values, rows - F, M - F) for rows, values in entries.factors])


def weighted_square(A: tf.Tensor, entries: OneHot, weights: tf.Tensor, M: tf.Tensor) -> tf.Tensor:
    """A diag(weights) Aᵀ for weights [L, N], [L, M, M]."""
    F, G = A.shape[-2], M - A.shape[-2]
    factors = [(rows - F, values, values * weights) for rows, values in entries.factors]
    A_transposed = tf.linalg.matrix_transpose(A)
    below = tf.add_n(
        [_by_level(weight[..., None] * A_transposed, level, G) for level, _, weight in factors]
    )  # [L, G, F]
    squares = OneHot(entries.rows, tf.square(entries.values) * weights[:, None, :])
    square = tf.linalg.diag(of_levels(squares, F, M))
    for (level, _, weight), (other, values, _) in itertools.combinations(factors, 2):
        pairs = tf.reshape(_by_level(weight * values, level * G + other, G * G), [-1, G, G])
        square += pairs + tf.linalg.matrix_transpose(pairs)
    dense = tf.matmul(A * weights[:, None, :], A, transpose_b=True)
    above = tf.concat([dense, tf.linalg.matrix_transpose(below)], -1)
    return tf.concat([above, tf.concat([below, square], -1)], -2)


def _by_level(values: tf.Tensor, level: tf.Tensor, num_levels: tf.Tensor) -> tf.Tensor:
    """The sums of values [L, N, ...] over the rows of each level, [L, num_levels, ...]."""
    order = [1, 0, *range(2, len(values.shape))]
    sums = tf.math.unsorted_segment_sum(tf.transpose(values, order), level, num_levels)
    return tf.transpose(sums, order)
