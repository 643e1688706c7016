"""
What the law of y is at new inputs, and how well it is known.

P(y > t|f), a hazard, an expected count or the probability of a grade is a function of f. Its
quantiles over the posterior of f say how well the data determine it.

Shapes: [S] draws, [N] new data, [L] columns of f, [Q] levels, [R] results of the function.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import gpflow
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import TensorType
from gpflow.config import default_float

from ..likelihoods import AugmentedLikelihood
from ..validation import Check, check_count, require
from .given import Given
from .y import Predicted

if TYPE_CHECKING:
    import arviz

OfF = Callable[[AugmentedLikelihood, tf.Tensor, tf.Tensor], tf.Tensor]
"""(likelihood, X [N, D], F [S, N, L]) → [S, N, R]."""


def predict_of_f(
    model: gpflow.models.GPModel,
    Xnew: TensorType,
    function: OfF,
    levels: TensorType = (0.05, 0.5, 0.95),
    *,
    given: Given | None = None,
    num_samples: int = 1_000,
    seed: int = 0,
    samples: "arviz.InferenceData | None" = None,
    progress: bool = True,
) -> tf.Tensor:
    """
    Quantiles [Q, N, R], over the posterior of f, of a function of f.

    The functions of this module are what one may want of y::

        survival = predict_of_f(model, Xnew, survival_at([12.0, 24.0]))  # [3, N, 2]
        grades = predict_of_f(model, Xnew, probabilities)  # [3, N, K]
        rates = predict_of_f(model, Xnew, mean_of_y)  # [3, N, P], at an exposure of 1
        counts = predict_of_f(model, Xnew, mean_of_y, given={"exposure": exposure})

    If there is one f, with a normal q, nothing is drawn. Where the function of it rises or falls
    over ``num_samples`` quantiles of f, its quantiles are the function of the quantiles of f, and
    exact; elsewhere they are those of its values there. Otherwise they are those of draws.

    :param function: :func:`survival_at`, :func:`hazard_at`, :func:`probabilities`,
        :func:`mean_of_y`, or your own ``function(likelihood, X, F)``.
    :param levels: [Q], in (0, 1).
    :param given: the further columns of Y of the new rows, as in
        :func:`~gpflow_aaci.predictions.predict_y`.
    :param num_samples: the number of draws, or of quantiles, of f.
    :param seed: the same seed gives the same draws.
    :param samples: draws of :func:`~gpflow_aaci.sample_posterior`, in the place of q.
    :param progress: whether to show a progress bar over ``samples``.
    :raises ValueError: for bad Xnew, levels or ``given``, and samples of another kind of model.
    """
    check_count("num_samples", num_samples, 1)
    levels = tf.convert_to_tensor(levels, default_float())
    inside = tf.reduce_all((levels > 0.0) & (levels < 1.0))
    require([Check(inside, "levels must be between 0 and 1.", lambda: levels)])
    is_sampled = samples is not None
    predicted = Predicted(model, Xnew, samples, progress, given=given, for_draws=is_sampled)
    likelihood = predicted.likelihood_at(slice(None))

    def of_f(F: tf.Tensor, _: Any = None) -> tf.Tensor:
        return function(likelihood, predicted.X, F)

    def at(levels: tf.Tensor) -> tf.Tensor:
        return of_f(predicted.quantiles_of_f(tf.cast(levels, predicted.X.dtype)))

    is_drawn = is_sampled or predicted.num_draws > 1 or predicted.num_outputs > 1
    if is_drawn:
        values = predicted.over_draws(of_f, num_samples, seed, False)
    else:
        values = at((tf.range(num_samples, dtype=levels.dtype) + 0.5) / num_samples)
    quantiles = tfp.stats.percentile(values, 100.0 * levels, axis=0, interpolation="linear")
    if is_drawn:
        return quantiles
    steps = values[1:] - values[:-1]
    rises, falls = tf.reduce_all(steps >= 0.0, 0), tf.reduce_all(steps <= 0.0, 0)
    quantiles = tf.where(falls, at(1.0 - levels), quantiles)
    return tf.where(rises, at(levels), quantiles)


def survival_at(times: Sequence[float]) -> OfF:
    """P(y > t|f) at every time t, of a likelihood of one y: R is the number of times."""

    def function(likelihood: AugmentedLikelihood, X: tf.Tensor, F: tf.Tensor) -> tf.Tensor:
        return tf.exp(_log_survival(likelihood, X, F, times))

    return function


def hazard_at(times: Sequence[float]) -> OfF:
    """
    p(t|f)/P(y > t|f) at every time t: the rate of an event that has not happened before.

    It is 0 at a t that no y can be, such as a negative waiting time.
    """

    def function(likelihood: AugmentedLikelihood, X: tf.Tensor, F: tf.Tensor) -> tf.Tensor:
        least = likelihood.lowest
        possible = [_observed(likelihood, F, max(t, least)) for t in times]
        log_p = tf.stack([likelihood.log_prob(X, F, Y) for Y in possible], -1)
        # No datum may be at the lower end of the support itself, but the hazard has a limit there.
        is_possible = [
            t == least
            or tf.reduce_all([check[0] for check in likelihood.checks(_observed(likelihood, F, t))])
            for t in times
        ]
        # A difference of logarithms, as both probabilities are 0 in floats at late times.
        hazard = tf.exp(log_p - _log_survival(likelihood, X, F, times))
        return tf.where(
            tf.stack(is_possible) & ~tf.math.is_nan(hazard), hazard, tf.zeros_like(hazard)
        )

    return function


def _log_survival(
    likelihood: AugmentedLikelihood, X: tf.Tensor, F: tf.Tensor, times: Sequence[float]
) -> tf.Tensor:
    at = [likelihood.log_survival(X, F, _observed(likelihood, F, t)) for t in times]
    return tf.concat(at, -1)


def probabilities(likelihood: AugmentedLikelihood, X: tf.Tensor, F: tf.Tensor) -> tf.Tensor:
    """
    P(y = k|f) of every label or grade, in their order: R = K.

    :raises ValueError: where y is no label.
    """
    if likelihood.labels is None:
        raise ValueError(
            "model must have a likelihood of labels to give their probabilities. "
            f"Found: {type(likelihood).__name__}."
        )
    log_p = [likelihood.log_prob(X, F, _observed(likelihood, F, k)) for k in likelihood.labels]
    return tf.nn.softmax(tf.stack(log_p, -1))  # a pseudo-likelihood is normalised


def mean_of_y(likelihood: AugmentedLikelihood, X: tf.Tensor, F: tf.Tensor) -> tf.Tensor:
    """E[y|f], as ``likelihood.conditional_mean``: a rate or an expected count, for counts."""
    return likelihood.conditional_mean(X, F)


def _observed(likelihood: AugmentedLikelihood, F: tf.Tensor, y: float) -> tf.Tensor:
    """
    Rows of Y that all hold y.

    :raises ValueError: where a row has several y.
    """
    number = likelihood.num_observed(F.shape[-1]) - likelihood.num_given
    if number != 1:
        raise ValueError(
            "model must have one y in each row for survival_at, hazard_at and probabilities; "
            f"your own function(likelihood, X, F) may take more. Found: {number}."
        )
    return likelihood.as_observed(tf.fill(tf.shape(F[..., :1]), tf.cast(y, F.dtype)))
