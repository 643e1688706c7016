"""The base class of likelihoods: a law of y, an augmentation of it, and the columns of Y."""

import abc
from typing import Any

import tensorflow as tf
import tensorflow_probability as tfp
from check_shapes import check_shapes
from gpflow.base import TensorType

from .law import Law

Site = tuple[tf.Tensor, tf.Tensor]
"""Potential and precision [..., N, L]: exp(potential f − ½ precision f²) of every f."""


class AugmentedLikelihood(Law, abc.ABC):
    r"""
    p(y|f) of L latent GPs, which is Gaussian in f given auxiliary variables.

    Variational inference needs only ``bound``: closed-form steps are natural gradients on it, so
    they follow from its slopes. Gibbs sampling also needs ``auxiliary_law``, to draw the auxiliary
    variables, ``site``, the Gaussian factor of f that they imply, and ``log_joint``, the density of
    both.

    If you can, derive your own likelihood from
    :class:`~gpflow_aaci.likelihoods.SuperGaussianLikelihood`, which derives all this from φ.

    What predictions need is in :class:`~gpflow_aaci.likelihoods.law.Law`, what Y may hold in
    :class:`~gpflow_aaci.likelihoods.observations.Observations`, and the arguments of a likelihood
    in :class:`~gpflow_aaci.likelihoods.declared.Declared`.

    Shapes: X [..., N, D], f [..., N, L], Y [..., N, P].
    """

    is_augmented: bool = True
    """False for an unchanged likelihood of GPflow, whose bound is E log p(y|f)."""

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

    def pointwise_bound(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        """The augmented bound of every output."""
        return self.bound(X, Fmu, Fvar, Y)[..., None]

    def pointwise_log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        """log p(y|f) of every output. Default: the bound at Fvar = 0."""
        return self.pointwise_bound(X, F, tf.zeros_like(F), Y)

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
