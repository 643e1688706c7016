"""
Probabilities, quantiles and draws of y at new inputs.

They are computed for any GPflow model from its q(f), or from draws of the posterior, over which
probabilities are then averaged.

Shapes: [S] draws, [N] new data, [L] columns of f, [P] columns of y, [Q] levels.
"""

import itertools
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import AnyNDArray, TensorType

from ..likelihoods import AugmentedLikelihood, augmented
from ..likelihoods.integrals.quadrature import safe_sqrt
from ..models import AugmentedModel, as_augmented
from ..runtime.compiled import Compiled, applied
from ..sampling.latents import DeepModel, Mixing, mixing_at
from ..validation import (
    as_default_float,
    check_all,
    check_count,
    require,
)
from .f import (
    VALUES_AT_ONCE,
    BlocksOfF,
    checked_inputs,
    coloured,
    components,
    conditionals,
    moments_of_outputs,
    restored,
)
from .given import Given, checked_given
from .quantiles import quantile_of_counts, quantile_of_reals

if TYPE_CHECKING:
    import arviz


class _Block(NamedTuple):
    """Draws that share the parameters of the likelihood."""

    values: list[AnyNDArray]  # the unconstrained values of these parameters
    Fmu: tf.Tensor  # [S, N, L]
    Fvar: tf.Tensor  # [S, N, L]; or [L, N, N] jointly over all data
    mixing: Mixing | None = None  # of the latent GPs whose moments these are, else of f


def predict_y_cdf(
    model: gpflow.models.GPModel,
    Xnew: TensorType,
    y: TensorType,
    *,
    samples: "arviz.InferenceData | None" = None,
    progress: bool = True,
) -> tf.Tensor:
    """
    P(y' ≤ y) at every new datum, [N, P].

    For a continuous y this is the cdf of the predictive distribution, which is uniform over new
    data if the model is calibrated. Classes are in the order of their numbers. A pseudo-likelihood
    is normalised over its labels, as for ``predict_y``. A censored y stands for the upper end of
    the interval that it is known to be in.

    :param Xnew: [N, D].
    :param y: [N, P] in the form of the training data, with any other columns that Y has.
    :param samples: draws by :func:`~gpflow_aaci.sample_posterior`, used instead of q.
    :param progress: whether to show a progress bar over the draws.
    :raises ValueError: as for training data; for samples of another kind of model.
    """
    X, y = checked_inputs(model, Xnew), as_default_float(y, "y")
    if samples is None and isinstance(model, AugmentedModel):
        likelihood = augmented(model.likelihood)
        observed = likelihood.num_observed(model.num_outputs)
        return cdf_of_q(model, X, _checked(y, X.shape[0], observed, likelihood))[0]
    predicted = Predicted(model, X, samples, progress)
    y = _checked(y, X.shape[0], predicted.num_observed, predicted.likelihood)
    return predicted.cdf_at(y)


def cdf_of_q(model: gpflow.models.GPModel, X: tf.Tensor, *of_y: tf.Tensor) -> tf.Tensor:
    """
    P(y' ≤ y) under q at X [N, D] for each of some y [N, ...], [Q, N, P]; f is predicted once.

    They are not checked, and may be below any y.
    """
    if not isinstance(model, AugmentedModel):
        return _cdf(model, ())(X, *of_y)

    def of_rows(rows: slice) -> tf.Tensor:
        return applied(model, _cdf, [part[rows] for part in (X, *of_y)])

    return _by_rows(X, of_rows, len(of_y) * model.num_outputs)


def randomised_pit(
    likelihood: AugmentedLikelihood,
    Y: tf.Tensor,
    cdf: Callable[..., Sequence[tf.Tensor]],
    rng: np.random.Generator,
) -> AnyNDArray:
    """
    P(y' ≤ y) [N, P], drawn uniformly from P(y' < y) up where y is discrete or censored.

    :param cdf: P(y' ≤ y), for each of some y.
    """
    below = likelihood.next_below(Y.numpy())
    if np.array_equal(below, Y, equal_nan=True):
        return cdf(Y)[0].numpy()
    lower, upper = (each.numpy() for each in cdf(tf.constant(below), Y))
    return lower + rng.uniform(size=upper.shape) * (upper - lower)


