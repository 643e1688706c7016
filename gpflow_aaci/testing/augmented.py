"""
Checks of p(y, ω|f) for any likelihood with a single ω per output.

Each check yields a message if the likelihood fails it, and nothing otherwise.
"""

from collections.abc import Callable, Iterator

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray, TensorType

from ..augmentation import (
    aug_loglik,
    auglik_potential_and_precision,
    aux_full_conditional,
    aux_kldivergence,
    aux_posterior_c,
    aux_posterior_mean,
    expected_logtilt,
    logtilt,
    optimal_expected_aug_loglik,
    with_one_omega,
)
from ..likelihoods import SuperGaussianLikelihood
from ..likelihoods.integrals.quadrature import log_expectation
from ..likelihoods.outputwise import OutputwiseLikelihood

_MARGINALS = ((0.0, 0.1), (0.6, 1.0), (-1.0, 3.0))  # means and standard deviations of f


def _centre(likelihood: OutputwiseLikelihood, Y: tf.Tensor) -> tf.Tensor:
    """An f about which p(y|f) may be kinked or narrow; 0 where no such f is known."""
    return _kinks(likelihood, Y)[0]


def _steps(likelihood: OutputwiseLikelihood, Y: tf.Tensor) -> tf.Tensor:
    """Three distances from the centre, [3, N, P], at which a super-Gaussian h² is about 1."""
    unit = tf.ones_like(_centre(likelihood, Y))
    if isinstance(likelihood, SuperGaussianLikelihood):
        gamma = likelihood.gamma(Y) * unit
        unit = 1.0 / tf.sqrt(tf.where(gamma > 0.0, gamma, unit))
    return unit * tf.constant([[[0.3]], [[-1.0]], [[2.5]]], Y.dtype)


def _width(likelihood: OutputwiseLikelihood, Y: tf.Tensor) -> tf.Tensor:
    """The distance from the centre at which log p(y|f) is smaller by 1, on either side."""
    log_prob, centre = _log_prob(likelihood, Y), _centre(likelihood, Y)
    steps = np.logspace(-12, 12, 97)
    away = tf.constant(steps[:, None, None])
    lower = tf.minimum(log_prob(centre + away), log_prob(centre - away))
    fallen = (lower < log_prob(centre) - 1.0).numpy()
    fallen[-1] = True  # the largest distance, where log p(y|f) never falls so far
    return tf.constant(steps[np.argmax(fallen, axis=0)])


def finite_law(likelihood: OutputwiseLikelihood, Y: tf.Tensor) -> Iterator[str]:
    """E[ω] > 0 and KL[q ‖ π] are finite for q(ω) at very small and very large f."""
    f = np.logspace(-3, 6, 19)
    F = tf.constant(np.concatenate([-f, f])[:, None, None])
    F += tf.zeros_like(_centre(likelihood, Y))
    F, Y = tf.reshape(F, [-1, F.shape[-1]]), tf.reshape(_repeated(Y, F), [-1, Y.shape[-1]])
    c = aux_posterior_c(likelihood, F, tf.zeros_like(F), Y)
    mean, kl = (verb(likelihood, c, Y).numpy() for verb in (aux_posterior_mean, aux_kldivergence))
    for name, accepted, value, right in (
        ("aux_kldivergence", "finite", kl, np.isfinite(kl)),
        ("aux_posterior_mean", "finite and positive", mean, np.isfinite(mean) & (mean > 0.0)),
    ):
        if not right.all():
            actual = f"at c = {c.numpy()[~right][0]:.4g} it is {value[~right][0]:.4g}"
            yield f"{name} must be {accepted}; {actual}."


def pieces_agree(likelihood: OutputwiseLikelihood, Y: tf.Tensor) -> Iterator[str]:
    """All methods of the likelihood describe the same p(y, ω|f) = e^{offset + ηω} π(ω)."""
    known, steps = with_one_omega(likelihood), _steps(likelihood, Y)
    for F in tf.unstack(steps):  # not about a large Y, so that rounding errors are small
        zero, one = tf.zeros_like(F), tf.ones_like(F)
        # For f ~ N(F, F²), the expectation of a quadratic is the mean of its values at F ± F.
        above, below = (known.expected_logtilt(one, at, zero, Y) for at in (2.0 * F, zero))
        stated, mean = known.expected_logtilt(one, F, tf.square(F), Y), (above + below) / 2.0
        statement = "expected_logtilt must be the expectation under f of its values at Fvar = 0"
        yield from _equal(statement, "f", F, stated, mean, above, below)

        variance = tf.square(F)
        c = aux_posterior_c(likelihood, F, variance, Y)
        log_tilt, kl = (
            expected_logtilt(likelihood, c, F, variance, Y),
            aux_kldivergence(likelihood, c, Y),
        )
        bound = optimal_expected_aug_loglik(likelihood, F, variance, Y)
        statement = "expected_logtilt less aux_kldivergence, at aux_posterior_c, must be the bound"
        yield from _equal(statement, "f", F, log_tilt - kl, bound, log_tilt, kl)

        potential, precision = auglik_potential_and_precision(likelihood, one, Y)
        linear, square = potential * F, 0.5 * precision * tf.square(F)
        at_f, at_0 = logtilt(likelihood, one, F, Y), logtilt(likelihood, one, zero, Y)
        statement = "site must be the potential and precision of logtilt in f"
        yield from _equal(
            statement, "f", F, linear - square, at_f - at_0, linear, square, at_f, at_0
        )


