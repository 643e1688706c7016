"""
Text and categories in a table
==============================

*Tables with words.* Many tables have columns of words: a city, a treatment, a type. A GP needs to
know how alike two words are, and the data can tell. ``kernels.Categorical`` learns it, and models
then take the frame as it is. The data are the uptake of carbon dioxide by twelve plants of a grass,
six from Quebec and six from Mississippi, half of each chilled overnight, at seven concentrations
(*CO2* of R's ``datasets``; Potvin, Lechowicz and Tardif, *Ecology*, 1990).
"""

import gpflow
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import gpflow_aaci
from gpflow_aaci import effects, kernels, likelihoods
from gpflow_aaci.sklearn import AugmentedGPRegressor

conc = [95, 175, 250, 350, 500, 675, 1000]
uptake = {
    ("Quebec", "nonchilled", "Qn1"): [16.0, 30.4, 34.8, 37.2, 35.3, 39.2, 39.7],
    ("Quebec", "nonchilled", "Qn2"): [13.6, 27.3, 37.1, 41.8, 40.6, 41.4, 44.3],
    ("Quebec", "nonchilled", "Qn3"): [16.2, 32.4, 40.3, 42.1, 42.9, 43.9, 45.5],
    ("Quebec", "chilled", "Qc1"): [14.2, 24.1, 30.3, 34.6, 32.5, 35.4, 38.7],
    ("Quebec", "chilled", "Qc2"): [9.3, 27.3, 35.0, 38.8, 38.6, 37.5, 42.4],
    ("Quebec", "chilled", "Qc3"): [15.1, 21.0, 38.1, 34.0, 38.9, 39.6, 41.4],
    ("Mississippi", "nonchilled", "Mn1"): [10.6, 19.2, 26.2, 30.0, 30.9, 32.4, 35.5],
    ("Mississippi", "nonchilled", "Mn2"): [12.0, 22.0, 30.6, 31.8, 32.4, 31.1, 31.5],
    ("Mississippi", "nonchilled", "Mn3"): [11.3, 19.4, 25.8, 27.9, 28.5, 28.1, 27.8],
    ("Mississippi", "chilled", "Mc1"): [10.5, 14.9, 18.1, 18.9, 19.5, 22.2, 21.9],
    ("Mississippi", "chilled", "Mc2"): [7.7, 11.4, 12.3, 13.0, 12.5, 13.7, 14.4],
    ("Mississippi", "chilled", "Mc3"): [10.6, 18.0, 17.9, 17.9, 17.9, 18.9, 19.9],
}
rows = [(*words, c, y) for words, ys in uptake.items() for c, y in zip(conc, ys, strict=True)]
table = pd.DataFrame(rows, columns=["Type", "Treatment", "Plant", "conc", "uptake"])
table["log_conc"] = np.log(table.conc)
X, Y = table[["log_conc", "Type", "Treatment", "Plant"]], table[["uptake"]] / 10.0
print(X.iloc[[0, 21, 42, 63]].to_string(index=False))

# %%
# Multiplied with a kernel of the concentration, each factor ``Categorical`` gives every word a
# curve of its own, and learns one number: the correlation of the curves of two different words.
# Near 1 the word hardly matters, and near 0 the curves have nothing in common. Rows of one plant
# share a constant, too: ``effects.Grouped`` takes words as well. All words and numbers may stand in
# one frame, in the fit and in predictions. The other kernel must have its own ``active_dims``.


def smooth():
    return gpflow.kernels.SquaredExponential(active_dims=[0])


types = kernels.Categorical(1, X["Type"])
treatments = kernels.Categorical(2, X["Treatment"])
plants = effects.Grouped(3, levels=X["Plant"])
kernel = smooth() * types * treatments
model = gpflow_aaci.AugmentedVGP((X, Y), kernel, likelihoods.StudentT(), effects=[plants])
gpflow_aaci.fit(model, progress=False)
for part in (types, treatments):
    words = " and ".join(part.levels)
    print(f"the curves of {words} have a correlation of {part.correlation.numpy():.2f}")

