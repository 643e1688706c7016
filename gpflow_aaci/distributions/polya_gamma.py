"""The Pólya-Gamma distribution (Polson, Scott and Windle 2013)."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import TensorType

from ..inverse_laplace import invert
from ..special import log_sech_sqrt
from ..validation import require
from .inverted import InvertedDistribution
from .law import TiltedLaw, in_blocks, kl_of_tilts
from .parameters import (
    as_dependencies,
    check_parameter,
    parameters_of_one_dtype,
    positive_property,
)
from .rejection import rejection_sample

tfd = tfp.distributions

_MOST_SUMMANDS = 4
"""Up to this integer b, a sum of b draws of PG(1, c) is faster than one draw of PG(b, c)."""


def _log_phi(r: tf.Tensor, b: tf.Tensor, scale: tf.Tensor) -> tf.Tensor:
    """log E e^{−rω} for ω ~ scale·PG(b, 0): −b log cosh √(scale r/2)."""
    b, scale = tf.cast(b, r.dtype), tf.cast(scale, r.dtype)
    return b * log_sech_sqrt(scale * r / 2.0)


class PolyaGamma(InvertedDistribution):
    r"""
    scale · PG(b, c): PG(b, c) ∝ e^{−c²x/2} PG(b, 0), E e^{−sx} = cosh^{−b} √(s/2) under PG(b, 0).

    Mean b tanh(c/2)/(2c), b/4 at c = 0; the point 0 for b = 0. Draws are by rejection, at a cost
    that hardly depends on b: for b = 1, 2, 3, 4 exact, by Devroye's (2009) method; else of a
    density good to 1e-8, relatively (see ``sample_pg``). Cdf, quantile and density are by
    inversion (see ``InvertedDistribution``).
    """

    def __init__(
        self,
        b: Any,
        c: Any,
        scale: Any = 1.0,
        validate_args: bool = False,
        allow_nan_stats: bool = True,
        name: str = "PolyaGamma",
    ) -> None:
        """
        :param b: shape, finite and non-negative; b, c and scale broadcast to [batch...].
        :param c: tilt, finite, of either sign.
        :param scale: finite and positive. (½ is what the logistic likelihood asks for.)
        :raises ValueError: for values outside of that.
        """
        parameters = dict(locals())
        with tf.name_scope(name):
            converted = parameters_of_one_dtype(b=b, c=c, scale=scale)
            self._b, self._c, self._scale = (converted[key] for key in ("b", "c", "scale"))
            super().__init__(
                dtype=self._b.dtype,
                reparameterization_type=tfd.NOT_REPARAMETERIZED,
                validate_args=validate_args,
                allow_nan_stats=allow_nan_stats,
                parameters=parameters,
                name=name,
            )

    def _parameter_control_dependencies(self, is_init: bool) -> list[tf.Tensor]:
        if not is_init:
            return []
        b, c, scale = self._b, self._c, self._scale
        checks = [
            (b, "b", tf.math.is_finite(b) & (b >= 0.0), "finite and non-negative"),
            (scale, "scale", tf.math.is_finite(scale) & (scale > 0.0), "finite and positive"),
            (c, "c", tf.math.is_finite(c), "finite"),
        ]
        return as_dependencies(
            require(
                [
                    check_parameter(self.name, key, value, condition, accepted)
                    for value, key, condition, accepted in checks
                ]
            )
        )

    @classmethod
    def _parameter_properties(cls, dtype: tf.DType, num_classes: int | None = None) -> dict:
        return {
            "b": positive_property(),
            "c": tfp.util.ParameterProperties(),
            "scale": positive_property(),
        }

    @property
    def b(self) -> tf.Tensor:
        """The shape."""
        return self._b

    @property
    def c(self) -> tf.Tensor:
        """The tilt."""
        return self._c

    @property
    def scale(self) -> tf.Tensor:
        """What multiplies a PG(b, c) variable."""
        return self._scale

    def _law_parameters(self) -> tuple[tf.Tensor, ...]:
        b, c, scale = (tf.cast(value, tf.float64) for value in (self._b, self._c, self._scale))
        return tf.square(c) / (2.0 * scale), b, scale

    def _law_at(self, *parameters: tf.Tensor) -> TiltedLaw:
        return TiltedLaw.at(_log_phi, *parameters)

    def _log_prob(self, value: TensorType) -> tf.Tensor:
        """With respect to the unit mass at 0 for b = 0, where its gradients are 0."""
        point = tf.equal(self._b, 0.0)
        b = tf.where(point, tf.ones_like(self._b), self._b)
        log_prob = InvertedDistribution._log_prob(PolyaGamma(b, self._c, self._scale), value)
        at_point = tf.where(value == 0.0, tf.zeros_like(value), -np.inf)
        return tf.where(point, tf.where(tf.math.is_nan(value), value, at_point), log_prob)

    def _sample_n(self, n: tf.Tensor, seed: Any = None) -> tf.Tensor:
        seeds = tfp.random.split_seed(seed, n=2, salt="PolyaGamma")
        shape = tf.concat([[n], self.batch_shape_tensor()], axis=0)
        b, c, scale = (
            tf.reshape(tf.broadcast_to(tf.cast(value, tf.float64), shape), [-1])
            for value in (self._b, self._c, self._scale)
        )
        summed = tf.equal(b, tf.round(b)) & (b <= _MOST_SUMMANDS)
        draws = tf.zeros_like(b)
        draws = _fill(draws, summed & (b > 0.0), partial(_sum_of_draws, seed=seeds[0]), b, c)
        draws = _fill(draws, ~summed, partial(sample_pg, seed=seeds[1]), b, c)
        return tf.cast(tf.reshape(draws * scale, shape), self.dtype)


def _fill(
    draws: tf.Tensor, where: tf.Tensor, sample: Callable[..., tf.Tensor], *parameters: tf.Tensor
) -> tf.Tensor:
    """``draws`` [n], but those of ``sample(*parameters)`` ``where`` it is true."""
    rows = tf.where(where)

    def fill() -> tf.Tensor:
        drawn = sample(*(tf.gather_nd(parameter, rows) for parameter in parameters))
        return tf.tensor_scatter_nd_update(draws, rows, drawn)

    return tf.cond(tf.size(rows) > 0, fill, lambda: draws)


def _sum_of_draws(b: tf.Tensor, c: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """PG(b, c) for integer b > 0, row by row, as a sum of b draws of PG(1, c)."""
    rows = tf.repeat(tf.range(tf.size(b)), tf.cast(b, tf.int32))
    draws = sample_pg1(tf.gather(c, rows), seed)
    return tf.math.unsorted_segment_sum(draws, rows, tf.size(b))


_T = 0.64  # where the two series of J*(1, 0) hand over (Devroye 2009)
_HALF_NORMAL_TAIL = 0.5 * math.erfc(math.sqrt(0.5 / _T))


def sample_pg1(c: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    r"""
    PG(1, c), row by row: [n] for c [n].

    PG(1, c) = J*(1, z)/4, z = |c|/2 (Polson et al. 2013, Sec. 4). Below t its density is
    √(2/π) x^{−3/2} e^{−1/2x − z²x/2} A(e^{−4/x}), above t (π/2) e^{−(π²/8 + z²/2) x} A(e^{−π²x}),
    up to one factor, where A(y) = 1 − 3y + 5y³ − 7y⁶ + …. Without A it is an exponential above t;
    below it an inverse Gaussian of mean 1/z cut off at t or, where that has more mass than 1/N²
    cut off there, the latter accepted with probability e^{−z²x/2}. At least 0.71 are accepted.
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
        tiny = np.finfo(np.float64).tiny
        u = tf.random.stateless_uniform(
            tf.concat([[4], tf.shape(z)], axis=0), seed, tiny, 1.0, z.dtype
        )
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