def _equal(
    statement: str,
    variable: str,
    values: tf.Tensor,
    found: tf.Tensor,
    expected: tf.Tensor,
    *terms: tf.Tensor,
) -> Iterator[str]:
    """Check that ``found`` is ``expected``, the sum of ``terms``, to 1e-6 of the largest term."""
    size = np.max(np.abs([term.numpy() for term in terms]), axis=0)
    wrong = ~(np.abs(found - expected) <= 1e-6 * size)
    if wrong.any():
        pair = f"{found.numpy()[wrong][0]:.8g} against {expected.numpy()[wrong][0]:.8g}"
        yield f"{statement}; at {variable} = {values.numpy()[wrong][0]:.4g} it is {pair}."


def integrates_to_one(likelihood: OutputwiseLikelihood, Y: tf.Tensor) -> Iterator[str]:
    """∫ p(y|f) dy = 1, or Σ_y p(y|f) = 1 if y is discrete."""
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


def _total_probability(likelihood: OutputwiseLikelihood, f: float) -> float:
    """The integral of p(y|f) over y, or the sum over the outcomes of a discrete y."""

    def density(Y: TensorType) -> AnyNDArray:
        F = tf.fill([len(Y), 1], tf.constant(f, tf.float64))
        return np.exp(likelihood.pointwise_log_prob(F, F, tf.convert_to_tensor(Y)).numpy()[:, 0])

    def density_of_real(z: AnyNDArray) -> AnyNDArray:
        """p(y|f) dy/dz at the y of a real z; 0 where y has underflowed."""
        z = tf.constant(z[:, None])
        with tf.GradientTape() as tape:
            tape.watch(z)
            y = likelihood.in_support(z)
        p = density(likelihood.as_observed(y)) * tape.gradient(y, z).numpy()[:, 0]
        return np.where(p > 0.0, p, 0.0)

    outcomes = likelihood.outcomes()
    if outcomes is not None:
        return float(np.sum(density(outcomes)))
    # The nodes z = f ± exp(π/2 sinh t) resolve every scale on both sides of a kink at y = f.
    t = np.linspace(-6.5, 6.5, 4001)
    distance = np.exp(np.pi / 2.0 * np.sinh(t))
    jacobian = distance * np.pi / 2.0 * np.cosh(t)
    both = density_of_real(f + distance) + density_of_real(f - distance)
    return float(np.sum(np.where(both > 0, both * jacobian, 0.0)) * (t[1] - t[0]))


def predicts_its_expectation(likelihood: OutputwiseLikelihood, Y: tf.Tensor) -> Iterator[str]:
    """predictive_log_density is log E p(y|f), by quadrature, unless p is not a density in y."""
    if not likelihood.is_density:
        return
    centre, width = _centre(likelihood, Y), _width(likelihood, Y)
    for shift, sd in _MARGINALS:
        Fmu, Fvar = centre + shift * width, tf.square(sd * width)
        stated = likelihood.predictive_log_density(Fmu, Fmu, Fvar, Y).numpy()
        exact = log_expectation(_log_prob(likelihood, Y), Fmu, Fvar, _kinks(likelihood, Y)).numpy()
        wrong = ~(np.abs(stated - exact) <= 1e-5 * np.maximum(1.0, np.abs(exact)))
        # For larger means, rounding f changes log p(y|f) by more than the tolerance.
        wrong &= (tf.abs(Fmu) < 1e6 * width).numpy()
        if wrong.any():
            at = tuple(np.argwhere(wrong)[0])
            mean, variance = Fmu.numpy()[at], Fvar.numpy()[at]
            yield (
                "predictive_log_density must be log E p(y|f) (or set is_density = False); "
                f"at y = {Y.numpy()[at[0], 0]:.4g}, f ~ N({mean:.4g}, {variance:.4g}) "
                f"it is {stated[at]:.8g} against {exact[at]:.8g}."
            )
            return


