r"""
The standard ELBO with q(u) maximised out, as a function of the hyperparameters: its profile.

q is found by Newton steps: the optimum for the sites of precision −2 ∂E/∂v and potential
∂E/∂m + precision·m, where E = Σ E_q log p(y|f). Begun far off such a step may fail; the closed-form
augmented update, which cannot, takes over wherever it does not raise the ELBO. At the maximum the
ELBO's gradient in the hyperparameters at fixed whitened q is the profile's (envelope theorem).

Data come in chunks: memory is O(chunk · M) for any number of rows.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray, TensorType
from gpflow.config import default_float
from gpflow.kullback_leiblers import gauss_kl
from gpflow.utilities import to_default_float

from .augmentation import (
    aux_posterior_c,
    expected_aug_loglik,
    expected_auglik_potential_and_precision,
)
from .collapsed import covariance_minus_eye, product, through_prior, through_projection
from .models import AugmentedModel, local
from .sites import naturals_to_q

_CHUNK = 50_000  # rows of data in one product
_PRECISION_FLOOR = 1e-8  # of a Newton site where log p is not concave, if that must be


Chunks = Sequence[tuple[tf.Tensor, tf.Tensor]]
"""(X, Y) in pieces of at most ``_CHUNK`` rows."""


def make_chunks(X: TensorType, Y: TensorType) -> Chunks:
    """The rows of X [N, D], Y [N, P] in pieces."""
    starts = range(0, len(X), _CHUNK)
    return [(tf.constant(X[s : s + _CHUNK]), tf.constant(Y[s : s + _CHUNK])) for s in starts]


class Q(NamedTuple):
    """A whitened q(v)."""

    mu: tf.Tensor  # [M, P]
    sqrt: tf.Tensor  # [P, M, M]


Expectation = Callable[[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor], tf.Tensor]
"""(X, Fmu, Fvar, Y) → what a datum adds to the bound."""


class Terms(NamedTuple):
    """
    E = Σ E_q log p(y|f) of some rows, or its augmented bound, and its derivatives at the marginals.
    """

    expected: tf.Tensor  # []
    mu: tf.Tensor  # [P, N], without prior mean
    var: tf.Tensor  # [P, N]
    mu_bar: tf.Tensor  # [P, N], ∂E/∂m
    var_bar: tf.Tensor  # [P, N], ∂E/∂v


# ---- compiled pieces, each on one chunk of rows ----


def spec(*shape: int | None) -> tf.TensorSpec:
    return tf.TensorSpec(shape, default_float())


def _compiled(function: Callable[..., Any], *signature: Any) -> Callable[..., Any]:
    return tf.function(function, input_signature=signature, autograph=False)


class Compiled:
    """The functions of one model that the loops below call, compiled once for all sizes."""

    def __init__(
        self,
        model: AugmentedModel,
        variables: Sequence[tf.Variable],
        product_dtype: tf.DType | None = None,
    ) -> None:
        """
        :param product_dtype: of the products of size N·M², ``default_float()`` unless given.
            I + A diag(precision) Aᵀ bears float32, at a quarter of the time; the triangular solve
            for A does not.
        """
        self.model, self.variables = model, local(variables)
        self.product_dtype = product_dtype or tf.as_dtype(default_float())

        # Ranks and what is known for good: traced once, for any number of rows.
        M, P = model.q_mu.shape
        X, Y, N = spec(None, model.input_dim), spec(None, P), spec(None, None)
        L, square, column = spec(None, M, M), spec(P, M, M), spec(P, M, 1)
        A = tf.TensorSpec([None, M, None], self.product_dtype)
        q, terms = Q(spec(M, P), square), Terms(spec(), *[spec(P, None)] * 4)
        self.factor = _compiled(self._factor)
        self.project = _compiled(self._project, L, X)
        self.terms = _compiled(self._terms, A, N, X, Y, q)
        self.newton_sites = _compiled(self._newton_sites, A, terms, spec())
        self.posterior_c = _compiled(self._posterior_c, X, Y, terms)
        self.closed_form_sites = _compiled(self._closed_form_sites, A, X, Y, Y)
        self.gradient_sums = _compiled(self._gradient_sums, A, terms)
        self.data_gradient = _compiled(self._data_gradient, L, A, X, Y, q, terms)
        self.collapsed_terms = _compiled(self._collapsed_terms, A, N, X, Y, q, Y)
        self.collapsed_data_gradient = _compiled(
            self._collapsed_data_gradient, L, A, X, Y, q, terms, Y
        )
        self.prior_gradient = _compiled(self._prior_gradient, L, q, column, square)
        self.solve = _compiled(_solve, column, square)
        self.kl = _compiled(lambda q: gauss_kl(q.mu, q.sqrt), q)

    def trace(self, collapsed: bool) -> None:
        """Trace now rather than at first need; what only ``collapsed`` needs, if it will be."""
        for name, function in vars(self).items():
            is_function = isinstance(function, tf.types.experimental.PolymorphicFunction)
            if is_function and (collapsed or not name.startswith("collapsed")):
                function.get_concrete_function()

    def _factor(self) -> tf.Tensor:
        return tf.linalg.cholesky(self.model.prior_covariance())

    def _project(self, L: tf.Tensor, X: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """A [L, M, N] and k_ii − ‖A_i‖² [L, N], NaN where that is no variance."""
        K_ZX, k_diag = self.model.cross_covariance(X)
        A = tf.linalg.triangular_solve(L, K_ZX)
        unexplained = k_diag - tf.reduce_sum(tf.square(A), -2)
        # A variance of f given u. Below zero by more than rounding, K_ZX is not the kernel's (in
        # ‖x/ℓ − x'/ℓ‖² all digits cancel at lengthscales of 1e-7) and what looks a bound is none.
        tolerance = np.finfo(k_diag.dtype.as_numpy_dtype).eps ** 0.25
        nan = tf.constant(np.nan, k_diag.dtype)
        unexplained = tf.where(unexplained < -tolerance * k_diag, nan, unexplained)
        return tf.cast(A, self.product_dtype), unexplained

    def _terms(
        self, A: tf.Tensor, unexplained: tf.Tensor, X: tf.Tensor, Y: tf.Tensor, q: Q
    ) -> Terms:
        return self._terms_of(self._standard, A, unexplained, X, Y, q)

    def _collapsed_terms(
        self, A: tf.Tensor, unexplained: tf.Tensor, X: tf.Tensor, Y: tf.Tensor, q: Q, c: tf.Tensor
    ) -> Terms:
        return self._terms_of(self._augmented(c), A, unexplained, X, Y, q)

    def _standard(self, X: tf.Tensor, Fmu: tf.Tensor, Fvar: tf.Tensor, Y: tf.Tensor) -> tf.Tensor:
        return self.model.likelihood.variational_expectations(X, Fmu, Fvar, Y)

    def _augmented(self, c: tf.Tensor) -> Expectation:
        likelihood = self.model.likelihood
        return lambda X, Fmu, Fvar, Y: expected_aug_loglik(likelihood, c, Fmu, Fvar, Y)

    def _terms_of(
        self,
        expected: Expectation,
        A: tf.Tensor,
        unexplained: tf.Tensor,
        X: tf.Tensor,
        Y: tf.Tensor,
        q: Q,
    ) -> Terms:
        mu = product(A, tf.transpose(q.mu)[:, :, None], transpose_a=True)[:, :, 0]
        RtA = tf.matmul(tf.cast(q.sqrt, A.dtype), A, transpose_a=True)
        var = unexplained + tf.cast(tf.reduce_sum(tf.square(RtA), -2), mu.dtype)
        Fmu, Fvar = tf.transpose(mu) + self.model.mean_function(X), tf.transpose(var)
        with tf.GradientTape() as tape:
            tape.watch([Fmu, Fvar])
            E = tf.reduce_sum(expected(X, Fmu, Fvar, Y))
        mu_bar, var_bar = tape.gradient(E, [Fmu, Fvar])
        return Terms(E, mu, var, tf.transpose(mu_bar), tf.transpose(var_bar))

    def _newton_sites(
        self, A: tf.Tensor, terms: Terms, floor: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        precision = tf.maximum(-2.0 * terms.var_bar, floor)
        return _site_sums(A, terms.mu_bar + precision * terms.mu, precision)

    def _posterior_c(self, X: tf.Tensor, Y: tf.Tensor, terms: Terms) -> tf.Tensor:
        Fmu = tf.transpose(terms.mu) + self.model.mean_function(X)
        return aux_posterior_c(self.model.likelihood, Fmu, tf.transpose(terms.var), Y)

    def _closed_form_sites(
        self, A: tf.Tensor, X: tf.Tensor, Y: tf.Tensor, c: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        potential, precision = expected_auglik_potential_and_precision(self.model.likelihood, c, Y)
        centred = potential - precision * self.model.mean_function(X)
        return _site_sums(A, tf.transpose(centred), tf.transpose(precision))

    def _gradient_sums(self, A: tf.Tensor, terms: Terms) -> tuple[tf.Tensor, tf.Tensor]:
        """A ∂E/∂m [P, M, 1] and A diag(∂E/∂v) Aᵀ [P, M, M]."""
        return _site_sums(A, terms.mu_bar, terms.var_bar)

    def _data_gradient(
        self, L: tf.Tensor, A: tf.Tensor, X: tf.Tensor, Y: tf.Tensor, q: Q, terms: Terms
    ) -> list[tf.Tensor]:
        """∂E/∂θ through K_ZX, k_ii, the mean function and the likelihood's own parameters."""
        with tf.GradientTape() as tape:
            linear = self._linear(self._standard, L, A, X, Y, q, terms)
        return tape.gradient(linear, self.variables, unconnected_gradients="zero")

    def _collapsed_data_gradient(
        self,
        L: tf.Tensor,
        A: tf.Tensor,
        X: tf.Tensor,
        Y: tf.Tensor,
        q: Q,
        terms: Terms,
        c: tf.Tensor,
    ) -> tuple[list[tf.Tensor], tf.Tensor]:
        """The same of the augmented E, and its gradient [N, P] in log c."""
        log_c = tf.math.log(c)
        with tf.GradientTape() as tape:
            tape.watch(log_c)
            linear = self._linear(self._augmented(tf.exp(log_c)), L, A, X, Y, q, terms)
        sources = [*self.variables, log_c]
        *gradient, log_c_bar = tape.gradient(linear, sources, unconnected_gradients="zero")
        return gradient, log_c_bar

    def _linear(
        self,
        expected: Expectation,
        L: tf.Tensor,
        A: tf.Tensor,
        X: tf.Tensor,
        Y: tf.Tensor,
        q: Q,
        terms: Terms,
    ) -> tf.Tensor:
        """What has E's derivative in θ at fixed q(v), but for that through K_ZZ."""
        W = covariance_minus_eye(q.sqrt)
        K_ZX_bar = tf.stop_gradient(through_projection(L, A, q.mu, W, terms.mu_bar, terms.var_bar))
        K_ZX, k_diag = self.model.cross_covariance(X)
        Fmu = tf.transpose(terms.mu) + self.model.mean_function(X)
        E = expected(X, Fmu, tf.transpose(terms.var), Y)
        through_kernel = tf.reduce_sum(K_ZX_bar * K_ZX) + tf.reduce_sum(terms.var_bar * k_diag)
        return tf.reduce_sum(E) + through_kernel

    def _prior_gradient(
        self, L: tf.Tensor, q: Q, a: tf.Tensor, B: tf.Tensor
    ) -> tuple[tf.Tensor, list[tf.Tensor]]:
        """log prior [] and its gradient, with that of E through K_ZZ; (a, B) from gradient_sums."""
        K_ZZ_bar = through_prior(L, q.mu, covariance_minus_eye(q.sqrt), a, B)
        with tf.GradientTape() as tape:
            log_prior = self.model.log_prior_density()
            linear = log_prior + tf.reduce_sum(K_ZZ_bar * self.model.prior_covariance())
        return log_prior, tape.gradient(linear, self.variables, unconnected_gradients="zero")


