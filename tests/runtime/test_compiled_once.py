"""Models of equal structure share their compiled functions, and nothing else."""

import copy
import gc
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import AnyNDArray
from gpflow.utilities import parameter_dict

from gpflow_aaci import (
    AugmentedSVGP,
    AugmentedVGP,
    fit,
    fit_collapsed,
    likelihoods,
    polish,
    update,
)
from gpflow_aaci.inference.profile import Profile
from gpflow_aaci.models import hyperparameters
from gpflow_aaci.runtime import compiled as sharing
from gpflow_aaci.runtime.graphs import compiled, read_as
from gpflow_aaci.runtime.structure import structure_of

Model = AugmentedSVGP | AugmentedVGP
Pair = tuple[AnyNDArray, AnyNDArray]
Change = Callable[[AugmentedSVGP], Any]
Values = dict[str, AnyNDArray]


@pytest.fixture(autouse=True)
def _nothing_is_compiled() -> Iterator[None]:
    sharing.forget_compiled()
    yield
    sharing.forget_compiled()


def waves(seed: int, N: int = 40) -> Pair:
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2.0, 2.0, (N, 2))
    return X, np.sin((1 + seed) * X[:, :1]) + 0.2 * rng.normal(size=(N, 1))


def make(**changes: Any) -> AugmentedSVGP:
    arguments: dict[str, Any] = {
        "kernel": gpflow.kernels.SquaredExponential(lengthscales=[1.0, 1.0]),
        "likelihood": gpflow.likelihoods.StudentT(scale=0.3, df=4.0),
        "inducing_variable": waves(9)[0][:6].copy(),
    }
    model = AugmentedSVGP(**(arguments | changes))
    gpflow.set_trainable(model.inducing_variable, False)
    return model


def quick(model: Model, data: Pair | None) -> float:
    """Fit with few iterations, and return the seconds spent on tracing."""
    return fit_collapsed(model, data, tolerance=1e-2, progress=False).tracing_seconds


def values(model: Model) -> Values:
    return {path: p.unconstrained_variable.numpy() for path, p in parameter_dict(model).items()}


def assert_same_values(one: Model, other: Model) -> None:
    for path, value in values(one).items():
        np.testing.assert_array_equal(value, values(other)[path], path)


def fitted_alone(model: Model, data: Pair | None) -> Model:
    """A copy of the model, fitted by functions that are compiled for it alone."""
    alone = copy.deepcopy(model)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sharing, "structure_of", lambda model: None)
        assert quick(alone, data) > 0.0
    return alone


def structure(model: Model) -> Any:
    found = structure_of(model)
    return found and found.constants


# ---- models that share compiled functions ----


@pytest.mark.slow
def test_the_second_fit_of_a_structure_traces_nothing_and_is_to_the_bit_one_traced_afresh() -> None:
    """
    The second model has other data, another number of rows and other values of all parameters.
    """
    first, second = make(num_data=40), make(num_data=47)
    second.inducing_variable.Z.assign(waves(3)[0][:6])
    second.kernel.variance.assign(2.0)
    alone = fitted_alone(second, waves(1, 47))
    assert quick(first, waves(0)) > 0.0
    assert quick(second, waves(1, 47)) == 0.0
    assert_same_values(second, alone)


