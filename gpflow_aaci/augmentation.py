r"""
Functions of the auxiliary variables, derived once for every likelihood with an augmentation.

The names are the same as in AugmentedGPLikelihoods.jl, but the order of the arguments differs:
here it is (F, Y), as in GPflow; there it is (y, f). Both have the same shape, so that a script
carried over without exchanging them may run and give wrong results. ``expected_*`` and
``aux_kldivergence`` take ``c``, which determines q(ω), where the Julia functions take q(Ω).

Where every output has one ω > 0, the likelihoods here are of the kind

    p(y, ω|f) = e^{offset(f, y) + η(f, y) ω} π(ω),    q(ω) = e^{ηω} π(ω) / Z(η),

offset and η at most quadratic in f. Then one number c of every output, a monotone function of η,
says which law q(ω) is: η = −c² for super-Gaussian likelihoods (offset log C + g f, η = −h² at f,
Z(−c²) = φ(c²)), and η = log c for ``Probit``. Where π depends on y (counts), so do the functions of
c: they take Y, which others do not need.

Likelihoods with other auxiliary variables (``Poisson``, ``LogisticSoftmax``,
``HeteroscedasticGaussian``) have the functions that need no c: the full conditional and its draws,
which are dictionaries, potential, precision, joint likelihood and optimal bound. The same holds for
``MultivariateStudentT``, which has one ω for a row, [N, 1].

Every function calls one method of the likelihood, or combines several.

All arguments and results but the likelihood are [N, L] for f and ω, [N, P] for Y (mostly P = L, one
column for every output), and F and ω may have leading dimensions of chains; results are per datum
and are not summed. X [N, D] is needed only where a likelihood's parameter is a function of it.
"""

from typing import Any, Protocol, cast

import tensorflow as tf
import tensorflow_probability as tfp
from check_shapes import check_shapes
from gpflow.base import TensorType
from gpflow.config import default_float

from .likelihoods import AugmentedLikelihood


class _KnownByC(Protocol):
    """The methods of a likelihood whose ``prior_c`` is not None: q(ω) as a function of c."""

    prior_c: float

    def tilted(
        self, c: TensorType, Y: TensorType | None = None
    ) -> tfp.distributions.Distribution: ...
    def aux_full_conditional_c(self, F: TensorType, Y: TensorType) -> tf.Tensor: ...
    def aux_posterior_c(self, Fmu: TensorType, Fvar: TensorType, Y: TensorType) -> tf.Tensor: ...
    def aux_posterior_mean(self, c: TensorType, Y: TensorType | None = None) -> tf.Tensor: ...
    def aux_kldivergence(self, c: TensorType, Y: TensorType | None = None) -> tf.Tensor: ...
    def expected_logtilt(
        self, omega: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor: ...


# ---- laws of ω ----


@check_shapes("F: [batch..., N, L]", "Y: [broadcast batch..., N, P]", "return: [batch..., N, L]")
def aux_full_conditional_c(
    likelihood: AugmentedLikelihood, F: TensorType, Y: TensorType
) -> tf.Tensor:
    """c of p(ω|f, y); |h(f, y)| where it is super-Gaussian (AACI Thm 2)."""
    return with_one_omega(likelihood).aux_full_conditional_c(F, Y)


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
    likelihood: AugmentedLikelihood, Fmu: TensorType, Fvar: TensorType, Y: TensorType
) -> tf.Tensor:
    """
    c of the optimal q(ω), whose η is E_q η(f, y).

    √(E_q h²), floored, where the likelihood is super-Gaussian (AACI Alg. 1).
    """
    return with_one_omega(likelihood).aux_posterior_c(Fmu, Fvar, Y)


@check_shapes("Fmu: [N, L]", "Fvar: [N, L]", "Y: [N, P]")
def aux_posterior(
    likelihood: AugmentedLikelihood, Fmu: TensorType, Fvar: TensorType, Y: TensorType
) -> tfp.distributions.Distribution:
    """The optimal q(ω), of batch shape [N, L]."""
    return with_one_omega(likelihood).tilted(aux_posterior_c(likelihood, Fmu, Fvar, Y), Y)


@check_shapes("Y: [batch..., N, P]")
def aux_prior(likelihood: AugmentedLikelihood, Y: TensorType) -> tfp.distributions.Distribution:
    """π(ω), one law for every datum; it may have no moments."""
    potential, _ = likelihood.site(None, tf.ones([], Y.dtype), Y)  # as many columns as f has
    known = with_one_omega(likelihood)
    return known.tilted(known.prior_c * tf.ones_like(potential), Y)


def init_aux_posterior(
    likelihood: AugmentedLikelihood, shape: tuple[int, ...], Y: TensorType | None = None
) -> tfp.distributions.Distribution:
    """q(ω) for c = 1, of batch ``shape``: a starting point, as every c is valid."""
    return with_one_omega(likelihood).tilted(tf.ones(shape, default_float()), Y)


