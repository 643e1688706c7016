"""Quantiles of ω from log φ alone, by safeguarded Newton steps on all rows at once."""

import numpy as np
import tensorflow as tf

from ..inverse_laplace import Inverse, invert
from ..validation import Check, require
from .law import TiltedLaw

_LARGEST_ERROR = 1e-6
"""An inversion whose own estimate of its error is larger than this has failed."""

_CLOSE = 2e-3
"""A third-order step from within this distance, in standard normal units, has an error of 1e-8."""

_RESOLUTION = 2e-9
"""The resolution of the cdf: a quantile is found where the cdf is closer than this to p."""

_MAX_STEPS = 100
_INFINITY = float("inf")


def require_inverted(ok: tf.Tensor, r: tf.Tensor) -> tf.Tensor:
    """
    Raise an error that names c if a Laplace transform could not be inverted.

    :return: a tensor for ``tf.control_dependencies``.
    """
    return require(
        [
            Check(
                tf.reduce_all(ok),
                "The distribution of ω could not be computed from log_phi to 1e-6. log_phi must be "
                "the logarithm of a completely monotone function whose distribution has a smooth "
                "density, analytic for Re r > 0 (see check_likelihood). It failed at these c² (up "
                "to ten).",
                lambda: tf.boolean_mask(r, ~ok)[:10],
            )
        ]
    )


def inverted_well(inverse: Inverse) -> tf.Tensor:
    """[n], true if the inversion can be trusted."""
    return inverse.error < _LARGEST_ERROR  # False for NaN


def quantile(law: TiltedLaw, p: tf.Tensor) -> tf.Tensor:
    """
    x with P(ω ≤ x) = p, row by row: [n], for p [n] in (0, 1).

    Third-order (Halley) steps in y = log x solve probit P(ω ≤ e^y) = probit p. A step that leaves
    the bracket is replaced by a bisection. Rows that have converged leave the batch.

    :raises ValueError: with the offending c², if its transform could not be inverted.
    """
    y, lower, upper = _start(law, p)
    probit = _probit(tf.minimum(p, 1.0 - p))
    rows = tf.where(~law.is_point)[:, 0]

    def unfinished(step: tf.Tensor, rows: tf.Tensor, *_: tf.Tensor) -> tf.Tensor:
        return (tf.size(rows) > 0) & (step < _MAX_STEPS)

    def advance(step: tf.Tensor, *state: tf.Tensor) -> tuple[tf.Tensor, ...]:
        rows, y, lower, upper, result, ok = state
        active = law.rows(rows)
        inverse = invert(active.log_transform, tf.exp(y), active.mean, active.stddev)
        residual, delta, done = _halley(
            inverse, tf.exp(y), tf.gather(p, rows), tf.gather(probit, rows)
        )
        lower = tf.where(residual < 0.0, y, lower)
        upper = tf.where(residual > 0.0, y, upper)
        # y is one end of the bracket, so where a step leaves the bracket both ends are finite.
        limit = 4.0 * tf.minimum(active.stddev / active.mean, 0.5)
        limit = tf.where(tf.math.is_finite(limit), limit, 2.0 * tf.ones_like(limit))
        delta = tf.clip_by_value(delta, -limit, limit)
        inside = (y + delta >= lower) & (y + delta <= upper)
        y = tf.where(inside, y + delta, (lower + upper) / 2.0)
        hopeless = tf.math.is_nan(residual)
        done = (done & inside) | (upper - lower < 1e-12) | hopeless
        finished = tf.boolean_mask(rows, done)[:, None]
        result = tf.tensor_scatter_nd_update(result, finished, tf.boolean_mask(y, done))
        good = tf.boolean_mask(inverted_well(inverse), done)
        ok = tf.tensor_scatter_nd_update(ok, finished, good)
        rest = tf.where(~done)[:, 0]
        rows, y, lower, upper = (tf.gather(value, rest) for value in (rows, y, lower, upper))
        return step + 1, rows, y, lower, upper, result, ok

    state = (
        tf.constant(0),
        rows,
        *(tf.gather(value, rows) for value in (y, lower, upper)),
        tf.math.log(law.mean),
        law.is_point,
    )
    scalar, any_rows = tf.TensorShape([]), tf.TensorShape([None])
    shapes = (scalar, *4 * [any_rows], law.mean.shape, law.mean.shape)
    *_, result, ok = tf.while_loop(unfinished, advance, state, shape_invariants=shapes)
    with tf.control_dependencies([require_inverted(ok, law.r)]):
        return tf.exp(result)


def _probit(p: tf.Tensor) -> tf.Tensor:
    return tf.math.ndtri(tf.clip_by_value(p, 1e-15, 1.0 - 1e-15))


