"""
f and y at new inputs.

``f``: draws of f, moments and densities of y, from what ``sample_posterior`` returns.
``y``: probabilities, quantiles and draws of y, from that or from a model's q.
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
