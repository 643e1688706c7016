r"""
The optimal q(v) at fixed hyperparameters, by natural-gradient steps of size 1 on the standard ELBO.

In the mean these are Newton steps, on all latent GPs at once if a likelihood or a kernel couples
them. Far from the maximum a Newton step may lower the ELBO. It is then replaced by the first of
these steps that raises the ELBO: half of the Newton step; a step in which the sites' precisions are
made positive; the closed-form augmented update, which always raises the augmented bound, though not
always the ELBO; and small parts of the Newton step, which raise the ELBO unless q is optimal. If a
small part was needed, the next Newton step starts at this size, and each later one doubles it.

The rules do not depend on how q is represented: as a ``Gaussian``, or by the ``Sites`` of
:mod:`~gpflow_aaci.inference.site_search`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.base import TensorType

from ..algebra import arrow
from ..algebra.arrow import Arrow
from ..algebra.cholesky import cholesky_or_nan
from ..algebra.gaussian import (
    Gaussian,
    coupled_step,
    damped,
    naturals_to_q,
    optimal_naturals,
    with_latent,
)
from ..algebra.projection import Projection, coupled, marginals
from ..algebra.statistics import Statistics, summed
from ..algebra.terms import AtRows, Slopes, augmented_steps, concave, standard
from ..models import AugmentedModel

LEAST_PRECISION = 1e-8  # the sites' precisions are raised to it in the second safer step
# Kinds of steps, in the order in which they are tried: a Newton step, half of it, the two safer
# steps (with a closed-form step per latent GP if they are stepped in turn), small Newton steps.
NEWTON, _HALF, _CONCAVE, CLOSED_FORM = range(4)
_SLOWEST = 0.99  # rate at which gains are taken to fall
_MARGIN = 10.0  # times what is still to be gained must not reach a value that is given up
_SMALL_PARTS = tuple(0.125 * 4.0**-k for k in range(6))  # to 1e-4, for a rate with a wide prior


Kept = AtRows | tuple[()]
"""What is known of every row at a q, where all rows are at hand."""


class Maximum(NamedTuple):
    """The maximum of the ELBO over q, at fixed hyperparameters."""

    q: Any  # as the search's start: a Gaussian, or sites
    sums: Any  # at ``q``
    elbo: tf.Tensor  # []
    steps: tf.Tensor  # [], the number of accepted steps
    start: tf.Tensor  # [], the ELBO before the first step
    is_cut: tf.Tensor  # [], whether it ended as the next step was to be a safer one
    kept: Kept = ()  # at ``q``


def moved(best: Gaussian, sums: Statistics, part: tf.Tensor) -> Gaussian:
    """naturals ← (1 − part)·naturals + part·(a − 2 B q_mu, I − 2 B), a and B at the best q."""
    at_best = best.mu, sums.in_mean, sums.in_covariance
    if isinstance(best.sqrt, Arrow):
        target = arrow.optimal_naturals(*at_best)
        return tf.cond(
            part < 1.0,
            lambda: arrow.averaged(arrow.q_to_naturals(best), target, part),
            lambda: arrow.naturals_to_q(*target),
        )
    target = optimal_naturals(*at_best)
    return tf.cond(
        part < 1.0,
        lambda: damped(*best, *target, part, cholesky_or_nan),
        lambda: naturals_to_q(*target, cholesky_or_nan),
    )


class Sums(NamedTuple):
    """The sums over all data that the steps need, and how they move q."""

    newton: Callable[[Any], tuple[Any, Kept]]
    safer: Callable[[Any, tf.Tensor, Kept], Any]  # q, the kind of the step, what is kept at q
    coupling: Callable[[Gaussian], tf.Tensor] | None
    """
    :func:`~gpflow_aaci.algebra.projection.coupled` at q [LM, LM], where latent GPs are coupled;
    else each is stepped by itself.
    """
    nothing_kept: Kept = ()  # of the shapes that ``newton`` returns
    empty: Callable[[tf.Tensor, Any], Any] = lambda zero, q: Statistics(
        zero, *tf.nest.map_structure(tf.zeros_like, tuple(q))
    )
    elbo: Callable[[Any, Any], tf.Tensor] = lambda sums, q: sums.value - arrow.kl(q)
    moved: Callable[[Any, Any, tf.Tensor], Any] = moved  # q, sums, part of a whole step
    of_one: Callable[[Any, tf.Tensor, Any], Any] = with_latent  # q, latent GP, the q to take it of


def maximise(
    sums_of: Sums,
    q: Any,
    least_gain: TensorType,
    max_steps: TensorType,
    in_turn: bool,
    within: Callable[[Any], Any] = lambda q: q,
    wanted: TensorType = -np.inf,
    is_wary: bool = True,
) -> Maximum:
    """
    Search for the optimal q from ``q``; a step that does not raise the ELBO is replaced.

    The search ends when a step gains less than ``least_gain`` nats, and so do all steps that would
    follow if the gains went on falling at the same rate. With ``max_steps`` 0 it only evaluates the
    ELBO at ``q``.

    :param in_turn: whether a closed-form step moves one latent GP only.
    :param within: maps a q(v) to one that the model can represent.
    :param wanted: the ELBO that is wanted. The search also ends when ten times what it is still
        expected to gain is less than what is missing, so that the ELBO at its end is too low by
        less than a tenth of that.
    :param is_wary: whether it may take the safer steps. Else it ends before the first one, and its
        graph is smaller.
    """
    zero, one = (tf.constant(value, q[0].dtype) for value in (0.0, 1.0))
    num_closed = q[0].shape[1] if in_turn else 1
    parts = tf.constant([1.0, 0.5, *[0.0] * (1 + num_closed), *_SMALL_PARTS], zero.dtype)
    rules = _Rules(sums_of, parts, least_gain, max_steps, in_turn, within, wanted, is_wary)
    start = _Search(
        best=q,
        sums=sums_of.empty(zero, q),
        elbo=zero,
        candidate=q,
        kind=tf.constant(NEWTON),
        steps=tf.constant(-1),
        size=one,
        gain=tf.constant(np.inf, zero.dtype),
        still=tf.constant(np.inf, zero.dtype),
        start=zero,
        kept=sums_of.nothing_kept,
    )
    (end,) = tf.while_loop(
        rules.may_continue, lambda search: (rules.proposed(rules.judged(search)),), (start,)
    )
    is_cut = rules.is_unfinished(end)
    return Maximum(end.best, end.sums, end.elbo, end.steps, end.start, is_cut, end.kept)


class _Search(NamedTuple):
    """The state of a search: the best q so far, and a candidate still to be evaluated."""

    best: Any
    sums: Any  # at ``best``
    elbo: tf.Tensor  # at ``best``
    candidate: Any
    kind: tf.Tensor  # of the step that led to ``candidate``
    steps: tf.Tensor  # the number of accepted steps; -1 until the first q is evaluated
    size: tf.Tensor  # of the Newton steps
    gain: tf.Tensor  # of the last accepted step
    still: tf.Tensor  # to be gained, the last step included, at the rate of the last two
    start: tf.Tensor  # the first ELBO
    kept: Kept  # at ``best``


class _Rules(NamedTuple):
    """How a search accepts a candidate, how it finds the next one, and when it ends."""

    sums_of: Sums
    # How much of a Newton step a step of each kind takes, such as 0.5 for half of it; 0 for kinds
    # that are no Newton steps.
    parts: tf.Tensor
    least_gain: TensorType
    max_steps: TensorType
    in_turn: bool
    within: Callable[[Any], Any]
    wanted: TensorType
    is_wary: bool

    def is_unfinished(self, search: _Search) -> tf.Tensor:
        may_gain = (search.kind < self.parts.shape[0]) & (search.still >= self.least_gain)
        # Not where this is NaN: a search may begin at a q whose ELBO is not finite.
        is_hopeless = search.elbo + _MARGIN * search.still < self.wanted
        may_gain &= ~is_hopeless
        return (search.steps < 0) | (may_gain & (search.steps < self.max_steps))

    def may_continue(self, search: _Search) -> tf.Tensor:
        is_unfinished = self.is_unfinished(search)
        return is_unfinished if self.is_wary else is_unfinished & (self.part(search) > 0.0)

    def part(self, search: _Search) -> tf.Tensor:
        """The part of a Newton step that the next step takes; 0 if it is another one."""
        return search.size * self.parts[tf.minimum(search.kind, self.parts.shape[0] - 1)]

    def judged(self, search: _Search) -> _Search:
        """The search after its candidate is accepted or refused."""
        sums, kept = self.sums_of.newton(search.candidate)
        elbo = self.sums_of.elbo(sums, search.candidate)
        is_first = search.steps < 0
        is_whole = (search.kind == NEWTON) & (search.size == 1.0) & ~is_first
        change = tf.abs(elbo - search.elbo)
        # Near the maximum a whole Newton step improves q, though rounding hides its gain. If it
        # were refused, rounding would decide about the last digits of the gradient.
        rounding = np.finfo(elbo.dtype.as_numpy_dtype).eps ** 0.75 * (1.0 + tf.abs(elbo))
        is_higher = (elbo > search.elbo) | tf.math.is_nan(search.elbo)
        is_accepted = is_first | (tf.math.is_finite(elbo) & is_higher)
        is_accepted |= is_whole & (change < rounding)
        size = search.size * self.parts[search.kind]
        size = tf.where(search.kind == NEWTON, tf.minimum(2.0 * size, 1.0), size)
        gain = tf.where(is_first, search.gain, elbo - search.elbo)
        # Newton steps converge so fast that the last gain bounds what is left. Closed-form steps
        # converge linearly: at a rate r the gains after this one sum to gain · r/(1 − r).
        rate = tf.where(search.gain > 0.0, gain / search.gain, tf.zeros_like(gain))
        rate = tf.clip_by_value(tf.where(tf.math.is_finite(rate), rate, 0.5), 0.5, _SLOWEST)
        accepted = search._replace(
            best=search.candidate,
            sums=sums,
            elbo=elbo,
            kind=tf.constant(NEWTON),
            steps=search.steps + 1,
            size=tf.where(size > 0.0, size, 1.0),
            gain=gain,
            still=gain * rate / (1.0 - rate),
            start=tf.where(is_first, elbo, search.start),
            kept=kept,
        )
        # If a whole Newton step changes the ELBO so little, q was optimal and any loss is
        # rounding. Safer steps would only cost passes.
        is_level = is_whole & (change < self.least_gain)
        refused = search._replace(
            kind=search.kind + 1, still=tf.where(is_level, tf.zeros_like(elbo), search.still)
        )
        return tf.nest.map_structure(
            lambda a, b: a if a is b else tf.where(is_accepted, a, b), accepted, refused
        )

    def proposed(self, search: _Search) -> _Search:
        """The search with its next candidate, a step of ``search.kind`` from the best q."""
        best, kind, sums = search.best, search.kind, search.sums
        part = self.part(search)
        is_newton = part > 0.0
        if self.is_wary:
            sums = tf.cond(
                is_newton,
                lambda: search.sums,
                lambda: self.sums_of.safer(best, kind, search.kept),
            )
        candidate = self.sums_of.moved(best, sums, tf.where(is_newton, part, tf.ones_like(part)))
        candidate = self.within(candidate)
        if self.in_turn and self.is_wary:
            of_one = self.sums_of.of_one(best, kind - CLOSED_FORM, candidate)
            is_of_one = (kind >= CLOSED_FORM) & ~is_newton
            candidate = tf.nest.map_structure(
                lambda one, every: tf.where(is_of_one, one, every), of_one, candidate
            )
        coupling = self.sums_of.coupling
        if coupling is not None:
            mu = tf.cond(
                is_newton & self.is_unfinished(search),
                lambda: _coupled_mean(best, sums, part, coupling(best), candidate.mu),
                lambda: candidate.mu,
            )
            candidate = candidate._replace(mu=mu)
        return search._replace(candidate=candidate)


def _coupled_mean(
    q: Gaussian, sums: Statistics, part: tf.Tensor, coupling: tf.Tensor, uncoupled: tf.Tensor
) -> tf.Tensor:
    """
    The mean after a part of the Newton step on all latent GPs.

    The blocks of :func:`~gpflow_aaci.algebra.gaussian.optimal_naturals` leave out ∂²E/∂m_j∂m_k
    between latent GPs. The Newton step of the mean includes it if its matrix is positive definite.

    :param uncoupled: the mean to return otherwise.
    """
    step = coupled_step(q.mu, sums.in_mean, arrow.dense(sums.in_covariance), coupling)
    mu = q.mu + part * step
    return tf.where(tf.reduce_all(tf.math.is_finite(mu)), mu, uncoupled)


def safer_slopes(
    model: AugmentedModel, X: tf.Tensor, Y: tf.Tensor, at: AtRows, kind: tf.Tensor
) -> Slopes:
    """The slopes of a step of this kind, which is no Newton step."""

    def closed() -> Slopes:
        return model.term(augmented_steps).slopes(X, at.Fmu, at.Fvar, Y)

    is_closed, lifted = kind >= CLOSED_FORM, concave(at.slopes, LEAST_PRECISION)
    if model.likelihood.row_cost and not model.likelihood.is_augmented:
        return tf.cond(is_closed, closed, lambda: lifted)
    # Both cost little. A branch for each, in a branch, in a loop, is what TensorFlow's constant
    # folding breaks for some likelihoods: all results of the loop are then empty.
    return Slopes(*(tf.where(is_closed, *pair) for pair in zip(closed(), lifted, strict=True)))


def sums_of_rows(model: AugmentedModel, projection: Projection, X: tf.Tensor, Y: tf.Tensor) -> Sums:
    """The sums over the rows X [N, D], Y [N, P], without other data."""
    term = model.term(standard)

    def at(q: Gaussian) -> AtRows:
        Fmu, Fvar = marginals(projection, *q)
        return AtRows(Fmu, Fvar, term.slopes(X, Fmu, Fvar, Y))

    def newton(q: Gaussian) -> tuple[Statistics, AtRows]:
        kept = at(q)
        return summed(projection, kept.slopes), kept

    def safer(q: Gaussian, kind: tf.Tensor, kept: Kept) -> Statistics:
        return summed(projection, safer_slopes(model, X, Y, kept or at(q), kind))

    def coupling(q: Gaussian) -> tf.Tensor:
        assert term.coupling is not None  # it is not None if ``model.couples``
        return coupled(projection, term.coupling(X, *marginals(projection, *q), Y))

    of_each = tf.zeros([tf.shape(X)[0], model.num_latent_gps], X.dtype)
    nothing = AtRows(of_each, of_each, Slopes(tf.zeros([], X.dtype), of_each, of_each))
    return Sums(newton, safer, coupling if model.couples else None, nothing)