def _halley(
    inverse: Inverse, x: tf.Tensor, p: tf.Tensor, probit: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """
    How far probit P(ω ≤ x) is above probit p, the step in log x, and whether it is the last.

    :param probit: the probit of the smaller of p and 1 − p, since the smaller tail has more digits.
    """
    below = p < 0.5
    sign = tf.where(below, tf.ones_like(p), -tf.ones_like(p))
    tail = tf.where(below, inverse.cdf, inverse.survival)
    shortfall = tail - tf.where(below, p, 1.0 - p)
    z = _probit(tail)
    residual = sign * (z - probit)

    # With F(e^y) = Φ(z), in y: z' = F'/φ(z) and z'' = F''/φ(z) + z z'². The sign turns z round.
    normal = tf.exp(-0.5 * tf.square(z)) / np.sqrt(2.0 * np.pi)
    first = x * inverse.density
    rising = first > 1e-3 * normal
    z1 = tf.where(rising, first, normal) / normal
    z2 = (first + tf.square(x) * inverse.slope) / normal + sign * z * tf.square(z1)
    newton = -residual / z1
    halley = newton / (1.0 + tf.clip_by_value(newton * z2 / (2.0 * z1), -0.5, 0.5))
    lost = ~rising | (tail < 1e-12) | (tail > 1.0 - 1e-12)
    close = (tf.abs(residual) < _CLOSE) & ~lost
    # Closer than the cdf resolves, the residual says nothing about the direction.
    there = (tf.abs(shortfall) < _RESOLUTION) & ~close
    step = tf.where(lost, -tf.sign(residual) * _INFINITY, halley)
    return residual, tf.where(there, tf.zeros_like(step), step), close | there


def _start(law: TiltedLaw, p: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """
    The first log x, and a bracket that contains the quantile of every row.

    For a moderate coefficient of variation the start is a quantile of the log-normal distribution
    with the same mean and variance, and the bracket follows from the one-sided inequality of
    Chebyshev and Cantelli. For a large or infinite variance both follow from Markov's inequality.
    """
    moderate = law.stddev < law.mean  # False where either is infinite
    cv = tf.where(moderate, law.stddev / law.mean, tf.ones_like(p))
    log_mean = tf.math.log(tf.where(moderate, law.mean, tf.ones_like(p)))
    log_variance = tf.math.log1p(tf.square(cv))
    y = log_mean - 0.5 * log_variance + tf.sqrt(log_variance) * tf.math.ndtri(p)
    lower = log_mean + tf.math.log(tf.nn.relu(1.0 - cv * tf.sqrt((1.0 - p) / p)))
    upper = log_mean + tf.math.log1p(cv * tf.sqrt(p / (1.0 - p)))
    y = tf.clip_by_value(y, lower, upper)

    wide = tf.where(~moderate)[:, 0]
    starts = zip((y, lower, upper), _markov(law.rows(wide), tf.gather(p, wide)), strict=True)
    y, lower, upper = (tf.tensor_scatter_nd_update(a, wide[:, None], b) for a, b in starts)
    return y, lower, upper


def _markov(law: TiltedLaw, p: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """
    A start and a bracket from real values of the Laplace transform M alone.

    By Markov's inequality for e^{−ω/x} and for 1 − e^{−ω/x},
    1 − (1 − M(1/x))/(1 − 1/e) ≤ P(ω ≤ x) ≤ e M(1/x). The start is between the two: M(1/x) is the
    cdf at x of ω/E, E standard exponential, and the geometric mean of 1/E is e^{0.577}.
    """
    lower = -_log_argument(law, 1.0 - tf.math.log(p))
    upper = -_log_argument(law, -tf.math.log1p(-(1.0 - p) * (1.0 - np.exp(-1.0))))
    y = -_log_argument(law, -tf.math.log(p)) - np.euler_gamma
    return tf.clip_by_value(y, lower, upper), lower - 1e-6, upper + 1e-6


def _log_argument(law: TiltedLaw, target: tf.Tensor) -> tf.Tensor:
    """
    log θ with −log M(θ) = target > 0, [n].

    Safeguarded Newton in (log θ, log −log M), where the curve rises with a slope of at most 1
    for an infinitely divisible distribution.
    """
    log_target = tf.math.log(target)

    def advance(
        step: tf.Tensor, y: tf.Tensor, lower: tf.Tensor, upper: tf.Tensor, change: tf.Tensor
    ) -> tuple[tf.Tensor, ...]:
        theta = tf.exp(y)
        with tf.GradientTape() as tape:
            tape.watch(theta)
            minus_log_M = -law.log_transform(theta[:, None])[:, 0]
        slope = theta * tape.gradient(minus_log_M, theta) / minus_log_M
        residual = tf.math.log(minus_log_M) - log_target
        lower = tf.where(residual < 0.0, y, lower)
        upper = tf.where(residual > 0.0, y, upper)
        new = y - tf.clip_by_value(residual / tf.maximum(slope, 1e-3), -30.0, 30.0)
        inside = (new >= lower) & (new <= upper)
        new = tf.where(inside, new, (lower + upper) / 2.0)
        return step + 1, new, lower, upper, tf.abs(new - y)

    def unfinished(step: tf.Tensor, *state: tf.Tensor) -> tf.Tensor:
        return (step < _MAX_STEPS) & tf.reduce_any(state[-1] > 1e-9)

    infinite = tf.fill(tf.shape(target), tf.constant(_INFINITY, target.dtype))
    # The start takes M(θ) ≈ e^{−θ mean}, if there is a mean.
    known = tf.math.is_finite(law.mean)
    y = log_target - tf.math.log(tf.where(known, law.mean, tf.ones_like(target)))
    state = (tf.constant(0), y, -infinite, infinite, infinite)
    return tf.while_loop(unfinished, advance, state)[1]
