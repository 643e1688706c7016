"""Elliptical slice sampling, for likelihoods with an augmentation or without."""

from dataclasses import dataclass
from typing import Any

import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import RegressionData

from ..sampling.chains import BatchedSampler, as_parts
from ..sampling.conditionals import normal
from ..sampling.latents import AnyModel
from .whitened import State, WhitenedKernel


class EllipticalSliceKernel(WhitenedKernel):
    """
    Elliptical slice sampling (Murray, Adams and MacKay 2010): no tuning, no gradients.

    It accepts ``AugmentedVGP``, ``AugmentedSVGP`` and GPflow's ``VGP``, ``GPMC`` and ``SVGP``, with
    any likelihood. The state is v, or [v, ε] with inducing variables; ``f(state)`` is f at the
    data. Hyperparameters stay at the values that the model has when the kernel is made::

        model = gpflow.models.VGP((X, Y), gpflow.kernels.RBF(), gpflow.likelihoods.Poisson())
        kernel = EllipticalSliceKernel(model)
        f = tfp.mcmc.sample_chain(
            1_000,
            kernel.initial_state(num_chains=4),
            kernel=kernel,
            trace_fn=lambda state, _: kernel.f(state),
            seed=[0, 1],
        ).trace
    """

    def __init__(self, model: AnyModel, data: RegressionData | None = None) -> None:
        """
        :param data: X [N, D] and Y [N, P], all training data, for models with inducing variables.
        :raises ValueError: for a model of another class, bad data, and kernels that mix latent GPs.
        """
        super().__init__(model, data)

    def _inner(self, state: State) -> tfp.mcmc.TransitionKernel:
        def prior(seed: Any) -> list[tf.Tensor]:
            parts = as_parts(state)
            seeds = tfp.random.split_seed(seed, n=len(parts), salt="elliptical_slice_prior")
            return [normal(tf.shape(x), own) for x, own in zip(parts, seeds, strict=True)]

        return tfp.experimental.mcmc.EllipticalSliceSampler(prior, self.log_likelihood)


@dataclass(frozen=True)
class EllipticalSlices(BatchedSampler):
    """
    Elliptical slice sampling of f or u for :func:`~gpflow_aaci.sample_posterior`, without tuning.

    It accepts the same models and likelihoods as :class:`EllipticalSliceKernel`. All chains are
    drawn in one batch, and hyperparameters stay at the model's values.
    """

    def _kernel(
        self, model: AnyModel, data: RegressionData | None, num_burnin: int
    ) -> EllipticalSliceKernel:
        return EllipticalSliceKernel(model, data)
