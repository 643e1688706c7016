"""Every measured number of README.md, docs/*.md and the pages of kept runs is one of a kept run.

The pages of kept runs are benchmarks/reference/*/README.md. A section names its runs, as
`small_data` or `fig2_augmentation_gap_*`; a paragraph or table that names runs itself draws on
these alone. What must be found there, rounded to the digits printed:

- in a section with runs, every number that has a unit, a decimal point, a sign or a ±, and every
  number in a table;
- in a section without runs there must be no number with a unit, unless it is a limit that the
  sentence sets ("at most 0.1 nats").

Numbers are looked for in the tables of `summary.md`, the numbers of their captions, and
`config.json`; numbers of four digits and more, and those of runs with few, also in `metrics.csv`
(where curves end, or have their highest ELBO). Seconds must be of a column of seconds. In a table
the first cell must be a label of the run, or begin with one and a comma; below a heading that is
the name of a method or column, numbers must be of these. "by 0.3 nats" may be a difference of two
numbers of one column and problem, "1.8 times" and "7 %" a quotient of two times, and both of two
numbers of the sentence. Not looked at: code, first cells, counts of rows, splits and M, links,
numbers of figures, tables and equations, years, levels of intervals, and a paragraph that says
"not a measurement".
"""

import csv
import fnmatch
import gzip
import itertools
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "benchmarks" / "reference"
RUNS = sorted(folder.name for folder in REFERENCE.iterdir() if folder.is_dir())
WRITTEN_BY_A_SCRIPT = {"claims.md"}
PAGES = [
    page
    for page in [
        ROOT / "README.md",
        *sorted((ROOT / "docs").glob("*.md")),
        *sorted(REFERENCE.glob("*/README.md")),
    ]
    if page.name not in WRITTEN_BY_A_SCRIPT
]

DIGITS = r"\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?"
UNIT = r"(?:%|µs|ms|s|nats|times|MB|GB)(?![\w/])"
NUMBER = re.compile(rf"(?P<sign>[−±-]?)(?P<digits>{DIGITS})(?![\w.,]*\w)(?:\s?(?P<unit>{UNIT}))?")
LATER_UNIT = re.compile(  # "1.6 to 2.5 s", "4.3, 3.7 and 22 s"
    rf"(?:(?:,?\s(?:to|and|against|or)\s|,\s)(?:{DIGITS}))+\s?({UNIT})"
)
IGNORED = re.compile(
    r"```.*?```|`[^`]*`|\]\([^)]*\)|\$[^$]*\$|\*+(?=\d)|(?<=\d)\*+"
    r"|\b(?:Fig(?:ure)?s?\.?|Tables?|Eqs?\.?|Theorem|Algorithm|Section|Python)"
    r"\s\d[\d.-]*(?:(?:, | and | to )\d[\d.-]*)*"
    r"|central \d+ %|\b\d+ % (?:predictive )?intervals?"
    r"|\b(?:19|20)\d\d\b|\d+e-\d+|\w+ ?= ?[\d.,/]*\d",
    re.DOTALL,
)
COUNTS = {"rows", "M", "splits", "columns", "rows used"}
LIMIT = re.compile(r"(?:less than|more than|at most|below|above|within|beyond|every|of)\s*$")
DIFFERENCE = re.compile(r"\b(?:by|another|lower|higher|behind)\b(?:[^.;]|\.\d){0,40}$")


class Cell(NamedTuple):
    """A number of a kept run, with the labels of its row and the heading of its column."""

    labels: tuple[str, ...]
    header: str
    value: float

    @property
    def is_of_seconds(self) -> bool:
        return "[s]" in self.header or "second" in self.header or "s/draw" in self.header

    @property
    def is_of_time(self) -> bool:
        return self.is_of_seconds or re.search("ms/|µs|millisec", self.header) is not None


class Printed(NamedTuple):
    """A number of a page; step is what its last digit is worth."""

    start: int
    text: str
    value: float
    step: float
    unit: str
    before: str

    @property
    def is_plain(self) -> bool:
        return not self.unit and self.text.replace(",", "").isdigit()

    def is_near(self, value: float) -> bool:
        """Also of the other sign, as in "lower by 0.3", unless a minus is printed."""
        sign_is_right = self.value >= 0 or value < 0
        return sign_is_right and abs(abs(value) - abs(self.value)) <= 0.5001 * self.step


def numbers_of(text: str) -> list[Printed]:
    text = IGNORED.sub(lambda match: " " * len(match[0]), text)
    result = []
    for match in NUMBER.finditer(text):
        before = text[: match.start()]
        if re.search(r"[\w.]$", before):
            continue
        later = LATER_UNIT.match(text, match.end())
        unit = match["unit"] or (later[1] if later else "")
        plain = match["digits"].replace(",", "")
        decimals = len(plain.partition(".")[2])
        zeros = 0 if decimals else len(plain) - max(len(plain.rstrip("0")), 2)
        step = 10.0 ** (max(zeros, 0) - decimals)
        value = -float(plain) if match["sign"] in ("−", "-") else float(plain)
        result.append(Printed(match.start(), match[0], value, step, unit, before))
    return result


