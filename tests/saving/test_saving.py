"""A saved model predicts the same without GPflow, and with it goes through everything again."""

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import RobustScaler, StandardScaler

import gpflow_aaci
from gpflow_aaci import effects, kernels, likelihoods, predictions, saving
from gpflow_aaci.saving import load, save
from gpflow_aaci.saving.encoders import encoded
from gpflow_aaci.sklearn import AugmentedGPClassifier, AugmentedGPRegressor, table_encoder

RNG = np.random.default_rng(0)
N = 30
X = RNG.normal(size=(N, 2))
Y = np.sin(X[:, :1]) + 0.1 * RNG.normal(size=(N, 1))
COUNTS = RNG.poisson(2.0, size=(N, 1)).astype(float)
EXPOSURE = RNG.uniform(0.5, 2.0, size=(N, 1))
NEW = RNG.normal(size=(5, 2))

# A process with TensorFlow alone: it loads every folder and calls what a file says.
WITHOUT_GPFLOW = """
import pickle
import sys

for name in ("gpflow", "gpflow_aaci", "tensorflow_probability", "sklearn"):
    sys.modules[name] = None
import tensorflow as tf

calls, results = sys.argv[1:]
found = []
with open(calls, "rb") as file:
    for folder, name, args, kwargs in pickle.load(file):
        served = tf.saved_model.load(folder)
        result = getattr(served, name)(*args, **kwargs)
        found.append([part.numpy() for part in tf.nest.flatten(result)])
with open(results, "wb") as file:
    pickle.dump(found, file)
"""

Call = tuple[str, str, tuple[Any, ...], dict[str, Any]]


