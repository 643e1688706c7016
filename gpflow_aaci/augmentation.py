r"""
The auxiliary-variable verbs, derived once for every likelihood with an augmentation.

The names are those of AugmentedGPLikelihoods.jl, the order of the arguments is not. Here it is
(F, Y), as GPflow has it; there it is (y, f), and both are of one shape, so that a script carried
over without turning them round may run and be wrong. ``expected_*`` and ``aux_kldivergence`` take
``c``, which is all there is to a q(ω), where the Julia functions take q(Ω).

What most likelihoods state (:class:`~gpflow_aaci.likelihoods.TiltedLikelihood`) is

    p(y, ω|f) = e^{offset(f, y) + η ω} π(ω),  η = tilt(f, y),    q(ω) = e^{ηω} π(ω) / Z(η).

A q(ω) is known by its ``c`` alone, with η = −c² for super-Gaussian likelihoods: offset
log C + g f, tilt −h², Z(−c²) = φ(c²), p(y, ω|f) = C e^{g f} e^{−h² ω} π_φ(ω|0). Where π depends
on y (counts), so do the functions of c: they take Y, which others do not need.

Likelihoods with more auxiliary variables (``Poisson``, ``LogisticSoftmax``,
``HeteroscedasticGaussian``) have the verbs that need no c: the full conditional and its draws,
a dictionary each, potential, precision, joint likelihood and optimal bound. So has
``MultivariateStudentT``, whose one ω of a row is [N, 1].

All arguments and results but the likelihood are [N, L] for f and ω, [N, P] for Y (mostly P = L, one
column for every output), and F and ω may have leading dimensions of chains; results are per datum
and are not summed. X [N, D] is needed only where a likelihood's parameter is a function of it.
"""

from typing import Any

import tensorflow as tf
import tensorflow_probability as tfp
from check_shapes import check_shapes
from gpflow.base import TensorType
from gpflow.config import default_float

from .likelihoods import AugmentedLikelihood, TiltedLikelihood
from .likelihoods.tilted import of_y

# ---- laws of ω ----


@check_shapes("F: [batch..., N, L]", "Y: [broadcast batch..., N, P]", "return: [batch..., N, L]")
def aux_full_conditional_c(likelihood: TiltedLikelihood, F: TensorType, Y: TensorType) -> tf.Tensor:
    """c of p(ω|f, y); |h(f, y)| where it is super-Gaussian (AACI Thm 2)."""
    return with_one_omega(likelihood).conditional_c(F, Y)


@check_shapes("F: [batch..., N, L]", "Y: [broadcast batch..., N, P]")
def aux_full_conditional(
    likelihood: AugmentedLikelihood, F: TensorType, Y: TensorType, X: TensorType | None = None
) -> tfp.distributions.Distribution:
    """p(ω|f, y), of batch shape [batch..., N, L]."""
    return likelihood.full_conditional(X, F, Y)


@check_shapes("F: [batch..., N, L]", "Y: [broadcast batch..., N, P]")
def aux_sample(
    likelihood: AugmentedLikelihood,
    F: TensorType,
    Y: TensorType,
    seed: Any = None,
    X: TensorType | None = None,
) -> Any:
    """A draw of p(ω|f, y), [batch..., N, L]; ``seed`` as for TFP's ``sample``."""
    return aux_full_conditional(likelihood, F, Y, X).sample(seed=seed)


@check_shapes("Fmu: [N, L]", "Fvar: [N, L]", "Y: [N, P]", "return: [N, L]")
def aux_posterior_c(
    likelihood: TiltedLikelihood, Fmu: TensorType, Fvar: TensorType, Y: TensorType
) -> tf.Tensor:
    """
    c of the optimal q(ω), that of η = E_q tilt.

    √(E_q h²), floored, where the likelihood is super-Gaussian (AACI Alg. 1).
    """
    likelihood = with_one_omega(likelihood)
    return likelihood.c_at(likelihood.expected_tilt(Fmu, Fvar, Y))


@check_shapes("Fmu: [N, L]", "Fvar: [N, L]", "Y: [N, P]")
def aux_posterior(
    likelihood: TiltedLikelihood, Fmu: TensorType, Fvar: TensorType, Y: TensorType
) -> tfp.distributions.Distribution:
    """The optimal q(ω), of batch shape [N, L]."""
    return likelihood.tilted(aux_posterior_c(likelihood, Fmu, Fvar, Y), Y)


