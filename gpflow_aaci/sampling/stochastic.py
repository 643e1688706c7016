r"""
SGHMC for models with inducing variables: v, and hyperparameters and Z where they are sampled.

The target is num_data/|B| Σ_B log E p(y_i|f_i) + log p(v) + log priors, the expectation under
p(f_i|u): *Sparse Gaussian Processes Revisited* (Rossi, Heinonen, Bonilla, Shen and Filippone,
AISTATS 2021). The f_i are independent given u, as in :class:`~gpflow_aaci.SparseGibbsKernel`.
With E log p(y_i|f_i) in its place it is that of the q(u, θ) of any shape whose ELBO is greatest
(Hensman, Matthews, Filippone and Ghahramani, NIPS 2015).
"""

import warnings
from collections.abc import Generator, Mapping
from typing import Any, Literal, get_args

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow import Parameter
from gpflow.config import default_float
from gpflow.utilities import to_default_float

from ..graphs import compiled
from ..validation import check_count, check_one_of
from .conditionals import f_mean, of_each_latent
from .moves import with_gradient, with_priors
from .sghmc import SGHMC, SGHMCResults
from .starts import Starts
from .whitened import Rows, SparseModel, prior_covariance, project_at, to_u

Draws = dict[str, Any]
Objective = Literal["predictive", "variational"]

_DRAWS_AT_ONCE = 10


class StochasticChains:
    """Of one model, one after the other: GPflow's parameters hold one value."""

    def __init__(
        self,
        model: SparseModel,
        rows: Rows,
        sampled: Mapping[str, Parameter],
        num_burnin: int,
        batch_size: int = 1_000,
        steps_per_draw: int = 50,
        objective: Objective = "predictive",
        step_size: float = 0.01,
    ) -> None:
        """
        :param sampled: hyperparameters with priors, by their names; may be none.
        :param num_burnin: draws, in the first four fifths of which V is estimated.
        """
        check_count("batch_size", batch_size, 1)
        check_count("steps_per_draw", steps_per_draw, 1)
        check_one_of("objective", objective, get_args(Objective))
        self._model, self._sampled = model, sampled
        M = prior_covariance(model).shape[-1]
        self._v = Parameter(
            np.zeros([M, model.num_latent_gps]),
            prior=tfp.distributions.Normal(to_default_float(0.0), to_default_float(1.0)),
        )
        self._moved = [self._v, *sampled.values()]
        self._starts = Starts(model, sampled)
        X, Y = rows
        size = min(batch_size, len(X))
        likelihood = model.likelihood
        of_rows = likelihood.predict_log_density  # log E p(y|f)
        if objective == "variational":
            of_rows = likelihood.variational_expectations  # E log p(y|f)

        def target(*values: tf.Tensor, seed: Any) -> tf.Tensor:
            X_B, Y_B = X, Y
            if size < len(X):
                chosen = tf.random.stateless_uniform([size], seed, 0, len(X), tf.int32)
                X_B, Y_B = tf.gather(X, chosen), tf.gather(Y, chosen)

            def log_likelihood() -> tf.Tensor:
                prior = of_each_latent(project_at(model, X_B), model.num_latent_gps)
                Fmu = f_mean(prior, tf.convert_to_tensor(self._v))
                Fvar = tf.broadcast_to(tf.transpose(prior.unexplained), tf.shape(Fmu))
                total = tf.reduce_sum(of_rows(X_B, Fmu, Fvar, Y_B))
                return to_default_float(len(X) / size) * total

            return with_gradient(with_priors(log_likelihood, self._moved), self._moved)(*values)

        num_adapted = int(0.8 * num_burnin * steps_per_draw)
        kernel = SGHMC(target, step_size, num_adaptation_steps=num_adapted)

        def one(last: Any, seed: tf.Tensor) -> Any:
            with warnings.catch_warnings():  # that no step is rejected, which is known
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
            return state, run.final_kernel_results, self._named(state)

        def several(state: Any, results: SGHMCResults, seeds: tf.Tensor) -> Any:
            return tf.scan(one, seeds, initializer=(state, results, self._named(state)))

        self._kernel = kernel
        self._several = compiled(several, reduce_retracing=True)

    def _named(self, state: list[tf.Tensor]) -> dict[str, tf.Tensor]:
        for parameter, value in zip(self._moved, state, strict=True):
            parameter.unconstrained_variable.assign(value)
        chol = tf.linalg.cholesky(prior_covariance(self._model))
        values = {name: _within_prior(name, p)[None] for name, p in self._sampled.items()}
        return {"u": to_u(chol, state[0])[None], **values}

    def chain(self, seed: tf.Tensor, dispersed: bool, total: int) -> Generator[Draws, None, None]:
        """[draw, 1, ...], some at a time; the model's parameters are put back when it is closed."""
        seeds = tfp.random.split_seed(seed, n=2 + total)
        try:
            self._starts.restart(seeds[0], dispersed)
            self._v.assign(
                tf.random.stateless_normal(self._v.shape, seeds[1], dtype=default_float())
            )
            state: Any = [p.unconstrained_variable.numpy() for p in self._moved]
            state = [tf.constant(part, default_float()) for part in state]
            results = self._kernel.bootstrap_results(state)
            for start in range(2, 2 + total, _DRAWS_AT_ONCE):
                block = self._several(
                    state, results, tf.stack(seeds[start : start + _DRAWS_AT_ONCE])
                )
                state, results, named = block
                state, results = tf.nest.map_structure(lambda part: part[-1], (state, results))
                yield {name: value.numpy() for name, value in named.items()}
        except tf.errors.InvalidArgumentError as error:
            raise FloatingPointError(
                f"A step of SGHMC is beyond floating point: {error.message}"
            ) from error
        finally:
            self._starts.put_back()


def _within_prior(name: str, parameter: Parameter) -> tf.Tensor:
    """Its value: no gradient would lead back from where its prior has no mass."""
    log_p = tf.debugging.assert_all_finite(
        parameter.log_prior_density(),
        f"{name} has left the support of its prior: give it a transform onto that support",
    )
    with tf.control_dependencies([log_p]):
        return tf.identity(parameter)
