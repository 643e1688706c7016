"""The Pólya-Gamma distribution (Polson, Scott and Windle 2013)."""

import math
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from ..special import log_sech_sqrt
from ..validation import require
from .inverted import InvertedDistribution
from .law import TiltedLaw, kl_of_tilts
from .parameters import (
    as_dependencies,
    check_parameter,
    parameters_of_one_dtype,
    positive_property,
)
from .rejection import rejection_sample

tfd = tfp.distributions

_MOST_SUMMANDS = 64
"""Up to this b, a draw is a sum of b exact ones."""


def _log_phi(r: tf.Tensor, b: tf.Tensor, scale: tf.Tensor) -> tf.Tensor:
    """log E e^{−rω} for ω ~ scale·PG(b, 0): −b log cosh √(scale r/2)."""
    b, scale = tf.cast(b, r.dtype), tf.cast(scale, r.dtype)
    return b * log_sech_sqrt(scale * r / 2.0)


class PolyaGamma(InvertedDistribution):
    r"""
    scale · PG(b, c): PG(b, c) ∝ e^{−c²x/2} PG(b, 0), E e^{−sx} = cosh^{−b} √(s/2) under PG(b, 0).

    Mean b tanh(c/2)/(2c), b/4 at c = 0. Draws: for integer b up to 64, exactly, as sums of b
    draws by Devroye's (2009) method; for any other b by inversion of the cdf, which is good
    to 1e-7 whatever b is (see ``InvertedDistribution``), as are cdf, quantile and density.
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
        :param b: shape, finite and positive; b, c and scale broadcast to [batch...].
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
        checks = [
            check_parameter(
                self.name,
                key,
                value,
                tf.math.is_finite(value) & (value > 0.0),
                "finite and positive",
            )
            for key, value in (("b", self._b), ("scale", self._scale))
        ]
        checks.append(
            check_parameter(self.name, "c", self._c, tf.math.is_finite(self._c), "finite")
        )
        return as_dependencies(require(checks))

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

    def _sample_n(self, n: tf.Tensor, seed: Any = None) -> tf.Tensor:
        seed = tfp.random.sanitize_seed(seed, salt="PolyaGamma")
        shape = tf.concat([[n], self.batch_shape_tensor()], axis=0)
        b, c, scale = (
            tf.reshape(tf.broadcast_to(tf.cast(value, tf.float64), shape), [-1])
            for value in (self._b, self._c, self._scale)
        )
        exact = tf.equal(b, tf.round(b)) & (b <= _MOST_SUMMANDS)
        rows = tf.where(exact)
        draws = tf.zeros_like(b)
        summed = _sum_of_draws(tf.gather_nd(b, rows), tf.gather_nd(c, rows), seed)
        draws = tf.tensor_scatter_nd_update(draws, rows, summed) * scale

        def by_inversion() -> tf.Tensor:
            inverted = super(PolyaGamma, self)._sample_n(n, seed)
            return tf.where(exact, draws, tf.cast(tf.reshape(inverted, [-1]), draws.dtype))

        draws = tf.cond(tf.reduce_all(exact), lambda: draws, by_inversion)
        return tf.cast(tf.reshape(draws, shape), self.dtype)


def _sum_of_draws(b: tf.Tensor, c: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """PG(b, c) for integer b, row by row, as a sum of b draws of PG(1, c)."""

    def add_one(j: tf.Tensor, total: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        rows = tf.where(tf.cast(j, b.dtype) < b)
        here = tf.random.experimental.stateless_fold_in(seed, j)
        draws = sample_pg1(tf.gather_nd(c, rows), here)
        return j + 1, tf.tensor_scatter_nd_add(total, rows, draws)

    most = tf.reduce_max(tf.concat([tf.zeros([1], b.dtype), b], axis=0))
    loop = tf.while_loop(
        lambda j, total: tf.cast(j, b.dtype) < most,
        add_one,
        (tf.constant(0), tf.zeros_like(b)),
        shape_invariants=(tf.TensorShape([]), b.shape),
    )
    return loop[1]


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
        # Michael, Schucany and Haas (1976); 1/N² at z = 0.
        root = 1.0 / (z + chi2 / 2.0 + tf.sqrt(chi2 * (z + chi2 / 4.0)))
        smaller = u[2] * (1.0 + z * root) <= 1.0
        gaussian = tf.where(smaller, root, 1.0 / (tf.square(z) * root))
        below = tf.where(whole, gaussian, 1.0 / chi2)
        x = tf.where(is_above, _T - tf.math.log(u[1]) / rate, below)
        y = tf.exp(tf.where(is_above, -(np.pi**2) * x, -4.0 / x))
        y3 = y * y * y
        probability = 1.0 - y * (3.0 - y * y * (5.0 - y3 * (7.0 - 9.0 * y3 * y)))
        untilted = ~(is_above | whole)
        probability *= tf.where(untilted, tf.exp(-0.5 * tf.square(z) * x), tf.ones_like(x))
        return x / 4.0, (u[3] < probability) & (is_above | (x <= _T))

    return rejection_sample(propose, (z, rate, above, whole), seed)


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
