r"""
f at some inputs given a few rows of data: the augmented GP of these rows on its own.

Given its sites, exp(h_i (f_i − μ_i) − ½ p_i (f_i − μ_i)²), every augmented likelihood is Gaussian
in f. With r = √p, B = I + r K r and μ the mean function,

    f_x | sites ~ N(μ_x + κᵀ r B⁻¹ (h/r),  k_xx − κᵀ r B⁻¹ r κ)     (Rasmussen and Williams 3.27).

All eigenvalues of B are at least 1, so that no jitter is needed and a precision may be 0. The sites
are those of the closed-form step of size 1 (AACI Thm 2), p = −2 ∂bound/∂v and
h = ∂bound/∂m + p(m − μ), at marginals that begin at the prior.

Shapes: [B] problems that have nothing to do with each other, [k] rows of data and [Q] queries in
each, [L] latent GPs.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import gpflow
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import TensorType
from gpflow.kernels import Kernel
from gpflow.mean_functions import MeanFunction

from ..likelihoods import AugmentedLikelihood

_LEAST_PRECISION = 1e-16  # of a site, times k_xx: below rounding, and h/r stays finite at p = 0
_LEAST_VARIANCE = 1e-10  # of f given the rows, in k_xx: rounding may leave less than 0


class LocalGP(gpflow.base.Module):
    """The prior and the likelihood of f, as the conditional needs them; it holds no data."""

    def __init__(
        self,
        kernels: Sequence[Kernel],
        mean_function: MeanFunction,
        likelihood: AugmentedLikelihood,
        num_steps: int,
    ) -> None:
        """
        :param kernels: one for each latent GP, or one that they share.
        :param num_steps: the number of closed-form updates of the sites.
        """
        super().__init__()
        self.kernels = list(kernels)
        self.mean_function, self.likelihood = mean_function, likelihood
        self.num_steps = num_steps

    @check_shapes(
        "Xnew: [B, Q, D]",
        "X: [B, k, D]",
        "Y: [B, k, P]",
        "return[0]: [B, Q, L]",
        "return[1]: [B, Q, L]",
    )
    def marginals(
        self, Xnew: TensorType, X: TensorType, Y: TensorType
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Mean and variance of f at ``Xnew`` given the rows X, Y."""
        mean, prior, W = self._given(Xnew, X, Y)
        variance = tf.linalg.diag_part(prior)
        rest = tf.maximum(variance - _squares(W), _LEAST_VARIANCE * variance)
        return mean, _columns_last(rest)

    @check_shapes(
        "Xnew: [B, Q, D]",
        "X: [B, k, D]",
        "Y: [B, k, P]",
        "return[0]: [B, Q, L]",
        "return[1]: [B, L, Q, Q]",
    )
    def joint(self, Xnew: TensorType, X: TensorType, Y: TensorType) -> tuple[tf.Tensor, tf.Tensor]:
        """Mean and covariance of f at ``Xnew`` given the rows X, Y."""
        mean, prior, W = self._given(Xnew, X, Y)
        return mean, prior - tf.matmul(W, W, transpose_a=True)

    def _given(
        self, Xnew: TensorType, X: TensorType, Y: TensorType
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """The mean [B, Q, L], K(Xnew, Xnew) [B, 1 or L, Q, Q] and L⁻¹ r κ [B, L, k, Q]."""
        num_queries = tf.shape(Xnew)[1]
        K_all = self._covariance(tf.concat([Xnew, X], 1))
        K, cross = K_all[..., num_queries:, num_queries:], K_all[..., num_queries:, :num_queries]
        prior_mean = self.mean_function(X)
        solution = self._solution(K, prior_mean, X, Y)
        W = tf.linalg.triangular_solve(solution.chol, solution.root[..., None] * cross)
        mean = self.mean_function(Xnew) + _columns_last(_matvec(W, solution.white))
        return mean, K_all[..., :num_queries, :num_queries], W

    def _covariance(self, X: TensorType) -> tf.Tensor:
        """K(X, X) [B, 1 or L, n, n], for X [B, n, D]."""
        parts = []
        for kernel in self.kernels:
            # Distances lose digits where X is far from 0, which shows in float32.
            at = X - X[:, :1] if is_translation_invariant(kernel) else X
            parts.append(tf.linalg.set_diag(kernel(at), kernel(at, full_cov=False)))
        return tf.stack(parts, 1)

    def _solution(
        self, K: tf.Tensor, prior_mean: tf.Tensor, X: TensorType, Y: TensorType
    ) -> "_Solution":
        """
        The posterior of the rows given the sites at the marginals after ``num_steps`` updates.

        Latent GPs that are coupled are moved one after the other, each at fresh marginals.
        """
        num_latents = self.likelihood.num_outputs(Y.shape[-1])
        of_each = tf.zeros([*tf.unstack(tf.shape(X)[:2]), num_latents], K.dtype)
        variance = tf.linalg.diag_part(K)  # [B, 1 or L, k]
        least = _LEAST_PRECISION / tf.maximum(variance, _LEAST_PRECISION)
        m, v = prior_mean + of_each, _columns_last(variance) + of_each
        if not (self.likelihood.in_turn and num_latents > 1):
            for _ in range(self.num_steps):
                solution = self._posterior(K, prior_mean, least, X, m, v, Y)
                m, v = _marginals_of(solution, K, prior_mean)
            return self._posterior(K, prior_mean, least, X, m, v, Y)
        solutions: list[Any] = [None] * num_latents
        for latent in list(range(num_latents)) * (self.num_steps + 1):
            solution = self._posterior(K, prior_mean, least, X, m, v, Y)
            solutions[latent] = [part[:, latent] for part in solution]
            is_moved = tf.range(num_latents) == latent
            moved = _marginals_of(solution, K, prior_mean)
            m, v = (tf.where(is_moved, *pair) for pair in zip(moved, (m, v), strict=True))
        return _Solution(*(tf.stack(parts, 1) for parts in zip(*solutions, strict=True)))

    def _posterior(
        self,
        K: tf.Tensor,
        prior_mean: tf.Tensor,
        least: tf.Tensor,
        X: TensorType,
        m: tf.Tensor,
        v: tf.Tensor,
        Y: TensorType,
    ) -> "_Solution":
        """The posterior given the sites at the marginals m and v [B, k, L]."""
        in_mean, in_variance = self.likelihood.bound_slopes(X, m, v, Y)
        precision = tf.maximum(-2.0 * in_variance, _columns_last(least))
        potential = in_mean + precision * (m - prior_mean)
        root, potential = tf.sqrt(_columns_first(precision)), _columns_first(potential)
        eye = tf.eye(tf.shape(K)[-1], dtype=K.dtype)
        chol = tf.linalg.cholesky(eye + root[..., :, None] * K * root[..., None, :])
        white = tf.linalg.triangular_solve(chol, (potential / root)[..., None])[..., 0]
        return _Solution(root, chol, white)


class _Solution(NamedTuple):
    root: tf.Tensor  # r = √p, [B, L, k]
    chol: tf.Tensor  # of B = I + r K r, [B, L, k, k]
    white: tf.Tensor  # chol⁻¹ (h/r), [B, L, k]


def _marginals_of(
    solution: _Solution, K: tf.Tensor, prior_mean: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Mean and variance of f at the rows, [B, k, L]."""
    W = tf.linalg.triangular_solve(solution.chol, solution.root[..., None] * K)
    variance = tf.linalg.diag_part(K)
    rest = tf.maximum(variance - _squares(W), _LEAST_VARIANCE * variance)
    return prior_mean + _columns_last(_matvec(W, solution.white)), _columns_last(rest)


def is_translation_invariant(kernel: Kernel) -> bool:
    """Whether k(x + a, x′ + a) = k(x, x′), as far as GPflow's classes tell."""
    if isinstance(kernel, gpflow.kernels.Sum | gpflow.kernels.Product):
        return all(map(is_translation_invariant, kernel.kernels))
    return isinstance(
        kernel, gpflow.kernels.Stationary | gpflow.kernels.Static | gpflow.kernels.Periodic
    )


def _squares(W: tf.Tensor) -> tf.Tensor:
    return tf.reduce_sum(tf.square(W), -2)


def _matvec(W: tf.Tensor, white: tf.Tensor) -> tf.Tensor:
    """Wᵀ white, for W [B, L, k, Q]: [B, L, Q]."""
    return tf.linalg.matvec(W, white, transpose_a=True)


def _columns_last(values: tf.Tensor) -> tf.Tensor:
    return tf.linalg.matrix_transpose(values)


_columns_first = _columns_last
