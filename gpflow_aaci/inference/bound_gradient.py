"""The gradient of a bound in the hyperparameters, written out at a q(v) that stands still."""

from collections.abc import Callable, Sequence

import gpflow
import tensorflow as tf

from ..algebra.gaussian import Gaussian
from ..algebra.projection import Prior, Projection, marginals, to_prior, to_q
from ..algebra.terms import Term

Sums = tuple[tf.Tensor, tf.Tensor]
"""scale·(a, B) of :func:`~gpflow_aaci.algebra.projection.to_q`."""


def bound_gradient(
    term: Term,
    variables: Sequence[tf.Variable],
    tape: tf.GradientTape,
    prior: Prior,
    projection: Projection,
    q: Gaussian,
    X: tf.Tensor,
    Y: tf.Tensor,
    scale: tf.Tensor,
    sums: Sums | None = None,
    through_q: Callable[[tf.Tensor, tf.Tensor], tf.Tensor] | None = None,
) -> list[tf.Tensor]:
    r"""
    That of scale Σ e_i − KL in ``variables``.

    The Cholesky factorisation is not differentiated: the kernel's own autodiff starts from
    :func:`~gpflow_aaci.algebra.projection.to_prior`. Sums over chunks of rows add up.

    :param tape: that has recorded ``prior``, of which ``projection`` is.
    :param sums: where they are known.
    :param through_q: (a, B) → a gradient in K_ZZ besides, where q(v) moves with it.
    """
    Fmu, Fvar = marginals(projection, *q)
    with tf.GradientTape() as direct:
        direct.watch([Fmu, Fvar])
        value = scale * tf.reduce_sum(term.worth(X, Fmu, Fvar, Y))
    in_mean, in_variance, *own = direct.gradient(
        value, [Fmu, Fvar, *variables], unconnected_gradients="zero"
    )
    a, B = to_q(projection, in_mean, in_variance) if sums is None else sums
    bars = to_prior(prior, projection, *q, in_mean, in_variance, a, B)
    if through_q is not None:
        bars = bars._replace(K_ZZ=bars.K_ZZ + through_q(a, B))
    through_prior = tape.gradient(
        prior, variables, output_gradients=bars, unconnected_gradients="zero"
    )
    return [x + y for x, y in zip(own, through_prior, strict=True)]


def log_prior_gradient(
    model: gpflow.models.BayesianModel, variables: Sequence[tf.Variable]
) -> tuple[tf.Tensor, list[tf.Tensor]]:
    """log p(hyperparameters) [], and its gradient."""
    with tf.GradientTape() as tape:
        value = model.log_prior_density()
    return value, tape.gradient(value, variables, unconnected_gradients="zero")
