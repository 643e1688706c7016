r"""
Ascent by a quasi-Newton method whose curvature carries over from one objective to the next.

Hyperparameters are few and their curvature on some of the rows, scaled to all, is nearly that on
all of them, so that what has been learnt on a subset need not be learnt again. An evaluation is
expensive and gives value and gradient together, so a step is accepted as soon as it satisfies
Armijo's condition. No evaluation is spent on Wolfe's second condition; instead, a step along which
the curvature is not clearly positive does not update the estimate (BFGS, L-BFGS).

The estimate may also be measured, by differences of the gradient. Where the objective curves
upwards, at a saddle or on a plateau, the absolute value of the curvature takes its place: the step
is then one of ascent, and its length is right in order of magnitude.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from gpflow.base import AnyNDArray

LONGEST = 2.0  # step in any coordinate, which is the logarithm of most parameters
_LEAST_RATIO = 1e-5  # of a measured curvature to the largest one: noise of differences is below
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

    @classmethod
    def measured(cls, hessian: AnyNDArray) -> "Curvature":
        """
        The inverse of |−∇²|, whose eigenvalues are the absolute values of those of −∇².

        :param hessian: −∇² [n, n], symmetric.
        """
        values, vectors = np.linalg.eigh(hessian)
        values = np.abs(values)
        values = np.maximum(values, _LEAST_RATIO * np.max(values, initial=1e-300))
        return cls.unknown(len(hessian))._replace(matrix=(vectors / values) @ vectors.T)

    @property
    def is_known(self) -> bool:
        return bool(len(self.matrix) or len(self.steps))

    def step(self, gradient: AnyNDArray) -> tuple[AnyNDArray, float]:
        """
        The step to the top of the quadratic model, and the gain that the model expects of it.

        Along each axis of the model the step is at most :data:`LONGEST` long, as a model that is
        flat there says nothing of what is farther away. The gain is ½ gᵀ|H|⁻¹g unless a step is
        cut short, and infinite where nothing is known.
        """
        if len(self.matrix):
            inverse, axes = np.linalg.eigh(self.matrix)
            inverse = np.maximum(inverse, 1e-300)
            along = axes.T @ gradient
            steps = np.clip(inverse * along, -LONGEST, LONGEST)
            return axes @ steps, float(steps @ along - 0.5 * np.sum(steps**2 / inverse))
        if not self.is_known:  # a step of length 1
            norm = np.linalg.norm(gradient)
            return gradient / max(norm, 1e-300), np.inf if norm else 0.0
        direction = self._two_loops(gradient)
        return direction, 0.5 * float(direction @ gradient)

    def _two_loops(self, gradient: AnyNDArray) -> AnyNDArray:
        """The last steps and changes applied to a gradient."""
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


class Ascent(NamedTuple):
    """The result of one iteration."""

    point: Point  # the one where the iteration began, where no step gains
    curvature: Curvature
    expected: float  # nats that the curvature before the iteration expected of the step


def ascend(evaluate: Callable[[AnyNDArray], Point], start: Point, curvature: Curvature) -> Ascent:
    """
    One iteration: a step that gains, if there is one, and the curvature after it.

    :param evaluate: may return a value or a gradient that is not finite: a step too far.
    """
    direction, expected = curvature.step(start.gradient)
    slope = float(direction @ start.gradient)
    if not slope > 0.0:
        curvature = Curvature.unknown(len(start.x))
        direction, expected = curvature.step(start.gradient)
        slope = float(direction @ start.gradient)
        if not slope > 0.0:  # a gradient of zero
            return Ascent(start, curvature, 0.0)
    longest = np.max(np.abs(direction))
    length = min(1.0, LONGEST / longest)
    for _ in range(_TRIALS):
        trial = evaluate(start.x + length * direction)
        gain = trial.value - start.value
        if np.all(np.isfinite(trial.gradient)) and gain >= _ARMIJO * length * slope:
            step, change = trial.x - start.x, start.gradient - trial.gradient
            return Ascent(trial, curvature.updated(step, change), expected)
        # The top of the parabola through both values and the slope, within reason.
        top = length**2 * slope / (2.0 * (length * slope - gain)) if np.isfinite(gain) else 0.0
        length = float(np.clip(top, 0.1 * length, 0.5 * length))
    return Ascent(start, Curvature.unknown(len(start.x)), expected)


def measured(
    evaluate: Callable[[AnyNDArray], Point], at: Point, lengths: AnyNDArray
) -> Curvature | None:
    """
    The curvature by a difference of the gradient along each coordinate.

    :param at: where the curvature is measured, with its gradient.
    :param lengths: the lengths [n] of the differences.
    :return: None where a gradient is not finite on either side.
    """
    columns = []
    for number, length in enumerate(lengths):
        for signed in (length, -length):
            x = at.x.copy()
            x[number] += signed
            change = (at.gradient - evaluate(x).gradient) / signed
            if np.all(np.isfinite(change)):
                columns.append(change)
                break
        else:
            return None
    hessian = np.array(columns)
    return Curvature.measured(0.5 * (hessian + hessian.T))
