"""
Better starting points for a fit whose initial hyperparameters do not suit the data.

If the initial scales are far from the scale of y, the noise soon explains all of y. The bound is
then flat in the signal variance, and an ascent would stop on this plateau. The scale of the noise
and the standard deviation of the kernel both have the unit of y, so a search multiplies both by
one factor. If only the initial signal variance is too small, it alone is raised.

If the lengthscales are far too short for the columns of X, f is as rough as noise and explains
nothing between the rows. If they are far too long, f is constant. The bound is flat in them, too.
Lengthscales √D·sd(X) suit D columns of any unit: two rows then have a correlation of order 1.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.config import default_jitter
from gpflow.kernels import Kernel
from gpflow.kullback_leiblers import gauss_kl
from gpflow.likelihoods import Likelihood

from ..algebra.gaussian import Gaussian, columns
from ..data import Data
from ..kernels import columns_of_f, parts_of
from ..likelihoods.composed.per_datum import OfBase
from ..models import AugmentedModel, AugmentedVGP
from .coordinates import Coordinates
from .objective import Objective, Stretch
from .quasi_newton import Point
from .settings import SETTINGS
from .starting import narrow_q

_PROMISING = 20  # columns whose lengthscale is tried at more than one factor; starts
_NO_MEAN = 1e-6  # in prior standard deviations of f; a smaller mean counts as 0

_Powers = list[tuple[gpflow.Parameter, float]]


class Searched(Protocol):
    """What is searched: an objective, of a model with a q or of another model."""

    model: Any
    coordinates: Coordinates

    def evaluate(
        self, rows: int, x: AnyNDArray, q: Any, *, wanted: float = ...
    ) -> tuple[Point, Any]: ...


class Lines(NamedTuple):
    """The change of each coordinate when scales grow by the factor e."""

    both: AnyNDArray  # of noise and signal, as in another unit of y
    noise: AnyNDArray  # of the noise alone
    signal: AnyNDArray  # of f alone


def off_a_saddle(
    objective: Objective, stretch: Stretch, point: Point, q: Gaussian
) -> tuple[Point, Gaussian]:
    """
    The point and q where the ascent begins: the given ones, or a better q with a nonzero mean.

    If p(y|f) is even in f, for example with a rate f², the gradient in the mean of f vanishes at 0,
    although 0 is not a maximum. A search for q that starts there would stay there.
    """
    model = objective.model
    if model.likelihood.is_augmented or np.max(np.abs(q.mu)) > _NO_MEAN:
        return point, q
    objective.coordinates.unpack(point.x)
    chol = tf.linalg.cholesky(model.prior_covariance())
    sd = tf.sqrt(tf.transpose(model.prior_variance())) * tf.ones_like(q.mu)  # [M, L]
    chol = tf.broadcast_to(chol, [q.mu.shape[1], *chol.shape[1:]])
    aside = q._replace(mu=columns(tf.linalg.triangular_solve, chol, sd))
    wanted = point.value + stretch.tolerance
    there, q_there = objective.evaluate(stretch.rows, point.x, aside, wanted=wanted)
    return (there, q_there) if there.value > wanted else (point, q)


def from_a_narrow_q(
    objective: Objective, stretch: Stretch, point: Point, q: Gaussian
) -> tuple[Point, Gaussian]:
    """
    The given point and q; or the better q to which a search from a narrow one leads.

    See :func:`~gpflow_aaci.inference.starting.narrow_q`.
    """
    objective.coordinates.unpack(point.x)
    rows = objective.rows_of(stretch.rows)
    narrow = narrow_q(objective.model, rows, q, point.value)
    if narrow is None:
        return point, q
    there = objective.evaluate(stretch.rows, point.x, narrow, wanted=point.value)
    return max((point, q), there, key=lambda pair: np.nan_to_num(pair[0].value, nan=-np.inf))


def in_other_units(
    objective: Searched, stretch: Stretch, point: Point, q: Any
) -> tuple[Point, Any]:
    """The point and q where the ascent begins: the given ones, or better ones in another unit."""
    lines = along_units(objective.model, objective.coordinates)
    if lines is None:
        return point, q
    best, q_best, far = point, q, 0.0
    for step in (np.log(SETTINGS.unit_factor), -np.log(SETTINGS.unit_factor)):
        while abs(far) < SETTINGS.farthest_unit:
            x = point.x + (far + step) * lines.both
            there, q_there = objective.evaluate(stretch.rows, x, q_best, wanted=best.value)
            if not (there.value > best.value and np.all(np.isfinite(there.gradient))):
                break
            best, q_best, far = there, q_there, far + step
        if far:
            break
    if far:  # or only the initial noise is wrong
        x = point.x + far * lines.noise
        noise, _ = objective.evaluate(stretch.rows, x, q, wanted=best.value)
        if noise.value >= best.value:
            return point, q
    return best, q_best


def with_more_signal(
    objective: Objective, stretch: Stretch, point: Point, q: Gaussian, least_gain: float
) -> tuple[Point, Gaussian] | None:
    """
    A point off the plateau on which noise explains everything: signal and noise are equally large.

    :param least_gain: the smallest rise of the objective [nats] that counts.
    :return: None if there is no such plateau, or if more signal is not better.
    """
    lines = along_units(objective.model, objective.coordinates)
    if lines is None:
        return None
    objective.coordinates.unpack(point.x)
    noise, signal = noise_and_signal(objective.model)
    if not noise > SETTINGS.no_signal * signal > 0.0:
        return None
    x, wanted = point.x + np.log(noise / signal) * lines.signal, point.value + least_gain
    there = objective.evaluate(stretch.rows, x, q, wanted=wanted)
    is_better = there[0].value > wanted
    return there if is_better and np.all(np.isfinite(there[0].gradient)) else None


def explains_little(model: AugmentedModel, data: Data, q: Gaussian) -> bool:
    """
    Whether the fit may be on a plateau: f explains little of y, or nothing between the rows.

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
    A better point at which one long lengthscale is reduced to √D·sd(X), if there is one.

    On few rows the lengthscale of a relevant column may grow until f no longer depends on that
    column. The objective is then flat in the lengthscale, and more rows do not bring it back.

    :param least_gain: the smallest rise of the objective [nats] that counts.
    """
    typical = _typical_coordinates(objective, stretch)
    if typical is None:
        return None
    logarithms, are_lengthscales = typical
    is_long = are_lengthscales & (point.x > logarithms + np.log(SETTINGS.long_lengthscales))
    wanted = point.value + least_gain
    ends: list[tuple[Point, Gaussian]] = []
    long = np.flatnonzero(is_long)
    for factor in SETTINGS.lengthscale_factors:
        tried = np.tile(point.x, [len(long), 1])
        tried[range(len(long)), long] = logarithms[long] + np.log(factor)
        found = [objective.evaluate(stretch.rows, x, q, wanted=wanted) for x in tried]
        ends += found
        # A column that matters loses least, or gains, at the first factor.
        order = np.argsort([-np.nan_to_num(there.value, nan=-np.inf) for there, _ in found])
        long = long[order[:_PROMISING]]
    best = _best_of(ends)
    return best if best is not None and best[0].value > wanted else None


def has_long_lengthscales(model: AugmentedModel, data: Data) -> bool:
    """
    Whether every lengthscale is long for its column, so that f is nearly a polynomial.

    On few rows such an f often has the best bound, even if another f is better on more rows.
    """
    values = typical_lengthscales(model.kernel, spread_of_columns(data))
    least = [np.min(np.log(parameter.numpy()) - typical) for parameter, typical in values]
    return bool(least) and bool(min(least) > np.log(SETTINGS.long_lengthscales))


def left_by_others(model: AugmentedModel, data: Data) -> float:
    """
    The share of the prior variance of f that the inducing variables leave, averaged over the rows.

    The inducing points of ``AugmentedVGP`` are the rows themselves. There it is the share that f at
    the nearest other row leaves.
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
    A point from which the search may begin again: x with lengthscales √D·sd(X).

    :param x: the coordinates of the fit's start.
    :return: None if no lengthscale is searched as a logarithm.
    """
    typical = _typical_coordinates(objective, stretch)
    if typical is None:
        return None
    logarithms, are_lengthscales = typical
    factors = SETTINGS.lengthscale_factors
    tried = [np.where(are_lengthscales, logarithms + np.log(factor), x) for factor in factors]
    best = _best_of([objective.evaluate(stretch.rows, x, q) for x in tried])
    if best is None:
        return None
    return in_other_units(objective, stretch, *from_a_narrow_q(objective, stretch, *best))


def _typical_coordinates(
    objective: Objective, stretch: Stretch
) -> tuple[AnyNDArray, AnyNDArray] | None:
    """
    log(√D·sd(X)) for the coordinates that are log-lengthscales, and which coordinates these are.

    :return: None if no lengthscale is searched as a logarithm.
    """
    spread = spread_of_columns(objective.rows_of(stretch.rows))
    values = typical_lengthscales(objective.model.kernel, spread)
    logarithms = objective.coordinates.of_logarithms(values)
    which = objective.coordinates.of_logarithms([(parameter, 1.0) for parameter, _ in values])
    if not values or logarithms is None or which is None:
        return None
    return logarithms, which > 0.0


def _best_of(ends: Sequence[tuple[Point, Gaussian]]) -> tuple[Point, Gaussian] | None:
    """The point with the highest objective, and its optimal q; None if no objective is finite."""
    finite = [
        (point, q)
        for point, q in ends
        if np.isfinite(point.value) and np.all(np.isfinite(point.gradient))
    ]
    return max(finite, key=lambda pair: pair[0].value) if finite else None


def spread_of_columns(data: Data) -> AnyNDArray:
    """The standard deviation [D] of each column of X; 1 for a constant column."""
    mean = data.mean(lambda X, Y: tf.reduce_sum(X, 0))
    variance = data.mean(lambda X, Y: tf.reduce_sum(tf.square(X - mean), 0)).numpy()
    return np.sqrt(np.where(variance > 0.0, variance, 1.0))


def lowest_coordinates(objective: Objective, stretch: Stretch) -> AnyNDArray:
    """
    The lowest value of each coordinate: of a lengthscale, where f is independent at all rows.

    Once a lengthscale is a small part of the distance between any two values of its column, such as
    0 and 1, the objective is flat in it. A search would let it drift until ‖x/ℓ‖² loses its digits
    and the objective is noise. It may fall to a thousandth of √D·sd(X), but not below a 20th of the
    least distance.

    :return: [n], −∞ for all other coordinates.
    """
    rows, kernel = objective.rows_of(stretch.rows), objective.model.kernel
    spread = spread_of_columns(rows)
    values = typical_lengthscales(kernel, SETTINGS.shortest_lengthscale * spread)
    if not rows.is_divided:  # or processes would find different distances
        X = rows.map(lambda X, Y: X).numpy()
        # A constant column has no gap.
        gaps = [np.min(np.diff(np.unique(column))) if np.ptp(column) else np.inf for column in X.T]
        least = np.where(np.isinf(gaps), spread, gaps)
        least /= SETTINGS.part_of_gap * np.sqrt(len(gaps))
        values += [each for each in typical_lengthscales(kernel, least) if each[0].shape.rank]
    lowest, start = np.full(objective.coordinates.size, -np.inf), objective.coordinates.pack()
    for parameter, value in values:
        if np.any(at := objective.coordinates.where(parameter)):
            # A search may begin lower, and is then left where it is.
            lowest[at] = np.maximum(lowest[at], np.minimum(value, start[at]))
    return lowest


def largest_variance(
    model: AugmentedModel,
    value: Callable[[gpflow.Parameter], Any] = np.asarray,
    is_loosened: bool = False,
) -> float:
    """
    The variance of a kernel beyond which rounding makes the objective rough.

    An f that is nearly a polynomial has a huge variance and long lengthscales. K_ZZ is then nearly
    singular, and its rounding errors, of order M ε k(z, z), are no longer small beside the noise's
    variance. A search would climb these errors. If they exceed the jitter, they decide what the
    smallest eigenvalues are, so that nearly the same hyperparameters have another optimal q; where
    the noise is large beside the jitter, they may be less of its variance.

    :param value: the value of a parameter of the likelihood. Default: its present one.
    :param is_loosened: whether rounding may show.
    """
    noise = _scale_of_noise(model.likelihood, value) or 1.0  # without it, f has a unit of its own
    rounding = int(tf.shape(model.q_mu)[0]) * float(np.finfo(np.float64).eps)
    least, most = SETTINGS.least_roughness * noise**2, SETTINGS.roughness * noise**2
    if is_loosened:
        return SETTINGS.loosened * most / rounding
    return max(least, min(most, default_jitter())) / rounding


def highest_variances(objective: Objective, x: AnyNDArray, is_loosened: bool = False) -> AnyNDArray:
    """
    The highest value of each coordinate near x: of a kernel's variance, :func:`largest_variance`.

    :param is_loosened: as in :func:`largest_variance`.
    :return: [n], ∞ for all other coordinates. A variance that is higher at x may stay there.
    """
    model, coordinates = objective.model, objective.coordinates
    highest = np.full(coordinates.size, np.inf)
    value = functools.partial(coordinates.value, x=x)
    largest = np.log(largest_variance(model, value, is_loosened))
    for parameter, _ in signal_parameters(model.kernel, 1.0):
        at = coordinates.where(parameter)
        highest[at] = np.maximum(x[at], largest)
    return highest


def highest_at_first(objective: Objective) -> AnyNDArray:
    """
    The highest value of each coordinate at first: of the df of Student-t noise, nearly Gaussian.

    Far beyond, the objective is flat. A search would come back from there after a number of
    iterations, and to a place, that rounding decides.

    :return: [n], ∞ for all other coordinates.
    """
    coordinates = objective.coordinates
    highest, start = np.full(coordinates.size, np.inf), coordinates.pack()
    for path, parameter in gpflow.utilities.parameter_dict(objective.model.likelihood).items():
        if path.endswith(".df"):
            at = coordinates.where(parameter)
            highest[at] = np.maximum(np.log(SETTINGS.largest_df), start[at])
    return highest


def typical_lengthscales(
    kernel: Kernel, spread: AnyNDArray
) -> list[tuple[gpflow.Parameter, AnyNDArray]]:
    """
    The logarithms of √D·sd(X), for every trainable lengthscale of the kernels in ``kernel``.

    :param spread: sd(X) [D] of each column; a kernel has the columns of its ``active_dims``.
    """
    spread = spread[: columns_of_f(kernel, len(spread))]
    if parts := parts_of(kernel):
        if isinstance(kernel, gpflow.kernels.Periodic):  # its lengthscales apply to an angle
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
    """The lines; None unless the scales of noise and signal are searched as logarithms."""
    of_noise = noise_parameters(model.likelihood)
    of_signal = signal_parameters(model.kernel, 2.0)
    if not of_noise or not of_signal:
        return None
    noise = coordinates.of_logarithms(of_noise)
    both = coordinates.of_logarithms([*of_noise, *of_signal])
    return None if noise is None or both is None else Lines(both, noise, both - noise)


def noise_and_signal(model: AugmentedModel) -> tuple[float, float]:
    """The scale of the noise (0 if it has none) and the prior standard deviation of f."""
    variance = float(tf.reduce_mean(model.prior_variance()))
    return _scale_of_noise(model.likelihood), float(np.sqrt(variance))


def _scale_of_noise(
    likelihood: Likelihood, value: Callable[[gpflow.Parameter], Any] = np.asarray
) -> float:
    """In the unit of y; 0 if the likelihood has no such parameter."""
    of_noise = [np.mean(value(p)) ** (1.0 / power) for p, power in noise_parameters(likelihood)]
    return float(np.mean(of_noise or [0.0]))


def without_wrappers(likelihood: Likelihood) -> Likelihood:
    """The likelihood of y that is given weights or missing values."""
    return likelihood.base if isinstance(likelihood, OfBase) else likelihood


def noise_parameters(likelihood: Likelihood) -> _Powers:
    """The parameters that set the scale of the noise, each as a power of this scale."""
    likelihood = without_wrappers(likelihood)
    return [
        (parameter, power)
        for name, power in (("scale", 1.0), ("variance", 2.0))
        if isinstance(parameter := getattr(likelihood, name, None), gpflow.Parameter)
    ]


def signal_parameters(kernel: Kernel, power: float) -> _Powers:
    """
    The trainable parameters that scale the kernel, each with its power of the unit of y.

    :param power: the kernel must grow by this power of the unit.
    """
    if isinstance(kernel, gpflow.kernels.Product):
        factors = [found for part in kernel.kernels if (found := signal_parameters(part, 1.0))]
        return [(p, power * each / len(factors)) for found in factors for p, each in found]
    if isinstance(kernel, gpflow.kernels.Polynomial):
        of_each = power / float(kernel.degree)
        return [(p, of_each) for p in (kernel.variance, kernel.offset) if p.trainable]
    if parts := parts_of(kernel):
        return [pair for part in parts for pair in signal_parameters(part, power)]
    variance = getattr(kernel, "variance", None)
    is_learnt = isinstance(variance, gpflow.Parameter) and variance.trainable
    return [(variance, power)] if is_learnt else []
