"""
Exact posterior draws by Gibbs sampling
=======================================

The auxiliary variable that gives closed forms also gives a Gibbs sampler, with nothing to tune: f
given ω is Gaussian, ω given f is drawn independently for every datum. Its draws show how good q is.
"""

import time

import arviz
import gpflow
import matplotlib.pyplot as plt
import numpy as np
import tensorflow_probability as tfp

import gpflow_aaci

# %%
# The data are forty points with Student-t noise, and the model is a full GP. The hyperparameters
# are fitted, and have priors, which the last part of this page needs.

rng = np.random.default_rng(0)
X = np.sort(rng.uniform(-3.0, 3.0, (40, 1)), 0)
Y = np.sin(2.0 * X) + 0.2 * rng.standard_t(3, X.shape)
kernel = gpflow.kernels.Matern52()
kernel.variance.prior = tfp.distributions.LogNormal(np.float64(0.0), np.float64(1.0))
kernel.lengthscales.prior = tfp.distributions.LogNormal(np.float64(0.0), np.float64(1.0))
likelihood = gpflow_aaci.likelihoods.StudentT(scale=0.2, df=3.0)
likelihood.scale.prior = tfp.distributions.LogNormal(np.float64(-1.5), np.float64(1.0))
gpflow.set_trainable(likelihood.df, False)
model = gpflow_aaci.AugmentedVGP((X, Y), kernel, likelihood)
print(gpflow_aaci.fit(model, progress=False))

# %%
# ``sample_posterior`` returns an object of ArviZ's. Good chains have ``r_hat`` below 1.01, and
# ``ess_bulk``, how many independent draws they are worth, in the hundreds.

samples = gpflow_aaci.sample_posterior(model, num_samples=500, num_chains=4, seed=1, progress=False)
print(arviz.summary(samples, var_names="f", kind="diagnostics").describe().loc[["min", "max"]])
print(arviz.loo(samples))

# %%
# Rank plots of f at two data show that the chains agree: all bars are about equally high.

_, axes = plt.subplots(1, 2, figsize=(9, 3), layout="constrained")
arviz.plot_rank(
    samples,
    var_names="f",
    coords={"data": [5, 30]},
    colors=["#0072B2", "#D55E00", "#009E73", "#CC79A7"],
    ax=axes,
)
for ax, datum in zip(axes, (5, 30), strict=True):
    ax.set_title(f"f at datum {datum}", fontsize="medium")
    ax.set_xlabel("rank among the draws of all chains", fontsize="medium")
    ax.set_ylabel("chain", fontsize="medium")
plt.show()

# %%
# A posterior predictive check: data drawn from the model (blue) should look like the data (black).
# Student-t noise has far outliers, so the plot is cut off.

_, ax = plt.subplots(figsize=(6, 3), layout="constrained")
arviz.plot_ppc(
    samples,
    num_pp_samples=50,
    random_seed=1,
    colors=["#0072B2", "black", "#D55E00"],
    textsize=9,
    ax=ax,
)
ax.set(xlim=(-4.0, 4.0), xlabel="y", ylabel="density")
plt.show()

# %%
# Over-relaxation
# ---------------
#
# Given ω, a plain Gibbs draw of f is independent of the last draw. An over-relaxed draw lies, on
# average, on the other side of the mean, which costs the same, is just as exact, and lets errors
# cancel. The default is −0.4. Closer to −1 is better still for means of f, but on larger data worse
# for its spread, f².

for relaxation in (0.0, -0.4, -0.8):
    start = time.perf_counter()
    sampler = gpflow_aaci.sampling.Gibbs(over_relaxation=relaxation)
    drawn = gpflow_aaci.sample_posterior(
        model, sampler=sampler, num_samples=500, seed=2, progress=False
    )
    seconds = time.perf_counter() - start
    f = drawn.posterior["f"]
    of_f, of_square = (float(arviz.ess(v).to_array().min()) for v in (f, f**2))
    print(f"{relaxation:4}: least ESS of f {of_f:5.0f}, of f² {of_square:5.0f}, {seconds:.1f} s")

# %%
# Hyperparameters, too
# --------------------
#
# Another sampler also draws the trainable hyperparameters, which need priors, and predictions then
# average over them. It draws the inducing points of an ``AugmentedSVGP`` too, if ``Z`` has a prior.
# The first chain begins at the model's values, the others at draws from the priors.
#
# Where a likelihood has no augmentation, as ``gpflow.likelihoods.Poisson()`` in GPflow's ``VGP``,
# ``SVGP`` or ``GPMC``, ``contrib.HMC()`` and ``contrib.EllipticalSlices()`` draw f at fixed
# hyperparameters.

with_parameters = gpflow_aaci.sample_posterior(
    model,
    sampler=gpflow_aaci.contrib.HyperparameterGibbs(),
    num_samples=200,
    num_chains=2,
    seed=3,
    progress=False,
)
names = [name for name in with_parameters.posterior if name != "f"]
print(arviz.summary(with_parameters, var_names=names)[["mean", "sd", "hdi_3%", "hdi_97%"]])

# %%
# The left panel shows f by q and by draws, the middle one y, and the right one what fixing the
# hyperparameters has cost. All bands are central 90 % intervals.

X_new = np.linspace(-4.0, 4.0, 81)[:, None]
some = samples.sel(draw=slice(None, None, 10))  # enough for quantiles of y
levels = [0.05, 0.95]
z = 1.645
f_mean, f_variance = model.predict_f(X_new)
q_bands = np.stack([f_mean - z * np.sqrt(f_variance), f_mean + z * np.sqrt(f_variance)])
figure, axes = plt.subplots(1, 3, figsize=(11, 3.4), sharey=True, layout="constrained")


def band(ax, low_high, colour, label):
    low, high = low_high[..., 0]
    ax.fill_between(X_new[:, 0], low, high, color=colour, alpha=0.25, lw=0, label=label)


def edges(ax, low_high, colour, label):
    lines = ax.plot(X_new, low_high[..., 0].T, "--", color=colour, linewidth=1.5)
    lines[0].set_label(label)


def f_band(draws):
    f_new = gpflow_aaci.predictions.predict_f_samples(model, X_new, samples=draws, progress=False)
    return np.quantile(np.asarray(f_new), levels, axis=(0, 1))


def y_band(draws):
    return np.asarray(
        gpflow_aaci.predictions.predict_y_quantile(
            model, X_new, levels, samples=draws, progress=False
        )
    )


band(axes[0], q_bands, "#0072B2", "f by q")
edges(axes[0], f_band(samples), "#D55E00", "f by draws")
band(axes[1], y_band(None), "#0072B2", "y by q")
edges(axes[1], y_band(some), "#D55E00", "y by draws")
band(axes[2], f_band(samples), "#D55E00", "f, hyperparameters fixed")
edges(axes[2], f_band(with_parameters), "#0072B2", "f, hyperparameters drawn")
for ax in axes:
    ax.plot(X, Y, "kx", markersize=4)
    ax.set(xlabel="x", ylim=(-2.5, 3.0))
    ax.legend(fontsize="small", loc="upper right")
axes[0].set_ylabel("f and y")
plt.show()
