"""GPflow's VGP and SVGP with the augmented bound in the place of the quadrature one."""

import weakref
from collections.abc import Sequence
from typing import Any, cast

import gpflow
import numpy as np
import tensorflow as tf
from check_shapes import check_shapes, inherit_check_shapes
from gpflow import covariances
from gpflow.base import RegressionData, TensorType
from gpflow.config import default_jitter
from gpflow.inducing_variables import (
    InducingPoints,
    InducingVariables,
    SeparateIndependentInducingVariables,
    SharedIndependentInducingVariables,
)
from gpflow.kernels import Kernel, MultioutputKernel, SeparateIndependent, SharedIndependent
from gpflow.kullback_leiblers import gauss_kl
from gpflow.likelihoods import Likelihood
from gpflow.mean_functions import MeanFunction
from gpflow.models.util import InducingVariablesLike
from gpflow.posteriors import AbstractPosterior, PrecomputeCacheType
from gpflow.utilities import to_default_float

from .augmentation import aux_posterior_c, optimal_expected_aug_loglik
from .collapsed import collapsed_bound
from .likelihoods import AugmentedLikelihood, augmented
from .sites import Projection, unwhiten, whiten
from .validation import checked_data


class _Augmented:
    """What both models share."""

    @check_shapes("X: [N, D]")
    def project(self, X: TensorType) -> Projection:
        """L = chol(K_ZZ), A = L⁻¹K_ZX and k(x_i, x_i), each [L, ...]."""
        model = cast("AugmentedModel", self)
        L = tf.linalg.cholesky(model.prior_covariance())
        K_ZX, k_diag = model.cross_covariance(X)
        return Projection(L, tf.linalg.triangular_solve(L, K_ZX), k_diag)

    def whitened_q(self, L: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """q_mu [M, P] and q_sqrt [P, M, M] of q(v), u = L v, whether q is kept whitened or not."""
        model = cast("AugmentedModel", self)
        q_mu, q_sqrt = tf.convert_to_tensor(model.q_mu), tf.convert_to_tensor(model.q_sqrt)
        return (q_mu, q_sqrt) if model.whiten else whiten(q_mu, q_sqrt, L)

    def assign_whitened_q(self, q_mu: tf.Tensor, q_sqrt: tf.Tensor, L: tf.Tensor) -> None:
        """The inverse of :meth:`whitened_q`."""
        model = cast("AugmentedModel", self)
        if not model.whiten:
            q_mu, q_sqrt = unwhiten(q_mu, q_sqrt, L)
        model.q_mu.assign(q_mu)
        model.q_sqrt.assign(q_sqrt)

    @check_shapes("X: [N, D]", "Y: [N, P]", "scale: []", "return: []")
    def scaled_elbo(self, X: TensorType, Y: TensorType, scale: TensorType) -> tf.Tensor:
        """``elbo``, of what ``checked_batch`` returns."""
        model = cast("AugmentedModel", self)
        Fmu, Fvar = model.predict_f(X)
        terms = optimal_expected_aug_loglik(model.likelihood, Fmu, Fvar, Y)
        return scale * tf.reduce_sum(terms) - model.prior_kl()

    def posterior(
        self, precompute_cache: PrecomputeCacheType = PrecomputeCacheType.TENSOR
    ) -> AbstractPosterior:
        """As GPflow's; the closed-form optimizers refresh its cache after they step."""
        posterior = super().posterior(precompute_cache)  # type: ignore[misc]
        if posterior.cache is not None:
            _handed_out(self).add(posterior)
        return posterior


class AugmentedSVGP(_Augmented, gpflow.models.SVGP):
    r"""
    ``gpflow.models.SVGP`` whose ``elbo`` is the augmented bound (AACI App. A.4.4).

    Σ_i [log C + g m_i + log φ(E h_i²)] · num_data/|B| − KL[q(u) ‖ p(u)], which is below
    SVGP's own ELBO. On it GPflow's ``NaturalGradient(gamma)`` is the closed-form step, positive
    definite at every gamma in (0, 1]. Everything else is GPflow's::

        model = AugmentedSVGP(kernel, gpflow.likelihoods.StudentT(), Z, num_data=N)
        AugmentedNaturalGradient(step_size=1.0).minimize(model, (X, Y))

    Kernels: single-output ones, or ``SharedIndependent``/``SeparateIndependent`` with
    ``SharedIndependentInducingVariables``/``SeparateIndependentInducingVariables``.
    """

    likelihood: AugmentedLikelihood

    def __init__(
        self,
        kernel: Kernel,
        likelihood: Likelihood,
        inducing_variable: InducingVariablesLike,
        *,
        mean_function: MeanFunction | None = None,
        num_latent_gps: int = 1,
        q_diag: bool = False,
        q_mu: TensorType | None = None,
        q_sqrt: TensorType | None = None,
        whiten: bool = True,
        num_data: TensorType | None = None,
    ):
        """
        Arguments as ``gpflow.models.SVGP``.

        :param likelihood: a ``SuperGaussianLikelihood`` or ``Probit``, or GPflow's ``StudentT``,
            ``Gaussian``, ``Bernoulli()`` or ``Bernoulli(invlink=tf.sigmoid)``, whose Parameters
            are shared.
        :raises ValueError: for a likelihood without augmentation, ``q_diag=True`` (the optimal
            q(u) is not diagonal) and kernels that mix latent GPs.
        """
        if q_diag:
            raise ValueError(
                "q_diag must be False: the closed-form update needs a full covariance. Found: True."
            )
        inducing_variable = gpflow.models.util.inducingpoint_wrapper(inducing_variable)
        _check_independent(kernel, inducing_variable)
        super().__init__(
            kernel,
            augmented(likelihood),
            inducing_variable,
            mean_function=mean_function,
            num_latent_gps=num_latent_gps,
            q_diag=q_diag,
            q_mu=q_mu,
            q_sqrt=q_sqrt,
            whiten=whiten,
            num_data=num_data,
        )
        _handed_out(self)

    def checked_batch(
        self, data: RegressionData, num_data: int | None = None
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """
        X [N, D], Y [N, P] and num_data/|B| [] of a batch.

        :param num_data: how many rows there are in all, for a model that has been told none.
        :raises ValueError: as :func:`~gpflow_aaci.validation.checked_data`.
        """
        num_data = num_data if self.num_data is None else self.num_data
        X, Y = checked_data(
            *data,
            num_outputs=self.num_latent_gps,
            input_dim=self.input_dim,
            num_data=num_data,
            check_labels=self.likelihood.check_observations,
        )
        if num_data is None:
            return X, Y, tf.ones([], X.dtype)
        return X, Y, tf.cast(num_data, X.dtype) / tf.cast(tf.shape(X)[0], X.dtype)

    @inherit_check_shapes
    def elbo(self, data: RegressionData) -> tf.Tensor:
        """
        The augmented bound, below :meth:`standard_elbo`.

        :raises ValueError: for bad data, see :meth:`checked_batch`.
        """
        return self.scaled_elbo(*self.checked_batch(data))

    @check_shapes("data[0]: [N, D]", "data[1]: [N, P]", "return: []")
    def standard_elbo(self, data: RegressionData) -> tf.Tensor:
        """
        GPflow's ELBO, with ``likelihood.variational_expectations``.

        Where GPflow takes E log p(y|f) by Gauss-Hermite quadrature of 20 nodes, here it holds
        1e-6 at every width of the likelihood against sd(f). The two differ, and GPflow's number
        may exceed log p(Y), where the noise is narrow or kinked against q(f): by several nats for
        Student-t or Matérn noise well below sd(f). A likelihood given a ``quadrature`` of other
        than 20 Gauss-Hermite nodes uses that one here too.
        """
        X, Y, _ = self.checked_batch(data)
        return super().elbo((X, Y))

    @check_shapes("data[0]: [N, D]", "data[1]: [N, P]", "c: [N, P]", "return: []")
    def collapsed_elbo(self, data: RegressionData, c: TensorType | None = None) -> tf.Tensor:
        """
        The augmented bound with q(u) maximised out, given c; differentiable in the hyperparameters.

        :param c: c > 0 of every datum, any of which gives a bound; that of the current q unless
            given, from where the bound is at least ``elbo``.
        """
        return _collapsed_elbo(self, *self.checked_batch(data), c)

    @check_shapes("data[0]: [N, D]", "data[1]: [N, P]", "return: [N]")
    def augmentation_gap(self, data: RegressionData) -> tf.Tensor:
        """E log p(y|f) minus its augmented bound, for every datum; ≥ 0 by Jensen's inequality."""
        X, Y, _ = self.checked_batch(data)
        return _augmentation_gap(self, X, Y)

    @property
    def input_dim(self) -> int | None:
        """Columns of X, or None where the inducing variable does not tell."""
        return _input_dim(self.inducing_variable)

    def prior_covariance(self) -> tf.Tensor:
        """K_ZZ + jitter I, [L, M, M]; L = 1 where the latent GPs share it."""
        K = covariances.Kuu(self.inducing_variable, self.kernel, jitter=default_jitter())
        return K if len(K.shape) == 3 else K[None]

    @check_shapes("X: [N, D]")
    def cross_covariance(self, X: TensorType) -> tuple[tf.Tensor, tf.Tensor]:
        """K_ZX [L, M, N] and k(x_i, x_i) [L, N]."""
        K = covariances.Kuf(self.inducing_variable, self.kernel, X)
        return (K if len(K.shape) == 3 else K[None]), _k_diag(self.kernel, X)


class AugmentedVGP(_Augmented, gpflow.models.VGP):
    r"""
    ``gpflow.models.VGP`` whose ``elbo`` is the augmented bound (AACI App. A.4.1).

    Like VGP it keeps its data, so that its methods take none. Equal to ``AugmentedSVGP`` with
    Z = X: f is projected through A = L⁻¹K(X, X) with k_ii free of jitter, as in ``predict_f``,
    which keeps the bound, its natural gradient and the predictions of one model in agreement::

        model = AugmentedVGP((X, Y), kernel, gpflow_aaci.likelihoods.Laplace())
        AugmentedNaturalGradient(step_size=1.0).minimize(model)
    """

    likelihood: AugmentedLikelihood

    def __init__(
        self,
        data: RegressionData,
        kernel: Kernel,
        likelihood: Likelihood,
        mean_function: MeanFunction | None = None,
        num_latent_gps: int | None = None,
    ):
        """
        Arguments as ``gpflow.models.VGP``; ``likelihood`` as in :class:`AugmentedSVGP`.

        :raises ValueError: for a likelihood without augmentation, multi-output kernels (use
            :class:`AugmentedSVGP`) and bad data.
        """
        if isinstance(kernel, MultioutputKernel):
            raise ValueError(
                "kernel must be a single-output kernel, shared by all latent GPs of AugmentedVGP; "
                f"AugmentedSVGP takes more. Found: {type(kernel).__name__}."
            )
        likelihood = augmented(likelihood)
        X, Y = data
        num_outputs = num_latent_gps if num_latent_gps is not None else int(np.shape(Y)[-1])
        X, Y = checked_data(
            X, Y, num_outputs=num_outputs, check_labels=likelihood.check_observations
        )
        # Variables stay themselves: gpflow.models.vgp.update_vgp_data assigns to them.
        kept = data if all(isinstance(d, tf.Variable) for d in data) else (X, Y)
        super().__init__(kept, kernel, likelihood, mean_function, num_latent_gps)
        _handed_out(self)

    def checked_batch(
        self, data: None = None, num_data: int | None = None
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Its own X [N, D], Y [N, P], and the scale 1."""
        X, Y = (tf.convert_to_tensor(d) for d in self.data)
        return X, Y, tf.ones([], X.dtype)

    @inherit_check_shapes
    def elbo(self) -> tf.Tensor:
        """The augmented bound, below :meth:`standard_elbo`."""
        return self.scaled_elbo(*self.checked_batch())

    @check_shapes("return: []")
    def standard_elbo(self) -> tf.Tensor:
        """
        GPflow's ELBO, with ``likelihood.variational_expectations``.

        It differs from GPflow's where 20 quadrature nodes are too few for E log p(y|f), as
        :meth:`AugmentedSVGP.standard_elbo` says.
        """
        X, Y, _ = self.checked_batch()
        Fmu, Fvar = self.predict_f(X)
        terms = self.likelihood.variational_expectations(X, Fmu, Fvar, Y)
        return tf.reduce_sum(terms) - self.prior_kl()

    @check_shapes("return: []")
    def prior_kl(self) -> tf.Tensor:
        """KL[q(v) ‖ N(0, I)], which is KL[q(f) ‖ p(f)]."""
        return gauss_kl(self.q_mu, self.q_sqrt)

    @check_shapes("c: [N, P]", "return: []")
    def collapsed_elbo(self, c: TensorType | None = None) -> tf.Tensor:
        """As :meth:`AugmentedSVGP.collapsed_elbo`."""
        return _collapsed_elbo(self, *self.checked_batch(), c)

    @check_shapes("return: [N]")
    def augmentation_gap(self) -> tf.Tensor:
        """E log p(y|f) minus its augmented bound, for every datum; ≥ 0 by Jensen's inequality."""
        X, Y, _ = self.checked_batch()
        return _augmentation_gap(self, X, Y)

    @property
    def whiten(self) -> bool:
        """VGP is always whitened."""
        return True

    @property
    def input_dim(self) -> int:
        """Columns of X."""
        return int(self.data[0].shape[-1])

    def prior_covariance(self) -> tf.Tensor:
        """K(X, X) + jitter I, [1, N, N]."""
        K = self.kernel(self.data[0])
        return (K + default_jitter() * tf.eye(tf.shape(K)[-1], dtype=K.dtype))[None]

    @check_shapes("X: [N, D]")
    def cross_covariance(self, X: TensorType) -> tuple[tf.Tensor, tf.Tensor]:
        """K(X_data, X) [1, M, N] and k(x_i, x_i) [1, N]."""
        return self.kernel(self.data[0], X)[None], _k_diag(self.kernel, X)


AugmentedModel = AugmentedSVGP | AugmentedVGP


def known_num_data(model: AugmentedModel) -> int | None:
    """``model.num_data``, which may be a number, a variable or None."""
    return None if model.num_data is None else int(tf.convert_to_tensor(model.num_data))


def hyperparameters(model: AugmentedModel) -> list[tf.Variable]:
    """The trainable variables of ``model`` but for q's, and for a ``num_data`` that is one."""
    not_hyper = {id(p.unconstrained_variable) for p in (model.q_mu, model.q_sqrt)}
    not_hyper.add(id(getattr(model.num_data, "unconstrained_variable", model.num_data)))
    return [variable for variable in model.trainable_variables if id(variable) not in not_hyper]


def strategy_of(variables: Sequence[tf.Variable]) -> tf.distribute.Strategy:
    """
    That whose scope they were made in.

    :raises ValueError: where it has several devices, which nothing here keeps in step.
    """
    mirrored = [v for v in variables if isinstance(v, tf.distribute.DistributedValues)]
    strategy = mirrored[0].distribute_strategy if mirrored else tf.distribute.get_strategy()
    if strategy.num_replicas_in_sync > 1:
        raise ValueError(
            "model must be on one device. Found: variables of a "
            f"{type(strategy).__name__} with {strategy.num_replicas_in_sync}."
        )
    return strategy


def local(variables: Sequence[tf.Variable]) -> list[tf.Variable]:
    """What tapes watch: the variables, or those on the one device that they are mirrored to."""
    strategy_of(variables)
    return [
        v.distribute_strategy.experimental_local_results(v)[0]
        if isinstance(v, tf.distribute.DistributedValues)
        else v
        for v in variables
    ]


def _augmentation_gap(model: AugmentedModel, X: tf.Tensor, Y: tf.Tensor) -> tf.Tensor:
    Fmu, Fvar = model.predict_f(X)
    bound = tf.reduce_sum(optimal_expected_aug_loglik(model.likelihood, Fmu, Fvar, Y), axis=-1)
    return model.likelihood.variational_expectations(X, Fmu, Fvar, Y) - bound


def _collapsed_elbo(
    model: AugmentedModel, X: tf.Tensor, Y: tf.Tensor, scale: tf.Tensor, c: TensorType | None
) -> tf.Tensor:
    if c is None:
        Fmu, Fvar = model.predict_f(X)
        c = tf.stop_gradient(aux_posterior_c(model.likelihood, Fmu, Fvar, Y))
    K_ZX, k_diag = model.cross_covariance(X)
    return collapsed_bound(
        model.likelihood,
        model.prior_covariance(),
        K_ZX,
        k_diag,
        model.mean_function(X),
        Y,
        to_default_float(c),
        scale,
    )


def _k_diag(kernel: Kernel, X: TensorType) -> tf.Tensor:
    """k(x_i, x_i) as [L, N]."""
    if isinstance(kernel, SeparateIndependent):
        return tf.stack([k(X, full_cov=False) for k in kernel.kernels])
    if isinstance(kernel, SharedIndependent):
        kernel = kernel.kernel
    return kernel(X, full_cov=False)[None]


def _check_independent(kernel: Kernel, inducing_variable: InducingVariables) -> None:
    """A closed-form step is simultaneous in all latent GPs, so they must be independent."""
    if not isinstance(kernel, MultioutputKernel):
        return
    if not isinstance(kernel, SharedIndependent | SeparateIndependent):
        raise ValueError(
            "kernel must keep the latent GPs independent (a simultaneous closed-form step diverges "
            "where it mixes them): a single-output kernel, SharedIndependent or "
            f"SeparateIndependent. Found: {type(kernel).__name__}."
        )
    if not isinstance(
        inducing_variable,
        SharedIndependentInducingVariables | SeparateIndependentInducingVariables,
    ):
        raise ValueError(
            "inducing_variable must be a SharedIndependentInducingVariables or "
            f"SeparateIndependentInducingVariables with a {type(kernel).__name__} kernel. "
            f"Found: {type(inducing_variable).__name__}."
        )


def _input_dim(inducing_variable: InducingVariables) -> int | None:
    """Columns of Z, or None where it has no such notion."""
    if isinstance(inducing_variable, SharedIndependentInducingVariables):
        return _input_dim(inducing_variable.inducing_variable)
    if isinstance(inducing_variable, SeparateIndependentInducingVariables):
        return _input_dim(inducing_variable.inducing_variable_list[0])
    if type(inducing_variable) is not InducingPoints:  # patches, for one, are not points
        return None
    return cast("int | None", inducing_variable.Z.shape[-1])


class _HandedOut:
    """The posteriors with a cache that a model has handed out and that are still in use."""

    def __init__(self) -> None:
        self._posteriors: weakref.WeakSet[AbstractPosterior] = weakref.WeakSet()
        # Read by compiled steps. Made with the model: a function that makes one is traced twice.
        with tf.init_scope():
            self.any = tf.Variable(False, trainable=False)

    def add(self, posterior: AbstractPosterior) -> None:
        self._posteriors.add(posterior)
        self.any.assign(True)

    def refresh(self) -> None:
        for posterior in list(self._posteriors):
            if posterior.cache is not None:
                posterior.update_cache()


# Outside the models, so that copying and saving them never meets a weak reference.
_HANDED_OUT: "weakref.WeakKeyDictionary[Any, _HandedOut]" = weakref.WeakKeyDictionary()


def _handed_out(model: Any) -> _HandedOut:
    if model not in _HANDED_OUT:
        _HANDED_OUT[model] = _HandedOut()
    return _HANDED_OUT[model]


def refresh_posteriors(model: AugmentedModel) -> None:
    """Update the caches of the posteriors that ``model.posterior()`` has handed out."""
    handed_out = _handed_out(model)
    if tf.executing_eagerly():  # GPflow computes its caches eagerly only
        handed_out.refresh()
        return
    # The graph must not hold the model, which may hold the graph: neither would ever be freed.
    # Most models never hand out a posterior, and then Python is not called.
    reference = weakref.ref(handed_out)

    def refresh() -> None:
        alive = reference()
        if alive is not None:
            alive.refresh()

    def call() -> tf.Tensor:
        with tf.control_dependencies([tf.py_function(refresh, [], [])]):
            return tf.constant(True)

    tf.cond(handed_out.any, call, lambda: tf.constant(False))
