"""``MixtureVGP``: q(f) is a mixture of Gaussians, for posteriors with several modes."""

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import gpflow
import numpy as np
import scipy.stats
import tensorflow as tf
import tensorflow_probability as tfp
from check_shapes import check_shapes, inherit_check_shapes
from gpflow.base import AnyNDArray, MeanAndVariance, RegressionData, TensorType
from gpflow.conditionals.util import sample_mvn
from gpflow.kernels import Kernel, MultioutputKernel, SeparateIndependent, SharedIndependent
from gpflow.kullback_leiblers import gauss_kl
from gpflow.likelihoods import Likelihood
from gpflow.mean_functions import MeanFunction
from gpflow.models.training_mixins import InternalDataTrainingLossMixin
from gpflow.utilities import assert_params_false, positive, to_default_float, triangular

from ..algebra.gaussian import naturals_to_q
from ..algebra.projection import Prior, Projection, project
from ..likelihoods import AugmentedLikelihood, augmented
from ..likelihoods.conversion import checks_of
from ..models.shared import covariance_of_latents, k_diag, with_jitter
from ..validation import (
    as_matrix,
    as_observed,
    as_pair,
    check_count,
    check_marginal,
    check_one_of,
    checked_data,
    num_observed_columns,
)
from .mixture_entropy import entropy_by_jensen, entropy_by_pairs, mean_log_normal
from .score_function import score_expectations

# In λ the curvature of the bound is ½ Cov(f_i, f_j)², thousandths of its curvature in the means. In
# units where both are alike, L-BFGS takes a fifth of the iterations (mining disasters, 120 bins).
_SCALE_OF_LAMBDA = 30.0

_ENTROPIES = {"pairwise": entropy_by_pairs, "jensen": entropy_by_jensen}


