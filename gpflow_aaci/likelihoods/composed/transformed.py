"""Likelihoods of a transformed y (warped), or with units of y and f that depend on X (scaled)."""

import abc
from collections.abc import Callable, Sequence
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray, MeanAndVariance, TensorType
from gpflow.utilities.parameter_or_function import evaluate_parameter_or_function

from ...validation import Check, check_all
from ..base import Site
from ..derived import delegated, described, of_base
from ..integrals.nodes import before_axes_of, whole_line
from ..law import PredictedMoments
from ..noise.residual import Gaussian
from ..noise.student_t import StudentT
from ..observations import REAL
from ..outputwise import OutputwiseLikelihood
from ..warps import Warp


class TransformedLikelihood(OutputwiseLikelihood, abc.ABC):
    """
    p(y|f, x) = t′(y) p_base(t(y) | f/unit): the augmentation is the base's.

    ``Y`` is [..., N, P] and so is f; further columns of the base's Y follow those of y.
    """

    def __init__(self, base: OutputwiseLikelihood, **kwargs: Any) -> None:
        """
        :param base: the likelihood of t(y). Its ``quadrature`` is the default.
        """
        if kwargs.get("quadrature") is None:
            kwargs["quadrature"] = base.quadrature
        super().__init__(**kwargs)
        self.base = base

    @abc.abstractmethod
    def unit(self, X: TensorType | None) -> TensorType:
        """The unit of f, which broadcasts to [..., N, P]."""

    @abc.abstractmethod
    def in_base(self, X: TensorType | None, Y: TensorType) -> tf.Tensor:
        """The Y of the base: t(y), [..., N, P], and its further columns."""

    @abc.abstractmethod
    def log_slope(self, X: TensorType | None, Y: TensorType) -> tf.Tensor:
        """log t′(y), [..., N, P]."""

    def _of_base(self, name: str, X: TensorType | None, marginals: Any, Y: TensorType) -> Any:
        """The base's method ``name`` at f/unit and t(y)."""
        in_base = self._per_unit(X, marginals)
        return getattr(self.base, name)(X, *in_base, self.in_base(X, Y))

    def _with_slope(self, name: str, X: TensorType | None, marginals: Any, Y: TensorType) -> Any:
        return self._of_base(name, X, marginals, Y) + self.log_slope(X, Y)

    def _slopes(self, name: str, X: TensorType, marginals: Any, Y: TensorType) -> Any:
        return self._per_unit(X, self._of_base(name, X, marginals, Y))

    def _per_unit(self, X: TensorType | None, parts: Sequence[TensorType]) -> tuple[tf.Tensor, ...]:
        """The first part divided by the unit, and the second by its square."""
        unit = self.unit(X)
        return tuple(part / unit**power for power, part in enumerate(parts, 1))

    pointwise_bound = pointwise_log_prob = delegated(_with_slope)
    expected_log_prob = predictive_log_density = delegated(_with_slope)
    bound_slopes = delegated(_slopes)
    auxiliary_law = _cdf = _log_survival = _predict_cdf = delegated(_of_base)

    def log_joint(
        self, X: TensorType | None, auxiliary: Any, F: TensorType, Y: TensorType
    ) -> tf.Tensor:
        of_base = self.base.log_joint(X, auxiliary, F / self.unit(X), self.in_base(X, Y))
        return of_base + self.log_slope(X, Y)

    def site(self, X: TensorType | None, auxiliary: Any, Y: TensorType) -> Site:
        return self._per_unit(X, self.base.site(X, auxiliary, self.in_base(X, Y)))


