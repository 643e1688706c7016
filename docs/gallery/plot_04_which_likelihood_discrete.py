"""
Which likelihood: classes and counts
====================================

This page shows the likelihoods of a label or a count y: what f means, and what a datum weighs given
its auxiliary variables. As on the page before, every likelihood is Gaussian in f given these.
"""

import inspect

import gpflow
import matplotlib.pyplot as plt
import numpy as np

from gpflow_aaci import AugmentedVGP, augmentation, fit, plots
from gpflow_aaci.likelihoods import (
    BayesianSVM,
    Binomial,
    Logistic,
    LogisticSoftmax,
    LogisticTree,
    NegativeBinomial,
    Ordinal,
    Poisson,
    Probit,
    augmented,
)

COLOURS = ["#0072B2", "#D55E00", "#009E73"]  # by Okabe and Ito


def formulas(*classes):
    """Print the formulas, which are in the docstrings."""
    for likelihood in classes:
        print(f"{likelihood.__name__}: {inspect.getdoc(likelihood)}\n")


f = np.linspace(-6.0, 6.0, 200)[:, None]

# %%
# Two classes
# -----------
#
# Labels are {0, 1} or {−1, +1}. Logistic and probit are the usual two. The Bayesian SVM has a
# margin, y f = 1, and a datum weighs most there. It is not a density, so its probabilities are
# normalised when y is predicted.

formulas(Logistic, Probit, BayesianSVM)
_, (left, middle, right) = plt.subplots(1, 3, figsize=(11, 3.3), layout="constrained")
omega = np.geomspace(0.005, 20.0, 200)
one = np.ones_like(f)
for likelihood, colour in zip([Logistic(), Probit(), BayesianSVM()], COLOURS, strict=True):
    name = type(likelihood).__name__
    probability, _ = likelihood.predict_mean_and_var(f, f, np.zeros_like(f))
    left.plot(f, probability, color=colour, label=name)

    law = augmentation.aux_full_conditional(likelihood, one[:1] * 3.0, one[:1])
    density = law.prob(omega[:, None, None])[:, 0, 0]
    middle.plot(omega, omega * density, color=colour)

    c = augmentation.aux_full_conditional_c(likelihood, f, one)
    weight = augmentation.expected_auglik_precision(likelihood, c, one)
    right.plot(f, weight, color=colour)
left.set(xlabel="f", ylabel="P(y = 1|f)")
left.legend()
middle.set(xlabel="ω", ylabel="density of log ω at y = 1, f = 3", xscale="log", ylim=(0.0, None))
right.set(xlabel="f", ylabel="mean precision of y = 1", ylim=(0.0, 2.0))
plt.show()

# %%
# Counts
# ------
#
# :class:`~gpflow_aaci.likelihoods.NegativeBinomial` is for counts whose variance exceeds their
# mean, as it mostly does; the mean is ``total_count`` times e^f. The rate of
# :class:`~gpflow_aaci.likelihoods.Poisson` is ``max_rate`` times a sigmoid of f, not e^f: the
# largest rate is given, or learnt. :class:`~gpflow_aaci.likelihoods.Binomial` counts successes.

formulas(NegativeBinomial, Poisson, Binomial)
count = np.arange(31.0)[:, None]
_, axes = plt.subplots(1, 3, figsize=(11, 3.3), sharey=True, layout="constrained")
for ax, (name, likelihood) in zip(
    axes,
    {
        "NegativeBinomial(total_count=3)": NegativeBinomial(3.0),
        "Poisson(max_rate=20)": Poisson(20.0),
        "Binomial(total_count=20)": Binomial(20),
    }.items(),
    strict=True,
):
    at = count[:21] if isinstance(likelihood, Binomial) else count
    for value, colour in zip((-1.0, 0.0, 1.5), COLOURS, strict=True):
        p = np.exp(likelihood.log_prob(at, np.full_like(at, value), at))
        ax.plot(at, p, ".-", color=colour, linewidth=0.7, label=f"f = {value:g}")
    ax.set(title=name, xlabel="y")
axes[0].set_ylabel("p(y|f)")
axes[0].legend()
plt.show()

# %%
# Their auxiliary variables are Pólya-Gamma, as for the logistic likelihood, with a shape that
# depends on the count. Poisson has a second one, a count n, so that a draw is a dictionary.

y = np.array([[0.0], [5.0], [20.0]])
_, (left, right) = plt.subplots(1, 2, figsize=(9, 3.3), layout="constrained")
law = augmentation.aux_full_conditional(NegativeBinomial(3.0), np.zeros_like(y), y)
omega = np.linspace(0.01, 5.0, 200)
for density, label, colour in zip(
    law.prob(omega[:, None, None]).numpy()[..., 0].T, y[:, 0], COLOURS, strict=True
):
    left.plot(omega, density, color=colour, label=f"y = {label:g}")
