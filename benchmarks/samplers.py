"""
The samplers that the sampling experiment compares: kernels of ``tfp.mcmc`` with target p(f|y).

All start at the same draws from the prior. Gibbs moves f itself; the others move the whitened z,
where f = μ₀ + L z and z ~ N(0, I) a priori. Gibbs, HMC and elliptical slices are from gpflow_aaci.

Shapes: [C] chains, [N] data, [P] latent GPs.
"""

import itertools
import time
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import arviz
import gpflow
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from gpflow_aaci import AugmentedVGP
from gpflow_aaci.contrib import EllipticalSliceKernel, HamiltonianKernel
from gpflow_aaci.likelihoods import SuperGaussianLikelihood
from gpflow_aaci.sampling import GibbsKernel

Array = np.ndarray

Kind = Literal[
    "gibbs", "generic_gibbs", "hmc", "nuts", "random_walk", "prior_proposals", "elliptical_slice"
]
_NAMES: dict[Kind, str] = {
    "gibbs": "Gibbs",
    "generic_gibbs": "Gibbs, ω from log φ",
    "hmc": "HMC",
    "nuts": "NUTS",
    "random_walk": "random walk",
    "prior_proposals": "MH, prior proposals",
    "elliptical_slice": "elliptical slice",
}
LogDensity = Callable[[tf.Tensor], tf.Tensor]

_TUNED_PART = 0.8  # the part of the warm-up that tunes the step size; the rest keeps it fixed
_FIRST_STEP = 0.1  # the first step size of HMC and NUTS, in standard deviations of the prior


@dataclass(frozen=True)
class Setting:
    """One point of a method's grid; None if the method has no such option, or tunes it."""

    kind: Kind
    over_relaxation: float = 0.0
    step_size: float | None = None
    leapfrog_steps: int | None = None

    @property
    def method(self) -> str:
        """The name of the method in tables and figures."""
        is_over_relaxed = self.kind == "gibbs" and self.over_relaxation
        return "Gibbs, over-relaxed" if is_over_relaxed else _NAMES[self.kind]

    @property
    def is_tuned(self) -> bool:
        """Whether the warm-up tunes the step size."""
        return self.kind in ("hmc", "nuts", "random_walk") and self.step_size is None

    def __str__(self) -> str:
        parts = [f"a {self.over_relaxation:g}"] if "gibbs" in self.kind else []
        parts += [f"step {self.step_size:g}"] if self.step_size else []
        parts += ["tuned"] if self.is_tuned else []
        parts += [f"{self.leapfrog_steps} leapfrog"] if self.leapfrog_steps else []
        return ", ".join(parts) or "-"


class Sampler(NamedTuple):
    """The arguments of ``tfp.mcmc.sample_chain``, and a function from its states to f."""

    kernel: tfp.mcmc.TransitionKernel
    initial_state: tf.Tensor  # [C, N, P]
    to_f: Callable[[tf.Tensor], tf.Tensor]  # both [..., N, P]


def make_sampler(
    setting: Setting, model: AugmentedVGP, num_chains: int, num_burnin: int, seed: int
) -> Sampler:
    """
    :param num_burnin: draws of the warm-up; its first four fifths tune the step size.
    :param seed: the seed of the initial states, which are the same for every setting.
    """
    Y = model.data[1]
    z = tf.random.stateless_normal([num_chains, *Y.shape], [seed, 0], dtype=Y.dtype)
    slices = EllipticalSliceKernel(model)
    to_f, log_likelihood = slices.f, slices.log_likelihood  # functions of z

    def log_posterior(z: tf.Tensor) -> tf.Tensor:
        return log_likelihood(z) - 0.5 * tf.reduce_sum(tf.square(z), axis=[-2, -1])

    if "gibbs" in setting.kind:
        ours = without_closed_form(model) if setting.kind == "generic_gibbs" else model
        return Sampler(GibbsKernel(ours, setting.over_relaxation), to_f(z), tf.identity)
    num_tuned = int(_TUNED_PART * num_burnin) if setting.is_tuned else 0
    if setting.kind == "elliptical_slice":
        return Sampler(slices, z, to_f)
    if setting.kind == "hmc":
        step_size, leapfrogs = setting.step_size or _FIRST_STEP, setting.leapfrog_steps
        hmc = HamiltonianKernel(model, None, step_size, leapfrogs, num_tuned)
        return Sampler(hmc, z, to_f)
    if setting.kind == "prior_proposals":
        # The proposal is the prior, so both cancel in the acceptance ratio, which is the ratio of
        # likelihoods. A random walk whose target is the likelihood alone has the same ratio.
        kernel = tfp.mcmc.RandomWalkMetropolis(
            log_likelihood,
            new_state_fn=lambda state_parts, seed: [_normal_like(state_parts[0], seed)],
        )
        return Sampler(kernel, z, to_f)
    # Dual averaging is attracted to ten times the first step. The walk's is a tenth of the optimal
    # step for a normal target.
    walk = 0.238 / float(np.sqrt(np.prod(Y.shape)))
    make, first_step, acceptance = {
        "nuts": (lambda e: tfp.mcmc.NoUTurnSampler(log_posterior, e), _FIRST_STEP, 0.8),
        "random_walk": (lambda e: tfp.mcmc.MetropolisHastings(Walk(log_posterior, e)), walk, 0.25),
    }[setting.kind]
    kernel = make(tf.constant(setting.step_size or first_step, z.dtype))
    if num_tuned:
        kernel = tfp.mcmc.DualAveragingStepSizeAdaptation(
            kernel,
            num_adaptation_steps=num_tuned,
            target_accept_prob=tf.constant(acceptance, z.dtype),
        )
    return Sampler(kernel, z, to_f)


