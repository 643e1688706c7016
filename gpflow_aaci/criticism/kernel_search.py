"""Sums and products of kernels, compared by the density of rows that are left out."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import gpflow
import numpy as np
from gpflow.base import AnyNDArray, RegressionData
from gpflow.kernels import Kernel, Product, Sum
from gpflow.likelihoods import Likelihood
from gpflow.mean_functions import MeanFunction

from ..inference.fit import fit
from ..kernels import levels_of
from ..models import AugmentedSVGP, AugmentedVGP
from ..progress import progress_bar
from ..validation import as_default_float, check_count
from .choose import inducing_points
from .loo import loo

if TYPE_CHECKING:
    import pandas as pd

_ERRORS = 1.0  # standard errors by which a larger kernel must be better for the search to go deeper

AnyVGP = AugmentedVGP | AugmentedSVGP


class KernelComparison(NamedTuple):
    """The result of :func:`compare_kernels`."""

    #: A row for each kernel, the best first: ``elpd`` [nats], the sum over the rows of log p(y_i)
    #: given the others; its ``difference`` to that of the best kernel, with ``standard_error``; and
    #: ``depth``, the number of basic kernels.
    table: "pd.DataFrame"
    #: The fitted models, by the names in the table's index.
    models: dict[str, AnyVGP]

    @property
    def best(self) -> AnyVGP:
        """The model of the best kernel."""
        return self.models[self.table.index[0]]


def compare_kernels(
    data: RegressionData,
    kernels: Mapping[str, Kernel],
    likelihood: Likelihood,
    *,
    depth: int = 2,
    num_inducing: int | None = None,
    mean_function: MeanFunction | None = None,
    seed: int = 0,
    progress: bool = True,
) -> KernelComparison:
    """
    Fit models with the kernels, and with sums and products of them, and compare them.

    The search is greedy (Duvenaud, Lloyd, Grosse, Tenenbaum and Ghahramani, ICML 2013): it fits
    every kernel, then the best one plus and times every kernel, and so on. It goes deeper while
    that raises the leave-one-out log density of :func:`gpflow_aaci.loo` by more than its standard
    error. A model with more hyperparameters is only better by this measure if it predicts rows that
    it has not seen; but the best of many is too good by chance, so look at the standard errors::

        search = compare_kernels(
            (X, Y), {"trend": Matern52(), "season": Periodic(SquaredExponential())}, StudentT()
        )
        print(search.table)
        mean, variance = search.best.predict_y(Xnew)

    Leaving out single rows asks for interpolation. For forecasts, hold out the last rows instead.

    :param data: X [N, D] and Y [N, P], as arrays or frames.
    :param kernels: kernels of one output by short names, whose values begin the fits. A combination
        begins at the fitted values of the best kernel so far.
    :param likelihood: begins every fit; each model has a copy, and so of the mean function.
    :param depth: the largest number of kernels that are combined, at least 1.
    :param num_inducing: M of ``AugmentedSVGP``, of which Z is chosen by ``kmeans_plusplus`` and
        fixed. Default: ``AugmentedVGP``, which has no inducing points, for up to about 1,500 rows.
    :param seed: of Z and of the fits.
    :param progress: whether to show a bar over the models.
    :raises ValueError: for bad data, no kernels, and kernels with several outputs.
    """
    import pandas as pd  # here, as it is slow to import

    check_count("depth", depth, 1)
    if not kernels or not all(isinstance(each, Kernel) for each in kernels.values()):
        found = {name: type(each).__name__ for name, each in kernels.items()}
        raise ValueError(f"kernels must be a non-empty dictionary of kernels. Found: {found}.")
    copied = gpflow.utilities.deepcopy
    models: dict[str, AnyVGP] = {}
    densities: dict[str, AnyNDArray] = {}
    depths: dict[str, int] = {}
    candidates = {name: copied(kernel) for name, kernel in kernels.items()}
    best = ""
    for level in range(1, depth + 1):
        shown = progress_bar(progress, iterable=candidates.items(), unit="model", desc=str(level))
        for name, kernel in shown:
            parts = data, kernel, copied(likelihood), copied(mean_function)
            models[name], rows = _model(*parts, num_inducing, seed)
            fit(models[name], rows, seed=seed, progress=False)
            densities[name], depths[name] = loo(models[name], rows).loo_i.values, level
        last = best
        best = max(densities, key=lambda name: densities[name].sum())
        is_worth_it = level == 1 or _is_better(densities[best], densities[last])
        if level == depth or not is_worth_it:
            break
        candidates = _larger(best, models[best].kernel, kernels)
    rows_of_table = {
        name: {
            "elpd": of_rows.sum(),
            "difference": (of_rows - densities[best]).sum(),
            "standard_error": _standard_error(of_rows - densities[best]),
            "depth": depths[name],
        }
        for name, of_rows in densities.items()
    }
    table = pd.DataFrame.from_dict(rows_of_table, orient="index")
    return KernelComparison(table.sort_values("elpd", ascending=False), models)


def _model(
    data: RegressionData,
    kernel: Kernel,
    likelihood: Likelihood,
    mean_function: MeanFunction | None,
    num_inducing: int | None,
    seed: int,
) -> tuple[AnyVGP, RegressionData | None]:
    """The model, and the data that its methods take."""
    if num_inducing is None:
        return AugmentedVGP(data, kernel, likelihood, mean_function), None
    X = as_default_float(data[0], "X", levels_of(kernel)).numpy()
    Z = inducing_points(X, num_inducing, seed, kernel)
    model = AugmentedSVGP(kernel, likelihood, Z, mean_function=mean_function, num_data=len(X))
    gpflow.set_trainable(model.inducing_variable, False)
    return model, data


def _larger(name: str, kernel: Kernel, kernels: Mapping[str, Kernel]) -> dict[str, Kernel]:
    """The kernel plus and times each of the kernels."""
    copied = gpflow.utilities.deepcopy
    inner = f"({name})" if isinstance(kernel, Sum) else name
    sums = {f"{name} + {other}": Sum([copied(kernel), copied(k)]) for other, k in kernels.items()}
    products = {
        f"{inner} * {other}": Product([copied(kernel), _of_unit_variance(copied(factor))])
        for other, factor in kernels.items()
    }
    return {**sums, **products}


def _of_unit_variance(kernel: Kernel) -> Kernel:
    """The kernel with a variance of 1 that is held, as the other factor has one."""
    variance = getattr(getattr(kernel, "base_kernel", kernel), "variance", None)
    if isinstance(variance, gpflow.Parameter) and not variance.shape:
        variance.assign(1.0)
        gpflow.set_trainable(variance, False)
    return kernel


def _is_better(one: AnyNDArray, other: AnyNDArray) -> bool:
    gains = one - other
    return bool(gains.sum() > _ERRORS * _standard_error(gains))


def _standard_error(differences: AnyNDArray) -> float:
    """Of the sum of the differences of the rows."""
    return float(np.sqrt(len(differences)) * differences.std(ddof=1))