@pytest.mark.parametrize("run", [polish, update])
@pytest.mark.slow
def test_other_fits_share_their_functions_too(
    run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    traced = []
    original = sharing.compiled

    def counted(function: Any, **options: Any) -> Any:
        traced.append(function)
        return original(function, **options)

    monkeypatch.setattr(sharing, "compiled", counted)
    run(make(), waves(0), progress=False)
    assert traced
    del traced[:]
    model, alone = make(), make()
    run(model, waves(1), progress=False)
    assert not traced
    monkeypatch.setattr(sharing, "structure_of", lambda model: None)
    run(alone, waves(1), progress=False)
    assert traced
    assert_same_values(model, alone)


@pytest.mark.slow
def test_a_vgp_shares_with_one_of_other_data_of_the_same_number_of_rows() -> None:
    def vgp(data: Pair) -> AugmentedVGP:
        return AugmentedVGP(data, gpflow.kernels.Matern32(), likelihoods.Laplace(0.3))

    first, second = vgp(waves(0, 15)), vgp(waves(1, 15))
    alone = fitted_alone(second, None)
    assert quick(first, None) > 0.0
    assert quick(second, None) == 0.0
    for path, value in values(second).items():
        np.testing.assert_allclose(value, values(alone)[path], rtol=1e-9, atol=1e-9)
    assert structure(vgp(waves(0, 16))) != structure(second)


@pytest.mark.slow
def test_fit_says_that_it_compiled_nothing() -> None:
    fit(make(), waves(0), progress=False)
    assert "compiling" not in str(fit(make(), waves(1), progress=False))


@pytest.mark.slow
def test_twins_that_are_not_in_use_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "_MOST_TWINS", 1)
    polish(make(), waves(0), progress=False)
    polish(make(whiten=False), waves(0), progress=False)
    assert len(sharing._POOL._twins) == 1


# ---- models that do not ----


def test_a_large_model_is_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    assert sharing.Compiled(make()).is_shared
    monkeypatch.setattr(sharing, "_MOST_NUMBERS", 40)
    assert not sharing.Compiled(make()).is_shared


CHANGES: dict[str, Change] = {
    "a fixed setting": lambda m: setattr(m.likelihood, "df", 5.0),
    "a class": lambda m: setattr(m, "kernel", gpflow.kernels.Matern32(lengthscales=[1.0, 1.0])),
    "a shape": lambda m: setattr(m, "kernel", gpflow.kernels.SquaredExponential()),
    "what is trainable": lambda m: gpflow.set_trainable(m.kernel.variance, False),
    "active_dims": lambda m: setattr(m.kernel, "_active_dims", slice(0, 2, 1)),
    "a transform": lambda m: setattr(
        m.kernel,
        "variance",
        gpflow.Parameter(1.0, transform=gpflow.utilities.positive(1e-3)),
    ),
    "a prior": lambda m: setattr(m.kernel.variance, "prior", tfp.distributions.Gamma(2.0, 1.0)),
    "what a prior is on": lambda m: setattr(m.kernel.variance, "prior_on", "unconstrained"),
    "a shared parameter": lambda m: setattr(m.likelihood, "scale", m.kernel.variance),
    "whitening": lambda m: setattr(m, "whiten", False),
    "a mean function": lambda m: setattr(m, "mean_function", gpflow.functions.Constant()),
    "another attribute": lambda m: setattr(m, "anything", [1, {"a": np.arange(3)}]),
}


@pytest.mark.briefly("a prior")
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_models_share_nothing_that_differ_in(change: Change) -> None:
    changed, again = make(), make()
    change(changed)
    assert structure(make()) == structure(make()) != structure(changed) is not None
    change(again)
    assert structure(again) == structure(changed) == structure(copy.deepcopy(changed))


def test_models_share_nothing_that_differ_in_a_number_of_a_prior_or_of_an_array() -> None:
    def with_prior(scale: float) -> AugmentedSVGP:
        model = make()
        model.kernel.variance.prior = tfp.distributions.LogNormal(0.0, scale)
        return model

    def with_array(last: float) -> AugmentedSVGP:
        linear = gpflow.functions.Linear(np.ones((2, 1)))
        linear.A = tf.constant([[1.0], [last]], tf.float64)
        return make(mean_function=linear)

    for change in (with_prior, with_array):
        assert structure(change(1.0)) == structure(change(1.0)) != structure(change(2.0))


def jitter(model: Model, variables: Any) -> Callable[[], tf.Tensor]:
    return lambda: tf.constant(gpflow.config.default_jitter(), tf.float64)


def test_the_jitter_is_that_of_the_call() -> None:
    early = sharing.Compiled(make()).function(jitter)
    usual = gpflow.config.default_jitter()
    with gpflow.config.as_context():
        gpflow.config.set_default_jitter(1e-3)
        assert early() == 1e-3
        assert sharing.Compiled(make()).function(jitter)() == 1e-3
    assert early() == usual
    assert sharing.Compiled(make()).function(jitter)() == usual


