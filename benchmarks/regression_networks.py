"""
Outputs whose correlation changes with x: a network of GPs, and models where it does not change.

The model is a ``GaussianProcessRegressionNetwork`` (Wilson, Knowles and Ghahramani 2012), whose q
is a mixture as Nguyen and Bonilla (2014) propose; the data are draws from it, or the weather.
"""

from functools import partial
from pathlib import Path
from time import process_time

import gpflow
import numpy as np
import pandas as pd
import scipy.stats
from gpflow.kernels import LinearCoregionalization, SeparateIndependent, SquaredExponential

import gpflow_aaci
from gpflow_aaci import AugmentedSVGP, contrib, likelihoods
from gpflow_aaci.progress import progress_bar

from .cache import finished
from .config import RegressionNetworks
from .datasets import Array, read_weather
from .report import Report, boxes

_COMPONENTS = {"network, full": 0, "network, 1 diagonal": 1, "network, 2 diagonal": 2}
_NOISE = 0.1  # the standard deviation
_WEATHER = ("temp", "dewp", "pressure")
_LENGTHSCALES = {"nodes": 0.5, "weights": 2.0}  # of inputs from 0 to 6


def drawn(config: RegressionNetworks, seed: int) -> tuple[Array, Array]:
    """X [N, 1] in random order and Y [N, P]; outputs have, without noise, the deviation 1."""
    if config.data == "weather":
        X, Y = read_weather(config.rows, seed, _WEATHER[: config.num_outputs])
        order = np.random.default_rng(seed).permutation(len(X))
        return X[order], ((Y - Y.mean(0)) / Y.std(0))[order]
    rng, P, Q = np.random.default_rng(seed), config.num_outputs, config.num_nodes
    X = rng.uniform(0.0, 6.0, [config.rows, 1])

    def gps(number: int, lengthscale: float) -> Array:
        K = SquaredExponential(lengthscales=lengthscale)(X).numpy() + 1e-8 * np.eye(len(X))
        return np.linalg.cholesky(K) @ rng.normal(size=[len(X), number])

    f, W = gps(Q, _LENGTHSCALES["nodes"]), gps(P * Q, _LENGTHSCALES["weights"])
    Y = np.einsum("npq,nq->np", W.reshape([-1, P, Q]), f)
    return X, Y / Y.std(0) + _NOISE * rng.normal(size=Y.shape)


def run(config: RegressionNetworks, folder: Path, quiet: bool = False) -> pd.DataFrame:
    """A row for each seed, of data, split and start, and each method."""
    grid = [(seed, method) for seed in config.seeds for method in config.methods]
    rows = []
    for seed, method in progress_bar(not quiet, iterable=grid, unit="run"):
        key = {"seed": seed, "of": method}
        rows.append(finished(config, method, key, partial(_one, config, seed, method)))
    return pd.concat(rows, ignore_index=True)


def report(metrics: pd.DataFrame) -> Report:
    """Medians over the seeds, and boxes."""
    table = metrics.groupby("method", sort=False)[["seconds", "bound", "nll", "error"]].median()
    caption = (
        "Medians over data sets. NLL: of each test output, under a normal law of its predictive "
        "mean and variance. Error: squared, divided by the variance of the output. CPU seconds."
    )
    named = metrics.assign(problem="several outputs", **{"error metric": "error"})
    figures = {"boxes": boxes(named, ["nll", "error"])}
    return Report({caption: table.round(4).reset_index()}, figures)


def _one(config: RegressionNetworks, seed: int, method: str) -> pd.DataFrame:
    X, Y = drawn(config, seed)
    num_test = round(config.test_fraction * len(X))  # rows are in random order
    data, X_test, Y_test = (X[num_test:], Y[num_test:]), X[:num_test], Y[:num_test]
    began = process_time()  # CPU time, since other processes may run at the same time
    if method in _COMPONENTS:
        model = _network(config, data, seed, _COMPONENTS[method])
        loss, limits = model.training_loss_closure(), {"maxiter": config.steps}
        gpflow.optimizers.Scipy().minimize(loss, model.trainable_variables, options=limits)
        bound = float(model.elbo())
    else:
        model = _linear(config, data, method == "fixed weights")
        bound = gpflow_aaci.fit(model, data, progress=False).elbo
    row = {"seed": seed, "method": method, "seconds": process_time() - began, "bound": bound}
    mean, variance = (part.numpy() for part in model.predict_y(X_test))
    row["nll"] = -scipy.stats.norm.logpdf(Y_test, mean, np.sqrt(variance)).mean()
    row["error"] = np.mean((mean - Y_test) ** 2 / Y_test.var(0))
    return pd.DataFrame([row])


def _network(
    config: RegressionNetworks, data: tuple[Array, Array], seed: int, K: int
) -> contrib.MixtureVGP:
    """K diagonal components, or one full Gaussian; a kernel for all nodes, one for all weights."""
    P, Q = config.num_outputs, config.num_nodes
    of_nodes, of_weights = (SquaredExponential(lengthscales=s) for s in (0.7, 2.0))
    model = contrib.MixtureVGP(
        data,
        SeparateIndependent(Q * [of_nodes] + P * Q * [of_weights]),
        contrib.GaussianProcessRegressionNetwork(P, Q),
        num_components=max(K, 1),
        covariance="diagonal" if K else "opper_archambeau",
    )
    rng = np.random.default_rng(seed)
    weights = gpflow.functions.Constant(np.r_[np.zeros(Q), rng.normal(size=P * Q)])
    model.mean_function = weights  # at means of 0 the bound would be stationary
    model.q_mu.assign(0.1 * rng.normal(size=model.q_mu.shape))
    return model


def _linear(config: RegressionNetworks, data: tuple[Array, Array], mixes: bool) -> AugmentedSVGP:
    """GPs that are outputs themselves, or are mixed by weights that do not change with x."""
    L = config.num_nodes if mixes else config.num_outputs
    kernels = [SquaredExponential(lengthscales=0.7) for _ in range(L)]
    W = np.random.default_rng(0).normal(size=[config.num_outputs, L])
    kernel = LinearCoregionalization(kernels, W) if mixes else SeparateIndependent(kernels)
    Z = gpflow.inducing_variables.InducingPoints(data[0].copy())
    shared = gpflow.inducing_variables.SharedIndependentInducingVariables(Z)
    gpflow.set_trainable(shared, False)
    options = {"num_latent_gps": L, "num_data": len(data[0])}
    return AugmentedSVGP(kernel, likelihoods.Gaussian(), shared, **options)
