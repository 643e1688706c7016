"""Negative binomial and binomial counts, with a Pólya-Gamma ω."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import AnyNDArray, MeanAndVariance, TensorType

from ..special import betainc
from ..validation import Check, check_rows
from .declared import Argument, further_column, positive
from .integrals.quadrature import expectation
from .law import PredictedMoments, draw_as_observed
from .observations import COUNTS
from .parameters import as_number
from .sigmoid_powers import CountLikelihood, PowerOfCosh, Powers


class NegativeBinomial(PredictedMoments, CountLikelihood, PowerOfCosh):
    """
    Γ(y + r)/(y! Γ(r)) σ(f)^y σ(−f)^r: the number of successes before r failures.

    This is ``tfp.distributions.NegativeBinomial(total_count=r, logits=f)``, with mean r e^f and
    variance r e^f (1 + e^f): counts are over-dispersed, and tend to Poisson counts as r → ∞. r is
    real and learnable.

    With an exposure E, rE stands for r: y is the sum of independent counts of E units of exposure,
    all with the same f (the negative binomial Lévy process, Kozubowski and Podgórski 2009). Mean
    and variance are proportional to E. Regressions with an *offset* log E (R's ``glm.nb``; Hilbe
    2011, *Negative Binomial Regression*) keep r and multiply e^f by E instead: the units of one
    datum then share a random factor, and the variance of y/E does not vanish as E grows. For these
    use :class:`~gpflow_aaci.effects.Offset`, and no exposure.
    """

    kind_of_y = COUNTS

    total_count = positive(1.0, "r, per unit of exposure")
    with_exposure = further_column(
        "exposure", "whether Y [N, 2] has a second column, as for ``Poisson``."
    )

    def failures(self, Y: TensorType) -> tf.Tensor:
        """rE, [..., L]."""
        E = self.given_column(Y)
        return tf.cast(self.total_count, E.dtype) * E

    def powers(self, Y: TensorType) -> Powers:
        y = self.response(Y)
        return Powers(y, self.failures(Y), tf.zeros_like(y))

    def log_coefficient(self, Y: TensorType) -> tf.Tensor:
        y, r, lgamma = self.response(Y), self.failures(Y), tf.math.lgamma
        return lgamma(y + r) - lgamma(y + 1.0) - lgamma(r)

    def peaks(self, Y: TensorType) -> Sequence[tf.Tensor]:
        """The f with e^f = y/rE, approximately if y = 0."""
        return [tf.math.log((self.response(Y) + 0.5) / self.failures(Y))]

    def outcomes(self) -> AnyNDArray:
        """Enough counts for all f ≤ 1 at exposure 1."""
        r = float(tf.convert_to_tensor(self.total_count))
        y = np.arange(np.ceil(3.0 * r + 60.0 * np.sqrt(r) + 400.0))[:, None]
        return np.hstack([y, np.ones([len(y), self.num_given])])

    draw_y = draw_as_observed

    def draw_y_like(self, X: TensorType, F: TensorType, Y: TensorType, seed: Any) -> tf.Tensor:
        """A Poisson draw, whose rate is e^f times a Gamma(rE) draw."""
        seeds = tfp.random.split_seed(seed, n=2, salt="negative_binomial")
        shape, r = tf.shape(F), self.failures(Y)
        rate = tf.exp(F) * tf.random.stateless_gamma(shape, seeds[0], r, dtype=F.dtype)
        return tf.random.stateless_poisson(shape, seeds[1], rate, F.dtype)

    def draw_rest(self, F: TensorType, Y: TensorType, until: tf.Tensor, seed: Any) -> tf.Tensor:
        """
        A count is the number of events in (0, 1) of a Poisson process of rate e^f G, G ~ Gamma(rE).

        P(no event before t) = (1 + t e^f)^{−rE}, and G ~ Gamma(rE + 1, 1 + t e^f) given t.
        """
        seeds = tfp.random.split_seed(seed, n=2, salt="negative_binomial_rest")
        shape, r = tf.shape(F), self.failures(Y)
        gamma = tf.random.stateless_gamma(shape, seeds[0], r + 1.0, dtype=F.dtype)
        rate = gamma * (tf.exp(F) - tf.math.expm1(until / r)) * tf.exp(-until / r)
        return tf.random.stateless_poisson(shape, seeds[1], tf.nn.relu(rate), F.dtype)

    def _cdf(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        """I_{σ(−f)}(rE, y + 1)."""
        y = tf.math.floor(self.response(Y))
        return betainc(self.failures(Y), y + 1.0, tf.sigmoid(-F))

    def _log_survival(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        """log I_{σ(f)}(y + 1, rE)."""
        y = tf.math.floor(self.response(Y))
        return tf.math.log(betainc(y + 1.0, self.failures(Y), tf.sigmoid(F)))

    def _predict_mean_and_var(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType
    ) -> MeanAndVariance:
        of_odds = tf.exp(Fmu + Fvar / 2.0)  # E e^f, and E e^{2f} = of_odds² e^v
        r = self.failures(self.as_observed(Fmu))
        within = of_odds + tf.square(of_odds) * tf.exp(Fvar)
        # At Fvar = 0 no variance, though the square may overflow.
        between = tf.math.multiply_no_nan(tf.square(r * of_odds), tf.math.expm1(Fvar))
        return r * of_odds, r * within + between


def _take_trials(likelihood: Any, name: str, value: Any) -> None:
    number = as_number(value)
    if value is not None and not (number >= 1.0 and number.is_integer()):
        raise ValueError(
            f"{type(likelihood).__name__}: {name} must be a whole number of at least 1, or None "
            f"for a column of Y. Found: {value!r}."
        )
    setattr(likelihood, name, None if value is None else int(number))
    if value is None:
        likelihood.given = ("trials",)


class Binomial(CountLikelihood, PowerOfCosh):
    """
    C(n, y) σ(f)^y σ(−f)^{n−y}: y successes in n trials, as ``tfp.distributions.Binomial``.

    With one trial it is :class:`~gpflow_aaci.likelihoods.Logistic`.
    """

    kind_of_y = COUNTS

    total_count: Any = Argument(
        None,
        "n, at least 1. None: every datum has its own n. Then the columns of Y [N, 2] are "
        "successes and trials, f has one column, and a predicted y is the outcome of one trial "
        "unless another number is asked for.",
        _take_trials,
    )

    def exponent(self, Y: TensorType) -> tf.Tensor:
        """The trials, [..., L]."""
        if self.total_count is None:
            return Y[..., 1:2]
        return tf.fill(tf.shape(Y), tf.constant(self.total_count, Y.dtype))

    def powers(self, Y: TensorType) -> Powers:
        y = self.response(Y)
        return Powers(y, self.exponent(Y) - y, tf.zeros_like(y))

    def log_coefficient(self, Y: TensorType) -> tf.Tensor:
        y, n, lgamma = self.response(Y), self.exponent(Y), tf.math.lgamma
        return lgamma(n + 1.0) - lgamma(y + 1.0) - lgamma(n - y + 1.0)

    def peaks(self, Y: TensorType) -> Sequence[tf.Tensor]:
        """The f with σ(f) = y/n, approximately if y/n is 0 or 1."""
        y = self.response(Y)
        return [tf.math.log((y + 0.5) / (self.exponent(Y) - y + 0.5))]

    def outcomes(self) -> AnyNDArray:
        n = self.total_count or 5
        successes = np.arange(n + 1.0)[:, None]
        trials = np.full_like(successes, n)
        return successes if self.total_count else np.hstack([successes, trials])

    def check_observations(self, Y: tf.Tensor) -> Sequence[Check]:
        y, n = self.response(Y), self.exponent(Y)
        accepted = "from 0 to the number of trials"
        if self.total_count is not None:
            accepted = f"from 0 to total_count = {self.total_count}"
        is_possible = tf.reduce_all(y <= n, -1, keepdims=True)
        possible = check_rows(tf.concat([y, n], -1), is_possible, f"Y must be {accepted}.")
        return [*super().check_observations(Y), possible]

    draw_y = draw_as_observed

    def draw_y_like(self, X: TensorType, F: TensorType, Y: TensorType, seed: Any) -> tf.Tensor:
        trials, p = self.exponent(Y), tf.sigmoid(F)
        return tf.random.stateless_binomial(tf.shape(F), seed, trials, p, F.dtype)

    def draw_rest(self, F: TensorType, Y: TensorType, until: tf.Tensor, seed: Any) -> tf.Tensor:
        """P(no success in the first j trials) = σ(−f)^j."""
        trials = self.exponent(Y)
        tiny = tf.constant(np.finfo(F.dtype.as_numpy_dtype).tiny, F.dtype)
        first = tf.math.ceil(until / tf.maximum(tf.math.softplus(F), tiny))
        left = trials - tf.clip_by_value(first, tf.ones_like(trials), trials)
        return tf.random.stateless_binomial(tf.shape(F), seed, left, tf.sigmoid(F), F.dtype)

    def _cdf(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        """I_{σ(−f)}(n − y, y + 1), and 1 at y = n."""
        is_last, rest, y = self._unreached(Y)
        below = betainc(rest, y + 1.0, tf.sigmoid(-F))
        return tf.where(is_last, tf.ones_like(below), below)

    def _log_survival(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        """log I_{σ(f)}(y + 1, n − y), and log 0 at y = n."""
        is_last, rest, y = self._unreached(Y)
        above = betainc(y + 1.0, rest, tf.sigmoid(F))
        return tf.math.log(tf.where(is_last, tf.zeros_like(above), above))

    def _unreached(self, Y: TensorType) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Whether y ≥ n, n − y or 1 if so, and y."""
        y, n = tf.math.floor(self.response(Y)), self.exponent(Y)
        is_last = y >= n
        return is_last, tf.where(is_last, tf.ones_like(n), n - y), y

    def _conditional_mean(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return self.exponent(self.as_observed(F)) * tf.sigmoid(F)

    def _conditional_variance(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return self._conditional_mean(X, F) * tf.sigmoid(-F)

    def _predict_mean_and_var(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType
    ) -> MeanAndVariance:
        n = self.exponent(self.as_observed(Fmu))
        mean = expectation(tf.sigmoid, Fmu, Fvar)
        spread = expectation(lambda F: tf.square(tf.sigmoid(F) - mean), Fmu, Fvar)
        return n * mean, n * (mean - tf.square(mean) - spread) + n**2 * spread
