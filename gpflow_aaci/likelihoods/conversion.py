"""GPflow's own likelihood objects as augmented ones that share the user's Parameters."""

from collections.abc import Callable
from typing import Any, TypeVar

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.functions import Function
from gpflow.likelihoods import Likelihood
from gpflow.likelihoods.utils import inv_probit

from ..special import log_ndtr
from .base import AugmentedLikelihood
from .classes.binary import Logistic, Probit
from .composed.switched import Switched
from .composed.transformed import Scaled
from .noise.residual import Gaussian
from .noise.student_t import StudentT
from .outputwise import OutputwiseLikelihood

T = TypeVar("T", bound=AugmentedLikelihood)

_AUGMENTED = (
    "gpflow_aaci.likelihoods.{Gaussian, StudentT, Cauchy, Laplace, AsymmetricLaplace, Matern32, "
    "Matern52, Matern, GeneralizedGaussian, LogisticNoise, NoiseMixture, NoiseProduct, "
    "KernelNoise, Logistic, Probit, BayesianSVM, NegativeBinomial, Binomial, Poisson, "
    "LogisticSoftmax, LogisticTree, HeteroscedasticGaussian, MultivariateStudentT, Warped} or your "
    "own SuperGaussianLikelihood, and "
    "GPflow's StudentT, Gaussian, Bernoulli(), Bernoulli(invlink=tf.sigmoid) and "
    "SwitchedLikelihood of these"
)
_OF_CLASSES = "LogisticSoftmax(num_classes), or LogisticTree(num_classes)"
_OF_COUNTS = "Poisson(max_rate), of rate max_rate·σ(f), or NegativeBinomial(total_count)"
_OF_POSITIVE = "Warped(base, warps.Log()), a noise model of log y"
_NEAREST = {
    "MultiClass": _OF_CLASSES,
    "Softmax": _OF_CLASSES,
    "Poisson": _OF_COUNTS,
    "Exponential": _OF_POSITIVE,
    "Gamma": _OF_POSITIVE,
    "Beta": "Binomial(total_count), where y is a share of so many trials",
    "Ordinal": f"{_OF_CLASSES}, without the order",
    "HeteroskedasticTFPConditional": "HeteroscedasticGaussian(max_precision)",
}


def augmented(likelihood: Likelihood) -> AugmentedLikelihood:
    """
    ``likelihood`` with an augmentation: itself, or the counterpart of GPflow's own object.

    Parameters are shared, and have the names they had: ``likelihood.scale`` is the user's own
    object. GPflow's ``StudentT`` keeps its ``df`` fixed, as there. Its ``Bernoulli()`` becomes
    ``Probit``, whose probabilities are Φ(±f): GPflow's ``inv_probit`` squeezes them into
    [0.001, 0.999]. A ``StudentT`` or ``Gaussian`` whose scale is a ``Function`` of X becomes
    ``Scaled``, a ``SwitchedLikelihood`` ``Switched``.

    :raises ValueError: where there is no augmentation; the message lists what has one.
    """
    if isinstance(likelihood, AugmentedLikelihood):
        return likelihood
    quadrature = getattr(likelihood, "quadrature", None)
    # Exact types: a subclass may have overridden anything.
    if type(likelihood) is gpflow.likelihoods.StudentT:
        if isinstance(likelihood.scale, Function):
            unit = _with(StudentT(quadrature=quadrature), scale=1.0, df=likelihood.df)
            return Scaled(unit, likelihood, quadrature=quadrature)
        return _with(StudentT(likelihood.scale, quadrature=quadrature), df=likelihood.df)
    if type(likelihood) is gpflow.likelihoods.Gaussian:
        variance, scale = likelihood.variance, likelihood.scale
        if isinstance(variance, Function) or isinstance(scale, Function):
            unit = _with(Gaussian(quadrature=quadrature), variance=1.0)
            return Scaled(unit, likelihood, quadrature=quadrature)
        return Gaussian(variance, scale=scale, quadrature=quadrature)
    if type(likelihood) is gpflow.likelihoods.Bernoulli:
        if _is_link(likelihood.invlink, tf.sigmoid):
            return Logistic(quadrature=quadrature)
        if any(_is_link(likelihood.invlink, probit) for probit in (inv_probit, _exact_probit)):
            return Probit(quadrature=quadrature)
        raise ValueError(
            "likelihood must have an augmentation. Found: Bernoulli with an invlink that is "
            "neither GPflow's default, the probit link, nor the logistic sigmoid. "
            f"Accepted: {_AUGMENTED}."
        )
    if type(likelihood) is gpflow.likelihoods.SwitchedLikelihood:
        parts = [augmented(part) for part in likelihood.likelihoods]
        usable = [
            part
            for part in parts
            if isinstance(part, OutputwiseLikelihood)
            and part.prior_c is not None
            and part.num_observed(1) == 1
        ]
        if len(usable) < len(parts):
            raise ValueError(
                "likelihood: the parts of a SwitchedLikelihood must have one ω and one column of Y "
                "per output, and no scale that is a Function of X. "
                f"Found: {', '.join(type(part).__name__ for part in likelihood.likelihoods)}."
            )
        return Switched(usable)
    nearest = _NEAREST.get(type(likelihood).__name__)
    hint = f" The nearest here is gpflow_aaci.likelihoods.{nearest}." if nearest else ""
    raise ValueError(
        f"likelihood must have an augmentation. Found: {type(likelihood).__name__}.{hint} "
        f"Accepted: {_AUGMENTED}."
    )


def _with(likelihood: T, **values: Any) -> T:
    """``likelihood`` with its Parameters replaced by these values of GPflow's own object."""
    for name, value in values.items():
        delattr(likelihood, name)  # checkpoints must not look for the old Parameter
        setattr(likelihood, name, value)
    return likelihood


def _exact_probit(f: tf.Tensor) -> tf.Tensor:
    """Φ(f), without GPflow's jitter."""
    return tf.exp(log_ndtr(f))


def _is_link(invlink: Any, link: Callable[[tf.Tensor], tf.Tensor]) -> bool:
    """
    Whether both functions have the same values, so that a user's own lambda is recognised too.
    """
    f = tf.constant(np.linspace(-8.0, 8.0, 33))
    try:
        return bool(np.allclose(invlink(f), link(f), rtol=1e-12, atol=1e-15))
    except (TypeError, ValueError, tf.errors.OpError):
        return False
