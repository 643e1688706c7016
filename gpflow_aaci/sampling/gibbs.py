r"""
The exact Gibbs sampler of the augmented model (AACI Algorithm 2), as TFP transition kernels.

Given f the auxiliary variables are independent, ω_i ~ π_φ(·| |h_i|) where the likelihood is
super-Gaussian; given ω, f or v is Gaussian (:mod:`~gpflow_aaci.sampling.conditionals`).

Shapes: [C...] chains, [N] data, [M] inducing variables, [L] latent GPs, [P] columns of Y.
"""

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import RegressionData, TensorType
from gpflow.utilities import to_default_float

from ..augmentation import aux_sample
from ..models import AugmentedSVGP, AugmentedVGP
from .conditionals import (
    f_given_omega,
    f_given_v_omega,
    f_mean,
    normal,
    prior_at_data,
    v_given_omega,
)

OVER_RELAXATION = -0.4
"""
Of f, ``GibbsKernel``'s default: the mean of f mixes twice as fast as at 0, and its square as well.

On Boston housing and Heart the least bulk-ESS among all f_i, f_i² and (f_i − E f_i)² is largest
between −0.3 and −0.5; at −0.8 that of f is 2.5 to 4 times as large as at 0, that of the spread of f
a third of it.
"""


class GibbsResults(NamedTuple):
    """What a step leaves beside f."""

    omega: tf.Tensor  # [C..., N, L], that f was drawn given


class _OneSweep(tfp.mcmc.TransitionKernel):
    """What the kernels share: every step is accepted, and nothing is tuned."""

    _parameters: dict[str, Any]

    @property
    def parameters(self) -> dict[str, Any]:
        return self._parameters

    @property
    def is_calibrated(self) -> bool:
        return True


class GibbsKernel(_OneSweep):
    """
    ω | f, then f | ω, for ``AugmentedVGP``.

    The state is f at the data, [C..., N, L]. The prior of f is that of the model when the kernel is
    made: make a new one where hyperparameters have changed::

        kernel = GibbsKernel(model)
        f = tfp.mcmc.sample_chain(
            1_000, kernel.initial_state(num_chains=4), kernel=kernel, trace_fn=None, seed=[0, 1]
        )
    """

    def __init__(self, model: AugmentedVGP, over_relaxation: float = OVER_RELAXATION) -> None:
        """
        :param over_relaxation: a in f' = μ + a (f − μ) + √(1 − a²) Σ^½ε (Adler 1981), in (−1, 1);
            exact for each. 0 is the paper's sampler, near −1 means of odd functions of f (their
            averages, above all) converge faster, and those of even ones slower.
        :raises ValueError: for another model, or an ``over_relaxation`` outside (−1, 1).
        """
        if not isinstance(model, AugmentedVGP):
            raise ValueError(f"model must be an AugmentedVGP. Found: {type(model).__name__}.")
        self.over_relaxation = _checked_relaxation(over_relaxation)
        self._parameters = {"model": model, "over_relaxation": over_relaxation}
        self._likelihood = model.likelihood
        _, self._Y, _ = model.checked_batch()
        self._prior = prior_at_data(model)

    def initial_state(self, num_chains: int, seed: Any = None) -> tf.Tensor:
        """Draws from the prior, [num_chains, N, L]."""
        prior, shape = self._prior, [num_chains, *reversed(self._Y.shape)]
        return tf.linalg.matrix_transpose(
            tf.transpose(prior.mean) + tf.tensordot(normal(shape, seed), prior.chol, [[-1], [1]])
        )

    def bootstrap_results(self, init_state: TensorType) -> GibbsResults:
        return GibbsResults(tf.zeros_like(to_default_float(init_state)))

    def one_step(
        self, current_state: tf.Tensor, previous_kernel_results: GibbsResults, seed: Any = None
    ) -> tuple[tf.Tensor, GibbsResults]:
        """One sweep."""
        seeds = tfp.random.split_seed(seed, n=2, salt="gibbs")
        omega = aux_sample(self._likelihood, current_state, self._Y, seeds[0])
        mean, deviation = f_given_omega(self._likelihood, self._prior, omega, self._Y, seeds[1])
        f = over_relaxed(current_state, mean, deviation, self.over_relaxation)
        return f, GibbsResults(omega)


