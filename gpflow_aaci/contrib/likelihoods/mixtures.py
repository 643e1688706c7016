"""Mixtures and products of noise distributions: both keep φ completely monotone."""

import abc
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow import Parameter
from gpflow.base import TensorType
from gpflow.config import default_float

from ...likelihoods.integrals.even_densities import LogPhi
from ...likelihoods.noise.even import why_no_even_noise
from ...likelihoods.noise.residual import Deterministic, ResidualLikelihood
from ...likelihoods.super_gaussian import SuperGaussianLikelihood
from ...special import log_mixture
from ...validation import shown
from .numerical_noise import NumericalNoise
from .tilted_mixtures import TiltedMixture, TiltedSum


class _OfComponents(ResidualLikelihood, abc.ABC):
    """Noise made of components with g = 0 and h² = a_k (y − f)²."""

    def __init__(self, components: Sequence[SuperGaussianLikelihood], **kwargs: Any) -> None:
        """
        :param components: at least two densities of y − f that are symmetric about 0, of this
            package or your own; shared, with their Parameters.
        :raises ValueError: for other components.
        """
        super().__init__(**kwargs)
        self.components = _checked(type(self).__name__, components)

    def _scale(self, component: ResidualLikelihood, dtype: tf.DType) -> tf.Tensor:
        """a_k, []."""
        zero = tf.zeros([], default_float())
        return tf.cast(component.gamma(zero), dtype)

    def _log_phis(self, r: TensorType) -> list[tf.Tensor]:
        """log φ_k(a_k r)."""
        return [
            component.log_phi(self._scale(component, r.dtype) * r) for component in self.components
        ]

    def _tilts(self, c: tf.Tensor) -> tuple[list[tfp.distributions.Distribution], list[tf.Tensor]]:
        """The distributions of ω_k at √a_k c, and a_k; together, they define a_k ω_k at c."""
        scales = [self._scale(component, c.dtype) for component in self.components]
        laws = [
            component.tilted(tf.sqrt(scale) * c)
            for component, scale in zip(self.components, scales, strict=True)
        ]
        return laws, scales


