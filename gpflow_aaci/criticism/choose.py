"""Inducing points or nearest neighbours: both are fitted, and leave-one-out decides."""

from typing import NamedTuple

import gpflow
import numpy as np
from gpflow.base import AnyNDArray, RegressionData
from gpflow.kernels import Kernel
from gpflow.likelihoods import Likelihood
from gpflow.mean_functions import MeanFunction

from ..inducing import kmeans_plusplus
from ..inference.fit import Fit, fit
from ..inference.nearest_fit import NearestFit
from ..kernels import levels_of
from ..models import AugmentedSVGP
from ..nearest import AugmentedNNGP
from ..validation import check_count
from .loo import loo

_JUDGED = 1_000  # rows on which the two are compared
_ERRORS = 2.0  # standard errors that count as a difference


class Choice(NamedTuple):
    """The result of :func:`choose`, which ``print`` shows as text."""

    #: The model that is kept.
    model: AugmentedSVGP | AugmentedNNGP
    #: The mean leave-one-out log density of the nearest neighbours minus that of the inducing
    #: points, on the same rows [nats a datum], and its standard error.
    difference: float
    standard_error: float
    #: Both models and the results of their fits.
    sparse: AugmentedSVGP
    nearest: AugmentedNNGP
    fits: tuple[Fit, NearestFit]

    def __str__(self) -> str:
        kept = type(self.model).__name__
        sign = "higher" if self.difference >= 0.0 else "lower"
        return (
            f"{kept} is kept: the leave-one-out log density of {self.nearest.prediction_neighbors} "
            f"nearest neighbours is {abs(self.difference):.3g} nats a datum {sign} than with "
            f"{self.sparse.q_mu.shape[0]} inducing points (standard error "
            f"{self.standard_error:.2g}). Inducing points stay unless it is higher by two errors."
        )


def choose(
    data: RegressionData,
    kernel: Kernel,
    likelihood: Likelihood,
    *,
    num_inducing: int = 200,
    num_neighbors: int = 32,
    mean_function: MeanFunction | None = None,
    num_latent_gps: int | None = None,
    seed: int = 0,
    progress: bool = True,
) -> Choice:
    """
    Fit a model of inducing points and one of nearest neighbours to the same rows; keep the better.

    The two are compared by the leave-one-out log density of the same 1,000 random rows. Nearest
    neighbours are kept if it is higher by two standard errors of the paired difference; otherwise
    inducing points, whose predictions cost less and are joint::

        kernel = gpflow.kernels.Matern52(lengthscales=[3.0] * D)
        choice = gpflow_aaci.choose((X, Y), kernel, StudentT())
        print(choice)
        mean, variance = choice.model.predict_y(Xnew)

    :param data: X [N, D] and Y [N, P], as arrays or frames.
    :param kernel: begins both fits; each model has a copy, and so of the likelihood and the mean
        function.
    :param num_inducing: M, the number of inducing points, chosen by ``kmeans_plusplus`` among the
        rows and then fixed.
    :raises ValueError: for bad data or arguments, as the two models raise it.
    """
    check_count("num_inducing", num_inducing, 1)
    copied = gpflow.utilities.deepcopy
    nearest = AugmentedNNGP(
        data,
        copied(kernel),
        copied(likelihood),
        num_neighbors,
        mean_function=copied(mean_function),
        num_latent_gps=num_latent_gps,
    )
    X, Y = (part.numpy() for part in nearest.data)
    Z = inducing_points(X, num_inducing, seed, kernel)
    sparse = AugmentedSVGP(
        copied(kernel),
        copied(likelihood),
        Z,
        mean_function=copied(mean_function),
        num_latent_gps=nearest.num_latent_gps,
        num_data=len(X),
    )
    gpflow.set_trainable(sparse.inducing_variable, False)
    of_nearest = fit(nearest, seed=seed, progress=progress)
    of_sparse = fit(sparse, (X, Y), rows="all", seed=seed, progress=progress)
    rows = np.random.default_rng([seed, 4]).permutation(len(X))[:_JUDGED]
    how = nearest.prediction_neighbors, nearest.prediction_steps
    gains = nearest.leave_one_out(rows, *how, leave_out_repeats=False)
    gains = gains - loo(sparse, (X, Y)).loo_i.values[rows]
    difference, error = float(gains.mean()), float(gains.std(ddof=1) / np.sqrt(len(gains)))
    model = nearest if difference > _ERRORS * error else sparse
    return Choice(model, difference, error, sparse, nearest, (of_sparse, of_nearest))


def inducing_points(X: AnyNDArray, most: int, seed: int, kernel: Kernel) -> AnyNDArray:
    """Z [M, D] among the distinct rows of X, far apart in standard deviations of its columns."""
    Z = np.unique(X, axis=0)
    if len(Z) <= most:
        return Z
    spread = X.std(0)
    spread[spread == 0.0] = 1.0
    spread[list(levels_of(kernel))] = 1.0  # these numbers must stay as they are
    return spread * kmeans_plusplus(X / spread, most, seed, kernel)
