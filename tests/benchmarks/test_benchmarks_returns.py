"""When methods return, what tables say about it, and passes over rows that do not fit in memory."""

from pathlib import Path

import gpflow
import numpy as np
import pandas as pd
import pytest

import gpflow_aaci
from benchmarks import convergence, streaming
from benchmarks.config import Convergence, LikelihoodConfig, Problem, Streaming
from benchmarks.datasets import load_dataset
from benchmarks.methods import GPFLOWS, LABELS, Setting, make_model, make_start
from benchmarks.metrics import evaluator
from benchmarks.report import STYLES, style
from benchmarks.samplers import Setting as SamplerSetting
from gpflow_aaci import AugmentedNaturalGradient, AugmentedSVGP, likelihoods
from gpflow_aaci.data import CHUNK

pytestmark = pytest.mark.slow


def run_one(kind: str, full: bool = False, **options: float) -> pd.DataFrame:
    """The metrics of one method on forty rows of diabetes."""
    likelihood = LikelihoodConfig(name="StudentT")
    problem = Problem(data="diabetes", rows=40, full=full, likelihood=likelihood)
    config = Convergence(
        experiment="convergence",
        output=Path(),
        problem=[problem],
        method=[{"kind": kind}],
        batch_size=1_000,
        **options,
    )
    start = make_start(load_dataset(problem, Path()).split(0.1, 0), problem, 5, 0)
    rate = 0.1 if kind == "adam" else None
    return pd.DataFrame(convergence._run_one(config, Setting(kind, rate), start, 0))


@pytest.mark.replicate
@pytest.mark.parametrize("full", [False, True])
def test_scipy_says_when_it_returned_and_why(full: bool) -> None:
    rows = run_one("scipy", full, steps=15)
    assert set(rows.status[:-1]) == {"running"}
    assert rows.status.iloc[-1].startswith("returned: STOP")  # SciPy's message about the iterations
    assert rows.step.iloc[-1] >= 15  # an iteration takes at least one evaluation
    assert rows.seconds.is_monotonic_increasing
    assert rows.elbo.iloc[-1] > rows.elbo.iloc[0] + 1.0
    assert rows.elbo.iloc[-1] == pytest.approx(rows.elbo.max())  # no iteration lowers the ELBO
    # Tracing takes far longer than an evaluation, and is not counted in ``seconds``.
    assert rows.tracing_seconds.iloc[-1] > 3.0 * rows.seconds.iloc[-1] / rows.step.iloc[-1]


@pytest.mark.replicate
def test_a_method_is_cut_at_its_time() -> None:
    for kind in ("scipy", "collapsed", "adam"):
        rows = run_one(kind, seconds=1e-6)
        assert rows.status.tolist() == ["running", "limit: time"]
        assert rows.seconds.iloc[0] == 0.0


@pytest.mark.replicate
@pytest.mark.slow
def test_all_full_batch_methods_end_at_the_same_elbo_by_their_own_tests() -> None:
    kinds = "scipy", "collapsed", "fit"
    ends = {kind: run_one(kind, seconds=60.0).iloc[-1] for kind in kinds}
    assert {end.status for end in ends.values()} == {"converged"}
    assert ends["collapsed"].elbo > ends["scipy"].elbo - 0.5
    assert ends["collapsed"].step < ends["scipy"].step
    assert ends["fit"].elbo == pytest.approx(ends["collapsed"].elbo, abs=1e-6)
    assert ends["fit"].tracing_seconds == 0.0 < ends["collapsed"].tracing_seconds


@pytest.mark.replicate
def test_adam_has_converged_where_two_hundred_steps_gain_too_little() -> None:
    loose, strict = (run_one("adam", steps=1_000, tolerance=t) for t in (1e-2, 1e-9))
    assert loose.status.iloc[-1] == "converged"
    assert strict.status.iloc[-1] == "limit: steps"
    end = loose.step.iloc[-1]
    assert end % 200 == 0
    assert end < strict.step.iloc[-1] == 1_000
    before = loose[loose.step <= end - 200].elbo.max()
    assert loose.elbo.iloc[-1] - before < 1e-2 * 36  # there are 36 training rows


@pytest.mark.by_default("False")
@pytest.mark.slow
@pytest.mark.parametrize("full", [False, True])
def test_the_elbo_of_ours_and_of_gpflow_is_one_number(full: bool) -> None:
    problem = Problem(
        data="diabetes", rows=30, full=full, likelihood=LikelihoodConfig(name="Laplace")
    )
    split = load_dataset(problem, Path()).split(0.1, 0)
    start = make_start(split, problem, 5, 0)
    measured = []
    for is_augmented in (True, False):
        model = make_model(start, is_augmented)
        shape = model.q_mu.shape
        model.q_mu.assign(np.random.default_rng(0).normal(size=shape))
        measured.append(evaluator(model, split)().elbo)
        if not full:
            assert measured[-1] == pytest.approx(float(model.elbo((split.X, split.Y))), rel=1e-9)
    assert measured[0] == pytest.approx(measured[1], rel=1e-9)