def without_closed_form(model: AugmentedVGP) -> AugmentedVGP:
    """The same model, except that ω is drawn by inverting the Laplace transform of its law."""
    likelihood = gpflow.utilities.deepcopy(model.likelihood)
    likelihood._tilted = types.MethodType(SuperGaussianLikelihood._tilted, likelihood)
    return AugmentedVGP(model.data, model.kernel, likelihood, model.mean_function)


def acceptance(results: Any) -> tf.Tensor:
    """The last step's probability of acceptance, averaged over chains; NaN without rejection."""
    results = getattr(results, "inner_results", results)  # a tuned kernel wraps its results
    log_ratio = getattr(results, "log_accept_ratio", None)
    if log_ratio is None:
        return tf.constant(np.nan, gpflow.default_float())
    return tf.reduce_mean(tf.exp(tf.minimum(log_ratio, tf.zeros_like(log_ratio))))


class WalkResults(NamedTuple):
    """The fields that TFP's ``MetropolisHastings`` and step-size adaptation need."""

    target_log_prob: tf.Tensor  # [C]
    log_acceptance_correction: tf.Tensor  # [C]
    step_size: tf.Tensor  # []


class Walk(tfp.mcmc.TransitionKernel):
    """Proposes state + step ε, ε ~ N(0, I)."""

    is_calibrated = False
    parameters: Any = None  # TFP wants an attribute here, which each instance sets

    def __init__(self, target_log_prob_fn: LogDensity, step_size: tf.Tensor) -> None:
        self.parameters = {"target_log_prob_fn": target_log_prob_fn, "step_size": step_size}

    def bootstrap_results(self, state: tf.Tensor) -> WalkResults:
        log_prob = self.parameters["target_log_prob_fn"](state)
        return WalkResults(log_prob, tf.zeros_like(log_prob), self.parameters["step_size"])

    def one_step(
        self, state: tf.Tensor, results: WalkResults, seed: Any = None
    ) -> tuple[tf.Tensor, WalkResults]:
        state = state + results.step_size * _normal_like(state, seed)
        log_prob = self.parameters["target_log_prob_fn"](state)
        return state, results._replace(target_log_prob=log_prob)


def _normal_like(x: tf.Tensor, seed: Any) -> tf.Tensor:
    seed = tfp.random.sanitize_seed(seed, salt="normal_like")
    return tf.random.stateless_normal(tf.shape(x), seed, dtype=x.dtype)


# ---- timed chains, and their diagnostics ----

_DRAWS_AT_ONCE = 25  # the time limit is checked after each such block of draws
LAGS = 10


class Draws(NamedTuple):
    """What a sampler has drawn, and how long that took."""

    f: Array  # [C, S, N]; in multi-output models, the last axis holds all outputs
    acceptance: float  # the mean probability after the warm-up; NaN for a method that never rejects
    seconds: float  # after the warm-up
    warmup_seconds: float
    tracing_seconds: float
    traces: int


