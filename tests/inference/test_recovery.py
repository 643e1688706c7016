"""The likelihoods' parameters are recovered from simulated data."""

from collections.abc import Callable

import gpflow
import numpy as np
import pytest

from gpflow_aaci import AugmentedSVGP, fit_collapsed, kmeans_plusplus, likelihoods

N, REPEATS = 5_000, 5

Rng = np.random.Generator


def matern32(rng: Rng, rho: float) -> np.ndarray:
    """
    Noise of density √3/(4ρ)·(1 + √3|e|/ρ) exp(−√3|e|/ρ).

    Half of it is Laplace noise; the other half has |e| ~ Gamma(2). Both have scale ρ/√3.
    """
    size = rng.gamma(rng.integers(1, 3, size=(N, 1)), rho / np.sqrt(3.0))
    return size * rng.choice([-1.0, 1.0], size=(N, 1))


CASES: dict[str, tuple[Callable[[Rng], np.ndarray], Callable[[], object], dict[str, float]]] = {
    "StudentT": (
        lambda rng: 0.3 * rng.standard_t(4.0, size=(N, 1)),
        lambda: likelihoods.StudentT(scale=1.0, df=10.0),
        {"scale": 0.3, "df": 4.0},
    ),
    "Laplace": (
        lambda rng: rng.laplace(scale=0.4, size=(N, 1)),
        lambda: likelihoods.Laplace(scale=1.0),
        {"scale": 0.4},
    ),
    "Matern32": (
        lambda rng: matern32(rng, 0.5),
        lambda: likelihoods.Matern32(scale=1.0),
        {"scale": 0.5},
    ),
}


@pytest.mark.slow
@pytest.mark.by_default("StudentT")
@pytest.mark.parametrize("name", CASES)
def test_parameters_are_found_within_the_spread_of_repeats(name: str) -> None:
    noise, make, truth = CASES[name]
    found: dict[str, list[float]] = {key: [] for key in truth}
    for seed in range(REPEATS):
        rng = np.random.default_rng(seed)
        X = rng.uniform(-3.0, 3.0, size=(N, 1))
        Y = np.sin(2.0 * X) + 0.5 * X + noise(rng)
        likelihood = make()
        Z = kmeans_plusplus(X, 15)
        model = AugmentedSVGP(gpflow.kernels.SquaredExponential(), likelihood, Z, num_data=N)
        gpflow.set_trainable(model.inducing_variable, False)
        fit_collapsed(model, (X, Y))
        for key, values in found.items():
            values.append(float(getattr(likelihood, key).numpy()))
    for key, values in found.items():
        spread = np.std(values, ddof=1)
        # The mean is within four standard errors of the truth, and the spread is small.
        assert abs(np.mean(values) - truth[key]) < 4.0 * spread / np.sqrt(REPEATS), (key, values)
        assert spread < 0.15 * truth[key]
