"""
The contestants of the sampling experiment: kernels of ``tfp.mcmc`` whose target is p(f|y).

All start at the same draws from the prior. Gibbs moves f itself; the others the whitened z of
f = μ₀ + L z, z ~ N(0, I) a priori (elliptical slices f − μ₀, which is the same walk without L).

Shapes: [C] chains, [N] data, [P] latent GPs.
"""

import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from gpflow_aaci import AugmentedVGP, GibbsKernel
from gpflow_aaci.likelihoods import SuperGaussianLikelihood
from gpflow_aaci.sampling.conditionals import prior_at_data

Kind = Literal[
    "gibbs", "generic_gibbs", "hmc", "nuts", "random_walk", "prior_proposals", "elliptical_slice"
]
LogDensity = Callable[[tf.Tensor], tf.Tensor]

_HMC_ACCEPTANCE, _NUTS_ACCEPTANCE, _WALK_ACCEPTANCE = 0.75, 0.8, 0.25
_TUNED_PART = 0.8  # of the warm-up; the rest of it forgets the steps that were tried


@dataclass(frozen=True)
class Setting:
    """One point of a method's grid; None where a method has no such thing, or tunes it."""

    kind: Kind
    over_relaxation: float = 0.0
    step_size: float | None = None
    leapfrog_steps: int | None = None

    @property
    def method(self) -> str:
        """Its name in tables and figures."""
        if self.kind == "gibbs" and self.over_relaxation:
            return "Gibbs, over-relaxed"
        return {
            "gibbs": "Gibbs",
            "generic_gibbs": "Gibbs, ω from log φ",
            "hmc": "HMC",
            "nuts": "NUTS",
            "random_walk": "random walk",
            "prior_proposals": "MH, prior proposals",
            "elliptical_slice": "elliptical slice",
        }[self.kind]

    @property
    def is_tuned(self) -> bool:
        """Whether the warm-up looks for a step size."""
        return self.kind in ("hmc", "nuts", "random_walk") and self.step_size is None

    def __str__(self) -> str:
        parts = [
            f"a {self.over_relaxation:g}" if "gibbs" in self.kind else "",
            f"step {self.step_size:g}" if self.step_size else "",
            "tuned" if self.is_tuned else "",
            f"{self.leapfrog_steps} leapfrog" if self.leapfrog_steps else "",
        ]
        return ", ".join(part for part in parts if part) or "-"


class Sampler(NamedTuple):
    """All that ``tfp.mcmc.sample_chain`` needs, and how its states become f."""

    kernel: tfp.mcmc.TransitionKernel
    initial_state: tf.Tensor  # [C, N, P]
    to_f: Callable[[tf.Tensor], tf.Tensor]  # [..., N, P] to the same


