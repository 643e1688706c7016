"""Many small problems from GPflow's default start: where does each method end, and how soon?"""

import itertools
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

import gpflow
import numpy as np
import pandas as pd
import tensorflow as tf
from gpflow.keras import tf_keras
from matplotlib.figure import Figure
from scipy.special import ndtr

import gpflow_aaci
from gpflow_aaci import likelihoods
from gpflow_aaci.progress import progress_bar
from gpflow_aaci.runtime.compiled import forget_compiled

from .cache import finished
from .config import LikelihoodConfig, Starts, StartSize
from .datasets import Array
from .report import Report, fixed, one_legend, style, subplots

_METHODS = _OURS, _SCIPY, _ADAM = "fit", "Scipy", "Adam"
MOST_SHORT = (0.5, 1e-3)  # nats, and nats a datum, that do not count as ending lower
_KEYS = ["problem", "rows"]
_NUM_CLASSES = 3
_EDGES = [-0.5, 0.5]
_OTHERS: dict[str, tuple[Callable, Callable]] = {  # a likelihood, and a draw of Y given f
    "gpflow.Poisson": (gpflow.likelihoods.Poisson, lambda f, rng: rng.poisson(np.exp(f))),
    "gpflow.Exponential": (
        gpflow.likelihoods.Exponential,
        lambda f, rng: rng.exponential(np.exp(f)),
    ),
    "gpflow.Gamma": (gpflow.likelihoods.Gamma, lambda f, rng: rng.gamma(2.0, np.exp(f))),
    "gpflow.Beta": (gpflow.likelihoods.Beta, lambda f, rng: _beta(ndtr(f), rng)),
    "gpflow.MultiClass": (
        partial(gpflow.likelihoods.MultiClass, _NUM_CLASSES),
        lambda f, rng: _ordered(2.0 * f, rng),
    ),
    # GPflow's own Ordinal is NaN under some versions of TensorFlow.
    "Ordinal": (partial(likelihoods.Ordinal, _EDGES), lambda f, rng: _ordered(f, rng)),
    "Interval": (
        partial(likelihoods.Interval, "logit", 0.5),
        lambda f, rng: _censored(f + 0.3 * rng.logistic(size=f.shape), rng, np.inf),
    ),
    "Weibull": (
        partial(likelihoods.Weibull, 5.0, with_censoring=True),
        lambda f, rng: _censored(rng.exponential(np.exp(-f)), rng),
    ),
    "Poisson": (
        partial(likelihoods.Poisson, 10.0, with_exposure=True),
        lambda f, rng: _exposed(np.exp(f), rng),
    ),
    "ZeroInflated": (
        lambda: likelihoods.ZeroInflated(likelihoods.NegativeBinomial(), 0.2),
        lambda f, rng: rng.poisson(np.exp(f + 1.0)) * (rng.uniform(size=f.shape) < 0.7),
    ),
    "Hurdle": (
        lambda: likelihoods.Hurdle(likelihoods.NegativeBinomial(), 0.2),
        lambda f, rng: (1 + rng.poisson(np.exp(f))) * (rng.uniform(size=f.shape) < 0.7),
    ),
    "Heteroscedastic": (
        lambda: likelihoods.Heteroscedastic(likelihoods.Gaussian(), 10.0),
        lambda f, rng: f + 0.4 * np.exp(0.5 * f) * rng.normal(size=f.shape),
    ),
}


def run(config: Starts, folder: Path, quiet: bool = False) -> pd.DataFrame:
    """One row for every problem and method, and one more for a second fit of the fitted model."""
    problems = list(itertools.product(config.size, config.columns, config.likelihoods))
    tables = []
    with progress_bar(not quiet, total=3 * len(problems), unit="run") as progress:
        for number, (size, columns, likelihood) in enumerate(problems, config.first_number):
            title = title_of(size, columns, likelihood)
            for method in _METHODS:
                progress.set_description(f"{title}: {method}")
                of_run = {"problem": title, "rows": size.rows, "method": method}
                key = {"size": size.model_dump(), "columns": columns, "likelihood": likelihood}
                run_it = partial(_run_one, config, size, columns, likelihood, number, method)
                name = f"{title}-{method}"
                table = finished(config, name, key | {"number": number, "method": method}, run_it)
                tables.append(table.assign(**of_run))
                progress.update()
    return pd.concat(tables, ignore_index=True)


