"""Likelihoods that are a product over columns, with one f and one y in each factor."""

import abc
from collections.abc import Sequence

import numpy as np
import tensorflow as tf
from gpflow.base import TensorType
from gpflow.likelihoods import ScalarLikelihood
from gpflow.likelihoods.base import DEFAULT_NUM_GAUSS_HERMITE_POINTS
from gpflow.quadrature import NDiagGHQuadrature

from ..distributions.parameters import check_parameter, parameters_of_one_dtype
from ..validation import require
from .base import AugmentedLikelihood
from .integrals.quadrature import expectation, lifted, log_expectation, mean_over_panels
from .law import UNDEFINED


class OutputwiseLikelihood(AugmentedLikelihood, ScalarLikelihood, abc.ABC):
    """
    p(y|f) is a product over columns with one f and one y each: GPflow's ``ScalarLikelihood``.

    A subclass must define only ``pointwise_bound`` for fits. Moments and draws of predicted y need
    ``_conditional_mean``, ``_conditional_variance`` and ``draw_y``. Expectations are taken by
    quadrature over f, with nodes that are dense about ``peaks`` (about 0 for E log p), unless a
    subclass overrides them.
    """

    is_product = True

    @abc.abstractmethod
    def pointwise_bound(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor: ...

    def bound(self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType) -> tf.Tensor:
        return tf.reduce_sum(self.pointwise_bound(X, Fmu, Fvar, Y), -1)

    def given_column(self, Y: TensorType) -> tf.Tensor:
        """The column of Y after y, [..., N, 1], or ones [..., N, L] if Y has no further column."""
        return Y[..., 1:] if self.given else tf.ones_like(Y)

    def peaks(self, Y: TensorType) -> Sequence[tf.Tensor]:
        """The f [..., L] near which p(y|f) may have a kink or a narrow peak, for quadrature."""
        return ()

    def expected_log_prob(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        of_each = tf.zeros_like(Y[..., :1])
        return expectation(lambda F: self.pointwise_log_prob(X, F, Y), Fmu + of_each, Fvar)

    def predictive_log_density(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        return log_expectation(lambda F: self.pointwise_log_prob(X, F, Y), Fmu, Fvar, self.peaks(Y))

    def _predict_cdf(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        of_each = tf.zeros_like(Fmu + Fvar + Y[..., :1])
        Y = Y + of_each[..., :1]
        return mean_over_panels(
            lambda F: self._cdf(X, F, Y), Fmu + of_each, Fvar + of_each, self.peaks(Y)
        )

    # ---- GPflow's hooks ----

    def _scalar_log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        return self.pointwise_log_prob(X, F, Y)

    def _variational_expectations(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        """Σ ``expected_log_prob``, or the result of the ``quadrature`` given to the likelihood."""
        # Quadrature differentiates √Fvar, whose slope is only rounding error if Fvar < eps.
        Fvar = lifted(Fvar, float(np.finfo(Fvar.dtype.as_numpy_dtype).eps))
        # By default GPflow sets a rule of 20 Gauss-Hermite nodes.
        is_given = (
            type(self.quadrature) is not NDiagGHQuadrature
            or self.quadrature.n_gh != DEFAULT_NUM_GAUSS_HERMITE_POINTS
        )
        if is_given:
            return ScalarLikelihood._variational_expectations(self, X, Fmu, Fvar, Y)
        return super()._variational_expectations(X, Fmu, Fvar, Y)

    def _conditional_mean(self, X: TensorType, F: TensorType) -> tf.Tensor:
        raise NotImplementedError(UNDEFINED.format(type(self).__name__, "_conditional_mean(X, F)"))

    def _conditional_variance(self, X: TensorType, F: TensorType) -> tf.Tensor:
        name = "_conditional_variance(X, F)"
        raise NotImplementedError(UNDEFINED.format(type(self).__name__, name))


def checked_c(c: TensorType, *, zero_too: bool) -> tf.Tensor:
    """
    The c [...] of a distribution of ω, as a tensor.

    :raises ValueError: unless c is finite and positive, or 0 if ``zero_too``.
    """
    c = parameters_of_one_dtype(c=c)["c"]
    accepted = tf.math.is_finite(c) & ((c >= 0.0) if zero_too else (c > 0.0))
    wording = f"finite and {'non-negative' if zero_too else 'positive'}"
    with tf.control_dependencies([require([check_parameter("tilted", "c", c, accepted, wording)])]):
        return tf.identity(c)
