r"""
The profile of the standard ELBO: a function of the hyperparameters, with q(v) maximised out.

q is found by :mod:`~gpflow_aaci.inference.newton`. At the optimal q(v) the gradient of the profile
equals the gradient of the ELBO at fixed q(v) (envelope theorem).

If all rows fit into one chunk, one compiled function evaluates the profile. Otherwise a compiled
function is called for each chunk in each pass, so memory is O(chunk · M) for any number of rows.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.config import default_float, default_jitter
from gpflow.kullback_leiblers import gauss_kl
from gpflow.utilities import to_default_float

from ..algebra import arrow
from ..algebra.arrow import Arrow, BlockDiagonal
from ..algebra.gaussian import Gaussian, carried, regression
from ..algebra.projection import Projection, conditioned, marginals, project
from ..algebra.statistics import Statistics
from ..algebra.terms import predictive, standard
from ..data import Arrays, Data, Summand, over_devices
from ..models import AugmentedModel, AugmentedVGP
from ..runtime.compiled import Compiled, CompiledFunction, Maker
from ..runtime.graphs import read_as
from ..runtime.mirrored import local
from ..runtime.structure import structure_of
from .bound_gradient import bound_gradient, recorded, total_gradient, value_and_gradient
from .newton import Kept, Maximum, Sums, maximise, sums_of_rows
from .site_search import Sites, q_of_sites, step, sums_of_sites, to_prior_of_sites


class Evaluation(NamedTuple):
    """The profile at some hyperparameters."""

    objective: float  # ELBO and log prior
    gradient: AnyNDArray  # in the hyperparameters' variables, concatenated
    q: "Optimum"  # the optimal q(v)
    steps: int  # the number of steps on q


class Basis(NamedTuple):
    """What v means, u = chol v."""

    chol: Any  # [broadcast L, M, M], of K_ZZ; block diagonal of effects of groups
    Z: tf.Tensor  # [M, D] where these points are hyperparameters, else [M, 0]


class Optimum(Gaussian):
    """
    The optimal q(v) at some hyperparameters, and what v means there.

    q(u) is the prior times a factor that stands for the likelihood. At other hyperparameters the
    optimal factor is nearly the same, though the optimal q(v) is not. A search that starts at the
    q(v) of this factor takes fewer steps than one that starts at the same q(v). This is the dual
    parameterization of Adam, Chang, Khan and Solin (2021).
    """

    basis: Basis | None = None  # None of a q(v) that has been changed since
    sites: Sites | None = None  # the same factor as one of every row, where a full GP was searched

    @classmethod
    def at(cls, q: Gaussian, basis: Basis, sites: Sites | None = None) -> "Optimum":
        found = cls(*q)
        found.basis, found.sites = basis, sites
        return found


class Profile:
    """The profile of one model; it is compiled when first needed, once for any number of rows."""

    def __init__(
        self,
        model: AugmentedModel,
        variables: Sequence[tf.Variable],
        product_dtype: tf.DType | None = None,
        from_q: bool = False,
    ) -> None:
        """
        :param product_dtype: as in :func:`~gpflow_aaci.algebra.projection.project`.
        :param from_q: whether the model's q(v) takes the place of the prior. The search is then
            for q(w), with v = q_mu + q_sqrt w, and only ``maximise`` may be called.
        """
        self._compiled, self._in_turn = Compiled(model, variables), model.in_turn
        self._within = model.within
        self._num_before = _num_before(model, from_q)
        M, L = model.q_mu.shape
        expected = model.expected_data
        X, Y = _spec(None, expected.input_dim), _spec(None, expected.num_observed)
        q, count = Gaussian(_spec(M, L), _spec(L, M, M)), tf.TensorSpec([], tf.int32)
        self.q_spec = searched = q
        chol, nowhere = _spec(None, M, M), _nan(1, M, M)
        if (F := self._num_before) is not None:
            root = Arrow(_spec(L, F, F), _spec(L, M - F, F), _spec(L, M - F))
            searched = q._replace(sqrt=root)
            chol = BlockDiagonal(_spec(1, None, None), _spec(1, None))
            nowhere = BlockDiagonal(_nan(1, 1, 1), _nan(1, 1))

        def compiled(
            maker: Maker, name: str, *signature: Any, is_wary: bool = False
        ) -> CompiledFunction:
            settings = name, product_dtype, from_q, is_wary
            return self._compiled.function(maker, *settings, signature=signature)

        def search(name: str, *signature: Any) -> _SearchOnDemand:
            quick, wary = (
                compiled(_of_model, name, *signature, is_wary=is_wary) for is_wary in (False, True)
            )
            return _SearchOnDemand(quick, wary, model.couples or model.in_turn)

        def summand(name: str, *args: Any) -> Summand:
            function = compiled(_of_chunk, name, X, Y, *args)
            return Summand(function, f"{name} {product_dtype}", variables)

        whole = _Whole(X, Y, _spec(), q, _spec(), count, _spec())
        Z = _moving_points(model, variables)
        basis = Basis(chol, _spec(M, 0 if Z is None else Z.shape[1]))
        self._nowhere = Basis(nowhere, _nan(*basis.Z.shape))
        self._evaluate = search("evaluation", whole, basis)
        self._start = compiled(_of_model, "start", q, basis)
        # The site of every row takes the place of q where there are as many v as rows.
        is_full = isinstance(model, AugmentedVGP) and not model.couples and not model.is_diagonal
        self._rows_of_sites = M if is_full and product_dtype is None and not from_q else None
        sites = Sites(_spec(None, L), _spec(None, L))
        self._evaluate_sites = search("site_evaluation", whole._replace(q=sites))
        self._first_sites = compiled(_of_model, "first_sites", X, Y, q)
        self._maximise = search("maximum", whole)
        self._log_prior = compiled(_of_model, "log_prior")
        self._log_densities = compiled(_of_model, "log_densities", X, Y, q)
        self._sum, self._gradient = summand("sum_of_terms", q), summand("gradient", q)
        self._newton, self._safer = summand("newton", searched), summand("safer", searched, count)
        self._coupling = summand("coupling", searched) if model.couples else None

    @property
    def tracing_seconds(self) -> float:
        """Seconds spent on tracing; 0 if a model of this structure was compiled before."""
        return self._compiled.tracing_seconds

    def trace(self, data: Data) -> None:
        """Trace the functions that every call of :meth:`evaluate` needs, before the first one."""
        if data.only_chunk is not None:
            (self._evaluate_sites if self._has_sites(data) else self._evaluate).trace()
            return
        for summand in (self._newton, self._gradient, self._coupling):
            if summand is not None:
                summand.function.trace()

    def evaluate(
        self,
        data: Data,
        q: Gaussian,
        least_gain: float,
        max_steps: int = 20,
        wanted: float = -np.inf,
    ) -> Evaluation:
        """
        Value and gradient at the current hyperparameters; the search for q starts at ``q``.

        If ``q`` is the :class:`Optimum` at other hyperparameters, the search starts at the q(v)
        that has the same factor.

        :param wanted: as in :func:`~gpflow_aaci.inference.newton.maximise`. Below this value the
            gradient may be NaN.
        """
        if self._has_sites(data):
            found = self._evaluated_by_sites(data, q, least_gain, max_steps, wanted)
            if found is not None:
                return found
        basis = q.basis if isinstance(q, Optimum) else None
        basis = self._nowhere if basis is None else basis
        whole = _whole(data, q, least_gain, max_steps, wanted)
        if whole is not None:
            best, basis, log_prior, gradient = self._evaluate(whole, basis)
        else:
            log_prior, of_prior = self._log_prior()
            start, basis = self._start(Gaussian(*q), basis)
            best = self.maximise(data, start, least_gain, max_steps, wanted - float(log_prior))
            if float(best.elbo) + float(log_prior) < wanted:
                gradient = [np.nan * part for part in of_prior]
            else:
                of_bound = data.sum(self._gradient, best.q)
                gradient = [a + b for a, b in zip(of_bound, of_prior, strict=True)]
        objective = float(best.elbo) + float(log_prior)
        optimum = Optimum.at(best.q, basis)
        return Evaluation(objective, _flat(gradient), optimum, int(best.steps))

    def _has_sites(self, data: Data) -> bool:
        """Whether every row may have a site: of a full GP, and not of a few of its rows."""
        own = data.only_chunk is not None and data.num_rows == data.num_data
        return own and self._rows_of_sites == data.num_rows

    def _evaluated_by_sites(
        self, data: Data, q: Gaussian, least_gain: float, max_steps: int, wanted: float
    ) -> Evaluation | None:
        """
        :meth:`evaluate`, searched in the sites of all rows.

        :return: None where a step to the sites of ``q`` loses, so that it is to be searched itself.
        """
        sites, elbo = q.sites if isinstance(q, Optimum) else None, -np.inf
        if sites is None and _is_prior(q):
            zeros = tf.zeros([data.num_rows, q.mu.shape[1]], q.mu.dtype)
            sites = Sites(zeros, zeros)
        is_other = sites is None
        if sites is None:
            sites, of_q = self._first_sites(*data.rows, Gaussian(*q))
            elbo = float(of_q)
        whole = _whole(data, q, least_gain, max(max_steps - is_other, 0), wanted)
        assert whole is not None
        best, new, basis, log_prior, gradient = self._evaluate_sites(whole._replace(q=sites))
        optimum, found = Optimum.at(new, basis, best.q), float(best.elbo)
        if is_other and not max_steps:
            optimum, found = Optimum.at(q, basis), elbo
        elif elbo > -np.inf and not found >= elbo - least_gain:
            return None
        return Evaluation(found + float(log_prior), _flat(gradient), optimum, int(best.steps))

    def maximise(
        self,
        data: Data,
        q: Gaussian,
        least_gain: float,
        max_steps: int,
        wanted: float = -np.inf,
    ) -> Maximum:
        """The optimal q; its search starts at ``q``. No gradient is computed."""
        whole = _whole(data, q, least_gain, max_steps, wanted)
        if whole is not None:
            return self._maximise(whole)[0]
        coupling = self._coupling
        sums = Sums(
            lambda q: (data.sum(self._newton, q), ()),
            lambda q, kind, _: data.sum(self._safer, q, kind),
            None if coupling is None else lambda q: data.sum(coupling, q),
        )
        limits = to_default_float(least_gain), tf.constant(max_steps)
        start, value = _searched(Gaussian(*q), self._num_before), to_default_float(wanted)
        best = maximise(sums, start, *limits, self._in_turn, self._within, value)
        return best._replace(q=arrow.dense_q(best.q))

    def log_densities(self, data: Data, q: Gaussian) -> tf.Tensor:
        """log p(y) of every row [N] of this worker, with f integrated out."""
        return data.map(lambda X, Y: self._log_densities(X, Y, q))

    def elbo(self, data: Data, q: Gaussian) -> float:
        """The standard ELBO at ``q``."""
        return float(data.sum(self._sum, q)) - float(gauss_kl(*q))


class _SearchOnDemand:
    """
    A compiled search for q whose result begins with a ``Maximum``.

    Few searches for one latent GP ever need one of the safer steps, whose graph is a fifth of the
    whole. So it is traced where a search cannot do without, and from then on used for all models of
    the structure. Of coupled latent GPs most searches need one.
    """

    def __init__(self, quick: CompiledFunction, wary: CompiledFunction, is_wary: bool) -> None:
        self._quick, self._wary = quick, wary
        self._is_wary: bool | None = is_wary or None  # None: not known yet

    def trace(self) -> None:
        """Trace what the first call needs."""
        (self._wary if self._is_known_to_be_wary() else self._quick).trace()

    def __call__(self, *args: Any) -> Any:
        if not self._is_known_to_be_wary():
            found = self._quick(*args)
            if not found[0].is_cut:
                return found
            self._is_wary = True
        return self._wary(*args)

    def _is_known_to_be_wary(self) -> bool:
        if self._is_wary is None:
            self._is_wary = self._wary.is_traced()
        return self._is_wary


class _Whole(NamedTuple):
    """The arguments of a search on rows that fit into one chunk."""

    X: tf.Tensor  # [N, D]
    Y: tf.Tensor  # [N, P]
    num_data: tf.Tensor
    q: Any  # a Gaussian, or sites
    least_gain: tf.Tensor
    max_steps: tf.Tensor
    wanted: tf.Tensor


def _num_before(model: AugmentedModel, from_q: bool) -> int | None:
    """F of the arrow in which q is searched; None for a q(w), of which nothing is known."""
    return None if from_q else model.num_before_groups


def _searched(q: Gaussian, num_before_groups: int | None) -> Gaussian:
    """q as the search for the best one has it: an arrow where there are effects of groups."""
    if num_before_groups is None:
        return q
    return q._replace(sqrt=arrow.nearest_root(q.sqrt, num_before_groups))


def _is_prior(q: Gaussian) -> bool:
    """Whether q(v) is N(0, I)."""
    mu, sqrt = q.mu.numpy(), q.sqrt.numpy()
    return not np.any(mu) and bool(np.all(sqrt == np.eye(sqrt.shape[-1])))


def _whole(
    data: Data, q: Gaussian, least_gain: float, max_steps: int, wanted: float
) -> _Whole | None:
    """The arguments, or None for rows that are several chunks."""
    if data.only_chunk is None:
        return None
    num_data, least, value = map(to_default_float, (data.num_data, least_gain, wanted))
    return _Whole(*data.only_chunk, num_data, Gaussian(*q), least, tf.constant(max_steps), value)


def _of_model(
    model: AugmentedModel, variables: Sequence[tf.Variable], name: str, *settings: Any
) -> Callable[..., Any]:
    """The method ``name`` of :class:`_Functions`."""
    function: Callable[..., Any] = getattr(_Functions(model, variables, *settings), name)
    return function


def _of_chunk(
    model: AugmentedModel, variables: Sequence[tf.Variable], name: str, *settings: Any
) -> Callable[..., Any]:
    """The method ``name``, a sum over the rows of a chunk, computed by all devices together."""
    return over_devices(model.strategy, _of_model(model, variables, name, *settings))


class _Functions(NamedTuple):
    """The functions that are compiled, at the model's hyperparameters."""

    model: AugmentedModel
    of_model: Sequence[tf.Variable]
    product_dtype: tf.DType | None
    from_q: bool
    is_wary: bool  # whether a search may take the safer steps

    @property
    def variables(self) -> list[tf.Variable]:
        return local(self.of_model)

    def projection(self, X: tf.Tensor) -> Projection:
        projection = project(self.model.prior(X), self.product_dtype)
        if not self.from_q:
            return projection
        return conditioned(projection, *self.model.whitened_q(projection.chol))

    # ---- all rows, projected once ----

    def evaluation(
        self, whole: _Whole, basis: Basis
    ) -> tuple[Maximum, Basis, tf.Tensor, list[tf.Tensor]]:
        """
        The optimal q and its basis, the log prior, the gradient of the ELBO plus the log prior.

        :param basis: that of ``whole.q``; NaN for a search that starts at this very q.
        """
        data = Arrays(whole.X, whole.Y, whole.num_data)
        is_direct = self._is_direct  # looks at the parameters, which ``read_as`` alters
        log_prior, of_prior = self.log_prior()
        whole = whole._replace(wanted=whole.wanted - log_prior)
        with self._parameters_read_once() as values:
            at = recorded(self.model.prior, whole.X, self.product_dtype, watched=values.searched)
            new = self._basis(at.projection.chol)
            start = self._carried(_searched(whole.q, self._num_before), basis, new)
            best = self._best(data, at.projection, whole._replace(q=start))
            sums = None
            if self.product_dtype is None:
                sums = tf.nest.map_structure(lambda part: part / data.scale, best.sums[1:])
            term, rows = self.model.term(standard), (whole.X, whole.Y)
            of_values = bound_gradient(
                term, values.searched, at, best.q, *rows, sums, best.kept, is_direct
            )
        of_bound = values.to_variables(data.total(of_values))
        best = best._replace(q=arrow.dense_q(best.q), kept=())
        gradient = [a + b for a, b in zip(of_bound, of_prior, strict=True)]
        return best, new, log_prior, gradient

    def site_evaluation(
        self, whole: _Whole
    ) -> tuple[Maximum, Gaussian, Basis, tf.Tensor, list[tf.Tensor]]:
        """The optimal sites and their q, and else as :meth:`evaluation`, of all rows."""
        model, rows = self.model, (whole.X, whole.Y)
        is_direct = self._is_direct
        log_prior, of_prior = self.log_prior()
        with self._parameters_read_once() as values:
            at = recorded(lambda _: model.prior_of_data(), whole.X, watched=values.searched)
            best = maximise(
                sums_of_sites(model, at.projection, *rows),
                whole.q,
                whole.least_gain,
                whole.max_steps,
                model.in_turn,
                wanted=whole.wanted - log_prior,
                is_wary=self.is_wary,
            )
            assert best.kept
            gradients = to_prior_of_sites(at.prior, at.projection, best.q, best.kept.slopes)
            of_values = total_gradient(
                model.term(standard), values.searched, at, gradients, *rows, best.kept, is_direct
            )
        of_bound = values.to_variables(of_values)
        gradient = [a + b for a, b in zip(of_bound, of_prior, strict=True)]
        q = q_of_sites(at.projection, best.q)
        return best._replace(kept=()), q, self._basis(at.projection.chol), log_prior, gradient

    def first_sites(self, X: tf.Tensor, Y: tf.Tensor, q: Gaussian) -> tuple[Sites, tf.Tensor]:
        """The sites after a step from q, and the ELBO at q."""
        projection = project(self.model.prior_of_data())
        Fmu, Fvar = marginals(projection, *q)
        slopes = self.model.term(standard).slopes(X, Fmu, Fvar, Y)
        return step(slopes, Fmu - projection.mean), slopes.value - gauss_kl(*q)

    def maximum(self, whole: _Whole) -> tuple[Maximum]:
        data = Arrays(whole.X, whole.Y, whole.num_data)
        whole = whole._replace(q=_searched(whole.q, self._num_before))
        best = self._best(data, self.projection(whole.X), whole)
        return (best._replace(q=arrow.dense_q(best.q), kept=()),)

    @contextmanager
    def _parameters_read_once(self) -> Iterator["_Values"]:
        """Within, each hyperparameter is transformed once."""
        variables = self.variables
        of_q = {id(self.model.q_mu), id(self.model.q_sqrt)}
        parameters = [p for p in self.model.parameters if id(p) not in of_q]
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(variables)
            read = [(parameter, tf.convert_to_tensor(parameter)) for parameter in parameters]
        of_variable = {id(p.unconstrained_variable): value for p, value in read}
        pairs = zip(self.of_model, variables, strict=True)  # a mirrored one, and this device's
        searched = [of_variable.get(id(mirrored), variable) for mirrored, variable in pairs]
        with read_as(read):
            yield _Values(tape, variables, searched)

    @property
    def _is_direct(self) -> bool:
        """Whether the bound may depend on parameters besides those of the prior."""
        likelihood = self.model.likelihood
        is_seen = structure_of(likelihood) is not None  # else a function may hold a Parameter
        return bool(likelihood.trainable_variables) or self.model.mixing is not None or not is_seen

    def _best(self, data: Arrays, projection: Projection, whole: _Whole) -> Maximum:
        own = sums_of_rows(self.model, projection, *data.rows)
        coupling = own.coupling

        def newton(q: Gaussian) -> tuple[Statistics, Kept]:
            sums, kept = own.newton(q)
            return data.total(sums), kept

        sums = Sums(
            newton,
            lambda q, kind, kept: data.total(own.safer(q, kind, kept)),
            None if coupling is None else lambda q: data.total(coupling(q)),
            own.nothing_kept,
        )
        limits, model = (whole.least_gain, whole.max_steps), self.model
        in_model = model.in_turn, model.within
        return maximise(sums, whole.q, *limits, *in_model, whole.wanted, self.is_wary)

    # ---- a chunk of the rows ----

    def sums(self, X: tf.Tensor, Y: tf.Tensor) -> Sums:
        return sums_of_rows(self.model, self.projection(X), X, Y)

    def newton(self, X: tf.Tensor, Y: tf.Tensor, q: Gaussian) -> Statistics:
        return self.sums(X, Y).newton(q)[0]

    def safer(self, X: tf.Tensor, Y: tf.Tensor, q: Gaussian, kind: tf.Tensor) -> Statistics:
        return self.sums(X, Y).safer(q, kind, ())

    def coupling(self, X: tf.Tensor, Y: tf.Tensor, q: Gaussian) -> tf.Tensor:
        coupling = self.sums(X, Y).coupling
        assert coupling is not None  # it is not None if ``model.couples``
        return coupling(q)

    def sum_of_terms(self, X: tf.Tensor, Y: tf.Tensor, q: Gaussian) -> tf.Tensor:
        Fmu, Fvar = marginals(self.projection(X), *q)
        return tf.reduce_sum(self.model.term(standard).of_each(X, Fmu, Fvar, Y))

    def log_densities(self, X: tf.Tensor, Y: tf.Tensor, q: Gaussian) -> tf.Tensor:
        Fmu, Fvar = marginals(self.projection(X), *q)
        return self.model.term(predictive).of_each(X, Fmu, Fvar, Y)

    def gradient(self, X: tf.Tensor, Y: tf.Tensor, q: Gaussian) -> list[tf.Tensor]:
        at = recorded(self.model.prior, X, self.product_dtype)
        return bound_gradient(self.model.term(standard), self.variables, at, q, X, Y)

    # ---- no rows ----

    def start(self, q: Gaussian, basis: Basis) -> tuple[Gaussian, Basis]:
        """Where a search starts that was given ``q`` in ``basis``, and the basis of this start."""
        new = self._basis(arrow.cholesky(self.model.compact_prior_covariance()))
        return self._carried(_searched(q, self._num_before), basis, new), new

    @property
    def _num_before(self) -> int | None:
        return _num_before(self.model, self.from_q)

    def _basis(self, chol: arrow.Matrix) -> Basis:
        Z = _moving_points(self.model, self.of_model)
        # A full GP does not know its number of rows while it is traced, where that may change.
        nowhere = tf.zeros([tf.shape(self.model.q_mu)[0], 0], default_float())
        return Basis(chol, nowhere if Z is None else Z + 0.0)

    def _carried(self, q: Gaussian, old: Basis, new: Basis) -> Gaussian:
        """The q(v) with the same factor; ``q`` itself in the same basis, or if there is none."""
        pairs = zip(tf.nest.flatten(old), tf.nest.flatten(new), strict=True)
        is_other = tf.reduce_any([tf.reduce_any(a != b) for a, b in pairs])
        of_old = tf.nest.flatten(old.chol)
        is_other &= tf.reduce_all([tf.reduce_all(tf.math.is_finite(part)) for part in of_old])
        old = tf.nest.map_structure(lambda a, b: tf.where(is_other, a, b), old, new)
        if _moving_points(self.model, self.of_model) is None:  # u is the same
            C = arrow.ratio(old.chol, new.chol)
        else:
            stays = tf.cast(tf.reduce_all(old.Z == new.Z, -1), new.chol.dtype)
            K = self.model.cross_covariance(old.Z)[0] + default_jitter() * tf.linalg.diag(stays)
            C = regression(old.chol, K, new.chol)
        there = arrow.carried(q, C) if isinstance(C, BlockDiagonal) else carried(*q, C)
        there = self.model.within(there)
        is_good = is_other & tf.reduce_all(tf.math.is_finite(there.mu))
        return tf.nest.map_structure(
            lambda a, b: tf.ensure_shape(tf.where(is_good, a, b), b.shape), there, q
        )

    def log_prior(self) -> tuple[tf.Tensor, list[tf.Tensor]]:
        return value_and_gradient(self.model.log_prior_density, self.variables)


