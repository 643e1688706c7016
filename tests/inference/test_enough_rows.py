"""Fits whose time does not grow with the rows: which they use, and what the others are worth."""

from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf

import gpflow_aaci
from gpflow_aaci import AugmentedSVGP, likelihoods
from gpflow_aaci.algebra.gaussian import Gaussian
from gpflow_aaci.data import Arrays, random_rows
from gpflow_aaci.data.random_rows import RandomRows
from gpflow_aaci.inference.objective import Objective, Stretch
from gpflow_aaci.inference.quasi_newton import Point

N = 40_000
RNG = np.random.default_rng(0)
X = RNG.uniform(-3.0, 3.0, (N, 1))
Y = np.sin(2.0 * X) + 0.3 * RNG.standard_t(4, X.shape)


def make(num_data: int | None = N) -> AugmentedSVGP:
    kernel = gpflow.kernels.SquaredExponential()
    Z = np.linspace(-3.0, 3.0, 15)[:, None]
    model = AugmentedSVGP(kernel, likelihoods.StudentT(1.0, 4.0), Z, num_data=num_data)
    gpflow.set_trainable(model.inducing_variable, False)
    return model


def counted_stream() -> tuple[tf.data.Dataset, list[int]]:
    """The rows in batches of 700, and a list that grows by one with every pass over them."""
    reads: list[int] = []

    def batches():  # type: ignore[no-untyped-def]
        reads.append(1)
        for first in range(0, N, 700):
            yield X[first : first + 700], Y[first : first + 700]

    spec = tf.TensorSpec([None, 1], tf.float64), tf.TensorSpec([None, 1], tf.float64)
    return tf.data.Dataset.from_generator(batches, output_signature=spec), reads


# ---- random rows ----


def random_numbers(X: np.ndarray, Y: np.ndarray, size: int, seed: int) -> np.ndarray:
    rows = RandomRows(size, seed)
    rows.add(X, Y, np.arange(len(X)))
    return rows.parts[0]


def test_random_rows_are_the_same_in_whatever_parts_order_and_float_type_they_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    at_once = random_numbers(X, Y, 50, seed=3)
    permuted = np.random.default_rng(1).permutation(N)
    monkeypatch.setattr(random_rows, "_RECENT", 1_500)
    orders = (np.arange(N), np.float64), (permuted, np.float64), (permuted, np.float32)
    for numbers, kind in orders:
        rows = RandomRows(50, seed=3)
        for part in np.split(numbers, range(999, N, 999)):
            rows.add(X[part].astype(kind), Y[part].astype(kind), part)
        np.testing.assert_array_equal(rows.parts[0], at_once)


