"""Data sets, split and standardised."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from .config import BINARY_LIKELIHOODS, ConfigError, Problem
from .datasets import Array, Table, load_table


@dataclass(frozen=True)
class Dataset:
    """A problem's data under the name that tables and figures give it."""

    name: str
    table: Table
    problem: Problem

    @property
    def is_binary(self) -> bool:
        return self.problem.likelihood.name in BINARY_LIKELIHOODS

    @cached_property
    def sha256(self) -> str:
        return self.table.sha256()

    @property
    def key(self) -> dict[str, object]:
        """What a run on it depends on."""
        return {"problem": self.problem.model_dump(), "data": self.sha256}

    def split(self, test_fraction: float, seed: int, max_test: int | None = None) -> "Split":
        """
        Shuffled by ``seed``; inputs (and a real target) standardised by the training part.

        :param max_test: most rows of the test part; what is more is in neither.
        """
        num_data = len(self.table.X)
        order = np.random.default_rng(seed).permutation(num_data)
        num_test = max(1, round(test_fraction * num_data))
        return self._parts(order[num_test:], order[:num_test][:max_test])

    def whole(self) -> "Split":
        """All rows, in their order, in the training part."""
        rows = np.arange(len(self.table.X))
        return self._parts(rows, rows[:0])

    def _parts(self, train: Array, test: Array) -> "Split":
        X, y = self.table.X, self.table.y
        X, X_test = _standardise(X[train], X[test])
        Y, Y_test = y[train, None], y[test, None]
        if not self.is_binary:
            Y, Y_test = _standardise(Y, Y_test)
        return Split(self.name, X, Y, X_test, Y_test, self.is_binary)


@dataclass(frozen=True)
class Split:
    """Training and test part of a data set: X [N, D], Y [N, 1]."""

    name: str
    X: Array
    Y: Array
    X_test: Array
    Y_test: Array
    is_binary: bool = False


def load_datasets(problems: Sequence[Problem], folder: Path, quiet: bool = False) -> list[Dataset]:
    """
    The data of every problem, as :func:`load_dataset` has them.

    :raises ConfigError: as it does, and where two have one name: results go by it.
    """
    datasets: list[Dataset] = []
    for i, problem in enumerate(problems):
        try:
            dataset = load_dataset(problem, folder, quiet)
        except ConfigError as error:
            raise ConfigError(f"problem.{i}: {error}") from error
        if dataset.name in [other.name for other in datasets]:
            raise ConfigError(
                f"problem.{i}.name must be another one than those before it. "
                f"Found: {dataset.name!r} again."
            )
        datasets.append(dataset)
    return datasets


def load_dataset(problem: Problem, folder: Path, quiet: bool = False) -> Dataset:
    """
    The data of ``problem``, y in {0, 1} where its likelihood is binary.

    :param folder: where relative paths begin.
    :param quiet: no progress bar while a large file is read.
    :raises ConfigError: for an unknown data set, a missing file, column or class, or values that
        are missing or not numbers.
    """
    table = load_table(problem, folder, quiet)
    is_binary = problem.likelihood.name in BINARY_LIKELIHOODS
    y = _labels(problem, table) if is_binary else _numbers(problem, table.y)
    name = problem.name or Path(problem.data.removeprefix("synthetic:")).name.split(".")[0]
    if table.is_synthetic:  # also where the config has given it another name
        name += " (synthetic)"
    return Dataset(name, replace(table, y=y), problem)


def _standardise(train: Array, test: Array) -> tuple[Array, Array]:
    mean, sd = train.mean(axis=0), train.std(axis=0)
    # A constant column carries nothing; dividing by 1 keeps it at 0.
    sd = np.where(sd > 0, sd, 1.0)
    return (train - mean) / sd, (test - mean) / sd


def _numbers(problem: Problem, y: Array) -> Array:
    if y.dtype.kind not in "biuf":
        raise ConfigError(f"{problem.data}: target must hold numbers. Found: {y[:3]}.")
    return y.astype(float)


def _labels(problem: Problem, table: Table) -> Array:
    """Two classes as {0, 1}, in sorted order."""
    y = table.y
    positive = table.positive if problem.positive is None else problem.positive
    if positive is not None:
        is_positive = y == positive
        if not is_positive.any() or is_positive.all():
            raise ConfigError(
                f"{problem.data}: positive must be one of the target's classes, "
                f"{', '.join(map(str, np.unique(y)[:10]))}. Found: {positive!r}."
            )
        return is_positive.astype(float)
    classes = np.unique(y)
    if len(classes) != 2:
        raise ConfigError(f"{problem.data}: target must have two classes. Found: {classes[:10]}.")
    return (y == classes[1]).astype(float)
