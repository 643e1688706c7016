"""Data of any length: passes over datasets give the same results as arrays of the same rows."""

import dataclasses
import subprocess
import sys
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from gpflow.base import AnyNDArray

from gpflow_aaci import (
    AugmentedNaturalGradient,
    AugmentedSVGP,
    AugmentedVGP,
    data,
    fit_collapsed,
    likelihoods,
    polish,
    predictions,
    sample_posterior,
)
from gpflow_aaci.inference import FitResult
from gpflow_aaci.sampling import SparseGibbsKernel

Pair = tuple[AnyNDArray, AnyNDArray]
N, M = 2_300, 8


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data.datasets, "CHUNK", 700)


@pytest.fixture(scope="module")
def rows() -> Pair:
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, size=(N, 2))
    return X, np.sin(2.0 * X[:, :1]) + 0.3 * rng.standard_t(3, size=(N, 1))


def stream(rows: Pair, size: int = 250) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices(rows).batch(size)


def make(num_data: int | None = None, whiten: bool = True) -> AugmentedSVGP:
    Z = np.random.default_rng(1).uniform(-2.0, 2.0, size=(M, 2))
    mean = gpflow.functions.Constant(0.2)
    model = AugmentedSVGP(
        gpflow.kernels.Matern52(lengthscales=[1.0, 1.0]),
        likelihoods.StudentT(0.4, 3.5),
        Z,
        mean_function=mean,
        num_data=num_data,
        whiten=whiten,
    )
    gpflow.set_trainable(model.inducing_variable, False)
    return model


def values(model: AugmentedSVGP) -> list[AnyNDArray]:
    return [variable.numpy() for variable in model.variables]


