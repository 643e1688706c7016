"""
Updates of GPflow parameters in place. Each leaves a density times the parameters' priors invariant.

They move in the unconstrained space. A GPflow parameter holds one value, so they move one chain.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow import Parameter
from gpflow.config import default_float
from gpflow.optimizers import SamplingHelper

LogDensity = Callable[[], tf.Tensor]

_FIRST_INTERVAL, _MAX_DOUBLINGS = 1.0, 5
_FIRST_STEP, _LEAPFROGS, _ACCEPTANCE = 0.05, 10, 0.7


def slice_move(log_likelihood: LogDensity, parameters: Sequence[Parameter], seed: Any) -> None:
    """Slice sampling along as many random directions as there are numbers; it needs no tuning."""
    if not parameters:
        return
    log_density = with_priors(log_likelihood, parameters)
    helper = SamplingHelper(log_density, parameters)  # adds the log-Jacobians
    variables = helper.current_state
    sizes = [int(np.prod(variable.shape)) for variable in variables]

    def parts(x: tf.Tensor) -> list[tf.Tensor]:
        split = tf.split(x, sizes)
        return [tf.reshape(part, v.shape) for part, v in zip(split, variables, strict=True)]

    # A single vector, so that directions are uniform: TFP draws a direction for every part.
    state = tf.concat([tf.reshape(variable, [-1]) for variable in variables], 0)
    # If the level were not a number, the search for a slice below it would never end.
    log_p = tf.debugging.assert_all_finite(log_density(), "log-density at the current state")
    with tf.control_dependencies([log_p]):
        state = tf.identity(state)
    states = tfp.mcmc.sample_chain(
        1,
        state,
        kernel=tfp.mcmc.SliceSampler(
            lambda x: helper.target_log_prob_fn(*parts(x)), _FIRST_INTERVAL, _MAX_DOUBLINGS
        ),
        num_burnin_steps=sum(sizes) - 1,
        trace_fn=None,
        seed=seed,
    )
    for variable, value in zip(variables, parts(states[0]), strict=True):
        variable.assign(value)


class HamiltonianMove:
    """
    One step of HMC on all its parameters together, for large parameters such as Z.

    The first ``num_tuned`` moves after :meth:`restart` tune the step size, by the Robbins-Monro
    rule, towards an acceptance rate of 0.7. Afterwards the step size is fixed.
    """

    def __init__(self, parameters: Sequence[Parameter], num_tuned: int) -> None:
        self.parameters, self.num_tuned = list(parameters), num_tuned
        self._log_step = tf.Variable(np.log(_FIRST_STEP), dtype=default_float(), trainable=False)
        self._steps = tf.Variable(0.0, dtype=default_float(), trainable=False)

    def restart(self) -> None:
        self._log_step.assign(np.log(_FIRST_STEP))
        self._steps.assign(0.0)

    def __call__(self, log_likelihood: LogDensity, seed: Any) -> None:
        if not self.parameters:
            return
        variables = [parameter.unconstrained_variable for parameter in self.parameters]
        log_density = with_priors(log_likelihood, self.parameters)
        kernel = tfp.mcmc.HamiltonianMonteCarlo(
            with_gradient(log_density, self.parameters), tf.exp(self._log_step), _LEAPFROGS
        )
        state = [tf.identity(variable) for variable in variables]
        state, results = kernel.one_step(state, kernel.bootstrap_results(state), seed=seed)
        for variable, value in zip(variables, state, strict=True):
            variable.assign(value)
        accepted = tf.exp(tf.minimum(results.log_accept_ratio, 0.0))
        accepted = tf.where(tf.math.is_nan(accepted), tf.zeros_like(accepted), accepted)
        gain = tf.pow(1.0 + self._steps, -0.6)
        gain = tf.where(self._steps < self.num_tuned, gain, tf.zeros_like(gain))
        self._log_step.assign_add(gain * (accepted - _ACCEPTANCE))
        self._steps.assign_add(1.0)


def with_priors(log_likelihood: LogDensity, parameters: Sequence[Parameter]) -> LogDensity:
    return lambda: tf.add_n([log_likelihood(), *(p.log_prior_density() for p in parameters)])


def with_gradient(
    log_density: LogDensity, parameters: Sequence[Parameter]
) -> Callable[..., tf.Tensor]:
    """
    The log-density as a function of unconstrained values, log-Jacobians included.

    (The function of GPflow's ``SamplingHelper`` has a gradient only if the density depends on
    nothing but these parameters.)
    """
    moved = [parameter.unconstrained_variable for parameter in parameters]

    @tf.custom_gradient
    def target(*values: tf.Tensor) -> tuple[tf.Tensor, Callable[..., Any]]:
        for variable, value in zip(moved, values, strict=True):
            variable.assign(value)
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(moved)
            log_p = log_density()
            for p, x in zip(parameters, moved, strict=True):
                if p.transform is not None:
                    jacobian = p.transform.forward_log_det_jacobian(x, len(x.shape))
                    log_p += tf.reduce_sum(jacobian)
        slopes = tape.gradient(log_p, moved, unconnected_gradients="zero")

        def gradient(
            upstream: tf.Tensor, variables: Sequence[tf.Variable] = ()
        ) -> tuple[list[tf.Tensor], list[None]]:
            return [upstream * slope for slope in slopes], [None] * len(variables)

        return log_p, gradient

    return target
