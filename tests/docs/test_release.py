"""What the packages say of the project: one version everywhere, and links that lead somewhere."""

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

import gpflow_aaci

ROOT = Path(__file__).parents[2]
PROJECT = (ROOT / "pyproject.toml").read_text()
(REPOSITORY,) = re.findall(r'^repository = "(.*)"$', PROJECT, re.MULTILINE)


def test_the_version_and_the_repository_are_the_same_everywhere() -> None:
    citation = (ROOT / "CITATION.cff").read_text()
    assert f"\nversion: {gpflow_aaci.__version__}\n" in citation
    assert f'\nrepository-code: "{REPOSITORY}"\n' in citation
    released = re.findall(
        r"^## (\S+) \((\S+)\)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE
    )
    assert (gpflow_aaci.__version__, re.findall(r"date-released: (\S+)", citation)[0]) in released


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """hatch_build.py, without the build backend that runs it."""
    interface = ModuleType("interface")
    interface.MetadataHookInterface = object  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "hatchling.metadata.plugin.interface", interface)
    for name in ("hatchling", "hatchling.metadata", "hatchling.metadata.plugin"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_link_of_the_long_description_is_absolute_and_to_a_file(hook: ModuleType) -> None:
    text = hook.with_absolute_links((ROOT / "README.md").read_text(), REPOSITORY, "v1")
    targets = re.findall(r'(?:\]\(|src="|href=")([^)"\s]+)', text)
    of_files = [t for t in targets if t.startswith(REPOSITORY)]
    assert len(of_files) > 8
    assert all(target.startswith(("https://", "http://", "#")) for target in targets)
    for target in of_files:
        kind, tag, path = target.removeprefix(f"{REPOSITORY}/").split("/", 2)
        assert (kind, tag) == ("raw" if path.endswith(".png") else "blob", "v1")
        assert (ROOT / path.split("#")[0]).exists(), path


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("![a](docs/a.png)", "![a](R/raw/v1/docs/a.png)"),
        ("[a](docs/a.md#b)", "[a](R/blob/v1/docs/a.md#b)"),
        ('<img src="a.png" width="1">', '<img src="R/raw/v1/a.png" width="1">'),
        ("[a](https://b.c) [a](#b)", "[a](https://b.c) [a](#b)"),
    ],
)
def test_relative_links_alone_are_changed(hook: ModuleType, before: str, after: str) -> None:
    assert hook.with_absolute_links(before, "R", "v1") == after