def _site_sums(
    A: tf.Tensor, potential: tf.Tensor, precision: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """A·potential [P, M, 1] and A diag(precision) Aᵀ [P, M, M]."""
    lambda_1 = product(A, potential[:, :, None])
    A_precision = A * tf.cast(precision, A.dtype)[:, None, :]
    return lambda_1, product(A_precision, A, transpose_b=True)


def _solve(lambda_1: tf.Tensor, B: tf.Tensor) -> Q:
    eye = tf.eye(tf.shape(B)[-1], dtype=B.dtype)
    return Q(*naturals_to_q(tf.transpose(lambda_1[:, :, 0]), eye + B))


# ---- the standard ELBO, profiled over q ----


class State(NamedTuple):
    q: Q
    elbo: float
    terms: list[Terms]  # one for every chunk


class Profile:
    """The standard ELBO of some rows as a function of q, at the model's current hyperparameters."""

    def __init__(self, compiled: Compiled, chunks: Chunks, scale: float) -> None:
        """
        :param scale: num_data / rows, multiplies all that is a sum over rows.
        """
        self.compiled, self.chunks, self.scale = compiled, chunks, scale
        self.L = compiled.factor()
        # One chunk is kept projected; more are projected anew, so that memory stays bounded.
        self._kept = compiled.project(self.L, chunks[0][0]) if len(chunks) == 1 else None

    def _projected(self, X: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return self._kept if self._kept is not None else self.compiled.project(self.L, X)

    def state(self, q: Q) -> State:
        terms = [self.compiled.terms(*self._projected(X), X, Y, q) for X, Y in self.chunks]
        E = sum(float(t.expected) for t in terms)
        return State(q, self.scale * E - float(self.compiled.kl(q)), terms)

    def _optimum(
        self, sites: Callable[..., tuple[tf.Tensor, tf.Tensor]], of_chunk: Sequence[Any]
    ) -> Q:
        lambda_1: Any = 0.0
        B: Any = 0.0
        for (X, Y), of in zip(self.chunks, of_chunk, strict=True):
            new = sites(self._projected(X)[0], X, Y, of)
            lambda_1, B = lambda_1 + new[0], B + new[1]
        return self.compiled.solve(self.scale * lambda_1, self.scale * B)

    def newton(self, state: State, floor: float) -> Q:
        """The optimum for the Newton sites, their precision at least ``floor``."""
        floor = to_default_float(floor)
        sites = self.compiled.newton_sites
        return self._optimum(lambda A, X, Y, terms: sites(A, terms, floor), state.terms)

    def posterior_c(self, state: State) -> list[tf.Tensor]:
        """The c [N, P] of the optimal q(ω), of every chunk."""
        pairs = zip(self.chunks, state.terms, strict=True)
        return [self.compiled.posterior_c(X, Y, terms) for (X, Y), terms in pairs]

    def optimum_given_c(self, c: Sequence[tf.Tensor]) -> Q:
        """The optimum for the augmented sites; at ``posterior_c`` the full closed-form step."""
        return self._optimum(self.compiled.closed_form_sites, c)

    def maximise(
        self,
        q: Q,
        tolerance: float,
        max_steps: int = 20,
        after_step: Callable[[State], None] = lambda state: None,
    ) -> tuple[State, int]:
        """
        Newton steps from ``q``, each kept only if it raises the ELBO, else a safer one.

        Ends when a step gains less than ``tolerance`` nats.
        """
        state = self.state(q)
        for step in range(1, max_steps + 1):
            after_step(state)
            better = self._better(state)
            if better is None:
                return state, step
            gain, state = better.elbo - state.elbo, better
            if gain < tolerance:
                return state, step
        return state, max_steps

    def _better(self, state: State) -> State | None:
        """The first of ever safer steps that gains; where log p is concave the first two agree."""
        for update in (
            lambda: self.newton(state, -np.inf),
            lambda: self.newton(state, _PRECISION_FLOOR),
            lambda: self.optimum_given_c(self.posterior_c(state)),
        ):
            try:
                candidate = self.state(update())
            except tf.errors.InvalidArgumentError:  # its Cholesky failed
                continue
            if np.isfinite(candidate.elbo) and not candidate.elbo <= state.elbo:
                return candidate
        return None

    def gradient(self, state: State) -> tuple[float, AnyNDArray]:
        """Log prior, and the gradient in the hyperparameters of ELBO + log prior at fixed q."""
        compiled, q = self.compiled, state.q
        total: Any = 0.0
        sums: Any = (0.0, 0.0)
        for (X, Y), terms in zip(self.chunks, state.terms, strict=True):
            A, _ = self._projected(X)
            total = total + flat(compiled.data_gradient(self.L, A, X, Y, q, terms))
            sums = [s + new for s, new in zip(sums, compiled.gradient_sums(A, terms), strict=True)]
        return self._with_prior(q, total, sums)

    def collapsed(self, c: Sequence[tf.Tensor]) -> tuple[float, AnyNDArray, AnyNDArray]:
        """
        The augmented bound at the best q for ``c``, log prior included, and its gradients.

        :return: value, gradient in the hyperparameters, gradient in log c, chunk after chunk.
        """
        compiled, q = self.compiled, self.optimum_given_c(c)
        E, total, log_c_bars = 0.0, np.zeros([]), []
        sums: Any = (0.0, 0.0)
        for (X, Y), c_chunk in zip(self.chunks, c, strict=True):
            A, unexplained = self._projected(X)
            terms = compiled.collapsed_terms(A, unexplained, X, Y, q, c_chunk)
            gradient, log_c_bar = compiled.collapsed_data_gradient(
                self.L, A, X, Y, q, terms, c_chunk
            )
            E, total = E + float(terms.expected), total + flat(gradient)
            log_c_bars.append(self.scale * np.ravel(log_c_bar))
            sums = [s + new for s, new in zip(sums, compiled.gradient_sums(A, terms), strict=True)]
        log_prior, gradient = self._with_prior(q, total, sums)
        value = self.scale * E - float(compiled.kl(q)) + log_prior
        return value, gradient, np.concatenate(log_c_bars)

    def _with_prior(self, q: Q, total: AnyNDArray, sums: Any) -> tuple[float, AnyNDArray]:
        """Log prior, and the whole gradient from the chunks' sums."""
        a, B = (self.scale * s for s in sums)
        log_prior, through_K_ZZ = self.compiled.prior_gradient(self.L, q, a, B)
        return float(log_prior), self.scale * total + flat(through_K_ZZ)


def flat(gradients: Sequence[tf.Tensor]) -> AnyNDArray:
    parts = [np.ravel(g.numpy()) for g in gradients]
    return np.concatenate([np.zeros(0), *parts]).astype(np.float64)