def curve(method: str, nll: list[float], scale: float, tracing: float, elbo: float) -> pd.DataFrame:
    times = scale * np.arange(1.0, len(nll) + 1.0)
    of_run = {"problem": "p", "method": method, "setting": "s", "seed": 0, "repeat": 0}
    measured = {"nll": nll, "plugin_nll": 1.0, "error": 0.5, "calibration": 0.1, "elbo": elbo}
    names = {"error_metric": "RMSE", "calibration_metric": "coverage", "is_papers": False}
    rows = {"step": range(len(nll)), "seconds": times, "tracing_seconds": tracing}
    return pd.DataFrame(of_run | measured | names | rows | {"status": "running"})


FALLING = [3.0, 2.0, 1.0, 1.0, 1.0, 1.0]


def test_returns_are_told_with_and_without_tracing() -> None:
    runs = [
        curve(LABELS["collapsed"], FALLING, 0.5, 2.0, -10.0),
        curve(LABELS["scipy"], FALLING, 5.0, 1.0, -12.0),
    ]
    table = convergence.returns_table(pd.concat(runs)).set_index("method")
    ours, scipy = table.loc[LABELS["collapsed"]], table.loc[LABELS["scipy"]]
    assert (ours["with tracing [s]"], scipy["with tracing [s]"]) == ("5.00", "31.00")
    assert (scipy["times"], scipy["times, without"]) == ("6.20", "10.00")
    assert (ours["times"], ours["above"], scipy["above"]) == ("1.00", "0.00", "-2.00")


def test_means_over_splits_have_their_standard_errors() -> None:
    """The sample standard deviation over √splits."""
    ends = [1.0, 1.2, 1.7, 0.9]
    runs = [
        curve(LABELS["fit"], [2.0, end], 1.0, 0.0, -10.0).assign(seed=seed)
        for seed, end in enumerate(ends)
    ]
    (row,) = convergence.means_table(pd.concat(runs)).to_dict("records")
    error = np.std(ends, ddof=1) / np.sqrt(4)
    assert row["test NLL"] == f"{np.mean(ends):.4f} ± {error:.4f}"
    assert row["error or RMSE"] == "0.500 ± 0.000"
    assert row["splits"] == 4


def test_a_return_stands_beside_the_soonest_of_gpflow_that_is_as_good() -> None:
    ours = curve(LABELS["collapsed"], FALLING, 0.5, 2.0, -10.0)
    natgrad = curve(LABELS["natgrad"], FALLING, 9.0, 1.0, -12.0)
    lower = curve(LABELS["adam"], [3.0, 2.0, 1.0, 0.9, 0.9, 0.9], 6.0, 1.0, -12.0)
    slow = curve(LABELS["adam"], [3.0, 2.9, 2.8, 2.7], 6.0, 1.0, -12.0)

    def row(*peers: pd.DataFrame) -> pd.Series:
        return convergence.yardstick_table(pd.concat([ours, *peers])).iloc[0]

    found = row(natgrad, slow)
    assert (found["returned [s]"], found["its end"]) == ("5.00", "NLL 1.0000")
    assert found["GPflow as good [s]"] == "28.00"  # the third evaluation, and tracing
    assert found["by"] == LABELS["natgrad"]
    assert found["returned sooner, times"] == "5.6"
    found = row(natgrad, lower)  # whose end is better, so that no ratio stands
    assert (found["GPflow as good [s]"], found["GPflow's best end"]) == ("19.00", "0.9000")
    assert found["returned sooner, times"] == ""
    found = row(slow)
    assert found["GPflow as good [s]"] == "not reached"
    assert found["returned sooner, times"] == "> 5.0"


def test_a_peer_is_as_good_on_small_data_where_its_elbo_is() -> None:
    ours = curve(LABELS["collapsed"], FALLING, 0.5, 2.0, -10.0).assign(yardstick="elbo")
    scipy = curve(LABELS["scipy"], FALLING, 2.0, 1.0, -12.0).assign(yardstick="elbo")
    elbo = np.array([-40.0, -12.0, -10.2, -10.05, -10.0, -10.0])
    found = convergence.yardstick_table(pd.concat([ours, scipy.assign(elbo=elbo)])).iloc[0]
    assert (found["its end"], found["GPflow as good [s]"]) == ("ELBO -10.0000", "9.00")
    assert found["returned sooner, times"] == "1.8"
    higher = scipy.assign(elbo=elbo + 0.5)
    found = convergence.yardstick_table(pd.concat([ours, higher])).iloc[0]
    assert (found["GPflow as good [s]"], found["returned sooner, times"]) == ("7.00", "")


