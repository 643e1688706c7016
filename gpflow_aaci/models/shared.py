"""The base classes of all models: their properties, and the prior and q that a pass needs."""

import abc
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import gpflow
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import RegressionData, TensorType
from gpflow.config import default_float, default_jitter
from gpflow.kernels import (
    Combination,
    Kernel,
    LinearCoregionalization,
    MultioutputKernel,
    SeparateIndependent,
    SharedIndependent,
)
from gpflow.posteriors import AbstractPosterior, PrecomputeCacheType

from ..algebra import arrow
from ..algebra.gaussian import Gaussian, diagonal, unwhiten, whiten
from ..algebra.projection import Prior, Projection, project
from ..algebra.terms import Term, mixed
from ..data import Expected
from ..kernels import levels_of
from ..likelihoods import AugmentedLikelihood
from ..runtime.agreement import check_same_program
from ..runtime.mirrored import strategy_of
from .posteriors import handed_out

AnyData: TypeAlias = RegressionData | tf.data.Dataset | None


class WithData(gpflow.models.GPModel):
    """A GP model of this package: it says which data it takes."""

    likelihood: AugmentedLikelihood
    num_data: Any

    @property
    def expected_data(self) -> Expected:
        """What the model expects of its data."""
        return Expected(
            type(self).__name__,
            self.input_dim,
            self.num_observed,
            self.num_outputs,
            self.likelihood.given,
            self.likelihood.checks,
            self.num_data,
            self.own_data,
            self.strategy,
            partial(check_same_program, self),
            self.likelihood.labels,
            levels_of(self.kernel),
        )

    @property
    def own_data(self) -> RegressionData | None:
        """The X [N, D] and Y [N, P] that the model stores itself, or None."""
        return None

    @property
    @abc.abstractmethod
    def input_dim(self) -> int | None:
        """Columns of X, or None where the inducing variable does not tell."""

    @property
    def strategy(self) -> tf.distribute.Strategy:
        """The strategy in whose scope the model was made."""
        return strategy_of(self.variables)

    @property
    def num_outputs(self) -> int:
        """Columns of f."""
        return self.num_latent_gps

    @property
    def num_observed(self) -> int:
        """Columns of Y."""
        return self.likelihood.num_observed(self.num_outputs)


