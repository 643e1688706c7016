"""Where a fit ends does not depend on threads, on the order of the rows, or on their container."""

import itertools
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import gpflow
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

import gpflow_aaci
from benchmarks import starts
from benchmarks.config import Starts, StartSize, load_config
from gpflow_aaci import AugmentedSVGP, likelihoods
from gpflow_aaci.data import as_data
from gpflow_aaci.inference.profile import Profile
from gpflow_aaci.inference.starting import q_at_start
from gpflow_aaci.models import hyperparameters

Rows = tuple[np.ndarray, np.ndarray]


def claims(seed: int, N: int) -> Rows:
    """Numbers of claims, with exposures, of policies with two numbers, a flag and a word each."""
    rng = np.random.default_rng(seed)
    flag, word = (rng.uniform(size=N) < 0.1) * 1.0, np.eye(3)[rng.integers(0, 3, N)]
    X = np.column_stack([rng.normal(size=(N, 2)), flag, word])
    rate, exposure = np.exp(np.sin(2.0 * X[:, 0]) + flag), rng.uniform(0.2, 1.0, N)
    return (X - X.mean(0)) / X.std(0), np.column_stack([rng.poisson(rate * exposure), exposure])


def of_claims(data: Rows, num_inducing: int) -> AugmentedSVGP:
    return make(data, likelihoods.Poisson(with_exposure=True), num_inducing)


def make(data: Rows, likelihood: gpflow.likelihoods.Likelihood, num_inducing: int) -> AugmentedSVGP:
    X, _ = data
    kernel = gpflow.kernels.SquaredExponential(lengthscales=np.full(X.shape[1], X.shape[1] ** 0.5))
    model = AugmentedSVGP(
        kernel,
        likelihood,
        gpflow_aaci.kmeans_plusplus(X, num_inducing),
        mean_function=gpflow.functions.Constant(),
        num_data=len(X),
    )
    gpflow.set_trainable(model.inducing_variable, False)
    return model


def at_two_temperatures(seed: int) -> Rows:
    """A function of two columns, of opposite signs at 400 and at 401 kelvin."""
    rng = np.random.default_rng(seed)
    warm, word = (rng.uniform(size=250) < 0.3) * 1.0, np.eye(3)[rng.integers(0, 3, 250)]
    X = np.column_stack([rng.normal(size=(250, 2)), warm, word])
    X = (X - X.mean(0)) / X.std(0)
    X[:, 2] = 400.0 + warm
    f = 1.2 * np.sin(2.0 * X[:, 0] + X[:, 1]) * (1.0 - 2.0 * warm) - 0.3 * word[:, 0]
    return X, (f + 0.3 * rng.standard_t(4, 250))[:, None]


def permuted(data: Rows, seed: int = 1) -> Rows:
    order = np.random.default_rng(seed).permutation(len(data[0]))
    return data[0][order], data[1][order]


@pytest.mark.slow
@pytest.mark.parametrize("scale", [0.05, 1.0])
def test_products_in_float32_round_the_elbo_to_a_billionth(scale: float) -> None:
    """The number of threads decides how they are rounded."""
    X, _ = claims(0, 500)
    data = X, np.sin(2.0 * X[:, :1]) + scale * np.random.default_rng(0).normal(size=(500, 1))
    model = make(data, likelihoods.Gaussian(scale**2), 40)
    rows = as_data(model.expected_data, data)
    exact, rounded = Profile(model, []), Profile(model, [], tf.float32)
    q = exact.maximise(rows, q_at_start(model, rows), 1e-9, 20).q
    elbos = [float(profile.maximise(rows, q, 0.0, 0).elbo) for profile in (exact, rounded)]
    np.testing.assert_allclose(*elbos, rtol=1e-9)


def nearly_a_polynomial(rows: int) -> Rows:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (rows, 3))
    f = X[:, :1] ** 3 - X[:, 1:2] * X[:, 2:]
    return X, 3.0 * (f + 0.01 * rng.standard_t(4, (rows, 1)))


