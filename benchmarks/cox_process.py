"""
A log Gaussian Cox process of events in time: rates by variational inference and by samplers.

As the experiment on mining disasters in *Automated Variational Inference for Gaussian Process
Models* (Nguyen and Bonilla, NIPS 2014): dates are counted in bins, y ~ Poisson(width · exp f), and
all methods have the same hyperparameters, which ``fit`` finds first.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import process_time
from typing import NamedTuple

import arviz
import gpflow
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

import gpflow_aaci
from gpflow_aaci import AugmentedVGP, contrib
from gpflow_aaci.progress import progress_bar

from .cache import finished
from .config import CoxProcess
from .datasets import Array, read_dates
from .report import Report, style, subplots

_DRAWS = 10_000  # of q, from which the intervals of the rate are taken
_KEPT = 0.9  # the probability of an interval

_MIXTURES = {
    "MixtureVGP, opper_archambeau": {"num_components": 1, "covariance": "opper_archambeau"},
    "MixtureVGP, full": {"num_components": 1, "covariance": "full"},
    "MixtureVGP, 1 diagonal": {"num_components": 1},
    "MixtureVGP, 2 diagonal": {"num_components": 2},
}
_SAMPLERS: dict[str, Callable[[], gpflow_aaci.sampling.Sampler]] = {
    "EllipticalSlices": contrib.EllipticalSlices,
    "HMC": partial(contrib.HMC, num_leapfrog_steps=10),
}


class Counts(NamedTuple):
    """Events in bins of equal width."""

    centres: Array  # [N, 1], years
    counts: Array  # [N, 1]
    width: float  # years


def binned(dates: Array, bins: int) -> Counts:
    """Counts of the dates in bins from the first of them to the last."""
    counts, edges = np.histogram(dates, bins)
    centres = 0.5 * (edges[1:] + edges[:-1])
    return Counts(centres[:, None], counts[:, None].astype(float), float(edges[1] - edges[0]))


def run(config: CoxProcess, folder: Path, quiet: bool = False) -> pd.DataFrame:
    """A row for each method and bin: the mean and the interval of the rate, events a year."""
    data = binned(read_dates(config.data), config.bins)
    key = {"counts": data.counts[:, 0].tolist()}
    fitted = finished(config, "fit", key, partial(_fitted, data))
    rows = []
    for method in progress_bar(not quiet, iterable=config.methods, unit="method"):
        one = partial(_one, config, data, fitted.iloc[0], method)
        rows.append(finished(config, method, {**key, "method": method}, one))
    return pd.concat(rows, ignore_index=True).merge(fitted, how="cross")


def _fitted(data: Counts) -> pd.DataFrame:
    """Hyperparameters, and the seconds that ``fit`` takes."""
    model = _model(data)
    began = process_time()
    gpflow_aaci.fit(model, progress=False)
    row = {"fit seconds": process_time() - began}
    row["variance"] = float(model.kernel.variance.numpy())
    row["lengthscale"] = float(model.kernel.lengthscales.numpy())
    row["mean"] = float(model.mean_function.c.numpy())
    return pd.DataFrame([row])


def _one(config: CoxProcess, data: Counts, fitted: pd.Series, method: str) -> pd.DataFrame:
    model = _model(data)
    model.kernel.variance.assign(fitted.variance)
    model.kernel.lengthscales.assign(fitted.lengthscale)
    model.mean_function.c.assign(fitted["mean"])
    gpflow.set_trainable(model.kernel, False)
    gpflow.set_trainable(model.mean_function, False)
    X, row = model.data[0], dict.fromkeys(["bound", "evaluations", "min ESS", "R-hat"], np.nan)
    began = process_time()  # CPU time, since other processes may run at the same time
    if method in _SAMPLERS:
        options = {"num_chains": config.num_chains, "num_burnin": config.num_burnin}
        options |= {"num_samples": config.num_samples, "seed": config.seed, "progress": False}
        samples = gpflow_aaci.sample_posterior(model, sampler=_SAMPLERS[method](), **options)
        row["seconds"] = process_time() - began
        row["min ESS"] = float(arviz.ess(samples)["f"].min())
        row["R-hat"] = float(arviz.rhat(samples)["f"].max())
        f = samples.posterior["f"].values.reshape([-1, config.bins])
    else:
        of_q: gpflow.models.GPModel = model
        if method == "polish":
            gpflow_aaci.polish(model, progress=False)
        else:
            parts = model.data, model.kernel, model.likelihood, model.mean_function
            of_q = contrib.MixtureVGP(*parts, 1, **_MIXTURES[method])
            loss, limits = of_q.training_loss_closure(), {"maxiter": config.steps}
            scipy = gpflow.optimizers.Scipy()
            found = scipy.minimize(loss, of_q.trainable_variables, options=limits)
            row["evaluations"] = found.nfev
        row["seconds"], row["bound"] = process_time() - began, float(of_q.elbo())
        f = of_q.predict_f_samples(X, _DRAWS, full_cov=False).numpy()[..., 0]
    rate, ends = np.exp(f), [0.5 * (1.0 - _KEPT), 0.5 * (1.0 + _KEPT)]
    low, high = np.quantile(rate, ends, axis=0)
    values = {"year": data.centres[:, 0], "count": data.counts[:, 0], "rate": rate.mean(0)}
    return pd.DataFrame({"method": method, **row, **values, "low": low, "high": high})


def _model(data: Counts) -> AugmentedVGP:
    """GPflow's Poisson as it is, years in tens, and a mean of log rates that is learnt."""
    mean = gpflow.functions.Constant(np.log(data.counts.mean() / data.width))
    kernel = gpflow.kernels.SquaredExponential(variance=1.0, lengthscales=1.0)
    likelihood = gpflow.likelihoods.Poisson(binsize=data.width)
    years = (data.centres - data.centres.mean()) / 10.0
    return AugmentedVGP((years, data.counts), kernel, likelihood, mean_function=mean)


