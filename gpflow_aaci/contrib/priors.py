r"""
Point processes as priors on inducing points, for ``Parameter.prior``: points that repel each other.

Both densities are unnormalised, and over unbounded inputs their integrals are infinite, so give Z a
transform onto a box. A uniform prior needs one too. For independent normal priors use TFP::

    Z = model.inducing_variable.Z
    Z.prior = tfp.distributions.Normal(to_default_float(0.0), to_default_float(1.0))

    low, high = to_default_float(X.min(0)), to_default_float(X.max(0))  # Z strictly between them
    box = tfp.bijectors.Sigmoid(low, high)
    uniform = tfp.distributions.Uniform(low, high)
    model.inducing_variable.Z = gpflow.Parameter(Z, transform=box, prior=uniform)

Both are taken from *Sparse Gaussian Processes Revisited* (Rossi, Heinonen, Bonilla, Shen and
Filippone, AISTATS 2021).
"""

from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.config import default_float
from gpflow.kernels import Kernel, MultioutputKernel

from ..models.shared import with_jitter
from ..validation import check_positive

__all__ = ["Determinantal", "Strauss"]


def _no_properties(cls: type, dtype: Any, num_classes: Any = None) -> dict[str, Any]:
    """TFP warns of a class that has an ``__init__`` and inherits ``_parameter_properties``."""
    return {}


class _PointProcess(tfp.distributions.Distribution):
    """A distribution over points [M, D] that knows log p up to a constant and cannot be sampled."""

    def __init__(self, **parameters: Any) -> None:
        super().__init__(
            dtype=default_float(),
            reparameterization_type=tfp.distributions.NOT_REPARAMETERIZED,
            validate_args=False,
            allow_nan_stats=True,
            parameters=parameters,
        )

    def _event_shape(self) -> tf.TensorShape:
        return tf.TensorShape([None, None])


class Determinantal(_PointProcess):
    """
    p(Z) ∝ det K_ZZ, which is 0 if the kernel does not distinguish two of the points.

    K_ZZ is computed at the kernel's current hyperparameters θ. If these are sampled with Z, their
    joint prior is p(θ, Z) ∝ p(θ) det K_ZZ(θ). To keep the present θ, pass a copy of the kernel
    (``gpflow.utilities.deepcopy``). Being part of this prior does not make a kernel trainable::

        low, high = to_default_float(X.min(0)), to_default_float(X.max(0))
        model.inducing_variable.Z = gpflow.Parameter(
            Z, transform=tfp.bijectors.Sigmoid(low, high), prior=Determinantal(model.kernel)
        )
    """

    # Otherwise the kernel's variables would be among the variables of the model.
    _TF_MODULE_IGNORED_PROPERTIES = tfp.distributions.Distribution._TF_MODULE_IGNORED_PROPERTIES | {
        "_kernel",
        "_parameters",
        "_initial_parameter_control_dependencies",
    }

    _parameter_properties: Any = classmethod(_no_properties)

    def __init__(self, kernel: Kernel) -> None:
        """
        :param kernel: a kernel with one output; GPflow's jitter is added to K_ZZ.
        :raises ValueError: for any other kernel.
        """
        if not isinstance(kernel, Kernel) or isinstance(kernel, MultioutputKernel):
            raise ValueError(
                f"kernel must be a single-output kernel. Found: {type(kernel).__name__}."
            )
        self._kernel = kernel
        super().__init__(kernel=kernel)

    def _log_prob(self, Z: tf.Tensor) -> tf.Tensor:
        """[], of Z [M, D]."""
        return tf.linalg.logdet(with_jitter(self._kernel, Z)[0])


class Strauss(_PointProcess):
    """
    p(Z) ∝ gamma^(number of pairs closer than R): each such pair costs −log gamma (Strauss 1975).

    A number of pairs has no gradient, so a pair at distance d counts σ((R² − d²) / (2 R s)), which
    is close to σ((R − d) / s) near R and tends to 1 or 0 as s → 0::

        prior = Strauss(radius=0.5, gamma=0.1)
    """

    _parameter_properties: Any = classmethod(_no_properties)

    def __init__(self, radius: float, gamma: float, softness: float = 0.1) -> None:
        """
        :param radius: R, in units of the inputs.
        :param gamma: in (0, 1). A smaller gamma makes close pairs rarer.
        :param softness: s/R.
        :raises ValueError: for numbers out of range.
        """
        check_positive("radius", radius)
        check_positive("softness", softness)
        if not 0.0 < gamma < 1.0:
            raise ValueError(f"gamma must be in (0, 1). Found: {gamma!r}.")
        self._radius, self._gamma, self._softness = radius, gamma, softness
        super().__init__(radius=radius, gamma=gamma, softness=softness)

    def _log_prob(self, Z: tf.Tensor) -> tf.Tensor:
        """[], of Z [M, D]."""
        squares = tf.reduce_sum(tf.square(Z[:, None] - Z[None]), -1)
        closeness = 0.5 * (1.0 - squares / self._radius**2) / self._softness
        count = tf.reduce_sum(tf.linalg.band_part(tf.sigmoid(closeness), 0, -1))
        diagonal = tf.reduce_sum(tf.sigmoid(tf.linalg.diag_part(closeness)))  # pairs (i, i)
        return float(np.log(self._gamma)) * (count - diagonal)
