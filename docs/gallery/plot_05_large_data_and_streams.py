"""
Large data in files and streams
===============================

The data are 60,000 simulated taxi rides in files. Exact full-batch inference makes passes over
them, minibatches are read one after another, and neither holds all rows in memory.
"""

import pathlib
import tempfile

import gpflow
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import tensorflow as tf

import gpflow_aaci

folder = pathlib.Path(tempfile.mkdtemp())

# %%
# There are three Parquet files, one CSV file with the same rows, and one array on disk. A ride
# takes the longer the further from the centre it starts; some start in a jam, and one in ten is
# held up.

rng = np.random.default_rng(0)
N = 60_000
X = rng.uniform(-1.0, 1.0, (N, 2))
minutes = 12.0 + 6.0 * np.hypot(*X.T) + 5.0 * np.exp(-8.0 * np.sum((X - 0.3) ** 2, 1))
minutes += rng.normal(size=N) + rng.exponential(8.0, N) * (rng.uniform(size=N) < 0.1)
minutes -= 17.0  # the model below has mean 0
rides = pd.DataFrame({"east": X[:, 0], "north": X[:, 1], "minutes": minutes})
for part in range(3):
    rows = rides[part * N // 3 : (part + 1) * N // 3]
    rows.to_parquet(folder / f"rides-{part}.parquet", index=False)
rides.to_csv(folder / "rides.csv", index=False)
np.save(folder / "rides.npy", rides.to_numpy())

# %%
# Any ``tf.data.Dataset`` of batches X [B, 2], Y [B, 1] will do. There is a function for Parquet
# files; the others are read by a generator.

parquet = gpflow_aaci.data.from_parquet(
    sorted(folder.glob("*.parquet")), inputs=["east", "north"], outputs=["minutes"]
)


def from_csv():
    for frame in pd.read_csv(folder / "rides.csv", chunksize=10_000):
        yield frame[["east", "north"]].to_numpy(), frame[["minutes"]].to_numpy()


def from_memmap():
    array = np.load(folder / "rides.npy", mmap_mode="r")
    for start in range(0, len(array), 10_000):
        rows = np.array(array[start : start + 10_000])
        yield rows[:, :2], rows[:, 2:]


of_batches = tuple(tf.TensorSpec([None, columns], tf.float64) for columns in (2, 1))
csv, memmap = (
    tf.data.Dataset.from_generator(rows, output_signature=of_batches)
    for rows in (from_csv, from_memmap)
)

# %%
# Passes
# ------
#
# A step of size 1 on a dataset is a pass over it. No pass stores more than a chunk of rows, and its
# sums are over all rows, so that every file gives the same result.


def make():
    model = gpflow_aaci.AugmentedSVGP(
        gpflow.kernels.SquaredExponential(variance=10.0, lengthscales=[0.5, 0.5]),
        gpflow_aaci.likelihoods.StudentT(scale=1.0, df=3.0),
        gpflow_aaci.kmeans_plusplus(X[:5_000], 40),
        num_data=N,
    )
    gpflow.set_trainable(model.inducing_variable, False)
    return model


model = make()
optimizer = gpflow_aaci.AugmentedNaturalGradient(step_size=1.0)
for _ in range(3):
    optimizer.minimize(model, parquet, progress=False)
    print(f"ELBO {model.elbo(parquet, progress=False):.3f}")
for name, dataset in {"CSV": csv, "memmap": memmap}.items():
    print(f"from the {name} {model.elbo(dataset, progress=False):.3f}")

# %%
# A fit that is interrupted
# -------------------------
#
# ``fit_collapsed`` fits kernel and noise too, with exact sums in the end. It begins on small
# subsets, so passes are few. Here it is interrupted at its second iteration on all rows, as if by
# Ctrl-C; the same call resumes from the checkpoint, as it does after a crash.

seen = []


def interrupt(progress):
    seen.append(progress)
    if sum(p.rows == N for p in seen) == 2:
        raise KeyboardInterrupt


model = make()
checkpoints = folder / "checkpoints"
try:
    gpflow_aaci.fit_collapsed(
        model, parquet, checkpoint_dir=checkpoints, callback=interrupt, progress=False
    )
except KeyboardInterrupt:
    print(f"interrupted after {seen[-1].evaluations} evaluations")
result = gpflow_aaci.fit_collapsed(
    model, parquet, checkpoint_dir=checkpoints, callback=seen.append, progress=False
)
print(f"{result.reason}; {result.evaluations} evaluations in all")
gpflow.utilities.print_summary(model.likelihood)

# %%
# Minibatches
# -----------
#
# If the data have no end, or a pass takes too long, ``train`` takes steps on minibatches. This
# dataset repeats endlessly and shuffles 5,000 rows at a time. Step sizes are adapted on the way.

batches = parquet.unbatch().shuffle(5_000, seed=0).repeat().batch(200)
by_batches = make()
history = gpflow_aaci.train(by_batches, batches, num_steps=500, evaluate_every=50, progress=False)
print(f"ELBO on all rows {by_batches.elbo(parquet, progress=False):.0f} after 500 steps")
print(f"ELBO of the fit  {model.elbo(parquet, progress=False):.0f}")

# %%
# The left panel shows the ELBO of the fit at every iteration; every subset of rows has its own
# curve. The right panel is the map: rides are shortest near the centre, except for a jam
# north-east.

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
rows = np.array([p.rows for p in seen])
for n, colour in zip(
    np.unique(rows[rows > 0]), ["#56B4E9", "#009E73", "#E69F00", "#D55E00"], strict=False
):
    at = np.flatnonzero(rows == n)
    left.plot(at, [-seen[i].objective / N for i in at], ".-", color=colour, label=f"{n:,} rows")
left.set(xlabel="iterations", ylabel="−ELBO [nats per ride]")
left.legend()
east, north = np.meshgrid(np.linspace(-1.0, 1.0, 60), np.linspace(-1.0, 1.0, 60))
mean, _ = model.predict_f(np.stack([east.ravel(), north.ravel()], -1))
colours = right.contourf(east, north, 17.0 + mean.numpy().reshape(60, 60), 12, cmap="cividis")
right.plot(*model.inducing_variable.Z.numpy().T, "x", color="#D55E00", label="inducing points")
figure.colorbar(colours, ax=right, label="ride, centre of the noise [minutes]")
right.set(xlabel="east [km]", ylabel="north [km]", aspect="equal")
right.legend(loc="lower left")
plt.show()