def test_batches_without_rows_are_skipped(rows: Pair) -> None:
    """A filter that comes after batching can leave empty batches, even the first one."""

    def kept(X: tf.Tensor, Y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        some = X[:, 0] > 1.0
        return X[some], Y[some]

    order = np.argsort(rows[0][:, 0])
    ordered = rows[0][order], rows[1][order]
    filtered = stream(ordered).map(kept)
    arrays = tuple(part[ordered[0][:, 0] > 1.0] for part in ordered)
    for of in (
        lambda rows: make().elbo(rows, progress=False),
        lambda rows: polish(make(), rows, max_steps=1, progress=False).elbo,
    ):
        np.testing.assert_allclose(of(filtered), of(arrays), rtol=1e-10)
    batches = data.as_data(make(900).expected_data, filtered.repeat()).batches(100, 0)
    batches.go_to(0)
    assert all(len(next(batches)[0]) for _ in range(12))


class CountedPasses:
    """
    A dataset with batches of 100 rows that counts its passes, and can fail in the middle of one.
    """

    def __init__(self, rows: Pair, stop: int | None = None) -> None:
        self.rows, self.stop, self.count = rows, stop, 0

    def __iter__(self) -> Iterator[Pair]:
        self.count += 1
        for start in range(0, N, 100):
            if self.count == self.stop and start > N / 2:
                raise RuntimeError("killed")
            yield self.rows[0][start : start + 100], self.rows[1][start : start + 100]

    def dataset(self) -> tf.data.Dataset:
        spec = tuple(tf.TensorSpec([None, part.shape[1]], tf.float64) for part in self.rows)
        return tf.data.Dataset.from_generator(lambda: iter(self), output_signature=spec)


@pytest.fixture(scope="module")
def uninterrupted(rows: Pair) -> tuple[int, FitResult]:
    """The number of passes that a fit to the stream makes, and its result."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(data.datasets, "CHUNK", 700)
        counted = CountedPasses(rows)
        result = fit_collapsed(make(), counted.dataset())
    assert counted.count > 30
    return counted.count, result


@pytest.mark.briefly("None")
@pytest.mark.parametrize("num_data", [None, 2 * N])
def test_bounds_and_gap_are_those_of_the_arrays(rows: Pair, num_data: int | None) -> None:
    model = make(num_data)
    for bound in ("augmented_elbo", "elbo", "augmentation_gap"):
        ours, theirs = (getattr(model, bound)(d) for d in (stream(rows), rows))
        np.testing.assert_allclose(ours, theirs, rtol=1e-10)


@pytest.mark.briefly("False")
@pytest.mark.parametrize("whiten", [True, False])
def test_a_natural_gradient_step_is_that_of_the_arrays(rows: Pair, whiten: bool) -> None:
    streamed, whole = make(whiten=whiten), make(whiten=whiten)
    order = np.random.default_rng(2).permutation(N)
    for step_size in (1.0, 0.3):
        optimizer = AugmentedNaturalGradient(step_size)
        optimizer.minimize(streamed, stream((rows[0][order], rows[1][order]), 101))
        optimizer.minimize(whole, rows)
    np.testing.assert_allclose(streamed.q_mu, whole.q_mu, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(streamed.q_sqrt, whole.q_sqrt, rtol=1e-9, atol=1e-11)


@pytest.mark.slow
def test_a_fit_ends_where_that_of_the_arrays_does(
    rows: Pair, uninterrupted: tuple[int, FitResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both begin with the same 1,000 rows; then the stream has four chunks and the arrays one."""
    monkeypatch.setattr(data.datasets, "CHUNK", N)
    _, ours = uninterrupted
    whole = make()
    theirs = fit_collapsed(whole, rows)
    assert ours.evaluations == theirs.evaluations
    assert ours.reason == theirs.reason
    np.testing.assert_allclose(ours.objective, theirs.objective, rtol=1e-9)
    np.testing.assert_allclose(ours.objective, float(whole.elbo(rows)), rtol=1e-9)


def test_polishing_a_stream_is_polishing_the_arrays(rows: Pair) -> None:
    streamed, whole = make(), make()
    ours, theirs = polish(streamed, stream(rows)), polish(whole, rows)
    assert ours.steps == theirs.steps
    np.testing.assert_allclose(ours.elbo, theirs.elbo, rtol=1e-10)
    assert ours.gain > 100.0


def test_rows_may_come_in_another_order_in_every_pass(rows: Pair) -> None:
    shuffled, whole = make(), make()
    dataset = tf.data.Dataset.from_tensor_slices(rows).shuffle(N, seed=0).batch(250)
    first, second = (np.concatenate([X for X, _ in dataset]) for _ in range(2))
    assert np.any(first != second)
    ours, theirs = polish(shuffled, dataset), polish(whole, rows)
    np.testing.assert_allclose(ours.elbo, theirs.elbo, rtol=1e-8)


@pytest.mark.replicate
@pytest.mark.slow
def test_a_streamed_fit_goes_on_from_its_checkpoint(rows: Pair, tmp_path: Any) -> None:
    """It does so even if the same rows come in other batches."""
    whole, stopped = make(), make()
    expected = fit_collapsed(whole, stream(rows))

    def interrupt(progress: Any) -> None:
        if progress.rows == N:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit_collapsed(stopped, stream(rows), checkpoint_dir=tmp_path, callback=interrupt)
    again = make()
    resumed = fit_collapsed(again, stream(rows, 333), checkpoint_dir=tmp_path)
    np.testing.assert_allclose(resumed.objective, expected.objective, rtol=1e-12)
    assert resumed.evaluations == expected.evaluations


@pytest.mark.by_default("8")
@pytest.mark.slow
@pytest.mark.parametrize(
    "stop",
    [
        *(2, 8, 23),
        *(pytest.param(stop, marks=pytest.mark.replicate) for stop in (3, 5, 11, 14, 17, 20, 26)),
    ],
)
def test_a_killed_fit_loses_the_pass_that_it_was_at(
    rows: Pair, tmp_path: Any, stop: int, uninterrupted: tuple[int, FitResult]
) -> None:
    """It is killed before or after the first checkpoint; results of finished passes are reused."""
    expected_passes, expected = uninterrupted
    killed = CountedPasses(rows, stop)
    with pytest.raises(RuntimeError, match=r"batch \d+ of data cannot be read: .*killed"):
        fit_collapsed(make(), killed.dataset(), checkpoint_dir=tmp_path)
    again = CountedPasses(rows)
    resumed = fit_collapsed(make(), again.dataset(), checkpoint_dir=tmp_path)
    assert resumed.objective == expected.objective
    # The extra passes are the broken one, one that counts rows, and two that check the checkpoint.
    assert killed.count + again.count <= expected_passes + 1 + 1 + 2


@pytest.mark.slow
def test_what_a_broken_fit_has_logged_is_not_taken_for_another_start(
    rows: Pair, tmp_path: Path
) -> None:
    """There is no checkpoint yet, and the model may start again from other values."""
    few = tuple(part[:1_500] for part in rows)  # a fit to all rows at once, in three chunks

    def stop(progress: Any) -> None:
        if progress.evaluations > 4:
            raise KeyboardInterrupt

    model = make()
    with pytest.raises(KeyboardInterrupt):
        fit_collapsed(model, few, checkpoint_dir=tmp_path, callback=stop)
    assert list(tmp_path.glob("passes-*/*.npz"))
    other = gpflow.utilities.deepcopy(model)
    ours = fit_collapsed(model, few, checkpoint_dir=tmp_path)
    seconds = {name: getattr(ours, name) for name in ("tracing_seconds", "fitting_seconds")}
    assert ours == dataclasses.replace(fit_collapsed(other, few), **seconds)


def test_what_pandas_gives_is_what_numpy_gives(rows: Pair) -> None:
    X = pd.DataFrame(rows[0], columns=["a", "b"])
    y = pd.Series(rows[1][:, 0])
    model = make()
    np.testing.assert_allclose(model.augmented_elbo((X, y)), model.augmented_elbo(rows), rtol=1e-14)


class Shrinking:
    """A generator with one batch less in every pass."""

    def __init__(self, rows: Pair) -> None:
        self.rows, self.passes = rows, 0

    def __call__(self) -> Any:
        self.passes += 1
        for start in range(0, N - 100 * self.passes, 100):
            yield tuple(part[start : start + 100] for part in self.rows)


class Resampling:
    """A generator with as many rows in every pass, but other rows in later passes."""

    def __init__(self, rows: Pair) -> None:
        self.rows, self.rng = rows, np.random.default_rng(0)

    def __call__(self) -> Any:
        drawn = self.rng.integers(0, N, N)
        for start in range(0, N, 100):
            yield tuple(part[drawn[start : start + 100]] for part in self.rows)


def generated(rows: Pair, make: Callable[[Pair], Any]) -> tf.data.Dataset:
    spec = tuple(tf.TensorSpec([None, None], tf.float64) for _ in rows)
    return tf.data.Dataset.from_generator(make(rows), output_signature=spec)


def poisoned(rows: Pair) -> tf.data.Dataset:
    Y = rows[1].copy()
    Y[2 * 250 + 5] = np.nan
    return stream((rows[0], Y))


def widening(rows: Pair) -> Any:
    return lambda: iter([(rows[0][:9], rows[1][:9]), (np.ones([9, 3]), rows[1][:9])])


BAD = {
    "NaN": (poisoned, r"batch 2 of data: Y must be finite"),
    "columns": (
        lambda rows: generated(rows, widening),
        r"batch 1 of data: X must have as many columns",
    ),
    "empty": (lambda rows: stream(rows).take(0), "data must hold at least one batch"),
    "endless": (lambda rows: stream(rows).repeat(), "one pass over the rows"),
    "no pairs": (
        lambda rows: tf.data.Dataset.from_tensor_slices(rows[0]).batch(9),
        r"batches \(X \[B, D\], Y \[B, P\]\)",
    ),
    "shrinking": (
        lambda rows: generated(rows, Shrinking),
        "same rows in every pass.* Found: 2200 in the first, 2100 in a later one",
    ),
    "resampling": (
        lambda rows: generated(rows, Resampling),
        "same rows in every pass.* Found: 2300 in the first, 2300 with other values in a later one",
    ),
}

ROUTES: dict[str, Callable[[AugmentedSVGP, tf.data.Dataset], Any]] = {
    "natural gradient": lambda model, dataset: AugmentedNaturalGradient().minimize(model, dataset),
    "fit_collapsed": lambda model, dataset: fit_collapsed(model, dataset, progress=False),
    "polish": lambda model, dataset: polish(model, dataset, progress=False),
    "elbo": lambda model, dataset: model.augmented_elbo(dataset),
}


@pytest.mark.briefly("elbo-NaN", "polish-NaN")
@pytest.mark.by_default("natural gradient", "NaN", "polish-shrinking", "polish-resampling")
@pytest.mark.parametrize(
    ("route", "bad"),
    [
        (route, bad)
        for route in ROUTES
        for bad in BAD
        if bad not in ("shrinking", "resampling")
        or route in ("fit_collapsed", "polish")  # only these make more than one pass
    ],
)
def test_bad_datasets_are_named_and_leave_the_model(rows: Pair, bad: str, route: str) -> None:
    model = make()
    before = values(model)
    dataset, message = BAD[bad]
    with pytest.raises(ValueError, match=message):
        ROUTES[route](model, dataset(rows))
    for now, then in zip(values(model), before, strict=True):
        np.testing.assert_array_equal(now, then)


def test_a_model_that_keeps_its_data_takes_no_dataset(rows: Pair) -> None:
    few = rows[0][:20], rows[1][:20]
    model = AugmentedVGP(few, gpflow.kernels.Matern32(), likelihoods.Laplace())
    for route in ROUTES.values():
        with pytest.raises(ValueError, match="data must not be given"):
            route(model, stream(few))  # type: ignore[arg-type]


def test_what_is_kept_for_every_row_cannot_stream(rows: Pair, tmp_path: Path) -> None:
    model, dataset = make(), stream(rows)
    for route in (
        lambda: sample_posterior(model, dataset, num_samples=1, progress=False),
        lambda: SparseGibbsKernel(model, dataset),
    ):
        with pytest.raises(ValueError, match="data must be arrays"):
            route()


def test_an_attribute_of_the_user_s_own_is_not_the_model_s_data(rows: Pair) -> None:
    model = make()
    model.data = "of June"
    before = float(model.augmented_elbo(rows))
    AugmentedNaturalGradient().minimize(model, rows)
    assert float(model.augmented_elbo(rows)) > before


def test_in_a_compiled_step_a_dataset_is_refused(rows: Pair) -> None:
    model, dataset = make(), stream(rows)
    step = tf.function(lambda: AugmentedNaturalGradient().minimize(model, dataset), autograph=False)
    with pytest.raises(
        ValueError, match=r"data must not be a tf.data.Dataset inside a tf.function"
    ):
        step()


PASSES = """
import os, resource, sys
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import gpflow, numpy as np, tensorflow as tf
import gpflow_aaci

def batch(number):
    X = tf.random.stateless_normal([10_000, 20], [number, 0], dtype=tf.float64)
    return X, tf.sin(X[:, :1])

model = gpflow_aaci.AugmentedSVGP(
    gpflow.kernels.Matern32(), gpflow_aaci.likelihoods.Laplace(), np.random.normal(size=(100, 20))
)
batches = tf.data.Dataset.range(int(sys.argv[1])).map(batch)
gpflow_aaci.AugmentedNaturalGradient().minimize(model, batches)
gpflow_aaci.polish(model, batches, max_steps=1)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


@pytest.mark.replicate
def test_memory_does_not_grow_with_the_rows() -> None:
    """200,000 more rows are 34 MB of data and 160 MB of K_ZX, but the peak hardly grows."""
    peaks = []
    for batches in (10, 30):
        arguments = [sys.executable, "-c", PASSES, str(batches)]
        out = subprocess.run(arguments, capture_output=True, text=True, check=True).stdout
        peaks.append(float(out))
    assert peaks[1] < peaks[0] + 30.0, peaks


# ---- files ----


def from_csv(rows: Pair, folder: Path) -> tf.data.Dataset:
    path = folder / "rows.csv"
    pd.DataFrame(np.concatenate(rows, 1)).to_csv(path, index=False, float_format="%.17g")
    lines = tf.data.experimental.CsvDataset(str(path), [tf.float64] * 3, header=True)
    return lines.map(lambda *v: (tf.stack(v[:2]), tf.stack(v[2:]))).batch(300)


def from_records(rows: Pair, folder: Path) -> tf.data.Dataset:
    path = str(folder / "rows.tfrecord")
    with tf.io.TFRecordWriter(path) as writer:
        for row in np.concatenate(rows, 1):
            writer.write(row.tobytes())
    records = tf.data.TFRecordDataset(path).batch(300)
    decoded = records.map(lambda record: tf.io.decode_raw(record, tf.float64))
    return decoded.map(lambda values: (values[:, :2], values[:, 2:]))


def from_memmap(rows: Pair, folder: Path) -> tf.data.Dataset:
    for name, part in zip("XY", rows, strict=True):
        np.save(folder / f"{name}.npy", part)
    X, Y = (np.load(folder / f"{name}.npy", mmap_mode="r") for name in "XY")

    def batches() -> Iterator[Pair]:
        for start in range(0, len(X), 300):
            yield X[start : start + 300], Y[start : start + 300]

    spec = tuple(tf.TensorSpec([None, part.shape[1]], part.dtype) for part in (X, Y))
    return tf.data.Dataset.from_generator(batches, output_signature=spec)


def from_parquet(rows: Pair, folder: Path) -> tf.data.Dataset:
    frame = pd.DataFrame(np.concatenate(rows, 1), columns=["a", "b", "y"])
    frame[:1_000].to_parquet(folder / "first.parquet")
    frame[1_000:].to_parquet(folder / "second.parquet")
    return data.from_parquet(sorted(folder.glob("*.parquet")), ["a", "b"], ["y"], 300)


@pytest.mark.briefly("from_parquet")
@pytest.mark.parametrize("write", [from_csv, from_records, from_memmap, from_parquet])
def test_files_are_what_they_hold(
    rows: Pair, tmp_path: Path, write: Callable[[Pair, Path], tf.data.Dataset]
) -> None:
    model = make()
    dataset = write(rows, tmp_path)
    np.testing.assert_allclose(
        model.augmented_elbo(dataset), model.augmented_elbo(rows), rtol=1e-12
    )


def test_a_parquet_file_without_a_column_or_a_value_says_so(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    pd.DataFrame({"a": [1.0, 2.0], "y": [0.5, None]}).to_parquet(path)
    with pytest.raises(ValueError, match=r"columns of rows.parquet: a, y. Found: b"):
        data.from_parquet(path, ["a", "b"], ["y"])
    with pytest.raises(tf.errors.OpError, match="missing values in y"):
        list(data.from_parquet(path, ["a"], ["y"]))


def test_parquet_columns_that_hold_no_numbers_are_named_with_their_type(tmp_path: Path) -> None:
    """Also dates alone, which would become days since 1970 without a word."""
    path = tmp_path / "rows.parquet"
    day = pd.Timestamp("2020-01-01")
    columns = {"word": ["a"], "kind": ["b"], "day": [day], "date": [day.date()], "gap": [day - day]}
    numbers = {"n": [3], "x": [0.5], "b": [True], "d": [Decimal("1.5")], "few": [7]}
    frame = pd.DataFrame({**columns, **numbers}).astype({"kind": "category", "few": "category"})
    frame.to_parquet(path)
    for name, kind in zip(
        columns, ("string", "dict", "timestamp", "date32", "duration"), strict=True
    ):
        found = f"columns of numbers in rows.parquet. Found: {name}, .*{kind}"
        for inputs, outputs in ((["n", name], ["x"]), (["n"], [name])):
            with pytest.raises(ValueError, match=found):
                data.from_parquet(path, inputs, outputs)
    ((X, Y),) = data.from_parquet(path, ["n", "x", "b"], ["d", "few"])
    np.testing.assert_array_equal(np.hstack([X, Y]), [[3.0, 0.5, 1.0, 1.5, 7.0]])


# ---- predictions ----


def test_predictions_of_a_dataset_are_those_of_its_rows(rows: Pair) -> None:
    model = make()
    fit = AugmentedNaturalGradient()
    fit.minimize(model, rows)
    X = tf.data.Dataset.from_tensor_slices(rows[0]).batch(333)
    for ours, theirs in (
        (model.predict_f(X), model.predict_f(rows[0])),
        (model.predict_y(X), model.predict_y(pd.DataFrame(rows[0]))),
        ([model.predict_log_density(stream(rows))], [model.predict_log_density(rows)]),
    ):
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12)
    with pytest.raises(ValueError, match="full_cov must be False"):
        model.predict_f(X, full_cov=True)
    with pytest.raises(ValueError, match=r"Xnew must be a dataset of batches X \[B, D\]"):
        model.predict_y(stream(rows))
    with pytest.raises(ValueError, match="data must be a dataset of batches"):
        model.predict_log_density(X)
    with pytest.raises(ValueError, match="Xnew must be one pass over the rows"):
        model.predict_f(X.repeat())


@pytest.mark.slow
def test_predictions_from_draws_of_a_dataset_are_those_of_its_rows(rows: Pair) -> None:
    few, new = (rows[0][:12], rows[1][:12]), (rows[0][50:57], rows[1][50:57])
    model = AugmentedVGP(few, gpflow.kernels.Matern32(), likelihoods.StudentT(0.4, 3.5))
    samples = sample_posterior(model, num_samples=10, num_chains=2, num_burnin=5, progress=False)
    X = tf.data.Dataset.from_tensor_slices(new[0]).batch(3)
    for a, b in zip(
        predictions.predict_y(model, X, samples=samples),
        predictions.predict_y(model, new[0], samples=samples),
        strict=True,
    ):
        np.testing.assert_allclose(a, b, rtol=1e-10)
    np.testing.assert_allclose(
        predictions.predict_log_density(model, stream(new, 3), samples=samples),
        predictions.predict_log_density(model, new, samples=samples),
        rtol=1e-12,
    )
