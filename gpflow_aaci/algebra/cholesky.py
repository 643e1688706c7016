"""Cholesky factors of matrices that may not be positive definite."""

import numpy as np
import tensorflow as tf

_LARGEST = 300  # rows; beyond, the eigenvalues would take as long as the sums over the data


def cholesky_or_nan(matrix: tf.Tensor) -> tf.Tensor:
    """
    The lower Cholesky factors of ``matrix`` [..., M, M], or NaN if one of them is not definite.

    ``tf.linalg.cholesky`` returns NaN, too, but its kernel also prints a line. In a search, where a
    trial step may well be too long, this line is no news. So the smallest eigenvalue is asked
    first, of the matrix scaled to a unit diagonal, which loses the fewest digits. With it all takes
    some four times as long, and so is done for M up to 300.
    """
    if (matrix.shape[-1] or 0) > _LARGEST:
        return tf.linalg.cholesky(matrix)
    M = tf.shape(matrix)[-1]
    eye = tf.eye(M, dtype=matrix.dtype)
    root = tf.math.rsqrt(tf.linalg.diag_part(matrix))  # not finite unless the diagonal is positive
    scaled = root[..., :, None] * matrix * root[..., None, :]
    is_candidate = tf.reduce_all(tf.math.is_finite(scaled))
    eigenvalues = tf.linalg.eigvalsh(tf.where(is_candidate, scaled, eye))
    # Where rounding decides, the factor itself does: it has more digits than the eigenvalues.
    rounding = 10.0 * np.finfo(matrix.dtype.as_numpy_dtype).eps * tf.cast(M, matrix.dtype)
    is_definite = is_candidate & tf.reduce_all(eigenvalues > -rounding)
    # A branch would be slower to trace than the factor of one more identity is to compute.
    chol = tf.linalg.cholesky(tf.where(is_definite, matrix, eye))
    return tf.where(is_definite, chol, tf.constant(np.nan, matrix.dtype))
