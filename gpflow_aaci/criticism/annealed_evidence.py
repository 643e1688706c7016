r"""
log p(y) between two ends, by annealed importance sampling with exact Gibbs sweeps.

t_i(f) = e^{λ_i f − ½ Λ_i f² + const} is the Gaussian by which q stands for p(y_i|f). The path
from p(f) Π_i t_i(f), whose integral is known, to the posterior is
p(f) Π_i [(1 − β) t_i(f) + β p(y_i|f)].
Which of the two factors a row has is one more auxiliary variable. Given it and ω, f is Gaussian at
every β, so that every likelihood that has a Gibbs sampler has one along the whole path. (A path of
powers p(y_i|f)^β needs the auxiliary variables of φ^β, which few likelihoods have.)

Shapes: [C] particles, [N] data, [M] inducing variables, [L] latent GPs.
"""

import copy
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import AnyNDArray, RegressionData
from gpflow.utilities import to_default_float

from ..algebra.projection import Projection, marginals
from ..algebra.terms import augmented_bound, standard
from ..models import AugmentedModel, Model, as_augmented
from ..progress import progress_bar
from ..runtime.graphs import compiled
from ..sampling.chains import as_parts
from ..sampling.conditionals import Observed, observed_of_site
from ..sampling.gibbs import GibbsKernel, SparseGibbsKernel, gibbs_kernel
from ..sampling.latents import check_sampled_model, pointwise_log_prob, prior_given_v
from ..validation import check_count

_WIDE = 2.0  # nats between the ends
_FEW_PARTICLES = 0.5  # a standard error at which the weights of a few particles are all


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """
    log p(y) between two ends, in nats, as :func:`evidence` returns it.

    Each end is the log of an average weight of particles, with its standard error.
    """

    lower: float
    lower_error: float
    upper: float
    upper_error: float
    elbo: float  # GPflow's ELBO at the model's q
    augmented_elbo: float  # the augmented bound at this q

    def __str__(self) -> str:
        ends = (
            f"log p(y) is between {self.lower:.2f} ± {self.lower_error:.2f} and "
            f"{self.upper:.2f} ± {self.upper_error:.2f}. "
        )
        is_wide = abs(self.upper - self.lower) > _WIDE
        if is_wide or max(self.lower_error, self.upper_error) > _FEW_PARTICLES:
            bounds = f"ELBO {self.elbo:.2f}, augmented bound {self.augmented_elbo:.2f}."
            return f"{ends}The ends are far apart or uncertain: take more rungs. {bounds}"
        middle = 0.5 * (self.lower + self.upper)
        return (
            f"{ends}From the middle, the ELBO is {middle - self.elbo:.2f} nats below, the "
            f"augmented bound {middle - self.augmented_elbo:.2f}."
        )


