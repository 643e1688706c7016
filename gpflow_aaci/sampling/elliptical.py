"""
Elliptical slices and Hamiltonian Monte Carlo, for likelihoods with an augmentation or without.

Both move the whitened latents, v ~ N(0, I): see :mod:`~gpflow_aaci.sampling.whitened`.
"""

import abc
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import RegressionData
from gpflow.utilities import to_default_float

from ..validation import check_count, check_positive
from .conditionals import normal
from .whitened import AnyModel, pointwise_log_prob, whitened

State = Any  # v [C..., M, L], or [v, ε] with ε [C..., N, L] where there are inducing variables


class WhitenedKernel(tfp.mcmc.TransitionKernel):
    """What both share: a state of standard normal numbers, and a kernel of TFP's that moves it."""

    def __init__(self, model: AnyModel, data: RegressionData | None, **parameters: Any) -> None:
        self._parameters = {"model": model, "data": data, **parameters}
        self._whitened = whitened(model, data)
        self._likelihood = model.likelihood

    def initial_state(self, num_chains: int, seed: Any = None) -> State:
        """Draws from the prior."""
        seeds = tfp.random.split_seed(seed, n=2, salt="whitened_initial")
        shapes = self._whitened.shapes
        parts = [normal([num_chains, *s], own) for s, own in zip(shapes, seeds, strict=False)]
        return parts if len(parts) > 1 else parts[0]

    def f(self, state: State) -> tf.Tensor:
        """f at the data, [C..., N, L]."""
        return self._whitened.f(*_parts(state))

    def u(self, state: State) -> tf.Tensor:
        """Of inducing variables, [C..., M, L]."""
        return self._whitened.u(_parts(state)[0])

    def log_likelihood(self, *parts: tf.Tensor) -> tf.Tensor:
        """log p(y|f), [C...]."""
        X, Y = self._whitened.rows
        log_p = pointwise_log_prob(self._likelihood, X, self._whitened.f(*parts), Y)
        total = tf.reduce_sum(log_p, [-2, -1])
        # No level is below what is not a number: a slice would take it.
        return tf.where(tf.math.is_nan(total), tf.constant(-np.inf, total.dtype), total)

    @abc.abstractmethod
    def _inner(self, state: State) -> tfp.mcmc.TransitionKernel:
        """TFP's kernel for states of that shape."""

    def bootstrap_results(self, init_state: State) -> Any:
        return self._inner(init_state).bootstrap_results(init_state)

    def one_step(
        self, current_state: State, previous_kernel_results: Any, seed: Any = None
    ) -> tuple[State, Any]:
        kernel = self._inner(current_state)
        return kernel.one_step(current_state, previous_kernel_results, seed=seed)

    @property
    def parameters(self) -> dict[str, Any]:
        return self._parameters

    @property
    def is_calibrated(self) -> bool:
        return True


class EllipticalSliceKernel(WhitenedKernel):
    """
    Elliptical slice sampling (Murray, Adams and MacKay 2010): no tuning, no gradients.

    For ``AugmentedVGP``, ``AugmentedSVGP`` and GPflow's ``VGP``, ``GPMC`` and ``SVGP`` with any
    likelihood. The state is v, or [v, ε] with inducing variables; ``f(state)`` is f at the data.
    Hyperparameters are those of the model when the kernel is made::

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
        :param data: X [N, D], Y [N, P], all of them, for models with inducing variables.
        :raises ValueError: for another model, bad data, and kernels that mix the latent GPs.
        """
        super().__init__(model, data)

    def _inner(self, state: State) -> tfp.mcmc.TransitionKernel:
        def prior(seed: Any) -> list[tf.Tensor]:
            parts = _parts(state)
            seeds = tfp.random.split_seed(seed, n=len(parts), salt="elliptical_slice_prior")
            return [normal(tf.shape(x), own) for x, own in zip(parts, seeds, strict=True)]

        return tfp.experimental.mcmc.EllipticalSliceSampler(prior, self.log_likelihood)


class HamiltonianKernel(WhitenedKernel):
    """
    Hamiltonian Monte Carlo on the whitened latents, its step size tuned by dual averaging.

    Models, state and ``f(state)`` are those of :class:`EllipticalSliceKernel`; the likelihood must
    have a gradient in f::

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
    ) -> None:
        """
        :param data: as in :class:`EllipticalSliceKernel`.
        :param step_size: of every leapfrog, in standard deviations of the prior; the first one.
        :param num_adaptation_steps: in which it is tuned, all of them in the burn-in.
        :raises ValueError: as :class:`EllipticalSliceKernel`, and for numbers out of range.
        """
        check_positive("step_size", step_size)
        check_count("num_leapfrog_steps", num_leapfrog_steps, 1)
        check_count("num_adaptation_steps", num_adaptation_steps, 0)
        super().__init__(
            model,
            data,
            step_size=step_size,
            num_leapfrog_steps=num_leapfrog_steps,
            num_adaptation_steps=num_adaptation_steps,
        )
        self._hmc: tfp.mcmc.TransitionKernel = tfp.mcmc.HamiltonianMonteCarlo(
            self._log_posterior, to_default_float(step_size), num_leapfrog_steps
        )
        if num_adaptation_steps:
            self._hmc = tfp.mcmc.DualAveragingStepSizeAdaptation(
                self._hmc, num_adaptation_steps, target_accept_prob=to_default_float(0.75)
            )

    def _inner(self, state: State) -> tfp.mcmc.TransitionKernel:
        return self._hmc

    def _log_posterior(self, *parts: tf.Tensor) -> tf.Tensor:
        squares = tf.add_n([tf.reduce_sum(tf.square(part), [-2, -1]) for part in parts])
        return self.log_likelihood(*parts) - 0.5 * squares


def _parts(state: State) -> list[tf.Tensor]:
    return list(state) if isinstance(state, list | tuple) else [state]
