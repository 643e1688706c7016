"""
Saving and serving
==================

A fitted model is saved in one folder, to continue with, and as compiled functions that need neither
GPflow nor this package. A copy in single precision is small and fast.
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import time

import gpflow
import matplotlib.pyplot as plt
import numpy as np
import sklearn.datasets
import tensorflow as tf

import gpflow_aaci
from gpflow_aaci import saving
from gpflow_aaci.likelihoods import Gaussian, Warped, warps

folder = pathlib.Path(tempfile.mkdtemp())

# %%
# The data are the progress of diabetes, a positive number, against body-mass index and blood
# pressure. The model is for its logarithm, but all predictions are for y itself.

X, y = sklearn.datasets.load_diabetes(return_X_y=True)
X, Y = X[:, [2, 3]] / X.std(), y[:, None]

model = gpflow_aaci.AugmentedSVGP(
    gpflow.kernels.SquaredExponential(lengthscales=[2.0, 2.0]),
    Warped(Gaussian(scale=0.5), warps.Log()),
    gpflow_aaci.kmeans_plusplus(X, 30),
    mean_function=gpflow.functions.Constant(5.0),
    num_data=len(X),
)
gpflow.set_trainable(model.inducing_variable, False)
print(gpflow_aaci.fit(model, (X, Y), progress=False))

# %%
# One folder
# ----------
#
# ``save`` writes the model, and its predictions as functions of TensorFlow. In a process that has
# this package, ``load`` returns the model, to continue with. Load only folders that you trust.
# (A fit can write checkpoints to a ``checkpoint_dir`` while it runs; the same call then resumes
# it.)

saving.save(model, folder / "model")
again = saving.load(folder / "model").model
print(f"{model.elbo((X, Y)):.6f} before, {again.elbo((X, Y)):.6f} after")

# %%
# Another process has TensorFlow alone. It asks for quantiles, since y is not normal: its mean and
# variance do not determine them.

script = f"""
import sys
import numpy as np
import tensorflow as tf
model = tf.saved_model.load({str(folder / "model")!r})
X = np.load({str(folder / "new.npy")!r})
np.save({str(folder / "served.npy")!r}, model.predict_y_quantile(X, [0.05, 0.5, 0.95]))
print("gpflow imported:", "gpflow" in sys.modules)
"""
line = np.linspace(X[:, 0].min(), X[:, 0].max(), 100)
X_new = np.stack([line, np.zeros(100)], -1)
np.save(folder / "new.npy", X_new)
done = subprocess.run(
    [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=300
)
print(done.stdout.strip())
served = np.load(folder / "served.npy")
expected = gpflow_aaci.predictions.predict_y_quantile(model, X_new, [0.05, 0.5, 0.95])
print(f"largest difference {np.max(np.abs(served - expected)):.1e}")

# %%
# A file says what is in the folder: how each function is called, what the columns of X hold, and
# what was left out because it needs Python.

print(json.dumps(json.loads((folder / "model" / "saved.json").read_text()), indent=1)[:700])

# %%
# Single precision
# ----------------
#
# ``gpflow.utilities.freeze_as_float32`` makes a copy with constants instead of parameters, for
# prediction on a device that is faster with it. Fit in double precision, then freeze.

small = gpflow.utilities.freeze_as_float32(model)
many = np.random.default_rng(0).normal(size=(20_000, 2))
for name, frozen, inputs in (
    ("float64", gpflow.utilities.freeze(model), tf.constant(many)),
    ("float32", small, tf.constant(many, tf.float32)),
):
    predict = tf.function(frozen.predict_y)
    predict(inputs)  # this compiles it
    start = time.perf_counter()
    mean, _ = predict(inputs)
    print(f"{name}: {1e3 * (time.perf_counter() - start):.0f} ms, first mean of y {mean[0, 0]:.5f}")

# %%
# The served predictions against body-mass index, at the mean blood pressure; crosses are patients.

_, ax = plt.subplots(figsize=(6, 3.6), layout="constrained")
bmi = sklearn.datasets.load_diabetes(scaled=False).data[:, 2]
unit = np.polyfit(X[:, 0], bmi, 1)
progress = served[..., 0]
ax.plot(bmi, y, "kx", markersize=3, alpha=0.5, label="patients")
ax.plot(np.polyval(unit, line), progress[1], color="#D55E00", label="median")
ax.fill_between(
    np.polyval(unit, line),
    progress[0],
    progress[2],
    color="#D55E00",
    alpha=0.2,
    lw=0,
    label="5 % to 95 %",
)
mean, variance = small.predict_y(X_new.astype(np.float32))
for sign in (-1.645, 1.645):
    edge = (mean + sign * np.sqrt(variance))[:, 0]
    label = "mean ± 1.645 sd of y" if sign > 0 else None
    ax.plot(np.polyval(unit, line), edge, "--", color="#0072B2", linewidth=1, label=label)
ax.set(xlabel="body-mass index [kg/m²]", ylabel="progress of the disease")
ax.legend(fontsize="small", loc="upper left")
plt.show()
