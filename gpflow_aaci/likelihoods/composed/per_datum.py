"""Likelihoods of data with weights, or with outputs that were not observed."""

import abc
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import AnyNDArray, TensorType

from ...validation import Check, check_all, require
from ..base import AugmentedLikelihood, Site, delegated, described, of_base
from ..outputwise import OutputwiseLikelihood


class OfBase(AugmentedLikelihood, abc.ABC):
    """A likelihood that takes support, moments and draws from a base, evaluated at another Y."""

    base: AugmentedLikelihood

    def _take(self, base: AugmentedLikelihood) -> None:
        self.base = base
        of_base = "is_augmented", "is_density", "labels", "lowest", "in_turn", "row_cost", "couples"
        for name in of_base:
            setattr(self, name, getattr(base, name))

    @abc.abstractmethod
    def _of_base(self, Y: TensorType) -> tf.Tensor:
        """The base's Y."""

    in_support = of_base("in_support")
    draw_y = of_base("draw_y")
    _conditional_mean = of_base("_conditional_mean")
    _conditional_variance = of_base("_conditional_variance")
    _predict_mean_and_var = of_base("_predict_mean_and_var")

    def must_be_finite(self, Y: tf.Tensor) -> tf.Tensor:
        return self.base.must_be_finite(self._of_base(Y))

    def draw_y_like(self, X: TensorType, F: TensorType, Y: TensorType, seed: Any) -> tf.Tensor:
        return self.base.draw_y_like(X, F, self._of_base(Y), seed)


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

    def _unchanged(self, name: str, X: TensorType | None, marginals: Any, Y: TensorType) -> Any:
        return getattr(self.base, name)(X, *marginals, self._of_base(Y))

    def _weighted(
        self, name: str, X: TensorType | None, marginals: Any, Y: TensorType, *, num_axes: int = 2
    ) -> Any:
        """w times the base's value, which has ``num_axes`` axes from the axis N on."""
        weight = tf.reshape(Y[..., -1], tf.concat([tf.shape(Y)[:-1], [1] * (num_axes - 1)], 0))
        value = self._unchanged(name, X, marginals, Y)
        return tf.nest.map_structure(lambda part: weight * part, value)

    bound = delegated("bound", _weighted, num_axes=1)
    bound_slopes = delegated("bound_slopes", _weighted)
    coupling = delegated("coupling", _weighted, num_axes=3)
    pointwise_bound = delegated("pointwise_bound", _weighted)
    pointwise_log_prob = delegated("pointwise_log_prob", _weighted)
    expected_log_prob = delegated("expected_log_prob", _weighted)
    predictive_log_density = delegated("predictive_log_density", _weighted)
    _variational_expectations = delegated("_variational_expectations", _weighted, num_axes=1)
    _cdf = delegated("_cdf", _unchanged)
    _log_survival = delegated("_log_survival", _unchanged)
    _predict_cdf = delegated("_predict_cdf", _unchanged)

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
        message = "Y must hold weights that are whole numbers for Gibbs sampling."
        are_whole = check_all(weight, tf.equal(weight, tf.round(weight)), message)
        with tf.control_dependencies([require([are_whole])]):
            most = tf.cast(tf.reduce_max(weight), tf.int32)
        rank = Fmu.shape.rank
        Fmu, Fvar = _where(_counts(most, weight, rank), (Fmu, Fvar))
        return _Copies(self.base.auxiliary_law(X, Fmu, Fvar, y))

    def log_joint(
        self, X: TensorType | None, auxiliary: Any, F: TensorType, Y: TensorType
    ) -> tf.Tensor:
        y, weight = (part[..., None, :, :] for part in self._parts(Y))
        number = tf.shape(tf.nest.flatten(auxiliary)[0])[-1]
        none = tf.zeros(tf.concat([[number], tf.shape(F)[-2:]], 0), F.dtype)
        of_rows = y
        while of_rows.shape.rank > 2:
            of_rows = of_rows[0]
        ranks = _ranks(self.base.auxiliary_law(X, none, none, of_rows))
        copies = _before_rows(auxiliary, ranks)
        joint = self.base.log_joint(X, copies, F[..., None, :, :], y)
        counts, axis = _counts(number, weight, 2), -3  # [W, N, 1]
        if joint.shape.rank - _num_before(copies, ranks) == 2:  # one value for a row
            counts, axis = counts[..., 0], -2
        alone = self.base.auxiliary_law(X, none, none, y).log_prob(copies)  # that do not count
        return tf.reduce_sum(tf.where(counts, joint, alone), axis)

    def site(self, X: TensorType | None, auxiliary: Any, Y: TensorType) -> Site:
        y, weight = self._parts(Y)
        copies = tf.nest.map_structure(_last_to_first, auxiliary)
        potential, precision = self.base.site(X, copies, y)
        counts = _counts(tf.shape(precision)[0], weight, precision.shape.rank - 1)
        sites = _where(counts, (potential + tf.zeros_like(precision), precision))
        return tuple(tf.reduce_sum(part, 0) for part in sites)

    # ---- y, which has no weight ----

    def outcomes(self) -> AnyNDArray | None:
        of_base = self.base.outcomes()
        return None if of_base is None else np.hstack([of_base, np.ones((len(of_base), 1))])

    def next_below(self, Y: AnyNDArray) -> AnyNDArray:
        return np.concatenate([self.base.next_below(Y[..., :-1]), Y[..., -1:]], -1)

    def as_observed(self, y: TensorType) -> tf.Tensor:
        of_base = self.base.as_observed(y)
        return tf.concat([of_base, tf.ones_like(of_base[..., :1])], -1)

    def check_observations(self, Y: tf.Tensor) -> Sequence[Check]:
        y, weight = self._parts(Y)
        right = (weight >= 0.0) & tf.math.is_finite(weight)
        message = "Y must end in a column of weights that are finite and not negative."
        return [check_all(weight, right, message), *self.base.check_observations(y)]