def test_what_is_known_at_start_and_return_alone_is_there_at_its_return() -> None:
    fit = curve(LABELS["fit"], [3.0, 1.01], 4.0, 0.0, -10.0)
    runs = [fit, curve(LABELS["adam"], FALLING, 5.0, 1.0, -12.0)]
    row = convergence.speed_up_table(pd.concat(runs)).set_index("method").loc[LABELS["fit"]]
    assert (row["to 0.05 [s]"], row["to 0.005 [s]"]) == ("8.00", "not reached")
    assert row["speed-up to 0.05"] == "1.9"


def test_the_figure_of_returns_has_no_mark_of_a_method_that_was_cut_off() -> None:
    """Nor where one run of several was: another mark says that it would have taken longer."""
    fit, scipy, adam = (
        curve(LABELS[kind], FALLING, 0.5, 2.0, -10.0) for kind in ("collapsed", "scipy", "adam")
    )
    runs = [
        fit,
        adam.assign(status="limit: time"),
        scipy,
        scipy.assign(seed=1, status="limit: time"),
    ]
    (ax,) = convergence.returns_figure(pd.concat(runs)).axes
    labels = [line.get_label() for line in ax.lines]
    cut = {f"{LABELS[kind]}, cut off" for kind in ("scipy", "adam")}
    assert {label for label in labels if not label.startswith("_")} == {LABELS["collapsed"], *cut}
    (returned,) = [line for line in ax.lines if line.get_label() == LABELS["collapsed"]]
    np.testing.assert_allclose(returned.get_xdata(), [5.0])


def test_a_failed_run_is_in_a_table_of_its_own() -> None:
    failed = curve(LABELS["natgrad"], [3.0], 0.0, 1.0, -12.0)
    failed = failed.assign(setting="step 1.0", status="failed: Cholesky")
    runs = [curve(LABELS["collapsed"], FALLING, 0.5, 2.0, -10.0), failed]
    tables = convergence.report(pd.concat(runs)).tables
    (table,) = [table for caption, table in tables.items() if "failed" in caption.split(",")[0]]
    assert table[["setting", "status"]].to_numpy().tolist() == [["step 1.0", "failed: Cholesky"]]


def test_every_method_has_a_style_and_one_that_has_none_is_named() -> None:
    kinds = ("gibbs", "generic_gibbs", "hmc", "nuts", "random_walk", "elliptical_slice")
    samplers = [SamplerSetting(kind).method for kind in (*kinds, "prior_proposals")]
    for method in (*LABELS.values(), *GPFLOWS, *samplers, SamplerSetting("gibbs", -0.8).method):
        assert style(method).keys() == {"color", "linestyle", "marker"}
    of_one_figure = [STYLES[method] for method in LABELS.values()]
    for part in zip(*of_one_figure, strict=True):
        assert len(set(part)) == len(LABELS)  # each part alone tells methods apart
    with pytest.raises(KeyError, match="SGD"):
        style("SGD")


def test_methods_of_the_package_have_the_names_of_its_calls() -> None:
    for kind in ("fit", "collapsed", "alternating"):
        assert callable(getattr(gpflow_aaci, LABELS[kind]))


def test_a_stream_is_the_same_rows_every_time_a_chunk_at_a_time() -> None:
    N = 2 * CHUNK + 7
    sizes = [len(X) for X, _ in streaming.rows_made(N, 2)]
    assert sizes == [CHUNK, CHUNK, 7]
    first, again = (next(iter(streaming.rows_made(N, 2))) for _ in range(2))
    for a, b in zip(first, again, strict=True):
        np.testing.assert_array_equal(a, b)
    assert set(np.unique(first[1])) == {0.0, 1.0}


def test_the_pass_that_is_timed_is_that_of_all_rows_at_once() -> None:
    parts = list(streaming.rows_made(CHUNK + 50, 2))
    X, Y = (np.concatenate(part) for part in zip(*parts, strict=True))
    models = [
        AugmentedSVGP(
            gpflow.kernels.SquaredExponential(), likelihoods.Logistic(), X[:4], num_data=len(X)
        )
        for _ in range(2)
    ]
    AugmentedNaturalGradient().minimize(models[0], streaming.rows_made(len(X), 2))
    AugmentedNaturalGradient().minimize(models[1], (X, Y))
    np.testing.assert_allclose(models[0].q_mu.numpy(), models[1].q_mu.numpy(), rtol=1e-8)


def test_a_stream_is_measured_in_turns_and_told_per_row() -> None:
    config = Streaming(
        experiment="streaming", output=Path(), rows=[500], num_inducing=5, input_dim=2, repeats=2
    )
    metrics = pd.DataFrame(streaming.measure(config, 500))
    assert metrics.repeat.tolist() == [0, 1]
    assert (metrics.peak_mb >= metrics.before_mb).all()
    (table,) = streaming.report(metrics).tables.values()
    seconds = metrics.exact.median()
    assert table["exact pass [µs/row]"][0] == pytest.approx(1e6 * seconds / 500)
