"""The README's Python runs as printed, from top to bottom, and does what it says."""

import re
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf

import gpflow_aaci

README = (Path(__file__).parents[1] / "README.md").read_text()


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
}
REFUSED = [
    gpflow.likelihoods.MultiClass(3),
    gpflow.likelihoods.Softmax(3),
    gpflow.likelihoods.Poisson(),
    gpflow.likelihoods.Exponential(),
    gpflow.likelihoods.Gamma(),
    gpflow.likelihoods.Beta(),
    gpflow.likelihoods.Ordinal(np.array([0.0, 1.0])),
]


def test_the_table_of_likelihoods() -> None:
    """What it says is converted is, to that; what it says is refused is, and nothing else."""
    section = README.split("## Which likelihoods")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (.*?) \| (.*?) \|$", section, re.MULTILINE)[1:]
    converted = {a.strip("`"): b for a, b in rows if a.startswith("`gpflow.likelihoods.")}
    assert set(converted) == set(CONVERTED)
    for name, likelihood in CONVERTED.items():
        result = gpflow_aaci.likelihoods.augmented(likelihood)
        assert converted[name].startswith(f"`{type(result).__name__}`")
    (refused,) = (set(re.findall(r"`(\w+)`", a)) for a, b in rows if a.endswith("any other"))
    assert refused == {type(likelihood).__name__ for likelihood in REFUSED}
    for likelihood in REFUSED:
        with pytest.raises(ValueError, match=f"Found: {type(likelihood).__name__}"):
            gpflow_aaci.likelihoods.augmented(likelihood)
    function = gpflow.functions.Linear()
    for likelihood in (
        gpflow.likelihoods.StudentT(scale=function),
        gpflow.likelihoods.Gaussian(scale=function),
        gpflow.likelihoods.Gaussian(variance=function),
    ):
        scaled = gpflow_aaci.likelihoods.augmented(likelihood)
        assert isinstance(scaled, gpflow_aaci.likelihoods.Scaled)
    with pytest.raises(ValueError, match="Bernoulli"):
        gpflow_aaci.likelihoods.augmented(gpflow.likelihoods.Bernoulli(invlink=tf.exp))


def test_the_swap() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 1))
    Y = np.sin(3.0 * X) + 0.1 * rng.standard_t(3, size=(80, 1))
    kernel, Z = gpflow.kernels.Matern52(lengthscales=0.5), np.linspace(-2, 2, 15)[:, None]
    names: dict[str, Any] = {"X": X, "Y": Y, "kernel": kernel, "Z": Z, "X_new": X}
    exec(blocks()[0], names)
    assert np.mean((names["mean"] - Y) ** 2) < 0.3 * Y.var()
    assert names["likelihood"].scale is names["model"].likelihood.scale


def test_the_complete_example_and_what_follows_it() -> None:
    names: dict[str, Any] = {}
    complete, fit = blocks()[1:3]
    exec(complete, names)
    model, data = names["model"], (names["X"], names["Y"])
    error = np.mean((model.predict_y(data[0])[0] > 0.5) != (data[1] > 0.5))
    assert error < 0.05
    before = float(model.standard_elbo(data))
    exec(fit, names)
    assert names["result"].objective > before
    np.testing.assert_allclose(names["result"].objective, model.standard_elbo(data), rtol=1e-8)
    exec(blocks()[6], names)  # the same from a dataset, which finds next to nothing more
    assert names["result"].objective <= float(model.standard_elbo(data)) + 1e-6
    np.testing.assert_allclose(names["result"].objective, model.standard_elbo(data), atol=1.0)


@pytest.mark.slow
def test_train_with_tasks_and_checkpoints_and_loops_by_hand() -> None:
    names: dict[str, Any] = {}
    complete, _, training, alternating, by_hand = blocks()[1:6]
    exec(complete, names)
    exec(training, names)
    assert names["history"].nll.min() < 0.2
    assert (names["logs"] / "checkpoints").is_dir()
    assert any((names["logs"] / "tensorboard").glob("events*"))
    model, data = names["model"], (names["X"], names["Y"])
    model.num_data = len(data[0])
    for block in (alternating, by_hand):
        model.q_mu.assign(np.zeros_like(model.q_mu))
        before = float(model.elbo(data))
        exec(block, names)
        assert float(model.elbo(data)) > before + 100.0


def test_one_s_own_likelihood_and_its_wrong_twin() -> None:
    names: dict[str, Any] = {}
    exec(blocks()[7], names)
    cauchy = names["Cauchy"](0.7)
    assert isinstance(cauchy, gpflow_aaci.likelihoods.SuperGaussianLikelihood)
    names["Cauchy"].log_phi = lambda self, r: -(r**2)
    with pytest.raises(ValueError, match="derivative of order 2 has the wrong sign at r ="):
        gpflow_aaci.check_likelihood(cauchy, np.zeros((1, 1)))


def test_exact_sampling_mixes() -> None:
    names: dict[str, Any] = {"np": np, "gpflow": gpflow, "gpflow_aaci": gpflow_aaci}
    exec(blocks()[8], names)
    diagnostics = names["arviz"].summary(names["samples"], kind="diagnostics")
    assert diagnostics.r_hat.max() < 1.02
    assert diagnostics.ess_bulk.min() > 400


@pytest.mark.slow
def test_the_estimator_in_a_pipeline() -> None:
    names: dict[str, Any] = {"gpflow_aaci": gpflow_aaci}
    exec(blocks()[9], names)
    lower, y, upper = (names[name] for name in ("lower", "y", "upper"))
    assert 0.85 < np.mean((lower <= y) & (y <= upper)) < 0.95
