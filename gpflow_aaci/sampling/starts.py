"""Where chains of hyperparameters begin, and what the model gets back when they end."""

from collections.abc import Mapping

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow import Parameter
from gpflow.base import AnyNDArray, PriorOn

from .whitened import AnyModel, prior_covariance

_TRIES = 20  # at a start from the priors that is within floating point


class Starts:
    """Of some parameters of a model, by names: made while they have the model's own values."""

    def __init__(self, model: AnyModel, parameters: Mapping[str, Parameter]) -> None:
        self._model, self._parameters = model, list(parameters.values())
        self._before = [p.unconstrained_variable.numpy() for p in self._parameters]

    def put_back(self) -> None:
        for parameter, value in zip(self._parameters, self._before, strict=True):
            parameter.unconstrained_variable.assign(value)

    def restart(self, seed: tf.Tensor, dispersed: bool) -> None:
        """
        At the model's own values or, if ``dispersed``, at a draw from the priors.

        Those of which only the density is known, and all of them where no draw of a few is within
        floating point, begin at the model's own.
        """
        self.put_back()
        for seed_of_try in tfp.random.split_seed(seed, n=_TRIES) if dispersed else []:
            if self._drawn_from_priors(seed_of_try):
                return
            self.put_back()

    def _drawn_from_priors(self, seed: tf.Tensor) -> bool:
        """Whether they are within floating point."""
        seeds = tfp.random.split_seed(seed, n=len(self._parameters))
        for parameter, own_seed in zip(self._parameters, seeds, strict=True):
            try:
                value = drawn_from_prior(parameter, own_seed)
            except NotImplementedError:
                continue
            parameter.unconstrained_variable.assign(value)
            if not np.isfinite(value).all() or not np.isfinite(parameter.log_prior_density()):
                return False
        try:
            chol = tf.linalg.cholesky(prior_covariance(self._model))
        except tf.errors.InvalidArgumentError:
            return False
        return bool(np.isfinite(chol).all())


def drawn_from_prior(parameter: Parameter, seed: tf.Tensor) -> AnyNDArray:
    """An unconstrained value."""
    prior = parameter.prior
    batch_rank = len(parameter.shape) - len(prior.event_shape)
    full = tfp.distributions.BatchBroadcast(prior, to_shape=parameter.shape[:batch_rank])
    value = tf.cast(full.sample(seed=seed), parameter.dtype)
    if parameter.prior_on is PriorOn.CONSTRAINED and parameter.transform is not None:
        value = parameter.transform.inverse(value)
    return tf.ensure_shape(value, parameter.shape).numpy()