def evidence(
    model: Model,
    data: RegressionData | None = None,
    *,
    num_rungs: int = 20,
    num_particles: int = 100,
    num_burnin: int = 50,
    seed: int = 0,
    progress: bool = True,
) -> Evidence:
    r"""
    A lower and an upper end of log p(y) at the model's hyperparameters, and how far the ELBO is.

    Particles move from q to the posterior along a path of distributions, one Gibbs sweep at each
    rung (annealed importance sampling: Neal 2001). On the way there the log of their average weight
    is below log p(y) in expectation. On the way back, from draws of the posterior, it is above
    (Grosse, Ancha and Roy 2016), so that the upper end relies on ``num_burnin`` sweeps to reach
    the posterior from where the particles ended. More rungs bring the ends together::

        print(evidence(model))
        # log p(y) is between -59.96 ± 0.01 and -59.93 ± 0.02. From the middle, the ELBO is ...

    Two models may be compared by their ELBOs if these differ by more than the two distances from
    the ends. A sparse model has the evidence of the model that
    :class:`~gpflow_aaci.sampling.SparseGibbsKernel` samples exactly, in which the f_i are
    independent given u. A sweep takes as long as one of Gibbs sampling with ``num_particles``
    chains, which is O(N³) for each particle of a full GP.

    :param data: X [N, D] and Y [N, P], all training data, for models with inducing variables; None
        for models that keep their own data.
    :param num_rungs: the number of steps of the path.
    :param num_particles: how many particles walk along it, all in one batch.
    :param num_burnin: the number of sweeps before the walk backwards.
    :param seed: the same seed gives the same result.
    :param progress: whether to show a progress bar.
    :raises ValueError: for a likelihood without augmentation, a kernel that mixes the latent GPs,
        and bad arguments or data.
    """
    for name, count, least in (
        ("num_rungs", num_rungs, 1),
        ("num_particles", num_particles, 2),
        ("num_burnin", num_burnin, 0),
        ("seed", seed, 0),
    ):
        check_count(name, count, least)
    check_sampled_model(model)
    model = as_augmented(model)
    path = _Path(model, gibbs_kernel(model, data, over_relaxation=0.0))
    # The steps are small where one of the two factors is hardly there.
    betas = np.square(np.sin(0.5 * np.pi * np.linspace(0.0, 1.0, num_rungs + 1)))
    turns = [*betas[1:], *np.ones(num_burnin), *betas[-2::-1]]
    seeds = tfp.random.split_seed(tf.constant([seed, 4]), n=1 + len(turns))
    state, log_weights = path.start(num_particles, seeds[0]), []
    with progress_bar(progress, total=len(turns), unit="sweep") as bar:
        for before, beta, own in zip([0.0, *turns], turns, seeds[1:], strict=False):
            ends = to_default_float(before), to_default_float(beta)
            if before != beta:  # not while the particles stay at the posterior
                log_weights.append(path.log_ratio(state, *ends))
            state = path.sweep(state, ends[1], own)
            bar.update()
    forwards = np.sum(log_weights[:num_rungs], 0)
    backwards = np.sum(log_weights[-num_rungs:], 0)
    lower, lower_error = _log_mean(forwards)
    upper, upper_error = _log_mean(backwards)
    return Evidence(
        lower=path.log_normaliser + lower,
        lower_error=lower_error,
        upper=path.log_normaliser - upper,
        upper_error=upper_error,
        elbo=float(model.elbo(data)),
        augmented_elbo=float(model.augmented_elbo(data)),
    )


def _log_mean(log_weights: AnyNDArray) -> tuple[float, float]:
    """The log of the mean weight, and its standard error by the delta method."""
    largest = np.max(log_weights)
    weights = np.exp(log_weights - largest)
    mean = np.mean(weights)
    error = np.std(weights, ddof=1) / np.sqrt(len(weights)) / mean
    return float(largest + np.log(mean)), float(error)


class _Factors(NamedTuple):
    """t_i(f) = exp(log_scale + potential f − ½ precision f²) of every row."""

    potential: tf.Tensor  # [N, L]
    precision: tf.Tensor  # [N, L]
    log_scale: tf.Tensor  # [N]

    def log_value(self, f: tf.Tensor) -> tf.Tensor:
        """log t_i(f), [C..., N], given f [C..., N, L]."""
        exponent = self.potential * f - 0.5 * self.precision * tf.square(f)
        return self.log_scale + tf.reduce_sum(exponent, -1)


