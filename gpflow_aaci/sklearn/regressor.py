"""Regression: y = f + noise, where the noise may have a distribution that is robust to outliers."""

from collections.abc import Callable
from functools import partial
from typing import Any

import gpflow
import numpy as np
import scipy.special
import tensorflow as tf
from gpflow.base import AnyNDArray, TensorType
from gpflow.config import default_float
from gpflow.kernels import Kernel
from gpflow.likelihoods import Likelihood
from gpflow.mean_functions import MeanFunction
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils import check_array, check_consistent_length, check_random_state

from .. import likelihoods
from ..likelihoods import AugmentedLikelihood, augmented
from ..predictions import predict_y, predict_y_quantile, predict_y_samples
from ..predictions.given import Given
from ..predictions.intervals import central_levels, levels_of, pit_of_left_out
from ..validation import check_one_of
from .shared import AugmentedGP, chosen, in_batches, weighted_rows

LIKELIHOODS: dict[str, Callable[..., Likelihood]] = {
    "gaussian": likelihoods.Gaussian,
    "student-t": likelihoods.StudentT,
    "laplace": likelihoods.Laplace,
    "cauchy": likelihoods.Cauchy,
    "logistic-noise": likelihoods.LogisticNoise,
    "matern32": likelihoods.Matern32,
    "matern52": likelihoods.Matern52,
    "poisson": likelihoods.Poisson,
    "negative-binomial": likelihoods.NegativeBinomial,
    "ordinal": likelihoods.Ordinal,
}

_COUNTS = ("poisson", "negative-binomial")
_LEAST_RATE = 1e-6  # where the start of a rate is cut off; it may be 0 for bad y or exposures
_NOISE = 0.5  # the first scale of the noise, in spreads of y
_NORMAL_IQR = 1.3489795  # the interquartile range of N(0, 1)


