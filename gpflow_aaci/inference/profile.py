r"""
The standard ELBO with q(v) maximised out, as a function of the hyperparameters: its profile.

q is found by :mod:`~gpflow_aaci.inference.newton`. At its maximum the ELBO's gradient in the
hyperparameters at fixed q(v) is the profile's (envelope theorem).

Rows that are one chunk are evaluated in one compiled function; more of them in one compiled call
for each chunk and pass: memory is O(chunk · M) for any number of rows.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.config import default_float
from gpflow.kullback_leiblers import gauss_kl
from gpflow.utilities import to_default_float

from ..algebra.gaussian import Gaussian
from ..algebra.projection import Projection, given, marginals, project
from ..algebra.statistics import Statistics
from ..algebra.terms import standard
from ..checkpoints import PassLog
from ..data import Data
from ..identity import digest
from ..models import AugmentedModel, local
from ..workers import is_single, num_workers, over_devices, sum_over_workers, together
from .bound_gradient import bound_gradient, log_prior_gradient
from .compiled import Compiled, CompiledFunction, Maker
from .newton import NEWTON, CouplingAt, Maximum, SumsAt, coupling_for, maximise, sums_for


class Evaluation(NamedTuple):
    """Of the profile."""

    objective: float  # ELBO and log prior
    gradient: AnyNDArray  # in the hyperparameters' variables, one after the other
    q: Gaussian
    steps: int


class Profile:
    """That of one model, compiled at first need and once for any number of rows."""

    def __init__(
        self,
        model: AugmentedModel,
        variables: Sequence[tf.Variable],
        product_dtype: tf.DType | None = None,
        log: PassLog | None = None,
        from_q: bool = False,
    ) -> None:
        """
        :param product_dtype: as of :func:`~gpflow_aaci.algebra.projection.project`.
        :param log: of what passes in chunks find; none unless given.
        :param from_q: whether the model's q(v) takes the place of the prior: the q(w) that is
            sought then is of v = q_mu + q_sqrt w. Without gradients: of ``maximise`` alone.
        """
        self._log = log or PassLog()
        self._compiled = Compiled(model, variables)
        self._variables, self._precision = variables, str(product_dtype)
        self._strategy = model.strategy
        self._in_turn, self._couples = model.in_turn, model.couples
        M, L = model.q_mu.shape
        X, Y, number = _spec(None, model.input_dim), _spec(None, model.num_observed), _spec()
        q, count = Gaussian(_spec(M, L), _spec(L, M, M)), tf.TensorSpec([], tf.int32)

        def compiled(maker: Maker, name: str, *signature: Any) -> CompiledFunction:
            settings = name, product_dtype, from_q
            return self._compiled.function(maker, *settings, signature=signature)

        self._evaluate = compiled(_of_model, "evaluation", X, Y, number, q, number, count)
        self._maximise = compiled(_of_model, "maximum", X, Y, number, q, number, count)
        self._chunk_worth = compiled(_of_rows, "worth", X, Y, q)
        self._chunk_sums = compiled(_of_rows, "sums", X, Y, q)
        self._chunk_safe_sums = compiled(_of_rows, "sums", X, Y, q, count)
        self._chunk_coupling = compiled(_of_rows, "coupling", X, Y, q)
        self._chunk_gradient = compiled(_of_rows, "gradient", X, Y, number, q)
        self._prior = compiled(_of_model, "log_prior")

    @property
    def tracing_seconds(self) -> float:
        """What tracing has taken; 0 where all had been compiled for a model of this structure."""
        return self._compiled.tracing_seconds

    def trace(self, data: Data) -> None:
        """Trace now what :meth:`evaluate` calls at once, rather than at the first call."""
        in_chunks = [self._chunk_sums, self._chunk_gradient]
        in_chunks += [self._chunk_coupling] if self._couples else []
        for function in in_chunks if data.only_chunk is None else [self._evaluate]:
            function.trace()

    def evaluate(
        self, data: Data, q: Gaussian, least_gain: float, max_steps: int = 20
    ) -> Evaluation:
        """Value and gradient at the hyperparameters as they are, ``q`` being where to begin."""
        limits = to_default_float(least_gain), tf.constant(max_steps)
        scale = to_default_float(data.scale)
        if data.only_chunk is not None:
            best, log_prior, gradient = self._evaluate(*data.only_chunk, scale, q, *limits)
        else:
            best = maximise(self._of(data), q, *limits, self._in_turn, self._coupling_of(data))
            log_prior, of_prior = self._prior()
            of_bound = self._summed(
                "gradient", data, best.q, lambda X, Y: self._chunk_gradient(X, Y, scale, best.q)
            )
            gradient = [a + b for a, b in zip(of_bound, of_prior, strict=True)]
        objective = float(best.elbo) + float(log_prior)
        return Evaluation(objective, _flat(gradient), best.q, int(best.steps))

    def maximise(self, data: Data, q: Gaussian, least_gain: float, max_steps: int) -> Maximum:
        """The best q from ``q`` on, without gradients."""
        limits = to_default_float(least_gain), tf.constant(max_steps)
        if data.only_chunk is not None:
            return self._maximise(*data.only_chunk, to_default_float(data.scale), q, *limits)
        return maximise(self._of(data), q, *limits, self._in_turn, self._coupling_of(data))

    def elbo(self, data: Data, q: Gaussian) -> float:
        """At ``q``."""
        (worth,) = self._summed("worth", data, q, lambda X, Y: self._chunk_worth(X, Y, q))
        return data.scale * float(worth) - float(gauss_kl(*q))

    def _of(self, data: Data) -> SumsAt:
        def sums_at(q: Gaussian, kind: tf.Tensor | int) -> Statistics:
            if isinstance(kind, int):
                sums = self._summed("sums", data, q, lambda X, Y: self._chunk_sums(X, Y, q))
            else:
                name = f"sums {int(kind)}"
                sums = self._summed(
                    name, data, q, lambda X, Y: self._chunk_safe_sums(X, Y, q, kind)
                )
            return Statistics(*sums).times(to_default_float(data.scale))

        return sums_at

    def _coupling_of(self, data: Data) -> CouplingAt | None:
        def coupling_at(q: Gaussian) -> tf.Tensor:
            (coupling,) = self._summed(
                "coupling", data, q, lambda X, Y: self._chunk_coupling(X, Y, q)
            )
            return to_default_float(data.scale) * coupling

        return coupling_at if self._couples else None

    def _summed(
        self,
        name: str,
        data: Data,
        q: Gaussian,
        of_chunk: Callable[[tf.Tensor, tf.Tensor], Sequence[tf.Tensor]],
    ) -> list[tf.Tensor]:
        """One pass over all chunks, of what is named; and over those of all workers."""

        def own() -> Sequence[tf.Tensor]:
            parts = (of_chunk(*chunk) for chunk in data.chunks())
            return functools.reduce(lambda a, b: [x + y for x, y in zip(a, b, strict=True)], parts)

        values = [value.numpy() for value in (*self._variables, *q)]
        of = [name, data.num_rows, self._precision, *values]
        if num_workers(self._strategy) == 1:
            return self._log(of, own)
        # Decisions follow from these numbers, so that all must have the same.
        mark = 1 + int(digest([np.asarray(part) for part in of])[:12], 16)

        def a_pass() -> Sequence[tf.Tensor]:
            return sum_over_workers(self._strategy, together(self._strategy, own, mark))

        return self._log(of, a_pass)


def _of_model(
    model: AugmentedModel, variables: Sequence[tf.Variable], name: str, *settings: Any
) -> Callable[..., Any]:
    """The function of that name of :class:`_Graphs`."""
    function: Callable[..., Any] = getattr(_Graphs(model, variables, *settings), name)
    return function


def _of_rows(
    model: AugmentedModel, variables: Sequence[tf.Variable], name: str, *settings: Any
) -> Callable[..., Any]:
    """The same of a sum over rows, which devices share."""
    function = _of_model(model, variables, name, *settings)
    if is_single(model.strategy):
        return function

    def shared(X: tf.Tensor, Y: tf.Tensor, *rest: Any) -> list[tf.Tensor]:
        of_rows = over_devices(model.strategy, lambda X, Y: function(X, Y, *rest))
        return of_rows(X, Y)

    return shared


class _Graphs(NamedTuple):
    """What is compiled: functions of some rows, at the model's hyperparameters."""

    model: AugmentedModel
    of_model: Sequence[tf.Variable]
    product_dtype: tf.DType | None
    from_q: bool

    @property
    def variables(self) -> list[tf.Variable]:
        return local(self.of_model)

    def projection(self, X: tf.Tensor) -> Projection:
        projection = project(self.model.prior(X), self.product_dtype)
        if not self.from_q:
            return projection
        return given(projection, *self.model.whitened_q(projection.chol))

    def evaluation(
        self,
        X: tf.Tensor,
        Y: tf.Tensor,
        scale: tf.Tensor,
        q: Gaussian,
        least_gain: tf.Tensor,
        max_steps: tf.Tensor,
    ) -> tuple[Maximum, tf.Tensor, list[tf.Tensor]]:
        """The best q, the log prior, and the gradient of both."""
        with tf.GradientTape() as tape:
            prior = self.model.prior(X)
        projection = project(prior, self.product_dtype)
        best = self._best(projection, X, Y, scale, q, least_gain, max_steps)
        term, sums = self.model.term(standard), (best.sums.in_mean, best.sums.in_covariance)
        gradient = bound_gradient(
            term, self.variables, tape, prior, projection, best.q, X, Y, scale, sums
        )
        log_prior, of_prior = self.log_prior()
        return best, log_prior, [a + b for a, b in zip(gradient, of_prior, strict=True)]

    def maximum(
        self,
        X: tf.Tensor,
        Y: tf.Tensor,
        scale: tf.Tensor,
        q: Gaussian,
        least_gain: tf.Tensor,
        max_steps: tf.Tensor,
    ) -> Maximum:
        return self._best(self.projection(X), X, Y, scale, q, least_gain, max_steps)

    def _best(
        self,
        projection: Projection,
        X: tf.Tensor,
        Y: tf.Tensor,
        scale: tf.Tensor,
        q: Gaussian,
        least_gain: tf.Tensor,
        max_steps: tf.Tensor,
    ) -> Maximum:
        def sums_at(q: Gaussian, kind: tf.Tensor | int) -> Statistics:
            return sums_for(self.model, projection, X, Y, q, kind).times(scale)

        def coupling_at(q: Gaussian) -> tf.Tensor:
            return scale * coupling_for(self.model, projection, X, Y, q)

        coupling = coupling_at if self.model.couples else None
        return maximise(sums_at, q, least_gain, max_steps, self.model.in_turn, coupling)

    def sums(
        self, X: tf.Tensor, Y: tf.Tensor, q: Gaussian, kind: tf.Tensor | int = NEWTON
    ) -> Statistics:
        return sums_for(self.model, self.projection(X), X, Y, q, kind)

    def coupling(self, X: tf.Tensor, Y: tf.Tensor, q: Gaussian) -> list[tf.Tensor]:
        return [coupling_for(self.model, self.projection(X), X, Y, q)]

    def worth(self, X: tf.Tensor, Y: tf.Tensor, q: Gaussian) -> list[tf.Tensor]:
        Fmu, Fvar = marginals(self.projection(X), *q)
        return [tf.reduce_sum(self.model.term(standard).worth(X, Fmu, Fvar, Y))]

    def gradient(
        self, X: tf.Tensor, Y: tf.Tensor, scale: tf.Tensor, q: Gaussian
    ) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            prior = self.model.prior(X)
        projection = project(prior, self.product_dtype)
        term = self.model.term(standard)
        return bound_gradient(term, self.variables, tape, prior, projection, q, X, Y, scale)

    def log_prior(self) -> tuple[tf.Tensor, list[tf.Tensor]]:
        return log_prior_gradient(self.model, self.variables)


def _spec(*shape: int | None) -> tf.TensorSpec:
    return tf.TensorSpec(shape, default_float())


def _flat(gradients: Sequence[tf.Tensor]) -> AnyNDArray:
    parts = [np.ravel(gradient.numpy()) for gradient in gradients]
    return np.concatenate([np.zeros(0), *parts]).astype(np.float64)
