"""The reference lists every public name, and the scripts of the gallery run."""

import importlib
import inspect
import re
import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import gpflow_aaci

DOCS = Path(__file__).parents[2] / "docs"
from_classes = SimpleNamespace(**runpy.run_path(str(DOCS / "_tools" / "from_classes.py")))
REFERENCE = "".join(
    from_classes.with_entries(page.read_text())
    for page in sorted((DOCS / "reference").glob("*.md"))
)
MODULES = (
    "",
    ".likelihoods",
    ".predictions",
    ".criticism",
    ".effects",
    ".kernels",
    ".distributions",
    ".inference",
    ".sampling",
    ".contrib",
    ".plots",
    ".diagnostics",
    ".monitor",
    ".sklearn",
)


def documented(reference: str) -> list[Any]:
    """The names in the directives, each with the module named last before it."""
    found: list[Any] = []
    module: Any = None
    for directive, name in re.findall(r"^\.\. (\w+):: (\S+)$", reference, re.MULTILINE):
        if directive in ("module", "currentmodule"):
            module = importlib.import_module(name)
        elif directive in ("autoclass", "autofunction"):
            found.append(getattr(module, name))
    return found


def public() -> dict[str, Any]:
    """The public classes and functions of the package by name."""
    modules = [importlib.import_module(f"gpflow_aaci{name}") for name in MODULES]
    names = [(module, name) for module in modules for name in module.__all__]
    verbs = gpflow_aaci.augmentation
    names += [
        (verbs, name)
        for name, value in vars(verbs).items()
        if inspect.isfunction(value)
        and value.__module__ == verbs.__name__
        and not name.startswith("_")
    ]
    names += [(gpflow_aaci.data, "from_parquet")]
    values = {f"{module.__name__}.{name}": getattr(module, name) for module, name in names}
    return {name: value for name, value in values.items() if not inspect.ismodule(value)}


def missing(reference: str) -> set[str]:
    found = documented(reference)
    return {name for name, value in public().items() if value not in found}


def test_the_reference_has_every_public_name_once() -> None:
    assert missing(REFERENCE) == set()  # add each to a page of docs/reference/
    found = documented(REFERENCE)
    assert [value for value in found if found.count(value) > 1] == []


@pytest.mark.parametrize(
    ("entry", "name"),
    [
        (".. autoclass:: StudentT\n", "gpflow_aaci.likelihoods.StudentT"),
        (".. autofunction:: polish\n", "gpflow_aaci.polish"),
        (".. autofunction:: logtilt\n", "gpflow_aaci.augmentation.logtilt"),
        (".. autoclass:: HMC\n", "gpflow_aaci.contrib.HMC"),
        (".. autofunction:: from_parquet\n", "gpflow_aaci.data.from_parquet"),
    ],
)
def test_an_entry_that_is_taken_out_is_missed(entry: str, name: str) -> None:
    """This shows that the test above can fail."""
    assert missing(REFERENCE.replace(entry, "")) == {name}


SCRIPTS = sorted((DOCS / "gallery").glob("plot_*.py"))
# These need other libraries, and the documentation's build runs them.
ELSEWHERE = ("plot_10", "plot_13", "plot_15", "plot_20")


class Difference(gpflow_aaci.likelihoods.Laplace):
    """
    n − m of counts n ~ Poisson(f) | m ~ Poisson(1).

    The rest is not shown.
    """


def test_a_new_likelihood_is_on_the_pages_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    pages = {
        name: (DOCS / name).read_text() for name in ("which_likelihood.md", "reference/formulas.md")
    }
    readme = (DOCS.parent / "README.md").read_text()
    reference = (DOCS / "reference" / "likelihoods.md").read_text()
    for page in pages.values():  # what the page has already is not repeated
        assert "| `StudentT` | Student's t" not in from_classes.with_rest(page, readme)
    monkeypatch.setattr(gpflow_aaci.likelihoods, "Difference", Difference, raising=False)
    monkeypatch.setattr(gpflow_aaci.likelihoods, "__all__", ["Difference"])
    for page in pages.values():
        row = r"| `Difference` | n − m of counts n ~ Poisson(f) \| m ~ Poisson(1). |"
        assert row in from_classes.with_rest(page, readme).splitlines()
    assert "## Others" in from_classes.with_entries(reference)
    assert ".. autoclass:: Difference\n" in from_classes.with_entries(reference)
    monkeypatch.setattr(Difference, "__module__", "gpflow_aaci.likelihoods.noise.difference")
    assert "## Others" not in from_classes.with_entries(reference)
    assert ".. autoclass:: Difference\n" in from_classes.with_entries(reference)


def test_every_script_is_in_one_group_of_the_gallery() -> None:
    groups = (DOCS / "gallery" / "README.rst").read_text()
    patterns = re.findall(r"^    gallery/(\S+)$", groups, re.MULTILINE)
    shown = [path.name for pattern in patterns for path in (DOCS / "gallery").glob(pattern)]
    assert sorted(shown) == [script.name for script in SCRIPTS]


def test_links_to_and_between_pages_of_kept_runs_are_to_files() -> None:
    """Sphinx, which checks other links, does not read these pages."""
    reference = DOCS.parent / "benchmarks" / "reference"
    pages = [*DOCS.glob("*.md"), reference / "README.md", *reference.glob("*/README.md")]
    found = 0
    for page in pages:
        for link in re.findall(r"\]\(([^)#:]+)", page.read_text()):
            if page.parent != DOCS or link.startswith("../benchmarks"):
                found += 1
                assert (page.parent / link).is_file(), (page, link)
    assert found > 40


@pytest.mark.slow
@pytest.mark.by_default("plot_03_your_own_likelihood", "plot_22_tables_with_words")
@pytest.mark.parametrize(
    "script", [s for s in SCRIPTS if not s.name.startswith(ELSEWHERE)], ids=lambda s: s.stem
)
def test_a_script_of_the_gallery_runs_prints_and_draws(script: Path, tmp_path: Path) -> None:
    """Each script runs as a program in a folder of its own."""
    program = (
        "import matplotlib, runpy, sys; matplotlib.use('Agg'); import matplotlib.pyplot as plt; "
        "runpy.run_path(sys.argv[1], run_name='__main__'); assert plt.get_fignums()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(script)], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.strip()
    assert not list(tmp_path.iterdir())  # scripts write to temporary folders only
