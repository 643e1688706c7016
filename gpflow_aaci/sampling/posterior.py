"""Draws from the exact posterior as ArviZ knows them."""

import contextlib
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import AnyNDArray, RegressionData

from ..likelihoods import AugmentedLikelihood
from ..models import AugmentedModel, AugmentedVGP
from ..progress import progress_bar
from .gibbs import OVER_RELAXATION, GibbsKernel, GibbsResults, SparseGibbsKernel
from .hyperparameters import make_sweep, sampled_parameters

if TYPE_CHECKING:
    import arviz

_DRAWS_AT_ONCE = 100  # between two updates of the progress bar
_AUXILIARY = "auxiliary "  # begins the names of what Gibbs draws besides
_OF_Y = 1  # folded into the seed of f: draws of y leave those of f as they are

Draws = dict[str, AnyNDArray]  # by name, [draw, chain, ...]


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
    ``total_log_likelihood``. See
    :mod:`~gpflow_aaci.predictions` for f and y at new inputs::

        samples = sample_posterior(model)
        arviz.summary(samples, kind="diagnostics")
        arviz.loo(samples)

    :param num_samples, num_burnin: draws of every chain that are kept, and that are not.
    :param seed: the same seed gives the same draws.
    :param data: X [N, D], Y [N, P] for ``AugmentedSVGP``; ``AugmentedVGP`` has its own.
    :param over_relaxation: see :class:`GibbsKernel`, whose default it has; 0: the paper's sampler.
    :param hyperparameters: sample those that are trainable, too (``AugmentedVGP`` only; one chain
        after the other, f without over-relaxation). They must have priors; all chains begin at the
        model's values. They join ``posterior`` by their names, and the model keeps its own.
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
    if hyperparameters and (is_sparse or over_relaxation):
        raise ValueError(
            "hyperparameters can be sampled for AugmentedVGP, with over_relaxation 0. Found: "
            f"{type(model).__name__}, over_relaxation {over_relaxation}."
        )
    X, Y, _ = model.checked_batch(data)
    total = num_burnin + num_samples
    seeds = tfp.random.split_seed(tf.constant([seed, 0]), n=num_chains)
    if hyperparameters:
        draws_of_one = _hyperparameter_draws(model, Y)
        chains = [_hyperparameter_blocks(model, draws_of_one, total, s) for s in seeds]
    elif is_sparse:
        kernel = SparseGibbsKernel(model, data, over_relaxation)
        chains = [_blocks(kernel, model, X, Y, num_chains, total, seeds[0])]
    else:
        kernel = GibbsKernel(model, over_relaxation)
        chains = [_blocks(kernel, model, X, Y, num_chains, total, seeds[0])]

    kept: list[Draws] = []
    with progress_bar(progress, total=total * len(chains), unit="draw") as bar:
        for chain in chains:
            blocks = []
            with closing(chain):  # which puts the model's parameters back, whatever happens
                for block in chain:
                    _check_finite(block)
                    names = [n for n in block if keep_omega or not n.startswith(_AUXILIARY)]
                    blocks.append({name: block[name] for name in names})
                    bar.update(len(block["log_likelihood"]))
            kept.append(_joined(blocks, axis=0, start=num_burnin))
    draws = {
        name.removeprefix(_AUXILIARY): np.swapaxes(v, 0, 1)
        for name, v in _joined(kept, axis=1).items()
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
        dims={
            "f": ["data", "output"],
            "omega": ["data", omega_dim],
            "u": ["inducing", "output"],
            "y": ["data"] if one_output else ["data", "output"],
        },
    )


def _of_y(
    likelihood: AugmentedLikelihood, X: tf.Tensor, f: tf.Tensor, Y: tf.Tensor, seed: tf.Tensor
) -> dict[str, tf.Tensor]:
    """log p(y|f) and, where the likelihood draws, y ~ p(y|f), [..., N, P]."""
    of_y = {"log_likelihood": likelihood.pointwise_log_prob(X, f, Y)}
    with contextlib.suppress(NotImplementedError):
        of_y["y"] = likelihood.draw_y_like(X, f, Y, seed)
    return of_y


def _named(auxiliary: Any) -> dict[str, tf.Tensor]:
    """One ω, or several variables by their names."""
    several = auxiliary if isinstance(auxiliary, Mapping) else {"omega": auxiliary}
    return {_AUXILIARY + name: value for name, value in several.items()}


