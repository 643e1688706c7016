"""The augmented bound, GPflow's own, the gap between them, and the bound with q maximised out."""

import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import TensorType
from gpflow.kullback_leiblers import gauss_kl
from gpflow.utilities import to_default_float

from ..algebra.gaussian import Gaussian, naturals_to_q, optimal_naturals
from ..algebra.projection import marginals
from ..algebra.statistics import statistics
from ..algebra.terms import Term, augmented, augmented_at, standard
from ..augmentation import aux_posterior_c, with_one_omega
from .shared import AnyData, Augmented, Batch, prior_q


class WithBounds(Augmented):
    """
    ``data`` is X [N, D], Y [N, P] for ``AugmentedSVGP``, and none for ``AugmentedVGP``.

    Bounds and gap also take a ``tf.data.Dataset`` of such batches that is one pass over the rows,
    with one chunk in memory, and a bar where it takes long (``progress=False`` for none).
    """

    def elbo(self, data: AnyData = None, *, progress: bool = True) -> tf.Tensor:
        """
        The augmented bound [], below :meth:`standard_elbo`.

        :raises ValueError: for bad data, see :meth:`checked_batch`.
        """
        return self._bound(augmented(self.likelihood), data, progress)

    def standard_elbo(self, data: AnyData = None, *, progress: bool = True) -> tf.Tensor:
        """
        GPflow's ELBO [], with ``likelihood.variational_expectations``.

        Where GPflow takes E log p(y|f) by Gauss-Hermite quadrature of 20 nodes, here it holds
        1e-6 at every width of the likelihood against sd(f). The two differ, and GPflow's number
        may exceed log p(Y), where the noise is narrow or kinked against q(f): by several nats for
        Student-t or Matérn noise well below sd(f). A likelihood given a ``quadrature`` of other
        than 20 Gauss-Hermite nodes uses that one here too.
        """
        return self._bound(standard(self.likelihood), data, progress)

    @check_shapes("X: [N, D]", "Y: [N, P]", "scale: []", "return: []")
    def scaled_elbo(self, X: TensorType, Y: TensorType, scale: TensorType) -> tf.Tensor:
        """``elbo``, of what ``checked_batch`` returns."""
        worths = self._worths(augmented(self.likelihood), X, Y)
        return scale * tf.reduce_sum(worths) - self.prior_kl()

    def augmentation_gap(self, data: AnyData = None, *, progress: bool = True) -> tf.Tensor:
        """E log p(y|f) minus its augmented bound, for every datum [N]; ≥ 0 by Jensen."""
        ordinary, bound = standard(self.likelihood), augmented(self.likelihood)
        gaps = [
            self._worths(ordinary, X, Y) - self._worths(bound, X, Y)
            for X, Y in self.rows_and_scale(data, progress)[0]
        ]
        return tf.concat(gaps, 0)

    def _bound(self, term: Term, data: AnyData, progress: bool) -> tf.Tensor:
        rows, scale = self.rows_and_scale(data, progress)
        total = sum(tf.reduce_sum(self._worths(term, X, Y)) for X, Y in rows)
        return scale() * total - self.prior_kl()

    def _worths(self, term: Term, X: tf.Tensor, Y: tf.Tensor) -> tf.Tensor:
        Fmu, Fvar = self.predict_f(X)
        return term.worth(X, Fmu, Fvar, Y)

    @check_shapes("batch[0]: [N, D]", "batch[1]: [N, P]", "c: [N, L]", "return: []")
    def _collapsed_elbo(self, batch: Batch, c: TensorType | None) -> tf.Tensor:
        X, Y, scale = batch
        if self.in_turn or self.mixing is not None:
            raise ValueError(
                "collapsed_elbo must be of latent GPs that are independent given c, or the best q "
                f"is not known in closed form. Found: {type(self.kernel).__name__} kernel and "
                f"{type(self.likelihood).__name__}."
            )
        likelihood = with_one_omega(self.likelihood)
        if c is None:
            Fmu, Fvar = self.predict_f(X)
            c = tf.stop_gradient(aux_posterior_c(likelihood, Fmu, Fvar, Y))
        term = augmented_at(likelihood, to_default_float(c))
        projection = self.project(X)
        start = prior_q(*self.q_mu.shape)
        _, a, B = statistics(projection, term, start, X, Y).times(scale)
        # The best q for c: at fixed q, gradients are those of the maximum (envelope theorem).
        q = Gaussian(*map(tf.stop_gradient, naturals_to_q(*optimal_naturals(start.mu, a, B))))
        worth = term.worth(X, *marginals(projection, *q), Y)
        return scale * tf.reduce_sum(worth) - gauss_kl(*q)
