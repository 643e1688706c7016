"""What both models share: the augmented bound, and what the pass asks of a model."""

import abc
from collections.abc import Callable, Iterable
from typing import TypeAlias

import gpflow
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import MeanAndVariance, RegressionData, TensorType
from gpflow.config import default_float
from gpflow.kernels import Kernel, SeparateIndependent, SharedIndependent
from gpflow.kullback_leiblers import gauss_kl
from gpflow.posteriors import AbstractPosterior, PrecomputeCacheType
from gpflow.utilities import to_default_float

from ..algebra.gaussian import Gaussian, naturals_to_q, optimal_naturals, unwhiten, whiten
from ..algebra.projection import Prior, Projection, marginals, project
from ..algebra.statistics import statistics
from ..algebra.terms import Term, augmented, augmented_at, standard
from ..augmentation import aux_posterior_c
from ..data import Rows, as_data, over_batches
from ..likelihoods import AugmentedLikelihood
from ..validation import as_matrix, checked_data
from .posteriors import handed_out

AnyData: TypeAlias = RegressionData | tf.data.Dataset | None

Inputs: TypeAlias = TensorType | tf.data.Dataset

Batch = tuple[tf.Tensor, tf.Tensor, tf.Tensor]
"""X [N, D], Y [N, P] and what multiplies a sum over them []."""


