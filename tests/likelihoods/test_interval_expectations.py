"""E log p of intervals whose noise is far smaller or far larger than they are, and narrow ones."""

import gpflow
import mpmath as mp
import numpy as np
import pytest
import scipy.special
import tensorflow as tf
from gpflow.base import AnyNDArray

from gpflow_aaci.likelihoods import Interval, Ordinal

NODES, WEIGHTS = np.polynomial.legendre.leggauss(24)
LOG_CDF = {"probit": scipy.special.log_ndtr, "logit": lambda x: -np.logaddexp(0.0, -x)}

each_link = pytest.mark.parametrize("link", LOG_CDF)


def log_p(link: str, low: float, width: float, s: float, f: AnyNDArray) -> AnyNDArray:
    """
    log P(low < f + s e < low + width), from the distribution function in the lower tail.

    For an interval that is small as compared with e and 1/e, it is an integral of the density.
    """
    above = (low > f) | np.isinf(width)
    with np.errstate(invalid="ignore", divide="ignore"):
        a = np.where(above, f - low - width, low - f) / s
        b = np.where(above, f - low, low + width - f) / s
        of_b = LOG_CDF[link](b)
        wide = of_b + np.log1p(-np.exp(LOG_CDF[link](a) - of_b))
    is_narrow = width / s * np.maximum(1.0, np.abs(a)) < 0.5
    if not np.any(is_narrow):
        return wide
    z = np.where(is_narrow, a, 0.0) + width / s * (NODES[:, None] + 1.0) / 2.0
    square = -0.5 * (z**2 + np.log(2.0 * np.pi))
    log_density = square if link == "probit" else z - 2.0 * np.logaddexp(0.0, z)
    narrow = scipy.special.logsumexp(log_density, axis=0, b=WEIGHTS[:, None] / 2.0)
    return np.where(is_narrow, np.log(width / s) + narrow, wide)


def panels(low: float, width: float, s: float, m: float, sd: float) -> tuple[AnyNDArray, ...]:
    """z and weights of E under N(0, 1), in panels that halve towards both ends of the interval."""
    about = np.concatenate([np.arange(0.0, 12.1, 0.5) * s / sd, 2.0 ** np.arange(-24, 6)])
    edges = [np.linspace(-13.0, 13.0, 53)]
    for end in (low, low + width):
        if np.isfinite(end):
            edges += [(end - m) / sd + about, (end - m) / sd - about]
    z = np.unique(np.concatenate(edges))
    z = z[np.abs(z) <= 13.0]
    middle, half = (z[1:] + z[:-1]) / 2.0, (z[1:] - z[:-1]) / 2.0
    z = (middle[:, None] + half[:, None] * NODES).ravel()
    weights = (half[:, None] * WEIGHTS).ravel() * np.exp(-(z**2) / 2.0)
    return z, weights / np.sum(weights)


def exact(link: str, low: float, width: float, s: float, m: float, v: float) -> AnyNDArray:
    """
    E log p and its derivatives in m, v, log s and the length of the interval at a fixed low.

    The first two follow from ∂E/∂m = E[z ℓ]/sd and ∂E/∂v = E[(z² − 1) ℓ]/2v, the last two are
    differences.
    """
    sd, h = np.sqrt(v), 1e-4
    z, weights = panels(low, width, s, m, sd)

    def of_settings(width: float, s: float) -> AnyNDArray:
        return log_p(link, low, width, s, m + sd * z)

    value = of_settings(width, s)
    mean = weights @ value
    in_m = weights @ (z * (value - mean)) / sd
    in_v = weights @ ((z**2 - 1.0) * (value - mean - in_m * sd * z)) / (2.0 * v)
    in_s = weights @ (of_settings(width, s * (1 + h)) - of_settings(width, s * (1 - h))) / (2 * h)
    step = h * min(width, np.hypot(s, sd))
    in_width = 0.0
    if np.isfinite(width):
        in_width = weights @ (of_settings(width + step, s) - of_settings(width - step, s))
        in_width /= 2.0 * step
    return np.array([mean, in_m, in_v, in_s, in_width])


