"""
f of a model of ours or of GPflow's as a linear map of numbers that are standard normal a priori.

Full GPs: f = μ₀ + chol v. With inducing variables, u = chol v: f = μ₀ + Aᵀ v + √unexplained ε, each
f_i independent given u (FITC; as :class:`~gpflow_aaci.SparseGibbsKernel`).

Shapes: [C...] chains, [N] data, [M] inducing variables, [L] latent GPs, [P] columns of Y.
"""

from typing import NamedTuple, TypeAlias

import gpflow
import numpy as np
import tensorflow as tf
from gpflow import covariances
from gpflow.base import RegressionData
from gpflow.config import default_jitter
from gpflow.kernels import LinearCoregionalization, MultioutputKernel
from gpflow.likelihoods import Likelihood, ScalarLikelihood, SwitchedLikelihood

from ..algebra.projection import Prior, Projection, project
from ..data import as_arrays, check_pair
from ..data import checked_rows as data_rows
from ..likelihoods import AugmentedLikelihood
from ..models import AugmentedModel, AugmentedSVGP, AugmentedVGP
from ..models.shared import k_diag, with_jitter
from ..validation import as_observed, as_pair, checked_data
from .conditionals import f_mean, of_each_latent

FullGP: TypeAlias = gpflow.models.VGP | gpflow.models.GPMC
SparseModel: TypeAlias = AugmentedSVGP | gpflow.models.SVGP
AnyModel: TypeAlias = AugmentedModel | FullGP | SparseModel
Rows = tuple[tf.Tensor, tf.Tensor]


class Whitened(NamedTuple):
    """At the model's hyperparameters as they are."""

    rows: Rows  # X [N, D], Y [N, P]
    prior: Projection  # A [L, M, N]
    is_sparse: bool

    @property
    def shapes(self) -> list[list[int]]:
        """Of the parts of a state, chains left out: v [M, L] and, if sparse, ε [N, L]."""
        L, M, N = self.prior.A.shape
        return [[M, L], [N, L]] if self.is_sparse else [[M, L]]

    def f(self, v: tf.Tensor, *noise: tf.Tensor) -> tf.Tensor:
        """[C..., N, L]."""
        f = f_mean(self.prior, v)
        return f + tf.sqrt(tf.transpose(self.prior.unexplained)) * noise[0] if noise else f

    def u(self, v: tf.Tensor) -> tf.Tensor:
        """[C..., M, L], of inducing variables."""
        return to_u(self.prior.chol, v)


def whitened(model: AnyModel, data: RegressionData | None = None) -> Whitened:
    """
    :param data: X [N, D], Y [N, P], all of them, for models with inducing variables; the others
        keep their own.
    :raises ValueError: for another model, bad data, and kernels that mix the latent GPs.
    """
    check_sampled_model(model)
    X, Y = checked_rows(model, data)
    is_sparse = not isinstance(model, FullGP)
    if is_sparse:
        prior = project_at(model, X)
    else:
        chol = tf.linalg.cholesky(prior_covariance(model))
        A = tf.linalg.matrix_transpose(chol)
        prior = Projection(chol, A, tf.zeros_like(A[:, 0]), model.mean_function(X))
    return Whitened((X, Y), of_each_latent(prior, model.num_latent_gps), is_sparse)


def check_sampled_model(model: AnyModel) -> None:
    """
    :raises ValueError: for another model, and kernels that mix the latent GPs or, of GPflow's own
        models, are not of independent ones.
    """
    if not isinstance(model, FullGP | gpflow.models.SVGP):
        raise ValueError(
            "model must be an AugmentedVGP, an AugmentedSVGP or GPflow's VGP, GPMC or SVGP. "
            f"Found: {type(model).__name__}."
        )
    kernel = model.kernel
    is_mixed = isinstance(kernel, LinearCoregionalization)
    if is_mixed or (isinstance(kernel, MultioutputKernel) and isinstance(model, FullGP)):
        raise ValueError(
            "kernel must not mix the latent GPs that are to be sampled, and be a single-output "
            f"kernel in VGP and GPMC. Found: {type(kernel).__name__}."
        )


