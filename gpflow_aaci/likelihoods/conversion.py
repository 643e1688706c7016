"""Conversion of GPflow's likelihoods to augmented ones that share the user's Parameters."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.functions import Function
from gpflow.likelihoods import Likelihood, MonteCarloLikelihood
from gpflow.likelihoods.utils import inv_probit
from gpflow.utilities import set_trainable

from ..special import log_ndtr
from ..validation import Check, check_finite
from .base import AugmentedLikelihood
from .classes.binary import Logistic, Probit
from .classes.ordinal import Ordinal
from .classes.softmax import Softmax
from .composed.per_datum import Switched
from .composed.transformed import Scaled
from .noise.residual import Gaussian
from .noise.student_t import StudentT
from .stock import unaugmented

T = TypeVar("T", bound=AugmentedLikelihood)


def augmented(likelihood: Likelihood) -> AugmentedLikelihood:
    """
    Convert a likelihood of GPflow into one of this package, or return ``likelihood`` itself.

    The result shares the Parameters of GPflow's likelihood under the same names, so that
    ``likelihood.scale`` is still the user's own object.

    - ``StudentT`` and ``Gaussian`` become the classes of the same name, or ``Scaled`` if their
      scale is a ``Function`` of X. As in GPflow ``df`` is fixed.
    - ``Bernoulli()`` becomes ``Probit``, with the probabilities Φ(±f), and
      ``Bernoulli(invlink=tf.sigmoid)`` becomes ``Logistic``. GPflow's ``inv_probit`` squeezes
      probabilities into [0.001, 0.999]. A link with Parameters of its own is not converted.
    - ``Ordinal`` becomes ``Ordinal``, whose edges are Parameters that are not trainable.
    - ``SwitchedLikelihood`` becomes ``Switched``.
    - ``Softmax`` and ``GaussianMC``, which draw samples in GPflow, become ``Softmax`` and
      ``Gaussian``, which integrate.

    Any other likelihood, GPflow's or your own, remains an instance of its class and becomes an
    instance of :class:`~gpflow_aaci.likelihoods.Unaugmented` as well.

    :param likelihood: a likelihood of this package, of GPflow, or your own.
    :raises ValueError: for an object that is not a likelihood, and for a likelihood that estimates
        integrals over f by random draws, for which optimisation would not converge.
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
        set_trainable(edges.bin_edges, False)  # as in GPflow
        return edges
    if type(likelihood) is gpflow.likelihoods.Softmax:
        return Softmax(likelihood.num_classes)
    if type(likelihood) is gpflow.likelihoods.GaussianMC:
        return Gaussian(likelihood.variance, scale=likelihood.scale)
    if type(likelihood) is gpflow.likelihoods.SwitchedLikelihood:
        parts = [augmented(part) for part in likelihood.likelihoods]
        if all(part.is_product for part in parts):
            return Switched(parts)
    return _as_it_is(likelihood)


def checks_of(likelihood: Likelihood) -> Callable[[tf.Tensor], Sequence[Check]]:
    """The checks of Y, also for GPflow's likelihoods; that it is finite, if fits refuse them."""
    try:
        return augmented(likelihood).checks
    except ValueError:
        return lambda Y: [check_finite("Y", Y)]


def _as_it_is(likelihood: Likelihood) -> AugmentedLikelihood:
    """The likelihood as an instance of a class with a bound; all attributes are shared."""
    if not isinstance(likelihood, Likelihood) or isinstance(likelihood, MonteCarloLikelihood):
        raise ValueError(
            "likelihood must be a gpflow.likelihoods.Likelihood whose E log p(y|f) is not a "
            "Monte Carlo estimate: derive your own from ScalarLikelihood or QuadratureLikelihood. "
            f"Found: {type(likelihood).__name__}."
        )
    return unaugmented(likelihood)


def _with(likelihood: T, **values: Any) -> T:
    """``likelihood`` with its Parameters replaced by those of GPflow's object."""
    for name, value in values.items():
        delattr(likelihood, name)  # checkpoints must not look for the old Parameter
        setattr(likelihood, name, value)
    return likelihood


def _exact_probit(f: tf.Tensor) -> tf.Tensor:
    """Φ(f), without GPflow's jitter."""
    return tf.exp(log_ndtr(f))


def _is_link(invlink: Any, link: Callable[[tf.Tensor], tf.Tensor]) -> bool:
    """
    Whether both functions have the same values, so that a user's lambda is recognised too.

    A link with variables, such as a slope that is 1 at first, may have other values later.
    """
    f = tf.constant(np.linspace(-8.0, 8.0, 33))
    try:
        with tf.GradientTape() as tape:
            same = bool(np.allclose(invlink(f), link(f), rtol=1e-12, atol=1e-15))
    except (TypeError, ValueError, tf.errors.OpError):
        return False
    has_own = isinstance(invlink, tf.Module) and len(invlink.variables) > 0
    return same and not has_own and not tape.watched_variables()
