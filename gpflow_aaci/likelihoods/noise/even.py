"""Whether a likelihood is noise whose density is a function of (y − f)² alone."""

from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.config import default_float

from ..super_gaussian import SuperGaussianLikelihood


def why_no_even_noise(component: Any) -> str:
    """Why the component is not accepted, or an empty string."""
    if not isinstance(component, SuperGaussianLikelihood):
        return "which is no SuperGaussianLikelihood"
    if not component.is_density or component.labels is not None:
        return "which is no density of a real y"
    if component.given:
        return f"which takes further columns of Y ({', '.join(component.given)})"
    Y = tf.constant([-3.0, 0.0, 0.7, 20.0], default_float())
    if np.any(component.g(Y) != 0.0):
        return "whose g is not 0"
    centre, remainder = component.complete_square(Y)
    gamma, log_C = component.gamma(Y).numpy(), component.log_C(Y).numpy()
    if not np.allclose(centre, Y, rtol=1e-6) or np.any(np.abs(remainder) > 1e-6 * gamma):
        return "whose h² is not proportional to (y − f)²"
    if not (np.ptp(gamma) <= 1e-6 * gamma[0] and np.ptp(log_C) <= 1e-6):
        return "whose scale depends on y"
    if not hasattr(component, "noise_variance"):
        return "which states no noise_variance()"
    return ""
