r"""
Products with a K_ZX most of which is zero: that of the effects of groups beside inducing variables.

A row of the data has one level of each grouping factor. So from the row ``first`` on a column of
A = chol⁻¹K_ZX has one non-zero entry for each factor, K_ZZ is diagonal there, and has no
covariances with the rows before. N rows with K factors then cost O(N·first² + N·K·M), not O(N·M²).
"""

import itertools
from typing import NamedTuple

import tensorflow as tf


class OneHot(NamedTuple):
    """Where a K_ZX [broadcast L, M, N] is not zero: in all rows before ``first``, and in some."""

    rows: tf.Tensor  # [K, N], those that may be non-zero in each column, ≥ ``first``
    first: int

    def cholesky(self, K_ZZ: tf.Tensor) -> tf.Tensor:
        """The Cholesky factor of K_ZZ [broadcast L, M, M]."""
        F, variances = self.first, tf.linalg.diag_part(K_ZZ)
        dense = tf.linalg.cholesky(K_ZZ[..., :F, :F])
        rest = tf.shape(variances)[-1] - F
        roots = tf.sqrt(variances[..., F:])
        return tf.pad(dense, [[0, 0], [0, rest], [0, rest]]) + tf.linalg.diag(
            tf.pad(roots, [[0, 0], [F, 0]])
        )

    def solve(self, chol: tf.Tensor, K_ZX: tf.Tensor) -> tf.Tensor:
        """A = chol⁻¹ K_ZX, [broadcast L, M, N]."""
        F = self.first
        dense = tf.linalg.triangular_solve(chol[..., :F, :F], K_ZX[..., :F, :])
        roots = tf.linalg.diag_part(chol)[..., F:, None]
        return tf.concat([dense, K_ZX[..., F:, :] / roots], -2)

    def values(self, A: tf.Tensor) -> tf.Tensor:
        """The entries of A at ``rows``, [broadcast L, K, N]."""
        N = tf.shape(A)[-1]
        flat = tf.reshape(A, [tf.shape(A)[0], -1])
        return tf.gather(flat, self.rows * N + tf.range(N), axis=1)

    def times(self, A: tf.Tensor, R: tf.Tensor) -> tf.Tensor:
        """Aᵀ R for R [L, M, C], [L, N, C]."""
        F, values = self.first, self.values(A)
        found = tf.matmul(A[..., :F, :], R[..., :F, :], transpose_a=True)
        for rows, value in zip(tf.unstack(self.rows), tf.unstack(values, axis=1), strict=True):
            found += value[..., None] * tf.gather(R, rows, axis=1)
        return found

    def weighted_square(self, A: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
        """A diag(weights) Aᵀ for weights [L, N], [L, M, M]."""
        F, G, dense = self.first, tf.shape(A)[-2] - self.first, A[..., : self.first, :]
        levels, values = tf.unstack(self.rows - F), tf.unstack(self.values(A), axis=1)
        weighted = [value * weights for value in values]  # K of [L, N]
        factors = list(zip(levels, values, weighted, strict=True))
        with_dense = sum(
            _by_level(weight[..., None] * tf.linalg.matrix_transpose(dense), level, G)
            for level, _, weight in factors
        )  # [L, G, F]
        of_levels = tf.linalg.diag(
            sum(_by_level(weight * value, level, G) for level, value, weight in factors)
        )
        for (level, _, weight), (other, value, _) in itertools.combinations(factors, 2):
            pairs = _by_level(weight * value, level * G + other, G * G)
            pairs = tf.reshape(pairs, [-1, G, G])
            of_levels += pairs + tf.linalg.matrix_transpose(pairs)
        of_dense = tf.matmul(dense * weights[:, None, :], dense, transpose_b=True)
        above = tf.concat([of_dense, tf.linalg.matrix_transpose(with_dense)], -1)
        return tf.concat([above, tf.concat([with_dense, of_levels], -1)], -2)

    def entries(self, R: tf.Tensor, P: tf.Tensor) -> tf.Tensor:
        """The entries at ``rows`` of R Pᵀ, for R [L, M, C] and P [L, N, C], [L, K, N]."""
        found = [
            tf.reduce_sum(tf.gather(R, rows, axis=1) * P, -1) for rows in tf.unstack(self.rows)
        ]
        return tf.stack(found, 1)

    def summed(self, values: tf.Tensor, num_rows: tf.Tensor) -> tf.Tensor:
        """The sums of values [L, K, N] at the same row, from ``first`` on, [L, M - first]."""
        pairs = zip(tf.unstack(self.rows - self.first), tf.unstack(values, axis=1), strict=True)
        return sum(_by_level(value, level, num_rows - self.first) for level, value in pairs)

    def scattered(self, values: tf.Tensor, num_rows: tf.Tensor) -> tf.Tensor:
        """Values [L, K, N] at ``rows`` among zeros, from ``first`` on, [L, M - first, N]."""
        pairs = zip(tf.unstack(self.rows - self.first), tf.unstack(values, axis=1), strict=True)
        return sum(
            tf.one_hot(level, num_rows - self.first, axis=0, dtype=value.dtype) * value[:, None, :]
            for level, value in pairs
        )


def _by_level(values: tf.Tensor, levels: tf.Tensor, num_levels: tf.Tensor) -> tf.Tensor:
    """The sum of values [L, N, ...] over the rows of each level, [L, num_levels, ...]."""
    order = [1, 0, *range(2, len(values.shape))]
    sums = tf.math.unsorted_segment_sum(tf.transpose(values, order), levels, num_levels)
    return tf.transpose(sums, order)
