"""A likelihood of data with weights, p(y|f)^w, for Gibbs sampling with w copies of each datum."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import AnyNDArray, TensorType

from ...validation import Check, check_all, require
from ..base import AugmentedLikelihood, Site
from ..derived import delegated
from ..observations import check_column
from .per_datum import Factor, OfBase, weighted_sum, where


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

    def _factors(self, Y: TensorType) -> list[Factor]:
        return [Factor(self.base, Y[..., :-1], Y[..., -1:])]

    bound = coupling = _variational_expectations = expected_log_prob = delegated(weighted_sum)

    def num_observed(self, num_outputs: int) -> int:
        return self.base.num_observed(num_outputs) + 1

    def num_outputs(self, num_observed: int) -> int:
        return self.base.num_outputs(num_observed - 1)

    # ---- Gibbs: auxiliary variables for every copy of a datum ----

    def auxiliary_law(
        self, X: TensorType | None, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tfp.distributions.Distribution:
        """
        W copies of the base's distribution, along the last axis of a draw; W is the largest weight.

        Copies beyond the weight of a datum have no effect; they are drawn at f = 0.

        :raises ValueError: for weights that are not whole numbers.
        """
        _, y, weight = self._factors(Y)[0]
        message = "Y must hold weights that are whole numbers for Gibbs sampling."
        are_whole = check_all(weight, tf.equal(weight, tf.round(weight)), message)
        with tf.control_dependencies([require([are_whole])]):
            most = tf.cast(tf.reduce_max(weight), tf.int32)
        rank = Fmu.shape.rank
        Fmu, Fvar = where(_counts(most, weight, rank), (Fmu, Fvar))
        return _Copies(self.base.auxiliary_law(X, Fmu, Fvar, y))

    def log_joint(
        self, X: TensorType | None, auxiliary: Any, F: TensorType, Y: TensorType
    ) -> tf.Tensor:
        _, *columns = self._factors(Y)[0]
        y, weight = (part[..., None, :, :] for part in columns)
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
        _, y, weight = self._factors(Y)[0]
        copies = tf.nest.map_structure(_last_to_first, auxiliary)
        potential, precision = self.base.site(X, copies, y)
        counts = _counts(tf.shape(precision)[0], weight, precision.shape.rank - 1)
        sites = where(counts, (potential + tf.zeros_like(precision), precision))
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
        return [check_column(Y, -1, "weight"), *super().check_observations(Y)]


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
