"""Leave-one-out predictive densities from the sites of an optimal q."""

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf
from gpflow.base import RegressionData

from ..algebra.terms import predictive
from ..data import datasets
from ..data.expected import refuse_where_kept
from ..models import AugmentedModel, Model, as_augmented
from ..nearest import AugmentedNNGP
from ..predictions.left_out import OfRows, all_rows, left_out, stationary_bound
from ..runtime.compiled import applied

if TYPE_CHECKING:
    import arviz


def loo(
    model: Model | AugmentedNNGP,
    data: RegressionData | tf.data.Dataset | None = None,
    *,
    progress: bool = False,
) -> "arviz.ELPDData":
    r"""
    log p(y_i | all other y) of every datum, in closed form, at the model's hyperparameters.

    Let (m_i, v_i) be the marginal of f_i under q, u_i the part of v_i that the inducing variables
    do not explain, and e the bound at which q is stationary. Then f_i without y_i is
    N(m_i − w ∂e/∂m_i, u_i + w), w = (v_i − u_i) / (1 − leverage), where
    leverage = −2 ∂e/∂v_i (v_i − u_i) is the datum's share in the precision of its f.
    This is exact for Gaussian likelihoods (Rasmussen and Williams 2006, Eq. 5.12). For others it
    neglects that the other sites would change without y_i, which matters most if the leverage is
    large (Vehtari et al. 2016, JMLR 17(103)). The bound may be GPflow's ELBO (after
    ``fit_collapsed`` and ``polish``) or the augmented bound (after all other routes); ``loo`` uses
    the bound whose optimum is nearer to q. A q that maximises the augmented bound is narrower than
    the posterior, and its elpd is too high: call ``polish`` first.

    If the kernel mixes latent GPs or the likelihood couples them, each latent GP still has its own
    cavity, as they are independent under q. If Y has several columns, each row has one density::

        arviz.compare({"Student-t": loo(student_t, data), "Laplace": loo(laplace, data)})

    For an ``AugmentedNNGP`` the row is really left out of all neighbours, whose sites are then
    computed without it: nothing is neglected, and there is no leverage.

    :param data: X [N, D], Y [N, P], as arrays or frames; or a ``tf.data.Dataset`` of such batches,
        which is one pass over any number of rows; None for ``AugmentedVGP`` and ``AugmentedNNGP``.
        It must be all data that q was fitted to.
    :param progress: whether to show a progress bar for each pass.
    :return: an object like a pointwise result of ``arviz.loo``, for ``arviz.compare`` and
        ``plot_elpd``. As there are no draws, it has ``leverage`` [N] (the largest over the latent
        GPs) instead of ``pareto_k``, and ``bound``, "standard" or "augmented". ``p_loo`` is
        Σ log p(y_i|q) − elpd. If the leverage is 1 or more, the cavity is improper, which happens
        only if q is far from its optimum or sites have negative precision. The prior is then used
        instead of the cavity, and a warning counts such data.
    :raises ValueError: for bad data, for fewer or more rows than ``num_data``, and for a q with
        diagonal covariance.
    """
    if isinstance(model, AugmentedNNGP):
        return _without_each_row(model, data)
    model = as_augmented(model)
    rows = all_rows(model, data, progress, "loo")
    bound, is_far = stationary_bound(model, rows)
    found = rows.map(lambda X, Y: applied(model, _densities, (X, Y), bound))
    loo_i, log_density_i, leverage = (part.numpy() for part in found)
    num_improper = int(np.sum(leverage >= 1.0))
    if num_improper:
        warnings.warn(
            f"{num_improper} of {rows.num_rows} data have an improper cavity (leverage of 1 or "
            "more): the prior of f takes the cavity's place.",
            stacklevel=2,
        )
    from .elpd import as_elpd  # here, as ArviZ is slow to import

    return as_elpd(loo_i, log_density_i, leverage, bound, is_far or num_improper > 0)


def _without_each_row(model: AugmentedNNGP, data: object) -> "arviz.ELPDData":
    refuse_where_kept(model.expected_data, data)
    from .elpd import as_elpd  # here, as ArviZ is slow to import

    how = model.prediction_neighbors, model.prediction_steps
    rows = np.arange(model.num_data)
    loo_i = model.leave_one_out(rows, *how, leave_out_repeats=False)
    parts = np.array_split(rows, -(-len(rows) // datasets.CHUNK))
    log_density_i = [model.predict_log_density(model.stored.of(part)) for part in parts]
    return as_elpd(loo_i, np.concatenate(log_density_i), None, None, False)


def _densities(model: AugmentedModel, variables: Any, bound: str) -> OfRows:
    """log p(y_i| the other y), log p(y_i|q) and the largest leverage, all [N]."""
    density = model.term(predictive).of_each

    def of_rows(X: tf.Tensor, Y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        f = left_out(model, bound, X, Y)
        return (
            density(X, f.mean_without, f.variance_without, Y),
            density(X, f.mean, f.variance, Y),
            tf.reduce_max(f.leverage, -1),
        )

    return of_rows
