"""The tilted family of any φ, from log φ alone."""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
import tensorflow_probability as tfp

from ..validation import Check, shown
from .inverted import InvertedDistribution
from .law import cumulants
from .parameters import check_parameter, positive_property

tfd = tfp.distributions


class TiltedDistribution(InvertedDistribution):
    r"""
    π_φ(ω|c) = e^{−c²ω} π_φ(ω|0) / φ(c²), where φ(r) = ∫ e^{−rω} π_φ(ω|0) dω (AACI Eq. 6-7).

    Only its Laplace transform φ(s + c²)/φ(c²) is needed: cumulants are derivatives of log φ
    at c², cdf and density are found by inverting the transform, quantiles and draws by inverting
    the cdf (see ``inverse_laplace`` and ``distributions.quantile``).

    >>> TiltedDistribution(lambda r: -tf.sqrt(r), c=2.0).mean()  # φ(r) = e^{−√r}: 1/(2c)
    """

    def __init__(
        self,
        log_phi: Callable[..., tf.Tensor],
        c: Any,
        validate_args: bool = False,
        allow_nan_stats: bool = True,
        name: str = "TiltedDistribution",
        phi_parameters: Sequence[Any] = (),
    ) -> None:
        """
        :param log_phi: ``log_phi(r, *phi_parameters)``, elementwise. It is called with float64 for
            the moments, and with complex128 and Re r > 0 for everything else.
        :param c: [batch...], finite and non-negative. Draws have its dtype.
        :param phi_parameters: further arguments of φ, each to be broadcast to [batch...].
        :raises ValueError: for any other c, and if φ cannot be completely monotone at c²: E[ω] must
            be positive, and Var[ω] non-negative.
        """
        if not callable(log_phi):
            raise ValueError(f"{name}: log_phi must be a function of r. Found: {shown(log_phi)}.")
        self.log_phi = log_phi
        self._phi_parameters = [tf.convert_to_tensor(p) for p in phi_parameters]
        self._names = [f"phi_parameters[{k}]" for k in range(len(phi_parameters))]
        super().__init__(locals(), c=c)

    def _checks(self) -> list[Check]:
        c = self.c
        accepted = tf.math.is_finite(c) & (c >= 0.0)
        r = tf.square(tf.cast(tf.where(accepted, c, tf.ones_like(c)), tf.float64))
        parameters = self._law_parameters()[1:]
        log_phi = self.log_phi(r, *parameters)
        mean, variance = cumulants(self.log_phi, r, 2, *parameters)
        monotone = (mean > 0.0) & (variance >= -1e-9 * tf.square(mean)) & (log_phi <= 0.0)
        return [
            check_parameter(self.name, "c", c, accepted, "finite and non-negative"),
            check_parameter(
                self.name,
                "log_phi",
                tf.stack([r, log_phi, mean, variance], axis=-1),
                monotone[..., None],
                "the logarithm of a completely monotone function, φ(0) = 1: log φ ≤ 0, "
                "E[ω] = −(log φ)' > 0, Var[ω] = (log φ)'' ≥ 0; compare c², log φ, E, Var",
            ),
        ]

    @classmethod
    def _parameter_properties(cls, dtype: tf.DType, num_classes: int | None = None) -> dict:
        return {"c": positive_property()}