def _blocks(
    kernel: GibbsKernel | SparseGibbsKernel,
    model: AugmentedModel,
    X: tf.Tensor,
    Y: tf.Tensor,
    num_chains: int,
    total: int,
    seed: tf.Tensor,
) -> Generator[Draws, None, None]:
    """[draw, chain, ...] of all chains at once, some draws at a time."""
    is_sparse = isinstance(kernel, SparseGibbsKernel)
    seeds = tfp.random.split_seed(seed, n=1 + -(-total // _DRAWS_AT_ONCE))
    state = kernel.initial_state(num_chains, seeds[0])
    chol = model.project(X[:1]).chol if is_sparse else None

    def trace(state: Any, results: GibbsResults) -> dict[str, tf.Tensor]:
        if not is_sparse:
            return {"f": state, **_named(results.omega)}
        u = tf.linalg.matrix_transpose(tf.linalg.matvec(chol, tf.linalg.matrix_transpose(state[0])))
        return {"u": u, **_named(results.omega), "f": state[1]}

    @tf.function(autograph=False, reduce_retracing=True)
    def draw(state: Any, number: tf.Tensor, seed: tf.Tensor) -> tuple[Any, dict[str, tf.Tensor]]:
        run = tfp.mcmc.sample_chain(
            number,
            state,
            kernel=kernel,
            trace_fn=trace,
            return_final_kernel_results=True,
            seed=seed,
        )
        traced = dict(run.trace)
        f = traced.pop("f") if is_sparse else traced["f"]
        traced |= _of_y(
            model.likelihood, X, f, Y, tf.random.experimental.stateless_fold_in(seed, _OF_Y)
        )
        return tf.nest.map_structure(lambda s: s[-1], run.all_states), traced

    for block, block_seed in enumerate(seeds[1:]):
        number = min(_DRAWS_AT_ONCE, total - block * _DRAWS_AT_ONCE)
        state, traced = draw(state, tf.constant(number), block_seed)
        yield {name: value.numpy() for name, value in traced.items()}


def _hyperparameter_draws(
    model: AugmentedVGP, Y: tf.Tensor
) -> Callable[[tf.Tensor, tf.Tensor], Mapping[str, tf.Tensor]]:
    """(f [1, N, L], seeds [S, 2]) → S draws of one chain; compiled once for all chains."""
    sweep, parameters = make_sweep(model), sampled_parameters(model)

    X, _, _ = model.checked_batch()

    def described(f: tf.Tensor, omega: Any, seed: tf.Tensor) -> dict[str, tf.Tensor]:
        of_y = _of_y(
            model.likelihood, X, f, Y, tf.random.experimental.stateless_fold_in(seed, _OF_Y)
        )
        values = {name: tf.identity(p)[None] for name, p in parameters.items()}
        return {"f": f, **_named(omega), **of_y, **values}

    def draws(f: tf.Tensor, seeds: tf.Tensor) -> Mapping[str, tf.Tensor]:
        return tf.scan(
            lambda last, seed: described(*sweep(last["f"], Y, seed), seed),
            seeds,
            initializer=described(f, GibbsKernel(model).bootstrap_results(f).omega, seeds[0]),
        )

    return tf.function(draws, autograph=False, reduce_retracing=True)


def _hyperparameter_blocks(
    model: AugmentedVGP,
    draws: Callable[[tf.Tensor, tf.Tensor], Mapping[str, tf.Tensor]],
    total: int,
    seed: tf.Tensor,
) -> Generator[Draws, None, None]:
    """[draw, 1, ...] of one chain, some at a time; the parameters are put back at the end."""
    variables = [p.unconstrained_variable for p in sampled_parameters(model).values()]
    before = [variable.numpy() for variable in variables]
    seeds = tfp.random.split_seed(seed, n=1 + total)
    f = GibbsKernel(model).initial_state(1, seeds[0])
    try:
        for start in range(1, 1 + total, _DRAWS_AT_ONCE):
            block = draws(f, tf.stack(seeds[start : start + _DRAWS_AT_ONCE]))
            f = block["f"][-1]
            yield {name: value.numpy() for name, value in block.items()}
    except tf.errors.InvalidArgumentError as error:
        raise FloatingPointError(
            f"A draw of the hyperparameters is beyond floating point: {error.message}"
        ) from error
    finally:
        for variable, value in zip(variables, before, strict=True):
            variable.assign(value)


def _joined(parts: Sequence[Draws], axis: int, start: int = 0) -> Draws:
    return {name: np.concatenate([p[name] for p in parts], axis)[start:] for name in parts[0]}


def _check_finite(draws: Draws) -> None:
    for name, values in draws.items():
        wrong = ~np.isfinite(values)
        if wrong.any():
            raise FloatingPointError(
                f"{name}: {wrong.sum()} of {wrong.size} values of a block of draws are not finite. "
                "Look at the hyperparameters: is the kernel matrix far from singular?"
            )
