r"""
Functions of the auxiliary variables, for every likelihood with an augmentation.

The names are the same as in AugmentedGPLikelihoods.jl, but the order of the arguments differs:
here it is (F, Y), as in GPflow; there it is (y, f). Both have the same shape, so that a script
carried over without exchanging them may run and give wrong results. ``expected_*`` and
``aux_kldivergence`` take ``c``, which determines q(ω), where the Julia functions take q(Ω).

A likelihood with one ω > 0 per output has

    p(y, ω|f) = e^{offset(f, y) + η(f, y) ω} π(ω),    q(ω) = e^{ηω} π(ω) / Z(η),

where offset and η are at most quadratic in f. One number c per output, a monotone function of η,
then determines q(ω). Super-Gaussian likelihoods have η = −c² (the offset is log C + g f, η = −h² at
a given f, and Z(−c²) = φ(c²)); ``Probit`` has η = log c. If π depends on y, as for counts, the
functions of c need Y; otherwise Y may be left out.

For likelihoods with other auxiliary variables (``Poisson``, ``LogisticSoftmax``, ``Interval``, and
``MultivariateStudentT`` with its ω [N, 1] per row), c [2, N, L] holds the means and the variances
of the f for which q(ω) is optimal, and π(ω) is p(ω|y, f = 0), because

    p(y, ω|f) = e^{offset + potential(ω) f − ½ precision(ω) f²} π(ω),    offset = log p(y|f = 0).

The expected sites, and with them all functions of c, follow from the slopes of the bound. Draws are
dictionaries if there are several variables. Given its variables, log p(y, ω|f) of
``Heteroscedastic`` is not quadratic in f, so that the likelihood has functions of its own for the
same verbs, and π(ω) is p(ω|y, f) at another f, its ``reference_f``.

Every function calls one method of the likelihood, or combines several.

Arguments and results have the shapes [N, L] for f and ω, and [N, P] for Y (mostly P = L, one column
per output). F and ω may have leading dimensions of chains. Results are per datum and not summed.
X [N, D] is needed only if a parameter of the likelihood is a function of X. Where p(y|f) is not a
product over outputs, log densities, divergences and bounds are [N, 1].
"""

from typing import Any, Protocol

import tensorflow as tf
import tensorflow_probability as tfp
from check_shapes import check_shapes
from gpflow.base import TensorType
from gpflow.config import default_float
from typing_extensions import TypeIs

from .likelihoods import AugmentedLikelihood


class _KnownByC(Protocol):
    """The methods of a likelihood whose ``prior_c`` is not None, so that c determines q(ω)."""

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


