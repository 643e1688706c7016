"""The base class of likelihoods with an augmentation: what a subclass defines, what follows."""

import abc
import inspect
from collections.abc import Callable
from functools import partial, wraps
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from check_shapes import check_shapes
from gpflow.base import MeanAndVariance, TensorType

from ..validation import as_default_float
from .declared import Declared
from .integrals.cumulative import cdf_from_density, log_survival_from_density
from .observations import Observations

UNDEFINED = "{} must define {}."

Site = tuple[tf.Tensor, tf.Tensor]
"""Potential and precision [..., N, L]: exp(potential f − ½ precision f²) of every f."""


class AugmentedLikelihood(Observations, Declared, abc.ABC):
    r"""
    p(y|f) of L latent GPs, which is Gaussian in f given auxiliary variables.

    Variational inference needs only ``bound``: closed-form steps are natural gradients on it, so
    they follow from its slopes. Gibbs sampling also needs ``auxiliary_law``, to draw the auxiliary
    variables, ``site``, the Gaussian factor of f that they imply, and ``log_joint``, the density of
    both.

    If you can, derive your own likelihood from
    :class:`~gpflow_aaci.likelihoods.SuperGaussianLikelihood`, which derives all this from φ.

    A quantity that has a value for every output is defined once, as ``pointwise_bound``,
    ``pointwise_log_prob``, ``expected_log_prob``, ``predictive_log_density``, ``_cdf`` or
    ``_predict_cdf``. Each returns [..., N, Q]: Q = P columns if p(y|f) is a product over
    outputs, otherwise Q = 1. GPflow's ``log_prob``, ``variational_expectations`` and
    ``predict_log_density`` return the sums over these columns.

    Shapes: X [..., N, D], f [..., N, L], Y [..., N, P].
    """

    is_augmented: bool = True
    """False for an unchanged likelihood of GPflow, whose bound is E log p(y|f)."""

    is_density: bool = True
    """Whether ∫ p(y|f) dy = 1; False for a pseudo-likelihood."""

    is_product: bool = False
    """Whether p(y|f) is a product over outputs, each of one f and one y and with its own value."""

    in_turn: bool = False
    """
    Whether the latent GPs must be updated one after the other, each with fresh marginals or
    auxiliary variables. If the auxiliary variables do not make the latent GPs independent, a step
    of all latent GPs at once may lower the bound.
    """

    row_cost: float = 0.0
    """
    The cost of E log p(y|f) for a row, by which ``fit`` chooses between passes over all rows and
    minibatches. It is 0 for a closed form and for a one-dimensional integral.
    """

    couples: bool = False
    """
    Whether E log p(y|f) couples the columns of f, and :meth:`coupling` is defined. Newton steps
    then move all latent GPs at once; moving them one by one converges too, but slowly.
    """

    prior_c: float | None = None
    """
    The c for which q(ω) is the prior π(ω), if every output has one ω and one number c determines
    q(ω), see :mod:`gpflow_aaci.augmentation`. Default: None, for all other augmentations.
    """

    _no_gibbs = "{0} has no Gibbs sampler: it does not define {1}."

    # ---- what an augmentation defines ----

    @abc.abstractmethod
    def bound(self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType) -> tf.Tensor:
        """The augmented lower bound [..., N] on E log p(y|f); the two are equal if Fvar = 0."""

    def full_conditional(
        self, X: TensorType | None, F: TensorType, Y: TensorType
    ) -> tfp.distributions.Distribution:
        """p(auxiliary|f, y): :meth:`auxiliary_law` at Fvar = 0."""
        F = tf.convert_to_tensor(F)
        return self.auxiliary_law(X, F, tf.zeros_like(F), Y)

    def auxiliary_law(
        self, X: TensorType | None, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tfp.distributions.Distribution:
        """
        The optimal q of the auxiliary variables under f ~ N(Fmu, Fvar): it maximises the bound.

        Draws are a tensor or a dictionary of tensors. The site is affine in them, and its
        expectation is the site of ``bound_slopes``.

        :param X: needed only by likelihoods whose parameters are functions of it.
        :raises NotImplementedError: if the likelihood does not define it.
        """
        raise NotImplementedError(self._no_gibbs.format(type(self).__name__, "auxiliary_law"))

    def log_joint(
        self, X: TensorType | None, auxiliary: Any, F: TensorType, Y: TensorType
    ) -> tf.Tensor:
        """
        log p(y, auxiliary|f), of the batch shape of ``full_conditional``.

        :raises NotImplementedError: if the likelihood does not define it.
        """
        raise NotImplementedError(self._no_gibbs.format(type(self).__name__, "log_joint"))

    def site(self, X: TensorType | None, auxiliary: Any, Y: TensorType) -> Site:
        """
        The factor exp(potential f − ½ precision f²) of every f, given the auxiliary variables.

        :return: potential and precision, both [..., N, L].
        :raises NotImplementedError: if the likelihood does not define it.
        """
        raise NotImplementedError(self._no_gibbs.format(type(self).__name__, "site"))

    # ---- what follows ----

    @check_shapes(
        "X: [broadcast batch..., N, D]",
        "Fmu: [batch..., N, L]",
        "Fvar: [batch..., N, L]",
        "Y: [broadcast batch..., N, P]",
        "return[0]: [batch..., N, L]",
        "return[1]: [batch..., N, L]",
    )
    def bound_slopes(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """
        ∂bound/∂Fmu and ∂bound/∂Fvar of every datum, by automatic differentiation.

        A closed-form step moves to the site with precision −2∂bound/∂Fvar and potential
        ∂bound/∂Fmu + precision · Fmu.
        """
        with tf.GradientTape() as tape:
            tape.watch([Fmu, Fvar])
            bound = self.bound(X, Fmu, Fvar, Y)
        return tuple(tape.gradient(bound, [Fmu, Fvar], unconnected_gradients="zero"))

    def coupling(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        """
        ∂²E log p(y|f)/∂Fmu_j∂Fmu_k for j ≠ k, and 0 for j = k, [N, L, L].

        :raises NotImplementedError: if :attr:`couples` is False.
        """
        raise NotImplementedError(f"{type(self).__name__} couples no latent GPs.")

    # ---- one hook for every quantity: a value [..., N, Q] for each output ----

    def pointwise_bound(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        """The augmented bound of every output."""
        return self.bound(X, Fmu, Fvar, Y)[..., None]

    def pointwise_log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        """log p(y|f) of every output. Default: the bound at Fvar = 0."""
        return self.pointwise_bound(X, F, tf.zeros_like(F), Y)

    def expected_log_prob(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        """
        E log p(y|f) of every output, under f ~ N(Fmu, Fvar).

        :raises NotImplementedError: if the likelihood does not define it.
        """
        raise NotImplementedError(UNDEFINED.format(type(self).__name__, "expected_log_prob"))

    def predictive_log_density(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        """
        log ∫ p(y|f) N(f | Fmu, Fvar) df of every output.

        :raises NotImplementedError: if the likelihood does not define it.
        """
        raise NotImplementedError(UNDEFINED.format(type(self).__name__, "predictive_log_density"))

    def _log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        return tf.reduce_sum(self.pointwise_log_prob(X, F, Y), -1)

    def _variational_expectations(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        return tf.reduce_sum(self.expected_log_prob(X, Fmu, Fvar, Y), -1)

    def _predict_log_density(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        return tf.reduce_sum(self.predictive_log_density(X, Fmu, Fvar, Y), -1)

    # ---- draws of y ----

    def draw_y(self, F: TensorType, seed: Any) -> tf.Tensor:
        """
        A draw from p(y|f) for every f.

        :param seed: as for ``tf.random.stateless_uniform``.
        :raises NotImplementedError: if the likelihood does not define it.
        """
        raise NotImplementedError(UNDEFINED.format(type(self).__name__, "draw_y(F, seed)"))

    def draw_y_like(self, X: TensorType, F: TensorType, Y: TensorType, seed: Any) -> tf.Tensor:
        """Draws as from :meth:`draw_y`, given X and further columns of Y (a binomial's trials)."""
        return self.draw_y(F, seed)

    # ---- P(y' ≤ y) and P(y' > y): a subclass may override these by closed forms ----

    def _cdf(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        """The result of :meth:`cdf` for arguments of one dtype, derived from log p(y|f) alone."""
        log_density = partial(self.pointwise_log_prob, X, F)
        Y = Y + tf.zeros_like(F[..., : Y.shape[-1]])
        return cdf_from_density(log_density, self.outcomes(), Y, self.is_density)

    def _log_survival(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        """
        The result of :meth:`log_survival` for arguments of one dtype.

        Default: from log p(y|f), with small relative errors of P(y' > y|f) where it is small, too.
        """
        log_density, cdf = (partial(of, X, F) for of in (self.pointwise_log_prob, self._cdf))
        Y = Y + tf.zeros_like(F[..., : Y.shape[-1]])
        return log_survival_from_density(log_density, cdf, self.outcomes(), Y, self.is_density)

    def _predict_cdf(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        """The result of :meth:`predict_cdf` for arguments of one dtype."""
        raise NotImplementedError(UNDEFINED.format(type(self).__name__, "_predict_cdf"))

    @check_shapes(
        "X: [broadcast batch..., N, D]",
        "F: [broadcast batch..., N, L]",
        "Y: [broadcast batch..., N, P]",
        "return: [batch..., N, Q]",
    )
    def cdf(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        """
        P(y' ≤ y|f), one value for every y.

        A pseudo-likelihood is normalised first, as for predictions. Classes are in the order of
        their numbers.
        """
        F, X, Y = _of_one_float(F, X, Y)
        self._check_columns(F, Y)
        return self._from_lowest(partial(self._cdf, X, F), Y)

    @check_shapes(
        "X: [broadcast batch..., N, D]",
        "F: [broadcast batch..., N, L]",
        "Y: [broadcast batch..., N, P]",
        "return: [batch..., N, Q]",
    )
    def log_survival(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        """log P(y' > y|f), one value for every y, accurate where the probability is small, too."""
        F, X, Y = _of_one_float(F, X, Y)
        self._check_columns(F, Y)
        return self._from_lowest(partial(self._log_survival, X, F), Y)

    @check_shapes(
        "X: [broadcast batch..., N, D]",
        "Fmu: [broadcast batch..., N, L]",
        "Fvar: [broadcast batch..., N, L]",
        "Y: [broadcast batch..., N, P]",
        "return: [batch..., N, Q]",
    )
    def predict_cdf(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        """E P(y' ≤ y|f) under f ~ N(Fmu, Fvar), one value for every y."""
        Fmu, Fvar, X, Y = _of_one_float(Fmu, Fvar, X, Y)
        self._check_columns(Fmu, Y)
        return self._from_lowest(partial(self._predict_cdf, X, Fmu, Fvar), Y)

    def _from_lowest(self, of: Callable[[tf.Tensor], tf.Tensor], Y: tf.Tensor) -> tf.Tensor:
        """``of(Y)``, or 0 where y is below the smallest possible one: P(y' ≤ y), log P(y' > y)."""
        if np.isinf(self.lowest):
            return of(Y)
        y, lowest = self.response(Y), tf.cast(self.lowest, Y.dtype)
        given = [Y[..., -self.num_given :]] if self.num_given else []
        value = of(tf.concat([tf.maximum(y, lowest), *given], -1))
        return tf.where(y < lowest, tf.zeros_like(value), value)

    def _check_columns(self, F: tf.Tensor, Y: tf.Tensor) -> None:
        expected = self.num_observed(F.shape[-1])
        if Y.shape[-1] not in (None, expected):
            raise ValueError(
                f"Y must have {expected} columns, f having {F.shape[-1]}. Found: {Y.shape[-1]}."
            )

    # ---- GPflow's own entry points: arrays and integer labels, as its likelihoods take them ----

    def log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        return super().log_prob(X, *_of_one_float(F, Y))

    def predict_mean_and_var(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType
    ) -> MeanAndVariance:
        return super().predict_mean_and_var(X, *_of_one_float(Fmu, Fvar))

    def predict_log_density(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        return super().predict_log_density(X, *_of_one_float(Fmu, Fvar, Y))

    def variational_expectations(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        return super().variational_expectations(X, *_of_one_float(Fmu, Fvar, Y))


class PredictedMoments(AugmentedLikelihood, abc.ABC):
    """The mean and variance of y given f are the predicted ones at Fvar = 0."""

    def _conditional_mean(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return self._predict_mean_and_var(X, F, tf.zeros_like(F))[0]

    def _conditional_variance(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return self._predict_mean_and_var(X, F, tf.zeros_like(F))[1]


class _Named:
    """A class attribute that becomes ``method_of(name)`` under every name that it is given."""

    def __init__(self, method_of: Callable[[str], Any]) -> None:
        self._method_of = method_of

    def __set_name__(self, owner: type, name: str) -> None:
        setattr(owner, name, self._method_of(name))


def delegated(rule: Callable[..., Any]) -> Any:
    """
    The methods ``f(X, *marginals, Y)`` of a likelihood that takes them from other likelihoods.

    ``bound_slopes = pointwise_bound = delegated(_rule)`` defines both.

    :param rule: returns the value, given the likelihood, the method's name, X, the marginals and Y.
    """

    def method_of(name: str) -> Callable[..., Any]:
        hook = getattr(AugmentedLikelihood, name)
        signature = inspect.signature(hook)

        @wraps(hook, updated=())
        def method(self: AugmentedLikelihood, *args: Any, **named: Any) -> Any:
            _, X, *marginals, Y = signature.bind(self, *args, **named).args
            return rule(self, name, X, marginals, Y)

        return method

    return _Named(method_of)


def of_base() -> Any:
    """The methods of ``self.base``: ``outcomes = draw_y = of_base()`` defines both."""

    def method_of(name: str) -> Callable[..., Any]:
        @wraps(getattr(AugmentedLikelihood, name), updated=())
        def method(self: Any, *args: Any, **named: Any) -> Any:
            return getattr(self.base, name)(*args, **named)

        return method

    return _Named(method_of)


def described(likelihood: Any) -> str:
    """The name of a likelihood, and what compositions may not accept, for error messages."""
    name, given = type(likelihood).__name__, getattr(likelihood, "given", ())
    if not getattr(likelihood, "is_augmented", True):
        return f"{name}, which has no augmentation"
    return f"{name}, which takes further columns of Y ({', '.join(given)})" if given else name


def draw_as_observed(self: AugmentedLikelihood, F: TensorType, seed: Any) -> tf.Tensor:
    """The ``draw_y`` that is ``draw_y_like`` at the further columns of Y of a predicted y."""
    return self.draw_y_like(None, F, self.as_observed(F), seed)


def as_float(F: TensorType) -> tf.Tensor:
    """F as a tensor of ``default_float()``; a tensor of floats keeps its dtype (frozen models)."""
    is_float = tf.is_tensor(F) and F.dtype.is_floating
    return tf.convert_to_tensor(F) if is_float else as_default_float(F)


def _of_one_float(F: TensorType, *others: TensorType) -> list[tf.Tensor]:
    """
    F by :func:`as_float`, and the others cast to the dtype of F.

    In a model frozen as float32 (``gpflow.utilities.freeze_as_float32``) f and all Parameters are
    float32 tensors, whatever ``default_float()`` is.
    """
    F = as_float(F)
    return [F, *(tf.cast(as_default_float(other), F.dtype) for other in others)]
