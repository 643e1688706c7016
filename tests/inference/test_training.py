"""Runs of ``train`` and ``fit_collapsed``: what they return, how they stop and how they resume."""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from gpflow.base import AnyNDArray

import gpflow_aaci
from gpflow_aaci import AlternatingOptimizer, AugmentedSVGP, AugmentedVGP, train
from gpflow_aaci.data import expected
from gpflow_aaci.inference import EarlyStopping
from gpflow_aaci.models import AugmentedModel
from gpflow_aaci.runtime.checkpoints import Checkpoints
from gpflow_aaci.runtime.workers import ONE_PROCESS

Batch = tuple[AnyNDArray, AnyNDArray]
N = 120


def wave(seed: int = 0, rows: int = N) -> Batch:
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3.0, 3.0, size=(rows, 1))
    return X, np.sin(2.0 * X) + 0.2 * rng.standard_t(3.0, size=X.shape)


def sparse() -> AugmentedSVGP:
    X, _ = wave()
    likelihood = gpflow_aaci.likelihoods.StudentT(scale=0.5)
    kernel = gpflow.kernels.SquaredExponential()
    return AugmentedSVGP(kernel, likelihood, X[:10].copy(), num_data=N)


def full() -> AugmentedVGP:
    kernel = gpflow.kernels.SquaredExponential()
    return AugmentedVGP(wave(rows=30), kernel, gpflow_aaci.likelihoods.Laplace(scale=0.5))


def values(model: AugmentedModel) -> list[AnyNDArray]:
    return [v.numpy() for v in model.variables]


def assert_same(a: AugmentedModel, b: AugmentedModel) -> None:
    """All variables are equal, bit by bit."""
    for x, y in zip(values(a), values(b), strict=True):
        np.testing.assert_array_equal(x, y)


def quiet(model: AugmentedModel, data: Any = None, **kwargs: Any) -> pd.DataFrame:
    kwargs = {"batch_size": 20, "evaluate_every": 10, "progress": False} | kwargs
    return train(model, data, **kwargs)


def datasets() -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices(wave()).shuffle(N, seed=3).repeat().batch(20)


# ---- history and steps ----


@pytest.mark.slow
def test_history_says_what_the_model_was_worth() -> None:
    model, test = sparse(), wave(seed=1)
    before = -float(tf.reduce_mean(model.predict_log_density(test)))
    history = quiet(model, wave(), num_steps=95, test_data=test)
    assert list(history.columns) == ["step", "seconds", "augmented", "nll"]
    assert list(history.step) == [*range(10, 91, 10), 95]
    assert (history.seconds.diff().dropna() > 0.0).all()
    # The evaluation uses all 120 rows.
    np.testing.assert_allclose(history.augmented.iloc[-1], model.augmented_elbo(wave()), rtol=1e-12)
    after = -float(tf.reduce_mean(model.predict_log_density(test)))
    np.testing.assert_allclose(history.nll.iloc[-1], after, rtol=1e-12)
    assert after < before - 0.1


@pytest.mark.slow
def test_no_test_data_no_nll() -> None:
    assert quiet(full(), num_steps=10).nll.isna().all()


@pytest.mark.slow
def test_every_pass_sees_every_row_once_in_an_order_of_its_own() -> None:
    """Steps of ``train`` equal steps by hand on the batches that its seed defines."""
    model, by_hand, optimizer = sparse(), sparse(), AlternatingOptimizer(0.3)
    X, Y = wave()
    quiet(model, (X, Y), optimizer=AlternatingOptimizer(0.3), num_steps=9, seed=5)
    for number in (0, 1):
        order = np.random.default_rng([5, number]).permutation(N)
        for rows in order.reshape(6, 20)[: 6 if number == 0 else 3]:
            optimizer.minimize(by_hand, (X[rows], Y[rows]))
    for ours, theirs in zip(values(model), values(by_hand), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-8, atol=1e-10)
    other = sparse()
    quiet(other, (X, Y), optimizer=AlternatingOptimizer(0.3), num_steps=9, seed=6)
    assert np.any(other.q_mu.numpy() != model.q_mu.numpy())


@pytest.mark.slow
def test_a_dataset_that_ends_ends_the_run_and_says_so() -> None:
    data = tf.data.Dataset.from_tensor_slices(wave()).batch(20)
    model = sparse()
    with pytest.warns(UserWarning, match="data ended after 6 of 50 steps"):
        assert list(quiet(model, data, num_steps=50, evaluate_every=4).step) == [4, 6]


