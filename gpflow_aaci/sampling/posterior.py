"""Draws from the exact posterior as ArviZ knows them."""

from collections.abc import Generator
from contextlib import closing
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import RegressionData

from ..models import AugmentedModel, AugmentedVGP
from ..progress import progress_bar
from .chains import (
    AUXILIARY,
    Draws,
    all_at_once,
    check_finite,
    joined,
    of_auxiliary,
    one_after_the_other,
)
from .gibbs import OVER_RELAXATION, GibbsKernel, GibbsResults, SparseGibbsKernel
from .hyperparameters import HyperparameterSweep, all_parameters, to_u

if TYPE_CHECKING:
    import arviz


def sample_posterior(
    model: AugmentedModel,
    num_samples: int = 1_000,
    num_chains: int = 4,
    num_burnin: int = 100,
    seed: int = 0,
    progress: bool = True,
    *,
    data: RegressionData | None = None,
    over_relaxation: float | None = None,
    hyperparameters: bool = False,
    keep_omega: bool = False,
) -> "arviz.InferenceData":
    """
    Draws from the exact posterior by Gibbs sampling, all chains in one batch.

    Chains begin at draws from the prior of f. ``posterior`` holds ``f`` of dims (chain, draw, data,
    output) for ``AugmentedVGP``, and ``u`` of dims (chain, draw, inducing, output) for
    ``AugmentedSVGP`` (of what model, :class:`SparseGibbsKernel` says). Of ``y``, (chain, draw,
    data) and ``output`` where there are several, ``log_likelihood`` holds log p(y|f),
    ``posterior_predictive`` a draw of p(y|f) at the data (where the likelihood has a ``draw_y``)
    and ``observed_data`` the data; ``sample_stats`` the sum of log p(y|f),
    ``total_log_likelihood``; ``constant_data`` the hyperparameters that are not sampled, by their
    names. See :mod:`~gpflow_aaci.predictions` for f and y at new inputs::

        samples = sample_posterior(model)
        arviz.summary(samples, kind="diagnostics")
        arviz.loo(samples)

    :param num_samples, num_burnin: draws of every chain that are kept, and that are not.
    :param seed: the same seed gives the same draws.
    :param data: X [N, D], Y [N, P] for ``AugmentedSVGP``; ``AugmentedVGP`` has its own.
    :param over_relaxation: see :class:`GibbsKernel`, whose default it has; 0: the paper's sampler.
    :param hyperparameters: sample those that are trainable, too, u and f integrated out where that
        can be (one chain after the other, f without over-relaxation). They must have priors, Z too
        unless it is set not to be trainable: there is no default. The first chain begins at the
        model's values, the others at draws from the priors. They join ``posterior`` by their names,
        and the model keeps its own.
    :param keep_omega: ``omega`` joins ``posterior``.
    :param progress: whether a bar shows the draws.
    :raises ValueError: for bad arguments or data, before anything is drawn.
    :raises FloatingPointError: where a draw is not finite.
    """
    import arviz  # here, as it is slow to import

    for name, count, least in (
        ("num_samples", num_samples, 1),
        ("num_chains", num_chains, 1),
        ("num_burnin", num_burnin, 0),
    ):
        is_integer = isinstance(count, int | np.integer) and not isinstance(count, bool)
        if not is_integer or count < least:
            raise ValueError(f"{name} must be an integer of at least {least}. Found: {count!r}.")
    if not 0 <= seed < 2**31:
        raise ValueError(f"seed must be from 0 to 2**31 - 1. Found: {seed}.")
    is_sparse = not isinstance(model, AugmentedVGP)
    if is_sparse == (data is None):
        raise ValueError(
            "data must be given for AugmentedSVGP and not for AugmentedVGP, which has its own. "
            f"Found: {type(model).__name__}, data {'not ' if data is None else ''}given."
        )
    if over_relaxation is None:
        over_relaxation = 0.0 if hyperparameters else OVER_RELAXATION
    if hyperparameters and over_relaxation:
        raise ValueError(
            "hyperparameters can be sampled with over_relaxation 0. Found: over_relaxation "
            f"{over_relaxation}."
        )
    X, Y, _ = model.checked_batch(data)
    total = num_burnin + num_samples
    seeds = tfp.random.split_seed(tf.constant([seed, 0]), n=num_chains)
    sampled: set[int] = set()
    if hyperparameters:
        sweep = HyperparameterSweep(model, data, num_tuned=num_burnin)
        sampled = {id(parameter) for parameter in sweep.parameters.values()}
        chains = one_after_the_other(sweep, model.likelihood, (X, Y), num_chains, total, seeds)
    else:
        chains = [_batch(model, data, (X, Y), over_relaxation, num_chains, total, seeds[0])]
    constants = {
        name: parameter.numpy()
        for name, parameter in all_parameters(model).items()
        if id(parameter) not in sampled
    }

    def is_kept(name: str) -> bool:
        if name.startswith(AUXILIARY):
            return keep_omega
        return name != "f" or not is_sparse

    kept: list[Draws] = []
    with progress_bar(progress, total=total * len(chains), unit="draw") as bar:
        for chain in chains:
            blocks = []
            with closing(chain):  # which puts the model's parameters back, whatever happens
                for block in chain:
                    check_finite(block)
                    blocks.append({n: v for n, v in block.items() if is_kept(n)})
                    bar.update(len(block["log_likelihood"]))
            kept.append(joined(blocks, axis=0, start=num_burnin))
    draws = {
        name.removeprefix(AUXILIARY): np.swapaxes(v, 0, 1)
        for name, v in joined(kept, axis=1).items()
    }
    names = ["log_likelihood", "y"]
    of_y: Draws = {name: draws.pop(name) for name in names if name in draws}
    total = of_y["log_likelihood"].sum((-2, -1))
    # Columns of y; what is left of Y is given. Those of a row may have one likelihood together.
    columns = of_y.get("y", of_y["log_likelihood"]).shape[-1]
    of_y["observed"] = Y.numpy()[:, :columns]
    one_output = columns == 1
    if one_output:
        of_y = {name: values[..., 0] for name, values in of_y.items()}
    # Were an ω of fewer columns than f said to have f's, xarray would fill it up with NaN.
    width = draws["omega"].shape[-1] if "omega" in draws else model.num_latent_gps
    omega_dim = "output" if width == model.num_latent_gps else "omega_output"
    return arviz.from_dict(
        posterior=draws,
        posterior_predictive={"y": of_y["y"]} if "y" in of_y else None,
        log_likelihood={"y": of_y["log_likelihood"]},
        observed_data={"y": of_y["observed"]},
        sample_stats={"total_log_likelihood": total},
        constant_data=constants or None,
        dims={
            "f": ["data", "output"],
            "omega": ["data", omega_dim],
            "u": ["inducing", "output"],
            "y": ["data"] if one_output else ["data", "output"],
        },
    )


def _batch(
    model: AugmentedModel,
    data: RegressionData | None,
    rows: tuple[tf.Tensor, tf.Tensor],
    over_relaxation: float,
    num_chains: int,
    total: int,
    seed: tf.Tensor,
) -> Generator[Draws, None, None]:
    """Of f or u at fixed hyperparameters, by Gibbs sampling."""
    if isinstance(model, AugmentedVGP):
        kernel: GibbsKernel | SparseGibbsKernel = GibbsKernel(model, over_relaxation)
    else:
        kernel = SparseGibbsKernel(model, data, over_relaxation)
        chol = tf.linalg.cholesky(model.prior_covariance())

    def named(state: Any, results: GibbsResults) -> dict[str, tf.Tensor]:
        if isinstance(kernel, GibbsKernel):
            return {"f": state, **of_auxiliary(results.omega)}
        return {"f": state[1], "u": to_u(chol, state[0]), **of_auxiliary(results.omega)}

    return all_at_once(kernel, named, model.likelihood, rows, num_chains, total, seed)