def test_of_equal_rows_some_are_drawn_whatever_the_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of 40 distinct rows occurs 1,000 times, so 4,000 draws have 100 of each, ± 5 sd."""
    values = np.arange(N)[:, None] % 40.0
    at_once = values[random_numbers(values, -values, 4_000, seed=3)]
    counts = np.unique(at_once, return_counts=True)[1]
    assert len(counts) == 40
    assert np.abs(counts - 100).max() < 50
    monkeypatch.setattr(random_rows, "_RECENT", 1_500)
    rows = RandomRows(4_000, seed=3)
    for part in np.split(np.random.default_rng(1).permutation(values), range(999, N, 999)):
        rows.add(part, -part, part)
    np.testing.assert_array_equal(rows.parts[0], at_once)


@pytest.mark.briefly("True")
@pytest.mark.parametrize("distinct", [True, False])
def test_every_row_is_drawn_equally_often_and_seeds_are_independent(distinct: bool) -> None:
    """Over 4,000 seeds; counts of 10 of 40 rows are binomial, and pairs of rows as likely."""
    seeds, size, rows = 4_000, 10, 40
    drawn = np.zeros([seeds, rows])
    values = np.arange(rows)[:, None] // (1.0 if distinct else 20.0)
    for seed in range(seeds):
        chosen = random_numbers(values, values, size, seed)
        assert len(np.unique(chosen)) == size
        drawn[seed, chosen] = 1.0
    share = size / rows
    sd = np.sqrt(share * (1.0 - share) / seeds)
    assert np.abs(drawn.mean(0) - share).max() < 4.5 * sd
    pairs = (drawn.T @ drawn / seeds)[np.triu_indices(rows, 1)]
    expected = share * (size - 1.0) / (rows - 1.0)
    assert np.abs(pairs - expected).max() < 5.0 * np.sqrt(expected * (1.0 - expected) / seeds)


def test_rows_that_are_skipped_and_rows_that_are_taken_make_up_the_subset() -> None:
    rows = Arrays(X, Y)
    few, more, rest = rows.subset(30, 1), rows.subset(80, 1), rows.subset(80, 1, skip=30)
    np.testing.assert_array_equal(np.concatenate([few.rows[0], rest.rows[0]]), more.rows[0])


def test_a_stream_draws_its_rows_in_the_first_pass() -> None:
    dataset, reads = counted_stream()
    rows = gpflow_aaci.data.as_data(make().expected_data, dataset)
    rows.draw_ahead(500, seed=7)
    assert rows.num_rows == N
    for size, skip in ((20, 0), (500, 0), (300, 200)):
        drawn, expected = rows.subset(size, 7, skip), Arrays(X, Y).subset(size, 7, skip)
        np.testing.assert_array_equal(drawn.rows[0], expected.rows[0])
        np.testing.assert_array_equal(drawn.rows[1], expected.rows[1])
    assert len(reads) == 1
    np.testing.assert_array_equal(rows.subset(501, 7).rows[0], Arrays(X, Y).subset(501, 7).rows[0])
    assert len(reads) == 2  # more than were drawn


# ---- fit ----


@pytest.mark.slow
def test_enough_rows_are_fewer_and_predict_as_well_as_all() -> None:
    some, whole = make(), make()
    enough = gpflow_aaci.fit(some, (X, Y), rows="enough", progress=False)
    every = gpflow_aaci.fit(whole, (X, Y), rows="all", progress=False)
    assert enough.converged
    assert enough.reason == "four times more rows would gain too little"
    assert (enough.rows, enough.num_data) == (16_000, N)
    assert enough.tolerance == 1e-3 * N
    assert enough.worth < 1e-3
    assert 0.0 < enough.worth_error < 2e-3
    assert "fitted to 16,000 random rows of 40,000" in str(enough)
    assert (every.rows, every.num_data) == (N, N)
    assert every.worth is None
    assert "random rows" not in str(every)

    rng = np.random.default_rng(1)
    X_new = rng.uniform(-3.0, 3.0, (4_000, 1))
    new = X_new, np.sin(2.0 * X_new) + 0.3 * rng.standard_t(4, X_new.shape)
    densities = [tf.reduce_mean(model.predict_log_density(new)) for model in (some, whole)]
    assert float(densities[0]) > float(densities[1]) - 2e-3


@pytest.mark.replicate
@pytest.mark.slow
def test_the_worth_of_more_rows_is_what_rows_that_neither_fit_has_seen_gain_by_them() -> None:
    """
    The mean difference of their log p(y) between the ends on 4,000 and on 16,000 rows, and how that
    had fallen from the growth before.
    """
    after, before, first = make(), make(), make()
    result = gpflow_aaci.fit(after, (X, Y), rows="enough", progress=False)
    assert result.rows == 16_000

    class OnMoreRowsError(Exception):
        pass

    def interrupt(progress: gpflow_aaci.inference.FitProgress) -> None:
        if progress.rows > 4_000:
            raise OnMoreRowsError
        at[progress.rows] = [variable.numpy() for variable in before.variables]

    at: dict[int, list[np.ndarray]] = {}
    with pytest.raises(OnMoreRowsError):
        gpflow_aaci.fit_collapsed(before, (X, Y), rows="enough", callback=interrupt, progress=False)
    for model, rows in ((before, 4_000), (first, 1_000)):
        for variable, value in zip(model.variables, at[rows], strict=True):
            variable.assign(value)

    unseen = Arrays(X, Y).subset(36_000, 0, skip=16_000).rows

    def gains(more: AugmentedSVGP, less: AugmentedSVGP) -> np.ndarray:
        return (more.predict_log_density(unseen) - less.predict_log_density(unseen)).numpy()

    last = gains(after, before)
    ratio = np.mean(last) / np.mean(gains(before, first))
    assert 0.0 < ratio < 1.0
    np.testing.assert_allclose(result.worth, ratio * np.mean(last), rtol=3e-3)
    error = 2.0 * ratio * np.std(last) / np.sqrt(len(last))
    np.testing.assert_allclose(result.worth_error, error, rtol=3e-3)


@pytest.mark.replicate
@pytest.mark.slow
def test_a_stream_uses_the_rows_that_arrays_would_use_and_is_read_once() -> None:
    dataset, reads = counted_stream()
    of_stream, of_arrays = make(None), make(None)
    ours = gpflow_aaci.fit(of_stream, dataset, rows="enough", progress=False)
    theirs = gpflow_aaci.fit(of_arrays, (X, Y), rows="enough", progress=False)
    assert len(reads) == 1
    assert ours.rows == theirs.rows
    np.testing.assert_allclose(ours.elbo, theirs.elbo, rtol=1e-10)
    np.testing.assert_allclose(of_stream.q_mu, of_arrays.q_mu, rtol=1e-8, atol=1e-10)


@pytest.mark.slow
def test_a_fit_to_enough_rows_goes_on_from_its_checkpoint_to_the_same_end(tmp_path: Path) -> None:
    """Interrupted on the second subset; and called once more when it has ended."""
    calls: list[int] = []

    def interrupt(progress: gpflow_aaci.inference.FitProgress) -> None:
        calls.append(progress.rows)
        if calls.count(4_000) == 1:
            raise KeyboardInterrupt

    options: dict[str, Any] = {"rows": "enough", "progress": False, "checkpoint_dir": tmp_path}
    whole, stopped, resumed, ended = (make() for _ in range(4))
    expected = gpflow_aaci.fit_collapsed(whole, (X, Y), rows="enough", progress=False)
    with pytest.raises(KeyboardInterrupt):
        gpflow_aaci.fit_collapsed(stopped, (X, Y), callback=interrupt, **options)
    for model in (resumed, ended):
        found = gpflow_aaci.fit_collapsed(model, (X, Y), **options)
        assert (found.rows, found.reason) == (expected.rows, expected.reason)
        assert (found.worth, found.worth_error) == (expected.worth, expected.worth_error)
        np.testing.assert_array_equal(model.q_mu, whole.q_mu)
        np.testing.assert_array_equal(model.kernel.lengthscales, whole.kernel.lengthscales)


@pytest.mark.replicate
def test_where_more_rows_are_worth_it_all_are_used() -> None:
    """The tolerance says what they must be worth, a datum; below it, fewer are used."""
    results = []
    for used, tolerance in (("enough", 1e-5 * N), ("enough", 2e-2 * N), ("all", None)):
        fitted = gpflow_aaci.fit(make(), (X, Y), rows=used, tolerance=tolerance, progress=False)
        assert fitted.converged
        results.append(fitted)
    strict, lax, expected = results
    assert (strict.rows, lax.rows) == (N, 4_000)
    assert lax.worth < 2e-2
    assert abs(strict.elbo - expected.elbo) < 1e-4 * N


def ten_columns() -> tuple[np.ndarray, np.ndarray, AugmentedSVGP]:
    """12,000 rows, of which one column matters, and a model of them."""
    rng = np.random.default_rng(5)
    X_many = rng.normal(size=(12_000, 10))
    Y_many = np.sin(X_many[:, :1]) + 0.5 * rng.standard_t(4, (12_000, 1))
    kernel = gpflow.kernels.SquaredExponential(lengthscales=[3.0] * 10)
    Z = gpflow_aaci.kmeans_plusplus(X_many, 60, 0)
    model = AugmentedSVGP(kernel, likelihoods.StudentT(1.0, 4.0), Z, num_data=12_000)
    gpflow.set_trainable(model.inducing_variable, False)
    return X_many, Y_many, model


@pytest.mark.replicate
def test_a_subset_is_left_before_its_own_optimum_if_other_rows_gain_nothing() -> None:
    """The second subset; the fit predicts as well as if it had gone on there, and on all rows."""
    X_many, Y_many, few = ten_columns()
    all_rows = ten_columns()[2]
    left = gpflow_aaci.fit(few, (X_many, Y_many), rows="enough", progress=False).history
    climbed = gpflow_aaci.fit(all_rows, (X_many, Y_many), rows="all", progress=False).history
    iterations = [int((history.rows == 5_200).sum()) for history in (left, climbed)]
    assert 0 < iterations[0] < iterations[1] / 2
    rng = np.random.default_rng(6)
    X_new = rng.normal(size=(4_000, 10))
    new = X_new, np.sin(X_new[:, :1]) + 0.5 * rng.standard_t(4, (4_000, 1))
    densities = [float(tf.reduce_mean(m.predict_log_density(new))) for m in (few, all_rows)]
    assert densities[0] > densities[1] - 2e-3


@pytest.mark.replicate
def test_a_start_that_suits_the_subset_alone_does_not_keep_the_fit_there_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A second try is taken, after other rows have ended the search, only if it suits these."""
    tried: list[int] = []

    def elsewhere(
        objective: Objective, stretch: Stretch, point: Point, q: Gaussian, _: float
    ) -> tuple[Point, Gaussian] | None:
        if stretch.rows != 5_200:
            return None
        tried.append(stretch.rows)
        assert len(tried) < 20
        return objective.evaluate(stretch.rows, point.x + 0.5, q)

    name = "gpflow_aaci.inference.hyperparameter_search.with_a_shorter_lengthscale"
    X_many, Y_many, model = ten_columns()
    plain = gpflow_aaci.fit(model, (X_many, Y_many), rows="enough", progress=False)
    monkeypatch.setattr(name, elsewhere)
    model = ten_columns()[2]
    result = gpflow_aaci.fit(model, (X_many, Y_many), rows="enough", progress=False)
    assert tried
    assert abs(result.elbo - plain.elbo) < 1e-3 * len(X_many)