@pytest.mark.slow
def test_an_optimizer_goes_on_with_its_model_and_every_call_has_its_own_steps() -> None:
    """Two calls with 30 steps equal one with 60, with the same optimizer and batches."""
    model, once = full(), full()
    optimizer = AlternatingOptimizer()
    for _ in range(2):
        history = quiet(model, num_steps=30, optimizer=optimizer)
        assert list(history.step) == [10, 20, 30]
    quiet(once, num_steps=60)
    assert_same(model, once)


def test_an_optimizer_of_another_model_is_refused_before_anything_changes() -> None:
    optimizer = AlternatingOptimizer()
    quiet(sparse(), wave(), num_steps=2, optimizer=optimizer)
    model, fresh = sparse(), sparse()
    with pytest.raises(ValueError, match="must be a new one for each model"):
        quiet(model, wave(), num_steps=2, optimizer=optimizer)
    by_hand = AlternatingOptimizer(
        hyperparameter_optimizer=optimizer.hyperparameter_optimizer  # shared with another one
    )
    with pytest.raises(ValueError, match="must be a new one for each model"):
        by_hand.minimize(model, wave())
    assert_same(model, fresh)


@pytest.mark.slow
def test_nothing_to_do_is_said(tmp_path: Path) -> None:
    quiet(sparse(), wave(), num_steps=20, checkpoint_dir=tmp_path)
    with pytest.warns(
        UserWarning, match="nothing to do: num_steps is 20, .* was written at step 20"
    ):
        history = quiet(sparse(), wave(), num_steps=20, checkpoint_dir=tmp_path)
    assert list(history.step) == [10, 20]


@pytest.mark.slow
def test_a_metric_that_was_not_measured_stops_nothing(tmp_path: Path) -> None:
    """
    The first 20 steps have no test data, so their NLL is NaN; early stopping on the NLL follows.
    """
    quiet(sparse(), wave(), num_steps=20, checkpoint_dir=tmp_path)
    rule = EarlyStopping("nll", patience=1, min_delta=1e6)
    history = quiet(
        sparse(), wave(), num_steps=90, early_stopping=rule, test_data=wave(1),
        checkpoint_dir=tmp_path,
    )  # fmt: skip
    assert list(history.step) == [10, 20, 30, 40]  # the first measured NLL, and one more
    assert list(history.nll.isna()) == [True, True, False, False]


@pytest.mark.slow
@pytest.mark.parametrize("metric", ["augmented", "nll"])
def test_early_stopping_waits_for_its_patience(metric: Any) -> None:
    """Since min_delta cannot be reached, nothing is better than the first evaluation."""
    rule = EarlyStopping(metric, patience=3, min_delta=1e6)
    history = quiet(sparse(), wave(), num_steps=200, early_stopping=rule, test_data=wave(seed=1))
    assert list(history.step) == [10, 20, 30, 40]
    going = EarlyStopping(metric, patience=30)
    history = quiet(sparse(), wave(), num_steps=60, early_stopping=going, test_data=wave(seed=1))
    assert history.step.iloc[-1] == 60


def test_monitor_is_called_after_every_step(tmp_path: Path) -> None:
    model, seen = sparse(), []
    task = gpflow.monitor.ExecuteCallback(lambda: seen.append(model.q_mu.numpy()))
    monitor = gpflow.monitor.Monitor(gpflow.monitor.MonitorTaskGroup(task, period=2))
    quiet(model, wave(), num_steps=6, monitor=monitor)
    assert len(seen) == 3
    np.testing.assert_array_equal(seen[-1], model.q_mu)


@pytest.mark.slow
def test_a_failing_step_says_which_and_leaves_the_model() -> None:
    X, Y = wave()
    data = tf.data.Dataset.from_tensor_slices((X, Y)).repeat().batch(20)
    bad = tf.data.Dataset.from_tensors((X[:20], np.full_like(Y[:20], np.nan)))
    model, good = sparse(), sparse()
    with pytest.raises(RuntimeError, match=r"step 4 failed(.|\n)*Y"):
        quiet(model, data.take(3).concatenate(bad), num_steps=9)
    quiet(good, data.take(3), num_steps=9)
    assert_same(model, good)


