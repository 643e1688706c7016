"""``kernels.start``: a kernel of X from which a fit can begin, whatever the units of X."""

import gpflow
import numpy as np
import pandas as pd
import pytest
from gpflow.kernels import Matern52, Product, SquaredExponential

from gpflow_aaci import AugmentedVGP, fit, kernels, likelihoods

RNG = np.random.default_rng(0)
X = RNG.normal(size=(400, 5)) * np.array([1e-3, 1.0, 10.0, 1e4, 2.0]) + 7.0


@pytest.mark.parametrize("make", [SquaredExponential, Matern52])
def test_random_rows_are_the_root_of_two_lengthscales_apart(make: type) -> None:
    """So that prior correlations do not depend on units or on the number of columns."""
    for D in (1, 2, 5):
        kernel = kernels.start(X[:, :D], make, variance=3.0)
        assert type(kernel) is make
        apart = (X[:200, :D] - X[200:, :D]) / kernel.lengthscales.numpy()
        assert np.mean(np.sum(apart**2, 1)) == pytest.approx(2.0, rel=0.15)
        assert kernel.variance.numpy() == pytest.approx(3.0)


def test_a_column_of_one_value_has_a_finite_lengthscale() -> None:
    kernel = kernels.start(np.column_stack([X[:, 1], np.full(len(X), 0.1)]))
    np.testing.assert_allclose(kernel.lengthscales, np.sqrt(2.0) * np.array([X[:, 1].std(), 1.0]))


@pytest.mark.slow
def test_words_become_factors_and_the_model_takes_the_frame() -> None:
    frame = pd.DataFrame(
        {
            "city": RNG.choice(["Ulm", "Bonn"], 40),
            "size": X[:40, 2],
            "grade": pd.Categorical(RNG.choice(["low", "high"], 40), ["low", "middle", "high"]),
        }
    )
    kernel = kernels.start(frame, Matern52)
    assert isinstance(kernel, Product)
    smooth, city, grade = kernel.kernels
    np.testing.assert_allclose(smooth.lengthscales, [frame["size"].std(ddof=0)])
    assert city.levels.tolist() == ["Bonn", "Ulm"]
    assert grade.levels.tolist() == ["low", "middle", "high"]
    model = AugmentedVGP((frame, frame[["size"]]), kernel, likelihoods.Gaussian())
    before = float(model.elbo())
    assert fit(model, progress=False).elbo > before
    only_words = kernels.start(frame[["city"]], variance=2.0)
    assert isinstance(only_words.kernels[0], gpflow.kernels.Constant)


def test_what_is_not_accepted() -> None:
    with pytest.raises(ValueError, match=r"X must be finite. Found: \[nan\]"):
        kernels.start(np.array([[1.0], [np.nan]]))
    with pytest.raises(ValueError, match=r"X must be a matrix.*Found: rank 1"):
        kernels.start(X[:, 0])
    with pytest.raises(ValueError, match=r"variance must be above 0. Found: 0"):
        kernels.start(X, variance=0.0)
    with pytest.raises(ValueError, match=r"kernel must be a class, such as Matern52. Found: a Mat"):
        kernels.start(X, Matern52())
    gaps = pd.DataFrame({"city": ["Ulm", None]})
    with pytest.raises(ValueError, match=r"column 'city' of X must have no missing values"):
        kernels.start(gaps)
