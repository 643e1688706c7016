"""``fit`` of a model of nearest neighbours: hyperparameters, metric, and how far they hold."""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.optimize
import tensorflow as tf
from gpflow.base import AnyNDArray

from ..likelihoods.noise.residual import AdditiveNoise
from ..models.variables import undone_on_failure
from ..nearest.conditional import LocalGP
from ..nearest.model import AugmentedNNGP, leave_one_out, rows_at_once
from ..nearest.rows import location
from ..progress import progress_bar
from ..runtime.compiled import Compiled
from ..runtime.graphs import reading_once
from .advice import advice
from .coordinates import Coordinates
from .objective import Stretch
from .quasi_newton import Curvature, Point, ascend, inwards, measured
from .rescues import (
    in_other_units,
    noise_parameters,
    signal_parameters,
    typical_lengthscales,
    without_wrappers,
)
from .settings import SETTINGS

if TYPE_CHECKING:
    import pandas as pd

_ROWS, _ROWS_OF_WIDE_DATA, _WIDE = 1_000, 3_000, 20  # of the objective; more beyond 20 columns
_MORE_ROWS = 4  # times as many, if the density of other rows is lower
_MOST_ROUNDS = 3  # of taking more rows
_ALLOWED, _ALLOWED_ERRORS = 0.02, 2.0  # by which it may be lower [nats a datum; standard errors]
_ALIKE = 0.1  # starts whose logarithms differ by less are one
_MOVES, _ITERATIONS = 5, 8  # of the metric; between two moves
_SHARES = (1.0, 0.5)  # of the way from the metric to the lengthscales, in logarithms
_LEAST_FALL = 1e-3  # nats a datum: an alternation that gains less has ended
_TOLERANCE = 1e-4  # nats a datum that further iterations are expected to gain
_MOST_ITERATIONS, _MOST_MEASURED = 100, 5  # of the last search; of them with measured curvature
_NEIGHBORS = (32, 64, 128, 256)  # among which the number for predictions is chosen
_JUDGED, _FEWEST_JUDGED = 800, 200  # rows on which it is; of unseen ones, or others are taken, too
_AFFORDABLE = 128  # neighbours beyond which they are fewer
_LOOKED_AT = 10_000  # rows among which those with the x of others are found
_WORTH = 0.01  # nats a datum that twice as many neighbours, or updates, must gain
_FACTORS = (-4.0, 2.0)  # of the kernel's variance for predictions, in logarithms
_ROUGHLY = {"xatol": 0.02}  # how these are searched
_FARTHEST = 1e4  # lengthscales beyond which a column does not matter, and signals beyond the data's
_NO_NOISE = 1e-6  # in standard deviations of y
_FEW_VALUES = 0.1  # distinct values of y for each row, below which y counts as rounded

_LITTLE_TO_GAIN = "the expected further gain is below the tolerance"
_NO_STEP_GAINS = "no step improves the objective, though a gain was expected"
_ITERATIONS_USED = "the limit of iterations was reached"
_NO_CURVATURE = "the objective is not finite beside where the search ended"
_NOTHING_TO_FIT = "no parameter is trainable"


