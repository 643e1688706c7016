"""Likelihoods whose factors are chosen by the data: missing outputs, and a part for each datum."""

import abc
from collections.abc import Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import AnyNDArray, MeanAndVariance, TensorType

from ...validation import Check, check_all
from ..base import AugmentedLikelihood, Site
from ..derived import delegated, described, of_base
from ..outputwise import OutputwiseLikelihood

NO_PART = (
    "likelihood must be one part of {0} for quantiles and draws at new inputs, as a column of Y "
    "chooses the part. Found: {0}. Set model.likelihood to model.likelihood.likelihoods[k], for "
    "part k."
)


class Factor(NamedTuple):
    """One p_k(y_k|f)^{w_k(Y)}: the likelihood, its Y, and w, numbers or whether it counts."""

    part: AugmentedLikelihood
    Y: tf.Tensor
    weight: tf.Tensor  # [..., N, 1], or [..., N, P] where each output has its own


def weighted_sum(
    self: "PerDatum", name: str, X: TensorType | None, marginals: Any, Y: TensorType
) -> Any:
    """Σ_k w_k times the part's value; what does not count adds 0, whatever its value."""
    terms = []
    for part, y, weight in self._factors(Y):
        value = getattr(part, name)(X, *marginals, y)
        terms.append(tf.nest.map_structure(lambda v, w=weight: _times(w, v, name), value))
    return tf.nest.map_structure(lambda *values: sum(values), *terms)


_NUM_AXES = {"bound": 1, "_variational_expectations": 1, "coupling": 3}  # from N on; others 2


def _times(weight: tf.Tensor, value: tf.Tensor, name: str) -> tf.Tensor:
    if weight.dtype == tf.bool:
        return where(weight, value)
    ones = [1] * (_NUM_AXES.get(name, 2) - 1)
    return tf.reshape(weight, tf.concat([tf.shape(weight)[:-1], ones], 0)) * value


def where(condition: tf.Tensor, values: Any) -> Any:
    """One tensor or several, with 0 where the condition is not true."""
    return tf.nest.map_structure(
        lambda part: tf.where(condition, part, tf.zeros([], part.dtype)), values
    )


class PerDatum(AugmentedLikelihood, abc.ABC):
    r"""Π_k p_k(y_k|f)^{w_k(Y)}: the columns of Y say how often each part counts, and its y."""

    @abc.abstractmethod
    def _factors(self, Y: TensorType) -> list[Factor]:
        """The parts; where one does not count, its Y is one that it accepts."""

    pointwise_bound = bound_slopes = delegated(weighted_sum)
    pointwise_log_prob = predictive_log_density = delegated(weighted_sum)

    def _of_y(self, name: str, X: TensorType | None, marginals: Any, Y: TensorType) -> Any:
        """
        The value of the part that counts, which no number multiplies; NaN if there is none.

        It is that of the public method, which knows the part's smallest y.
        """
        taken: Any = np.nan
        for part, y, weight in self._factors(Y):
            value = getattr(part, name.removeprefix("_"))(X, *marginals, y)
            is_own = weight if weight.dtype == tf.bool else tf.ones_like(weight, tf.bool)
            taken = tf.where(is_own, value, tf.cast(taken, value.dtype))
        return taken

    _cdf = _log_survival = _predict_cdf = delegated(_of_y)

    def must_be_finite(self, Y: tf.Tensor) -> tf.Tensor:
        return tf.concat([part.must_be_finite(y) for part, y, _ in self._factors(Y)], -1)

    def check_observations(self, Y: tf.Tensor) -> Sequence[Check]:
        return [check for part, y, _ in self._factors(Y) for check in part.check_observations(y)]


class OfBase(PerDatum, abc.ABC):
    """A product with one factor, whose support, moments and draws are those of its base."""

    base: AugmentedLikelihood

    def _take(self, base: AugmentedLikelihood) -> None:
        self.base = base
        of_base = "is_augmented", "is_density", "labels", "lowest", "in_turn", "row_cost", "couples"
        for name in of_base:
            setattr(self, name, getattr(base, name))

    in_support = draw_y = _conditional_mean = _conditional_variance = of_base()
    _predict_mean_and_var = of_base()

    def draw_y_like(self, X: TensorType, F: TensorType, Y: TensorType, seed: Any) -> tf.Tensor:
        return self.base.draw_y_like(X, F, self._factors(Y)[0].Y, seed)


def _laws(
    factors: Sequence[Factor], X: TensorType | None, marginals: Sequence[TensorType]
) -> list[tfp.distributions.Distribution]:
    laws = []
    for part, y, weight in factors:
        Fmu, Fvar = where(weight, tuple(marginals))
        laws.append(part.auxiliary_law(X, Fmu, Fvar, y))
    return laws


