r"""
E e^{−tσ(f)} and similar expectations under N(m, v), for many m, v and t by one matrix product.

A function F(f) that is analytic about the real line is determined by its values on a grid:
E F under N(m, v) = Σ_i h N(g_i | m, v + s²) D(g_i). Here D is F with a smoothing by N(0, s²)
undone, so that no Gaussian is too narrow for the grid. The values of D are computed once.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.special
import tensorflow as tf
from gpflow.base import AnyNDArray

_LOWEST_LOG_T, LOG_T_STEP = -8.0, 0.6
_HIGHEST_F = 20.0  # above it, e^{−tσ} is e^{−t}
TAPS = 12  # grid points on either side that D depends on
SMOOTHING = 0.88  # s, in steps of the grid


class Grid(NamedTuple):
    """The nodes in f and in log t of a table of e^{−tσ(f)}."""

    lowest: float  # the grid serves rows whose highest f is above this
    step: float

    @property
    def smoothing(self) -> float:
        return SMOOTHING * self.step

    @property
    def log_t(self) -> AnyNDArray:
        """Evenly spaced; at the last e^{−tσ(f)} has vanished for f ≥ lowest."""
        return np.arange(_LOWEST_LOG_T, 5.0 - self.lowest, LOG_T_STEP)

    @property
    def f(self) -> AnyNDArray:
        """[G], beginning where e^{−tσ} is 1."""
        return np.arange(self.lowest - 11.0, _HIGHEST_F, self.step)


NEAR, FAR = Grid(-35.0, 0.25), Grid(-200.0, 0.35)  # their errors are 1e-7 and 1e-5


def expected_of_sigmoid(
    mean: tf.Tensor, variance: tf.Tensor, of: Grid = NEAR
) -> tuple[tf.Tensor, ...]:
    """
    E e^{−tσ(f)} [..., T] for every t, Eσ [...] and Eσ² [...].

    :param mean: [...].
    :param variance: [...], at least 0.
    """
    grid, inner, low, high = _table(of)
    mean, variance = mean + tf.zeros_like(variance), variance + tf.zeros_like(mean)
    smoothed = variance + tf.constant(of.smoothing**2, mean.dtype)
    values = over_grid(grid, inner, low, high)(mean, smoothed)
    return values[..., :-2], values[..., -2], values[..., -1]


def slopes_of_decays(mean: tf.Tensor, variance: tf.Tensor, of: Grid = NEAR) -> tf.Tensor:
    """∂E e^{−tσ(f)}/∂mean [..., T] for every t; shapes as in :func:`expected_of_sigmoid`."""
    smoothed = variance + tf.constant(of.smoothing**2, mean.dtype)
    return sum_over_grid(*_table_of_slopes(of))(mean, smoothed)


def over_grid(
    grid: AnyNDArray, inner: AnyNDArray, low: AnyNDArray, high: AnyNDArray
) -> Callable[[tf.Tensor, tf.Tensor], tf.Tensor]:
    """
    E F(f) [..., T] of several F, as a function of the mean [...] and the smoothed variance of f.

    :param grid: evenly spaced f [G].
    :param inner: D of every F there, [G, T].
    :param low, high: the limits of every F below and above the grid, [T].
    """
    sum_over = sum_over_grid(grid, np.concatenate([inner, np.ones([len(grid), 1])], 1))
    half_step = (grid[1] - grid[0]) / 2.0

    def expected(mean: tf.Tensor, smoothed: tf.Tensor) -> tf.Tensor:
        values, total = tf.split(sum_over(mean, smoothed), [inner.shape[1], 1], -1)
        sd = tf.sqrt(2.0 * smoothed)[..., None]

        def beyond(distance: tf.Tensor) -> tf.Tensor:
            return 0.5 * tf.math.erfc((distance[..., None] + half_step) / sd)

        below, above = beyond(mean - grid[0]), beyond(grid[-1] - mean)
        rest = 1.0 - below - above - total  # weight missing at the ends of the grid
        is_low = tf.cast(mean < (grid[0] + grid[-1]) / 2.0, mean.dtype)[..., None]
        below, above = below + is_low * rest, above + (1.0 - is_low) * rest
        return values + below * tf.cast(low, mean.dtype) + above * tf.cast(high, mean.dtype)

    return expected


def sum_over_grid(
    grid: AnyNDArray, values: AnyNDArray
) -> Callable[[tf.Tensor, tf.Tensor], tf.Tensor]:
    """(mean, variance) → Σ_i h N(g_i | ·) values_i, [..., T]."""

    @tf.custom_gradient  # needs half of the passes over the grid points, and stores no pass
    def over(mean: tf.Tensor, variance: tf.Tensor) -> tuple[tf.Tensor, Any]:
        g, table = (tf.constant(part, mean.dtype) for part in (grid, values))
        height = (grid[1] - grid[0]) / tf.sqrt(2.0 * np.pi * variance)

        def weights() -> tuple[tf.Tensor, tf.Tensor]:
            distance = g - mean[..., None]
            return distance, tf.exp(-0.5 / variance[..., None] * tf.square(distance))

        def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            distance, weight = weights()
            weight *= tf.tensordot(upstream, tf.transpose(table), 1)
            along = weight * distance
            first, second = tf.reduce_sum(along, -1), tf.reduce_sum(along * distance, -1)
            in_variance = second / variance - tf.reduce_sum(weight, -1)
            return height / variance * first, height / (2.0 * variance) * in_variance

        return height[..., None] * tf.tensordot(weights()[1], table, 1), gradient

    return over


@functools.cache
def _table(of: Grid) -> tuple[AnyNDArray, ...]:
    """The grid [G], D on it [G, T + 2] of e^{−tσ}, σ and σ², and their limits at both ends."""
    grid, wider, exponent = _exponents(of)
    share = scipy.special.expit(wider)[:, None]
    inner = unsmoothed(np.concatenate([np.exp(-exponent), share, share**2], 1), of.step)
    below = np.concatenate([np.ones_like(of.log_t), [0.0, 0.0]])
    above = np.concatenate([np.exp(-np.exp(of.log_t)), [1.0, 1.0]])
    return grid, inner, below, above


@functools.cache
def _table_of_slopes(of: Grid) -> tuple[AnyNDArray, AnyNDArray]:
    """The grid [G], and D on it [G, T] of ∂e^{−tσ}/∂f, which vanishes at both ends."""
    grid, wider, exponent = _exponents(of)
    slopes = -exponent * scipy.special.expit(-wider)[:, None] * np.exp(-exponent)
    return grid, unsmoothed(slopes, of.step)


def _exponents(of: Grid) -> tuple[AnyNDArray, ...]:
    """The grid [G], the grid extended by the taps of the filter, and tσ(f) on the latter."""
    grid = of.f
    wider = grid[0] + of.step * np.arange(-TAPS, len(grid) + TAPS)
    log_exponent = of.log_t + scipy.special.log_expit(wider)[:, None]
    return grid, wider, np.exp(np.minimum(log_exponent, 6.5))


def unsmoothed(values: AnyNDArray, step: float, smoothing: float = SMOOTHING) -> AnyNDArray:
    """D [G, T] on a grid, from F [G + 2·TAPS, T] there and at ``TAPS`` more at each end."""
    number = len(values) - 2 * TAPS
    return sum(tap * values[k : k + number] for k, tap in enumerate(_unsmoothing(step, smoothing)))


def _unsmoothing(step: float, smoothing: float) -> AnyNDArray:
    """
    The filter of response e^{s²ξ²/2} at |ξ| ≤ π/step, by weighted least squares.

    The weights e^{−π|ξ|/2} are the decay of the spectrum of a function that is analytic within iπ/2
    of the real line.
    """
    frequency = np.linspace(0.0, np.pi / step, 5_001)
    weight = np.exp(-np.pi / 2.0 * frequency) + 1e-9
    cosines = 2.0 * np.cos(np.outer(frequency, np.arange(TAPS + 1) * step))
    cosines[:, 0] = 1.0
    response = np.exp((smoothing * step) ** 2 * frequency**2 / 2.0)
    half, *_ = np.linalg.lstsq(cosines * weight[:, None], response * weight, rcond=None)
    taps = np.concatenate([half[:0:-1], half])
    return taps / np.sum(taps)  # exact where e^{−tσ} is 1: there errors would add up over t
