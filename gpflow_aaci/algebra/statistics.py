"""
All that a step on q(v) needs of the data: three sums over them.

Sums add, so a minibatch (times num_data/|B|), a chunk, a stream and a worker are the same thing.
"""

from typing import NamedTuple

import tensorflow as tf
from gpflow.base import TensorType

from .gaussian import Gaussian
from .projection import Projection, marginals, to_q
from .terms import Slopes, Term


class Statistics(NamedTuple):
    """E = Σ e_i at a q(v), and its gradients in q(v)'s mean and covariance."""

    value: tf.Tensor  # []
    in_mean: tf.Tensor  # [M, L], a = Σ A_i ∂e/∂m_i
    in_covariance: tf.Tensor  # [L, M, M], B = Σ A_i (∂e/∂v_i) A_iᵀ

    def plus(self, other: "Statistics") -> "Statistics":
        return Statistics(*(a + b for a, b in zip(self, other, strict=True)))

    def times(self, scale: TensorType) -> "Statistics":
        return Statistics(*(scale * a for a in self))


def statistics(
    projection: Projection, term: Term, q: Gaussian, X: TensorType, Y: TensorType
) -> Statistics:
    """Of the rows X [N, D], Y [N, P]."""
    return summed(projection, term.slopes(X, *marginals(projection, *q), Y))


def summed(projection: Projection, slopes: Slopes) -> Statistics:
    return Statistics(slopes.value, *to_q(projection, slopes.in_mean, slopes.in_variance))