def found(
    link: str, low: float, width: float, s: float, m: AnyNDArray, v: AnyNDArray
) -> AnyNDArray:
    """The same of the package, [N, 5]."""
    likelihood = Interval(link, s)
    Fmu, Fvar = tf.constant(m[:, None]), tf.constant(v[:, None])
    Y = tf.constant(np.tile([low, low + width], (len(m), 1)))
    each = tf.ones(len(m), Fmu.dtype)  # its gradient is the list of the rows' derivatives
    with tf.GradientTape() as of_rows:
        of_rows.watch(each)
        with tf.GradientTape() as tape:
            tape.watch([Fmu, Fvar, Y])
            value = likelihood.variational_expectations(Fmu, Fmu, Fvar, Y)
            total = tf.reduce_sum(each * value)
        scale = likelihood.scale.unconstrained_variable
        in_m, in_v, in_Y, in_s = tape.gradient(total, [Fmu, Fvar, Y, scale])
    in_s = of_rows.gradient(in_s, each) * s / tf.sigmoid(scale)  # softplus
    slopes = [part[:, 0] for part in (in_m, in_v)]
    return np.stack([value, *slopes, in_s, in_Y[:, 1]], -1)


def settings(low: float, width: float, s: float) -> tuple[AnyNDArray, AnyNDArray]:
    """Means m at and between the ends, and up to 20 sd from them; variances v from 1e-6 to 1e4."""
    high = low + width if np.isfinite(width) else low
    pairs = [
        (m, v)
        for v in (1e-6, 1e-4, 1e-2, 1.0, 1e2, 1e4)
        for m in (
            *(low + share * (high - low) for share in (0.0, 0.5, 0.8)),
            *(high + k * np.sqrt(v) for k in (0.3, 1.0, 3.0, 20.0)),
            *(low - k * np.sqrt(v) for k in (0.5, 2.0, 20.0)),
        )
    ]
    m, v = np.array(pairs).T
    return m, v


@pytest.mark.briefly("logit-0.001")
@pytest.mark.by_default("probit-0.001", "probit-0.142", "probit-0.143", "probit-1.0", "logit-0.001")
@pytest.mark.parametrize("s", [1e-3, 1e-2, 0.05, 0.1, 0.142, 0.143, 0.2, 0.5, 1.0, 10.0, 1e3])
@each_link
def test_expected_log_p_of_an_interval_of_any_width_is_exact(link: str, s: float) -> None:
    """
    Errors are at most 1e-6 max(1, |E log p|), and 1e-5 in derivatives, in the units of f.

    The width is 1, the noise from a thousandth to a thousand times that.
    """
    low, width = -0.3, 1.0
    compare(link, low, width, s, 1e-6)


@pytest.mark.parametrize("s", [1e-1, 1.0])
@each_link
def test_expected_log_p_of_one_end_is_exact(link: str, s: float) -> None:
    compare(link, -0.3, np.inf, s, 1e-6)


@pytest.mark.briefly("probit-0.01")
@pytest.mark.by_default("probit-1e-15", "probit-0.01")
@pytest.mark.parametrize("width", [1e-15, 1e-12, 1e-9, 1e-6, 1e-3, 0.01, 0.0299, 0.0301, 0.3])
@each_link
def test_expected_log_p_of_a_narrow_interval_is_exact(link: str, width: float) -> None:
    compare(link, 0.0, width, 1.0, 1e-6)


def compare(link: str, low: float, width: float, s: float, tolerance: float) -> None:
    m, v = settings(low, width, s)
    actual = found(link, low, width, s, m, v)
    expected = np.array([exact(link, low, width, s, *each) for each in zip(m, v, strict=True)])
    size, reach = np.maximum(np.abs(expected[:, 0]), 1.0), np.sqrt(v + s**2)
    error = np.abs(actual - expected) / size[:, None]
    assert np.all(np.isfinite(actual))
    assert np.all(error[:, 0] <= tolerance)
    assert np.all(error[:, 1] * reach <= 10.0 * tolerance)
    has_digits = np.sqrt(v) > 1e-3 * s  # of the difference in the oracle
    assert np.all((error[:, 2] * reach**2)[has_digits] <= 10.0 * tolerance)
    assert np.all(error[:, 3] <= 10.0 * tolerance)
    assert np.all(error[:, 4] * min(width, 1e300) <= 10.0 * tolerance)


