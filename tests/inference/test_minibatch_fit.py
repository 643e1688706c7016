"""
Many rows of many classes: when minibatches are used, and that they fit as well as full batches.
"""

import os
import signal
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from gpflow.base import AnyNDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import log_loss

import gpflow_aaci
from gpflow_aaci import AugmentedSVGP, AugmentedVGP, likelihoods
from gpflow_aaci.inference import minibatch_fit
from gpflow_aaci.inference.minibatch_fit import is_for_minibatches
from gpflow_aaci.inference.settings import SETTINGS
from gpflow_aaci.sklearn import AugmentedGPClassifier

MANY = int(SETTINGS.most_cost)


def with_settings(monkeypatch: pytest.MonkeyPatch, **settings: float) -> None:
    monkeypatch.setattr(minibatch_fit, "SETTINGS", SETTINGS._replace(**settings))


def made(likelihood: Any, Z: AnyNDArray, **kwargs: Any) -> AugmentedSVGP:
    L = likelihood.latent_dim or 1
    kernel = gpflow.kernels.SquaredExponential(lengthscales=[1.0] * Z.shape[1])
    model = AugmentedSVGP(kernel, likelihood, Z, num_latent_gps=L, **kwargs)
    gpflow.set_trainable(model.inducing_variable, False)
    return model