class MixtureVGP(gpflow.models.GPModel, InternalDataTrainingLossMixin):
    r"""
    A GP whose q(f) is a mixture of K equally weighted Gaussians, for any GPflow likelihood.

    Nguyen and Bonilla, *Automated Variational Inference for Gaussian Process Models* (NIPS 2014).
    With f = μ₀(X) + L v and L = chol K(X, X), q(v) = 1/K Σ_k N(m_k, S_k). Every S_k is diagonal, or
    every one is full, which gives ``gpflow.models.VGP`` for K = 1. Each latent GP has its own
    factor of each component, and may have its own kernel. The bound on log p(Y) is

    1/K Σ_k Σ_i E_k log p(y_i|f_i) − KL[q(v) ‖ N(0, I)],

    where the entropy in the KL divergence is exact for K = 1 and otherwise bounded from below. If
    the posterior has two modes (e.g. with Student-t noise and observations that contradict each
    other), each mode can have its own component::

        model = MixtureVGP((X, Y), kernel, gpflow.likelihoods.StudentT(0.3), num_components=2)
        loss = model.training_loss_closure()
        gpflow.optimizers.Scipy().minimize(loss, model.trainable_variables)
        mean, variance = model.predict_f_components(X)  # [K, N, L]

    It keeps its data, and is trained in the same way as GPflow's models. The bound has local
    maxima, which assign the modes to the components in different ways: try several seeds of
    :meth:`restart`.

    Two settings of the bound may be assigned before it is compiled:

    - ``entropy``, the bound on the entropy where K > 1. ``"pairwise"``, the default, is due to
      Kolchinsky and Tracey (2017): with it, the best bound for any K is never below the best for
      K = 1. ``"jensen"``, the paper's bound, loses N·L·½(1 − log 2) nats, 0.153 per datum,
      while K components gain at most log K nats: with five or more data, K = 2 has a lower bound
      than K = 1 for every q.
    - ``num_samples``, the number of draws for ``expectations="score"``: at least 2, default 100.
    """

    entropy: Literal["pairwise", "jensen"] = "pairwise"
    num_samples: int = 100

    def __init__(
        self,
        data: RegressionData,
        kernel: Kernel,
        likelihood: Likelihood,
        mean_function: MeanFunction | None = None,
        num_latent_gps: int | None = None,
        *,
        num_components: int = 2,
        covariance: Literal["diagonal", "full", "opper_archambeau"] = "diagonal",
        expectations: Literal["augmented", "quadrature", "score"] = "quadrature",
    ):
        """
        The first five arguments are the same as for ``gpflow.models.VGP``.

        :param kernel: one kernel that all latent GPs share; or a ``SharedIndependent``; or a
            ``SeparateIndependent``, which has a kernel for each latent GP.
        :param num_components: K, the number of Gaussians.
        :param covariance: the shape of S_k, the covariance of v in each component. ``"full"`` has
            N(N + 1)/2 parameters for each latent GP and component. ``"opper_archambeau"`` has N,
            ``q_lambda`` (Opper and Archambeau 2009; Theorem 2 of the paper): a component of q(f)
            has the covariance (K⁻¹ + diag λ)⁻¹, λ > 0. If K = 1, the best full covariance has
            this form if log p(y|f) is concave in f, as for ``Poisson`` and ``Logistic``; then both
            reach the same bound. For other likelihoods, such as ``StudentT``, the best λ may be
            partly negative, and λ > 0 then reaches a lower bound.
        :param expectations: how E log p(y|f) is computed. ``"quadrature"`` uses the likelihood's
            own ``variational_expectations``. ``"augmented"`` uses its augmented bound, for the
            likelihoods that :class:`~gpflow_aaci.AugmentedVGP` accepts. ``"score"`` needs only
            values of ``log_prob``, at ``num_samples`` draws with control variates; then the bound
            and its gradients are unbiased estimates that change from call to call, so use Adam and
            not Scipy.
        :raises ValueError: for bad arguments and bad data, and for a likelihood without
            augmentation if ``expectations`` is ``"augmented"``.
        """
        check_count("num_components", num_components, 1)
        check_one_of("covariance", covariance, ["diagonal", "full", "opper_archambeau"])
        check_one_of("expectations", expectations, ["augmented", "quadrature", "score"])
        # This check is first, since another likelihood may ask for other arguments as well.
        if expectations == "augmented":
            likelihood = augmented(likelihood)
            if not likelihood.is_augmented:
                raise ValueError(
                    'expectations must be "quadrature" or "score" for a likelihood without '
                    f'augmentation. Found: "augmented", {type(likelihood).__name__}.'
                )
        X, Y, num_latent_gps = _checked(kernel, likelihood, data, num_latent_gps)
        _check_kernel(kernel, num_latent_gps)
        super().__init__(kernel, likelihood, mean_function, num_latent_gps)
        self.data = X, Y
        self.num_components, self.covariance = num_components, covariance
        self.expectations = expectations
        # q is over v and not over f. A diagonal S over f would have to be as small as 1/(K⁻¹)_ii,
        # the variance of f_i given all the others: next to nothing under a smooth kernel. With a
        # diagonal S over v, a component has the prior's correlations where the data say nothing.
        mean, spread = self._start(seed=0)
        self.q_mu = gpflow.Parameter(mean)
        if covariance == "opper_archambeau":
            scale = tfp.bijectors.Scale(to_default_float(_SCALE_OF_LAMBDA))
            transform = tfp.bijectors.Chain([positive(), scale])
            self.q_lambda = gpflow.Parameter(spread, transform=transform)
        else:
            of_sqrt = triangular() if covariance == "full" else positive()
            self.q_sqrt = gpflow.Parameter(spread, transform=of_sqrt)

    def restart(self, seed: int) -> None:
        """
        Reset q to a start whose K means are a Latin hypercube sample of the prior.

        N(0, 1) is cut into K slices; for each element of v, every component starts in another
        slice. (Equal components would always have equal gradients.) A new model starts as with
        seed 0.
        """
        mean, spread = self._start(seed)
        self.q_mu.assign(mean)
        by_lambda = self.covariance == "opper_archambeau"
        (self.q_lambda if by_lambda else self.q_sqrt).assign(spread)

    def _start(self, seed: int) -> tuple[AnyNDArray, AnyNDArray]:
        """
        ``q_mu`` [K, N, L], and ``q_lambda`` [K, N, L] or ``q_sqrt``: [K, L, N, N] if the covariance
        is full, and [K, N, L] if it is diagonal. If K = 1, the first two have no axis for it.
        """
        K, N, L = self.num_components, int(self.data[0].shape[0]), self.num_latent_gps
        levels = scipy.stats.norm.ppf((np.arange(K) + 0.5) / K)
        mean = np.random.default_rng(seed).permuted(np.broadcast_to(levels, [L, N, K]), axis=-1).T
        if self.covariance == "diagonal":
            return mean, np.full([K, N, L], 1.0 / K)
        of_components = [K] if K > 1 else []
        if self.covariance == "opper_archambeau":
            return mean, np.ones([*of_components, N, L])
        return mean, np.broadcast_to(np.eye(N) / K, [*of_components, L, N, N])

    # ---- the bound ----

    @inherit_check_shapes
    def maximum_log_likelihood_objective(self) -> tf.Tensor:
        return self.elbo()

    @check_shapes("return: []")
    def elbo(self) -> tf.Tensor:
        """The bound on log p(Y); an unbiased estimate of it if ``expectations`` is ``"score"``."""
        X, Y = self.data
        if self.expectations == "score":
            check_count("num_samples", self.num_samples, 2)
            of_a_datum = partial(score_expectations, self.likelihood, num_samples=self.num_samples)
        elif self.expectations == "augmented":
            of_a_datum = self.likelihood.bound
        else:
            of_a_datum = self.likelihood.variational_expectations
        projection = self._project(X)
        root = self._root(projection.chol)
        values = self._by_component(of_a_datum, X, self._marginals(projection, root), Y)
        return tf.reduce_sum(values) / self.num_components - self._kl(root)  # of [K, N]

    @check_shapes("return: []")
    def prior_kl(self) -> tf.Tensor:
        """KL[q(v) ‖ N(0, I)], which is KL[q(f) ‖ p(f)]; an upper bound on it if K > 1."""
        return self._kl(self._root(tf.linalg.cholesky(self._prior_covariance())))

    def _kl(self, root: tf.Tensor) -> tf.Tensor:
        if self.num_components == 1:
            return gauss_kl(self.q_mu[0], root[0])
        check_one_of("entropy", self.entropy, list(_ENTROPIES))
        mean = tf.convert_to_tensor(self.q_mu)
        return -_ENTROPIES[self.entropy](mean, root) - mean_log_normal(mean, root)

    def _root(self, chol: tf.Tensor) -> tf.Tensor:
        """
        The lower triangular roots of full S_k, [K, L, N, N], or of diagonal ones, [K, N, L].

        :param chol: L of f = μ₀ + L v, [broadcast L, N, N].
        """
        if self.covariance == "diagonal":
            return tf.convert_to_tensor(self.q_sqrt)
        K, N = self.num_components, self.data[0].shape[0]
        if self.covariance == "full":
            return tf.reshape(self.q_sqrt, [K, -1, N, N])
        # (K⁻¹ + Λ)⁻¹ is the covariance of f where the covariance of v is (I + LᵀΛL)⁻¹.
        weights = tf.linalg.matrix_transpose(tf.reshape(self.q_lambda, [K, N, -1]))  # [K, L, N]
        precision = tf.matmul(chol, weights[..., None] * chol, transpose_a=True)
        precision += tf.eye(N, dtype=precision.dtype)
        flat = tf.reshape(precision, [-1, N, N])
        nothing = tf.zeros_like(tf.transpose(flat[..., 0]))
        return tf.reshape(naturals_to_q(nothing, flat).sqrt, [K, -1, N, N])

    def _prior_covariance(self) -> tf.Tensor:
        """K(X, X) + jitter I of every latent GP, [broadcast L, N, N]."""
        return with_jitter(self.kernel, self.data[0])

    # ---- predictions ----

    @check_shapes(
        "Xnew: [N, D]",
        "return[0]: [K, N, L]",
        "return[1]: [K, L, N, N] if full_cov",
        "return[1]: [K, N, L] if not full_cov",
    )
    def predict_f_components(self, Xnew: TensorType, full_cov: bool = False) -> MeanAndVariance:
        """Means, and variances or covariances, of every component of q(f) at Xnew."""
        X = to_default_float(Xnew)
        projection = self._project(X)
        root, A = self._root(projection.chol), projection.A
        means, variances = self._marginals(projection, root)
        if not full_cov:
            return means, variances
        if self.covariance == "diagonal":
            RA = tf.transpose(root, [0, 2, 1])[..., None] * A  # [K, L, M, N]
        else:
            RA = tf.matmul(root, A, transpose_a=True)
        left = covariance_of_latents(self.kernel, X) - tf.matmul(A, A, transpose_a=True)
        return means, left + tf.matmul(RA, RA, transpose_a=True)

    def _project(self, X: tf.Tensor) -> Projection:
        cross = covariance_of_latents(self.kernel, self.data[0], X)
        rest = k_diag(self.kernel, X), self.mean_function(X)
        return project(Prior(self._prior_covariance(), cross, *rest))

    def _marginals(self, projection: Projection, root: tf.Tensor) -> MeanAndVariance:
        """Means and variances [K, N, L] of every f_i."""
        A = projection.A
        if self.covariance == "diagonal":
            explained = _of_components(tf.square(A), tf.square(root))
        else:
            RA = tf.matmul(root, A, transpose_a=True)  # [K, L, M, N]
            explained = tf.linalg.matrix_transpose(tf.reduce_sum(tf.square(RA), -2))
        means = projection.mean + _of_components(A, self.q_mu)
        return means, tf.transpose(projection.unexplained) + explained

    @inherit_check_shapes
    def predict_f(
        self, Xnew: TensorType, full_cov: bool = False, full_output_cov: bool = False
    ) -> MeanAndVariance:
        """Mean and variance of the mixture q(f); :meth:`predict_f_components` has its parts."""
        assert_params_false(self.predict_f, full_output_cov=full_output_cov)
        means, covariances = self.predict_f_components(as_matrix(Xnew, "Xnew"), full_cov)
        mean = tf.reduce_mean(means, 0)
        apart = means - mean  # [K, N, L]
        if full_cov:
            between = tf.einsum("knl,kml->lnm", apart, apart) / self.num_components
        else:
            between = tf.reduce_mean(tf.square(apart), 0)
        return mean, tf.reduce_mean(covariances, 0) + between

    @inherit_check_shapes
    def predict_f_samples(
        self,
        Xnew: TensorType,
        num_samples: int | None = None,
        full_cov: bool = True,
        full_output_cov: bool = False,
    ) -> tf.Tensor:
        """Draws of f: for each draw a component is drawn first, then f from that component."""
        assert_params_false(self.predict_f_samples, full_output_cov=full_output_cov)
        S, K = 1 if num_samples is None else num_samples, self.num_components
        means, covariances = self.predict_f_components(as_matrix(Xnew, "Xnew"), full_cov)
        if full_cov:
            means = tf.linalg.matrix_transpose(means)
        f = sample_mvn(means, covariances, full_cov, num_samples=S)  # [K, S, ...]
        chosen = tf.random.uniform([S], maxval=K, dtype=tf.int32)
        f = tf.gather_nd(f, tf.stack([chosen, tf.range(S)], 1))
        f = tf.linalg.matrix_transpose(f) if full_cov else f
        return f[0] if num_samples is None else f

    @inherit_check_shapes
    def predict_y(
        self, Xnew: TensorType, full_cov: bool = False, full_output_cov: bool = False
    ) -> MeanAndVariance:
        """Mean and variance of y under the mixture."""
        check_marginal("predict_y", full_cov, full_output_cov)
        X = to_default_float(as_matrix(Xnew, "Xnew"))
        predict = self.likelihood.predict_mean_and_var
        means, variances = self._by_component(predict, X, self.predict_f_components(X))
        mean = tf.reduce_mean(means, 0)
        return mean, tf.reduce_mean(variances + tf.square(means - mean), 0)

    @inherit_check_shapes
    def predict_log_density(
        self, data: RegressionData, full_cov: bool = False, full_output_cov: bool = False
    ) -> tf.Tensor:
        """
        log p(y) under the mixture, [N].

        :raises NotImplementedError: for ``full_cov`` or ``full_output_cov``.
        :raises ValueError: as for training data, unless it is called inside ``tf.function``.
        """
        check_marginal("predict_log_density", full_cov, full_output_cov)
        if tf.executing_eagerly():
            _checked(self.kernel, self.likelihood, data, self.num_latent_gps)
        X, Y = as_pair(data)
        X, Y = to_default_float(X), as_observed(self.likelihood, Y)
        predict = self.likelihood.predict_log_density
        of_each = self._by_component(predict, X, self.predict_f_components(X), Y)  # [K, N]
        return tf.reduce_logsumexp(of_each, 0) - tf.math.log(to_default_float(self.num_components))

    def _by_component(
        self, function: Callable[..., Any], X: tf.Tensor, moments: MeanAndVariance, *Y: tf.Tensor
    ) -> Any:
        """
        ``function`` for every component, [K, N, ...].

        It is called once with [K·N] rows, since not every GPflow likelihood broadcasts.
        """
        K = self.num_components
        Fmu, Fvar = (tf.reshape(part, [-1, self.num_latent_gps]) for part in moments)
        found = function(tf.tile(X, [K, 1]), Fmu, Fvar, *(tf.tile(y, [K, 1]) for y in Y))
        shape = [K, tf.shape(X)[0]]
        return tf.nest.map_structure(lambda p: tf.reshape(p, [*shape, *p.shape[1:]]), found)


