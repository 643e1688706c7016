"""Special functions that remain accurate where the plain formula loses digits or overflows."""

from collections.abc import Callable

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import TensorType

# ---- log φ of the built-in likelihoods ----


def _tanh_coefficients(order: int) -> list[float]:
    """The a_k of tanh(z)/z = Σ a_k z^{2k}: (2k+1) a_k = [k=0] − Σ a_i a_{k−1−i}."""
    a: list[float] = []
    for k in range(order):  # compare the coefficients of z^{2k} in tanh' = 1 − tanh²
        convolution = sum(a[i] * a[k - 1 - i] for i in range(k))
        a.append(((k == 0) - convolution) / (2 * k + 1))
    return a


# The radius of convergence in x = z² is π²/4: at x = 0.25 the 22nd term is below 1e-20.
_TANH_COEFFICIENTS = _tanh_coefficients(22)
_LOG_COSH_COEFFICIENTS = [a / (2 * k + 2) for k, a in enumerate(_TANH_COEFFICIENTS)]
_SERIES_BELOW = 0.25


@tf.custom_gradient
def log_sech_sqrt(x: TensorType) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
    """
    log(1/cosh √x) of real or complex x, with derivatives of every order at x = 0.

    The function is analytic at 0, although √x is not. It is a series in x near 0, and elsewhere
    −√x + log 2 − log1p(e^{−2√x}), which cannot overflow. Its derivative is −tanh(√x)/(2√x).
    """
    small, x_small, x_large = _about_zero(x)
    coefficients = [tf.constant(c, x.dtype) for c in reversed(_LOG_COSH_COEFFICIENTS)]
    series = -x_small * tf.math.polyval(coefficients, x_small)
    s = tf.sqrt(x_large)
    log_2 = tf.constant(np.log(2.0), x.dtype)

    def grad(dy: tf.Tensor) -> tf.Tensor:
        # TensorFlow's gradient of an analytic function is the conjugate of its derivative.
        return -0.5 * dy * tf.math.conj(_tanh_ratio(x))

    return tf.where(small, series, log_2 - s - tf.math.log1p(tf.exp(-2.0 * s))), grad


def _tanh_ratio(x: tf.Tensor) -> tf.Tensor:
    """tanh(√x)/√x, with derivatives of every order at x = 0."""
    small, x_small, x_large = _about_zero(x)
    coefficients = [tf.constant(a, x.dtype) for a in reversed(_TANH_COEFFICIENTS)]
    s = tf.sqrt(x_large)
    e = tf.exp(-2.0 * s)
    return tf.where(small, tf.math.polyval(coefficients, x_small), (1.0 - e) / ((1.0 + e) * s))


