"""Likelihoods of data with weights, or with outputs that were not observed."""

import abc
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import AnyNDArray, MeanAndVariance, TensorType

from ...validation import Check, require, some
from ..base import AugmentedLikelihood, Site
from ..outputwise import OutputwiseLikelihood

_STAND_IN = 1.0  # a y that every likelihood accepts, for outputs that are missing


class OfBase(AugmentedLikelihood, abc.ABC):
    """A likelihood that takes support, moments and draws from a base, evaluated at another Y."""

    base: AugmentedLikelihood

    def _take(self, base: AugmentedLikelihood) -> None:
        self.base = base
        for name in ("is_augmented", "is_density", "labels", "in_turn", "row_cost", "couples"):
            setattr(self, name, getattr(base, name))

    @abc.abstractmethod
    def _of_base(self, Y: TensorType) -> tf.Tensor:
        """The base's Y."""

    def in_support(self, z: TensorType) -> tf.Tensor:
        return self.base.in_support(z)

    def must_be_finite(self, Y: tf.Tensor) -> tf.Tensor:
        return self.base.must_be_finite(self._of_base(Y))

    def draw_y(self, F: TensorType, seed: Any) -> tf.Tensor:
        return self.base.draw_y(F, seed)

    def draw_y_like(self, X: TensorType, F: TensorType, Y: TensorType, seed: Any) -> tf.Tensor:
        return self.base.draw_y_like(X, F, self._of_base(Y), seed)

    def _conditional_mean(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return self.base._conditional_mean(X, F)

    def _conditional_variance(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return self.base._conditional_variance(X, F)

    def _predict_mean_and_var(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType
    ) -> MeanAndVariance:
        return self.base._predict_mean_and_var(X, Fmu, Fvar)


def _weighted(name: str, num_axes: int) -> Any:
    """w times the base's ``name(X, *marginals, Y)``, with ``num_axes`` axes after the batch."""

    def method(self: "Weighted", X: TensorType | None, *marginals_and_Y: TensorType) -> Any:
        *marginals, Y = marginals_and_Y
        y, weight = self._parts(Y)
        weight = tf.reshape(weight, tf.concat([tf.shape(weight)[:-1], [1] * (num_axes - 1)], 0))
        value = getattr(self.base, name)(X, *marginals, y)
        return tf.nest.map_structure(lambda part: weight * part, value)

    return method


def _unweighted(name: str) -> Any:
    """The base's ``name(X, *marginals, Y)`` without the weight."""

    def method(self: "Weighted", X: TensorType | None, *marginals_and_Y: TensorType) -> Any:
        *marginals, Y = marginals_and_Y
        return getattr(self.base, name)(X, *marginals, self._of_base(Y))

    return method


class Weighted(OfBase):
    r"""
    p(y|f)^w: a datum counts w times, and the weight w is the last column of Y.

    The bound, the site, E log p(y|f) and log-densities of the base are multiplied by w, so that a
    row with weight 2 has the effect of two equal rows. Draws, quantiles and moments of y are not
    weighted. A predicted y has weight 1::

        likelihood = Weighted(StudentT(scale=0.5))  # Y [N, 2]: y, and w ≥ 0

    Gibbs sampling draws auxiliary variables w times, and needs weights that are whole numbers.
    """

    def __init__(self, base: AugmentedLikelihood, **kwargs: Any) -> None:
        """
        :param base: any augmented likelihood, or one of GPflow's as
            :func:`~gpflow_aaci.likelihoods.augmented` returns it.
        :raises ValueError: if an argument is not as described.
        """
        if not isinstance(base, AugmentedLikelihood):
            raise ValueError(
                "Weighted: base must be a likelihood of gpflow_aaci.likelihoods, or what "
                f"likelihoods.augmented returns. Found: {type(base).__name__}."
            )
        super().__init__(base.input_dim, base.latent_dim, base.observation_dim, **kwargs)
        self._take(base)
        self.given = (*base.given, "weight")

    def _of_base(self, Y: TensorType) -> tf.Tensor:
        return Y[..., :-1]

    def _parts(self, Y: TensorType) -> tuple[tf.Tensor, tf.Tensor]:
        """The base's Y, and the weights [..., N, 1]."""
        return self._of_base(Y), Y[..., -1:]

    def num_observed(self, num_outputs: int) -> int:
        return self.base.num_observed(num_outputs) + 1

    def num_outputs(self, num_observed: int) -> int:
        return self.base.num_outputs(num_observed - 1)

    bound = _weighted("bound", 1)
    bound_slopes = _weighted("bound_slopes", 2)
    coupling = _weighted("coupling", 3)
    pointwise_bound = _weighted("pointwise_bound", 2)
    pointwise_log_prob = _weighted("pointwise_log_prob", 2)
    expected_log_prob = _weighted("expected_log_prob", 2)
    predictive_log_density = _weighted("predictive_log_density", 2)
    _variational_expectations = _weighted("_variational_expectations", 1)
    _cdf = _unweighted("_cdf")
    _predict_cdf = _unweighted("_predict_cdf")

    # ---- Gibbs: auxiliary variables for every copy of a datum ----

    def auxiliary_law(
        self, X: TensorType | None, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tfp.distributions.Distribution:
        """
        W copies of the base's distribution, along the last axis of a draw; W is the largest weight.

        Copies beyond the weight of a datum have no effect; they are drawn at f = 0.

        :raises ValueError: for weights that are not whole numbers.
        """
        y, weight = self._parts(Y)
        wrong = ~tf.equal(weight, tf.round(weight))
        message = "Y must hold weights that are whole numbers for Gibbs sampling."
        whole = Check(~tf.reduce_any(wrong), message, lambda: some(weight, wrong))
        with tf.control_dependencies([require([whole])]):
            most = tf.cast(tf.reduce_max(weight), tf.int32)
        rank = Fmu.shape.rank
        counts = _counts(most, weight, rank)
        Fmu, Fvar = (tf.where(counts, part, tf.zeros_like(part)) for part in (Fmu, Fvar))
        return _Copies(self.base.auxiliary_law(X, Fmu, Fvar, y), rank)

    def log_joint(
        self, X: TensorType | None, auxiliary: Any, F: TensorType, Y: TensorType
    ) -> tf.Tensor:
        y, weight = self._parts(Y)
        copies = tf.nest.map_structure(_last_to_first, auxiliary)
        joint = self.base.log_joint(X, copies, F, y)
        number, rank = tf.shape(joint)[0], F.shape.rank
        counts = _counts(number, weight, rank)
        if joint.shape.rank == rank:  # one value for a row
            counts = counts[..., 0]
        none = tf.repeat(tf.zeros_like(F)[None], number, 0)  # f of copies that do not count
        alone = self.base.auxiliary_law(X, none, none, y).log_prob(copies)
        return tf.reduce_sum(tf.where(counts, joint, alone), 0)

    def site(self, X: TensorType | None, auxiliary: Any, Y: TensorType) -> Site:
        y, weight = self._parts(Y)
        copies = tf.nest.map_structure(_last_to_first, auxiliary)
        potential, precision = self.base.site(X, copies, y)
        counts = _counts(tf.shape(precision)[0], weight, precision.shape.rank - 1)
        return tuple(
            tf.reduce_sum(tf.where(counts, part, tf.zeros_like(part)), 0)
            for part in (potential + tf.zeros_like(precision), precision)
        )

    # ---- y, which has no weight ----

    def outcomes(self) -> AnyNDArray | None:
        of_base = self.base.outcomes()
        return None if of_base is None else np.hstack([of_base, np.ones((len(of_base), 1))])

    def next_below(self, Y: AnyNDArray) -> tuple[AnyNDArray, AnyNDArray]:
        below, is_least = self.base.next_below(Y[..., :-1])
        return np.concatenate([below, Y[..., -1:]], -1), is_least

    def as_observed(self, y: TensorType) -> tf.Tensor:
        of_base = self.base.as_observed(y)
        return tf.concat([of_base, tf.ones_like(of_base[..., :1])], -1)

    def check_observations(self, Y: tf.Tensor) -> Sequence[Check]:
        y, weight = self._parts(Y)
        wrong = ~((weight >= 0.0) & tf.math.is_finite(weight))
        message = "Y must end in a column of weights that are finite and not negative."
        of_weight = Check(~tf.reduce_any(wrong), message, lambda: some(weight, wrong))
        return [of_weight, *self.base.check_observations(y)]


class _Copies:
    """Move the W copies from the first batch axis of a distribution to the last axis of draws."""

    def __init__(self, law: tfp.distributions.Distribution, rank: int) -> None:
        self._law, self._rank = law, rank

    def sample(self, sample_shape: Any = (), seed: Any = None) -> Any:
        axis = np.size(sample_shape)
        drawn = self._law.sample(sample_shape, seed=seed)
        return tf.nest.map_structure(
            lambda part: tf.experimental.numpy.moveaxis(part, axis, -1), drawn
        )

    def log_prob(self, value: Any) -> tf.Tensor:
        axis = tf.nest.flatten(value)[0].shape.rank - 1 - self._rank
        value = tf.nest.map_structure(
            lambda part: tf.experimental.numpy.moveaxis(part, -1, axis), value
        )
        return tf.reduce_sum(self._law.log_prob(value), axis)


def _last_to_first(part: tf.Tensor) -> tf.Tensor:
    return tf.experimental.numpy.moveaxis(part, -1, 0)


def _counts(most: tf.Tensor, weight: tf.Tensor, rank: int) -> tf.Tensor:
    """Whether the k-th of W = ``most`` copies counts, [W, ..., N, 1], with 1 + ``rank`` axes."""
    shape = tf.concat([[-1], tf.ones([rank], tf.int32)], 0)
    return tf.reshape(tf.range(most, dtype=weight.dtype), shape) < weight


def _where_observed(name: str, otherwise: float = 0.0) -> Any:
    """The base's ``name(X, *marginals, Y)`` at observed outputs, ``otherwise`` at missing ones."""

    def method(self: "Missing", X: TensorType | None, *marginals_and_Y: TensorType) -> Any:
        *marginals, Y = marginals_and_Y
        is_observed, y = _filled(Y)
        value = getattr(self.base, name)(X, *marginals, y)
        return tf.nest.map_structure(
            lambda part: tf.where(is_observed, part, tf.cast(otherwise, part.dtype)), value
        )

    return method


class Missing(OfBase, OutputwiseLikelihood):
    r"""
    A product over outputs; an output that was not observed is NaN in Y [N, P].

    A missing output adds nothing to the bound, and its site is 0. Under a kernel that mixes latent
    GPs the other outputs of the row predict it::

        model = AugmentedSVGP(kernel, Missing(StudentT()), Z, num_latent_gps=2)
        fit(model, (X, Y))  # Y [N, 2], NaN where missing
    """

    def __init__(
        self, base: OutputwiseLikelihood, *, empty_rows: bool = False, **kwargs: Any
    ) -> None:
        """
        :param base: a likelihood that is a product over outputs, with no further columns of Y.
        :param empty_rows: whether rows without any output are accepted. Such a row changes only
            the number of rows.
        :raises ValueError: for another base.
        """
        if not isinstance(base, OutputwiseLikelihood) or base.given:
            raise ValueError(
                "Missing: base must be a product over outputs, each of one f and of one y, such "
                f"as gpflow_aaci.likelihoods.StudentT. Found: {type(base).__name__}."
            )
        super().__init__(**kwargs)
        self._take(base)
        self.empty_rows = empty_rows

    def _of_base(self, Y: TensorType) -> tf.Tensor:
        return _filled(Y)[1]

    pointwise_bound = _where_observed("pointwise_bound")
    bound_slopes = _where_observed("bound_slopes")
    pointwise_log_prob = _where_observed("pointwise_log_prob")
    expected_log_prob = _where_observed("expected_log_prob")
    predictive_log_density = _where_observed("predictive_log_density")
    _cdf = _where_observed("_cdf", np.nan)
    _predict_cdf = _where_observed("_predict_cdf", np.nan)

    def auxiliary_law(
        self, X: TensorType | None, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tfp.distributions.Distribution:
        """The base's; the auxiliary variables of a missing output have no effect."""
        is_observed, y = _filled(Y)
        Fmu, Fvar = (tf.where(is_observed, part, tf.zeros_like(part)) for part in (Fmu, Fvar))
        return self.base.auxiliary_law(X, Fmu, Fvar, y)

    def log_joint(
        self, X: TensorType | None, auxiliary: Any, F: TensorType, Y: TensorType
    ) -> tf.Tensor:
        is_observed, y = _filled(Y)
        alone = self.full_conditional(X, F, Y).log_prob(auxiliary)
        return tf.where(is_observed, self.base.log_joint(X, auxiliary, F, y), alone)

    def site(self, X: TensorType | None, auxiliary: Any, Y: TensorType) -> Site:
        is_observed, y = _filled(Y)
        return tuple(
            tf.where(is_observed, part, tf.zeros_like(part))
            for part in self.base.site(X, auxiliary, y)
        )

    def outcomes(self) -> AnyNDArray | None:
        return self.base.outcomes()

    def check_observations(self, Y: tf.Tensor) -> Sequence[Check]:
        is_observed, y = _filled(Y)
        is_empty = ~tf.reduce_any(is_observed, -1)
        message = "Y must have an output in every row, unless empty_rows=True."
        empty = Check(
            ~tf.reduce_any(is_empty) | self.empty_rows, message, lambda: tf.where(is_empty)[:10, 0]
        )
        return [empty, *self.base.check_observations(y)]


def _filled(Y: TensorType) -> tuple[tf.Tensor, tf.Tensor]:
    """Which outputs were observed, and Y with a stand-in for the others."""
    is_observed = ~tf.math.is_nan(Y)
    return is_observed, tf.where(is_observed, Y, tf.cast(_STAND_IN, Y.dtype))
