"""GPflow's own likelihood objects as augmented ones that share the user's Parameters."""

import copy
from collections.abc import Callable
from typing import Any, TypeVar, cast

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.functions import Function
from gpflow.likelihoods import Likelihood, MonteCarloLikelihood
from gpflow.likelihoods.utils import inv_probit
from gpflow.utilities import set_trainable

from ..special import log_ndtr
from .base import AugmentedLikelihood
from .classes.binary import Logistic, Probit
from .classes.ordinal import Ordinal
from .classes.softmax import Softmax
from .composed.switched import Switched
from .composed.transformed import Scaled
from .noise.residual import Gaussian
from .noise.student_t import StudentT
from .outputwise import OutputwiseLikelihood
from .stock import unaugmented_class

T = TypeVar("T", bound=AugmentedLikelihood)


def augmented(likelihood: Likelihood) -> AugmentedLikelihood:
    """
    ``likelihood`` with an augmentation: itself, or the counterpart of GPflow's own object.

    Parameters are shared, and have the names they had: ``likelihood.scale`` is the user's own
    object. GPflow's ``StudentT`` keeps its ``df`` fixed, as there. Its ``Bernoulli()`` becomes
    ``Probit``, whose probabilities are Φ(±f), and its ``Ordinal`` ``Ordinal``, whose edges are then
    Parameters that are not trainable; there GPflow's ``inv_probit`` squeezes probabilities into
    [0.001, 0.999]. A ``StudentT`` or ``Gaussian`` whose scale is a ``Function`` of X becomes
    ``Scaled``, a ``SwitchedLikelihood`` ``Switched``. ``Softmax`` and ``GaussianMC``, which draw
    samples there, become ones that integrate.

    Any other likelihood of GPflow's or your own is returned as an
    :class:`~gpflow_aaci.likelihoods.Unaugmented` one, which is an object of its own class, too.

    :raises ValueError: for what is no likelihood, and for one that draws samples to integrate over
        f: with random values no search for an optimum ends.
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
    if type(likelihood) is gpflow.likelihoods.Ordinal:
        edges = _with(Ordinal(likelihood.bin_edges, quadrature=quadrature), sigma=likelihood.sigma)
        set_trainable(edges.bin_edges, False)  # as they are there
        return edges
    if type(likelihood) is gpflow.likelihoods.Softmax:
        return Softmax(likelihood.num_classes)
    if type(likelihood) is gpflow.likelihoods.GaussianMC:
        return Gaussian(likelihood.variance, scale=likelihood.scale)
    if type(likelihood) is gpflow.likelihoods.SwitchedLikelihood:
        parts = [augmented(part) for part in likelihood.likelihoods]
        usable = [
            part
            for part in parts
            if isinstance(part, OutputwiseLikelihood)
            and part.prior_c is not None
            and part.num_observed(1) == 1
        ]
        if len(usable) == len(parts):
            return Switched(usable)
    return _as_it_is(likelihood)


def _as_it_is(likelihood: Likelihood) -> AugmentedLikelihood:
    """The same object, of a class that states its bound; all attributes are shared."""
    if not isinstance(likelihood, Likelihood) or isinstance(likelihood, MonteCarloLikelihood):
        raise ValueError(
            "likelihood must be a gpflow.likelihoods.Likelihood whose E log p(y|f) is no Monte "
            "Carlo estimate: derive your own from ScalarLikelihood or QuadratureLikelihood. "
            f"Found: {type(likelihood).__name__}."
        )
    found = copy.copy(likelihood)
    kind: type[Likelihood] = type(likelihood)
    found.__class__ = unaugmented_class(kind)
    return cast(AugmentedLikelihood, found)


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
