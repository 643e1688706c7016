"""
The three sums over the data that a step on q(v) needs.

Sums over parts of the rows add up, so chunks, streams and workers need no special code;
a minibatch's sums are multiplied by num_data/|B|.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf
from gpflow.base import TensorType

from .arrow import dense
from .gaussian import Gaussian, damped, optimal_naturals
from .projection import Projection, at_latent, marginals, to_q
from .terms import Slopes, Term


class Statistics(NamedTuple):
    """E = Σ e_i at a q(v), and its gradients in q(v)'s mean and covariance."""

    value: tf.Tensor  # []
    in_mean: tf.Tensor  # [M, L], a = Σ A_i ∂e/∂m_i
    in_covariance: Any  # [L, M, M], B = Σ A_i (∂e/∂v_i) A_iᵀ; an arrow where A has entries


def statistics(
    projection: Projection, term: Term, q: Gaussian, X: TensorType, Y: TensorType
) -> Statistics:
    """The statistics of the rows X [N, D], Y [N, P] at q(v), with all entries of B."""
    sums = summed(projection, term.slopes(X, *marginals(projection, *q), Y))
    return sums._replace(in_covariance=dense(sums.in_covariance))


def summed(projection: Projection, slopes: Slopes) -> Statistics:
    """The statistics of rows whose slopes are known."""
    return Statistics(slopes.value, *to_q(projection, slopes.in_mean, slopes.in_variance))


def stepped_in_turn(
    projection: Projection,
    term: Term,
    q: Gaussian,
    X: TensorType,
    Y: TensorType,
    total: Callable[[Sequence[tf.Tensor]], Sequence[tf.Tensor]],
    step_size: TensorType,
    within: Callable[[Gaussian], Gaussian] = lambda q: q,
) -> Gaussian:
    """
    Natural-gradient steps on one latent GP after the other, each with updated marginals.

    If the term couples the latent GPs, a step of size 1 on all of them at once may lower an
    augmented bound, but a step on one of them cannot. In total the matrix products cost as much as
    in one step on all latent GPs.

    :param total: turns sums over the rows X, Y into the scaled sums over all rows.
    :param within: maps a q(v) to one that the model can represent.
    """
    Fmu, Fvar = (tf.unstack(part, axis=1) for part in marginals(projection, *q))
    mu, sqrt = tf.split(q.mu, q.mu.shape[1], 1), tf.split(q.sqrt, q.mu.shape[1], 0)
    for latent in range(q.mu.shape[1]):
        of_latent = at_latent(projection, latent)
        _, *slopes = term.slopes(X, tf.stack(Fmu, 1), tf.stack(Fvar, 1), Y)
        a, B = total(to_q(of_latent, *(slope[:, latent : latent + 1] for slope in slopes)))
        target = optimal_naturals(mu[latent], a, dense(B))
        moved = within(damped(mu[latent], sqrt[latent], *target, step_size))
        mu[latent], sqrt[latent] = moved
        Fmu[latent], Fvar[latent] = (part[:, 0] for part in marginals(of_latent, *moved))
    return Gaussian(tf.concat(mu, 1), tf.concat(sqrt, 0))
