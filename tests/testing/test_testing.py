"""``check_likelihood``: which likelihoods pass, which do not, and with which message."""

import math
from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
import pytest
import scipy.special
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow import Parameter
from gpflow.base import AnyNDArray, TensorType
from gpflow.utilities import positive
from likelihoods.cases import AUGMENTED, Case, case_id, column

from gpflow_aaci import check_likelihood, likelihoods
from gpflow_aaci.distributions import InverseGaussian, PolyaGamma, PositiveNormal
from gpflow_aaci.likelihoods import AugmentedLikelihood, SuperGaussianLikelihood
from gpflow_aaci.likelihoods.observations import POSITIVE

REAL = np.linspace(-3.0, 3.0, 7)[:, None]
LABELS = np.array([[1.0], [-1.0]])


class Cauchy(SuperGaussianLikelihood):
    """A user's likelihood, the ten lines of the README."""

    def __init__(self, scale: float = 1.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.scale = Parameter(scale, transform=positive())

    def log_C(self, Y: TensorType) -> tf.Tensor:
        return -tf.math.log(math.pi * self.scale) + tf.zeros_like(Y)

    def alpha(self, Y: TensorType) -> tf.Tensor:
        return tf.square(Y / self.scale)

    def beta(self, Y: TensorType) -> tf.Tensor:
        return 2.0 * Y / tf.square(self.scale)

    def gamma(self, Y: TensorType) -> tf.Tensor:
        return 1.0 / tf.square(self.scale) + tf.zeros_like(Y)

    def log_phi(self, r: TensorType) -> tf.Tensor:
        return -tf.math.log1p(r)


class Residual(likelihoods.ResidualLikelihood):
    """C φ((y − f)²) for any φ."""

    def __init__(
        self, log_phi: Callable[[tf.Tensor], tf.Tensor], total: float | None = None
    ) -> None:
        """:param total: ∫ φ(x²) dx; None for a pseudo-likelihood."""
        super().__init__()
        self._log_phi = log_phi
        self.is_density = total is not None
        self._log_C = 0.0 if total is None else -math.log(total)

    def log_C(self, Y: TensorType) -> tf.Tensor:
        return self._log_C + tf.zeros_like(Y)

    def log_phi(self, r: TensorType) -> tf.Tensor:
        return self._log_phi(r)

    def noise_variance(self) -> tf.Tensor:
        raise NotImplementedError


def refusal(likelihood: AugmentedLikelihood, Y: AnyNDArray = REAL) -> str:
    """The message of the error, which must be raised."""
    with pytest.raises(ValueError, match=type(likelihood).__name__) as error:
        check_likelihood(likelihood, Y)
    return str(error.value)


# ---- likelihoods that pass ----


@pytest.mark.briefly("Probit")
@pytest.mark.by_default("StudentT", "Probit")
@pytest.mark.parametrize("case", AUGMENTED, ids=case_id)
def test_the_built_in_likelihoods_pass(case: Case) -> None:
    check_likelihood(case.make(), LABELS if case.is_binary else REAL)


@pytest.mark.by_default("StudentT-0.0001")
@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4])
@pytest.mark.parametrize(
    "make",
    [
        lambda scale: likelihoods.Gaussian(scale=scale),
        lambda scale: likelihoods.StudentT(scale, 2.5),
        likelihoods.Laplace,
        likelihoods.Matern32,
        likelihoods.Matern52,
    ],
    ids=["Gaussian", "StudentT", "Laplace", "Matern32", "Matern52"],
)
def test_the_scale_of_the_data_does_not_matter(
    make: Callable[[float], AugmentedLikelihood], scale: float
) -> None:
    """Rounding raises no false alarm if scale or Y are far from 1."""
    tens = [[1e-6], [-1e-3], [1.0], [-1e4], [1e8], [-1e12]]
    check_likelihood(make(scale), np.array([*tens, [0.0], [0.5 * scale], [-3.0 * scale]]))


