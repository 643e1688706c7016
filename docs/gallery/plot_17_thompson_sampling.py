"""
Thompson sampling
=================

*Where is the minimum?* Bayesian optimisation asks where to evaluate a costly function next.
Thompson sampling answers with the minimum of a function drawn from the posterior: where the
function is well known, all draws have their minimum at the same place, and where it is not, the
draws explore. ``predict_f_samples`` draws f on a grid, at a cost that is cubic in the number of its
points, and in more than two dimensions a grid has too many. ``sample_functions`` draws functions
that can be evaluated anywhere, at a cost that is linear in the number of points, and followed
downhill by their gradients.
"""

import gpflow
import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

import gpflow_aaci
from gpflow_aaci.predictions import sample_functions

# %%
# Functions, not values on a grid
# -------------------------------
#
# Fourteen evaluations of a function of one variable, one of them far off. With Student-t noise the
# outlier does not pull f towards itself. Each drawn function can be evaluated at any x, and is the
# same function every time.

rng = np.random.default_rng(1)
X = rng.uniform(0.0, 1.0, (14, 1))
Y = np.sin(12.0 * X) * X - 0.5 * X + 0.03 * rng.normal(size=X.shape)
Y[4] += 1.5


def fitted(X, Y, likelihood):
    kernel = gpflow.kernels.Matern52(lengthscales=[0.3] * X.shape[1])
    kernel.lengthscales.prior = tfp.distributions.LogNormal(np.log(0.3), np.float64(0.5))
    model = gpflow_aaci.AugmentedVGP((X, Y), kernel, likelihood)
    gpflow_aaci.fit(model, progress=False)
    return model


model = fitted(X, Y, gpflow_aaci.likelihoods.StudentT(scale=0.1, df=3.0))
functions = sample_functions(model, 8)

# %%
# ``functions(X)`` with X [N, D] is [S, N, 1]: all S functions at the same points. With X [S, N, D]
# every function has points of its own. The second form is what an optimizer needs: the sum of all
# functions, each at its own x, has as its gradient the slopes of all of them. So L-BFGS descends
# on all functions at once, from the best of some random points; the Sigmoid keeps x in the box.


def minima(functions, num_columns, rng):
    """A minimum [S, D] in the unit cube of each function."""
    start = rng.uniform(0.01, 0.99, (500, num_columns))
    lowest = start[np.argmin(functions(start)[..., 0], axis=1)]
    box = tfp.bijectors.Sigmoid(np.float64(0.0), np.float64(1.0))
    x = gpflow.Parameter(lowest[:, None], transform=box)  # [S, 1, D]
    gpflow.optimizers.Scipy().minimize(
        lambda: tf.reduce_sum(functions(x)), x.trainable_variables, options={"maxiter": 30}
    )
    return x.numpy()[:, 0]


at = minima(functions, 1, rng)
lowest = functions(at[:, None])[:, 0, 0].numpy()
on_grid = functions(np.linspace(0.0, 1.0, 51)[:, None])[..., 0].numpy().min(1)
print(f"The minima are lower than on a grid of 51 points, by up to {max(on_grid - lowest):.4f}")

grid = np.linspace(-0.1, 1.1, 400)[:, None]
_, ax = plt.subplots(figsize=(7, 3.6), layout="constrained")
ax.plot(grid, functions(grid)[..., 0].numpy().T, color="#0072B2", linewidth=0.8)
ax.plot(grid, np.sin(12.0 * grid) * grid - 0.5 * grid, "k--", linewidth=1, label="truth")
ax.plot(X, Y, "ko", markersize=4, label="evaluations")
ax.plot(at[:, 0], lowest, "v", color="#D55E00", label="minima of the draws")
ax.set(xlabel="x", ylabel="f")
ax.legend(fontsize="small")
plt.show()

# %%
# Four rounds of eight evaluations
# --------------------------------
#
# The function of two variables is Branin's, scaled as Picheny et al. (2013) do; its three minima
# are −1.05. Every eighth evaluation is far off. In each round eight functions are drawn, and
# Branin's is evaluated at their minima, all at once. The draws differ, so that a batch needs no
# other rule to spread out. The same is done with Gaussian noise.


def branin(x):
    """Branin's function of x [N, 2] in the unit square, [N, 1]."""
    u, v = 15.0 * x[:, :1] - 5.0, 15.0 * x[:, 1:]
    valley = v - 5.1 * u**2 / (4.0 * np.pi**2) + 5.0 * u / np.pi - 6.0
    return (valley**2 + (10.0 - 10.0 / (8.0 * np.pi)) * np.cos(u) - 44.81) / 51.95


def observe(x, rng):
    outlier = rng.choice([0.0, 4.0, -4.0], size=(len(x), 1), p=[0.88, 0.06, 0.06])
    return branin(x) + 0.05 * rng.normal(size=outlier.shape) + outlier


side = np.linspace(0.0, 1.0, 61)
square = np.stack(np.meshgrid(side, side), -1).reshape(-1, 2)


def optimise(make_likelihood, seed=3, rounds=4):
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(15, 2))
    Y, found = observe(X, rng), []
    for number in range(rounds + 1):
        model = fitted(X, Y, make_likelihood())
        found.append(square[np.argmin(model.predict_f(square)[0])])
        if number < rounds:
            new = minima(sample_functions(model, 8, seed=number), 2, rng)
            X, Y = np.vstack([X, new]), np.vstack([Y, observe(new, rng)])
    return model, X, np.array(found)


runs = {
    "Student-t noise": optimise(lambda: gpflow_aaci.likelihoods.StudentT(scale=0.1, df=3.0)),
    "Gaussian noise": optimise(lambda: gpflow_aaci.likelihoods.Gaussian(0.1)),
}
for name, (_, _, found) in runs.items():
    values = ", ".join(f"{value:.2f}" for value in branin(found)[:, 0])
    print(f"{name}: the function where its mean is lowest, by rounds: {values}")

# %%
# The mean is lowest where it is lightest, at the cross. Filled dots are the evaluations that the
# draws asked for; dashed lines are around the three minima.

figure, axes = plt.subplots(1, 2, figsize=(9, 4.5), sharey=True, layout="constrained")
for ax, (name, (model, X, found)) in zip(axes, runs.items(), strict=True):
    mean = model.predict_f(square)[0].numpy().reshape(61, 61)
    ax.contourf(side, side, mean, np.linspace(-1.5, 4.0, 23), cmap="Blues", extend="both")
    ax.contour(side, side, branin(square).reshape(61, 61), [-0.95], colors="k", linestyles="--")
    ax.plot(*X[:15].T, "o", color="k", markersize=4, markerfacecolor="none", label="given")
    ax.plot(*X[15:].T, "o", color="k", markersize=4, label="asked for")
    ax.plot(*found[-1], "X", color="#D55E00", markersize=10, label="found")
    ax.set(title=name, xlabel="x₁")
axes[0].set_ylabel("x₂")
handles, labels = axes[0].get_legend_handles_labels()
figure.legend(handles, labels, fontsize="small", loc="outside lower center", ncols=3)
plt.show()
