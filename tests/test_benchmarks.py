"""The benchmark command on tiny problems, and what it says of bad configs."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from benchmarks.__main__ import app
from benchmarks.config import Convergence, LikelihoodConfig, Problem, load_config
from benchmarks.data import load_split
from benchmarks.report import summary_table

CONFIG = """
experiment = "convergence"
output = "{output}"
num_inducing = 8
batch_size = 20
steps = 30

[[problem]]
data = "{data}"
target = "y"
likelihood = {{ name = "StudentT" }}

[[method]]
kind = "alternating"
step_size = [0.5]

[[method]]
kind = "adam"
learning_rate = [0.001, 0.1]
"""


@pytest.fixture
def csv(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(120, 3)), columns=["a", "b", "y"])
    table["y"] = 50.0 + 10.0 * np.sin(2.0 * table.a) + 0.5 * table.y
    table.to_csv(tmp_path / "wave.csv", index=False)
    return tmp_path / "wave.csv"


def run(config: Path, *options: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["run", str(config), *options])
    return result.exit_code, result.output


def test_a_csv_run_learns_and_writes_what_it_says(tmp_path: Path, csv: Path) -> None:
    output = tmp_path / "out"
    (tmp_path / "c.toml").write_text(CONFIG.format(output=output, data=csv))
    code, printed = run(tmp_path / "c.toml")
    assert code == 0, printed
    metrics = pd.read_csv(output / "metrics.csv")
    assert set(metrics.method) == {"AACI", "Adam"}
    for _, rows in metrics.groupby(["method", "setting"]):
        assert (rows.step.diff().dropna() > 0).all()
        assert (rows.seconds.diff().dropna() > 0).all()
        assert rows.step.iloc[-1] == 30
    aaci = metrics[metrics.method == "AACI"]
    assert aaci.nll.iloc[-1] < aaci.nll.iloc[0] - 0.3
    # Of Adam's two runs the better one is reported.
    assert len(summary_table(metrics)) == 2
    assert "lr 0.1" in (output / "summary.md").read_text()
    assert (output / "convergence.png").read_bytes().startswith(b"\x89PNG")


def test_quiet_prints_nothing(tmp_path: Path, csv: Path) -> None:
    text = CONFIG.format(output=tmp_path / "out", data=csv).replace("steps = 30", "steps = 2")
    (tmp_path / "c.toml").write_text(text)
    code, printed = run(tmp_path / "c.toml", "--quiet")
    assert (code, printed) == (0, "")


@pytest.mark.parametrize(
    ("edit", "names"),
    [
        (("num_inducing", "inducing_count"), ["inducing_count", "num_inducing"]),
        (("steps = 30", "steps = -1"), ["steps", "-1"]),
        (("[0.5]", "[1.5]"), ["step_size", "1.5"]),
        (('"StudentT"', '"Cauchy"'), ["problem.0.likelihood.name", "StudentT", "Cauchy"]),
        (('"adam"', '"sgd"'), ["method.1", "sgd", "alternating"]),
        (('"convergence"', '"guess"'), ["experiment", "guess", "step_time"]),
        (('target = "y"', 'target = "z"'), ["target", "'z'", "a, b, y"]),
        (("wave.csv", "tide.csv"), ["data", "tide.csv", "breast_cancer"]),
        (("experiment = ", "experiment : "), ["TOML"]),
    ],
)
def test_a_bad_config_is_named(
    tmp_path: Path, csv: Path, edit: tuple[str, str], names: list[str]
) -> None:
    text = CONFIG.format(output=tmp_path / "out", data=csv).replace(*edit)
    (tmp_path / "c.toml").write_text(text)
    code, printed = run(tmp_path / "c.toml")
    assert code == 2
    for name in names:
        assert name in printed
    assert not (tmp_path / "out" / "metrics.csv").exists()


def test_a_missing_config_is_named(tmp_path: Path) -> None:
    code, printed = run(tmp_path / "none.toml")
    assert code == 2
    assert "none.toml" in printed


def test_standardisation_sees_the_training_rows_only(tmp_path: Path, csv: Path) -> None:
    (tmp_path / "c.toml").write_text(CONFIG.format(output=tmp_path, data=csv))
    config = load_config(tmp_path / "c.toml")
    assert isinstance(config, Convergence)
    split = load_split(config.problem[0], Path(), test_fraction=0.25, seed=3)
    assert (len(split.X), len(split.X_test)) == (90, 30)
    np.testing.assert_allclose(split.X.mean(axis=0), 0.0, atol=1e-12)
    np.testing.assert_allclose(split.X.std(axis=0), 1.0)
    np.testing.assert_allclose([split.Y.mean(), split.Y.std()], [0.0, 1.0], atol=1e-12)
    assert abs(split.X_test.mean()) > 1e-3


def test_a_numbered_target_is_of_a_file_without_header(tmp_path: Path) -> None:
    (tmp_path / "bare.csv").write_text("1,0.5,2\n-1,0.1,3\n1,0.7,5\n-1,0.2,7\n")
    problem = Problem(
        data=str(tmp_path / "bare.csv"), target=0, likelihood=LikelihoodConfig(name="Logistic")
    )
    split = load_split(problem, Path(), test_fraction=0.25, seed=0)
    assert split.X.shape == (3, 2)
    assert set(np.concatenate([split.Y, split.Y_test]).ravel()) == {0.0, 1.0}


def test_every_shipped_config_is_valid() -> None:
    paths = sorted((Path(__file__).parents[1] / "configs").glob("*.toml"))
    assert {path.stem for path in paths} >= {"quickstart", "step_time"}
    for path in paths:
        load_config(path)
