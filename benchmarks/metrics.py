"""The measures of a model on test data: NLL, plug-in NLL, error and calibration."""

import copy
from collections.abc import Callable
from typing import NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.kullback_leiblers import gauss_kl

from gpflow_aaci.likelihoods.classes.binary import BinaryLikelihood, signs

from .config import Problem
from .datasets import Array, Split

NOMINAL = 0.9  # the probability of the predictive intervals whose coverage is reported


class Measured(NamedTuple):
    """The measures of one model on one split."""

    nll: float  # −mean log p(y|data), where f is integrated out
    plugin_nll: float  # −mean log p(y|f = E f), as in the paper's scripts
    error: float  # ``metric_names`` says which error, and which calibration
    calibration: float
    elbo: float  # GPflow's, from at most 2,000 training rows, scaled to all of them


def evaluator(model: gpflow.models.GPModel, split: Split) -> Callable[[], Measured]:
    """A function that measures the current state of ``model``."""
    X, Y = tf.constant(split.X_test), tf.constant(split.Y_test)
    likelihood = model.likelihood
    if isinstance(likelihood, gpflow.likelihoods.MonteCarloLikelihood):  # its 100 draws are few
        likelihood = copy.deepcopy(likelihood)
        likelihood.num_monte_carlo_points = 2_000
    X_fit, Y_fit = tf.constant(split.X[:2_000]), tf.constant(split.Y[:2_000])

    @tf.function(autograph=False)
    def predict() -> list[tf.Tensor]:
        Fmu, Fvar = model.predict_f(X)
        y_mean, _ = likelihood.predict_mean_and_var(X, Fmu, Fvar)
        log_density = likelihood.predict_log_density(X, Fmu, Fvar, Y)
        plugin = plugin_log_density(likelihood, X, Fmu, Y)
        nll, plugin_nll = -tf.reduce_mean(log_density), -tf.reduce_mean(plugin)
        # One formula serves all models, as all are whitened (VGP.elbo has a jitter of its own).
        expected = likelihood.variational_expectations(X_fit, *model.predict_f(X_fit), Y_fit)
        elbo = len(split.X) * tf.reduce_mean(expected) - gauss_kl(model.q_mu, model.q_sqrt)
        # Where calibration does not depend on the mean: the predictive cdf, or P(y = 0).
        of_y = y_mean
        if split.kind == "counts":
            of_y = tf.exp(likelihood.predict_log_density(X, Fmu, Fvar, tf.zeros_like(Y)))
        elif split.kind == "real":
            of_y = likelihood.predict_cdf(X, Fmu, Fvar, Y)
        return [nll, plugin_nll, y_mean, Fmu, elbo, of_y]

    unit, y = np.log(split.y_scale), split.Y_test

    def evaluate() -> Measured:
        nll, plugin_nll, y_mean, Fmu, elbo, of_y = (value.numpy() for value in predict())
        if split.kind == "quantile":
            r, level = y - Fmu, likelihood.quantile.numpy()
            error = split.y_scale * np.mean(r * (level - (r < 0.0)))  # the pinball loss
            calibration = np.mean(y <= Fmu)
        else:
            error, calibration = error_of_mean(split, y_mean), _calibration(split, y_mean, of_y)
        values = (nll + unit, plugin_nll + unit, error, calibration, elbo - len(split.X) * unit)
        return Measured(*map(float, values))

    return evaluate


def _calibration(split: Split, y_mean: Array, of_y: Array) -> float:
    """What ``metric_names`` calls calibration; ``of_y`` is P(y = 0) of counts, and the cdf at y."""
    y = split.Y_test
    if split.kind == "binary":
        return expected_calibration_error(y_mean, y)
    if split.kind == "classes":
        is_right = np.argmax(y_mean, axis=1) == y[:, 0]
        return expected_calibration_error(y_mean.max(axis=1), is_right)
    return float(np.mean(of_y) - np.mean(y == 0.0)) if split.kind == "counts" else coverage(of_y)


def error_of_mean(split: Split, y_mean: Array) -> float:
    """The error of E y [N, P], or of the probability of each class: a rate, or the RMSE."""
    y = split.Y_test
    if split.kind == "binary":
        return float(np.mean((y_mean > 0.5) != (y > 0.5)))
    if split.kind == "classes":
        return float(1.0 - np.mean(np.argmax(y_mean, axis=1) == y[:, 0]))
    return float(split.y_scale * np.sqrt(np.mean((y_mean - y) ** 2)))


def of_predictions(split: Split, log_p: Array, y_mean: Array) -> dict[str, float]:
    """NLL and error of log p(y) and E y at the test rows."""
    nll = float(np.log(split.y_scale) - np.mean(log_p))
    return {"nll": nll, "error": error_of_mean(split, y_mean)}


def metric_names(problem: Problem) -> dict[str, str]:
    """The names of the measures ``error`` and ``calibration`` for this problem."""
    unit = "units of y" if problem.in_units_of_y else "standard deviations"
    error, calibration = {
        "binary": ("error rate", "ECE"),
        "classes": ("error rate", "ECE of the likeliest"),
        "counts": ("RMSE", "P(0) above its share"),
        "quantile": (f"pinball loss [{unit}]", "share below"),
        "real": (f"RMSE [{unit}]", f"coverage of {NOMINAL:.0%}"),
    }[problem.likelihood.kind]
    return {"error_metric": error, "calibration_metric": calibration}


def plugin_log_density(
    likelihood: gpflow.likelihoods.Likelihood, X: tf.Tensor, Fmu: tf.Tensor, Y: tf.Tensor
) -> tf.Tensor:
    """log p(y | f = Fmu) [N]. A pseudo-likelihood is normalised over its labels first."""
    if isinstance(likelihood, BinaryLikelihood):
        return tf.reduce_sum(likelihood.log_probability(signs(Y) * Fmu), axis=-1)
    return likelihood.log_prob(X, Fmu, Y)


def expected_calibration_error(probability: Array, y: Array) -> float:
    """Σ_bins (share of the data) |mean y − mean p|, with ten bins of equal width; NaN if p is."""
    p, y = np.ravel(probability), np.ravel(y) > 0.5
    if not np.all(np.isfinite(p)):
        return float("nan")
    difference = np.bincount(np.minimum((p * 10).astype(int), 9), weights=y - p)
    return float(np.abs(difference).sum() / len(p))


def coverage(cdf: Array) -> float:
    """The share of y that lie in their central 90 % intervals, computed from P(y' ≤ y)."""
    return float(np.mean(np.abs(2.0 * cdf - 1.0) <= NOMINAL))