class SparseGibbsKernel(_OneSweep):
    """
    ω | f, then v | ω and f | v, ω, for ``AugmentedSVGP`` with u = chol v, chol that of K_ZZ.

    Exact for the model in which the f_i are independent given u, p(f|u) = Π p(f_i|u): that whose
    evidence both ELBOs bound from below by Jensen's inequality (FITC; Snelson and Ghahramani 2006).
    It is the full GP where Z = X. The state is [v, f]: [C..., M, L] and [C..., N, L].
    """

    def __init__(
        self,
        model: AugmentedSVGP,
        data: RegressionData,
        over_relaxation: float = OVER_RELAXATION,
    ) -> None:
        """
        :param data: X [N, D], Y [N, P], all of them.
        :param over_relaxation: of v, as in :class:`GibbsKernel`.
        :raises ValueError: for another model, bad data or an ``over_relaxation`` outside (−1, 1).
        """
        if not isinstance(model, AugmentedSVGP):
            raise ValueError(f"model must be an AugmentedSVGP. Found: {type(model).__name__}.")
        self.over_relaxation = _checked_relaxation(over_relaxation)
        self._parameters = {"model": model, "data": data, "over_relaxation": over_relaxation}
        self._likelihood = model.likelihood
        X, self._Y, scale = model.checked_batch(data)
        if scale != 1.0:
            raise ValueError(
                f"data must be all num_data = {model.num_data} rows. Found: {len(X)} rows."
            )
        prior = model.project(X)
        A = tf.broadcast_to(prior.A, [self._Y.shape[-1], *prior.A.shape[1:]])
        self._prior = prior._replace(A=A)

    def initial_state(self, num_chains: int, seed: Any = None) -> list[tf.Tensor]:
        """Draws from the prior."""
        seeds = tfp.random.split_seed(seed, n=2, salt="sparse_gibbs_initial")
        (N, P), M = self._Y.shape, self._prior.A.shape[-2]
        v = normal([num_chains, M, P], seeds[0])
        e = tf.sqrt(tf.transpose(self._prior.unexplained)) * normal([num_chains, N, P], seeds[1])
        return [v, f_mean(self._prior, v) + e]

    def bootstrap_results(self, init_state: list[TensorType]) -> GibbsResults:
        return GibbsResults(tf.zeros_like(to_default_float(init_state[1])))

    def one_step(
        self,
        current_state: list[tf.Tensor],
        previous_kernel_results: GibbsResults,
        seed: Any = None,
    ) -> tuple[list[tf.Tensor], GibbsResults]:
        """One sweep."""
        v, f = current_state
        seeds = tfp.random.split_seed(seed, n=3, salt="sparse_gibbs")
        omega = aux_sample(self._likelihood, f, self._Y, seeds[0])
        mean, deviation = v_given_omega(self._likelihood, self._prior, omega, self._Y, seeds[1])
        v = over_relaxed(v, mean, deviation, self.over_relaxation)
        f = f_given_v_omega(self._likelihood, self._prior, v, omega, self._Y, seeds[2])
        return [v, f], GibbsResults(omega)


def over_relaxed(current: tf.Tensor, mean: tf.Tensor, deviation: tf.Tensor, a: float) -> tf.Tensor:
    """mean + a (current − mean) + √(1 − a²) deviation (Adler 1981)."""
    moved = mean + to_default_float(np.sqrt(1.0 - a**2)) * deviation
    return moved + to_default_float(a) * (current - mean) if a else moved


def _checked_relaxation(over_relaxation: float) -> float:
    if not -1.0 < over_relaxation < 1.0:
        raise ValueError(f"over_relaxation must be in (-1, 1). Found: {over_relaxation}.")
    return over_relaxation
