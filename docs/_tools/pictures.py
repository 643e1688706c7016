"""The pictures of the README and of the pages, drawn by ``python docs/_tools/pictures.py``."""

import os
import runpy
import warnings
from pathlib import Path
from typing import Any

os.environ["MPLBACKEND"] = "Agg"

import gpflow
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from notebook import python_of
from PIL import Image

import gpflow_aaci
from gpflow_aaci import likelihoods
from gpflow_aaci.augmentation import aux_posterior_mean

HERE = Path(__file__).parents[1]
RUNS = HERE.parent / "benchmarks" / "reference"
RESULTS = (
    ("Protein, Student-t noise learnt", "time_to_nll", "Protein, Student-t learnt"),
    ("Covertype, two classes", "time_to_nll", "Covertype, logistic"),
    ("Counts: visits to a doctor", "counts", "Visits to a doctor"),
)
ZERO = np.zeros((1, 1))
COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7"]  # those of the gallery


def main() -> None:
    plt.show = lambda: None
    plt.rcParams["axes.prop_cycle"] = plt.cycler(color=COLOURS)
    results()
    save("results")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        runpy.run_path(str(HERE / "gallery" / "plot_01_the_crash.py"))
    save("crash")
    _, (left, right) = plt.subplots(1, 2, figsize=(9.0, 3.4), constrained_layout=True)
    tangents(left)
    weights(right)
    save("method_bound")
    _, (left, right) = plt.subplots(1, 2, figsize=(9.0, 3.4), constrained_layout=True)
    gaps(left)
    steps(right)
    save("method_steps")
    exec("\n".join(python_of((HERE / "tutorial.md").read_text())), {})
    save("tutorial")


def results() -> None:
    """Held-out NLL against seconds, tracing counted, in three problems of the kept runs."""
    colours = {"fit_collapsed": "#D55E00", "Adam": "#0072B2", "NatGrad + Adam": "#009E73"}
    colours["Scipy"] = "#CC79A7"
    figure, axes = plt.subplots(1, 3, figsize=(9.0, 3.2), layout="constrained")
    for ax, (title, kept, problem) in zip(axes, RESULTS, strict=True):
        runs = pd.read_csv(RUNS / kept / "metrics.csv.gz")
        runs = runs[(runs.problem == problem) & (runs.step > 0) & (runs.seed == 0)]
        curves = []
        for method, colour in colours.items():
            own = runs[runs.method == method]
            of_setting = dict(list(own.groupby("setting")))
            best = min(of_setting.values(), key=lambda run: run.nll.iloc[-1])
            seconds = best.seconds + best.tracing_seconds
            is_fit, number = method == "fit_collapsed", len(of_setting)
            tuning = f"best of {number} settings" if number > 1 else "nothing to tune"
            name = f"fit, {tuning} (dot: returned)" if is_fit else f"GPflow: {method}, {tuning}"
            ax.plot(seconds, best.nll, color=colour, lw=2 if is_fit else 1.3, label=name)
            curves.append(best.nll)
            if best.status.iloc[-1] != "limit: time":  # it returned by itself
                ax.plot(seconds.iloc[-1:], best.nll.iloc[-1:], "o", ms=5, color=colour)
        least = min(curve.min() for curve in curves)
        room = max(0.02, max(curve.iloc[-1] for curve in curves) - least)
        ax.set(xscale="log", ylim=(least - 0.08 * room, least + 2.0 * room), title=title)
        ax.set(xlabel="seconds, compiling counted")
        ax.set_xticks([1, 3, 10, 30], ["1", "3", "10", "30"])
        ax.set_xticks([], minor=True)
    axes[0].set(ylabel="held-out NLL [nats a datum]")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False, fontsize=8)


def save(name: str) -> None:
    (HERE / "pictures").mkdir(exist_ok=True)
    path = HERE / "pictures" / f"{name}.png"
    plt.gcf().savefig(path, dpi=100)
    Image.open(path).convert("RGB").quantize(64).save(path, optimize=True)  # a third as large
    plt.close("all")