def _cdf(
    model: gpflow.models.GPModel, variables: Sequence[tf.Variable]
) -> Callable[..., tf.Tensor]:
    def cdf(X: tf.Tensor, *of_y: tf.Tensor) -> tf.Tensor:
        predicted = Predicted(model, X, None, progress=False)
        return tf.stack([predicted.cdf_at(y) for y in of_y])

    return cdf


def _checked(
    y: tf.Tensor, num_rows: int | None, observed: int, likelihood: AugmentedLikelihood
) -> tf.Tensor:
    """
    y, once it has passed the likelihood's checks.

    :raises ValueError: unless it is [num_rows, observed], and as for training data.
    """
    if not tf.TensorShape([num_rows, observed]).is_compatible_with(y.shape):
        raise ValueError(f"y must be [{num_rows}, {observed}]. Found: shape {list(y.shape)}.")
    with tf.control_dependencies([require(likelihood.checks(y, "y"))]):
        return tf.ensure_shape(y, [num_rows, observed])


def predict_y_quantile(
    model: gpflow.models.GPModel,
    Xnew: TensorType,
    levels: TensorType,
    *,
    given: Given | None = None,
    samples: "arviz.InferenceData | None" = None,
    progress: bool = True,
) -> tf.Tensor:
    """
    The y with P(y' ≤ y) = level at every new datum, [Q, N, P].

    If y is discrete, it is the smallest y with P(y' ≤ y) ≥ level: a count, the number of a class,
    or 0 or 1 if there are two classes. With many draws, each level takes some twenty times as long
    as :func:`predict_y_cdf`::

        lower, median, upper = predict_y_quantile(model, Xnew, [0.05, 0.5, 0.95])
        claims = predict_y_quantile(model, Xnew, 0.99, given={"exposure": exposure})

    :param Xnew: [N, D].
    :param levels: [Q], in (0, 1); or a number, which stands for Q = 1.
    :param given: the further columns of Y of the new rows, as in
        :func:`~gpflow_aaci.predictions.predict_y`.
    :param samples: draws by :func:`~gpflow_aaci.sample_posterior`, used instead of q.
    :param progress: whether to show a progress bar over the draws.
    :raises ValueError: for bad Xnew, levels or ``given``, for samples of another kind of model, and
        for a likelihood like ``Switched``, in which a column of Y says what y is.
    """
    levels = as_default_float(levels)
    if levels.shape.rank not in (0, 1) or levels.shape.num_elements() == 0:
        raise ValueError(f"levels must be [Q] or a number. Found: shape {list(levels.shape)}.")
    X = checked_inputs(model, Xnew)
    levels = tf.cast(tf.reshape(levels, [-1]), X.dtype)  # rounding may give 0 or 1
    is_inside = (levels > 0.0) & (levels < 1.0)  # and not NaN
    inside = check_all(levels, is_inside, "levels must be in (0, 1).")
    with tf.control_dependencies([require([inside])]):
        levels = tf.identity(levels)
    if samples is None and tf.executing_eagerly() and isinstance(model, AugmentedModel):
        known = Compiled(model)
        if known.is_shared:  # else every call would compile it anew
            of_rows = X, *checked_given(model.likelihood, given, X)
            shapes: list[list[int | None]] = [[None], *([None, part.shape[1]] for part in of_rows)]
            signature = [tf.TensorSpec(shape, X.dtype) for shape in shapes]
            quantile = known.function(_quantile, signature=signature)
            width = len(levels) * model.num_outputs

            def of_some(rows: slice) -> tf.Tensor:
                return quantile(levels, *(part[rows] for part in of_rows))

            return _by_rows(X, of_some, width)
    predicted = Predicted(model, X, samples, progress, given=given)
    levels = levels[:, None, None]
    return predicted.by_rows(lambda rows: predicted.quantile(rows, levels), levels.shape[0] or 1)


