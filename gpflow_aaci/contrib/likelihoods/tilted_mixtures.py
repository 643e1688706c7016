"""Sums and mixtures of distributions of ω."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from ...distributions.inverted import InvertedDistribution
from ...distributions.law import LogPhi
from ...distributions.parameters import positive_property
from ...distributions.tilted import TiltedDistribution

tfd = tfp.distributions


class TiltedMixture(InvertedDistribution):
    """
    The tilt by c of a mixture: with probability w_k, ω is a_k ω_k. So φ(r) = Σ w_k φ_k(a_k r).

    Its components are the tilts of ω_k by √a_k c, with probabilities w_k φ_k(a_k c²)/φ(c²). If a
    component is a point, ``log_prob`` there is its log-probability, without the other densities.
    """

    def __init__(
        self,
        log_phi: LogPhi,
        c: tf.Tensor,
        log_probabilities: Sequence[tf.Tensor],
        components: Sequence[tfp.distributions.Distribution],
        scales: Sequence[tf.Tensor],
        validate_args: bool = False,
        allow_nan_stats: bool = True,
        name: str = "TiltedMixture",
    ) -> None:
        """
        :param log_phi: log φ of the mixture, whose derivatives give the moments.
        :param c: [batch...], not negative.
        :param log_probabilities: [batch...] of every component, at c.
        :param components: the distribution of each ω_k at √a_k c, of batch shape [batch...].
        :param scales: a_k, [] each.
        """
        self.log_phi = log_phi
        self._parts = list(zip(log_probabilities, components, scales, strict=True))
        super().__init__(locals(), c=c)

    @classmethod
    def _parameter_properties(cls, dtype: tf.DType, num_classes: int | None = None) -> dict:
        return {"c": positive_property()}

    def _log_prob(self, x: tf.Tensor) -> tf.Tensor:
        points, densities = [], []
        for log_p, law, scale in self._parts:
            if isinstance(law, tfd.Deterministic):
                points.append(log_p + law.log_prob(x / scale))
            else:
                densities.append(log_p + law.log_prob(x / scale) - tf.math.log(scale))
        minus_infinity = tf.fill(tf.shape(x + self.c), tf.constant(-np.inf, self.dtype))
        density = tf.reduce_logsumexp(tf.stack([minus_infinity, *densities]), axis=0)
        point = tf.reduce_logsumexp(tf.stack([minus_infinity, *points]), axis=0)
        return tf.where(tf.math.is_finite(point), point, density)

    def _tails(self, x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        below = tf.add_n([tf.exp(log_p) * law.cdf(x / a) for log_p, law, a in self._parts])
        return below, 1.0 - below

    def _sample_n(self, n: tf.Tensor, seed: Any = None) -> tf.Tensor:
        seed, *seeds = tfp.random.split_seed(seed, n=1 + len(self._parts), salt="TiltedMixture")
        shape = tf.concat([[n], tf.shape(self.c)], axis=0)
        u = tf.random.stateless_uniform(shape, seed, dtype=self.dtype)
        draws, below = tf.zeros_like(u), tf.zeros_like(u)
        for k, ((log_p, law, scale), each) in enumerate(zip(self._parts, seeds, strict=True)):
            above = below + tf.exp(log_p)
            chosen = u >= below if k == len(seeds) - 1 else (u >= below) & (u < above)
            draws = tf.where(chosen, scale * law.sample(n, seed=each), draws)
            below = above
        return draws


class TiltedSum(TiltedDistribution):
    """
    The tilt by c of shift + Σ a_k ω_k, independent, φ(r) = e^{−shift r} Π φ_k(a_k r).

    Draws are sums of draws. The rest is computed from log φ of the sum without the shift. (With
    the shift, the density would begin at an edge, which an inverse Laplace transform would blur.)
    """

    def __init__(
        self,
        log_phi: LogPhi,
        c: tf.Tensor,
        components: Sequence[tfp.distributions.Distribution],
        scales: Sequence[tf.Tensor],
        shift: tf.Tensor,
        validate_args: bool = False,
        allow_nan_stats: bool = True,
        name: str = "TiltedSum",
    ) -> None:
        """
        :param log_phi: log φ of the sum without the shift.
        :param c: [batch...], not negative.
        :param components: the distribution of each ω_k at √a_k c, of batch shape [batch...].
        :param scales: a_k, [] each.
        :param shift: not negative, [] or [batch...].
        """
        parameters = dict(locals())
        self._components, self._scales = list(components), list(scales)
        self.shift = shift  # the smallest ω
        super().__init__(log_phi, c, validate_args, allow_nan_stats, name)
        self._parameters = parameters

    @classmethod
    def _parameter_properties(cls, dtype: tf.DType, num_classes: int | None = None) -> dict:
        return super()._parameter_properties(dtype, num_classes)

    def _cumulants(self, order: int) -> list[tf.Tensor]:
        """The shift changes only the first."""
        first, *others = super()._cumulants(order)
        return [first + self.shift, *others]

    def _tails(self, value: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return super()._tails(value - self.shift)

    def _log_prob(self, value: tf.Tensor) -> tf.Tensor:
        return super()._log_prob(value - self.shift)

    def _quantile(self, p: tf.Tensor) -> tf.Tensor:
        return self.shift + super()._quantile(p)

    def _sample_n(self, n: tf.Tensor, seed: Any = None) -> tf.Tensor:
        seeds = tfp.random.split_seed(seed, n=len(self._components), salt="TiltedSum")
        total = self.shift
        for law, a, each in zip(self._components, self._scales, seeds, strict=True):
            draws = law.sample(n, seed=each)
            total += a * (draws - law.shift if isinstance(law, TiltedSum) else draws)
        return total
