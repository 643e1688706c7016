"""
Several classes, and counts
===========================

Three classes of iris, and simulated counts: two likelihoods without closed forms in GPflow.
"""

import gpflow
import matplotlib.pyplot as plt
import numpy as np
import sklearn.datasets

import gpflow_aaci
from gpflow_aaci.likelihoods import LogisticSoftmax, NegativeBinomial, Poisson

# %%
# Classes
# -------
#
# Y [N, 1] holds the labels 0, 1, 2. There are as many latent GPs as classes, K, and p(k|f) is a
# sigmoid of f_k, divided by the sum of all K of them. It is like a softmax only where the f are
# well below 0: so the mean function begins at −log K.

iris = sklearn.datasets.load_iris()
X, Y = iris.data[:, 2:], iris.target[:, None]  # length and width of the petals
K = 3
classes = gpflow_aaci.AugmentedSVGP(
    gpflow.kernels.SquaredExponential(variance=5.0, lengthscales=[1.0, 1.0]),
    LogisticSoftmax(K),
    gpflow_aaci.kmeans_plusplus(X, 20),
    mean_function=gpflow.functions.Constant(-np.log(K)),
    num_latent_gps=K,
    num_data=len(X),
)
gpflow.set_trainable(classes.inducing_variable, False)
print(gpflow_aaci.fit(classes, (X, Y), progress=False))

# %%
# ``predict_y`` returns the probability of every class, [N, K], by integration without Monte Carlo.

probability = classes.predict_y(X)[0].numpy()
print(f"{np.mean(probability.argmax(-1) == Y[:, 0]):.1%} of these flowers are put right")
print("a flower in doubt:", probability[np.argmin(probability.max(-1))].round(3))

length, width = np.meshgrid(np.linspace(0.5, 7.5, 80), np.linspace(-0.2, 2.9, 80))
grid = classes.predict_y(np.stack([length.ravel(), width.ravel()], -1))[0].numpy()
figure, axes = plt.subplots(1, K, figsize=(11, 3.4), sharey=True, layout="constrained")
for k, ax in enumerate(axes):
    colours = ax.contourf(
        length, width, grid[:, k].reshape(80, 80), np.linspace(0.0, 1.0, 11), cmap="cividis"
    )
    for j, marker in enumerate("o^s"):
        of_class = Y[:, 0] == j
        ax.plot(
            *X[of_class].T,
            marker,
            color="#D55E00" if j == k else "white",
            markersize=4,
            markeredgecolor="black",
            markeredgewidth=0.4,
            label=iris.target_names[j],
        )
    ax.set(title=f"P({iris.target_names[k]})", xlabel="petal length [cm]")
axes[0].set_ylabel("petal width [cm]")
axes[0].legend(fontsize="small", loc="upper left")
figure.colorbar(colours, ax=axes, label="probability")
plt.show()

# %%
# Counts
# ------
#
# These counts have more spread than Poisson counts: their variance is several times their mean.

rng = np.random.default_rng(2)
x = np.sort(rng.uniform(0.0, 10.0, (150, 1)), 0)
rate = np.exp(1.8 + 0.8 * np.sin(x))
y = rng.poisson(rate * rng.gamma(2.0, 0.5, x.shape)).astype(float)


def fitted(likelihood):
    model = gpflow_aaci.AugmentedSVGP(
        gpflow.kernels.SquaredExponential(),
        likelihood,
        np.linspace(0.0, 10.0, 25)[:, None],
        mean_function=gpflow.functions.Constant(),
        num_data=len(x),
    )
    gpflow.set_trainable(model.inducing_variable, False)
    result = gpflow_aaci.fit(model, (x, y), progress=False)
    print(f"{type(likelihood).__name__}: {result}\n")
    return model


negative_binomial = fitted(NegativeBinomial(total_count=2.0))
poisson = fitted(Poisson(max_rate=30.0))
gpflow.utilities.print_summary(negative_binomial.likelihood)

# %%
# The higher ELBO tells which noise fits better. Quantiles say what it means: nine in ten counts
# should lie between the 5 % and the 95 % quantile. These are quantiles of y, not of its mean, so
# they are counts themselves. The Poisson model takes spread for signal: its curve turns where the
# truth does not.

x_new = np.linspace(0.0, 10.0, 200)[:, None]
_, axes = plt.subplots(1, 2, figsize=(10, 3.6), sharey=True, layout="constrained")
for ax, model in zip(axes, [negative_binomial, poisson], strict=True):
    low, middle, high = gpflow_aaci.predictions.predict_y_quantile(
        model, x_new, [0.05, 0.5, 0.95], progress=False
    )
    low_at, high_at = gpflow_aaci.predictions.predict_y_quantile(
        model, x, [0.05, 0.95], progress=False
    )
    inside = np.mean((y >= low_at) & (y <= high_at))
    ax.plot(x, y, "k.", markersize=4, label="y")
    ax.plot(x_new, middle, color="#D55E00", drawstyle="steps-mid", label="median of y")
    ax.fill_between(
        x_new[:, 0],
        low[:, 0],
        high[:, 0],
        color="#D55E00",
        alpha=0.2,
        lw=0,
        step="mid",
        label="5 % to 95 %",
    )
    ax.plot(x_new, np.exp(1.8 + 0.8 * np.sin(x_new)), "k:", linewidth=1, label="true mean")
    name = type(model.likelihood).__name__
    ax.set(title=f"{name}: {inside:.0%} of the data inside", xlabel="x")
axes[0].set_ylabel("count y")
axes[0].legend(fontsize="small")
plt.show()
