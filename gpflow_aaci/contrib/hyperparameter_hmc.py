r"""
Hamiltonian Monte Carlo of v and hyperparameters together, including inducing points.

With f = μ₀ + chol v or u = chol v, v is standard normal a priori for all hyperparameters θ,
so v and θ are independent under the prior, unlike f and θ: *MCMC for
Variationally Sparse Gaussian Processes* (Hensman, Matthews, Filippone and Ghahramani, NIPS 2015).
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass

import numpy as np
import scipy.linalg
import tensorflow as tf
from gpflow.base import AnyNDArray, RegressionData
from gpflow.config import default_float, default_jitter

from ..sampling.chains import Draws
from ..sampling.latents import AnyModel, check_sampled_model, prior_covariance, rows_of_model
from .hmc import TUNED_PART, check_steps, hamiltonian
from .joint import JointChains
from .objectives import ObjectiveGivenU, check_objective
from .starts import sampled_parameters


@dataclass(frozen=True)
class HyperparameterHMC:
    """
    Hamiltonian Monte Carlo of f or u together with all trainable hyperparameters.

    A sampler for :func:`~gpflow_aaci.sample_posterior`. It needs no augmentation, so it accepts
    GPflow's ``VGP``, ``GPMC`` and ``SVGP`` with any likelihood that has a gradient in f, as well as
    ``AugmentedVGP`` and ``AugmentedSVGP``. Every trainable hyperparameter needs a prior, and so
    does Z if it is trainable. Chains are drawn one after the other. The first chain begins at the
    model's values, the others at draws from the priors. ``posterior`` has the draws under the
    parameters' names; the model keeps its own values::

        model = gpflow.models.GPMC((X, Y), gpflow.kernels.Matern32(), gpflow.likelihoods.Poisson())
        for parameter in (model.kernel.variance, model.kernel.lengthscales):
            parameter.prior = tfp.distributions.LogNormal(np.float64(0.0), np.float64(1.0))
        sampler = contrib.HyperparameterHMC()
        samples = sample_posterior(model, sampler=sampler, num_burnin=500)
        samples.posterior["kernel.lengthscales"]  # (chain, draw)

    It moves v and the unconstrained hyperparameters, as GPflow's examples for ``GPMC`` and
    ``SGPMC`` do. Dual averaging tunes the step size in the first four fifths of the burn-in, which
    should have a few hundred draws.

    :param step_size: the step size before tuning, in standard deviations of v's prior and in units
        of the unconstrained hyperparameters.
    :param num_leapfrog_steps: the number of leapfrog steps for each draw.
    :param objective: for models with inducing variables. ``"predictive"`` uses log E p(y|f) given
        u, and draws from the posterior that :class:`~gpflow_aaci.sampling.SparseGibbsKernel`
        describes. ``"variational"`` uses E log p(y|f), as ``SGPMC`` does, and draws from the
        q(u, θ) with the greatest ELBO among all distributions. ``"heteroscedastic"``, for Gaussian
        noise, uses E log p(y|f) under noise that has the variance of f given u besides its own
        (Rossi and others, AISTATS 2021, (14) and (15)).
    :raises ValueError: for numbers out of range and any other objective.
    """

    step_size: float = 0.05
    num_leapfrog_steps: int = 10
    objective: ObjectiveGivenU = "predictive"

    def __post_init__(self) -> None:
        check_steps(self.step_size, self.num_leapfrog_steps)
        check_objective(self.objective)

    def chains(
        self,
        model: AnyModel,
        data: RegressionData | None,
        seeds: Sequence[tf.Tensor],
        num_burnin: int,
        num_samples: int,
    ) -> list[Generator[Draws, None, None]]:
        """As :meth:`~gpflow_aaci.sampling.Sampler.chains` says."""
        check_sampled_model(model)
        joint = JointChains(
            model, rows_of_model(model, data), sampled_parameters(model), self.objective
        )

        def log_likelihood() -> tf.Tensor:
            nowhere = tf.constant(-np.inf, default_float())
            is_regular = _has_cholesky(prior_covariance(model))
            return tf.cond(is_regular, lambda: joint.log_likelihood(*joint.rows), lambda: nowhere)

        kernel = hamiltonian(
            joint.log_density(log_likelihood),
            self.step_size,
            self.num_leapfrog_steps,
            int(TUNED_PART * num_burnin),
        )
        return joint.chains(kernel, seeds, num_burnin + num_samples)


def _has_cholesky(K: tf.Tensor) -> tf.Tensor:
    """
    Whether all K [L, M, M] would have a Cholesky factor with half of their jitter, [].

    If leapfrog steps are too long, they reach hyperparameters at which a K has no Cholesky factor.
    TensorFlow's factorisation raises an error there, but such a step should only be rejected.
    """

    def check(K: AnyNDArray) -> bool:
        less = K - 0.5 * default_jitter() * np.eye(K.shape[-1])
        try:
            return all(np.isfinite(scipy.linalg.cholesky(part)).all() for part in less)
        except (ValueError, scipy.linalg.LinAlgError):  # not finite, not positive definite
            return False

    return tf.ensure_shape(tf.numpy_function(check, [K], tf.bool), [])
