"""
f and y at new inputs.

All are computed from a model's q or, with ``samples=``, from the draws that ``sample_posterior``
returns. ``f``: draws of f, moments and densities of y. ``y``: probabilities, quantiles and draws of
y. ``intervals``: central intervals of y, calibrated by the rows that ``left_out`` leaves out.
``of_f``: functions of f, such as survival and the probability of a grade, and how well they are
known. ``parts``: the summands of f in an additive model. ``functions``: draws of f as functions of
x, by ``features`` of the prior.
"""

from .f import predict_f_samples, predict_log_density, predict_y
from .functions import sample_functions
from .intervals import calibrated_levels, predict_y_interval
from .of_f import hazard_at, mean_of_y, predict_of_f, probabilities, survival_at
from .parts import predict_component
from .y import predict_y_cdf, predict_y_quantile, predict_y_samples

__all__ = [
    "calibrated_levels",
    "hazard_at",
    "mean_of_y",
    "predict_component",
    "predict_f_samples",
    "predict_log_density",
    "predict_of_f",
    "predict_y",
    "predict_y_cdf",
    "predict_y_interval",
    "predict_y_quantile",
    "predict_y_samples",
    "probabilities",
    "sample_functions",
    "survival_at",
]