# ---- the report ----


def report(metrics: pd.DataFrame) -> Report:
    """Seconds, speed-up over HMC, and how far rates are from those of the chains of most ESS."""
    table = metrics.drop_duplicates("method").set_index("method")
    by_method = {name: rows.reset_index() for name, rows in metrics.groupby("method", sort=False)}
    exact = by_method[table["min ESS"].idxmax()] if table["min ESS"].notna().any() else None
    rows = []
    for method, of_method in by_method.items():
        row = {"method": method, "seconds": table.seconds[method]}
        if "HMC" in table.index:
            row["speed-up over HMC"] = table.seconds["HMC"] / table.seconds[method]
        row |= {"evaluations": table.evaluations[method]}
        row["bound"] = f"{table.bound[method]:.3f}" if np.isfinite(table.bound[method]) else ""
        if exact is not None:
            apart = (of_method[["rate", "low", "high"]] - exact[["rate", "low", "high"]]).abs()
            row |= {f"{part}, %": 100.0 * (apart[part] / exact.rate).mean() for part in apart}
        row |= {"min ESS": table["min ESS"][method], "R-hat": table["R-hat"][method]}
        rows.append(row)
    caption = (
        "CPU seconds of inference, with compiling and burn-in, at hyperparameters that were fitted "
        "before. Speed-up: HMC's seconds by the method's. Rate, low and high, %: the "
        "mean distances of the rate and of the ends of its 90 % interval from those of the sampler "
        "of the highest ESS, in percent of that rate."
    )
    fitted = metrics[["fit seconds", "variance", "lengthscale", "mean"]].head(1)
    unit = "What fit found in those seconds, of log rates a year; the lengthscale in tens of years."
    return Report({caption: pd.DataFrame(rows), unit: fitted}, {"rates": _figure(by_method)})


def _figure(by_method: dict[str, pd.DataFrame]) -> Figure:
    """The paper's Fig. 4: counts, rates with their intervals, and seconds."""
    figure, axes = subplots(1, 3, 4.2, 3.2)
    first = next(iter(by_method.values()))
    yearly = first.groupby(first.year.astype(int))["count"].sum()
    axes[0, 0].bar(yearly.index, yearly, width=0.9, color="#999999")
    axes[0, 0].set(title="events", xlabel="year", ylabel="events in the year")
    for method, rows in by_method.items():
        look = style(method) | {"marker": ""}
        axes[0, 1].plot(rows.year, rows.rate, **look, label=method)
        for end in ("low", "high"):
            axes[0, 1].plot(rows.year, rows[end], **look, lw=0.7)
        axes[0, 2].barh(method, rows.seconds[0], color=look["color"])
    axes[0, 1].set(title="mean rate, 90 % interval", xlabel="year", ylabel="events a year")
    axes[0, 1].legend(fontsize="x-small", frameon=False)
    axes[0, 2].set(title="time", xlabel="seconds")
    axes[0, 2].invert_yaxis()
    axes[0, 2].tick_params("y", labelsize="small")
    return figure
