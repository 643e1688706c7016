"""Data sets, split and standardised."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import sklearn.datasets

from .config import ConfigError, Problem

Array = np.ndarray

BINARY_LIKELIHOODS = ("Logistic", "Probit", "BayesianSVM")
_EMBEDDED = {
    "breast_cancer": sklearn.datasets.load_breast_cancer,
    "diabetes": sklearn.datasets.load_diabetes,
}


@dataclass(frozen=True)
class Split:
    """Training and test part of a data set: X [N, D], Y [N, 1]."""

    name: str
    X: Array
    Y: Array
    X_test: Array
    Y_test: Array


def load_split(problem: Problem, folder: Path, test_fraction: float, seed: int) -> Split:
    """
    A shuffled, seeded split; inputs (and a real target) standardised by the training part.

    :param folder: where relative paths begin.
    :raises ConfigError: for an unknown data set, a missing file or column, or values that are
        missing or not numbers.
    """
    X, y = _load(problem, folder)
    order = np.random.default_rng(seed).permutation(len(X))
    num_test = max(1, round(test_fraction * len(X)))
    test, train = order[:num_test], order[num_test:]
    X = _standardise(X, train)
    if problem.likelihood.name in BINARY_LIKELIHOODS:
        y = _labels(problem, y)
    else:
        y = _standardise(y[:, None], train)[:, 0]
    Y = y[:, None]
    name = problem.name or Path(problem.data).name.split(".")[0]
    return Split(name, X[train], Y[train], X[test], Y[test])


def synthetic(num_data: int, input_dim: int) -> Split:
    """A wave in many dimensions with Student-t noise."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(num_data, input_dim))
    Y = np.sin(X.sum(axis=1, keepdims=True)) + 0.3 * rng.standard_t(3, size=(num_data, 1))
    return Split("synthetic", X, Y, X[:100], Y[:100])


def _load(problem: Problem, folder: Path) -> tuple[Array, Array]:
    if problem.data in _EMBEDDED:
        X, y = _EMBEDDED[problem.data](return_X_y=True)
        return X, y.astype(float)
    path = folder / problem.data
    if not path.is_file():
        raise ConfigError(
            f"data must be one of {', '.join(_EMBEDDED)} or the path of a CSV file, relative to "
            f"--data-dir. Found: {problem.data!r}."
        )
    table = pd.read_csv(path, header=None if isinstance(problem.target, int) else "infer")
    if problem.target not in table.columns:
        raise ConfigError(
            f"target must be a column of {path}: {', '.join(map(str, table.columns))}. "
            f"Found: {problem.target!r}."
        )
    y, X = table[problem.target], table.drop(columns=problem.target)
    numeric = X.select_dtypes("number").columns
    if len(numeric) < X.shape[1] or table.isna().any(axis=None):
        odd = [c for c in X if c not in numeric] or list(table.columns[table.isna().any()])
        raise ConfigError(f"{path} must hold numbers only. Found other or missing values: {odd}.")
    return X.to_numpy(float), y.to_numpy()


def _standardise(values: Array, train: Array) -> Array:
    sd = values[train].std(axis=0)
    # A constant column carries nothing; dividing by 1 keeps it at 0.
    return (values - values[train].mean(axis=0)) / np.where(sd > 0, sd, 1.0)


def _labels(problem: Problem, y: Array) -> Array:
    """Two classes as {0, 1}, in sorted order."""
    if problem.positive is not None:
        positive = y == problem.positive
        if not positive.any() or positive.all():
            raise ConfigError(
                f"{problem.data}: positive must be one of the target's classes, "
                f"{', '.join(map(str, np.unique(y)[:10]))}. Found: {problem.positive!r}."
            )
        return positive.astype(float)
    classes = np.unique(y)
    if len(classes) != 2:
        raise ConfigError(f"{problem.data}: target must have two classes. Found: {classes[:10]}.")
    return (y == classes[1]).astype(float)