class Scaled(PredictedMoments, TransformedLikelihood):
    """
    Gaussian or Student-t noise whose scale is a function of X, made from GPflow's likelihood.

    p(y|f, x) = p_base(y/σ(x) | f/σ(x))/σ(x), the base having scale 1.

    Its ``variance``, ``scale`` and ``df`` are the same objects as in GPflow's likelihood. The base
    has no Parameters.
    """

    def __init__(
        self,
        base: Gaussian | StudentT,
        of_x: gpflow.likelihoods.Gaussian | gpflow.likelihoods.StudentT,
        **kwargs: Any,
    ) -> None:
        """
        :param base: noise of scale 1.
        :param of_x: the likelihood whose scale is used; its Parameters are shared.
        :raises ValueError: for a base with further columns of Y, which would be in another unit.
        """
        if base.given:
            raise ValueError(f"Scaled: base must take y alone. Found: {described(base)}.")
        super().__init__(base, **kwargs)
        self.variance = getattr(of_x, "variance", None)
        self.scale = of_x.scale
        self.variance_lower_bound = getattr(of_x, "variance_lower_bound", None)
        self.scale_lower_bound = of_x.scale_lower_bound

    @property
    def df(self) -> Any:
        """ν of a Student-t base; a Gaussian base has no ``df``."""
        return self.base.df

    @df.setter
    def df(self, value: Any) -> None:
        self.base.df = value

    def unit(self, X: TensorType | None) -> tf.Tensor:
        """σ(x), [..., N, broadcast P]."""
        if X is None:
            raise ValueError("X must be given: the scale of the noise is a function of it.")
        if self.variance is None:
            return evaluate_parameter_or_function(self.scale, X, lower_bound=self.scale_lower_bound)
        lowest = self.variance_lower_bound
        return tf.sqrt(evaluate_parameter_or_function(self.variance, X, lower_bound=lowest))

    def in_base(self, X: TensorType | None, Y: TensorType) -> tf.Tensor:
        return Y / self.unit(X)

    def log_slope(self, X: TensorType | None, Y: TensorType) -> tf.Tensor:
        return -tf.math.log(self.unit(X)) + tf.zeros_like(Y)

    def _predict_mean_and_var(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType
    ) -> MeanAndVariance:
        unit = self.unit(X)
        mean, variance = self.base._predict_mean_and_var(X, Fmu / unit, Fvar / unit**2)
        return unit * mean, tf.square(unit) * variance

    def draw_y(self, F: TensorType, seed: Any) -> tf.Tensor:
        raise NotImplementedError("Scaled draws y where X is known: draw_y_like(X, F, Y, seed).")

    def draw_y_like(self, X: TensorType, F: TensorType, Y: TensorType, seed: Any) -> tf.Tensor:
        return self.unit(X) * self.base.draw_y(F / self.unit(X), seed)


