"""The code on the pages of the documentation runs, and the table of functions is right."""

import ast
import re
import runpy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gpflow
import matplotlib.pyplot as plt
import nbformat
import numpy as np
import pytest
import tensorflow as tf
from printed import text_and_numbers

import gpflow_aaci
from gpflow_aaci.data.datasets import untuned
from gpflow_aaci.inference import hyperparameter_search, minibatch_fit
from gpflow_aaci.inference.settings import SETTINGS

DOCS = Path(__file__).parents[2] / "docs"


def blocks(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)


def test_every_page_with_python_is_run_here() -> None:
    assert {path.name for path in DOCS.glob("*.md") if blocks(path.name)} == {
        "from_gpflow.md",
        "inducing_points.md",
        "intervals.md",
        "kernels.md",
        "likelihoods.md",
        "missing_and_censored.md",
        "multi_output.md",
        "new_data.md",
        "priors.md",
        "scikit_learn.md",
        "training.md",
        "tutorial.md",
        "tutorial_classification.md",
        "tutorial_counts.md",
        "tutorial_survival.md",
        "which_model.md",
    }


@pytest.mark.slow
def test_which_model() -> None:
    names: dict[str, Any] = {}
    chosen, fitted = blocks("which_model.md")
    exec(chosen, names)
    assert isinstance(names["choice"].model, gpflow_aaci.AugmentedNNGP)
    exec(fitted, names)
    assert np.all(names["low"] < names["high"])


@pytest.mark.slow
def test_training_loops() -> None:
    names: dict[str, Any] = {}
    data, training, alternating, by_hand = blocks("training.md")
    exec(data, names)
    exec(training, names)
    assert names["history"].nll.min() < 0.2
    assert (names["logs"] / "checkpoints").is_dir()
    assert any((names["logs"] / "tensorboard").glob("events*"))
    model, rows = names["model"], (names["X"], names["Y"])
    model.num_data = len(rows[0])
    for block in (alternating, by_hand):
        model.q_mu.assign(np.zeros_like(model.q_mu))
        before = float(model.augmented_elbo(rows))
        exec(block, names)
        assert float(model.augmented_elbo(rows)) > before + 100.0


def test_the_notebook_is_the_tutorial() -> None:
    """docs/_tools/notebook.py writes it again; its cells run in turn as the page's blocks."""
    notebook = runpy.run_path(str(DOCS / "_tools" / "notebook.py"))
    page, stored = (DOCS / "tutorial.md").read_text(), (DOCS / "tutorial.ipynb").read_text()
    assert notebook["notebook_of"](page) == stored
    made = nbformat.reads(stored, as_version=4)
    nbformat.validate(made)
    code = [cell.source for cell in made.cells if cell.cell_type == "code"]
    assert code == [block.strip() for block in blocks("tutorial.md")]
    assert not re.search(r"\{download\}|\.md|```", str(made.cells))


