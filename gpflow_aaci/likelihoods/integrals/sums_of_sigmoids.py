"""
E log S and E σ(f_k)/S, S = Σσ(f_j) of independent f_j ~ N(m_j, v_j): integrals over t.

1/S = ∫ e^{−tS} dt, and E e^{−tS} is the product of the E e^{−tσ(f_j)}. Shapes: [..., K].
"""

import functools
import math
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from ...special import log_ndtr
from .quadrature import expectation, safe_sqrt
from .tabulated import FAR, LOG_T_STEP, NEAR, Grid, expected_of_sigmoid, slopes_of_decays

_NODES = 96  # nodes of u = log t; the integrand is analytic in a strip of half-width π/2 about it
_NODES_OF_WIDE = 256
_LOWEST = -16.0  # the lowest u; below, the integrand is linear in t
_EVEN_TO, _GROWTH = 60.0, 8.0  # beyond u = 60, the distance between nodes grows
_NUMBERS_AT_ONCE = 4_000_000  # floats in memory
_NUMBERS_OF_SUM = 400  # floats for one f
_NUMBERS_OF_FAR = 3_000  # floats for one f that may be far below 0
_NUMBERS_OF_NODE = 60  # floats for one f and one t
_LOG_NEVER = -20.0  # the logarithm of a negligible probability

# Compiled once. Otherwise TensorFlow would insert its graph at every call in a larger graph, and
# take seconds to prepare each copy.
compiled_once = tf.function(autograph=False, experimental_attributes={"_noinline": True})


@compiled_once
def expected_log_sum(Fmu: tf.Tensor, Fvar: tf.Tensor) -> tf.Tensor:
    """E log S, [...]."""
    return in_chunks_of_rows(_log_sum, Fmu, Fvar, _NUMBERS_OF_SUM)


def expected_shares(Fmu: tf.Tensor, Fvar: tf.Tensor) -> tf.Tensor:
    """E σ(f_k)/S, [..., K]."""
    return in_chunks_of_rows(_shares, Fmu, Fvar, _NODES * _NUMBERS_OF_NODE, rank=1)


def _nodes(Fmu: tf.Tensor, Fvar: tf.Tensor, number: int) -> tuple[tf.Tensor, tf.Tensor]:
    """u [..., T] and its weights, up to where every product has vanished."""
    lowest_f = tf.reduce_max(Fmu - 7.0 * safe_sqrt(Fvar), -1)  # of the highest f_j
    end = tf.stop_gradient(4.5 + tf.nn.relu(-lowest_f))[..., None]
    # u = w + e^{(w − 60)/8}: for large u the integrand is smooth, as it is a mean over a wide f.
    end = tf.minimum(end, _EVEN_TO) + _GROWTH * tf.math.log1p(tf.nn.relu(end - _EVEN_TO))
    w = _LOWEST + (end - _LOWEST) * tf.cast(np.linspace(0.0, 1.0, number), end.dtype)
    growth = tf.exp((w - _EVEN_TO) / _GROWTH)
    weight = (end - _LOWEST) / (number - 1.0) * (1.0 + growth / _GROWTH)
    return w + growth, weight * tf.cast([0.5, *[1.0] * (number - 2), 0.5], end.dtype)


_OfRows = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]
_OfGrid = Callable[[tf.Tensor, tf.Tensor, Grid], tf.Tensor]

_LARGEST = 6.5  # the log tσ from which e^{−tσ} is negligible


def _transforms(
    Fmu: tf.Tensor, Fvar: tf.Tensor, u: tf.Tensor, of_exponent: Callable[[tf.Tensor], tf.Tensor]
) -> tf.Tensor:
    """E of_exponent(tσ) e^{−tσ}, [..., K, T]; e^{−tσ} falls where f is about −log(1 + t)."""
    shift = tf.math.softplus(u)[..., None, :]
    log_t = u[..., None, :]

    def function(x: tf.Tensor) -> tf.Tensor:
        largest = tf.constant(_LARGEST, x.dtype)
        exponent = tf.exp(tf.minimum(log_t + tf.math.log_sigmoid(x - shift), largest))
        return of_exponent(exponent) * tf.exp(-exponent)

    return expectation(function, Fmu[..., None] + shift, Fvar[..., None])


def _log_sum(Fmu: tf.Tensor, Fvar: tf.Tensor) -> tf.Tensor:
    """E log S, S = Σσ(f_j), [...]: ∫ (e^{−t} − E e^{−tS}) dt/t (Frullani)."""
    Fmu, shift = _lifted_mean(Fmu, Fvar)
    at_length = functools.partial(
        in_chunks_of_rows, _log_sum_of_wide, numbers=_NODES_OF_WIDE * _NUMBERS_OF_NODE
    )
    far = _with_rows_below(_log_sum_by_table, FAR, at_length)
    return _near_or(far, _log_sum_by_table)(Fmu, Fvar) - shift[..., 0]


