"""The kernel of a wide neural network with sigmoids."""

import gpflow
import numpy as np
import tensorflow as tf
from gpflow import Parameter
from gpflow.base import TensorType
from gpflow.kernels import Kernel
from gpflow.utilities import positive


class ArcSine(Kernel):
    r"""
    k(x, x') = σ² (2/π) arcsin(2⟨x, x'⟩ / √((1 + 2⟨x, x⟩)(1 + 2⟨x', x'⟩))), ⟨x, x'⟩ = b + Σ w x x'.

    f is a neural network of infinitely many units erf(u₀ + Σ u_d x_d) with u₀ ~ N(0, b) and
    u_d ~ N(0, w_d) (Williams 1998, *Computation with infinite neural networks*; Rasmussen and
    Williams 2006, 4.29). It is not stationary: away from the origin f tends to constants, so that
    it suits steps and saturation. GPflow's ``ArcCosine`` is the same for rectified units::

        kernel = kernels.ArcSine(weight_variances=[10.0, 10.0], bias_variance=1.0)
    """

    def __init__(
        self,
        variance: TensorType = 1.0,
        weight_variances: TensorType = 1.0,
        bias_variance: TensorType = 1.0,
        *,
        active_dims: gpflow.kernels.base.ActiveDims | None = None,
        name: str | None = None,
    ) -> None:
        """
        :param variance: σ², in units of f².
        :param weight_variances: w [] or [D], in units of 1/x².
        :param bias_variance: b.
        """
        super().__init__(active_dims=active_dims, name=name)
        self.variance = Parameter(variance, transform=positive())
        self.weight_variances = Parameter(weight_variances, transform=positive())
        self.bias_variance = Parameter(bias_variance, transform=positive())
        self._validate_ard_active_dims(self.weight_variances)

    def K(self, X: TensorType, X2: TensorType | None = None) -> tf.Tensor:
        """[..., N, N] of X [..., N, D], or [..., N, ..., N2] of X and X2."""
        weighted = self.weight_variances * X
        squares = 1.0 + 2.0 * self._square(X)
        if X2 is None:
            products = tf.matmul(weighted, X, transpose_b=True)
            others = squares[..., None, :]
            squares = squares[..., None]
        else:
            products = tf.tensordot(weighted, X2, [[-1], [-1]])
            others = 1.0 + 2.0 * self._square(X2)
            squares = tf.reshape(
                squares, tf.concat([tf.shape(squares), tf.ones_like(tf.shape(others))], 0)
            )
        return self._arcsine(2.0 * (products + self.bias_variance), squares, others)

    def K_diag(self, X: TensorType) -> tf.Tensor:
        square = self._square(X)
        return self._arcsine(2.0 * square, 1.0 + 2.0 * square, 1.0 + 2.0 * square)

    def _square(self, X: TensorType) -> tf.Tensor:
        """⟨x, x⟩, [..., N]."""
        return tf.reduce_sum(self.weight_variances * tf.square(X), -1) + self.bias_variance

    def _arcsine(self, twice: tf.Tensor, square: tf.Tensor, other: tf.Tensor) -> tf.Tensor:
        """The kernel; its argument is below 1, but by less than rounding where ⟨x, x⟩ is huge."""
        bound = 1.0 - np.finfo(twice.dtype.as_numpy_dtype).eps
        ratio = tf.clip_by_value(twice / tf.sqrt(square * other), -bound, bound)
        return self.variance * (2.0 / np.pi) * tf.asin(ratio)
