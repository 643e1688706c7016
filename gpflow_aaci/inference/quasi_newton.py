r"""
Ascent by a quasi-Newton method whose curvature carries over from one objective to the next.

The hyperparameters are few. Their curvature on a subset, scaled to all rows, is close to their
curvature on all rows, so an estimate from a subset is used again. An evaluation is expensive and
gives value and gradient together, so a step is accepted as soon as it satisfies Armijo's condition.
No evaluation is spent on Wolfe's second condition; instead, a step along which the curvature is not
clearly positive does not update the estimate (BFGS, L-BFGS).

The curvature can also be measured, by differences of the gradient. If the objective curves upwards,
at a saddle or on a plateau, the absolute value of the curvature is used: the step then still
ascends, and its length has the right order of magnitude.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from gpflow.base import AnyNDArray

LONGEST = 2.0  # largest step in any coordinate; most are logarithms of parameters
_LEAST_RATIO = 1e-5  # measured curvatures are at least this part of the largest one
_ARMIJO = 1e-4
_TRIALS = 12  # the most evaluations in a line search
DENSE = 200  # up to so many coordinates the inverse Hessian is stored as a matrix
_PAIRS = 20  # of steps and gradient changes that are stored for more coordinates


class Curvature(NamedTuple):
    """An estimate of the inverse of −∇²: a matrix, or the last steps and gradient changes."""

    matrix: AnyNDArray  # [n, n], or [0, 0]
    steps: AnyNDArray  # [K, n]
    changes: AnyNDArray  # [K, n], changes of −∇

    @classmethod
    def unknown(cls, size: int) -> "Curvature":
        nothing = np.zeros([0, size])
        return cls(np.zeros([0, 0]), nothing, nothing)

    @classmethod
    def measured(cls, hessian: AnyNDArray) -> "Curvature":
        """
        The inverse of |−∇²|: −∇² with each eigenvalue replaced by its absolute value.

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
        The step to the maximum of the quadratic model, and the gain that the model predicts.

        Along each axis of the model the step is at most :data:`LONGEST` long, as a nearly flat
        model cannot be trusted far away. The gain is ½ gᵀ|H|⁻¹g unless the step is cut short, and
        infinite if there is no estimate of the curvature yet.
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
        """The product of the L-BFGS estimate and a gradient."""
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
        if len(step) > DENSE:
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
    """A point at which the objective has been evaluated."""

    x: AnyNDArray  # [n]
    value: float
    gradient: AnyNDArray  # [n]


def inwards(x: AnyNDArray, gradient: AnyNDArray, low: AnyNDArray, high: AnyNDArray) -> AnyNDArray:
    """The gradient [n] without what leads out of bounds, against which a search would push."""
    gradient = np.where((x <= low) & (gradient < 0.0), 0.0, gradient)
    return np.where((x >= high) & (gradient > 0.0), 0.0, gradient)


class Ascent(NamedTuple):
    """The result of one iteration."""

    point: Point  # the new point, or the old one if no step gains
    curvature: Curvature
    expected: float  # the gain [nats] that the previous curvature predicted


def ascend(
    evaluate: Callable[[AnyNDArray], Point],
    start: Point,
    curvature: Curvature,
    low: AnyNDArray | float = -np.inf,
    high: AnyNDArray | float = np.inf,
) -> Ascent:
    """
    One iteration: a step that raises the objective, if one is found, and the new curvature.

    :param evaluate: may return a value or gradient that is not finite; the step is then shortened.
    :param low, high: the bounds [n] of x, between which ``start`` lies. Its gradient, and those
        that ``evaluate`` returns, are :func:`inwards`.
    """
    for used in (curvature, Curvature.unknown(len(start.x))):
        direction, expected = used.step(start.gradient)
        direction = _within(start, direction, used.matrix, low, high)
        slope = float(direction @ start.gradient)
        if slope > 0.0:
            break
    else:  # a gradient of zero
        return Ascent(start, used, 0.0)
    longest = np.max(np.abs(direction))
    length = min(1.0, LONGEST / longest)
    for _ in range(_TRIALS):
        trial = evaluate(start.x + length * direction)
        gain = trial.value - start.value
        if np.all(np.isfinite(trial.gradient)) and gain >= _ARMIJO * length * slope:
            step, change = trial.x - start.x, start.gradient - trial.gradient
            return Ascent(trial, used.updated(step, change), expected)
        # The maximum of the parabola through both values and the slope, within limits.
        top = length**2 * slope / (2.0 * (length * slope - gain)) if np.isfinite(gain) else 0.0
        length = float(np.clip(top, 0.1 * length, 0.5 * length))
    return Ascent(start, Curvature.unknown(len(start.x)), expected)


def _within(
    start: Point,
    best: AnyNDArray,
    H: AnyNDArray,
    low: AnyNDArray | float,
    high: AnyNDArray | float,
) -> AnyNDArray:
    """
    The best step between the bounds, given the one without bounds.

    A coordinate that pushes against its bound stays there, and one that would pass its bound ends
    on it. The others take the step that is best beside these.

    :param H: an estimate of the inverse of −∇² [n, n], or [0, 0].
    """
    x, step = start.x, best
    fixed = ((x <= low) | (x >= high)) & (start.gradient == 0.0)
    ends = np.zeros_like(x)  # of the steps of the fixed coordinates
    while True:
        inside = np.where(fixed, ends, np.clip(x + step, low, high) - x)
        outside = np.abs(inside - step) > 1e-12 * (1.0 + np.abs(x))
        if not np.any(outside) or not len(H):
            return inside
        fixed, ends = fixed | outside, inside
        # A quadratic model is a Gaussian with covariance H: some steps given, the others follow.
        weights = np.linalg.lstsq(H[np.ix_(fixed, fixed)], (ends - best)[fixed], rcond=None)[0]
        step = np.where(fixed, ends, best + H[:, fixed] @ weights)


def measured(
    evaluate: Callable[[AnyNDArray], Point], at: Point, lengths: AnyNDArray
) -> Curvature | None:
    """
    The curvature by a difference of the gradient along each coordinate.

    :param at: where the curvature is measured, with its gradient.
    :param lengths: the lengths [n] of the differences.
    :return: None if the gradients on both sides of a coordinate are not finite.
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
