"""
Regression with outliers
========================

There are ten points on a curve, and one of them is wrong. With Gaussian noise it bends the curve.
Student-t noise ignores it, but then q(f) has no closed form, and the quantiles of y are not normal.
"""

import gpflow
import matplotlib.pyplot as plt
import numpy as np

import gpflow_aaci

X = np.linspace(0.05, 0.95, 10)[:, None]
Y = np.sin(6.0 * X) + 0.05 * np.random.default_rng(3).normal(size=X.shape)
Y[6] += 2.0
X_new = np.linspace(-0.1, 1.1, 200)[:, None]


def kernel():
    """The kernel of all models."""
    return gpflow.kernels.SquaredExponential(lengthscales=0.3)


# %%
# Exact inference with Gaussian noise.

gaussian = gpflow.models.GPR((X, Y), kernel(), noise_variance=0.01)
gpflow.optimizers.Scipy().minimize(gaussian.training_loss, gaussian.trainable_variables)

# %%
# Student-t noise as in GPflow's notebooks: L-BFGS trains all parameters.

theirs = gpflow.models.VGP((X, Y), kernel(), gpflow.likelihoods.StudentT(0.05, df=3.0))
found = gpflow.optimizers.Scipy().minimize(
    theirs.training_loss, theirs.trainable_variables, options={"maxiter": 5_000}
)
print(f"{found.nfev} evaluations, ELBO {-found.fun:.3f}")

# %%
# The same model with another class is trained in one line.

ours = gpflow_aaci.AugmentedVGP((X, Y), kernel(), gpflow.likelihoods.StudentT(0.05, df=3.0))
print(gpflow_aaci.fit(ours, progress=False))

# %%
# ``predict_y`` returns mean and variance of y. Under Student-t noise y is not normal, so they do
# not determine its quantiles. ``predict_y_quantile`` returns the true quantiles, also for
# GPflow's own models with likelihoods of this package.

levels = [0.05, 0.5, 0.95]
theirs.likelihood = gpflow_aaci.likelihoods.augmented(theirs.likelihood)
figure, axes = plt.subplots(1, 3, figsize=(10, 3.2), sharey=True, layout="constrained")
for ax, model, title in zip(
    axes,
    [gaussian, theirs, ours],
    ["GPR, Gaussian", "VGP, Student-t, Scipy()", "AugmentedVGP, Student-t, fit"],
    strict=True,
):
    if model is gaussian:
        mean, variance = model.predict_y(X_new)
        low, middle, high = (mean + z * np.sqrt(variance) for z in (-1.645, 0.0, 1.645))
    else:
        quantiles = gpflow_aaci.predictions.predict_y_quantile(model, X_new, levels)
        low, middle, high = np.moveaxis(quantiles.numpy(), 0, 0)
    ax.plot(X, Y, "kx")
    ax.plot(X_new, middle, color="#D55E00")
    ax.fill_between(X_new[:, 0], low[:, 0], high[:, 0], color="#D55E00", alpha=0.2, lw=0)
    ax.plot(X_new, np.sin(6.0 * X_new), "k:", linewidth=1)
    ax.set(title=title, xlabel="x", ylim=(-2.2, 2.6))
axes[0].set_ylabel("y: median, central 90 %")
plt.show()