class Chosen(PerDatum, OutputwiseLikelihood, abc.ABC):
    """
    A product over outputs, to each of which one part applies or none: every w is 0 or 1.

    Auxiliary variables of a part that does not apply have no effect; they are drawn at f = 0.
    """

    def auxiliary_law(
        self, X: TensorType | None, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tfp.distributions.Distribution:
        """``omega_k`` of every part k, [..., N, P]."""
        laws = _laws(self._factors(Y), X, [Fmu, Fvar])
        return tfp.distributions.JointDistributionNamed(
            {f"omega_{k}": law for k, law in enumerate(laws)}
        )

    def _of_parts(self, auxiliary: Any) -> list:
        """The auxiliary variables of every part."""
        return [auxiliary[f"omega_{k}"] for k in range(len(auxiliary))]

    def log_joint(
        self, X: TensorType | None, auxiliary: Any, F: TensorType, Y: TensorType
    ) -> tf.Tensor:
        total: Any = 0.0
        factors, parts = self._factors(Y), self._of_parts(auxiliary)
        laws = _laws(factors, X, [F, tf.zeros_like(F)])
        for (part, y, weight), law, of_part in zip(factors, laws, parts, strict=True):
            joint = part.log_joint(X, of_part, F, y)
            total += tf.where(weight, joint, law.log_prob(of_part))
        return total

    def site(self, X: TensorType | None, auxiliary: Any, Y: TensorType) -> Site:
        parts = zip(self._factors(Y), self._of_parts(auxiliary), strict=True)
        sites = [where(weight, part.site(X, of_part, y)) for (part, y, weight), of_part in parts]
        potentials, precisions = zip(*sites, strict=True)
        return sum(potentials), sum(precisions)  # broadcast: a potential may be the data's alone


class Missing(OfBase, Chosen):
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

    def _factors(self, Y: TensorType) -> list[Factor]:
        is_observed = ~tf.math.is_nan(Y)
        y = tf.where(is_observed, Y, self.base.stand_in(Y))
        return [Factor(self.base, y, is_observed)]

    expected_log_prob = delegated(weighted_sum)
    outcomes = of_base()

    def auxiliary_law(
        self, X: TensorType | None, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tfp.distributions.Distribution:
        """The base's [..., N, P]."""
        return _laws(self._factors(Y), X, [Fmu, Fvar])[0]

    def _of_parts(self, auxiliary: Any) -> list:
        return [auxiliary]

    def check_observations(self, Y: tf.Tensor) -> Sequence[Check]:
        is_empty = tf.reduce_all(tf.math.is_nan(Y), -1)
        message = "Y must have an observed output in every row, unless empty_rows=True."
        empty = Check(
            ~tf.reduce_any(is_empty) | self.empty_rows, message, lambda: tf.where(is_empty)[:10, 0]
        )
        return [empty, *super().check_observations(Y)]


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


class Switched(Chosen):
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

    def _rows_of(self, part: AugmentedLikelihood, Y: TensorType) -> tf.Tensor:
        """The columns of Y that the part takes."""
        return Y[..., : part.num_given - self.num_given]

    def _factors(self, Y: TensorType) -> list[Factor]:
        factors = []
        for k, part in enumerate(self.likelihoods):
            is_own, rows = tf.equal(Y[..., -1:], tf.cast(k, Y.dtype)), self._rows_of(part, Y)
            factors.append(Factor(part, tf.where(is_own, rows, part.stand_in(rows)), is_own))
        return factors

    def stand_in(self, Y: TensorType) -> tf.Tensor:
        first = self.likelihoods[0]
        of_first, unused = first.stand_in(self._rows_of(first, Y)), self.num_given - first.num_given
        return tf.concat([of_first, tf.zeros_like(Y[..., -unused:])], -1)

    def must_be_finite(self, Y: tf.Tensor) -> tf.Tensor:
        return tf.concat([super().must_be_finite(Y), Y[..., -1:]], -1)

    def expected_log_prob(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        """The sums over columns [..., N, 1]; each part uses its own ``quadrature``."""
        of_rows = (
            where(weight, part._variational_expectations(X, Fmu, Fvar, y)[..., None])
            for part, y, weight in self._factors(Y)
        )
        return sum(of_rows)

    def _predict_mean_and_var(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType
    ) -> MeanAndVariance:
        """The moments of all parts, in adjacent columns, as GPflow returns them."""
        moments = [part._predict_mean_and_var(X, Fmu, Fvar) for part in self.likelihoods]
        means, variances = zip(*moments, strict=True)
        return tf.concat(means, -1), tf.concat(variances, -1)

    def draw_y_like(self, X: TensorType, F: TensorType, Y: TensorType, seed: Any) -> tf.Tensor:
        drawn = (where(w, part.draw_y_like(X, F, y, seed)) for part, y, w in self._factors(Y))
        return sum(drawn)

    def next_below(self, Y: AnyNDArray) -> AnyNDArray:
        return next_below_by_part(self.likelihoods, Y, self.num_given)

    def as_observed(self, y: TensorType) -> tf.Tensor:
        raise ValueError(NO_PART.format(type(self).__name__))

    def check_observations(self, Y: tf.Tensor) -> Sequence[Check]:
        return [ends_in_an_index(Y, len(self.likelihoods)), *super().check_observations(Y)]
