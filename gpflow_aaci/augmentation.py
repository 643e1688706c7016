r"""
The auxiliary-variable verbs, derived once for every likelihood with an augmentation.

The names are those of AugmentedGPLikelihoods.jl, the order of the arguments is not. Here it is
(F, Y), as GPflow has it; there it is (y, f), and both are of one shape, so that a script carried
over without turning them round may run and be wrong. ``expected_*`` and ``aux_kldivergence`` take
``c``, which is all there is to a q(ω), where the Julia functions take q(Ω).

What a likelihood states is

    p(y, ω|f) = e^{offset(f, y) + η ω} π(ω),  η = tilt(f, y),    q(ω) = e^{ηω} π(ω) / Z(η).

A q(ω) is known by its ``c`` alone, with η = −c² for super-Gaussian likelihoods: offset
log C + g f, tilt −h², Z(−c²) = φ(c²), p(y, ω|f) = C e^{g f} e^{−h² ω} π_φ(ω|0).

All arguments and results but the likelihood are [N, P], one column for every output, and F and ω
may have leading dimensions of chains; results are per datum and are not summed.
"""

from typing import Any

import tensorflow as tf
import tensorflow_probability as tfp
from check_shapes import check_shapes
from gpflow.base import TensorType
from gpflow.config import default_float

from .likelihoods import AugmentedLikelihood

# ---- laws of ω ----


@check_shapes("F: [batch..., N, P]", "Y: [broadcast batch..., N, P]", "return: [batch..., N, P]")
def aux_full_conditional_c(
    likelihood: AugmentedLikelihood, F: TensorType, Y: TensorType
) -> tf.Tensor:
    """c of p(ω|f, y); |h(f, y)| where it is super-Gaussian (AACI Thm 2)."""
    return likelihood.conditional_c(F, Y)


@check_shapes("F: [batch..., N, P]", "Y: [broadcast batch..., N, P]")
def aux_full_conditional(
    likelihood: AugmentedLikelihood, F: TensorType, Y: TensorType
) -> tfp.distributions.Distribution:
    """p(ω|f, y), of batch shape [batch..., N, P]."""
    return likelihood.tilted(aux_full_conditional_c(likelihood, F, Y))


@check_shapes("F: [batch..., N, P]", "Y: [broadcast batch..., N, P]", "return: [batch..., N, P]")
def aux_sample(
    likelihood: AugmentedLikelihood, F: TensorType, Y: TensorType, seed: Any = None
) -> tf.Tensor:
    """A draw of p(ω|f, y); ``seed`` as for TFP's ``sample``."""
    return aux_full_conditional(likelihood, F, Y).sample(seed=seed)


@check_shapes("Fmu: [N, P]", "Fvar: [N, P]", "Y: [N, P]", "return: [N, P]")
def aux_posterior_c(
    likelihood: AugmentedLikelihood, Fmu: TensorType, Fvar: TensorType, Y: TensorType
) -> tf.Tensor:
    """
    c of the optimal q(ω), that of η = E_q tilt.

    √(E_q h²), floored, where the likelihood is super-Gaussian (AACI Alg. 1).
    """
    return likelihood.c_at(likelihood.expected_tilt(Fmu, Fvar, Y))


@check_shapes("Fmu: [N, P]", "Fvar: [N, P]", "Y: [N, P]")
def aux_posterior(
    likelihood: AugmentedLikelihood, Fmu: TensorType, Fvar: TensorType, Y: TensorType
) -> tfp.distributions.Distribution:
    """The optimal q(ω), of batch shape [N, P]."""
    return likelihood.tilted(aux_posterior_c(likelihood, Fmu, Fvar, Y))


@check_shapes("Y: [batch..., N, P]")
def aux_prior(likelihood: AugmentedLikelihood, Y: TensorType) -> tfp.distributions.Distribution:
    """π(ω), one for every datum; it may have no moments."""
    return likelihood.tilted(likelihood.prior_c * tf.ones_like(Y))


def init_aux_posterior(
    likelihood: AugmentedLikelihood, shape: tuple[int, ...]
) -> tfp.distributions.Distribution:
    """q(ω) of c = 1, of batch ``shape``: somewhere to start, for every c is valid."""
    return likelihood.tilted(tf.ones(shape, default_float()))


def init_aux_variables(
    likelihood: AugmentedLikelihood, shape: tuple[int, ...], seed: Any = None
) -> tf.Tensor:
    """A draw of ``init_aux_posterior``: some ω > 0 of that shape."""
    return init_aux_posterior(likelihood, shape).sample(seed=seed)


@check_shapes("c: [N, P]", "return: [N, P]")
def aux_posterior_mean(likelihood: AugmentedLikelihood, c: TensorType) -> tf.Tensor:
    """ω̄ = E_q ω = d log Z/dη (AACI Sec. 3.3.1), at a floored c where it may be infinite."""
    return likelihood.tilted_mean(likelihood.tilt_at(c))


@check_shapes("c: [N, P]", "return: [N, P]")
def aux_kldivergence(likelihood: AugmentedLikelihood, c: TensorType) -> tf.Tensor:
    """KL[q ‖ π] = η ω̄ − log Z(η); −c² ω̄ − log φ(c²) where the likelihood is super-Gaussian."""
    tilt = likelihood.tilt_at(c)
    return tilt * likelihood.tilted_mean(tilt) - likelihood.log_partition(tilt)


# ---- sites ----


