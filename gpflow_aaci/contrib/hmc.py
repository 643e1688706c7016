"""Hamiltonian Monte Carlo of f or u, for likelihoods with an augmentation or without."""

from collections.abc import Callable
from dataclasses import dataclass

import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import RegressionData
from gpflow.utilities import to_default_float

from ..sampling.chains import BatchedSampler
from ..sampling.latents import AnyModel
from ..validation import check_count, check_positive
from .objectives import ObjectiveGivenU, check_objective
from .whitened import State, WhitenedKernel

TUNED_PART = 0.8  # the part of the burn-in that tunes the step size; the rest keeps it fixed
_ACCEPTANCE = 0.75  # the probability of acceptance that the step size is tuned for


class HamiltonianKernel(WhitenedKernel):
    """
    Hamiltonian Monte Carlo on the whitened latents; dual averaging tunes the step size.

    Models, state and ``f(state)`` are as for :class:`EllipticalSliceKernel`, but the likelihood
    must have a gradient in f::

        kernel = HamiltonianKernel(model, num_adaptation_steps=400)
        f = tfp.mcmc.sample_chain(
            1_000,
            kernel.initial_state(num_chains=4),
            kernel=kernel,
            num_burnin_steps=500,
            trace_fn=lambda state, _: kernel.f(state),
            seed=[0, 1],
        ).trace
    """

    def __init__(
        self,
        model: AnyModel,
        data: RegressionData | None = None,
        step_size: float = 0.1,
        num_leapfrog_steps: int = 10,
        num_adaptation_steps: int = 0,
        objective: ObjectiveGivenU = "predictive",
    ) -> None:
        """
        :param data: as in :class:`EllipticalSliceKernel`.
        :param step_size: the size of every leapfrog step, in standard deviations of the prior. If
            it is tuned, this is the step size before tuning.
        :param num_adaptation_steps: the number of steps that tune the step size. The burn-in must
            include them all.
        :param objective: as of :class:`EllipticalSlices`.
        :raises ValueError: as :class:`EllipticalSliceKernel`, and for numbers out of range.
        """
        check_steps(step_size, num_leapfrog_steps)
        check_count("num_adaptation_steps", num_adaptation_steps, 0)
        super().__init__(
            model,
            data,
            objective,
            step_size=step_size,
            num_leapfrog_steps=num_leapfrog_steps,
            num_adaptation_steps=num_adaptation_steps,
        )
        self._hmc = hamiltonian(
            self._log_posterior, step_size, num_leapfrog_steps, num_adaptation_steps
        )

    def _inner(self, state: State) -> tfp.mcmc.TransitionKernel:
        return self._hmc

    def _log_posterior(self, *parts: tf.Tensor) -> tf.Tensor:
        squares = tf.add_n([tf.reduce_sum(tf.square(part), [-2, -1]) for part in parts])
        return self.log_likelihood(*parts) - 0.5 * squares


@dataclass(frozen=True)
class HMC(BatchedSampler):
    """
    Hamiltonian Monte Carlo of f or u for :func:`~gpflow_aaci.sample_posterior`.

    It accepts the same models and likelihoods as :class:`HamiltonianKernel`. All chains are drawn
    in one batch, and hyperparameters stay at the model's values. The step size is tuned in the
    first four fifths of the burn-in, which should have a few hundred draws.

    :param step_size: the step size before tuning, in standard deviations of the prior.
    :param num_leapfrog_steps: the number of leapfrog steps for each draw.
    :param objective: as of :class:`EllipticalSlices`.
    :raises ValueError: for numbers out of range, and any other objective.
    """

    step_size: float = 0.1
    num_leapfrog_steps: int = 10
    objective: ObjectiveGivenU = "predictive"

    def __post_init__(self) -> None:
        check_steps(self.step_size, self.num_leapfrog_steps)
        check_objective(self.objective)

    def _kernel(
        self, model: AnyModel, data: RegressionData | None, num_burnin: int
    ) -> HamiltonianKernel:
        num_tuned = int(TUNED_PART * num_burnin)
        steps = self.step_size, self.num_leapfrog_steps, num_tuned
        return HamiltonianKernel(model, data, *steps, self.objective)


def check_steps(step_size: float, num_leapfrog_steps: int) -> None:
    check_positive("step_size", step_size)
    check_count("num_leapfrog_steps", num_leapfrog_steps, 1)


def hamiltonian(
    log_density: Callable[..., tf.Tensor],
    step_size: float,
    num_leapfrog_steps: int,
    num_adaptation_steps: int,
) -> tfp.mcmc.TransitionKernel:
    """TFP's kernel; dual averaging tunes the step size in the first ``num_adaptation_steps``."""
    kernel: tfp.mcmc.TransitionKernel = tfp.mcmc.HamiltonianMonteCarlo(
        log_density, to_default_float(step_size), num_leapfrog_steps
    )
    if num_adaptation_steps:
        kernel = tfp.mcmc.DualAveragingStepSizeAdaptation(
            kernel, num_adaptation_steps, target_accept_prob=to_default_float(_ACCEPTANCE)
        )
    return kernel
