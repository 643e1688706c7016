"""
What a datum is worth to a bound, and its slopes in the mean and the variance of its f.

The slopes are all that a step on q needs: ∂e/∂v = −½ precision and
∂e/∂m = potential − precision·m are a site's, and the other way round.
"""

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf
from gpflow.base import TensorType

from ..augmentation import (
    aux_posterior_c,
    expected_aug_loglik,
    expected_auglik_potential_and_precision,
    optimal_expected_aug_loglik,
)
from ..likelihoods import AugmentedLikelihood

Worth = Callable[[TensorType, TensorType, TensorType, TensorType], tf.Tensor]
"""(X [N, D], Fmu [N, L], Fvar [N, L], Y [N, P]) → [N]."""


class Slopes(NamedTuple):
    """Of rows: their sum, and its derivatives in each datum's mean and variance of f."""

    value: tf.Tensor  # [], Σ e
    in_mean: tf.Tensor  # [N, L], ∂e/∂Fmu
    in_variance: tf.Tensor  # [N, L], ∂e/∂Fvar


class Term(NamedTuple):
    """A datum's e, and its slopes."""

    worth: Worth
    slopes: Callable[[TensorType, TensorType, TensorType, TensorType], Slopes]


def standard(likelihood: AugmentedLikelihood) -> Term:
    """E log p(y|f), GPflow's own."""
    worth = likelihood.variational_expectations

    def slopes(X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType) -> Slopes:
        with tf.GradientTape() as tape:
            tape.watch([Fmu, Fvar])
            value = tf.reduce_sum(worth(X, Fmu, Fvar, Y))
        return Slopes(value, *tape.gradient(value, (Fmu, Fvar)))

    return Term(worth, slopes)


def augmented(likelihood: AugmentedLikelihood) -> Term:
    """The augmented bound of it, q(ω) being optimal."""

    def worth(X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType) -> tf.Tensor:
        return tf.reduce_sum(optimal_expected_aug_loglik(likelihood, Fmu, Fvar, Y), -1)

    def slopes(X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType) -> Slopes:
        value = tf.reduce_sum(worth(X, Fmu, Fvar, Y))
        return Slopes(value, *site_slopes(likelihood, Fmu, Fvar, Y))

    return Term(worth, slopes)


def site_slopes(
    likelihood: AugmentedLikelihood, Fmu: TensorType, Fvar: TensorType, Y: TensorType
) -> tuple[tf.Tensor, tf.Tensor]:
    """Those of the augmented bound, in closed form, for steps that do not ask for its value."""
    return _of_sites(likelihood, aux_posterior_c(likelihood, Fmu, Fvar, Y), Fmu, Y)


def augmented_at(likelihood: AugmentedLikelihood, c: TensorType) -> Term:
    """The augmented bound at the q(ω) of c [N, L], any c > 0."""

    def worth(X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType) -> tf.Tensor:
        return tf.reduce_sum(expected_aug_loglik(likelihood, c, Fmu, Fvar, Y), -1)

    def slopes(X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType) -> Slopes:
        return Slopes(tf.reduce_sum(worth(X, Fmu, Fvar, Y)), *_of_sites(likelihood, c, Fmu, Y))

    return Term(worth, slopes)


def concave(slopes: Slopes, least_precision: float) -> Slopes:
    """With the precision of every site at least that."""
    highest = tf.cast(-0.5 * least_precision, slopes.in_variance.dtype)
    return slopes._replace(in_variance=tf.minimum(slopes.in_variance, highest))


def _of_sites(
    likelihood: AugmentedLikelihood, c: TensorType, Fmu: TensorType, Y: TensorType
) -> tuple[tf.Tensor, tf.Tensor]:
    potential, precision = expected_auglik_potential_and_precision(likelihood, c, Y)
    return potential - precision * Fmu, -0.5 * precision