def cells_of_table(lines: list[str]) -> Iterator[Cell]:
    header, _, *rows = (
        [cell.strip() for cell in line.strip("|\n ").split(" | ")] for line in lines
    )
    for row in rows:
        labels = (row[0], *(cell for cell in row[1:] if not re.fullmatch(r"[−\d.,e+-]*", cell)))
        for name, text in zip(header, row, strict=False):
            for value in re.findall(r"-?\d[\d,]*(?:\.\d+)?(?:e[+-]\d+)?", text):
                yield Cell(labels, name, float(value.replace(",", "")))


def cells_of_settings(value: Any, key: str = "") -> Iterator[Cell]:
    if isinstance(value, dict):
        for name, child in value.items():
            yield from cells_of_settings(child, f"{key} {name}")
    elif isinstance(value, list):
        for child in value:
            yield from cells_of_settings(child, key)
    elif isinstance(value, int | float):
        yield Cell((), key, float(value))


def cells_of_metrics(folder: Path) -> Iterator[Cell]:
    packed = folder / "metrics.csv.gz"
    data = gzip.decompress(packed.read_bytes()) if packed.exists() else None
    text = data.decode() if data else (folder / "metrics.csv").read_text()
    ends: dict[Any, dict[str, str]] = {}
    highest: dict[Any, dict[str, str]] = {}
    for number, row in enumerate(csv.DictReader(text.splitlines())):
        is_of_curve = {"step", "repeat", "setting"} <= row.keys()
        names = ("problem", "method", "setting", "seed", "repeat")
        key = tuple(row[name] for name in names) if is_of_curve else number
        ends[key] = row
        if row.get("elbo") and float(row["elbo"]) >= float(highest.get(key, row)["elbo"]):
            highest[key] = row
    for row in [*ends.values(), *highest.values()]:
        numbers = {name: text for name, text in row.items() if re.match(r"-?\d[\d.e-]*$", text)}
        labels = tuple(text for name, text in row.items() if text and name not in numbers)
        for name, number_text in numbers.items():
            yield Cell(labels, name, float(number_text))


@cache
def kept(run: str) -> tuple[list[Cell], list[Cell]]:
    """The cells of summary and settings, and those of the metrics."""
    cells = list(cells_of_settings(json.loads((REFERENCE / run / "config.json").read_text())))
    summary = (REFERENCE / run / "summary.md").read_text()
    for is_table, group in itertools.groupby(summary.splitlines(), lambda line: line[:1] == "|"):
        lines = list(group)
        if is_table:
            cells += cells_of_table(lines)
        text = "\n".join(line for line in lines if not re.match("SHA|Python", line))
        for one in [] if is_table else numbers_of(text):
            cells.append(Cell((), "[s]" if one.unit == "s" else "", one.value))
    return cells, list(cells_of_metrics(REFERENCE / run))


def is_founded(
    printed: Printed, cells: list[Cell], metrics: list[Cell], sentence: list[Printed]
) -> bool:
    if len(re.sub(r"\D|^[^1-9]*", "", printed.text)) >= 4 or len(metrics) < 100:
        cells = cells + metrics
    scales = {"%": (1.0, 100.0), "GB": (1e-3,)}.get(printed.unit, (1.0,))
    for cell in cells:
        is_of_unit = printed.unit != "s" or cell.is_of_seconds
        if is_of_unit and any(printed.is_near(cell.value * scale) for scale in scales):
            return True
    is_quotient = printed.unit in ("times", "%")
    if not is_quotient and not DIFFERENCE.search(printed.before):
        return False
    groups: dict[Any, list[float]] = {}
    for cell in cells:
        if cell.labels and cell.is_of_time == is_quotient:
            groups.setdefault((cell.labels[0], cell.header), []).append(cell.value)
    groups["sentence"] = [one.value for one in sentence if one is not printed]
    for a, b in itertools.chain.from_iterable(
        itertools.permutations(group, 2) for group in groups.values()
    ):
        if not is_quotient and printed.is_near(a - b):
            return True
        if is_quotient and b and any(printed.is_near(scale * a / b) for scale in scales):
            return True
        if printed.unit == "%" and b and printed.is_near(100.0 * (a / b - 1.0)):
            return True
    return False


def without_marks(text: str) -> str:
    return re.sub(r"[`*]", "", text).strip()