@pytest.mark.parametrize(
    ("kwargs", "names"),
    [
        ({"num_steps": 0}, "num_steps"),
        ({"batch_size": -5}, "batch_size"),
        ({"evaluate_every": 2.5}, "evaluate_every"),
        ({"checkpoint_every": 0}, "checkpoint_every"),
        ({"early_stopping": EarlyStopping("nll")}, "test_data"),
        ({"early_stopping": EarlyStopping("rmse")}, "metric"),  # type: ignore[arg-type]
        ({"early_stopping": EarlyStopping("augmented", patience=0)}, "patience"),
        ({"data": None}, "data"),
        ({"data": tf.data.Dataset.from_tensor_slices(wave()).take(0).batch(5)}, "empty"),
        (
            {"data": tf.data.Dataset.from_tensor_slices(dict(zip("XY", wave(), strict=True)))},
            r"pair|batches \(X",
        ),
        ({"test_data": wave()[0]}, "test_data must be a pair"),
        ({"test_data": (wave()[0], np.full((N, 1), np.nan))}, "test_data: Y must be finite"),
        ({"test_data": (np.ones((0, 1)), np.ones((0, 1)))}, "test_data: X must have at least one"),
        ({"test_data": (wave()[0], wave()[1][:, 0])}, r"test_data: Y must be.*Y\[:, None\]"),
        ({"test_data": (np.ones((5, 2)), np.ones((5, 1)))}, "test_data: X must have as many"),
    ],
)
def test_bad_arguments_are_named_before_anything_changes(kwargs: Any, names: str) -> None:
    model = sparse()
    before = values(model)
    with pytest.raises(ValueError, match=names):
        quiet(model, **({"data": wave()} | kwargs))
    for now, then in zip(values(model), before, strict=True):
        np.testing.assert_array_equal(now, then)


def test_an_option_that_train_does_not_have_is_named_before_anything_changes() -> None:
    model = sparse()
    before = values(model)
    with pytest.raises(TypeError, match=r"no option evaluate_evry.*num_steps.*evaluate_every"):
        quiet(model, wave(), evaluate_evry=5)
    for now, then in zip(values(model), before, strict=True):
        np.testing.assert_array_equal(now, then)


def test_labels_that_training_data_may_not_have_test_data_may_not_have() -> None:
    X, Y = wave()
    likelihood = gpflow_aaci.likelihoods.Logistic()
    model = AugmentedSVGP(gpflow.kernels.Matern32(), likelihood, X[:5].copy(), num_data=N)
    labels = (Y > 0).astype(float)
    with pytest.raises(ValueError, match="test_data: Y must hold labels of Logistic"):
        quiet(model, (X, labels), test_data=(X, labels + 1.0))


# ---- stopping and going on ----


@pytest.mark.by_default("dataset", "VGP")
@pytest.mark.slow
@pytest.mark.parametrize("source", ["arrays", "dataset", "VGP"])
def test_a_run_in_two_parts_is_a_run_in_one(tmp_path: Path, source: str) -> None:
    data = {"arrays": wave, "dataset": datasets, "VGP": lambda: None}[source]
    make = full if source == "VGP" else sparse
    whole, parts = make(), make()
    history = quiet(whole, data(), num_steps=60)
    quiet(parts, data(), num_steps=30, checkpoint_dir=tmp_path)
    again = make()  # as in a new process
    resumed = quiet(again, data(), num_steps=60, checkpoint_dir=tmp_path)
    assert_same(whole, again)
    pd.testing.assert_frame_equal(history.drop(columns="seconds"), resumed.drop(columns="seconds"))
    assert (resumed.seconds.diff().dropna() > 0.0).all()


@pytest.mark.by_default("10")
@pytest.mark.parametrize("steps", [2, 10])  # evaluations use the first 4 batches
@pytest.mark.slow
def test_a_dataset_that_shuffles_without_a_seed_goes_on_in_a_new_process(
    tmp_path: Path, steps: int
) -> None:
    """Evaluations use the first rows, which in the new process are not those of the first run."""
    tf.random.set_seed(None)  # the program has no seed either
    data = tf.data.Dataset.from_tensor_slices(wave(rows=9_000))

    def run(folder: str, num_steps: int) -> tuple[AugmentedSVGP, pd.DataFrame]:
        model = sparse()
        model.num_data = 9_000
        batches = data.shuffle(9_000).repeat().batch(500)
        return model, quiet(model, batches, num_steps=num_steps, checkpoint_dir=tmp_path / folder)

    run("one", steps)
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    one, history = run("one", 18)
    assert list(history.step) == [10, 18]
    if steps == 2:  # both resume the same pass from one checkpoint
        two, again = run("two", 18)
        assert_same(one, two)
        assert list(history.augmented) == list(again.augmented)