def _of_components(A: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
    """Aᵀ [broadcast L, N, M] of the values [K, M, L] of each component, [K, N, L]."""
    if A.shape[0] == 1:
        return tf.einsum("mn,kml->knl", A[0], values)
    return tf.einsum("lmn,kml->knl", A, values)


def _check_kernel(kernel: Kernel, num_latent_gps: int) -> None:
    """
    :raises ValueError: for a kernel that mixes latent GPs, or is for another number of latent GPs.
    """
    if not isinstance(kernel, MultioutputKernel):
        return
    if not isinstance(kernel, SharedIndependent | SeparateIndependent):
        raise ValueError(
            "kernel must be a single-output kernel, a SharedIndependent or a SeparateIndependent "
            f"for MixtureVGP. Found: {type(kernel).__name__}."
        )
    if kernel.num_latent_gps != num_latent_gps:
        raise ValueError(
            f"kernel must have {num_latent_gps} latent GPs, as the likelihood has. "
            f"Found: {kernel.num_latent_gps}."
        )


def _checked(
    kernel: Kernel, likelihood: Likelihood, data: RegressionData, num_latent_gps: int | None
) -> tuple[tf.Tensor, tf.Tensor, int]:
    """X [N, D], Y [N, P], and how many latent GPs there are."""
    X, Y = as_pair(data)
    is_ours, P = isinstance(likelihood, AugmentedLikelihood), int(np.shape(Y)[-1])
    if num_latent_gps is None:
        by_data = gpflow.models.GPModel.calc_num_latent_gps
        known = likelihood.num_outputs(P) if is_ours else likelihood.latent_dim
        num_latent_gps = by_data(kernel, likelihood, P) if known is None else known
    if likelihood.latent_dim not in (None, num_latent_gps):
        raise ValueError(
            f"num_latent_gps must be {likelihood.latent_dim} for {type(likelihood).__name__}. "
            f"Found: {num_latent_gps}."
        )
    of_Y: dict[str, Any] = {"checks_of_Y": checks_of(likelihood)}
    if is_ours:
        observed = likelihood.num_observed(num_latent_gps)
        of_Y |= {"labels": likelihood.labels, "given": likelihood.given}
    else:
        observed = num_observed_columns(likelihood, Y, num_latent_gps)
    X, checked_Y = checked_data(X, Y, num_observed=observed, num_outputs=num_latent_gps, **of_Y)
    return X, checked_Y if is_ours else as_observed(likelihood, Y), num_latent_gps
