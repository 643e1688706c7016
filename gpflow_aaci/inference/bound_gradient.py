"""The gradient of a bound in the hyperparameters, at a fixed q(v)."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import tensorflow as tf

from ..algebra.gaussian import Gaussian
from ..algebra.projection import Prior, Projection, marginals, project, to_prior, to_q
from ..algebra.terms import AtRows, Term

Sums = tuple[tf.Tensor, tf.Tensor]
"""The pair (a, B) that :func:`~gpflow_aaci.algebra.projection.to_q` returns."""


class Recorded(NamedTuple):
    """The prior at some inputs, with the tape that leads back from it to the hyperparameters."""

    tape: tf.GradientTape
    prior: Prior
    projection: Projection


def recorded(
    prior_at: Callable[[tf.Tensor], Prior],
    X: tf.Tensor,
    product_dtype: tf.DType | None = None,
    persistent: bool = False,
    watched: Sequence[tf.Tensor] = (),
) -> Recorded:
    """
    The prior at X, recorded on a tape, and its projection.

    :param prior_at: the method ``prior`` of a model.
    :param X: inputs [N, D].
    :param product_dtype: as in :func:`~gpflow_aaci.algebra.projection.project`.
    :param persistent: whether the tape is asked for more than one gradient.
    :param watched: tensors besides the trainable variables that gradients are asked for.
    """
    with tf.GradientTape(persistent=persistent) as tape:
        tape.watch(watched)
        prior = prior_at(X)
    return Recorded(tape, prior, project(prior, product_dtype))


def bound_gradient(
    term: Term,
    variables: Sequence[tf.Variable | tf.Tensor],
    at: Recorded,
    q: Gaussian,
    X: tf.Tensor,
    Y: tf.Tensor,
    sums: Sums | None = None,
    kept: AtRows | tuple[()] = (),
    is_direct: bool = True,
) -> list[tf.Tensor]:
    r"""
    The gradient of Σ e_i in ``variables``, at fixed q(v); sums over chunks of rows add up.

    The Cholesky factorisation is not differentiated: the kernel's own autodiff starts from
    :func:`~gpflow_aaci.algebra.projection.to_prior`.

    :param at: the prior recorded at X [N, D].
    :param sums: (a, B) of these rows, if they have been computed before in full precision.
    :param kept: the marginals and slopes of every row, likewise.
    :param is_direct: whether e depends on ``variables`` besides through the prior.
    """
    # K_ZZ⁻¹ magnifies any rounding of the products, until the gradient is noise.
    exact = at.projection._replace(rounded=None)

    def in_prior(in_mean: tf.Tensor, in_variance: tf.Tensor) -> Prior:
        a, B = to_q(exact, in_mean, in_variance) if sums is None else sums
        return to_prior(at.prior, exact, *q, in_mean, in_variance, a, B)

    if kept:
        gradients = in_prior(*kept.slopes[1:])
        return total_gradient(term, variables, at, gradients, X, Y, kept, is_direct)
    of_f = marginals(at.projection, *q)
    with tf.GradientTape() as direct:
        direct.watch([of_f, *variables])
        value = tf.reduce_sum(term.of_each(X, *of_f, Y))
    found = direct.gradient(value, [*of_f, *variables], unconnected_gradients="zero")
    through_prior = _through_prior(variables, at, in_prior(*found[:2]))
    return [x + y for x, y in zip(found[2:], through_prior, strict=True)]


def total_gradient(
    term: Term,
    variables: Sequence[tf.Variable | tf.Tensor],
    at: Recorded,
    gradients: Prior,
    X: tf.Tensor,
    Y: tf.Tensor,
    kept: AtRows,
    is_direct: bool = True,
) -> list[tf.Tensor]:
    """
    The gradient of Σ e_i in ``variables``, given its gradients in the prior.

    It is the direct derivative, of parameters of the likelihood, plus the one through the prior:
    Σ_i ∂e_i/∂m_i dm_i/dθ + ∂e_i/∂v_i dv_i/dθ.
    """
    through_prior = _through_prior(variables, at, gradients)
    if not (is_direct and variables):
        return through_prior
    with tf.GradientTape() as tape:
        tape.watch(variables)
        value = tf.reduce_sum(term.of_each(X, *kept[:2], Y))
    directly = tape.gradient(value, variables, unconnected_gradients="zero")
    return [x + y for x, y in zip(directly, through_prior, strict=True)]


def _through_prior(
    variables: Sequence[tf.Variable | tf.Tensor], at: Recorded, gradients: Prior
) -> list[tf.Tensor]:
    found: list[tf.Tensor] = at.tape.gradient(
        at.prior.differentiable,
        variables,
        output_gradients=gradients.differentiable,
        unconnected_gradients="zero",
    )
    return found


def value_and_gradient(
    function: Callable[[], tf.Tensor], variables: Sequence[tf.Variable]
) -> tuple[tf.Tensor, list[tf.Tensor]]:
    """What ``function`` returns, and its gradient in ``variables``, whether trainable or not."""
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(variables)
        value = function()
    return value, tape.gradient(value, variables, unconnected_gradients="zero")
