"""compare_kernels: what it finds in simulated series, against the models fitted one by one."""

from typing import Any

import gpflow
import numpy as np
import pytest
from gpflow.base import AnyNDArray
from gpflow.kernels import Kernel, Linear, Matern52, Periodic, SquaredExponential

from gpflow_aaci import AugmentedSVGP, AugmentedVGP, fit, likelihoods, loo
from gpflow_aaci.criticism import compare_kernels


def basic() -> dict[str, Kernel]:
    season = Periodic(SquaredExponential(), period=1.0)
    gpflow.set_trainable(season.period, False)
    return {"line": Linear(), "season": season}


def series(seed: int = 0) -> tuple[AnyNDArray, AnyNDArray]:
    """A line and a season, which no single kernel explains."""
    rng = np.random.default_rng(seed)
    x = np.sort(rng.uniform(-2.0, 2.0, size=(60, 1)), 0)
    return x, 0.8 * x + np.sin(2.0 * np.pi * x) + 0.1 * rng.normal(size=x.shape)


@pytest.mark.slow
def test_the_sum_that_made_the_data_is_found_with_the_densities_of_each_model() -> None:
    data = series()
    search = compare_kernels(data, basic(), likelihoods.Gaussian(), progress=False)
    assert search.table.index[0] in ("line + season", "season + line")
    assert set(search.table.query("depth == 1").index) == {"line", "season"}
    assert search.table.difference.iloc[0] == search.table.standard_error.iloc[0] == 0.0
    assert np.all(np.diff(search.table.elpd) <= 0.0)
    alone = AugmentedVGP(data, basic()["season"], likelihoods.Gaussian())
    fit(alone, progress=False)
    of_each, of_best = (loo(model).loo_i.values for model in (alone, search.best))
    row = search.table.loc["season"]
    np.testing.assert_allclose(row.elpd, of_each.sum(), atol=0.1)
    np.testing.assert_allclose(row.difference, (of_each - of_best).sum(), atol=0.1)
    error = np.sqrt(60.0) * np.std(of_each - of_best, ddof=1)
    np.testing.assert_allclose(row.standard_error, error, atol=0.1)


@pytest.mark.slow
def test_a_search_ends_where_no_larger_kernel_is_better() -> None:
    x, _ = series()
    y = np.sin(2.0 * np.pi * x) + 0.1 * np.random.default_rng(1).normal(size=x.shape)
    kernels = basic()
    before = [parameter.numpy() for parameter in kernels["season"].parameters]
    search = compare_kernels(
        (x, y), kernels, likelihoods.StudentT(), depth=4, num_inducing=30, progress=False
    )
    assert search.table.depth.max() == 2
    assert isinstance(search.best, AugmentedSVGP)
    after = [parameter.numpy() for parameter in kernels["season"].parameters]
    np.testing.assert_array_equal(before, after)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kernels": {}}, "kernels must be a non-empty dictionary of kernels. Found: {}"),
        ({"kernels": {"a": 1}}, "kernels must be .* Found: {'a': 'int'}"),
        ({"kernels": {"a": Matern52()}, "depth": 0}, "depth must be .* Found: 0"),
    ],
)
def test_bad_arguments_are_refused(arguments: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        compare_kernels(series(), likelihood=likelihoods.Gaussian(), **arguments)
