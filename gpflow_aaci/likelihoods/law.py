"""p(y|f) as predictions need it: densities, expectations, distribution functions and draws."""

import abc
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import MeanAndVariance, TensorType

from ..validation import as_default_float
from .declared import Declared
from .integrals.cumulative import cdf_from_density, log_survival_from_density
from .observations import Observations

UNDEFINED = "{} must define {}."


class Law(Observations, Declared, abc.ABC):
    """
    p(y|f) of y with further columns of Y and declared arguments; no augmentation.

    A quantity that has a value for every output is defined once, as ``pointwise_log_prob``,
    ``expected_log_prob``, ``predictive_log_density``, ``_cdf`` or ``_predict_cdf``. Each returns
    [..., N, Q]: Q = P columns if p(y|f) is a product over outputs, otherwise Q = 1. GPflow's
    ``log_prob``, ``variational_expectations`` and ``predict_log_density`` return the sums over
    these columns.
    """

    is_density: bool = True
    """Whether ∫ p(y|f) dy = 1; False for a pseudo-likelihood."""

    is_product: bool = False
    """Whether p(y|f) is a product over outputs, each of one f and one y and with its own value."""

    # ---- a value [..., N, Q] for each output ----

    @abc.abstractmethod
    def pointwise_log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        """log p(y|f) of every output."""

    def expected_log_prob(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        """
        E log p(y|f) of every output, under f ~ N(Fmu, Fvar).

        :raises NotImplementedError: if the likelihood does not define it.
        """
        raise NotImplementedError(UNDEFINED.format(type(self).__name__, "expected_log_prob"))

    def predictive_log_density(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        """
        log ∫ p(y|f) N(f | Fmu, Fvar) df of every output.

        :raises NotImplementedError: if the likelihood does not define it.
        """
        raise NotImplementedError(UNDEFINED.format(type(self).__name__, "predictive_log_density"))

    def _log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        return tf.reduce_sum(self.pointwise_log_prob(X, F, Y), -1)

    def _variational_expectations(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        return tf.reduce_sum(self.expected_log_prob(X, Fmu, Fvar, Y), -1)

    def _predict_log_density(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        return tf.reduce_sum(self.predictive_log_density(X, Fmu, Fvar, Y), -1)

    # ---- draws of y ----

    def draw_y(self, F: TensorType, seed: Any) -> tf.Tensor:
        """
        A draw from p(y|f) for every f.

        :param seed: as for ``tf.random.stateless_uniform``.
        :raises NotImplementedError: if the likelihood does not define it.
        """
        raise NotImplementedError(UNDEFINED.format(type(self).__name__, "draw_y(F, seed)"))

    def draw_y_like(self, X: TensorType, F: TensorType, Y: TensorType, seed: Any) -> tf.Tensor:
        """Draws as from :meth:`draw_y`, given X and further columns of Y (a binomial's trials)."""
        return self.draw_y(F, seed)

    # ---- P(y' ≤ y) and P(y' > y): a subclass may override these by closed forms ----

    def _cdf(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        """The result of :meth:`cdf` for arguments of one dtype, derived from log p(y|f) alone."""
        log_density = partial(self.pointwise_log_prob, X, F)
        Y = Y + tf.zeros_like(F[..., : Y.shape[-1]])
        return cdf_from_density(log_density, self.outcomes(), Y, self.is_density)

    def _log_survival(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        """
        The result of :meth:`log_survival` for arguments of one dtype.

        Default: from log p(y|f), with small relative errors of P(y' > y|f) where it is small, too.
        """
        log_density, cdf = (partial(of, X, F) for of in (self.pointwise_log_prob, self._cdf))
        Y = Y + tf.zeros_like(F[..., : Y.shape[-1]])
        return log_survival_from_density(log_density, cdf, self.outcomes(), Y, self.is_density)

    def _predict_cdf(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        """The result of :meth:`predict_cdf` for arguments of one dtype."""
        raise NotImplementedError(UNDEFINED.format(type(self).__name__, "_predict_cdf"))

    @check_shapes(
        "X: [broadcast batch..., N, D]",
        "F: [broadcast batch..., N, L]",
        "Y: [broadcast batch..., N, P]",
        "return: [batch..., N, Q]",
    )
    def cdf(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        """
        P(y' ≤ y|f), one value for every y.

        A pseudo-likelihood is normalised first, as for predictions. Classes are in the order of
        their numbers.
        """
        return _of_y(self, "_cdf", X, [F], Y)

    @check_shapes(
        "X: [broadcast batch..., N, D]",
        "F: [broadcast batch..., N, L]",
        "Y: [broadcast batch..., N, P]",
        "return: [batch..., N, Q]",
    )
    def log_survival(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        """log P(y' > y|f), one value for every y, accurate where the probability is small, too."""
        return _of_y(self, "_log_survival", X, [F], Y)

    @check_shapes(
        "X: [broadcast batch..., N, D]",
        "Fmu: [broadcast batch..., N, L]",
        "Fvar: [broadcast batch..., N, L]",
        "Y: [broadcast batch..., N, P]",
        "return: [batch..., N, Q]",
    )
    def predict_cdf(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        """E P(y' ≤ y|f) under f ~ N(Fmu, Fvar), one value for every y."""
        return _of_y(self, "_predict_cdf", X, [Fmu, Fvar], Y)

    # ---- GPflow's own methods: arrays and integer labels, as its likelihoods take them ----

    def log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        return super().log_prob(X, *of_one_float(F, Y))

    def predict_mean_and_var(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType
    ) -> MeanAndVariance:
        return super().predict_mean_and_var(X, *of_one_float(Fmu, Fvar))

    def predict_log_density(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        return super().predict_log_density(X, *of_one_float(Fmu, Fvar, Y))

    def variational_expectations(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        return super().variational_expectations(X, *of_one_float(Fmu, Fvar, Y))


def _of_y(law: Law, name: str, X: TensorType, marginals: list[TensorType], Y: TensorType) -> Any:
    """
    The hook ``name`` at arguments of one dtype, and 0 where y is below the smallest possible one.

    There both P(y' ≤ y) and log P(y' > y) are 0.
    """
    *marginals, X, Y = of_one_float(*marginals, X, Y)
    num_outputs = marginals[0].shape[-1]
    expected = law.num_observed(num_outputs)
    if Y.shape[-1] not in (None, expected):
        raise ValueError(
            f"Y must have {expected} columns, f having {num_outputs}. Found: {Y.shape[-1]}."
        )
    of = partial(getattr(law, name), X, *marginals)
    if np.isinf(law.lowest):
        return of(Y)
    y, lowest = law.response(Y), tf.cast(law.lowest, Y.dtype)
    value = of(law.with_response(tf.maximum(y, lowest), Y))
    return tf.where(y < lowest, tf.zeros_like(value), value)


class PredictedMoments(Law, abc.ABC):
    """The mean and variance of y given f are the predicted ones at Fvar = 0."""

    def _conditional_mean(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return self._predict_mean_and_var(X, F, tf.zeros_like(F))[0]

    def _conditional_variance(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return self._predict_mean_and_var(X, F, tf.zeros_like(F))[1]


def draw_as_observed(self: Law, F: TensorType, seed: Any) -> tf.Tensor:
    """The ``draw_y`` that is ``draw_y_like`` at the further columns of Y of a predicted y."""
    return self.draw_y_like(None, F, self.as_observed(F), seed)


def as_float(F: TensorType) -> tf.Tensor:
    """F as a tensor of ``default_float()``; a tensor of floats keeps its dtype (frozen models)."""
    is_float = tf.is_tensor(F) and F.dtype.is_floating
    return tf.convert_to_tensor(F) if is_float else as_default_float(F)


def of_one_float(F: TensorType, *others: TensorType) -> list[tf.Tensor]:
    """
    F by :func:`as_float`, and the others cast to the dtype of F.

    In a model frozen as float32 (``gpflow.utilities.freeze_as_float32``) f and all Parameters are
    float32 tensors, whatever ``default_float()`` is.
    """
    F = as_float(F)
    return [F, *(tf.cast(as_default_float(other), F.dtype) for other in others)]