def tangents(ax: Any) -> None:
    """log p(y|f) of Student-t noise, and its bound for three values of c."""
    likelihood = likelihoods.StudentT(scale=1.0, df=3.0)
    f = np.linspace(-6.0, 6.0, 201)[:, None]
    ax.plot(f, likelihood.log_prob(ZERO, f, ZERO), "k", lw=2, label="log p(y = 0 | f)")
    for c in (0.5, 2.0, 4.0):
        at = np.full((1, 1), c)
        slope = aux_posterior_mean(likelihood, at, ZERO)
        height = likelihood.log_C(ZERO) + likelihood.log_phi(at**2)
        ax.plot(f, height - slope * (f**2 - c**2), lw=1, label=f"bound, c = {c:g}")
    ax.set(xlabel="f", ylim=(-6.5, -0.5), title="Gaussians from below (Student-t noise)")
    ax.legend(fontsize=8)


def weights(ax: Any) -> None:
    """The precision of a site against the residual."""
    c = np.geomspace(0.05, 20.0, 100)[:, None]
    for name, likelihood in {
        "Gaussian": likelihoods.Gaussian(1.0),
        "StudentT, df = 3": likelihoods.StudentT(1.0, 3.0),
        "Matern32": likelihoods.Matern32(1.0),
        "Laplace": likelihoods.Laplace(1.0),
    }.items():
        precision = 2.0 * aux_posterior_mean(likelihood, c, np.zeros_like(c))
        ax.loglog(c, precision, label=name)
    ax.set(xlabel="residual c", ylabel="precision 2 E[ω]", title="The weight of a datum")
    ax.legend(fontsize=8)


def gaps(ax: Any) -> None:
    """E log p(y|f) minus its augmented bound, against the standard deviation of q(f)."""
    sd = np.linspace(0.0, 2.0, 60)[:, None]
    mean, y = np.ones_like(sd), np.zeros_like(sd)
    for name, likelihood in {
        "StudentT, df = 3": likelihoods.StudentT(1.0, 3.0),
        "Matern32": likelihoods.Matern32(1.0),
        "Laplace": likelihoods.Laplace(1.0),
        "Logistic": likelihoods.Logistic(),
    }.items():
        bound = likelihood.bound(y, mean, sd**2, y)
        ax.plot(sd, likelihood.variational_expectations(y, mean, sd**2, y) - bound, label=name)
    ax.set(xlabel="standard deviation of q(f), mean 1, y = 0", ylabel="nats")
    ax.set(title="Augmentation gap of a datum")
    ax.legend(fontsize=8)


def steps(ax: Any) -> None:
    """GPflow's ELBO below its maximum, after closed-form steps and after Newton steps."""
    rng = np.random.default_rng(1)
    X = rng.uniform(-3.0, 3.0, (300, 1))
    Y = np.sin(2.0 * X) + 0.2 * rng.standard_t(2, X.shape)

    def make() -> gpflow_aaci.AugmentedVGP:
        kernel = gpflow.kernels.Matern52(lengthscales=0.5)
        return gpflow_aaci.AugmentedVGP((X, Y), kernel, likelihoods.StudentT(0.2, 3.0))

    best = gpflow_aaci.polish(make(), progress=False).elbo
    closed_form, newton = [], []
    model = make()
    for step in range(13):
        closed_form.append(best - float(model.elbo()))
        gpflow_aaci.AugmentedNaturalGradient(1.0).minimize(model)
        newton.append(best - gpflow_aaci.polish(make(), max_steps=step, progress=False).elbo)
    ax.semilogy(closed_form, "o-", ms=3, label="closed-form steps")
    ax.semilogy(np.maximum(newton, 1e-9), "s-", ms=3, label="Newton steps (polish)")
    ax.set(xlabel="steps", ylabel="nats", title="GPflow's ELBO below its maximum")
    ax.set(ylim=(1e-6, None))
    ax.legend(fontsize=8)


if __name__ == "__main__":
    main()