@pytest.mark.slow
def test_a_fit_with_another_jitter_compiles_anew() -> None:
    assert quick(make(), waves(0)) > 0.0
    with gpflow.config.as_context():
        gpflow.config.set_default_jitter(1e-4)
        model = make()
        alone = fitted_alone(model, waves(0))
        assert quick(model, waves(0)) > 0.0
        assert_same_values(model, alone)


def test_models_of_another_float_type_share_nothing() -> None:
    before = structure(make())
    with gpflow.config.as_context():
        gpflow.config.set_default_float(np.float32)
        assert structure(make()) != before is not None


class Stretched(gpflow.kernels.SquaredExponential):
    """A kernel that depends on an attribute of its class, not only of the object."""

    factor = 1.0

    def scale(self, X: tf.Tensor) -> tf.Tensor:
        return super().scale(X if X is None else Stretched.factor * X)


class Doubtful(likelihoods.StudentT):
    """A subclass, which a user could have given any state."""


def of_closure(offset: float) -> AugmentedSVGP:
    model = make()
    model.mean_function = lambda X: tf.fill([tf.shape(X)[0], 1], tf.cast(offset, X.dtype))
    return model


USERS_OWN: dict[str, Callable[[], AugmentedSVGP]] = {
    "a kernel": lambda: make(kernel=Stretched()),
    "a likelihood": lambda: make(likelihood=Doubtful(0.3)),
    "a function": lambda: of_closure(1.0),
    "an object": lambda: make(mean_function=gpflow.functions.Constant()) and _with_object(),
    "a method": lambda: _with_method(),
}


def _with_object() -> AugmentedSVGP:
    model = make()
    model.kernel.note = object()
    return model


def _with_method() -> AugmentedSVGP:
    model = make()
    model.kernel.K = lambda X, X2=None: tf.ones([6, 6], X.dtype)
    return model


@pytest.mark.parametrize("build", USERS_OWN.values(), ids=USERS_OWN)
def test_models_share_nothing_that_have_of_the_user_s_own(
    build: Callable[[], AugmentedSVGP],
) -> None:
    assert structure(build()) is None


@pytest.mark.slow
def test_a_kernel_with_a_state_in_python_is_compiled_for_each_model() -> None:
    found = []
    for factor in (1.0, 3.0):
        Stretched.factor = factor
        model = make(kernel=Stretched())
        assert polish(model, waves(0), progress=False).gain > 0.0
        found.append(model)
    usual = make(kernel=gpflow.kernels.SquaredExponential(lengthscales=1.0 / 3.0))
    polish(usual, waves(0), progress=False)
    np.testing.assert_allclose(found[1].q_mu, usual.q_mu, rtol=1e-6)
    assert not np.allclose(found[0].q_mu, usual.q_mu)


# ---- at the same time ----


@pytest.mark.slow
def test_fits_in_turns_never_see_each_other() -> None:
    """
    Each of the first iterations is followed by a whole fit of another model of equal structure.
    """
    model, data = make(), waves(0)
    alone = fitted_alone(model, data)
    seen = []

    def meanwhile(progress: Any) -> None:
        seen.append(values(model))
        if len(seen) > 4:
            return
        other = make(kernel=gpflow.kernels.SquaredExponential(4.0, [2.0, 0.3]))
        polish(other, waves(len(seen)), progress=False)
        for path, value in values(model).items():
            np.testing.assert_array_equal(value, seen[-1][path])

    fit_collapsed(model, data, tolerance=1e-2, callback=meanwhile, progress=False)
    assert_same_values(model, alone)
    assert any(np.any(a != b) for a, b in zip(seen[-1].values(), seen[0].values(), strict=True))


