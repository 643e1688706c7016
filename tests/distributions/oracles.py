"""Reference laws for the package's distributions, from SciPy or, where it has none, mpmath."""

from collections.abc import Callable
from dataclasses import dataclass

import mpmath as mp
import numpy as np
import scipy.interpolate
import scipy.stats
from gpflow.base import AnyNDArray

from gpflow_aaci import likelihoods

P = np.array([1e-6, 1e-5, 1e-4, 1e-3, 0.01, 0.05, 0.1, 0.25, 0.5])
P = np.concatenate([P, 1.0 - P[-2::-1]])
CENTRAL = (P > 0.99e-3) & (P < 1.0 - 0.99e-3)


def ks_pvalue(draws: AnyNDArray, cdf: Callable[[AnyNDArray], AnyNDArray]) -> float:
    """
    The p-value of the Kolmogorov-Smirnov test.

    The cdf is computed at 300 of the draws and interpolated monotonely. The error of 1e-5 is small
    compared with the statistic, 1e-3 to 1e-2.
    """
    knots = np.quantile(draws, 0.5 - 0.5 * np.cos(np.pi * np.linspace(0.0, 1.0, 300)))
    at_knots = np.asarray(cdf(knots))
    curve = scipy.interpolate.PchipInterpolator(np.log(knots), at_knots)
    return float(scipy.stats.kstest(draws, lambda x: curve(np.log(x))).pvalue)


class PolyaGammaLaw:
    """
    scale · PG(b, c) as an alternating mixture of inverse Gaussian laws (Polson et al. 2013, Eq. 5).

    The weights are 2^b cosh^b(c/2) (−1)^n Γ(n+b)/(n! Γ(b)) e^{−(2n+b)c/2}, the means (2n+b)/2c and
    the shapes (2n+b)²/4. The sum cancels, so mpmath needs extra digits.
    """

    def __init__(self, b: float, c: float, scale: float = 1.0) -> None:
        self.b, self.c, self.scale = mp.mpf(b), mp.mpf(c), mp.mpf(scale)

    def _sum(self, x: float, term: Callable[[mp.mpf, mp.mpf], mp.mpf]) -> float:
        with mp.workdps(60):
            b, c, x = self.b, self.c, mp.mpf(float(x)) / self.scale
            total, n, coefficient = mp.mpf(0), 0, mp.mpf(1)
            while True:
                k = 2 * n + b
                weight = (-1) ** n * coefficient * mp.exp(-(k - b) * c / 2)
                part = weight * term(k, x)
                total += part
                if n > 3 and abs(part) < mp.mpf(10) ** -40 * abs(total):
                    return total * (1 + mp.exp(-c)) ** b
                coefficient *= (n + b) / (n + 1)
                n += 1

    def cdf(self, x: AnyNDArray) -> AnyNDArray:
        def term(k: mp.mpf, x: mp.mpf) -> mp.mpf:
            root, c = k / (2 * mp.sqrt(x)), self.c
            ratio = 2 * c * x / k
            second = mp.exp(k * c) * mp.ncdf(-root * (ratio + 1))
            return mp.ncdf(root * (ratio - 1)) + second

        return np.array([float(self._sum(value, term)) for value in np.ravel(x)])

    def logpdf(self, x: AnyNDArray) -> AnyNDArray:
        def term(k: mp.mpf, x: mp.mpf) -> mp.mpf:
            exponent = -((k - 2 * self.c * x) ** 2) / (8 * x)
            return k / mp.sqrt(8 * mp.pi * x**3) * mp.exp(exponent)

        sums = [self._sum(value, term) for value in np.ravel(x)]
        return np.array([float(mp.log(total / self.scale)) for total in sums])


def laplace_law(scale: float, c: float) -> scipy.stats.rv_continuous:
    shape = 1.0 / (2.0 * scale**2)
    if c == 0.0:
        return scipy.stats.levy(scale=shape)
    return scipy.stats.invgauss(1.0 / (2.0 * scale * c) / shape, scale=shape)


def matern_law(nu: float, scale: float, c: float) -> scipy.stats.rv_continuous:
    a, b = 2.0 * c**2, nu / scale**2
    if c == 0.0:
        return scipy.stats.invgamma(nu, scale=b / 2.0)
    return scipy.stats.geninvgauss(-nu, np.sqrt(a * b), scale=np.sqrt(b / a))


@dataclass(frozen=True)
class Tilts:
    """A built-in likelihood and its π_φ(ω|c), computed without the package."""

    name: str
    likelihood: likelihoods.SuperGaussianLikelihood
    log_phi: Callable[[mp.mpf], mp.mpf]
    law: Callable[[float], scipy.stats.rv_continuous]


def _log_matern(nu: float, scale: float) -> Callable[[mp.mpf], mp.mpf]:
    def log_phi(r: mp.mpf) -> mp.mpf:
        s = mp.sqrt(2 * nu * r) / mp.mpf(scale)
        return mp.log(1 + s + (s * s / 3 if nu == 2.5 else 0)) - s

    return log_phi


def _log_student(df: float) -> Callable[[mp.mpf], mp.mpf]:
    return lambda r: -(mp.mpf(df) + 1) / 2 * mp.log(1 + r / mp.mpf(df))


TILTS = [
    Tilts(
        "StudentT",
        likelihoods.StudentT(0.6, 4.3),
        _log_student(4.3),
        lambda c: scipy.stats.gamma(2.65, scale=1.0 / (4.3 + c * c)),
    ),
    Tilts(
        "StudentT-heavy",
        likelihoods.StudentT(2.0, 0.8),
        _log_student(0.8),
        lambda c: scipy.stats.gamma(0.9, scale=1.0 / (0.8 + c * c)),
    ),
    Tilts(
        "StudentT-light",
        likelihoods.StudentT(1.0, 80.0),
        _log_student(80.0),
        lambda c: scipy.stats.gamma(40.5, scale=1.0 / (80.0 + c * c)),
    ),
    Tilts(
        "Laplace",
        likelihoods.Laplace(0.7),
        lambda r: -mp.sqrt(r) / mp.mpf(0.7),
        lambda c: laplace_law(0.7, c),
    ),
    Tilts(
        "Matern32",
        likelihoods.Matern32(1.6),
        _log_matern(1.5, 1.6),
        lambda c: matern_law(1.5, 1.6, c),
    ),
    Tilts(
        "Matern52",
        likelihoods.Matern52(0.45),
        _log_matern(2.5, 0.45),
        lambda c: matern_law(2.5, 0.45, c),
    ),
    Tilts(
        "Logistic",
        likelihoods.Logistic(),
        lambda r: -mp.log(mp.cosh(mp.sqrt(r) / 2)),
        lambda c: PolyaGammaLaw(1.0, c, 0.5),
    ),
    Tilts(
        "BayesianSVM",
        likelihoods.BayesianSVM(),
        lambda r: -mp.sqrt(r),
        lambda c: laplace_law(1.0, c),
    ),
]


def tilts_id(tilts: Tilts) -> str:
    """The id of a case for ``pytest.mark.parametrize``."""
    return tilts.name
