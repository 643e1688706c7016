"""Whether a function is completely monotone, by the signs of its derivatives."""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from ..distributions.law import derivatives
from .integrals.even_densities import LogPhi

_HIGHEST_DERIVATIVE = 4


class WrongSign(NamedTuple):
    """(−1)ᵏ φ⁽ᵏ⁾(r) < 0."""

    order: int  # k
    r: float
    value: float  # φ⁽ᵏ⁾(r)


def first_wrong_sign(log_phi: LogPhi, r: tf.Tensor) -> WrongSign | None:
    """
    The first (−1)ᵏ φ⁽ᵏ⁾(r) < 0, or None (AACI Eq. 8, Bernstein).

    If φ is a Laplace transform, (−1)ᵏ φ⁽ᵏ⁾(r) ≤ (2k/(e r))ᵏ φ(r/2) too. A wrong sign counts only
    where the derivative is not negligible against this bound, so that rounding is not reported.

    :param r: [R], positive, float64.
    """
    half = tf.exp(log_phi(r / 2.0)).numpy()
    of_phi = derivatives(lambda r: tf.exp(log_phi(r)), r, _HIGHEST_DERIVATIVE)
    for order, derivative in enumerate(of_phi):
        signed = (-1) ** order * derivative.numpy()
        largest = (2.0 * max(order, 0.5) / (np.e * r.numpy())) ** order * half
        wrong = ~(signed >= -1e-9 * np.maximum(largest, 1e-290))
        if wrong.any():
            at = int(np.argmax(wrong))
            return WrongSign(order, float(r[at]), float(derivative[at]))
    return None
