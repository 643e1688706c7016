r"""
The auxiliary-variable verbs, derived once for every super-Gaussian likelihood.

The names are those of AugmentedGPLikelihoods.jl. The convention is exp(−h² ω) throughout:

    p(y, ω | f) = C e^{g f} e^{−h² ω} π_φ(ω|0),    q(ω) = π_φ(ω|c).

A q(ω) is known by its ``c`` alone. All arguments and results but the likelihood are [N, P], one
column for every output; results are per datum and are not summed.
"""

import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import TensorType

from .likelihoods.base import SuperGaussianLikelihood, c_squared_floor


@check_shapes("F: [N, P]", "Y: [N, P]", "return: [N, P]")
def aux_full_conditional_c(
    likelihood: SuperGaussianLikelihood, F: TensorType, Y: TensorType
) -> tf.Tensor:
    """c = |h(f, y)|, floored: the full conditional is p(ω|f, y) = π_φ(ω|c) (AACI Thm 2)."""
    return aux_posterior_c(likelihood, F, tf.zeros_like(F), Y)


@check_shapes("Fmu: [N, P]", "Fvar: [N, P]", "Y: [N, P]", "return: [N, P]")
def aux_posterior_c(
    likelihood: SuperGaussianLikelihood, Fmu: TensorType, Fvar: TensorType, Y: TensorType
) -> tf.Tensor:
    """c = √(E_q h²), which gives the optimal q(ω) = π_φ(ω|c) (AACI Eq. 12); floored."""
    r = likelihood.expected_h_squared(Fmu, Fvar, Y)
    return tf.sqrt(tf.maximum(r, c_squared_floor(r.dtype)))


@check_shapes("c: [N, P]", "return: [N, P]")
def aux_posterior_mean(likelihood: SuperGaussianLikelihood, c: TensorType) -> tf.Tensor:
    """ω̄ = E_q ω = −d log φ/dr at r = c² (AACI Eq. 9), floored where it may be infinite."""
    return likelihood.omega_mean(_floored_square(c))


@check_shapes("c: [N, P]", "return: [N, P]")
def aux_kldivergence(likelihood: SuperGaussianLikelihood, c: TensorType) -> tf.Tensor:
    """KL[π_φ(·|c) ‖ π_φ(·|0)] = −c² ω̄ − log φ(c²)."""
    r = _floored_square(c)
    return -r * likelihood.omega_mean(r) - likelihood.log_phi(r)


def _floored_square(c: TensorType) -> tf.Tensor:
    r = tf.square(c)
    return tf.maximum(r, c_squared_floor(r.dtype))


@check_shapes(
    "omega: [batch..., N, P]", "Y: [broadcast batch..., N, P]", "return: [batch..., N, P]"
)
def auglik_potential(
    likelihood: SuperGaussianLikelihood, omega: TensorType, Y: TensorType
) -> tf.Tensor:
    """g + β ω: the site's contribution to Σ⁻¹μ given ω (AACI Thm 2)."""
    return likelihood.g(Y) + likelihood.beta(Y) * omega


@check_shapes(
    "omega: [batch..., N, P]", "Y: [broadcast batch..., N, P]", "return: [batch..., N, P]"
)
def auglik_precision(
    likelihood: SuperGaussianLikelihood, omega: TensorType, Y: TensorType
) -> tf.Tensor:
    """2γω: the site's contribution to Σ⁻¹ given ω (AACI Thm 2)."""
    return 2.0 * likelihood.gamma(Y) * omega


@check_shapes(
    "omega: [batch..., N, P]",
    "Y: [broadcast batch..., N, P]",
    "return[0]: [batch..., N, P]",
    "return[1]: [batch..., N, P]",
)
def auglik_potential_and_precision(
    likelihood: SuperGaussianLikelihood, omega: TensorType, Y: TensorType
) -> tuple[tf.Tensor, tf.Tensor]:
    """(g + β ω, 2γω)."""
    return auglik_potential(likelihood, omega, Y), auglik_precision(likelihood, omega, Y)