def init_aux_variables(
    likelihood: AugmentedLikelihood,
    shape: tuple[int, ...],
    seed: Any = None,
    Y: TensorType | None = None,
) -> tf.Tensor:
    """A draw of ``init_aux_posterior``: ω > 0 of that shape."""
    return init_aux_posterior(likelihood, shape, Y).sample(seed=seed)


@check_shapes("c: [N, L]", "return: [N, L]")
def aux_posterior_mean(
    likelihood: AugmentedLikelihood, c: TensorType, Y: TensorType | None = None
) -> tf.Tensor:
    """ω̄ = E_q ω = d log Z/dη (AACI Sec. 3.3.1), at a floored c where it may be infinite."""
    return with_one_omega(likelihood).aux_posterior_mean(c, Y)


@check_shapes("c: [N, L]", "return: [N, L]")
def aux_kldivergence(
    likelihood: AugmentedLikelihood, c: TensorType, Y: TensorType | None = None
) -> tf.Tensor:
    """KL[q ‖ π] = η ω̄ − log Z(η); −c² ω̄ − log φ(c²) where the likelihood is super-Gaussian."""
    return with_one_omega(likelihood).aux_kldivergence(c, Y)


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
    """:func:`auglik_potential` and :func:`auglik_precision`."""
    return likelihood.site(X, omega, Y)


@check_shapes("c: [N, L]", "Y: [N, P]", "return: [N, L]")
def expected_auglik_potential(
    likelihood: AugmentedLikelihood, c: TensorType, Y: TensorType
) -> tf.Tensor:
    """E_q of the potential: its value at ω̄(c), as it is affine in ω."""
    return expected_auglik_potential_and_precision(likelihood, c, Y)[0]


@check_shapes("c: [N, L]", "Y: [N, P]", "return: [N, L]")
def expected_auglik_precision(
    likelihood: AugmentedLikelihood, c: TensorType, Y: TensorType
) -> tf.Tensor:
    """E_q of the precision: its value at ω̄(c), as it is affine in ω."""
    return expected_auglik_potential_and_precision(likelihood, c, Y)[1]


@check_shapes("c: [N, L]", "Y: [N, P]", "return[0]: [N, L]", "return[1]: [N, L]")
def expected_auglik_potential_and_precision(
    likelihood: AugmentedLikelihood, c: TensorType, Y: TensorType
) -> tuple[tf.Tensor, tf.Tensor]:
    """Both expectations, which are the site at ω̄(c)."""
    return likelihood.site(None, aux_posterior_mean(likelihood, c, Y), Y)


# ---- likelihoods and bounds ----


@check_shapes(
    "omega: [batch..., N, L]",
    "F: [broadcast batch..., N, L]",
    "Y: [broadcast batch..., N, P]",
    "return: [batch..., N, L]",
)
def logtilt(
    likelihood: AugmentedLikelihood, omega: TensorType, F: TensorType, Y: TensorType
) -> tf.Tensor:
    """
    log p(y|ω, f) = offset + η ω.

    log C + g f − h² ω where super-Gaussian (AACI Eq. 10 with the sign of g f corrected: ERRATA.md).
    """
    return with_one_omega(likelihood).expected_logtilt(omega, F, tf.zeros_like(F), Y)


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
    likelihood: AugmentedLikelihood,
    c: TensorType,
    Fmu: TensorType,
    Fvar: TensorType,
    Y: TensorType,
) -> tf.Tensor:
    """E_{q(f)q(ω)} log p(y|ω, f) = E offset + ω̄(c) E η, as log p(y|ω, f) is affine in ω."""
    omega_mean = aux_posterior_mean(likelihood, c, Y)
    return with_one_omega(likelihood).expected_logtilt(omega_mean, Fmu, Fvar, Y)


@check_shapes("c: [N, L]", "Fmu: [N, L]", "Fvar: [N, L]", "Y: [N, P]", "return: [N, L]")
def expected_aug_loglik(
    likelihood: AugmentedLikelihood,
    c: TensorType,
    Fmu: TensorType,
    Fvar: TensorType,
    Y: TensorType,
) -> tf.Tensor:
    """
    A datum's term of the augmented bound at any c: E log p(y|ω, f) − KL[q(ω) ‖ p(ω)].

    It is below ``variational_expectations`` for every c > 0, and largest at ``aux_posterior_c``.
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
    ``expected_aug_loglik`` at its optimum, where the KL of ω has cancelled against ω̄ E η.

    Where the likelihood is super-Gaussian it is log C + g Fmu + log φ(E h²). (At the floor on c²
    they do not cancel, and the tangent of log φ is what remains.) [N, L] where p(y|f) is a product
    over outputs, else [N, 1].
    """
    return likelihood.pointwise_bound(X, Fmu, Fvar, Y)


def with_one_omega(likelihood: AugmentedLikelihood) -> _KnownByC:
    """
    ``likelihood``, if its q(ω) is known by one c for every output.

    :raises ValueError: for any other likelihood.
    """
    if likelihood.prior_c is None:
        raise ValueError(
            "likelihood must have one ω per output whose law is known by one number c, and no "
            f"parameter that is a function of X. Found: {type(likelihood).__name__}."
        )
    return cast(_KnownByC, likelihood)
