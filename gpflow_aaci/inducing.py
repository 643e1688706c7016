"""Initial inducing points."""

import numpy as np
from gpflow.base import AnyNDArray, TensorType
from gpflow.kernels import Kernel, MultioutputKernel

from .kernels import levels_of
from .levels import Levels, indicators
from .validation import as_default_float

_LLOYD_STEPS = 30
_MOST_ROWS = 100_000  # points are chosen among so many at most


def kmeans_plusplus(
    X: TensorType, num_inducing: int, seed: int = 0, kernel: Kernel | None = None
) -> AnyNDArray:
    """
    Choose Z [M, D] among the rows of X, far from each other, by k-means++.

    The method is due to Arthur and Vassilvitskii (2007). If X has more than 100,000 rows, Z is
    chosen among 100,000 random rows.

    :param X: [N, D], an array or a frame.
    :param num_inducing: M, at most the number of distinct rows.
    :param seed: the same seed gives the same Z.
    :param kernel: the kernel of the model, if it knows the levels of columns that are words in a
        frame. Any two of these levels are √2 apart, whatever their numbers.
    :raises ValueError: if X is not a finite matrix, or has too few distinct rows or unknown words.
    """
    import sklearn.cluster  # here, as it is slow to import

    levels = levels_of(kernel) if kernel else {}
    X = _candidates(X, num_inducing, seed, levels)
    points = indicators(X, levels) if levels else X
    _, chosen = sklearn.cluster.kmeans_plusplus(points, num_inducing, random_state=seed)
    return X[chosen]


def kmeans(
    X: TensorType, num_inducing: int, seed: int = 0, kernel: Kernel | None = None
) -> AnyNDArray:
    """
    Choose Z [M, D] as the means of M clusters of the rows of X, by k-means.

    It begins at :func:`gpflow_aaci.kmeans_plusplus` and makes at most 30 of Lloyd's steps. Means
    lie where rows are many, while rows chosen by k-means++ lie at the edges, too. Divide the
    columns by their standard deviations or their lengthscales before::

        Z = spread * gpflow_aaci.inducing.kmeans(X / spread, 200)

    Where X has columns of levels, which have no mean, Z are the rows that are nearest to the means.
    If X has more than 100,000 rows, the clusters are of 100,000 random rows.

    :param X: [N, D], an array or a frame.
    :param num_inducing: M, at most the number of distinct rows.
    :param seed: the same seed gives the same Z.
    :param kernel: as for ``kmeans_plusplus``.
    :raises ValueError: if X is not a finite matrix, or has too few distinct rows or unknown words.
    """
    import sklearn.cluster  # here, as it is slow to import
    import sklearn.metrics

    levels = levels_of(kernel) if kernel else {}
    X = _candidates(X, num_inducing, seed, levels)
    points = indicators(X, levels) if levels else X
    clusters = sklearn.cluster.KMeans(
        num_inducing, init="k-means++", n_init=1, max_iter=_LLOYD_STEPS, random_state=seed
    ).fit(points)
    if not levels:
        return np.asarray(clusters.cluster_centers_)
    nearest, _ = sklearn.metrics.pairwise_distances_argmin_min(clusters.cluster_centers_, points)
    return X[nearest]


def greedy_variance(
    X: TensorType, num_inducing: int, kernel: Kernel, unexplained: float = 0.0, seed: int = 0
) -> AnyNDArray:
    """
    Choose Z [M, D] among the rows of X, each where the variance of f given the others is largest.

    This is the greedy choice of Burt, Rasmussen and van der Wilk (2020), a pivoted Cholesky
    factorisation of K_XX. The choice depends on the kernel's hyperparameters, so it suits a kernel
    that has been fitted: refit with these Z, and repeat. It also says how many points are worth
    while, as the gap of a bound to log p(y) is small where the sum of these variances is. Where few
    points leave much of f unexplained, as under a rough kernel, it takes rows at the edges of X
    first, and :func:`gpflow_aaci.kmeans_plusplus` leaves less unexplained::

        Z = gpflow_aaci.inducing.greedy_variance(X, 500, model.kernel, unexplained=1e-3)

    If X has more than 100,000 rows, Z is chosen among 100,000 random rows.

    :param X: [N, D], an array or a frame.
    :param num_inducing: M, at most the number of distinct rows.
    :param kernel: a kernel of one output.
    :param unexplained: fewer than M points are chosen if these leave this share of the prior
        variance of f at X unexplained, or less; in any case no point whose variance is rounding.
    :param seed: the seed for the random rows.
    :raises ValueError: if X is not a finite matrix, or has too few distinct rows or unknown words,
        and if ``unexplained`` is not from 0 to 1 or the kernel has several outputs.
    """
    if isinstance(kernel, MultioutputKernel):
        raise ValueError(f"kernel must be a single-output kernel. Found: {type(kernel).__name__}.")
    if not 0.0 <= unexplained < 1.0:
        raise ValueError(f"unexplained must be at least 0 and below 1. Found: {unexplained}.")
    X = _candidates(X, num_inducing, seed, levels_of(kernel))
    prior = kernel(X, full_cov=False).numpy()
    variance, chosen = prior.copy(), []
    factor = np.empty((num_inducing, len(X)))  # the rows that there are, of chol(K_ZZ)⁻¹ K_ZX
    rounding = num_inducing * np.finfo(prior.dtype).eps * prior.max()
    for m in range(num_inducing):
        new = int(np.argmax(variance))
        if variance[new] <= rounding or (m and variance.sum() <= unexplained * prior.sum()):
            break
        covariance = kernel(X[new : new + 1], X).numpy()[0] - factor[:m, new] @ factor[:m]
        factor[m] = covariance / np.sqrt(variance[new])
        variance = np.maximum(variance - np.square(factor[m]), 0.0)
        chosen.append(new)
    return X[chosen]


def _candidates(X: TensorType, num_inducing: int, seed: int, levels: Levels) -> AnyNDArray:
    """
    The rows among which points are chosen, as numbers.

    :raises ValueError: if X is not a finite matrix, or has too few distinct rows or unknown words.
    """
    X = as_default_float(X, "X", levels).numpy() if hasattr(X, "iloc") else np.asarray(X)
    if X.ndim != 2 or not np.all(np.isfinite(X)):
        raise ValueError(f"X must be a finite matrix [N, D]. Found: {X.dtype} of shape {X.shape}.")
    if len(X) > _MOST_ROWS:
        X = X[np.random.default_rng(seed).choice(len(X), _MOST_ROWS, replace=False)]
    distinct = len(np.unique(X, axis=0))
    if not 1 <= num_inducing <= distinct:
        raise ValueError(
            f"num_inducing must be from 1 to the {distinct} distinct rows of X. "
            f"Found: {num_inducing}."
        )
    return X