def three_classes(n: int, seed: int) -> tuple[AnyNDArray, AnyNDArray]:
    """Labels drawn from a softmax of three functions of two columns."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2.0, 2.0, (n, 2))
    f = 3.0 * np.column_stack([np.sin(2.0 * X[:, 0]), X[:, 1], np.cos(X.sum(1))])
    return X, np.argmax(f + rng.gumbel(size=f.shape), 1)


def test_many_are_rows_times_classes_in_memory() -> None:
    """Digits, any number of rows of two classes, and heteroscedastic noise do not count as many."""
    Z = np.zeros((1, 2))
    ten, two = likelihoods.LogisticSoftmax(10), likelihoods.Logistic()

    def rows(number: int) -> tuple[AnyNDArray, AnyNDArray]:
        return np.zeros((number, 2)), np.zeros((number, 1))

    assert not is_for_minibatches(made(ten, Z), rows(MANY // 10))
    assert is_for_minibatches(made(ten, Z), rows(MANY // 10 + 1))
    assert not is_for_minibatches(made(ten, Z), rows(1_797))
    assert not is_for_minibatches(made(two, Z), rows(10 * MANY))
    noise = likelihoods.Heteroscedastic(likelihoods.Gaussian())
    assert not is_for_minibatches(made(noise, Z), rows(10 * MANY))
    stream = tf.data.Dataset.from_tensor_slices(rows(MANY)).batch(100)
    assert not is_for_minibatches(made(ten, Z), stream)
    full = AugmentedVGP(rows(2), gpflow.kernels.Matern32(), ten, num_latent_gps=10)
    assert not is_for_minibatches(full, None)


@pytest.mark.slow
def test_a_run_that_is_killed_goes_on_in_the_part_that_it_was_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y = three_classes(120, seed=0)
    with_settings(monkeypatch, dear_closed_form_steps=6, dear_standard_steps=4, most_cost=100.0)
    data = X, y[:, None].astype(float)
    softmax = [likelihoods.LogisticSoftmax(3) for _ in range(3)]
    whole, stopped, resumed = (made(each, X[:10].copy(), num_data=len(X)) for each in softmax)
    expected = gpflow_aaci.fit(whole, data, progress=False)

    usual = minibatch_fit.train

    def train_but_die(model: Any, *args: Any, objective: str = "augmented", **how: Any) -> Any:
        if objective == "augmented":
            raise KeyboardInterrupt
        return usual(model, *args, **how)

    monkeypatch.setattr(minibatch_fit, "train", train_but_die)
    with pytest.raises(KeyboardInterrupt):
        gpflow_aaci.fit(stopped, data, checkpoint_dir=tmp_path, progress=False)
    monkeypatch.setattr(minibatch_fit, "train", usual)
    found = gpflow_aaci.fit(resumed, data, checkpoint_dir=tmp_path, progress=False)
    assert found.route == "train"
    assert found.elbo == pytest.approx(expected.elbo, rel=1e-12)
    np.testing.assert_allclose(resumed.q_mu, whole.q_mu, rtol=1e-10, atol=1e-12)


def ctrl_c_after(step: int) -> gpflow.monitor.Monitor:
    """A monitor that simulates Ctrl-C at the given step."""
    calls: list[int] = []

    def press() -> None:
        calls.append(0)
        if len(calls) == step:
            os.kill(os.getpid(), signal.SIGINT)

    task = gpflow.monitor.ExecuteCallback(press)
    return gpflow.monitor.Monitor(gpflow.monitor.MonitorTaskGroup(task))


@pytest.mark.briefly("3")
@pytest.mark.parametrize("steps", [0, 3])
def test_where_the_first_part_is_interrupted_the_second_does_not_begin(
    monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    X, y = three_classes(60, seed=0)
    parts = []

    def interrupted(
        model: Any, rows: Any, objective: str = "augmented", **how: Any
    ) -> pd.DataFrame:
        parts.append(objective)
        history = [[steps, 0.1, -1.0, np.nan]] if steps else []
        return pd.DataFrame(history, columns=["step", "seconds", objective, "nll"])

    monkeypatch.setattr(minibatch_fit, "train", interrupted)
    with_settings(monkeypatch, most_cost=10.0)
    model = made(likelihoods.LogisticSoftmax(3), X[:10].copy(), num_data=len(X))
    result = gpflow_aaci.fit(model, (X, y[:, None].astype(float)), progress=False)
    assert parts == ["augmented"]
    assert not result.converged
    assert result.reason == "it was interrupted"
    assert np.isfinite(result.elbo)
    assert result.history.step.tolist() == ([steps] if steps else [])


@pytest.mark.replicate
@pytest.mark.slow
def test_a_fit_that_is_interrupted_in_both_parts_goes_on_to_the_undisturbed_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y = three_classes(120, seed=0)
    data = X, y[:, None].astype(float)
    with_settings(monkeypatch, dear_closed_form_steps=6, dear_standard_steps=4, most_cost=100.0)
    usual = minibatch_fit.train

    def fitted(part: str = "", **how: Any) -> tuple[AugmentedSVGP, Any]:
        """
        A model and its ``fit``, interrupted by Ctrl-C after two steps of the given part, if any.
        """

        def pressed(model: Any, *args: Any, objective: Any = "augmented", **options: Any) -> Any:
            monitor = ctrl_c_after(2) if objective == part else None
            return usual(model, *args, objective=objective, monitor=monitor, **options)

        monkeypatch.setattr(minibatch_fit, "train", pressed)
        model = made(likelihoods.LogisticSoftmax(3), X[:10].copy(), num_data=len(X))
        return model, gpflow_aaci.fit(model, data, progress=False, **how)

    whole, expected = fitted()
    assert not expected.converged  # a fixed number of steps says nothing of what more would gain
    for part in ("augmented", "standard"):
        _, stopped = fitted(part, checkpoint_dir=tmp_path)
        assert not stopped.converged
        assert stopped.reason == "it was interrupted"
    resumed, found = fitted(checkpoint_dir=tmp_path)
    assert found.reason == expected.reason
    assert found.elbo == pytest.approx(expected.elbo, rel=1e-12)
    for ours, theirs in zip(resumed.variables, whole.variables, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-12)


@pytest.mark.slow
def test_minibatches_find_what_the_profile_of_all_rows_finds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The ELBO and predictions are about as good, and q is almost optimal for its parameters."""
    X, y = three_classes(400, seed=0)
    X_new, y_new = three_classes(2_000, seed=1)
    data = X, y[:, None].astype(float)

    def fresh() -> AugmentedSVGP:
        mean = gpflow.functions.Constant(-np.log(3.0))
        softmax = likelihoods.LogisticSoftmax(3)
        return made(softmax, X[:30].copy(), mean_function=mean, num_data=len(X))

    whole, parts = fresh(), fresh()
    full = gpflow_aaci.fit_collapsed(whole, data, progress=False)
    with_settings(monkeypatch, most_cost=1_000.0)
    found = gpflow_aaci.fit(parts, data, progress=False)
    assert found.route == "train"
    assert not found.converged  # a fixed number of steps says nothing of what more would gain
    assert found.elbo > full.objective - 0.03 * len(X)
    nll, least = (log_loss(y_new, each.predict_y(X_new)[0]) for each in (parts, whole))
    assert nll < least + 0.02
    assert gpflow_aaci.polish(parts, data, progress=False).gain < 0.01 * len(X)


@pytest.mark.slow
def test_estimators_take_the_same_route(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = three_classes(400, seed=0)
    few = {"dear_closed_form_steps": 1, "dear_standard_steps": 1}
    with_settings(monkeypatch, most_cost=1_000.0, **few)
    estimator = AugmentedGPClassifier(num_inducing=10, multiclass="softmax", random_state=0)
    with pytest.warns(ConvergenceWarning):
        assert estimator.fit(X, y).fit_result_.route == "train"
