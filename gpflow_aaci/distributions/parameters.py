"""Parameters of the distributions, checks of these, and two base classes."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.config import default_float

from ..validation import Check, require, some


def _to_float(value: Any, dtype: tf.DType | None) -> tf.Tensor:
    """``value`` as a floating-point tensor; ``default_float()`` if it has no dtype."""
    if dtype is None and not tf.is_tensor(value) and not hasattr(value, "dtype"):
        dtype = tf.as_dtype(default_float())
    value = tf.convert_to_tensor(value, dtype)
    return value if value.dtype.is_floating else tf.cast(value, default_float())


def parameters_of_one_dtype(**values: Any) -> dict[str, tf.Tensor]:
    """The parameters of a distribution as tensors of the first dtype that one of them has."""
    dtypes = [
        tf.as_dtype(value.dtype)
        for value in values.values()
        if hasattr(value, "dtype") and tf.as_dtype(value.dtype).is_floating
    ]
    dtype = dtypes[0] if dtypes else None
    if any(other != dtype for other in dtypes):
        found = {name: getattr(value, "dtype", None) for name, value in values.items()}
        raise TypeError(f"The parameters must be of one dtype. Found: {found}.")
    return {name: _to_float(value, dtype) for name, value in values.items()}


def check_parameter(
    owner: str, name: str, value: tf.Tensor, condition: tf.Tensor, accepted: str
) -> Check:
    """Check that ``condition`` holds for every element of ``value``; the two are broadcast."""

    def found() -> tf.Tensor:
        shape = tf.broadcast_dynamic_shape(tf.shape(value), tf.shape(condition))
        return some(tf.broadcast_to(value, shape), tf.broadcast_to(~condition, shape))

    return Check(tf.reduce_all(condition), f"{owner}: {name} must be {accepted}.", found)


def as_dependencies(checks: Sequence[Check]) -> list[tf.Tensor]:
    """The checks, for TFP: a tensor to wait for, unless they have been made eagerly."""
    checked = require(checks)
    return [] if tf.executing_eagerly() else [checked]


def positive_property() -> tfp.util.ParameterProperties:
    """For TFP: a parameter with one positive number for every member of the batch."""
    return tfp.util.ParameterProperties(
        default_constraining_bijector_fn=lambda: tfp.bijectors.Softplus()
    )


class CheckedSampling:
    """A mixin for TFP distributions; TFP's own errors do not name a bad sample shape."""

    name: str

    def sample(
        self, sample_shape: Any = (), seed: Any = None, name: str = "sample", **kwargs: Any
    ) -> tf.Tensor:
        """
        Draws, [sample_shape..., batch...]; the same for the same ``seed``.

        :raises ValueError: for a negative entry of ``sample_shape``.
        """
        static = tf.get_static_value(sample_shape) if tf.is_tensor(sample_shape) else sample_shape
        if static is not None and np.any(np.asarray(static) < 0):
            raise ValueError(
                f"{self.name}: sample_shape must not have negative entries. Found: {sample_shape}."
            )
        return super().sample(  # type: ignore[misc]
            sample_shape, seed=seed, name=name, **kwargs
        )


def flat(values: Sequence[tf.Tensor], shape: tf.Tensor) -> list[tf.Tensor]:
    """Each of ``values`` broadcast to ``shape`` as a vector, float64."""
    return [tf.reshape(tf.broadcast_to(tf.cast(v, tf.float64), shape), [-1]) for v in values]


class NumberDistribution(CheckedSampling, tfp.distributions.Distribution):
    """A distribution on the real numbers."""

    def __init__(self, arguments: dict[str, Any], **parameters: Any) -> None:
        """
        :param arguments: ``locals()`` of the subclass's constructor.
        :param parameters: stored as attributes of these names, as tensors of one dtype. Draws
            have this dtype.
        """
        with tf.name_scope(arguments["name"]):
            converted = parameters_of_one_dtype(**parameters)
            for key, value in converted.items():
                setattr(self, key, value)
            super().__init__(
                dtype=next(iter(converted.values())).dtype,
                reparameterization_type=tfp.distributions.NOT_REPARAMETERIZED,
                validate_args=arguments["validate_args"],
                allow_nan_stats=arguments["allow_nan_stats"],
                parameters=dict(arguments),
                name=arguments["name"],
            )

    def _accepted(self) -> dict[str, tuple[tf.Tensor, str]]:
        """For each parameter, a mask of accepted elements, and the accepted values in words."""
        return {}

    def _checks(self) -> list[Check]:
        return [
            check_parameter(self.name, key, getattr(self, key), *accepted)
            for key, accepted in self._accepted().items()
        ]

    def _parameter_control_dependencies(self, is_init: bool) -> list[tf.Tensor]:
        checks = self._checks() if is_init else []
        return as_dependencies(checks) if checks else []

    def _event_shape_tensor(self) -> tf.Tensor:
        return tf.constant([], tf.int32)

    def _event_shape(self) -> tf.TensorShape:
        return tf.TensorShape([])


class PositiveDistribution(NumberDistribution):
    """A distribution on the positive numbers. Subclasses define ``_tails`` in place of the cdf."""

    def _tails(self, value: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """P(ω ≤ value) and P(ω > value)."""
        raise NotImplementedError

    def _cdf(self, value: tf.Tensor) -> tf.Tensor:
        return self._tails(value)[0]

    def _survival_function(self, value: tf.Tensor) -> tf.Tensor:
        return self._tails(value)[1]

    def _log_survival_function(self, value: tf.Tensor) -> tf.Tensor:
        # Each side keeps its digits: log P(above) near 0 as log1p(−P(below)).
        below, above = self._tails(value)
        return tf.where(above > 0.5, tf.math.log1p(-tf.minimum(below, 0.5)), tf.math.log(above))

    def _default_event_space_bijector(self) -> tfp.bijectors.Bijector:
        return tfp.bijectors.Exp()
