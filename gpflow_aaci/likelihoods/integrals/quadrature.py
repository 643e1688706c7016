"""Expectations under N(Fmu, Fvar) of functions that may have kinks or narrow peaks."""

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray, TensorType

from .nodes import before_axes_of

# Edges of panels, in units of sd(f). About the mean N(0, 1) is smooth on each panel. About a centre
# of the integrand panels halve towards it, so that a kink there, or a peak of any width down to
# 1e-3 sd, is resolved whatever its shape.
_ABOUT_MEAN = np.array([0, 1, 2, 3, 4, 5, 6, 7, 8, 9.5, 12, 15, 19, 25, 38])
_ABOUT_MEAN = np.concatenate([-_ABOUT_MEAN[:0:-1], _ABOUT_MEAN])
_HALVINGS, _FARTHEST_PANEL = 13, 6
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(8)

# x/sd = κ asinh(q sinh t) at equidistant t: nodes spaced geometrically from 1e-3 sd about 0 to
# 1 sd, and evenly beyond. Of this grid a datum uses those neighbours that cover its mean ± 7.5 sd.
# Its middle lies between two nodes, where a kink at 0 costs least.
_REACH, _FARTHEST = 7.5, 12.0
_Q, _KAPPA = 1e-3, 1.5
_WINDOW, _FINE = 56, 112  # the neighbours of a datum


class _Grid(NamedTuple):
    step: float  # in t
    side: int  # the number of nodes on one side of 0
    node: AnyNDArray  # x/sd
    density: AnyNDArray  # ∝ d(x/sd)/dt


@functools.cache
def _grid(window: int) -> _Grid:
    step = 2.0 * np.arcsinh(np.sinh(_REACH / _KAPPA) / _Q) / (window - 1)
    side = int(np.arcsinh(np.sinh((_FARTHEST + _REACH) / _KAPPA) / _Q) / step) + 1
    t = step * (np.arange(-side, side) + 0.5)
    node = _KAPPA * np.arcsinh(_Q * np.sinh(t))
    return _Grid(step, side, node, np.cosh(t) / np.cosh(node / _KAPPA))


def expectation(
    function: Callable[[tf.Tensor], tf.Tensor],
    mean: TensorType,
    variance: TensorType,
    window: int = _WINDOW,
) -> tf.Tensor:
    """
    E function(x) under x ~ N(mean, variance), for a function that may be kinked or narrow at 0.

    This is the trapezoidal rule in t, x = κ sd asinh(q sinh t). A log-likelihood is smooth in the
    logarithm of the distance from its centre, so that the same 56 nodes give an error of 1e-7
    whether it varies over 1e-3 sd or 1e3 sd, about the mean or far from it; for a function without
    a kink twice as many give 1e-12. The nodes are held fixed in z = (x − mean)/sd, so that the
    derivatives are E function' and E[z function']/2sd.

    :param function: maps x [K, ...] to [K, ...].
    :param mean: [...].
    :param variance: [...], broadcast against ``mean``; rounding below zero is taken as zero.
    :param window: the number of nodes.
    :return: [...].
    """
    grid, sd = _grid(window), safe_sqrt(variance)
    ratio = tf.stop_gradient(tf.clip_by_value(mean / sd, -_FARTHEST, _FARTHEST))
    first_t = tf.asinh(tf.sinh((ratio - _REACH) / _KAPPA) / _Q)
    first = tf.cast(tf.math.floor(first_t / grid.step), tf.int32) + grid.side
    first = tf.clip_by_value(first, 0, 2 * grid.side - window)
    index = first + before_axes_of(first, tf.range(window))  # [K, ...]
    node = tf.gather(tf.constant(grid.node, ratio.dtype), index)
    z = node - ratio
    weight = tf.gather(tf.constant(grid.density, ratio.dtype), index) * tf.exp(-0.5 * tf.square(z))
    total = tf.reduce_sum(weight, axis=0)
    z_mean = tf.reduce_sum(weight * z, axis=0) / total  # 1e-9; without it a line is exact
    x = (mean - sd * (ratio + z_mean)) + sd * node
    return tf.reduce_sum(weight * function(x), axis=0) / total


