"""Fitted SVGPs against draws of u, hyperparameters and Z: test NLL, test error and seconds."""

import itertools
from contextlib import closing
from functools import partial
from pathlib import Path
from time import process_time
from typing import TYPE_CHECKING, Any

import gpflow
import numpy as np
import pandas as pd
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.utilities import to_default_float
from matplotlib.figure import Figure

import gpflow_aaci
from gpflow_aaci import contrib, predictions
from gpflow_aaci.predictions.f import conditionals
from gpflow_aaci.progress import progress_bar
from gpflow_aaci.sampling import Sampler

from .cache import finished
from .config import BSGP, BSGPTraces, PriorOfZ
from .datasets import Array, Dataset, Split, load_datasets, standard_split
from .methods import Model, make_model, make_start
from .metrics import evaluator, metric_names, of_predictions
from .report import Report, fixed, one_legend, subplots

if TYPE_CHECKING:
    import arviz

_FITS = ("fit_collapsed", "fit_collapsed, Z learnt")
_BY_OBJECTIVE = "fit by the objective, Z learnt"
_OF_FIT: dict[str, Any] = {"predictive": "fitc", "variational": "standard"}  # else alike
_OF_U = "SGHMC, Z and hyperparameters fitted"
_RHATS = ("R-hat", "R-hat of f", "largest R-hat of f", "R-hat of y")
TRACED = 50  # test rows at which chains are compared
_SPREAD = 0.2  # sd of the starts near a fit, of unconstrained values
_MARGIN = 0.05  # how far the box of Z exceeds the data at each end, in ranges of the data
_CLOSE = 0.5  # the radius of Strauss, in root mean square distances of two inputs


def run(config: BSGP, folder: Path, quiet: bool = False) -> pd.DataFrame:
    """A row per problem, seed, method, prior on Z and objective; see :func:`_applies`."""
    datasets = load_datasets(config.problem, folder, quiet)
    of_draws = itertools.product(config.methods, config.priors, config.objectives)
    grid = itertools.product(datasets, config.seeds, config.num_inducing, of_draws)
    runs = [(*of_fit, how) for *of_fit, how in grid if _applies(config, len(of_fit[0].X), *how)]
    rows, fits = [], Fits()
    for dataset, seed, M, how in progress_bar(not quiet, iterable=runs, unit="run"):
        name = f"{dataset.problem.title} {how[0]}"
        key = {**dataset.key, "seed": seed, "inducing points": M, "of": how}
        split = standard_split(dataset, seed, folder, config.test_fraction, config.max_test)
        run_of = partial(_one, config, dataset, split, seed, M, fits, *how)
        rows.append(finished(config, name, key, run_of))
    return pd.concat(rows, ignore_index=True)


def _applies(config: BSGP, rows: int, method: str, prior: PriorOfZ, objective: str) -> bool:
    """
    Fits depend on neither list; Gibbs sampling knows one objective. Samplers that use all rows at
    every step run only on data sets that are small enough.
    """
    if method in _FITS:
        return (prior, objective) == (config.priors[0], config.objectives[0])
    if method in (_OF_U, _BY_OBJECTIVE):
        return prior == config.priors[0]
    if method == "HyperparameterGibbs" and objective == "variational":
        return False
    return method == "SGHMC" or rows <= config.most_rows_of_full_batches


def report(metrics: pd.DataFrame) -> Report:
    """
    A table of means over the seeds, and of their standard errors.

    If there are several numbers of inducing points, a figure has the test NLL against them.
    """
    keys = ["problem", "inducing points", "method", "prior on Z", "objective", "error metric"]
    values = ["nll", "error", "seconds", "seconds a draw", *_RHATS]
    metrics = metrics.reindex(columns=[*keys, *values])  # fits have no draws
    groups = metrics.groupby(keys, sort=False, dropna=False)
    table = groups[values].mean()
    table.insert(1, "± nll", fixed(groups["nll"].sem(), 3))
    table["splits"] = groups.size()
    table = table.reset_index()
    table["nll"] = fixed(table["nll"], 3)
    for name in _RHATS:
        table[name] = fixed(table[name], 2)
    empty = [key for key in (*keys, *_RHATS) if table[key].isin(["", np.nan]).all()]
    by_number = metrics["inducing points"].nunique() > 1
    figures = {"inducing_points": _figure(metrics)} if by_number else {}
    caption = (
        "Means over splits, ± their standard error. CPU seconds on one core, of a draw or sweep in "
        "the column after them. R-hat is the largest of the hyperparameters, but for Z; of f, of "
        f"E f given a draw at the first {TRACED} test rows, its median and largest over them; of "
        "y, the largest of the densities of y there."
    )
    return Report({caption: table.drop(columns=empty).fillna("")}, figures)


