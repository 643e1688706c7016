"""
Which likelihood: a real y
==========================

Every likelihood of the package is Gaussian in f once its auxiliary variable ω > 0 is given (some
have several). This page shows the likelihoods of a real y: the density, the distribution of ω, and
the weight of a datum. The formulas are in the :doc:`reference </reference>`.

Read the third panel first. Given ω, a datum pulls f towards y with a precision (one over a
variance) of 2ω in units of y. Its mean against the residual y − f is the weight of the datum:
flat for Gaussian noise, falling where an outlier is to count for less.
"""

import inspect

import gpflow
import matplotlib.pyplot as plt
import numpy as np

from gpflow_aaci import augmentation
from gpflow_aaci.contrib.likelihoods import KernelNoise, NoiseMixture, NoiseProduct
from gpflow_aaci.likelihoods import (
    AsymmetricLaplace,
    Cauchy,
    Gaussian,
    GeneralizedGaussian,
    Heteroscedastic,
    Laplace,
    LogisticNoise,
    Matern,
    Matern32,
    Matern52,
    MultivariateStudentT,
    StudentT,
    Warped,
    warps,
)

plt.rcParams["axes.prop_cycle"] = plt.cycler(  # Okabe and Ito's colours
    color=["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00"]
)


def formulas(*classes):
    """Print the formulas, which are in the docstrings."""
    for likelihood in classes:
        print(f"{likelihood.__name__}: {inspect.getdoc(likelihood)}\n")


def draw(likelihoods):
    """Draw three panels for f = 0; where ω has only one or two values, bars show their weights."""
    y = np.linspace(-6.0, 6.0, 200)[:, None]  # avoids y = 0, where a weight may be infinite
    f, two = np.zeros_like(y), np.array([[2.0]])
    omega = np.geomspace(0.01, 5.0, 200)
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(11, 3.6), layout="constrained")
    for (label, likelihood), colour in zip(
        likelihoods.items(), plt.rcParams["axes.prop_cycle"].by_key()["color"], strict=False
    ):
        left.plot(y, likelihood.log_prob(y, f, y), color=colour, label=label)

        c = augmentation.aux_full_conditional_c(likelihood, f, y)
        weight = augmentation.expected_auglik_precision(likelihood, c, y)
        right.plot(y, weight, color=colour)

        law = augmentation.aux_full_conditional(likelihood, f[:1], two)  # = likelihood.tilted(2)
        if isinstance(likelihood, Gaussian | NoiseMixture):
            values, draws = np.unique(law.sample(1000, seed=1), return_counts=True)
            middle.vlines(values, 0.0, draws / 1000, color=colour)
        else:
            middle.plot(omega, omega * law.prob(omega[:, None, None])[:, 0, 0], color=colour)
    left.set(xlabel="y − f", ylabel="log p(y|f) [nats]", ylim=(-10.0, 0.5))
    figure.legend(loc="outside upper center", ncols=5, fontsize="small")
    middle.set(xlabel="ω", ylabel="density of log ω at y − f = 2", xscale="log", ylim=(0.0, None))
    right.set(xlabel="y − f", ylabel="mean precision of a datum", ylim=(0.0, 3.0))
    plt.show()


# %%
# Gaussian and heavy tails
# ------------------------
#
# Student's t is the one to begin with: an outlier weighs next to nothing. ``df``, the degrees of
# freedom, is learnt. Cauchy noise has ``df`` = 1, and y then has no mean.

formulas(Gaussian, StudentT, Cauchy)
draw({"Gaussian": Gaussian(), "StudentT, df = 3": StudentT(df=3.0), "Cauchy": Cauchy()})

# %%
# Medians and other quantiles
# ---------------------------
#
# Laplace noise makes f the median of y, and :class:`~gpflow_aaci.likelihoods.AsymmetricLaplace` any
# other quantile of it, by a constant pull to one side. Where y = f the weight is infinite: f passes
# through some data.

formulas(Laplace, AsymmetricLaplace)
draw({"Laplace": Laplace(), "AsymmetricLaplace, quantile 0.9": AsymmetricLaplace(0.4, 0.9)})

# %%
# Between Laplace and Gaussian noise
# ----------------------------------
#
# These have tails that fall exponentially or a little faster, and a smooth or a sharp centre.
# (``Matern52`` is between two of those drawn.)

formulas(Matern32, Matern52, Matern, GeneralizedGaussian, LogisticNoise)
draw(
    {
        "Matern32": Matern32(),
        "Matern, nu = 7/2": Matern(3.5),
        "GeneralizedGaussian, power 1.3": GeneralizedGaussian(1.2, 1.3),
        "LogisticNoise": LogisticNoise(0.6),
    }
)

