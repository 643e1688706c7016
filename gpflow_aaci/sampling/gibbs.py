r"""
The exact Gibbs sampler of the augmented model (AACI Algorithm 2): two TFP kernels and ``Gibbs``.

Given f the auxiliary variables are independent, ω_i ~ π_φ(·| |h_i|) where the likelihood is
super-Gaussian; given ω, f or v is Gaussian (:mod:`~gpflow_aaci.sampling.conditionals`). Where the
kernel mixes latent GPs g, f = μ₀ + W g, each g is drawn given the others.

Shapes: [C...] chains, [N] data, [M] inducing variables, [L] latent GPs, [P] columns of Y.
"""

import abc
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import RegressionData
from gpflow.utilities import to_default_float

from ..algebra.projection import Projection, at_latent
from ..models import AugmentedSVGP, AugmentedVGP, as_augmented
from .chains import BatchedSampler, LatentKernel, as_parts, like_state
from .conditionals import (
    Observed,
    PriorAtData,
    draw_of_prior,
    f_given_omega,
    f_given_v_omega,
    f_mean,
    latent_column,
    normal,
    observed_of_site,
    prior_at_data,
    pseudo_observations,
    sparse_prior_at_data,
    v_given_omega,
)
from .latents import AnyModel, check_sampled_model, mixing_at, to_u

OVER_RELAXATION = -0.4
"""
The default over-relaxation of f. The means of f and of f² both mix twice as fast as they do at 0.

On Boston housing and Heart the least bulk-ESS among all f_i, f_i² and (f_i − E f_i)² is largest
between −0.3 and −0.5. At −0.8 the ESS of f is 2.5 to 4 times as large as at 0, and the ESS of the
spread of f is a third of its value at 0.
"""


class GibbsResults(NamedTuple):
    """What a step returns besides the state."""

    omega: Any  # [C..., N, L], given which f was drawn; a dictionary where there are several


class _Sweep(LatentKernel):
    """
    ω given f, then the latents given ω: all together or, where ω couples them, one after another.

    The last part of a state is f (g, where the kernel mixes latent GPs); a state of one part is
    that tensor itself.
    """

    _salt: str
    _seeds_of_turn: int  # how many seeds a turn needs: one for ω, the others for ``_moved``
    _prior: Any

    def __init__(self, over_relaxation: float, **parameters: Any) -> None:
        """
        :raises ValueError: for an ``over_relaxation`` outside (−1, 1), for a likelihood that is not
            Gaussian in all f jointly given ω under a kernel that mixes these, and as
            ``LatentKernel``.
        """
        self.over_relaxation = _checked_relaxation(over_relaxation)
        super().__init__(over_relaxation=over_relaxation, **parameters)
        model = parameters["model"]
        self._in_turn, self._mixing = model.in_turn, mixing_at(model, self.rows[0])
        if self._mixing is not None and self.likelihood.in_turn:
            raise ValueError(
                "kernel must not mix the latent GPs of a likelihood that is not Gaussian in all of "
                f"them jointly, given ω. Found: {type(model.kernel).__name__}, "
                f"{type(self.likelihood).__name__}."
            )

    @abc.abstractmethod
    def _prior_of(self, latent: int) -> Any:
        """The prior of one latent GP."""

    @abc.abstractmethod
    def _moved(
        self, prior: Any, parts: list[tf.Tensor], observed: Observed, seeds: Sequence[Any]
    ) -> list[tf.Tensor]:
        """Draw the parts of the state again, given ω."""

    def bootstrap_results(self, init_state: Any) -> GibbsResults:
        f = self.outputs(to_default_float(as_parts(init_state)[-1]))
        if self.likelihood.prior_c is not None:
            return GibbsResults(tf.zeros_like(f))
        return GibbsResults(tf.nest.map_structure(tf.zeros_like, self._auxiliary(f, [0, 0])))

    def one_step(
        self, current_state: Any, previous_kernel_results: GibbsResults, seed: Any = None
    ) -> tuple[Any, GibbsResults]:
        """One sweep: ω given f, then the latents given ω."""
        parts, k = as_parts(current_state), self._seeds_of_turn
        turns = range(parts[-1].shape[-1]) if self._in_turn else [None]
        salt = f"{self._salt}_in_turn" if self._in_turn else self._salt
        seeds = tfp.random.split_seed(seed, n=k * len(turns), salt=salt)
        for turn, latent in enumerate(turns):
            first, *others = seeds[k * turn : k * (turn + 1)]
            omega, observed = self.observed(parts[-1], first)
            if latent is None:
                parts = self._moved(self._prior, parts, observed, others)
                continue
            own = [latent_column(part, latent) for part in parts]
            of_own = Observed(*(values[..., latent : latent + 1, :] for values in observed))
            own = self._moved(self._prior_of(latent), own, of_own, others)
            parts = [
                tf.concat([part[..., :latent], new, part[..., latent + 1 :]], -1)
                for part, new in zip(parts, own, strict=True)
            ]
        return like_state(current_state, parts), GibbsResults(omega)

    def outputs(self, f: tf.Tensor) -> tf.Tensor:
        """f [C..., N, P] of the last part of a state."""
        return f if self._mixing is None else self._mixing.outputs(f)

    def observed(self, f: tf.Tensor, seed: Any) -> tuple[Any, Observed]:
        """
        A draw of ω given f, and the observations that stand for y given ω.

        Of mixed latent GPs they are of each one given the others: with the potential a and the
        precision b of f, log p(y|ω, f) has in g_l the slope Wᵀ(a − b f) and the curvature −(W²)ᵀb.
        """
        (X, Y), F = self.rows, self.outputs(f)
        omega = self._auxiliary(F, seed)
        if self._mixing is None:
            return omega, pseudo_observations(self.likelihood, X, omega, Y)
        W = self._mixing.W
        potential, precision = self.likelihood.site(X, omega, Y)
        slope = tf.tensordot(potential - precision * F, W, 1)
        curvature = tf.tensordot(precision, tf.square(W), 1)
        return omega, observed_of_site(slope + curvature * f, curvature)

    def _auxiliary(self, f: tf.Tensor, seed: Any) -> Any:
        """A draw given f."""
        X, Y = self.rows
        return self.likelihood.full_conditional(X, f, Y).sample(seed=seed)

    def _over_relaxed(self, current: tf.Tensor, mean: tf.Tensor, deviation: tf.Tensor) -> tf.Tensor:
        """mean + a (current − mean) + √(1 − a²) deviation (Adler 1981)."""
        a = self.over_relaxation
        moved = mean + to_default_float(np.sqrt(1.0 - a**2)) * deviation
        return moved + to_default_float(a) * (current - mean) if a else moved