class NearestFit(NamedTuple):
    """The result of :func:`~gpflow_aaci.fit` for an ``AugmentedNNGP``; ``print`` shows it."""

    #: Whether ``expected_gain`` is below ``tolerance``, on the rows and neighbours at the end.
    converged: bool
    #: Why the fit ended.
    reason: str
    #: The mean leave-one-out log density of the rows of the objective [nats a datum].
    log_density: float
    #: The same for rows that the fit has not seen, and its standard error; None if there are none.
    unseen: float | None
    unseen_error: float | None
    #: What further iterations are expected to gain [nats a datum]; None if it is not known.
    expected_gain: float | None
    #: The fit converges when ``expected_gain`` is below this [nats a datum].
    tolerance: float
    #: The number of evaluations of the objective.
    evaluations: int
    #: The number of rows of the objective, and of all rows.
    rows: int
    num_data: int
    #: The numbers of neighbours and of closed-form updates that predictions use from now on.
    num_neighbors: int
    num_steps: int
    #: The factor by which the kernel's variance was changed at the end, for these neighbours.
    variance_factor: float
    #: The mean log density of rows whose x occurs in other rows, too, given these; None if none of
    #: 10,000 random rows is like that.
    repeated: float | None
    #: Seconds spent on compiling, and all other seconds.
    tracing_seconds: float
    fitting_seconds: float
    #: A row for each iteration: seconds, evaluations, rows, objective [nats a datum].
    history: "pd.DataFrame"
    #: Why the fit may be worse than it could be, a sentence for each reason.
    warnings: tuple[str, ...]

    def __str__(self) -> str:
        verdict = "converged" if self.converged else "has not converged"
        lines = [
            f"fit of nearest neighbours {verdict} after {self.fitting_seconds:.1f} s and "
            f"{self.tracing_seconds:.1f} s of compiling: {self.reason}."
        ]
        if self.expected_gain is not None:
            lines.append(
                f"Further iterations are expected to gain {self.expected_gain:.1g} nats a datum; "
                f"the tolerance is {self.tolerance:.1g}."
            )
        lines.append(
            f"Mean leave-one-out log density of {self.rows:,} rows {self.log_density:.4f} (a "
            "predictive density, not a bound such as the ELBO)."
        )
        if self.unseen is not None:
            lines.append(
                f"Of other rows, which the fit has not seen: {self.unseen:.4f}, standard error "
                f"{self.unseen_error:.2g}. Predictions use {self.num_neighbors} neighbours and "
                f"{self.num_steps} updates."
            )
        if self.variance_factor != 1.0:
            lines.append(
                f"The kernel's variance was multiplied by {self.variance_factor:.3g} for that many "
                "neighbours."
            )
        if self.repeated is not None:
            lines.append(
                "Rows with the same x were left out together. Given the others of the same x, the "
                f"density of such rows is {self.repeated:.4f}."
            )
        return "\n".join([*lines, *self.warnings])


def fit_nearest(
    model: AugmentedNNGP, tolerance: float | None = None, seed: int = 0, progress: bool = True
) -> NearestFit:
    """
    Fit the hyperparameters, the metric and the numbers for predictions of ``model``.

    :param tolerance: in nats a datum. Default: 1e-4.
    """
    began, rows = time.perf_counter(), model.frozen
    try:
        with (
            undone_on_failure(model.variables),
            progress_bar(progress and model.stored.is_chief, unit="evaluation") as bar,
        ):
            return _Fit(model, tolerance or _TOLERANCE, seed, bar, began).run()
    except BaseException:
        model.freeze(*rows)
        raise


class _Objective:
    """The mean leave-one-out log density of some rows, plus the log prior a datum, of x."""

    def __init__(self, model: AugmentedNNGP) -> None:
        self.model = model
        local = model.local(model.num_steps)
        self.variables = list(local.trainable_variables)
        self.coordinates = Coordinates(model.parameters, self.variables)
        self.compiled = Compiled(local, self.variables)
        X, Y = model.data
        widths = X.shape[-1], Y.shape[-1]
        ranks = (
            [None, 1, widths[0]],
            [None, widths[1]],
            *([None, None, width] for width in widths),
        )
        self._function = self.compiled.function(
            _density_and_slopes, signature=[tf.TensorSpec(rank, X.dtype) for rank in ranks]
        )
        self._has_prior = any(p.prior is not None for p in model.trainable_parameters)
        self.bounds = _Bounds(model, self.coordinates)
        self.evaluations = 0
        self.chunks: list[tuple[tf.Tensor, ...]] = []
        self.num_rows = 0

    def of_rows(self, rows: AnyNDArray) -> None:
        """Take these rows, and their neighbours in the model's metric."""
        self.model.refresh_neighbors(rows)
        self.take(*self.model.frozen)

    def take(self, rows: AnyNDArray, near: AnyNDArray) -> None:
        step = rows_at_once(near.shape[1], self.model.num_latent_gps)
        pieces = [slice(start, start + step) for start in range(0, len(rows), step)]
        self.chunks = [self.model.gathered(rows[piece], near[piece]) for piece in pieces]
        self.num_rows = len(rows)

    def evaluate(
        self, rows: Any, x: AnyNDArray, q: Any, *, wanted: float = -np.inf
    ) -> tuple[Point, Any]:
        """As ``inference.objective`` has it, for a model without q; ``rows`` are those taken."""
        return self.at(x), q

    def at(self, x: AnyNDArray) -> Point:
        """The objective at the nearest x within the bounds."""
        self.evaluations += 1
        low, high = self.bounds.low, self.bounds.high
        x = self.bounds.within(x)
        self.coordinates.unpack(x)
        total, slopes = 0.0, np.zeros(self.coordinates.size)
        for chunk in self.chunks:
            value, parts = self._function(*chunk)
            total += float(value)
            slopes = slopes + _flat(parts)
        value, slopes = total / self.num_rows, slopes / self.num_rows
        prior, in_variables = self.prior()
        value, slopes = value + prior, slopes + in_variables
        return Point(x, value, inwards(x, self.coordinates.gradient(x, slopes), low, high))

    def prior(self) -> tuple[float, AnyNDArray]:
        """The log prior a datum, and its slopes, at the model's parameters."""
        if not self._has_prior:
            return 0.0, np.zeros(self.coordinates.size)
        with tf.GradientTape() as tape:
            prior = self.model.log_prior_density() / float(self.model.num_data)
        slopes = tape.gradient(prior, self.variables, unconnected_gradients="zero")
        return float(prior), _flat(slopes)