def predict_y_samples(
    model: gpflow.models.GPModel,
    Xnew: TensorType,
    num_samples: int,
    seed: int = 0,
    *,
    full_cov: bool = False,
    given: Given | None = None,
    samples: "arviz.InferenceData | None" = None,
    progress: bool = True,
) -> tf.Tensor:
    """
    Draws of y, [S, N, P]; each has a draw of f.

    :param Xnew: [N, D].
    :param num_samples: S, the number of draws.
    :param seed: the same seed gives the same draws.
    :param full_cov: whether f is drawn jointly at all of Xnew. Independent draws cost less.
    :param given: the further columns of Y of the new rows, as in
        :func:`~gpflow_aaci.predictions.predict_y`.
    :param samples: draws by :func:`~gpflow_aaci.sample_posterior`, used instead of q. Every one is
        used once before any is used again.
    :param progress: whether to show a progress bar over the draws.
    :raises ValueError: for bad arguments, as for :func:`predict_y_quantile`.
    :raises NotImplementedError: where the likelihood states no ``draw_y``.
    """
    check_count("num_samples", num_samples, 1)
    if not 0 <= seed < 2**31:
        raise ValueError(f"seed must be from 0 to 2**31 - 1. Found: {seed}.")
    predicted = Predicted(model, Xnew, samples, progress, full_cov, given, for_draws=True)
    return predicted.draw(int(num_samples), seed, full_cov)


