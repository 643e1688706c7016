"""The base class of likelihoods for labels 0 … K − 1."""

import abc
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import MeanAndVariance, TensorType

from ...validation import check_count
from ..base import AugmentedLikelihood
from ..declared import REQUIRED, Argument
from ..observations import Kind, labels_from_0


def _take_number(likelihood: Any, name: str, value: Any) -> None:
    check_count(f"{type(likelihood).__name__}: {name}", value, 2)
    setattr(likelihood, name, int(value))
    likelihood.latent_dim = int(value) - likelihood.fewer
    likelihood.row_cost = likelihood.cost_of_class * int(value)


class LabelLikelihood(AugmentedLikelihood, abc.ABC):
    """
    p(y = k|f) of labels 0 … K − 1 in Y [N, 1], a function of all latent GPs of a row.

    A subclass defines the log-probabilities of the classes, given f and with f integrated out.
    """

    fewer: int = 0
    """The number of classes minus the number of latent GPs."""

    cost_of_class: float = 0.0
    """``row_cost`` for each class; 1 for an integral over all latent GPs."""

    num_classes: Any = Argument(REQUIRED, "K, a whole number of at least 2.", _take_number)

    @property
    def kind_of_y(self) -> Kind:  # type: ignore[override]
        return labels_from_0(self.num_classes, "num_classes - 1")

    @abc.abstractmethod
    def log_shares(self, F: TensorType) -> tf.Tensor:
        """log p(y = k|f) of every class, [..., N, K]."""

    @abc.abstractmethod
    def log_expected_shares(self, Fmu: TensorType, Fvar: TensorType) -> tf.Tensor:
        """log E p(y = k|f) of every class under f ~ N(Fmu, Fvar), [..., N, K]."""

    def num_observed(self, num_outputs: int) -> int:
        return 1

    def pointwise_log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        return self._of_label(self.log_shares(F), Y)

    def predictive_log_density(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        return self._of_label(self.log_expected_shares(Fmu, Fvar), Y)

    def _conditional_mean(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return tf.exp(self.log_shares(F))

    def _conditional_variance(self, X: TensorType, F: TensorType) -> tf.Tensor:
        p = self.conditional_mean(X, F)
        return p - tf.square(p)

    def _predict_mean_and_var(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType
    ) -> MeanAndVariance:
        """P(y = k) of every class, and p − p²."""
        p = tf.exp(self.log_expected_shares(Fmu, Fvar))
        return p, p - tf.square(p)

    def _cdf(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        return self._up_to(self._conditional_mean(X, F), Y)

    def _predict_cdf(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        return self._up_to(tf.exp(self.log_expected_shares(Fmu, Fvar)), Y)

    def _up_to(self, p: tf.Tensor, Y: TensorType) -> tf.Tensor:
        """P(y' ≤ y) in the order of the labels' numbers, [..., N, 1]; exactly 1 for the last."""
        is_below = tf.range(self.num_classes, dtype=p.dtype) <= Y
        total = tf.reduce_sum(tf.where(is_below, p, tf.zeros_like(p)), -1, keepdims=True)
        return tf.where(self.num_classes - 1.0 <= Y, tf.ones_like(total), total)

    def draw_y(self, F: TensorType, seed: Any) -> tf.Tensor:
        log_p = self.log_shares(F)
        uniform = tf.random.stateless_uniform(tf.shape(log_p), seed, dtype=log_p.dtype)
        gumbel = -tf.math.log(-tf.math.log(uniform + np.finfo(log_p.dtype.as_numpy_dtype).tiny))
        return tf.cast(tf.argmax(log_p + gumbel, -1), log_p.dtype)[..., None]

    def _of_label(self, of_classes: tf.Tensor, Y: TensorType) -> tf.Tensor:
        """The value [..., N, 1] of the class y, from the values [..., N, K] of all classes."""
        own = tf.where(self._one_hot(Y) > 0.0, of_classes, tf.zeros_like(of_classes))
        return tf.reduce_sum(own, -1, keepdims=True)

    def _one_hot(self, Y: TensorType) -> tf.Tensor:
        Y = tf.convert_to_tensor(Y)
        return tf.one_hot(tf.cast(Y[..., 0], tf.int32), self.num_classes, dtype=Y.dtype)
