"""``Data.sum``: one scaled sum over all rows, in whatever form and chunks they come."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from gpflow.base import AnyNDArray

from gpflow_aaci import data as data_module
from gpflow_aaci.data import Arrays, Data, Expected, PassLog, Summand, as_data
from gpflow_aaci.runtime.workers import ONE_PROCESS

N = 23
RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(N, 2)), RNG.normal(size=(N, 1))
Make = Callable[[float | None], Data]


def expected(num_data: float | None = None) -> Expected:
    return Expected(
        "a model", 2, 1, 1, (), lambda Y: (), num_data, None, ONE_PROCESS, lambda call: None
    )


def weighted(X: tf.Tensor, Y: tf.Tensor, weight: tf.Tensor) -> dict[str, tf.Tensor]:
    return {"of X": weight * tf.reduce_sum(X, 0), "of Y": tf.reduce_sum(Y**2)}


class Traced:
    """A compiled function that counts how often it is traced."""

    def __init__(self, calls: list[int]) -> None:
        def counted(X: tf.Tensor, Y: tf.Tensor, weight: tf.Tensor) -> dict[str, tf.Tensor]:
            calls.append(1)
            return weighted(X, Y, weight)

        shapes = [None, 2], [None, 1], []
        specs = [tf.TensorSpec(shape, tf.float64) for shape in shapes]
        self._function = tf.function(counted, input_signature=specs, autograph=False)

    def trace(self) -> dict[str, tf.TensorSpec]:
        return self._function.get_concrete_function().structured_outputs

    def __call__(self, *args: tf.Tensor) -> dict[str, tf.Tensor]:
        return self._function(*args)


def summand(calls: list[int]) -> Summand:
    return Summand(Traced(calls), "counted")


def streamed(num_data: float | None, *rows: AnyNDArray) -> Data:
    dataset = tf.data.Dataset.from_tensor_slices(rows or (X, Y)).batch(4)
    return as_data(expected(num_data), dataset)


GIVEN: dict[str, Make] = {
    "arrays": lambda num_data: as_data(expected(num_data), (X, Y)),
    "NumPy, in chunks": lambda num_data: Arrays(X, Y, num_data),
    "stream": streamed,
    "subset of all": lambda num_data: Arrays(X, Y, num_data).subset(N, seed=3),
}


@pytest.mark.parametrize("num_data", [None, 5.0 * N])
@pytest.mark.parametrize("given", GIVEN)
def test_a_sum_is_num_data_over_rows_times_the_sum_however_the_rows_are_cut(
    given: str, num_data: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_module.datasets, "CHUNK", 7)
    scale = 1.0 if num_data is None else num_data / N
    rows = GIVEN[given](num_data)
    for function in (weighted, summand([])):
        found = rows.sum(function, tf.constant(3.0, tf.float64))
        np.testing.assert_allclose(found["of X"], scale * 3.0 * X.sum(0), rtol=1e-12)
        np.testing.assert_allclose(found["of Y"], scale * (Y**2).sum(), rtol=1e-12)
    np.testing.assert_allclose(rows.mean(lambda X, Y: tf.reduce_sum(Y)), Y.mean(), rtol=1e-12)


def test_a_sum_over_one_chunk_has_a_gradient() -> None:
    """Sums over arrays are one chunk. The gradient exists inside a graph, too."""
    w = tf.Variable(2.0, dtype=tf.float64)

    @tf.function(autograph=False)
    def gradient(X: tf.Tensor, Y: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            value = as_data(expected(46.0), (X, Y)).sum(weighted, w)["of X"]
        return tape.gradient(value, w)

    np.testing.assert_allclose(gradient(tf.constant(X), tf.constant(Y)), 2.0 * X.sum(), rtol=1e-12)


def test_a_summand_is_traced_once_for_any_number_of_rows() -> None:
    calls: list[int] = []
    function = summand(calls)
    for end in (3, 10, N):
        Arrays(X[:end], Y[:end]).sum(function, tf.constant(1.0, tf.float64))
    assert calls == [1]


def test_a_logged_sum_is_not_made_again_unless_rows_or_arguments_differ(tmp_path: Path) -> None:
    passes: list[int] = []

    class Counted(Arrays):
        def _chunks(self):  # type: ignore[no-untyped-def]
            passes.append(1)
            return super()._chunks()

    rows = Counted(X, Y)
    rows.log = PassLog(tmp_path)
    one, two = (tf.constant(value, tf.float64) for value in (1.0, 2.0))
    function = summand([])
    first = rows.sum(function, one)
    again = rows.sum(summand([]), one)
    np.testing.assert_array_equal(first["of X"], again["of X"])
    assert len(passes) == 1
    rows.sum(function, two)
    assert len(passes) == 2
    few = Counted(X[:9], Y[:9])
    few.log = PassLog(tmp_path)
    np.testing.assert_allclose(few.sum(function, one)["of X"], X[:9].sum(0), rtol=1e-12)
    assert len(passes) == 3


@pytest.mark.parametrize("content", [b"", b"PK", b"not a result"])
def test_a_logged_sum_that_is_damaged_is_made_again(tmp_path: Path, content: bytes) -> None:
    """After a crash of the file system the file may be empty, for example."""
    rows = Arrays(X, Y)
    rows.log = PassLog(tmp_path)
    one = tf.constant(1.0, tf.float64)
    first = rows.sum(summand([]), one)
    (path,) = tmp_path.glob("passes-*/*.npz")
    path.write_bytes(content)
    again = rows.sum(summand([]), one)
    np.testing.assert_array_equal(first["of X"], again["of X"])
    assert path.stat().st_size > len(content)


def test_a_smaller_subset_of_the_same_seed_is_a_part_of_a_larger_one() -> None:
    rows = Arrays(X, Y)
    small, large = (rows.subset(size, seed=1) for size in (5, 11))
    np.testing.assert_array_equal(small.rows[0], large.rows[0][:5])
    np.testing.assert_allclose(
        streamed(None).subset(5, seed=1).rows[1], small.rows[1], rtol=0, atol=0
    )


def test_a_stream_is_read_once_for_one_sum() -> None:
    """The same pass checks and counts the rows."""
    reads: list[int] = []

    def batches():  # type: ignore[no-untyped-def]
        reads.append(1)
        yield X, Y

    spec = tf.TensorSpec([None, 2], tf.float64), tf.TensorSpec([None, 1], tf.float64)
    dataset = tf.data.Dataset.from_generator(batches, output_signature=spec)
    rows = as_data(expected(2.0 * N), dataset)
    found = rows.sum(weighted, tf.constant(1.0, tf.float64))
    np.testing.assert_allclose(found["of Y"], 2.0 * (Y**2).sum(), rtol=1e-12)
    assert len(reads) == 1