class Predicted:
    """
    The predictive distribution of y at Xnew.

    It is the average, over draws of the posterior, of ∫ p(y|f) N(f | Fmu, Fvar) df. A Gaussian q
    counts as one draw. Draws come in blocks [S, N, L], each with its values of the likelihood's
    parameters.
    """

    def __init__(
        self,
        model: gpflow.models.GPModel,
        Xnew: TensorType,
        samples: "arviz.InferenceData | None",
        progress: bool,
        full_cov: bool = False,
        given: Given | None = None,
        for_draws: bool = False,
    ) -> None:
        """
        :param full_cov: whether variances are of all data jointly, [L, N, N].
        :param for_draws: whether ``over_draws`` is all that is called. Blocks of ``samples`` are
            then of the latent GPs, whose mixtures are not independent.
        :param given: the further columns of Y of the new rows.
        :raises ValueError: for bad Xnew or ``given``, a model with another likelihood, and samples
            of another kind of model.
        """
        self.likelihood = augmented(model.likelihood)
        self.X = checked_inputs(model, Xnew)
        self.given = checked_given(self.likelihood, given, self.X)
        self._moving: list[tf.Variable] = []  # the variables that blocks have values for
        if samples is None:
            self._blocks = _of_q(model, self.X, full_cov)
        else:
            if not isinstance(model, DeepModel):
                as_augmented(model)
            self._moving = [each.unconstrained_variable for each in self.likelihood.parameters]
            draws = conditionals(model, samples, self.X, full_cov, progress)
            self._blocks = self._of_draws(draws, full_cov, model, for_draws)
        self.num_draws = sum(block.Fmu.shape[0] for block in self._blocks)
        first = self._blocks[0]
        of_mixed = None if first.mixing is None else first.mixing.W.shape[0]
        self.num_outputs = int(of_mixed or first.Fmu.shape[-1])
        self.num_observed = self.likelihood.num_observed(self.num_outputs)
        self._num_columns = self.num_observed - self.likelihood.num_given

    def likelihood_at(self, rows: slice) -> AugmentedLikelihood:
        """The likelihood, whose predicted y have the further columns of these rows."""
        if not self.given:
            return self.likelihood
        return self.likelihood.with_given(self.given[0][rows])

    def cdf(self, rows: slice, Y: tf.Tensor) -> tf.Tensor:
        """P(y' ≤ y) [Q, N, P] at some rows, for Y [Q, N, ...]."""
        total: Any = 0.0
        with closing(self._by_turns()) as blocks:
            for _, Fmu, Fvar, _ in blocks:
                Fmu, Fvar = Fmu[:, rows], Fvar[:, rows]
                shape = tf.concat([tf.shape(Y)[:1], tf.shape(Fmu)], 0)  # [Q, S, N, L]
                Fmu, Fvar = tf.broadcast_to(Fmu, shape), tf.broadcast_to(Fvar, shape)
                p = self.likelihood.predict_cdf(self.X[rows], Fmu, Fvar, Y[:, None])
                total += tf.reduce_sum(p, 1)
        return total / self.num_draws

    def cdf_at(self, Y: tf.Tensor) -> tf.Tensor:
        """P(y' ≤ y) [N, P] for one Y [N, ...] that is not checked, for example below any y."""
        return self.by_rows(lambda rows: self.cdf(rows, Y[None, rows])[0], 1)

    def quantile(self, rows: slice, levels: tf.Tensor) -> tf.Tensor:
        """The y [Q, N, P] with P(y' ≤ y) = levels [Q, 1, 1] at some rows."""
        likelihood = self.likelihood_at(rows)
        columns = slice(self._num_columns)
        Fmu = tf.concat([block.Fmu[:, rows, columns] for block in self._blocks], 0)
        Fvar = tf.concat([block.Fvar[:, rows, columns] for block in self._blocks], 0)
        start = tf.reduce_mean(Fmu, 0)
        variance = tf.reduce_mean(Fvar + tf.square(Fmu - start), 0)
        unit = safe_sqrt(variance) + np.sqrt(np.finfo(levels.dtype.as_numpy_dtype).eps)
        levels = levels + tf.zeros_like(start)
        with tf.init_scope():  # parameters have values there, which outcomes may depend on
            is_discrete = likelihood.outcomes() is not None
        if is_discrete:
            return quantile_of_counts(
                lambda y: self.cdf(rows, likelihood.as_observed(y)),
                levels,
                may_be_negative=bool(np.isinf(likelihood.lowest)),
            )
        z = quantile_of_reals(
            lambda z: self.cdf(rows, likelihood.as_observed(likelihood.in_support(z))),
            levels,
            start,
            unit,
        )
        return likelihood.in_support(z)

    def draw(self, num_samples: int, seed: int, full_cov: bool) -> tf.Tensor:
        """Draws of y, [num_samples, N, P]."""

        def of_y(f: tf.Tensor, seed: Any) -> tf.Tensor:
            likelihood = self.likelihood_at(slice(None))
            Y = likelihood.as_observed(f[..., : self._num_columns])
            return likelihood.draw_y_like(self.X, f, Y, seed)

        return self.over_draws(of_y, num_samples, seed, full_cov)

    def over_draws(
        self,
        function: Callable[[tf.Tensor, Any], tf.Tensor],
        num_samples: int,
        seed: int,
        full_cov: bool,
    ) -> tf.Tensor:
        """``function(f, seed)`` of draws of f [S, N, L], joined to [num_samples, N, ...]."""
        order = np.random.default_rng(seed).permutation(self.num_draws)
        chosen = np.sort(np.resize(order, num_samples))
        seeds = tfp.random.split_seed(tf.constant([seed, 2]), n=2 * len(self._blocks))
        parts, first = [], 0
        with closing(self._by_turns()) as blocks:
            for k, (_, Fmu, Fvar, mixing) in enumerate(blocks):
                drawn = chosen[(chosen >= first) & (chosen < first + Fmu.shape[0])] - first
                first += Fmu.shape[0]
                mean = tf.gather(Fmu, drawn)
                noise = tf.random.stateless_normal(tf.shape(mean), seeds[2 * k], dtype=mean.dtype)
                f = mean + coloured(noise, Fvar if full_cov else tf.gather(Fvar, drawn), full_cov)
                f = f if mixing is None else mixing.outputs(f)
                parts.append(function(f, seeds[2 * k + 1]))
        return tf.concat(parts, 0)

    def quantiles_of_f(self, levels: tf.Tensor) -> tf.Tensor:
        """The quantiles [Q, N, L] of f at levels [Q], if there is one draw: a Gaussian q."""
        block = self._blocks[0]
        return block.Fmu + safe_sqrt(block.Fvar) * tf.math.ndtri(levels)[:, None, None]

    def by_rows(self, function: Callable[[slice], tf.Tensor], num_levels: int) -> tf.Tensor:
        """``function`` of slices of rows, joined to [..., N, P]; of one slice when compiled."""
        return _by_rows(self.X, function, num_levels * self.num_draws * self.num_outputs)

    def _by_turns(self) -> Generator[_Block, None, None]:
        """The blocks, one after the other, with the likelihood's parameters set to its values."""
        with restored(self._moving):
            for block in self._blocks:
                for variable, value in zip(self._moving, block.values, strict=True):
                    variable.assign(value)
                yield block

    def _of_draws(
        self, draws: BlocksOfF, full_cov: bool, model: gpflow.models.GPModel, for_draws: bool
    ) -> list[_Block]:
        """The blocks of draws. Neighbours with equal parameters are joined, unless ``full_cov``."""
        blocks = []
        with closing(draws):
            for Fmu, Fvar in draws:
                values = [variable.numpy() for variable in self._moving]
                mixing = mixing_at(model, self.X) if for_draws else None
                if not for_draws:
                    Fmu, Fvar = moments_of_outputs(model, self.X, Fmu, Fvar)
                Fvar = Fvar if full_cov else tf.broadcast_to(Fvar, Fmu.shape)
                blocks.append(_Block(values, Fmu, Fvar, mixing))
        if full_cov:
            return blocks
        alike = itertools.groupby(blocks, lambda block: [v.tobytes() for v in block.values])
        groups = [zip(*group, strict=True) for _, group in alike]
        # No hyperparameter of a kernel that mixes is sampled, so that all blocks have one mixing.
        return [_Block(v[0], tf.concat(m, 0), tf.concat(s, 0), w[0]) for v, m, s, w in groups]