class Augmented(gpflow.models.GPModel):
    """
    ``data`` is X [N, D], Y [N, P] for ``AugmentedSVGP``, and none for ``AugmentedVGP``.

    Bounds and gap also take a ``tf.data.Dataset`` of such batches, one pass over the rows. They
    pass over it twice, with one chunk in memory.
    """

    likelihood: AugmentedLikelihood

    # ---- what each of them states ----

    @abc.abstractmethod
    def checked_batch(
        self, data: RegressionData | None = None, num_data: int | None = None
    ) -> Batch:
        """
        X [N, D], Y [N, P] and num_data/|B| [] of a batch.

        :param num_data: how many rows there are in all, for a model that has been told none.
        :raises ValueError: as :func:`~gpflow_aaci.validation.checked_data`.
        """

    def checked_rows(self, data: RegressionData, num_data: TensorType | None = None) -> Rows:
        """
        X [N, D], Y [N, P] that the model may be told or asked of; training data or others.

        :param num_data: that they are part of, where they are.
        :raises ValueError: as :func:`~gpflow_aaci.validation.checked_data`.
        """
        return checked_data(
            *data,
            num_outputs=self.num_latent_gps,
            input_dim=self.input_dim,
            num_data=num_data,
            check_labels=self.likelihood.check_observations,
        )

    @property
    @abc.abstractmethod
    def input_dim(self) -> int | None:
        """Columns of X, or None where the inducing variable does not tell."""

    @abc.abstractmethod
    def prior_covariance(self) -> tf.Tensor:
        """K_ZZ + jitter I, [L, M, M]; [1, M, M] where the latent GPs share it."""

    @abc.abstractmethod
    def cross_covariance(self, X: TensorType) -> tuple[tf.Tensor, tf.Tensor]:
        """K_ZX [broadcast L, M, N] and k(x_i, x_i) [broadcast L, N], for X [N, D]."""

    # ---- bounds ----

    def elbo(self, data: AnyData = None) -> tf.Tensor:
        """
        The augmented bound [], below :meth:`standard_elbo`.

        :raises ValueError: for bad data, see :meth:`checked_batch`.
        """
        return self._bound(augmented(self.likelihood), data)

    def standard_elbo(self, data: AnyData = None) -> tf.Tensor:
        """
        GPflow's ELBO [], with ``likelihood.variational_expectations``.

        Where GPflow takes E log p(y|f) by Gauss-Hermite quadrature of 20 nodes, here it holds
        1e-6 at every width of the likelihood against sd(f). The two differ, and GPflow's number
        may exceed log p(Y), where the noise is narrow or kinked against q(f): by several nats for
        Student-t or Matérn noise well below sd(f). A likelihood given a ``quadrature`` of other
        than 20 Gauss-Hermite nodes uses that one here too.
        """
        return self._bound(standard(self.likelihood), data)

    @check_shapes("X: [N, D]", "Y: [N, P]", "scale: []", "return: []")
    def scaled_elbo(self, X: TensorType, Y: TensorType, scale: TensorType) -> tf.Tensor:
        """``elbo``, of what ``checked_batch`` returns."""
        worths = self._worths(augmented(self.likelihood), X, Y)
        return scale * tf.reduce_sum(worths) - self.prior_kl()

    def augmentation_gap(self, data: AnyData = None) -> tf.Tensor:
        """E log p(y|f) minus its augmented bound, for every datum [N]; ≥ 0 by Jensen."""
        ordinary, bound = standard(self.likelihood), augmented(self.likelihood)
        gaps = [
            self._worths(ordinary, X, Y) - self._worths(bound, X, Y)
            for X, Y in self.rows_and_scale(data)[0]
        ]
        return tf.concat(gaps, 0)

    def _bound(self, term: Term, data: AnyData) -> tf.Tensor:
        rows, scale = self.rows_and_scale(data)
        total = sum(tf.reduce_sum(self._worths(term, X, Y)) for X, Y in rows)
        return scale * total - self.prior_kl()

    def _worths(self, term: Term, X: tf.Tensor, Y: tf.Tensor) -> tf.Tensor:
        Fmu, Fvar = self.predict_f(X)
        return term.worth(X, Fmu, Fvar, Y)

    def rows_and_scale(self, data: AnyData) -> tuple[Iterable[Rows], TensorType]:
        """Chunks, and what multiplies a sum over them."""
        if isinstance(data, tf.data.Dataset):
            stream = as_data(self, data)
            return stream.chunks(), to_default_float(stream.scale)
        X, Y, scale = self.checked_batch(data)
        return [(X, Y)], scale

    def _collapsed_elbo(self, batch: Batch, c: TensorType | None) -> tf.Tensor:
        X, Y, scale = batch
        if c is None:
            Fmu, Fvar = self.predict_f(X)
            c = tf.stop_gradient(aux_posterior_c(self.likelihood, Fmu, Fvar, Y))
        term = augmented_at(self.likelihood, to_default_float(c))
        projection = self.project(X)
        start = prior_q(*self.q_mu.shape)
        _, a, B = statistics(projection, term, start, X, Y).times(scale)
        # The best q for c: at fixed q, gradients are those of the maximum (envelope theorem).
        q = Gaussian(*map(tf.stop_gradient, naturals_to_q(*optimal_naturals(start.mu, a, B))))
        worth = term.worth(X, *marginals(projection, *q), Y)
        return scale * tf.reduce_sum(worth) - gauss_kl(*q)

    # ---- predictions, which are GPflow's ----

    def predict_f(
        self, Xnew: Inputs, full_cov: bool = False, full_output_cov: bool = False
    ) -> MeanAndVariance:
        """
        GPflow's. ``Xnew`` may also be a frame, or a ``tf.data.Dataset`` of batches X [B, D].

        :raises ValueError: for ``full_cov`` with a dataset, whose batches are looked at by turns.
        """
        return self._predicted(super().predict_f, Xnew, full_cov, full_output_cov)

    def predict_y(
        self, Xnew: Inputs, full_cov: bool = False, full_output_cov: bool = False
    ) -> MeanAndVariance:
        """GPflow's, of what :meth:`predict_f` takes."""
        return self._predicted(super().predict_y, Xnew, full_cov, full_output_cov)

    def predict_log_density(
        self,
        data: RegressionData | tf.data.Dataset,
        full_cov: bool = False,
        full_output_cov: bool = False,
    ) -> tf.Tensor:
        """GPflow's. ``data`` may also be frames, or a ``tf.data.Dataset`` of batches (X, Y)."""
        predict = super().predict_log_density
        if isinstance(data, tf.data.Dataset):
            return over_batches(lambda *batch: predict(batch, full_cov, full_output_cov), data)
        X, Y = map(as_matrix, data)
        return predict((X, Y), full_cov, full_output_cov)

    def _predicted(
        self,
        predict: Callable[..., MeanAndVariance],
        Xnew: Inputs,
        full_cov: bool,
        full_output_cov: bool,
    ) -> MeanAndVariance:
        if isinstance(Xnew, tf.data.Dataset):
            if full_cov:
                raise ValueError("full_cov must be False where Xnew is a dataset. Found: True.")
            return over_batches(lambda X: predict(X, full_cov, full_output_cov), Xnew)
        return predict(as_matrix(Xnew), full_cov, full_output_cov)

    # ---- the pass: q(v), and f at some inputs given it ----

    @check_shapes("X: [N, D]")
    def prior(self, X: TensorType) -> Prior:
        """That of u and of f at X."""
        return Prior(self.prior_covariance(), *self.cross_covariance(X), self.mean_function(X))

    def project(self, X: TensorType) -> Projection:
        """What q(v) needs in order to speak about f at X [N, D]."""
        return project(self.prior(X))

    def whitened_q(self, chol: tf.Tensor) -> Gaussian:
        """q(v), u = chol v, whether q is kept whitened or not."""
        q = Gaussian(tf.convert_to_tensor(self.q_mu), tf.convert_to_tensor(self.q_sqrt))
        return q if self.whiten else whiten(*q, chol)

    def as_kept(self, q: Gaussian, chol: tf.Tensor) -> Gaussian:
        """The ``q_mu`` and ``q_sqrt`` of a q(v): the inverse of :meth:`whitened_q`."""
        return q if self.whiten else unwhiten(*q, chol)

    def assign_whitened_q(self, q: Gaussian) -> None:
        """Make q(v) the model's."""
        if not self.whiten:
            q = unwhiten(*q, tf.linalg.cholesky(self.prior_covariance()))
        self.q_mu.assign(q.mu)
        self.q_sqrt.assign(q.sqrt)

    def posterior(
        self, precompute_cache: PrecomputeCacheType = PrecomputeCacheType.TENSOR
    ) -> AbstractPosterior:
        """As GPflow's; the closed-form optimizers refresh its cache after they step."""
        posterior = super().posterior(precompute_cache)
        if posterior.cache is not None:
            handed_out(self).add(posterior)
        return posterior


def check_model(model: gpflow.models.GPModel) -> None:
    """
    :raises ValueError: unless it is one of ours.
    """
    if not isinstance(model, Augmented):
        raise ValueError(
            f"model must be an AugmentedSVGP or AugmentedVGP. Found: {type(model).__name__}."
        )


def prior_q(M: int, L: int) -> Gaussian:
    """v ~ N(0, I)."""
    eye = tf.eye(M, batch_shape=[L], dtype=default_float())
    return Gaussian(tf.zeros([M, L], default_float()), eye)


def k_diag(kernel: Kernel, X: TensorType) -> tf.Tensor:
    """k(x_i, x_i), [broadcast L, N]."""
    if isinstance(kernel, SeparateIndependent):
        return tf.stack([k(X, full_cov=False) for k in kernel.kernels])
    if isinstance(kernel, SharedIndependent):
        kernel = kernel.kernel
    return kernel(X, full_cov=False)[None]
