"""
Choosing between models
=======================

*Is it any good?* This page compares three models of the same data: a figure for each, and how well
each predicts data that are left out.

The data are simulated with common defects: the noise grows with x, and some y are far off.
"""

import arviz
import gpflow
import matplotlib.pyplot as plt
import numpy as np

import gpflow_aaci
from gpflow_aaci.likelihoods import Gaussian, Heteroscedastic, StudentT

rng = np.random.default_rng(1)
x = np.sort(rng.uniform(0.0, 3.0, size=(300, 1)), 0)
y = np.sin(2.0 * x) + 0.08 * np.exp(0.8 * x) * rng.standard_t(4, size=x.shape)
is_test = np.arange(300) % 3 == 0
train, test = (x[~is_test], y[~is_test]), (x[is_test], y[is_test])

# %%
# The models: Student-t noise of one size, Student-t noise of a size that is a function of x, and
# Gaussian noise whose size is another GP. ``gpflow_aaci.likelihoods.StudentT`` learns its df
# with all other parameters; ``gpflow.likelihoods.StudentT`` keeps it fixed, as in GPflow.


def model_of(likelihood, num_latent_gps=1):
    model = gpflow_aaci.AugmentedSVGP(
        gpflow.kernels.SquaredExponential(),
        likelihood,
        np.linspace(0.0, 3.0, 20)[:, None],
        num_latent_gps=num_latent_gps,
        num_data=len(train[0]),
    )
    gpflow.set_trainable(model.inducing_variable, False)
    gpflow_aaci.fit(model, train, progress=False)
    return model


scale_of_x = gpflow.functions.Linear(A=0.1 * np.ones((1, 1)), b=0.1 * np.ones(1))
unit_noise = Gaussian(variance=1.0)
gpflow.set_trainable(unit_noise, False)  # max_precision sets its size
models = {
    "one size of noise": model_of(StudentT()),
    "size linear in x": model_of(gpflow.likelihoods.StudentT(scale=scale_of_x, df=4.0)),
    "a GP of its own": model_of(Heteroscedastic(unit_noise, max_precision=100.0), 2),
}

# %%
# The figures show the data, the median and the central 90 % of y, which are the default ``levels``.

figure, axes = plt.subplots(1, 3, figsize=(11, 3.4), sharey=True, layout="constrained")
for (name, model), ax in zip(models.items(), axes, strict=True):
    gpflow_aaci.plots.plot_fit(model, train, ax=ax)
    ax.set(title=name)

# %%
# Compare them
# ------------
#
# ``loo`` returns the density of every datum given all the others, without refits; ArviZ compares.
# All models must predict the same y in the same units (``Warped`` includes its Jacobian). A
# difference (``elpd_diff``) below twice its standard error (``dse``) does not count. Where the
# largest ``leverage`` is near 1, one datum alone determines f, and its density given the others is
# a guess.

left_out = {name: gpflow_aaci.loo(model, train, progress=False) for name, model in models.items()}
compared = arviz.compare(left_out)
print(compared[["rank", "elpd_loo", "elpd_diff", "dse"]].round(1))
print(
    "largest leverage", {name: float(loo.leverage.max().round(2)) for name, loo in left_out.items()}
)

# %%
# Are its intervals right?
# ------------------------
#
# These plots use data that the model has not seen. If as many y lie in every interval as it says,
# the histogram is flat and the curve is on the diagonal. Both average over x:

gpflow_aaci.plots.plot_calibration(models["one size of noise"], test)

# %%
# Noise of one size passes, though it is too wide on the left and too narrow on the right. So look
# at parts of the data, too.


def coverage(model, X, Y):
    low, high = gpflow_aaci.predictions.predict_y_quantile(model, X, [0.05, 0.95])
    return float(np.mean((low <= Y) & (high >= Y)))


thirds = [np.array_split(part, 3) for part in test]
for name, model in models.items():
    shares = [coverage(model, X, Y) for X, Y in zip(*thirds, strict=True)]
    print(f"{name:>18}: the 90 % interval holds", ", ".join(f"{share:.0%}" for share in shares))
