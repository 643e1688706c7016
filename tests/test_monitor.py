"""
What the monitoring tasks write, read from event files, from PNGs and from a TensorBoard server.
"""

import json
import re
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pytest
import scipy.stats
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.kernels import Matern32
from gpflow.monitor import ModelToTensorBoard, Monitor, MonitorTaskGroup, ScalarToTensorBoard
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import gpflow_aaci
from gpflow_aaci import (
    AugmentedNaturalGradient,
    AugmentedNNGP,
    AugmentedSVGP,
    AugmentedVGP,
    likelihoods,
)
from gpflow_aaci.augmentation import aux_posterior_c, aux_posterior_mean
from gpflow_aaci.monitor import (
    AuxiliaryToTensorBoard,
    BoundsToTensorBoard,
    FitToTensorBoard,
    HeldOutToTensorBoard,
    StepSizeToTensorBoard,
    standard_tasks,
)
from gpflow_aaci.predictions import predict_y_quantile

pytestmark = pytest.mark.slow

Randomise = Callable[[gpflow.models.GPModel], None]
AugmentedModel = AugmentedSVGP | AugmentedVGP
Build = Callable[..., tuple[Any, tuple[Any, ...], tuple[AnyNDArray, AnyNDArray]]]

N, M = 18, 5


@pytest.fixture
def log_dir(tmp_path: Path) -> str:
    return str(tmp_path / "logs")


@pytest.fixture(params=["AugmentedSVGP", "AugmentedVGP"])
def build(
    request: pytest.FixtureRequest, rng: np.random.Generator, randomise_q: Randomise
) -> Build:
    """A function that makes a model with some q, the arguments of its elbo, and its data."""

    def build(likelihood: Any = None, D: int = 1, P: int = 1, **kwargs: Any) -> Any:
        likelihood = likelihood or likelihoods.StudentT(0.3, 4.0)
        dtype = gpflow.config.default_float()
        X = rng.uniform(-2.0, 2.0, size=(N, D)).astype(dtype)
        Y = np.sin(2.0 * X.sum(1, keepdims=True) + np.arange(P)).astype(dtype)
        model: AugmentedModel
        if request.param == "AugmentedVGP":
            model, args = AugmentedVGP((X, Y), Matern32(), likelihood), ()
        else:
            kwargs = {"num_latent_gps": P, **kwargs}
            model, args = AugmentedSVGP(Matern32(), likelihood, X[:M].copy(), **kwargs), ((X, Y),)
        randomise_q(model)
        return model, args, (X, Y)

    return build


def written(log_dir: str) -> dict[str, dict[int, Any]]:
    """The value of every tag at every step."""
    events = EventAccumulator(log_dir, size_guidance={"tensors": 0})
    events.Reload()
    return {
        tag: {e.step: tf.make_ndarray(e.tensor_proto) for e in events.Tensors(tag)}
        for tag in events.Tags()["tensors"]
    }


# ---- scalars and histograms ----


def test_bounds_are_the_models(build: Build, log_dir: str) -> None:
    """At every step they are the model's current bounds, and the gap is not negative."""
    model, args, _ = build()
    task = BoundsToTensorBoard(log_dir, model, *args)
    expected = []
    for step in range(3):
        gap = tf.reduce_sum(model.augmentation_gap(*args))
        expected.append([model.augmented_elbo(*args), model.elbo(*args), gap])
        task(step)
        AugmentedNaturalGradient(0.5).minimize(model, *args)
    tags = written(log_dir)
    assert set(tags) == {"elbo/augmented", "elbo/standard", "elbo/gap"}
    for step in range(3):
        found = [tags[f"elbo/{name}"][step] for name in ("augmented", "standard", "gap")]
        np.testing.assert_allclose(found, expected[step], rtol=1e-5)
        assert found[2] > 0.0
    assert tags["elbo/augmented"][2] > tags["elbo/augmented"][0]


