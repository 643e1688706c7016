"""
f and y at new inputs.

All are computed from a model's q or, with ``samples=``, from the draws that ``sample_posterior``
returns. ``f``: draws of f, moments and densities of y. ``y``: probabilities, quantiles and draws of
y.
"""

from .f import predict_f_samples, predict_log_density, predict_y
from .y import predict_y_cdf, predict_y_quantile, predict_y_samples

__all__ = [
    "predict_f_samples",
    "predict_log_density",
    "predict_y",
    "predict_y_cdf",
    "predict_y_quantile",
    "predict_y_samples",
]
