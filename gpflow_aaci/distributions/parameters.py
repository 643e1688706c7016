"""What the distributions of a positive ω share: their parameters, and how they are checked."""

from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.config import default_float

from ..validation import Check, some


def _to_float(value: Any, dtype: tf.DType | None) -> tf.Tensor:
    """``value`` as a floating-point tensor, of ``default_float()`` where it has no dtype."""
    if dtype is None and not tf.is_tensor(value) and not hasattr(value, "dtype"):
        dtype = tf.as_dtype(default_float())
    value = tf.convert_to_tensor(value, dtype)
    return value if value.dtype.is_floating else tf.cast(value, default_float())


def parameters_of_one_dtype(**values: Any) -> dict[str, tf.Tensor]:
    """The parameters of a distribution as tensors; the first that has a dtype decides it."""
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
    """``condition`` must hold of every element."""
    return Check(
        tf.reduce_all(condition),
        f"{owner}: {name} must be {accepted}.",
        lambda: some(value, tf.broadcast_to(~condition, tf.shape(value))),
    )


def as_dependencies(checked: tf.Tensor) -> list[tf.Tensor]:
    """What ``require`` returned, for TFP: eagerly it has been checked already."""
    return [] if tf.executing_eagerly() else [checked]


def positive_property() -> tfp.util.ParameterProperties:
    """Of a parameter that is one positive number per batch member."""
    return tfp.util.ParameterProperties(
        default_constraining_bijector_fn=lambda: tfp.bijectors.Softplus()
    )


class CheckedSampling:
    """A mixin for distributions of TFP, which blames something else for a bad sample shape."""

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


class PositiveDistribution(CheckedSampling, tfp.distributions.Distribution):
    """Scalar and positive."""

    def _event_shape_tensor(self) -> tf.Tensor:
        return tf.constant([], tf.int32)

    def _event_shape(self) -> tf.TensorShape:
        return tf.TensorShape([])

    def _default_event_space_bijector(self) -> tfp.bijectors.Bijector:
        return tfp.bijectors.Exp()
