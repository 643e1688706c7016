"""Draws from the exact posterior as ArviZ knows them."""

from contextlib import closing
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import AnyNDArray, RegressionData

from ..models import AugmentedModel, AugmentedSVGP, AugmentedVGP
from ..progress import progress_bar
from ..validation import check_count, check_one_of
from .chains import (
    AUXILIARY,
    Draws,
    Named,
    all_at_once,
    check_finite,
    joined,
    of_auxiliary,
    one_after_the_other,
)
from .elliptical import EllipticalSliceKernel, HamiltonianKernel, WhitenedKernel
from .gibbs import OVER_RELAXATION, GibbsKernel, SparseGibbsKernel
from .hyperparameters import HyperparameterSweep, all_parameters, sampled_parameters
from .stochastic import Objective, StochasticChains
from .whitened import AnyModel, FullGP, check_sampled_model, checked_rows, prior_covariance, to_u

if TYPE_CHECKING:
    import arviz

Method = Literal["gibbs", "elliptical", "hmc", "sghmc"]

_TUNED_PART = 0.8  # of the burn-in; the rest of it forgets the steps that were tried


def sample_posterior(
    model: AnyModel,
    num_samples: int = 1_000,
    num_chains: int = 4,
    num_burnin: int = 100,
    seed: int = 0,
    progress: bool = True,
    *,
    data: RegressionData | None = None,
    method: Method = "gibbs",
    over_relaxation: float | None = None,
    hyperparameters: bool = False,
    keep_omega: bool = False,
    batch_size: int | None = None,
    steps_per_draw: int | None = None,
    objective: Objective | None = None,
    step_size: float | None = None,
) -> "arviz.InferenceData":
    """
    Draws from the exact posterior by Gibbs sampling or another ``method``, chains in one batch.

    Chains begin at draws from the prior of f. ``posterior`` holds ``f`` of dims (chain, draw, data,
    output) for models that keep their data, and ``u`` of dims (chain, draw, inducing, output) for
    those with inducing variables (of what model, :class:`SparseGibbsKernel` says). Of ``y``,
    (chain, draw, data) and ``output`` where there are several, ``log_likelihood`` holds log p(y|f),
    ``posterior_predictive`` a draw of p(y|f) at the data (where the likelihood has a ``draw_y``)
    and ``observed_data`` the data; ``sample_stats`` the sum of log p(y|f),
    ``total_log_likelihood``; ``constant_data`` the hyperparameters that are not sampled, by their
    names. See :mod:`~gpflow_aaci.predictions` for f and y at new inputs::

        samples = sample_posterior(model)
        arviz.summary(samples, kind="diagnostics")
        arviz.loo(samples)

    Likelihoods without an augmentation, in GPflow's own ``VGP``, ``GPMC`` or ``SVGP``::

        model = gpflow.models.VGP((X, Y), kernel, gpflow.likelihoods.Poisson())
        samples = sample_posterior(model, num_burnin=500, method="hmc")

    :param num_samples, num_burnin: draws of every chain that are kept, and that are not.
    :param seed: the same seed gives the same draws.
    :param data: X [N, D], Y [N, P], all of them, for models with inducing variables; the others
        keep their own.
    :param method: "gibbs" for ``AugmentedVGP`` and ``AugmentedSVGP``; for those and GPflow's own
        models "elliptical" slices (:class:`EllipticalSliceKernel`), or "hmc" with 10 leapfrog steps
        whose size is tuned in the first four fifths of the burn-in (:class:`HamiltonianKernel`).
        "sghmc" (:class:`SGHMC`), of models with inducing variables, goes by minibatches: for many
        data, approximately, with u and the hyperparameters alone in what is returned.
    :param over_relaxation: of Gibbs sampling: see :class:`GibbsKernel`, whose default it has;
        0: the paper's sampler.
    :param hyperparameters: sample those that are trainable, too, u and f integrated out where that
        can be (one chain after the other, f without over-relaxation). They must have priors, Z too
        unless it is set not to be trainable: there is no default (of Z, see
        :mod:`~gpflow_aaci.priors`). The first chain begins at the model's values, the others at
        draws from the priors. They join ``posterior`` by their names, and the model keeps its own.
        With 50 inducing points and a lengthscale for each of 5 inputs, a sweep of "gibbs" takes
        0.04 s of one core at 500 rows and 0.7 at 5,000, after 9 of compiling; a draw of "sghmc" of
        13 inputs and 400 rows 0.05 s.
    :param keep_omega: ``omega`` joins ``posterior``.
    :param batch_size, steps_per_draw: of "sghmc": rows of every step (1,000 unless given), and
        steps for every draw (50).
    :param step_size: of "sghmc", 0.01 unless given (:class:`SGHMC`): the larger, the sooner Z is
        far from where it began, and the larger the error of what is drawn.
    :param objective: of "sghmc": "predictive", the default, draws from the posterior, with
        log E p(y|f) given u; "variational", with E log p(y|f), from the q(u, θ) of any shape whose
        ELBO is greatest.
    :param progress: whether a bar shows the draws.
    :raises ValueError: for bad arguments or data, before anything is drawn.
    :raises FloatingPointError: where a draw is not finite.
    """
    import arviz  # here, as it is slow to import

    for name, count, least in (
        ("num_samples", num_samples, 1),
        ("num_chains", num_chains, 1),
        ("num_burnin", num_burnin, 1 if method == "sghmc" else 0),  # where it learns its scale
    ):
        check_count(name, count, least)
    if not (isinstance(seed, int | np.integer) and 0 <= seed < 2**31):
        raise ValueError(f"seed must be an integer from 0 to 2**31 - 1. Found: {seed!r}.")
    of_sghmc = _given(
        batch_size=batch_size,
        steps_per_draw=steps_per_draw,
        step_size=step_size,
        objective=objective,
    )
    of_gibbs = _given(over_relaxation=over_relaxation, keep_omega=keep_omega or None)
    _check_method(model, method, hyperparameters, {"gibbs": of_gibbs, "sghmc": of_sghmc})
    if over_relaxation is None:
        over_relaxation = 0.0 if hyperparameters else OVER_RELAXATION
    rows = checked_rows(model, data)
    is_sparse = not isinstance(model, FullGP)
    total = num_burnin + num_samples
    seeds = tfp.random.split_seed(tf.constant([seed, 0]), n=num_chains)
    sampled = sampled_parameters(model) if hyperparameters else {}
    if method == "sghmc":
        sghmc = StochasticChains(model, rows, sampled, num_burnin, **of_sghmc)
        chains = [sghmc.chain(own, number > 0, total) for number, own in enumerate(seeds)]
    elif hyperparameters:
        sweep = HyperparameterSweep(model, data, num_tuned=num_burnin)
        chains = one_after_the_other(sweep, model.likelihood, rows, num_chains, total, seeds)
    else:
        if method == "gibbs":
            kernel, named = _gibbs(model, data, over_relaxation)
        else:
            kernel, named = _whitened(model, data, method, num_burnin)
        chains = [all_at_once(kernel, named, model.likelihood, rows, num_chains, total, seeds[0])]
    constants = {
        name: parameter.numpy()
        for name, parameter in all_parameters(model).items()
        if id(parameter) not in {id(own) for own in sampled.values()}
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
                    bar.update(len(next(iter(block.values()))))
            kept.append(joined(blocks, axis=0, start=num_burnin))
    draws = {
        name.removeprefix(AUXILIARY): np.swapaxes(v, 0, 1)
        for name, v in joined(kept, axis=1).items()
    }
    of_y = _groups_of_y(draws, rows[1].numpy())
    # Were an ω of fewer columns than f said to have f's, xarray would fill it up with NaN.
    width = draws["omega"].shape[-1] if "omega" in draws else model.num_latent_gps
    omega_dim = "output" if width == model.num_latent_gps else "omega_output"
    return arviz.from_dict(
        posterior=draws,
        constant_data=constants or None,
        **of_y,
        dims={
            "f": ["data", "output"],
            "omega": ["data", omega_dim],
            "u": ["inducing", "output"],
            "y": ["data", "output"][: np.ndim(of_y["observed_data"]["y"])] if of_y else [],
        },
    )


def _groups_of_y(draws: Draws, Y: AnyNDArray) -> dict[str, Any]:
    """ArviZ's groups of what is known of y, which leaves ``draws``; none after minibatches."""
    if "log_likelihood" not in draws:
        return {}
    of_y: Draws = {name: draws.pop(name) for name in ("log_likelihood", "y") if name in draws}
    total = of_y["log_likelihood"].sum((-2, -1))
    # Columns of y; what is left of Y is given. Those of a row may have one likelihood together.
    columns = of_y.get("y", of_y["log_likelihood"]).shape[-1]
    of_y["observed"] = Y[:, :columns]
    if columns == 1:
        of_y = {name: values[..., 0] for name, values in of_y.items()}
    groups: dict[str, Any] = {
        "log_likelihood": {"y": of_y["log_likelihood"]},
        "observed_data": {"y": of_y["observed"]},
        "sample_stats": {"total_log_likelihood": total},
    }
    if "y" in of_y:
        groups["posterior_predictive"] = {"y": of_y["y"]}
    return groups


def _given(**arguments: Any) -> dict[str, Any]:
    return {name: value for name, value in arguments.items() if value is not None}


def _check_method(
    model: AnyModel, method: str, hyperparameters: bool, of_methods: dict[str, dict[str, Any]]
) -> None:
    """
    :param of_methods: what was given that is of one method alone.
    """
    check_one_of("method", method, get_args(Method))
    check_sampled_model(model)
    if method == "gibbs" and not isinstance(model, AugmentedVGP | AugmentedSVGP):
        raise ValueError(
            'method must be "elliptical" or "hmc" where the likelihood has no augmentation: '
            f'only AugmentedVGP and AugmentedSVGP have. Found: "gibbs", {type(model).__name__}.'
        )
    for own, given in of_methods.items():
        if given and method != own:
            names = ", ".join(given)
            raise ValueError(f'method must be "{own}" where {names} is given. Found: {method!r}.')
    if hyperparameters and method not in ("gibbs", "sghmc"):
        raise ValueError(
            f'method must be "gibbs" or "sghmc" with hyperparameters=True. Found: {method!r}.'
        )
    over_relaxation = of_methods["gibbs"].get("over_relaxation")
    if hyperparameters and over_relaxation:
        raise ValueError(
            f"over_relaxation must be 0 with hyperparameters=True. Found: {over_relaxation}."
        )
    if method == "sghmc" and isinstance(model, FullGP):
        raise ValueError(
            'model must have inducing variables with method="sghmc". '
            f"Found: {type(model).__name__}."
        )


def _gibbs(
    model: AugmentedModel, data: RegressionData | None, over_relaxation: float
) -> tuple[tfp.mcmc.TransitionKernel, Named]:
    """Of f or u at fixed hyperparameters."""
    if isinstance(model, AugmentedVGP):
        return GibbsKernel(model, over_relaxation), lambda f, results: {
            "f": f,
            **of_auxiliary(results.omega),
        }
    chol = tf.linalg.cholesky(prior_covariance(model))
    return SparseGibbsKernel(model, data, over_relaxation), lambda state, results: {
        "f": state[1],
        "u": to_u(chol, state[0]),
        **of_auxiliary(results.omega),
    }


def _whitened(
    model: AnyModel, data: RegressionData | None, method: Method, num_burnin: int
) -> tuple[tfp.mcmc.TransitionKernel, Named]:
    if method == "elliptical":
        kernel: WhitenedKernel = EllipticalSliceKernel(model, data)
    else:
        kernel = HamiltonianKernel(model, data, num_adaptation_steps=int(_TUNED_PART * num_burnin))
    if isinstance(model, FullGP):
        return kernel, lambda state, results: {"f": kernel.f(state)}
    return kernel, lambda state, results: {"f": kernel.f(state), "u": kernel.u(state)}
