"""Regression: y = f + noise, where the noise may have a distribution that is robust to outliers."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray, TensorType
from gpflow.config import default_float
from gpflow.kernels import Kernel
from gpflow.likelihoods import Likelihood
from sklearn.base import RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import validate_data

from .. import likelihoods
from ..predictions import predict_y_quantile, predict_y_samples
from ..predictions.intervals import central_levels, levels_of, pit_of_left_out
from .shared import AugmentedGP, chosen, in_batches, weighted_rows

LIKELIHOODS: dict[str, Callable[..., Likelihood]] = {
    "gaussian": likelihoods.Gaussian,
    "student-t": likelihoods.StudentT,
    "laplace": likelihoods.Laplace,
    "cauchy": likelihoods.Cauchy,
    "logistic-noise": likelihoods.LogisticNoise,
    "matern32": likelihoods.Matern32,
    "matern52": likelihoods.Matern52,
}

_NOISE = 0.5  # the first scale of the noise, in spreads of y
_NORMAL_IQR = 1.3489795  # the interquartile range of N(0, 1)


class AugmentedGPRegressor(RegressorMixin, AugmentedGP):
    """
    Gaussian process regression with Student-t or other noise, for scikit-learn.

    It is a sparse GP with ``num_inducing`` points, or another model that ``method`` names;
    ``fit_collapsed`` (``fit`` for nearest neighbours) fits its kernel and noise::

        import numpy as np
        from sklearn.model_selection import cross_val_score
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        from gpflow_aaci.sklearn import AugmentedGPRegressor

        rng = np.random.default_rng(0)
        X = rng.uniform(-3.0, 3.0, size=(150, 1))
        y = np.sin(X[:, 0]) + 0.1 * rng.standard_t(2, size=150)
        regressor = AugmentedGPRegressor(likelihood="student-t", random_state=0).fit(X, y)
        lower, upper = regressor.predict_quantiles(X, [0.05, 0.95]).T
        pipeline = make_pipeline(StandardScaler(), AugmentedGPRegressor(random_state=0))
        scores = cross_val_score(pipeline, X, y, cv=3)

    A kernel given by name begins with a lengthscale of √D standard deviations for each column, so
    that the units of X do not matter. (But centre a column whose mean is 10⁵ standard deviations or
    more, as its distances lose digits.) Objects are copied, and the copies are fitted from the
    objects' values; the objects themselves are never changed.

    Fitted attributes: ``model_``, the GPflow model of (X, (y − ``y_center_``)/``y_scale_``);
    ``fit_result_``, the result of the fit; ``y_center_``, ``y_scale_``;
    ``n_features_in_``, ``feature_names_in_``; ``levels_``, the levels of columns of words,
    by column number.
    """

    y_center_: float
    y_scale_: float
    left_out_pit_: AnyNDArray | None

    def __init__(
        self,
        *,
        likelihood: str | Likelihood = "student-t",
        kernel: str | Kernel = "squared-exponential",
        method: str = "sparse",
        num_inducing: int = 100,
        num_neighbors: int = 32,
        normalize_y: bool = True,
        calibrated: bool = False,
        random_state: Any = None,
        progress: bool = False,
    ) -> None:
        """
        :param likelihood: one of "gaussian", "student-t", "laplace", "cauchy", "logistic-noise",
            "matern32" and "matern52"; or an object that ``AugmentedSVGP`` takes, for y in the units
            that ``normalize_y`` makes.
        :param kernel: one of "squared-exponential", "rational-quadratic", "matern12", "matern32"
            and "matern52"; or a GPflow kernel.
        :param method: "sparse", inducing points; "nearest", nearest neighbours; "full", the GP
            itself; or "auto", which takes "full" up to 1,000 rows and beyond them what
            :func:`~gpflow_aaci.choose` finds to be better.
        :param num_inducing: M; if X has no more distinct rows, they are the inducing points.
        :param num_neighbors: k, of nearest neighbours during the fit.
        :param normalize_y: whether to subtract the median and divide by the interquartile range
            over 1.349. For a normal y this is the standard deviation, and outliers hardly change
            it. It must be False for counts and for likelihoods of y > 0. Predictions are in the
            units of y.
        :param calibrated: whether :meth:`predict_interval` covers what it says even where the noise
            of the model is wrong; see :func:`~gpflow_aaci.predictions.calibrated_levels`.
        :param random_state: the seed for inducing points and subsets of rows: an integer, a
            ``RandomState``, or None for a new draw at every fit.
        :param progress: whether to show a progress bar.
        """
        super().__init__(
            kernel=kernel,
            method=method,
            num_inducing=num_inducing,
            num_neighbors=num_neighbors,
            random_state=random_state,
            progress=progress,
        )
        self.likelihood = likelihood
        self.normalize_y = normalize_y
        self.calibrated = calibrated

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "AugmentedGPRegressor":
        """
        :param X: [N, D], an array or a frame. Its columns of text and of categories become factors
            ``kernels.Categorical``, unless ``kernel`` is an object, which must then know them.
        :param y: [N].
        :param sample_weight: [N], not negative: how many times each datum counts. Default:
            once. See :class:`~gpflow_aaci.likelihoods.Weighted`.
        :raises ValueError: for bad data or parameters.
        """
        X, y = validate_data(self, self._learn_levels(X), y, dtype=default_float(), y_numeric=True)
        X, y, weight = weighted_rows(sample_weight, X, y)
        center, spread = _center_and_spread(y, weight)
        scale = spread
        if not self.normalize_y:
            center, scale = 0.0, 1.0
        unit = spread / scale
        likelihood = chosen("likelihood", self.likelihood, LIKELIHOODS, Likelihood)
        if not isinstance(likelihood, Likelihood):
            likelihood = likelihood(scale=_NOISE * unit)
        data = self._fit(X, (y - center) / scale, likelihood, unit, weight)
        self.y_center_, self.y_scale_ = center, scale
        self.left_out_pit_ = pit_of_left_out(self.model_, data) if self.calibrated else None
        return self

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """
        The mean of y [N], or its median if y has no mean, as with "cauchy".

        :param X: [N, D].
        :param return_std: whether to return the standard deviation of y [N], noise included, too.
            It is infinite if y has no variance, as with Student-t noise of df ≤ 2; use
            :meth:`predict_quantiles` then.
        """
        X = self._inputs(X)
        mean, variance = in_batches(self.model_.predict_y, X)
        mean = self.y_center_ + self.y_scale_ * mean[:, 0]
        if np.isnan(mean).any():
            mean = self.predict_quantiles(X, 0.5)
        return (mean, self.y_scale_ * np.sqrt(variance[:, 0])) if return_std else mean

    def predict_quantiles(self, X: Any, levels: TensorType) -> AnyNDArray:
        """
        The quantiles of y, P(y' ≤ y) = level, [N, Q].

        :param X: [N, D].
        :param levels: [Q], in (0, 1); or a number, for a result [N].
        :raises ValueError: for bad X or levels.
        """

        def quantiles(rows: AnyNDArray) -> tf.Tensor:
            return tf.transpose(predict_y_quantile(self.model_, rows, levels)[..., 0])

        found = in_batches(quantiles, self._inputs(X))
        found = self.y_center_ + self.y_scale_ * found
        return found if np.ndim(levels) else found[:, 0]

    def predict_interval(self, X: Any, level: float = 0.9) -> AnyNDArray:
        """
        The lower and the upper end of the central interval of y, [N, 2].

        :param X: [N, D].
        :param level: the share of y that the interval is to contain, in (0, 1).
        :raises ValueError: for bad X or level, and for a level for which the rows of a calibrated
            regressor are too few.
        """
        pit = self.left_out_pit_
        levels = central_levels(level) if pit is None else levels_of(pit, level)[:, 0]
        return self.predict_quantiles(X, levels)

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0) -> AnyNDArray:
        """
        Draws of y, noise included, [N, n_samples].

        f is drawn jointly at all rows of X, which takes O(N²) memory.

        :param X: [N, D].
        :param random_state: an integer, a ``RandomState``, or None for new draws at every call.
        """
        seed = int(check_random_state(random_state).randint(np.iinfo(np.int32).max))
        X = self._inputs(X)
        draws = predict_y_samples(self.model_, X, n_samples, seed, full_cov=True)
        return self.y_center_ + self.y_scale_ * draws.numpy()[..., 0].T


def _center_and_spread(y: AnyNDArray, weight: AnyNDArray | None) -> tuple[float, float]:
    """The median, and the spread: the standard deviation if y is normal, 1 if y is constant."""
    levels = np.array([0.25, 0.5, 0.75])
    if weight is None:
        lower, median, upper = np.quantile(y, levels)
    else:
        order = np.argsort(y)
        share = np.cumsum(weight[order]) / weight.sum()
        lower, median, upper = y[order][np.searchsorted(share, levels)]
    spread = (upper - lower) / _NORMAL_IQR
    return float(median), float(spread or np.std(y) or 1.0)
