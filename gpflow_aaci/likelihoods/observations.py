"""What a row of Y may hold: the kinds of y, the further columns, and what follows from both."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray, TensorType
from typing_extensions import Self

from ..validation import Check, check_all, check_finite


@dataclass(frozen=True)
class Kind:
    """
    What one y may be: ``REAL``, ``POSITIVE``, ``UNIT_INTERVAL``, ``COUNTS``, ``WHOLE`` (counts and
    negative numbers) or ``SIGNS`` of this module, or labels by :func:`labels_from_0`. A likelihood
    says so in its class; for ``COUNTS`` and ``WHOLE`` it also defines ``outcomes``::

        class MyCounts(SuperGaussianLikelihood):
            kind_of_y = COUNTS
    """

    check: Callable[[tf.Tensor, str, str], Check] | None = None
    """
    The check of y [..., N, P], given what it and the likelihood are called; None if y is real.
    """

    labels: Sequence[float] | AnyNDArray | None = None
    lowest: float = -np.inf
    of_real: Callable[[tf.Tensor], tf.Tensor] = tf.identity
    """An increasing function of real numbers to possible y, if y is real."""


def _positive(y: tf.Tensor, name: str, owner: str) -> Check:
    return check_all(y, y > 0.0, f"{name} must be positive for {owner}.")


def _between_0_and_1(y: tf.Tensor, name: str, owner: str) -> Check:
    return check_all(y, (y > 0.0) & (y < 1.0), f"{name} must be above 0 and below 1 for {owner}.")


def _counts(y: tf.Tensor, name: str, owner: str) -> Check:
    message = f"{name} must hold whole numbers from 0 up for {owner}."
    return check_all(y, _are_whole(y), message)


def _whole(y: tf.Tensor, name: str, owner: str) -> Check:
    return check_all(y, tf.equal(y, tf.round(y)), f"{name} must hold whole numbers for {owner}.")


def _are_whole(values: tf.Tensor) -> tf.Tensor:
    return (values >= 0.0) & tf.equal(values, tf.round(values))


def _signs(y: tf.Tensor, name: str, owner: str) -> Check:
    """Labels of one of the two codings."""
    is_zero, is_minus = tf.equal(y, 0.0), tf.equal(y, -1.0)
    known = tf.reduce_all(is_zero | is_minus | tf.equal(y, 1.0))
    mixed = tf.reduce_any(is_zero) & tf.reduce_any(is_minus)
    message = f"{name} must hold labels of {owner}: {{0, 1}} or {{-1, 1}}, not both."
    return Check(known & ~mixed, message, lambda: tf.unique(tf.reshape(y, [-1]))[0][:10])


REAL = Kind()
POSITIVE = Kind(_positive, lowest=0.0, of_real=tf.math.softplus)
UNIT_INTERVAL = Kind(_between_0_and_1, lowest=0.0, of_real=tf.sigmoid)
COUNTS = Kind(_counts, lowest=0.0)
WHOLE = Kind(_whole)
SIGNS = Kind(_signs, labels=(-1.0, 1.0), lowest=-1.0)


def labels_from_0(number: int, highest: str) -> Kind:
    """
    Labels from 0 to ``number`` − 1.

    :param highest: a description of the highest label, for the error message.
    """

    def check(y: tf.Tensor, name: str, owner: str) -> Check:
        is_label = _are_whole(y) & (float(number - 1) >= y)
        return check_all(
            y, is_label, f"{name} must hold labels from 0 to {highest} = {number - 1}."
        )

    return Kind(check, labels=np.arange(float(number)), lowest=0.0)


@dataclass(frozen=True)
class Column:
    """A column of Y after those of y."""

    title: str
    rule: str
    is_accepted: Callable[[tf.Tensor], tf.Tensor]
    of_predicted: float = 1.0
    """The value for a predicted y, if no other is asked for."""
    may_be_asked: bool = True
    """Whether there is a law of a predicted y at other values."""


def are_flags(values: tf.Tensor) -> tf.Tensor:
    """Which values are 0 or 1."""
    return tf.equal(values, 0.0) | tf.equal(values, 1.0)


COLUMNS = {
    "exposure": Column(
        "The exposure",
        "must be positive: leave rows without exposure out, as they say nothing",
        lambda value: value > 0.0,
    ),
    "is_observed": Column(
        "Whether it is observed", "must be 0 or 1", are_flags, may_be_asked=False
    ),
    "noise_variance": Column(
        "The noise variance", "must not be negative", lambda value: value >= 0.0, of_predicted=0.0
    ),
    "trials": Column("The number of trials", "must be a whole number from 0 up", _are_whole),
    "weight": Column(
        "The weight",
        "must be finite and not negative",
        lambda value: (value >= 0.0) & tf.math.is_finite(value),
        may_be_asked=False,
    ),
}
"""The further columns of Y, by their names in ``given``."""


def check_column(Y: tf.Tensor, at: int, name: str) -> Check:
    """
    Check one of the ``COLUMNS``.

    :param at: its place in Y, counted from the end: -1 is the last.
    """
    column, values = COLUMNS[name], Y[..., at : at + 1 or None]
    number = "a column" if Y.shape[-1] is None else f"column {Y.shape[-1] + at + 1}"
    message = f"{column.title}, {number} of Y, {column.rule}."
    return check_all(values, column.is_accepted(values), message)


class _OfKind:
    """An attribute of ``kind_of_y``, for a likelihood that has none of the same name itself."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, likelihood: Any, owner: type | None = None) -> Any:
        return self if likelihood is None else getattr(likelihood.kind_of_y, self._name)