class _Copies:
    """Move the W copies from the first batch axis of a distribution to the last axis of draws."""

    def __init__(self, law: tfp.distributions.Distribution) -> None:
        self.law = law

    def sample(self, sample_shape: Any = (), seed: Any = None) -> Any:
        axis = np.size(sample_shape)
        drawn = self.law.sample(sample_shape, seed=seed)
        return tf.nest.map_structure(
            lambda part: tf.experimental.numpy.moveaxis(part, axis, -1), drawn
        )

    def log_prob(self, value: Any) -> tf.Tensor:
        ranks = _ranks(self.law)
        copies = _before_rows(value, ranks)
        return tf.reduce_sum(self.law.log_prob(copies), _num_before(copies, ranks))


def _ranks(law: Any) -> Any:
    """The number of axes of each part of one draw."""
    if isinstance(law, _Copies):
        return _ranks(law.law)
    return tf.nest.map_structure(
        lambda batch, event: batch.rank + event.rank, law.batch_shape, law.event_shape
    )


def _before_rows(drawn: Any, ranks: Any) -> Any:
    """Draws whose last axis, of the W copies, is moved to where the distribution has it."""
    return tf.nest.map_structure(
        lambda part, rank: tf.experimental.numpy.moveaxis(part, -1, -rank), drawn, ranks
    )


def _num_before(drawn: Any, ranks: Any) -> int:
    """The number of axes of draws before those of one draw."""
    return int(tf.nest.flatten(drawn)[0].shape.rank - tf.nest.flatten(ranks)[0])


def _last_to_first(part: tf.Tensor) -> tf.Tensor:
    return tf.experimental.numpy.moveaxis(part, -1, 0)


def _counts(most: tf.Tensor, weight: tf.Tensor, rank: int) -> tf.Tensor:
    """Whether the k-th of W = ``most`` copies counts, [W, ..., N, 1], with 1 + ``rank`` axes."""
    shape = tf.concat([[-1], tf.ones([rank], tf.int32)], 0)
    return tf.reshape(tf.range(most, dtype=weight.dtype), shape) < weight


