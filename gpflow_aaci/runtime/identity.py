"""Digests of arrays and of rows, by which a checkpoint recognises the data of its run."""

import hashlib
from collections.abc import Iterator, Sequence

import numpy as np
from gpflow.base import AnyNDArray

_BASES = (0x9E3779B97F4A7C15, 0xD1342543DE82EF95)  # odd, so that no power is 0 modulo 2^64


def digest(arrays: Sequence[AnyNDArray]) -> str:
    """Return the SHA-256 of the values, shapes and dtypes of arrays."""
    sha256 = hashlib.sha256()
    for array in arrays:
        sha256.update(f"{array.dtype}{array.shape}".encode())
        sha256.update(np.ascontiguousarray(array).tobytes())
    return sha256.hexdigest()


def rows_digest(X: AnyNDArray, Y: AnyNDArray, first: int = 0) -> AnyNDArray:
    """
    Return a digest [2] uint64 of the rows X [N, D], Y [N, P] and of their order.

    It is Σ baseⁿ · hash of row n modulo 2^64, for two bases and hashes. Hence the digests of
    consecutive chunks, or of the rows of several workers, add up to the digest of all rows; see
    :func:`shifted`.

    :param first: the number of the first row.
    """
    sums = []
    for base, hashes in zip(_BASES, _row_hashes(X, Y), strict=True):
        powers = np.full(len(X), base, np.uint64)  # their cumulative products are base^(first + i)
        powers[:1] = pow(base, first, 2**64)
        sums.append(np.sum(hashes * np.cumprod(powers, dtype=np.uint64), dtype=np.uint64))
    return np.array(sums, np.uint64)


def unordered_digest(X: AnyNDArray, Y: AnyNDArray) -> AnyNDArray:
    """
    Return a digest [2] uint64 of the rows X [N, D], Y [N, P] that does not depend on their order.

    Digests of parts of the rows add up to the digest of all rows.
    """
    return np.array([np.sum(of_rows, dtype=np.uint64) for of_rows in _row_hashes(X, Y)], np.uint64)


def values_hashes(X: AnyNDArray, Y: AnyNDArray, dtype: type = np.float32) -> AnyNDArray:
    """Return a hash [N] uint64 of the rows X [N, D], Y [N, P], of their values in ``dtype``."""
    rounded = [np.asarray(part, dtype).astype(np.float64) + 0.0 for part in (X, Y)]  # −0 is 0
    return next(_row_hashes(*rounded))


def _row_hashes(X: AnyNDArray, Y: AnyNDArray) -> Iterator[AnyNDArray]:
    """Yield two different hashes [N] uint64 of the rows X [N, D], Y [N, P]."""
    shape = f"{X.dtype} {X.shape[1:]} {Y.shape[1:]}".encode()
    seed = np.uint64(int.from_bytes(hashlib.sha256(shape).digest()[:8], "big"))
    D, P = X.shape[1], Y.shape[1]
    factors = np.random.default_rng(0).integers(0, 2**63, D + P, np.uint64) * 2 + 1
    of_row = np.full(len(X), seed)
    for part, factors_of_part in ((X, factors[:D]), (Y, factors[D:])):
        words = np.ascontiguousarray(part, np.float64).view(np.uint64)
        mixed = words >> np.uint64(29)
        mixed ^= words  # in place, and then a matrix product: half the time of a plain sum
        of_row += mixed @ factors_of_part
    for number in (1, 2):
        mixed = (of_row ^ (of_row >> np.uint64(31))) * np.uint64(_BASES[0] ^ number << 40)
        yield mixed ^ (mixed >> np.uint64(27))


def shifted(of_rows: AnyNDArray, first: int) -> AnyNDArray:
    """Return the :func:`rows_digest` of the same rows with every number larger by ``first``."""
    return of_rows * np.array([pow(base, first, 2**64) for base in _BASES], np.uint64)


def shown_value(value: AnyNDArray) -> str:
    """Return the numbers of a small array, and the SHA-256 of a larger one."""
    return repr(value.tolist()) if value.size <= 4 else digest([value])
