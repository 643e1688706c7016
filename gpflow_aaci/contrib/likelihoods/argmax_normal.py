"""Independent normal variables, given which one is the largest."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import TensorType

from ...distributions.interval_normal import IntervalNormal
from ...distributions.parameters import NumberDistribution
from ...distributions.rejection import rejection_sample, uniforms
from ...special import log_ndtr, positive_normal_mean, positive_normal_variance

_NEWTON_STEPS = 4
_REACH = 7.5  # from the mode; beyond, the integrand is below e^{−28} of its largest value
_STEP, _MOST_NODES = 0.9, 2_048  # the step in units of the integrand's narrowest width


class ArgmaxNormal(NumberDistribution):
    """
    z ~ N(loc, I) [K], given that z[label] is the largest element.

    Draws are exact: the largest element is drawn by rejection, and the others, which are
    independent given it, by inverting their distribution functions. Moments are
    one-dimensional integrals::

        z = contrib.likelihoods.ArgmaxNormal([0.0, 1.0, 0.5], label=0)
        z.sample(1000, seed=0)  # [1000, 3], with z[..., 0] the largest
        z.mean()  # [3]
    """

    def __init__(
        self,
        loc: Any,
        label: Any,
        validate_args: bool = False,
        allow_nan_stats: bool = True,
        name: str = "ArgmaxNormal",
    ) -> None:
        """
        :param loc: [batch..., K], finite, K ≥ 2.
        :param label: [batch...], from 0 to K − 1.
        """
        super().__init__(locals(), loc=loc, label=label)

    @classmethod
    def _parameter_properties(cls, dtype: tf.DType, num_classes: int | None = None) -> dict:
        return {
            "loc": tfp.util.ParameterProperties(event_ndims=1),
            "label": tfp.util.ParameterProperties(),
        }

    def _event_shape(self) -> tf.TensorShape:
        return self.loc.shape[-1:]

    def _event_shape_tensor(self) -> tf.Tensor:
        return tf.shape(self.loc)[-1:]

    def _first(self) -> tf.Tensor:
        return own_first(self.loc, self.label)

    def _log_prob(self, value: tf.Tensor) -> tf.Tensor:
        error = tf.square(value - self.loc) + np.log(2.0 * np.pi)
        loc, ordered = self._first(), own_first(value, self.label)
        log_p = -0.5 * tf.reduce_sum(error, -1) - log_first_is_largest(loc, tf.ones_like(loc))
        is_largest = tf.reduce_all(ordered[..., :1] >= ordered, -1)
        return tf.where(is_largest, log_p, tf.constant(-np.inf, log_p.dtype))

    def _mean(self) -> tf.Tensor:
        loc = self._first()
        u, mills, _, weight = self._given_largest(loc)
        shift = tf.concat([u, -mills], -1)
        return own_first(loc + tf.reduce_sum(weight * shift, 0), -self.label)

    def _variance(self) -> tf.Tensor:
        u, mills, variance, weight = self._given_largest(self._first())
        shift = tf.concat([u, -mills], -1)
        total = tf.reduce_sum(weight * tf.square(shift - tf.reduce_sum(weight * shift, 0)), 0)
        total += tf.concat([0.0 * u[0], tf.reduce_sum(weight * variance, 0)], -1)
        return own_first(total, -self.label)

    def _given_largest(self, loc: tf.Tensor) -> tuple[tf.Tensor, ...]:
        """u, loc − E z and Var z of the others given z = loc + u of the largest, and weights."""
        u, x, _, log_p, _ = _integrand(loc, tf.ones_like(loc))
        weight = tf.nn.softmax(log_p, 0)[..., None]
        return u[..., None], positive_normal_mean(x) - x, positive_normal_variance(x), weight

    def _sample_n(self, n: tf.Tensor, seed: Any = None) -> tf.Tensor:
        seeds = tfp.random.split_seed(tfp.random.sanitize_seed(seed, salt="ArgmaxNormal"), n=2)
        shape = tf.concat([[n], self.batch_shape_tensor(), self.event_shape_tensor()], 0)
        K = self.loc.shape[-1]
        label = tf.reshape(tf.broadcast_to(self.label, shape[:-1]), [-1])
        loc = tf.reshape(tf.broadcast_to(tf.cast(self.loc, tf.float64), shape), [-1, K])
        loc = own_first(loc, label)
        distance = loc[:, :1] - loc[:, 1:]
        largest = (
            loc[:, :1]
            + rejection_sample(_propose, tf.unstack(distance, axis=-1), seeds[0])[:, None]
        )
        lowest = tf.constant(-np.inf, tf.float64)
        others = IntervalNormal(loc[:, 1:], tf.ones_like(distance), lowest, largest)
        draws = tf.concat([largest, others.sample(seed=seeds[1])], -1)
        return tf.cast(tf.reshape(own_first(draws, -label), shape), self.dtype)


def own_first(values: TensorType, label: TensorType) -> tf.Tensor:
    """``values`` [..., K] in the order label, label + 1, … modulo K; ``label`` is [...]."""
    K = values.shape[-1]
    index = (tf.cast(label, tf.int32)[..., None] + tf.range(K)) % K
    values = values + tf.zeros(tf.shape(index), values.dtype)
    index += tf.zeros(tf.shape(values), tf.int32)
    return tf.gather(values, index, batch_dims=len(values.shape) - 1)


def log_first_is_largest(loc: tf.Tensor, scale: tf.Tensor) -> tf.Tensor:
    """
    log P(z_0 > z_k for all k > 0) of independent z_k ~ N(loc_k, scale_k²), [...] of [..., K].

    With z_0 = loc_0 + scale_0 u it is log E_u Π Φ((z_0 − loc_k)/scale_k), by the trapezoidal rule
    about the mode of the integrand: in float64 the relative error of P is about 1e-11, however
    small P is, unless scale_0 exceeds another scale more than a hundredfold.
    """
    *_, log_p, step = _integrand(loc, scale)
    return tf.reduce_logsumexp(log_p, 0) + tf.math.log(step)


def inverse_mills(x: tf.Tensor, log_ndtr_x: tf.Tensor) -> tf.Tensor:
    """N(x)/Φ(x), the derivative of log Φ."""
    return tf.exp(-0.5 * tf.square(x) - 0.5 * np.log(2.0 * np.pi) - log_ndtr_x)


@tf.custom_gradient
def log_largest_of_unit_scale(loc: tf.Tensor) -> tuple[tf.Tensor, Callable[..., tf.Tensor]]:
    """:func:`log_first_is_largest` for scales 1: a cheaper first derivative, and no second one."""
    scale = tf.ones_like(loc)

    def slope(upstream: tf.Tensor) -> tf.Tensor:
        weight, ratio, _ = ratios_given_largest(loc)
        others = tf.reduce_sum(weight * ratio, 0)
        own = tf.reduce_sum(others, -1, keepdims=True)
        return upstream[..., None] * tf.concat([own, -others], -1)

    return log_first_is_largest(loc, scale), slope


def ratios_given_largest(loc: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """
    Weights [T, ..., 1] of z_0 given that it is the largest, N(x)/Φ(x) and x = z_0 − loc_k.

    The last two are [T, ..., K − 1], for k > 0.
    """
    _, x, log_cdf, log_p, _ = _integrand(loc, tf.ones_like(loc))
    return tf.nn.softmax(log_p, 0)[..., None], inverse_mills(x, log_cdf), x


def _integrand(loc: tf.Tensor, scale: tf.Tensor) -> tuple[tf.Tensor, ...]:
    """
    u [T, ...], x = (z_0 − loc_k)/scale_k and log Φ(x) [T, ..., K − 1], the log integrand [T, ...],
    and the step of u.

    As a function of u the integrand is log-concave, with a curvature of at least 1.
    """
    a, b = (loc[..., :1] - loc[..., 1:]) / scale[..., 1:], scale[..., :1] / scale[..., 1:]
    mode = tf.stop_gradient(_mode(a, b))
    steepest = tf.maximum(tf.reduce_max(tf.reduce_sum(tf.square(b), -1)), 0.0)  # -∞ of no rows
    width = tf.stop_gradient(tf.math.rsqrt(1.0 + steepest))
    number = tf.minimum(tf.math.ceil(2.0 * _REACH / (_STEP * width)), _MOST_NODES)
    step = 2.0 * _REACH / number
    nodes = step * (tf.range(number, dtype=loc.dtype) + 0.5) - _REACH
    u = mode + tf.reshape(nodes, [-1] + [1] * len(mode.shape))
    x = a + b * u[..., None]
    log_normal = -0.5 * tf.square(u) - 0.5 * np.log(2.0 * np.pi)
    log_cdf = log_ndtr(x)
    return u, x, log_cdf, log_normal + tf.reduce_sum(log_cdf, -1), step


def _mode(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    """
    The u at which −½u² + Σ log Φ(a + bu) is largest, [...] of [..., K − 1].

    Its slope is a convex and decreasing function of u, so that Newton's steps rise from 0 to it.
    """
    u = tf.zeros_like(a[..., 0])
    for _ in range(_NEWTON_STEPS):
        slope, curvature = _slopes(a, b, u)
        u -= slope / curvature
    return u


def _slopes(a: tf.Tensor, b: tf.Tensor, u: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    x = a + b * u[..., None]
    ratio = inverse_mills(x, log_ndtr(x))
    bend = tf.clip_by_value(ratio * (ratio + x), 0.0, 1.0)  # by rounding it leaves (0, 1)
    slope = tf.reduce_sum(b * ratio, -1) - u
    return slope, -1.0 - tf.reduce_sum(tf.square(b) * bend, -1)


def _propose(seed: tf.Tensor, *distances: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """
    A draw u of N(u* + h'(u*), 1), h(u) = −½u² + Σ log Φ(a + u), a = ``distances``; u* is its mode.

    As h'' ≤ −1, h(u) ≤ h(u*) + h'(u*)(u − u*) − ½(u − u*)².
    """
    a = tf.stack(distances, -1)
    mode = _mode(a, tf.ones_like(a))
    slope, _ = _slopes(a, tf.ones_like(a), mode)
    uniform = uniforms(2, mode, seed)
    step = slope + tf.math.ndtri(uniform[0])

    def height(u: tf.Tensor) -> tf.Tensor:
        return -0.5 * tf.square(u) + tf.reduce_sum(log_ndtr(a + u[..., None]), -1)

    excess = height(mode + step) - height(mode) - slope * step + 0.5 * tf.square(step)
    return mode + step, tf.math.log(uniform[1]) < excess
