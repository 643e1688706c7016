"""Fitted SVGPs against draws of u, hyperparameters and Z: test NLL, test error and seconds."""

import itertools
from functools import partial
from pathlib import Path
from time import process_time
from typing import TYPE_CHECKING

import gpflow
import numpy as np
import pandas as pd
import tensorflow_probability as tfp

import gpflow_aaci
from gpflow_aaci import contrib, predictions
from gpflow_aaci.progress import progress_bar
from gpflow_aaci.sampling import Sampler

from .cache import finished
from .config import BSGP, PriorOfZ
from .datasets import Array, Dataset, Split, load_datasets
from .methods import Model, make_model, make_start
from .metrics import evaluator, metric_names, of_predictions
from .report import Report, fixed

if TYPE_CHECKING:
    import arviz

_FITS = ("fit_collapsed", "fit_collapsed, Z learnt")
_MARGIN = 0.05  # how far the box of Z exceeds the data at each end, in ranges of the data
_CLOSE = 0.5  # the radius of Strauss, in root mean square distances of two inputs


def run(config: BSGP, folder: Path, quiet: bool = False) -> pd.DataFrame:
    """A row per problem, seed, method, prior on Z and objective; see :func:`_applies`."""
    datasets = load_datasets(config.problem, folder, quiet)
    of_draws = itertools.product(config.methods, config.priors, config.objectives)
    grid = itertools.product(datasets, config.seeds, of_draws)
    runs = [(d, seed, how) for d, seed, how in grid if _applies(config, len(d.X), *how)]
    rows = []
    for dataset, seed, how in progress_bar(not quiet, iterable=runs, unit="run"):
        name = f"{dataset.problem.title} {how[0]}"
        key = {**dataset.key, "seed": seed, "of": how}
        rows.append(finished(config, name, key, partial(_one, config, dataset, seed, *how)))
    return pd.concat(rows, ignore_index=True)


def _applies(config: BSGP, rows: int, method: str, prior: PriorOfZ, objective: str) -> bool:
    """
    Fits depend on neither list; Gibbs sampling knows one objective. Samplers that use all rows at
    every step run only on data sets that are small enough.
    """
    if method in _FITS:
        return (prior, objective) == (config.priors[0], config.objectives[0])
    if method == "HyperparameterGibbs" and objective == "variational":
        return False
    return method == "SGHMC" or rows <= config.most_rows_of_full_batches


def report(metrics: pd.DataFrame) -> Report:
    """A table of means over the seeds, and of their standard errors."""
    keys = ["problem", "method", "prior on Z", "objective", "error metric"]
    values = ["nll", "error", "seconds", "seconds a draw", "R-hat"]
    metrics = metrics.reindex(columns=[*keys, *values])  # fits have no draws
    groups = metrics.groupby(keys, sort=False, dropna=False)
    table = groups[values].mean()
    table.insert(1, "± nll", fixed(groups["nll"].sem(), 3))
    table["splits"] = groups.size()
    table = table.reset_index()
    table["nll"], table["R-hat"] = fixed(table["nll"], 3), fixed(table["R-hat"], 2)
    empty = [key for key in keys if table[key].isna().all()]
    caption = (
        "Means over splits, ± their standard error. CPU seconds on one core, of a draw or sweep in "
        "the column after them. R-hat is the largest of the hyperparameters, but for Z."
    )
    return Report({caption: table.drop(columns=empty).fillna("")}, {})


def _one(
    config: BSGP, dataset: Dataset, seed: int, method: str, prior: PriorOfZ, objective: str
) -> pd.DataFrame:
    problem, split = dataset.problem, dataset.split(config.test_fraction, seed, config.max_test)
    began = process_time()  # CPU time, since other processes may run at the same time
    model = fitted(split, dataset, config.num_inducing, seed, "Z learnt" in method)
    row = {"problem": problem.title, "sha256": dataset.sha256, "seed": seed, "method": method}
    row["error metric"] = metric_names(problem)["error_metric"]
    if method in _FITS:
        row["seconds"] = process_time() - began
        measured = evaluator(model, split)()
        return pd.DataFrame([{**row, "nll": measured.nll, "error": measured.error}])
    began_draws = process_time()
    give_Z_prior(model, prior, split.X)
    sampler, number = _sampler(config, method, objective)
    samples = gpflow_aaci.sample_posterior(
        model,
        (split.X, split.Y),
        sampler,
        num_chains=config.num_chains,
        seed=seed,
        progress=False,
        **number,
    )
    total = config.num_chains * sum(number.values())
    row |= {"prior on Z": prior, "objective": objective}
    row["seconds"] = process_time() - began
    row["seconds a draw"] = (process_time() - began_draws) / total
    row |= of_predictions(split, *predicted(model, samples, split))
    row["R-hat"] = _rhat(samples)
    return pd.DataFrame([row])


