"""Initial inducing points."""

import numpy as np
from gpflow.base import AnyNDArray, TensorType
from gpflow.kernels import Kernel

from .kernels import levels_of
from .levels import indicators
from .validation import as_default_float

_MOST_ROWS = 100_000  # k-means++ uses at most so many


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
    points = indicators(X, levels) if levels else X
    _, chosen = sklearn.cluster.kmeans_plusplus(points, num_inducing, random_state=seed)
    return X[chosen]
