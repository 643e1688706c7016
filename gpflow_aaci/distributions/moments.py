"""Cumulants and moments of laws of ω, and how one follows from the other."""

import math
from collections.abc import Sequence

import tensorflow as tf

HIGHEST = 4  # the order up to which laws have cumulants


class WithCumulants:
    """A mixin for distributions of ω. Subclasses define ``_cumulants``."""

    def cumulant(self, order: int) -> tf.Tensor:
        """
        The cumulant of ω of the given order, [batch...]; infinite where it does not exist.

        :raises ValueError: unless 1 ≤ order ≤ 4.
        """
        check_order(order)
        return self._cumulants(order)[-1]

    def moment(self, order: int) -> tf.Tensor:
        """
        E ω^order, [batch...]; infinite where it does not exist.

        :raises ValueError: unless 1 ≤ order ≤ 4.
        """
        check_order(order)
        return moments(self._cumulants(order))[-1]

    def _cumulants(self, order: int) -> list[tf.Tensor]:
        """The cumulants of the orders 1 … ``order``."""
        raise NotImplementedError


def check_order(order: int) -> None:
    """
    :raises ValueError: unless 1 ≤ order ≤ 4.
    """
    if order not in range(1, HIGHEST + 1):
        raise ValueError(f"order must be from 1 to {HIGHEST}. Found: {order}.")


def moments(cumulants: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """The raw moments of the same orders: m_n = Σ_k C(n−1, k−1) κ_k m_{n−k} (AACI App. A.2)."""
    found = [tf.ones_like(cumulants[0])]
    for n in range(1, len(cumulants) + 1):
        parts = [math.comb(n - 1, k - 1) * cumulants[k - 1] * found[n - k] for k in range(1, n + 1)]
        found.append(tf.add_n(parts))
    return found[1:]


def cumulants(moments: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """The inverse of :func:`moments`; infinite from the first infinite moment on."""
    found: list[tf.Tensor] = []
    for n in range(1, len(moments) + 1):
        known = [1.0, *moments]
        parts = [math.comb(n - 1, k - 1) * found[k - 1] * known[n - k] for k in range(1, n)]
        value = moments[n - 1] - tf.add_n(parts) if parts else moments[n - 1]
        found.append(tf.where(tf.math.is_finite(moments[n - 1]), value, moments[n - 1]))
    return found
