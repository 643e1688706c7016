"""Noise with the shape of a kernel: it is the likelihood with that density, or is refused."""

from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
import pytest
import scipy.stats
import tensorflow as tf
from cases import column
from gpflow.base import TensorType
from gpflow.kernels import (
    Cosine,
    Exponential,
    IsotropicStationary,
    Linear,
    Matern12,
    Matern32,
    Matern52,
    Periodic,
    RationalQuadratic,
    SquaredExponential,
)

from gpflow_aaci import check_likelihood, likelihoods
from gpflow_aaci.contrib.likelihoods import KernelNoise, NoiseMixture
from gpflow_aaci.likelihoods import ResidualLikelihood

Make = Callable[[], Any]


class OwnMatern32(IsotropicStationary):
    """A user's kernel that defines K_r."""

    def K_r(self, r: TensorType) -> tf.Tensor:
        s = np.sqrt(3.0) * r
        return self.variance * (1.0 + s) * tf.exp(-s)


class OwnSquaredExponential(SquaredExponential):
    """A user's kernel with K_r2, and a property and a method that read Parameters."""

    @property
    def height(self) -> tf.Tensor:
        return self.variance * 3.0

    def decay(self, r2: TensorType) -> tf.Tensor:
        return tf.exp(-0.5 * r2 * self.variance / self.variance)

    def K_r2(self, r2: TensorType) -> tf.Tensor:
        return self.height * self.decay(r2)


def of_student_t(scale: float, df: float) -> RationalQuadratic:
    """The kernel (1 + x²/2αℓ²)^−α with α = (ν+1)/2 and 2αℓ² = νσ²."""
    return RationalQuadratic(
        lengthscales=scale * np.sqrt(df / (df + 1.0)), alpha=(df + 1.0) / 2.0, variance=3.0
    )


PAIRS: dict[str, tuple[Make, Make]] = {
    "SquaredExponential": (
        lambda: SquaredExponential(2.0, 0.7),
        lambda: likelihoods.Gaussian(scale=0.7),
    ),
    "RationalQuadratic": (
        lambda: of_student_t(0.6, 4.0),
        lambda: likelihoods.StudentT(0.6, 4.0),
    ),
    "Cauchy": (lambda: of_student_t(0.6, 1.0), lambda: likelihoods.Cauchy(0.6)),
    "Exponential": (lambda: Exponential(2.0, 0.35), lambda: likelihoods.Laplace(0.7)),
    "Matern12": (lambda: Matern12(2.0, 0.7), lambda: likelihoods.Laplace(0.7)),
    "Matern32": (lambda: Matern32(2.0, 0.7), lambda: likelihoods.Matern32(0.7)),
    "Matern52": (lambda: Matern52(2.0, 0.7), lambda: likelihoods.Matern52(0.7)),
    "own-K_r": (lambda: OwnMatern32(2.0, 0.7), lambda: likelihoods.Matern32(0.7)),
    "own-K_r2": (lambda: OwnSquaredExponential(2.0, 0.7), lambda: likelihoods.Gaussian(scale=0.7)),
    "product": (
        lambda: SquaredExponential(lengthscales=0.5) * SquaredExponential(lengthscales=2.0),
        lambda: likelihoods.Gaussian(1.0 / (4.0 + 0.25)),
    ),
    "sum": (
        lambda: SquaredExponential(3.0, 0.5) + SquaredExponential(1.0, 2.0),
        lambda: NoiseMixture(
            [likelihoods.Gaussian(scale=0.5), likelihoods.Gaussian(scale=2.0)],
            [1.5 / 3.5, 2.0 / 3.5],  # height times width of both terms
        ),
    ),
}