def _moving_points(
    model: AugmentedModel, variables: Sequence[tf.Variable]
) -> gpflow.Parameter | None:
    """Z [M, D], if these points are among the hyperparameters."""
    Z = model.points
    if not isinstance(Z, gpflow.Parameter):  # it may have been set to an array
        return None
    return Z if any(Z.unconstrained_variable is each for each in variables) else None


class _Values(NamedTuple):
    """The values of the hyperparameters, with the tape that leads back to their variables."""

    tape: tf.GradientTape
    variables: list[tf.Variable]
    searched: list[tf.Tensor | tf.Variable]  # the value of each, or itself if no parameter has it

    def to_variables(self, gradients: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """The gradient in the variables, given the gradient in the values."""
        found: list[tf.Tensor] = self.tape.gradient(
            self.searched, self.variables, output_gradients=gradients
        )
        return found


def _nan(*shape: int | None) -> tf.Tensor:
    """NaN of a shape, with 1 for what is not known of it."""
    return to_default_float(np.full([1 if n is None else n for n in shape], np.nan))


def _spec(*shape: int | None) -> tf.TensorSpec:
    return tf.TensorSpec(shape, default_float())


def _flat(gradients: Sequence[tf.Tensor]) -> AnyNDArray:
    parts = [np.ravel(gradient.numpy()) for gradient in gradients]
    return np.concatenate([np.zeros(0), *parts]).astype(np.float64)
