"""
Chains that move a model's own parameters: which parameters, where they start, and how to restore
them.

A GPflow parameter holds one value, so such chains are drawn one after the other.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import TypeVar

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow import Parameter
from gpflow.base import PriorOn

from ..sampling.chains import Draws
from ..sampling.latents import AnyModel, all_parameters, prior_covariance
from ..validation import unless_cholesky_fails

State = TypeVar("State")

_TRIES = 20  # draws from the priors, until one is within floating point


def sampled_parameters(model: AnyModel) -> dict[str, Parameter]:
    """
    Map names in the model to its trainable parameters, without q's parameters.

    :raises ValueError: if a parameter has no prior (its posterior may not be proper) or a value
        that its prior excludes, and if there are no such parameters.
    """
    seen: set[int] = set()
    found = {}
    for name, parameter in all_parameters(model).items():
        if parameter.trainable and id(parameter) not in seen:  # a shared one once
            seen.add(id(parameter))
            found[name] = parameter
    without = [name for name, parameter in found.items() if parameter.prior is None]
    if without:
        raise ValueError(
            "every trainable hyperparameter must have a prior to be sampled. Found none on: "
            f"{', '.join(without)}. Set its .prior, or gpflow.set_trainable(..., False)."
        )
    if not found:
        raise ValueError("model must have trainable hyperparameters to sample. Found: none.")
    for name, parameter in found.items():
        log_prior = parameter.log_prior_density().numpy()
        if not np.isfinite(log_prior):  # the search for a slice would never end
            raise ValueError(
                f"{name} must have a value that its prior allows. Found: {parameter.numpy()}, "
                f"of log-density {log_prior}."
            )
    return found


class Starts:
    """
    Start and end chains that move some parameters of a model.

    The object stores the parameters' values when it is made, and can restore them.
    """

    def __init__(self, model: AnyModel, parameters: Mapping[str, Parameter]) -> None:
        self._model, self._parameters = model, list(parameters.values())
        self._before = [p.unconstrained_variable.numpy() for p in self._parameters]

    def put_back(self) -> None:
        """Restore the model's own values."""
        for parameter, value in zip(self._parameters, self._before, strict=True):
            parameter.unconstrained_variable.assign(value)

    def restart(self, seed: tf.Tensor, dispersed: bool) -> None:
        """
        Assign the model's own values or, if ``dispersed``, a draw from the priors.

        A parameter keeps the model's own value if its prior cannot be drawn from. So do all
        parameters if several draws from their priors all exceed the range of floating point.
        """
        self.put_back()
        for seed_of_try in tfp.random.split_seed(seed, n=_TRIES) if dispersed else []:
            if self._drawn_from_priors(seed_of_try):
                return
            self.put_back()

    def chain(
        self,
        first: Callable[[], State],
        several: Callable[[State, tf.Tensor], tuple[State, Mapping[str, tf.Tensor]]],
        seeds: Sequence[tf.Tensor],
        draws_at_once: int,
    ) -> Generator[Draws, None, None]:
        """
        A chain in blocks of [draw, 1, ...], which restores the model's values when it ends.

        :param first: assigns the first parameters, and returns the first state.
        :param several: (state, seeds) → the last state, and a draw for each of the seeds.
        :param seeds: one for each draw.
        :raises FloatingPointError: if a draw fails.
        """
        try:
            state = first()
            for start in range(0, len(seeds), draws_at_once):
                state, block = several(state, tf.stack(seeds[start : start + draws_at_once]))
                yield {name: value.numpy() for name, value in block.items()}
        except tf.errors.InvalidArgumentError as error:
            raise FloatingPointError(f"A draw failed: {error.message}") from error
        finally:
            self.put_back()

    def _drawn_from_priors(self, seed: tf.Tensor) -> bool:
        """Assign a draw from the priors, and return whether floating point can represent it."""
        seeds = tfp.random.split_seed(seed, n=len(self._parameters))
        for parameter, own_seed in zip(self._parameters, seeds, strict=True):
            try:
                value = drawn_from_prior(parameter, own_seed)
            except NotImplementedError:
                continue
            parameter.unconstrained_variable.assign(value)
            if not np.isfinite(value).all() or not np.isfinite(parameter.log_prior_density()):
                return False
        chol = unless_cholesky_fails(
            lambda: tf.linalg.cholesky(prior_covariance(self._model)), np.nan
        )
        return bool(np.isfinite(chol).all())


def drawn_from_prior(parameter: Parameter, seed: tf.Tensor) -> tf.Tensor:
    """A draw from the parameter's prior, as an unconstrained value."""
    prior = parameter.prior
    batch_rank = len(parameter.shape) - len(prior.event_shape)
    full = tfp.distributions.BatchBroadcast(prior, to_shape=parameter.shape[:batch_rank])
    value = tf.cast(full.sample(seed=seed), parameter.dtype)
    if parameter.prior_on is PriorOn.CONSTRAINED and parameter.transform is not None:
        value = parameter.transform.inverse(value)
    return tf.ensure_shape(value, parameter.shape)
