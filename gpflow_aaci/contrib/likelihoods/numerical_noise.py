"""Noise that defines only log φ: its normaliser, variance and draws follow."""

import abc
from typing import Any

import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import TensorType
from gpflow.config import default_float

from ...likelihoods.integrals.even_densities import (
    draw_distance,
    log_density_by_quadrature,
    log_integral,
    tail_share,
)
from ...likelihoods.noise.residual import ResidualLikelihood


class NumericalNoise(ResidualLikelihood, abc.ABC):
    """C φ((y − f)²) with a decreasing φ: a subclass defines ``log_phi``, and C follows."""

    def log_C(self, Y: TensorType) -> tf.Tensor:
        """−log ∫ φ(x²) dx, by quadrature."""
        return tf.cast(-log_integral(self.log_phi, 0), Y.dtype) + tf.zeros_like(Y)

    def noise_variance(self) -> tf.Tensor:
        """∫ x² φ(x²) dx / ∫ φ(x²) dx, by quadrature; infinite if it does not exist."""
        variance = tf.exp(log_integral(self.log_phi, 2) - log_integral(self.log_phi, 0))
        return tf.cast(variance, default_float())

    def draw_y(self, F: TensorType, seed: Any) -> tf.Tensor:
        """f ± a draw by rejection sampling, which is exact for every φ."""
        seeds = tfp.random.split_seed(seed, n=2, salt="numerical_noise")
        x = tf.reshape(draw_distance(self.log_phi, tf.size(F), seeds[0]), tf.shape(F))
        sign = tf.sign(tf.random.stateless_uniform(tf.shape(F), seeds[1], -1.0, 1.0, F.dtype))
        return F + sign * tf.cast(x, F.dtype)

    def predictive_log_density(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        return log_density_by_quadrature(self.pointwise_log_prob, self.omega_mean, Fmu, Fvar, Y)

    def _cdf(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        d = Y - F
        tail = tail_share(self.log_phi, tf.abs(d))
        return tf.where(d > 0.0, 1.0 - tail, tail)
