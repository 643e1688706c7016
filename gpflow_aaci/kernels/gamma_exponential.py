"""A stationary kernel whose smoothness at the origin is learnt."""

import gpflow
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow import Parameter
from gpflow.base import TensorType
from gpflow.kernels import IsotropicStationary


class GammaExponential(IsotropicStationary):
    r"""
    k(x, x') = σ² exp(−r^γ), r = \|(x − x')/ℓ\|, with 0 < γ ≤ 2 (Rasmussen and Williams 2006, 4.18).

    γ = 1 is GPflow's ``Matern12``, and γ = 2 its ``SquaredExponential`` with the lengthscale ℓ/√2.
    For γ < 2 f is not differentiable. γ is learnt::

        kernel = kernels.GammaExponential(lengthscales=[1.0, 1.0], gamma=1.5)
    """

    def __init__(
        self,
        variance: TensorType = 1.0,
        lengthscales: TensorType = 1.0,
        gamma: TensorType = 1.5,
        *,
        active_dims: gpflow.kernels.base.ActiveDims | None = None,
        name: str | None = None,
    ) -> None:
        """
        :param variance: σ², in units of f².
        :param lengthscales: ℓ [] or [D], in units of x.
        :param gamma: γ, above 0 and at most 2.
        :raises ValueError: for another γ.
        """
        super().__init__(variance, lengthscales, active_dims=active_dims, name=name)
        found = float(np.asarray(gamma))
        if not 0.0 < found <= 2.0:
            raise ValueError(
                f"gamma of GammaExponential must be above 0 and at most 2. Found: {found}."
            )
        # A start at the end of its range would be at infinity in the unconstrained variable.
        inside = min(found, 2.0 - 1e-6)
        range_of_gamma = tfp.bijectors.Sigmoid(*map(np.float64, (0.0, 2.0)))
        self.gamma = Parameter(inside, transform=range_of_gamma)

    def K_r2(self, r2: TensorType) -> tf.Tensor:
        # At r = 0 the power has no gradient in r or γ; the kernel's gradients are 0 there.
        tiny = tf.constant(np.finfo(r2.dtype.as_numpy_dtype).tiny ** 0.5, r2.dtype)
        is_apart = r2 > tiny
        power = tf.pow(tf.where(is_apart, r2, tf.ones_like(r2)), 0.5 * self.gamma)
        return self.variance * tf.exp(-tf.where(is_apart, power, tf.zeros_like(r2)))
