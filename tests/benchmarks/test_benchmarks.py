"""The benchmark command on tiny problems, and its messages for bad configs."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import gpflow
import numpy as np
import pandas as pd
import pytest
import scipy.stats
import tensorflow as tf
from sklearn.gaussian_process.kernels import RBF
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from typer.testing import CliRunner

from benchmarks import bsgp, cache, convergence, deep_gp
from benchmarks.__main__ import app
from benchmarks.config import ConfigError, Single, StepTime, load_config
from benchmarks.convergence import convergence_figure, summary_table
from benchmarks.datasets import load_dataset
from benchmarks.methods import make_model, make_start

CONFIGS = Path(__file__).parents[2] / "configs"

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


ONE_STEP = ["--set", "steps=1", "--set", "method.1.learning_rate=[0.1]"]


@pytest.fixture
def csv(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(120, 3)), columns=["a", "b", "y"])
    table["y"] = 50.0 + 10.0 * np.sin(2.0 * table.a) + 0.5 * table.y
    table.to_csv(tmp_path / "wave.csv", index=False)
    return tmp_path / "wave.csv"


def command(*arguments: str | Path) -> tuple[int, str]:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    return result.exit_code, result.output


def run(config: Path, *options: str) -> tuple[int, str]:
    return command("run", config, *options)


@pytest.mark.replicate
@pytest.mark.slow
def test_mixtures_are_compared(tmp_path: Path, csv: Path) -> None:
    (tmp_path / "c.toml").write_text(
        f'experiment = "mixtures"\noutput = "{tmp_path}"\ncomponents = [0, 2]\nsteps = 20\n'
        'full_components = [2]\nexpectations = ["quadrature", "score"]\n'
        'others = ["GPR", "augmented bound"]\n[[problem]]\n'
        f'data = "{csv}"\ntarget = "y"\nlikelihood = {{ name = "StudentT" }}\nfull = true\n'
    )
    assert run(tmp_path / "c.toml", "--quiet")[0] == 0
    metrics = pd.read_csv(tmp_path / "metrics.csv")
    names = ["0", "0", "2", "2", "2 full", "2 full", "augmented bound"]
    assert list(metrics.components) == names
    assert metrics.bound[6] > metrics.bound[2]
    assert metrics.bound[4] > metrics.bound[2]
    assert np.isfinite(metrics[["bound", "nll", "seconds"]]).all(axis=None)
    assert metrics.bound[0] > metrics.bound[2]  # K = 0 is a full Gaussian, better after few steps
    assert "one full Gaussian" in (tmp_path / "summary.md").read_text()


@pytest.mark.replicate
@pytest.mark.slow
def test_sparse_gps_are_fitted_and_sampled(tmp_path: Path, csv: Path) -> None:
    """
    Metrics of fits and of draws are in the unit of y; Gibbs skips data sets with too many rows.
    """
    text = (
        f'experiment = "bsgp"\noutput = "{tmp_path}"\nnum_inducing = 5\n'
        'methods = ["fit_collapsed", "fit_collapsed, Z learnt", "SGHMC", "HyperparameterGibbs"]\n'
        "sghmc = { num_samples = 40, num_burnin = 40, steps_per_draw = 20 }\n"
        f'gibbs = {{ num_samples = 20, num_burnin = 20 }}\n[[problem]]\ndata = "{csv}"\n'
        'target = "y"\nin_units_of_y = true\nlikelihood = { name = "Gaussian" }\n'
    )
    (tmp_path / "c.toml").write_text(text)
    assert run(tmp_path / "c.toml", "--quiet")[0] == 0
    metrics = pd.read_csv(tmp_path / "metrics.csv")
    assert list(metrics.method) == [
        "fit_collapsed",
        "fit_collapsed, Z learnt",
        "SGHMC",
        "HyperparameterGibbs",
    ]
    assert (abs(metrics.nll - metrics.nll[0]) < 0.5).all()
    assert (abs(metrics.error / metrics.error[0] - 1.0) < 0.5).all()
    assert metrics["seconds a draw"].notna().tolist() == [False, False, True, True]
    assert run(tmp_path / "c.toml", "--quiet", "--set", "most_rows_of_full_batches=10")[0] == 0
    assert "HyperparameterGibbs" not in (tmp_path / "summary.md").read_text()


@pytest.mark.replicate
@pytest.mark.slow
def test_traces_of_f_are_drawn_and_summed_up(tmp_path: Path, csv: Path) -> None:
    """Chains from the fit begin at different values, and stay near the fit on these data."""
    text = (
        f'experiment = "bsgp_traces"\noutput = "{tmp_path}"\nnum_inducing = 3\n'
        'chains_from = "near the fit"\nnum_chains = 2\n'
        "sghmc = { num_samples = 20, num_burnin = 20, steps_per_draw = 10 }\n"
        f'[[problem]]\ndata = "{csv}"\ntarget = "y"\nlikelihood = {{ name = "Gaussian" }}\n'
    )
    (tmp_path / "c.toml").write_text(text)
    assert run(tmp_path / "c.toml", "--quiet")[0] == 0
    metrics = pd.read_csv(tmp_path / "metrics.csv")
    assert len(metrics) == 2 * 20 * metrics.point.nunique()
    first = metrics[metrics.draw == 0].pivot(index="point", columns="chain", values="f")
    assert (first[0] != first[1]).any()
    means = metrics.groupby("point")[["f", "at the fit"]].mean()
    assert np.corrcoef(means.f, means["at the fit"])[0, 1] > 0.9
    assert (tmp_path / "traces.png").is_file()


def test_priors_on_inducing_points_are_drawn_against_their_number() -> None:
    common = {"problem": "a", "objective": "predictive", "error metric": "RMSE", "error": 1.0}
    fit = "fit_collapsed, Z learnt from others"
    rows = [
        {**common, "method": method, "prior on Z": prior, "inducing points": M, "nll": nll + seed}
        for seed in (0.0, 1.0)
        for M, nll in ((10, 3.0), (20, 2.0))
        for method, prior in (("SGHMC", "normal"), ("SGHMC", "uniform"), (fit, None))
    ]
    drawn = bsgp.report(pd.DataFrame(rows)).figures["inducing_points"]
    lines = {line.get_label(): line for line in drawn.axes[0].get_lines()}
    assert list(lines) == ["BSGP, normal prior", "BSGP, uniform prior", fit]
    assert lines[fit].get_linestyle() == "--"
    for line in lines.values():
        np.testing.assert_allclose(line.get_xydata(), [[10.0, 3.5], [20.0, 2.5]])
    (legend,) = drawn.legends
    assert legend.get_window_extent().width <= drawn.bbox.width  # no name is cut off
    few = [row for row in rows if row["inducing points"] == 10]
    assert bsgp.report(pd.DataFrame(few)).figures == {}


def test_the_table_of_deep_gps_has_the_learning_rate_of_all_splits() -> None:
    common = {"problem": "a", "layers": 2, "error metric": "RMSE", "error": 1.0, "seconds": 1.0}
    first = [
        {**common, "method": "GPflux", "learning rate": rate, "seed": 0, "nll": nll}
        for rate, nll in ((0.003, 2.0), (0.01, 1.0), (0.03, 3.0))
    ]
    (table,) = deep_gp.report(pd.DataFrame(first)).tables.values()
    assert table[["learning rate", "nll"]].to_numpy().tolist() == [[0.01, "1.000"]]
    both = [*first, {**first[1], "seed": 1, "nll": 4.0}]  # worse than another rate alone
    (table,) = deep_gp.report(pd.DataFrame(both)).tables.values()
    assert table[["learning rate", "nll", "splits"]].to_numpy().tolist() == [[0.01, "2.500", 2]]


@pytest.mark.replicate
@pytest.mark.slow
def test_deep_gps_are_sampled_where_gpflux_is_not_installed(
    tmp_path: Path, csv: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deep_gp, "find_spec", lambda name: None)
    (tmp_path / "c.toml").write_text(
        f'experiment = "deep_gp"\noutput = "{tmp_path}"\nnum_inducing = 5\nlayers = [1, 2]\n'
        'methods = ["SGHMC", "GPflux"]\n'
        "sghmc = { num_samples = 40, num_burnin = 40, steps_per_draw = 20 }\n"
        f'[[problem]]\ndata = "{csv}"\ntarget = "y"\nlikelihood = {{ name = "Gaussian" }}\n'
    )
    code, printed = run(tmp_path / "c.toml", "--quiet")
    assert code == 0
    assert "GPflux is left out" in printed
    metrics = pd.read_csv(tmp_path / "metrics.csv")
    assert list(metrics.layers) == [1, 2]
    assert set(metrics.method) == {"SGHMC"}
    assert (metrics.nll < 1.0).all()  # 1.42 of standardised y without inputs


@pytest.mark.parametrize("name", ["mixtures", "bsgp", "bsgp_traces", "deep_gp"])
def test_the_config_is_valid(name: str) -> None:
    assert load_config(CONFIGS / f"{name}.toml").experiment == name


def test_a_run_of_bsgp_is_made_once_for_what_it_depends_on() -> None:
    """Fits depend on no prior of draws and no objective, and Gibbs sampling knows one objective."""
    config = load_config(
        CONFIGS / "bsgp.toml",
        ['priors=["uniform", "Strauss"]', 'objectives=["variational", "predictive"]'],
    )
    made = [
        (method, prior, objective)
        for method in config.methods
        for prior in config.priors
        for objective in config.objectives
        if bsgp._applies(config, 100, method, prior, objective)
    ]
    assert [how[0] for how in made].count("fit_collapsed") == 1
    assert [how[0] for how in made].count("SGHMC") == 4
    of_gibbs = [how for how in made if how[0] == "HyperparameterGibbs"]
    assert [how[1:] for how in of_gibbs] == [("uniform", "predictive"), ("Strauss", "predictive")]


@pytest.mark.parametrize("prior", ["uniform", "determinantal", "Strauss"])
def test_inducing_points_on_the_edge_of_the_data_are_within_the_box(prior: Any) -> None:
    """Each number of Z is the least or the greatest of its column, and a column is constant."""
    X = np.array([[-1.0, 0.0, 3.0], [1.0, 0.0, -2.0], [0.0, 0.0, 1.0]])
    model = gpflow.models.SVGP(
        gpflow.kernels.RBF(lengthscales=[1.0, 1.0, 1.0]),
        gpflow.likelihoods.Gaussian(),
        X[:2].copy(),
    )
    bsgp.give_Z_prior(model, prior, X)
    Z = model.inducing_variable.Z
    np.testing.assert_allclose(Z, X[:2], atol=1e-12)
    assert Z.trainable
    assert np.isfinite(Z.log_prior_density())
    assert np.isfinite(Z.unconstrained_variable).all()


@pytest.mark.slow
def test_a_csv_run_learns_and_writes_what_it_says(tmp_path: Path, csv: Path) -> None:
    output = tmp_path / "out"
    (tmp_path / "c.toml").write_text(CONFIG.format(output=output, data=csv))
    code, printed = run(tmp_path / "c.toml")
    assert code == 0, printed
    metrics = pd.read_csv(output / "metrics.csv")
    assert set(metrics.method) == {"AlternatingOptimizer", "Adam"}
    for _, rows in metrics.groupby(["method", "setting"]):
        assert (rows.step.diff().dropna() > 0).all()
        assert (rows.seconds.diff().dropna() > 0).all()
        assert rows.step.iloc[-1] == 30
    ours = metrics[metrics.method == "AlternatingOptimizer"]
    assert ours.nll.iloc[-1] < ours.nll.iloc[0] - 0.3
    # Only the better of Adam's two runs is reported.
    assert len(summary_table(metrics)) == 2
    assert "lr 0.1" in (output / "summary.md").read_text()
    assert (output / "convergence.png").read_bytes().startswith(b"\x89PNG")
    assert (output / "convergence.pdf").read_bytes().startswith(b"%PDF")
    resolved = json.loads((output / "config.json").read_text())
    assert (resolved["steps"], resolved["seconds"]) == (30, 45.0)
    folder = output / "tensorboard" / "wave-alternating-0-step_0.5_lr_0.03"
    curves = EventAccumulator(str(folder), size_guidance={"tensors": 0})  # 0: all of them
    logged = curves.Reload().Tensors("nll")
    assert [event.step for event in logged] == ours.step.tolist()
    values = [float(tf.make_ndarray(event.tensor_proto)) for event in logged]
    np.testing.assert_allclose(values, ours.nll, rtol=1e-6)


@pytest.mark.replicate
def test_report_needs_no_training_and_finished_runs_are_kept(
    tmp_path: Path, csv: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "out"
    (tmp_path / "c.toml").write_text(CONFIG.format(output=output, data=csv))
    assert command("report", tmp_path / "c.toml") == (
        2,
        f"Error: {output}/metrics.csv does not exist: `python -m benchmarks run` makes it.\n",
    )
    assert run(tmp_path / "c.toml", "--quiet", *ONE_STEP) == (0, "")
    names = ["summary.md", "convergence.png", "convergence.pdf"]
    before = {name: (output / name).read_bytes() for name in names}
    monkeypatch.setattr(convergence, "_run_one", None)  # whoever trains fails
    for again in ("report", "run"):
        for name in names:
            (output / name).unlink()
        assert command(again, tmp_path / "c.toml", "--quiet", *ONE_STEP) == (0, "")
        assert {name: (output / name).read_bytes() for name in names} == before
    with pytest.raises(TypeError):
        CliRunner().invoke(
            app, ["run", str(tmp_path / "c.toml"), "--set", "steps=4"], catch_exceptions=False
        )


def test_what_other_code_has_run_is_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = []
    config = StepTime(experiment="step_time", output=tmp_path)

    def run() -> pd.DataFrame:
        runs.append(1)
        return pd.DataFrame({"x": [len(runs)]})

    for _ in range(2):
        assert cache.finished(config, "name", {"seed": 0}, run).x.tolist() == [1]
    other = cache.environment() | {"code SHA-256": "0"}
    monkeypatch.setattr(cache, "environment", lambda: other)
    assert cache.finished(config, "name", {"seed": 0}, run).x.tolist() == [2]
    assert cache.finished(config, "name", {"seed": 1}, run).x.tolist() == [3]
    longer = config.model_copy(update={"rounds": 99})
    assert cache.finished(longer, "name", {"seed": 0}, run).x.tolist() == [4]


@pytest.mark.skipif(shutil.which("git") is None, reason="needs Git")
def test_the_commit_of_a_run_and_whether_files_have_changed_since(tmp_path: Path) -> None:
    def git(*words: str) -> str:
        name = ["-c", "user.name=A", "-c", "user.email=a@example.com"]
        return subprocess.check_output(["git", *name, *words], cwd=tmp_path, text=True).strip()

    assert cache.commit(tmp_path) is None
    git("init", "--quiet")
    (tmp_path / "code.py").write_text("x = 1\n")
    git("add", "code.py")
    git("commit", "--quiet", "--message", "Code")
    git("tag", "--annotate", "v1", "--message", "A name that is not wanted")
    head = git("rev-parse", "HEAD")
    assert cache.commit(tmp_path) == head
    (tmp_path / "code.py").write_text("x = 2\n")
    assert cache.commit(tmp_path) == f"{head}-dirty"


@pytest.mark.replicate
@pytest.mark.slow
def test_a_grid_point_is_run_once_and_its_curve_is_that_of_the_last_run(
    tmp_path: Path, csv: Path
) -> None:
    (tmp_path / "c.toml").write_text(CONFIG.format(output=tmp_path / "out", data=csv))
    for steps in (2, 4):
        options = [f"steps={steps}", "method.1.learning_rate=[0.1, 0.1]"]
        sets = [word for option in options for word in ("--set", option)]
        assert run(tmp_path / "c.toml", "--quiet", *sets) == (0, "")
    metrics = pd.read_csv(tmp_path / "out" / "metrics.csv")
    adam = metrics[metrics.method == "Adam"]
    assert adam.step.is_monotonic_increasing
    folders = list((tmp_path / "out" / "tensorboard").glob("wave-adam*"))
    assert len(folders) == 1
    logged = EventAccumulator(str(folders[0]), size_guidance={"tensors": 0}).Reload()
    assert [event.step for event in logged.Tensors("nll")] == adam.step.tolist()


def test_a_run_that_diverges_beyond_float32_is_kept(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(CONFIG.format(output=tmp_path / "out", data="diabetes"))
    diverged = pd.DataFrame({"nll": [1.0, 1e200]})
    kept = cache.finished(
        load_config(tmp_path / "c.toml"), "name", {}, lambda: diverged, lambda table: {"c": table}
    )
    assert kept.nll.tolist() == [1.0, 1e200]
    curve = EventAccumulator(str(tmp_path / "out" / "tensorboard" / "c")).Reload().Tensors("nll")
    assert [float(tf.make_ndarray(event.tensor_proto)) for event in curve] == [1.0, np.inf]


def test_a_method_that_failed_at_once_has_no_curve_and_one_that_failed_later_a_mark() -> None:
    def rows(method: str, seconds: list[float], status: str) -> pd.DataFrame:
        of_run = {"problem": "p", "method": method, "setting": "s", "seed": 0, "repeat": 0}
        of_run["status"] = status
        measured = {"step": range(len(seconds)), "nll": 1.0, "error": 0.5, "error_metric": "RMSE"}
        return pd.DataFrame(of_run | measured | {"seconds": seconds})

    failed = rows("NatGrad + Adam", [0.0], "failed: Cholesky")
    figure = convergence_figure(pd.concat([rows("Adam", [0.0, 0.1, 0.2], "ok"), failed]))
    assert [line.get_label() for line in figure.axes[0].lines] == ["Adam"]
    later = rows("NatGrad + Adam", [0.0, 0.15], "failed: Cholesky")
    figure = convergence_figure(pd.concat([rows("Adam", [0.0, 0.1, 0.2], "ok"), later]))
    mark = figure.axes[0].lines[-1]
    assert (mark.get_label(), list(mark.get_xdata())) == ("failed", [0.15])


def test_the_kernel_and_its_start_can_be_chosen(tmp_path: Path, csv: Path) -> None:
    (tmp_path / "c.toml").write_text(CONFIG.format(output=tmp_path / "out", data=csv))

    def kernel(*overrides: str) -> gpflow.kernels.Stationary:
        config = load_config(tmp_path / "c.toml", overrides)
        split = load_dataset(config.problem[0], Path()).split(0.1, seed=0)
        start = make_start(split, config.problem[0], 8, 0, config.kernel)
        return make_model(start, is_augmented=True).kernel

    # For standardised inputs in two dimensions, √(mean ‖x − x'‖²) is 2.
    np.testing.assert_allclose(kernel().lengthscales.numpy(), [2.0, 2.0])
    isotropic = kernel("kernel.ard=false", "kernel.lengthscale=3", 'kernel.name="Matern32"')
    assert type(isotropic) is gpflow.kernels.Matern32
    assert isotropic.lengthscales.numpy() == pytest.approx(3.0)
    assert isotropic.lengthscales.shape == ()


@pytest.mark.replicate
def test_the_results_name_their_data(tmp_path: Path, csv: Path) -> None:
    (tmp_path / "c.toml").write_text(CONFIG.format(output=tmp_path / "out", data=csv))
    digests = []
    for value in ("1.0", "1.1"):
        lines = csv.read_text().splitlines()
        csv.write_text("\n".join([*lines[:-1], f"0.5,0.5,{value}"]))
        assert run(tmp_path / "c.toml", "--quiet", *ONE_STEP)[0] == 0
        made_with = json.loads((tmp_path / "out" / "environment.json").read_text())
        digests.append(made_with["data SHA-256"]["wave"])
        assert digests[-1] in (tmp_path / "out" / "summary.md").read_text()
        assert made_with["machine"]["cpus"] >= 1
    assert digests[0] != digests[1]


@pytest.mark.replicate
def test_the_gap_experiment_converges_at_fixed_hyperparameters(tmp_path: Path, csv: Path) -> None:
    (tmp_path / "c.toml").write_text(
        f"""
        experiment = "augmentation_gap"
        output = "{tmp_path / "out"}"
        num_lengthscales = 3
        smallest_lengthscale = 0.1
        largest_lengthscale = 10.0
        seeds = [4]

        [[problem]]
        name = "normal"
        data = "{csv}"
        target = "y"
        likelihood = {{ name = "Gaussian" }}

        [[problem]]
        name = "Laplace"
        data = "{csv}"
        target = "y"
        likelihood = {{ name = "Laplace" }}
        """
    )
    code, printed = run(tmp_path / "c.toml")
    assert code == 0, printed
    metrics = pd.read_csv(tmp_path / "out" / "metrics.csv")
    wide = metrics.pivot(index=["problem", "lengthscale"], columns="bound", values="elbo")
    gap = wide.standard - wide.augmented
    # With normal noise, both bounds are log p(y) at the given lengthscale and variance.
    problem = load_config(tmp_path / "c.toml").problem[0]
    split = load_dataset(problem, Path()).split(0.1, seed=4)
    for lengthscale in (0.1, 1.0, 10.0):
        K = 0.1 * RBF(lengthscale)(split.X) + np.eye(len(split.X))
        exact = scipy.stats.multivariate_normal(cov=K).logpdf(split.Y[:, 0])
        np.testing.assert_allclose(wide.loc[("normal", lengthscale)], exact, atol=1e-3)
    assert (gap["normal"].abs() < 1e-6).all()
    assert (gap["Laplace"] > 0.1).all()
    assert (metrics.nll < 3.0).all()
    curves = EventAccumulator(str(tmp_path / "out" / "tensorboard" / "normal-4-standard")).Reload()
    logged = [float(tf.make_ndarray(event.tensor_proto)) for event in curves.Tensors("elbo")]
    np.testing.assert_allclose(logged, wide.loc["normal"].standard, rtol=1e-6)
    for name in ("augmentation_gap.png", "augmentation_gap.pdf", "summary.md"):
        assert (tmp_path / "out" / name).stat().st_size > 500


@pytest.mark.replicate  # it takes minutes
def test_smoke_runs_every_kind_of_experiment(tmp_path: Path) -> None:
    # A new process of a new user, since imports may print something.
    output = ["--set", f'output="{tmp_path}"']
    benchmarks = [sys.executable, "-m", "benchmarks"]
    done = subprocess.run(
        [*benchmarks, "run", CONFIGS / "smoke.toml", "--quiet", *output],
        cwd=CONFIGS.parent,
        env=os.environ | {"XDG_CACHE_HOME": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    kinds = {json.loads(p.read_text())["experiment"] for p in tmp_path.glob("*/config.json")}
    assert kinds == {
        get_args(of.model_fields["experiment"].annotation)[0] for of in get_args(Single)
    }
    metrics = pd.read_csv(tmp_path / "convergence" / "metrics.csv")
    assert set(metrics.problem) == {"susy (synthetic)"}
    assert set(metrics.status) <= {"running", "limit: steps", "limit: time", "converged"}
    assert set(metrics[metrics.seed == 1].method) == set(metrics.method)
    summary = (tmp_path / "convergence" / "summary.md").read_text()
    assert "susy (synthetic)" in summary
    assert "speed-up" in summary
    assert (tmp_path / "convergence" / "convergence_papers_settings.png").is_file()
    # The paper's numbers are for other data.
    assert "Table 2" not in (tmp_path / "sampling" / "summary.md").read_text()
    (tmp_path / "sampling" / "environment.json").unlink()
    code, printed = command("report", CONFIGS / "smoke.toml", *output)
    assert code == 2
    assert "environment.json does not exist" in printed


@pytest.mark.replicate
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
        (("steps = 30", 'steps = "30"'), ["steps", "integer", "'30'"]),
        (("steps = 30", "seconds = true"), ["seconds", "number", "True"]),
        (
            ("steps = 30", "steps = 1\nseeds = [3, 1, 3]"),
            ["seeds", "differ from each other", "[3, 1, 3]"],
        ),
        (("= 8", "= 109"), ["num_inducing", "at most", "108 of wave", "Found: 109."]),
        (
            ('name = "StudentT"', 'name = "Laplace", parameters = { df = 3.0 }'),
            ["problem.0.likelihood", "Laplace has no df", "scale"],
        ),
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


@pytest.mark.parametrize(
    ("second", "names"),
    [
        ("wave.csv", ["problem.1.name", "'wave' again"]),
        ("tide.csv", ["problem.1: data", "tide.csv"]),
    ],
)
def test_a_bad_problem_is_named_before_any_is_run(
    tmp_path: Path, csv: Path, second: str, names: list[str]
) -> None:
    text = CONFIG.format(output=tmp_path / "out", data=csv)
    problem = text[text.index("[[problem]]") : text.index("[[method]]")]
    (tmp_path / "c.toml").write_text(text + problem.replace("wave.csv", second))
    code, printed = run(tmp_path / "c.toml")
    assert code == 2
    for name in names:
        assert name in printed
    assert not list((tmp_path / "out").glob("runs/*"))


def test_inducing_points_are_as_many_as_asked_for(tmp_path: Path, csv: Path) -> None:
    """There are never fewer, and no more are allowed than there are distinct inputs."""
    table = pd.read_csv(csv)
    pd.concat([table[:30]] * 4).to_csv(csv, index=False)
    (tmp_path / "c.toml").write_text(CONFIG.format(output=tmp_path / "out", data=csv))
    problem = load_config(tmp_path / "c.toml").problem[0]
    split = load_dataset(problem, Path()).split(0.1, seed=0)
    assert make_start(split, problem, 30, 0).Z.shape == (30, 2)
    with pytest.raises(ConfigError, match=r"num_inducing .* 30 of wave\. Found: 31\."):
        make_start(split, problem, 31, 0)


def test_a_later_problem_with_too_few_rows_is_named_before_any_is_run(
    tmp_path: Path, csv: Path
) -> None:
    pd.read_csv(csv)[:8].to_csv(tmp_path / "tide.csv", index=False)
    text = CONFIG.format(output=tmp_path / "out", data=csv)
    problem = text[text.index("[[problem]]") : text.index("[[method]]")]
    (tmp_path / "c.toml").write_text(text + problem.replace("wave.csv", "tide.csv"))
    code, printed = run(tmp_path / "c.toml")
    assert code == 2
    assert "7 of tide. Found: 8." in printed
    assert not list((tmp_path / "out").glob("runs/*"))


@pytest.mark.parametrize("experiment", ["convergence", "augmentation_gap"])
def test_equal_seeds_are_refused_wherever_there_are_seeds(
    tmp_path: Path, csv: Path, experiment: str
) -> None:
    (tmp_path / "c.toml").write_text(CONFIG.format(output=tmp_path / "out", data=csv))
    text = (tmp_path / "c.toml").read_text().replace('"convergence"', f'"{experiment}"')
    if experiment == "augmentation_gap":
        text = text[: text.index("[[method]]")]
        for line in ("num_inducing = 8", "batch_size = 20", "steps = 30"):
            text = text.replace(line, "")
    (tmp_path / "c.toml").write_text(text)
    assert load_config(tmp_path / "c.toml", ["seeds=[1, 0]"]).seeds == [1, 0]
    with pytest.raises(ConfigError, match=r"seeds: .* differ .* Found: \[0, 0\]\."):
        load_config(tmp_path / "c.toml", ["seeds=[0, 0]"])


# These are a file, a folder inside a file, and a folder where nobody can create a file.
@pytest.mark.parametrize("output", ["wave.csv", "wave.csv/out", "/proc/self"])
def test_an_output_that_cannot_be_written_is_named_before_anything_is_run(
    tmp_path: Path, csv: Path, output: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(convergence, "_run_one", None)  # whoever trains fails
    output = str(tmp_path / output)
    (tmp_path / "c.toml").write_text(CONFIG.format(output=output, data=csv))
    code, printed = run(tmp_path / "c.toml")
    assert code == 2
    line = f"Error: output must be a folder that can be written. Found: {output} ("
    assert printed.startswith(line)
    assert printed.count("\n") == 1


def test_a_part_that_cannot_be_written_is_named_before_any_part_is_run(tmp_path: Path) -> None:
    (tmp_path / "convergence").mkdir()
    (tmp_path / "step_time").write_text("in the way")
    code, printed = run(CONFIGS / "smoke.toml", "--set", f'output="{tmp_path}"')
    assert code == 2
    assert f"Found: {tmp_path}/step_time (" in printed
    assert not list((tmp_path / "convergence").glob("*"))


def test_a_missing_config_is_named(tmp_path: Path) -> None:
    code, printed = run(tmp_path / "none.toml")
    assert code == 2
    assert "none.toml" in printed


@pytest.mark.parametrize(
    ("override", "names"),
    [
        ("method.1.learning_rates=[0.1]", ["method.1", "learning_rates", "kind, learning_rate"]),
        ("method.1.learning_rate=[-0.1]", ["method.1.adam.learning_rate.0", "-0.1"]),
        ("method.2.learning_rate=[0.1]", ["method has entries 0 to 1", "'2'"]),
        ("problem.0.data.name=1", ["problem.0.data is", "'name'"]),
        ("problem.0.likelihood.name=Laplace", ["likelihood.name", "TOML", "quoted", "'Laplace'"]),
        ("optimizer.learning_rate=0.03", ["optimizer", "Accepted here", "method"]),
        ("steps", ["key.path=value", "'steps'"]),
    ],
)
def test_a_bad_override_is_named(
    tmp_path: Path, csv: Path, override: str, names: list[str]
) -> None:
    (tmp_path / "c.toml").write_text(CONFIG.format(output=tmp_path / "out", data=csv))
    code, printed = run(tmp_path / "c.toml", "--set", override)
    assert code == 2
    for name in names:
        assert name in printed


def test_overrides_reach_any_field(tmp_path: Path, csv: Path) -> None:
    (tmp_path / "c.toml").write_text(CONFIG.format(output=tmp_path / "out", data=csv))
    overrides = [
        "method.1.learning_rate=0.5",
        'problem.0.likelihood.name="Laplace"',
        "problem.0.likelihood.parameters.scale=0.3",
        "seconds = 3",
    ]
    config = load_config(tmp_path / "c.toml", overrides)
    assert config.method[1].learning_rate == [0.5]
    assert config.problem[0].likelihood.name == "Laplace"
    assert config.problem[0].likelihood.parameters == {"scale": 0.3}
    assert config.seconds == 3.0
    assert config.method[0] == load_config(tmp_path / "c.toml").method[0]


def test_list_says_what_there_is() -> None:
    code, printed = command("list")
    assert code == 0
    for path in CONFIGS.glob("*.toml"):
        assert path.name in printed
        assert load_config(path).minutes is not None
    assert "Fig. 3/6: test NLL and error against seconds, SUSY" in printed


def test_every_shipped_config_is_valid() -> None:
    paths = sorted(CONFIGS.glob("*.toml"))
    assert {path.stem for path in paths} >= {"quickstart", "step_time"}
    for path in paths:
        load_config(path)
