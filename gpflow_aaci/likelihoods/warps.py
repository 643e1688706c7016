"""Increasing functions t of y, for :class:`~gpflow_aaci.likelihoods.Warped`."""

import abc
from collections.abc import Sequence
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow import Parameter
from gpflow.base import TensorType
from gpflow.utilities import positive

from ..validation import Check, check_all


class Warp(gpflow.Module, abc.ABC):
    """z = t(y), elementwise."""

    is_onto: bool = True
    """Whether t reaches every real z, so that t′(y) p(t(y)) integrates to 1."""

    lowest: float = -np.inf
    """t is defined for y above this limit. A lower end of an interval at the limit counts as −∞."""

    highest: float = np.inf
    """t is defined for y below this limit. An upper end of an interval at the limit counts as ∞."""

    @abc.abstractmethod
    def forward(self, Y: TensorType) -> tf.Tensor:
        """t(y)."""

    @abc.abstractmethod
    def log_slope(self, Y: TensorType) -> tf.Tensor:
        """log t′(y)."""

    @abc.abstractmethod
    def inverse(self, Z: TensorType) -> tf.Tensor:
        """t⁻¹(z)."""

    def check_observations(self, Y: tf.Tensor) -> Sequence[Check]:
        """Check that t is defined at Y."""
        return ()


class Identity(Warp):
    """t(y) = y."""

    def forward(self, Y: TensorType) -> tf.Tensor:
        return tf.identity(Y)

    def log_slope(self, Y: TensorType) -> tf.Tensor:
        return tf.zeros_like(Y)

    def inverse(self, Z: TensorType) -> tf.Tensor:
        return tf.identity(Z)


class BoxCox(Warp):
    """t(y) = (y^power − 1)/power for y > 0, log y if power is 0 (Box and Cox 1964); fixed."""

    lowest = 0.0

    def __init__(self, power: float) -> None:
        """
        :raises ValueError: for a power that is not finite.
        """
        super().__init__()
        if not np.isfinite(power):
            raise ValueError(f"BoxCox: power must be finite. Found: {power}.")
        self.power = float(power)
        self.is_onto = self.power == 0.0

    def forward(self, Y: TensorType) -> tf.Tensor:
        log_y = tf.math.log(Y)
        return tf.math.expm1(self.power * log_y) / self.power if self.power else log_y

    def log_slope(self, Y: TensorType) -> tf.Tensor:
        return (self.power - 1.0) * tf.math.log(Y)

    def inverse(self, Z: TensorType) -> tf.Tensor:
        """t⁻¹(z); if noise moves z out of the range of t, t⁻¹ of the nearest end of the range."""
        if not self.power:
            return tf.exp(Z)
        tiny = tf.constant(np.finfo(Z.dtype.as_numpy_dtype).tiny, Z.dtype)
        return tf.exp(tf.math.log(tf.maximum(1.0 + self.power * Z, tiny)) / self.power)

    def check_observations(self, Y: tf.Tensor) -> Sequence[Check]:
        return [check_all(Y, Y > 0.0, f"Y must be positive for the warp {type(self).__name__}.")]


class Log(BoxCox):
    """t(y) = log y for y > 0."""

    def __init__(self) -> None:
        super().__init__(power=0.0)


class Logit(Warp):
    """t(y) = log(y/(1 − y)) for y in (0, 1): with Gaussian noise, y is logit-normal."""

    lowest, highest = 0.0, 1.0

    def forward(self, Y: TensorType) -> tf.Tensor:
        return tf.math.log(Y) - tf.math.log1p(-Y)

    def log_slope(self, Y: TensorType) -> tf.Tensor:
        return -tf.math.log(Y) - tf.math.log1p(-Y)

    def inverse(self, Z: TensorType) -> tf.Tensor:
        return tf.sigmoid(Z)

    def check_observations(self, Y: tf.Tensor) -> Sequence[Check]:
        message = "Y must be between 0 and 1, and neither of them, for the warp Logit."
        return [check_all(Y, (Y > 0.0) & (Y < 1.0), message)]


