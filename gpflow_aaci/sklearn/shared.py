"""What both estimators share: their parameters, the fit, and predictions in batches."""

import numbers
from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray, RegressionData
from gpflow.config import default_float
from gpflow.kernels import Kernel
from gpflow.likelihoods import Likelihood
from gpflow.mean_functions import MeanFunction
from sklearn.base import BaseEstimator
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from ..criticism.choose import choose
from ..inducing import kmeans_plusplus
from ..inference.collapsed import FitResult, fit_collapsed
from ..inference.fit import Fit, fit
from ..inference.minibatch_fit import fit_in_minibatches, is_for_minibatches
from ..inference.nearest_fit import NearestFit
from ..kernels import Categorical, levels_of
from ..levels import Levels, as_levels, holds_words
from ..likelihoods import Weighted, augmented
from ..models import AugmentedSVGP, AugmentedVGP
from ..nearest import AugmentedNNGP
from ..validation import check_one_of, of_column, shown

KERNELS: dict[str, Callable[..., Kernel]] = {
    "squared-exponential": gpflow.kernels.SquaredExponential,
    "rational-quadratic": gpflow.kernels.RationalQuadratic,
    "matern12": gpflow.kernels.Matern12,
    "matern32": gpflow.kernels.Matern32,
    "matern52": gpflow.kernels.Matern52,
}

_METHODS = ("sparse", "nearest", "full", "auto")
_MOST_ROWS_OF_FULL = 1_000  # up to which "auto" is "full"
_ROWS_AT_ONCE = 10_000  # a prediction processes so many rows at a time


class AugmentedGP(BaseEstimator):
    """A GP of this package behind scikit-learn's interface; the base of both estimators."""

    model_: AugmentedSVGP | AugmentedVGP | AugmentedNNGP
    fit_result_: Fit | FitResult | NearestFit
    levels_: Levels

    def __init__(
        self,
        *,
        kernel: str | Kernel = "squared-exponential",
        method: str = "sparse",
        num_inducing: int = 100,
        num_neighbors: int = 32,
        random_state: Any = None,
        progress: bool = False,
    ) -> None:
        """
        :param kernel: one of "squared-exponential", "rational-quadratic", "matern12", "matern32"
            and "matern52"; or a GPflow kernel.
        :param method: "sparse", inducing points; "nearest", nearest neighbours; "full", the GP
            itself; or "auto", which takes "full" up to 1,000 rows and beyond them what
            :func:`~gpflow_aaci.choose` finds to be better.
        :param num_inducing: M; if X has no more distinct rows, they are the inducing points.
        :param num_neighbors: k, of nearest neighbours during the fit.
        :param random_state: the seed for inducing points and subsets of rows: an integer, a
            ``RandomState``, or None for a new draw at every fit.
        :param progress: whether to show a progress bar.
        """
        self.kernel = kernel
        self.method = method
        self.num_inducing = num_inducing
        self.num_neighbors = num_neighbors
        self.random_state = random_state
        self.progress = progress

    def _fit(
        self,
        X: AnyNDArray,
        y: AnyNDArray,
        likelihood: Likelihood,
        unit: float,
        sample_weight: Any = None,
        mean_function: MeanFunction | None = None,
    ) -> RegressionData | None:
        """
        Make the model and fit it to X [N, D], y [N].

        :param likelihood: becomes the model's own.
        :param unit: a rough guess of the standard deviation of f.
        :param sample_weight: [N], how many times each datum counts. Default: once.
        :return: the data as the model has them, or None if it keeps them itself.
        """
        Y = y[:, None].astype(default_float())
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        scaler = StandardScaler().fit(X, sample_weight=sample_weight)
        coded = list(self.levels_)  # these numbers must stay as they are
        scaler.mean_[coded], scaler.scale_[coded] = 0.0, 1.0
        likelihood = augmented(likelihood)
        if sample_weight is not None:
            likelihood = Weighted(likelihood)
            Y = np.hstack([Y, sample_weight[:, None]])
        check_one_of("method", self.method, _METHODS)
        method = self.method
        if method == "auto" and len(X) <= _MOST_ROWS_OF_FULL:
            method = "full"
        data, kernel = (X, Y), _kernel(self.kernel, scaler.scale_, unit, self.levels_)
        how: dict[str, Any] = {"seed": seed, "progress": self.progress}
        options: dict[str, Any] = {
            "mean_function": mean_function,
            "num_latent_gps": likelihood.latent_dim or 1,
        }
        if method == "auto":
            options["num_inducing"] = self.num_inducing
            options["num_neighbors"] = self.num_neighbors
            choice = choose(data, kernel, likelihood, **options, **how)
            self.model_ = choice.model
            self.fit_result_ = choice.fits[choice.model is choice.nearest]
        elif method == "nearest":
            self.model_ = AugmentedNNGP(data, kernel, likelihood, self.num_neighbors, **options)
            self.fit_result_ = fit(self.model_, **how)
        elif method == "full":
            self.model_ = AugmentedVGP(data, kernel, likelihood, **options)
            self.fit_result_ = fit_collapsed(self.model_, **how)
        else:
            Z = _inducing_points(X, self.num_inducing, scaler, seed, kernel)
            model = AugmentedSVGP(kernel, likelihood, Z, num_data=len(X), **options)
            gpflow.set_trainable(model.inducing_variable, False)
            if is_for_minibatches(model, data):
                self.fit_result_, _ = fit_in_minibatches(model, data, **how)
            else:
                self.fit_result_ = fit_collapsed(model, data, **how)
            self.model_ = model
        return data if isinstance(self.model_, AugmentedSVGP) else None

    def _learn_levels(self, X: Any) -> Any:
        """
        Store the levels of the columns of a frame that are text or categories; return its numbers.

        :raises ValueError: for words that a kernel object does not know.
        """
        is_own = isinstance(self.kernel, Kernel)
        self.levels_ = levels_of(self.kernel) if is_own else {}
        if not is_own and hasattr(X, "iloc") and X.ndim == 2:
            columns = ((at, X.iloc[:, at]) for at in range(X.shape[1]))
            self.levels_ = {
                at: as_levels(column.astype("category"), f"column {X.columns[at]!r} of X")
                for at, column in columns
                if hasattr(column.dtype, "categories") or holds_words(column)
            }
        return self._coded(X)

    def _coded(self, X: Any) -> Any:
        """A frame with numbers in the place of words; anything else as it is."""
        if not hasattr(X, "iloc") or X.ndim != 2:
            return X
        coded = X.copy()
        for at, name in enumerate(X.columns):
            if holds_words(X.iloc[:, at]):
                name = f"column {name!r} of X"
                coded.isetitem(at, of_column(X.iloc[:, at], at, name, self.levels_))
        return coded

    def _inputs(self, X: Any) -> AnyNDArray:
        """
        Return X for predictions, [N, D], checked.

        :raises NotFittedError: before ``fit``.
        :raises ValueError: if X is not finite, or has different columns or levels than in ``fit``.
        """
        check_is_fitted(self)
        names = getattr(self, "feature_names_in_", None)
        if names is None or list(getattr(X, "columns", [])) == list(names):
            X = self._coded(X)  # otherwise scikit-learn says which columns differ
        return validate_data(self, X, reset=False, dtype=default_float())


