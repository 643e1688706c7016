"""One worker for test_workers: ``worker.py TASK FOLDER`` writes its results to FOLDER."""

import contextlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import gpflow
import numpy as np
import tensorflow as tf

import gpflow_aaci
from gpflow_aaci.inference import hyperparameter_search
from gpflow_aaci.inference import objective as of_fit
from gpflow_aaci.inference.settings import SETTINGS

N = 2_500


def rows() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 2))
    noise = 0.1 * rng.standard_t(3, size=(N, 1))
    return X, np.sin(2.0 * X.sum(1, keepdims=True)) + noise


def shard(index: int, workers: int) -> slice:
    """The rows of a worker. If there are several workers, the first has 300 rows."""
    cuts = [0, *np.linspace(300, N, workers).astype(int)] if workers > 1 else [0, N]
    return slice(cuts[index], cuts[index + 1])


def strategy_here() -> tuple[tf.distribute.Strategy, int, int]:
    if devices := int(os.environ.get("DEVICES", "0")):
        (cpu,) = tf.config.list_physical_devices("CPU")
        parts = [tf.config.LogicalDeviceConfiguration()] * devices
        tf.config.set_logical_device_configuration(cpu, parts)
        names = [f"CPU:{number}" for number in range(devices)]
        return tf.distribute.MirroredStrategy(names), 0, 1
    if "TF_CONFIG" not in os.environ:
        return tf.distribute.get_strategy(), 0, 1
    config = json.loads(os.environ["TF_CONFIG"])
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    return strategy, config["task"]["index"], len(config["cluster"]["worker"])


def made(
    strategy: tf.distribute.Strategy,
    X: np.ndarray,
    likelihood: str = "StudentT",
    kernel: str = "SquaredExponential",
    **options: Any,
) -> gpflow_aaci.AugmentedSVGP:
    parameters = {"StudentT": {"scale": 0.3, "df": 4.0}, "Laplace": {"scale": 0.3}}
    with strategy.scope():
        parameters["Heteroscedastic"] = {"base": gpflow_aaci.likelihoods.Gaussian()}
        covariance = getattr(gpflow.kernels, kernel)(lengthscales=[1.0, 1.0])
        noise = getattr(gpflow_aaci.likelihoods, likelihood)(**parameters.get(likelihood, {}))
        parts = covariance, noise, X[:20].copy()
        model = gpflow_aaci.AugmentedSVGP(*parts, num_data=N, **options)
    gpflow.set_trainable(model.inducing_variable, False)
    return model


def state(model: gpflow_aaci.AugmentedSVGP) -> dict[str, list]:
    found = gpflow.utilities.read_values(model)
    return {path: np.ravel(value).tolist() for path, value in found.items()}


def others(strategy: tf.distribute.Strategy, X: np.ndarray, Y: np.ndarray, own: slice) -> dict:
    """Coupled latent GPs of a stream, an unwhitened q(u), the predictive objective, and ``fit``."""
    found: dict[str, Any] = {}

    def stream() -> tf.data.Dataset:
        return tf.data.Dataset.from_tensor_slices((X[own], Y[own])).batch(700)

    coupled = made(strategy, X, "Heteroscedastic", num_latent_gps=2)
    objectives: list[float] = []

    def stop(progress: Any) -> None:
        """Stop early, since later rounding decides which of several good q a search finds."""
        objectives.append(progress.objective)
        if progress.evaluations >= 2:
            raise KeyboardInterrupt

    with contextlib.suppress(KeyboardInterrupt):
        gpflow_aaci.fit_collapsed(coupled, stream(), callback=stop, progress=False)
    found |= {f"coupled{path}": value for path, value in state(coupled).items()}
    gpflow_aaci.AugmentedNaturalGradient(0.7).minimize(coupled, stream())
    found["coupled step"] = [*np.ravel(coupled.q_mu), *objectives]

    parts = {"steps": (made(strategy, X, "Laplace", whiten=False), "augmented")}
    parts |= {"predictive": (made(strategy, X, "Laplace"), "predictive")}
    for name, (model, objective) in parts.items():
        options = {"num_steps": 10, "batch_size": 64, "evaluate_every": 5, "progress": False}
        history = gpflow_aaci.train(model, (X[own], Y[own]), objective=objective, **options)
        found[name] = history[objective].tolist()
        found |= {f"{name}{path}": value for path, value in state(model).items()}

    model = made(strategy, X, "Laplace")
    result = gpflow_aaci.fit(model, (X[own], Y[own]), progress=False)
    found["fit"] = [result.elbo, float(result.converged)]
    return {**found, "gap": [result.gap], **searches(strategy, X, Y, own)}


