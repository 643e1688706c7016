"""
The contribution of a datum to a bound, and its slopes in the mean and variance of its f.

A step on q needs only the slopes, since they determine a Gaussian site and the site
determines them: ∂e/∂v = −½ precision and ∂e/∂m = potential − precision·m.
"""

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf
from gpflow.base import TensorType

from ..likelihoods import AugmentedLikelihood

OfEach = Callable[[TensorType, TensorType, TensorType, TensorType], tf.Tensor]
"""(X [N, D], Fmu [N, L], Fvar [N, L], Y [N, P]) → [N]."""


class Slopes(NamedTuple):
    """The sum of e over some rows, and its derivatives in the mean and variance of each row's f."""

    value: tf.Tensor  # [], Σ e
    in_mean: tf.Tensor  # [N, L], ∂e/∂Fmu
    in_variance: tf.Tensor  # [N, L], ∂e/∂Fvar


class AtRows(NamedTuple):
    """The marginals of f at every row under some q(v), and the slopes there."""

    Fmu: tf.Tensor  # [N, L]
    Fvar: tf.Tensor  # [N, L]
    slopes: Slopes


class Term(NamedTuple):
    """A datum's e, its slopes, and how the slopes of one latent GP depend on the others' means."""

    of_each: OfEach
    slopes: Callable[[TensorType, TensorType, TensorType, TensorType], Slopes]
    coupling: OfEach | None = None
    """
    [N, L, L], ∂²e/∂Fmu∂Fmu − diag(2 ∂e/∂Fvar), for Newton steps. None where no step needs it, for
    one of two reasons: e is a sum over the columns of f, so that it is zero, or no Newton step is
    taken on this term.
    """


def standard(likelihood: AugmentedLikelihood) -> Term:
    """The term E log p(y|f) of GPflow's ELBO."""
    term = by_tape(likelihood.variational_expectations)
    return term._replace(coupling=likelihood.coupling) if likelihood.couples else term


def predictive(likelihood: AugmentedLikelihood) -> Term:
    """The term log E p(y|f), the log density of y with f integrated out."""
    return by_tape(likelihood.predict_log_density)


def by_tape(of_each: OfEach) -> Term:
    """The term whose slopes are taken by automatic differentiation."""

    def slopes(X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType) -> Slopes:
        with tf.GradientTape() as tape:
            tape.watch([Fmu, Fvar])
            value = tf.reduce_sum(of_each(X, Fmu, Fvar, Y))
        return Slopes(value, *tape.gradient(value, (Fmu, Fvar)))

    return Term(of_each, slopes)


def augmented_bound(likelihood: AugmentedLikelihood) -> Term:
    """The augmented bound on E log p(y|f), at the optimal q of the auxiliary variables."""

    def slopes(X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType) -> Slopes:
        value = tf.reduce_sum(likelihood.bound(X, Fmu, Fvar, Y))
        return Slopes(value, *likelihood.bound_slopes(X, Fmu, Fvar, Y))

    return Term(likelihood.bound, slopes)


def augmented_steps(likelihood: AugmentedLikelihood) -> Term:
    """The augmented bound for steps alone: the value of its slopes is left out, and 0."""

    def slopes(X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType) -> Slopes:
        in_mean, in_variance = likelihood.bound_slopes(X, Fmu, Fvar, Y)
        return Slopes(tf.zeros([], in_mean.dtype), in_mean, in_variance)

    return Term(likelihood.bound, slopes)


def mixed_marginals(
    mean: TensorType, W: TensorType, Gmu: TensorType, Gvar: TensorType
) -> tuple[tf.Tensor, tf.Tensor]:
    """Fmu = μ₀ + W Gmu and Fvar = W² Gvar [N, P] of f = μ₀ + W g, W [P, L]."""
    Fmu = mean + tf.matmul(Gmu, W, transpose_b=True)
    return Fmu, tf.matmul(Gvar, tf.square(W), transpose_b=True)


def mixed(term: Term, W: TensorType, mean: Callable[[TensorType], tf.Tensor]) -> Term:
    """
    The term as a function of the latent GPs g, if the outputs are mixtures f = μ₀ + W g.

    Fmu = μ₀ + W Gmu and Fvar = W² Gvar, with an elementwise square. The transposed maps give the
    slopes in g.

    :param W: [P, L].
    :param mean: μ₀(X) [N, broadcast P] of the outputs.
    """

    def outputs(X: TensorType, Gmu: TensorType, Gvar: TensorType) -> tuple[tf.Tensor, tf.Tensor]:
        return mixed_marginals(mean(X), W, Gmu, Gvar)

    def of_each(X: TensorType, Gmu: TensorType, Gvar: TensorType, Y: TensorType) -> tf.Tensor:
        return term.of_each(X, *outputs(X, Gmu, Gvar), Y)

    def slopes(X: TensorType, Gmu: TensorType, Gvar: TensorType, Y: TensorType) -> Slopes:
        value, in_mean, in_variance = term.slopes(X, *outputs(X, Gmu, Gvar), Y)
        return Slopes(value, tf.matmul(in_mean, W), tf.matmul(in_variance, tf.square(W)))

    def coupling(X: TensorType, Gmu: TensorType, Gvar: TensorType, Y: TensorType) -> tf.Tensor:
        marginals = outputs(X, Gmu, Gvar)
        of_each = 2.0 * term.slopes(X, *marginals, Y).in_variance
        # ∂²e/∂Gmu∂Gmu = Wᵀ (diag(2 ∂e/∂Fvar) + coupling) W. The diagonal of the first part is
        # 2 ∂e/∂Gvar, which the definition of a coupling subtracts.
        curvature = tf.matmul(W, of_each[..., None] * W, transpose_a=True)
        curvature = tf.linalg.set_diag(curvature, tf.zeros_like(Gmu))
        if term.coupling is None:
            return curvature
        mixed_coupling = tf.matmul(term.coupling(X, *marginals, Y), W)
        return curvature + tf.matmul(W, mixed_coupling, transpose_a=True)

    return Term(of_each, slopes, coupling if W.shape[1] > 1 else None)


def concave(slopes: Slopes, least_precision: float) -> Slopes:
    """The slopes with every site's precision −2 ∂e/∂v raised to at least ``least_precision``."""
    highest = tf.cast(-0.5 * least_precision, slopes.in_variance.dtype)
    return slopes._replace(in_variance=tf.minimum(slopes.in_variance, highest))
