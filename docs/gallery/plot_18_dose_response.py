"""
Dose and response: a curve that only falls
==========================================

*More poison, shorter roots.* Ryegrass grew in water with ferulic acid, and its roots were measured
(Inderjit, Streibig and Olofsdotter 2002; the table is ``ryegrass`` of R's package drc). More of the
acid cannot make roots longer. A GP does not know this: its curves rise where the noise does. Here
it is told, by :func:`gpflow_aaci.shapes.constrained`, and the dose that halves the roots has a
distribution, without a formula for the curve.
"""

import gpflow
import matplotlib.pyplot as plt
import numpy as np

import gpflow_aaci
from gpflow_aaci import shapes
from gpflow_aaci.kernels import WithDerivatives

dose = np.repeat([0.0, 0.94, 1.88, 3.75, 7.5, 15.0, 30.0], [6, 3, 3, 3, 3, 3, 3])  # mM
control = [7.58, 8.00, 8.33, 7.25, 7.38, 7.96]
treated = [8.36, 6.91, 7.75, 6.87, 6.45, 5.92, 1.93, 2.89, 4.23]
stunted = [1.19, 0.86, 1.06, 0.69, 0.53, 0.83, 0.25, 0.22, 0.44]
roots = np.array([*control, *treated, *stunted])  # cm
X, Y = np.log1p(dose)[:, None], roots[:, None]
X_new = np.linspace(X.min(), X.max(), 121)[:, None]

# %%
# First the fit without the constraint, under Student-t noise, so that no single pot decides. The
# kernel knows the slopes of f; all rows are of f itself so far.

kernel = WithDerivatives(
    gpflow.kernels.Constant(16.0) + gpflow.kernels.SquaredExponential(9.0, lengthscales=1.0),
    input_dim=1,
)
noise = gpflow_aaci.likelihoods.StudentT(scale=0.5)
free = gpflow_aaci.AugmentedVGP((shapes.of_f(X), Y), kernel, noise)
print(gpflow_aaci.fit(free, progress=False))

# %%
# Then f may not rise at sixteen doses. The hyperparameters stay as they are: learnt under the
# constraint, they would be such that most curves fall anyway, which are too smooth. ``polish``
# finds q(f) for them.

at = np.linspace(X.min(), X.max(), 16)[:, None]
data, likelihood = shapes.constrained((X, Y), noise, at, decreasing=0)
falling = gpflow_aaci.AugmentedVGP(data, kernel, likelihood)
print(gpflow_aaci.polish(falling, progress=False))
for name, model in [("free", free), ("falling", falling)]:
    steps = np.diff(model.predict_f(shapes.of_f(X_new))[0][:, 0])
    print(f"{name}: {100 * np.mean(steps > 0):.0f} % of the mean's steps rise")

# %%
# The posterior itself, by Gibbs sampling, which is exact under the constraint too. A curve that
# only falls passes half of its first height once: at the dose ED50.


def curves(model, num_samples):
    """Draws of f at X_new, [S, 121]."""
    samples = gpflow_aaci.sample_posterior(model, num_samples=num_samples, progress=False)
    rows = shapes.of_f(X_new)
    f = gpflow_aaci.predictions.predict_f_samples(model, rows, samples=samples, progress=False)
    return f.reshape(-1, len(X_new))


drawn = {"free": curves(free, 250), "falling": curves(falling, 500)}
for name, f in drawn.items():
    low = np.minimum.accumulate(f, axis=1)
    print(f"{name}: {np.mean((f - low).max(1) > 0.05):.2f} of the curves rise by 0.5 mm somewhere")
f = drawn["falling"]
half = np.expm1([np.interp(curve[0] / 2.0, curve[::-1], X_new[::-1, 0]) for curve in f])
print("ED50: {:.1f} mM, from {:.1f} to {:.1f}".format(*np.quantile(half, [0.5, 0.05, 0.95])))

# %%
# On the left and in the middle 90 % of the curves, and some of them.

figure, axes = plt.subplots(1, 3, figsize=(10, 3.2), layout="constrained")
for ax, (name, f) in zip(axes, drawn.items(), strict=False):
    low, median, high = np.quantile(f, [0.05, 0.5, 0.95], axis=0)
    ax.fill_between(X_new[:, 0], low, high, color="#0072B2", alpha=0.2)
    ax.plot(X_new[:, 0], f[:: len(f) // 8].T, color="#0072B2", lw=0.5)
    ax.plot(X_new[:, 0], median, color="#0072B2")
    ax.plot(X[:, 0], roots, "k.")
    ax.set_xticks(np.log1p([0, 1, 3, 10, 30]), [0, 1, 3, 10, 30])
    ax.set(xlabel="dose [mM]", ylabel="root [cm]", title=name)
axes[2].hist(half, bins=30, color="#0072B2")
axes[2].set(xlabel="ED50 [mM]", ylabel="curves")
plt.show()