left.set(xlabel="ω", ylabel="density of ω at f = 0", title="NegativeBinomial(total_count=3)")
left.legend()

many = np.tile(y.T, (2000, 1)).reshape(-1, 1)
draws = augmentation.aux_sample(Poisson(20.0), np.zeros_like(many), many, seed=1)
print({name: value.shape for name, value in draws.items()})
for i, colour in enumerate(COLOURS):
    n, omega = (draws[name].numpy().reshape(2000, 3)[:, i] for name in ("n", "omega"))
    right.plot(n[:400], omega[:400], ".", color=colour, markersize=3, label=f"y = {y[i, 0]:g}")
right.set(xlabel="n", ylabel="ω", title="Poisson(max_rate=20), 400 draws at f = 0")
right.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), markerscale=3)
plt.show()

# %%
# More than two classes
# ---------------------
#
# There are as many latent GPs as classes, and probabilities are normalised sigmoids of f. Where all
# f are far below 0 this is the softmax; where they are near 0 or above, it saturates. So begin
# below 0, with a constant mean function of −log K.

formulas(LogisticSoftmax)
likelihood = LogisticSoftmax(3)
_, axes = plt.subplots(1, 2, figsize=(9, 3.3), sharey=True, layout="constrained")
for ax, others in zip(axes, (0.0, -4.0), strict=True):
    F = np.hstack([f, np.full_like(f, others), np.full_like(f, others)])
    for k, colour in enumerate(COLOURS[:2]):
        p = np.exp(likelihood.log_prob(f, F, np.full_like(f, k)))
        ax.plot(f, p, color=colour, label=("class 0", "classes 1 and 2, each")[k])
    softmax = np.exp(f) / (np.exp(f) + 2.0 * np.exp(others))
    ax.plot(f, softmax, "k:", label="class 0 of a softmax")
    ax.set(title=f"f₁ = f₂ = {others:g}", xlabel="f₀")
axes[0].set_ylabel("p(y = k|f)")
axes[0].legend(fontsize="small")
draws = augmentation.aux_sample(likelihood, F[:1], np.zeros((1, 1)), seed=1)
print({name: value.numpy().tolist() for name, value in draws.items()})
plt.show()

# %%
# A tree of binary splits has one latent GP fewer than classes. Each has its own ω, and no integral
# over several of them is needed. Which classes are parted last is for you to say, or for
# ``ward_tree``, which parts those last whose mean inputs are nearest.

formulas(LogisticTree)
tree = LogisticTree(3, ((0, 1), 2))
p = np.exp([tree.log_prob(f, np.hstack([f, 0.0 * f]), np.full_like(f, k)) for k in range(3)])
_, ax = plt.subplots(figsize=(4.5, 3.0), layout="constrained")
for k, colour in enumerate(COLOURS[:3]):
    ax.plot(f, p[k], color=colour, label=f"class {k}", linestyle=("-", "--", "-")[k])
ax.set(xlabel="f₀, which parts {0, 1} from {2}; f₁ = 0", ylabel="p(y = k|f)")
ax.legend(fontsize="small")
plt.show()

# %%
# Classes in an order
# -------------------
#
# Grades, stages, answers on a scale: one f, and edges that part the labels. The auxiliary variable
# z is what f plus normal noise would be; y says between which edges it lies.

formulas(Ordinal)
grades = Ordinal([-2.0, 0.0, 1.5])
_, (left, right) = plt.subplots(1, 2, figsize=(9, 3.3), layout="constrained")
for k, colour in enumerate([*COLOURS, "#000000"]):
    p = np.exp(grades.log_prob(f, f, np.full_like(f, k)))
    left.plot(f, p, color=colour, label=f"y = {k}")
    law = augmentation.aux_full_conditional(grades, np.zeros((1, 1)), np.full((1, 1), k))
    right.plot(f, law.prob(f[:, None])[:, 0, 0], color=colour)
left.set(xlabel="f", ylabel="P(y|f)")
left.legend(fontsize="small")
right.set(xlabel="z", ylabel="density of z at f = 0", ylim=(0.0, 2.0))
plt.show()

# %%
# Without augmentation
# --------------------
#
# GPflow's other likelihoods, and your own, are taken as they are. Steps and fits are natural
# gradients on GPflow's ELBO; only Gibbs sampling needs auxiliary variables. Here are counts with a
# rate of e^f.

counts = augmented(gpflow.likelihoods.Poisson())
print(type(counts).__name__, "has an augmentation:", counts.is_augmented)
rng = np.random.default_rng(0)
X = rng.uniform(0.0, 6.0, size=(80, 1))
Y = rng.poisson(np.exp(1.0 + np.sin(X))).astype(float)
model = AugmentedVGP((X, Y), gpflow.kernels.Matern52(), gpflow.likelihoods.Poisson())
print(fit(model, progress=False))
plots.plot_fit(model)
plt.show()
