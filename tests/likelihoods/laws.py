"""
Laws of y by brute force, from the textbook densities of ``cases`` and ``zoo`` alone.

A discrete law is a sum over its values; a real one is an integral by the trapezoidal rule in the
logarithm of the distance from y, outwards from the mode, so that small probabilities of either tail
have their digits.
"""

import numpy as np
import scipy.special
import tensorflow as tf
from cases import Case
from gpflow.base import AnyNDArray
from zoo import Member

from gpflow_aaci.likelihoods import AugmentedLikelihood

AnyCase = Case | Member

F = np.array([0.4, -0.3, 0.9])
"""The means of up to three latent GPs."""

_STEP = 0.2
_DISTANCES = np.exp(np.arange(-40.0, 60.0, _STEP))  # from y; equidistant logarithms
_SHARES = scipy.special.expit(np.arange(-60.0, 60.0, _STEP))  # of a finite range beside y
_OTHERS = np.sinh(np.linspace(-10.0, 10.0, 161))  # values of a second column of y
_LOG_OF_OTHERS = np.log(20.0 / 160.0 * np.hypot(1.0, _OTHERS))  # their weights in an integral
_NODES = np.linspace(-8.5, 8.5, 121)  # of an uncertain f, in standard deviations


def log_density_of(case: AnyCase, x: AnyNDArray, f: AnyNDArray, Y: AnyNDArray) -> AnyNDArray:
    """log p(y|f) [...] of rows x [..., D], f [..., L] and Y [..., P]; −∞ where y is impossible."""
    with np.errstate(all="ignore"):
        if isinstance(case, Member):
            found = case.log_density(x, f, Y)
        else:
            found = np.vectorize(case.log_density)(*np.broadcast_arrays(Y[..., 0], f[..., 0]))
    found = np.reshape(found, np.broadcast_shapes(x.shape[:-1], f.shape[:-1], Y.shape[:-1]))
    return np.where(np.isnan(found), -np.inf, found)


class Law:
    """
    The law of the first column of y at one x.

    The further columns of Y are those of a predicted y. f is ``F``, or normal with the mean ``F``.
    """

    def __init__(self, case: AnyCase, likelihood: AugmentedLikelihood, x: float, sd: float) -> None:
        """
        :param likelihood: says what Y holds beside y, and which values y has.
        :param sd: the standard deviation of f, or 0.
        """
        L = getattr(case, "num_latents", 1)
        self._case, self._x = case, np.array([x])
        num_y = likelihood.num_observed(L) - likelihood.num_given
        rest = likelihood.as_observed(tf.ones([1, num_y], tf.float64))[0, num_y:]
        self._rest, self._has_other = rest.numpy(), num_y == 2
        self._has_ends = getattr(case, "coarsened", None) is not None
        nodes = _NODES if sd else np.zeros(1)
        self._f = F[:L] + sd * nodes[:, None]
        weight = np.exp(-0.5 * np.square(nodes))
        self._log_weight = np.log(weight / weight.sum())
        self.values: AnyNDArray | None = None
        """All that y may be, for a discrete y."""
        if likelihood.labels is not None:
            self.values = np.asarray(likelihood.labels, dtype=float)
            log_p = self._given_f(self.values)
            log_p -= scipy.special.logsumexp(log_p, axis=0)  # of a pseudo-likelihood
        elif likelihood.outcomes() is not None:
            self.values = np.arange(40_000.0 if sd else 4_000.0)
            log_p = self._given_f(self.values)
        if self.values is not None:
            self._log_p = self._mean(log_p)
            self.ends = float(self.values[0]), float(self.values[-1])
            return
        self.ends = (
            0.0 if self.log_density(-1.0) == -np.inf else -np.inf,
            1.0 if self.log_density(1.5) == -np.inf else np.inf,
        )

    def log_density(self, y: float) -> float:
        if self.values is not None:
            is_y = self.values == y
            return float(self._log_p[is_y][0]) if is_y.any() else -np.inf
        return float(self._log_densities(np.array([y]))[0])

    def tails(self, y: float) -> tuple[float, float]:
        """P(y' ≤ y) and P(y' > y), with small relative errors, too, of the smaller one."""
        if self.values is not None:
            p, is_below = np.exp(self._log_p), self.values <= y
            return float(p[is_below].sum()), float(p[~is_below].sum())
        if y <= self.ends[0] or y >= self.ends[1]:
            return (0.0, 1.0) if y <= self.ends[0] else (1.0, 0.0)
        step = 1e-6 * (1.0 + abs(y))
        falls = self.log_density(y + step) < self.log_density(y - step)
        tail = self._outwards(y, self.ends[int(falls)])
        return (1.0 - tail, tail) if falls else (tail, 1.0 - tail)

    def _outwards(self, y: float, end: float) -> float:
        if np.isinf(end):
            weights, nodes = _DISTANCES, y + np.sign(end) * _DISTANCES
        else:
            width = abs(end - y)
            weights = width * _SHARES * (1.0 - _SHARES)
            nodes = end + np.sign(y - end) * width * _SHARES
        return float(_STEP * np.sum(weights * np.exp(self._log_densities(nodes))))

    def _log_densities(self, y: AnyNDArray) -> AnyNDArray:
        """log p(y) [K]."""
        return self._mean(self._given_f(y))

    def _mean(self, log_p: AnyNDArray) -> AnyNDArray:
        return scipy.special.logsumexp(log_p + self._log_weight, axis=1)

    def _given_f(self, y: AnyNDArray) -> AnyNDArray:
        """log p(y|f) [K, nodes of f]."""
        y = y[:, None, None] + np.zeros_like(self._f[:, :1])
        if self._has_ends:
            return log_density_of(self._case, self._x, self._f, np.concatenate([y, y], -1))
        if self._has_other:
            other = _OTHERS[:, None, None, None] + np.zeros_like(y)
            Y = np.concatenate([y + np.zeros_like(other), other], -1)
            log_p = log_density_of(self._case, self._x, self._f, Y)
            return scipy.special.logsumexp(log_p + _LOG_OF_OTHERS[:, None, None], axis=0)
        Y = np.concatenate([y, *(v + np.zeros_like(y) for v in self._rest)], -1)
        return log_density_of(self._case, self._x, self._f, Y)