def report(metrics: pd.DataFrame) -> Report:
    """On how many problems fit ends lower, and on which; seconds; what a second fit gains."""
    problems = metrics[_KEYS].drop_duplicates().set_index(_KEYS).index  # in their order
    elbo, seconds = (
        metrics.pivot(index=_KEYS, columns="method", values=value).loc[problems]
        for value in ("elbo", "seconds")
    )
    ours = metrics[metrics.method == _OURS].set_index(_KEYS)
    peers = elbo[[_SCIPY, _ADAM]].max(axis=1)
    short = peers - elbo[_OURS]
    allowed = allowed_nats(elbo.index.get_level_values("rows"))
    converged = ours.status == "converged"
    summary = pd.DataFrame(
        {
            "problems": [len(short)],
            "fit ends lower": [int((short > allowed).sum())],
            "higher": [int((short < -allowed).sum())],
            "converged": [int(converged.sum())],
            "a second fit gains more than its tolerance": [
                int((ours.again > ours.tolerance)[converged].sum())
            ],
            **{f"{method}, median [s]": [seconds[method].median()] for method in _METHODS},
        }
    )
    each = pd.DataFrame(
        {
            **{method: fixed(elbo[method], 2) for method in _METHODS},
            "short of the best": fixed(short, 2),
            **{f"{method} [s]": fixed(seconds[method], 1) for method in _METHODS},
            "a second fit gains": fixed(ours.again, 4),
            "end": ours.status,
            "restart": fixed(ours.restart_gain, 1),
        }
    ).reset_index()
    tables = {
        "Lower, or higher, than the best of Scipy() and Adam by more than "
        f"{MOST_SHORT[0]} nats and {MOST_SHORT[1]} nats a datum.": summary,
        "GPflow's ELBO where each ended, seconds with tracing, and what a second fit gained.": each,
    }
    return Report(tables, {"starts": _figure(short, allowed)})


def title_of(size: StartSize, columns: str, likelihood: str) -> str:
    """What tables call a problem."""
    return f"{likelihood}, {size.rows} x {size.input_dim}, {columns}"


def allowed_nats(rows: pd.Series) -> pd.Series:
    """By how many nats two ends of a problem may differ and count as the same."""
    return np.maximum(MOST_SHORT[0], MOST_SHORT[1] * rows)


def make_data(size: StartSize, columns: str, likelihood: str, number: int) -> tuple[Array, Array]:
    """X [N, D] and Y [N, 1]: f is a sum of sines of the first three columns."""
    rng = np.random.default_rng(number)
    N, D = size.rows, size.input_dim
    X = rng.normal(size=(N, D)) if columns == "standardised" else rng.uniform(size=(N, D))
    weights = np.array([1.0, 0.7, 0.4])[: min(D, 3)]
    f = np.sin((2.0 if columns == "standardised" else 7.0) * X[:, :3]) @ weights
    unit = 1.0
    if columns == "raw":
        X = X * 10.0 ** rng.uniform(-1.0, 3.0, D)
        unit = 10.0 ** rng.uniform(-1.0, 2.0)
    if likelihood in _OTHERS:
        Y = np.asarray(_OTHERS[likelihood][1](f, rng), dtype=float)
    elif likelihood == "Logistic":
        Y = (rng.uniform(size=N) < 1.0 / (1.0 + np.exp(-3.0 * f))) * 1.0
    elif likelihood == "NegativeBinomial":
        Y = rng.poisson(rng.gamma(3.0, np.exp(f) / 3.0)).astype(float)
    else:
        noise = {"Gaussian": rng.normal, "Laplace": rng.laplace}.get(likelihood)
        Y = unit * (f + 0.3 * (noise(size=N) if noise else rng.standard_t(3.0, size=N)))
    return X, Y.reshape(N, -1)


def _ordered(f: Array, rng: np.random.Generator) -> Array:
    """How many edges lie below f and standard normal noise."""
    return np.searchsorted(_EDGES, f + rng.normal(size=f.shape))


def _censored(time: Array, rng: np.random.Generator, upper: float | None = None) -> Array:
    """Right-censored at random: the second column is 1 or 0, or the time or ``upper``."""
    end = time + rng.normal(0.5, 1.0, size=time.shape) if upper else rng.exponential(2.0, len(time))
    seen = time < end
    return np.stack(
        [np.minimum(time, end), seen if upper is None else np.where(seen, time, upper)], 1
    )


def _exposed(rate: Array, rng: np.random.Generator) -> Array:
    exposure = rng.uniform(0.2, 3.0, size=rate.shape)
    return np.stack([rng.poisson(rate * exposure), exposure], 1)