class AugmentedGPRegressor(RegressorMixin, AugmentedGP):
    """
    Gaussian process regression with Student-t or other noise, for scikit-learn.

    It is a sparse GP with ``num_inducing`` points, or another model that ``method`` names.
    :func:`~gpflow_aaci.fit` fits its kernel and noise; scikit-learn's ``ConvergenceWarning`` says
    what it prints if it has not converged::

        import numpy as np
        from sklearn.model_selection import cross_val_score
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        from gpflow_aaci.sklearn import AugmentedGPRegressor

        rng = np.random.default_rng(0)
        X = rng.uniform(-3.0, 3.0, size=(150, 1))
        y = np.sin(X[:, 0]) + 0.1 * rng.standard_t(2, size=150)
        regressor = AugmentedGPRegressor(likelihood="student-t", random_state=0).fit(X, y)
        lower, upper = regressor.predict(X, quantiles=[0.05, 0.95]).T
        pipeline = make_pipeline(StandardScaler(), AugmentedGPRegressor(random_state=0))
        scores = cross_val_score(pipeline, X, y, cv=3)

    A kernel given by name begins with a lengthscale of √D standard deviations for each column, so
    that the units of X do not matter. (But centre a column whose mean is 10⁵ standard deviations or
    more, as its distances lose digits.) Objects are copied, and the copies are fitted from the
    objects' values; the objects themselves are never changed.

    Fitted attributes: ``model_``, the GPflow model of (X, (y − ``y_center_``)/``y_scale_``);
    ``fit_result_``, the result of the fit, which ``print`` shows as text; ``y_center_``,
    ``y_scale_``; ``n_features_in_``, ``feature_names_in_``; ``encoder_``, which fills the gaps of a
    frame, or None; ``levels_``, the levels of columns of words, by their number in ``model_``.
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
        normalize_y: bool | str = "auto",
        calibrated: bool = False,
        random_state: Any = None,
        progress: bool = False,
    ) -> None:
        """
        :param likelihood: one of "gaussian", "student-t", "laplace", "cauchy", "logistic-noise",
            "matern32" and "matern52"; for counts "poisson" and "negative-binomial"; for grades
            0, 1, … "ordinal"; or an object that ``AugmentedSVGP`` takes, for y in the units that
            ``normalize_y`` makes.
        :param kernel: one of "squared-exponential", "rational-quadratic", "matern12", "matern32"
            and "matern52"; or a GPflow kernel.
        :param method: "sparse", inducing points; "nearest", nearest neighbours; "full", the GP
            itself; or "auto", which takes "full" up to 1,000 rows and beyond them what
            :func:`~gpflow_aaci.choose` finds to be better.
        :param num_inducing: M; if X has no more distinct rows, they are the inducing points.
        :param num_neighbors: k, of nearest neighbours during the fit.
        :param normalize_y: whether to subtract the median and divide by the interquartile range
            over 1.349. For a normal y this is the standard deviation, and outliers hardly change
            it. "auto" does so where y may be any real number, and not where the likelihood is of
            counts, grades, or y > 0. Predictions are in the units of y.
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

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        exposure: Any = None,
        upper: Any = None,
        is_observed: Any = None,
        noise_variance: Any = None,
        trials: Any = None,
    ) -> "AugmentedGPRegressor":
        """
        The last five parameters are further columns of Y, for likelihoods that have them: see the
        page *What Y holds*. Predictions are without censoring and, unless they are given others,
        for an exposure of 1, one trial and no known noise. In a pipeline,
        ``pipeline.fit(X, y, step__exposure=exposure)``.

        :param X: [N, D], an array or a frame. In a frame, text and categories become factors
            ``kernels.Categorical``, and gaps are encoded by
            :func:`~gpflow_aaci.sklearn.table_encoder`, unless ``kernel`` is an object: it must then
            know the words, and there may be no gaps.
        :param y: [N].
        :param sample_weight: [N], not negative: how many times each datum counts. Default:
            once. See :class:`~gpflow_aaci.likelihoods.Weighted`.
        :param exposure: [N], the time or area in which counts y were counted, for "poisson" and
            likelihoods ``with_exposure``.
        :param upper: [N], for ``Interval``: the value is between y and ``upper``, of which one may
            be infinite; where they are equal, it is known.
        :param is_observed: [N], for waiting times ``with_censoring``: 1, or 0 where nothing had
            happened until y.
        :param noise_variance: [N], for ``Gaussian(with_noise_variance=True)``, in units of y².
        :param trials: [N], for ``Binomial()``.
        :raises ValueError: for bad data or parameters, for columns that the likelihood does not
            have, and for one that it has and that is not given.
        """
        _check_no_words(y)
        given = {
            "exposure": exposure,
            "upper": upper,
            "is_observed": is_observed,
            "noise_variance": noise_variance,
            "trials": trials,
        }
        given = {
            name: check_array(value, ensure_2d=False, ensure_all_finite=False, input_name=name)
            for name, value in given.items()
            if value is not None
        }
        if upper is None:
            X, y = self._learn_table(X, y, y_numeric=True)
        else:
            y = check_array(y, ensure_2d=False, ensure_all_finite=False, input_name="y")
            check_consistent_length(y, given["upper"])
            X, _ = self._learn_table(X, _middle(y, given["upper"]), y_numeric=True)
        check_consistent_length(X, y, *given.values())
        Y = np.column_stack([y, *given.values()]).astype(default_float())
        X, Y, weight = weighted_rows(sample_weight, X, Y)
        columns = dict(zip(["y", *given], Y.T, strict=True))
        middle = columns["y"] if upper is None else _middle(columns["y"], columns["upper"])
        center, spread = _center_and_spread(middle, weight)
        scale = spread
        likelihood, mean_function = self._likelihood(columns, weight)
        is_real = _takes_any_number(likelihood)
        check_one_of("normalize_y", str(self.normalize_y), ["auto", "True", "False"])
        if not is_real and self.normalize_y is True:
            raise ValueError(
                'normalize_y must be "auto" or False for '
                f"{type(likelihood).__name__}, whose y may not be any real number. Found: True."
            )
        if not is_real or self.normalize_y is False:
            center, scale = 0.0, 1.0
        unit = spread / scale if is_real else 1.0
        if isinstance(self.likelihood, str) and is_real:
            likelihood.scale.assign(_NOISE * unit)
        columns["y"] = (columns["y"] - center) / scale
        if "upper" in columns:
            columns["upper"] = (columns["upper"] - center) / scale
        if "noise_variance" in columns:
            columns["noise_variance"] = columns["noise_variance"] / scale**2
        Y = np.column_stack([columns[name] for name in ("y", *likelihood.given)])
        data = self._fit(X, Y, likelihood, unit, weight, mean_function)
        self.y_center_, self.y_scale_ = center, scale
        self.left_out_pit_ = pit_of_left_out(self.model_, data) if self.calibrated else None
        return self

    def _likelihood(
        self, columns: dict[str, AnyNDArray], weight: AnyNDArray | None
    ) -> tuple[AugmentedLikelihood, MeanFunction | None]:
        """
        The likelihood, that of counts at values from the data; and the mean function of its f.

        :param columns: y, and the further columns of Y that ``fit`` was given, [N] each.
        :raises ValueError: for other columns than the likelihood has.
        """
        found = chosen("likelihood", self.likelihood, LIKELIHOODS, Likelihood)
        mean = 0.0
        if self.likelihood in _COUNTS:
            # Half a count more, as there may be none.
            counts = np.average(columns["y"], weights=weight) + 0.5 / len(columns["y"])
            options = {}
            if "exposure" in columns:
                counts /= np.average(columns["exposure"], weights=weight)
                options["with_exposure"] = True
            counts = max(counts, _LEAST_RATE)
            if self.likelihood == "poisson":
                found = found(max_rate=2.0 * counts, **options)  # f = 0 is half of it
            else:
                found, mean = found(**options), np.log(counts)
        elif self.likelihood == "ordinal":
            found = found(_edges(columns["y"], weights=weight))
        elif isinstance(self.likelihood, str):
            found = found(scale=1.0)  # until the spread of y is known
        likelihood = augmented(found)
        has, wanted = columns.keys() - {"y"}, set(likelihood.given)
        if has != wanted:
            those = ", ".join(likelihood.given) or "none"
            raise ValueError(
                f"fit must be given the further columns that {type(likelihood).__name__} has, "
                f"{those}. Found: {', '.join(has) or 'none'}."
            )
        has_mean = not _takes_any_number(likelihood) and likelihood.labels is None
        return likelihood, gpflow.functions.Constant(mean) if has_mean else None

    def predict(
        self,
        X: Any,
        return_std: bool = False,
        *,
        return_interval: float | None = None,
        quantiles: TensorType | None = None,
        exposure: Any = None,
        noise_variance: Any = None,
        trials: Any = None,
    ) -> Any:
        """
        The mean of y [N], or its median if y has no finite mean, as with "cauchy", and where log y
        has Student-t noise.

        The arguments pass through a pipeline; one of ``return_std``, ``return_interval`` and
        ``quantiles`` may be given::

            lower, upper = pipeline.predict(X, quantiles=[0.05, 0.95]).T
            mean, interval = pipeline.predict(X, return_interval=0.9)
            counts = pipeline.predict(X, exposure=exposure)

        :param X: [N, D].
        :param return_std: whether to return the standard deviation of y [N], noise included, too.
            It is infinite if y has no variance, as with Student-t noise of df ≤ 2; use
            ``quantiles`` then.
        :param return_interval: a level, for which to return :meth:`predict_interval` [N, 2], too.
        :param quantiles: levels [Q], to return :meth:`predict_quantiles` [N, Q] in place of the
            mean.
        :param exposure: [N] or a number, in which counts are predicted. Default: 1.
        :param noise_variance: [N] or a number, of known noise, in units of y². Default: 0.
        :param trials: [N] or a number, in which successes are predicted. Default: 1.
        :raises ValueError: for bad X, levels or columns, for columns that the likelihood does not
            have, and if several of these are asked for.
        """
        asked = [return_std, return_interval is not None, quantiles is not None]
        if sum(asked) > 1:
            raise ValueError(
                "predict must be asked for one of return_std, return_interval and quantiles. "
                f"Found: {sum(asked)} of them."
            )
        given = {"exposure": exposure, "noise_variance": noise_variance, "trials": trials}
        if quantiles is not None:
            return self.predict_quantiles(X, quantiles, **given)
        rows = self._inputs(X)
        mean, variance = in_batches(partial(predict_y, self.model_), rows, self._given(rows, given))
        mean = self.y_center_ + self.y_scale_ * mean[:, 0]
        if not np.isfinite(mean).all():
            mean = self.predict_quantiles(X, 0.5, **given)
        if return_interval is not None:
            return mean, self.predict_interval(X, return_interval, **given)
        return (mean, self.y_scale_ * np.sqrt(variance[:, 0])) if return_std else mean

    def score(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        exposure: Any = None,
        noise_variance: Any = None,
        trials: Any = None,
    ) -> float:
        """
        R² of the means of y, for the further columns of y that :meth:`predict` takes, too.

        In a search or a cross-validation they reach it by scikit-learn's metadata routing,
        ``set_score_request(exposure=True)``.

        :param X: [N, D].
        :param y: [N].
        :param sample_weight: [N].
        :raises ValueError: as :meth:`predict`.
        """
        mean = self.predict(X, exposure=exposure, noise_variance=noise_variance, trials=trials)
        return float(r2_score(y, mean, sample_weight=sample_weight))

    def predict_quantiles(self, X: Any, levels: TensorType, **given: Any) -> AnyNDArray:
        """
        The quantiles of y, P(y' ≤ y) = level, [N, Q].

        :param X: [N, D].
        :param levels: [Q], in (0, 1); or a number, for a result [N].
        :param given: the further columns of y that :meth:`predict` takes.
        :raises ValueError: for bad X, levels or columns.
        """

        def quantiles(rows: AnyNDArray, given: Given | None = None) -> tf.Tensor:
            found = predict_y_quantile(self.model_, rows, levels, given=given)
            return tf.transpose(found[..., 0])

        rows = self._inputs(X)
        found = in_batches(quantiles, rows, self._given(rows, given))
        found = self.y_center_ + self.y_scale_ * found
        return found if np.ndim(levels) else found[:, 0]

    def predict_interval(self, X: Any, level: float = 0.9, **given: Any) -> AnyNDArray:
        """
        The lower and the upper end of the central interval of y, [N, 2].

        :param X: [N, D].
        :param level: the share of y that the interval is to contain, in (0, 1).
        :param given: the further columns of y that :meth:`predict` takes.
        :raises ValueError: for bad X, level or columns, and for a level for which the rows of a
            calibrated regressor are too few.
        """
        pit = self.left_out_pit_
        levels = central_levels(level) if pit is None else levels_of(pit, level)[:, 0]
        return self.predict_quantiles(X, levels, **given)

    def _given(self, X: AnyNDArray, given: dict[str, Any]) -> dict[str, AnyNDArray] | None:
        """The further columns [N] of Y that were given, in the units of ``model_``."""
        found = {}
        for name, value in given.items():
            if value is None:
                continue
            column = np.asarray(value, default_float())
            if column.shape not in ((), (len(X),)):
                raise ValueError(
                    f"{name} must be [{len(X)}] or a number. Found: shape {list(column.shape)}."
                )
            unit = self.y_scale_**2 if name == "noise_variance" else 1.0
            found[name] = np.broadcast_to(column / unit, len(X))
        return found or None

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