def weighted_rows(
    sample_weight: Any, X: AnyNDArray, y: AnyNDArray
) -> tuple[AnyNDArray, AnyNDArray, AnyNDArray | None]:
    """
    X, y and the weights [N] of the rows with non-zero weight; weights are None if none are given.

    :raises ValueError: for weights that are negative, not finite, or not one for each row.
    """
    if sample_weight is None:
        return X, y, None
    weight = _check_sample_weight(sample_weight, X, dtype=default_float(), ensure_non_negative=True)
    counts = weight > 0.0
    return X[counts], y[counts], weight[counts]


def in_batches(predict: Callable[[AnyNDArray], Any], X: AnyNDArray) -> Any:
    """Apply ``predict`` to X [N, D], 10,000 rows at a time; return its array or arrays [N, ...]."""
    parts = [predict(X[first : first + _ROWS_AT_ONCE]) for first in range(0, len(X), _ROWS_AT_ONCE)]
    return tf.nest.map_structure(lambda *part: tf.concat(part, 0).numpy(), *parts)


def chosen(name: str, value: Any, accepted: dict[str, Any], kind: type) -> Any:
    """
    Return the entry of ``accepted`` with the name ``value``; or copy the object ``value``.

    :raises ValueError: for anything else.
    """
    if isinstance(value, kind):
        return gpflow.utilities.deepcopy(value)
    if isinstance(value, str) and value in accepted:
        return accepted[value]
    raise ValueError(
        f"{name} must be a gpflow {kind.__name__} or one of {', '.join(map(repr, accepted))}. "
        f"Found: {shown(value)}."
    )


def _kernel(kernel: str | Kernel, scales: AnyNDArray, unit: float, levels: Levels) -> Kernel:
    """
    A kernel with lengthscales of √D standard deviations; or a copy of an object.

    Columns that have levels are factors ``Categorical``, and the kernel is of the other columns.
    """
    found = chosen("kernel", kernel, KERNELS, Kernel)
    if isinstance(found, Kernel):
        return found
    columns = [column for column in range(len(scales)) if column not in levels]
    smooth: Kernel = gpflow.kernels.Constant(unit**2)
    if columns:
        lengthscales = np.sqrt(len(columns)) * scales[columns]
        active_dims = columns if levels else None
        smooth = found(variance=unit**2, lengthscales=lengthscales, active_dims=active_dims)
    factors = [Categorical(column, known) for column, known in levels.items()]
    return gpflow.kernels.Product([smooth, *factors]) if factors else smooth


def _inducing_points(
    X: AnyNDArray,
    num_inducing: int,
    scaler: StandardScaler,
    seed: int,
    kernel: Kernel | None = None,
) -> AnyNDArray:
    """Z [M, D]: all distinct rows of X; if there are more than M, rows that are far apart."""
    if not (isinstance(num_inducing, numbers.Integral) and num_inducing >= 1):
        raise ValueError(f"num_inducing must be a positive integer. Found: {shown(num_inducing)}.")
    distinct = np.unique(X, axis=0)
    if len(distinct) <= num_inducing:
        return distinct
    Z = kmeans_plusplus(scaler.transform(X), int(num_inducing), seed, kernel)
    return scaler.inverse_transform(Z)