def without_gpflow(tmp_path: Path, calls: list[Call]) -> list[list[Any]]:
    """What functions (folder, name, args, kwargs) return in a process that cannot import GPflow."""
    import pickle

    (tmp_path / "calls").write_bytes(pickle.dumps(calls))
    script = [sys.executable, "-c", WITHOUT_GPFLOW]
    files = [str(tmp_path / "calls"), str(tmp_path / "results")]
    done = subprocess.run([*script, *files], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return pickle.loads((tmp_path / "results").read_bytes())


def kernel() -> gpflow.kernels.Kernel:
    return gpflow.kernels.SquaredExponential(lengthscales=[1.0, 1.5])


def sparse(likelihood: gpflow.likelihoods.Likelihood, **options: Any) -> Any:
    """An ``AugmentedSVGP`` with a q that is not the prior."""
    model = gpflow_aaci.AugmentedSVGP(kernel(), likelihood, X[:6], num_data=N, **options)
    model.q_mu.assign(RNG.normal(size=model.q_mu.shape))
    return model


def with_effects() -> Any:
    group = np.arange(N) % 3.0
    return gpflow_aaci.AugmentedSVGP(
        gpflow.kernels.SquaredExponential(active_dims=[0]),
        likelihoods.StudentT(),
        np.stack([X[:6, 0], group[:6]], 1),
        num_data=N,
        effects=[effects.Grouped(column=1, levels=group)],
    )


COUNTED = np.hstack([COUNTS, EXPOSURE])
MODELS: dict[str, tuple[Callable[[], Any], Any, Any]] = {
    "sparse": (lambda: sparse(likelihoods.Poisson(2.0, with_exposure=True)), NEW, COUNTED[:5]),
    "full": (
        lambda: gpflow_aaci.AugmentedVGP((X, Y), kernel(), likelihoods.StudentT()),
        NEW,
        Y[:5],
    ),
    "nearest": (
        lambda: gpflow_aaci.AugmentedNNGP(
            (X, COUNTED), kernel(), likelihoods.Poisson(2.0, with_exposure=True), 5
        ),
        NEW,
        COUNTED[:5],
    ),
    "effects": (with_effects, np.stack([NEW[:, 0], np.arange(5) % 3.0], 1), Y[:5]),
    "classes": (
        lambda: sparse(likelihoods.LogisticTree(3), num_latent_gps=2),
        NEW,
        np.arange(5)[:, None] % 3.0,
    ),
    "gpflow": (
        lambda: gpflow.models.SVGP(kernel(), gpflow.likelihoods.Poisson(), X[:6]),
        NEW,
        COUNTS[:5],
    ),
}


@pytest.mark.replicate
def test_predictions_without_gpflow_are_those_of_the_model(tmp_path: Path) -> None:
    calls: list[Call] = []
    expected = []
    levels = np.array([0.1, 0.5, 0.95])
    for name, (make, rows, y) in MODELS.items():
        model, folder = make(), str(tmp_path / name)
        save(model, folder)
        has_exposure = "exposure" in getattr(model.likelihood, "given", ())
        given: dict[str, Any] = {"given": {"exposure": EXPOSURE[:5, 0]}} if has_exposure else {}
        calls += [
            (folder, "predict_f", (rows,), {}),
            (folder, "predict_y", (rows,), {}),
            (folder, "predict_y", (rows,), given),
            (folder, "predict_y_quantile", (rows, levels), given),
            (folder, "predict_log_density", ((rows, y),), {}),
        ]
        expected += [
            model.predict_f(rows),
            model.predict_y(rows),
            predictions.predict_y(model, rows, **given),
            [predictions.predict_y_quantile(model, rows, levels, **given)],
            [predictions.predict_log_density(model, (rows, y))],
        ]
    for call, found, values in zip(calls, without_gpflow(tmp_path, calls), expected, strict=True):
        for part, value in zip(found, values, strict=True):
            np.testing.assert_allclose(part, value, rtol=0, atol=1e-10, err_msg=str(call[:2]))


def raw_table() -> tuple[pd.DataFrame, pd.Series]:
    rng = np.random.default_rng(1)
    frame = pd.DataFrame(
        {"city": rng.choice(["Bonn", "Ulm"], 60), "size": rng.normal(60.0, 20.0, 60)}
    )
    rent = 8.0 * frame["size"] + 100.0 * (frame["city"] == "Ulm") + rng.normal(0.0, 9.0, 60)
    frame.loc[::10, "size"] = np.nan
    frame.loc[::7, "city"] = None
    return frame, rent


def columns_of(frame: pd.DataFrame) -> dict[str, Any]:
    """What a process without pandas would give."""
    return {"city": frame["city"].fillna("missing").to_numpy(), "size": frame["size"].to_numpy()}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:column 'city' of X holds words that the fit has not seen")
def test_an_estimator_of_a_raw_table_takes_its_rows_without_gpflow(tmp_path: Path) -> None:
    frame, rent = raw_table()
    new = pd.DataFrame({"city": ["Ulm", None, "Rome", "Bonn"], "size": [50.0, 60.0, np.nan, 70.0]})
    regressor = AugmentedGPRegressor(random_state=0, num_inducing=20).fit(frame, rent)
    classifier = AugmentedGPClassifier(random_state=0, num_inducing=20)
    classifier.fit(frame, np.where(rent > 500.0, "dear", "cheap"))
    save(regressor, tmp_path / "regressor")
    save(classifier, tmp_path / "classifier")
    rows = columns_of(new)
    mean, quantiles, p = without_gpflow(
        tmp_path,
        [
            (str(tmp_path / "regressor"), "predict_y", (rows,), {}),
            (str(tmp_path / "regressor"), "predict_y_quantile", (rows, [0.05, 0.9]), {}),
            (str(tmp_path / "classifier"), "predict_proba", (rows,), {}),
        ],
    )
    np.testing.assert_allclose(mean[0][:, 0], regressor.predict(new), rtol=1e-10)
    expected = regressor.predict(new, quantiles=[0.05, 0.9]).T
    np.testing.assert_allclose(quantiles[0][..., 0], expected, rtol=1e-10)
    np.testing.assert_allclose(p[0], classifier.predict_proba(new), rtol=1e-10)
    about = json.loads((tmp_path / "classifier" / "saved.json").read_text())
    assert about["classes"] == ["cheap", "dear"]
    city, size = about["columns_of_rows"]
    assert city == {
        "name": "city",
        "holds": "text",
        "levels": ["Bonn", "Ulm", "missing", "(unseen)"],
    }
    assert size == {"name": "size", "holds": "float64"}
    assert about["left_out"] == {}
    loaded = load(tmp_path / "regressor").model
    np.testing.assert_array_equal(loaded.predict(new), regressor.predict(new))


CONTINUED = """
import sys

import numpy as np

import gpflow_aaci

folder, rows = sys.argv[1:]
data = np.load(rows)
model = gpflow_aaci.saving.load(folder).model
print(repr(float(model.elbo((data["X"], data["Y"])))))
gpflow_aaci.fit(model, (data["X"], data["Y"]), progress=False)
print(repr(float(model.elbo((data["X"], data["Y"])))))
"""


@pytest.mark.replicate
def test_a_fit_that_is_continued_in_a_new_process_ends_at_the_same_elbo(tmp_path: Path) -> None:
    model = sparse(likelihoods.StudentT())
    save(model, tmp_path / "model")
    np.savez(tmp_path / "data.npz", X=X, Y=Y)
    arguments = [sys.executable, "-c", CONTINUED, str(tmp_path / "model"), tmp_path / "data.npz"]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    before = float(model.elbo((X, Y)))
    gpflow_aaci.fit(model, (X, Y), progress=False)
    expected = [before, float(model.elbo((X, Y)))]
    np.testing.assert_allclose([*map(float, done.stdout.split())], expected, rtol=1e-10)


@pytest.mark.slow
def test_densities_in_the_unit_of_y_integrate_to_one(tmp_path: Path) -> None:
    """And quantiles in it are the levels of their distribution function, by that integral."""
    y_scaler = RobustScaler().fit(300.0 + 40.0 * Y)
    encoder = StandardScaler().fit(7.0 + X)
    save(sparse(likelihoods.Gaussian(0.3)), tmp_path / "m", encoder=encoder, y_scaler=y_scaler)
    served = tf.saved_model.load(str(tmp_path / "m"))
    grid = np.linspace(-1500.0, 2100.0, 20_001)
    rows = np.repeat(NEW[:1], len(grid), 0)
    density = np.exp(served.predict_log_density((rows, grid[:, None])))
    below = np.cumsum(density) * (grid[1] - grid[0])
    np.testing.assert_allclose(below[-1], 1.0, rtol=1e-8)
    quantile = served.predict_y_quantile(NEW[:1], [0.3])[0, 0, 0]
    np.testing.assert_allclose(np.interp(quantile, grid, below), 0.3, atol=1e-3)


@pytest.mark.slow
def test_known_noise_and_weights_are_in_the_unit_of_y(tmp_path: Path) -> None:
    """With f known, y ~ N(f, σ² + s²), by its formula; a weight multiplies its log density."""
    likelihood = likelihoods.Weighted(likelihoods.Gaussian(scale=0.3, with_noise_variance=True))
    model = sparse(likelihood)
    model.kernel.variance.assign(1e-12)  # f is 0
    y = np.array([[120.0], [90.0]])
    y_scaler = StandardScaler().fit(100.0 + 50.0 * Y)
    save(model, tmp_path / "model", y_scaler=y_scaler)
    served = tf.saved_model.load(str(tmp_path / "model"))
    known, weight = np.array([[9.0], [400.0]]), np.array([[1.0], [2.5]])
    log_p = served.predict_log_density((NEW[:2], np.hstack([y, known, weight])))
    variance = 0.3**2 * y_scaler.var_ + known
    expected = -0.5 * (np.log(2.0 * np.pi * variance) + (y - y_scaler.mean_) ** 2 / variance)
    np.testing.assert_allclose(log_p, (weight * expected)[:, 0], rtol=1e-6)
    _, found = served.predict_y(NEW[:2], given={"noise_variance": known[:, 0]})
    np.testing.assert_allclose(found, variance, rtol=1e-6)


@pytest.mark.slow
def test_float32(tmp_path: Path) -> None:
    config = gpflow.config.Config(float=np.float32, jitter=1e-4)
    with gpflow.config.as_context(config):
        model = gpflow_aaci.AugmentedVGP(
            (X.astype(np.float32), Y.astype(np.float32)), kernel(), likelihoods.StudentT()
        )
        save(model, tmp_path / "model")
        served = tf.saved_model.load(str(tmp_path / "model"))
        rows = NEW.astype(np.float32)
        for found, expected in zip(served.predict_y(rows), model.predict_y(rows), strict=True):
            assert found.dtype == tf.float32
            np.testing.assert_allclose(found, expected, rtol=1e-5)
        again = load(tmp_path / "model").model
        np.testing.assert_array_equal(again.predict_y(rows)[1], expected)
    with pytest.raises(ValueError, match=r"default_float\(\) must be float32.*Found: float64"):
        load(tmp_path / "model")


@pytest.mark.slow
def test_words_of_a_model_are_checked_without_gpflow_too(tmp_path: Path) -> None:
    frame, rent = raw_table()
    encoder = table_encoder(frame).fit(frame)
    start = kernels.start(encoder.transform(frame))
    model = gpflow_aaci.AugmentedVGP(
        (encoder.transform(frame), rent.to_numpy()[:, None]), start, likelihoods.Gaussian(9.0)
    )
    save(model, tmp_path / "model", encoder=encoder)
    served = tf.saved_model.load(str(tmp_path / "model"))
    rows = columns_of(frame[:3])
    expected = model.predict_y(encoder.transform(frame[:3]))[0]
    np.testing.assert_allclose(served.predict_y(rows)[0], expected, rtol=1e-12)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"city.* must hold levels .*Bonn"):
        served.predict_y({**rows, "city": np.array(["Ulm", "Rome", "Bonn"])})
    model, again, _ = load(tmp_path / "model")
    np.testing.assert_array_equal(model.predict_y(again.transform(frame[:3]))[0], expected)