figure, axes = plt.subplots(1, 2, figsize=(9, 3.8), sharey=True, layout="constrained")
grid = np.linspace(X["log_conc"].min(), X["log_conc"].max(), 60)
for ax, place in zip(axes, types.levels, strict=True):
    for colour, treatment in zip(("#0072B2", "#D55E00"), treatments.levels, strict=True):
        own = (X["Type"] == place) & (X["Treatment"] == treatment)
        ax.plot(table.conc[own], table.uptake[own], ".", color=colour)
        for plant in X["Plant"][own].unique():
            new = pd.DataFrame(
                {"log_conc": grid, "Type": place, "Treatment": treatment, "Plant": plant}
            )
            median = gpflow_aaci.predictions.predict_y_quantile(model, new, 0.5)
            label = treatment if plant == X["Plant"][own].iloc[0] else None
            ax.plot(np.exp(grid), 10.0 * median[0, :, 0], color=colour, lw=1.0, label=label)
    ax.set(title=place, xlabel="concentration of CO2", xscale="log")
axes[0].set_ylabel("uptake, median of each plant")
axes[0].legend(frameon=False)

# %%
# A word that the model has never seen has no curve. So it is refused, with the known ones.

try:
    model.predict_y(X[:1].assign(Type="Ontario"))
except ValueError as error:
    print(error)

# %%
# If some words are more alike than others, ``rank=1`` or more learns a whole matrix of covariances.
# It takes many rows for each word; with a few rows for each, as with the names of people or firms,
# the one correlation is better. Here the model is told which plant a row belongs to, and nothing
# else, and y is the departure from the mean of all plants. So the matrix says whose curves depart
# in the same way: those of Quebec (Q) do, and those of the chilled plants of Mississippi (Mc) do
# the opposite.

departure = Y - Y.groupby(table.conc).transform("mean")
alike = kernels.Categorical(1, X["Plant"], rank=2)
kernel = smooth() * alike
gpflow.set_trainable(kernel.kernels[0].variance, False)  # the matrix has the scale
data = X[["log_conc", "Plant"]], departure
of_plants = gpflow_aaci.AugmentedVGP(data, kernel, likelihoods.StudentT())
gpflow_aaci.fit(of_plants, progress=False)
B = alike.level_covariance().numpy()
R = B / np.sqrt(np.outer(np.diag(B), np.diag(B)))
figure, ax = plt.subplots(figsize=(5.2, 4.2), layout="constrained")
image = ax.imshow(R, cmap="RdBu_r", vmin=-1.0, vmax=1.0)
ax.set_xticks(range(len(R)), alike.levels, rotation=90)
ax.set_yticks(range(len(R)), alike.levels)
figure.colorbar(image, label="correlation of two plants")

# %%
# A sparse model needs inducing points with words, too: ``kmeans_plusplus`` chooses rows of the
# frame. Words stay as they are while the numbers beside them are trained.

kernel = smooth() * kernels.Categorical(1, X["Type"]) * kernels.Categorical(2, X["Treatment"])
three = X[["log_conc", "Type", "Treatment"]]
Z = gpflow_aaci.kmeans_plusplus(three, 16, kernel=kernel)
sparse = gpflow_aaci.AugmentedSVGP(kernel, likelihoods.StudentT(), Z, num_data=len(X))
print(gpflow_aaci.fit(sparse, (three, Y), progress=False))

# %%
# The estimators for scikit-learn do all this by themselves: every column of text or of categories
# becomes such a factor, with the levels of the fit.

is_test = np.arange(len(X)) % 4 == 0
for columns in (["log_conc"], ["log_conc", "Type", "Treatment"]):
    regressor = AugmentedGPRegressor(method="full", random_state=0)
    regressor.fit(X[columns][~is_test], table.uptake[~is_test])
    score = regressor.score(X[columns][is_test], table.uptake[is_test])
    print(f"R2 from {', '.join(columns)}: {score:.2f}")

plt.show()
