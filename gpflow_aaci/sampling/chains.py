"""
Chains, some draws at a time.

Shapes: [C] chains, [N] data, [M] inducing variables, [L] latent GPs, [P] columns of Y.
"""

import contextlib
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import AnyNDArray
from gpflow.likelihoods import Likelihood

from ..graphs import compiled
from ..likelihoods import AugmentedLikelihood
from .hyperparameters import HyperparameterSweep, Latents
from .whitened import pointwise_log_prob

Draws = dict[str, AnyNDArray]  # by name, [draw, chain, ...]
Named = Callable[[Any, Any], dict[str, tf.Tensor]]  # state and results of a kernel, by names

AUXILIARY = "auxiliary "  # begins the names of what Gibbs draws besides

_DRAWS_AT_ONCE = 100  # between two updates of the progress bar
_OF_Y = 1  # folded into the seed of f: draws of y leave those of f as they are


def all_at_once(
    kernel: tfp.mcmc.TransitionKernel,
    named: Named,
    likelihood: Likelihood,
    data: tuple[tf.Tensor, tf.Tensor],
    num_chains: int,
    total: int,
    seed: tf.Tensor,
) -> Generator[Draws, None, None]:
    """
    [draw, chain, ...] of all chains.

    :param kernel: with an ``initial_state(num_chains, seed)``.
    :param named: must name ``f`` [C..., N, L].
    """
    X, Y = data
    seeds = tfp.random.split_seed(seed, n=1 + -(-total // _DRAWS_AT_ONCE))
    state = kernel.initial_state(num_chains, seeds[0])
    results = kernel.bootstrap_results(state)

    def draw(
        state: Any, results: Any, number: tf.Tensor, seed: tf.Tensor
    ) -> tuple[Any, Any, dict[str, tf.Tensor]]:
        run = tfp.mcmc.sample_chain(
            number,
            state,
            kernel=kernel,
            previous_kernel_results=results,
            trace_fn=named,
            return_final_kernel_results=True,
            seed=seed,
        )
        traced = dict(run.trace)
        traced |= _of_y(likelihood, X, traced["f"], Y, seed)
        last = tf.nest.map_structure(lambda s: s[-1], run.all_states)
        return last, run.final_kernel_results, traced

    compiled_draw = compiled(draw, reduce_retracing=True)
    for block, block_seed in enumerate(seeds[1:]):
        number = min(_DRAWS_AT_ONCE, total - block * _DRAWS_AT_ONCE)
        state, results, traced = compiled_draw(state, results, tf.constant(number), block_seed)
        yield {name: value.numpy() for name, value in traced.items()}


def one_after_the_other(
    sweep: HyperparameterSweep,
    likelihood: AugmentedLikelihood,
    data: tuple[tf.Tensor, tf.Tensor],
    num_chains: int,
    total: int,
    seeds: Sequence[tf.Tensor],
) -> list[Generator[Draws, None, None]]:
    """
    [draw, 1, ...] of every chain with hyperparameters; compiled once for all chains.

    The first begins at the model's own, the others at draws from their priors. A chain puts the
    model's back when it is closed.
    """
    X, Y = data

    def described(drawn: tuple[Latents, Any], seed: tf.Tensor) -> dict[str, tf.Tensor]:
        latents, omega = drawn
        of_y = _of_y(likelihood, X, latents["f"], Y, seed)
        values = {name: tf.identity(p)[None] for name, p in sweep.parameters.items()}
        return {**latents, **of_auxiliary(omega), **of_y, **values}

    def several(first: Any, seeds: tf.Tensor) -> Mapping[str, tf.Tensor]:
        return tf.scan(
            lambda last, seed: described(sweep(last["f"], Y, seed), seed),
            seeds,
            initializer=described(first, seeds[0]),
        )

    draws = compiled(several, reduce_retracing=True)

    def chain(number: int, seed: tf.Tensor) -> Generator[Draws, None, None]:
        seeds = tfp.random.split_seed(seed, n=1 + total)
        try:
            latents, omega = sweep.restart(seeds[0], dispersed=number > 0)
            for start in range(1, 1 + total, _DRAWS_AT_ONCE):
                block = draws((latents, omega), tf.stack(seeds[start : start + _DRAWS_AT_ONCE]))
                latents = {name: block[name][-1] for name in latents}
                yield {name: value.numpy() for name, value in block.items()}
        except tf.errors.InvalidArgumentError as error:
            raise FloatingPointError(
                f"A draw of the hyperparameters is beyond floating point: {error.message}"
            ) from error
        finally:
            sweep.put_back()

    return [chain(number, seeds[number]) for number in range(num_chains)]


def of_auxiliary(auxiliary: Any) -> dict[str, tf.Tensor]:
    """One ω, or several variables by their names."""
    several = auxiliary if isinstance(auxiliary, Mapping) else {"omega": auxiliary}
    return {AUXILIARY + name: value for name, value in several.items()}


def _of_y(
    likelihood: Likelihood, X: tf.Tensor, f: tf.Tensor, Y: tf.Tensor, seed: tf.Tensor
) -> dict[str, tf.Tensor]:
    """log p(y|f) and, where the likelihood draws, y ~ p(y|f), [..., N, P]."""
    of_y = {"log_likelihood": pointwise_log_prob(likelihood, X, f, Y)}
    if not isinstance(likelihood, AugmentedLikelihood):
        return of_y
    with contextlib.suppress(NotImplementedError):
        seed = tf.random.experimental.stateless_fold_in(seed, _OF_Y)
        of_y["y"] = likelihood.draw_y_like(X, f, Y, seed)
    return of_y


def joined(parts: Sequence[Draws], axis: int, start: int = 0) -> Draws:
    return {name: np.concatenate([p[name] for p in parts], axis)[start:] for name in parts[0]}


def check_finite(draws: Draws) -> None:
    for name, values in draws.items():
        wrong = ~np.isfinite(values)
        if wrong.any():
            raise FloatingPointError(
                f"{name}: {wrong.sum()} of {wrong.size} values of a block of draws are not finite. "
                "Look at the hyperparameters: is the kernel matrix far from singular?"
            )