def fitted(
    split: Split, dataset: Dataset, num_inducing: int, seed: int, Z_is_learnt: bool
) -> Model:
    """
    An SVGP fitted by ``fit_collapsed`` with priors on its hyperparameters: standard normal on Z,
    and log-normal(log its first value, 1) on each other.
    """
    start = make_start(split, dataset.problem, num_inducing, seed)
    model = make_model(start, is_augmented=True)
    for parameter in (*model.kernel.trainable_parameters, *model.likelihood.trainable_parameters):
        give_log_normal_prior(parameter)
    give_Z_prior(model, "normal", split.X)
    gpflow.set_trainable(model.inducing_variable, Z_is_learnt)
    gpflow_aaci.fit_collapsed(model, (split.X, split.Y), progress=False)
    return model


def give_log_normal_prior(parameter: gpflow.Parameter) -> None:
    """Log-normal(log its present value, 1)."""
    parameter.prior = tfp.distributions.LogNormal(np.log(parameter.numpy()), np.float64(1.0))


def give_Z_prior(model: Model, prior: PriorOfZ, X: np.ndarray) -> None:
    """
    Make Z trainable, with that prior: standard normal, or on a box around the data.

    The box is a little wider than the data: centres of k-means++ are data, and on the edge of the
    box their unconstrained values would be infinite.
    """
    inducing, tfd = model.inducing_variable, tfp.distributions
    if prior == "normal":
        inducing.Z.prior = tfd.Normal(np.float64(0.0), np.float64(1.0))
        gpflow.set_trainable(inducing, True)
        return
    margin = _MARGIN * np.maximum(np.ptp(X, 0), 1.0)  # inputs are standardised
    low, high = X.min(0) - margin, X.max(0) + margin
    if prior == "uniform":
        law: tfd.Distribution = tfd.Uniform(low, high)
    elif prior == "determinantal":  # of the kernel as fitted, so that the prior on θ is unchanged
        law = contrib.Determinantal(gpflow.utilities.deepcopy(model.kernel))
    else:
        law = contrib.Strauss(radius=_CLOSE * np.sqrt(2.0 * X.var(0).sum()), gamma=0.1)
    box = tfp.bijectors.Sigmoid(low, high)
    inducing.Z = gpflow.Parameter(inducing.Z.numpy(), transform=box, prior=law)


def _sampler(config: BSGP, method: str, objective: str) -> tuple[Sampler, dict[str, int]]:
    """The sampler, and how many draws it makes."""
    of_method = {"SGHMC": config.sghmc, "HyperparameterHMC": config.hmc}
    options, number = of_method.get(method, config.gibbs).parts()
    if method == "SGHMC":
        return contrib.SGHMC(hyperparameters=True, objective=objective, **options), number
    if method == "HyperparameterHMC":
        return contrib.HyperparameterHMC(objective=objective), number
    return contrib.HyperparameterGibbs(), number


def predicted(
    model: Model | contrib.DeepGP, samples: "arviz.InferenceData", split: Split
) -> tuple[Array, Array]:
    """log p(y) [N] and E y [N, 1] of the test rows, averaged over the draws."""
    test = split.X_test, split.Y_test
    log_p = predictions.predict_log_density(model, test, samples=samples, progress=False)
    mean, _ = predictions.predict_y(model, split.X_test, samples=samples, progress=False)
    return log_p.numpy(), mean.numpy()


def _rhat(samples: "arviz.InferenceData") -> float:
    """The largest R-hat of the hyperparameters, NaN for one chain; points of Z may swap places."""
    if samples.posterior.sizes["chain"] == 1:
        return float("nan")
    import arviz  # not at the top of the module, since it is slow to import

    others = samples.posterior.drop_vars(["f", "u", "inducing_variable.Z"], errors="ignore")
    return float(arviz.rhat(others).to_array().max())
