"""
The interface of samplers for ``sample_posterior``, and chains that are drawn in blocks.

Shapes: [C] chains, [N] data, [M] inducing variables, [L] latent GPs, [P] columns of Y.
"""

import abc
import contextlib
from collections.abc import Generator, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import AnyNDArray, RegressionData
from gpflow.likelihoods import Likelihood

from ..likelihoods import AugmentedLikelihood
from ..runtime.graphs import compiled
from .latents import AnyModel, pointwise_log_prob, rows_of_model

Draws = dict[str, AnyNDArray]  # by name, [draw, chain, ...]

DRAWS_AT_ONCE = 100  # between two updates of the progress bar
_OF_Y = 1  # folded into the seed of f, so that drawing y does not change the draws of f


@runtime_checkable
class Sampler(Protocol):
    """
    A sampling method with its options, for :func:`~gpflow_aaci.sample_posterior`.

    Any object that has the method :meth:`chains` is a sampler.
    """

    def chains(
        self,
        model: AnyModel,
        data: RegressionData | None,
        seeds: Sequence[tf.Tensor],
        num_burnin: int,
        num_samples: int,
    ) -> Sequence[Generator[Draws, None, None]]:
        """
        Return chains as generators: nothing is drawn before the first block is requested.

        A block maps the name of every quantity to some draws of it, [draw, chain, ...]. The first
        ``num_burnin`` draws are the burn-in. The names are ``f`` [..., N, L], ``u`` [..., M, L],
        ``log_likelihood`` and ``y`` [..., N, P], and each hyperparameter's name in the model.

        :param data: X [N, D], Y [N, P] for models with inducing variables; None for the others.
        :param seeds: one for each chain.
        :return: one generator for all chains together, or one for each chain. Closing a generator
            restores the model's own parameters.
        :raises ValueError: if the sampler does not accept the model or the data.
        """


class LatentKernel(tfp.mcmc.TransitionKernel):
    """
    A TFP kernel that moves a model's latents and leaves their posterior invariant.

    The kernel keeps the hyperparameters that the model has when the kernel is made.
    """

    def __init__(self, **parameters: Any) -> None:
        """
        :param parameters: the subclass's arguments, with ``model`` and, for models with inducing
            variables, ``data`` among them.
        :raises ValueError: as :func:`~gpflow_aaci.sampling.latents.rows_of_model`.
        """
        self._parameters = parameters
        self.likelihood: Likelihood = parameters["model"].likelihood
        self.rows = rows_of_model(parameters["model"], parameters.get("data"))  # [N, D], [N, P]

    @abc.abstractmethod
    def initial_state(self, num_chains: int, seed: Any = None) -> Any:
        """Draws from the prior."""

    @abc.abstractmethod
    def latents(self, state: Any) -> dict[str, tf.Tensor]:
        """
        ``f`` [C..., N, L]; ``u`` [C..., M, L], where there are inducing variables, or [C..., N, L]
        of a full GP whose latent GPs a kernel mixes.
        """

    @property
    def parameters(self) -> dict[str, Any]:
        return self._parameters

    @property
    def is_calibrated(self) -> bool:
        return True


def as_parts(state: Any) -> list[tf.Tensor]:
    """The parts of a state, which may be a single tensor."""
    return list(state) if isinstance(state, list | tuple) else [state]


def like_state(state: Any, parts: list[tf.Tensor]) -> Any:
    """``parts``, or the only one of them where ``state`` is a single tensor."""
    return parts if isinstance(state, list | tuple) else parts[0]


class BatchedSampler(abc.ABC):
    """A sampler that draws all its chains in one batch, with a TFP kernel."""

    @abc.abstractmethod
    def _kernel(
        self, model: AnyModel, data: RegressionData | None, num_burnin: int
    ) -> LatentKernel:
        """
        The kernel that draws the chains.

        :raises ValueError: for a model or data that the sampler cannot take.
        """

    def chains(
        self,
        model: AnyModel,
        data: RegressionData | None,
        seeds: Sequence[tf.Tensor],
        num_burnin: int,
        num_samples: int,
    ) -> list[Generator[Draws, None, None]]:
        """As :meth:`~gpflow_aaci.sampling.Sampler.chains` says."""
        kernel = self._kernel(model, data, num_burnin)
        return [_batched_chains(kernel, seeds, num_burnin + num_samples)]


def _batched_chains(
    kernel: LatentKernel, seeds: Sequence[tf.Tensor], num_draws: int
) -> Generator[Draws, None, None]:
    """
    All chains in one batch, [draw, chain, ...].

    :param seeds: one for each chain. The first is the seed of the batch.
    """
    X, Y = kernel.rows
    block_seeds = tfp.random.split_seed(seeds[0], n=1 + -(-num_draws // DRAWS_AT_ONCE))
    state = kernel.initial_state(len(seeds), block_seeds[0])
    results = kernel.bootstrap_results(state)

    def draw(
        state: Any, results: Any, number: tf.Tensor, seed: tf.Tensor
    ) -> tuple[Any, Any, dict[str, tf.Tensor]]:
        run = tfp.mcmc.sample_chain(
            number,
            state,
            kernel=kernel,
            previous_kernel_results=results,
            trace_fn=lambda state, results: kernel.latents(state),
            return_final_kernel_results=True,
            seed=seed,
        )
        traced = dict(run.trace)
        traced |= of_y(kernel.likelihood, X, traced["f"], Y, seed)
        last = tf.nest.map_structure(lambda s: s[-1], run.all_states)
        return last, run.final_kernel_results, traced

    compiled_draw = compiled(draw, reduce_retracing=True)
    for block, block_seed in enumerate(block_seeds[1:]):
        number = min(DRAWS_AT_ONCE, num_draws - block * DRAWS_AT_ONCE)
        state, results, traced = compiled_draw(state, results, tf.constant(number), block_seed)
        yield {name: value.numpy() for name, value in traced.items()}


def of_y(
    likelihood: Likelihood, X: tf.Tensor, f: tf.Tensor, Y: tf.Tensor, seed: tf.Tensor
) -> dict[str, tf.Tensor]:
    """``log_likelihood``, log p(y|f), and ``y`` ~ p(y|f) where it can be drawn, [..., N, P]."""
    known = {"log_likelihood": pointwise_log_prob(likelihood, X, f, Y)}
    if not isinstance(likelihood, AugmentedLikelihood):
        return known
    with contextlib.suppress(NotImplementedError):
        seed = tf.random.experimental.stateless_fold_in(seed, _OF_Y)
        known["y"] = likelihood.draw_y_like(X, f, Y, seed)
    return known


def joined(parts: Sequence[Draws], axis: int, start: int = 0) -> Draws:
    """The blocks as one, without the first ``start`` entries along the axis."""
    return {name: np.concatenate([p[name] for p in parts], axis)[start:] for name in parts[0]}


def check_draws(draws: Draws) -> None:
    """
    :raises FloatingPointError: if a block of draws contains NaN or infinity.
    """
    for name, values in draws.items():
        wrong = ~np.isfinite(values)
        if wrong.any():
            raise FloatingPointError(
                f"{name}: {wrong.sum()} of {wrong.size} values of a block of draws are not finite. "
                "Look at the hyperparameters: is the kernel matrix far from singular?"
            )