@pytest.mark.slow
def test_fits_in_threads_never_see_each_other() -> None:
    sets = [waves(seed) for seed in range(4)]
    one_by_one, at_once = [make() for _ in sets], [make() for _ in sets]
    for model, data in zip(one_by_one, sets, strict=True):
        quick(model, data)
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(quick, at_once, sets))
    for one, other in zip(one_by_one, at_once, strict=True):
        for path, value in values(one).items():
            np.testing.assert_allclose(value, values(other)[path], rtol=1e-9, atol=1e-9)


# ---- what is freed ----


@pytest.mark.slow
def test_a_model_that_was_fitted_is_freed_while_its_functions_live_on() -> None:
    model = make()
    quick(model, waves(0))
    alive = weakref.ref(model), weakref.ref(model.kernel)
    del model
    gc.collect()
    assert [reference() for reference in alive] == [None, None]
    assert quick(make(), waves(1)) == 0.0


def loop_of(parameter: gpflow.Parameter) -> Callable[[tf.Tensor], tf.Tensor]:
    """A function x → p y, where y is the first of x, x + p, x + 2 p, ... that is at least 9."""

    def loop(x: tf.Tensor) -> tf.Tensor:
        (x,) = tf.while_loop(lambda x: x < 9.0, lambda x: (x + parameter,), (x,))
        return x * parameter

    return loop


def test_a_compiled_function_of_parameters_is_freed_with_its_graphs() -> None:
    parameter = gpflow.Parameter(2.0, transform=gpflow.utilities.positive())
    function = compiled(loop_of(parameter))
    graph = function.get_concrete_function(tf.constant(1.0, tf.float64)).graph
    references = [weakref.ref(graph), weakref.ref(function)]
    del function, graph
    gc.collect()
    assert [reference() for reference in references] == [None, None]


def test_a_compiled_function_can_be_differentiated_as_long_as_it_lives() -> None:
    """It holds the custom gradients that it contains, such as the one of a parameter's softplus."""
    parameter = gpflow.Parameter(2.0, transform=gpflow.utilities.positive())
    function = compiled(loop_of(parameter))
    function(tf.constant(1.0, tf.float64))
    gc.collect()
    with tf.GradientTape() as tape:
        value = function(tf.constant(3.0, tf.float64))  # p (3 + 3 p)
    (slope,) = tape.gradient(value, [parameter.unconstrained_variable])
    u = parameter.unconstrained_variable.numpy()
    assert slope.numpy() == pytest.approx(15.0 / (1.0 + np.exp(-u)))


def test_a_fit_s_graph_reads_each_hyperparameter_once() -> None:
    """Student-t alone reads its scale 26 times, of which each was transformed anew."""
    model = make()
    profile = Profile(model, hyperparameters(model))
    function = profile._evaluate._wary  # the larger of the two graphs
    with function._owner.twin() as twin:
        graph = function._of(twin).get_concrete_function().graph
        captured = {str(inside.name): outside for outside, inside in graph.captures}
        reads = [op.inputs[0].name for op in graph.get_operations() if op.type == "ReadVariableOp"]
        for variable in twin.variables:
            names = [name for name, held in captured.items() if held is variable.handle]
            assert sum(reads.count(name) for name in names) == 1, variable.name
        inside = [
            node.op for body in graph.as_graph_def().library.function for node in body.node_def
        ]
        assert "ReadVariableOp" not in inside


def test_a_parameter_that_a_graph_reads_as_a_tensor_is_itself_elsewhere() -> None:
    parameter = gpflow.Parameter(2.0, transform=gpflow.utilities.positive())
    elsewhere: list[float] = []

    @tf.function(autograph=False)
    def tripled(x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        with read_as([(parameter, 3.0 * x)]), ThreadPoolExecutor(1) as pool:
            elsewhere.append(pool.submit(lambda: float(parameter.numpy())).result())
            (total,) = tf.while_loop(lambda y: y < 10.0, lambda y: (y + parameter,), (x,))
        return total, 1.0 * parameter

    total, after = tripled(tf.constant(1.0, tf.float64))
    assert elsewhere == [2.0]
    assert (float(total), float(after)) == (10.0, 2.0)
    assert float(parameter.numpy()) == 2.0
