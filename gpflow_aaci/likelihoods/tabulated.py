r"""
E e^{−tσ(f)} and its like under N(m, v), for many m, v and t at once: one product of matrices.

A function F(f) that is analytic about the real line is known from its values on a grid: E F under
N(m, v) = Σ_i h N(g_i | m, v + s²) D(g_i), where D is F with a smoothing by N(0, s²) undone, which
leaves no Gaussian too narrow for the grid. The values of D for all F are a constant.
"""

import functools

import numpy as np
import scipy.special
import tensorflow as tf
from gpflow.base import AnyNDArray

LOWEST_LOG_T, _HIGHEST_LOG_T, LOG_T_STEP = -8.0, 40.0, 0.6
_LOWEST_F, _HIGHEST_F, _STEP = -46.0, 20.0, 0.25  # beyond these e^{−tσ} is 1 and e^{−t}
_SMOOTHING, _TAPS = 0.22, 12  # s, and grid points on either side that D depends on
LEAST_HIGHEST_MEAN = -25.0  # of a row's m, for the grid to hold what counts


def log_t() -> AnyNDArray:
    """The logarithms of t, evenly spaced; at the last E e^{−tσ} has vanished."""
    return np.arange(LOWEST_LOG_T, _HIGHEST_LOG_T, LOG_T_STEP)


def expected_of_sigmoid(mean: tf.Tensor, variance: tf.Tensor) -> tuple[tf.Tensor, ...]:
    """
    E e^{−tσ(f)} [..., T] for every t, Eσ [...] and Eσ² [...], to some 1e-7.

    :param mean: [...].
    :param variance: [...], at least 0.
    """
    grid, table = _table()
    dtype = mean.dtype
    g = tf.constant(grid, dtype)
    sd = tf.sqrt(variance + tf.constant(_SMOOTHING**2, dtype))[..., None]
    centre = mean[..., None]
    weights = tf.exp(-0.5 * tf.square((g - centre) / sd)) * (_STEP / np.sqrt(2.0 * np.pi)) / sd

    def beyond(distance: tf.Tensor) -> tf.Tensor:
        return 0.5 * tf.math.erfc((distance + _STEP / 2.0) / (np.sqrt(2.0) * sd))

    below, above = beyond(centre - grid[0]), beyond(grid[-1] - centre)
    # What the ends of the grid leave of a total of 1.
    rest = 1.0 - below - above - tf.reduce_sum(weights, -1, keepdims=True)
    is_low = tf.cast(centre < (grid[0] + grid[-1]) / 2.0, dtype)
    ends = below + is_low * rest, above + (1.0 - is_low) * rest
    values = tf.tensordot(tf.concat([ends[0], weights, ends[1]], -1), tf.cast(table, dtype), 1)
    return values[..., :-2], values[..., -2], values[..., -1]


@functools.cache
def _table() -> tuple[AnyNDArray, AnyNDArray]:
    """The grid [G], and D there [1 + G + 1, T + 2] between F's limits: e^{−tσ}, σ and σ²."""
    filter_ = _unsmoothing()
    grid = np.arange(_LOWEST_F, _HIGHEST_F, _STEP)
    wider = _LOWEST_F + _STEP * np.arange(-_TAPS, len(grid) + _TAPS)
    log_exponent = log_t() + scipy.special.log_expit(wider)[:, None]
    decays = np.exp(-np.exp(np.minimum(log_exponent, 6.5)))
    share = scipy.special.expit(wider)[:, None]
    values = np.concatenate([decays, share, share**2], 1)
    inner = sum(tap * values[k : k + len(grid)] for k, tap in enumerate(filter_))
    below = np.concatenate([np.ones_like(log_t()), [0.0, 0.0]])
    above = np.concatenate([np.exp(-np.exp(log_t())), [1.0, 1.0]])
    return grid, np.concatenate([below[None], inner, above[None]])


def _unsmoothing() -> AnyNDArray:
    """
    The filter of response e^{s²ξ²/2} at |ξ| ≤ π/step, by weighted least squares.

    The weights e^{−π|ξ|/2} are how the spectrum falls of what is analytic within iπ/2 of the line.
    """
    frequency = np.linspace(0.0, np.pi / _STEP, 5_001)
    weight = np.exp(-np.pi / 2.0 * frequency) + 1e-9
    cosines = 2.0 * np.cos(np.outer(frequency, np.arange(_TAPS + 1) * _STEP))
    cosines[:, 0] = 1.0
    response = np.exp(_SMOOTHING**2 * frequency**2 / 2.0)
    half, *_ = np.linalg.lstsq(cosines * weight[:, None], response * weight, rcond=None)
    return np.concatenate([half[:0:-1], half])
