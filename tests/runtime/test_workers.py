"""Several workers or devices give one process's results, or all fail with the same error."""

import functools
import json
import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

from benchmarks.config import ConfigError
from benchmarks.launch import free_ports, own_network
from gpflow_aaci.runtime.identity import rows_digest, shifted
from gpflow_aaci.runtime.workers import is_chief, is_single, sum_over_workers, together

WORKER = Path(__file__).parent / "worker.py"
MOST_SECONDS = 300


def started(workers: int, task: str, folder: Path, devices: int = 0) -> list[subprocess.Popen]:
    """The processes of that many workers, or one process without TF_CONFIG if it is 0."""
    folder.mkdir(exist_ok=True)
    cluster = {"worker": [f"127.0.0.1:{port}" for port in free_ports(workers)]}
    running = []
    for index in range(max(1, workers)):
        environment = {**os.environ, "DEVICES": str(devices), "OMP_NUM_THREADS": "1"}
        if workers:
            config = {"cluster": cluster, "task": {"type": "worker", "index": index}}
            environment["TF_CONFIG"] = json.dumps(config)
        with (folder / f"{index}.txt").open("w") as said:
            command = [sys.executable, str(WORKER), task, str(folder)]
            running.append(
                subprocess.Popen(command, env=environment, stdout=said, stderr=subprocess.STDOUT)
            )
    return running


def ended(running: list[subprocess.Popen]) -> list[int]:
    """The exit codes of the processes. A worker that hangs fails the test."""
    try:
        return [process.wait(MOST_SECONDS) for process in running]
    finally:
        for process in running:
            process.kill()


def found(folder: Path, index: int = 0) -> dict[str, list[float]]:
    return json.loads((folder / f"{index}.json").read_text())


def said(folder: Path, index: int) -> str:
    return (folder / f"{index}.txt").read_text()


def run(workers: int, task: str, folder: Path, devices: int = 0) -> list[dict[str, list[float]]]:
    """The results of each worker."""
    codes = ended(started(workers, task, folder, devices))
    assert not any(codes), "\n".join(said(folder, index)[-3_000:] for index in range(len(codes)))
    return [found(folder, index) for index in range(len(codes))]


def assert_same(a: dict[str, list[float]], b: dict[str, list[float]], rtol: float) -> None:
    assert a.keys() == b.keys()
    for key, value in a.items():
        scale = np.max(np.abs(value))
        np.testing.assert_allclose(b[key], value, rtol=0, atol=rtol * scale, err_msg=key)


Alone = Callable[[str], dict[str, list[float]]]


@pytest.fixture(scope="session")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Alone:
    """A function that returns the results of a task in one process, which is run once."""

    @functools.cache
    def of_task(task: str) -> dict[str, list[float]]:
        (only,) = run(0, task, tmp_path_factory.mktemp(task))
        return only

    return of_task


def test_what_rows_are_is_the_sum_over_parts_and_changes_with_any_of_them(
    rng: np.random.Generator,
) -> None:
    X, Y = rng.normal(size=(500, 3)), rng.integers(0, 2, size=(500, 1)).astype(float)
    whole = rows_digest(X, Y)
    cuts = [slice(0, 7), slice(7, 7), slice(7, 300), slice(300, 500)]
    in_place = [rows_digest(X[cut], Y[cut], cut.start) for cut in cuts]
    moved = [shifted(rows_digest(X[cut], Y[cut]), cut.start) for cut in cuts]
    for parts in (in_place, moved):
        assert np.sum(parts, axis=0, dtype=np.uint64).tolist() == whole.tolist()
    order = np.arange(500)
    order[[3, 4]] = 4, 3
    X_other, Y_other = X.copy(), Y.copy()
    X_other[250, 1] = np.nextafter(X_other[250, 1], 1.0)
    Y_other[499] = 1.0 - Y_other[499]
    others = [(X[order], Y[order]), (X_other, Y), (X, Y_other), (X[:-1], Y[:-1])]
    others += [(X[:, :2], np.hstack([X[:, 2:], Y]))]
    others += [(X.astype(np.float32).astype(float), Y)]
    assert len({tuple(rows_digest(*other).tolist()) for other in [(X, Y), *others]}) == 7


def test_ports_are_free_and_none_is_given_twice() -> None:
    ports = free_ports(20)
    assert len(set(ports)) == 20
    for port in ports:
        with socket.socket() as one:
            one.bind(("127.0.0.1", port))


def test_one_process_is_left_alone() -> None:
    """With one process, sums over workers and messages between them are no operations."""
    strategy, x = tf.distribute.get_strategy(), tf.constant([1.0, 2.0])
    assert sum_over_workers(strategy, [x])[0] is x
    assert is_chief(strategy)
    assert is_single(strategy)
    assert together(strategy, lambda: x) is x


def refused(network: Callable[[], AbstractContextManager]) -> str:
    """The message of a machine that cannot create such a network, or an empty string."""
    try:
        with network():
            return ""
    except ConfigError as error:
        return str(error)