@check_shapes("Y: [batch..., N, P]")
def aux_prior(likelihood: TiltedLikelihood, Y: TensorType) -> tfp.distributions.Distribution:
    """π(ω), one for every datum; it may have no moments."""
    likelihood = with_one_omega(likelihood)
    like = likelihood.site_potential(tf.ones([], Y.dtype), Y)  # as many columns as f has
    return likelihood.tilted(likelihood.prior_c * tf.ones_like(like), Y)


def init_aux_posterior(
    likelihood: TiltedLikelihood, shape: tuple[int, ...], Y: TensorType | None = None
) -> tfp.distributions.Distribution:
    """q(ω) of c = 1, of batch ``shape``: somewhere to start, for every c is valid."""
    return with_one_omega(likelihood).tilted(tf.ones(shape, default_float()), Y)


def init_aux_variables(
    likelihood: TiltedLikelihood,
    shape: tuple[int, ...],
    seed: Any = None,
    Y: TensorType | None = None,
) -> tf.Tensor:
    """A draw of ``init_aux_posterior``: some ω > 0 of that shape."""
    return init_aux_posterior(likelihood, shape, Y).sample(seed=seed)


@check_shapes("c: [N, L]", "return: [N, L]")
def aux_posterior_mean(
    likelihood: TiltedLikelihood, c: TensorType, Y: TensorType | None = None
) -> tf.Tensor:
    """ω̄ = E_q ω = d log Z/dη (AACI Sec. 3.3.1), at a floored c where it may be infinite."""
    likelihood = with_one_omega(likelihood)
    return of_y(likelihood.tilted_mean, likelihood.tilt_at(c), Y)


@check_shapes("c: [N, L]", "return: [N, L]")
def aux_kldivergence(
    likelihood: TiltedLikelihood, c: TensorType, Y: TensorType | None = None
) -> tf.Tensor:
    """KL[q ‖ π] = η ω̄ − log Z(η); −c² ω̄ − log φ(c²) where the likelihood is super-Gaussian."""
    tilt = with_one_omega(likelihood).tilt_at(c)
    log_Z = of_y(likelihood.log_partition, tilt, Y)
    return tilt * of_y(likelihood.tilted_mean, tilt, Y) - log_Z


# ---- sites ----


@check_shapes("Y: [broadcast batch..., N, P]", "return: [batch..., N, L]")
def auglik_potential(
    likelihood: AugmentedLikelihood, omega: Any, Y: TensorType, X: TensorType | None = None
) -> tf.Tensor:
    """The site's contribution to Σ⁻¹μ given ω; g + β ω where super-Gaussian (AACI Thm 2)."""
    return likelihood.site(X, omega, Y)[0]


@check_shapes("Y: [broadcast batch..., N, P]", "return: [batch..., N, L]")
def auglik_precision(
    likelihood: AugmentedLikelihood, omega: Any, Y: TensorType, X: TensorType | None = None
) -> tf.Tensor:
    """The site's contribution to Σ⁻¹ given ω; 2γω where super-Gaussian (AACI Thm 2)."""
    return likelihood.site(X, omega, Y)[1]


@check_shapes(
    "Y: [broadcast batch..., N, P]",
    "return[0]: [batch..., N, L]",
    "return[1]: [batch..., N, L]",
)
def auglik_potential_and_precision(
    likelihood: AugmentedLikelihood, omega: Any, Y: TensorType, X: TensorType | None = None
) -> tuple[tf.Tensor, tf.Tensor]:
    """Both of them."""
    return likelihood.site(X, omega, Y)


@check_shapes("c: [N, L]", "Y: [N, P]", "return: [N, L]")
def expected_auglik_potential(
    likelihood: TiltedLikelihood, c: TensorType, Y: TensorType
) -> tf.Tensor:
    """E_q of the potential: that at ω̄(c), as it is affine in ω."""
    return expected_auglik_potential_and_precision(likelihood, c, Y)[0]


@check_shapes("c: [N, L]", "Y: [N, P]", "return: [N, L]")
def expected_auglik_precision(
    likelihood: TiltedLikelihood, c: TensorType, Y: TensorType
) -> tf.Tensor:
    """E_q of the precision: that at ω̄(c)."""
    return expected_auglik_potential_and_precision(likelihood, c, Y)[1]


@check_shapes("c: [N, L]", "Y: [N, P]", "return[0]: [N, L]", "return[1]: [N, L]")
def expected_auglik_potential_and_precision(
    likelihood: TiltedLikelihood, c: TensorType, Y: TensorType
) -> tuple[tf.Tensor, tf.Tensor]:
    """Both expectations, with ω̄ computed once."""
    return with_one_omega(likelihood).sites_at(c, Y)


