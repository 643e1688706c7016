r"""
Gibbs sweeps that sample the hyperparameters too, those of inducing points among them.

Three blocks, each with what is in the way integrated out:

    likelihood's parameters | f  (ω integrated out: that is p(y|f)),  then ω | f;
    kernel and mean function | ω  (f and u integrated out: given ω all is Gaussian);
    Z | ω  (likewise),  then u, f | ω.

The first two move by slices, the third by one step of HMC (:mod:`~gpflow_aaci.sampling.moves`).
GPflow's parameters hold one value, so a sweep is of one chain.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow import Parameter
from gpflow.base import RegressionData
from gpflow.utilities import parameter_dict

from ..graphs import compiled
from ..models import AugmentedModel, AugmentedVGP
from .conditionals import (
    Observed,
    f_given_omega,
    f_given_v_omega,
    log_evidence_given_omega,
    log_sparse_evidence_given_omega,
    prior_at_data,
    pseudo_observations,
    sparse_prior_at_data,
    v_given_omega,
)
from .gibbs import GibbsKernel, SparseGibbsKernel
from .moves import HamiltonianMove, slice_move, with_priors
from .starts import Starts
from .whitened import AnyModel, prior_covariance, to_u

Latents = dict[str, tf.Tensor]  # "f" [1, N, L] and, of inducing variables, "u" [1, M, L]


class GivenOmega(NamedTuple):
    """What a model says once ω has made it Gaussian, at its parameters as they are."""

    log_evidence: Callable[[Observed], tf.Tensor]  # []
    draw: Callable[[Observed, Any], Latents]


def all_parameters(model: AnyModel) -> dict[str, Parameter]:
    """All but q's (GPMC's v), trainable or not, by every name that they have in the model."""
    of_q = {id(getattr(model, name, None)) for name in ("q_mu", "q_sqrt", "V")}
    return {
        name.removeprefix("."): parameter
        for name, parameter in parameter_dict(model).items()
        if isinstance(parameter, Parameter) and id(parameter) not in of_q  # data may be variables
    }


def sampled_parameters(model: AnyModel) -> dict[str, Parameter]:
    """
    The trainable parameters but for q's, by their names in the model.

    :raises ValueError: where one has no prior (its posterior may not be proper) or a value that
        its prior excludes, or there are none.
    """
    seen: set[int] = set()
    found = {}
    for name, parameter in all_parameters(model).items():
        if parameter.trainable and id(parameter) not in seen:  # shared: several names, and one
            seen.add(id(parameter))
            found[name] = parameter
    without = [name for name, parameter in found.items() if parameter.prior is None]
    if without:
        raise ValueError(
            "hyperparameters can be sampled where every trainable one has a prior. Found none on: "
            f"{', '.join(without)}. Set its .prior, or gpflow.set_trainable(..., False)."
        )
    if not found:
        raise ValueError("hyperparameters to be sampled must be trainable. Found: none that is.")
    for name, parameter in found.items():
        log_prior = parameter.log_prior_density().numpy()
        if not np.isfinite(log_prior):  # slices would look for its level for ever
            raise ValueError(
                f"{name} must have a value that its prior allows. Found: {parameter.numpy()}, "
                f"of log-density {log_prior}."
            )
    return found


class HyperparameterSweep:
    """
    (f [1, N, L], Y [N, P], seed) -> (latents, ω), compiled, which moves the model's parameters.

    :meth:`restart` begins a chain, :meth:`put_back` ends the last one.
    """

    def __init__(
        self, model: AugmentedModel, data: RegressionData | None = None, num_tuned: int = 0
    ) -> None:
        """
        :param num_tuned: sweeps of every chain in which the step of Z is tuned.
        :raises ValueError: as :func:`sampled_parameters`, for parameters that the likelihood shares
            with the prior of f, and for latent GPs that ω couples.
        """
        if model.in_turn:
            raise ValueError(
                "hyperparameters can be sampled where the latent GPs are independent given ω. "
                f"Found: {type(model.likelihood).__name__}."
            )
        self.parameters = sampled_parameters(model)
        self._model, self._data = model, data
        self._starts = Starts(model, self.parameters)
        self._kernel()  # which refuses what it cannot sample
        X, _, _ = model.checked_batch(data)
        likelihood = model.likelihood
        of_likelihood, of_prior, of_Z = _blocks(model, self.parameters)
        self._move_Z = HamiltonianMove(of_Z, num_tuned)
        given = _full(model, X) if isinstance(model, AugmentedVGP) else _sparse(model, X)

        def sweep(f: tf.Tensor, Y: tf.Tensor, seed: tf.Tensor) -> tuple[Latents, Any]:
            seeds = tfp.random.split_seed(seed, n=5, salt="hyperparameter_gibbs")
            slice_move(
                lambda: tf.reduce_sum(likelihood.log_prob(X, f[0], Y)), of_likelihood, seeds[0]
            )
            omega = likelihood.full_conditional(X, f, Y).sample(seed=seeds[1])
            observed = pseudo_observations(likelihood, X, omega, Y)
            # Z's prior may be of the kernel (Determinantal).
            slice_move(with_priors(lambda: given.log_evidence(observed), of_Z), of_prior, seeds[2])
            self._move_Z(lambda: given.log_evidence(observed), seeds[3])
            return given.draw(observed, seeds[4]), omega

        self._sweep = compiled(sweep)

    def __call__(self, f: tf.Tensor, Y: tf.Tensor, seed: tf.Tensor) -> tuple[Latents, Any]:
        latents, omega = self._sweep(f, Y, seed)
        return latents, omega

    def restart(self, seed: tf.Tensor, dispersed: bool) -> tuple[Latents, Any]:
        """
        Latents drawn from the prior, and an ω of their shapes.

        :param dispersed: as in :meth:`~gpflow_aaci.sampling.starts.Starts.restart`.
        """
        seeds = tfp.random.split_seed(seed, n=2, salt="restart")
        self._move_Z.restart()
        self._starts.restart(seeds[1], dispersed)
        kernel = self._kernel()
        state = kernel.initial_state(1, seeds[0])
        omega = kernel.bootstrap_results(state).omega
        if isinstance(kernel, GibbsKernel):
            return {"f": state}, omega
        chol = tf.linalg.cholesky(prior_covariance(self._model))
        return {"f": state[1], "u": to_u(chol, state[0])}, omega

    def put_back(self) -> None:
        self._starts.put_back()

    def _kernel(self) -> GibbsKernel | SparseGibbsKernel:
        if isinstance(self._model, AugmentedVGP):
            return GibbsKernel(self._model, 0.0)
        return SparseGibbsKernel(self._model, self._data, 0.0)


def _blocks(
    model: AugmentedModel, parameters: dict[str, Parameter]
) -> tuple[list[Parameter], list[Parameter], list[Parameter]]:
    """Those of the likelihood, those of kernel and mean function, and those of Z."""
    of_likelihood = {id(p) for p in model.likelihood.parameters}
    inducing = getattr(model, "inducing_variable", None)
    of_Z = set() if inducing is None else {id(p) for p in inducing.parameters}
    of_prior = {id(p) for part in (model.kernel, model.mean_function) for p in part.parameters}
    both = [name for name, p in parameters.items() if id(p) in of_likelihood & (of_prior | of_Z)]
    if both:
        raise ValueError(
            "hyperparameters to be sampled must belong to the likelihood, or to the kernel and the "
            f"mean function, not to both. Found: {', '.join(both)}."
        )
    blocks: tuple[list[Parameter], list[Parameter], list[Parameter]] = [], [], []
    for p in parameters.values():
        blocks[0 if id(p) in of_likelihood else 2 if id(p) in of_Z else 1].append(p)
    return blocks


def _full(model: AugmentedVGP, X: tf.Tensor) -> GivenOmega:
    def log_evidence(observed: Observed) -> tf.Tensor:
        K = model.prior_covariance()[0]
        return log_evidence_given_omega(model.mean_function(X), K, observed)[0]

    def draw(observed: Observed, seed: Any) -> Latents:
        mean, deviation = f_given_omega(prior_at_data(model), observed, seed)
        return {"f": mean + deviation}

    return GivenOmega(log_evidence, draw)


def _sparse(model: AugmentedModel, X: tf.Tensor) -> GivenOmega:
    def log_evidence(observed: Observed) -> tf.Tensor:
        return log_sparse_evidence_given_omega(sparse_prior_at_data(model, X), observed)[0]

    def draw(observed: Observed, seed: Any) -> Latents:
        seeds = tfp.random.split_seed(seed, n=2, salt="sparse_draw")
        prior = sparse_prior_at_data(model, X)
        mean, deviation = v_given_omega(prior, observed, seeds[0])
        v = mean + deviation
        f = f_given_v_omega(prior, v, observed, seeds[1])
        return {"f": f, "u": to_u(prior.chol, v)}

    return GivenOmega(log_evidence, draw)
