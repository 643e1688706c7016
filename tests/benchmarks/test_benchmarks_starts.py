"""The benchmarks of starts and of many rows: what their problems are, and what their tables say."""

import numpy as np
import pandas as pd
import pytest

from benchmarks import large_n, starts
from benchmarks.config import LargeN, LikelihoodConfig, StartSize


def row(problem: str, method: str, elbo: float, **others: object) -> dict[str, object]:
    rest = {"seconds": 1.0, "status": "converged", "again": 0.0, "tolerance": 1e-3}
    return {"problem": problem, "rows": 100, "method": method, "elbo": elbo, **rest, **others}


def test_a_fit_ends_lower_only_beyond_half_a_nat_and_a_thousandth_a_datum() -> None:
    metrics = pd.DataFrame(
        [
            row("a", "fit", -10.0, restart_gain=np.nan),
            row("a", "Scipy", -9.6),  # 0.4 nats higher: allowed
            row("a", "Adam", -12.0),
            row("b", "fit", -10.0, again=0.5, restart_gain=3.0),
            row("b", "Scipy", -30.0),
            row("b", "Adam", -9.4),  # 0.6 nats higher
            row("c", "fit", -10.0, status="no step gains", again=7.0),
            row("c", "Scipy", -20.0),
            row("c", "Adam", -20.0),
        ]
    )
    summary, each = starts.report(metrics).tables.values()
    assert summary["fit ends lower"].item() == 1
    assert summary["higher"].item() == 1
    assert summary["converged"].item() == 2
    assert summary["a second fit gains more than its tolerance"].item() == 1  # c claims nothing
    np.testing.assert_allclose(each["short of the best"].astype(float), [0.4, 0.6, -10.0])


@pytest.mark.parametrize("likelihood", ["StudentT", "Logistic", "NegativeBinomial"])
def test_raw_columns_have_units_and_the_same_rows_again(likelihood: str) -> None:
    size = StartSize(rows=200, input_dim=6, num_inducing=5)
    X, Y = starts.make_data(size, "raw", likelihood, 3)
    again = starts.make_data(size, "raw", likelihood, 3)
    np.testing.assert_array_equal(X, again[0])
    np.testing.assert_array_equal(Y, again[1])
    sd = X.std(0)
    assert sd.max() / sd.min() > 10.0
    standard, _ = starts.make_data(size, "standardised", likelihood, 3)
    np.testing.assert_allclose(standard.std(0), 1.0, atol=0.2)
    if likelihood == "Logistic":
        assert set(np.unique(Y)) == {0.0, 1.0}


@pytest.mark.replicate
def test_adam_is_timed_until_it_has_the_nll_that_fit_ended_at() -> None:
    """Two rates, one of which is there at once and one never: the table has the first."""
    config = LargeN(
        experiment="large_n",
        output="unused",
        rows=[200],
        input_dim=2,
        num_inducing=5,
        test_rows=50,
        learning_rate=[1e-9, 0.05],
        seconds=3.0,
        likelihood=LikelihoodConfig(name="StudentT"),
    )
    table = large_n._of_size(config, 200)
    fit, adam = table[table.method == "fit"], table[table.method == "Adam"]
    assert adam.status.item().startswith("lr 0.05")
    if np.isfinite(adam.near.item()):
        assert adam.nll.item() <= fit.nll.item() + 0.005
    assert set(table.rows) == {200}
