"""What is measured of a model on test data: true and plug-in NLL, error, calibration."""

from collections.abc import Callable
from typing import NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.kullback_leiblers import gauss_kl

from gpflow_aaci.likelihoods import SuperGaussianLikelihood
from gpflow_aaci.likelihoods.classification import BinaryLikelihood, signs

from .datasets import Array, Split

NOMINAL = 0.9  # of the central predictive intervals whose coverage is reported
_BINS = 10
_ELBO_ROWS = 2_000


class Measured(NamedTuple):
    """Of one model on one split."""

    nll: float  # −mean log p(y|data), the latent integrated out
    plugin_nll: float  # −mean log p(y|f = E f), as in the paper's scripts
    error: float  # error rate, or RMSE
    calibration: float  # expected calibration error, or coverage of the central 90 % intervals
    elbo: float  # GPflow's, of at most 2,000 training rows scaled to all


def evaluator(model: gpflow.models.GPModel, split: Split) -> Callable[[], Measured]:
    """A function that measures ``model`` as it then is."""
    X, Y = tf.constant(split.X_test), tf.constant(split.Y_test)
    likelihood = model.likelihood
    X_fit, Y_fit = tf.constant(split.X[:_ELBO_ROWS]), tf.constant(split.Y[:_ELBO_ROWS])

    @tf.function(autograph=False)
    def predict() -> list[tf.Tensor]:
        Fmu, Fvar = model.predict_f(X)
        y_mean, _ = likelihood.predict_mean_and_var(X, Fmu, Fvar)
        log_density = likelihood.predict_log_density(X, Fmu, Fvar, Y)
        plugin = plugin_log_density(likelihood, X, Fmu, Y)
        nll, plugin_nll = -tf.reduce_mean(log_density), -tf.reduce_mean(plugin)
        # One formula for all models, which are whitened: GPflow's VGP has jitter of its own in it.
        expected = likelihood.variational_expectations(X_fit, *model.predict_f(X_fit), Y_fit)
        elbo = len(split.X) * tf.reduce_mean(expected) - gauss_kl(model.q_mu, model.q_sqrt)
        # 0 and no work where y is a label, of which there are no intervals.
        cdf = tf.zeros([]) if split.is_binary else likelihood.predict_cdf(X, Fmu, Fvar, Y)
        return [nll, plugin_nll, y_mean, cdf, elbo]

    def evaluate() -> Measured:
        nll, plugin_nll, y_mean, cdf, elbo = (value.numpy() for value in predict())
        if split.is_binary:
            error = np.mean((y_mean > 0.5) != (split.Y_test > 0.5))
            calibration = expected_calibration_error(y_mean, split.Y_test)
        else:
            error = np.sqrt(np.mean((y_mean - split.Y_test) ** 2))
            calibration = coverage(cdf)
        return Measured(*map(float, (nll, plugin_nll, error, calibration, elbo)))

    return evaluate


def metric_names(is_binary: bool) -> dict[str, str]:
    """What ``error`` and ``calibration`` are."""
    if is_binary:
        return {"error_metric": "error", "calibration_metric": "ECE"}
    return {"error_metric": "RMSE", "calibration_metric": f"coverage of {NOMINAL:.0%}"}


def plugin_log_density(
    likelihood: SuperGaussianLikelihood, X: tf.Tensor, Fmu: tf.Tensor, Y: tf.Tensor
) -> tf.Tensor:
    """log p(y | f = Fmu) [N]; normalised over y where the likelihood itself is not."""
    if isinstance(likelihood, BinaryLikelihood):
        return tf.reduce_sum(likelihood.log_probability(signs(Y) * Fmu), axis=-1)
    return likelihood.log_prob(X, Fmu, Y)


def expected_calibration_error(probability: Array, y: Array) -> float:
    """Σ_bins (share of the data) |mean y − mean p|, ten bins of equal width in p; or NaN."""
    p, y = np.ravel(probability), np.ravel(y) > 0.5
    if not np.all(np.isfinite(p)):
        return float("nan")
    bins = np.minimum((p * _BINS).astype(int), _BINS - 1)
    difference = np.bincount(bins, weights=y - p, minlength=_BINS)
    return float(np.abs(difference).sum() / len(p))


def coverage(cdf: Array) -> float:
    """The share of y within its central 90 % predictive interval, from P(y' ≤ y)."""
    return float(np.mean(np.abs(2.0 * cdf - 1.0) <= NOMINAL))
