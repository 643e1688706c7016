r"""
q(v) at fixed hyperparameters: natural-gradient steps of size 1 on the standard ELBO.

They are Newton-like. Begun far off such a step may fail; one with its precisions raised to be
positive takes over, and then the closed-form augmented update, which cannot fail, wherever the ELBO
does not rise. That one climbs another bound: where it does not gain either, shorter steps towards
the Newton step's end do, unless q is at its best.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.base import TensorType
from gpflow.kullback_leiblers import gauss_kl

from ..algebra.gaussian import Gaussian, damped, naturals_to_q, optimal_naturals, with_latent
from ..algebra.projection import Projection, marginals
from ..algebra.statistics import Statistics, summed
from ..algebra.terms import augmented, concave, standard
from ..models import AugmentedModel

_LEAST_PRECISION = 1e-8  # of a site where log p is not concave, if that must be
# Kinds of steps, ever safer; where latent GPs are stepped in turn, a closed-form one for each. Then
# Newton steps of these sizes: the natural gradient is a direction of ascent.
NEWTON, _CONCAVE, _CLOSED_FORM = range(3)
_SHORTER = (0.5, 0.125, 0.03125)


class Maximum(NamedTuple):
    """Of the ELBO in q, at fixed hyperparameters."""

    q: Gaussian
    sums: Statistics  # there
    elbo: tf.Tensor  # []
    steps: tf.Tensor  # [], how many have been kept
    start: tf.Tensor  # [], the ELBO where they began


SumsAt = Callable[[Gaussian, tf.Tensor | int], Statistics]
"""(q, kind of the step that they are for) → Statistics of all data."""


class _Search(NamedTuple):
    best: Gaussian
    sums: Statistics  # at ``best``
    elbo: tf.Tensor
    candidate: Gaussian
    kind: tf.Tensor  # of the step that ``candidate`` is
    steps: tf.Tensor
    gain: tf.Tensor  # of the last that was kept
    start: tf.Tensor  # the first ELBO


def maximise(
    sums_at: SumsAt,
    q: Gaussian,
    least_gain: TensorType,
    max_steps: TensorType,
    in_turn: bool = False,
) -> Maximum:
    """
    Steps from ``q``, each kept only if it raises the ELBO, else a safer one is taken in its place.

    Ends when one gains less than ``least_gain`` nats. With ``max_steps`` 0, the ELBO at ``q``.
    """
    zero = tf.zeros([], q.mu.dtype)
    nothing = Statistics(zero, tf.zeros_like(q.mu), tf.zeros_like(q.sqrt))
    infinity = tf.constant(np.inf, zero.dtype)
    shorter = _CLOSED_FORM + (q.mu.shape[1] if in_turn else 1)  # the first of these kinds
    none = shorter + len(_SHORTER)  # no kind is left
    sizes = tf.constant(_SHORTER, zero.dtype)
    start = _Search(q, nothing, zero, q, tf.constant(NEWTON), tf.constant(-1), infinity, zero)

    def goes_on(search: _Search) -> tf.Tensor:
        unfinished = (search.kind < none) & (search.gain >= least_gain)
        return (search.steps < 0) | (unfinished & (search.steps < max_steps))

    def step(search: _Search) -> tuple[_Search]:
        sums = sums_at(search.candidate, NEWTON)
        elbo = sums.value - gauss_kl(*search.candidate)
        is_first = search.steps < 0
        is_kept = is_first | (tf.math.is_finite(elbo) & ~(elbo <= search.elbo))
        new, old = (search.candidate, sums, elbo), (search.best, search.sums, search.elbo)
        best, sums, best_elbo = tf.nest.map_structure(
            lambda a, b: tf.where(is_kept, a, b), new, old
        )
        kind = tf.where(is_kept, NEWTON, search.kind + 1)
        is_shorter = kind >= shorter
        ahead = tf.cond((kind == NEWTON) | is_shorter, lambda: sums, lambda: sums_at(best, kind))
        target = optimal_naturals(best.mu, ahead.in_mean, ahead.in_covariance)
        size = sizes[tf.clip_by_value(kind - shorter, 0, len(_SHORTER) - 1)]
        candidate = tf.cond(
            is_shorter,
            lambda: damped(best.mu, best.sqrt, *target, size),
            lambda: naturals_to_q(*target),
        )
        if in_turn:
            of_one = with_latent(best, kind - _CLOSED_FORM, candidate)
            is_of_one = (kind >= _CLOSED_FORM) & ~is_shorter
            candidate = tf.nest.map_structure(
                lambda one, every: tf.where(is_of_one, one, every), of_one, candidate
            )
        return (
            _Search(
                best,
                sums,
                best_elbo,
                candidate,
                kind,
                search.steps + tf.cast(is_kept, search.steps.dtype),
                tf.where(is_kept & ~is_first, elbo - search.elbo, search.gain),
                tf.where(is_first, elbo, search.start),
            ),
        )

    (end,) = tf.while_loop(goes_on, step, (start,))
    return Maximum(end.best, end.sums, end.elbo, end.steps, end.start)


def sums_for(
    model: AugmentedModel,
    projection: Projection,
    X: tf.Tensor,
    Y: tf.Tensor,
    q: Gaussian,
    kind: tf.Tensor | int,
) -> Statistics:
    """Of the rows X [N, D], Y [N, P], for a step of that kind."""
    Fmu, Fvar = marginals(projection, *q)
    ordinary, safe = model.term(standard), model.term(augmented)
    if isinstance(kind, int):  # the usual step, without the branches of the others
        return summed(projection, ordinary.slopes(X, Fmu, Fvar, Y))
    slopes = tf.cond(
        kind >= _CLOSED_FORM,
        lambda: safe.slopes(X, Fmu, Fvar, Y),
        lambda: concave(ordinary.slopes(X, Fmu, Fvar, Y), _LEAST_PRECISION),
    )
    return summed(projection, slopes)
