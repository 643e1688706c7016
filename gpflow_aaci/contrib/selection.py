r"""
Which inputs matter: a spike and a slab on the inverse lengthscales of a kernel.

γ_d ~ Bernoulli(π_d) says whether f depends on column d of X. Where γ_d = 1, the lengthscale l_d has
its prior, the slab; where γ_d = 0, 1/l_d is 0 (Savitsky, Vannucci and Sha, *Variable selection for
nonparametric Gaussian process priors*, Statistical Science 2011). Given the auxiliary variables ω
f is integrated out, so that p(γ_d | ω, y, rest) ∝ N(ỹ | μ₀, K_γ + R) p(γ_d).
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow import Parameter
from gpflow.kernels import Kernel, Stationary

from ..validation import as_default_float
from .moves import LogDensity, slice_move
from .starts import drawn_from_prior

_CANDIDATES = 4  # lengthscales from which one update of a column chooses
_EXCLUDED = 1e12  # l_d where γ_d = 0, in ranges of the column: k differs by less than 1e-12


def checked_probabilities(selection: float | Sequence[float]) -> tf.Tensor:
    """
    :raises ValueError: unless ``selection`` is one probability in (0, 1), or a list of them.
    """
    probabilities = as_default_float(selection, "selection")
    inside = (probabilities > 0.0) & (probabilities < 1.0)
    if probabilities.shape.rank > 1 or not tf.reduce_all(inside):
        raise ValueError(
            "selection must be the prior probability that a column of X is included, above 0 and "
            f"below 1, or a list of one for each column. Found: {selection}."
        )
    return probabilities


class InputSelection:
    """
    Which columns of X a kernel depends on, with updates of them and of their lengthscales.

    The lengthscales of excluded columns keep their prior (Kuo and Mallick, Sankhyā B 1998): all
    lengthscales are in ``_slab``, and the kernel has those of included columns.
    """

    def __init__(self, kernel: Kernel, X: tf.Tensor, selection: float | Sequence[float]) -> None:
        """
        :raises ValueError: for a kernel without one lengthscale for each column, for lengthscales
            that are fixed, that must be small, or whose prior is joint, and for another number of
            probabilities than of columns.
        """
        self._lengthscales = lengthscales = _lengthscales_of(kernel)
        D = int(lengthscales.shape[0])
        probabilities = checked_probabilities(selection)
        if probabilities.shape not in ([], [D]):
            raise ValueError(
                f"selection must have one probability for each of the {D} columns of the kernel. "
                f"Found: {len(probabilities)}."
            )
        self._probabilities = tf.broadcast_to(probabilities, [D])
        X = kernel.slice(X, None)[0]
        ranges = tf.reduce_max(X, 0) - tf.reduce_min(X, 0)
        excluded = _EXCLUDED * tf.where(ranges > 0.0, ranges, tf.ones_like(ranges))
        # As an array: from its own tensor a bijector would return the cached argument.
        self._excluded = lengthscales.transform.inverse(excluded).numpy()
        if not np.allclose(lengthscales.transform.forward(self._excluded), excluded):
            raise ValueError(
                "kernel.lengthscales must have a transform that allows large values, such as "
                f"gpflow.utilities.positive(). Found: {lengthscales.transform.name}."
            )
        self._slab = Parameter(lengthscales)
        self._included = tf.Variable(tf.ones([D], tf.bool), trainable=False)

    @property
    def included(self) -> tf.Tensor:
        """γ [D], 0 or 1."""
        return tf.cast(self._included, tf.int64)

    def restart(self, seed: Any, dispersed: bool) -> None:
        """Take the kernel's lengthscales, and include all columns or draw γ from its prior."""
        self._slab.unconstrained_variable.assign(self._lengthscales.unconstrained_variable)
        (seed,) = tfp.random.split_seed(seed, n=1, salt="included")
        law = tfp.distributions.Bernoulli(probs=self._probabilities, dtype=tf.bool)
        self._included.assign(law.sample(seed=seed) | (not dispersed))
        self._give_to_kernel()

    def move(self, log_density: LogDensity, parameters: Sequence[Parameter], seed: Any) -> None:
        """Update γ, then all ``parameters``, the kernel's lengthscales among them, by slices."""
        of_gamma, of_slice = tfp.random.split_seed(seed, n=2, salt="input_selection")
        self._choose(log_density, of_gamma)

        def of_slab() -> tf.Tensor:
            self._give_to_kernel()
            return log_density()

        moved = [self._slab if p is self._lengthscales else p for p in parameters]
        slice_move(of_slab, moved, of_slice)
        self._give_to_kernel()  # until here the kernel has those of the last proposal

    def _give_to_kernel(self) -> None:
        slab = self._slab.unconstrained_variable
        values = tf.where(self._included, slab, self._excluded)
        self._lengthscales.unconstrained_variable.assign(values)

    def _choose(self, log_density: LogDensity, seed: Any) -> None:
        """
        For each column draw γ_d and l_d from K candidates l¹, …, l^K.

        l¹ is the present lengthscale, and the others are drawn from the prior. (γ_d, k) has weight
        π_d p(ỹ|l_d = l^k) where γ_d = 1, and (1 − π_d) p(ỹ|1/l_d = 0) where γ_d = 0, as in
        Algorithm 8 of Neal (2000).
        """
        K, (D,) = _CANDIDATES, self._included.shape
        of_prior, of_choice = tfp.random.split_seed(seed, n=2)
        fresh = tf.debugging.assert_all_finite(
            [drawn_from_prior(self._slab, own) for own in tfp.random.split_seed(of_prior, n=K - 1)],
            "draws from the prior of kernel.lengthscales must be positive",
        )
        log_odds = tf.math.log(self._probabilities) - tf.math.log1p(-self._probabilities)

        def log_p(values: tf.Tensor) -> tf.Tensor:
            self._lengthscales.unconstrained_variable.assign(values)
            value = log_density()
            return tf.where(tf.math.is_nan(value), tf.constant(-np.inf, value.dtype), value)

        def choose(state: Any, update: Any) -> tuple[tf.Tensor, tf.Tensor]:
            (included, slab), (column, own_seed) = state, update
            here = tf.one_hot(column, D, True, False)
            candidates = tf.concat([slab[column][None], fresh[:, column]], 0)
            others = tf.where(included, slab, self._excluded)
            of_on = [log_p(tf.where(here, candidates[k], others)) for k in range(K)]
            of_off = log_p(tf.where(here, self._excluded, others))
            logits = tf.concat([log_odds[column] + of_on, tf.fill([K], of_off)], 0)
            choice = tf.random.stateless_categorical(logits[None], 1, own_seed)[0, 0]
            slab = tf.where(here, candidates[choice % K], slab)
            return tf.where(here, choice < K, included), slab

        state = tf.identity(self._included), tf.identity(self._slab.unconstrained_variable)
        updates = tf.range(D), tf.stack(tfp.random.split_seed(of_choice, n=D))
        # One after another, as all of them assign to the kernel.
        included, slab = tf.foldl(choose, updates, initializer=state, parallel_iterations=1)
        self._included.assign(included)
        self._slab.unconstrained_variable.assign(slab)


def _lengthscales_of(kernel: Kernel) -> Parameter:
    """The lengthscales [D] of a kernel with one for each column."""
    if not isinstance(kernel, Stationary) or not kernel.ard:
        found = type(kernel).__name__ + " with one lengthscale" * isinstance(kernel, Stationary)
        raise ValueError(
            "kernel must be a single stationary kernel with a lengthscale for each column, such as "
            f"gpflow.kernels.Matern52(lengthscales=[1.0, 1.0]), for selection. Found: {found}."
        )
    lengthscales = kernel.lengthscales
    if not lengthscales.trainable or lengthscales.prior.event_shape.rank:
        found = "a joint prior" if lengthscales.trainable else "trainable=False"
        raise ValueError(
            "kernel.lengthscales must be trainable, with a prior of each by itself, for selection. "
            f"Found: {found}."
        )
    return lengthscales
