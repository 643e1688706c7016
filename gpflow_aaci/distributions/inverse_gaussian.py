"""TFP's inverse Gaussian, also for an infinite mean or a shape much larger than the mean."""

from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from ..special import log_ndtr, ndtr
from .moments import WithCumulants
from .parameters import CheckedSampling, as_dependencies, check_parameter

tfd = tfp.distributions


class InverseGaussian(CheckedSampling, WithCumulants, tfp.distributions.InverseGaussian):
    """
    ``tfd.InverseGaussian(loc, concentration)``: loc is the mean, concentration the shape.

    At loc = ∞ it is the Lévy distribution, that is concentration/N² for a standard normal N.
    The cdf does not overflow if concentration/loc is large.

    :raises ValueError: unless loc is positive, and concentration positive and finite.
    """

    def _parameter_control_dependencies(self, is_init: bool) -> list[tf.Tensor]:
        if not is_init:
            return []
        loc, concentration = (tf.convert_to_tensor(v) for v in (self.loc, self.concentration))
        proper = tf.math.is_finite(concentration) & (concentration > 0.0)
        checks = [
            ("loc", loc, loc > 0.0, "positive"),
            ("concentration", concentration, proper, "finite and positive"),
        ]
        return as_dependencies([check_parameter(self.name, *check) for check in checks])

    def _cumulants(self, order: int) -> list[tf.Tensor]:
        """κ_n = (2n − 3)!! μ^{2n−1} / λ^{n−1}."""
        ratio = tf.square(self.loc) / self.concentration
        found = [self.loc + tf.zeros_like(ratio)]
        for n in range(2, order + 1):
            found.append((2.0 * n - 3.0) * ratio * found[-1])
        return found

    def _log_prob(self, x: tf.Tensor) -> tf.Tensor:
        exponent = self.concentration * tf.square(x / self.loc - 1.0) / (2.0 * x)
        normaliser = tf.math.log(self.concentration / (2.0 * np.pi)) - 3.0 * tf.math.log(x)
        return 0.5 * normaliser - exponent

    def _tail(self, x: tf.Tensor, sign: float) -> tf.Tensor:
        """
        P(X ≤ x) for sign 1, P(X > x) for sign −1.

        Φ(±√(λ/x) (x/μ − 1)) ± e^{2λ/μ} Φ(−√(λ/x) (x/μ + 1)).
        """
        positive = x > 0.0
        x = tf.where(positive, x, tf.ones_like(x))
        root, ratio = tf.sqrt(self.concentration / x), x / self.loc
        log_second = 2.0 * self.concentration / self.loc + log_ndtr(-root * (ratio + 1.0))
        tail = ndtr(sign * root * (ratio - 1.0)) + sign * tf.exp(log_second)
        outside = tf.constant(0.0 if sign > 0.0 else 1.0, tail.dtype)
        return tf.where(positive, tf.clip_by_value(tail, 0.0, 1.0), outside)

    def _cdf(self, x: tf.Tensor) -> tf.Tensor:
        return self._tail(x, 1.0)

    def _survival_function(self, x: tf.Tensor) -> tf.Tensor:
        return self._tail(x, -1.0)

    def _sample_n(self, n: tf.Tensor, seed: Any = None) -> tf.Tensor:
        seed, levy_seed = tf.unstack(tfp.random.split_seed(seed, n=2, salt="InverseGaussian"))
        finite = tf.math.is_finite(self.loc)
        loc = tf.where(finite, self.loc, tf.ones_like(self.loc))
        draws = tfd.InverseGaussian(loc, self.concentration).sample(n, seed=seed)
        normal = tf.random.stateless_normal(tf.shape(draws), levy_seed, dtype=self.dtype)
        return tf.where(finite, draws, self.concentration / tf.square(normal))
