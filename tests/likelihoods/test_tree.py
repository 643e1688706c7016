"""Classes by a tree of binary splits."""

from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.base import AnyNDArray

from gpflow_aaci import AugmentedNaturalGradient, AugmentedSVGP, fit_collapsed, likelihoods
from gpflow_aaci.likelihoods import LogisticTree, ward_tree

TREE = ((0, 3), (2, 1))
SPLITS = [({0, 3}, {2, 1}), ({0}, {3}), ({2}, {1})]
N, K = 90, 4


@pytest.fixture
def data(rng: np.random.Generator) -> tuple[AnyNDArray, AnyNDArray]:
    X = rng.uniform(-2.0, 2.0, size=(N, 2))
    return X, (2.0 * (X[:, :1] > 0.0) + (X[:, 1:] + 0.3 * rng.normal(size=(N, 1)) > 0.0))


def make(likelihood: Any, L: int, X: AnyNDArray) -> AugmentedSVGP:
    kernel = gpflow.kernels.SquaredExponential(lengthscales=1.3)
    model = AugmentedSVGP(kernel, likelihood, X[:15].copy(), num_latent_gps=L)
    gpflow.set_trainable(model.inducing_variable, False)
    return model


def test_it_is_one_logistic_model_for_every_split_on_the_rows_of_the_split(
    data: tuple[AnyNDArray, AnyNDArray],
) -> None:
    """The bound, the ELBO and two closed-form steps, the second of them of size 0.4."""
    X, Y = data
    tree = make(LogisticTree(K, TREE), K - 1, X)
    for size in (1.0, 0.4):
        AugmentedNaturalGradient(size).minimize(tree, data)
    bounds = np.zeros(2)
    for j, (left, right) in enumerate(SPLITS):
        rows = np.isin(Y[:, 0], list(left | right))
        of_split = X[rows], np.isin(Y[rows], list(left)) * 1.0
        model = make(likelihoods.Logistic(), 1, X)
        for size in (1.0, 0.4):
            AugmentedNaturalGradient(size).minimize(model, of_split)
        np.testing.assert_allclose(tree.q_mu[:, j], model.q_mu[:, 0], atol=1e-10)
        np.testing.assert_allclose(tree.q_sqrt[j], model.q_sqrt[0], atol=1e-10)
        bounds += [model.elbo(of_split), model.augmented_elbo(of_split)]
    np.testing.assert_allclose([tree.elbo(data), tree.augmented_elbo(data)], bounds, rtol=1e-10)


def test_probabilities_sum_to_one_and_are_products_over_the_path(rng: np.random.Generator) -> None:
    likelihood, X = LogisticTree(K, TREE), np.zeros([50, 1])
    Fmu, Fvar = 5.0 * rng.normal(size=(50, K - 1)), rng.gamma(0.5, 20.0, size=(50, K - 1))
    p, _ = likelihood.predict_mean_and_var(X, Fmu, Fvar)
    np.testing.assert_allclose(tf.reduce_sum(p, -1), 1.0, rtol=1e-10)
    # 0 is on the left of the first two splits: E of a product of independent factors.
    binary = likelihoods.Logistic()
    left = [binary.predict_mean_and_var(X, Fmu[:, [j]], Fvar[:, [j]])[0] for j in (0, 1)]
    np.testing.assert_allclose(p[:, :1], left[0] * left[1], rtol=1e-8)


def test_labels_are_halved_in_their_order_unless_told() -> None:
    halved, told = LogisticTree(5), LogisticTree(5, (((0, 1), 2), (3, 4)))
    np.testing.assert_array_equal(halved.left, told.left)
    np.testing.assert_array_equal(halved.right, told.right)
    assert halved.left.shape == (5, 4)


def test_similar_classes_are_parted_last_whatever_the_units_of_columns(
    rng: np.random.Generator,
) -> None:
    """The first column parts {0, 2} from {1, 3} by 9 sd, the second {0, 1} from {2, 3} by 2."""
    centres = np.array([[0.0, 0.0, 0.0], [9.0, 0.0, 0.0], [0.0, 2.0, 0.0], [9.0, 2.0, 0.0]])
    Y = np.arange(200.0)[:, None] % 4
    X = centres[Y[:, 0].astype(int)] + rng.normal(size=(200, 3))
    first, second = (frozenset(part) for part in ward_tree(X * [0.1, 100.0, 1e4], Y))
    assert {first, second} == {frozenset({0, 2}), frozenset({1, 3})}


@pytest.mark.slow
def test_a_fit_converges_and_finds_the_classes(data: tuple[AnyNDArray, AnyNDArray]) -> None:
    X, Y = data
    model = make(LogisticTree(K, ward_tree(X, Y)), K - 1, X)
    result = fit_collapsed(model, data, progress=False)
    assert result.converged
    p, _ = model.predict_y(X)
    assert np.mean(np.argmax(p, -1) == Y[:, 0]) > 0.85


@pytest.mark.parametrize(
    "tree", [((0, 1), (2, 2)), ((0, 1), 2), (0, 1, 2, 3), 3, ((0, 1), (2, 4)), ((0, 1), (2, "3"))]
)
def test_a_tree_that_has_not_each_label_once_is_refused(tree: Any) -> None:
    with pytest.raises(ValueError, match="tree must be nested pairs of the labels from 0 to"):
        LogisticTree(4, tree)


def test_a_tree_cannot_be_made_where_a_label_is_missing() -> None:
    with pytest.raises(ValueError, match=r"each of the labels.*Found the labels \[0.0, 2.0\]"):
        ward_tree(np.zeros([2, 1]), np.array([[0.0], [2.0]]))
