"""The page of the papers' claims is what docs/_tools/claims.py writes from the kept runs."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def claims() -> ModuleType:
    spec = importlib.util.spec_from_file_location("claims", ROOT / "docs" / "_tools" / "claims.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_what_the_script_writes(claims: ModuleType) -> None:
    message = "run python docs/_tools/claims.py"
    assert (ROOT / "docs" / "claims.md").read_text() == claims.page(), message


def test_every_row_names_what_tries_it(claims: ModuleType) -> None:
    """Its sources are kept runs or files of tests."""
    for groups in claims.PAPERS.values():
        for row in (row for group in groups for row in group()):
            assert row.sources
            for source in row.sources:
                run, test = ROOT / "benchmarks" / "reference" / source, ROOT / source
                assert (run / "summary.md").exists() or test.is_file(), source


def test_a_cell_that_is_not_there_is_named(claims: ModuleType) -> None:
    with pytest.raises(ValueError, match="step_time must have 'milliseconds' of"):
        claims.cells("step_time", "milliseconds", "a step of nobody")