class GibbsKernel(_Sweep):
    """
    ω | f, then f | ω, for ``AugmentedVGP``.

    The state is f at the data, [C..., N, L]; where a ``LinearCoregionalization`` mixes latent GPs
    g, f = μ₀ + W g, it is g, which draws of the posterior have as "u". The kernel keeps the
    hyperparameters that the model has when the kernel is made, so make a new kernel after changing
    them::

        kernel = GibbsKernel(model)
        f = tfp.mcmc.sample_chain(
            1_000, kernel.initial_state(num_chains=4), kernel=kernel, trace_fn=None, seed=[0, 1]
        )
    """

    _salt, _seeds_of_turn = "gibbs", 2

    def __init__(self, model: AugmentedVGP, over_relaxation: float = OVER_RELAXATION) -> None:
        """
        :param over_relaxation: a in f' = μ + a (f − μ) + √(1 − a²) Σ^½ε (Adler 1981), in (−1, 1).
            The sampler is exact for every a. At 0 it is the paper's; near −1 the means of odd
            functions of f, such as f itself, converge faster, and the means of even ones slower.
        :raises ValueError: for another model, or an ``over_relaxation`` outside (−1, 1).
        """
        if not isinstance(model, AugmentedVGP):
            raise ValueError(f"model must be an AugmentedVGP. Found: {type(model).__name__}.")
        check_sampled_model(model, may_mix=True)
        super().__init__(model=model, over_relaxation=over_relaxation)
        self._shape = (model.num_latent_gps, self.rows[0].shape[0])
        self._prior = prior_at_data(model)

    def initial_state(self, num_chains: int, seed: Any = None) -> tf.Tensor:
        """Draws from the prior, [num_chains, N, L]."""
        draw = draw_of_prior(self._prior, [num_chains, *self._shape], seed)
        return self._prior.mean + tf.linalg.matrix_transpose(draw)

    def latents(self, state: tf.Tensor) -> dict[str, tf.Tensor]:
        f = {"f": self.outputs(state)}
        return f if self._mixing is None else {**f, "u": state}

    def _prior_of(self, latent: int) -> PriorAtData:
        mean, *of_latents = self._prior
        of_one = (K if K.shape[0] == 1 else K[latent : latent + 1] for K in of_latents)
        return PriorAtData(latent_column(mean, latent), *of_one)

    def _moved(
        self, prior: PriorAtData, parts: list[tf.Tensor], observed: Observed, seeds: Sequence[Any]
    ) -> list[tf.Tensor]:
        return [self._over_relaxed(parts[0], *f_given_omega(prior, observed, seeds[0]))]


