"""Likelihoods without auxiliary variables: those of GPflow's or a user's own as they are."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import TensorType
from gpflow.likelihoods import QuadratureLikelihood, ScalarLikelihood

from .base import UNDEFINED, AugmentedLikelihood
from .integrals.quadrature import lifted, mean_over_panels

_NO_GIBBS = (
    "{0} has no auxiliary variables that make it Gaussian in f, and so no Gibbs sampler. Exact "
    "draws of its posterior come from sample_posterior(model, sampler=contrib.HMC()) or "
    "contrib.EllipticalSlices()."
)


class Unaugmented(AugmentedLikelihood):
    r"""
    A likelihood whose bound is E log p(y|f) itself, for want of auxiliary variables.

    All that closed-form steps and fits need of a likelihood is a bound and its two slopes. Here the
    gap of the bound is 0, and a step is a natural gradient on GPflow's ELBO. Where log p(y|f) is
    not concave in f, a datum's site would have a negative precision. For such a datum a step takes
    the larger of the precision's absolute value and (∂E log p/∂Fmu)² in its place, so that the
    datum by itself asks for no change of f from which more than a nat is expected.
    """

    is_augmented = False

    # ---- the bound and its slopes ----

    def bound(self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType) -> tf.Tensor:
        """E log p(y|f)."""
        return self._variational_expectations(X, Fmu, Fvar, Y)

    def bound_slopes(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """∂bound/∂Fmu, and ∂bound/∂Fvar, or what the class says where that is positive."""
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

    # ---- what there is not ----

    def full_conditional(
        self, X: TensorType | None, F: TensorType, Y: TensorType
    ) -> tfp.distributions.Distribution:
        """:raises NotImplementedError: always; the message names other samplers."""
        raise NotImplementedError(_NO_GIBBS.format(type(self).__name__))

    def log_joint(
        self, X: TensorType | None, auxiliary: Any, F: TensorType, Y: TensorType
    ) -> tf.Tensor:
        """:raises NotImplementedError: always; the message names other samplers."""
        raise NotImplementedError(_NO_GIBBS.format(type(self).__name__))

    def site(
        self, X: TensorType | None, auxiliary: Any, Y: TensorType
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """:raises NotImplementedError: always; the message names other samplers."""
        raise NotImplementedError(_NO_GIBBS.format(type(self).__name__))


class StockLikelihood(Unaugmented):
    """
    A likelihood as GPflow or a user wrote it.

    The classes that are made of this one and of another are those of the objects that
    :func:`~gpflow_aaci.likelihoods.augmented` returns for objects of the other.
    """

    @property
    def _own(self) -> Any:
        """The methods of the class that GPflow or the user wrote."""
        return super(AugmentedLikelihood, self)

    def num_observed(self, num_outputs: int) -> int:
        """A likelihood of several latent GPs that does not state its ``observation_dim`` has 1."""
        if self.observation_dim is None and self.latent_dim is not None:
            return 1 + self.num_given
        return super().num_observed(num_outputs)

    def pointwise_log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        """[..., N, P] where p(y|f) is a product over outputs, else [..., N, 1]."""
        if isinstance(self, ScalarLikelihood):
            return by_rows(self._scalar_log_prob, X, F, Y)
        return by_rows(lambda *row: self._own._log_prob(*row)[..., None], X, F, Y)

    def expected_log_prob(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        """GPflow's sum over outputs, [..., N, 1]."""
        # Quadrature differentiates √Fvar, whose slope is all rounding error where Fvar < eps.
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
    """``function`` [N, Q] of parts [N, ·], as one of parts [..., N, ·] that are broadcast."""
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
