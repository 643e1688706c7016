"""Ordered classes: the interval that a normal variable about f lies in."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow import Parameter
from gpflow.base import AnyNDArray, TensorType
from gpflow.utilities import set_trainable

from ...distributions import IntervalNormal
from ...special import log_ndtr_between, ndtr
from ...validation import Check
from ..base import Site
from ..integrals.quadrature import expectation
from ..outputwise import OutputwiseLikelihood
from ..parameters import positive_parameter
from .labels import are_labels


class Ordinal(OutputwiseLikelihood):
    r"""
    Labels 0 … K − 1 in their order: y is the number of edges below z ~ N(f, σ²).

    P(y = k|f) = Φ((e_k − f)/σ) − Φ((e_{k−1} − f)/σ), the first and last edge being infinite, as in
    GPflow's ``Ordinal`` (Chu and Ghahramani, JMLR 2005), whose probabilities are squeezed into
    [0.001, 0.999]. Given z, which is N(f, σ²) cut off at the edges about y, f is Gaussian (Albert
    and Chib 1993). The edges are learnt, and σ is fixed, as a unit for f::

        likelihood = Ordinal(bin_edges=[-1.0, 0.0, 1.0])  # of labels 0, 1, 2 and 3
    """

    def __init__(
        self, bin_edges: TensorType | Parameter, sigma: float | Parameter = 1.0, **kwargs: Any
    ) -> None:
        """
        :param bin_edges: the K − 1 finite edges, increasing; a ``Parameter`` is shared.
        :param sigma: σ; a ``Parameter`` is shared, and may be trainable.
        :raises ValueError: for anything else.
        """
        super().__init__(**kwargs)
        edges = np.asarray(bin_edges, dtype=float)
        increases = edges.ndim == 1 and len(edges) > 0 and bool(np.all(np.isfinite(edges)))
        if not (increases and bool(np.all(np.diff(edges) > 0.0))):
            raise ValueError(
                "Ordinal: bin_edges must be one or more finite numbers that increase. "
                f"Found: {bin_edges!r}."
            )
        if not isinstance(bin_edges, Parameter):
            bin_edges = Parameter(edges, transform=tfp.bijectors.Ascending())
        self.bin_edges = bin_edges
        is_shared = isinstance(sigma, Parameter)
        self.sigma = positive_parameter("Ordinal", "sigma", sigma)
        if not is_shared:
            set_trainable(self.sigma, False)

    @property
    def num_bins(self) -> int:
        """K."""
        return int(self.bin_edges.shape[0]) + 1

    @property
    def labels(self) -> AnyNDArray:  # type: ignore[override]
        return np.arange(float(self.num_bins))

    # ---- the augmentation ----

    def pointwise_bound(
        self, X: TensorType | None, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        """log p(y|Fmu) − ½ Fvar/σ²: log p(y|f) + ½ f²/σ² is convex in f."""
        log_p = self._log_probability(Fmu, Y, tf.cast(self.sigma, Fmu.dtype))
        return log_p - 0.5 * Fvar / tf.cast(tf.square(self.sigma), Fmu.dtype)

    def full_conditional(
        self, X: TensorType | None, F: TensorType, Y: TensorType
    ) -> tfp.distributions.Distribution:
        """z ~ N(f, σ²) between the edges about y, of batch shape [..., N, P]."""
        low, high = self._edges_about(Y)
        return IntervalNormal(F, self.sigma, low, high)

    def log_joint(
        self, X: TensorType | None, auxiliary: TensorType, F: TensorType, Y: TensorType
    ) -> tf.Tensor:
        """log N(z | f, σ²) between the edges about y, [..., N, P]."""
        low, high = self._edges_about(Y)
        log_p = tfp.distributions.Normal(F, self.sigma).log_prob(auxiliary)
        is_inside = (auxiliary > low) & (auxiliary < high)
        return tf.where(is_inside, log_p, tf.constant(-np.inf, log_p.dtype))

    def site(self, X: TensorType | None, auxiliary: TensorType, Y: TensorType) -> Site:
        """Potential z/σ², precision 1/σ²."""
        precision = 1.0 / tf.square(self.sigma)
        return auxiliary * precision, precision * tf.ones_like(auxiliary)

    # ---- expectations ----

    def expected_log_prob(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        """By quadrature about the middle of the interval, or its only finite end."""
        low, high = self._edges_about(Y)
        low, high = (tf.where(tf.math.is_finite(e), e, o) for e, o in ((low, high), (high, low)))
        centre = 0.5 * (low + high) + tf.zeros_like(Fmu)
        sigma = tf.cast(self.sigma, Fmu.dtype)
        return expectation(
            lambda x: self._log_probability(x + centre, Y, sigma), Fmu - centre, Fvar
        )

    def predictive_log_density(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        """As for a certain f, with σ² + Fvar in the place of σ²."""
        return self._log_probability(Fmu, Y, self._spread(Fvar))

    def _cdf(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        return self._predict_cdf(X, F, tf.zeros_like(F), Y)

    def _predict_cdf(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        _, high = self._edges_about(tf.math.floor(Y))
        p = ndtr((high - Fmu) / self._spread(Fvar))
        return tf.where(tf.math.is_finite(high + tf.zeros_like(Fmu)), p, tf.ones_like(p))

    def _conditional_mean(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return self._predict_mean_and_var(X, F, tf.zeros_like(F))[0]

    def _conditional_variance(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return self._predict_mean_and_var(X, F, tf.zeros_like(F))[1]

    def _predict_mean_and_var(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """E y = Σ P(y > k) over the edges, and E y² = Σ (2k + 1) P(y > k)."""
        edges = tf.cast(self.bin_edges, Fmu.dtype)
        above = ndtr((Fmu[..., None] - edges) / self._spread(Fvar)[..., None])
        odd = 2.0 * tf.range(self.num_bins - 1, dtype=Fmu.dtype) + 1.0
        mean = tf.reduce_sum(above, -1)
        return mean, tf.reduce_sum(odd * above, -1) - tf.square(mean)

    def draw_y(self, F: TensorType, seed: Any) -> tf.Tensor:
        """A label."""
        z = F + self.sigma * tf.random.stateless_normal(tf.shape(F), seed, dtype=F.dtype)
        return tf.reduce_sum(tf.cast(z[..., None] > self.bin_edges, F.dtype), -1)

    def check_observations(self, Y: tf.Tensor) -> Sequence[Check]:
        return [are_labels(Y, self.num_bins, "the number of bin_edges")]

    def _log_probability(self, F: TensorType, Y: TensorType, spread: TensorType) -> tf.Tensor:
        return log_ndtr_between(*(_scaled(edge, F, spread) for edge in self._edges_about(Y)))

    def _spread(self, Fvar: TensorType) -> tf.Tensor:
        return tf.sqrt(tf.cast(tf.square(self.sigma), Fvar.dtype) + Fvar)

    def _edges_about(self, Y: TensorType) -> tuple[tf.Tensor, tf.Tensor]:
        """The edge below and the edge above the label, either may be infinite."""
        edges = tf.convert_to_tensor(self.bin_edges)
        infinity = tf.constant([np.inf], edges.dtype)
        edges = tf.concat([-infinity, edges, infinity], 0)
        label = tf.cast(Y, tf.int32)
        return tf.gather(edges, label), tf.gather(edges, label + 1)


def _scaled(edge: tf.Tensor, F: TensorType, spread: TensorType) -> tf.Tensor:
    """(edge − F)/spread, whose derivatives are 0, and not NaN, where the edge is infinite."""
    is_finite = tf.math.is_finite(edge) & tf.ones_like(F, tf.bool)
    distance = (tf.where(is_finite, edge, tf.zeros_like(F)) - F) / spread
    return tf.where(is_finite, distance, edge)