def _figure(metrics: pd.DataFrame) -> Figure:
    """Mean test NLL against the number of inducing points: sampled by priors, and the others."""
    problems = list(dict.fromkeys(metrics.problem))
    figure, axes = subplots(1, len(problems), 4.0, 3.0)
    metrics = metrics.assign(of=metrics["prior on Z"].where(metrics.method == "SGHMC"))
    named = metrics.assign(of=metrics.of.fillna(metrics.method))
    for ax, problem in zip(axes[0], problems, strict=True):
        of_problem = named[named.problem == problem]
        for name, part in of_problem.groupby("of", sort=False):
            nll = part.groupby("inducing points")["nll"].mean()
            is_line = (part.method != "SGHMC").all()
            look = {"linestyle": "--"} if is_line else {"marker": "o", "markersize": 4}
            label = name if is_line else f"BSGP, {name} prior"
            ax.plot(nll.index, nll, linewidth=1.2, label=label, **look)
        ax.set(xlabel="inducing points", title=problem)
    axes[0, 0].set_ylabel("test NLL")
    one_legend(figure, axes)
    return figure


def _one(
    config: BSGP,
    dataset: Dataset,
    split: Split,
    seed: int,
    num_inducing: int,
    fits: "Fits",
    method: str,
    prior: PriorOfZ,
    objective: str,
) -> pd.DataFrame:
    problem = dataset.problem
    Z_is_learnt = "Z learnt" in method or method == _OF_U
    of_fit = _OF_FIT.get(objective, objective) if method == _BY_OBJECTIVE else "standard"
    model, seconds = fits.of(split, dataset, num_inducing, seed, Z_is_learnt, of_fit)
    row = {"problem": problem.title, "sha256": dataset.sha256, "seed": seed, "method": method}
    row["inducing points"] = num_inducing
    row["error metric"] = metric_names(problem)["error_metric"]
    if method == _BY_OBJECTIVE:
        row["objective"] = objective
    if method in (*_FITS, _BY_OBJECTIVE):
        row["seconds"] = seconds
        measured = evaluator(model, split)()
        return pd.DataFrame([{**row, "nll": measured.nll, "error": measured.error}])
    began = process_time()  # CPU time, since other processes may run at the same time
    if method != _OF_U:
        give_Z_prior(model, prior, split.X)
    sampler, number = _sampler(config, method, objective)
    samples = sampled(config, model, split, sampler, number, seed)
    total = config.num_chains * sum(number.values())
    row |= {"prior on Z": prior, "objective": objective}
    of_draws = process_time() - began
    row |= {"seconds": seconds + of_draws, "seconds a draw": of_draws / total}
    row |= of_predictions(split, *predicted(model, samples, split))
    row |= _rhats(model, samples, split)
    return pd.DataFrame([row])


def sampled(
    config: BSGP | BSGPTraces,
    model: Model,
    split: Split,
    sampler: Sampler,
    number: dict[str, int],
    seed: int,
) -> "arviz.InferenceData":
    """Chains that begin where the configuration says."""

    def drawn(num_chains: int, seed: int) -> "arviz.InferenceData":
        data = split.X, split.Y
        options = {"num_chains": num_chains, "seed": seed, "progress": False, **number}
        return gpflow_aaci.sample_posterior(model, data, sampler, **options)

    if config.chains_from == "priors":
        return drawn(config.num_chains, seed)
    import arviz  # not at the top of the module, since it is slow to import

    moves = getattr(sampler, "hyperparameters", True)  # else the draws of u are of the fitted ones
    parameters = [p for p in model.trainable_parameters if moves and p.prior is not None]
    fit, chains = [p.unconstrained_variable.numpy() for p in parameters], []
    for chain in range(config.num_chains):
        own = 1_000 * seed + chain  # a chain alone begins at the values of the model
        rng = np.random.default_rng([own, 3])
        for parameter, value in zip(parameters, fit, strict=True):
            moved = value + _SPREAD * rng.normal(size=value.shape)
            parameter.unconstrained_variable.assign(moved)
        chains.append(drawn(1, own))
    for parameter, value in zip(parameters, fit, strict=True):
        parameter.unconstrained_variable.assign(value)
    return arviz.concat(*chains, dim="chain")


