"""
What a fit tries besides its ascent where the first guess of hyperparameters does not suit the data.

Where y is far larger or smaller than this guess, the noise soon explains all of y. The bound is
then flat in the signal, and a fit would end there. As the noise's scale and the kernel's standard
deviation are both in the unit of y, a better unit is searched for along the line on which they
change together. Where only the signal was guessed too small, it alone is raised.

Where lengthscales are far too short for the columns of X, f is as rough as noise and explains
nothing between the rows; where they are far too long, it is constant. The bound is flat in them,
too. Lengthscales √D·sd(X) suit D columns of any unit: two rows then have a correlation of order 1.
"""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.kernels import Kernel
from gpflow.kullback_leiblers import gauss_kl
from gpflow.likelihoods import Likelihood

from ..algebra.gaussian import Gaussian, columns
from ..data import Data
from ..kernels import columns_of_f
from ..likelihoods.composed.per_datum import OfBase
from ..models import AugmentedModel, AugmentedVGP
from .coordinates import Coordinates
from .objective import Objective, Stretch
from .quasi_newton import Point
from .settings import SETTINGS

_NO_MEAN = 1e-6  # standard deviations of f under the prior, below which a mean counts as 0

_Powers = list[tuple[gpflow.Parameter, float]]


class Lines(NamedTuple):
    """How each coordinate grows with the logarithm of the unit of y."""

    both: AnyNDArray  # noise and signal
    noise: AnyNDArray  # noise alone
    signal: AnyNDArray  # signal alone


def off_a_saddle(
    objective: Objective, stretch: Stretch, point: Point, q: Gaussian
) -> tuple[Point, Gaussian]:
    """
    The point and q where the ascent begins: the given ones, or a better q whose mean is not 0.

    Where p(y|f) is even in f, as of a rate f², the gradient in the mean of f vanishes at 0, though
    that is no maximum. A search for q that begins there remains there.
    """
    model = objective.model
    if model.likelihood.is_augmented or np.max(np.abs(q.mu)) > _NO_MEAN:
        return point, q
    objective.coordinates.unpack(point.x)
    chol = tf.linalg.cholesky(model.prior_covariance())
    sd = tf.sqrt(tf.transpose(model.prior_variance())) * tf.ones_like(q.mu)  # [M, L]
    chol = tf.broadcast_to(chol, [q.mu.shape[1], *chol.shape[1:]])
    aside = q._replace(mu=columns(tf.linalg.triangular_solve, chol, sd))
    there, q_there = objective.evaluate(stretch.rows, point.x, aside)
    return (there, q_there) if there.value > point.value + stretch.tolerance else (point, q)


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
            there, q_there = objective.evaluate(stretch.rows, x, q_best)
            if not (there.value > best.value and np.all(np.isfinite(there.gradient))):
                break
            best, q_best, far = there, q_there, far + step
        if far:
            break
    if far:  # or only the noise was guessed wrong
        noise, _ = objective.evaluate(stretch.rows, point.x + far * lines.noise, q)
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
    there = objective.evaluate(stretch.rows, point.x + np.log(noise / signal) * lines.signal, q)
    is_better = there[0].value > point.value + least_gain
    return there if is_better and np.all(np.isfinite(there[0].gradient)) else None


def explains_little(model: AugmentedModel, data: Data, q: Gaussian) -> bool:
    """
    Whether the fit may have ended on a plateau, where f says little of y or nothing between rows.

    :param q: the optimal q(v) at the model's hyperparameters.
    """
    if float(gauss_kl(*q)) < SETTINGS.little_information:
        return True
    noise, signal = noise_and_signal(model)
    if noise > SETTINGS.no_signal * signal > 0.0:
        return True
    return left_by_others(model, data) > SETTINGS.short_lengthscales


def with_a_shorter_lengthscale(
    objective: Objective, stretch: Stretch, point: Point, q: Gaussian, least_gain: float
) -> tuple[Point, Gaussian] | None:
    """
    A better point at which one long lengthscale is of the size of √D·sd(X), if there is one.

    On few rows the lengthscale of a column that matters may grow until f no longer depends on it.
    The objective is then flat in it, so that more rows do not bring it back.

    :param least_gain: nats by which the objective must rise.
    """
    typical = _typical_coordinates(objective, stretch)
    if typical is None:
        return None
    logarithms, are_lengthscales = typical
    is_long = are_lengthscales & (point.x > logarithms + np.log(SETTINGS.long_lengthscales))
    tried = []
    for at, factor in itertools.product(np.flatnonzero(is_long), SETTINGS.lengthscale_factors):
        x = point.x.copy()
        x[at] = logarithms[at] + np.log(factor)
        tried.append(x)
    best = _best_of(objective, stretch, tried, q)
    return best if best is not None and best[0].value > point.value + least_gain else None


