"""
f and y at new inputs.

All are computed from a model's q or, with ``samples=``, from the draws that ``sample_posterior``
returns. ``f``: draws of f, moments and densities of y. ``y``: probabilities, quantiles and draws of
y. ``of_f``: functions of f, such as survival and the probability of a grade, and how well they are
known. ``functions``: draws of f as functions of x.
"""

from .f import predict_f_samples, predict_log_density, predict_y
from .functions import sample_functions
from .of_f import hazard_at, mean_of_y, predict_of_f, probabilities, survival_at
from .y import predict_y_cdf, predict_y_quantile, predict_y_samples

__all__ = [
    "hazard_at",
    "mean_of_y",
    "predict_f_samples",
    "predict_log_density",
    "predict_of_f",
    "predict_y",
    "predict_y_cdf",
    "predict_y_quantile",
    "predict_y_samples",
    "probabilities",
    "sample_functions",
    "survival_at",
]
