"""Step sizes for natural-gradient steps on minibatches, for ``AlternatingOptimizer``."""

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf
from gpflow.base import TensorType
from gpflow.config import default_float
from gpflow.utilities import to_default_float

from ..validation import shown

_WINDOW = 20  # steps that the averages remember
_CAUTION = 3.0  # a factor of the estimated noise, as it is only an estimate


class NaturalGradient(NamedTuple):
    """What is known of g = λ̂₁ − λ₁, the way to the batch's optimum, when its step is chosen."""

    square: tf.Tensor  # [], ‖g‖²
    noise: tf.Tensor  # [], the part of it that the choice of the batch explains: tr Var λ̂₁


Schedule = Callable[[tf.Tensor, NaturalGradient], tf.Tensor]
"""(number of the step, from 0 [], natural gradient) → step size [] in (0, 1]."""


class RobbinsMonro:
    """The step size (t + offset)^−exponent; the paper's scripts have (t + 100)^−0.51."""

    def __init__(self, exponent: float = 0.51, offset: float = 100.0) -> None:
        """
        :raises ValueError: for an exponent outside (0.5, 1], for which the sum of the step sizes
            converges or the sum of their squares diverges; for an offset below 1, with which the
            first step exceeds 1.
        """
        if not 0.5 < exponent <= 1.0:
            raise ValueError(f"exponent must be in (0.5, 1]. Found: {exponent}.")
        if not offset >= 1.0:
            raise ValueError(f"offset must be at least 1. Found: {offset}.")
        self.exponent, self.offset = exponent, offset

    def __call__(self, step: tf.Tensor, gradient: NaturalGradient) -> tf.Tensor:
        return (to_default_float(step) + self.offset) ** to_default_float(-self.exponent)


class _Constant:
    """The same step size always."""

    def __init__(self, step_size: TensorType) -> None:
        self.step_size = step_size if tf.is_tensor(step_size) else float(step_size)

    def __call__(self, step: tf.Tensor, gradient: NaturalGradient) -> tf.Tensor:
        return to_default_float(self.step_size)


class AdaptiveStepSize(tf.Module):
    """
    ``RobbinsMonro()``, or a longer step if the gradient exceeds the noise of minibatches.

    As E‖g‖² = ‖E g‖² + tr Var g, the best step size is ‖E g‖²/E‖g‖² (Ranganath et al. 2013). The
    noise tr Var g is estimated from the rows of the batch, with the factor 1 − |B|/num_data of
    sampling without replacement, so that on a full batch every step has size 1. Both are averaged
    over 20 steps; the averages are variables, which checkpoints store.
    """

    def __init__(self) -> None:
        super().__init__()
        self.least = RobbinsMonro()
        self.square = tf.Variable(0.0, dtype=default_float(), trainable=False)
        self.noise = tf.Variable(0.0, dtype=default_float(), trainable=False)

    def __call__(self, step: tf.Tensor, gradient: NaturalGradient) -> tf.Tensor:
        # Plain means at first, then with weights that decay over the window.
        weight = 1.0 / tf.minimum(to_default_float(step) + 1.0, to_default_float(_WINDOW))
        # A step that fails leaves the averages as they were: it raises where it moves q.
        failed = ~tf.math.is_finite(gradient.square + gradient.noise)
        square, noise = (
            average.assign_add(tf.where(failed, tf.zeros_like(new), weight * (new - average)))
            for average, new in ((self.square, gradient.square), (self.noise, gradient.noise))
        )
        signal = tf.where(noise > 0.0, 1.0 - _CAUTION * noise / square, tf.ones_like(square))
        return tf.maximum(signal, self.least(step, gradient))


def as_schedule(step_size: float | Schedule) -> Schedule:
    """
    The schedule, or the constant schedule of a number.

    :raises ValueError: for a number outside (0, 1], and for anything else.
    """
    if callable(step_size):
        return step_size
    try:
        in_range = 0.0 < float(step_size) <= 1.0
    except (TypeError, ValueError):
        in_range = False
    if not in_range:
        raise ValueError(
            f"step_size must be a number in (0, 1] or a schedule. Found: {shown(step_size)}."
        )
    return _Constant(step_size)
