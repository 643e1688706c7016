r"""
Gibbs sweeps that sample the hyperparameters too, for ``AugmentedVGP``.

Two blocks, each with what is in the way integrated out:

    likelihood's parameters | f  (ω integrated out: that is p(y|f)),  then ω | f;
    the other ones | ω           (f integrated out: given ω all is Gaussian),  then f | ω.

Hyperparameters move by slice sampling along random directions of the unconstrained space, which
needs no tuning. GPflow's parameters hold one value, so a sweep is of one chain.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow import Parameter
from gpflow.optimizers import SamplingHelper
from gpflow.utilities import parameter_dict

from ..models import AugmentedVGP
from .conditionals import (
    f_given_omega,
    log_evidence_given_omega,
    prior_at_data,
    pseudo_observations,
)

Sweep = Callable[[tf.Tensor, tf.Tensor, tf.Tensor], tuple[tf.Tensor, tf.Tensor]]

_FIRST_INTERVAL, _MAX_DOUBLINGS = 1.0, 5


def sampled_parameters(model: AugmentedVGP) -> dict[str, Parameter]:
    """
    The trainable parameters but for q's, by their names in the model.

    :raises ValueError: where one has no prior (its posterior may not be proper) or a value that
        its prior excludes, or there are none.
    """
    seen, found = {id(model.q_mu), id(model.q_sqrt)}, {}
    for name, parameter in parameter_dict(model).items():
        # One that is shared has several names, and is one; data may be variables.
        if isinstance(parameter, Parameter) and parameter.trainable and id(parameter) not in seen:
            seen.add(id(parameter))
            found[name.removeprefix(".")] = parameter
    without = [name for name, parameter in found.items() if parameter.prior is None]
    if without:
        raise ValueError(
            "hyperparameters can be sampled where every trainable one has a prior. Found none on: "
            f"{', '.join(without)}. Set its .prior, or gpflow.set_trainable(..., False)."
        )
    if not found:
        raise ValueError("hyperparameters to be sampled must be trainable. Found: none that is.")
    for name, parameter in found.items():
        log_prior = parameter.log_prior_density().numpy()
        if not np.isfinite(log_prior):  # slices would look for its level for ever
            raise ValueError(
                f"{name} must have a value that its prior allows. Found: {parameter.numpy()}, "
                f"of log-density {log_prior}."
            )
    return found


def make_sweep(model: AugmentedVGP) -> Sweep:
    """
    (f [1, N, L], Y [N, P], seed) -> (f, ω), which moves the model's parameters; compiled.

    :raises ValueError: as :func:`sampled_parameters`, and for parameters that the likelihood shares
        with the prior of f.
    """
    if model.in_turn:
        raise ValueError(
            "hyperparameters can be sampled where the latent GPs are independent given the "
            f"auxiliary variables. Found: {type(model.likelihood).__name__}, which couples them."
        )
    own = {id(parameter) for parameter in model.likelihood.parameters}
    parameters = sampled_parameters(model)
    priors = {id(p) for part in (model.kernel, model.mean_function) for p in part.parameters}
    both = [name for name, p in parameters.items() if id(p) in own & priors]
    if both:
        raise ValueError(
            "hyperparameters to be sampled must belong to the likelihood, or to the kernel and the "
            f"mean function, not to both. Found: {', '.join(both)}."
        )
    of_likelihood = [p for p in parameters.values() if id(p) in own]
    of_prior = [p for p in parameters.values() if id(p) not in own]
    X, _, _ = model.checked_batch()
    likelihood = model.likelihood

    def sweep(f: tf.Tensor, Y: tf.Tensor, seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        seeds = tfp.random.split_seed(seed, n=4, salt="hyperparameter_gibbs")

        def log_likelihood() -> tf.Tensor:
            return tf.reduce_sum(likelihood.log_prob(X, f[0], Y))

        _slice(log_likelihood, of_likelihood, seeds[0])
        omega = likelihood.full_conditional(X, f, Y).sample(seed=seeds[1])
        observed = pseudo_observations(likelihood, X, omega, Y)

        def log_evidence() -> tf.Tensor:
            K = model.prior_covariance()[0]
            return log_evidence_given_omega(model.mean_function(X), K, observed)[0]

        _slice(log_evidence, of_prior, seeds[2])
        mean, deviation = f_given_omega(prior_at_data(model), observed, seeds[3])
        return mean + deviation, omega

    return tf.function(sweep, autograph=False)


def _slice(
    log_likelihood: Callable[[], tf.Tensor], parameters: Sequence[Parameter], seed: Any
) -> None:
    """As many updates as there are numbers to move."""
    if not parameters:
        return

    def log_density() -> tf.Tensor:
        return log_likelihood() + tf.add_n([p.log_prior_density() for p in parameters])

    helper = SamplingHelper(log_density, parameters)  # adds the log-Jacobians
    variables = helper.current_state
    sizes = [int(np.prod(variable.shape)) for variable in variables]

    def parts(x: tf.Tensor) -> list[tf.Tensor]:
        split = tf.split(x, sizes)
        return [tf.reshape(part, v.shape) for part, v in zip(split, variables, strict=True)]

    # One vector, so that directions are uniform over all: TFP draws one for every part.
    state = tf.concat([tf.reshape(variable, [-1]) for variable in variables], 0)
    # Below a level that is not a number a slice would never end.
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
