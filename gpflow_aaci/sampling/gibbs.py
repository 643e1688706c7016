r"""
The exact Gibbs sampler of the augmented model (AACI Algorithm 2), as TFP transition kernels.

Given f the auxiliary variables are independent, ω_i ~ π_φ(·| |h_i|) where the likelihood is
super-Gaussian. Given ω the likelihood is that of Gaussian observations ỹ = potential/precision of
variance R = 1/precision, there with potential g + βω and precision 2γω (Theorem 2): f is a Gaussian
process regressed on them. No K⁻¹ is formed; K + R is well conditioned where K is not.

Shapes: [C...] chains, [N] data, [M] inducing variables, [L] latent GPs, [P]
columns of Y.
"""

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from check_shapes import check_shapes
from gpflow.base import RegressionData, TensorType
from gpflow.utilities import to_default_float

from ..algebra.projection import Projection
from ..augmentation import auglik_potential_and_precision, aux_sample
from ..likelihoods import AugmentedLikelihood
from ..models import AugmentedSVGP, AugmentedVGP

OVER_RELAXATION = -0.4
"""
Of f, ``GibbsKernel``'s default: the mean of f mixes twice as fast as at 0, and its square as well.

On Boston housing and Heart the least bulk-ESS among all f_i, f_i² and (f_i − E f_i)² is largest
between −0.3 and −0.5; at −0.8 that of f is 2.5 to 4 times as large as at 0, that of the spread of f
a third of it.
"""


class GibbsResults(NamedTuple):
    """What a step leaves beside f."""

    omega: tf.Tensor  # [C..., N, L], that f was drawn given


class Prior(NamedTuple):
    """f ~ N(mean, K) at the data."""

    mean: tf.Tensor  # [N, broadcast L]
    K: tf.Tensor  # [N, N], with GPflow's jitter
    chol: tf.Tensor  # [N, N], of K


def prior_at_data(model: AugmentedVGP) -> Prior:
    """At the hyperparameters as they are."""
    X, _, _ = model.checked_batch()
    K = model.prior_covariance()[0]
    return Prior(model.mean_function(X), K, tf.linalg.cholesky(K))


class _OneSweep(tfp.mcmc.TransitionKernel):
    """What the kernels share: every step is accepted, and nothing is tuned."""

    _parameters: dict[str, Any]

    @property
    def parameters(self) -> dict[str, Any]:
        return self._parameters

    @property
    def is_calibrated(self) -> bool:
        return True


class GibbsKernel(_OneSweep):
    """
    ω | f, then f | ω, for ``AugmentedVGP``.

    The state is f at the data, [C..., N, L]. The prior of f is that of the model when the kernel is
    made: make a new one where hyperparameters have changed::

        kernel = GibbsKernel(model)
        f = tfp.mcmc.sample_chain(
            1_000, kernel.initial_state(num_chains=4), kernel=kernel, trace_fn=None, seed=[0, 1]
        )
    """

    def __init__(self, model: AugmentedVGP, over_relaxation: float = OVER_RELAXATION) -> None:
        """
        :param over_relaxation: a in f' = μ + a (f − μ) + √(1 − a²) Σ^½ε (Adler 1981), in (−1, 1);
            exact for each. 0 is the paper's sampler, near −1 means of odd functions of f (their
            averages, above all) converge faster, and those of even ones slower.
        :raises ValueError: for another model, or an ``over_relaxation`` outside (−1, 1).
        """
        if not isinstance(model, AugmentedVGP):
            raise ValueError(f"model must be an AugmentedVGP. Found: {type(model).__name__}.")
        self.over_relaxation = _checked_relaxation(over_relaxation)
        self._parameters = {"model": model, "over_relaxation": over_relaxation}
        self._likelihood = model.likelihood
        _, self._Y, _ = model.checked_batch()
        self._prior = prior_at_data(model)

    def initial_state(self, num_chains: int, seed: Any = None) -> tf.Tensor:
        """Draws from the prior, [num_chains, N, L]."""
        prior, shape = self._prior, [num_chains, *reversed(self._Y.shape)]
        return tf.linalg.matrix_transpose(
            tf.transpose(prior.mean) + tf.tensordot(_normal(shape, seed), prior.chol, [[-1], [1]])
        )

    def bootstrap_results(self, init_state: TensorType) -> GibbsResults:
        return GibbsResults(tf.zeros_like(to_default_float(init_state)))

    def one_step(
        self, current_state: tf.Tensor, previous_kernel_results: GibbsResults, seed: Any = None
    ) -> tuple[tf.Tensor, GibbsResults]:
        """One sweep."""
        seeds = tfp.random.split_seed(seed, n=2, salt="gibbs")
        omega = aux_sample(self._likelihood, current_state, self._Y, seeds[0])
        mean, deviation = f_given_omega(self._likelihood, self._prior, omega, self._Y, seeds[1])
        f = over_relaxed(current_state, mean, deviation, self.over_relaxation)
        return f, GibbsResults(omega)