class Tanh(Warp):
    """
    t(y) = y + Σ_k a_k tanh(b_k (y + c_k)), a_k, b_k > 0, all learnable (Snelson et al. 2004).

    By default t is initially near the identity. Standardise y first.
    """

    def __init__(self, num_terms: int = 2, a: Any = None, b: Any = None, c: Any = None) -> None:
        """
        :param num_terms: the number of terms in the sum.
        :param a: the first values of a_k [num_terms], positive. Default: 0.1.
        :param b: the first values of b_k [num_terms], positive. Default: 1.
        :param c: the first values of c_k [num_terms]. Default: evenly spaced over [−1, 1].
        :raises ValueError: for another shape, or if a or b is not positive.
        """
        super().__init__()
        if not (isinstance(num_terms, int | np.integer) and num_terms >= 1):
            raise ValueError(f"Tanh: num_terms must be at least 1. Found: {num_terms!r}.")
        spread = np.linspace(-1.0, 1.0, num_terms) if num_terms > 1 else np.zeros(1)
        begin = {"a": np.full(num_terms, 0.1), "b": np.ones(num_terms), "c": spread}
        for name, value in (("a", a), ("b", b), ("c", c)):
            if value is not None:
                begin[name] = np.asarray(value, dtype=float)
            is_right = begin[name].shape == (num_terms,) and np.all(np.isfinite(begin[name]))
            if not is_right or (name != "c" and np.any(begin[name] <= 0.0)):
                accepted = "finite" if name == "c" else "finite and positive"
                raise ValueError(
                    f"Tanh: {name} must be {accepted}, one for each of {num_terms} terms. "
                    f"Found: {value}."
                )
        self.a = Parameter(begin["a"], transform=positive())
        self.b = Parameter(begin["b"], transform=positive())
        self.c = Parameter(begin["c"])

    def forward(self, Y: TensorType) -> tf.Tensor:
        Y = tf.convert_to_tensor(Y)
        return Y + tf.reduce_sum(self.a * tf.tanh(self._inner(Y)), -1)

    def log_slope(self, Y: TensorType) -> tf.Tensor:
        # For large arguments 1 − tanh² loses its digits, but is negligible compared with 1.
        slopes = self.a * self.b * (1.0 - tf.square(tf.tanh(self._inner(Y))))
        return tf.math.log1p(tf.reduce_sum(slopes, -1))

    def inverse(self, Z: TensorType) -> tf.Tensor:
        """t⁻¹(z) by Newton's method, safeguarded by a bracket: t(y) − y lies between ±Σa."""
        Z = tf.convert_to_tensor(Z)
        most = tf.reduce_sum(self.a)
        eps = np.finfo(Z.dtype.as_numpy_dtype).eps
        rounding = 4.0 * eps * (1.0 + tf.abs(Z) + most + tf.reduce_max(tf.abs(self.c)))

        def goes_on(low: tf.Tensor, high: tf.Tensor, y: tf.Tensor, moved: tf.Tensor) -> tf.Tensor:
            return tf.reduce_any(moved > rounding)

        def step(
            low: tf.Tensor, high: tf.Tensor, y: tf.Tensor, moved: tf.Tensor
        ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
            excess = self.forward(y) - Z
            low, high = tf.where(excess < 0.0, y, low), tf.where(excess < 0.0, high, y)
            newton = y - excess * tf.exp(-self.log_slope(y))
            move = tf.abs(newton - y)
            # Newton's steps may cycle; they are taken as long as each is at most half of the last.
            # If y is exact up to rounding, they may leave the bracket, and are taken, too.
            good = (newton > low) & (newton < high) & (move < moved / 2.0) | (move <= rounding)
            new = tf.where(good, newton, (low + high) / 2.0)
            return low, high, new, tf.abs(new - y)

        start = (Z - most, Z + most, Z, tf.fill(tf.shape(Z), tf.cast(np.inf, Z.dtype)))
        return tf.while_loop(goes_on, step, start, maximum_iterations=120)[2]

    def _inner(self, Y: TensorType) -> tf.Tensor:
        """b_k (y + c_k), [..., num_terms]."""
        return self.b * (tf.convert_to_tensor(Y)[..., None] + self.c)
