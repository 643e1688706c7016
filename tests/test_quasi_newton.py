"""Quasi-Newton ascent that keeps its curvature, on functions with a known maximum."""

import numpy as np
import pytest

from gpflow_aaci.inference.quasi_newton import Curvature, Point, ascend


class Quadratic:
    """−½ (x − top)ᵀ H (x − top), which counts its evaluations."""

    def __init__(self, size: int, condition: float = 1e3) -> None:
        rng = np.random.default_rng(size)
        Q = np.linalg.qr(rng.normal(size=(size, size)))[0]
        self.H = (Q * np.geomspace(1.0, condition, size)) @ Q.T
        self.top, self.evaluations = rng.normal(size=size), 0

    def __call__(self, x: np.ndarray) -> Point:
        self.evaluations += 1
        pull = self.H @ (self.top - x)
        return Point(x, -0.5 * float((self.top - x) @ pull), pull)


def climb(function: Quadratic, curvature: Curvature, iterations: int) -> tuple[Point, Curvature]:
    point = function(np.zeros_like(function.top))
    for _ in range(iterations):
        here = point
        point, curvature = ascend(function, here, curvature)
        assert point.value >= here.value
    return point, curvature


@pytest.mark.parametrize("size", [6, 300], ids=["a matrix", "pairs"])
def test_it_finds_the_top_of_a_quadratic(size: int) -> None:
    function = Quadratic(size, condition=50.0)
    end, _ = climb(function, Curvature.unknown(size), 150)
    np.testing.assert_allclose(end.x, function.top, atol=1e-5)


def test_curvature_that_is_known_need_not_be_learnt_again() -> None:
    """The second objective is the first one shifted, as happens with other rows."""
    function = Quadratic(8, condition=30.0)
    _, curvature = climb(function, Curvature.unknown(8), 25)
    function.top += np.random.default_rng(0).normal(size=8)
    knowing, _ = climb(function, curvature, 4)
    forgetting, _ = climb(function, Curvature.unknown(8), 4)
    assert knowing.value > 0.01 * forgetting.value


@pytest.mark.parametrize("bad", [np.nan, -np.inf, np.inf])
def test_a_step_into_nothing_is_shortened(bad: float) -> None:
    """The function is not finite for |x| > 1, and the first step would go to 2."""
    top = np.array([0.8])

    def function(x: np.ndarray) -> Point:
        if abs(x[0]) > 1.0:
            return Point(x, bad, np.full(1, np.nan))
        return Point(x, -float((x - top) @ (x - top)), 2.0 * (top - x))

    steep = Curvature.unknown(1)._replace(matrix=np.array([[50.0]]))
    point = function(np.array([-0.5]))
    for _ in range(20):
        point, steep = ascend(function, point, steep)
    np.testing.assert_allclose(point.x, top, atol=1e-4)


def test_where_no_step_gains_it_stays_and_forgets() -> None:
    """The gradient points in a direction in which the function falls."""

    def function(x: np.ndarray) -> Point:
        return Point(x, -abs(float(x[0])), np.ones(1))

    here = function(np.zeros(1))
    known = Curvature.unknown(1)._replace(matrix=np.eye(1))
    point, curvature = ascend(function, here, known)
    assert point is here
    assert not len(curvature.matrix)
