r"""
Chains that move v and, optionally, hyperparameters and inducing points together.

v [M, L] is standard normal a priori. In models with inducing variables u = chol v, and f is
integrated out under p(f_i|u) of every datum; in models that keep their data f = μ₀ + chol v.
"""

import warnings
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any

import tensorflow as tf
import tensorflow_probability as tfp
from gpflow import Parameter
from gpflow.config import default_float

from ..data import Rows
from ..runtime.graphs import compiled
from ..sampling.chains import Draws, of_y
from ..sampling.latents import (
    AnyModel,
    DeepModel,
    FullGP,
    f_given_v,
    pointwise_log_prob,
    prior_covariance,
    project_at,
    to_u,
)
from .deep_gp import whitened_variables
from .moves import LogDensity, with_gradient, with_priors
from .objectives import ObjectiveGivenU, check_likelihood, of_each_given_u
from .starts import Starts

_DRAWS_AT_ONCE = 10  # between two updates of the progress bar


class JointChains:
    """The log-density of a model's v and hyperparameters, and chains drawn one after the other."""

    def __init__(
        self,
        model: AnyModel,
        rows: Rows,
        sampled: Mapping[str, Parameter],
        objective: ObjectiveGivenU,
    ) -> None:
        """
        :param rows: all of X [N, D], Y [N, P].
        :param sampled: hyperparameters with priors, and the hidden layers' v, under their names.
        :param objective: the term of each datum if there are inducing variables; see
            ``of_each_given_u``.
        :raises ValueError: for an objective that the model's likelihood does not have.
        """
        check_likelihood(objective, model.likelihood)
        self.rows = rows
        self._model, self._sampled, self._objective = model, sampled, objective
        self._starts = Starts(model, sampled)
        M = prior_covariance(model).shape[-1]
        self.v = whitened_variables(M, model.num_latent_gps)
        self.moved = [self.v, *sampled.values()]

    def log_likelihood(self, X: tf.Tensor, Y: tf.Tensor, seed: Any = None) -> tf.Tensor:
        """
        The sum of the terms of all rows, [], at the current v and hyperparameters.

        :param seed: the seed for draws of hidden layers, if the model has any.
        """
        model = self._model
        if isinstance(model, FullGP):
            return tf.reduce_sum(pointwise_log_prob(model.likelihood, X, self._f(), Y))
        of_last = model.draw_hidden(X, seed) if isinstance(model, DeepModel) else X
        Fmu, Fvar = f_given_v(project_at(model, of_last), self.v)
        of_each = of_each_given_u(self._objective, model.likelihood, X, Fmu, Fvar, Y)
        return tf.reduce_sum(of_each)

    def log_density(self, log_likelihood: LogDensity) -> Callable[..., tf.Tensor]:
        """
        The log-density of unconstrained values: ``log_likelihood`` plus the log priors of all
        variables that move, including log-Jacobians.
        """
        return with_gradient(with_priors(log_likelihood, self.moved), self.moved)

    def chains(
        self,
        kernel: tfp.mcmc.TransitionKernel,
        seeds: Sequence[tf.Tensor],
        num_draws: int,
        steps_per_draw: int = 1,
    ) -> list[Generator[Draws, None, None]]:
        """
        Chains of ``num_draws`` draws; the first chain begins at the model's hyperparameters.

        :param kernel: its state is [v, *hyperparameters], unconstrained.
        """

        def one(last: Any, seed: tf.Tensor) -> Any:
            with warnings.catch_warnings():  # TFP warns if no step is rejected, which is known
                warnings.filterwarnings("ignore", ".*not calibrated")
                run = tfp.mcmc.sample_chain(
                    1,
                    last[0],
                    kernel=kernel,
                    previous_kernel_results=last[1],
                    num_burnin_steps=steps_per_draw - 1,
                    return_final_kernel_results=True,
                    trace_fn=None,
                    seed=seed,
                )
            state = [part[-1] for part in run.all_states]
            return state, run.final_kernel_results, self._named(state, seed)

        def several(last: Any, seeds: tf.Tensor) -> tuple[Any, Mapping[str, tf.Tensor]]:
            initializer = (*last, self._named(last[0], seeds[0]))
            *moved, named = tf.scan(one, seeds, initializer=initializer)
            return tf.nest.map_structure(lambda part: part[-1], tuple(moved)), named

        compiled_several = compiled(several, reduce_retracing=True)

        def chain(number: int, seed: tf.Tensor) -> Generator[Draws, None, None]:
            of_start, of_v, *others = tfp.random.split_seed(seed, n=2 + num_draws)

            def first() -> tuple[list[tf.Tensor], Any]:
                self._starts.restart(of_start, dispersed=number > 0)
                shape = self.v.shape
                self.v.assign(tf.random.stateless_normal(shape, of_v, dtype=default_float()))
                state = [tf.identity(p.unconstrained_variable) for p in self.moved]
                return state, kernel.bootstrap_results(state)

            return self._starts.chain(first, compiled_several, others, _DRAWS_AT_ONCE)

        return [chain(number, seed) for number, seed in enumerate(seeds)]

    def _f(self) -> tf.Tensor:
        """f = μ₀ + chol v at the data, [N, L], of a model that keeps them."""
        chol = tf.linalg.cholesky(prior_covariance(self._model))
        return self._model.mean_function(self.rows[0]) + to_u(chol, tf.convert_to_tensor(self.v))

    def _named(self, state: list[tf.Tensor], seed: tf.Tensor) -> dict[str, tf.Tensor]:
        """Map each name to its part of the state, [1, ...]."""
        for parameter, value in zip(self.moved, state, strict=True):
            parameter.unconstrained_variable.assign(value)
        values = {name: _within_prior(name, p)[None] for name, p in self._sampled.items()}
        if isinstance(self._model, FullGP):
            X, Y = self.rows
            f = self._f()[None]
            return {"f": f, **of_y(self._model.likelihood, X, f, Y, seed), **values}
        chol = tf.linalg.cholesky(prior_covariance(self._model))
        return {"u": to_u(chol, state[0])[None], **values}


def _within_prior(name: str, parameter: Parameter) -> tf.Tensor:
    """
    Return the parameter's value, after a check that its prior density is positive there.

    If it were zero, no gradient would lead back to where it is positive.
    """
    log_p = tf.debugging.assert_all_finite(
        parameter.log_prior_density(),
        f"{name} has left the support of its prior: give it a transform onto that support",
    )
    with tf.control_dependencies([log_p]):
        return tf.identity(parameter)