class Augmented(WithData):
    """A model with a q(u); ``bounds`` adds its objectives and ``predictions`` its predictions."""

    # ---- what each model defines ----

    @abc.abstractmethod
    def prior_covariance(self) -> tf.Tensor:
        """K_ZZ + jitter I, [L, M, M]; [1, M, M] where the latent GPs share it."""

    def compact_prior_covariance(self) -> arrow.Matrix:
        """The same, without the zeros of effects of groups."""
        return self.prior_covariance()

    def prior_variance(self) -> tf.Tensor:
        """k(z, z) of every inducing variable, [broadcast L, M]."""
        return tf.linalg.diag_part(self.prior_covariance()) - default_jitter()

    @abc.abstractmethod
    def cross_covariance(
        self, X: TensorType, kernel: Kernel | None = None
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """
        K_ZX [broadcast L, M, N] and k(x_i, x_i) [broadcast L, N], for X [N, D].

        :param kernel: a summand of the model's kernel, for the summand of f in the place of f.
        """

    @property
    def points(self) -> gpflow.Parameter | None:
        """Z [M, D], where the inducing variables are f at these points; else None."""
        return None

    @property
    def strategy(self) -> tf.distribute.Strategy:
        """The strategy in whose scope the model was made."""
        return strategy_of([self.q_mu.unconstrained_variable])

    @property
    def num_before_groups(self) -> int | None:
        """
        F, if the v after the first F are effects of groups: independent under q given the first.

        Else None.
        """
        return None

    # ---- latent GPs and outputs ----

    @property
    def mixing(self) -> gpflow.Parameter | None:
        """W [P, L] of f = μ₀ + W g, where the kernel mixes its latent GPs g."""
        return self.kernel.W if isinstance(self.kernel, LinearCoregionalization) else None

    @property
    def num_outputs(self) -> int:
        """Columns of f."""
        return num_mixed(self.kernel) or self.num_latent_gps

    @property
    def in_turn(self) -> bool:
        """Whether closed-form steps must move one latent GP at a time, as the steps are coupled."""
        return self.num_latent_gps > 1 and (self.likelihood.in_turn or self.mixing is not None)

    @property
    def couples(self) -> bool:
        """Whether the slopes of E log p(y|f) in one latent GP depend on another."""
        return self.num_latent_gps > 1 and (self.likelihood.couples or self.mixing is not None)

    def term(self, of: Callable[[AugmentedLikelihood], Term]) -> Term:
        """``of(likelihood)`` as a function of the latent GPs, mixed or not."""
        term = of(self.likelihood)
        return term if self.mixing is None else mixed(term, self.mixing, self.mean_function)

    # ---- the pass: q(v), and the latent GPs at some inputs given it ----

    @check_shapes("X: [N, D]")
    def prior(self, X: TensorType) -> Prior:
        """The prior of u and of the latent GPs at X, with mean 0 where they are mixed."""
        return Prior(self.prior_covariance(), *self.cross_covariance(X), self.latent_mean(X))

    def latent_mean(self, X: TensorType) -> tf.Tensor:
        """μ₀ of the latent GPs, [N, broadcast L]; of the outputs instead, where these are mixed."""
        return self.mean_function(X) if self.mixing is None else tf.zeros_like(X[:, :1])

    def project(self, X: TensorType) -> Projection:
        """What maps q(v) to f at X [N, D]."""
        return project(self.prior(X))

    def whitening(self) -> tf.Tensor | None:
        """chol(K_ZZ) [broadcast L, M, M], or None where the model's q is whitened already."""
        return None if self.whiten else tf.linalg.cholesky(self.prior_covariance())

    def whitened_q(self, chol: arrow.Matrix | None) -> Gaussian:
        """q(v) with u = chol v, whether the model's q is whitened or not."""
        q = Gaussian(tf.convert_to_tensor(self.q_mu), tf.convert_to_tensor(self.q_sqrt))
        if self.is_diagonal:
            q = q._replace(sqrt=tf.linalg.diag(tf.transpose(q.sqrt)))
        return q if self.whiten else whiten(*q, arrow.dense(chol))

    @property
    def is_diagonal(self) -> bool:
        """Whether the covariance of q(v) is diagonal, GPflow's ``q_diag``; ``q_sqrt`` is [M, L]."""
        return len(self.q_sqrt.shape) == 2

    @property
    def within(self) -> Callable[[Gaussian], Gaussian]:
        """
        A function that makes any q(v) one that the model can represent.

        With ``q_diag`` it is the nearest one of a diagonal covariance, else the same.
        """
        return _diagonal if self.is_diagonal else _unchanged

    def stored_q(self, q: Gaussian, chol: arrow.Matrix | None) -> Gaussian:
        """The ``q_mu`` and ``q_sqrt`` of a q(v): the inverse of :meth:`whitened_q`."""
        if self.is_diagonal:  # and whitened
            of_v = diagonal(*q)
            return of_v._replace(sqrt=tf.transpose(tf.linalg.diag_part(of_v.sqrt)))
        return q if self.whiten else unwhiten(*q, arrow.dense(chol))

    def assign_whitened_q(self, q: Gaussian) -> None:
        """Assign q(v) to the model's ``q_mu`` and ``q_sqrt``."""
        q = self.stored_q(q, self.whitening())
        self.q_mu.assign(q.mu)
        self.q_sqrt.assign(q.sqrt)

    def posterior(
        self, precompute_cache: PrecomputeCacheType = PrecomputeCacheType.TENSOR
    ) -> AbstractPosterior:
        """GPflow's posterior, whose cache the closed-form optimizers refresh after their steps."""
        posterior = self._new_posterior(precompute_cache)
        if posterior.cache is not None:
            handed_out(self).add(posterior)
        return posterior

    def _new_posterior(self, precompute_cache: PrecomputeCacheType) -> AbstractPosterior:
        return super().posterior(precompute_cache)


def _diagonal(q: Gaussian) -> Gaussian:
    return arrow.diagonal(q) if isinstance(q.sqrt, arrow.Arrow) else diagonal(*q)


def _unchanged(q: Gaussian) -> Gaussian:
    return q


def check_single_output(kernel: Kernel, model: str) -> None:
    """
    :raises ValueError: for a multi-output kernel.
    """
    if isinstance(kernel, MultioutputKernel):
        raise ValueError(
            f"kernel must be a single-output kernel, shared by all latent GPs of {model}; "
            "AugmentedVGP and AugmentedSVGP take more. "
            f"Found: {type(kernel).__name__}."
        )


def check_kernel(kernel: Kernel) -> None:
    """
    The latent GPs must be independent a priori.

    :raises ValueError: for another multi-output kernel.
    """
    accepted = SharedIndependent | SeparateIndependent | LinearCoregionalization
    if isinstance(kernel, MultioutputKernel) and not isinstance(kernel, accepted):
        raise ValueError(
            "kernel must be a single-output kernel, SharedIndependent, SeparateIndependent or "
            f"LinearCoregionalization. Found: {type(kernel).__name__}."
        )


def covariance_of_latents(kernel: Kernel, X: TensorType, X2: TensorType | None = None) -> tf.Tensor:
    """K(X, X2) of the latent GPs, [broadcast L, N, N2]."""
    if isinstance(kernel, MultioutputKernel) and isinstance(kernel, Combination):
        return tf.stack([k(X, X2) for k in kernel.kernels])
    if isinstance(kernel, SharedIndependent):
        kernel = kernel.kernel
    return kernel(X, X2)[None]


def check_latents(kernel: Kernel, likelihood: AugmentedLikelihood, num_latent_gps: int) -> None:
    """
    :raises ValueError: unless the kernel and the likelihood have ``num_latent_gps`` latent GPs.
    """
    own = SeparateIndependent | LinearCoregionalization
    if isinstance(kernel, own) and kernel.num_latent_gps != num_latent_gps:
        raise ValueError(
            f"num_latent_gps must be {kernel.num_latent_gps}, as for the kernel. "
            f"Found: {num_latent_gps}."
        )
    outputs = num_mixed(kernel)
    if likelihood.latent_dim not in (None, outputs or num_latent_gps):
        name = "the rows of the kernel's W" if outputs else "num_latent_gps"
        raise ValueError(
            f"{name} must be {likelihood.latent_dim} for {type(likelihood).__name__}. "
            f"Found: {outputs or num_latent_gps}."
        )


def num_mixed(kernel: Kernel) -> int | None:
    """P, the number of outputs of a kernel that mixes latent GPs; None for any other kernel."""
    return int(kernel.W.shape[0]) if isinstance(kernel, LinearCoregionalization) else None


def prior_q(M: int, L: int) -> Gaussian:
    """The prior v ~ N(0, I), as a q(v)."""
    eye = tf.eye(M, batch_shape=[L], dtype=default_float())
    return Gaussian(tf.zeros([M, L], default_float()), eye)


def with_jitter(kernel: Kernel, X: TensorType) -> tf.Tensor:
    """K(X, X) + jitter I of the latent GPs, [broadcast L, N, N]."""
    return jittered(covariance_of_latents(kernel, X))


def jittered(K: tf.Tensor) -> tf.Tensor:
    """K + jitter I, [..., N, N]."""
    return K + default_jitter() * tf.eye(tf.shape(K)[-1], dtype=K.dtype)


def k_diag(kernel: Kernel, X: TensorType) -> tf.Tensor:
    """k(x_i, x_i), [broadcast L, N]."""
    if isinstance(kernel, MultioutputKernel) and isinstance(kernel, Combination):
        return tf.stack([k(X, full_cov=False) for k in kernel.kernels])
    if isinstance(kernel, SharedIndependent):
        kernel = kernel.kernel
    return kernel(X, full_cov=False)[None]
