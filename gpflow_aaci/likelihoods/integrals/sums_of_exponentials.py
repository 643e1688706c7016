"""
E log S, S = Σ e^{f_j} of independent f_j ~ N(m_j, v_j), and E e^{f_k}/S. Shapes: [..., K].

For any g of mean 0, E log S = ∫ (E e^{−t e^g} − Π_j E e^{−t e^{f_j}}) du with t = e^u (Frullani).
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray

from .nodes import before_axes_of
from .quadrature import expectation, safe_sqrt
from .sums_of_sigmoids import (
    compiled_once,
    coupling_of_product,
    in_chunks_of_rows,
    with_other_rows,
)
from .tabulated import TAPS, over_grid, sum_over_grid, unsmoothed

_REACH = 6.5  # standard deviations
_SMOOTHING = 1.0  # in steps of the grid of f
_SURE, _GONE = 16.0, 5.0  # e^{−e^{−16}} is 1, and e^{−e^5} is 0
_LARGEST_LOG = 6.5  # the log x from which e^{−x} underflows
_NODES, _MOST_NODES = 256, 4_096  # nodes of u, where there is no table
_FARTHEST_APART = 0.6  # their distance, as long as they are not too many
_Z = np.linspace(-7.5, 7.5, 96)  # nodes of (f − m)/√v, for no larger standard deviation than above
_NUMBERS_OF_TABLE, _NUMBERS_OF_WIDE = 400, 100 * _NODES  # floats in memory for one f


class _Tier(NamedTuple):
    """The grids of f and of u = log t for rows of standard deviations up to the largest."""

    largest_sd: float
    step: float
    u_step: float

    @property
    def smoothing(self) -> float:
        return _SMOOTHING * self.step


_NEAR, _FAR = _Tier(3.0, 0.25, 0.5), _Tier(12.0, 0.3, 0.55)  # of errors 2e-7 and 1e-6

_OfRows = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]
_Rule = Callable[[Callable[[tf.Tensor], tf.Tensor], tf.Tensor, tf.Tensor], tf.Tensor]


@compiled_once
def expected_log_sum_exp(Fmu: tf.Tensor, Fvar: tf.Tensor) -> tf.Tensor:
    """E log S, [...]."""
    Fmu, Fvar, highest = _lowered(Fmu, Fvar)
    near, far = (
        _in_chunks(functools.partial(_log_sum_by_table, tier=tier), _NUMBERS_OF_TABLE)
        for tier in (_NEAR, _FAR)
    )
    wide = _in_chunks(_log_sum_of_wide, _NUMBERS_OF_WIDE)
    others = with_other_rows(far, _is_beyond(_FAR), wide)
    return with_other_rows(near, _is_beyond(_NEAR), others)(Fmu, Fvar) + highest[..., 0]


@compiled_once
def coupling_of_log_sum_exp(Fmu: tf.Tensor, Fvar: tf.Tensor) -> tf.Tensor:
    """
    −∂²E log S/∂m_j∂m_k for j ≠ k, and 0 for j = k, [..., K, K].

    The result is inaccurate if a standard deviation exceeds 12.
    """
    Fmu, Fvar, _ = _lowered(Fmu, Fvar)
    near, far = (
        _in_chunks(functools.partial(_coupling, tier=tier), _NUMBERS_OF_TABLE, rank=2)
        for tier in (_NEAR, _FAR)
    )
    return with_other_rows(near, _is_beyond(_NEAR), far)(Fmu, Fvar)


def expected_softmax(Fmu: tf.Tensor, Fvar: tf.Tensor) -> tf.Tensor:
    """E e^{f_k}/S, [..., K]; accurate also if small, as all terms of the sum are positive."""
    Fmu, Fvar, _ = _lowered(Fmu, Fvar)
    near, wide = (
        _in_chunks(functools.partial(_shares, rule=rule), _NUMBERS_OF_WIDE, rank=1)
        for rule in (_by_even_nodes, expectation)
    )
    return with_other_rows(near, _is_beyond(_NEAR), wide)(Fmu, Fvar)


def _in_chunks(function: _OfRows, numbers: int, rank: int = 0) -> _OfRows:
    return functools.partial(in_chunks_of_rows, function, numbers=numbers, rank=rank)


def _lowered(Fmu: tf.Tensor, Fvar: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Fmu [..., K] minus the row's maximum, Fvar [..., K], and this maximum [..., 1]."""
    Fmu, Fvar = Fmu + tf.zeros_like(Fvar), Fvar + tf.zeros_like(Fmu)
    highest = tf.stop_gradient(tf.reduce_max(Fmu, -1, keepdims=True))
    return Fmu - highest, Fvar, highest


def _is_beyond(tier: _Tier) -> Callable[[tf.Tensor, tf.Tensor], tf.Tensor]:
    return lambda Fmu, Fvar: tf.reduce_max(Fvar, -1) > tier.largest_sd**2


