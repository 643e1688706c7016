"""
The built-in likelihoods with textbook definitions, and quadrature to compare them with.

Only the objects under test come from the package: φ is stated for mpmath, and densities come from
SciPy or are normalised by quadrature.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import gpflow
import mpmath as mp
import numpy as np
import scipy.integrate
import scipy.stats
import tensorflow as tf

import gpflow_aaci.contrib.likelihoods
from gpflow_aaci import likelihoods
from gpflow_aaci.contrib.likelihoods import KernelNoise, NoiseMixture, NoiseProduct


def public_classes() -> list[type]:
    """The classes that ``likelihoods`` and ``contrib.likelihoods`` export."""
    homes = likelihoods, gpflow_aaci.contrib.likelihoods
    exported = (getattr(home, name) for home in homes for name in home.__all__)
    return [each for each in exported if isinstance(each, type)]


LogDensity = Callable[[float, float], float]
"""log p(y|f) as a function of (y, f)."""


@dataclass(frozen=True)
class Case:
    """A built-in likelihood and its textbook definition."""

    name: str
    make: Callable[[], likelihoods.AugmentedLikelihood]
    phi: Callable[[mp.mpf], mp.mpf] | None  # φ(r) for real and complex r, if super-Gaussian
    log_density: LogDensity
    trained: int = 1  # the number of trainable parameters, for a real y
    mark: str = ""  # "slow" or "replicate"; its components run by default

    @property
    def is_binary(self) -> bool:
        return issubclass(type(self.make()), likelihoods.BinaryLikelihood)


# ---- densities ----


def normal_log_density(scale: float) -> LogDensity:
    return lambda y, f: -0.5 * ((y - f) / scale) ** 2 - math.log(math.sqrt(2 * math.pi) * scale)


def student_t_log_density(scale: float, df: float) -> LogDensity:
    log_c = float(scipy.stats.t.logpdf(0.0, df)) - math.log(scale)
    return lambda y, f: log_c - (df + 1) / 2 * math.log1p(((y - f) / scale) ** 2 / df)


def laplace_log_density(scale: float) -> LogDensity:
    log_c = float(scipy.stats.laplace.logpdf(0.0, scale=scale))
    return lambda y, f: log_c - abs(y - f) / scale


@cache
def _matern_log_normaliser(nu: float) -> float:
    """log ∫ k(x) dx for the Matérn kernel of lengthscale 1, as a Bessel function."""

    def kernel(x: mp.mpf) -> mp.mpf:
        s = mp.sqrt(2 * nu) * x
        return 2 ** (1 - mp.mpf(nu)) / mp.gamma(nu) * s**nu * mp.besselk(nu, s)

    with mp.workdps(25):
        return float(mp.log(2 * mp.quad(kernel, [0, 0.5, 1, 2, 4, 8, 16, 32, 64])))


# Coefficients of s, s², … in the polynomial of half-integer orders (Rasmussen and Williams, 4.16).
_MATERN_COEFFICIENTS = {
    0.5: [],
    1.5: [1],
    2.5: [1, 1 / 3],
    3.5: [1, 2 / 5, 1 / 15],
    4.5: [1, 3 / 7, 2 / 21, 1 / 105],
}


def matern_log_density(scale: float, nu: float) -> LogDensity:
    log_c = -_matern_log_normaliser(nu) - math.log(scale)

    def log_density(y: float, f: float) -> float:
        s = math.sqrt(2 * nu) * abs(y - f) / scale
        terms = (a * s**k for k, a in enumerate(_MATERN_COEFFICIENTS[nu], start=1))
        return log_c - s + math.log1p(sum(terms))

    return log_density


def asymmetric_laplace_log_density(scale: float, quantile: float) -> LogDensity:
    """The normalised check function of Koenker and Bassett, with rates τ/s above, (1−τ)/s below."""
    log_c = math.log(quantile * (1 - quantile) / scale)

    def log_density(y: float, f: float) -> float:
        u = (y - f) / scale
        return log_c - (quantile * u if u > 0 else (quantile - 1) * u)

    return log_density


def generalized_gaussian_log_density(scale: float, power: float) -> LogDensity:
    log_c = float(scipy.stats.gennorm.logpdf(0.0, power)) - math.log(scale)
    return lambda y, f: log_c - (abs(y - f) / scale) ** power


def mixture_log_density(y: float, f: float) -> float:
    """The density 0.7 logistic(0.3) + 0.3 Student-t(1.2, 5)."""
    parts = logistic_noise_log_density(0.3)(y, f), student_t_log_density(1.2, 5.0)(y, f)
    return float(np.logaddexp(math.log(0.7) + parts[0], math.log(0.3) + parts[1]))


@cache
def _product_log_normaliser() -> float:
    with mp.workdps(25):
        return float(mp.log(2 * mp.quad(lambda x: _product_phi(x * x), [0, 0.3, 1, 3, 9, 30, 200])))


def product_log_density(y: float, f: float) -> float:
    """The density ∝ Laplace(0.9) Student-t(1, 4)."""
    r = (y - f) ** 2
    return -math.sqrt(r) / 0.9 - 2.5 * math.log1p(r / 4.0) - _product_log_normaliser()


@cache
def _kernel_log_normaliser() -> float:
    edges = [0, 0.3, 1, 3, 9, 30, 200, 1e4, 1e7]
    with mp.workdps(25):
        return float(mp.log(2 * mp.quad(lambda x: _kernel_phi(x * x), edges)))


def kernel_log_density(y: float, f: float) -> float:
    """The normalised kernel Matern32(0.7) · RQ(1, α = 1) + 0.2 RQ(0.5, α = 2.5)."""
    return math.log(float(_kernel_phi(mp.mpf((y - f) ** 2)))) - _kernel_log_normaliser()


def logistic_noise_log_density(scale: float) -> LogDensity:
    def log_density(y: float, f: float) -> float:
        u = abs(y - f) / scale
        return -u - 2.0 * math.log1p(math.exp(-u)) - math.log(scale)

    return log_density


def logistic_log_density(y: float, f: float) -> float:
    x = y * f
    return -math.log1p(math.exp(-x)) if x > 0 else x - math.log1p(math.exp(x))


def svm_log_density(y: float, f: float) -> float:
    return -2.0 * max(0.0, 1.0 - y * f)


def probit_log_density(y: float, f: float) -> float:
    return float(scipy.stats.norm.logcdf(y * f))


# ---- φ ----


def _student_t_phi(df: float) -> Callable[[mp.mpf], mp.mpf]:
    return lambda r: (1 + r / mp.mpf(df)) ** (-(mp.mpf(df) + 1) / 2)


def _mixture_phi(r: mp.mpf) -> mp.mpf:
    """Σ w_k C_k φ_k over Σ w_k C_k, for 0.7 logistic(0.3) + 0.3 Student-t(1.2, 5)."""
    logistic = mp.mpf(0.7) / (4 * mp.mpf(0.3))
    student = mp.mpf(0.3) * mp.gamma(3) / (mp.gamma(2.5) * mp.sqrt(5 * mp.pi) * mp.mpf(1.2))
    total = logistic * mp.sech(mp.sqrt(r) / (2 * mp.mpf(0.3))) ** 2
    total += student * _student_t_phi(5.0)(r / mp.mpf(1.2) ** 2)
    return total / (logistic + student)


def _product_phi(r: mp.mpf) -> mp.mpf:
    return mp.exp(-mp.sqrt(r) / mp.mpf(0.9)) * _student_t_phi(4.0)(r)


def _kernel_phi(r: mp.mpf) -> mp.mpf:
    product = _matern32_phi(0.7)(r) / (1 + r / 2)
    rational = (1 + r / (5 * mp.mpf(0.25))) ** mp.mpf(-2.5)
    weight = mp.mpf(0.2)
    return (product + weight * rational) / (1 + weight)


def _stretched_phi(scale: float, power: float) -> Callable[[mp.mpf], mp.mpf]:
    return lambda r: mp.exp(-((r / mp.mpf(scale) ** 2) ** (mp.mpf(power) / 2)))


def _matern_phi(scale: float, nu: float) -> Callable[[mp.mpf], mp.mpf]:
    """e^{−s} times a polynomial of order ν − ½ in s (Rasmussen and Williams 2006, Eq. 4.16)."""

    def phi(r: mp.mpf) -> mp.mpf:
        order = int(nu - 0.5)
        s = mp.sqrt(2 * mp.mpf(nu) * r) / mp.mpf(scale)
        ratio = mp.factorial(order) / mp.factorial(2 * order)
        terms = (
            mp.factorial(order + i)
            / (mp.factorial(i) * mp.factorial(order - i))
            * (2 * s) ** (order - i)
            for i in range(order + 1)
        )
        return ratio * mp.fsum(terms) * mp.exp(-s)

    return phi


def _matern32_phi(scale: float) -> Callable[[mp.mpf], mp.mpf]:
    def phi(r: mp.mpf) -> mp.mpf:
        s = mp.sqrt(3 * r) / mp.mpf(scale)
        return (1 + s) * mp.exp(-s)

    return phi


def _matern52_phi(scale: float) -> Callable[[mp.mpf], mp.mpf]:
    def phi(r: mp.mpf) -> mp.mpf:
        s = mp.sqrt(5 * r) / mp.mpf(scale)
        return (1 + s + s * s / 3) * mp.exp(-s)

    return phi


# The super-Gaussian likelihoods.
CASES = [
    Case(
        "Gaussian",
        lambda: likelihoods.Gaussian(0.49),
        lambda r: mp.exp(-r / (2 * mp.mpf(0.49))),
        normal_log_density(0.7),
    ),
    Case(
        "Gaussian-scale",
        lambda: likelihoods.Gaussian(scale=1.7),
        lambda r: mp.exp(-r / (2 * mp.mpf(1.7) ** 2)),
        normal_log_density(1.7),
    ),
    Case(
        "StudentT",
        lambda: likelihoods.StudentT(0.6, 4.3),
        _student_t_phi(4.3),
        student_t_log_density(0.6, 4.3),
        trained=2,
    ),
    Case(
        "StudentT-heavy",
        lambda: likelihoods.StudentT(2.0, 0.8),
        _student_t_phi(0.8),
        student_t_log_density(2.0, 0.8),
        trained=2,
    ),
    Case(
        "Cauchy",
        lambda: likelihoods.Cauchy(0.6),
        _student_t_phi(1.0),
        lambda y, f: float(scipy.stats.cauchy.logpdf(y, f, 0.6)),
        mark="replicate",
    ),
    Case(
        "Laplace",
        lambda: likelihoods.Laplace(0.7),
        lambda r: mp.exp(-mp.sqrt(r) / mp.mpf(0.7)),
        laplace_log_density(0.7),
    ),
    Case(
        "AsymmetricLaplace",
        lambda: likelihoods.AsymmetricLaplace(0.4, 0.2),
        lambda r: mp.exp(-mp.sqrt(r) / (2 * mp.mpf(0.4))),
        asymmetric_laplace_log_density(0.4, 0.2),
    ),
    Case(
        "GeneralizedGaussian",
        lambda: likelihoods.GeneralizedGaussian(0.8, 1.3),
        _stretched_phi(0.8, 1.3),
        generalized_gaussian_log_density(0.8, 1.3),
        trained=2,
        mark="slow",
    ),
    Case(
        "GeneralizedGaussian-cusp",
        lambda: likelihoods.GeneralizedGaussian(0.3, 0.7),
        _stretched_phi(0.3, 0.7),
        generalized_gaussian_log_density(0.3, 0.7),
        trained=2,
        mark="replicate",
    ),
    Case(
        "NoiseMixture",
        lambda: NoiseMixture(
            [likelihoods.LogisticNoise(0.3), likelihoods.StudentT(1.2, 5.0)], [0.7, 0.3]
        ),
        _mixture_phi,
        mixture_log_density,
        trained=4,
        mark="slow",
    ),
    Case(
        "NoiseProduct",
        lambda: NoiseProduct([likelihoods.Laplace(0.9), likelihoods.StudentT(1.0, 4.0)]),
        _product_phi,
        product_log_density,
        trained=3,
        mark="replicate",
    ),
    Case(
        "KernelNoise",
        lambda: KernelNoise(
            gpflow.kernels.Matern32(lengthscales=0.7) * gpflow.kernels.RationalQuadratic()
            + gpflow.kernels.RationalQuadratic(0.2, lengthscales=0.5, alpha=2.5)
        ),
        _kernel_phi,
        kernel_log_density,
        trained=6,
        mark="slow",
    ),
    Case(
        "LogisticNoise",
        lambda: likelihoods.LogisticNoise(0.3),
        lambda r: mp.sech(mp.sqrt(r) / (2 * mp.mpf(0.3))) ** 2,
        logistic_noise_log_density(0.3),
    ),
    Case(
        "Matern72",
        lambda: likelihoods.Matern(3.5, 1.3),
        _matern_phi(1.3, 3.5),
        matern_log_density(1.3, 3.5),
        mark="replicate",
    ),
    Case(
        "Matern32",
        lambda: likelihoods.Matern32(1.6),
        _matern32_phi(1.6),
        matern_log_density(1.6, 1.5),
    ),
    Case(
        "Matern52",
        lambda: likelihoods.Matern52(0.45),
        _matern52_phi(0.45),
        matern_log_density(0.45, 2.5),
    ),
    Case(
        "Logistic",
        likelihoods.Logistic,
        lambda r: mp.sech(mp.sqrt(r) / 2),
        logistic_log_density,
    ),
    Case(
        "BayesianSVM",
        likelihoods.BayesianSVM,
        lambda r: mp.exp(-mp.sqrt(r)),
        svm_log_density,
    ),
]

PROBIT = Case("Probit", likelihoods.Probit, None, probit_log_density)
AUGMENTED = [*CASES, PROBIT]
CONTINUOUS = [case for case in AUGMENTED if not case.is_binary]
BINARY = [case for case in AUGMENTED if case.is_binary]


def case_id(case: Case) -> str:
    """The id of a case for ``pytest.mark.parametrize``."""
    return case.name


# ---- quadrature over f ~ N(mean, sd²) ----


def _edges(mean: float, sd: float, centres: Sequence[float], width: float) -> list[float]:
    """Break points at the centres, around them on scale ``width``, and around the mean."""
    steps = np.array([0.01, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0])
    lower, upper = mean - 40.0 * sd, mean + 40.0 * sd
    edges = {lower, upper, mean}
    for middle, unit in [(mean, sd), *((centre, width) for centre in centres)]:
        for edge in [middle, *(middle + unit * steps), *(middle - unit * steps)]:
            if lower < edge < upper:
                edges.add(float(edge))
    return sorted(edges)


def _integral(integrand: Callable[[float], float], edges: Sequence[float]) -> float:
    """Adaptive Gauss-Kronrod between edges, where its own error estimate must be 1e-9 relative."""
    parts = [
        scipy.integrate.quad(integrand, a, b, epsabs=1e-300, epsrel=1e-11, limit=200)
        for a, b in itertools.pairwise(edges)
    ]
    total, error = sum(part[0] for part in parts), sum(part[1] for part in parts)
    scale = sum(abs(part[0]) for part in parts)
    assert error <= 1e-9 * scale, f"the oracle is not sure of itself: {error} of {scale}"
    return total


def log_mean_exp(
    log_g: Callable[[float], float],
    mean: float,
    sd: float,
    centres: Sequence[float] = (),
    width: float = 1.0,
) -> float:
    """
    log E exp(log_g(f)) under f ~ N(mean, sd²), with kinks or peaks of ``width`` at ``centres``.
    """
    edges = _edges(mean, sd, centres, width)

    def exponent(f: float) -> float:
        return log_g(f) - 0.5 * ((f - mean) / sd) ** 2

    largest = max(exponent(f) for f in edges)
    integral = _integral(lambda f: math.exp(exponent(f) - largest), edges)
    return largest + math.log(integral) - math.log(math.sqrt(2 * math.pi) * sd)


def mean_of(
    function: Callable[[float], float],
    mean: float,
    sd: float,
    centres: Sequence[float] = (),
    width: float = 1.0,
) -> float:
    """E function(f) under f ~ N(mean, sd²), with kinks or peaks of ``width`` at ``centres``."""

    def integrand(f: float) -> float:
        z = (f - mean) / sd
        return function(f) * math.exp(-0.5 * z * z) / (math.sqrt(2 * math.pi) * sd)

    return _integral(integrand, _edges(mean, sd, centres, width))


def column(*values: float) -> tf.Tensor:
    """The values as [N, 1], float64."""
    return tf.constant(np.array(values, dtype=np.float64)[:, None])
