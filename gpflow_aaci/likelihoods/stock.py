"""GPflow's likelihoods without an augmentation, with the methods that predictions need."""

import abc
import copy
import types
from collections.abc import Sequence
from typing import Any, cast

import gpflow
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import AnyNDArray, TensorType
from gpflow.likelihoods import Likelihood, ScalarLikelihood

from ..special import log_igammac
from ..validation import Check
from .base import AugmentedLikelihood
from .classes.binary import drawn_label
from .classes.labels import LabelLikelihood
from .composed.per_datum import NO_PART, ends_in_an_index, next_below_by_part
from .derived import delegated
from .observations import COUNTS, POSITIVE, SIGNS, UNIT_INTERVAL
from .unaugmented import StockLikelihood, by_rows

tfd = tfp.distributions


class _WithLaw(StockLikelihood, abc.ABC):
    """A likelihood whose p(y|f) is one of TFP's distributions, with its cdf and its draws."""

    @abc.abstractmethod
    def law(self, X: TensorType, F: TensorType) -> tfp.distributions.Distribution:
        """p(y|f), of batch shape [..., N, P]."""

    def _cdf(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        return self.law(X, F).cdf(Y)

    def _log_survival(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        return self.law(X, F).log_survival_function(Y)

    def draw_y(self, F: TensorType, seed: Any) -> tf.Tensor:
        """A draw at X = 0, for a likelihood that does not depend on X."""
        return self.law(tf.zeros_like(F[..., :1]), F).sample(seed=seed)

    def draw_y_like(self, X: TensorType, F: TensorType, Y: TensorType, seed: Any) -> tf.Tensor:
        return self.law(X, F).sample(seed=seed)


class _Positive(_WithLaw):
    """A likelihood of positive y."""

    kind_of_y = POSITIVE


class Exponential(_Positive, gpflow.likelihoods.Exponential):
    """GPflow's ``Exponential``, with mean ``invlink(f)``."""

    def law(self, X: TensorType, F: TensorType) -> tfp.distributions.Distribution:
        return tfd.Exponential(1.0 / self.invlink(F))


class Gamma(_Positive, gpflow.likelihoods.Gamma):
    """GPflow's ``Gamma``, with scale ``invlink(f)``."""

    def law(self, X: TensorType, F: TensorType) -> tfp.distributions.Distribution:
        scale = self.invlink(F)
        return tfd.Gamma(self._shape(X) + tf.zeros_like(scale), 1.0 / scale)

    def _log_survival(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        law = self.law(X, F)
        return log_igammac(law.concentration, law.rate * Y)


class Beta(_WithLaw, gpflow.likelihoods.Beta):
    """GPflow's ``Beta``, with mean ``invlink(f)``."""

    kind_of_y = UNIT_INTERVAL

    def law(self, X: TensorType, F: TensorType) -> tfp.distributions.Distribution:
        mean, scale = self.invlink(F), self._scale(X)
        return tfd.Beta(mean * scale, (1.0 - mean) * scale)

    def _log_survival(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        """That of the smaller 1 − y, whose Beta distribution has the parameters exchanged."""
        law = self.law(X, F)
        mirrored = tfd.Beta(law.concentration0, law.concentration1)
        return mirrored.log_cdf(1.0 - Y)


class Poisson(_WithLaw, gpflow.likelihoods.Poisson):
    """GPflow's ``Poisson``, with rate ``invlink(f)`` times ``binsize``."""

    kind_of_y = COUNTS

    def law(self, X: TensorType, F: TensorType) -> tfp.distributions.Distribution:
        return tfd.Poisson(self._conditional_mean(X, F))

    def outcomes(self) -> AnyNDArray:
        """Enough counts for rates up to 200."""
        return np.arange(400.0)[:, None]


class Bernoulli(StockLikelihood, gpflow.likelihoods.Bernoulli):
    """GPflow's ``Bernoulli`` with an ``invlink`` that has no augmentation."""

    kind_of_y = SIGNS

    def draw_y(self, F: TensorType, seed: Any) -> tf.Tensor:
        return drawn_label(self.invlink(F), seed)


class MultiClass(LabelLikelihood, StockLikelihood, gpflow.likelihoods.MultiClass):
    """GPflow's ``MultiClass``, the robust maximum."""

    couples = True

    def log_shares(self, F: TensorType) -> tf.Tensor:
        return by_rows(lambda F: tf.math.log(self.invlink(F)), F)

    def log_expected_shares(self, Fmu: TensorType, Fvar: TensorType) -> tf.Tensor:
        of_gpflow = gpflow.likelihoods.MultiClass._predict_mean_and_var
        return by_rows(lambda m, v: tf.math.log(of_gpflow(self, m, m, v)[0]), Fmu, Fvar)


class HeteroskedasticTFPConditional(_WithLaw, gpflow.likelihoods.HeteroskedasticTFPConditional):
    """GPflow's ``HeteroskedasticTFPConditional``."""

    couples = True
    _log_survival = AugmentedLikelihood._log_survival  # TFP's has no digits for some laws

    def law(self, X: TensorType, F: TensorType) -> tfp.distributions.Distribution:
        return self.conditional_distribution(F)


class SwitchedLikelihood(StockLikelihood, gpflow.likelihoods.SwitchedLikelihood):
    """GPflow's ``SwitchedLikelihood``, if not all of its parts have an augmentation."""

    given = ("part",)

    def _parts(self) -> list[AugmentedLikelihood]:
        return [
            part if isinstance(part, AugmentedLikelihood) else unaugmented(part)
            for part in self.likelihoods
        ]

    def _of_own_law(self, name: str, X: TensorType, marginals: Any, Y: TensorType) -> tf.Tensor:
        """The part's value by the public method, which knows the part's smallest y."""
        y, index = Y[..., :-1], Y[..., -1:]
        value = tf.zeros_like(y)
        for k, part in enumerate(self._parts()):
            is_own = tf.equal(index, tf.cast(k, index.dtype))
            of_part = getattr(part, name.removeprefix("_"))(X, *marginals, y)
            value = tf.where(is_own, of_part, value)
        return value

    _cdf = _log_survival = _predict_cdf = delegated(_of_own_law)

    def next_below(self, Y: AnyNDArray) -> AnyNDArray:
        return next_below_by_part(self._parts(), Y, self.num_given)

    def as_observed(self, y: TensorType) -> tf.Tensor:
        raise ValueError(NO_PART.format(type(self).__name__))

    def check_observations(self, Y: tf.Tensor) -> Sequence[Check]:
        checks = [ends_in_an_index(Y, len(self.likelihoods))]
        for k, part in enumerate(self._parts()):
            is_own, y = tf.equal(Y[..., -1:], tf.cast(k, Y.dtype)), Y[..., :-1]
            checks += part.check_observations(tf.where(is_own, y, part.stand_in(y)))
        return checks


_CLASSES: dict[type[Likelihood], type[StockLikelihood]] = {
    known.__bases__[-1]: known
    for known in (
        Bernoulli,
        Beta,
        Exponential,
        Gamma,
        HeteroskedasticTFPConditional,
        MultiClass,
        Poisson,
        SwitchedLikelihood,
    )
}


def unaugmented(likelihood: Likelihood) -> AugmentedLikelihood:
    """A copy that is an instance of a class with a bound; all attributes are shared."""
    found = copy.copy(likelihood)
    found.__class__ = unaugmented_class(type(likelihood))
    return cast(AugmentedLikelihood, found)


def unaugmented_class(kind: type[Likelihood]) -> type[StockLikelihood]:
    """A subclass of ``StockLikelihood`` and ``kind``, in this order."""
    if kind in _CLASSES:
        return _CLASSES[kind]
    facts = {
        "couples": not issubclass(kind, ScalarLikelihood),
        "__doc__": kind.__doc__,
        "__module__": kind.__module__,
        "__qualname__": kind.__qualname__,
    }
    made = types.new_class(
        kind.__name__, (StockLikelihood, kind), {}, lambda own: own.update(facts)
    )
    return _CLASSES.setdefault(kind, made)
