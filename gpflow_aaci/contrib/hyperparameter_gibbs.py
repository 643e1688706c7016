r"""
Gibbs sweeps that also sample the hyperparameters, including inducing points.

A sweep has three blocks, and each block integrates some variables out:

    the likelihood's parameters | f  (without ω, by p(y|f)),  then ω | f;
    the parameters of kernel and mean function | ω  (without f and u: given ω all is Gaussian);
    Z | ω  (without f and u too),  then u, f | ω.

The first two blocks move by slices, the third by one step of HMC
(:mod:`~gpflow_aaci.contrib.moves`). The second block may begin with a draw of the inputs that
matter (:mod:`~gpflow_aaci.contrib.selection`). A GPflow parameter holds one value, so a sweep moves
one chain.
"""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import tensorflow as tf
import tensorflow_probability as tfp
from gpflow import Parameter
from gpflow.base import RegressionData

from ..data import as_arrays
from ..models import AugmentedModel, AugmentedVGP, as_augmented
from ..runtime.graphs import compiled
from ..sampling.chains import DRAWS_AT_ONCE, Draws, of_y
from ..sampling.conditionals import (
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
from ..sampling.gibbs import gibbs_kernel
from ..sampling.latents import AnyModel, check_sampled_model, rows_of_model, to_u
from .moves import HamiltonianMove, slice_move, with_priors
from .selection import InputSelection, checked_probabilities
from .starts import Starts, sampled_parameters

Latents = dict[str, tf.Tensor]  # "f" [1, N, L] and, of inducing variables, "u" [1, M, L]


@dataclass(frozen=True)
class HyperparameterGibbs:
    """
    Gibbs sampling of f or u together with all trainable hyperparameters.

    A sampler for :func:`~gpflow_aaci.sample_posterior`. It accepts ``AugmentedVGP`` and
    ``AugmentedSVGP`` with latent GPs that are independent given ω. Every trainable
    hyperparameter needs a prior, and so does Z if it is trainable; there are no default priors (for
    Z, see :mod:`~gpflow_aaci.contrib.priors`). Chains are drawn one after the other, without
    over-relaxation. The first chain begins at the model's values, the others at draws from the
    priors. ``posterior`` has the draws under the parameters' names; the model keeps its values::

        samples = sample_posterior(model, data, contrib.HyperparameterGibbs())

    In the kept benchmark ``bsgp`` a sweep takes 0.3 s of one core with 50 inducing points and a
    lengthscale for each of 13 inputs, at some 450 rows.

    With ``selection`` it also draws which columns of X the kernel depends on. Each column d is
    included with a prior probability; its lengthscale then has its prior, and otherwise 1/l_d = 0
    (Savitsky, Vannucci and Sha, Statistical Science 2011). The kernel must be a single stationary
    one with a lengthscale for each column. ``posterior`` also has ``included`` [chain, draw, D],
    which is 1 or 0; its mean is the posterior probability that the column matters::

        kernel = gpflow.kernels.Matern52(lengthscales=[1.0, 1.0, 1.0])
        for parameter in (kernel.variance, kernel.lengthscales):
            parameter.prior = tfp.distributions.LogNormal(np.float64(0.0), np.float64(1.0))
        model = AugmentedVGP((X, Y), kernel, likelihoods.Logistic())
        samples = sample_posterior(model, sampler=contrib.HyperparameterGibbs(selection=0.5))
        print(samples.posterior["included"].mean(("chain", "draw")))

    Where a column is excluded, the draws of ``kernel.lengthscales`` are 1e12 times its range, so
    that predictions from the draws do not depend on it. The lengthscale given that it is included
    is ``posterior["kernel.lengthscales"].where(posterior["included"])``. The probabilities depend
    on the prior of the lengthscales: what it says of columns that matter.

    :param selection: the prior probability that a column is included, above 0 and below 1, or a
        list of one for each column of the kernel. Default: all columns are included.
    :raises ValueError: for probabilities out of range.
    """

    selection: float | Sequence[float] | None = None

    def __post_init__(self) -> None:
        if self.selection is not None:
            checked_probabilities(self.selection)

    def chains(
        self,
        model: AnyModel,
        data: RegressionData | None,
        seeds: Sequence[tf.Tensor],
        num_burnin: int,
        num_samples: int,
    ) -> list[Generator[Draws, None, None]]:
        """As :meth:`~gpflow_aaci.sampling.Sampler.chains` says."""
        sweep = HyperparameterSweep(model, data, num_burnin, self.selection)
        X, Y = rows_of_model(model, data)

        def described(latents: Latents, seed: tf.Tensor) -> dict[str, tf.Tensor]:
            values = {name: tf.identity(p)[None] for name, p in sweep.parameters.items()}
            if sweep.selection is not None:
                values["included"] = sweep.selection.included[None]
            return {**latents, **of_y(model.likelihood, X, latents["f"], Y, seed), **values}

        def several(first: Latents, seeds: tf.Tensor) -> tuple[Latents, Mapping[str, tf.Tensor]]:
            block = tf.scan(
                lambda last, seed: described(sweep(last["f"], Y, seed), seed),
                seeds,
                initializer=described(first, seeds[0]),
            )
            return {name: block[name][-1] for name in first}, block

        compiled_several = compiled(several, reduce_retracing=True)
        chains = []
        for number, seed in enumerate(seeds):
            first, *others = tfp.random.split_seed(seed, n=1 + num_burnin + num_samples)
            begin = partial(sweep.restart, first, dispersed=number > 0)
            chains.append(sweep.starts.chain(begin, compiled_several, others, DRAWS_AT_ONCE))
        return chains


class HyperparameterSweep:
    """
    A compiled sweep, (f [1, N, L], Y [N, P], seed) → latents, which moves the model's parameters.

    :meth:`restart` begins a chain; ``starts.put_back()`` restores the model's own values.
    """

    def __init__(
        self,
        model: AnyModel,
        data: RegressionData | None = None,
        num_tuned: int = 0,
        selection: float | Sequence[float] | None = None,
    ) -> None:
        """
        :param num_tuned: the number of sweeps of each chain that tune Z's step size.
        :raises ValueError: as :func:`sampled_parameters` and :class:`InputSelection`; for a model
            without augmentation, for parameters that the likelihood shares with the prior of f, and
            for latent GPs that ω couples.
        """
        model = as_augmented(model)
        gibbs_kernel(model, data, 0.0)  # raises for what Gibbs sampling cannot take
        check_sampled_model(model)
        if model.in_turn:
            raise ValueError(
                "likelihood must leave the latent GPs independent given ω to sample "
                f"hyperparameters. Found: {type(model.likelihood).__name__}."
            )
        self.parameters = sampled_parameters(model)
        self._model, self._data = model, data
        self.starts = Starts(model, self.parameters)
        X, _ = as_arrays(model.expected_data, data).rows
        likelihood = model.likelihood
        of_likelihood, of_prior, of_Z = _blocks(model, self.parameters)
        self._move_Z = HamiltonianMove(of_Z, num_tuned)
        self.selection = None if selection is None else InputSelection(model.kernel, X, selection)
        move_prior = slice_move if self.selection is None else self.selection.move

        def sweep(f: tf.Tensor, Y: tf.Tensor, seed: tf.Tensor) -> Latents:
            seeds = tfp.random.split_seed(seed, n=5, salt="hyperparameter_gibbs")
            slice_move(
                lambda: tf.reduce_sum(likelihood.log_prob(X, f[0], Y)), of_likelihood, seeds[0]
            )
            omega = likelihood.full_conditional(X, f, Y).sample(seed=seeds[1])
            observed = pseudo_observations(likelihood, X, omega, Y)
            log_evidence = partial(_log_evidence, model, X, observed)
            # The prior of Z may depend on the kernel's parameters (Determinantal).
            move_prior(with_priors(log_evidence, of_Z), of_prior, seeds[2])
            self._move_Z(log_evidence, seeds[3])
            return _latents(model, X, observed, seeds[4])

        self._sweep = compiled(sweep)

    def __call__(self, f: tf.Tensor, Y: tf.Tensor, seed: tf.Tensor) -> Latents:
        latents: Latents = self._sweep(f, Y, seed)
        return latents

    def restart(self, seed: tf.Tensor, dispersed: bool) -> Latents:
        """
        Assign a chain's first parameters, and draw its first latents from the prior.

        :param dispersed: as in :meth:`Starts.restart`.
        """
        seeds = tfp.random.split_seed(seed, n=2, salt="restart")
        self._move_Z.restart()
        self.starts.restart(seeds[1], dispersed)
        if self.selection is not None:
            self.selection.restart(seeds[1], dispersed)
        kernel = gibbs_kernel(self._model, self._data, 0.0)
        return kernel.latents(kernel.initial_state(1, seeds[0]))


def _blocks(
    model: AugmentedModel, parameters: dict[str, Parameter]
) -> tuple[list[Parameter], list[Parameter], list[Parameter]]:
    """The parameters of the likelihood, of kernel and mean function, and of Z."""
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


def _log_evidence(model: AugmentedModel, X: tf.Tensor, observed: Observed) -> tf.Tensor:
    """log p(y|ω) with f and u integrated out, at the current parameters, []."""
    if isinstance(model, AugmentedVGP):
        mean, K = model.mean_function(X), model.prior_covariance()
        return log_evidence_given_omega(mean, K, observed)[0]
    return log_sparse_evidence_given_omega(sparse_prior_at_data(model, X), observed)[0]


def _latents(model: AugmentedModel, X: tf.Tensor, observed: Observed, seed: Any) -> Latents:
    """A draw of the latents given ω, at the current parameters."""
    if isinstance(model, AugmentedVGP):
        mean, deviation = f_given_omega(prior_at_data(model), observed, seed)
        return {"f": mean + deviation}
    seeds = tfp.random.split_seed(seed, n=2, salt="sparse_draw")
    prior = sparse_prior_at_data(model, X)
    mean, deviation = v_given_omega(prior, observed, seeds[0])
    v = mean + deviation
    return {"f": f_given_v_omega(prior, v, observed, seeds[1]), "u": to_u(prior.chol, v)}