@check_shapes("c: [N, P]", "Y: [N, P]", "return: [N, P]")
def expected_auglik_potential(
    likelihood: SuperGaussianLikelihood, c: TensorType, Y: TensorType
) -> tf.Tensor:
    """E_q[g + β ω] = g + β ω̄(c); the potential is linear in ω."""
    return auglik_potential(likelihood, aux_posterior_mean(likelihood, c), Y)


@check_shapes("c: [N, P]", "Y: [N, P]", "return: [N, P]")
def expected_auglik_precision(
    likelihood: SuperGaussianLikelihood, c: TensorType, Y: TensorType
) -> tf.Tensor:
    """E_q[2γω] = 2γ ω̄(c)."""
    return auglik_precision(likelihood, aux_posterior_mean(likelihood, c), Y)


@check_shapes("c: [N, P]", "Y: [N, P]", "return[0]: [N, P]", "return[1]: [N, P]")
def expected_auglik_potential_and_precision(
    likelihood: SuperGaussianLikelihood, c: TensorType, Y: TensorType
) -> tuple[tf.Tensor, tf.Tensor]:
    """(g + β ω̄, 2γω̄), with ω̄ computed once."""
    return auglik_potential_and_precision(likelihood, aux_posterior_mean(likelihood, c), Y)


@check_shapes("omega: [N, P]", "F: [N, P]", "Y: [N, P]", "return: [N, P]")
def logtilt(
    likelihood: SuperGaussianLikelihood, omega: TensorType, F: TensorType, Y: TensorType
) -> tf.Tensor:
    """log p(y|ω, f) = log C + g f − h² ω (AACI Eq. 10, with the sign of g f mended)."""
    return expected_logtilt_given_mean(likelihood, omega, F, tf.zeros_like(F), Y)


@check_shapes("c: [N, P]", "Fmu: [N, P]", "Fvar: [N, P]", "Y: [N, P]", "return: [N, P]")
def expected_logtilt(
    likelihood: SuperGaussianLikelihood,
    c: TensorType,
    Fmu: TensorType,
    Fvar: TensorType,
    Y: TensorType,
) -> tf.Tensor:
    """E_{q(f)q(ω)} log p(y|ω, f) = log C + g Fmu − ω̄(c) E h²."""
    omega_mean = aux_posterior_mean(likelihood, c)
    return expected_logtilt_given_mean(likelihood, omega_mean, Fmu, Fvar, Y)


def expected_logtilt_given_mean(
    likelihood: SuperGaussianLikelihood,
    omega: TensorType,
    Fmu: TensorType,
    Fvar: TensorType,
    Y: TensorType,
) -> tf.Tensor:
    """log C + g Fmu − ω E h²: the log-tilt is linear in ω, so its mean is all that counts."""
    linear = likelihood.log_C(Y) + likelihood.g(Y) * Fmu
    return linear - omega * likelihood.expected_h_squared(Fmu, Fvar, Y)


@check_shapes("c: [N, P]", "Fmu: [N, P]", "Fvar: [N, P]", "Y: [N, P]", "return: [N, P]")
def expected_aug_loglik(
    likelihood: SuperGaussianLikelihood,
    c: TensorType,
    Fmu: TensorType,
    Fvar: TensorType,
    Y: TensorType,
) -> tf.Tensor:
    """
    A datum's term of the augmented bound at any c: E log p(y|ω, f) − KL[q(ω) ‖ p(ω)].

    Below ``variational_expectations`` for every c > 0, largest at ``aux_posterior_c``.
    """
    return expected_logtilt(likelihood, c, Fmu, Fvar, Y) - aux_kldivergence(likelihood, c)


@check_shapes("Fmu: [N, P]", "Fvar: [N, P]", "Y: [N, P]", "return: [N, P]")
def optimal_expected_aug_loglik(
    likelihood: SuperGaussianLikelihood, Fmu: TensorType, Fvar: TensorType, Y: TensorType
) -> tf.Tensor:
    """
    ``expected_aug_loglik`` at its optimum c² = E h²: log C + g Fmu + log φ(E h²).

    The KL of ω has cancelled against ω̄ E h². (At the floor on c² they do not, and the tangent of
    log φ is what remains.)
    """
    r = likelihood.expected_h_squared(Fmu, Fvar, Y)
    return likelihood.log_C(Y) + likelihood.g(Y) * Fmu + likelihood.floored_log_phi(r)
