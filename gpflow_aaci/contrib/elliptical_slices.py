"""Elliptical slice sampling, for likelihoods with an augmentation or without."""

from dataclasses import dataclass
from typing import Any

import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import RegressionData

from ..sampling.chains import BatchedSampler, as_parts
from ..sampling.conditionals import normal
from ..sampling.latents import AnyModel
from .objectives import ObjectiveGivenU, check_objective
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

    def __init__(
        self,
        model: AnyModel,
        data: RegressionData | None = None,
        objective: ObjectiveGivenU = "predictive",
    ) -> None:
        """
        :param data: X [N, D] and Y [N, P], all training data, for models with inducing variables.
        :param objective: as of :class:`EllipticalSlices`.
        :raises ValueError: for a model of another class, bad data, kernels that mix latent GPs, and
            any other objective.
        """
        super().__init__(model, data, objective)

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

    :param objective: for models with inducing variables. ``"predictive"``, log E p(y|f) given u,
        draws u from FITC's posterior; ``"variational"``, E log p(y|f), from the best q(u);
        ``"heteroscedastic"``, for Gaussian noise, E log p(y|f) under noise of the variance
        σ² + Var[f|u], from FITC's again, as no hyperparameter moves.
    :raises ValueError: for any other objective.
    """

    objective: ObjectiveGivenU = "predictive"

    def __post_init__(self) -> None:
        check_objective(self.objective)

    def _kernel(
        self, model: AnyModel, data: RegressionData | None, num_burnin: int
    ) -> EllipticalSliceKernel:
        return EllipticalSliceKernel(model, data, self.objective)
