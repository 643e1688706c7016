"""
f as a linear map of v, which is standard normal a priori, and kernels that move v.

For full GPs, f = μ₀ + chol v. With inducing variables u = chol v, f = μ₀ + Aᵀ v + √unexplained ε:
the f_i are independent given u (FITC; as in :class:`~gpflow_aaci.sampling.SparseGibbsKernel`).

Shapes: [C] chains, [N] data, [M] inducing variables, [L] latent GPs, [P] columns of Y.
"""

import abc
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import RegressionData

from ..likelihoods import augmented
from ..sampling.chains import LatentKernel, as_parts
from ..sampling.conditionals import f_mean, normal
from ..sampling.latents import (
    AnyModel,
    FullGP,
    check_sampled_model,
    pointwise_log_prob,
    prior_given_v,
    to_u,
)
from .objectives import ObjectiveGivenU, check_likelihood, check_objective, of_each_given_u

State = Any  # v [C..., M, L], or [v, ε] with ε [C..., N, L] where there are inducing variables


class WhitenedKernel(LatentKernel):
    """A TFP kernel moves a state whose elements are standard normal a priori."""

    def __init__(
        self,
        model: AnyModel,
        data: RegressionData | None,
        objective: ObjectiveGivenU,
        **parameters: Any,
    ) -> None:
        """
        :param data: X [N, D] and Y [N, P], all training data, for models with inducing variables;
            other models keep their own.
        :param objective: what each datum adds to log p(v), for models with inducing variables.
        :raises ValueError: for a model of another class, bad data, kernels that mix latent GPs, and
            an objective that is another or that the likelihood does not have.
        """
        check_objective(objective)
        check_sampled_model(model)
        check_likelihood(objective, model.likelihood)
        super().__init__(model=model, data=data, objective=objective, **parameters)
        X, _ = self.rows
        self._is_sparse = not isinstance(model, FullGP)
        self._of_u = None
        if self._is_sparse and objective != "predictive":
            # Converted here, which may make variables: GPflow's own may take no axes of chains.
            self._of_u = partial(of_each_given_u, objective, augmented(model.likelihood))
        self._prior = prior_given_v(model, X)

    def initial_state(self, num_chains: int, seed: Any = None) -> State:
        seeds = tfp.random.split_seed(seed, n=2, salt="whitened_initial")
        L, M, N = self._prior.A.shape
        shapes = [[M, L], [N, L]] if self._is_sparse else [[M, L]]
        parts = [normal([num_chains, *s], own) for s, own in zip(shapes, seeds, strict=False)]
        return parts if len(parts) > 1 else parts[0]

    def f(self, state: State) -> tf.Tensor:
        """f at the data, [C..., N, L]."""
        return self._f(*as_parts(state))

    def u(self, state: State) -> tf.Tensor:
        """The inducing variables, [C..., M, L]."""
        return to_u(self._prior.chol, as_parts(state)[0])

    def latents(self, state: State) -> dict[str, tf.Tensor]:
        f = {"f": self.f(state)}
        return {**f, "u": self.u(state)} if self._is_sparse else f

    def _f(self, v: tf.Tensor, *noise: tf.Tensor) -> tf.Tensor:
        f = f_mean(self._prior, v)
        return f + tf.sqrt(tf.transpose(self._prior.unexplained)) * noise[0] if noise else f

    def of_each(self, *parts: tf.Tensor) -> tf.Tensor:
        """
        log p(y|f) of every datum, [C..., N]; or the term of an objective that is a function of v.

        ε then has no likelihood, and is drawn from its prior.
        """
        X, Y = self.rows
        if self._of_u is not None:
            mean = f_mean(self._prior, parts[0])
            variance = tf.transpose(self._prior.unexplained) + tf.zeros_like(mean)
            of_chains = tf.zeros_like(mean[..., :1])
            return self._of_u(X + of_chains, mean, variance, Y + of_chains)
        return tf.reduce_sum(pointwise_log_prob(self.likelihood, X, self._f(*parts), Y), -1)

    def log_likelihood(self, *parts: tf.Tensor) -> tf.Tensor:
        """The sum of :meth:`of_each`, [C...]."""
        total = tf.reduce_sum(self.of_each(*parts), -1)
        # A slice accepts every value that is not below its level, and NaN never is.
        return tf.where(tf.math.is_nan(total), tf.constant(-np.inf, total.dtype), total)

    @abc.abstractmethod
    def _inner(self, state: State) -> tfp.mcmc.TransitionKernel:
        """The TFP kernel for states of this shape."""

    def bootstrap_results(self, init_state: State) -> Any:
        return self._inner(init_state).bootstrap_results(init_state)

    def one_step(
        self, current_state: State, previous_kernel_results: Any, seed: Any = None
    ) -> tuple[State, Any]:
        kernel = self._inner(current_state)
        return kernel.one_step(current_state, previous_kernel_results, seed=seed)