def make_sampler(
    setting: Setting, model: AugmentedVGP, num_chains: int, num_burnin: int, seed: int
) -> Sampler:
    """
    :param num_burnin: draws of the warm-up, in the first four fifths of which a step is tuned.
    :param seed: of the initial states, which are the same for every setting.
    """
    X, Y, _ = model.checked_batch()
    prior = prior_at_data(model)
    z = tf.random.stateless_normal([num_chains, *Y.shape], [seed, 0], dtype=Y.dtype)

    def correlated(z: tf.Tensor) -> tf.Tensor:  # L z
        rows = tf.linalg.matrix_transpose(z)  # times a shared matrix: one product for all chains
        return tf.linalg.matrix_transpose(tf.tensordot(rows, prior.chol, [[-1], [1]]))

    def to_f(z: tf.Tensor) -> tf.Tensor:
        return prior.mean + correlated(z)

    def log_likelihood(f: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(model.likelihood.log_prob(X, f, Y), axis=-1)

    def log_posterior(z: tf.Tensor) -> tf.Tensor:
        return log_likelihood(to_f(z)) - 0.5 * tf.reduce_sum(tf.square(z), axis=[-2, -1])

    def fixed_or_tuned(
        make: Callable[[tf.Tensor], Any], first_step: float, acceptance: float
    ) -> tfp.mcmc.TransitionKernel:
        if not setting.is_tuned:
            return make(tf.constant(setting.step_size, z.dtype))
        return tfp.mcmc.DualAveragingStepSizeAdaptation(
            make(tf.constant(first_step, z.dtype)),
            num_adaptation_steps=int(_TUNED_PART * num_burnin),
            target_accept_prob=tf.constant(acceptance, z.dtype),
        )

    match setting.kind:
        case "gibbs" | "generic_gibbs":
            if setting.kind == "generic_gibbs":
                model = without_closed_form(model)
            return Sampler(GibbsKernel(model, setting.over_relaxation), to_f(z), tf.identity)
        case "hmc":
            kernel = fixed_or_tuned(
                lambda step: tfp.mcmc.HamiltonianMonteCarlo(
                    log_posterior, step, setting.leapfrog_steps
                ),
                0.1,
                _HMC_ACCEPTANCE,
            )
        case "nuts":
            kernel = fixed_or_tuned(
                lambda step: tfp.mcmc.NoUTurnSampler(log_posterior, step), 0.1, _NUTS_ACCEPTANCE
            )
        case "random_walk":
            # Tuning is drawn towards ten times its first step: here, to what is best for a normal.
            first_step = 0.238 / float(np.sqrt(np.prod(Y.shape)))
            kernel = fixed_or_tuned(
                lambda step: RandomWalk(log_posterior, step), first_step, _WALK_ACCEPTANCE
            )
        case "prior_proposals":
            # In the ratio the prior cancels against the proposal's density, which leaves the
            # likelihood: a symmetric proposal would leave the same of the likelihood alone.
            kernel = tfp.mcmc.RandomWalkMetropolis(
                lambda z: log_likelihood(to_f(z)),
                new_state_fn=lambda state_parts, seed: [_normal_like(state_parts[0], seed)],
            )
        case "elliptical_slice":
            kernel = tfp.experimental.mcmc.EllipticalSliceSampler(
                lambda seed: correlated(_normal_like(z, seed)),
                lambda centred: log_likelihood(prior.mean + centred),
            )
            return Sampler(kernel, correlated(z), lambda centred: prior.mean + centred)
    return Sampler(kernel, z, to_f)


def without_closed_form(model: AugmentedVGP) -> AugmentedVGP:
    """The same model, but that its ω is drawn by inverting the Laplace transform of its law."""
    likelihood = gpflow.utilities.deepcopy(model.likelihood)
    likelihood._tilted = types.MethodType(SuperGaussianLikelihood._tilted, likelihood)
    return AugmentedVGP(model.data, model.kernel, likelihood, model.mean_function)


def acceptance(results: Any) -> tf.Tensor:
    """Probability with which the last step was accepted, meaned over chains; NaN for always."""
    results = getattr(results, "inner_results", results)  # of a tuned kernel
    log_ratio = getattr(results, "log_accept_ratio", None)
    if log_ratio is None:
        return tf.constant(np.nan, gpflow.default_float())
    return tf.reduce_mean(tf.exp(tf.minimum(log_ratio, tf.zeros_like(log_ratio))))


class RandomWalkResults(NamedTuple):
    """What a step leaves beside the state."""

    target_log_prob: tf.Tensor  # [C]
    log_accept_ratio: tf.Tensor  # [C]
    step_size: tf.Tensor  # []


class RandomWalk(tfp.mcmc.TransitionKernel):
    """``tfp.mcmc.RandomWalkMetropolis`` with the step size where TFP's adaptation looks for it."""

    def __init__(self, target_log_prob_fn: LogDensity, step_size: tf.Tensor) -> None:
        self._parameters = {"target_log_prob_fn": target_log_prob_fn, "step_size": step_size}

    @property
    def parameters(self) -> dict[str, Any]:
        return self._parameters

    @property
    def is_calibrated(self) -> bool:
        return True

    def bootstrap_results(self, init_state: tf.Tensor) -> RandomWalkResults:
        log_prob = self._parameters["target_log_prob_fn"](init_state)
        return RandomWalkResults(log_prob, tf.zeros_like(log_prob), self._parameters["step_size"])

    def one_step(
        self, current_state: tf.Tensor, previous_kernel_results: RandomWalkResults, seed: Any = None
    ) -> tuple[tf.Tensor, RandomWalkResults]:
        """Propose state + step ε, ε ~ N(0, I)."""
        seeds = tfp.random.split_seed(seed, n=2, salt="random_walk")
        before, step = previous_kernel_results.target_log_prob, previous_kernel_results.step_size
        proposed = current_state + step * _normal_like(current_state, seeds[0])
        after = self._parameters["target_log_prob_fn"](proposed)
        u = tf.random.stateless_uniform(tf.shape(before), seeds[1], dtype=before.dtype)
        accepted = tf.math.log(u) < after - before
        state = tf.where(accepted[:, None, None], proposed, current_state)
        log_prob = tf.where(accepted, after, before)
        return state, RandomWalkResults(log_prob, after - before, step)


def _normal_like(x: tf.Tensor, seed: Any) -> tf.Tensor:
    seed = tfp.random.sanitize_seed(seed, salt="normal_like")
    return tf.random.stateless_normal(tf.shape(x), seed, dtype=x.dtype)