class Warped(TransformedLikelihood):
    r"""
    p(y|f) = t′(y) p_base(t(y)|f): a warped GP (Snelson, Rasmussen and Ghahramani 2004).

    t is increasing, and its parameters are learnt with all others. The noise is added to f, in
    units of t(y). Densities refer to y, so they include the Jacobian t′(y)::

        likelihood = Warped(StudentT(scale=0.5), warps.Tanh(num_terms=2))

    If the base is an ``Interval``, both ends are warped, and only an exact y has the Jacobian. An
    end at or beyond the limits of the domain of t counts as infinite: the lower end of a
    left-censored time, for example, may be 0 or −∞. A known variance of Gaussian noise is in units
    of t(y)².
    """

    def __init__(self, base: OutputwiseLikelihood, warp: Warp, **kwargs: Any) -> None:
        """
        :param base: a likelihood for real y, or an ``Interval``.
        :param warp: one of :mod:`~gpflow_aaci.likelihoods.warps`.
        :raises ValueError: for another base or warp.
        """
        has_c = isinstance(base, OutputwiseLikelihood) and base.prior_c is not None
        is_accepted = has_c or (isinstance(base, OutputwiseLikelihood) and base.is_interval)
        if not is_accepted or base.kind_of_y is not REAL or base.outcomes() is not None:
            found = f"{type(base).__module__.split('.')[0]}'s {type(base).__name__}"
            raise ValueError(
                "Warped: base must be an Interval, or a likelihood of a real y with one ω per "
                f"output, such as gpflow_aaci.likelihoods.StudentT. Found: {found}."
            )
        if not isinstance(warp, Warp):
            raise ValueError(f"Warped: warp must be a Warp. Found: {type(warp).__name__}.")
        super().__init__(base, **kwargs)
        self.warp = warp
        self.is_density = base.is_density and warp.is_onto
        self.given, self.latent_dim = base.given, base.latent_dim

    def unit(self, X: TensorType | None) -> float:
        return 1.0

    def in_base(self, X: TensorType | None, Y: TensorType) -> tf.Tensor:
        """t(y); infinite for an end of an interval that y cannot reach."""
        y = self._with_open_ends(Y if self.base.is_interval else self.response(Y))
        is_finite = tf.math.is_finite(y)
        z = tf.where(is_finite, self.warp.forward(tf.where(is_finite, y, self._inside(y))), y)
        if not self.base.is_interval:
            return self.with_response(z, Y)
        # Equal ends must stay equal to the last bit, which vectorised code does not promise.
        is_exact, _ = self._exact(y)
        return tf.concat([z[..., :1], tf.where(is_exact, z[..., :1], z[..., 1:])], -1)

    def log_slope(self, X: TensorType | None, Y: TensorType) -> tf.Tensor:
        """log t′(y) for an exact y; 0 for other intervals."""
        is_exact, y = self._exact(Y)
        slope = self.warp.log_slope(y)
        return tf.where(is_exact, slope, tf.zeros_like(slope))

    def _exact(self, Y: TensorType) -> tuple[tf.Tensor, tf.Tensor]:
        """Whether y is exact, [..., N, P], and y, replaced by a value in the domain of t if not."""
        if not self.base.is_interval:
            return tf.ones_like(self.response(Y), tf.bool), self.response(Y)
        is_exact = tf.equal(Y[..., :1], Y[..., 1:])
        return is_exact, tf.where(is_exact, Y[..., :1], self._inside(Y))

    def _inside(self, Y: tf.Tensor) -> tf.Tensor:
        """A y in the domain of t."""
        low = max(self.warp.lowest, min(self.warp.highest, 0.0) - 2.0)
        return tf.constant((low + min(self.warp.highest, low + 2.0)) / 2.0, Y.dtype)

    def _with_open_ends(self, Y: TensorType) -> tf.Tensor:
        """Y with ends at or beyond the limits of the range of y replaced by infinite ends."""
        infinity = tf.constant(np.inf, Y.dtype)
        Y = tf.where(self.warp.lowest >= Y, -infinity, Y)
        return tf.where(self.warp.highest <= Y, infinity, Y)

    must_be_finite = as_observed = of_base()

    def stand_in(self, Y: TensorType) -> tf.Tensor:
        return self.as_observed(self._inside(Y) + tf.zeros_like(self.response(Y)))

    def check_observations(self, Y: tf.Tensor) -> Sequence[Check]:
        if not self.base.is_interval:
            of_warp = self.warp.check_observations(self.response(Y))
            return [*self.base.check_observations(Y), *of_warp]
        lowest, highest, name = self.warp.lowest, self.warp.highest, type(self.warp).__name__
        is_inside = (lowest <= Y) & (highest >= Y) | tf.math.is_inf(Y)
        message = f"Y must be from {lowest:g} to {highest:g} for the warp {name}."
        return [
            *self.warp.check_observations(self._exact(Y)[1]),
            check_all(Y, is_inside, message),
            *self.base.check_observations(self._with_open_ends(Y)),
        ]

    def next_below(self, Y: AnyNDArray) -> AnyNDArray:
        if not self.base.is_interval:
            return super().next_below(Y)
        return self.base.next_below(np.where(self.warp.lowest >= Y, -np.inf, Y))

    def draw_y(self, F: TensorType, seed: Any) -> tf.Tensor:
        return self.warp.inverse(self.base.draw_y(F, seed))

    def draw_y_like(self, X: TensorType, F: TensorType, Y: TensorType, seed: Any) -> tf.Tensor:
        return self.warp.inverse(self.base.draw_y_like(X, F, self.in_base(X, Y), seed))

    def in_support(self, z: TensorType) -> tf.Tensor:
        return self.warp.inverse(z)

    def _conditional_mean(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return self._conditional_moments(X, F)[0]

    def _conditional_variance(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return self._conditional_moments(X, F)[1]

    def _conditional_moments(self, X: TensorType, F: TensorType) -> MeanAndVariance:
        as_observed = self.base.as_observed
        return self._moments(F, lambda z: self.base.pointwise_log_prob(X, F, as_observed(z)))

    def _predict_mean_and_var(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType
    ) -> MeanAndVariance:
        def log_density(z: tf.Tensor) -> tf.Tensor:
            none = tf.zeros_like(z + Fmu)
            at = self.base.as_observed(z + none)
            return self.base.predictive_log_density(X, Fmu + none, Fvar + none, at)

        return self._moments(Fmu + tf.zeros_like(Fvar), log_density)

    def _moments(
        self, centre: tf.Tensor, log_density: Callable[[tf.Tensor], tf.Tensor]
    ) -> MeanAndVariance:
        """
        The mean and variance of t⁻¹(z), by double-exponential quadrature over z about ``centre``.

        If a moment is infinite (heavy tails and a logarithm), the result is infinite or very large.
        """
        width = 0.4 / tf.exp(log_density(centre))
        z, weights = (before_axes_of(centre, values) for values in _NODES)
        z = centre + width * z
        # A few nodes at a time, as each may need hundreds of nodes for the integral over f.
        some = tf.reshape(z, tf.concat([[-1, _AT_ONCE], tf.shape(centre)], 0))
        log_weight = tf.map_fn(tf.autograph.experimental.do_not_convert(log_density), some)
        weight = weights * tf.exp(tf.reshape(log_weight, tf.shape(z)))
        weight /= tf.reduce_sum(weight, 0)
        # Where the density has underflowed, y may be infinite, but has no weight.
        y = tf.where(weight > 0.0, self.warp.inverse(z), centre)
        mean = tf.reduce_sum(weight * y, 0)
        is_finite = tf.math.is_finite(mean)
        spread = tf.square(y - tf.where(is_finite, mean, tf.zeros_like(mean)))
        infinity = tf.constant(np.inf, mean.dtype)
        return mean, tf.where(is_finite, tf.reduce_sum(weight * spread, 0), infinity)


_AT_ONCE = 11
_NODES = whole_line(number=9 * _AT_ONCE, highest=3.0)  # up to 3e6 widths