@pytest.mark.slow
def test_zero_one_labels_pass() -> None:
    check_likelihood(likelihoods.Logistic(), (LABELS + 1.0) / 2.0)
    check_likelihood(likelihoods.Probit(), (LABELS + 1.0) / 2.0)
    check_likelihood(likelihoods.BayesianSVM(), np.zeros([3, 2]))


@pytest.mark.by_default("30.0")
@pytest.mark.parametrize("scale", [0.2, 1.0, 30.0])
def test_a_cauchy_in_ten_lines_passes(scale: float) -> None:
    check_likelihood(Cauchy(scale), REAL)


def test_a_cauchy_in_ten_lines_predicts() -> None:
    """Its predictive density, by default quadrature, is the Voigt profile."""
    Y = column(0.0, 0.7, 5.0, 200.0)
    zero, one = tf.zeros_like(Y), tf.ones_like(Y)
    for scale in (1e-3, 0.1, 10.0):
        actual = Cauchy(scale).predict_log_density(zero, zero, one, Y)
        expected = np.log(scipy.special.voigt_profile(Y[:, 0].numpy(), 1.0, scale))
        np.testing.assert_allclose(actual, expected, atol=1e-6)


def test_a_missing_conditional_mean_is_named() -> None:
    F = column(0.3)
    with pytest.raises(NotImplementedError, match="Cauchy must define _conditional_mean"):
        Cauchy().predict_mean_and_var(F, F, tf.ones_like(F))


@pytest.mark.briefly("product")
@pytest.mark.parametrize(
    "likelihood",
    [
        # exp(−Bernstein function) is completely monotone.
        Residual(lambda r: -r / (1.0 + r)),
        Residual(lambda r: -tf.math.log1p(tf.sqrt(r))),
        Residual(lambda r: -0.3 * r - tf.math.log1p(r)),
        Residual(lambda r: -tf.math.log1p(r), total=math.pi),
        # Pseudo-Huber, the hyperbolic law: ∫ e^{1 − √(1 + x²)} dx = 2e K₁(1).
        Residual(lambda r: 1.0 - tf.sqrt(1.0 + r), total=2 * math.e * scipy.special.k1(1.0)),
    ],
    ids=["exp-Bernstein", "log1p-sqrt", "product", "Cauchy", "hyperbolic"],
)
def test_completely_monotone_functions_pass(likelihood: SuperGaussianLikelihood) -> None:
    check_likelihood(likelihood, REAL)


# ---- likelihoods that do not ----


@pytest.mark.briefly("exp-r\\xb2")
@pytest.mark.parametrize(
    ("log_phi", "order"),
    [
        (lambda r: -tf.square(r), 2),
        (lambda r: -r * tf.sqrt(r), 2),
        (lambda r: -tf.math.log1p(tf.square(r)), 2),
        (lambda r: tf.math.log1p(r) - r, 2),
        # 2e^{−r} − e^{−2r} is a mixture with a negative weight.
        (lambda r: -r + tf.math.log(2.0 - tf.exp(-r)), 2),
        # In 1.16 e^{−r} − 0.16 e^{−2.2r}, 1.16 − 0.16·2.2^k is negative only from k = 3.
        (lambda r: -r + tf.math.log(1.16 - 0.16 * tf.exp(-1.2 * r)), 3),
        # Here 1.08 − 0.08·2^k is negative only from k = 4.
        (lambda r: -r + tf.math.log(1.08 - 0.08 * tf.exp(-r)), 4),
        (lambda r: r, 1),
    ],
    ids=[
        "exp-r²",
        "exp-r^1.5",
        "1/(1+r²)",
        "(1+r)exp-r",
        "mixture",
        "mixture-3",
        "mixture-4",
        "rising",
    ],
)
def test_what_is_not_completely_monotone_is_refused(
    log_phi: Callable[[tf.Tensor], tf.Tensor], order: int
) -> None:
    """The message names the property, the order of the derivative, and r."""
    message = refusal(Residual(log_phi))
    assert "completely monotone" in message
    assert f"derivative of order {order} has the wrong sign at r = " in message


