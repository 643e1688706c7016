"""What every augmentation must satisfy; for one's own likelihoods as for the built-in ones."""

from collections.abc import Iterator

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import AnyNDArray, TensorType
from gpflow.config import default_float

from .augmentation import aug_loglik, aux_full_conditional, optimal_expected_aug_loglik
from .likelihoods import SuperGaussianLikelihood
from .likelihoods.quadrature import log_expectation
from .validation import check_finite, require

_HIGHEST_DERIVATIVE = 4


@check_shapes("Y: [N, P]")
def check_likelihood(likelihood: SuperGaussianLikelihood, Y: TensorType) -> None:
    """
    Check that a likelihood is super-Gaussian, so that augmented inference with it is right.

    That φ(0) = 1; that log φ and E[ω] are finite for any residual; that φ is completely monotone,
    by the signs of four derivatives; that ``log_phi`` takes complex arguments and is analytic;
    that β² ≤ 4αγ; that ∫ p(y|f) dy = 1 where ``is_density`` says so; that the augmented bound stays
    below E log p(y|f); that ``tilted(c)`` is the law of ω, by Bayes' rule. In float64::

        check_likelihood(Cauchy(), Y=np.linspace(-3.0, 3.0, 7)[:, None])

    :param Y: observations of the kind the likelihood is for, e.g. some training data.
    :raises ValueError: naming what fails, where, and by how much.
    """
    if not isinstance(likelihood, SuperGaussianLikelihood):
        raise ValueError(
            "likelihood must be a SuperGaussianLikelihood, whose phi is what is checked. "
            f"Found: {type(likelihood).__name__}."
        )
    if default_float() is not np.float64:
        raise ValueError(f"default_float must be float64 here. Found: {default_float()}.")
    Y = tf.cast(tf.convert_to_tensor(Y), tf.float64)
    require([check_finite("Y", Y), *likelihood.check_observations(Y)])
    failures = [
        failure
        for check in (
            _starts_at_one(likelihood),
            _finite_everywhere(likelihood),
            _completely_monotone(likelihood),
            _analytic(likelihood),
            _h_squared_non_negative(likelihood, Y),
            _integrates_to_one(likelihood, Y),
            _bound_is_below(likelihood, Y),
            _obeys_bayes(likelihood, Y),
        )
        for failure in check
    ]
    if failures:
        name = type(likelihood).__name__
        raise ValueError(f"{name} is not a valid likelihood here: " + " ".join(failures))


def _starts_at_one(likelihood: SuperGaussianLikelihood) -> Iterator[str]:
    # log φ(√·) members approach 0 as slowly as √r.
    log_phi = float(likelihood.log_phi(tf.constant(1e-30, tf.float64)))
    if not abs(log_phi) < 1e-8:
        yield f"phi(0) must be 1; log_phi(1e-30) is {log_phi:.3g}."


def _finite_everywhere(likelihood: SuperGaussianLikelihood) -> Iterator[str]:
    r = tf.constant(np.logspace(-2, 12, 15))
    for name, value in (("log_phi", likelihood.log_phi(r)), ("E[ω]", likelihood.omega_mean(r))):
        wrong = ~np.isfinite(value.numpy())
        if wrong.any():
            at = int(np.argmax(wrong))
            yield f"{name} must be finite; at r = {r.numpy()[at]:.3g} it is {value.numpy()[at]}."
            return


def phi_derivatives(likelihood: SuperGaussianLikelihood, r: TensorType) -> list[tf.Tensor]:
    """φ and its first four derivatives at r [R], each [R], by nested automatic differentiation."""

    def derivative(order: int) -> tf.Tensor:
        if order == 0:
            return tf.exp(likelihood.log_phi(r))
        with tf.GradientTape() as tape:
            tape.watch(r)
            lower = derivative(order - 1)
        gradient = tape.gradient(lower, r)
        return tf.zeros_like(r) if gradient is None else gradient

    return [derivative(order) for order in range(_HIGHEST_DERIVATIVE + 1)]


