"""Data sets, split and standardised: of scikit-learn, OpenML, files, or made of their shape."""

import hashlib
import itertools
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path

import numpy as np
import pandas as pd
import sklearn.datasets

from gpflow_aaci.progress import progress_bar

from .config import ConfigError, KindOfY, LikelihoodConfig, Problem

Array = np.ndarray

_CHUNK = 200_000  # rows of a file read, or of synthetic data made, at a time
_FEATURES = 100  # cosines of the random-feature GP
_SUFFIXES = (".csv", ".csv.gz", ".csv.bz2", ".data.gz")


@dataclass(frozen=True)
class Table:
    """A data set as it is, neither split nor scaled."""

    X: Array  # [N, D]
    y: Array  # [N], numbers or classes
    positive: str | float | None = None  # the class that counts as 1
    is_synthetic: bool = False

    def take(self, rows: int | None) -> "Table":
        """A random subset of so many rows, the same always."""
        if rows is None or rows >= len(self.X):
            return self
        chosen = np.sort(np.random.default_rng(0).choice(len(self.X), rows, replace=False))
        return replace(self, X=self.X[chosen], y=self.y[chosen])


@dataclass(frozen=True)
class Source:
    """
    A data set known by name.

    A file of its name or ``stems`` is looked for in --data-dir, then ``fetch`` is tried where there
    is one. ``shape`` is that of its synthetic twin, too.
    """

    where: str  # what to tell who has no file
    shape: tuple[int, int]
    stems: tuple[str, ...] = ()
    target: str | int = 0
    columns: tuple[str, ...] | None = None  # of X, where not all but the target
    rows: int | None = None  # of the paper, where the file has more
    positive: str | float | None = None
    fetch: Callable[[], Table] | None = None


def _openml(name: str, positive: str | None = None) -> Table:
    # version=1: names alone are not unique. Cached in scikit-learn's data folder.
    bunch = sklearn.datasets.fetch_openml(name, version=1, as_frame=True)
    X = bunch.data.astype(str).apply(pd.to_numeric)  # some numbers are filed as categories
    y = bunch.target.astype(str).to_numpy()
    return Table(X.to_numpy(float), y if positive else y.astype(float), positive)


def _covtype() -> Table:
    X, y = sklearn.datasets.fetch_covtype(return_X_y=True)
    return Table(X.astype(float), y, positive=2)


def _randhie() -> Table:
    try:
        from statsmodels.datasets import randhie
    except ImportError as error:
        raise ConfigError("randhie comes with statsmodels: pip install statsmodels.") from error
    frame = randhie.load_pandas().data
    return Table(frame.drop(columns="mdvis").to_numpy(float), frame.mdvis.to_numpy(float))


_FLIGHT = ("Month", "DayofMonth", "DayOfWeek", "DepTime", "ArrTime", "AirTime", "Distance")
_UCI = "https://archive.ics.uci.edu/ml/machine-learning-databases"

SOURCES = {
    "heart": Source(
        where="heart.csv: no header, the class (+1, -1) first (Statlog heart, UCI)",
        shape=(270, 13),
        fetch=partial(_openml, "heart-statlog", "present"),
    ),
    "housing": Source(
        where="housing.csv: no header, the price first (Boston housing)",
        shape=(506, 13),
        fetch=partial(_openml, "boston"),
    ),
    "protein": Source(
        where="protein.csv.gz: no header, the target last (CASP, UCI)",
        shape=(45_730, 9),
        target=9,
        fetch=partial(_openml, "physiochemical_protein"),
    ),
    "covtype": Source(
        where=f"covtype.data.gz from {_UCI}/covtype/",
        shape=(581_012, 54),
        target=54,
        positive=2,
        fetch=_covtype,
    ),
    "randhie": Source(  # visits to a doctor in a year; RAND health insurance experiment
        where="randhie.csv: with a header, its target mdvis",
        shape=(20_190, 9),
        target="mdvis",
        fetch=_randhie,
    ),
    "susy": Source(
        where=f"SUSY.csv.gz from {_UCI}/00279/",
        shape=(5_000_000, 18),
        stems=("SUSY",),
    ),
    "airline": Source(
        where="2008.csv.bz2 (Data Expo 2009) from https://doi.org/10.7910/DVN/HG7NV7",
        shape=(190_000, 7),
        stems=("2008",),
        target="ArrDelay",
        columns=_FLIGHT,
        rows=190_000,
    ),
}