def bound_is_below(likelihood: OutputwiseLikelihood, Y: tf.Tensor) -> Iterator[str]:
    """The augmented bound is at most E log p(y|f), by quadrature that resolves kinks."""
    reason = ""
    if isinstance(likelihood, SuperGaussianLikelihood):
        reason = ", as it does where log_phi is convex"
    for Fmu_value, sd in _MARGINALS:
        Fmu = Fmu_value + tf.zeros_like(_centre(likelihood, Y))
        Fvar = sd**2 + tf.zeros_like(Fmu)
        bound = optimal_expected_aug_loglik(likelihood, Fmu, Fvar, Y).numpy()
        exact = _expected_log_prob(likelihood, Fmu, Fvar, Y)
        wrong = ~(bound <= exact + 1e-8 * np.maximum(1.0, np.abs(exact)))
        if wrong.any():
            y = Y.numpy()[wrong.any(-1)][0, 0]
            yield (
                f"the augmented bound must stay below E log p(y|f){reason}; at y = {y:.4g}, "
                f"f ~ N({Fmu_value}, {sd}²) it is {bound[wrong][0]:.8g} "
                f"against {exact[wrong][0]:.8g}."
            )
            return


def obeys_bayes(likelihood: OutputwiseLikelihood, Y: tf.Tensor) -> Iterator[str]:
    """log p(y, ω|f) − log p(ω|f, y) = log p(y|f) for ω drawn from the full conditional."""
    F = _centre(likelihood, Y) + _steps(likelihood, Y)
    law = "e^{ηω} π(ω)/Z(η), η the function of c that it is"
    if isinstance(likelihood, SuperGaussianLikelihood):
        law = "e^{−c²ω} π(ω|0)/φ(c²)"
    try:
        conditional = aux_full_conditional(likelihood, F, Y)
        omega = conditional.sample(5, seed=[0, 1])
        joint, posterior = aug_loglik(likelihood, omega, F, Y), conditional.log_prob(omega)
    except (ValueError, tf.errors.OpError) as error:
        own_law = getattr(type(likelihood), "_tilted", None)
        if own_law is SuperGaussianLikelihood._tilted:
            return  # φ is wrong, which other checks report, or the law of ω has no density
        reason = str(error).splitlines()[0]
        yield f"tilted(c) must be the distribution of ω; it fails with: {reason}"
        return
    # A point mass has no density; TiltedDistribution returns infinity for it.
    point = np.isposinf(posterior)
    joint, posterior = (np.where(point, 0.0, value) for value in (joint, posterior))
    log_p = _log_prob(likelihood, Y)(F).numpy()
    difference, size = joint - posterior, np.abs(joint) + np.abs(posterior)
    wrong = ~point & ~(np.abs(difference - log_p) <= 1e-5 * np.maximum(1.0, size))
    if wrong.any():
        at = tuple(np.argwhere(wrong)[0])
        f, y = F.numpy()[at[1:]], Y.numpy()[at[2], 0]
        yield (
            f"tilted(c) must be {law}, so that log p(y, ω|f) − log p(ω|f, y) is "
            f"log p(y|f) whatever ω is; at y = {y:.4g}, f = {f:.4g}, ω = {omega.numpy()[at]:.4g} "
            f"it is {difference[at]:.8g} against {log_p[at[1:]]:.8g}."
        )


def _expected_log_prob(
    likelihood: OutputwiseLikelihood, Fmu: tf.Tensor, Fvar: tf.Tensor, Y: tf.Tensor
) -> AnyNDArray:
    """E log p(y|f) = d/dt log E p(y|f)^t at t = 0."""
    log_prob, kinks = _log_prob(likelihood, Y), _kinks(likelihood, Y)
    t = tf.zeros_like(Fmu)
    with tf.GradientTape() as tape:
        tape.watch(t)
        log_mean = log_expectation(lambda F: t * log_prob(F), Fmu, Fvar, kinks)
    return tape.gradient(log_mean, t).numpy()


def _log_prob(likelihood: OutputwiseLikelihood, Y: tf.Tensor) -> Callable[[tf.Tensor], tf.Tensor]:
    """log p(y|f) as a function of f [..., N, P]."""
    return lambda F: likelihood.pointwise_log_prob(F, F, _repeated(Y, F))


def _repeated(Y: tf.Tensor, F: tf.Tensor) -> tf.Tensor:
    """Y [..., N, P], repeated along the leading dimensions of F."""
    return tf.broadcast_to(Y, tf.concat([tf.shape(F)[:-1], tf.shape(Y)[-1:]], 0))


def _kinks(likelihood: OutputwiseLikelihood, Y: tf.Tensor) -> list[tf.Tensor]:
    """The f about which log p(y|f) may be kinked or narrow, where quadrature places nodes."""
    return [*likelihood.peaks(Y)] or [tf.zeros_like(Y)]