def _about_zero(x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Where the series holds, and x there and elsewhere, with another value in the other places."""
    small = tf.abs(x) < _SERIES_BELOW
    return small, tf.where(small, x, tf.zeros_like(x)), tf.where(small, tf.ones_like(x), x)


def log_2cosh_half_sqrt(x: TensorType) -> tf.Tensor:
    """log 2cosh(√x/2), with derivatives of every order at x = 0."""
    return np.log(2.0) - log_sech_sqrt(x / 4.0)


_LOG1P_SERIES_BELOW = 0.25
_ATANH_COEFFICIENTS = [1.0 / (2 * k + 3) for k in range(12)]


def _log1p_minus(w: TensorType) -> tf.Tensor:
    """
    log(1+w) − w for |w| < 0.3, without cancellation.

    With t = w/(2+w), log(1+w) = 2 artanh t, hence −w t + 2t³(1/3 + t²/5 + …).
    """
    t = w / (2.0 + w)
    coefficients = [tf.constant(c, w.dtype) for c in reversed(_ATANH_COEFFICIENTS)]
    return -w * t + 2.0 * t**3 * tf.math.polyval(coefficients, t * t)


def _log_matern32(s: TensorType) -> tf.Tensor:
    """log φ of the Matérn-3/2 family, log1p(s) − s, by a series near 0, where the terms cancel."""
    small = tf.abs(s) < _LOG1P_SERIES_BELOW
    series = _log1p_minus(tf.where(small, s, tf.zeros_like(s)))
    return tf.where(small, series, tf.math.log1p(s) - s)


def _matern_ratios(s: TensorType, x: TensorType, order: int) -> list[tf.Tensor]:
    """
    R_ν = K_{ν−1}(s)/(s K_ν(s)) for ν = 3/2, 5/2, …, order + ½; x = s².

    As K_{ν+1}(s) = K_{ν−1}(s) + (2ν/s) K_ν(s), R_{ν+1} = 1/(2ν + x R_ν), starting with R_{3/2} =
    1/(1 + s). All terms are positive, so that nothing cancels. For ν > 3/2, R_ν has a derivative in
    x at x = 0, although s has none.
    """
    ratios = [1.0 / (1.0 + s)]
    for k in range(1, order):
        ratios.append(1.0 / ((2 * k + 1) + x * ratios[-1]))
    return ratios[:order]


def log_matern(x: TensorType, order: int) -> tf.Tensor:
    """
    log [2^{1−ν}/Γ(ν) s^ν K_ν(s)] as a function of x = s², with ν = order + ½; x may be complex.

    For order 0 it is −s. Otherwise it is log1p(s) − s + Σ log1p(s² R_ν/2ν), summed over ν = 3/2 …
    order − ½, with R_ν of ``_matern_ratios``. The derivative in x is −R_ν/2, without cancellation.
    """

    @tf.custom_gradient
    def of_square(x: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
        s = tf.sqrt(x)
        steps = [
            tf.math.log1p(x * ratio / (2 * k + 1))
            for k, ratio in enumerate(_matern_ratios(s, x, order - 1), start=1)
        ]

        def grad(dy: tf.Tensor) -> tf.Tensor:
            # TensorFlow's gradient of an analytic function is the conjugate of its derivative.
            return -0.5 * dy * tf.math.conj(_matern_ratios(tf.sqrt(x), x, order)[-1])

        return tf.add_n([_log_matern32(s), *steps]), grad

    return -tf.sqrt(x) if order == 0 else of_square(x)


def log_mixture(log_p: list[tf.Tensor], log_phis: list[tf.Tensor]) -> tf.Tensor:
    """
    log Σ p_k φ_k for probabilities p_k [] and real or complex φ_k with φ_k(0) = 1.

    Where the sum is near 1 it is computed as log1p Σ p_k (φ_k − 1), which is accurate as φ_k → 1.
    """
    r_dtype = log_phis[0].dtype
    log_p = [tf.cast(each, r_dtype) for each in log_p]
    terms = [tf.exp(a) * tf.math.expm1(b) for a, b in zip(log_p, log_phis, strict=True)]
    fallen = tf.add_n(terms)
    near = tf.abs(fallen) < 0.5
    inner = tf.math.log1p(tf.where(near, fallen, tf.zeros_like(fallen)))

    # Elsewhere it is a log-sum-exp; the largest exponent is treated as a constant.
    exponents = [a + b for a, b in zip(log_p, log_phis, strict=True)]
    largest = tf.reduce_max(tf.stack([tf.math.real(e) for e in exponents]), axis=0)
    largest = tf.cast(tf.stop_gradient(largest), r_dtype)
    total = tf.add_n([tf.exp(e - largest) for e in exponents])
    outer = largest + tf.math.log(tf.where(near, tf.ones_like(total), total))
    return tf.where(near, inner, outer)


# ---- N(z, 1) truncated to positive values, for any z ----

_TAIL_BEYOND = 6.0
_TAIL_TERMS = 20  # of the continued fraction; its error is then 1e-16 at x = 6


def _positive_normal(z: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """
    The mean z + N/Φ and variance 1 − mean · N/Φ of N(z, 1) truncated to positive values.

    N and Φ are the standard normal density and cdf at z. For z = −x ≪ 0 both formulas cancel. There
    Laplace's continued fraction of Mills' ratio Φ(−x)/N(x) gives mean = 1/(x + t), where
    t = 2/(x + 3/(x + 4/…)), and so variance = mean · (t − mean).
    """
    tail = z < -_TAIL_BEYOND
    x = tf.where(tail, -z, _TAIL_BEYOND * tf.ones_like(z))
    t = tf.zeros_like(x)
    for k in range(_TAIL_TERMS, 1, -1):
        t = k / (x + t)
    mean = 1.0 / (x + t)
    variance = mean * (t - mean)

    # N/Φ uses erfcx for z ≤ 0, where e^{−z²/2}/erfc would lose digits; for z > 0 erfcx overflows.
    left, right = tf.where(tail, tf.zeros_like(z), tf.nn.relu(-z)), tf.nn.relu(z)
    below = np.sqrt(2.0 / np.pi) / tfp.math.erfcx(left / np.sqrt(2.0))
    above = np.sqrt(2.0 / np.pi) * tf.exp(-0.5 * tf.square(right))
    above /= tf.math.erfc(-right / np.sqrt(2.0))
    plain = tf.where(z > 0.0, above, below)
    near = tf.where(tail, tf.zeros_like(z), z) + plain
    return tf.where(tail, mean, near), tf.where(tail, variance, 1.0 - near * plain)


def positive_normal_variance(z: TensorType) -> tf.Tensor:
    """Var[ω] of ω ~ N(z, 1) given ω > 0."""
    return _positive_normal(z)[1]


@tf.custom_gradient
def positive_normal_mean(z: TensorType) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
    """E[ω] = z + N(z)/Φ(z) of ω ~ N(z, 1) given ω > 0; its derivative is the variance."""
    return _positive_normal(z)[0], lambda upstream: upstream * positive_normal_variance(z)


@tf.custom_gradient
def log_half_normal_transform(
    z: TensorType,
) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
    """log E e^{zω} = ½z² + log 2Φ(z) of half-normal ω, with derivative ``positive_normal_mean``."""
    left, right = tf.nn.relu(-z), tf.nn.relu(z)  # TFP's logerfcx would lose a NaN
    below = tf.math.log(tfp.math.erfcx(left / np.sqrt(2.0)))
    above = 0.5 * tf.square(right) + tf.math.log(tf.math.erfc(-right / np.sqrt(2.0)))
    transform = tf.where(z > 0.0, above, below)
    return transform, lambda upstream: upstream * positive_normal_mean(z)


@tf.custom_gradient
def log_ndtr(z: TensorType) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
    """
    log Φ(z), with a small relative error also for large z, where it is close to 0.

    It is computed from erfc, and its derivative is N(z)/Φ(z). For z far below 0, where erfc would
    underflow, it uses Φ(−x)/N(x) = x/(x² + 1 − 2/(x² + 5 − 12/(x² + 9 − …))).
    """
    far = tf.constant(20.0 if z.dtype == tf.float64 else 8.0, z.dtype)
    is_tail, is_right = z < -far, z > 0.0
    near, x = tf.maximum(z, -far), tf.maximum(-z, far)
    square = tf.square(x)
    mills = 1.0 / (x + (1.0 - 2.0 / (square + 5.0 - 12.0 / (square + 9.0))) / x)  # 0 at infinity
    upper = 0.5 * tf.math.erfc(tf.where(is_right, near, -near) / np.sqrt(2.0))  # Φ(−|z|)
    plain = tf.where(is_right, 1.0 - upper, upper)
    ratio = tf.where(is_tail, mills, plain)  # Φ(z), divided by N(z) in the tail
    log_normal = -0.5 * square - 0.5 * np.log(2.0 * np.pi)
    below = tf.math.log(ratio) + tf.where(is_tail, log_normal, tf.zeros_like(z))

    def grad(upstream: tf.Tensor) -> tf.Tensor:
        normal = tf.exp(-0.5 * tf.square(near)) / np.sqrt(2.0 * np.pi)
        return upstream * tf.where(is_tail, tf.ones_like(z), normal) / ratio

    return tf.where(is_right, tf.math.log1p(-upper), below), grad


_NARROW = 0.03  # with width and middle · width below it, the expansion errs by less than 1e-9


def log_difference(
    log_a: TensorType, log_b: TensorType, middle: TensorType, width: TensorType
) -> tf.Tensor:
    """
    log(Φ(b) − Φ(a)) from both logarithms.

    As b → a their difference loses its digits. It is replaced by the expansion
    log(width N(middle)) + (middle² − 1) width²/24 + …

    :param middle: (a + b)/2.
    :param width: b − a > 0.
    """
    is_narrow = (width < _NARROW) & (width * tf.abs(middle) < _NARROW)
    gap = tf.minimum(log_a - log_b, -_NARROW / 3.0)  # it is below that unless narrow
    plain = log_b + tf.math.log(-tf.math.expm1(gap))
    width = tf.where(width < _NARROW, width, _NARROW * tf.ones_like(width))
    of_width = tf.math.log(width) - 0.5 * np.log(2.0 * np.pi) - tf.square(width) / 24.0
    narrow = of_width + (tf.square(width) / 24.0 - 0.5) * tf.square(middle)
    return tf.where(is_narrow, narrow, plain)


def log_ndtr_between(
    low: TensorType, high: TensorType, width: TensorType | None = None
) -> tf.Tensor:
    """
    log(Φ(high) − Φ(low)) for low < high, with a small relative error in either tail.

    Where an end is infinite, derivatives in it are 0.

    :param width: high − low, if it is known to more digits than the ends; finite.
    """
    # An interval above 0 is mirrored: Φ(high) − Φ(low) = Φ(−low) − Φ(−high).
    is_above = low > 0.0
    a, b = tf.where(is_above, -high, low), tf.where(is_above, -low, high)
    has_a, has_b = tf.math.is_finite(a), tf.math.is_finite(b)
    a, b = tf.where(has_a, a, tf.zeros_like(a)), tf.where(has_b, b, tf.zeros_like(b))
    log_b = tf.where(has_b, log_ndtr(b), tf.zeros_like(b))
    log_a = tf.where(has_a, log_ndtr(a), log_b - 1.0)
    width = tf.where(has_a & has_b, b - a if width is None else width, tf.ones_like(a))
    log_p = log_difference(log_a, log_b, 0.5 * (a + b), width)
    return tf.where(has_a, log_p, log_b)


def log_normal_between(
    low: TensorType, high: TensorType, loc: TensorType, scale: TensorType
) -> tf.Tensor:
    """log P(low < z < high) of z ~ N(loc, scale²), where low < high may be infinite."""
    width = high - low
    width = tf.where(tf.math.is_finite(width), width, tf.ones_like(width)) / scale
    a, b = standardised(low, loc, scale), standardised(high, loc, scale)
    return log_ndtr_between(a, b, width)


def standardised(end: TensorType, loc: TensorType, scale: TensorType) -> tf.Tensor:
    """(end − loc)/scale, with derivatives of 0, not NaN, at infinite ends."""
    is_finite = tf.math.is_finite(end) & tf.ones_like(loc, tf.bool)
    z = (tf.where(is_finite, end, tf.zeros_like(loc)) - loc) / scale
    return tf.where(is_finite, z, end)


# ---- distribution functions, with small relative errors where they are close to 0 ----


def ndtr(z: TensorType) -> tf.Tensor:
    """Φ(z), the standard normal cdf."""
    return 0.5 * tf.math.erfc(-z / np.sqrt(2.0))


def betainc(a: TensorType, b: TensorType, x: TensorType) -> tf.Tensor:
    """The regularized incomplete beta function I_x(a, b); its arguments are broadcast."""
    zero = tf.zeros_like(a + b + x)
    return tf.math.betainc(a + zero, b + zero, x + zero)


_FRACTION_TERMS = 20  # its error is then 1e-16, as x exceeds 80


def log_igammac(a: TensorType, x: TensorType) -> tf.Tensor:
    """
    log Γ(a, x)/Γ(a), also where Γ(a, x) is too small for a float.

    There it is log x^a e^{−x}/Γ(a) − log(x + 1 − a − 1(1 − a)/(x + 3 − a − 2(2 − a)/(x + 5 − …))),
    Legendre's continued fraction.
    """
    a = a + tf.zeros_like(x)
    plain = tf.math.igammac(a, x)
    far = plain < 1e4 * np.finfo(x.dtype.as_numpy_dtype).tiny
    t = tf.where(far, tf.minimum(x, x.dtype.max), tf.maximum(2.0 * a, 100.0))
    fraction = t + 2.0 * _FRACTION_TERMS + 1.0 - a
    for k in range(_FRACTION_TERMS, 0, -1):
        fraction = t + (2.0 * k - 1.0) - a - k * (k - a) / fraction
    log_far = a * tf.math.log(t) - t - tf.math.lgamma(a) - tf.math.log(fraction)
    return tf.where(far, log_far, tf.math.log(tf.where(far, tf.ones_like(plain), plain)))


def student_t_cdf(t: TensorType, df: TensorType) -> tf.Tensor:
    """The cdf of a standard Student's t: ½ I_{ν/(ν + t²)}(ν/2, ½) for t < 0."""
    half, ratio = 0.5 * tf.ones_like(t), tf.abs(t) / tf.sqrt(df)
    far = ratio > 1.0
    # One form of the incomplete beta function loses the digits of t near 0, the other in the tails.
    small = tf.where(far, 1.0 / ratio, ratio)
    x = tf.square(small) / (1.0 + tf.square(small))
    a, b = tf.where(far, df / 2.0, half), tf.where(far, half, df / 2.0)
    share = 0.5 * betainc(a, b, x)
    lower = tf.where(far, share, 0.5 - share)
    return tf.where(t < 0.0, lower, 1.0 - lower)