def _near_or(far: _OfRows, by_table: _OfGrid, rank: int = 0) -> _OfRows:
    """``by_table`` on the accurate grid, but ``far`` for rows that reach below this grid."""
    in_chunks = functools.partial(in_chunks_of_rows, far, numbers=_NUMBERS_OF_FAR, rank=rank)
    return _with_rows_below(by_table, NEAR, in_chunks)


def _lifted_mean(Fmu: tf.Tensor, Fvar: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """
    Fmu plus a shift, and the shift, which is positive where every f_j is surely below −16.

    There σ(f) = e^f, so that adding a number to all f_j adds the same number to log S.
    """
    highest_f = tf.reduce_max(Fmu + 7.0 * safe_sqrt(Fvar), -1, keepdims=True)
    shift = tf.stop_gradient(tf.nn.relu(-16.0 - highest_f))
    return Fmu + shift, shift


def _with_rows_below(by_table: _OfGrid, grid: Grid, otherwise: _OfRows) -> _OfRows:
    """
    ``by_table``, but ``otherwise`` for rows whose f may all lie below the grid.

    Such rows occur only where the variance of f is large.
    """

    def is_below(Fmu: tf.Tensor, Fvar: tf.Tensor) -> tf.Tensor:
        z = (tf.constant(grid.lowest, Fmu.dtype) - Fmu) / safe_sqrt(Fvar)
        return tf.stop_gradient(tf.reduce_sum(log_ndtr(z), -1)) > _LOG_NEVER

    def of_most(Fmu: tf.Tensor, Fvar: tf.Tensor) -> tf.Tensor:
        return by_table(Fmu, Fvar, grid)

    return with_other_rows(of_most, is_below, otherwise)


def with_other_rows(
    of_most: _OfRows, is_other: Callable[[tf.Tensor, tf.Tensor], tf.Tensor], of_others: _OfRows
) -> _OfRows:
    """``of_most`` for all rows [..., K], replaced by ``of_others`` in the selected rows."""

    def of_rows(Fmu: tf.Tensor, Fvar: tf.Tensor) -> tf.Tensor:
        is_far = is_other(Fmu, Fvar)
        found = of_most(Fmu, Fvar)

        def with_others() -> tf.Tensor:
            at = tf.where(is_far)
            # The product with 1 has a dense gradient: tf.cond takes no sparse one of a gather.
            mean, variance = (tf.gather_nd(1.0 * part, at) for part in (Fmu, Fvar))
            return tf.tensor_scatter_nd_update(found, at, of_others(mean, variance))

        return tf.cond(tf.reduce_any(is_far), with_others, lambda: found)

    return of_rows


def _log_sum_by_table(Fmu: tf.Tensor, Fvar: tf.Tensor, grid: Grid) -> tf.Tensor:
    """
    The trapezoidal rule in log t over the whole line, with an error of 1e-6.

    Below the first node the integrand is t (E S − 1) + t² (1 − E S²)/2, and its sums over nodes are
    geometric series.
    """
    decays, mean, second = expected_of_sigmoid(Fmu, Fvar, grid)
    t = np.exp(grid.log_t)
    body = tf.reduce_sum(tf.cast(np.exp(-t), Fmu.dtype) - tf.reduce_prod(decays, -2), -1)
    total = tf.reduce_sum(mean, -1)
    total_squared = tf.square(total) + tf.reduce_sum(second - tf.square(mean), -1)
    linear, quadratic = (t[0] ** k / np.expm1(k * LOG_T_STEP) for k in (1, 2))
    below = linear * (total - 1.0) + quadratic * (1.0 - total_squared) / 2.0
    return LOG_T_STEP * (body + below)


@compiled_once
def coupling_of_log_sum(Fmu: tf.Tensor, Fvar: tf.Tensor) -> tf.Tensor:
    """−∂²E log S/∂m_j∂m_k for j ≠ k, and 0 for j = k, [..., K, K]."""
    Fmu, _ = _lifted_mean(Fmu, Fvar)
    far = functools.partial(_coupling_by_table, grid=FAR)
    of_rows = _near_or(far, _coupling_by_table, rank=2)
    return in_chunks_of_rows(of_rows, Fmu, Fvar, _NUMBERS_OF_SUM, rank=2)


def _coupling_by_table(Fmu: tf.Tensor, Fvar: tf.Tensor, grid: Grid) -> tf.Tensor:
    """With D_j = E e^{−tσ(f_j)}."""
    decays, _, _ = expected_of_sigmoid(Fmu, Fvar, grid)
    return LOG_T_STEP * coupling_of_product(decays, slopes_of_decays(Fmu, Fvar, grid))


def coupling_of_product(decays: tf.Tensor, slopes: tf.Tensor) -> tf.Tensor:
    """
    Σ_t D_j' D_k' Π_l D_l over l other than j and k, for j ≠ k, and 0 for j = k: [..., K, K].

    :param decays, slopes: D_j and D_j', [..., K, T].
    """
    decays = tf.maximum(decays, tf.constant(1e-10, decays.dtype))  # this cancels in products
    root = tf.exp(0.5 * tf.reduce_sum(tf.math.log(decays), -2, keepdims=True))
    ratios = slopes / decays * root
    found = tf.matmul(ratios, ratios, transpose_b=True)
    return tf.linalg.set_diag(found, tf.zeros_like(found[..., 0]))


def _log_sum_of_wide(Fmu: tf.Tensor, Fvar: tf.Tensor) -> tf.Tensor:
    """Without a table, for rows whose f may all be far below 0."""
    u, weight = _nodes(Fmu, Fvar, _NODES_OF_WIDE)
    of_sum = tf.reduce_prod(_transforms(Fmu, Fvar, u, tf.ones_like), -2)
    below = math.exp(_LOWEST) * (tf.reduce_sum(expectation(tf.sigmoid, Fmu, Fvar), -1) - 1.0)
    return below + tf.reduce_sum(weight * (tf.exp(-tf.exp(u)) - of_sum), -1)


def _shares(Fmu: tf.Tensor, Fvar: tf.Tensor) -> tf.Tensor:
    """E σ(f_k)/S, [..., K]: ∫ E[tσ_k e^{−tσ_k}] Π_{j≠k} E e^{−tσ_j} du."""
    u, weight = _nodes(Fmu, Fvar, _NODES)
    tiny = tf.constant(np.finfo(Fmu.dtype.as_numpy_dtype).tiny, Fmu.dtype)
    logs = tf.math.log(tf.maximum(_transforms(Fmu, Fvar, u, tf.ones_like), tiny))
    others = tf.exp(tf.reduce_sum(logs, -2, keepdims=True) - logs)
    own = _transforms(Fmu, Fvar, u, tf.identity)
    below = math.exp(_LOWEST) * expectation(tf.sigmoid, Fmu, Fvar)
    p = below + tf.reduce_sum(weight[..., None, :] * own * others, -1)
    return p / tf.reduce_sum(p, -1, keepdims=True)


def in_chunks_of_rows(
    function: _OfRows,
    Fmu: tf.Tensor,
    Fvar: tf.Tensor,
    numbers: int,
    rank: int = 0,
    recompute: bool = True,
) -> tf.Tensor:
    """
    ``function(Fmu, Fvar)`` of [..., K], a few rows at a time.

    :param numbers: how many floats it needs in memory for one f.
    :param rank: the rank of the result for one row: [], [K] or [K, K].
    :param recompute: whether a gradient computes it again, so that not all chunks are stored;
        False for a function of Parameters, whose gradient would be lost.
    """
    K = Fmu.shape[-1]
    flat = [tf.reshape(tf.broadcast_to(part, tf.shape(Fmu)), [-1, K]) for part in (Fmu, Fvar)]
    most = max(1, _NUMBERS_AT_ONCE // (numbers * K))

    number = tf.shape(flat[0])[0]
    if tf.get_static_value(number) is not None and int(number) <= most:
        values = function(*flat)
    else:
        chunks = tf.maximum(1, -(-number // most))
        rows = tf.maximum(1, -(-number // chunks))  # rows per chunk; at most chunks − 1 are padding
        padding = chunks * rows - number
        padded = [
            tf.reshape(tf.concat([part, tf.ones([padding, K], part.dtype)], 0), [chunks, rows, K])
            for part in flat
        ]
        in_parts = tf.recompute_grad(function) if recompute else function
        spec = tf.TensorSpec([None, *[K] * rank], Fmu.dtype)
        of_part = tf.autograph.experimental.do_not_convert(lambda part: in_parts(*part))
        values = tf.map_fn(of_part, tuple(padded), fn_output_signature=spec)
        values = tf.reshape(values, tf.concat([[-1], tf.shape(values)[2:]], 0))[:number]
    return tf.reshape(values, tf.concat([tf.shape(Fmu)[:-1], tf.shape(values)[1:]], 0))
