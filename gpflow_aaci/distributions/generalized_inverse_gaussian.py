"""The generalised inverse Gaussian distribution (Jørgensen 1982), with its limits."""

from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from .moments import WithCumulants, check_order, cumulants
from .parameters import PositiveDistribution, flat
from .rejection import rejection_sample, uniforms


class GeneralizedInverseGaussian(WithCumulants, PositiveDistribution):
    r"""
    GIG(p, a, b): density ∝ x^{p−1} e^{−(a x + b/x)/2}, x > 0.

    It is SciPy's ``geninvgauss(p, √(ab), scale=√(b/a))``. At a = 0 (which needs p < 0) it is
    InverseGamma(−p, b/2), at b = 0 (which needs p > 0) it is Gamma(p, rate a/2). Draws are exact,
    by Devroye's (2014) rejection sampler: its acceptance rate has a lower bound over all
    parameters.
    """

    def __init__(
        self,
        p: Any,
        a: Any,
        b: Any,
        validate_args: bool = False,
        allow_nan_stats: bool = True,
        name: str = "GeneralizedInverseGaussian",
    ) -> None:
        """
        :param p: finite; p, a and b broadcast to [batch...].
        :param a: finite and non-negative; positive if p ≥ 0.
        :param b: finite and non-negative; positive if p ≤ 0.
        :raises ValueError: for other values.
        """
        super().__init__(locals(), p=p, a=a, b=b)

    def _accepted(self) -> dict[str, tuple[tf.Tensor, str]]:
        p, a, b, finite = self.p, self.a, self.b, tf.math.is_finite
        a_is_good = finite(a) & ((a > 0.0) | ((a == 0.0) & (p < 0.0)))
        b_is_good = finite(b) & ((b > 0.0) | ((b == 0.0) & (p > 0.0)))
        return {
            "p": (finite(p), "finite"),
            "a": (a_is_good, "finite and positive (or 0 where p < 0)"),
            "b": (b_is_good, "finite and positive (or 0 where p > 0)"),
        }

    @classmethod
    def _parameter_properties(cls, dtype: tf.DType, num_classes: int | None = None) -> dict:
        return {name: tfp.util.ParameterProperties() for name in ("p", "a", "b")}

    def _float64(self) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """p, a and b in float64, since the variance is a small difference of moments."""
        p, a, b = (tf.cast(value, tf.float64) for value in (self.p, self.a, self.b))
        return p, a, b

    def _log_prob(self, x: tf.Tensor) -> tf.Tensor:
        p, a, b = self._float64()
        x = tf.cast(x, tf.float64)
        # a x + b/x = (√(ax) − √(b/x))² + 2√(ab); the last term cancels with the partition's.
        square = tf.square(tf.sqrt(a * x) - tf.sqrt(b / x))
        log_prob = (p - 1.0) * tf.math.log(x) - 0.5 * square - _log_partition(p, a, b)
        minus_infinity = tf.constant(-np.inf, x.dtype)
        outside = tf.where(tf.math.is_nan(x), x, minus_infinity)
        inside = (x > 0.0) & tf.math.is_finite(x)
        return tf.cast(tf.where(inside, log_prob, outside), self.dtype)

    def _moment(self, order: float) -> tf.Tensor:
        """E x^order, float64; infinite if it does not exist."""
        p, a, b = self._float64()
        return tf.exp(_log_partition(p + order, a, b) - _log_partition(p, a, b))

    def _log_normaliser(self) -> tf.Tensor:
        """log ∫ x^{p−1} e^{−(ax + b/x)/2} dx, float64."""
        p, a, b = self._float64()
        return _log_partition(p, a, b) - tf.sqrt(a * b)

    def moment(self, order: int) -> tf.Tensor:
        check_order(order)
        return tf.cast(self._moment(float(order)), self.dtype)

    def _cumulants(self, order: int) -> list[tf.Tensor]:
        """From the moments, which costs digits where √(ab) is above some thousands."""
        found = cumulants([self._moment(float(n)) for n in range(1, order + 1)])
        return [tf.cast(value, self.dtype) for value in found]

    def _mean(self) -> tf.Tensor:
        return tf.cast(self._moment(1.0), self.dtype)

    def _variance(self) -> tf.Tensor:
        second = self._moment(2.0)
        variance = tf.nn.relu(second - tf.square(self._moment(1.0)))
        return tf.cast(tf.where(tf.math.is_finite(second), variance, second), self.dtype)

    def _tails(self, x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        x = tf.cast(x, tf.float64)
        lam, omega, scale, flipped = _standard(*self._float64())
        inside = (x > 0.0) & tf.math.is_finite(x)
        log_x = tf.math.log(tf.where(inside, x, tf.ones_like(x)) / scale)
        below, above = _standard_tails(lam, omega, tf.where(flipped, -log_x, log_x))
        below, above = tf.where(flipped, above, below), tf.where(flipped, below, above)
        step = tf.where(tf.math.is_nan(x), x, tf.cast(x > 0.0, x.dtype))
        tails = tf.where(inside, below, step), tf.where(inside, above, 1.0 - step)
        return tf.cast(tails[0], self.dtype), tf.cast(tails[1], self.dtype)

    def _sample_n(self, n: tf.Tensor, seed: Any = None) -> tf.Tensor:
        seed = tfp.random.sanitize_seed(seed, salt="GeneralizedInverseGaussian")
        shape = tf.concat([[n], self.batch_shape_tensor()], axis=0)
        lam, omega, scale, flipped = _standard(*self._float64())
        rows = flat(_envelope(lam, _alpha(lam, omega)), shape)
        log_x = tf.reshape(rejection_sample(_propose, rows, seed), shape)
        return tf.cast(scale * tf.exp(tf.where(flipped, -log_x, log_x)), self.dtype)


def _log_partition(p: tf.Tensor, a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    """
    log ∫ x^{p−1} e^{−(√(ax) − √(b/x))²/2} dx = log 2 K_p(ω) e^ω + (p/2) log(b/a), ω = √(ab).

    Where a = 0 or b = 0 it is the limit, which is infinite where the integral is.
    """
    omega = tf.sqrt(a * b)
    inner = omega > 0.0
    one = tf.ones_like(omega + p)
    safe_a, safe_b = tf.where(inner, a, one), tf.where(inner, b, one)
    bessel = tfp.math.log_bessel_kve(p * one, tf.where(inner, omega, one))
    log_partition = np.log(2.0) + bessel + 0.5 * p * tf.math.log(safe_b / safe_a)
    # In the limit only the nonzero one of a and b counts; it determines the sign of p.
    rate = tf.where(b > 0.0, b, a) / 2.0
    power = tf.where(b > 0.0, -p, p)
    integrable = power > 0.0
    power = tf.where(integrable, power, one)
    rate = tf.where(inner, one, rate)
    corner = tf.math.lgamma(power) - power * tf.math.log(rate)
    corner = tf.where(integrable, corner, tf.constant(np.inf, corner.dtype))
    return tf.where(inner, log_partition, corner)


# ---- the standard form: X = scale e^u, or scale e^{−u} where flipped ----
# u has density ∝ e^ψ, ψ(u) = −α (cosh u − 1) − λ (e^u − u − 1), λ = |p|, ω = √(ab),
# α = √(ω² + λ²) − λ: log-concave with its mode at 0 (Devroye 2014, Sec. 3).


def _standard(
    p: tf.Tensor, a: tf.Tensor, b: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
    """λ, ω, scale, and whether X is flipped (p < 0: 1/X ~ GIG(−p, b, a))."""
    flipped = tf.broadcast_to(p < 0.0, tf.shape(p + a + b))
    lam, omega = tf.abs(p) + tf.zeros_like(a * b), tf.sqrt(a * b) + tf.zeros_like(p)
    mode = lam + tf.sqrt(tf.square(omega) + tf.square(lam))
    one = tf.ones_like(mode)
    return lam, omega, tf.where(flipped, b / mode, mode / tf.where(flipped, one, a)), flipped


def _alpha(lam: tf.Tensor, omega: tf.Tensor) -> tf.Tensor:
    return tf.square(omega) / (lam + tf.sqrt(tf.square(omega) + tf.square(lam)))


def _psi(u: tf.Tensor, lam: tf.Tensor, alpha: tf.Tensor) -> tf.Tensor:
    # cosh u − 1 = 2 sinh²(u/2)
    return -2.0 * alpha * tf.square(tf.sinh(u / 2.0)) - lam * (tf.math.expm1(u) - u)


def _psi_slope(u: tf.Tensor, lam: tf.Tensor, alpha: tf.Tensor) -> tf.Tensor:
    return -alpha * tf.sinh(u) - lam * tf.math.expm1(u)


def _envelope(lam: tf.Tensor, alpha: tf.Tensor) -> tuple[tf.Tensor, ...]:
    """λ, α and, of Devroye (2014, Sec. 3): t, s, η, ζ, θ, ξ."""
    one = tf.ones_like(lam)
    drop = -_psi(one, lam, alpha)
    t = tf.where(drop > 2.0, tf.sqrt(2.0 / (alpha + lam)), one)
    t = tf.where(drop < 0.5, tf.math.log(4.0 / (alpha + 2.0 * lam)), t)
    drop = -_psi(-one, lam, alpha)
    s = tf.where(drop > 2.0, tf.sqrt(4.0 / (alpha * np.cosh(1.0) + lam)), one)
    # arcosh(1 + 1/α), which is log(2/α) before 1/α² overflows.
    flat = tf.where(alpha > 1e-9, tf.acosh(1.0 + 1.0 / alpha), np.log(2.0) - tf.math.log(alpha))
    s = tf.where(drop < 0.5, tf.minimum(1.0 / lam, flat), s)
    eta, zeta = -_psi(t, lam, alpha), -_psi_slope(t, lam, alpha)
    theta, xi = -_psi(-s, lam, alpha), _psi_slope(-s, lam, alpha)
    return lam, alpha, t, s, eta, zeta, theta, xi


def _propose(seed: tf.Tensor, *envelope: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Uniform between −s' and t'; beyond them by the tangents of ψ at −s and t, [m]."""
    lam, alpha, t, s, eta, zeta, theta, xi = envelope
    t_inner, s_inner = t - eta / zeta, s - theta / xi
    middle = t_inner + s_inner
    choice, v, w = tf.unstack(uniforms(3, lam, seed))
    choice *= 1.0 / xi + middle + 1.0 / zeta
    inside, right = choice < middle, choice < middle + 1.0 / zeta
    log_v = tf.math.log(v)
    beyond = tf.where(right, t_inner - log_v / zeta, -s_inner + log_v / xi)
    u = tf.where(inside, middle * v - s_inner, beyond)
    log_envelope = tf.where(right, -eta - zeta * (u - t), -theta + xi * (u + s))
    log_envelope = tf.where(inside, tf.zeros_like(u), log_envelope)
    return u, tf.math.log(w) + log_envelope <= _psi(u, lam, alpha)


_NEGLIGIBLE = 60.0  # where the density is e^−60 of its maximum, the tails are left out
_EDGES = np.concatenate(
    [[0.0], 2.0 ** np.arange(-7, 0), 1.0 - 2.0 ** np.arange(-2.0, -8.0, -1), [1.0]]
)
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)


def _standard_tails(lam: tf.Tensor, omega: tf.Tensor, u: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """
    ∫ e^ψ below and above u, normalised: [...] each.

    They are computed by Gauss-Legendre rules on panels that are cut at u. The panels become
    shorter towards the mode and towards the far end: for small λ and α, e^ψ is flat in between, and
    at the far end it falls like e^{−e^u}.
    """
    shape = tf.broadcast_dynamic_shape(tf.shape(u), tf.shape(lam))
    lam, omega, u = (tf.broadcast_to(value, shape) for value in (lam, omega, u))
    alpha = _alpha(lam, omega)
    edges, nodes, weights = (tf.constant(v, u.dtype) for v in (_EDGES, _NODES, _WEIGHTS))
    right = _reach(lam, alpha, 1.0)[..., None] * edges
    left = _reach(lam, alpha, -1.0)[..., None] * edges[:0:-1]
    points = tf.concat([-left, right], axis=-1)
    cut = u[..., None]

    def integral(points: tf.Tensor) -> tf.Tensor:
        half = (points[..., 1:] - points[..., :-1]) / 2.0
        middle = (points[..., 1:] + points[..., :-1]) / 2.0
        at = middle[..., None] + half[..., None] * nodes
        density = tf.exp(_psi(at, lam[..., None, None], alpha[..., None, None]))
        return tf.reduce_sum(half * tf.linalg.matvec(density, weights), axis=-1)

    below = integral(tf.minimum(points, cut))
    above = integral(tf.maximum(points, cut))
    return below / (below + above), above / (below + above)


def _reach(lam: tf.Tensor, alpha: tf.Tensor, side: float) -> tf.Tensor:
    """u > 0 beyond which ψ(±u) < −60, by bisection from above; ψ is concave."""
    total = alpha + lam
    furthest = tf.where(
        total > 1.0, tf.sqrt(2.0 * _NEGLIGIBLE / total), 6.0 + _NEGLIGIBLE - tf.math.log(total)
    )
    if side < 0.0:
        by_lam = tf.where(lam > 0.0, 1.0 + _NEGLIGIBLE / lam, tf.constant(np.inf, lam.dtype))
        furthest = tf.minimum(by_lam, tf.acosh(1.0 + _NEGLIGIBLE / alpha))
    lower, upper = tf.zeros_like(furthest), furthest
    for _ in range(30):
        middle = (lower + upper) / 2.0
        counts = _psi(side * middle, lam, alpha) > -_NEGLIGIBLE
        lower, upper = tf.where(counts, middle, lower), tf.where(counts, upper, middle)
    return upper
