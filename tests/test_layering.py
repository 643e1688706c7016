"""No module imports itself by way of others, and layers import only what is below them."""

import ast
import graphlib
from collections.abc import Iterator
from pathlib import Path

import pytest

import gpflow_aaci

PACKAGE = "gpflow_aaci"
ROOT = Path(gpflow_aaci.__file__).parent


def modules() -> dict[str, Path]:
    """Every module by its dotted name within the package; a package's own name for __init__."""
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(part for part in parts if part != "__init__")] = path
    return found


MODULES = modules()


def imports(module: str, source: str, is_package: bool) -> Iterator[str]:
    """The package's own modules that a module imports, anywhere in its source."""
    here = module.split(".") if module else []
    package = here if is_package else here[:-1]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == PACKAGE:
                    yield alias.name.removeprefix(PACKAGE).removeprefix(".")
        elif isinstance(node, ast.ImportFrom):
            target = (node.module or "").split(".") if node.module else []
            if node.level:
                base = package[: len(package) - (node.level - 1)] + target
            elif target[:1] == [PACKAGE]:
                base = target[1:]
            else:
                continue
            for alias in node.names:
                # "from a import b" names the module a.b if there is one, else a name in a
                name = ".".join([*base, alias.name])
                yield name if name in MODULES else ".".join(base)


# The modules that each module imports anywhere.
IMPORTS = {
    module: set(imports(module, path.read_text(), path.name == "__init__.py"))
    for module, path in MODULES.items()
}


def test_no_module_imports_itself_by_way_of_others() -> None:
    """So that the modules have an order in which each imports only those before it."""
    assert not set().union(*IMPORTS.values()) - set(MODULES)
    list(graphlib.TopologicalSorter(IMPORTS).static_order())  # raises CycleError, with the circle


def test_the_core_does_not_import_contrib() -> None:
    """Only the package's own __init__ may import it."""
    for module, imported in IMPORTS.items():
        if module and module.split(".")[0] != "contrib":
            assert not [name for name in imported if name.split(".")[0] == "contrib"], module


def test_the_reader_of_imports_sees_every_kind() -> None:
    """
    Imports may be relative or absolute, name modules or their contents, or be inside a function.
    """
    source = """
import numpy
import gpflow_aaci.models
from gpflow_aaci import diagnostics
from gpflow_aaci.special import log1p_exp
from . import warps
from .base import SuperGaussianLikelihood
from ..validation import Check
from .. import augmentation
from gpflow import models

def late():
    from .. import testing
"""
    assert set(imports("likelihoods.new", source, is_package=False)) == {
        "models",
        "diagnostics",
        "special",
        "likelihoods.warps",
        "likelihoods.base",
        "validation",
        "augmentation",
        "testing",
    }
    assert set(imports("likelihoods", "from .base import x", is_package=True)) == {
        "likelihoods.base"
    }


@pytest.mark.parametrize("folder", ["inference", "models"])
def test_what_steps_and_fits_knows_nothing_of_several_machines(folder: str) -> None:
    """``data``, which returns sums over all of them, and ``runtime`` handle several machines."""
    for path in (ROOT / folder).glob("*.py"):
        assert "workers" not in path.read_text(), path.name