def draw(sampler: Sampler, num_burnin: int, num_samples: int, seconds: float, seed: int) -> Draws:
    """At most ``num_samples`` draws, within ``seconds``, after a warm-up of ``num_burnin``."""

    @tf.function(autograph=False)
    def block(state: Any, results: Any, number: tf.Tensor, seed: tf.Tensor) -> tuple[Any, ...]:
        run = tfp.mcmc.sample_chain(
            number,
            state,
            kernel=sampler.kernel,
            previous_kernel_results=results,
            trace_fn=lambda _, results: acceptance(results),
            return_final_kernel_results=True,
            seed=seed,
        )
        return sampler.to_f(run.all_states), run.trace, run.all_states[-1], run.final_kernel_results

    seeds = (tf.constant([seed, number]) for number in itertools.count())

    def run(after: Any, total: int, limit: float) -> tuple[Any, float, list[Array], list[Array]]:
        fs, rates, elapsed = [], [], 0.0
        while total > 0 and elapsed < limit:
            number = min(_DRAWS_AT_ONCE, total)
            began = time.perf_counter()
            f, rate, *after = block(*after, tf.constant(number), next(seeds))
            fs.append(f.numpy())
            elapsed += time.perf_counter() - began
            rates.append(rate.numpy())
            total -= number
        return after, elapsed, fs, rates

    began = time.perf_counter()
    start = sampler.initial_state, sampler.kernel.bootstrap_results(sampler.initial_state)
    # Trace for the initial arguments and for those of later calls; these draws are not used.
    _, _, *after = block(*start, tf.constant(1), next(seeds))
    block(*after, tf.constant(1), next(seeds))
    tracing_seconds = time.perf_counter() - began
    after, warmup_seconds, _, _ = run(start, num_burnin, np.inf)
    _, elapsed, fs, rates = run(after, num_samples, seconds)
    f = np.swapaxes(np.concatenate(fs), 0, 1)
    return Draws(
        f=f.reshape(*f.shape[:2], -1),
        acceptance=float(np.mean(np.concatenate(rates))),
        seconds=elapsed,
        warmup_seconds=warmup_seconds,
        tracing_seconds=tracing_seconds,
        traces=block.experimental_get_tracing_count(),
    )


def diagnostics(draws: Draws) -> dict[str, float]:
    """
    Summaries over the data of ArviZ's bulk ESS and split R-hat, and of autocorrelations.

    ESS is computed for f and for f², everything else for f. ESS per second counts the warm-up but
    not tracing. ``lag_k`` is the mean of |ρ_k| over the data, as in the paper, and
    ``signed_lag_k`` the mean of ρ_k.
    """
    f, seconds = draws.f, draws.warmup_seconds + draws.seconds
    ess, ess_squared, rho = bulk_ess(f), bulk_ess(np.square(f)), autocorrelations(f)
    return {
        "rhat": float(_values(arviz.rhat, f, "split").max()),
        "min_ess": ess.min(),
        "median_ess": np.median(ess),
        "min_ess_squared": ess_squared.min(),
        "median_ess_squared": np.median(ess_squared),
        "min_ess_per_second": ess.min() / seconds,
        "min_ess_squared_per_second": ess_squared.min() / seconds,
        **{f"lag_{k}": np.abs(of_lag).mean() for k, of_lag in enumerate(rho, 1)},
        **{f"signed_lag_{k}": of_lag.mean() for k, of_lag in enumerate(rho, 1)},
    }


def bulk_ess(x: Array) -> Array:
    """ArviZ's bulk ESS of every datum, [N], for x [C, S, N]."""
    return _values(arviz.ess, x, "bulk")


def autocorrelations(f: Array) -> Array:
    """
    The autocorrelations ρ_k of f [C, S, N] for k = 1, ..., 10, [10, N]; NaN for k ≥ S.

    The mean over all chains is subtracted, so that draws of chains that have not mixed count as
    correlated.
    """
    f = f - f.mean(axis=(0, 1))
    variance = np.einsum("csn,csn->n", f, f)
    rho = np.full((LAGS, f.shape[2]), np.nan)
    for k in range(1, min(LAGS, f.shape[1] - 1) + 1):
        rho[k - 1] = np.einsum("csn,csn->n", f[:, :-k], f[:, k:]) / variance
    return rho


def _values(statistic: Callable[..., Any], x: Array, method: str) -> Array:
    return np.asarray(statistic(arviz.convert_to_dataset({"x": x}), method=method)["x"])