def test_bounds_of_a_batch_are_scaled_to_num_data(
    rng: np.random.Generator, randomise_q: Randomise, log_dir: str
) -> None:
    """All three are scaled, so that the gap is still the difference of the bounds."""
    X, Y = rng.normal(size=(N, 2)), rng.normal(size=(N, 1))
    model = AugmentedSVGP(Matern32(), likelihoods.Laplace(), X[:M].copy(), num_data=3 * N)
    randomise_q(model)
    BoundsToTensorBoard(log_dir, model, (X, Y))(0)
    tags = written(log_dir)
    augmented, standard = model.augmented_elbo((X, Y)), model.elbo((X, Y))
    np.testing.assert_allclose(tags["elbo/augmented"][0], augmented, rtol=1e-6)
    np.testing.assert_allclose(tags["elbo/standard"][0], standard, rtol=1e-6)
    np.testing.assert_allclose(tags["elbo/gap"][0], standard - augmented, rtol=1e-5)


@pytest.mark.by_default("AugmentedVGP")
def test_tasks_compile_once(build: Build, log_dir: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, args, data = build()
    calls: list[str] = []

    def count(name: str) -> None:
        method = getattr(type(model), name)

        def counted(self: Any, *args: Any, **kwargs: Any) -> Any:
            calls.append(name)
            return method(self, *args, **kwargs)

        monkeypatch.setattr(type(model), name, counted)

    count("predict_f")  # the other tasks call it
    count("prior_covariance")  # the bounds call it
    tasks = [
        BoundsToTensorBoard(log_dir, model, *args),
        AuxiliaryToTensorBoard(log_dir, model, *args),
        HeldOutToTensorBoard(log_dir, model, data),
    ]
    for task in tasks:
        calls.clear()
        task(0)
        assert calls
        calls.clear()
        task(1)
        assert not calls


def test_step_size_is_that_of_the_moment(log_dir: str) -> None:
    variable = tf.Variable(0.5, dtype=tf.float64)
    values = iter([0.25, 0.125])
    for name, step_size in (("n", 0.3), ("v", variable), ("c", lambda: next(values))):
        task = StepSizeToTensorBoard(f"{log_dir}/{name}", step_size)
        variable.assign(0.5)
        task(0)
        variable.assign(0.75)
        task(7)
    for name, expected in (("n", [0.3, 0.3]), ("v", [0.5, 0.75]), ("c", [0.25, 0.125])):
        steps = written(f"{log_dir}/{name}")["step_size"]
        assert list(steps) == [0, 7]
        np.testing.assert_allclose(list(steps.values()), expected, rtol=1e-7)


@pytest.mark.parametrize("P", [1, 2])
def test_histograms_hold_every_c_and_omega(build: Build, log_dir: str, P: int) -> None:
    """The range is right, and every bin counts the values in it."""
    model, args, (X, Y) = build(P=P)
    AuxiliaryToTensorBoard(log_dir, model, *args)(3)
    Fmu, Fvar = model.predict_f(X)
    c = aux_posterior_c(model.likelihood, Fmu, Fvar, Y)
    omega_mean = aux_posterior_mean(model.likelihood, c)
    tags = written(log_dir)
    assert set(tags) == {"auxiliary/c", "auxiliary/omega_mean"}
    for name, values in (("c", c.numpy()), ("omega_mean", omega_mean.numpy())):
        left, right, count = tags[f"auxiliary/{name}"][3].T
        np.testing.assert_allclose([left[0], right[-1]], [values.min(), values.max()], rtol=1e-12)
        for i in range(5, len(left), 5):  # no value is on an edge up to rounding
            assert count[:i].sum() == np.sum(values < left[i])
        assert count.sum() == N * P


def test_an_outlier_has_the_largest_c_and_the_smallest_omega(
    rng: np.random.Generator, log_dir: str
) -> None:
    """The docstring says so for Student-t noise."""
    X = rng.uniform(-2.0, 2.0, size=(N, 1))
    Y = np.sin(X)
    tags = []
    for outlier in (0.0, 30.0):
        Y[0] += outlier
        model = AugmentedVGP((X, Y), Matern32(), likelihoods.StudentT(0.3, 4.0))
        AugmentedNaturalGradient().minimize(model)
        AuxiliaryToTensorBoard(f"{log_dir}/{outlier}", model)(0)
        tags.append(written(f"{log_dir}/{outlier}"))
    c, omega = ([t[f"auxiliary/{name}"][0] for t in tags] for name in ("c", "omega_mean"))
    assert c[1][-1, 1] > 10.0 * c[0][-1, 1]
    assert omega[1][0, 0] < 0.1 * omega[0][0, 0]


def test_held_out_nll_is_that_of_the_gaussian_predictive_density(
    build: Build, rng: np.random.Generator, log_dir: str
) -> None:
    """There may be more test rows than num_data."""
    model, args, _ = build(likelihoods.Gaussian(variance=0.2))
    X_test, Y_test = rng.normal(size=(3 * N, 1)), rng.normal(size=(3 * N, 1))
    task = HeldOutToTensorBoard(log_dir, model, (X_test, Y_test))
    for step in range(2):
        task(step)
        mean, variance = (value.numpy() for value in model.predict_f(X_test))
        density = scipy.stats.norm.logpdf(Y_test, mean, np.sqrt(variance + 0.2))
        found = written(log_dir)["test/nll"][step]
        np.testing.assert_allclose(found, -density.mean(), rtol=1e-6)
        AugmentedNaturalGradient().minimize(model, *args)


def test_test_rows_are_none_of_num_data(rng: np.random.Generator, log_dir: str) -> None:
    X = rng.normal(size=(2 * N, 1))
    model = AugmentedSVGP(Matern32(), likelihoods.Laplace(), X[:M].copy(), num_data=N)
    HeldOutToTensorBoard(log_dir, model, (X, np.sin(X)))(0)
    expected = -np.mean(model.predict_log_density((X, np.sin(X))))
    np.testing.assert_allclose(written(log_dir)["test/nll"][0], expected, rtol=1e-6)


# ---- the image ----


def decoded(log_dir: str, step: int) -> AnyNDArray:
    """The image of a step, [height, width, channels]."""
    width, height, png = written(log_dir)["fit"][step]
    assert png.startswith(b"\x89PNG")
    image = tf.io.decode_png(png).numpy()
    assert image.shape[:2] == (int(height), int(width))
    return image


@pytest.mark.by_default("540")
@pytest.mark.parametrize(
    ("D", "P", "width"), [(1, 1, 640), (1, 2, 1280), (2, 1, 540), (2, 2, 1080)]
)
def test_image_is_a_png_that_follows_the_model(
    build: Build, log_dir: str, D: int, P: int, width: int
) -> None:
    """Each image is drawn anew: with its first q again, the model has its first image again."""
    model, args, _ = build(D=D, P=P)
    task = FitToTensorBoard(log_dir, model, *args)
    start = model.q_mu.numpy()
    for step, q_mu in enumerate((start, 0.0 * start, start)):
        model.q_mu.assign(q_mu)
        task(step)
    first, flat, again = (decoded(log_dir, step) for step in range(3))
    assert first.shape[:2] == (420, width)
    assert np.mean(np.any(first != flat, axis=-1)) > 0.02
    np.testing.assert_array_equal(first, again)


@pytest.mark.parametrize("P", [1, 2])
def test_curves_are_quantiles_of_y_and_dots_the_data(build: Build, log_dir: str, P: int) -> None:
    """They are those of ``plot_fit``, with a panel for every output."""
    model, args, (X, Y) = build(P=P)
    task = FitToTensorBoard(log_dir, model, *args)
    task(0)
    assert np.size(task.axes) == P
    for p, panel in enumerate(np.ravel(task.axes)):
        x = panel.lines[0].get_xdata()
        assert x.min() < X.min() < X.max() < x.max()
        quantiles = predict_y_quantile(model, x[:, None], [0.05, 0.5, 0.95])[..., p]
        np.testing.assert_allclose([line.get_ydata() for line in panel.lines], quantiles)
        (band,) = [c for c in panel.collections if c.get_label() == "y, central 90 %"]
        corners = band.get_paths()[0].get_extents()
        np.testing.assert_allclose(corners.ymin, np.min(quantiles[0]))
        np.testing.assert_allclose(corners.ymax, np.max(quantiles[2]))
        (dots,) = [c for c in panel.collections if c.get_label() == "data"]
        drawn = sorted(map(tuple, np.asarray(dots.get_offsets())))
        np.testing.assert_allclose(drawn, sorted(map(tuple, np.hstack([X, Y[:, p : p + 1]]))))
        assert panel.get_xlabel()
        assert panel.get_ylabel()


def test_inducing_inputs_are_drawn_where_there_are_some(build: Build, log_dir: str) -> None:
    for D in (1, 2):
        model, args, _ = build(D=D)
        task = FitToTensorBoard(log_dir, model, *args)
        task(0)
        panel = np.ravel(task.axes)[0]
        drawn = [c for c in panel.collections if c.get_label() == "inducing inputs"]
        assert len(drawn) == (1 if args else 0)
        if args:
            Z = model.inducing_variable.Z.numpy()
            np.testing.assert_allclose(drawn[0].get_offsets()[:, :D], Z)


def test_contours_show_the_mean_of_y(build: Build, log_dir: str) -> None:
    """The highest point of the mean is in the highest contour, and the lowest in the lowest."""
    model, args, (X, Y) = build(D=2)
    task = FitToTensorBoard(log_dir, model, *args)
    task(0)
    panel, bar = task.axes
    contours, dots = panel.collections[:2]
    edges = np.linspace(X.min(0), X.max(0), 50) + 0.05 * np.outer(
        np.linspace(-1, 1, 50), np.ptp(X, 0)
    )
    grid = np.stack(np.meshgrid(*edges.T), -1).reshape(-1, 2)
    mean = model.predict_y(grid)[0].numpy()[:, 0]
    np.testing.assert_allclose([contours.zmin, contours.zmax], [mean.min(), mean.max()])
    for at in (mean.argmin(), mean.argmax()):
        layer = np.searchsorted(contours.levels, mean[at]) - 1
        inside = [path.contains_point(grid[at], radius=1e-6) for path in contours.get_paths()]
        assert inside[layer]
    np.testing.assert_array_equal(dots.get_array(), Y[:, 0])
    np.testing.assert_array_equal(dots.get_offsets(), X)
    assert bar.get_ylabel() == "mean of y"


def test_contours_of_labels_reach_from_0_to_1(rng: np.random.Generator, log_dir: str) -> None:
    """They do so even while the mean is 1/2 everywhere."""
    X = rng.normal(size=(N, 2))
    model = AugmentedVGP((X, 1.0 * (X[:, :1] > 0)), Matern32(), likelihoods.Logistic())
    task = FitToTensorBoard(log_dir, model)
    task(0)
    levels = task.axes[0].collections[0].levels
    np.testing.assert_allclose([levels[0], levels[-1]], [0.0, 1.0], atol=1e-12)


def test_contours_of_f_where_y_has_no_mean(build: Build, log_dir: str) -> None:
    class Cauchy(likelihoods.StudentT):
        def _conditional_mean(self, X: Any, F: Any) -> tf.Tensor:
            raise NotImplementedError

    model, args, _ = build(Cauchy(0.3, 1.0), D=2)
    task = FitToTensorBoard(log_dir, model, *args)
    task(0)
    assert task.axes[1].get_ylabel() == "mean of f"


# ---- together ----


ALWAYS = {"elbo/augmented", "elbo/standard", "elbo/gap", "auxiliary/c", "auxiliary/omega_mean"}
HYPERPARAMETERS = {"kernel.variance", "likelihood.scale", "likelihood.df"}


@pytest.mark.by_default("AugmentedSVGP-1")
@pytest.mark.parametrize("D", [1, 2, 3])
def test_standard_tasks_are_all_that_apply(build: Build, log_dir: str, D: int) -> None:
    model, args, data = build(D=D)
    standard_tasks(f"{log_dir}/few", model, *args)(0)
    standard_tasks(f"{log_dir}/all", model, *args, test_data=data, step_size=0.5)(0)
    image = {"fit"} if D < 3 else set()
    common = ALWAYS | HYPERPARAMETERS | {"kernel.lengthscales"} | image
    assert set(written(f"{log_dir}/few")) == common
    assert set(written(f"{log_dir}/all")) == common | {"test/nll", "step_size"}


@pytest.mark.replicate
def test_nearest_neighbours_have_an_objective_and_no_bound(log_dir: str) -> None:
    """While GPflow's own optimizer climbs the objective, it, held-out NLL and image are written."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, (60, 1))
    Y = np.sin(2.0 * X) + 0.1 * rng.standard_normal((60, 1))
    train, test = (X[:50], Y[:50]), (X[50:], Y[50:])
    model = AugmentedNNGP(train, Matern32(lengthscales=[0.3]), likelihoods.StudentT(1.0, 4.0), 8)
    task = standard_tasks(log_dir, model, test_data=test)
    expected = []
    for step in range(2):
        task(step)
        rows = gpflow_aaci.loo(model).loo_i.values  # no x occurs twice
        expected.append([rows.mean(), -model.predict_log_density(test).numpy().mean()])
        gpflow.optimizers.Scipy().minimize(
            model.training_loss, model.trainable_variables, options={"maxiter": 5}
        )
    tags = written(log_dir)
    assert set(tags) == HYPERPARAMETERS | {
        "kernel.lengthscales",
        "leave_one_out",
        "test/nll",
        "fit",
    }
    found = [[tags["leave_one_out"][step], tags["test/nll"][step]] for step in range(2)]
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert expected[1][0] > expected[0][0] + 0.3
    with pytest.raises(ValueError, match="AugmentedNNGP"):
        BoundsToTensorBoard(log_dir, model)


@pytest.mark.by_default("AugmentedVGP")
def test_tasks_mix_with_gpflows_in_one_monitor(build: Build, log_dir: str) -> None:
    """There is one log directory, and each group has its own period."""
    model, args, _ = build()
    monitor = Monitor(
        standard_tasks(log_dir, model, *args, period=2),
        MonitorTaskGroup(
            [
                ScalarToTensorBoard(log_dir, lambda: 1.0, "one"),
                StepSizeToTensorBoard(log_dir, 0.5),
            ],
            period=3,
        ),
    )
    for step in range(5):
        monitor(step)
    tags = written(log_dir)
    for tag in (*ALWAYS, *HYPERPARAMETERS, "fit"):
        assert list(tags[tag]) == [0, 2, 4]
    assert list(tags["one"]) == list(tags["step_size"]) == [0, 3]


@pytest.mark.slow
def test_tasks_work_in_a_compiled_step(build: Build, log_dir: str) -> None:
    """As with GPflow's tasks, a step and its monitoring may share a graph, except for images."""
    model, args, data = build()
    tasks = [
        ModelToTensorBoard(log_dir, model),
        BoundsToTensorBoard(log_dir, model, *args),
        AuxiliaryToTensorBoard(log_dir, model, *args),
        HeldOutToTensorBoard(log_dir, model, data),
        StepSizeToTensorBoard(log_dir, 0.5),
    ]
    optimizer = AugmentedNaturalGradient(0.5)

    @tf.function
    def compiled(step: tf.Tensor) -> None:
        optimizer.minimize(model, *args)
        for task in tasks:
            task(step)

    for step in tf.range(3):
        compiled(step)
    tags = written(log_dir)
    assert all(list(values) == [0, 1, 2] for values in tags.values())
    assert set(tags) > ALWAYS | HYPERPARAMETERS
    np.testing.assert_allclose(tags["elbo/augmented"][2], model.augmented_elbo(*args), rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("D", [1, 2])
def test_float32(build: Build, log_dir: str, D: int) -> None:
    gpflow.config.set_default_float(np.float32)
    gpflow.config.set_default_jitter(1e-4)
    model, args, data = build(D=D)
    standard_tasks(log_dir, model, *args, test_data=data)(0)
    tags = written(log_dir)
    np.testing.assert_allclose(tags["elbo/standard"][0], model.elbo(*args), rtol=1e-4)
    nll = -np.mean(model.predict_log_density(data))
    np.testing.assert_allclose(tags["test/nll"][0], nll, rtol=1e-5)


# ---- bad arguments ----


def test_bad_arguments_are_named(build: Build, log_dir: str) -> None:
    """Errors come when the task is made, not during training."""
    model, args, (X, Y) = build()
    other: Any = gpflow.models.SGPR((X, Y[:, :1]), Matern32(), X[:M])
    model_tasks: list[Any] = [
        BoundsToTensorBoard,
        AuxiliaryToTensorBoard,
        FitToTensorBoard,
        standard_tasks,
    ]
    for task in model_tasks:
        with pytest.raises(ValueError, match=r"model must be .*Found: SGPR"):
            task(log_dir, other, (X, Y))
        wrong = [None, X, (X, Y, Y)] if args else [(X, Y)]
        for data in wrong:
            with pytest.raises(ValueError, match=r"data must .*Found"):
                task(log_dir, model, data)
        if args:
            with pytest.raises(ValueError, match="Y must be finite"):
                task(log_dir, model, (X, Y * np.nan))
    with pytest.raises(ValueError, match=r"model must be .*Found: SGPR"):
        HeldOutToTensorBoard(log_dir, other, (X, Y))
    bad: Any
    for bad, message in (
        (None, "test_data must be a pair .*NoneType"),
        ((np.hstack([X, X]), Y), r"X must have as many columns.*2"),
        ((X, np.inf * Y), "Y must be finite"),
    ):
        with pytest.raises(ValueError, match=message):
            HeldOutToTensorBoard(log_dir, model, bad)
    for bad in ("0.5", None, [0.5], tf.Variable([0.5, 0.5]), lambda step: 1.0 / step):
        with pytest.raises(ValueError, match="step_size must be one number"):
            StepSizeToTensorBoard(log_dir, bad)
    assert not Path(log_dir).exists()


def test_image_of_many_inputs_is_refused(build: Build, log_dir: str) -> None:
    model, args, _ = build(D=3)
    with pytest.raises(ValueError, match=r"data must have 1 or 2 input dimensions.*Found: 3"):
        FitToTensorBoard(log_dir, model, *args)


# ---- a real server ----


@pytest.fixture
def server(log_dir: str, tmp_path: Path) -> Iterator[Callable[[str], Any]]:
    """A function that queries a TensorBoard server on ``log_dir``; None for data not loaded yet."""
    log = tmp_path / "server"
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", log_dir, "--port", "0"]
    options = ["--host", "127.0.0.1", "--load_fast", "false", "--reload_interval", "1"]
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with log.open("w") as output:
        process = subprocess.Popen(command + options, stdout=output, stderr=output)

    def get(path: str) -> Any:
        address = re.search(r"http://127\.0\.0\.1:\d+", log.read_text())
        assert process.poll() is None, log.read_text()
        if not address:
            return None
        try:
            with opener.open(f"{address[0]}/data/plugin/{path}", timeout=10) as response:
                return json.load(response)
        except urllib.error.URLError:
            return None

    try:
        yield get
    finally:
        process.kill()
        process.wait()


@pytest.mark.slow
@pytest.mark.parametrize("build", ["AugmentedSVGP"], indirect=True)
def test_tensorboard_serves_what_was_written(
    build: Build, log_dir: str, server: Callable[[str], Any]
) -> None:
    model, args, data = build()
    tasks = standard_tasks(log_dir, model, *args, test_data=data, step_size=0.5)
    expected = []
    for step in range(2):
        expected.append(float(model.augmented_elbo(*args)))
        tasks(step)
        AugmentedNaturalGradient(0.5).minimize(model, *args)

    def series(tag: str) -> Any:
        query = urllib.parse.urlencode({"run": ".", "tag": tag})
        rows = server(f"scalars/scalars?{query}")
        return np.empty([0, 2]) if rows is None else np.array(rows)[:, 1:]

    scalars = "elbo/augmented", "elbo/standard", "elbo/gap", "test/nll", "step_size"
    deadline = time.monotonic() + 90.0
    while (read := [len(series(tag)) for tag in scalars]) != [2] * 5:
        assert time.monotonic() < deadline, read
        time.sleep(0.5)

    np.testing.assert_allclose(series("elbo/augmented"), [[0, expected[0]], [1, expected[1]]])
    augmented, standard, gap = (series(f"elbo/{n}")[:, 1] for n in ("augmented", "standard", "gap"))
    np.testing.assert_allclose(standard - augmented, gap, rtol=1e-4)
    np.testing.assert_array_equal(series("step_size"), [[0, 0.5], [1, 0.5]])
    assert set(server("histograms/tags")["."]) == {"auxiliary/c", "auxiliary/omega_mean"}
    assert set(server("images/tags")["."]) == {"fit"}