@pytest.mark.slow
def test_a_pipeline_scales_its_rows_without_gpflow_too(tmp_path: Path) -> None:
    pipeline = make_pipeline(StandardScaler(), AugmentedGPRegressor(method="full"))
    pipeline.fit(1e3 * X, 50.0 + Y[:, 0])
    save(pipeline, tmp_path / "model")
    served = tf.saved_model.load(str(tmp_path / "model"))
    found = served.predict_y(1e3 * NEW)[0][:, 0]
    np.testing.assert_allclose(found, pipeline.predict(1e3 * NEW), rtol=1e-10)


class _InPython(gpflow.functions.MeanFunction):
    """A mean function that no graph can hold, and no pickle."""

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def __call__(self, rows: Any) -> Any:
        return np.sin(np.asarray(rows)[:, :1])


@pytest.mark.filterwarnings("ignore:.* is without")
def test_what_needs_python_is_left_out_and_said(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    with pytest.warns(UserWarning, match="is without predict_y: "):
        save(sparse(likelihoods.StudentT(), mean_function=_InPython()), folder)
    left_out = json.loads((folder / "saved.json").read_text())["left_out"]
    functions = {"predict_f", "predict_y", "predict_y_quantile"}
    assert left_out.keys() == functions | {"python"}
    assert "lock" in left_out["python"]
    assert not any(hasattr(tf.saved_model.load(str(folder)), name) for name in functions)
    with pytest.raises(ValueError, match=r"left out: .*lock.*tf.saved_model.load"):
        load(folder)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.* is without")
def test_an_encoder_unknown_in_tensorflow_is_left_before_the_functions(tmp_path: Path) -> None:
    encoder, model = PCA(2).fit(np.hstack([X, X**2])), sparse(likelihoods.StudentT())
    with pytest.warns(UserWarning, match="without encoder: PCA is not known .* that it returns"):
        save(model, tmp_path / "model", encoder=encoder)
    served = tf.saved_model.load(str(tmp_path / "model"))
    np.testing.assert_allclose(served.predict_f(NEW)[0], model.predict_f(NEW)[0], rtol=1e-12)
    rows = np.hstack([NEW, NEW**2])
    again = load(tmp_path / "model").encoder
    np.testing.assert_array_equal(again.transform(rows), encoder.transform(rows))


@pytest.fixture(scope="module")
def model() -> Any:
    return sparse(likelihoods.StudentT())


@pytest.fixture
def instantly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Functions are not compiled, which folders do not depend on."""

    def no_functions(parts: Any) -> Any:
        module = tf.Module()
        module.variable = tf.Variable(1.0)
        return saving.served.Served(module, {}, [], {})

    monkeypatch.setattr(saving.folder, "served", no_functions)


@pytest.mark.usefixtures("instantly")
def test_a_folder_of_the_users_is_never_replaced(tmp_path: Path, model: Any) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "thoughts.txt").write_text("mine")
    with pytest.raises(ValueError, match=r"folder must be .*notes with thoughts.txt"):
        save(model, tmp_path / "notes")
    save(model, tmp_path / "model")
    save(model, tmp_path / "model")  # its own may be replaced
    (tmp_path / "model" / "thoughts.txt").write_text("mine")
    with pytest.raises(ValueError, match=r"nothing else is in.* with thoughts.txt"):
        save(model, tmp_path / "model")
    (tmp_path / "model" / "thoughts.txt").rename(tmp_path / "model" / "variables" / "mine")
    with pytest.raises(ValueError, match=r"nothing else is in.* with variables.mine"):
        save(model, tmp_path / "model")
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ValueError, match=r"folder must be .*file"):
        save(model, tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"
    assert {path.name for path in tmp_path.iterdir()} == {"notes", "model", "file"}


@pytest.mark.usefixtures("instantly")
def test_a_save_that_is_cut_off_leaves_the_older_folder(
    tmp_path: Path, model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "model"
    save(model, folder)
    before = (folder / "saved.json").read_bytes()

    def fails(path: Path) -> None:
        raise OSError("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(saving.folder, "flush", fails)
        with pytest.raises(OSError, match="full"):
            save(model, folder)
    assert (folder / "saved.json").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    folder.rename(tmp_path / ".model.old")  # as a process does that ends between two renames
    np.testing.assert_array_equal(load(folder).model.q_mu, model.q_mu)
    save(model, folder)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


@pytest.mark.usefixtures("instantly")
def test_a_link_to_a_folder_stays_one(tmp_path: Path, model: Any) -> None:
    save(model, tmp_path / "version 3")
    current = tmp_path / "current"
    current.symlink_to(tmp_path / "version 3")
    for _ in range(2):
        save(model, current)
        np.testing.assert_array_equal(load(current).model.q_mu, model.q_mu)
    assert current.is_symlink()
    assert {path.name for path in tmp_path.iterdir()} == {"version 3", "current"}


def test_what_encoders_do_is_known_exactly_or_refused() -> None:
    columns = tf.unstack(X, axis=1)
    scaler = StandardScaler()
    weighted = ColumnTransformer(
        [("a", scaler, [0]), ("b", scaler, [1])], transformer_weights={"a": 2.0}
    )
    by_mask = ColumnTransformer([("a", "passthrough", np.array([False, True]))])
    for refused in (weighted.fit(X), by_mask.fit(X), type("Own", (StandardScaler,), {})().fit(X)):
        with pytest.raises(NotImplementedError, match="not known in TensorFlow"):
            encoded(refused, columns)
    known = ColumnTransformer([("a", scaler, [1]), ("b", "passthrough", [0])]).fit(X)
    np.testing.assert_allclose(np.stack(encoded(known, columns), 1), known.transform(X))


@pytest.mark.slow
def test_that_calibrated_intervals_are_left_out_is_said(tmp_path: Path) -> None:
    estimator = AugmentedGPRegressor(num_inducing=10, calibrated=True, random_state=0).fit(
        X, Y[:, 0]
    )
    with pytest.warns(UserWarning, match="is without calibrated intervals: predict_interval of"):
        save(estimator, tmp_path / "model")
    again = load(tmp_path / "model").model
    np.testing.assert_array_equal(again.predict_interval(NEW), estimator.predict_interval(NEW))


@pytest.mark.usefixtures("instantly")
def test_other_versions_are_named(tmp_path: Path, model: Any) -> None:
    folder = tmp_path / "model"
    save(model, folder)
    about = json.loads((folder / "saved.json").read_text())
    about["versions"]["gpflow"] = "1.0"
    (folder / "saved.json").write_text(json.dumps(about))
    with pytest.warns(UserWarning, match="gpflow was 1.0 and is 2"):
        load(folder)
    (folder / "assets.extra" / "python.pickle").write_bytes(b"cnothing.of\nthis\n.")
    with pytest.raises(ValueError, match=r"'nothing'.*gpflow was 1.0.*tf.saved_model.load gives"):
        load(folder)
    with pytest.raises(ValueError, match="folder must be one that save has written"):
        load(tmp_path)


def test_bad_arguments_of_save_are_named(tmp_path: Path, model: Any) -> None:
    folder = tmp_path / "model"
    with pytest.raises(ValueError, match=r"model must be a GP model.*Found: 3"):
        save(3, folder)
    with pytest.raises(ValueError, match=r"model must be .*Found: AugmentedGPRegressor\(\)"):
        save(AugmentedGPRegressor(), folder)
    with pytest.raises(ValueError, match="encoder must be a fitted transformer"):
        save(model, folder, encoder=StandardScaler())
    with pytest.raises(ValueError, match="y_scaler must be a fitted StandardScaler"):
        save(model, folder, y_scaler=StandardScaler())
    counts = sparse(likelihoods.NegativeBinomial())
    with pytest.raises(ValueError, match="y_scaler must be None for NegativeBinomial"):
        save(counts, folder, y_scaler=StandardScaler().fit(Y))
    assert not folder.exists()
