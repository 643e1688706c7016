"""A likelihood that is chosen for every datum."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import zip_longest
from typing import Any

import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import AnyNDArray, MeanAndVariance, TensorType

from ...validation import Check, check_all
from ..base import AugmentedLikelihood, Site, delegated, described
from ..outputwise import OutputwiseLikelihood

NO_PART = (
    "likelihood must be one part of {0} for quantiles and draws at new inputs, as a column of Y "
    "chooses the part. Found: {0}. Set model.likelihood to model.likelihood.likelihoods[k], for "
    "part k."
)


def ends_in_an_index(Y: tf.Tensor, number: int) -> Check:
    """Check that the last column of Y holds the index of one of ``number`` parts."""
    index = Y[..., -1:]
    right = tf.reduce_any(tf.equal(index, tf.range(number, dtype=Y.dtype)), -1, keepdims=True)
    message = f"Y must end in a column of the parts' indices, 0 to {number - 1}."
    return check_all(index, right, message)


def next_below_by_part(
    parts: Sequence[AugmentedLikelihood], Y: AnyNDArray, num_given: int
) -> AnyNDArray:
    """
    ``next_below`` of the part that each row of Y belongs to.

    :param num_given: the number of columns of Y after y; a part may take fewer.
    """
    below = Y.copy()
    for k, part in enumerate(parts):
        own, columns = Y[..., -1] == k, slice(None, part.num_given - num_given)
        below[own, columns] = part.next_below(Y[own, columns])
    return below


class Switched(OutputwiseLikelihood):
    """
    GPflow's ``SwitchedLikelihood``, with parts that have an augmentation.

    The last column of Y holds the index of the part that a datum belongs to, and before it is the
    row of that part: y, and the further columns if there are any, such as an exposure. A part with
    fewer columns than others leaves the last of them unused, and they may hold anything. Every part
    is evaluated at every datum, with a stand-in for the rows of other parts, and the result of the
    right part is taken::

        likelihood = Switched([Poisson(9.0, with_exposure=True), StudentT()])
        Y = [[3.0, 0.5, 0.0], [1.2, 0.0, 1.0]]  # 3 events in half a year; 1.2, of StudentT
    """

    def __init__(self, likelihoods: Sequence[AugmentedLikelihood], **kwargs: Any) -> None:
        """
        :param likelihoods: the parts, each a product over outputs, of one f and one y. Weights are
            given outside, ``Weighted(Switched(...))``.
        :raises ValueError: for other parts.
        """
        super().__init__(**kwargs)
        self.likelihoods = list(likelihoods)
        for part in self.likelihoods:
            if not (isinstance(part, AugmentedLikelihood) and part.is_product):
                raise ValueError(
                    "Switched: likelihoods must be products over outputs, each of one f and of one "
                    f"y, such as gpflow_aaci.likelihoods.StudentT. Found: {described(part)}."
                )
        columns = zip_longest(*(part.given for part in self.likelihoods))
        names = (" or ".join(dict.fromkeys(filter(None, column))) for column in columns)
        self.given = (*names, "part")
        if self.num_given > 1:
            self.latent_dim = 1

    def _num_unused(self, part: AugmentedLikelihood) -> int:
        """The number of the last columns of Y that the part does not take."""
        return self.num_given - part.num_given

    def _own(self, k: int, Y: TensorType) -> tuple[tf.Tensor, tf.Tensor]:
        """Whether a datum belongs to part k [..., N, 1], and the Y at which part k is evaluated."""
        part = self.likelihoods[k]
        is_own, rows = tf.equal(Y[..., -1:], tf.cast(k, Y.dtype)), Y[..., : -self._num_unused(part)]
        return is_own, tf.where(is_own, rows, part.stand_in(rows))

    def stand_in(self, Y: TensorType) -> tf.Tensor:
        unused = self._num_unused(self.likelihoods[0])
        of_first = self.likelihoods[0].stand_in(Y[..., :-unused])
        return tf.concat([of_first, tf.zeros_like(Y[..., -unused:])], -1)

    def must_be_finite(self, Y: tf.Tensor) -> tf.Tensor:
        rows = (self._own(k, Y)[1] for k in range(len(self.likelihoods)))
        parts = zip(self.likelihoods, rows, strict=True)
        return tf.concat([*(part.must_be_finite(row) for part, row in parts), Y[..., -1:]], -1)

    def _taken(self, of: Callable[[AugmentedLikelihood, tf.Tensor], Any], Y: TensorType) -> Any:
        """``of(part, y)`` [..., N, P], with the part that each datum belongs to."""
        taken = of(self.likelihoods[0], self._own(0, Y)[1])
        for k, part in enumerate(self.likelihoods[1:], 1):
            is_own, y = self._own(k, Y)
            taken = tf.nest.map_structure(partial(tf.where, is_own), of(part, y), taken)
        return taken

    def _of_own_part(self, name: str, X: TensorType, marginals: Any, Y: TensorType) -> Any:
        return self._taken(lambda part, y: getattr(part, name)(X, *marginals, y), Y)

    pointwise_bound = delegated("pointwise_bound", _of_own_part)
    bound_slopes = delegated("bound_slopes", _of_own_part)
    pointwise_log_prob = delegated("pointwise_log_prob", _of_own_part)
    predictive_log_density = delegated("predictive_log_density", _of_own_part)

    def _of_own_law(self, name: str, X: TensorType, marginals: Any, Y: TensorType) -> Any:
        """As ``_of_own_part``, by the public method, which knows the part's smallest y."""
        return self._of_own_part(name.removeprefix("_"), X, marginals, Y)

    _cdf = delegated("_cdf", _of_own_law)
    _log_survival = delegated("_log_survival", _of_own_law)
    _predict_cdf = delegated("_predict_cdf", _of_own_law)

    def expected_log_prob(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        """The sums over columns [..., N, 1]; each part uses its own ``quadrature``."""
        return self._taken(
            lambda part, y: part._variational_expectations(X, Fmu, Fvar, y)[..., None], Y
        )

    def auxiliary_law(
        self, X: TensorType | None, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tfp.distributions.Distribution:
        """``omega_k`` of every part k, [..., N, P]; it has no effect on data of other parts."""
        return tfp.distributions.JointDistributionNamed(
            {f"omega_{k}": self._law(k, X, [Fmu, Fvar], Y) for k in range(len(self.likelihoods))}
        )

    def _law(
        self, k: int, X: TensorType | None, marginals: Sequence[TensorType], Y: TensorType
    ) -> tfp.distributions.Distribution:
        """The distribution of part k; data of other parts get its distribution at f = 0."""
        is_own, y = self._own(k, Y)
        Fmu, Fvar = (tf.where(is_own, part, tf.zeros_like(part)) for part in marginals)
        return self.likelihoods[k].auxiliary_law(X, Fmu, Fvar, y)

    def log_joint(
        self, X: TensorType | None, auxiliary: Any, F: TensorType, Y: TensorType
    ) -> tf.Tensor:
        total: Any = 0.0
        for k, part in enumerate(self.likelihoods):
            is_own, y = self._own(k, Y)
            omega = auxiliary[f"omega_{k}"]
            joint = part.log_joint(X, omega, F, y)
            law = self._law(k, X, [F, tf.zeros_like(F)], Y)
            total += tf.where(is_own, joint, law.log_prob(omega))
        return total

    def site(self, X: TensorType | None, auxiliary: Any, Y: TensorType) -> Site:
        omegas = iter(auxiliary[f"omega_{k}"] for k in range(len(self.likelihoods)))
        return self._taken(lambda part, y: part.site(X, next(omegas), y), Y)

    def _predict_mean_and_var(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType
    ) -> MeanAndVariance:
        """The moments of all parts, in adjacent columns, as GPflow returns them."""
        moments = [part._predict_mean_and_var(X, Fmu, Fvar) for part in self.likelihoods]
        means, variances = zip(*moments, strict=True)
        return tf.concat(means, -1), tf.concat(variances, -1)

    def draw_y_like(self, X: TensorType, F: TensorType, Y: TensorType, seed: Any) -> tf.Tensor:
        return self._taken(lambda part, y: part.draw_y_like(X, F, y, seed), Y)

    def next_below(self, Y: AnyNDArray) -> AnyNDArray:
        return next_below_by_part(self.likelihoods, Y, self.num_given)

    def as_observed(self, y: TensorType) -> tf.Tensor:
        raise ValueError(NO_PART.format(type(self).__name__))

    def check_observations(self, Y: tf.Tensor) -> Sequence[Check]:
        checks = [ends_in_an_index(Y, len(self.likelihoods))]
        for k, part in enumerate(self.likelihoods):
            checks += part.check_observations(self._own(k, Y)[1])
        return checks
