"""Integrals of a density ∝ φ(x²) on the real line and draws from it, given log φ alone."""

from collections.abc import Callable

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import TensorType

from ...distributions.rejection import rejection_sample
from .nodes import before_axes_of, half_line
from .quadrature import log_expectation

LogPhi = Callable[[tf.Tensor], tf.Tensor]
"""log φ(r), elementwise, of float64."""

_NODES, _WEIGHTS = half_line(step=1.0 / 32.0)

_WIDTHS = np.logspace(-40, 40, 321)
_FAR = np.array([1e60, 1e70])  # widths; between them the exponent of a power of x is measured


def width_of(log_phi: LogPhi) -> tf.Tensor:
    """x at which φ(x²) has fallen to 1/e, to within a factor of 2; a constant, []."""
    log_phi_at = log_phi(tf.constant(_WIDTHS**2))
    fallen = tf.where(tf.stop_gradient(log_phi_at) < -1.0)[:, 0]
    at = tf.concat([fallen, [len(_WIDTHS) - 1]], axis=0)[0]
    return tf.gather(tf.constant(_WIDTHS), at)


def log_integral(log_phi: LogPhi, power: int) -> tf.Tensor:
    """
    log ∫ |x|^power φ(x²) dx over the real line, []; infinite if the tails are too heavy.

    The error is 1e-12 for any φ that is smooth in log x; differentiable in the parameters of φ.
    """
    width = width_of(log_phi)
    x = width * tf.constant(_NODES)
    log_terms = log_phi(tf.square(x)) + tf.constant(np.log(2.0 * _WEIGHTS)) + tf.math.log(width)
    value = tf.reduce_logsumexp(log_terms + power * tf.math.log(x))
    near, far = tf.unstack(tf.stop_gradient(log_phi(tf.square(width * tf.constant(_FAR)))))
    decay = (near - far) / np.log(_FAR[1] / _FAR[0])  # the tail is like x^−decay
    infinity = tf.constant(np.inf, value.dtype)
    return tf.where(decay > power + 1.0 + 1e-6, value, infinity)


_EDGES = np.concatenate([[0.0], 1.25 ** np.arange(-80.0, 320.0)])
_LEGENDRE = np.polynomial.legendre.leggauss(8)


def tail_share(log_phi: LogPhi, x: tf.Tensor) -> tf.Tensor:
    """
    P(noise > x) = ½ ∫_x^∞ φ(s²) ds / ∫_0^∞ φ(s²) ds for x ≥ 0, [...].

    It is the integral over the rest of the panel that contains x, plus the panels beyond. Panels
    grow geometrically. The error is 1e-10 for any φ that is smooth in log x, and relatively as
    small for probabilities down to 1e-6.
    """
    edges = width_of(log_phi) * tf.constant(_EDGES)
    beyond = tf.cumsum(_integral(log_phi, edges[:-1], edges[1:]), reverse=True)
    beyond = tf.concat([beyond, [tf.zeros([], edges.dtype)]], 0)  # the integral beyond every edge
    wide = tf.cast(x, edges.dtype)
    panel = tf.searchsorted(edges, tf.reshape(wide, [-1]), side="right") - 1
    panel = tf.reshape(tf.minimum(panel, len(_EDGES) - 2), tf.shape(wide))
    upper = tf.gather(edges, panel + 1)
    rest = _integral(log_phi, tf.minimum(wide, upper), upper) + tf.gather(beyond, panel + 1)
    return tf.cast(rest / (2.0 * beyond[0]), x.dtype)


def _integral(log_phi: LogPhi, lower: tf.Tensor, upper: tf.Tensor) -> tf.Tensor:
    """∫ φ(s²) ds from ``lower`` to ``upper``, which are near each other, [...]."""
    mid, half = (upper + lower) / 2.0, (upper - lower) / 2.0
    node, weight = (before_axes_of(mid, values) for values in _LEGENDRE)
    return half * tf.reduce_sum(weight * tf.exp(log_phi(tf.square(mid + half * node))), 0)


# Between two edges φ falls only a little: its value at the first of them is the envelope.
_PANELS = np.concatenate([[0.0], np.logspace(-6, 30, 1801)])


def draw_distance(log_phi: LogPhi, num_draws: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """
    Draws of x > 0 of density ∝ φ(x²), [num_draws], float64, by rejection from a staircase.

    φ decreases, so that its value at the start of a panel is an upper bound there. Nothing beyond
    1e30 widths is drawn.
    """
    width = width_of(log_phi)
    edges = width * tf.constant(_PANELS)
    # φ(0) = 1 is not computed: a user's log φ may contain √r.
    log_height = tf.concat([[tf.zeros([], edges.dtype)], log_phi(tf.square(edges[1:-1]))], axis=0)
    log_mass = log_height + tf.math.log(edges[1:] - edges[:-1])

    def propose(seed: tf.Tensor, row: tf.Tensor, *_: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        panel_seed, seed = tf.unstack(tfp.random.split_seed(seed, n=2))
        panel = tf.random.stateless_categorical(log_mass[None], tf.size(row), panel_seed)[0]
        u = tf.random.stateless_uniform([2, tf.size(row)], seed, 1e-300, 1.0, tf.float64)
        lower, upper = tf.gather(edges, panel), tf.gather(edges, panel + 1)
        x = lower + u[0] * (upper - lower)
        return x, tf.math.log(u[1]) + tf.gather(log_height, panel) <= log_phi(tf.square(x))

    return rejection_sample(propose, [tf.zeros([num_draws], tf.float64)], seed)


def log_density_by_quadrature(
    log_prob: Callable[[TensorType, tf.Tensor, TensorType], tf.Tensor],
    omega_mean: Callable[[tf.Tensor], tf.Tensor],
    Fmu: TensorType,
    Fvar: TensorType,
    Y: TensorType,
    **options: int,
) -> tf.Tensor:
    """
    log ∫ p(y|f) N(f | Fmu, Fvar) df, with nodes dense about y and about the integrand's maximum.

    For an outlier and noise with Gaussian tails, the maximum is far from both y and Fmu.

    :param log_prob: log p(y|f) as a function of X, f and y.
    :param omega_mean: −d log φ/dr as a function of r.
    """
    Fmu = Fmu + tf.zeros_like(Y)
    residual = tf.stop_gradient(Y - Fmu)
    distance = tf.abs(residual) + tf.zeros_like(Fvar)
    variance = tf.stop_gradient(Fvar) + tf.zeros_like(distance)

    def halve(lower: tf.Tensor, upper: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Bisect for the u in (0, distance) with −d log φ(u²)/du = (distance − u)/variance."""
        u = (lower + upper) / 2.0
        steep = 2.0 * u * omega_mean(tf.square(u)) * variance > distance - u
        return tf.where(steep, lower, u), tf.where(steep, u, upper)

    start = (tf.zeros_like(distance), distance)
    lower, _ = tf.while_loop(lambda *_: True, halve, start, maximum_iterations=30)
    mode = Y - tf.sign(residual) * tf.stop_gradient(lower)
    return log_expectation(lambda F: log_prob(F, F, Y), Fmu, Fvar, [Y, mode], **options)
