"""
A posterior with two modes
==========================

Four observations contradict each other: two are 3 and two are −3. Under Student-t noise, either
pair may be the outliers: the posterior has two modes, and a Gaussian q(f) can cover one of them or
the valley between. ``MixtureVGP`` covers both (Nguyen and Bonilla, *Automated Variational Inference
for Gaussian Process Models*, NIPS 2014).
"""

import gpflow
import matplotlib.pyplot as plt
import numpy as np

import gpflow_aaci

X = np.array([[0.0], [0.1], [0.2], [0.3]])
Y = np.array([[3.0], [-3.0], [3.0], [-3.0]])
X_new = np.linspace(-3.0, 3.3, 100)[:, None]


def kernel():
    """The kernel of all models: f has a standard deviation of 3 and a lengthscale of 1."""
    return gpflow.kernels.SquaredExponential(9.0, lengthscales=1.0)


# %%
# Models with one component and with two are trained like any model of GPflow's. Only q is trained,
# so that the bounds are on the same log p(Y).

likelihood = gpflow_aaci.likelihoods.StudentT(0.3, df=3.0)
models = []
for num_components in (1, 2):
    model = gpflow_aaci.contrib.MixtureVGP(
        (X, Y), kernel(), likelihood, num_components=num_components
    )
    gpflow.set_trainable(model.kernel, False)
    gpflow.set_trainable(model.likelihood, False)
    gpflow.optimizers.Scipy().minimize(model.training_loss_closure(), model.trainable_variables)
    means, variances = model.predict_f_components(X[:1])
    components = zip(means[:, 0, 0], variances[:, 0, 0], strict=True)
    said = " and ".join(f"{m:.2f} ± {np.sqrt(v):.2f}" for m, v in components)
    print(f"K = {num_components}: log p(Y) ≥ {model.elbo():.2f}, f(0) ≈ {said}")
    models.append(model)

# %%
# Gibbs sampling gives the exact posterior. Chains hardly change modes, so there are many of them.

exact = gpflow_aaci.AugmentedVGP((X, Y), kernel(), likelihood)
samples = gpflow_aaci.sample_posterior(exact, num_samples=100, num_chains=50, progress=False)
f = samples.posterior["f"].values[..., 0, 0].ravel()
print(f"Gibbs: {np.mean(f > 0):.0%} at {np.median(f[f > 0]):.2f}, else {np.median(f[f < 0]):.2f}")

# %%
# The figure shows f at 0 under both models, and draws from the mixture.

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.2), layout="constrained")
grid = np.linspace(-6.0, 6.0, 400)
left.hist(f, bins=80, range=(-6.0, 6.0), density=True, color="0.8", label="Gibbs")
for model, color in zip(models, ["#0072B2", "#D55E00"], strict=True):
    means, variances = (part.numpy()[:, 0, 0] for part in model.predict_f_components(X[:1]))
    density = np.exp(-0.5 * (grid[:, None] - means) ** 2 / variances) / np.sqrt(
        2.0 * np.pi * variances
    )
    label = f"K = {model.num_components}"
    left.plot(grid, density.mean(1), color=color, label=label)
left.set(xlabel="f(0)", ylabel="density")
left.legend()
draws = models[1].predict_f_samples(X_new, 30).numpy()[..., 0]
right.plot(X_new, draws.T, color="#D55E00", alpha=0.3, lw=1)
right.plot(X, Y, "kx")
right.set(xlabel="x", ylabel="f, 30 draws at K = 2")
plt.show()
