r"""
Leave-one-out predictive densities from the sites of an optimal q.

At the optimum q(v) = N(0, I) Π_i site_i, where site_i is a Gaussian factor in h_i = A_iᵀ v with
precision −2 ∂e/∂v_i. Dividing q by site_i gives the cavity, which is the posterior of h_i given the
other data if their sites stay the same. With a Gaussian likelihood they do, so the cavity is exact.
"""

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf
from gpflow.base import RegressionData

from ..algebra.gaussian import Gaussian, columns
from ..algebra.projection import marginals
from ..algebra.statistics import Statistics, statistics
from ..algebra.terms import Term, augmented_bound, predictive, standard
from ..data import Data, as_data, datasets
from ..data.expected import refuse_where_kept
from ..likelihoods import AugmentedLikelihood
from ..models import AugmentedModel, Model, as_augmented
from ..nearest import AugmentedNNGP
from ..runtime.compiled import applied

if TYPE_CHECKING:
    import arviz

Bound = Callable[[AugmentedLikelihood], Term]
OfRows = Callable[[tf.Tensor, tf.Tensor], Any]

_BOUNDS: dict[str, Bound] = {"standard": standard, "augmented": augmented_bound}
_TOLERANCE = 1e-4  # the largest move of q by a step of size 1, in nats per datum


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
    if model.is_diagonal:
        raise ValueError(
            "q_diag must be False for loo, as a cavity needs the full covariance of q. Found: True."
        )
    rows = as_data(model.expected_data, data, progress)
    if float(rows.num_data) != rows.num_rows:
        raise ValueError(
            f"data must be all num_data = {float(rows.num_data):.0f} rows that q was fitted to. "
            f"Found: {rows.num_rows}."
        )
    bound, nats = _stationary_bound(model, rows)
    is_far = not np.isfinite(nats) or nats > _TOLERANCE * rows.num_rows
    if is_far:
        warnings.warn(
            "q is not at its optimum, neither of GPflow's ELBO nor of the augmented bound: a step "
            f"would move it by {nats:.2g} nats. Its sites are not the data's, and leaving one out "
            "is a rough guess. Call polish(model, data) first.",
            stacklevel=2,
        )
    left_out = rows.map(lambda X, Y: applied(model, _left_out, (X, Y), bound))
    loo_i, log_density_i, leverage = (part.numpy() for part in left_out)
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


def _stationary_bound(model: AugmentedModel, data: Data) -> tuple[str, float]:
    """The bound whose optimum is nearer to q, and how far a step on that bound would move q."""
    q = model.whitened_q(model.whitening())
    totals = data.sum(lambda X, Y: applied(model, _of_each_bound, (X, Y)))
    moved = {name: float(_moved(q, sums)) for name, sums in totals.items()}
    nearest = min(moved, key=lambda name: moved[name])
    return nearest, moved[nearest]


def _moved(q: Gaussian, sums: Statistics) -> tf.Tensor:
    """
    The KL divergence [] between q and the q after a step of size 1, to second order.

    It is ½ ‖Rᵀ(a − m)‖² + ¼ ‖Rᵀ(I − 2B)R − I‖², S = RRᵀ, in any coordinates of v.
    """
    in_mean = columns(tf.matmul, q.sqrt, sums.in_mean - q.mu, transpose_a=True)
    eye = tf.eye(tf.shape(q.sqrt)[-1], dtype=q.sqrt.dtype)
    target = tf.matmul(q.sqrt, tf.matmul(eye - 2.0 * sums.in_covariance, q.sqrt), transpose_a=True)
    squares = tf.reduce_sum(tf.square(in_mean)) / 2.0
    return squares + tf.reduce_sum(tf.square(target - eye)) / 4.0


def _of_each_bound(model: AugmentedModel, variables: Any) -> OfRows:
    """The sums over rows of a closed-form step on each bound."""

    def of_rows(X: tf.Tensor, Y: tf.Tensor) -> dict[str, Statistics]:
        projection = model.project(X)
        q = model.whitened_q(projection.chol)
        return {
            name: statistics(projection, model.term(of), q, X, Y) for name, of in _BOUNDS.items()
        }

    return of_rows


def _left_out(model: AugmentedModel, variables: Any, bound: str) -> OfRows:
    """log p(y_i| the other y), log p(y_i|q) and leverage, all [N]."""
    term = model.term(_BOUNDS[bound])

    def of_rows(X: tf.Tensor, Y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        return _densities(model, term, X, Y)

    return of_rows


def _densities(
    model: AugmentedModel, term: Term, X: tf.Tensor, Y: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    projection = model.project(X)
    mean, variance = marginals(projection, *model.whitened_q(projection.chol))
    _, in_mean, in_variance = term.slopes(X, mean, variance, Y)
    unexplained = tf.transpose(projection.unexplained)
    explained = tf.maximum(variance - unexplained, 0.0)
    leverage = -2.0 * in_variance * explained
    is_proper = leverage < 1.0
    rest = tf.where(is_proper, 1.0 - leverage, tf.ones_like(leverage))
    of_prior = tf.transpose(tf.reduce_sum(tf.square(projection.A), -2))
    cavity = tf.where(is_proper, explained / rest, of_prior)
    cavity_mean = tf.where(is_proper, mean - cavity * in_mean, projection.mean)
    density = model.term(predictive).of_each
    return (
        density(X, cavity_mean, unexplained + cavity, Y),
        density(X, mean, variance, Y),
        tf.reduce_max(leverage, -1),
    )