@pytest.mark.briefly("exp-r\\xb2-far")
@pytest.mark.parametrize(
    "log_phi",
    [
        lambda r: -tf.square(r / 1e12),
        lambda r: -tf.sqrt(r) + 0.12 * tf.exp(-tf.square(tf.math.log(r / 2e-4))),
        lambda r: -tf.sqrt(r) + 0.01 * tf.exp(-tf.square(tf.math.log(r / 1e-10))),
        lambda r: -tf.math.log1p(r) + 1.5 * tf.exp(-tf.square(tf.math.log(r / 1e7))),
    ],
    ids=["exp-r²-far", "bump-2e-4", "bump-1e-10", "bump-1e7"],
)
def test_complete_monotonicity_is_looked_at_on_every_scale(
    log_phi: Callable[[tf.Tensor], tf.Tensor],
) -> None:
    """Each of these φ looks right for r from 0.01 to 1e4."""
    assert "completely monotone" in refusal(Residual(log_phi))


@pytest.mark.parametrize("rise", [0.1, 1e-6])
def test_phi_must_not_exceed_one(rise: float) -> None:
    """This φ starts at 1, rises before r = 1e-15, and is right from there on."""
    message = refusal(Residual(lambda r: rise * r / (r + 1e-20) - r))
    assert "phi must be at most 1; at r = " in message
    assert "phi(0) must be 1" not in message


def test_nan_is_not_completely_monotone() -> None:
    """Comparisons with NaN are False, which must not make the check pass."""
    message = refusal(Residual(lambda r: -tf.where(tf.abs(r) > 50.0, r * np.nan, r)))
    assert "completely monotone" in message


@pytest.mark.parametrize("offset", [math.log(0.5), 1e-4])
def test_phi_must_start_at_one(offset: float) -> None:
    assert "phi(0) must be 1" in refusal(Residual(lambda r: offset - r))


class Shrunk(Cauchy):
    """α is too small, so that h² < 0 near f = y."""

    def alpha(self, Y: TensorType) -> tf.Tensor:
        return 0.5 * tf.square(Y / self.scale)


class Concave(Cauchy):
    """γ < 0."""

    def gamma(self, Y: TensorType) -> tf.Tensor:
        return -tf.ones_like(Y)


@pytest.mark.briefly("likelihood1")
@pytest.mark.parametrize("likelihood", [Shrunk(), Concave()])
def test_h_squared_must_not_be_negative(likelihood: SuperGaussianLikelihood) -> None:
    """The message has the y, α, β and γ at which it is negative."""
    message = refusal(likelihood)
    assert "beta² ≤ 4 alpha gamma" in message
    assert "at y = -3, alpha = " in message


