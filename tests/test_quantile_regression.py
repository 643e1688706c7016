"""Quantile regression: τ of the data lie below the fitted τ-quantile."""

import gpflow
import numpy as np
import pytest

from gpflow_aaci import AugmentedSVGP, fit_collapsed, likelihoods

N, SETS = 200, 12


@pytest.mark.slow
@pytest.mark.parametrize("quantile", [0.1, 0.5, 0.9])
def test_as_many_data_lie_below_the_curve_as_the_quantile_says(quantile: float) -> None:
    """On average over simulated sets of skewed and heteroscedastic noise, the scale learnt."""
    below = []
    for seed in range(SETS):
        rng = np.random.default_rng(seed)
        X = rng.uniform(-2.0, 2.0, size=(N, 1))
        noise = rng.gamma(2.0, size=(N, 1)) * np.exp(0.3 * X)
        Y = np.sin(2.0 * X) + 0.4 * noise
        model = AugmentedSVGP(
            gpflow.kernels.SquaredExponential(),
            likelihoods.AsymmetricLaplace(scale=0.2, quantile=quantile),
            np.linspace(-2.0, 2.0, 12)[:, None],
            mean_function=gpflow.functions.Constant(float(np.quantile(Y, quantile))),
            num_data=N,
        )
        gpflow.set_trainable(model.inducing_variable, False)
        fit_collapsed(model, (X, Y))
        mean, _ = model.predict_f(X)
        below.append(np.mean(mean.numpy() > Y))
    assert abs(np.mean(below) - quantile) < 0.02, below