class Fits:
    """The fits of a run, each of which is made once for all methods."""

    def __init__(self) -> None:
        self._found: dict[tuple[Any, ...], tuple[dict[str, Array], float]] = {}

    def of(
        self,
        split: Split,
        dataset: Dataset,
        num_inducing: int,
        seed: int,
        Z_is_learnt: bool,
        objective: Any = "standard",
    ) -> tuple[Model, float]:
        """A model at the fit that the first call has made, and the CPU seconds of that."""
        model = unfitted(split, dataset, num_inducing, seed, Z_is_learnt)
        key = dataset.problem.title, seed, num_inducing, Z_is_learnt, objective
        if key not in self._found:
            began = process_time()
            fit(model, split, objective)
            self._found[key] = gpflow.utilities.read_values(model), process_time() - began
        values, seconds = self._found[key]
        gpflow.utilities.multiple_assign(model, values)
        return model, seconds


def unfitted(
    split: Split, dataset: Dataset, num_inducing: int, seed: int, Z_is_learnt: bool
) -> Model:
    """
    An SVGP with priors on its hyperparameters: standard normal on Z, and log-normal(log its first
    value, 1) on each other.
    """
    start = make_start(split, dataset.problem, num_inducing, seed)
    model = make_model(start, is_augmented=True)
    for parameter in (*model.kernel.trainable_parameters, *model.likelihood.trainable_parameters):
        give_log_normal_prior(parameter)
    give_Z_prior(model, "normal", split.X)
    gpflow.set_trainable(model.inducing_variable, Z_is_learnt)
    return model


def fit(model: Model, split: Split, objective: Any = "standard") -> None:
    """Fit it to all rows."""
    data = split.X, split.Y
    if objective == "standard":
        gpflow_aaci.fit_collapsed(model, data, progress=False)
    else:
        gpflow_aaci.fit(model, data, objective=objective, rows="all", progress=False)


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
    of_method = {"SGHMC": config.sghmc, _OF_U: config.sghmc, "HyperparameterHMC": config.hmc}
    options, number = of_method.get(method, config.gibbs).parts()
    if method in ("SGHMC", _OF_U):
        with_all = method == "SGHMC"
        return contrib.SGHMC(hyperparameters=with_all, objective=objective, **options), number
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


def of_draws(
    model: Model, samples: "arviz.InferenceData", split: Split, num_rows: int
) -> tuple[Array, Array]:
    """E f and p(y) at the first test rows given u and the hyperparameters of a draw, [C, S, N]."""
    X, Y = (to_default_float(part[:num_rows]) for part in (split.X_test, split.Y_test))
    means, densities = [], []
    with closing(conditionals(model, samples, X, False, False)) as blocks:
        for mean, variance in blocks:
            X_of, Y_of = (tf.broadcast_to(part, [len(mean), *part.shape]) for part in (X, Y))
            of_y = X_of, mean, variance + tf.zeros_like(mean), Y_of
            means.append(mean[..., 0])
            densities.append(tf.exp(model.likelihood.predict_log_density(*of_y)))
    shape = samples.posterior.sizes["chain"], samples.posterior.sizes["draw"], len(X)
    return np.concatenate(means).reshape(shape), np.concatenate(densities).reshape(shape)


def _rhats(model: Model, samples: "arviz.InferenceData", split: Split) -> dict[str, float]:
    """R-hat of the hyperparameters and of predictions; none of one chain."""
    if samples.posterior.sizes["chain"] == 1:
        return {}
    import arviz  # not at the top of the module, since it is slow to import

    of_f, of_y = (
        arviz.rhat(arviz.convert_to_dataset(values)).x.values
        for values in of_draws(model, samples, split, TRACED)
    )
    # Points of Z may swap places.
    others = samples.posterior.drop_vars(["f", "u", "inducing_variable.Z"], errors="ignore")
    found = [arviz.rhat(others).to_array().max()] if others.data_vars else [np.nan]
    values = [*found, np.median(of_f), of_f.max(), of_y.max()]
    return {name: float(value) for name, value in zip(_RHATS, values, strict=True)}
