"""Rejection sampling from many different distributions at once."""

from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from ..validation import Check, require

Proposal = Callable[..., tuple[tf.Tensor, tf.Tensor]]
"""(seed, *parameters), each parameter [m] → a candidate [m], and whether it is accepted [m]."""

_MAX_ROUNDS = 1000


def rejection_sample(
    propose: Proposal, parameters: Sequence[tf.Tensor], seed: tf.Tensor
) -> tf.Tensor:
    """
    One draw for every row of ``parameters``, each [n]. Accepted rows leave the batch.

    :param seed: [2], a stateless seed; the same seed gives the same draws.
    """
    dtype, static = parameters[0].dtype, parameters[0].shape

    def unfinished(step: tf.Tensor, rows: tf.Tensor, *_: tf.Tensor) -> tf.Tensor:
        return (tf.size(rows) > 0) & (step < _MAX_ROUNDS)

    def advance(
        step: tf.Tensor, rows: tf.Tensor, draws: tf.Tensor, active: tuple[tf.Tensor, ...]
    ) -> tuple[tf.Tensor, ...]:
        x, accepted = propose(tf.random.experimental.stateless_fold_in(seed, step), *active)
        into = tf.boolean_mask(rows, accepted)[:, None]
        draws = tf.tensor_scatter_nd_update(draws, into, tf.boolean_mask(x, accepted))
        rest = tf.where(~accepted)[:, 0]
        active = tuple(tf.gather(parameter, rest) for parameter in active)
        return step + 1, tf.gather(rows, rest), draws, active

    n = tf.size(parameters[0])
    state = (tf.constant(0), tf.range(n), tf.zeros([n], dtype), tuple(parameters))
    some = tf.TensorShape([None])
    shapes = (tf.TensorShape([]), some, static, tuple(some for _ in parameters))
    _, rows, draws, _ = tf.while_loop(unfinished, advance, state, shape_invariants=shapes)
    finished = Check(
        tf.equal(tf.size(rows), 0),
        f"Rejection sampling did not end within {_MAX_ROUNDS} rounds: the parameters are not "
        "finite, or overflow. Rows left (up to ten):",
        lambda: rows[:10],
    )
    with tf.control_dependencies([require([finished])]):
        return tf.identity(draws)


def uniforms(number: int, like: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """Uniform variables in (0, 1), [number, m], of the dtype of ``like`` [m]."""
    shape = tf.concat([[number], tf.shape(like)], axis=0)
    tiny = np.finfo(np.float64).tiny
    return tf.random.stateless_uniform(shape, seed, tiny, 1.0, like.dtype)
