"""Quantile regression: τ of the data lie below the fitted τ-quantile."""

import gpflow
import numpy as np
import pytest

from gpflow_aaci import AugmentedSVGP, fit_collapsed, likelihoods

N = 200
MODELS, SETS = 4, 50  # SETS per model


@pytest.mark.replicate
@pytest.mark.parametrize("quantile", [0.1, 0.5, 0.9])
def test_as_many_data_lie_below_the_curve_as_the_quantile_says(quantile: float) -> None:
    """
    Averages are over 200 simulated sets of skewed and heteroscedastic noise; the scale is learnt.

    The likelihood is a product over columns, so one model takes 50 sets as columns of Y, with an f
    for each. They share X and hyperparameters, but no noise.
    """
    below = []
    for seed in range(MODELS):
        rng = np.random.default_rng(seed)
        X = rng.uniform(-2.0, 2.0, size=(N, 1))
        noise = rng.gamma(2.0, size=(N, SETS)) * np.exp(0.3 * X)
        Y = np.sin(2.0 * X) + 0.4 * noise
        model = AugmentedSVGP(
            gpflow.kernels.SquaredExponential(),
            likelihoods.AsymmetricLaplace(scale=0.2, quantile=quantile),
            np.linspace(-2.0, 2.0, 12)[:, None],
            mean_function=gpflow.functions.Constant(np.quantile(Y, quantile, axis=0)),
            num_latent_gps=SETS,
            num_data=N,
        )
        gpflow.set_trainable(model.inducing_variable, False)
        fit_collapsed(model, (X, Y), progress=False)
        mean, _ = model.predict_f(X)
        below.extend(np.mean(mean.numpy() > Y, axis=0))
    assert len(below) == 200
    assert abs(np.mean(below) - quantile) < 0.02, below
    # In every single set, the number is right within ten of its 200 data.
    assert np.max(np.abs(np.subtract(below, quantile))) < 0.05, below
