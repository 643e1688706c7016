"""E log p(y|f) and its derivatives, for every ratio of the likelihood's width to q(f)'s."""

from collections.abc import Callable
from functools import partial

import gpflow
import numpy as np
import pytest
import scipy.special
import tensorflow as tf
from cases import (
    AUGMENTED,
    LogDensity,
    column,
    generalized_gaussian_log_density,
    laplace_log_density,
    log_mean_exp,
    logistic_log_density,
    logistic_noise_log_density,
    matern_log_density,
    mean_of,
    student_t_log_density,
)
from gpflow.base import TensorType
from gpflow.likelihoods.base import QuadratureLikelihood
from gpflow.quadrature import NDiagGHQuadrature
from gpflow.utilities import to_default_float
from zoo import ZOO

from gpflow_aaci import likelihoods
from gpflow_aaci.likelihoods import AugmentedLikelihood

RATIOS = [1e-3, 1e-2, 0.1, 1.0, 10.0, 1e3]  # scale/sd
DISTANCES = [0.0, 0.3, 2.0, 5.0, 20.0, 100.0]  # (y − m)/sd


class Hinged(likelihoods.Laplace):
    """A user's own Laplace likelihood, which states log φ but no closed form."""

    def expected_log_prob(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        return likelihoods.SuperGaussianLikelihood.expected_log_prob(self, X, Fmu, Fvar, Y)


def probit_log_density(y: float, f: float) -> float:
    return float(scipy.special.log_ndtr(y * f))


Makers = tuple[Callable[[float], AugmentedLikelihood], Callable[[float], LogDensity]]
REGRESSION: dict[str, Makers] = {
    "StudentT-0.8": (
        lambda s: likelihoods.StudentT(s, 0.8),
        lambda s: student_t_log_density(s, 0.8),
    ),
    "StudentT-4.3": (
        lambda s: likelihoods.StudentT(s, 4.3),
        lambda s: student_t_log_density(s, 4.3),
    ),
    "StudentT-100": (
        lambda s: likelihoods.StudentT(s, 100.0),
        lambda s: student_t_log_density(s, 100.0),
    ),
    "Laplace": (likelihoods.Laplace, laplace_log_density),
    "Hinged": (Hinged, laplace_log_density),
    **{
        f"GeneralizedGaussian-{p}": (
            lambda s, p=p: likelihoods.GeneralizedGaussian(s, p),
            lambda s, p=p: generalized_gaussian_log_density(s, p),
        )
        for p in (0.3, 0.6, 1.3, 1.9)
    },
    "LogisticNoise": (likelihoods.LogisticNoise, logistic_noise_log_density),
    "Matern72": (
        lambda s: likelihoods.Matern(3.5, s),
        lambda s: matern_log_density(s, 3.5),
    ),
    "Matern32": (likelihoods.Matern32, lambda s: matern_log_density(s, 1.5)),
    "Matern52": (likelihoods.Matern52, lambda s: matern_log_density(s, 2.5)),
}
BINARY: dict[str, tuple[Callable[[], AugmentedLikelihood], LogDensity]] = {
    "Logistic": (likelihoods.Logistic, logistic_log_density),
    "Probit": (likelihoods.Probit, probit_log_density),
}
Setting = tuple[AugmentedLikelihood, LogDensity, float, float, list[float], float]


def setting(name: str, ratio: float) -> Setting:
    """The likelihood, log p(y|f), y, sd(f), the means of f and the width of the likelihood."""
    if name in BINARY:  # they have width 1 about f = 0
        make_binary, log_density = BINARY[name]
        distances = [*DISTANCES, -0.3, -2.0, -5.0]
        return make_binary(), log_density, 1.0, 1.0 / ratio, [-d / ratio for d in distances], 1.0
    make, log_density_of = REGRESSION[name]
    y, sd = 0.37, 0.6
    scale = ratio * sd
    return make(scale), log_density_of(scale), y, sd, [y - d * sd for d in DISTANCES], scale


Call = tuple[AugmentedLikelihood, tf.Tensor, tf.Tensor, tf.Tensor]


def call(name: str, ratio: float) -> Call:
    """The likelihood, and Fmu, Fvar and Y of the setting, all [N, 1] in the default dtype."""
    likelihood, _, y, sd, means, _ = setting(name, ratio)
    Fmu = to_default_float(np.array(means)[:, None])
    ones = tf.ones_like(Fmu)
    return likelihood, Fmu, sd**2 * ones, y * ones


def value_and_gradients(
    likelihood: AugmentedLikelihood, Fmu: tf.Tensor, Fvar: tf.Tensor, Y: tf.Tensor
) -> np.ndarray:
    """E log p and its derivatives in Fmu and Fvar, [3, N]."""
    with tf.GradientTape() as tape:
        tape.watch([Fmu, Fvar])
        value = likelihood.variational_expectations(Fmu, Fmu, Fvar, Y)
    by_mean, by_variance = tape.gradient(value, [Fmu, Fvar])
    return np.stack([value, by_mean[:, 0], by_variance[:, 0]])


def oracle(log_density: LogDensity, y: float, sd: float, mean: float, width: float) -> np.ndarray:
    """
    The same values by adaptive quadrature of the density alone.

    It uses ∂E/∂m = E[z ℓ]/sd and ∂E/∂v = E[(z² − 1) ℓ]/2v, where the value of ℓ at the mean may be
    subtracted from ℓ.
    """
    centre = [y if width != 1.0 else 0.0]
    at_mean = log_density(y, mean)

    def moment(weight: Callable[[float], float]) -> float:
        return mean_of(
            lambda f: weight((f - mean) / sd) * (log_density(y, f) - at_mean),
            mean,
            sd,
            centre,
            width,
        )

    return np.array(
        [
            at_mean + moment(lambda z: 1.0),
            moment(lambda z: z) / sd,
            moment(lambda z: z * z - 1.0) / (2.0 * sd**2),
        ]
    )


@pytest.mark.by_default("0.001", "0.1", "10.0", "1000.0")
@pytest.mark.filterwarnings("ignore::scipy.integrate.IntegrationWarning")  # see cases._integral
@pytest.mark.parametrize("ratio", RATIOS)
@pytest.mark.parametrize("name", [*REGRESSION, *BINARY])
def test_variational_expectations_at_every_width_against_q(name: str, ratio: float) -> None:
    """
    Relative errors are 1e-6 (value) and 1e-5 (derivatives), up to 100 sd from the centre.

    Where ∂E/∂v is a small difference, as beyond a kink, its error is relative to (∂E/∂m)². Where a
    class is almost certain, derivatives are 0 relative to the width of the likelihood or of q.
    """
    _, log_density, y, sd, means, width = setting(name, ratio)
    actual = value_and_gradients(*call(name, ratio))
    exact = np.stack([oracle(log_density, y, sd, m, width) for m in means], axis=1)
    unit = min(1.0, 1.0 / sd) if name in BINARY else 0.0
    error = np.abs(actual - exact)
    value, by_mean, by_variance = np.abs(exact)
    assert np.all(error[0] <= 1e-6 * np.maximum(value, 1.0))
    at_centre = sd * by_variance  # where ∂E/∂m = 0
    assert np.all(error[1] <= 1e-5 * np.maximum(np.maximum(by_mean, at_centre), 1e-3 * unit))
    natural = np.maximum(1e-3 * by_mean**2, 1e-3 * unit**2)
    assert np.all(error[2] <= 1e-5 * np.maximum(by_variance, natural))


def test_gpflows_rule_is_wrong_there() -> None:
    """Its 20 nodes miss E log p by more than a nat in some of the settings above."""
    _, log_density, y, sd, means, width = setting("StudentT-4.3", 1e-2)
    likelihood, Fmu, Fvar, Y = call("StudentT-4.3", 1e-2)
    exact = [oracle(log_density, y, sd, m, width)[0] for m in means[:2]]
    stock = QuadratureLikelihood._variational_expectations(likelihood, Fmu, Fmu, Fvar, Y)
    assert np.max(np.abs(stock[:2] - exact)) > 1.0


@pytest.mark.briefly("0.001-Matern52")
@pytest.mark.parametrize("name", ["StudentT-0.8", "StudentT-4.3", "Matern32", "Matern52"])
@pytest.mark.parametrize("ratio", [1e-3, 0.1, 10.0])
def test_gradients_in_the_parameters_are_those_of_the_value(name: str, ratio: float) -> None:
    likelihood, Fmu, Fvar, Y = call(name, ratio)
    args = Fmu, Fmu, Fvar, Y
    for parameter in likelihood.trainable_parameters:
        variable = parameter.unconstrained_variable
        with tf.GradientTape() as tape:
            value = tf.reduce_sum(likelihood.variational_expectations(*args))
        gradient = float(tape.gradient(value, variable))
        start, step, values = float(variable), 1e-4, []
        for sign in (1.0, -1.0):
            variable.assign(start + sign * step)
            values.append(float(tf.reduce_sum(likelihood.variational_expectations(*args))))
        variable.assign(start)
        assert gradient == pytest.approx((values[0] - values[1]) / (2 * step), rel=1e-5)


def test_elbo_stays_below_the_evidence_of_nearly_noise_free_data() -> None:
    """
    Student-t data share one latent value f ~ N(0, 1), and q is the prior, so the KL is 0.

    If the data lie at GPflow's nodes, its ELBO is 4 nats above log p(y).
    """
    scale, df = 1e-3, 3.0
    log_density = student_t_log_density(scale, df)
    nodes = np.polynomial.hermite_e.hermegauss(20)[0]
    ys = nodes[6:14].tolist()
    log_evidence = log_mean_exp(
        lambda f: sum(log_density(y, f) for y in ys), 0.0, 1.0, centres=ys, width=scale
    )
    likelihood, Y = likelihoods.StudentT(scale, df), column(*ys)
    args = Y, tf.zeros_like(Y), tf.ones_like(Y), Y
    stock = QuadratureLikelihood._variational_expectations(likelihood, *args)
    assert float(tf.reduce_sum(stock)) > log_evidence + 3.0
    assert float(tf.reduce_sum(likelihood.variational_expectations(*args))) < log_evidence


# ---- shapes, dtypes and quadrature ----


@pytest.mark.briefly("Logistic")
@pytest.mark.parametrize("name", [*REGRESSION, *BINARY])
def test_leading_dimensions_broadcast(name: str) -> None:
    """Fmu [S, N, P], Fvar [N, P] and Y [1, N, P] give the same as every combination alone."""
    likelihood = call(name, 0.1)[0]
    rng = np.random.default_rng(3)
    Fmu, Fvar = rng.normal(size=(4, 3, 2)), rng.uniform(0.5, 1.5, (3, 2))
    Y = np.sign(rng.normal(size=(1, 3, 2)))
    X = np.zeros((3, 1))
    actual = likelihood.variational_expectations(X, Fmu, Fvar, Y)
    expected = [likelihood.variational_expectations(X, each, Fvar, Y[0]) for each in Fmu]
    np.testing.assert_allclose(actual, expected, rtol=1e-12)
    swapped = likelihood.variational_expectations(X, Fmu[0], Fvar, np.stack([Y[0], -Y[0]]))
    expected = [
        likelihood.variational_expectations(X, Fmu[0], Fvar, each) for each in (Y[0], -Y[0])
    ]
    np.testing.assert_allclose(swapped, expected, rtol=1e-12)


@pytest.mark.briefly("1.0-Logistic", "1.0-Probit", "1.0-LogisticNoise", "1.0-Matern72")
@pytest.mark.by_default("1.0")
@pytest.mark.parametrize("name", [*REGRESSION, *BINARY])
@pytest.mark.parametrize("ratio", [1e-3, 1.0, 1e3])
def test_in_single_precision(name: str, ratio: float) -> None:
    """The error is 1e-4, and no derivative is NaN."""
    in_double = value_and_gradients(*call(name, ratio))[0]
    gpflow.config.set_default_float(np.float32)
    in_single = value_and_gradients(*call(name, ratio))
    assert in_single.dtype == np.float32
    assert np.all(np.isfinite(in_single))
    assert np.all(np.abs(in_single[0] - in_double) <= 1e-4 * np.maximum(np.abs(in_double), 1.0))


@pytest.mark.parametrize("name", ["StudentT-4.3", "Matern52", "Logistic", "Probit"])
def test_second_derivatives(name: str) -> None:
    """Nested tapes give E ℓ'' in Fmu, which is 2 ∂E/∂Fvar by Price's theorem."""
    likelihood, Fmu, Fvar, Y = call(name, 0.5)
    with tf.GradientTape() as outer:
        outer.watch(Fmu)
        with tf.GradientTape() as tape:
            tape.watch([Fmu, Fvar])
            value = likelihood.variational_expectations(Fmu, Fmu, Fvar, Y)
        by_mean, by_variance = tape.gradient(value, [Fmu, Fvar])
    np.testing.assert_allclose(
        outer.gradient(by_mean, Fmu), 2.0 * by_variance, rtol=1e-4, atol=1e-9
    )


@pytest.mark.parametrize("name", ["StudentT-4.3", "Matern52", "Logistic", "Probit"])
def test_a_quadrature_of_the_users_own_is_used(name: str) -> None:
    """It is used exactly. GPflow's default, which is set on every likelihood, is not."""
    likelihood, Fmu, Fvar, Y = call(name, 0.1)
    args = Fmu, Fmu, Fvar, Y
    default = likelihood.variational_expectations(*args)
    stock = QuadratureLikelihood._variational_expectations(likelihood, *args)
    assert np.max(np.abs(stock - default)) > 1e-3
    likelihood.quadrature = NDiagGHQuadrature(1, 7)
    stock = QuadratureLikelihood._variational_expectations(likelihood, *args)
    np.testing.assert_array_equal(likelihood.variational_expectations(*args), stock)


def by_seven_nodes(
    likelihood: AugmentedLikelihood, Fmu: TensorType, Fvar: TensorType, Y: TensorType
) -> np.ndarray:
    """Σ w log p(y|Fmu + √Fvar z) over seven Gauss-Hermite nodes."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(7)
    X = np.zeros_like(Fmu[:, :1])
    log_p = [likelihood.log_prob(X, Fmu + np.sqrt(Fvar) * z, Y) for z in nodes]
    return np.tensordot(weights / np.sum(weights), np.stack(log_p), 1)


MEMBERS = {
    **{case.name: (case.make, 1.0) for case in AUGMENTED},
    **{
        m.name: (m.make, m.observe(np.random.default_rng(0), 6))
        for m in ZOO
        if isinstance(m.make(), gpflow.likelihoods.ScalarLikelihood)
    },
}


@pytest.mark.briefly("Probit", "Poisson")
@pytest.mark.by_default(
    "StudentT",
    "Switched",
    "Warped StudentT",
    "NoiseMixture",
    "NegativeBinomial",
    "Probit",
    "Ordinal",
    "Missing StudentT",
    "Poisson",
    "Gaussian",
    "Laplace",
)
@pytest.mark.parametrize(("make", "y"), MEMBERS.values(), ids=MEMBERS)
def test_every_product_over_outputs_uses_the_quadrature_it_is_given(
    make: Callable[[], AugmentedLikelihood], y: object
) -> None:
    likelihood = make()
    likelihood.quadrature = NDiagGHQuadrature(1, 7)
    Y = np.broadcast_to(y, [6, np.shape(y)[-1] if np.ndim(y) else 1]).astype(float)
    columns = likelihood.num_outputs(Y.shape[-1])
    Fmu = np.linspace(-1.0, 2.0, 6 * columns).reshape(6, columns)
    Fvar = np.linspace(0.1, 2.0, 6 * columns).reshape(6, columns)
    found = likelihood.variational_expectations(np.zeros([6, 1]), Fmu, Fvar, Y)
    np.testing.assert_allclose(found, by_seven_nodes(likelihood, Fmu, Fvar, Y), rtol=1e-9)


def test_what_is_warped_or_switched_keeps_the_quadrature_that_it_was_given() -> None:
    quadrature, plain = NDiagGHQuadrature(1, 7), likelihoods.StudentT(0.3)
    given = likelihoods.StudentT(0.3, quadrature=quadrature)
    Fmu, Fvar, Y = column(0.2, 1.0), column(0.5, 2.0), column(0.3, -1.0)
    expected = by_seven_nodes(plain, Fmu, Fvar, Y)
    warped = likelihoods.Warped(given, likelihoods.warps.Identity())
    np.testing.assert_allclose(
        warped.variational_expectations(Y, Fmu, Fvar, Y), expected, rtol=1e-9
    )
    switched = likelihoods.Switched([given, plain])
    with_part = tf.concat([Y, column(0.0, 1.0)], 1)
    expected[1] = plain.variational_expectations(Y, Fmu, Fvar, Y)[1]
    np.testing.assert_allclose(
        switched.variational_expectations(Y, Fmu, Fvar, with_part), expected, rtol=1e-9
    )


@pytest.mark.parametrize(
    "make",
    [
        partial(likelihoods.LogisticSoftmax, 3),
        partial(likelihoods.Heteroscedastic, likelihoods.Gaussian()),
        partial(likelihoods.MultivariateStudentT, 1.0, 3.0, 2),
    ],
)
def test_a_likelihood_of_several_latent_gps_refuses_a_quadrature(make: Callable) -> None:
    with pytest.raises(ValueError, match=r"quadrature must not be given.*Found: NDiagGHQ"):
        make(quadrature=NDiagGHQuadrature(2, 7))
