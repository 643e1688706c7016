"""Moments, cumulants and divergences of the laws of ω, against mpmath and the likelihoods' own."""

from typing import Any

import mpmath as mp
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

from gpflow_aaci import augmentation, likelihoods
from gpflow_aaci.distributions import (
    GeneralizedInverseGaussian,
    IntervalNormal,
    InverseGaussian,
    PolyaGamma,
    PositiveNormal,
)

tfd = tfp.distributions


def of_generalized(p: float, a: float, b: float) -> list[mp.mpf]:
    """E x^n of GIG(p, a, b), n = 1 … 4."""
    omega = mp.sqrt(mp.mpf(a) * mp.mpf(b))
    scale = mp.sqrt(mp.mpf(b) / mp.mpf(a))
    return [scale**n * mp.besselk(p + n, omega) / mp.besselk(p, omega) for n in (1, 2, 3, 4)]


def of_positive_normal(loc: float) -> list[mp.mpf]:
    """By m_n = loc m_{n−1} + (n − 1) m_{n−2}."""
    loc = mp.mpf(loc)
    found = [mp.mpf(1), loc + mp.npdf(loc) / mp.ncdf(loc)]
    for n in (2, 3, 4):
        found.append(loc * found[-1] + (n - 1) * found[-2])
    return found[1:]


def of_interval_normal(loc: float, scale: float, low: float, high: float) -> list[mp.mpf]:
    """By m_n = loc m_{n−1} + (n − 1) s² m_{n−2} − s (high^{n−1} φ(b) − low^{n−1} φ(a)) / Z."""
    loc, s = mp.mpf(loc), mp.mpf(scale)
    a, b = (mp.mpf(low) - loc) / s, (mp.mpf(high) - loc) / s
    is_above = a > 0  # the tail that has all digits
    total = mp.ncdf(-a) - mp.ncdf(-b) if is_above else mp.ncdf(b) - mp.ncdf(a)
    found = [mp.mpf(0), mp.mpf(1)]
    for n in (1, 2, 3, 4):
        ends = [
            mp.mpf(0) if mp.isinf(z) else mp.mpf(end) ** (n - 1) * mp.npdf(z)
            for end, z in ((low, a), (high, b))
        ]
        edge = s * (ends[1] - ends[0]) / total
        found.append(loc * found[-1] + (n - 1) * s**2 * found[-2] - edge)
    return found[2:]


LAWS: list[tuple[Any, list[mp.mpf]]] = []
with mp.workdps(60):
    LAWS += [
        (GeneralizedInverseGaussian(p, a, b), of_generalized(p, a, b))
        for p, a, b in ((0.5, 100.0, 100.0), (-2.5, 0.01, 3.0), (40.0, 2.0, 3.0))
    ]
    LAWS += [
        (InverseGaussian(mu, lam), of_generalized(-0.5, lam / mu**2, lam))
        for mu, lam in ((0.5, 2.0), (4.0, 0.25))
    ]
    LAWS += [
        (PositiveNormal(np.float64(loc)), of_positive_normal(loc))
        for loc in (-1000.0, -30.0, -1.0, 0.0, 2.5, 8.0)
    ]
    LAWS += [
        (IntervalNormal(*map(np.float64, ends)), of_interval_normal(*ends))
        for ends in (
            (0.3, 2.0, -1.0, 4.0),
            (0.0, 1.0, 30.0, 31.0),
            (5.0, 0.5, -np.inf, -20.0),
            (-1.0, 3.0, -np.inf, np.inf),
            (0.0, 1.0, 0.5, 0.5001),
        )
    ]


@pytest.mark.briefly("law0", *(f"law{number}" for number in range(3, len(LAWS))))
@pytest.mark.parametrize(("law", "moments"), LAWS)
def test_moments_and_cumulants_against_mpmath(law: Any, moments: list[mp.mpf]) -> None:
    m1, m2, m3, m4 = moments
    with mp.workdps(60):
        cumulants = [
            m1,
            m2 - m1**2,
            m3 - 3 * m1 * m2 + 2 * m1**3,
            m4 - 4 * m1 * m3 - 3 * m2**2 + 12 * m1**2 * m2 - 6 * m1**4,
        ]
    for order in (1, 2, 3, 4):
        np.testing.assert_allclose(law.moment(order), float(moments[order - 1]), rtol=1e-9)
        exact = float(cumulants[order - 1])
        close = 1e-7 * float(cumulants[1]) ** (order / 2.0)
        np.testing.assert_allclose(law.cumulant(order), exact, rtol=1e-6, atol=close)


def test_a_mean_of_an_interval_far_from_loc_keeps_its_digits() -> None:
    """Beyond the nearer end by scale²/distance, but for terms that are 1e-6 of it and less."""
    for loc, low, high in ((-1e8, 0.0, np.inf), (-1e5, 0.0, np.inf), (3e4, -np.inf, 0.0)):
        law = IntervalNormal(*map(np.float64, (loc, 1.0, low, high)))
        np.testing.assert_allclose(law.mean(), -1.0 / loc, rtol=1e-6)
        np.testing.assert_allclose(law.variance(), loc**-2, rtol=1e-6)
        law = IntervalNormal(*map(np.float32, (loc, 1.0, low, high)))
        np.testing.assert_allclose(law.mean(), -1.0 / loc, rtol=1e-5)
    # Nearly uniform: the density falls by exp(−1) from end to end.
    narrow = IntervalNormal(*map(np.float64, (-1e6, 1.0, 2.0, 2.0 + 1e-6)))
    exact = 1e-12 * (1.0 - np.e / (np.e - 1.0) ** 2)  # of an exponential law cut at 1
    np.testing.assert_allclose(narrow.variance(), exact, rtol=2e-6)


