"""The README's code runs and does what the README says; its tables and links are right."""

import re
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from printed import text_and_numbers

import gpflow_aaci
import gpflow_aaci.contrib.likelihoods

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", README, re.DOTALL)


CONVERTED = {
    "Gaussian()": gpflow.likelihoods.Gaussian(),
    "StudentT()": gpflow.likelihoods.StudentT(),
    "Gaussian(scale=function)": gpflow.likelihoods.Gaussian(scale=gpflow.functions.Linear()),
    "StudentT(scale=function)": gpflow.likelihoods.StudentT(scale=gpflow.functions.Linear()),
    "Bernoulli()": gpflow.likelihoods.Bernoulli(),
    "Bernoulli(invlink=tf.sigmoid)": gpflow.likelihoods.Bernoulli(invlink=tf.sigmoid),
    "SwitchedLikelihood([...])": gpflow.likelihoods.SwitchedLikelihood(
        [gpflow.likelihoods.Gaussian(), gpflow.likelihoods.Gaussian()]
    ),
    "Ordinal(bin_edges)": gpflow.likelihoods.Ordinal(np.array([0.0, 1.0])),
}
AS_THEY_ARE = {
    "Softmax(num_classes)": gpflow.likelihoods.Softmax(3),
    "MultiClass(num_classes)": gpflow.likelihoods.MultiClass(3),
    "Poisson()": gpflow.likelihoods.Poisson(),
    "Exponential()": gpflow.likelihoods.Exponential(),
    "Gamma()": gpflow.likelihoods.Gamma(),
    "Beta()": gpflow.likelihoods.Beta(),
    "HeteroskedasticTFPConditional()": gpflow.likelihoods.HeteroskedasticTFPConditional(),
}
YOUR_OWN = {"ScalarLikelihood", "QuadratureLikelihood"}


def rows() -> list[tuple[str, str]]:
    """What the tables have in the columns of GPflow and of this package."""
    section = README.split("## Which likelihood")[1].split("\n## ")[0]
    cells = re.findall(r"^\| (?:.*?) \|(.*?)\| (.*?) \|$", section, re.MULTILINE)
    return [(theirs.strip(), ours) for theirs, ours in cells if "GPflow" not in theirs]


def test_likelihoods_of_gpflow_become_what_the_tables_say() -> None:
    """Those with a star stay as they are, without augmentation."""
    named: dict[str, tuple[bool, str]] = {}
    for theirs, ours in rows():
        for name, star in re.findall(r"`(.*?)`( \*)?", theirs):
            named[name] = (bool(star), ours)
    assert set(named) == {*CONVERTED, *AS_THEY_ARE, *YOUR_OWN}
    for name, likelihood in {**CONVERTED, **AS_THEY_ARE}.items():
        is_as_it_is, ours = named[name]
        result = gpflow_aaci.likelihoods.augmented(likelihood)
        assert result.is_augmented is not is_as_it_is, name
        assert is_as_it_is or f"`{type(result).__name__}" in ours, name
    everything = {name.split("(")[0] for name in named}
    abstract = {name for name in dir(gpflow.likelihoods) if name.endswith("Likelihood")}
    others = {"GaussianMC", "MultiLatentTFPConditional", "RobustMax"}
    theirs = {name for name in gpflow.likelihoods.__all__ if name[0].isupper()}
    assert everything >= theirs - abstract - others


def test_every_likelihood_of_the_tables_is_there() -> None:
    names = {name for _, ours in rows() for name in re.findall(r"`([A-Z]\w+)", ours)}
    assert {name for name in names if not hasattr(gpflow_aaci.likelihoods, name)} == set()
    dotted = {name for _, ours in rows() for name in re.findall(r"(\w+\.[A-Z]\w+)", ours)}
    homes = {
        "warps": gpflow_aaci.likelihoods.warps,
        "kernels": gpflow_aaci.kernels,
        "likelihoods": gpflow_aaci.contrib.likelihoods,
    }
    assert {name.split(".")[0] for name in dotted} == set(homes)
    for name in dotted:
        module, _, member = name.partition(".")
        assert hasattr(homes[module], member), name


