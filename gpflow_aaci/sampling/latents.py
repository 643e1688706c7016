"""
The prior of the variables that samplers draw: u at inducing points, or f at the model's data.

Samplers, and predictions from draws, use a model only through this module, so they accept GPflow's
own models, too.

Shapes: [C] chains, [N] data, [M] inducing variables, [L] latent GPs, [P] columns of Y.
"""

from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

import gpflow
import tensorflow as tf
from gpflow import Parameter, covariances
from gpflow.base import MeanAndVariance, RegressionData, TensorType
from gpflow.config import default_jitter
from gpflow.functions import MeanFunction
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import Kernel, LinearCoregionalization, MultioutputKernel
from gpflow.likelihoods import Likelihood, ScalarLikelihood
from gpflow.utilities import parameter_dict

from ..algebra.projection import Prior, Projection, dense, project
from ..data import Rows, as_arrays, check_pair, checked_rows
from ..kernels import levels_of
from ..likelihoods import AugmentedLikelihood
from ..likelihoods.conversion import checks_of
from ..models import AugmentedModel
from ..models.shared import k_diag, with_jitter
from ..validation import as_observed, as_pair, checked_data, num_observed_columns
from .conditionals import f_mean, of_each_latent


@runtime_checkable
class DeepModel(Protocol):
    """
    A model with inducing variables whose inputs come from hidden layers, e.g. ``contrib.DeepGP``.

    Its attributes describe the last layer.
    """

    kernel: Kernel
    inducing_variable: InducingVariables
    mean_function: MeanFunction
    likelihood: Likelihood
    num_latent_gps: int

    @property
    def hidden_v(self) -> dict[str, Parameter]:
        """Map the names of the hidden layers' whitened inducing variables to these variables."""

    def draw_hidden(self, X: tf.Tensor, seed: Any, full_cov: bool = False) -> tf.Tensor:
        """A draw of what the last hidden layer returns at X, given the inducing variables."""


FullGP: TypeAlias = gpflow.models.VGP | gpflow.models.GPMC
SparseModel: TypeAlias = gpflow.models.SVGP | DeepModel
AnyModel: TypeAlias = FullGP | SparseModel


def check_sampled_model(model: AnyModel, may_mix: bool = False) -> None:
    """
    :param may_mix: whether the kernel may mix the latent GPs that are sampled.
    :raises ValueError: for another model, for kernels that mix the latent GPs, and for multi-output
        kernels in GPflow's own VGP and GPMC.
    """
    if not isinstance(model, FullGP | gpflow.models.SVGP):
        raise ValueError(
            "model must be an AugmentedVGP, an AugmentedSVGP or GPflow's VGP, GPMC or SVGP. "
            f"Found: {type(model).__name__}."
        )
    kernel = model.kernel
    if isinstance(kernel, MultioutputKernel) and not isinstance(
        model, AugmentedModel | gpflow.models.SVGP
    ):
        raise ValueError(
            "kernel must be a single-output kernel for samples of GPflow's "
            f"{type(model).__name__}; an AugmentedVGP takes more. Found: {type(kernel).__name__}."
        )
    if mixing_of(model) is not None and not may_mix:
        raise ValueError(
            "kernel must not mix the latent GPs, which sample_posterior with Gibbs() alone takes. "
            f"Found: {type(kernel).__name__}."
        )


def mixing_of(model: AnyModel) -> Parameter | None:
    """W [P, L] of f = μ₀ + W g, where the kernel mixes the latent GPs g that are sampled."""
    kernel = getattr(model, "kernel", None)
    return kernel.W if isinstance(kernel, LinearCoregionalization) else None


class Mixing(NamedTuple):
    """f = μ₀ + W g at some inputs, of latent GPs g that a kernel mixes."""

    mean: tf.Tensor  # μ₀, [N, broadcast P]
    W: tf.Tensor  # [P, L]

    def outputs(self, g: tf.Tensor) -> tf.Tensor:
        """f [..., N, P] of g [..., N, L]."""
        return self.mean + tf.tensordot(g, self.W, [[-1], [1]])


def mixing_at(model: AnyModel, X: tf.Tensor) -> Mixing | None:
    """How the kernel mixes the latent GPs at X, by the model's present values; or None."""
    W = mixing_of(model)
    return None if W is None else Mixing(model.mean_function(X), tf.convert_to_tensor(W))


def rows_of_model(model: AnyModel, data: RegressionData | None) -> Rows:
    """
    X [N, D], Y [N, P]: all of the training data.

    :raises ValueError: for bad data, for only a part of the rows, and if data are given to a model
        that keeps its own.
    """
    if isinstance(model, FullGP) == (data is not None):
        raise ValueError(
            "data must be given for models with inducing variables, and not for models that store "
            f"their own. Found: {type(model).__name__}, data {'not ' if data is None else ''}given."
        )
    if isinstance(model, AugmentedModel):
        X, Y = as_arrays(model.expected_data, data).rows
    else:
        X, Y = new_rows(model, model.data if isinstance(model, FullGP) else data)
    num_data = getattr(model, "num_data", None)
    if data is not None and num_data is not None and int(num_data) != len(X):
        raise ValueError(f"data must be all num_data = {num_data} rows. Found: {len(X)} rows.")
    return X, Y