class _Bounds:
    """How far each coordinate may go, and what it means that it is there."""

    def __init__(self, model: AugmentedNNGP, coordinates: Coordinates) -> None:
        y = model.likelihood.response(model.stored.some[1])
        self._coordinates = coordinates
        self._typical = typical_lengthscales(model.kernel, model.spread())
        # f has the unit of y if y is f plus noise; of other likelihoods it may have another.
        base = without_wrappers(model.likelihood)
        is_sum = isinstance(base, AdditiveNoise) and not base.is_interval
        sd = float(np.std(y[np.isfinite(y)])) or 1.0
        unit = sd if is_sum else max(sd, 1.0)
        self._resolution = resolution(y) if is_sum else 0.0
        noise = np.log(max(self._resolution / np.sqrt(12.0), _NO_NOISE * unit))
        start, far = coordinates.pack(), np.log(_FARTHEST)
        free = np.where(coordinates.in_logarithms, 1.5 * far, np.inf)
        self.low, self.high = start - free, start + free
        of_noise = [(p, power * noise) for p, power in noise_parameters(model.likelihood) if is_sum]
        self._is_noise = self._set(self.low, of_noise)
        of_signal = [(p, np.log(unit**2) + far) for p, _ in signal_parameters(model.kernel, 2.0)]
        self._is_signal = self._set(self.high, of_signal)
        self._set(self.low, [(p, value - far) for p, value in self._typical])
        self._set(self.high, [(p, value + far) for p, value in self._typical])

    def within(self, x: AnyNDArray) -> AnyNDArray:
        """The nearest x within the bounds."""
        return np.clip(x, self.low, self.high)

    def at_typical_lengthscales(self, x: AnyNDArray) -> AnyNDArray:
        """x with all lengthscales at √D·sd(X)."""
        x = x.copy()
        self._set(x, self._typical)
        return x

    def _set(self, x: AnyNDArray, values: Sequence[tuple[Any, Any]]) -> AnyNDArray:
        """Set the logarithms of some parameters in x; return which coordinates these are."""
        which = np.zeros(len(x), bool)
        for parameter, value in values:
            if np.any(at := self._coordinates.where(parameter)):
                x[at] = value
                which |= at
        return which

    def met(self, x: AnyNDArray) -> Iterator[str]:
        """A sentence for each kind of bound at which x is."""
        if np.any(self._is_noise & (x <= self.low)):
            yield (
                f"y is rounded to {self._resolution:.3g}, and the scale of the noise ended at this "
                "over √12: below it the density of y grows without limit and means nothing. "
                "Interval, or Ordinal for a few grades, is a likelihood of rounded y."
                if self._resolution
                else "The scale of the noise ended at its lower bound, a millionth of the standard "
                "deviation of y: the data seem to have no noise."
            )
        if np.any(self._is_signal & (x >= self.high)):
            yield (
                f"A variance of the kernel ended at its upper bound, {_FARTHEST:g} times the "
                "variance of y, or of 1: the data do not tell how large f is."
            )


def resolution(y: AnyNDArray) -> float:
    """The least difference of two values of y, if y has few values for its number of rows; or 0."""
    values = np.unique(y[np.isfinite(y)])
    return float(np.diff(values).min()) if 1 < len(values) < _FEW_VALUES * y.size else 0.0