def run(page: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """The names after all blocks of a page, which must print what the page shows."""
    text_of_page, names = (DOCS / page).read_text(), dict[str, Any]()
    for block in blocks(page):
        exec(block, names)
        after = text_of_page.partition(block)[2].removeprefix("```\n\n")
        printed = capsys.readouterr().out
        assert bool(printed) is after.startswith("```text\n"), block
        if printed:
            shown = after.removeprefix("```text\n").partition("```")[0]
            (text, numbers), (text_shown, numbers_shown) = map(text_and_numbers, (printed, shown))
            assert text == text_shown
            np.testing.assert_allclose(numbers, numbers_shown, rtol=0.03)
    plt.close("all")
    return names


@pytest.mark.slow
def test_tutorial(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plt, "show", lambda: None)
    names = run("tutorial.md", capsys)
    rows = names["table"].to_numpy()[342:, :-1]
    low, _, high = names["served"].predict_y_quantile(rows, [0.05, 0.5, 0.95])[..., 0].numpy()
    y = names["y"][342:, 0]
    assert 0.85 < np.mean((low < y) & (y < high)) < 1.0


@pytest.mark.slow
@pytest.mark.parametrize(
    "page",
    ["kernels.md", "tutorial_classification.md", "tutorial_counts.md", "tutorial_survival.md"],
)
def test_a_page_prints_what_it_shows(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    run(page, capsys)


@pytest.mark.slow
def test_from_gpflow() -> None:
    """GPflow's class, fitted as it is, ends where the augmented model does; both know the truth."""
    names: dict[str, Any] = {}
    for block in blocks("from_gpflow.md"):
        exec(block, names)
    model, stock, X_new = names["model"], names["stock"], names["X_new"]
    np.testing.assert_allclose(stock.elbo((names["X"], names["Y"])), names["result"].elbo, atol=0.1)
    np.testing.assert_allclose(model.predict_f(X_new)[0], np.sin(2.0 * X_new[:, :1]), atol=0.1)
    assert names["gap"] > 1.0


@pytest.mark.slow
def test_priors() -> None:
    names: dict[str, Any] = {}
    (block,) = blocks("priors.md")
    exec(block, names)
    free, held = (names[name].kernel.lengthscales.numpy() for name in ("free", "held"))
    assert free[1] > 5.0 > 2.0 > held[1]
    assert names["held"].log_prior_density() != 0.0


@pytest.mark.slow
def test_multi_output() -> None:
    """Ten rows of the second output alone would leave it unknown for most X."""
    names: dict[str, Any] = {}
    (block,) = blocks("multi_output.md")
    exec(block, names)
    assert np.sqrt(np.mean((names["mean"][:, 1] - names["F"][:, 1]) ** 2)) < 0.15


@pytest.mark.slow
def test_missing_and_censored() -> None:
    names: dict[str, Any] = {}
    (block,) = blocks("missing_and_censored.md")
    exec(block, names)
    truth, sd = np.sin(names["X_new"]), np.sqrt(names["variance"])
    assert np.all(np.abs(names["mean"] - truth) < 3.0 * sd)
    assert sd[0] > 2.0 * sd[1:].max()


@pytest.mark.slow
def test_inducing_points(capsys: pytest.CaptureFixture[str]) -> None:
    """The ELBO rises with M, by ever less."""
    names: dict[str, Any] = {}
    (block,) = blocks("inducing_points.md")
    exec(block, names)
    lines = capsys.readouterr().out.splitlines()
    gains = np.diff([float(line.split()[-1]) for line in lines])
    assert np.all(gains > -0.1)
    assert gains[0] > 10.0 * gains[-1]


def test_intervals(capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = blocks("intervals.md")
    exec(block, {})
    plain, calibrated = (
        float(line.split()[1].rstrip("%")) for line in capsys.readouterr().out.splitlines()
    )
    assert plain < 80.0
    assert abs(calibrated - 90.0) < 6.0


@pytest.mark.slow
def test_times_until_an_event() -> None:
    """The truth is a log-logistic law whose median is e^{1 + sin x}."""
    names: dict[str, Any] = {}
    exec(blocks("likelihoods.md")[0], names)
    at = (np.log([2.0, 5.0]) - 1.0 - np.sin([[-1.5], [1.5]])) / 0.4
    truth = 1.0 / (1.0 + np.exp(at))
    np.testing.assert_allclose(names["median"], truth, atol=0.08)
    assert names["model"].likelihood.base.scale.numpy() == pytest.approx(0.4, abs=0.05)
    assert np.all((names["low"] < names["median"]) & (names["median"] < names["high"]))


@pytest.mark.slow
def test_counts_with_exposure() -> None:
    """The truth is 2 e^{sin 1.6} claims in a year; both models know it about as well."""
    names: dict[str, Any] = {}
    exec(blocks("likelihoods.md")[1], names)
    truth = 2.0 * np.exp(np.sin(1.6))
    low, _, high = names["rate"].numpy().ravel()
    assert low < truth < high
    lower, upper = (end.numpy().item() for end in names["fleet"])
    assert lower < 40.0 * truth < upper
    assert names["mean"].numpy().item() / 40.0 == pytest.approx(truth, rel=0.3)
    plt.close(names["figure"])


@pytest.mark.slow
def test_new_data() -> None:
    names: dict[str, Any] = {}
    first, growing = blocks("new_data.md")
    exec(first, names)
    model, rows = names["model"], (names["X"], names["Y"])
    assert model.num_data == len(rows[0])
    updated = float(model.elbo(rows))
    gpflow_aaci.polish(model, rows, progress=False)  # the best q for all rows at once
    assert 0.0 <= float(model.elbo(rows)) - updated < 1.0
    exec(growing, names)
    model = names["growing"]
    new = gpflow_aaci.AugmentedVGP(
        (rows[0][:150], rows[1][:150]), model.kernel, gpflow_aaci.likelihoods.Logistic()
    )
    best = gpflow_aaci.polish(new, progress=False).elbo
    np.testing.assert_allclose(model.elbo(), best, atol=1e-4)


@pytest.mark.slow
def test_scikit_learn() -> None:
    names: dict[str, Any] = {}
    regression, *others = blocks("scikit_learn.md")
    exec(regression, names)
    assert names["scores"].mean() > 0.4
    inside = (names["lower"] < names["y"]) & (names["y"] < names["upper"])
    assert 0.85 < inside.mean() < 0.95
    for block in others:
        exec(block, names)
    assert names["regressor"].score(names["frame"], names["rent"]) > 0.5
    np.testing.assert_allclose(names["rates"], 0.5, atol=0.1)
    assert np.mean((names["p"][:, 1] > 0.5) == names["y"][1::2]) > 0.93


# ---- which function takes which data ----

X = np.random.default_rng(0).uniform(-2.0, 2.0, (40, 1))
Y = np.sin(2.0 * X)
ONE_PASS = tf.data.Dataset.from_tensor_slices((X, Y)).batch(20)
DATA: dict[str, Callable[[], Any]] = {
    "arrays, frames": lambda: (X, Y),
    "`tf.data.Dataset`, one pass": lambda: ONE_PASS,
    "dataset without end": lambda: ONE_PASS.repeat(),
    "iterator of batches": lambda: iter(untuned(ONE_PASS.repeat())),
    "`AugmentedVGP`": lambda: None,
}
CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "`fit`": lambda model, data: gpflow_aaci.fit(model, data, progress=False),
    "`fit_collapsed`": lambda model, data: gpflow_aaci.fit_collapsed(model, data, progress=False),
    "`polish`": lambda model, data: gpflow_aaci.polish(model, data, max_steps=1, progress=False),
    "`train`": lambda model, data: gpflow_aaci.train(model, data, num_steps=2, progress=False),
    "`AugmentedNaturalGradient.minimize`": lambda model, data: gpflow_aaci.AugmentedNaturalGradient(
        1.0
    ).minimize(model, data),
    "`AlternatingOptimizer.minimize`": lambda model, data: (
        gpflow_aaci.AlternatingOptimizer().minimize(model, data)
    ),
    "`elbo`, `augmented_elbo`, `augmentation_gap`": lambda model, data: [
        bound(data) for bound in (model.elbo, model.augmented_elbo, model.augmentation_gap)
    ],
    "`update`": lambda model, data: gpflow_aaci.update(model, data, progress=False),
    "`loo`": lambda model, data: gpflow_aaci.loo(model, data),
    "`sample_posterior`": lambda model, data: gpflow_aaci.sample_posterior(
        model, data, num_samples=20, num_chains=2, num_burnin=1, progress=False
    ),
}


def table() -> list[tuple[str, str, str]]:
    """Triples (function, data, yes or no), one for every cell."""
    lines = (DOCS / "which_function.md").read_text().split("\n\n")[2].splitlines()
    head, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
    return [
        (row[0], kind, cell) for row in rows for kind, cell in zip(head[1:], row[1:], strict=True)
    ]


def test_the_table_has_every_cell() -> None:
    assert {(function, kind) for function, kind, _ in table()} == {
        (function, kind) for function in CALLS for kind in DATA
    }


@pytest.mark.slow
@pytest.mark.parametrize(("function", "kind", "cell"), table())
def test_which_function_takes_which_data(
    function: str, kind: str, cell: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    At "yes" the data are accepted; at "no" the error names alternatives, and the model stays as is.
    """
    small = SETTINGS._replace(most_steps=2, endless_standard_steps=2)
    monkeypatch.setattr(gpflow_aaci.inference.minibatch_fit, "SETTINGS", small)
    kernel, likelihood = gpflow.kernels.Matern32(), gpflow_aaci.likelihoods.StudentT(0.2, 4.0)
    model: Any
    if kind == "`AugmentedVGP`":
        model = gpflow_aaci.AugmentedVGP((X, Y), kernel, likelihood)
    else:
        model = gpflow_aaci.AugmentedSVGP(kernel, likelihood, X[:5].copy(), num_data=len(X))
    before = [variable.numpy() for variable in model.variables]
    if cell.startswith("yes"):
        CALLS[function](model, DATA[kind]())
        return
    assert cell == "no"
    with pytest.raises(ValueError, match=r"(data|model) must be"):
        CALLS[function](model, DATA[kind]())
    for value, variable in zip(before, model.variables, strict=True):
        np.testing.assert_array_equal(value, variable.numpy())


# ---- how fit works: every phrase is one that the code says, and every warning is on the page ----

INFERENCE = Path(gpflow_aaci.__file__).parent / "inference"
SPEAKERS = ("advice", "collapsed", "fit", "hyperparameter_search", "minibatch_fit", "stopping")
GAP = "…"


def strings(source: str) -> Iterator[str]:
    """The strings of a module, with "…" for what an f-string puts in."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.JoinedStr):
            yield "".join(
                part.value if isinstance(part, ast.Constant) else GAP for part in node.values
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def test_what_fit_says_is_on_its_page() -> None:
    page = (DOCS / "how_fit_works.md").read_text().split("## What it prints")[1]
    sources = {name: (INFERENCE / f"{name}.py").read_text() for name in SPEAKERS}
    said = [text for source in sources.values() for text in strings(source)]
    said.append(minibatch_fit._no_longer_rises())
    cells = re.findall(r"^\|(.*?)\|", page, re.MULTILINE)
    quoted = [
        phrase for cell in cells for phrase in re.findall('"(.*?)"', cell) if "=" not in phrase
    ]
    assert len(quoted) > 15
    for phrase in quoted:
        assert any(phrase.removesuffix(f" {GAP}") in text for text in said), phrase
    for module in (hyperparameter_search, minibatch_fit):
        for name, reason in vars(module).items():
            if re.fullmatch("_[A-Z_]+", name) and isinstance(reason, str) and " " in reason:
                assert f'"{reason}"' in page, reason
    warned = [text for text in strings(sources["advice"]) if GAP in text and len(text) > 40]
    assert len(warned) > 6
    for text in warned:
        assert any(phrase in text for phrase in quoted) or text.startswith(f"The {GAP}."), text