class _OwnTilt(Protocol):
    """The methods of a likelihood whose log p(y, ω|f) is not quadratic in f jointly."""

    def reference_f(self, Y: TensorType) -> tf.Tensor: ...
    def log_tilt(
        self, auxiliary: Any, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor: ...
    def expected_auxiliary(self, Fmu: TensorType, Fvar: TensorType, Y: TensorType) -> Any: ...


# ---- laws of ω ----


@check_shapes("F: [batch..., N, L]", "Y: [broadcast batch..., N, P]", "return: [..., N, L]")
def aux_full_conditional_c(
    likelihood: AugmentedLikelihood, F: TensorType, Y: TensorType
) -> tf.Tensor:
    """The c of p(ω|f, y), which is |h(f, y)| for super-Gaussian likelihoods (AACI Thm 2)."""
    if _has_one_omega(likelihood):
        return likelihood.aux_full_conditional_c(F, Y)
    _refuse_unless_known(likelihood)
    return tf.stack([F, tf.zeros_like(F)])


@check_shapes("F: [batch..., N, L]", "Y: [broadcast batch..., N, P]")
def aux_full_conditional(
    likelihood: AugmentedLikelihood, F: TensorType, Y: TensorType, X: TensorType | None = None
) -> tfp.distributions.Distribution:
    """The distribution p(ω|f, y), of batch shape [batch..., N, L]."""
    return likelihood.full_conditional(X, F, Y)


@check_shapes("F: [batch..., N, L]", "Y: [broadcast batch..., N, P]")
def aux_sample(
    likelihood: AugmentedLikelihood,
    F: TensorType,
    Y: TensorType,
    seed: Any = None,
    X: TensorType | None = None,
) -> Any:
    """A draw from p(ω|f, y), [batch..., N, L]; ``seed`` is passed on to TFP's ``sample``."""
    return aux_full_conditional(likelihood, F, Y, X).sample(seed=seed)


@check_shapes("Fmu: [N, L]", "Fvar: [N, L]", "Y: [N, P]", "return: [moments..., N, L]")
def aux_posterior_c(
    likelihood: AugmentedLikelihood, Fmu: TensorType, Fvar: TensorType, Y: TensorType
) -> tf.Tensor:
    """
    The c of the optimal q(ω), whose η is E_q η(f, y).

    For super-Gaussian likelihoods it is √(E_q h²), with a floor (AACI Alg. 1).
    """
    if _has_one_omega(likelihood):
        return likelihood.aux_posterior_c(Fmu, Fvar, Y)
    _refuse_unless_known(likelihood)
    return tf.stack([Fmu, Fvar])


@check_shapes("Fmu: [N, L]", "Fvar: [N, L]", "Y: [N, P]")
def aux_posterior(
    likelihood: AugmentedLikelihood,
    Fmu: TensorType,
    Fvar: TensorType,
    Y: TensorType,
    X: TensorType | None = None,
) -> tfp.distributions.Distribution:
    """The optimal q(ω), of batch shape [N, L] where there is one ω per output."""
    if _has_one_omega(likelihood):
        return likelihood.tilted(likelihood.aux_posterior_c(Fmu, Fvar, Y), Y)
    return likelihood.auxiliary_law(X, *map(tf.convert_to_tensor, (Fmu, Fvar, Y)))


@check_shapes("Y: [batch..., N, P]")
def aux_prior(
    likelihood: AugmentedLikelihood, Y: TensorType, X: TensorType | None = None
) -> tfp.distributions.Distribution:
    """The prior π(ω) of every datum and output; its moments may be infinite."""
    if _has_one_omega(likelihood):
        potential, _ = likelihood.site(None, tf.ones([], Y.dtype), Y)  # as many columns as f has
        return likelihood.tilted(likelihood.prior_c * tf.ones_like(potential), Y)
    own = _has_own_tilt(likelihood)
    F = likelihood.reference_f(Y) if own else _zero_f(likelihood, Y)
    return likelihood.full_conditional(X, F, Y)


def init_aux_posterior(
    likelihood: AugmentedLikelihood,
    shape: tuple[int, ...],
    Y: TensorType | None = None,
    X: TensorType | None = None,
) -> tfp.distributions.Distribution:
    """
    A first q(ω) of batch shape ``shape``, with c = 1; any c > 0 would do.

    Likelihoods with other auxiliary variables need Y. For them ``shape`` is the shape of f, and
    q(ω) is optimal for an f with mean 0 and variance 1.

    :raises ValueError: for such a likelihood without Y.
    """
    one = tf.ones(shape, default_float())
    if _has_one_omega(likelihood):
        return likelihood.tilted(one, Y)
    if Y is None:
        name = type(likelihood).__name__
        raise ValueError(f"Y must be given, as q(ω) of {name} depends on it. Found: None.")
    return likelihood.auxiliary_law(X, tf.zeros_like(one), one, Y)


def init_aux_variables(
    likelihood: AugmentedLikelihood,
    shape: tuple[int, ...],
    seed: Any = None,
    Y: TensorType | None = None,
    X: TensorType | None = None,
) -> Any:
    """A draw from ``init_aux_posterior``; where there is one ω, it is > 0 and of this shape."""
    return init_aux_posterior(likelihood, shape, Y, X).sample(seed=seed)


@check_shapes("c: [N, L]", "return: [N, L]")
def aux_posterior_mean(
    likelihood: AugmentedLikelihood, c: TensorType, Y: TensorType | None = None
) -> tf.Tensor:
    """ω̄ = E_q ω = d log Z/dη (AACI Sec. 3.3.1); c has a floor where ω̄ could be infinite."""
    return with_one_omega(likelihood).aux_posterior_mean(c, Y)


@check_shapes("c: [moments..., N, L]", "Y: [N, P]", "X: [N, D]", "return: [N, Q]")
def aux_kldivergence(
    likelihood: AugmentedLikelihood,
    c: TensorType,
    Y: TensorType | None = None,
    X: TensorType | None = None,
) -> tf.Tensor:
    """KL[q ‖ π]. With one ω it is η ω̄ − log Z(η), if super-Gaussian −c² ω̄ − log φ(c²)."""
    if _has_one_omega(likelihood):
        return likelihood.aux_kldivergence(c, Y)
    Fmu, Fvar = _marginals(likelihood, c)
    bound = optimal_expected_aug_loglik(likelihood, Fmu, Fvar, Y, X)
    return expected_logtilt(likelihood, c, Fmu, Fvar, Y, X) - bound


# ---- sites ----


@check_shapes("Y: [broadcast batch..., N, P]", "return: [batch..., N, L]")
def auglik_potential(
    likelihood: AugmentedLikelihood, omega: Any, Y: TensorType, X: TensorType | None = None
) -> tf.Tensor:
    """What a datum adds to Σ⁻¹μ given ω; g + β ω if super-Gaussian (AACI Thm 2)."""
    return likelihood.site(X, omega, Y)[0]


@check_shapes("Y: [broadcast batch..., N, P]", "return: [batch..., N, L]")
def auglik_precision(
    likelihood: AugmentedLikelihood, omega: Any, Y: TensorType, X: TensorType | None = None
) -> tf.Tensor:
    """What a datum adds to Σ⁻¹ given ω; 2γω if super-Gaussian (AACI Thm 2)."""
    return likelihood.site(X, omega, Y)[1]


@check_shapes(
    "Y: [broadcast batch..., N, P]",
    "return[0]: [batch..., N, L]",
    "return[1]: [batch..., N, L]",
)
def auglik_potential_and_precision(
    likelihood: AugmentedLikelihood, omega: Any, Y: TensorType, X: TensorType | None = None
) -> tuple[tf.Tensor, tf.Tensor]:
    """Both :func:`auglik_potential` and :func:`auglik_precision`."""
    return likelihood.site(X, omega, Y)


@check_shapes("c: [moments..., N, L]", "Y: [N, P]", "return: [N, L]")
def expected_auglik_potential(
    likelihood: AugmentedLikelihood, c: TensorType, Y: TensorType, X: TensorType | None = None
) -> tf.Tensor:
    """The expectation of the potential under q(ω): its value at ω̄(c), as it is affine in ω."""
    return expected_auglik_potential_and_precision(likelihood, c, Y, X)[0]


@check_shapes("c: [moments..., N, L]", "Y: [N, P]", "return: [N, L]")
def expected_auglik_precision(
    likelihood: AugmentedLikelihood, c: TensorType, Y: TensorType, X: TensorType | None = None
) -> tf.Tensor:
    """The expectation of the precision under q(ω): its value at ω̄(c), as it is affine in ω."""
    return expected_auglik_potential_and_precision(likelihood, c, Y, X)[1]


@check_shapes("c: [moments..., N, L]", "Y: [N, P]", "return[0]: [N, L]", "return[1]: [N, L]")
def expected_auglik_potential_and_precision(
    likelihood: AugmentedLikelihood, c: TensorType, Y: TensorType, X: TensorType | None = None
) -> tuple[tf.Tensor, tf.Tensor]:
    """Both :func:`expected_auglik_potential` and :func:`expected_auglik_precision`."""
    if _has_one_omega(likelihood):
        return likelihood.site(None, aux_posterior_mean(likelihood, c, Y), Y)
    Fmu, Fvar = _marginals(likelihood, c)
    in_mean, in_variance = likelihood.bound_slopes(X, Fmu, Fvar, Y)
    return in_mean - 2.0 * in_variance * Fmu, -2.0 * in_variance


# ---- likelihoods and bounds ----


@check_shapes("F: [broadcast batch..., N, L]", "Y: [broadcast batch..., N, P]")
def logtilt(
    likelihood: AugmentedLikelihood,
    omega: Any,
    F: TensorType,
    Y: TensorType,
    X: TensorType | None = None,
) -> tf.Tensor:
    """
    log p(y|ω, f) = log p(y, ω|f) − log π(ω). With one ω it is offset + η ω.

    For super-Gaussian likelihoods it is log C + g f − h² ω. (AACI Eq. 10 has the wrong sign of g f:
    see ERRATA.md.)
    """
    if _has_one_omega(likelihood):
        return likelihood.expected_logtilt(omega, F, tf.zeros_like(F), Y)
    if _has_own_tilt(likelihood):
        return likelihood.log_tilt(omega, F, tf.zeros_like(F), Y)
    _refuse_unless_known(likelihood)
    return _tilt(likelihood, likelihood.site(X, omega, Y), F, tf.zeros_like(F), Y, X)


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


_OF_C = ("c: [moments..., N, L]", "Fmu: [N, L]", "Fvar: [N, L]", "Y: [N, P]", "return: [N, Q]")


@check_shapes(*_OF_C)
def expected_logtilt(
    likelihood: AugmentedLikelihood,
    c: TensorType,
    Fmu: TensorType,
    Fvar: TensorType,
    Y: TensorType,
    X: TensorType | None = None,
) -> tf.Tensor:
    """
    E_{q(f)q(ω)} log p(y|ω, f). With one ω it is E offset + ω̄(c) E η.

    For ``Heteroscedastic`` it is larger, as its n is introduced after the expectation over f.
    """
    if _has_one_omega(likelihood):
        return likelihood.expected_logtilt(aux_posterior_mean(likelihood, c, Y), Fmu, Fvar, Y)
    if _has_own_tilt(likelihood):
        return likelihood.log_tilt(likelihood.expected_auxiliary(*tf.unstack(c), Y), Fmu, Fvar, Y)
    site = expected_auglik_potential_and_precision(likelihood, c, Y, X)
    return _tilt(likelihood, site, Fmu, Fvar, Y, X)


@check_shapes(*_OF_C)
def expected_aug_loglik(
    likelihood: AugmentedLikelihood,
    c: TensorType,
    Fmu: TensorType,
    Fvar: TensorType,
    Y: TensorType,
    X: TensorType | None = None,
) -> tf.Tensor:
    """
    The term E log p(y|ω, f) − KL[q(ω) ‖ π(ω)] of a datum in the augmented bound, at any c.

    It is below ``variational_expectations`` for every c > 0, and largest at ``aux_posterior_c``.
    """
    tilt = expected_logtilt(likelihood, c, Fmu, Fvar, Y, X)
    return tilt - aux_kldivergence(likelihood, c, Y, X)


@check_shapes("Fmu: [N, L]", "Fvar: [N, L]", "Y: [N, P]", "return: [N, R]")
def optimal_expected_aug_loglik(
    likelihood: AugmentedLikelihood,
    Fmu: TensorType,
    Fvar: TensorType,
    Y: TensorType,
    X: TensorType | None = None,
) -> tf.Tensor:
    """
    ``expected_aug_loglik`` at the optimal c, where η ω̄ in the KL cancels against ω̄ E η.

    For super-Gaussian likelihoods it is log C + g Fmu + log φ(E h²). (Where c² is at its floor they
    do not cancel, and the tangent of log φ takes the place of log φ.) The shape is [N, L] if p(y|f)
    is a product over outputs, else [N, 1].
    """
    return likelihood.pointwise_bound(X, Fmu, Fvar, Y)


# ---- which auxiliary variables ----


def with_one_omega(likelihood: AugmentedLikelihood) -> _KnownByC:
    """
    Return ``likelihood``, if one c per output determines its q(ω).

    :raises ValueError: for any other likelihood.
    """
    if _has_one_omega(likelihood):
        return likelihood
    raise ValueError(
        "likelihood must have one ω per output whose distribution is given by one number c, and no "
        f"parameter that is a function of X. Found: {type(likelihood).__name__}."
    )


def _has_one_omega(likelihood: Any) -> TypeIs[_KnownByC]:
    return likelihood.prior_c is not None


def _has_own_tilt(likelihood: Any) -> TypeIs[_OwnTilt]:
    names = "reference_f", "log_tilt", "expected_auxiliary"
    return all(hasattr(likelihood, name) for name in names)


def _refuse_unless_known(likelihood: AugmentedLikelihood) -> None:
    is_quadratic = likelihood.is_augmented and not likelihood.in_turn
    if not (is_quadratic or _has_own_tilt(likelihood)):
        raise ValueError(
            "likelihood must have auxiliary variables ω that make log p(y, ω|f) quadratic in all f "
            f"jointly. Found: {type(likelihood).__name__}."
        )


def _marginals(likelihood: AugmentedLikelihood, c: TensorType) -> tuple[tf.Tensor, tf.Tensor]:
    """The means and variances that c [2, N, L] holds."""
    _refuse_unless_known(likelihood)
    Fmu, Fvar = tf.unstack(c)
    return Fmu, Fvar


def _zero_f(likelihood: AugmentedLikelihood, Y: TensorType) -> tf.Tensor:
    """f = 0 of every datum, [..., N, L]."""
    Y = tf.convert_to_tensor(Y)
    L = likelihood.num_outputs(Y.shape[-1])
    return tf.zeros(tf.concat([tf.shape(Y)[:-1], [L]], 0), Y.dtype)


def _tilt(
    likelihood: AugmentedLikelihood,
    site: tuple[tf.Tensor, tf.Tensor],
    Fmu: TensorType,
    Fvar: TensorType,
    Y: TensorType,
    X: TensorType | None,
) -> tf.Tensor:
    """E [log p(y|f = 0) + potential f − ½ precision f²] of every output, or of the row."""
    offset = likelihood.pointwise_log_prob(X, _zero_f(likelihood, Y), Y)
    potential, precision = site
    tilt = potential * Fmu - 0.5 * precision * (tf.square(Fmu) + Fvar)
    is_product = offset.shape[-1] == tilt.shape[-1]
    return offset + (tilt if is_product else tf.reduce_sum(tilt, -1, keepdims=True))