def in_every_respect(noise: ResidualLikelihood) -> dict[str, Any]:
    Y, F = column(0.0, 1e-3, 0.4, -2.0, 8.0), column(0.0, 0.0, 0.0, 0.0, 0.0)
    Fvar = tf.fill(Y.shape, tf.constant(0.3, tf.float64))
    r = tf.constant(np.logspace(-4, 2, 13)) * noise.gamma(tf.zeros([], tf.float64))
    return {
        "log_prob": noise.log_prob(Y, F, Y),
        "bound": noise.pointwise_bound(None, F, Fvar, Y),
        "variance": noise.noise_variance(),
        "sites": noise.aux_posterior_mean(noise.aux_posterior_c(F, Fvar, Y)) * noise.gamma(Y),
        "law": noise.tilted(tf.sqrt(r)).mean() * noise.gamma(r),
    }


@pytest.mark.briefly("product")
@pytest.mark.by_default("Exponential", "own-K_r", "Cauchy", "Matern52", "sum", "product")
@pytest.mark.parametrize("name", PAIRS)
def test_noise_of_a_kernel_is_the_likelihood_of_that_shape(name: str) -> None:
    """
    They agree to 1e-9, except for laws of ω of a user's K_r, which need a tilt of at least 4e-8.
    """
    make_kernel, make_likelihood = PAIRS[name]
    ours, theirs = map(in_every_respect, (KernelNoise(make_kernel()), make_likelihood()))
    for key, value in theirs.items():
        tolerance = 1e-5 if key == "law" and name == "own-K_r" else 1e-9
        np.testing.assert_allclose(ours[key], value, rtol=tolerance, atol=1e-9, err_msg=key)


@pytest.mark.briefly("SquaredExponential", "Cauchy", "product", "Matern12")
@pytest.mark.parametrize("name", [n for n in PAIRS if n != "own-K_r2"])
def test_omega_of_a_kernel_is_that_of_the_likelihood(name: str) -> None:
    """Draws follow the likelihood's law; for a discrete law, their mean does."""
    noise, other = KernelNoise(PAIRS[name][0]()), PAIRS[name][1]()
    unit = other.gamma(tf.zeros([], tf.float64))
    c = 0.8
    draws = noise.tilted(c).sample(500, seed=[1, 2]) / unit
    if len(np.unique(draws)) <= 2:
        np.testing.assert_allclose(np.mean(draws), other.tilted(c).mean(), rtol=0.1)
        return
    p = other.tilted(np.sqrt(unit) * c).cdf(draws)
    assert scipy.stats.kstest(p, "uniform").pvalue > 1e-3


def test_complex_arguments_reach_the_users_own_function() -> None:
    z = tf.constant([0.3 + 2j, 1e-3 + 1e-3j, 5.0 - 3j], tf.complex128)
    found = KernelNoise(OwnMatern32(lengthscales=0.7)).log_phi(z)
    exact = likelihoods.Matern32(0.7).log_phi(z)
    np.testing.assert_allclose(np.exp(found), np.exp(exact), rtol=1e-12)


def test_a_users_kernel_does_not_underflow() -> None:
    """
    Where e^{−r/2} is 0, log φ is continued by its tangent, which is exact for a straight line.
    """
    r = tf.constant([1e2, 1e4, 1e8, 1e12])
    r = tf.cast(r, tf.float64)
    own = KernelNoise(OwnSquaredExponential(lengthscales=0.7))
    np.testing.assert_allclose(own.log_phi(r), likelihoods.Gaussian(scale=0.7).log_phi(r))
    bent = KernelNoise(OwnMatern32())
    assert np.all(bent.log_phi(r) <= likelihoods.Matern32(1.0).log_phi(r) + 1e-9)
    assert np.all(np.isfinite(bent.omega_mean(r)))


def test_variances_that_cancel_are_held_fixed_and_lengthscales_learn() -> None:
    single = SquaredExponential(2.0, 0.7)
    noise = KernelNoise(single)
    assert [p is single.lengthscales for p in noise.trainable_parameters] == [True]
    first, second, third = Matern32(), RationalQuadratic(), SquaredExponential(0.2)
    learnt = KernelNoise(first * second + third).trainable_parameters
    expected = [first.lengthscales, second.lengthscales, second.alpha]
    expected += [third.variance, third.lengthscales]
    assert {id(p) for p in learnt} == {id(p) for p in expected}
    Y = column(0.3, -1.0, 4.0)
    noise = KernelNoise(first * second + third)
    with tf.GradientTape() as tape:
        value = tf.reduce_sum(noise.log_prob(Y, tf.zeros_like(Y), Y))
    gradients = tape.gradient(value, noise.trainable_variables)
    assert all(g is not None and abs(float(g)) > 1e-6 for g in gradients)