class Missing(OfBase, OutputwiseLikelihood):
    r"""
    A product over outputs; an output that was not observed is NaN in Y [N, P].

    A missing output adds nothing to the bound, and its site is 0. Under a kernel that mixes latent
    GPs the other outputs of the row predict it::

        model = AugmentedSVGP(kernel, Missing(StudentT()), Z, num_latent_gps=2)
        fit(model, (X, Y))  # Y [N, 2], NaN where missing
    """

    def __init__(
        self, base: AugmentedLikelihood, *, empty_rows: bool = False, **kwargs: Any
    ) -> None:
        """
        :param base: a likelihood that is a product over outputs, with no further columns of Y: a
            row that has them has one output, and may be left out if it is missing. Weights are
            given outside, ``Weighted(Missing(...))``.
        :param empty_rows: whether rows without any output are accepted. Such a row changes only
            the number of rows.
        :raises ValueError: for another base.
        """
        if not (isinstance(base, AugmentedLikelihood) and base.is_product) or base.given:
            raise ValueError(
                "Missing: base must be a product over outputs, each of one f and of one column of "
                f"Y, such as gpflow_aaci.likelihoods.StudentT. Found: {described(base)}."
            )
        super().__init__(**kwargs)
        self._take(base)
        self.empty_rows = empty_rows

    def _of_base(self, Y: TensorType) -> tf.Tensor:
        return self._filled(Y)[1]

    def _filled(self, Y: TensorType) -> tuple[tf.Tensor, tf.Tensor]:
        """Which outputs were observed, and Y with a stand-in for the others."""
        is_observed = ~tf.math.is_nan(Y)
        return is_observed, tf.where(is_observed, Y, self.base.stand_in(Y))

    def _where_observed(
        self,
        name: str,
        X: TensorType | None,
        marginals: Any,
        Y: TensorType,
        *,
        otherwise: float = 0.0,
    ) -> Any:
        """The base's value for observed outputs, and ``otherwise`` for missing ones."""
        is_observed, y = self._filled(Y)
        return _where(is_observed, getattr(self.base, name)(X, *marginals, y), otherwise)

    pointwise_bound = delegated("pointwise_bound", _where_observed)
    bound_slopes = delegated("bound_slopes", _where_observed)
    pointwise_log_prob = delegated("pointwise_log_prob", _where_observed)
    expected_log_prob = delegated("expected_log_prob", _where_observed)
    predictive_log_density = delegated("predictive_log_density", _where_observed)
    _cdf = delegated("_cdf", _where_observed, otherwise=np.nan)
    _log_survival = delegated("_log_survival", _where_observed, otherwise=np.nan)
    _predict_cdf = delegated("_predict_cdf", _where_observed, otherwise=np.nan)
    outcomes = of_base("outcomes")

    def auxiliary_law(
        self, X: TensorType | None, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tfp.distributions.Distribution:
        """The base's; the auxiliary variables of a missing output have no effect."""
        is_observed, y = self._filled(Y)
        Fmu, Fvar = _where(is_observed, (Fmu, Fvar))
        return self.base.auxiliary_law(X, Fmu, Fvar, y)

    def log_joint(
        self, X: TensorType | None, auxiliary: Any, F: TensorType, Y: TensorType
    ) -> tf.Tensor:
        is_observed, y = self._filled(Y)
        alone = self.full_conditional(X, F, Y).log_prob(auxiliary)
        return tf.where(is_observed, self.base.log_joint(X, auxiliary, F, y), alone)

    def site(self, X: TensorType | None, auxiliary: Any, Y: TensorType) -> Site:
        is_observed, y = self._filled(Y)
        return _where(is_observed, self.base.site(X, auxiliary, y))

    def check_observations(self, Y: tf.Tensor) -> Sequence[Check]:
        is_observed, y = self._filled(Y)
        is_empty = ~tf.reduce_any(is_observed, -1)
        message = "Y must have an observed output in every row, unless empty_rows=True."
        empty = Check(
            ~tf.reduce_any(is_empty) | self.empty_rows, message, lambda: tf.where(is_empty)[:10, 0]
        )
        return [empty, *self.base.check_observations(y)]


def _where(condition: tf.Tensor, values: Any, otherwise: float = 0.0) -> Any:
    """One tensor or several, with ``otherwise`` where the condition is not true."""
    return tf.nest.map_structure(
        lambda part: tf.where(condition, part, tf.cast(otherwise, part.dtype)), values
    )
