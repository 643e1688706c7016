"""
Bayesian optimisation and deep GPs: trieste and GPflux
======================================================

Trieste (Bayesian optimisation) and GPflux (deep Gaussian processes) are built on GPflow. This page
runs their introductory scripts with one class swapped, and shows what the swap gives.

(Trieste's releases need TensorFlow below 2.19. GPflux's have no such limit.)
"""

import gpflow
import gpflux
import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
import trieste
from gpflow.keras import tf_keras

import gpflow_aaci

# %%
# Trieste
# -------
#
# A function is to be minimised, but about every seventh evaluation is far off. The runs of one
# script differ in the class of the model, and in how it is trained. Trieste's default is L-BFGS on
# all parameters of either class, so the swap alone brings no closed-form steps. A subclass of
# Trieste's ``Optimizer`` whose ``optimize`` calls ``fit_collapsed`` does.


class Collapsed(trieste.models.optimizer.Optimizer):
    """An optimizer in the place of Trieste's default."""

    def optimize(self, model, dataset):
        return gpflow_aaci.fit_collapsed(model, progress=False)


def objective(x):
    """The function to minimise, without noise."""
    return np.sin(12.0 * x) * x - 0.5 * x


def observer(seed):
    rng = np.random.default_rng(seed)

    def observe(x):
        y = objective(np.asarray(x)) + 0.03 * rng.normal(size=x.shape)
        return tf.constant(y + rng.choice([0.0, 1.5, -1.5], size=x.shape, p=[0.86, 0.07, 0.07]))

    return trieste.objectives.utils.mk_observer(observe)


space = trieste.space.Box([0.0], [1.0])


def run(model_class, *trained_by, steps=4):
    observe = observer(seed=10)
    start = observe(tf.constant(np.linspace(0.02, 0.98, 16)[:, None]))
    kernel = gpflow.kernels.Matern52(lengthscales=0.2)
    kernel.lengthscales.prior = tfp.distributions.LogNormal(np.log(0.2), np.float64(0.3))
    likelihood = gpflow.likelihoods.StudentT(scale=0.05, df=3.0)
    gpflow.set_trainable(likelihood.scale, False)
    model = trieste.models.gpflow.VariationalGaussianProcess(
        model_class((start.query_points, start.observations), kernel, likelihood), *trained_by
    )
    optimizer = trieste.bayesian_optimizer.BayesianOptimizer(observe, space)
    result = optimizer.optimize(steps, start, model, track_state=False)
    return result.try_get_final_model(), result.try_get_final_dataset()


runs = {
    "VGP": run(gpflow.models.VGP),
    "AugmentedVGP": run(gpflow_aaci.AugmentedVGP),
    "AugmentedVGP, Collapsed": run(gpflow_aaci.AugmentedVGP, Collapsed(None)),
}
for name, (found, data) in runs.items():
    elbo = found.model.elbo()
    best = data.query_points[np.argmin(found.predict(data.query_points)[0])]
    print(f"{name}: ELBO {elbo:.2f} nats, minimum near {float(best[0]):.3f}")

# %%
# Filled dots are the evaluations that the optimizer has asked for.

x = np.linspace(0.0, 1.0, 200)[:, None]
_, axes = plt.subplots(1, 3, figsize=(11, 3.4), sharey=True, layout="constrained")
for ax, (name, (model, data)) in zip(axes, runs.items(), strict=True):
    mean, variance = (v.numpy()[:, 0] for v in model.predict(x))
    sd = np.sqrt(variance)
    ax.fill_between(x[:, 0], mean - 2 * sd, mean + 2 * sd, color="#D55E00", alpha=0.2, lw=0)
    ax.plot(x, mean, color="#D55E00", label="f, mean ± 2 sd")
    ax.plot(x, objective(x), "k:", linewidth=1, label="truth")
    X, Y = data.query_points.numpy(), data.observations.numpy()
    ax.plot(X[:16], Y[:16], "o", color="#0072B2", markerfacecolor="none", label="given")
    ax.plot(X[16:], Y[16:], "o", color="#0072B2", label="asked for")
    ax.set(title=name, xlabel="x")