def _quantile(model: AugmentedModel, variables: Sequence[tf.Variable]) -> Callable[..., tf.Tensor]:
    """The quantiles of y under q, as a function of levels [Q], X [N, D] and what is given."""

    def quantile(levels: tf.Tensor, X: tf.Tensor, *given: tf.Tensor) -> tf.Tensor:
        predicted = Predicted(model, X, None, progress=False)
        predicted.given = given
        return predicted.quantile(slice(None), levels[:, None, None])

    return quantile


def _by_rows(X: tf.Tensor, function: Callable[[slice], tf.Tensor], values: int) -> tf.Tensor:
    """
    ``function`` of slices of rows, joined to [..., N, P]; of one slice when compiled.

    :param values: how many numbers it computes for each row.
    """
    if not tf.executing_eagerly():
        return function(slice(None))
    step = max(1, VALUES_AT_ONCE // values)
    starts = range(0, max(1, len(X)), step)
    return tf.concat([function(slice(start, start + step)) for start in starts], -2)


def _of_q(model: gpflow.models.GPModel, X: tf.Tensor, full_cov: bool) -> list[_Block]:
    """The Gaussian q or, where q is a mixture, its components as if they were draws."""
    if full_cov:
        return [_Block([], *pair) for pair in components(model, X, full_cov)]
    means, variances = zip(*components(model, X, full_cov), strict=True)
    return [_Block([], tf.concat(means, 0), tf.stack(variances))]
