"""
f and y at new inputs.

``from_draws``: draws of f, moments and densities of y, from what ``sample_posterior`` returns.
``of_y``: probabilities, quantiles and draws of y, from that or from a model's q.
"""

from .from_draws import predict_f_samples, predict_log_density, predict_y
from .of_y import predict_y_cdf, predict_y_quantile, predict_y_samples

__all__ = [
    "predict_f_samples",
    "predict_log_density",
    "predict_y",
    "predict_y_cdf",
    "predict_y_quantile",
    "predict_y_samples",
]