class SparseGibbsKernel(_OneSweep):
    """
    ω | f, then v | ω and f | v, ω, for ``AugmentedSVGP`` with u = chol v, chol that of K_ZZ.

    Exact for the model in which the f_i are independent given u, p(f|u) = Π p(f_i|u): that whose
    evidence both ELBOs bound from below by Jensen's inequality (FITC; Snelson and Ghahramani 2006).
    It is the full GP where Z = X. The state is [v, f]: [C..., M, L] and [C..., N, L].
    """

    def __init__(
        self,
        model: AugmentedSVGP,
        data: RegressionData,
        over_relaxation: float = OVER_RELAXATION,
    ) -> None:
        """
        :param data: X [N, D], Y [N, P], all of them.
        :param over_relaxation: of v, as in :class:`GibbsKernel`.
        :raises ValueError: for another model, bad data or an ``over_relaxation`` outside (−1, 1).
        """
        if not isinstance(model, AugmentedSVGP):
            raise ValueError(f"model must be an AugmentedSVGP. Found: {type(model).__name__}.")
        self.over_relaxation = _checked_relaxation(over_relaxation)
        self._parameters = {"model": model, "data": data, "over_relaxation": over_relaxation}
        self._likelihood = model.likelihood
        X, self._Y, scale = model.checked_batch(data)
        if scale != 1.0:
            raise ValueError(
                f"data must be all num_data = {model.num_data} rows. Found: {len(X)} rows."
            )
        prior = model.project(X)
        A = tf.broadcast_to(prior.A, [self._Y.shape[-1], *prior.A.shape[1:]])
        self._prior = prior._replace(A=A)

    def initial_state(self, num_chains: int, seed: Any = None) -> list[tf.Tensor]:
        """Draws from the prior."""
        seeds = tfp.random.split_seed(seed, n=2, salt="sparse_gibbs_initial")
        (N, P), M = self._Y.shape, self._prior.A.shape[-2]
        v = _normal([num_chains, M, P], seeds[0])
        e = tf.sqrt(tf.transpose(self._prior.unexplained)) * _normal([num_chains, N, P], seeds[1])
        return [v, _f_mean(self._prior, v) + e]

    def bootstrap_results(self, init_state: list[TensorType]) -> GibbsResults:
        return GibbsResults(tf.zeros_like(to_default_float(init_state[1])))

    def one_step(
        self,
        current_state: list[tf.Tensor],
        previous_kernel_results: GibbsResults,
        seed: Any = None,
    ) -> tuple[list[tf.Tensor], GibbsResults]:
        """One sweep."""
        v, f = current_state
        seeds = tfp.random.split_seed(seed, n=3, salt="sparse_gibbs")
        omega = aux_sample(self._likelihood, f, self._Y, seeds[0])
        mean, deviation = v_given_omega(self._likelihood, self._prior, omega, self._Y, seeds[1])
        v = over_relaxed(v, mean, deviation, self.over_relaxation)
        f = f_given_v_omega(self._likelihood, self._prior, v, omega, self._Y, seeds[2])
        return [v, f], GibbsResults(omega)


# ---- the conditionals ----