@functools.cache
def _table(tier: _Tier) -> tuple[AnyNDArray, ...]:
    """u [T], the grid of f [G], and e^{−x} and −x e^{−x} unsmoothed [G, T], x = e^{u + f}."""
    reach = _REACH * tier.largest_sd
    u = np.arange(-_SURE - reach, _GONE + reach, tier.u_step)
    f = np.arange(-u[-1] - _SURE, reach, tier.step)
    wider = f[0] + tier.step * np.arange(-TAPS, len(f) + TAPS)
    x = np.exp(np.minimum(wider[:, None] + u, _LARGEST_LOG))
    return u, f, *(unsmoothed(D, tier.step, _SMOOTHING) for D in (np.exp(-x), -x * np.exp(-x)))


def _decays_by_table(Fmu: tf.Tensor, Fvar: tf.Tensor, tier: _Tier) -> tf.Tensor:
    """E e^{−x}, [..., K, T]."""
    u, f, decay, _ = _table(tier)
    above = np.exp(-np.exp(np.minimum(f[-1] + u, _LARGEST_LOG)))
    return over_grid(f, decay, np.ones_like(u), above)(Fmu, Fvar + tier.smoothing**2)


def _log_sum_by_table(Fmu: tf.Tensor, Fvar: tf.Tensor, tier: _Tier) -> tf.Tensor:
    """By the trapezoidal rule with g = 0."""
    of_zero = tf.cast(np.exp(-np.exp(np.minimum(_table(tier)[0], _LARGEST_LOG))), Fmu.dtype)
    product = tf.reduce_prod(_decays_by_table(Fmu, Fvar, tier), -2)
    return tier.u_step * tf.reduce_sum(of_zero - product, -1)


def _coupling(Fmu: tf.Tensor, Fvar: tf.Tensor, tier: _Tier) -> tf.Tensor:
    _, f, _, slope = _table(tier)
    slopes = sum_over_grid(f, slope)(Fmu, Fvar + tier.smoothing**2)  # 0 beyond the grid
    return tier.u_step * coupling_of_product(_decays_by_table(Fmu, Fvar, tier), slopes)


def _log_sum_of_wide(Fmu: tf.Tensor, Fvar: tf.Tensor) -> tf.Tensor:
    """By nodes of u, where g has the largest variance, to make the integrand smooth."""
    u, step = _nodes(Fmu, Fvar)
    variance = tf.reduce_max(Fvar, -1, keepdims=True)
    of_g = expectation(_decay, *_log_x(tf.zeros_like(variance), variance, u))[..., 0, :]
    product = tf.reduce_prod(expectation(_decay, *_log_x(Fmu, Fvar, u)), -2)
    return step * tf.reduce_sum(of_g - product, -1)


def _shares(Fmu: tf.Tensor, Fvar: tf.Tensor, rule: _Rule) -> tf.Tensor:
    """∫ E[x_k e^{−x_k}] Π_{j≠k} E e^{−x_j} du, x = t e^f."""
    u, _ = _nodes(Fmu, Fvar)
    log_x = _log_x(Fmu, Fvar, u)
    tiny = tf.constant(np.finfo(Fmu.dtype.as_numpy_dtype).tiny, Fmu.dtype)
    logs = tf.math.log(tf.maximum(rule(_decay, *log_x), tiny))
    others = tf.exp(tf.reduce_sum(logs, -2, keepdims=True) - logs)
    p = tf.reduce_sum(rule(_bump, *log_x) * others, -1)
    return p / tf.reduce_sum(p, -1, keepdims=True)


def _by_even_nodes(
    function: Callable[[tf.Tensor], tf.Tensor], mean: tf.Tensor, variance: tf.Tensor
) -> tf.Tensor:
    """E function(x) under N(mean, variance), for a function without structure below scale 1."""
    z, weight = (before_axes_of(mean, part) for part in (_Z, np.exp(-0.5 * _Z**2)))
    values = function(mean + safe_sqrt(variance) * z)
    return tf.reduce_sum(weight * values, 0) / tf.reduce_sum(weight)


def _nodes(Fmu: tf.Tensor, Fvar: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """u [..., T] and their distance [...], from where all is 1 to where all has vanished."""
    sd = safe_sqrt(Fvar)
    highest = tf.nn.relu(tf.reduce_max(Fmu + _REACH * sd, -1))
    widest = _REACH * tf.reduce_max(sd, -1)  # the product vanishes no later than the term of g
    start, end = (tf.stop_gradient(x) for x in (-_SURE - highest, _GONE + widest))
    needed = tf.reduce_max(end - start) / _FARTHEST_APART
    number = tf.math.ceil(tf.clip_by_value(needed, _NODES, _MOST_NODES))
    step = (end - start) / (number - 1.0)
    return start[..., None] + step[..., None] * tf.range(number), step


def _log_x(Fmu: tf.Tensor, Fvar: tf.Tensor, u: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Mean and variance of log x = u + f, [..., K, T] and [..., K, 1]."""
    return Fmu[..., None] + u[..., None, :], Fvar[..., None]


def _decay(log_x: tf.Tensor) -> tf.Tensor:
    return tf.exp(-tf.exp(tf.minimum(log_x, tf.constant(_LARGEST_LOG, log_x.dtype))))


def _bump(log_x: tf.Tensor) -> tf.Tensor:
    log_x = tf.minimum(log_x, tf.constant(_LARGEST_LOG, log_x.dtype))
    return tf.exp(log_x - tf.exp(log_x))
