r"""
Ascent by a quasi-Newton method whose curvature carries over from one objective to the next.

Hyperparameters are few and their curvature on some of the rows, scaled to all, is nearly that on
all of them, so that what has been learnt on a subset need not be learnt again. An evaluation is
expensive and gives value and gradient together, so a step is accepted as soon as it satisfies
Armijo's condition. No evaluation is spent on Wolfe's second condition; instead, a step along which
the curvature is not clearly positive does not update the estimate (BFGS, L-BFGS).
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
        # The two-loop recursion of L-BFGS (Nocedal and Wright, Algorithm 7.4).
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
        """The estimate after a step, unchanged unless the curvature along the step is positive."""
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
        # BFGS: H ← (I − ρ s yᵀ) H (I − ρ y sᵀ) + ρ s sᵀ, with ρ = 1 / sᵀy.
        left = eye - np.outer(step, change) / along
        return self._replace(matrix=left @ H @ left.T + np.outer(step, step) / along)


class Point(NamedTuple):
    """Where the objective has been evaluated."""

    x: AnyNDArray  # [n]
    value: float
    gradient: AnyNDArray  # [n]


def ascend(
    evaluate: Callable[[AnyNDArray], Point], start: Point, curvature: Curvature
) -> tuple[Point, Curvature]:
    """
    One iteration: the new point and curvature; ``start`` itself where no step gains.

    :param evaluate: may return a value or a gradient that is not finite: a step too far.
    """
    direction = curvature.times(start.gradient)
    slope = float(direction @ start.gradient)
    if not slope > 0.0:
        curvature = Curvature.unknown(len(start.x))
        direction = curvature.times(start.gradient)
        slope = float(direction @ start.gradient)
        if not slope > 0.0:  # a gradient of zero
            return start, curvature
    longest = np.max(np.abs(direction))
    length = min(1.0, _LONGEST / longest)
    for _ in range(_TRIALS):
        trial = evaluate(start.x + length * direction)
        gain = trial.value - start.value
        if np.all(np.isfinite(trial.gradient)) and gain >= _ARMIJO * length * slope:
            step, change = trial.x - start.x, start.gradient - trial.gradient
            return trial, curvature.updated(step, change)
        # The top of the parabola through both values and the slope, within reason.
        top = length**2 * slope / (2.0 * (length * slope - gain)) if np.isfinite(gain) else 0.0
        length = float(np.clip(top, 0.1 * length, 0.5 * length))
    return start, Curvature.unknown(len(start.x))