def _takes_any_number(likelihood: AugmentedLikelihood) -> bool:
    """Whether y may be any real number, so that it can be normalised."""
    if likelihood.labels is not None:
        return False
    Y = likelihood.as_observed(tf.constant([[-1.5], [0.5]], default_float()))
    return all(bool(check[0]) for check in likelihood.checks(Y))


def _check_no_words(y: Any) -> None:
    """
    :raises ValueError: for words, which are grades or classes.
    """
    values = np.asarray(y)
    if values.dtype.kind in "OU" and (words := [v for v in values.flat if isinstance(v, str)]):
        raise ValueError(
            "y must hold numbers. Words that are grades become numbers by pandas.Categorical(y, "
            '["poor", "good"], ordered=True).codes, for likelihood="ordinal"; '
            f"AugmentedGPClassifier takes words that are classes. Found: {words[0]!r}."
        )


def _edges(grades: AnyNDArray, weights: AnyNDArray | None) -> AnyNDArray:
    """
    Edges [K − 1] at which the prior gives each grade the share that it has, if f has variance 1.

    :raises ValueError: unless there are grades 0 to K − 1, K > 1.
    """
    if not np.array_equal(grades, np.abs(np.round(grades))) or grades.max() < 1:
        raise ValueError(
            'y must hold grades 0, 1, 2, … in their order for likelihood="ordinal". '
            f"Found: {np.unique(grades)[:5].tolist()}."
        )
    counts = np.bincount(grades.astype(int), weights) + 0.5  # a grade may be missing
    return np.sqrt(2.0) * scipy.special.ndtri(np.cumsum(counts)[:-1] / counts.sum())


def _middle(lower: AnyNDArray, upper: AnyNDArray) -> AnyNDArray:
    """The middle of each interval, or its finite end; 0 if it has none."""
    ends = np.ma.masked_invalid([lower, upper])
    return ends.mean(0).filled(0.0)


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
