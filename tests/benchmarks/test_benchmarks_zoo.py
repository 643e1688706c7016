"""Benchmarks of classes, counts, quantiles and a warped y: data, models, metrics and configs."""

from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pytest
import scipy.stats
import sklearn.datasets
import sklearn.metrics

from benchmarks.config import ConfigError, LikelihoodConfig, Problem, load_config
from benchmarks.datasets import Split, load_dataset, made_up
from benchmarks.methods import make_model, make_start
from benchmarks.metrics import evaluator

pytestmark = pytest.mark.slow

CONFIGS = Path(__file__).parents[2] / "configs"


def problem(data: str, name: str, in_units_of_y: bool = False, **options: Any) -> Problem:
    likelihood = LikelihoodConfig(name=name, **options)
    return Problem(data=data, likelihood=likelihood, in_units_of_y=in_units_of_y)


def split_of(of: Problem, folder: Path = Path()) -> Split:
    return load_dataset(of, folder).split(0.25, seed=0)


def trained(
    of: Problem, folder: Path = Path(), steps: int = 10, **options: Any
) -> tuple[Any, Split]:
    """The model after some steps of L-BFGS, so that q is neither the prior nor converged."""
    split = split_of(of, folder)
    model = make_model(make_start(split, of, 20, seed=0), True, **options)
    loss = model.training_loss_closure((split.X, split.Y))
    gpflow.optimizers.Scipy().minimize(loss, model.trainable_variables, options={"maxiter": steps})
    return model, split


def columns(folder: Path, X: np.ndarray, y: np.ndarray) -> str:
    np.savetxt(folder / "own.csv", np.column_stack([y, X]), delimiter=",", fmt="%.17g")
    return "own.csv"


# ---- data ----


