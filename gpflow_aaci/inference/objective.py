"""The objective of a fit: the profile on more and more rows, in the coordinates of a search."""

from typing import NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.config import default_float

from ..algebra.gaussian import Gaussian
from ..data import Data
from ..models import AugmentedModel, AugmentedVGP, hyperparameters
from .coordinates import Coordinates
from .profile import Profile
from .quasi_newton import Point
from .settings import SETTINGS


class Stretch(NamedTuple):
    """Iterations on the same rows."""

    rows: int
    is_last: bool
    tolerance: float  # nats per datum that the last iterations must gain together


class Objective:
    """The profile on some of the rows, as a function of the coordinates of the hyperparameters."""

    def __init__(self, model: AugmentedModel, data: Data, seed: int) -> None:
        self.model, self.data, self._seed = model, data, seed
        self.variables = hyperparameters(model)
        self.coordinates = Coordinates(model.parameters, self.variables)
        self.evaluations = 0
        self._exact = Profile(model, self.variables)
        is_fast = data.num_rows >= SETTINGS.float32_rows and default_float() == tf.float64
        self._fast = Profile(model, self.variables, tf.float32) if is_fast else self._exact
        self._in_use: tuple[int, Data] = data.num_rows, data

    @property
    def tracing_seconds(self) -> float:
        return sum(profile.tracing_seconds for profile in {self._exact, self._fast})

    def stretches(self, tolerance: float) -> list[Stretch]:
        """
        The stretches of a fit, the last of which is on all rows.

        ``AugmentedVGP`` has no other stretch, as its inducing points are its data. Many
        hyperparameters would overfit few rows, so that subsets grow with their number.
        """
        found = []
        num_rows = self.data.num_rows
        rows = max(SETTINGS.first_subset, SETTINGS.rows_per_coordinate * self.coordinates.size)
        largest = min(num_rows / 2, SETTINGS.largest_subset)
        while rows < largest and not isinstance(self.model, AugmentedVGP):
            found.append(Stretch(rows, False, max(tolerance, SETTINGS.subset_tolerance)))
            rows *= SETTINGS.growth
        return [*found, Stretch(num_rows, True, tolerance)]

    def trace(self) -> None:
        """Compile what the first evaluation needs."""
        self._fast.trace(self.data)

    def evaluate(
        self,
        stretch: Stretch,
        x: AnyNDArray,
        q: Gaussian,
        precision: float = 1.0,
        max_steps: int = 20,
    ) -> tuple[Point, Gaussian]:
        """The profile at x on the rows of the stretch and its optimal q, found from ``q``."""
        self.evaluations += 1
        self.coordinates.unpack(x)
        if self._in_use[0] != stretch.rows:
            is_all = stretch.is_last
            rows = self.data if is_all else self.data.subset(stretch.rows, self._seed)
            self._in_use = stretch.rows, rows
        try:
            tolerance = precision * SETTINGS.inner_tolerance * float(self.data.num_data)
            profile = self._fast.evaluate(self._in_use[1], q, tolerance, max_steps)
        except tf.errors.InvalidArgumentError:  # such as a Cholesky, on some devices
            return Point(x, np.nan, np.full_like(x, np.nan)), q
        gradient = self.coordinates.gradient(x, profile.gradient)
        return Point(x, profile.objective, gradient), profile.q

    def value(self, q: Gaussian) -> float:
        """The objective at the model's hyperparameters and q, on all rows and in full precision."""
        try:
            if self._fast is self._exact:  # which has been compiled, or will be
                return self._exact.evaluate(self.data, q, 0.0, 0).objective
            elbo = self._exact.elbo(self.data, q)
        except tf.errors.InvalidArgumentError:
            return -np.inf
        return elbo + float(self.model.log_prior_density())