def with_label(label: str, cells: list[Cell]) -> list[Cell]:
    """The cells of rows that a page's row is about, by the first of three rules that finds any."""
    label = without_marks(label)
    labels = set().union(*(cell.labels for cell in cells))
    for rule in (
        lambda one: one in (label, label.replace(",", "")),
        lambda one: label.startswith(one + ", "),
        lambda one: one.removeprefix("gpflow.").startswith(label + ", "),
    ):
        found = set(filter(rule, labels))
        if found:
            return [cell for cell in cells if not found.isdisjoint(cell.labels)]
    return []


def with_header(header: str, cells: list[Cell]) -> list[Cell]:
    """The cells of the method or column that a page's heading names, or all if it names none."""
    name = without_marks(header)
    return [
        cell for cell in cells if name in cell.labels or name == cell.header.partition(" [")[0]
    ] or cells


def unfounded_in_prose(text: str, cells: list[Cell], metrics: list[Cell]) -> Iterator[str]:
    ends = [match.start() for match in re.finditer(r"[.;:](?=\s)", text)]
    found = numbers_of(text)
    sentence_of = {one.start: sum(end < one.start for end in ends) for one in found}
    for one in found:
        sentence = [other for other in found if sentence_of[other.start] == sentence_of[one.start]]
        if not one.is_plain and not is_founded(one, cells, metrics, sentence):
            yield f"{one.before[-60:]}{one.text}"


def unfounded_in_table(text: str, cells: list[Cell], metrics: list[Cell]) -> Iterator[str]:
    header, _, *rows = (
        [cell.strip() for cell in line.strip("| ").split("|")] for line in text.strip().splitlines()
    )
    for row in rows:
        mine, mine_of_metrics = with_label(row[0], cells), with_label(row[0], metrics)
        for name, cell in zip(header[1:], row[1:], strict=True):
            found = [] if name in COUNTS else numbers_of(cell)
            for one in found:
                pools = with_header(name, mine), with_header(name, mine_of_metrics)
                if not is_founded(one, *pools, found):
                    yield f"{row[0]} | {name}: {one.text}"


def unfounded(page: str) -> Iterator[str]:
    """The measured numbers that no run of their section has, with what is before them."""
    page = re.sub(r"```.*?```", "", page, flags=re.DOTALL)
    for section in re.split(r"^(?=#+ )", page, flags=re.MULTILINE):
        for paragraph in re.split(r"\n\s*\n", section):
            if paragraph.startswith("#") or "not a measurement" in paragraph:
                continue
            runs = runs_in(paragraph) or runs_in(section)
            cells, metrics = ([cell for run in runs for cell in kept(run)[i]] for i in (0, 1))
            if not runs:
                for one in numbers_of(paragraph):
                    if one.unit and not LIMIT.search(one.before):
                        yield f"{one.before[-60:]}{one.text} (the section names no run)"
            elif paragraph.lstrip().startswith("|"):
                yield from unfounded_in_table(paragraph, cells, metrics)
            else:
                yield from unfounded_in_prose(paragraph, cells, metrics)


def runs_in(text: str) -> list[str]:
    names = re.findall(r"`(?:reference/)?([\w.*]+)`", text)
    return sorted({run for name in names for run in fnmatch.filter(RUNS, name)})


@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.parent.name}/{page.name}")
def test_every_measured_number_is_of_a_kept_run(page: Path) -> None:
    assert not list(unfounded(page.read_text())), "not in the runs that the section names"


def test_an_altered_number_is_found() -> None:
    """Of every third number in tables on speed at least nine in ten, altered by an eighth."""
    pages = [ROOT / "docs" / "how_fast.md", *REFERENCE.glob("*/README.md")]
    sections = [text for page in pages if "|" in (text := page.read_text())]
    num_altered = num_found = 0
    for section in sections:
        for match in list(re.finditer(r"(?<=\| )[−]?(\d+\.\d+)(?= s)?", section))[::3]:
            decimals = len(match[1].partition(".")[2])
            other = f"{1.125 * float(match[1]) + 10.0**-decimals:.{decimals}f}"
            altered = section[: match.start(1)] + other + section[match.end(1) :]
            num_altered += 1
            num_found += bool(list(unfounded(altered)))
    assert num_altered > 100
    assert num_found >= 0.9 * num_altered


@pytest.mark.parametrize("run", RUNS)
def test_a_kept_run_says_with_what_it_was_made(run: str) -> None:
    environment = json.loads((REFERENCE / run / "environment.json").read_text())
    assert re.fullmatch("[0-9a-f]{40}", environment["commit"])  # without "-dirty"
    assert re.fullmatch("[0-9a-f]{64}", environment["code SHA-256"])
    assert {"gpflow", "tensorflow", "numpy"} <= set(environment["packages"])
    config = json.loads((REFERENCE / run / "config.json").read_text())
    assert environment["seeds"] == sorted(config.get("seeds", environment["seeds"]))