# ---- likelihoods and bounds ----


@check_shapes(
    "omega: [batch..., N, L]",
    "F: [broadcast batch..., N, L]",
    "Y: [broadcast batch..., N, P]",
    "return: [batch..., N, L]",
)
def logtilt(
    likelihood: TiltedLikelihood, omega: TensorType, F: TensorType, Y: TensorType
) -> tf.Tensor:
    """
    log p(y|ω, f) = offset + tilt ω.

    log C + g f − h² ω where super-Gaussian (AACI Eq. 10, its sign of g f mended: ERRATA.md).
    """
    return _expected_logtilt(with_one_omega(likelihood), omega, F, tf.zeros_like(F), Y)


@check_shapes("F: [broadcast batch..., N, L]", "Y: [broadcast batch..., N, P]")
def aug_loglik(
    likelihood: AugmentedLikelihood,
    omega: Any,
    F: TensorType,
    Y: TensorType,
    X: TensorType | None = None,
) -> tf.Tensor:
    """log p(y, ω|f) = log p(y|ω, f) + log π(ω)."""
    return likelihood.log_joint(X, omega, F, Y)


@check_shapes("c: [N, L]", "Fmu: [N, L]", "Fvar: [N, L]", "Y: [N, P]", "return: [N, L]")
def expected_logtilt(
    likelihood: TiltedLikelihood,
    c: TensorType,
    Fmu: TensorType,
    Fvar: TensorType,
    Y: TensorType,
) -> tf.Tensor:
    """E_{q(f)q(ω)} log p(y|ω, f) = E offset + ω̄(c) E tilt."""
    return _expected_logtilt(likelihood, aux_posterior_mean(likelihood, c, Y), Fmu, Fvar, Y)


def _expected_logtilt(
    likelihood: TiltedLikelihood,
    omega: TensorType,
    Fmu: TensorType,
    Fvar: TensorType,
    Y: TensorType,
) -> tf.Tensor:
    """E_{q(f)} of the log-tilt, which is affine in ω: its mean is all that counts."""
    tilt = likelihood.expected_tilt(Fmu, Fvar, Y)
    return likelihood.expected_offset(Fmu, Fvar, Y) + omega * tilt


@check_shapes("c: [N, L]", "Fmu: [N, L]", "Fvar: [N, L]", "Y: [N, P]", "return: [N, L]")
def expected_aug_loglik(
    likelihood: TiltedLikelihood,
    c: TensorType,
    Fmu: TensorType,
    Fvar: TensorType,
    Y: TensorType,
) -> tf.Tensor:
    """
    A datum's term of the augmented bound at any c: E log p(y|ω, f) − KL[q(ω) ‖ p(ω)].

    Below ``variational_expectations`` for every c > 0, largest at ``aux_posterior_c``.
    """
    return expected_logtilt(likelihood, c, Fmu, Fvar, Y) - aux_kldivergence(likelihood, c, Y)


@check_shapes("Fmu: [N, L]", "Fvar: [N, L]", "Y: [N, P]", "return: [N, R]")
def optimal_expected_aug_loglik(
    likelihood: AugmentedLikelihood,
    Fmu: TensorType,
    Fvar: TensorType,
    Y: TensorType,
    X: TensorType | None = None,
) -> tf.Tensor:
    """
    ``expected_aug_loglik`` at its optimum η = E tilt: E offset + log Z(E tilt).

    The KL of ω has cancelled against ω̄ E tilt. Where the likelihood is super-Gaussian,
    log C + g Fmu + log φ(E h²). (At the floor on c² they do not cancel, and the tangent of log φ
    is what remains.) [N, L] where every f has an ω of its own, else [N, 1].
    """
    if isinstance(likelihood, TiltedLikelihood):
        return likelihood.expected_log_prob_bound(Fmu, Fvar, Y)
    return likelihood.bound(X, Fmu, Fvar, Y)[..., None]


def with_one_omega(likelihood: AugmentedLikelihood) -> TiltedLikelihood:
    """
    :raises ValueError: for a likelihood whose q(ω) is not known by one c per output.
    """
    if not isinstance(likelihood, TiltedLikelihood):
        raise ValueError(
            "likelihood must be a TiltedLikelihood here, with one ω per output and so a c of its "
            "own, and no parameter that is a function of X. "
            f"Found: {type(likelihood).__name__}."
        )
    return likelihood
