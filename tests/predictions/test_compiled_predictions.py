"""Predictions that are asked for again are compiled, and still follow the model."""

from collections.abc import Callable, Iterator
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from check_shapes.exceptions import ShapeMismatchError
from gpflow.base import AnyNDArray

from gpflow_aaci import AugmentedSVGP, AugmentedVGP, fit_collapsed, likelihoods, loo
from gpflow_aaci.criticism.calibration import pit
from gpflow_aaci.predictions import predict_y_cdf
from gpflow_aaci.runtime import compiled as sharing
from gpflow_aaci.runtime.compiled import forget_compiled

RNG = np.random.default_rng(0)
X = RNG.uniform(-2.0, 2.0, (12, 2))
COUNTS = RNG.poisson(np.exp(np.sin(X[:, :1]))).astype(float)

Ask = Callable[[AugmentedSVGP, AnyNDArray, AnyNDArray], Any]
ASKED: dict[str, Ask] = {
    "predict_f": lambda model, X, Y: model.predict_f(X),
    "predict_f, full_cov": lambda model, X, Y: model.predict_f(X, full_cov=True),
    "predict_y": lambda model, X, Y: model.predict_y(X),
    "predict_log_density": lambda model, X, Y: model.predict_log_density((X, Y)),
    "predict_y_cdf": lambda model, X, Y: predict_y_cdf(model, X, Y),
    "pit": lambda model, X, Y: pit(model, (X, Y)),
    "loo": lambda model, X, Y: [loo(model, (X, Y)).loo_i.values, loo(model, (X, Y)).p_loo],
}


@pytest.fixture(autouse=True)
def _nothing_is_compiled() -> Iterator[None]:
    forget_compiled()
    yield
    forget_compiled()


def make(
    likelihood: Callable[[], gpflow.likelihoods.Likelihood] = likelihoods.Poisson,
    kernel: gpflow.kernels.Kernel | None = None,
) -> AugmentedSVGP:
    kernel = kernel or gpflow.kernels.Matern52(lengthscales=[1.0, 0.7])
    model = AugmentedSVGP(kernel, likelihood(), X[:5].copy(), num_data=len(X))
    model.q_mu.assign(RNG.normal(size=model.q_mu.shape))
    return model


def operation_by_operation(ask: Ask, *arguments: Any) -> list[AnyNDArray]:
    tf.config.run_functions_eagerly(True)
    try:
        return [np.asarray(part) for part in tf.nest.flatten(ask(*arguments))]
    finally:
        tf.config.run_functions_eagerly(False)


def count_calls(monkeypatch: pytest.MonkeyPatch, of: type, name: str) -> list[int]:
    """The numbers of rows with which a method runs in Python: as a graph it does not."""
    calls, method = [], getattr(of, name)

    def counted(self: Any, X: Any, *others: Any, **named: Any) -> Any:
        calls.append(X.shape[0])
        return method(self, X, *others, **named)

    monkeypatch.setattr(of, name, counted)
    return calls


@pytest.mark.briefly("predict_f")
@pytest.mark.by_default("loo", "predict_f")
@pytest.mark.filterwarnings("ignore:q is not at its optimum", "ignore:.* have an improper cavity")
@pytest.mark.parametrize("name", ASKED)
def test_what_is_asked_again_is_the_same_and_follows_the_model(name: str) -> None:
    ask, model = ASKED[name], make()
    ask(model, X, COUNTS)
    for scale, rows in ((1.0, X), (2.5, X), (0.7, X[::-1])):
        model.kernel.variance.assign(scale)
        model.q_mu.assign(scale * model.q_mu)
        found = [np.asarray(part) for part in tf.nest.flatten(ask(model, rows, COUNTS))]
        expected = operation_by_operation(ask, model, rows, COUNTS)
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


def test_models_alike_share_the_graph_for_any_number_of_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls = count_calls(monkeypatch, likelihoods.Poisson, "_predict_mean_and_var")
    for number in (3, 7, 5):
        make().predict_y(X[:number])
    assert calls == [3, 7, None]  # twice step by step, and once while it was traced
    for number in (1, 12):
        model = make()
        model.predict_y(X[:number])
    assert calls == [3, 7, None]


def test_a_model_that_was_fitted_compiles_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model = AugmentedVGP((X, COUNTS), gpflow.kernels.Matern52(), likelihoods.Poisson())
    fit_collapsed(model, progress=False)
    calls = count_calls(monkeypatch, likelihoods.Poisson, "_predict_mean_and_var")
    model.predict_y(X[:3])
    model.predict_y(X)
    assert calls == [None]


def test_more_structures_in_turns_than_are_kept_are_not_compiled_each_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sharing, "_MOST_TWINS", 1)
    calls = count_calls(monkeypatch, likelihoods.Poisson, "_predict_mean_and_var")
    models = [make(), make(kernel=gpflow.kernels.Matern32())]
    for _ in range(5):
        for model in models:
            model.predict_y(X)
    # Each twice step by step and once while it was traced; the first has lost its graph since.
    assert calls.count(None) <= 2
    assert len(calls) <= 9


def test_a_replaced_part_and_another_jitter_are_seen() -> None:
    model = make()
    for _ in range(3):
        model.predict_f(X)
    model.kernel = gpflow.kernels.Cosine(lengthscales=[2.0, 2.0])
    model.q_mu = gpflow.Parameter(3.0 * model.q_mu.numpy())
    for jitter in (1e-6, 1e-2):
        with gpflow.config.as_context(gpflow.config.Config(jitter=jitter)):
            found = model.predict_f(X)
            expected = operation_by_operation(ASKED["predict_f"], model, X, COUNTS)
            np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.briefly("predict_f")
@pytest.mark.parametrize("name", ["predict_f", "predict_y", "predict_log_density"])
def test_gradients_reach_the_model_and_new_inputs(name: str) -> None:
    """A graph that reads a twin's variables would leave them unconnected."""
    model, at = make(), tf.constant(X)
    for _ in range(3):
        ASKED[name](model, X, COUNTS)
    with tf.GradientTape() as tape:
        tape.watch(at)
        total = tf.add_n(
            [tf.reduce_sum(p) for p in tf.nest.flatten(ASKED[name](model, at, COUNTS))]
        )
    variables = [at, *model.kernel.trainable_variables, model.q_mu.unconstrained_variable]
    for slope in tape.gradient(total, variables):
        assert np.any(np.abs(slope) > 1e-3)


class Bent(gpflow.kernels.SquaredExponential):
    """A kernel with a state in Python, which no graph would see."""

    power = 1.0

    def K(self, X: Any, X2: Any = None) -> Any:
        return super().K(X, X2) ** self.power


def test_a_kernel_of_the_user_s_is_never_compiled() -> None:
    model = make(kernel=Bent())
    for power in (1.0, 1.0, 1.0, 2.0):
        model.kernel.power = power
        found = model.predict_f(X)
    model.kernel = gpflow.kernels.SquaredExponential(lengthscales=np.sqrt(0.5))
    np.testing.assert_allclose(found, model.predict_f(X), rtol=1e-6, atol=1e-9)


def test_bad_inputs_are_refused_in_the_same_words() -> None:
    said = []
    model = make()
    for _ in range(3):
        model.predict_f(X)
        with pytest.raises(ShapeMismatchError, match=r"\[12, 1\]") as refused:
            model.predict_f(X[:, :1])
        said.append((type(refused.value), str(refused.value)))
        with pytest.raises(ValueError, match="Y must hold whole numbers from 0 up"):
            model.predict_log_density((X, COUNTS - 3.0))
    assert len(set(said)) == 1
