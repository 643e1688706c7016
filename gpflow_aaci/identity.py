"""What an object is, apart from what is learnt: for checkpoints, which must not be of another."""

import enum
import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow import Parameter
from gpflow.base import AnyNDArray

# Python's and TensorFlow's own book-keeping.
_NOT_ITS_OWN = ("_name", "_name_scope", "_scope_name")
_TENSORFLOWS = "_self_"
_OF_TFP = ("validate_args", "allow_nan_stats", "name", "parameters", "validate_event_size")

_BASES = (0x9E3779B97F4A7C15, 0xD1342543DE82EF95)  # odd


def facts(thing: Any, without: Collection[str] = ()) -> dict[str, str]:
    """
    Every part of ``thing`` by its path: kinds, shapes, fixed values, priors, transforms, settings.

    Values of trainable parameters are left out, for they are what is learnt; so are those of bare
    variables, which are a state. Large values are given by their SHA-256.

    :param without: paths whose parts do not count, but for their shapes.
    """
    found: dict[str, str] = {}
    _collect(thing, "", found, {}, without)
    return found


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


def _collect(
    thing: Any, path: str, found: dict[str, str], seen: dict[int, str], without: Collection[str]
) -> None:
    parts: Mapping[str, Any] = {}
    own: Callable[[str], str] = (path + "." if path else "").__add__
    if isinstance(thing, Parameter):
        value = "learnt" if thing.trainable or path in without else shown_value(thing.numpy())
        found[path] = f"{tuple(thing.shape)} {thing.dtype.name} {value}"
        parts = {"transform": thing.transform, "prior": thing.prior, "prior_on": thing.prior_on}
        parts = {name: part for name, part in parts.items() if part is not None}
    elif isinstance(thing, tf.Variable):
        found[path] = f"{tuple(thing.shape)} {thing.dtype.name}"
    elif path in without:
        return
    elif isinstance(thing, np.ndarray | np.generic) or tf.is_tensor(thing):
        found[path] = shown_value(np.asarray(thing))
    elif isinstance(thing, bool | int | float | complex | str | bytes | slice | enum.Enum | None):
        found[path] = repr(thing)
    elif id(thing) in seen:  # shared, or a circle
        found[path] = f"as {seen[id(thing)]}"
    elif isinstance(thing, Mapping):
        parts = {str(key): value for key, value in thing.items()}
    elif isinstance(thing, list | tuple):
        parts = {str(number): value for number, value in enumerate(thing)}
    else:
        found[path or "kind"] = _kind(thing)
        parts = _parts(thing)
    seen.setdefault(id(thing), path)
    for name in sorted(parts):
        _collect(parts[name], own(name), found, seen, without)


def _parts(thing: Any) -> Mapping[str, Any]:
    if isinstance(thing, tfp.bijectors.Bijector | tfp.distributions.Distribution):
        return {k: v for k, v in thing.parameters.items() if k not in _OF_TFP}
    if callable(thing) and hasattr(thing, "__code__"):
        cells = thing.__closure__ or ()
        constants = [c for c in thing.__code__.co_consts if not hasattr(c, "co_code")]
        return {
            "code": hashlib.sha256(thing.__code__.co_code).hexdigest(),
            "constants": repr(constants),
            "closure": [cell.cell_contents for cell in cells],
        }
    if not isinstance(getattr(thing, "__dict__", None), dict):
        return {}
    own = {
        name: value
        for name, value in vars(thing).items()
        if name not in _NOT_ITS_OWN and not name.startswith(_TENSORFLOWS)
    }
    if isinstance(thing, tf.Module):
        return own
    # Of a foreign object only what is plain: it may hold anything.
    plain = (bool, int, float, str, np.ndarray, np.generic)
    return {k: v for k, v in own.items() if isinstance(v, plain) or tf.is_tensor(v)}


def _kind(thing: Any) -> str:
    kind = thing if hasattr(thing, "__qualname__") else type(thing)
    return f"{kind.__module__}.{kind.__qualname__}"


def shown_value(value: AnyNDArray) -> str:
    """Itself, if small, else its SHA-256."""
    return repr(value.tolist()) if value.size <= 4 else digest([value])