axes[0].set_ylabel("objective")
axes[1].legend(fontsize="small")
plt.show()

# %%
# GPflux
# ------
#
# The model is a deep GP of two layers, and the data are a step with outliers. GPflux takes our
# likelihood as it is. Its loss has the expectation of log p(y|f), ``variational_expectations``, not
# the augmented bound. Adam trains q, without closed-form steps: these exist for the last layer at
# most. The swap gives likelihoods that GPflow does not have, quantiles of y and, where the noise is
# narrow compared with q(f), a more exact expectation.

Fmu, Fvar = np.zeros((1, 1)), np.ones((1, 1))
grid = np.linspace(-9.0, 9.0, 200_001)[:, None]
weights = np.exp(-0.5 * grid**2) / np.sqrt(2.0 * np.pi) * (grid[1] - grid[0])
for scale in (1.0, 0.1, 0.01):
    ours, theirs = (m.likelihoods.StudentT(scale, df=3.0) for m in (gpflow_aaci, gpflow))
    exact = np.sum(weights[:, 0] * ours.log_prob(grid, grid, 0.3 + 0.0 * grid))
    errors = (
        float(likelihood.variational_expectations(Fmu, Fmu, Fvar, Fmu + 0.3)[0]) - exact
        for likelihood in (theirs, ours)
    )
    print("scale {}: GPflow's is off by {:.1e} nats, ours by {:.1e}".format(scale, *errors))

# %%
# This is the script.

rng = np.random.default_rng(0)
N = 150
X = np.sort(rng.uniform(-1.0, 1.0, (N, 1)), 0)
Y = np.where(X > 0.0, 1.0, -1.0) + 0.1 * rng.standard_t(2, X.shape)
Z = np.linspace(-1.0, 1.0, 20)[:, None]


def layer(mean_function):
    return gpflux.layers.GPLayer(
        gpflux.helpers.construct_basic_kernel(
            gpflow.kernels.SquaredExponential(lengthscales=0.5),
            output_dim=1,
            share_hyperparams=True,
        ),
        gpflux.helpers.construct_basic_inducing_variables(20, 1, 1, True, z_init=Z),
        num_data=N,
        mean_function=mean_function,
    )


likelihood = gpflow_aaci.likelihoods.StudentT(scale=0.3, df=3.0)
deep = gpflux.models.DeepGP(
    [layer(gpflow.functions.Identity()), layer(gpflow.functions.Zero())],
    gpflux.layers.LikelihoodLayer(likelihood),
)
training = deep.as_training_model()
training.compile(tf_keras.optimizers.Adam(0.02))
losses = training.fit({"inputs": X, "targets": Y}, batch_size=N, epochs=400, verbose=0)
gpflow.utilities.print_summary(likelihood)

# %%
# A prediction is an average over draws of the first layer. ``predict_cdf`` returns P(y' ≤ y) for
# each of them. The contours of the average are the quantiles of y, whose noise is Student's t.

x = np.linspace(-1.0, 1.0, 101)[:, None]
y = np.linspace(-2.0, 2.0, 161)
Y_new = np.tile(y[:, None, None], (1, len(x), 1))
predict = deep.as_prediction_model()
cdf = 0.0
for _ in range(20):
    out = predict(x)
    cdf += likelihood.predict_cdf(x, out.f_mean, out.f_var, Y_new)[..., 0].numpy() / 20

_, (left, right) = plt.subplots(1, 2, figsize=(10, 3.4), layout="constrained")
left.plot(losses.history["loss"], color="#0072B2")
left.set(xlabel="steps of Adam", ylabel="loss [nats per datum]")
right.plot(X, Y, "k.", markersize=3)
right.contourf(x[:, 0], y, cdf, [0.05, 0.95], colors="#D55E00", alpha=0.25)
right.contour(x[:, 0], y, cdf, [0.5], colors="#D55E00")
right.set(xlabel="x", ylabel="y: median, central 90 %", ylim=(-2.0, 2.0))
plt.show()
