"""Classification into K classes."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from check_shapes import inherit_check_shapes
from gpflow.base import AnyNDArray, MeanAndVariance, TensorType

from ..distributions import PolyaGamma
from ..special import log_2cosh_half_sqrt, log_ndtr
from ..validation import Check, some
from .base import AugmentedLikelihood, Site
from .quadrature import expectation, safe_sqrt
from .sigmoid_powers import log_powers_of_sigmoid, one_minus_s
from .tabulated import LOG_T_STEP, LOWEST, expected_of_sigmoid, log_t, slopes_of_decays

tfd = tfp.distributions


class LogisticSoftmax(AugmentedLikelihood):
    r"""
    p(y = k|f) = σ(f_k) / Σ_j σ(f_j), labels 0 … K − 1 in Y [N, 1] (Galy-Fajou et al., UAI 2019).

    1/Σσ = ∫ e^{−rate Σσ} d rate, and every e^{−rate σ(f_j)} is a mixture over
    n_j ~ Poisson(rate) of σ(−f_j)^{n_j}: given rate, n and ω ~ PG([j = k] + n_j, ·)/2 the K latent
    GPs are independent and Gaussian. Predicted probabilities are deterministic integrals.

    Under a prior of mean 0 every σ(f_j) is near ½, and no p(k) exceeds 2/(K + 1) unless the others'
    f go far below 0: begin from a constant mean of −log K, or a large kernel variance.
    """

    couples = True

    def __init__(self, num_classes: int, **kwargs: Any) -> None:
        """
        :param num_classes: K ≥ 2; ``num_latent_gps`` of the model.
        :raises ValueError: for anything else.
        """
        if not (isinstance(num_classes, int | np.integer) and num_classes >= 2):
            raise ValueError(
                f"LogisticSoftmax: num_classes must be an integer of at least 2. "
                f"Found: {num_classes!r}."
            )
        super().__init__(
            input_dim=None, latent_dim=int(num_classes), observation_dim=None, **kwargs
        )
        self.num_classes = int(num_classes)

    def num_observed(self, num_outputs: int) -> int:
        return 1

    def bound(self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType) -> tf.Tensor:
        """m_k/2 − lc_k − log Σ_j (1 − s_j)."""
        lc = log_2cosh_half_sqrt(tf.square(Fmu) + Fvar)
        total = tf.reduce_sum(one_minus_s(Fmu, lc), -1)
        return tf.reduce_sum(self._one_hot(Y) * (Fmu / 2.0 - lc), -1) - tf.math.log(total)

    def coupling(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        """That of −E log Σσ(f_j), to some 1e-4."""
        return _coupling_of_log_sum(Fmu, Fvar)

    def full_conditional(
        self, X: TensorType | None, F: TensorType, Y: TensorType
    ) -> tfp.distributions.Distribution:
        """
        rate [..., N, 1] ~ Exponential(Σσ(f_j)), n [..., N, K] ~ Poisson(rate σ(−f)), and omega.

        omega ~ PG([j = k] + n_j, f_j)/2, [..., N, K]; of batch shape [..., N].
        """
        F = tf.convert_to_tensor(F)
        label, half = self._one_hot(Y), tf.constant(0.5, F.dtype)
        total = tf.reduce_sum(tf.sigmoid(F), -1, keepdims=True)
        return tfd.JointDistributionNamed(
            {
                "rate": tfd.Independent(tfd.Exponential(total), 1),
                "n": lambda rate: tfd.Independent(tfd.Poisson(rate * tf.sigmoid(-F)), 1),
                "omega": lambda n: tfd.Independent(PolyaGamma(label + n, F, half), 1),
            }
        )

    def log_joint(
        self, X: TensorType | None, auxiliary: Any, F: TensorType, Y: TensorType
    ) -> tf.Tensor:
        """[..., N]."""
        rate, n, omega = (auxiliary[name] for name in ("rate", "n", "omega"))
        log_n = tfd.Poisson(rate).log_prob(n)
        return tf.reduce_sum(log_n + log_powers_of_sigmoid(self._one_hot(Y), n, omega, F), -1)

    def site(self, X: TensorType | None, auxiliary: Any, Y: TensorType) -> Site:
        """Potential ([j = k] − n_j)/2, precision 2ω_j."""
        return (self._one_hot(Y) - auxiliary["n"]) / 2.0, 2.0 * auxiliary["omega"]

    @inherit_check_shapes
    def _log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        log_share = tf.math.log_sigmoid(F)
        own = tf.reduce_sum(self._one_hot(Y) * log_share, -1)
        return own - tf.reduce_logsumexp(log_share, -1)

    @inherit_check_shapes
    def _variational_expectations(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        log_share = expectation(tf.math.log_sigmoid, Fmu, Fvar)
        own = tf.reduce_sum(self._one_hot(Y) * log_share, -1)
        return own - in_chunks_of_rows(_expected_log_sum, Fmu, Fvar, _NUMBERS_OF_SUM)

    @inherit_check_shapes
    def _predict_log_density(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        return tf.reduce_sum(self._one_hot(Y) * tf.math.log(self._probabilities(Fmu, Fvar)), -1)

    @inherit_check_shapes
    def _conditional_mean(self, X: TensorType, F: TensorType) -> tf.Tensor:
        share = tf.sigmoid(F)
        return share / tf.reduce_sum(share, -1, keepdims=True)

    @inherit_check_shapes
    def _conditional_variance(self, X: TensorType, F: TensorType) -> tf.Tensor:
        p = self.conditional_mean(X, F)
        return p - tf.square(p)

    @inherit_check_shapes
    def _predict_mean_and_var(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType
    ) -> MeanAndVariance:
        """P(y = k) of every class, and p − p²."""
        p = self._probabilities(Fmu, Fvar)
        return p, p - tf.square(p)

    def _cdf(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        return self._up_to(self._conditional_mean(X, F), Y)

    def _predict_cdf(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        return self._up_to(self._probabilities(Fmu, Fvar), Y)

    def _up_to(self, p: tf.Tensor, Y: TensorType) -> tf.Tensor:
        """P(y' ≤ y) in the order of the labels' numbers, [..., N, 1]."""
        is_below = tf.range(self.num_classes, dtype=p.dtype) <= Y
        return tf.reduce_sum(tf.where(is_below, p, tf.zeros_like(p)), -1, keepdims=True)

    def _probabilities(self, Fmu: tf.Tensor, Fvar: tf.Tensor) -> tf.Tensor:
        return in_chunks_of_rows(_expected_shares, Fmu, Fvar, _NODES * _NUMBERS_OF_NODE)

    def draw_y(self, F: TensorType, seed: Any) -> tf.Tensor:
        """A label, [..., N, 1]."""
        uniform = tf.random.stateless_uniform(tf.shape(F), seed, dtype=F.dtype)
        gumbel = -tf.math.log(-tf.math.log(uniform + np.finfo(F.dtype.as_numpy_dtype).tiny))
        drawn = tf.argmax(tf.math.log_sigmoid(F) + gumbel, -1)
        return tf.cast(drawn, F.dtype)[..., None]

    def outcomes(self) -> AnyNDArray:
        return np.arange(float(self.num_classes))[:, None]

    def check_observations(self, Y: tf.Tensor) -> Sequence[Check]:
        highest = float(self.num_classes - 1)
        wrong = ~((Y >= 0.0) & tf.less_equal(Y, highest) & tf.equal(Y, tf.round(Y)))
        message = f"Y must hold labels from 0 to num_classes - 1 = {self.num_classes - 1}."
        return [Check(~tf.reduce_any(wrong), message, lambda: some(Y, wrong))]

    def _one_hot(self, Y: TensorType) -> tf.Tensor:
        """[..., N, K]."""
        Y = tf.convert_to_tensor(Y)
        return tf.one_hot(tf.cast(Y[..., 0], tf.int32), self.num_classes, dtype=Y.dtype)


# ---- integrals over t of products of E e^{−tσ(f_j)}, every f_j ~ N(m_j, v_j) of its own ----

_NODES = 96  # of u = log t; along it all is analytic in a strip of half-width π/2
_NODES_OF_WIDE = 256
_LOWEST = -16.0  # of u: what lies below is linear in t
_EVEN_TO, _GROWTH = 60.0, 8.0  # of u: beyond, nodes are ever farther apart
_NUMBERS_AT_ONCE = 4_000_000  # in memory
_NUMBERS_OF_SUM = 400  # of one f
_NUMBERS_OF_NODE = 60  # and of one f and t
_LOG_NEVER = -20.0  # of a probability that counts for nothing


def _nodes(Fmu: tf.Tensor, Fvar: tf.Tensor, number: int) -> tuple[tf.Tensor, tf.Tensor]:
    """u [..., T] and its weights, up to where every product has vanished."""
    lowest_f = tf.reduce_max(Fmu - 7.0 * safe_sqrt(Fvar), -1)  # of the f_j that stay highest
    end = tf.stop_gradient(4.5 + tf.nn.relu(-lowest_f))[..., None]
    # u = w + e^{(w − 60)/8}: what is that far out is smooth, being the mean over a wide f.
    end = tf.minimum(end, _EVEN_TO) + _GROWTH * tf.math.log1p(tf.nn.relu(end - _EVEN_TO))
    w = _LOWEST + (end - _LOWEST) * tf.cast(np.linspace(0.0, 1.0, number), end.dtype)
    growth = tf.exp((w - _EVEN_TO) / _GROWTH)
    weight = (end - _LOWEST) / (number - 1.0) * (1.0 + growth / _GROWTH)
    return w + growth, weight * tf.cast([0.5, *[1.0] * (number - 2), 0.5], end.dtype)


_LARGEST = 6.5  # of log tσ: e^{−tσ} is 0 for all that counts


def _transforms(
    Fmu: tf.Tensor, Fvar: tf.Tensor, u: tf.Tensor, of_exponent: Callable[[tf.Tensor], tf.Tensor]
) -> tf.Tensor:
    """E of_exponent(tσ) e^{−tσ}, [..., K, T]: it falls where f is about −log(1 + t)."""
    shift = tf.math.softplus(u)[..., None, :]
    log_t = u[..., None, :]

    def function(x: tf.Tensor) -> tf.Tensor:
        largest = tf.constant(_LARGEST, x.dtype)
        exponent = tf.exp(tf.minimum(log_t + tf.math.log_sigmoid(x - shift), largest))
        return of_exponent(exponent) * tf.exp(-exponent)

    return expectation(function, Fmu[..., None] + shift, Fvar[..., None])


def _expected_log_sum(Fmu: tf.Tensor, Fvar: tf.Tensor) -> tf.Tensor:
    """
    E log S, S = Σσ(f_j), [...]: ∫ (e^{−t} − E e^{−tS}) dt/t (Frullani).

    Where every f_j is sure to be below −25, σ(f) = e^f, and log S moves with all f alike.
    """
    sd = safe_sqrt(Fvar)
    highest_f = tf.reduce_max(Fmu + 7.0 * sd, -1, keepdims=True)
    shift = tf.stop_gradient(tf.nn.relu(-25.0 - highest_f))
    Fmu += shift
    # The table ends where every f_j of a row is below LOWEST, which is nearly always out of reach.
    log_all_below = tf.reduce_sum(log_ndtr((LOWEST - Fmu) / sd), -1)
    is_wide = tf.stop_gradient(log_all_below) > _LOG_NEVER
    log_sum = _log_sum_by_table(Fmu, Fvar)

    def with_wide() -> tf.Tensor:
        at = tf.where(is_wide)
        # Times 1, whose gradient is dense: that of a gather alone tf.cond does not take.
        mean, variance = (tf.gather_nd(1.0 * part, at) for part in (Fmu, Fvar))
        numbers = _NODES_OF_WIDE * _NUMBERS_OF_NODE
        wide = in_chunks_of_rows(_log_sum_of_wide, mean, variance, numbers)
        return tf.tensor_scatter_nd_update(log_sum, at, wide)

    return tf.cond(tf.reduce_any(is_wide), with_wide, lambda: log_sum) - shift[..., 0]


def _log_sum_by_table(Fmu: tf.Tensor, Fvar: tf.Tensor) -> tf.Tensor:
    """
    By the trapezoidal rule in log t over the whole line, where it is exact but for 1e-6.

    Below the first node the integrand is t (E S − 1) + t² (1 − E S²)/2, whose sums are geometric
    series.
    """
    decays, mean, second = expected_of_sigmoid(Fmu, Fvar)
    t = np.exp(log_t())
    body = tf.reduce_sum(tf.cast(np.exp(-t), Fmu.dtype) - tf.reduce_prod(decays, -2), -1)
    total = tf.reduce_sum(mean, -1)
    total_squared = tf.square(total) + tf.reduce_sum(second - tf.square(mean), -1)
    linear, quadratic = (t[0] ** k / np.expm1(k * LOG_T_STEP) for k in (1, 2))
    below = linear * (total - 1.0) + quadratic * (1.0 - total_squared) / 2.0
    return LOG_T_STEP * (body + below)


def _coupling_of_log_sum(Fmu: tf.Tensor, Fvar: tf.Tensor) -> tf.Tensor:
    """−∂²E log S/∂m_j∂m_k for j ≠ k, and 0 for j = k, [..., K, K]: ∫ D_j' D_k' Π_l D_l du."""
    highest_f = tf.reduce_max(Fmu + 7.0 * safe_sqrt(Fvar), -1, keepdims=True)
    Fmu += tf.nn.relu(-25.0 - highest_f)
    decays, _, _ = expected_of_sigmoid(Fmu, Fvar)
    decays = tf.maximum(decays, tf.constant(1e-10, Fmu.dtype))  # what it does to products cancels
    root = tf.exp(0.5 * tf.reduce_sum(tf.math.log(decays), -2, keepdims=True))
    ratios = slopes_of_decays(Fmu, Fvar) / decays * root
    found = LOG_T_STEP * tf.matmul(ratios, ratios, transpose_b=True)
    return tf.linalg.set_diag(found, tf.zeros_like(Fmu))


def _log_sum_of_wide(Fmu: tf.Tensor, Fvar: tf.Tensor) -> tf.Tensor:
    """At length, for rows of which every f may be far below 0."""
    u, weight = _nodes(Fmu, Fvar, _NODES_OF_WIDE)
    of_sum = tf.reduce_prod(_transforms(Fmu, Fvar, u, tf.ones_like), -2)
    below = math.exp(_LOWEST) * (tf.reduce_sum(expectation(tf.sigmoid, Fmu, Fvar), -1) - 1.0)
    return below + tf.reduce_sum(weight * (tf.exp(-tf.exp(u)) - of_sum), -1)


def _expected_shares(Fmu: tf.Tensor, Fvar: tf.Tensor) -> tf.Tensor:
    """E σ(f_k)/S, [..., K]: ∫ E[tσ_k e^{−tσ_k}] Π_{j≠k} E e^{−tσ_j} du."""
    u, weight = _nodes(Fmu, Fvar, _NODES)
    tiny = tf.constant(np.finfo(Fmu.dtype.as_numpy_dtype).tiny, Fmu.dtype)
    logs = tf.math.log(tf.maximum(_transforms(Fmu, Fvar, u, tf.ones_like), tiny))
    others = tf.exp(tf.reduce_sum(logs, -2, keepdims=True) - logs)
    own = _transforms(Fmu, Fvar, u, tf.identity)
    below = math.exp(_LOWEST) * expectation(tf.sigmoid, Fmu, Fvar)
    p = below + tf.reduce_sum(weight[..., None, :] * own * others, -1)
    return p / tf.reduce_sum(p, -1, keepdims=True)


def in_chunks_of_rows(
    function: Callable[[tf.Tensor, tf.Tensor], tf.Tensor],
    Fmu: tf.Tensor,
    Fvar: tf.Tensor,
    numbers: int,
) -> tf.Tensor:
    """
    ``function(Fmu, Fvar)`` of [..., K], some rows at a time.

    :param numbers: how many it makes of one f.
    """
    K = Fmu.shape[-1]
    flat = [tf.reshape(tf.broadcast_to(part, tf.shape(Fmu)), [-1, K]) for part in (Fmu, Fvar)]
    most = max(1, _NUMBERS_AT_ONCE // (numbers * K))

    number = tf.shape(flat[0])[0]
    if tf.get_static_value(number) is not None and int(number) <= most:
        values = function(*flat)
    else:
        chunks = tf.maximum(1, -(-number // most))
        rows = tf.maximum(1, -(-number // chunks))  # less than a row in each is padded
        padding = chunks * rows - number
        padded = [
            tf.reshape(tf.concat([part, tf.ones([padding, K], part.dtype)], 0), [chunks, rows, K])
            for part in flat
        ]
        in_parts = tf.recompute_grad(function)  # or the gradient would keep them all
        of_one = function(*[tf.ones([1, K], Fmu.dtype)] * 2)
        spec = tf.TensorSpec([None, *of_one.shape[1:]], Fmu.dtype)
        of_part = tf.autograph.experimental.do_not_convert(lambda part: in_parts(*part))
        values = tf.map_fn(of_part, tuple(padded), fn_output_signature=spec)
        values = tf.reshape(values, tf.concat([[-1], tf.shape(values)[2:]], 0))[:number]
    return tf.reshape(values, tf.concat([tf.shape(Fmu)[:-1], tf.shape(values)[1:]], 0))
