"""Whether a function is completely monotone, by the signs of its derivatives."""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

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
    for order, derivative in enumerate(_phi_derivatives(log_phi, r)):
        signed = (-1) ** order * derivative.numpy()
        largest = (2.0 * max(order, 0.5) / (np.e * r.numpy())) ** order * half
        wrong = ~(signed >= -1e-9 * np.maximum(largest, 1e-290))
        if wrong.any():
            at = int(np.argmax(wrong))
            return WrongSign(order, float(r[at]), float(derivative[at]))
    return None


def _phi_derivatives(log_phi: LogPhi, r: tf.Tensor) -> list[tf.Tensor]:
    """φ and its first derivatives at r, by nested automatic differentiation."""
    derivatives: list[tf.Tensor] = []

    def derivative(order: int) -> tf.Tensor:
        if order == 0:
            derivatives.append(tf.exp(log_phi(r)))
            return derivatives[-1]
        with tf.GradientTape() as tape:
            tape.watch(r)
            lower = derivative(order - 1)
        gradient = tape.gradient(lower, r)
        derivatives.append(tf.zeros_like(r) if gradient is None else gradient)
        return derivatives[-1]

    derivative(_HIGHEST_DERIVATIVE)
    return derivatives