def has_long_lengthscales(model: AugmentedModel, data: Data) -> bool:
    """
    Whether every lengthscale is long for its column, so that f is nearly a polynomial.

    On few rows such an f often has the best bound, even where on more rows another f is better.
    """
    values = typical_lengthscales(model.kernel, spread_of_columns(data))
    least = [np.min(np.log(parameter.numpy()) - typical) for parameter, typical in values]
    return bool(least) and bool(min(least) > np.log(SETTINGS.long_lengthscales))


def left_by_others(model: AugmentedModel, data: Data) -> float:
    """
    The mean share of the prior variance of f at the rows that the inducing variables leave.

    For ``AugmentedVGP``, whose inducing points are the rows: that the nearest other row leaves.
    """
    if not isinstance(model, AugmentedVGP):

        def shares(X: tf.Tensor, Y: tf.Tensor) -> tf.Tensor:
            left = model.project(X).unexplained / model.cross_covariance(X)[1]
            return tf.reduce_sum(tf.reduce_mean(left, 0))

        return float(data.mean(shares))
    prior = model.prior(data.rows[0])
    variances = tf.linalg.diag_part(prior.K_ZZ)
    correlation = prior.K_ZZ / tf.sqrt(variances[..., None, :] * variances[..., None])
    others = tf.linalg.set_diag(correlation, tf.zeros_like(variances))
    return float(tf.reduce_mean(1.0 - tf.reduce_max(tf.square(others), -1)))


def at_other_lengthscales(
    objective: Objective, stretch: Stretch, x: AnyNDArray, q: Gaussian
) -> tuple[Point, Gaussian] | None:
    """
    A point at which the search may begin again: x with lengthscales of the size of √D·sd(X).

    :param x: the coordinates of the fit's start.
    :return: None where no lengthscale is searched as a logarithm.
    """
    typical = _typical_coordinates(objective, stretch)
    if typical is None:
        return None
    logarithms, are_lengthscales = typical
    factors = SETTINGS.lengthscale_factors
    tried = [np.where(are_lengthscales, logarithms + np.log(factor), x) for factor in factors]
    best = _best_of(objective, stretch, tried, q)
    return None if best is None else in_other_units(objective, stretch, *best)


def _typical_coordinates(
    objective: Objective, stretch: Stretch
) -> tuple[AnyNDArray, AnyNDArray] | None:
    """
    The logarithms of √D·sd(X) at the coordinates of lengthscales, and which coordinates these are.

    :return: None where no lengthscale is searched as a logarithm.
    """
    spread = spread_of_columns(objective.rows_of(stretch.rows))
    values = typical_lengthscales(objective.model.kernel, spread)
    logarithms = objective.coordinates.of_logarithms(values)
    which = objective.coordinates.of_logarithms([(parameter, 1.0) for parameter, _ in values])
    if not values or logarithms is None or which is None:
        return None
    return logarithms, which > 0.0


def _best_of(
    objective: Objective, stretch: Stretch, tried: Sequence[AnyNDArray], q: Gaussian
) -> tuple[Point, Gaussian] | None:
    """The highest of some points, and its optimal q; None where none of them is finite."""
    finite = [
        (point, q_there)
        for point, q_there in (objective.evaluate(stretch.rows, x, q) for x in tried)
        if np.isfinite(point.value) and np.all(np.isfinite(point.gradient))
    ]
    return max(finite, key=lambda pair: pair[0].value) if finite else None


def spread_of_columns(data: Data) -> AnyNDArray:
    """The standard deviation [D] of each column of X, 1 for a constant one."""
    mean = data.mean(lambda X, Y: tf.reduce_sum(X, 0))
    variance = data.mean(lambda X, Y: tf.reduce_sum(tf.square(X - mean), 0)).numpy()
    return np.sqrt(np.where(variance > 0.0, variance, 1.0))


def typical_lengthscales(
    kernel: Kernel, spread: AnyNDArray
) -> list[tuple[gpflow.Parameter, AnyNDArray]]:
    """
    The logarithms of √D·sd(X), for every trainable lengthscale of the kernels in ``kernel``.

    :param spread: sd(X) [D] of each column; a kernel has the columns of its ``active_dims``.
    """
    spread = spread[: columns_of_f(kernel, len(spread))]
    if parts := parts_of(kernel):
        if isinstance(kernel, gpflow.kernels.Periodic):  # lengthscales of an angle
            return []
        return [pair for part in parts for pair in typical_lengthscales(part, spread)]
    lengthscales = getattr(kernel, "lengthscales", None)
    if not isinstance(lengthscales, gpflow.Parameter) or not lengthscales.trainable:
        return []
    of_active = spread[kernel.active_dims]
    size = len(of_active)
    if lengthscales.shape.rank == 0:
        of_active = np.sqrt(np.mean(np.square(of_active)))
    return [(lengthscales, np.log(np.sqrt(size) * of_active))]


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
    if isinstance(likelihood, OfBase):
        likelihood = likelihood.base
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