@check_shapes(
    "omega: [batch..., N, P]", "Y: [broadcast batch..., N, P]", "return: [batch..., N, P]"
)
def auglik_potential(
    likelihood: AugmentedLikelihood, omega: TensorType, Y: TensorType
) -> tf.Tensor:
    """The site's contribution to Σ⁻¹μ given ω; g + β ω where super-Gaussian (AACI Thm 2)."""
    return likelihood.site_potential(omega, Y)


@check_shapes(
    "omega: [batch..., N, P]", "Y: [broadcast batch..., N, P]", "return: [batch..., N, P]"
)
def auglik_precision(
    likelihood: AugmentedLikelihood, omega: TensorType, Y: TensorType
) -> tf.Tensor:
    """The site's contribution to Σ⁻¹ given ω; 2γω where super-Gaussian (AACI Thm 2)."""
    return likelihood.site_precision(omega, Y)


@check_shapes(
    "omega: [batch..., N, P]",
    "Y: [broadcast batch..., N, P]",
    "return[0]: [batch..., N, P]",
    "return[1]: [batch..., N, P]",
)
def auglik_potential_and_precision(
    likelihood: AugmentedLikelihood, omega: TensorType, Y: TensorType
) -> tuple[tf.Tensor, tf.Tensor]:
    """Both of them."""
    return auglik_potential(likelihood, omega, Y), auglik_precision(likelihood, omega, Y)


@check_shapes("c: [N, P]", "Y: [N, P]", "return: [N, P]")
def expected_auglik_potential(
    likelihood: AugmentedLikelihood, c: TensorType, Y: TensorType
) -> tf.Tensor:
    """E_q of the potential: that at ω̄(c), as it is affine in ω."""
    return auglik_potential(likelihood, aux_posterior_mean(likelihood, c), Y)


@check_shapes("c: [N, P]", "Y: [N, P]", "return: [N, P]")
def expected_auglik_precision(
    likelihood: AugmentedLikelihood, c: TensorType, Y: TensorType
) -> tf.Tensor:
    """E_q of the precision: that at ω̄(c)."""
    return auglik_precision(likelihood, aux_posterior_mean(likelihood, c), Y)


@check_shapes("c: [N, P]", "Y: [N, P]", "return[0]: [N, P]", "return[1]: [N, P]")
def expected_auglik_potential_and_precision(
    likelihood: AugmentedLikelihood, c: TensorType, Y: TensorType
) -> tuple[tf.Tensor, tf.Tensor]:
    """Both expectations, with ω̄ computed once."""
    return auglik_potential_and_precision(likelihood, aux_posterior_mean(likelihood, c), Y)


# ---- likelihoods and bounds ----


@check_shapes(
    "omega: [batch..., N, P]",
    "F: [broadcast batch..., N, P]",
    "Y: [broadcast batch..., N, P]",
    "return: [batch..., N, P]",
)
def logtilt(
    likelihood: AugmentedLikelihood, omega: TensorType, F: TensorType, Y: TensorType
) -> tf.Tensor:
    """
    log p(y|ω, f) = offset + tilt ω.

    log C + g f − h² ω where super-Gaussian (AACI Eq. 10, its sign of g f mended: ERRATA.md).
    """
    return _expected_logtilt(likelihood, omega, F, tf.zeros_like(F), Y)


@check_shapes(
    "omega: [batch..., N, P]",
    "F: [broadcast batch..., N, P]",
    "Y: [broadcast batch..., N, P]",
    "return: [batch..., N, P]",
)
def aug_loglik(
    likelihood: AugmentedLikelihood, omega: TensorType, F: TensorType, Y: TensorType
) -> tf.Tensor:
    """log p(y, ω|f) = log p(y|ω, f) + log π(ω)."""
    return logtilt(likelihood, omega, F, Y) + aux_prior(likelihood, Y).log_prob(omega)


@check_shapes("c: [N, P]", "Fmu: [N, P]", "Fvar: [N, P]", "Y: [N, P]", "return: [N, P]")
def expected_logtilt(
    likelihood: AugmentedLikelihood,
    c: TensorType,
    Fmu: TensorType,
    Fvar: TensorType,
    Y: TensorType,
) -> tf.Tensor:
    """E_{q(f)q(ω)} log p(y|ω, f) = E offset + ω̄(c) E tilt."""
    return _expected_logtilt(likelihood, aux_posterior_mean(likelihood, c), Fmu, Fvar, Y)


def _expected_logtilt(
    likelihood: AugmentedLikelihood,
    omega: TensorType,
    Fmu: TensorType,
    Fvar: TensorType,
    Y: TensorType,
) -> tf.Tensor:
    """E_{q(f)} of the log-tilt, which is affine in ω: its mean is all that counts."""
    tilt = likelihood.expected_tilt(Fmu, Fvar, Y)
    return likelihood.expected_offset(Fmu, Fvar, Y) + omega * tilt


@check_shapes("c: [N, P]", "Fmu: [N, P]", "Fvar: [N, P]", "Y: [N, P]", "return: [N, P]")
def expected_aug_loglik(
    likelihood: AugmentedLikelihood,
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
    likelihood: AugmentedLikelihood, Fmu: TensorType, Fvar: TensorType, Y: TensorType
) -> tf.Tensor:
    """
    ``expected_aug_loglik`` at its optimum η = E tilt: E offset + log Z(E tilt).

    The KL of ω has cancelled against ω̄ E tilt. Where the likelihood is super-Gaussian,
    log C + g Fmu + log φ(E h²). (At the floor on c² they do not cancel, and the tangent of log φ
    is what remains.)
    """
    return likelihood.expected_log_prob_bound(Fmu, Fvar, Y)