_EMBEDDED = {
    "breast_cancer": sklearn.datasets.load_breast_cancer,
    "diabetes": sklearn.datasets.load_diabetes,
    "digits": sklearn.datasets.load_digits,
    "iris": sklearn.datasets.load_iris,
    "wine": sklearn.datasets.load_wine,
}
_SYNTHETIC = "synthetic:"


@dataclass(frozen=True)
class Dataset:
    """A problem's data under the name that tables and figures give it."""

    name: str
    table: Table
    problem: Problem

    @property
    def kind(self) -> KindOfY:
        return self.problem.likelihood.kind

    @cached_property
    def sha256(self) -> str:
        """Of the shape and the numbers, whatever file they came from."""
        digest = hashlib.sha256(str(self.table.X.shape).encode())
        for values in (self.table.X, self.table.y):
            digest.update(np.ascontiguousarray(values, np.float64).data)
        return digest.hexdigest()

    @property
    def key(self) -> dict[str, object]:
        """What a run on it depends on."""
        return {"problem": self.problem.model_dump(), "data": self.sha256}

    def split(self, test_fraction: float, seed: int, max_test: int | None = None) -> "Split":
        """
        Shuffled by ``seed``; inputs (and a real target) standardised by the training part.

        A target whose logarithm is taken is only divided by its standard deviation.

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
        scale, num_classes = 1.0, 0
        if self.kind == "classes":
            num_classes = int(y.max()) + 1
            Y, Y_test = Y.astype(int), Y_test.astype(int)  # GPflow's Softmax takes no floats
        elif self.kind in ("real", "quantile"):
            if self.problem.in_units_of_y:
                scale = float(_deviation(Y)[0])
            Y, Y_test = _standardise(Y, Y_test, centred=self.problem.likelihood.warp != "Log")
        return Split(self.name, X, Y, X_test, Y_test, self.kind, num_classes, scale)


@dataclass(frozen=True)
class Split:
    """Training and test part of a data set: X [N, D], Y [N, 1]."""

    name: str
    X: Array
    Y: Array
    X_test: Array
    Y_test: Array
    kind: KindOfY = "real"
    num_classes: int = 0  # where these are what y is
    y_scale: float = 1.0  # that metrics are in, in units of Y


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
    The data of ``problem``: y in {0, 1} where its likelihood is binary, 0 … K − 1 for K classes.

    :param folder: where relative paths begin.
    :param quiet: no progress bar while a large file is read.
    :raises ConfigError: for an unknown data set, a missing file, column or class, or values that
        are missing or not numbers.
    """
    table = _load_table(problem, folder, quiet)
    kind = problem.likelihood.kind
    if kind == "binary":
        y = _labels(problem, table)
    elif kind == "classes":
        y = np.unique(table.y, return_inverse=True)[1].astype(float)
    elif table.y.dtype.kind in "biuf":
        y = table.y.astype(float)
    else:
        raise ConfigError(f"{problem.data}: target must hold numbers. Found: {table.y[:3]}.")
    if kind == "counts" and not np.all((y >= 0.0) & (y == np.round(y))):
        odd = y[(y < 0.0) | (y != np.round(y))]
        raise ConfigError(f"{problem.data}: target must hold counts. Found: {odd[:3]}.")
    if problem.likelihood.warp == "Log" and y.min() <= 0.0:
        raise ConfigError(f"{problem.data}: target must be positive for Log. Found: {y.min()}.")
    name = problem.name or Path(problem.data.removeprefix("synthetic:")).name.split(".")[0]
    if table.is_synthetic:  # also where the config has given it another name
        name += " (synthetic)"
    return Dataset(name, replace(table, y=y), problem)