def _beta(mean: Array, rng: np.random.Generator) -> Array:
    """Draws of that mean, of the scale 4, away from 0 and 1, where GPflow's density has poles."""
    return np.clip(rng.beta(4.0 * mean, 4.0 * (1.0 - mean)), 1e-3, 1.0 - 1e-3)


def make_model(
    size: StartSize, X: Array, likelihood: str, is_augmented: bool
) -> gpflow.models.SVGP:
    """The model at GPflow's default start, ARD where there are several columns."""
    D = size.input_dim
    kernel = gpflow.kernels.SquaredExponential(lengthscales=np.ones(D) if D > 1 else 1.0)
    cls = gpflow_aaci.AugmentedSVGP if is_augmented else gpflow.models.SVGP
    known = _OTHERS.get(likelihood)
    noise = known[0]() if known else LikelihoodConfig(name=likelihood).make()
    latents = _NUM_CLASSES if likelihood == "gpflow.MultiClass" else noise.latent_dim or 1
    Z = X[: size.num_inducing].copy()
    model = cls(kernel, noise, Z, num_latent_gps=latents, num_data=len(X))
    gpflow.set_trainable(model.inducing_variable, size.train_inducing)
    return model


def _run_one(
    config: Starts, size: StartSize, columns: str, likelihood: str, number: int, method: str
) -> pd.DataFrame:
    forget_compiled()
    data = make_data(size, columns, likelihood, number)
    model = make_model(size, data[0], likelihood, method == _OURS)
    began, row = time.perf_counter(), {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if method == _OURS:
            result = gpflow_aaci.fit(model, data, progress=False)
            row = {"tolerance": result.tolerance, "expected": result.expected_gain}
            row |= {"restart_gain": result.restart_gain}
            status = "converged" if result.converged else result.reason
        elif method == _SCIPY:
            status = _scipy(model, data, config.seconds)
        else:
            status = _adam(model, data, config)
        seconds = time.perf_counter() - began
        elbo = float(model.elbo(data))
        if method == _OURS:
            gpflow_aaci.fit(model, data, progress=False)
            row["again"] = float(model.elbo(data)) - elbo
    return pd.DataFrame([{"elbo": elbo, "seconds": seconds, "status": status, **row}])


class _OutOfTimeError(Exception):
    pass


def _scipy(model: gpflow.models.SVGP, data: tuple[Array, Array], seconds: float) -> str:
    """``gpflow.optimizers.Scipy()`` as notebooks call it; it keeps the best point if cut off."""
    began = time.perf_counter()
    optimizer, variables = gpflow.optimizers.Scipy(), model.trainable_variables

    def callback(x: Array) -> None:
        optimizer.assign_tensors(variables, optimizer.unpack_tensors(variables, x))
        if time.perf_counter() - began > seconds:
            raise _OutOfTimeError

    closure = model.training_loss_closure(tuple(map(tf.constant, data)))
    try:
        found = optimizer.minimize(
            closure, variables, callback=callback, options={"maxiter": 10_000}
        )
    except _OutOfTimeError:
        return "limit: time"
    except tf.errors.InvalidArgumentError:
        return "failed: Cholesky"
    return "converged" if found.success else "limit: iterations"


def _adam(model: gpflow.models.SVGP, data: tuple[Array, Array], config: Starts) -> str:
    """Adam on all rows, with the learning rate falling to a tenth at the end."""
    rate = tf_keras.optimizers.schedules.ExponentialDecay(
        config.learning_rate, config.adam_steps, 0.1
    )
    adam, rows = tf_keras.optimizers.Adam(rate), tuple(map(tf.constant, data))
    step = tf.function(
        lambda: adam.minimize(lambda: model.training_loss(rows), model.trainable_variables),
        autograph=False,
    )
    began = time.perf_counter()
    for number in range(config.adam_steps):
        try:
            step()
        except tf.errors.InvalidArgumentError:
            return "failed: Cholesky"
        if number % 50 == 0 and time.perf_counter() - began > config.adam_seconds:
            return "limit: time"
    return "limit: steps"


def _figure(short: pd.Series, allowed: Array) -> Figure:
    figure, axes = subplots(1, 1, 6.4, 3.0)
    ax = axes[0, 0]
    ratio = np.sort((short / allowed).to_numpy())
    ax.plot(ratio, np.arange(1, len(ratio) + 1), **style(_OURS) | {"linestyle": ""}, label=_OURS)
    ax.axvline(1.0, color="0.5")
    ax.set(xscale="symlog", xlabel="nats short of the best of Scipy() and Adam, over the allowed")
    ax.set(ylabel="problems")
    one_legend(figure, axes)
    return figure