def from_a_generator() -> tf.data.Dataset:
    def batches() -> Any:
        X, Y = wave()
        for start in range(0, N, 20):
            yield X[start : start + 20], Y[start : start + 20]

    spec = tf.TensorSpec([None, 1], tf.float64)
    return tf.data.Dataset.from_generator(batches, output_signature=(spec, spec)).repeat()


@pytest.mark.slow
def test_a_generator_goes_on_where_it_was_by_skipping_batches(tmp_path: Path) -> None:
    """TensorFlow cannot store the position of a generator."""
    whole, stopped, again = sparse(), sparse(), sparse()
    history = quiet(whole, from_a_generator(), num_steps=31)
    quiet(stopped, from_a_generator(), num_steps=17, checkpoint_dir=tmp_path, checkpoint_every=5)
    resumed = quiet(again, from_a_generator(), num_steps=31, checkpoint_dir=tmp_path)
    assert_same(whole, again)
    pd.testing.assert_frame_equal(history.drop(columns="seconds"), resumed.drop(columns="seconds"))
    assert not list(tmp_path.glob("*.unfinished"))


def test_a_checkpoint_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        (folder / "half").write_text("")
        raise OSError("PyFunc is stateful")

    with pytest.raises(OSError, match="step 3 was not written: PyFunc is stateful"):
        Checkpoints(tmp_path, {}, tf.distribute.get_strategy()).save(3, fail)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_ctrl_c_stops_after_a_step_with_a_checkpoint(tmp_path: Path) -> None:
    model, calls = sparse(), []

    def press() -> None:
        calls.append(0)
        if len(calls) == 25:
            os.kill(os.getpid(), signal.SIGINT)

    task = gpflow.monitor.ExecuteCallback(press)
    monitor = gpflow.monitor.Monitor(gpflow.monitor.MonitorTaskGroup(task))
    handler = signal.getsignal(signal.SIGINT)
    history = quiet(model, wave(), num_steps=60, monitor=monitor, checkpoint_dir=tmp_path)
    assert list(history.step) == [10, 20, 25]
    assert signal.getsignal(signal.SIGINT) is handler
    whole, again = sparse(), sparse()
    resumed = quiet(again, wave(), num_steps=60, checkpoint_dir=tmp_path)
    history = quiet(whole, wave(), num_steps=60)
    assert_same(whole, again)
    pd.testing.assert_frame_equal(history.drop(columns="seconds"), resumed.drop(columns="seconds"))