def test_slopes_of_the_mean_of_a_half_line_are_numbers() -> None:
    scale = tf.constant(1.0, tf.float64)
    with tf.GradientTape() as tape:
        tape.watch(scale)
        mean = IntervalNormal(tf.zeros_like(scale), scale, 0.5 + 0.0 * scale, np.inf).mean()
    up, down = (float(IntervalNormal(0.0, s, 0.5, np.inf).mean()) for s in (1.001, 0.999))
    np.testing.assert_allclose(tape.gradient(mean, scale), (up - down) / 0.002, rtol=1e-3)


def test_an_interval_of_equal_ends_is_a_point() -> None:
    law = IntervalNormal(np.float64(0.0), np.float64(2.0), np.float64(7.0), np.float64(7.0))
    assert [float(law.cumulant(n)) for n in (1, 2, 3, 4)] == [7.0, 0.0, 0.0, 0.0]


def test_moments_of_a_polya_gamma_law_are_those_of_draws() -> None:
    law = PolyaGamma(2.0, 1.5)
    draws = law.sample(200_000, seed=[1, 2]).numpy()
    for order in (1, 2, 3, 4):
        values = draws**order
        error = values.std() / np.sqrt(len(values))
        assert abs(float(law.moment(order)) - values.mean()) < 4.0 * error


def test_what_does_not_exist_is_infinite_and_other_orders_are_refused() -> None:
    heavy = GeneralizedInverseGaussian(-2.5, 0.0, 3.0)  # an inverse Gamma law of shape 2.5
    assert [bool(np.isfinite(heavy.cumulant(n))) for n in (1, 2, 3, 4)] == [
        True,
        True,
        False,
        False,
    ]
    assert np.isinf(InverseGaussian(np.inf, 1.0).moment(1))
    for order in (0, 5):
        for name in ("cumulant", "moment"):
            with pytest.raises(ValueError, match=f"order must be from 1 to 4. Found: {order}"):
                getattr(heavy, name)(order)


PAIRS = [
    (InverseGaussian(0.5, 2.0), InverseGaussian(1.5, 2.0)),
    (InverseGaussian(0.5, 2.0), InverseGaussian(1.5, 0.7)),
    (InverseGaussian(0.5, 2.0), InverseGaussian(np.inf, 2.0)),
    (GeneralizedInverseGaussian(-1.5, 2.0, 0.6), GeneralizedInverseGaussian(-1.5, 0.0, 0.6)),
    (GeneralizedInverseGaussian(0.7, 2.0, 0.6), GeneralizedInverseGaussian(0.7, 3.0, 1.6)),
    (GeneralizedInverseGaussian(2.0, 3.0, 0.0), GeneralizedInverseGaussian(2.0, 1.0, 0.0)),
    (PositiveNormal(np.float64(-2.0)), PositiveNormal(np.float64(1.0))),
    (PositiveNormal(np.float64(3.0)), PositiveNormal(np.float64(-0.5))),
]


@pytest.mark.briefly("a1-b1", "a2-b2", "a0-b0", "a6-b6", "a7-b7")
@pytest.mark.parametrize(("a", "b"), PAIRS)
def test_divergences_are_the_mean_difference_of_log_densities(a: Any, b: Any) -> None:
    ends = np.concatenate([[0.0], np.geomspace(1e-3, 300.0, 40)])
    nodes, weights = np.polynomial.legendre.leggauss(40)
    half, middle = np.diff(ends) / 2.0, (ends[1:] + ends[:-1]) / 2.0
    x = middle[:, None] + half[:, None] * nodes
    log_a, log_b = a.log_prob(x).numpy(), b.log_prob(x).numpy()
    values = np.where(log_a > -700.0, np.exp(log_a) * (log_a - log_b), 0.0)
    np.testing.assert_allclose(
        tfd.kl_divergence(a, b), np.sum(half[:, None] * weights * values), rtol=1e-7
    )
    np.testing.assert_allclose(tfd.kl_divergence(a, a), 0.0, atol=1e-13)


def test_of_infinite_means_they_are_0_or_infinite() -> None:
    levy, other = InverseGaussian(np.inf, 2.0), InverseGaussian(1.0, 2.0)
    assert tfd.kl_divergence(levy, InverseGaussian(np.inf, 2.0)) == 0.0
    assert np.isinf(tfd.kl_divergence(levy, other))
    heavy = GeneralizedInverseGaussian(-0.5, 0.0, 3.0)
    assert np.isinf(tfd.kl_divergence(heavy, GeneralizedInverseGaussian(-0.5, 1.0, 3.0)))


def test_two_laws_of_other_p_are_refused() -> None:
    with pytest.raises(ValueError, match="p must be the same for both"):
        tfd.kl_divergence(
            GeneralizedInverseGaussian(1.0, 1.0, 1.0), GeneralizedInverseGaussian(2.0, 1.0, 1.0)
        )


@pytest.mark.parametrize(
    "likelihood",
    [likelihoods.Laplace(0.7), likelihoods.Probit(), likelihoods.BayesianSVM()],
    ids=lambda likelihood: type(likelihood).__name__,
)
def test_the_divergence_from_the_prior_is_the_term_of_the_bound(likelihood: Any) -> None:
    c = tf.constant([[0.3], [1.1], [2.5]], tf.float64)
    Y = tf.constant([[0.0], [1.0], [1.0]], tf.float64)
    tilted = likelihood.tilted(c, Y)
    prior = likelihood.tilted(likelihood.prior_c * tf.ones_like(c), Y)
    found = augmentation.aux_kldivergence(likelihood, c, Y)
    np.testing.assert_allclose(tfd.kl_divergence(tilted, prior), found, rtol=1e-9)
