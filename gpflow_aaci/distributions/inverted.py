"""Distributions that are computed by inverting their Laplace transform."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import TensorType

from ..inverse_laplace import invert
from ..validation import require, shown
from .law import LogPhi, TiltedLaw, cumulants, in_blocks
from .moments import WithCumulants
from .parameters import PositiveDistribution, check_parameter, flat
from .quantile import inverted_well, quantile, require_inverted

tfd = tfp.distributions


class InvertedDistribution(WithCumulants, PositiveDistribution):
    """
    ω ~ π_φ(·|c): all methods of a TFP distribution, computed from log φ alone.

    Values are computed in float64 and complex128, whatever ``dtype`` is. The absolute error of the
    cdf is below 1e-7, the relative error of the density below 1e-6. Draws are quantiles of uniform
    variables.
    """

    c: tf.Tensor
    log_phi: LogPhi
    _phi_parameters: Sequence[tf.Tensor] = ()  # the parameters of log φ other than r
    _names: Sequence[str] = ()  # names of these parameters, for messages

    def _law_parameters(self) -> tuple[tf.Tensor, ...]:
        """r = c² and the other arguments of ``log_phi``, each to be broadcast, float64."""
        others = [tf.cast(parameter, tf.float64) for parameter in self._phi_parameters]
        return (tf.square(tf.cast(self.c, tf.float64)), *others)

    def _of_batch(self) -> list[tf.Tensor]:
        """The parameters of log φ, with one element for every member of the batch."""
        return flat(self._law_parameters(), self.batch_shape_tensor())

    def _rows(self, value: tf.Tensor) -> tuple[TiltedLaw, tf.Tensor, tf.Tensor]:
        """The distributions [n] and values [n], broadcast to one shape, and this shape."""
        batch = self.batch_shape_tensor()
        shape = tf.broadcast_dynamic_shape(tf.shape(value), batch)
        value = tf.reshape(tf.broadcast_to(tf.cast(value, tf.float64), shape), [-1])
        index = tf.reshape(tf.range(tf.reduce_prod(batch)), batch)
        index = tf.reshape(tf.broadcast_to(index, shape), [-1])
        return TiltedLaw.at(self.log_phi, *self._of_batch()).rows(index), value, shape

    # ---- moments ----

    def _cumulants(self, order: int) -> list[tf.Tensor]:
        r, *parameters = self._of_batch()
        shape = self.batch_shape_tensor()
        found = cumulants(self.log_phi, r, order, *parameters)
        return [tf.cast(tf.reshape(value, shape), self.dtype) for value in found]

    def _mean(self) -> tf.Tensor:
        return self.cumulant(1)

    def _variance(self) -> tf.Tensor:
        return self.cumulant(2)

    # ---- inversion ----

    def _tails(self, value: TensorType) -> tuple[tf.Tensor, tf.Tensor]:
        law, x, shape = self._rows(value)
        tails = in_blocks(_tails_of_rows, law, x, 2)
        return tuple(tf.cast(tf.reshape(tail, shape), self.dtype) for tail in tails)

    def _log_prob(self, value: TensorType) -> tf.Tensor:
        """
        As π(ω|c) ∝ e^{−c²ω} π(ω|0), the density can be computed at any tilt.

        If there is a tilt whose mean is the value, that tilt is used: it keeps the relative error
        small far into the tails.
        """
        law, x, shape = self._rows(value)
        inside = (x > 0.0) & tf.math.is_finite(x) & ~law.is_point
        x_safe = tf.where(inside, x, tf.ones_like(x))
        log_prob = _log_base_density(law, x_safe, inside) - law.r * x - law.log_phi_r
        at_point = law.is_point & tf.equal(x, law.mean)
        infinity = tf.constant(np.inf, x.dtype)
        outside = tf.where(at_point, infinity, tf.where(tf.math.is_nan(x), x, -infinity))
        return tf.cast(tf.reshape(tf.where(inside, log_prob, outside), shape), self.dtype)

    def _quantile(self, p: TensorType) -> tf.Tensor:
        law, p, shape = self._rows(p)
        check = check_parameter(self.name, "value", p, (p >= 0.0) & (p <= 1.0), "in [0, 1]")
        with tf.control_dependencies([require([check])]):
            inside = (p > 0.0) & (p < 1.0)
        p_safe = tf.where(inside, p, 0.5 * tf.ones_like(p))
        (x,) = in_blocks(lambda law, p: [quantile(law, p)], law, p_safe, 1)
        ends = tf.where(p > 0.0, tf.constant(np.inf, p.dtype), tf.zeros_like(p))
        x = tf.where(inside, x, tf.where(law.is_point, law.mean, ends))
        return tf.cast(tf.reshape(x, shape), self.dtype)

    def _sample_n(self, n: tf.Tensor, seed: Any = None) -> tf.Tensor:
        seed = tfp.random.sanitize_seed(seed, salt=type(self).__name__)
        shape = tf.concat([[n], self.batch_shape_tensor()], axis=0)
        tiny = np.finfo(np.float64).tiny
        return self._quantile(tf.random.stateless_uniform(shape, seed, tiny, 1.0, tf.float64))


def _tails_of_rows(law: TiltedLaw, x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """P(ω ≤ x) and P(ω > x), row by row."""
    inside = (x > 0.0) & tf.math.is_finite(x) & ~law.is_point
    x_safe = tf.where(inside, x, tf.ones_like(x))
    inverse = invert(law.log_transform, x_safe, law.mean, law.stddev)
    step = tf.cast(tf.where(law.is_point, x >= law.mean, x > 0.0), x.dtype)
    step = tf.where(tf.math.is_nan(x), x, step)
    with tf.control_dependencies([require_inverted(inverted_well(inverse) | ~inside, law.r)]):
        return tf.where(inside, inverse.cdf, step), tf.where(inside, inverse.survival, 1.0 - step)


def _log_base_density(law: TiltedLaw, x: tf.Tensor, needed: tf.Tensor) -> tf.Tensor:
    """
    log π_φ(x|0), row by row; rows that are not ``needed`` are undefined, and raise no error.

    The result does not depend on the tilt, so gradients in x and in the parameters of φ treat the
    tilt as a constant.
    """
    r = tf.stop_gradient(_saddle_tilt(law, x))
    saddle = TiltedLaw.at(law.log_phi, r, *law.parameters)
    inverse = invert(saddle.log_transform, x, saddle.mean, saddle.stddev)
    positive = inverse.density > 0.0
    log_density = tf.math.log(tf.where(positive, inverse.density, tf.ones_like(x)))
    infinity = tf.constant(np.inf, x.dtype)
    with tf.control_dependencies([require_inverted(inverted_well(inverse) | ~needed, law.r)]):
        return tf.where(positive, log_density, -infinity) + r * x + saddle.log_phi_r


def _saddle_tilt(law: TiltedLaw, x: tf.Tensor) -> tf.Tensor:
    """r ≥ 0 with E[ω] = x under e^{−rω} π_φ(ω|0), as nearly as there is one: [n], by bisection."""
    lowest = tf.fill(tf.shape(x), tf.constant(-40.0, x.dtype)) - tf.nn.relu(tf.math.log(x))
    highest = 40.0 - tf.minimum(tf.math.log(x), 0.0) * 2.0

    def halve(lower: tf.Tensor, upper: tf.Tensor) -> Sequence[tf.Tensor]:
        middle = (lower + upper) / 2.0
        (mean,) = cumulants(law.log_phi, tf.exp(middle), 1, *law.parameters)
        return tf.where(mean > x, middle, lower), tf.where(mean > x, upper, middle)

    lower, upper = tf.while_loop(lambda *_: True, halve, (lowest, highest), maximum_iterations=24)
    return tf.exp((lower + upper) / 2.0)


@tfd.RegisterKL(InvertedDistribution, InvertedDistribution)
def _kl(a: InvertedDistribution, b: InvertedDistribution, name: str | None = None) -> tf.Tensor:
    """
    KL(c₁‖c₂) = (c₂² − c₁²) ω̄(c₁) + log φ(c₂²) − log φ(c₁²), for two tilts of the same φ.

    :raises ValueError: unless φ and its parameters are the same for both.
    """
    if a.log_phi != b.log_phi:
        raise ValueError(
            "The KL divergence is available between two tilted distributions of one φ: log_phi "
            f"must be the same function. Found: {shown(a.log_phi)} and "
            f"{shown(b.log_phi)}."
        )
    with tf.name_scope(name or "kl_of_tilts"):
        (r1, *of_a), (r2, *of_b) = a._law_parameters(), b._law_parameters()
        checks = [
            check_parameter("kl_divergence", key, other, tf.equal(one, other), "the same for both")
            for key, one, other in zip(a._names, of_a, of_b, strict=True)
        ]
        with tf.control_dependencies([require(checks)] if checks else []):
            shape = tf.broadcast_dynamic_shape(a.batch_shape_tensor(), b.batch_shape_tensor())
            r1, r2, *of_a = (tf.broadcast_to(value, shape) for value in (r1, r2, *of_a))
            (mean,) = cumulants(a.log_phi, r1, 1, *of_a)
            kl = (r2 - r1) * mean + a.log_phi(r2, *of_a) - a.log_phi(r1, *of_a)
            return tf.cast(tf.where(tf.equal(r1, r2), tf.zeros_like(kl), tf.nn.relu(kl)), a.dtype)