@pytest.mark.briefly("logit")
@each_link
def test_float32_has_finite_slopes_and_is_close_to_float64(link: str) -> None:
    for width, s in ((1.0, 1e-2), (1.0, 0.142), (1.0, 0.2), (1e-3, 1.0), (1e-7, 1.0)):
        m, v = settings(0.0, width, s)
        m, v = m[v <= 1e2 * s**2], v[v <= 1e2 * s**2]
        expected = found(link, 0.0, width, s, m, v)[:, 0]
        with gpflow.config.as_context(gpflow.config.Config(float=np.float32)):
            actual = found(link, np.float32(0.0), np.float32(width), s, *map(np.float32, (m, v)))
        assert actual.dtype == np.float32
        assert np.all(np.isfinite(actual))
        assert np.all(np.abs(actual[:, 0] - expected) <= 1e-4 * np.maximum(np.abs(expected), 1.0))


@pytest.mark.parametrize("width", [1e-15, 1e-12, 1e-9, 1e-3, 0.0299, 0.0301])
def test_log_p_of_a_narrow_interval_keeps_its_digits(width: float) -> None:
    """And its slopes in f and in both ends, far below and above the interval."""
    F = np.array([0.0, 0.3, -2.0, 5.0, -30.0, 100.0])
    Y = tf.constant(np.tile([0.0, width], (len(F), 1)))
    f = tf.constant(F[:, None])
    with tf.GradientTape() as tape:
        tape.watch([f, Y])
        value = Interval("probit").log_prob(f, f, Y)
    in_f, in_Y = tape.gradient(value, [f, Y])
    with mp.workdps(60):
        for k, at in enumerate(F):
            a, b = (mp.mpf(end) - mp.mpf(at) for end in (0.0, width))
            p = mp.ncdf(b) - mp.ncdf(a) if at > 0 else mp.ncdf(-a) - mp.ncdf(-b)
            densities = mp.npdf(a) / p, mp.npdf(b) / p
            assert float(value[k]) == pytest.approx(float(mp.log(p)), rel=1e-9)
            assert float(in_f[k, 0]) == pytest.approx(
                float(densities[0] - densities[1]), rel=1e-7, abs=1e-9
            )
            np.testing.assert_allclose(
                in_Y[k], [-float(densities[0]), float(densities[1])], rtol=1e-8
            )


@pytest.mark.by_default("0.001")
@pytest.mark.parametrize("sigma", [1e-3, 1e-2, 0.05])
@each_link
def test_expected_log_p_of_ordinal_with_a_small_sigma_is_exact(link: str, sigma: float) -> None:
    """Middle and outer labels, with q(f) across one edge and across both."""
    edges = np.array([-0.5, 0.5])
    m, sd = np.array([-0.5, 0.0, 0.45, 0.8, 3.0]), np.array([0.05, 0.3, 0.1, 0.4, 1.0])
    likelihood = Ordinal(edges, sigma, link)
    ends = np.concatenate([[-np.inf], edges, [np.inf]])
    for label in range(3):
        Y = np.full((len(m), 1), float(label))
        actual = likelihood.variational_expectations(Y, m[:, None], sd[:, None] ** 2, Y)
        low, high = ends[label : label + 2]
        sign = -1.0 if label == 0 else 1.0  # (−∞, e) is mirrored
        start, width = (-high, np.inf) if label == 0 else (low, high - low)
        expected = [
            exact(link, start, width, sigma, sign * each, spread**2)[0]
            for each, spread in zip(m, sd, strict=True)
        ]
        error = np.abs(actual - expected) / np.maximum(np.abs(expected), 1.0)
        assert np.all(error <= 1e-6)