def _completely_monotone(likelihood: SuperGaussianLikelihood) -> Iterator[str]:
    """
    (−1)^k φ^(k)(r) ≥ 0 (AACI Eq. 8, Bernstein).

    If it held, (−1)^k φ^(k)(r) = ∫ ω^k e^{−rω} π(ω) dω ≤ (2k/(e r))^k φ(r/2) would too, which says
    what rounding is small against.
    """
    r = tf.constant(np.logspace(-2, 4, 61))
    phi_half = tf.exp(likelihood.log_phi(r / 2.0)).numpy()
    for k, derivative in enumerate(phi_derivatives(likelihood, r)):
        signed = (-1) ** k * derivative.numpy()
        largest = (2.0 * max(k, 0.5) / (np.e * r.numpy())) ** k * np.maximum(phi_half, 1e-300)
        wrong = ~(signed >= -1e-9 * largest)
        if wrong.any():
            at = int(np.argmax(wrong))
            yield (
                f"phi must be completely monotone; its derivative of order {k} has the wrong sign "
                f"at r = {r.numpy()[at]:.3g}, where it is {derivative.numpy()[at]:.3g}."
            )
            return


def _analytic(likelihood: SuperGaussianLikelihood) -> Iterator[str]:
    """A complex step along the imaginary axis must give the derivative that autodiff gives."""
    r = tf.constant(np.logspace(-2, 2, 9))
    step = 1e-20
    try:
        value = likelihood.log_phi(tf.complex(r, step * r)).numpy()
    except (TypeError, ValueError, tf.errors.OpError) as error:
        reason = str(error).splitlines()[0]
        yield (
            "log_phi must take complex arguments (write tf.cast(parameter, r.dtype), and log1p, "
            f"sqrt, log, expm1 rather than softplus or abs); it fails with: {reason}"
        )
        return
    real, omega_mean = likelihood.log_phi(r).numpy(), likelihood.omega_mean(r).numpy()
    if not np.allclose(value.real, real, rtol=1e-10, atol=1e-14):
        yield "log_phi must be the same function at complex and at real arguments."
    elif not np.allclose(-value.imag / (step * r.numpy()), omega_mean, rtol=1e-8):
        yield "log_phi must be analytic; its derivative along the imaginary axis is not its own."


def _h_squared_non_negative(likelihood: SuperGaussianLikelihood, Y: tf.Tensor) -> Iterator[str]:
    alpha, beta, gamma = (
        tf.broadcast_to(value, tf.shape(Y)).numpy()
        for value in (likelihood.alpha(Y), likelihood.beta(Y), likelihood.gamma(Y))
    )
    wrong = ~((gamma >= 0) & (beta**2 <= 4 * alpha * gamma * (1 + 1e-12) + 1e-300))
    if wrong.any():
        y = Y.numpy()[wrong][0]
        yield (
            f"h² must be non-negative, so gamma ≥ 0 and beta² ≤ 4 alpha gamma; at y = {y:.4g}, "
            f"alpha = {alpha[wrong][0]:.4g}, beta = {beta[wrong][0]:.4g}, "
            f"gamma = {gamma[wrong][0]:.4g}."
        )


def _integrates_to_one(likelihood: SuperGaussianLikelihood, Y: tf.Tensor) -> Iterator[str]:
    if not likelihood.is_density:
        return
    for f in (-1.3, 0.0, 0.7):
        total = _total_probability(likelihood, f)
        if not abs(total - 1.0) < 1e-6:
            yield (
                "p(y|f) must integrate to 1 over y (or set is_density = False); "
                f"at f = {f} it integrates to {total:.8g}."
            )
            return


def _total_probability(likelihood: SuperGaussianLikelihood, f: float) -> float:
    def density(y: AnyNDArray) -> AnyNDArray:
        Y = tf.constant(y[:, None])
        F = tf.fill(tf.shape(Y), tf.constant(f, tf.float64))
        return np.exp(likelihood._scalar_log_prob(F, F, Y).numpy()[:, 0])

    if likelihood.labels is not None:
        return float(np.sum(density(np.asarray(likelihood.labels, dtype=np.float64))))
    # y = f + sinh(t)·…: doubly exponential nodes reach any scale and a kink at y = f, both sides.
    t = np.linspace(-6.5, 6.5, 4001)
    distance = np.exp(np.pi / 2.0 * np.sinh(t))
    jacobian = distance * np.pi / 2.0 * np.cosh(t)
    both = density(f + distance) + density(f - distance)
    return float(np.sum(np.where(both > 0, both * jacobian, 0.0)) * (t[1] - t[0]))