class NoiseMixture(_OfComponents):
    """
    Σ w_k p_k(y|f), e.g. a narrow and a wide Gaussian (the contaminated normal distribution).

    With r = (y − f)², φ(r) = Σ w_k C_k φ_k(a_k r)/C and C = Σ w_k C_k. The distribution of ω is a
    mixture, too::

        NoiseMixture([Gaussian(scale=0.1), Gaussian(scale=1.0)], weights=[0.9, 0.1])
    """

    def __init__(
        self,
        components: Sequence[SuperGaussianLikelihood],
        weights: Any = None,
        **kwargs: Any,
    ) -> None:
        """
        :param components: at least two densities of y − f that are symmetric about 0, of this
            package or your own; shared, with their Parameters.
        :param weights: one positive number for each component, with sum 1; learnable. Default:
            equal weights. A ``Parameter`` is shared, with its own transform.
        :raises ValueError: for other components or weights.
        """
        super().__init__(components, **kwargs)
        self.weights = _weights(weights, len(self.components))

    def _log_heights(self, dtype: tf.DType) -> tf.Tensor:
        """log w_k C_k, [K]."""
        zero = tf.zeros([], default_float())
        log_C = tf.stack([component.log_C(zero) for component in self.components])
        return tf.cast(tf.math.log(self.weights) + log_C, dtype)

    def log_C(self, Y: TensorType) -> tf.Tensor:
        return tf.reduce_logsumexp(self._log_heights(Y.dtype)) + tf.zeros_like(Y)

    def log_phi(self, r: TensorType, Y: TensorType | None = None) -> tf.Tensor:
        """log Σ p_k φ_k, p_k = w_k C_k/C."""
        r = tf.convert_to_tensor(r)
        log_p = tf.nn.log_softmax(self._log_heights(tf.math.real(r).dtype))
        return log_mixture(tf.unstack(log_p), self._log_phis(r))

    def _tilted(self, c: tf.Tensor, Y: TensorType | None = None) -> tfp.distributions.Distribution:
        """The mixture of the components' distributions, weighted by their probabilities at c."""
        laws, scales = self._tilts(c)
        r = tf.square(c)
        log_heights = tf.unstack(self._log_heights(c.dtype))
        log_p = tf.stack([a + b for a, b in zip(log_heights, self._log_phis(r), strict=True)])
        log_p = tf.unstack(tf.nn.log_softmax(log_p, axis=0))
        return TiltedMixture(self.log_phi, c, log_p, laws, scales)

    def noise_variance(self) -> tf.Tensor:
        """Σ w_k Var_k."""
        return self._mean([component.noise_variance() for component in self.components])

    def draw_y(self, F: TensorType, seed: Any) -> tf.Tensor:
        """A draw from a component that is chosen at random by the weights."""
        seeds = tfp.random.split_seed(seed, n=1 + len(self.components), salt="noise_mixture")
        u = tf.random.stateless_uniform(tf.shape(F), seeds[0], dtype=F.dtype)
        cumulated = tf.unstack(tf.cast(tf.cumsum(self.weights), F.dtype))[:-1]
        chosen = tf.add_n([tf.cast(u >= each, tf.int32) for each in cumulated])
        draws = tf.zeros_like(F)
        for k, component in enumerate(self.components):
            draws = tf.where(chosen == k, component.draw_y(F, seeds[1 + k]), draws)
        return draws

    def predictive_log_density(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        """log Σ w_k E p_k(y|f); each component computes its own expectation."""
        log_weights = tf.unstack(tf.math.log(self.weights))
        parts = [
            log_w + component.predictive_log_density(X, Fmu, Fvar, Y)
            for log_w, component in zip(log_weights, self.components, strict=True)
        ]
        return tf.reduce_logsumexp(tf.stack(parts), axis=0)

    def _cdf(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        return self._mean([component._cdf(X, F, Y) for component in self.components])

    def _predict_cdf(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        return self._mean([each._predict_cdf(X, Fmu, Fvar, Y) for each in self.components])

    def _log_survival(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        log_weights = tf.unstack(tf.math.log(self.weights))
        parts = [
            log_w + component._log_survival(X, F, Y)
            for log_w, component in zip(log_weights, self.components, strict=True)
        ]
        return tf.reduce_logsumexp(tf.stack(parts), axis=0)

    def _mean(self, parts: list[tf.Tensor]) -> tf.Tensor:
        return tf.add_n([w * p for w, p in zip(tf.unstack(self.weights), parts, strict=True)])


class NoiseProduct(_OfComponents, NumericalNoise):
    """
    C Π φ_k(a_k (y − f)²), e.g. Laplace times Gaussian noise: a sharp peak with light tails.

    φ is the product of the φ_k(a_k r), and ω is the sum of independent a_k ω_k. The normaliser C
    and the variance are computed by quadrature.
    """

    def log_phi(self, r: TensorType, Y: TensorType | None = None) -> tf.Tensor:
        return tf.add_n(self._log_phis(tf.convert_to_tensor(r)))

    def _tilted(self, c: tf.Tensor, Y: TensorType | None = None) -> tfp.distributions.Distribution:
        """The distribution with this log φ. Draws are sums of draws; a constant ω_k is a shift."""
        log_phis = [component.log_phi for component in self.components]
        return law_of_sum(c, log_phis, *self._tilts(c))


def law_of_sum(
    c: tf.Tensor,
    log_phis: Sequence[LogPhi],
    laws: Sequence[tfp.distributions.Distribution],
    scales: Sequence[tf.Tensor],
) -> tfp.distributions.Distribution:
    """
    The distribution at c of Σ a_k ω_k with independent ω_k.

    :param log_phis: log φ_k for every ω_k.
    :param laws: the distributions of ω_k at √a_k c.
    :param scales: a_k.
    """
    shift, rest = tf.zeros_like(c), []
    for log_phi, law, scale in zip(log_phis, laws, scales, strict=True):
        if isinstance(law, tfp.distributions.Deterministic):
            shift += scale * law.loc
        elif isinstance(law, TiltedSum):  # it has its own shift
            shift += scale * law.shift
            rest.append((law.log_phi, law, scale))
        else:
            rest.append((log_phi, law, scale))
    if not rest:
        return Deterministic(shift)

    def log_phi_of_rest(r: tf.Tensor) -> tf.Tensor:
        return tf.add_n([each(tf.cast(scale, r.dtype) * r) for each, _, scale in rest])

    _, laws, scales = zip(*rest, strict=True)
    return TiltedSum(log_phi_of_rest, c, laws, scales, shift)


def _weights(value: Any, size: int) -> Parameter:
    """``value`` as a ``Parameter`` on the simplex; a ``Parameter`` is shared, not copied."""
    array = np.full(size, 1.0 / size) if value is None else np.asarray(value, dtype=float)
    proper = array.shape == (size,) and bool(np.all(array > 0.0))
    if not (proper and abs(array.sum() - 1.0) < 1e-6):
        raise ValueError(
            f"NoiseMixture: weights must be {size} positive numbers that sum to 1. Found: {value}."
        )
    if isinstance(value, Parameter):
        return value
    return Parameter(array / array.sum(), transform=tfp.bijectors.SoftmaxCentered())


def _checked(owner: str, components: Sequence[SuperGaussianLikelihood]) -> list[ResidualLikelihood]:
    """
    The components, if each density is a function of (y − f)² alone.

    :raises ValueError: otherwise; the message names the component and the reason.
    """
    accepted = "two or more likelihoods of y − f, with h² ∝ (y − f)² and g = 0, in a list"
    if not isinstance(components, list | tuple) or len(components) < 2:
        raise ValueError(f"{owner}: components must be {accepted}. Found: {shown(components)}.")
    for component in components:
        reason = why_no_even_noise(component)
        if reason:
            raise ValueError(
                f"{owner}: components must be {accepted}. Found: {type(component).__name__}, "
                f"{reason}."
            )
    return list(components)
