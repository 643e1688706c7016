"""Central intervals of y, and levels that make them cover what they say whatever the noise."""

from functools import partial

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray, RegressionData, TensorType

from ..algebra.terms import mixed_marginals
from ..data.expected import refuse_where_kept
from ..models import AugmentedModel, Model, as_augmented
from ..nearest import AugmentedNNGP
from ..runtime.compiled import applied
from ..validation import shown
from .given import Given
from .left_out import OfRows, all_rows, left_out, stationary_bound
from .y import predict_y_quantile, randomised_pit


def predict_y_interval(
    model: Model | AugmentedNNGP,
    Xnew: TensorType,
    level: float = 0.9,
    *,
    calibrated: bool = False,
    data: RegressionData | tf.data.Dataset | None = None,
    given: Given | None = None,
    seed: int = 0,
) -> tuple[tf.Tensor, tf.Tensor]:
    """
    The lower and the upper end of the central interval of y at every new datum, both [N, P].

    With ``calibrated`` the levels of the two quantiles are those of
    :func:`~gpflow_aaci.predictions.calibrated_levels`, so that the intervals cover the given share
    of new y even where the noise of the model is wrong::

        lower, upper = predict_y_interval(model, Xnew, 0.9, calibrated=True, data=(X, Y))

    Calibration changes the levels, which are the same for all X, and not the model: where noise
    depends on X, intervals are still too wide at some X and too narrow at others.

    :param Xnew: [N, D].
    :param level: the share of y that the interval is to contain, in (0, 1).
    :param data: the training data, for ``calibrated`` and models that do not keep their own.
    :param given: the further columns of Y of the new rows, as in
        :func:`~gpflow_aaci.predictions.predict_y`.
    :param seed: the seed for the draws of a discrete or censored y, for ``calibrated``.
    :raises ValueError: for bad Xnew, level, data or ``given``, and as ``calibrated_levels``.
    """
    if not calibrated:
        if data is not None:
            raise ValueError("data must be None unless calibrated=True. Found: data.")
        lower, upper = predict_y_quantile(model, Xnew, central_levels(level), given=given)
        return lower, upper
    levels = calibrated_levels(model, data, level, seed=seed)  # [2, P]
    quantiles = predict_y_quantile(model, Xnew, levels.ravel(), given=given)  # [2P, N, P]
    P = levels.shape[1]
    lower, upper = (
        tf.stack([quantiles[end * P + p, :, p] for p in range(P)], -1) for end in range(2)
    )
    return lower, upper


def calibrated_levels(
    model: Model | AugmentedNNGP,
    data: RegressionData | tf.data.Dataset | None = None,
    level: float = 0.9,
    *,
    seed: int = 0,
) -> AnyNDArray:
    """
    The levels of the quantiles between which a new y lies with probability ``level``, [2, P].

    u_i = P(y' ≤ y_i | all other y) of the N data is found in closed form, as by
    :func:`~gpflow_aaci.loo`. If a datum and a new one are exchangeable, the u of the new one has
    every rank among these with the same probability 1/(N + 1), whatever the true noise is, apart
    from the influence of one row on the prediction and on the hyperparameters. So the levels are
    the u of ranks ⌊(N + 1) α/2⌋ and ⌈(N + 1)(1 − α/2)⌉, α = 1 − level. This is conformal prediction
    by leave-one-out, close to the jackknife+ (Barber, Candès, Ramdas and Tibshirani 2021, Annals of
    Statistics 49), at the model's hyperparameters. Each row counts once, whatever its weight.

    :param data: X [N, D], Y [N, P], all data that q was fitted to; None for models that keep them.
    :param level: the share of y that the interval is to contain.
    :param seed: the seed for the draws of a discrete or censored y.
    :raises ValueError: for bad data, and for a level above 1 − 2/(N + 1), for which there are too
        few data.
    """
    central_levels(level)  # raises an error before the pass over the data
    return levels_of(pit_of_left_out(model, data, seed=seed), level)


def central_levels(level: float) -> AnyNDArray:
    """
    The levels [2] that leave as much below as above.

    :raises ValueError: for a level outside (0, 1).
    """
    if not (np.ndim(level) == 0 and 0.0 < level < 1.0):
        raise ValueError(f"level must be in (0, 1). Found: {shown(level)}.")
    return np.array([0.5 * (1.0 - level), 0.5 * (1.0 + level)])


def levels_of(pit: AnyNDArray, level: float) -> AnyNDArray:
    """
    The levels [2, P] between which ``level`` of new values lie, as those of ``pit`` [N, P].

    NaN stands for a y that was not observed.
    """
    inside = np.finfo(pit.dtype).eps  # a quantile has a level in (0, 1)
    found = [_order_statistics(np.sort(u[~np.isnan(u)]), level) for u in pit.T]
    return np.clip(np.stack(found, 1), inside, 1.0 - inside)


def _order_statistics(u: AnyNDArray, level: float) -> AnyNDArray:
    """Of the ranks ⌊(N + 1) α/2⌋ and ⌈(N + 1)(1 − α/2)⌉ of the sorted values u [N]."""
    N = len(u)
    ranks = (N + 1) * central_levels(level)
    low, high = int(ranks[0] + 1e-9), int(np.ceil(ranks[1] - 1e-9))
    if low < 1:
        raise ValueError(
            f"level must be at most 1 - 2/(N + 1) = {1.0 - 2.0 / (N + 1):.4g} for N = {N} data. "
            f"Found: {shown(level)}."
        )
    return u[[low - 1, high - 1]]


def pit_of_left_out(
    model: Model | AugmentedNNGP,
    data: RegressionData | tf.data.Dataset | None = None,
    *,
    seed: int = 0,
) -> AnyNDArray:
    """
    P(y' ≤ y_i | all other y) of every datum, [N, P]; drawn where y is discrete or censored.

    :raises ValueError: for bad data, and a q of diagonal covariance.
    """
    rng = np.random.default_rng([seed, 5])

    def pit(X: tf.Tensor, Y: tf.Tensor, mean: tf.Tensor, variance: tf.Tensor) -> AnyNDArray:
        predict_cdf = partial(model.likelihood.predict_cdf, X, mean, variance)
        return randomised_pit(model.likelihood, Y, lambda *of_y: [*map(predict_cdf, of_y)], rng)

    if isinstance(model, AugmentedNNGP):
        refuse_where_kept(model.expected_data, data)
        how = model.prediction_neighbors, model.prediction_steps
        parts = model.left_out(np.arange(model.num_data), *how, leave_out_repeats=False)
        return np.concatenate([pit(*part) for part in parts])
    model = as_augmented(model)
    rows = all_rows(model, data, False, "calibrated intervals")
    bound, _ = stationary_bound(model, rows)

    def of_rows(X: tf.Tensor, Y: tf.Tensor) -> AnyNDArray:
        return pit(X, Y, *applied(model, _moments, (X, Y), bound))

    return rows.map(of_rows).numpy()


def _moments(model: AugmentedModel, variables: object, bound: str) -> OfRows:
    """Mean and variance of f without the row's own y, [N, columns of f]."""

    def of_rows(X: tf.Tensor, Y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        f = left_out(model, bound, X, Y)
        moments = f.mean_without, f.variance_without
        W = model.mixing
        return moments if W is None else mixed_marginals(model.mean_function(X), W, *moments)

    return of_rows
