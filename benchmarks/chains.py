"""Chains drawn against the clock, and how much they are worth."""

import itertools
import time
from typing import Any, NamedTuple

import arviz
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from .samplers import Sampler, acceptance

Array = np.ndarray

_DRAWS_AT_ONCE = 25  # between two looks at the clock
LAGS = 10


class Draws(NamedTuple):
    """What a sampler has drawn, and in how many seconds."""

    f: Array  # [C, S, N], the outputs of multi-output models side by side
    acceptance: float  # mean probability after the warm-up; NaN where all is accepted
    seconds: float  # after the warm-up
    warmup_seconds: float
    tracing_seconds: float
    traces: int


def draw(sampler: Sampler, num_burnin: int, num_samples: int, seconds: float, seed: int) -> Draws:
    """``num_burnin`` draws that are dropped, then ``num_samples`` or what ``seconds`` allow."""

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
    began = time.perf_counter()
    state, results = sampler.initial_state, sampler.kernel.bootstrap_results(sampler.initial_state)
    # Twice, the second time from the first's results, as always later. The draws are not used.
    _, _, *after = block(state, results, tf.constant(1), next(seeds))
    block(*after, tf.constant(1), next(seeds))
    tracing_seconds = time.perf_counter() - began

    def run(total: int, limit: float) -> tuple[list[Array], list[Array], float]:
        nonlocal state, results
        fs, accepted, elapsed = [], [], 0.0
        while total > 0 and elapsed < limit:
            number = min(_DRAWS_AT_ONCE, total)
            began = time.perf_counter()
            f, rate, state, results = block(state, results, tf.constant(number), next(seeds))
            fs.append(f.numpy())
            elapsed += time.perf_counter() - began
            accepted.append(rate.numpy())
            total -= number
        return fs, accepted, elapsed

    _, _, warmup_seconds = run(num_burnin, np.inf)
    fs, accepted, elapsed = run(num_samples, seconds)
    f = np.swapaxes(np.concatenate(fs), 0, 1)
    return Draws(
        f.reshape(*f.shape[:2], -1),
        float(np.mean(np.concatenate(accepted))),
        elapsed,
        warmup_seconds,
        tracing_seconds,
        block.experimental_get_tracing_count(),
    )


def diagnostics(draws: Draws) -> dict[str, float]:
    """
    Of f and f² of every datum: ArviZ's bulk ESS and split R-hat; autocorrelations, chains pooled.

    ESS per second counts the seconds of the warm-up, too, and none of tracing. ``lag_k`` is the
    mean over the data of |ρ_k|, as in the paper, ``signed_lag_k`` that of ρ_k.
    """
    f = draws.f
    seconds = draws.warmup_seconds + draws.seconds
    ess, ess_squared = bulk_ess(f), bulk_ess(np.square(f))
    rho = autocorrelations(f)
    return {
        "rhat": float(_values(arviz.rhat(_dataset(f), method="split")).max()),
        "min_ess": ess.min(),
        "median_ess": np.median(ess),
        "min_ess_squared": ess_squared.min(),
        "median_ess_squared": np.median(ess_squared),
        "min_ess_per_second": ess.min() / seconds,
        "min_ess_squared_per_second": ess_squared.min() / seconds,
        **_by_lag("lag", np.abs(rho).mean(axis=1)),
        **_by_lag("signed_lag", rho.mean(axis=1)),
    }


def bulk_ess(x: Array) -> Array:
    """ArviZ's, [N] for [C, S, N]."""
    return _values(arviz.ess(_dataset(x), method="bulk"))


def autocorrelations(f: Array) -> Array:
    """
    ρ_k for k = 1, ..., 10, NaN beyond the draws; [10, N] for [C, S, N].

    Around the mean of all chains, so that chains apart from each other count as correlated.
    """
    f = f - f.mean(axis=(0, 1))
    variance = np.einsum("csn,csn->n", f, f)
    rho = np.full((LAGS, f.shape[2]), np.nan)
    for k in range(1, min(LAGS, f.shape[1] - 1) + 1):
        rho[k - 1] = np.einsum("csn,csn->n", f[:, :-k], f[:, k:]) / variance
    return rho


def _by_lag(name: str, values: Array) -> dict[str, float]:
    return {f"{name}_{k}": value for k, value in enumerate(values, start=1)}


def _dataset(x: Array) -> Any:
    return arviz.convert_to_dataset({"x": x})


def _values(dataset: Any) -> Array:
    return np.asarray(dataset["x"])
