r"""
The exact Gibbs sampler of the augmented model (AACI Algorithm 2): two TFP kernels and ``Gibbs``.

Given f the auxiliary variables are independent, ω_i ~ π_φ(·| |h_i|) where the likelihood is
super-Gaussian; given ω, f or v is Gaussian (:mod:`~gpflow_aaci.sampling.conditionals`).

Shapes: [C...] chains, [N] data, [M] inducing variables, [L] latent GPs, [P] columns of Y.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import RegressionData, TensorType
from gpflow.utilities import to_default_float

from ..algebra.projection import Projection, at_latent
from ..data import as_arrays
from ..likelihoods import AugmentedLikelihood
from ..models import AugmentedSVGP, AugmentedVGP
from .chains import Draws, batched_chains
from .conditionals import (
    Observed,
    f_given_omega,
    f_given_v_omega,
    f_mean,
    latent_column,
    normal,
    of_latent,
    prior_at_data,
    pseudo_observations,
    sparse_prior_at_data,
    v_given_omega,
    with_column,
)
from .latents import AnyModel, checked_rows, to_u

OVER_RELAXATION = -0.4
"""
The default over-relaxation of f, at which its mean mixes twice as fast as at 0 and its square too.

On Boston housing and Heart the least bulk-ESS among all f_i, f_i² and (f_i − E f_i)² is largest
between −0.3 and −0.5; at −0.8 that of f is 2.5 to 4 times as large as at 0, that of the spread of f
a third of it.
"""


class GibbsResults(NamedTuple):
    """What a step leaves beside f."""

    omega: Any  # [C..., N, L], that f was drawn given; a dictionary where there are several


class _OneSweep(tfp.mcmc.TransitionKernel):
    """What the kernels share: every step is accepted, and nothing is tuned."""

    _parameters: dict[str, Any]
    _likelihood: AugmentedLikelihood
    _X: tf.Tensor
    _Y: tf.Tensor

    def _auxiliary(self, f: tf.Tensor, seed: Any) -> Any:
        """A draw given f."""
        return self._likelihood.full_conditional(self._X, f, self._Y).sample(seed=seed)

    def _observed(self, auxiliary: Any) -> Observed:
        return pseudo_observations(self._likelihood, self._X, auxiliary, self._Y)

    def _nothing(self, f: tf.Tensor) -> GibbsResults:
        """Of the shapes that a step's results have."""
        f = to_default_float(f)
        if self._likelihood.prior_c is not None:
            return GibbsResults(tf.zeros_like(f))
        return GibbsResults(tf.nest.map_structure(tf.zeros_like, self._auxiliary(f, [0, 0])))

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
        self._X, self._Y = as_arrays(model.expected_data).rows
        self._in_turn, self._shape = model.in_turn, (model.num_latent_gps, self._X.shape[0])
        self._prior = prior_at_data(model)

    def initial_state(self, num_chains: int, seed: Any = None) -> tf.Tensor:
        """Draws from the prior, [num_chains, N, L]."""
        prior, shape = self._prior, [num_chains, *self._shape]
        return tf.linalg.matrix_transpose(
            tf.transpose(prior.mean) + tf.tensordot(normal(shape, seed), prior.chol, [[-1], [1]])
        )

    def latents(self, state: tf.Tensor) -> dict[str, tf.Tensor]:
        """``f`` [C..., N, L]."""
        return {"f": state}

    def bootstrap_results(self, init_state: TensorType) -> GibbsResults:
        return self._nothing(init_state)

    def one_step(
        self, current_state: tf.Tensor, previous_kernel_results: GibbsResults, seed: Any = None
    ) -> tuple[tf.Tensor, GibbsResults]:
        """One sweep."""
        f = current_state
        if not self._in_turn:
            seeds = tfp.random.split_seed(seed, n=2, salt="gibbs")
            omega = self._auxiliary(f, seeds[0])
            mean, deviation = f_given_omega(self._prior, self._observed(omega), seeds[1])
            return over_relaxed(f, mean, deviation, self.over_relaxation), GibbsResults(omega)
        seeds = tfp.random.split_seed(seed, n=2 * f.shape[-1], salt="gibbs_in_turn")
        for latent in range(f.shape[-1]):
            omega = self._auxiliary(f, seeds[2 * latent])
            observed = of_latent(self._observed(omega), latent)
            prior = self._prior._replace(mean=latent_column(self._prior.mean, latent))
            mean, deviation = f_given_omega(prior, observed, seeds[2 * latent + 1])
            old = latent_column(f, latent)
            f = with_column(f, latent, over_relaxed(old, mean, deviation, self.over_relaxation))
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
        if model.mixing is not None:
            raise ValueError(
                "kernel must not mix the latent GPs that are to be sampled. Found: "
                f"{type(model.kernel).__name__}."
            )
        rows = as_arrays(model.expected_data, data)
        self._X, self._Y = rows.rows
        self._in_turn = model.in_turn
        if rows.scale != 1.0:
            raise ValueError(
                f"data must be all num_data = {model.num_data} rows. Found: {len(self._X)} rows."
            )
        self._prior = sparse_prior_at_data(model, self._X)

    def initial_state(self, num_chains: int, seed: Any = None) -> list[tf.Tensor]:
        """Draws from the prior."""
        seeds = tfp.random.split_seed(seed, n=2, salt="sparse_gibbs_initial")
        L, M, N = self._prior.A.shape
        v = normal([num_chains, M, L], seeds[0])
        e = tf.sqrt(tf.transpose(self._prior.unexplained)) * normal([num_chains, N, L], seeds[1])
        return [v, f_mean(self._prior, v) + e]

    def latents(self, state: list[tf.Tensor]) -> dict[str, tf.Tensor]:
        """``f`` [C..., N, L] and ``u`` [C..., M, L]."""
        return {"f": state[1], "u": to_u(self._prior.chol, state[0])}

    def bootstrap_results(self, init_state: list[TensorType]) -> GibbsResults:
        return self._nothing(init_state[1])

    def one_step(
        self,
        current_state: list[tf.Tensor],
        previous_kernel_results: GibbsResults,
        seed: Any = None,
    ) -> tuple[list[tf.Tensor], GibbsResults]:
        """One sweep."""
        v, f = current_state
        if not self._in_turn:
            seeds = tfp.random.split_seed(seed, n=3, salt="sparse_gibbs")
            omega = self._auxiliary(f, seeds[0])
            v, f = self._moved(self._prior, v, self._observed(omega), seeds[1], seeds[2])
            return [v, f], GibbsResults(omega)
        seeds = tfp.random.split_seed(seed, n=3 * f.shape[-1], salt="sparse_gibbs_in_turn")
        for latent in range(f.shape[-1]):
            first, *others = seeds[3 * latent : 3 * latent + 3]
            omega = self._auxiliary(f, first)
            observed = of_latent(self._observed(omega), latent)
            own = at_latent(self._prior, latent)
            v_own, f_own = self._moved(own, latent_column(v, latent), observed, *others)
            v, f = with_column(v, latent, v_own), with_column(f, latent, f_own)
        return [v, f], GibbsResults(omega)

    def _moved(
        self, prior: Projection, v: tf.Tensor, observed: Observed, seed_v: Any, seed_f: Any
    ) -> tuple[tf.Tensor, tf.Tensor]:
        mean, deviation = v_given_omega(prior, observed, seed_v)
        v = over_relaxed(v, mean, deviation, self.over_relaxation)
        return v, f_given_v_omega(prior, v, observed, seed_f)


