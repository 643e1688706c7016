"""The objective of ``fit_collapsed``: the profile of the ELBO, on a subset or on all rows."""

from typing import Literal, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.config import default_float

from ..algebra.gaussian import Gaussian
from ..data import Data
from ..kernels import levels_of
from ..models import AugmentedModel, AugmentedVGP, hyperparameters
from ..validation import unless_cholesky_fails
from .coordinates import Coordinates
from .profile import Profile
from .quasi_newton import DENSE, Curvature, Point, inwards, measured
from .settings import SETTINGS

RowsUsed = Literal["enough", "all"]


class Stretch(NamedTuple):
    """Iterations on the same rows."""

    rows: int
    is_last: bool
    tolerance: float  # the stretch ends when the expected gain [nats] is below it


class Objective:
    """The profile on some of the rows, as a function of the coordinates of the hyperparameters."""

    def __init__(self, model: AugmentedModel, data: Data, seed: int) -> None:
        self.model, self.data, self._seed = model, data, seed
        self.variables = hyperparameters(model)
        self.coordinates = Coordinates(model.parameters, self.variables, _codes(model))
        #: No coordinate is moved out of these, [n].
        self.lowest = np.full(self.coordinates.size, -np.inf)
        self.highest = np.full(self.coordinates.size, np.inf)
        self.tolerance = np.inf  # of the whole fit [nats]; ``stretches`` sets it
        self.evaluations = 0
        self._exact = Profile(model, self.variables)
        is_fast = data.num_rows >= SETTINGS.float32_rows and default_float() == tf.float64
        self._fast = Profile(model, self.variables, tf.float32) if is_fast else self._exact
        self._subsets: dict[int, Data] = {}
        self._largest_subset = 0
        self._unseen: dict[int, Data] = {}
        # If nothing but q is trainable, one search for q is the whole fit.
        is_alone = not self.coordinates.size
        self._inner_tolerance = SETTINGS.inner_tolerance * float(data.num_data)
        self._inner_tolerance *= 1e-3 if is_alone else 1.0
        self._most_steps = 100 if is_alone else 20

    @property
    def _least_rows(self) -> int:
        """With hardly more than one row of each group no data tell its effect from noise."""
        if self.model.num_before_groups is None:
            return 0
        return SETTINGS.rows_per_effect * int(self.model.q_mu.shape[0])

    @property
    def tracing_seconds(self) -> float:
        return sum(profile.tracing_seconds for profile in {self._exact, self._fast})

    def stretches(self, tolerance: float | None, rows_used: RowsUsed = "all") -> list[Stretch]:
        """
        The stretches of a fit; the last one uses all rows.

        ``AugmentedVGP`` has this stretch only, as its inducing points are its data. Many
        hyperparameters would overfit few rows, so the more there are, the larger the subsets.

        With ``rows_used="enough"`` the last but one has the most rows that are copied into memory.

        The optimum on n of N rows is worse, on all rows, than their own optimum by about half a
        nat per hyperparameter, times N/n. The search on a subset need not be much more accurate.

        :param tolerance: the fit ends when the expected gain [nats] is below it; None for the
            default.
        """
        if tolerance is None:
            is_all = rows_used == "all"
            of_datum = SETTINGS.tolerance_per_datum if is_all else SETTINGS.worth
            tolerance = max(SETTINGS.tolerance, of_datum * float(self.data.num_data))
        self.tolerance = tolerance
        # A line search must see gains that are smaller than the tolerance.
        self._inner_tolerance = min(self._inner_tolerance, SETTINGS.inner_share * tolerance)
        num_rows, size = self.data.num_rows, self.coordinates.size
        rows = max(SETTINGS.first_subset, SETTINGS.rows_per_coordinate * size)
        rows = max(rows, self._least_rows)
        largest = min(num_rows / 2, SETTINGS.largest_subset)
        sizes = []
        while rows < largest and not isinstance(self.model, AugmentedVGP):
            sizes.append(rows)
            rows *= SETTINGS.growth
        if rows_used == "enough" and sizes and largest == SETTINGS.largest_subset:
            sizes.append(SETTINGS.largest_subset)  # rather than at once many more rows
        self._largest_subset = max(sizes, default=0)
        stretches = []
        for rows in sizes:
            missed = 0.5 * size * float(self.data.num_data) / rows
            subset_tolerance = max(tolerance, SETTINGS.subset_share * missed)
            stretches.append(Stretch(rows, False, subset_tolerance))
        return [*stretches, Stretch(num_rows, True, tolerance)]

    def trace(self, first: Stretch) -> None:
        """Compile what the first evaluation needs."""
        self._fast.trace(self.rows_of(first.rows))

    def rows_of(self, rows: int) -> Data:
        """All rows, or a random subset of ``rows`` rows."""
        if rows >= self.data.num_rows:
            return self.data
        if rows not in self._subsets:
            self._subsets[rows] = self.data.subset(rows, self._seed)
        return self._subsets[rows]

    def unseen(self, most: int | None = None) -> Data:
        """At most so many rows that no subset has; ``unseen_rows`` unless told."""
        most = most or SETTINGS.unseen_rows
        if most not in self._unseen:
            first = self._largest_subset
            last = min(first + most, self.data.num_rows)
            self._unseen[most] = self.data.subset(last, self._seed, skip=first)
        return self._unseen[most]

    def density_ahead(self, rows: int, x: AnyNDArray, q: Gaussian) -> float:
        """The mean log p(y) of rows that no subset has, of no more than ``rows``."""
        most = min(SETTINGS.level_rows, rows)
        unseen, densities = self.unseen(most), self.log_densities(x, q, most)
        (total,) = unseen.total([tf.reduce_sum(densities)])
        return float(total / unseen.num_data)

    def evaluate(
        self,
        rows: int,
        x: AnyNDArray,
        q: Gaussian,
        precision: float = 1.0,
        max_steps: int | None = None,
        *,
        wanted: float = -np.inf,
    ) -> tuple[Point, Gaussian]:
        """
        The profile at x on ``rows`` rows, and the optimal q; its search starts at ``q``.

        :param wanted: the search for q is given up where it cannot reach this value. Below it the
            gradient may be NaN.
        """
        self.evaluations += 1
        x = np.clip(x, self.lowest, self.highest)
        self.coordinates.unpack(x)
        data, least_gain = self.rows_of(rows), precision * self._inner_tolerance
        most = self._most_steps if max_steps is None else max_steps
        profile = unless_cholesky_fails(
            lambda: self._fast.evaluate(data, q, least_gain, most, wanted), None
        )
        if profile is None:
            return Point(x, np.nan, np.full_like(x, np.nan)), q
        gradient = self.coordinates.gradient(x, profile.gradient)
        gradient = inwards(x, gradient, self.lowest, self.highest)
        return Point(x, profile.objective, gradient), profile.q

    def log_densities(self, x: AnyNDArray, q: Gaussian, most: int | None = None) -> tf.Tensor:
        """log p(y) of every row of :meth:`unseen` [N] at x and q, f integrated out."""
        self.coordinates.unpack(x)
        return self._fast.log_densities(self.unseen(most), q)

    def curvature(self, rows: int, at: Point, q: Gaussian, known: Curvature) -> Curvature | None:
        """
        The profile's curvature at a point, by differences on some of the rows.

        :param q: the optimal q there, on ``rows`` rows.
        :param known: the previous estimate. It determines the lengths of the differences in
            coordinates that are not logarithms.
        :return: None if it cannot be measured.
        """
        few = min(rows, max(SETTINGS.curvature_rows, self._least_rows))
        point, q = self.evaluate(few, at.x, q, 1e-3)
        if not np.all(np.isfinite(point.gradient)):
            return None
        spread = np.ones(len(at.x))
        if len(known.matrix):
            spread = np.sqrt(np.maximum(np.diag(known.matrix), 1e-12))
        spread = np.where(self.coordinates.in_logarithms, 1.0, np.maximum(spread, np.abs(at.x)))
        lengths = SETTINGS.difference * spread
        return measured(lambda x: self.evaluate(few, x, q)[0], point, lengths)

    def is_measurable(self, rows: int, iterations: int = 0) -> bool:
        """
        Whether differences along every coordinate are cheap enough.

        :param iterations: on these rows so far. Many of them cost more than many differences.
        """
        M, L = tf.shape(self.model.q_mu).numpy()  # its static shape may be unknown
        of_row = M * L + SETTINGS.dear_row_work * self.model.likelihood.row_cost
        size = self.coordinates.size
        if self.model.num_before_groups is not None:
            # What an evaluation costs hardly depends on the rows, and waiting takes so many.
            return size <= SETTINGS.last_iterations
        work = size * min(rows, SETTINGS.curvature_rows) * of_row
        is_small = size <= SETTINGS.most_coordinates
        is_small |= size <= DENSE and iterations >= SETTINGS.many_iterations * size
        return bool(is_small and work <= SETTINGS.curvature_work)

    def value(self, q: Gaussian, rows: int | None = None) -> float:
        """
        The objective at the model's hyperparameters and q, in full precision.

        :param rows: the number of rows in use. Default: all.
        """
        data = self.data if rows is None else self.rows_of(rows)

        def value() -> float:
            if self._fast is self._exact:  # it is compiled, or will be
                return self._exact.evaluate(data, q, 0.0, 0).objective
            return self._exact.elbo(data, q) + float(self.model.log_prior_density())

        return unless_cholesky_fails(value, -np.inf)


def _codes(model: AugmentedModel) -> list[tuple[tf.Variable, list[int]]]:
    """The variable of each trainable Z, and its columns that hold levels instead of numbers."""
    levels = levels_of(model.kernel)
    return [
        (Z.unconstrained_variable, [column for column in levels if column < Z.shape[1]])
        for path, Z in gpflow.utilities.parameter_dict(model).items()
        if levels and path.startswith(".inducing_variable") and path.endswith(".Z") and Z.trainable
    ]
