"""Elliptical slice sampling, for likelihoods with an augmentation or without."""

from dataclasses import dataclass
from typing import Any

import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import RegressionData

from ..likelihoods import augmented
from ..sampling.chains import BatchedSampler, as_parts
from ..sampling.conditionals import f_mean, normal
from ..sampling.latents import AnyModel
from .objectives import ObjectiveGivenU, check_likelihood, check_objective, of_each_given_u
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
        check_objective(objective)
        check_likelihood(objective, model.likelihood)
        super().__init__(model, data, objective=objective)
        self._of_u = objective if self._is_sparse and objective != "predictive" else None

    def of_each(self, *parts: tf.Tensor) -> tf.Tensor:
        """log p(y|f) or, of an objective that is a function of u, its terms: [C..., N]."""
        if self._of_u is None:
            return super().of_each(*parts)
        (X, Y), mean = self.rows, f_mean(self._prior, parts[0])
        variance = tf.transpose(self._prior.unexplained) + tf.zeros_like(mean)
        of_chains = tf.zeros_like(mean[..., :1])
        X, Y = X + of_chains, Y + of_chains
        return of_each_given_u(self._of_u, augmented(self.likelihood), X, mean, variance, Y)

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
