"""ERRATA.md names existing code, and the code cites equations by the paper's numbers."""

import functools
import importlib
import re
from pathlib import Path
from typing import Any

import pytest

import gpflow_aaci

PACKAGE = Path(gpflow_aaci.__file__).parent
ROOT = Path(__file__).parents[2]
ERRATA = (PACKAGE / "ERRATA.md").read_text(encoding="utf-8")
ENTRIES = dict(re.findall(r"^### (.*?)\n(.*?)(?=^##|\Z)", ERRATA, re.MULTILINE | re.DOTALL))
LAST_EQUATION = 12
SOURCES = [
    *sorted(PACKAGE.rglob("*.py")),
    *sorted((ROOT / "benchmarks").glob("*.py")),
    PACKAGE / "ERRATA.md",
    ROOT / "README.md",
]


def places(text: str) -> list[str]:
    """The names in ``text`` of the form `module.function`."""
    return re.findall(r"`((?:gpflow_aaci|benchmarks)(?:\.\w+)+)`", text)


def found(place: str) -> Any:
    """The object with this dotted name: import the longest module name, then apply getattr."""
    parts = place.split(".")
    for length in range(len(parts), 0, -1):
        try:
            module = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        return functools.reduce(getattr, parts[length:], module)
    raise ModuleNotFoundError(place)


def cited_equations(text: str) -> list[int]:
    """The numbers of cited equations; a range gives both of its ends."""
    citations = re.findall(
        r"\b(?:eqs?\.|equations?)\s*\(?(\d+)\)?(?:\s*(?:[-–,]|and|to)\s*\(?(\d+)\b)?", text, re.I
    )
    return [int(number) for citation in citations for number in citation if number]


@pytest.mark.parametrize("entry", ENTRIES)
def test_an_erratum_says_what_is_printed_what_is_right_and_where_the_code_is(entry: str) -> None:
    for label in ("Printed", "Right", "Code"):
        assert f"- {label}: " in ENTRIES[entry]
    code = ENTRIES[entry].split("- Code: ")[1]
    assert places(code)
    for place in places(code):
        assert found(place) is not None


def test_there_are_errata_and_a_name_that_is_not_there_is_noticed() -> None:
    assert len(ENTRIES) == ERRATA.count("\n### ") > 10
    with pytest.raises(AttributeError):
        found("gpflow_aaci.special.no_such_function")


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_equation_is_cited_that_the_paper_does_not_number(path: Path) -> None:
    assert all(number <= LAST_EQUATION for number in cited_equations(path.read_text("utf-8")))


def test_the_reader_of_citations_sees_every_spelling() -> None:
    text = "(AACI Eq. 13), Eq. 4-5, Eqs. (6) and (7), Eq.\n    8–9, equation 14, Eq. 10 (Theorem 1)"
    assert cited_equations(text) == [13, 4, 5, 6, 7, 8, 9, 14, 10]


def test_readme_links_to_the_errata() -> None:
    assert "(gpflow_aaci/ERRATA.md)" in (ROOT / "README.md").read_text(encoding="utf-8")
