"""
Variable selection: which inputs matter
=======================================

A table has ten columns, and y depends on some of them. A fit with a lengthscale for each column
makes some of them long, but how long is long enough? ``HyperparameterGibbs(selection=...)`` answers
with a probability for each column: that f depends on it at all.

The data are simulated from Friedman's function (1991, Annals of Statistics 19), which depends on
the first five of ten columns, with noise of two degrees of freedom, and so with outliers.
"""

import gpflow
import matplotlib.pyplot as plt
import numpy as np
import tensorflow_probability as tfp

import gpflow_aaci
from gpflow_aaci import contrib, likelihoods, predictions

rng = np.random.default_rng(3)
N, D = 100, 10


def friedman(X):
    wave = 10.0 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 20.0 * (X[:, 2] - 0.5) ** 2
    return (wave + 10.0 * X[:, 3] + 5.0 * X[:, 4])[:, None] / 5.0 - 2.9


X = rng.uniform(size=(N, D))
Y = friedman(X) + 0.2 * rng.standard_t(2.0, size=(N, 1))

# %%
# The model
# ---------
#
# Every parameter that is drawn needs a prior. The prior of the lengthscales is about columns that
# matter: their lengthscales are between a third of the range of a column and ten of them. A prior
# that allows far longer ones would make columns that matter and columns that do not alike, and the
# probabilities would say less.

kernel = gpflow.kernels.Matern52(lengthscales=np.ones(D))
likelihood = likelihoods.StudentT(scale=0.3, df=3.0)
for parameter, median, spread in (
    (kernel.lengthscales, 1.8, 0.8),
    (kernel.variance, 2.0, 1.0),
    (likelihood.scale, 0.3, 0.7),
):
    parameter.prior = tfp.distributions.LogNormal(np.log(median), spread)
gpflow.set_trainable(likelihood.df, False)
model = gpflow_aaci.AugmentedVGP((X, Y), kernel, likelihood)

# %%
# What the lengthscales of a fit say
# ----------------------------------
#
# The fit maximises over the lengthscales, under the same prior. The prior holds the lengthscales of
# columns that do not matter, so that they look like those of a column of which f is nearly linear.

gpflow_aaci.fit(model, progress=False)
lengthscales = kernel.lengthscales.numpy().copy()
print("lengthscales of a fit:", lengthscales.round(1))

# %%
# The probability of each column
# ------------------------------
#
# A priori a column is included with probability 1/2. Chains begin with all columns or at random
# ones, and jump between sets of columns, with f integrated out: so a mean over the draws is the
# posterior probability. Draws of lengthscales are masked by ``included``.

samples = gpflow_aaci.sample_posterior(
    model,
    sampler=contrib.HyperparameterGibbs(selection=0.5),
    num_samples=50,
    num_burnin=30,
    num_chains=2,
    progress=False,
)
included = samples.posterior["included"]
probability = included.mean(("chain", "draw")).values
drawn = samples.posterior["kernel.lengthscales"].where(included).median(("chain", "draw")).values
for d in range(D):
    print(f"column {d + 1:2}: probability {probability[d]:.2f}, lengthscale {drawn[d]:.1f}")

# %%
# Whole sets of columns have probabilities, too.

sets, counts = np.unique(included.values.reshape(-1, D), axis=0, return_counts=True)
for which in np.argsort(-counts)[:3]:
    columns = ", ".join(str(d + 1) for d in np.flatnonzero(sets[which]))
    print(f"columns {columns}: {counts[which] / counts.sum():.2f}")

# %%
# Predictions average over the sets of columns.

X_new = rng.uniform(size=(500, D))
for name, mean in (
    ("the fit", predictions.predict_y(model, X_new)[0]),
    ("the draws", predictions.predict_y(model, X_new, samples=samples, progress=False)[0]),
):
    print(f"RMSE of f by {name}: {np.sqrt(np.mean((mean - friedman(X_new)) ** 2)):.3f}")

# %%
# Left: 1/lengthscale by the fit does not fall to zero after the fifth column. Right: the
# probabilities do. The dashed line is the prior.

_, axes = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
colours = np.where(np.arange(D) < 5, "#0072B2", "#999999")
axes[0].bar(np.arange(1, D + 1), 1.0 / lengthscales, color=colours)
axes[0].set(title="1/lengthscale, of a fit", xlabel="column", xticks=np.arange(1, D + 1))
axes[1].bar(np.arange(1, D + 1), probability, color=colours)
axes[1].axhline(0.5, color="black", linestyle="--", linewidth=1.0)
axes[1].set(title="probability that it matters", xlabel="column", xticks=np.arange(1, D + 1))
plt.show()
