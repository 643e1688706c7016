"""What both estimators share: their parameters, the fit, and predictions in batches."""

import numbers
import warnings
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
from sklearn.compose import ColumnTransformer
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_random_state
from sklearn.utils.validation import (
    _check_sample_weight,
    check_array,
    check_is_fitted,
    validate_data,
)

from ..criticism.choose import choose
from ..inducing import kmeans_plusplus
from ..inference.fit import Fit, fit
from ..inference.nearest_fit import NearestFit
from ..kernels import levels_of
from ..kernels.starting import of_columns
from ..levels import UNSEEN, Levels, are_words, holds_words, levels_in, listed
from ..likelihoods import Weighted
from ..models import AugmentedSVGP, AugmentedVGP
from ..nearest import AugmentedNNGP
from ..validation import check_none_missing, check_one_of, of_column, shown
from .table import has_gaps, table_encoder

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
    fit_result_: Fit | NearestFit
    encoder_: ColumnTransformer | None
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
        Y: AnyNDArray,
        likelihood: Likelihood,
        unit: float,
        sample_weight: Any = None,
        mean_function: MeanFunction | None = None,
    ) -> RegressionData | None:
        """
        Make the model and fit it to X [N, D], Y [N, P].

        :param likelihood: becomes the model's own; an augmented one.
        :param unit: a rough guess of the standard deviation of f.
        :param sample_weight: [N], how many times each datum counts. Default: once.
        :return: the data as the model has them, or None if it keeps them itself.
        """
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        scaler = StandardScaler().fit(X, sample_weight=sample_weight)
        coded = list(self.levels_)  # these numbers must stay as they are
        scaler.mean_[coded], scaler.scale_[coded] = 0.0, 1.0
        if sample_weight is not None:
            likelihood = Weighted(likelihood)
            Y = np.hstack([Y, sample_weight[:, None]])
        check_one_of("method", self.method, _METHODS)
        method = self.method
        if method == "auto" and len(X) <= _MOST_ROWS_OF_FULL:
            method = "full"
        data, kernel = (self._named(X), Y), chosen("kernel", self.kernel, KERNELS, Kernel)
        if not isinstance(kernel, Kernel):
            kernel = of_columns(X, self.levels_, kernel, unit**2, sample_weight)
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
            self.fit_result_ = fit(self.model_, **how)
        else:
            Z = _inducing_points(X, self.num_inducing, scaler, seed, kernel)
            model = AugmentedSVGP(kernel, likelihood, Z, num_data=len(X), **options)
            gpflow.set_trainable(model.inducing_variable, False)
            self.fit_result_ = fit(model, data, **how)
            self.model_ = model
        if not self.fit_result_.converged:
            warnings.warn(str(self.fit_result_), ConvergenceWarning, stacklevel=3)
        return (X, Y) if isinstance(self.model_, AugmentedSVGP) else None

    def _learn_table(self, X: Any, y: Any, **how: Any) -> tuple[AnyNDArray, AnyNDArray]:
        """
        X [N, D] and y [N] as arrays, checked; what the columns of a frame hold is stored.

        :param how: arguments of scikit-learn's ``validate_data``.
        :raises ValueError: for words that a kernel object does not know.
        """
        is_own = isinstance(self.kernel, Kernel)
        self.encoder_ = table_encoder(X).fit(X) if not is_own and has_gaps(X) else None
        encoded = X if self.encoder_ is None else self.encoder_.transform(X)
        self.levels_ = (
            levels_of(self.kernel)
            if is_own
            else {
                at: np.append(known, UNSEEN) if are_words(known) else known
                for at, known in levels_in(encoded).items()
            }
        )
        self._names = [*map(str, encoded.columns)] if hasattr(encoded, "columns") else None
        checked = validate_data(self, self._coded(encoded), y, dtype=default_float(), **how)
        if self.encoder_ is not None:
            validate_data(self, X, skip_check_array=True)  # predictions take the raw columns
        return checked

    def _named(self, X: AnyNDArray) -> Any:
        """A frame of X [N, D], so that advice has the names of its columns; X if it has none."""
        if self._names is None:
            return X
        import pandas as pd  # imported late, as arrays do without it

        return pd.DataFrame(X, columns=self._names)

    def _coded(self, X: Any) -> Any:
        """A frame with numbers in the place of words; anything else as it is."""
        if not hasattr(X, "iloc") or X.ndim != 2:
            return X
        coded = X.copy()
        for at, column in enumerate(X.columns):
            words, name = X.iloc[:, at], f"column {column!r} of X"
            if holds_words(words):
                known = self.levels_.get(at, ())
                if UNSEEN in known and words.notna().all():
                    words = words.astype(str)
                    is_unseen = ~words.isin(known)
                    if is_unseen.any():
                        warnings.warn(
                            f"{name} holds words that the fit has not seen, "
                            f"{listed(words[is_unseen].unique())}: predictions are for one "
                            "word that is as alike to the others as these are to each other.",
                            UserWarning,
                            stacklevel=4,
                        )
                        words = words.where(~is_unseen, UNSEEN)
                coded.isetitem(at, of_column(words, at, name, self.levels_))
        return coded

    def _inputs(self, X: Any) -> AnyNDArray:
        """
        Return X for predictions, [N, D], checked.

        :raises NotFittedError: before ``fit``.
        :raises ValueError: if X is not finite, or has different columns or levels than in ``fit``.
        """
        check_is_fitted(self)
        if self.encoder_ is not None:
            validate_data(self, X, reset=False, skip_check_array=True)  # which columns differ
            if not hasattr(X, "iloc"):
                raise ValueError(
                    "X must be a frame, as in the fit, since its gaps are encoded by the names of "
                    f"the columns. Found: {type(X).__name__}."
                )
            encoded = self._coded(self.encoder_.transform(X))
            for name, count in encoded.isna().sum().items():
                check_none_missing(int(count), f"column {name!r} of X")
            return check_array(encoded, dtype=default_float())
        names = getattr(self, "feature_names_in_", None)
        if names is None or list(getattr(X, "columns", [])) == list(names):
            X = self._coded(X)  # otherwise scikit-learn says which columns differ
        return validate_data(self, X, reset=False, dtype=default_float())


def weighted_rows(
    sample_weight: Any, X: AnyNDArray, Y: AnyNDArray
) -> tuple[AnyNDArray, AnyNDArray, AnyNDArray | None]:
    """
    X, Y [N, ...] and the weights [N] of the rows with non-zero weight; None if none are given.

    :raises ValueError: for weights that are negative, not finite, or not one for each row.
    """
    if sample_weight is None:
        return X, Y, None
    weight = _check_sample_weight(sample_weight, X, dtype=default_float(), ensure_non_negative=True)
    counts = weight > 0.0
    return X[counts], Y[counts], weight[counts]


def in_batches(
    predict: Callable[..., Any], X: AnyNDArray, given: dict[str, AnyNDArray] | None = None
) -> Any:
    """
    Apply ``predict`` to X [N, D], 10,000 rows at a time; return its array or arrays [N, ...].

    :param given: further columns [N] of these rows, which ``predict`` takes by the same name.
    """
    parts = []
    for first in range(0, len(X), _ROWS_AT_ONCE):
        rows = slice(first, first + _ROWS_AT_ONCE)
        of_rows = {name: value[rows] for name, value in given.items()} if given else None
        parts.append(predict(X[rows], given=of_rows) if of_rows else predict(X[rows]))
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
