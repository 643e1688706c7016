"""The sampling experiments on tiny problems."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from typer.testing import CliRunner

from benchmarks import omega_throughput, sampling
from benchmarks.__main__ import app
from benchmarks.config import LikelihoodConfig, OmegaThroughput, Problem
from benchmarks.datasets import load_dataset
from benchmarks.sampling import best_settings
from gpflow_aaci.data import as_arrays

CONFIG = """
experiment = "sampling"
output = "{output}"
num_chains = 3
num_samples = 200
num_burnin = 20
num_tuning = 100

[[problem]]
name = "Diabetes"
data = "diabetes"
rows = 40
likelihood = {{ name = "StudentT" }}

[[method]]
kind = "gibbs"
over_relaxation = [0.0, -0.8]

[[method]]
kind = "hmc"
step_size = ["tuned", 0.05, 0.1]
leapfrog_steps = [1, 3]

[[method]]
kind = "prior_proposals"
"""


def run(command: str, config: Path) -> None:
    result = CliRunner().invoke(app, [command, str(config), "--quiet"])
    assert result.exit_code == 0, result.output


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sampling")
    (folder / "c.toml").write_text(CONFIG.format(output=folder / "out"))
    run("run", folder / "c.toml")
    return folder / "out"


@pytest.mark.replicate
def test_metrics_are_those_of_the_chains(output: Path) -> None:
    metrics = pd.read_csv(output / "metrics.csv")
    assert len(metrics) == 2 + 6 + 1
    assert set(metrics.num_samples) == {200}
    of = metrics.set_index("method")
    gibbs, prior = of.loc["Gibbs"], of.loc["MH, prior proposals"]
    # Gibbs mixes fast; with 40 data, hardly any proposal from the prior is accepted.
    assert gibbs.lag_1 < 0.4 < 0.8 < prior.lag_1
    assert gibbs.rhat < 1.1 < prior.rhat
    assert gibbs.min_ess > 100 > 30 > prior.min_ess
    assert np.isnan(gibbs.acceptance)
    assert prior.acceptance < 0.2
    assert set(metrics.num_burnin[metrics.setting.str.startswith("tuned")]) == {100}
    assert set(metrics.num_burnin[~metrics.setting.str.startswith("tuned")]) == {20}
    np.testing.assert_allclose(metrics.seconds_per_draw * 200, metrics.seconds)
    np.testing.assert_allclose(
        metrics.min_ess_per_second * (metrics.seconds + metrics.warmup_seconds), metrics.min_ess
    )
    assert (metrics.min_ess <= metrics.median_ess).all()
    # A draw takes longer than the Cholesky factorisation that it contains.
    assert (metrics.gibbs_over_cholesky > 1.0).all()


@pytest.mark.slow
def test_autocorrelations_are_in_rows(output: Path) -> None:
    metrics = pd.read_csv(output / "metrics.csv").set_index(["method", "setting"])
    long = pd.read_csv(output / "autocorrelation.csv")
    columns = ["problem", "method", "setting", "lag", "autocorrelation", "signed"]
    assert list(long.columns) == columns
    assert sorted(set(long.lag)) == list(range(1, 11))
    assert long.autocorrelation.between(0.0, 1.0).all()
    assert (long.signed.abs() <= long.autocorrelation + 1e-12).all()
    over_relaxed = long[long.method == "Gibbs, over-relaxed"].set_index("lag").signed
    assert over_relaxed[1] < -0.3 < 0.1 < over_relaxed[2]  # they alternate
    for row in long.itertuples():
        assert metrics.loc[(row.method, row.setting), f"lag_{row.lag}"] == row.autocorrelation


@pytest.mark.slow
def test_tensorboard_has_the_autocorrelations(output: Path) -> None:
    long = pd.read_csv(output / "autocorrelation.csv")
    own = long[long.method == "MH, prior proposals"]
    (folder,) = (output / "tensorboard").glob("*-MH_prior_proposals-*")
    curves = EventAccumulator(str(folder), size_guidance={"tensors": 0})  # 0: all of them
    logged = curves.Reload().Tensors("autocorrelation")
    assert [event.step for event in logged] == own.lag.tolist()
    values = [float(tf.make_ndarray(event.tensor_proto)) for event in logged]
    np.testing.assert_allclose(values, own.autocorrelation, rtol=1e-6)


@pytest.mark.slow
def test_the_summary_shows_best_settings_the_paper_and_the_grid(output: Path) -> None:
    metrics = pd.read_csv(output / "metrics.csv")
    best = best_settings(metrics).set_index("method")
    assert set(best.index) == {"Gibbs", "Gibbs, over-relaxed", "HMC", "MH, prior proposals"}
    hmc = metrics[metrics.method == "HMC"]
    fewer = np.minimum(hmc.min_ess_per_second, hmc.min_ess_squared_per_second)
    assert best.loc["HMC"].setting == hmc.setting[fewer.idxmax()]
    summary = (output / "summary.md").read_text()
    assert "| problem | step | whose | 1 leapfrogs | 3 leapfrogs |" in summary
    assert (output / "autocorrelation.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_the_paper_s_numbers_stand_beside_its_data_alone(output: Path) -> None:
    metrics = pd.read_csv(output / "metrics.csv")

    def shows(rows: pd.DataFrame) -> bool:
        table = sampling.report(rows).tables
        return any("Table 2" in caption for caption in table)

    assert not shows(metrics)
    housing = metrics.assign(num_data=506, problem="Boston housing")
    table = next(t for c, t in sampling.report(housing).tables.items() if "Table 2" in c)
    assert table.set_index("method").loc["HMC", "s/draw, paper"] == 0.573
    assert not shows(housing.assign(problem="housing (synthetic)"))


@pytest.mark.slow
def test_finished_runs_are_not_run_again(output: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    metrics = (output / "metrics.csv").read_bytes()
    summary = (output / "summary.md").read_bytes()
    monkeypatch.setattr(sampling, "draw", None)  # would fail
    run("run", output.parent / "c.toml")
    assert (output / "metrics.csv").read_bytes() == metrics
    run("report", output.parent / "c.toml")
    assert (output / "summary.md").read_bytes() == summary


@pytest.mark.parametrize("name", ["StudentT", "Logistic"])
def test_the_model_is_of_all_rows_at_the_paper_s_lengthscale(name: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(3.0, 2.0, size=(30, 4)), columns=["a", "b", "c", "y"])
    table["y"] = table.y > 3.0 if name == "Logistic" else table.y
    table.to_csv(tmp_path / "t.csv", index=False)
    problem = Problem(data="t.csv", target="y", likelihood=LikelihoodConfig(name=name))
    model = sampling.make_model(load_dataset(problem, tmp_path))
    X, Y = as_arrays(model.expected_data).rows
    X = X.numpy()
    np.testing.assert_allclose(X.mean(0), 0.0, atol=1e-12)
    np.testing.assert_allclose(X.std(0), 1.0)
    distances = ((X[:, None] - X[None]) ** 2).sum(-1)
    np.testing.assert_allclose(model.kernel.lengthscales.numpy() ** 2, distances.mean())
    np.testing.assert_array_equal((X[:, 0] > 0), (table.a > table.a.mean()))  # in their order
    if name == "Logistic":
        np.testing.assert_array_equal(Y.numpy().ravel(), table.y)
    else:
        np.testing.assert_allclose([Y.numpy().mean(), Y.numpy().std()], [0.0, 1.0], atol=1e-12)


def test_rates_of_omega_are_in_their_rows_and_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not every likelihood has every way to draw."""
    ms = {
        ("Laplace", "closed form"): [1.0],
        ("Laplace", "from log φ"): [2.0],
        ("Logistic", "closed form"): [4.0],
        ("Logistic", "polyagamma"): [5.0],
        ("Probit", "closed form"): [8.0],
    }
    monkeypatch.setattr(omega_throughput, "interleaved", lambda *args: ms)
    names = ["Laplace", "Logistic", "Probit"]
    config = OmegaThroughput(
        experiment="omega_throughput", output=Path(), likelihoods=names, size=40
    )
    table = omega_throughput.run(config, Path()).set_index("likelihood")
    assert list(table) == ["closed form", "from log φ", "polyagamma"]
    nan = np.nan
    expected = [[40.0, 20.0, nan], [10.0, nan, 8.0], [5.0, nan, nan]]
    np.testing.assert_array_equal(table.loc[names], expected)


@pytest.mark.replicate
def test_omega_is_drawn_faster_in_closed_form(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(
        f'experiment = "omega_throughput"\noutput = "{tmp_path}"\nsize = 2000\nrounds = 3\n'
        'likelihoods = ["Laplace", "Logistic", "Probit"]'
    )
    run("run", tmp_path / "c.toml")
    metrics = pd.read_csv(tmp_path / "metrics.csv").set_index("likelihood")
    assert list(metrics.index) == ["Laplace", "Logistic", "Probit"]
    generic = metrics["from log φ"]
    assert np.isnan(generic["Probit"])  # it has no φ
    assert (metrics["closed form"] > generic)[["Laplace", "Logistic"]].all()
    assert "polyagamma" in (tmp_path / "summary.md").read_text()
