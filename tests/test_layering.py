"""A module imports only modules above it."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import gpflow_aaci

PACKAGE = "gpflow_aaci"
ROOT = Path(gpflow_aaci.__file__).parent

# A module may import those above it. A new module must be given a place.
ORDER = [
    "validation",
    "progress",
    "identity",
    "structure",
    "graphs",
    "workers",
    "mirrored",
    "special",
    "inverse_laplace",
    "kernels",
    "distributions.parameters",
    "distributions.law",
    "distributions.quantile",
    "distributions.inverted",
    "distributions.tilted",
    "distributions.mixture",
    "distributions.rejection",
    "distributions.polya_gamma_density",
    "distributions.polya_gamma_draws",
    "distributions.polya_gamma",
    "distributions.generalized_inverse_gaussian",
    "distributions.inverse_gaussian",
    "distributions.positive_normal",
    "distributions.interval_normal",
    "distributions.argmax_normal",
    "distributions",
    "likelihoods.integrals",
    "likelihoods.integrals.nodes",
    "likelihoods.integrals.quadrature",
    "likelihoods.integrals.powers",
    "likelihoods.integrals.two_sided",
    "likelihoods.integrals.gamma_mixtures",
    "likelihoods.integrals.even_densities",
    "likelihoods.integrals.cumulative",
    "likelihoods.integrals.tabulated",
    "likelihoods.integrals.sums_of_sigmoids",
    "likelihoods.integrals.sums_of_exponentials",
    "likelihoods.integrals.largest",
    "likelihoods.parameters",
    "likelihoods.base",
    "likelihoods.outputwise",
    "likelihoods.super_gaussian",
    "likelihoods.unaugmented",
    "likelihoods.sigmoid_powers",
    "likelihoods.noise",
    "likelihoods.noise.residual",
    "likelihoods.interval",
    "likelihoods.noise.laplace",
    "likelihoods.noise.student_t",
    "likelihoods.noise.matern",
    "likelihoods.noise.generalized_gaussian",
    "likelihoods.classes",
    "likelihoods.classes.binary",
    "likelihoods.classes.labels",
    "likelihoods.classes.ordinal",
    "likelihoods.classes.probit",
    "likelihoods.classes.softmax",
    "likelihoods.classes.tree",
    "likelihoods.counts",
    "likelihoods.rates",
    "likelihoods.warps",
    "likelihoods.composed",
    "likelihoods.composed.monotone",
    "likelihoods.composed.numerical_noise",
    "likelihoods.composed.mixtures",
    "likelihoods.composed.per_datum",
    "likelihoods.heteroscedastic",
    "likelihoods.composed.kernel_noise",
    "likelihoods.composed.transformed",
    "likelihoods.composed.switched",
    "likelihoods.composed.zeros",
    "likelihoods.stock",
    "likelihoods.conversion",
    "likelihoods",
    "augmentation",
    "algebra.gaussian",
    "algebra.projection",
    "algebra.terms",
    "algebra.statistics",
    "algebra",
    "data.datasets",
    "data.expected",
    "data.passes",
    "data.summand",
    "data.batches",
    "data.random_rows",
    "data.rows",
    "data.streams",
    "data.shards",
    "data.door",
    "data.parquet",
    "data",
    "models.posteriors",
    "models.shared",
    "models.bounds",
    "models.predictions",
    "models.svgp",
    "models.variables",
    "models.vgp",
    "models.stock",
    "models",
    "compiled",
    "nearest.rows",
    "nearest.neighbors",
    "nearest.conditional",
    "nearest.model",
    "nearest",
    "checkpoints",
    "inference.bound_gradient",
    "inference.schedules",
    "inference.compiled_steps",
    "inference.optimizers",
    "inference.stepper",
    "inference.alternating",
    "inference.newton",
    "inference.profile",
    "inference.quasi_newton",
    "inference.coordinates",
    "inference.settings",
    "inference.starting",
    "inference.objective",
    "inference.rescues",
    "inference.hyperparameter_search",
    "inference.advice",
    "inference.collapsed",
    "inference.inducing_moves",
    "inference.updating",
    "inference.stopping",
    "inference.joint_adam",
    "inference.training",
    "inference.minibatch_fit",
    "inference.nearest_fit",
    "inference.fit",
    "inference",
    "inducing",
    "diagnostics",
    "sampling.conditionals",
    "sampling.latents",
    "sampling.chains",
    "sampling.gibbs",
    "sampling.posterior",
    "sampling",
    "predictions.f",
    "predictions.quantiles",
    "predictions.y",
    "predictions.of_f",
    "predictions",
    "criticism",
    "criticism.elpd",
    "criticism.loo",
    "criticism.calibration",
    "criticism.choose",
    "plots",
    "monitor",
    "testing.several",
    "testing.phi",
    "testing.augmented",
    "testing",
    "sklearn.shared",
    "sklearn.regressor",
    "sklearn.classifier",
    "sklearn",
    "contrib.priors",
    "contrib.score_function",
    "contrib.mixture_entropy",
    "contrib.mixture_vgp",
    "contrib.regression_network",
    "contrib.moves",
    "contrib.starts",
    "contrib.hyperparameter_gibbs",
    "contrib.whitened",
    "contrib.elliptical_slices",
    "contrib.hmc",
    "contrib.deep_gp",
    "contrib.joint",
    "contrib.hyperparameter_hmc",
    "contrib.sghmc_kernel",
    "contrib.sghmc",
    "contrib",
    "",  # the package itself, which imports from all
]


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


def test_every_module_has_its_place() -> None:
    assert set(MODULES) <= set(ORDER), "give the new module a place in ORDER"
    assert len(set(ORDER)) == len(ORDER)


@pytest.mark.parametrize("module", MODULES, ids=lambda name: name or PACKAGE)
def test_a_module_imports_only_modules_above_it(module: str) -> None:
    path = MODULES[module]
    imported = set(imports(module, path.read_text(), path.name == "__init__.py"))
    above = ORDER[: ORDER.index(module)]
    assert imported <= set(above), f"{module} imports {sorted(imported - set(above))}"


def test_the_core_does_not_import_contrib() -> None:
    """Only the package's own __init__ may import it, whatever the order above says."""
    for module, path in MODULES.items():
        if module and module.split(".")[0] != "contrib":
            imported = imports(module, path.read_text(), path.name == "__init__.py")
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
    """``data``, which returns sums over all of them, and ``mirrored`` handle several machines."""
    for path in (ROOT / folder).glob("*.py"):
        assert "workers" not in path.read_text(), path.name
