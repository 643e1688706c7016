"""Distributions ω ~ π_φ(·|c), row by row, as the inversion of Laplace transforms needs them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import tensorflow as tf

LogPhi = Callable[..., tf.Tensor]
"""log φ(r, *parameters), elementwise, real or complex."""


def cumulants(log_phi: LogPhi, r: tf.Tensor, order: int, *parameters: tf.Tensor) -> list[tf.Tensor]:
    """
    The first ``order`` cumulants of ω, (−1)^k d^k log φ/dr^k (AACI App. A.2), by nested tapes.

    A cumulant is infinite if r = 0 and the derivative does not exist.
    """
    infinity = tf.constant(float("inf"), r.dtype)
    found = derivatives(lambda r: log_phi(r, *parameters), r, order)
    return [
        tf.where((r == 0.0) & ~tf.math.is_finite(value), infinity, (-1.0) ** k * value)
        for k, value in enumerate(found[1:], start=1)
    ]


def derivatives(
    function: Callable[[tf.Tensor], tf.Tensor], r: tf.Tensor, order: int
) -> list[tf.Tensor]:
    """``function(r)`` and its first ``order`` derivatives, elementwise, by nested tapes."""
    if order == 0:
        return [function(r)]
    with tf.GradientTape() as tape:
        tape.watch(r)
        lower = derivatives(function, r, order - 1)
    gradient = tape.gradient(lower[-1], r)
    return [*lower, tf.zeros_like(r) if gradient is None else gradient]


@dataclass(frozen=True)
class TiltedLaw:
    """
    Rows of e^{−rω} π_φ(ω|0) / φ(r); every tensor is [n], float64.

    The Laplace transform of a row is φ(s + r)/φ(r), taken in logarithms.
    """

    log_phi: LogPhi
    r: tf.Tensor
    parameters: tuple[tf.Tensor, ...]
    log_phi_r: tf.Tensor
    mean: tf.Tensor
    stddev: tf.Tensor

    @classmethod
    def at(cls, log_phi: LogPhi, r: tf.Tensor, *parameters: tf.Tensor) -> "TiltedLaw":
        mean, variance = cumulants(log_phi, r, 2, *parameters)
        # Rounding may make the variance of a point mass negative.
        stddev = tf.sqrt(tf.nn.relu(variance))
        return cls(log_phi, r, parameters, log_phi(r, *parameters), mean, stddev)

    def rows(self, index: tf.Tensor) -> "TiltedLaw":
        """The rows at ``index`` [m]."""
        of_rows = (self.r, self.parameters, self.log_phi_r, self.mean, self.stddev)
        return TiltedLaw(
            self.log_phi, *tf.nest.map_structure(lambda value: tf.gather(value, index), of_rows)
        )

    @property
    def is_point(self) -> tf.Tensor:
        """[n], true if ω has a single value up to rounding, as for the Gaussian likelihood."""
        return tf.math.is_finite(self.mean) & (self.stddev <= 1e-8 * self.mean)

    def log_transform(self, s: tf.Tensor) -> tf.Tensor:
        """
        log E e^{−sω} = log φ(s + r) − log φ(r) for s [n, K], real or complex.

        :raises ValueError: if ``log_phi`` does not take complex arguments.
        """
        r, log_phi_r = (tf.cast(value[:, None], s.dtype) for value in (self.r, self.log_phi_r))
        parameters = [value[:, None] for value in self.parameters]
        try:
            log_phi = tf.convert_to_tensor(self.log_phi(s + r, *parameters))
            if log_phi.dtype != s.dtype:
                raise TypeError(f"it returns {log_phi.dtype.name} for {s.dtype.name}")
        except (TypeError, ValueError, tf.errors.OpError) as error:
            reason = str(error).splitlines()[0]
            raise ValueError(
                "log_phi must take complex128 as well as float64, as the Laplace transform is "
                "inverted along a complex line: write tf.cast(parameter, r.dtype), and log1p, "
                f"sqrt, log, expm1 rather than softplus or abs. Found: {reason}."
            ) from error
        return log_phi - log_phi_r


_BLOCK = 1 << 15
"""How many rows are inverted at a time: each needs some 3 kB of memory."""


def in_blocks(
    function: Callable[[TiltedLaw, tf.Tensor], Sequence[tf.Tensor]],
    law: TiltedLaw,
    x: tf.Tensor,
    num_results: int,
) -> Sequence[tf.Tensor]:
    """Call ``function(law, x)`` on blocks of rows; return ``num_results`` tensors like x [n]."""
    n = tf.size(x)

    def advance(start: tf.Tensor, results: Sequence[tf.Tensor]) -> tuple[tf.Tensor, ...]:
        rows = tf.range(start, tf.minimum(start + _BLOCK, n))
        found = function(law.rows(rows), tf.gather(x, rows))
        results = tuple(
            tf.tensor_scatter_nd_update(result, rows[:, None], values)
            for result, values in zip(results, found, strict=True)
        )
        return start + _BLOCK, results

    start = (tf.constant(0), tuple(tf.zeros_like(x) for _ in range(num_results)))
    return tf.while_loop(lambda start, _: start < n, advance, start)[1]
