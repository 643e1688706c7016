"""Predictions are GPflow's, and also take frames and datasets."""

from collections.abc import Callable
from typing import TypeAlias

import tensorflow as tf
from gpflow.base import MeanAndVariance, RegressionData, TensorType

from ..data import check_batches, check_inputs, over_batches
from ..validation import as_matrix, as_pair, check_marginal, checked_data
from .shared import WithData

Inputs: TypeAlias = TensorType | tf.data.Dataset


class WithPredictions(WithData):
    """``Xnew`` is [N, D], a frame of D columns, or a ``tf.data.Dataset`` of batches X [B, D]."""

    def predict_f(
        self, Xnew: Inputs, full_cov: bool = False, full_output_cov: bool = False
    ) -> MeanAndVariance:
        """
        Mean and variance of f, as in GPflow. A frame or a dataset of batches X [B, D] is accepted.

        :raises ValueError: for ``full_cov`` with a dataset, whose batches are predicted one by one.
        """
        return self._predicted(super().predict_f, Xnew, full_cov, full_output_cov)

    def predict_y(
        self, Xnew: Inputs, full_cov: bool = False, full_output_cov: bool = False
    ) -> MeanAndVariance:
        """
        Mean and variance of y, as in GPflow. ``Xnew`` is as in :meth:`predict_f`.

        :raises NotImplementedError: for ``full_cov`` or ``full_output_cov``.
        """
        check_marginal("predict_y", full_cov, full_output_cov)
        return self._predicted(super().predict_y, Xnew, full_cov, full_output_cov)

    def predict_log_density(
        self,
        data: RegressionData | tf.data.Dataset,
        full_cov: bool = False,
        full_output_cov: bool = False,
    ) -> tf.Tensor:
        """
        log p(y) of new data [N], as in GPflow. Frames and a dataset of batches are accepted.

        :raises NotImplementedError: for ``full_cov`` or ``full_output_cov``.
        :raises ValueError: as for training data, unless it is called inside ``tf.function``.
        """
        check_marginal("predict_log_density", full_cov, full_output_cov)
        if isinstance(data, tf.data.Dataset):
            check_batches(data)
            return over_batches(
                "data",
                lambda *batch: self.predict_log_density(batch, full_cov, full_output_cov),
                data,
            )
        X, Y = as_pair(data)
        if tf.executing_eagerly():  # compiled objectives have checked their rows
            checked_data(
                X,
                Y,
                num_observed=self.num_observed,
                num_outputs=self.num_outputs,
                input_dim=self.input_dim,
                given=self.likelihood.given,
                labels=self.likelihood.labels,
                checks_of_Y=self.likelihood.checks,
                may_be_empty=True,
            )
        return super().predict_log_density((X, Y), full_cov, full_output_cov)

    def _predicted(
        self,
        predict: Callable[..., MeanAndVariance],
        Xnew: Inputs,
        full_cov: bool,
        full_output_cov: bool,
    ) -> MeanAndVariance:
        if isinstance(Xnew, tf.data.Dataset):
            if full_cov:
                raise ValueError("full_cov must be False if Xnew is a dataset. Found: True.")
            check_inputs(Xnew)
            return over_batches("Xnew", lambda X: predict(X, full_cov, full_output_cov), Xnew)
        return predict(as_matrix(Xnew, "Xnew"), full_cov, full_output_cov)