class _Saddle(NamedTuple):
    """
    What the density of PG(b, c) at x = bT/4 is made of, whatever b and c are; each [n].

    The tilt 2v with mean x has tanh(v)/v = T. v is imaginary for T > 1.
    """

    y: tf.Tensor  # v²
    sech2: tf.Tensor  # sech² v
    log_cosh: tf.Tensor  # log cosh v
    variance: tf.Tensor  # of PG(1, 2v)
    a: tf.Tensor  # v coth 2v − log(2 cosh v), a concave function of T
    a1: tf.Tensor  # −½ log(16 variance/T³), between 0 and ½ log(1 + T)


def _moments(y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """T = tanh(v)/v, sech² v and 16 Var PG(1, 2v) = (T − sech² v)/y at y = v² > −π²/4."""
    v, real = tf.maximum(tf.sqrt(tf.abs(y)), 1e-30), y > 0.0
    T = tf.where(real, tf.tanh(v), tf.tan(tf.minimum(v, np.pi / 2.0))) / v
    e = tf.exp(-2.0 * v)
    sech2 = tf.where(real, 4.0 * e / tf.square(1.0 + e), 1.0 - y * tf.square(T))
    small = tf.abs(y) < 1e-3
    series = 2.0 / 3.0 - y * (8.0 / 15.0 - y * (34.0 / 105.0 - y * (496.0 / 2835.0)))
    return T, sech2, tf.where(small, series, (T - sech2) / tf.where(small, tf.ones_like(y), y))


def _saddle(T: tf.Tensor) -> _Saddle:
    """By two Newton steps for 1/T = v coth v in y = v², from 5e-4 of it to 1e-11."""
    inverse = 1.0 / T
    near = -(np.pi**2) / 4.0 + inverse * (2.0 + inverse * (0.4 + inverse / 15.0))
    far = tf.square(inverse * tf.tanh(inverse * tf.tanh(inverse)))
    y = tf.where(inverse < 2.2, near, far)
    for _ in range(2):
        ratio, _, variance = _moments(y)
        y += 2.0 * ratio * (inverse * ratio - 1.0) / variance
    _, sech2, variance = _moments(y)

    v, real = tf.sqrt(tf.abs(y)), y > 0.0
    log1p = tf.math.log1p(tf.exp(-2.0 * v))
    log_cosh = tf.where(real, v + log1p - np.log(2.0), -0.5 * tf.math.log(sech2))
    # v coth 2v − v and v − log(2 cosh v), so that large v cancel.
    a_real = 2.0 * v / tf.math.expm1(4.0 * tf.maximum(v, 1e-30)) - log1p
    a = tf.where(real, a_real, 0.5 * (inverse + y * T) - np.log(2.0) - log_cosh)
    a1 = -0.5 * tf.math.log(variance * inverse**3)
    return _Saddle(y, sech2, log_cosh, variance / 16.0, a, a1)


def sample_pg(b: tf.Tensor, c: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    r"""
    PG(b, c) for any b > 0, row by row: [n] for b and c [n].

    By the first term of its alternating series (Polson et al. 2013, Eq. 5), the density is
    (1 + e^{−c})^b A(x) times that of the inverse Gaussian law of mean b/2c and shape b²/4, with a
    factor A ≤ 1 that does not depend on c. As a proposal, that law is tilted (``_envelope``), and
    its draws are accepted as A asks for: at least 0.65 of them. A is computed, by inversion, only
    where bounds of it leave the decision open, which becomes rare as b grows (``_bounds``).
    """
    z, height, slope = _envelope(b, tf.abs(c))

    def propose(
        seed: tf.Tensor, b: tf.Tensor, z: tf.Tensor, height: tf.Tensor, slope: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        tiny = np.finfo(np.float64).tiny
        u = tf.random.stateless_uniform(
            tf.concat([[3], tf.shape(z)], axis=0), seed, tiny, 1.0, z.dtype
        )
        T = tf.maximum(b * _inverse_gaussian(z, tf.square(tf.math.ndtri(u[0])), u[1]), 1e-90)
        saddle = _saddle(T)
        below, above = _bounds(b, saddle)
        log_u = tf.math.log(u[2]) + height + slope * T
        rows = tf.where((log_u > below) & (log_u <= above))[:, 0]

        def decide() -> tf.Tensor:
            log_A = _log_A(*(tf.gather(value, rows) for value in (b, T, *saddle)))
            return tf.tensor_scatter_nd_update(
                log_u <= below, rows[:, None], tf.gather(log_u, rows) <= log_A
            )

        return b * T / 4.0, tf.cond(tf.size(rows) > 0, decide, lambda: log_u <= below)

    return rejection_sample(propose, (b, z, height, slope), seed)


def _bounds(b: tf.Tensor, saddle: _Saddle) -> tuple[tf.Tensor, tf.Tensor]:
    """
    Below and above log A(x) at x = bT/4.

    By the saddlepoint method (Daniels 1954), log A = b a + a₁ + log R. R = 1 at T = 0, where the
    law is inverse Gaussian, and falls to Stirling's error for Γ(b), above e^{−1/12b}, as T → ∞,
    where it is gamma. b a ≤ log A ≤ 0 besides, which is close for small b. (Held against mpmath.)
    """
    approximation = b * saddle.a + saddle.a1
    below = tf.maximum(approximation - 1.0 / (12.0 * b), b * saddle.a)
    return below, tf.minimum(approximation, 0.0)


def _envelope(b: tf.Tensor, c: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """
    bc'/2, h and g such that log A ≤ h + gT: the tilt c' of the proposal, c'² = c² − 8g/b.

    A tangent of b a + ½ log(1 + T), which is concave and above b a + a₁; or 0, if that accepts
    more. The tangent touches near the mean (at 4/b times it), for small b in the right tail.
    """
    half = tf.maximum(c, 1e-30) / 2.0  # tanh(x)/x at 0
    T = tf.tanh(half) / half + 4.0 / (b * (tf.square(c) + np.pi**2))
    saddle = _saddle(T)
    slope = 0.5 / (1.0 + T) - 0.5 * b * saddle.sech2 / tf.square(T)
    height = b * saddle.a + 0.5 * tf.math.log1p(T) - slope * T
    tilt = tf.sqrt(tf.square(c) - 8.0 * slope / b)
    # By the logarithm of the ratio of the two integrals.
    tangent = height + 4.0 * slope / (c + tilt) < 0.0
    zero = tf.zeros_like(b)
    return (
        0.5 * b * tf.where(tangent, tilt, c),
        tf.where(tangent, height, zero),
        tf.where(tangent, slope, zero),
    )


def _inverse_gaussian(z: tf.Tensor, chi2: tf.Tensor, u: tf.Tensor) -> tf.Tensor:
    """Of mean 1/z and shape 1, from χ²(1) and uniform (Michael, Schucany and Haas 1976)."""
    root = 1.0 / (z + chi2 / 2.0 + tf.sqrt(chi2 * (z + chi2 / 4.0)))  # 1/χ² at z = 0
    return tf.where(u * (1.0 + z * root) <= 1.0, root, 1.0 / (tf.square(z) * root))


def _log_A(b: tf.Tensor, T: tf.Tensor, *saddle: tf.Tensor) -> tf.Tensor:
    """log A(x) at x = bT/4, to 1e-8, by inversion at the tilt whose mean is x."""
    at = _Saddle(*saddle)
    x, stddev = b * T / 4.0, tf.sqrt(b * at.variance)
    law = TiltedLaw(_log_phi, 2.0 * at.y, (b, tf.ones_like(b)), -b * at.log_cosh, x, stddev)
    (density,) = in_blocks(
        lambda law, x: [invert(law.log_transform, x, law.mean, law.stddev).density], law, x, 1
    )
    return b * at.a + tf.math.log(density * tf.sqrt(8.0 * np.pi * x**3) / b)


@tfd.RegisterKL(PolyaGamma, PolyaGamma)
def _kl_polya_gamma(a: PolyaGamma, b: PolyaGamma, name: str | None = None) -> tf.Tensor:
    """
    KL[PG(b, c₁) ‖ PG(b, c₂)].

    :raises ValueError: unless b and scale are the same.
    """
    with tf.name_scope(name or "kl_polya_gamma"):
        (r1, *of_a), (r2, *of_b) = a._law_parameters(), b._law_parameters()
        checks = [
            check_parameter("kl_divergence", key, other, tf.equal(one, other), "the same for both")
            for key, one, other in zip(("b", "scale"), of_a, of_b, strict=True)
        ]
        with tf.control_dependencies([require(checks)]):
            shape = tf.broadcast_dynamic_shape(a.batch_shape_tensor(), b.batch_shape_tensor())
            r1, r2, *of_a = (tf.broadcast_to(value, shape) for value in (r1, r2, *of_a))
            return tf.cast(kl_of_tilts(_log_phi, r1, r2, *of_a), a.dtype)
