r"""
Ascent by a quasi-Newton method whose curvature is kept from one objective to the next.

Hyperparameters are few and their curvature on some of the rows, scaled to all, is nearly that on
all of them, so that what has been learnt on a subset need not be learnt again. An evaluation is
dear and gives value and gradient together: a step is accepted as soon as it gains (Armijo), and
none is spent on a second condition; a pair of too little curvature is not taken in instead.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from gpflow.base import AnyNDArray

_LONGEST = 2.0  # step in any coordinate, which is the logarithm of most parameters
_ARMIJO = 1e-4
_TRIALS = 12  # of a line search
_DENSE = 200  # coordinates, up to which the inverse Hessian is a matrix
_PAIRS = 20  # that are remembered beyond


class Curvature(NamedTuple):
    """An estimate of the inverse of −∇²: a matrix, or the last steps and changes of gradient."""

    matrix: AnyNDArray  # [n, n], or [0, 0]
    steps: AnyNDArray  # [K, n]
    changes: AnyNDArray  # [K, n], of −∇

    @classmethod
    def unknown(cls, size: int) -> "Curvature":
        nothing = np.zeros([0, size])
        return cls(np.zeros([0, 0]), nothing, nothing)

    def times(self, gradient: AnyNDArray) -> AnyNDArray:
        """The estimate applied to a gradient."""
        if len(self.matrix):
            return self.matrix @ gradient
        if not len(self.steps):  # a step of length 1
            return gradient / max(np.linalg.norm(gradient), 1e-300)
        direction, weights = gradient.copy(), []
        pairs = list(zip(self.steps, self.changes, strict=True))
        for step, change in reversed(pairs):
            weight = (step @ direction) / (step @ change)
            direction -= weight * change
            weights.append(weight)
        step, change = pairs[-1]
        direction *= (step @ change) / (change @ change)
        for (step, change), weight in zip(pairs, reversed(weights), strict=True):
            direction += step * (weight - (change @ direction) / (step @ change))
        return direction

    def updated(self, step: AnyNDArray, change: AnyNDArray) -> "Curvature":
        """With what one step has shown, unless that is no positive curvature."""
        along = step @ change
        if not along > 1e-10 * np.linalg.norm(step) * np.linalg.norm(change):
            return self
        if len(step) > _DENSE:
            steps = np.concatenate([self.steps, step[None]])[-_PAIRS:]
            return self._replace(
                steps=steps, changes=np.concatenate([self.changes, change[None]])[-_PAIRS:]
            )
        eye = np.eye(len(step))
        H = self.matrix if len(self.matrix) else along / (change @ change) * eye
        left = eye - np.outer(step, change) / along
        return self._replace(matrix=left @ H @ left.T + np.outer(step, step) / along)


class Point(NamedTuple):
    """Where the objective has been evaluated."""

    x: AnyNDArray  # [n]
    value: float
    gradient: AnyNDArray  # [n]


def ascend(
    evaluate: Callable[[AnyNDArray], Point], here: Point, curvature: Curvature
) -> tuple[Point, Curvature]:
    """
    One iteration; ``here`` itself where no step along the way gains.

    :param evaluate: may return a value or a gradient that is not finite: a step too far.
    """
    direction = curvature.times(here.gradient)
    slope = float(direction @ here.gradient)
    if not slope > 0.0:
        curvature = Curvature.unknown(len(here.x))
        direction = curvature.times(here.gradient)
        slope = float(direction @ here.gradient)
        if not slope > 0.0:  # a gradient of zero
            return here, curvature
    longest = np.max(np.abs(direction))
    length = min(1.0, _LONGEST / longest)
    for _ in range(_TRIALS):
        there = evaluate(here.x + length * direction)
        gain = there.value - here.value
        if np.all(np.isfinite(there.gradient)) and gain >= _ARMIJO * length * slope:
            step, change = there.x - here.x, here.gradient - there.gradient
            return there, curvature.updated(step, change)
        # The top of the parabola through both values and the slope, within reason.
        top = length**2 * slope / (2.0 * (length * slope - gain)) if np.isfinite(gain) else 0.0
        length = float(np.clip(top, 0.1 * length, 0.5 * length))
    return here, Curvature.unknown(len(here.x))