def log_expectation(
    log_integrand: Callable[[tf.Tensor], tf.Tensor],
    Fmu: TensorType,
    Fvar: TensorType,
    centres: Sequence[TensorType],
    halvings: int = _HALVINGS,
) -> tf.Tensor:
    """
    log ∫ exp(log_integrand(f)) N(f | Fmu, Fvar) df by composite Gauss-Legendre quadrature.

    :param log_integrand: maps f [K, ...] to [K, ...].
    :param Fmu: [...], mean of f.
    :param Fvar: [...], variance of f; rounding below zero is taken as zero.
    :param centres: where the integrand may be kinked or peaked, each broadcastable to [...].
    :param halvings: how often panels halve towards a centre, from 1 sd; a cusp needs more.
    :return: [...].
    """
    f, z, weight = _panels(Fmu, Fvar, centres, halvings)
    exponent = log_integrand(f) - tf.square(z) / 2.0
    largest = tf.stop_gradient(tf.reduce_max(exponent, axis=0))
    total = tf.reduce_sum(weight * tf.exp(exponent - largest), axis=0)
    return largest + tf.math.log(total) - tf.cast(np.log(2.0 * np.pi) / 2.0, f.dtype)


def log_expected_sigmoid(mean: TensorType, variance: TensorType) -> tf.Tensor:
    """
    log E σ(x) under x ~ N(mean, variance), [...], with an error of 2e-8 however small E σ is.

    For every a, E σ(x) = e^{a mean + a² variance/2} E[σ(x) e^{−ax}] with x ~ N(mean + a variance,
    variance) on the right. With a = −mean/variance, but from 0 to 1, that mean is at 0, where the
    integrand peaks, or it is as near to 0 as can be while the integrand decays on both sides.

    :param mean: [...].
    :param variance: [...]; rounding below zero is taken as zero.
    """
    # The slope of √variance in a variance below eps is nothing but rounding.
    variance = lifted(variance, float(np.finfo(variance.dtype.as_numpy_dtype).eps))
    a = tf.stop_gradient(tf.clip_by_value(-mean / variance, 0.0, 1.0))

    def tilted(x: tf.Tensor) -> tf.Tensor:
        return tf.exp(tf.math.log_sigmoid(x) - a * x)

    of_tilted = tf.math.log(expectation(tilted, mean + a * variance, variance, _FINE))
    return a * mean + 0.5 * tf.square(a) * variance + of_tilted


def mean_over_panels(
    function: Callable[[tf.Tensor], tf.Tensor],
    Fmu: TensorType,
    Fvar: TensorType,
    centres: Sequence[TensorType],
) -> tf.Tensor:
    """
    E function(f) under f ~ N(Fmu, Fvar), [...], by the rule of :func:`log_expectation`.

    The mean of a positive function is relatively accurate however small it is, and continuous in
    the centres. The mean of a constant is that constant.
    """
    f, z, width = _panels(Fmu, Fvar, centres, _HALVINGS)
    weight = width * tf.exp(-tf.square(z) / 2.0)
    return tf.reduce_sum(weight * function(f), axis=0) / tf.reduce_sum(weight, axis=0)


def _panels(
    Fmu: TensorType, Fvar: TensorType, centres: Sequence[TensorType], halvings: int
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Nodes f, the same in standard deviations from Fmu, and their weights; all [K, ...]."""
    sd = safe_sqrt(Fvar)
    outwards = 2.0 ** np.arange(-halvings, _FARTHEST_PANEL)
    about_centre = before_axes_of(sd, np.concatenate([-outwards[::-1], [0.0], outwards]))
    edges = [before_axes_of(sd, _ABOUT_MEAN) + tf.zeros_like(sd)]
    for centre in centres:
        # A y at or beyond an end of its range has an infinite centre, or none.
        centre = centre + tf.zeros_like(Fmu)
        z_centre = (tf.where(tf.math.is_finite(centre), centre, Fmu) - Fmu) / sd
        has_centre = tf.math.is_finite(z_centre)
        edges.append(tf.where(has_centre, z_centre, tf.zeros_like(z_centre)) + about_centre)
    z_edges = tf.sort(tf.concat(edges, axis=0), axis=0)
    mid, half = (z_edges[1:] + z_edges[:-1]) / 2.0, (z_edges[1:] - z_edges[:-1]) / 2.0
    z = tf.concat([mid + half * x for x in _NODES], axis=0)
    return Fmu + sd * z, z, tf.concat([half * w for w in _WEIGHTS], axis=0)


def lifted(Fvar: TensorType, floor: float) -> tf.Tensor:
    """Fvar, raised to at least ``floor``, with gradient 1 everywhere."""
    shortfall = tf.nn.relu(tf.cast(floor, Fvar.dtype) - Fvar)
    return Fvar + tf.stop_gradient(shortfall)


def safe_sqrt(Fvar: TensorType) -> tf.Tensor:
    """√Fvar, also if rounding has left Fvar at or below 0; it does not underflow."""
    return tf.sqrt(lifted(Fvar, np.sqrt(np.finfo(Fvar.dtype.as_numpy_dtype).tiny)))
