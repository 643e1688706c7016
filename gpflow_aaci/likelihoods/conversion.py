"""GPflow's own likelihood objects as augmented ones that share the user's Parameters."""

from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.functions import Function
from gpflow.likelihoods import Likelihood
from gpflow.likelihoods.utils import inv_probit

from ..special import log_ndtr
from .base import AugmentedLikelihood
from .classification import Logistic, Probit
from .regression import Gaussian, StudentT

_AUGMENTED = (
    "gpflow_aaci.likelihoods.{Gaussian, StudentT, Laplace, Matern32, Matern52, Logistic, "
    "Probit, BayesianSVM} or your own SuperGaussianLikelihood, and GPflow's StudentT, Gaussian, "
    "Bernoulli() and Bernoulli(invlink=tf.sigmoid)"
)


def augmented(likelihood: Likelihood) -> AugmentedLikelihood:
    """
    ``likelihood`` with an augmentation: itself, or the counterpart of GPflow's own object.

    Parameters are shared: what trains the one trains the other. GPflow's ``StudentT`` keeps its
    ``df`` fixed, as there. Its ``Bernoulli()`` becomes ``Probit``, whose probabilities are Φ(±f):
    GPflow's ``inv_probit`` squeezes them into [0.001, 0.999].

    :raises ValueError: where there is no augmentation; the message lists what has one.
    """
    if isinstance(likelihood, AugmentedLikelihood):
        return likelihood
    # Exact types: a subclass may have overridden anything.
    if type(likelihood) is gpflow.likelihoods.StudentT:
        _refuse_function("StudentT", "scale", likelihood.scale)
        student_t = StudentT(likelihood.scale, quadrature=likelihood.quadrature)
        del student_t.df  # first, or checkpoints would go on to look for the Parameter
        student_t.df = likelihood.df
        return student_t
    if type(likelihood) is gpflow.likelihoods.Gaussian:
        _refuse_function("Gaussian", "variance", likelihood.variance)
        _refuse_function("Gaussian", "scale", likelihood.scale)
        return Gaussian(
            likelihood.variance, scale=likelihood.scale, quadrature=likelihood.quadrature
        )
    if type(likelihood) is gpflow.likelihoods.Bernoulli:
        if _is_link(likelihood.invlink, tf.sigmoid):
            return Logistic(quadrature=likelihood.quadrature)
        if any(_is_link(likelihood.invlink, probit) for probit in (inv_probit, _exact_probit)):
            return Probit(quadrature=likelihood.quadrature)
        raise ValueError(
            "likelihood must have an augmentation. Found: Bernoulli with an invlink that is "
            "neither GPflow's default, the probit link, nor the logistic sigmoid. "
            f"Accepted: {_AUGMENTED}."
        )
    raise ValueError(
        f"likelihood must have an augmentation. Found: {type(likelihood).__name__}. "
        f"Accepted: {_AUGMENTED}."
    )


def _refuse_function(owner: str, name: str, value: object) -> None:
    if isinstance(value, Function):
        raise ValueError(
            f"likelihood: {name} of {owner} must be one number for all data. Found: {value!r}, a "
            "Function of X, for which there is no augmentation here."
        )


def _exact_probit(f: tf.Tensor) -> tf.Tensor:
    """Φ(f), without GPflow's jitter."""
    return tf.exp(log_ndtr(f))


def _is_link(invlink: Any, link: Callable[[tf.Tensor], tf.Tensor]) -> bool:
    """By value, so that a user's own lambda is recognised."""
    f = tf.constant(np.linspace(-8.0, 8.0, 33))
    try:
        return bool(np.allclose(invlink(f), link(f), rtol=1e-12, atol=1e-15))
    except (TypeError, ValueError, tf.errors.OpError):
        return False