def test_what_is_refused_is_refused() -> None:
    section = README.split("**Refused**")[1].split("\n\n")[0]
    kernel, Z = gpflow.kernels.Matern32(), np.zeros((3, 1))
    likelihood = gpflow.likelihoods.StudentT()

    class Sampled(gpflow.likelihoods.MonteCarloLikelihood):
        def _log_prob(self, X: Any, F: Any, Y: Any) -> Any: ...

    class Other(gpflow.kernels.MultioutputKernel):
        num_latent_gps, latent_kernels = 2, ()

        def K(self, X: Any, X2: Any = None, full_output_cov: bool = True) -> Any: ...

        def K_diag(self, X: Any, full_output_cov: bool = True) -> Any: ...

    for said, make in {
        "`MonteCarloLikelihood`": lambda: gpflow_aaci.AugmentedSVGP(kernel, Sampled(1, 1, 1), Z),
        "`q_diag=True` with `whiten=False`": lambda: gpflow_aaci.AugmentedSVGP(
            kernel, likelihood, Z, q_diag=True, whiten=False
        ),
        "multi-output kernels except": lambda: gpflow_aaci.AugmentedVGP(
            (Z, Z), Other(), likelihood
        ),
        "`LinearCoregionalization`": lambda: gpflow_aaci.AugmentedSVGP(
            Other(), likelihood, Z, num_latent_gps=2
        ),
        "labels, counts and NaNs": lambda: gpflow_aaci.AugmentedVGP(
            (Z, Z + np.nan), kernel, likelihood
        ),
    }.items():
        assert said in section
        with pytest.raises(ValueError, match="must be"):
            make()


def test_the_three_lines_of_diff() -> None:
    """The first line is GPflow's, the others replace it, and both models share the likelihood."""
    (diff,) = re.findall(r"```diff\n(.*?)```", README, re.DOTALL)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 1))
    Y = np.sin(3.0 * X) + 0.1 * rng.standard_t(3, size=(80, 1))
    likelihood = gpflow.likelihoods.StudentT(scale=0.5, df=4.0)
    kernel, Z = gpflow.kernels.Matern52(lengthscales=0.5), np.linspace(-2, 2, 15)[:, None]
    names: dict[str, Any] = {"X": X, "Y": Y, "kernel": kernel, "Z": Z, "likelihood": likelihood}
    names |= {"gpflow": gpflow, "gpflow_aaci": gpflow_aaci}
    before, *after = (line[2:] for line in diff.splitlines())
    exec(before, names)
    assert type(names["model"]) is gpflow.models.SVGP
    exec("\n".join(after), names)
    assert np.mean((names["model"].predict_y(X)[0] - Y) ** 2) < 0.3 * Y.var()
    assert names["likelihood"].scale is names["model"].likelihood.scale
    assert likelihood.scale.numpy() < 0.2


def test_twenty_lines_print_what_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """But for seconds and last digits."""
    (block,) = blocks()
    (shown,) = re.findall(r"```text\n(.*?)```", README, re.DOTALL)
    assert len([line for line in block.splitlines() if line]) <= 20
    exec(block, {})
    text, numbers = text_and_numbers(capsys.readouterr().out)
    text_shown, numbers_shown = text_and_numbers(shown)
    assert text == text_shown
    np.testing.assert_allclose(numbers, numbers_shown, rtol=0.02)


def test_it_is_short_and_its_links_are_there() -> None:
    assert len(README.splitlines()) <= 150
    links = re.findall(r"\]\(([^)#]+)\)", README)
    assert len(links) > 8
    for link in links:
        assert (ROOT / link).is_file(), link


def test_every_picture_is_on_a_page() -> None:
    pages = "".join(path.read_text() for path in (ROOT / "docs").glob("*.md"))
    pictures = list((ROOT / "docs" / "pictures").iterdir())
    for path in pictures:
        assert f"(pictures/{path.name})" in pages, path.name
    assert "(docs/pictures/results.png)" in README
    assert sum(path.stat().st_size for path in pictures) < 100_000
