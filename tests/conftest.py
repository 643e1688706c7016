"""Every built-in likelihood, small data for it, and a fresh start for each test."""

import functools
import gc
import os
import sys
import typing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FunctionType

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import AnyNDArray
from tensorflow.python.eager.context import Context, context
from tensorflow.python.framework.ops import gradient_registry

from gpflow_aaci import likelihoods

if "PYTEST_XDIST_WORKER" in os.environ:  # each test worker gets one core
    tf.config.threading.set_intra_op_parallelism_threads(1)

# Graphs are many small objects: Python's collector would take a tenth of the time of all tests.
gc.freeze()
gc.set_threshold(50_000, 20, 20)

# TensorFlow asks for each argument of an operation whether it is an instance of a protocol. Before
# Python 3.12 this reads all attributes of the protocol's class anew: a fifteenth of all time.
if sys.version_info < (3, 12):
    typing._get_protocol_attrs = functools.cache(typing._get_protocol_attrs)


# Whenever a seed is set, TensorFlow forgets its kernels, so that random ones begin anew, and makes
# them again for the next operations: a tenth of the time of short tests. Here it does so only
# before a random operation and before each module, so that memory is freed.
_set_seed_at_once = Context._set_global_seed


class _SeedToSet:
    """The random numbers of a ``Context`` after ``tf.random.set_seed``, until one is drawn."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def randint(self, low: int, high: int) -> int:
        _set_seed_at_once(context(), self._seed)
        return context()._rng.randint(low, high)


def _set_seed_when_needed(self: Context, seed: int) -> None:
    self._seed, self._rng = seed, _SeedToSet(seed)


Context._set_global_seed = _set_seed_when_needed

MakeLikelihood = Callable[[], likelihoods.AugmentedLikelihood]
Observe = Callable[[gpflow.likelihoods.Likelihood, AnyNDArray, int], AnyNDArray]

BUILT_IN: dict[str, MakeLikelihood] = {
    "Gaussian": lambda: likelihoods.Gaussian(variance=0.3),
    "StudentT": lambda: likelihoods.StudentT(scale=0.5, df=4.0),
    "Laplace": lambda: likelihoods.Laplace(scale=0.6),
    "Matern32": lambda: likelihoods.Matern32(scale=0.7),
    "Matern52": lambda: likelihoods.Matern52(scale=0.8),
    "Logistic": lambda: likelihoods.Logistic(),
    "Probit": lambda: likelihoods.Probit(),
    "BayesianSVM": lambda: likelihoods.BayesianSVM(),
}


@pytest.hookimpl(tryfirst=True)  # before -m deselects tests
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """
    Mark the cases that ``briefly`` does not name as slow, those of ``by_default`` as replicates.

    Cases about which a test claims nothing (``applies_to("case", is_one)``) are left out. It also
    puts the longest test first. At the end, all workers but one would wait for it.
    """
    items[:] = [item for item in items if _applies(item)]
    for item in items:
        case = item.callspec.params.get("case") if hasattr(item, "callspec") else None
        if mark := getattr(case, "mark", ""):
            item.add_marker(mark)
        for name, mark in (("briefly", "slow"), ("by_default", "replicate")):
            if any(not _names(marker, item) for marker in item.iter_markers(name)):
                item.add_marker(mark)
    items.sort(key=lambda item: "killed_again" not in item.name)


def _names(marker: pytest.Mark, item: pytest.Item) -> bool:
    """Whether one of the marker's names is part of the id of the case."""
    parts = set(item.name.partition("[")[2].rstrip("]").split("-"))
    return any(set(name.split("-")) <= parts for name in marker.args)


def _applies(item: pytest.Item) -> bool:
    return all(
        is_one(item.callspec.params[name])
        for name, is_one in (marker.args for marker in item.iter_markers("applies_to"))
    )


@pytest.fixture(scope="module", autouse=True)
def _fresh_kernels() -> None:
    _set_seed_at_once(context(), 0)


@pytest.fixture(autouse=True)
def _fresh_state() -> Iterator[None]:
    """
    Set one seed before each test; undo changes of GPflow's settings, and free graphs, after it.
    """
    tf.random.set_seed(0)
    with gpflow.config.as_context(), no_graphs_left():
        yield


@contextmanager
def no_graphs_left() -> Iterator[None]:
    """
    Free the graphs of functions that were compiled in the block and are no longer in use.

    TFP's cache of bijector inputs and TensorFlow's registry of custom gradients would keep every
    graph in which a parameter was read: 20 MB per fit, which exhausts memory before the last test.
    """
    gradients = gradient_registry._registry
    known = set(gradients)
    yield
    read = tfp.bijectors.Bijector._cache.storage
    inputs = tf.nest.flatten([key() for key in read if key.alive])
    graphs = {id(x.graph) for x in inputs if tf.is_symbolic_tensor(x)}
    for name in set(gradients) - known:
        # Functions that are compiled once and still in use read no parameter.
        if any(id(graph) in graphs for graph in _graphs_of(gradient_registry.lookup(name))):
            del gradients[name]
    for key in list(read):
        key.cancel()  # otherwise the key would try to delete its entry again
    read.clear()


def _graphs_of(gradient: Callable) -> Iterator[tf.Graph]:
    """The graphs of the tensors that a custom gradient holds."""
    for cell in gradient.__closure__ or ():
        for held in tf.nest.flatten(cell.cell_contents):
            if isinstance(held, FunctionType):
                yield from _graphs_of(held)
            elif tf.is_symbolic_tensor(held):
                yield held.graph


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture(scope="session", params=BUILT_IN.values(), ids=BUILT_IN)
def make_likelihood(request: pytest.FixtureRequest) -> MakeLikelihood:
    """A function that makes a built-in likelihood, for tests that need it twice or in float32."""
    return request.param


@pytest.fixture
def likelihood(make_likelihood: MakeLikelihood) -> likelihoods.AugmentedLikelihood:
    """Every built-in likelihood in turn."""
    return make_likelihood()


@pytest.fixture(scope="session")
def observe() -> Observe:
    """
    A function (likelihood, X, P) → Y [N, P], a noisy wave of X [N, D], or its sign if y is binary.
    """

    def observe(likelihood: gpflow.likelihoods.Likelihood, X: AnyNDArray, P: int) -> AnyNDArray:
        rng = np.random.default_rng(len(X))
        phase = np.linspace(0.0, 1.0, P)
        wave = np.sin(2.0 * X.sum(axis=1, keepdims=True) + phase)
        wave += 0.4 * rng.normal(size=wave.shape)
        is_binary = isinstance(
            likelihood, likelihoods.BinaryLikelihood | gpflow.likelihoods.Bernoulli
        )
        return (wave > 0).astype(float) if is_binary else wave

    return observe


@pytest.fixture(scope="session")
def randomise_q() -> Callable[[gpflow.models.GPModel], None]:
    """A function that gives a model a fixed q(u), which is neither the initial one nor optimal."""

    def randomise_q(model: gpflow.models.GPModel) -> None:
        rng = np.random.default_rng(7)
        M, P = model.q_mu.shape
        model.q_mu.assign(rng.normal(size=(M, P)))
        R = 0.3 * np.tril(rng.normal(size=(P, M, M)), -1)
        R[:, range(M), range(M)] = rng.uniform(0.4, 1.2, size=(P, M))
        model.q_sqrt.assign(R)

    return randomise_q
