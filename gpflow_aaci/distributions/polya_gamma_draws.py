"""Draws of PG(b, c) by rejection: two series of the density for b = 1, bounds of it for any b."""

import math

import numpy as np
import tensorflow as tf

from .polya_gamma_density import bounds_of_log_A, log_A_by_inversion, saddle_at
from .rejection import rejection_sample, uniforms


def sum_of_draws(b: tf.Tensor, c: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """PG(b, c) for integer b > 0, row by row, as a sum of b draws of PG(1, c)."""
    rows = tf.repeat(tf.range(tf.size(b)), tf.cast(b, tf.int32))
    draws = sample_pg1(tf.gather(c, rows), seed)
    return tf.math.unsorted_segment_sum(draws, rows, tf.size(b))


_T = 0.64  # below it one series of J*(1, 0) is used, above it the other (Devroye 2009)
_HALF_NORMAL_TAIL = 0.5 * math.erfc(math.sqrt(0.5 / _T))


def sample_pg1(c: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    r"""
    PG(1, c), row by row: [n] for c [n].

    PG(1, c) = J*(1, z)/4, z = |c|/2 (Polson et al. 2013, Sec. 4). Below t its density is
    √(2/π) x^{−3/2} e^{−1/2x − z²x/2} A(e^{−4/x}), above t (π/2) e^{−(π²/8 + z²/2) x} A(e^{−π²x}),
    up to one factor, where A(y) = 1 − 3y + 5y³ − 7y⁶ + …. The proposal leaves A out. Above t it is
    exponential. Below t it is an inverse Gaussian of mean 1/z that is cut off at t. If this has
    more mass than the distribution of 1/N² cut off at t, the latter is used instead, and accepted
    with probability e^{−z²x/2}. At least 0.71 of the proposals are accepted.
    """
    z = tf.abs(c) / 2.0
    rate = np.pi**2 / 8.0 + tf.square(z) / 2.0
    mass_above = np.pi / (2.0 * rate) * tf.exp(-rate * _T)
    mass_whole, mass_cut = 2.0 * tf.exp(-z), 4.0 * _HALF_NORMAL_TAIL
    whole = mass_whole < mass_cut
    above = mass_above / (mass_above + tf.minimum(mass_whole, mass_cut))

    def propose(
        seed: tf.Tensor, z: tf.Tensor, rate: tf.Tensor, above: tf.Tensor, whole: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        u = uniforms(4, z, seed)
        is_above = u[0] < above
        # A standard normal variable, in its tail beyond 1/√t where it is cut off there.
        normal = tf.math.ndtri(u[1] * tf.where(whole, tf.ones_like(z), _HALF_NORMAL_TAIL))
        chi2 = tf.square(normal)
        gaussian = _inverse_gaussian(z, chi2, u[2])
        below = tf.where(whole, gaussian, 1.0 / chi2)
        x = tf.where(is_above, _T - tf.math.log(u[1]) / rate, below)
        y = tf.exp(tf.where(is_above, -(np.pi**2) * x, -4.0 / x))
        y3 = y * y * y
        probability = 1.0 - y * (3.0 - y * y * (5.0 - y3 * (7.0 - 9.0 * y3 * y)))
        untilted = ~(is_above | whole)
        probability *= tf.where(untilted, tf.exp(-0.5 * tf.square(z) * x), tf.ones_like(x))
        return x / 4.0, (u[3] < probability) & (is_above | (x <= _T))

    return rejection_sample(propose, (z, rate, above, whole), seed)


def sample_pg(b: tf.Tensor, c: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    r"""
    PG(b, c) for any b > 0, row by row: [n] for b and c [n].

    By the first term of its alternating series (Polson et al. 2013, Eq. 5), the density is
    (1 + e^{−c})^b A(x) times an inverse Gaussian density of mean b/2c and shape b²/4, with a factor
    A ≤ 1 that does not depend on c. The proposal is this inverse Gaussian, tilted
    (``envelope``); at least 0.65 of its draws are accepted. A itself is computed, by inversion,
    only where its bounds (``bounds_of_log_A``) do not decide, which becomes rare as b grows.
    """
    z, height, slope = envelope(b, tf.abs(c))

    def propose(
        seed: tf.Tensor, b: tf.Tensor, z: tf.Tensor, height: tf.Tensor, slope: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        u = uniforms(3, z, seed)
        T = tf.maximum(b * _inverse_gaussian(z, tf.square(tf.math.ndtri(u[0])), u[1]), 1e-90)
        saddle = saddle_at(T)
        below, above = bounds_of_log_A(b, saddle)
        log_u = tf.math.log(u[2]) + height + slope * T
        rows = tf.where((log_u > below) & (log_u <= above))[:, 0]

        def decide() -> tf.Tensor:
            log_A = log_A_by_inversion(*(tf.gather(value, rows) for value in (b, T, *saddle)))
            return tf.tensor_scatter_nd_update(
                log_u <= below, rows[:, None], tf.gather(log_u, rows) <= log_A
            )

        return b * T / 4.0, tf.cond(tf.size(rows) > 0, decide, lambda: log_u <= below)

    return rejection_sample(propose, (b, z, height, slope), seed)


def envelope(b: tf.Tensor, c: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """
    bc'/2, h and g such that log A ≤ h + gT: the tilt c' of the proposal, c'² = c² − 8g/b.

    h + gT is a tangent of b a + ½ log(1 + T), which is concave and above b a + a₁; or it is 0, if
    that accepts more. The tangent touches near the mean or, for small b, in the right tail.
    """
    half = tf.maximum(c, 1e-30) / 2.0  # tanh(x)/x at 0
    T = tf.tanh(half) / half + 4.0 / (b * (tf.square(c) + np.pi**2))
    saddle = saddle_at(T)
    slope = 0.5 / (1.0 + T) - 0.5 * b * saddle.sech2 / tf.square(T)
    height = b * saddle.a + 0.5 * tf.math.log1p(T) - slope * T
    tilt = tf.sqrt(tf.square(c) - 8.0 * slope / b)
    # The sign of the log-ratio of the two integrals says which accepts more.
    tangent = height + 4.0 * slope / (c + tilt) < 0.0
    zero = tf.zeros_like(b)
    return (
        0.5 * b * tf.where(tangent, tilt, c),
        tf.where(tangent, height, zero),
        tf.where(tangent, slope, zero),
    )


def _inverse_gaussian(z: tf.Tensor, chi2: tf.Tensor, u: tf.Tensor) -> tf.Tensor:
    """A draw of mean 1/z and shape 1, from draws of χ²(1) and U(0, 1) (Michael et al. 1976)."""
    root = 1.0 / (z + chi2 / 2.0 + tf.sqrt(chi2 * (z + chi2 / 4.0)))  # 1/χ² at z = 0
    return tf.where(u * (1.0 + z * root) <= 1.0, root, 1.0 / (tf.square(z) * root))
