r"""
SGHMC for models with inducing variables: it samples v and, optionally, hyperparameters and Z.

The target is num_data/|B| Σ_B log E p(y_i|f_i) + log p(v) + log priors, with expectations under
p(f_i|u): *Sparse Gaussian Processes Revisited* (Rossi, Heinonen, Bonilla, Shen and Filippone,
AISTATS 2021). The f_i are independent given u, as in
:class:`~gpflow_aaci.sampling.SparseGibbsKernel`. With E log p(y_i|f_i) instead of
log E p(y_i|f_i), the target is the q(u, θ) with the greatest ELBO among all distributions (Hensman,
Matthews, Filippone and Ghahramani, NIPS 2015).
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf
from gpflow.base import RegressionData
from gpflow.utilities import to_default_float

from ..sampling.chains import Draws
from ..sampling.latents import AnyModel, DeepModel, FullGP, rows_of_model
from ..validation import check_count, check_positive
from .joint import JointChains
from .objectives import ObjectiveGivenU, check_objective
from .sghmc_kernel import SGHMCKernel
from .starts import sampled_parameters

_OF_HIDDEN = 1  # folded into the seed of the rows, for draws of hidden layers
_TUNED_PART = 0.8  # the part of the burn-in that estimates the kernel's scale V


@dataclass(frozen=True)
class SGHMC:
    """
    Stochastic-gradient HMC on minibatches, for :func:`~gpflow_aaci.sample_posterior`.

    It accepts ``AugmentedSVGP``, GPflow's ``SVGP`` and ``DeepGP``, and is meant for large data. The
    draws are approximate, since no step is rejected. It returns u, the hyperparameters and the
    hidden layers' v, but not f. Chains are drawn one after the other. ``num_burnin`` must be at
    least 1, since the first four fifths of the burn-in estimate the scale of the steps::

        samples = sample_posterior(model, data, contrib.SGHMC(hyperparameters=True))

    In the kept benchmark ``bsgp`` a draw takes 0.05 s of one core with 13 inputs and a minibatch
    of 200 rows.

    :param step_size: ε of :class:`SGHMCKernel`. A larger ε moves Z away from its start sooner, and
        makes the error of the draws larger.
    :param batch_size: the number of rows that a step uses; all rows if there are fewer.
    :param steps_per_draw: the number of steps for each draw.
    :param objective: ``"predictive"`` uses log E p(y|f) given u, and draws from the posterior.
        ``"variational"`` uses E log p(y|f), and draws from the q(u, θ) with the greatest ELBO among
        all distributions. ``"heteroscedastic"``, for Gaussian noise, uses E log p(y|f) under noise
        that has the variance of f given u besides its own, (14) and (15) of the paper.
    :param hyperparameters: whether to sample the trainable hyperparameters too. Each then needs a
        prior, and so does Z if it is trainable. The first chain begins at the model's values, the
        others at draws from the priors; the model keeps its own values.
    :raises ValueError: for numbers out of range and any other objective.
    """

    step_size: float = 0.01
    batch_size: int = 1_000
    steps_per_draw: int = 50
    objective: ObjectiveGivenU = "predictive"
    hyperparameters: bool = False

    def __post_init__(self) -> None:
        check_positive("step_size", self.step_size)
        check_count("batch_size", self.batch_size, 1)
        check_count("steps_per_draw", self.steps_per_draw, 1)
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
        check_count("num_burnin", num_burnin, 1)
        if isinstance(model, FullGP):
            raise ValueError(
                "model must have inducing variables if sampler is SGHMC. "
                f"Found: {type(model).__name__}."
            )
        rows = rows_of_model(model, data)
        sampled = sampled_parameters(model) if self.hyperparameters else {}
        if isinstance(model, DeepModel):
            sampled = {**model.hidden_v, **sampled}
        joint = JointChains(model, rows, sampled, self.objective)
        kernel = SGHMCKernel(
            minibatch_target(joint, self.batch_size),
            self.step_size,
            num_adaptation_steps=int(_TUNED_PART * num_burnin * self.steps_per_draw),
        )
        return joint.chains(kernel, seeds, num_burnin + num_samples, self.steps_per_draw)


def minibatch_target(joint: JointChains, batch_size: int) -> Callable[..., tf.Tensor]:
    """(*unconstrained values, seed=) → an unbiased estimate of their log-density, []."""
    (X, Y), num_data = joint.rows, len(joint.rows[0])
    size = min(batch_size, num_data)

    def target(*values: tf.Tensor, seed: Any) -> tf.Tensor:
        batch = X, Y
        if size < num_data:
            chosen = tf.random.stateless_uniform([size], seed, 0, num_data, tf.int32)
            batch = tf.gather(X, chosen), tf.gather(Y, chosen)
        of_hidden = tf.random.experimental.stateless_fold_in(seed, _OF_HIDDEN)
        scale = to_default_float(num_data / size)
        return joint.log_density(lambda: scale * joint.log_likelihood(*batch, of_hidden))(*values)

    return target
