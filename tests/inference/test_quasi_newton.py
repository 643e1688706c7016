"""Quasi-Newton ascent that keeps its curvature, on functions with a known maximum."""

import numpy as np
import pytest
import scipy.optimize

from gpflow_aaci.inference.quasi_newton import (
    LONGEST,
    Curvature,
    Point,
    ascend,
    inwards,
    measured,
)


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
        point, curvature, _ = ascend(function, here, curvature)
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
        point, steep, _ = ascend(function, point, steep)
    np.testing.assert_allclose(point.x, top, atol=1e-4)


def test_where_no_step_gains_it_stays_and_forgets() -> None:
    """The gradient points in a direction in which the function falls."""

    def function(x: np.ndarray) -> Point:
        return Point(x, -abs(float(x[0])), np.ones(1))

    here = function(np.zeros(1))
    known = Curvature.unknown(1)._replace(matrix=np.eye(1))
    point, curvature, _ = ascend(function, here, known)
    assert point is here
    assert not len(curvature.matrix)


def test_measured_curvature_finds_the_top_in_one_step_and_foretells_the_gain() -> None:
    function = Quadratic(8, condition=1e3)
    function.top = 0.1 * function.top
    start = function(np.zeros(8))
    curvature = measured(function, start, np.full(8, 0.02))
    assert curvature is not None
    end, _, expected = ascend(function, start, curvature)
    np.testing.assert_allclose(end.x, function.top, atol=1e-8)
    np.testing.assert_allclose(end.value - start.value, expected, rtol=1e-6)


def test_at_a_saddle_the_step_climbs_though_the_gradient_is_tiny() -> None:
    """f = −x² + y² − y⁴ / 2 has its tops at y = ±1, and a saddle at 0."""

    def function(x: np.ndarray) -> Point:
        value = -(x[0] ** 2) + x[1] ** 2 - 0.5 * x[1] ** 4
        return Point(x, float(value), np.array([-2.0 * x[0], 2.0 * x[1] - 2.0 * x[1] ** 3]))

    point = function(np.array([0.3, 1e-3]))
    for _ in range(14):  # each of the first ten doubles the distance to the saddle
        curvature = measured(function, point, np.full(2, 1e-4))
        assert curvature is not None
        point, _, _ = ascend(function, point, curvature)
    np.testing.assert_allclose(point.x, [0.0, 1.0], atol=1e-3)


def test_a_flat_direction_does_not_shorten_the_step_in_the_others() -> None:
    """The quadratic model would go 1e6 far along the first axis, where it hardly curves."""
    hessian, gradient = np.diag([1e-3, 4.0]), np.array([1e3, 2.0])
    direction, expected = Curvature.measured(hessian).step(gradient)
    np.testing.assert_allclose(direction, [LONGEST, 0.5])
    gains = gradient @ direction - 0.5 * direction @ hessian @ direction
    np.testing.assert_allclose(expected, gains, rtol=1e-6)


def test_where_a_gradient_is_not_finite_on_either_side_nothing_is_measured() -> None:
    def function(x: np.ndarray) -> Point:
        is_finite = abs(x[1]) < 1e-3
        return Point(x, 0.0, -x if is_finite else np.full(2, np.nan))

    assert measured(function, function(np.zeros(2)), np.array([0.1, 0.1])) is None
    assert measured(function, function(np.zeros(2)), np.array([0.1, 1e-4])) is not None


def test_at_bounds_it_finds_the_top_between_them() -> None:
    """Against scipy's bounded search; the axes of the quadratic are not those of the box."""
    function = Quadratic(8, condition=1e3)
    low, high = np.minimum(0.5 * function.top, -0.1), np.full(8, 0.3)

    def loss(x: np.ndarray) -> tuple[float, np.ndarray]:
        at = function(x)
        return -at.value, -at.gradient

    best = scipy.optimize.minimize(
        loss, np.zeros(8), jac=True, bounds=np.stack([low, high], 1), options={"ftol": 1e-15}
    )

    def within(x: np.ndarray) -> Point:
        at = function(np.clip(x, low, high))
        return at._replace(gradient=inwards(at.x, at.gradient, low, high))

    assert np.sum((best.x <= low) | (best.x >= high)) >= 2
    point, curvature = within(np.zeros(8)), Curvature.measured(function.H)
    for _ in range(4):
        point, curvature, _ = ascend(within, point, curvature, low, high)
    np.testing.assert_allclose(point.x, best.x, atol=1e-6)