@pytest.mark.replicate
def test_many_rows_are_used_as_far_as_they_are_enough_unless_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from gpflow_aaci.inference import collapsed

    monkeypatch.setattr(collapsed, "SETTINGS", collapsed.SETTINGS._replace(most_of_all=N - 1))
    assert gpflow_aaci.fit(make(), (X, Y), progress=False).rows < N
    monkeypatch.setattr(collapsed, "SETTINGS", collapsed.SETTINGS._replace(most_of_all=N))
    assert gpflow_aaci.fit(make(), (X, Y), progress=False).rows == N


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rows": "some"}, r'rows must be one of "enough", "all"\. Found: \'some\''),
        ({"tolerance": 0.0}, r"tolerance must be a positive number of nats\. Found: 0\.0"),
        ({"tolerance": np.nan}, r"tolerance must be a positive number of nats\. Found: nan"),
    ],
    ids=str,
)
def test_bad_options_are_refused_before_anything_changes(
    options: dict[str, Any], message: str
) -> None:
    model = make()
    before = [variable.numpy() for variable in model.variables]
    for call in (gpflow_aaci.fit, gpflow_aaci.fit_collapsed):
        with pytest.raises(ValueError, match=message):
            call(model, (X, Y), progress=False, **options)
    for value, variable in zip(before, model.variables, strict=True):
        np.testing.assert_array_equal(value, variable.numpy())
