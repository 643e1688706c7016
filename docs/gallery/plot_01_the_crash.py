"""
Natural gradients and their step size
=====================================

*The crash.* Natural gradients are how GPflow's notebooks train q(u). With a likelihood that is not
conjugate the step size ``gamma`` must be found by trial: too large a step leaves the precision of
q(u) indefinite. The two scripts here differ only in ``gpflow.models`` against ``gpflow_aaci``.
"""

import gpflow
import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf

import gpflow_aaci

# %%
# Data with outliers, and a Student-t likelihood for them.

rng = np.random.default_rng(1)
X = rng.uniform(-3.0, 3.0, (300, 1))
Y = np.sin(2.0 * X) + 0.2 * rng.standard_t(2, X.shape)
Z = np.linspace(-3.0, 3.0, 30)[:, None]


def make(models):
    """The same model from either package."""
    kernel = gpflow.kernels.Matern52(lengthscales=0.5)
    likelihood = gpflow.likelihoods.StudentT(scale=0.2, df=3.0)
    return models(kernel, likelihood, Z, num_data=len(X))


# %%
# The same loop for both: GPflow's own ``NaturalGradient`` on ``training_loss``. A model of
# gpflow_aaci is trained on the augmented bound. There, any step size ``gamma`` ≤ 1 gives a valid
# distribution q: the step averages the old q and the closed-form update.


def train(model, gamma, steps=20):
    """GPflow's ELBO before the first step and after each, and the message of a failed step."""
    optimizer = gpflow.optimizers.NaturalGradient(gamma)
    elbo = model.elbo
    elbos = [float(elbo((X, Y)))]
    loss = model.training_loss_closure((X, Y), compile=False)
    q = [(model.q_mu, model.q_sqrt)]
    step = tf.function(lambda: optimizer.minimize(loss, q), autograph=False)
    for _ in range(steps):
        try:
            step()
        except tf.errors.InvalidArgumentError as failure:
            return elbos, failure.message.partition("} ")[2].partition("\n")[0]
        elbos.append(float(elbo((X, Y))))
    return elbos, None


gammas = [0.1, 0.5, 1.0]
theirs = {gamma: train(make(gpflow.models.SVGP), gamma) for gamma in gammas}
ours = {gamma: train(make(gpflow_aaci.AugmentedSVGP), gamma) for gamma in gammas}

# %%
# A curve of GPflow's model ends where it raises an error. The messages are printed below.

figure, axes = plt.subplots(1, 2, figsize=(9, 3.4), sharey=True, layout="constrained")
for ax, title, runs in zip(
    axes, ["gpflow.models.SVGP", "gpflow_aaci.AugmentedSVGP"], [theirs, ours], strict=True
):
    for gamma, colour, marker in zip(gammas, ["#0072B2", "#009E73", "#D55E00"], ".s^", strict=True):
        elbos, message = runs[gamma]
        ax.plot(elbos, color=colour, marker=marker, markersize=5, label=f"gamma = {gamma}")
        if message is not None:
            end = len(elbos) - 1, max(elbos[-1], -560.0)
            (cross,) = ax.plot(*end, "x", color="red", markersize=11, markeredgewidth=2.5)
    ax.set(title=title, xlabel="natural-gradient steps", ylim=(-560, -90))
    ax.set_xticks(range(0, 21, 5))
    ax.grid(alpha=0.3)
axes[0].set_ylabel("ELBO (GPflow's) [nats]")
axes[0].legend([cross], ["NaN in q_sqrt: the run ends"], loc="lower right")
axes[1].legend(loc="lower right")
plt.show()

# %%

for gamma, (elbos, message) in theirs.items():
    print(f"gamma = {gamma}: {message or f'ELBO {elbos[-1]:.1f}'}\n")

# %%
# On full batches, closed-form steps need no step size: ``AugmentedNaturalGradient(1.0)``. ``fit``
# maximises over q at every step, so that hyperparameters are fitted without a step size, too.

model = make(gpflow_aaci.AugmentedSVGP)
print(gpflow_aaci.fit(model, (X, Y), progress=False))
