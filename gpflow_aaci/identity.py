"""Digests of arrays and of rows, by which a checkpoint recognises the data of its run."""

import hashlib
from collections.abc import Iterator, Sequence

import numpy as np
from gpflow.base import AnyNDArray

_BASES = (0x9E3779B97F4A7C15, 0xD1342543DE82EF95)  # odd


def digest(arrays: Sequence[AnyNDArray]) -> str:
    """SHA-256 of arrays, their shapes and dtypes."""
    sha256 = hashlib.sha256()
    for array in arrays:
        sha256.update(f"{array.dtype}{array.shape}".encode())
        sha256.update(np.ascontiguousarray(array).tobytes())
    return sha256.hexdigest()


def rows_digest(X: AnyNDArray, Y: AnyNDArray, first: int = 0) -> AnyNDArray:
    """
    [2] uint64: what rows X [N, D], Y [N, P] are, the first of them being of number ``first``.

    Those of consecutive parts add up, in chunks and on workers; see :func:`shifted`.
    """
    sums = []
    for base, hashes in zip(_BASES, _row_hashes(X, Y), strict=True):
        powers = np.full(len(X), base, np.uint64)
        powers[:1] = pow(base, first, 2**64)
        sums.append(np.sum(hashes * np.cumprod(powers, dtype=np.uint64), dtype=np.uint64))
    return np.array(sums, np.uint64)


def unordered_digest(X: AnyNDArray, Y: AnyNDArray) -> AnyNDArray:
    """
    [2] uint64: what rows X [N, D], Y [N, P] are, in whatever order.

    Those of parts add up.
    """
    return np.array([np.sum(of_rows, dtype=np.uint64) for of_rows in _row_hashes(X, Y)], np.uint64)


def _row_hashes(X: AnyNDArray, Y: AnyNDArray) -> Iterator[AnyNDArray]:
    """Two hashes [N] uint64 of every row X [N, D], Y [N, P], one after the other."""
    shape = f"{X.dtype} {X.shape[1:]} {Y.shape[1:]}".encode()
    seed = np.uint64(int.from_bytes(hashlib.sha256(shape).digest()[:8], "big"))
    D, P = X.shape[1], Y.shape[1]
    factors = np.random.default_rng(0).integers(0, 2**63, D + P, np.uint64) * 2 + 1
    of_row = np.full(len(X), seed)
    for part, factors_of_part in ((X, factors[:D]), (Y, factors[D:])):
        words = np.ascontiguousarray(part, np.float64).view(np.uint64)
        mixed = words >> np.uint64(29)
        mixed ^= words  # in place, and a product: half the time of a sum over the columns
        of_row += mixed @ factors_of_part
    for number in (1, 2):
        mixed = (of_row ^ (of_row >> np.uint64(31))) * np.uint64(_BASES[0] ^ number << 40)
        yield mixed ^ (mixed >> np.uint64(27))


def shifted(of_rows: AnyNDArray, first: int) -> AnyNDArray:
    """A :func:`rows_digest` with every row's number larger by ``first``."""
    return of_rows * np.array([pow(base, first, 2**64) for base in _BASES], np.uint64)


def shown_value(value: AnyNDArray) -> str:
    """Itself, if small, else its SHA-256."""
    return repr(value.tolist()) if value.size <= 4 else digest([value])