class _Path:
    """The path of a model: a Gibbs sweep at each β, and the densities that weights are made of."""

    def __init__(self, model: AugmentedModel, kernel: GibbsKernel | SparseGibbsKernel) -> None:
        X, Y = kernel.rows
        prior = prior_given_v(model, X)
        Fmu, Fvar = marginals(prior, *model.whitened_q(prior.chol))
        # The factors of GPflow's ELBO are nearer to p(y_i|f), but may have a negative precision.
        best, safe = (model.term(of).slopes(X, Fmu, Fvar, Y) for of in (standard, augmented_bound))
        is_best = best.in_variance <= 0.0
        precision = -2.0 * tf.where(is_best, best.in_variance, safe.in_variance)
        potential = tf.where(is_best, best.in_mean, safe.in_mean) + precision * Fmu
        factors = _Factors(potential, precision, tf.zeros_like(Fmu[:, 0]))
        # E_q log t_i = E_q log p(y_i|f_i), so that in the middle of the path both count alike.
        expected = factors.log_value(Fmu) - 0.5 * tf.reduce_sum(precision * Fvar, -1)
        log_scale = model.term(standard).of_each(X, Fmu, Fvar, Y) - expected
        self._kernel, self._factors = kernel, factors._replace(log_scale=log_scale)
        self.log_normaliser = float(_log_integral(prior, self._factors))
        self.log_ratio = compiled(self._log_ratio)
        self.sweep = compiled(self._sweep)

    def start(self, num_particles: int, seed: tf.Tensor) -> Any:
        """
        Draws at β = 0, from the Gaussian p(f) Π t_i(f).

        A sweep there does not depend on where it begins.
        """
        seeds = tfp.random.split_seed(seed, n=2)
        state = self._kernel.initial_state(num_particles, seeds[0])
        self._kernel.bootstrap_results(state)  # a likelihood may refuse here, before the graph
        return self.sweep(state, to_default_float(0.0), seeds[1])

    def _sweep(self, state: Any, beta: tf.Tensor, seed: tf.Tensor) -> Any:
        """Which factor each row has and ω, given f; then f given these."""
        fixed, of_kernel = observed_of_site(*self._factors[:2]), self._kernel.observed

        def observed(f: tf.Tensor, seed: Any) -> tuple[Any, Observed]:
            seeds = tfp.random.split_seed(seed, n=2, salt="evidence")
            log_t, log_p = self._log_factors(f)
            log_odds = tf.math.log(beta) + log_p - tf.math.log(1.0 - beta) - log_t
            uniform = tf.random.stateless_uniform(tf.shape(log_odds), seeds[0], dtype=f.dtype)
            is_own = tf.math.log(uniform) - tf.math.log1p(-uniform) < log_odds  # [C..., N]
            omega, given_omega = of_kernel(f, seeds[1])
            pairs = zip(given_omega, fixed, strict=True)
            return omega, Observed(*(tf.where(is_own[..., None, :], *pair) for pair in pairs))

        kernel = copy.copy(self._kernel)
        kernel.observed = observed  # type: ignore[method-assign]
        return kernel.one_step(state, kernel.bootstrap_results(state), seed)[0]

    def _log_ratio(self, state: Any, before: tf.Tensor, beta: tf.Tensor) -> tf.Tensor:
        """The log of the density at β over the one before, [C], neither of them normalised."""
        log_t, log_p = self._log_factors(as_parts(state)[-1])

        def log_density(beta: tf.Tensor) -> tf.Tensor:
            parts = tf.math.log(1.0 - beta) + log_t, tf.math.log(beta) + log_p
            return tf.reduce_sum(tf.reduce_logsumexp(tf.stack(parts), 0), -1)

        return log_density(beta) - log_density(before)

    def _log_factors(self, f: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """log t_i(f) and log p(y_i|f), both [C..., N]."""
        X, Y = self._kernel.rows
        log_p = pointwise_log_prob(self._kernel.likelihood, X, f, Y)
        return self._factors.log_value(f), tf.reduce_sum(log_p, -1)


def _log_integral(prior: Projection, factors: _Factors) -> tf.Tensor:
    """
    log ∫ p(f) Π t_i(f) df, [].

    With f_i = h_i + e_i, h = mean + Aᵀ v, the integral over e_i ~ N(0, d_i) of e^{λf − ½Λf²} is
    e^{λ'h − ½Λ'h² + ½ d λλ'} / √(1 + dΛ), where λ' and Λ' are λ and Λ over 1 + dΛ. With
    a = A (λ' − Λ' mean) and B = I + A Λ' Aᵀ the integral over v is e^{½ aᵀB⁻¹a} / √|B|.
    """
    potential, precision = tf.transpose(factors.potential), tf.transpose(factors.precision)
    mean, inflation = tf.transpose(prior.mean), 1.0 + prior.unexplained * precision
    small, narrow = potential / inflation, precision / inflation  # λ' and Λ', [L, N]
    of_rows = prior.unexplained * potential * small - tf.math.log(inflation)
    of_rows += 2.0 * small * mean - narrow * tf.square(mean)
    weighted = prior.A * narrow[:, None, :]
    B = tf.matmul(weighted, prior.A, transpose_b=True)
    chol = tf.linalg.cholesky(B + tf.eye(tf.shape(B)[-1], dtype=B.dtype))
    a = tf.linalg.matvec(prior.A, small - narrow * mean)[..., None]
    explained = tf.reduce_sum(tf.square(tf.linalg.triangular_solve(chol, a)))
    log_determinant = 2.0 * tf.reduce_sum(tf.math.log(tf.linalg.diag_part(chol)))
    total = tf.reduce_sum(of_rows) + explained - log_determinant
    return tf.reduce_sum(factors.log_scale) + 0.5 * total
