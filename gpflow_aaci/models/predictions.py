"""Predictions are GPflow's, and also take frames and datasets."""

from collections.abc import Callable, Hashable
from typing import Any, TypeAlias

import tensorflow as tf
from gpflow.base import MeanAndVariance, RegressionData, TensorType

from ..data import check_batches, check_inputs, over_batches
from ..kernels import levels_of
from ..runtime.compiled import Maker, applied
from ..validation import as_matrix, as_pair, check_levels, check_marginal, checked_data, require
from .shared import Augmented, WithData

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
        flags = bool(full_cov), bool(full_output_cov)
        return self._predicted(lambda X: self._applied(_f, (X,), *flags), Xnew, full_cov)

    def predict_y(
        self, Xnew: Inputs, full_cov: bool = False, full_output_cov: bool = False
    ) -> MeanAndVariance:
        """
        Mean and variance of y, as in GPflow. ``Xnew`` is as in :meth:`predict_f`.

        :raises NotImplementedError: for ``full_cov`` or ``full_output_cov``.
        """
        check_marginal("predict_y", full_cov, full_output_cov)
        return self._predicted(lambda X: self._applied(_y, (X,)), Xnew, full_cov)

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
        levels = levels_of(self.kernel)
        X, Y = as_pair(data, levels)
        if tf.executing_eagerly():  # compiled objectives have checked their rows
            checked_data(
                X,
                Y,
                num_observed=self.num_observed,
                num_outputs=self.num_outputs,
                input_dim=self.input_dim,
                given=self.likelihood.given,
                labels=self.likelihood.labels,
                levels=levels,
                checks_of_Y=self.likelihood.checks,
                may_be_empty=True,
            )
        return self._applied(_log_density, (X, Y))

    def _predicted(
        self,
        predict: Callable[[TensorType], MeanAndVariance],
        Xnew: Inputs,
        full_cov: bool,
    ) -> MeanAndVariance:
        levels = levels_of(self.kernel)

        def of_rows(X: TensorType) -> MeanAndVariance:
            X = as_matrix(X, "Xnew", levels)
            if levels and tf.executing_eagerly():
                require(check_levels("Xnew", tf.convert_to_tensor(X), levels))
            return predict(X)

        if isinstance(Xnew, tf.data.Dataset):
            if full_cov:
                raise ValueError("full_cov must be False if Xnew is a dataset. Found: True.")
            check_inputs(Xnew)
            return over_batches("Xnew", of_rows, Xnew)
        return of_rows(Xnew)

    def _applied(self, maker: Maker, rows: tuple[TensorType, ...], *settings: Hashable) -> Any:
        """``maker`` of the model applied to rows, compiled where they are what its q expects."""
        if isinstance(self, Augmented) and tf.executing_eagerly():
            arrays = [tf.convert_to_tensor(part) for part in rows]
            are_matrices = all(
                part.dtype == self.q_mu.dtype and part.shape.rank == 2 for part in arrays
            )
            if are_matrices and self.input_dim in (None, arrays[0].shape[-1]):
                return applied(self, maker, arrays, *settings)
        return maker(self, (), *settings)(*rows)


def _f(model: Any, variables: Any, *flags: bool) -> Callable[..., MeanAndVariance]:
    predict = super(WithPredictions, model).predict_f
    return lambda X: predict(X, *flags)


def _y(model: Any, variables: Any) -> Callable[..., MeanAndVariance]:
    return super(WithPredictions, model).predict_y


def _log_density(model: Any, variables: Any) -> Callable[..., tf.Tensor]:
    predict = super(WithPredictions, model).predict_log_density
    return lambda X, Y: predict((X, Y))