def test_classes_are_numbered_in_sorted_order_and_none_is_scaled(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    data = columns(tmp_path, rng.normal(size=(40, 2)), rng.choice([2.0, 5.0, 7.0], 40))
    of = Problem(data=data, target=0, likelihood=LikelihoodConfig(name="LogisticSoftmax"))
    dataset = load_dataset(of, tmp_path)
    assert set(dataset.y) == {0.0, 1.0, 2.0}
    split = dataset.split(0.25, seed=0)
    assert split.num_classes == 3
    assert set(np.ravel(split.Y)) == {0, 1, 2}


@pytest.mark.parametrize("odd", [-1.0, 0.5])
def test_what_is_no_count_is_refused(tmp_path: Path, odd: float) -> None:
    data = columns(tmp_path, np.arange(6.0)[:, None], np.array([0.0, 1.0, odd, 3.0, 4.0, 5.0]))
    of = Problem(data=data, target=0, likelihood=LikelihoodConfig(name="Poisson"))
    with pytest.raises(ConfigError, match=rf"counts\. Found: \[{odd:.1f}".replace(".0", r"\.")):
        load_dataset(of, tmp_path)


def test_a_logarithm_is_taken_of_a_positive_y_that_is_not_centred(tmp_path: Path) -> None:
    y = np.random.default_rng(0).gamma(2.0, size=40)
    data = columns(tmp_path, np.arange(40.0)[:, None], y)
    log = LikelihoodConfig(name="Gaussian", warp="Log")
    split = split_of(Problem(data=data, target=0, likelihood=log, in_units_of_y=True), tmp_path)
    assert np.all(split.Y > 0.0)
    assert np.std(split.Y) == pytest.approx(1.0)
    assert set(np.round(split.y_scale * np.ravel(split.Y), 9)) <= set(np.round(y, 9))
    columns(tmp_path, np.arange(40.0)[:, None], y - 1.0)
    with pytest.raises(ConfigError, match="target must be positive for Log"):
        load_dataset(Problem(data=data, target=0, likelihood=log), tmp_path)


def test_made_up_y_is_of_the_likelihood() -> None:
    counts = problem("synthetic:protein", "NegativeBinomial")
    real = problem("synthetic:protein", "Laplace", parameters={"scale": 2.0})
    along = []  # f hardly changes along such a row of inputs
    for of in (counts, real):
        X, y = made_up((40_000, 1), of)
        along.append(y[np.argsort(X[:, 0])].reshape(-1, 100))
    mean, variance = along[0].mean(axis=1), along[0].var(axis=1, ddof=1)
    assert np.sum(mean**2) / np.sum(variance - mean) == pytest.approx(3.0, rel=0.1)
    assert np.mean(along[1].var(axis=1, ddof=1)) == pytest.approx(2.0 * 0.3**2, rel=0.1)
    with pytest.raises(ConfigError, match="must not be made up for LogisticSoftmax"):
        load_dataset(problem("synthetic:protein", "LogisticSoftmax"), Path())


# ---- models ----


def test_classes_have_a_latent_gp_each_of_a_mean_of_minus_log_k() -> None:
    of = problem("iris", "LogisticSoftmax")
    start = make_start(split_of(of), of, 10, seed=0)
    ours = make_model(start, True)
    assert ours.num_latent_gps == ours.likelihood.num_classes == 3
    np.testing.assert_allclose(ours.mean_function.c, -np.log(3.0))
    theirs = make_model(start, False, "MultiClass")
    assert isinstance(theirs.likelihood, gpflow.likelihoods.MultiClass)
    np.testing.assert_array_equal(ours.inducing_variable.Z, theirs.inducing_variable.Z)


# ---- metrics ----


@pytest.mark.replicate
def test_of_classes() -> None:
    model, split = trained(problem("iris", "LogisticSoftmax"), steps=4)
    measured = evaluator(model, split)()
    p, label = model.predict_y(split.X_test)[0].numpy(), split.Y_test[:, 0]
    assert measured.error == pytest.approx(np.mean(np.argmax(p, 1) != label))
    assert measured.nll == pytest.approx(sklearn.metrics.log_loss(label, p), rel=1e-4)


def test_gpflows_softmax_gets_the_whole_numbers_that_it_takes() -> None:
    of = problem("iris", "LogisticSoftmax")
    model = make_model(make_start(split_of(of), of, 20, seed=0), False, "Softmax")
    nll = evaluator(model, split_of(of))().nll
    assert nll == pytest.approx(np.log(3.0), abs=0.2)  # under the prior, all classes are alike


@pytest.mark.replicate
def test_of_counts() -> None:
    of = Problem(
        data="synthetic:protein", rows=300, likelihood=LikelihoodConfig(name="NegativeBinomial")
    )
    model, split = trained(of)
    measured = evaluator(model, split)()
    Fmu, Fvar = (value.numpy() for value in model.predict_f(split.X_test))
    z, weight = np.polynomial.hermite_e.hermegauss(60)
    r, y = model.likelihood.total_count.numpy(), split.Y_test[..., None]
    success = 1.0 / (1.0 + np.exp(Fmu[..., None] + np.sqrt(Fvar)[..., None] * z))
    weight /= weight.sum()
    nll = -np.mean(np.log(scipy.stats.nbinom.pmf(y, r, success) @ weight))
    assert measured.nll == pytest.approx(nll, rel=1e-5)
    zeros = np.mean(scipy.stats.nbinom.pmf(0, r, success) @ weight) - np.mean(y == 0)
    assert measured.calibration == pytest.approx(zeros, rel=1e-4)


@pytest.mark.replicate
def test_of_quantiles() -> None:
    of = problem("diabetes", "AsymmetricLaplace", parameters={"quantile": 0.8, "scale": 0.3})
    model, split = trained(of)
    measured = evaluator(model, split)()
    curve = model.predict_f(split.X_test)[0].numpy()
    loss = sklearn.metrics.mean_pinball_loss(split.Y_test, curve, alpha=0.8)
    assert measured.error == pytest.approx(loss)
    assert measured.calibration == np.mean(split.Y_test <= curve)


@pytest.mark.parametrize("warp", [None, pytest.param("Log", marks=pytest.mark.slow)])
def test_in_units_of_y_the_jacobian_counts(warp: Any) -> None:
    of = problem("diabetes", "Gaussian", in_units_of_y=True, warp=warp)
    model, split = trained(of)
    measured = evaluator(model, split)()
    Fmu, Fvar = (value.numpy() for value in model.predict_f(split.X_test))
    _, y = sklearn.datasets.load_diabetes(return_X_y=True)
    test = y[np.random.default_rng(0).permutation(len(y))[: len(Fmu)], None]
    noise = model.likelihood if warp is None else model.likelihood.base
    sd = np.sqrt(Fvar + noise.noise_variance().numpy())
    if warp is None:  # y = mean + scale (f + ε)
        mean = test[0] - split.y_scale * split.Y_test[0]
        law = scipy.stats.norm(mean + split.y_scale * Fmu, split.y_scale * sd)
        rmse = np.sqrt(np.mean((mean + split.y_scale * Fmu - test) ** 2))
        assert measured.error == pytest.approx(rmse)
    else:  # y = scale e^{f + ε}
        law = scipy.stats.lognorm(sd, scale=split.y_scale * np.exp(Fmu))
    assert measured.nll == pytest.approx(-np.mean(law.logpdf(test)), rel=1e-8)


# ---- configs ----


@pytest.mark.parametrize("name", ["classes", "counts", "quantiles", "warped"])
def test_the_config_is_valid(name: str) -> None:
    assert load_config(CONFIGS / f"{name}.toml").experiment == "convergence"


@pytest.mark.parametrize(
    ("name", "override", "message"),
    [
        ("counts", 'method.5.likelihood="Softmax"', "Softmax is of another y than Negative"),
        ("quantiles", 'problem.0.likelihood.warp="Log"', "warp: must be of a real y"),
        ("quantiles", "method.0.likelihood='Softmax'", "unknown: likelihood"),
        ("classes", "method.0.likelihood='Poisson'", "Poisson is of another y than LogisticSoftm"),
        (
            "table2_sampling",
            'problem.0.likelihood={name="Poisson"}',
            "likelihood.name: Input should be",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(name: str, override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_config(CONFIGS / f"{name}.toml", [override])
