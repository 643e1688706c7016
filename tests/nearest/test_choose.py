"""Inducing points or nearest neighbours: the held-out density decides."""

import gpflow
import numpy as np
import pytest
from gpflow.base import AnyNDArray

from gpflow_aaci import AugmentedNNGP, AugmentedSVGP, AugmentedVGP, choose, likelihoods
from gpflow_aaci.sklearn import AugmentedGPClassifier, AugmentedGPRegressor


def rough(num_rows: int, seed: int = 0) -> tuple[AnyNDArray, AnyNDArray]:
    """A function that 20 inducing points cannot follow, with little noise."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(0.0, 1.0, (num_rows, 1))
    return X, np.sin(60.0 * X) + 0.05 * rng.standard_normal((num_rows, 1))


def smooth(num_rows: int, seed: int = 0) -> tuple[AnyNDArray, AnyNDArray]:
    """A function that few inducing points follow, under as much noise as signal."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (num_rows, 2))
    return X, np.sin(2.0 * X.sum(1, keepdims=True)) + 0.7 * rng.standard_normal((num_rows, 1))


@pytest.mark.replicate
@pytest.mark.parametrize(("draw", "kept"), [(rough, AugmentedNNGP), (smooth, AugmentedSVGP)])
def test_the_kept_model_predicts_new_data_at_least_as_well(draw: object, kept: type) -> None:
    X, Y = draw(1_200)
    new = draw(500, seed=1)
    kernel = gpflow.kernels.SquaredExponential(lengthscales=[0.5] * X.shape[1])
    choice = choose((X, Y), kernel, likelihoods.StudentT(), num_inducing=20, progress=False)
    assert type(choice.model) is kept
    assert kept.__name__ in str(choice)
    densities = {
        model: np.mean(model.predict_log_density(new)) for model in (choice.sparse, choice.nearest)
    }
    assert densities[choice.model] > max(densities.values()) - 0.01
    gained = densities[choice.nearest] - densities[choice.sparse]
    assert abs(gained - choice.difference) < 0.1


@pytest.mark.replicate
def test_both_models_have_their_own_copies() -> None:
    X, Y = smooth(60)
    kernel, likelihood = gpflow.kernels.Matern32(), likelihoods.StudentT()
    before = kernel.lengthscales.numpy()
    choice = choose((X, Y), kernel, likelihood, num_inducing=10, progress=False)
    assert kernel.lengthscales.numpy() == before
    kernels = {id(kernel), id(choice.sparse.kernel), id(choice.nearest.kernel)}
    assert len(kernels) == 3


@pytest.mark.by_default("nearest", "full")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "kind"),
    [("nearest", AugmentedNNGP), ("full", AugmentedVGP), ("auto", AugmentedVGP)],
)
def test_estimators_fit_the_model_that_method_names(method: str, kind: type) -> None:
    X, Y = rough(300)
    regressor = AugmentedGPRegressor(method=method, random_state=0).fit(X, Y[:, 0])
    assert type(regressor.model_) is kind
    assert regressor.score(X, Y[:, 0]) > 0.9
    labels = np.where(Y[:, 0] > 0.0, "up", "down")
    classifier = AugmentedGPClassifier(method=method, random_state=0).fit(X, labels)
    assert type(classifier.model_) is kind
    assert classifier.score(X, labels) > 0.9


def test_estimators_refuse_another_method() -> None:
    with pytest.raises(
        ValueError, match='method must be one of "sparse", "nearest", "full", "auto"'
    ):
        AugmentedGPRegressor(method="dense").fit(np.arange(9.0)[:, None], np.arange(9.0))