class _Fit:
    """The fit of one model."""

    def __init__(
        self, model: AugmentedNNGP, tolerance: float, seed: int, bar: Any, began: float
    ) -> None:
        self._model, self._tolerance, self._bar, self._began = model, tolerance, bar, began
        self._objective = _Objective(model)
        self._order = np.random.default_rng(seed).permutation(model.num_data)
        self._history: list[tuple[float, int, int, float]] = []

    def run(self) -> NearestFit:
        model, objective = self._model, self._objective
        wanted = _ROWS_OF_WIDE_DATA if model.input_dim > _WIDE else _ROWS
        num_rows = min(wanted, model.num_data)
        point = self._begin(self._order[: -(-num_rows // 2)])
        for more in range(_MOST_ROUNDS + 1):
            point, curvature = self._move_metric(point)
            objective.of_rows(self._order[:num_rows])
            point = objective.at(point.x)
            point, expected, reason = self._climb(point, curvature)
            objective.coordinates.unpack(point.x)
            unseen = self._unseen(num_rows)
            if unseen is None or more == _MOST_ROUNDS or 2 * num_rows > model.num_data:
                break
            own = point.value - objective.prior()[0]
            if unseen.mean() >= own - _ALLOWED - _ALLOWED_ERRORS * _error(unseen):
                break
            num_rows = min(_MORE_ROWS * num_rows, model.num_data)
            objective.of_rows(self._order[: -(-num_rows // 2)])
            point = objective.at(point.x)
        return self._result(point, expected, reason, num_rows)

    # ---- where to begin ----

    def _begin(self, rows: AnyNDArray) -> Point:
        """The better of two starts: the model's own, and lengthscales of √D·sd(X)."""
        model, objective = self._model, self._objective
        stretch = Stretch(len(rows), True, self._tolerance)
        own = objective.coordinates.pack()
        starts = [(own, model.metric)]
        typical = objective.bounds.at_typical_lengthscales(own)
        if not np.allclose(typical, own, atol=_ALIKE):
            objective.coordinates.unpack(typical)
            lengthscales = model.lengthscales()
            is_fixed = callable(model.metric) or lengthscales is None
            starts.append((typical, model.metric if is_fixed else lengthscales))
        ends = []
        for x, metric in starts:
            model.metric = metric
            objective.of_rows(rows)
            point, _ = in_other_units(objective, stretch, objective.at(x), None)
            self._record(point)
            ends.append(point if np.isfinite(point.value) else point._replace(value=-np.inf))
        best = max(range(len(ends)), key=lambda k: ends[k].value)
        if not np.isfinite(ends[best].value):
            raise ValueError(
                "the leave-one-out log density must be finite at the start: check the units of the "
                f"kernel's variance and of the likelihood's parameters. Found: {ends[0].value}."
            )
        model.metric = starts[best][1]
        objective.of_rows(rows)
        return ends[best]

    # ---- the metric ----

    def _move_metric(self, point: Point) -> tuple[Point, Curvature]:
        """
        Alternate between the hyperparameters and the metric, each moved only where it gains.

        Neighbours that followed the lengthscales after each search would be no ascent: a search
        at frozen neighbours exploits them.
        """
        objective, bounds = self._objective, self._objective.bounds
        curvature = Curvature.unknown(len(point.x))
        for _ in range(_MOVES):
            before = point.value
            for _ in range(_ITERATIONS if objective.coordinates.size else 0):
                ascent = ascend(objective.at, point, curvature, bounds.low, bounds.high)
                gain, curvature = ascent.point.value - point.value, ascent.curvature
                point = ascent.point
                self._record(point)
                if gain < self._tolerance:
                    break
            moved = self._moved(point)
            point = moved or point
            if moved is None and point.value - before < _LEAST_FALL:
                break
        return point, curvature

    def _moved(self, point: Point) -> Point | None:
        """The objective at the first metric, on the way to the lengthscales, that raises it."""
        objective, model = self._objective, self._model
        objective.coordinates.unpack(point.x)
        old, lengthscales = model.metric, model.lengthscales()
        if callable(old) or lengthscales is None or not objective.coordinates.size:
            return None
        rows, near = model.frozen
        for share in _SHARES:
            model.metric = np.exp((1.0 - share) * np.log(old) + share * np.log(lengthscales))
            objective.of_rows(rows)
            there = objective.at(point.x)
            if there.value > point.value:
                self._record(there)
                return there
        model.metric = old
        model.freeze(rows, near)
        objective.take(rows, near)
        return None

    # ---- the last search ----

    def _climb(self, point: Point, curvature: Curvature) -> tuple[Point, float | None, str]:
        """The maximum on frozen rows and neighbours, the gain still to be expected, and why."""
        objective, tolerance = self._objective, self._tolerance
        size, bounds = objective.coordinates.size, objective.bounds
        if not size:
            return point, 0.0, _NOTHING_TO_FIT
        can_measure, num_measured, is_trusted = size <= SETTINGS.most_coordinates, 0, False
        reason = _ITERATIONS_USED
        for _ in range(_MOST_ITERATIONS):
            expected = curvature.step(point.gradient)[1]
            if expected < tolerance and (is_trusted or not can_measure):
                return point, expected, _LITTLE_TO_GAIN
            if expected >= tolerance:
                ascent = ascend(objective.at, point, curvature, bounds.low, bounds.high)
                gain = ascent.point.value - point.value
                is_stuck = ascent.point is point
                point, curvature = ascent.point, ascent.curvature
                self._record(point)
                # A gain far from the foretold one: the curvature is not what it was measured to be.
                is_trusted = is_trusted and not is_stuck and gain <= 1.5 * ascent.expected
                if not is_stuck and (gain >= tolerance or is_trusted):
                    continue
                if not can_measure or (is_stuck and num_measured == _MOST_MEASURED):
                    reason = _NO_STEP_GAINS if is_stuck else reason
                    break
            if num_measured == _MOST_MEASURED:
                break
            found = measured(objective.at, point, np.full(size, SETTINGS.difference))
            if found is None:
                return point, None, _NO_CURVATURE
            curvature, is_trusted, num_measured = found, True, num_measured + 1
        return point, curvature.step(point.gradient)[1] if curvature.is_known else None, reason

    # ---- how far it holds ----

    def _unseen(self, num_rows: int) -> AnyNDArray | None:
        """The densities of rows that are not among the first ``num_rows``."""
        model, rows = self._model, self._order[num_rows : num_rows + _ROWS]
        if len(rows) < 2:
            return None
        return model.leave_one_out(rows, model.num_neighbors, model.num_steps)

    def _for_predictions(self, x: AnyNDArray, rows: AnyNDArray) -> tuple[AnyNDArray, float]:
        """
        Choose the numbers of updates and neighbours for predictions by leave-one-out.

        Each doubling must be worth its cost, judged on the same rows; fewer rows, where they are
        dear.

        :return: the densities of the rows, or of the first of them, and the factor by which the
            kernel's variance has changed.
        """
        model = self._model
        numbers = [k for k in _NEIGHBORS if k < model.num_data] or [model.num_neighbors]
        near = model.neighbors_of_rows(rows, numbers[-1], True)
        now = _LeftOut(model, rows, near, numbers[0], model.num_steps)
        if now.steps > 1 and now.gain_over(less := now.with_steps(now.steps // 2)) < _WORTH / 10.0:
            now = less
        elif (more := now.with_steps(2 * now.steps)).gain_over(now) >= _WORTH:
            now = more
        for k in numbers[1:]:
            number = len(rows) * _AFFORDABLE // max(k, _AFFORDABLE)
            then = _LeftOut(model, rows[:number], near[:number], k, now.steps)
            if then.gain_over(now) < _WORTH:
                break
            now = then
        model.prediction_neighbors, model.prediction_steps = now.k, now.steps
        return self._scale_of_prior(x, now)

    def _scale_of_prior(self, x: AnyNDArray, now: "_LeftOut") -> tuple[AnyNDArray, float]:
        """
        Set the kernel's variance to where predictions have the highest density.

        The more neighbours, the less they leave of it: where the kernel is rougher than f, the
        variance that is right for the search's neighbours makes intervals of many too wide. The
        log of the variance of f, and its mean, are straight lines in the logarithm of the factor,
        nearly; so that two factors tell the best.

        :return: the densities, and the factor by which the variance has changed.
        """
        model, objective = self._model, self._objective
        direction = objective.coordinates.of_logarithms(signal_parameters(model.kernel, 1.0))

        def best(to_mean: Any, to_variance: Any) -> float:
            def loss(at: float) -> float:
                moments = now.mean + at * to_mean, now.variance * to_variance**at
                return -float(now.log_density(*moments).mean())

            return float(scipy.optimize.minimize_scalar(loss, bounds=_FACTORS, options=_ROUGHLY).x)

        if direction is None or not np.any(direction) or now.k <= model.num_neighbors:
            return now.densities, 1.0
        along = direction

        def moved(at: float) -> _LeftOut:
            objective.coordinates.unpack(objective.bounds.within(x + at * along))
            return now.with_steps(now.steps)

        if abs(first := best(0.0, np.e)) < _ROUGHLY["xatol"]:
            return now.densities, 1.0
        there = moved(first)
        of_variance = (there.variance / now.variance) ** (1.0 / first)
        then = moved(last := best((there.mean - now.mean) / first, of_variance))
        if then.gain_over(now) < _WORTH:
            objective.coordinates.unpack(x)
            return now.densities, 1.0
        return then.densities, float(np.exp(last))

    def _result(
        self, point: Point, expected: float | None, reason: str, num_rows: int
    ) -> NearestFit:
        import pandas as pd  # here, as a fit does without it

        model, objective = self._model, self._objective
        objective.coordinates.unpack(point.x)
        others = self._order[num_rows:][:_JUDGED]
        is_unseen = len(others) >= _FEWEST_JUDGED
        judged = others if is_unseen else self._order[-_JUDGED:]
        unseen, factor = self._for_predictions(point.x, judged)
        k, steps = model.prediction_neighbors, model.prediction_steps
        some = self._order[:_LOOKED_AT]
        X, _ = model.stored.of(some)
        repeats = some[model.stored.copies(location(X.numpy())) > 1][:_JUDGED]
        repeated = None
        if len(repeats):
            repeated = model.leave_one_out(repeats, k, steps, leave_out_repeats=False).mean()
        seconds = time.perf_counter() - self._began
        tracing = objective.compiled.tracing_seconds
        columns = ["seconds", "evaluations", "rows", "objective"]
        said = [
            *objective.bounds.met(point.x),
            *advice(model, model.stored.some[0], model.column_names),
        ]
        return NearestFit(
            converged=reason in (_LITTLE_TO_GAIN, _NOTHING_TO_FIT),
            reason=reason,
            log_density=point.value - objective.prior()[0],
            unseen=float(unseen.mean()) if is_unseen else None,
            unseen_error=_error(unseen) if is_unseen else None,
            expected_gain=expected if expected is not None and np.isfinite(expected) else None,
            tolerance=self._tolerance,
            evaluations=objective.evaluations,
            rows=num_rows,
            num_data=model.num_data,
            num_neighbors=k,
            num_steps=steps,
            variance_factor=factor,
            repeated=None if repeated is None else float(repeated),
            tracing_seconds=tracing,
            fitting_seconds=seconds - tracing,
            history=pd.DataFrame(self._history, columns=columns),
            warnings=tuple(said),
        )

    def _record(self, point: Point) -> None:
        objective = self._objective
        seconds = time.perf_counter() - self._began
        self._history.append((seconds, objective.evaluations, objective.num_rows, point.value))
        self._bar.set_postfix(density=f"{point.value:.5g}", refresh=False)
        self._bar.update(objective.evaluations - self._bar.n)


class _LeftOut:
    """Some rows, each predicted from the first k of its nearest others [n, ≥ k]."""

    def __init__(
        self, model: AugmentedNNGP, rows: AnyNDArray, near: AnyNDArray, k: int, steps: int
    ) -> None:
        self.k, self.steps, self._model = k, steps, model
        self.rows, self._near = rows, near
        self._X, self._Y = model.stored.of(self.rows)
        self.mean, self.variance = model.given_neighbors(self._X, self._near[:, :k], steps)
        self.densities = self.log_density(self.mean, self.variance)

    def log_density(self, mean: tf.Tensor, variance: tf.Tensor) -> AnyNDArray:
        """log p(y_i) [n], for mean and variance [n, L] of f."""
        likelihood = self._model.likelihood
        return likelihood.predict_log_density(self._X, mean, variance, self._Y).numpy()

    def with_steps(self, steps: int) -> "_LeftOut":
        """The same at the model's present parameters, with so many updates."""
        return _LeftOut(self._model, self.rows, self._near, self.k, steps)

    def gain_over(self, other: "_LeftOut") -> float:
        """Its mean density minus that of the other, on the rows of both."""
        number = min(len(self.rows), len(other.rows))
        return float(np.mean(self.densities[:number] - other.densities[:number]))


def _flat(parts: Sequence[Any]) -> AnyNDArray:
    return np.concatenate([np.zeros(0), *map(np.ravel, parts)])


def _error(values: AnyNDArray) -> float:
    """The standard error of the mean."""
    return float(values.std(ddof=1) / np.sqrt(len(values)))


def _density_and_slopes(local: LocalGP, variables: Sequence[tf.Variable]) -> Callable[..., Any]:
    def of_rows(*chunk: tf.Tensor) -> tuple[tf.Tensor, list[tf.Tensor]]:
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(variables)
            with reading_once(local):
                total = tf.reduce_sum(leave_one_out(local, *chunk))
        return total, tape.gradient(total, variables, unconnected_gradients="zero")

    return of_rows
