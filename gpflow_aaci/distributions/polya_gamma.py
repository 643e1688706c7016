"""The Pólya-Gamma distribution (Polson, Scott and Windle 2013)."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import TensorType

from .inverted import InvertedDistribution
from .parameters import flat, positive_property
from .polya_gamma_density import log_phi
from .polya_gamma_draws import sample_pg, sum_of_draws

_MOST_SUMMANDS = 4
"""Up to this integer b, a sum of b draws of PG(1, c) is faster than one draw of PG(b, c)."""


class PolyaGamma(InvertedDistribution):
    r"""
    scale · PG(b, c): PG(b, c) ∝ e^{−c²x/2} PG(b, 0), E e^{−sx} = cosh^{−b} √(s/2) under PG(b, 0).

    The mean is b tanh(c/2)/(2c), or b/4 at c = 0. For b = 0 it is the point 0. Draws are by
    rejection, at a cost that hardly depends on b. For b = 1, 2, 3, 4 they are exact, by Devroye's
    (2009) method; for other b they follow a density with a relative error below 1e-8 (see
    ``sample_pg``). Cdf, quantile and density are by inversion (see ``InvertedDistribution``).
    """

    log_phi = staticmethod(log_phi)
    _names = "b", "scale"

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
        :param scale: finite and positive. (The logistic likelihood uses ½.)
        :raises ValueError: for other values.
        """
        super().__init__(locals(), b=b, c=c, scale=scale)

    def _accepted(self) -> dict[str, tuple[tf.Tensor, str]]:
        b, c, scale, finite = self.b, self.c, self.scale, tf.math.is_finite
        return {
            "b": (finite(b) & (b >= 0.0), "finite and non-negative"),
            "scale": (finite(scale) & (scale > 0.0), "finite and positive"),
            "c": (finite(c), "finite"),
        }

    @classmethod
    def _parameter_properties(cls, dtype: tf.DType, num_classes: int | None = None) -> dict:
        return {
            "b": positive_property(),
            "c": tfp.util.ParameterProperties(),
            "scale": positive_property(),
        }

    def _law_parameters(self) -> tuple[tf.Tensor, ...]:
        b, c, scale = (tf.cast(value, tf.float64) for value in (self.b, self.c, self.scale))
        return tf.square(c) / (2.0 * scale), b, scale

    def _log_prob(self, value: TensorType) -> tf.Tensor:
        """The log density; for b = 0 the log probability, 0 at ω = 0, whose gradients are 0."""
        point = tf.equal(self.b, 0.0)
        b = tf.where(point, tf.ones_like(self.b), self.b)
        log_prob = InvertedDistribution._log_prob(PolyaGamma(b, self.c, self.scale), value)
        at_point = tf.where(value == 0.0, tf.zeros_like(value), -np.inf)
        return tf.where(point, tf.where(tf.math.is_nan(value), value, at_point), log_prob)

    def _sample_n(self, n: tf.Tensor, seed: Any = None) -> tf.Tensor:
        seeds = tfp.random.split_seed(seed, n=2, salt="PolyaGamma")
        shape = tf.concat([[n], self.batch_shape_tensor()], axis=0)
        b, c, scale = flat([self.b, self.c, self.scale], shape)
        summed = tf.equal(b, tf.round(b)) & (b <= _MOST_SUMMANDS)
        draws = tf.zeros_like(b)
        draws = _fill(draws, summed & (b > 0.0), partial(sum_of_draws, seed=seeds[0]), b, c)
        draws = _fill(draws, ~summed, partial(sample_pg, seed=seeds[1]), b, c)
        return tf.cast(tf.reshape(draws * scale, shape), self.dtype)


def _fill(
    draws: tf.Tensor, where: tf.Tensor, sample: Callable[..., tf.Tensor], *parameters: tf.Tensor
) -> tf.Tensor:
    """``draws`` [n], replaced by ``sample(*parameters)`` in the rows ``where`` it is true."""
    rows = tf.where(where)

    def fill() -> tf.Tensor:
        drawn = sample(*(tf.gather_nd(parameter, rows) for parameter in parameters))
        return tf.tensor_scatter_nd_update(draws, rows, drawn)

    return tf.cond(tf.size(rows) > 0, fill, lambda: draws)
