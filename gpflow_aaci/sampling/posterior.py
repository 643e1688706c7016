"""Draws from the exact posterior as ArviZ's ``InferenceData``."""

from collections.abc import Generator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import AnyNDArray, RegressionData

from ..progress import progress_bar
from ..validation import check_count, shown
from .chains import Draws, Sampler, check_draws, joined
from .gibbs import Gibbs
from .latents import (
    AnyModel,
    DeepModel,
    FullGP,
    all_parameters,
    check_sampled_model,
    mixing_of,
    rows_of_model,
)

if TYPE_CHECKING:
    import arviz


def sample_posterior(
    model: AnyModel,
    data: RegressionData | None = None,
    sampler: Sampler | None = None,
    *,
    num_samples: int = 1_000,
    num_chains: int = 4,
    num_burnin: int = 100,
    seed: int = 0,
    progress: bool = True,
) -> "arviz.InferenceData":
    """
    Draw from the exact posterior, by Gibbs sampling or by another sampler.

    Chains begin at draws from the prior of f; where they begin in the hyperparameters and in a deep
    GP's hidden layers, the sampler says. The result has these groups:

    - ``posterior``: ``f`` (chain, draw, data, output) for models that keep their data, or ``u``
      (chain, draw, inducing, output) for models with inducing variables, for which
      :class:`~gpflow_aaci.sampling.SparseGibbsKernel` defines the exact posterior; and each
      sampled hyperparameter under its name in the model. Where a kernel mixes latent GPs, ``u`` is
      of these (with ``latent`` as the last dimension), in models that keep their data, too.
    - ``log_likelihood``: log p(y|f) as ``y`` (chain, draw, data), with ``output`` as a last
      dimension if y has several columns.
    - ``posterior_predictive``: draws from p(y|f) at the data, of the same shape, if the likelihood
      has a ``draw_y``; ``observed_data``: the data.
    - ``sample_stats``: the sum of log p(y|f) as ``total_log_likelihood`` (chain, draw).
    - ``constant_data``: each hyperparameter that is not sampled, under its name in the model.

    The functions in :mod:`~gpflow_aaci.predictions` predict f and y at new inputs from them::

        samples = sample_posterior(model)
        arviz.summary(samples, kind="diagnostics")
        arviz.loo(samples)

    Other samplers are in :mod:`~gpflow_aaci.contrib`: ``HyperparameterGibbs`` and
    ``HyperparameterHMC`` draw hyperparameters and inducing points too. ``HyperparameterHMC``,
    ``EllipticalSlices`` and ``HMC`` accept GPflow's own ``VGP``, ``GPMC`` and ``SVGP`` with any
    likelihood. ``SGHMC`` uses minibatches, and accepts ``contrib.DeepGP``, too::

        model = gpflow.models.VGP((X, Y), kernel, gpflow.likelihoods.Poisson())
        samples = sample_posterior(model, sampler=contrib.HMC(), num_burnin=500)

    :param data: X [N, D] and Y [N, P], all training data, for models with inducing variables; None
        for models that keep their own data.
    :param sampler: a sampling method with its options. Default: ``Gibbs()``, for ``AugmentedVGP``
        and ``AugmentedSVGP``.
    :param num_samples: the number of draws that each chain returns.
    :param num_chains: the number of chains.
    :param num_burnin: the number of first draws of each chain that are discarded.
    :param seed: the same seed gives the same draws.
    :param progress: whether to show a progress bar.
    :raises ValueError: for bad arguments or data, before anything is drawn.
    :raises FloatingPointError: if a draw is not finite.
    """
    check_count("num_samples", num_samples, 1)
    check_count("num_chains", num_chains, 1)
    check_count("num_burnin", num_burnin, 0)
    if not (isinstance(seed, int | np.integer) and 0 <= seed < 2**31):
        raise ValueError(f"seed must be an integer from 0 to 2**31 - 1. Found: {shown(seed)}.")
    sampler = Gibbs() if sampler is None else sampler
    if isinstance(sampler, type) or not isinstance(sampler, Sampler):
        raise ValueError(
            "sampler must be a sampler object such as sampling.Gibbs() or contrib.HMC(). "
            f"Found: {shown(sampler)}."
        )
    if not isinstance(model, DeepModel):  # which only samplers of deep models take
        check_sampled_model(model, may_mix=isinstance(sampler, Gibbs))
    _, Y = rows_of_model(model, data)
    seeds = tfp.random.split_seed(tf.constant([seed, 0]), n=num_chains)
    chains = sampler.chains(model, data, seeds, num_burnin, num_samples)
    draws = _drawn(model, chains, num_burnin, num_samples, progress)
    return _as_inference_data(model, draws, Y.numpy())


def _drawn(
    model: AnyModel,
    chains: Sequence[Generator[Draws, None, None]],
    num_burnin: int,
    num_samples: int,
    progress: bool,
) -> Draws:
    """Map each name to its draws after the burn-in, [chain, draw, ...]."""
    after_burnin: list[Draws] = []
    total = (num_burnin + num_samples) * len(chains)
    with progress_bar(progress, total=total, unit="draw") as bar:
        for chain in chains:
            blocks = []
            with closing(chain):  # this gives the model its parameters back, whatever happens
                for block in chain:
                    check_draws(block)
                    if not isinstance(model, FullGP):
                        # Predictions need only u, and f at all data may not fit into memory.
                        block.pop("f", None)
                    blocks.append(block)
                    bar.update(len(next(iter(block.values()))))
            after_burnin.append(joined(blocks, axis=0, start=num_burnin))
    return {name: np.swapaxes(v, 0, 1) for name, v in joined(after_burnin, axis=1).items()}


def _as_inference_data(model: AnyModel, draws: Draws, Y: AnyNDArray) -> "arviz.InferenceData":
    import arviz  # not at the top of the module, since it is slow to import

    by_name = all_parameters(model)
    sampled = {id(parameter) for name, parameter in by_name.items() if name in draws}
    constants = {name: p.numpy() for name, p in by_name.items() if id(p) not in sampled}
    of_y = _groups_of_y(draws, Y)
    at = "data" if isinstance(model, FullGP) else "inducing"
    return arviz.from_dict(
        posterior=draws,
        constant_data=constants or None,
        **of_y,
        dims={
            "f": ["data", "output"],
            "u": [at, "output" if mixing_of(model) is None else "latent"],
            "included": ["kernel.lengthscales_dim_0"],  # so that one can be masked by the other
            "y": ["data", "output"][: np.ndim(of_y["observed_data"]["y"])] if of_y else [],
        },
    )


def _groups_of_y(draws: Draws, Y: AnyNDArray) -> dict[str, Any]:
    """
    Move what concerns y from ``draws`` into ArviZ's groups.

    The result is empty if the sampler used minibatches.
    """
    if "log_likelihood" not in draws:
        return {}
    names = {"log_likelihood": "log_likelihood", "y": "posterior_predictive"}
    of_y: Draws = {group: draws.pop(name) for name, group in names.items() if name in draws}
    total = of_y["log_likelihood"].sum((-2, -1))
    # The first columns of Y are observations, the others are given; all columns of a row may have
    # one likelihood together.
    columns = of_y.get("posterior_predictive", of_y["log_likelihood"]).shape[-1]
    of_y["observed_data"] = Y[:, :columns]
    groups = {group: {"y": v[..., 0] if columns == 1 else v} for group, v in of_y.items()}
    groups["sample_stats"] = {"total_log_likelihood": total}
    return groups
