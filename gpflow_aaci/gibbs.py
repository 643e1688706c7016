r"""
The exact Gibbs sampler of the augmented model (AACI Algorithm 2), as a TFP transition kernel.

Given f the auxiliary variables are independent, ω_i ~ π_φ(·| |h_i|) where the likelihood is
super-Gaussian; given ω the posterior of f is Gaussian, with sites of potential g + βω and precision
λ = 2γω (Theorem 2). No K⁻¹ is formed: with B = I + Λ^½ K Λ^½ all is one Cholesky factorisation,
well conditioned for every ω.

Shapes: [C...] chains, [N] data, [P] latent GPs.
"""

from typing import Any, NamedTuple

import arviz
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from check_shapes import check_shapes
from gpflow.base import TensorType
from gpflow.utilities import to_default_float
from tqdm import tqdm

from .augmentation import auglik_potential_and_precision, aux_sample
from .models import AugmentedVGP

_DRAWS_AT_ONCE = 100  # between two updates of the progress bar


class GibbsResults(NamedTuple):
    """What a step leaves beside f."""

    omega: tf.Tensor  # [C..., N, P], that f was drawn given


class GibbsKernel(tfp.mcmc.TransitionKernel):
    """
    ω | f, then f | ω, for ``AugmentedVGP``; every step is accepted, nothing is tuned.

    The state is f at the data, [C..., N, P]; the hyperparameters are taken as they are::

        kernel = GibbsKernel(model)
        f = tfp.mcmc.sample_chain(
            1_000, tf.zeros([4, N, 1], tf.float64), kernel=kernel, trace_fn=None, seed=0
        )
    """

    def __init__(self, model: AugmentedVGP, over_relaxation: float = 0.0) -> None:
        """
        :param over_relaxation: a in f' = μ + a (f − μ) + √(1 − a²) Σ^½ε (Adler 1981), in (−1, 1);
            exact for each. 0 is the paper's sampler, near −1 means of odd functions of f (their
            averages, above all) converge faster, and those of even ones slower.
        :raises ValueError: for another model, or an ``over_relaxation`` outside (−1, 1).
        """
        if not isinstance(model, AugmentedVGP):
            raise ValueError(f"model must be an AugmentedVGP. Found: {type(model).__name__}.")
        if not -1.0 < over_relaxation < 1.0:
            raise ValueError(f"over_relaxation must be in (-1, 1). Found: {over_relaxation}.")
        self._parameters = {"model": model, "over_relaxation": over_relaxation}
        self.model, self.over_relaxation = model, over_relaxation

    @property
    def parameters(self) -> dict[str, Any]:
        return self._parameters

    @property
    def is_calibrated(self) -> bool:
        return True

    def bootstrap_results(self, init_state: TensorType) -> GibbsResults:
        return GibbsResults(tf.zeros_like(to_default_float(init_state)))

    def one_step(
        self, current_state: tf.Tensor, previous_kernel_results: GibbsResults, seed: Any = None
    ) -> tuple[tf.Tensor, GibbsResults]:
        """One sweep."""
        seeds = tfp.random.split_seed(seed, n=2, salt="gibbs")
        omega = sample_omega(self.model, current_state, seeds[0])
        mean, deviation = f_given_omega(self.model, omega, seeds[1])
        a = self.over_relaxation
        f = mean + to_default_float(np.sqrt(1.0 - a**2)) * deviation
        if a:
            f += to_default_float(a) * (current_state - mean)
        return f, GibbsResults(omega)


@check_shapes("f: [C..., N, P]", "return: [C..., N, P]")
def sample_omega(model: AugmentedVGP, f: TensorType, seed: Any) -> tf.Tensor:
    """ω_i ~ p(ω_i|f_i, y_i) of every datum (AACI Eq. 6)."""
    _, Y, _ = model.checked_batch()
    return aux_sample(model.likelihood, f, Y, seed)