@pytest.mark.by_default("product")
@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in PAIRS if n != "own-K_r2"])
def test_every_check_passes(name: str) -> None:
    check_likelihood(KernelNoise(PAIRS[name][0]()), np.linspace(-3.0, 3.0, 7)[:, None])


# ---- kernels that are refused ----


class Triangle(IsotropicStationary):
    """Positive definite in one dimension only."""

    def K_r(self, r: TensorType) -> tf.Tensor:
        return self.variance * tf.nn.relu(1.0 - r)


class Wendland(IsotropicStationary):
    """Positive definite in up to three dimensions."""

    def K_r(self, r: TensorType) -> tf.Tensor:
        return self.variance * tf.nn.relu(1.0 - r) ** 4 * (4.0 * r + 1.0)


class DampedCosine(IsotropicStationary):
    def K_r(self, r: TensorType) -> tf.Tensor:
        return self.variance * tf.exp(-r) * tf.cos(r)


class Quartic(IsotropicStationary):
    def K_r2(self, r2: TensorType) -> tf.Tensor:
        return self.variance * tf.exp(-tf.square(r2))


class Bump(IsotropicStationary):
    """The kernel decreases slowly enough, but not ever more slowly."""

    def K_r2(self, r2: TensorType) -> tf.Tensor:
        return self.variance * (1.0 + 0.5 * r2**2 / (1.0 + r2**2)) / (1.0 + r2)


@pytest.mark.parametrize(
    ("kernel", "name"),
    [
        (Triangle(), "Triangle"),
        (Wendland(lengthscales=30.0), "Wendland"),
        (DampedCosine(2.0), "DampedCosine"),
        (Quartic(), "Quartic"),
        (Bump(), "Bump"),
        (Matern32() + Wendland(5.0), "Wendland"),
        (Matern32() * Quartic(), "Quartic"),
    ],
)
def test_kernels_of_few_dimensions_are_refused(kernel: Any, name: str) -> None:
    with pytest.raises(ValueError, match=rf"positive definite in every dimension.*Found: {name}"):
        KernelNoise(kernel)


@pytest.mark.parametrize(
    "kernel",
    [Cosine(), Periodic(SquaredExponential()), Linear(), Matern32() + Linear(), "Matern32", None],
    ids=lambda kernel: type(kernel).__name__,
)
def test_kernels_that_are_not_of_the_distance_are_refused(kernel: Any) -> None:
    with pytest.raises(ValueError, match="must be an IsotropicStationary of GPflow or your own"):
        KernelNoise(kernel)


def test_a_kernel_without_its_function_or_of_several_lengthscales_is_refused() -> None:
    with pytest.raises(ValueError, match="Found: IsotropicStationary, without K_r or K_r2"):
        KernelNoise(IsotropicStationary())
    with pytest.raises(ValueError, match=r"Found: lengthscales of shape \(2,\)"):
        KernelNoise(SquaredExponential(lengthscales=[1.0, 2.0]))


def test_tails_without_an_integral_are_refused() -> None:
    with pytest.raises(ValueError, match=r"finite integral .*alpha > 1/2.*RationalQuadratic"):
        KernelNoise(RationalQuadratic(alpha=0.4))
    assert np.isinf(KernelNoise(RationalQuadratic(alpha=0.8)).noise_variance())


def test_a_kernel_is_shared() -> None:
    kernel = Matern32(lengthscales=0.4)
    noise = KernelNoise(kernel)
    kernel.lengthscales.assign(0.9)
    assert noise.kernel is kernel
    expected = likelihoods.Matern32(0.9).noise_variance()
    np.testing.assert_allclose(noise.noise_variance(), expected, rtol=1e-10)
    assert gpflow.utilities.parameter_dict(noise)[".kernel.lengthscales"] is kernel.lengthscales
