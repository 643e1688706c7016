"""The augmented bound, GPflow's own, the gap between them, and the bound with q maximised out."""

from collections.abc import Callable, Sequence

import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import TensorType
from gpflow.kullback_leiblers import gauss_kl
from gpflow.utilities import to_default_float

from ..algebra.gaussian import Gaussian, naturals_to_q, optimal_naturals
from ..algebra.projection import marginals
from ..algebra.statistics import statistics
from ..algebra.terms import Term, augmented, augmented_at, predictive, standard
from ..augmentation import aux_posterior_c, with_one_omega
from ..likelihoods import AugmentedLikelihood
from ..workers import num_workers, sum_over_workers, together
from .shared import AnyData, Augmented, Batch, prior_q

TermOf = Callable[[AugmentedLikelihood], Term]


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
        return self._bounds([augmented], data, progress)[0]

    def standard_elbo(self, data: AnyData = None, *, progress: bool = True) -> tf.Tensor:
        """
        GPflow's ELBO [], with ``likelihood.variational_expectations``.

        Where GPflow takes E log p(y|f) by Gauss-Hermite quadrature of 20 nodes, here it holds
        1e-6 at every width of the likelihood against sd(f). The two differ, and GPflow's number
        may exceed log p(Y), where the noise is narrow or kinked against q(f): by several nats for
        Student-t or Matérn noise well below sd(f). A likelihood given a ``quadrature`` of other
        than 20 Gauss-Hermite nodes uses that one here too.
        """
        return self._bounds([standard], data, progress)[0]

    def both_elbos(
        self, data: AnyData = None, *, progress: bool = True
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """:meth:`elbo` [] and :meth:`standard_elbo` [], in one pass over the data."""
        lower, upper = self._bounds([augmented, standard], data, progress)
        return lower, upper

    def predictive_objective(self, data: AnyData = None, *, progress: bool = True) -> tf.Tensor:
        r"""
        Σ log ∫ p(y|f) q(f) df · num_data/\|B\| − KL[q(u) ‖ p(u)], []. Not a bound on log p(Y).

        It lies above GPflow's ELBO at every q, and may lie above log p(Y): of one datum it is
        log p(y) at q = p, and rises from there. What it rewards is a q that predicts each y, so
        that the variance of f may stand for noise which changes with x; such a q is no longer
        close to the posterior. Under Gaussian noise it is the objective of Jankowiak, Pleiss and
        Gardner, *Parametric Gaussian Process Regressors* (ICML 2020, PPGPR at β = 1). ``train`` and
        ``fit`` climb it with ``objective="predictive"``::

            train(model, (X, Y), objective="predictive")

        :raises ValueError: for bad data, see :meth:`checked_batch`.
        """
        return self._bounds([predictive], data, progress)[0]

    @check_shapes("X: [N, D]", "Y: [N, P]", "scale: []", "return: []")
    def scaled_objective(
        self, of: TermOf, X: TensorType, Y: TensorType, scale: TensorType
    ) -> tf.Tensor:
        """Σ e_i of a term, scaled, less the KL; of what ``checked_batch`` returns."""
        (worth,) = self._worths([of], X, Y)
        return scale * tf.reduce_sum(worth) - self.prior_kl()

    def both_elbos_of_all(
        self, data: AnyData = None, *, progress: bool = True
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """:meth:`both_elbos`, of the rows that all workers are given: to be called on each."""
        if num_workers(self.strategy) == 1:
            return self.both_elbos(data, progress=progress)
        rows, _ = self.rows_and_scale(data, progress)
        terms = [augmented, standard]

        def own() -> list[tf.Tensor]:
            sums = [[*map(tf.reduce_sum, self._worths(terms, X, Y)), len(X)] for X, Y in rows]
            return [
                tf.add_n(list(map(to_default_float, of_term)))
                for of_term in zip(*sums, strict=True)
            ]

        lower, upper, num_rows = sum_over_workers(self.strategy, together(self.strategy, own))
        scale, kl = self.scale_of(num_rows), self.prior_kl()
        return scale * lower - kl, scale * upper - kl

    def augmentation_gap(self, data: AnyData = None, *, progress: bool = True) -> tf.Tensor:
        """E log p(y|f) minus its augmented bound, for every datum [N]; ≥ 0 by Jensen."""
        rows, _ = self.rows_and_scale(data, progress)
        worths = (self._worths([standard, augmented], X, Y) for X, Y in rows)
        return tf.concat([ordinary - bound for ordinary, bound in worths], 0)

    def _bounds(self, terms: Sequence[TermOf], data: AnyData, progress: bool) -> list[tf.Tensor]:
        rows, scale = self.rows_and_scale(data, progress)
        sums = [map(tf.reduce_sum, self._worths(terms, X, Y)) for X, Y in rows]
        kl = self.prior_kl()
        return [scale() * tf.add_n(of_term) - kl for of_term in zip(*sums, strict=True)]

    def _worths(self, terms: Sequence[TermOf], X: tf.Tensor, Y: tf.Tensor) -> list[tf.Tensor]:
        # Not by predict_f, which raises where a Cholesky fails: an optimizer's step too far.
        projection = self.project(X)
        Fmu, Fvar = marginals(projection, *self.whitened_q(projection.chol))
        return [self.term(term).worth(X, Fmu, Fvar, Y) for term in terms]

    @check_shapes("batch[0]: [N, D]", "batch[1]: [N, P]", "c: [N, L]", "return: []")
    def _collapsed_elbo(self, batch: Batch, c: TensorType | None) -> tf.Tensor:
        X, Y, scale = batch
        if self.in_turn or self.mixing is not None:
            raise ValueError(
                "collapsed_elbo must be of latent GPs that are independent given c, or the best q "
                f"is not known in closed form. Found: {type(self.kernel).__name__} kernel and "
                f"{type(self.likelihood).__name__}."
            )
        likelihood = self.likelihood
        with_one_omega(likelihood)
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
