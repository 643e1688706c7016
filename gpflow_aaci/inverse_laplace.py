r"""
The distribution of a positive variable ω from its Laplace transform M(s) = E e^{−sω}.

There are two rules. Both sum over nodes on one vertical line, so that a batch may use both:

* Euler (Abate and Whitt 1995; Abate, Choudhury and Whitt 2000, Sec. 4), nodes (A/2 + iπk)/x:
  the Bromwich integral by the trapezoidal rule, with binomial averaging of its alternating
  series. It is used for all distributions that are not narrow.
* Fourier (Gil-Pelaez 1951; Davies 1973), nodes i(k + ½)h/sd. It is used for narrow
  distributions. For these Euler's series does not yet alternate at its last term, but E e^{itω} has
  decayed there.

For gamma and inverse Gaussian distributions with coefficients of variation from 0.01 to 100, at
quantiles from 1e-6 to 1 − 1e-6, the measured error of the cdf is below 1e-8. Between 1e-3 and
1 − 1e-3 it is below 2e-7 of x times the density, so that the relative error of a quantile is below
2e-7.
"""

from collections.abc import Callable
from math import comb
from typing import NamedTuple

import numpy as np
import tensorflow as tf

LogTransform = Callable[[tf.Tensor], tf.Tensor]
"""log E e^{−sω} for s [n, K], Re s ≥ 0; complex128 to complex128, modulo 2πi."""

NUM_NODES = 33
_PLAIN, _AVERAGED = 18, 14  # terms with weight 1, and terms with binomial weights
_A = 20.0  # e^{−A} is the discretisation error, e^{A/2} eps the rounding error
_STEP = 0.33  # a period of 19 standard deviations
_NARROW = 0.2  # coefficient of variation at which both rules are accurate
_WINDOW = (-7.0, 12.0)  # in standard deviations; outside is less than 1e-8 of a narrow ω


class Inverse(NamedTuple):
    """The distribution of ω at x [n]; every field is [n] in float64."""

    cdf: tf.Tensor
    survival: tf.Tensor  # 1 − cdf, computed without this subtraction
    density: tf.Tensor
    slope: tf.Tensor  # the derivative of the density
    error: tf.Tensor  # an estimate of the error of the cdf


def _euler_table() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """
    The factors of Re M and Im M, [K, 4] each, and the value of the cdf for M = 1.

    The four columns give the cdf, density·x, slope·x² and the error. A function with the transform
    f̂ is f(x) ≈ Σ_k w_k Re f̂(u_k/x)/x with u_k = A/2 + iπk; here f̂ is M(s)/s, M(s) or s M(s).
    """
    k = np.arange(NUM_NODES)
    u = _A / 2.0 + 1j * np.pi * k

    def weights(plain: int) -> np.ndarray:
        tail = [
            sum(comb(_AVERAGED, i) for i in range(j, _AVERAGED + 1)) / 2.0**_AVERAGED
            for j in range(1, _AVERAGED + 1)
        ]
        w = np.concatenate([np.ones(plain + 1), tail, np.zeros(_PLAIN - plain)])
        w[0] = 0.5
        return np.exp(_A / 2.0) * (-1.0) ** k * w

    w = weights(_PLAIN)
    columns = [w / u, w + 0j, w * u, (w - weights(_PLAIN - 1)) / u]
    # Re(M v) = Re M Re v − Im M Im v
    table = np.stack(columns, axis=1)
    return table.real, -table.imag, np.array(table[:, 0].real.sum())


def _fourier_table() -> tuple[np.ndarray, np.ndarray]:
    """The factors [K, 4] of Re and Im of M e^{sx}, for cdf − ½, density·sd, slope·sd² and 0."""
    k = np.arange(NUM_NODES) + 0.5
    zero = np.zeros(NUM_NODES)
    real = [zero, zero + _STEP / np.pi, zero, zero]
    imaginary = [1.0 / (np.pi * k), zero, -k * _STEP**2 / np.pi, zero]
    return np.stack(real, axis=1), np.stack(imaginary, axis=1)


_EULER_REAL, _EULER_IMAG, _EULER_OF_ONE = _euler_table()
_FOURIER_REAL, _FOURIER_IMAG = _fourier_table()


def invert(
    log_transform: LogTransform, x: tf.Tensor, mean: tf.Tensor, stddev: tf.Tensor
) -> Inverse:
    """
    Return the cdf, survival function and density of ω at x, with an estimate of the error.

    :param log_transform: log E e^{−sω}, row by row, see ``LogTransform``.
    :param x: [n], float64, positive and finite.
    :param mean: [n], the mean of ω; may be infinite.
    :param stddev: [n], the standard deviation of ω, positive; may be infinite.
    """
    narrow = tf.math.is_finite(stddev) & (stddev < _NARROW * mean)
    z = tf.where(narrow, (x - mean) / tf.where(narrow, stddev, tf.ones_like(x)), tf.zeros_like(x))
    below, above = z < _WINDOW[0], z > _WINDOW[1]
    x = tf.where(below | above, mean, x)
    unit = tf.where(narrow, stddev, x)

    k = tf.range(NUM_NODES, dtype=x.dtype)
    steps = tf.where(narrow[:, None], (k + 0.5) * _STEP, k * np.pi)
    imaginary = steps / unit[:, None]
    real = tf.where(narrow, tf.zeros_like(x), _A / 2.0 / unit)[:, None]
    s = tf.complex(tf.broadcast_to(real, tf.shape(imaginary)), imaginary)
    # The Fourier rule needs M e^{sx}; the weights of Euler's rule contain e^{sx}.
    phase = tf.where(narrow[:, None], imaginary * x[:, None], tf.zeros_like(imaginary))
    M = tf.exp(log_transform(s) + tf.complex(tf.zeros_like(phase), phase))

    M_real, M_imag = tf.math.real(M), tf.math.imag(M)
    euler = M_real @ _EULER_REAL + M_imag @ _EULER_IMAG
    fourier = M_real @ _FOURIER_REAL + M_imag @ _FOURIER_IMAG
    cdf = tf.where(narrow, fourier[:, 0] + 0.5, euler[:, 0])
    survival = tf.where(narrow, 0.5 - fourier[:, 0], _EULER_OF_ONE - euler[:, 0])
    density = tf.where(narrow, fourier[:, 1], euler[:, 1]) / unit
    slope = tf.where(narrow, fourier[:, 2], euler[:, 2]) / tf.square(unit)
    # The terms after the last one of a Fourier series sum to less than 10/(πK) times that term.
    last = tf.sqrt(tf.square(M_real[:, -1]) + tf.square(M_imag[:, -1])) / 10.0
    error = tf.where(narrow, last, tf.abs(euler[:, 3]))
    # A clearly negative "density" shows that M is not the transform of a distribution.
    error = tf.maximum(error, tf.maximum(-cdf, cdf - 1.0))
    error = tf.maximum(error, -0.01 * density * unit)

    zero, one = tf.zeros_like(x), tf.ones_like(x)
    outside = below | above
    return Inverse(
        tf.where(below, zero, tf.where(above, one, tf.clip_by_value(cdf, 0.0, 1.0))),
        tf.where(below, one, tf.where(above, zero, tf.clip_by_value(survival, 0.0, 1.0))),
        tf.where(outside, zero, density),
        tf.where(outside, zero, slope),
        error,
    )
