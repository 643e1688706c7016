"""GPflow's own likelihood objects as augmented ones that share the user's Parameters."""

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.functions import Function
from gpflow.likelihoods import Likelihood

from .base import SuperGaussianLikelihood
from .classification import Logistic
from .regression import Gaussian, StudentT

_AUGMENTED = (
    "gpflow_aaci.likelihoods.{Gaussian, StudentT, Laplace, Matern32, Matern52, Logistic, "
    "BayesianSVM} or your own SuperGaussianLikelihood, and GPflow's StudentT, Gaussian and "
    "Bernoulli(invlink=tf.sigmoid)"
)


def augmented(likelihood: Likelihood) -> SuperGaussianLikelihood:
    """
    ``likelihood`` with an augmentation: itself, or the counterpart of GPflow's own object.

    Parameters are shared: what trains the one trains the other. GPflow's ``StudentT`` keeps its
    ``df`` fixed, as there.

    :raises ValueError: where there is no augmentation; the message lists what has one.
    """
    if isinstance(likelihood, SuperGaussianLikelihood):
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
        if _is_sigmoid(likelihood.invlink):
            return Logistic(quadrature=likelihood.quadrature)
        raise ValueError(
            "likelihood must have an augmentation. Found: Bernoulli with an invlink that is not "
            f"the logistic sigmoid (GPflow's default is probit). Accepted: {_AUGMENTED}."
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


def _is_sigmoid(invlink: object) -> bool:
    """By value, so that a user's own lambda is recognised."""
    f = tf.constant(np.linspace(-8.0, 8.0, 33))
    try:
        return bool(np.allclose(invlink(f), tf.sigmoid(f), rtol=1e-12, atol=0.0))  # type: ignore[operator]
    except (TypeError, ValueError, tf.errors.OpError):
        return False