@check_shapes("omega: [C..., N, P]", "return[0]: [C..., N, P]", "return[1]: [C..., N, P]")
def f_given_omega(model: AugmentedVGP, omega: TensorType, seed: Any) -> tuple[tf.Tensor, tf.Tensor]:
    """
    The mean of p(f|ω, y), and a draw of f minus it.

    With b = potential − λ∘μ₀ (the prior mean): mean μ₀ + K (b − Λ^½ B⁻¹ Λ^½ K b). The draw is
    Matheron's: f₀ ~ N(0, K) less what a regression on its own noisy copy would make of it,
    f₀ − K Λ^½ B⁻¹ (Λ^½ f₀ + ε).
    """
    X, Y, _ = model.checked_batch()
    potential, precision = auglik_potential_and_precision(model.likelihood, omega, Y)
    prior_mean = model.mean_function(X)
    K = model.prior_covariance()[0]
    L = tf.linalg.cholesky(K)

    b = tf.linalg.matrix_transpose(potential - precision * prior_mean)[..., None]  # [C..., P, N, 1]
    root = tf.sqrt(tf.linalg.matrix_transpose(precision))[..., None]
    seeds = tfp.random.split_seed(seed, n=2, salt="f_given_omega")
    f_0 = L @ tf.random.stateless_normal(tf.shape(b), seeds[0], dtype=b.dtype)
    noise = tf.random.stateless_normal(tf.shape(b), seeds[1], dtype=b.dtype)

    eye = tf.eye(tf.shape(K)[-1], dtype=K.dtype)
    B = eye + root * K * tf.linalg.matrix_transpose(root)
    Kb = K @ b
    right = tf.concat([root * Kb, root * f_0 + noise], axis=-1)
    solved = root * tf.linalg.cholesky_solve(tf.linalg.cholesky(B), right)
    correction = K @ solved
    mean = Kb - correction[..., :1]
    deviation = f_0 - correction[..., 1:]
    return (
        prior_mean + tf.linalg.matrix_transpose(mean[..., 0]),
        tf.linalg.matrix_transpose(deviation[..., 0]),
    )


def sample_posterior(
    model: AugmentedVGP,
    num_samples: int = 1_000,
    num_chains: int = 4,
    num_burnin: int = 100,
    seed: int = 0,
    progress: bool = True,
    *,
    over_relaxation: float = 0.0,
    keep_omega: bool = False,
) -> arviz.InferenceData:
    """
    Draws from the exact posterior p(f|y) of ``AugmentedVGP``, all chains in one batch.

    Chains begin at draws from the prior. The result's ``posterior`` holds ``f`` (and ``omega``)
    of dims (chain, draw, data, output), for ArviZ's diagnostics::

        samples = sample_posterior(model)
        arviz.summary(samples, kind="diagnostics")

    :param num_samples, num_burnin: draws of every chain that are kept, and that are not.
    :param seed: the same seed gives the same draws.
    :raises ValueError: for bad arguments.
    """
    for name, count, least in (
        ("num_samples", num_samples, 1),
        ("num_chains", num_chains, 1),
        ("num_burnin", num_burnin, 0),
    ):
        if not isinstance(count, int) or count < least:
            raise ValueError(f"{name} must be an integer of at least {least}. Found: {count!r}.")
    kernel = GibbsKernel(model, over_relaxation)
    _, Y, _ = model.checked_batch()
    total = num_burnin + num_samples
    blocks = -(-total // _DRAWS_AT_ONCE)
    seeds = tfp.random.split_seed(tf.constant([seed, 0]), n=1 + blocks)
    omega_0 = tf.zeros([num_chains, *Y.shape], Y.dtype)  # no sites: the prior
    mean, deviation = f_given_omega(model, omega_0, seeds[0])
    f = mean + deviation

    @tf.function(autograph=False, reduce_retracing=True)
    def draw(f: tf.Tensor, number: tf.Tensor, seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return tfp.mcmc.sample_chain(
            number, f, kernel=kernel, trace_fn=lambda f, results: results.omega, seed=seed
        )

    parts: list[tuple[Any, Any]] = []
    with tqdm(total=total, unit="draw", disable=None if progress else True) as bar:
        for block in range(blocks):
            number = min(_DRAWS_AT_ONCE, total - block * _DRAWS_AT_ONCE)
            fs, omegas = draw(f, tf.constant(number), seeds[1 + block])
            f = fs[-1]
            parts.append((fs.numpy(), omegas.numpy() if keep_omega else None))
            bar.update(number)
    kept = {"f": np.concatenate([f for f, _ in parts])[num_burnin:]}
    if keep_omega:
        kept["omega"] = np.concatenate([omega for _, omega in parts])[num_burnin:]
    return arviz.from_dict(
        posterior={name: np.swapaxes(values, 0, 1) for name, values in kept.items()},
        dims={name: ["data", "output"] for name in kept},
    )
