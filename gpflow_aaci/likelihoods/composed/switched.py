"""A likelihood that is chosen for every datum."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import AnyNDArray, MeanAndVariance, TensorType

from ...validation import Check, check_all
from ..base import Site, delegated
from ..outputwise import OutputwiseLikelihood

_STAND_IN = 1.0  # a y that every likelihood accepts, for data that belong to another part


def ends_in_an_index(Y: tf.Tensor, number: int) -> Check:
    """Check that the last column of Y holds the index of one of ``number`` parts."""
    index = Y[..., -1:]
    right = tf.reduce_any(tf.equal(index, tf.range(number, dtype=Y.dtype)), -1, keepdims=True)
    message = f"Y must end in a column of the parts' indices, 0 to {number - 1}."
    return check_all(index, right, message)


class Switched(OutputwiseLikelihood):
    """
    GPflow's ``SwitchedLikelihood``, with parts that have an augmentation.

    The last column of Y [N, P + 1] holds the index of the part that a datum belongs to. Every part
    is evaluated at every datum, with a stand-in for the y of other parts, and the result of the
    right part is taken.
    """

    given = ("part",)

    def __init__(self, likelihoods: Sequence[OutputwiseLikelihood], **kwargs: Any) -> None:
        """
        :param likelihoods: the parts, each with one column of Y for every output.
        """
        super().__init__(**kwargs)
        self.likelihoods = list(likelihoods)

    def _own(self, k: int, Y: TensorType) -> tuple[tf.Tensor, tf.Tensor]:
        """Whether a datum belongs to part k [..., N, 1], and the y at which part k is evaluated."""
        is_own = tf.equal(Y[..., -1:], tf.cast(k, Y.dtype))
        return is_own, tf.where(is_own, Y[..., :-1], tf.cast(_STAND_IN, Y.dtype))

    def _taken(self, of: Callable[[OutputwiseLikelihood, tf.Tensor], Any], Y: TensorType) -> Any:
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
        below = Y.copy()
        for k, part in enumerate(self.likelihoods):
            own = Y[..., -1] == k
            below[own, :-1] = part.next_below(Y[own, :-1])
        return below

    def as_observed(self, y: TensorType) -> tf.Tensor:
        raise ValueError(
            "likelihood must be one part of Switched for quantiles and draws at new inputs, as a "
            "column of Y chooses the part. Found: Switched. Set "
            "model.likelihood to model.likelihood.likelihoods[k], for part k."
        )

    def check_observations(self, Y: tf.Tensor) -> Sequence[Check]:
        checks = [ends_in_an_index(Y, len(self.likelihoods))]
        for k, part in enumerate(self.likelihoods):
            checks += part.check_observations(self._own(k, Y)[1])
        return checks
