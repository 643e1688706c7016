"""
What a datum is worth to a bound, and its slopes in the mean and the variance of its f.

The slopes are all that a step on q needs: ∂e/∂v = −½ precision and
∂e/∂m = potential − precision·m are a site's, and the other way round.
"""

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf
from gpflow.base import TensorType

from ..augmentation import expected_aug_loglik, expected_auglik_potential_and_precision
from ..likelihoods import AugmentedLikelihood

Worth = Callable[[TensorType, TensorType, TensorType, TensorType], tf.Tensor]
"""(X [N, D], Fmu [N, L], Fvar [N, L], Y [N, P]) → [N]."""


class Slopes(NamedTuple):
    """Of rows: their sum, and its derivatives in each datum's mean and variance of f."""

    value: tf.Tensor  # [], Σ e
    in_mean: tf.Tensor  # [N, L], ∂e/∂Fmu
    in_variance: tf.Tensor  # [N, L], ∂e/∂Fvar


class Term(NamedTuple):
    """A datum's e, its slopes, and how those of one latent GP depend on the others' means."""

    worth: Worth
    slopes: Callable[[TensorType, TensorType, TensorType, TensorType], Slopes]
    coupling: Worth | None = None
    """
    [N, L, L], ∂²e/∂Fmu∂Fmu less diag(2 ∂e/∂Fvar), which is all of it where e is a sum over
    columns of f; None where that is so, or nobody asks.
    """


def standard(likelihood: AugmentedLikelihood) -> Term:
    """E log p(y|f), GPflow's own."""
    term = _by_tape(likelihood.variational_expectations)
    return term._replace(coupling=likelihood.coupling) if likelihood.couples else term


def predictive(likelihood: AugmentedLikelihood) -> Term:
    """log E p(y|f), the log density of y with f integrated out."""
    return _by_tape(likelihood.predict_log_density)


def _by_tape(worth: Worth) -> Term:
    def slopes(X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType) -> Slopes:
        with tf.GradientTape() as tape:
            tape.watch([Fmu, Fvar])
            value = tf.reduce_sum(worth(X, Fmu, Fvar, Y))
        return Slopes(value, *tape.gradient(value, (Fmu, Fvar)))

    return Term(worth, slopes)


def augmented(likelihood: AugmentedLikelihood) -> Term:
    """The augmented bound of it, the auxiliary variables' q being optimal."""

    def slopes(X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType) -> Slopes:
        value = tf.reduce_sum(likelihood.bound(X, Fmu, Fvar, Y))
        return Slopes(value, *likelihood.bound_slopes(X, Fmu, Fvar, Y))

    return Term(likelihood.bound, slopes)


def augmented_at(likelihood: AugmentedLikelihood, c: TensorType) -> Term:
    """The augmented bound at the q(ω) of c [N, L], any c > 0."""

    def worth(X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType) -> tf.Tensor:
        return tf.reduce_sum(expected_aug_loglik(likelihood, c, Fmu, Fvar, Y), -1)

    def slopes(X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType) -> Slopes:
        potential, precision = expected_auglik_potential_and_precision(likelihood, c, Y)
        in_mean, in_variance = potential - precision * Fmu, -0.5 * precision
        return Slopes(tf.reduce_sum(worth(X, Fmu, Fvar, Y)), in_mean, in_variance)

    return Term(worth, slopes)


def mixed(term: Term, W: TensorType, mean: Callable[[TensorType], tf.Tensor]) -> Term:
    """
    The term as a function of the latent GPs g that the outputs are mixed of, f = μ₀ + W g.

    Fmu = μ₀ + W Gmu and Fvar = W² Gvar, elementwise square; slopes go back by the transposed maps.

    :param W: [P, L].
    :param mean: μ₀(X) [N, broadcast P] of the outputs.
    """

    def outputs(X: TensorType, Gmu: TensorType, Gvar: TensorType) -> tuple[tf.Tensor, tf.Tensor]:
        W_squared = tf.square(W)
        Fmu = mean(X) + tf.matmul(Gmu, W, transpose_b=True)
        return Fmu, tf.matmul(Gvar, W_squared, transpose_b=True)

    def worth(X: TensorType, Gmu: TensorType, Gvar: TensorType, Y: TensorType) -> tf.Tensor:
        return term.worth(X, *outputs(X, Gmu, Gvar), Y)

    def slopes(X: TensorType, Gmu: TensorType, Gvar: TensorType, Y: TensorType) -> Slopes:
        value, in_mean, in_variance = term.slopes(X, *outputs(X, Gmu, Gvar), Y)
        return Slopes(value, tf.matmul(in_mean, W), tf.matmul(in_variance, tf.square(W)))

    def coupling(X: TensorType, Gmu: TensorType, Gvar: TensorType, Y: TensorType) -> tf.Tensor:
        marginals = outputs(X, Gmu, Gvar)
        of_each = 2.0 * term.slopes(X, *marginals, Y).in_variance
        found = tf.matmul(W, of_each[..., None] * W, transpose_a=True)
        found = tf.linalg.set_diag(found, tf.zeros_like(Gmu))
        if term.coupling is None:
            return found
        return found + tf.matmul(W, tf.matmul(term.coupling(X, *marginals, Y), W), transpose_a=True)

    return Term(worth, slopes, coupling if W.shape[1] > 1 else None)


def concave(slopes: Slopes, least_precision: float) -> Slopes:
    """With the precision of every site at least that."""
    highest = tf.cast(-0.5 * least_precision, slopes.in_variance.dtype)
    return slopes._replace(in_variance=tf.minimum(slopes.in_variance, highest))