# %%
# Likelihoods made of others
# --------------------------
#
# These are a mixture of clean data and outliers, a product, and noise with the shape of a kernel.

formulas(NoiseMixture, NoiseProduct, KernelNoise)
draw(
    {
        "0.9 N(0, 0.7²) + 0.1 N(0, 4²)": NoiseMixture(
            [Gaussian(scale=0.7), Gaussian(scale=4.0)], weights=[0.9, 0.1]
        ),
        "Laplace · Gaussian": NoiseProduct([Laplace(1.0), Gaussian(scale=2.0)]),
        "RationalQuadratic": KernelNoise(gpflow.kernels.RationalQuadratic(alpha=2.0)),
    }
)

# %%
# Positive or skewed: a warped y
# ------------------------------
#
# Here t(y) = f + noise, for an increasing t and any noise from above. The picture shows p(y).

formulas(Warped)
_, axes = plt.subplots(1, 2, figsize=(9, 3.3), layout="constrained")
warped = (
    (axes[0], warps.Log(), np.linspace(0.02, 6.0, 300)[:, None], (-0.5, 0.5, 1.5)),
    (
        axes[1],
        warps.Tanh(1, a=[2.0], b=[1.5], c=[0.0]),
        np.linspace(-4.0, 4.0, 300)[:, None],
        (-3.0, 0.0, 3.0),
    ),
)
for ax, warp, y, fs in warped:
    likelihood = Warped(StudentT(0.6, df=4.0), warp)
    for f in fs:
        ax.plot(y, np.exp(likelihood.log_prob(y, np.full_like(y, f), y)), label=f"f = {f:g}")
    ax.set(title=f"StudentT, {type(warp).__name__} of y", xlabel="y", ylabel="p(y|f)")
    ax.legend()
plt.show()

# %%
# Noise that grows and shrinks with x
# -----------------------------------
#
# There are two latent GPs, f and g, and several auxiliary variables, so a draw is a dictionary. The
# noise may have any distribution above. Here it is Gaussian, and the precision of y given both
# latent GPs lies between 0 and ``max_precision``, which is 4.

formulas(Heteroscedastic)
likelihood = Heteroscedastic(Gaussian(), max_precision=4.0)
_, axes = plt.subplots(1, 2, figsize=(9, 3.3), layout="constrained")
y = np.linspace(-4.0, 4.0, 200)[:, None]
for g in (-3.0, -1.0, 3.0):
    F = np.hstack([np.zeros_like(y), np.full_like(y, g)])
    axes[0].plot(y, np.exp(likelihood.log_prob(y, F, y)), label=f"g = {g:g}")
axes[0].set(xlabel="y − f", ylabel="p(y|f, g)")
axes[0].legend()
g = np.linspace(-6.0, 6.0, 200)[:, None]
_, variance = likelihood.predict_mean_and_var(g, np.hstack([0.0 * g, g]), np.zeros((200, 2)))
axes[1].plot(g, np.sqrt(variance))
axes[1].set(xlabel="g", ylabel="standard deviation of y", ylim=(0.0, 6.0))
print(augmentation.aux_sample(likelihood, F[:1], y[:1], seed=1))
plt.show()

# %%
# Several columns that are outliers together
# ------------------------------------------
#
# A row of Y has one ω, not one for every column: a row that is far off in one column loses weight
# in all of them.

formulas(MultivariateStudentT)
grid = np.stack(np.meshgrid(*[np.linspace(-6.0, 6.0, 80)] * 2), -1).reshape(-1, 2)
figure, axes = plt.subplots(1, 2, figsize=(8, 3.6), sharey=True, layout="constrained")
for ax, (name, likelihood) in zip(
    axes,
    (
        ("MultivariateStudentT, df = 2", MultivariateStudentT(1.0, 2.0, num_outputs=2)),
        ("StudentT of two columns, df = 2", StudentT(1.0, df=2.0)),
    ),
    strict=True,
):
    log_p = likelihood.log_prob(grid, np.zeros_like(grid), grid).numpy().reshape(80, 80)
    lines = ax.contour(*grid.T.reshape(2, 80, 80), log_p, levels=np.arange(-9.0, -1.0))
    ax.set(title=name, xlabel="y₁ − f₁", aspect="equal")
figure.colorbar(lines, ax=axes, label="log p(y|f) [nats]")
axes[0].set_ylabel("y₂ − f₂")
plt.show()