@check_shapes(
    "omega: [C..., N, L]",
    "Y: [broadcast C..., N, P]",
    "return[0]: [C..., L, N]",
    "return[1]: [C..., L, N]",
)
def pseudo_observations(
    likelihood: AugmentedLikelihood, omega: TensorType, Y: TensorType
) -> tuple[tf.Tensor, tf.Tensor]:
    """
    ỹ and its variance R: given ω the likelihood is N(ỹ | f, R) up to a factor free of f.

    A precision so small that R would overflow says nothing of f, and is floored.
    """
    potential, precision = auglik_potential_and_precision(likelihood, omega, Y)
    floor = np.finfo(precision.dtype.as_numpy_dtype).tiny ** 0.75
    precision = tf.linalg.matrix_transpose(tf.maximum(precision, tf.cast(floor, precision.dtype)))
    return tf.linalg.matrix_transpose(potential) / precision, 1.0 / precision


@check_shapes("K: [N, N]", "variance: [C..., L, N]", "return: [C..., L, N, N]")
def cholesky_of_observations(K: TensorType, variance: TensorType) -> tf.Tensor:
    """chol(K + R)."""
    shape = tf.concat([tf.shape(variance), tf.shape(K)[-1:]], 0)
    diagonal = tf.linalg.diag_part(K) + variance
    return tf.linalg.cholesky(tf.linalg.set_diag(tf.broadcast_to(K, shape), diagonal))


@check_shapes(
    "omega: [C..., N, L]",
    "Y: [broadcast C..., N, P]",
    "return[0]: [C..., N, L]",
    "return[1]: [C..., N, L]",
)
def f_given_omega(
    likelihood: AugmentedLikelihood, prior: Prior, omega: TensorType, Y: TensorType, seed: Any
) -> tuple[tf.Tensor, tf.Tensor]:
    """
    The mean of p(f|ω, y), and a draw of f minus it.

    Mean μ₀ + K (K + R)⁻¹ (ỹ − μ₀). The draw is Matheron's: f₀ ~ N(0, K) less what a regression on
    its own noisy copy would make of it, f₀ − K (K + R)⁻¹ (f₀ + R^½ε).
    """
    observed, variance = pseudo_observations(likelihood, omega, Y)
    prior_mean = tf.transpose(prior.mean)
    seeds = tfp.random.split_seed(seed, n=2, salt="f_given_omega")
    # Rows times a shared matrix: one product for all chains.
    f_0 = tf.tensordot(_normal(tf.shape(observed), seeds[0]), prior.chol, [[-1], [1]])
    noise = tf.sqrt(variance) * _normal(tf.shape(observed), seeds[1])
    residuals = tf.stack([observed - prior_mean, f_0 + noise], axis=-1)  # [C..., L, N, 2]
    solved = tf.linalg.cholesky_solve(cholesky_of_observations(prior.K, variance), residuals)
    explained = tf.tensordot(tf.linalg.matrix_transpose(solved), prior.K, 1)  # [C..., L, 2, N]
    return (
        tf.linalg.matrix_transpose(prior_mean + explained[..., 0, :]),
        tf.linalg.matrix_transpose(f_0 - explained[..., 1, :]),
    )


@check_shapes(
    "mean: [broadcast N, broadcast L]",
    "K: [N, N]",
    "omega: [C..., N, L]",
    "Y: [broadcast C..., N, P]",
    "return: [C...]",
)
def log_evidence_given_omega(
    likelihood: AugmentedLikelihood,
    mean: TensorType,
    K: TensorType,
    omega: TensorType,
    Y: TensorType,
) -> tf.Tensor:
    """log N(ỹ | mean, K + R), which is log p(y|ω) up to terms free of the prior's parameters."""
    observed, variance = pseudo_observations(likelihood, omega, Y)
    chol = cholesky_of_observations(K, variance)
    residual = (observed - tf.transpose(mean))[..., None]
    white = tf.linalg.triangular_solve(chol, residual)[..., 0]
    terms = 0.5 * tf.square(white) + tf.math.log(tf.linalg.diag_part(chol))
    return -tf.reduce_sum(terms, axis=[-2, -1])


