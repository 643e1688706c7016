"""The README's code runs and does what the README says; its tables and links are right."""

import re
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf

import gpflow_aaci

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", README, re.DOTALL)


CONVERTED = {
    "gpflow.likelihoods.StudentT()": gpflow.likelihoods.StudentT(),
    "gpflow.likelihoods.Gaussian()": gpflow.likelihoods.Gaussian(),
    "gpflow.likelihoods.Bernoulli()": gpflow.likelihoods.Bernoulli(),
    "gpflow.likelihoods.Bernoulli(invlink=tf.sigmoid)": gpflow.likelihoods.Bernoulli(
        invlink=tf.sigmoid
    ),
    "gpflow.likelihoods.SwitchedLikelihood([...])": gpflow.likelihoods.SwitchedLikelihood(
        [gpflow.likelihoods.Gaussian(), gpflow.likelihoods.Gaussian()]
    ),
    "gpflow.likelihoods.Ordinal(bin_edges)": gpflow.likelihoods.Ordinal(np.array([0.0, 1.0])),
    "gpflow.likelihoods.Softmax(num_classes)": gpflow.likelihoods.Softmax(3),
}
AS_THEY_ARE = [
    gpflow.likelihoods.MultiClass(3),
    gpflow.likelihoods.Poisson(),
    gpflow.likelihoods.Exponential(),
    gpflow.likelihoods.Gamma(),
    gpflow.likelihoods.Beta(),
    gpflow.likelihoods.HeteroskedasticTFPConditional(),
]


def test_the_table_of_likelihoods() -> None:
    """Exactly the likelihoods that the table says are refused are refused, the others converted."""
    section = README.split("## Which likelihood")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (.*?) \| (.*?) \|$", section, re.MULTILINE)[1:]
    converted = {a.strip("`"): b for a, b in rows if a.startswith("`gpflow.likelihoods.")}
    assert set(converted) == set(CONVERTED)
    for name, likelihood in CONVERTED.items():
        result = gpflow_aaci.likelihoods.augmented(likelihood)
        assert converted[name].startswith(f"`{type(result).__name__}`")
    ((as_they_are, of_these),) = ((a, b) for a, b in rows if b.startswith("as they are"))
    assert "without augmentation" in of_these
    named = set(re.findall(r"`(\w+)`", as_they_are)) - {"ScalarLikelihood", "QuadratureLikelihood"}
    assert named == {type(likelihood).__name__ for likelihood in AS_THEY_ARE}
    for likelihood in (*AS_THEY_ARE, gpflow.likelihoods.Bernoulli(invlink=tf.exp)):
        assert not gpflow_aaci.likelihoods.augmented(likelihood).is_augmented
    everything = {*named, *(name.split(".")[2].split("(")[0] for name in CONVERTED)}
    abstract = {name for name in dir(gpflow.likelihoods) if name.endswith("Likelihood")}
    others = {"GaussianMC", "MultiLatentTFPConditional", "RobustMax"}
    assert (
        everything >= {n for n in gpflow.likelihoods.__all__ if n[0].isupper()} - abstract - others
    )
    function = gpflow.functions.Linear()
    for likelihood in (
        gpflow.likelihoods.StudentT(scale=function),
        gpflow.likelihoods.Gaussian(scale=function),
        gpflow.likelihoods.Gaussian(variance=function),
    ):
        scaled = gpflow_aaci.likelihoods.augmented(likelihood)
        assert isinstance(scaled, gpflow_aaci.likelihoods.Scaled)


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


def test_thirty_seconds() -> None:
    names: dict[str, Any] = {}
    (block,) = blocks()
    exec(block, names)
    model, X, Y = names["model"], names["X"], names["Y"]
    assert np.mean((model.predict_y(X)[0] > 0.5) != (Y > 0.5)) < 0.02
    assert names["result"].converged
    np.testing.assert_allclose(names["result"].elbo, model.elbo((X, Y)))


def test_it_is_short_and_its_links_and_pictures_are_there() -> None:
    assert len(README.splitlines()) <= 170
    links = re.findall(r"\]\(([^)#]+)\)", README)
    assert len(links) > 8
    for link in links:
        assert (ROOT / link).is_file(), link
    pictures = list((ROOT / "docs" / "pictures").iterdir())
    assert {path.relative_to(ROOT).as_posix() for path in pictures} <= set(links)
    assert sum(path.stat().st_size for path in pictures) < 300_000