def checked_rows(model: AnyModel, data: RegressionData | None) -> Rows:
    """
    X [N, D], Y [N, P]: all of the training data.

    :raises ValueError: for bad data, some of the rows, and data of a model that keeps its own.
    """
    if isinstance(model, FullGP) == (data is not None):
        raise ValueError(
            "data must be given for models with inducing variables and not for those that keep "
            f"their own. Found: {type(model).__name__}, data {'not ' if data is None else ''}given."
        )
    if isinstance(model, AugmentedVGP | AugmentedSVGP):
        X, Y = as_arrays(model.expected_data, data).rows
    elif data is None:
        X, Y = new_rows(model, model.data)
    else:
        X, Y = new_rows(model, data)
    num_data = getattr(model, "num_data", None)
    if data is not None and num_data is not None and int(num_data) != len(X):
        raise ValueError(f"data must be all num_data = {num_data} rows. Found: {len(X)} rows.")
    return X, Y


def new_rows(model: AnyModel, data: RegressionData) -> Rows:
    """X [N, D], Y [N, P] that the model may be told or asked of, checked."""
    if isinstance(model, AugmentedVGP | AugmentedSVGP):
        return data_rows(model.expected_data, data)
    check_pair("data", data)
    likelihood, L = model.likelihood, model.num_latent_gps
    X, Y = as_pair(data)
    columns = likelihood.observation_dim
    if columns is None:  # GPflow's Softmax does not say; a switched one has a column of its own
        columns = L if isinstance(likelihood, ScalarLikelihood) else np.shape(Y)[-1]
        columns += isinstance(likelihood, SwitchedLikelihood)
    X, _ = checked_data(X, Y, num_observed=columns, num_outputs=L)
    return X, as_observed(likelihood, Y)


def project_at(model: AnyModel, X: tf.Tensor) -> Projection:
    """What the model's inducing variables, or its data where it keeps them, say of f at X."""
    if isinstance(model, AugmentedVGP | AugmentedSVGP):
        return model.project(X)
    if isinstance(model, FullGP):
        K_ZX = model.kernel(tf.convert_to_tensor(model.data[0]), X)
    else:
        K_ZX = covariances.Kuf(model.inducing_variable, model.kernel, X)
    K_ZX = K_ZX if len(K_ZX.shape) == 3 else K_ZX[None]
    k_ii = k_diag(model.kernel, X)
    return project(Prior(prior_covariance(model), K_ZX, k_ii, model.mean_function(X)))


def prior_covariance(model: AnyModel) -> tf.Tensor:
    """Of u, or of f where the model keeps its data; jitter included, [broadcast L, M, M]."""
    if isinstance(model, AugmentedVGP | AugmentedSVGP):
        return model.prior_covariance()
    if isinstance(model, FullGP):
        return with_jitter(model.kernel, tf.convert_to_tensor(model.data[0]))
    K = covariances.Kuu(model.inducing_variable, model.kernel, jitter=default_jitter())
    return K if len(K.shape) == 3 else K[None]


def to_u(chol: tf.Tensor, v: tf.Tensor) -> tf.Tensor:
    """u = chol v, [..., M, L]."""
    return tf.linalg.matrix_transpose(tf.linalg.matvec(chol, tf.linalg.matrix_transpose(v)))


def pointwise_log_prob(
    likelihood: Likelihood, X: tf.Tensor, f: tf.Tensor, Y: tf.Tensor
) -> tf.Tensor:
    """log p(y|f) of what is observed independently given f [C..., N, L]: [C..., N, 1 or P]."""
    if isinstance(likelihood, AugmentedLikelihood):
        return likelihood.pointwise_log_prob(X, f, Y)
    # Some of GPflow's know no batches: a long list of data.
    flat = tf.reshape(f, [-1, f.shape[-1]])
    copies = tf.shape(flat)[0] // tf.shape(X)[0]
    X, Y = (tf.tile(values, [copies, 1]) for values in (X, Y))
    if isinstance(likelihood, ScalarLikelihood):
        log_p = likelihood._scalar_log_prob(X, flat, Y)
    else:
        log_p = likelihood.log_prob(X, flat, Y)[:, None]
    return tf.reshape(log_p, tf.concat([tf.shape(f)[:-1], tf.shape(log_p)[-1:]], 0))
