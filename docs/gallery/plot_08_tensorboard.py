"""
TensorBoard
===========

``train`` calls a ``gpflow.monitor.Monitor`` at every step. ``monitor.standard_tasks`` makes its
tasks: both bounds and their gap, held-out loss, step size, hyperparameters, the auxiliary
variables, and a picture of the fit.

.. image:: /tensorboard.png
   :alt: TensorBoard in a browser, with curves of the bounds, the held-out loss and the step size
"""

import pathlib
import tempfile

import gpflow
import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import gpflow_aaci

# %%
# The data have outliers, and a fifth of them are held out.

rng = np.random.default_rng(0)
X = rng.uniform(-3.0, 3.0, (500, 1))
Y = np.sin(2.0 * X) + 0.2 * rng.standard_t(2, X.shape)
train_data, test_data = (X[:400], Y[:400]), (X[400:], Y[400:])
model = gpflow_aaci.AugmentedSVGP(
    gpflow.kernels.Matern52(),
    gpflow_aaci.likelihoods.StudentT(),
    np.linspace(-3.0, 3.0, 25)[:, None],
    num_data=400,
)

# %%
# The tasks, with the image among them, run at every 20th step. They pass over all training data: if
# these are many, give them a part.

log_dir = str(pathlib.Path(tempfile.mkdtemp()) / "run")
optimizer = gpflow_aaci.AlternatingOptimizer()
tasks = gpflow_aaci.monitor.standard_tasks(
    log_dir, model, train_data, test_data, optimizer.step_size, period=20
)
history = gpflow_aaci.train(
    model,
    train_data,
    optimizer=optimizer,
    num_steps=600,
    test_data=test_data,
    monitor=gpflow.monitor.Monitor(tasks),
    progress=False,
)
print(history.round(3).to_string(index=False))

# %%
# Then run ``tensorboard --logdir`` with the folder in a terminal, which shows the picture above.
# Without a browser, the file can be read in Python.

events = EventAccumulator(log_dir, size_guidance={"tensors": 0}).Reload()  # 0 keeps all of them
tags = events.Tags()["tensors"]
print(*tags, sep="\n")


def curve(tag):
    """The steps and values of a scalar."""
    found = events.Tensors(tag)
    return [e.step for e in found], [float(tf.make_ndarray(e.tensor_proto)) for e in found]


# %%
# The gap is what the augmented bound loses: a few nats here, and the more, the lower
# ``likelihood.df`` has become, that is, the heavier the tails of the noise are.

panels = {
    "bounds [nats]": ("elbo/augmented", "elbo/standard"),
    "gap [nats]": ("elbo/gap",),
    "held-out loss [nats per datum]": ("test/nll",),
    "hyperparameters": [
        tag for tag in tags if tag.startswith(("kernel.", "likelihood.")) and "/" not in tag
    ],
    "step size": ("step_size",),
}
figure, axes = plt.subplots(2, 3, figsize=(11, 5.6), layout="constrained")
for ax, (label, shown) in zip(axes.flat, panels.items(), strict=False):
    for tag, colour in zip(shown, ["#0072B2", "#D55E00", "#009E73", "#CC79A7"], strict=False):
        ax.plot(*curve(tag), ".-", markersize=3, color=colour, label=tag)
    ax.set(xlabel="step", ylabel=label)
    ax.legend(fontsize="small")
image = tf.make_ndarray(events.Tensors("fit")[-1].tensor_proto)[2]
axes.flat[-1].imshow(tf.image.decode_png(image))
axes.flat[-1].set_axis_off()
plt.show()
