"""Likelihoods without auxiliary variables: GPflow's or a user's, unchanged."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import TensorType
from gpflow.likelihoods import QuadratureLikelihood, ScalarLikelihood

from .base import AugmentedLikelihood
from .declared import Declared
from .integrals.quadrature import lifted, mean_over_panels
from .law import UNDEFINED


class Unaugmented(AugmentedLikelihood):
    r"""
    A likelihood without auxiliary variables, whose bound is E log p(y|f) itself.

    Closed-form steps and fits need only a bound and its two slopes. Here the augmentation gap is 0,
    and a step is a natural gradient on GPflow's ELBO. If log p(y|f) is not concave in f, the site
    of a datum may have a negative precision. A step replaces this precision by the larger of its
    absolute value and (∂E log p/∂Fmu)², so that no single datum causes a change of f from which it
    expects to gain more than one nat.
    """

    is_augmented = False
    _no_gibbs = (
        "{0} has no auxiliary variables that make it Gaussian in f, and so no Gibbs sampler. Exact "
        "draws of its posterior come from sample_posterior(model, sampler=contrib.HMC()) or "
        "contrib.EllipticalSlices()."
    )

    # ---- the bound and its slopes ----

    def bound(self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType) -> tf.Tensor:
        return self._variational_expectations(X, Fmu, Fvar, Y)

    def bound_slopes(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """∂bound/∂Fmu and ∂bound/∂Fvar; a positive ∂bound/∂Fvar is replaced as the class says."""
        in_mean, in_variance = super().bound_slopes(X, Fmu, Fvar, Y)
        safe = -0.5 * tf.maximum(2.0 * tf.abs(in_variance), tf.square(in_mean))
        is_concave = tf.reduce_all(in_variance <= 0.0, -1, keepdims=True)
        return in_mean, tf.where(is_concave, in_variance, safe)

    def coupling(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        """By automatic differentiation, [N, L, L]."""
        with tf.GradientTape(persistent=True) as of_slopes:
            of_slopes.watch(Fmu)
            with tf.GradientTape() as of_value:
                of_value.watch(Fmu)
                value = self._variational_expectations(X, Fmu, Fvar, Y)
            slopes = tf.unstack(of_value.gradient(value, Fmu), axis=-1)
        rows = [of_slopes.gradient(slope, Fmu, unconnected_gradients="zero") for slope in slopes]
        return tf.linalg.set_diag(tf.stack(rows, -2), tf.zeros_like(Fmu))

    def pointwise_bound(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        return self.expected_log_prob(X, Fmu, Fvar, Y)


class StockLikelihood(Unaugmented):
    """
    A likelihood of GPflow or of a user, without changes.

    For an object of such a class, :func:`~gpflow_aaci.likelihoods.augmented` returns an object
    whose class derives from both this class and the object's class.
    """

    @property
    def _own(self) -> Any:
        """The methods of the class that GPflow or the user wrote."""
        return super(Declared, self)

    def num_observed(self, num_outputs: int) -> int:
        """Default for several latent GPs, if there is no ``observation_dim``: 1."""
        if self.observation_dim is None and self.latent_dim is not None:
            return 1 + self.num_given
        return super().num_observed(num_outputs)

    def pointwise_log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        """[..., N, P] if p(y|f) is a product over outputs, otherwise [..., N, 1]."""
        if isinstance(self, ScalarLikelihood):
            return by_rows(self._scalar_log_prob, X, F, Y)
        return by_rows(lambda *row: self._own._log_prob(*row)[..., None], X, F, Y)

    def expected_log_prob(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        """GPflow's sum over outputs, [..., N, 1]."""
        # Quadrature differentiates √Fvar, whose slope is only rounding error if Fvar < eps.
        Fvar = lifted(Fvar, float(np.finfo(Fvar.dtype.as_numpy_dtype).eps))
        return self._own._variational_expectations(X, Fmu, Fvar, Y)[..., None]

    def predictive_log_density(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        """GPflow's sum over outputs, [..., N, 1]."""
        return self._own._predict_log_density(X, Fmu, Fvar, Y)[..., None]

    def _predict_cdf(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        if isinstance(self, ScalarLikelihood):
            of_each = tf.zeros_like(Fmu + Fvar + Y[..., :1])
            Y = Y + of_each[..., :1]
            Fmu, Fvar = Fmu + of_each, Fvar + of_each
            return mean_over_panels(lambda F: self._cdf(X, F, Y), Fmu, Fvar, [tf.zeros_like(Fmu)])
        if isinstance(self, QuadratureLikelihood):
            return self.quadrature(lambda F, Y: self._cdf(X, F, Y), Fmu, Fvar, Y=Y)
        raise NotImplementedError(UNDEFINED.format(type(self).__name__, "_predict_cdf"))


def by_rows(function: Callable[..., tf.Tensor], *parts: TensorType) -> tf.Tensor:
    """Apply ``function``, which maps parts [N, ·] to [N, Q], to broadcast parts [..., N, ·]."""
    if all(len(part.shape) == 2 for part in parts):
        return function(*parts)
    batch = functools.reduce(tf.broadcast_dynamic_shape, (tf.shape(p)[:-1] for p in parts))
    flat = [
        tf.reshape(
            tf.broadcast_to(part, tf.concat([batch, tf.shape(part)[-1:]], 0)),
            [-1, part.shape[-1]],
        )
        for part in parts
    ]
    found = function(*flat)
    return tf.reshape(found, tf.concat([batch, tf.shape(found)[-1:]], 0))
