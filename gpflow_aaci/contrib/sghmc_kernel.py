"""Stochastic-gradient Hamiltonian Monte Carlo, for targets that minibatches estimate."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf
import tensorflow_probability as tfp

from ..sampling.chains import as_parts, like_state
from ..sampling.conditionals import normal
from ..validation import check_count, check_positive

_FLOOR = 1e-16  # added to a squared gradient


class SGHMCResults(NamedTuple):
    """Each list holds one tensor per part of the state, with the shape of that part."""

    momenta: list[tf.Tensor]
    windows: list[tf.Tensor]  # τ, in steps
    gradients: list[tf.Tensor]  # their means over the window
    squares: list[tf.Tensor]  # V, the means of their squares
    step: tf.Tensor  # [], how many steps have been made


class SGHMCKernel(tfp.mcmc.TransitionKernel):
    r"""
    SGHMC (Chen, Fox and Guestrin 2014) with the scale adaptation of Springenberg et al. (2016).

    With g the gradient of −log p on a minibatch, and V a running mean of g²::

        momentum ← (1 − friction) momentum − ε² V^−½ g + noise of variance 2 ε² friction V^−½ − ε⁴
        x ← x + momentum

    No step is rejected, so the distribution of the draws differs from the target by an error that
    shrinks with ε. States may have any shape, for example the shape of a batch of chains::

        def target(x, seed):  # estimated from a random tenth of the data
            rows = tf.random.stateless_uniform([100], seed, 0, 1_000, tf.int32)
            log_p = tfp.distributions.Normal(x, 1.0).log_prob(tf.gather(data, rows))
            return 10.0 * tf.reduce_sum(log_p)

        kernel = SGHMCKernel(target, num_adaptation_steps=2_000)
    """

    def __init__(
        self,
        target_log_prob_fn: Callable[..., tf.Tensor],
        step_size: float = 0.01,
        friction: float = 0.05,
        num_adaptation_steps: int = 0,
    ) -> None:
        """
        :param target_log_prob_fn: ``(*state_parts, seed=)`` → an unbiased estimate of log p,
            [C...].
        :param step_size: ε.
        :param friction: in (0, 1): the share of the momentum that each step removes.
        :param num_adaptation_steps: the number of steps that estimate V. The burn-in must include
            them all.
        :raises ValueError: for numbers out of range.
        """
        if not 0.0 < friction < 1.0:
            raise ValueError(f"friction must be in (0, 1). Found: {friction}.")
        check_positive("step_size", step_size)
        check_count("num_adaptation_steps", num_adaptation_steps, 0)
        self._parameters = {
            "target_log_prob_fn": target_log_prob_fn,
            "step_size": step_size,
            "friction": friction,
            "num_adaptation_steps": num_adaptation_steps,
        }
        self._target, self._step_size, self._friction = target_log_prob_fn, step_size, friction
        self._num_adapted = num_adaptation_steps

    @property
    def parameters(self) -> dict[str, Any]:
        return self._parameters

    @property
    def is_calibrated(self) -> bool:
        return False

    def bootstrap_results(self, init_state: Any) -> SGHMCResults:
        parts = as_parts(init_state)
        zeros, ones = ([like(part) for part in parts] for like in (tf.zeros_like, tf.ones_like))
        return SGHMCResults(zeros, ones, zeros, ones, tf.zeros([], tf.int32))

    def one_step(
        self, current_state: Any, previous_kernel_results: SGHMCResults, seed: Any = None
    ) -> tuple[Any, SGHMCResults]:
        parts = [tf.convert_to_tensor(part) for part in as_parts(current_state)]
        seeds = tfp.random.split_seed(seed, n=1 + len(parts), salt="sghmc")
        slopes = self._slopes(parts, seeds[0])
        last = previous_kernel_results
        scales = [last.windows, last.gradients, last.squares]
        is_adapted = last.step < self._num_adapted
        of_parts = []  # (value, momentum and scales) of every part
        for x, p, slope, own_seed, *scale in zip(
            parts, last.momenta, slopes, seeds[1:], *scales, strict=True
        ):
            adapted = [
                tf.where(is_adapted, new, old)
                for new, old in zip(_adapted(scale, slope), scale, strict=True)
            ]
            p = self._momentum(p, adapted[2], slope, own_seed)
            of_parts.append((x + p, p, *adapted))
        moved, momenta, windows, gradients, squares = map(list, zip(*of_parts, strict=True))
        results = SGHMCResults(momenta, windows, gradients, squares, last.step + 1)
        return like_state(current_state, moved), results

    def _slopes(self, parts: Sequence[tf.Tensor], seed: Any) -> list[tf.Tensor]:
        """The gradient of −log p."""
        with tf.GradientTape() as tape:
            tape.watch(parts)
            loss = -tf.reduce_sum(self._target(*parts, seed=seed))
        slopes: list[tf.Tensor] = tape.gradient(loss, parts, unconnected_gradients="zero")
        return slopes

    def _momentum(
        self, momentum: tf.Tensor, square: tf.Tensor, slope: tf.Tensor, seed: Any
    ) -> tf.Tensor:
        step, friction = (tf.cast(v, slope.dtype) for v in (self._step_size, self._friction))
        scale = tf.square(step) * tf.math.rsqrt(square + _FLOOR)  # ε² V^−½
        variance = tf.maximum(2.0 * friction * scale - step**4, tf.zeros_like(scale))
        noise = tf.sqrt(variance) * tf.cast(normal(tf.shape(slope), seed), slope.dtype)
        return (1.0 - friction) * momentum - scale * slope + noise


def _adapted(
    scale: Sequence[tf.Tensor], slope: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """The new τ, E g and V, given the latest g. τ is long if the gradient is mostly noise."""
    window, gradient, square = scale
    rate = 1.0 / (window + 1.0)
    longer = 1.0 + window * (1.0 - tf.square(gradient) / (square + _FLOOR))
    gradient = gradient + rate * (slope - gradient)
    return longer, gradient, square + rate * (tf.square(slope) - square)