@dataclass(frozen=True)
class Gibbs:
    """
    Gibbs sampling of f, or of u, for :func:`~gpflow_aaci.sample_posterior`.

    It takes ``AugmentedVGP`` and ``AugmentedSVGP``, by :class:`GibbsKernel` and
    :class:`SparseGibbsKernel`; chains are drawn in one batch. Hyperparameters are the model's.

    :param over_relaxation: in (−1, 1), see :class:`GibbsKernel`. 0 is the paper's sampler.
    :raises ValueError: for an ``over_relaxation`` outside (−1, 1).
    """

    over_relaxation: float = OVER_RELAXATION

    def __post_init__(self) -> None:
        _checked_relaxation(self.over_relaxation)

    def chains(
        self,
        model: AnyModel,
        data: RegressionData | None,
        seeds: Sequence[tf.Tensor],
        num_burnin: int,
        num_samples: int,
    ) -> list[Generator[Draws, None, None]]:
        """As :meth:`~gpflow_aaci.sampling.Sampler.chains` says."""
        kernel = gibbs_kernel(model, data, self.over_relaxation)
        rows = checked_rows(model, data)
        return [batched_chains(kernel, model.likelihood, rows, seeds, num_burnin + num_samples)]


def gibbs_kernel(
    model: AnyModel, data: RegressionData | None, over_relaxation: float
) -> GibbsKernel | SparseGibbsKernel:
    """
    The kernel for that kind of model.

    :raises ValueError: for a model without augmentation, and as the kernels do.
    """
    if isinstance(model, AugmentedVGP):
        return GibbsKernel(model, over_relaxation)
    if isinstance(model, AugmentedSVGP):
        return SparseGibbsKernel(model, data, over_relaxation)
    raise ValueError(
        "sampler must be contrib.EllipticalSlices(), contrib.HMC() or contrib.SGHMC() for a model "
        "without augmentation: Gibbs sampling takes AugmentedVGP and AugmentedSVGP. "
        f"Found: Gibbs sampling, {type(model).__name__}."
    )


def over_relaxed(current: tf.Tensor, mean: tf.Tensor, deviation: tf.Tensor, a: float) -> tf.Tensor:
    """mean + a (current − mean) + √(1 − a²) deviation (Adler 1981)."""
    moved = mean + to_default_float(np.sqrt(1.0 - a**2)) * deviation
    return moved + to_default_float(a) * (current - mean) if a else moved


def _checked_relaxation(over_relaxation: float) -> float:
    if not -1.0 < over_relaxation < 1.0:
        raise ValueError(f"over_relaxation must be in (-1, 1). Found: {over_relaxation}.")
    return over_relaxation