@check_shapes(
    "omega: [C..., N, L]",
    "Y: [broadcast C..., N, P]",
    "return[0]: [C..., M, L]",
    "return[1]: [C..., M, L]",
)
def v_given_omega(
    likelihood: AugmentedLikelihood,
    prior: Projection,
    omega: TensorType,
    Y: TensorType,
    seed: Any,
) -> tuple[tf.Tensor, tf.Tensor]:
    """
    The mean of p(v|ω, y), f integrated out, and a draw of v minus it.

    ỹ_i | v ~ N(mean_i + A_iᵀ v, R_i + unexplained_i): S⁻¹ = I + A diag(precision) Aᵀ.
    """
    observed, variance = pseudo_observations(likelihood, omega, Y)
    precision = 1.0 / (variance + prior.unexplained)  # [C..., L, N]
    A = prior.A
    weighted = precision * (observed - tf.transpose(prior.mean))
    rows = tf.concat([A * precision[..., None, :], weighted[..., None, :]], -2)
    products = _times_shared(rows, tf.transpose(A, [0, 2, 1]))  # [C..., L, M + 1, M]
    B, lambda_1 = products[..., :-1, :], products[..., -1, :, None]
    chol = tf.linalg.cholesky(B + tf.eye(tf.shape(A)[-2], dtype=B.dtype))
    deviation = tf.linalg.triangular_solve(chol, _normal(tf.shape(lambda_1), seed), adjoint=True)
    mean = tf.linalg.cholesky_solve(chol, lambda_1)
    return (
        tf.linalg.matrix_transpose(mean[..., 0]),
        tf.linalg.matrix_transpose(deviation[..., 0]),
    )


@check_shapes(
    "v: [C..., M, L]", "omega: [C..., N, L]", "Y: [broadcast C..., N, P]", "return: [C..., N, L]"
)
def f_given_v_omega(
    likelihood: AugmentedLikelihood,
    prior: Projection,
    v: TensorType,
    omega: TensorType,
    Y: TensorType,
    seed: Any,
) -> tf.Tensor:
    """Every f_i is regressed on its own ỹ_i: weight unexplained/(unexplained + R)."""
    observed, variance = map(tf.linalg.matrix_transpose, pseudo_observations(likelihood, omega, Y))
    unexplained = tf.transpose(prior.unexplained)
    weight = unexplained / (unexplained + variance)
    mean = _f_mean(prior, v)
    return (
        mean
        + weight * (observed - mean)
        + tf.sqrt(weight * variance) * _normal(tf.shape(omega), seed)
    )


def over_relaxed(current: tf.Tensor, mean: tf.Tensor, deviation: tf.Tensor, a: float) -> tf.Tensor:
    """mean + a (current − mean) + √(1 − a²) deviation (Adler 1981)."""
    moved = mean + to_default_float(np.sqrt(1.0 - a**2)) * deviation
    return moved + to_default_float(a) * (current - mean) if a else moved


def _f_mean(prior: Projection, v: tf.Tensor) -> tf.Tensor:
    """mean + Aᵀ v, [C..., N, L]."""
    rows = tf.linalg.matrix_transpose(v)[..., None, :]  # [C..., L, 1, M]
    return prior.mean + tf.linalg.matrix_transpose(_times_shared(rows, prior.A)[..., 0, :])


def _times_shared(rows: tf.Tensor, shared: tf.Tensor) -> tf.Tensor:
    """
    [C..., L, R, N] times [L, N, K]: one product for each output, whatever the number of chains.

    (TensorFlow's own broadcasting makes many small products; in float32 it can crash in oneDNN.)
    """
    shape = tf.shape(rows)
    P, N, K = shared.shape
    flat = tf.transpose(tf.reshape(rows, [-1, P, shape[-2], N]), [1, 0, 2, 3])
    product = tf.matmul(tf.reshape(flat, [P, -1, N]), shared)
    product = tf.transpose(tf.reshape(product, [P, -1, shape[-2], K]), [1, 0, 2, 3])
    return tf.reshape(product, tf.concat([shape[:-1], [K]], 0))


def _normal(shape: Any, seed: Any) -> tf.Tensor:
    seed = tfp.random.sanitize_seed(seed, salt="gibbs_normal")
    zero = to_default_float(0.0)
    return tf.random.stateless_normal(shape, seed, dtype=zero.dtype)


def _checked_relaxation(over_relaxation: float) -> float:
    if not -1.0 < over_relaxation < 1.0:
        raise ValueError(f"over_relaxation must be in (-1, 1). Found: {over_relaxation}.")
    return over_relaxation