KILLED = """
import os, sys
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
from pathlib import Path
import numpy as np
import tensorflow as tf
import gpflow_aaci

def run(folder, routes):
    sys.path.insert(0, sys.argv[1])  # its constants start TensorFlow, after which none may fork
    from test_training import quiet, sparse, wave, datasets, values
    rule = gpflow_aaci.inference.EarlyStopping("nll", patience=8)
    common = {"num_steps": 90, "checkpoint_every": 3, "test_data": wave(seed=1)}
    kept = {}
    for name, data in (("arrays", wave), ("dataset", datasets)):
        if name not in routes:
            continue
        model = sparse()
        history = quiet(
            model, data(), early_stopping=rule, checkpoint_dir=folder / name, **common
        )
        kept |= {f"{name}{i}": value for i, value in enumerate(values(model))}
        kept[name + "history"] = history.drop(columns="seconds").to_numpy()
    streamed = lambda: tf.data.Dataset.from_tensor_slices(wave()).batch(25)
    gpflow_aaci.data.datasets.CHUNK = 40  # and so in chunks, whose passes are logged
    for name, data in (("collapsed", wave), ("streamed", streamed)):
        if name not in routes:
            continue
        model = sparse()
        result = gpflow_aaci.fit_collapsed(model, data(), checkpoint_dir=folder / name)
        kept |= {f"{name}{i}": value for i, value in enumerate(values(model))}
        ended = result.objective, result.start, result.evaluations, result.converged
        kept[name] = np.asarray(ended)  # not how long it took
    np.savez(folder / "unfinished.npz", **kept)
    (folder / "unfinished.npz").rename(folder / "end.npz")

print("ready", flush=True)
for line in sys.stdin:
    child = os.fork()
    if not child:
        folder, *routes = line.split()
        run(Path(folder), routes)
        os._exit(0)
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class _Runs:
    """Runs in separate processes, forked from one that has finished its imports."""

    def __init__(self) -> None:
        program = [sys.executable, "-c", KILLED, str(Path(__file__).parent)]
        self._parent = subprocess.Popen(
            program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._parent.stdout is not None
        assert self._parent.stdout.readline() == "ready\n"  # the imports are done

    def __call__(self, folder: Path, routes: str, kill_after: float | None = None) -> int:
        """The exit code of a run, which is killed after ``kill_after`` seconds, if given."""
        folder.mkdir(exist_ok=True)
        commands, answers = self._parent.stdin, self._parent.stdout
        assert commands is not None
        assert answers is not None
        commands.write(f"{folder} {routes}\n")
        commands.flush()
        child = int(answers.readline())
        if kill_after is None:
            return int(answers.readline())
        timer = threading.Timer(kill_after, os.kill, (child, signal.SIGKILL))
        timer.start()
        code = int(answers.readline())
        timer.cancel()
        return code

    def close(self) -> None:
        self._parent.communicate()


@pytest.fixture
def new_runs() -> Iterator[Callable[[], _Runs]]:
    """A function that starts a new interpreter, with its own hashes of strings."""
    made: list[_Runs] = []

    def new() -> _Runs:
        made.append(_Runs())
        return made[-1]

    yield new
    for runs in made:
        runs.close()


@pytest.mark.replicate
@pytest.mark.parametrize(
    ("times", "routes"), [(6, "arrays"), (6, "streamed"), (3, "dataset collapsed")]
)
def test_killed_again_and_again_a_run_ends_as_if_it_never_had_been(
    tmp_path: Path, new_runs: Callable[[], _Runs], times: int, routes: str
) -> None:
    """SIGKILL comes at random moments, mostly while a checkpoint is written."""
    rng = np.random.default_rng(0)
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    undisturbed, disturbed = new_runs(), new_runs()
    began = time.perf_counter()
    assert undisturbed(whole, routes) == 0
    took = time.perf_counter() - began
    kills = 0
    while kills < times:
        code = disturbed(killed, routes, kill_after=rng.uniform(0.1, 0.9) * took)
        assert code in (0, -signal.SIGKILL)
        kills += code == -signal.SIGKILL
        if (killed / "end.npz").exists():  # it had finished: start again
            _assert_same_end(whole, killed)
            shutil.rmtree(killed)
    assert undisturbed(killed, routes) == 0
    _assert_same_end(whole, killed)


def _assert_same_end(a: Path, b: Path) -> None:
    with np.load(a / "end.npz") as ours, np.load(b / "end.npz") as theirs:
        assert set(ours) == set(theirs)
        for name in ours:
            np.testing.assert_array_equal(ours[name], theirs[name], err_msg=name)


# ---- damaged checkpoints and failing disks ----


def _run(model: AugmentedModel, folder: Path, data: Any = None, **kwargs: Any) -> pd.DataFrame:
    return quiet(model, data or wave(), num_steps=20, checkpoint_dir=folder, **kwargs)


def _latest(folder: Path) -> Path:
    return sorted(folder.iterdir())[-1]


def _truncate(folder: Path) -> None:
    path = next(_latest(folder).glob("variables.data*"))
    path.write_bytes(path.read_bytes()[:-7])


def _empty_manifest(folder: Path) -> None:
    (_latest(folder) / "checkpoint.json").write_text("")


def _lose(folder: Path) -> None:
    (_latest(folder) / "history.json").unlink()


@pytest.mark.slow
@pytest.mark.by_default("_truncate")
@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (_truncate, "damaged: variables.data"),
        (_empty_manifest, "not a checkpoint"),
        (_lose, "damaged: history.json"),
    ],
)
def test_a_damaged_checkpoint_is_refused(
    tmp_path: Path, damage: Callable[[Path], None], says: str
) -> None:
    _run(sparse(), tmp_path)
    damage(tmp_path)
    model, fresh = sparse(), sparse()
    with pytest.raises(ValueError, match=says):
        _run(model, tmp_path)
    assert_same(model, fresh)


def _other_kernel() -> AugmentedSVGP:
    likelihood = gpflow_aaci.likelihoods.StudentT(scale=0.5)
    Z = wave()[0][:10].copy()
    return AugmentedSVGP(gpflow.kernels.Matern32(), likelihood, Z, num_data=N)


@pytest.mark.by_default("_other_kernel")
@pytest.mark.parametrize(
    ("model", "kwargs", "says"),
    [
        (sparse, {"data": wave(seed=9)}, "data is"),
        (sparse, {"seed": 1}, "seed is 1 here. Found: 0"),
        (sparse, {"batch_size": 10}, "batch_size is 10 here. Found: 20"),
        (_other_kernel, {}, "model differs"),
        (sparse, {"optimizer": AlternatingOptimizer(0.5)}, "optimizer differs: schedule is"),
    ],
)
def test_a_foreign_checkpoint_is_refused(
    tmp_path: Path, model: Callable[[], AugmentedModel], kwargs: Any, says: str
) -> None:
    _run(sparse(), tmp_path)
    other, fresh = model(), model()
    with pytest.raises(ValueError, match=f"to another run: {says}"):
        _run(other, tmp_path, **kwargs)
    assert_same(other, fresh)


@pytest.mark.slow
def test_the_last_two_checkpoints_are_kept(tmp_path: Path) -> None:
    _run(sparse(), tmp_path, checkpoint_every=3)
    assert [path.name for path in sorted(tmp_path.iterdir())] == [
        "step-0000000018",
        "step-0000000020",
    ]
    steps = json.loads((_latest(tmp_path) / "history.json").read_text())
    assert [record[0] for record in steps] == [10, 20]


def test_only_checkpoints_are_removed_or_resumed_from(tmp_path: Path) -> None:
    """Folders and files of the user stay, and do not count as checkpoints."""
    checkpoints = Checkpoints(tmp_path, {"seed": 0}, ONE_PROCESS)

    def write(folder: Path) -> None:
        (folder / "state").write_text("all that was learnt")

    checkpoints.save(10, write)
    names = ("step-0000000010-keep", "step-00-my notes", "step-99999999990", "step-9 of mine")
    for name in names:
        shutil.copytree(tmp_path / "step-0000000010", tmp_path / name)
    files = ("step-0000000000", "step-9999999999", "step-0000000010.txt")
    for name in files:
        (tmp_path / name).write_text("of the user")
    for step in (20, 30, 40):
        checkpoints.save(step, write)
        assert checkpoints.latest() == tmp_path / f"step-{step:010d}"
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {*names, *files, "step-0000000030", "step-0000000040"}


@pytest.mark.slow
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS])
def test_a_disk_that_fails_stops_the_run_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """The model keeps its steps, and the folder its older checkpoint."""
    _run(sparse(), tmp_path, checkpoint_every=10)
    older = {path: path.stat().st_mtime for path in tmp_path.rglob("*")}

    def fail(path: Path, *args: Any, **kwargs: Any) -> None:
        raise OSError(code, os.strerror(code))

    model, good = sparse(), sparse()
    monkeypatch.setattr(Path, "write_text", fail)
    with pytest.raises(OSError, match=rf"step 25 was not written: {os.strerror(code)}"):
        quiet(model, wave(), num_steps=25, checkpoint_dir=tmp_path)
    monkeypatch.undo()
    quiet(good, wave(), num_steps=25)
    assert_same(model, good)
    assert all(path.stat().st_mtime == at for path, at in older.items() if path != tmp_path)
    again = sparse()
    quiet(again, wave(), num_steps=25, checkpoint_dir=tmp_path)
    assert_same(again, good)


@pytest.mark.slow
def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    """There is a file with its name."""
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        quiet(sparse(), wave(), num_steps=5, checkpoint_dir=tmp_path / "file" / "run")


def test_rows_of_arrays_are_checked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of checked arrays are not checked again; batches of a dataset are."""
    checked = []
    check = expected.checked_data

    def counted(X: Any, Y: Any, **options: Any) -> Any:
        checked.append(X.shape)
        return check(X, Y, **options)

    monkeypatch.setattr(expected, "checked_data", counted)
    options: dict[str, Any] = {"num_steps": 4, "evaluate_every": 2, "progress": False}
    train(sparse(), wave(), batch_size=10, **options)
    assert [tuple(shape) for shape in checked] == [(N, 1)]
    rows = tf.data.Dataset.from_tensor_slices(wave())
    train(sparse(), rows.repeat().batch(10), **options)
    assert len(checked) > 1