def _bound_is_below(likelihood: SuperGaussianLikelihood, Y: tf.Tensor) -> Iterator[str]:
    """log C + g m + log φ(E h²) ≤ E log p(y|f), by quadrature fine enough for kinks."""
    for Fmu_value, sd in ((0.0, 0.1), (0.6, 1.0), (-1.0, 3.0)):
        Fmu = tf.fill(tf.shape(Y), tf.constant(Fmu_value, tf.float64))
        Fvar = tf.fill(tf.shape(Y), tf.constant(sd**2, tf.float64))
        bound = optimal_expected_aug_loglik(likelihood, Fmu, Fvar, Y).numpy()
        exact = _expected_log_prob(likelihood, Fmu, Fvar, Y)
        wrong = ~(bound <= exact + 1e-8 * np.maximum(1.0, np.abs(exact)))
        if wrong.any():
            y = Y.numpy()[wrong][0]
            yield (
                "the augmented bound must stay below E log p(y|f), as it does where log_phi is "
                f"convex; at y = {y:.4g}, f ~ N({Fmu_value}, {sd}²) it is {bound[wrong][0]:.8g} "
                f"against {exact[wrong][0]:.8g}."
            )
            return


def _obeys_bayes(likelihood: SuperGaussianLikelihood, Y: tf.Tensor) -> Iterator[str]:
    """log p(y, ω|f) − log p(ω|f, y) = log p(y|f) at some draws ω of the full conditional."""
    gamma = tf.broadcast_to(likelihood.gamma(Y), tf.shape(Y))
    unit = 1.0 / tf.sqrt(tf.where(gamma > 0.0, gamma, tf.ones_like(gamma)))
    F = likelihood.complete_square(Y)[0] + unit * tf.constant([[[0.3]], [[-1.0]], [[2.5]]], Y.dtype)
    try:
        conditional = aux_full_conditional(likelihood, F, Y)
        omega = conditional.sample(5, seed=[0, 1])
        joint, posterior = aug_loglik(likelihood, omega, F, Y), conditional.log_prob(omega)
    except (ValueError, tf.errors.OpError) as error:
        if type(likelihood)._tilted is SuperGaussianLikelihood._tilted:
            return  # a φ that is wrong, of which the rest speaks, or a law of ω without density
        yield f"tilted(c) must be the law of ω; it fails with: {str(error).splitlines()[0]}"
        return
    # A point mass has no density: of TiltedDistribution's it is infinite.
    point = np.isposinf(posterior)
    joint, posterior = (np.where(point, 0.0, value) for value in (joint, posterior))
    log_p = likelihood._scalar_log_prob(F, F, tf.broadcast_to(Y, tf.shape(F))).numpy()
    difference, size = joint - posterior, np.abs(joint) + np.abs(posterior)
    wrong = ~point & ~(np.abs(difference - log_p) <= 1e-5 * np.maximum(1.0, size))
    if wrong.any():
        at = tuple(np.argwhere(wrong)[0])
        f, y = F.numpy()[at[1:]], Y.numpy()[at[2:]]
        yield (
            "tilted(c) must be e^{−c²ω} π(ω|0)/φ(c²), so that log p(y, ω|f) − log p(ω|f, y) is "
            f"log p(y|f) whatever ω is; at y = {y:.4g}, f = {f:.4g}, ω = {omega.numpy()[at]:.4g} "
            f"it is {difference[at]:.8g} against {log_p[at[1:]]:.8g}."
        )


def _expected_log_prob(
    likelihood: SuperGaussianLikelihood, Fmu: tf.Tensor, Fvar: tf.Tensor, Y: tf.Tensor
) -> AnyNDArray:
    """E log p(y|f): the quadrature of log_expectation on the (positive) integrand shift − log p."""
    centre, _ = likelihood.complete_square(Y)
    peak = likelihood.log_C(Y) + tf.abs(likelihood.g(Y)) * (tf.abs(Fmu) + 40.0 * tf.sqrt(Fvar))

    def log_shortfall(F: tf.Tensor) -> tf.Tensor:
        log_p = likelihood._scalar_log_prob(F, F, tf.broadcast_to(Y, tf.shape(F)))
        return tf.math.log(peak + 1.0 - log_p)

    return (peak + 1.0 - tf.exp(log_expectation(log_shortfall, Fmu, Fvar, [centre]))).numpy()