def _standardise(train: Array, test: Array, centred: bool = True) -> tuple[Array, Array]:
    mean, sd = train.mean(axis=0) if centred else 0.0, _deviation(train)
    return (train - mean) / sd, (test - mean) / sd


def _deviation(train: Array) -> Array:
    """Of every column; 1 of a constant one, which carries nothing and so stays at 0."""
    sd = train.std(axis=0)
    return np.where(sd > 0, sd, 1.0)


def _labels(problem: Problem, table: Table) -> Array:
    """Two classes as {0, 1}, in sorted order."""
    positive = table.positive if problem.positive is None else problem.positive
    classes = np.unique(table.y)
    if len(classes) < 2 or (positive is None and len(classes) > 2):
        raise ConfigError(f"{problem.data}: target must have two classes. Found: {classes[:10]}.")
    is_positive = table.y == (classes[1] if positive is None else positive)
    if not is_positive.any():
        raise ConfigError(
            f"{problem.data}: positive must be one of the target's classes, "
            f"{', '.join(map(str, classes[:10]))}. Found: {positive!r}."
        )
    return is_positive.astype(float)


def _load_table(problem: Problem, folder: Path, quiet: bool) -> Table:
    data, rows = problem.data, problem.rows
    if data in _EMBEDDED:
        X, y = _EMBEDDED[data](return_X_y=True)
        return Table(X, y.astype(float)).take(rows)
    name = data.removeprefix(_SYNTHETIC)
    if name in SOURCES:
        if name != data:
            return synthetic_table(SOURCES[name], problem.likelihood, rows)
        return _load_source(name, problem.target, folder, quiet).take(rows)
    if name != data:
        raise ConfigError(
            f"data must be synthetic: and one of {', '.join(SOURCES)}. Found: {data!r}."
        )
    path = data if data.startswith(("https://", "http://")) else folder / data
    if isinstance(path, Path) and not path.is_file():
        known = ", ".join([*_EMBEDDED, *SOURCES])
        raise ConfigError(
            f"data must be one of {known}, synthetic: and one of these, the address of a CSV file, "
            f"or the path of one, relative to --data-dir. Found: {data!r}."
        )
    return _read_csv(path, problem.target, quiet=quiet).take(rows)


def synthetic_table(source: Source, likelihood: LikelihoodConfig, rows: int | None = None) -> Table:
    """
    Data of the shape of ``source``: a draw from a GP through a likelihood, the same always.

    f is a sum of 100 random Fourier features of an SE kernel of variance 1 and lengthscale √D.
    Two classes are drawn with the odds exp(4 f); a residual is 0.3 times one of scale 1; counts are
    negative binomial of total_count 3 and logits f.

    :raises ConfigError: for a likelihood of more classes.
    """
    if likelihood.kind == "classes":
        raise ConfigError(f"data must not be made up for {likelihood.name}.")
    N, D = source.shape
    N = min(N, rows or N)
    rng = np.random.default_rng(0)
    frequencies = rng.normal(size=(D, _FEATURES)) / np.sqrt(D)
    phases = rng.uniform(0.0, 2.0 * np.pi, _FEATURES)
    weights = np.sqrt(2.0 / _FEATURES) * rng.normal(size=_FEATURES)
    X, y = np.empty((N, D)), np.empty(N)
    for begin in range(0, N, _CHUNK):
        part = slice(begin, begin + _CHUNK)
        X[part] = rng.normal(size=X[part].shape)
        f = np.cos(X[part] @ frequencies + phases) @ weights
        if likelihood.kind == "binary":
            y[part] = rng.uniform(size=len(f)) < 1.0 / (1.0 + np.exp(-4.0 * f))
        elif likelihood.kind == "counts":
            y[part] = rng.negative_binomial(3, 1.0 / (1.0 + np.exp(f)))
        else:
            y[part] = f + 0.3 * _residuals(likelihood.name, len(f), rng)
    return Table(X, y, is_synthetic=True)


