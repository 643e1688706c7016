"""
What a fit tries besides its ascent where the first guess of noise and signal does not suit y.

Where y is far larger or smaller than this guess, the noise soon explains all of y. The bound is
then flat in the signal, and a fit would end there. As the noise's scale and the kernel's standard
deviation are both in the unit of y, a better unit is searched for along the line on which they
change together. Where only the signal was guessed too small, it alone is raised.
"""

from typing import NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.kernels import Kernel
from gpflow.likelihoods import Likelihood

from ..algebra.gaussian import Gaussian
from ..models import AugmentedModel
from .coordinates import Coordinates
from .objective import Objective, Stretch
from .quasi_newton import Point
from .settings import SETTINGS

_Powers = list[tuple[gpflow.Parameter, float]]


class Lines(NamedTuple):
    """How each coordinate grows with the logarithm of the unit of y."""

    both: AnyNDArray  # noise and signal
    noise: AnyNDArray  # noise alone
    signal: AnyNDArray  # signal alone


def in_other_units(
    objective: Objective, stretch: Stretch, point: Point, q: Gaussian
) -> tuple[Point, Gaussian]:
    """The point and q where the ascent begins: the given ones, or better ones in another unit."""
    lines = along_units(objective.model, objective.coordinates)
    if lines is None:
        return point, q
    best, q_best, far = point, q, 0.0
    for step in (np.log(SETTINGS.unit_factor), -np.log(SETTINGS.unit_factor)):
        while abs(far) < SETTINGS.farthest_unit:
            x = point.x + (far + step) * lines.both
            there, q_there = objective.evaluate(stretch, x, q_best)
            if not (there.value > best.value and np.all(np.isfinite(there.gradient))):
                break
            best, q_best, far = there, q_there, far + step
        if far:
            break
    if far:  # or only the noise was guessed wrong
        noise, _ = objective.evaluate(stretch, point.x + far * lines.noise, q)
        if noise.value >= best.value:
            return point, q
    return best, q_best


def with_more_signal(
    objective: Objective, stretch: Stretch, point: Point, q: Gaussian, least_gain: float
) -> tuple[Point, Gaussian] | None:
    """
    A point off the plateau where noise explains everything: its signal is as large as its noise.

    :param least_gain: nats by which the objective must rise.
    :return: None where there is no such plateau, or signal is no better.
    """
    lines = along_units(objective.model, objective.coordinates)
    if lines is None:
        return None
    objective.coordinates.unpack(point.x)
    noise, signal = noise_and_signal(objective.model)
    if not noise > SETTINGS.no_signal * signal > 0.0:
        return None
    there = objective.evaluate(stretch, point.x + np.log(noise / signal) * lines.signal, q)
    is_better = there[0].value > point.value + least_gain
    return there if is_better and np.all(np.isfinite(there[0].gradient)) else None


def along_units(model: AugmentedModel, coordinates: Coordinates) -> Lines | None:
    """The lines; None unless noise and signal have scales that are searched as logarithms."""
    of_noise = _of_noise(model.likelihood)
    of_signal = _of_variances(model.kernel, 2.0)
    if not of_noise or not of_signal:
        return None
    noise = coordinates.of_logarithms(of_noise)
    both = coordinates.of_logarithms([*of_noise, *of_signal])
    return None if noise is None or both is None else Lines(both, noise, both - noise)


def noise_and_signal(model: AugmentedModel) -> tuple[float, float]:
    """The noise's scale (0 where it has none) and the prior standard deviation of f."""
    of_noise = [
        np.mean(parameter) ** (1.0 / power) for parameter, power in _of_noise(model.likelihood)
    ]
    variance = float(tf.reduce_mean(model.prior_variance()))
    return float(np.mean(of_noise or [0.0])), float(np.sqrt(variance))


def _of_noise(likelihood: Likelihood) -> _Powers:
    """The parameters of the noise's scale, and the power of the scale that each one is."""
    return [
        (parameter, power)
        for name, power in (("scale", 1.0), ("variance", 2.0))
        if isinstance(parameter := getattr(likelihood, name, None), gpflow.Parameter)
    ]


def parts_of(kernel: Kernel) -> list[Kernel]:
    """The kernels that a kernel combines; an empty list for a basic kernel."""
    return getattr(kernel, "kernels", None) or [
        part for name in ("kernel", "base_kernel") if (part := getattr(kernel, name, None))
    ]


def _of_variances(kernel: Kernel, power: float) -> _Powers:
    """
    Trainable parameters that scale the kernel, each with its power of the unit.

    :param power: the power of the unit by which the kernel is to grow.
    """
    if isinstance(kernel, gpflow.kernels.Product):
        factors = [found for part in kernel.kernels if (found := _of_variances(part, 1.0))]
        return [(p, power * each / len(factors)) for found in factors for p, each in found]
    if isinstance(kernel, gpflow.kernels.Polynomial):
        of_each = power / float(kernel.degree)
        return [(p, of_each) for p in (kernel.variance, kernel.offset) if p.trainable]
    if parts := parts_of(kernel):
        return [pair for part in parts for pair in _of_variances(part, power)]
    variance = getattr(kernel, "variance", None)
    is_learnt = isinstance(variance, gpflow.Parameter) and variance.trainable
    return [(variance, power)] if is_learnt else []