class SparseGibbsKernel(_Sweep):
    """
    ω | f, then v | ω and f | v, ω, for ``AugmentedSVGP``, where u = chol(K_ZZ) v.

    The sampler is exact for the model in which the f_i are independent given u,
    p(f|u) = Π p(f_i|u) (FITC; Snelson and Ghahramani 2006). By Jensen's inequality, both ELBOs are
    lower bounds on this model's evidence. If Z = X, this model is the full GP. The state is [v, f],
    of shapes [C..., M, L] and [C..., N, L]. Where a ``LinearCoregionalization`` mixes latent GPs g,
    f = μ₀ + W g, it is [v, g], and p(g|u) factorises.
    """

    _salt, _seeds_of_turn = "sparse_gibbs", 3

    def __init__(
        self,
        model: AugmentedSVGP,
        data: RegressionData,
        over_relaxation: float = OVER_RELAXATION,
    ) -> None:
        """
        :param data: X [N, D] and Y [N, P], all training data.
        :param over_relaxation: as in :class:`GibbsKernel`, for v.
        :raises ValueError: for another model, bad data or an ``over_relaxation`` outside (−1, 1).
        """
        if not isinstance(model, AugmentedSVGP):
            raise ValueError(f"model must be an AugmentedSVGP. Found: {type(model).__name__}.")
        check_sampled_model(model, may_mix=True)
        super().__init__(model=model, data=data, over_relaxation=over_relaxation)
        self._prior = sparse_prior_at_data(model, self.rows[0])

    def initial_state(self, num_chains: int, seed: Any = None) -> list[tf.Tensor]:
        """Draws from the prior."""
        seeds = tfp.random.split_seed(seed, n=2, salt="sparse_gibbs_initial")
        L, M, N = self._prior.A.shape
        v = normal([num_chains, M, L], seeds[0])
        e = tf.sqrt(tf.transpose(self._prior.unexplained)) * normal([num_chains, N, L], seeds[1])
        return [v, f_mean(self._prior, v) + e]

    def latents(self, state: list[tf.Tensor]) -> dict[str, tf.Tensor]:
        return {"f": self.outputs(state[1]), "u": to_u(self._prior.chol, state[0])}

    def _prior_of(self, latent: int) -> Projection:
        return at_latent(self._prior, latent)

    def _moved(
        self, prior: Projection, parts: list[tf.Tensor], observed: Observed, seeds: Sequence[Any]
    ) -> list[tf.Tensor]:
        v = self._over_relaxed(parts[0], *v_given_omega(prior, observed, seeds[0]))
        return [v, f_given_v_omega(prior, v, observed, seeds[1])]


@dataclass(frozen=True)
class Gibbs(BatchedSampler):
    """
    Gibbs sampling of f or u for :func:`~gpflow_aaci.sample_posterior`.

    For ``AugmentedVGP`` it uses :class:`GibbsKernel`, for ``AugmentedSVGP``
    :class:`SparseGibbsKernel`. All chains are drawn in one batch, and hyperparameters stay at the
    model's values.

    :param over_relaxation: in (−1, 1), see :class:`GibbsKernel`. 0 gives the paper's sampler.
    :raises ValueError: for an ``over_relaxation`` outside (−1, 1).
    """

    over_relaxation: float = OVER_RELAXATION

    def __post_init__(self) -> None:
        _checked_relaxation(self.over_relaxation)

    def _kernel(
        self, model: AnyModel, data: RegressionData | None, num_burnin: int
    ) -> LatentKernel:
        return gibbs_kernel(model, data, self.over_relaxation)


def gibbs_kernel(
    model: AnyModel, data: RegressionData | None, over_relaxation: float
) -> GibbsKernel | SparseGibbsKernel:
    """
    Return the Gibbs kernel for ``model``.

    :raises ValueError: for a likelihood without augmentation or a model of another class, and if
        the kernel raises one.
    """
    own = as_augmented(model)
    if not own.likelihood.is_augmented:
        raise ValueError(
            "sampler must be contrib.EllipticalSlices(), contrib.HMC() or contrib.SGHMC() for a "
            "likelihood without augmentation, which has no Gibbs sampler. "
            f"Found: Gibbs sampling, {type(own.likelihood).__name__}."
        )
    if isinstance(own, AugmentedVGP):
        return GibbsKernel(own, over_relaxation)
    return SparseGibbsKernel(own, data, over_relaxation)


def _checked_relaxation(over_relaxation: float) -> float:
    if not -1.0 < over_relaxation < 1.0:
        raise ValueError(f"over_relaxation must be in (-1, 1). Found: {over_relaxation}.")
    return over_relaxation