# The residual's density on each side is a mixture of Gamma densities of shapes 1, 2, ...: these
# weights, and the residual's unit in theirs. (1 + x) e^-x has ½ of either, for instance.
_GAMMAS = {
    "Laplace": ([1.0], 1.0),
    "Matern32": ([1 / 2, 1 / 2], np.sqrt(3.0)),
    "Matern52": ([3 / 8, 3 / 8, 1 / 4], np.sqrt(5.0)),
}


def _residuals(likelihood: str, size: int, rng: np.random.Generator) -> Array:
    """Of scale 1; 3 degrees of freedom for Student's t."""
    if likelihood == "Gaussian":
        return rng.normal(size=size)
    if likelihood in ("StudentT", "AsymmetricLaplace"):
        return rng.standard_t(3, size=size)
    weights, unit = _GAMMAS[likelihood]
    shapes = rng.choice(np.arange(len(weights)) + 1.0, size=size, p=weights)
    return rng.choice([-1.0, 1.0], size=size) * rng.gamma(shapes) / unit


def _load_source(name: str, target: str | int | None, folder: Path, quiet: bool) -> Table:
    source = SOURCES[name]
    for stem, suffix in itertools.product((*source.stems, name), _SUFFIXES):
        path = folder / (stem + suffix)
        if path.is_file():
            target = source.target if target is None else target
            table = _read_csv(path, target, source.columns, quiet).take(source.rows)
            return replace(table, positive=source.positive)
    instead = (
        f"Put {source.where} into --data-dir, or take made-up data of its shape: "
        f'data = "{_SYNTHETIC}{name}".'
    )
    if source.fetch is None:
        raise ConfigError(f"{name} is not in {folder}. {instead}")
    try:
        return source.fetch()
    except (OSError, ValueError) as error:  # no network, or no such thing there any more
        raise ConfigError(f"{name} could not be fetched ({error}). {instead}") from error


def _read_csv(
    path: Path | str,
    target: str | int | None,
    columns: tuple[str, ...] | None = None,
    quiet: bool = False,
) -> Table:
    options = {
        "header": None if isinstance(target, int) else "infer",
        "usecols": None if columns is None else [*columns, target],
        "chunksize": _CHUNK,  # the largest file would not fit as text
        "float_precision": "round_trip",  # or the digest would depend on the parser
    }
    Xs, ys = [], []
    try:
        chunks = pd.read_csv(path, **options)
        for chunk in progress_bar(not quiet, iterable=chunks, desc=str(path), unit="chunk"):
            if target not in chunk.columns:
                raise ConfigError(
                    f"target must be a column of {path}: {', '.join(map(str, chunk.columns))}. "
                    f"Found: {target!r}."
                )
            # Of chosen columns of a raw file, incomplete rows are left out (cancelled flights).
            part = chunk if columns is None else chunk.dropna()
            X = part.drop(columns=target)
            numeric = X.select_dtypes("number").columns
            if len(numeric) < X.shape[1] or part.isna().any(axis=None):
                odd = [c for c in X if c not in numeric] or list(part.columns[part.isna().any()])
                raise ConfigError(f"{path} must hold numbers only. Found others, or gaps: {odd}.")
            Xs.append(X.to_numpy(float))
            ys.append(part[target].to_numpy())
    except (OSError, ValueError, EOFError, zlib.error) as error:  # the last two: cut off, damaged
        raise ConfigError(f"{path}: cannot be read ({error}).") from error
    return Table(np.concatenate(Xs), np.concatenate(ys))