def searches(strategy: tf.distribute.Strategy, X: np.ndarray, Y: np.ndarray, own: slice) -> dict:
    """A fit that begins again at other lengthscales, and one that ends on a part of the rows."""
    few = SETTINGS._replace(first_subset=100, rows_per_coordinate=20, worth=1.0)
    of_fit.SETTINGS = hyperparameter_search.SETTINGS = few
    short, enough = made(strategy, X), made(strategy, X)
    for model in (short, enough):
        gpflow.set_trainable(model.likelihood, False)
    short.kernel.lengthscales.assign([1e-3, 1e-3])
    data = X[own], Y[own]
    restarted = gpflow_aaci.fit_collapsed(short, data, progress=False)
    ended = gpflow_aaci.fit_collapsed(enough, data, rows="enough", progress=False)
    assert ended.rows == 400
    assert restarted.restart_gain > 100.0
    return {
        "restarted": [restarted.objective, restarted.restart_gain],
        "enough": [ended.objective, ended.worth, ended.worth_error],
    }


def nearest(strategy: tf.distribute.Strategy, X: np.ndarray, Y: np.ndarray, own: slice) -> dict:
    """A model of nearest neighbours, some of whose rows have the x of a row of another worker."""
    X = X.copy()
    X[-20:] = X[:20]
    with strategy.scope():
        kernel = gpflow.kernels.Matern32(lengthscales=[1.0, 1.0])
        likelihood = gpflow_aaci.likelihoods.StudentT(0.3, 4.0)
        model = gpflow_aaci.AugmentedNNGP((X[own], Y[own]), kernel, likelihood, 16)
    found = {"near": model.neighbors_of_rows(np.arange(0, N, 97), 16, True).ravel().tolist()}
    found["loss"] = [float(model.training_loss())]
    fit = gpflow_aaci.fit(model, progress=False)
    found["fit"] = [fit.log_density, fit.unseen, fit.repeated, fit.num_neighbors, fit.evaluations]
    parts = [*model.predict_f(X[:30] + 0.01), *model.predict_y(X[:30] + 0.01)]
    found["predictions"] = np.ravel(parts).tolist()
    found["joint"] = np.ravel(model.predict_f(X[:5] + 0.01, full_cov=True)[1]).tolist()
    found["metric"] = model.metric.tolist()
    found["loo"] = [gpflow_aaci.loo(model).elpd_loo]
    return found | {f"nearest{path}": value for path, value in state(model).items()}


def disagree(on: str, strategy: tf.distribute.Strategy, index: int, *data: np.ndarray) -> None:
    """Give worker 1 something else than the others."""
    is_other = index == 1
    kernel = "Matern32" if is_other and on == "kernel" else "SquaredExponential"
    model = made(strategy, rows()[0], kernel=kernel)
    if is_other and on == "scale":
        model.likelihood.scale.assign(0.31)
    X, Y = data
    if is_other and on == "data":
        X = X[:, :1]
    if on == "rate":
        adam = gpflow.keras.tf_keras.optimizers.Adam(0.03 if is_other else 0.01)
        optimizer = gpflow_aaci.AlternatingOptimizer(hyperparameter_optimizer=adam)
        optimizer.minimize(model, (X, Y))
    elif on == "seed":  # the model has been trained before
        for seed in (0, index):
            gpflow_aaci.train(model, (X, Y), num_steps=2, seed=seed, progress=False)
    else:
        gpflow_aaci.polish(model, (X, Y), progress=False)


def main(task: str, folder: Path) -> None:
    strategy, index, workers = strategy_here()
    X, Y = rows()
    model, own = made(strategy, X), shard(index, workers)
    data, found = (X[own], Y[own]), {}
    if task.startswith("disagree"):
        disagree(task.removeprefix("disagree "), strategy, index, X[own], Y[own])
    if task in ("fit", "resume"):
        keep = folder / "checkpoints" if task == "resume" else None
        if keep is not None:  # data of many chunks have logged passes
            gpflow_aaci.data.datasets.CHUNK = 500
        result = gpflow_aaci.fit_collapsed(model, data, progress=False, checkpoint_dir=keep)
        found["fit_collapsed"] = [result.objective, result.evaluations]
    if task in ("fit", "steps"):
        result = gpflow_aaci.polish(model, data, progress=False)
        found["polish"] = [result.elbo, result.start]
        gpflow_aaci.AugmentedNaturalGradient(0.7).minimize(model, data)
        found["q after a step"] = np.ravel(model.q_sqrt).tolist()
    if task == "fit":
        history = gpflow_aaci.train(
            model,
            data,
            num_steps=20,
            batch_size=64,
            evaluate_every=10,
            test_data=tuple(part[:200] if index == 0 else part[:0] for part in data),
            progress=False,
            checkpoint_dir=folder / "train",
        )
        found["train"] = history[["augmented", "nll"]].to_numpy().ravel().tolist()
    if task == "nearest":
        found |= nearest(strategy, X, Y, own)
    if task == "others":
        found |= others(strategy, X, Y, own)
    (folder / f"{index}.json").write_text(json.dumps({**found, **state(model)}))


if __name__ == "__main__":
    try:
        main(sys.argv[1], Path(sys.argv[2]))
    except (RuntimeError, ValueError) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        time.sleep(3.0)  # otherwise workers that still read the message lose this one
        os._exit(3)  # TensorFlow's own exit waits for the others
