"""A kernel on a column of words: the covariance of their levels, which is learnt."""

from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow import Parameter
from gpflow.base import AnyNDArray, TensorType
from gpflow.kernels import Kernel
from gpflow.utilities import positive

from ..levels import as_levels, index_of
from ..validation import check_count


class Categorical(Kernel):
    r"""
    A covariance B [G, G] of the levels of a column of X, such as the words of a table.

    Multiplied with a kernel of other columns, it gives every level a function of its own, and B
    says how alike these are. Added to one, it gives every level a constant of its own. A model
    turns the words of a frame into numbers by the levels, in all its methods::

        frame = pd.DataFrame({"size": size, "city": city})  # city holds words
        kernel = SquaredExponential(active_dims=[0]) * kernels.Categorical(1, frame["city"])
        model = AugmentedVGP((frame, Y), kernel, StudentT())
        fit(model)
        mean, variance = model.predict_y(new_frame)

    With ``rank=0``, B has ones on its diagonal and ``correlation`` ρ everywhere else: any two
    levels differ alike (the kernel of the Hamming distance, also called compound symmetry; its
    exchangeable levels suit many levels of few rows). With ``rank=R`` it is
    B = W Wᵀ + diag(kappa), W [G, R], as in GPflow's ``Coregion`` (Bonilla, Chai and Williams,
    *Multi-task Gaussian Process Prediction*, NIPS 2007): some levels are more alike than others,
    and each has a variance of its own. Then hold the variance of the other factor of a product
    fixed, since the data determine the product of both alone.

    In an array X, the number of a word is its place in ``levels``, 0 … G − 1; a level that is a
    number is itself in X. Z must hold such numbers, too, as rows of X do (``kmeans_plusplus``).
    Training does not change them, since their gradient is 0.
    """

    def __init__(self, column: int, levels: Any, rank: int = 0, name: str | None = None) -> None:
        """
        :param column: the number of the column of X. No other kernel may take its words as numbers:
            give ``active_dims`` to the others.
        :param levels: all levels, repeated or not, words or numbers, such as ``frame["city"]``. Of
            a pandas categorical they are all its categories, in their order; other words are in
            the order in which they appear first; numbers are sorted.
        :param rank: R, from 0.
        :raises ValueError: for a column or rank that is no whole number from 0 up, and levels that
            are neither words nor finite numbers.
        """
        check_count("column", column, 0)
        check_count("rank", rank, 0)
        super().__init__(active_dims=[column], name=name)
        self.levels = as_levels(levels, "kernels.Categorical")
        G = len(self.levels)
        if rank == 0:
            self.correlation: Parameter | None = Parameter(0.5, transform=tfp.bijectors.Sigmoid())
        else:
            # B begins near the one of rank 0. Equal columns of W would stay equal, as their
            # gradients are, and columns of zeros would stay zero.
            start = 0.1 * np.random.default_rng(0).standard_normal([G, rank])
            start[:, 0] += np.sqrt(0.5)
            self.correlation = None
            self.W = Parameter(start)
            self.kappa = Parameter(np.full(G, 0.5), transform=positive())

    @property
    def fixed_levels(self) -> AnyNDArray:
        """The levels [G]; its column must not hold others."""
        return self.levels

    def level_covariance(self) -> tf.Tensor:
        """B [G, G], in the order of ``levels``."""
        if self.correlation is None:
            return tf.matmul(self.W, self.W, transpose_b=True) + tf.linalg.diag(self.kappa)
        eye = tf.eye(len(self.levels), dtype=self.correlation.dtype)
        return self.correlation + (1.0 - self.correlation) * eye

    def K(self, X: TensorType, X2: TensorType | None = None) -> tf.Tensor:
        """B at the levels of X [..., N, 1], [..., N, N], or of X and X2, [..., N, ..., N2]."""
        at = self._index(X)
        rows = tf.gather(self.level_covariance(), at)
        if X2 is None:
            return tf.gather(rows, at, axis=-1, batch_dims=at.shape.rank - 1)
        return tf.gather(rows, self._index(X2), axis=-1)

    def K_diag(self, X: TensorType) -> tf.Tensor:
        """The variances [..., N] of the levels of X [..., N, 1]."""
        return tf.gather(tf.linalg.diag_part(self.level_covariance()), self._index(X))

    def features(self, X: TensorType) -> tf.Tensor:
        """φ(x) [..., G] of rows of X [..., D], with φ(x)ᵀφ(x′) = k(x, x′)."""
        values, vectors = tf.linalg.eigh(self.level_covariance())
        root = vectors * tf.sqrt(tf.maximum(values, 0.0))  # rounding may make them negative
        return tf.gather(root, self._index(self.slice(X)[0]))

    def _index(self, X: TensorType) -> tf.Tensor:
        return index_of(tf.convert_to_tensor(X)[..., 0], self.levels)
