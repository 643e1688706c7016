"""Ordered classes: y says between which edges a noisy copy of f lies."""

from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow import Parameter
from gpflow.base import TensorType

from ..declared import REQUIRED, Argument, positive
from ..interval import IntervalLikelihood
from ..law import PredictedMoments
from ..observations import Kind, labels_from_0
from ..parameters import as_numbers


def _take_edges(likelihood: Any, name: str, value: Any) -> None:
    edges = as_numbers(value)
    increases = edges.ndim == 1 and len(edges) > 0 and bool(np.all(np.isfinite(edges)))
    if not (increases and bool(np.all(np.diff(edges) > 0.0))):
        raise ValueError(
            f"Ordinal: {name} must be one or more finite numbers that increase. Found: {value!r}."
        )
    if not isinstance(value, Parameter):
        value = Parameter(edges, transform=tfp.bijectors.Ascending())
    setattr(likelihood, name, value)


class Ordinal(PredictedMoments, IntervalLikelihood):
    r"""
    Ordered labels 0 … K − 1: y is the number of edges below z = f + σ e, where e is noise.

    With the link ``"probit"`` e is standard normal, P(y = k|f) = Φ((e_k − f)/σ) −
    Φ((e_{k−1} − f)/σ), the first and last edge being infinite. This is GPflow's ``Ordinal`` (Chu
    and Ghahramani, JMLR 2005), except that GPflow squeezes probabilities into [0.001, 0.999]. With
    ``"logit"`` Φ is replaced by the logistic function: the proportional-odds model. Both links have
    the augmentation of ``Interval``. The edges are learnt, and σ, the unit of f, is fixed::

        likelihood = Ordinal(bin_edges=[-1.0, 0.0, 1.0])  # labels 0, 1, 2 and 3
    """

    may_be_exact = False

    bin_edges: Any = Argument(
        REQUIRED,
        "[K − 1], the finite edges, increasing. A ``Parameter`` is shared.",
        _take_edges,
    )
    sigma = positive(1.0, "σ", learnt=False)
    link = IntervalLikelihood.link

    @property
    def num_bins(self) -> int:
        """K."""
        return int(self.bin_edges.shape[0]) + 1

    @property
    def kind_of_y(self) -> Kind:  # type: ignore[override]
        return labels_from_0(self.num_bins, "the number of bin_edges")

    @property
    def noise_scale(self) -> Parameter:
        return self.sigma

    def ends(self, Y: TensorType) -> tuple[tf.Tensor, tf.Tensor]:
        """The edge below and the edge above the label; the first and the last are infinite."""
        edges = tf.convert_to_tensor(self.bin_edges)
        infinity = tf.constant([np.inf], edges.dtype)
        edges = tf.concat([-infinity, edges, infinity], 0)
        label = tf.cast(Y, tf.int32)
        return tf.gather(edges, label), tf.gather(edges, label + 1)

    def upper(self, Y: TensorType) -> tf.Tensor:
        """The edge above the label; above the highest label there is none."""
        return self.ends(tf.clip_by_value(tf.math.floor(Y), 0.0, self.num_bins - 1.0))[1]

    def _predict_mean_and_var(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """E y = Σ P(y > k) over the edges, and E y² = Σ (2k + 1) P(y > k)."""
        edges = tf.cast(self.bin_edges, Fmu.dtype)
        above = self.below(-edges, -Fmu[..., None], Fvar[..., None])
        odd = 2.0 * tf.range(self.num_bins - 1, dtype=Fmu.dtype) + 1.0
        mean = tf.reduce_sum(above, -1)
        return mean, tf.reduce_sum(odd * above, -1) - tf.square(mean)

    def draw_y(self, F: TensorType, seed: Any) -> tf.Tensor:
        z = self.draw_z(F, seed)
        return tf.reduce_sum(tf.cast(z[..., None] > self.bin_edges, F.dtype), -1)
