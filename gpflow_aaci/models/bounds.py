"""GPflow's ELBO, the augmented bound, the gap between them, and the predictive objective."""

from collections.abc import Callable

import tensorflow as tf
from gpflow.base import TensorType

from ..algebra.projection import marginals
from ..algebra.terms import Term, augmented_bound, predictive, standard
from ..data import Data, as_data
from ..likelihoods import AugmentedLikelihood
from .shared import AnyData, Augmented

TermOf = Callable[[AugmentedLikelihood], Term]


class WithBounds(Augmented):
    """
    ``data`` is X [N, D], Y [N, P] for ``AugmentedSVGP``, and none for ``AugmentedVGP``.

    The bounds and the gap also take a ``tf.data.Dataset`` of batches (X, Y) that is one pass over
    the rows. One chunk is in memory at a time, and a bar shows the progress of a long pass
    (``progress=False`` hides it).
    """

    def elbo(self, data: AnyData = None, *, progress: bool = True) -> tf.Tensor:
        """
        GPflow's ELBO [], the standard objective.

        GPflow computes E log p(y|f) by Gauss-Hermite quadrature with 20 nodes. Here the error is
        below 1e-6, however narrow the likelihood is compared with sd(f). The two numbers differ if
        the noise is narrow compared with q(f) or has a kink: by several nats for Student-t or
        Matérn noise well below sd(f), and GPflow's number may then exceed log p(Y). If you give the
        likelihood another ``quadrature`` than 20 Gauss-Hermite nodes, it is used here, too.

        :raises ValueError: for bad data, see :func:`~gpflow_aaci.validation.checked_data`.
        """
        return self._objective(standard, data, progress)

    def augmented_elbo(self, data: AnyData = None, *, progress: bool = True) -> tf.Tensor:
        """
        The augmented bound [], the augmented objective. It is at most :meth:`elbo`.

        ``training_loss`` is minus the sum of this bound and the log prior. On this bound GPflow's
        ``NaturalGradient`` is the closed-form step.
        """
        return self._objective(augmented_bound, data, progress)

    def maximum_log_likelihood_objective(self, data: AnyData = None) -> tf.Tensor:
        """The same as :meth:`augmented_elbo`; GPflow's optimizers maximise it."""
        return self.augmented_elbo(data)

    def predictive_objective(self, data: AnyData = None, *, progress: bool = True) -> tf.Tensor:
        r"""
        Σ log ∫ p(y|f) q(f) df · num_data/\|B\| − KL[q(u) ‖ p(u)], []. Not a bound on log p(Y).

        It is above GPflow's ELBO for every q, and may be above log p(Y): for a single datum it is
        log p(y) at q = p, and can rise from there. It rewards a q that predicts each y, and the
        variance of f may model noise that changes with x; such a q is no longer close to the
        posterior. Under Gaussian noise it is the objective of Jankowiak, Pleiss and Gardner,
        *Parametric Gaussian Process Regressors* (ICML 2020, PPGPR at β = 1). ``train`` and ``fit``
        maximise it with ``objective="predictive"``::

            train(model, (X, Y), objective="predictive")

        :raises ValueError: for bad data, see :func:`~gpflow_aaci.validation.checked_data`.
        """
        return self._objective(predictive, data, progress)

    def augmentation_gap(self, data: AnyData = None, *, progress: bool = True) -> tf.Tensor:
        """E log p(y|f) minus its augmented bound for every datum, [N] nats; never negative."""

        def gap(X: tf.Tensor, Y: tf.Tensor) -> tf.Tensor:
            ordinary, bound = self.term_values(X, Y, standard, augmented_bound)
            return ordinary - bound

        return as_data(self.expected_data, data, progress).map(gap)

    def term_values(self, X: TensorType, Y: TensorType, *terms: TermOf) -> list[tf.Tensor]:
        """What each row X [N, D], Y [N, P] adds to the sum of each term, at the model's q: [N]."""
        # Not by predict_f, which raises where a Cholesky fails: an optimizer's step too far.
        projection = self.project(X)
        Fmu, Fvar = marginals(projection, *self.whitened_q(projection.chol))
        return [self.term(term).of_each(X, Fmu, Fvar, Y) for term in terms]

    def objectives(self, data: Data, *terms: TermOf) -> list[tf.Tensor]:
        """Σ e_i − KL[q(u) ‖ p(u)] for the e of each term, in one pass over the data: []."""
        sums = data.sum(lambda X, Y: [*map(tf.reduce_sum, self.term_values(X, Y, *terms))])
        kl = self.prior_kl()
        return [total - kl for total in sums]

    def _objective(self, term: TermOf, data: AnyData, progress: bool) -> tf.Tensor:
        return self.objectives(as_data(self.expected_data, data, progress), term)[0]