class PositiveLaplace(SuperGaussianLikelihood):
    """Laplace noise of log y, β = 1, its density times a factor."""

    kind_of_y = POSITIVE

    def __init__(self, factor: float = 1.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.factor = factor

    def log_C(self, Y: TensorType) -> tf.Tensor:
        return math.log(self.factor / 2.0) - tf.math.log(Y)

    def alpha(self, Y: TensorType) -> tf.Tensor:
        return tf.square(tf.math.log(Y))

    def beta(self, Y: TensorType) -> tf.Tensor:
        return 2.0 * tf.math.log(Y)

    def gamma(self, Y: TensorType) -> tf.Tensor:
        return tf.ones_like(Y)

    def log_phi(self, r: TensorType, Y: TensorType | None = None) -> tf.Tensor:
        return -tf.sqrt(r)


def test_a_density_of_positive_y_is_integrated_over_these() -> None:
    Y = np.array([[0.2], [1.0], [30.0]])
    check_likelihood(PositiveLaplace(), Y)
    with pytest.raises(ValueError, match=r"integrate to 1 .* it integrates to 1\.01"):
        check_likelihood(PositiveLaplace(1.01), Y)


class WithoutJoint(likelihoods.Exponential):
    """It has laws of its auxiliary variables, and no joint density."""

    def log_joint(self, X: Any, auxiliary: Any, F: TensorType, Y: TensorType) -> tf.Tensor:
        raise NotImplementedError


def test_a_law_without_a_joint_density_is_named() -> None:
    with pytest.raises(ValueError, match="log_joint must be defined, as auxiliary_law is"):
        check_likelihood(WithoutJoint(), np.array([[0.5], [2.0]]))


def test_positive_y_are_not_warped() -> None:
    with pytest.raises(ValueError, match="base must be an Interval, or a likelihood of a real y"):
        likelihoods.Warped(PositiveLaplace(), likelihoods.warps.Log())


@pytest.mark.by_default("1.00001")
@pytest.mark.parametrize("factor", [0.9, 1.1, 1.0 + 1e-5])
def test_a_density_must_integrate_to_one(factor: float) -> None:
    """The message says what the integral is, and how to declare a pseudo-likelihood."""
    wrong = Residual(lambda r: -tf.math.log1p(r), total=math.pi / factor)
    message = refusal(wrong)
    assert "must integrate to 1" in message
    assert "is_density = False" in message
    assert f"{factor:.6g}" in message
    wrong.is_density = False
    check_likelihood(wrong, REAL)


class UnnormalisedLogistic(likelihoods.Logistic):
    """Its probabilities sum to 1.1."""

    def log_C(self, Y: TensorType) -> tf.Tensor:
        return super().log_C(Y) + math.log(1.1)


@pytest.mark.slow
def test_class_probabilities_must_sum_to_one() -> None:
    assert "integrates to 1.1" in refusal(UnnormalisedLogistic(), LABELS)


def softplus_log_phi(r: tf.Tensor) -> tf.Tensor:
    """The logistic log φ in a form that is right only for real r."""
    s = tf.sqrt(r) / 2.0
    return tf.cast(math.log(2.0), r.dtype) - s - tf.math.softplus(-2.0 * s)


def test_a_log_phi_without_complex_kernel_is_refused_with_advice() -> None:
    message = refusal(Residual(softplus_log_phi))
    assert "log_phi must take complex arguments" in message
    assert "log1p" in message
    assert "completely monotone" not in message  # for real r it is right


def test_a_parameter_without_cast_is_refused_with_advice() -> None:
    """TensorFlow cannot divide a complex tensor by a Parameter."""
    scale = Parameter(2.0, transform=positive())
    assert "tf.cast(parameter, r.dtype)" in refusal(Residual(lambda r: -r / scale))


@pytest.mark.briefly("other-branch")
@pytest.mark.by_default("other", "conj")
@pytest.mark.parametrize(
    ("log_phi", "reason"),
    [
        (lambda r: -(2.0 if r.dtype.is_complex else 1.0) * tf.sqrt(r), "the same function"),
        (lambda r: -tf.sqrt(tf.abs(r)), "analytic"),
        (lambda r: -tf.sqrt(tf.math.conj(r)), "analytic"),
    ],
    ids=["other-branch", "abs", "conj"],
)
def test_complex_log_phi_must_continue_the_real_one(
    log_phi: Callable[[tf.Tensor], tf.Tensor], reason: str
) -> None:
    message = refusal(Residual(log_phi))
    assert reason in message
    assert "completely monotone" not in message


class DoubledLogistic(likelihoods.Logistic):
    """ω has the law PG(1, c), which belongs to e^{−h²ω/2}, not to e^{−h²ω}."""

    def _tilted(self, c: tf.Tensor) -> tfp.distributions.Distribution:
        one = tf.ones([], c.dtype)
        return PolyaGamma(one, c, one)


class DoubledGaussian(likelihoods.Gaussian):
    """ω is 1/σ² where 1/2σ² is right."""

    def _tilted(self, c: tf.Tensor) -> tfp.distributions.Distribution:
        return tfp.distributions.Deterministic(1.0 / self.noise_variance() + tf.zeros_like(c))


class UntiltedStudentT(likelihoods.StudentT):
    """Its law of ω does not depend on c."""

    def _tilted(self, c: tf.Tensor) -> tfp.distributions.Distribution:
        return super()._tilted(tf.zeros_like(c))


class BrokenLaplace(likelihoods.Laplace):
    """Its law of ω has bad parameters."""

    def _tilted(self, c: tf.Tensor) -> tfp.distributions.Distribution:
        return InverseGaussian(-c, c)


@pytest.mark.briefly("BrokenLaplace-ndarray-str")
@pytest.mark.by_default("UntiltedStudentT", "BrokenLaplace")
@pytest.mark.parametrize(
    ("likelihood", "Y", "reason"),
    [
        (DoubledLogistic(), LABELS, "whatever ω is; at y = 1, f = 0.3, ω = "),
        (DoubledGaussian(0.5), REAL, "whatever ω is; at y = -3"),
        (UntiltedStudentT(), REAL, "whatever ω is"),
        (BrokenLaplace(), REAL, "it fails with: InverseGaussian: loc must be positive"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_wrong_law_of_omega_is_found(
    likelihood: SuperGaussianLikelihood, Y: AnyNDArray, reason: str
) -> None:
    """Only Bayes' rule finds it, since log_phi and all of variational inference are right."""
    message = refusal(likelihood, Y)
    assert message.split(": ", 1)[1].startswith("tilted(c) must be")
    assert reason in message
    assert "completely monotone" not in message


def test_a_point_mass_without_closed_form_passes() -> None:
    """For φ(r) = e^{−r/2}, ω is ½, and TiltedDistribution has no density to compare."""
    check_likelihood(Residual(lambda r: -0.5 * r, total=math.sqrt(2.0 * math.pi)), REAL)


class HalvedPartition(likelihoods.Probit):
    """The normaliser Z lacks the factor 2 of 2Φ."""

    def aux_kldivergence(self, c: TensorType, Y: TensorType | None = None) -> tf.Tensor:
        return super().aux_kldivergence(c) + math.log(2.0)


class InfinitePartition(likelihoods.Probit):
    """The formula for log ∫ e^{ηω} π(ω) dω overflows."""

    def aux_kldivergence(self, c: TensorType, Y: TensorType | None = None) -> tf.Tensor:
        tilt = tf.math.log(c)
        log_Z = tf.math.log(tf.exp(0.5 * tilt**2) * tf.math.erfc(-tilt / math.sqrt(2.0)))
        return tilt * self.aux_posterior_mean(c) - log_Z


class ShiftedMean(likelihoods.Probit):
    """The mean is E[ω] + 0.01."""

    def aux_posterior_mean(self, c: TensorType, Y: TensorType | None = None) -> tf.Tensor:
        return super().aux_posterior_mean(c) + 0.01


class FlippedTilt(likelihoods.Probit):
    """The law of ω is N(−η, 1) truncated to positive numbers, where N(η, 1) is right."""

    def tilted(self, c: tf.Tensor, Y: TensorType | None = None) -> tfp.distributions.Distribution:
        return PositiveNormal(-tf.math.log(c))


class ForgottenVariance(likelihoods.Probit):
    """E f² is taken as m²."""

    def expected_logtilt(
        self, omega: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        return super().expected_logtilt(omega, Fmu, tf.zeros_like(Fvar), Y)


class BoundWithoutVariance(likelihoods.Probit):
    """The bound is log Φ(y m), which is above E log Φ(y f)."""

    def pointwise_bound(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        return super().pointwise_bound(X, Fmu, tf.zeros_like(Fvar), Y)


class UnnormalisedProbit(likelihoods.Probit):
    """Its probabilities sum to 1.1."""

    def pointwise_bound(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        return super().pointwise_bound(X, Fmu, Fvar, Y) + math.log(1.1)


class NarrowPrediction(likelihoods.Probit):
    """It predicts Φ(y m), where Φ(y m/√(1 + v)) is right."""

    def predictive_log_density(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        return super().predictive_log_density(X, Fmu, tf.zeros_like(Fvar), Y)


class DoubledPrecision(likelihoods.Probit):
    """The precision is 2, where 1 is right."""

    def site(self, X: TensorType, auxiliary: tf.Tensor, Y: TensorType) -> tuple:
        potential, precision = super().site(X, auxiliary, Y)
        return potential, 2.0 * precision


class UnsignedPotential(likelihoods.Probit):
    """The potential is ω, where y ω is right."""

    def site(self, X: TensorType, auxiliary: tf.Tensor, Y: TensorType) -> tuple:
        return auxiliary + tf.zeros_like(Y), super().site(X, auxiliary, Y)[1]


class OneSidedC(likelihoods.Probit):
    """c is e^{|η|}, where e^η is right."""

    def aux_posterior_c(self, Fmu: TensorType, Fvar: TensorType, Y: TensorType) -> tf.Tensor:
        return super().aux_posterior_c(tf.abs(Fmu), Fvar, tf.ones_like(Y))


@pytest.mark.briefly("DoubledPrecision-site must be the potential and precision of logtilt in f")
@pytest.mark.parametrize(
    ("likelihood", "reason"),
    [
        (HalvedPartition(), "less aux_kldivergence, at aux_posterior_c, must be the bound"),
        (InfinitePartition(), "aux_kldivergence must be finite; at c = "),
        (ShiftedMean(), "less aux_kldivergence, at aux_posterior_c, must be the bound; at f = "),
        (FlippedTilt(), "tilted(c) must be e^{ηω} π(ω)/Z(η)"),
        (ForgottenVariance(), "expected_logtilt must be the expectation under f"),
        (BoundWithoutVariance(), "the augmented bound must stay below E log p(y|f); at y = "),
        (UnnormalisedProbit(), "p(y|f) must integrate to 1"),
        (NarrowPrediction(), "predictive_log_density must be log E p(y|f)"),
        (DoubledPrecision(), "site must be the potential and precision of logtilt in f"),
        (UnsignedPotential(), "site must be the potential and precision of logtilt in f"),
        (OneSidedC(), "less aux_kldivergence, at aux_posterior_c, must be the bound; at f = "),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_a_wrong_augmentation_without_phi_is_found(
    likelihood: AugmentedLikelihood, reason: str
) -> None:
    """Each of its wrong statements is found, and no message mentions φ, which it lacks."""
    message = refusal(likelihood, LABELS)
    assert reason in message
    assert "phi" not in message


class DoubledLaplaceDensity(likelihoods.Laplace):
    """The closed form of its density is off by log 2."""

    def predictive_log_density(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        return super().predictive_log_density(X, Fmu, Fvar, Y) + math.log(2.0)


@pytest.mark.by_default("10000.0")
@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4])
def test_a_wrong_predictive_density_is_found(scale: float) -> None:
    message = refusal(DoubledLaplaceDensity(scale))
    assert message.count("must") == 1
    assert "predictive_log_density must be log E p(y|f)" in message


def test_what_is_no_likelihood_is_refused() -> None:
    with pytest.raises(ValueError, match=r"likelihood must be a gpflow.* Found: function\."):
        check_likelihood(lambda f: f, LABELS)  # type: ignore[arg-type]


@pytest.mark.parametrize("likelihood", [likelihoods.Logistic(), likelihoods.BayesianSVM()])
@pytest.mark.parametrize("labels", [[0.0, 2.0], [0.0, -1.0], [1.0, 0.5]])
def test_wrong_labels_are_shown(likelihood: SuperGaussianLikelihood, labels: list[float]) -> None:
    """Using 0 and −1 together is wrong, too, as no coding has both."""
    with pytest.raises(ValueError, match=type(likelihood).__name__) as error:
        check_likelihood(likelihood, np.array(labels)[:, None])
    for label in labels:
        assert f"{label:g}" in str(error.value).split("Found:")[1]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_y_must_be_finite(value: float) -> None:
    with pytest.raises(ValueError, match=r"Y must be finite\. Found: \[-?(nan|inf)\]"):
        check_likelihood(Cauchy(), np.array([[0.0], [value]]))


def test_every_failure_is_reported_at_once() -> None:
    message = refusal(Residual(lambda r: 0.1 - tf.square(r), total=1.0))
    assert "phi(0) must be 1" in message
    assert "completely monotone" in message
    assert "must integrate to 1" in message


def test_single_precision_is_refused() -> None:
    """The checks need float64, and the message says so."""
    with (
        gpflow.config.as_context(gpflow.config.Config(float=np.float32)),
        pytest.raises(ValueError, match="default_float must be float64"),
    ):
        check_likelihood(likelihoods.Logistic(), LABELS)