def is_any_real(likelihood: Any) -> bool:
    """Whether y is real, and may be any real number."""
    return bool(np.isneginf(likelihood.lowest)) and likelihood.outcomes() is None


class Observations:
    """The part of a likelihood that knows what Y may hold."""

    latent_dim: int | None
    observation_dim: int | None

    kind_of_y: Kind = REAL
    """What one y may be. Default: any real number."""

    labels: Sequence[float] | AnyNDArray | None = _OfKind()
    """The values that y takes; None if y is real or a count."""

    lowest: float = _OfKind()  # type: ignore[assignment]
    """The smallest possible y: P(y' ≤ y) is 0 below it. The method ``_cdf`` need not say so."""

    given: Sequence[str] = ()
    """
    What each row brings along beside y: the names of these columns of Y, which follow the columns
    of y. Examples are the trials of a binomial and the part of a ``Switched`` likelihood.
    :meth:`as_observed` sets them for a predicted y.
    """

    _given_of_predicted: TensorType | None = None

    is_interval: bool = False
    """Whether y and the further column of Y are two ends, both of which ``Warped`` transforms."""

    @property
    def num_given(self) -> int:
        """The number of columns of Y that are not y."""
        return len(self.given)

    def response(self, Y: TensorType) -> tf.Tensor:
        """The columns of y in Y."""
        return Y[..., : -self.num_given] if self.num_given else Y

    def with_response(self, y: TensorType, Y: TensorType) -> tf.Tensor:
        """The rows of Y with other columns of y, and with the same further columns."""
        return tf.concat([y, Y[..., -self.num_given :]], -1) if self.num_given else y

    def as_observed(self, y: TensorType) -> tf.Tensor:
        """
        The rows of Y [..., P] for predicted y; for a binomial y, a column of one trial is added.

        The further columns are as in ``COLUMNS``, or as :meth:`with_given` has them.

        :raises ValueError: if the meaning of y depends on another column of Y.
        """
        if not self.given:
            return y
        of_predicted = self._given_of_predicted
        if of_predicted is None:
            known = [COLUMNS[name] for name in self.given if name in COLUMNS]
            of_predicted = [column.of_predicted for column in known]
        one = tf.ones_like(y[..., :1])
        return tf.concat([y, one * tf.cast(of_predicted, one.dtype)], -1)

    def with_given(self, given: TensorType) -> Self:
        """
        This likelihood with other further columns of Y for a predicted y; it shares its Parameters.

        :param given: [N, G] or [G], in the order of :attr:`given`.
        """
        other = copy.copy(self)  # ``vars``, as TensorFlow would note a new part in both
        vars(other)["_given_of_predicted"] = given
        for name, part in vars(self).items():
            if isinstance(part, Observations) and part.given:
                vars(other)[name] = part.with_given(given[..., : part.num_given])
        return other

    def stand_in(self, Y: TensorType) -> tf.Tensor:
        """Rows that are possible, of the shape of Y, in place of rows that were not observed."""
        return self.as_observed(self.in_support(tf.ones_like(self.response(Y))))

    def num_observed(self, num_outputs: int) -> int:
        """The number of columns of Y for this number of columns of f."""
        num_y = num_outputs if self.observation_dim is None else self.observation_dim
        return num_y + self.num_given

    def num_outputs(self, num_observed: int) -> int:
        """The number of columns of f for this number of columns of Y."""
        return num_observed - self.num_given if self.latent_dim is None else self.latent_dim

    def outcomes(self) -> AnyNDArray | None:
        """
        All possible rows [K, P] of Y, without improbable counts; None if y is real.

        They have all columns of Y, at one value of those after y. A y that has outcomes and no
        labels is a whole number, whose quantiles are searched among all whole numbers.
        """
        return None if self.labels is None else np.asarray(self.labels, dtype=float)[:, None]

    def next_below(self, Y: AnyNDArray) -> AnyNDArray:
        """
        Y [..., N, P] such that P(y' < y) is the distribution function there.

        A real y is unchanged. A discrete y is replaced by the next smaller value; the smallest one
        by a smaller number, which :meth:`checks` refuse. If only an interval is known, y is
        replaced by its lower end.
        """
        y = self.response(Y)
        below = y
        if self.labels is not None:
            labels = np.sort(np.asarray(self.labels, Y.dtype))
            at = np.searchsorted(labels, y, side="right") - 1  # a binary 0 stands for −1
            below = np.r_[labels[0] - 1.0, labels][at]
        elif self.outcomes() is not None:  # whole numbers
            below = y - 1.0
        return np.concatenate([below, Y[..., y.shape[-1] :]], -1)

    def in_support(self, z: TensorType) -> tf.Tensor:
        """Map real z to possible values of y by an increasing function; for a real y only."""
        return self.kind_of_y.of_real(z)

    def must_be_finite(self, Y: tf.Tensor) -> tf.Tensor:
        """The part of Y that must be finite. Default: all of Y."""
        return Y

    def check_observations(self, Y: tf.Tensor) -> Sequence[Check]:
        """What Y must satisfy beyond being finite: its kind of y, and the columns after it."""
        called, check = "Column 1 of Y" if self.given else "Y", self.kind_of_y.check
        of_y = [] if check is None else [check(self.response(Y), called, type(self).__name__)]
        given = enumerate(self.given, -self.num_given)
        return [*of_y, *(check_column(Y, at, name) for at, name in given if name in COLUMNS)]

    def checks(self, Y: tf.Tensor, name: str = "Y") -> Sequence[Check]:
        """All checks of Y, which error messages call ``name``."""
        return [check_finite(name, self.must_be_finite(Y)), *self.check_observations(Y)]