LISTENER = """
import socket
with socket.socket() as here:
    here.bind(("0.0.0.0", 0))
    here.listen()
    print(here.getsockname()[1], flush=True)
    here.accept()
"""


def test_what_listens_on_all_addresses_in_a_launch_is_not_heard_outside() -> None:
    """If Linux does not let a user create a network, the launch is refused."""
    if message := refused(own_network):
        assert "--all-addresses" in message
        return
    with own_network() as enter:
        command = [sys.executable, "-c", LISTENER]
        listener = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=enter)
        try:
            port = int(listener.stdout.readline())
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", port), 5.0)
        finally:
            listener.kill()
            listener.communicate()


@pytest.mark.replicate
@pytest.mark.slow
def test_two_launches_at_once_do_not_meet(tmp_path: Path) -> None:
    """Each launch has its own chief, whose table has its own number of workers."""
    sizes = ["rows=[300]", "num_inducing=[5]", "repeats=1"]
    is_closed = not refused(own_network)
    running = []
    for number in (2, 3):
        command = [sys.executable, "-m", "benchmarks", "launch", "configs/scaling.toml"]
        for override in [*sizes, f'output="{tmp_path / str(number)}"']:
            command += ["--set", override]
        command += ["--workers", str(number), *([] if is_closed else ["--all-addresses"])]
        running.append(subprocess.Popen(command, cwd=WORKER.parents[1]))
    assert ended(running) == [0, 0]
    for number in (2, 3):
        table = pd.read_csv(tmp_path / str(number) / "metrics.csv")
        assert table.workers.tolist() == [number]


@pytest.mark.replicate
def test_two_uneven_workers_step_as_one_process_and_agree_to_the_last_bit(
    tmp_path: Path, alone: Alone
) -> None:
    first, second = run(2, "steps", tmp_path)
    assert first == second
    assert_same(alone("steps"), first, 1e-8)


@pytest.mark.by_default("fit")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "workers", "devices"),
    [
        ("fit", 0, 2),
        ("others", 2, 0),  # streams, coupled latent GPs, an unwhitened q(u), other objectives
        ("nearest", 2, 0),
        *(
            pytest.param(*case, marks=pytest.mark.replicate)
            for case in [
                ("fit", 1, 0),
                ("fit", 2, 0),
                ("fit", 4, 0),
                ("fit", 0, 3),
                ("others", 0, 2),
                ("nearest", 4, 0),
            ]
        ),
    ],
)
def test_any_number_of_workers_or_devices_ends_as_one_process(
    tmp_path: Path, alone: Alone, task: str, workers: int, devices: int
) -> None:
    several = run(workers, task, tmp_path, devices)
    assert all(other == several[0] for other in several)
    assert_same(alone(task), several[0], 1e-10 if task == "nearest" else 1e-8)


@pytest.mark.replicate
@pytest.mark.slow
def test_the_same_workers_find_the_same_bits_again(tmp_path: Path) -> None:
    once, again = (run(2, "fit", tmp_path / name)[0] for name in ("once", "again"))
    assert once == again


@pytest.mark.by_default("scale")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("on", "message"),
    [
        ("scale", "ValueError: the value of .likelihood.scale must be the same on every worker"),
        ("seed", "ValueError: seed must be the same on every worker"),
        ("rate", "learning_rate of the optimizer must be the same on every worker"),
        ("kernel", "ValueError: kernel of the model must be the same on every worker"),
        ("data", "X must have as many columns as inducing_variable, 2. Found: 1"),
    ],
)
def test_what_differs_on_one_worker_is_named_before_the_first_step(
    tmp_path: Path, on: str, message: str
) -> None:
    assert ended(started(2, f"disagree {on}", tmp_path)) == [3, 3]
    for index in range(2):
        assert message in said(tmp_path, index)
        assert "worker 1" in said(tmp_path, index) or (on, index) == ("data", 1)


@pytest.mark.replicate
@pytest.mark.parametrize(
    "seed",
    [0, *(pytest.param(seed, marks=pytest.mark.replicate) for seed in range(1, 10))],
)
def test_after_a_worker_is_killed_all_end_and_any_number_go_on(
    tmp_path: Path, alone: Alone, seed: int
) -> None:
    whole = alone("resume")
    rng = random.Random(seed)
    killed, folder = rng.randrange(2), tmp_path / "killed"
    running = started(2, "resume", folder)
    while not (folder / "checkpoints").exists() and running[0].poll() is None:
        time.sleep(0.1)
    time.sleep(rng.uniform(0.0, 5.0))
    running[killed].kill()
    codes = ended(running)
    if codes[1 - killed]:  # it had not finished when the other was killed
        other = said(folder, 1 - killed)
        assert f"RuntimeError: worker {killed} of 2 was lost" in other
    resumed = run(rng.choice([0, 2, 3]), "resume", folder)
    assert_same(whole, resumed[0], 1e-8)