def new_rows(model: AnyModel, data: RegressionData) -> Rows:
    """Check rows X [N, D], Y [N, P], which may be new, against what the model accepts."""
    if isinstance(model, AugmentedModel):
        return checked_rows(model.expected_data, data)
    check_pair("data", data)
    likelihood, L = model.likelihood, model.num_latent_gps
    levels = levels_of(model.kernel)
    X, Y = as_pair(data, levels)
    columns = num_observed_columns(likelihood, Y, L)
    checks = checks_of(likelihood)
    X, _ = checked_data(
        X, Y, num_observed=columns, num_outputs=L, levels=levels, checks_of_Y=checks
    )
    return X, as_observed(likelihood, Y)


def project_at(model: AnyModel, X: tf.Tensor) -> Projection:
    """How the latent GPs at X depend on u or, if the model keeps its data, on f at the data."""
    if isinstance(model, AugmentedModel):
        return dense(model.project(X))
    if isinstance(model, FullGP):
        K_ZX = model.kernel(tf.convert_to_tensor(model.data[0]), X)
    else:
        K_ZX = covariances.Kuf(model.inducing_variable, model.kernel, X)
    K_ZX = K_ZX if len(K_ZX.shape) == 3 else K_ZX[None]
    k_ii = k_diag(model.kernel, X)
    # The mean is of the outputs, where the latent GPs are mixed.
    mean = model.mean_function(X) if mixing_of(model) is None else tf.zeros_like(X[:, :1])
    return project(Prior(prior_covariance(model), K_ZX, k_ii, mean))


def prior_given_v(model: AnyModel, X: tf.Tensor) -> Projection:
    """
    How f at the data X depends on the whitened v, with an A for every latent GP.

    A model that keeps its data has f = μ₀ + chol v.
    """
    if isinstance(model, FullGP):
        chol = tf.linalg.cholesky(prior_covariance(model))
        A = tf.linalg.matrix_transpose(chol)
        prior = Projection(chol, A, tf.zeros_like(A[:, 0]), model.mean_function(X))
    else:
        prior = project_at(model, X)
    return of_each_latent(prior, model.num_latent_gps)


def f_given_v(projection: Projection, v: TensorType) -> MeanAndVariance:
    """
    Mean and variance of f given the whitened inducing variables v [M, L], both [N, L].

    :param projection: :func:`project_at` the inputs of f.
    """
    prior = of_each_latent(projection, v.shape[-1])
    mean = f_mean(prior, tf.convert_to_tensor(v))
    return mean, tf.broadcast_to(tf.transpose(prior.unexplained), tf.shape(mean))


def prior_covariance(model: AnyModel) -> tf.Tensor:
    """
    The covariance of u or, if the model keeps its data, of f at the data, [broadcast L, M, M].

    GPflow's jitter is included.
    """
    if isinstance(model, AugmentedModel):
        return model.prior_covariance()
    if isinstance(model, FullGP):
        return with_jitter(model.kernel, tf.convert_to_tensor(model.data[0]))
    K = covariances.Kuu(model.inducing_variable, model.kernel, jitter=default_jitter())
    return K if len(K.shape) == 3 else K[None]


def all_parameters(model: AnyModel) -> dict[str, Parameter]:
    """
    All parameters of the model, trainable or not, except q's parameters (or GPMC's v).

    A parameter that several parts of the model share is listed under each of its names.
    """
    of_q = {id(getattr(model, name, None)) for name in ("q_mu", "q_sqrt", "V")}
    return {
        name.removeprefix("."): parameter
        for name, parameter in parameter_dict(model).items()
        if isinstance(parameter, Parameter) and id(parameter) not in of_q  # data may be variables
    }


def to_u(chol: tf.Tensor, v: tf.Tensor) -> tf.Tensor:
    """u = chol v, [..., M, L]."""
    return tf.linalg.matrix_transpose(tf.linalg.matvec(chol, tf.linalg.matrix_transpose(v)))


def pointwise_log_prob(
    likelihood: Likelihood, X: tf.Tensor, f: tf.Tensor, Y: tf.Tensor
) -> tf.Tensor:
    """
    log p(y|f) given f [C..., N, L], one term for each independent observation.

    :return: [C..., N, P], or [C..., N, 1] if the columns of Y are not independent.
    """
    if isinstance(likelihood, AugmentedLikelihood):
        return likelihood.pointwise_log_prob(X, f, Y)
    # Chains are laid end to end as rows, as some of GPflow's likelihoods take no batches.
    flat = tf.reshape(f, [-1, f.shape[-1]])
    copies = tf.shape(flat)[0] // tf.shape(X)[0]
    X, Y = (tf.tile(values, [copies, 1]) for values in (X, Y))
    if isinstance(likelihood, ScalarLikelihood):
        log_p = likelihood._scalar_log_prob(X, flat, Y)
    else:
        log_p = likelihood.log_prob(X, flat, Y)[:, None]
    return tf.reshape(log_p, tf.concat([tf.shape(f)[:-1], tf.shape(log_p)[-1:]], 0))
