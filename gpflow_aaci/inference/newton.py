r"""
q(v) at fixed hyperparameters: natural-gradient steps of size 1 on the standard ELBO.

In the mean these are Newton steps, on all latent GPs at once where a likelihood or a kernel couples
them. Far from the maximum a Newton step may lower the ELBO. It is then replaced by the first of
these that raises it: half of the step; a step with the precisions raised to be positive; the
closed-form augmented update, which always raises the augmented bound, though not always the ELBO;
and small parts of the Newton step, which raise the ELBO unless q is optimal. Later steps begin with
the part that raised it.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.base import TensorType
from gpflow.kullback_leiblers import gauss_kl

from ..algebra.gaussian import (
    Gaussian,
    coupled_step,
    damped,
    naturals_to_q,
    optimal_naturals,
    with_latent,
)
from ..algebra.projection import Projection, coupled, marginals
from ..algebra.statistics import Statistics, statistics, summed
from ..algebra.terms import augmented, concave, standard
from ..models import AugmentedModel

_LEAST_PRECISION = 1e-8  # of a site where log p is not concave, if that must be
# Kinds of steps, in the order in which they are tried: a Newton step, half of it, the safer two;
# where latent GPs are stepped in turn, a closed-form one for each; then small parts of the first.
NEWTON, _HALF, _CONCAVE, _CLOSED_FORM = range(4)
_SMALL_PARTS = (0.125, 0.03125)


class Maximum(NamedTuple):
    """The maximum of the ELBO in q, at fixed hyperparameters."""

    q: Gaussian
    sums: Statistics  # at ``q``
    elbo: tf.Tensor  # []
    steps: tf.Tensor  # [], the number of accepted steps
    start: tf.Tensor  # [], the ELBO before the first step


class Sums(NamedTuple):
    """The sums over all data that the steps need."""

    newton: Callable[[Gaussian], Statistics]
    safer: Callable[[Gaussian, tf.Tensor], Statistics]  # of q and the kind of the step
    coupling: Callable[[Gaussian], tf.Tensor] | None
    """
    :func:`~gpflow_aaci.algebra.projection.coupled` at q [LM, LM], where latent GPs are coupled;
    else each is stepped by itself.
    """


class _Search(NamedTuple):
    best: Gaussian
    sums: Statistics  # at ``best``
    elbo: tf.Tensor
    candidate: Gaussian
    kind: tf.Tensor  # of the step that ``candidate`` is
    steps: tf.Tensor
    size: tf.Tensor  # of the Newton steps
    gain: tf.Tensor  # of the last accepted step
    start: tf.Tensor  # the first ELBO


def maximise(
    sums_of: Sums,
    q: Gaussian,
    least_gain: TensorType,
    max_steps: TensorType,
    in_turn: bool,
) -> Maximum:
    """
    Step from ``q``; a step is accepted only if it raises the ELBO, else a safer one replaces it.

    The search ends when a step gains less than ``least_gain`` nats. With ``max_steps`` 0 it only
    evaluates the ELBO at ``q``.

    :param in_turn: whether a closed-form step moves one latent GP only.
    """
    zero, one = (tf.constant(value, q.mu.dtype) for value in (0.0, 1.0))
    nothing = Statistics(zero, tf.zeros_like(q.mu), tf.zeros_like(q.sqrt))
    infinity = tf.constant(np.inf, zero.dtype)
    num_closed = q.mu.shape[1] if in_turn else 1
    # The part of a Newton step that each kind of step takes; 0 for kinds that are no Newton step.
    # The index ``none`` says that no kind is left to try.
    part_of_kind = [1.0, 0.5, *[0.0] * (1 + num_closed), *_SMALL_PARTS]
    parts, none = tf.constant(part_of_kind, zero.dtype), len(part_of_kind)
    start = _Search(q, nothing, zero, q, tf.constant(NEWTON), tf.constant(-1), one, infinity, zero)

    def is_unfinished(search: _Search) -> tf.Tensor:
        may_gain = (search.kind < none) & (search.gain >= least_gain)
        return (search.steps < 0) | (may_gain & (search.steps < max_steps))

    def step(search: _Search) -> tuple[_Search]:
        sums = sums_of.newton(search.candidate)
        elbo = sums.value - gauss_kl(*search.candidate)
        is_first = search.steps < 0
        is_accepted = is_first | (tf.math.is_finite(elbo) & ~(elbo <= search.elbo))
        new, old = (search.candidate, sums, elbo), (search.best, search.sums, search.elbo)
        best, sums, best_elbo = tf.nest.map_structure(
            lambda a, b: tf.where(is_accepted, a, b), new, old
        )
        accepted_size = search.size * parts[search.kind]
        next_size = tf.where(search.kind == NEWTON, 2.0 * accepted_size, accepted_size)
        next_size = tf.where(next_size > 0.0, tf.minimum(next_size, one), one)
        size = tf.where(is_accepted, next_size, search.size)
        kind = tf.where(is_accepted, NEWTON, search.kind + 1)
        part = size * parts[tf.minimum(kind, none - 1)]
        # naturals ← (1 − part)·naturals + part·(a − 2 B q_mu, I − 2 B), a and B at the accepted q.
        ahead = tf.cond(part > 0.0, lambda: sums, lambda: sums_of.safer(best, kind))
        target = optimal_naturals(best.mu, ahead.in_mean, ahead.in_covariance)
        candidate = tf.cond(
            (part > 0.0) & (part < one),
            lambda: damped(best.mu, best.sqrt, *target, part),
            lambda: naturals_to_q(*target),
        )
        if in_turn:
            of_one = with_latent(best, kind - _CLOSED_FORM, candidate)
            is_of_one = (kind >= _CLOSED_FORM) & (part == 0.0)
            candidate = tf.nest.map_structure(
                lambda one, every: tf.where(is_of_one, one, every), of_one, candidate
            )
        proposed = _Search(
            best,
            sums,
            best_elbo,
            candidate,
            kind,
            search.steps + tf.cast(is_accepted, search.steps.dtype),
            size,
            tf.where(is_accepted & ~is_first, elbo - search.elbo, search.gain),
            tf.where(is_first, elbo, search.start),
        )
        if sums_of.coupling is None:
            return (proposed,)

        coupling_at = sums_of.coupling

        # The blocks above leave out ∂²E/∂m_j∂m_k between latent GPs; the Newton step of the mean
        # has it, unless its matrix is not positive definite.
        def coupled_mean() -> tf.Tensor:
            coupling = coupling_at(best)
            mu = best.mu + part * coupled_step(
                best.mu, ahead.in_mean, ahead.in_covariance, coupling
            )
            return tf.where(tf.reduce_all(tf.math.is_finite(mu)), mu, candidate.mu)

        mu = tf.cond((part > 0.0) & is_unfinished(proposed), coupled_mean, lambda: candidate.mu)
        return (proposed._replace(candidate=candidate._replace(mu=mu)),)

    (end,) = tf.while_loop(is_unfinished, step, (start,))
    return Maximum(end.best, end.sums, end.elbo, end.steps, end.start)


def newton_sums(
    model: AugmentedModel, projection: Projection, q: Gaussian, X: tf.Tensor, Y: tf.Tensor
) -> Statistics:
    """The sums over rows X [N, D], Y [N, P] for a Newton step."""
    return statistics(projection, model.term(standard), q, X, Y)


def safer_sums(
    model: AugmentedModel,
    projection: Projection,
    q: Gaussian,
    kind: tf.Tensor,
    X: tf.Tensor,
    Y: tf.Tensor,
) -> Statistics:
    """The sums over rows X [N, D], Y [N, P] for a step of another kind than Newton's."""
    Fmu, Fvar = marginals(projection, *q)
    slopes = tf.cond(
        kind >= _CLOSED_FORM,
        lambda: model.term(augmented).slopes(X, Fmu, Fvar, Y),
        lambda: concave(model.term(standard).slopes(X, Fmu, Fvar, Y), _LEAST_PRECISION),
    )
    return summed(projection, slopes)


def coupling_sum(
    model: AugmentedModel, projection: Projection, q: Gaussian, X: tf.Tensor, Y: tf.Tensor
) -> tf.Tensor:
    """The coupling of a model's latent GPs, summed over rows X [N, D], Y [N, P]."""
    coupling = model.term(standard).coupling
    assert coupling is not None  # where ``model.couples``
    return coupled(projection, coupling(X, *marginals(projection, *q), Y))
