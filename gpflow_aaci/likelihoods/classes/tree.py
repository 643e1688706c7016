"""Classification into K classes by a tree of binary splits."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import AnyNDArray, TensorType
from scipy.cluster.hierarchy import linkage

from ...validation import as_default_float, check_finite, require
from ..base import Site
from ..declared import Argument
from ..integrals.quadrature import log_expected_sigmoid
from ..sigmoid_powers import Powers
from .labels import LabelLikelihood

Tree = Any
"""A label, or a pair of trees."""


def _take_tree(likelihood: Any, name: str, value: Tree) -> None:
    """Keep two masks [K, K − 1] of 1 and 0, the classes on both sides of every split."""
    K = likelihood.num_classes
    tree = _halved(range(K)) if value is None else value
    labels = list(_labels(tree))
    are_numbers = all(isinstance(label, int | np.integer) for label in labels)
    if not are_numbers or sorted(labels) != list(range(K)):
        raise ValueError(
            f"LogisticTree: {name} must be nested pairs of the labels from 0 to num_classes - 1 = "
            f"{K - 1}, each of them once, such as ((0, 1), 2). Found: {value!r}."
        )
    likelihood.left, likelihood.right = _sides(tree, K)


class LogisticTree(LabelLikelihood):
    r"""
    p(y = k|f) = Π_j σ(±f_j) over the splits on the path to k; labels 0 … K − 1 in Y [N, 1].

    The classes are the leaves of a binary tree. Each of its K − 1 splits has its own latent GP,
    which gives the probabilities of the two sides. p(y|f) depends only on the splits on the path to
    y. Given one ω_j ~ PG(1, f_j)/2 for every split on the path, the latent GPs are independent and
    Gaussian. Predicted probabilities are products of one-dimensional integrals. Under a prior with
    mean 0 both sides of every split are equally probable::

        tree = ward_tree(X, Y)
        model = AugmentedSVGP(
            kernel, LogisticTree(K, tree), Z, num_latent_gps=K - 1, num_data=N
        )

    The choice of the tree decides how smooth each f can be: similar classes should be separated
    last, as :func:`ward_tree` does.
    """

    fewer = 1

    tree: Any = Argument(
        None,
        "nested pairs of the labels, such as ((0, 1), 2), in which each label occurs once. "
        "Default: the ordered labels are halved repeatedly.",
        _take_tree,
    )

    def bound(self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType) -> tf.Tensor:
        """Σ ±m_j/2 − lc_j over the splits on the path."""
        return tf.reduce_sum(self._powers(Y).bound(Fmu, Fvar), -1)

    def auxiliary_law(
        self, X: TensorType | None, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tfp.distributions.Distribution:
        """omega_j ~ PG(1, c_j)/2 on the path and 0 elsewhere, [..., N, K − 1]."""
        return tfp.distributions.Independent(self._powers(Y).law_of_omega(Fmu, Fvar), 1)

    def log_joint(
        self, X: TensorType | None, auxiliary: Any, F: TensorType, Y: TensorType
    ) -> tf.Tensor:
        return tf.reduce_sum(self._powers(Y).log_joint_of_omega(auxiliary, F), -1)

    def site(self, X: TensorType | None, auxiliary: Any, Y: TensorType) -> Site:
        """Potential ±½ on the path and 0 elsewhere, precision 2ω_j."""
        return self._powers(Y).site(auxiliary)

    def log_shares(self, F: TensorType) -> tf.Tensor:
        return self._over_paths(tf.math.log_sigmoid(F), tf.math.log_sigmoid(-F))

    def log_expected_shares(self, Fmu: TensorType, Fvar: TensorType) -> tf.Tensor:
        return self._over_paths(*(log_expected_sigmoid(m, Fvar) for m in (Fmu, -Fmu)))

    def expected_log_prob(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        return tf.reduce_sum(self._powers(Y).expected_log_prob(Fmu, Fvar), -1, keepdims=True)

    def _powers(self, Y: TensorType) -> Powers:
        """1 and 0 [..., N, K − 1]: the splits with y on the left, and those with y on the right."""
        one_hot = self._one_hot(Y)
        left, right = (tf.constant(side, one_hot.dtype) for side in (self.left, self.right))
        return Powers(tf.matmul(one_hot, left), tf.matmul(one_hot, right))

    def _over_paths(self, of_left: tf.Tensor, of_right: tf.Tensor) -> tf.Tensor:
        """Sums over the path to each class, [..., N, K], of a value for each side of a split."""
        left, right = (tf.constant(side.T, of_left.dtype) for side in (self.left, self.right))
        return tf.matmul(of_left, left) + tf.matmul(of_right, right)


def ward_tree(X: TensorType, Y: TensorType) -> Tree:
    """
    A tree of classes for :class:`LogisticTree` that separates similar classes last.

    Ward's method joins the classes by their mean inputs, with each column of X in units of its
    standard deviation within classes (Ward 1963).

    :param X: [N, D].
    :param Y: labels 0 … K − 1, [N, 1], each at least once.
    :raises ValueError: for invalid data, or if a label does not occur.
    """
    X, Y = as_default_float(X, "X"), as_default_float(Y, "Y")
    require([check_finite("X", X), check_finite("Y", Y)])
    X, labels, at = X.numpy(), *np.unique(Y.numpy(), return_inverse=True)
    if len(labels) < 2 or not np.array_equal(labels, np.arange(len(labels))):
        raise ValueError(
            f"Y must hold each of the labels 0 … K − 1. Found the labels {labels.tolist()}."
        )
    at = at.ravel()
    means = np.stack([X[at == k].mean(0) for k in range(len(labels))])
    spread = (X - means[at]).std(0)
    means = means / np.where(spread > 0.0, spread, 1.0)
    trees: list[Tree] = list(range(len(labels)))
    for first, second, *_ in linkage(means, method="ward"):
        trees.append((trees[int(first)], trees[int(second)]))
    return trees[-1]


def _halved(labels: Sequence[int]) -> Tree:
    """The tree in which every split halves its labels."""
    middle = (len(labels) + 1) // 2
    if len(labels) == 1:
        return labels[0]
    return _halved(labels[:middle]), _halved(labels[middle:])


def _labels(tree: Tree) -> Iterator[Any]:
    """The leaves of a tree: everything that is not a pair."""
    if isinstance(tree, tuple | list) and len(tree) == 2:
        for part in tree:
            yield from _labels(part)
    else:
        yield tree


def _sides(tree: Tree, num_classes: int) -> tuple[AnyNDArray, AnyNDArray]:
    """Two masks [K, K − 1] of 1 and 0: the classes to the left and to the right of each split."""
    splits: list[tuple[list[int], list[int]]] = []

    def visit(part: Tree) -> None:
        if isinstance(part, tuple | list):
            splits.append((list(map(int, _labels(part[0]))), list(map(int, _labels(part[1])))))
            visit(part[0])
            visit(part[1])

    visit(tree)
    left, right = np.zeros([2, num_classes, num_classes - 1])
    for j, (of_left, of_right) in enumerate(splits):
        left[of_left, j] = right[of_right, j] = 1.0
    return left, right