@pytest.mark.slow
def test_products_in_float32_leave_the_gradient_exact() -> None:
    """K_ZZ⁻¹, where K_ZZ is nearly singular, magnifies what is rounded before."""
    data = nearly_a_polynomial(600)
    model = make(data, likelihoods.StudentT(0.03), 40)
    model.kernel.variance.assign(1e5)
    model.kernel.lengthscales.assign([4.0, 8.0, 8.0])
    rows, variables = as_data(model.expected_data, data), hyperparameters(model)
    exact, rounded = Profile(model, variables), Profile(model, variables, tf.float32)
    found = exact.evaluate(rows, q_at_start(model, rows), 1e-9)
    gradient = rounded.evaluate(rows, found.q, 0.0, 0).gradient
    np.testing.assert_allclose(gradient, found.gradient, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_a_search_does_not_climb_rounding_errors() -> None:
    """
    A nearly polynomial f has a better ELBO with an ever larger variance of the kernel.

    Near such an end the ELBO must be the same, within the tolerance, at lengthscales that differ
    in the last digits.
    """
    data = nearly_a_polynomial(5_000)
    model = make(data, likelihoods.StudentT(0.1), 60)
    result = gpflow_aaci.fit(model, data, progress=False)
    assert result.converged
    lengthscales, elbos = model.kernel.lengthscales.numpy(), []
    for step in range(6):
        model.kernel.lengthscales.assign(lengthscales * (1.0 + 1e-9 * step))
        gpflow_aaci.polish(model, data)
        elbos.append(float(model.elbo(data)))
    assert np.ptp(elbos) < result.tolerance
    assert any("rounding errors" in said for said in result.warnings)


@pytest.mark.slow
def test_rounding_errors_of_many_rows_do_not_hide_the_better_optimum() -> None:
    """At a variance of 6e9, which the search reached, those of 70,000 rows added up to 20 nats."""
    size = StartSize(rows=72_000, input_dim=8, num_inducing=60)
    X, Y = (part[:70_000] for part in starts.make_data(size, "standardised", "Logistic", 6300))
    model = starts.make_model(size, X, "Logistic", is_augmented=True)
    model.num_data = 70_000
    result = gpflow_aaci.fit(model, (X, Y), progress=False)
    assert result.converged
    assert result.elbo > -26_960.0  # it was -28,390


@pytest.mark.slow
def test_on_few_rows_without_noise_a_huge_variance_is_found() -> None:
    """The end is as good as from a fixed variance, and no ELBO is above the evidence."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (150, 4))
    Y = np.sin(X[:, :1] + X[:, 1:2]) + X[:, 2:3] * X[:, 3:]
    ends = []
    for variance in (1.0, 1e3, 2e5):
        kernel = gpflow.kernels.SquaredExponential(variance, lengthscales=[variance**0.25] * 4)
        gpflow.set_trainable(kernel.variance, variance == 1.0)
        model = gpflow_aaci.AugmentedVGP((X, Y), kernel, likelihoods.Gaussian(0.1))
        ends.append(gpflow_aaci.fit(model, progress=False).elbo)
        noise = model.likelihood.variance.numpy()
        gpr = gpflow.models.GPR((X, Y), kernel, noise_variance=noise)
        assert ends[-1] < gpr.log_marginal_likelihood()
    assert ends[0] > max(ends[1:]) - 1.0


@pytest.mark.slow
@pytest.mark.by_default("3")
@pytest.mark.parametrize("seed", range(8))
def test_the_order_of_the_rows_does_not_move_the_end(seed: int) -> None:
    """
    One lengthscale becomes so short that f is independent at two temperatures.

    The objective is flat in it from there on. If it fell further, 400/ℓ would lose its digits; it
    stops at a 20th of their difference, or sooner.
    """
    data = at_two_temperatures(seed)
    ends = []
    for rows in (data, permuted(data)):
        model = make(data, likelihoods.StudentT(), 25)
        ends.append(gpflow_aaci.fit(model, rows, progress=False))
        assert ends[-1].converged
        assert model.kernel.lengthscales.numpy()[2] > 1.0 / 25.0
    assert abs(ends[0].elbo - ends[1].elbo) < ends[0].tolerance


# ---- threads ----

FIT = """
import os, sys
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
threads = int(sys.argv[1])
if not threads:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
import tensorflow as tf
tf.config.threading.set_intra_op_parallelism_threads(threads)
import gpflow_aaci
sys.path.insert(0, "tests/inference")  # another package may be called tests
from test_reproducible import claims, of_claims

data = claims(0, 4_100)
found = gpflow_aaci.fit(of_claims(data, 40), data, progress=False)
first = found.history.objective.iloc[:4]
print(found.converged, found.tolerance, found.elbo, *map(repr, map(float, first)))
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no processor can be chosen")
def test_the_number_of_threads_does_not_move_the_end() -> None:
    """0 stands for a process that has one processor."""
    ends, firsts = [], []
    for threads in (0, 4):
        done = subprocess.run(
            [sys.executable, "-c", FIT, str(threads)],
            cwd=Path(__file__).parents[2],
            capture_output=True,
            text=True,
            check=True,
        )
        converged, *numbers = done.stdout.split()[-7:]
        assert converged == "True"
        tolerance, elbo, *first = map(float, numbers)
        ends.append(elbo)
        firsts.append(first)
    assert np.ptp(ends) < tolerance
    np.testing.assert_allclose(firsts, np.broadcast_to(firsts[0], np.shape(firsts)), rtol=1e-9)


# ---- the problems of configs/starts.toml ----


def problems() -> list[pytest.param]:
    config = load_config(Path(__file__).parents[2] / "configs" / "starts.toml")
    assert isinstance(config, Starts)
    each = itertools.product(config.size, config.columns, config.likelihoods)
    return [
        pytest.param(number, *problem, id=f"{problem[2]}_{problem[0].rows}_{problem[1]}")
        for number, problem in enumerate(each, config.first_number)
        if problem[0].rows <= 1_000
    ]


OTHERS: dict[str, Callable[[Rows], tuple]] = {
    "permuted": permuted,
    "float32": lambda data: tuple(part.astype(np.float32) for part in data),
    "frames": lambda data: tuple(map(pd.DataFrame, data)),
}


@pytest.mark.slow
@pytest.mark.by_default("Logistic_100_standardised")
@pytest.mark.parametrize(("number", "size", "columns", "likelihood"), problems())
def test_order_container_and_float32_of_the_rows_do_not_move_the_end(
    number: int, size: starts.StartSize, columns: str, likelihood: str
) -> None:
    data = starts.make_data(size, columns, likelihood, number)

    def end(rows: tuple) -> gpflow_aaci.inference.Fit:
        model = starts.make_model(size, data[0], likelihood, True)
        return gpflow_aaci.fit(model, rows, progress=False)

    first = end(data)
    assert first.converged
    for name, other in OTHERS.items():
        found = end(other(data))
        assert found.converged, name
        assert abs(found.elbo - first.elbo) < first.tolerance, name


@pytest.mark.slow
def test_degrees_of_freedom_rise_as_far_as_it_gains() -> None:
    """Of uniform noise, df degrees of freedom cost 0.3/df nats a datum beside infinitely many."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, (400, 1))
    data = X, np.sin(3.0 * X) + rng.uniform(-0.5, 0.5, X.shape)
    model = make(data, likelihoods.StudentT(0.3, 4.0), 12)
    ends = [gpflow_aaci.fit(model, data, progress=False)]
    ends.append(gpflow_aaci.fit(make(data, likelihoods.Gaussian(), 12), data, progress=False))
    assert ends[0].converged
    assert abs(ends[0].elbo - ends[1].elbo) < 2.0 * ends[0].tolerance


# ---- a gain that is not known ----


class FiniteWhereItBegins(gpflow.functions.Constant):
    """A constant mean that is NaN at every value but the first."""

    def __call__(self, X: tf.Tensor) -> tf.Tensor:
        c = tf.convert_to_tensor(self.c)
        return super().__call__(X) + tf.where(c == 0.0, c, np.nan)


@pytest.mark.slow
def test_a_gain_that_is_not_known_is_said_to_be_not_known() -> None:
    data = claims(0, 40)
    model = of_claims(data, 5)
    model.mean_function = FiniteWhereItBegins()
    gpflow.set_trainable(model, False)
    gpflow.set_trainable(model.mean_function, True)
    result = gpflow_aaci.fit(model, data, progress=False)
    assert not result.converged
    assert result.expected_gain is None
    assert "What further iterations would gain is not known; the tolerance is 0.001." in str(result)
