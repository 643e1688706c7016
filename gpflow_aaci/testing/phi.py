"""
Checks of φ and h² of a super-Gaussian likelihood (AACI Eq. 4, 5 and 8).

Each check yields a message if the likelihood fails it, and nothing otherwise.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from ..likelihoods import SuperGaussianLikelihood
from ..likelihoods.monotone import first_wrong_sign

# Arguments r of φ, from the floor that inference puts under c² to more than any squared residual.
_R = np.logspace(-15, 12, 541)


class Phi(NamedTuple):
    """φ of a likelihood as a function of r alone, at one y."""

    log_phi: Callable[[tf.Tensor], tf.Tensor]  # of r [...]
    omega_mean: Callable[[tf.Tensor], tf.Tensor]  # E[ω] = −d log φ/dr of r [n]


def every_phi(likelihood: SuperGaussianLikelihood, Y: tf.Tensor) -> list[Phi]:
    """The different φ at three y [1, P]: the first, middle and last of the sorted rows of Y."""
    rows, r = np.unique(Y.numpy(), axis=0), tf.constant(_R)
    phis: list[Phi] = []
    for row in sorted({0, len(rows) // 2, len(rows) - 1}):
        phi = _phi_at(likelihood, tf.constant(rows[[row]]))
        values = phi.log_phi(r).numpy()
        known = [other.log_phi(r).numpy() for other in phis]
        if not any(np.array_equal(values, other, equal_nan=True) for other in known):
            phis.append(phi)
    return phis


def _phi_at(likelihood: SuperGaussianLikelihood, y: tf.Tensor) -> Phi:
    def log_phi(r: tf.Tensor) -> tf.Tensor:
        return tf.reshape(likelihood.log_phi(tf.reshape(r, [-1, 1]), y)[:, 0], tf.shape(r))

    def omega_mean(r: tf.Tensor) -> tf.Tensor:
        return likelihood.omega_mean(tf.reshape(r, [-1, 1]), y)[:, 0]

    return Phi(log_phi, omega_mean)


def starts_at_one(phi: Phi) -> Iterator[str]:
    """φ(0) = 1 and φ ≤ 1 elsewhere."""
    # Of r = 1e-30, as log φ of some likelihoods approaches 0 as slowly as −√r.
    log_phi = float(phi.log_phi(tf.constant(1e-30, tf.float64)))
    if not abs(log_phi) < 1e-8:
        yield f"phi(0) must be 1; log_phi(1e-30) is {log_phi:.3g}."
    rest = phi.log_phi(tf.constant(_R)).numpy()
    if (rest > max(log_phi, 0.0) + 1e-8).any():
        at = int(np.nanargmax(rest))
        yield f"phi must be at most 1; at r = {_R[at]:.3g}, log_phi is {rest[at]:.3g}."


def finite_everywhere(phi: Phi) -> Iterator[str]:
    """log φ and E[ω] are finite at all r."""
    r = tf.constant(_R)
    for name, value in (("log_phi", phi.log_phi(r)), ("E[ω]", phi.omega_mean(r))):
        wrong = ~np.isfinite(value.numpy())
        if wrong.any():
            at = int(np.argmax(wrong))
            yield f"{name} must be finite; at r = {_R[at]:.3g} it is {value.numpy()[at]}."
            return


def completely_monotone(phi: Phi) -> Iterator[str]:
    """(−1)^k φ^(k)(r) ≥ 0 (AACI Eq. 8, Bernstein)."""
    wrong = first_wrong_sign(phi.log_phi, tf.constant(_R))
    if wrong is not None:
        yield (
            f"phi must be completely monotone; its derivative of order {wrong.order} has the wrong "
            f"sign at r = {wrong.r:.3g}, where it is {wrong.value:.3g}."
        )


def analytic(phi: Phi) -> Iterator[str]:
    """The derivative of log φ by a small imaginary step is the one by automatic differentiation."""
    r = tf.constant(np.logspace(-2, 2, 9))
    step = 1e-20
    try:
        value = phi.log_phi(tf.complex(r, step * r)).numpy()
    except (TypeError, ValueError, tf.errors.OpError) as error:
        reason = str(error).splitlines()[0]
        yield (
            "log_phi must take complex arguments (write tf.cast(parameter, r.dtype), and log1p, "
            f"sqrt, log, expm1 rather than softplus or abs); it fails with: {reason}"
        )
        return
    real, omega_mean = phi.log_phi(r).numpy(), phi.omega_mean(r).numpy()
    if not np.allclose(value.real, real, rtol=1e-10, atol=1e-14):
        yield "log_phi must be the same function at complex and at real arguments."
    elif not np.allclose(-value.imag / (step * r.numpy()), omega_mean, rtol=1e-8):
        yield "log_phi must be analytic; its derivative along the imaginary axis is not its own."


def h_squared_non_negative(likelihood: SuperGaussianLikelihood, Y: tf.Tensor) -> Iterator[str]:
    """h² = α − βf + γf² is non-negative for every f."""
    coefficients = likelihood.alpha(Y), likelihood.beta(Y), likelihood.gamma(Y)
    like = sum(tf.zeros_like(value) for value in coefficients)
    alpha, beta, gamma = (tf.broadcast_to(v, tf.shape(like)).numpy() for v in coefficients)
    wrong = ~((gamma >= 0) & (beta**2 <= 4 * alpha * gamma * (1 + 1e-12) + 1e-300))
    if wrong.any():
        y = Y.numpy()[wrong.any(-1)][0, 0]
        yield (
            f"h² must be non-negative, so gamma ≥ 0 and beta² ≤ 4 alpha gamma; at y = {y:.4g}, "
            f"alpha = {alpha[wrong][0]:.4g}, beta = {beta[wrong][0]:.4g}, "
            f"gamma = {gamma[wrong][0]:.4g}."
        )
